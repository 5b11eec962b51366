"""Sparse matrices in CSR form: threaded products, reordered nodes, read-only copies, checks.

Results do not depend on the number of threads. The compiled loops at the end do not check their arguments.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from manifoldrf._compiling import compiled
from manifoldrf._runtime import quick_map
from manifoldrf._validation import FloatArray, IntArray, check_finite, check_points, reject


def make_csr(values: FloatArray, columns: Any, indptr: Any, n_nodes: int) -> Any:
    """CSR array of shape (len(indptr) - 1, n_nodes) with sorted columns and no stored zeros."""
    matrix = sparse.csr_array((values, columns, indptr), shape=(len(indptr) - 1, n_nodes))
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def symmetric(values: FloatArray, start: IntArray, end: IntArray, n: int) -> Any:
    """CSR array of shape (n, n) with the values at (start, end) and (end, start)."""
    rows, columns = np.concatenate([start, end]), np.concatenate([end, start])
    return sparse.coo_array((np.concatenate([values, values]), (rows, columns)), shape=(n, n)).tocsr()


def row_peaks(rows: Any) -> FloatArray:
    """For every stored entry the largest absolute value in its row."""
    counts = np.diff(rows.indptr)
    peaks = np.zeros(rows.shape[0])
    full = counts > 0
    if full.any():
        peaks[full] = np.maximum.reduceat(np.abs(rows.data), rows.indptr[:-1][full])
    return np.repeat(peaks, counts)


def as_dense(rows: Any) -> FloatArray:
    """Dense or sparse rows as a dense array."""
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows)


def select_entries(matrix: Any, data: FloatArray, keep: Any) -> Any:
    """CSR array of those entries of a matrix that ``keep`` marks, with the values ``data``."""
    ends = np.concatenate([[0], np.cumsum(keep)])[matrix.indptr].astype(matrix.indptr.dtype)
    return sparse.csr_array((data[keep], matrix.indices[keep], ends), shape=matrix.shape)


def times(matrix: Any, table: FloatArray, n_jobs: int) -> FloatArray:
    """A CSR array times a vector (N,), by scipy, or times a table (N, c), in threads."""
    if table.ndim == 1:
        return np.asarray(matrix @ table)
    dense = read_only_view(np.ascontiguousarray(table, dtype=np.float64))
    out = np.zeros((matrix.shape[0], dense.shape[1]))
    _over_rows(lambda parts, span: times_columns(parts, dense, out, span), matrix, dense.shape[1], n_jobs)
    return out


def product_above(left: Any, right: Any, limits: FloatArray, n_jobs: int) -> Any:
    """Product of two CSR arrays without the entries of row i below ``limits[i]``; columns are sorted."""
    spans = list(pairwise([*range(0, left.shape[0], 512), left.shape[0]]))
    factors = csr_parts(left), csr_parts(right)
    found = quick_map(lambda span: multiply_rows(*factors, limits, right.shape[1], span), spans, n_jobs)
    counts, columns, values = (np.concatenate(part) for part in zip(*found, strict=True))
    ends = np.concatenate([[0], np.cumsum(counts)])
    return read_only(sparse.csr_array((values, columns, ends), shape=(left.shape[0], right.shape[1])))


def scaled_both_ends(matrix: Any, scale: FloatArray, n_jobs: int = 1) -> FloatArray:
    """The stored values of M_ij scale_i scale_j, in the order of ``matrix.data``."""
    out = np.zeros(matrix.nnz)
    _over_rows(lambda parts, span: scale_both_ends(parts, scale, out, span), matrix, 1, n_jobs)
    return out


def renumbered(matrix: Any, order: IntArray, n_jobs: int) -> Any:
    """Move entry (i, j) of a square CSR array to (order[i], order[j]); the columns of the result are sorted."""
    ends = np.zeros(matrix.shape[0] + 1, dtype=matrix.indptr.dtype)
    ends[order + 1] = np.diff(matrix.indptr)
    ends = np.cumsum(ends, dtype=ends.dtype)
    columns, values = np.zeros_like(matrix.indices), np.zeros_like(matrix.data)
    _over_rows(lambda parts, span: renumber_rows(parts, order, ends, columns, values, span), matrix, 8, n_jobs)
    return sparse.csr_array((values, columns, ends), shape=matrix.shape)


class LocalForm(NamedTuple):
    """A symmetric CSR array with its nodes in another order."""

    order: IntArray  # (N,), the node at each position
    place: IntArray  # (N,), the position of each node
    matrix: Any


def local_form(matrix: Any) -> LocalForm | None:
    """A symmetric CSR array with neighbours close together, by reverse Cuthill-McKee.

    None if it has hubs: the time is quadratic in the degree of a node.
    """
    if matrix.nnz and int(np.diff(matrix.indptr).max()) > 10_000:
        return None
    found = csgraph.reverse_cuthill_mckee(sparse.csr_array(matrix), symmetric_mode=True)
    order = np.asarray(found, dtype=np.int64)
    place = np.argsort(order)
    parts = read_only_view(order), read_only_view(place)
    return LocalForm(*parts, read_only(renumbered(matrix, place, 1)))


def _over_rows(work: Callable[[Any, tuple[int, int]], None], matrix: Any, width: int, n_jobs: int) -> None:
    """Call ``work`` on ranges of rows with about the same number of entries, in threads if there are many."""
    parts, n = csr_parts(matrix), matrix.shape[0]
    if n_jobs == 1 or matrix.nnz * width < 2**17:  # below, a second thread costs more than it saves
        work(parts, (0, n))
        return
    shares = np.linspace(0, matrix.nnz, 4 * n_jobs + 1)  # one slow task of four does not delay the others
    edges = [0, *np.searchsorted(matrix.indptr, shares[1:-1]).tolist(), n]
    quick_map(lambda span: work(parts, span), pairwise(edges), n_jobs)


def components_of(matrix: Any) -> IntArray:
    """Connected component of every node of a symmetric CSR array, numbered from 0 by their smallest node."""
    # Treat the graph as directed: this needs no transpose, and symmetric graphs have the same components.
    labels = csgraph.connected_components(matrix, connection="strong")[1]
    _, first, labels = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[labels]


def reciprocal(values: FloatArray) -> FloatArray:
    """1 / x, or zero where x is zero."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def read_only(matrix: Any) -> Any:
    """Read-only CSR array on the same memory, with 32-bit indices if they fit."""
    index = np.int32 if max(matrix.nnz, *matrix.shape) < 2**31 else np.int64
    parts = matrix.data, matrix.indices.astype(index, copy=False), matrix.indptr.astype(index, copy=False)
    return sparse.csr_array(tuple(read_only_view(part) for part in parts), shape=matrix.shape)


def read_only_view(array: Any) -> Any:
    """The same array, not writable through this view."""
    view = array.view()
    view.flags.writeable = False
    return view


def csr_parts(matrix: Any) -> tuple[Any, Any, Any]:
    """Return indptr, indices and data as read-only views: loops are compiled again for writable arrays."""
    return read_only_view(matrix.indptr), read_only_view(matrix.indices), read_only_view(matrix.data)


def check_shape(name: str, array: Any, shape: tuple[int, ...]) -> None:
    """Raise unless an array has this shape."""
    if tuple(getattr(array, "shape", ())) != shape:
        reject(name, f"of shape {shape}", f"shape {getattr(array, 'shape', None)}")


def check_numbers(name: str, array: Any, *, signed: bool = True) -> None:
    """Raise if an entry is not finite, or if it is negative and ``signed`` is False."""
    if not (np.isfinite(array) & (signed | (array >= 0))).all():
        reject(name, "finite" if signed else "finite and at least 0", "other values")


def check_amounts(name: str, array: Any, n: int) -> None:
    """Raise unless the array is a vector of n finite numbers >= 0; volumes may be larger than any coordinate."""
    check_shape(name, array, (n,))
    check_numbers(name, array, signed=False)


def check_csr(name: str, matrix: Any, shape: tuple[int, ...], *, signed: bool = False) -> None:
    """Raise unless the matrix is a CSR array of this shape with finite float64 values, >= 0 unless ``signed``."""
    if not isinstance(matrix, sparse.csr_array):
        reject(name, "a CSR array", type(matrix).__name__, TypeError)
    check_shape(name, matrix, shape)
    if matrix.dtype != np.float64:
        reject(name, "an array of float64", matrix.dtype, TypeError)
    check_numbers(name, matrix.data, signed=signed)


def check_symmetric(values: Any, name: str) -> Any:
    """CSR copy of a user's dense or sparse matrix: square, real, finite, exactly symmetric, without zeros."""
    if sparse.issparse(values):
        if values.dtype.kind not in "biuf":
            reject(name, "a matrix of real numbers", f"dtype {values.dtype}", TypeError)
        matrix = sparse.csr_array(values, dtype=np.float64, copy=True)
    else:
        matrix = sparse.csr_array(check_points(values, name))
    if matrix.shape[0] != matrix.shape[1] or not matrix.shape[0]:
        reject(name, "a square matrix of at least one row", f"shape {matrix.shape}")
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    check_finite(matrix, name)
    asymmetry = abs(matrix - matrix.T)
    worst = float(asymmetry.max()) if asymmetry.nnz else 0.0
    if worst > 1e-12 * float(abs(matrix).max() if matrix.nnz else 1.0):
        reject(name, "symmetric", f"a difference of {worst:g} between it and its transpose")
    even = ((matrix + matrix.T) / 2).tocsr()
    even.eliminate_zeros()  # half of the smallest number is zero
    return even


@compiled()
def times_columns(matrix, table, out, span):  # type: ignore[no-untyped-def]
    """out[i] = row i of a CSR matrix times a table (N, c), for i in the span."""
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
def multiply_rows(left, right, limits, n_columns, span):  # type: ignore[no-untyped-def]
    """Rows of a product of two CSR matrices in the span, without small entries: counts, columns and values."""
    left_ends, left_columns, left_values = left
    right_ends, right_columns, right_values = right
    row, touched = np.zeros(n_columns), np.zeros(n_columns, np.int64)
    seen = np.full(n_columns, -1)  # the last row with an entry in each column
    counts = np.zeros(span[1] - span[0], np.int64)
    columns, values = np.zeros(1024, np.int64), np.zeros(1024)
    end = 0
    for i in range(span[0], span[1]):
        found = 0
        for p in range(left_ends[i], left_ends[i + 1]):
            weight, j = left_values[p], left_columns[p]
            for q in range(right_ends[j], right_ends[j + 1]):
                c = np.uint64(right_columns[q])
                if seen[c] != i:
                    seen[c] = i
                    touched[found] = c
                    found += 1
                    row[c] = 0.0
                row[c] += weight * right_values[q]
        if end + found > len(columns):
            more, larger = np.zeros(2 * (end + found), np.int64), np.zeros(2 * (end + found))
            more[:end], larger[:end] = columns[:end], values[:end]
            columns, values = more, larger
        begin = end
        for k in range(found):
            if row[touched[k]] >= limits[i]:
                columns[end], values[end] = touched[k], row[touched[k]]
                end += 1
        sort_entries(columns[begin:end], values[begin:end])
        counts[i - span[0]] = end - begin
    return counts, columns[:end].copy(), values[:end].copy()


@compiled()
def scale_both_ends(matrix, scale, out, span):  # type: ignore[no-untyped-def]
    """out[e] = M_ij scale_i scale_j for the entries e of the rows in the span."""
    indptr, indices, data = matrix
    for i in range(span[0], span[1]):
        for e in range(indptr[i], indptr[i + 1]):
            other = scale[np.uint64(indices[e])]
            # Multiply by the larger factor first: the result is exactly symmetric, and large factors do not
            # overflow.
            out[e] = data[e] * max(scale[i], other) * min(scale[i], other)


@compiled()
def renumber_rows(matrix, order, ends, columns, values, span):  # type: ignore[no-untyped-def]
    """Copy row q of a CSR matrix to row order[q] of another, column c to column order[c], for q in the span."""
    indptr, indices, data = matrix
    for q in range(span[0], span[1]):
        begin = ends[order[q]]
        renumbered = order[indices[indptr[q] : indptr[q + 1]]]
        moved = data[indptr[q] : indptr[q + 1]].copy()
        sort_entries(renumbered, moved)
        for p in range(len(moved)):
            columns[begin + p] = renumbered[p]
            values[begin + p] = moved[p]


@compiled()
def sort_entries(columns, values):  # type: ignore[no-untyped-def]
    """Sort int64 columns below 2^31 and their values, in place."""
    ascending = True
    for p in range(1, len(columns)):
        ascending &= columns[p - 1] <= columns[p]
    if ascending:
        return
    # Sorting numbers is twice as fast as an argsort: the lower half of each number holds its position.
    for p in range(len(columns)):
        columns[p] = (columns[p] << 32) | p
    columns.sort()
    before = values.copy()
    for p in range(len(columns)):
        values[p] = before[columns[p] & 4294967295]  # 2^32 - 1
        columns[p] >>= 32
