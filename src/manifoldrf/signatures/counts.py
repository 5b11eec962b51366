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
from manifoldrf.signatures.streams import as_unit, next_word, open_stream

_GOLDEN = 0.6180339887498949  # (sqrt(5) - 1) / 2
_SHORT_ROW = 16  # up to this degree a scan is never slower than a search


class CountTable(NamedTuple):
    """A graph prepared for counting, made by :func:`build_count_table`."""

    indptr: Any  # (N + 1,)
    indices: Any  # (n_edges,)
    cumulative: Any  # (n_edges,) sums of P along each row, the last exactly 1 (all 0 in a row without weight)
    root_degrees: Any  # (N,) square roots of the row sums; 1 where the row sum is 0


class CountLaw(NamedTuple):
    """How many walkers survive to each length, and what each deposits there."""

    deposit: Any  # (L,) f_k / s_k, s_k the share of walkers that reach length k, s_0 = 1
    keep: Any  # (L,) s_{k+1} / s_k in [0, 1]; the last is taken as 0


class _Workspace(NamedTuple):
    """Working memory over all nodes; each batch clears what it used, so it is zero between batches."""

    counts: Any  # int64 (2, N) walkers at each node, now and after the step
    nodes: Any  # int64 (2, N) the occupied nodes in the order they were reached
    sums: Any  # float64 (N,) deposits
    seen: Any  # bool (N,) whether the node is in ``touched``
    touched: Any  # int64 (N,) nodes with deposits


@compiled()
def build_count_table(indptr, indices, data):  # type: ignore[no-untyped-def]
    """Row sums and cumulative transition probabilities of a CSR affinity.

    Parameters
    ----------
    indptr : int (N + 1,)
    indices : int (n_edges,)
    data : float64 (n_edges,), nonnegative

    Returns
    -------
    CountTable
    """
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
def propagate_counts(table, law, starts, n_walkers, n_batches, stride, key):  # type: ignore[no-untyped-def]
    """Unbiased estimates of the rows ``starts`` of sum_k f_k W^k.

    Each start runs ``n_batches`` independent batches of nearly equal size (with fewer walkers than batches, each
    walker is a batch). The estimate is the plain mean of the batches, so its variance is estimated without bias
    even if batches differ by a walker. The error of a batch falls like the inverse of its size, so B batches have
    up to sqrt(B) times the error of one batch with all walkers.

    The work per start does not grow with the number of nodes N; the working memory of 49 N bytes is allocated once.
    A row depends, to the last bit, only on the key and its start, not on the other starts.

    Parameters
    ----------
    table : CountTable
    law : CountLaw, for the lengths 0 to L - 1
    starts : int (n_starts,)
    n_walkers : int, at least 1, per start
    n_batches : int, at least 1
    stride : int
        The deposit of length k at node v goes to slot k * stride + v: 0 sums over the lengths, N separates them.
        With one batch, the sum of the estimates in order of length equals the estimate with stride 0 bit for bit;
        with more batches they are equal up to rounding.
    key : uint32 (2,)

    Returns
    -------
    counts : int64 (n_starts,), the number of slots of each start
    slots : int64 (sum of counts,), one start after the other, ascending within each
    sums : float64 (sum of counts,), the estimates
    variances : float64 (sum of counts,), unbiased estimates of the variances of ``sums``; NaN with one batch
    n_steps : int64, moves of single walkers, over all starts
    n_pushes : int64, visits to neighbours over all starts; the run time is proportional to it
    """
    space = _make_workspace(table.root_degrees.shape[0])
    n_batches = min(n_batches, n_walkers)
    counts = np.zeros(starts.shape[0], np.int64)
    # Empty lists whose type the compiler can infer. (Numba 0.68 confuses the constants of a comprehension.)
    slots = [np.int64(0)][:0]
    sums = [0.0][:0]
    variances = [0.0][:0]
    n_steps, n_pushes = np.int64(0), np.int64(0)
    for i in range(starts.shape[0]):
        found = [np.int64(0)][:0]
        values = [0.0][:0]
        ends = np.zeros(n_batches + 1, np.int64)
        for b in range(n_batches):
            share = n_walkers // n_batches + (1 if b < n_walkers % n_batches else 0)
            batch = (np.int64(starts[i]), np.int64(share), np.int64(stride))
            moved, visited = _run(table, law, batch, open_stream(starts[i], b, key), space, found, values)
            ends[b + 1] = len(found)
            n_steps += moved
            n_pushes += visited
        begin = len(slots)
        _average(found, values, ends, slots, sums, variances)
        counts[i] = len(slots) - begin
    return counts, np.array(slots), np.array(sums), np.array(variances), n_steps, n_pushes


@compiled()
def _make_workspace(n):  # type: ignore[no-untyped-def]
    counts, nodes, touched = np.zeros((2, n), np.int64), np.zeros((2, n), np.int64), np.zeros(n, np.int64)
    return _Workspace(counts, nodes, np.zeros(n), np.zeros(n, np.bool_), touched)


@compiled()
def _run(table, law, batch, stream, space, found, values):  # type: ignore[no-untyped-def]
    """Append the estimates of one batch to ``found`` (slots, ascending) and ``values``; return moves and visits.

    ``batch`` is (start, n_walkers, stride).
    """
    start, n_walkers, stride = batch
    s0, s1 = stream
    side, n_occupied, n_touched = 0, 1, 0
    n_steps, n_pushes = np.int64(0), np.int64(0)
    space.counts[0, start] = n_walkers
    space.nodes[0, 0] = start
    last = law.deposit.shape[0] - 1
    for k in range(last + 1):
        if law.deposit[k] != 0.0:
            weight = law.deposit[k] / n_walkers
            n_touched = _deposit(table.root_degrees, weight, start, space, side, n_occupied, n_touched)
        if stride > 0 or k == last:
            touched = space.touched[:n_touched]
            touched.sort()
            for v in touched:
                found.append(k * stride + v)
                values.append(space.sums[v])
                space.sums[v], space.seen[v] = 0.0, False
            n_touched = 0
        word, s0, s1 = next_word(s0, s1)
        other, s0, s1 = next_word(s0, s1)
        phases = (as_unit(word), as_unit(other))
        ratio = law.keep[k] if k < last else 0.0  # the last step removes all walkers
        n_occupied, moved, visited = _step(table, ratio, phases, space, side, n_occupied)
        n_steps += moved
        n_pushes += visited
        side = 1 - side
    return n_steps, n_pushes


@compiled()
def _deposit(roots, weight, start, space, side, n_occupied, n_touched):  # type: ignore[no-untyped-def]
    """Add the deposits at the occupied nodes; return the number of nodes touched.

    Each term is scaled here instead of the sum at the end, so that the estimates of single lengths add up to the
    same result, bit for bit.
    """
    counts, nodes, sums = space.counts[side], space.nodes[side], space.sums
    seen, touched = space.seen, space.touched
    for q in range(n_occupied):
        v = nodes[q]
        if not seen[v]:
            seen[v] = True
            touched[n_touched] = v
            n_touched += 1
        sums[v] += counts[v] * weight * (roots[start] / roots[v])
    return n_touched


@compiled()
def _step(table, ratio, phases, space, side, n_occupied):  # type: ignore[no-untyped-def]
    """Thin the walkers to ``ratio`` of their number and move them; return nodes occupied, moves and visits.

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
    n_before, n_kept, n_reached = np.int64(0), np.int64(0), np.int64(0)
    n_steps, n_pushes = np.int64(0), np.int64(0)
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
        offset += _GOLDEN
        offset -= np.floor(offset)
        n_steps += kept
        # A few walkers on a long row find their neighbours by bisection: on a hub, each costs only log2(degree).
        if end - begin > _SHORT_ROW and kept * np.log2(end - begin) < end - begin:
            row = (begin, end)
            found = _search_row(indices, cumulative, row, kept, offset, arrivals, reached, n_reached)
            n_pushes += found[1]
            n_reached = found[0]
        else:
            n_placed = np.int64(0)
            for e in range(begin, end):
                upper = _up_to(kept, cumulative[e], offset)
                if upper > n_placed:
                    w = indices[e]
                    if arrivals[w] == 0:
                        reached[n_reached] = w
                        n_reached += 1
                    arrivals[w] += upper - n_placed
                    n_placed = upper
            n_pushes += end - begin
    return n_reached, n_steps, n_pushes


@compiled()
def _up_to(n_walkers, probability, offset):  # type: ignore[no-untyped-def]
    """Number of walkers that go to the neighbours up to a cumulative probability; all at probability 1.

    It never decreases along a row, even after rounding, so scan and search agree to the bit.
    """
    return min(np.int64(n_walkers * probability + offset), n_walkers)


@compiled()
def _search_row(indices, cumulative, row, n_walkers, offset, arrivals, reached, n_reached):  # type: ignore[no-untyped-def]
    """Split the walkers by bisection for each neighbour that receives any: at most ``n_walkers`` of them.

    Returns the number of nodes reached and the number of neighbours visited.
    """
    low, end = row
    n_placed, n_visits = np.int64(0), np.int64(0)
    while n_placed < n_walkers:
        high = end - 1
        while low < high:  # find the first neighbour that the next walker may go to
            middle = (low + high) // 2
            if _up_to(n_walkers, cumulative[middle], offset) > n_placed:
                high = middle
            else:
                low = middle + 1
        upper = _up_to(n_walkers, cumulative[low], offset)
        w = indices[low]
        if arrivals[w] == 0:
            reached[n_reached] = w
            n_reached += 1
        arrivals[w] += upper - n_placed
        n_placed = upper
        n_visits += 1
        low += 1
    return n_reached, n_visits


@compiled()
def _average(found, values, ends, slots, sums, variances):  # type: ignore[no-untyped-def]
    """Merge the ascending slots of the batches, and append the mean and its variance for each slot.

    Batch b occupies ``ends[b]`` to ``ends[b + 1]``; its estimate of a missing slot is zero. Deviations are taken
    from the first estimate of a slot, so the variance is exactly zero if all batches agree.
    """
    n_batches = ends.shape[0] - 1
    heads = ends[:-1].copy()
    while True:
        slot = np.int64(-1)  # the smallest slot that is not yet merged
        for b in range(n_batches):
            if heads[b] < ends[b + 1] and (slot < 0 or found[heads[b]] < slot):
                slot = found[heads[b]]
        if slot < 0:
            return
        first, total, squares, n_seen = 0.0, 0.0, 0.0, 0
        for b in range(n_batches):
            if heads[b] < ends[b + 1] and found[heads[b]] == slot:
                value = values[heads[b]]
                first = value if n_seen == 0 else first
                total += value - first
                squares += (value - first) ** 2
                n_seen += 1
                heads[b] += 1
        total -= (n_batches - n_seen) * first
        squares += (n_batches - n_seen) * first**2
        slots.append(slot)
        sums.append(first + total / n_batches)
        spread = max(squares - total**2 / n_batches, 0.0)
        variances.append(spread / (n_batches * (n_batches - 1)) if n_batches > 1 else np.nan)
