"""Linear systems of graphs: harmonic and biharmonic fields by sparse factors, kernels by conjugate gradients."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import linalg

from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.geometry._sparse import reciprocal, scaled_both_ends
from manifoldrf.geometry.graphs import Graph

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
