"""The fitted map from points to features: a field, its anchors and their weights, and the units."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._validation import (
    NONNEGATIVE,
    FloatArray,
    IntArray,
    check_indices,
    check_points,
    check_vector,
)
from manifoldrf.features._integrity import check_field, check_graph
from manifoldrf.features.proximity import Proximity
from manifoldrf.features.spaces import Space
from manifoldrf.fields.abstract_field import AbstractField
from manifoldrf.fields.tangent import AbstractInterpolation, make_interpolation

_DENSE_SHARE = 0.05  # of nonzeros, above which dense products are quicker than sparse ones


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """phi(z)_l = sqrt(w_l) h(z, w_l), times sqrt(mu_z) in the graph clock, and a window that closes off the space.

    Attributes
    ----------
    space : Space
    field : AbstractField
    anchors : int array of shape (m,)
        Nodes.
    weights : array of shape (m,)
    """

    space: Space
    field: AbstractField
    anchors: IntArray
    weights: FloatArray

    def check(self) -> None:
        """Raise where the parts do not fit together, as they may in a file that somebody made."""
        n, m = self.space.graph.n_nodes, len(self.anchors)
        check_indices(self.anchors, "anchors", n)
        check_vector(self.weights, "weights", m, NONNEGATIVE)
        check_vector(self.space.setting.measure, "measure", n, NONNEGATIVE)
        check_points(self.space.graph.positions, "points")
        check_graph(self.space.graph)
        check_field(self.field, self.space.graph, m)

    @cached_property
    def proximity(self) -> Proximity:
        """Distances to the space."""
        return Proximity(self.space.graph, self.space.setting.dim)

    @cached_property
    def _interpolation(self) -> AbstractInterpolation:
        """Of values at all nodes."""
        everything = np.arange(self.space.graph.n_nodes)
        return make_interpolation(self.space.graph, everything, self.space.setting.dim)

    @property
    def _raw(self) -> bool:
        """Whether the field holds signatures themselves, not divided by the roots of the measure."""
        return bool(getattr(self.field, "raw", False))

    @property
    def _own_power(self) -> float:
        """Power of the query's own measure that the field lacks."""
        return (0.5 if self.space.clock == "graph" else 0.0) - (0.5 if self._raw else 0.0)

    @cached_property
    def column_factors(self) -> FloatArray:
        """What columns of the field are multiplied by, shape (m,)."""
        if not self._raw:
            return np.sqrt(self.weights)
        measure = self.space.setting.measure[self.anchors]
        return np.sqrt(np.divide(self.weights, measure, out=np.zeros_like(measure), where=measure > 0))

    @property
    def bound(self) -> FloatArray:
        """Largest value that each feature can take, shape (m,)."""
        measure = self.space.setting.measure
        extreme = measure.max() if self._own_power >= 0 else measure[measure > 0].min()
        return np.asarray(self.field.bounds * self.column_factors * extreme**self._own_power)

    def rows(self, queries: FloatArray, n_jobs: int) -> tuple[Any, FloatArray]:
        """Features of some points, dense or CSR of shape (q, m), and the window, shape (q,)."""
        window = self.proximity.window(queries)
        values = self.field.values(queries, n_jobs)
        return self.scaled(values, window * self.own(queries)), window

    def scaled(self, values: Any, row_factors: FloatArray) -> Any:
        """Values of the field in the unit of the features; the array that is given is changed."""
        columns = self.column_factors
        if sparse.issparse(values):
            values.data *= columns[values.indices]
            values.data *= np.repeat(row_factors, np.diff(values.indptr))
            return values
        values *= columns
        if not (row_factors == 1).all():
            values *= row_factors[:, None]
        return values

    def own(self, queries: FloatArray) -> FloatArray:
        """Factor of each query by its own measure, as if it were a node, shape (q,)."""
        if self._own_power == 0:
            return np.ones(len(queries))
        return self._at(queries) ** self._own_power

    def _at(self, queries: FloatArray) -> FloatArray:
        """The measure, interpolated between nodes and within the range of its values."""
        measure = self.space.setting.measure
        known = np.maximum(measure, measure[measure > 0].min())
        logs = self._interpolation.weights(queries) @ np.log(known)
        return np.asarray(np.exp(np.clip(logs, np.log(known.min()), np.log(known.max()))))

    def right_rows(self, queries: FloatArray) -> tuple[Any, FloatArray]:
        """The second factor of a kernel without nonnegative features: the point itself, spread over the nodes."""
        window = self.proximity.window(queries)
        rows = self._interpolation.weights(queries)[:, self.anchors]
        factors = window * (self._at(queries) ** 0.5 if self.space.clock == "graph" else 1.0)
        data = rows.data * np.repeat(factors, np.diff(rows.indptr))
        return sparse.csr_array((data, rows.indices, rows.indptr), shape=rows.shape), window


def worth_dense(rows: Any) -> Any:
    """Rows as a dense array where their products are quicker so."""
    filled = sparse.issparse(rows) and rows.nnz > _DENSE_SHARE * rows.shape[0] * rows.shape[1]
    return rows.toarray() if filled else rows
