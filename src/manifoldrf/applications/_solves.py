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

# Backward error of a solve, |b - A x| over |A| |x| + |b| in the largest norm. Factors leave about 1e-16; far more
# is a matrix that doubles cannot hold.
_WORST_RESIDUAL = 1e-8


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


def laplacian(graph: Graph) -> Any:
    """L = D - A, CSR; loops cancel, rows sum to zero. On a cotangent graph the cotangent matrix times the step."""
    off = graph.affinity - sparse.diags_array(graph.affinity.diagonal())
    degrees = np.asarray(off.sum(axis=1)).ravel()  # not D minus the loops, which would round
    return (sparse.diags_array(degrees) - off).tocsr()


def bilaplacian(graph: Graph) -> Any:
    """L M^-1 L, CSR, with the mass M of the nodes where the graph knows it, else 1."""
    first = laplacian(graph)
    if graph.weights is None:
        return (first @ first).tocsr()
    # In units of the mean: masses of a tiny mesh would overflow the product.
    mass = graph.weights / graph.weights[graph.weights > 0].mean()
    return (first @ sparse.diags_array(reciprocal(mass)) @ first).tocsr()


def solve_with_fixed(
    matrix: Any, values: FloatArray, fixed: NDArray[np.bool_], free: NDArray[np.bool_]
) -> FloatArray:
    """The field u with (matrix u) = 0 at free nodes and the given values at fixed ones.

    Parameters
    ----------
    matrix : CSR array of shape (n, n)
        Symmetric; positive definite on the free nodes.
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
    if not free.any():
        return result
    rows = matrix[np.flatnonzero(free)]
    block, right = rows[:, np.flatnonzero(free)], -(rows[:, np.flatnonzero(fixed)] @ values[fixed])
    result[free] = solve_positive(block.tocsr(), right)
    return result


def solve_positive(matrix: Any, right: FloatArray) -> FloatArray:
    """Solve a sparse, symmetric, positive definite system, shape (n, c), by factors in a symmetric order."""
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
    target = right * scale[:, None]
    found = factors.solve(target)
    found += factors.solve(target - scaled @ found)  # one refinement costs little beside the factors
    size = abs(scaled) @ np.abs(found) + np.abs(target)
    if not np.abs(target - scaled @ found).max() <= _WORST_RESIDUAL * size.max():  # NaN is no solution either
        raise ArithmeticError("The matrix is too ill-conditioned for doubles.")
    return np.asarray(found * scale[:, None])


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
