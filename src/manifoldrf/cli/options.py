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
def usage(names: Mapping[str, str] | None = None) -> Iterator[None]:
    """Report a ValueError or TypeError of the block as wrong usage (exit code 2).

    ``names``: parameters of the library, and the options that users know them by.
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        raise UsageError(renamed(error, names or {}) or str(error)) from error


def renamed(error: Exception, names: Mapping[str, str]) -> str:
    """The text of an error about one of the parameters, with the name of its option; empty for other errors."""
    argument = getattr(error, "argument", "")  # of the library's own errors
    return str(error).replace(f"`{argument}`", f"`{names[argument]}`", 1) if argument in names else ""


def option_names(*groups: Any) -> dict[str, str]:
    """The parameters that the given options set, and the names of these options."""
    names = {}
    for group in groups:
        for field in dataclasses.fields(group):
            value, option = getattr(group, field.name), f"--{field.name.replace('_', '-')}"
            if value != field.default:
                names[field.name] = option
            if isinstance(value, list):
                names |= {text.partition("=")[0]: f"{option} {text.partition('=')[0]}" for text in value}
    return names


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
    bool: ("true or false", {"true": True, "false": False}.__getitem__),
    str: ("text", str),
    types.NoneType: ("none", {"none": None}.__getitem__),
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
_kernel = functools.partial(typer.Option, rich_help_panel="Kernel")
_features = functools.partial(typer.Option, rich_help_panel="Features")
_graph = functools.partial(typer.Option, rich_help_panel="Graph")
_run = functools.partial(typer.Option, rich_help_panel="Run")
_table = functools.partial(typer.Option, rich_help_panel="Table", show_default=False)


@dataclass(frozen=True)
class Output:
    """What a command prints."""

    as_json: Annotated[bool, _output("--json", help="Print JSON for machines instead of text.")] = False
    quiet: Annotated[bool, _output("--quiet", "-q", help="Print errors only, and that a result is useless.")] = (
        False
    )
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


# Parameter -> the kernel it implies.
_IMPLIED = {
    "t": "heat",
    "tau": "diffusion",
    "nu": "matern",
    "lengthscale": "matern",
    "n": "power",
    "a": "random-walk",
}
_CLOCK = "matern: unit of the length scale, steps of the graph or lengths in space (manifold)."
KernelName = Literal["heat", "diffusion", "matern", "power", "regularized-laplacian", "random-walk", "cosine"]


@dataclass(frozen=True)
class KernelChoice:
    """A kernel by name, with its parameters."""

    kernel: Annotated[
        KernelName | None,
        _kernel(
            "--kernel",
            help="The kernel; --t means heat and --tau diffusion. Without any, one is chosen from the points.",
            show_default=False,
        ),
    ] = None
    t: Annotated[float | None, _kernel("--t", help="heat: time, in units of length squared.")] = None
    tau: Annotated[float | None, _kernel("--tau", help="diffusion: steps of the walk.")] = None
    nu: Annotated[float | None, _kernel("--nu", help="matern: smoothness.")] = None
    lengthscale: Annotated[float | None, _kernel("--lengthscale", help="matern: length scale.")] = None
    clock: Annotated[Literal["graph", "manifold"] | None, _kernel("--clock", help=_CLOCK)] = None
    n: Annotated[int | None, _kernel("--n", help="power: number of steps.")] = None
    scale: Annotated[float | None, _kernel("--scale", help="regularized-laplacian: scale.")] = None
    power: Annotated[float | None, _kernel("--power", help="regularized-laplacian: power.")] = None
    a: Annotated[float | None, _kernel("--a", help="random-walk: a in (a I - L)^p, at least 2.")] = None
    p: Annotated[float | None, _kernel("--p", help="random-walk: p, the number of steps.")] = None

    def build(self) -> Any:
        """The kernel, or None if no option names one."""
        import manifoldrf

        fields = [field.name for field in dataclasses.fields(self) if field.name != "kernel"]
        given = {name: getattr(self, name) for name in fields if getattr(self, name) is not None}
        implied = next((_IMPLIED[name] for name in given if name in _IMPLIED), None)
        name = self.kernel or implied
        if name is None:
            if given:
                reject("--kernel", f"given with --{next(iter(given))}", "none")
            return None
        kind = getattr(manifoldrf, name.title().replace("-", "") + "Kernel")
        known = {field.name: field for field in dataclasses.fields(kind)}
        for option, value in given.items():
            if option not in known:
                reject(f"--{option}", f"left out with the kernel {name}", value)
        for option, field in known.items():
            if field.default is dataclasses.MISSING and option not in given:
                reject(f"--{option}", f"given with the kernel {name}", "none")
        return kind(**given)


@dataclass(frozen=True)
class Features:
    """Parameters of ManifoldRandomFeatures other than the kernel and the graph."""

    n_features: Annotated[
        int | str,
        _features(
            "--n-features",
            metavar="INTEGER|auto|all",
            help="Number of features: auto (from the width of the kernel), or all (one per node).",
        ),
    ] = "auto"
    field: Annotated[
        Literal["auto", "step", "interpolated", "network"],
        _features(help="How features are computed at new points, between nodes; network is the paper's."),
    ] = "auto"
    anchors: Annotated[Literal["farthest", "iid", "all"], _features(help="How the anchors are chosen.")] = (
        "farthest"
    )
    quadrature: Annotated[
        Literal["auto", "nnls", "voronoi", "uniform"], _features(help="Quadrature weights of the anchors.")
    ] = "auto"
    teacher: Annotated[
        Literal["auto", "exact", "walks", "counts"],
        _features(help="How features are computed at the nodes: exactly, or estimated from random walks."),
    ] = "auto"
    teacher_options: Annotated[
        list[str] | None, _features(metavar="NAME=VALUE", help="For example n_walks=10000; repeatable.")
    ] = None
    field_options: Annotated[
        list[str] | None, _features(metavar="NAME=VALUE", help="For example epochs=20; repeatable.")
    ] = None
    normalize: Annotated[
        bool,
        _features("--normalize/--absolute", help="Scale features to K(x, x) = 1 on average, or keep the kernel's."),
    ] = True

    def parameters(self) -> dict[str, Any]:
        """Keyword arguments of the constructor."""
        from manifoldrf import Counts, Network, Walks

        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        for part in ("teacher", "field"):
            option = f"--{part}-options"
            given = read_options(own.pop(f"{part}_options"), option)
            kinds: dict[str, Any] = {"walks": Walks, "counts": Counts, "network": Network}
            kind = kinds.get(own[part])
            if kind is not None:
                own[part] = kind(**(given or {}))
            elif given:
                reject(option, f"left out with --{part} {own[part]}", given)
        return own


def read_options(texts: list[str] | None, option: str) -> dict[str, Any] | None:
    """A dict from texts NAME=VALUE; values that look like numbers become numbers."""
    pairs = [split(text, option) for text in texts or []]
    return {name: parse(value, int | float | bool | None | str, name) for name, value in pairs} or None


@dataclass(frozen=True)
class GraphChoice:
    """How to build a graph; None means the default of the library."""

    kind: Annotated[
        Literal["auto", "heat", "knn", "mesh"],
        _graph(help="heat (heat steps), knn (nearest neighbours), or mesh (edges of the mesh)."),
    ] = "auto"
    n_steps: Annotated[int | str, _graph(metavar="INTEGER|auto", help="heat: number of steps.")] = "auto"
    n_neighbors: Annotated[int | None, _graph(help="knn: number of neighbours, 8 by default.")] = None
    bandwidth: Annotated[
        float | str | None,
        _graph(metavar="FLOAT|median|local", help="knn: width of the edge weights.", show_default=False),
    ] = None
    density_correction: Annotated[
        float | None, _graph(help="knn: exponent of the density correction, from 0 to 1.")
    ] = None
    dim: Annotated[int | None, _graph(help="Dimension of the space; estimated by default.")] = None
    noise: Annotated[
        float | str | None,
        _graph(metavar="FLOAT|auto", help="Noise per coordinate, which is removed; 0 removes nothing."),
    ] = None


@dataclass(frozen=True)
class FittedGraph(GraphChoice):
    """The graph that features are fitted on."""

    n_nodes: Annotated[
        int | str, _graph(metavar="INTEGER|auto|all", help="Thin a cloud or a mesh to this number of nodes.")
    ] = "auto"

    def build(self) -> Any:
        """HeatGraph, KnnGraph or MeshGraph; None if all options have their default."""
        from manifoldrf import HeatGraph, KnnGraph, MeshGraph

        if self == FittedGraph():
            return None
        given = {part.name: getattr(self, part.name) for part in dataclasses.fields(self)}
        changed = {part.name for part in dataclasses.fields(self) if given[part.name] != part.default} - {"kind"}
        of_knn = {"n_neighbors", "bandwidth", "density_correction"}
        kind = self.kind if self.kind != "auto" else "knn" if changed & of_knn else "heat"
        kinds: dict[str, tuple[Any, set[str]]] = {
            "heat": (HeatGraph, {"n_nodes", "n_steps", "dim", "noise"}),
            "knn": (KnnGraph, of_knn),
            "mesh": (MeshGraph, set()),
        }
        make, known = kinds[kind]
        for name in sorted(changed - known):
            reject(f"--{name.replace('_', '-')}", f"left out with the graph {kind}", given[name])
        return make(**{"noise_std" if name == "noise" else name: given[name] for name in changed})


@dataclass(frozen=True)
class BuiltGraph(GraphChoice):
    """A graph by itself, with the options of heat_graph, knn_graph and mesh_graph."""

    weights: Annotated[
        Literal["gaussian", "unit", "cotangent"] | None,
        _graph(help="mesh: weights of the edges, gaussian by default."),
    ] = None
    self_loops: Annotated[bool, _graph("--self-loops", help="knn: connect each point to itself.")] = False


@dataclass(frozen=True)
class Threads:
    """Threads, for commands without randomness."""

    n_jobs: Annotated[int, _run(help="Number of threads, -1 for all cores. Results do not depend on it.")] = -1

    def check(self) -> None:
        """Check the number of threads before any work."""
        check_jobs(self.n_jobs)


@dataclass(frozen=True)
class Machines:
    """Where to run: on this machine or on a cluster."""

    scheduler: Annotated[
        str | None,
        _run(
            metavar="ADDRESS",
            help="Scheduler of a Dask cluster, such as tcp://10.0.0.1:8786. Results do not depend on it.",
        ),
    ] = None

    @contextlib.contextmanager
    def cluster(self) -> Iterator[Any]:
        """A connection to the cluster for the block, or None without --scheduler."""
        if self.scheduler is None:
            yield None
            return
        from manifoldrf import Cluster

        try:
            cluster = Cluster(self.scheduler)
        except ValueError:
            message = f"`--scheduler` must be an address such as tcp://10.0.0.1:8786. Got {self.scheduler!r}."
            raise UsageError(message) from None
        with cluster:
            yield cluster


@dataclass(frozen=True)
class Running(Threads):
    """Threads and a seed."""

    random_state: Annotated[int, _run(min=0, help="Seed. The same seed gives the same bits.")] = 0
