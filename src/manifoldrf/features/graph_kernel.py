"""The kernel on the graph of a space: options of graphs, construction of the graph, and units of both."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.spatial.distance import cdist
from scipy.stats import chi2

from manifoldrf._codec import UNSTORED, stored
from manifoldrf._random import Streams
from manifoldrf._runtime import warn_user
from manifoldrf._validation import (
    POSITIVE,
    FloatArray,
    IntArray,
    Interval,
    check_count,
    check_integer,
    check_option,
    check_real,
    check_spread,
    reject,
)
from manifoldrf.geometry.builders import GridExtension, knn_graph, mesh_graph
from manifoldrf.geometry.cleaning import check_noise
from manifoldrf.geometry.csr import frobenius
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.heat import HeatExtension, check_steps, graph_on, space_of
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.model_spaces import AbstractBall
from manifoldrf.geometry.neighbors import NeighborSearch, Sampling, check_metric, estimate_dimension
from manifoldrf.geometry.spaces import AbstractSpace
from manifoldrf.kernels.abstract_kernel import AbstractKernel, FrozenParams
from manifoldrf.kernels.named_kernels import HeatKernel
from manifoldrf.kernels.series import SeriesFit, SeriesKernel

# Largest dimension of clouds that get a heat graph, with and without a given kernel. Without one, clouds of real
# data are too sparse: in 4 and 5 dimensions such graphs had two steps and errors of 30 to 170 %.
_MOST_DIMS, _MOST_DIMS_BY_DEFAULT = 5, 3
# In widths of a feature. On closed surfaces, sums over anchors were .003 off with a spacing of .8, .002 with .75.
ANCHOR_SPACING = 0.75
_DEFAULT_STEPS = 20.0  # the paper's number of steps, for graphs that are not heat graphs


@stored
@dataclass(frozen=True, eq=False)
class HeatGraph(FrozenParams):
    """A graph whose walk is the heat flow of the space, as built by :func:`heat_graph`.

    Parameters
    ----------
    n_nodes : int or "auto"
        Number of nodes; "auto": as many as the kernel needs.
    n_steps : "auto" or even int
        Steps that make up the heat time.
    dim : int, optional
        Intrinsic dimension; estimated by default.
    metric : AbstractManifold, optional
        Measure distances along this manifold.
    noise_std : "auto" or float
        Standard deviation of the noise in each coordinate of a cloud. Points and queries are moved onto the space,
        and outliers are dropped. "auto" estimates the noise; 0 leaves the points unchanged.
    volumes : array-like of shape (n,), optional
        Volume of each point; estimated by default, known on named manifolds.

    Examples
    --------
    >>> from manifoldrf import HeatGraph, HeatKernel, ManifoldRandomFeatures, Sphere
    >>> graph = HeatGraph(n_nodes=2000, n_steps=8)
    >>> ManifoldRandomFeatures(HeatKernel(0.05), "all", graph=graph).fit(Sphere()).graph_
    Graph(2000 nodes, 111104 edges, points in R^3, n_steps=8)
    """

    n_nodes: int | str = "auto"
    n_steps: int | str = "auto"
    dim: int | None = None
    metric: AbstractManifold | None = None
    noise_std: float | str = "auto"
    volumes: Any = None

    def __post_init__(self) -> None:
        check_count(self.n_nodes, "n_nodes", 16, ("auto",))
        check_steps(self.n_steps)
        if self.dim is not None:
            check_integer(self.dim, "dim", 1)
        check_metric(self.metric)
        check_noise(self.noise_std)
        fixed = self.metric is not None or self.volumes is not None
        if fixed and self.noise_std not in ("auto", 0):
            reject("noise_std", "'auto' or 0 with a metric or volumes", self.noise_std)

    @property
    def only_dim(self) -> bool:
        """Whether nothing but the dimension is given."""
        return self.metric is self.volumes is None and {self.n_nodes, self.n_steps, self.noise_std} == {"auto"}


_DEFAULT_GRAPH = HeatGraph()


@stored
@dataclass(frozen=True, eq=False)
class KnnGraph(FrozenParams):
    """A graph of nearest neighbours of the unchanged points, as built by :func:`knn_graph`.

    Parameters
    ----------
    n_neighbors : int
    bandwidth : {"median", "mean", "local"} or float, optional
        By default "local" above 3 dimensions, else "median".
    density_correction : float, optional
        In [0, 1]; by default 1 for kernels in the manifold clock, which should not depend on the density of the
        points, and 0 for others.
    metric : AbstractManifold, optional
        Measure distances along this manifold.

    Examples
    --------
    >>> from manifoldrf import DiffusionKernel, KnnGraph, ManifoldRandomFeatures, Sphere
    >>> ManifoldRandomFeatures(DiffusionKernel(20.0), graph=KnnGraph(n_neighbors=12)).fit(Sphere().grid(500)).graph_
    Graph(500 nodes, 3105 edges, points in R^3)
    """

    n_neighbors: int = 8
    bandwidth: str | float | None = None
    density_correction: float | None = None
    metric: AbstractManifold | None = None

    def __post_init__(self) -> None:
        check_integer(self.n_neighbors, "n_neighbors", 1)
        if isinstance(self.bandwidth, str):
            check_option(self.bandwidth, "bandwidth", ("median", "mean", "local"))
        elif self.bandwidth is not None:
            check_real(self.bandwidth, "bandwidth", POSITIVE)
        if self.density_correction is not None:
            check_real(self.density_correction, "density_correction", Interval(0.0, 1.0))
        check_metric(self.metric)


@stored
@dataclass(frozen=True, eq=False)
class MeshGraph(FrozenParams):
    """The edges of a mesh, as built by :func:`mesh_graph`.

    Examples
    --------
    >>> from manifoldrf import DiffusionKernel, ManifoldRandomFeatures, MeshGraph, TriangleMesh
    >>> corners = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    >>> mesh = TriangleMesh(corners, [[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]])
    >>> ManifoldRandomFeatures(DiffusionKernel(20.0), graph=MeshGraph()).fit(mesh).graph_.n_edges
    6
    """


@stored
@dataclass(frozen=True, eq=False)
class GraphKernel:
    """A kernel K = h(W) on a graph that discretises a space.

    Signatures are rows of Phi with K = Phi Phi^T. Their smooth part is g(x, y) = Phi(x, y) / sqrt(mu_x mu_y), with
    mu the volume of a node (degrees of the graph, up to a factor, if volumes are not known).

    Attributes
    ----------
    graph : Graph
        With points.
    stated : AbstractKernel
        The kernel as the user stated it, or as it was chosen.
    resolved : AbstractKernel
        The same in steps of the graph.
    dim : int
        Intrinsic dimension.
    per_volume : bool
        Whether features represent a kernel of the space, per unit of volume ("manifold clock"), or the kernel of
        the graph, as if a point were a node ("graph clock").
    manifold : AbstractManifold, optional
        The space itself, if it is a named one: the nodes are its grid.
    asymmetric : bool
        Whether rows of the kernel replace signatures, because it has no nonnegative features.
    space : AbstractSpace, optional
        The space of the graph, for an estimate of its error; not saved to files.
    """

    graph: Graph
    stated: AbstractKernel
    resolved: AbstractKernel
    dim: int
    per_volume: bool
    manifold: AbstractManifold | None = None
    asymmetric: bool = False
    space: AbstractSpace | None = field(default=None, metadata=UNSTORED)

    def _check_loaded(self) -> None:
        check_integer(self.dim, "dim", 1, max(self.graph.positions.shape[1], 1))

    @cached_property
    def series(self) -> AbstractKernel:
        """The series whose rows are the signatures."""
        return self.resolved if self.asymmetric else self.resolved.root()

    @cached_property
    def volume(self) -> float:
        """Volume of the space: of the graph, the mesh or the manifold if known, else estimated from the density."""
        graph = self.graph
        if graph.weights is not None:
            return float(graph.weights.sum())
        if graph.mesh is not None:
            if not graph.mesh.area > 0:
                reject("X", "a mesh with area", "degenerate faces only")
            return float(graph.mesh.area)
        # Points with a metric may be on a part of its manifold, other than those of a grid.
        known = graph.metric if isinstance(graph.extension, GridExtension) else self.manifold
        if known is not None and not isinstance(known, AbstractBall):
            return float(known.volume)
        return Sampling.of_cloud(graph._search, self.dim, "X").volume

    @cached_property
    def _volumes(self) -> FloatArray:
        """Volume of each node: its weight, or its share of the degrees; zero for nearly isolated nodes."""
        if self.graph.weights is not None:
            return self.graph.weights
        degrees = self.graph.degrees
        if not degrees.any():
            reject("X", "a space whose graph has edges", f"{self.graph.n_nodes} isolated nodes")
        # Values divided by the degree of nearly isolated nodes would be noise.
        kept = np.where(degrees >= 1e-4 * np.median(degrees[degrees > 0]), degrees, 0.0)
        share = self.volume / float(kept.sum())
        if not np.isfinite(share):  # affinities are tiny
            return kept / float(kept.sum()) * self.volume
        return kept * share

    @cached_property
    def unit(self) -> float:
        """Mean volume of a node. The measure is in this unit, so that no unit of the user causes an overflow."""
        volumes = self._volumes
        return float(volumes[volumes > 0].mean())

    @cached_property
    def measure(self) -> FloatArray:
        """mu, the volume of each node over ``unit``, shape (n_nodes,); zero at isolated nodes."""
        return self._volumes / self.unit

    @cached_property
    def width(self) -> float:
        """Standard deviation of a signature along one axis, as a length: sqrt(t) for the heat kernel at time t."""
        values = self.series.spectral(np.array([1.0 - 1e-6, 1.0]))
        low, high = np.ldexp(values, -np.frexp(values)[1].max())  # coefficients may be close to underflow
        mean_length = abs(float((high - low) / (1e-6 * high))) if high else 1.0
        return float(np.sqrt(2 * mean_length * self.graph.time(1.0, self.dim)))

    def spacing(self, m: int) -> float:
        """Distance between neighbours of ``m`` evenly spread points: (volume / m)^(1 / dim)."""
        return float((self.volume / m) ** (1 / self.dim))

    @property
    def has_spike(self) -> bool:
        """Whether signatures have a spike at their own node, which a step of the walk would lose."""
        first, total = float(self.series.coefficients(1)[0]), float(self.series.spectral(np.array([1.0]))[0])
        # On 300 nodes of a sphere, features with the spike raised the log likelihood of (c + L)^-1/2 from -55 to
        # -35.
        return abs(first) > 2e-3 * abs(total)

    @cached_property
    def reaches(self) -> FloatArray:
        """Distance from each node within which a query counts as near the space, shape (n_nodes,).

        1.5 times the distance to the neighbours of the node: fewer than one in 10,000 random points on the sphere
        is farther away from its nearest node.
        """
        search = self.graph._search
        k = min(2 * self.dim + 2, len(search.points) - 1)
        reaches = 1.5 * search.knn(search.points, k + 1)[0][:, k]
        extension = self.graph.extension
        if isinstance(extension, HeatExtension):  # features vanish at the radius of its steps
            reaches = np.minimum(np.maximum(reaches, extension.radius / 2), extension.radius)
        return np.asarray(reaches)

    def distance(self, queries: FloatArray) -> FloatArray:
        """Distance to the nearest node or, on a mesh or a noisy cloud, to the surface, shape (q,)."""
        mesh = self.graph.whole_mesh
        if mesh is not None:
            return np.asarray(np.linalg.norm(queries - mesh.closest_points(queries).points, axis=1))
        placed = self.graph.placed(queries)
        distances = np.asarray(self.graph._search.knn(placed, 1)[0][:, 0])
        return np.asarray(np.hypot(distances, np.linalg.norm(queries - placed, axis=1)))

    def window(self, queries: FloatArray, placed: FloatArray | None = None, n_jobs: int = 1) -> FloatArray:
        """Factor of the features, shape (q,): 1 near the space, falling smoothly to 0 at twice that distance.

        ``placed`` are the projections of the queries onto the space, if already known.
        """
        if placed is None:
            placed = self.graph.placed(queries)
        distances, nodes = self.graph._search.knn(placed, 1, n_jobs)
        distances, reaches = distances[:, 0], self.reaches[nodes[:, 0]]
        away = np.flatnonzero(distances > reaches)
        if len(away) and self.graph.whole_mesh is not None:  # far from all nodes, but maybe inside a large face
            distances[away] = self.distance(queries[away])
        extension = self.graph.extension
        if extension is not None and placed is not queries:  # a noisy cloud: it alone moves points onto the space
            # Only distances that exceed the noise of 999 in 1000 points count.
            moved = np.linalg.norm(queries - placed, axis=1)
            noise = extension.noise_std * np.sqrt(chi2.isf(1e-3, max(1, placed.shape[1] - self.dim)))
            distances = np.hypot(distances, np.maximum(moved - noise, 0.0))
            reaches = reaches + noise  # noise also moves points beyond an edge
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = np.where(distances <= reaches, 0.0, np.clip(distances / reaches - 1.0, 0.0, 1.0))
        return np.asarray((1 - beyond) ** 2 * (1 + 2 * beyond))


Notes = tuple[tuple[str, str], ...]  # names and texts, for the summary


class BuiltGraph(NamedTuple):
    """A graph, the kernel as stated or chosen, the dimension, texts for the summary, and the space if known."""

    graph: Graph
    kernel: Any
    dim: int
    notes: Notes
    space: AbstractSpace | None = None


def resolve_kernel(built: BuiltGraph, X: Any, streams: Streams) -> tuple[GraphKernel, Notes, float | None]:
    """The kernel on the graph of a space, texts for the summary, and the error of a series fitted to a function."""
    graph, stated, dim, notes, space = built
    series_error = None
    if isinstance(stated, AbstractKernel):
        resolved = stated.resolve(graph, dim)
        per_volume = resolved != stated
        if per_volume and stated.shortest_time is None:
            reject("kernel", "one with a `shortest_time`, because its `resolve` depends on the graph", stated)
    else:
        plain = GraphKernel(graph, SeriesKernel((1.0,)), SeriesKernel((1.0,)), dim, per_volume=True)
        fit = _fit_series(stated, plain, streams)
        stated = resolved = fit.kernel
        per_volume, series_error = True, fit.held_out_error
        text = f"fitted to the given function, relative error {series_error:.2g} on held-out pairs"
        notes = (*notes, ("series", text))
    manifold = X if isinstance(X, AbstractManifold) else None
    kernel = GraphKernel(graph, stated, resolved, dim, per_volume, manifold, not resolved.is_positive, space)
    if not kernel.width > 0:
        rule = "one with a nonconstant term, on a graph with edges"
        reject("kernel", rule, f"{resolved}, {kernel.width:g} wide")
    n_lost = np.count_nonzero((kernel.measure == 0) & (graph.degrees > 0))
    if n_lost:
        warn_user(
            f"{n_lost} of {graph.n_nodes} nodes are nearly isolated: features are wrong there, unseen by errors "
            "(remedy: more neighbours, KnnGraph(bandwidth='local'), or drop them)."
        )
    return kernel, (*notes, ("dimension", str(dim))), series_error


def _fit_series(function: Any, plain: GraphKernel, streams: Streams) -> SeriesFit:
    """Coefficients of the series closest to a symmetric function F(X, Y)."""
    graph, measure = plain.graph, plain._volumes
    rng = streams.generator("features.series")
    rows: IntArray = rng.choice(graph.n_nodes, min(graph.n_nodes, 400), replace=False)
    # Columns are also rows, so that pairs (x, x) are included: rough functions are hardest to approximate there.
    columns: IntArray = rng.permutation(rows[:64])
    values = function_values(function, graph.positions[rows], graph.positions[columns])
    exchanged = function_values(function, graph.positions[columns], graph.positions[rows]).T
    if not (values.any() and exchanged.any()):
        reject("kernel", "a function that is not 0 everywhere", f"0 for all of {values.size} pairs of points")
    largest = float(np.abs(values).max())
    if not 1e-100 < largest < 1e100:  # squares would be out of range
        reject("kernel", "a function whose largest value is from 1e-100 to 1e100", f"{largest:g}")
    skew = frobenius((exchanged - values) / largest) / frobenius(values / largest) / 2
    roots = np.sqrt(measure)
    targets = values * roots[rows][:, None] * roots[columns]
    samples = np.repeat(rows, len(columns)), np.tile(columns, len(rows)), targets.ravel()
    # The tails of rough functions need long times: exp(-d / .4) at 4000 even nodes of the sphere is .25 off with
    # two powers for each step, .04 with eight. A spike would improve the fit of a rough function only at the nodes.
    degree = int(np.clip(8 * (graph.n_steps or 0), 24, 128))
    fit = SeriesKernel.fit(graph, *samples, degree=degree, square=True, spike=False)
    if fit.held_out_error > 0.05:  # a fitted square has nonnegative features, and is kept if it is nearly as good
        free = SeriesKernel.fit(graph, *samples, degree=degree, spike=False)
        fit = fit if fit.held_out_error <= 2 * free.held_out_error else free
    # For a symmetric function, half the change on exchanging arguments is rounding, or small next to the misfit.
    if skew > np.clip(0.5 * fit.held_out_error, 1e-6, 0.01):
        found = f"one that changes by {2 * skew:.2g} if exchanged"
        reject("kernel", "a symmetric function, F(x, y) = F(y, x)", found)
    return fit


def build_graph(X: Any, kernel: Any, options: Any, n_jobs: int) -> BuiltGraph:
    """Build the graph of a space for a kernel.

    Parameters
    ----------
    X : array of shape (n, d), TriangleMesh, AbstractManifold or Graph
    kernel : AbstractKernel, callable or None
        None: the heat kernel at a time estimated from the space.
    options : HeatGraph, KnnGraph, MeshGraph, Graph, callable or None
        None: a heat graph for kernels in the manifold clock in few dimensions, else the edges of a mesh or nearest
        neighbours.
    n_jobs : int
    """
    if isinstance(X, Graph) or not isinstance(options, HeatGraph | KnnGraph | MeshGraph | None):
        return _given_graph(X, kernel, options)
    if isinstance(X, np.ndarray):
        _check_cloud(X)
    in_steps = isinstance(kernel, AbstractKernel) and kernel.shortest_time is None
    if isinstance(options, KnnGraph | MeshGraph) or (options is None and in_steps):
        return _neighbor_graph(X, kernel, options, n_jobs, in_steps=in_steps)
    given = options or _DEFAULT_GRAPH
    known = {"dim": given.dim, "metric": given.metric, "noise_std": given.noise_std, "volumes": given.volumes}
    space = space_of(X, **known, n_jobs=n_jobs)
    most = _MOST_DIMS if kernel is not None or isinstance(X, AbstractManifold) else _MOST_DIMS_BY_DEFAULT
    if options is None and (space.dim > most or (isinstance(X, np.ndarray) and len(X) < 5)):
        if space.dim > _MOST_DIMS:
            warn_user(
                f"The points have about {space.dim} dimensions: no low-dimensional structure was found. Features "
                "are those of the graph of nearest neighbours; compare them with a Gaussian kernel."
            )
        return _neighbor_graph(X, kernel, options, n_jobs, in_steps=in_steps, dim=space.dim)
    # A heat graph, for the shortest time of the kernel.
    notes = [] if space.cloud is None else [("cloud", str(space.cloud))]
    if isinstance(X, np.ndarray) and len(X) < space.dim + 2:
        reject("X", f"at least {space.dim + 2} rows to fill a space of dimension {space.dim}", f"{len(X)}")
    if kernel is None:
        kernel = HeatKernel(space.default_time)
        notes.append(("kernel", f"chosen: {np.sqrt(2 * kernel.t):.3g} wide"))
    t = kernel.shortest_time if isinstance(kernel, AbstractKernel) else _function_time(kernel, X, space)
    t = space.default_time if t is None else t
    graph = graph_on(space, t, given.n_steps, given.n_nodes, n_jobs)
    notes.append(("graph", f"heat graph, {graph.n_nodes} nodes, {graph.n_steps} steps of {graph.step_time:.3g}"))
    return BuiltGraph(graph, kernel, space.dim, tuple(notes), space)


def _neighbor_graph(
    X: Any, kernel: Any, options: Any, n_jobs: int, *, in_steps: bool, dim: int | None = None
) -> BuiltGraph:
    """The edges of a mesh, or nearest neighbours of the unchanged points."""
    if isinstance(X, TriangleMesh) and not isinstance(options, KnnGraph):
        if not X.edge_lengths().any():
            reject("X", "a mesh with an edge of positive length", f"{X} without one")
        graph, dim, text = mesh_graph(X), 2, f"edges of the mesh, {X.n_vertices} nodes"
    elif isinstance(options, MeshGraph):
        reject("graph", "MeshGraph() only where the space is a TriangleMesh", repr(options))
    else:
        graph, dim, text = _knn_graph(X, options or KnnGraph(), n_jobs, in_steps=in_steps, dim=dim)
    notes = [("graph", text)]
    if kernel is None:
        t = graph.time(_DEFAULT_STEPS, dim)
        if dim > _MOST_DIMS_BY_DEFAULT and graph.n_nodes > 1280:
            # Wide enough for 640 anchors.
            known = isinstance(X, AbstractManifold)
            volume = X.volume if known else Sampling.of_cloud(graph._search, dim, "X").volume
            t = max(t, float((volume / 640) ** (2 / dim)) / ANCHOR_SPACING**2)
        kernel = HeatKernel(float(f"{t:.3g}"))
        notes.append(("kernel", f"chosen: the time of {graph.steps(t, dim):.3g} steps"))
    return BuiltGraph(graph, kernel, dim, tuple(notes))


def _knn_graph(X: Any, given: KnnGraph, n_jobs: int, *, in_steps: bool, dim: int | None) -> tuple[Graph, int, str]:
    """Nearest neighbours, with local bandwidths in high dimensions, where the density varies most."""
    metric = given.metric
    if isinstance(X, AbstractManifold):
        points, dim = np.array(X.grid(4000), order="C"), X.dim
        metric = metric or (X if X._steps_along_distance else None)
    else:
        points = np.array(X.vertices if isinstance(X, TriangleMesh) else X, order="C")
    search = NeighborSearch(points if metric is None else metric.check(points, "X"), metric, n_jobs)
    if dim is None:
        dim = metric.dim if metric is not None else estimate_dimension(search) if len(points) > 2 else 1
    correction = given.density_correction
    if correction is None:
        correction = 0.0 if in_steps else 1.0
    bandwidth = given.bandwidth or ("local" if dim > _MOST_DIMS_BY_DEFAULT else "median")
    k = min(given.n_neighbors, len(points) - 1)
    graph = knn_graph(search, n_neighbors=k, bandwidth=bandwidth, density_correction=correction)
    text = f"{k} nearest neighbours, bandwidth {bandwidth}, {graph.n_nodes} nodes, density exponent {correction:g}"
    return graph, dim, text


def _given_graph(space: Any, kernel: Any, given: Any) -> BuiltGraph:  # noqa: C901
    """A given graph: the space itself, a graph on its points, or one that a function makes from them."""
    if isinstance(space, Graph):
        if given is not None and not (isinstance(given, HeatGraph) and given.only_dim):
            reject("graph", "None or HeatGraph(dim=...) where the space is a graph itself", repr(given))
        graph = space
    elif isinstance(given, Graph):
        graph = given
        if not isinstance(space, np.ndarray) or not np.array_equal(space, graph.positions):
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


def _check_cloud(points: FloatArray) -> None:
    """Refuse fewer than three distinct points; warn of points on a line and of columns in different units."""
    check_spread(points, "X")
    # Look at all points, which may fill the memory, only if the first 1000 are degenerate.
    kind = _shape_of(points[:1000]) and _shape_of(points)
    if kind == "line":
        warn_user("All points of X lie on one straight line: the features are those of a line.")
    elif kind:
        reject("X", "at least three distinct points", f"{kind} for {len(points)} points")
    # Of the middle nine tenths, so that a single far point does not determine the spread of a column.
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
            "columns, for example with scikit-learn's StandardScaler)."
        )


def _shape_of(points: FloatArray) -> str:
    """The number of distinct points if it is one or two, "line" if they are on a line in space, else empty."""
    steps = points - points[0]
    lengths = np.abs(steps).max(axis=1)
    far = int(np.argmax(lengths))
    if not lengths[far] > 0:
        return "one position"
    if not ((lengths > 0) & (points != points[far]).any(axis=1)).any():
        return "two positions"
    steps /= lengths[far]
    line = steps[far].copy()
    steps -= np.outer(steps @ line / (line @ line), line)
    # Median, not maximum: as seen from a far outlier, all points are on one line. Rounding gives 1e-16.
    is_line = np.abs(steps).max() < 1e-10 * np.median(lengths) / lengths[far]
    return "line" if points.shape[1] > 1 and len(points) > 2 and is_line else ""


def _function_time(function: Any, X: Any, space: AbstractSpace) -> float:
    """A heat time about as wide as a function F(X, Y): exp(-r^2 / 4t) is one half at r^2 = 4 t log 2."""
    metric, points = getattr(space, "metric", None), X
    if isinstance(X, AbstractManifold | TriangleMesh):
        points = X.vertices if isinstance(X, TriangleMesh) else X.grid(4000)
    rows = points[:: max(1, len(points) // 64)][:64]
    others = points[:: max(1, len(points) // 2000)]
    values, own = (np.abs(function_values(function, rows, place)) for place in (others, rows))
    peaks = np.maximum(values.max(axis=1), np.diagonal(own))
    gaps = np.asarray(cdist(rows, others) if metric is None else metric.distance(rows, others))
    beyond = np.where(values < 0.5 * peaks[:, None], gaps, np.inf).min(axis=1)
    found = float(np.median(beyond)) ** 2 / (4 * np.log(2))
    return float(np.clip(found, space.default_time / 4, 0.1 * space.extent2))


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
