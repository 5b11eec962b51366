"""Rows of sum_k f_k W^k evaluated on the nodes they reach: exact, or truncated with a bound of the error.

x_0 = e_i, x_{k+1} = W x_k, and entries below a threshold are dropped at once. The cost of a row depends on how far
the walk spreads above the threshold, not on the number of nodes.

The callers validate the arguments.
"""

from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._native import arrays, loops
from manifoldrf._validation import FloatArray, IntArray


def push_frontier(
    indptr: Any, indices: Any, data: Any, coefficients: FloatArray, threshold: float, starts: Any
) -> Any:
    """Rows ``starts`` of sum_k f_k W^k, without entries that fall below the threshold.

    The work per start does not grow with the number of nodes N; the working memory of 50 N bytes is allocated once.

    Parameters
    ----------
    indptr : int (N + 1,)
    indices : int (n_edges,)
    data : float64 (n_edges,), the entries of W, of any sign
    coefficients : float64 (L,), f_k, of any sign
    threshold : float
        Entries of x_k, k >= 1, below this absolute value are dropped: neither deposited nor pushed on. 0 keeps all.
    starts : int (n_starts,)

    Returns
    -------
    counts : int64 (n_starts,), the number of nodes of each start
    nodes : int64 (sum of counts,), one start after the other, ascending within each
    values : float64 (sum of counts,), without zeros
    bounds : float64 (n_starts,)
        For |W|_2 <= 1, a bound of the 2-norm of the error of the row, up to rounding of the sums. Entries dropped
        at length k would contribute to the row through the coefficients from k on, and their norm would not grow.
        So the bound adds their norm times the sum of the absolute values of these coefficients.
    n_pushes : int64, products of an edge and an entry over all starts; the run time is proportional to it
    """
    bounds, starts = np.zeros(len(starts)), np.ascontiguousarray(starts, np.int64)
    onward = np.ascontiguousarray(np.cumsum(np.abs(coefficients)[::-1])[::-1])  # sum of |f_j| over j >= k
    given = indptr, indices, data, np.ascontiguousarray(coefficients), onward, threshold
    n_pushes, *found = loops.push_frontier(*given, starts, bounds)
    return *arrays(found, "lld"), bounds, n_pushes


def rename_nodes(counts: IntArray, nodes: IntArray, values: FloatArray, names: IntArray) -> tuple[Any, Any]:
    """Nodes with other names and their values, ascending within each start again."""
    ends = np.concatenate([[0], np.cumsum(counts)])
    rows = sparse.csr_array((values, names[nodes], ends), shape=(len(counts), len(names)))
    rows.sort_indices()
    return rows.indices, rows.data
