"""Compiled: one step from every query, times a table of which neighbouring columns are kept together.

Columns are sorted so that anchors close in space stand close together, and the table is cut into blocks of eight of
them: whole blocks are added at a time, and the few that a query reaches lie close together in memory.
"""

from typing import Any, NamedTuple

import numpy as np

from manifoldrf._compiling import compiled
from manifoldrf._validation import IntArray
from manifoldrf.geometry._cells import collect, room_for, weigh
from manifoldrf.geometry._sparse_loops import sort_entries

# Columns of a block that are not zero, on average, or blocks of large tables take more memory than they save time.
_FEWEST_OF_A_BLOCK, _LARGE_TABLE = 2, 2**22
BLOCK = 8  # columns of a table added at a time: two registers of four doubles
_SHIFT = np.uint32(BLOCK.bit_length() - 1)  # from a column to its block
# Sums of unsigned numbers cannot be negative: the compiler need not look for indices that count from the end.
_1, _2, _3, _4, _5, _6, _7, _8 = (np.uint64(k) for k in range(1, 9))


class Blocks(NamedTuple):
    """A table (N, m) in blocks of columns, in another order."""

    ends: Any  # uint64 (N + 1,): blocks of row i are ends[i] up to ends[i + 1]
    starts: Any  # uint32 (n_blocks,): first column of each, in the order of ``order``
    values: Any  # (8 n_blocks,)
    order: Any  # int64 (m,): which column of the table stands where


def make_blocks(table: Any, order: IntArray) -> Blocks | None:
    """Cut a CSR table into blocks of columns, taken in a given order; None where blocks would be all but empty."""
    place = np.argsort(order, kind="stable")
    counts = np.zeros(table.shape[0] + 1, np.int64)
    parts = table.indptr, table.indices, table.data
    _count_blocks(parts, place, counts)
    ends = np.cumsum(counts).astype(np.uint64)
    if table.nnz > _LARGE_TABLE and _FEWEST_OF_A_BLOCK * int(ends[-1]) > table.nnz:
        return None
    starts, values = np.zeros(int(ends[-1]), np.uint32), np.zeros(BLOCK * int(ends[-1]))
    _fill_blocks(parts, place, ends, starts, values)
    return Blocks(ends, starts, values, order)


@compiled()
def _count_blocks(table, place, counts):  # type: ignore[no-untyped-def]
    """counts[i + 1] = number of blocks in row i."""
    indptr, indices, _ = table
    seen = np.full((len(place) + BLOCK - 1) // BLOCK, -1)
    for i in range(len(indptr) - 1):
        for e in range(indptr[i], indptr[i + 1]):
            b = place[indices[e]] // BLOCK
            if seen[b] != i:
                seen[b] = i
                counts[i + 1] += 1


@compiled()
def _fill_blocks(table, place, ends, starts, values):  # type: ignore[no-untyped-def]
    indptr, indices, data = table
    where = np.full((len(place) + BLOCK - 1) // BLOCK, -1)
    for i in range(len(indptr) - 1):
        columns = place[indices[indptr[i] : indptr[i + 1]]]
        entries = np.argsort(columns)
        q = np.int64(ends[i])
        for p in entries:
            b = columns[p] // BLOCK
            if where[b] < np.int64(ends[i]):  # a block of another row, all of which come before
                where[b] = q
                starts[q] = BLOCK * b
                q += 1
            values[BLOCK * where[b] + columns[p] % BLOCK] = data[indptr[i] + p]


@compiled()
def heat_step_rows(queries, visits, cells, heat, blocks, out, span):  # type: ignore[no-untyped-def]
    """out[i] = one heat step from query i, times a table: all at once, without a matrix of steps in between.

    Queries are visited in an order in which those that follow each other are close, so that rows of the table are
    still in the cache. ``heat`` are the Sinkhorn factors of the nodes and the bandwidth of a step.
    """
    row = _workspace(blocks)[0]
    ranges = np.zeros((9, 2), np.int64)
    columns, squares = room_for(256)
    for i in visits[span[0] : span[1]]:
        found, columns, squares = collect(queries[i], cells, ranges, columns, squares)
        total = weigh(squares[:found], columns, heat[0], heat[1])
        row[:] = 0.0
        for p in range(found if total > 0 else 0):
            _add_blocks(row, blocks, columns[p], squares[p] / total)
        for c in range(len(blocks.order)):
            out[i, blocks.order[c]] = row[c]


@compiled()
def sparse_heat_step_rows(queries, cells, heat, blocks, span):  # type: ignore[no-untyped-def]
    """The same for the queries in a range, as sparse rows: how many entries each has, their columns and values."""
    workspace = _workspace(blocks)
    ranges = np.zeros((9, 2), np.int64)
    near, squares = room_for(256)
    counts = np.zeros(span[1] - span[0], np.int64)
    columns, values = room_for(64 * len(counts))
    used = 0
    for i in range(span[0], span[1]):
        found, near, squares = collect(queries[i], cells, ranges, near, squares)
        total = weigh(squares[:found], near, heat[0], heat[1])
        if total > 0:
            squares[:found] /= total
            step = near[:found], squares
            columns, values, end = _append(i, step, blocks, workspace, columns, values, used)
            counts[i - span[0]] = end - used
            used = end
    return counts, columns[:used], values[:used]


@compiled()
def sparse_rows(steps, blocks, span):  # type: ignore[no-untyped-def]
    """Rows of a CSR matrix of steps (indptr, indices, data) times a table, as sparse rows."""
    ends, nodes, shares = steps
    workspace = _workspace(blocks)
    counts = np.zeros(span[1] - span[0], np.int64)
    columns, values = room_for(64 * len(counts))
    used = 0
    for i in range(span[0], span[1]):
        entries = slice(ends[i], ends[i + 1])
        step = nodes[entries], shares[entries]
        columns, values, end = _append(i, step, blocks, workspace, columns, values, used)
        counts[i - span[0]] = end - used
        used = end
    return counts, columns[:used], values[:used]


@compiled()
def place_rows(rows, where, ends, columns, values):  # type: ignore[no-untyped-def]
    """Copy sparse rows (counts, columns, values) to their places in a CSR array."""
    counts, own_columns, own_values = rows
    begin = 0
    for r in range(len(counts)):
        for p in range(counts[r]):
            columns[ends[where[r]] + p] = own_columns[begin + p]
            values[ends[where[r]] + p] = own_values[begin + p]
        begin += counts[r]


@compiled()
def _append(i, step, blocks, workspace, columns, values, used):  # type: ignore[no-untyped-def]
    """Append sum_p shares[p] table[nodes[p]] to lists of columns and values; the lists, and where they end now.

    The workspace is a row, zero before and afterwards; the last query that reached each block; a list of the first
    columns of blocks.
    """
    nodes, shares = step
    row, seen, touched = workspace
    n_touched = 0
    for p in range(len(nodes)):
        for q in range(blocks.ends[nodes[p]], blocks.ends[nodes[p] + 1]):
            b = blocks.starts[q]
            _add_block(row, np.uint64(b), blocks.values, q * _8, shares[p])
            if seen[b >> _SHIFT] != i:
                seen[b >> _SHIFT] = i
                touched[n_touched] = b
                n_touched += 1
    if used + BLOCK * n_touched > len(columns):
        more, larger = room_for(2 * (used + BLOCK * n_touched))
        more[:used], larger[:used] = columns[:used], values[:used]
        columns, values = more, larger
    begin = used
    for first in touched[:n_touched]:
        used = _move(row, first, blocks.order, columns, values, used)
    sort_entries(columns[begin:used], values[begin:used])
    return columns, values, used


@compiled()
def _workspace(blocks):  # type: ignore[no-untyped-def]
    n_blocks = (len(blocks.order) + BLOCK - 1) // BLOCK
    return np.zeros(BLOCK * n_blocks), np.full(n_blocks, -1), np.zeros(n_blocks, np.int64)


@compiled()
def _move(row, first, order, columns, values, used):  # type: ignore[no-untyped-def]
    """Move what one block of a row holds to the end of the lists."""
    for c in range(first, min(first + BLOCK, len(order))):
        if row[c] != 0.0:
            columns[used] = order[c]
            values[used] = row[c]
            row[c] = 0.0
            used += 1
    return used


@compiled()
def _add_blocks(row, blocks, node, share):  # type: ignore[no-untyped-def]
    """Add a row of the table."""
    for q in range(blocks.ends[node], blocks.ends[node + 1]):
        _add_block(row, np.uint64(blocks.starts[q]), blocks.values, q * _8, share)


@compiled()
def _add_block(row, b, values, v, share):  # type: ignore[no-untyped-def]
    """Add a block. All is loaded before any is stored: the compiler cannot know they are apart."""
    r0, r1, r2, r3 = row[b], row[b + _1], row[b + _2], row[b + _3]
    r4, r5, r6, r7 = row[b + _4], row[b + _5], row[b + _6], row[b + _7]
    r0 += share * values[v]
    r1 += share * values[v + _1]
    r2 += share * values[v + _2]
    r3 += share * values[v + _3]
    r4 += share * values[v + _4]
    r5 += share * values[v + _5]
    r6 += share * values[v + _6]
    r7 += share * values[v + _7]
    row[b], row[b + _1], row[b + _2], row[b + _3] = r0, r1, r2, r3
    row[b + _4], row[b + _5], row[b + _6], row[b + _7] = r4, r5, r6, r7
