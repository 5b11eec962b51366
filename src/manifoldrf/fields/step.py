"""The one-step extension: from any point the first step of the walk leads to nodes, and from there all is known.

Phi = f_0 + W S with S = sum_k f_{k+1} W^k, so h(z, w) = sum_j P(z, j) T(j, w), where P(z, .) is one step of the
walk from z by the graph's own weights and T = S / sqrt(mu mu) the rest of it. Nothing is fitted; values are
averages of T, hence nonnegative and bounded by it. The term f_0, a spike at the node itself, has no extension and
is left out: it is zero for W^n, e^-10 for exp(-20 L), and the reason to take another field where it is large.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from manifoldrf._threads import quick_map
from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.fields._devices import sparse_product
from manifoldrf.fields._products import add_product
from manifoldrf.fields._step_rows import (
    BLOCK,
    Blocks,
    heat_step_rows,
    make_blocks,
    place_rows,
    sparse_heat_step_rows,
    sparse_rows,
)
from manifoldrf.fields.abstract_field import AbstractField
from manifoldrf.fields.data import Setting, Teaching, series_values
from manifoldrf.geometry._cells import Cells, visiting_order
from manifoldrf.geometry.extension import HeatExtension
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels.shifted import shifted

# Entries below this share of the largest in their column are left out: the kernel changes by as little, and a
# quarter of the table is saved.
_NEGLIGIBLE = 3e-6
_DENSE_SHARE = 0.01  # above this share of nonzeros in the table, results are dense
_QUERIES_AT_ONCE = 128  # per task: enough to keep threads busy
_SPARSE_AT_ONCE = 512  # of sparse rows: each task clears a row of all anchors first
_PRODUCTS_AT_ONCE = 4096  # of rows that scipy multiplies: it clears a row of all anchors for each call, too


@dataclass(frozen=True, eq=False)
class StepField(AbstractField):
    """h(z, w_l) = P(z, .) T.

    Attributes
    ----------
    graph : Graph
        Whose :meth:`Graph.extend` is the first step.
    table : CSR array of shape (n_nodes, m)
        T.
    """

    graph: Graph
    table: Any

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
        places, heat = np.ascontiguousarray(queries), self._heat
        visits = visiting_order(places, cells)
        return _over_queries(
            lambda out, span: heat_step_rows(places, visits, cells, heat, blocks, out, span),
            (len(queries), self.table.shape[1]),
            n_jobs,
        )

    def sparse_values(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """The same, CSR: zeros are never stored, and no dense row outlives its query."""
        if not len(queries):
            return sparse.csr_array((0, self.n_anchors))
        cells, blocks = _cells_of(self.graph), self._blocks
        if cells is None or blocks is None:
            return self._sparse_rows(one_step(self.graph, queries), n_jobs)
        visits = visiting_order(queries, cells)
        places, heat = np.ascontiguousarray(queries[visits]), self._heat
        return _assembled(
            lambda span: sparse_heat_step_rows(places, cells, heat, blocks, span), visits, self.n_anchors, n_jobs
        )

    @property
    def row_entries(self) -> int:
        """About so many features of a point are not zero."""
        n_nodes = self.table.shape[0]
        # Rows of the nodes that a step reaches overlap: together on surfaces about three times as many as one has.
        reached = self.graph.affinity.nnz // n_nodes + 4 * self.table.nnz // n_nodes
        return int(min(self.n_anchors, 1 + reached))

    @property
    def _heat(self) -> tuple[FloatArray, float]:
        """Sinkhorn factors of the nodes, bandwidth of a step."""
        extension: Any = self.graph.extension
        return extension.factors, extension.bandwidth

    def values_on(self, device: str, queries: FloatArray, n_jobs: int = 1) -> Any:
        """The same, CSR, with the product of the first step and the table on a device."""
        if not len(queries):
            return self.values(queries, n_jobs)
        return sparse_product(one_step(self.graph, queries), self.table, device)

    @property
    def _is_sparse(self) -> bool:
        """Whether results are CSR arrays."""
        return bool(self.table.nnz < _DENSE_SHARE * self.table.shape[0] * self.table.shape[1])

    @cached_property
    def _blocks(self) -> Blocks | None:
        """The table in blocks of neighbouring columns, where neighbours are seen together."""
        peaks = np.asarray(self.table.argmax(axis=0)).ravel()  # where each anchor lies, or near it
        order = cKDTree(self.graph.positions[peaks], leafsize=BLOCK).indices.astype(np.int64)
        return make_blocks(self.table, order)

    def rows_of(self, steps: Any, n_jobs: int = 1) -> Any:
        """The same after a given first step: CSR array of shape (q, n_nodes), rows that sum to one."""
        if self._is_sparse:
            return self._sparse_rows(steps, n_jobs)
        left = (steps.indptr, steps.indices, steps.data)
        right = (self.table.indptr, self.table.indices, self.table.data)
        shape = steps.shape[0], self.table.shape[1]
        return _over_queries(lambda out, span: add_product(left, right, out, span), shape, n_jobs)

    def _sparse_rows(self, steps: Any, n_jobs: int) -> Any:
        """Steps times the table, CSR."""
        left, blocks = (steps.indptr, steps.indices, steps.data), self._blocks
        if blocks is None:
            starts = range(0, max(1, steps.shape[0]), _PRODUCTS_AT_ONCE)
            parts = quick_map(lambda k: steps[k : k + _PRODUCTS_AT_ONCE] @ self.table, starts, n_jobs)
            product = sparse.vstack(parts, format="csr") if len(parts) > 1 else parts[0].tocsr()
            product.sort_indices()
            return product
        visits = np.arange(steps.shape[0])
        return _assembled(lambda span: sparse_rows(left, blocks, span), visits, self.n_anchors, n_jobs)


def _assembled(work: Callable[[tuple[int, int]], Any], visits: IntArray, n_columns: int, n_jobs: int) -> Any:
    """CSR array of rows that work makes, some per task, for queries in the order of the visits."""
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
    """An array of zeros that work fills, some rows per task."""
    out = np.zeros(shape)
    edges = [*range(0, shape[0], _QUERIES_AT_ONCE), shape[0]]
    quick_map(lambda span: work(out, span), pairwise(edges), n_jobs)
    return out


def _cells_of(graph: Graph) -> Cells | None:
    """Cells of the nodes of a heat graph in a flat space of few axes; None elsewhere."""
    extension = graph.extension
    if not isinstance(extension, HeatExtension) or extension.surface is not None or graph.metric is not None:
        return None
    return extension.search.cells(extension.radius)


def fit_step(setting: Setting, anchors: IntArray, teaching: Teaching) -> StepField:
    """The field of a kernel on a graph, read at some of its nodes."""
    everything = np.arange(setting.graph.n_nodes)
    table = series_values(setting, shifted(setting.series), everything, anchors, teaching, _NEGLIGIBLE)
    return StepField(setting.graph, table)


def one_step(graph: Graph, queries: FloatArray) -> Any:
    """One step of the walk from new points, CSR (q, n_nodes): rows sum to one or, out of reach, to zero."""
    steps = graph.extend(queries)
    totals = np.repeat(np.asarray(steps.sum(axis=1)).ravel(), np.diff(steps.indptr))
    steps.data = np.divide(steps.data, totals, out=np.zeros_like(steps.data), where=totals > 0)
    return steps
