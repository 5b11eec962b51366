"""Thinning a cloud: farthest points, the most even subset there is."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree

from manifoldrf._validation import FloatArray, IntArray, check_integer, check_points, check_spread
from manifoldrf.geometry._compiled import farthest_points

__all__ = ["thin"]

_ROWS = 2**15  # of a cloud that are looked at at once
_LEAF = 32  # points per leaf of the search pyramid; 16 to 64 cost the same within 10 %


def thin(points: ArrayLike, n: int) -> IntArray:
    """Choose ``n`` farthest points: each is the point farthest from those chosen before it.

    Random clouds hold clumps and holes, which limit the accuracy of every graph built on them. A few
    thousand farthest points of a large cloud are nearly evenly spaced, and make a graph that is both
    smaller and much more accurate.

    Parameters
    ----------
    points : array-like of shape (N, d)
        The cloud.
    n : int
        How many points to keep, in [1, N].

    Returns
    -------
    indices : int64 array of shape (n,)
        Positions of the chosen points, in order of choice: every prefix is itself a thinning. The first
        is the point farthest from the centroid; ties go to the smaller position, so the result does not
        depend on chance.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import thin
    >>> line = np.arange(101.0)[:, None]
    >>> thin(line, 5).tolist()
    [0, 100, 50, 25, 75]
    """
    cloud = check_points(points)
    check_spread(cloud, "points")
    count = check_integer(n, "n", 1, len(cloud))
    cloud = np.ascontiguousarray(cloud)
    order = cKDTree(cloud, leafsize=_LEAF).indices.astype(np.int64)
    selected: IntArray = farthest_points(cloud, order, _LEAF, count, _outermost(cloud))[0]
    return selected


def _outermost(cloud: FloatArray) -> int:
    """The point farthest from the centroid; some rows at a time, as a cloud may be as large as memory."""
    centre = cloud.mean(axis=0)
    gaps = [np.linalg.norm(cloud[k : k + _ROWS] - centre, axis=1) for k in range(0, len(cloud), _ROWS)]
    return int(np.argmax(np.concatenate(gaps)))
