"""Gaussian affinities between nodes, built row by row by threads."""

from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._compiling import compiled
from manifoldrf._threads import thread_pool
from manifoldrf._validation import FloatArray
from manifoldrf.geometry._cells import Cells, collect, room_for
from manifoldrf.geometry._sparse_loops import sort_entries
from manifoldrf.geometry.neighbors import Pairs

_ROWS_AT_ONCE = 4096  # handled by one task


def gaussian_in_cells(cells: Cells, s2: float, n_jobs: int) -> Any:
    """G_ij = exp(-|x_i - x_j|^2 / s2) between all nodes within the size of a cell, self-loops included.

    CSR array of shape (N, N), symmetric to the bit, columns sorted. Nothing larger is made on the way.
    """
    n = len(cells.nodes)
    spans = list(pairwise([*range(0, n, _ROWS_AT_ONCE), n]))
    counts = np.zeros(n + 1, dtype=np.int64)
    with thread_pool(min(n_jobs, len(spans))) as pool:
        list(pool.map(lambda span: _count_neighbors(cells, span, counts), spans))
        ends = np.cumsum(counts)
        index = np.int32 if max(ends[-1], n) < 2**31 else np.int64
        columns, values = np.zeros(ends[-1], index), np.zeros(ends[-1])
        list(pool.map(lambda span: _fill_gaussian(cells, s2, span, ends, columns, values), spans))
    return sparse.csr_array((values, columns, ends.astype(index)), shape=(n, n))


def matrix_of_pairs(values: FloatArray, pairs: Pairs, n: int) -> Any:
    """CSR array of shape (n, n) with one value per pair."""
    return sparse.coo_array((values, (pairs.rows, pairs.columns)), shape=(n, n)).tocsr()


@compiled()
def _count_neighbors(cells, span, counts):  # type: ignore[no-untyped-def]
    """counts[i + 1] = number of nodes within reach of node i."""
    columns, squares = room_for(64)
    ranges = np.zeros((9, 2), np.int64)
    for q in range(span[0], span[1]):
        found, columns, squares = collect(cells.points[q], cells, ranges, columns, squares)
        counts[cells.nodes[q] + 1] = found


@compiled()
def _fill_gaussian(cells, s2, span, ends, columns, values):  # type: ignore[no-untyped-def]
    """Rows of the nodes in a range of the cells, which are close together, so that what they read is cached."""
    near, squares = room_for(64)
    ranges = np.zeros((9, 2), np.int64)
    for q in range(span[0], span[1]):
        found, near, squares = collect(cells.points[q], cells, ranges, near, squares)
        begin = ends[cells.nodes[q]]
        sort_entries(near[:found], squares[:found])
        for p in range(found):
            columns[begin + p] = near[p]
            values[begin + p] = np.exp(-squares[p] / s2)
