"""Options that several commands share, declared once: a parameter of a command may be a dataclass of options."""

import copy
import dataclasses
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer

from manifoldrf.cli._settings import parse

_NUMBERS = {int: "INTEGER", float: "FLOAT"}  # with their names in the help


def spread(function: Callable[..., None]) -> Callable[..., None]:
    """The function with every parameter that is a dataclass replaced by an option for each of its fields.

    typer reads the options of a command from its signature and knows no groups.
    """
    hints = typing.get_type_hints(function, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)}
    signature = inspect.signature(function)
    parameters = [
        parameter for own in signature.parameters.values() for parameter in _parameters(own, hints[own.name])
    ]

    @functools.wraps(function)
    def command(**given: Any) -> None:
        made = {
            name: kind(**{field.name: given.pop(field.name) for field in _fields(kind)})
            for name, kind in groups.items()
        }
        function(**given, **made)

    del command.__wrapped__  # else typer would read the parameters of the function behind it
    changed: Any = command
    changed.__signature__ = signature.replace(parameters=parameters)
    changed.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _parameters(own: inspect.Parameter, hint: Any) -> Iterator[inspect.Parameter]:
    """A parameter for typer, or those of a group."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    if not dataclasses.is_dataclass(hint):
        yield own.replace(annotation=_in_our_words(own.name, hint), kind=keyword)
        return
    hints = typing.get_type_hints(hint, include_extras=True)
    for field in _fields(hint):
        annotation = _in_our_words(field.name, hints[field.name])
        yield inspect.Parameter(field.name, keyword, default=field.default, annotation=annotation)


def _in_our_words(name: str, hint: Any) -> Any:
    """An option that is a number, read by us: errors of typer name neither the rule nor the value."""
    base, *details = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    kinds = set(typing.get_args(base) if isinstance(base, types.UnionType) else (base,)) - {types.NoneType}
    kind = next(iter(kinds))
    if len(kinds) != 1 or kind not in _NUMBERS or not details or details[0].parser is not None:
        return hint
    option = copy.copy(details[0])
    names = [text for text in option.param_decls or () if text.startswith("--")]
    option.parser = functools.partial(_number, kind, (names or [f"--{name.replace('_', '-')}"])[0], option.min)
    option.metavar = option.metavar or _NUMBERS[kind]
    option.min = None  # heeded by the parser
    return Annotated[Any, option]


def _number(kind: type, name: str, low: int | None, text: Any) -> Any:
    """The number that was typed, or wrong usage."""
    from manifoldrf._validation import check_integer

    try:
        number = parse(str(text), kind, name)
        return number if low is None else check_integer(number, name, low)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def _fields(kind: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(kind)
