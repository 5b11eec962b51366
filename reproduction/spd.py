"""Symmetric positive definite matrices as vectors: the log-Euclidean metric is the distance of the vectors."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]


def spd_to_vectors(matrices: ArrayLike, *, ridge: float = 0.0) -> FloatArray:
    """Logarithms of symmetric positive definite matrices, as vectors: ``||u - v|| = ||log A - log B||_F``.

    Parameters
    ----------
    matrices : array-like of shape (n, d, d)
    ridge : float, default=0.0
        Added to every diagonal entry: keeps the logarithm of singular covariances finite.

    Returns
    -------
    vectors : ndarray of shape (n, d (d + 1) / 2)
        The entries (0, 0), (0, 1), ..., (1, 1), ... of the logarithm, those off the diagonal times sqrt(2).

    Examples
    --------
    >>> spd_to_vectors([np.diag([1.0, np.e])]).round(6).tolist()
    [[0.0, 0.0, 1.0]]
    """
    values, vectors = np.linalg.eigh(np.asarray(matrices, dtype=np.float64))
    values += ridge  # the eigenvectors do not change
    # Eigenvalues ascend. One as small as the rounding of the largest has a logarithm that is noise.
    bad = np.flatnonzero(~(values[:, 0] > values.shape[1] * np.finfo(np.float64).eps * values[:, -1]))
    if len(bad):
        raise ValueError(
            "`matrices` must be positive definite; `ridge` helps if they are singular. "
            f"Got a smallest eigenvalue of {values[bad[0], 0]:.3g} in matrix {bad[0]}."
        )
    return upper_entries((vectors * np.log(values)[:, None, :]) @ vectors.swapaxes(1, 2))


def upper_entries(matrices: FloatArray) -> FloatArray:
    """Symmetric matrices (n, d, d) as vectors (n, d (d + 1) / 2) whose distance is the Frobenius norm."""
    rows, columns = np.triu_indices(matrices.shape[1])
    return np.asarray(matrices[:, rows, columns] * np.where(rows != columns, np.sqrt(2.0), 1.0))
