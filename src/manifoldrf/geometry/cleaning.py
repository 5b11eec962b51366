"""Cleaning of raw point clouds: copies, dimension, noise, outliers, and the surface through the points.

All tests are made at the scale of the sampling, with patches: quadratics through the neighbours of a point. The
dimension is the smallest for which neighbourhoods extend in no other direction, or only like noise: Gaussian,
equal in all normal directions, and independent of the width of the patches.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.spatial import cKDTree
from scipy.stats import chi2

from manifoldrf._random import generator
from manifoldrf._runtime import one_blas_thread
from manifoldrf._validation import (
    NONNEGATIVE,
    FloatArray,
    IntArray,
    check_integer,
    check_jobs,
    check_points,
    check_real,
    reject,
)
from manifoldrf.geometry.csr import components_of
from manifoldrf.geometry.neighbors import ENOUGH_POINTS, NeighborSearch, estimate_dimension, farthest_first
from manifoldrf.geometry.patches import (
    BLENDED,
    MOST_NEIGHBORS,
    PER_COEFFICIENT,
    RANGE,
    ROBUST,
    LocalSurface,
    fit_patches,
    n_terms,
    squares_off,
)

__all__ = ["CleanCloud", "clean_cloud"]

MOST_DIMS = 5  # patches of more dimensions need too many coefficients
# Of a larger cloud only a random part is examined; it is smaller in many coordinates, where searches are slow.
_ENOUGH_WIDE_POINTS, _FEW_COORDINATES = 10_000, 10
# Least ratio of squared bandwidth to variance of the noise: the variance along the surface, h2 / 2, is then seven
# times that of the noise. In R^50 with noise .03, h2 = .02 misses the surface (.90), h2 = .1 fits it (.02).
_SIGNAL = 14.0


@dataclass(frozen=True, eq=False)
class CleanCloud:
    """A cloud without copies, noise and outliers; made by :func:`.clean_cloud`.

    Attributes
    ----------
    points : array of shape (n, r)
        The cleaned points on the space, in coordinates along the axes; a random part of a very large cloud.
    origin : array of shape (D,)
    axes : array of shape (D, r)
        Orthonormal directions that hold the cloud.
    dim : int
        Dimension of the space.
    raw : array of shape (m, r)
        The points that were examined, with noise and without outliers.
    noise_std : float
        Standard deviation of the noise per coordinate, 0 if none was found.
    surface : LocalSurface or None
        The space as quadratic patches; None if there is no clear dimension or the points fill all coordinates.
    structured : bool
        Whether the points lie on a space of at most five dimensions. If not, ``dim`` is a rough estimate.
    hollow : bool
        Whether points lie around the surface, not on it, such as points on both sides of a wall that is thinner
        than their spacing. One surface then replaces two.
    n_given, n_merged, n_outliers : int
        Number of points given, merged with their copies, and dropped as outliers.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Sphere
    >>> from manifoldrf.geometry import clean_cloud
    >>> far = np.random.default_rng(0).uniform(-1.5, 1.5, size=(20, 3))
    >>> cloud = clean_cloud(np.vstack([Sphere().sample(2000, seed=0), far]))
    >>> cloud.dim, cloud.noise_std, 15 < cloud.n_outliers <= 20
    (2, 0.0, True)
    """

    points: FloatArray
    origin: FloatArray
    axes: FloatArray
    dim: int
    raw: FloatArray
    noise_std: float = 0.0
    surface: LocalSurface | None = None
    structured: bool = False
    hollow: bool = False
    n_given: int = 0
    n_merged: int = 0
    n_outliers: int = 0

    @cached_property
    def search(self) -> NeighborSearch:
        """Over the points."""
        return NeighborSearch(self.points)

    def __str__(self) -> str:
        parts = [f"dimension {self.dim}" if self.structured else f"no clear dimension, about {self.dim}"]
        if self.noise_std:
            parts.append(f"noise of {self.noise_std:.2g} per coordinate removed")
        if self.n_merged > 0.05 * self.n_given:
            parts.append(f"{self.n_merged} of {self.n_given} points merged with their copies")
        if self.n_outliers:
            parts.append(f"{self.n_outliers} of {self.n_given} points left out as outliers")
        return "; ".join(parts)


def check_noise(noise_std: Any) -> None:
    """Raise unless it is "auto" or a standard deviation."""
    if isinstance(noise_std, str):
        if noise_std != "auto":
            reject("noise_std", "'auto' or a number in [0, inf)", repr(noise_std))
    else:
        check_real(noise_std, "noise_std", NONNEGATIVE)


@one_blas_thread()  # local fits must not depend on the number of threads
def clean_cloud(
    points: ArrayLike, *, noise_std: float | str = "auto", dim: int | None = None, n_jobs: int = -1
) -> CleanCloud:
    """Estimate dimension, noise and outliers of a cloud, and move its points onto the underlying space.

    Parameters
    ----------
    points : array-like of shape (n, D)
    noise_std : "auto" or float, default="auto"
        Standard deviation of the noise in each coordinate; "auto" estimates it. With 0, points are not moved, none
        is an outlier, and only equal points are merged.
    dim : int, optional
        Dimension of the space; estimated by default.
    n_jobs : int, default=-1
        Threads, -1 for all cores; the result does not depend on it.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Sphere
    >>> from manifoldrf.geometry import clean_cloud
    >>> sphere = Sphere().sample(2000, seed=0)
    >>> cloud = clean_cloud(sphere + 0.05 * np.random.default_rng(0).normal(size=sphere.shape))
    >>> cloud.dim, 0.04 < cloud.noise_std < 0.06
    (2, True)
    >>> placed = cloud.points @ cloud.axes.T + cloud.origin
    >>> bool(np.abs(np.linalg.norm(placed, axis=1) - 1).mean() < 0.015)
    True
    """
    check_noise(noise_std)
    given = check_points(points, min_rows=3)
    threads = check_jobs(n_jobs)
    if dim is not None:
        check_integer(dim, "dim", 1, given.shape[1])
    origin, axes = _span(given)
    inside = _unique_rows(np.ascontiguousarray((given - origin) @ axes))
    n, n_axes = inside.shape
    most = ENOUGH_POINTS if n_axes <= _FEW_COORDINATES else _ENOUGH_WIDE_POINTS
    if n > most:
        inside = inside[np.sort(generator(0, "cloud.part").permutation(n)[:most])]
    share = n / len(inside)  # distinct points for each one that is examined
    inside = inside if noise_std == 0 else merge_copies(inside)
    n_merged = len(given) - round(share * len(inside))
    if len(inside) < 3:  # one or two distinct points
        return CleanCloud(inside, origin, axes, 1, inside, n_given=len(given), n_merged=n_merged)
    search = NeighborSearch(inside, None, threads)
    shape = _examine(search, noise_std, None if dim is None else min(dim, n_axes))
    found = CleanCloud(inside, origin, axes, dim or 0, inside, n_given=len(given), n_merged=n_merged)
    if shape is None:
        return replace(found, dim=min(dim or estimate_dimension(search), n_axes))
    if shape.dim == n_axes:
        return replace(found, dim=n_axes, structured=True)
    surface = _surface_through(search, shape)
    off, placed = np.zeros(len(inside), bool), inside
    if noise_std != 0:
        off, placed = _are_off(search, surface, shape.dim)
        if off.any():  # patches through outliers bend towards them
            kept = NeighborSearch(np.ascontiguousarray(inside[~off]), None, threads)
            surface = _surface_through(kept, shape)
            off, placed = _are_off(search, surface, shape.dim)
    squares = ((inside - placed)[~off] ** 2).sum(axis=1)
    # Fourth moments relative to noise: 1 / 3 for two sheets, 1 / 2 for a ring around a curve, .6 for an even slab.
    hollow = shape.noise_std > 0 and _fourth(squares, n_axes - shape.dim) < 0.55
    return replace(
        found,
        points=np.ascontiguousarray((placed if shape.noise_std else inside)[~off]),
        raw=inside[~off],
        dim=shape.dim,
        noise_std=shape.noise_std,
        surface=surface,
        structured=True,
        hollow=bool(hollow),
        n_outliers=round(share * int(off.sum())),
    )


def _unique_rows(points: FloatArray) -> FloatArray:
    """The points without duplicates."""
    return np.unique(points, axis=0) if len(np.unique(points[:, 0])) < len(points) else points


def merge_copies(points: FloatArray) -> FloatArray:
    """Replace each group of points that is much smaller than its distance to others by its mean.

    Such groups are repeated measurements of one point; they would be mistaken for small components. Three or more
    points must be three times smaller than that distance, pairs eight times, because close pairs also occur by
    chance.
    """
    points = _unique_rows(points)
    k = min(13, len(points)) - 1
    if k < 2:
        return points
    tree = cKDTree(points)
    nearest = tree.query(points, 2)[0][:, 1]
    gap = float(np.quantile(tree.query(points[:: max(1, len(points) // 2000)], [k + 1])[0], 0.9))
    n, extents, n_merged = len(points), [], 0

    def joined(some: FloatArray, radius: float) -> IntArray:
        """Groups of points that are linked by distances up to a radius."""
        pairs = cKDTree(some).query_pairs(radius, output_type="ndarray")
        links = sparse.coo_array((np.ones(len(pairs)), tuple(pairs.T)), shape=(len(some),) * 2)
        return components_of((links + links.T).tocsr())

    for _ in range(16):
        close = np.flatnonzero(nearest <= gap / 3)
        if not len(close) or len(points) < 3:
            break
        group = joined(points[close], gap)
        means, extent = _group_means(points[close], group)
        sizes = np.bincount(group)
        small = np.flatnonzero(np.where(sizes > 2, 6, 16) * extent <= gap)
        # Nothing else may be within the gap: points without a close neighbour were not joined.
        inside = tree.query_ball_point(means[small], gap, return_length=True)
        merged = small[(inside == sizes[small]) & (inside > 1)]
        extents.append(extent[merged])
        n_merged += int(sizes[merged].sum())
        rest = np.delete(np.arange(len(points)), close[np.isin(group, merged)])
        if len(merged):
            points = np.ascontiguousarray(np.vstack([points[rest], means[merged]]))
            tree = cKDTree(points)
            # Other points may keep their distance to a point that was merged: that only examines them once more.
            nearest = np.append(nearest[rest], tree.query(means[merged], [min(2, len(points))])[0])
        gap /= 2
    if n_merged > 0.2 * n:  # the remaining copies are probably as close together
        points = _group_means(points, joined(points, 2 * float(np.quantile(np.concatenate(extents), 0.9))))[0]
    return points


def _group_means(points: FloatArray, group: IntArray) -> tuple[FloatArray, FloatArray]:
    """Mean of each group of points, and the largest distance from it."""
    sizes = np.bincount(group)
    means = np.column_stack([np.bincount(group, column) / sizes for column in points.T])
    extent = np.zeros(len(sizes))
    np.maximum.at(extent, group, np.linalg.norm(points - means[group], axis=1))
    return means, extent


def _span(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Origin, and the principal axes (D, r) that hold all but a share of 1e-9 of the variance."""
    origin, n_axes = points.mean(axis=0), points.shape[1]
    centred = (points - origin) / (np.abs(points - origin).max() or 1.0)
    variances, axes = np.linalg.eigh(centred.T @ centred)
    held = np.cumsum(variances) > 1e-9 * variances.sum()
    if held.all() or not held.any():  # keep the coordinates
        return np.zeros(n_axes), np.eye(n_axes)
    return origin, np.ascontiguousarray(axes[:, held])


class _Shape(NamedTuple):
    """Dimension, noise per coordinate and squared bandwidth of patches."""

    dim: int
    noise_std: float
    h2: float


class _Neighborhoods(NamedTuple):
    """Neighbours of some points of a cloud."""

    search: NeighborSearch  # over the cloud
    order: IntArray  # its points in a fixed pseudorandom order
    squares: FloatArray  # (m, k), of distances
    offsets: FloatArray  # (m, k, D)


def _examine(search: NeighborSearch, noise_std: float | str, dim: int | None) -> _Shape | None:  # noqa: C901
    """The smallest dimension that explains the cloud, with its noise; None if none does."""
    n, n_axes = search.points.shape
    whole = _neighborhoods(search)
    parts = [whole]  # subsets show noise that is wider than many spacings
    while isinstance(noise_std, str) and len(parts[-1].order) >= 1000:
        some = np.sort(parts[-1].order[: len(parts[-1].order) // 4])
        points = np.ascontiguousarray(parts[-1].search.points[some])
        parts.append(_neighborhoods(NeighborSearch(points, None, search.n_jobs)))
    for d in [dim] if dim is not None else range(1, min(n_axes, MOST_DIMS) + 1):
        if n < 4 * PER_COEFFICIENT * n_terms(d) or d > MOST_DIMS:
            return None
        if d == n_axes:
            return _Shape(d, 0.0, _bandwidth(whole, d, 0.0)) if dim or _is_solid(whole) else None
        if not isinstance(noise_std, str):
            shape = _Shape(d, float(noise_std), _bandwidth(whole, d, float(noise_std)))
            if dim is not None or _extends(whole, shape):
                return shape
            continue
        for near in parts:
            found = _noise_for(near, d, certain=dim is not None and near is parts[-1])
            if found is not None:
                return found if found.noise_std else found._replace(h2=_bandwidth(whole, d, 0.0))
    return None


def _extends(near: _Neighborhoods, shape: _Shape) -> bool:
    """Whether neighbourhoods extend in exactly as many directions as the dimension."""
    variances = _local_variances(near, shape.h2)
    return bool(np.count_nonzero(variances > 0.4 * variances[: shape.dim].mean()) == shape.dim)


def _is_solid(near: _Neighborhoods) -> bool:
    """Whether the nearest neighbours extend in all directions: on a surface they do not, however few points it has.

    The smallest variance over the mean of the others was .42 and more in solids of 150 points, .33 in a plate
    1 x 1 x .05 of 3000 points; on tori of 150 points .22 to .33, of 200 points .17, and .11 on spheres.
    """
    n_axes = near.offsets.shape[2]
    variances = _local_variances(near, float(np.median(near.squares[:, 3 * n_axes - 1]) / 2))
    return n_axes == 1 or bool(variances[-1] > 0.3 * variances[:-1].mean())


def _noise_for(near: _Neighborhoods, dim: int, *, certain: bool) -> _Shape | None:
    """The noise, assuming this dimension; None if the residuals of patches are neither small nor noise."""
    points = near.search.points
    at, sigma, normal_axes = points[near.order[:600]], 0.0, points.shape[1] - dim
    # Bounded by the known neighbours, and because a patch that is nearly as wide as the cloud shows no surface.
    extent2 = float(points.var(axis=0).sum())
    widest = min(float(np.median(near.squares[:, -1])) / 2, 0.16 * extent2)
    least = _bandwidth(near, dim, 0.0)
    while not certain and least < widest and not _extends(near, _Shape(dim, 0.0, least)):
        least *= 2
    for _ in range(6):  # noise and bandwidth depend on each other
        h2 = max(least, _bandwidth(near, dim, sigma))
        if not certain and not _extends(near, _Shape(dim, sigma, h2)):
            return None
        squares = squares_off(fit_patches(near.search, at, dim, h2, leave_out=True), at)
        before, sigma = sigma, _robust_std(squares, normal_axes)
        exact = sigma < 0.02 * np.sqrt(h2)
        # More than a quarter of points far off are not outliers: the patch is then one side of a thin wall.
        torn = np.quantile(squares, 0.75) > max(ROBUST * np.median(squares), 0.01 * normal_axes * h2)
        if not certain and (torn or (h2 > widest and not exact)):
            return None
        if exact:
            return _Shape(dim, 0.0, h2)
        if abs(sigma - before) < 0.1 * sigma:
            break
    # Wider patches show the same noise, but deviate from a curved surface by h^3.
    wider = squares_off(fit_patches(near.search, at, dim, 2 * h2, leave_out=True), at)
    steady = _robust_std(wider, normal_axes) < 1.15 * sigma
    small = sigma < 0.1 * np.sqrt(h2)
    if not (small or certain or (steady and _is_noise(squares, near, _Shape(dim, sigma, h2)))):
        return None
    return _Shape(dim, sigma if steady else 0.0, h2)


def _is_noise(squares: FloatArray, near: _Neighborhoods, shape: _Shape) -> bool:
    """Whether squared normal distances are those of Gaussian noise, equal in all directions.

    Fourth moments are .6 to .67 of those of noise for uniform cross-sections, as of a thin strip, rod or plate, and
    .5 for the ring of a thin tube.
    """
    normal_axes = near.offsets.shape[2] - shape.dim
    capped = np.minimum(squares, 9 * ROBUST * np.median(squares))
    variances = _local_variances(near, shape.h2)[shape.dim :]
    few = min(3, normal_axes)
    return bool(_fourth(capped, normal_axes) > 0.8 and variances[few - 1] > 0.25 * variances[0])


def _fourth(squares: FloatArray, normal_axes: int) -> float:
    """Mean fourth power of normal distances over that of Gaussian noise of the same variance."""
    return float((squares**2).mean() / squares.mean() ** 2) / (1 + 2 / normal_axes)


def _neighborhoods(search: NeighborSearch) -> _Neighborhoods:
    """Neighbours of some points of a cloud: fewer points if they have many coordinates, to bound memory."""
    points = search.points
    count = int(np.clip(2**23 // (MOST_NEIGHBORS * points.shape[1]), 24, 200))
    order = generator(0, "cloud.some").permutation(len(points))
    at = points[order[:count]]
    distances, near = search.knn(at, min(MOST_NEIGHBORS, len(points)))
    return _Neighborhoods(search, order, distances**2, points[near] - at[:, None])


def _bandwidth(near: _Neighborhoods, dim: int, sigma: float) -> float:
    """Squared bandwidth of patches, with enough neighbours for a quadratic and tangents clear of the noise."""
    squares, n_axes = near.squares, near.offsets.shape[2]
    needed = min(int(PER_COEFFICIENT * n_terms(dim)), squares.shape[1] - 1)
    h2 = float(np.median(squares[:, needed]) / 2)
    for _ in range(60):
        n_local = float(np.median(np.exp(-np.maximum(squares - squares[:, 1:2], 0) / h2).sum(axis=1)))
        # Of pure noise with n samples in D coordinates, the largest variance is (1 + sqrt(D / n))^2 sigma^2.
        if h2 >= _SIGNAL * sigma**2 * (1 + np.sqrt(n_axes / n_local)) ** 2:
            break
        h2 *= 1.15
    return h2


def _local_variances(near: _Neighborhoods, h2: float) -> FloatArray:
    """Median variances of neighbourhoods along their principal axes, in descending order."""
    weights = np.exp(-np.maximum(near.squares - near.squares[:, 1:2], 0) / h2)
    weights[:, 0] = 0.0
    weights = np.maximum(weights - weights[:, -1:], 0.0)
    shares = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
    centred = near.offsets - shares[:, None] @ near.offsets
    centred *= np.sqrt(shares)[:, :, None]
    turned = centred.transpose(0, 2, 1)
    found = np.linalg.eigvalsh(turned @ centred if turned.shape[1] <= turned.shape[2] else centred @ turned)
    return np.asarray(np.median(found, axis=0)[::-1])


def _robust_std(squares: FloatArray, normal_axes: int) -> float:
    """Root mean square per normal direction, with outliers clipped."""
    return float(np.sqrt(np.minimum(squares, ROBUST * np.median(squares)).mean() / normal_axes))


def _surface_through(search: NeighborSearch, shape: _Shape) -> LocalSurface:
    """The surface through points, in the directions in which they extend further than noise."""
    points, (dim, sigma, h2) = search.points, shape
    n, n_axes = points.shape
    origin, axes = np.zeros(n_axes), np.eye(n_axes)
    if sigma > 0 and n_axes > dim + 3:
        mean = points.mean(axis=0)
        variances, vectors = np.linalg.eigh((points - mean).T @ (points - mean) / n)
        held = variances > 1.1 * sigma**2 * (1 + np.sqrt(n_axes / n)) ** 2  # more than noise alone causes
        if dim < held.sum() < n_axes:
            origin, axes = mean, np.ascontiguousarray(vectors[:, held])
            search = NeighborSearch(np.ascontiguousarray((points - origin) @ axes), None, search.n_jobs)
            h2 = _bandwidth(_neighborhoods(search), dim, sigma)
    h2 += 10 * sigma**2  # wider than the patches that show the noise: errors of noisy clouds fall by 8 %
    order = generator(0, "cloud.some").permutation(n)
    at = search.points[order[:200]]
    inside = float(np.median(search.tree.query_ball_point(at, np.sqrt(-np.log(RANGE) * h2), return_length=True)))
    if inside > MOST_NEIGHBORS:  # a random part is enough for patches of this width
        part = np.sort(order[: int(n * MOST_NEIGHBORS / inside)])
        search = NeighborSearch(np.ascontiguousarray(search.points[part]), None, search.n_jobs)
    chosen, radii = farthest_first(search.points, tree=search.tree, first=0)
    enough = np.count_nonzero(radii > 0.6 * np.sqrt(h2))  # patches must overlap
    centres = search.points[chosen[: max(enough, min(BLENDED, len(chosen)))]]
    return LocalSurface(NeighborSearch(centres), origin, axes, fit_patches(search, centres, dim, h2), sigma)


def _are_off(search: NeighborSearch, surface: LocalSurface, dim: int) -> tuple[Any, FloatArray]:
    """Whether points are far off the surface compared with their neighbours; and their projections onto it.

    They are not compared with the whole cloud, because patches are less exact where points are sparse. A large
    component does not consist of outliers, however far away it is.
    """
    placed = surface.project(search.points, search.n_jobs)
    squares = ((search.points - placed) ** 2).sum(axis=1)
    distances, near = search.knn(search.points, min(12, len(search.points) - 1) + 1)
    spacing2 = np.median(distances[near[:, 1:], -1], axis=1) ** 2  # of the neighbours, not of the point itself
    by_chance = 1.5 * chi2.isf(1e-5, search.points.shape[1] - dim) * surface.noise_std**2
    alone = squares > 16 * np.quantile(squares[near[:, 1:]], 0.25, axis=1)  # all points are off a poor surface
    off = alone & (squares > np.maximum(by_chance, 0.02 * spacing2))
    n, k = near.shape
    edges = sparse.csr_array((np.ones(n * k), near.ravel(), k * np.arange(n + 1)), shape=(n, n))
    # Strong components: outliers have neighbours in the cloud, but are not the neighbours of its points.
    piece = components_of(edges[~off][:, ~off].tocsr())
    sizes = np.bincount(piece)
    inside = np.flatnonzero(~off)
    off[inside[sizes[piece] < min(12, 0.05 * n)]] = True  # small groups far from everything
    return off, placed
