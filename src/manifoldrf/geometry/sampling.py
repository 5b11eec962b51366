"""Samples of a space: thinning to farthest points, dimension and density."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree
from scipy.special import gammaln

from manifoldrf._compiling import compiled
from manifoldrf._runtime import require
from manifoldrf._validation import FloatArray, IntArray, check_integer, check_points, check_spread, reject
from manifoldrf.geometry.neighbors import NeighborSearch

__all__ = ["thin"]

_ROWS = 2**15  # of a cloud, handled at once
_LEAF = 32  # points per leaf of the box tree; 16 to 64 cost the same within 10 %
_OUTLIER = 20.0  # volumes of nodes are capped at this many median volumes
_DENSITY_NEIGHBORS = 48  # densities are then good to 15 %
_MOST_ROWS = 50_000  # of a Dask collection: graphs have at most 20,000 nodes
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
    >>> from manifoldrf import thin
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
    found: tuple[IntArray, FloatArray] = farthest_points(cloud, order, _LEAF, n or len(cloud), outermost)
    return found


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
    n, dim : int
    sparse_density : float
        Nodes per unit of volume where they are sparsest (the sparsest quarter of the volume).
    mean_density : float
        Mean over the nodes.
    evenness : float
        Nearest-neighbour distance in units of the local spacing: .9 for random points, 1.6 on an even grid.
    volume : float
        Estimated volume of the space; too large by up to the share of nodes near a boundary.
    """

    n: int
    dim: int
    sparse_density: float
    mean_density: float
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
        return cls._of(n, dim, volume, distances[:, 1])

    @classmethod
    def _of(cls, n: int, dim: int, volume: FloatArray, nearest: FloatArray) -> "Sampling":
        """Estimate from the volume that nodes stand for, and the distance to their nearest neighbour."""
        evenness = float(np.mean(nearest * (ball_volume(dim) / volume) ** (1 / dim)))
        # A far outlier stands for a huge volume and says nothing about the other nodes.
        volume = np.minimum(volume, _OUTLIER * np.median(volume))
        # Use the quarter of the volume where nodes are sparsest. An average would overestimate its density, and a
        # smaller share would depend on the truncated neighbourhoods along a boundary.
        falling = np.sort(volume)[::-1]
        sparsest = falling[np.searchsorted(np.cumsum(falling), 0.25 * falling.sum())]
        total = n * float(np.mean(volume))
        return cls(n, dim, float(1 / sparsest), float(np.mean(1 / volume)), evenness, total)


def ball_volume(dim: int) -> float:
    """Volume of the unit ball."""
    return float(np.exp(dim / 2 * np.log(np.pi) - gammaln(dim / 2 + 1)))


class _Pyramid(NamedTuple):
    """Boxes over a k-d tree's leaf order: a heap of nodes, leaves last, the root at position 1."""

    low: Any  # (2 width, d) corners of the boxes
    high: Any  # (2 width, d)
    far: Any  # (2 width,) largest squared distance to the selection inside the box
    who: Any  # (2 width,) the point at that distance
    nearest: Any  # (N,) squared distance of each point to the selection


@compiled()
def farthest_points(points, order, leaf, n_select, first):  # type: ignore[no-untyped-def]
    """Greedy farthest points, exact, with a pyramid of bounding boxes.

    A point can only come closer to the selection if its box lies nearer to the new point than the farthest
    of its members lies to the selection, so most boxes are skipped: O(log N) boxes per selected point.

    Parameters
    ----------
    points : float64 (N, d)
    order : int64 (N,), positions sorted so that neighbours in space stand close together
    leaf : int, points per leaf
    n_select : int, at most N
    first : int, position of the first selected point

    Returns
    -------
    selected : int64 (n_select,), in order of selection
    radii : float64 (n_select,), distance of each to those selected before it (inf for the first)
    """
    pyramid = build_pyramid(points, order, leaf)
    selected = np.zeros(n_select, np.int64)
    radii = np.zeros(n_select)
    stack = np.zeros(192, np.int64)  # three entries a level; 64 levels hold any array
    current, current_far = first, np.inf
    for step in range(n_select):
        selected[step] = current
        radii[step] = np.sqrt(current_far)
        select_point(points, order, leaf, current, pyramid, stack)
        current, current_far = pyramid.who[1], pyramid.far[1]
    return selected, radii


@compiled()
def build_pyramid(points, order, leaf):  # type: ignore[no-untyped-def]
    """Bounding boxes of the leaves and of all pairs above them, every distance still infinite."""
    n, d = points.shape
    n_leaves = (n + leaf - 1) // leaf
    width = 1
    while width < n_leaves:
        width *= 2
    low = np.full((2 * width, d), np.inf)
    high = np.full((2 * width, d), -np.inf)
    far = np.full(2 * width, -1.0)  # boxes without points are never farthest
    who = np.zeros(2 * width, np.int64)
    for s in range(n):
        node = width + s // leaf
        far[node] = np.inf
        for c in range(d):
            low[node, c] = min(low[node, c], points[order[s], c])
            high[node, c] = max(high[node, c], points[order[s], c])
    for node in range(width - 1, 0, -1):
        for c in range(d):
            low[node, c] = min(low[2 * node, c], low[2 * node + 1, c])
            high[node, c] = max(high[2 * node, c], high[2 * node + 1, c])
        far[node] = max(far[2 * node], far[2 * node + 1])
    return _Pyramid(low, high, far, who, np.full(n, np.inf))


@compiled()
def select_point(points, order, leaf, new, pyramid, stack):  # type: ignore[no-untyped-def]
    """Lower the distances that the new point improves, and repair the pyramid above them."""
    width = pyramid.far.shape[0] // 2
    stack[0] = 1
    top = 1
    while top > 0:
        top -= 1
        node = stack[top]
        if node < 0:  # on the way up: both children are done
            _pull(-node, pyramid.far, pyramid.who)
        elif _box_distance(points[new], node, pyramid) > pyramid.far[node]:
            continue
        elif node < width:
            stack[top] = -node
            stack[top + 1] = 2 * node
            stack[top + 2] = 2 * node + 1
            top += 3
        else:
            _scan_leaf(points, order[(node - width) * leaf : (node - width + 1) * leaf], node, new, pyramid)


@compiled()
def _pull(node, far, who):  # type: ignore[no-untyped-def]
    """Largest distance and its owner from the children; ties go to the smaller index."""
    left, right = 2 * node, 2 * node + 1
    take_left = far[left] > far[right] or (far[left] == far[right] and who[left] < who[right])
    child = left if take_left else right
    far[node] = far[child]
    who[node] = who[child]


@compiled()
def _box_distance(x, node, pyramid):  # type: ignore[no-untyped-def]
    """Squared distance from a point to a box."""
    total = 0.0
    for c in range(x.shape[0]):
        gap = max(pyramid.low[node, c] - x[c], x[c] - pyramid.high[node, c], 0.0)
        total += gap * gap
    return total


@compiled()
def _scan_leaf(points, members, node, new, pyramid):  # type: ignore[no-untyped-def]
    """Distances of one leaf's points to the selection, and the farthest of them."""
    best, owner = -2.0, -1
    for i in members:
        distance = 0.0
        for c in range(points.shape[1]):
            gap = points[i, c] - points[new, c]
            distance += gap * gap
        pyramid.nearest[i] = min(pyramid.nearest[i], distance)
        if i == new:
            pyramid.nearest[i] = -1.0  # selected: never again, even among equal points
        if pyramid.nearest[i] > best or (pyramid.nearest[i] == best and i < owner):
            best, owner = pyramid.nearest[i], i
    pyramid.far[node] = best
    pyramid.who[node] = owner
