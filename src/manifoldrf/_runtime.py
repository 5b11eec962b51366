"""Threads for compiled code that releases the interpreter, and libraries that must not use threads of their own."""

import functools
import importlib
import importlib.util
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from threadpoolctl import ThreadpoolController

_NAME = "manifoldrf-lasting"  # of threads that stay
_SEARCH_JOBS: ContextVar[int | None] = ContextVar("threads of searches", default=None)


@contextmanager
def search_jobs(n_jobs: int) -> Iterator[None]:
    """Searches for neighbours inside the block use so many threads, whatever the graph was built with."""
    token = _SEARCH_JOBS.set(n_jobs)
    try:
        yield
    finally:
        _SEARCH_JOBS.reset(token)


def asked_search_jobs() -> int | None:
    """The threads that the block around asks for, if any does."""
    return _SEARCH_JOBS.get()


_FIRST = os.getpid()  # the process that has read this; a copy of it finds another number


def in_a_copy() -> bool:
    """Whether this process is a copy (fork) of one that used the library: it has none of the threads of that."""
    return os.getpid() != _FIRST


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

    New threads cost .6 ms, which is a tenth of the time of a kernel between 512 points. Where the function calls
    this itself, its own thread does the work: it would wait for threads that wait for it.
    """
    # With one job by the caller: one thread for all callers would make those of a pool, or of a worker, wait.
    if n_jobs == 1 or threading.current_thread().name.startswith(_NAME):
        return [function(item) for item in items]
    return list(_lasting_pool(n_jobs, os.getpid()).map(function, items))


@functools.cache
def _lasting_pool(n_jobs: int, process: int) -> ThreadPoolExecutor:
    """Threads of one process: a copy of it has none."""
    return ThreadPoolExecutor(n_jobs, thread_name_prefix=f"{_NAME}-{process}")


def map_threads(function: Callable[[Any], Any], items: Sequence[Any], n_jobs: int) -> list[Any]:
    """Results of a function in the order of the items.

    The first is computed by the caller, so that compiled code is loaded once, before threads call it.
    """
    results = [function(item) for item in items[:1]]
    if len(items) > 1:
        with thread_pool(n_jobs) as pool:
            results += pool.map(function, items[1:])
    return results


class SharedLimit:
    """A setting of the whole process that computations want changed while they last, and that may overlap.

    The first to come changes it, the last to go puts back what was. If each put back what it had found itself, one
    that goes first would take it from the others, and the last would leave it changed for good.

    Parameters
    ----------
    change : callable
        Makes the change, and returns a function that takes it back.
    """

    def __init__(self, change: Callable[[], Callable[[], Any]]) -> None:
        self._change = change
        self._lock = threading.Lock()
        self._users = 0
        self._take_back: Callable[[], Any] = lambda: None

    @contextmanager
    def held(self) -> Iterator[None]:
        """The change, until the last of the blocks that overlap has ended."""
        with self._lock:
            if self._users == 0:
                self._take_back = self._change()
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if self._users == 0:
                    self._take_back()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Matrix products by the thread that asks for them: their last bits depend on the number of threads.

    For a block or, as a decorator, for a function. Most libraries of products know one number for the whole
    process, so others see it too until the block ends.
    """
    with _blas_limit(os.getpid()).held():
        take_back = _limited(_blas_libraries(len(sys.modules))[1])
        try:
            yield
        finally:
            take_back()


@functools.cache
def _blas_limit(process: int) -> SharedLimit:
    """The limit of one process: in a copy of it nobody holds what others held when it was made."""
    del process
    return SharedLimit(lambda: _limited(_blas_libraries(len(sys.modules))[0]))


@functools.lru_cache(maxsize=1)
def _blas_libraries(n_modules: int) -> tuple[list[Any], list[Any]]:
    """Libraries of matrix products: those with one number of threads for all, and with one for each thread.

    They come with modules: where others have been imported since, it is looked again.
    """
    del n_modules
    found = ThreadpoolController().select(user_api="blas").lib_controllers
    own = [library for library in found if library.internal_api == "mkl" or library.threading_layer == "openmp"]
    return [library for library in found if library not in own], own


def _limited(libraries: list[Any]) -> Callable[[], None]:
    """Give libraries one thread; returns what gives them back those they had."""
    before = [library.num_threads for library in libraries]
    _set_threads(libraries, [1] * len(libraries))
    return functools.partial(_set_threads, libraries, before)


def _set_threads(libraries: list[Any], counts: list[int]) -> None:
    for library, count in zip(libraries, counts, strict=True):
        # Newer releases heed only the thread that came first. Here the last to go may be another than the first.
        release = getattr(library, "clear_controlling_thread", None)
        if release is not None:
            release(force=True)
        library.set_num_threads(count)
        if release is not None:
            release(force=True)


# scikit-learn wraps the methods of estimators, torch those of modules.
_OURS = ("manifoldrf.", "sklearn.", "contextlib", "torch.")
# From the outermost block to the innermost: each is offered a warning, and says whether it took it.
_Taker = Callable[[Warning], bool]
_TAKERS: ContextVar[tuple[_Taker, ...]] = ContextVar("manifoldrf warnings", default=())
_FILTERS = threading.RLock()


def warn_user(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called the library; a message that is a warning itself has its own category."""
    warning = message if isinstance(message, Warning) else category(message)
    if any(take(warning) for take in reversed(_TAKERS.get())):
        return
    depth = 1
    while sys._getframe(depth).f_globals.get("__name__", "").startswith(_OURS) and sys._getframe(depth).f_back:
        depth += 1
    warnings.warn(warning, stacklevel=depth + 1)


@contextmanager
def _offered_to(take: _Taker) -> Iterator[None]:
    token = _TAKERS.set((*_TAKERS.get(), take))
    try:
        yield
    finally:
        _TAKERS.reset(token)


@contextmanager
def without_warnings(*categories: type[Warning], beginning: str = "") -> Iterator[None]:
    """Hold back warnings of the library of some categories whose text begins so, in this thread."""
    with _offered_to(lambda warning: isinstance(warning, categories) and str(warning).startswith(beginning)):
        yield


@contextmanager
def recorded_warnings() -> Iterator[list[Warning]]:
    """The warnings of the library that the block gives in this thread, in a list instead of being shown."""
    found: list[Warning] = []

    def take(warning: Warning) -> bool:
        found.append(warning)
        return True

    with _offered_to(take):
        yield found


@contextmanager
def filtered(action: str, beginning: str, category: type[Warning]) -> Iterator[None]:
    """A filter for a warning of another library, for the moment of the call that gives it.

    It is seen by all threads meanwhile, so it names one text, or lasts no longer than reading a file. Only one
    thread at a time holds such a filter: then what was before comes back.
    """
    with _FILTERS, warnings.catch_warnings():
        warnings.filterwarnings(action, beginning, category)  # type: ignore[arg-type]
        yield


def require(module: str, extra: str) -> Any:
    """Import ``module``, or say which extra of manifoldrf installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name.split(".")[0]):
            raise  # the package is there, but something it needs is not: its own message is better
        package = module.split(".")[0]
        text = f"This needs the package {package!r}. Install it with: pip install 'manifoldrf[{extra}]'"
        raise ModuleNotFoundError(text, name=package) from error


def available(module: str) -> bool:
    """Whether an optional package is installed (without importing it)."""
    return importlib.util.find_spec(module) is not None
