"""Whether values are of the kinds that the fields of a dataclass declare: a file may say anything.

Compiled loops are made for one kind of array, and code trusts what is declared; so what comes from a file is
compared with the annotations before an instance is made of it.
"""

import functools
import types
import typing
from numbers import Integral, Real
from typing import Any

import numpy as np

from manifoldrf._validation import reject


def check_kinds(kind: type, values: dict[str, Any]) -> None:
    """Raise where a value is not of the kind that the field of this name declares.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Ball:
    ...     radius: float
    >>> check_kinds(Ball, {"radius": 2})
    >>> check_kinds(Ball, {"radius": "two"})
    Traceback (most recent call last):
    TypeError: `radius` must be of the kind float. Got str.
    """
    for name, value in values.items():
        hint = _hints(kind).get(name, Any)
        if not _fits(value, hint):
            found = f"{value.dtype} array" if isinstance(value, np.ndarray) else type(value).__name__
            reject(name, f"of the kind {_named(hint)}", found, TypeError)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _named(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says; annotations of other kinds than those of fields fit anything."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is typing.Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin is np.ndarray:
        return isinstance(value, np.ndarray) and _has_dtype(value, typing.get_args(parts[1]))
    if origin is tuple:
        return isinstance(value, tuple) and _tuple_fits(value, parts)
    if origin in (list, dict):
        return isinstance(value, origin)
    return _plain_fits(value, hint) if isinstance(hint, type) and origin is None else True


def _has_dtype(array: np.ndarray[Any, Any], kinds: tuple[Any, ...]) -> bool:
    """Whether an array is of the kind declared; of any, where none is."""
    wanted = kinds[0] if kinds and isinstance(kinds[0], type) else np.generic
    return bool(np.issubdtype(array.dtype, wanted)) and array.dtype.isnative


def _tuple_fits(values: tuple[Any, ...], parts: tuple[Any, ...]) -> bool:
    if len(parts) == 2 and parts[1] is Ellipsis:
        return all(_fits(value, parts[0]) for value in values)
    return len(values) == len(parts) and all(map(_fits, values, parts))


def _plain_fits(value: Any, hint: type) -> bool:
    """Whether a value is of a class; an integer is a number, true is none."""
    if hint in (float, int):
        return isinstance(value, Real if hint is float else Integral) and not isinstance(value, bool | np.bool_)
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if getattr(hint, "_is_protocol", False):
        return True  # cannot be asked for; such fields take what anything converts to
    return isinstance(value, hint)
