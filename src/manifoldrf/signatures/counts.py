"""Walkers counted per node: rows of sum_k f_k W^k by integer counts and systematic sampling.

A walker at v moves to j with probability P_vj = A_vj / d_v. The product of W_vj / P_vj along its path is
sqrt(d_start / d_now) for every path, so all walkers at a node are equal and only their number c_v matters. A step
thins the numbers and splits each over the neighbours, with systematic rounding. Every rounding is unbiased and off
by less than one walker, so the error falls like 1 / n_walkers instead of 1 / sqrt(n_walkers). A step costs one
visit per occupied edge for any number of walkers.

Compiled functions on contiguous arrays. The callers validate the arguments.
"""

from typing import Any, NamedTuple

import numpy as np

from manifoldrf._compiling import compiled
from manifoldrf.signatures.walks import as_unit, next_word, open_stream


class CountTable(NamedTuple):
    """A graph prepared for counting, made by :func:`build_count_table`."""

    indptr: Any  # (N + 1,)
    indices: Any  # (n_edges,)
    cumulative: Any  # (n_edges,) sums of P along each row, the last exactly 1 (all 0 in a row without weight)
    root_degrees: Any  # (N,) square roots of the row sums; 1 where the row sum is 0


class _Workspace(NamedTuple):
    """Working memory over all nodes; each start clears what it used, so it is zero between starts."""

    counts: Any  # int64 (2, N) walkers at each node, now and after the step
    nodes: Any  # int64 (2, N) the occupied nodes in the order they were reached
    sums: Any  # float64 (N,) deposits of the batch
    moments: Any  # float64 (N, 2) sums over batches of the deposits, and of their squares
    seen: Any  # bool (N,) whether the node is in ``touched``
    touched: Any  # int64 (N,) nodes with deposits of any batch


@compiled()
def build_count_table(indptr, indices, data):  # type: ignore[no-untyped-def]
    """CountTable of a nonnegative CSR affinity."""
    n_nodes = indptr.shape[0] - 1
    cumulative = np.zeros(data.shape[0])
    root_degrees = np.ones(n_nodes)  # walkers at an isolated node started there, so the ratio of the roots is 1
    for v in range(n_nodes):
        total = 0.0
        for e in range(indptr[v], indptr[v + 1]):
            total += data[e]
            cumulative[e] = total
        if total > 0.0:
            root_degrees[v] = np.sqrt(total)
            for e in range(indptr[v], indptr[v + 1]):
                cumulative[e] /= total  # the last is total / total: exactly 1
    return CountTable(indptr, indices, cumulative, root_degrees)


@compiled()
def propagate_counts(table, law, n_walkers, n_batches, key, starts):  # type: ignore[no-untyped-def]
    """Unbiased estimates of the rows ``starts`` of sum_k f_k W^k.

    Each start runs ``n_batches`` independent batches of nearly equal size (with fewer walkers than batches, each
    walker is a batch). The estimate is the plain mean of the batches, so its variance is estimated without bias
    even if batches differ by a walker. The error of a batch falls like the inverse of its size, so B batches have
    up to sqrt(B) times the error of one batch with all walkers.

    The work per start does not grow with the number of nodes N; the working memory of 65 N bytes is allocated once.
    A row depends, to the last bit, only on the key and its start, not on the other starts.

    Parameters
    ----------
    table : CountTable
    law : walks.Law
    n_walkers : int, at least 1, per start
    n_batches : int, at least 1
    key : uint32 (2,)
    starts : int (n_starts,)

    Returns
    -------
    counts : int64 (n_starts,), nodes of each start
    nodes : int64 (sum of counts,), one start after the other, ascending within each
    sums : float64 (sum of counts,), the estimates
    variances : float64 (sum of counts,), unbiased estimates of the variances of ``sums``; NaN with one batch
    n_steps : int64, moves of single walkers, over all starts
    """
    n = table.root_degrees.shape[0]
    walkers, occupied, touched = np.zeros((2, n), np.int64), np.zeros((2, n), np.int64), np.zeros(n, np.int64)
    space = _Workspace(walkers, occupied, np.zeros(n), np.zeros((n, 2)), np.zeros(n, np.bool_), touched)
    n_batches = min(n_batches, n_walkers)
    counts = np.zeros(starts.shape[0], np.int64)
    # Empty lists whose type the compiler can infer. (Numba 0.68 confuses the constants of a comprehension.)
    nodes = [np.int64(0)][:0]
    sums = [0.0][:0]
    variances = [0.0][:0]
    n_steps = np.int64(0)
    for i in range(starts.shape[0]):
        n_touched = 0
        for b in range(n_batches):
            share = np.int64(n_walkers // n_batches + (1 if b < n_walkers % n_batches else 0))
            batch = (np.int64(starts[i]), share, n_touched)
            n_touched, moved = _run_batch(table, law, batch, open_stream(starts[i], b, key), space)
            n_steps += moved
        counts[i] = n_touched
        touched[:n_touched].sort()
        for v in touched[:n_touched]:
            mean = space.moments[v, 0] / n_batches  # the estimate of a batch that missed the node is zero
            spread = max(space.moments[v, 1] - n_batches * mean**2, 0.0)
            nodes.append(v)
            sums.append(mean)
            variances.append(spread / (n_batches * (n_batches - 1)) if n_batches > 1 else np.nan)
            space.moments[v, 0], space.moments[v, 1], space.seen[v] = 0.0, 0.0, False
    return counts, np.array(nodes), np.array(sums), np.array(variances), n_steps


@compiled()
def _run_batch(table, law, batch, stream, space):  # type: ignore[no-untyped-def]
    """Add the estimates of one batch to the moments; return the number of nodes touched so far and the moves.

    ``batch`` is (start, n_walkers, n_touched).
    """
    start, n_walkers, n_touched = batch
    s0, s1 = stream
    side, n_occupied, n_steps = 0, 1, np.int64(0)
    roots, seen, touched, sums = table.root_degrees, space.seen, space.touched, space.sums
    space.counts[0, start] = n_walkers
    space.nodes[0, 0] = start
    for k in range(law.deposit.shape[0]):
        if law.deposit[k] != 0.0:
            weight = law.deposit[k] / n_walkers
            for v in space.nodes[side, :n_occupied]:
                if not seen[v]:
                    seen[v] = True
                    touched[n_touched] = v
                    n_touched += 1
                sums[v] += space.counts[side, v] * weight * (roots[start] / roots[v])
        word, s0, s1 = next_word(s0, s1)
        other, s0, s1 = next_word(s0, s1)
        ratio = np.float64(law.go_on[k]) / 4294967296.0  # the last is 0: it removes all walkers
        n_occupied, moved = _step(table, ratio, (as_unit(word), as_unit(other)), space, side, n_occupied)
        n_steps += moved
        side = 1 - side
    for v in touched[:n_touched]:
        space.moments[v, 0] += sums[v]
        space.moments[v, 1] += sums[v] ** 2
        sums[v] = 0.0
    return n_touched, n_steps


@compiled()
def _step(table, ratio, phases, space, side, n_occupied):  # type: ignore[no-untyped-def]
    """Thin the walkers to ``ratio`` of their number and move them; return nodes occupied and moves.

    The thinning is one systematic sample over the occupied nodes in order, with phase ``phases[0]``. The number of
    survivors is off by less than one at every node and in total; with ratio 1 it does not change.

    The offsets of the nodes start at ``phases[1]`` and advance by the golden ratio from node to node. Each is
    uniform, so each split is unbiased. A constant offset would send the single walkers of all nodes in the same
    direction, and sums over many nodes would be up to four times less accurate. The golden ratio spreads directions
    more evenly than independent offsets: such sums are 5 to 15 per cent more accurate.
    """
    counts, nodes = space.counts[side], space.nodes[side]
    arrivals, reached = space.counts[1 - side], space.nodes[1 - side]
    indptr, indices, cumulative = table.indptr, table.indices, table.cumulative
    phase, offset = phases
    n_before, n_kept, n_reached, n_steps = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for q in range(n_occupied):
        v = nodes[q]
        n_before += counts[v]
        # n_before * ratio + phase may round up to the next integer, but no node may keep more than it has.
        kept = min(np.int64(n_before * ratio + phase) - n_kept, counts[v])
        counts[v] = 0
        n_kept += kept
        begin, end = np.int64(indptr[v]), np.int64(indptr[v + 1])
        if kept == 0 or begin == end or cumulative[end - 1] == 0.0:
            continue
        offset += 0.6180339887498949  # the golden ratio, (sqrt(5) - 1) / 2
        offset -= np.floor(offset)
        n_steps += kept
        n_placed = np.int64(0)
        for e in range(begin, end):
            # The walkers that go to the neighbours up to this one; all of them at the last, where P sums to 1.
            upper = min(np.int64(kept * cumulative[e] + offset), kept)
            if upper > n_placed:
                w = indices[e]
                if arrivals[w] == 0:
                    reached[n_reached] = w
                    n_reached += 1
                arrivals[w] += upper - n_placed
                n_placed = upper
    return n_reached, n_steps
