"""Threads for compiled code that releases the interpreter."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def thread_pool(n_jobs: int) -> Iterator[ThreadPoolExecutor]:
    """A pool that drops what has not begun when the block is left by an error or Ctrl-C."""
    pool = ThreadPoolExecutor(n_jobs)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
