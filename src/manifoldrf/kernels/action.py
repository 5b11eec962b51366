"""Compiled step of the three-term recurrence of Chebyshev polynomials on blocks of columns."""

import functools
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from scipy import fft

from manifoldrf._compiling import compiled
from manifoldrf._runtime import thread_pool
from manifoldrf._validation import FloatArray, IntArray, Interval, check_real, reject
from manifoldrf.geometry.graphs import GeneralizedAdjacency, Graph
from manifoldrf.geometry.loops import LocalForm


@compiled()
def chebyshev_step(matrix, current, previous, total, weight, rows):  # type: ignore[no-untyped-def]
    """Advance a range of rows: previous <- scale M current - previous, total += weight previous.

    The new polynomial takes the place of the one before the last: each entry of it is needed once, here. Rows are
    independent, so threads may share them in any way without changing a bit.

    Parameters
    ----------
    matrix : tuple (indptr, indices, data, scale)
        CSR matrix M; scale is 2 over the bound of its spectrum.
    current, previous, total : float64 (N, width)
    weight : float, coefficient of the new polynomial
    rows : tuple (first, last) of the range
    """
    indptr, indices, data, scale = matrix
    width = current.shape[1]
    fresh = np.zeros(width)
    for v in range(rows[0], rows[1]):
        fresh[:] = 0.0
        for e in range(indptr[v], indptr[v + 1]):
            value = scale * data[e]
            row = current[np.uint64(indices[e])]
            for j in range(width):
                fresh[j] += value * row[j]
        for j in range(width):
            advanced = fresh[j] - previous[v, j]
            previous[v, j] = advanced
            total[v, j] += weight * advanced


@compiled()
def chebyshev_step_of_four(matrix, current, previous, total, weight, rows):  # type: ignore[no-untyped-def]
    """The same for blocks of exactly four columns, whose sums stay in registers: twice as fast."""
    indptr, indices, data, scale = matrix
    for v in range(rows[0], rows[1]):
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        for e in range(indptr[v], indptr[v + 1]):
            value = scale * data[e]
            row = current[np.uint64(indices[e])]
            a += value * row[0]
            b += value * row[1]
            c += value * row[2]
            d += value * row[3]
        a -= previous[v, 0]
        b -= previous[v, 1]
        c -= previous[v, 2]
        d -= previous[v, 3]
        previous[v, 0], previous[v, 1], previous[v, 2], previous[v, 3] = a, b, c, d
        total[v, 0] += weight * a
        total[v, 1] += weight * b
        total[v, 2] += weight * c
        total[v, 3] += weight * d


Function = Callable[[FloatArray], FloatArray]

TOLERANCES = Interval(1e-14, 1.0, high_open=True)  # doubles cannot promise less

_FIRST_DEGREE = 64
_LAST_DEGREE = 2**16
_LONGER_FOR_POWERS = 2  # how many times more products the accuracy of small entries is worth
# Columns at once: 32 columns of 4000 nodes fit the second-level cache, narrower blocks waste the vector units.
_WIDTH = 32
# Nodes and products from which on their order matters: 32 columns of 4000 nodes still fit the caches.
_LARGE, _LONG = 4096, 8
# Below this many matrix entries times columns a second thread costs more than it brings.
_WORTH_A_THREAD = 2**17


@dataclass(frozen=True)
class Expansion:
    """h as a polynomial: a Chebyshev series on [-radius, radius], or a sum of powers."""

    coefficients: FloatArray  # (degree + 1,)
    radius: float
    of_powers: bool = False

    @property
    def degree(self) -> int:
        """Degree of the polynomial: products with the matrix that one application takes."""
        return len(self.coefficients) - 1


def expand(function: Function, radius: float, tol: float) -> Expansion:
    """Chebyshev series of a function on [-radius, radius], to ``tol`` of its largest value.

    Raises
    ------
    ValueError
        If 2^16 terms do not suffice.
    """
    check_real(tol, "tol", TOLERANCES)
    degree = _FIRST_DEGREE
    while degree <= _LAST_DEGREE:
        angles = np.pi * np.arange(degree + 1) / degree
        values = function(radius * np.cos(angles))
        coefficients = fft.dct(values, type=1) / degree
        coefficients[[0, -1]] /= 2
        largest = float(np.abs(values).max())
        coefficients[np.abs(coefficients) < 1e-16 * largest] = 0.0  # rounding of the transform, which would add up
        needed = _terms_needed(coefficients, tol * largest)
        if needed <= degree // 2:  # the other half shows that the series has converged
            return Expansion(coefficients[:needed], radius)
        degree *= 2
    raise ValueError(
        f"The kernel is too rough for `tol` = {tol:g}: more than {_LAST_DEGREE // 2} Chebyshev terms. "
        "Take a larger `tol` or a shorter length scale."
    )


def expand_kernel(function: Function, alpha: FloatArray | None, radius: float, tol: float) -> Expansion:
    """The polynomial to use: the powers themselves where a finite series has no negative terms and is not too long.

    Parameters
    ----------
    function : callable
        h.
    alpha : array of shape (degree + 1,), or None for an infinite series
    """
    expansion = expand(function, radius, tol)
    if alpha is None or (alpha < 0).any() or len(alpha) - 1 > _LONGER_FOR_POWERS * expansion.degree:
        return expansion
    return Expansion(alpha, radius, of_powers=True)


def apply_expansion(expansion: Expansion, matrix: Any, block: FloatArray, n_jobs: int = 1) -> FloatArray:
    """Return h(M) X for X of shape (N, c), C-contiguous; the bits do not depend on ``n_jobs``."""
    if isinstance(matrix, LocalForm):
        return _apply(expansion, matrix.matrix, block[matrix.order], n_jobs)[matrix.place]
    return _apply(expansion, matrix, block, n_jobs)


def _apply(expansion: Expansion, matrix: Any, block: FloatArray, n_jobs: int) -> FloatArray:
    """The same, with the nodes in the order they are in."""
    result = np.zeros_like(block)
    spans = list(_column_blocks(block.shape[1]))
    busy = matrix.nnz * block.shape[1] >= _WORTH_A_THREAD
    with thread_pool(n_jobs if busy else 1) as pool:
        if len(spans) >= 2 * n_jobs or not busy:  # threads take columns
            jobs = [pool.submit(_recurrence, expansion, matrix, block, span) for span in spans]
            for (start, stop), job in zip(spans, jobs, strict=True):
                result[:, start:stop] = job.result()
        else:  # too few columns: threads share the rows
            for start, stop in spans:
                result[:, start:stop] = _recurrence(expansion, matrix, block, (start, stop), pool, n_jobs)
    return result


def worth_local(expansion: Expansion, n_nodes: int) -> bool:
    """Whether a polynomial of a matrix is quicker with its nodes in an order that keeps neighbours close together.

    Blocks of columns that outgrow the caches are read again and again: with 50,000 vertices of a scan in such an
    order the recurrence takes a third of the time, with 20,000 nodes of heat graphs a half. The answer must not
    depend on the number of columns, or bits would.
    """
    return n_nodes >= _LARGE and expansion.degree >= _LONG


def _recurrence(
    expansion: Expansion,
    matrix: Any,
    block: FloatArray,
    span: tuple[int, int],
    pool: ThreadPoolExecutor | None = None,
    n_jobs: int = 1,
) -> FloatArray:
    """The polynomial of M times X, for a range of columns."""
    coefficients, width = expansion.coefficients, span[1] - span[0]
    padded = 4 if width < 4 else width
    start = np.zeros((block.shape[0], padded))
    start[:, :width] = block[:, span[0] : span[1]]
    total: FloatArray = coefficients[0] * start
    if expansion.degree == 0 or expansion.radius == 0:
        return total[:, :width]
    step = chebyshev_step_of_four if padded == 4 else chebyshev_step
    run = functools.partial(_over_rows, step, block.shape[0], pool, n_jobs)
    csr = matrix.indptr, matrix.indices, matrix.data
    if expansion.of_powers:
        power, product = start, np.zeros_like(start)
        for coefficient in coefficients[1:]:
            product[:] = 0.0  # the step subtracts what was there
            run((*csr, 1.0), power, product, total, coefficient)
            power, product = product, power
        return total[:, :width]
    # T_1 = M / radius is half a step from T_0 with nothing before it.
    before, current = start, np.zeros_like(start)
    run((*csr, 1 / expansion.radius), before, current, total, coefficients[1])
    for coefficient in coefficients[2:]:
        run((*csr, 2 / expansion.radius), current, before, total, coefficient)
        before, current = current, before
    return total[:, :width]


def _over_rows(step: Any, n: int, pool: ThreadPoolExecutor | None, n_jobs: int, *arguments: Any) -> None:
    """One step for all rows, shared among threads where there are any."""
    if pool is None or n_jobs == 1:
        step(*arguments, (0, n))
        return
    edges = np.linspace(0, n, n_jobs + 1).astype(np.int64)
    jobs = [pool.submit(functools.partial(step, *arguments, (int(a), int(b)))) for a, b in pairwise(edges)]
    for job in jobs:
        job.result()


def _terms_needed(coefficients: FloatArray, tolerance: float) -> int:
    """Smallest number of terms, at least 1, such that the others sum to no more than the tolerance."""
    rest = np.cumsum(np.abs(coefficients[::-1]))[::-1]  # rest[k] = sum of terms k, k + 1, ...
    return max(1, int(np.count_nonzero(rest > tolerance)))


def _column_blocks(n_columns: int) -> Iterator[tuple[int, int]]:
    for start in range(0, n_columns, _WIDTH):
        yield start, min(start + _WIDTH, n_columns)


def indicator_columns(n: int, nodes: IntArray) -> FloatArray:
    """Columns of the identity, shape (n, len(nodes))."""
    columns = np.zeros((n, len(nodes)))
    columns[nodes, np.arange(len(nodes))] = 1.0
    return columns


def rows_of_expansion(
    expansion: Expansion, matrix: Any, nodes: IntArray, n_jobs: int, progress: Callable[[str, int, int], None]
) -> FloatArray:
    """Rows ``nodes`` of h(M), shape (len(nodes), N); M is symmetric, so they are its columns."""
    back: Any = slice(None)
    if isinstance(matrix, LocalForm):
        back, matrix = matrix.place, matrix.matrix
        nodes = back[nodes]
    result = np.zeros((len(nodes), matrix.shape[0]))

    def run(span: tuple[int, int]) -> int:
        indicators = indicator_columns(matrix.shape[0], nodes[span[0] : span[1]])
        found = _recurrence(expansion, matrix, indicators, (0, indicators.shape[1]))
        result[span[0] : span[1]] = found[back].T
        return span[1]

    with thread_pool(n_jobs) as pool:
        for done in pool.map(run, _column_blocks(len(nodes))):
            progress("signatures", done, len(nodes))
    return result


AnyGraph: TypeAlias = Graph | GeneralizedAdjacency


def best_matrix(expansion: Expansion, graph: AnyGraph) -> Any:
    """The symmetric matrix of a graph, or its local form where that pays."""
    return (graph._local if worth_local(expansion, graph.n_nodes) else None) or graph.symmetric


def action_of(expansion: Expansion, graph: AnyGraph, columns: FloatArray, n_jobs: int) -> FloatArray:
    """The function h of the operator of a graph, times columns (N, c)."""
    scaling = 1.0 if graph.scaling is None else graph.scaling[:, None]
    return apply_expansion(expansion, best_matrix(expansion, graph), columns * scaling, n_jobs) / scaling


def entries_of(expansion: Expansion, graph: AnyGraph, rows: IntArray, cols: IntArray, n_jobs: int) -> FloatArray:
    """Entries (rows, cols) of h of the operator of a graph; indicators of the fewer nodes are multiplied."""
    swap = len(rows) < len(cols)
    sources, targets = (rows, cols) if swap else (cols, rows)
    indicators = indicator_columns(graph.n_nodes, sources)
    found = apply_expansion(expansion, best_matrix(expansion, graph), indicators, n_jobs)[targets]
    result = found.T if swap else found
    return result if graph.scaling is None else result * graph.scaling[cols] / graph.scaling[rows][:, None]


def per_volume_of(values: FloatArray, graph: AnyGraph, rows: IntArray, cols: IntArray) -> FloatArray:
    """Entries K_ij / sqrt(mu_i mu_j): a kernel of the space, where the graph knows the volume of its nodes."""
    if not isinstance(graph, Graph) or graph.weights is None:
        raise ValueError(
            "`per_volume` needs node weights, which this graph does not have: heat_graph and "
            "mesh_graph(mesh, weights='cotangent') know them."
        )
    for name, nodes in (("rows", rows), ("cols", cols)):
        if not graph.weights[nodes].all():
            reject(name, "nodes of positive weight, with per_volume=True", "nodes of weight zero")
    roots = np.sqrt(graph.weights)
    result: FloatArray = values / roots[rows][:, None] / roots[cols]
    return result
