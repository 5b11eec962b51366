"""Fill in a field on a graph from values that are known at some of its nodes.

``fill_by_kernel``, ``fill_by_solve`` and ``fill_by_gp`` fill the field for several masks of known nodes at once, so
that cross-validation costs little more than one fill.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csgraph, linalg
from scipy.spatial import cKDTree
from sklearn.utils.validation import check_is_fitted

from manifoldrf._codec import stored
from manifoldrf._random import SeedLike, Streams
from manifoldrf._runtime import Progress, all_or_nothing, one_blas_thread, silent, stage_of, warn_user
from manifoldrf._validation import (
    NONNEGATIVE,
    FloatArray,
    IntArray,
    Interval,
    as_array,
    as_floats,
    check_columns,
    check_flag,
    check_indices,
    check_jobs,
    check_number_or,
    check_option,
    check_points,
    check_progress,
    check_spread,
    reject,
)
from manifoldrf.applications.saving import SavedEstimator
from manifoldrf.geometry.builders import NeighborExtension, knn_graph, mesh_graph
from manifoldrf.geometry.csr import check_shape, reciprocal, scaled_both_ends
from manifoldrf.geometry.graphs import Graph, translated
from manifoldrf.geometry.meshes import TriangleMesh, barycentric_weights, row_lengths
from manifoldrf.kernels.named_kernels import DiffusionKernel

BoolArray = NDArray[np.bool_]
# K: columns at the sources (n, c) -> columns at the targets (q, c), without forming the matrix.
Action = Callable[[FloatArray], FloatArray]
METHODS = ("auto", "kernel", "gp", "harmonic", "biharmonic")
WIDEST = 1e6  # largest tau: the action then takes 7000 products, and does not converge beyond
# Above this size the Gaussian process would take longer than all other methods of "auto" (minutes on two cores).
GP_NODES = 20_000


@stored
@dataclass(frozen=True)
class Choice:
    """A method with its parameters, and its cross-validation error if it was measured."""

    method: str
    tau: float | None = None
    noise_variance: float | None = None
    error: float | None = None
    folds: int = 0


@stored
@dataclass(frozen=True, eq=False)
class Known:
    """Values at some nodes of a graph.

    Attributes
    ----------
    values : array of shape (n_nodes, c)
        Zero at unknown nodes.
    mask : bool array of shape (n_nodes,)
        True at known nodes.
    is_vector : bool
        Whether the values were given as a vector; results are then vectors as well.
    """

    values: FloatArray
    mask: BoolArray
    is_vector: bool

    def within(self, field: FloatArray, graph: Graph, mask: BoolArray) -> FloatArray:
        """Clip a field of shape (n_nodes, c) to the range of the values inside the mask in each component."""
        shape, at = (graph.n_components, self.values.shape[1]), graph.components[mask]
        low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
        np.minimum.at(low, at, self.values[mask])
        np.maximum.at(high, at, self.values[mask])
        return np.asarray(np.clip(field, low[graph.components], high[graph.components]))


class Smoothed(NamedTuple):
    """Weighted means of known values, (q, c), NaN where all weights are zero, and sums of weights, (q,)."""

    values: FloatArray
    mass: FloatArray


@dataclass(frozen=True, eq=False)
class Problem:
    """A graph, the values known on it, the number of threads, and where to report progress."""

    graph: Graph
    known: Known
    n_jobs: int
    progress: Progress = silent

    def kernel_action(self, tau: float) -> Action:
        """X -> exp(-tau L) X, without forming the matrix."""
        kernel, graph, n_jobs = DiffusionKernel(tau), self.graph, self.n_jobs
        return lambda X: kernel.apply(graph, X, tol=_tolerance(tau), n_jobs=n_jobs)


@stored
@dataclass(frozen=True, eq=False)
class Filled:
    """A field at all nodes.

    Attributes
    ----------
    values : array of shape (n_nodes, c)
        NaN in components without a known value.
    mass : array of shape (n_nodes,)
        Weight of each node where the field is averaged over nodes; zero where it is NaN.
    n_nearest : int
        Number of nodes that take the value of the nearest known node because the kernel does not reach them.
    """

    values: FloatArray
    mass: FloatArray
    n_nearest: int = 0


class FieldInterpolator(SavedEstimator):
    """Fill in a field that is known at some nodes of a space: scalars, vectors, or unit vectors.

    Parameters
    ----------
    method : {"auto", "kernel", "gp", "harmonic", "biharmonic"}, default="auto"
        "kernel": K(m u) / (K m), where m is the mask of known nodes and K = exp(-tau L), by sparse matrix products.
        "gp": the mean of a Gaussian process, K_nk (K_kk + noise I)^-1 u_k around the mean of each component, by
        conjugate gradients. "harmonic", "biharmonic": L u = 0, L M^-1 L u = 0 with the known values fixed.
        "auto": the method with the smallest cross-validation error at known nodes, among "kernel", "harmonic",
        "biharmonic" and, up to 20,000 nodes, "gp".
    tau : "cv" or float, default="cv"
        Number of steps of the walk, at most a million. "cv": the best of 0.25, 0.5, ..., 128 by cross-validation;
        the range is extended while the best value is at an end.
    weights : {"unit", "gaussian", "cotangent"}, default="unit"
        Weights of the edges of a mesh, as in :func:`mesh_graph`, or of the nearest neighbours of points (not
        "cotangent"). Ignored for a :class:`Graph`, which has its own affinities.
    normalize : bool, default=False
        Whether values are directions, with at least two columns. Results are then divided by their lengths; a
        result of zero has no direction and becomes NaN.
    noise_variance : "cv" or float, default="cv"
        Variance of the noise of "gp" relative to the variance of the process; at least 0.
    random_state : None, int, Generator or RandomState, default=None
        Seed of the folds.
    n_jobs : int, default=-1
        Number of threads, -1 for all cores; results do not depend on it.
    verbose : bool or callable (what, done, total), default=False
        Report progress on stderr, or to a function.

    Attributes
    ----------
    method_ : str
        The method in use.
    tau_, noise_variance_ : float or None
    cv_ : list of dict
        The trials of cross-validation: method, tau, noise_variance, error, folds. The error is 1 minus the mean
        cosine for directions, else the mean squared error over the variance of the known values. Parameters of "gp"
        are compared on one fold; "auto" then evaluates the best of them on all folds, as a separate trial.
    beats_mean_ : bool or None
        Whether the method predicts left-out nodes better than the mean of the known values; None without trials.
    n_known_, n_nearest_, n_empty_ : int
        Number of known nodes, of nodes that take the value of the nearest known node because the kernel does not
        reach them, and of nodes in components without a known value, which are NaN.
    residual_ : float or None
        Largest |b - A x| / |b| of the conjugate gradients of "gp": at most 1e-4, unless they stopped after 60
        iterations, which has the effect of slightly more noise.
    graph_ : Graph

    Notes
    -----
    "kernel" and "harmonic" are weighted means of known values, so results stay in their convex hull (with
    ``normalize``, before the division by the lengths); "gp" and "biharmonic" extrapolate slopes and may leave it.
    Only "harmonic" and "biharmonic" keep the known values unchanged; the other methods smooth them too.

    If all weights of "kernel" are below rounding errors, because the kernel is narrow or a hole is wide, a node
    takes the nearest known value along the edges. Components without a known value are NaN. Warnings count both.

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
        **dict.fromkeys(("tau_", "noise_variance_"), float | None),
        "cv_": list,
        "beats_mean_": bool | None,
        **dict.fromkeys(("n_known_", "n_nearest_", "n_empty_"), int),
        "residual_": float | None,
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
        noise_variance: str | float = "cv",
        random_state: SeedLike = None,
        n_jobs: int = -1,
        verbose: Any = False,
    ) -> None:
        self.method = method
        self.tau = tau
        self.weights = weights
        self.normalize = normalize
        self.noise_variance = noise_variance
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.verbose = verbose

    @all_or_nothing
    @one_blas_thread()
    def fit(self, space: Any, values: ArrayLike, known: ArrayLike | None = None) -> Self:
        """Build the graph, choose free parameters by cross-validation, and fill the field.

        Parameters
        ----------
        space : TriangleMesh, array-like of shape (n, d), or Graph
            The n vertices, points or nodes carry the field. Meshes and graphs of other libraries, and square sparse
            matrices of affinities, are accepted too.
        values : array-like of shape (n,) or (n, c)
            Rows of unknown nodes may hold anything; they are not read.
        known : bool array-like of shape (n,) or int array-like, optional
            A mask, or the indices of the nodes with known values; by default the rows without NaN.
        """
        check_option(self.method, "method", METHODS)
        check_flag(self.normalize, "normalize")
        tau = check_number_or(self.tau, "tau", "cv", Interval(0.0, WIDEST, low_open=True))
        noise = check_number_or(self.noise_variance, "noise_variance", "cv", NONNEGATIVE)
        jobs, streams = check_jobs(self.n_jobs), Streams.from_seed(self.random_state, "random_state")
        with stage_of(check_progress(self.verbose), "graph"):
            graph = graph_of(space, self.weights, jobs)
        problem = self._problem(graph, values, known, jobs)
        folds = make_folds(problem.known.mask, streams.generator("interpolation.folds"))
        chosen, tried = choose(problem, folds, Choice(self.method, tau, noise), directed=bool(self.normalize))
        self.method_ = chosen.method
        self.tau_: Any = chosen.tau  # None if the method has none
        self.noise_variance_: Any = chosen.noise_variance
        self.cv_ = [dataclasses.asdict(choice) for choice in tried]
        self.beats_mean_ = beats_mean(problem.known, chosen, directed=bool(self.normalize))
        self.graph_ = graph
        with stage_of(problem.progress, "field"):
            self._fill(problem)
        return self

    @all_or_nothing
    @one_blas_thread()
    def refit(self, values: ArrayLike, known: ArrayLike | None = None) -> Self:
        """Fill another field on the same graph with the same method, tau and noise variance.

        Nothing is chosen again, so the next frame of a sequence costs a single fill.

        Parameters
        ----------
        values, known
            As in :meth:`fit`; both may differ from the previous ones.
        """
        check_is_fitted(self, "graph_")
        with stage_of(check_progress(self.verbose), "field"):
            self._fill(self._problem(self.graph_, values, known, check_jobs(self.n_jobs)))
        return self

    def predict(self, Z: ArrayLike | None = None) -> FloatArray:
        """The field at the nodes, or at other points.

        On a mesh, values are interpolated between the corners of the nearest face, so the field is continuous and
        agrees with the values at the nodes. On other spaces a point takes the mean over one step of the walk, or
        the value of the node with which it coincides.

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
        views, field = views_of(self.graph_, queries), self._filled
        return self._output(weighted_means(lambda X: views @ X, np.nan_to_num(field.values), field.mass).values)

    def _facts(self) -> list[tuple[str, str]]:
        chosen = self.method_, self.tau_, self.noise_variance_
        names = ("method", "tau", "noise_variance")
        tried = [row for row in self.cv_ if tuple(row[name] for name in names) == chosen and row["folds"]]
        error = max(tried, key=lambda row: row["folds"])["error"] if tried else 0.0
        measure = "1 - cosine" if self.normalize else "of the variance"
        verdict = "" if self.beats_mean_ is not False else "; no better than the mean of the known values"
        rows = [
            ("graph", repr(self.graph_).removeprefix("Graph(").removesuffix(")")),
            ("method", self.method_ if self.method == self.method_ else f"{self.method_}, by cross-validation"),
            ("tau", "" if self.tau_ is None else f"{self.tau_:g}"),
            ("noise variance", "" if self.noise_variance_ is None else f"{self.noise_variance_:g}"),
            ("known nodes", f"{self.n_known_} of {self.graph_.n_nodes}"),
            ("nodes with the nearest known value", str(self.n_nearest_ or "")),
            ("nodes without a value", str(self.n_empty_ or "")),
            ("cross-validation error", f"{error:.2g} ({measure}){verdict}" if tried else ""),
        ]
        return [row for row in rows if row[1]]

    def _problem(self, graph: Graph, values: ArrayLike, known: Any, jobs: int) -> Problem:
        checked = check_known(values, known, graph.n_nodes)
        if self.normalize and checked.values.shape[1] < 2:
            reject("normalize", "False for values of one column, which have no direction", self.normalize)
        return Problem(graph, checked, jobs, check_progress(self.verbose))

    def _fill(self, problem: Problem) -> None:
        """Compute the field at all nodes, and warn about holes."""
        graph, known, residual = problem.graph, problem.known, None
        everything = known.mask[None]
        if self.method_ == "kernel":
            (field,) = fill_by_kernel(problem, everything, self.tau_)
        elif self.method_ == "gp":
            (((field,),), residual) = fill_by_gp(problem, everything, self.tau_, (self.noise_variance_,))
        else:
            try:
                (field,) = fill_by_solve(problem, everything, self.method_)
            except ArithmeticError as error:
                others = " or ".join(f"method={name!r}" for name in ("harmonic", "kernel") if name != self.method_)
                raise ValueError(
                    f"The {self.method_} system is too ill-conditioned to be solved. Causes: (a) affinities that "
                    "differ by many powers of ten, such as Gaussian ones of a mesh with very uneven edges, (b) "
                    f"needle triangles with cotangent weights. Remedies: weights='unit', {others}."
                ) from error
        self._filled, self._known = field, known
        empty = field.mass == 0
        n, parts, nearest = int(empty.sum()), len(np.unique(graph.components[empty])), field.n_nearest
        self.n_known_, self.n_nearest_, self.n_empty_ = int(known.mask.sum()), nearest, n
        self.residual_ = residual
        if n:
            warn_user(
                f"{parts} components, with {n} of {graph.n_nodes} nodes, have no known value: the field is NaN "
                "there (remedy: a known value in each, or edges between components)."
            )
        if nearest:
            warn_user(
                f"{nearest} of {graph.n_nodes} nodes are so far from all known ones that the kernel with tau = "
                f"{self.tau_:g} does not reach them: they take the value of the nearest known node along the edges "
                "(remedy: a larger tau, or method='harmonic')."
            )

    def _check_loaded(self) -> None:
        check_option(self.method_, "method_", METHODS[1:])
        n, c = self.graph_.n_nodes, self._known.values.shape[-1]
        if self._known.is_vector and c != 1:
            reject("is_vector", "False for several columns", c)
        for field in (self._known, self._filled):
            check_shape("values", field.values, (n, c))
        check_shape("mask", self._known.mask, (n,))
        check_shape("mass", self._filled.mass, (n,))

    def _output(self, rows: FloatArray) -> FloatArray:
        """Return rows in the shape of the given values, normalized if requested."""
        if self._known.is_vector:
            return np.asarray(rows[:, 0]).copy()
        if not self.normalize:
            return rows.copy()
        return directions(rows, float(row_lengths(self._known.values).max()))


def graph_of(space: Any, weights: str, n_jobs: int) -> Graph:
    """Return the graph itself, the edges of a mesh, or the nearest neighbours of points, with the given weights."""
    check_option(weights, "weights", ("unit", "gaussian", "cotangent"))
    space = translated(space, "space")
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
    if weights == "gaussian":
        return knn_graph(points, n_jobs=n_jobs)
    # A bandwidth at which no edge underflows.
    graph = knn_graph(points, bandwidth=float(np.ptp(points, axis=0).max()) ** 2 or 1.0, n_jobs=n_jobs)
    # The same edges with affinity 1; new points are joined to their neighbours with affinity 1.
    ones, extension = graph._with_entries(np.ones(graph.affinity.nnz)), graph.extension
    if isinstance(extension, NeighborExtension):
        extension = dataclasses.replace(extension, bandwidth=np.inf)  # exp(-distance^2 / inf) = 1
    return Graph(ones, graph.points, graph.metric, extension)


def views_of(graph: Graph, queries: FloatArray) -> Any:
    """Nonnegative weights of the nodes at each query, CSR (q, n_nodes).

    Barycentric weights on a mesh; otherwise one step of the walk, or the node itself for a query at a node.
    """
    if graph.mesh is not None:
        return barycentric_weights(graph.mesh, graph.mesh.closest_points(queries))
    if graph.metric is not None:
        queries = graph.metric.check(queries, "Z")  # periodic coordinates in their box
    steps = graph.extend(queries)
    distances, nodes = cKDTree(graph.positions).query(graph.placed(queries))
    there = distances == 0
    if not there.any():
        return steps
    itself = sparse.csr_array((np.ones(int(there.sum())), (np.flatnonzero(there), nodes[there])), shape=steps.shape)
    return (sparse.diags_array((~there).astype(np.float64)) @ steps + itself).tocsr()


def directions(rows: FloatArray, longest: float) -> FloatArray:
    """Divide rows by their lengths; those as short as rounding errors have no direction and become NaN."""
    lengths = row_lengths(rows)[:, None]
    return np.divide(rows, lengths, out=np.full_like(rows, np.nan), where=lengths > 1e-12 * longest)


def field_error(known: Known, stays: BoolArray, fields: Sequence[Filled], *, directed: bool) -> float:
    """Error at the known nodes that are left out of each mask; NaN if none shares its component with a known one.

    1 minus the mean cosine for directions, else the mean squared error over the variance of the known values.
    """
    outs = [known.mask & ~mask & (field.mass > 0) for mask, field in zip(stays, fields, strict=False)]
    if not any(out.any() for out in outs):
        return np.nan
    left = np.concatenate([field.values[out] for field, out in zip(fields, outs, strict=True)])
    right = np.concatenate([known.values[out] for out in outs])
    if directed:
        longest = float(row_lengths(known.values[known.mask]).max())
        cosines = (np.nan_to_num(directions(left, longest)) * directions(right, longest)).sum(axis=1)
        cosines = cosines[~np.isnan(cosines)]  # skip known rows without a direction
        return float(1.0 - cosines.mean()) if len(cosines) else np.nan
    spread = float(known.values[known.mask].var(axis=0).sum())
    return float(((left - right) ** 2).sum(axis=1).mean() / (spread or 1.0))


def beats_mean(known: Known, choice: Choice, *, directed: bool) -> bool | None:
    """Whether a choice is better than the mean of all known values; None if it was not measured."""
    if choice.error is None or np.isnan(choice.error):
        return None
    if not directed:
        return bool(choice.error < 1.0)  # over the variance
    values = known.values[known.mask]
    unit = directions(values, float(row_lengths(values).max()))
    mean_error = 1.0 - float(np.linalg.norm(np.nanmean(unit, axis=0)))
    return bool(choice.error < max(mean_error, 1e-9))  # if all known values are equal, the mean has no error either


def choose(  # noqa: C901  (one branch for each method)
    problem: Problem, stays: BoolArray, options: Choice, *, directed: bool
) -> tuple[Choice, list[Choice]]:
    """Choose the method and its parameters by cross-validation; also return all trials.

    Parameters
    ----------
    problem : Problem
    stays : bool array of shape (folds, n_nodes)
        Nodes that stay known in each fold.
    options : Choice
        The given method and parameters; parameters that are None are searched.
    directed : bool
        Whether values are directions.
    """
    method, tau, noise = options.method, options.tau, options.noise_variance
    if method == "auto" and stays.shape[1] > 50_000:  # one fold has thousands of errors; five take minutes
        stays = stays[:1]
    # The diagonal of the kernel is below 1. Noise below 1e-4 is not resolved within the cap of iterations.
    noises = (1e-4, 1e-3, 1e-2, 1e-1, 1.0) if noise is None else (noise,)

    def error(masks: BoolArray, fields: Sequence[Filled]) -> float:
        return field_error(problem.known, masks, fields, directed=directed)

    def by_kernel(tau: float) -> list[Choice]:
        with stage_of(problem.progress, f"trial of kernel, tau = {tau:g}"):
            return [Choice("kernel", tau, None, error(stays, fill_by_kernel(problem, stays, tau)), len(stays))]

    def by_gp(tau: float) -> list[Choice]:
        with stage_of(problem.progress, f"trial of gp, tau = {tau:g}"):
            tried, _ = fill_by_gp(problem, stays[:1], tau, noises)
        return [Choice("gp", tau, own, error(stays, fields), 1) for own, fields in zip(noises, tried, strict=True)]

    def by_solve(method: str) -> Choice:
        try:
            with stage_of(problem.progress, f"trial of {method}"):
                return Choice(method, error=error(stays, fill_by_solve(problem, stays, method)), folds=len(stays))
        except ArithmeticError:  # the system cannot be solved
            return Choice(method, error=np.inf, folds=len(stays))

    if not len(stays):  # a single known value, which all methods return
        return _unmeasured(options), []
    if method == "auto":
        tried = by_kernel(tau) if tau is not None else _scan(by_kernel)
        finals = [_best_of(tried, Choice("kernel", tau)), by_solve("harmonic"), by_solve("biharmonic")]
        tried += finals[1:]
        if stays.shape[1] <= GP_NODES:
            trials = by_gp(tau) if tau is not None else _scan(by_gp)
            best = _best_of(trials, Choice("gp", tau, noise))
            ((fields,), _) = fill_by_gp(problem, stays, best.tau, (best.noise_variance,))  # type: ignore[arg-type]
            finals.append(dataclasses.replace(best, error=error(stays, fields), folds=len(stays)))
            tried += [*trials, finals[-1]]
        return _best_of(finals, options), tried
    if method == "gp" and None in (tau, noise):
        tried = by_gp(tau) if tau is not None else _scan(by_gp)
    elif method == "kernel" and tau is None:
        tried = _scan(by_kernel)
    else:
        return _unmeasured(options), []
    return dataclasses.replace(_best_of(tried, options), method=method), tried


def _best_of(choices: Sequence[Choice], options: Choice) -> Choice:
    """The choice with the smallest error; if none was measured, the given options with any parameters."""
    measured = [choice for choice in choices if choice.error is not None and not np.isnan(choice.error)]
    return min(measured, key=lambda choice: float(choice.error or 0.0)) if measured else _unmeasured(options)


def _unmeasured(options: Choice) -> Choice:
    """A choice without measurements: if each component has one known value, all methods return it."""
    method = "harmonic" if options.method == "auto" else options.method
    tau = (options.tau or 1.0) if method in ("kernel", "gp") else None
    noise = (1e-3 if options.noise_variance is None else options.noise_variance) if method == "gp" else None
    return Choice(method, tau, noise)


def _scan(measure: Callable[[float], list[Choice]]) -> list[Choice]:
    """Errors for tau = 1/4, ..., 128, by factors of 2, continued while the best is at an end."""
    tried = {k: measure(2.0**k) for k in range(-2, 8)}

    def is_best(k: int) -> bool:
        best = _best_of([choice for choices in tried.values() for choice in choices], Choice("kernel"))
        return best.error is not None and best.tau == 2.0**k

    while is_best(k := min(tried)) and k > -10:  # below, only nearest values are left
        tried[k - 1] = measure(2.0 ** (k - 1))
    while is_best(k := max(tried)) and k < 19:  # above, one mean for each component
        tried[k + 1] = measure(2.0 ** (k + 1))
    return [choice for k in sorted(tried) for choice in tried[k]]


def check_known(values: ArrayLike, known: Any, n_nodes: int, name: str = "values") -> Known:
    """Check values, and the mask or nodes where they are known.

    Parameters
    ----------
    values : array-like of shape (n_nodes,) or (n_nodes, c)
        Rows of unknown nodes may hold anything.
    known : bool array-like of shape (n_nodes,), int array-like, or None
        None: the rows without NaN.
    name : str
        Name of the values in errors.
    """
    if np.ma.is_masked(values):
        reject(name, f"without a mask of its own; give `known=~{name}.mask`", "a masked array", TypeError)
    rows = as_floats(values, name)
    if rows.ndim not in (1, 2) or len(rows) != n_nodes or rows.size == 0:
        rule = f"an array of shape ({n_nodes},) or ({n_nodes}, c), one row per node"
        reject(name, rule, f"shape {rows.shape}")
    rows = rows.reshape(n_nodes, -1)
    mask = np.asarray(~np.isnan(rows).any(axis=1)) if known is None else _check_mask(known, n_nodes)
    if not mask.any():
        raise ValueError("No value is known: `known` must name at least one node, or one row must be without NaN.")
    finite = np.zeros_like(rows)
    finite[mask] = check_columns(rows[mask], f"{name}[known]", int(mask.sum()))
    return Known(finite, mask, np.ndim(values) == 1)


def _check_mask(known: Any, n_nodes: int) -> BoolArray:
    """Return a mask, given a mask or node indices."""
    given = as_array(known, "known")
    if given.size == 0:
        return np.zeros(n_nodes, dtype=bool)
    if given.dtype.kind != "b":
        if given.dtype.kind not in "iu":
            reject("known", "a mask of booleans or node indices", f"dtype {given.dtype}", TypeError)
        mask = np.zeros(n_nodes, dtype=bool)
        nodes = check_indices(given, "known", n_nodes)
        mask[nodes] = True
        if mask.sum() < len(nodes):  # most likely a mask of the numbers 0 and 1
            rule = "a mask of booleans (`known.astype(bool)` converts 0 and 1), or distinct node indices"
            reject("known", rule, f"{len(nodes)} indices with repetitions")
        return mask
    if given.shape != (n_nodes,):
        reject("known", f"a mask of shape ({n_nodes},)", f"shape {given.shape}")
    return given


def make_folds(mask: BoolArray, rng: np.random.Generator) -> BoolArray:
    """Masks of the nodes that stay known when each fold in turn is left out, shape (folds, n_nodes).

    Five folds keep 4/5 of the density. Fewer than five known nodes are one fold each; a single one gives none.
    """
    nodes = np.flatnonzero(mask)
    count = min(5, len(nodes)) if len(nodes) > 1 else 0
    stays = np.tile(mask, (count, 1))
    for fold, part in enumerate(np.array_split(rng.permutation(nodes), count) if count else ()):
        stays[fold, part] = False
    return stays


def reached(graph: Graph, mask: BoolArray) -> BoolArray:
    """Whether the component of each node has a known value, shape (n_nodes,)."""
    has_known = np.zeros(graph.n_components, dtype=bool)
    has_known[graph.components[mask]] = True
    return np.asarray(has_known[graph.components])


def nearest_known(graph: Graph, mask: BoolArray) -> IntArray:
    """The nearest known node of each node along the edges, shape (n_nodes,); -1 if no path leads to one.

    Edges have their lengths; without points every edge has length 1.
    """
    edges = graph._with_entries(np.ones(graph.affinity.nnz)) if graph.points is None else graph.lengths
    sources = np.flatnonzero(mask)
    found = csgraph.dijkstra(edges, indices=sources, min_only=True, return_predecessors=True)[2]
    return np.where(found < 0, -1, found).astype(np.int64)


def fill_by_kernel(problem: Problem, stays: BoolArray, tau: float) -> list[Filled]:
    """K(m u) / (K m) for every mask m of ``stays`` (folds, n_nodes), all in one action of the kernel."""
    values, (n_folds, n) = problem.known.values, stays.shape
    action = problem.kernel_action(tau)

    def stacked(columns: FloatArray) -> FloatArray:
        """Apply the action to folds stacked below each other, (folds n, c), as one action on (n, folds c)."""
        width = columns.shape[1]
        wide = columns.reshape(n_folds, -1, width).swapaxes(0, 1).reshape(-1, n_folds * width)
        return action(wide).reshape(-1, n_folds, width).swapaxes(0, 1).reshape(-1, width)

    found = weighted_means(stacked, np.tile(values, (n_folds, 1)), stays.ravel().astype(np.float64))
    means, masses = found.values.reshape(n_folds, n, -1), found.mass.reshape(n_folds, n)
    # Weights above 1e4 times the error of the action give means accurate to 1e-4 of the spread, mostly to 1e-8.
    floors = 1e4 * _tolerance(tau) * np.sqrt(stays.sum(axis=1))
    return [finish_means(problem, *parts) for parts in zip(stays, means, masses, floors, strict=True)]


def _tolerance(tau: float) -> float:
    """Error of the kernel's action in double precision, relative to the norm of a column."""
    return 1e-12 if tau <= 1024 else 1e-10


def finish_means(problem: Problem, mask: BoolArray, means: FloatArray, mass: FloatArray, floor: float) -> Filled:
    """Clip means to the range of the known values; where the mass is at most ``floor``, take the nearest value.

    Means are accurate to 1e-4 of the spread of all values, but one component may have a smaller spread.
    """
    known, inside = problem.known, reached(problem.graph, mask)
    lost = inside & ~(mass > floor)
    values = np.where(inside[:, None], known.within(means, problem.graph, mask), np.nan)
    if lost.any():
        values[lost] = known.values[nearest_known(problem.graph, mask)[lost]]
    counts = np.bincount(problem.graph.components[mask], minlength=problem.graph.n_components)
    several = counts[problem.graph.components] > 1  # with one known value the nearest is the exact answer
    share = np.where(inside, np.maximum(mass, max(floor, np.finfo(np.float64).tiny)), 0.0)
    return Filled(values, share, int((lost & several).sum()))


def fill_by_solve(problem: Problem, stays: BoolArray, method: str) -> list[Filled]:
    """Harmonic or biharmonic field with the values of each mask of ``stays`` fixed."""
    known, graph = problem.known, problem.graph
    system = system_of(graph, method)
    fields = []
    for mask in stays:
        inside = reached(graph, mask)
        values = solve_with_fixed(system, known.values, mask, inside & ~mask)
        if method == "harmonic":
            values = known.within(values, graph, mask)
        fields.append(Filled(values, inside.astype(np.float64)))
    return fields


def fill_by_gp(
    problem: Problem, stays: BoolArray, tau: float, noises: tuple[float, ...]
) -> tuple[list[list[Filled]], float]:
    """Mean of a Gaussian process, u0 + K_nk (K_kk + noise I)^-1 (u_k - u0): fields for every noise and mask.

    u0 is the mean of the known values of a component. All systems run side by side in one action: the columns of a
    fold are zero at its unknown nodes, and the kernel is restricted to its mask. The largest residual is returned
    as well; 1e-4 does not change the third digit of a prediction, and most runs reach the cap first.
    """
    graph, known = problem.graph, problem.known
    n_folds, n_noises, width = len(stays), len(noises), known.values.shape[1]
    means = np.zeros((graph.n_nodes, n_folds, width))
    for fold, mask in enumerate(stays):
        own = graph.components[mask]
        totals = [np.bincount(own, column, minlength=graph.n_components) for column in known.values[mask].T]
        with np.errstate(invalid="ignore"):  # NaN in components without a known value
            found = np.stack(totals, axis=1) / np.bincount(own, minlength=graph.n_components)[:, None]
        means[:, fold] = found[graph.components]
    masks = stays.T[:, :, None].astype(np.float64)  # (n, folds, 1)
    right = masks * (known.values[:, None] - np.nan_to_num(means))  # (n, folds, c)
    wide = np.tile(right.reshape(len(right), -1), (1, n_noises))  # (n, noises folds c)
    cut = np.tile(np.repeat(masks[:, :, 0], width, axis=1), (1, n_noises))
    shift = np.repeat(noises, n_folds * width)
    action = problem.kernel_action(tau)
    solution, residual = conjugate_gradients(
        lambda X, at: cut[:, at] * action(X) + shift[at] * X, wide, tol=1e-4, max_iterations=60
    )
    fields = action(solution).reshape(-1, n_noises, n_folds, width) + means[:, None]
    inside = [reached(graph, mask).astype(np.float64) for mask in stays]
    return [[Filled(fields[:, i, k], inside[k]) for k in range(n_folds)] for i in range(n_noises)], residual


def weighted_means(action: Action, values: FloatArray, share: FloatArray | None = None) -> Smoothed:
    """Average values with the weights of a kernel. Constants are kept; with nonnegative weights, also the range.

    Parameters
    ----------
    action : callable
        X of shape (n, 1 + c) -> K X of shape (q, 1 + c).
    values : array of shape (n, c)
        Finite values at the sources.
    share : array of shape (n,), optional
        Weight of each source, for example 1 where its value is known and 0 elsewhere; all 1 by default.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.applications.interpolation import weighted_means
    >>> kernel = np.array([[1.0, 0.5, 0.0], [0.0, 0.5, 1.0]])
    >>> weighted_means(lambda X: kernel @ X, np.array([[3.0], [0.0], [9.0]])).values.ravel().tolist()
    [2.0, 6.0]
    """
    weights = np.ones(len(values)) if share is None else share
    found = np.asarray(action(np.column_stack([weights, weights[:, None] * values])))  # (q, 1 + c)
    mass = found[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.where(mass[:, None] != 0, found[:, 1:] / mass[:, None], np.nan)
    return Smoothed(means, mass)


def system_of(graph: Graph, method: str) -> tuple[Any, Action]:
    """The symmetric matrix of the harmonic (L = D - A) or biharmonic (L M^-1 L) system of a graph, and its action.

    M is the mass of the nodes, 1 without weights. The matrix, CSR, is for the factorisation. The action, (n, c) ->
    (n, c), is computed from differences along edges: the diagonal of the matrix is a rounded sum of affinities that
    hides small ones, so products with the matrix itself are wrong where neighbours are nearly equal.
    """
    off = graph.affinity - sparse.diags_array(graph.affinity.diagonal())
    degrees = np.asarray(off.sum(axis=1)).ravel()  # not D minus the loops, which would round
    matrix = (sparse.diags_array(degrees) - off).tocsr()
    edges = graph.affinity.tocoo()
    start, end = edges.coords

    def action(field: FloatArray) -> FloatArray:
        sums = [np.bincount(start, edges.data * (x[start] - x[end]), minlength=len(x)) for x in field.T]
        return np.stack(sums, axis=1)

    if method == "harmonic":
        return matrix, action
    inverse = np.ones(graph.n_nodes)
    if graph.weights is not None:  # in units of the mean: masses of a tiny mesh would overflow the product
        inverse = reciprocal(graph.weights / graph.weights[graph.weights > 0].mean())
    product = (matrix @ sparse.diags_array(inverse) @ matrix).tocsr()
    return product, lambda field: action(inverse[:, None] * action(field))


def solve_with_fixed(
    system: tuple[Any, Action], values: FloatArray, fixed: BoolArray, free: BoolArray
) -> FloatArray:
    """The field u with (matrix u) = 0 at free nodes and the given values at fixed ones.

    Parameters
    ----------
    system : tuple (matrix, action)
        From :func:`system_of`. Positive definite on the free nodes.
    values : array of shape (n, c)
        Only the values at fixed nodes are used.
    fixed, free : bool arrays of shape (n,)
        Nodes that are neither are NaN in the result.

    Raises
    ------
    ArithmeticError
        If the matrix is too ill-conditioned for double precision.
    """
    result = np.full_like(values, np.nan)
    result[fixed] = values[fixed]
    inside = np.flatnonzero(free)
    if not len(inside):
        return result
    field = np.where(fixed[:, None], values, 0.0)

    def residual(found: FloatArray) -> FloatArray:
        field[inside] = found
        return np.asarray(-system[1](field)[inside])

    size = np.abs(values[fixed]).max(axis=0, initial=0.0)
    result[inside] = solve_positive(system[0][inside][:, inside].tocsr(), residual, size)
    return result


def solve_positive(matrix: Any, residual: Callable[[FloatArray], FloatArray], size: FloatArray) -> FloatArray:
    """Solve a sparse, symmetric, positive definite system, shape (n, c), by LU factors and iterative refinement.

    Parameters
    ----------
    matrix : CSR array of shape (n, n)
    residual : callable
        x -> b - A x, shape (n, c). It defines the solution; the matrix may be rounded.
    size : array of shape (c,)
        Scale of each column. Corrections are compared with it and with the solution, which may be zero.
    """
    # A unit diagonal: affinities may differ by many powers of ten, and pivots are taken from the diagonal.
    scale = np.sqrt(reciprocal(matrix.diagonal()))
    scaled = sparse.csc_array((scaled_both_ends(matrix, scale), matrix.indices, matrix.indptr), shape=matrix.shape)
    if not np.isfinite(scaled.data).all() or not scale.all():
        raise ArithmeticError("The diagonal underflows.")
    symmetric = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    try:
        factors = linalg.splu(scaled, **symmetric)
    except RuntimeError as error:  # SuperLU: "Factor is exactly singular"
        raise ArithmeticError("The matrix is numerically singular.") from error
    found, last = np.zeros((matrix.shape[0], len(size))), np.full(len(size), np.inf)
    for _ in range(60):  # usually two or three; 60 halvings reach the last bit
        step = scale[:, None] * factors.solve(scale[:, None] * residual(found))
        change = np.abs(step).max(axis=0)
        better = change < 0.5 * last  # False for NaN
        if not better.any():
            break
        found[:, better] += step[:, better]
        last = np.where(better, change, last)
    # Corrections that no longer halve are still large: the affinities differ too much for the factorisation.
    if not (last <= 1e-8 * np.maximum(size, np.abs(found).max(axis=0))).all():
        raise ArithmeticError("The matrix is too ill-conditioned for double precision.")
    return found


def conjugate_gradients(
    action: Callable[[FloatArray, IntArray], FloatArray], right: FloatArray, *, tol: float, max_iterations: int
) -> tuple[FloatArray, float]:
    """Solve A_j x_j = b_j for every column j, all in one action, and return the largest residual |b - A x| / |b|.

    Parameters
    ----------
    action : callable
        X of shape (n, k), columns (k,) -> A_j x_j of shape (n, k), with symmetric positive semidefinite A_j.
    right : array of shape (n, c)
        The b_j.
    tol : float
        A column is finished when its residual is at most ``tol`` times its right-hand side.
    max_iterations : int
        Cap on the number of steps. Stopping early smooths the solution, like more noise.
    """
    solution, residual, direction = np.zeros_like(right), right.copy(), right.copy()
    squared = _dots(right, right)
    start = np.where(squared > 0, squared, 1.0)
    positive = np.ones(right.shape[1], dtype=bool)
    iterations = 0
    while iterations < max_iterations and len(at := np.flatnonzero((squared > tol**2 * start) & positive)):
        along = direction[:, at]
        product = action(along, at)
        curvature = _dots(along, product)
        positive[at] = curvature > 0
        length = np.divide(squared[at], curvature, out=np.zeros(len(at)), where=curvature > 0)
        solution[:, at] += length * along
        residual[:, at] -= length * product
        now = _dots(residual[:, at], residual[:, at])
        direction[:, at] = residual[:, at] + (now / squared[at]) * along
        squared[at] = now
        iterations += 1
    return solution, float(np.sqrt((squared / start).max(initial=0.0)))


def _dots(first: FloatArray, second: FloatArray) -> FloatArray:
    """Inner products of the columns, shape (c,), in an order of summation that does not depend on threads."""
    return np.asarray(np.einsum("nc,nc->c", first, second))
