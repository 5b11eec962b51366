"""Features of a heat kernel at every time of a range, from one fit for each octave.

A *level* has the graph, the anchors and the weights of a fit at its shortest time t, and serves the times from t to
2 t. Signatures of the time t are W^s with s = t / (2 steps), which is smooth in log s: tables for four integers s,
interpolated by polynomials in log s, give the kernel to 3e-4 (one step: 1e-2). A level of a longer time has
fewer nodes and anchors, so on a surface all levels together have about twice as many as the first.

A Matern kernel is an integral over t of heat kernels, by the trapezoidal rule in log t with one node per octave, so
that its features are those of all levels side by side. The rule is off by 2e-4 for nu = 3/2 on surfaces, by .05 for
nu = 9; smoother kernels, nearly heat kernels, are refused.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import gammainc, gammaln, loggamma

from manifoldrf._codec import stored
from manifoldrf._random import Streams
from manifoldrf._runtime import quiet_underflow
from manifoldrf._validation import POSITIVE, FloatArray, IntArray, check_real, reject
from manifoldrf.features.errors import ErrorEstimate, graph_error
from manifoldrf.features.feature_map import (
    STEP_SHARE,
    FeatureMap,
    JoinedSteps,
    WalkStep,
    symmetric_product,
    times_table,
    warn_of_far,
    without_negligible,
)
from manifoldrf.features.graph_kernel import GraphKernel
from manifoldrf.geometry.csr import check_amounts, check_csr, check_shape, reciprocal
from manifoldrf.kernels.abstract_kernel import AbstractKernel, ProductKernel
from manifoldrf.kernels.named_kernels import HeatKernel, MaternKernel, PowerKernel
from manifoldrf.kernels.series import SeriesKernel

# Octaves in which a kernel that is smooth in t passes to the next level; extrapolated polynomials err by 9e-4.
BLEND = 1 / 6
FAR = 64  # octaves beyond the range over which a Matern kernel is summed: all that doubles can hold
_EDGE = 1e-9  # times this close to the range, or to whole steps, are the same up to rounding


def check_times(times: Any) -> tuple[float, float]:
    """The shortest and the longest time."""
    try:
        low, high = times
    except (TypeError, ValueError):
        reject("times", "a pair of times (shortest, longest)", repr(times), TypeError)
    shortest, longest = check_real(low, "times[0]", POSITIVE), check_real(high, "times[1]", POSITIVE)
    if not shortest < longest:
        reject("times", "a pair of times, the shorter one first", f"({shortest:g}, {longest:g})")
    return shortest, longest


def check_in_range(kernel: Any, times: tuple[float, float]) -> AbstractKernel:
    """Check, before a fit, the kernel to use from a range of times; None: the heat kernel in the middle."""
    if kernel is None:
        return HeatKernel(math.sqrt(times[0] * times[1]))
    if isinstance(kernel, HeatKernel) and not times[0] <= kernel.t <= times[1]:
        reject("times", "a range that holds the time of the kernel", f"{times} and {kernel}")
    return check_range_kernel(kernel, ValueError)


def check_range_kernel(kernel: Any, kind: type[Exception]) -> AbstractKernel:
    """Return a kernel that is a sum over heat times; ``kind`` is that of the error."""
    if not (isinstance(kernel, HeatKernel) or (isinstance(kernel, MaternKernel) and kernel.clock == "manifold")):
        rule = "None, a HeatKernel or a MaternKernel with clock='manifold' for a range of `times`"
        reject("kernel", rule, repr(kernel), kind)
    return kernel


def lagrange(known: FloatArray, x: float, *, derivative: bool = False) -> FloatArray:
    """Weights of the values at known abscissae that give the interpolating polynomial at x, or its derivative."""
    found = []
    for i, centre in enumerate(known):
        others = np.delete(known, i)
        gaps = x - others
        top = sum(np.prod(np.delete(gaps, j)) for j in range(len(gaps))) if derivative else np.prod(gaps)
        found.append(top / np.prod(centre - others))
    return np.asarray(found)


@stored
@dataclass(frozen=True, eq=False)
class TimeLevel:
    """Features of one graph at all times of an octave.

    Attributes
    ----------
    kernel : GraphKernel
        Of the shortest time.
    anchors : int array of shape (m,)
    weights : array of shape (m,)
    steps : int array of shape (k,)
        Steps s of the signatures whose tables are known.
    indptr, indices : int arrays
        Where the tables (n_nodes, m) have entries, as in a CSR array.
    tables : float32 array of shape (k, nnz)
        Tables of features by a step; single precision changes the kernel by 1e-7.
    heights : array of shape (k, k)
        Mean over the nodes of the inner products of features of two tables.
    error : ErrorEstimate
        Of the fit at the shortest time, without the share of the graph.
    """

    kernel: GraphKernel
    anchors: IntArray
    weights: FloatArray
    steps: IntArray
    indptr: IntArray
    indices: IntArray
    tables: Any
    heights: FloatArray
    error: ErrorEstimate

    def _check_loaded(self) -> None:
        """Raise if the parts do not fit together, because compiled code relies on them."""
        k = len(self.steps)
        check_amounts("weights", self.weights, len(self.anchors))
        check_shape("tables", self.tables, (k, len(self.indices)))
        if self.tables.dtype != np.float32 or not (np.isfinite(self.tables).all() and (self.tables >= 0).all()):
            reject("tables", "nonnegative and finite float32 numbers", "others")
        check_shape("heights", self.heights, (k, k))
        check_csr("table", self._table(np.zeros(len(self.indices))), (self.kernel.graph.n_nodes, len(self.anchors)))
        if k < 2 or not (np.diff(self.steps) > 0).all() or not self.steps[0] >= 1:
            reject("steps", "positive and increasing", self.steps)

    @classmethod
    def of(cls, fitted: FeatureMap, error: ErrorEstimate, n_jobs: int) -> "TimeLevel":
        """The level of a feature map at its shortest time, with features by steps of a heat graph."""
        kernel, weights = fitted.kernel, fitted.weights
        if kernel.graph.n_steps is None or not isinstance(fitted.rule, WalkStep):
            rule = "None where the space gets no heat graph (too many dimensions)"
            reject("times", rule, f"a range, on {kernel.graph}")
        if not math.isclose(kernel.graph.time(kernel.graph.n_steps, kernel.dim), kernel.stated.shortest_time or 0):
            rule = "None on a given graph, because each octave has a graph of its own"
            reject("times", rule, f"a range, on {kernel.graph}")
        first = kernel.graph.n_steps // 2
        few = {1: [1, 2, 3], 2: [2, 3, 4, 5]}  # if the octave has fewer than four integers
        steps = few.get(first, sorted({round(first * 2 ** (k / 3)) for k in range(4)}))
        roots, table = np.sqrt(kernel.measure), fitted.table
        left, right = sparse.diags_array(reciprocal(roots)), sparse.diags_array(roots)
        step = sparse.csr_array(left @ kernel.graph.operator @ right)
        tables = {first: table}
        for s in range(first + 1, steps[-1] + 2):
            table = without_negligible(times_table(step, table, n_jobs, as_sparse=True), STEP_SHARE)
            tables[s] = table
        widest = tables[steps[-1]]
        values = np.stack([_entries_at(tables[s], widest) for s in steps])
        usable = np.flatnonzero(kernel.measure > 0)
        rows = [tables[s + 1][usable] for s in steps]  # features of nodes: their first step is one of the graph
        with quiet_underflow():
            heights = [[float((left.multiply(right) @ weights).sum()) for right in rows] for left in rows]
        indptr, indices = widest.indptr.astype(np.int64), widest.indices.astype(np.int64)
        mean = np.array(heights) / len(usable)
        return cls(kernel, fitted.anchors, weights, np.array(steps), indptr, indices, values, mean, error)

    @cached_property
    def step_time(self) -> float:
        """Time of two steps of the graph: of one step of a signature."""
        return float(2 * self.kernel.graph.time(1.0))

    @property
    def shortest(self) -> float:
        """The shortest time."""
        return float(self.steps[0] * self.step_time)

    def coefficients(self, t: float, *, derivative: bool = False) -> FloatArray:
        """Weights of the tables in the table of time t, or their derivatives with respect to log t, shape (k,)."""
        return lagrange(np.log(self.steps), math.log(t / self.step_time), derivative=derivative)

    def height(self, t: float) -> float:
        """Mean of K_t(x, x) over the nodes, per volume."""
        factors = self.coefficients(t)
        return float(factors @ self.heights @ factors) / self.kernel.unit

    def table(self, t: float) -> Any:
        """The table of signatures of the time t, CSR of shape (n_nodes, m)."""
        return self._table(np.maximum(self.coefficients(t) @ self.tables, 0.0))

    def _table(self, data: Any) -> Any:
        return sparse.csr_array((data, self.indices, self.indptr), (self.kernel.graph.n_nodes, len(self.anchors)))

    def rows(self, points: FloatArray, n_tables: int | None, n_jobs: int) -> tuple[FloatArray, FloatArray]:
        """Features of points for all or the first tables, absolute, shape (k, q, m), and the window, shape (q,)."""
        graph = self.kernel.graph
        with quiet_underflow():
            placed = graph.placed(points, n_jobs)
            window, step = self.kernel.window(points, placed, n_jobs), WalkStep(graph).rows(placed, n_jobs)
            tables = [self._table(table.astype(np.float64)) for table in self.tables[:n_tables]]
            found = np.stack([times_table(step, table, n_jobs, as_sparse=False) for table in tables])
            return found * (self.kernel.unit**-0.5 * np.sqrt(self.weights) * window[:, None]), window

    def at(self, t: float) -> FeatureMap:
        """The feature map of the time t, in absolute units."""
        n = 2 * t / self.step_time
        resolved: AbstractKernel = PowerKernel(2 * round(n / 2))
        if abs(n / 2 - round(n / 2)) >= _EDGE * n:
            powers = np.zeros(self.steps[-1] + 1)
            powers[self.steps] = self.coefficients(t)
            root = SeriesKernel(tuple(powers.tolist()))
            resolved = ProductKernel(root, root)
        kernel = replace(self.kernel, stated=HeatKernel(t), resolved=resolved)
        return FeatureMap(kernel, WalkStep(kernel.graph), self.table(t), self.anchors, self.weights)


def _entries_at(table: Any, pattern: Any) -> Any:
    """Entries of a table in the sparsity pattern of a wider one; all others are negligible."""
    keys = [
        np.repeat(np.arange(part.shape[0]) * part.shape[1], np.diff(part.indptr)) + part.indices
        for part in (pattern, table)
    ]
    place = np.minimum(np.searchsorted(keys[0], keys[1]), len(keys[0]) - 1)
    inside = keys[0][place] == keys[1]
    found = np.zeros(len(keys[0]), np.float32)
    found[place[inside]] = table.data[inside]
    return found


@stored
@dataclass(frozen=True, eq=False)
class TimeRange:
    """Feature maps at all times of a range.

    Attributes
    ----------
    levels : tuple of TimeLevel
        An octave apart; the last one serves the longest time.
    longest : float
        End of the range; it begins with the shortest time of the first level.
    """

    levels: tuple[TimeLevel, ...]
    longest: float

    def _check_loaded(self) -> None:
        if not self.levels or not all(isinstance(level, TimeLevel) for level in self.levels):
            reject("levels", "at least one level", "others")
        check_real(self.longest, "longest", POSITIVE)

    @classmethod
    def fit(
        cls, fit: Callable[[float], tuple[FeatureMap, ErrorEstimate]], times: tuple[float, float], n_jobs: int
    ) -> "TimeRange":
        """Levels for a range of times, from a function that fits features of one time."""
        count = max(1, math.ceil(math.log2(times[1] / times[0]) - _EDGE))
        levels = (TimeLevel.of(*fit(times[0] * 2.0**j), n_jobs) for j in range(count))
        return cls(tuple(levels), times[1])

    @property
    def shortest(self) -> float:
        """Start of the range."""
        return self.levels[0].shortest

    def number(self, t: float) -> int:
        """Number of the level of a time; raises if the time is out of the range."""
        if not self.shortest * (1 - _EDGE) <= t <= self.longest * (1 + _EDGE):
            text = f"in the range of this fit, {self.shortest:g} to {self.longest:g}"
            reject("t", f"{text} (remedy: fit with other `times`)", t)
        starts = np.array([level.shortest for level in self.levels]) * (1 - _EDGE)
        return max(0, int(np.searchsorted(starts, t, side="right")) - 1)

    def parts(self, t: float) -> list[tuple[int, float, float]]:
        """The levels of a kernel that is smooth in t: numbers, weights, and derivatives with respect to log t.

        Features switch to the next level at the end of an octave. A kernel whose time is learnt must not jump, so
        at the beginning of an octave it blends the levels before and after the switch.
        """
        number, width = self.number(t), BLEND * math.log(2)
        x = max(0.0, math.log(t / self.levels[number].shortest)) / width
        if number == 0 or x >= 1:
            return [(number, 1.0, 0.0)]
        share, slope = math.sin(math.pi / 2 * x) ** 2, math.pi / 2 * math.sin(math.pi * x) / width
        return [(number - 1, 1 - share, -slope), (number, share, slope)]

    def at(self, kernel: Any, *, normalize: bool) -> FeatureMap:
        """The feature map of a heat or Matern kernel."""
        check_range_kernel(kernel, TypeError)
        if isinstance(kernel, HeatKernel):
            level = self.levels[self.number(kernel.t)]
            found, height = level.at(kernel.t), level.height(kernel.t)
        else:
            found, height = self._mixture(kernel)
        return replace(found, factor=1 / height) if normalize else found

    def shares(self, kernel: MaternKernel) -> FloatArray:
        """Weights of the heat kernels of the levels in the Matern kernel, shape (n_levels,).

        The first and last levels also get the weights of all shorter and longer times. Raises if these are more
        than a tenth of the height or of the variation.
        """
        times, dim = np.array([level.shortest for level in self.levels]), self.levels[0].kernel.dim
        power, rate, octaves = kernel.nu + dim / 2, kernel.rate, np.arange(-FAR, len(times) + FAR)
        # By Poisson's summation formula; the next terms are much smaller.
        off = 2 * math.exp(loggamma(power + 2j * math.pi / math.log(2)).real - gammaln(power))
        if off > 0.05:
            rule = "of a smaller nu, for a sum over octaves (remedy: fit without `times`)"
            reject("kernel", rule, f"{kernel}, {off:.0%} off")
        every = times[0] * 2.0**octaves
        terms = math.log(2) * np.exp(power * np.log(every) - rate * every - gammaln(power))
        shares = np.bincount(np.clip(octaves, 0, len(times) - 1), terms)
        narrow = float(gammainc(kernel.nu, rate * self.shortest / math.sqrt(2)))
        if narrow > 0.1:
            rule = f"a kernel with at least 90% of its height from times above {self.shortest:.3g}"
            reject("kernel", f"{rule} (remedy: `times` from shorter ones)", f"{kernel} with {1 - narrow:.0%}")
        heights = self._heights
        # Times after the last one only make the kernel more even; in the limit it is one over the volume.
        uneven = max(0.0, heights[-1] - 1 / self.levels[-1].kernel.volume)
        wide = float(terms[octaves >= len(times)].sum() * uneven / (shares @ heights))
        if wide > 0.1:
            rule = f"a kernel that times above {self.longest:.3g} change by less than 10%"
            found = f"{kernel}, changed by up to {wide:.0%}"
            reject("kernel", f"{rule} (remedy: `times` up to longer ones)", found)
        return np.asarray(shares, dtype=np.float64)

    @property
    def _heights(self) -> FloatArray:
        return np.array([level.height(level.shortest) for level in self.levels])

    def _mixture(self, kernel: MaternKernel) -> tuple[FeatureMap, float]:
        """The feature map of a Matern kernel, and its mean height."""
        shares, first = self.shares(kernel), self.levels[0].kernel
        weights = [
            share * first.unit / level.kernel.unit * level.weights
            for share, level in zip(shares, self.levels, strict=True)
        ]
        search = first.graph._search
        nearest = [search.knn(level.kernel.graph.positions[level.anchors], 1)[1][:, 0] for level in self.levels]
        rule = JoinedSteps(tuple(WalkStep(level.kernel.graph) for level in self.levels))
        table = sparse.csr_array(sparse.block_diag([level.table(level.shortest) for level in self.levels]))
        on_graph = replace(first, stated=kernel, resolved=kernel.resolve(first.graph, first.dim))
        found = FeatureMap(on_graph, rule, table, np.concatenate(nearest), np.concatenate(weights))
        return found, float(shares @ self._heights)

    def error(self, kernel: AbstractKernel, streams: Streams, n_jobs: int) -> ErrorEstimate:
        """Estimated error at the level of a time or, for a Matern kernel, the mean over its heat kernels."""
        if isinstance(kernel, HeatKernel):
            level = self.levels[self.number(kernel.t)]
            return level.error.with_graph(graph_error(level.kernel, streams, n_jobs))
        errors = [self.error(HeatKernel(level.shortest), streams, n_jobs) for level in self.levels]
        shares = self.shares(kernel) * self._heights  # type: ignore[arg-type]

        def mean(name: str) -> Any:
            parts = [getattr(error, name) for error in errors]
            return None if None in parts else float(np.average(parts, weights=shares))

        return ErrorEstimate(mean("kernel"), mean("field"), mean("quadrature"), mean("graph"), mean("signatures"))


@dataclass(eq=False)
class PreparedPoints:
    """Features of fixed points at any time of the range; each level is evaluated when it is first needed.

    Attributes
    ----------
    family : TimeRange
    points : array of shape (q, d)
    normalize : bool
    n_jobs : int
    warn : bool
        Whether to warn about points away from the space.
    """

    family: TimeRange
    points: FloatArray
    normalize: bool = True
    n_jobs: int = 1
    warn: bool = False

    def __post_init__(self) -> None:
        self._blocks: dict[int, FloatArray] = {}

    def blocks(self, number: int, n_tables: int | None = None) -> FloatArray:
        """Features of the tables of a level, all or the first few, in absolute units, shape (k, q, m)."""
        level = self.family.levels[number]
        if len(self._blocks.get(number, ())) < (n_tables or len(level.tables)):
            self._blocks[number], window = level.rows(self.points, n_tables, self.n_jobs)
            if self.warn:
                warn_of_far(window)
        return self._blocks[number][:n_tables]

    def at(self, t: float) -> FloatArray:
        """Features of the points at the time t, shape (q, m)."""
        number = self.family.number(t)
        level = self.family.levels[number]
        rows = np.tensordot(level.coefficients(t), self.blocks(number), 1)
        np.maximum(rows, 0.0, out=rows)
        return rows * level.height(t) ** -0.5 if self.normalize else rows

    def kernel_matrix(self, t: float) -> FloatArray:
        """The kernel between the points at the time t, shape (q, q)."""
        return symmetric_product(self.at(t), self.n_jobs)

    def smooth(self, t: float) -> tuple[FloatArray, FloatArray]:
        """Features that are smooth in t, and their derivatives with respect to log t, shape (q, m) each.

        Between levels they are the features of both, see :meth:`TimeRange.parts`. Values that are slightly negative
        from rounding and interpolation are kept, because clipping would not be smooth.
        """
        found, slopes = [], []
        for number, share, change in self.family.parts(t):
            level, blocks = self.family.levels[number], self.blocks(number)
            factors, rates = level.coefficients(t), level.coefficients(t, derivative=True)
            height, rise = 1.0, 0.0
            if self.normalize:
                height = level.height(t)
                rise = 2 * float(factors @ level.heights @ rates) / (level.kernel.unit * height)
            root = math.sqrt(share / height)
            # Of sqrt(share / height); at a share of 0 the derivative of the product is 0.
            slope = (change - share * rise) / (2 * height * root) if root else 0.0
            found.append(np.tensordot(root * factors, blocks, 1))
            slopes.append(np.tensordot(root * rates + slope * factors, blocks, 1))
        return np.concatenate(found, axis=1), np.concatenate(slopes, axis=1)
