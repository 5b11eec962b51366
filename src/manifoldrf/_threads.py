"""Threads for compiled code that releases the interpreter."""

import functools
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any


@contextmanager
def thread_pool(n_jobs: int, initializer: Callable[[], Any] | None = None) -> Iterator[ThreadPoolExecutor]:
    """A pool that drops what has not begun when the block is left by an error or Ctrl-C.

    Each thread calls the initializer before its first work.
    """
    pool = ThreadPoolExecutor(n_jobs, initializer=initializer)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def quick_map(function: Callable[[Any], Any], items: Iterable[Any], n_jobs: int) -> list[Any]:
    """Results of a function in the order of the items, by threads that stay, for work of a few milliseconds.

    New threads cost .6 ms, which is a tenth of the time of a kernel between 512 points. The function must not call
    this itself: it could wait for threads that wait for it.
    """
    if n_jobs == 1:  # by the caller: one thread for all callers would make those of a pool, or of a worker, wait
        return [function(item) for item in items]
    return list(_lasting_pool(n_jobs, os.getpid()).map(function, items))


@functools.cache
def _lasting_pool(n_jobs: int, process: int) -> ThreadPoolExecutor:
    """Threads of one process: a copy of it has none."""
    return ThreadPoolExecutor(n_jobs, thread_name_prefix=f"manifoldrf-{process}")


def map_threads(function: Callable[[Any], Any], items: Sequence[Any], n_jobs: int) -> list[Any]:
    """Results of a function in the order of the items.

    The first is computed by the caller, so that compiled code is loaded once, before threads call it.
    """
    results = [function(item) for item in items[:1]]
    if len(items) > 1:
        with thread_pool(n_jobs) as pool:
            results += pool.map(function, items[1:])
    return results
