"""How loops are compiled: kept on disk where that is possible, and compiled anew where it is not."""

import functools
import hashlib
import pickle
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba
from numba.core.caching import IndexDataCacheFile

# What reading a file of compiled code raises that is cut off, empty or of another make.
_DAMAGED = (
    *(OSError, EOFError, pickle.UnpicklingError),
    *(ValueError, TypeError, LookupError, AttributeError, ImportError),
)


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorator of the loops of this library: numba without the interpreter's lock, with code kept on disk.

    numba refuses to define a function whose code cannot be kept, and a function fails whose kept code is damaged or
    does not fit on the disk. Here, that costs the time of compiling and nothing else.

    Parameters
    ----------
    **options
        Further ones of ``numba.njit``.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            made = numba.njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:
            _say_that_nothing_is_kept()
            return numba.njit(nogil=True, **options)(function)
        if hasattr(made, "_cache"):  # else loops are not compiled at all, as NUMBA_DISABLE_JIT wishes
            made._cache = _Forgiving(made._cache)
        return made

    return decorate


class _Named(IndexDataCacheFile):
    """Files of code whose names follow from what they hold.

    numba numbers them. Two processes that compile at once give the same number to code for different arguments, and
    whoever reads it later runs code for other arguments: it crashes, on this start and on all that follow.
    """

    def save(self, key: Any, data: Any) -> None:
        """Write the code, then the index that names it: an entry that another process overwrites is made again."""
        digest = hashlib.blake2b(repr((key, self._source_stamp)).encode(), digest_size=8).hexdigest()
        name = f"{self._index_name.removesuffix('.nbi')}.{digest}.nbc"
        files: Any = self  # numba's methods have no types
        files._save_data(name, data)
        files._save_index(files._load_index() | {key: name})


class _Forgiving:
    """Kept code that is compiled again where it cannot be read, and not kept where it cannot be written."""

    def __init__(self, kept: Any) -> None:
        self._kept = kept
        kept._cache_file.__class__ = _Named  # the same fields

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Code for a signature, None if there is none."""
        try:
            return self._kept.load_overload(signature, context)
        except _DAMAGED:
            with suppress(OSError):
                self._kept.flush()  # else the damage would stay
            return None

    def save_overload(self, signature: Any, code: Any) -> None:
        """Keep the code for a signature, if there is room for it."""
        with suppress(*_DAMAGED):
            self._kept.save_overload(signature, code)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kept, name)


@functools.cache
def _say_that_nothing_is_kept() -> None:
    warnings.warn(
        "No folder is writable that compiled code could be kept in: every start of Python compiles it again, which "
        "takes up to a minute. Set NUMBA_CACHE_DIR to a folder that is writable.",
        RuntimeWarning,
        stacklevel=4,
    )
