"""The surface through a cloud and its edge: quadratic patches, and mirror images of nodes.

Patches are blended to a map that moves points onto the surface. Heat does not leave a space at its edge: a node at
a distance b from the edge gets a mirror image, 2 b further out. Images receive the part of a Gaussian that would
leave the space.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations_with_replacement

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from manifoldrf._codec import stored
from manifoldrf._native import loops
from manifoldrf._random import generator
from manifoldrf._runtime import in_blocks, quick_map
from manifoldrf._validation import NONNEGATIVE, FloatArray, IntArray, check_real, reject
from manifoldrf.geometry.csr import check_arrays, check_shape, components_of
from manifoldrf.geometry.neighbors import NeighborSearch, along, farthest_first

PER_COEFFICIENT = 3.0  # effective neighbours for each coefficient of a patch
MOST_NEIGHBORS = 400  # to which a patch is fitted
RANGE = 0.01  # smaller weights are not used
ROBUST = 9.0  # squared distances to the patch over their median beyond which neighbours lose weight
BLENDED = 8  # patches around a query whose results are averaged
_LARGEST_COORDINATE = 3.0  # in bandwidths; the quadratic part is constant beyond
_QUERIES_AT_ONCE = 2048  # moved by one task
_SAME_FACE = 0.8  # cosines between normals
_OTHER_FACE = {2: 0.7, 3: 0.5}  # by dimension: in three, normals at corners are less exact
# Half-width and depth of the window for the outermost points, in radii of a neighbourhood.
_ACROSS, _BEHIND = 0.5, 0.7


def n_terms(dim: int) -> int:
    """Number of coefficients of a quadratic."""
    return (dim + 1) * (dim + 2) // 2


@stored
@dataclass(frozen=True, eq=False)
class Patches:
    """Quadratic patches.

    Attributes
    ----------
    means : array of shape (M, r)
    frames : array of shape (M, r, dim)
        Tangents, orthonormal.
    bends : array of shape (M, p, r)
        Normal part: coefficients of 1, the tangential coordinates and their products.
    widths : array of shape (M,)
        Unit of the tangential coordinates.
    """

    means: FloatArray
    frames: FloatArray
    bends: FloatArray
    widths: FloatArray

    def _check_loaded(self) -> None:
        if self.frames.ndim != 3 or not self.frames.size:
            reject("frames", "an array of shape (patches, axes, dimensions)", f"shape {self.frames.shape}")
        m, r, dim = self.frames.shape
        check_arrays(self, means=(m, r), frames=(m, r, dim), bends=(m, n_terms(dim), r), widths=(m,))
        if not (self.widths > 0).all():
            reject("widths", "positive", float(self.widths.min()))

    def second_form(self) -> FloatArray:
        """Second derivatives along the tangents, (M, dim, dim, r)."""
        m, r, dim = self.frames.shape
        found = np.zeros((m, dim, dim, r))
        for k, (a, b) in enumerate(combinations_with_replacement(range(dim), 2)):
            bend = self.bends[:, 1 + dim + k] / self.widths[:, None] ** 2
            found[:, a, b] += bend
            found[:, b, a] += bend  # twice for a = b
        return found


@stored
@dataclass(frozen=True, eq=False)
class LocalSurface:
    """A surface through a cloud: quadratic patches, blended between neighbouring centres.

    Attributes
    ----------
    centres : NeighborSearch
        Centres of the patches, shape (M, r).
    origin : array of shape (D,)
    axes : array of shape (D, r)
        Orthonormal directions in which the cloud extends; others hold only noise.
    patches : Patches
    noise_std : float
        Standard deviation of the points around the surface, per coordinate.
    """

    centres: NeighborSearch
    origin: FloatArray
    axes: FloatArray
    patches: Patches
    noise_std: float = 0.0

    def _check_loaded(self) -> None:
        m, r = self.patches.means.shape
        check_arrays(self, origin=(len(self.axes),), axes=(len(self.axes), r))
        check_shape("centres", self.centres.points, (m, r))
        check_real(self.noise_std, "noise_std", NONNEGATIVE)

    def _nearest(self, places: FloatArray) -> tuple[FloatArray, IntArray]:
        """Coordinates of points along the axes, and the patches nearest to them."""
        inside = (places - self.origin) @ self.axes
        return inside, self.centres.knn(inside, 1)[1][:, 0]

    def radii(self, places: FloatArray) -> FloatArray:
        """One over the length of the second fundamental form of the nearest patches: R / sqrt(2) on a sphere."""
        bending = np.sqrt((self.patches.second_form() ** 2).sum(axis=(1, 2, 3)))
        return np.asarray(1 / np.maximum(bending[self._nearest(places)[1]], 1e-300))

    def tangents(self, places: FloatArray) -> FloatArray:
        """Orthonormal tangents (q, D, dim) of the nearest patches at some points."""
        inside, near = self._nearest(places)
        frames, bends, width = self.patches.frames[near], self.patches.bends[near], self.patches.widths[near, None]
        dim = frames.shape[2]
        along = np.einsum("nd,nda->na", inside - self.patches.means[near], frames) / width
        along = np.clip(along, -_LARGEST_COORDINATE, _LARGEST_COORDINATE)
        slopes = bends[:, 1 : 1 + dim].transpose(0, 2, 1).copy()
        for m, (a, b) in enumerate(combinations_with_replacement(range(dim), 2)):
            slopes[:, :, a] += bends[:, 1 + dim + m] * along[:, b : b + 1]
            slopes[:, :, b] += bends[:, 1 + dim + m] * along[:, a : a + 1]  # twice for a = b
        q, r = np.linalg.qr(frames + slopes / width[..., None])
        q *= np.sign(np.einsum("naa->na", r))[:, None]  # the signs of the frames
        return np.asarray(np.einsum("da,nak->ndk", self.axes, q))

    def curvature(self, places: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Tangents at points of the surface, and the Ricci curvature (q, dim, dim) along them."""
        second = self.patches.second_form()
        # Gauss's equation.
        ricci = np.einsum("naad,nbcd->nbc", second, second) - np.einsum("nacd,ncbd->nab", second, second)
        return self.tangents(places), ricci[self._nearest(places)[1]]

    def project(self, queries: FloatArray, n_jobs: int = 1) -> FloatArray:
        """Points of the surface near the queries, shape (q, D); continuous in the queries."""
        inside = along(self.axes, queries - self.origin)
        distances, near = self.centres.knn(inside, min(BLENDED, len(self.centres.points)), n_jobs)
        # The tree returns an index out of range where squared distances overflow.
        near = np.minimum(np.ascontiguousarray(near, dtype=np.int64), len(self.centres.points) - 1)
        found = np.zeros(queries.shape)
        patches = self.patches.means, self.patches.frames, self.patches.bends, self.patches.widths
        given = inside, near, np.ascontiguousarray(distances), *patches, _LARGEST_COORDINATE, self.origin, self.axes
        in_blocks(partial(loops.blend_patches, *given, found), len(queries), _QUERIES_AT_ONCE, n_jobs)
        return found


def quadratic_terms(along: FloatArray) -> FloatArray:
    """1, the coordinates (n, dim, ...) and their products, shape (n, p, ...)."""
    dim = along.shape[1]
    products = list(combinations_with_replacement(range(dim), 2))
    terms = np.ones((len(along), 1 + dim + len(products), *along.shape[2:]))
    terms[:, 1 : 1 + dim] = along
    for m, (a, b) in enumerate(products):
        np.multiply(along[:, a], along[:, b], out=terms[:, 1 + dim + m])
    return terms


def fit_patches(search: NeighborSearch, at: FloatArray, dim: int, h2: float, *, leave_out: bool = False) -> Patches:
    """Patches at the centres ``at``, through the points around them."""
    points, n = search.points, len(search.points)
    squares = search.knn(at[:: max(1, len(at) // 100)], min(n, MOST_NEIGHBORS))[0] ** 2
    inside = float(np.median(np.count_nonzero(squares < -np.log(RANGE) * h2, axis=1)))
    k = int(min(n - 1, max(1.2 * inside, 2 * int(PER_COEFFICIENT * n_terms(dim)))))
    size = int(np.clip(2**22 // (k * points.shape[1]), 1, 64))  # bounds the memory of a task
    blocks = np.array_split(at, max(1, len(at) // size))
    fit = partial(_fit_block, search, points, dim, h2, range(int(leave_out), k + int(leave_out)))
    parts = zip(*quick_map(fit, blocks, search.n_jobs), strict=True)
    return Patches(*map(np.ascontiguousarray, map(np.concatenate, parts)))


def _fit_block(
    search: NeighborSearch, points: FloatArray, dim: int, h2: float, ranks: range, at: FloatArray
) -> tuple[FloatArray, ...]:
    """Patches at some centres, through neighbours of the given ranks; ranks from 1 leave out the centre itself."""
    distances, near = search.knn(at, ranks.stop, 1)  # blocks are in threads already
    squares, around = distances[:, ranks.start :] ** 2, points[near[:, ranks.start :]]  # (B, k), (B, k, r)
    # Where points are sparse, the bandwidth is wide enough for a quadratic.
    needed = min(int(PER_COEFFICIENT * n_terms(dim)), len(ranks) - 1)
    width2 = np.maximum(h2, squares[:, needed] / 2)[:, None]
    weights = np.exp(-(squares - squares[:, :1]) / width2)
    weights = np.maximum(weights - weights[:, -1:], 1e-12)  # continuous when the last neighbour changes
    unit = np.sqrt(width2 / 2)[:, :, None]
    turned = np.ascontiguousarray(around.transpose(0, 2, 1))  # (B, r, k): sums over few coordinates are slow
    far = np.zeros_like(weights)
    bent = np.arange(1 + dim, n_terms(dim))
    ridge = np.full(n_terms(dim), 1e-10)
    ridge[bent] += 1e-3  # against wild extrapolation where neighbours lie on a line
    for _ in range(3):  # downweights neighbours far off, as on another layer
        shares = weights / (1 + far**2)
        shares /= shares.sum(axis=1, keepdims=True)
        means = (turned @ shares[:, :, None])[:, :, 0]
        offsets = turned - means[:, :, None]
        frames = _leading_axes(offsets * np.sqrt(shares)[:, None], dim)  # (B, r, dim)
        along = frames.transpose(0, 2, 1) @ offsets
        terms = quadratic_terms(along / unit)  # (B, p, k)
        weighted = terms * shares[:, None]
        matrix = weighted @ terms.transpose(0, 2, 1)
        matrix += np.diag(ridge)
        bends = np.linalg.solve(matrix, weighted @ offsets.transpose(0, 2, 1))  # (B, p, r)
        bends -= bends @ frames @ frames.transpose(0, 2, 1)
        gaps = offsets - frames @ along - bends.transpose(0, 2, 1) @ terms
        rest = (gaps**2).sum(axis=1)
        if (rest.max(axis=1) < 0.003 * width2[:, 0]).all():  # no neighbour is far off
            break
        # For neighbours on one plane the median is zero; the cap keeps squares finite.
        far = np.minimum(rest / (ROBUST * _weighted_medians(rest, shares) + 1e-300), 1e100)
    return means, frames, bends, unit[:, 0, 0]


def squares_off(patches: Patches, points: FloatArray) -> FloatArray:
    """Squared distance of each point to its own patch."""
    offsets = points - patches.means
    along = np.einsum("nd,ndk->nk", offsets, patches.frames)
    inside = np.clip(along / patches.widths[:, None], -_LARGEST_COORDINATE, _LARGEST_COORDINATE)
    bent = np.einsum("np,npd->nd", quadratic_terms(inside), patches.bends)
    offsets = offsets - np.einsum("ndk,nk->nd", patches.frames, along) - bent
    return np.asarray((offsets**2).sum(axis=1))


def _leading_axes(offsets: FloatArray, dim: int) -> FloatArray:
    """Leading principal axes of weighted offsets (B, r, k), shape (B, r, dim)."""
    n_axes = offsets.shape[1]
    turned = offsets.transpose(0, 2, 1)
    if n_axes <= 24:  # above, a few power iterations are cheaper than covariances
        return np.linalg.eigh(offsets @ turned)[1][:, :, ::-1][:, :, :dim]
    guess = generator(0, "cloud.axes").normal(size=(n_axes, dim + 4))
    span = np.broadcast_to(guess, (len(offsets), *guess.shape))
    for _ in range(8):
        span = np.linalg.qr(offsets @ (turned @ span))[0]
    inside = turned @ span
    turn = np.linalg.eigh(inside.transpose(0, 2, 1) @ inside)[1][:, :, ::-1][:, :, :dim]
    return np.asarray(span @ turn)


def _weighted_medians(values: FloatArray, shares: FloatArray) -> FloatArray:
    """Weighted median of each row, shape (B, 1)."""
    rows, order = np.arange(len(values))[:, None], np.argsort(values, axis=1)
    below = (np.cumsum(shares[rows, order], axis=1) < 0.5).sum(axis=1, keepdims=True)
    return np.asarray(values[rows, order[rows, np.minimum(below, values.shape[1] - 1)]])


# ------------------------------------------------------------------------------------------------------------ edges
@dataclass(frozen=True, eq=False)
class Edge:
    """The edge of a space, possibly with several faces; without points if the space is closed.

    Attributes
    ----------
    places : array of shape (e, D)
        Points of the edge.
    normals : array of shape (e, D)
        Outward, tangential to the space.
    along : array of shape (e, dim - 1, D)
        Orthonormal directions along the edge.
    dim : int
        Dimension of the space.
    surface : LocalSurface, optional
        The space itself, if it is curved.
    """

    places: FloatArray
    normals: FloatArray
    along: FloatArray
    dim: int
    surface: LocalSurface | None = None

    @classmethod
    def none(cls, dim: int, n_coordinates: int) -> "Edge":
        """No edge."""
        nothing = np.zeros((0, n_coordinates))
        return cls(nothing, nothing, np.zeros((0, dim - 1, n_coordinates)), dim)

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self.places)

    def faces(self, z: FloatArray, reach: float) -> tuple[FloatArray, FloatArray]:
        """Distances (q, f) to the faces near points, positive inside, and normals (q, f, D); inf for no face.

        At a corner there are several faces, at most as many as the dimension.
        """
        most = min(self.dim, 3)
        depths, normals = np.full((len(z), most), np.inf), np.zeros((len(z), most, z.shape[1]))
        if not len(self.places):
            return depths, normals
        k = min(24 if self.dim == 2 else 48, len(self.places))
        d, i = self._tree.query(z, k, distance_upper_bound=reach)
        d, i = d.reshape(len(z), k), i.reshape(len(z), k)
        near = np.flatnonzero(np.isfinite(d[:, 0]))
        d, i = d[near], i[near]
        i = np.where(np.isfinite(d), i, 0)
        N, offsets = self.normals[i], self.places[i] - z[near][:, None]  # (r, k, D)
        heights = np.einsum("rkd,rkd->rk", offsets, N)
        if z.shape[1] > self.dim:  # ignore edges of other layers, above a point
            flat = heights**2 + (np.einsum("rkd,rkad->rka", offsets, self.along[i]) ** 2).sum(axis=2)
            if self.surface is not None:  # also as seen from the point
                tangents = self.surface.tangents(z[near])
                flat = np.minimum(flat, (np.einsum("rkd,rda->rka", offsets, tangents) ** 2).sum(axis=2))
            d = np.where(flat > 0.5 * d**2, d, np.inf)
        rows = np.arange(len(near))
        for face in range(most):  # the nearest tangent plane, then those with other normals
            lead = d.argmin(axis=1)
            here = np.isfinite(d[rows, lead])
            depths[near[here], face] = heights[rows, lead][here]
            first = N[rows, lead]
            normals[near[here], face] = first[here]
            other = np.einsum("rkd,rd->rk", N, first) < _OTHER_FACE[self.dim]
            # The planes of faces in front of this one, as at an inner corner, go through the space.
            behind = np.einsum("rkd,rd->rk", offsets - offsets[rows, lead][:, None], first) < 0
            d = np.where(other & behind, d, np.inf)
        return depths, normals

    def images(self, nodes: FloatArray, reach: float) -> tuple[FloatArray, IntArray]:
        """Mirror images of nodes in the faces near them, and the node of each."""
        depths, normals = self.faces(nodes, reach)
        images = [(nodes, np.arange(len(nodes)))]
        for face in range(depths.shape[1]):
            for places, own in images.copy():  # at corners, images of images
                here = depths[own, face] < reach
                j = own[here]
                if len(j):
                    on_face = nodes[j] + depths[j, face][:, None] * normals[j, face]
                    beyond = np.einsum("nd,nd->n", places[here] - on_face, normals[j, face])
                    images.append((places[here] - 2 * beyond[:, None] * normals[j, face], j))
        places, own = map(np.concatenate, zip(*images, strict=True))
        return places[len(nodes) :], own[len(nodes) :]

    def inside(self, z: FloatArray, reach: float, margin: float) -> FloatArray:
        """Move points that are closer to a face than the margin inwards, by at most the reach."""
        depths, normals = self.faces(z, reach)
        for face in range(depths.shape[1]):
            missing = np.where(np.isfinite(depths[:, face]), np.maximum(margin - depths[:, face], 0.0), 0.0)
            z = z - np.minimum(missing, reach)[:, None] * normals[:, face]
        return z


def _lengths(vectors: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-300))


def find_edge(
    search: NeighborSearch,
    surface: LocalSurface | None,
    dim: int,
    spacing: float,
    n_jobs: int = 1,
    *,
    noise_std: float = 0.0,
) -> Edge:
    """The edge of the space on which points lie.

    Near an edge, the centroid of a point's neighbours is off the point. The direction away from the centroid is
    rotated until the outermost neighbours are closest; the edge is one mean gap beyond them.

    Parameters
    ----------
    search : NeighborSearch
        Over the points.
    surface : LocalSurface or None
        Through the points; None if they fill all coordinates.
    dim : int
    spacing : float
        Distance between the points that describe the edge.
    n_jobs : int
        Threads.
    noise_std : float
        Noise of the points along the space, which blurs the edge.
    """
    points = search.points
    n, n_axes = points.shape
    frames, widest = np.broadcast_to(np.eye(n_axes), (n, n_axes, n_axes)), np.full(n, np.inf)
    if surface is not None:  # windows are smaller than the radius of curvature
        frames, widest = surface.tangents(points), surface.radii(points)
    k = min(n - 1, 50 if dim == 2 else 80)
    d, near = search.knn(points, k + 1, n_jobs)
    d, near = d[:, 1:], near[:, 1:]
    fewest = 16 if dim == 2 else 64  # fewer may lie on one side by chance
    radii = np.clip(widest, d[:, min(fewest, k - 1)], d[:, -1])
    flat = (points[near] - points[:, None]) @ frames
    seen = (d <= radii[:, None]) & (_lengths(flat)[..., 0] > 0.7 * d)  # not on another layer, above or below
    flat *= (np.minimum(d / _lengths(flat)[..., 0], 1.5) / radii[:, None])[..., None]  # with their lengths in space
    offset = (flat * seen[..., None]).sum(axis=1) / seen.sum(axis=1)[:, None]
    open_ = np.flatnonzero(np.linalg.norm(offset, axis=1) > 0.2)
    flat, outward, radii = flat[open_], -offset[open_] / _lengths(offset[open_]), radii[open_]
    flat[~seen[open_]] = np.nan
    blur = noise_std / radii
    directions = np.stack([outward, *_turns(outward, dim)])  # (m, n, dim)
    depths = np.stack([_window_depth(flat, direction, blur)[0] for direction in directions])
    rows = np.flatnonzero(depths.min(axis=0) < 0.6)
    outward = directions[depths.argmin(axis=0)[rows], rows]
    if len(rows) < 12:
        return Edge.none(dim, n_axes)
    flat, radii, blur, open_ = flat[rows], radii[rows], blur[rows], open_[rows]
    F = frames[open_]
    normals = np.einsum("nda,na->nd", F, outward)
    d, around = cKDTree(points[open_]).query(points[open_], min(24 * dim, len(open_)), workers=n_jobs)
    weights = np.exp(-((d / (0.5 * radii[:, None])) ** 2))
    for _ in range(4):  # neighbours on the same face have similar normals
        cosines = np.einsum("nkd,nd->nk", normals[around], normals)
        same = weights * (cosines > _SAME_FACE)
        mean = np.einsum("nk,nkd->nd", same, normals[around])
        normals = mean / _lengths(mean)
    outward = np.einsum("nda,nd->na", F, normals)
    outward /= _lengths(outward)
    depths, beyond = _window_depth(flat, outward, blur)
    normals = np.einsum("nda,na->nd", F, outward)
    # If only the density falls, there are points further out, and this is no edge.
    further = points[open_] + ((depths + 0.7 + 2 * blur) * radii)[:, None] * normals
    empty = search.tree.query(further, workers=n_jobs)[0] > 0.55 * radii
    found = (depths < 0.4) & (beyond <= 2 + 0.05 * k * (noise_std > 0)) & empty
    normals = normals[found]
    places = points[open_][found] + (depths * radii)[found][:, None] * normals
    return replace(_smooth_edge(places, normals, radii[found], spacing, dim), surface=surface)


def _turns(outward: FloatArray, dim: int) -> list[FloatArray]:
    """Directions around the given ones."""
    if dim == 2:
        across = outward[:, ::-1] * [-1, 1]
        angles = np.radians([-60, -45, -30, -15, 15, 30, 45, 60])
        return [np.cos(a) * outward + np.sin(a) * across for a in angles]
    rng = np.random.default_rng(0)
    tilted = [outward + 0.6 * rng.normal(size=outward.shape) for _ in range(24)]
    return [direction / _lengths(direction) for direction in tilted]


def _window_depth(flat: FloatArray, outward: FloatArray, blur: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Distance of the edge along a direction, and number of points beyond it.

    Points of a window are evenly spread up to the edge, so the edge is m mean gaps beyond the m-th outermost. With
    blur, m is such that this point is two standard deviations inside; otherwise m = 1.
    """
    heights = np.einsum("nka,na->nk", flat, outward)  # NaN for points not seen, which compare as False
    lateral = np.maximum((flat**2).sum(axis=2) - heights**2, 0.0)
    window = (lateral < _ACROSS**2) & (heights > -_BEHIND)
    count = window.sum(axis=1) + 1  # and the point itself
    own = np.zeros((len(heights), 1))  # the point itself
    falling = -np.sort(np.hstack([own, np.where(window, -heights, _BEHIND)]), axis=1)  # (n, k + 1)
    gap = (np.maximum(falling[:, 0], 0.0) + _BEHIND) / count
    rank = np.clip(np.ceil(2 * blur / gap), 1, np.maximum(count // 2, 1)).astype(np.int64)
    outer = falling[np.arange(len(falling)), rank - 1]
    outer = np.where(rank == 1, np.maximum(outer, 0.0), outer)
    depth = outer + rank * (outer + _BEHIND) / (count + 1 - rank)
    return depth, (heights > (depth + 0.1 + 2 * blur)[:, None]).sum(axis=1)


def _smooth_edge(places: FloatArray, normals: FloatArray, radii: FloatArray, spacing: float, dim: int) -> Edge:
    """Points a given distance apart, each on a quadratic through the points of its face around it."""
    n_axes = places.shape[1]
    if len(places) < 12:
        return Edge.none(dim, n_axes)
    k = min(8, len(places))
    d, near = cKDTree(places).query(places, k)
    same = np.einsum("nkd,nd->nk", normals[near], normals) > _SAME_FACE
    close = d < 0.7 * radii[:, None]
    rows, columns = np.nonzero(d < radii[:, None])
    joined = sparse.coo_array((np.ones(len(rows)), (rows, near[rows, columns])), shape=(len(places),) * 2)
    label = components_of((joined + joined.T).tocsr())
    # Isolated points and small groups are holes in the sampling, not edges.
    kept = ((close & same).sum(axis=1) >= 3) & (np.bincount(label)[label] >= 12)
    places, normals, radii = places[kept], normals[kept], radii[kept]
    if len(places) < 12:
        return Edge.none(dim, n_axes)
    tree = cKDTree(places)
    order, apart = farthest_first(np.hstack([places, spacing * normals]))
    chosen = order[apart > spacing]
    at, N, across = places[chosen], normals[chosen], dim - 1
    d, near = tree.query(at, min(192, len(places)))
    width = 1.6 * radii[chosen][:, None]
    offsets = places[near] - at[:, None]
    heights = np.einsum("ckd,cd->ck", offsets, N)
    weights = np.exp(-((d / width) ** 2)) * (np.einsum("ckd,cd->ck", normals[near], N) > 0.75) + 1e-12 * (d == 0)
    weights *= np.abs(heights) < 0.6 * width  # not across corners
    flat = (offsets - heights[..., None] * N[:, None]) * np.sqrt(weights)[..., None]
    axes = np.linalg.svd(flat, full_matrices=False)[2][:, :across]  # (c, across, D)
    x = np.einsum("ckd,cad->cka", offsets, axes) / width[..., None]
    first, second = np.triu_indices(across)
    terms = np.concatenate([np.ones((*x.shape[:2], 1)), x, x[..., first] * x[..., second]], axis=2)
    matrix = np.einsum("ck,cka,ckb->cab", weights, terms, terms)
    inner = np.arange(1, terms.shape[2])
    matrix[:, inner, inner] += 1e-3 * weights.sum(axis=1)[:, None]
    fit = np.linalg.solve(matrix, np.einsum("ck,cka,ck->ca", weights, terms, heights)[..., None])[..., 0]
    normal = N - np.einsum("ca,cad->cd", fit[:, 1 : 1 + across] / width, axes)
    return Edge(at + fit[:, :1] * N, normal / _lengths(normal), axes, dim)
