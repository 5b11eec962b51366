"""The fitted map from points to features: a field, its anchors and their weights, and the units."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations_with_replacement, pairwise
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._codec import stored
from manifoldrf._runtime import one_blas_thread, quick_map, quiet_underflow, search_jobs
from manifoldrf._validation import POSITIVE, FloatArray, IntArray, check_indices, check_real, reject
from manifoldrf.features.problem import warn_of_far
from manifoldrf.fields.data import AbstractField, Problem, read_field
from manifoldrf.fields.interpolated import AbstractInterpolation, make_interpolation, stack_rows
from manifoldrf.geometry.csr import as_dense, check_amounts, check_numbers, check_shape

_DENSE_AT_ONCE = 2**25  # features in a block: 256 MB
# Sparse features take 12 bytes and, while they are made, 32 more. Blocks four times as large are no faster.
_SPARSE_AT_ONCE = 2**23
# Lists of the nodes around a point take up to some kB where there are no cells, in more than three dimensions:
# 10 kB for a heat graph of 1000 nodes, which would be 2 GB for 200,000 points at once.
_POINTS_AT_ONCE = 2**15
_DENSE_SHARE = 0.05  # share of nonzeros above which dense products are faster than sparse ones
_ROWS_OF_A_BLOCK, _MOST_BLOCKS = 128, 16
_ROUNDING = 1e-12


@stored
@dataclass(frozen=True, eq=False)
class FeatureMap:
    """phi(z)_l = sqrt(w_l) h(z, w_l), times sqrt(mu_z) in the graph clock, and a window that is 0 off the space.

    Attributes
    ----------
    problem : Problem
    field : AbstractField
    anchors : int array of shape (m,)
        Nodes.
    weights : array of shape (m,)
    factor : float
        Of the kernel that features represent, over that of the problem.
    mixing : array of shape (m, m), optional
        Of a function without symmetry, F(x, y) = phi(x) . (mixing phi(y)): the right features are mixed.
    """

    problem: Problem
    field: AbstractField
    anchors: IntArray
    weights: FloatArray
    factor: float = 1.0
    mixing: FloatArray | None = None

    def __post_init__(self) -> None:
        check_indices(self.anchors, "anchors", self.problem.graph.n_nodes)
        check_amounts("weights", self.weights, len(self.anchors))
        check_real(self.factor, "factor", POSITIVE)
        if self.mixing is not None:
            check_shape("mixing", self.mixing, (len(self.anchors), len(self.anchors)))
            check_numbers("mixing", self.mixing)

    def check_field(self) -> None:
        """Raise if the field of a file does not fit; fields of users and of baselines may break these rules."""
        m = len(self.anchors)
        self.field.check(self.problem, m)
        check_shape("bounds", self.field.bounds, (m,))
        with np.errstate(all="ignore"):
            largest = self.bound * self.output_scale
        if not np.isfinite(largest).all():
            reject("weights", "such that features are finite", "others")

    @cached_property
    def _interpolation(self) -> AbstractInterpolation:
        """Interpolates values known at all nodes."""
        everything = np.arange(self.problem.graph.n_nodes)
        return make_interpolation(self.problem.graph, everything, self.problem.dim)

    @property
    def two_sided(self) -> bool:
        """Whether left and right features differ."""
        return self.problem.asymmetric or self.mixing is not None

    @property
    def _raw(self) -> bool:
        """Whether the field holds signatures, not divided by the roots of the measure."""
        return bool(getattr(self.field, "raw", False))

    @property
    def _own_power(self) -> float:
        """Power of the query's own measure by which field values are multiplied."""
        return (0.5 if self.problem.clock == "graph" else 0.0) - (0.5 if self._raw else 0.0)

    @cached_property
    def column_factors(self) -> FloatArray:
        """Factors of the columns of the field, shape (m,)."""
        return self._node_factors if self._raw else np.sqrt(self.weights)

    @property
    def _node_factors(self) -> FloatArray:
        """Factors of the columns of signatures, shape (m,)."""
        own = self.problem.measure[self.anchors]
        return np.sqrt(np.divide(self.weights, own, out=np.zeros_like(own), where=own > 0))

    @property
    def scale(self) -> float:
        """Factor from the unit of the measure to the user's: features represent a kernel per volume."""
        return float(self.problem.unit**-0.5) if self.problem.clock == "manifold" else 1.0

    @property
    def output_scale(self) -> float:
        """Factor from features in the unit of the measure to those that the user gets."""
        return self.scale * float(self.factor**0.5)

    def normalized(self, n_jobs: int = 1) -> "FeatureMap":
        """The same map with the factor that makes K(x, x) one on average over the nodes.

        All nodes count, because some of them, chosen by their numbers, would depend on the order of the points.
        The average of a kernel without nonnegative features may be zero or negative; its factor stays one. Features
        of a function without symmetry got their factor when they were mixed.
        """
        if self.mixing is not None:
            return self
        usable = np.flatnonzero(self.problem.measure > 0)
        total = np.float64(0.0)
        for span in self.spans(len(usable)):
            places = self.problem.graph.positions[usable[span]]
            left = right = self.rows(places, n_jobs, absolute=False)[0]
            if self.problem.asymmetric:
                right = self.rows(places, n_jobs, side="right", absolute=False)[0]
            with np.errstate(all="ignore"):
                total += (left * right).sum()
        with np.errstate(all="ignore"):
            factor = len(usable) / total / np.float64(self.scale) ** 2
        if abs(factor - 1) < _ROUNDING:  # of rows that have length one already
            return self
        return replace(self, factor=float(factor)) if 0 < factor < np.inf else self

    @cached_property
    def bound(self) -> FloatArray:
        """Largest value that each feature can take, shape (m,), in the unit of the measure."""
        measure = self.problem.measure
        extreme = measure.max() if self._own_power >= 0 else measure[measure > 0].min()
        bound = np.asarray(self.field.bounds * self.column_factors * extreme**self._own_power)
        if self._capped:  # no entry of a signature is larger than the sum of its series
            bound = np.minimum(bound, float(self.problem.series.spectral(np.ones(1))[0]) * self._node_factors)
        return bound

    @property
    def _capped(self) -> bool:
        """Whether features are those of a node, whose signature has a known bound."""
        return self.problem.clock == "graph" and not self.problem.asymmetric

    def rows(
        self,
        queries: FloatArray,
        n_jobs: int = 1,
        *,
        side: str = "left",
        absolute: bool = True,
        device: str = "cpu",
        as_sparse: bool = False,
    ) -> tuple[Any, FloatArray]:
        """Features of points in double precision, dense or CSR of shape (q, m), and the window, shape (q,).

        Parameters
        ----------
        queries : array of shape (q, d)
        n_jobs : int
            Number of threads, which does not change the result.
        side : {"left", "right"}
            For kernels without nonnegative features and functions without symmetry, whose two factors differ.
        absolute : bool
            Whether features are in the user's unit and with the factor, else in that of the measure.
        device : str
            Where the field is evaluated.
        as_sparse : bool
            Whether rows are CSR in any case, else as the field returns them.
        """
        with search_jobs(n_jobs), quiet_underflow():
            placed = self.problem.graph.placed(queries, n_jobs)
            window = self.problem.window(queries, placed)
            scale = self.output_scale if absolute else 1.0
            if side == "right" and self.problem.asymmetric:
                return self._right_rows(placed, window, scale, n_jobs), window
            values = read_field(self.field, placed, n_jobs, device, as_sparse=as_sparse)
            values = self._scaled(values, window * self.own(placed, n_jobs), scale)
            return (self._mixed(values, n_jobs) if side == "right" else values), window

    def _right_rows(self, queries: FloatArray, window: FloatArray, scale: float, n_jobs: int) -> Any:
        """The second factor of a kernel without nonnegative features: the point itself, spread over the nodes."""
        shares = self._shares(queries, n_jobs)
        rows = shares[:, self.anchors]
        factors = window * (self._measure_at(shares) ** 0.5 if self.problem.clock == "graph" else 1.0)
        factors *= scale
        data = rows.data * np.repeat(factors, np.diff(rows.indptr))
        return sparse.csr_array((data, rows.indices, rows.indptr), shape=rows.shape)

    def _mixed(self, values: Any, n_jobs: int) -> Any:
        """The second factor of a function without symmetry; no row depends on the number of the others."""
        mixing = self.mixing
        if mixing is None:
            return values
        mixed = np.zeros(values.shape)

        def work(start: int) -> None:
            part = as_dense(values[start : start + _ROWS_OF_A_BLOCK])
            block = np.zeros((_ROWS_OF_A_BLOCK, values.shape[1]))  # products of one shape round alike
            block[: len(part)] = part
            mixed[start : start + _ROWS_OF_A_BLOCK] = (block @ mixing.T)[: len(part)]

        with one_blas_thread():
            quick_map(work, range(0, len(mixed), _ROWS_OF_A_BLOCK), n_jobs)
        return mixed

    def _scaled(self, values: Any, row_factors: FloatArray, scale: float) -> Any:
        """Values of the field in the unit of the features; the given array is changed."""
        columns = scale * self.column_factors
        if sparse.issparse(values):
            values.data *= columns[values.indices]
            values.data *= np.repeat(row_factors, np.diff(values.indptr))
            if self._capped:
                np.minimum(values.data, (scale * self.bound)[values.indices], out=values.data)
            if not (columns.all() and row_factors.all()):  # anchors without weight, points far away
                values.eliminate_zeros()
            return values
        values *= columns
        if not (row_factors == 1).all():
            values *= row_factors[:, None]
        return np.minimum(values, scale * self.bound, out=values) if self._capped else values

    def own(self, queries: FloatArray, n_jobs: int = 1) -> FloatArray:
        """Factor of each query from its own measure, as if it were a node, shape (q,)."""
        if self._own_power == 0:
            return np.ones(len(queries))
        return self._measure_at(self._shares(queries, n_jobs)) ** self._own_power

    def _shares(self, queries: FloatArray, n_jobs: int) -> Any:
        """Weights that interpolate between all nodes, CSR of shape (q, n_nodes)."""
        return stack_rows(self._interpolation.weights, queries, self.problem.graph.n_nodes, n_jobs)

    def _measure_at(self, shares: Any) -> FloatArray:
        """The measure, interpolated between nodes and within the range of its values."""
        measure = self.problem.measure
        known = np.maximum(measure, measure[measure > 0].min())
        logs = shares @ np.log(known)
        return np.asarray(np.exp(np.clip(logs, np.log(known.min()), np.log(known.max()))))

    def block_size(self, *, as_sparse: bool) -> int:
        """Number of points in a block that fits in memory."""
        most = _DENSE_AT_ONCE // len(self.anchors)
        if as_sparse:
            most = _SPARSE_AT_ONCE // self.field.row_entries
        return min(max(1, most), _POINTS_AT_ONCE)

    def spans(self, n: int, *, as_sparse: bool = False) -> Iterator[slice]:
        """Blocks of n points; a single empty one if there are none."""
        step = self.block_size(as_sparse=as_sparse)
        for start in range(0, max(n, 1), step):
            yield slice(start, min(start + step, n))

    @quiet_underflow()  # also of conversions to single precision
    def features(self, points: FloatArray, dtype: Any, n_jobs: int, *, as_sparse: bool, **options: Any) -> Any:
        """Features of all points, dense or CSR, with one warning for all that are off the space.

        ``options`` are those of :meth:`rows`.
        """
        window = np.ones(len(points))
        spans = list(self.spans(len(points), as_sparse=as_sparse))
        whole: Any = None if as_sparse or len(spans) == 1 else np.zeros((len(points), len(self.anchors)), dtype)
        parts = []
        for span in spans:
            rows, window[span] = self.rows(points[span], n_jobs, as_sparse=as_sparse, **options)
            if as_sparse:
                rows = rows if sparse.issparse(rows) else sparse.csr_array(rows)
            elif sparse.issparse(rows):
                rows = rows.toarray()
            if whole is None:
                parts.append(rows.astype(dtype, copy=False))
            else:
                whole[span] = rows.astype(dtype, copy=False)
        warn_of_far(window)
        if whole is not None:
            return whole
        return parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")


def product(left: Any, right: Any, n_jobs: int) -> FloatArray:
    """Left times right transposed, dense; the bits depend neither on ``n_jobs`` nor on other threads."""
    same = left is right
    left = _worth_dense(left)
    right = left if same else _worth_dense(right)
    if sparse.issparse(left) or sparse.issparse(right):
        result = left @ right.T
        return as_dense(result)
    return symmetric_product(left, n_jobs) if same else _dense_product(left, right, n_jobs)


def _worth_dense(rows: Any) -> Any:
    """Rows as a dense array if that makes products faster."""
    filled = sparse.issparse(rows) and rows.nnz > _DENSE_SHARE * rows.shape[0] * rows.shape[1]
    return rows.toarray() if filled else rows


def _dense_product(left: FloatArray, right: FloatArray, n_jobs: int) -> FloatArray:
    """Left times right transposed, in blocks of rows that do not depend on ``n_jobs``."""
    result = np.zeros((len(left), len(right)), np.result_type(left, right))

    def work(span: slice) -> None:
        np.matmul(left[span], right.T, out=result[span])

    with one_blas_thread():
        quick_map(work, row_spans(len(left)), n_jobs)
    return result


def symmetric_product(rows: FloatArray, n_jobs: int) -> FloatArray:
    """Rows times their transpose, in blocks that do not depend on ``n_jobs``: each pair of blocks once."""
    result = np.zeros((len(rows), len(rows)))
    spans = row_spans(len(rows))

    def work(pair: tuple[slice, slice]) -> None:
        first, second = pair
        block = rows[first] @ rows[second].T
        result[first, second] = block
        if first != second:
            result[second, first] = block.T

    with one_blas_thread():
        quick_map(work, combinations_with_replacement(spans, 2), n_jobs)
    return result


def row_spans(n: int) -> list[slice]:
    """Blocks of about 128 rows, at most 16 of them: enough for threads, and large enough for products."""
    edges = np.linspace(0, n, max(1, min(_MOST_BLOCKS, n // _ROWS_OF_A_BLOCK)) + 1).astype(np.int64)
    return [slice(int(a), int(b)) for a, b in pairwise(edges)]
