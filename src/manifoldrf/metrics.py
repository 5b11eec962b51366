"""The error of a kernel matrix against a reference."""

from typing import Any

import numpy as np
from scipy.sparse import issparse

from manifoldrf._validation import FloatArray, check_option, check_points, reject

_SMALLEST_NORM = 1e-140  # squares of smaller numbers underflow


def relative_error(K: Any, reference: Any, *, alignment: str | None = None) -> float:
    """Return the Frobenius norm of the difference, divided by the norm of the reference.

    Matrices may be sparse. Features of this library have an absolute scale. Published errors often compare shapes
    only: with ``alignment="frobenius"``, as in the paper, ``K`` is first scaled to the norm of the reference, and
    with "least squares" by the factor that minimizes the difference.

    Examples
    --------
    >>> from manifoldrf import relative_error
    >>> relative_error([[1.1]], [[1.0]], alignment="frobenius")
    0.0
    >>> round(relative_error([[1.1]], [[1.0]]), 6)
    0.1
    """
    found, exact = (
        check_points(matrix.toarray() if issparse(matrix) else matrix, name)
        for matrix, name in ((K, "K"), (reference, "reference"))
    )
    if found.shape != exact.shape:
        reject("K", f"of the shape {exact.shape} of the reference", found.shape)
    if not exact.any():
        reject("reference", "a matrix that is not zero", "zeros only")
    if alignment is not None:
        size = float((found * found).sum()) or 1.0
        if check_option(alignment, "alignment", ("frobenius", "least squares")) == "frobenius":
            found = found * np.sqrt(float((exact * exact).sum()) / size)
        else:
            found = found * (float((found * exact).sum()) / size)
    return frobenius(found - exact) / frobenius(exact)


def frobenius(matrix: FloatArray) -> float:
    """Frobenius norm, also for matrices whose squared entries overflow or underflow."""
    with np.errstate(over="ignore"):
        norm = float(np.linalg.norm(matrix))
    if _SMALLEST_NORM < norm < np.inf:
        return norm
    largest = float(np.abs(matrix).max(initial=0.0))
    return largest * float(np.linalg.norm(matrix / largest)) if 0 < largest < np.inf else largest
