"""Fill in a field on a graph from values that are known at some of its nodes.

:class:`Problem` holds the graph and the known values. ``fill_by_kernel``, ``fill_by_solve`` and ``fill_by_gp`` fill
the field for several masks of known nodes at once, so that cross-validation costs little more than one fill.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse import csgraph, linalg

from manifoldrf._codec import stored
from manifoldrf._validation import FloatArray, IntArray, as_array, as_floats, check_columns, check_indices, reject
from manifoldrf.geometry.csr import reciprocal, row_peaks, scaled_both_ends, select_entries
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels.graph_kernels import DiffusionKernel

BoolArray = NDArray[np.bool_]
# K: columns at the sources (n, c) -> columns at the targets (q, c), without forming the matrix.
Action = Callable[[FloatArray], FloatArray]

# Folds of cross-validation. With 5, the nodes that stay known are 4/5 as dense as the known nodes.
N_FOLDS = 5

# Error of the kernel's action, relative to the norm of the column. Kernels with a large tau cannot be expanded to
# better than 1e-10 in double precision.
_ACTION_TOL, _WIDE_ACTION_TOL, _WIDE = 1e-12, 1e-10, 1024.0
# Sums of weights above this multiple of that error are used: the mean is then accurate to 1e-4 of the spread of the
# values, mostly to 1e-8.
_RESOLVED = 1e4
WIDEST = 1e6  # largest tau: the action takes 7000 products there and does not converge beyond

# Conjugate gradients: residuals of 1e-4 change no third digit of a prediction. Most runs reach the cap first, which
# smooths like a little more noise.
GP_TOL = 1e-4
GP_ITERATIONS = 60

# Iterative refinement of a direct solve stops when the corrections no longer halve. If they are still large then,
# the affinities differ too much for the factorisation.
_ROUNDS = 60  # usually two or three; 60 halvings reach the last bit
_WORST_CORRECTION = 1e-8  # relative to the largest value


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
        """Clip a field of shape (n_nodes, c) to the range of the values inside the mask, component by component."""
        shape, at = (graph.n_components, self.values.shape[1]), graph.components[mask]
        low, high = np.full(shape, np.inf), np.full(shape, -np.inf)
        np.minimum.at(low, at, self.values[mask])
        np.maximum.at(high, at, self.values[mask])
        return np.asarray(np.clip(field, low[graph.components], high[graph.components]))


@dataclass(frozen=True, eq=False)
class Problem:
    """A graph, the values known on it, and the number of threads."""

    graph: Graph
    known: Known
    n_jobs: int

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


@stored
@dataclass(frozen=True)
class SolverReport:
    """How an iterative solver ended.

    Attributes
    ----------
    iterations : int
        Number of steps.
    residual : float
        Largest |b - A x| / |b| over the columns.
    stopped_by : {"tolerance", "cap", "rounding"}
        "rounding": the matrix is not positive along a search direction.
    """

    iterations: int
    residual: float
    stopped_by: str


@dataclass(frozen=True, eq=False)
class Regressed:
    """Gaussian-process means for one noise level: one field for each fold, and how the solver ended."""

    noise: float
    folds: list[Filled]
    report: SolverReport


def check_known(values: ArrayLike, known: Any, n_nodes: int, name: str = "values") -> Known:
    """Check values and the mask, or the nodes, that say where they are known.

    Parameters
    ----------
    values : array-like of shape (n_nodes,) or (n_nodes, c)
        Rows of unknown nodes may hold anything.
    known : bool array-like of shape (n_nodes,), int array-like, or None
        None: the rows without NaN.
    name : str
        What errors call the values.
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
        if mask.sum() < len(nodes):  # most often a mask of the numbers 0 and 1
            rule = "a mask of booleans (`known.astype(bool)` converts 0 and 1), or distinct node indices"
            reject("known", rule, f"{len(nodes)} indices with repetitions")
        return mask
    if given.shape != (n_nodes,):
        reject("known", f"a mask of shape ({n_nodes},)", f"shape {given.shape}")
    return given


def make_folds(mask: BoolArray, rng: np.random.Generator) -> BoolArray:
    """Masks of the nodes that stay known when each fold in turn is left out, shape (folds, n_nodes).

    With fewer than five known nodes each node is a fold; a single known node gives no folds.
    """
    nodes = np.flatnonzero(mask)
    count = min(N_FOLDS, len(nodes)) if len(nodes) > 1 else 0
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
    if graph.points is None:
        affinity = graph.affinity
        edges = sparse.csr_array((np.ones(affinity.nnz), affinity.indices, affinity.indptr), shape=affinity.shape)
    else:
        edges = graph.lengths
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

    found = smooth(stacked, np.tile(values, (n_folds, 1)), stays.ravel().astype(np.float64))
    means, masses = found.values.reshape(n_folds, n, -1), found.mass.reshape(n_folds, n)
    floors = _RESOLVED * _tolerance(tau) * np.sqrt(stays.sum(axis=1))
    return [finish_means(problem, *parts) for parts in zip(stays, means, masses, floors, strict=True)]


def _tolerance(tau: float) -> float:
    """Tolerance of the kernel's action."""
    return _ACTION_TOL if tau <= _WIDE else _WIDE_ACTION_TOL


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
    system = harmonic(graph) if method == "harmonic" else biharmonic(graph)
    fields = []
    for mask in stays:
        inside = reached(graph, mask)
        values = solve_with_fixed(system, known.values, mask, inside & ~mask)
        if method == "harmonic":
            values = known.within(values, graph, mask)
        fields.append(Filled(values, inside.astype(np.float64)))
    return fields


def fill_by_gp(
    problem: Problem, stays: BoolArray, tau: float, noises: tuple[float, ...], max_iterations: int = GP_ITERATIONS
) -> list[Regressed]:
    """Mean of a Gaussian process, u0 + K_nk (K_kk + noise I)^-1 (u_k - u0), for every mask and every noise.

    u0 is the mean of the known values of a component. All systems run side by side in one action: the columns of a
    fold are zero at its unknown nodes, and the kernel is restricted to its mask.
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
    """Mean of the known values of each node's component, shape (n_nodes, c); NaN if there are none."""
    labels, count = problem.graph.components, problem.graph.n_components
    own = labels[mask]
    totals = [np.bincount(own, column, minlength=count) for column in problem.known.values[mask].T]
    with np.errstate(invalid="ignore"):
        means = np.stack(totals, axis=1) / np.bincount(own, minlength=count)[:, None]
    return np.asarray(means[labels])


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Weighted means of known values.

    Attributes
    ----------
    values : array of shape (q, c)
        NaN where no known value has weight.
    mass : array of shape (q,)
        Sum of the weights; it can be negative with signed features.
    """

    values: FloatArray
    mass: FloatArray


def smooth(action: Action, values: FloatArray, share: FloatArray | None = None) -> Smoothed:
    """Average known values with the weights of a kernel; constants are reproduced.

    With nonnegative weights no mean leaves the range of the values.

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


def feature_action(left: Any, right: Any) -> Action:
    """K X = left (right^T X) for features of targets (q, m) and sources (n, m), dense or CSR, in linear time."""
    return lambda X: np.asarray(left @ (right.T @ X))


def without_small(rows: Any, cut: float) -> Any:
    """Remove the entries of CSR features below ``cut`` times the largest of their row.

    A mean changes by about the same share of the spread of the values.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from manifoldrf.applications.filling import without_small
    >>> without_small(sparse.csr_array(np.array([[1.0, 1e-4], [1e-4, 1e-4]])), 1e-3).nnz
    3
    """
    return select_entries(rows, rows.data, np.abs(rows.data) >= cut * row_peaks(rows))


@dataclass(frozen=True)
class System:
    """A symmetric matrix of a graph, and its action on a field.

    Attributes
    ----------
    matrix : CSR array of shape (n, n)
        Used for the factorisation.
    action : callable
        (n, c) -> (n, c), the products with the matrix, computed from differences along edges. The diagonal of the
        matrix is a rounded sum of affinities that hides small ones, so products with the matrix itself are wrong
        where neighbours are nearly equal.
    """

    matrix: Any
    action: Action


def laplacian(graph: Graph) -> Any:
    """L = D - A, CSR; loops cancel, rows sum to zero. On a cotangent graph the cotangent matrix times the step."""
    off = graph.affinity - sparse.diags_array(graph.affinity.diagonal())
    degrees = np.asarray(off.sum(axis=1)).ravel()  # not D minus the loops, which would round
    return (sparse.diags_array(degrees) - off).tocsr()


def harmonic(graph: Graph) -> System:
    """The system whose solutions are the mean of their neighbours."""
    return System(laplacian(graph), _differences(graph))


def biharmonic(graph: Graph) -> System:
    """The system L M^-1 L of fields whose Laplacian is harmonic; M is the mass of the nodes, 1 without weights."""
    first, matrix, inverse = _differences(graph), laplacian(graph), np.ones(graph.n_nodes)
    if graph.weights is not None:  # in units of the mean: masses of a tiny mesh would overflow the product
        inverse = reciprocal(graph.weights / graph.weights[graph.weights > 0].mean())
    product = (matrix @ sparse.diags_array(inverse) @ matrix).tocsr()
    return System(product, lambda field: first(inverse[:, None] * first(field)))


def _differences(graph: Graph) -> Action:
    """The Laplacian as the sum of affinities times differences to neighbours."""
    edges = graph.affinity.tocoo()
    start, end = edges.coords

    def action(field: FloatArray) -> FloatArray:
        sums = [np.bincount(start, edges.data * (x[start] - x[end]), minlength=len(x)) for x in field.T]
        return np.stack(sums, axis=1)

    return action


def solve_with_fixed(system: System, values: FloatArray, fixed: BoolArray, free: BoolArray) -> FloatArray:
    """The field u with (matrix u) = 0 at free nodes and the given values at fixed ones.

    Parameters
    ----------
    system : System
        Positive definite on the free nodes.
    values : array of shape (n, c)
        Read at the fixed nodes.
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
        return np.asarray(-system.action(field)[inside])

    size = np.abs(values[fixed]).max(axis=0, initial=0.0)
    result[inside] = solve_positive(system.matrix[inside][:, inside].tocsr(), residual, size)
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
    for _ in range(_ROUNDS):
        step = scale[:, None] * factors.solve(scale[:, None] * residual(found))
        change = np.abs(step).max(axis=0)
        better = change < 0.5 * last  # False for NaN
        if not better.any():
            break
        found[:, better] += step[:, better]
        last = np.where(better, change, last)
    if not (last <= _WORST_CORRECTION * np.maximum(size, np.abs(found).max(axis=0))).all():
        raise ArithmeticError("The matrix is too ill-conditioned for double precision.")
    return found


def conjugate_gradients(
    action: Callable[[FloatArray, IntArray], FloatArray], right: FloatArray, *, tol: float, max_iterations: int
) -> tuple[FloatArray, SolverReport]:
    """Solve A_j x_j = b_j for every column j, all in one action; converged columns take no further part.

    Parameters
    ----------
    action : callable
        X of shape (n, k), columns (k,) -> the products A_j x_j, shape (n, k), for symmetric positive semidefinite
        A_j.
    right : array of shape (n, c)
        The b_j.
    tol : float
        A column has converged when its residual is at most ``tol`` times its right-hand side.
    max_iterations : int
        Cap on the number of steps. Stopping early smooths the solution, as noise does.
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
    """Inner products of the columns, shape (c,), in an order of summation that does not depend on threads."""
    return np.asarray(np.einsum("nc,nc->c", first, second))
