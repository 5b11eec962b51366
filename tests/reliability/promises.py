"""Parts of the catalogue of bad inputs: entry points, promises, and the check of a promise."""

import contextlib
import functools
import re
import signal
import warnings
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from manifoldrf import Graph, Signatures

LONGEST = 60  # seconds of one call; most take milliseconds


@dataclass(frozen=True)
class EntryPoint:
    """A public function or method, and how the catalogue calls it."""

    name: str  # as the page shows it
    argument: str  # the name of the argument that gets the bad input
    call: Callable[[Any], Any]  # passes the bad input; returns all results


@dataclass(frozen=True)
class Refused:
    """An error with this text; {argument} is the name of the argument, and … stands for any text."""

    words: str
    kind: type[Exception] = ValueError


@dataclass(frozen=True)
class Works:
    """A finite result that passes the check, with the given warnings and no others."""

    text: str  # what the page says
    check: Callable[[EntryPoint, Any], None] | None = None
    warning: type[Warning] | None = None
    words: tuple[str, ...] = ()  # texts of the warnings; each must appear, and no other
    missing: bool = False  # whether the result may contain NaN, for unknown values


@dataclass(frozen=True)
class Case:
    """One bad input, the entry points that get it, and what all of them promise."""

    group: str
    name: str
    make: Callable[[], Any]
    entries: tuple[EntryPoint, ...]
    promise: Refused | Works

    def label(self, entry: EntryPoint) -> str:
        return f"{self.group}: {self.name} -> {entry.name}"


def same_as(clean: Callable[[], Any], text: str = "the bits of a plain float64 array") -> Works:
    """The promise that the result is that of a clean input, bit for bit."""

    def check(entry: EntryPoint, result: Any) -> None:
        expected = clean_result(entry, clean)
        found = arrays_of(result)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one, other, strict=True)

    return Works(text, check)


def close_to(clean: Callable[[], Any], text: str) -> Works:
    """The promise that the first array of the result is that of a clean input, to a millionth."""

    def check(entry: EntryPoint, result: Any) -> None:
        expected = clean_result(entry, clean)[0]
        np.testing.assert_allclose(arrays_of(result)[0], expected, rtol=0, atol=1e-6 * np.abs(expected).max())

    return Works(text, check)


@functools.cache
def clean_result(entry: EntryPoint, clean: Callable[[], Any]) -> tuple[np.ndarray, ...]:
    """Result of an entry point for a clean input."""
    return tuple(arrays_of(entry.call(clean())))


def arrays_of(result: Any) -> list[np.ndarray]:
    """All numbers of a result."""
    parts = _parts_of(result)
    if parts is not None:
        return [array for part in parts for array in arrays_of(part)]
    if isinstance(result, torch.Tensor):
        return [result.detach().numpy()]
    return [] if result is None or isinstance(result, str) else [np.asarray(result)]


def _parts_of(result: Any) -> list[Any] | None:
    """Parts of a result; None for a single array."""
    if sparse.issparse(result):
        return [result.data, result.indices, result.indptr]
    if isinstance(result, Signatures):
        return [result.rows]
    if isinstance(result, Graph):
        return [result.affinity, result.points, result.weights, result.step_time]
    if isinstance(result, tuple | list | dict):
        return list(result.values() if isinstance(result, dict) else result)
    if hasattr(result, "__dataclass_fields__"):
        return [getattr(result, field.name) for field in fields(result)]
    return None


def all_finite(result: Any) -> bool:
    """Whether no number of a result is NaN or infinite."""
    return all(np.isfinite(array).all() for array in arrays_of(result) if array.dtype.kind in "fc")


def pattern(words: str, argument: str) -> str:
    """The text of a promise as a regular expression for the whole message."""
    return ".*".join(re.escape(part) for part in words.replace("{argument}", argument).split("…"))


def verify(case: Case, entry: EntryPoint) -> None:
    """Make the input, pass it to the entry point, and compare the outcome with the promise."""
    promise = case.promise
    with time_limit(LONGEST), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        given = case.make()
        if isinstance(promise, Refused):
            _verify_refused(promise, entry, given)
            return
        result = entry.call(given)
    _verify_warnings(promise, entry, [f"{warned.category.__name__}: {warned.message}" for warned in caught])
    assert promise.missing or all_finite(result), "a number of the result is not finite"
    if promise.check is not None:
        promise.check(entry, result)


def _verify_refused(promise: Refused, entry: EntryPoint, given: Any) -> None:
    with pytest.raises((ValueError, TypeError)) as caught:  # the documented types
        entry.call(given)
    error = caught.value
    assert isinstance(error, promise.kind), f"{type(error).__name__} instead of {promise.kind.__name__}: {error}"
    assert _is(promise.words, entry, str(error)), str(error)


def _verify_warnings(promise: Works, entry: EntryPoint, texts: list[str]) -> None:
    kind = promise.warning.__name__ if promise.warning is not None else ""
    wanted = [f"{kind}: {words}" for words in promise.words]
    assert all(any(_is(words, entry, text) for words in wanted) for text in texts), texts
    assert all(any(_is(words, entry, text) for text in texts) for words in wanted), (
        f"not warned: {wanted}, but {texts}"
    )


def _is(words: str, entry: EntryPoint, text: str) -> bool:
    return re.fullmatch(pattern(words, entry.argument), text, flags=re.DOTALL) is not None


@contextlib.contextmanager
def time_limit(seconds: int):
    """Raise an error in a call that hangs."""

    def stop(*_):
        raise AssertionError(f"no answer within {seconds} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
