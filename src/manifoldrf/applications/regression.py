"""Ridge regression and Gaussian processes along a space, from values at some of its points."""

import dataclasses
import math
import re
from collections.abc import Iterator
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import MultiOutputMixin, RegressorMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from manifoldrf._random import SeedLike, Streams
from manifoldrf._runtime import one_blas_thread, warn_user
from manifoldrf._validation import (
    NONNEGATIVE,
    POSITIVE,
    FloatArray,
    Interval,
    as_array,
    check_flag,
    check_integer,
    check_jobs,
    check_number_or,
    check_points,
    column_names,
    refuse_text,
    reject,
)
from manifoldrf.applications import averaging, modes
from manifoldrf.applications.saving import SavedEstimator
from manifoldrf.features.errors import FeatureWarning
from manifoldrf.features.graph_kernel import GraphKernel, discretise, warn_of_far
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.features.options import FitOptions, FrozenParamsMixin, HeatGraph, estimator_points
from manifoldrf.features.state import shortened
from manifoldrf.geometry.csr import check_numbers, check_shape
from manifoldrf.geometry.graphs import Graph, as_space
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.kernels.abstract_kernel import AbstractKernel, ScaledKernel
from manifoldrf.kernels.roots import ASYMMETRIC
from manifoldrf.signatures.teachers import compute_signatures

__all__ = ["ManifoldGaussianProcess", "ManifoldRidge"]

_ENTRIES_AT_ONCE = 2**24  # features in memory: 128 MB
_PER_OCTAVE = 4  # times to choose from: on the sphere the error of the best is within .2 % of that of 16
_SHORTEST = ", the shortest in the average; those of longer times are made from it"
_NAMED = 5  # rows that a warning lists
_Level = float | FloatArray  # one for each output
_VARIANCES = Interval(1e-100, 1e100)  # with others, a variance over a small ratio may overflow


class ManifoldRidge(FrozenParamsMixin, MultiOutputMixin, RegressorMixin, SavedEstimator):  # type: ignore[misc]
    """Ridge regression on features of a space: kernel ridge regression in linear time.

    The weights w and the intercept b minimise |y - Phi w - b|^2 + alpha |w|^2.

    Parameters
    ----------
    features : transformer or None, default=None
        The default is :class:`ManifoldRandomFeatures`. It is cloned and fitted to the space. If these have
        ``scales`` and no kernel, the heat time with the smallest leave-one-out error is used, of four an octave and
        measured at no more than 2048 random data; a given kernel is used as it is.
    space : array-like, TriangleMesh, AbstractManifold, Graph or None, default=None
        The whole space, of which the data are a few points; None to use the data themselves.
    alpha : float or "cv", default="cv"
        Penalty, nonnegative. "cv": the value with the smallest leave-one-out error, which needs no refits.
    random_state : None, int, Generator or RandomState, default=None
        Seed of the default features and of the choice of data; other features have their own.
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

    @one_blas_thread()  # the last bits of products depend on the number of threads
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the features to the space, and the weights to y, shape (n,) or (n, c), at points X, shape (n, d).

        Takes O(n m min(n, m)) time for m features. Data off the space, where :class:`ManifoldRandomFeatures` are
        zero, are left out with a warning.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : array-like of shape (n,) or (n, c)
        sample_weight : array-like of shape (n,), optional
            Weights of the squared errors, nonnegative. A weight of 2 counts as two equal data, also in the
            leave-one-out error, which leaves out one of them. Without a space all points are part of the space,
            whatever their weights.
        """
        alpha = check_number_or(self.alpha, "alpha", "cv", NONNEGATIVE)
        points, targets = check_data(self, X, y)
        space = space_of(self, points)
        data = weighted_data(points, targets, sample_weight)
        if self.features is None:
            features: Any = ManifoldRandomFeatures(random_state=self.random_state, n_jobs=self.n_jobs)
        elif hasattr(self.features, "fit") and hasattr(self.features, "transform"):
            features = clone(self.features)
        else:
            reject("features", "None or a transformer", repr(self.features), TypeError)
        if isinstance(features, ManifoldRandomFeatures):
            self.features_ = features._fit(space, compute_signatures, learner=type(self).__name__)
            data = data_on_space(features.map_.kernel, data)
        else:
            self.features_ = features.fit(space)
        points, targets, mass, _ = data
        if isinstance(features, ManifoldRandomFeatures) and features.times is not None and features.kernel is None:
            self.features_ = features.at(self._best_time(features, (points, targets, mass), alpha))
        rows = dense_rows(self.features_.transform(points))
        check_on_space(float(np.square(rows).mean()), len(rows))
        offset, middle = np.average(targets, axis=0, weights=mass), np.average(rows, axis=0, weights=mass)
        (singular, right, shares), levels = self._solve(rows, targets, mass, alpha)
        self.alpha_, self.loo_error_, _ = levels
        inverse = np.divide(singular, singular**2 + self.alpha_, out=0 * singular, where=singular > 0)
        coef = right.T @ (inverse[:, None] * shares)
        # Contiguous, as in a loaded model: the rounding of products depends on it.
        self.coef_ = np.ascontiguousarray(coef[:, 0]) if self._is_vector else coef
        self.intercept_ = offset[0] - middle @ self.coef_ if self._is_vector else offset - middle @ coef
        return self

    def _solve(self, rows: FloatArray, targets: FloatArray, mass: FloatArray, alpha: float | None) -> Any:
        """Singular values (r,), right vectors (r, m) and shares (r, c) of centred data, and the best penalty."""
        roots = np.sqrt(mass)[:, None]
        known, centred = (roots * (part - np.average(part, axis=0, weights=mass)) for part in (rows, targets))
        left, singular, right = modes.singular_parts(known, check_jobs(self.n_jobs))
        shares = left.T @ centred
        return (singular, right, shares), modes.leave_one_out(left, singular**2, shares, (centred, mass), alpha)

    def _best_time(self, features: ManifoldRandomFeatures, data: tuple[FloatArray, ...], alpha: Any) -> float:
        """The time of the range with the smallest leave-one-out error."""
        rng = Streams.from_seed(self.random_state, "random_state").generator("regression.scales")
        n, family = len(data[0]), features.scales_
        few = np.sort(rng.choice(n, min(n, modes.MOST_ROWS), replace=False))
        points, targets, mass = (part[few] for part in data)
        prepared = features.prepare(points)
        octaves = np.log2(family.longest / family.shortest)
        times = np.geomspace(family.shortest, family.longest, 1 + math.ceil(_PER_OCTAVE * octaves))
        return float(min(times, key=lambda t: self._solve(prepared.at(t), targets, mass, alpha)[1][2]))

    @one_blas_thread()
    def predict(self, X: Any) -> FloatArray:
        """Values at points of the space, shape (q,) or (q, c)."""
        points = check_queries(self, X)
        rows = (dense_rows(self.features_.transform(part)) for part in parts_of(points, len(self.coef_)))
        return np.asarray(np.concatenate([part @ self.coef_ for part in rows]) + self.intercept_)

    def _facts(self) -> list[tuple[str, str]]:
        error = ("leave-one-out error", f"{self.loo_error_:.3g}, root mean square")
        return [*_features_facts(self.features_), ("penalty", f"{self.alpha_:.3g}"), error]

    def _check_loaded(self) -> None:
        m, outputs = _check_features(self), self.coef_.shape[1:]
        check_shape("coef_", self.coef_, (m,) if self._is_vector else (m, *outputs[:1]))
        check_shape("intercept_", np.asarray(self.intercept_), outputs)
        for name in ("coef_", "intercept_"):
            check_numbers(name, np.asarray(getattr(self, name)))


class ManifoldGaussianProcess(FrozenParamsMixin, MultiOutputMixin, RegressorMixin, SavedEstimator):  # type: ignore[misc]
    """A Gaussian process on a space, by its features: O(n m^2 + m^3) for n data and m features.

    y = offset + f(x) + noise, where f has the covariance variance * K and K(x, y) = phi(x) . phi(y) is the kernel
    of :class:`ManifoldRandomFeatures`. The time (or length scale), the variance and the noise with the largest
    marginal likelihood are ``kernel_``, ``variance_`` and ``noise_``.

    Few data leave them open, and the best alone would be overconfident. So predictions from at most 512 values
    average over the times of the search and over ratios of noise to variance, by their marginal likelihoods, with
    even priors of their logarithms. The variance, with the prior 1 / variance, and the offset, with a flat prior,
    are integrated in closed form. Means and standard deviations are those of this mixture. With given ``variance``
    and ``noise`` and ``optimize=False`` there is nothing to average: this is the plain process around the mean of
    y. With more values it is the plain process of the best time, variance and noise.

    The search over the time needs no new walks and no new graph: the features of the data are sums over lengths of
    walks, and only the weights of the lengths change. Features are then fitted for prediction at any point, and
    variance, noise and likelihood are computed again with them. A :class:`FeatureWarning` is issued if that
    likelihood differs.

    Parameters
    ----------
    kernel : AbstractKernel, callable or None, default=None
        As in :class:`ManifoldRandomFeatures`; the search starts at its time. Heat, diffusion, Matern and
        regularised Laplacian kernels, their sums, products and multiples have a time that can be optimised; all
        terms of a sum are stretched by the same factor. On a heat graph the time of a heat kernel is an even number
        of steps, at least two; build a graph of shorter steps if the data are rougher.
    space : array-like, TriangleMesh, AbstractManifold, Graph or None, default=None
        The whole space, of which the data are a few points; None to use the data themselves.
    n_features : int or {"auto", "all"}, default="auto"
        "auto": anchors .7 times as far apart as features are wide, at least 256 or all nodes. "all" is the exact
        kernel of the graph at its nodes. An average needs their eigenvectors, O(m^3) time, and leaves out kernels
        that need more than the given number or 1024 features, except the best. If its covariance does not fit into
        512 MB (8191 features of one output), it is the plain process of the best kernel.
    graph : HeatGraph, KnnGraph, callable, Graph or None, default=None
        As in :class:`ManifoldRandomFeatures`.
    field : str, default="auto"
        As in :class:`ManifoldRandomFeatures`, but "auto" is "interpolated" for a kernel with a spike at every node,
        which smooth fields would lose.
    teacher : str, default="auto"
        As in :class:`ManifoldRandomFeatures`. The search also uses "walks" and "counts"; with other teachers it is
        exact.
    teacher_options : dict, optional
        As in :class:`ManifoldRandomFeatures`.
    optimize : bool, default=True
        Whether to search for the time; if False, the time of the kernel is used.
    variance : float or "auto", default="auto"
        Factor of the kernel, from 1e-100 to 1e100. With several outputs "auto" gives each its own.
    noise : float or "auto", default="auto"
        Variance of the noise. Values below 1e-12 of the largest eigenvalue of the covariance of the data are raised
        to that. With several outputs "auto" is proportional to the variance.
    random_state : None, int, Generator or RandomState, default=None
    n_jobs : int, default=-1
        Number of threads, -1 for all cores; results do not depend on it.

    Attributes
    ----------
    features_ : ManifoldRandomFeatures
        Of the shortest time in the average, from which those of longer times are made.
    kernel_ : AbstractKernel
        The kernel with the best time.
    variance_, noise_ : float or array of shape (c,)
        Those with the largest likelihood for this kernel.
    offset_ : float or array of shape (c,)
        Mean of the posterior of the offset.
    log_marginal_likelihood_ : float
        Of ``kernel_``, ``variance_`` and ``noise_`` with the mean of y as offset; the sum over all outputs.
    trials_ : tuple of (AbstractKernel, float)
        The kernels of the search and their log marginal likelihoods, for at most 2048 random data and with the same
        anchor weights for all kernels; empty without a search.
    n_features_in_ : int

    Notes
    -----
    The search stores 8 (L + 1) n m bytes, L = 32 to 128 lengths, at most 512 MB: with more data or nodes it uses
    2048 random data and as many anchors as fit. It tries no kernel narrower than a quarter of the distance between
    data, which would be the same to them as noise. Prediction stores 8 m min(n, m) bytes, an average 8 m^2 c.

    Away from the space the features vanish and the prediction returns to the prior: the mean is the offset, and the
    standard deviation is the average prior standard deviation of f.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Sphere
    >>> from manifoldrf.applications.regression import ManifoldGaussianProcess
    >>> points = Sphere().sample(400, seed=0)
    >>> values = points[:, 2] + 0.1 * np.random.default_rng(0).normal(size=400)
    >>> model = ManifoldGaussianProcess(space=points, random_state=0).fit(points[:100], values[:100])
    >>> mean, std = model.predict(points[100:], return_std=True, include_noise=True)
    >>> inside = np.abs(values[100:] - mean) < 1.645 * std  # 90 % intervals
    >>> bool(0.8 < inside.mean() < 0.97)
    True
    """

    _stored: ClassVar[dict[str, Any]] = {
        "features_": ManifoldRandomFeatures,
        "_kernel": AbstractKernel,
        "_posterior": modes.Posterior | averaging.Average,
        "_best": FloatArray | None,
        "trials_": tuple[tuple[AbstractKernel, float], ...],
        "log_marginal_likelihood_": float,
        **dict.fromkeys(("variance_", "noise_", "offset_"), _Level),
        "n_features_in_": int,
        "_is_vector": bool,
    }

    def __init__(  # noqa: PLR0913  (an estimator remembers all its options)
        self,
        kernel: Any = None,
        *,
        space: Any = None,
        n_features: int | str = "auto",
        graph: Any = None,
        field: str = "auto",
        teacher: str = "auto",
        teacher_options: dict[str, Any] | None = None,
        optimize: bool = True,
        variance: float | str = "auto",
        noise: float | str = "auto",
        random_state: SeedLike = None,
        n_jobs: int = -1,
    ) -> None:
        self.kernel = kernel
        self.space = space
        self.n_features = n_features
        self.graph = graph
        self.field = field
        self.teacher = teacher
        self.teacher_options = teacher_options
        self.optimize = optimize
        self.variance = variance
        self.noise = noise
        self.random_state = random_state
        self.n_jobs = n_jobs

    @one_blas_thread()  # the last bits of products depend on the number of threads
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Optimise the kernel, fit its features to the space, and condition on the data.

        Parameters
        ----------
        X : array-like of shape (n, d)
            Points at which y was measured. Those off the space, whose features are zero, are left out with a
            warning.
        y : array-like of shape (n,) or (n, c)
            Several outputs share the time and the ratio of noise to variance.
        sample_weight : array-like of shape (n,), optional
            Nonnegative: the noise of a datum has the variance noise / weight, as if it were the mean of so many
            data. Data of weight 0 are left out.
        """
        variance = check_number_or(self.variance, "variance", "auto", _VARIANCES)
        noise = check_number_or(self.noise, "noise", "auto", POSITIVE)
        optimize, jobs = check_flag(self.optimize, "optimize"), check_jobs(self.n_jobs)
        points, targets = check_data(self, X, y)
        space = space_of(self, points)
        given = weighted_data(points, targets, sample_weight)
        streams = Streams.from_seed(self.random_state, "random_state")
        named = isinstance(space, AbstractManifold) and self.graph is None and not callable(self.kernel)
        features = ManifoldRandomFeatures(
            self.kernel,
            normalize=False,  # the variance scales the kernel
            n_features=self.n_features,
            graph=modes.nodes_for(len(given[0])) if named and self.kernel is None and optimize else self.graph,
            field=self.field,
            teacher=self.teacher,
            random_state=int(streams.generator("regression.features").integers(2**31)),
            n_jobs=jobs,
        )
        options = FitOptions.of(features.get_params(deep=False), streams)
        problem, notes = discretise(space, options)
        problem = problem.at_unit_height() if self.kernel is None else problem
        if problem.asymmetric:
            reject("kernel", "one with nonnegative features", f"{problem.stated}. {ASYMMETRIC}")
        points, targets, mass, _ = data_on_space(problem, given)
        unit = float(mass.mean())  # weights relative to their mean belong to a noise that is smaller by it
        roots = np.sqrt(mass / unit)[:, None]
        levels = variance, None if noise is None else noise / unit
        offset = np.average(targets, axis=0, weights=mass)
        data = modes.Data(points, roots * (targets - offset), roots)
        if None in levels and not np.ptp(targets, axis=0).any():
            warn_user(
                "`y` is constant: it tells nothing about time, variance and noise, and the standard deviations of "
                "predictions are almost zero (remedy: give `variance` and `noise`, with optimize=False).",
                FeatureWarning,
            )
            optimize = False  # all times are equally likely
        found = modes.find_kernel(problem, options, data, levels) if optimize else modes.Search(problem.stated)
        self.trials_ = found.trials
        family, basis, n_features = self._plan(
            problem, found, options, targets.shape, space if named and found.trials else None
        )
        kernel = family.kernels[0]
        self.features_ = features.set_params(
            kernel=self.kernel if callable(self.kernel) else kernel,  # a function is fitted again
            n_features=n_features,
            graph=HeatGraph(dim=problem.dim),
            field=modes.field_of(options.field, problem, problem.stated if callable(self.kernel) else kernel),
        ).fit(basis.graph)
        self._keep_notes(dict(notes.notes))
        self._kernel = self.features_.kernel_ if callable(self.kernel) else found.kernel
        posterior, best = self._condition(problem, family, data, levels, jobs)
        self._posterior: Any = dataclasses.replace(posterior, noise=unit * posterior.noise)
        self.log_marginal_likelihood_ = best.log_likelihood + data.log_volume
        self.variance_ = self._shaped(best.variance)
        self.noise_ = self._shaped(unit * best.ratio * best.variance)
        self.offset_ = self._shaped(offset + self._posterior.offset)
        modes.warn_of_shortest(found, best.ratio * best.variance, targets)
        modes.warn_of_another(found, self.log_marginal_likelihood_, len(points))
        return self

    def _keep_notes(self, notes: dict[str, str]) -> None:
        """Let the features say how their graph was built; they were fitted to the graph alone."""
        record = self.features_.record_
        kept = {name: notes[name] for name in ("cloud", "thinned", "graph") if name in notes}
        self.features_.record_ = dataclasses.replace(
            record, notes=tuple((kept | dict(record.notes) | kept).items())
        )

    def _problem_for(self, kernel: Any, space: AbstractManifold, options: Any) -> GraphKernel:
        """The problem on a named manifold with the nodes a kernel needs, often far fewer than the search has."""
        inner = kernel.kernel if isinstance(kernel, ScaledKernel) else kernel
        return discretise(space, dataclasses.replace(options, kernel=inner, graph=None))[0]

    def _plan(
        self, problem: Any, found: modes.Search, options: Any, shape: tuple[int, ...], manifold: Any
    ) -> tuple[averaging.Family, GraphKernel, int | str]:
        """The kernels to average, or the best if they do not fit, the problem with their graph, and n_features."""
        n, c = shape
        families = [averaging.Family((found.kernel,), np.zeros(1), found.stretch)]
        if n * c <= averaging.MOST_VALUES:
            most = options.n_features if isinstance(options.n_features, int) else averaging.MOST_FEATURES
            families.insert(0, averaging.choose_family(problem, found, most, modes.CLOSE))
        for family in families:
            basis = problem if manifold is None else self._problem_for(family.kernels[0], manifold, options)
            n_nodes = basis.graph.n_nodes
            m = options.n_features
            if m == "auto":
                m = modes.enough_anchors(problem, family.stretch, n)
            if len(family.kernels) == 1 or _fits(n_nodes if m == "all" else min(m, n_nodes), c):
                break
        return family, basis, m

    def _condition(
        self, problem: Any, family: averaging.Family, data: modes.Data, levels: Any, n_jobs: int
    ) -> tuple[Any, Any]:
        """The posterior, which averages over the family if data are few, and the levels of the best kernel."""
        points, targets, roots = data.points, data.targets, data.roots
        free = targets.size <= averaging.MOST_VALUES and None in levels
        if len(family.kernels) == 1 and not (free and _fits(self.features_.n_features_out_, targets.shape[1])):
            spectrum = self._decompose(data)
            check_on_space(spectrum.height, len(points))
            found = modes.find_levels(spectrum, *levels)
            self._best: Any = None
            return modes.posterior_of(spectrum, found), found
        rows = roots * self.features_.transform(points)
        check_on_space(float(np.square(rows).mean()), len(rows))
        basis, scales = averaging.bases(family, problem, self.features_.map_, n_jobs)
        self._best = basis * scales[family.kernels.index(self._kernel) if len(scales) > 1 else 0]
        found = modes.find_levels(modes.decompose(rows @ self._best, targets), *levels)
        return averaging.average(rows, data, (basis, scales, family.log_prior), levels, n_jobs), found

    def _decompose(self, data: modes.Data) -> modes.Spectrum:
        m = self.features_.n_features_out_
        if len(data.points) <= m:
            rows = data.roots * self.features_.transform(data.points)
            return modes.decompose(rows, data.targets, directions=True)
        parts = zip(*(parts_of(part, m) for part in (data.points, data.targets, data.roots)), strict=True)
        rows_of = self.features_.transform
        return modes.decompose_parts(((roots * rows_of(part), values) for part, values, roots in parts), m)

    @property
    def kernel_(self) -> Any:
        """The kernel with the best time."""
        check_is_fitted(self, "features_")
        return self._kernel

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
            90 % interval of a new value: on average over many fields, not in each, it holds about 90 %.
        return_cov : bool
            Return the covariance of offset + f instead, shape (q, q) or (q, q, c).
        include_noise : bool
            Describe a new measurement instead of f: use this for prediction intervals of new values.

        Returns
        -------
        mean : array of shape (q,) or (q, c)
        std or cov : array, if asked for
        """
        points = check_queries(self, X)
        if check_flag(return_std, "return_std") and check_flag(return_cov, "return_cov"):
            reject("return_std", "False with return_cov=True", "True")
        check_flag(include_noise, "include_noise")
        posterior, jobs = self._posterior, check_jobs(self.n_jobs)
        if return_cov:
            rows = self.features_.transform(points)
            cov = posterior.covariances(rows, jobs)
            cov[np.arange(len(rows)), np.arange(len(rows))] += self._own(points, noise=include_noise)
            return self._mean(rows), self._shaped(cov)
        means, squares = [], []
        for part in parts_of(points, self.features_.n_features_out_):
            rows = self.features_.transform(part)
            means.append(self._mean(rows))
            if return_std:
                squares.append(posterior.squares(rows, jobs) + self._own(part, noise=include_noise))
        if not return_std:
            return np.concatenate(means)
        return np.concatenate(means), self._shaped(np.sqrt(np.concatenate(squares)))

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
        return self._draw(X, n_samples, random_state, prior=False)

    @one_blas_thread()
    def sample_prior(self, X: Any, n_samples: int = 1, random_state: SeedLike = None) -> FloatArray:
        """Draw functions from the prior and evaluate them at points.

        They are ``offset_`` + f, and f has the covariance ``variance_ * kernel_``.

        The data count only through ``offset_``, ``variance_`` and ``kernel_``. Parameters and result are those of
        :meth:`sample_posterior`.
        """
        return self._draw(X, n_samples, random_state, prior=True)

    def _draw(self, X: Any, n_samples: Any, random_state: SeedLike, *, prior: bool) -> FloatArray:
        points = check_queries(self, X)
        n = check_integer(n_samples, "n_samples", 1)
        c = len(self._posterior.noise)
        streams = Streams.from_seed(random_state, "random_state")
        normal = streams.generator("regression.samples").standard_normal((n, c, self.features_.n_features_out_ + 1))
        rows, own = self.features_.transform(points), self._own(points, noise=False)
        if prior:
            turned = rows if self._best is None else rows @ self._best
            centre, variance = np.broadcast_to(self.offset_, (1, c)), np.broadcast_to(self.variance_, (c,))
            samples = np.sqrt(variance) * np.moveaxis(np.tensordot(turned, normal[:, :, :-1], (1, 2)), 0, 1)
        else:
            centre = self._mean(rows).reshape(len(points), c)
            samples = self._posterior.draws(rows, normal, check_jobs(self.n_jobs))
        if own.any():
            samples += np.sqrt(own) * streams.generator("regression.beyond").standard_normal(samples.shape)
        return np.asarray(self._shaped(centre + samples))

    def _own(self, points: FloatArray, *, noise: bool) -> FloatArray:
        """Variance of each point alone, (q, c): what the window removes off the space, and the noise if asked."""
        beyond = 1 - self.features_.map_.kernel.window(points) ** 2
        return np.asarray(beyond[:, None] * self._posterior.prior + noise * self._posterior.noise)

    def _mean(self, rows: FloatArray) -> FloatArray:
        return np.asarray(self._shaped(rows @ self._posterior.weights + self.offset_))

    def _facts(self) -> list[tuple[str, str]]:
        levels = {"factor of the kernel": self.variance_, "noise variance": self.noise_, "offset": self.offset_}
        likelihood = " of the search, with the largest marginal likelihood" if self.trials_ else ""
        return [
            ("best kernel", f"{_rounded(shortened(self.kernel_))}{likelihood}"),
            *((name, ", ".join(f"{part:.4g}" for part in np.ravel(level))) for name, level in levels.items()),
            ("log marginal likelihood", f"{self.log_marginal_likelihood_:.6g}"),
            ("kernels tried", str(len(self.trials_))),
            *_features_facts(self.features_, "" if self.features_.kernel_ == self.kernel_ else _SHORTEST),
        ]

    def _check_loaded(self) -> None:
        m, c = _check_features(self), np.shape(self._posterior.noise)[0]
        self._posterior.check(m, c)
        for name in ("variance_", "noise_", "offset_"):
            level = np.asarray(getattr(self, name))
            check_shape(name, level, () if self._is_vector else (c,))
            check_numbers(name, level, signed=name == "offset_")
        if self._best is not None:
            check_shape("_best", self._best, (m, m))
            check_numbers("_best", self._best)
        if self._is_vector and c != 1:
            reject("_is_vector", "False for several outputs", c)

    def _shaped(self, values: FloatArray) -> Any:
        """Drop the last axis, that of the outputs, if y was a vector."""
        if not self._is_vector:
            return values
        return float(values[0]) if values.ndim == 1 else values[..., 0]


def _features_facts(features: Any, of_kernel: str = "") -> list[tuple[str, str]]:
    """What notebooks show of the features of a model; a remark is added to their kernel."""
    if not isinstance(features, ManifoldRandomFeatures):
        return [("features", str(features))]
    names = {
        "kernel": "kernel of features",
        "cloud": "cloud",
        "graph": "graph",
        "features": "features",
        "relative error": "relative error of features",
    }
    facts = [(name, _rounded(text).replace("`error_`", "`features_.error_`")) for name, text in features._facts()]
    return [(names[name], text + of_kernel * (name == "kernel")) for name, text in facts if name in names]


def _rounded(text: str) -> str:
    """A text with its long decimal numbers rounded to four digits."""
    return re.sub(r"\d+\.\d{5,}(e[-+]?\d+)?", lambda number: f"{float(number[0]):.4g}", text)


def _check_features(model: Any) -> int:
    """Raise unless the features of a loaded model take its points; returns their number."""
    check_integer(model.n_features_in_, "n_features_in_", *[model.features_.n_features_in_] * 2)
    return int(model.features_.n_features_out_)


def check_data(estimator: Any, X: Any, y: Any) -> tuple[FloatArray, FloatArray]:
    """Return points (n, d) and values (n, c); sets ``_is_vector`` if the values are a vector."""
    refuse_text(X, "X")  # scikit-learn reads numbers from texts
    shape = as_array(X, "X").shape
    if len(shape) == 2 and shape[0] == 1:
        reject("X", "an array of at least 2 points", "1 sample")  # the words that scikit-learn's checks ask for
    if y is not None:
        refuse_text(y, "y")
        _check_values(as_array(y, "y"), shape)
    points, values = validate_data(
        estimator,
        X,
        y,
        dtype=np.float64,
        ensure_all_finite=False,  # for X; y is checked in any case
        multi_output=True,
        y_numeric=True,
    )
    estimator._is_vector = np.ndim(values) == 1
    targets = check_points(np.reshape(values, (len(points), -1)), "y")
    return check_points(points, "X", names=column_names(X)), np.array(targets, dtype=np.float64)


def _check_values(values: Any, shape: tuple[int, ...]) -> None:
    """Refuse values of another number than points, or that are not finite, before scikit-learn names no index."""
    if values.ndim and len(shape) == 2 and 0 < shape[0] != len(values):
        reject("y", f"{shape[0]} values, one for each row of `X`", f"{len(values)}")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(values))[0])
        rule = "finite, without NaN or inf; leave out such rows of `X` and `y`, and give all points as `space`"
        reject("y", rule, f"{values[first]} at index {first[0] if len(first) == 1 else first}")


def weighted_data(points: FloatArray, targets: FloatArray, sample_weight: Any) -> tuple[Any, ...]:
    """Points (n, d), values (n, c), weights (n,) and rows (n,) of the data whose weight is not zero."""
    if sample_weight is None:
        return points, targets, np.ones(len(points)), np.arange(len(points))
    refuse_text(sample_weight, "sample_weight")
    mass = np.asarray(sample_weight, dtype=np.float64)
    if mass.shape != (len(points),):
        reject("sample_weight", f"an array of shape ({len(points)},)", f"shape {mass.shape}")
    bad = np.flatnonzero(~(np.isfinite(mass) & (mass >= 0)))
    if len(bad):
        reject("sample_weight", "finite and nonnegative", f"{mass[bad[0]]:g} at index {bad[0]}")
    kept = mass > 0
    if kept.sum() < 2:
        reject("sample_weight", "not zero for at least two data", f"{kept.sum()} of {len(mass)}")
    return points[kept], targets[kept], mass[kept], np.flatnonzero(kept)


def data_on_space(problem: GraphKernel, data: tuple[Any, ...]) -> tuple[Any, ...]:
    """The data of :func:`weighted_data` whose features are not zero; others tell nothing about the space."""
    window = problem.window(data[0])
    off = window == 0
    n, n_off = len(off), int(off.sum())
    if not n_off:
        return data
    if n - n_off < 2:
        warn_of_far(window)
        check_on_space(0.0, n_off, n)
    rows = data[-1][off]
    text = ", ".join(map(str, rows[:_NAMED])) + (", ..." if n_off > _NAMED else "")
    warn_user(
        f"{n_off} of {n} labels are off the space, where features are zero, and are left out of the fit: "
        f"row{'s' if n_off > 1 else ''} {text} of `X`. Such points may be outliers of the cloud (remedy: check "
        "their units and coordinates, or leave them out).",
        FeatureWarning,
    )
    return tuple(part[~off] for part in data)


def space_of(estimator: Any, points: FloatArray) -> Any:
    """The space, checked to have as many coordinates as the data; the data themselves if it is None."""
    space = as_space(estimator.space, "space")
    if space is None:
        return points
    if isinstance(space, AbstractManifold):
        d = space.ambient_dim
    elif isinstance(space, TriangleMesh | Graph):
        d = (space.vertices if isinstance(space, TriangleMesh) else space.positions).shape[1]
    else:
        space = check_points(space, "space", min_rows=2)
        d = space.shape[1]
    if d != points.shape[1]:
        reject("X", f"points of shape (n, {d}), like those of the space", f"shape {points.shape}")
    return space


def check_queries(estimator: Any, X: Any) -> FloatArray:
    """Check points to predict at."""
    check_is_fitted(estimator, "features_")
    return estimator_points(estimator, X, reset=False)[0]


def _fits(m: int, c: int) -> bool:
    """Whether covariances of m weights and an offset, for c outputs, fit into memory."""
    return c * (m + 1) ** 2 <= modes.MOST_ENTRIES


def parts_of(values: FloatArray, m: int) -> Iterator[FloatArray]:
    """Split rows into parts so small that m features of each row fit into memory."""
    size = max(1, _ENTRIES_AT_ONCE // m)
    for start in range(0, len(values), size):
        yield values[start : start + size]


def check_on_space(height: float, n_off: int, n: int | None = None) -> None:
    """Refuse data whose features are all zero, given the mean of their squares."""
    if not height > 0:
        found = f"{n_off} points off it" if n in (None, n_off) else f"{n_off} of {n} points off it"
        reject("X", "on the space, where features are not zero; check units and coordinates", found)


def dense_rows(rows: Any) -> FloatArray:
    """Return features as a dense float64 array."""
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=np.float64)
