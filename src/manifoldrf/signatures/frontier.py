"""Rows of sum_k f_k W^k evaluated on the nodes they reach: exact, or cut off with a bound of the error.

x_0 = e_i, x_{k+1} = W x_k, and entries below a threshold are dropped as soon as they appear. The cost of a row then
depends on how far the walk spreads above the threshold, and not on the number of nodes.

Compiled functions on contiguous arrays; the callers validate.
"""

from typing import Any, NamedTuple

import numpy as np

from manifoldrf._compiling import compiled
from manifoldrf.geometry.csr import sort_entries


class _Desk(NamedTuple):
    """Working memory over all nodes, zero between starts, because each start clears what it used."""

    x: Any  # float64 (2, N) x_k and x_{k+1}
    nodes: Any  # int64 (2, N) their nodes, in the order they were reached
    reached: Any  # bool (N,) whether the node is already in the list of x_{k+1}
    sums: Any  # float64 (N,) deposits over all lengths
    seen: Any  # bool (N,) whether the node ever held an entry
    touched: Any  # int64 (N,) the nodes that did


@compiled()
def push_frontier(indptr, indices, data, coefficients, starts, threshold, stride):  # type: ignore[no-untyped-def]
    """Rows ``starts`` of sum_k f_k W^k, without what falls below the threshold on the way.

    Nothing is done per start that grows with the number of nodes N; the working memory of 50 N bytes is taken once.

    Parameters
    ----------
    indptr : int (N + 1,)
    indices : int (n_edges,)
    data : float64 (n_edges,), the entries of W, of any sign
    coefficients : float64 (L,), f_k, of any sign
    starts : int (n_starts,)
    threshold : float
        Entries of x_k, k >= 1, smaller than this in absolute value are dropped: neither deposited nor pushed on.
        0 keeps all.
    stride : int
        f_k x_k[v] goes to slot k * stride + v: 0 sums over the lengths, N keeps them apart. The single lengths,
        added in order of length, are bit for bit the sums of stride 0. Slots with the value 0 are left out.

    Returns
    -------
    counts : int64 (n_starts,), the number of slots of each start
    slots : int64 (sum of counts,), those of one start after the other, ascending within each
    values : float64 (sum of counts,)
    bounds : float64 (n_starts,)
        For |W|_2 <= 1 the 2-norm of the error of the row is at most this, but for the rounding of the sums: what
        was dropped at length k would have reached the row through the coefficients from k on, never growing, so
        it counts with its norm times the sum of their absolute values.
    n_touched : int64 (n_starts,), distinct nodes that ever held an entry
    n_pushes : int64, products of an edge and an entry, over all starts: what the time depends on
    """
    desk = _make_desk(indptr.shape[0] - 1)
    counts = np.zeros(starts.shape[0], np.int64)
    bounds = np.zeros(starts.shape[0])
    n_touched = np.zeros(starts.shape[0], np.int64)
    # Empty, but of a type the compiler can see. (Numba 0.68 mixes the constants of a comprehension up with others.)
    slots = [np.int64(0)][:0]
    values = [0.0][:0]
    n_pushes = np.int64(0)
    onward = np.cumsum(np.abs(coefficients)[::-1])[::-1]  # onward[k] = sum of |f_j| over j >= k
    for i in range(starts.shape[0]):
        begin = len(slots)
        desk.x[0, starts[i]] = 1.0
        desk.nodes[0, 0] = starts[i]
        side, n_active = 0, 1
        for k in range(coefficients.shape[0]):
            if k > 0:
                n_reached, pushed = _push(indptr, indices, data, desk, side, n_active)
                side = 1 - side
                n_active, dropped = _drop(desk, side, n_reached, threshold)
                bounds[i] += dropped * onward[k]
                n_pushes += pushed
            n_touched[i] = _deposit(desk, side, n_active, coefficients[k], n_touched[i])
            if stride > 0:
                _append_length(desk, side, n_active, coefficients[k], k * stride, slots, values)
        _clear(desk, side, n_active)
        _append_sums(desk, n_touched[i], stride, slots, values)
        counts[i] = len(slots) - begin
    return counts, np.array(slots), np.array(values), bounds, n_touched, n_pushes


@compiled()
def rename_slots(counts, slots, values, names):  # type: ignore[no-untyped-def]
    """Give the nodes of slots k N + v other names, and sort the slots of each start again; in place.

    Slots are below 2^31.
    """
    n_nodes = len(names)
    begin = 0
    for count in counts:
        for p in range(begin, begin + count):
            v = slots[p] % n_nodes
            slots[p] += names[v] - v
        sort_entries(slots[begin : begin + count], values[begin : begin + count])
        begin += count


@compiled()
def _make_desk(n_nodes):  # type: ignore[no-untyped-def]
    """Working memory for N nodes."""
    return _Desk(
        np.zeros((2, n_nodes)),
        np.zeros((2, n_nodes), np.int64),
        np.zeros(n_nodes, np.bool_),
        np.zeros(n_nodes),
        np.zeros(n_nodes, np.bool_),
        np.zeros(n_nodes, np.int64),
    )


@compiled()
def _push(indptr, indices, data, desk, side, n_active):  # type: ignore[no-untyped-def]
    """x_{k+1} = W x_k, clearing x_k; return the number of nodes reached and of products."""
    x, nodes = desk.x[side], desk.nodes[side]
    after, frontier, reached = desk.x[1 - side], desk.nodes[1 - side], desk.reached
    n_reached, n_pushes = 0, np.int64(0)
    for q in range(n_active):
        v = nodes[q]
        value = x[v]
        x[v] = 0.0
        for e in range(indptr[v], indptr[v + 1]):
            w = indices[e]
            if not reached[w]:  # a value of zero does not tell: entries may cancel
                reached[w] = True
                frontier[n_reached] = w
                n_reached += 1
            after[w] += data[e] * value
        n_pushes += indptr[v + 1] - indptr[v]
    return n_reached, n_pushes


@compiled()
def _drop(desk, side, n_reached, threshold):  # type: ignore[no-untyped-def]
    """Drop small entries; return the number that stays and the 2-norm of what went."""
    x, nodes, reached = desk.x[side], desk.nodes[side], desk.reached
    n_active, squares = 0, 0.0
    for q in range(n_reached):
        v = nodes[q]
        reached[v] = False
        if abs(x[v]) < threshold:
            squares += x[v] * x[v]
            x[v] = 0.0
        else:
            nodes[n_active] = v
            n_active += 1
    return n_active, np.sqrt(squares)


@compiled()
def _deposit(desk, side, n_active, coefficient, n_touched):  # type: ignore[no-untyped-def]
    """Add f_k x_k to the sums; return the number of nodes touched so far."""
    x, nodes, sums, seen, touched = desk.x[side], desk.nodes[side], desk.sums, desk.seen, desk.touched
    for q in range(n_active):
        v = nodes[q]
        if not seen[v]:
            seen[v] = True
            touched[n_touched] = v
            n_touched += 1
        sums[v] += coefficient * x[v]
    return n_touched


@compiled()
def _append_length(desk, side, n_active, coefficient, shift, slots, values):  # type: ignore[no-untyped-def]
    """Append f_k x_k, in order of nodes."""
    x = desk.x[side]
    for v in np.sort(desk.nodes[side, :n_active]):  # a copy: the frontier keeps its order, and so its bits
        value = coefficient * x[v]
        if value != 0.0:
            slots.append(shift + v)
            values.append(value)


@compiled()
def _append_sums(desk, n_touched, stride, slots, values):  # type: ignore[no-untyped-def]
    """Append the sums over all lengths in order of nodes, unless the lengths are kept apart; clear them."""
    sums, seen, touched = desk.sums, desk.seen, desk.touched[:n_touched]
    touched.sort()
    for v in touched:
        if stride == 0 and sums[v] != 0.0:
            slots.append(v)
            values.append(sums[v])
        sums[v] = 0.0
        seen[v] = False


@compiled()
def _clear(desk, side, n_active):  # type: ignore[no-untyped-def]
    """Clear the last x_k."""
    for q in range(n_active):
        desk.x[side, desk.nodes[side, q]] = 0.0
