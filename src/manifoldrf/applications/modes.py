"""Gaussian regression on m features: everything from one decomposition, no matrix of the size of the data.

f(z) = phi(z) . w with w ~ N(0, variance I) and y = f(x) + noise. With Phi (n, m) = U diag(sqrt(s)) V^T the
likelihood is a function of s, of U^T y and of the ratio noise / variance, and the posterior of w has the mean
V diag(sqrt(s) / (s + ratio)) U^T y and the covariance variance (I - V diag(s / (s + ratio)) V^T).

Nothing is inverted but s + ratio, so there is no Cholesky factor and no jitter. In its place: a ratio below
``SMALLEST_RATIO`` times the largest s, which is where rounding of s begins to matter, counts as that.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.optimize import minimize_scalar

from manifoldrf._runtime import one_blas_thread, quick_map, warn_user
from manifoldrf._validation import FloatArray, IntArray, check_jobs
from manifoldrf.features._estimators import product
from manifoldrf.features.fitting import FeatureWarning
from manifoldrf.features.options import Plan
from manifoldrf.features.problem import Space
from manifoldrf.fields.anchors import all_anchors, anchors_needed, farthest_anchors, spacing_of
from manifoldrf.fields.data import Teaching
from manifoldrf.fields.interpolated import interpolation_weights
from manifoldrf.fields.quadrature import voronoi_weights
from manifoldrf.geometry.csr import reciprocal
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels.abstract_kernel import AbstractKernel, ProductKernel, ScaledKernel, SumKernel
from manifoldrf.kernels.action import Expansion, apply_expansion, expand, indicator_columns
from manifoldrf.kernels.graph_kernels import DiffusionKernel, PowerKernel, RegularizedLaplacianKernel
from manifoldrf.kernels.manifold_kernels import HeatKernel, MaternKernel
from manifoldrf.signatures.options import coefficients_of
from manifoldrf.signatures.teachers import compute_signatures

SMALLEST_RATIO = 1e-12
# Directions of a smaller share of the largest s are rounding where s comes from a product Phi^T Phi; the data have
# no part in them.
_ROUNDING = 1e-13
# Ratios that are tried, over the mean of s: from data without noise to data that are nothing else.
_LOWEST, _HIGHEST, _TRIES = 1e-8, 1e4, 37
# Blocks of rows that are decomposed apart are so many times as high as wide: half of 20,000 rows of 982 features.
_BLOCK_HEIGHT = 8
_MOST_BLOCKS = 16  # their triangles are decomposed by one thread
_SMALLEST_VARIANCE = 1e-200  # of constant data: its logarithm is finite
_LARGEST_VARIANCE = 1e300
_TINY = float(np.finfo(np.float64).tiny)
_WORST = -1e300  # log likelihood of levels that have nothing to do with the data


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Data in the directions of their features.

    Attributes
    ----------
    values : array of shape (r,)
        s, squares of the singular values of Phi, nonnegative.
    shares : array of shape (r, c)
        U^T y.
    rest : array of shape (c,)
        Squared length of what is left of each column of y.
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
        """The same ratio, or the smallest that rounding allows."""
        return max(ratio, SMALLEST_RATIO * float(self.values.max(initial=0.0)), np.finfo(np.float64).tiny)

    def misfit(self, ratio: float) -> FloatArray:
        """y^T (Phi Phi^T + ratio I)^-1 y, shape (c,)."""
        return np.asarray((1 / (self.values + ratio)) @ self.shares**2 + self.rest / ratio)

    def log_likelihood(self, variance: FloatArray, ratio: float) -> float:
        """Log marginal likelihood of all columns, each with its own variance, shape (c,), and one ratio."""
        log_det = np.log(self.values + ratio).sum() + (self.n - len(self.values)) * np.log(ratio)
        with np.errstate(over="ignore"):  # a level that is given may be absurd for the data
            columns = self.misfit(ratio) / variance + self.n * np.log(2 * np.pi * variance) + log_det
            found = float(-0.5 * columns.sum())
        return max(found, _WORST)


def singular_parts(rows: FloatArray, n_jobs: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """U (n, r), singular values (r,) and V^T (r, m) of rows (n, m); the bits do not depend on ``n_jobs``.

    Of many more rows than columns, blocks of rows become triangles by threads, and the triangles are decomposed
    together: all factors are orthogonal, so nothing is lost against the decomposition of the whole.
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

    With fewer data than features and ``directions`` by a singular value decomposition, which has no small errors;
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
    """The same for more data than features, a part of them at a time: memory of m^2 and one part."""
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
    """Variance and noise of each column, shape (c,), their common ratio, and the log likelihood they have."""

    variance: FloatArray
    ratio: float
    log_likelihood: float

    @property
    def noise(self) -> FloatArray:
        """Variance of the noise, shape (c,)."""
        return np.asarray(self.ratio * self.variance)


def find_levels(spectrum: Spectrum, variance: float | None, noise: float | None) -> Levels:
    """Levels of the largest likelihood; what is given is kept, but for a noise below the smallest, which is raised.

    Where both are free the best variance has the closed form y^T (Phi Phi^T + ratio I)^-1 y / n, so that one number
    is left to search for: on a grid of logarithms, and then between the neighbours of the best.
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
    if variance is not None or noise is not None:  # the data say where the free one is, in their own unit
        low, high = low - 20.0, high + 20.0
    if noise is not None:  # however small it is, the variance that suits the data is among those tried
        share = noise / float(find_levels(spectrum, None, None).variance.max())
        low = min(low, float(np.log(max(share, _TINY))) - 5.0)
    grid = np.linspace(low, high, _TRIES)
    tried = [levels(float(log_ratio)).log_likelihood for log_ratio in grid]
    best = int(np.argmax(tried))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, _TRIES - 1)]
    found = minimize_scalar(
        lambda log_ratio: -levels(float(log_ratio)).log_likelihood,
        bounds=bounds,
        method="bounded",
        options={"xatol": 1e-6},
    )
    ends = (levels(float(grid[best])), levels(float(found.x)))
    return max(ends, key=lambda level: level.log_likelihood)


@dataclass(frozen=True, eq=False)
class Posterior:
    """The posterior of the weights of the features.

    Attributes
    ----------
    weights : array of shape (m, c)
        Their mean.
    directions : array of shape (m, r)
    shrinkage : array of shape (r,)
        Share by which the data narrow each direction: 1 - sqrt(ratio / (s + ratio)).
    """

    weights: FloatArray
    directions: FloatArray
    shrinkage: FloatArray

    def squares(self, rows: FloatArray) -> FloatArray:
        """Diagonal of the posterior covariance at points with these features, over the variance, shape (q,)."""
        kept = product(rows, self.directions.T, check_jobs(-1)) ** 2 @ (1 - (1 - self.shrinkage) ** 2)
        return np.asarray(np.maximum((rows**2).sum(axis=1) - kept, 0.0))

    def spread(self, rows: FloatArray) -> FloatArray:
        """B of shape (q, m): B B^T is the posterior covariance at points with these features, over the variance."""
        shares = product(rows, self.directions.T, check_jobs(-1)) * self.shrinkage
        return np.asarray(rows - product(shares, self.directions, check_jobs(-1)))


def posterior_of(spectrum: Spectrum, ratio: float) -> Posterior:
    """The posterior, given the ratio of noise to variance."""
    if spectrum.directions is None:
        raise ValueError("a posterior needs the directions of the spectrum")
    values = spectrum.values
    weights = spectrum.directions @ ((np.sqrt(values) / (values + ratio))[:, None] * spectrum.shares)
    return Posterior(weights, spectrum.directions, 1 - np.sqrt(ratio / (values + ratio)))


def leave_one_out(
    left: FloatArray, values: FloatArray, shares: FloatArray, targets: FloatArray, alpha: float | None
) -> tuple[float, float]:
    """The penalty, and the error of values that are predicted from all others.

    Without datum i the residual there is (y_i - f_i) / (1 - H_ii), H the matrix from y to the fitted values.
    """
    n = len(left)
    height = float(values.sum()) / n or 1.0
    grid = height * np.geomspace(_LOWEST, _HIGHEST, _TRIES)
    squares, size = left**2, np.maximum(targets.var(axis=0), np.finfo(np.float64).tiny)
    best = np.inf, np.inf, 0.0
    for penalty in [alpha] if alpha is not None else grid[::-1]:
        kept = np.divide(values, values + penalty, out=np.zeros_like(values), where=values > 0)  # (r,)
        residuals = targets - left @ (kept[:, None] * shares)
        own = np.maximum(1 - 1 / n - squares @ kept, np.finfo(np.float64).eps)
        errors = ((residuals / own[:, None]) ** 2).mean(axis=0)
        score = float((errors / size).sum())
        if score < best[0]:
            best = score, float(np.sqrt(errors.mean())), float(penalty)
    return best[2], best[1]


MOST_ENTRIES = 2**26  # 512 MB
MOST_ROWS = 2048  # the time of a kernel is known to a few per cent from so many data
# Lengths that are kept. 32 Chebyshev polynomials are enough for the heat kernel of 70 steps, 128 for that of 1100;
# the number is doubled while the best time is the longest that they allow. Walks are taken once.
_FIRST_LENGTHS, _LAST_LENGTHS = 32, 128
_WALK_LENGTHS = 64  # powers: times up to 128 steps of a heat graph
_TOLERANCE = 1e-6  # share of a series that may be left out
_AT_ONCE = 256  # columns that are propagated together
_WIDEST_SPACING = 1.2  # of anchors over the width of features; above it sums are off by several per cent
# Features of a model, where their number is chosen: anchors half a width apart, and at least so many, which is
# where a decomposition takes seconds; at most so many, unless the data are so few that m n numbers are no more.
_CLOSE, _FEWEST_ANCHORS, _MOST_ANCHORS = 0.5, 2048, 4096
# A series whose first term is a larger share of its sum has a spike at every node. Smooth fields leave it out, and
# with it much of the likelihood: on 300 nodes of a sphere that of (c + L)^-1/2 rose from -55 to -35.
_SPIKE = 2e-3
# Log likelihoods of features and of trials that still are of one model: very strong evidence is a factor of e^5,
# and sums over anchors, whose weights differ, have moved those of heat kernels by less than .006 for each datum.
_SAME, _SAME_PER_DATUM = 5.0, 0.01
_ONE_STEP = Expansion(np.array([0.0, 1.0]), 1.0, of_powers=True)


@dataclass(frozen=True, eq=False)
class Modes:
    """Blocks of features, one for each length.

    Attributes
    ----------
    blocks : array of shape (L + 1, n, m)
        Of the points of the data, at the anchors, in the unit of the features.
    of_powers : bool
        Whether block k is W^k, else the Chebyshev polynomial T_k(W).
    narrowest : float
        Least time of a kernel, over that of the kernel they were made for, that the anchors can carry.
    """

    blocks: FloatArray
    of_powers: bool
    narrowest: float = 0.0

    def features(self, kernel: AbstractKernel) -> FloatArray | None:
        """Features of the data for a resolved kernel, shape (n, m); None where the lengths kept do not suffice."""
        coefficients = self._coefficients(kernel.root())
        if coefficients is None:
            return None
        return np.asarray(np.tensordot(coefficients, self.blocks[: len(coefficients)], 1))

    def _coefficients(self, series: AbstractKernel) -> FloatArray | None:
        try:
            if self.of_powers:
                needed = series.truncation(_TOLERANCE)
                return None if needed > len(self.blocks) else coefficients_of(series, needed, 1.0)
            found = expand(series.spectral, 1.0, _TOLERANCE).coefficients
        except ValueError:  # a series that does not converge, or not soon enough
            return None
        return None if len(found) > len(self.blocks) else found


def compute_modes(
    space: Space, places: FloatArray, most_anchors: int, teaching: Teaching, n_lengths: int = _FIRST_LENGTHS
) -> Modes:
    """Blocks of features of some points, exact or walked as the teacher says.

    Parameters
    ----------
    space : Space
    places : array of shape (n, d)
    most_anchors : int
        Memory may allow fewer.
    teaching : Teaching
        "walks" and "counts" walk, the others are exact.
    n_lengths : int
        L, of exact blocks.
    """
    graph, measure = space.graph, space.setting.measure
    walked = teaching.teacher in ("walks", "counts")
    n_blocks = (_WALK_LENGTHS if walked else n_lengths) + 1
    room = MOST_ENTRIES // (n_blocks * len(places))
    anchors = _anchors(graph, max(1, min(most_anchors, room)))
    everything = len(anchors) == graph.n_nodes
    weights = measure if everything else voronoi_weights(graph, measure, anchors)
    reach = _reach(space, places, teaching.n_jobs)
    blocks = np.zeros((n_blocks, len(places), len(anchors)))
    (_walk if walked else _propagate)(graph, reach, anchors, blocks, teaching)
    scale = space.unit**-0.5 if space.clock == "manifold" else 1.0
    blocks *= scale * np.sqrt(weights) * reciprocal(np.sqrt(measure[anchors]))
    spacing = spacing_of(space.volume, len(anchors), space.setting.dim)
    narrowest = 0.0 if everything else (spacing / (_WIDEST_SPACING * space.setting.width)) ** 2
    return Modes(blocks, walked, narrowest)


def _anchors(graph: Graph, m: int) -> IntArray:
    return all_anchors(graph.n_nodes) if m >= graph.n_nodes else farthest_anchors(graph, m)


def _reach(space: Space, places: FloatArray, n_jobs: int) -> Any:
    """From values at the nodes to features of points, CSR (n, N): signatures over sqrt(mu), interpolated."""
    graph, measure = space.graph, space.setting.measure
    shares = interpolation_weights(graph, np.arange(graph.n_nodes), places, space.setting.dim, n_jobs)
    own = np.ones(len(places))
    if space.clock == "graph":  # as if the point were a node
        own = np.exp(shares @ np.log(np.maximum(measure, measure[measure > 0].min())) / 2)
    return (sparse.diags_array(own) @ shares @ sparse.diags_array(reciprocal(np.sqrt(measure)))).tocsr()


def _propagate(graph: Graph, reach: Any, anchors: IntArray, blocks: FloatArray, teaching: Teaching) -> None:
    """Fill blocks k with T_k(W), from the side that has fewer columns; W is symmetric."""
    from_anchors = len(anchors) < reach.shape[0]
    total = len(anchors) if from_anchors else reach.shape[0]
    for start in range(0, total, _AT_ONCE):
        stop = min(start + _AT_ONCE, total)
        teaching.progress("lengths", start, total)
        if from_anchors:
            first = indicator_columns(graph.n_nodes, anchors[start:stop])
        else:
            first = reach[start:stop].toarray().T.copy()
        for k, columns in enumerate(_polynomials(graph, first, len(blocks), teaching.n_jobs)):
            if from_anchors:
                blocks[k, :, start:stop] = reach @ columns
            else:
                blocks[k, start:stop] = columns[anchors].T
    teaching.progress("lengths", total, total)


def _polynomials(graph: Graph, first: FloatArray, n: int, n_jobs: int) -> Iterator[FloatArray]:
    """T_0(W) X, T_1(W) X, ..., T_{n-1}(W) X, by T_{k+1} = 2 W T_k - T_{k-1}."""
    step = functools.partial(apply_expansion, _ONE_STEP, graph.operator, n_jobs=n_jobs)
    before, current = first, step(first)
    yield before
    for _ in range(n - 1):
        yield current
        before, current = current, 2 * step(current) - before


def _walk(graph: Graph, reach: Any, anchors: IntArray, blocks: FloatArray, teaching: Teaching) -> None:
    """Fill blocks k with walked estimates of W^k, from the side that has fewer start nodes."""
    touched = np.unique(reach.indices).astype(np.int64)
    from_anchors = len(anchors) < len(touched)
    starts = anchors if from_anchors else touched
    options = {**dict(teaching.options), "keep_lengths": True, "max_length": len(blocks) - 1}
    for start in range(0, len(starts), _AT_ONCE):
        nodes = starts[start : start + _AT_ONCE]
        lengths = compute_signatures(
            graph,
            PowerKernel(0),  # every length is kept, whatever the kernel: this one asks for no more
            nodes,
            teacher=teaching.teacher,
            asymmetric=True,
            seed=teaching.seed,
            n_jobs=teaching.n_jobs,
            **options,
        ).lengths
        for k in range(len(blocks)):
            rows = lengths[k :: len(blocks)]  # (len(nodes), N)
            if from_anchors:
                blocks[k, :, start : start + len(nodes)] = (reach @ rows.T).toarray()
            else:
                blocks[k] += (reach[:, nodes] @ rows[:, anchors]).toarray()
        teaching.progress("lengths", min(start + _AT_ONCE, len(starts)), len(starts))


def stretched(kernel: AbstractKernel, factor: float, graph: Graph) -> AbstractKernel | None:
    """The kernel with its time multiplied, its length scale by the root of that; None where it has neither.

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
# Times that are tried, over that of the kernel given: five hundred times less to five hundred times more, by
# factors of two, and then halfway between the neighbours of the best until they are 1 % apart.
_DOUBLINGS, _HALVINGS = 9, 6


@dataclass(frozen=True, eq=False)
class Search:
    """What a search has found.

    Attributes
    ----------
    kernel : AbstractKernel
        Of the largest score.
    stretch : float
        Its time over that of the kernel given.
    limited : bool
        Whether twice this time needs more lengths than were kept.
    trials : tuple of (AbstractKernel, float)
        All that were tried, in the order of the trials.
    """

    kernel: AbstractKernel
    stretch: float = 1.0
    limited: bool = False
    trials: tuple[tuple[AbstractKernel, float], ...] = ()


def search_time(space: Space, modes: Modes, score: Callable[[FloatArray], float]) -> Search:
    """The time of a kernel at which its features score best: no walk is taken and no graph built.

    Parameters
    ----------
    space : Space
        That the modes were computed on. Where its kernel has no time, nothing is tried.
    modes : Modes
    score : callable
        Features of the data (n, m) -> a number, the larger the better.
    """
    tried: dict[AbstractKernel, float] = {}
    stretches: dict[AbstractKernel, float] = {}

    def attempt(log_factor: float) -> float:
        factor = float(np.exp(log_factor))
        candidate = stretched(space.kernel, factor, space.graph)
        if candidate is None or factor < modes.narrowest:
            return -np.inf
        if candidate not in tried:
            rows = _features_of(candidate, space, modes)
            if rows is None:
                return -np.inf
            tried[candidate], stretches[candidate] = score(rows), factor
        return tried[candidate]

    gap = np.log(2.0)
    values = {j: attempt(j * gap) for j in range(-_DOUBLINGS, _DOUBLINGS + 1)}
    if not tried:
        return Search(space.kernel)
    first = max(values, key=lambda j: values[j])
    limited, best = not np.isfinite(values.get(first + 1, 0.0)), first * gap
    for _ in range(_HALVINGS):
        gap /= 2
        best = max((best, best - gap, best + gap), key=attempt)
    found = max(tried, key=lambda candidate: tried[candidate])
    return Search(found, stretches[found], limited, tuple(tried.items()))


def enough_anchors(space: Space, found: Search, n: int) -> int | str:
    """How many features n data deserve: likelihoods see what sums over the kernel do not."""
    setting, n_nodes = space.setting, space.graph.n_nodes
    needed = anchors_needed(space.volume, setting.width * found.stretch**0.5, setting.dim, _CLOSE)
    m = min(max(needed, _FEWEST_ANCHORS), max(_MOST_ANCHORS, MOST_ENTRIES // n))
    return "all" if m >= n_nodes / 2 and n_nodes <= _MOST_ANCHORS else min(m, n_nodes)


def field_of(name: str, space: Space, kernel: AbstractKernel) -> str:
    """The field of a model: where it is to be chosen and the kernel has a spike, the one that keeps it at nodes."""
    series = _on_graph(kernel, space).root()
    spike = abs(float(series.coefficients(1)[0]))
    sharp = spike > _SPIKE * abs(float(series.spectral(np.array([1.0]))[0]))
    return "interpolated" if name == "auto" and sharp else name


def warn_of_another(found: Search, likelihood: float, n: int) -> None:
    """Say so where the features that predict are not those of the kernel that was found, by their likelihoods."""
    if not found.trials or n > MOST_ROWS:  # nothing was tried, or only a part of the data
        return
    best = max(value for _, value in found.trials)
    if abs(best - likelihood) > _SAME + _SAME_PER_DATUM * n:
        warn_user(
            f"The features stand for another kernel than the one found, {found.kernel}: their log marginal "
            f"likelihood is {likelihood:.1f}, and was {best:.1f} in the search. Causes: (a) too few features for a "
            "kernel so rough, (b) a field that leaves out the spike of a kernel at every node, (c) noisy walks. "
            "Remedies: n_features='all', field='interpolated', a smoother kernel, more walks.",
            FeatureWarning,
        )


def _on_graph(kernel: AbstractKernel, space: Space) -> AbstractKernel:
    return kernel.resolve(space.graph, space.setting.dim).on(space.graph)


def _features_of(kernel: AbstractKernel, space: Space, modes: Modes) -> FloatArray | None:
    """Features for a kernel as stated; None where it cannot be resolved on the graph."""
    try:
        resolved = _on_graph(kernel, space)
    except ValueError:
        return None
    return modes.features(resolved)


def find_kernel(space: Space, plan: Plan, data: tuple[FloatArray, FloatArray], levels: Any) -> Search:
    """The kernel of the largest likelihood of some data (n, d), (n, c)."""
    points, targets = data
    if len(points) > MOST_ROWS:
        rng = plan.streams.generator("regression.rows")
        chosen = np.sort(rng.choice(len(points), MOST_ROWS, replace=False))
        points, targets = points[chosen], targets[chosen]
    most = plan.n_features if isinstance(plan.n_features, int) else space.graph.n_nodes

    def likelihood(rows: FloatArray) -> float:
        return find_levels(decompose(rows, targets), *levels).log_likelihood

    lengths = _FIRST_LENGTHS
    while True:
        modes = compute_modes(space, points, most, plan.teaching, lengths)
        found = search_time(space, modes, likelihood)
        if modes.of_powers or not found.limited or lengths >= _LAST_LENGTHS:
            return found
        lengths *= 2
