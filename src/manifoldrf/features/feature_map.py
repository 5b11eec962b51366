"""The fitted map from points to features: rows of a rule times a table, and the units."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._codec import stored
from manifoldrf._runtime import quick_map, quiet_underflow, search_jobs
from manifoldrf._validation import POSITIVE, FloatArray, IntArray, check_indices, check_real, reject
from manifoldrf.features.graph_kernel import GraphKernel, warn_of_far
from manifoldrf.features.rules import (
    Blocks,
    PointRule,
    WalkStep,
    interpolation_rule,
    make_blocks,
    rows_of,
    step_times_table,
    times_table,
)
from manifoldrf.geometry.csr import check_amounts, check_csr
from manifoldrf.geometry.graphs import Graph
from manifoldrf.paper import NetworkField


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
        Of the kernel that features represent, over the stated one.
    """

    kernel: GraphKernel
    rule: PointRule
    table: Any
    anchors: IntArray
    weights: FloatArray
    factor: float = 1.0

    def __post_init__(self) -> None:
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
    def graph(self) -> Graph:
        """The graph that discretises the space."""
        return self.kernel.graph

    @property
    def scale(self) -> float:
        """Factor from the unit of the measure to the user's: features represent a kernel per volume."""
        return float(self.kernel.unit**-0.5) if self.kernel.per_volume else 1.0

    @property
    def output_scale(self) -> float:
        """Factor from features in the unit of the measure to those that the user gets."""
        return self.scale * float(self.factor**0.5)

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
    def _blocks(self) -> Blocks | None:
        """The table for fused products, where the rule is a step between the cells of a flat space."""
        if not isinstance(self.rule, WalkStep) or self.rule.fused is None:
            return None
        return make_blocks(self.table, self.graph.positions)

    def values(self, placed: FloatArray, n_jobs: int = 1, *, as_sparse: bool = False) -> Any:
        """g(z, anchor l) of points on the space, CSR or dense of shape (q, m); of a network signatures."""
        if isinstance(self.table, NetworkField):
            return self.table.values(placed, n_jobs)
        is_sparse = bool(self.table.nnz < 0.01 * self.table.shape[0] * self.table.shape[1])
        blocks = None if is_sparse or not len(placed) else self._blocks
        if blocks is not None:
            if not as_sparse:
                return step_times_table(self.rule, blocks, placed, n_jobs)
            parts = [placed[k : k + 1024] for k in range(0, len(placed), 1024)]  # dense rows for a moment
            found = quick_map(
                lambda part: sparse.csr_array(step_times_table(self.rule, blocks, part, 1)), parts, n_jobs
            )
            return found[0] if len(found) == 1 else sparse.vstack(found, format="csr")
        as_sparse = as_sparse or is_sparse
        found = times_table(rows_of(self.rule, placed, n_jobs), self.table, n_jobs, as_sparse=as_sparse)
        if self.rule.growth > 1:  # weights may be negative
            entries, largest = (found.data, self._largest[found.indices]) if as_sparse else (found, self._largest)
            np.clip(entries, -largest if self.kernel.asymmetric else 0.0, largest, out=entries)
        return found

    @cached_property
    def _interpolation(self) -> PointRule:
        """Interpolates values known at all nodes."""
        return interpolation_rule(self.graph, self.kernel.dim)

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
            Whether features are in the user's unit and with the factor, else in that of the measure.
        as_sparse : bool
            Whether rows are CSR in any case.
        """
        with search_jobs(n_jobs), quiet_underflow():
            placed = self.graph.placed(queries, n_jobs)
            window = self.kernel.window(queries, placed)
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
                found.eliminate_zeros()  # of anchors without weight, points far away, and cut values
                return found, window
            found *= columns
            if not (factors == 1).all():
                found *= factors[:, None]
            return found, window

    def normalized(self, n_jobs: int = 1) -> "FeatureMap":
        """The same map with the factor that makes K(x, x) one on average over the nodes.

        All nodes count, because some of them, chosen by their numbers, would depend on the order of the points. The
        average of a kernel without nonnegative features may be zero or negative; its factor stays one.
        """
        usable = np.flatnonzero(self.kernel.measure > 0)
        total = np.float64(0.0)
        for span in self.spans(len(usable)):
            places = self.graph.positions[usable[span]]
            left = right = self.rows(places, n_jobs, absolute=False)[0]
            if self.kernel.asymmetric:
                right = self.rows(places, n_jobs, side="right", absolute=False)[0]
            with np.errstate(all="ignore"):
                total += (left * right).sum()
        with np.errstate(all="ignore"):
            factor = len(usable) / total / np.float64(self.scale) ** 2
        if abs(factor - 1) < 1e-12:  # rounding of rows that have length one already
            return self
        return replace(self, factor=float(factor)) if 0 < factor < np.inf else self

    def block_size(self, *, as_sparse: bool) -> int:
        """Number of points in a block that fits in memory: 256 MB of dense features, 100 MB of sparse ones."""
        most = 2**25 // len(self.anchors)
        if as_sparse and not isinstance(self.table, NetworkField):
            # The rows of the nodes that a step reaches overlap; on surfaces their union is about three times as
            # large.
            n = self.table.shape[0]
            most = 2**23 // min(len(self.anchors), 1 + self.graph.affinity.nnz // n + 4 * self.table.nnz // n)
        # Lists of the nodes around a point take up to 10 kB where there are no cells, in more than three
        # dimensions.
        return min(max(1, most), 2**15)

    def spans(self, n: int, *, as_sparse: bool = False) -> Iterator[slice]:
        """Blocks of n points; a single empty one if there are none."""
        step = self.block_size(as_sparse=as_sparse)
        for start in range(0, max(n, 1), step):
            yield slice(start, min(start + step, n))

    @quiet_underflow()  # also of conversions to single precision
    def features(self, points: FloatArray, dtype: Any, n_jobs: int, *, as_sparse: bool, side: str = "left") -> Any:
        """Features of all points, dense or CSR, with one warning for all that are off the space."""
        window = np.ones(len(points))
        spans = list(self.spans(len(points), as_sparse=as_sparse))
        whole: Any = None if as_sparse or len(spans) == 1 else np.zeros((len(points), len(self.anchors)), dtype)
        parts = []
        for span in spans:
            rows, window[span] = self.rows(points[span], n_jobs, side=side, as_sparse=as_sparse)
            if as_sparse:
                rows = sparse.csr_array(rows)
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
