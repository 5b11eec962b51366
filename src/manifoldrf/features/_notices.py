"""Warnings that point at the user's own line, however deep they arise."""

import sys
import warnings

_OURS = ("manifoldrf.", "sklearn.")  # scikit-learn wraps the methods of estimators


def warn_user(text: str, category: type[Warning]) -> None:
    """Warn at the line that called the library."""
    depth = 1
    while sys._getframe(depth).f_globals.get("__name__", "").startswith(_OURS) and sys._getframe(depth).f_back:
        depth += 1
    warnings.warn(text, category, stacklevel=depth + 1)
