"""What is known of a field on a graph: values at some nodes, checked, and what follows from where they are."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csgraph, linalg

from manifoldrf._validation import FloatArray, IntArray, as_array, as_floats, check_columns, check_indices, reject
from manifoldrf.geometry.csr import reciprocal, scaled_both_ends
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels.graph_kernels import DiffusionKernel

BoolArray = NDArray[np.bool_]

# Parts of the known nodes that are left out in turn. With 5, what is left is 4/5 as dense as what was given.
N_FOLDS = 5


@dataclass(frozen=True, eq=False)
class Known:
    """Values at some nodes of a graph.

    Attributes
    ----------
    values : array of shape (n_nodes, c)
        Zero where unknown, whatever the caller had there.
    mask : bool array of shape (n_nodes,)
        Where they are known.
    is_vector : bool
        Whether they were given as a vector, and are to be given back as one.
    """

    values: FloatArray
    mask: BoolArray
    is_vector: bool

    @property
    def nodes(self) -> IntArray:
        """The known nodes, sorted."""
        return np.flatnonzero(self.mask)

    def within(self, field: FloatArray, graph: Graph, mask: BoolArray) -> FloatArray:
        """A field of shape (n_nodes, c) cut to the range of the values that a mask leaves to each component."""
        shape, at = (graph.n_components, self.values.shape[1]), graph.components[mask]
        low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
        np.minimum.at(low, at, self.values[mask])
        np.maximum.at(high, at, self.values[mask])
        return np.asarray(np.clip(field, low[graph.components], high[graph.components]))


def check_known(values: ArrayLike, known: Any, n_nodes: int) -> Known:
    """Check values and the mask or the nodes that say where they are known.

    Parameters
    ----------
    values : array-like of shape (n_nodes,) or (n_nodes, c)
        Rows of unknown nodes may hold anything.
    known : bool array-like of shape (n_nodes,), int array-like, or None
        None: the rows without NaN.
    """
    if np.ma.is_masked(values):
        reject("values", "without a mask of its own; give `known=~values.mask`", "a masked array", TypeError)
    rows = _check_rows(values, n_nodes)
    mask = np.asarray(~np.isnan(rows).any(axis=1)) if known is None else _check_mask(known, n_nodes)
    if not mask.any():
        raise ValueError("No value is known: `known` must name one node at least, or one row be without NaN.")
    finite = np.zeros_like(rows)
    finite[mask] = check_columns(rows[mask], "values[known]", int(mask.sum()))
    return Known(finite, mask, np.ndim(values) == 1)


def _check_rows(values: ArrayLike, n_nodes: int) -> FloatArray:
    """Values as columns of floats, NaN allowed."""
    rows = as_floats(values, "values")
    if rows.ndim not in (1, 2) or len(rows) != n_nodes or rows.size == 0:
        reject(
            "values", f"an array of shape ({n_nodes},) or ({n_nodes}, c), one row per node", f"shape {rows.shape}"
        )
    return rows.reshape(n_nodes, -1)


def _check_mask(known: Any, n_nodes: int) -> BoolArray:
    """A mask, from a mask or from nodes."""
    given = as_array(known, "known")
    if given.size == 0:
        return np.zeros(n_nodes, dtype=bool)
    if given.dtype.kind != "b":
        if given.dtype.kind not in "iu":
            reject("known", "a mask of booleans or node indices", f"dtype {given.dtype}", TypeError)
        mask = np.zeros(n_nodes, dtype=bool)
        nodes = check_indices(given, "known", n_nodes)
        mask[nodes] = True
        if mask.sum() < len(nodes):  # most often a mask of the numbers 0 and 1
            rule = "a mask of booleans (`known.astype(bool)` makes one of 0 and 1), or node indices that differ"
            reject("known", rule, f"{len(nodes)} with repetitions")
        return mask
    if given.shape != (n_nodes,):
        reject("known", f"a mask of shape ({n_nodes},)", f"shape {given.shape}")
    return given


def reached(graph: Graph, mask: BoolArray) -> BoolArray:
    """Whether the component of each node has a known value, shape (n_nodes,)."""
    has_known = np.zeros(graph.n_components, dtype=bool)
    has_known[graph.components[mask]] = True
    return np.asarray(has_known[graph.components])


def nearest_known(graph: Graph, mask: BoolArray) -> IntArray:
    """The nearest known node of each node along the edges, shape (n_nodes,); -1 where no path leads to one.

    Edges have their lengths; without points each counts 1.
    """
    if graph.points is None:
        affinity = graph.affinity
        edges = sparse.csr_array((np.ones(affinity.nnz), affinity.indices, affinity.indptr), shape=affinity.shape)
    else:
        edges = graph.lengths
    found = csgraph.dijkstra(
        edges, directed=True, indices=np.flatnonzero(mask), min_only=True, return_predecessors=True
    )[2]
    return np.where(found < 0, -1, found).astype(np.int64)


def make_folds(mask: BoolArray, rng: np.random.Generator) -> BoolArray:
    """Masks of what stays known when each part in turn is left out, shape (folds, n_nodes).

    There are as many parts as known nodes where these are fewer than five; a single known node leaves no fold.
    """
    nodes = np.flatnonzero(mask)
    count = min(N_FOLDS, len(nodes)) if len(nodes) > 1 else 0
    stays = np.tile(mask, (count, 1))
    for fold, part in enumerate(np.array_split(rng.permutation(nodes), count) if count else ()):
        stays[fold, part] = False
    return stays


# A solve is corrected until corrections no longer halve. Where that happens early they are as large as the error:
# affinities differ so much that the factors know nothing of the small ones.
_ROUNDS = 60  # two or three as a rule; so many halve an error to the last bit
_WORST_CORRECTION = 1e-8  # of the largest value


@dataclass(frozen=True)
class SolverReport:
    """How an iterative solver ended.

    Attributes
    ----------
    iterations : int
        Steps taken.
    residual : float
        Largest |b - A x| / |b| over the columns.
    stopped_by : {"tolerance", "cap", "rounding"}
        "rounding": the matrix is no longer positive along a search direction.
    """

    iterations: int
    residual: float
    stopped_by: str


@dataclass(frozen=True)
class System:
    """A symmetric matrix of a graph, for factors, and what it does to a field, for corrections.

    Attributes
    ----------
    matrix : CSR array of shape (n, n)
    action : callable
        (n, c) -> (n, c), the products with the matrix, from differences along edges. A diagonal is a rounded sum of
        affinities, which hides the small ones: products with it are wrong where neighbours are nearly equal.
    """

    matrix: Any
    action: Callable[[FloatArray], FloatArray]


def laplacian(graph: Graph) -> Any:
    """L = D - A, CSR; loops cancel, rows sum to zero. On a cotangent graph the cotangent matrix times the step."""
    off = graph.affinity - sparse.diags_array(graph.affinity.diagonal())
    degrees = np.asarray(off.sum(axis=1)).ravel()  # not D minus the loops, which would round
    return (sparse.diags_array(degrees) - off).tocsr()


def bilaplacian(graph: Graph) -> Any:
    """L M^-1 L, CSR, with the mass M of the nodes where the graph knows it, else 1."""
    first = laplacian(graph)
    return (first @ sparse.diags_array(_inverse_mass(graph)) @ first).tocsr()


def _inverse_mass(graph: Graph) -> FloatArray:
    if graph.weights is None:
        return np.ones(graph.n_nodes)
    # In units of the mean: masses of a tiny mesh would overflow the product.
    return reciprocal(graph.weights / graph.weights[graph.weights > 0].mean())


def harmonic(graph: Graph) -> System:
    """The system of fields that are the mean of their neighbours."""
    return System(laplacian(graph), _differences(graph))


def biharmonic(graph: Graph) -> System:
    """The system of fields whose Laplacian is harmonic."""
    first, inverse = _differences(graph), _inverse_mass(graph)[:, None]
    return System(bilaplacian(graph), lambda field: first(inverse * first(field)))


def _differences(graph: Graph) -> Callable[[FloatArray], FloatArray]:
    """The Laplacian as the sum of affinities times differences to neighbours."""
    edges = graph.affinity.tocoo()
    start, end = edges.coords

    def action(field: FloatArray) -> FloatArray:
        sums = [np.bincount(start, edges.data * (x[start] - x[end]), minlength=len(x)) for x in field.T]
        return np.stack(sums, axis=1)

    return action


def solve_with_fixed(
    system: System, values: FloatArray, fixed: NDArray[np.bool_], free: NDArray[np.bool_]
) -> FloatArray:
    """The field u with (matrix u) = 0 at free nodes and the given values at fixed ones.

    Parameters
    ----------
    system : System
        Positive definite on the free nodes.
    values : array of shape (n, c)
        Read at the fixed nodes.
    fixed, free : bool arrays of shape (n,)
        Nodes that are neither stay NaN.

    Raises
    ------
    ArithmeticError
        If the matrix is too ill-conditioned for doubles.
    """
    result = np.full_like(values, np.nan)
    result[fixed] = values[fixed]
    inside = np.flatnonzero(free)
    if not len(inside):
        return result
    field = np.where(fixed[:, None], values, 0.0)

    def residual(found: FloatArray) -> FloatArray:
        field[inside] = found
        return np.asarray(-system.action(field)[inside])

    size = np.abs(values[fixed]).max(axis=0, initial=0.0)
    result[inside] = solve_positive(system.matrix[inside][:, inside].tocsr(), residual, size)
    return result


def solve_positive(matrix: Any, residual: Callable[[FloatArray], FloatArray], size: FloatArray) -> FloatArray:
    """Solve a sparse, symmetric, positive definite system, shape (n, c), by factors in a symmetric order.

    Parameters
    ----------
    matrix : CSR array of shape (n, n)
    residual : callable
        x -> b - A x, shape (n, c). It says what the solution is; the matrix may be rounded.
    size : array of shape (c,)
        What corrections of each column are measured by, beside the solution itself: that may be zero.
    """
    # A unit diagonal: affinities may differ by many powers of ten, and pivots are taken from the diagonal.
    scale = np.sqrt(reciprocal(matrix.diagonal()))
    scaled = sparse.csc_array((scaled_both_ends(matrix, scale), matrix.indices, matrix.indptr), shape=matrix.shape)
    if not np.isfinite(scaled.data).all() or not scale.all():
        raise ArithmeticError("The diagonal underflows.")
    try:
        factors = linalg.splu(
            scaled, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
    except RuntimeError as error:  # SuperLU: "Factor is exactly singular"
        raise ArithmeticError("The matrix is singular to rounding.") from error
    found, last = np.zeros((matrix.shape[0], len(size))), np.full(len(size), np.inf)
    for _ in range(_ROUNDS):
        step = scale[:, None] * factors.solve(scale[:, None] * residual(found))
        change = np.abs(step).max(axis=0)
        better = change < 0.5 * last  # never of NaN, which is no solution either
        if not better.any():
            break
        found[:, better] += step[:, better]
        last = np.where(better, change, last)
    if not (last <= _WORST_CORRECTION * np.maximum(size, np.abs(found).max(axis=0))).all():
        raise ArithmeticError("The matrix is too ill-conditioned for doubles.")
    return found


def conjugate_gradients(
    action: Callable[[FloatArray, IntArray], FloatArray], right: FloatArray, *, tol: float, max_iterations: int
) -> tuple[FloatArray, SolverReport]:
    """Solve A_j x_j = b_j for every column j, all in one action; those that have converged take no further part.

    Parameters
    ----------
    action : callable
        X of shape (n, k), columns (k,) -> the products A_j x_j, shape (n, k), for symmetric A_j that are positive
        semidefinite.
    right : array of shape (n, c)
        The b_j.
    tol : float
        A column is done when its residual is ``tol`` of its right-hand side.
    max_iterations : int
        Steps after which the best is taken as it is: early stopping smooths, as noise does.
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
    worst = float(np.sqrt((squared / start).max(initial=0.0)))
    stopped_by = "tolerance" if worst <= tol else ("cap" if positive.all() else "rounding")
    return solution, SolverReport(iterations, worst, stopped_by)


def _dots(first: FloatArray, second: FloatArray) -> FloatArray:
    """Inner products of the columns, shape (c,), summed in one order whatever the threads."""
    return np.asarray(np.einsum("nc,nc->c", first, second))


# Columns at the sources to columns at the targets: X -> K X, without K.
Action = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Weighted means of known values.

    Attributes
    ----------
    values : array of shape (q, c)
        NaN where nothing known has weight.
    mass : array of shape (q,)
        Sum of the weights; with signed features it may be negative.
    """

    values: FloatArray
    mass: FloatArray


def smooth(action: Action, values: FloatArray, share: FloatArray | None = None) -> Smoothed:
    """Means of known values by the weights of a kernel; constants are reproduced.

    With nonnegative weights no mean leaves the range of the values.

    Parameters
    ----------
    action : callable
        X of shape (n, 1 + c) -> K X of shape (q, 1 + c).
    values : array of shape (n, c)
        At the sources; those of sources without a share count for nothing, but must be finite.
    share : array of shape (n,), optional
        Weight of each source, such as 1 where its value is known and 0 elsewhere; all 1 by default.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.applications.filling import smooth
    >>> kernel = np.array([[1.0, 0.5, 0.0], [0.0, 0.5, 1.0]])
    >>> smooth(lambda X: kernel @ X, np.array([[3.0], [0.0], [9.0]])).values.ravel().tolist()
    [2.0, 6.0]
    """
    weights = np.ones(len(values)) if share is None else share
    found = np.asarray(action(np.column_stack([weights, weights[:, None] * values])))  # (q, 1 + c)
    mass = found[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.where(mass[:, None] != 0, found[:, 1:] / mass[:, None], np.nan)
    return Smoothed(means, mass)


def without_small(rows: Any, cut: float) -> Any:
    """CSR features without the entries below ``cut`` times the largest of their row.

    A mean moves by about as much, relative to the spread of the values.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from manifoldrf.applications.filling import without_small
    >>> without_small(sparse.csr_array(np.array([[1.0, 1e-4], [1e-4, 1e-4]])), 1e-3).nnz
    3
    """
    lengths = np.diff(rows.indptr)
    largest = np.zeros(rows.shape[0])
    largest[lengths > 0] = np.maximum.reduceat(rows.data, rows.indptr[:-1][lengths > 0]) if rows.nnz else 0.0
    return entries_where(rows, rows.data >= cut * np.repeat(largest, lengths))


def entries_where(rows: Any, keep: NDArray[np.bool_]) -> Any:
    """A CSR array with some of its stored entries."""
    ends = np.concatenate([[0], np.cumsum(keep)])[rows.indptr]
    return sparse.csr_array((rows.data[keep], rows.indices[keep], ends), shape=rows.shape)


def feature_action(left: Any, right: Any) -> Action:
    """K X = left (right^T X) for features of targets (q, m) and sources (n, m), dense or CSR: linear time."""
    return lambda X: np.asarray(left @ (right.T @ X))


# The action is off by at most this, times the norm of the column. Wide kernels, which reach everywhere anyway,
# cannot be expanded to more than 1e-10 in doubles.
_ACTION_TOL, _WIDE_ACTION_TOL, _WIDE = 1e-12, 1e-10, 1024.0
# A mass counts where it is so many times that error: the mean is then right to 1e-4 of the spread, mostly to 1e-8.
_RESOLVED = 1e4
WIDEST = 1e6  # the action takes 7000 products there, and beyond does not converge

# Conjugate gradients: residuals of 1e-4 change no third digit of a prediction, and most runs end at the cap before
# (which smooths as a little more noise would).
GP_TOL = 1e-4
GP_ITERATIONS = 60


@dataclass(frozen=True, eq=False)
class Problem:
    """What is to be filled: known values on a graph, by so many threads."""

    graph: Graph
    known: Known
    n_jobs: int

    def kernel_action(self, tau: float) -> Action:
        """X -> exp(-tau L) X, without the matrix."""
        kernel, graph, n_jobs = DiffusionKernel(tau), self.graph, self.n_jobs
        return lambda X: kernel.apply(graph, X, tol=_tolerance(tau), n_jobs=n_jobs)


@dataclass(frozen=True, eq=False)
class Filled:
    """A field at all nodes.

    Attributes
    ----------
    values : array of shape (n_nodes, c)
        NaN in components without a known value.
    mass : array of shape (n_nodes,)
        How much each node counts where the field is mixed between nodes; zero where it is NaN.
    n_nearest : int
        Nodes that have the value of the nearest known node, because the kernel does not reach them.
    """

    values: FloatArray
    mass: FloatArray
    n_nearest: int = 0


def _tolerance(tau: float) -> float:
    """What the action is asked for."""
    return _ACTION_TOL if tau <= _WIDE else _WIDE_ACTION_TOL


def side_by_side(action: Action, n_folds: int) -> Action:
    """The action on folds that stand below each other, (folds n, c), as one action on (n, folds c)."""

    def stacked(columns: FloatArray) -> FloatArray:
        width = columns.shape[1]
        wide = columns.reshape(n_folds, -1, width).swapaxes(0, 1).reshape(-1, n_folds * width)
        return action(wide).reshape(-1, n_folds, width).swapaxes(0, 1).reshape(-1, width)

    return stacked


def fill_by_kernel(problem: Problem, stays: BoolArray, tau: float) -> list[Filled]:
    """K(m u) / (K m) for every mask m of ``stays`` (folds, n_nodes), all in one action."""
    values, (n_folds, n) = problem.known.values, stays.shape
    action = side_by_side(problem.kernel_action(tau), n_folds)
    found = smooth(action, np.tile(values, (n_folds, 1)), stays.ravel().astype(np.float64))
    means, masses = found.values.reshape(n_folds, n, -1), found.mass.reshape(n_folds, n)
    floors = _RESOLVED * _tolerance(tau) * np.sqrt(stays.sum(axis=1))
    return [finish_means(problem, *parts) for parts in zip(stays, means, masses, floors, strict=True)]


def finish_means(problem: Problem, mask: BoolArray, means: FloatArray, mass: FloatArray, floor: float) -> Filled:
    """Means with the nearest known value where the mass is at most ``floor``, within the range of what is known.

    A mean is off by 1e-4 of the spread of all values at most; a component of its own may have a smaller one.
    """
    known, inside = problem.known, reached(problem.graph, mask)
    lost = inside & ~(mass > floor)
    values = np.where(inside[:, None], known.within(means, problem.graph, mask), np.nan)
    if lost.any():
        values[lost] = known.values[nearest_known(problem.graph, mask)[lost]]
    counts = np.bincount(problem.graph.components[mask], minlength=problem.graph.n_components)
    several = counts[problem.graph.components] > 1  # the nearest of one known value is no makeshift
    share = np.where(inside, np.maximum(mass, max(floor, np.finfo(np.float64).tiny)), 0.0)
    return Filled(values, share, int((lost & several).sum()))


def fill_by_solve(problem: Problem, stays: BoolArray, method: str) -> list[Filled]:
    """Harmonic or biharmonic field with the values of each mask of ``stays`` fixed."""
    system = harmonic(problem.graph) if method == "harmonic" else biharmonic(problem.graph)
    return [_solved(problem, mask, system, keep_range=method == "harmonic") for mask in stays]


def _solved(problem: Problem, mask: BoolArray, system: System, *, keep_range: bool) -> Filled:
    known, inside = problem.known, reached(problem.graph, mask)
    values = solve_with_fixed(system, known.values, mask, inside & ~mask)
    cut = known.within(values, problem.graph, mask) if keep_range else values
    return Filled(cut, inside.astype(np.float64))


@dataclass(frozen=True, eq=False)
class Regressed:
    """Gaussian-process means for one noise: one field for each fold, and how the solver ended."""

    noise: float
    folds: list[Filled]
    report: SolverReport


def fill_by_gp(
    problem: Problem, stays: BoolArray, tau: float, noises: tuple[float, ...], max_iterations: int = GP_ITERATIONS
) -> list[Regressed]:
    """Mean of a Gaussian process, u0 + K_nk (K_kk + noise I)^-1 (u_k - u0), for every mask and every noise.

    u0 is the mean of the known values of a component. All systems run side by side in one action: the columns of a
    fold are zero where it knows nothing, and the kernel is cut to its mask.
    """
    n_folds, n_noises = len(stays), len(noises)
    width = problem.known.values.shape[1]
    means = np.stack([_component_means(problem, mask) for mask in stays], axis=1)  # (n, folds, c)
    masks = stays.T[:, :, None].astype(np.float64)  # (n, folds, 1)
    right = masks * (problem.known.values[:, None] - np.nan_to_num(means))  # (n, folds, c)
    wide = np.tile(right.reshape(len(right), -1), (1, n_noises))  # (n, noises folds c)
    cut = np.tile(np.repeat(masks[:, :, 0], width, axis=1), (1, n_noises))
    shift = np.repeat(noises, n_folds * width)
    action = problem.kernel_action(tau)
    solution, report = conjugate_gradients(
        lambda X, at: cut[:, at] * action(X) + shift[at] * X, wide, tol=GP_TOL, max_iterations=max_iterations
    )
    fields = action(solution).reshape(-1, n_noises, n_folds, width) + means[:, None]
    inside = [reached(problem.graph, mask).astype(np.float64) for mask in stays]
    return [
        Regressed(noise, [Filled(fields[:, i, f], inside[f]) for f in range(n_folds)], report)
        for i, noise in enumerate(noises)
    ]


def _component_means(problem: Problem, mask: BoolArray) -> FloatArray:
    """Mean of the known values of each node's component, shape (n_nodes, c); NaN where there are none."""
    labels, count = problem.graph.components, problem.graph.n_components
    own = labels[mask]
    totals = [np.bincount(own, column, minlength=count) for column in problem.known.values[mask].T]
    with np.errstate(invalid="ignore"):
        means = np.stack(totals, axis=1) / np.bincount(own, minlength=count)[:, None]
    return np.asarray(means[labels])
