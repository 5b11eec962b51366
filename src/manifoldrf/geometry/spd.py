"""Symmetric positive definite matrices as vectors: the log-Euclidean metric is the distance of the vectors."""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manifoldrf._validation import NONNEGATIVE, FloatArray, as_floats, check_points, check_real, reject

__all__ = ["spd_to_vectors", "vectors_to_spd"]

# Covariances are symmetric to about 1e-15 of the largest entry, matrices of printed numbers to about 1e-10 of it.
# Larger differences are an error.
_ASYMMETRY = 1e-9
_ASYMMETRY_SINGLE = 1e-5  # a hundred roundings
# Eigenvalues are found to about d * 2.2e-16 of the largest: a smaller one cannot be distinguished from 0, and its
# log is noise.
_ROUNDING = float(np.finfo(np.float64).eps)
# exp of more than 709 overflows, and of less than -708 loses digits.
_LARGEST_LOG = 700.0


def spd_to_vectors(matrices: ArrayLike, *, ridge: float = 0.0) -> FloatArray:
    """Turn symmetric positive definite matrices into vectors whose distance is the log-Euclidean one.

    The matrix logarithm is written as a vector: its upper triangle in the order of rows, entries off the diagonal
    times sqrt(2). Then ``||u - v|| = ||log A - log B||_F``, so that every method for points in space works on
    matrices.

    Parameters
    ----------
    matrices : array-like of shape (n, d, d)
        Symmetric, and positive definite once ``ridge`` is added.
    ridge : float, default=0.0
        Added to every diagonal entry, in the units of the matrices. It keeps the logarithm of singular covariances
        finite; directions with less variance than this count as constant.

    Returns
    -------
    vectors : ndarray of shape (n, d (d + 1) / 2)
        The entries (0, 0), (0, 1), ..., (0, d - 1), (1, 1), ... of the logarithm, scaled as above.

    Raises
    ------
    ValueError
        If a matrix is not square, not finite, not symmetric or not positive definite. The message names the first
        such matrix.

    See Also
    --------
    vectors_to_spd : The inverse.

    Notes
    -----
    An eigenvalue is found to about d 2.2e-16 times the largest, so a logarithm is good to that times the condition
    number of its matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import spd_to_vectors
    >>> spd_to_vectors([np.diag([1.0, np.e])]).round(6).tolist()
    [[0.0, 0.0, 1.0]]
    """
    array = _check_matrices(matrices)
    ridge = check_real(ridge, "ridge", NONNEGATIVE)
    values, vectors = np.linalg.eigh((array + array.swapaxes(1, 2)) / 2)
    values += ridge  # the eigenvectors do not change
    # Eigenvalues ascend in each row. None may be negative or as small as rounding.
    bad = np.flatnonzero(values[:, 0] <= values.shape[1] * _ROUNDING * values[:, -1])
    if len(bad):
        low, high = values[bad[0], 0], values[bad[0], -1]
        text = f"a smallest eigenvalue of {low:.3g} (the largest is {high:.3g}) in matrix {bad[0]}"
        reject("matrices", "positive definite; `ridge` helps if they are singular", text)
    logs = (vectors * np.log(values)[:, None, :]) @ vectors.swapaxes(1, 2)  # (n, d, d)
    return upper_entries(logs)


def vectors_to_spd(vectors: ArrayLike) -> FloatArray:
    """Turn vectors back into symmetric positive definite matrices: the inverse of :func:`spd_to_vectors`.

    Parameters
    ----------
    vectors : array-like of shape (n, d (d + 1) / 2)
        Any vectors: each of them is the logarithm of one matrix.

    Returns
    -------
    matrices : ndarray of shape (n, d, d)
        Symmetric to the last bit.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import spd_to_vectors, vectors_to_spd
    >>> matrix = np.array([[2.0, 1.0], [1.0, 3.0]])
    >>> np.allclose(vectors_to_spd(spd_to_vectors([matrix])), matrix)
    True
    """
    points = check_points(vectors, "vectors")
    length = points.shape[1]
    d = (math.isqrt(8 * length + 1) - 1) // 2
    if d * (d + 1) // 2 != length:
        reject("vectors", "an array of shape (n, d (d + 1) / 2): 1, 3, 6, 10, 15, ... columns", f"{length} columns")
    rows, columns = np.triu_indices(d)
    entries = points / _scales(rows != columns)
    logs = np.zeros((len(points), d, d))
    logs[:, rows, columns] = logs[:, columns, rows] = entries
    values, basis = np.linalg.eigh(logs)
    size = np.abs(values).max(axis=1)
    if size.max() > _LARGEST_LOG:
        worst = int(size.argmax())
        text = f"{size[worst]:.4g} in row {worst}"
        reject("vectors", f"logarithms with eigenvalues up to {_LARGEST_LOG:g} in size", text)
    matrices = (basis * np.exp(values)[:, None, :]) @ basis.swapaxes(1, 2)
    return np.asarray((matrices + matrices.swapaxes(1, 2)) / 2, dtype=np.float64)


def upper_entries(matrices: FloatArray) -> FloatArray:
    """Symmetric matrices (n, d, d) as vectors (n, d (d + 1) / 2) whose distance is the Frobenius norm."""
    rows, columns = np.triu_indices(matrices.shape[1])
    return np.asarray(matrices[:, rows, columns] * _scales(rows != columns), dtype=np.float64)


def _scales(off_diagonal: NDArray[np.bool_]) -> FloatArray:
    """The factor of each entry: entries off the diagonal count twice in the Frobenius norm."""
    return np.where(off_diagonal, math.sqrt(2.0), 1.0)


def _check_matrices(matrices: ArrayLike) -> FloatArray:
    """Square, finite and symmetric float64 matrices."""
    given = as_floats(matrices, "matrices")
    shape = given.shape
    if len(shape) != 3 or shape[1] != shape[2] or 0 in shape:
        reject("matrices", "an array of shape (n, d, d) with n, d >= 1", f"shape {shape}")
    flat = check_points(given.reshape(shape[0], -1), "matrices")  # one matrix in each row
    array = flat.reshape(shape)
    skew = np.abs(array - array.swapaxes(1, 2)).max(axis=(1, 2))
    allowed = _ASYMMETRY_SINGLE if np.asarray(matrices).dtype in (np.float32, np.float16) else _ASYMMETRY
    bad = np.flatnonzero(skew > allowed * np.abs(array).max(axis=(1, 2)))
    if len(bad):
        text = f"entries that differ by {skew[bad[0]]:.3g} from their mirror images in matrix {bad[0]}"
        reject("matrices", "symmetric; use (A + A.T) / 2", text)
    return array
