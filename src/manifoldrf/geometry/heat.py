"""Heat graphs: graphs whose walk is the heat flow of the space.

One step is a Gaussian G of bandwidth s2, scaled at both ends (Sinkhorn) so that it conserves mass. Each node stands
for a volume mu. The integral of exp(-|x - y|^2 / s2) over a space of dimension d without boundary is (pi s2)^(d/2),
so volumes with G mu = (pi s2)^(d/2) at every node are a quadrature. As nodes are even, and mirror images replace
what lies beyond an edge, a few rounds of mu <- mu mass / (G mu) are enough.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.spatial import cKDTree

from manifoldrf._codec import stored
from manifoldrf._native import loops
from manifoldrf._random import generator
from manifoldrf._runtime import one_blas_thread, warn_user
from manifoldrf._validation import (
    POSITIVE,
    FloatArray,
    IntArray,
    check_integer,
    check_jobs,
    check_points,
    check_real,
    check_spread,
    reject,
)
from manifoldrf.geometry.cleaning import CleanCloud, clean_cloud
from manifoldrf.geometry.csr import check_amounts, make_csr, scaled_both_ends
from manifoldrf.geometry.curves import CurveSpace, trace_curves
from manifoldrf.geometry.graphs import AbstractExtension, Graph, check_positive_float, report_problems, translated
from manifoldrf.geometry.layout import CloudSpace
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.mesh_space import MeshSpace
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.neighbors import check_metric, estimate_dimension, thin
from manifoldrf.geometry.spaces import (
    MOST_NODES,
    AbstractNodes,
    AbstractSpace,
    ManifoldSpace,
    PointSpace,
    step_reach,
)

__all__ = ["heat_graph"]

_ROUNDS = 40  # of mu <- mu mass / (G mu): 20 are as good as 240 on even nodes; other nodes take six times as many
_SINKHORN_ROUNDS, _SINKHORN_TOLERANCE = 1000, 1e-12  # about 35 rounds reach it on every space tried


@one_blas_thread()
def space_of(  # noqa: C901  (the one place that tells kinds of input apart)
    X: Any,
    *,
    dim: int | None = None,
    metric: AbstractManifold | None = None,
    noise_std: float | str = "auto",
    volumes: Any = None,
    n_jobs: int = 1,
) -> AbstractSpace:
    """The space of points, a mesh or a named manifold."""
    check_metric(metric)
    if isinstance(X, TriangleMesh | AbstractManifold):
        return _exact_space(X, dim, metric, noise_std, volumes, n_jobs)
    points = np.array(check_points(X, min_rows=2), order="C")  # a copy: the user may change the original later
    check_spread(points, "X")
    if dim is not None:
        check_integer(dim, "dim", 1, points.shape[1])
    if not np.ptp(points, axis=0).any():
        reject("X", "mostly at distinct positions", "one place")
    if volumes is not None:
        volumes = check_volumes(volumes, len(points))
    if metric is not None:
        if dim not in (None, metric.dim):
            reject("dim", f"that of the metric, {metric.dim}, or None", dim)
        return PointSpace(metric.check(points, "X"), metric.dim, metric, volumes, n_jobs)
    if volumes is not None or len(points) < 3:
        found = dim or (estimate_dimension(points) if volumes is not None else 1)
        return PointSpace(points, found, None, volumes, n_jobs)
    cloud = clean_cloud(points, noise_std=noise_std, dim=dim, n_jobs=n_jobs)
    if cloud.n_outliers > 0.01 * cloud.n_given:
        warn_user(
            f"{cloud.n_outliers} of {cloud.n_given} points were left out as outliers (remedy: drop them before, or "
            "HeatGraph(noise_std=0) to keep them)."
        )
    if cloud.hollow:
        warn_user(
            f"The points lie about {cloud.noise_std:.2g} to both sides of a surface, as those of walls do that are "
            "thin for the distance between points: both sides are taken for one (remedy: more points, or a mesh)."
        )
    return _space_through(cloud, n_jobs)


def _exact_space(
    X: Any, dim: int | None, metric: AbstractManifold | None, noise_std: Any, volumes: Any, n_jobs: int
) -> AbstractSpace:
    """The space of a mesh or a named manifold."""
    if noise_std not in ("auto", 0):
        reject("noise_std", "'auto' or 0 for meshes and manifolds", noise_std)
    if volumes is not None:
        reject("volumes", "None for meshes and manifolds", "an array")
    if isinstance(X, AbstractManifold):
        along = metric or (X if X._steps_along_distance else None)
        return ManifoldSpace(X, X.dim, X.volume, along, n_jobs)
    if metric is not None:
        reject("metric", "None on a mesh, where steps follow the surface", repr(metric))
    if dim not in (None, 2):
        reject("dim", "2 or None on a mesh", dim)
    return MeshSpace(X, X.vertices, float(X.area))


def _space_through(cloud: CleanCloud, n_jobs: int) -> AbstractSpace:
    """Curves, a surface or a solid through cleaned points; the points themselves if no layout is reliable."""
    if cloud.structured and cloud.dim == 1:
        curve = trace_curves(cloud, n_jobs)
        if curve is not None:
            return CurveSpace(cloud.points, float(curve.lengths.sum()), cloud, curve)
    if cloud.structured and 1 < cloud.dim <= 3 and len(cloud.points) >= 60:
        return CloudSpace(cloud.points, cloud.dim, cloud)
    places = cloud.points @ cloud.axes.T + cloud.origin
    if len(places) > MOST_NODES:
        places = places[thin(places, MOST_NODES // 2)]
    return PointSpace(np.ascontiguousarray(places), cloud.dim, None, None, n_jobs, cloud)


def _half(points: FloatArray) -> IntArray:
    """Half of the points, one of each pair of neighbours: by chance alone, holes would be larger than need be.

    Of few points, which would not show the space, three of each four.
    """
    order = cKDTree(points, leafsize=2).indices
    size = 2 if len(points) >= 400 else 4
    starts = np.arange(0, len(points) - size + 1, size)
    chosen = starts + generator(0, "cloud.half").integers(size, size=len(starts))
    return np.sort(order[chosen] if size == 2 else np.delete(order, chosen))


def half_of(space: AbstractSpace, n_jobs: int) -> AbstractSpace:
    """The space built from half of the data, for an estimate of the error; itself if it is known exactly.

    Half of a cloud keeps the dimension and the noise of the whole, because few points may not show them.
    """
    cloud = space.cloud
    if isinstance(space, PointSpace):
        return replace(space, points=space.points[_half(space.points)]) if space.volumes is None else space
    if cloud is None:
        return space
    some = _half(cloud.raw)
    half = clean_cloud(cloud.raw[some], noise_std=cloud.noise_std, dim=cloud.dim, n_jobs=n_jobs)
    origin, axes = cloud.origin + cloud.axes @ half.origin, cloud.axes @ half.axes
    return _space_through(replace(half, origin=origin, axes=axes), n_jobs)


def check_volumes(volumes: ArrayLike, n: int) -> FloatArray:
    """Positive volumes of n nodes, as a copy."""
    found = np.array(volumes, dtype=np.float64)
    check_amounts("volumes", found, n)
    if not (found > 0).all() or not 1e-300 < float(found.sum()) < 1e300:
        reject("volumes", "positive, with a finite sum", f"{found.min():g} to {found.max():g}")
    return found


def heat_graph(  # noqa: PLR0913  (the options of HeatGraph)
    points: Any,
    t: float,
    *,
    n_steps: int | str = "auto",
    n_nodes: int | str = "auto",
    dim: int | None = None,
    metric: AbstractManifold | None = None,
    noise_std: float | str = "auto",
    volumes: ArrayLike | None = None,
    n_jobs: int = -1,
) -> Graph:
    """Build the graph whose walk is the heat flow of the space: W^n_steps is the heat operator at time ``t``.

    New nodes are laid out evenly on the space, as many as the kernel needs. The points themselves are nodes if no
    layout is reliable: in more than three dimensions, without structure, with a metric, or with given volumes.

    Parameters
    ----------
    points : array-like of shape (n, d), TriangleMesh or AbstractManifold
        The space.
    t : float
        Heat time, in the square of the unit of the points; the kernel is about sqrt(2 t) wide.
    n_steps : "auto" or even int, default="auto"
        Number of steps that make up ``t``; "auto" takes more steps on more curved spaces.
    n_nodes : "auto" or int, default="auto"
        Approximate number of nodes, where nodes are laid out; by default as many as the steps need.
    dim : int, optional
        Intrinsic dimension; estimated by default.
    metric : AbstractManifold, optional
        Measure distances along this manifold; the points are nodes.
    noise_std : "auto" or float, default="auto"
        Standard deviation of the noise in each coordinate of a cloud, see :func:`.clean_cloud`.
    volumes : array-like of shape (n,), optional
        Volume of each point, if known; the points are nodes.
    n_jobs : int, default=-1
        Threads, -1 for all cores; the result does not depend on it.

    Returns
    -------
    Graph
        With ``n_steps``, ``weights`` (volumes, summing to that of the space) and ``step_time`` = t / n_steps. The
        heat kernel between nodes is mu_i^-1/2 (W^n_steps)_ij mu_j^-1/2.

    Examples
    --------
    >>> from manifoldrf import Sphere, heat_graph
    >>> graph = heat_graph(Sphere().sample(1000, seed=0), t=0.1)
    >>> bool(abs(graph.weights.sum() / Sphere().volume - 1) < 0.01)  # found from the points alone
    True
    >>> round(graph.time(graph.n_steps), 6)
    0.1
    """
    check_real(t, "t", POSITIVE)
    check_steps(n_steps)
    if n_nodes != "auto":
        check_integer(n_nodes, "n_nodes", 16)
    threads, points = check_jobs(n_jobs), translated(points, "points")
    space = space_of(points, dim=dim, metric=metric, noise_std=noise_std, volumes=volumes, n_jobs=threads)
    return graph_on(space, float(t), n_steps, n_nodes, threads)


@one_blas_thread()
def graph_on(
    space: AbstractSpace, t: float, n_steps: int | str = "auto", n_nodes: int | str = "auto", n_jobs: int = 1
) -> Graph:
    """The heat graph of a space, with the options of :func:`heat_graph`."""
    if t > 25 * space.extent2:
        reject("t", f"at most {25 * space.extent2:g} here (heat is spread evenly long before)", f"{t:g}")
    count = None if isinstance(n_nodes, str) else int(n_nodes)
    if isinstance(n_steps, str):  # wider steps would miss the shape of the space
        steps = max(space.steps(t, count), 2 * int(np.ceil(min(200 * t / space.extent2, 5000))))
    else:
        steps = int(n_steps)
    nodes = space.layout(4 * t / steps, space.spacing_for(t, steps, count), n_jobs)
    s2 = nodes.bandwidth(t / steps)  # slightly wider, as steps end at their reach
    radius, n = step_reach(s2, nodes.dim, nodes.tail), len(nodes.points)
    rows, columns, squares = nodes.steps(radius, s2, n_jobs)
    gaussian = sparse.coo_array((np.exp(-squares / s2), (rows, columns)), shape=(n, n)).tocsr()
    gaussian = ((gaussian + gaussian.T) / 2).tocsr()  # not symmetric: curvature is measured at one end
    gaussian.sort_indices()
    mu = nodes.volumes
    if mu is None:
        mass = nodes.mass(s2)
        mu = mass / np.asarray(gaussian.sum(axis=1)).ravel()
        for _ in range(_ROUNDS * (1 if nodes.is_even else 6)):
            mu = mu * (mass / (gaussian @ mu))  # volumes times the mass may underflow
    factors = mu * _sinkhorn(gaussian, mu)
    data = scaled_both_ends(gaussian, factors)
    affinity = sparse.csr_array((data, gaussian.indices, gaussian.indptr), shape=gaussian.shape)
    extension = HeatExtension(nodes, radius, s2, factors, mu)
    graph = Graph(affinity, nodes.points, nodes.metric, extension, mu, t / steps, steps)
    report_problems(graph, "a larger t, more points, or on a mesh parts that share vertices")
    return graph


def check_steps(n_steps: Any, name: str = "n_steps") -> None:
    """Raise unless it is "auto" or an even number of steps."""
    if isinstance(n_steps, str) and n_steps == "auto":
        return
    is_count = isinstance(n_steps, int | np.integer) and not isinstance(n_steps, bool)
    if not is_count or int(n_steps) < 2 or int(n_steps) % 2:
        kind = ValueError if is_count or isinstance(n_steps, str) else TypeError
        reject(name, "'auto' or an even integer in [2, inf)", repr(n_steps), kind)
    check_integer(n_steps, name, 2)


def _sinkhorn(gaussian: Any, mu: FloatArray) -> FloatArray:
    """Scaling u with u_i sum_j G_ij u_j mu_j = 1: makes the step conserve mass and stay symmetric."""
    scaling = np.full(len(mu), 1.0 / np.sqrt(float((gaussian @ mu).mean())))
    for _ in range(_SINKHORN_ROUNDS):
        flow = gaussian @ (scaling * mu)
        residual = float(np.abs(scaling * flow - 1)[mu > 0].max())
        if residual <= _SINKHORN_TOLERANCE:
            return scaling
        scaling = np.sqrt(np.divide(scaling, flow, out=np.zeros_like(flow), where=flow > 0))
    warn_user(
        f"The Sinkhorn scaling stopped after {_SINKHORN_ROUNDS} rounds with a residual of {residual:.1e}. Causes: "
        "(a) volumes that differ by many orders of magnitude, (b) nodes with very few neighbours. "
        "Remedy: a larger t."
    )
    return scaling


@stored
@dataclass(frozen=True, eq=False)
class HeatExtension(AbstractExtension):
    """One heat step from a new point: normalised Gaussian weights times the nodes' Sinkhorn factors.

    Attributes
    ----------
    nodes : AbstractNodes
        They define the steps along the space.
    radius : float
        Reach of one step.
    bandwidth : float
        s2 of one step: weights exp(-distance^2 / s2).
    factors : array of shape (n_nodes,)
        u mu: Sinkhorn scaling times volume.
    weights : array of shape (n_nodes,)
        mu, the volumes; a new point gets the mean volume of the nodes it steps to.
    """

    nodes: AbstractNodes
    radius: float
    bandwidth: float
    factors: FloatArray
    weights: FloatArray

    def _check_loaded(self) -> None:
        n = len(self.nodes.points)
        check_positive_float(self.bandwidth, "bandwidth")
        check_positive_float(self.radius, "radius")
        check_amounts("factors", self.factors, n)
        check_amounts("weights", self.weights, n)

    def check(self, n: int, d: int) -> None:
        """Raise unless the extension fits a graph of n nodes with d coordinates."""
        if self.nodes.points.shape != (n, d):
            reject("nodes", f"{n} points with {d} coordinates", f"shape {self.nodes.points.shape}")

    def affinities(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """CSR array of shape (len(queries), n_nodes)."""
        rows, nodes, values = self.nodes.steps_from(queries, self.radius, self.bandwidth, n_jobs)
        indptr = np.searchsorted(rows, np.arange(len(queries) + 1))
        loops.heat_steps(indptr, nodes, self.factors, self.weights, self.bandwidth, values)  # in place of squares
        return make_csr(values, nodes, indptr, len(self.weights))  # sums of a node and its images

    def place(self, queries: FloatArray, n_jobs: int = 1) -> FloatArray:
        """Positions of points on the space."""
        return self.nodes.place(queries, n_jobs)

    @property
    def noise_std(self) -> float:  # type: ignore[override]
        """Noise around the space."""
        return 0.0 if self.nodes.surface is None else float(self.nodes.surface.noise_std)

    @property
    def mesh(self) -> TriangleMesh | None:  # type: ignore[override]
        """The mesh that holds the nodes, if any."""
        return self.nodes.mesh
