"""Intrinsic dimension from the growth of neighbourhoods."""

import numpy as np
from numpy.typing import ArrayLike

from manifoldrf._validation import FloatArray
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.neighbors import NeighborSearch, check_cloud

__all__ = ["estimate_dimension"]

_NEAR, _FAR = 6, 24  # neighbourhoods compared: small enough to be flat, large enough to be quiet
_SAMPLE = 2000  # nodes looked at; the mean over more changes nothing


def estimate_dimension(points: ArrayLike, *, metric: AbstractManifold | None = None) -> int:
    """Estimate the dimension of the space that the points fill.

    A ball around a point of a space of dimension d holds a number of points that grows like radius^d, so
    log(24 / 6) / d is the mean of log(r_24 / r_6), with r_k the distance to the k-th neighbour.

    Parameters
    ----------
    points : array-like of shape (n, D)
        At least three points.
    metric : AbstractManifold, optional
        Measure distances along this manifold.

    Returns
    -------
    dim : int
        In [1, D]. Reliable to about 5 dimensions from a few thousand points; above that, finite samples
        make every estimate too low.

    Examples
    --------
    >>> from manifoldrf import Torus, estimate_dimension
    >>> estimate_dimension(Torus().sample(1000, seed=0))
    2
    """
    cloud = check_cloud(points, metric, min_rows=3)
    inner, outer, growth = _radii(cloud, metric)
    if (inner == 0).any():  # copies of a point hide how its neighbourhood grows
        cloud = np.unique(cloud, axis=0)
        if len(cloud) < 3:
            return 1
        inner, outer, growth = _radii(cloud, metric)
    grown = (inner > 0) & (outer > inner)  # equal rings carry no information
    if not grown.any():
        return 1
    ratio = np.log(outer[grown] / inner[grown]).mean()
    return int(np.clip(np.rint(np.log(growth) / ratio), 1, cloud.shape[1]))


def _radii(cloud: FloatArray, metric: AbstractManifold | None) -> tuple[FloatArray, FloatArray, float]:
    """Radii of a small and a large neighbourhood of some nodes, and how many times more points it has."""
    far = min(_FAR, len(cloud) - 1)
    near = max(1, far * _NEAR // _FAR)
    chosen = cloud[:: max(1, len(cloud) // _SAMPLE)]
    radii = NeighborSearch(cloud, metric).knn(chosen, far + 1)[0]  # the node itself comes first
    return radii[:, near], radii[:, far], far / near
