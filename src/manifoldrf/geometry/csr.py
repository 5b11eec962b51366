"""Matrices, mostly sparse ones in CSR form: threaded products, norms, reordered nodes, read-only copies, checks.

Results do not depend on the number of threads.
"""

from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph

from manifoldrf._native import loops
from manifoldrf._runtime import quick_map
from manifoldrf._validation import FloatArray, IntArray, check_finite, check_points, reject

_SMALLEST_NORM = 1e-140  # squares of smaller numbers underflow


def narrow_csr(values: FloatArray, columns: Any, indptr: Any, n_nodes: int) -> Any:
    """CSR array of shape (len(indptr) - 1, n_nodes), with 32-bit indices if they fit.

    Scipy converts the larger factor of a product if the indices of the other one are wider.
    """
    index = np.int32 if max(len(columns), n_nodes) < 2**31 else np.int64
    parts = columns.astype(index, copy=False), indptr.astype(index, copy=False)
    return sparse.csr_array((values, *parts), shape=(len(indptr) - 1, n_nodes))


def make_csr(values: FloatArray, columns: Any, indptr: Any, n_nodes: int) -> Any:
    """The same with sorted columns and no stored zeros."""
    matrix = narrow_csr(values, columns, indptr, n_nodes)
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def symmetric(values: FloatArray, start: IntArray, end: IntArray, n: int) -> Any:
    """CSR array of shape (n, n) with the values at (start, end) and (end, start)."""
    rows, columns = np.concatenate([start, end]), np.concatenate([end, start])
    return sparse.coo_array((np.concatenate([values, values]), (rows, columns)), shape=(n, n)).tocsr()


def nonzeros(rows: FloatArray) -> Any:
    """CSR array of dense rows, in a third of the time of scipy."""
    places = np.flatnonzero(rows != 0)
    ends = np.searchsorted(places, rows.shape[1] * np.arange(len(rows) + 1))
    return narrow_csr(rows.ravel()[places], places % rows.shape[1], ends, rows.shape[1])


def as_dense(rows: Any) -> FloatArray:
    """Dense or sparse rows as a dense array."""
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows)


def times(matrix: Any, table: FloatArray, n_jobs: int) -> FloatArray:
    """A CSR array times a vector (N,), by scipy, or times a table (N, c), in threads."""
    if table.ndim == 1:
        return np.asarray(matrix @ table)
    dense = np.ascontiguousarray(table, dtype=np.float64)
    out = np.zeros((matrix.shape[0], dense.shape[1]))
    if matrix.nnz * dense.shape[1] < 2**17:
        n_jobs = 1  # a second thread would cost more than it saves
    # Ranges of rows with about as many entries; one slow task of four does not delay the others.
    shares: Any = np.linspace(0, matrix.nnz, 4 * n_jobs + 1)[1:-1] if n_jobs > 1 else []
    edges = [0, *np.searchsorted(matrix.indptr, shares).tolist(), matrix.shape[0]]
    quick_map(partial(loops.times_columns, *csr_parts(matrix), dense, out), edges[:-1], n_jobs, edges[1:])
    return out


def scaled_both_ends(matrix: Any, scale: FloatArray) -> FloatArray:
    """The stored values of M_ij scale_i scale_j, in the order of ``matrix.data``."""
    here, there = np.repeat(scale, np.diff(matrix.indptr)), scale[matrix.indices]
    # Multiply by the larger factor first: the result is exactly symmetric, and large factors do not overflow.
    return np.asarray(matrix.data * np.maximum(here, there) * np.minimum(here, there))


def renumbered(matrix: Any, order: IntArray) -> Any:
    """Move entry (i, j) of a square CSR array to (order[i], order[j]); the columns of the result are sorted."""
    moved = matrix[np.argsort(order)]
    moved.indices = order[moved.indices].astype(moved.indices.dtype)
    moved.has_sorted_indices = False
    moved.sort_indices()
    return moved


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
    return LocalForm(read_only_view(order), read_only_view(place), read_only(renumbered(matrix, place)))


def components_of(matrix: Any) -> IntArray:
    """Strongly connected component of every node of a CSR array, numbered from 0 by their smallest node."""
    labels = csgraph.connected_components(matrix, connection="strong")[1]
    _, first, labels = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[labels]


def frobenius(matrix: FloatArray) -> float:
    """Frobenius norm, also for matrices whose squared entries overflow or underflow."""
    with np.errstate(over="ignore"):
        norm = float(np.linalg.norm(matrix))
    if _SMALLEST_NORM < norm < np.inf:
        return norm
    largest = float(np.abs(matrix).max(initial=0.0))
    return largest * float(np.linalg.norm(matrix / largest)) if 0 < largest < np.inf else largest


def reciprocal(values: FloatArray) -> FloatArray:
    """1 / x, or zero where x is zero."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def read_only(matrix: Any) -> Any:
    """Read-only CSR array on the same memory, with 32-bit indices if they fit."""
    narrow = narrow_csr(matrix.data, matrix.indices, matrix.indptr, matrix.shape[1])
    parts = map(read_only_view, (narrow.data, narrow.indices, narrow.indptr))
    return sparse.csr_array(tuple(parts), shape=matrix.shape)


def read_only_view(array: Any) -> NDArray[Any]:
    """The same array, not writable through this view."""
    view: NDArray[Any] = array.view()
    view.flags.writeable = False
    return view


def csr_parts(matrix: Any) -> tuple[Any, Any, Any]:
    """Return indptr, indices and data, as loops take them."""
    return matrix.indptr, matrix.indices, matrix.data


def arrays(parts: Any, kinds: str) -> list[Any]:
    """Results of a loop as arrays, "l" for int64 and "d" for float64."""
    return list(map(np.frombuffer, parts, map({"l": np.int64, "d": np.float64}.get, kinds)))


def check_shape(name: str, array: Any, shape: tuple[int, ...]) -> None:
    """Raise unless an array has this shape."""
    if tuple(getattr(array, "shape", ())) != shape:
        reject(name, f"of shape {shape}", f"shape {getattr(array, 'shape', None)}")


def check_arrays(owner: Any, **shapes: tuple[int, ...]) -> None:
    """Raise unless these attributes are arrays of these shapes, of numbers whose squares are finite."""
    for name, shape in shapes.items():
        check_shape(name, getattr(owner, name), shape)
        check_finite(getattr(owner, name), name)


def check_positions(name: str, array: Any, n_items: int) -> None:
    """Raise unless the entries of an array of integers are in [0, n_items - 1]."""
    if array.size and not 0 <= array.min() <= array.max() < n_items:
        reject(name, f"positions below {n_items}", f"{array.min()} to {array.max()}")


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
    check_indices(name, matrix)
    check_numbers(name, matrix.data, signed=signed)


def check_indices(name: str, matrix: Any) -> None:
    """Raise if rows or columns of a CSR array are out of range: scipy and compiled loops trust them."""
    try:
        matrix.check_format(full_check=True)
    except ValueError as error:
        reject(name, "a CSR array with valid indices", str(error))


def check_symmetric(values: Any, name: str) -> Any:
    """CSR copy of a user's dense or sparse matrix: square, real, finite, exactly symmetric, without zeros."""
    if sparse.issparse(values):
        if values.dtype.kind not in "biuf":
            reject(name, "a matrix of real numbers", f"dtype {values.dtype}", TypeError)
        matrix = sparse.csr_array(values, dtype=np.float64, copy=True)
        check_indices(name, matrix)
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
    even.eliminate_zeros()  # halving the smallest number gives zero
    return even
