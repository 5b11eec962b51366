"""Average of Gaussian processes over the time, the variance, the noise and the offset that few data leave open.

The largest likelihood is overconfident for few data: it takes one time, variance and noise for certain. Here every
kernel of a search and every ratio of noise to variance on a grid counts by its marginal likelihood. The offset has
a flat prior and the variance the prior 1 / variance; both are integrated in closed form. Times and ratios are
evenly distributed on a logarithmic scale.

Features of one time serve all longer ones. At their own anchors the features are, times sqrt(w), a symmetric matrix
with the spectrum of the root of the kernel, root(omega_j). Along its eigenvectors the features of another kernel
are those of the first times root'(omega_j) / root(omega_j). So all members are processes f = offset + phi(z) . w
with diagonal prior covariances of w in one basis, and their mixture has one mean and one covariance of (w, offset).
"""

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from manifoldrf._codec import stored
from manifoldrf._validation import FloatArray
from manifoldrf.applications.modes import WORST, Data, Search, Spectrum, find_levels, on_graph
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.graph_kernel import GraphKernel
from manifoldrf.features.rules import product
from manifoldrf.geometry.csr import check_amounts, check_numbers, check_shape, reciprocal
from manifoldrf.kernels.abstract_kernel import AbstractKernel

# With more values the best process serves: they determine time, variance and noise well, and an average takes
# O(n^3) time for each kernel. ``benchmarks/bench_coverage.py`` measures intervals on both sides of the limit.
MOST_VALUES = 512
# Features of an average, whose eigenvectors take half a second; more if the best kernel needs them.
MOST_FEATURES = 1024
_LEAST_SHARE = 1e-3  # of the best kernel, below which a kernel is left out
# Grid of ratios relative to the mean of s, by half decades: from data without noise to data that are only noise.
_RATIOS = np.geomspace(1e-7, 1e3, 21)
_AROUND = np.geomspace(1e-3, 1e3, 25)  # the same around the best, if the variance or the noise is given
_FLOOR = 1e-4  # share of the largest eigenvalue of a root below which eigenvalues of features are errors
_SMALLEST = 1e-200  # of constant data: its logarithm is finite


@dataclass(frozen=True, eq=False)
class Family:
    """Kernels to average, the narrowest first, and the logarithms of their prior weights."""

    kernels: tuple[AbstractKernel, ...]
    log_prior: FloatArray
    stretch: float


def choose_family(problem: GraphKernel, found: Search, most_features: int, close: float) -> Family:
    """The best kernel of a search and all others that the data do not exclude and the features can represent."""
    order = np.argsort(found.stretches, kind="stable")
    if len(order) < 2:
        return Family((found.kernel,), np.zeros(1), found.stretch)
    stretches = np.array(found.stretches)[order]
    values = np.array([found.trials[k][1] for k in order])
    prior = np.gradient(np.log(stretches))  # even in log t, whatever times were tried
    posterior = np.exp(values - values.max()) * prior
    kept = posterior > _LEAST_SHARE * posterior.max()
    widths = problem.width * np.sqrt(stretches)
    kept &= (
        np.array([problem.volume / (close * width) ** problem.dim for width in widths]) <= most_features
    )
    kept[values.argmax()] = True
    kernels = tuple(found.trials[order[k]][0] for k in np.flatnonzero(kept))
    return Family(kernels, np.log(prior[kept]), float(stretches[kept][0]))


def bases(family: Family, problem: GraphKernel, features: FeatureMap, n_jobs: int) -> tuple[FloatArray, FloatArray]:
    """Basis (m, m) and factors (K, m) in it that turn features of the first kernel into those of each kernel.

    ``problem`` is that of the search, on whose graph all kernels take whole steps.
    """
    own_problem, anchors = features.kernel, features.anchors
    if len(family.kernels) == 1:
        return np.eye(len(anchors)), np.ones((1, len(anchors)))
    rows = features.rows(own_problem.graph.positions[anchors], n_jobs, absolute=False, as_sparse=True)[0]
    own = np.ones(len(anchors)) if own_problem.per_volume else own_problem.measure[anchors]
    square = np.sqrt(features.weights * reciprocal(own))[:, None] * rows.toarray()
    values, basis = linalg.eigh((square + square.T) / 2)
    gaps = np.concatenate([[0.0], np.geomspace(1e-8, 2.0, 1000)])
    curves = [on_graph(kernel, problem).root().spectral(1 - gaps) for kernel in family.kernels]
    falls = np.diff(curves[0], prepend=np.inf) < 0
    reach = np.cumprod(falls & (curves[0] > _FLOOR * curves[0][0])).astype(bool)  # from omega = 1 on
    logs = np.log(np.maximum([curve[reach][::-1] for curve in curves], 1e-300))
    at = np.log(np.maximum(values, curves[0][reach][-1]))
    return basis, np.exp([np.interp(at, logs[0], other - logs[0]) for other in logs])


@stored
@dataclass(frozen=True, eq=False)
class Average:
    """Mean (m, c) and covariances (c, m + 1, m + 1) of weights and offset, and the mean noise and prior variance.

    Attributes
    ----------
    weights : array of shape (m, c)
    offset : array of shape (c,)
        Mean of the offset.
    covariance : array of shape (c, m + 1, m + 1)
        Of the weights and, last, of the offset.
    noise, prior : array of shape (c,)
        Variance of the noise, and prior variance of f, averaged over the data.
    """

    weights: FloatArray
    offset: FloatArray
    covariance: FloatArray
    noise: FloatArray
    prior: FloatArray

    def check(self, m: int, c: int) -> None:
        """Raise unless the parts are those of m features and c outputs."""
        check_shape("weights", self.weights, (m, c))
        check_shape("offset", self.offset, (c,))
        check_shape("covariance", self.covariance, (c, m + 1, m + 1))
        for name in ("weights", "offset", "covariance"):
            check_numbers(name, getattr(self, name))
        for name in ("noise", "prior"):
            check_amounts(name, getattr(self, name), c)

    def squares(self, rows: FloatArray, n_jobs: int) -> FloatArray:
        """Posterior variance at points with these features, (q, c)."""
        whole = _with_offset(rows)
        found = [(product(whole, part, n_jobs) * whole).sum(axis=1) for part in self.covariance]
        return np.asarray(np.maximum(np.column_stack(found), 0.0))

    def covariances(self, rows: FloatArray, n_jobs: int) -> FloatArray:
        """Posterior covariance at points with these features, (q, q, c)."""
        whole = _with_offset(rows)
        return np.stack([product(product(whole, part, n_jobs), whole, n_jobs) for part in self.covariance], axis=2)

    def draws(self, rows: FloatArray, normal: FloatArray, n_jobs: int) -> FloatArray:
        """Deviations from the mean at points, (N, q, c), from standard normal numbers (N, c, m + 1)."""
        whole = _with_offset(rows)
        parts = []
        for k, part in enumerate(self.covariance):
            values, vectors = linalg.eigh(part)
            roots = vectors * np.sqrt(np.maximum(values, 0.0))
            parts.append(product(normal[:, k], product(whole, roots.T, n_jobs), n_jobs))
        return np.stack(parts, axis=2)


def _with_offset(rows: FloatArray) -> FloatArray:
    """Features (q, m) and, last, the constant feature of the offset."""
    return np.column_stack([rows, np.ones(len(rows))])


def average(
    rows: FloatArray,
    data: Data,
    family: tuple[FloatArray, FloatArray, FloatArray],
    levels: tuple[float | None, float | None],
    n_jobs: int,
) -> Average:
    """Average the posteriors of all members.

    Parameters
    ----------
    rows : array of shape (n, m)
        Features of the data, times the roots of their weights.
    data : Data
    family : tuple (basis (m, m), scales (K, m), log_prior (K,))
    levels : tuple of float or None
        Variance and noise; None to average over it.
    n_jobs : int
        Number of threads; the bits do not depend on it.
    """
    basis, scales, log_prior = family
    turned = product(rows, basis.T, n_jobs)
    members = [_Member(turned * scale, scale, data, levels) for scale in scales]
    logs = np.array([member.evidence for member in members]) + log_prior[:, None]
    shares = np.exp(logs - logs.max())
    shares /= shares.sum()
    m, c = rows.shape[1], data.targets.shape[1]
    mean, second, noise, prior = np.zeros((m + 1, c)), np.zeros((c, m + 1, m + 1)), np.zeros(c), np.zeros(c)
    for member, share in zip(members, shares, strict=True):
        member.add(share, mean, second)
        noise += (share * member.ratios) @ member.variance
        prior += member.height * (share @ member.variance)
    second -= mean.T[:, :, None] * mean.T[:, None, :]
    second[:, :m] = basis @ second[:, :m]
    second[:, :, :m] = second[:, :, :m] @ basis.T
    return Average(basis @ mean[:m], mean[m], second, noise, prior)


class _Member:
    """Processes with one kernel and J ratios of noise to variance.

    Attributes
    ----------
    ratios : array of shape (J,)
    evidence : array of shape (J,)
        Logarithm of the marginal likelihood, up to a constant that all members share.
    variance : array of shape (J, c)
        Posterior mean of the variance; three or fewer values have none and get that of four.
    height : float
        Mean of the kernel over the data.
    """

    def __init__(
        self, rows: FloatArray, scale: FloatArray, data: Data, levels: tuple[float | None, float | None]
    ) -> None:
        n, targets = len(rows), data.targets
        values, vectors = linalg.eigh(rows @ rows.T)
        spectrum = Spectrum(np.maximum(values, 0.0), vectors.T @ targets, np.zeros(targets.shape[1]), n)
        self.height = spectrum.height
        wanted, given = _grid(spectrum, levels)
        self.ratios = np.array([spectrum.ratio(ratio) for ratio in wanted])
        self.inverse = 1 / (spectrum.values + self.ratios[:, None])  # (J, n)
        ones = vectors.T @ data.roots[:, 0]
        self.leverage = self.inverse @ ones**2  # (J,): precision of the offset over that of the variance
        self.offsets = (self.inverse * ones) @ spectrum.shares / self.leverage[:, None]  # (J, c)
        rest = spectrum.shares - ones[:, None] * self.offsets[:, None, :]  # (J, n, c)
        misfit = np.maximum((self.inverse[:, :, None] * rest**2).sum(axis=1), _SMALLEST)  # (J, c)
        self.alphas, self.pulls = self.inverse[:, :, None] * rest, self.inverse * ones
        if given is None:
            # The mean of an inverse gamma distribution of shape (n - 1) / 2, which is infinite for n <= 3.
            self.variance = misfit / (max(n, 4) - 3)
            fit = (n - 1) * np.log(misfit)
        else:
            self.variance = np.repeat(given[:, None], misfit.shape[1], axis=1)
            with np.errstate(over="ignore"):  # given levels may not fit the data at all
                fit = misfit / self.variance + (n - 1) * np.log(self.variance)
        volume = np.log(self.leverage) - np.log(self.inverse).sum(axis=1)
        self.evidence = np.maximum(-0.5 * (fit + volume[:, None]).sum(axis=1), WORST)
        self._scale, self._lift = scale, scale[:, None] * (rows.T @ vectors)  # (m,), (m, n)

    def add(self, share: FloatArray, mean: FloatArray, second: FloatArray) -> None:
        """Add the first and second moments of weights and offset, weighted by ``share`` (J,)."""
        m, n = self._lift.shape
        lift = np.zeros((m + 1, n + 1))
        lift[:m, :n], lift[m, n] = self._lift, 1.0
        ends = np.concatenate([self.alphas, self.offsets[:, None, :]], axis=1)  # (J, n + 1, c)
        mean += lift @ np.tensordot(share, ends, 1)
        pulls = np.column_stack([-self.pulls, np.ones(len(share))])  # how the weights follow the offset
        for k in range(mean.shape[1]):
            size = share * self.variance[:, k]
            inner = (ends[:, :, k].T * share) @ ends[:, :, k] + (pulls.T * (size / self.leverage)) @ pulls
            inner[np.arange(n), np.arange(n)] -= size @ self.inverse
            second[k] += lift @ inner @ lift.T
            second[k, np.arange(m), np.arange(m)] += size.sum() * self._scale**2


def _grid(spectrum: Spectrum, levels: tuple[float | None, float | None]) -> tuple[FloatArray, FloatArray | None]:
    """Ratios of noise to variance, (J,), and the variance of each; None to integrate over the variance."""
    variance, noise = levels
    if variance is None and noise is None:
        return (spectrum.height or 1.0) * _RATIOS, None
    best = find_levels(spectrum, *levels)
    if variance is not None:
        ratios = best.ratio * (_AROUND if noise is None else np.ones(1))
        return ratios, np.full(len(ratios), variance)
    variances = best.variance[0] * _AROUND
    return np.array([noise]) / variances, variances
