"""Threads, warnings and optional packages.

Compiled code runs in threads of this library. Meanwhile, BLAS libraries must not start their own threads.
"""

import functools
import importlib
import importlib.util
import os
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import metadata
from typing import Any, TypeVar, cast

import numpy as np
from threadpoolctl import ThreadpoolController

FIRST_PROCESS = os.getpid()  # imported this module; a fork has another number, and none of its threads
_LASTING = "manifoldrf-lasting"  # name of threads that are kept

# A handler receives a warning and returns whether it handled it. Innermost handlers come last.
_Handler = Callable[[Warning], bool]
_HANDLERS: ContextVar[tuple[_Handler, ...]] = ContextVar("manifoldrf warnings", default=())
_FILTERS = threading.RLock()
_Method = TypeVar("_Method", bound=Callable[..., Any])
# Warnings point at the first caller outside these modules: numpy, scikit-learn and torch wrap methods, pipelines
# and grid searches call them through joblib.
_INTERNAL = ("manifoldrf.", "sklearn.", "joblib.", "contextlib", "numpy.", "torch.")


# -------------------------------------------------------------------------------------------------------- threads
Progress = Callable[[str, int, int], None]  # (what, done, total)


def silent(what: str, done: int, total: int) -> None:
    """Report no progress."""


@contextmanager
def stage_of(progress: Progress, what: str) -> Iterator[None]:
    """Report the start of a stage that has no steps and, unless it fails, its end."""
    progress(what, 0, 1)
    yield
    progress(what, 1, 1)


def all_or_nothing(method: _Method) -> _Method:
    """Decorate a method so that a failure leaves the object unchanged: a partial fit could not be loaded again."""

    @functools.wraps(method)
    def whole(self: Any, *arguments: Any, **options: Any) -> Any:
        before = dict(vars(self))
        try:
            return method(self, *arguments, **options)
        except BaseException:
            self.__dict__ = before
            raise

    return cast(_Method, whole)


@contextmanager
def thread_pool(n_jobs: int) -> Iterator[ThreadPoolExecutor]:
    """Yield a thread pool. If the block ends with an error or Ctrl-C, work that has not begun is cancelled."""
    pool = ThreadPoolExecutor(n_jobs)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def quick_map(function: Callable[..., Any], items: Iterable[Any], n_jobs: int, *more: Iterable[Any]) -> list[Any]:
    """Apply a function to items in a persistent thread pool. Results are in the order of the items.

    Further iterables hold the other arguments of each call, as in ``map``.

    Starting threads costs 0.6 ms, a tenth of the time of a kernel between 512 points. Nested calls run in the
    calling thread to prevent deadlocks. So do calls with one job: otherwise all callers would share one worker.
    """
    if n_jobs == 1 or threading.current_thread().name.startswith(_LASTING):
        return list(map(function, items, *more))
    return list(_lasting_pool(n_jobs, os.getpid()).map(function, items, *more))


def in_blocks(loop: Callable[[int, int], Any], n: int, size: int, n_jobs: int) -> None:
    """Run a loop over n items, from start to stop, in blocks of a size."""
    edges = [*range(0, n, size), n]
    quick_map(loop, edges[:-1], n_jobs, edges[1:])


@functools.cache
def _lasting_pool(n_jobs: int, process: int) -> ThreadPoolExecutor:
    """The thread pool of one process; a forked process needs its own."""
    return ThreadPoolExecutor(n_jobs, thread_name_prefix=f"{_LASTING}-{process}")


# ------------------------------------------------------------------------------------------------ matrix products
class SharedLimit:
    """A process-wide setting that overlapping computations change while they run.

    The first computation changes it and the last one restores it. If each restored the value that it saw, the first
    to end would undo the change for the others, and the last would leave it in place.

    Parameters
    ----------
    change : callable
        Makes the change, and returns a function that reverts it.
    """

    def __init__(self, change: Callable[[], Callable[[], Any]]) -> None:
        self._change = change
        self._lock = threading.Lock()
        self._n_users = 0
        self._restore: Callable[[], Any] = lambda: None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep the change until the last overlapping block ends."""
        with self._lock:
            if self._n_users == 0:
                self._restore = self._change()
            self._n_users += 1
        try:
            yield
        finally:
            with self._lock:
                self._n_users -= 1
                if self._n_users == 0:
                    self._restore()


# Ignore underflow, whatever the user set in numpy: kernels of distant points rightly become zero. Works as a
# context manager or decorator.
quiet_underflow = functools.partial(np.errstate, under="ignore")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Compute matrix products in the calling thread, because their last bits depend on the number of threads.

    Works as a context manager or decorator. Most BLAS libraries have one setting per process, so other threads are
    affected until the block ends. Underflow is ignored, as in :func:`quiet_underflow`.
    """
    with quiet_underflow(), _blas_limit(os.getpid()).held():
        own = _blas_libraries(len(sys.modules))[1]
        before = _set_threads(own, [1] * len(own))
        try:
            yield
        finally:
            _set_threads(own, before)


@functools.cache
def _blas_limit(process: int) -> SharedLimit:
    """The limit of one process; a forked process starts without it."""

    def change() -> Callable[[], Any]:
        shared = _blas_libraries(len(sys.modules))[0]
        return functools.partial(_set_threads, shared, _set_threads(shared, [1] * len(shared)))

    return SharedLimit(change)


@functools.lru_cache(maxsize=1)
def _blas_libraries(n_modules: int) -> tuple[list[Any], list[Any]]:
    """Return BLAS libraries with one setting per process, and those with one per thread.

    Imported modules can load more libraries, so the search is repeated after new imports.
    """
    found = ThreadpoolController().select(user_api="blas").lib_controllers  # without Accelerate of macOS
    found = [library for library in found if library.num_threads is not None]
    own = [library for library in found if library.internal_api == "mkl" or library.threading_layer == "openmp"]
    return [library for library in found if library not in own], own


def _set_threads(libraries: list[Any], counts: list[int]) -> list[int]:
    """Set the number of threads of each library; return the previous numbers."""
    before = []
    for library, count in zip(libraries, counts, strict=True):
        before.append(library.num_threads)
        # Newer versions accept changes only from the thread that first set a number; another may restore it here.
        release = getattr(library, "clear_controlling_thread", lambda *, force: None)
        release(force=True)
        library.set_num_threads(count)
        release(force=True)
    return before


# ------------------------------------------------------------------------------------------------------- warnings
class ManifoldWarning(UserWarning):
    """A result may be less accurate than it looks, or not what was meant. The text gives the reason and a remedy.

    Examples
    --------
    >>> import warnings
    >>> from manifoldrf import HeatKernel, ManifoldRandomFeatures, ManifoldWarning, Sphere
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", ManifoldWarning)
    ...     features = ManifoldRandomFeatures(HeatKernel(0.05), n_features=20).fit(Sphere())
    >>> print(str(caught[0].message).partition(":")[0])
    20 features are too few
    """


def warn_user(message: str | Warning) -> None:
    """Warn at the line that called the library, with a :class:`ManifoldWarning` unless another one is given."""
    warning = message if isinstance(message, Warning) else ManifoldWarning(message)
    if any(handle(warning) for handle in reversed(_HANDLERS.get())):
        return
    depth = 1
    while sys._getframe(depth).f_globals.get("__name__", "").startswith(_INTERNAL) and sys._getframe(depth).f_back:
        depth += 1
    warnings.warn(warning, stacklevel=depth + 1)


@contextmanager
def without_warnings(*categories: type[Warning]) -> Iterator[list[Warning]]:
    """Collect warnings of this library by category in a list instead of showing them, in this thread."""
    found: list[Warning] = []

    def record(warning: Warning) -> bool:
        if is_one := isinstance(warning, categories):
            found.append(warning)
        return is_one

    token = _HANDLERS.set((*_HANDLERS.get(), record))
    try:
        yield found
    finally:
        _HANDLERS.reset(token)


recorded_warnings = functools.partial(without_warnings, Warning)  # all of them, to show them later


@contextmanager
def filtered(action: str, beginning: str, category: type[Warning]) -> Iterator[None]:
    """Filter a warning of another library during one call.

    The filter applies to all threads, so it should match one text, or last no longer than reading a file. Only one
    thread at a time sets a filter, so the previous filters are restored correctly.
    """
    with _FILTERS, warnings.catch_warnings():
        warnings.filterwarnings(action, beginning, category)  # type: ignore[arg-type]
        yield


# ---------------------------------------------------------------------------------------------- optional packages
def require(module: str, extra: str) -> Any:
    """Import ``module``; an error names the extra of manifoldrf that installs it, or the version needed."""
    package = module.split(".")[0]
    needed, found = _versions(package)
    older, newer = (tuple(map(int, re.findall(r"\d+", version)[:3])) for version in (found, needed))
    if older < newer:
        text = f"This needs the package {package!r} of version {needed} or later. Got {found}. "
        raise ImportError(f"{text}Install it with: pip install 'manifoldrf[{extra}]'", name=package)
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != package:
            raise  # the package is installed, but one of its dependencies is missing
        text = f"This needs the package {package!r}. Install it with: pip install 'manifoldrf[{extra}]'"
        raise ModuleNotFoundError(text, name=package) from error


@functools.cache
def _versions(package: str) -> tuple[str, str]:
    """The oldest version of a package that an extra allows, and the installed one; empty if unknown."""
    pattern = re.compile(re.sub("[-_]", "[-_]", package) + r"(?:\[\w+\])?>=([\d.]+)")
    try:
        needed = next(filter(None, map(pattern.match, metadata.requires("manifoldrf") or [])), None)
        return (needed[1], metadata.version(package)) if needed else ("", "")
    except metadata.PackageNotFoundError:
        return "", ""


def available(module: str) -> bool:
    """Whether an optional package is installed. Does not import it."""
    return importlib.util.find_spec(module) is not None
