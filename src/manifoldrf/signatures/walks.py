"""Rows of sum_k f_k W^k by random walks: independent walkers, or walkers that are coupled to lower the variance.

A walk of length k continues to length k + 1 with probability s_{k+1} / s_k. It chooses an entry of its row, either
uniformly or in proportion to |W|, and its load is multiplied by the entry over the probability of the choice. It
deposits load * f_k / s_k at every node it visits, including the start. The mean over walks is unbiased.

Plain functions on contiguous arrays. The callers validate the arguments.
"""

from typing import Any, NamedTuple

import numpy as np

from manifoldrf._compiling import compiled
from manifoldrf.signatures.streams import next_word, open_stream

_0, _1, _32 = np.uint64(0), np.uint64(1), np.uint64(32)
_LOW, _HALF = np.uint64(2**32 - 1), np.uint64(2**31)
_ROOM = 2**20  # entries of results whose memory is reserved at a time

# One step reads one record of 16 bytes: the target node of the entry, and where the row of that node begins. The
# degree of that node is stored in the last mantissa bits of the weight: below degree 16 the weight keeps 48 bits. A
# single-precision weight is hardly faster, and records of 24 bytes are slower.
_FIELDS: Any = {"target": ("<u4", 0), "row": ("<u4", 4), "weight": ("<f8", 8), "tail": ("<u4", 8)}
EDGE = np.dtype(_FIELDS)


class Table(NamedTuple):
    """A matrix packed for random walks."""

    edges: Any  # (nnz,) records EDGE; the weight is the factor by which a step along the entry multiplies the load
    rows: Any  # uint64 (N + 1,), where the rows begin
    mask: Any  # uint64, the bits of ``tail`` that hold a degree
    alias: Any  # None: uniform choice; else uint64 (nnz,), upper half a threshold, lower half another entry


class Law(NamedTuple):
    """What walks deposit and when they end."""

    deposit: Any  # float64 (L,), f_k / s_k
    go_on: Any  # uint64 (L,), length k continues to k + 1 if 32 random bits are below it; the last must be 0


class Coupling(NamedTuple):
    """How the walkers of a group depend on each other; they move in lock-step."""

    group_size: int
    antithetic: bool  # walkers 2j and 2j + 1 survive by the random numbers t and t + 1/2 modulo 1, while both live
    repelling: bool  # walkers on the same node choose different entries until all entries are taken


class _Space(NamedTuple):
    """Accumulators of one start node; all but the lists are reset to zero after use."""

    stride: Any  # uint64, slot = length * stride + node
    batch: Any  # float64 (S,), sums of the current batch
    seen: Any  # uint8 (S,), 1 where the batch has a deposit
    listed: Any  # uint64 (S + 1,), the slots of the batch in order of the first deposit
    moments: Any  # float64 (S, 2), sums over batches of the sums, and of their squares over the batch size
    known: Any  # uint8 (S,), 1 where the start has a deposit
    touched: Any  # int64 (S + 1,), the slots of the start


class _Group(NamedTuple):
    """State of the walkers of one group (g of them)."""

    row: Any  # uint64 (g,), where the row of the walker's node begins
    degree: Any  # uint64 (g,)
    load: Any  # float64 (g,)
    entry: Any  # uint64 (g,), chosen for the next step
    live: Any  # int64 (g,), the walkers that have not ended, ascending
    cards: Any  # uint64 (largest degree,), 0, 1, 2, ... between uses
    swaps: Any  # uint64 (g,), to restore the order of the cards
    coupling: Any


def pack_uniform(indptr: Any, indices: Any, data: Any) -> Table:
    """Table of a CSR matrix for walks that choose uniformly among the stored entries of a row."""
    rows = np.ascontiguousarray(indptr, np.uint64)
    if max(len(data), rows.size) >= 2**32:
        raise ValueError(f"Walks need fewer than 2^32 nodes and entries, got {rows.size - 1} and {len(data)}.")
    mask = np.uint64(2 ** int(np.diff(rows).max(initial=_0)).bit_length() - 1)
    edges = np.zeros(len(data), EDGE)
    _fill_edges(rows, np.ascontiguousarray(indices, np.int64), np.ascontiguousarray(data, np.float64), mask, edges)
    return Table(edges, rows, mask, None)


def pack_weighted(indptr: Any, indices: Any, data: Any) -> Table:
    """Table of a CSR matrix for walks that choose an entry with probability |W[v, w]| / sum_u |W[v, u]|.

    The probabilities are resolved to 2^-32 of the mean entry of the row (alias method of Walker and Vose).
    """
    alias, even = _alias_entries(np.ascontiguousarray(indptr, np.uint64), np.ascontiguousarray(data, np.float64))
    return pack_uniform(indptr, indices, even)._replace(alias=alias)


@compiled()
def _fill_edges(rows, indices, data, mask, edges):  # type: ignore[no-untyped-def]
    """Write the records; the weight is W over the probability of the choice."""
    keep = np.uint32(~mask & _LOW)
    for v in range(rows.shape[0] - 1):
        for e in range(rows[v], rows[v + 1]):
            target = indices[e]
            edges[e]["target"] = np.uint32(target)
            edges[e]["row"] = np.uint32(rows[target])
            edges[e]["weight"] = data[e] * np.float64(rows[v + 1] - rows[v])
            degree = np.uint32(rows[target + 1] - rows[target])
            edges[e]["tail"] = np.uint32((edges[e]["tail"] & keep) | degree)


@compiled()
def _alias_entries(rows, data):  # type: ignore[no-untyped-def]
    """Vose's alias table of every row, and its entries replaced by their mean size."""
    alias, even = np.zeros(data.shape[0], np.uint64), np.zeros(data.shape[0])
    for v in range(rows.shape[0] - 1):
        begin, end = rows[v], rows[v + 1]
        mean = np.abs(data[begin:end]).sum() / np.float64(max(end - begin, _1))
        share = np.ones(end - begin)
        for e in range(begin, end):
            alias[e] = (_LOW << _32) | e  # a full column leads to the entry itself
            even[e] = np.sign(data[e]) * mean
            if mean > 0.0:
                share[e - begin] = abs(data[e]) / mean
        _pair_columns(share, begin, alias)
    return alias, even


@compiled()
def _pair_columns(share, begin, alias):  # type: ignore[no-untyped-def]
    """Fill each column below 1 from one above 1; the stack holds small ones in front and large ones at its end."""
    n = share.shape[0]
    stack, small, large = np.zeros(n, np.uint64), 0, n
    for j in range(n):
        if share[j] < 1.0:
            stack[small] = np.uint64(j)
            small += 1
        else:
            large -= 1
            stack[large] = np.uint64(j)
    while small > 0 and large < n:
        small -= 1
        low, high = stack[small], stack[large]
        alias[begin + low] = (np.uint64(share[low] * 4294967296.0) << _32) | (begin + high)
        share[high] -= 1.0 - share[low]
        if share[high] < 1.0:
            large += 1
            stack[small] = high
            small += 1


def independent_walks(
    table: Table, starts: Any, law: Law, n_walks: int, n_batches: int, stride: int, key: Any, group: Any = None
) -> Any:
    """Estimate rows of sum_k f_k W^k with independent walks.

    Memory is reserved for all slots, but the system provides only the pages that are touched.

    Parameters
    ----------
    starts : int64 (n,), the rows; the random words of a row depend only on its node and the key
    n_walks : int, walks per row
    n_batches : int, parts of nearly equal size for the variance; at most ``n_walks``
    stride : int, slot = length * stride + node: 0 gives the row, N separates the lengths
    key : uint32 (2,)
    group : state of coupled walkers, set by ``coupled_walks``

    Returns
    -------
    counts : int64 (n,), slots touched from each start
    slots : int64 (sum of counts,), ascending within a start
    sums, variances : float64 (sum of counts,), the estimates and unbiased estimates of their variances (NaN for a
        single batch)
    n_steps : int, steps of all walks
    """
    starts = np.ascontiguousarray(starts, np.int64)
    unit = 1 if group is None else group.live.size
    n_units = -(-n_walks // unit)  # a batch has whole units; only the last unit may be incomplete
    n_batches = min(n_batches, n_units)
    sizes = np.diff(np.minimum(np.arange(n_batches + 1) * n_units // n_batches * unit, n_walks))
    n = (law.deposit.size - 1) * stride + table.rows.size - 1
    seen, known, listed, touched = (np.zeros(n + 1, kind) for kind in (np.uint8, np.uint8, np.uint64, np.int64))
    space = _Space(np.uint64(stride), np.zeros(n), seen[:n], listed, np.zeros((n, 2)), known[:n], touched)
    most = min(n, n_walks * (law.deposit.size - 1) + 1)
    chunk = max(_ROOM // most, 1)
    results, n_steps = [], 0
    for first in range(0, max(starts.size, 1), chunk):
        part = starts[first : first + chunk]
        room = part.size * most
        found = (np.zeros(part.size, np.int64), np.zeros(room, np.int64), np.zeros(room), np.zeros(room))
        n_steps += _estimate(table, part, law, sizes, space, key, found, group)
        n_found = int(found[0].sum())
        parts = (values[:n_found] for values in found[1:])
        results.append((found[0], *(p.copy() if 4 * n_found < room else p for p in parts)))
    columns = results[0] if len(results) == 1 else [np.concatenate(c) for c in zip(*results, strict=True)]
    return *columns, n_steps


def coupled_walks(
    table: Table, starts: Any, law: Law, n_walks: int, n_batches: int, stride: int, key: Any, coupling: Coupling
) -> Any:
    """Estimate rows as in ``independent_walks``, with the walkers of each group coupled.

    The law of a single walk does not change, so the estimates stay unbiased. Batches consist of whole groups. If
    the group size does not divide ``n_walks``, the last group is smaller; its variance per walk is assumed to equal
    that of the other groups. Repelling walkers need a uniform table.
    """
    if coupling.repelling and table.alias is not None:
        raise ValueError("Repelling walkers choose uniformly: they need a table of pack_uniform.")
    g = coupling.group_size
    words, live = np.zeros((4, g), np.uint64), np.zeros(g, np.int64)
    cards = np.arange(np.diff(table.rows).max(initial=_0), dtype=np.uint64)
    group = _Group(words[0], words[1], np.zeros(g), words[2], live, cards, words[3], coupling)
    return independent_walks(table, starts, law, n_walks, n_batches, stride, key, group)


@compiled()
def _estimate(table, starts, law, sizes, space, key, found, group):  # type: ignore[no-untyped-def]
    """Write the rows of all starts to ``found``, in batches of the given sizes; return the number of steps."""
    n_found, n_steps = 0, 0
    for s in range(starts.shape[0]):
        start = np.uint64(starts[s])
        streams = open_stream(start, 0, key) + open_stream(start, 1, key)
        n_touched = 0
        for size in sizes:
            n_listed = _deposit(space, start, np.float64(size) * law.deposit[0], _0)
            if group is None:
                streams, n_listed, steps = _walk_two(table, start, law, space, size, streams, n_listed)
            else:
                streams, n_listed, steps = _walk_groups(table, start, law, space, size, streams, n_listed, group)
            n_steps += steps
            n_touched = _close_batch(space, n_listed, n_touched, size)
        _close_start(space, n_touched, found, n_found, sizes)
        found[0][s] = n_touched
        n_found += n_touched
    return n_steps


@compiled()
def _walk_two(table, start, law, space, n_walks, streams, n_listed):  # type: ignore[no-untyped-def]
    """Independent walks by two walkers in turn: one computes while the other waits for memory.

    A walker is (begin of its row, degree, load, length), held in registers. When its walk ends, it starts the next
    one.
    """
    a0, a1, b0, b1 = streams
    home = (table.rows[start], table.rows[start + _1] - table.rows[start], 1.0, _0)
    a, b = home, home
    waiting, a_ended, n_steps = n_walks - 2, False, _0
    while waiting >= 0:
        word, a0, a1 = next_word(a0, a1)
        if (word & _LOW) < law.go_on[a[3]] and a[1] > _0:
            a, n_listed = _step(table, law, space, word, a, n_listed)
        else:
            n_steps += a[3]
            if waiting == 0:
                a_ended = True
                break
            waiting -= 1
            a = home
        word, b0, b1 = next_word(b0, b1)
        if (word & _LOW) < law.go_on[b[3]] and b[1] > _0:
            b, n_listed = _step(table, law, space, word, b, n_listed)
        else:
            n_steps += b[3]
            if waiting == 0:
                break
            waiting -= 1
            b = home
    if a_ended:  # b replaces a
        a, a0, a1, b0, b1 = b, b0, b1, a0, a1
    a, a0, a1, n_listed = _finish(table, law, space, a, a0, a1, n_listed)
    return (a0, a1, b0, b1), n_listed, np.int64(n_steps + a[3])


@compiled()
def _finish(table, law, space, walker, s0, s1, n_listed):  # type: ignore[no-untyped-def]
    """The rest of one walk; as a separate function, so that the loop above keeps its registers."""
    word, s0, s1 = next_word(s0, s1)
    while (word & _LOW) < law.go_on[walker[3]] and walker[1] > _0:
        walker, n_listed = _step(table, law, space, word, walker, n_listed)
        word, s0, s1 = next_word(s0, s1)
    return walker, s0, s1, n_listed


@compiled()
def _step(table, law, space, word, walker, n_listed):  # type: ignore[no-untyped-def]
    """One step of a walker and its deposit."""
    row, degree, load, length = walker
    edge = table.edges[_choose(table.alias, row, degree, word)]
    target, row, degree = np.uint64(edge["target"]), np.uint64(edge["row"]), np.uint64(edge["tail"]) & table.mask
    load *= edge["weight"]
    length += _1
    n_listed = _deposit(space, length * space.stride + target, load * law.deposit[length], n_listed)
    return (row, degree, load, length), n_listed


@compiled()
def _choose(alias, row, degree, word):  # type: ignore[no-untyped-def]
    """Choose an entry of a row with the upper half of a word: uniformly, or with the alias table."""
    column = (word >> _32) * degree
    entry = row + (column >> _32)
    if alias is None:
        return entry
    other = alias[entry]
    return entry if (column & _LOW) < (other >> _32) else other & _LOW


@compiled()
def _deposit(space, slot, value, n_listed):  # type: ignore[no-untyped-def]
    """Add to a slot and list it if it is new. There is no branch, because it could not be predicted."""
    space.batch[slot] += value
    space.listed[n_listed] = slot
    n_listed += _1 - np.uint64(space.seen[slot])
    space.seen[slot] = 1
    return n_listed


@compiled()
def _close_batch(space, n_listed, n_touched, size):  # type: ignore[no-untyped-def]
    """Move the sums of a batch of ``size`` walks to the moments; return the number of slots touched so far."""
    weight = 1.0 / size
    for i in range(n_listed):
        slot = space.listed[i]
        value = space.batch[slot]
        space.moments[slot, 0] += value
        space.moments[slot, 1] += value * value * weight
        space.batch[slot], space.seen[slot] = 0.0, 0
        space.touched[n_touched] = np.int64(slot)
        n_touched += 1 - np.int64(space.known[slot])
        space.known[slot] = 1
    return n_touched


@compiled()
def _close_start(space, n_touched, found, n_found, sizes):  # type: ignore[no-untyped-def]
    """Sort the slots of a start, write its estimates and reset the slots.

    With batch sums S_b of n_b walks, the mean of sum_b S_b^2 / n_b - (sum_b S_b)^2 / n is (n_batches - 1) times the
    variance of one walk for any sizes; a batch that never reached the slot has S_b = 0.
    """
    _, slots, sums, variances = found
    if n_touched < space.known.shape[0] // 16:
        space.touched[:n_touched].sort()
    else:  # many slots are touched, so a scan of all is faster
        position = np.int64(0)
        for slot in range(space.known.shape[0]):
            space.touched[position] = slot
            position += np.int64(space.known[slot])
    n_batches, share = sizes.shape[0], 1.0 / sizes.sum()
    scale = share / (n_batches - 1) if n_batches > 1 else np.nan
    for i in range(n_touched):
        at = np.uint64(space.touched[i])
        total = space.moments[at, 0]
        slots[n_found + i] = space.touched[i]
        sums[n_found + i] = total * share
        variances[n_found + i] = max(space.moments[at, 1] - total * total * share, 0.0) * scale
        space.moments[at, 0], space.moments[at, 1], space.known[at] = 0.0, 0.0, 0


@compiled()
def _walk_groups(table, start, law, space, n_walks, streams, n_listed, group):  # type: ignore[no-untyped-def]
    """Groups of walkers in lock-step; all random words come from the first stream."""
    s0, s1, n_steps = streams[0], streams[1], 0
    for begun in range(0, n_walks, group.live.shape[0]):
        n_live = min(group.live.shape[0], n_walks - begun)
        for w in range(n_live):
            group.row[w], group.degree[w] = table.rows[start], table.rows[start + _1] - table.rows[start]
            group.load[w], group.live[w] = 1.0, w
        length = _0
        while n_live > 0:
            n_live, s0, s1 = _survivors(table, law.go_on[length], group, n_live, s0, s1)
            if group.coupling.repelling:
                s0, s1 = _choose_apart(group, n_live, s0, s1)
            length += _1
            n_steps += n_live
            n_listed = _move(table, law, space, group, n_live, length, n_listed)
    return (s0, s1, streams[2], streams[3]), n_listed, n_steps


@compiled()
def _survivors(table, threshold, group, n_live, s0, s1):  # type: ignore[no-untyped-def]
    """Keep the walkers that continue, in order, so that pairs stay adjacent, and choose their entries."""
    kept, before, ticket = 0, -1, _0
    for i in range(n_live):
        w = group.live[i]
        word, s0, s1 = next_word(s0, s1)
        paired = group.coupling.antithetic and w % 2 == 1 and before == w - 1
        ticket, before = (ticket + _HALF if paired else word) & _LOW, w
        if ticket < threshold and group.degree[w] > _0:
            group.entry[w] = _choose(table.alias, group.row[w], group.degree[w], word)
            group.live[kept] = w
            kept += 1
    return kept, s0, s1


@compiled()
def _choose_apart(group, n_live, s0, s1):  # type: ignore[no-untyped-def]
    """Choose the entries again, without replacement among the walkers on a node, in blocks of its degree."""
    walkers = group.live[:n_live]
    walkers = walkers[np.argsort(group.row[walkers], kind="mergesort")]  # the begin of its row identifies a node
    begin = 0
    while begin < n_live:
        first = walkers[begin]
        limit = min(n_live, begin + np.int64(group.degree[first]))
        end = begin + 1
        while end < limit and group.row[walkers[end]] == group.row[first]:
            end += 1
        s0, s1 = _deal(group, walkers[begin:end], s0, s1)
        begin = end
    return s0, s1


@compiled()
def _deal(group, walkers, s0, s1):  # type: ignore[no-untyped-def]
    """Deal different entries of one row: a partial shuffle, undone afterwards, which costs O(walkers)."""
    cards, swaps, row, degree = group.cards, group.swaps, group.row[walkers[0]], group.degree[walkers[0]]
    for r in range(walkers.shape[0]):
        word, s0, s1 = next_word(s0, s1)
        dealt = np.uint64(r)
        swaps[r] = dealt + (((word >> _32) * (degree - dealt)) >> _32)
        cards[dealt], cards[swaps[r]] = cards[swaps[r]], cards[dealt]
        group.entry[walkers[r]] = row + cards[dealt]
    for r in range(walkers.shape[0] - 1, -1, -1):
        cards[r], cards[swaps[r]] = cards[swaps[r]], cards[r]
    return s0, s1


@compiled()
def _move(table, law, space, group, n_live, length, n_listed):  # type: ignore[no-untyped-def]
    """Move along the chosen entries and deposit."""
    for w in group.live[:n_live]:
        edge = table.edges[group.entry[w]]
        group.load[w] *= edge["weight"]
        group.row[w], group.degree[w] = np.uint64(edge["row"]), np.uint64(edge["tail"]) & table.mask
        slot = length * space.stride + np.uint64(edge["target"])
        n_listed = _deposit(space, slot, group.load[w] * law.deposit[length], n_listed)
    return n_listed
