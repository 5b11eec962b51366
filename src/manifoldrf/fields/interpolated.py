"""A field that interpolates known signatures, and the interpolation rules.

The compiled loops work on contiguous arrays (int64 indices, float64 values) and rely on their callers for checks.
They sum in the order of the neighbours, so results depend neither on the other queries nor on threads.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy import sparse

from manifoldrf._codec import stored
from manifoldrf._compiling import compiled
from manifoldrf._runtime import map_threads
from manifoldrf._validation import (
    FloatArray,
    IntArray,
    check_indices,
    check_integer,
    check_jobs,
    check_option,
    reject,
)
from manifoldrf.fields.data import AbstractField, FieldData, Problem, search_nodes, sparse_product
from manifoldrf.geometry.csr import check_amounts, check_csr, check_shape, read_only_view, select_entries
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.meshes import TriangleMesh, barycentric_weights
from manifoldrf.geometry.neighbors import NeighborSearch

# Relative to the sum of the weights, for coordinates of at most 1: small enough for the precision of a squared
# system in float64, and large enough to suppress directions that the neighbours do not determine.
_RIDGE = 1e-10
_SWEEPS = 30  # most sweeps of Jacobi rotations; convergence is quadratic
# Largest sum of absolute weights, which is the factor by which errors are amplified; at held-out nodes of four
# surfaces the sum is at most 2.6.
_LARGEST_SUM = 4.0
# Less than one, so that neighbours at equal distances keep some weight.
_RIM = 0.999


@compiled()
def take_offset(point, origin, box, out):  # type: ignore[no-untyped-def]
    """Write point - origin to ``out``; along sides of a periodic box that are not zero, the shortest way around."""
    for a in range(point.shape[0]):
        gap = point[a] - origin[a]
        if box[a] > 0.0:
            gap -= box[a] * np.rint(gap / box[a])
        out[a] = gap


@compiled()
def principal_axes(rows, n_axes):  # type: ignore[no-untyped-def]
    """Orthonormal directions of largest second moment of the rows, (n_axes, d); zero if there are fewer.

    The smaller of rows' rows and rows rows' is diagonalised.
    """
    k, d = rows.shape
    axes = np.zeros((n_axes, d))
    values, vectors = _diagonalise(_products(rows) if k < d else _products(rows.T))
    order = np.argsort(-values)
    for i in range(min(n_axes, values.shape[0])):
        vector, size = vectors[:, order[i]], values[order[i]]
        if k >= d:
            axes[i] = vector
        elif size > 1e-14 * values[order[0]]:  # smaller ones are rounding errors
            for j in range(k):
                axes[i] += rows[j] * (vector[j] / np.sqrt(size))
    return axes


@compiled()
def _products(rows):  # type: ignore[no-untyped-def]
    """Lower half of the Gram matrix of the rows."""
    n, d = rows.shape
    products = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            for a in range(d):
                products[i, j] += rows[i, a] * rows[j, a]
    return products


@compiled()
def _diagonalise(lower):  # type: ignore[no-untyped-def]
    """Eigenvalues and eigenvectors (columns) of a small symmetric matrix, from its lower half, by cyclic Jacobi."""
    n = lower.shape[0]
    matrix = np.zeros((n, n))
    vectors = np.zeros((n, n))
    for a in range(n):
        vectors[a, a] = 1.0
        for b in range(a + 1):
            matrix[a, b] = lower[a, b]
            matrix[b, a] = lower[a, b]
    for _ in range(_SWEEPS):
        rotated = False
        for p in range(n - 1):
            for q in range(p + 1, n):
                if abs(matrix[p, q]) > 1e-15 * np.sqrt(abs(matrix[p, p] * matrix[q, q])) + 1e-300:
                    _rotate(matrix, vectors, p, q)
                    rotated = True
        if not rotated:
            break
    return np.diag(matrix).copy(), vectors


@compiled()
def _rotate(matrix, vectors, p, q):  # type: ignore[no-untyped-def]
    """Apply the Jacobi rotation that makes the entry (p, q) vanish."""
    n = matrix.shape[0]
    theta = (matrix[q, q] - matrix[p, p]) / (2.0 * matrix[p, q])
    tangent = 1.0 / (abs(theta) + np.hypot(theta, 1.0))
    if theta < 0.0:
        tangent = -tangent
    cosine = 1.0 / np.hypot(tangent, 1.0)
    sine = tangent * cosine
    for a in range(n):
        x, y = matrix[a, p], matrix[a, q]
        matrix[a, p], matrix[a, q] = cosine * x - sine * y, sine * x + cosine * y
    for a in range(n):
        x, y = matrix[p, a], matrix[q, a]
        matrix[p, a], matrix[q, a] = cosine * x - sine * y, sine * x + cosine * y
        x, y = vectors[a, p], vectors[a, q]
        vectors[a, p], vectors[a, q] = cosine * x - sine * y, sine * x + cosine * y


@compiled()
def solve_positive(matrix, right):  # type: ignore[no-untyped-def]
    """Solve a small positive definite system in place, by Cholesky; reads and overwrites the lower half."""
    _factorise(matrix)
    n = matrix.shape[0]
    for a in range(n):
        for c in range(a):
            right[a] -= matrix[a, c] * right[c]
        right[a] /= matrix[a, a]
    for a in range(n - 1, -1, -1):
        for c in range(a + 1, n):
            right[a] -= matrix[c, a] * right[c]
        right[a] /= matrix[a, a]


@compiled()
def _factorise(matrix):  # type: ignore[no-untyped-def]
    """Replace the lower half by the Cholesky factor."""
    for a in range(matrix.shape[0]):
        for b in range(a + 1):
            total = matrix[a, b]
            for c in range(b):
                total -= matrix[a, c] * matrix[b, c]
            if a == b:
                matrix[a, a] = np.sqrt(max(total, 1e-300))
            else:
                matrix[a, b] = total / matrix[b, b]


@compiled()
def interpolate_rows(points, queries, neighbors, box, n_axes):  # type: ignore[no-untyped-def]
    """Weights of each query's neighbours that interpolate values given at nodes; rows sum to 1.

    Parameters
    ----------
    points : float64 (n, d)
    queries : float64 (q, d)
    neighbors : int64 (q, k), nodes near each query
    box : float64 (d,), sides of a periodic box, zero along axes that are not periodic
    n_axes : int, number of principal axes of the neighbours used as coordinates; 0 for a weighted mean

    Returns
    -------
    weights : float64 (q, k)
    """
    n_queries, k = neighbors.shape
    d = points.shape[1]
    result = np.zeros((n_queries, k))
    gaps = np.zeros((k, d))
    distances = np.zeros(k)
    for i in range(n_queries):
        for j in range(k):
            take_offset(points[neighbors[i, j]], queries[i], box, gaps[j])
        radius = _scale(gaps, distances)
        _inverse_distance(distances, result[i])
        if n_axes > 0 and distances.min() > 0.0 and radius > 0.0:
            _polynomial(gaps, distances, n_axes, result[i])
    return result


@compiled()
def _scale(gaps, distances):  # type: ignore[no-untyped-def]
    """Divide offsets by the largest distance and return it; distances below 1e-12 of it become zero."""
    k, d = gaps.shape
    largest = np.abs(gaps).max()
    if largest == 0.0:
        distances[:] = 0.0
        return 0.0
    for j in range(k):
        total = 0.0
        for a in range(d):
            gaps[j, a] /= largest
            total += gaps[j, a] * gaps[j, a]
        distances[j] = np.sqrt(total)
    radius = distances.max()
    for j in range(k):
        gaps[j] /= radius
        distances[j] /= radius
        if distances[j] < 1e-12:
            distances[j] = 0.0
    return largest * radius


@compiled()
def _inverse_distance(distances, out):  # type: ignore[no-untyped-def]
    """Positive weights 1 / distance^2, as a fallback; equal weights for neighbours at distance zero."""
    here = 0
    for j in range(distances.shape[0]):
        here += distances[j] == 0.0
    for j in range(distances.shape[0]):
        if here > 0:
            out[j] = 1.0 / here if distances[j] == 0.0 else 0.0
        else:
            out[j] = 1.0 / (distances[j] * distances[j])
    out /= out.sum()


@compiled()
def _polynomial(gaps, distances, n_axes, out):  # type: ignore[no-untyped-def]
    """Replace the weights by those of the linear and then the quadratic polynomial, if there are enough nodes."""
    k, d = gaps.shape
    centred = np.zeros((k, d))
    for a in range(d):
        centred[:, a] = gaps[:, a] - gaps[:, a].mean()
    axes = principal_axes(centred, n_axes)
    places = np.zeros((k, n_axes))
    for j in range(k):
        for c in range(n_axes):
            for a in range(d):
                places[j, c] += gaps[j, a] * axes[c, a]
    weights = np.zeros(k)
    for j in range(k):
        # Infinite at a node, so that its own value is returned, and zero where the next neighbour enters.
        weights[j] = 1.0 / (distances[j] * distances[j]) - _RIM
    for degree in (1, 2):
        columns = _columns(places, degree)
        if columns.shape[1] <= k:
            _blend(columns, weights, out)


@compiled()
def _columns(places, degree):  # type: ignore[no-untyped-def]
    """Monomials 1, u_i and, for degree 2, u_i u_j of the places, (k, c)."""
    k, n = places.shape
    n_columns = 1 + n + (n * (n + 1) // 2 if degree == 2 else 0)
    columns = np.ones((k, n_columns))
    for j in range(k):
        at = 1
        for a in range(n):
            columns[j, at] = places[j, a]
            at += 1
        if degree == 2:
            for a in range(n):
                for b in range(a + 1):
                    columns[j, at] = places[j, a] * places[j, b]
                    at += 1
    return columns


@compiled()
def _blend(columns, weights, out):  # type: ignore[no-untyped-def]
    """Least squares weights at the origin, blended with those in ``out`` if they are too large."""
    found = _least_squares(columns, weights)
    total = found.sum()
    if not abs(total - 1.0) < 1e-3:  # far outside, where rounding dominates
        return
    found /= total
    size = np.abs(found).sum()
    # Continuous, at most _LARGEST_SUM in total, and vanishing far outside.
    share = 1.0 if size <= _LARGEST_SUM else ((_LARGEST_SUM - 1.0) / (size - 1.0)) ** 2
    for j in range(out.shape[0]):
        out[j] += share * (found[j] - out[j])


@compiled()
def _least_squares(columns, weights):  # type: ignore[no-untyped-def]
    """Weights b (k,) such that sum_j b_j value_j is the fitted coefficient of the first column."""
    k, n = columns.shape
    system, right = np.zeros((n, n)), np.zeros(n)
    for j in range(k):
        add_row(columns[j], weights[j], system)
    for a in range(1, n):
        system[a, a] += _RIDGE * system[0, 0]
    right[0] = 1.0
    solve_positive(system, right)
    found = np.zeros(k)
    for j in range(k):
        for a in range(n):
            found[j] += columns[j, a] * right[a]
        found[j] *= weights[j]
    return found


@compiled()
def add_row(row, weight, system):  # type: ignore[no-untyped-def]
    """Add weight * row' row to the lower half of a system."""
    for a in range(row.shape[0]):
        scaled = weight * row[a]
        for b in range(a + 1):
            system[a, b] += scaled * row[b]


# Neighbours per coefficient of the quadratic. Relative error of the kernel of exp(-20 L) at held-out nodes of
# 4000 on sphere, ellipsoid, Moebius strip and torus: .0048 .0083 .0035 .0025 with 3; .0051 .0087 .0036 .0028 with
# 2.3; .0051 .0089 .0039 .0029 with 4; equal weights on twice as many neighbours as coefficients give .0049 .0083
# .0042 .0043. On three-dimensional spheres 4 is better than 3: .038 against .041 on even nodes, .092 against .14 on
# uneven ones.
_NODES_PER_COEFFICIENT = 3
_NODES_PER_COEFFICIENT_FROM_DIM_3 = 4
# Above this dimension a quadratic would need more than a hundred neighbours, most of them far away. Values are
# averaged there, with weights 1 / distance^2.
_QUADRATIC_DIM, _NODES_PER_AXIS = 5, 2
_QUERIES_AT_ONCE = 1024  # per task


class AbstractInterpolation(ABC):
    """Weights of the known nodes at any point."""

    @property
    @abstractmethod
    def rule(self) -> str:
        """Where the weights come from: "tangent" or "barycentric"."""

    @abstractmethod
    def check(self, n_known: int, d: int) -> None:
        """Raise unless it interpolates n_known nodes with d coordinates."""

    @abstractmethod
    def weights(self, queries: FloatArray) -> Any:
        """b(z), CSR array of shape (len(queries), n_known); rows sum to 1 and are independent of each other."""


@stored
@dataclass(frozen=True, eq=False)
class TangentInterpolation(AbstractInterpolation):
    """Local quadratic least squares in the principal axes of the nearest known nodes.

    Attributes
    ----------
    search : NeighborSearch
        The known nodes.
    n_axes : int
        Number of coordinates of the quadratic; 0 for a weighted mean.
    n_neighbors : int
        Number of nodes it is fitted to.
    """

    search: NeighborSearch
    n_axes: int
    n_neighbors: int

    def check(self, n_known: int, d: int) -> None:
        """Raise unless it interpolates n_known nodes with d coordinates."""
        self.search.check(n_known, d)
        check_integer(self.n_axes, "n_axes", 0, d)  # none in many dimensions
        check_integer(self.n_neighbors, "n_neighbors", 1, n_known)

    @property
    def rule(self) -> str:
        """The string "tangent"."""
        return "tangent"

    def weights(self, queries: FloatArray) -> Any:
        """b(z), CSR array of shape (len(queries), n_known)."""
        points, k = read_only_view(self.search.points), self.n_neighbors
        _, neighbors = self.search.knn(queries, k)
        neighbors = neighbors.astype(np.int64, copy=False)
        places = read_only_view(np.ascontiguousarray(queries))
        found = interpolate_rows(points, places, neighbors, periods(self.search), self.n_axes)  # (q, k)
        indptr = k * np.arange(len(queries) + 1)
        weights = sparse.csr_array((found.ravel(), neighbors.ravel(), indptr), shape=(len(queries), len(points)))
        weights.sort_indices()
        return weights


@stored
@dataclass(frozen=True, eq=False)
class SurfaceInterpolation(AbstractInterpolation):
    """Barycentric coordinates of the nearest point of a mesh whose vertices are the known nodes.

    Attributes
    ----------
    mesh : TriangleMesh
    order : int array of shape (n_vertices,)
        Position of each vertex among the known nodes.
    """

    mesh: TriangleMesh
    order: IntArray

    def check(self, n_known: int, d: int) -> None:
        """Raise unless it interpolates n_known nodes with d coordinates."""
        self.mesh.check_nodes(n_known, d)
        check_shape("order", self.order, (n_known,))
        check_indices(self.order, "order", n_known)

    @property
    def rule(self) -> str:
        """The string "barycentric"."""
        return "barycentric"

    def weights(self, queries: FloatArray) -> Any:
        """b(z), CSR array of shape (len(queries), n_known)."""
        corners = barycentric_weights(self.mesh, self.mesh.closest_points(queries))
        weights = sparse.csr_array((corners.data, self.order[corners.indices], corners.indptr), shape=corners.shape)
        weights.sort_indices()
        return weights


def make_interpolation(
    graph: Graph, nodes: IntArray, dim: int, search: NeighborSearch | None = None
) -> AbstractInterpolation:
    """The rule for a graph: barycentric on a mesh if all vertices are known, else tangent planes.

    Parameters
    ----------
    graph : Graph
        With points.
    nodes : int array of shape (n_known,)
        Nodes at which values are known.
    dim : int
        Intrinsic dimension.
    search : NeighborSearch, optional
        Over these nodes, if there is one already.
    """
    mesh = graph.mesh
    if mesh is not None and len(np.unique(nodes)) == graph.n_nodes == len(nodes):
        return SurfaceInterpolation(mesh, np.argsort(nodes))
    search = search or search_nodes(graph, nodes)
    n_known, d = search.points.shape
    # From dimension 3 on, use one axis more than the dimension: clouds of affordable size are too coarse for
    # tangent spaces alone, and the offset along the main normal captures the curvature.
    n_axes, per_coefficient = min(dim, d), _NODES_PER_COEFFICIENT
    if dim > 2:
        n_axes, per_coefficient = min(dim + 1, d), _NODES_PER_COEFFICIENT_FROM_DIM_3
    if dim > _QUADRATIC_DIM:
        return TangentInterpolation(search, 0, min(_NODES_PER_AXIS * dim, n_known))
    n_coefficients = (n_axes + 1) * (n_axes + 2) // 2
    return TangentInterpolation(search, n_axes, min(per_coefficient * n_coefficients, n_known))


def interpolation_weights(graph: Graph, nodes: IntArray, queries: FloatArray, dim: int, n_jobs: int = 1) -> Any:
    """Weights b such that value(z) = sum_j b_j(z) value(x_j) for values known at some nodes.

    Parameters
    ----------
    graph : Graph
        With points.
    nodes : int array of shape (n_known,)
        Nodes at which values are known.
    queries : array of shape (q, d)
        Points in the coordinates of the graph.
    dim : int
        Intrinsic dimension.
    n_jobs : int, default=1
        Number of threads, which does not change the result.

    Returns
    -------
    weights : CSR array of shape (q, n_known)
        Rows sum to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Sphere, knn_graph
    >>> from manifoldrf.fields.interpolated import interpolation_weights
    >>> graph = knn_graph(Sphere().grid(500))
    >>> places = Sphere().sample(100, seed=0)
    >>> weights = interpolation_weights(graph, np.arange(500), places, dim=2)
    >>> heights = weights @ graph.points[:, 2]
    >>> bool(np.abs(heights - places[:, 2]).max() < 1e-3)
    True
    """
    rule = make_interpolation(graph, nodes, dim)
    return stack_rows(rule.weights, queries, len(nodes), check_jobs(n_jobs))


def stack_rows(rows_of: Callable[[FloatArray], Any], queries: FloatArray, n_columns: int, n_jobs: int) -> Any:
    """CSR rows of all queries, computed in blocks by threads; the rows do not depend on the blocks."""
    queries = np.array(queries, dtype=np.float64, order="C")  # writable: loops are compiled for one type
    parts = [queries[k : k + _QUERIES_AT_ONCE] for k in range(0, len(queries), _QUERIES_AT_ONCE)]
    if not parts:
        return sparse.csr_array((0, n_columns))
    found = map_threads(rows_of, parts, n_jobs)
    return found[0] if len(found) == 1 else sparse.vstack(found, format="csr")


def periods(search: NeighborSearch) -> FloatArray:
    """Sides of the periodic box of the coordinates, shape (d,); zero if they are not periodic."""
    box = None if search.metric is None else search.metric.box
    return np.zeros(search.points.shape[1]) if box is None else np.asarray(box, dtype=np.float64)


# Missing values are replaced by the smallest known value of their column, but by no more than this share of the
# largest, so that a column with few values still decays.
_LARGEST_FLOOR = 1e-3
# Factor that keeps the smallest known value just above its floor, so that it is not dropped.
_BELOW = 1 - 1e-9
# Largest value over the largest known one of its column. At held-out nodes of four surfaces with
# 4000 nodes values reach 1.12 times that for exp(-20 L) and 1.03 for exp(-80 L), at anchors that are not known.
_LARGEST_GROWTH = 2.0


@stored
@final
@dataclass(frozen=True, eq=False)
class InterpolatedField(AbstractField):
    """Interpolated signatures, made by :func:`fit_interpolated`.

    Attributes
    ----------
    interpolation : AbstractInterpolation
        Weights of the known nodes at any point.
    table : CSR array of shape (s, m)
        Known values or, for ``combine="logarithms"``, the logarithm of known value over floor, at least 0.
    floors : array of shape (m,)
        Values used for missing ones; smaller values are dropped.
    largest : array of shape (m,)
        Bounds of the columns.
    combine : {"logarithms", "values"}
        What is interpolated: values if the weights are barycentric or the field has both signs.
    signed : bool
        Whether the field has both signs.
    """

    interpolation: AbstractInterpolation
    table: Any
    floors: FloatArray
    largest: FloatArray
    combine: str
    signed: bool = False

    def check(self, problem: Problem, n_anchors: int) -> None:
        """Raise if the parts do not fit together, or do not fit the problem and the anchors."""
        n_known = int(self.table.shape[0])
        check_csr("table", self.table, (n_known, n_anchors), signed=problem.asymmetric)
        check_amounts("floors", self.floors, n_anchors)
        check_amounts("largest", self.largest, n_anchors)
        check_option(self.combine, "combine", ("logarithms", "values"))
        if self.signed and not problem.asymmetric:
            reject("signed", "of a kernel that has both signs", self.signed)
        self.interpolation.check(n_known, problem.graph.positions.shape[1])

    @property
    def rule(self) -> str:
        """Where the weights come from: "tangent" or "barycentric"."""
        return self.interpolation.rule

    @property
    def bounds(self) -> FloatArray:
        """Largest size that a value of each column can have anywhere, shape (m,)."""
        return self.largest

    def values(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """h(z, w_l), CSR array of shape (len(queries), m) with sorted columns."""
        return stack_rows(self._rows, queries, len(self.largest), check_jobs(n_jobs))

    def _rows(self, queries: FloatArray) -> Any:
        """Values at a few queries."""
        return self._finished((self.interpolation.weights(queries) @ self.table).tocsr())

    def values_on(self, device: str, queries: FloatArray, n_jobs: int = 1) -> Any:
        """h(z, w_l) with the product of weights and table on a device."""
        jobs = check_jobs(n_jobs)
        weights = stack_rows(self.interpolation.weights, queries, self.table.shape[0], jobs)
        return self._finished(sparse_product(weights, self.table, device))

    def _finished(self, rows: Any) -> Any:
        """From interpolated values or logarithms, CSR, to values of the field."""
        largest, low = self.largest[rows.indices], self.floors[rows.indices]
        if self.combine == "logarithms":
            # The weights sum to 1, so the logarithm of the floor can be added afterwards.
            with np.errstate(over="ignore"):
                data = np.where(rows.data > 0, low * np.exp(rows.data), 0.0)
            data = np.minimum(data, largest)
        elif self.signed:
            data = np.clip(rows.data, -largest, largest)
        else:
            data = np.clip(rows.data, 0.0, largest)
        result = select_entries(rows, data, np.abs(data) > low)
        result.sort_indices()
        return result


def fit_interpolated(data: FieldData) -> InterpolatedField:
    """Make a field that interpolates its known values.

    It interpolates logarithms with local quadratic weights. On a mesh whose vertices are all known it interpolates
    values with barycentric weights. Values of both signs have no logarithm and are interpolated themselves.

    Parameters
    ----------
    data : FieldData
        Known values of the field.

    Returns
    -------
    InterpolatedField

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import DiffusionKernel, Sphere, knn_graph
    >>> from manifoldrf.fields.data import Problem, SignatureOptions, signature_table
    >>> from manifoldrf.fields.interpolated import fit_interpolated
    >>> graph = knn_graph(Sphere().grid(500))
    >>> width = np.sqrt(20 * graph.time(1.0, 2))
    >>> problem = Problem(graph, DiffusionKernel(20.0), graph.degrees, 2, width)
    >>> field = fit_interpolated(signature_table(problem, np.arange(500), np.arange(0, 500, 5), SignatureOptions()))
    >>> field.values(Sphere().sample(3, seed=0)).shape
    (3, 100)
    """
    interpolation = make_interpolation(data.graph, data.starts, data.dim, data.search)
    table = sparse.csr_array(data.values)
    size = np.abs(table.data)
    largest = np.zeros(table.shape[1])
    np.maximum.at(largest, table.indices, size)
    signed = bool((table.data < 0).any())
    if signed or interpolation.rule == "barycentric":
        growth = 1.0 if interpolation.rule == "barycentric" else _LARGEST_GROWTH
        return InterpolatedField(interpolation, table, np.zeros_like(largest), growth * largest, "values", signed)
    floors = _LARGEST_FLOOR * largest
    known = size > 0
    np.minimum.at(floors, table.indices[known], size[known])
    floors *= _BELOW
    # Subnormal floors would give infinite quotients.
    floors = np.where(largest > 0, np.maximum(floors, 1e-300), 0.0)
    quotients = np.where(known, size / np.where(known, floors[table.indices], 1.0), 1.0)
    logs = sparse.csr_array((np.log(np.maximum(quotients, 1.0)), table.indices, table.indptr), shape=table.shape)
    return InterpolatedField(interpolation, logs, floors, _LARGEST_GROWTH * largest, "logarithms")
