"""Functions of a sparse symmetric matrix times columns, as polynomials: the matrix h(M) itself is never formed.

A smooth h becomes a Chebyshev series; a short series with nonnegative coefficients is summed directly.
"""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
from scipy import fft

from manifoldrf._native import loops
from manifoldrf._runtime import thread_pool
from manifoldrf._validation import FloatArray, IntArray, Interval, check_real
from manifoldrf.geometry.csr import LocalForm, csr_parts
from manifoldrf.geometry.graphs import Graph

_Threads: TypeAlias = tuple[ThreadPoolExecutor, int]  # a pool and its number of threads

TOLERANCES = Interval(1e-14, 1.0, high_open=True)  # double precision cannot guarantee less

# Columns per block: 32 columns of 4000 nodes fit the second-level cache, narrower blocks waste the vector units.
_WIDTH = 32


@dataclass(frozen=True)
class Expansion:
    """h as a polynomial: a Chebyshev series on [-1, 1], or a sum of powers."""

    coefficients: FloatArray  # (degree + 1,)
    of_powers: bool = False

    @property
    def degree(self) -> int:
        """Degree of the polynomial: the number of products with the matrix per application."""
        return len(self.coefficients) - 1


def expand(function: Callable[[FloatArray], FloatArray], tol: float) -> Expansion:
    """Chebyshev series of a function on [-1, 1], to ``tol`` of its largest value.

    Raises
    ------
    ValueError
        If 2^16 terms are not enough.
    """
    check_real(tol, "tol", TOLERANCES)
    degree, last = 64, 2**16
    while degree <= last:
        angles = np.pi * np.arange(degree + 1) / degree
        values = function(np.cos(angles))
        coefficients = fft.dct(values, type=1) / degree
        coefficients[[0, -1]] /= 2
        largest = float(np.abs(values).max())
        coefficients[np.abs(coefficients) < 1e-16 * largest] = 0.0  # rounding errors of the transform would add up
        rest = np.cumsum(np.abs(coefficients[::-1]))[::-1]  # rest[k] = sum of terms k, k + 1, ...
        needed = max(1, int(np.count_nonzero(rest > tol * largest)))
        if needed <= degree // 2:  # the other half shows that the series has converged
            return Expansion(coefficients[:needed])
        degree *= 2
    raise ValueError(
        f"The kernel is too rough for `tol` = {tol:g}: more than {last // 2} Chebyshev terms. "
        "Take a larger `tol` or a shorter length scale."
    )


def best_matrix(expansion: Expansion, graph: Graph) -> Any:
    """The symmetric matrix of a graph, with its nodes in a local order if that is faster.

    Blocks of columns that do not fit the caches are read again and again. With neighbours close together in memory
    the recurrence takes a third of the time on a scan of 50,000 vertices, and half on heat graphs of 20,000 nodes.
    The choice must not depend on the number of columns: the order of the nodes changes the rounding.
    """
    worthwhile = graph.n_nodes >= 4096 and expansion.degree >= 8
    return (graph._local if worthwhile else None) or graph.operator


def indicator_columns(n: int, nodes: IntArray) -> FloatArray:
    """Columns of the identity, shape (n, len(nodes))."""
    columns = np.zeros((n, len(nodes)))
    columns[nodes, np.arange(len(nodes))] = 1.0
    return columns


def apply_expansion(expansion: Expansion, matrix: Any, block: FloatArray, n_jobs: int = 1) -> FloatArray:
    """Return h(M) X for X of shape (N, c), C-contiguous; the bits do not depend on ``n_jobs``."""
    if isinstance(matrix, LocalForm):
        return apply_expansion(expansion, matrix.matrix, block[matrix.order], n_jobs)[matrix.place]
    result = np.zeros_like(block)
    spans = _column_blocks(block.shape[1])
    busy = matrix.nnz * block.shape[1] >= 2**17  # below, a second thread costs more than it saves
    with thread_pool(n_jobs if busy else 1) as pool:
        if len(spans) >= 2 * n_jobs or not busy:  # threads take columns
            jobs = [pool.submit(_recurrence, expansion, matrix, block, span) for span in spans]
            for (start, stop), job in zip(spans, jobs, strict=True):
                result[:, start:stop] = job.result()
        else:  # too few columns: threads share the rows
            for start, stop in spans:
                result[:, start:stop] = _recurrence(expansion, matrix, block, (start, stop), (pool, n_jobs))
    return result


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


def _column_blocks(n_columns: int) -> list[tuple[int, int]]:
    return [(start, min(start + _WIDTH, n_columns)) for start in range(0, n_columns, _WIDTH)]


def _recurrence(
    expansion: Expansion, matrix: Any, block: FloatArray, span: tuple[int, int], threads: _Threads | None = None
) -> FloatArray:
    """The polynomial of M times X, for a range of columns; threads share the rows if given."""
    coefficients, width = expansion.coefficients, span[1] - span[0]
    start = np.zeros((block.shape[0], max(4, width)))  # four columns at a time take as long as one
    start[:, :width] = block[:, span[0] : span[1]]
    total: FloatArray = coefficients[0] * start
    run = functools.partial(_step, csr_parts(matrix), threads, total)
    if expansion.of_powers:
        power, product = start, np.zeros_like(start)
        for coefficient in coefficients[1:]:
            product[:] = 0.0  # the step subtracts the old value
            run(1.0, power, product, coefficient)
            power, product = product, power
        return total[:, :width]
    # T_1 = M: half a step from T_0, with zero before it.
    current, before = start, np.zeros_like(start)
    for k, coefficient in enumerate(coefficients[1:]):
        run(2.0 if k else 1.0, current, before, coefficient)
        before, current = current, before
    return total[:, :width]


def _step(
    csr: Any,
    threads: _Threads | None,
    total: FloatArray,
    scale: float,
    current: FloatArray,
    previous: FloatArray,
    weight: float,
) -> None:
    """Previous <- scale M current - previous, total += weight previous; rows are independent of each other."""

    def work(first: int, last: int) -> None:
        loops.step_columns(*csr, scale, current, previous, total, weight, first, last)

    if threads is None or threads[1] == 1:
        work(0, len(total))
        return
    pool, n_jobs = threads
    edges = np.linspace(0, len(total), n_jobs + 1).astype(np.int64).tolist()
    for job in [pool.submit(work, first, last) for first, last in pairwise(edges)]:
        job.result()
