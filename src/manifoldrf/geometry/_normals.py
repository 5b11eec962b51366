"""Which way a cloud of points faces: the direction in which the neighbours of a point are spread least."""

import numpy as np
from scipy.spatial import cKDTree

from manifoldrf._validation import FloatArray, IntArray


def neighbor_axes(points: FloatArray, count: int, rows: IntArray | None = None) -> tuple[FloatArray, FloatArray]:
    """Principal axes of the points around each point, itself among them.

    Parameters
    ----------
    points : array of shape (n, d)
    count : int
        Of points around each; all where there are fewer.
    rows : int array of shape (q,), optional
        Points that are asked for; all by default.

    Returns
    -------
    spreads : array of shape (q, d)
        Sums of squares along the axes, ascending.
    axes : array of shape (q, d, d)
        Columns, of either sign. On a surface in space the first is its normal.

    Examples
    --------
    >>> import numpy as np
    >>> plane = np.random.default_rng(0).random((50, 3)) * [1, 1, 0]
    >>> spreads, axes = neighbor_axes(plane, 8)
    >>> bool(spreads[:, 0].max() < 1e-12), np.abs(axes[0, :, 0]).round(6).tolist()
    (True, [0.0, 0.0, 1.0])
    """
    queries = points if rows is None else points[rows]
    around = points[cKDTree(points).query(queries, k=range(1, min(count, len(points)) + 1))[1]]  # (q, count, d)
    around = around - around.mean(axis=1, keepdims=True)
    spreads, axes = np.linalg.eigh(np.einsum("nki,nkj->nij", around, around))
    return np.asarray(spreads), np.asarray(axes)
