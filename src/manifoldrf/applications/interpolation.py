"""Which tau, noise and method: by the error at known nodes that are left out in turn."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from manifoldrf._random import SeedLike, Streams
from manifoldrf._runtime import one_blas_thread, warn_user, without_warnings
from manifoldrf._validation import (
    NONNEGATIVE,
    FloatArray,
    Interval,
    check_count,
    check_flag,
    check_jobs,
    check_option,
    check_points,
    check_real,
    reject,
)
from manifoldrf.applications.filling import (
    WIDEST,
    BoolArray,
    Filled,
    Known,
    Problem,
    Smoothed,
    SolverReport,
    check_known,
    entries_where,
    feature_action,
    fill_by_gp,
    fill_by_kernel,
    fill_by_solve,
    finish_means,
    make_folds,
    smooth,
    without_small,
)
from manifoldrf.applications.labelled import graph_of, views_of
from manifoldrf.features.fitting import FeatureWarning
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.meshes import row_lengths
from manifoldrf.kernels.graph_kernels import DiffusionKernel

__all__ = ["FieldInterpolator", "InterpolationInfo", "InterpolationWarning"]


# From means over the neighbours to walks of 128 steps, each twice as long; continued where the best is at an end.
_KERNEL_TAUS = tuple(2.0**k for k in range(-2, 8))
_GP_TAUS = tuple(2.0**k for k in range(1, 7))
# Of a kernel whose diagonal is below 1. Less noise than 1e-4 is not resolved within the cap of iterations.
_NOISES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_TAU_RANGE = 2.0**-10, 2.0**19  # below, only nearest values are left; above, one mean for each component
# With a single known value in every component all tau give the same field.
_ANY_TAU, _ANY_NOISE = 1.0, 1e-3
# A direction is a row longer than this share of the longest known row: what rows that cancel leave is rounding.
_NO_DIRECTION = 1e-12
_ROUNDING = 1e-9  # an error below is none: where all known values are the same, their mean has none, either

# Factors for each of five folds take a minute at 150,000 nodes, where one fold has thousands of errors to average.
_NODES_FOR_FOLDS = 50_000
# Above, the iterations of "auto" for the Gaussian process would take longer than all else (minutes on two cores).
GP_NODES = 20_000


@dataclass(frozen=True)
class Choice:
    """A method with its parameters, and its error where it was measured, over so many folds."""

    method: str
    tau: float | None = None
    noise: float | None = None
    error: float | None = None
    folds: int = 0

    def as_row(self) -> dict[str, Any]:
        """A row of the table of what was tried."""
        return dataclasses.asdict(self)


def directions(rows: FloatArray, longest: float) -> FloatArray:
    """Rows divided by their lengths; NaN where a row has none."""
    lengths = row_lengths(rows)[:, None]
    return np.divide(rows, lengths, out=np.full_like(rows, np.nan), where=lengths > _NO_DIRECTION * longest)


@dataclass(frozen=True, eq=False)
class Examiner:
    """Measures errors at known nodes that were left out, and looks for the least.

    Attributes
    ----------
    problem : Problem
    stays : bool array of shape (folds, n_nodes)
        What stays known in each fold.
    normalize : bool
        Whether values are directions: the error is then 1 minus the mean cosine, else the mean squared error over
        the variance of the known values.
    """

    problem: Problem
    stays: BoolArray
    normalize: bool

    def error(self, fields: Sequence[Filled]) -> float:
        """Error over all folds; NaN where no known node was left out of a component that has others."""
        known = self.problem.known
        found, true = [], []
        for mask, field in zip(self.stays, fields, strict=False):
            out = known.mask & ~mask & (field.mass > 0)
            found.append(field.values[out])
            true.append(known.values[out])
        return self._compare(np.concatenate(found), np.concatenate(true)) if found else np.nan

    def _compare(self, found: FloatArray, true: FloatArray) -> float:
        if not len(true):
            return np.nan
        known = self.problem.known.values[self.problem.known.mask]
        if self.normalize:
            longest = float(row_lengths(known).max())
            right = directions(true, longest)
            cosines = (np.nan_to_num(directions(found, longest)) * right).sum(axis=1)
            cosines = cosines[~np.isnan(cosines)]  # a known row without direction says nothing
            return float(1.0 - cosines.mean()) if len(cosines) else np.nan
        spread = float(known.var(axis=0).sum())
        return float(((found - true) ** 2).sum(axis=1).mean() / (spread or 1.0))

    def beats_mean(self, choice: Choice) -> bool | None:
        """Whether a choice is better than the mean of all known values; None where nothing was measured."""
        if choice.error is None or np.isnan(choice.error):
            return None
        mean_error = 1.0  # over the variance
        if self.normalize:
            known = self.problem.known.values[self.problem.known.mask]
            found = directions(known, float(row_lengths(known).max()))
            mean_error = 1.0 - float(np.linalg.norm(np.nanmean(found, axis=0)))
        return bool(choice.error < max(mean_error, _ROUNDING))

    def kernel(self, tau: float | None) -> list[Choice]:
        """Errors of the kernel for the given tau, or for those of the search."""

        def measure(trial: float) -> list[Choice]:
            found = fill_by_kernel(self.problem, self.stays, trial)
            return [Choice("kernel", trial, None, self.error(found), len(found))]

        return _scan(measure, _KERNEL_TAUS) if tau is None else measure(tau)

    def gp(self, tau: float | None, noise: float | None) -> list[Choice]:
        """Errors of the Gaussian process on one fold, for tau and noises given or searched for."""
        noises = _NOISES if noise is None else (noise,)

        def measure(trial: float) -> list[Choice]:
            tried = fill_by_gp(self.problem, self.stays[:1], trial, noises)
            return [Choice("gp", trial, found.noise, self.error(found.folds), 1) for found in tried]

        return _scan(measure, _GP_TAUS) if tau is None else measure(tau)

    def gp_on_all_folds(self, choice: Choice) -> Choice:
        """The same choice with its error over all folds."""
        tau, noise = choice.tau or _ANY_TAU, choice.noise or 0.0
        (found,) = fill_by_gp(self.problem, self.stays, tau, (noise,))
        return Choice("gp", tau, noise, self.error(found.folds), len(found.folds))

    def solve(self, method: str) -> Choice:
        """Error of a harmonic or biharmonic field; infinite where it cannot be had."""
        try:
            found = fill_by_solve(self.problem, self.stays, method)
            return Choice(method, error=self.error(found), folds=len(found))
        except ArithmeticError:
            return Choice(method, error=np.inf, folds=len(self.stays))


def best_of(choices: Sequence[Choice], options: Choice | None = None) -> Choice:
    """The least error; where none could be measured, the first method with what was asked for, or with anything."""
    measured = [choice for choice in choices if choice.error is not None and not np.isnan(choice.error)]
    if measured:
        return min(measured, key=lambda choice: float(choice.error or 0.0))
    return _with_any(Choice(choices[0].method) if options is None else options)


def _with_any(options: Choice) -> Choice:
    """A choice where nothing can be measured: with one known value for a component, all methods give that value."""
    method = "harmonic" if options.method == "auto" else options.method
    tau = (options.tau or _ANY_TAU) if method in ("kernel", "features", "gp") else None
    noise = (_ANY_NOISE if options.noise is None else options.noise) if method == "gp" else None
    return Choice(method, tau, noise)


def folds_worth(stays: BoolArray) -> BoolArray:
    """All folds of small graphs, the first one of large ones."""
    return stays if stays.shape[1] <= _NODES_FOR_FOLDS else stays[:1]


def _scan(measure: Callable[[float], list[Choice]], taus: Sequence[float]) -> list[Choice]:
    """Errors for rising tau, continued by factors of 2 as long as the best is at an end."""
    tried = {tau: measure(tau) for tau in taus}

    def is_best(tau: float) -> bool:
        best = best_of([choice for choices in tried.values() for choice in choices])
        return best.error is not None and best.tau == tau

    while is_best(low := min(tried)) and low > _TAU_RANGE[0]:
        tried[low / 2] = measure(low / 2)
    while is_best(high := max(tried)) and high < _TAU_RANGE[1]:
        tried[high * 2] = measure(high * 2)
    return [choice for tau in sorted(tried) for choice in tried[tau]]


def choose(examiner: Examiner, options: Choice) -> tuple[Choice, list[Choice]]:
    """The method with its parameters, and all that was tried; what is given is not tried.

    Parameters
    ----------
    examiner : Examiner
    options : Choice
        What the user asked for; None stands for what is to be chosen.
    """
    method, tau, noise = options.method, options.tau, options.noise
    if not len(examiner.stays):
        return _with_any(options), []
    if method == "auto":
        return _choose_method(dataclasses.replace(examiner, stays=folds_worth(examiner.stays)), tau, noise)
    if method == "gp":
        if tau is not None and noise is not None:
            return Choice(method, tau, noise), []
        tried = examiner.gp(tau, noise)
    elif method in ("kernel", "features"):
        if tau is not None:
            return Choice(method, tau), []
        tried = examiner.kernel(None)  # features stand for the same kernel
    else:
        return Choice(method), []
    return dataclasses.replace(best_of(tried, options), method=method), tried


def _choose_method(examiner: Examiner, tau: float | None, noise: float | None) -> tuple[Choice, list[Choice]]:
    """The method with the least error, each with its best parameters, on the same folds."""
    finals = [examiner.solve(method) for method in ("harmonic", "biharmonic")]
    tried = [*examiner.kernel(tau), *finals]
    finals.append(best_of(tried[: -len(finals)], Choice("kernel", tau)))
    if examiner.stays.shape[1] <= GP_NODES:
        trials = examiner.gp(tau, noise)
        finals.append(examiner.gp_on_all_folds(best_of(trials, Choice("gp", tau, noise))))
        tried += [*trials, finals[-1]]
    return best_of(finals), tried


METHODS = ("auto", "kernel", "features", "gp", "harmonic", "biharmonic")
_TAUS = Interval(0.0, WIDEST, low_open=True)
# Anchors of "features" for each node and step. Cosines of normals on two meshes are then .000 to .007 below those
# of the kernel itself for tau from 2 to 80; four times as many change them by .001 to .004.
_ANCHORS = 2.5
_CUT = (
    1e-3  # features below this share of a node's largest are left out: a third of them stay, cosines move by .0002
)
_RANGE_PRESERVING = ("kernel", "features", "harmonic")
_ILL_CONDITIONED = (
    "The {method} system is too ill-conditioned to be solved. Causes: (a) affinities that differ by more than "
    "{powers} powers of ten, as Gaussian ones of a mesh with very uneven edges, (b) needle triangles with "
    "cotangent weights. Remedies: weights='unit', {others}."
)


class InterpolationWarning(UserWarning):
    """A field that has holes, or nodes that no known value reaches well.

    Examples
    --------
    >>> import warnings
    >>> from manifoldrf.applications.interpolation import FieldInterpolator, InterpolationWarning
    >>> line = [[float(i)] for i in range(60)]
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", InterpolationWarning)
    ...     model = FieldInterpolator("kernel", tau=0.1).fit(line, [float(i) for i in range(60)], known=[0, 1, 59])
    >>> len(caught), float(model.predict()[20])
    (1, 1.0)
    """


@dataclass(frozen=True)
class InterpolationInfo:
    """What was done.

    Attributes
    ----------
    method : str
        The method in use.
    tau, noise : float or None
        Its parameters, where it has them.
    n_known : int
        Nodes with a known value.
    n_nearest : int
        Nodes that have the value of the nearest known node, because the kernel does not reach them.
    n_empty_components, n_empty_nodes : int
        Components without a known value, and their nodes, which are NaN.
    solver : SolverReport or None
        How conjugate gradients ended: iterations, residual, stopped_by.

    Examples
    --------
    >>> from manifoldrf.applications.interpolation import FieldInterpolator
    >>> FieldInterpolator("harmonic").fit([[0.0], [1.0], [2.5]], [1.0, 0.0, 2.0], known=[0, 2]).info_.n_known
    2
    """

    method: str
    tau: float | None
    noise: float | None
    n_known: int
    n_nearest: int = 0
    n_empty_components: int = 0
    n_empty_nodes: int = 0
    solver: SolverReport | None = None


class FieldInterpolator(BaseEstimator):  # type: ignore[misc]
    """Fill in a field that is known at some nodes of a space: scalars, vectors, or unit vectors.

    Parameters
    ----------
    method : {"auto", "kernel", "features", "gp", "harmonic", "biharmonic"}, default="auto"
        "kernel": K(m u) / (K m), m the mask of known nodes and K = exp(-tau L), by products with sparse matrices.
        "features": the same with :class:`ManifoldRandomFeatures` of that kernel, which also see new points; tau is
        chosen for the kernel itself.
        "gp": the mean of a Gaussian process, K_nk (K_kk + noise I)^-1 u_k around the mean of each component, by
        conjugate gradients. "harmonic", "biharmonic": L u = 0, L M^-1 L u = 0 with the known values fixed.
        "auto": the one with the least error at known nodes that are left out in turn, among "kernel", "harmonic",
        "biharmonic" and, up to 20,000 nodes, "gp".
    tau : "cv" or float, default="cv"
        Steps of the walk, at most a million. "cv": the best of 0.25, 0.5, ..., 128 (of 2 to 64 for "gp") for known
        nodes left out in turn, and on beyond either end while the best is there.
    weights : {"unit", "gaussian", "cotangent"}, default="unit"
        Of the edges of a mesh, as in :func:`mesh_graph`, or of the nearest neighbours of points (not "cotangent").
        It does not apply to a :class:`Graph`, whose own affinities are used.
    normalize : bool, default=False
        Whether values are directions: results are divided by their lengths, and are NaN where a result is zero, as
        it has no direction. Such values have two columns at least.
    noise : "cv" or float, default="cv"
        Variance of the noise of "gp" over the variance of the process; at least 0.
    n_features : int or {"auto", "all"}, default="auto"
        Of "features"; "auto" ties it to tau: 2.5 / tau of the nodes are anchors, closer together than the kernel is
        wide (all nodes below tau = 2.5). A :class:`FeatureWarning` says where a number is too small for that, or
        a mesh too uneven.
    random_state : None, int, Generator or RandomState, default=None
        Of the folds and the features.
    n_jobs : int, default=-1
        Threads, -1 for all cores; results do not depend on it.

    Attributes
    ----------
    method_ : str
        The method in use.
    tau_, noise_ : float or None
    cv_ : list of dict
        What was tried at nodes left out: method, tau, noise, error, folds. The error is 1 minus the mean cosine for
        directions, else the mean squared error over the variance of the known values. Settings of "gp" are compared
        on one fold; "auto" then takes the best of them on all folds, a row of its own.
    beats_mean_ : bool or None
        Whether the method predicts nodes left out better than the mean of the known values; None where nothing was
        tried.
    info_ : InterpolationInfo
    graph_ : Graph
    features_ : ManifoldRandomFeatures or None
    preserves_range_ : bool

    Notes
    -----
    "kernel", "features" and "harmonic" are weighted means of known values, so that no result leaves their convex
    hull (with ``normalize``, before the lengths are taken out). "gp" and "biharmonic" follow slopes, and may. Only
    "harmonic" and "biharmonic" keep the known values as they are; the others smooth them too.

    Where the kernel is so narrow, or a hole so wide, that no known value has a weight that can be told from
    rounding, "kernel" and "features" take the value of the nearest known node along the edges, and a warning counts
    the nodes. Components without a known value are NaN, and a warning counts them.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Sphere
    >>> from manifoldrf.applications.interpolation import FieldInterpolator
    >>> points = Sphere().grid(500)
    >>> heights = np.where(np.arange(500) % 4 == 0, points[:, 2], np.nan)  # known at every fourth point
    >>> model = FieldInterpolator("biharmonic").fit(points, heights)
    >>> bool(np.abs(model.predict() - points[:, 2]).max() < 0.05)
    True
    >>> bool(abs(model.predict([[0.6, 0.0, 0.8]])[0] - 0.8) < 0.05)
    True
    """

    def __init__(
        self,
        method: str = "auto",
        *,
        tau: str | float = "cv",
        weights: str = "unit",
        normalize: bool = False,
        noise: str | float = "cv",
        n_features: int | str = "auto",
        random_state: SeedLike = None,
        n_jobs: int = -1,
    ) -> None:
        self.method = method
        self.tau = tau
        self.weights = weights
        self.normalize = normalize
        self.noise = noise
        self.n_features = n_features
        self.random_state = random_state
        self.n_jobs = n_jobs

    @one_blas_thread()
    def fit(self, space: Any, values: ArrayLike, known: ArrayLike | None = None) -> Self:
        """Build the graph, choose what is to be chosen, and fill the field.

        Parameters
        ----------
        space : TriangleMesh, array-like of shape (n, d), or Graph
            Vertices, points or nodes are the n nodes of the field.
        values : array-like of shape (n,) or (n, c)
            Rows of unknown nodes may hold anything; they are not read.
        known : bool array-like of shape (n,) or int array-like, optional
            A mask or the nodes whose values are known; by default the rows without NaN.
        """
        options = self._check_options()
        jobs, streams = check_jobs(self.n_jobs), Streams.from_seed(self.random_state, "random_state")
        graph = graph_of(space, self.weights, jobs)
        problem = self._problem(graph, values, known, jobs)
        self._choose(problem, options, streams)
        self.graph_ = graph
        self.features_: Any = self._fit_features(graph, streams, jobs) if self.method_ == "features" else None
        self._fill(problem)
        return self

    @one_blas_thread()
    def refit(self, values: ArrayLike, known: ArrayLike | None = None) -> Self:
        """Fill another field on the same graph with the same method, tau, noise and features.

        Nothing is chosen again: the next frame of a sequence costs one application of what was fitted.

        Parameters
        ----------
        values, known
            As in :meth:`fit`; both may differ from the last ones.
        """
        check_is_fitted(self, "graph_")
        self._fill(self._problem(self.graph_, values, known, check_jobs(self.n_jobs)))
        return self

    def predict(self, Z: ArrayLike | None = None) -> FloatArray:
        """The field at the nodes, or at other points.

        On a mesh a point is moved to the nearest face and mixes the values at its corners, so that the field is
        continuous and agrees with that of the nodes; elsewhere it takes one step of the walk, or the value of the
        node it lies on. With "features" it has features of its own.

        Parameters
        ----------
        Z : array-like of shape (q, d), optional
            Points; the nodes themselves by default.

        Returns
        -------
        field : array of shape (n,) or (q,), or (n, c) or (q, c), as the values were given
            NaN where nothing known is in reach.
        """
        check_is_fitted(self, "graph_")
        if Z is None:
            return self._output(self._filled.values)
        positions = self.graph_.positions
        queries = check_points(Z, "Z", n_columns=positions.shape[1])
        if self.features_ is not None:
            return self._output(self._by_features(queries))
        return self._output(self._by_nodes(queries))

    @property
    def preserves_range_(self) -> bool:
        """Whether no result leaves the convex hull of the known values."""
        check_is_fitted(self, "graph_")
        return self.method_ in _RANGE_PRESERVING

    def _check_options(self) -> Choice:
        """The options, checked; None stands for what is to be chosen."""
        check_option(self.method, "method", METHODS)
        check_flag(self.normalize, "normalize")
        check_count(self.n_features, "n_features", 1, ("auto", "all"))
        return Choice(
            self.method,
            _number_or_cv(self.tau, "tau", _TAUS),
            _number_or_cv(self.noise, "noise", NONNEGATIVE),
        )

    def _problem(self, graph: Graph, values: ArrayLike, known: Any, jobs: int) -> Problem:
        checked = check_known(values, known, graph.n_nodes)
        if self.normalize and checked.values.shape[1] < 2:
            reject("normalize", "False for values of one column, which have no direction", self.normalize)
        return Problem(graph, checked, jobs)

    def _choose(self, problem: Problem, options: Choice, streams: Streams) -> None:
        """Settle method, tau and noise."""
        folds = make_folds(problem.known.mask, streams.generator("interpolation.folds"))
        examiner = Examiner(problem, folds, bool(self.normalize))
        chosen, tried = choose(examiner, options)
        self.method_ = chosen.method
        self.tau_: Any = chosen.tau  # None for a method without it
        self.noise_: Any = chosen.noise
        self.cv_ = [choice.as_row() for choice in tried]
        self.beats_mean_ = examiner.beats_mean(chosen)

    def _fit_features(self, graph: Graph, streams: Streams, jobs: int) -> ManifoldRandomFeatures:
        count: Any = self.n_features
        if count == "auto":
            count = int(min(graph.n_nodes, np.ceil(_ANCHORS * graph.n_nodes / float(self.tau_))))
        features = ManifoldRandomFeatures(
            DiffusionKernel(self.tau_),
            n_features=count,
            weights="auto" if count in ("all", graph.n_nodes) else "voronoi",  # quick for any number of anchors
            sparse_output=True,
            random_state=streams.generator("interpolation.features"),
            n_jobs=jobs,
        )
        # It is about nodes without signatures of their own, and about the height of the kernel: here all nodes
        # have theirs, and means do not depend on the height.
        with without_warnings(FeatureWarning, beginning="The field"):
            features.fit(graph)
        rows = self._rows(features, graph.positions)
        # Features are those of a place. A node that lies on another component has no share in that one's values.
        nodes = np.repeat(np.arange(graph.n_nodes), np.diff(rows.indptr))
        same = graph.components[features.anchors_][rows.indices] == graph.components[nodes]
        self._node_features = entries_where(rows, same)
        return features

    def _rows(self, features: ManifoldRandomFeatures, points: FloatArray) -> Any:
        """Features of points, CSR (q, m); who asks for all of them asks for the kernel itself."""
        return without_small(features.transform(points), 0.0 if self.n_features == "all" else _CUT)

    def _fill(self, problem: Problem) -> None:
        """The field at all nodes, and what is to be said of it."""
        known, solver = problem.known, None
        everything = known.mask[None]
        if self.method_ == "kernel":
            (field,) = fill_by_kernel(problem, everything, self.tau_)
        elif self.method_ == "features":
            field = self._fill_by_features(problem)
        elif self.method_ == "gp":
            (found,) = fill_by_gp(problem, everything, self.tau_, (self.noise_,))
            field, solver = found.folds[0], found.report
        else:
            field = _solved_or_explained(problem, self.method_)
        self._filled, self._known = field, known
        empty = field.mass == 0
        self.info_ = InterpolationInfo(
            self.method_,
            self.tau_,
            self.noise_,
            int(known.mask.sum()),
            field.n_nearest,
            len(np.unique(problem.graph.components[empty])),
            int(empty.sum()),
            solver,
        )
        _warn_of(self.info_, problem.graph.n_nodes)

    def _fill_by_features(self, problem: Problem) -> Filled:
        found = self._means(self._node_features, problem.known)
        return finish_means(problem, problem.known.mask, found.values, found.mass, 0.0)

    def _means(self, rows: Any, known: Known) -> Smoothed:
        """Means of the known values by features of some points; what is not known takes no time."""
        return smooth(feature_action(rows, self._node_features[known.nodes]), known.values[known.nodes])

    def _by_nodes(self, queries: FloatArray) -> FloatArray:
        """Means of the field at the nodes that each query sees, shape (q, c)."""
        views, field = views_of(self.graph_, queries), self._filled
        return smooth(lambda X: views @ X, np.nan_to_num(field.values), field.mass).values

    def _by_features(self, queries: FloatArray) -> FloatArray:
        """Means of the known values by features of the queries, or of the nodes where they see no known value."""
        found = self._means(self._rows(self.features_, queries), self._known)
        lost = ~(found.mass > 0)
        if lost.any():
            found.values[lost] = self._by_nodes(queries[lost])
        return found.values

    def _output(self, rows: FloatArray) -> FloatArray:
        """Rows as the user wants them."""
        if self._known.is_vector:
            return np.asarray(rows[:, 0]).copy()
        if not self.normalize:
            return rows.copy()
        return directions(rows, float(row_lengths(self._known.values).max()))


def _number_or_cv(value: Any, name: str, interval: Interval) -> float | None:
    """A number, or None for one that is chosen."""
    if isinstance(value, str):
        if value != "cv":
            reject(name, f"'cv' or a number in {interval}", repr(value))
        return None
    return check_real(value, name, interval)


def _solved_or_explained(problem: Problem, method: str) -> Filled:
    """The field of a sparse system, or the causes and remedies in one error."""
    try:
        return fill_by_solve(problem, problem.known.mask[None], method)[0]
    except ArithmeticError as error:
        others = " or ".join(f"method={name!r}" for name in ("harmonic", "kernel") if name != method)
        powers = "fourteen" if method == "harmonic" else "eight"
        raise ValueError(_ILL_CONDITIONED.format(method=method, powers=powers, others=others)) from error


def _warn_of(info: InterpolationInfo, n_nodes: int) -> None:
    """One sentence for holes, one for nodes out of reach."""
    if info.n_empty_nodes:
        warn_user(
            f"{info.n_empty_components} components, with {info.n_empty_nodes} of {n_nodes} nodes, have no known "
            "value: the field is NaN there (remedy: a known value in each, or edges that join them).",
            InterpolationWarning,
        )
    if info.n_nearest:
        warn_user(
            f"{info.n_nearest} of {n_nodes} nodes are so far from all known ones that the kernel with tau = "
            f"{info.tau:g} does not reach them: they have the value of the nearest known node along the edges "
            "(remedy: a larger tau, or method='harmonic').",
            InterpolationWarning,
        )
