"""Rows of sum_k f_k W^k evaluated on the nodes they reach: exact, or truncated with a bound of the error.

x_0 = e_i, x_{k+1} = W x_k, and entries below a threshold are dropped at once. The cost of a row depends on how far
the walk spreads above the threshold, not on the number of nodes.

Compiled functions on contiguous arrays. The callers validate the arguments.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from manifoldrf._compiling import compiled
from manifoldrf._validation import FloatArray, IntArray


class _Workspace(NamedTuple):
    """Working memory over all nodes; each start clears what it used, so it is zero between starts."""

    x: Any  # float64 (2, N) x_k and x_{k+1}
    nodes: Any  # int64 (2, N) their nodes, in the order they were reached
    reached: Any  # bool (N,) whether the node is already a node of x_{k+1}
    sums: Any  # float64 (N,) deposits over all lengths
    seen: Any  # bool (N,) whether the node ever held an entry
    touched: Any  # int64 (N,) those nodes


@compiled()
def push_frontier(indptr, indices, data, coefficients, threshold, starts):  # type: ignore[no-untyped-def]
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
    n = indptr.shape[0] - 1
    frontiers, touched = np.zeros((2, n), np.int64), np.zeros(n, np.int64)
    seen, reached = np.zeros(n, np.bool_), np.zeros(n, np.bool_)
    space = _Workspace(np.zeros((2, n)), frontiers, reached, np.zeros(n), seen, touched)
    counts, bounds = np.zeros(starts.shape[0], np.int64), np.zeros(starts.shape[0])
    # Empty lists whose type the compiler can infer. (Numba 0.68 confuses the constants of a comprehension.)
    nodes = [np.int64(0)][:0]
    values = [0.0][:0]
    n_pushes = np.int64(0)
    onward = np.cumsum(np.abs(coefficients)[::-1])[::-1]  # onward[k] = sum of |f_j| over j >= k
    for i in range(starts.shape[0]):
        space.x[0, starts[i]] = 1.0
        space.nodes[0, 0] = starts[i]
        side, n_active, n_touched = 0, 1, 0
        for k in range(coefficients.shape[0]):
            if k > 0:
                n_active, pushed = _push(indptr, indices, data, space, side, n_active)
                side = 1 - side
                n_pushes += pushed
            n_active, n_touched, dropped = _settle(space, side, n_active, n_touched, threshold, coefficients[k])
            bounds[i] += dropped * onward[k]
        space.x[side][space.nodes[side, :n_active]] = 0.0
        touched[:n_touched].sort()
        begin = len(nodes)
        for v in touched[:n_touched]:
            if space.sums[v] != 0.0:
                nodes.append(v)
                values.append(space.sums[v])
            space.sums[v], seen[v] = 0.0, False
        counts[i] = len(nodes) - begin
    return counts, np.array(nodes), np.array(values), bounds, n_pushes


def rename_nodes(counts: IntArray, nodes: IntArray, values: FloatArray, names: IntArray) -> tuple[Any, Any]:
    """Nodes with other names and their values, ascending within each start again."""
    ends = np.concatenate([[0], np.cumsum(counts)])
    rows = sparse.csr_array((values, names[nodes], ends), shape=(len(counts), len(names)))
    rows.sort_indices()
    return rows.indices, rows.data


@compiled()
def _push(indptr, indices, data, space, side, n_active):  # type: ignore[no-untyped-def]
    """x_{k+1} = W x_k, clearing x_k; return the number of nodes reached and of products."""
    x, nodes = space.x[side], space.nodes[side]
    after, frontier, reached = space.x[1 - side], space.nodes[1 - side], space.reached
    n_reached, n_pushes = 0, np.int64(0)
    for q in range(n_active):
        v = nodes[q]
        value = x[v]
        x[v] = 0.0
        for e in range(indptr[v], indptr[v + 1]):
            w = indices[e]
            if not reached[w]:  # a test for zero would fail if entries cancel
                reached[w] = True
                frontier[n_reached] = w
                n_reached += 1
            after[w] += data[e] * value
        n_pushes += indptr[v + 1] - indptr[v]
    return n_reached, n_pushes


@compiled()
def _settle(space, side, n_reached, n_touched, threshold, coefficient):  # type: ignore[no-untyped-def]
    """Drop small entries of x_k and add f_k times the others to the sums.

    Returns the number of entries kept, of nodes touched so far, and the 2-norm of the dropped entries.
    """
    x, nodes, sums, seen = space.x[side], space.nodes[side], space.sums, space.seen
    n_active, squares = 0, 0.0
    for q in range(n_reached):
        v = nodes[q]
        space.reached[v] = False
        if abs(x[v]) < threshold:
            squares += x[v] * x[v]
            x[v] = 0.0
            continue
        nodes[n_active] = v
        n_active += 1
        if not seen[v]:
            seen[v] = True
            space.touched[n_touched] = v
            n_touched += 1
        sums[v] += coefficient * x[v]
    return n_active, n_touched, np.sqrt(squares)
