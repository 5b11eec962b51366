"""From a space and a kernel to a problem: build the graph, resolve the kernel on it, and find the units.

:func:`make_problem` is the first step of every fit. It lays out or thins the nodes, builds the graph, and finds the
dimension, the volume and the width of the kernel, each of them once.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from manifoldrf._random import Streams, generator
from manifoldrf._runtime import stage_of, warn_user
from manifoldrf._validation import FloatArray, IntArray, check_integer, check_spread, reject
from manifoldrf.features.options import FitOptions, GraphOptions
from manifoldrf.fields.anchors import GOOD_SPACING, farthest_vertices
from manifoldrf.fields.data import Problem
from manifoldrf.geometry.builders import knn_graph, mesh_graph
from manifoldrf.geometry.clouds import CleanCloud, are_outliers, clean_cloud, estimate_dimension
from manifoldrf.geometry.graphs import Graph, GraphWarning
from manifoldrf.geometry.heat import cut_pairs, heat_graph
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.model_spaces import AbstractBall
from manifoldrf.geometry.neighbors import NeighborSearch, distances_between
from manifoldrf.geometry.sampling import Sampling, ThinnedMesh, thin
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.manifold_kernels import HeatKernel, MaternKernel
from manifoldrf.kernels.series import SeriesFit, SeriesKernel
from manifoldrf.metrics import relative_error
from manifoldrf.signatures.teachers import check_kernel

__all__ = ["FarQueryWarning"]

HEAT_DIM = 5  # above, heat graphs are off by tens of per cent
# In 4 and 5 dimensions clouds of real data are too sparse for heat graphs: these had two steps and were 30 to 170 %
# off. Without a given kernel such clouds get a knn graph with local bandwidths, as in higher dimensions.
FEW_DIMS = 3
# Number of steps of the heat graph of a thinned cloud, and of nodes that each step reaches: 4000 of 200,000 random
# points on the sphere are within .0015 of its kernel at t = .02 with 8 to 12 steps.
_THINNED_STEPS, _THINNED_FOOTPRINT = 12, 8.0
# Finer vertices of a thinned mesh per node. The bunny (35,000 vertices, default t) is .048 off with steps between
# the nodes, .019 with steps between four times as many, .016 with all vertices as nodes.
_FINER = 4
_WORTH_THINNING = 2.0  # the most even half of a cloud is much more even than all of it
_MANIFOLD_STEPS, _MANIFOLD_FOOTPRINT = 18, 4.5  # of even nodes with known weights
_FEWEST_NODES, _MOST_NODES = 500, 20_000  # laid out on a named manifold
_GRID_NODES = 4000  # the same for other kernels than the heat kernel
_NODES_OF_A_WIDTH = 12.0  # default heat time: about this many nodes in a patch of area pi t / 2
_FEATURES_BY_DEFAULT = 640  # default heat time of large clouds: at most about this many anchors are needed
_WIDEST_FUNCTION = 0.1  # heat time over the squared extent of the space, for functions given as kernels
_WIDEST = 0.02  # the same for the default kernel: wider kernels do not see the shape of the space
_DEFAULT_STEPS = 20.0  # the paper's number of steps, for graphs that are not heat graphs
_MATERN_STEPS = 1 / 12  # time of the heat graph of a Matern kernel over its squared length scale
_DIMENSION_SHOWS = 100  # points; fewer than 10^(dim/2) of them say little about a dimension (Eckmann and Ruelle)
_SOME = 1000  # points that are looked at first
_EXAMINED = 20_000  # points of a larger cloud that show whether it must be cleaned before it is thinned
_ON_A_LINE = 1e-10  # distance from a line over the usual distance; rounding gives 1e-16
_UNLIKE_UNITS = 100.0  # ratio of spreads of columns that probably have different units
_FUNCTION_ROWS = 64  # points at which the width of a function is measured
_HEIGHTS = 64  # nodes at which the height of a chosen kernel is measured
# Nodes with a smaller share of the median degree are ignored: values divided by their degree would be noise.
_ISOLATED = 1e-4
# Powers of a fitted series for each step of the graph, and the fewest and most. Tails of rough functions take long
# times: exp(-d / .4) at 4000 even nodes of the sphere is .25 off with two powers for each step, .04 with eight.
_FITTED_POWERS, _FITTED_DEGREES = 8, (24, 128)
_FITTED_ROWS, _FITTED_COLUMNS = 400, 64
# A fitted square has nonnegative features. It is kept up to this error, or up to this multiple of a free fit's.
_GOOD_SQUARE, _WORTH_A_SQUARE = 0.05, 2.0
# A function counts as symmetric if it differs from its symmetric part, which is half of the change if its arguments
# are exchanged, by rounding only, or by little (at most the last number) and by less than this share of the misfit
# of a series.
_SHARE_OF_SKEW, _SKEWS = 0.5, (1e-6, 0.01)


def make_problem(space: Any, kernel: Any, options: FitOptions) -> Problem:
    """Build the graph of a space and resolve the kernel on it.

    Parameters
    ----------
    space : array of shape (n, d), TriangleMesh, AbstractManifold or Graph
        As returned by :func:`~manifoldrf.features.options.check_space`.
    kernel : AbstractKernel, callable or None
    options : FitOptions
        Its ``progress`` is called for the stages "nodes" and "graph".
    """
    if isinstance(kernel, type):
        reject("kernel", f"a kernel, not its class: {kernel.__name__}(...)", kernel.__name__, TypeError)
    if kernel is not None and not callable(kernel):
        check_kernel(kernel)
    notes: dict[str, str] = {}
    graph, stated, dim = _build(space, kernel, options, notes)
    notes["dimension"] = str(dim)
    volume = _volume(graph, dim)
    measure = _measure(graph, volume)
    series_error = function = None
    if isinstance(stated, AbstractKernel):
        resolved = stated.resolve(graph, dim).on(graph)
        clock = "graph" if resolved == stated else "manifold"
    else:
        fit, skew = _fit_series(stated, graph, measure, options.streams)
        clock = "manifold"
        if skew > np.clip(_SHARE_OF_SKEW * fit.held_out_error, *_SKEWS):
            function, stated = stated, HeatKernel(graph.time(graph.n_steps or _DEFAULT_STEPS, dim))
            resolved = stated.resolve(graph, dim).on(graph)
        else:
            series_error = fit.held_out_error
            notes["series"] = f"fitted to the given function, relative error {series_error:.2g} on held-out pairs"
            stated = resolved = fit.kernel
    asymmetric = not resolved.is_positive
    width = _width(graph, resolved if asymmetric else resolved.root(), dim)
    if not width > 0:
        reject("kernel", "one whose walks take a step, on a graph with edges", f"{resolved}, {width:g} wide")
    unit = float(measure[measure > 0].mean())
    weights_known = notes.pop("weights", "given") == "given"
    return Problem(
        graph,
        resolved,
        measure / unit,
        dim,
        width,
        asymmetric,
        stated=stated,
        clock=clock,
        volume=volume,
        notes=tuple(notes.items()),
        unit=unit,
        weights_known=weights_known,
        series_error=series_error,
        ball=space if isinstance(space, AbstractBall) else None,
        function=function,
    )


@dataclass(frozen=True, eq=False)
class Nodes:
    """The nodes that a graph is built on.

    Attributes
    ----------
    places : NeighborSearch or TriangleMesh
        The points, in a search that all stages share, or the mesh whose vertices are the nodes.
    dim : int
    options : GraphOptions
    manifold : AbstractManifold, optional
        That the points are a grid of.
    n_asked : int
        Size asked of that grid; some grids have a few nodes more or less.
    cloud : CleanCloud, optional
        That the points are nodes of.
    thinned : ThinnedMesh, optional
        That the mesh is a part of.
    """

    places: NeighborSearch | TriangleMesh
    dim: int
    options: GraphOptions
    manifold: AbstractManifold | None = None
    n_asked: int = 0
    cloud: CleanCloud | None = None
    thinned: ThinnedMesh | None = None

    @property
    def for_builder(self) -> Any:
        """What graphs are built on: the mesh, the search, or the search as part of the cleaned cloud."""
        if self.thinned is not None:
            return self.thinned
        if self.cloud is None or isinstance(self.places, TriangleMesh):
            return self.places
        return replace(self.cloud, search=self.places)

    @property
    def mesh(self) -> TriangleMesh | None:
        """The mesh whose vertices are the nodes."""
        return self.places if isinstance(self.places, TriangleMesh) else None

    @property
    def points(self) -> FloatArray:
        """Positions, shape (n, d)."""
        return self.places.vertices if isinstance(self.places, TriangleMesh) else self.places.points

    @property
    def metric(self) -> AbstractManifold | None:
        """The manifold that distances are measured along; None for straight lines."""
        return self.options.metric if isinstance(self.places, TriangleMesh) else self.places.metric

    @cached_property
    def sampling(self) -> Sampling:
        """How dense and how even the nodes are."""
        if isinstance(self.places, TriangleMesh):
            return Sampling.of_mesh(self.places, "X")
        return Sampling.of_cloud(self.places, self.dim, "X")

    @cached_property
    def extent2(self) -> float:
        """Squared diagonal of the bounding box."""
        return float((np.ptp(self.points, axis=0) ** 2).sum())

    @cached_property
    def default_time(self) -> float:
        """A heat time that the nodes resolve, that few features can represent, and that sees the space's shape."""
        sampling = self.sampling
        resolved = 2 / np.pi * (_NODES_OF_A_WIDTH * sampling.volume / sampling.n) ** (2 / sampling.dim)
        t = float(min(max(resolved, _anchor_spacing2(sampling)), _WIDEST * self.extent2))
        return float(f"{t:.3g}")  # a number that is easy to read and to give again


def find_nodes(space: Any, kernel: Any, options: GraphOptions, n_jobs: int, notes: dict[str, str]) -> Nodes:
    """The nodes to build on: points, the vertices of a mesh, or a grid of a manifold."""
    if isinstance(space, TriangleMesh | AbstractManifold) and options.noise not in ("auto", 0):
        reject("noise", "'auto' or 0 for meshes and manifolds", options.noise)
    if isinstance(space, TriangleMesh):
        if options.dim not in (None, 2):
            reject("dim", "2 or None on a mesh", options.dim)
        check_spread(space.vertices, "X")
        nodes = Nodes(space, 2, options)
        if not isinstance(options.n_nodes, int) or options.n_nodes >= space.n_vertices:
            return nodes
        if not isinstance(options.weights, str):
            reject("n_nodes", "'auto' or 'all' with weights", options.n_nodes)
        return _thinned_mesh(nodes, space, options.n_nodes)
    if isinstance(space, AbstractManifold):
        n = options.n_nodes if isinstance(options.n_nodes, int) else _grid_size(space, kernel)
        own = None if space._isometric else space
        search = _search(space.grid(n), options.metric or own, n_jobs)
        return Nodes(search, space.dim, options, space, n)
    nodes = _find_cloud_nodes(space, kernel, options, n_jobs)
    if nodes.cloud is not None:
        _note_cloud(nodes.cloud, len(nodes.points), notes)
    return nodes


def _note_cloud(cloud: CleanCloud, n_nodes: int, notes: dict[str, str]) -> None:
    """Say what was found in a cloud, and how many of its points are nodes."""
    if str(cloud):
        notes["cloud"] = str(cloud)
    if n_nodes < len(cloud.kept):
        notes["thinned"] = f"{n_nodes} farthest of {len(cloud.kept)} points, as asked for"


def _find_cloud_nodes(points: FloatArray, kernel: Any, options: GraphOptions, n_jobs: int) -> Nodes:
    """The points of a cloud, without noise and outliers; thinned if a number of nodes is given."""
    fixed = options.metric is not None or not isinstance(options.weights, str)
    if fixed and options.noise not in ("auto", 0):
        reject("noise", "'auto' or 0 with a metric or with weights", options.noise)
    cleans = options.noise != 0 and not (fixed or (options.noise == "auto" and _counts_steps(kernel)))
    thins = isinstance(options.n_nodes, int) and options.n_nodes < len(points)
    _check_positions(points)
    if thins and fixed:
        rule = "'auto' or 'all' with a metric or with weights; thin the points before"
        reject("n_nodes", rule, options.n_nodes)
    if thins and not cleans:
        check_spread(points, "X")
        points = points[thin(points, int(options.n_nodes))]
    dim = None if options.dim is None else check_integer(options.dim, "dim", 1, points.shape[1])
    if not cleans or len(points) < 3:
        search = _search(points, options.metric, n_jobs)
        return Nodes(search, _cloud_dimension(search) if dim is None else dim, options)
    time = stated_time(kernel)
    return _clean_nodes(points, None if time is None else np.sqrt(2 * time), dim, options, n_jobs)


def _clean_nodes(
    points: FloatArray, scale: float | None, dim: int | None, options: GraphOptions, n_jobs: int
) -> Nodes:
    """The points of a cloud without noise and outliers, at most as many as asked for."""
    n = len(points)
    most = options.n_nodes if isinstance(options.n_nodes, int) else n
    if most < n and n > _EXAMINED:
        # A copy of all points may fill the memory. If a part of them is clean, they are thinned where they are.
        some = np.sort(generator(0, "nodes.examined").permutation(n)[:_EXAMINED])
        part = _search(points[some], None, n_jobs)
        cloud = clean_cloud(part, scale, noise=options.noise, dim=dim)
        if cloud.surface is None and len(cloud.kept) == len(some):
            _warn_of_units(part)
            nodes = thin(points, most)
            # The farthest points are nodes, and few outliers among many points may not be in the part.
            off = are_outliers(cloud, points[nodes], scale)
            search = _search(points[nodes[~off]], None, n_jobs)
            cloud = replace(cloud, search=search, kept=np.delete(np.arange(n), nodes[off]), n_given=n)
            return Nodes(search, cloud.dim, options, cloud=cloud)
    search = _search(points, None, n_jobs)
    cloud = clean_cloud(search, scale, noise=options.noise, dim=dim)
    _warn_of_units(search)
    if dim is None and n < min(_DIMENSION_SHOWS, 10 ** (cloud.dim / 2)):
        warn_user(
            f"{n} points are too few to find a dimension; {cloud.dim} is a guess (remedy: more points, "
            "or GraphOptions(dim=...) if it is known).",
            GraphWarning,
        )
    search = cloud.search
    if most < len(search.points):
        search = _search(search.points[thin(search.points, most)], None, n_jobs)
    return Nodes(search, cloud.dim, options, cloud=cloud)


def _check_positions(points: FloatArray) -> None:
    """Refuse points at one or two positions, and warn of points on one straight line."""
    kind = ""
    for part in (points[:_SOME], points):  # few clouds need a look at all points, which may fill the memory
        kind = _shape_of(part)
        if not kind:
            return
    if kind == "line":
        warn_user("All points of X lie on one straight line: the features are those of a line.", GraphWarning)
    else:
        reject("X", "points at different positions", f"{kind} for {len(points)} points")


def _shape_of(points: FloatArray) -> str:
    """How many positions there are if they are one or two, "line" if all are on a line in space, else nothing."""
    steps = points - points[0]
    lengths = np.abs(steps).max(axis=1)
    far = int(np.argmax(lengths))
    if not lengths[far] > 0:
        return "one position"
    if len(points) > 2 and not ((lengths > 0) & (points != points[far]).any(axis=1)).any():
        return "two positions"
    steps /= lengths[far]
    line = steps[far].copy()
    steps -= np.outer(steps @ line / (line @ line), line)
    # Median, not maximum: seen from a far outlier, all points are on one line.
    is_line = np.abs(steps).max() < _ON_A_LINE * np.median(lengths) / lengths[far]
    return "line" if points.shape[1] > 1 and len(points) > 2 and is_line else ""


def _warn_of_units(search: NeighborSearch) -> None:
    """Warn if some columns are so much larger than others that distances do not see the others."""
    # Of the middle nine tenths: one far point would say more about a column than all others.
    spreads = np.diff(np.quantile(search.points, [0.05, 0.95], axis=0), axis=0)[0]
    varying = np.flatnonzero(spreads > 0)
    if len(varying) < 2:
        return
    small, large = varying[np.argmin(spreads[varying])], varying[np.argmax(spreads[varying])]
    with np.errstate(over="ignore"):
        ratio = spreads[large] / spreads[small]
    if ratio > _UNLIKE_UNITS:
        warn_user(
            f"Column {large} of X (counted from 0) varies {float(f'{ratio:.2g}'):g} times as much as column "
            f"{small}, so distances hardly depend on the latter (remedy: if they have different units, scale the "
            "columns, for example with scikit-learn's StandardScaler).",
            GraphWarning,
        )


def _search(points: FloatArray, metric: AbstractManifold | None, n_jobs: int) -> NeighborSearch:
    """A search over a copy of the points, on the metric if there is one: the user may change the points later."""
    cloud = np.array(points, order="C")
    check_spread(cloud, "X")
    return NeighborSearch(cloud if metric is None else metric.check(cloud, "X"), metric, n_jobs)


def _cloud_dimension(search: NeighborSearch) -> int:
    """The dimension of the metric, or an estimate."""
    if search.metric is not None:
        return search.metric.dim
    return estimate_dimension(search) if len(search.points) > 2 else 1


def _grid_size(manifold: AbstractManifold, kernel: Any) -> int:
    """Number of nodes to lay out on a manifold."""
    if not isinstance(kernel, HeatKernel):
        return _GRID_NODES
    density = _MANIFOLD_FOOTPRINT * (_MANIFOLD_STEPS / (4 * np.pi * kernel.t)) ** (manifold.dim / 2)
    return int(np.clip(density * manifold.volume, _FEWEST_NODES, _MOST_NODES))


def _build(space: Any, kernel: Any, options: FitOptions, notes: dict[str, str]) -> tuple[Graph, Any, int]:
    """The graph, the kernel as stated or chosen, and the intrinsic dimension."""
    given = options.graph
    if isinstance(space, Graph) or isinstance(given, Graph):
        _check_given(space, given)
        graph = space if isinstance(space, Graph) else given
        notes["graph"] = f"as given: {graph}"
    elif given is None or isinstance(given, GraphOptions):
        return _build_by_options(space, kernel, given or GraphOptions(), options, notes)
    else:
        graph = _build_by_function(space, given, options)
        notes["graph"] = f"as built: {graph}"
    _ = graph.positions  # raises if there are none
    dim = _graph_dimension(graph, space, given)
    return graph, _default_on(graph, dim, notes, options.scale) if kernel is None else kernel, dim


def _build_by_function(space: Any, function: Any, options: FitOptions) -> Graph:
    """The graph that a function of the user builds."""
    if not callable(function):
        reject("graph", "None, GraphOptions, a Graph or a function of the points", repr(function), TypeError)
    if isinstance(space, np.ndarray):
        check_spread(space, "X")
    with stage_of(options.progress, "graph"):
        graph = function(space.grid(_GRID_NODES) if isinstance(space, AbstractManifold) else space)
    if not isinstance(graph, Graph):
        reject("graph", "a function that returns a Graph", type(graph).__name__, TypeError)
    return graph


def _check_given(space: Any, graph: Any) -> None:
    """A given graph replaces the space, or its nodes are exactly the points."""
    if isinstance(space, Graph):
        only_dim = isinstance(graph, GraphOptions) and graph.only_dim
        if graph is not None and not only_dim:
            reject("graph", "None or GraphOptions(dim=...) where the space is a graph itself", repr(graph))
    elif isinstance(space, AbstractManifold | TriangleMesh) or not _has_nodes_at(graph, space):
        reject("graph", "a graph on the same points; or fit the graph itself", repr(graph))


def _has_nodes_at(graph: Graph, points: FloatArray) -> bool:
    """Whether the nodes are exactly the points, or where these are on a noisy space; outliers are not nodes."""
    if graph.projection is None or graph.projection.origin.shape != points.shape[1:]:
        return np.array_equal(points, graph.positions)
    return bool((NeighborSearch(graph.placed(points)).knn(graph.positions, 1)[0] == 0).all())


def _graph_dimension(graph: Graph, space: Any, options: Any) -> int:
    """Intrinsic dimension of a given graph."""
    given = options.dim if isinstance(options, GraphOptions) else None
    if given is not None:
        return check_integer(given, "dim", 1, graph.positions.shape[1])
    if isinstance(space, AbstractManifold):
        return space.dim
    if graph.mesh is not None:
        return 2
    return graph._dimension if graph.metric is not None or len(graph.positions) > 2 else 1


def _default_on(
    graph: Graph, dim: int, notes: dict[str, str], scale: float, steps: float = _DEFAULT_STEPS
) -> AbstractKernel:
    """The default kernel on a graph that was built without one."""
    steps = (graph.n_steps or steps) * scale**2
    t = graph.time(float(steps), dim)
    notes["kernel"] = f"chosen: the time of {steps:.3g} steps"
    return HeatKernel(float(f"{t:.3g}") if graph.n_steps is None else t)


def _build_by_options(
    space: Any, kernel: Any, graph_options: GraphOptions, options: FitOptions, notes: dict[str, str]
) -> tuple[Graph, Any, int]:
    """The same, for a graph that the library builds."""
    with stage_of(options.progress, "nodes"):
        nodes = find_nodes(space, kernel, graph_options, options.n_jobs, notes)
        heat = _wants_heat(nodes, kernel)
        if heat:
            if nodes.mesh is None and len(nodes.points) < nodes.dim + 2:
                rule = f"at least {nodes.dim + 2} rows to fill a space of dimension {nodes.dim}"
                reject("X", rule, f"shape {nodes.points.shape}")
            if nodes.manifold is None:
                _ = nodes.sampling  # raises here if volumes are out of range, and names X
            if kernel is None:
                kernel = HeatKernel(float(f"{nodes.default_time * options.scale**2:.3g}"))
                notes["kernel"] = f"chosen: {np.sqrt(2 * kernel.t):.3g} wide"
            t = graph_time(kernel, nodes)
            nodes, thinned = _thinned(nodes, t, options.n_jobs, notes)
    if not heat:
        _refuse_heat_options(graph_options)
        with stage_of(options.progress, "graph"):
            graph = _plain_graph(nodes, kernel, options.n_jobs, notes)
        if kernel is None:
            kernel = _default_on(graph, nodes.dim, notes, options.scale, default_steps(graph, nodes))
        return graph, kernel, nodes.dim
    weights = "auto" if thinned else graph_options.weights
    if nodes.manifold is not None and isinstance(weights, str):
        weights = nodes.manifold.grid_weights(nodes.n_asked)
    notes["weights"] = "estimated" if isinstance(weights, str) else "given"
    dim = None if nodes.mesh is not None else nodes.dim
    with stage_of(options.progress, "graph"):
        graph = heat_graph(
            nodes.for_builder,
            t,
            n_steps=graph_options.n_steps,
            weights=weights,
            dim=dim,
            metric=nodes.metric,
            n_jobs=options.n_jobs,
        )
    notes["graph"] = f"heat graph, {graph.n_nodes} nodes, {graph.n_steps} steps of {t / (graph.n_steps or 1):.3g}"
    notes["graph"] += cut_pairs(graph)
    return graph, kernel, nodes.dim


def _wants_heat(nodes: Nodes, kernel: Any) -> bool:
    """Whether to build a heat graph."""
    options = nodes.options
    if options.kind != "auto":
        return options.kind == "heat"
    if options.wants_neighbors or _counts_steps(kernel):
        return False
    return nodes.dim <= _most_dims(nodes, kernel) and len(nodes.points) > 4


def _counts_steps(kernel: Any) -> bool:
    """Whether a kernel is stated in steps of the graph."""
    return isinstance(kernel, AbstractKernel) and not _on_manifold_clock(kernel)


def _on_manifold_clock(kernel: AbstractKernel) -> bool:
    """Whether a kernel or a part of it is stated in the manifold clock."""
    parts = kernel.get_params().values()
    own = isinstance(kernel, HeatKernel) or (isinstance(kernel, MaternKernel) and kernel.clock == "manifold")
    return own or any(isinstance(part, AbstractKernel) and _on_manifold_clock(part) for part in parts)


def _most_dims(nodes: Nodes, kernel: Any) -> int:
    """Largest dimension in which a heat graph is built by default."""
    return HEAT_DIM if kernel is not None or nodes.manifold is not None else FEW_DIMS


def _refuse_heat_options(options: GraphOptions) -> None:
    """Options of heat graphs have no effect on other graphs."""
    if options.n_steps != "auto":
        reject("n_steps", "left out where no heat graph is built", options.n_steps)
    if not isinstance(options.weights, str):
        reject("weights", "left out where no heat graph is built", "an array")


def graph_time(kernel: Any, nodes: Nodes) -> float:
    """The time of the heat graph: that of the kernel, or a part of a Matern kernel's."""
    if not isinstance(kernel, AbstractKernel):
        return _function_time(kernel, nodes)
    time = stated_time(kernel)
    return nodes.default_time if time is None else time


def stated_time(kernel: Any) -> float | None:
    """The shortest heat time that a kernel or its parts state; None if they state none."""
    if isinstance(kernel, HeatKernel):
        return kernel.t
    if isinstance(kernel, MaternKernel) and kernel.clock == "manifold":
        return _MATERN_STEPS * kernel.lengthscale**2
    parts = kernel.get_params().values() if isinstance(kernel, AbstractKernel) else ()
    times = [time for time in map(stated_time, parts) if time is not None]
    return min(times, default=None)


def _function_time(function: Any, nodes: Nodes) -> float:
    """A heat time about as wide as a function F(X, Y): exp(-r^2 / 4t) is one half at r^2 = 4 t log 2."""
    points, usual = nodes.points, nodes.default_time
    rows = points[:: max(1, len(points) // _FUNCTION_ROWS)][:_FUNCTION_ROWS]
    others = points[:: max(1, len(points) // 2000)]
    values, own = (np.abs(function_values(function, rows, place)) for place in (others, rows))
    # A function without symmetry may be largest away from its first point.
    moved = values.max(axis=1) > np.diagonal(own)
    centers = np.where(moved[:, None], others[values.argmax(axis=1)], rows)
    peaks = np.maximum(values.max(axis=1), np.diagonal(own))
    gaps = distances_between(centers, others, nodes.metric)
    beyond = np.where(values < 0.5 * peaks[:, None], gaps, np.inf).min(axis=1)
    found = float(np.median(beyond)) ** 2 / (4 * np.log(2))
    return float(np.clip(found, usual / 4, _WIDEST_FUNCTION * nodes.extent2))


def _thinned(nodes: Nodes, t: float, n_jobs: int, notes: dict[str, str]) -> tuple[Nodes, bool]:
    """The nodes without those that the kernel does not need, and whether there were any."""
    options = nodes.options
    if nodes.thinned is not None:
        return nodes, True
    if nodes.manifold is not None or options.n_nodes != "auto":
        return nodes, False
    if nodes.metric is not None or not isinstance(options.weights, str):
        return nodes, False
    density = _THINNED_FOOTPRINT * (_THINNED_STEPS / (4 * np.pi * t)) ** (nodes.dim / 2)
    needed = max(float(_FEWEST_NODES), density * nodes.sampling.volume)  # infinite for a very short time
    n = len(nodes.points)
    if not n >= _WORTH_THINNING * needed:
        return nodes, False
    what = "points" if nodes.mesh is None else "vertices"
    notes["thinned"] = f"{int(needed)} farthest of {n} {what}: more are not needed for t = {t:.3g}"
    if nodes.mesh is not None:
        return _thinned_mesh(nodes, nodes.mesh, int(needed)), True
    kept = NeighborSearch(nodes.points[thin(nodes.points, int(needed))], None, n_jobs)
    return Nodes(kept, nodes.dim, options, cloud=nodes.cloud), True


def _thinned_mesh(nodes: Nodes, mesh: TriangleMesh, n: int) -> Nodes:
    """The vertices of a mesh that are farthest from each other along the surface, and finer ones between them."""
    order = farthest_vertices(mesh, _FINER * n)
    thinned = ThinnedMesh.of(mesh, order, min(n, len(order)))
    return replace(nodes, places=thinned.mesh, thinned=thinned)


def _plain_graph(nodes: Nodes, kernel: Any, n_jobs: int, notes: dict[str, str]) -> Graph:
    """The edges of a mesh, or nearest neighbours."""
    options, mesh = nodes.options, nodes.mesh
    if mesh is not None and options.kind != "knn":
        if options.metric is not None:
            reject("metric", "None on a mesh, where steps follow the edges", repr(options.metric))
        if not mesh.edge_lengths().any():
            reject("X", "a mesh with an edge of positive length", f"{mesh} without one")
        notes["graph"] = f"edges of the mesh, {mesh.n_vertices} nodes"
        return mesh_graph(mesh)
    if options.kind == "mesh":
        reject("kind", "'mesh' only where the space is a TriangleMesh", repr(options.kind))
    correction = options.density_correction
    if correction is None:
        correction = 0.0 if _counts_steps(kernel) else 1.0
    # In many dimensions the density varies over orders of magnitude, and one width isolates a quarter of the nodes.
    bandwidth = options.bandwidth or ("local" if nodes.dim > FEW_DIMS else "median")
    graph = knn_graph(
        nodes.for_builder if nodes.mesh is None else nodes.mesh.vertices,
        n_neighbors=options.n_neighbors,
        bandwidth=bandwidth,
        density_correction=correction,
        metric=nodes.metric,
        n_jobs=n_jobs,
    )
    neighbors = "" if options.n_neighbors is None else f", {options.n_neighbors} each"
    neighbors += "" if bandwidth == "median" else f", bandwidth {bandwidth}"
    notes["graph"] = f"nearest neighbours{neighbors}, {graph.n_nodes} nodes, density exponent {correction:g}"
    if options.kind == "auto" and not _counts_steps(kernel) and nodes.dim > _most_dims(nodes, kernel):
        notes["graph"] += f"; no heat graph: {nodes.dim} dimensions are too many"
    return graph


def default_steps(graph: Graph, nodes: Nodes) -> float:
    """Steps of the default kernel: the paper's, or in many dimensions as many as few features can represent."""
    if nodes.dim <= FEW_DIMS or graph.n_nodes <= 2 * _FEATURES_BY_DEFAULT:
        return _DEFAULT_STEPS
    return max(_DEFAULT_STEPS, _anchor_spacing2(nodes.sampling) / (GOOD_SPACING**2 * graph.time(1.0, nodes.dim)))


def _anchor_spacing2(sampling: Sampling) -> float:
    """Squared spacing of the default number of anchors."""
    return float((sampling.volume / _FEATURES_BY_DEFAULT) ** (2 / sampling.dim))


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
    return Sampling.of_cloud(graph._search, dim, "X").volume


def _measure(graph: Graph, volume: float) -> FloatArray:
    """Volume of each node: its weight, or its share of the degrees; zero for nearly isolated nodes."""
    if graph.weights is not None:
        return graph.weights
    degrees = graph.degrees
    if not degrees.any():
        reject("X", "a space whose graph has edges", f"{graph.n_nodes} isolated nodes")
    kept = np.where(degrees >= _ISOLATED * np.median(degrees[degrees > 0]), degrees, 0.0)
    share = volume / float(kept.sum())
    if not np.isfinite(share):  # affinities are tiny
        return kept / float(kept.sum()) * volume
    return kept * share


def unit_height(problem: Problem) -> Problem:
    """A problem whose kernel is scaled such that K(x, x) is one on average, whatever the unit of the points."""
    usable = np.flatnonzero(problem.measure > 0)
    nodes = usable[:: max(1, len(usable) // _HEIGHTS)][:_HEIGHTS]
    diagonal = np.diagonal(problem.resolved.matrix(problem.graph, nodes, nodes)) / problem.measure[nodes]
    factor = float(f"{problem.unit / diagonal.mean():.3g}")
    return replace(problem, stated=factor * problem.kernel, resolved=factor * problem.resolved)


def _width(graph: Graph, series: AbstractKernel, dim: int) -> float:
    """Standard deviation of a signature along one axis: sqrt(2 t) for the mean time t of its walks."""
    values = series.spectral(np.array([1.0 - 1e-6, 1.0]))
    low, high = np.ldexp(values, -np.frexp(values)[1].max())  # coefficients may be as small as doubles get
    mean_length = abs(float((high - low) / (1e-6 * high))) if high else 1.0
    return float(np.sqrt(2 * mean_length * graph.time(1.0, dim)))


def _fit_series(function: Any, graph: Graph, measure: FloatArray, streams: Streams) -> tuple[SeriesFit, float]:
    """Coefficients of the series closest to a function F(X, Y), and the error of its symmetric part."""
    rng = streams.generator("features.series")
    n = graph.n_nodes
    rows: IntArray = rng.choice(n, min(n, _FITTED_ROWS), replace=False)
    # Columns are rows, too: random points have pairs with themselves, where rough functions are hardest to follow.
    columns: IntArray = rng.permutation(rows[:_FITTED_COLUMNS])
    values = function_values(function, graph.positions[rows], graph.positions[columns])
    exchanged = function_values(function, graph.positions[columns], graph.positions[rows]).T
    if not (values.any() and exchanged.any()):
        pairs = f"0 for all of {values.size} pairs of points"
        reject("kernel", "a function that is not 0 everywhere", pairs)
    skew = relative_error(exchanged, values) / 2
    roots = np.sqrt(measure)
    targets = values * roots[rows][:, None] * roots[columns]
    samples = np.repeat(rows, len(columns)), np.tile(columns, len(rows)), targets.ravel()
    degree = int(np.clip(_FITTED_POWERS * (graph.n_steps or 0), *_FITTED_DEGREES))
    # A spike at the nodes would follow a rough function there, and only there.
    square = SeriesKernel.fit(graph, *samples, degree=degree, square=True, spike=False)
    if square.held_out_error <= _GOOD_SQUARE:
        return square, skew
    free = SeriesKernel.fit(graph, *samples, degree=degree, spike=False)
    return (square if square.held_out_error <= _WORTH_A_SQUARE * free.held_out_error else free), skew


def function_values(function: Any, X: FloatArray, Y: FloatArray) -> FloatArray:
    """F(X, Y) of a function of the user, checked."""
    rule = "a function F(X, Y) of two arrays of points, of shapes (n, d) and (m, d), with a result of shape (n, m)"
    try:
        values = np.asarray(function(X, Y), dtype=np.float64)
    except (TypeError, ValueError) as error:  # often a function of two points, or of one argument
        kind = TypeError if isinstance(error, TypeError) else ValueError
        reject("kernel", rule, f"{type(error).__name__}: {str(error).strip()}", kind)
    if values.shape != (len(X), len(Y)):
        reject("kernel", rule, f"a result of shape {values.shape} for {len(X)} and {len(Y)} points")
    if not np.isfinite(values).all():
        reject("kernel", "a function with finite values", "NaN or inf")
    return values


class FarQueryWarning(UserWarning):
    """Some transformed points are not on the space: their features fade to zero.

    Parameters
    ----------
    fading : int
        Number of points that are away from the space.
    gone : int
        Number of those whose features are zero.
    total : int
        Number of all transformed points.

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
        """The numbers of points, as a sentence."""
        text = f"{self.fading} of {self.total} points are away from the space, so their features fade"
        return f"{text}; those of {self.gone} are zero." if self.gone else f"{text}."

    def __str__(self) -> str:
        return f"{self.count} `distance_to_space` says how far they are."


def warn_of_far(window: FloatArray) -> None:
    """Warn once about all queries that are away from the space."""
    fading, gone = int(np.count_nonzero(window < 1)), int(np.count_nonzero(window == 0))
    if fading:
        warn_user(FarQueryWarning(fading, gone, len(window)))
