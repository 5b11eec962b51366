"""What a field is: h(z, w_l) for every point z of the space and a fixed list of anchors w_1, ..., w_m.

Signatures are rows of Phi = sum_k f_k W^k, between nodes. Their smooth part is
h(x, w) = Phi(x, w) / sqrt(mu_x mu_w) with mu the measure of the nodes (the degrees of the graph, up to a factor).
The kernel of the space itself is the sum over all nodes j of mu_j h(x, j) h(y, j), an integral that a few anchors
with weights of their own approximate.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.geometry.graphs import Graph

__all__ = ["AbstractField", "FieldData"]


@dataclass(frozen=True, eq=False)
class FieldData:
    """Known values of a field: what a field is fitted to.

    Attributes
    ----------
    graph : Graph
        With points.
    starts : int array of shape (s,)
        Nodes at which the field is known.
    anchors : int array of shape (m,)
        Nodes that are anchors.
    values : CSR array of shape (s, m)
        h(start, anchor), nonnegative, with sorted columns; what is not stored is zero or negligible.
    measure : array of shape (n_nodes,)
        mu, positive but for isolated nodes.
    dim : int
        Intrinsic dimension.
    width : float
        Standard deviation of a signature along one axis, as a length: sqrt(t) for the heat kernel at the time t.
    unit : float
        What raw signatures are multiplied by to be in the paper's unit, f_0 = 1.

    Examples
    --------
    >>> from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere
    >>> from manifoldrf.fields.interpolated import fit_interpolated
    >>> seen = []
    >>> def watched(data):
    ...     seen.append(data.values.shape)
    ...     return fit_interpolated(data)
    >>> features = ManifoldRandomFeatures(HeatKernel(0.2), n_features=64, field=watched, random_state=0)
    >>> features.fit(Sphere()).field_, seen[-1]
    ('watched', (500, 64))
    """

    graph: Graph
    starts: IntArray
    anchors: IntArray
    values: Any
    measure: FloatArray
    dim: int
    width: float
    unit: float = 1.0

    @property
    def points(self) -> FloatArray:
        """Positions of all nodes, shape (n_nodes, d)."""
        return self.graph.positions

    def without(self, held_out: IntArray) -> "FieldData":
        """The same without some of the starts, given by their positions in ``starts``."""
        keep = np.setdiff1d(np.arange(len(self.starts)), held_out)
        return FieldData(
            self.graph,
            self.starts[keep],
            self.anchors,
            self.values[keep],
            self.measure,
            self.dim,
            self.width,
            self.unit,
        )


class AbstractField(ABC):
    """h(z, w_l) at any point z: nonnegative, bounded, finite everywhere, the same whenever it is asked.

    Concrete fields are frozen dataclasses whose attributes are arrays, CSR arrays, numbers, strings, None, and
    other frozen dataclasses of the library: that is all that storage knows.

    Examples
    --------
    Means of the three nearest starts, as a field of one's own:

    >>> from scipy.spatial import cKDTree
    >>> from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere
    >>> @dataclass(frozen=True, eq=False)
    ... class MeanField(AbstractField):
    ...     tree: Any
    ...     table: Any
    ...     @property
    ...     def bounds(self):
    ...         return self.table.max(axis=0)
    ...     def values(self, queries, n_jobs=1):
    ...         gaps, starts = self.tree.query(queries, 3)
    ...         shares = 1 / (gaps + 1e-9)
    ...         return np.einsum("qk,qkm->qm", shares / shares.sum(1, keepdims=True), self.table[starts])
    >>> def fit_mean(data):
    ...     return MeanField(cKDTree(data.points[data.starts]), data.values.toarray())
    >>> features = ManifoldRandomFeatures(HeatKernel(0.4), n_features=64, field=fit_mean, random_state=0)
    >>> features.fit(Sphere()).field_, 0.001 < features.error_.field < 0.1
    ('fit_mean', True)
    """

    @property
    @abstractmethod
    def bounds(self) -> FloatArray:
        """Largest value that each column can take anywhere, shape (m,)."""

    @abstractmethod
    def values(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """h(z, w_l), shape (len(queries), m): a CSR array or, where few entries vanish, a dense one.

        Rows do not depend on the other queries, nor on ``n_jobs``.
        """

    def sparse_values(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """The same as a CSR array."""
        found = self.values(queries, n_jobs)
        return found if sparse.issparse(found) else sparse.csr_array(found)

    @property
    def row_entries(self) -> int:
        """About how many values of a query are not zero, at most."""
        return self.n_anchors

    def values_on(self, device: str, queries: FloatArray, n_jobs: int = 1) -> Any:
        """The same with the heavy part on a device of torch, where the field has one; here it has none.

        Rounded otherwise than :meth:`values`; a row may be rounded otherwise when other queries are asked with it.
        """
        del device
        return self.values(queries, n_jobs)

    @property
    def is_network(self) -> bool:
        """Whether values take so much work that another device is worth looking for."""
        return False

    @property
    def n_anchors(self) -> int:
        """Number of columns."""
        return len(self.bounds)
