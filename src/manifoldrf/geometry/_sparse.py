"""Sparse matrices as the graphs need them: symmetric to the bit, compact, read-only."""

from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._validation import FloatArray, IntArray


def symmetric(values: FloatArray, start: IntArray, end: IntArray, n: int) -> Any:
    """CSR array of shape (n, n) with the values at (start, end) and (end, start)."""
    rows, columns = np.concatenate([start, end]), np.concatenate([end, start])
    return sparse.coo_array((np.concatenate([values, values]), (rows, columns)), shape=(n, n)).tocsr()


def scaled_both_ends(matrix: Any, scale: FloatArray) -> FloatArray:
    """The stored values of M_ij scale_i scale_j, in the order of ``matrix.data``."""
    ends = np.repeat(scale, np.diff(matrix.indptr)), scale[matrix.indices]
    # The larger factor first: symmetric to the bit, and the product of two large ones never overflows.
    return np.asarray(matrix.data * np.maximum(*ends) * np.minimum(*ends))


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
