"""A field that takes one step of the walk from a point, and reads the rest of the series from a table of the nodes.

The series of a walk that always takes a step is P(z, .) T: P(z, .) is one step from z and T sums the other steps.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from manifoldrf._codec import stored
from manifoldrf._compiling import compiled
from manifoldrf._runtime import quick_map
from manifoldrf._validation import FloatArray, IntArray, reject
from manifoldrf.fields.data import (
    AbstractField,
    Problem,
    SignatureOptions,
    series_values,
    sparse_product,
    without_negligible,
)
from manifoldrf.geometry.csr import (
    as_dense,
    check_csr,
    check_shape,
    csr_parts,
    read_only_view,
    reciprocal,
    sort_entries,
)
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.heat import HeatExtension, weigh
from manifoldrf.geometry.neighbors import Cells, collect, room_for, visiting_order
from manifoldrf.kernels.graph_kernels import shifted


@compiled()
def add_product(rows, table, out, span):  # type: ignore[no-untyped-def]
    """out[i] += rows[i] @ table for i in the span; both factors as (indptr, indices, data)."""
    row_ends, row_columns, row_values = rows
    table_ends, table_columns, table_values = table
    for i in range(span[0], span[1]):
        target = out[i]
        for p in range(row_ends[i], row_ends[i + 1]):
            weight = row_values[p]
            j = row_columns[p]
            for q in range(table_ends[j], table_ends[j + 1]):
                target[table_columns[q]] += weight * table_values[q]


# Fewest nonzero columns of a block, on average: with fewer, blocks of large tables take too much memory.
_FEWEST_OF_A_BLOCK, _LARGE_TABLE = 2, 2**22
BLOCK = 8  # columns of a table added at a time: two registers of four doubles
_SHIFT = np.uint32(BLOCK.bit_length() - 1)  # from a column to its block
# Unsigned indices cannot be negative, so the compiler omits the check for indices that count from the end.
_1, _2, _3, _4, _5, _6, _7, _8 = (np.uint64(k) for k in range(1, 9))


class Blocks(NamedTuple):
    """A table (N, m) in blocks of reordered columns."""

    ends: Any  # uint64 (N + 1,): blocks of row i are ends[i] up to ends[i + 1]
    starts: Any  # uint32 (n_blocks,): first column of each, in the order of ``order``
    values: Any  # (8 n_blocks,)
    order: Any  # int64 (m,): columns of the table in their new order


def make_blocks(table: Any, order: IntArray) -> Blocks | None:
    """Cut a CSR table into blocks of columns in a given order; None if blocks would be nearly empty."""
    place = np.argsort(order, kind="stable")
    counts = np.zeros(table.shape[0] + 1, np.int64)
    parts = csr_parts(table)
    _count_blocks(parts, place, counts)
    ends = np.cumsum(counts).astype(np.uint64)
    if table.nnz > _LARGE_TABLE and _FEWEST_OF_A_BLOCK * int(ends[-1]) > table.nnz:
        return None
    starts, values = np.zeros(int(ends[-1]), np.uint32), np.zeros(BLOCK * int(ends[-1]))
    _fill_blocks(parts, place, ends, starts, values)
    return Blocks(ends, starts, values, order)


@compiled()
def _count_blocks(table, place, counts):  # type: ignore[no-untyped-def]
    """counts[i + 1] = number of blocks in row i."""
    indptr, indices, _ = table
    seen = np.full((len(place) + BLOCK - 1) // BLOCK, -1)
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            b = place[indices[e]] // BLOCK
            if seen[b] != i:
                seen[b] = i
                counts[i + 1] += 1


@compiled()
def _fill_blocks(table, place, ends, starts, values):  # type: ignore[no-untyped-def]
    indptr, indices, data = table
    where = np.full((len(place) + BLOCK - 1) // BLOCK, -1)
    for i in range(len(indptr) - 1):
        columns = place[indices[indptr[i] : indptr[i + 1]]]
        entries = np.argsort(columns)
        q = np.int64(ends[i])
        for p in entries:
            b = columns[p] // BLOCK
            if where[b] < np.int64(ends[i]):  # a block of an earlier row
                where[b] = q
                starts[q] = BLOCK * b
                q += 1
            values[BLOCK * where[b] + columns[p] % BLOCK] = data[indptr[i] + p]


@compiled()
def heat_step_rows(queries, visits, cells, heat, blocks, out, span):  # type: ignore[no-untyped-def]
    """out[i] = one heat step from query i times a table, without forming the matrix of steps.

    Consecutive queries are close to each other, so rows of the table are still in the cache. ``heat`` holds the
    Sinkhorn factors of the nodes and the bandwidth of a step.
    """
    row = _workspace(blocks)[0]
    ranges = np.zeros((9, 2), np.int64)
    columns, squares = room_for(256)
    for i in visits[span[0] : span[1]]:
        found, columns, squares = collect(queries[i], cells, ranges, columns, squares)
        total = weigh(squares[:found], columns, heat[0], heat[1])
        row[:] = 0.0
        for p in range(found if total > 0 else 0):
            _add_blocks(row, blocks, columns[p], squares[p] / total)
        for c in range(len(blocks.order)):
            out[i, blocks.order[c]] = row[c]


@compiled()
def sparse_heat_step_rows(queries, cells, heat, blocks, span):  # type: ignore[no-untyped-def]
    """The same for a range of queries as sparse rows: numbers of entries, columns and values."""
    workspace = _workspace(blocks)
    ranges = np.zeros((9, 2), np.int64)
    near, squares = room_for(256)
    counts = np.zeros(span[1] - span[0], np.int64)
    columns, values = room_for(64 * len(counts))
    used = 0
    for i in range(span[0], span[1]):
        found, near, squares = collect(queries[i], cells, ranges, near, squares)
        total = weigh(squares[:found], near, heat[0], heat[1])
        if total > 0:
            squares[:found] /= total
            step = near[:found], squares
            columns, values, end = _append(i, step, blocks, workspace, columns, values, used)
            counts[i - span[0]] = end - used
            used = end
    return counts, columns[:used], values[:used]


@compiled()
def sparse_rows(steps, blocks, span):  # type: ignore[no-untyped-def]
    """Rows of a CSR matrix of steps (indptr, indices, data) times a table, as sparse rows."""
    ends, nodes, shares = steps
    workspace = _workspace(blocks)
    counts = np.zeros(span[1] - span[0], np.int64)
    columns, values = room_for(64 * len(counts))
    used = 0
    for i in range(span[0], span[1]):
        entries = slice(ends[i], ends[i + 1])
        step = nodes[entries], shares[entries]
        columns, values, end = _append(i, step, blocks, workspace, columns, values, used)
        counts[i - span[0]] = end - used
        used = end
    return counts, columns[:used], values[:used]


@compiled()
def place_rows(rows, where, ends, columns, values):  # type: ignore[no-untyped-def]
    """Copy sparse rows (counts, columns, values) to their places in a CSR array."""
    counts, own_columns, own_values = rows
    begin = 0
    for r in range(len(counts)):
        for p in range(counts[r]):
            columns[ends[where[r]] + p] = own_columns[begin + p]
            values[ends[where[r]] + p] = own_values[begin + p]
        begin += counts[r]


@compiled()
def _append(i, step, blocks, workspace, columns, values, used):  # type: ignore[no-untyped-def]
    """Append sum_p shares[p] table[nodes[p]] to lists of columns and values; return the lists and their new end.

    The workspace is a row, which is zero before and after, the last query that reached each block, and a list of
    first columns of blocks.
    """
    nodes, shares = step
    row, seen, touched = workspace
    n_touched = 0
    for p in range(len(nodes)):
        for q in range(blocks.ends[nodes[p]], blocks.ends[nodes[p] + 1]):
            b = blocks.starts[q]
            _add_block(row, np.uint64(b), blocks.values, q * _8, shares[p])
            if seen[b >> _SHIFT] != i:
                seen[b >> _SHIFT] = i
                touched[n_touched] = b
                n_touched += 1
    if used + BLOCK * n_touched > len(columns):
        more, larger = room_for(2 * (used + BLOCK * n_touched))
        more[:used], larger[:used] = columns[:used], values[:used]
        columns, values = more, larger
    begin = used
    for first in touched[:n_touched]:
        used = _move(row, first, blocks.order, columns, values, used)
    sort_entries(columns[begin:used], values[begin:used])
    return columns, values, used


@compiled()
def _workspace(blocks):  # type: ignore[no-untyped-def]
    n_blocks = (len(blocks.order) + BLOCK - 1) // BLOCK
    return np.zeros(BLOCK * n_blocks), np.full(n_blocks, -1), np.zeros(n_blocks, np.int64)


@compiled()
def _move(row, first, order, columns, values, used):  # type: ignore[no-untyped-def]
    """Move the entries of one block of a row to the end of the lists."""
    for c in range(first, min(first + BLOCK, len(order))):
        if row[c] != 0.0:
            columns[used] = order[c]
            values[used] = row[c]
            row[c] = 0.0
            used += 1
    return used


@compiled()
def _add_blocks(row, blocks, node, share):  # type: ignore[no-untyped-def]
    """Add a row of the table."""
    for q in range(blocks.ends[node], blocks.ends[node + 1]):
        _add_block(row, np.uint64(blocks.starts[q]), blocks.values, q * _8, share)


@compiled()
def _add_block(row, b, values, v, share):  # type: ignore[no-untyped-def]
    """Add a block. All loads come before all stores, because the compiler cannot rule out that arrays overlap."""
    r0, r1, r2, r3 = row[b], row[b + _1], row[b + _2], row[b + _3]
    r4, r5, r6, r7 = row[b + _4], row[b + _5], row[b + _6], row[b + _7]
    r0 += share * values[v]
    r1 += share * values[v + _1]
    r2 += share * values[v + _2]
    r3 += share * values[v + _3]
    r4 += share * values[v + _4]
    r5 += share * values[v + _5]
    r6 += share * values[v + _6]
    r7 += share * values[v + _7]
    row[b], row[b + _1], row[b + _2], row[b + _3] = r0, r1, r2, r3
    row[b + _4], row[b + _5], row[b + _6], row[b + _7] = r4, r5, r6, r7


# Entries below this share of the largest in their column are dropped. The kernel changes by a similar share, and
# the table becomes a quarter smaller.
_NEGLIGIBLE = 3e-6
_DENSE_SHARE = 0.01  # above this share of nonzeros in the table, results are dense
_QUERIES_AT_ONCE = 128  # per task
_SPARSE_AT_ONCE = 512  # the same for sparse rows, because each task first clears a row of all anchors
_PRODUCTS_AT_ONCE = 4096  # the same for products by scipy, which clears such a row in each call


@stored
@dataclass(frozen=True, eq=False)
class StepField(AbstractField):
    """h(z, w_l) = P(z, .) T.

    Attributes
    ----------
    graph : Graph
        Its :meth:`Graph.extend` is the first step.
    table : CSR array of shape (n_nodes, m)
        T.
    """

    graph: Graph
    table: Any

    def check(self, problem: Problem, n_anchors: int) -> None:
        """Raise if the table does not fit the graph, the problem and the anchors."""
        n, d = problem.graph.positions.shape
        check_shape("points", self.graph.positions, (n, d))
        check_csr("table", self.table, (n, n_anchors), signed=problem.asymmetric)
        if self.graph.extension is None:
            reject("extension", "known, or the field has no first step", None)

    @cached_property
    def bounds(self) -> FloatArray:
        """Largest entry of each column of the table."""
        return np.asarray(sparse.csr_array(abs(self.table)).max(axis=0).toarray(), np.float64).ravel()

    @property
    def n_anchors(self) -> int:
        """Number of columns."""
        return int(self.table.shape[1])

    def values(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """h(z, w_l), shape (len(queries), m): dense, or CSR where the table is very sparse."""
        if self._is_sparse:
            return self.sparse_values(queries, n_jobs)
        if not len(queries):
            return np.zeros((0, self.n_anchors))
        cells, blocks = _cells_of(self.graph), self._blocks
        if cells is None or blocks is None:
            return self.rows_of(one_step(self.graph, queries), n_jobs)
        places, heat = read_only_view(np.ascontiguousarray(queries)), self._heat
        visits = visiting_order(places, cells)
        return _over_queries(
            lambda out, span: heat_step_rows(places, visits, cells, heat, blocks, out, span),
            (len(queries), self.table.shape[1]),
            n_jobs,
        )

    def sparse_values(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """h(z, w_l) as a CSR array without stored zeros, computed without a dense result."""
        if not len(queries):
            return sparse.csr_array((0, self.n_anchors))
        cells, blocks = _cells_of(self.graph), self._blocks
        if cells is None or blocks is None:
            return self._sparse_rows(one_step(self.graph, queries), n_jobs)
        visits = visiting_order(queries, cells)
        places, heat = read_only_view(queries[visits]), self._heat
        return _assembled(
            lambda span: sparse_heat_step_rows(places, cells, heat, blocks, span), visits, self.n_anchors, n_jobs
        )

    @property
    def row_entries(self) -> int:
        """Approximate number of nonzero features of a point."""
        n_nodes = self.table.shape[0]
        # The rows of the nodes that a step reaches overlap; on surfaces their union is about three times as large.
        reached = self.graph.affinity.nnz // n_nodes + 4 * self.table.nnz // n_nodes
        return int(min(self.n_anchors, 1 + reached))

    @property
    def _heat(self) -> tuple[FloatArray, float]:
        """Sinkhorn factors of the nodes, bandwidth of a step."""
        extension: Any = self.graph.extension
        return read_only_view(extension.factors), extension.bandwidth

    def values_on(self, device: str, queries: FloatArray, n_jobs: int = 1) -> Any:
        """h(z, w_l) as a CSR array, with the product of the first step and the table on a device."""
        if not len(queries):
            return self.values(queries, n_jobs)
        return sparse_product(one_step(self.graph, queries), self.table, device)

    @property
    def _is_sparse(self) -> bool:
        """Whether results are CSR arrays."""
        return bool(self.table.nnz < _DENSE_SHARE * self.table.shape[0] * self.table.shape[1])

    @cached_property
    def _blocks(self) -> Blocks | None:
        """The table in blocks of columns whose anchors are neighbours."""
        peaks = np.asarray(self.table.argmax(axis=0)).ravel()  # a node at or near each anchor
        order = cKDTree(self.graph.positions[peaks], leafsize=BLOCK).indices.astype(np.int64)
        return make_blocks(self.table, order)

    def rows_of(self, steps: Any, n_jobs: int = 1) -> Any:
        """h(z, w_l) after a given first step, a CSR array of shape (q, n_nodes) whose rows sum to one."""
        if self._is_sparse:
            return self._sparse_rows(steps, n_jobs)
        left, right = csr_parts(steps), csr_parts(self.table)
        shape = steps.shape[0], self.table.shape[1]
        return _over_queries(lambda out, span: add_product(left, right, out, span), shape, n_jobs)

    def _sparse_rows(self, steps: Any, n_jobs: int) -> Any:
        """Steps times the table, CSR."""
        left, blocks = csr_parts(steps), self._blocks
        if blocks is None:
            starts = range(0, max(1, steps.shape[0]), _PRODUCTS_AT_ONCE)
            parts = quick_map(lambda k: steps[k : k + _PRODUCTS_AT_ONCE] @ self.table, starts, n_jobs)
            product = sparse.vstack(parts, format="csr") if len(parts) > 1 else parts[0].tocsr()
            product.sort_indices()
            return product
        visits = np.arange(steps.shape[0])
        return _assembled(lambda span: sparse_rows(left, blocks, span), visits, self.n_anchors, n_jobs)


def _assembled(work: Callable[[tuple[int, int]], Any], visits: IntArray, n_columns: int, n_jobs: int) -> Any:
    """CSR array of the rows that ``work`` computes, a block per task, for queries in the order of the visits."""
    n = len(visits)
    spans = list(pairwise([*range(0, n, _SPARSE_AT_ONCE), n]))
    parts = quick_map(work, spans, n_jobs)
    ends = np.zeros(n + 1, dtype=np.int64)
    for (start, stop), (counts, _, _) in zip(spans, parts, strict=True):
        ends[visits[start:stop] + 1] = counts
    ends = np.cumsum(ends)
    index = np.int32 if max(ends[-1], n_columns) < 2**31 else np.int64
    columns, values = np.zeros(ends[-1], index), np.zeros(ends[-1])

    def place(task: tuple[tuple[int, int], Any]) -> None:
        (start, stop), part = task
        place_rows(part, visits[start:stop], ends, columns, values)

    quick_map(place, zip(spans, parts, strict=True), n_jobs)
    return sparse.csr_array((values, columns, ends.astype(index)), shape=(n, n_columns))


def _over_queries(work: Callable[[FloatArray, tuple[int, int]], None], shape: Any, n_jobs: int) -> FloatArray:
    """An array that ``work`` fills, a block of rows per task."""
    out = np.zeros(shape)
    edges = [*range(0, shape[0], _QUERIES_AT_ONCE), shape[0]]
    quick_map(lambda span: work(out, span), pairwise(edges), n_jobs)
    return out


def _cells_of(graph: Graph) -> Cells | None:
    """Cells of the nodes of a heat graph in a flat space of few dimensions; None for other graphs."""
    extension = graph.extension
    if not isinstance(extension, HeatExtension) or extension.surface is not None or graph.metric is not None:
        return None
    return extension.search.cells(extension.radius)


def fit_step(problem: Problem, anchors: IntArray, options: SignatureOptions) -> StepField:
    """Make the step field of a problem at some anchors."""
    everything = np.arange(problem.graph.n_nodes)
    table = series_values(problem, shifted(problem.series), everything, anchors, options, _NEGLIGIBLE)
    return StepField(problem.graph, table)


def longer_tables(problem: Problem, table: Any, n_jobs: int) -> Iterator[Any]:
    """Tables of step fields with one more step each, beginning with that of a given one."""
    roots = np.sqrt(problem.measure)
    scaled = sparse.diags_array(reciprocal(roots)) @ problem.graph.operator @ sparse.diags_array(roots)
    step = sparse.csr_array(scaled)
    starts = range(0, step.shape[0], _PRODUCTS_AT_ONCE)

    def rows(start: int) -> Any:
        return step[start : start + _PRODUCTS_AT_ONCE] @ table

    while True:
        table = without_negligible(sparse.vstack(quick_map(rows, starts, n_jobs), format="csr"), _NEGLIGIBLE)
        yield table


@stored
@dataclass(frozen=True, eq=False)
class JoinedField(AbstractField):
    """The columns of several step fields, possibly of different graphs, side by side."""

    parts: tuple[StepField, ...]

    def check(self, problem: Problem, n_anchors: int) -> None:
        """Raise if the parts do not fit together."""
        for part in self.parts:
            d = problem.graph.positions.shape[1]
            check_shape("points", part.graph.positions, (part.graph.n_nodes, d))
            check_csr("table", part.table, (part.graph.n_nodes, part.n_anchors))
        if sum(part.n_anchors for part in self.parts) != n_anchors:
            reject("parts", f"fields with {n_anchors} columns in all", [part.n_anchors for part in self.parts])

    @cached_property
    def bounds(self) -> FloatArray:
        """Largest value of each column."""
        return np.concatenate([part.bounds for part in self.parts])

    def values(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """Values of all fields: dense, or CSR if all of them are."""
        found = [part.values(queries, n_jobs) for part in self.parts]
        if all(sparse.issparse(rows) for rows in found):
            return sparse.hstack(found, format="csr")
        return np.hstack([as_dense(rows) for rows in found])


def one_step(graph: Graph, queries: FloatArray) -> Any:
    """One step of the walk from points of the space, CSR (q, n_nodes); rows sum to one, or to zero out of reach."""
    if graph.extension is None:
        reject("extension", "known, or the field has no first step", None)
    steps = graph.extension.affinities(queries)
    totals = np.repeat(np.asarray(steps.sum(axis=1)).ravel(), np.diff(steps.indptr))
    steps.data = np.divide(steps.data, totals, out=np.zeros_like(steps.data), where=totals > 0)
    return steps
