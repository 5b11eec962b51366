"""Sparse matrices as the graphs need them: symmetric to the bit, compact, read-only, and products by threads."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from manifoldrf._threads import quick_map
from manifoldrf._validation import FloatArray, IntArray, check_finite, check_points, reject
from manifoldrf.geometry._sparse_loops import (
    label_components,
    renumber_rows,
    scale_both_ends,
    times_columns,
    times_vector,
)

# Below this many products a second thread costs more than it brings.
_WORTH_A_THREAD = 2**17
_LARGEST_DEGREE = 10_000
_TASKS_PER_THREAD = 4  # so that one that is held up does not hold up the others


def symmetric(values: FloatArray, start: IntArray, end: IntArray, n: int) -> Any:
    """CSR array of shape (n, n) with the values at (start, end) and (end, start)."""
    rows, columns = np.concatenate([start, end]), np.concatenate([end, start])
    return sparse.coo_array((np.concatenate([values, values]), (rows, columns)), shape=(n, n)).tocsr()


def scaled_both_ends(matrix: Any, scale: FloatArray, n_jobs: int = 1) -> FloatArray:
    """The stored values of M_ij scale_i scale_j, in the order of ``matrix.data``."""
    out = np.zeros(matrix.nnz)
    _over_rows(lambda parts, span: scale_both_ends(parts, scale, out, span), matrix, 1, n_jobs)
    return out


def times(matrix: Any, table: FloatArray, n_jobs: int) -> FloatArray:
    """A CSR array times a vector (N,) or a table (N, c), by threads; no bit depends on their number."""
    dense = np.ascontiguousarray(table, dtype=np.float64)
    out = np.zeros((matrix.shape[0], *dense.shape[1:]))
    multiply = times_vector if dense.ndim == 1 else times_columns
    _over_rows(lambda parts, span: multiply(parts, dense, out, span), matrix, dense.size // len(dense), n_jobs)
    return out


def renumbered(matrix: Any, order: IntArray, n_jobs: int) -> Any:
    """The square CSR array whose entry (order[i], order[j]) is the entry (i, j) of another; columns sorted."""
    ends = np.zeros(matrix.shape[0] + 1, dtype=matrix.indptr.dtype)
    ends[order + 1] = np.diff(matrix.indptr)
    ends = np.cumsum(ends, dtype=ends.dtype)
    columns, values = np.zeros_like(matrix.indices), np.zeros_like(matrix.data)
    _over_rows(lambda parts, span: renumber_rows(parts, order, ends, columns, values, span), matrix, 8, n_jobs)
    return sparse.csr_array((values, columns, ends), shape=matrix.shape)


class LocalForm(NamedTuple):
    """A symmetric CSR array with its nodes in another order."""

    order: IntArray  # (N,), which node stands where
    place: IntArray  # (N,), where each node stands
    matrix: Any


def local_form(matrix: Any) -> LocalForm | None:
    """A symmetric CSR array with neighbours close together, by reverse Cuthill-McKee; None for one with hubs.

    That sorts the neighbours of each node by insertion, in time that is quadratic in their number.
    """
    if matrix.nnz and int(np.diff(matrix.indptr).max()) > _LARGEST_DEGREE:
        return None
    found = csgraph.reverse_cuthill_mckee(sparse.csr_array(matrix), symmetric_mode=True)
    order = np.asarray(found, dtype=np.int64)
    place = np.argsort(order)
    parts = read_only_view(order), read_only_view(place)
    return LocalForm(*parts, read_only(renumbered(matrix, place, 1)))


def _over_rows(work: Callable[[Any, tuple[int, int]], None], matrix: Any, width: int, n_jobs: int) -> None:
    """Work on ranges of rows with about as many entries each, by threads where it is worth it."""
    parts, n = (matrix.indptr, matrix.indices, matrix.data), matrix.shape[0]
    if n_jobs == 1 or matrix.nnz * width < _WORTH_A_THREAD:
        work(parts, (0, n))
        return
    shares = np.linspace(0, matrix.nnz, _TASKS_PER_THREAD * n_jobs + 1)
    edges = [0, *np.searchsorted(matrix.indptr, shares[1:-1]).tolist(), n]
    quick_map(lambda span: work(parts, span), pairwise(edges), n_jobs)


def components_of(matrix: Any) -> IntArray:
    """Connected component of every node of a symmetric CSR array, numbered from 0 by their smallest node."""
    return np.asarray(label_components(matrix.indptr, matrix.indices))


def reciprocal(values: FloatArray) -> FloatArray:
    """1 / x, and zero where x is zero."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def read_only(matrix: Any) -> Any:
    """CSR array on the same numbers, which cannot be changed in place, with 32-bit indices where they fit."""
    index = np.int32 if max(matrix.nnz, *matrix.shape) < 2**31 else np.int64
    parts = matrix.data, matrix.indices.astype(index, copy=False), matrix.indptr.astype(index, copy=False)
    return sparse.csr_array(tuple(read_only_view(part) for part in parts), shape=matrix.shape)


def read_only_view(array: Any) -> Any:
    """The same array, not writable through this view."""
    view = array.view()
    view.flags.writeable = False
    return view


def check_symmetric(values: Any, name: str) -> Any:
    """CSR copy of a user's matrix, dense or sparse: square, real, finite, symmetric to the bit, without zeros."""
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
    even.eliminate_zeros()  # half of the smallest number there is
    return even
