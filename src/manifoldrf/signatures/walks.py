"""Rows of sum_k f_k W^k by random walks (Algorithm 1 of the paper): independent walkers, or coupled ones.

A walk of length k continues to length k + 1 with probability s_{k+1} / s_k. It chooses an entry of its row, either
uniformly or in proportion to |W|, and its load is multiplied by the entry over the probability of the choice. It
deposits load * f_k / s_k at every node it visits, including the start. The mean over walks is unbiased.

Random numbers are xoroshiro128+ streams that Philox 4x32-10 seeds, a pure function of key and counter (Salmon,
Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011). The counter holds the start node and
the lane, so a stream has the same bits in any thread and in any order.

Plain functions on contiguous arrays. The callers validate the arguments.
"""

from typing import Any, NamedTuple

import numpy as np

from manifoldrf._compiling import compiled

_0, _1, _32 = np.uint64(0), np.uint64(1), np.uint64(32)
_LOW, _HALF = np.uint64(2**32 - 1), np.uint64(2**31)

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
    shares: Any  # None: uniform choice; else uint64 (nnz,), probabilities summed along each row, in units of 2^-32


class Law(NamedTuple):
    """What walks deposit and when they end."""

    deposit: Any  # float64 (L,), f_k / s_k
    go_on: Any  # uint64 (L,), length k continues to k + 1 if 32 random bits are below it; the last must be 0


class _Space(NamedTuple):
    """Accumulators of one start node; all but the lists are reset to zero after use."""

    batch: Any  # float64 (N,), sums of the current batch
    seen: Any  # uint8 (N,), 1 where the batch has a deposit
    listed: Any  # uint64 (N + 1,), the nodes of the batch in order of the first deposit
    moments: Any  # float64 (N, 2), sums over batches of the sums, and of their squares over the batch size
    known: Any  # uint8 (N,), 1 where the start has a deposit
    touched: Any  # int64 (N + 1,), the nodes of the start


class _Group(NamedTuple):
    """State of g coupled walkers, which move in lock-step."""

    row: Any  # uint64 (g,), where the row of the walker's node begins
    degree: Any  # uint64 (g,)
    load: Any  # float64 (g,)
    entry: Any  # uint64 (g,), chosen for the next step
    live: Any  # int64 (g,), the walkers that have not ended, ascending
    repelling: bool  # walkers on a node choose different entries; else pairs survive by the numbers t and t + 1/2


def pack_table(indptr: Any, indices: Any, data: Any, *, weighted: bool = False) -> Table:
    """Table of a CSR matrix for walks that choose entries of a row uniformly, or in proportion to |W|."""
    rows = np.ascontiguousarray(indptr, np.uint64)
    if max(len(data), rows.size) >= 2**32:
        raise ValueError(f"Walks need fewer than 2^32 nodes and entries, got {rows.size - 1} and {len(data)}.")
    mask = np.uint64(2 ** int(np.diff(rows).max(initial=_0)).bit_length() - 1)
    edges, shares = np.zeros(len(data), EDGE), np.zeros(len(data) if weighted else 0, np.uint64)
    values = np.ascontiguousarray(data, np.float64)
    _fill_table(rows, np.ascontiguousarray(indices, np.int64), values, mask, edges, shares)
    return Table(edges, rows, mask, shares if weighted else None)


@compiled()
def _fill_table(rows, indices, data, mask, edges, shares):  # type: ignore[no-untyped-def]
    """Write the records and the shares; the weight of a record is W over the probability of the choice."""
    keep = np.uint32(~mask & _LOW)
    for v in range(rows.shape[0] - 1):
        total = np.abs(data[rows[v] : rows[v + 1]]).sum()
        upto, before = 0.0, _0
        for e in range(rows[v], rows[v + 1]):
            target = indices[e]
            edges[e]["target"] = np.uint32(target)
            edges[e]["row"] = np.uint32(rows[target])
            weight = data[e] * np.float64(rows[v + 1] - rows[v])
            if shares.shape[0] > 0:
                upto += abs(data[e])
                last = e + _1 == rows[v + 1] or total == 0.0
                shares[e] = _LOW + _1 if last else min(np.uint64(upto / total * 4294967296.0), _LOW + _1)
                # The probability as it is drawn, so that rounding to 2^-32 causes no bias.
                chance = np.float64(shares[e] - before) / 4294967296.0
                weight = data[e] / chance if chance > 0.0 else 0.0
                before = shares[e]
            edges[e]["weight"] = weight
            degree = np.uint32(rows[target + 1] - rows[target])
            edges[e]["tail"] = np.uint32((edges[e]["tail"] & keep) | degree)


def run_walks(table: Table, law: Law, n_walks: int, n_batches: int, key: Any, coupling: str, starts: Any) -> Any:
    """Estimate rows of sum_k f_k W^k with walks.

    Couplings change the joint law of the walkers of a group, not that of a single walk, so the estimates stay
    unbiased. Batches consist of whole groups; if the group size does not divide ``n_walks``, the last group is
    smaller, and its variance per walk is assumed to equal that of the others. Memory is reserved for all nodes, but
    the system provides only the pages that are touched.

    Parameters
    ----------
    n_walks : int, walks per row
    n_batches : int, parts of nearly equal size for the variance; at most ``n_walks``
    key : uint32 (2,)
    coupling : "iid", "antithetic" or "repelling"; the last needs a table with uniform choice
    starts : int64 (n,), the rows; the random words of a row depend only on its node and the key

    Returns
    -------
    counts : int64 (n,), nodes touched from each start
    nodes : int64 (sum of counts,), ascending within a start
    sums, variances : float64 (sum of counts,), the estimates and unbiased estimates of their variances (NaN for a
        single batch)
    n_steps : int, steps of all walks
    """
    starts, group, unit = np.ascontiguousarray(starts, np.int64), None, 1
    if coupling != "iid":
        unit = 2 if coupling == "antithetic" else 16  # 16: twice the usual degree
        words, live = np.zeros((3, unit), np.uint64), np.zeros(unit, np.int64)
        group = _Group(words[0], words[1], np.zeros(unit), words[2], live, coupling == "repelling")
    n_units = -(-n_walks // unit)  # a batch has whole units; only the last unit may be incomplete
    n_batches = min(n_batches, n_units)
    sizes = np.diff(np.minimum(np.arange(n_batches + 1) * n_units // n_batches * unit, n_walks))
    n = table.rows.size - 1
    seen, known, listed, touched = (np.zeros(n + 1, kind) for kind in (np.uint8, np.uint8, np.uint64, np.int64))
    space = _Space(np.zeros(n), seen[:n], listed, np.zeros((n, 2)), known[:n], touched)
    most = min(n, n_walks * (law.deposit.size - 1) + 1)
    chunk = max(2**20 // most, 1)  # results of 8 MB at a time
    results, n_steps = [], 0
    for first in range(0, max(starts.size, 1), chunk):
        part = starts[first : first + chunk]
        room = part.size * most
        found = (np.zeros(part.size, np.int64), np.zeros(room, np.int64), np.zeros(room), np.zeros(room))
        n_steps += _estimate(table, part, law, sizes, space, key, found, group)
        n_found = int(found[0].sum())
        results.append((found[0], *(values[:n_found] for values in found[1:])))
    return *(np.concatenate(column) for column in zip(*results, strict=True)), n_steps


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
    edge = table.edges[_choose(table.shares, row, degree, word)]
    target, row, degree = np.uint64(edge["target"]), np.uint64(edge["row"]), np.uint64(edge["tail"]) & table.mask
    load *= edge["weight"]
    length += _1
    n_listed = _deposit(space, target, load * law.deposit[length], n_listed)
    return (row, degree, load, length), n_listed


@compiled()
def _choose(shares, row, degree, word):  # type: ignore[no-untyped-def]
    """Choose an entry of a row with the upper half of a word: uniformly, or by bisection of the shares."""
    if shares is None:
        return row + (((word >> _32) * degree) >> _32)
    low, high = row, row + degree - _1
    while low < high:
        middle = (low + high) >> _1
        if (word >> _32) < shares[middle]:
            high = middle
        else:
            low = middle + _1
    return low


@compiled()
def _deposit(space, slot, value, n_listed):  # type: ignore[no-untyped-def]
    """Add to a node and list it if it is new. There is no branch, because it could not be predicted."""
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
            if group.repelling:
                s0, s1 = _choose_apart(group, n_live, s0, s1)
            length += _1
            n_steps += n_live
            for w in group.live[:n_live]:
                edge = table.edges[group.entry[w]]
                group.load[w] *= edge["weight"]
                group.row[w], group.degree[w] = np.uint64(edge["row"]), np.uint64(edge["tail"]) & table.mask
                value = group.load[w] * law.deposit[length]
                n_listed = _deposit(space, np.uint64(edge["target"]), value, n_listed)
    return (s0, s1, streams[2], streams[3]), n_listed, n_steps


@compiled()
def _survivors(table, threshold, group, n_live, s0, s1):  # type: ignore[no-untyped-def]
    """Keep the walkers that continue, in order, so that pairs stay adjacent, and choose their entries."""
    kept, before, ticket = 0, -1, _0
    for i in range(n_live):
        w = group.live[i]
        word, s0, s1 = next_word(s0, s1)
        paired = not group.repelling and w % 2 == 1 and before == w - 1
        ticket, before = (ticket + _HALF if paired else word) & _LOW, w
        if ticket < threshold and group.degree[w] > _0:
            group.entry[w] = _choose(table.shares, group.row[w], group.degree[w], word)
            group.live[kept] = w
            kept += 1
    return kept, s0, s1


@compiled()
def _choose_apart(group, n_live, s0, s1):  # type: ignore[no-untyped-def]
    """Choose the entries again, without replacement among the walkers on a node, in blocks of its degree."""
    walkers = group.live[:n_live]
    walkers = walkers[np.argsort(group.row[walkers], kind="mergesort")]  # the begin of its row identifies a node
    first = 0
    for i in range(n_live):
        row, degree = group.row[walkers[i]], group.degree[walkers[i]]
        if row != group.row[walkers[first]] or np.uint64(i - first) == degree:
            first = i
        taken = True
        while taken:  # draw until the entry is free
            word, s0, s1 = next_word(s0, s1)
            entry = row + (((word >> _32) * degree) >> _32)
            taken = False
            for w in walkers[first:i]:
                taken |= group.entry[w] == entry
        group.entry[walkers[i]] = entry
    return s0, s1


@compiled()
def philox4x32(c0, c1, c2, c3, k0, k1):  # type: ignore[no-untyped-def]
    """Return four 32-bit words (as uint64) for a counter of four and a key of two 32-bit words."""
    a, b, c, d = np.uint64(c0) & _LOW, np.uint64(c1) & _LOW, np.uint64(c2) & _LOW, np.uint64(c3) & _LOW
    x, y = np.uint64(k0) & _LOW, np.uint64(k1) & _LOW
    for _ in range(10):
        p0 = np.uint64(0xD2511F53) * a
        p1 = np.uint64(0xCD9E8D57) * c
        a, b, c, d = (p1 >> _32) ^ b ^ x, p1 & _LOW, (p0 >> _32) ^ d ^ y, p0 & _LOW
        x = (x + np.uint64(0x9E3779B9)) & _LOW
        y = (y + np.uint64(0xBB67AE85)) & _LOW
    return a, b, c, d


@compiled()
def open_stream(start, lane, key):  # type: ignore[no-untyped-def]
    """State (two words) of the stream of a start node and a lane; ``key`` has two uint32 words."""
    start, lane = np.uint64(start), np.uint64(lane)
    a, b, c, d = philox4x32(start, start >> _32, lane, lane >> _32, key[0], key[1])
    # The last bit is set because the state zero would stay zero forever.
    return (a << _32) | b, ((c << _32) | d) | np.uint64(1)


@compiled(inline="always")
def next_word(s0, s1):  # type: ignore[no-untyped-def]
    """Next 64 random bits and the new state: ``word, s0, s1 = next_word(s0, s1)``."""
    word = s0 + s1
    s1 ^= s0
    s0 = ((s0 << np.uint64(24)) | (s0 >> np.uint64(40))) ^ s1 ^ (s1 << np.uint64(16))
    s1 = (s1 << np.uint64(37)) | (s1 >> np.uint64(27))
    return word, s0, s1


@compiled(inline="always")
def as_unit(word):  # type: ignore[no-untyped-def]
    """A double in [0, 1) from the upper 53 bits of a word; it never rounds up to 1."""
    return np.float64(word >> np.uint64(11)) * (1.0 / 9007199254740992.0)  # 2^-53
