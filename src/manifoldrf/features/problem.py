"""How far points are from the space, and how features fade there."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from manifoldrf._random import Streams
from manifoldrf._runtime import warn_user
from manifoldrf._validation import FloatArray, IntArray, check_integer, check_points, reject
from manifoldrf.features.options import GraphOptions
from manifoldrf.fields.data import Setting
from manifoldrf.geometry.builders import knn_graph, mesh_graph
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.heat import HeatExtension, heat_graph
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.model_spaces import AbstractBall, FlatTorus, HyperbolicSpace
from manifoldrf.geometry.neighbors import NeighborSearch, distances_between
from manifoldrf.geometry.sampling import Sampling, estimate_dimension, thin
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.manifold_kernels import HeatKernel, MaternKernel
from manifoldrf.kernels.series import SeriesFit, SeriesKernel
from manifoldrf.signatures.engines import Progress, silent, stage_of
from manifoldrf.signatures.teachers import check_kernel

__all__ = ["FarQueryWarning"]


# A query counts as near within this many distances from its nearest node to that node's own neighbours: of random
# points on the sphere fewer than one in 10,000 is farther from all nodes.
_NEAR = 1.5


class FarQueryWarning(UserWarning):
    """Points were transformed that are not on the space: their features fade to zero.

    Parameters
    ----------
    fading : int
        How many points are away from the space.
    gone : int
        Those of them whose features are zero.
    total : int
        All points that were asked for.

    Examples
    --------
    >>> import warnings
    >>> from manifoldrf import FarQueryWarning, HeatKernel, ManifoldRandomFeatures, Sphere
    >>> features = ManifoldRandomFeatures(HeatKernel(0.1)).fit(Sphere())
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", FarQueryWarning)
    ...     far = features.transform([[0.0, 0.0, 3.0]])
    >>> float(far.max()), len(caught)
    (0.0, 1)
    """

    def __init__(self, fading: int, gone: int, total: int) -> None:
        super().__init__(fading, gone, total)
        self.fading, self.gone, self.total = fading, gone, total

    @property
    def count(self) -> str:
        """How many points are meant, as a sentence."""
        return (
            f"{self.fading} of {self.total} points are away from the space, so their features fade; those of "
            f"{self.gone} are zero."
        )

    def __str__(self) -> str:
        return f"{self.count} `distance_to_space` says how far they are."


@dataclass(frozen=True, eq=False)
class Proximity:
    """Distances of points to the nodes of a graph, or to the surface of its mesh.

    Attributes
    ----------
    graph : Graph
    dim : int
    """

    graph: Graph
    dim: int

    @cached_property
    def _search(self) -> NeighborSearch:
        extension = self.graph.extension
        own = getattr(extension, "search", None)  # its tree may exist already
        return own if isinstance(own, NeighborSearch) else NeighborSearch(self.graph.positions, self.graph.metric)

    @cached_property
    def _reaches(self) -> FloatArray:
        """How far from each node a query still counts as near, shape (n_nodes,)."""
        points = self._search.points
        k = min(2 * self.dim + 2, len(points) - 1)
        reaches = _NEAR * self._search.knn(points, k + 1)[0][:, k]
        if isinstance(self.graph.extension, HeatExtension):  # whose steps end at its radius, twice as far
            reaches = np.minimum(np.maximum(reaches, self.graph.extension.radius / 2), self.graph.extension.radius)
        return np.asarray(reaches)

    def distance(self, queries: FloatArray) -> FloatArray:
        """Distance to the nearest node or, on a mesh, to the surface, shape (q,)."""
        mesh = self.graph.mesh
        if mesh is None:
            return np.asarray(self._search.knn(queries, 1)[0][:, 0])
        return np.asarray(np.linalg.norm(queries - mesh.closest_points(queries).points, axis=1))

    def window(self, queries: FloatArray) -> FloatArray:
        """Factor of the features, shape (q,): 1 near the space, falling smoothly to 0 at twice that distance."""
        distances, nodes = self._search.knn(queries, 1)
        distances, reaches = distances[:, 0], self._reaches[nodes[:, 0]]
        mesh = self.graph.mesh
        away = np.flatnonzero(distances > reaches)
        if mesh is not None and len(away):  # far from all vertices may still be inside a large face
            distances[away] = np.linalg.norm(queries[away] - mesh.closest_points(queries[away]).points, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = np.where(distances <= reaches, 0.0, np.clip(distances / reaches - 1.0, 0.0, 1.0))
        return np.asarray((1 - beyond) ** 2 * (1 + 2 * beyond))


def warn_of_far(window: FloatArray) -> None:
    """Say how many queries are off the space, once."""
    fading, gone = int(np.count_nonzero(window < 1)), int(np.count_nonzero(window == 0))
    if fading:
        warn_user(FarQueryWarning(fading, gone, len(window)))


HEAT_DIM = 5  # heat graphs are off by tens of per cent above
# Clouds of real data in 4 and 5 dimensions fill them too thinly: their heat graphs had two steps and were 30 to
# 170 % off. Where no kernel is given they get neighbours with a width for every point, as those in more dimensions.
FEW_DIMS = 3
# A heat graph of a thinned cloud has about so many steps, each reaching so many nodes: 4000 of 200,000 random
# points on the sphere are within .0015 of its kernel at t = .02 with 8 to 12 steps.
_THINNED_STEPS, _THINNED_FOOTPRINT = 12, 8.0
_WORTH_THINNING = 2.0  # the most even half of a cloud is much more even than all of it
_MANIFOLD_STEPS, _MANIFOLD_FOOTPRINT = 18, 4.5  # even nodes with known weights
_FEWEST_NODES, _MOST_NODES = 500, 20_000  # laid out on a named manifold
_NODES_OF_A_WIDTH = 12.0  # default heat time: about so many nodes in a patch of area pi t / 2
_FEATURES_BY_DEFAULT = 640  # default heat time of large clouds: at most about so many anchors are needed
_CARRIED = 0.8  # spacing of anchors over the width of a kernel that they carry; so many are chosen
_WIDEST_FUNCTION = 0.1  # the same for functions given as kernels
_WIDEST = 0.02  # default heat time over the squared extent of the space: wider kernels do not see its shape
STEPS_BY_DEFAULT = 20.0  # where no heat graph is built: the paper's number of steps
_MATERN_STEPS = 1 / 12  # time of the heat graph of a Matern kernel over its squared length scale
_FUNCTION_ROWS = 64  # points at which the width of a function is measured


@dataclass(frozen=True, eq=False)
class Source:
    """The nodes that a graph can be built on."""

    nodes: Any  # an array of points or a TriangleMesh
    dim: int
    options: GraphOptions
    manifold: AbstractManifold | None = None
    n_jobs: int = 1
    n_asked: int = 0  # nodes that a manifold was asked for; grids of some have a few more or less

    @property
    def mesh(self) -> TriangleMesh | None:
        """The mesh whose vertices are the nodes."""
        return self.nodes if isinstance(self.nodes, TriangleMesh) else None

    @property
    def metric(self) -> AbstractManifold | None:
        """What distances are measured along, where coordinates do not say it."""
        # Only there are distances between nearby points not those of their coordinates.
        own = self.manifold if isinstance(self.manifold, FlatTorus | HyperbolicSpace) else None
        return self.options.metric or own

    @cached_property
    def sampling(self) -> Sampling:
        """How dense and how even the nodes are."""
        if self.mesh is not None:
            return Sampling.of_mesh(self.mesh)
        return Sampling.of_cloud(NeighborSearch(self.nodes, self.metric, self.n_jobs), self.dim)


def source_of(space: Any, kernel: Any, options: GraphOptions, n_jobs: int) -> Source:
    """The nodes to build on: points, the vertices of a mesh, or points laid out on a manifold."""
    if isinstance(space, TriangleMesh):
        if options.dim not in (None, 2):
            reject("dim", "2 or None on a mesh", options.dim)
        if isinstance(options.n_nodes, int):
            reject("n_nodes", "'auto' or 'all' on a mesh, whose vertices are the nodes", options.n_nodes)
        return Source(space, 2, options, n_jobs=n_jobs)
    if isinstance(space, AbstractManifold):
        n = options.n_nodes if isinstance(options.n_nodes, int) else _nodes_for(space, kernel)
        return Source(space.grid(n), space.dim, options, space, n_jobs, n)
    points = check_points(space, "X", min_rows=2)  # the user's own, be it on a disk: graphs take copies
    if isinstance(options.n_nodes, int) and options.n_nodes < len(points):
        if options.metric is not None or not isinstance(options.weights, str):
            rule = "'auto' or 'all' with a metric or with weights; thin the points before"
            reject("n_nodes", rule, options.n_nodes)
        points = points[thin(points, options.n_nodes)]
    return Source(points, _dimension(points, options), options, n_jobs=n_jobs)


def _dimension(points: FloatArray, options: GraphOptions) -> int:
    """As given, that of the metric, or estimated."""
    if options.dim is not None:
        return check_integer(options.dim, "dim", 1, points.shape[1])
    if options.metric is not None:
        return options.metric.dim
    return estimate_dimension(points) if len(points) > 2 else 1


def on_manifold_clock(kernel: AbstractKernel) -> bool:
    """Whether a kernel or a part of it is stated in the manifold clock."""
    parts = kernel.get_params().values()
    own = isinstance(kernel, HeatKernel) or (isinstance(kernel, MaternKernel) and kernel.clock == "manifold")
    return own or any(isinstance(part, AbstractKernel) and on_manifold_clock(part) for part in parts)


def graph_time(kernel: Any, source: Source) -> float:
    """The time of the heat graph: that of the kernel, or a part of a Matern kernel's."""
    if not isinstance(kernel, AbstractKernel):
        return _function_time(kernel, source)
    if isinstance(kernel, HeatKernel):
        return kernel.t
    if isinstance(kernel, MaternKernel):
        return _MATERN_STEPS * kernel.lengthscale**2
    times = [graph_time(part, source) for part in kernel.get_params().values() if isinstance(part, AbstractKernel)]
    return min(times) if times else _default_time(source.sampling, source)


def default_kernel(sampling: Sampling, source: Source, notes: dict[str, str]) -> AbstractKernel:
    """The heat kernel that suits the nodes."""
    t = _default_time(sampling, source)
    notes["kernel"] = f"chosen: {np.sqrt(2 * t):.3g} wide, K(x, x) = 1 on average"
    return HeatKernel(t)


def _default_time(sampling: Sampling, source: Source) -> float:
    """A heat time that the nodes can resolve, that few features can carry, and that sees the shape of the space."""
    dim, volume = sampling.dim, sampling.volume
    resolved = 2 / np.pi * (_NODES_OF_A_WIDTH * volume / sampling.n) ** (2 / dim)
    carried = _spacing2(sampling)
    points = source.nodes if source.mesh is None else source.mesh.vertices
    extent2 = float((np.ptp(points, axis=0) ** 2).sum())
    t = float(min(max(resolved, carried), _WIDEST * extent2))
    return float(f"{t:.3g}")  # a number that can be read and given again


def carried_steps(graph: Graph, source: Source) -> float:
    """Steps of the kernel by default: the paper's, or in many dimensions as many as few features can carry."""
    if source.dim <= FEW_DIMS or graph.n_nodes <= 2 * _FEATURES_BY_DEFAULT:
        return STEPS_BY_DEFAULT
    return max(STEPS_BY_DEFAULT, _spacing2(source.sampling) / (_CARRIED**2 * graph.time(1.0, source.dim)))


def _spacing2(sampling: Sampling) -> float:
    """Squared spacing of as many anchors as there are by default."""
    return float((sampling.volume / _FEATURES_BY_DEFAULT) ** (2 / sampling.dim))


def _function_time(function: Any, source: Source) -> float:
    """A heat time about as wide as a function F(X, Y): exp(-r^2 / 4t) is a half at r^2 = 4 t log 2."""
    points = source.nodes if source.mesh is None else source.mesh.vertices
    usual = _default_time(source.sampling, source)
    rows = points[:: max(1, len(points) // _FUNCTION_ROWS)][:_FUNCTION_ROWS]
    others = points[:: max(1, len(points) // 2000)]
    values, peaks = (np.asarray(function(rows, place), dtype=np.float64) for place in (others, rows))
    if values.shape != (len(rows), len(others)) or not (np.isfinite(values).all() and np.isfinite(peaks).all()):
        return usual  # refused with a clear text later
    gaps = distances_between(rows, others, source.metric)
    beyond = np.where(values < 0.5 * np.diagonal(peaks)[:, None], gaps, np.inf).min(axis=1)
    extent2 = float((np.ptp(points, axis=0) ** 2).sum())
    found = float(np.median(beyond)) ** 2 / (4 * np.log(2))
    return float(np.clip(found, usual / 4, _WIDEST_FUNCTION * extent2))


def thinned(source: Source, t: float, notes: dict[str, str]) -> tuple[Source, IntArray | None]:
    """The source without nodes that the kernel does not need, and which were kept; None for all."""
    if source.mesh is not None or source.manifold is not None or source.options.n_nodes != "auto":
        return source, None
    if source.metric is not None or not isinstance(source.options.weights, str):
        return source, None
    sampling = source.sampling
    density = _THINNED_FOOTPRINT * (_THINNED_STEPS / (4 * np.pi * t)) ** (source.dim / 2)
    needed = max(float(_FEWEST_NODES), density * sampling.volume)  # infinite for a time next to nothing
    if not len(source.nodes) >= _WORTH_THINNING * needed:
        return source, None
    enough = int(needed)
    kept = thin(source.nodes, enough)
    notes["thinned"] = f"{enough} farthest of {len(source.nodes)} points: more are not needed for t = {t:.3g}"
    return Source(source.nodes[kept], source.dim, source.options, n_jobs=source.n_jobs), kept


def _nodes_for(manifold: AbstractManifold, kernel: Any) -> int:
    """How many nodes to lay out on a manifold."""
    if not isinstance(kernel, HeatKernel):
        return 4000
    density = _MANIFOLD_FOOTPRINT * (_MANIFOLD_STEPS / (4 * np.pi * kernel.t)) ** (manifold.dim / 2)
    return int(np.clip(density * manifold.volume, _FEWEST_NODES, _MOST_NODES))


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
    dim = _graph_dimension(built, space, graph)
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


def _graph_dimension(graph: Graph, space: Any, options: Any) -> int:
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
