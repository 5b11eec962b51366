"""Features of a heat kernel at every time of a range, from one fit.

A *level* has the graph, the anchors and the weights of a fit at its shortest time t, and serves the times from t to
2 t. Signatures of the time t are W^s with s = t / (2 steps), which is smooth in log s: tables of four whole numbers
s, and polynomials in log s between them, give the kernel to 3e-4 (one step: 1e-2). A level of a longer time has
fewer nodes and anchors, so on a surface all levels together have about twice as many as the first.

A Matern kernel is an integral over t of heat kernels. In log t the trapezoidal rule with one node per octave is
accurate to 1e-5, so that its features are those of all levels side by side.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.special import gammainc, gammaln

from manifoldrf._codec import stored
from manifoldrf._random import Streams
from manifoldrf._runtime import quiet_underflow
from manifoldrf._validation import POSITIVE, FloatArray, IntArray, check_real, reject
from manifoldrf.features.errors import ErrorEstimate, graph_error
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.fit import held_out_error
from manifoldrf.features.graph_kernel import (
    STEP_SHARE,
    GraphKernel,
    exact_reference,
    warn_of_far,
    without_negligible,
)
from manifoldrf.features.rules import JoinedSteps, WalkStep, product, symmetric_product, times_table
from manifoldrf.geometry.csr import check_amounts, check_csr, check_shape, reciprocal
from manifoldrf.kernels.abstract_kernel import AbstractKernel, ProductKernel
from manifoldrf.kernels.graph_kernels import PowerKernel
from manifoldrf.kernels.manifold_kernels import HeatKernel, MaternKernel
from manifoldrf.kernels.series import SeriesKernel

OCTAVE = 2.0  # longest time of a level over its shortest
# Octaves that a kernel which is smooth in t takes to the next level; polynomials beyond theirs err by 9e-4 there.
BLEND = 1 / 6
_TABLES = 3  # per octave, besides the first: polynomials through them are accurate to 3e-4
_FEW = {1: (1, 2, 3), 2: (2, 3, 4, 5)}  # steps of tables where the octave has fewer whole numbers
_EDGE = 1e-9  # times this close to the range are in it
_LOST = 0.1  # share of the height or the mass of a Matern kernel that may come from times out of the range
FAR = 64  # octaves beyond the range that a Matern kernel is summed over
_SAME = 1e-9
_MOST_ENTRIES = 2**25  # of kernels of one level that are kept: 256 MB, 2189 points
_PROBES = 192  # nodes at which errors are measured


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
    """The kernel to use of a range of times, None for the heat kernel in the middle; raises before the fit."""
    if kernel is None:
        return HeatKernel(math.sqrt(times[0] * times[1]))
    if isinstance(kernel, HeatKernel):
        if not times[0] <= kernel.t <= times[1]:
            reject("times", "a range that holds the time of the kernel", f"{times} and {kernel}")
    elif not (isinstance(kernel, MaternKernel) and kernel.clock == "manifold"):
        reject("kernel", "None, a HeatKernel or a MaternKernel with clock='manifold' for `times`", repr(kernel))
    checked: AbstractKernel = kernel
    return checked


def level_times(times: tuple[float, float]) -> list[float]:
    """Shortest times of the levels, an octave apart; the last one serves the longest time of the range."""
    low, high = times
    count = max(1, math.ceil(math.log(high / low, OCTAVE) - _EDGE))
    return [low * OCTAVE**j for j in range(count)]


def lagrange(known: FloatArray, x: float, *, derivative: bool = False) -> FloatArray:
    """Factors of the values at known places, whose sum is that of their polynomial at x, or its derivative."""
    found = []
    for i, centre in enumerate(known):
        others = np.delete(known, i)
        gaps = x - others
        top = sum(np.prod(np.delete(gaps, j)) for j in range(len(gaps))) if derivative else np.prod(gaps)
        found.append(top / np.prod(centre - others))
    return np.asarray(found)


@stored
@dataclass(frozen=True, eq=False)
class ScaleLevel:
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
        Tables of features by a step. Rounding changes the kernel by 1e-7.
    heights : array of shape (k, k)
        Mean over the nodes of the inner products of features of two tables.
    """

    kernel: GraphKernel
    anchors: IntArray
    weights: FloatArray
    steps: IntArray
    indptr: IntArray
    indices: IntArray
    tables: Any
    heights: FloatArray

    def __post_init__(self) -> None:
        """Raise if the parts do not fit together, because compiled code relies on them."""
        k, n, m = len(self.steps), self.kernel.graph.n_nodes, len(self.anchors)
        check_amounts("weights", self.weights, m)
        check_shape("tables", self.tables, (k, len(self.indices)))
        if self.tables.dtype != np.float32 or not (np.isfinite(self.tables).all() and (self.tables >= 0).all()):
            reject("tables", "nonnegative and finite float32 numbers", "others")
        check_shape("heights", self.heights, (k, k))
        check_csr("table", self._table(np.zeros(len(self.indices))), (n, m))
        if k < 2 or not (np.diff(self.steps) > 0).all() or not self.steps[0] >= 1:
            reject("steps", "positive and increasing", self.steps)

    @cached_property
    def step_time(self) -> float:
        """Time of two steps of the graph: of one step of a signature."""
        return float(2 * self.kernel.graph.time(1.0))

    @property
    def shortest(self) -> float:
        """The shortest time."""
        return float(self.steps[0] * self.step_time)

    def coefficients(self, t: float, *, derivative: bool = False) -> FloatArray:
        """Factors of the tables, whose sum is that of the time t, or their derivatives by log t, shape (k,)."""
        return lagrange(np.log(self.steps), math.log(t / self.step_time), derivative=derivative)

    def table(self, t: float) -> Any:
        """The table of signatures of the time t, CSR of shape (n_nodes, m)."""
        data = np.zeros(len(self.indices))
        for factor, table in zip(self.coefficients(t), self.tables, strict=True):
            if factor:
                data += factor * table
        return self._table(np.maximum(data, 0.0, out=data))

    def _table(self, data: Any) -> Any:
        shape = self.kernel.graph.n_nodes, len(self.anchors)
        return sparse.csr_array((data, self.indices, self.indptr), shape=shape)

    def height(self, t: float) -> float:
        """Mean of K_t(x, x) over the nodes, per volume."""
        factors = self.coefficients(t)
        return float(factors @ self.heights @ factors) / self.kernel.unit

    def interpolation_error(self, t: float) -> float:
        """Relative error of the kernel from interpolation in log t, for the spectrum of a flat space."""
        rates = np.linspace(0.01, 20.0, 2000)  # of the decay within a step of a signature
        density = rates ** (self.kernel.dim / 2 - 1)
        exact = np.exp(-2 * t / self.step_time * rates)
        found = (self.coefficients(t) @ np.exp(-self.steps[:, None] * rates)) ** 2
        return float(np.sqrt((found - exact) ** 2 @ density / (exact**2 @ density)))

    def at(self, t: float) -> FeatureMap:
        """The feature map of the time t, in absolute units."""
        step = WalkStep(self.kernel.graph)
        return FeatureMap(self._kernel(t), step, self.table(t), self.anchors, self.weights)

    def _kernel(self, t: float) -> GraphKernel:
        """The kernel of the time t on the same graph."""
        n = 2 * t / self.step_time
        if abs(n / 2 - round(n / 2)) < _SAME * n:
            resolved: AbstractKernel = PowerKernel(2 * round(n / 2))
        else:
            powers = np.zeros(self.steps[-1] + 1)
            powers[self.steps] = self.coefficients(t)
            root = SeriesKernel(tuple(powers.tolist()))
            resolved = ProductKernel(root, root)
        return replace(self.kernel, stated=HeatKernel(t), resolved=resolved)


def make_level(fitted: FeatureMap, n_jobs: int) -> ScaleLevel:
    """The level of a feature map at its shortest time, with features by steps of a heat graph."""
    kernel = fitted.kernel
    if kernel.graph.n_steps is None or not isinstance(fitted.rule, WalkStep):
        reject(
            "times", "None where the space gets no heat graph (too many dimensions)", f"a range, on {kernel.graph}"
        )
    first = kernel.graph.n_steps // 2
    evenly = {round(first * OCTAVE ** (k / _TABLES)) for k in range(_TABLES + 1)}
    steps = np.array(_FEW.get(first, sorted(evenly)))
    needed = steps.tolist()
    longer = zip(range(first + 1, needed[-1] + 2), longer_tables(fitted, n_jobs), strict=False)
    tables = {first: fitted.table} | {s: table for s, table in longer if s in needed or s - 1 in needed}
    widest = tables[needed[-1]]
    values = np.stack([_entries_at(tables[s], widest) for s in needed])
    at_nodes = [tables[s + 1] for s in needed]  # features of nodes: their first step is one of the graph
    heights = _mean_products(kernel, at_nodes, fitted.weights)
    indptr, indices = widest.indptr.astype(np.int64), widest.indices.astype(np.int64)
    return ScaleLevel(kernel, fitted.anchors, fitted.weights, steps, indptr, indices, values, heights)


def longer_tables(fitted: FeatureMap, n_jobs: int) -> Iterator[Any]:
    """Tables of features with one more step each, beginning with that of a given map."""
    table, roots = fitted.table, np.sqrt(fitted.kernel.measure)
    scaled = sparse.diags_array(reciprocal(roots)) @ fitted.graph.operator @ sparse.diags_array(roots)
    step = sparse.csr_array(scaled)
    while True:
        table = without_negligible(times_table(step, table, n_jobs, as_sparse=True), STEP_SHARE)
        yield table


def _entries_at(table: Any, pattern: Any) -> Any:
    """Entries of a table at the places of a wider one; all others are negligible."""
    keys = [
        np.repeat(np.arange(part.shape[0]) * part.shape[1], np.diff(part.indptr)) + part.indices
        for part in (pattern, table)
    ]
    place = np.minimum(np.searchsorted(keys[0], keys[1]), len(keys[0]) - 1)
    there = keys[0][place] == keys[1]
    found = np.zeros(len(keys[0]), np.float32)
    found[place[there]] = table.data[there]
    return found


def _mean_products(kernel: GraphKernel, tables: list[Any], weights: FloatArray) -> FloatArray:
    """Mean over the nodes of weighted inner products of the rows of each two tables, shape (k, k)."""
    usable = np.flatnonzero(kernel.measure > 0)
    rows = [table[usable] for table in tables]
    total = np.zeros((len(rows), len(rows)))
    with quiet_underflow():
        for i, left in enumerate(rows):
            for k, right in enumerate(rows[i:], start=i):
                total[i, k] = total[k, i] = (left.multiply(right) @ weights).sum()
    return total / len(usable)


@stored
@dataclass(frozen=True, eq=False)
class Scales:
    """Feature maps at all times of a range.

    Attributes
    ----------
    levels : tuple of ScaleLevel
    longest : float
        End of the range; it begins with the shortest time of the first level.
    """

    levels: tuple[ScaleLevel, ...]
    longest: float

    def __post_init__(self) -> None:
        if not self.levels or not all(isinstance(level, ScaleLevel) for level in self.levels):
            reject("levels", "at least one level", "others")
        check_real(self.longest, "longest", POSITIVE)

    @property
    def shortest(self) -> float:
        """Begin of the range."""
        return self.levels[0].shortest

    def number(self, t: float) -> int:
        """Number of the level of a time; raises if the time is out of the range."""
        if not self.shortest * (1 - _EDGE) <= t <= self.longest * (1 + _EDGE):
            text = f"in the range of this fit, {self.shortest:g} to {self.longest:g}"
            reject("t", f"{text} (remedy: fit with other `times`)", t)
        starts = np.array([level.shortest for level in self.levels]) * (1 - _EDGE)
        return max(0, int(np.searchsorted(starts, t, side="right")) - 1)

    def parts(self, t: float) -> list[tuple[int, float, float]]:
        """The levels whose sum is a kernel that is smooth in t: numbers, factors and their derivatives by log t.

        Features switch to the next level at the end of an octave. A kernel whose time is learnt must not jump: in
        the first part of an octave it passes from the level before to the next one.
        """
        number = self.number(t)
        width = BLEND * math.log(OCTAVE)
        x = max(0.0, math.log(t / self.levels[number].shortest)) / width
        if number == 0 or x >= 1:
            return [(number, 1.0, 0.0)]
        share, slope = math.sin(math.pi / 2 * x) ** 2, math.pi / 2 * math.sin(math.pi * x) / width
        return [(number - 1, 1 - share, -slope), (number, share, slope)]

    def at(self, kernel: AbstractKernel, *, normalize: bool) -> FeatureMap:
        """The feature map of a heat or Matern kernel."""
        if isinstance(kernel, HeatKernel):
            level = self.levels[self.number(kernel.t)]
            found, height = level.at(kernel.t), level.height(kernel.t)
        elif isinstance(kernel, MaternKernel) and kernel.clock == "manifold":
            found, height = self._mixture(kernel)
        else:
            rule = "a time, a HeatKernel, or a MaternKernel with clock='manifold'"
            reject("kernel", rule, repr(kernel), TypeError)
        return replace(found, factor=1 / height) if normalize else found

    def described(self, kernel: AbstractKernel) -> str:
        """Where the features of a kernel come from, for the summary."""
        if isinstance(kernel, HeatKernel):
            return f"from the tables of t = {self.levels[self.number(kernel.t)].shortest:.3g} and longer times"
        return f"a sum of heat kernels at {len(self.levels)} times"

    def shares(self, kernel: MaternKernel) -> FloatArray:
        """Factors of the heat kernels of the levels, whose sum is the Matern kernel, shape (n_levels,).

        What times before the first level and after the last one would add is given to these two, and refused if it
        is a large share.
        """
        dim, times = self.levels[0].kernel.dim, np.array([level.shortest for level in self.levels])
        power, rate = kernel.nu + dim / 2, kernel.rate
        octaves = np.arange(-FAR, len(times) + FAR, dtype=np.float64)
        logs = power * np.log(times[0] * OCTAVE**octaves) - rate * times[0] * OCTAVE**octaves - gammaln(power)
        terms = math.log(OCTAVE) * np.exp(logs)
        shares = np.zeros(len(times))
        np.add.at(shares, np.clip(octaves, 0, len(times) - 1).astype(np.int64), terms)
        narrow = float(gammainc(kernel.nu, rate * self.shortest / math.sqrt(OCTAVE)))
        if narrow > _LOST:
            rule = f"a kernel with at least {1 - _LOST:.0%} of its height from times above {self.shortest:.3g}"
            reject("kernel", f"{rule} (remedy: `times` from shorter ones)", f"{kernel} with {1 - narrow:.0%}")
        heights = np.array([level.height(level.shortest) for level in self.levels])
        # Longer times than the last only make the kernel more even: at best it is one over the volume.
        uneven = max(0.0, heights[-1] - 1 / self.levels[-1].kernel.volume)
        wide = float(terms[octaves >= len(times)].sum() * uneven / (shares @ heights))
        if wide > _LOST:
            rule = f"a kernel that times above {self.longest:.3g} change by less than {_LOST:.0%}"
            reject(
                "kernel", f"{rule} (remedy: `times` up to longer ones)", f"{kernel}, changed by up to {wide:.0%}"
            )
        return shares

    def _mixture(self, kernel: MaternKernel) -> tuple[FeatureMap, float]:
        """The feature map of a Matern kernel, and its mean height."""
        shares, first = self.shares(kernel), self.levels[0]
        unit = first.kernel.unit
        weights = [
            share * unit / level.kernel.unit * level.weights
            for share, level in zip(shares, self.levels, strict=True)
        ]
        search = first.kernel.graph._search
        nearest = [search.knn(level.kernel.graph.positions[level.anchors], 1)[1][:, 0] for level in self.levels]
        rule = JoinedSteps(tuple(WalkStep(level.kernel.graph) for level in self.levels))
        table = sparse.block_diag([level.table(level.shortest) for level in self.levels], format="csr")
        on_graph = replace(
            first.kernel, stated=kernel, resolved=kernel.resolve(first.kernel.graph, first.kernel.dim)
        )
        height = sum(share * level.height(level.shortest) for share, level in zip(shares, self.levels, strict=True))
        anchors = np.concatenate(nearest)
        joined = FeatureMap(on_graph, rule, sparse.csr_array(table), anchors, np.concatenate(weights))
        return joined, float(height)

    def error(self, kernel: AbstractKernel, streams: Streams, n_jobs: int) -> ErrorEstimate:
        """Estimated error of features; that of a Matern kernel is the mean over its heat kernels."""
        if isinstance(kernel, HeatKernel):
            return self._error_at(kernel.t, streams, n_jobs)
        shares = self.shares(kernel)  # type: ignore[arg-type]
        heights = shares * [level.height(level.shortest) for level in self.levels]
        errors = [self._error_at(level.shortest, streams, n_jobs) for level in self.levels]

        def mean(name: str) -> Any:
            parts = [getattr(error, name) for error in errors]
            return None if None in parts else float(np.average(parts, weights=heights))

        return ErrorEstimate(mean("kernel"), mean("field"), mean("quadrature"), mean("graph"), mean("signatures"))

    def _error_at(self, t: float, streams: Streams, n_jobs: int) -> ErrorEstimate:
        number = self.number(t)
        level = self.levels[number]
        found = level.at(t)
        rest = np.setdiff1d(np.flatnonzero(level.kernel.measure > 0), level.anchors)
        rest = rest if len(rest) >= _PROBES else np.flatnonzero(level.kernel.measure > 0)
        rng = streams.generator("features.scales")
        nodes = np.sort(rng.choice(rest, min(_PROBES, len(rest)), replace=False))
        error = held_out_error(found, exact_reference(found.kernel, nodes, n_jobs), n_jobs)
        between = level.interpolation_error(t)
        field, kernel = (float(np.hypot(share, between)) for share in (error.field, error.kernel))
        error = replace(error, field=field, kernel=kernel)
        # The share of the graph at a time between two levels is between theirs.
        ends = [self._graph_error(k, streams, n_jobs) for k in (number, min(number + 1, len(self.levels) - 1))]
        if ends[0] is None or ends[1] is None:
            return error.with_graph(ends[0])
        share = math.log(t / level.shortest, OCTAVE)
        return error.with_graph(ends[0] ** (1 - share) * ends[1] ** share)

    def _graph_error(self, number: int, streams: Streams, n_jobs: int) -> float | None:
        if number not in self._graph_errors:
            self._graph_errors[number] = graph_error(self.levels[number].kernel, streams, n_jobs)
        return self._graph_errors[number]

    @cached_property
    def _graph_errors(self) -> dict[int, float | None]:
        """Error of the graph of each level, computed on demand."""
        return {}


@dataclass(eq=False)
class PreparedPoints:
    """Features of fixed points at any time of the range; each level is evaluated when it is first needed.

    Attributes
    ----------
    scales : Scales
    points : array of shape (q, d)
    normalize : bool
    n_jobs : int
    warn : bool
        Whether points away from the space are reported.
    """

    scales: Scales
    points: FloatArray
    normalize: bool = True
    n_jobs: int = 1
    warn: bool = False

    def __post_init__(self) -> None:
        self._blocks: dict[int, FloatArray] = {}
        self._kernels: dict[int, FloatArray] = {}

    def blocks(self, number: int, n_tables: int | None = None) -> FloatArray:
        """Features of the tables of a level, all or the first few, in absolute units, shape (k, q, m)."""
        level = self.scales.levels[number]
        wanted = len(level.tables) if n_tables is None else n_tables
        if len(self._blocks.get(number, ())) < wanted:
            graph, scale = level.kernel.graph, level.kernel.unit**-0.5
            with quiet_underflow():
                placed = graph.placed(self.points, self.n_jobs)
                window = level.kernel.window(self.points, placed)
                steps = WalkStep(graph).rows(placed)
                tables = [level._table(table.astype(np.float64)) for table in level.tables[:wanted]]
                found = [times_table(steps, table, self.n_jobs, as_sparse=False) for table in tables]
                self._blocks[number] = np.stack(found) * (scale * np.sqrt(level.weights) * window[:, None])
            if self.warn:
                warn_of_far(window)
        return self._blocks[number][:wanted]

    def at(self, t: float) -> FloatArray:
        """Features of the points at the time t, shape (q, m)."""
        number = self.scales.number(t)
        level = self.scales.levels[number]
        rows = np.tensordot(level.coefficients(t), self.blocks(number), 1)
        np.maximum(rows, 0.0, out=rows)
        return rows * level.height(t) ** -0.5 if self.normalize else rows

    def kernel_matrix(self, t: float) -> FloatArray:
        """The kernel between the points at the time t, shape (q, q), without products of features if q is small.

        Features are polynomials in log t of a degree d, so the kernel is one of the degree 2 d: 2 d + 1 kernels of
        each level, which are computed when it is first needed and kept, give all others.
        """
        number = self.scales.number(t)
        if not self._few(number):
            return symmetric_product(self.at(t), self.n_jobs)
        height = self.scales.levels[number].height(t) if self.normalize else 1.0
        return self._mixed(number, self._factors(number, t) / height)

    def smooth(self, t: float) -> tuple[FloatArray, FloatArray]:
        """Features that are smooth in t, and their derivatives by log t, shape (q, m) each.

        Between levels they are those of both, see :meth:`Scales.parts`. Values that rounding and interpolation make
        slightly negative stay, because cut ones would not be smooth.
        """
        found, slopes = [], []
        for number, share, change in self._terms(t):
            level, blocks = self.scales.levels[number], self.blocks(number)
            factors, rates = level.coefficients(t), level.coefficients(t, derivative=True)
            root = math.sqrt(share)
            slope = change / (2 * root) if root else 0.0  # at 0 the derivative of the product is 0
            found.append(np.tensordot(root * factors, blocks, 1))
            slopes.append(np.tensordot(root * rates + slope * factors, blocks, 1))
        return np.concatenate(found, axis=1), np.concatenate(slopes, axis=1)

    def smooth_kernel(self, t: float) -> tuple[FloatArray, FloatArray]:
        """The kernel of the smooth features, and its derivative by log t, shape (q, q) each."""
        terms = list(self._terms(t))
        if not self._few(terms[0][0]):
            rows, slopes = self.smooth(t)
            half = product(slopes, rows, self.n_jobs)
            return symmetric_product(rows, self.n_jobs), half + half.T
        kernel, gradient = np.zeros((2, len(self.points), len(self.points)))
        for number, share, change in terms:
            factors, rates = self._factors(number, t), self._factors(number, t, derivative=True)
            kernel += self._mixed(number, share * factors)
            gradient += self._mixed(number, share * rates + change * factors)
        return kernel, gradient

    def _terms(self, t: float) -> Iterator[tuple[int, float, float]]:
        """Numbers of levels, and factors of their kernels in absolute units with derivatives by log t."""
        for number, share, change in self.scales.parts(t):
            level, height, rise = self.scales.levels[number], 1.0, 0.0
            if self.normalize:
                height = level.height(t)
                rates = level.coefficients(t, derivative=True)
                rise = 2 * float(level.coefficients(t) @ level.heights @ rates) / (level.kernel.unit * height)
            yield number, share / height, (change - share * rise) / height

    def _degree(self, number: int) -> int:
        return 2 * (len(self.scales.levels[number].steps) - 1)

    def _few(self, number: int) -> bool:
        """Whether the kernels of a level fit into memory."""
        return (self._degree(number) + 1) * len(self.points) ** 2 <= _MOST_ENTRIES

    def _factors(self, number: int, t: float, *, derivative: bool = False) -> FloatArray:
        """Factors of the kernels that are kept."""
        known = np.linspace(0, math.log(OCTAVE), self._degree(number) + 1)
        return lagrange(known, math.log(t / self.scales.levels[number].shortest), derivative=derivative)

    def _mixed(self, number: int, factors: FloatArray) -> FloatArray:
        if number not in self._kernels:
            level, blocks = self.scales.levels[number], self.blocks(number)
            times = level.shortest * np.geomspace(1, OCTAVE, len(factors))
            rows = (np.tensordot(level.coefficients(t), blocks, 1) for t in times)
            self._kernels[number] = np.stack([symmetric_product(part, self.n_jobs) for part in rows])
        return np.asarray(np.tensordot(factors, self._kernels[number], 1))


def fit_scales(fit: Callable[[float], FeatureMap], times: tuple[float, float], n_jobs: int) -> Scales:
    """Levels for a range of times, from a function that fits features of one time."""
    return Scales(tuple(make_level(fit(t), n_jobs) for t in level_times(times)), times[1])
