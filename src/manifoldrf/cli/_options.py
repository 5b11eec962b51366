"""Groups of options that commands share; each has the name that the parameter has in Python."""

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from manifoldrf.cli._settings import parse, split

_FLAGS = "Output"


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

    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON for machines instead of text.", rich_help_panel=_FLAGS)
    ] = False
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing but errors.", rich_help_panel=_FLAGS)
    ] = False
    # `main` takes it from the arguments of any command; it is here for the help.
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error.", rich_help_panel=_FLAGS)
    ] = False

    @property
    def silent(self) -> bool:
        """Whether no text is to be printed."""
        return self.as_json or self.quiet


# Name on the command line -> class; the parameters are the fields of the class.
KERNELS = {
    "heat": "HeatKernel",
    "diffusion": "DiffusionKernel",
    "matern": "MaternKernel",
    "power": "PowerKernel",
    "regularized-laplacian": "RegularizedLaplacianKernel",
    "random-walk": "RandomWalkKernel",
    "cosine": "CosineKernel",
}
# A parameter that only one kernel is likely to be meant by.
_IMPLIED = {
    "t": "heat",
    "tau": "diffusion",
    "nu": "matern",
    "lengthscale": "matern",
    "n": "power",
    "a": "random-walk",
}
_KERNEL = "Kernel"
KernelName = Literal["heat", "diffusion", "matern", "power", "regularized-laplacian", "random-walk", "cosine"]


def _kernel_option(flag: str, help: str) -> Any:
    return typer.Option(f"--{flag}", help=help, rich_help_panel=_KERNEL)


@dataclass(frozen=True)
class KernelChoice:
    """A kernel by name, with its parameters."""

    kernel: Annotated[
        KernelName | None,
        typer.Option(
            "--kernel",
            help="The kernel; --t means heat and --tau diffusion. Without any, one is chosen from the points.",
            show_default=False,
            rich_help_panel=_KERNEL,
        ),
    ] = None
    t: Annotated[float | None, _kernel_option("t", "heat: time, in units of length squared.")] = None
    tau: Annotated[float | None, _kernel_option("tau", "diffusion: steps of the walk.")] = None
    nu: Annotated[float | None, _kernel_option("nu", "matern: smoothness.")] = None
    lengthscale: Annotated[float | None, _kernel_option("lengthscale", "matern: length scale.")] = None
    clock: Annotated[
        Literal["graph", "manifold"] | None,
        typer.Option("--clock", help="matern: unit of time.", rich_help_panel=_KERNEL),
    ] = None
    n: Annotated[int | None, _kernel_option("n", "power: number of steps.")] = None
    scale: Annotated[float | None, _kernel_option("scale", "regularized-laplacian: scale.")] = None
    power: Annotated[float | None, _kernel_option("power", "regularized-laplacian: power.")] = None
    a: Annotated[float | None, _kernel_option("a", "random-walk: the number a.")] = None
    p: Annotated[float | None, _kernel_option("p", "random-walk: the power p.")] = None

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
        kind = getattr(manifoldrf, KERNELS[name])
        known = {field.name: field for field in dataclasses.fields(kind)}
        for option, value in given.items():
            if option not in known:
                reject(f"--{option}", f"left out with the kernel {name}", value)
        for option, field in known.items():
            if field.default is dataclasses.MISSING and option not in given:
                reject(f"--{option}", f"given with the kernel {name}", "none")
        return kind(**given)


_FEATURES = "Features"


@dataclass(frozen=True)
class FeatureChoice:
    """Parameters of ManifoldRandomFeatures that are not those of the kernel or the graph."""

    n_features: Annotated[
        Any,
        typer.Option(
            "--n-features",
            parser=number_or_word,
            metavar="INTEGER|auto|all",
            help="How many: auto, as the width of the kernel asks for; all, one for every node.",
            rich_help_panel=_FEATURES,
        ),
    ] = "auto"
    field: Annotated[
        Literal["auto", "step", "interpolated", "local", "mlp"],
        typer.Option(
            help="How signatures are carried to new points; mlp is the paper's network.",
            rich_help_panel=_FEATURES,
        ),
    ] = "auto"
    anchors: Annotated[
        Literal["farthest", "iid", "all"],
        typer.Option(help="Where the field is read.", rich_help_panel=_FEATURES),
    ] = "farthest"
    weights: Annotated[
        Literal["auto", "nnls", "unity", "voronoi", "uniform"],
        typer.Option(
            help="Quadrature weights of the anchors.",
            rich_help_panel=_FEATURES,
        ),
    ] = "auto"
    teacher: Annotated[
        Literal["auto", "exact", "frontier", "walks", "counts"],
        typer.Option(
            help="What computes the signatures.",
            rich_help_panel=_FEATURES,
        ),
    ] = "auto"
    teacher_options: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Such as n_walks=10000; repeatable.", rich_help_panel=_FEATURES),
    ] = None
    field_options: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Such as epochs=20; repeatable.", rich_help_panel=_FEATURES),
    ] = None
    n_starts: Annotated[
        int | None,
        typer.Option(help="Nodes whose signatures a field is fitted to.", rich_help_panel=_FEATURES),
    ] = None
    loss: Annotated[
        Literal["relative", "l2"] | None,
        typer.Option(help="Of the network.", rich_help_panel=_FEATURES),
    ] = None
    device: Annotated[
        Literal["auto", "cpu", "cuda"],
        typer.Option(help="Where the network is trained.", rich_help_panel=_FEATURES),
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


_GRAPH = "Graph"


@dataclass(frozen=True)
class GraphChoice:
    """How a graph is built; None stands for the default of the library."""

    kind: Annotated[
        Literal["auto", "heat", "knn", "mesh"],
        typer.Option(
            help="Heat steps, nearest neighbours, or the edges of a mesh.",
            rich_help_panel=_GRAPH,
        ),
    ] = "auto"
    n_steps: Annotated[
        Any,
        typer.Option(
            parser=number_or_word, metavar="INTEGER|auto", help="Of a heat graph.", rich_help_panel=_GRAPH
        ),
    ] = "auto"
    n_neighbors: Annotated[
        int | None, typer.Option(help="Of a graph of neighbours; 8 by default.", rich_help_panel=_GRAPH)
    ] = None
    bandwidth: Annotated[
        Any,
        typer.Option(
            parser=float_or_word,
            metavar="FLOAT|median|local",
            help="Of a graph of neighbours.",
            show_default=False,
            rich_help_panel=_GRAPH,
        ),
    ] = None
    density_correction: Annotated[
        float | None,
        typer.Option(help="Of a graph of neighbours; between 0 and 1.", rich_help_panel=_GRAPH),
    ] = None
    dim: Annotated[
        int | None, typer.Option(help="Dimension of the space; estimated by default.", rich_help_panel=_GRAPH)
    ] = None


@dataclass(frozen=True)
class FittedGraph(GraphChoice):
    """The graph of features: GraphOptions."""

    n_nodes: Annotated[
        Any,
        typer.Option(
            parser=number_or_word,
            metavar="INTEGER|auto|all",
            help="A cloud is thinned to so many points.",
            rich_help_panel=_GRAPH,
        ),
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
        typer.Option(
            help="Of the edges of a mesh; gaussian by default.",
            rich_help_panel=_GRAPH,
        ),
    ] = None
    self_loops: Annotated[
        bool,
        typer.Option("--self-loops", help="Join every point to itself, with neighbours.", rich_help_panel=_GRAPH),
    ] = False


_RUN = "Run"


@dataclass(frozen=True)
class Threads:
    """Threads, for commands that draw nothing at random."""

    n_jobs: Annotated[
        int, typer.Option(help="Threads, -1 for all cores; results do not depend on it.", rich_help_panel=_RUN)
    ] = -1

    def check(self) -> None:
        """Raise before any work."""
        from manifoldrf._validation import check_jobs

        check_jobs(self.n_jobs)


@dataclass(frozen=True)
class Running(Threads):
    """Threads and a seed."""

    random_state: Annotated[
        int, typer.Option(min=0, help="Seed: the same seed gives the same bits.", rich_help_panel=_RUN)
    ] = 0
