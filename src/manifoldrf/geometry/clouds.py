"""Clouds as people bring them: dimension and noise at a scale, outliers, and points without noise.

The number of pairs closer than s grows like s^d in a space of dimension d. Noise with standard deviation sigma in
each of D coordinates adds 2 D sigma^2 to squared distances. At the scale s the growth is then

    d(s) = d + (D - d) x / (1 + x),  x = 4 sigma^2 / s^2.

At small scales noise fills all D coordinates; at large scales the space shows. Both d and sigma are read off this
curve. Nodes and queries are then moved onto the surface through the points.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.optimize import nnls
from scipy.stats import chi2

from manifoldrf._random import generator
from manifoldrf._runtime import map_threads, one_blas_thread, warn_user
from manifoldrf._validation import (
    NONNEGATIVE,
    POSITIVE,
    FloatArray,
    IntArray,
    check_integer,
    check_jobs,
    check_points,
    check_real,
    reject,
)
from manifoldrf.geometry.csr import components_of
from manifoldrf.geometry.edges import BoundaryModel
from manifoldrf.geometry.local_surface import (
    MOST_NEIGHBORS,
    PER_COEFFICIENT,
    RANGE,
    ROBUST,
    LocalSurface,
    fit_patches,
    fit_surface,
    patch_offsets,
)
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.neighbors import (
    LONELY_NEIGHBOR,
    NeighborSearch,
    Pairs,
    around,
    ball_along_edges,
    distances_between,
    loneliness,
    matrix_of_pairs,
    search_of,
    without_self,
)
from manifoldrf.geometry.sampling import farthest_first, footprint_width2, n_terms

__all__ = ["CleanCloud", "ScaleCurve", "clean_cloud", "estimate_dimension"]

_NEAR, _FAR = 6, 24  # neighbourhoods compared: small enough to be flat, large enough for little noise
_SAMPLE = 2000  # nodes used; the mean over more changes nothing
# The curve: how many scales, from the distance of this neighbour on, and from how many points pairs are counted.
_N_SCALES, _FIRST_NEIGHBOR, _CURVE_ROWS = 16, 25, 500
_PAIRS_AT_ONCE, _BINS = 2**20, 800
_SPAN = 40.0  # of squared scales: beyond it, edges and curvature decide
_SHORTEST_SPAN = 6.0
_NOISES = np.concatenate([[0.0], np.geomspace(0.01, 5.0, 80)])  # tried, in units of the smallest scale
# Edges and curvature lower the growth. A candidate that explains much of the curve by them is less likely.
_LOSS_PENALTY = 0.1
_MOST_CANDIDATES = 10  # dimensions
_FEWEST_POINTS = 500  # fewer points do not tell a Möbius strip from noise
_MOST_NOISE = 0.4  # in widths of the kernel: a strip that is as wide as the kernel is not a noisy line
_USUAL_POINTS, _USUAL_SHARE = 48, 0.01  # under a kernel that is chosen by default, or this share of all
# Of a larger cloud, a random part of this size is examined; a smaller part where searches have many coordinates.
_ENOUGH_POINTS, _ENOUGH_WIDE_POINTS, _FEW_COORDINATES = 50_000, 10_000, 10
# Squared bandwidth over the variance of noise, at least: the variance along the surface, h2 / 2, is then seven
# times that of the noise. In R^50 with noise .03, h2 = .02 misses the surface (.90), h2 = .1 finds it (.02).
_SIGNAL = 14.0
# Points whose neighbourhoods are examined: fewer if they have many coordinates, to bound memory.
_EXAMINED, _FEWEST_EXAMINED, _EXAMINED_NUMBERS, _NEIGHBORHOODS_AT_ONCE = 200, 24, 2**23, 16
_AXIS = 1.1  # axes with less variance than this multiple of the largest that noise alone causes hold nothing else
_TANGENT = 0.4  # local variances above this share of the tangential ones are tangents
_POINTS_PER_TERM = 30  # coefficients of a quadratic that a cloud of a dimension needs
_ISOTROPY = 0.5  # least variance of neighbourhoods in units of that of noise
# Least share of the growth by noise that neighbourhoods must show: it was .7 to 1.4 for noisy spheres, tori and
# circles in R^2 to R^100, .2 to .5 for scans whose folds look like noise. Finite samples grow by up to 4 % less.
_THICKNESS, _GROWTH_ERROR = 0.7, 0.04
# Distances to patches of twice the h2 over those to narrower ones: .95 to 1.09 for noise, from 1.11 on for scans.
_STEADY = 1.03
_MATTERS = 8e-3  # relative change of a step's volume by noise that is worth removing
_STEP_POINTS = 20  # points under the step that this is measured for
_MOST_DIMS = 5  # surfaces of more dimensions need too many coefficients
_NOISE_ROUNDS = 3  # noise and bandwidth depend on each other
# The 12th neighbour of lonely points is three times as far as that of their neighbours, or four times as far as
# usual.
_LONELY, _VERY_LONELY = 3.0, 4.0
_OUTLIER_ROUNDS = 3
_OFF_ALONE = 16.0  # squared distance off the surface over that of a quarter of the neighbours
_OFF_CHANCE = 1e-5  # of a point of the surface to count as off the surface
_OFF_STEP = 0.02  # squared distance off the surface over that of a step, below which a point does no harm
# Layers: pairs whose path along nearest neighbours is longer than twice the straight line, and the distances to
# their neighbours, touch only through space. (Half a circle is 1.57 times its diameter.) Rolls had the least error
# with steps of which a share of .003 jumped.
_PATH_NEIGHBORS, _DETOUR, _LEAK, _LEAK_NODES = 12, 2.0, 3e-3, 200
_WIDEST_SPACING = 4.0  # in units of the median
# Pieces are layers if each has this share of the points, and if they are this many spacings apart.
_LARGE_PIECE, _LAYER_GAP = 0.05, 2.0
_SOURCES = 2000  # points from which paths are searched by one task
# Copies: points closer than this share of the usual distance from the middle.
_COPY = 1e-9
# Blur of an edge, in widths of the Gaussian that finds it, and the smallest value of that Gaussian. A blur below .1
# is less than the error of single edge places (square, noise .06: .045 as it is, .059 clipped).
_SMALLEST_BLUR, _LARGEST_BLUR, _EDGE_TAIL = 0.12, 0.3, 0.01
# Lines of a scan: at least 8 pieces of at least 24 points, joined to six neighbours each. Up to the next line,
# points vary across a line by less than a tenth of the variance along it. Distances between lines vary by less than
# 2, those between strands by more.
_FEWEST_LINES, _LINE_POINTS, _LINE_NEIGHBORS, _LINE_WIDTH, _LINE_EVEN = 8, 24, 6, 0.1, 2.0
_PER_LINE_SPACING = 3.0  # points kept for each distance between lines: neighbourhoods then see the surface


class ScaleCurve(NamedTuple):
    """The growth of the number of pairs with the distance, by scale.

    Attributes
    ----------
    scales : array of shape (k,)
        Lengths s.
    growth : array of shape (k,)
        d log S / d log s, where S is the sum of exp(-distance^2 / s^2) over all pairs.
    """

    scales: FloatArray
    growth: FloatArray


@dataclass(frozen=True, eq=False)
class CleanCloud:
    """A cloud without noise and outliers, and what was found in it; made by :func:`clean_cloud`.

    Attributes
    ----------
    search : NeighborSearch
        Over the cleaned points.
    kept : int array of shape (n,)
        Positions of these points in the given cloud; the others are merged or outliers.
    n_given : int
        Number of given points.
    dim : int
        Dimension at the given scale.
    noise : float
        Standard deviation of the noise per coordinate, 0 if none was found.
    surface : LocalSurface or None
        Moves points onto the space; None if noise was too small to matter.
    n_merged : int
        Number of points left out because others stand for them: copies, and most points of scan lines.
    line_spacing : float
        Distance between the lines that the points lie on, 0 if they lie on none.
    structured : bool
        Whether the points lie near a space of fewer than six dimensions. If not, ``dim`` is a rough estimate.
    curve : ScaleCurve or None
        From which dimension and noise were read.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Sphere, clean_cloud
    >>> rng = np.random.default_rng(0)
    >>> strangers = rng.uniform(-1.5, 1.5, size=(20, 3))
    >>> cloud = clean_cloud(np.vstack([Sphere().sample(2000, seed=0), strangers]), scale=0.3)
    >>> str(cloud)
    'dimension 2 at the scale of the kernel; 20 of 2020 points are outliers, left out'
    """

    search: NeighborSearch
    kept: IntArray
    n_given: int
    dim: int
    noise: float = 0.0
    surface: LocalSurface | None = None
    n_merged: int = 0
    line_spacing: float = 0.0
    structured: bool = False
    curve: ScaleCurve | None = None

    @property
    def points(self) -> FloatArray:
        """The cleaned points, shape (n, D)."""
        return self.search.points

    @property
    def n_outliers(self) -> int:
        """Number of points that belong to nothing."""
        return self.n_given - self.n_merged - len(self.kept)

    def project(self, points: ArrayLike, n_jobs: int = -1) -> FloatArray:
        """Move new points onto the space; they are returned unchanged if there was no noise.

        Parameters
        ----------
        points : array-like of shape (q, D)
        n_jobs : int, default=-1
            Threads, which do not change the result.
        """
        queries = check_points(points, n_columns=self.points.shape[1])
        return queries if self.surface is None else self.surface.project(queries, check_jobs(n_jobs))

    def __str__(self) -> str:
        parts = []
        if self.surface is not None:
            parts.append(f"noise of {self.noise:.2g} per coordinate removed")
        if self.structured:
            parts.append(f"dimension {self.dim} at the scale of the kernel")
        elif self.curve is not None:
            parts.append(f"no dimension stands out; neighbourhoods of 24 points have {self.dim}")
        if self.line_spacing:
            parts.append(f"lines {self.line_spacing:.2g} apart, joined to a surface")
        if self.n_merged:
            parts.append(f"{self.n_merged} of {self.n_given} points merged with their neighbours")
        if self.n_outliers:
            parts.append(f"{self.n_outliers} of {self.n_given} points are outliers, left out")
        return "; ".join(parts)


class _Finding(NamedTuple):
    """Dimension, noise per coordinate and squared bandwidth of local fits."""

    dim: int
    noise: float
    h2: float


class _Neighborhoods(NamedTuple):
    """Neighbours of some points: their squared distances (m, k) and their offsets from those points (m, k, D)."""

    squares: FloatArray
    offsets: FloatArray


def estimate_dimension(
    points: ArrayLike | NeighborSearch, *, scale: float | None = None, metric: AbstractManifold | None = None
) -> int:
    """Estimate the dimension of the space that the points fill.

    A ball around a point of a space of dimension d holds a number of points that grows like radius^d, so
    log(24 / 6) / d is the mean of log(r_24 / r_6), with r_k the distance to the k-th neighbour. Noise fills all
    coordinates at such small distances. With a ``scale``, noise is recognised and does not count.

    Parameters
    ----------
    points : array-like of shape (n, D)
        At least three points; a NeighborSearch over them is used unchanged.
    scale : float, optional
        Length at which the dimension is asked for, such as the width sqrt(2 t) of a heat kernel. See
        :func:`clean_cloud`, which also returns the noise.
    metric : AbstractManifold, optional
        Measure distances along this manifold.

    Returns
    -------
    dim : int
        In [1, D]. Reliable to about 5 dimensions from a few thousand points; above that, finite samples
        make every estimate too low.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Sphere, estimate_dimension
    >>> points = Sphere().sample(2000, seed=0)
    >>> estimate_dimension(points)
    2
    >>> noisy = points + 0.1 * np.random.default_rng(0).normal(size=points.shape)
    >>> estimate_dimension(noisy), estimate_dimension(noisy, scale=0.3)
    (3, 2)
    """
    search = search_of(points, metric, None, min_rows=3)
    if scale is not None:
        check_real(scale, "scale", POSITIVE)
        if search.metric is not None:
            reject("scale", "None with a metric, whose points have no noise", scale)
        return clean_cloud(search, scale).dim
    return _rounded(_local_growth(search), search.points.shape[1])


def _rounded(growth: float, n_axes: int) -> int:
    """A growth as a dimension."""
    return int(np.clip(np.rint(growth), 1, n_axes))


def _local_growth(search: NeighborSearch) -> float:
    """Growth of neighbourhoods with 6 to 24 points."""
    inner, outer, growth = _radii(search)
    if (inner == 0).any():  # duplicates hide how a neighbourhood grows
        search = NeighborSearch(np.unique(search.points, axis=0), search.metric)
        if len(search.points) < 3:
            return 1.0
        inner, outer, growth = _radii(search)
    grown = (inner > 0) & (outer > inner)  # equal rings carry no information
    if not grown.any():
        return 1.0
    return float(np.log(growth) / np.log(outer[grown] / inner[grown]).mean())


def _radii(search: NeighborSearch) -> tuple[FloatArray, FloatArray, float]:
    """Radii of a small and a large neighbourhood of some nodes, and the ratio of their numbers of points."""
    n = len(search.points)
    far = min(_FAR, n - 1)
    near = max(1, far * _NEAR // _FAR)
    radii = search.knn(search.points[:: max(1, n // _SAMPLE)], far + 1)[0]  # the node itself comes first
    return radii[:, near], radii[:, far], far / near


def check_noise(noise: Any) -> None:
    """Raise unless it is "auto" or a standard deviation."""
    if isinstance(noise, str):
        if noise != "auto":
            reject("noise", "'auto' or a number in [0, inf)", repr(noise))
    else:
        check_real(noise, "noise", NONNEGATIVE)


@one_blas_thread()  # local fits must not depend on the number of threads
def clean_cloud(
    points: ArrayLike | NeighborSearch,
    scale: float | None = None,
    *,
    noise: float | str = "auto",
    dim: int | None = None,
    n_jobs: int = -1,
) -> CleanCloud:
    """Find dimension, noise and outliers of a cloud, and move its points onto the space they scatter around.

    Parameters
    ----------
    points : array-like of shape (n, D)
        A NeighborSearch over valid points is used unchanged, with its own threads.
    scale : float, optional
        Length at which the space is looked at, such as the width sqrt(2 t) of a heat kernel. By default several
        times the distance between neighbours.
    noise : "auto" or float, default="auto"
        Standard deviation of the noise in each coordinate. "auto" finds it, and leaves the points where they are if
        the noise changes nothing. 0 leaves the cloud as it is.
    dim : int, optional
        Dimension of the space; found by default.
    n_jobs : int, default=-1
        Threads, -1 for all cores; the result does not depend on it.

    Returns
    -------
    CleanCloud

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Sphere, clean_cloud
    >>> sphere = Sphere().sample(2000, seed=0)
    >>> cloud = clean_cloud(sphere + 0.05 * np.random.default_rng(0).normal(size=sphere.shape), scale=0.3)
    >>> cloud.dim, 0.04 < cloud.noise < 0.06
    (2, True)
    >>> bool(np.abs(np.linalg.norm(cloud.points, axis=1) - 1).mean() < 0.015)
    True
    """
    check_noise(noise)
    width2 = np.inf if scale is None else check_real(scale, "scale", POSITIVE) ** 2
    search = search_of(points, None, check_jobs(n_jobs), min_rows=3)
    if dim is not None:
        check_integer(dim, "dim", 1, search.points.shape[1])
    asked = not isinstance(noise, str) and noise > 0
    spread = float(search.points.std(axis=0).max())
    if asked and float(noise) > spread:
        reject("noise", f"at most the spread of the points, {spread:.3g}", noise)
    if noise == 0 or search.metric is not None:
        cloud = _cleaned(search, width2, noise, dim)
    else:
        cloud = _without_patterns(search, width2, noise, dim)
    if asked and cloud.surface is None:
        warn_user(
            f"The noise of {noise:g} was not removed. Causes: (a) fewer than {_FEWEST_POINTS} points, (b) points "
            f"near no surface of at most {_MOST_DIMS} dimensions, (c) points that fill all coordinates."
        )
    return cloud


def _without_patterns(search: NeighborSearch, width2: float, noise: float | str, dim: int | None) -> CleanCloud:
    """The cleaned cloud of the points that copies and lines leave."""
    n, kept, spacing = len(search.points), _distinct(search.points), 0.0
    if len(kept) <= _FAR:  # too few places to say anything
        kept = np.arange(n)
    elif len(kept) < n:
        search = NeighborSearch(np.ascontiguousarray(search.points[kept]), None, search.n_jobs)
    lines = None if dim == 1 else _find_lines(search)
    if lines is not None and lines.spacing**2 > width2:
        warn_user(
            f"The points lie on {lines.n} lines about {lines.spacing:.2g} apart, and the kernel is only "
            f"{np.sqrt(width2):.2g} wide: each line counts as a space of its own, of dimension 1. Remedies: a heat "
            f"time of at least {lines.spacing**2 / 2:.2g}, or points between the lines."
        )
        dim = dim or 1
    elif lines is not None:
        spacing, kept = lines.spacing, kept[lines.kept]
        search = NeighborSearch(np.ascontiguousarray(search.points[lines.kept]), None, search.n_jobs)
    cloud = _cleaned(search, width2, noise, dim)
    if len(kept) == n:
        return cloud
    return replace(cloud, kept=kept[cloud.kept], n_given=n, n_merged=n - len(kept), line_spacing=spacing)


def _distinct(points: FloatArray) -> IntArray:
    """Positions of the points without copies: the first of those at nearly the same place."""
    offsets = points - np.median(points, axis=0)
    near = _COPY * float(np.median(np.linalg.norm(offsets, axis=1)))
    # Copies are neighbours in every direction; hardly any other points are neighbours in a random one.
    along = offsets @ generator(0, "cloud.copies").normal(size=points.shape[1])
    order = np.argsort(along, kind="stable")
    same = np.linalg.norm(np.diff(offsets[order], axis=0), axis=1) <= near
    return np.sort(np.minimum.reduceat(order, np.flatnonzero(np.concatenate([[True], ~same]))))


class _Lines(NamedTuple):
    """Lines of a scan: their number, the distance between them, and points that cover them evenly."""

    n: int
    spacing: float
    kept: IntArray


def _find_lines(search: NeighborSearch) -> _Lines | None:
    """The lines that the points lie on, if these are side by side; None if they are not."""
    n = len(search.points)
    if n < _FEWEST_LINES * _LINE_POINTS or search.points.shape[1] == 1:
        return None
    some = np.sort(_some(search, _ENOUGH_POINTS, "cloud.lines"))
    part = search if len(some) == n else NeighborSearch(search.points[some], None, search.n_jobs)
    pieces = components_of(_edges(*without_self(*part.knn(part.points, _LINE_NEIGHBORS + 1))))
    sizes = np.bincount(pieces)
    n_lines = int(np.count_nonzero(sizes >= _LINE_POINTS))
    if n_lines < _FEWEST_LINES or sizes[sizes >= _LINE_POINTS].sum() < (1 - _LARGE_PIECE) * len(some):
        return None
    at = _some(part, _EXAMINED, "cloud.lines")
    gaps, same = distances_between(part.points[at], part.points, None), pieces[at][:, None] == pieces
    spacing, widest = np.quantile(np.where(same, np.inf, gaps).min(axis=1), [0.5, 0.9])
    # A point far from its own piece has no neighbour there.
    axes = [np.cov(part.points[near].T) for near in same & (gaps < spacing) if np.count_nonzero(near) >= 3]
    if 2 * len(axes) < len(at):
        return None
    variances = np.array([np.linalg.eigvalsh(matrix)[-2:] for matrix in axes])
    if widest > _LINE_EVEN * spacing or np.median(variances[:, 0] / variances[:, 1]) > _LINE_WIDTH:
        return None
    order, radii = farthest_first(part.points)
    kept = np.sort(order[radii >= spacing / _PER_LINE_SPACING])
    surface = NeighborSearch(np.ascontiguousarray(part.points[kept]))
    # Dashes of one line are pieces too, but thinned they are still a line.
    return _Lines(n_lines, float(spacing), some[kept]) if _local_growth(surface) >= 1.5 else None


def _edges(distances: FloatArray, near: IntArray) -> Any:
    """Lengths between neighbours as a symmetric CSR array; copies are not at distance zero."""
    n, k = near.shape
    lengths = np.maximum(distances.ravel(), np.finfo(np.float64).tiny)
    edges = sparse.csr_array((lengths, near.ravel(), k * np.arange(n + 1)), shape=(n, n))
    return edges.maximum(edges.T.tocsr())


def _cleaned(search: NeighborSearch, width2: float, noise: float | str, dim: int | None) -> CleanCloud:
    """The cloud as it is, without outliers, or moved onto the surface."""
    n, n_axes = search.points.shape
    raw = CleanCloud(search, np.arange(n), n, dim or 1)
    if noise == 0 or n_axes == 1 or n < _FEWEST_POINTS or search.metric is not None or (dim or 0) > _MOST_DIMS:
        return raw if dim else replace(raw, dim=_rounded(_local_growth(search), n_axes))
    part, lonely = _well_connected(search)
    if len(part.points) < _FEWEST_POINTS:
        return raw if dim else replace(raw, dim=_rounded(_local_growth(search), n_axes))
    growth, curve = _local_growth(part), _scale_curve(part, 2 * width2)
    found = None if curve is None else _examine(part, curve, growth, noise, dim, width2)
    if found is None:
        return replace(raw, dim=dim or _rounded(growth, n_axes), curve=curve)
    moves = found.dim < n_axes and found.noise > 0
    raw = replace(raw, dim=found.dim, noise=found.noise if moves else 0.0, structured=True, curve=curve)
    if not moves and not (found.dim < n_axes and lonely.any()):
        return raw
    surface = _fit_surface(part, found)
    for _ in range(_OUTLIER_ROUNDS):  # patches through outliers bend towards them
        off = _are_off(part, surface)[0]
        if not off.any():
            break
        part = NeighborSearch(np.ascontiguousarray(part.points[~off]), None, part.n_jobs)
        surface = _fit_surface(part, found)
    return _moved(raw, surface, moves=moves)


def _well_connected(search: NeighborSearch) -> tuple[NeighborSearch, Any]:
    """The points that are examined, without lonely ones; and a mask of lonely ones among them."""
    points, threads = search.points, search.threads
    most = _ENOUGH_POINTS if points.shape[1] <= _FEW_COORDINATES else _ENOUGH_WIDE_POINTS
    if len(points) > most:
        points = points[np.sort(_some(search, most, "cloud.part"))]
        search = NeighborSearch(points, None, threads)
    lonely = _are_lonely(*around(search))
    if not lonely.any():
        return search, lonely
    return NeighborSearch(np.ascontiguousarray(points[~lonely]), None, threads), lonely


def _are_lonely(distances: FloatArray, near: IntArray) -> Any:
    """Whether the 12th neighbour of a point is much farther than those of its neighbours, or of most points."""
    reach = distances[:, -1]
    return (loneliness(distances, near) > _LONELY) | (reach > _VERY_LONELY * np.median(reach))


def are_outliers(cloud: CleanCloud, others: FloatArray, scale: float | None) -> Any:
    """Whether other points of the same space, of which the cloud is a part, are outliers."""
    reach = cloud.search.knn(others, LONELY_NEIGHBOR + 1)[0][:, -1]
    far = np.flatnonzero(reach > _LONELY * np.median(reach))
    found = np.zeros(len(others), dtype=bool)
    if cloud.structured and len(far):
        joined = NeighborSearch(np.vstack([cloud.points, others[far]]), None, cloud.search.n_jobs)
        kept = _cleaned(joined, np.inf if scale is None else scale**2, "auto", cloud.dim).kept
        found[far] = ~np.isin(len(cloud.points) + np.arange(len(far)), kept)
    return found


def _scale_curve(search: NeighborSearch, longest2: float) -> ScaleCurve | None:
    """The growth between the spacing of the points and a squared scale; None if points coincide."""
    points = search.points
    n = len(points)
    few = points[generator(0, "cloud.scale").permutation(n)[:_CURVE_ROWS]]
    low = float(np.median(search.knn(few, min(_FIRST_NEIGHBOR, n - 1) + 1)[0][:, -1]) ** 2 / 2)
    if not low > 0:
        return None
    high = max(min(longest2, _SPAN * low), _SHORTEST_SPAN * low)
    squares = np.geomspace(low, high, _N_SCALES)
    # Farther pairs have no weight, and nearer ones all have the same.
    ends = float(np.log(low / 30)), float(np.log(high * 12))
    middles = np.exp(ends[0] + (np.arange(_BINS) + 0.5) * (ends[1] - ends[0]) / _BINS)
    counts = np.zeros(_BINS)
    rows = max(1, _PAIRS_AT_ONCE // n)
    for start in range(0, len(few), rows):
        counts += _pair_counts(few[start : start + rows], points, ends)
    weights = np.exp(-middles / squares[:, None]) * counts  # (scales, bins)
    sums = weights.sum(axis=1)
    if not (sums > 0).all():
        return None
    return ScaleCurve(np.sqrt(squares), 2 * (weights @ middles) / squares / sums)


def _pair_counts(rows: FloatArray, points: FloatArray, ends: tuple[float, float]) -> FloatArray:
    """Number of pairs by the logarithm of their squared distance, without those of a point and itself."""
    centre = rows.mean(axis=0)  # squares of large coordinates would lose the digits of short distances
    x, y = rows - centre, points - centre
    squares = (x * x).sum(axis=1)[:, None] + (y * y).sum(axis=1) - 2 * x @ y.T
    logs = np.log(np.maximum(squares, np.exp(ends[0])))
    counts = np.histogram(logs, _BINS, ends)[0].astype(np.float64)
    counts[0] -= len(rows)
    return counts


def _examine(
    search: NeighborSearch, curve: ScaleCurve, growth: float, noise: float | str, dim: int | None, width2: float
) -> _Finding | None:
    """The most likely dimension whose tangents are seen, with its noise; None if no dimension fits."""
    n_axes = search.points.shape[1]
    dims = range(1, min(n_axes, _MOST_CANDIDATES) + 1) if dim is None else [dim]
    near = _neighborhoods_of(search)
    if width2 == np.inf:
        k = max(_USUAL_POINTS, int(_USUAL_SHARE * len(search.points)))
        width2 = footprint_width2(_median_reach(search, k), _rounded(growth, n_axes))
    for _, d, sigma in sorted(_explained(curve, d, n_axes, noise) for d in dims):
        if d > _MOST_DIMS:
            return None
        found = _Finding(d, sigma, _bandwidth(near, d, sigma))
        if dim is None and (sigma**2 > _MOST_NOISE**2 * width2 or not _is_likely(search, near, growth, found)):
            continue
        if not isinstance(noise, str):
            return found
        isotropic = _is_isotropic(near, found)
        found, steady = _with_measured_noise(search, found)
        if not _matters(search, found) or not (steady or _is_thick(search, growth, found)):
            return found._replace(noise=0.0)
        if isotropic or dim is not None:
            return found
    return None


def _is_likely(search: NeighborSearch, near: _Neighborhoods, growth: float, found: _Finding) -> bool:
    """Whether there are enough points for a dimension, and neighbourhoods extend in so many directions."""
    enough = _POINTS_PER_TERM * n_terms(found.dim)
    if len(search.points) < enough or found.dim > np.rint(growth):  # noise adds to the growth, nothing else does
        return False
    variances = _local_variances(near, found.h2)[0]
    return bool(np.count_nonzero(variances > _TANGENT * variances[: found.dim].mean()) == found.dim)


def _is_isotropic(near: _Neighborhoods, found: _Finding) -> bool:
    """Whether neighbourhoods are thick in all directions: a strip, thick in one, is not a noisy line."""
    variances, n_local = _local_variances(near, found.h2)
    n_axes = near.offsets.shape[2]
    # The smallest variance of noise in D coordinates from n samples is (1 - sqrt(D / n))^2 sigma^2.
    least = max(0.0, 1 - np.sqrt(n_axes / n_local)) ** 2 * found.noise**2
    return bool(len(variances) < n_axes or variances[-1] >= _ISOTROPY * least)


def _is_thick(search: NeighborSearch, growth: float, found: _Finding) -> bool:
    """Whether neighbourhoods are as thick as the noise says: those of a bent space without noise are not."""
    n_axes = search.points.shape[1]
    reach = _median_reach(search, LONELY_NEIGHBOR)
    x = 4 * found.noise**2 / (2 * reach**2 / growth)
    expected = (n_axes - found.dim) * x / (1 + x)
    return bool(growth >= found.dim * (1 - _GROWTH_ERROR) + _THICKNESS * expected)


def _some(search: NeighborSearch, n: int, name: str) -> IntArray:
    """Positions of some points, always the same."""
    return generator(0, name).permutation(len(search.points))[:n]


def _neighborhoods_of(search: NeighborSearch) -> _Neighborhoods:
    """Neighbours of some points of a cloud."""
    points = search.points
    n = int(np.clip(_EXAMINED_NUMBERS // (MOST_NEIGHBORS * points.shape[1]), _FEWEST_EXAMINED, _EXAMINED))
    at = points[_some(search, n, "cloud.neighborhoods")]
    distances, near = search.knn(at, min(MOST_NEIGHBORS, len(points)))
    offsets = points[near]
    offsets -= at[:, None]  # in place: they may take 64 MB
    return _Neighborhoods(distances**2, offsets)


def _bandwidth(near: _Neighborhoods, dim: int, sigma: float) -> float:
    """Squared bandwidth of local fits: enough neighbours for a quadratic, and tangents stand out of the noise."""
    squares, n_axes = near.squares, near.offsets.shape[2]
    needed = min(int(PER_COEFFICIENT * n_terms(dim)), squares.shape[1] - 1)
    h2 = float(np.median(squares[:, needed]) / 2)
    for _ in range(60):
        n_local = float(np.median(np.exp(-(squares - squares[:, 1:2]) / h2).sum(axis=1)))
        # Of pure noise with n samples in D coordinates, the largest variance is (1 + sqrt(D / n))^2 sigma^2.
        if h2 >= _SIGNAL * sigma**2 * (1 + np.sqrt(n_axes / n_local)) ** 2:
            break
        h2 *= 1.15
    return h2


def _explained(curve: ScaleCurve, dim: int, n_axes: int, noise: float | str) -> tuple[float, int, float]:
    """How badly a dimension explains the curve, the dimension, and the noise with which it explains it best."""
    squares = curve.scales**2
    losses = (squares[:, None] / squares[-1]) ** np.array([0.5, 1.0])  # by edges and by curvature
    tried = _NOISES * curve.scales[0] if isinstance(noise, str) else np.array([noise])
    best = np.inf, dim, 0.0
    for sigma in tried if dim < n_axes else [0.0]:
        x = 4 * sigma**2 / squares
        shares, misfit = nnls(losses, dim + (n_axes - dim) * x / (1 + x) - curve.growth)
        doubt = misfit / np.sqrt(len(squares)) + _LOSS_PENALTY * float(losses[0] @ shares)
        best = min(best, (doubt, dim, float(sigma)))
    return best


def _local_variances(near: _Neighborhoods, h2: float) -> tuple[FloatArray, float]:
    """Median variances of neighbourhoods along their axes, falling, and effective number of neighbours."""
    squares = near.squares
    weights = np.exp(-(squares - squares[:, 1:2]) / h2)
    weights[:, 0] = 0.0
    weights = np.maximum(weights - weights[:, -1:], 0.0)
    shares = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-300)
    blocks = np.array_split(np.arange(len(shares)), max(1, len(shares) // _NEIGHBORHOODS_AT_ONCE))
    variances = np.concatenate([_axis_variances(shares[block], near.offsets[block]) for block in blocks])
    return np.median(variances, axis=0), float(np.median(1 / (shares**2).sum(axis=1)))


def _axis_variances(shares: FloatArray, offsets: FloatArray) -> FloatArray:
    """Variances of weighted neighbours (m, k, D) along their principal axes, falling."""
    means = np.einsum("mk,mkd->md", shares, offsets)
    offsets = (offsets - means[:, None]) * np.sqrt(shares)[:, :, None]
    if offsets.shape[1] < offsets.shape[2]:
        offsets = offsets.transpose(0, 2, 1)
    variances = np.linalg.eigvalsh(offsets.transpose(0, 2, 1) @ offsets)
    return np.asarray(variances[:, ::-1], dtype=np.float64)


def _with_measured_noise(search: NeighborSearch, found: _Finding) -> tuple[_Finding, bool]:
    """Noise by distances of points to the surface through their neighbours; never more than the curve shows.

    Also whether wider patches show the same noise: they miss a bent surface by much more.
    """
    dim, sigma, h2 = found
    steady = False
    for _ in range(_NOISE_ROUNDS):
        if not _matters(search, _Finding(dim, sigma, h2)):
            break
        narrow, wide = (_left_out_distance(search, dim, width2) for width2 in (h2, 2 * h2))
        steady = wide < _STEADY * narrow
        # A quadratic misses a bent surface by at least h^3, so by 8 times the square with twice the h2.
        bias2 = max(0.0, wide**2 - narrow**2) / 7
        measured = min(sigma, float(np.sqrt(max(narrow**2 - bias2, 0.0))))
        settled = abs(measured - sigma) < 0.1 * sigma
        sigma = measured
        if settled:
            break
        h2 = _bandwidth(_neighborhoods_of(search), dim, sigma)
    return _Finding(dim, sigma, h2), steady


def _left_out_distance(search: NeighborSearch, dim: int, h2: float) -> float:
    """Root mean square distance, per normal direction, of points to the patch through their neighbours."""
    points = search.points[_some(search, 300, "cloud.noise")]
    patches = fit_patches(search, search.points, points, dim, h2, leave_out=True)
    squares = (patch_offsets(patches, points) ** 2).sum(axis=1)
    typical = np.mean(np.minimum(squares, ROBUST * np.median(squares)))
    return float(np.sqrt(typical / (points.shape[1] - dim)))


def _matters(search: NeighborSearch, found: _Finding) -> bool:
    """Whether noise changes the volume of a step of about 20 points."""
    step2 = _step2(search, found.dim)
    normal_axes = search.points.shape[1] - found.dim
    return bool(normal_axes / 2 * np.log1p(4 * found.noise**2 / step2) > np.log1p(_MATTERS))


def _step2(search: NeighborSearch, dim: int) -> float:
    """Squared bandwidth of a Gaussian step that reaches 20 points."""
    return footprint_width2(_median_reach(search, _STEP_POINTS), dim)


def _median_reach(search: NeighborSearch, k: int) -> float:
    """Median distance of some points to their k-th neighbour."""
    at = search.points[_some(search, 400, "cloud.step")]
    return float(np.median(search.knn(at, min(k, len(search.points) - 1) + 1)[0][:, -1]))


def _fit_surface(search: NeighborSearch, found: _Finding) -> LocalSurface:
    """The surface through the points, in the directions in which they extend further than noise."""
    dim, sigma, h2 = found
    origin, axes = _without_noisy_axes(search.points, dim, sigma)
    inside = np.ascontiguousarray((search.points - origin) @ axes)
    search = NeighborSearch(inside, None, search.threads)
    if axes.shape[1] < len(axes):
        h2 = _bandwidth(_neighborhoods_of(search), dim, sigma)
    return replace(fit_surface(_few_enough(search, h2), (origin, axes), dim, h2), noise=sigma)


def _without_noisy_axes(points: FloatArray, dim: int, sigma: float) -> tuple[FloatArray, FloatArray]:
    """The mean, and the principal axes (D, r) along which the cloud extends further than noise does."""
    n, n_axes = points.shape
    origin = points.mean(axis=0)
    identity = np.eye(n_axes)
    if n_axes <= dim + 3:
        return origin, identity
    centred = points - origin
    variances, axes = np.linalg.eigh(centred.T @ centred / n)
    held = variances > _AXIS * sigma**2 * (1 + np.sqrt(n_axes / n)) ** 2
    return (origin, np.ascontiguousarray(axes[:, held])) if dim < held.sum() < n_axes else (origin, identity)


def _few_enough(search: NeighborSearch, h2: float) -> NeighborSearch:
    """A random part of a cloud with at most so many neighbours within a bandwidth as one fit uses."""
    points = search.points
    at = points[_some(search, 200, "cloud.density")]
    limit = -np.log(RANGE) * h2
    inside = float(np.median(search.tree.query_ball_point(at, np.sqrt(limit), return_length=True)))
    if inside <= MOST_NEIGHBORS:
        return search
    n = int(len(points) * MOST_NEIGHBORS / inside)
    return NeighborSearch(points[np.sort(_some(search, n, "cloud.patches"))], None, search.threads)


def _moved(cloud: CleanCloud, surface: LocalSurface, *, moves: bool) -> CleanCloud:
    """The cloud without outliers, and with its points moved onto the surface if that is asked for."""
    off, placed = _are_off(cloud.search, surface)
    if not moves and not off.any():
        return cloud
    kept = np.flatnonzero(~off)
    search = NeighborSearch(
        np.ascontiguousarray((placed if moves else cloud.points)[kept]), None, cloud.search.n_jobs
    )
    if moves:
        surface = _with_edges(surface, search)
        search = NeighborSearch(surface.within_edge(search.points), None, search.n_jobs)
    return replace(cloud, search=search, kept=kept, surface=surface if moves else None)


def _with_edges(surface: LocalSurface, search: NeighborSearch) -> LocalSurface:
    """The surface with its edges: noise along the surface moves points beyond them."""
    dim, noise = surface.dim, surface.noise
    if len(search.points) > _ENOUGH_WIDE_POINTS:
        some = np.sort(_some(search, _ENOUGH_WIDE_POINTS, "cloud.edges"))
        search = NeighborSearch(search.points[some], None, search.n_jobs)
    s2 = max(_step2(search, dim), (noise / _LARGEST_BLUR) ** 2)
    if noise < _SMALLEST_BLUR * np.sqrt(s2):
        return surface
    pairs = search.within(search.points, np.sqrt(-2 * np.log(_EDGE_TAIL) * s2))
    wide = matrix_of_pairs(np.exp(-(pairs.distances**2) / (2 * s2)), pairs, len(search.points))
    model = BoundaryModel(search.points, wide, s2, dim, blur=noise / np.sqrt(s2), n_jobs=search.threads)
    places, normals = model.edge_places()
    if not len(places):
        return surface
    return replace(surface, edge=NeighborSearch(np.sqrt(s2) * places + search.points.mean(axis=0)), normals=normals)


def _are_off(search: NeighborSearch, surface: LocalSurface) -> tuple[Any, FloatArray]:
    """Whether points are far off the surface, unlike their neighbours; and where they are on it."""
    placed = surface.project(search.points, search.threads)
    squares = ((search.points - placed) ** 2).sum(axis=1)
    normal_axes = search.points.shape[1] - surface.dim
    unlikely = chi2.isf(_OFF_CHANCE, normal_axes) / chi2.median(normal_axes)
    limit = max(1.5 * unlikely * float(np.median(squares)), _OFF_STEP * _step2(search, surface.dim))
    distances, near = around(search)
    # Around thin parts of the space that patches miss, all points are off the surface.
    alone = squares > _OFF_ALONE * np.quantile(squares[near[:, 1:]], 0.25, axis=1)
    return (squares > limit) & (alone | _are_lonely(distances, near)), placed


@dataclass(frozen=True, eq=False)
class Sheets:
    """Paths along the layers of a cloud: edges between near neighbours, which do not join layers.

    Attributes
    ----------
    edges : CSR array of shape (n, n)
        Lengths.
    spacing : array of shape (n,)
        Distance of each point to the last of its neighbours.
    pieces : int array of shape (n,)
        Connected piece of each point.
    threads : int
    """

    edges: Any
    spacing: FloatArray
    pieces: IntArray
    threads: int

    @classmethod
    def of(cls, search: NeighborSearch, neighbors: int = _PATH_NEIGHBORS) -> "Sheets":
        """The paths between so many nearest neighbours."""
        distances, near = without_self(*search.knn(search.points, min(neighbors, len(search.points) - 1) + 1))
        edges = _edges(distances, near)
        # Around a far point there is nothing to be near to: its spacing must not make all paths count.
        spacing = np.minimum(distances[:, -1], _WIDEST_SPACING * np.median(distances[:, -1]))
        return cls(edges, spacing, components_of(edges), search.threads)

    def cut(self, pairs: Pairs) -> tuple[Pairs, int]:
        """The pairs without those that are close only through empty space, and the number of these."""
        keep = ~self.are_apart(pairs)
        n = len(self.spacing)
        # Paths summed from the other end may differ in the last bit: a pair needs both directions.
        kept = sparse.coo_array((keep.astype(np.int8), (pairs.rows, pairs.columns)), shape=(n, n)).tocsr()
        keep &= np.asarray(kept[pairs.columns, pairs.rows]).ravel() > 0
        n_cut = (len(keep) - int(np.count_nonzero(keep))) // 2  # pairs are listed in both directions
        return Pairs(pairs.rows[keep], pairs.columns[keep], pairs.distances[keep]), n_cut

    def are_apart(self, pairs: Pairs) -> Any:
        """Whether the path between two points is much longer than the straight line, for pairs sorted by row."""
        edges = self.edges.indptr.astype(np.int64), self.edges.indices.astype(np.int64), self.edges.data
        limit = _DETOUR * float(pairs.distances.max(initial=0.0)) + 2 * float(self.spacing.max())
        allowed = _DETOUR * pairs.distances + self.spacing[pairs.rows] + self.spacing[pairs.columns]
        rows = np.unique(pairs.rows)
        blocks = np.array_split(rows, max(1, len(rows) // _SOURCES))

        def work(block: IntArray) -> Any:
            counts, columns, lengths = ball_along_edges(*edges, block, limit)
            starts = np.repeat(np.arange(len(block)), counts)
            # From 1 to 2: a sparse matrix does not tell a stored zero from no path.
            paths = sparse.coo_array(
                (1 + lengths / limit, (starts, columns)), (len(block), len(self.spacing))
            ).tocsr()
            part = slice(*np.searchsorted(pairs.rows, [block[0], block[-1] + 1]))
            along = np.asarray(paths[np.searchsorted(block, pairs.rows[part]), pairs.columns[part]]).ravel()
            return np.where(along > 0, (along - 1) * limit, np.inf) > allowed[part]

        far = np.concatenate(map_threads(work, blocks, self.threads)) if len(rows) else np.zeros(0, dtype=bool)
        return far & self._may_be_layers(pairs)

    def _may_be_layers(self, pairs: Pairs) -> Any:
        """Whether two points are in the same piece, or far from each other in two large pieces.

        Lines of a scan, clumps and copies of points are small pieces close together, but not layers.
        """
        first, second = self.pieces[pairs.rows], self.pieces[pairs.columns]
        large = np.bincount(self.pieces) >= _LARGE_PIECE * len(self.pieces)
        gap = _LAYER_GAP * float(np.median(self.spacing))
        return (first == second) | (large[first] & large[second] & (pairs.distances > gap))


def find_sheets(search: NeighborSearch, s2: float, radius: float) -> Sheets | None:
    """The layers of a cloud, if steps of the squared bandwidth s2 would jump between them; else None."""
    points, sheets = search.points, Sheets.of(search)
    some = np.sort(_some(search, _LEAK_NODES, "cloud.layers"))
    found = search.within(points[some], radius)
    pairs = Pairs(some[found.rows], found.columns, found.distances)
    weights = np.exp(-(pairs.distances**2) / s2)
    leak = float(weights[sheets.are_apart(pairs)].sum() / weights.sum())
    return sheets if leak > _LEAK else None
