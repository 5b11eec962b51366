"""The surface through a cloud: quadratic patches, and the map that moves points onto them."""

from dataclasses import dataclass
from functools import cached_property, partial
from itertools import combinations_with_replacement, pairwise
from typing import NamedTuple

import numpy as np

from manifoldrf._codec import stored
from manifoldrf._native import loops
from manifoldrf._random import generator
from manifoldrf._runtime import quick_map
from manifoldrf._validation import NONNEGATIVE, FloatArray, IntArray, check_real, reject
from manifoldrf.geometry.csr import check_arrays, check_shape
from manifoldrf.geometry.neighbors import NeighborSearch

PER_COEFFICIENT = 3.0  # effective neighbours for each coefficient of a patch
MOST_NEIGHBORS = 400  # that a patch is fitted to
RANGE = 0.01  # weights below are not used
ROBUST = 9.0  # squared distances to the patch over their median beyond which neighbours lose weight
BLENDED = 8  # patches around a query whose results are averaged
_LARGEST_COORDINATE = 3.0  # in bandwidths: beyond it a patch is no longer bent
_QUERIES_AT_ONCE = 2048  # moved by one task


def n_terms(dim: int) -> int:
    """Number of coefficients of a quadratic."""
    return (dim + 1) * (dim + 2) // 2


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
    means : array of shape (M, r)
    frames : array of shape (M, r, dim)
        Tangents of the patches, orthonormal.
    bends : array of shape (M, p, r)
        Normal part of the patches: coefficients of 1, the tangential coordinates and their products.
    widths : array of shape (M,)
        Unit of the tangential coordinates.
    noise_std : float
        Standard deviation of the points around the surface, per coordinate.
    """

    centres: NeighborSearch
    origin: FloatArray
    axes: FloatArray
    means: FloatArray
    frames: FloatArray
    bends: FloatArray
    widths: FloatArray
    noise_std: float = 0.0

    def _check_loaded(self) -> None:
        if self.frames.ndim != 3 or not self.frames.size:
            reject("frames", "an array of shape (patches, axes, dimensions)", f"shape {self.frames.shape}")
        m, r, dim = self.frames.shape
        check_arrays(self, origin=(len(self.axes),), axes=(len(self.axes), r), means=(m, r), frames=(m, r, dim))
        check_arrays(self, bends=(m, n_terms(dim), r), widths=(m,))
        check_shape("centres", self.centres.points, (m, r))
        check_real(self.noise_std, "noise_std", NONNEGATIVE)
        if not (self.widths > 0).all():
            reject("widths", "positive", float(self.widths.min()))

    @property
    def dim(self) -> int:
        """Dimension of the surface."""
        return int(self.frames.shape[2])

    @cached_property
    def bendings(self) -> FloatArray:
        """Length of the second fundamental form of each patch, shape (M,)."""
        quadratic = self.bends[:, 1 + self.dim :] / self.widths[:, None, None] ** 2
        first, second = np.triu_indices(self.dim)
        return np.asarray(np.sqrt(((quadratic**2).sum(axis=2) * np.where(first == second, 4, 2)).sum(axis=1)))

    def _nearest(self, places: FloatArray) -> tuple[FloatArray, IntArray]:
        """Places along the axes, and the patches nearest to them."""
        inside = (places - self.origin) @ self.axes
        return inside, self.centres.knn(inside, 1)[1][:, 0]

    def radii(self, places: FloatArray) -> FloatArray:
        """Radii of curvature of the nearest patches."""
        return np.asarray(1 / np.maximum(self.bendings[self._nearest(places)[1]], 1e-300))

    def tangents(self, places: FloatArray) -> FloatArray:
        """Orthonormal tangents (q, D, dim) of the nearest patches at some places."""
        inside, near = self._nearest(places)
        patches = Patches(*(part[near] for part in (self.means, self.frames, self.bends, self.widths)))
        return np.asarray(np.einsum("da,nak->ndk", self.axes, patch_tangents(patches, inside)))

    def project(self, queries: FloatArray, n_jobs: int = 1) -> FloatArray:
        """Points of the surface near the queries, shape (q, D); continuous in the queries."""
        patches = self.means, self.frames, self.bends, self.widths
        inside = along(self.axes, queries - self.origin)
        found = np.zeros(queries.shape)
        spans = list(pairwise([*range(0, len(queries), _QUERIES_AT_ONCE), len(queries)]))
        distances, near = self.centres.knn(inside, min(BLENDED, len(self.means)), n_jobs)
        # The tree returns an index beyond the last where squared distances overflow.
        near = np.minimum(np.ascontiguousarray(near, dtype=np.int64), len(self.means) - 1)
        given = inside, near, np.ascontiguousarray(distances), *patches, _LARGEST_COORDINATE, self.origin, self.axes
        quick_map(lambda span: loops.blend_patches(*given, found, *span), spans, n_jobs)
        return found


def along(axes: FloatArray, offsets: FloatArray) -> FloatArray:
    """Coordinates of offsets (q, D) along axes (D, r); products by BLAS would depend on the number of offsets."""
    found = np.zeros((len(offsets), axes.shape[1]))
    for axis, offset in zip(axes, offsets.T, strict=True):
        found += offset[:, None] * axis
    return found


class Patches(NamedTuple):
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
    """Patches at some centres, through their nearest neighbours of some ranks: from 1 without the centre itself."""
    distances, near = search.knn(at, ranks.stop, 1)  # blocks are in threads already
    squares, around = distances[:, ranks.start :] ** 2, points[near[:, ranks.start :]]  # (B, k), (B, k, r)
    # Where points are sparse the bandwidth reaches the neighbours that a quadratic needs.
    needed = min(int(PER_COEFFICIENT * n_terms(dim)), len(ranks) - 1)
    width2 = np.maximum(h2, squares[:, needed] / 2)[:, None]
    weights = np.exp(-(squares - squares[:, :1]) / width2)
    weights = np.maximum(weights - weights[:, -1:], 1e-12)  # the last neighbour may change without a jump
    unit = np.sqrt(width2 / 2)[:, :, None]
    turned = np.ascontiguousarray(around.transpose(0, 2, 1))  # (B, r, k): sums over few coordinates are slow
    far = np.zeros_like(weights)
    bent = np.arange(1 + dim, n_terms(dim))
    ridge = np.full(n_terms(dim), 1e-10)
    ridge[bent] += 1e-3  # against wild extrapolation where neighbours lie on a line
    for _ in range(3):  # then without neighbours that are far off, as those on another layer
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
        if (rest.max(axis=1) < 0.003 * width2[:, 0]).all():  # none is
            break
        # Among neighbours on one plane the median is zero; the cap keeps squares finite.
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


def patch_tangents(patches: Patches, points: FloatArray) -> FloatArray:
    """Orthonormal tangents (n, r, dim) of the patch of each point, near the point."""
    dim, width = patches.frames.shape[2], patches.widths[:, None]
    along = np.einsum("nd,nda->na", points - patches.means, patches.frames) / width
    along = np.clip(along, -_LARGEST_COORDINATE, _LARGEST_COORDINATE)
    slopes = patches.bends[:, 1 : 1 + dim].transpose(0, 2, 1).copy()
    for m, (a, b) in enumerate(zip(*np.triu_indices(dim), strict=True)):
        slopes[:, :, a] += patches.bends[:, 1 + dim + m] * along[:, b : b + 1]
        slopes[:, :, b] += patches.bends[:, 1 + dim + m] * along[:, a : a + 1]  # twice for a = b
    q, r = np.linalg.qr(patches.frames + slopes / width[..., None])
    return np.asarray(q * np.sign(np.einsum("naa->na", r))[:, None])  # the signs of the frames


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
