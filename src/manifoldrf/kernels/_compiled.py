"""Compiled step of the three-term recurrence of Chebyshev polynomials on blocks of columns."""

import numpy as np

from manifoldrf._compiling import compiled


@compiled()
def chebyshev_step(matrix, current, previous, total, weight, rows):  # type: ignore[no-untyped-def]
    """Advance a range of rows: previous <- scale M current - previous, total += weight previous.

    The new polynomial takes the place of the one before the last: each entry of it is needed once, here. Rows are
    independent, so threads may share them in any way without changing a bit.

    Parameters
    ----------
    matrix : tuple (indptr, indices, data, scale)
        CSR matrix M; scale is 2 over the bound of its spectrum.
    current, previous, total : float64 (N, width)
    weight : float, coefficient of the new polynomial
    rows : tuple (first, last) of the range
    """
    indptr, indices, data, scale = matrix
    width = current.shape[1]
    fresh = np.zeros(width)
    for v in range(rows[0], rows[1]):
        fresh[:] = 0.0
        for e in range(indptr[v], indptr[v + 1]):
            value = scale * data[e]
            row = current[np.uint64(indices[e])]
            for j in range(width):
                fresh[j] += value * row[j]
        for j in range(width):
            advanced = fresh[j] - previous[v, j]
            previous[v, j] = advanced
            total[v, j] += weight * advanced


@compiled()
def chebyshev_step_of_four(matrix, current, previous, total, weight, rows):  # type: ignore[no-untyped-def]
    """The same for blocks of exactly four columns, whose sums stay in registers: twice as fast."""
    indptr, indices, data, scale = matrix
    for v in range(rows[0], rows[1]):
        a, b, c, d = 0.0, 0.0, 0.0, 0.0
        for e in range(indptr[v], indptr[v + 1]):
            value = scale * data[e]
            row = current[np.uint64(indices[e])]
            a += value * row[0]
            b += value * row[1]
            c += value * row[2]
            d += value * row[3]
        a -= previous[v, 0]
        b -= previous[v, 1]
        c -= previous[v, 2]
        d -= previous[v, 3]
        previous[v, 0], previous[v, 1], previous[v, 2], previous[v, 3] = a, b, c, d
        total[v, 0] += weight * a
        total[v, 1] += weight * b
        total[v, 2] += weight * c
        total[v, 3] += weight * d
