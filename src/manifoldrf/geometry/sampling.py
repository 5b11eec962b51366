"""Samples of a space: thinning to farthest points, dimension and density."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree
from scipy.special import gammaln

from manifoldrf._native import loops
from manifoldrf._runtime import require
from manifoldrf._validation import FloatArray, IntArray, check_integer, check_points, check_spread, reject
from manifoldrf.geometry.neighbors import NeighborSearch

_ROWS = 2**15  # of a cloud, handled at once
_LEAF = 32  # points per leaf of the box tree; 16 to 64 cost the same within 10 %
_OUTLIER = 20.0  # volumes of nodes are capped at this many median volumes
_DENSITY_NEIGHBORS = 48  # densities are then good to 15 %
_MOST_ROWS = 50_000  # of a Dask collection: graphs have at most 20,000 nodes
SHRINK = 0.95  # of the radius of sweeps for farthest points
_VOLUMES = 1e-300, 1e300  # of one node: their sum and their inverses stay finite


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
    >>> from manifoldrf.geometry import thin
    >>> line = np.arange(101.0)[:, None]
    >>> thin(line, 5).tolist()
    [0, 100, 50, 25, 75]
    """
    cloud = check_points(points)
    check_spread(cloud, "points")
    return farthest_first(np.ascontiguousarray(cloud), check_integer(n, "n", 1, len(cloud)))[0]


def farthest_first(cloud: FloatArray, n: int | None = None) -> tuple[IntArray, FloatArray]:
    """The first n (by default all) farthest points, and the distance of each to those before it."""
    order = cKDTree(cloud, leafsize=_LEAF).indices.astype(np.int64)
    centre = cloud.mean(axis=0)
    # Some rows at a time, as a cloud may be as large as memory.
    gaps = [np.linalg.norm(cloud[k : k + _ROWS] - centre, axis=1) for k in range(0, len(cloud), _ROWS)]
    outermost = int(np.argmax(np.concatenate(gaps)))
    return farthest_points(cloud, order, _LEAF, n or len(cloud), outermost)


def sample_blocks(table: Any, name: str) -> Any:
    """Rows of a Dask array or data frame that cover its points: all of them, or 50,000.

    Blocks are thinned where they are: a worker needs memory for a block, this process for the sample. Half of its
    rows are random, which keeps density and noise, and half are farthest points, which miss no part of the space.
    """
    dask = require("dask", "dask")
    if table.ndim != 2:
        reject(name, "a dask array or data frame of shape (n, d)", f"{table.ndim} dimensions")
    is_frame = hasattr(table, "map_partitions")
    blocks = list(np.ravel((table if is_frame else table.rechunk({1: -1})).to_delayed()))
    sizes = np.array(dask.compute(*map(dask.delayed(len), blocks)))
    shares = np.ceil(sizes * min(1.0, _MOST_ROWS / max(1, sizes.sum()))).astype(np.int64).tolist()
    parts = dask.compute(*map(dask.delayed(_covering), blocks, shares, range(len(blocks))))
    return require("pandas", "dask").concat(parts) if is_frame else np.concatenate(parts)


def _covering(block: Any, n: int, number: int) -> Any:
    """At most n rows of a block."""
    if len(block) <= n:
        return block
    some = np.random.default_rng(number).choice(len(block), n - n // 2, replace=False)
    chosen = np.union1d(some, thin(np.asarray(block), max(1, n // 2)))
    return block.iloc[chosen] if hasattr(block, "iloc") else np.asarray(block)[chosen]


@dataclass(frozen=True)
class Sampling:
    """How densely and how evenly the nodes are spread.

    Attributes
    ----------
    sparse_density : float
        Nodes per unit of volume where they are sparsest (the sparsest quarter of the volume).
    evenness : float
        Nearest-neighbour distance in units of the local spacing: .9 for random points, 1.6 on an even grid.
    volume : float
        Estimated volume of the space; too large by up to the share of nodes near a boundary.
    """

    sparse_density: float
    evenness: float
    volume: float

    @classmethod
    def of_cloud(cls, search: NeighborSearch, dim: int, name: str = "points") -> "Sampling":
        """Estimate from the neighbourhoods of at most 8000 nodes; errors name the points ``name``."""
        n = len(search.points)
        k = min(_DENSITY_NEIGHBORS, n - 1)
        distances = search.knn(search.points[:: max(1, n // 4000)], k + 1)[0]  # the node itself first
        distances = distances[distances[:, k] > 0]
        if not len(distances):
            reject(name, "mostly at distinct positions", "duplicates only")
        with np.errstate(over="ignore", under="ignore"):  # reported below
            volume = ball_volume(dim) * distances[:, k] ** dim / k
        bad = ~((volume > _VOLUMES[0]) & (volume < _VOLUMES[1]))
        if bad.any():
            rule = (
                f"in a unit in which volumes of dimension {dim} are numbers from {_VOLUMES[0]:g} to {_VOLUMES[1]:g}"
            )
            reject(name, rule, f"neighbours {distances[bad][0, k]:.3g} away")
        evenness = float(np.mean(distances[:, 1] * (ball_volume(dim) / volume) ** (1 / dim)))
        # A far outlier stands for a huge volume and says nothing about the other nodes.
        volume = np.minimum(volume, _OUTLIER * np.median(volume))
        # Use the quarter of the volume where nodes are sparsest. An average would overestimate its density, and a
        # smaller share would depend on the truncated neighbourhoods along a boundary.
        falling = np.sort(volume)[::-1]
        sparsest = falling[np.searchsorted(np.cumsum(falling), 0.25 * falling.sum())]
        return cls(float(1 / sparsest), evenness, n * float(np.mean(volume)))


def ball_volume(dim: int) -> float:
    """Volume of the unit ball."""
    return float(np.exp(dim / 2 * np.log(np.pi) - gammaln(dim / 2 + 1)))


def farthest_points(
    points: FloatArray,
    order: IntArray,
    leaf: int,
    n_select: int,
    first: int,
    *,
    n_exact: int | None = None,
    visits: IntArray | None = None,
) -> tuple[IntArray, FloatArray]:
    """Greedy farthest points: the first ``n_exact`` (by default all) are exact.

    Others are found by sweeps that keep every point farther than .95 times the largest distance before the sweep
    from all kept ones. That is the least distance of two chosen points over the largest gap; on 20,000 random
    points of the sphere .8 to .95 cost the same.

    Parameters
    ----------
    points : float64 (N, d)
    order : int64 (N,), positions sorted so that neighbours in space stand close together
    leaf : int, points per leaf of the boxes over that order
    n_select : int, at most N
    first : int, position of the first selected point
    n_exact : int, optional
    visits : int64 (N,), all positions in the order in which the sweeps visit them

    Returns
    -------
    selected : int64 (n_select,), in order of selection
    radii : float64 (n_select,), distance of each exact one to those selected before it (inf for the first)
    """
    selected, radii = np.zeros(n_select, np.int64), np.zeros(n_select)
    given = n_select if n_exact is None else n_exact, np.zeros(0, np.int64) if visits is None else visits, SHRINK
    loops.farthest_points(points, order, leaf, first, *given, selected, radii)
    return selected, radii
