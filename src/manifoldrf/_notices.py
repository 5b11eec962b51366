"""Warnings of the library: at the user's own line, and held back or recorded for one computation alone.

The filters of :mod:`warnings` belong to the whole process. Two threads that change them for a while, and overlap,
leave them changed for good: warnings are then lost, or kept by a list that nobody reads. So all warnings of the
library pass through :func:`warn_user`, which asks what its own thread wants, and filters are left alone.
"""

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

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
