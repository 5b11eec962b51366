"""The normalised interpolant K(m u) / (K m): what a kernel makes of values that are known at some places."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from manifoldrf._validation import FloatArray

# Columns at the sources to columns at the targets: X -> K X, without K.
Action = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Weighted means of known values.

    Attributes
    ----------
    values : array of shape (q, c)
        NaN where nothing known has weight.
    mass : array of shape (q,)
        Sum of the weights; with signed features it may be negative.
    """

    values: FloatArray
    mass: FloatArray


def smooth(action: Action, values: FloatArray, share: FloatArray | None = None) -> Smoothed:
    """Means of known values by the weights of a kernel; constants are reproduced.

    With nonnegative weights no mean leaves the range of the values.

    Parameters
    ----------
    action : callable
        X of shape (n, 1 + c) -> K X of shape (q, 1 + c).
    values : array of shape (n, c)
        At the sources; those of sources without a share count for nothing, but must be finite.
    share : array of shape (n,), optional
        Weight of each source, such as 1 where its value is known and 0 elsewhere; all 1 by default.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.applications.smoothing import smooth
    >>> kernel = np.array([[1.0, 0.5, 0.0], [0.0, 0.5, 1.0]])
    >>> smooth(lambda X: kernel @ X, np.array([[3.0], [0.0], [9.0]])).values.ravel().tolist()
    [2.0, 6.0]
    """
    weights = np.ones(len(values)) if share is None else share
    found = np.asarray(action(np.column_stack([weights, weights[:, None] * values])))  # (q, 1 + c)
    mass = found[:, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        means = np.where(mass[:, None] != 0, found[:, 1:] / mass[:, None], np.nan)
    return Smoothed(means, mass)


def without_small(rows: Any, cut: float) -> Any:
    """CSR features without the entries below ``cut`` times the largest of their row.

    A mean moves by about as much, relative to the spread of the values.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from manifoldrf.applications.smoothing import without_small
    >>> without_small(sparse.csr_array(np.array([[1.0, 1e-4], [1e-4, 1e-4]])), 1e-3).nnz
    3
    """
    lengths = np.diff(rows.indptr)
    largest = np.zeros(rows.shape[0])
    largest[lengths > 0] = np.maximum.reduceat(rows.data, rows.indptr[:-1][lengths > 0]) if rows.nnz else 0.0
    return entries_where(rows, rows.data >= cut * np.repeat(largest, lengths))


def entries_where(rows: Any, keep: NDArray[np.bool_]) -> Any:
    """A CSR array with some of its stored entries."""
    ends = np.concatenate([[0], np.cumsum(keep)])[rows.indptr]
    return sparse.csr_array((rows.data[keep], rows.indices[keep], ends), shape=rows.shape)


def feature_action(left: Any, right: Any) -> Action:
    """K X = left (right^T X) for features of targets (q, m) and sources (n, m), dense or CSR: linear time."""
    return lambda X: np.asarray(left @ (right.T @ X))
