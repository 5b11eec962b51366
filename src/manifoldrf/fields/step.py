"""The one-step extension: from any point the first step of the walk leads to nodes, and from there all is known.

Phi = f_0 + W S with S = sum_k f_{k+1} W^k, so h(z, w) = sum_j P(z, j) T(j, w), where P(z, .) is one step of the
walk from z by the graph's own weights and T = S / sqrt(mu mu) the rest of it. Nothing is fitted; values are
averages of T, hence nonnegative and bounded by it. The term f_0, a spike at the node itself, has no extension and
is left out: it is zero for W^n, e^-10 for exp(-20 L), and the reason to take another field where it is large.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._threads import thread_pool
from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.fields._products import add_product
from manifoldrf.fields.abstract_field import AbstractField
from manifoldrf.fields.data import Setting, Teaching, series_values
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels.shifted import shifted

_DENSE_SHARE = 0.01  # above this share of nonzeros in the table, results are dense
_QUERIES_AT_ONCE = 256  # per task: enough to keep threads busy


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
        return self.rows_of(one_step(self.graph, queries), n_jobs)

    def rows_of(self, steps: Any, n_jobs: int = 1) -> Any:
        """The same after a given first step: CSR array of shape (q, n_nodes), rows that sum to one."""
        n_nodes, n_anchors = self.table.shape
        if self.table.nnz < _DENSE_SHARE * n_nodes * n_anchors:
            product = (steps @ self.table).tocsr()
            product.sort_indices()
            return product
        out = np.zeros((steps.shape[0], n_anchors))
        left = (steps.indptr, steps.indices, steps.data)
        right = (self.table.indptr, self.table.indices, self.table.data)
        edges = [*range(0, steps.shape[0], _QUERIES_AT_ONCE), steps.shape[0]]
        with thread_pool(n_jobs) as pool:
            list(pool.map(lambda span: add_product(left, right, out, span), pairwise(edges)))
        return out


def fit_step(setting: Setting, anchors: IntArray, teaching: Teaching) -> StepField:
    """The field of a kernel on a graph, read at some of its nodes."""
    everything = np.arange(setting.graph.n_nodes)
    return StepField(setting.graph, series_values(setting, shifted(setting.series), everything, anchors, teaching))


def one_step(graph: Graph, queries: FloatArray) -> Any:
    """One step of the walk from new points, CSR (q, n_nodes): rows sum to one or, out of reach, to zero."""
    steps = graph.extend(queries)
    totals = np.repeat(np.asarray(steps.sum(axis=1)).ravel(), np.diff(steps.indptr))
    steps.data = np.divide(steps.data, totals, out=np.zeros_like(steps.data), where=totals > 0)
    return steps
