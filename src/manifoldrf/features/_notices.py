"""Warnings that point at the user's own line, however deep they arise."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

# scikit-learn wraps the methods of estimators, torch those of modules.
_OURS = ("manifoldrf.", "sklearn.", "contextlib", "torch.")


def warn_user(message: str | Warning, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called the library; a message that is a warning itself has its own category."""
    depth = 1
    while sys._getframe(depth).f_globals.get("__name__", "").startswith(_OURS) and sys._getframe(depth).f_back:
        depth += 1
    warnings.warn(message, category, stacklevel=depth + 1)


@contextmanager
def warnings_at_users_line() -> Iterator[None]:
    """Warnings of the block are shown when it ends, at the line of the caller outside the library."""
    with warnings.catch_warnings(record=True) as caught:
        yield
    for warning in caught:
        warn_user(warning.message, warning.category)
