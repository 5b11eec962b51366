"""Threads: callers that want one each do not wait for each other."""

import threading

from manifoldrf._threads import quick_map


def test_callers_with_one_thread_each_work_at_the_same_time():
    """As the tasks of a worker do: each meets the other in the middle of its work."""
    both = threading.Barrier(2, timeout=30)
    found = []

    def call():
        found.append(quick_map(lambda item: both.wait() >= 0 and item, [7], 1))

    callers = [threading.Thread(target=call) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert found == [[7], [7]]
