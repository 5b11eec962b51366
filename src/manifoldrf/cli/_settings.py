"""Values from texts such as "n_nodes=1000", read by the type of the field they belong to."""

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any


def changed(config: Any, changes: Sequence[str], experiment: str) -> Any:
    """Settings with some fields set by texts "field=value"."""
    from manifoldrf._validation import check_option

    kinds = typing.get_type_hints(type(config))
    new = {}
    for change in changes:
        name, text = split(change, "--set")
        check_option(name, f"--set, for {experiment},", list(kinds))
        new[name] = parse(text, kinds[name], name)
    return dataclasses.replace(config, **new)


def split(text: str, option: str) -> tuple[str, str]:
    """Name and value of a text "field=value"."""
    from manifoldrf._validation import reject

    name, sign, value = text.partition("=")
    if not sign or not name:
        reject(option, "field=value", repr(text))
    return name, value


def parse(text: str, kind: Any, name: str) -> Any:
    """A value of the type of a field; the entries of a tuple have commas between them."""
    from manifoldrf._validation import check_option, reject

    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple and options[-1] is ...:
        return tuple(parse(part, options[0], name) for part in text.removesuffix(",").split(","))
    if origin is typing.Literal:
        return check_option(text, name, options)
    kinds = options if origin in (typing.Union, types.UnionType) else (kind,)
    if not all(option in _READERS for option in kinds):
        reject(name, "a field that --set knows how to read", kind)
    for option in sorted(kinds, key=lambda option: option is str):  # any text is text: that comes last
        try:
            return _READERS[option][1](text)
        except (ValueError, KeyError):
            continue
    reject(name, " or ".join(_READERS[option][0] for option in kinds), repr(text))


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


# Type of a field -> what it must be, in words, and what reads it.
_READERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("an integer", int),
    float: ("a finite number", _finite),
    bool: ("true or false", {"true": True, "false": False}.__getitem__),
    str: ("text", str),
    types.NoneType: ("none", {"none": None}.__getitem__),
}
