"""Compiled loops over the rows of CSR matrices (indptr, indices, data), a range of rows at a time."""

import numpy as np

from manifoldrf._compiling import compiled

_HALF, _LOWER = 32, 2**32 - 1


@compiled()
def times_vector(matrix, vector, out, span):  # type: ignore[no-untyped-def]
    """out[i] = row i of a CSR matrix (indptr, indices, data) times a vector, for i in the span."""
    indptr, indices, data = matrix
    for i in range(span[0], span[1]):
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            total += data[e] * vector[np.uint64(indices[e])]
        out[i] = total


@compiled()
def times_columns(matrix, table, out, span):  # type: ignore[no-untyped-def]
    """The same times a table (N, c)."""
    indptr, indices, data = matrix
    total = np.zeros(table.shape[1])
    for i in range(span[0], span[1]):
        total[:] = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            value = data[e]
            row = table[np.uint64(indices[e])]
            for c in range(len(total)):
                total[c] += value * row[c]
        out[i] = total


@compiled()
def scale_both_ends(matrix, scale, out, span):  # type: ignore[no-untyped-def]
    """out[e] = M_ij scale_i scale_j for the entries e of the rows in the span."""
    indptr, indices, data = matrix
    for i in range(span[0], span[1]):
        for e in range(indptr[i], indptr[i + 1]):
            other = scale[np.uint64(indices[e])]
            # The larger factor first: symmetric to the bit, and the product of two large ones never overflows.
            out[e] = data[e] * max(scale[i], other) * min(scale[i], other)


@compiled()
def label_components(indptr, indices):  # type: ignore[no-untyped-def]
    """Connected component of every node of a symmetric CSR pattern, int64 (N,)."""
    n_nodes = len(indptr) - 1
    labels = np.full(n_nodes, np.int64(-1))
    queue = np.zeros(n_nodes, np.int64)
    n_found = 0
    for seed in range(n_nodes):
        if labels[seed] >= 0:
            continue
        labels[seed] = n_found
        queue[0], begin, end = seed, 0, 1
        while begin < end:
            v = queue[begin]
            begin += 1
            for e in range(indptr[v], indptr[v + 1]):
                w = indices[e]
                if labels[w] < 0:
                    labels[w] = n_found
                    queue[end] = w
                    end += 1
        n_found += 1
    return labels


@compiled()
def sort_entries(columns, values):  # type: ignore[no-untyped-def]
    """Sort int64 columns below 2^31 and the values that belong to them, in place."""
    ascending = True
    for p in range(1, len(columns)):
        ascending &= columns[p - 1] <= columns[p]
    if ascending:
        return
    # Numbers are sorted twice as fast as places of numbers: each column carries its place in its lower half.
    for p in range(len(columns)):
        columns[p] = (columns[p] << _HALF) | p
    columns.sort()
    before = values.copy()
    for p in range(len(columns)):
        values[p] = before[columns[p] & _LOWER]
        columns[p] >>= _HALF


@compiled()
def renumber_rows(matrix, order, ends, columns, values, span):  # type: ignore[no-untyped-def]
    """Row q of a CSR matrix becomes row order[q] of another, its column c column order[c], for q in the span."""
    indptr, indices, data = matrix
    for q in range(span[0], span[1]):
        begin = ends[order[q]]
        renumbered = order[indices[indptr[q] : indptr[q + 1]]]
        moved = data[indptr[q] : indptr[q + 1]].copy()
        sort_entries(renumbered, moved)
        for p in range(len(moved)):
            columns[begin + p] = renumbered[p]
            values[begin + p] = moved[p]
