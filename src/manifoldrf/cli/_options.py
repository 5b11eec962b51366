"""Groups of options that commands share; each has the name that the parameter has in Python."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from manifoldrf.cli._settings import parse, split

# An option in a panel of its own in the help of a command.
_output = functools.partial(typer.Option, rich_help_panel="Output")
_kernel = functools.partial(typer.Option, rich_help_panel="Kernel")
_features = functools.partial(typer.Option, rich_help_panel="Features")
_graph = functools.partial(typer.Option, rich_help_panel="Graph")
_run = functools.partial(typer.Option, rich_help_panel="Run")


def number_or_word(text: str) -> int | str:
    """A whole number, or the word that the library knows."""
    number: int | str = parse(text, int | str, "value")
    return number


def float_or_word(text: str) -> float | str:
    """A number, or the word that the library knows."""
    number: float | str = parse(text, float | str, "value")
    return number


@dataclass(frozen=True)
class Output:
    """How a command speaks."""

    as_json: Annotated[bool, _output("--json", help="Print JSON for machines instead of text.")] = False
    quiet: Annotated[bool, _output("--quiet", "-q", help="Print nothing but errors.")] = False
    # `main` takes it from the arguments of any command; it is here for the help.
    debug: Annotated[bool, _output("--debug", help="Show the traceback of an error.")] = False

    @property
    def silent(self) -> bool:
        """Whether no text is to be printed."""
        return self.as_json or self.quiet


# A parameter that only one kernel is likely to be meant by.
_IMPLIED = {
    "t": "heat",
    "tau": "diffusion",
    "nu": "matern",
    "lengthscale": "matern",
    "n": "power",
    "a": "random-walk",
}
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
    clock: Annotated[
        Literal["graph", "manifold"] | None,
        _kernel("--clock", help="matern: unit of time."),
    ] = None
    n: Annotated[int | None, _kernel("--n", help="power: number of steps.")] = None
    scale: Annotated[float | None, _kernel("--scale", help="regularized-laplacian: scale.")] = None
    power: Annotated[float | None, _kernel("--power", help="regularized-laplacian: power.")] = None
    a: Annotated[float | None, _kernel("--a", help="random-walk: the number a.")] = None
    p: Annotated[float | None, _kernel("--p", help="random-walk: the power p.")] = None

    def build(self) -> Any:
        """The kernel, or None where nothing is said of it."""
        import manifoldrf
        from manifoldrf._validation import reject

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
class FeatureChoice:
    """Parameters of ManifoldRandomFeatures that are not those of the kernel or the graph."""

    n_features: Annotated[
        Any,
        _features(
            "--n-features",
            parser=number_or_word,
            metavar="INTEGER|auto|all",
            help="How many: auto, as the width of the kernel asks for; all, one for every node.",
        ),
    ] = "auto"
    field: Annotated[
        Literal["auto", "step", "interpolated", "local", "mlp"],
        _features(help="How signatures are carried to new points; mlp is the paper's network."),
    ] = "auto"
    anchors: Annotated[
        Literal["farthest", "iid", "all"],
        _features(help="Where the field is read."),
    ] = "farthest"
    weights: Annotated[
        Literal["auto", "nnls", "unity", "voronoi", "uniform"],
        _features(help="Quadrature weights of the anchors."),
    ] = "auto"
    teacher: Annotated[
        Literal["auto", "exact", "frontier", "walks", "counts"],
        _features(help="What computes the signatures."),
    ] = "auto"
    teacher_options: Annotated[
        list[str] | None,
        _features(metavar="NAME=VALUE", help="Such as n_walks=10000; repeatable."),
    ] = None
    field_options: Annotated[
        list[str] | None,
        _features(metavar="NAME=VALUE", help="Such as epochs=20; repeatable."),
    ] = None
    n_starts: Annotated[
        int | None,
        _features(help="Nodes whose signatures a field is fitted to."),
    ] = None
    loss: Annotated[
        Literal["relative", "l2"] | None,
        _features(help="Of the network."),
    ] = None
    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        _features(help="Where the network is trained and fields are read."),
    ] = "auto"

    def parameters(self) -> dict[str, Any]:
        """For the constructor."""
        own = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        own["teacher_options"] = read_options(self.teacher_options, "--teacher-options")
        own["field_options"] = read_options(self.field_options, "--field-options")
        return own


def read_options(texts: list[str] | None, option: str) -> dict[str, Any] | None:
    """A dict of texts NAME=VALUE: numbers where they read as such."""
    pairs = [split(text, option) for text in texts or []]
    return {name: parse(value, int | float | bool | None | str, name) for name, value in pairs} or None


@dataclass(frozen=True)
class GraphChoice:
    """How a graph is built; None stands for the default of the library."""

    kind: Annotated[
        Literal["auto", "heat", "knn", "mesh"],
        _graph(help="Heat steps, nearest neighbours, or the edges of a mesh."),
    ] = "auto"
    n_steps: Annotated[
        Any,
        _graph(parser=number_or_word, metavar="INTEGER|auto", help="Of a heat graph."),
    ] = "auto"
    n_neighbors: Annotated[int | None, _graph(help="Of a graph of neighbours; 8 by default.")] = None
    bandwidth: Annotated[
        Any,
        _graph(
            parser=float_or_word, metavar="FLOAT|median|local", help="Of a graph of neighbours.", show_default=False
        ),
    ] = None
    density_correction: Annotated[
        float | None,
        _graph(help="Of a graph of neighbours; between 0 and 1."),
    ] = None
    dim: Annotated[int | None, _graph(help="Dimension of the space; estimated by default.")] = None


@dataclass(frozen=True)
class FittedGraph(GraphChoice):
    """The graph of features: GraphOptions."""

    n_nodes: Annotated[
        Any,
        _graph(parser=number_or_word, metavar="INTEGER|auto|all", help="A cloud is thinned to so many points."),
    ] = "auto"

    def build(self) -> Any:
        """GraphOptions, or None where all is left to the library."""
        from manifoldrf import GraphOptions

        options = GraphOptions(**dataclasses.asdict(self))
        return None if self == FittedGraph() else options


@dataclass(frozen=True)
class BuiltGraph(GraphChoice):
    """A graph by itself, as the functions that build graphs have it."""

    weights: Annotated[
        Literal["gaussian", "unit", "cotangent"] | None,
        _graph(help="Of the edges of a mesh; gaussian by default."),
    ] = None
    self_loops: Annotated[
        bool,
        _graph("--self-loops", help="Join every point to itself, with neighbours."),
    ] = False


@dataclass(frozen=True)
class Threads:
    """Threads, for commands that draw nothing at random."""

    n_jobs: Annotated[int, _run(help="Threads, -1 for all cores; results do not depend on it.")] = -1

    def check(self) -> None:
        """Raise before any work."""
        from manifoldrf._validation import check_jobs

        check_jobs(self.n_jobs)


@dataclass(frozen=True)
class Machines:
    """Where the work is done: here, or on a cluster."""

    scheduler: Annotated[
        str | None,
        _run(
            metavar="ADDRESS",
            help="Scheduler of a Dask cluster, such as tcp://10.0.0.1:8786, that shares the work; the results are "
            "the same.",
        ),
    ] = None

    @contextlib.contextmanager
    def cluster(self) -> Iterator[Any]:
        """The cluster, for the time of the block; None where there is none."""
        if self.scheduler is None:
            yield None
            return
        from manifoldrf import Cluster

        try:
            cluster = Cluster(self.scheduler)
        except ValueError:
            message = f"`--scheduler` must be an address such as tcp://10.0.0.1:8786. Got {self.scheduler!r}."
            raise typer.BadParameter(message) from None
        with cluster:
            yield cluster


@dataclass(frozen=True)
class Running(Threads):
    """Threads and a seed."""

    random_state: Annotated[int, _run(min=0, help="Seed: the same seed gives the same bits.")] = 0
