"""Gaussian processes on features: likelihood, posterior, and averages over what few data do not determine.

f(z) = phi(z) . w with w ~ N(0, variance I), and y = offset + f(x) + noise. With Phi = U diag(sqrt(s)) V^T, shape
(n, m), the likelihood is a function of s, U^T y and the ratio of noise to variance, so one decomposition serves all
ratios. Only s + ratio is inverted: there is no jitter, but a ratio below 1e-12 of the largest s, where rounding of
s begins to matter, is raised to that.

Features of one kernel serve all wider ones. At their own anchors, features times the roots of the quadrature
weights are a symmetric matrix with the spectrum of the root of the kernel, root(omega_j). Along its eigenvectors,
features of another kernel are those of the first times root'(omega_j) / root(omega_j). So a search over the time
needs one fit, and its kernels are processes with diagonal prior covariances of w in a common basis.
"""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import eigsh
from scipy.special import logsumexp

from manifoldrf._codec import stored
from manifoldrf._random import generator
from manifoldrf._validation import FloatArray
from manifoldrf.features.feature_map import product
from manifoldrf.features.graph_features import check_nodes
from manifoldrf.geometry.csr import reciprocal
from manifoldrf.kernels.abstract_kernel import AbstractKernel, ProductKernel, ScaledKernel, SumKernel
from manifoldrf.kernels.named_kernels import DiffusionKernel, HeatKernel, MaternKernel, RegularizedLaplacianKernel

# Range of the ratio of noise to the mean of s: from data without noise to data that are only noise.
LOWEST, HIGHEST = 1e-8, 1e4
_TINY, _HUGE = float(np.finfo(np.float64).tiny), 1e300  # limits of levels: logarithms and quotients stay finite
Levels = tuple[float | None, float | None]  # variance and noise; None if free


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Singular value decomposition of features (n, m), applied to the data.

    Attributes
    ----------
    values : array of shape (r,)
        s, squares of the singular values.
    shares : array of shape (r, c)
        U^T y.
    rest : array of shape (c,)
        Squared length of the part of each column of y that is orthogonal to U.
    n : int
        Number of data.
    directions : array of shape (m, r)
        V; orthonormal columns.
    """

    values: FloatArray
    shares: FloatArray
    rest: FloatArray
    n: int
    directions: FloatArray

    @property
    def height(self) -> float:
        """Mean of |phi(x)|^2 over the data."""
        return float(self.values.sum()) / self.n


class Moments:
    """What the likelihood needs of n data with m features: the features themselves or, if n > m, their products.

    Parameters
    ----------
    parts : iterable of (features, targets)
        Parts of the data; with n > m only one of them is in memory at a time.
    n, m : int
    """

    def __init__(self, parts: Iterable[tuple[FloatArray, FloatArray]], n: int, m: int) -> None:
        self.n, self.rows = n, None
        if n <= m:
            self.rows, self.targets = (np.concatenate(column) for column in zip(*parts, strict=True))
            return
        self.gram, self.moments, self.total = np.zeros((m, m)), np.zeros((m, 1)), np.zeros(1)
        for rows, targets in parts:
            self.gram += rows.T @ rows
            self.moments = self.moments + rows.T @ targets  # (m, c)
            self.total = self.total + (targets**2).sum(axis=0)

    @property
    def sizes(self) -> FloatArray:
        """Sum of the squares of each feature over the data, (m,)."""
        return np.asarray((self.rows**2).sum(axis=0) if self.rows is not None else np.diagonal(self.gram))

    def turned(self, basis: FloatArray) -> "Moments":
        """The same for features in another orthonormal basis (m, m)."""
        other = copy.copy(self)
        if self.rows is not None:
            other.rows = self.rows @ basis
        else:
            other.gram, other.moments = basis.T @ self.gram @ basis, basis.T @ self.moments
        return other

    def spectrum(self, scale: FloatArray, *, directions: bool = True) -> Spectrum:
        """Spectrum of features times factors (m,): O(min(n, m)^3) time, O(m^3) if n > m.

        Without ``directions``, columns with negligible factors are left out, so wide kernels take hardly any time.
        """
        if self.rows is not None:
            rows, rest = self.rows * scale, np.zeros(self.targets.shape[1])
            if directions:
                left, singular, right = linalg.svd(rows, full_matrices=False)
                return Spectrum(singular**2, left.T @ self.targets, rest, self.n, right.T)
            values, vectors = linalg.eigh(rows @ rows.T)
            return Spectrum(np.maximum(values, 0.0), vectors.T @ self.targets, rest, self.n, vectors[:0])
        sizes = self.sizes * scale**2
        kept = np.flatnonzero(sizes > (0.0 if directions else 1e-14 * sizes.max()))
        own = scale[kept]
        values, vectors = linalg.eigh(self.gram[np.ix_(kept, kept)] * own * own[:, None])
        real = values > 1e-13 * values[-1]  # smaller ones are rounding errors of the product
        shares = (vectors.T @ (own[:, None] * self.moments[kept]))[real] / np.sqrt(values[real])[:, None]
        rest = np.maximum(self.total - (shares**2).sum(axis=0), 0.0)
        whole = np.zeros((len(scale), int(real.sum())))
        whole[kept] = vectors[:, real]
        return Spectrum(values[real], shares, rest, self.n, whole)


@dataclass(frozen=True, eq=False)
class FoundLevels:
    """Variance, ratio of noise to variance and log likelihood of each output, shape (c,)."""

    variance: FloatArray
    ratio: FloatArray
    log_likelihood: FloatArray


def find_levels(spectrum: Spectrum, levels: Levels) -> FoundLevels:
    """Maximise the likelihood of each output over the levels that are None.

    The ratio is searched on a logarithmic grid, which is refined four times around the best. If both levels are
    free, the best variance for a ratio has the closed form y^T (Phi Phi^T + ratio I)^-1 y / n.
    """
    s, n, (variance, noise) = spectrum.values, spectrum.n, levels
    squares, least = spectrum.shares**2, max(1e-12 * float(s.max(initial=0.0)), _TINY)
    # The smaller the variance, the better it explains a constant output, with any kernel.
    counted = squares.any(axis=0) | (spectrum.rest > 0) | (variance is not None)

    def at(log_ratio: FloatArray) -> FoundLevels:
        """Levels and likelihoods for ratios of shape (J, c)."""
        ratio = np.maximum(np.exp(log_ratio), least)
        shifted = s[:, None] + ratio[:, None, :]  # (J, r, c)
        misfit = (squares / shifted).sum(axis=1) + spectrum.rest / ratio
        own = misfit / n if variance is None else np.full_like(ratio, variance)
        if variance is None and noise is not None:
            own = noise / np.exp(log_ratio)
        own = np.clip(own, 1e-200, _HUGE)
        log_det = np.log(shifted).sum(axis=1) + (n - len(s)) * np.log(ratio)
        with np.errstate(over="ignore"):  # given levels may not fit the data at all
            found = -0.5 * (misfit / own + n * np.log(2 * np.pi * own) + log_det)
        return FoundLevels(own, ratio, np.where(counted, np.maximum(found, -_HUGE), 0.0))

    height = spectrum.height or 1.0
    size = np.maximum((squares.sum(axis=0) + spectrum.rest) / n, 1e-200)  # mean square of each output
    if variance is not None and noise is not None:
        low = high = np.full_like(size, np.clip(noise / variance, _TINY, _HUGE))
    elif variance is not None:
        low, high = size * 1e-16 / variance, size * HIGHEST / variance
    elif noise is not None:
        low, high = noise * height / size * 1e-9, noise * height / size * 1e9
    else:
        low, high = np.full_like(size, LOWEST * height), np.full_like(size, HIGHEST * height)
    low, high = np.log(np.clip(low, _TINY, _HUGE)), np.log(np.clip(high, _TINY, _HUGE))
    outputs = np.arange(len(size))
    for _ in range(1 if (low == high).all() else 5):
        grid = np.linspace(low, high, 41)  # (J, c)
        found = at(grid)
        best = found.log_likelihood.argmax(axis=0)
        low, high = grid[np.maximum(best - 1, 0), outputs], grid[np.minimum(best + 1, 40), outputs]
    return FoundLevels(*(part[best, outputs] for part in (found.variance, found.ratio, found.log_likelihood)))


@stored
@dataclass(frozen=True, eq=False)
class Posterior:
    """Normal distribution of the weights of features and of the offset, for each of c outputs.

    The covariance of (w, offset) is ``level`` I, for w alone, plus U diag(shares) U^T.

    Attributes
    ----------
    mean : array of shape (m + 1, c)
        Of the weights and, last, of the offset.
    level : array of shape (c,)
    directions : array of shape (1 or c, m + 1, r)
        U, the same for all outputs or one for each; orthonormal columns.
    shares : array of shape (c, r)
    noise, prior : array of shape (c,)
        Variance of the noise, and prior variance of f, averaged over the data.
    """

    mean: FloatArray
    level: FloatArray
    directions: FloatArray
    shares: FloatArray
    noise: FloatArray
    prior: FloatArray

    def __post_init__(self) -> None:
        (m, c), (k, rows, r) = np.shape(self.mean), np.shape(self.directions)
        if k not in (1, c) or rows != m or np.shape(self.shares) != (c, r):
            raise ValueError("the parts of the posterior have different sizes")

    def _along(self, rows: FloatArray, n_jobs: int) -> list[FloatArray]:
        """Components along U of features (q, m) and the constant feature of the offset, (q, r) for each output."""
        whole = np.column_stack([rows, np.ones(len(rows))])
        found = [product(whole, directions.T, n_jobs) for directions in self.directions]
        return found * (len(self.shares) // len(found))

    def means(self, rows: FloatArray) -> FloatArray:
        """Mean of offset + f at points with these features, (q, c)."""
        return np.asarray(rows @ self.mean[:-1] + self.mean[-1])

    def variances(self, rows: FloatArray, n_jobs: int) -> FloatArray:
        """Variance of offset + f, (q, c)."""
        found = [part**2 @ share for part, share in zip(self._along(rows, n_jobs), self.shares, strict=True)]
        return np.asarray(np.maximum((rows**2).sum(axis=1)[:, None] * self.level + np.column_stack(found), 0.0))

    def covariances(self, rows: FloatArray, n_jobs: int) -> FloatArray:
        """Covariance of offset + f, (q, q, c)."""
        own = product(rows, rows, n_jobs)[:, :, None] * self.level
        parts = zip(self._along(rows, n_jobs), self.shares, strict=True)
        return np.asarray(own + np.stack([product(part * share, part, n_jobs) for part, share in parts], axis=2))

    def draws(self, rows: FloatArray, normal: FloatArray, n_jobs: int) -> FloatArray:
        """Deviations from the mean, (N, q, c), from standard normal numbers (N, c, m + 1)."""
        found = []
        for k, part in enumerate(self._along(rows, n_jobs)):
            directions = self.directions[k % len(self.directions)]
            roots = np.sqrt(np.maximum(self.level[k] + self.shares[k], 0.0)) - np.sqrt(self.level[k])
            along = (normal[:, k] @ directions) * roots
            found.append(np.sqrt(self.level[k]) * normal[:, k, :-1] @ rows.T + along @ part.T)
        return np.stack(found, axis=2)


def plain_posterior(spectrum: Spectrum, found: FoundLevels) -> Posterior:
    """The posterior for known levels and a known offset of zero."""
    values, ratio = spectrum.values[:, None], found.ratio
    weights = spectrum.directions @ (np.sqrt(values) / (values + ratio) * spectrum.shares)  # (m, c)
    shares = -(found.variance * values / (values + ratio)).T
    ends = np.zeros((1, weights.shape[1])), np.zeros((1, len(values)))
    return Posterior(
        np.concatenate([weights, ends[0]]),
        found.variance,
        np.ascontiguousarray(np.concatenate([spectrum.directions, ends[1]])[None]),
        shares,
        found.ratio * found.variance,
        spectrum.height * found.variance,
    )


def average_posterior(
    rows: FloatArray,
    data: tuple[FloatArray, FloatArray],
    family: tuple[FloatArray, FloatArray, FloatArray],
    levels: Levels,
) -> Posterior:
    """Average the posteriors of K kernels and J ratios of noise to variance by their marginal likelihoods.

    The offset has a flat prior and the variance the prior 1 / variance; both are integrated in closed form. The
    outputs share the kernel; each has its own variance and ratio. Takes O(K (n^3 + n^2 m + c n m^2)) time.

    Parameters
    ----------
    rows : array of shape (n, m)
        Features of the data, times the roots of the weights of the data.
    data : tuple (targets (n, c), roots (n,))
        Centred targets times the roots, and the roots.
    family : tuple (basis (m, m), scales (K, m), log_prior (K,))
        Common basis, the factors of features in it for each kernel, and logarithms of the prior weights of kernels.
    levels : tuple of float or None
        Variance and noise; None to average over it.
    """
    (targets, roots), (basis, scales, log_prior) = data, family
    rows = rows @ basis
    (n, m), c = rows.shape, targets.shape[1]
    members = []
    for scale in scales:
        values, vectors = linalg.eigh((rows * scale) @ (rows * scale).T)
        values = np.maximum(values, 0.0)
        height = float(values.sum()) / n or 1.0
        ratios, given = _ratios(levels, height, np.square(targets).mean(axis=0))
        ratios = np.maximum(ratios, max(1e-12 * values[-1], _TINY))
        inverse = 1 / (values + ratios[:, None])  # (J, n)
        ones, shares = vectors.T @ roots, vectors.T @ targets
        leverage = inverse @ ones**2  # (J,): precision of the offset over that of the variance
        offset = (inverse * ones) @ shares / leverage[:, None]  # (J, c)
        rest = shares - ones[:, None] * offset[:, None, :]  # (J, n, c)
        misfit = np.maximum((inverse[:, :, None] * rest**2).sum(axis=1), 1e-200)  # (J, c)
        if given is None:
            # The mean of an inverse gamma distribution of shape (n - 1) / 2, infinite for n <= 3: as if n were 4.
            variance, fit = misfit / (max(n, 4) - 3), (n - 1) * np.log(misfit)
        else:
            variance = np.repeat(given[:, None], c, axis=1)
            with np.errstate(over="ignore"):  # given levels may not fit the data at all
                fit = misfit / variance + (n - 1) * np.log(variance)
        volume = np.log(leverage) - np.log(inverse).sum(axis=1)
        evidence = np.maximum(-0.5 * (fit + volume[:, None]), -_HUGE)  # (J, c)
        ends = np.concatenate([inverse[:, :, None] * rest, offset[:, None, :]], axis=1)  # (J, n + 1, c)
        pulls = np.column_stack([-inverse * ones, np.ones(len(ratios))])  # dependence of the weights on the offset
        lift = np.zeros((m + 1, n + 1))
        lift[:m, :n], lift[m, n] = (scale**2)[:, None] * (rows.T @ vectors), 1.0
        members.append((evidence, ratios, variance, inverse, leverage, ends, pulls, lift, height, scale))
    counted = targets.any(axis=0) | (levels[0] is not None)  # as in :func:`find_levels`
    logs = log_prior + np.array([logsumexp(member[0], axis=0)[counted].sum() for member in members])
    mean, second = np.zeros((m + 1, c)), np.zeros((c, m + 1, m + 1))
    noise, prior = np.zeros(c), np.zeros(c)
    for chance, member in zip(np.exp(logs - logsumexp(logs)), members, strict=True):
        evidence, ratios, variance, inverse, leverage, ends, pulls, lift, height, scale = member
        share = chance * np.exp(evidence - logsumexp(evidence, axis=0))  # (J, c)
        size = share * variance
        noise += ratios @ size
        prior += height * size.sum(axis=0)
        mean += lift @ np.einsum("jc,jnc->nc", share, ends)
        for k in range(c):
            inner = (ends[:, :, k].T * share[:, k]) @ ends[:, :, k]
            inner += (pulls.T * (size[:, k] / leverage)) @ pulls
            inner[np.arange(n), np.arange(n)] -= size[:, k] @ inverse
            second[k] += lift @ inner @ lift.T
            second[k, np.arange(m), np.arange(m)] += size[:, k].sum() * scale**2
    second -= mean.T[:, :, None] * mean.T[:, None, :]
    eigen = [linalg.eigh(part) for part in second]
    # Contiguous, as in a loaded model: the rounding of products depends on it.
    directions, shares = np.ascontiguousarray([part[1] for part in eigen]), np.stack([part[0] for part in eigen])
    mean[:m], directions[:, :m] = basis @ mean[:m], basis @ directions[:, :m]
    return Posterior(mean, np.zeros(c), directions, np.maximum(shares, 0.0), noise, prior)


def _ratios(levels: Levels, height: float, size: FloatArray) -> tuple[FloatArray, FloatArray | None]:
    """Ratios of noise to variance, (J,), in half decades, and the variance of each; None to integrate over it."""
    (variance, noise), sizes = levels, size[size > 1e-200]  # without constant outputs
    low, high = (float(sizes.min()), float(sizes.max())) if sizes.size else (1e-200, 1e-200)
    if variance is not None:
        noises = np.geomspace(1e-8 * low, 1e2 * high, 21) if noise is None else np.array([noise])
        return np.clip(noises / variance, _TINY, _HUGE), np.full(len(noises), variance)
    if noise is None:
        return height * np.geomspace(1e-7, 1e3, 21), None
    variances = np.geomspace(1e-4 * low / height, 1e4 * high / height, 33)
    return np.clip(noise / variances, _TINY, _HUGE), variances


def stretched(kernel: AbstractKernel, factor: float, graph: Any) -> AbstractKernel | None:
    """Multiply the time of a kernel by a factor, or its length scale by the root; None if it has neither.

    On a heat graph the time of a heat kernel is at least two steps.
    """
    if isinstance(kernel, HeatKernel):
        return HeatKernel(max(kernel.t * factor, 0.0 if graph.n_steps is None else graph.time(2.0)))
    if isinstance(kernel, DiffusionKernel):
        return DiffusionKernel(kernel.tau * factor)
    if isinstance(kernel, MaternKernel):
        return kernel.with_params(lengthscale=kernel.lengthscale * factor**0.5)
    if isinstance(kernel, RegularizedLaplacianKernel):
        return kernel.with_params(scale=kernel.scale * factor**0.5)
    if isinstance(kernel, ScaledKernel | SumKernel | ProductKernel):
        parts = {name: part for name, part in kernel.get_params(deep=False).items() if name != "factor"}
        others = {name: stretched(part, factor, graph) for name, part in parts.items()}
        return None if None in others.values() else kernel.with_params(**others)
    return None


def eigenbasis(features: Any, own: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Eigenvalues (m,) and eigenvectors (m, m) of features at their own anchors; the largest eigenvalue is one.

    At the anchors, K(x, x) is the kernel per volume times ``own``, up to a factor: their degrees for a kernel of
    the graph itself.
    """
    rows = features.transform(features.graph_.positions[features.anchors_])
    square = np.sqrt(features.weights_ * reciprocal(own))[:, None] * rows
    values, basis = linalg.eigh((square + square.T) / 2)
    return np.maximum(values / values[-1], 0.0), basis


def spectral_factors(values: FloatArray, *kernels: AbstractKernel) -> FloatArray:
    """Factors (K - 1, m) that turn features of the first kernel into those of each other one, in the eigenbasis.

    ``kernels`` are resolved on the graph. Eigenvalues below 1e-4 of the largest count as errors of the features,
    and take the factor at that limit.
    """
    gaps = np.concatenate([[0.0], np.geomspace(1e-8, 2.0, 1000)])
    roots = [kernel.root().spectral(1 - gaps) for kernel in kernels]
    falls = np.diff(roots[0], prepend=np.inf) < 0
    reach = np.cumprod(falls & (roots[0] > 1e-4 * roots[0][0])).astype(bool)  # from omega = 1 on
    logs = np.log(np.maximum([root[reach][::-1] for root in roots], 1e-300))
    at = np.log(np.maximum(values, np.exp(logs[0, 0] - logs[0, -1]))) + logs[0, -1]
    return np.exp([np.interp(at, logs[0], other - logs[0]) for other in logs[1:]])


@stored
@dataclass(frozen=True, eq=False)
class FourierFeatures:
    """Features a_j cos(w_j (x - centre)) and a_j sin(w_j (x - centre)): frequencies (k, d), factors (2 k,)."""

    frequencies: FloatArray
    centre: FloatArray
    factors: FloatArray
    about = "of the Gaussian kernel of the coordinates: too few data to show a space"

    @property
    def n_features_in_(self) -> int:
        """Number of coordinates."""
        return int(self.frequencies.shape[1])

    @property
    def n_features_out_(self) -> int:
        """Number of features."""
        return len(self.factors)

    def rows(self, points: FloatArray) -> FloatArray:
        """Features of points, (q, 2 k)."""
        angles = (points - self.centre) @ self.frequencies.T
        return np.hstack([np.cos(angles), np.sin(angles)]) * self.factors

    def scaled(self, factors: FloatArray) -> "FourierFeatures":
        """The same features times factors."""
        return replace(self, factors=self.factors * factors)


@stored
@dataclass(frozen=True, eq=False)
class NodeFeatures:
    """Rows of a table (n_nodes, m); points are indices of nodes."""

    table: FloatArray
    about = "eigenvectors of the walk of a graph"
    n_features_in_ = 1

    @property
    def n_features_out_(self) -> int:
        """Number of features."""
        return int(self.table.shape[1])

    def rows(self, points: FloatArray) -> FloatArray:
        """Features of nodes (q, 1), (q, m)."""
        return np.asarray(self.table[check_nodes(points, len(self.table))])

    def scaled(self, factors: FloatArray) -> "NodeFeatures":
        """The same features times factors."""
        return NodeFeatures(self.table * factors)


def leading_eigenvectors(matrix: Any, m: int) -> tuple[FloatArray, FloatArray]:
    """The m largest eigenvalues of a symmetric sparse matrix (n, n), and their eigenvectors (n, m)."""
    n = matrix.shape[0]
    if n <= 4096 or 4 * m > n:  # Lanczos' method is slower where many are wanted
        return linalg.eigh(matrix.toarray(), subset_by_index=(n - m, n - 1))  # type: ignore[no-any-return]
    # Ones are an eigenvector of a regular graph, from which the method would continue in an unseeded direction.
    return eigsh(matrix, m, which="LA", v0=generator(0, "eigenvectors").normal(size=n))  # type: ignore[no-any-return]
