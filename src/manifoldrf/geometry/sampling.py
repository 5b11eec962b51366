"""Thinning a cloud: farthest points, the most even subset there is."""

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree

from manifoldrf._validation import IntArray, check_integer, check_points, check_spread
from manifoldrf.geometry._compiled import farthest_points

__all__ = ["thin"]

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
    gaps = np.linalg.norm(cloud - cloud.mean(axis=0), axis=1)
    order = cKDTree(cloud, leafsize=_LEAF).indices.astype(np.int64)
    selected: IntArray = farthest_points(cloud, order, _LEAF, count, int(np.argmax(gaps)))[0]
    return selected
