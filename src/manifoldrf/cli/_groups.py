"""Options that several commands share, declared once: a parameter of a command may be a dataclass of options."""

import dataclasses
import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any


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
        yield own.replace(annotation=hint, kind=keyword)
        return
    hints = typing.get_type_hints(hint, include_extras=True)
    for field in _fields(hint):
        yield inspect.Parameter(field.name, keyword, default=field.default, annotation=hints[field.name])


def _fields(kind: Any) -> tuple[dataclasses.Field[Any], ...]:
    return dataclasses.fields(kind)
