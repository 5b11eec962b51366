"""Build graphs from points, meshes and wrap-around grids, each with its rule for new points."""

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from manifoldrf._codec import stored
from manifoldrf._runtime import require
from manifoldrf._validation import (
    POSITIVE,
    FloatArray,
    Interval,
    as_array,
    check_flag,
    check_integer,
    check_jobs,
    check_option,
    check_real,
    check_spread,
    check_vector,
    reject,
)
from manifoldrf.geometry.csr import (
    check_amounts,
    check_csr,
    check_shape,
    make_csr,
    reciprocal,
    scaled_both_ends,
    symmetric,
)
from manifoldrf.geometry.graphs import AbstractExtension, Graph, check_positive_float, report_problems, translated
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh, barycentric_weights
from manifoldrf.geometry.model_spaces import FlatTorus
from manifoldrf.geometry.neighbors import NeighborSearch, search_of, without_self

_DEFAULT_NEIGHBORS = 8  # the paper's k for closed surfaces
_LOCAL_NEIGHBOR = 7  # local width: distance to this neighbour (Zelnik-Manor and Perona 2004)
_NO_EDGE = 1e-300  # smaller affinities are dropped: the density correction would overflow


def knn_graph(
    points: ArrayLike | NeighborSearch,
    *,
    n_neighbors: int | None = None,
    bandwidth: str | float = "median",
    self_loops: bool = False,
    density_correction: float | ArrayLike = 0.0,
    metric: AbstractManifold | None = None,
    n_jobs: int = -1,
) -> Graph:
    """Join every point to its nearest neighbours, with Gaussian affinities.

    A_ij = exp(-|x_i - x_j|^2 / bandwidth) if i is among the nearest neighbours of j, or j is among the nearest
    neighbours of i. With bandwidth="local" every point has its own width s_i, and the exponent is -|x_i -
    x_j|^2 / (s_i s_j).

    Parameters
    ----------
    points : array-like of shape (n, d)
        A NeighborSearch over valid points is used unchanged, with its own metric and threads.
    n_neighbors : int, optional
        In [1, n - 1]. By default 8, or n - 1 for fewer than nine points.
    bandwidth : {"median", "mean", "local"} or float, default="median"
        "median" is the median squared distance to a neighbour, "mean" twice the square of the mean distance, which
        gives the kernels of the paper. "local" sets s_i to the distance to the 7th
        neighbour (Zelnik-Manor and Perona), or to the last if there are fewer. Use it for clouds whose density
        varies over orders of magnitude, such as descriptors in many dimensions. A point that coincides with all
        these neighbours gets the median width.
    self_loops : bool, default=False
        Whether a node is also joined to itself (with affinity 1, before the density correction).
    density_correction : float or array-like of shape (n,), default=0.0
        An exponent a in [0, 1] divides A_ij by (q_i q_j)^a, q the row sums: 1 removes the influence of uneven
        sampling (Coifman and Lafon), 0 keeps it. An array is the known density p: A_ij is divided by p_i p_j.
    metric : AbstractManifold, optional
        Measure distances along this manifold.
    n_jobs : int, default=-1
        Threads of the neighbour search, -1 for all cores; the result does not depend on it.

    Returns
    -------
    Graph
        Affinities that underflow are not edges: a point far from all others becomes an isolated node, with a
        :class:`ManifoldWarning`.

    Examples
    --------
    >>> from manifoldrf import Sphere, knn_graph
    >>> knn_graph(Sphere().grid(1000), n_neighbors=12, density_correction=1.0)
    Graph(1000 nodes, 6108 edges, points in R^3)
    """
    search = search_of(translated(points, "points"), metric, check_jobs(n_jobs), min_rows=2)
    cloud, metric = search.points, search.metric
    most = len(cloud) - 1
    k = min(_DEFAULT_NEIGHBORS, most) if n_neighbors is None else check_integer(n_neighbors, "n_neighbors", 1, most)
    distances, columns = without_self(*search.knn(cloud, k + 1))  # (n, k)
    local = None
    if isinstance(bandwidth, str) and bandwidth == "local":
        bandwidth, local = 1.0, local_widths(distances)
        if not local.any():
            reject("bandwidth", "a positive number where most neighbours coincide", "widths of 0")
        local = np.where(local > 0, local, np.median(local[local > 0]))
        distances = locally_scaled(distances, local, local[columns])
    width = _check_bandwidth(bandwidth, distances)
    with np.errstate(over="ignore"):  # a tiny bandwidth leaves no edge
        values = np.exp(-(distances**2) / width)
    values[values < _NO_EDGE] = 0.0
    ends = k * np.arange(len(cloud) + 1)
    directed = sparse.csr_array((values.ravel(), columns.ravel(), ends), shape=(len(cloud), len(cloud)))
    directed.sort_indices()  # the union of sorted rows is faster and sorted, as the operator requires
    affinity = directed.maximum(directed.T.tocsr())
    affinity.eliminate_zeros()  # affinities that underflowed
    if check_flag(self_loops, "self_loops"):
        affinity = (affinity + sparse.eye_array(len(cloud))).tocsr()
    density = _density(affinity, density_correction)
    if density is not None:
        with np.errstate(over="ignore"):  # reported below
            affinity.data = scaled_both_ends(affinity, reciprocal(density))
        if not np.isfinite(affinity.data).all():
            reject("density_correction", "such that affinities stay finite", f"{density.min():g}")
    extension = NeighborExtension(search, k + int(self_loops), width, density, local)
    graph = Graph(affinity, cloud, metric, extension)
    otherwise = "drop them with numpy.unique(points, axis=0)"
    report_problems(graph, "more neighbours or a larger bandwidth", distances[:, 0], otherwise)
    return graph


def mesh_graph(mesh: Any, *, weights: str = "gaussian") -> Graph:
    """Join the vertices of a mesh along its edges.

    Parameters
    ----------
    mesh : TriangleMesh, or a mesh that :meth:`TriangleMesh.of` takes
    weights : {"gaussian", "unit", "cotangent"}, default="gaussian"
        "gaussian": exp(-length^2 / median squared length). "unit": 1 for every edge. "cotangent": the robust
        intrinsic-Delaunay cotangent Laplacian, whose weights are nonnegative on every mesh; L = I - W is then
        the Laplace-Beltrami operator times the heat time of one step, ``graph.weights`` is its mass matrix,
        and every vertex is also joined to itself.

    Returns
    -------
    Graph
        With "cotangent" the smallest triangle sets the length of a step: a mesh with tiny triangles needs many
        steps.

    Examples
    --------
    >>> from manifoldrf import TriangleMesh, mesh_graph
    >>> corners = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0]]
    >>> mesh_graph(TriangleMesh(corners, [[0, 1, 2], [0, 2, 3]]), weights="unit")
    Graph(4 nodes, 5 edges, points in R^3)
    """
    mesh = TriangleMesh.of(mesh)
    check_option(weights, "weights", ("gaussian", "unit", "cotangent"))
    check_spread(mesh.vertices, "mesh")
    lengths = mesh.edge_lengths()
    if not lengths.any():
        reject("mesh", "a mesh with an edge of positive length", f"{mesh} without one")
    if weights == "cotangent":
        graph = _cotangent_graph(mesh)
    else:
        values = np.ones(len(lengths))
        if weights == "gaussian":
            values = np.exp(-(lengths**2) / _check_bandwidth("median", lengths))
        start, end = mesh.edges.T
        affinity = symmetric(np.where(values < _NO_EDGE, 0.0, values), start, end, mesh.n_vertices)
        affinity.eliminate_zeros()
        graph = Graph(affinity, mesh.vertices, extension=MeshExtension(mesh, affinity))
    nearest = graph._search.knn(mesh.vertices, 2)[0][:, 1]
    otherwise = "merge them, or the surface is cut open there"
    report_problems(graph, "a mesh whose parts share vertices", nearest, otherwise)
    return graph


def grid_graph(side: int, dim: int) -> Graph:
    """Build the wrap-around grid with ``side`` nodes along each of ``dim`` axes, on the flat torus of side 1.

    Every node is joined to its two neighbours along every axis with affinity 1 (with two nodes per axis both
    neighbours are the same node, with affinity 2). Nodes are numbered with the last axis running fastest.

    Parameters
    ----------
    side : int
        At least 2.
    dim : int
        At least 1; side^dim nodes, at most 10^8.

    Examples
    --------
    >>> from manifoldrf import grid_graph
    >>> grid_graph(10, 2)
    Graph(100 nodes, 200 edges, points in R^2)
    """
    side, dim = check_integer(side, "side", 2), check_integer(dim, "dim", 1)
    if dim > 26 or side**dim > 10**8:  # 2^27 nodes are already too many, and huge powers are slow
        reject("side", "small enough for side^dim <= 10^8 nodes", f"{side}^{dim}")
    nodes = np.arange(side)
    cycle = symmetric(np.ones(side), nodes, (nodes + 1) % side, side)
    affinity = functools.reduce(lambda a, b: sparse.kronsum(b, a, format="csr"), [cycle] * dim)
    affinity = sparse.csr_array(affinity)
    affinity.sort_indices()
    torus = FlatTorus(dim)
    axes = np.unravel_index(np.arange(side**dim), (side,) * dim)
    points = np.stack(axes, axis=1) / side  # (side^dim, dim)
    return Graph(affinity, points, torus, GridExtension(torus, side, affinity))


@stored
@dataclass(frozen=True, eq=False)
class NeighborExtension(AbstractExtension):
    """Gaussian affinities to the k nearest nodes, with the density correction of the graph.

    Attributes
    ----------
    search : NeighborSearch
        The nodes.
    n_neighbors : int
        Number of nodes that a new point is joined to.
    bandwidth : float
        Affinity exp(-distance^2 / bandwidth).
    density : array of shape (n_nodes,), optional
        Affinities are divided by the density at both ends. The exponent is already applied.
    local : array of shape (n_nodes,), optional
        Widths s of the nodes, for bandwidth="local": distances are divided by sqrt(s_i s_j).
    """

    search: NeighborSearch
    n_neighbors: int
    bandwidth: float
    density: FloatArray | None = None
    local: FloatArray | None = None
    mesh = None

    def check(self, n: int, d: int) -> None:
        """Raise unless the extension fits a graph of n nodes with d coordinates."""
        check_shape("points", self.search.points, (n, d))
        if self.bandwidth != np.inf:  # unit affinities
            check_positive_float(self.bandwidth, "bandwidth")
        for name, values in (("density", self.density), ("local", self.local)):
            if values is not None:
                check_amounts(name, values, n)
        check_integer(self.n_neighbors, "n_neighbors", 1, n)

    def affinities(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """CSR array of shape (len(queries), n_nodes)."""
        distances, columns = self.search.knn(queries, self.n_neighbors, n_jobs)
        if self.local is not None:
            # A point at a node has the width of the node.
            own = np.where(distances[:, 0] > 0, local_widths(distances), self.local[columns[:, 0]])
            distances = locally_scaled(distances, own, self.local[columns])
        with np.errstate(over="ignore"):  # exp gives zero far away or at a tiny bandwidth
            weights = np.exp(-(distances**2) / self.bandwidth)  # (q, k)
        if self.density is not None:
            density = self.density[columns]
            here = _divide((weights * density).sum(axis=1), weights.sum(axis=1))  # (q,)
            weights = _divide(weights, density * here[:, None])
        indptr = np.arange(len(queries) + 1) * self.n_neighbors
        return make_csr(weights.ravel(), columns.ravel(), indptr, len(self.search.points))


@stored
@dataclass(frozen=True, eq=False)
class MeshExtension(AbstractExtension):
    """Affinities interpolated inside the nearest face: exact at the vertices, continuous between them."""

    mesh: TriangleMesh
    affinity: Any
    nodes_are_vertices = True

    def check(self, n: int, d: int) -> None:
        """Raise unless the extension fits a graph of n nodes with d coordinates."""
        self.mesh.check_nodes(n, d)
        check_csr("affinity", self.affinity, (n, n))

    def affinities(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """CSR array of shape (len(queries), n_nodes)."""
        return (barycentric_weights(self.mesh, self.mesh.closest_points(queries)) @ self.affinity).tocsr()


@stored
@dataclass(frozen=True, eq=False)
class GridExtension(AbstractExtension):
    """Affinities interpolated linearly in every coordinate inside the cell of a wrap-around grid."""

    torus: FlatTorus
    side: int
    affinity: Any
    mesh = None

    def check(self, n: int, d: int) -> None:
        """Raise unless the extension fits a graph of n nodes with d coordinates."""
        # Check the bounds first: the power of a huge, invalid side could take hours.
        if not (1 <= self.side <= n and (self.side == 1 or d < 64)) or self.side**d != n:
            reject("side", f"one with side^{d} = {n} nodes", self.side)
        check_csr("affinity", self.affinity, (n, n))

    def affinities(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """CSR array of shape (len(queries), n_nodes)."""
        position = np.mod(queries / self.torus.side, 1.0) * self.side  # (q, dim) in cells
        # (1 / 49) * 49 is not 1: a point within rounding of a node is that node.
        whole = np.rint(position)
        position = np.where(np.abs(position - whole) <= 1e-15 * self.side, whole, position)
        lower = np.floor(position).astype(np.int64)
        share = position - lower
        weights = np.ones((len(queries), 1))
        columns = np.zeros((len(queries), 1), dtype=np.int64)
        for axis in range(queries.shape[1]):  # each axis doubles the number of corners
            ends = np.stack([lower[:, axis] % self.side, (lower[:, axis] + 1) % self.side], axis=1)
            parts = np.stack([1 - share[:, axis], share[:, axis]], axis=1)
            columns = (columns[:, :, None] * self.side + ends[:, None, :]).reshape(len(queries), -1)
            weights = (weights[:, :, None] * parts[:, None, :]).reshape(len(queries), -1)
        indptr = np.arange(len(queries) + 1) * weights.shape[1]
        corners = make_csr(weights.ravel(), columns.ravel(), indptr, self.affinity.shape[0])
        return (corners @ self.affinity).tocsr()


def _check_bandwidth(bandwidth: str | float, distances: FloatArray) -> float:
    """The width of the Gaussian affinity."""
    if not isinstance(bandwidth, str):
        return check_real(bandwidth, "bandwidth", POSITIVE)
    if bandwidth not in ("median", "mean"):
        reject("bandwidth", f"'median', 'mean', 'local' or a number in {POSITIVE}", repr(bandwidth))
    median = float(np.median(distances**2) if bandwidth == "median" else 2 * distances.mean() ** 2)
    if median == 0:
        reject("bandwidth", "a positive number where most neighbours coincide", "a median distance of 0")
    return median


def local_widths(distances: FloatArray) -> FloatArray:
    """The width (q,) of each point, from the distances (q, k) to its nearest neighbours."""
    return np.asarray(distances[:, min(_LOCAL_NEIGHBOR, distances.shape[1]) - 1])


def locally_scaled(distances: FloatArray, own: FloatArray, others: FloatArray) -> FloatArray:
    """Distances (q, k) divided by the geometric mean of the widths at both ends: own (q,), others (q, k)."""
    # Two roots, not the root of a product: the product of two tiny widths would underflow.
    return _divide(distances, np.sqrt(own)[:, None] * np.sqrt(others))


def _divide(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Quotient; zero where the denominator is zero."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)


def _density(affinity: Any, correction: float | ArrayLike) -> FloatArray | None:
    """The density that divides the affinities at both ends, or None."""
    if as_array(correction, "density_correction").ndim > 0:
        given = check_vector(correction, "density_correction", affinity.shape[0], POSITIVE)
        return given.copy()  # the caller may change the original later
    exponent = check_real(correction, "density_correction", Interval(0.0, 1.0))
    if exponent == 0:
        return None
    return np.asarray(np.asarray(affinity.sum(axis=1)).ravel() ** exponent)


def _cotangent_graph(mesh: TriangleMesh) -> Graph:
    """Lazy walk whose generator is the cotangent Laplacian: A = M - c L, W = I - c M^-1/2 L M^-1/2."""
    robust_laplacian = require("robust_laplacian", "mesh")
    used = np.unique(mesh.faces)  # others have no mass and stay isolated nodes
    renumber = np.zeros(mesh.n_vertices, dtype=np.int64)
    renumber[used] = np.arange(len(used))
    # Scale the mesh to unit size: areas of huge or tiny coordinates would overflow or underflow.
    unit = 2.0 ** np.round(np.log2(np.abs(mesh.vertices[used] - mesh.vertices[used[0]]).max()))
    small = (mesh.vertices[used] - mesh.vertices[used[0]]) / unit
    laplacian, mass_matrix = robust_laplacian.mesh_laplacian(small, renumber[mesh.faces])
    laplacian, mass = sparse.coo_array(laplacian), mass_matrix.diagonal() * unit**2
    off = (laplacian.row != laplacian.col) & (laplacian.data < 0)  # positive ones are round-off
    conductance = sparse.coo_array(
        (-laplacian.data[off], (laplacian.row[off], laplacian.col[off])), shape=laplacian.shape
    ).tocsr()
    conductance = (conductance + conductance.T) / 2  # exactly symmetric
    outflow = np.asarray(conductance.sum(axis=1)).ravel()
    # The longest step that leaves every self-loop nonnegative; the spectrum of W is then inside [-1, 1].
    step = float(np.min(mass[outflow > 0] / outflow[outflow > 0]))
    loops = np.maximum(mass - step * outflow, 0.0)
    walk = (step * conductance + sparse.diags_array(loops)).tocoo()
    affinity = sparse.coo_array(
        (walk.data, (used[walk.row], used[walk.col])), shape=(mesh.n_vertices, mesh.n_vertices)
    ).tocsr()
    affinity.eliminate_zeros()
    weights = np.zeros(mesh.n_vertices)
    weights[used] = mass
    extension = MeshExtension(mesh, affinity)
    return Graph(affinity, mesh.vertices, extension=extension, weights=weights, step_time=step)
