"""From a space and a kernel to a graph: the only place where features meet the geometry of a space."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from manifoldrf._runtime import warn_user
from manifoldrf._validation import FloatArray, check_integer, check_spread, reject
from manifoldrf.features.options import HeatGraph, KnnGraph, MeshGraph
from manifoldrf.geometry.builders import knn_graph, mesh_graph
from manifoldrf.geometry.clouds import CleanCloud, clean_cloud, estimate_dimension
from manifoldrf.geometry.graphs import Graph, GraphWarning
from manifoldrf.geometry.heat import heat_graph
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.neighbors import NeighborSearch, distances_between
from manifoldrf.geometry.paths import farthest_vertices
from manifoldrf.geometry.sampling import Sampling, ThinnedMesh, thin
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.manifold_kernels import HeatKernel, MaternKernel

# Largest dimension of clouds that get a heat graph: with a given kernel, and without one, where clouds of real data
# are too sparse (in 4 and 5 dimensions such graphs had two steps and were 30 to 170 % off).
_MOST_DIMS, _MOST_DIMS_BY_DEFAULT = 5, 3
_DEFAULT_STEPS = 20.0  # the paper's number of steps, for graphs that are not heat graphs
_FEATURES_BY_DEFAULT = 640  # the default kernel is so wide that about this many anchors are enough


class BuiltGraph(NamedTuple):
    """A graph, the kernel as stated or chosen, the intrinsic dimension, and what the summary says about them."""

    graph: Graph
    kernel: Any
    dim: int
    notes: tuple[tuple[str, str], ...]


def build_graph(space: Any, kernel: Any, options: Any, n_jobs: int) -> BuiltGraph:  # noqa: C901
    """Build the graph of a space for a kernel.

    Parameters
    ----------
    space : array of shape (n, d), TriangleMesh, AbstractManifold or Graph
    kernel : AbstractKernel, callable or None
        None: the heat kernel at a time that the space suggests.
    options : HeatGraph, KnnGraph, MeshGraph, Graph, callable or None
        None: a heat graph for kernels in the manifold clock in few dimensions, else the edges of a mesh or nearest
        neighbours.
    n_jobs : int
    """
    if isinstance(space, Graph) or not isinstance(options, HeatGraph | KnnGraph | MeshGraph | None):
        return _given_graph(space, kernel, options)
    in_steps = isinstance(kernel, AbstractKernel) and not _on_manifold_clock(kernel)
    layout = _lay_out(space, kernel, options, n_jobs, clean=not (in_steps or isinstance(options, KnnGraph)))
    named = isinstance(space, AbstractManifold)
    most = _MOST_DIMS if kernel is not None or named else _MOST_DIMS_BY_DEFAULT
    few = layout.dim <= most and len(layout.points) > 4
    if isinstance(options, HeatGraph) or (options is None and not in_steps and few):
        return _heat_graph(layout, kernel, options or HeatGraph(), n_jobs)
    if not isinstance(options, KnnGraph) and isinstance(space, TriangleMesh):
        if not space.edge_lengths().any():
            reject("X", "a mesh with an edge of positive length", f"{space} without one")
        graph, text = mesh_graph(space), f"edges of the mesh, {space.n_vertices} nodes"
    elif isinstance(options, MeshGraph):
        reject("graph", "MeshGraph() only where the space is a TriangleMesh", repr(options))
    else:
        graph, text = _knn_graph(layout, options, n_jobs, in_steps=in_steps)
        if options is None and not in_steps and layout.dim > _MOST_DIMS:
            warn_user(
                f"The points have about {layout.dim} dimensions: no low-dimensional structure was found. Features "
                "are those of the nearest neighbours; compare them with a Gaussian kernel of the coordinates.",
                GraphWarning,
            )
    notes = [*layout.notes, ("graph", text)]
    if kernel is None:
        steps = _DEFAULT_STEPS
        if layout.dim > _MOST_DIMS_BY_DEFAULT and graph.n_nodes > 2 * _FEATURES_BY_DEFAULT:
            # .8 widths between anchors: see `anchors_needed`
            steps = max(steps, layout.anchor_spacing2 / (0.8**2 * graph.time(1.0, layout.dim)))
        kernel = HeatKernel(float(f"{graph.time(steps, layout.dim):.3g}"))
        notes.append(("kernel", f"chosen: the time of {steps:.3g} steps"))
    return BuiltGraph(graph, kernel, layout.dim, tuple(notes))


def _given_graph(space: Any, kernel: Any, given: Any) -> BuiltGraph:  # noqa: C901
    """A graph that is the space, that has its points as nodes, or that a function makes from them."""
    if isinstance(space, Graph):
        if given is not None and not (isinstance(given, HeatGraph) and given.only_dim):
            reject("graph", "None or HeatGraph(dim=...) where the space is a graph itself", repr(given))
        graph = space
    elif isinstance(given, Graph):
        graph = given
        if not isinstance(space, np.ndarray) or not _has_nodes_at(graph, space):
            reject("graph", "a graph on the same points; or fit the graph itself", repr(graph))
    else:
        if isinstance(space, np.ndarray):
            check_spread(space, "X")
        graph = given(space.grid(4000) if isinstance(space, AbstractManifold) else space)
        if not isinstance(graph, Graph):
            reject("graph", "a function that returns a Graph", type(graph).__name__, TypeError)
    n, d = graph.positions.shape  # raises if there are no points
    if isinstance(given, HeatGraph) and given.dim is not None:
        dim = check_integer(given.dim, "dim", 1, d)
    elif isinstance(space, AbstractManifold) or graph.mesh is not None:
        dim = 2 if graph.mesh is not None else space.dim
    else:
        dim = graph._dimension if graph.metric is not None or n > 2 else 1
    notes = [("graph", f"as given: {graph}")]
    if kernel is None:
        steps = graph.n_steps or _DEFAULT_STEPS
        t = graph.time(steps, dim)
        kernel = HeatKernel(float(f"{t:.3g}") if graph.n_steps is None else t)
        notes.append(("kernel", f"chosen: the time of {steps:.3g} steps"))
    return BuiltGraph(graph, kernel, dim, tuple(notes))


def _has_nodes_at(graph: Graph, points: FloatArray) -> bool:
    """Whether the nodes are exactly the points, or where these are on a noisy space; outliers are not nodes."""
    if graph.projection is None or graph.projection.origin.shape != points.shape[1:]:
        return np.array_equal(points, graph.positions)
    return bool((NeighborSearch(graph.placed(points)).knn(graph.positions, 1)[0] == 0).all())


def _on_manifold_clock(kernel: AbstractKernel) -> bool:
    """Whether a kernel or a part of it is stated in the manifold clock."""
    parts = kernel.get_params().values()
    own = isinstance(kernel, HeatKernel) or (isinstance(kernel, MaternKernel) and kernel.clock == "manifold")
    return own or any(isinstance(part, AbstractKernel) and _on_manifold_clock(part) for part in parts)


def stated_time(kernel: Any) -> float | None:
    """The shortest heat time that a kernel or its parts state; None if they state none."""
    if isinstance(kernel, HeatKernel):
        return kernel.t
    if isinstance(kernel, MaternKernel) and kernel.clock == "manifold":
        return kernel.lengthscale**2 / 12  # steps that are far shorter than its length scale
    parts = kernel.get_params().values() if isinstance(kernel, AbstractKernel) else ()
    return min((time for time in map(stated_time, parts) if time is not None), default=None)


@dataclass(frozen=True, eq=False)
class _Layout:
    """The nodes of a space, before it is known how many of them a kernel needs."""

    builder: Any  # what graphs are built on: a mesh, a thinned mesh, a search or a cleaned cloud
    points: FloatArray
    dim: int
    metric: AbstractManifold | None = None
    volumes: Any = "auto"
    notes: tuple[tuple[str, str], ...] = ()
    may_thin: bool = False

    @cached_property
    def sampling(self) -> Sampling:
        """How dense and how even the nodes are."""
        if isinstance(self.builder, TriangleMesh):
            return Sampling.of_mesh(self.builder, "X")
        return Sampling.of_cloud(getattr(self.builder, "search", self.builder), self.dim, "X")

    @property
    def anchor_spacing2(self) -> float:
        """Squared spacing of the default number of anchors."""
        return float((self.sampling.volume / _FEATURES_BY_DEFAULT) ** (2 / self.dim))

    @property
    def extent2(self) -> float:
        """Squared diagonal of the bounding box."""
        return float((np.ptp(self.points, axis=0) ** 2).sum())

    @property
    def default_time(self) -> float:
        """A heat time that the nodes resolve, that few features can represent, and that sees the space's shape."""
        resolved = 2 / np.pi * (12 * self.sampling.volume / self.sampling.n) ** (2 / self.dim)  # 12 nodes wide
        t = min(max(resolved, self.anchor_spacing2), 0.02 * self.extent2)
        return float(f"{t:.3g}")  # a number that is easy to read and to give again

    def thinned(self, n: int, n_jobs: int) -> "_Layout":
        """The n farthest of the nodes; on a mesh with four times as many finer vertices between them."""
        if isinstance(self.builder, TriangleMesh):
            order = farthest_vertices(self.builder, 4 * n)
            thinned = ThinnedMesh.of(self.builder, order, min(n, len(order)))
            return replace(self, builder=thinned, points=thinned.mesh.vertices, may_thin=False)
        search = NeighborSearch(self.points[thin(self.points, n)], None, n_jobs)
        cloud = replace(self.builder, search=search) if isinstance(self.builder, CleanCloud) else search
        return replace(self, builder=cloud, points=search.points, may_thin=False)


def _lay_out(space: Any, kernel: Any, options: Any, n_jobs: int, *, clean: bool) -> _Layout:  # noqa: C901
    """The nodes that the space has: points without noise, the vertices of a mesh, or a grid of a manifold."""
    chosen = options if isinstance(options, HeatGraph) else HeatGraph(metric=getattr(options, "metric", None))
    n_asked, given = chosen.n_nodes, "auto" if chosen.volumes is None else chosen.volumes
    fixed = chosen.metric is not None or chosen.volumes is not None
    if isinstance(space, TriangleMesh | AbstractManifold) and chosen.noise_std not in ("auto", 0):
        reject("noise_std", "'auto' or 0 for meshes and manifolds", chosen.noise_std)
    if isinstance(space, AbstractManifold):
        n = n_asked if isinstance(n_asked, int) else _grid_size(space, kernel)
        metric = chosen.metric or (None if space._isometric else space)
        search = NeighborSearch(np.array(space.grid(n), order="C"), metric, n_jobs)
        volumes = space.grid_weights(n) if chosen.volumes is None else given
        return _Layout(search, search.points, space.dim, metric, volumes)
    points = space.vertices if isinstance(space, TriangleMesh) else space
    thins = isinstance(n_asked, int) and n_asked < len(points)
    if thins and fixed:
        reject("n_nodes", "'auto' or 'all' with a metric or with volumes; thin the points before", n_asked)
    if isinstance(space, TriangleMesh):
        if chosen.dim not in (None, 2):
            reject("dim", "2 or None on a mesh", chosen.dim)
        if chosen.metric is not None:
            reject("metric", "None on a mesh, where steps follow the surface", repr(chosen.metric))
        check_spread(points, "X")
        layout = _Layout(space, points, 2, None, given, (), n_asked == "auto" and not fixed)
        if isinstance(options, KnnGraph):
            layout = replace(layout, builder=NeighborSearch(np.array(points), options.metric, n_jobs))
        return layout.thinned(int(n_asked), n_jobs) if thins else layout
    _check_cloud(space)
    dim = None if chosen.dim is None else check_integer(chosen.dim, "dim", 1, space.shape[1])
    cloud = np.array(space, order="C")  # the user may change the points later
    search = NeighborSearch(
        cloud if chosen.metric is None else chosen.metric.check(cloud, "X"), chosen.metric, n_jobs
    )
    if fixed or not clean or chosen.noise_std == 0 or len(points) < 3:
        if dim is None and chosen.metric is not None:
            dim = chosen.metric.dim
        dim = dim or (estimate_dimension(search) if len(points) > 2 else 1)
        layout = _Layout(search, search.points, dim, chosen.metric, given, (), n_asked == "auto" and not fixed)
    else:
        time = stated_time(kernel)
        scale = None if time is None else float(np.sqrt(2 * time))
        found = clean_cloud(search, scale, noise=chosen.noise_std, dim=dim)
        notes: tuple[tuple[str, str], ...] = (("cloud", str(found)),) if str(found) else ()
        layout = _Layout(found, found.search.points, found.dim, None, given, notes, n_asked == "auto")
        if dim is None and len(points) < min(100, 10 ** (found.dim / 2)):  # Eckmann and Ruelle
            warn_user(
                f"{len(points)} points are too few to find a dimension; {found.dim} is a guess (remedy: more "
                "points, or HeatGraph(dim=...) if it is known).",
                GraphWarning,
            )
    if thins:
        notes = (*layout.notes, ("thinned", f"{n_asked} farthest of {len(layout.points)} points, as asked for"))
        layout = replace(layout.thinned(min(int(n_asked), len(layout.points)), n_jobs), notes=notes)
    return layout


def _grid_size(manifold: AbstractManifold, kernel: Any) -> int:
    """Number of nodes to lay out on a manifold: 18 steps of a heat kernel that reach 4.5 nodes each."""
    if not isinstance(kernel, HeatKernel):
        return 4000
    density = 4.5 * (18 / (4 * np.pi * kernel.t)) ** (manifold.dim / 2)
    return int(np.clip(density * manifold.volume, 500, 20_000))


def _check_cloud(points: FloatArray) -> None:
    """Refuse points at fewer than three positions, and warn of points on a line and of columns of unlike units."""
    check_spread(points, "X")
    # Few clouds need a look at all points, which may fill the memory.
    kind = _shape_of(points[:1000]) and _shape_of(points)
    if kind == "line":
        warn_user("All points of X lie on one straight line: the features are those of a line.", GraphWarning)
    elif kind:
        reject("X", "at least three distinct points", f"{kind} for {len(points)} points")
    # Of the middle nine tenths: one far point would say more about a column than all others.
    spreads = np.diff(np.quantile(points, [0.05, 0.95], axis=0), axis=0)[0]
    varying = np.flatnonzero(spreads > 0)
    if len(varying) < 2:
        return
    small, large = varying[np.argmin(spreads[varying])], varying[np.argmax(spreads[varying])]
    with np.errstate(over="ignore"):
        ratio = spreads[large] / spreads[small]
    if ratio > 100:
        warn_user(
            f"Column {large} of X (counted from 0) varies {float(f'{ratio:.2g}'):g} times as much as column "
            f"{small}, so distances hardly depend on the latter (remedy: if they have different units, scale the "
            "columns, for example with scikit-learn's StandardScaler).",
            GraphWarning,
        )


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
    # Median, not maximum: seen from a far outlier, all points are on one line. Rounding gives 1e-16.
    is_line = np.abs(steps).max() < 1e-10 * np.median(lengths) / lengths[far]
    return "line" if points.shape[1] > 1 and len(points) > 2 and is_line else ""


def _heat_graph(layout: _Layout, kernel: Any, options: HeatGraph, n_jobs: int) -> BuiltGraph:
    """A heat graph with as many of the nodes as the kernel needs."""
    notes = list(layout.notes)
    mesh = isinstance(layout.builder, TriangleMesh | ThinnedMesh)
    if not mesh and len(layout.points) < layout.dim + 2:
        rule = f"at least {layout.dim + 2} rows to fill a space of dimension {layout.dim}"
        reject("X", rule, f"shape {layout.points.shape}")
    if kernel is None:
        kernel = HeatKernel(layout.default_time)
        notes.append(("kernel", f"chosen: {np.sqrt(2 * kernel.t):.3g} wide"))
    t = stated_time(kernel) if isinstance(kernel, AbstractKernel) else _function_time(kernel, layout)
    t = layout.default_time if t is None else t
    if layout.may_thin:
        # 4000 of 200,000 random points on the sphere are within .0015 of its kernel at t = .02 with 12 steps that
        # reach 8 nodes each.
        density = 8 * (12 / (4 * np.pi * t)) ** (layout.dim / 2)
        needed, n = max(500.0, density * layout.sampling.volume), len(layout.points)
        if n >= 2 * needed:
            what = "vertices" if mesh else "points"
            notes.append(("thinned", f"{int(needed)} farthest of {n} {what}: more are not needed for t = {t:.3g}"))
            layout = layout.thinned(int(needed), n_jobs)
    graph = heat_graph(
        layout.builder,
        t,
        n_steps=options.n_steps,
        weights=layout.volumes,
        dim=None if mesh else layout.dim,
        metric=layout.metric,
        n_jobs=n_jobs,
    )
    text = f"heat graph, {graph.n_nodes} nodes, {graph.n_steps} steps of {t / (graph.n_steps or 1):.3g}"
    return BuiltGraph(graph, kernel, layout.dim, (*notes, ("graph", text)))


def _knn_graph(layout: _Layout, given: KnnGraph | None, n_jobs: int, *, in_steps: bool) -> tuple[Graph, str]:
    """A graph of nearest neighbours, and its description."""
    options = given or KnnGraph()
    correction = options.density_correction
    if correction is None:
        correction = 0.0 if in_steps else 1.0
    # In many dimensions the density varies over orders of magnitude, and one width isolates a quarter of the nodes.
    bandwidth = options.bandwidth or ("local" if layout.dim > _MOST_DIMS_BY_DEFAULT else "median")
    graph = knn_graph(
        layout.builder,
        n_neighbors=None if given is None else options.n_neighbors,
        bandwidth=bandwidth,
        density_correction=correction,
        metric=layout.metric,
        n_jobs=n_jobs,
    )
    text = f"{options.n_neighbors} nearest neighbours, bandwidth {bandwidth}, density exponent {correction:g}"
    return graph, f"{text}, {graph.n_nodes} nodes"


def _function_time(function: Any, layout: _Layout) -> float:
    """A heat time about as wide as a function F(X, Y): exp(-r^2 / 4t) is one half at r^2 = 4 t log 2."""
    rows = layout.points[:: max(1, len(layout.points) // 64)][:64]
    others = layout.points[:: max(1, len(layout.points) // 2000)]
    values, own = (np.abs(function_values(function, rows, place)) for place in (others, rows))
    peaks = np.maximum(values.max(axis=1), np.diagonal(own))
    gaps = distances_between(rows, others, layout.metric)
    beyond = np.where(values < 0.5 * peaks[:, None], gaps, np.inf).min(axis=1)
    found = float(np.median(beyond)) ** 2 / (4 * np.log(2))
    return float(np.clip(found, layout.default_time / 4, 0.1 * layout.extent2))


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
