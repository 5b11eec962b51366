"""Options of the commands: how they are declared, how their texts are read, and the groups that commands share."""

import contextlib
import copy
import dataclasses
import functools
import inspect
import math
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from manifoldrf._validation import check_integer, check_jobs, check_option, reject


# ------------------------------------------------------------------------------------------------ usage errors
class UsageError(typer.BadParameter):
    """Wrong usage whose message is already a full sentence."""

    def format_message(self) -> str:
        """The message, without the introduction that typer puts before it."""
        return self.message


@contextlib.contextmanager
def usage(names: Mapping[str, str] | None = None, about: str = "") -> Iterator[None]:
    """Report a ValueError or TypeError of the block as wrong usage (exit code 2).

    ``names``: parameters of the library, and the options that users know them by. ``about``: an input file; errors
    about no option are about this file, and no wrong usage.
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        argument, text = getattr(error, "argument", ""), str(error)  # of the library's own errors
        if argument in (names or {}):
            text = text.replace(f"`{argument}`", f"`{(names or {})[argument]}`", 1)
        elif about:
            raise type(error)(f"{about}: {text}") if type(error) in (ValueError, TypeError) else error from error
        raise UsageError(text) from error


def option_names(group: Any) -> dict[str, str]:
    """The parameters that the given options set, and the names of these options."""
    given = [part.name for part in dataclasses.fields(group) if getattr(group, part.name) != part.default]
    return {name: f"--{name.replace('_', '-')}" for name in given}


# ---------------------------------------------------------------------------------------------- values of texts
def split(text: str, option: str) -> tuple[str, str]:
    """Name and value of a text "field=value"."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        reject(option, "field=value", repr(text))
    return name, value


def parse(text: str, kind: Any, name: str) -> Any:
    """Convert a text to the type of a field; entries of a tuple are separated by commas."""
    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple and options[-1] is ...:
        return tuple(parse(part, options[0], name) for part in text.removesuffix(",").split(","))
    if origin is typing.Literal:
        return check_option(text, name, options)
    kinds = options if origin in (typing.Union, types.UnionType) else (kind,)
    if not all(option in _READERS for option in kinds):
        reject(name, "a field that --set can read", kind)
    for option in sorted(kinds, key=lambda option: option is str):  # str last: it accepts every text
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


# Type of a field -> its description in errors, and the function that reads it.
_READERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("an integer", int),
    float: ("a finite number", _finite),
    bool: ("true or false", lambda text: {"true": True, "false": False}[text.lower()]),
    str: ("text", str),
    types.NoneType: ("none", lambda text: {"none": None}[text.lower()]),
}


# --------------------------------------------------------------------------------------- groups become options
_NUMBERS = {int: "INTEGER", float: "FLOAT"}  # types of numbers, and how the help shows them


def spread(function: Callable[..., None]) -> Callable[..., None]:
    """Return the function with each dataclass parameter replaced by one option for each of its fields.

    typer reads the options of a command from its signature and has no groups of options.
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
            name: kind(**{field.name: given.pop(field.name) for field in dataclasses.fields(kind)})
            for name, kind in groups.items()
        }
        function(**given, **made)

    del command.__wrapped__  # otherwise typer reads the parameters of the wrapped function
    changed: Any = command
    changed.__signature__ = signature.replace(parameters=parameters)
    changed.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _parameters(own: inspect.Parameter, hint: Any) -> Iterator[inspect.Parameter]:
    """The parameter itself, or one for each field of a group."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    if not dataclasses.is_dataclass(hint):
        yield own.replace(annotation=_format_number_option(own.name, hint), kind=keyword)
        return
    hints = typing.get_type_hints(hint, include_extras=True)
    for field in dataclasses.fields(hint):
        annotation = _format_number_option(field.name, hints[field.name])
        yield inspect.Parameter(field.name, keyword, default=field.default, annotation=annotation)


def _format_number_option(name: str, hint: Any) -> Any:
    """Let our own parser read an option that is a number, or a number or a word such as "auto".

    typer's errors name neither the rule nor the value, and typer does not support options of two types.
    """
    base, *details = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
    kinds = set(typing.get_args(base) if isinstance(base, types.UnionType) else (base,)) - {types.NoneType}
    number = next((kind for kind in _NUMBERS if kind in kinds), None)
    if number is None or not kinds <= {number, str} or not details:
        return hint
    kind = number | str if str in kinds else number
    option = copy.copy(details[0])
    names = [text for text in option.param_decls or () if text.startswith("--")]
    option.parser = functools.partial(_number, kind, (names or [f"--{name.replace('_', '-')}"])[0], option.min)
    option.metavar = option.metavar or _NUMBERS[number]
    option.min = None  # the parser checks it
    return Annotated[Any, option]


def _number(kind: Any, name: str, low: int | None, text: Any) -> Any:
    """Read a number of the command line, or report wrong usage."""
    with usage():
        number = parse(str(text), kind, name)
        return number if low is None else check_integer(number, name, low)


# ------------------------------------------------------------------------------------------- groups of options
# Each panel groups options in the help of a command.
_output = functools.partial(typer.Option, rich_help_panel="Output")
_kernel = functools.partial(typer.Option, rich_help_panel="Kernel", show_default=False)
_features = functools.partial(typer.Option, rich_help_panel="Features", show_default="auto")
_graph = functools.partial(typer.Option, rich_help_panel="Graph")
_run = functools.partial(typer.Option, rich_help_panel="Run")
_table = functools.partial(typer.Option, rich_help_panel="Table", show_default=False)


@dataclass(frozen=True)
class Output:
    """What a command prints."""

    as_json: Annotated[bool, _output("--json", help="Print JSON for machines instead of text.")] = False
    quiet: Annotated[
        bool, _output("--quiet", "-q", help="Print only errors, and notes that a result is useless.")
    ] = False
    # The program reads --debug itself; it is declared here for the help.
    debug: Annotated[bool, _output("--debug", help="Show the traceback of an error.")] = False

    @property
    def silent(self) -> bool:
        """Whether to print no text for people."""
        return self.as_json or self.quiet


@dataclass(frozen=True)
class TableChoice:
    """Which columns of a table are coordinates, and what happens to missing values."""

    columns: Annotated[
        str | None,
        _table(metavar="NAMES", help="Columns that are coordinates, such as x,y,z, by name or number from 0."),
    ] = None
    label: Annotated[
        str | None, _table(metavar="NAME", help="A column that is no coordinate; transform copies it to csv.")
    ] = None
    id: Annotated[
        str | None, _table(metavar="NAME", help="A column that names the rows; transform copies it to csv.")
    ] = None
    missing: Annotated[
        Literal["error", "drop"], _table(help="drop leaves out rows with NaN or empty cells, and counts them.")
    ] = "error"

    def open(self, path: str, name: str, *, keep: bool = False) -> Any:
        """The Table of a file, or None if all options have their default. ``keep``: the cells of id and label."""
        from manifoldrf._arrays import ARRAY_SUFFIXES, Table, column_titles, find_column

        if self == TableChoice():
            return None
        with usage():
            if not path.lower().endswith(ARRAY_SUFFIXES):
                option = next(iter(option_names(self).values()))
                reject(option, f"left out if {name} is not a table (npy, npz, csv)", repr(path))
        titles = column_titles(path, name)
        with usage():
            named = {"--id": self.id, "--label": self.label}
            kept = [find_column(word.strip(), titles, option) for option, word in named.items() if word is not None]
            places = [k for k in range(len(titles)) if k not in kept]
            if self.columns is not None:
                places = [find_column(word.strip(), titles, "--columns") for word in self.columns.split(",")]
            twice = [k for k in [*places, *kept] if [*places, *kept].count(k) > 1]
            if twice or not places:
                found = f"column {titles[twice[0]] or twice[0]} twice" if twice else "no other column"
                reject("--columns", "different columns, apart from --id and --label", found)
        return Table(places, kept if keep else (), self.missing == "drop", self.columns is not None)


_SET = "Any other parameter, such as graph__n_neighbors=16, teacher__n_walks=1000, field__epochs=20; repeatable."


@dataclass(frozen=True)
class Parameters:
    """Parameters of ManifoldRandomFeatures."""

    kernel: Annotated[
        Literal["heat", "diffusion", "matern"] | None,
        _kernel(help="The kernel; -t means heat, --tau diffusion. Without any, one is chosen from the points."),
    ] = None
    t: Annotated[float | None, _kernel("--t", "-t", help="heat: time, in units of length squared.")] = None
    tau: Annotated[float | None, _kernel(help="diffusion: steps of the walk.")] = None
    nu: Annotated[float | None, _kernel(help="matern: smoothness.")] = None
    lengthscale: Annotated[float | None, _kernel(help="matern: length scale.")] = None
    clock: Annotated[
        Literal["graph", "manifold"] | None,
        _kernel(help="matern: unit of the length scale, steps of the graph or lengths in space (manifold)."),
    ] = None
    n_features: Annotated[
        int | str | None,
        _features(metavar="INTEGER|auto|all", help="Number of features; auto: from the width of the kernel."),
    ] = None
    normalize: Annotated[
        bool | None, _features(show_default="yes", help="Scale features to K(x, x) = 1 on average.")
    ] = None
    teacher: Annotated[
        Literal["auto", "exact", "walks", "counts"] | None,
        _features(help="How features are computed at the nodes: exactly, or estimated from random walks."),
    ] = None
    field: Annotated[
        Literal["auto", "step", "interpolated", "network"] | None,
        _features(help="How features are computed at new points, between nodes; network is the paper's."),
    ] = None
    anchors: Annotated[
        Literal["farthest", "iid", "all"] | None,
        _features(show_default="farthest", help="How the anchors are chosen."),
    ] = None
    quadrature: Annotated[
        Literal["auto", "nnls", "voronoi", "uniform"] | None, _features(help="Weights of the anchors.")
    ] = None
    paper: Annotated[
        bool,
        _features(
            "--paper",
            show_default=False,
            help="The paper's recipe (walks, network, all nodes); other options change it.",
        ),
    ] = False
    changes: Annotated[
        list[str] | None, _features("--set", metavar="NAME=VALUE", help=_SET, show_default=False)
    ] = None
    graph: Annotated[
        Literal["heat", "knn", "mesh"] | None,
        _graph(
            help="heat (heat steps), knn (nearest neighbours) or mesh (edges of the mesh).", show_default="chosen"
        ),
    ] = None
    dim: Annotated[int | None, _graph(help="Dimension of the space; found by default.")] = None
    noise_std: Annotated[
        float | str,
        _graph(metavar="FLOAT|auto", help="Noise of each coordinate, which is removed; 0 removes nothing."),
    ] = "auto"

    def estimator(self, run: "Running") -> Any:
        """The features, not fitted."""
        import manifoldrf

        given = {name: getattr(self, name) for name in option_names(self)}
        params: dict[str, Any] = {
            name: given[name] for name in ("n_features", "normalize", "anchors", "quadrature") if name in given
        }
        for name in {"teacher", "field"} & set(given):
            kind = getattr(manifoldrf, given[name].title(), None)  # Walks, Counts, Network
            params[name] = given[name] if kind is None else kind()
        kernel = self._chosen_kernel(given)
        params |= {} if kernel is None else {"kernel": kernel}
        found = {name: given[name] for name in ("dim", "noise_std") if name in given}
        if found and self.graph not in (None, "heat"):
            name, value = next(iter(found.items()))
            reject(f"--{name.replace('_', '-')}", f"left out with --graph {self.graph}", value)
        if found or self.graph:
            params["graph"] = getattr(manifoldrf, f"{(self.graph or 'heat').title()}Graph")(**found)
        make: Any = manifoldrf.ManifoldRandomFeatures
        features = (make.paper if self.paper else make)(**params, random_state=run.seed, n_jobs=run.n_jobs)
        pairs, kinds = [split(text, "--set") for text in self.changes or []], int | float | bool | None | str
        return features.set_params(**{name: parse(text, kinds, name) for name, text in pairs})

    def _chosen_kernel(self, given: dict[str, Any]) -> Any:
        """The kernel, or None if no option names one."""
        import manifoldrf

        own: dict[str, Any] = {
            name: given[name] for name in ("t", "tau", "nu", "lengthscale", "clock") if name in given
        }
        implied = {"t": "heat", "tau": "diffusion"}
        name: str | None = self.kernel or next((implied.get(option, "matern") for option in own), None)
        if name is None:
            return None
        kind = getattr(manifoldrf, f"{name.title()}Kernel")
        known = {part.name: part for part in dataclasses.fields(kind)}
        for option, value in own.items():
            if option not in known:
                reject(f"--{option}", f"left out with the kernel {name}", value)
        for option, part in known.items():
            if part.default is dataclasses.MISSING and option not in own:
                reject(f"--{option}", f"given with the kernel {name}", "none")
        return kind(**own)


@dataclass(frozen=True)
class Threads:
    """Threads, for commands without randomness."""

    n_jobs: Annotated[int, _run(help="Number of threads, -1 for all cores. Results do not depend on it.")] = -1

    def check(self) -> None:
        """Check the number of threads before any work."""
        check_jobs(self.n_jobs)


@dataclass(frozen=True)
class Running(Threads):
    """Threads and a seed."""

    seed: Annotated[int, _run(min=0, help="The same seed gives the same bits.")] = 0
