"""Gaussian regression on m features, and the search for the time of the kernel.

f(z) = phi(z) . w with w ~ N(0, variance I) and y = f(x) + noise. With Phi (n, m) = U diag(sqrt(s)) V^T the
likelihood is a function of s, of U^T y and of the ratio noise / variance, and the posterior of w has the mean
V diag(sqrt(s) / (s + ratio)) U^T y and the covariance variance (I - V diag(s / (s + ratio)) V^T). One decomposition
serves the whole search, and no matrix of the size of the data is formed.

Only s + ratio is inverted, so there is no Cholesky factor and no jitter. Instead, a ratio below ``SMALLEST_RATIO``
times the largest s, where rounding of s begins to matter, is raised to that.

For the search, :class:`Modes` stores the features of the data as one block for each length of a walk (or degree of
a polynomial). Features for another time are weighted sums of the same blocks.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.optimize import minimize_scalar

from manifoldrf._runtime import one_blas_thread, quick_map, warn_user
from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.features.anchors import spacing_of, voronoi_weights
from manifoldrf.features.errors import FeatureWarning
from manifoldrf.features.graph_kernel import GraphKernel
from manifoldrf.features.options import FitOptions, HeatGraph, Teaching
from manifoldrf.features.rules import interpolation_rule, product, rows_of
from manifoldrf.geometry.csr import check_amounts, check_numbers, check_shape, csr_parts, reciprocal
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.paths import farthest_nodes
from manifoldrf.kernels.abstract_kernel import AbstractKernel, ProductKernel, ScaledKernel, SumKernel
from manifoldrf.kernels.action import expand, indicator_columns, step_columns
from manifoldrf.kernels.graph_kernels import DiffusionKernel, PowerKernel, RegularizedLaplacianKernel
from manifoldrf.kernels.manifold_kernels import HeatKernel, MaternKernel
from manifoldrf.signatures.options import Counts, Walks, coefficients_of
from manifoldrf.signatures.teachers import compute_signatures

SMALLEST_RATIO = 1e-12
# If s is computed from the product Phi^T Phi, values below this share of the largest s are rounding errors.
_ROUNDING = 1e-13
# Grid of ratios relative to the mean of s: from data without noise to data that are only noise.
_LOWEST, _HIGHEST, _TRIES = 1e-8, 1e4, 37
# Height over width of blocks of rows that are decomposed separately: half of 20,000 rows of 982 features.
_BLOCK_HEIGHT = 8
_MOST_BLOCKS = 16  # one thread decomposes their triangles
_SMALLEST_VARIANCE = 1e-200  # for constant data: its logarithm is finite
_LARGEST_VARIANCE = 1e300
_TINY = float(np.finfo(np.float64).tiny)
WORST = -1e300  # lower bound of a log likelihood, for levels that do not fit the data at all


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Singular value decomposition of the features, applied to the data.

    Attributes
    ----------
    values : array of shape (r,)
        s, squares of the singular values of Phi, nonnegative.
    shares : array of shape (r, c)
        U^T y.
    rest : array of shape (c,)
        Squared length of the part of each column of y that is orthogonal to U.
    n : int
        Number of data.
    directions : array of shape (m, r), optional
        V; orthonormal columns.
    """

    values: FloatArray
    shares: FloatArray
    rest: FloatArray
    n: int
    directions: FloatArray | None = None

    @property
    def height(self) -> float:
        """Mean of |phi(x)|^2 over the data."""
        return float(self.values.sum()) / self.n

    def ratio(self, ratio: float) -> float:
        """Raise a ratio to the smallest that rounding allows."""
        return max(ratio, SMALLEST_RATIO * float(self.values.max(initial=0.0)), np.finfo(np.float64).tiny)

    def misfit(self, ratio: float) -> FloatArray:
        """y^T (Phi Phi^T + ratio I)^-1 y, shape (c,)."""
        return np.asarray((1 / (self.values + ratio)) @ self.shares**2 + self.rest / ratio)

    def log_likelihood(self, variance: FloatArray, ratio: float) -> float:
        """Log marginal likelihood of all columns, with a variance for each, shape (c,), and a common ratio."""
        log_det = np.log(self.values + ratio).sum() + (self.n - len(self.values)) * np.log(ratio)
        with np.errstate(over="ignore"):  # given levels may not fit the data at all
            columns = self.misfit(ratio) / variance + self.n * np.log(2 * np.pi * variance) + log_det
            found = float(-0.5 * columns.sum())
        return max(found, WORST)


def singular_parts(rows: FloatArray, n_jobs: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """U (n, r), singular values (r,) and V^T (r, m) of rows (n, m); the bits do not depend on ``n_jobs``.

    With many more rows than columns, threads reduce blocks of rows to triangles by QR, and the triangles are
    decomposed together. All factors are orthogonal, so this is as accurate as decomposing all rows at once.
    """
    n, m = rows.shape
    edges = np.linspace(0, n, max(1, min(_MOST_BLOCKS, n // (_BLOCK_HEIGHT * m))) + 1).astype(np.int64)
    if len(edges) == 2:
        left, singular, right = linalg.svd(rows, full_matrices=False)
        return left, singular, right
    spans = [slice(int(a), int(b)) for a, b in pairwise(edges)]
    factors = quick_map(lambda span: linalg.qr(rows[span], mode="economic"), spans, n_jobs)
    turns, singular, right = linalg.svd(np.vstack([triangle for _, triangle in factors]), full_matrices=False)
    turned = quick_map(lambda k: factors[k][0] @ turns[k * m : (k + 1) * m], range(len(spans)), n_jobs)
    return np.concatenate(turned), singular, right


def decompose(rows: FloatArray, targets: FloatArray, *, directions: bool = False) -> Spectrum:
    """Spectrum of features (n, m) and centred targets (n, c): O(n m min(n, m)).

    With fewer data than features and ``directions`` by a singular value decomposition, which is the most accurate;
    else by the eigenvectors of the smaller of the two products.
    """
    n, m = rows.shape
    if n > m:
        return decompose_parts([(rows, targets)], m)
    with one_blas_thread():  # the last bits of products depend on the number of threads
        if directions:
            left, singular, right = linalg.svd(rows, full_matrices=False)
            return Spectrum(singular**2, left.T @ targets, np.zeros(targets.shape[1]), n, right.T)
        values, vectors = linalg.eigh(rows @ rows.T)
        return Spectrum(np.maximum(values, 0.0), vectors.T @ targets, np.zeros(targets.shape[1]), n)


def decompose_parts(parts: Iterable[tuple[FloatArray, FloatArray]], m: int) -> Spectrum:
    """The same for more data than features, one part of the data at a time: memory of m^2 and one part."""
    gram, moments, total, n = np.zeros((m, m)), np.zeros((m, 1)), np.zeros(1), 0
    with one_blas_thread():
        for rows, targets in parts:
            gram += rows.T @ rows
            moments = moments + rows.T @ targets  # (m, c)
            total = total + (targets**2).sum(axis=0)
            n += len(rows)
        values, vectors = linalg.eigh(gram)
        found = vectors.T @ moments
    values = np.maximum(values, 0.0)
    real = values > _ROUNDING * values[-1]
    roots = np.sqrt(np.where(real, values, 1.0))[:, None]
    shares = np.where(real[:, None], found / roots, 0.0)
    rest = np.maximum(total - (shares**2).sum(axis=0), 0.0)
    return Spectrum(values, shares, rest, n, vectors)


@dataclass(frozen=True, eq=False)
class Levels:
    """Variance of each column, shape (c,), the common ratio of noise to variance, and the log likelihood."""

    variance: FloatArray
    ratio: float
    log_likelihood: float


def find_levels(spectrum: Spectrum, variance: float | None, noise: float | None) -> Levels:
    """Maximise the likelihood over the variance and the noise that are None; a noise that is too small is raised.

    If both are free, the best variance has the closed form y^T (Phi Phi^T + ratio I)^-1 y / n, so that only the
    ratio is searched: on a logarithmic grid, and then between the neighbours of the best.
    """

    def levels(log_ratio: float) -> Levels:
        ratio = spectrum.ratio(float(np.exp(log_ratio)))
        if variance is not None:
            own = np.full(len(spectrum.rest), variance)
        elif noise is not None:
            share = noise / float(np.exp(log_ratio))  # before the ratio is raised
            own = np.full(len(spectrum.rest), min(max(share, _TINY), _LARGEST_VARIANCE))
        else:
            own = np.maximum(spectrum.misfit(ratio) / spectrum.n, _SMALLEST_VARIANCE)
        return Levels(own, ratio, spectrum.log_likelihood(own, ratio))

    if variance is not None and noise is not None:
        return levels(float(np.log(np.clip(noise / variance, _TINY, _LARGEST_VARIANCE))))
    height = spectrum.height or 1.0
    low, high = np.log(_LOWEST * height), np.log(_HIGHEST * height)
    if variance is not None or noise is not None:  # the unit of the data decides where the free level lies
        low, high = low - 20.0, high + 20.0
    if noise is not None:  # so that the grid contains the best variance however small the noise is
        share = noise / float(find_levels(spectrum, None, None).variance.max())
        low = min(low, float(np.log(max(share, _TINY))) - 5.0)
    grid = np.linspace(low, high, _TRIES)
    tried = [levels(float(log_ratio)).log_likelihood for log_ratio in grid]
    best = int(np.argmax(tried))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, _TRIES - 1)]

    def loss(log_ratio: float) -> float:
        return -levels(float(log_ratio)).log_likelihood

    found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6})
    return max(levels(float(grid[best])), levels(float(found.x)), key=lambda level: level.log_likelihood)


@dataclass(frozen=True, eq=False)
class Posterior:
    """Posterior of the weights of the features for one kernel and known levels.

    Attributes
    ----------
    weights : array of shape (m, c)
        Mean of the weights.
    directions : array of shape (m, r)
    shrinkage : array of shape (r,)
        Share by which the data narrow each direction: 1 - sqrt(ratio / (s + ratio)).
    variance, noise, prior : array of shape (c,)
        Factor of the kernel, variance of the noise, and prior variance of f, averaged over the data.
    """

    weights: FloatArray
    directions: FloatArray
    shrinkage: FloatArray
    variance: FloatArray
    noise: FloatArray
    prior: FloatArray
    offset: float = 0.0  # the mean of the data is taken for certain

    def check(self, m: int, c: int) -> None:
        """Raise unless the parts are those of m features and c outputs."""
        check_shape("weights", self.weights, (m, c))
        check_shape("directions", self.directions, (m, len(self.shrinkage)))
        for name in ("weights", "directions"):
            check_numbers(name, getattr(self, name))
        check_amounts("shrinkage", self.shrinkage, len(self.shrinkage))
        for name in ("variance", "noise", "prior"):
            check_amounts(name, getattr(self, name), c)

    def squares(self, rows: FloatArray, n_jobs: int) -> FloatArray:
        """Posterior variance at points with these features, (q, c)."""
        kept = product(rows, self.directions.T, n_jobs) ** 2 @ (1 - (1 - self.shrinkage) ** 2)
        return np.asarray(np.maximum((rows**2).sum(axis=1) - kept, 0.0))[:, None] * self.variance

    def covariances(self, rows: FloatArray, n_jobs: int) -> FloatArray:
        """Posterior covariance at points with these features, (q, q, c)."""
        spread = self._spread(rows, n_jobs)
        return np.asarray(product(spread, spread, n_jobs)[:, :, None] * self.variance)

    def draws(self, rows: FloatArray, normal: FloatArray, n_jobs: int) -> FloatArray:
        """Deviations from the mean at points, (N, q, c), from standard normal numbers (N, c, m + 1)."""
        found = np.tensordot(self._spread(rows, n_jobs), normal[:, :, :-1], (1, 2))
        return np.asarray(np.moveaxis(found, 0, 1) * np.sqrt(self.variance))

    def _spread(self, rows: FloatArray, n_jobs: int) -> FloatArray:
        """B of shape (q, m) such that B B^T is the posterior covariance at these features over the variance."""
        shares = product(rows, self.directions.T, n_jobs) * self.shrinkage
        return np.asarray(rows - product(shares, self.directions, n_jobs))


def posterior_of(spectrum: Spectrum, levels: Levels) -> Posterior:
    """The posterior for a variance and a ratio of noise to variance."""
    if spectrum.directions is None:
        raise ValueError("a posterior needs the directions of the spectrum")
    values, ratio, variance = spectrum.values, levels.ratio, levels.variance
    weights = spectrum.directions @ ((np.sqrt(values) / (values + ratio))[:, None] * spectrum.shares)
    shrinkage = 1 - np.sqrt(ratio / (values + ratio))
    height = spectrum.height * variance
    return Posterior(weights, spectrum.directions, shrinkage, variance, ratio * variance, height)


def leave_one_out(
    left: FloatArray,
    values: FloatArray,
    shares: FloatArray,
    data: tuple[FloatArray, FloatArray],
    alpha: float | None,
) -> tuple[float, float, float]:
    """The best penalty, its leave-one-out error, and the sum over outputs of its shares of their variances.

    From centred targets times sqrt(weight) and the weights.

    Without datum i the residual there is (y_i - f_i) / (1 - H_ii), where H maps y to the fitted values. Of a datum
    with a weight above 1, a share of weight 1 is left out.
    """
    targets, mass = data
    n, out = float(mass.sum()), np.minimum(1.0, 1 / mass)
    height = float(values.sum()) / n or 1.0
    grid = height * np.geomspace(_LOWEST, _HIGHEST, _TRIES)
    squares, size = left**2, np.maximum((targets**2).sum(axis=0) / n, np.finfo(np.float64).tiny)
    best = np.inf, np.inf, 0.0
    for penalty in [alpha] if alpha is not None else grid[::-1]:
        kept = np.divide(values, values + penalty, out=np.zeros_like(values), where=values > 0)  # (r,)
        residuals = targets - left @ (kept[:, None] * shares)
        own = np.maximum(1 - out * (mass / n + squares @ kept), np.finfo(np.float64).eps)
        errors = ((residuals / own[:, None]) ** 2).sum(axis=0) / n
        score = float((errors / size).sum())
        if score < best[0]:
            best = score, float(np.sqrt(errors.mean())), float(penalty)
    return best[2], best[1], best[0]


MOST_ENTRIES = 2**26  # 512 MB
MOST_ROWS = 2048  # enough data to find the time of a kernel to a few per cent
# Numbers of lengths. 64 Chebyshev polynomials are enough for a heat kernel of 280 steps. If the best time is the
# longest that they allow, 128 are tried (1100 steps); if it is too short for the anchors that fit into memory with
# so many lengths, 32 are (70 steps). Walks are taken only once.
_LENGTHS = (32, 64, 128)
_WALK_LENGTHS = 64  # powers: times up to 128 steps of a heat graph
_TOLERANCE = 1e-6  # share of a series that may be truncated
_AT_ONCE = 256  # starts of walks in memory
_COLUMNS, _BATCH = 16, 32  # columns that a thread propagates together, and such groups between reports
# Automatic number of features: anchors .7 widths apart, at least 256, and at most 4096, unless the data are so few
# that m n numbers still fit into ``MOST_ENTRIES``. All nodes if that is at most twice as many, and quick.
CLOSE = 0.7
_FEWEST_ANCHORS, _MOST_ANCHORS, _ALL_NODES = 256, 4096, 2048
_NODES_PER_DATUM, _NODES = 32, (500, 4000)
# A kernel narrower than this share of the distance between data is the same to them as noise: without a limit, 90 %
# intervals of 10 and 20 values on the sphere hold the same to 1 %. With a share of .36 the error grows by 2 %.
_NARROWEST = 0.24
# Allowed difference of the log likelihoods of the fitted features and of the search. A factor of e^5 is very strong
# evidence; the different anchor weights changed those of heat kernels by less than .006 per datum.
_SAME, _SAME_PER_DATUM = 5.0, 0.01
# Noise relative to the variance of the data from which the shortest time is too long: 3e-4 for waves on 1500 points
# of a torus with errors of 27 % at other points; below 3e-7 for y = z at 100 and 300 points of the sphere.
_NOISY = 1e-4
_CLEARLY = 2.0  # difference of log likelihoods: a factor of e^2 is evidence


@dataclass(frozen=True, eq=False)
class Modes:
    """Features of the data, one block for each length.

    Attributes
    ----------
    blocks : array of shape (L + 1, n, m)
        Features of n points at m anchors for each length, in the unit of the features.
    of_powers : bool
        Whether block k belongs to W^k; otherwise to the Chebyshev polynomial T_k(W).
    narrowest : float
        Smallest time that the anchors and the data can resolve, relative to the time of the initial kernel.
    good : float
        Smallest time for which the anchors are close enough.
    """

    blocks: FloatArray
    of_powers: bool
    narrowest: float = 0.0
    good: float = 0.0

    def features(self, kernel: AbstractKernel) -> FloatArray | None:
        """Features of the data for a resolved kernel, shape (n, m); None if it needs more lengths."""
        series = kernel.root()
        try:
            if self.of_powers:
                found = coefficients_of(series, series.truncation(_TOLERANCE), 1.0)
            else:
                found = expand(series.spectral, 1.0, _TOLERANCE).coefficients
        except ValueError:  # a series that does not converge, or not soon enough
            return None
        if len(found) > len(self.blocks):
            return None
        return np.asarray(np.tensordot(found, self.blocks[: len(found)], 1))


def compute_modes(
    problem: GraphKernel,
    places: FloatArray,
    most_anchors: int,
    signatures: Teaching,
    n_lengths: int = _LENGTHS[0],
) -> Modes:
    """Compute the blocks of features of some points.

    Parameters
    ----------
    problem : GraphKernel
    places : array of shape (n, d)
    most_anchors : int
        Upper bound; memory may allow fewer.
    signatures : Teaching
        "walks" and "counts" estimate the blocks from random walks; with other teachers they are exact.
    n_lengths : int
        Largest length L of exact blocks.
    """
    graph, measure = problem.graph, problem.measure
    walked = isinstance(signatures.teacher, Walks | Counts)
    n_blocks = (_WALK_LENGTHS if walked else n_lengths) + 1
    room = MOST_ENTRIES // (n_blocks * len(places))
    m = max(1, min(most_anchors, room))
    everything = m >= graph.n_nodes
    anchors = np.arange(graph.n_nodes) if everything else farthest_nodes(graph, m)
    weights = measure if everything else voronoi_weights(graph, measure, anchors)
    reach = _reach(problem, places, signatures.n_jobs)
    blocks = np.zeros((n_blocks, len(places), len(anchors)))
    (_walk if walked else _propagate)(graph, reach, anchors, blocks, signatures)
    scale = problem.unit**-0.5 if problem.per_volume else 1.0
    blocks *= scale * np.sqrt(weights) * reciprocal(np.sqrt(measure[anchors]))
    spacing = spacing_of(problem.volume, len(anchors), problem.dim)
    narrowest = _NARROWEST * spacing_of(problem.volume, len(places), problem.dim)
    if everything:
        return Modes(blocks, walked, (narrowest / problem.width) ** 2)
    narrowest = max(narrowest, spacing / 1.2)
    return Modes(blocks, walked, (narrowest / problem.width) ** 2, (spacing / (CLOSE * problem.width)) ** 2)


def _reach(problem: GraphKernel, places: FloatArray, n_jobs: int) -> Any:
    """Matrix from values at the nodes to features of points, CSR (n, N): signatures / sqrt(mu), interpolated."""
    graph, measure = problem.graph, problem.measure
    shares = rows_of(interpolation_rule(graph, problem.dim), places, n_jobs)
    own = np.ones(len(places))
    if not problem.per_volume:  # as if the point were a node
        own = np.exp(shares @ np.log(np.maximum(measure, measure[measure > 0].min())) / 2)
    return (sparse.diags_array(own) @ shares @ sparse.diags_array(reciprocal(np.sqrt(measure)))).tocsr()


def _propagate(
    graph: Graph, reach: Any, anchors: IntArray, blocks: FloatArray, signatures: Teaching
) -> None:
    """Fill block k with T_k(W), starting from the side with fewer columns; W is symmetric.

    Each thread takes columns through all lengths, so that threads never wait for each other.
    """
    from_anchors = len(anchors) < reach.shape[0]
    total = len(anchors) if from_anchors else reach.shape[0]
    csr = csr_parts(graph.operator)
    every = (0, graph.n_nodes)

    def run(start: int) -> None:
        stop = min(start + _COLUMNS, total)
        if from_anchors:
            current = indicator_columns(graph.n_nodes, anchors[start:stop])
        else:
            current = np.ascontiguousarray(reach[start:stop].toarray().T)
        before, unused = np.zeros_like(current), np.zeros_like(current)
        for k, block in enumerate(blocks):
            if from_anchors:
                block[:, start:stop] = reach @ current
            else:
                block[start:stop] = current[anchors].T
            # T_1 = W T_0 and T_{k+1} = 2 W T_k - T_{k-1}, in the place of T_{k-1}
            step_columns((*csr, 2.0 if k else 1.0), current, before, unused, 0.0, every)
            current, before = before, current

    starts = range(0, total, _COLUMNS)
    for first in range(0, len(starts), _BATCH):
        signatures.progress("lengths", starts[first], total)
        quick_map(run, starts[first : first + _BATCH], signatures.n_jobs)
    signatures.progress("lengths", total, total)


def _walk(graph: Graph, reach: Any, anchors: IntArray, blocks: FloatArray, signatures: Teaching) -> None:
    """Fill block k with estimates of W^k from random walks, starting from the side with fewer nodes."""
    touched = np.unique(reach.indices).astype(np.int64)
    from_anchors = len(anchors) < len(touched)
    starts = anchors if from_anchors else touched
    options = {**signatures.teacher.get_params(), "keep_lengths": True, "max_length": len(blocks) - 1}
    for start in range(0, len(starts), _AT_ONCE):
        nodes = starts[start : start + _AT_ONCE]
        lengths = compute_signatures(
            graph,
            PowerKernel(0),  # all lengths are kept for any kernel; this one needs no more
            nodes,
            teacher="walks" if isinstance(signatures.teacher, Walks) else "counts",
            asymmetric=True,
            seed=signatures.seed,
            n_jobs=signatures.n_jobs,
            **options,
        ).lengths
        for k in range(len(blocks)):
            rows = lengths[k :: len(blocks)]  # (len(nodes), N)
            if from_anchors:
                blocks[k, :, start : start + len(nodes)] = (reach @ rows.T).toarray()
            else:
                blocks[k] += (reach[:, nodes] @ rows[:, anchors]).toarray()
        signatures.progress("lengths", min(start + _AT_ONCE, len(starts)), len(starts))


def stretched(kernel: AbstractKernel, factor: float, graph: Graph) -> AbstractKernel | None:
    """Multiply the time of a kernel by a factor, or its length scale by the root; None if it has neither.

    On a heat graph the time of a heat kernel is rounded to an even number of steps.
    """
    if isinstance(kernel, HeatKernel):
        t = kernel.t * factor
        if graph.n_steps is not None:
            step = graph.time(1.0)
            t = 2 * max(1, round(t / step / 2)) * step
        return HeatKernel(t)
    for kind, name, power in _TIMES:
        if isinstance(kernel, kind):
            return kernel.with_params(**{name: getattr(kernel, name) * factor**power})
    if isinstance(kernel, ScaledKernel | SumKernel | ProductKernel):
        parts = {name: part for name, part in kernel.get_params(deep=False).items() if name != "factor"}
        others = {name: stretched(part, factor, graph) for name, part in parts.items()}
        return None if None in others.values() else kernel.with_params(**others)
    return None


_TIMES: tuple[tuple[type[AbstractKernel], str, float], ...] = (
    (DiffusionKernel, "tau", 1.0),
    (MaternKernel, "lengthscale", 0.5),
    (RegularizedLaplacianKernel, "scale", 0.5),
)
# The search tries times from 1/512 to 512 times that of the given kernel, by factors of two, and then halves the
# steps around the best until they are 1 %.
_DOUBLINGS, _HALVINGS = 9, 6


@dataclass(frozen=True, eq=False)
class Search:
    """Result of a search for the time.

    Attributes
    ----------
    kernel : AbstractKernel
        The kernel with the largest score.
    stretch : float
        Its time relative to the given kernel.
    limited : bool
        Whether twice this time would need more lengths than the blocks have.
    shortest : bool
        Whether it is the shortest time of the graph, clearly better than longer ones, and the data can tell it from
        shorter ones.
    trials : tuple of (AbstractKernel, float)
        All kernels and scores, in the order of the search.
    stretches : tuple of float
        Their times relative to the given kernel.
    """

    kernel: AbstractKernel
    stretch: float = 1.0
    limited: bool = False
    shortest: bool = False
    trials: tuple[tuple[AbstractKernel, float], ...] = ()
    stretches: tuple[float, ...] = ()


def search_time(problem: GraphKernel, modes: Modes, score: Callable[[FloatArray], float]) -> Search:
    """Find the time with the best score of the features, without new walks and without a new graph.

    Parameters
    ----------
    problem : GraphKernel
        The problem of the modes. If its kernel has no time, nothing is searched.
    modes : Modes
    score : callable
        Features of the data (n, m) -> a number; larger is better.
    """
    tried: dict[AbstractKernel, float] = {}
    stretches: dict[AbstractKernel, float] = {}

    def attempt(log_factor: float) -> float:
        factor = float(np.exp(log_factor))
        candidate = stretched(problem.stated, factor, problem.graph)
        if candidate is None or factor < modes.narrowest:
            return -np.inf
        if candidate not in tried:
            try:
                rows = modes.features(on_graph(candidate, problem))
            except ValueError:  # it cannot be resolved on the graph
                return -np.inf
            if rows is None:
                return -np.inf
            tried[candidate], stretches[candidate] = score(rows), factor
        return tried[candidate]

    gap = np.log(2.0)
    values = {j: attempt(j * gap) for j in range(-_DOUBLINGS, _DOUBLINGS + 1)}
    if not tried:
        return Search(problem.stated)
    first = max(values, key=lambda j: values[j])
    limited, best = not np.isfinite(values.get(first + 1, 0.0)), first * gap
    for _ in range(_HALVINGS):
        gap /= 2
        best = max((best, best - gap, best + gap), key=attempt)
    found = max(tried, key=lambda candidate: tried[candidate])
    # Shorter times are rounded to the shortest of the graph: here a time and its double are the same kernel.
    shortest = stretched(problem.stated, 2 * stretches[found], problem.graph) == found
    next_best = max((value for candidate, value in tried.items() if candidate != found), default=-np.inf)
    shortest &= bool(np.isfinite(next_best) and tried[found] > next_best + _CLEARLY)
    return Search(found, stretches[found], limited, shortest, tuple(tried.items()), tuple(stretches.values()))


def nodes_for(n: int) -> HeatGraph:
    """Nodes of a named manifold for a search with n data: a default kernel half as wide as data are apart."""
    return HeatGraph(n_nodes=int(np.clip(_NODES_PER_DATUM * n, *_NODES)))


def enough_anchors(problem: GraphKernel, stretch: float, n: int) -> int | str:
    """Number of features for n data and a time relative to that of the problem."""
    n_nodes = problem.graph.n_nodes
    needed = math.ceil(problem.volume / (CLOSE * problem.width * stretch**0.5) ** problem.dim)
    m = min(max(needed, _FEWEST_ANCHORS), max(_MOST_ANCHORS, MOST_ENTRIES // n))
    return "all" if m >= n_nodes / 2 and n_nodes <= _ALL_NODES else min(m, n_nodes)


def field_of(name: str, problem: GraphKernel, kernel: AbstractKernel) -> str:
    """The field to use; "auto" becomes "interpolated" if the kernel has a spike at every node."""
    sharp = replace(problem, stated=kernel, resolved=on_graph(kernel, problem)).has_spike
    return "interpolated" if name == "auto" and sharp else name


def warn_of_shortest(found: Search, noise: FloatArray, targets: FloatArray) -> None:
    """Warn if the data ask for a shorter time than the graph has, and part of them became noise."""
    if found.shortest and (noise > _NOISY * targets.var(axis=0)).any():
        warn_user(
            f"The best kernel, {found.kernel}, has the shortest time of the graph, two of its steps: the data vary "
            "within shorter distances, and the process takes this for noise. Remedies: a kernel with a smaller t, "
            "for which a graph of shorter steps is built; more points in the space.",
            FeatureWarning,
        )


def warn_of_another(found: Search, likelihood: float, n: int) -> None:
    """Warn if the likelihood of the fitted features differs from that of the search."""
    if not found.trials or n > MOST_ROWS:  # no search, or a search on a part of the data
        return
    best = max(value for _, value in found.trials)
    if abs(best - likelihood) > _SAME + _SAME_PER_DATUM * n:
        warn_user(
            f"The features do not represent the kernel found, {found.kernel}: their log marginal likelihood is "
            f"{likelihood:.1f}, but was {best:.1f} in the search. Causes: (a) too few features for such a rough "
            "kernel, (b) a field that loses the spike of the kernel at every node, (c) noisy walks. "
            "Remedies: n_features='all', field='interpolated', a smoother kernel, more walks.",
            FeatureWarning,
        )


def on_graph(kernel: AbstractKernel, problem: GraphKernel) -> AbstractKernel:
    """The kernel in steps of the graph of a problem."""
    return kernel.resolve(problem.graph, problem.dim).on(problem.graph)


@dataclass(frozen=True, eq=False)
class Data:
    """Points (n, d), centred targets (n, c) times the roots of the weights, and these roots (n, 1)."""

    points: FloatArray
    targets: FloatArray
    roots: FloatArray

    @property
    def log_volume(self) -> float:
        """What the likelihood of the data is larger than that of the targets times the roots, as a logarithm."""
        return float(self.targets.shape[1] * np.log(self.roots).sum())


def find_kernel(problem: GraphKernel, options: FitOptions, data: Data, levels: Any) -> Search:
    """Find the kernel with the largest likelihood of the data."""
    if len(data.points) > MOST_ROWS:
        rng = options.streams.generator("regression.rows")
        chosen = np.sort(rng.choice(len(data.points), MOST_ROWS, replace=False))
        data = Data(data.points[chosen], data.targets[chosen], data.roots[chosen])
    most = options.n_features if isinstance(options.n_features, int) else problem.graph.n_nodes

    def likelihood(rows: FloatArray) -> float:
        spectrum = decompose(data.roots * rows, data.targets)
        return data.log_volume + float(find_levels(spectrum, *levels).log_likelihood)

    modes = compute_modes(problem, data.points, most, options.teaching, _LENGTHS[1])
    found = search_time(problem, modes, likelihood)
    if modes.of_powers or not (found.limited or found.stretch < modes.good):
        return found
    lengths = _LENGTHS[2] if found.limited else _LENGTHS[0]
    other = search_time(problem, compute_modes(problem, data.points, most, options.teaching, lengths), likelihood)
    return other if found.limited or not other.limited else found
