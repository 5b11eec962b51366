"""Threads for compiled code that releases the interpreter."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any


@contextmanager
def thread_pool(n_jobs: int) -> Iterator[ThreadPoolExecutor]:
    """A pool that drops what has not begun when the block is left by an error or Ctrl-C."""
    pool = ThreadPoolExecutor(n_jobs)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def map_threads(function: Callable[[Any], Any], items: Sequence[Any], n_jobs: int) -> list[Any]:
    """Results of a function in the order of the items.

    The first is computed by the caller, so that compiled code is loaded once, before threads call it.
    """
    results = [function(item) for item in items[:1]]
    if len(items) > 1:
        with thread_pool(n_jobs) as pool:
            results += pool.map(function, items[1:])
    return results
