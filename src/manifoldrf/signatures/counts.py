"""Walkers counted per node: rows of sum_k f_k W^k by integer counts spread with systematic sampling.

A walker at v moves to j with probability P_vj = A_vj / d_v. The product of the W_vj / P_vj along its way telescopes
to sqrt(d_start / d_now) whatever the way was, so all walkers at a node are alike and only their number c_v matters.
A step thins the numbers and splits each over the neighbours, rounded at random but evenly (systematic sampling):
every rounding is unbiased and off by less than one walker, so the error falls like 1 / n_walkers, where independent
walkers reach 1 / sqrt(n_walkers), and a step costs one visit per occupied edge however many walkers there are.

Compiled functions on contiguous arrays; the callers validate.
"""

from typing import Any, NamedTuple

import numpy as np

from manifoldrf._compiling import compiled
from manifoldrf.signatures.streams import as_unit, next_word, open_stream

_GOLDEN = 0.6180339887498949  # (sqrt(5) - 1) / 2
_SHORT_ROW = 16  # up to this degree a scan is never slower than a search


class CountTable(NamedTuple):
    """A graph as the walkers need it, made by :func:`build_count_table`."""

    indptr: Any  # (N + 1,)
    indices: Any  # (n_edges,)
    cumulative: Any  # (n_edges,) sums of P along each row, the last exactly 1 (all 0 in a row without weight)
    root_degrees: Any  # (N,) square roots of the row sums; 1 where the row sum is 0


class CountLaw(NamedTuple):
    """How many walkers survive to each length, and what one deposits there."""

    deposit: Any  # (L,) f_k / s_k, s_k the share of walkers that reach length k, s_0 = 1
    keep: Any  # (L,) s_{k+1} / s_k in [0, 1]; the last is taken as 0


class _Batch(NamedTuple):
    """What one batch of walkers is asked to do."""

    start: Any
    n_walkers: Any
    stride: Any


class _Desk(NamedTuple):
    """Working memory over all nodes, zero between batches, because each batch clears what it used."""

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
    root_degrees = np.ones(n_nodes)  # an isolated node is met as the start only, where the ratio of roots is 1
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

    A start is run in ``n_batches`` independent batches of n_walkers / n_batches walkers, as equal as possible (with
    fewer walkers than batches, each walker is a batch). The estimate is the plain mean of the batches. That keeps
    the variance below unbiased even where batches differ by a walker, but as the error of a batch falls like the
    inverse of its size, B batches have up to sqrt(B) times the error of one with all the walkers.

    Nothing is done per start that grows with the number of nodes N; the working memory of 49 N bytes is taken once.
    The bits depend on (key, start) only: not on the other starts.

    Parameters
    ----------
    table : CountTable
    law : CountLaw, for the lengths 0 to L - 1
    starts : int (n_starts,)
    n_walkers : int, at least 1, per start
    n_batches : int, at least 1
    stride : int
        The deposit of length k at node v goes to slot k * stride + v: 0 sums over the lengths, N keeps them apart.
        With one batch, the estimates of the lengths, added in order of length, are bit for bit the estimate with
        stride 0; with more batches they are equal up to rounding.
    key : uint32 (2,)

    Returns
    -------
    counts : int64 (n_starts,), the number of slots of each start
    slots : int64 (sum of counts,), those of one start after the other, ascending within each
    sums : float64 (sum of counts,), the estimates
    variances : float64 (sum of counts,), unbiased estimates of the variances of ``sums``; NaN with one batch
    n_steps : int64, moves of single walkers, over all starts
    n_pushes : int64, visits to neighbours, over all starts: what the time depends on
    """
    desk = _make_desk(table.root_degrees.shape[0])
    n_batches = min(n_batches, n_walkers)
    counts = np.zeros(starts.shape[0], np.int64)
    # Empty, but of a type the compiler can see. (Numba 0.68 mixes the constants of a comprehension up with others.)
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
            batch = _Batch(np.int64(starts[i]), np.int64(share), np.int64(stride))
            moved, visited = _run(table, law, batch, open_stream(starts[i], b, key), desk, found, values)
            ends[b + 1] = len(found)
            n_steps += moved
            n_pushes += visited
        begin = len(slots)
        _average(found, values, ends, slots, sums, variances)
        counts[i] = len(slots) - begin
    return counts, np.array(slots), np.array(sums), np.array(variances), n_steps, n_pushes


@compiled()
def _make_desk(n_nodes):  # type: ignore[no-untyped-def]
    """Working memory for N nodes."""
    return _Desk(
        np.zeros((2, n_nodes), np.int64),
        np.zeros((2, n_nodes), np.int64),
        np.zeros(n_nodes),
        np.zeros(n_nodes, np.bool_),
        np.zeros(n_nodes, np.int64),
    )


@compiled()
def _run(table, law, batch, stream, desk, found, values):  # type: ignore[no-untyped-def]
    """Append one batch's estimates to ``found`` (slots, ascending) and ``values``; return its moves and visits."""
    s0, s1 = stream
    side, n_occupied, n_touched = 0, 1, 0
    n_steps, n_pushes = np.int64(0), np.int64(0)
    desk.counts[0, batch.start] = batch.n_walkers
    desk.nodes[0, 0] = batch.start
    last = law.deposit.shape[0] - 1
    for k in range(last + 1):
        if law.deposit[k] != 0.0:
            n_touched = _deposit(table, law.deposit[k], batch, desk, side, n_occupied, n_touched)
        if batch.stride > 0 or k == last:
            _flush(desk, n_touched, k * batch.stride, found, values)
            n_touched = 0
        word, s0, s1 = next_word(s0, s1)
        other, s0, s1 = next_word(s0, s1)
        phases = (as_unit(word), as_unit(other))
        ratio = law.keep[k] if k < last else 0.0  # the last step takes all walkers away
        n_occupied, moved, visited = _step(table, ratio, phases, desk, side, n_occupied)
        n_steps += moved
        n_pushes += visited
        side = 1 - side
    return n_steps, n_pushes


@compiled()
def _deposit(table, amount, batch, desk, side, n_occupied, n_touched):  # type: ignore[no-untyped-def]
    """Add what the walkers leave at the occupied nodes; return the number of nodes touched.

    Each term is scaled at once, not the sum at the end: only then do the estimates of single lengths, which are
    such terms, add up to the same bits.
    """
    counts, nodes, sums, seen, touched = desk.counts[side], desk.nodes[side], desk.sums, desk.seen, desk.touched
    roots = table.root_degrees
    weight = amount / batch.n_walkers
    for q in range(n_occupied):
        v = nodes[q]
        if not seen[v]:
            seen[v] = True
            touched[n_touched] = v
            n_touched += 1
        sums[v] += counts[v] * weight * (roots[batch.start] / roots[v])
    return n_touched


@compiled()
def _flush(desk, n_touched, shift, found, values):  # type: ignore[no-untyped-def]
    """Append the deposits in order of nodes, and clear them."""
    sums, seen, touched = desk.sums, desk.seen, desk.touched[:n_touched]
    touched.sort()
    for v in touched:
        found.append(shift + v)
        values.append(sums[v])
        sums[v] = 0.0
        seen[v] = False


@compiled()
def _step(table, ratio, phases, desk, side, n_occupied):  # type: ignore[no-untyped-def]
    """Thin the walkers to ``ratio`` of their number and move them; return nodes occupied, moves and visits.

    The thinning is one systematic sample over the occupied nodes in order, at phase ``phases[0]``: the number that
    survives is off by less than one at every node and in total, and with ratio 1 no walker is lost or made.

    The offsets of the nodes start at ``phases[1]`` and turn by the golden ratio from node to node. Each is uniform,
    so that each split is unbiased. Carrying one offset on unchanged sends the single walkers of all nodes in the
    same direction: sums over many nodes are then up to four times less accurate. The turn spreads the directions
    more evenly than independent offsets do: such sums come out 5 to 15 per cent more accurate.
    """
    counts, nodes = desk.counts[side], desk.nodes[side]
    arrivals, reached = desk.counts[1 - side], desk.nodes[1 - side]
    indptr, indices, cumulative = table.indptr, table.indices, table.cumulative
    phase, offset = phases
    n_before, n_kept, n_reached = np.int64(0), np.int64(0), np.int64(0)
    n_steps, n_pushes = np.int64(0), np.int64(0)
    for q in range(n_occupied):
        v = nodes[q]
        n_before += counts[v]
        # Rounding can lift n_before * ratio + phase to the next integer: no node may keep more than it has.
        kept = min(np.int64(n_before * ratio + phase) - n_kept, counts[v])
        counts[v] = 0
        n_kept += kept
        begin, end = np.int64(indptr[v]), np.int64(indptr[v + 1])
        if kept == 0 or begin == end or cumulative[end - 1] == 0.0:
            continue
        offset += _GOLDEN
        offset -= np.floor(offset)
        n_steps += kept
        # A few walkers on a long row look their neighbours up: on a hub, each costs only log2(degree).
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
    """Walkers that go to the neighbours up to a cumulative probability; all of them at probability 1.

    It never falls along a row, however it is rounded: scan and search therefore agree to the bit.
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
        while low < high:  # the first neighbour that the next walker may go to
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

    Batch b stands from ``ends[b]`` to ``ends[b + 1]``; where it lacks a slot, its estimate is zero. Deviations are
    taken from the first estimate of a slot: where all batches agree the variance is exactly zero.
    """
    n_batches = ends.shape[0] - 1
    heads = ends[:-1].copy()
    while True:
        slot = _smallest_head(found, heads, ends)
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


@compiled()
def _smallest_head(found, heads, ends):  # type: ignore[no-untyped-def]
    """The smallest slot that is not yet merged; -1 when there is none."""
    slot = np.int64(-1)
    for b in range(heads.shape[0]):
        if heads[b] < ends[b + 1] and (slot < 0 or found[heads[b]] < slot):
            slot = found[heads[b]]
    return slot
