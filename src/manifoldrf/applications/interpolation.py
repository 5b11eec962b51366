"""Fill in a field from values at some nodes: the estimator, and the choice of its method by cross-validation."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.spatial import cKDTree
from sklearn.utils.validation import check_is_fitted

from manifoldrf._codec import stored
from manifoldrf._random import SeedLike, Streams
from manifoldrf._runtime import one_blas_thread, warn_user, without_warnings
from manifoldrf._validation import (
    NONNEGATIVE,
    FloatArray,
    Interval,
    check_count,
    check_flag,
    check_jobs,
    check_number_or,
    check_option,
    check_points,
    check_spread,
    reject,
)
from manifoldrf.applications import filling
from manifoldrf.applications.filling import WIDEST, BoolArray, Filled, Known, Problem, Smoothed, SolverReport
from manifoldrf.applications.saving import SavedEstimator
from manifoldrf.features.errors import FeatureWarning
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.geometry.builders import NeighborExtension, knn_graph, mesh_graph
from manifoldrf.geometry.csr import check_amounts, check_csr, check_numbers, check_shape, select_entries
from manifoldrf.geometry.graphs import Graph, as_space
from manifoldrf.geometry.meshes import TriangleMesh, barycentric_weights, row_lengths
from manifoldrf.kernels.graph_kernels import DiffusionKernel

__all__ = ["FieldInterpolator", "InterpolationInfo", "InterpolationWarning"]

METHODS = ("auto", "kernel", "features", "gp", "harmonic", "biharmonic")
WEIGHTS = ("unit", "gaussian", "cotangent")
_RANGE_PRESERVING = ("kernel", "features", "harmonic")
_TAUS = Interval(0.0, WIDEST, low_open=True)
# Anchors of "features" per node and step. Cosines of normals on two meshes are then .000 to .007 below those of the
# kernel itself for tau from 2 to 80; four times as many anchors change them by .001 to .004.
_ANCHORS = 2.5
# Features below this share of a node's largest are dropped: a third of them stay, and cosines change by .0002.
_CUT = 1e-3

# Grids of the search: powers of 2, continued beyond an end if the best value is there.
_KERNEL_TAUS = tuple(2.0**k for k in range(-2, 8))
_GP_TAUS = tuple(2.0**k for k in range(1, 7))
# The diagonal of the kernel is below 1. Noise below 1e-4 is not resolved within the cap of iterations.
_NOISES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_TAU_RANGE = 2.0**-10, 2.0**19  # below, only nearest values are left; above, one mean for each component
_ANY_TAU, _ANY_NOISE = 1.0, 1e-3  # if every component has a single known value, all tau give the same field
# A row has a direction if it is longer than this share of the longest known row. Shorter ones are rounding errors.
_NO_DIRECTION = 1e-12
_ROUNDING = 1e-9  # errors below this are zero: if all known values are equal, the mean has no error either
# Factorisations for all five folds take a minute at 150,000 nodes, where one fold already has thousands of errors.
_NODES_FOR_FOLDS = 50_000
# Above this size the Gaussian process would take longer than all other methods of "auto" (minutes on two cores).
GP_NODES = 20_000

_ILL_CONDITIONED = (
    "The {method} system is too ill-conditioned to be solved. Causes: (a) affinities that differ by more than "
    "{powers} powers of ten, such as Gaussian ones of a mesh with very uneven edges, (b) needle triangles with "
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


@stored
@dataclass(frozen=True)
class InterpolationInfo:
    """How a field was filled.

    Attributes
    ----------
    method : str
        The method in use.
    tau, noise : float or None
        Its parameters, if it has them.
    n_known : int
        Number of nodes with a known value.
    n_nearest : int
        Number of nodes that take the value of the nearest known node because the kernel does not reach them.
    n_empty_components, n_empty_nodes : int
        Number of components without a known value, and of their nodes, which are NaN.
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


@dataclass(frozen=True)
class Choice:
    """A method with its parameters, and its cross-validation error if it was measured."""

    method: str
    tau: float | None = None
    noise: float | None = None
    error: float | None = None
    folds: int = 0


class FieldInterpolator(SavedEstimator):
    """Fill in a field that is known at some nodes of a space: scalars, vectors, or unit vectors.

    Parameters
    ----------
    method : {"auto", "kernel", "features", "gp", "harmonic", "biharmonic"}, default="auto"
        "kernel": K(m u) / (K m), where m is the mask of known nodes and K = exp(-tau L), by sparse matrix products.
        "features": the same with :class:`ManifoldRandomFeatures` of that kernel, which are also defined at new
        points; tau is chosen with the kernel itself.
        "gp": the mean of a Gaussian process, K_nk (K_kk + noise I)^-1 u_k around the mean of each component, by
        conjugate gradients. "harmonic", "biharmonic": L u = 0, L M^-1 L u = 0 with the known values fixed.
        "auto": the method with the smallest cross-validation error at known nodes, among "kernel", "harmonic",
        "biharmonic" and, up to 20,000 nodes, "gp".
    tau : "cv" or float, default="cv"
        Number of steps of the walk, at most a million. "cv": the best of 0.25, 0.5, ..., 128 (2 to 64 for "gp") by
        cross-validation. The search goes on beyond an end if the best value is there.
    weights : {"unit", "gaussian", "cotangent"}, default="unit"
        Weights of the edges of a mesh, as in :func:`mesh_graph`, or of the nearest neighbours of points (not
        "cotangent"). Ignored for a :class:`Graph`, which has its own affinities.
    normalize : bool, default=False
        Whether values are directions. Results are then divided by their lengths, and are NaN where a result is zero
        and has no direction. Directions need at least two columns.
    noise : "cv" or float, default="cv"
        Variance of the noise of "gp" relative to the variance of the process; at least 0.
    n_features : int or {"auto", "all"}, default="auto"
        Number of features of "features". "auto" makes 2.5 / tau of the nodes anchors (all nodes below tau = 2.5),
        so that they are closer together than the kernel is wide. A :class:`FeatureWarning` is issued if the number
        is too small, or the mesh too uneven.
    random_state : None, int, Generator or RandomState, default=None
        Seed of the folds and the features.
    n_jobs : int, default=-1
        Number of threads, -1 for all cores; results do not depend on it.

    Attributes
    ----------
    method_ : str
        The method in use.
    tau_, noise_ : float or None
    cv_ : list of dict
        The trials of cross-validation: method, tau, noise, error, folds. The error is 1 minus the mean cosine for
        directions, else the mean squared error over the variance of the known values. Parameters of "gp" are
        compared on one fold; "auto" then evaluates the best of them on all folds, in a row of its own.
    beats_mean_ : bool or None
        Whether the method predicts left-out nodes better than the mean of the known values; None without trials.
    info_ : InterpolationInfo
    graph_ : Graph
    features_ : ManifoldRandomFeatures or None
    preserves_range_ : bool

    Notes
    -----
    "kernel", "features" and "harmonic" are weighted means of known values, so no result leaves their convex hull
    (with ``normalize``, before the division by the lengths). "gp" and "biharmonic" follow slopes and may leave it.
    Only "harmonic" and "biharmonic" keep the known values unchanged; the other methods smooth them too.

    "kernel" and "features" take the value of the nearest known node along the edges where the kernel is so narrow,
    or a hole so wide, that all weights are below rounding errors; a warning counts these nodes. Components without
    a known value are NaN, and a warning counts them.

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

    _stored: ClassVar[dict[str, Any]] = {
        "graph_": Graph,
        "method_": str,
        **dict.fromkeys(("tau_", "noise_"), float | None),
        "cv_": list,
        "beats_mean_": bool | None,
        "info_": InterpolationInfo,
        "features_": ManifoldRandomFeatures | None,
        "_node_features": sparse.csr_array | None,
        "_filled": Filled,
        "_known": Known,
    }

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
        """Build the graph, choose free parameters by cross-validation, and fill the field.

        Parameters
        ----------
        space : TriangleMesh, array-like of shape (n, d), or Graph
            The n vertices, points or nodes carry the field. Meshes and graphs of other libraries, and square sparse
            matrices of affinities, are taken too.
        values : array-like of shape (n,) or (n, c)
            Rows of unknown nodes may hold anything; they are not read.
        known : bool array-like of shape (n,) or int array-like, optional
            A mask, or the indices of the nodes with known values; by default the rows without NaN.
        """
        check_option(self.method, "method", METHODS)
        check_flag(self.normalize, "normalize")
        check_count(self.n_features, "n_features", 1, ("auto", "all"))
        tau = check_number_or(self.tau, "tau", "cv", _TAUS)
        noise = check_number_or(self.noise, "noise", "cv", NONNEGATIVE)
        jobs, streams = check_jobs(self.n_jobs), Streams.from_seed(self.random_state, "random_state")
        graph = graph_of(space, self.weights, jobs)
        problem = self._problem(graph, values, known, jobs)
        folds = filling.make_folds(problem.known.mask, streams.generator("interpolation.folds"))
        validation = CrossValidation(problem, folds, bool(self.normalize))
        chosen, tried = choose(validation, Choice(self.method, tau, noise))
        self.method_ = chosen.method
        self.tau_: Any = chosen.tau  # None if the method has none
        self.noise_: Any = chosen.noise
        self.cv_ = [dataclasses.asdict(choice) for choice in tried]
        self.beats_mean_ = validation.beats_mean(chosen)
        self.graph_ = graph
        self._node_features: Any = None
        self.features_: Any = self._fit_features(graph, streams, jobs) if self.method_ == "features" else None
        self._fill(problem)
        return self

    @one_blas_thread()
    def refit(self, values: ArrayLike, known: ArrayLike | None = None) -> Self:
        """Fill another field on the same graph with the same method, tau, noise and features.

        Nothing is chosen again, so the next frame of a sequence costs a single fill.

        Parameters
        ----------
        values, known
            As in :meth:`fit`; both may differ from the previous ones.
        """
        check_is_fitted(self, "graph_")
        self._fill(self._problem(self.graph_, values, known, check_jobs(self.n_jobs)))
        return self

    def predict(self, Z: ArrayLike | None = None) -> FloatArray:
        """The field at the nodes, or at other points.

        On a mesh a point is projected to the nearest face and interpolates the values at its corners, so the field
        is continuous and agrees with the values at the nodes. Elsewhere it averages over one step of the walk, or
        takes the value of the node it coincides with. "features" evaluates the features at the point instead.

        Parameters
        ----------
        Z : array-like of shape (q, d), optional
            Points; the nodes themselves by default.

        Returns
        -------
        field : array of shape (n,) or (q,), or (n, c) or (q, c), as the values were given
            NaN where no known value can be reached.
        """
        check_is_fitted(self, "graph_")
        if Z is None:
            return self._output(self._filled.values)
        queries = check_points(Z, "Z", n_columns=self.graph_.positions.shape[1])
        if self.features_ is None:
            return self._output(self._by_nodes(queries))
        found = self._means(self._rows(self.features_, queries), self._known)
        lost = ~(found.mass > 0)  # no known value has weight there
        if lost.any():
            found.values[lost] = self._by_nodes(queries[lost])
        return self._output(found.values)

    @property
    def preserves_range_(self) -> bool:
        """Whether no result leaves the convex hull of the known values."""
        check_is_fitted(self, "graph_")
        return self.method_ in _RANGE_PRESERVING

    def _facts(self) -> list[tuple[str, str]]:
        info = self.info_
        chosen = self.method_, self.tau_, self.noise_
        tried = [row for row in self.cv_ if (row["method"], row["tau"], row["noise"]) == chosen and row["folds"]]
        error = max(tried, key=lambda row: row["folds"])["error"] if tried else 0.0
        measure = "1 - cosine" if self.normalize else "of the variance"
        verdict = "" if self.beats_mean_ is not False else "; no better than the mean of the known values"
        rows = [
            ("graph", repr(self.graph_).removeprefix("Graph(").removesuffix(")")),
            ("method", self.method_ if self.method == self.method_ else f"{self.method_}, by cross-validation"),
            ("tau", "" if self.tau_ is None else f"{self.tau_:g}"),
            ("noise", "" if self.noise_ is None else f"{self.noise_:g}"),
            ("known nodes", f"{info.n_known} of {self.graph_.n_nodes}"),
            ("nodes with the nearest known value", str(info.n_nearest or "")),
            ("nodes without a value", f"{info.n_empty_nodes}" if info.n_empty_nodes else ""),
            ("cross-validation error", f"{error:.2g} ({measure}){verdict}" if tried else ""),
        ]
        return [row for row in rows if row[1]]

    def _problem(self, graph: Graph, values: ArrayLike, known: Any, jobs: int) -> Problem:
        checked = filling.check_known(values, known, graph.n_nodes)
        if self.normalize and checked.values.shape[1] < 2:
            reject("normalize", "False for values of one column, which have no direction", self.normalize)
        return Problem(graph, checked, jobs)

    def _fit_features(self, graph: Graph, streams: Streams, jobs: int) -> ManifoldRandomFeatures:
        count: Any = self.n_features
        if count == "auto":
            count = int(min(graph.n_nodes, np.ceil(_ANCHORS * graph.n_nodes / float(self.tau_))))
        features = ManifoldRandomFeatures(
            DiffusionKernel(self.tau_),
            normalize=False,  # means do not depend on the height
            n_features=count,
            quadrature="auto" if count in ("all", graph.n_nodes) else "voronoi",  # quick for any number of anchors
            sparse_output=True,
            random_state=streams.generator("interpolation.features"),
            n_jobs=jobs,
        )
        # This warning concerns nodes without signatures, and the height of the kernel. Here all nodes have
        # signatures, and means do not depend on the height.
        with without_warnings(FeatureWarning, beginning="The field"):
            features.fit(graph)
        rows = self._rows(features, graph.positions)
        # Features depend on the position alone. A node must not see anchors of another component at its position.
        nodes = np.repeat(np.arange(graph.n_nodes), np.diff(rows.indptr))
        same = graph.components[features.anchors_][rows.indices] == graph.components[nodes]
        self._node_features = select_entries(rows, rows.data, same)
        return features

    def _rows(self, features: ManifoldRandomFeatures, points: FloatArray) -> Any:
        """Features of points, CSR (q, m); small entries are kept only with n_features="all"."""
        return filling.without_small(features.transform(points), 0.0 if self.n_features == "all" else _CUT)

    def _fill(self, problem: Problem) -> None:
        """Compute the field at all nodes, and warn about holes."""
        known, solver = problem.known, None
        everything = known.mask[None]
        if self.method_ == "kernel":
            (field,) = filling.fill_by_kernel(problem, everything, self.tau_)
        elif self.method_ == "features":
            found = self._means(self._node_features, known)
            field = filling.finish_means(problem, known.mask, found.values, found.mass, 0.0)
        elif self.method_ == "gp":
            (regressed,) = filling.fill_by_gp(problem, everything, self.tau_, (self.noise_,))
            field, solver = regressed.folds[0], regressed.report
        else:
            try:
                (field,) = filling.fill_by_solve(problem, everything, self.method_)
            except ArithmeticError as error:
                others = " or ".join(f"method={name!r}" for name in ("harmonic", "kernel") if name != self.method_)
                powers = "fourteen" if self.method_ == "harmonic" else "eight"
                text = _ILL_CONDITIONED.format(method=self.method_, powers=powers, others=others)
                raise ValueError(text) from error
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

    def _means(self, rows: Any, known: Known) -> Smoothed:
        """Average the known values with the features of some points."""
        action = filling.feature_action(rows, self._node_features[known.mask])
        return filling.smooth(action, known.values[known.mask])

    def _by_nodes(self, queries: FloatArray) -> FloatArray:
        """Average the field over the nodes around each query, shape (q, c)."""
        views, field = views_of(self.graph_, queries), self._filled
        return filling.smooth(lambda X: views @ X, np.nan_to_num(field.values), field.mass).values

    def _check_loaded(self) -> None:
        check_option(self.method_, "method_", METHODS[1:])
        check_flag(self.normalize, "normalize")
        n, known, filled = self.graph_.n_nodes, self._known, self._filled
        c = known.values.shape[-1]
        if known.is_vector and c != 1:
            reject("is_vector", "False for several columns", c)
        check_shape("mask", known.mask, (n,))
        for field in (known, filled):
            check_shape("values", field.values, (n, c))
        check_numbers("values", known.values)
        check_numbers("values", np.nan_to_num(filled.values, posinf=np.inf, neginf=-np.inf))
        check_amounts("mass", filled.mass, n)
        if (self.features_ is None) != (self.method_ != "features"):
            reject("features_", "given for the method 'features' only", self.method_)
        if self.features_ is not None:
            check_csr("_node_features", self._node_features, (n, self.features_.n_features_out_))

    def _output(self, rows: FloatArray) -> FloatArray:
        """Return rows in the shape of the given values, normalized if asked for."""
        if self._known.is_vector:
            return np.asarray(rows[:, 0]).copy()
        if not self.normalize:
            return rows.copy()
        return directions(rows, float(row_lengths(self._known.values).max()))


def graph_of(space: Any, weights: str, n_jobs: int) -> Graph:
    """Return the graph itself, the edges of a mesh, or the nearest neighbours of points, with the given weights."""
    check_option(weights, "weights", WEIGHTS)
    space = as_space(space, "space")
    if isinstance(space, Graph):
        return space
    if isinstance(space, TriangleMesh):
        check_spread(space.vertices, "space")
        if not space.edge_lengths().any():
            reject("space", "a mesh with an edge of positive length", f"{space} without one")
        return mesh_graph(space, weights=weights)
    if weights == "cotangent":
        reject("weights", "'unit' or 'gaussian' for points; cotangents need the faces of a mesh", repr(weights))
    points = check_points(space, "space", min_rows=2)
    check_spread(points, "space")
    graph = knn_graph(points, n_jobs=n_jobs)
    if weights == "gaussian":
        return graph
    # The same edges with affinity 1; new points are joined to their neighbours with affinity 1.
    affinity, extension = graph.affinity, graph.extension
    ones = sparse.csr_array((np.ones(affinity.nnz), affinity.indices, affinity.indptr), shape=affinity.shape)
    if isinstance(extension, NeighborExtension):
        extension = dataclasses.replace(extension, bandwidth=np.inf)  # exp(-distance^2 / inf) = 1
    return Graph(ones, graph.points, graph.metric, extension)


def views_of(graph: Graph, queries: FloatArray) -> Any:
    """Nonnegative weights of the nodes at each query, CSR (q, n_nodes).

    On a mesh the barycentric weights of the nearest face; elsewhere one step of the walk, or the node itself if the
    query coincides with one.
    """
    if graph.mesh is not None:
        return barycentric_weights(graph.mesh, graph.mesh.closest_points(queries))
    steps = graph.extend(queries)
    distances, nodes = cKDTree(graph.positions).query(graph.placed(queries))
    there = distances == 0
    if not there.any():
        return steps
    itself = sparse.csr_array((np.ones(int(there.sum())), (np.flatnonzero(there), nodes[there])), shape=steps.shape)
    return (sparse.diags_array((~there).astype(np.float64)) @ steps + itself).tocsr()


def directions(rows: FloatArray, longest: float) -> FloatArray:
    """Divide rows by their lengths; rows without a direction become NaN."""
    lengths = row_lengths(rows)[:, None]
    return np.divide(rows, lengths, out=np.full_like(rows, np.nan), where=lengths > _NO_DIRECTION * longest)


@dataclass(frozen=True, eq=False)
class CrossValidation:
    """Measures errors at known nodes that are left out in turn.

    Attributes
    ----------
    problem : Problem
    stays : bool array of shape (folds, n_nodes)
        Nodes that stay known in each fold.
    normalize : bool
        Whether values are directions. The error is then 1 minus the mean cosine, else the mean squared error over
        the variance of the known values.
    """

    problem: Problem
    stays: BoolArray
    normalize: bool

    def error(self, fields: Sequence[Filled]) -> float:
        """Error over all folds; NaN if no left-out node shares its component with a known one."""
        known = self.problem.known
        found, true = [], []
        for mask, field in zip(self.stays, fields, strict=False):
            out = known.mask & ~mask & (field.mass > 0)
            found.append(field.values[out])
            true.append(known.values[out])
        if not sum(map(len, true)):
            return np.nan
        left, right = np.concatenate(found), np.concatenate(true)
        if self.normalize:
            longest = float(row_lengths(known.values[known.mask]).max())
            cosines = (np.nan_to_num(directions(left, longest)) * directions(right, longest)).sum(axis=1)
            cosines = cosines[~np.isnan(cosines)]  # skip known rows without a direction
            return float(1.0 - cosines.mean()) if len(cosines) else np.nan
        spread = float(known.values[known.mask].var(axis=0).sum())
        return float(((left - right) ** 2).sum(axis=1).mean() / (spread or 1.0))

    def beats_mean(self, choice: Choice) -> bool | None:
        """Whether a choice is better than the mean of all known values; None if it was not measured."""
        if choice.error is None or np.isnan(choice.error):
            return None
        if not self.normalize:
            return bool(choice.error < 1.0)  # over the variance
        known = self.problem.known.values[self.problem.known.mask]
        found = directions(known, float(row_lengths(known).max()))
        mean_error = 1.0 - float(np.linalg.norm(np.nanmean(found, axis=0)))
        return bool(choice.error < max(mean_error, _ROUNDING))

    def kernel(self, tau: float | None) -> list[Choice]:
        """Errors of the kernel for a given tau, or for all tau of the search."""

        def measure(trial: float) -> list[Choice]:
            found = filling.fill_by_kernel(self.problem, self.stays, trial)
            return [Choice("kernel", trial, None, self.error(found), len(found))]

        return _scan(measure, _KERNEL_TAUS) if tau is None else measure(tau)

    def gp(self, tau: float | None, noise: float | None) -> list[Choice]:
        """Errors of the Gaussian process on one fold, for given or searched tau and noise."""
        noises = _NOISES if noise is None else (noise,)

        def measure(trial: float) -> list[Choice]:
            tried = filling.fill_by_gp(self.problem, self.stays[:1], trial, noises)
            return [Choice("gp", trial, found.noise, self.error(found.folds), 1) for found in tried]

        return _scan(measure, _GP_TAUS) if tau is None else measure(tau)

    def solve(self, method: str) -> Choice:
        """Error of a harmonic or biharmonic field; infinite if the system cannot be solved."""
        try:
            found = filling.fill_by_solve(self.problem, self.stays, method)
            return Choice(method, error=self.error(found), folds=len(found))
        except ArithmeticError:
            return Choice(method, error=np.inf, folds=len(self.stays))


def best_of(choices: Sequence[Choice], options: Choice | None = None) -> Choice:
    """The choice with the smallest error; if none was measured, the given options with any parameters."""
    measured = [choice for choice in choices if choice.error is not None and not np.isnan(choice.error)]
    if measured:
        return min(measured, key=lambda choice: float(choice.error or 0.0))
    return _with_any(Choice(choices[0].method) if options is None else options)


def _with_any(options: Choice) -> Choice:
    """A choice without measurements: if each component has one known value, all methods return it."""
    method = "harmonic" if options.method == "auto" else options.method
    tau = (options.tau or _ANY_TAU) if method in ("kernel", "features", "gp") else None
    noise = (_ANY_NOISE if options.noise is None else options.noise) if method == "gp" else None
    return Choice(method, tau, noise)


def _scan(measure: Callable[[float], list[Choice]], taus: Sequence[float]) -> list[Choice]:
    """Errors for rising tau, continued by factors of 2 while the best is at an end."""
    tried = {tau: measure(tau) for tau in taus}

    def is_best(tau: float) -> bool:
        best = best_of([choice for choices in tried.values() for choice in choices])
        return best.error is not None and best.tau == tau

    while is_best(low := min(tried)) and low > _TAU_RANGE[0]:
        tried[low / 2] = measure(low / 2)
    while is_best(high := max(tried)) and high < _TAU_RANGE[1]:
        tried[high * 2] = measure(high * 2)
    return [choice for tau in sorted(tried) for choice in tried[tau]]


def choose(validation: CrossValidation, options: Choice) -> tuple[Choice, list[Choice]]:
    """Choose the method and its parameters; also return all trials. Given parameters are not searched.

    Parameters
    ----------
    validation : CrossValidation
    options : Choice
        The given method and parameters; None for parameters to be chosen.
    """
    method, tau, noise = options.method, options.tau, options.noise
    if not len(validation.stays):
        return _with_any(options), []
    if method == "auto":
        if validation.stays.shape[1] > _NODES_FOR_FOLDS:
            validation = dataclasses.replace(validation, stays=validation.stays[:1])
        return _choose_method(validation, tau, noise)
    if method == "gp":
        if tau is not None and noise is not None:
            return Choice(method, tau, noise), []
        tried = validation.gp(tau, noise)
    elif method in ("kernel", "features"):
        if tau is not None:
            return Choice(method, tau), []
        tried = validation.kernel(None)  # features approximate the same kernel
    else:
        return Choice(method), []
    return dataclasses.replace(best_of(tried, options), method=method), tried


def _choose_method(
    validation: CrossValidation, tau: float | None, noise: float | None
) -> tuple[Choice, list[Choice]]:
    """Choose the method with the smallest error, each with its best parameters, on the same folds."""
    finals = [validation.solve(method) for method in ("harmonic", "biharmonic")]
    tried = [*validation.kernel(tau), *finals]
    finals.append(best_of(tried[: -len(finals)], Choice("kernel", tau)))
    if validation.stays.shape[1] <= GP_NODES:
        trials = validation.gp(tau, noise)
        best = best_of(trials, Choice("gp", tau, noise))
        (found,) = filling.fill_by_gp(
            validation.problem, validation.stays, best.tau or _ANY_TAU, (best.noise or 0.0,)
        )
        error = validation.error(found.folds)
        finals.append(Choice("gp", best.tau or _ANY_TAU, best.noise or 0.0, error, len(found.folds)))
        tried += [*trials, finals[-1]]
    return best_of(finals), tried


def _warn_of(info: InterpolationInfo, n_nodes: int) -> None:
    """Warn about empty components and about nodes out of reach."""
    if info.n_empty_nodes:
        warn_user(
            f"{info.n_empty_components} components, with {info.n_empty_nodes} of {n_nodes} nodes, have no known "
            "value: the field is NaN there (remedy: a known value in each, or edges between components).",
            InterpolationWarning,
        )
    if info.n_nearest:
        warn_user(
            f"{info.n_nearest} of {n_nodes} nodes are so far from all known ones that the kernel with tau = "
            f"{info.tau:g} does not reach them: they take the value of the nearest known node along the edges "
            "(remedy: a larger tau, or method='harmonic').",
            InterpolationWarning,
        )
