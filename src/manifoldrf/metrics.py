"""How close one kernel matrix is to another."""

import numpy as np
from numpy.typing import ArrayLike

from manifoldrf._validation import FloatArray, check_option, check_points, reject

__all__ = ["align", "relative_error"]

ALIGNMENTS = ("frobenius", "least squares")


def align(K: ArrayLike, reference: ArrayLike, method: str = "frobenius") -> FloatArray:
    """Scale a kernel matrix to a reference, for comparisons of shape alone.

    Features of this library have an absolute scale; published errors are often those after such an alignment.

    Parameters
    ----------
    K, reference : array-like of shape (n, m)
    method : {"frobenius", "least squares"}
        "frobenius": to the same Frobenius norm, as in the paper. "least squares": by the factor that brings it
        closest.

    Returns
    -------
    aligned : array of shape (n, m)

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import align
    >>> align([[2.0, 0.0], [0.0, 2.0]], [[3.0, 0.0], [0.0, 3.0]]).tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """
    check_option(method, "method", ALIGNMENTS)
    found, exact = _pair(K, reference)
    size = float((found * found).sum())
    if size == 0:
        return found.copy()
    overlap = float((exact * exact).sum()) if method == "frobenius" else float((found * exact).sum())
    factor = np.sqrt(overlap / size) if method == "frobenius" else overlap / size
    return np.asarray(factor * found)


def relative_error(K: ArrayLike, reference: ArrayLike, *, alignment: str | None = None) -> float:
    """Frobenius norm of the difference over that of the reference, after an alignment if one is named.

    Examples
    --------
    >>> from manifoldrf import relative_error
    >>> relative_error([[1.1]], [[1.0]], alignment="frobenius")
    0.0
    >>> round(relative_error([[1.1]], [[1.0]]), 6)
    0.1
    """
    found, exact = _pair(K, reference)
    if alignment is not None:
        found = align(found, exact, alignment)
    norm = float(np.linalg.norm(exact))
    if norm == 0:
        reject("reference", "a matrix that is not zero", "zeros only")
    return float(np.linalg.norm(found - exact)) / norm


def _pair(K: ArrayLike, reference: ArrayLike) -> tuple[FloatArray, FloatArray]:
    found, exact = check_points(K, "K"), check_points(reference, "reference")
    if found.shape != exact.shape:
        reject("K", f"of the shape {exact.shape} of the reference", found.shape)
    return found, exact
