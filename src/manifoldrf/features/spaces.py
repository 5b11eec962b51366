"""From what a user has (points, a mesh, a manifold, a graph) to a kernel on a graph, with the units of both."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from manifoldrf._random import Streams
from manifoldrf._validation import FloatArray, check_integer, reject
from manifoldrf.features.graph_options import GraphOptions
from manifoldrf.features.proximity import Proximity
from manifoldrf.features.sources import (
    FEW_DIMS,
    HEAT_DIM,
    STEPS_BY_DEFAULT,
    Source,
    carried_steps,
    default_kernel,
    graph_time,
    on_manifold_clock,
    source_of,
    thinned,
)
from manifoldrf.fields.data import Setting
from manifoldrf.geometry.abstract_ball import AbstractBall
from manifoldrf.geometry.builders import knn_graph, mesh_graph
from manifoldrf.geometry.density import Sampling
from manifoldrf.geometry.dimension import estimate_dimension
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.heat import heat_graph
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.neighbors import NeighborSearch
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.manifold_kernels import HeatKernel
from manifoldrf.kernels.series import SeriesFit, SeriesKernel
from manifoldrf.signatures._engines import Progress, silent, stage_of
from manifoldrf.signatures.record import check_kernel

_HEIGHTS = 64  # nodes at which the height of a chosen kernel is measured
# Nodes of a smaller share of the median degree are left out: what is divided by their degree would be all noise.
_ISOLATED = 1e-4
_FITTED_DEGREES = (24, 72)  # fewest and most powers: twice the steps of the graph, and a few more
_FITTED_ROWS, _FITTED_COLUMNS = 400, 64
# A fitted square has nonnegative features; it is kept up to this error, or up to so many times that of a free fit.
_GOOD_SQUARE, _WORTH_A_SQUARE = 0.05, 2.0

CLOCKS = ("graph", "manifold")
Builder = Callable[[Any], Graph]


@dataclass(frozen=True, eq=False)
class Space:
    """A kernel on a graph that discretises a space.

    Attributes
    ----------
    setting : Setting
    kernel : AbstractKernel
        As stated, before it was resolved on the graph.
    clock : {"graph", "manifold"}
        "manifold": features stand for a kernel of the space, per unit of volume. "graph": for the kernel of the
        graph, as if a point were a node.
    volume : float
        Of the space, as a volume also in the graph clock.
    notes : tuple of pairs of str
        What was chosen, for the summary.
    unit : float
        Mean volume of a node. The measure of the setting is in this unit, so that nothing overflows in the square
        of the user's own.
    weights_known : bool
        Whether the volumes of the nodes were given, not estimated.
    series_error : float, optional
        Of the series that was fitted to a function.
    ball : AbstractBall, optional
        The space itself where it has no end, and the nodes are a grid of this ball.
    """

    setting: Setting
    kernel: AbstractKernel
    clock: str
    volume: float
    notes: tuple[tuple[str, str], ...]
    unit: float = 1.0
    weights_known: bool = True
    series_error: float | None = None
    ball: AbstractBall | None = None

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self.setting.graph

    @cached_property
    def proximity(self) -> Proximity:
        """Distances to the space, whose reaches are measured once for all features on it."""
        return Proximity(self.setting.graph, self.setting.dim)


def prepare_space(
    space: Any, kernel: Any, graph: Any, streams: Streams, n_jobs: int, progress: Progress = silent
) -> Space:
    """Build the graph of a space and resolve the kernel on it.

    Parameters
    ----------
    space : array of points, TriangleMesh, AbstractManifold or Graph
    kernel : AbstractKernel, callable or None
    graph : GraphOptions, callable, Graph or None
    streams : Streams
    n_jobs : int
    progress : callable (what, done, total)
        Told of the stages "nodes" and "graph".
    """
    if isinstance(kernel, type):
        reject("kernel", f"a kernel, not its class: {kernel.__name__}(...)", kernel.__name__, TypeError)
    if kernel is not None and not callable(kernel):
        check_kernel(kernel)
    notes: dict[str, str] = {}
    built, stated = _build(space, kernel, graph, notes, n_jobs, progress)
    _ = built.positions  # an error where there are none
    dim = _dimension(built, space, graph)
    notes["dimension"] = str(dim)
    volume = _volume(built, dim)
    if kernel is None:
        stated = _unit_height(stated, built, dim, volume)
    if isinstance(stated, AbstractKernel):
        resolved = stated.resolve(built, dim).on(built)
        clock = "graph" if resolved == stated else "manifold"
    else:
        clock = "manifold"
    series_error = None
    measure = _measure(built, volume)
    if not isinstance(stated, AbstractKernel):
        fit = _fit_series(stated, built, measure, streams)
        series_error = fit.held_out_error
        notes["series"] = f"fitted to the given function, relative error {series_error:.2g} on held-out pairs"
        stated = resolved = fit.kernel
    asymmetric = not resolved.is_positive
    width = _width(built, resolved if asymmetric else resolved.root(), dim)
    if not width > 0:
        reject("kernel", "one whose walks take a step, on a graph with edges", f"{resolved}, {width:g} wide")
    unit = float(measure[measure > 0].mean())
    setting = Setting(built, resolved, measure / unit, dim, width, asymmetric)
    known = notes.pop("weights", "given") == "given"
    ball = space if isinstance(space, AbstractBall) else None
    return Space(setting, stated, clock, volume, tuple(notes.items()), unit, known, series_error, ball)


def _build(
    space: Any, kernel: Any, graph: Any, notes: dict[str, str], n_jobs: int, progress: Progress
) -> tuple[Graph, Any]:
    """The graph, and the kernel as stated or chosen."""
    given = space if isinstance(space, Graph) else graph
    if isinstance(given, Graph):
        _check_given(space, graph)
        notes["graph"] = f"as given: {given}"
        return given, _default_on(given, notes) if kernel is None else kernel
    if graph is None or isinstance(graph, GraphOptions):
        return _build_by_options(space, kernel, graph or GraphOptions(), notes, n_jobs, progress)
    if not callable(graph):
        reject("graph", "None, GraphOptions, a Graph or a function of the points", repr(graph), TypeError)
    with stage_of(progress, "graph"):
        built = graph(space.grid(4000) if isinstance(space, AbstractManifold) else space)
    if not isinstance(built, Graph):
        reject("graph", "a function that returns a Graph", type(built).__name__, TypeError)
    notes["graph"] = f"as built: {built}"
    return built, _default_on(built, notes) if kernel is None else kernel


def _check_given(space: Any, graph: Any) -> None:
    """A graph takes the place of the space, or stands on its very points."""
    if isinstance(space, Graph):
        only_dim = isinstance(graph, GraphOptions) and graph.only_dim
        if graph is not None and not only_dim:
            reject("graph", "None or GraphOptions(dim=...) where the space is a graph itself", repr(graph))
    elif isinstance(space, AbstractManifold | TriangleMesh) or not np.array_equal(space, graph.points):
        reject("graph", "a graph on the very points that are fitted; or fit the graph itself", repr(graph))


def _default_on(graph: Graph, notes: dict[str, str], steps: float = STEPS_BY_DEFAULT) -> AbstractKernel:
    """The kernel by default on a graph that is given."""
    dim = 1 if graph.n_nodes < 3 else None  # nothing to estimate it from
    t = graph.time(float(graph.n_steps or steps), dim)
    notes["kernel"] = f"chosen: the time of {graph.n_steps or steps:.3g} steps, K(x, x) = 1 on average"
    return HeatKernel(float(f"{t:.3g}") if graph.n_steps is None else t)


def _build_by_options(
    space: Any, kernel: Any, options: GraphOptions, notes: dict[str, str], n_jobs: int, progress: Progress
) -> tuple[Graph, Any]:
    t = kept = None
    with stage_of(progress, "nodes"):
        source = source_of(space, kernel, options, n_jobs)
        if _wants_heat(source, kernel):
            kernel = default_kernel(source.sampling, source, notes) if kernel is None else kernel
            t = graph_time(kernel, source)
            source, kept = thinned(source, t, notes)
    if t is None:
        _refuse_heat_options(options)
        with stage_of(progress, "graph"):
            graph = _plain_graph(source, kernel, notes)
        return graph, _default_on(graph, notes, carried_steps(graph, source)) if kernel is None else kernel
    weights = options.weights if kept is None or isinstance(options.weights, str) else "auto"
    if source.manifold is not None and isinstance(weights, str):
        weights = source.manifold.grid_weights(source.n_asked)
    notes["weights"] = "estimated" if isinstance(weights, str) else "given"
    dim = None if source.mesh is not None else source.dim
    with stage_of(progress, "graph"):
        graph = heat_graph(
            source.nodes, t, n_steps=options.n_steps, weights=weights, dim=dim, metric=source.metric, n_jobs=n_jobs
        )
    notes["graph"] = f"heat graph, {graph.n_nodes} nodes, {graph.n_steps} steps of {t / (graph.n_steps or 1):.3g}"
    return graph, kernel


def _refuse_heat_options(options: GraphOptions) -> None:
    """Options of heat graphs have no effect on others."""
    if options.n_steps != "auto":
        reject("n_steps", "left out where no heat graph is built", options.n_steps)
    if not isinstance(options.weights, str):
        reject("weights", "left out where no heat graph is built", "an array")


def _wants_heat(source: Source, kernel: Any) -> bool:
    options = source.options
    if options.kind != "auto":
        return options.kind == "heat"
    if options.wants_neighbors:
        return False
    in_steps = isinstance(kernel, AbstractKernel) and not on_manifold_clock(kernel)
    return (
        not in_steps
        and source.dim <= _most_dims(source, kernel)
        and len(getattr(source.nodes, "vertices", source.nodes)) > 4
    )


def _most_dims(source: Source, kernel: Any) -> int:
    """Dimensions up to which a heat graph is built where nobody asks for another."""
    return HEAT_DIM if kernel is not None or source.manifold is not None else FEW_DIMS


def _plain_graph(source: Source, kernel: Any, notes: dict[str, str]) -> Graph:
    """The edges of a mesh, or nearest neighbours."""
    options = source.options
    if source.mesh is not None and options.kind != "knn":
        if source.metric is not None:
            reject("metric", "None on a mesh, whose own edges are followed", repr(source.metric))
        notes["graph"] = f"edges of the mesh, {source.mesh.n_vertices} nodes"
        return mesh_graph(source.mesh)
    if options.kind == "mesh":
        reject("kind", "'mesh' only where the space is a TriangleMesh", repr(options.kind))
    correction = options.density_correction
    in_steps = isinstance(kernel, AbstractKernel) and not on_manifold_clock(kernel)
    if correction is None:
        correction = 0.0 if in_steps else 1.0
    # In many dimensions the density varies over orders of magnitude, and one width isolates a quarter of the nodes.
    bandwidth = options.bandwidth or ("local" if source.dim > FEW_DIMS else "median")
    graph = knn_graph(
        source.nodes if source.mesh is None else source.mesh.vertices,
        n_neighbors=options.n_neighbors,
        bandwidth=bandwidth,
        density_correction=correction,
        metric=source.metric,
        n_jobs=source.n_jobs,
    )
    neighbors = "" if options.n_neighbors is None else f", {options.n_neighbors} each"
    neighbors += "" if bandwidth == "median" else f", bandwidth {bandwidth}"
    notes["graph"] = f"nearest neighbours{neighbors}, {graph.n_nodes} nodes, density exponent {correction:g}"
    if options.kind == "auto" and not in_steps and source.dim > _most_dims(source, kernel):
        notes["graph"] += f"; no heat graph, which {source.dim} dimensions are too many for"
    return graph


def _dimension(graph: Graph, space: Any, options: Any) -> int:
    given = options.dim if isinstance(options, GraphOptions) else None
    if given is not None:
        return check_integer(given, "dim", 1, graph.positions.shape[1])
    if isinstance(space, AbstractManifold):
        return space.dim
    if graph.mesh is not None:
        return 2
    if graph.metric is not None:
        return graph.metric.dim
    return estimate_dimension(graph.positions) if graph.n_nodes > 2 else 1


def _unit_height(kernel: AbstractKernel, graph: Graph, dim: int, volume: float) -> AbstractKernel:
    """A chosen kernel times the number that makes K(x, x) one on average, whatever the unit of the points."""
    measure = _measure(graph, volume)
    usable = np.flatnonzero(measure > 0)
    nodes = usable[:: max(1, len(usable) // _HEIGHTS)][:_HEIGHTS]
    diagonal = np.diagonal(kernel.resolve(graph, dim).matrix(graph, nodes, nodes)) / measure[nodes]
    return float(f"{1 / diagonal.mean():.3g}") * kernel


def _volume(graph: Graph, dim: int) -> float:
    """Volume of the space: known to the graph, the mesh or the metric, else estimated from the density."""
    if graph.weights is not None:
        return float(graph.weights.sum())
    mesh = graph.mesh
    if mesh is not None:
        if not mesh.area > 0:
            reject("X", "a mesh with area", "degenerate faces only")
        return float(mesh.area)
    if graph.metric is not None and not isinstance(graph.metric, AbstractBall):
        return float(graph.metric.volume)
    return Sampling.of_cloud(NeighborSearch(graph.positions, graph.metric), dim).volume


def _measure(graph: Graph, volume: float) -> FloatArray:
    """Volume that each node stands for: its weight, or its share of the degrees; zero if all but isolated."""
    if graph.weights is not None:
        return graph.weights
    degrees = graph.degrees
    if not degrees.any():
        reject("X", "a space whose graph has edges", f"{graph.n_nodes} isolated nodes")
    kept = np.where(degrees >= _ISOLATED * np.median(degrees[degrees > 0]), degrees, 0.0)
    share = volume / float(kept.sum())
    if not np.isfinite(share):  # affinities next to nothing
        return kept / float(kept.sum()) * volume
    return kept * share


def _width(graph: Graph, series: AbstractKernel, dim: int) -> float:
    """Standard deviation of a signature along one axis: sqrt(2 t) for the mean time t of its walks."""
    near = np.array([1.0 - 1e-6, 1.0])
    values = series.spectral(near)
    low, high = np.ldexp(values, -np.frexp(values)[1].max())  # coefficients may be the smallest there are
    mean_length = abs(float((high - low) / (1e-6 * high))) if high else 1.0
    return float(np.sqrt(2 * mean_length * graph.time(1.0, dim)))


def _fit_series(function: Any, graph: Graph, measure: FloatArray, streams: Streams) -> SeriesFit:
    """Coefficients of the series closest to a function F(X, Y) of two sets of points."""
    rng = streams.generator("features.series")
    n = graph.n_nodes
    rows = rng.choice(n, min(n, _FITTED_ROWS), replace=False)
    columns = rng.choice(n, min(n, _FITTED_COLUMNS), replace=False)
    values = np.asarray(function(graph.positions[rows], graph.positions[columns]), dtype=np.float64)
    if values.shape != (len(rows), len(columns)):
        reject("kernel", f"a function whose result has shape {(len(rows), len(columns))}", values.shape)
    if not np.isfinite(values).all():
        reject("kernel", "a function with finite values", "NaN or inf")
    roots = np.sqrt(measure)
    targets = values * roots[rows][:, None] * roots[columns]
    i, j = np.repeat(rows, len(columns)), np.tile(columns, len(rows))
    samples = (i, j, targets.ravel())
    degree = int(np.clip(2 * (graph.n_steps or 0) + 4, *_FITTED_DEGREES))
    square = SeriesKernel.fit(graph, *samples, degree=degree, square=True)
    if square.held_out_error <= _GOOD_SQUARE:
        return square
    free = SeriesKernel.fit(graph, *samples, degree=degree)
    return square if square.held_out_error <= _WORTH_A_SQUARE * free.held_out_error else free
