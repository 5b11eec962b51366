"""Errors of a kernel matrix, or of any prediction, against a reference."""

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import ArrayLike

from manifoldrf._validation import POSITIVE, FloatArray, check_option, check_points, check_real, reject

__all__ = ["Errors", "align", "errors_of", "relative_error"]

ALIGNMENTS = ("frobenius", "least squares")
_SMALLEST_NORM = 1e-140  # squares of smaller numbers underflow


def align(K: ArrayLike, reference: ArrayLike, method: str = "frobenius") -> FloatArray:
    """Scale a kernel matrix to a reference, to compare their shapes only.

    Features of this library have an absolute scale. Published errors are often measured after such an alignment.

    Parameters
    ----------
    K, reference : array-like of shape (n, m)
    method : {"frobenius", "least squares"}
        "frobenius": equal Frobenius norms, as in the paper. "least squares": the factor that minimizes the
        difference.

    Returns
    -------
    aligned : array of shape (n, m)

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.metrics import align
    >>> align([[2.0, 0.0], [0.0, 2.0]], [[3.0, 0.0], [0.0, 3.0]]).tolist()
    [[3.0, 0.0], [0.0, 3.0]]
    """
    check_option(method, "method", ALIGNMENTS)
    return _pair(K, reference, method)[0]


def relative_error(K: ArrayLike, reference: ArrayLike, *, alignment: str | None = None) -> float:
    """Return the Frobenius norm of the difference, divided by the norm of the reference.

    With ``alignment``, ``K`` is first scaled as :func:`align` does.

    Examples
    --------
    >>> from manifoldrf import relative_error
    >>> relative_error([[1.1]], [[1.0]], alignment="frobenius")
    0.0
    >>> round(relative_error([[1.1]], [[1.0]]), 6)
    0.1
    """
    found, exact = _pair(K, reference, alignment)
    return frobenius(found - exact) / frobenius(exact)


@dataclass(frozen=True)
class Errors:
    """Errors of a prediction, made by :func:`errors_of`.

    Attributes
    ----------
    r2 : float
        Share of the variance of the reference that is explained; nan if the reference is constant.
    rmse, mae : float
        Root mean squared difference and mean absolute difference.
    mean_re, median_re : float
        Mean and median of |difference| / max(|reference|, clamp).
    frobenius : float
        Frobenius norm of the difference, divided by the norm of the reference.

    Examples
    --------
    >>> from manifoldrf.metrics import errors_of
    >>> errors_of([[1.0, 2.0]], [[1.0, 4.0]]).plain()["rmse"].__round__(4)
    1.4142
    """

    r2: float
    rmse: float
    mae: float
    mean_re: float
    median_re: float
    frobenius: float

    @property
    def mse(self) -> float:
        """Mean squared difference."""
        return self.rmse**2

    def plain(self) -> dict[str, float]:
        """Return all errors by name."""
        return asdict(self)


def errors_of(K: ArrayLike, reference: ArrayLike, *, alignment: str | None = None, clamp: float = 1e-3) -> Errors:
    """Compute all errors that the tables of this library report.

    Parameters
    ----------
    K, reference : array-like of shape (n, m)
    alignment : {"frobenius", "least squares"}, optional
        See :func:`align`.
    clamp : float, default=1e-3
        Lower bound for entries of the reference in relative errors. Far from the diagonal a kernel is so small that
        relative errors are meaningless.

    Examples
    --------
    >>> from manifoldrf.metrics import errors_of
    >>> found = errors_of([[1.1, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]])
    >>> round(found.mean_re, 6), found.median_re, round(found.mae, 6)
    (0.025, 0.0, 0.025)
    """
    check_real(clamp, "clamp", POSITIVE)
    found, exact = _pair(K, reference, alignment)
    difference = found - exact
    size = np.abs(difference)
    relative = size / np.maximum(np.abs(exact), clamp)
    spread = float(np.square(exact - exact.mean()).mean())
    squares = float(np.square(difference).mean())
    return Errors(
        r2=1 - squares / spread if spread > 0 else float("nan"),
        rmse=float(np.sqrt(squares)),
        mae=float(size.mean()),
        mean_re=float(relative.mean()),
        median_re=float(np.median(relative)),
        frobenius=frobenius(difference) / frobenius(exact),
    )


def frobenius(matrix: FloatArray) -> float:
    """Frobenius norm, also for matrices whose squared entries overflow or underflow."""
    with np.errstate(over="ignore"):
        norm = float(np.linalg.norm(matrix))
    if _SMALLEST_NORM < norm < np.inf:
        return norm
    largest = float(np.abs(matrix).max(initial=0.0))
    return largest * float(np.linalg.norm(matrix / largest)) if 0 < largest < np.inf else largest


def _pair(K: ArrayLike, reference: ArrayLike, alignment: str | None) -> tuple[FloatArray, FloatArray]:
    """A matrix, scaled to the reference if asked, and the reference, which is not zero."""
    found, exact = check_points(K, "K"), check_points(reference, "reference")
    if found.shape != exact.shape:
        reject("K", f"of the shape {exact.shape} of the reference", found.shape)
    if not exact.any():
        reject("reference", "a matrix that is not zero", "zeros only")
    if alignment is None:
        return found, exact
    size = float((found * found).sum()) or 1.0
    if check_option(alignment, "alignment", ALIGNMENTS) == "frobenius":
        return found * np.sqrt(float((exact * exact).sum()) / size), exact
    return found * (float((found * exact).sum()) / size), exact
