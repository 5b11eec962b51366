"""Ridge regression and Gaussian processes along a space, from values at some of its points."""

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from scipy import linalg
from scipy.spatial import cKDTree
from scipy.special import logsumexp, ndtri
from scipy.stats import qmc
from sklearn.base import MultiOutputMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from manifoldrf._random import SeedLike, Streams
from manifoldrf._runtime import all_or_nothing, one_blas_thread, stage_of, warn_user, without_warnings
from manifoldrf._validation import (
    NONNEGATIVE,
    POSITIVE,
    FloatArray,
    Interval,
    as_array,
    check_finite,
    check_flag,
    check_integer,
    check_jobs,
    check_number_or,
    check_points,
    check_vector,
    column_names,
    refuse_text,
    reject,
)
from manifoldrf.applications import processes
from manifoldrf.applications.saving import SavedEstimator
from manifoldrf.features.feature_map import FarQueryWarning
from manifoldrf.features.fit import FitOptions, FrozenParamsMixin
from manifoldrf.features.graph_features import GraphRandomFeatures, check_nodes
from manifoldrf.features.graph_kernel import HeatGraph, build_graph, resolve_kernel
from manifoldrf.features.manifold_features import ManifoldRandomFeatures, estimator_points, n_coordinates, shortened
from manifoldrf.features.times import check_times
from manifoldrf.geometry.csr import as_dense, check_shape
from manifoldrf.geometry.graphs import Graph, translated
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.kernels.abstract_kernel import ASYMMETRIC, AbstractKernel
from manifoldrf.kernels.named_kernels import DiffusionKernel, HeatKernel
from manifoldrf.signatures import check_kernel

# Up to this number of values, a process averages over time, variance and noise. More values determine them well,
# and averages take O(n^3) time for each kernel. ``benchmarks/bench_coverage.py`` measures intervals on both sides.
_FEW_VALUES = 512
_FEATURES = 1024, 2048  # of a search, and of a second one if the best kernel is the narrowest of the first
_Level = float | FloatArray  # one for each output


class ManifoldRidge(FrozenParamsMixin, MultiOutputMixin, RegressorMixin, SavedEstimator):  # type: ignore[misc]
    """Ridge regression on features of a space: kernel ridge regression in linear time.

    The weights w and the intercept b minimise |y - Phi w - b|^2 + alpha |w|^2.

    Parameters
    ----------
    features : transformer or None, default=None
        By default :class:`ManifoldRandomFeatures`, or :class:`GraphRandomFeatures` for a graph without points. The
        transformer is cloned and fitted to the space, and its kernel is used unchanged. With ``times`` and without
        a kernel, the heat time with the smallest leave-one-out error is used, among four per octave, measured at up
        to 2048 random data.
    space : array-like, TriangleMesh, AbstractManifold, Graph or None, default=None
        The whole space, of which the data are a few points; None to use the data themselves. On a graph without
        points, also one of another library or a sparse matrix, the data are nodes.
    alpha : float or "cv", default="cv"
        Penalty, nonnegative. "cv": the value with the smallest leave-one-out error, which needs no refits.
    random_state : None, int, Generator or RandomState, default=None
        Seed of the default features and of the choice of data; other features have their own seed.
    n_jobs : int, default=-1
        Number of threads of the default features, -1 for all cores.

    Attributes
    ----------
    features_ : transformer
        Those of the chosen time, if there was a choice: ``features_.kernel_.t``.
    alpha_ : float
    coef_ : array of shape (m,) or (m, c)
    intercept_ : float or array of shape (c,)
    loo_error_ : float
        Root mean squared leave-one-out error over all outputs.
    n_features_in_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Sphere
    >>> from manifoldrf.applications.regression import ManifoldRidge
    >>> points = Sphere().sample(500, seed=0)  # the space
    >>> height = points[:, 2]
    >>> model = ManifoldRidge(space=points, random_state=0).fit(points[:100], height[:100])
    >>> bool(np.abs(model.predict(points) - height).max() < 0.05)
    True
    """

    _stored: ClassVar[dict[str, Any]] = {
        "features_": ManifoldRandomFeatures,
        **dict.fromkeys(("alpha_", "loo_error_"), float),
        "coef_": FloatArray,
        "intercept_": _Level,
        "n_features_in_": int,
        "_is_vector": bool,
    }

    def __init__(
        self,
        features: Any = None,
        *,
        space: Any = None,
        alpha: float | str = "cv",
        random_state: SeedLike = None,
        n_jobs: int = -1,
    ) -> None:
        self.features = features
        self.space = space
        self.alpha = alpha
        self.random_state = random_state
        self.n_jobs = n_jobs

    @all_or_nothing
    @one_blas_thread()  # the last bits of products depend on the number of threads
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the features to the space, and the weights to y, shape (n,) or (n, c), at points X, shape (n, d).

        Takes O(n m min(n, m)) time for m features. Data off the space, where :class:`ManifoldRandomFeatures` are
        zero, are left out with a warning.

        Parameters
        ----------
        X : array-like of shape (n, d), or nodes of shape (n,) or (n, 1) of a graph without points
        y : array-like of shape (n,) or (n, c)
        sample_weight : array-like of shape (n,), optional
            Nonnegative weights of the squared errors. A weight of 2 counts as two equal data, of which the
            leave-one-out error leaves out one. Without a space, points of any weight belong to the space.
        """
        alpha = check_number_or(self.alpha, "alpha", "cv", NONNEGATIVE)
        space, (points, targets, mass, numbers) = read_data(self, X, y, sample_weight)
        if self.features is None:
            kind: Any = GraphRandomFeatures if has_nodes_only(space) else ManifoldRandomFeatures
            features: Any = kind(random_state=self.random_state, n_jobs=self.n_jobs)
        elif hasattr(self.features, "fit") and hasattr(self.features, "transform"):
            features = clone(self.features)
        else:
            reject("features", "None or a transformer", repr(self.features), TypeError)
        if hasattr(features, "set_output"):
            features.set_output(transform="default")  # arrays, whatever the configuration of scikit-learn
        self.features_ = features.fit(space)
        if getattr(features, "asymmetric_", False):
            reject("features", "features with one side", f"those of {shortened(features.kernel_)}, with two sides")
        with without_warnings(FarQueryWarning):  # points off the space are reported below
            rows = as_dense(self.features_.transform(points))
        if isinstance(features, ManifoldRandomFeatures):
            on = on_space(rows.any(axis=1), numbers)
            points, targets, mass, rows = points[on], targets[on], mass[on], rows[on]
            if features.times is not None and features.kernel is None:
                self.features_ = features.at(self._best_time(features, (points, targets, mass), alpha))
                rows = as_dense(self.features_.transform(points))
        offset, middle = np.average(targets, axis=0, weights=mass), np.average(rows, axis=0, weights=mass)
        (singular, right, shares), (self.alpha_, self.loo_error_, _) = _solve_ridge(rows, targets, mass, alpha)
        inverse = np.divide(singular, singular**2 + self.alpha_, out=0 * singular, where=singular > 0)
        coef = right.T @ (inverse[:, None] * shares)
        # Contiguous, as in a loaded model: the rounding of products depends on it.
        self.coef_ = np.ascontiguousarray(coef[:, 0]) if self._is_vector else coef
        self.intercept_ = offset[0] - middle @ self.coef_ if self._is_vector else offset - middle @ coef
        return self

    def _best_time(self, features: ManifoldRandomFeatures, data: tuple[FloatArray, ...], alpha: Any) -> float:
        """The time with the smallest leave-one-out error; sixteen in each octave are no better than four."""
        rng = Streams.from_seed(self.random_state, "random_state").generator("regression.times")
        few = np.sort(rng.choice(len(data[0]), min(len(data[0]), 2048), replace=False))
        points, targets, mass = (part[few] for part in data)
        prepared, (shortest, longest) = features.prepare(points), check_times(features.times)
        times = np.geomspace(shortest, longest, 1 + math.ceil(4 * np.log2(longest / shortest)))
        return float(min(times, key=lambda t: _solve_ridge(prepared.at(t), targets, mass, alpha)[1][2]))

    @one_blas_thread()
    def predict(self, X: Any) -> FloatArray:
        """Values at points of the space, shape (q,) or (q, c)."""
        points = query_points(self, X)
        rows = (as_dense(self.features_.transform(part)) for part in parts_of(points, len(self.coef_)))
        return np.asarray(np.concatenate([part @ self.coef_ for part in rows]) + self.intercept_)

    def _facts(self) -> list[tuple[str, str]]:
        error = ("leave-one-out error", f"{self.loo_error_:.3g}, root mean square")
        return [*_features_facts(self.features_), ("penalty", f"{self.alpha_:.3g}"), error]

    def _check_loaded(self) -> None:
        n, m, outputs = self.features_.n_features_in_, self.features_.n_features_out_, self.coef_.shape[1:]
        check_integer(self.n_features_in_, "n_features_in_", n, n)
        check_shape("coef_", self.coef_, (m,) if self._is_vector else (m, *outputs[:1]))
        check_shape("intercept_", np.asarray(self.intercept_), outputs)


def _solve_ridge(rows: FloatArray, targets: FloatArray, mass: FloatArray, alpha: float | None) -> Any:
    """Singular values (r,), right vectors (r, m) and shares (r, c) of centred data, and the best penalty.

    Also returns the root mean squared leave-one-out error of the penalty, and its squared errors over variances,
    summed over outputs. The leave-one-out residual of datum i is (y_i - f_i) / (1 - H_ii), where H maps y to the
    fitted values. Of a datum with a weight above 1, a share of weight 1 is left out.
    """
    roots, n, out = np.sqrt(mass)[:, None], float(mass.sum()), np.minimum(1.0, 1 / mass)
    known, centred = (roots * (part - np.average(part, axis=0, weights=mass)) for part in (rows, targets))
    left, singular, right = linalg.svd(known, full_matrices=False)
    singular[singular <= 1e-13 * singular.max(initial=0.0)] = 0.0  # rounding errors
    shares, values, squares = left.T @ centred, singular**2, left**2
    size = np.maximum((centred**2).sum(axis=0) / n, np.finfo(np.float64).tiny)
    grid = (float(values.sum()) / n or 1.0) * np.geomspace(processes.LOWEST, processes.HIGHEST, 37)
    best = np.inf, np.inf, 0.0
    for penalty in [alpha] if alpha is not None else grid[::-1]:
        least = max(penalty, 1e-13 * values.max(initial=0.0))  # with less, residuals may be rounding errors
        kept = np.divide(values, values + least, out=np.zeros_like(values), where=values > 0)  # (r,)
        residuals = centred - left @ (kept[:, None] * shares)
        own = np.maximum(1 - out * (mass / n + squares @ kept), np.finfo(np.float64).eps)
        errors = ((residuals / own[:, None]) ** 2).sum(axis=0) / n
        score = float((errors / size).sum())
        if score < best[0]:
            best = score, float(np.sqrt(errors.mean())), float(penalty)
    return (singular, right, shares), (best[2], best[1], best[0])


class ManifoldGaussianProcess(FrozenParamsMixin, MultiOutputMixin, RegressorMixin, SavedEstimator):  # type: ignore[misc]
    """A Gaussian process on a space, by its features: O(n m^2 + m^3) for n data and m features.

    y = offset + f(x) + noise, where f has the covariance variance * K and K(x, y) = phi(x) . phi(y) is the kernel
    of :class:`ManifoldRandomFeatures`. The time (or length scale), the variance and the noise with the largest
    marginal likelihood are ``kernel_``, ``variance_`` and ``noise_variance_``.

    Few data do not determine these, and the best values alone would be overconfident. So predictions from at most
    512 values average over the times of the search and ratios of noise to variance, weighted by marginal likelihood
    with uniform priors on their logarithms. Variance (prior 1 / variance) and offset (flat prior) are integrated in
    closed form. Predictions from more values, or with given ``variance`` and ``noise_variance`` and
    ``optimize=False``, use a single time, variance and noise, and the mean of y as offset.

    Parameters
    ----------
    kernel : AbstractKernel, callable or None, default=None
        As in :class:`ManifoldRandomFeatures`; the search starts at its time. The time of heat, diffusion, Matern
        and regularised Laplacian kernels, their sums, products and multiples can be optimised, with one factor for
        all terms. On a heat graph a heat kernel takes at least two steps; rougher data need a graph
        with shorter steps. None: the heat kernel times a factor that makes K(x, x) one on average over the data.
    space : array-like, TriangleMesh, AbstractManifold, Graph or None, default=None
        The whole space, of which the data are a few points; None to use the data themselves. On a graph without
        points, also one of another library or a sparse matrix, the data are nodes. Fewer than 200 data do not
        determine a space: without a space, kernel and graph, K is then the Gaussian kernel exp(-|x - y|^2 / 4t)
        of the coordinates, with a :class:`ManifoldWarning` (not with ``optimize=False``).
    n_features : int or {"auto", "all"}, default="auto"
        "auto": 256 to 2048, with anchors .7 feature widths apart. "all": the exact kernel of the graph at its
        nodes. The search takes O(m^3) time, and leaves out kernels that need more features.
    graph : HeatGraph, KnnGraph, callable, Graph or None, default=None
        As in :class:`ManifoldRandomFeatures`.
    field : str, default="auto"
        As in :class:`ManifoldRandomFeatures`, but "auto" is "interpolated" for a kernel with a spike at every node,
        which smooth fields would lose.
    teacher : str, default="auto"
        As in :class:`ManifoldRandomFeatures`.
    optimize : bool, default=True
        Whether to search for the time; if False, the time of the kernel is used.
    variance : float or "auto", default="auto"
        Factor of the kernel, from 1e-100 to 1e100. With several outputs "auto" gives each its own.
    noise_variance : float or "auto", default="auto"
        Variance of the noise. Values below 1e-12 of the largest eigenvalue of the covariance of the data are raised
        to that. With several outputs "auto" gives each its own.
    random_state : None, int, Generator or RandomState, default=None
    n_jobs : int, default=-1
        Number of threads, -1 for all cores; results do not depend on it.
    verbose : bool or callable, default=False
        As in :class:`ManifoldRandomFeatures`.

    Attributes
    ----------
    features_ : ManifoldRandomFeatures or None
        Features of the narrowest kernel in the average, from which those of wider ones are derived; None for the
        Gaussian kernel of the coordinates, and for graphs without points, which use eigenvectors of the walk.
    kernel_ : AbstractKernel
        The kernel with the best time.
    variance_, noise_variance_ : float or array of shape (c,)
        Those with the largest likelihood for this kernel.
    offset_ : float or array of shape (c,)
        Mean of the posterior of the offset.
    log_marginal_likelihood_ : float
        Of ``kernel_``, ``variance_`` and ``noise_variance_`` with the mean of y as offset; the sum over all
        outputs.
    trials_ : tuple of (AbstractKernel, float)
        The kernels of the search, the narrowest first, and their log marginal likelihoods; empty without a search.
    n_features_in_ : int

    Notes
    -----
    Features are fitted once, for the narrowest kernel that m features can represent and the data can distinguish
    from noise: a quarter as wide as the distance between data. Wider kernels rescale them along eigenvectors, see
    ``applications/processes``. Prediction stores 8 m^2 c bytes for an average, else 8 m min(n, m).

    Away from the space the features vanish and the prediction returns to the prior: the mean is the offset, and the
    standard deviation is the average prior standard deviation of f.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import ManifoldGaussianProcess, Sphere
    >>> points = Sphere().sample(400, seed=0)
    >>> values = points[:, 2] + 0.1 * np.random.default_rng(0).normal(size=400)
    >>> model = ManifoldGaussianProcess(space=points, random_state=0).fit(points[:100], values[:100])
    >>> mean, std = model.predict(points[100:], return_std=True, include_noise=True)
    >>> inside = np.abs(values[100:] - mean) < 1.645 * std  # 90 % intervals
    >>> bool(0.8 < inside.mean() < 0.97)
    True
    """

    _stored: ClassVar[dict[str, Any]] = {
        "features_": ManifoldRandomFeatures | None,
        "kernel_": AbstractKernel,
        "trials_": tuple[tuple[AbstractKernel, float], ...],
        "log_marginal_likelihood_": float,
        **dict.fromkeys(("variance_", "noise_variance_", "offset_"), _Level),
        "n_features_in_": int,
        "_posterior": processes.Posterior,
        "_common": processes.FourierFeatures | processes.NodeFeatures | None,
        "_is_vector": bool,
    }

    def __init__(  # noqa: PLR0913  (an estimator remembers all its options)
        self,
        kernel: Any = None,
        *,
        space: Any = None,
        n_features: int | str = "auto",
        graph: Any = None,
        field: Any = "auto",
        teacher: Any = "auto",
        optimize: bool = True,
        variance: float | str = "auto",
        noise_variance: float | str = "auto",
        random_state: SeedLike = None,
        n_jobs: int = -1,
        verbose: Any = False,
    ) -> None:
        self.kernel = kernel
        self.space = space
        self.n_features = n_features
        self.graph = graph
        self.field = field
        self.teacher = teacher
        self.optimize = optimize
        self.variance = variance
        self.noise_variance = noise_variance
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @all_or_nothing
    @one_blas_thread()  # the last bits of products depend on the number of threads
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Optimise the kernel, fit its features to the space, and condition on the data.

        Parameters
        ----------
        X : array-like of shape (n, d), or nodes of shape (n,) or (n, 1) of a graph without points
            Points at which y was measured. Those off the space, whose features are zero, are left out with a
            warning.
        y : array-like of shape (n,) or (n, c)
            Several outputs share the time; each has its own variance and noise.
        sample_weight : array-like of shape (n,), optional
            Nonnegative. The noise of a datum has the variance noise / weight, as for the mean of ``weight`` data.
            Data of weight 0 are left out.
        """
        # Wider ranges could overflow when divided by small ratios.
        variance = check_number_or(self.variance, "variance", "auto", Interval(1e-100, 1e100))
        noise = check_number_or(self.noise_variance, "noise_variance", "auto", POSITIVE)
        optimize = check_flag(self.optimize, "optimize")
        space, (points, targets, mass, numbers) = read_data(self, X, y, sample_weight)
        streams = Streams.from_seed(self.random_state, "random_state")
        if None in (variance, noise) and not np.ptp(targets, axis=0).any():
            warn_user(
                "`y` is constant: it tells nothing about time, variance and noise, and the standard deviations of "
                "predictions are almost zero (remedy: give `variance` and `noise_variance`, with optimize=False)."
            )
            optimize = False  # all times are equally likely
        shared = ("kernel", "n_features", "graph", "field", "teacher", "n_jobs", "verbose")
        template = ManifoldRandomFeatures(
            **{name: getattr(self, name) for name in shared},
            normalize=False,  # the variance scales the kernel
            random_state=int(streams.generator("regression.features").integers(2**31)),
        )
        options = FitOptions.of(template.get_params(deep=False), streams)
        is_bare = self.space is None and self.kernel is None and self.graph is None
        if has_nodes_only(space):
            candidates: Any = _Nodes(template, space, optimize=optimize)
        elif is_bare and optimize and len(points) < 200:
            candidates = _Coordinates(points, streams)
        else:
            candidates = _Stretched(template, options, space, len(points), optimize=optimize)
            on = on_space(candidates.problem.window(points) > 0, numbers)
            points, targets, mass = points[on], targets[on], mass[on]
        unit = float(mass.mean())  # relative to their mean, weights imply a noise divided by it
        roots = np.sqrt(mass / unit)
        offset = np.average(targets, axis=0, weights=mass)
        varies = np.ptp(targets, axis=0) > 0  # the rest of a constant output would be rounding errors
        data = points, roots[:, None] * np.where(varies, targets - offset, 0.0), roots
        levels = variance, None if noise is None else noise / unit
        found = candidates.search(data, levels, average=targets.size <= _FEW_VALUES)
        self.features_, self._common = candidates.features, candidates.common
        self.kernel_, best = found.kernel, found.levels
        log_volume = targets.shape[1] * float(np.log(roots).sum())
        self.trials_ = tuple((kernel, value + log_volume) for kernel, value in found.trials)
        self.log_marginal_likelihood_ = float(best.log_likelihood.sum()) + log_volume
        self._posterior = replace(found.posterior, noise=unit * found.posterior.noise)
        self._posterior.mean[-1] += offset
        self.variance_ = self._shaped(best.variance)
        self.noise_variance_ = self._shaped(unit * best.ratio * best.variance)
        self.offset_ = self._shaped(self._posterior.mean[-1])
        return self

    @one_blas_thread()
    def predict(
        self,
        X: Any,
        return_std: bool = False,  # noqa: FBT001, FBT002  (scikit-learn's signature)
        return_cov: bool = False,  # noqa: FBT001, FBT002
        *,
        include_noise: bool = False,
    ) -> Any:
        """Posterior mean of f at points, and its uncertainty.

        Parameters
        ----------
        X : array-like of shape (q, d)
        return_std : bool
            Also return the standard deviation of offset + f, shape (q,) or (q, c). For few data it is that of the
            average over times, variances, noises and offsets. With ``include_noise``, ``mean +- 1.645 std`` is a
            90 % interval of a new value; it holds about 90 % on average over many fields, not in each.
        return_cov : bool
            Return the covariance of offset + f instead, shape (q, q) or (q, q, c).
        include_noise : bool
            Describe a new measurement instead of f: use this for prediction intervals of new values.

        Returns
        -------
        mean : array of shape (q,) or (q, c)
        std or cov : array, if requested
        """
        points = query_points(self, X)
        if check_flag(return_std, "return_std") and check_flag(return_cov, "return_cov"):
            reject("return_std", "False with return_cov=True", "True")
        check_flag(include_noise, "include_noise")
        posterior, jobs = self._posterior, check_jobs(self.n_jobs)
        if return_cov:
            rows = self._rows(points)
            cov = posterior.covariances(rows, jobs)
            cov[np.arange(len(rows)), np.arange(len(rows))] += self._own(points, noise=include_noise)
            return self._shaped(posterior.means(rows)), self._shaped(cov)
        means, variances = [], []
        for part in parts_of(points, len(posterior.mean)):
            rows = self._rows(part)
            means.append(posterior.means(rows))
            if return_std:
                variances.append(posterior.variances(rows, jobs) + self._own(part, noise=include_noise))
        mean = self._shaped(np.concatenate(means))
        return (mean, self._shaped(np.sqrt(np.concatenate(variances)))) if return_std else mean

    @one_blas_thread()
    def sample_posterior(self, X: Any, n_samples: int = 1, random_state: SeedLike = None) -> FloatArray:
        """Draw functions offset + f from the posterior, without noise, and evaluate them at points.

        For few data the posterior is the normal distribution with the mean and covariance of the average.

        Parameters
        ----------
        X : array-like of shape (q, d)
        n_samples : int
        random_state : None, int, Generator or RandomState

        Returns
        -------
        samples : array of shape (n_samples, q) or (n_samples, q, c)
            Takes O(n_samples q m) time. A sample is one function: near the space its values do not depend on the
            other points.
        """
        points, n = query_points(self, X), check_integer(n_samples, "n_samples", 1)
        m, c = self._posterior.mean.shape
        streams = Streams.from_seed(random_state, "random_state")
        normal = streams.generator("regression.samples").standard_normal((n, c, m))
        rows, own = self._rows(points), self._own(points, noise=False)
        samples = self._posterior.means(rows) + self._posterior.draws(rows, normal, check_jobs(self.n_jobs))
        if own.any():
            samples += np.sqrt(own) * streams.generator("regression.beyond").standard_normal(samples.shape)
        return np.asarray(self._shaped(samples))

    def _rows(self, points: FloatArray) -> FloatArray:
        """Features of points, (q, m)."""
        if self._common is not None:
            return np.asarray(self._common.rows(points))
        return as_dense(self.features_.transform(points))

    def _own(self, points: FloatArray, *, noise: bool) -> FloatArray:
        """Independent variance of points, (q, c): what the window removes off the space, and noise if requested."""
        window = np.ones(len(points)) if self.features_ is None else self.features_.map_.kernel.window(points)
        return np.asarray((1 - window**2)[:, None] * self._posterior.prior + noise * self._posterior.noise)

    def _facts(self) -> list[tuple[str, str]]:
        names = {"variance_": "factor of the kernel", "noise_variance_": "noise variance", "offset_": "offset"}
        levels = [
            (text, ", ".join(f"{x:.4g}" for x in np.ravel(getattr(self, name)))) for name, text in names.items()
        ]
        likelihood = "log marginal likelihood", f"{self.log_marginal_likelihood_:.6g}"
        tried = "kernels tried", str(len(self.trials_))
        rows = [("best kernel", shortened(self.kernel_)), *levels, likelihood, tried]
        if self._common is not None:
            return [*rows, ("features", self._common.about)]
        return rows + _features_facts(self.features_)

    def _check_loaded(self) -> None:
        (m, c), known, d = self._posterior.mean.shape, self._common or self.features_, self.n_features_in_
        shapes = [getattr(known, name, None) for name in ("n_features_in_", "n_features_out_")]
        if shapes != [d, m - 1]:
            reject("features_", f"{m - 1} features of {d} coordinates", shapes)
        for name in ("variance_", "noise_variance_", "offset_"):
            check_shape(name, np.asarray(getattr(self, name)), () if self._is_vector and c == 1 else (c,))

    def _shaped(self, values: FloatArray) -> Any:
        """Drop the last axis, that of the outputs, if y was a vector."""
        if not self._is_vector:
            return values
        return float(values[0]) if values.ndim == 1 else values[..., 0]


class _SearchResult(NamedTuple):
    """Result of a search: the best kernel with its levels, all trials, and the posterior."""

    kernel: AbstractKernel
    levels: processes.FoundLevels
    trials: tuple[tuple[AbstractKernel, float], ...]
    posterior: processes.Posterior


class _Stretched:
    """A kernel at several times on the graph of a space, with the features of the narrowest."""

    common = None

    def __init__(self, template: Any, options: FitOptions, space: Any, n: int, *, optimize: bool) -> None:
        graph = options.graph
        if isinstance(space, AbstractManifold) and graph is None and options.kernel is None and optimize:
            # A grid whose default kernel is half as wide as the distance between data.
            graph = HeatGraph(n_nodes=int(np.clip(32 * n, 500, 4000)))
        self.template = self.features = template.set_params(graph=graph)
        with stage_of(options.progress, "graph"):
            built = build_graph(space, options.kernel, graph, options.n_jobs)
        self.problem = resolve_kernel(built, space, options.streams)[0]
        if self.problem.asymmetric:
            reject("kernel", "one with nonnegative features", f"{self.problem.stated}. {ASYMMETRIC}")
        self.optimize, self.dim, self.graph = optimize, self.problem.dim, self.problem.graph

    def _needed(self, factor: float, ratio: float = 0.7) -> int:
        return int(np.ceil(self.problem.volume / (ratio * self.problem.width * factor**0.5) ** self.dim))

    def _stretched(self, factor: float) -> tuple[AbstractKernel | None, float]:
        """The kernel at another time, and the ratio of the times; heat kernels take at least two steps."""
        given: Any = self.problem.stated
        kernel = processes.stretched(given, factor, self.graph)
        return kernel, kernel.t / given.t if isinstance(kernel, HeatKernel) else factor

    def _resolved(self, kernel: AbstractKernel) -> AbstractKernel:
        return kernel.resolve(self.graph, self.dim).on(self.graph)

    def _kernels(self, n: int, most: int) -> dict[AbstractKernel, float]:
        """Kernels to try, the narrowest first, with their times relative to the given one, by factors of two.

        A kernel narrower than a quarter of the distance between n data acts like noise: without this limit, the
        coverage of intervals from 10 and 20 values on the sphere is the same to 1 %.
        """
        found: dict[AbstractKernel, float] = {}
        narrowest, wanted = 0.24 * self.problem.spacing(n), self.template.n_features
        for octave in 2.0 ** np.arange(-9, 10) if self.optimize else ():
            kernel, factor = self._stretched(float(octave))
            fits = self.graph.n_nodes <= most or self._needed(factor) <= most
            if not isinstance(wanted, str):
                fits = self._needed(factor, 1.2) <= wanted  # anchors farther apart do not resolve the kernel
            if kernel is not None and fits and self.problem.width * factor**0.5 >= narrowest:
                with suppress(ValueError):  # it cannot be resolved on the graph
                    self._resolved(kernel)
                    found[kernel] = factor
        return found or {self.problem.stated: 1.0}

    def _fit(self, kernel: AbstractKernel, factor: float, data: Any, most: int | None) -> processes.Moments:
        """Fit at most ``most`` features of a kernel, and return the moments of the data."""
        n_nodes, m = self.graph.n_nodes, self.template.n_features
        if m == "auto":
            m = min(max(self._needed(factor), 256), most or _FEATURES[1], n_nodes)
            m = "all" if 2 * m >= n_nodes and n_nodes <= 2048 else m
        elif m == "all" and most is not None and n_nodes > _FEATURES[1]:
            m = most  # eigenvectors of more would take too long
        given, field = self.template.kernel, self.template.field
        own = replace(self.problem, stated=kernel, resolved=self._resolved(kernel))
        if isinstance(field, str) and field == "auto" and own.has_spike:
            field = "interpolated"
        chosen = given if callable(given) else kernel  # a function is fitted again
        graph = HeatGraph(dim=self.dim)
        self.features = clone(self.template).set_params(kernel=chosen, n_features=m, graph=graph, field=field)
        self.features.set_output(transform="default")  # arrays, whatever the configuration of scikit-learn
        self.features.fit(self.graph)
        self.fitted, (points, targets, roots), m = kernel, data, self.features.n_features_out_
        parts = zip(*(parts_of(part, m) for part in (roots[:, None], points, targets)), strict=True)
        rows = ((root * self.features.transform(at), values) for root, at, values in parts)
        return processes.Moments(rows, len(points), m)

    def _basis(self) -> tuple[FloatArray, FloatArray]:
        own = self.problem.measure[self.features.anchors_]
        return processes.eigenbasis(self.features, np.ones(len(own)) if self.problem.per_volume else own)

    def _scales(self, values: FloatArray, kernels: list[AbstractKernel]) -> FloatArray:
        return processes.spectral_factors(values, *map(self._resolved, (self.fitted, *kernels)))

    def search(self, data: Any, levels: processes.Levels, *, average: bool) -> _SearchResult:  # noqa: C901
        """Find the best kernel, and condition it, or all plausible ones, on the data."""
        (points, targets, roots), n = data, len(data[0])
        for most in _FEATURES:
            times = self._kernels(n, most)
            narrowest, shortest = next(iter(times.items()))
            moments, scores = self._fit(narrowest, shortest, data, most), {}
            if not moments.sizes.any():
                reject("X", "on the space, where features are not zero; check units and coordinates", f"{n} points")
            if len(times) > 1:
                scores = self._scores(moments, times, levels)
            more = self.template.n_features == "auto" and len(self._kernels(n, _FEATURES[1])) > len(times)
            if not scores or max(scores, key=scores.__getitem__) != narrowest or not more:
                break
        kernels = sorted(times, key=times.__getitem__)
        log_times = np.log([times[kernel] for kernel in kernels])
        logs = [scores.get(kernel, 0.0) for kernel in kernels]
        m = self.features.n_features_out_
        average = average and targets.shape[1] * (m + 1) ** 2 <= 2**26  # 512 MB of covariances
        best, kept, log_prior = _family(log_times, np.array(logs), average=average)
        members, top = [kernels[k] for k in kept], kernels[best]
        few = min(max(self._needed(times[members[0]]), 256), m)
        single = not average or (len(members) == 1 and None not in levels)
        if (single and members[0] != self.fitted) or (self.template.n_features != "all" and 2 * few <= m):
            moments = self._fit(members[0], times[members[0]], data, None)
            m = self.features.n_features_out_
        basis, scales = np.eye(m), np.ones((1, m))
        if len(members) > 1 or members[0] != self.fitted:
            values, basis = self._basis()
            scales = self._scales(values, members)
        if self.template.kernel is None:  # kernels with K(x, x) = 1 on average over the data
            factors = [float(f"{1 / height:.3g}") for height in _heights(moments.turned(basis), scales)]
            scales = scales * np.sqrt(factors)[:, None]
            top = factors[members.index(top)] * top
        own = scales[members.index(kernels[best])]
        trials = tuple((kernel, scores[kernel]) for kernel in kernels if kernel in scores)
        if single:
            factor = float(own[0] ** 2)  # all are the same
            spectrum = moments.spectrum(np.ones(m))
            found = processes.find_levels(spectrum, (None if levels[0] is None else factor * levels[0], levels[1]))
            posterior = processes.plain_posterior(spectrum, found)
            found = replace(found, variance=found.variance / factor, ratio=found.ratio * factor)
        else:
            found = processes.find_levels(moments.turned(basis).spectrum(own), levels)
            if len(members) > 1 and self.problem.per_volume and self.graph.n_components == 1:
                scales[:, -1] = 0.0  # constant on the space, like the offset
            rows = roots[:, None] * self.features.transform(points)
            posterior = processes.average_posterior(rows, (targets, roots), (basis, scales, log_prior), levels)
        halved = processes.stretched(self.problem.stated, times[kernels[best]] / 2, self.graph)
        noisy = (found.ratio * found.variance > 1e-4 * targets.var(axis=0)).any()
        if scores and best == 0 and halved == kernels[0] and noisy and logs[0] > max(logs[1:]) + 2:
            warn_user(
                f"The best kernel, {shortened(top)}, has the shortest time of the graph, two of its steps: data "
                "that vary within shorter distances are taken for noise. Remedies: a kernel with a smaller t, for "
                "which a graph of shorter steps is built; more points in the space."
            )
        return _SearchResult(top, found, trials, posterior)

    def _scores(
        self, moments: processes.Moments, times: dict[AbstractKernel, float], levels: processes.Levels
    ) -> dict[AbstractKernel, float]:
        """Log likelihoods of kernels; the time is refined by halving steps around the best, down to 4 %."""
        values, basis = self._basis()
        turned, shortest = moments.turned(basis), min(times.values())
        scores: dict[AbstractKernel, float] = {}

        def attempt(kernel: AbstractKernel | None, factor: float) -> float:
            if kernel is None or factor < shortest:
                return -np.inf
            if kernel not in scores:
                try:
                    scale = self._scales(values, [kernel])[0]
                except ValueError:  # it cannot be resolved on the graph
                    return -np.inf
                if self.template.kernel is None:
                    scale = scale / np.sqrt(_heights(turned, scale[None]))
                spectrum = turned.spectrum(scale, directions=False)
                scores[kernel] = float(processes.find_levels(spectrum, levels).log_likelihood.sum())
                times.setdefault(kernel, factor)
            return scores[kernel]

        for kernel, factor in list(times.items()):
            attempt(kernel, factor)
        best = times[max(scores, key=scores.__getitem__)]
        for step in 2.0 ** (0.5 ** np.arange(1, 5)):
            best = max((best, best / step, best * step), key=lambda factor: attempt(*self._stretched(factor)))
        return scores


def _heights(moments: processes.Moments, scales: FloatArray) -> FloatArray:
    """Means of K(x, x) over the data for features times each row of factors."""
    return np.asarray(scales**2 @ moments.sizes / moments.n)


class _Common:
    """Kernels that share features; each has its own factors, (K, m)."""

    features = None
    common: Any
    kernels: list[AbstractKernel]
    log_times: FloatArray
    scales: FloatArray

    def search(self, data: Any, levels: processes.Levels, *, average: bool) -> _SearchResult:
        """Find the best time, and condition it on the data or, for few values, the average over times."""
        points, targets, roots = data
        rows = roots[:, None] * self.common.rows(points)
        moments = processes.Moments([(rows, targets)], *rows.shape)
        tried = [processes.find_levels(moments.spectrum(scale, directions=False), levels) for scale in self.scales]
        logs = np.array([found.log_likelihood.sum() for found in tried])
        best, kept, log_prior = _family(self.log_times, logs, average=average)
        if average and (len(logs) > 1 or None in levels):
            family = np.eye(rows.shape[1]), self.scales[kept], log_prior
            posterior = processes.average_posterior(rows, (targets, roots), family, levels)
        else:
            posterior = processes.plain_posterior(moments.spectrum(self.scales[best]), tried[best])
            self.common = self.common.scaled(self.scales[best])
        trials = tuple(zip(self.kernels, logs.tolist(), strict=True))
        return _SearchResult(self.kernels[best], tried[best], trials, posterior)


class _Coordinates(_Common):
    """Gaussian kernels exp(-|x - y|^2 / 4t) of the coordinates, for data too few to show a space.

    K(x, y) = sum_j p_j cos(w_j (x - y)) with frequencies w_j drawn for all times, and p_j the density of the
    frequencies of the time t over that of all. So all kernels have the same features, cos(w x) and sin(w x).
    """

    def __init__(self, points: FloatArray, streams: Streams) -> None:
        warn_user(
            f"{len(points)} data are too few to show the space they are from: the process uses straight distances "
            "between their coordinates (remedy: give the `space`, such as more points without values or a mesh)."
        )
        centre, extent = points.mean(axis=0), float(np.ptp(points, axis=0).max()) or 1.0
        gaps = cKDTree(points).query(points, 2)[0][:, 1]
        spacing = float(np.median(gaps[gaps > 0])) if gaps.any() else extent
        # Widths sqrt(t) from a quarter of the distance of data (narrower ones act like noise) to a nearly linear f.
        octaves = math.ceil(2 * math.log2(4 * extent / (0.24 * spacing)))
        times = (4 * extent) ** 2 * 2.0 ** -np.arange(octaves, -1, -1.0)
        seed = int(streams.generator("regression.frequencies").integers(2**31))
        normal = ndtri(qmc.Halton(points.shape[1], rng=seed).random(512 // len(times) * len(times)))
        own = np.repeat(times, len(normal) // len(times))  # the time of each frequency
        frequencies = normal / np.sqrt(2 * own)[:, None]
        logs = points.shape[1] / 2 * np.log(times[:, None]) - times[:, None] * (frequencies**2).sum(axis=1)
        shares = np.exp(logs - logsumexp(logs, axis=0))
        roots = np.sqrt(shares / shares.sum(axis=1, keepdims=True))
        self.scales = np.hstack([roots, roots])
        self.common = processes.FourierFeatures(frequencies, centre, np.ones(2 * len(own)))
        self.kernels, self.log_times = [HeatKernel(float(t)) for t in times], np.log(times)


class _Nodes(_Common):
    """Kernels h(W) of the walk of a graph, at its nodes: features are eigenvectors of W times roots of h."""

    def __init__(self, template: Any, graph: Graph, *, optimize: bool) -> None:
        if template.graph is not None:
            reject("graph", "None where the space is a graph itself", repr(template.graph))
        n, wanted = graph.n_nodes, template.n_features
        m = min(n, {"all": n, "auto": 1024}.get(wanted, wanted))
        values, vectors = processes.leading_eigenvectors(graph.operator, m)
        given = check_kernel(DiffusionKernel(8.0) if template.kernel is None else template.kernel)
        others = [(processes.stretched(given, factor, graph), factor) for factor in 2.0 ** np.arange(-9, 10)]
        found = [(kernel, factor) for kernel, factor in others if kernel is not None]
        tried = []
        for kernel, factor in found if optimize and found else [(given, 1.0)]:
            spectrum = kernel.on(graph).spectral(values)
            if spectrum.min() < -1e-9 * spectrum.max():
                reject("kernel", "one with nonnegative features", f"{kernel}. {ASYMMETRIC}")
            tried.append((kernel, factor, np.maximum(spectrum, 0.0)))
        # With only some of the eigenvectors, a narrow kernel would lose much of its variance.
        whole = [part for part in tried if m == n or part[2].min() <= 0.1 * part[2].max()] or tried[-1:]
        spectra = np.stack([spectrum for _, _, spectrum in whole])
        heights = [float(f"{n / spectrum.sum():.3g}") if template.kernel is None else 1.0 for spectrum in spectra]
        pairs = zip(heights, whole, strict=True)
        self.kernels = [height * part[0] if template.kernel is None else part[0] for height, part in pairs]
        self.log_times = np.log([factor for _, factor, _ in whole])
        self.scales = np.sqrt(spectra * np.array(heights)[:, None])
        self.common = processes.NodeFeatures(vectors)


def _family(log_times: FloatArray, logs: FloatArray, *, average: bool) -> tuple[int, Any, FloatArray]:
    """The best kernel, those that the data do not exclude, and the logarithms of their priors, uniform in log t."""
    best = int(logs.argmax())
    if len(logs) < 2 or not average:
        return best, np.array([best]), np.zeros(1)
    prior = np.gradient(log_times)
    posterior = np.exp(logs - logs.max()) * prior
    kept = np.union1d(np.flatnonzero(posterior > 1e-3 * posterior.max()), [best])
    return best, kept, np.log(prior[kept])


def _features_facts(features: Any) -> list[tuple[str, str]]:
    """Facts about the features of a model, for notebooks."""
    if not isinstance(features, ManifoldRandomFeatures):
        return [("features", str(features))]
    shown = ("kernel", "cloud", "graph", "features", "relative error")
    facts = [(name, text.replace("`error_`", "`features_.error_`")) for name, text in features._facts()]
    return [(name if name == "features" else f"{name} of features", text) for name, text in facts if name in shown]


def has_nodes_only(space: Any) -> bool:
    """Whether a space is a graph without points: its data are nodes."""
    return isinstance(space, Graph) and space.points is None


def read_data(estimator: Any, X: Any, y: Any, sample_weight: Any) -> tuple[Any, tuple[Any, ...]]:
    """The space, and points (n, d), values (n, c), weights (n,) and rows (n,) of the data of positive weight.

    Sets ``_is_vector``. The space must have as many coordinates as the data; by default it is the data themselves.
    """
    space = translated(estimator.space, "space")
    if has_nodes_only(space):
        X = check_nodes(X, space.n_nodes)[:, None].astype(np.float64)
    points, targets = _check_rows(estimator, X, y)
    if space is None:
        space = points
    elif not isinstance(space, AbstractManifold | TriangleMesh | Graph):
        space = check_points(space, "space", min_rows=2)
    names = column_names(X), column_names(estimator.space)
    if all(names) and names[0] != names[1]:
        reject("X", f"a frame with the columns of the space, {', '.join(names[1])}", ", ".join(names[0]))
    d = 1 if has_nodes_only(space) else n_coordinates(space)  # the only coordinate of a node is its number
    if points.shape[1] != d:
        reject("X", f"points of shape (n, {d}), like those of the space", f"shape {points.shape}")
    mass = np.ones(len(points))
    if sample_weight is not None:
        refuse_text(sample_weight, "sample_weight")
        mass = check_vector(sample_weight, "sample_weight", len(points), NONNEGATIVE)
    kept = np.flatnonzero(mass)
    if len(kept) < 2:
        reject("sample_weight", "not zero for at least two data", f"{len(kept)} of {len(mass)}")
    return space, (points[kept], targets[kept], mass[kept], kept)


def _check_rows(estimator: Any, X: Any, y: Any) -> tuple[FloatArray, FloatArray]:
    """Points (n, d) and values (n, c) as scikit-learn's checks require them."""
    refuse_text(X, "X")  # scikit-learn reads numbers from texts
    shape = as_array(X, "X").shape
    if len(shape) == 2 and shape[0] == 1:
        reject("X", "an array of at least 2 points", "1 sample")  # the words that scikit-learn's checks ask for
    if y is not None:
        refuse_text(y, "y")
        given = as_array(y, "y")
        if given.ndim and len(shape) == 2 and 0 < shape[0] != len(given):
            reject("y", f"{shape[0]} values, one for each row of `X`", f"{len(given)}")
        if given.dtype.kind == "f":
            check_finite(given, "y")
    points, values = validate_data(
        estimator, X, y, dtype=np.float64, ensure_all_finite=False, multi_output=True, y_numeric=True
    )  # X is checked below
    estimator._is_vector = np.ndim(values) == 1
    targets = np.array(check_points(np.reshape(values, (len(points), -1)), "y"), dtype=np.float64)
    return check_points(points, "X", names=column_names(X)), targets


def on_space(on: Any, numbers: Any) -> Any:
    """Indices of the data on the space; others are left out, and a warning names their rows in X (``numbers``)."""
    n_off = int((~on).sum())
    if len(on) - n_off < 2:
        rule = "on the space, where features are not zero; check units and coordinates"
        reject("X", rule, f"{n_off} of {len(on)} points off it")
    if n_off:
        text = ", ".join(map(str, numbers[~on][:5])) + (", ..." if n_off > 5 else "")
        warn_user(
            f"{n_off} of {len(on)} labels are off the space, where features are zero, and are left out of the fit: "
            f"rows {text} of `X`. Such points may be outliers of the cloud (remedy: check their units and "
            "coordinates, or leave them out)."
        )
    return np.flatnonzero(on)


def query_points(estimator: Any, X: Any) -> FloatArray:
    """Check the points of a prediction."""
    check_is_fitted(estimator, "features_")
    if isinstance(getattr(estimator, "_common", estimator.features_), processes.NodeFeatures | GraphRandomFeatures):
        nodes = as_array(X, "X")
        if nodes.shape[1:] not in ((), (1,)):
            reject("X", "nodes of shape (q,) or (q, 1)", f"shape {nodes.shape}")
        X = nodes.reshape(-1, 1)
    return estimator_points(estimator, X, reset=False)[0]


def parts_of(values: FloatArray, m: int) -> Iterator[FloatArray]:
    """Split rows into parts whose m features take up to 128 MB."""
    size = max(1, 2**24 // m)
    for start in range(0, len(values), size):
        yield values[start : start + size]
