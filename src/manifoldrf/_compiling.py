"""Compiled loops. Compiled code is cached on disk; a missing or damaged cache only costs the time to compile."""

import functools
import hashlib
import pickle
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numba
from numba.core.caching import IndexDataCacheFile

# Errors from reading a cache file that is truncated, empty or from another version.
_DAMAGED = (
    *(OSError, EOFError, pickle.UnpicklingError),
    *(ValueError, TypeError, LookupError, AttributeError, ImportError),
)


def compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a loop to be compiled by numba, without the interpreter lock and with a cache on disk.

    numba itself fails if the cache folder is not writable, the disk is full or a cache file is damaged. Here the
    function is compiled again instead.

    Parameters
    ----------
    **options
        Other options of ``numba.njit``.
    """

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            loop = numba.njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:
            _warn_without_cache()
            return numba.njit(nogil=True, **options)(function)
        if hasattr(loop, "_cache"):  # NUMBA_DISABLE_JIT leaves plain functions
            loop._cache = _TolerantCache(loop._cache)
        return loop

    return decorate


class _CacheFile(IndexDataCacheFile):
    """Cache files named by a hash of their key.

    numba numbers them. Two processes that compile at the same time can give one number to code for different
    arguments. Every later process would then run the wrong code and crash.
    """

    def save(self, key: Any, data: Any) -> None:
        """Write the code, then the index. If another process overwrites the index, the code is compiled again."""
        digest = hashlib.blake2b(repr((key, self._source_stamp)).encode(), digest_size=8).hexdigest()
        name = f"{self._index_name.removesuffix('.nbi')}.{digest}.nbc"
        files: Any = self  # numba's methods have no types
        files._save_data(name, data)
        files._save_index(files._load_index() | {key: name})


class _TolerantCache:
    """A cache that behaves as empty if it cannot be read, and ignores what it cannot write."""

    def __init__(self, cache: Any) -> None:
        self._cache = cache
        cache._cache_file.__class__ = _CacheFile  # it has the same fields

    def load_overload(self, signature: Any, context: Any) -> Any:
        """Return the code for a signature, or None."""
        try:
            return self._cache.load_overload(signature, context)
        except _DAMAGED:
            with suppress(OSError):
                self._cache.flush()  # remove the damaged files
            return None

    def save_overload(self, signature: Any, code: Any) -> None:
        """Write the code for a signature, if possible."""
        with suppress(*_DAMAGED):
            self._cache.save_overload(signature, code)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)


@functools.cache
def _warn_without_cache() -> None:
    """Warn once per process."""
    warnings.warn(
        "No folder is writable for the cache of compiled code. Every start of Python compiles it again, which "
        "takes up to a minute. Set NUMBA_CACHE_DIR to a writable folder.",
        RuntimeWarning,
        stacklevel=4,
    )
