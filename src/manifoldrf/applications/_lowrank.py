"""Gaussian regression on m features: everything from one decomposition, no matrix of the size of the data.

f(z) = phi(z) . w with w ~ N(0, variance I) and y = f(x) + noise. With Phi (n, m) = U diag(sqrt(s)) V^T the
likelihood is a function of s, of U^T y and of the ratio noise / variance, and the posterior of w has the mean
V diag(sqrt(s) / (s + ratio)) U^T y and the covariance variance (I - V diag(s / (s + ratio)) V^T).

Nothing is inverted but s + ratio, so there is no Cholesky factor and no jitter. In its place: a ratio below
``SMALLEST_RATIO`` times the largest s, which is where rounding of s begins to matter, counts as that.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import linalg
from scipy.optimize import minimize_scalar

from manifoldrf._threads import one_blas_thread, quick_map
from manifoldrf._validation import FloatArray, check_jobs
from manifoldrf.features._products import product

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
