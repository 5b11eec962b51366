"""From points to features: tables of signatures, rules, their products, and the fitted map with its units.

Every rule gives a sparse row that sums to one over nodes near z: one step of the walk, interpolation weights, or
barycentric weights. Features are such rows times a table.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations_with_replacement
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from manifoldrf._codec import stored
from manifoldrf._native import loops
from manifoldrf._random import SeedLike
from manifoldrf._runtime import (
    ManifoldWarning,
    Progress,
    in_blocks,
    one_blas_thread,
    quick_map,
    quiet_underflow,
    silent,
    warn_user,
)
from manifoldrf._validation import POSITIVE, FloatArray, IntArray, check_indices, check_integer, check_real, reject
from manifoldrf.features.graph_kernel import GraphKernel
from manifoldrf.geometry.csr import as_dense, check_amounts, check_csr, csr_parts, narrow_csr, nonzeros, reciprocal
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.heat import HeatExtension
from manifoldrf.geometry.meshes import TriangleMesh, barycentric_weights
from manifoldrf.geometry.neighbors import Cells, NeighborSearch, visiting_order
from manifoldrf.geometry.spaces import FusedSteps
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.paper import NetworkField
from manifoldrf.signatures import Exact, choose_form, row_memory, series_rows


@dataclass(frozen=True)
class Teaching:
    """How signatures are computed: the corresponding arguments of :func:`.compute_signatures`."""

    teacher: Any = "auto"
    seed: SeedLike = None
    n_jobs: int = 1
    progress: Progress = silent


# Teachers by form, exact up to the entries that tables drop.
_TABLE_TEACHERS = {form: Exact(1e-7, form) for form in ("dense", "sparse")}
# Entries below this share of the largest in their column are dropped from tables that are multiplied by a step. The
# kernel changes by a similar share, and the table becomes a quarter smaller.
STEP_SHARE = 3e-6


def signature_table(
    kernel: GraphKernel,
    series: AbstractKernel,
    starts: IntArray,
    anchors: IntArray,
    teaching: Teaching,
    share: float = 1e-7,
) -> Any:
    """Entries (starts, anchors) of a series of W, divided by sqrt(mu) at both ends: CSR of shape (s, m).

    A series of a symmetric matrix is symmetric, so rows are computed from the smaller of the two sets. Entries
    below a share of the largest in their column are dropped: a thousand of them at 1e-7 change a kernel by less
    than a millionth.
    """
    graph, teacher = kernel.graph, teaching.teacher
    backwards = len(anchors) <= len(starts)
    sources, targets = (anchors, starts) if backwards else (starts, anchors)
    everything = len(targets) == graph.n_nodes and (np.diff(targets) == 1).all()
    inverse = reciprocal(np.sqrt(kernel.measure))  # nodes without measure reach nothing
    if isinstance(teacher, str):  # "auto" or "exact"
        teacher = _TABLE_TEACHERS[choose_form(graph, series, len(sources), 1e-7, 2**32)]  # stored rows are smaller
    size = len(sources)
    if not callable(teacher):  # a function given by the user is called once for all sources
        dense = (isinstance(teacher, Exact) and teacher.form == "dense") or 8 * graph.n_nodes * size <= 2**28
        size = max(1, int(2**28 / (8.0 * graph.n_nodes if dense else row_memory(graph, series))))
    blocks: list[Any] = []  # of sources, such that each fits in memory

    def progress(what: str, done: int, total: int) -> None:
        teaching.progress(what, done + len(blocks) * size, len(sources))

    for start in range(0, len(sources), size):
        some = sources[start : start + size]
        found = series_rows(graph, series, some, teacher, teaching.seed, teaching.n_jobs, progress)[0]
        rows = found if everything else found[:, targets]
        rows = rows if sparse.issparse(rows) else nonzeros(rows)
        rows.data *= np.repeat(inverse[some], np.diff(rows.indptr))
        rows.data *= inverse[targets][rows.indices]
        if backwards:  # rows from anchors are whole columns of the result
            rows = without_negligible(rows, share, axis=1)
        blocks.append(rows)
    table = blocks[0] if len(blocks) == 1 else sparse.vstack(blocks, format="csr")
    blocks.clear()
    return table.T.tocsr() if backwards else without_negligible(table, share)


def without_negligible(matrix: Any, share: float, axis: int = 0) -> Any:
    """A copy without entries far below the largest in their column, or in their row; its columns are sorted."""
    largest = abs(matrix).max(axis=axis).toarray().ravel()
    peaks = np.repeat(largest, np.diff(matrix.indptr)) if axis else largest[matrix.indices]
    keep = np.abs(matrix.data) > share * peaks
    ends = np.concatenate([[0], np.cumsum(keep)])[matrix.indptr].astype(matrix.indptr.dtype)
    result = sparse.csr_array((matrix.data[keep], matrix.indices[keep], ends), shape=matrix.shape)
    result.sort_indices()
    return result


class PointRule(Protocol):
    """Evaluates a table of nodes at any point of the space."""

    @property
    def n_nodes(self) -> int:
        """Number of nodes that the table has rows for."""

    @property
    def growth(self) -> float:
        """Factor by which values may exceed those of the table; larger ones are clipped."""

    def rows(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """CSR array of shape (q, n_nodes); rows sum to one (to zero out of reach), independently of each other."""


@stored
@dataclass(frozen=True, eq=False)
class WalkStep:
    """One step of the walk on a graph, by its rule for new points."""

    graph: Graph
    growth = 1.0

    def __post_init__(self) -> None:
        if self.graph.extension is None:
            reject("field", "other than 'step' on a graph without a rule for new points", "'step'")

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return self.graph.n_nodes

    def rows(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """P(z, .), CSR array of shape (q, n_nodes)."""
        extension: Any = self.graph.extension
        steps = extension.affinities(queries, n_jobs)
        totals = np.repeat(np.asarray(steps.sum(axis=1)).ravel(), np.diff(steps.indptr))
        steps.data = np.divide(steps.data, totals, out=np.zeros_like(steps.data), where=totals > 0)
        return steps


@stored
@dataclass(frozen=True, eq=False)
class JoinedSteps:
    """Steps on several graphs side by side, for tables of all their nodes."""

    parts: tuple[WalkStep, ...]
    growth = 1.0

    @property
    def n_nodes(self) -> int:
        """Number of nodes of all graphs."""
        return sum(part.n_nodes for part in self.parts)

    def rows(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """CSR array of shape (q, n_nodes)."""
        return sparse.hstack([part.rows(queries, n_jobs) for part in self.parts], format="csr")


@stored
@dataclass(frozen=True, eq=False)
class Interpolation:
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
    # At held-out nodes of four surfaces, values reach 1.12 times the largest known one, if the anchor is unknown.
    growth = 2.0

    def _check_loaded(self) -> None:
        n, d = self.search.points.shape
        check_integer(self.n_axes, "n_axes", 0, d)
        check_integer(self.n_neighbors, "n_neighbors", 1, n)

    @property
    def n_nodes(self) -> int:
        """Number of known nodes."""
        return len(self.search.points)

    def rows(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """b(z), CSR array of shape (q, n_nodes)."""
        k = self.n_neighbors
        neighbors = self.search.knn(queries, k, n_jobs)[1]
        gaps = self.search.points[neighbors] - queries[:, None]  # (q, k, d)
        box = None if self.search.metric is None else self.search.metric.box
        if box is not None:  # the shortest way around
            sides = np.where(np.asarray(box) > 0, box, np.inf)
            gaps = gaps - np.where(np.isfinite(sides), sides, 0.0) * np.rint(gaps / sides)
        found = interpolation_weights(gaps, self.n_axes)
        ends = k * np.arange(len(queries) + 1)
        weights = narrow_csr(found.ravel(), neighbors.ravel(), ends, self.n_nodes)
        weights.sort_indices()
        return weights


@stored
@dataclass(frozen=True, eq=False)
class Barycentric:
    """Barycentric coordinates of the nearest point of a mesh whose vertices are the nodes."""

    mesh: TriangleMesh
    growth = 1.0

    @property
    def n_nodes(self) -> int:
        """Number of vertices."""
        return self.mesh.n_vertices

    def rows(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """b(z), CSR array of shape (q, n_vertices)."""
        return barycentric_weights(self.mesh, self.mesh.closest_points(queries))


def interpolation_rule(graph: Graph, dim: int, nodes: IntArray | None = None) -> Interpolation | Barycentric:
    """The rule that interpolates values at some nodes, all by default: barycentric if they are a whole mesh."""
    if graph.mesh is not None and nodes is None:
        return Barycentric(graph.mesh)
    search = graph._search if nodes is None else NeighborSearch(graph.positions[nodes], graph.metric)
    n, d = search.points.shape
    if dim > 5:  # a quadratic would need more than a hundred neighbours, most of them far away
        return Interpolation(search, 0, min(2 * dim, n))
    # From dimension 3 on, use one axis more than the dimension: clouds of affordable size are too coarse for
    # tangent spaces alone, and the offset along the main normal captures the curvature. Neighbours per coefficient:
    # 3 and 4 had the smallest errors of exp(-20 L) on four surfaces and on three-dimensional spheres.
    n_axes = min(dim + (dim > 2), d)
    return Interpolation(search, n_axes, min((3 + (dim > 2)) * (n_axes + 1) * (n_axes + 2) // 2, n))


def interpolation_weights(gaps: FloatArray, n_axes: int) -> FloatArray:
    """Weights of neighbours that interpolate their values at the origin, shape (q, k); they sum to one.

    Weights 1 / distance^2 or, with axes, those of a linear and then of a quadratic polynomial in the principal
    axes, if there are enough neighbours.

    Parameters
    ----------
    gaps : array of shape (q, k, d)
        Positions of the neighbours relative to the query.
    n_axes : int
    """
    _, k, d = gaps.shape
    largest = np.abs(gaps).max(axis=(1, 2), initial=0.0)
    gaps = gaps / np.where(largest > 0, largest, 1.0)[:, None, None]
    distances = np.linalg.norm(gaps, axis=2)
    radius = distances.max(axis=1)
    inside = np.where(radius > 0, radius, 1.0)[:, None]
    gaps, distances = gaps / inside[:, :, None], distances / inside
    at_node = distances < 1e-12
    found = np.where(at_node.any(axis=1)[:, None], at_node, 1 / np.where(at_node, 1.0, distances) ** 2)
    found = found / found.sum(axis=1, keepdims=True)
    some = np.flatnonzero(~at_node.any(axis=1) & (radius > 0))
    if not n_axes or not len(some):
        return np.asarray(found)
    gaps, distances, result = gaps[some], distances[some], found[some]
    centred = gaps - gaps.mean(axis=1, keepdims=True)
    if k < d:  # the smaller of both products
        sizes, vectors = np.linalg.eigh(centred @ centred.transpose(0, 2, 1))
        sizes, vectors = sizes[:, : -n_axes - 1 : -1], vectors[:, :, : -n_axes - 1 : -1]
        kept = sizes > 1e-14 * sizes[:, :1]  # smaller ones are rounding errors
        roots = np.where(kept, 1 / np.sqrt(np.where(kept, sizes, 1.0)), 0.0)
        axes = centred.transpose(0, 2, 1) @ vectors * roots[:, None]
    else:
        axes = np.linalg.eigh(centred.transpose(0, 2, 1) @ centred)[1][:, :, : -n_axes - 1 : -1]
    places = gaps @ axes  # (q, k, axes)
    # Infinite at a node, so that its own value is returned, and nearly zero where the next neighbour enters.
    weights = 1 / distances**2 - 0.999
    first, second = np.tril_indices(places.shape[2])
    linear = np.concatenate([np.ones((*places.shape[:2], 1)), places], axis=2)
    quadratic = np.concatenate([linear, places[:, :, first] * places[:, :, second]], axis=2)
    for columns in (linear, quadratic):
        if (n := columns.shape[2]) > k:
            break
        system = columns.transpose(0, 2, 1) @ (weights[:, :, None] * columns)  # (q, n, n)
        # Suppresses directions that the neighbours do not determine, within the precision of a squared system.
        system[:, range(1, n), range(1, n)] += 1e-10 * system[:, :1, 0]
        solved = np.linalg.solve(system, np.eye(n)[:, :1])  # (q, n, 1)
        fitted = weights * (columns @ solved)[:, :, 0]
        total = fitted.sum(axis=1)
        good = np.abs(total - 1) < 1e-3  # not far outside, where rounding dominates
        fitted /= np.where(good, total, 1.0)[:, None]
        # The sum of absolute weights is the factor by which errors are amplified: at held-out nodes of four
        # surfaces at most 2.6. If it is larger, they are blended continuously with the previous weights, so that
        # the sum is at most 4.
        size = np.abs(fitted).sum(axis=1)
        share = np.where(size <= 4, 1.0, (3 / np.maximum(size - 1, 3)) ** 2) * good
        result += share[:, None] * (fitted - result)
    found[some] = result
    return np.asarray(found)


def rows_of(rule: PointRule, queries: FloatArray, n_jobs: int) -> Any:
    """Rows of a rule, CSR, in blocks by threads; steps have their own threads."""
    if isinstance(rule, WalkStep | JoinedSteps) or len(queries) <= 1024:
        return rule.rows(queries, n_jobs)
    parts = [queries[k : k + 1024] for k in range(0, len(queries), 1024)]
    return sparse.vstack(quick_map(rule.rows, parts, n_jobs), format="csr")


def times_table(rows: Any, table: Any, n_jobs: int, *, as_sparse: bool) -> Any:
    """CSR rows times a table, CSR with sorted columns or dense; a row does not depend on the others."""
    if as_sparse:
        found = rows @ table
        found.sort_indices()
        return found
    out = np.zeros((rows.shape[0], table.shape[1]))
    in_blocks(partial(loops.add_product, *csr_parts(rows), *csr_parts(table), out), len(out), 128, n_jobs)
    return out


def step_times_table(fused: "Fused", places: FloatArray, n_jobs: int) -> FloatArray:
    """One heat step times a table, dense, at points in the nodes' coordinates; half the time of both products."""
    heat = fused.steps.search.points, *fused.steps[1:], fused.extension.bandwidth
    out = np.zeros((len(places), len(fused.blocks.order)))
    given = places, visiting_order(places, fused.cells), *fused.cells, *heat, *fused.blocks, out
    in_blocks(partial(loops.heat_step_rows, *given), len(places), 128, n_jobs)
    return out


BLOCK: int = loops.BLOCK  # columns of a table added at a time


class Blocks(NamedTuple):
    """A table (N, m) in blocks of reordered columns."""

    ends: Any  # uint64 (N + 1,): blocks of row i are ends[i] up to ends[i + 1]
    starts: Any  # uint32 (n_blocks,): first column of each, in the order of ``order``
    values: Any  # (BLOCK n_blocks,)
    order: Any  # int64 (m,): columns of the table in their new order


def make_blocks(table: Any, anchors: FloatArray) -> Blocks | None:
    """Cut a CSR table into blocks of columns of neighbouring anchors; None if they are nearly empty."""
    order = cKDTree(anchors, leafsize=BLOCK).indices.astype(np.int64)
    place = np.argsort(order, kind="stable")
    sorted_ = sparse.csr_array((table.data, place[table.indices], table.indptr), shape=table.shape, copy=True)
    sorted_.sort_indices()
    block, lane = np.divmod(sorted_.indices, BLOCK)
    opens = np.ones(table.nnz, dtype=bool)  # entries that are the first of their block
    opens[1:] = block[1:] != block[:-1]
    opens[table.indptr[:-1][np.diff(table.indptr) > 0]] = True
    before = np.concatenate([[0], np.cumsum(opens)])
    ends = before[table.indptr].astype(np.uint64)
    if table.nnz > 2**22 and 2 * int(ends[-1]) > table.nnz:  # large, with less than two columns per block
        return None
    values = np.zeros(BLOCK * int(ends[-1]))
    values[BLOCK * (before[1:] - 1) + lane] = sorted_.data
    return Blocks(ends, (BLOCK * block[opens]).astype(np.uint32), values, order)


class Fused(NamedTuple):
    """What the product of a heat step and a table needs."""

    extension: HeatExtension
    steps: FusedSteps
    cells: Cells
    blocks: Blocks


def product(left: Any, right: Any, n_jobs: int) -> FloatArray:
    """Left times right transposed, dense."""
    same = left is right
    left = _worth_dense(left)
    right = left if same else _worth_dense(right)
    if sparse.issparse(left) or sparse.issparse(right):
        return as_dense(left @ right.T)
    if same:
        return symmetric_product(left, n_jobs)
    result = np.zeros((len(left), len(right)), np.result_type(left, right))
    with one_blas_thread():
        quick_map(lambda span: np.matmul(left[span], right.T, out=result[span]), row_spans(len(left)), n_jobs)
    return result


def _worth_dense(rows: Any) -> Any:
    """Rows as a dense array if that makes products faster: above 5 % of nonzeros."""
    filled = sparse.issparse(rows) and rows.nnz > 0.05 * rows.shape[0] * rows.shape[1]
    return rows.toarray() if filled else rows


def symmetric_product(rows: FloatArray, n_jobs: int) -> FloatArray:
    """Rows times their transpose, in blocks that do not depend on ``n_jobs``: each pair of blocks once."""
    result = np.zeros((len(rows), len(rows)))

    def work(pair: tuple[slice, slice]) -> None:
        first, second = pair
        block = rows[first] @ rows[second].T
        result[first, second] = block
        if first != second:
            result[second, first] = block.T

    with one_blas_thread():
        quick_map(work, combinations_with_replacement(row_spans(len(rows)), 2), n_jobs)
    return result


def row_spans(n: int) -> list[slice]:
    """Blocks of about 128 rows, at most 16 of them: enough for threads, and large enough for products."""
    edges = np.linspace(0, n, max(1, min(16, n // 128)) + 1).astype(np.int64).tolist()
    return list(map(slice, edges[:-1], edges[1:]))


@stored
@dataclass(frozen=True, eq=False)
class FeatureMap:
    """phi(z)_l = sqrt(w_l) g(z, anchor l), where g(z, .) = rows(z) @ table, times a window that is 0 off the space.

    In the graph clock a point counts as a node: its features are multiplied by the root of its own measure.

    Attributes
    ----------
    kernel : GraphKernel
        Graph and kernel.
    rule : PointRule
    table : CSR array of shape (rule.n_nodes, m), or NetworkField
        g(node, anchor l), without the step that the rule takes. A network gives signatures, without a table.
    anchors : int array of shape (m,)
        Nodes.
    weights : array of shape (m,)
        Quadrature weights w_l, in the unit of the measure.
    factor : float
        Ratio of the kernel that features represent to the stated one.
    """

    kernel: GraphKernel
    rule: PointRule
    table: Any
    anchors: IntArray
    weights: FloatArray
    factor: float = 1.0

    def _check_loaded(self) -> None:
        """Raise if the parts do not fit together: compiled code relies on sizes and indices."""
        m = len(self.anchors)
        check_indices(self.anchors, "anchors", self.kernel.graph.n_nodes)
        check_amounts("weights", self.weights, m)
        check_real(self.factor, "factor", POSITIVE)
        if isinstance(self.table, NetworkField):
            if len(self.table.bounds) != m:
                reject("table", f"a network with {m} anchors", len(self.table.bounds))
        else:
            check_csr("table", self.table, (self.rule.n_nodes, m), signed=True)

    @property
    def unit_scale(self) -> float:
        """Factor from the unit of the measure to the user's: features represent a kernel per volume."""
        return float(self.kernel.unit**-0.5) if self.kernel.per_volume else 1.0

    @property
    def output_scale(self) -> float:
        """Factor from features in the unit of the measure to those that the user gets."""
        return self.unit_scale * float(self.factor**0.5)

    @cached_property
    def columns(self) -> FloatArray:
        """Factors of the columns of g, shape (m,); for a network those of signatures."""
        weights = self.weights
        if isinstance(self.table, NetworkField):
            own = self.kernel.measure[self.anchors]
            weights = np.divide(weights, own, out=np.zeros_like(own), where=own > 0)
        return np.sqrt(weights)

    @property
    def _own_power(self) -> float:
        """Power of a query's own measure by which its values are multiplied."""
        return 0.5 * (not self.kernel.per_volume) - 0.5 * isinstance(self.table, NetworkField)

    @cached_property
    def bound(self) -> FloatArray:
        """Largest value that each feature can take, shape (m,), in the unit of the measure."""
        positive = self.kernel.measure[self.kernel.measure > 0]
        extreme = positive.max() if self._own_power >= 0 else positive.min()
        return np.asarray(self._largest * self.columns * extreme**self._own_power)

    @cached_property
    def _largest(self) -> FloatArray:
        """Largest absolute value of each column before all factors, shape (m,)."""
        if isinstance(self.table, NetworkField):
            return self.table.bounds
        peaks = sparse.csr_array(abs(self.table)).max(axis=0).toarray()
        return self.rule.growth * np.asarray(peaks, np.float64).ravel()

    @cached_property
    def _fused(self) -> Fused | None:
        """For fused products; None unless the rule is a step along nearly straight lines, with full blocks."""
        extension: Any = self.rule.graph.extension if isinstance(self.rule, WalkStep) else None
        steps: Any = extension.nodes.fused(extension.factors) if isinstance(extension, HeatExtension) else None
        cells: Any = None if steps is None else steps.search.cells(extension.radius)
        blocks = None if cells is None else make_blocks(self.table, self.kernel.graph.positions[self.anchors])
        return None if blocks is None else Fused(extension, steps, cells, blocks)

    def values(self, placed: FloatArray, n_jobs: int = 1, *, as_sparse: bool = False) -> Any:
        """g(z, anchor l) of points on the space, CSR or dense of shape (q, m); signatures for a network."""
        if isinstance(self.table, NetworkField):
            return self.table.values(placed, n_jobs)
        is_sparse = bool(self.table.nnz < 0.01 * self.table.shape[0] * self.table.shape[1])
        fused = None if is_sparse or not len(placed) else self._fused
        if fused is not None:
            places = np.ascontiguousarray(fused.extension.nodes.inside(placed))
            if not as_sparse:
                return step_times_table(fused, places, n_jobs)
            order = visiting_order(places, fused.cells)  # neighbours share rows of the table
            parts = np.split(places[order], range(1024, len(places), 1024))  # limits memory for dense rows
            found = quick_map(lambda z: nonzeros(step_times_table(fused, z, 1)), parts, n_jobs)
            return sparse.vstack(found, format="csr")[np.argsort(order)]
        as_sparse = as_sparse or is_sparse
        found = times_table(rows_of(self.rule, placed, n_jobs), self.table, n_jobs, as_sparse=as_sparse)
        if self.rule.growth > 1:  # weights may be negative
            entries, largest = (found.data, self._largest[found.indices]) if as_sparse else (found, self._largest)
            np.clip(entries, -largest if self.kernel.asymmetric else 0.0, largest, out=entries)
        return found

    @cached_property
    def _interpolation(self) -> PointRule:
        """Interpolates values known at all nodes."""
        return interpolation_rule(self.kernel.graph, self.kernel.dim)

    def own(self, placed: FloatArray, n_jobs: int = 1) -> FloatArray:
        """Factor of each point from its own measure, as if it were a node, shape (q,).

        The measure is interpolated between nodes, within the range of its values.
        """
        measure = self.kernel.measure
        logs = np.log(np.maximum(measure, measure[measure > 0].min()))
        found = rows_of(self._interpolation, placed, n_jobs) @ logs
        return np.asarray(np.exp(self._own_power * np.clip(found, logs.min(), logs.max())))

    def rows(
        self,
        queries: FloatArray,
        n_jobs: int = 1,
        *,
        side: str = "left",
        absolute: bool = True,
        as_sparse: bool = False,
    ) -> tuple[Any, FloatArray]:
        """Features of points in double precision, dense or CSR of shape (q, m), and the window, shape (q,).

        Parameters
        ----------
        queries : array of shape (q, d)
        n_jobs : int
            Number of threads, which does not change the result.
        side : {"left", "right"}
            For kernels without nonnegative features, whose two factors differ: the right one is the point itself,
            spread over the nodes.
        absolute : bool
            Whether features are in the user's unit and include the factor, or are in the unit of the measure.
        as_sparse : bool
            Always return CSR rows.
        """
        with quiet_underflow():
            placed = self.kernel.graph.placed(queries, n_jobs)
            window = self.kernel.window(queries, placed, n_jobs)
            columns = np.full(len(self.anchors), self.output_scale if absolute else 1.0)
            factors = window * self.own(placed, n_jobs) if self._own_power else window
            if side == "right" and self.kernel.asymmetric:
                found = rows_of(self._interpolation, placed, n_jobs)[:, self.anchors]
            else:
                found = self.values(placed, n_jobs, as_sparse=as_sparse)
                columns *= self.columns
            if sparse.issparse(found):
                found.data *= columns[found.indices]
                found.data *= np.repeat(factors, np.diff(found.indptr))
                found.eliminate_zeros()  # from anchors without weight, far points and clipping
                return found, window
            found *= columns
            if not (factors == 1).all():
                found *= factors[:, None]
            return found, window

    def normalized(self, n_jobs: int = 1) -> "FeatureMap":
        """The same map with the factor that makes K(x, x) one on average over the nodes.

        The average is over all nodes, because a subset by index would depend on the order of the points. For a
        kernel without nonnegative features it may be zero or negative; the factor is then one.
        """
        usable = np.flatnonzero(self.kernel.measure > 0)
        total = np.float64(0.0)
        size = self.block_size(as_sparse=False)
        for start in range(0, len(usable), size):
            places = self.kernel.graph.positions[usable[start : start + size]]
            left = right = self.rows(places, n_jobs, absolute=False)[0]
            if self.kernel.asymmetric:
                right = self.rows(places, n_jobs, side="right", absolute=False)[0]
            with np.errstate(all="ignore"):
                total += (left * right).sum()
        with np.errstate(all="ignore"):
            factor = len(usable) / total / np.float64(self.unit_scale) ** 2
        if abs(factor - 1) < 1e-12:  # rows have length one already, up to rounding
            return self
        found = replace(self, factor=float(factor)) if 0 < factor < np.inf else self
        # A cached property keeps its value in vars(), which are writable in a frozen class too. The new map takes
        # the values already computed, such as the table in blocks: none of them depends on the factor.
        vars(found).update(vars(self) | {"factor": found.factor})
        return found

    def block_size(self, *, as_sparse: bool) -> int:
        """Number of points in a block that fits in memory: 256 MB of dense features, 100 MB of sparse ones."""
        most = 2**25 // len(self.anchors)
        if as_sparse and not isinstance(self.table, NetworkField):
            # The rows of the nodes that a step reaches overlap; on surfaces their union is about three times as
            # large.
            n, m = self.table.shape
            most = 2**23 // min(m, 1 + self.kernel.graph.affinity.nnz // n + 4 * self.table.nnz // n)
        # Without cells, in more than three dimensions, the list of the nodes around a point takes up to 10 kB.
        return min(max(1, most), 2**15)

    def spans(self, n: int, *, as_sparse: bool = False) -> Iterator[slice]:
        """Blocks of n points; a single empty one if there are none."""
        step = self.block_size(as_sparse=as_sparse)
        for start in range(0, max(n, 1), step):
            yield slice(start, min(start + step, n))

    @quiet_underflow()  # also of conversions to single precision
    def features(
        self,
        points: FloatArray,
        dtype: Any,
        n_jobs: int,
        *,
        as_sparse: bool,
        side: str = "left",
        progress: Progress = silent,
    ) -> Any:
        """Features of all points, dense or CSR, with a single warning about points off the space."""
        window = np.ones(len(points))
        spans = list(self.spans(len(points), as_sparse=as_sparse))
        whole: Any = None if as_sparse or len(spans) == 1 else np.zeros((len(points), len(self.anchors)), dtype)
        parts = []
        for span in spans:
            rows, window[span] = self.rows(points[span], n_jobs, side=side, as_sparse=as_sparse)
            rows = (sparse.csr_array(rows) if as_sparse else as_dense(rows)).astype(dtype, copy=False)
            if whole is None:
                parts.append(rows)
            else:
                whole[span] = rows
            if len(spans) > 1:
                progress("features of points", span.stop, len(points))
        warn_of_far(window)
        if whole is not None:
            return whole
        return parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")


class FarQueryWarning(ManifoldWarning):
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
