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
from manifoldrf.fields._products import add_product
from manifoldrf.fields.abstract_field import AbstractField
from manifoldrf.fields.data import Setting, Teaching, series_values, without_negligible
from manifoldrf.geometry._cells import BLOCK, Cells, heat_step_rows, visiting_order
from manifoldrf.geometry.extension import HeatExtension
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels.shifted import shifted

# Entries below this share of the largest in their column are left out: the kernel changes by as little, and a
# quarter of the table is saved.
_NEGLIGIBLE = 3e-6
_DENSE_SHARE = 0.01  # above this share of nonzeros in the table, results are dense
_QUERIES_AT_ONCE = 128  # per task: enough to keep threads busy


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

    @property
    def bounds(self) -> FloatArray:
        """Largest entry of each column of the table."""
        return np.asarray(sparse.csr_array(abs(self.table)).max(axis=0).toarray(), np.float64).ravel()

    def values(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """h(z, w_l), shape (len(queries), m): dense, or CSR where the table is very sparse."""
        if not len(queries):
            return np.zeros((0, self.n_anchors))
        cells = None if self._is_sparse else _cells_of(self.graph)
        if cells is None:
            return self.rows_of(one_step(self.graph, queries), n_jobs)
        extension: Any = self.graph.extension
        heat, blocks = (extension.factors, extension.bandwidth), self._blocks
        places = np.ascontiguousarray(queries)
        visits = visiting_order(places, cells)
        return _over_queries(
            lambda out, span: heat_step_rows(places, visits, cells, heat, blocks, out, span),
            (len(queries), self.table.shape[1]),
            n_jobs,
        )

    @property
    def _is_sparse(self) -> bool:
        """Whether results are CSR arrays."""
        return bool(self.table.nnz < _DENSE_SHARE * self.table.shape[0] * self.table.shape[1])

    @cached_property
    def _blocks(self) -> tuple[Any, Any, FloatArray, IntArray]:
        """The table in blocks of neighbouring columns: ends of rows, first columns, values, order of columns."""
        n_nodes, m = self.table.shape
        peaks = np.asarray(self.table.argmax(axis=0)).ravel()  # where each anchor lies, or near it
        order = cKDTree(self.graph.positions[peaks], leafsize=BLOCK).indices.astype(np.int64)
        place = np.argsort(order, kind="stable").astype(np.int32)[self.table.indices]
        moved = sparse.csr_array((self.table.data.copy(), place, self.table.indptr), shape=(n_nodes, m))
        moved.sort_indices()
        block = moved.indices // BLOCK
        begins = np.ones(len(block), dtype=bool)
        begins[1:] = np.diff(block) != 0
        begins[moved.indptr[:-1][np.diff(moved.indptr) > 0]] = True
        which = np.cumsum(begins) - 1
        values = np.zeros((int(begins.sum()), BLOCK))
        values[which, moved.indices % BLOCK] = moved.data
        ends = np.append(0, np.cumsum(begins))[moved.indptr]
        return ends.astype(np.uint64), (BLOCK * block[begins]).astype(np.uint64), values.ravel(), order

    def rows_of(self, steps: Any, n_jobs: int = 1) -> Any:
        """The same after a given first step: CSR array of shape (q, n_nodes), rows that sum to one."""
        if self._is_sparse:
            product = (steps @ self.table).tocsr()
            product.sort_indices()
            return product
        left = (steps.indptr, steps.indices, steps.data)
        right = (self.table.indptr, self.table.indices, self.table.data)
        shape = steps.shape[0], self.table.shape[1]
        return _over_queries(lambda out, span: add_product(left, right, out, span), shape, n_jobs)


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
    table = series_values(setting, shifted(setting.series), everything, anchors, teaching)
    return StepField(setting.graph, without_negligible(table, _NEGLIGIBLE))


def one_step(graph: Graph, queries: FloatArray) -> Any:
    """One step of the walk from new points, CSR (q, n_nodes): rows sum to one or, out of reach, to zero."""
    steps = graph.extend(queries)
    totals = np.repeat(np.asarray(steps.sum(axis=1)).ravel(), np.diff(steps.indptr))
    steps.data = np.divide(steps.data, totals, out=np.zeros_like(steps.data), where=totals > 0)
    return steps
