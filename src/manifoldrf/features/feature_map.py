"""The fitted map from points to features: a field, its anchors and their weights, and the units."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._runtime import search_jobs
from manifoldrf._validation import (
    POSITIVE,
    FloatArray,
    IntArray,
    check_indices,
    check_option,
    check_real,
    reject,
)
from manifoldrf.features.integrity import check_amounts, check_field, check_setting
from manifoldrf.features.problem import CLOCKS, Proximity, Space, warn_of_far
from manifoldrf.fields.data import AbstractField
from manifoldrf.fields.interpolated import AbstractInterpolation, make_interpolation, stack_rows
from manifoldrf.fields.options import read_field


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
        m = len(self.anchors)
        check_indices(self.anchors, "anchors", self.space.graph.n_nodes)
        check_amounts("weights", self.weights, m)
        check_option(self.space.clock, "clock", CLOCKS)
        check_real(self.space.unit, "unit", POSITIVE)
        check_setting(self.space.setting)
        check_field(self.field, self.space.setting, m)
        with np.errstate(all="ignore"):
            largest = self.bound * self.scale
        if not np.isfinite(largest).all():
            reject("weights", "such that features are finite", "others")

    @property
    def proximity(self) -> Proximity:
        """Distances to the space."""
        return self.space.proximity

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
        return self._node_factors if self._raw else np.sqrt(self.weights)

    @property
    def _node_factors(self) -> FloatArray:
        """What columns of signatures themselves are multiplied by, shape (m,)."""
        own = self.space.setting.measure[self.anchors]
        return np.sqrt(np.divide(self.weights, own, out=np.zeros_like(own), where=own > 0))

    @property
    def scale(self) -> float:
        """From the unit of the measure to that of the user: features stand for a kernel per volume."""
        return float(self.space.unit**-0.5) if self.space.clock == "manifold" else 1.0

    @cached_property
    def bound(self) -> FloatArray:
        """Largest value that each feature can take, shape (m,); in the unit of the measure."""
        setting = self.space.setting
        measure = setting.measure
        extreme = measure.max() if self._own_power >= 0 else measure[measure > 0].min()
        bound = np.asarray(self.field.bounds * self.column_factors * extreme**self._own_power)
        if self._capped:  # no entry of a signature is larger than the sum of its series
            bound = np.minimum(bound, float(setting.series.spectral(np.ones(1))[0]) * self._node_factors)
        return bound

    @property
    def _capped(self) -> bool:
        """Whether features are those of a node, whose signature is known to be bounded."""
        return self.space.clock == "graph" and not self.space.setting.asymmetric

    def rows(
        self,
        queries: FloatArray,
        n_jobs: int,
        *,
        absolute: bool = True,
        device: str = "cpu",
        as_sparse: bool = False,
    ) -> tuple[Any, FloatArray]:
        """Features of some points, dense or CSR of shape (q, m), and the window, shape (q,).

        ``absolute``: in the unit of the user, else in that of the measure. ``device``: where the field is read.
        ``as_sparse``: as CSR in any case, else as the field makes them.
        """
        window = self.proximity.window(queries)
        values = read_field(self.field, queries, n_jobs, device, as_sparse=as_sparse)
        return self._scaled(values, window * self.own(queries, n_jobs), self.scale if absolute else 1.0), window

    def _scaled(self, values: Any, row_factors: FloatArray, scale: float) -> Any:
        """Values of the field in the unit of the features; the array that is given is changed."""
        columns = scale * self.column_factors
        if sparse.issparse(values):
            values.data *= columns[values.indices]
            values.data *= np.repeat(row_factors, np.diff(values.indptr))
            if self._capped:
                np.minimum(values.data, self.bound[values.indices], out=values.data)
            if not (columns.all() and row_factors.all()):  # anchors without weight, points far away
                values.eliminate_zeros()
            return values
        values *= columns
        if not (row_factors == 1).all():
            values *= row_factors[:, None]
        return np.minimum(values, self.bound, out=values) if self._capped else values

    def own(self, queries: FloatArray, n_jobs: int = 1) -> FloatArray:
        """Factor of each query by its own measure, as if it were a node, shape (q,)."""
        if self._own_power == 0:
            return np.ones(len(queries))
        return self._measure_at(self._shares(queries, n_jobs)) ** self._own_power

    def _shares(self, queries: FloatArray, n_jobs: int) -> Any:
        """Weights that interpolate between all nodes, CSR of shape (q, n_nodes)."""
        return stack_rows(self._interpolation.weights, queries, self.space.graph.n_nodes, n_jobs)

    def _measure_at(self, shares: Any) -> FloatArray:
        """The measure, interpolated between nodes and within the range of its values."""
        measure = self.space.setting.measure
        known = np.maximum(measure, measure[measure > 0].min())
        logs = shares @ np.log(known)
        return np.asarray(np.exp(np.clip(logs, np.log(known.min()), np.log(known.max()))))

    def right_rows(self, queries: FloatArray, n_jobs: int = 1, *, absolute: bool = True) -> tuple[Any, FloatArray]:
        """The second factor of a kernel without nonnegative features: the point itself, spread over the nodes."""
        window = self.proximity.window(queries)
        shares = self._shares(queries, n_jobs)
        rows = shares[:, self.anchors]
        factors = window * (self._measure_at(shares) ** 0.5 if self.space.clock == "graph" else 1.0)
        factors *= self.scale if absolute else 1.0
        data = rows.data * np.repeat(factors, np.diff(rows.indptr))
        return sparse.csr_array((data, rows.indices, rows.indptr), shape=rows.shape), window


_DENSE_AT_ONCE = 2**25  # features in a block: 256 MB
# Sparse ones take 12 bytes and, while they are made, 32 more. Blocks four times as large are no quicker.
_SPARSE_AT_ONCE = 2**23
# Lists of the nodes around each point take up to some kB for it where there are no cells, in more than three
# dimensions: 10 for a heat graph of 1000 nodes, which without a limit were 2 GB for 200,000 points.
_POINTS_AT_ONCE = 2**15


@dataclass(frozen=True)
class Reader:
    """How features are read from a fitted map.

    Attributes
    ----------
    fitted : FeatureMap
    side : {"left", "right"}
        Of a kernel without nonnegative features.
    n_jobs : int
    device : str
        Where the field is read.
    as_sparse : bool
        Whether rows are made as CSR arrays; otherwise they are as the field makes them.
    """

    fitted: FeatureMap
    side: str = "left"
    n_jobs: int = 1
    device: str = "cpu"
    as_sparse: bool = False

    def rows(self, points: FloatArray) -> tuple[Any, FloatArray]:
        """Features in double precision, dense or CSR, and the window."""
        with search_jobs(self.n_jobs):
            return self._rows(points)

    def _rows(self, points: FloatArray) -> tuple[Any, FloatArray]:
        if self.side == "right" and self.fitted.space.setting.asymmetric:
            return self.fitted.right_rows(points, self.n_jobs)
        return self.fitted.rows(points, self.n_jobs, device=self.device, as_sparse=self.as_sparse)

    @property
    def block_size(self) -> int:
        """Number of points in a block."""
        most = _DENSE_AT_ONCE // len(self.fitted.anchors)
        if self.as_sparse:
            most = _SPARSE_AT_ONCE // self.fitted.field.row_entries
        return min(max(1, most), _POINTS_AT_ONCE)

    def spans(self, n: int) -> Iterator[slice]:
        """Blocks of n points; one, empty, if there are none."""
        step = self.block_size
        for start in range(0, max(n, 1), step):
            yield slice(start, min(start + step, n))

    def features(self, points: FloatArray, dtype: Any) -> Any:
        """Features of all points, dense or, if asked for, CSR; one warning for all that are off the space."""
        window = np.ones(len(points))
        spans = list(self.spans(len(points)))
        whole: Any = None if self.as_sparse or len(spans) == 1 else np.zeros((len(points), self._n_features), dtype)
        parts = []
        for span in spans:
            rows, window[span] = self.rows(points[span])
            if whole is None:
                parts.append(self._finished(rows, dtype))
            else:
                whole[span] = self._finished(rows, dtype)
        warn_of_far(window)
        if whole is not None:
            return whole
        return parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")

    @property
    def _n_features(self) -> int:
        return len(self.fitted.anchors)

    def _finished(self, rows: Any, dtype: Any) -> Any:
        """Features in the form asked for."""
        if self.as_sparse:
            rows = rows if sparse.issparse(rows) else sparse.csr_array(rows)
        elif sparse.issparse(rows):
            rows = rows.toarray()
        return rows.astype(dtype, copy=False)
