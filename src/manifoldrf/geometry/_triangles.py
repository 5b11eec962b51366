"""Arithmetic on triangles: scaled normals, flatness, sides and loops, the nearest point of a surface.

Lengths are taken out of the sums before they are squared, so that results have the same digits in any unit.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from manifoldrf._validation import FloatArray, IntArray

# Twice the area over the squared longest side: 0.87 for equal sides, about 1e-16 for rounding alone.
_FLAT = 1e-12

# Pairs of query and face examined at once; about 60 numbers each, so some 60 MB.
_PAIRS = 2**17


def _power_of_two(size: float) -> float:
    """Power of two just above ``size``: dividing by it changes no digit, and keeps later squares finite."""
    return float(np.ldexp(1.0, np.frexp(size)[1])) if size > 0.0 else 1.0


def scaled_normals(corners: FloatArray) -> tuple[FloatArray, float]:
    """Cross products of two sides in units of ``scale``: (m, 3), twice the area long."""
    first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    scale = _power_of_two(max(float(np.abs(first).max()), float(np.abs(second).max())))
    return np.cross(first / scale, second / scale), scale


def unit_rows(rows: FloatArray) -> FloatArray:
    """Rows divided by their length; zero rows stay zero."""
    # Dividing by the largest entry first keeps the square of a tiny row from vanishing.
    rows = rows / _or_one(np.abs(rows).max(axis=1, keepdims=True))
    return rows / _or_one(row_lengths(rows))[:, None]


def row_lengths(rows: FloatArray) -> FloatArray:
    """Euclidean length of each row."""
    return np.asarray(np.linalg.norm(rows, axis=-1))


def _or_one(values: FloatArray) -> FloatArray:
    """Values with zeros replaced by one: divisors."""
    return np.where(values > 0.0, values, 1.0)


def has_repeats(faces: IntArray) -> NDArray[np.bool_]:
    """Whether a face names a vertex twice: (m,)."""
    first, second, third = faces.T
    return np.asarray((first == second) | (second == third) | (third == first))


def is_flat(corners: FloatArray) -> NDArray[np.bool_]:
    """Whether a face (m, 3, 3) has no area, measured against its longest side: (m,)."""
    sides = corners - np.roll(corners, 1, axis=1)
    sides = sides / _or_one(np.abs(sides).max(axis=(1, 2), keepdims=True))  # each face in its own units
    longest = np.einsum("mcd,mcd->mc", sides, sides).max(axis=1)
    return np.asarray(row_lengths(np.cross(sides[:, 0], sides[:, 1])) <= _FLAT * longest)


def component_labels(pairs: IntArray, n_items: int) -> IntArray:
    """Label each item by its connected group, from zero; pairs (k, 2) join items."""
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n_items, n_items))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Sides:
    """The sides of all proper faces, sorted by edge; corner 3 f + c is place c of face f."""

    low: IntArray  # (s,) corner at the lower vertex of each side
    high: IntArray  # (s,) corner at the higher vertex
    starts: IntArray  # (k,) first side of each edge
    counts: IntArray  # (k,) number of faces at each edge

    @classmethod
    def of(cls, faces: IntArray) -> "Sides":
        # A face with a repeated vertex is a line: its neighbours meet through it as if it were not there.
        vertex = faces[~has_repeats(faces)].ravel()
        corner = np.arange(len(vertex))
        following = corner - corner % 3 + (corner + 1) % 3
        swap = vertex[corner] > vertex[following]
        low, high = np.where(swap, following, corner), np.where(swap, corner, following)
        order = np.lexsort((vertex[high], vertex[low]))
        low, high = low[order], high[order]
        is_new = np.ones(len(low), dtype=bool)
        is_new[1:] = (np.diff(vertex[low]) != 0) | (np.diff(vertex[high]) != 0)
        starts = np.flatnonzero(is_new)
        return cls(low, high, starts, np.diff(np.append(starts, len(low))))

    def count_loops(self) -> int:
        """Count closed chains of edges with one face.

        Corners joined across shared edges form the fans around a vertex. Chains run from fan to fan, not from
        vertex to vertex: else two triangles that touch in a corner would have one loop that crosses itself.
        """
        again = np.setdiff1d(np.arange(len(self.low)), self.starts)  # same edge as the side before
        joined = [np.column_stack([ends[again - 1], ends[again]]) for ends in (self.low, self.high)]
        fan = component_labels(np.concatenate(joined), len(self.low))  # (s,): as many corners as sides
        alone = self.starts[self.counts == 1]
        chain = component_labels(np.column_stack([fan[self.low[alone]], fan[self.high[alone]]]), len(fan))
        return len(np.unique(chain[fan[self.low[alone]]]))


@dataclass(eq=False)
class SurfaceSearch:
    """The nearest places found so far for all queries; lengths are in units that keep squares finite."""

    queries: FloatArray  # (q, 3)
    corners: FloatArray  # (m, 3, 3)
    lowest: FloatArray  # (m, 3) smallest coordinates of each face
    highest: FloatArray  # (m, 3) largest coordinates of each face
    centroids: FloatArray  # (m, 3)
    radii: FloatArray  # (m,) from centroid to farthest corner
    distance: FloatArray  # (q,)
    face: IntArray  # (q,)
    barycentric: FloatArray  # (q, 3)

    @classmethod
    def on(cls, vertices: FloatArray, faces: IntArray, queries: FloatArray) -> "SurfaceSearch":
        """Start with the nearest corner of any face."""
        scale = _power_of_two(max(float(np.abs(vertices).max()), float(np.abs(queries).max())))
        vertices, queries = vertices / scale, queries / scale
        used, first = np.unique(faces, return_index=True)
        distance, nearest = cKDTree(vertices[used]).query(queries)
        face, place = np.divmod(first[nearest], 3)
        corners = vertices[faces]
        centroids = corners.mean(axis=1)
        radii = row_lengths(corners - centroids[:, None]).max(axis=1)
        return cls(
            queries,
            corners,
            corners.min(axis=1),
            corners.max(axis=1),
            centroids,
            radii,
            distance,
            face,
            np.eye(3)[place],
        )

    def try_faces(self, members: IntArray) -> None:
        """Improve all queries by the faces of one radius class."""
        tree, largest = cKDTree(self.centroids[members]), self.radii[members].max()
        waiting, seen, n_nearest = np.arange(len(self.queries)), 0, min(8, len(members))
        while len(waiting):
            unfinished = []
            n_chunks = min(len(waiting), -(-len(waiting) * n_nearest // _PAIRS))
            for rows in np.array_split(waiting, n_chunks):
                gaps, near = tree.query(self.queries[rows], n_nearest)
                gaps, near = gaps.reshape(len(rows), -1), members[near.reshape(len(rows), -1)]  # (r, k)
                self._try_pairs(rows, gaps[:, seen:], near[:, seen:])
                unfinished.append(rows[gaps[:, -1] <= self.distance[rows] + largest])
            waiting = np.concatenate(unfinished) if n_nearest < len(members) else waiting[:0]
            seen, n_nearest = n_nearest, min(4 * n_nearest, len(members))

    def _try_pairs(self, rows: IntArray, gaps: FloatArray, faces: IntArray) -> None:
        """Improve queries (r,) by faces (r, k) with centroids at the distances ``gaps`` (r, k)."""
        row, column = np.nonzero(gaps <= self.distance[rows, None] + self.radii[faces])  # (p,)
        face, query = faces[row, column], rows[row]
        # The box is the tighter bound for a long face, and much cheaper than the triangle.
        outside = np.maximum(self.lowest[face] - self.queries[query], self.queries[query] - self.highest[face])
        within = row_lengths(np.maximum(outside, 0.0)) <= self.distance[query]
        row, face, query = row[within], face[within], query[within]
        if not len(row):
            return
        barycentric, distance = _closest_on_triangles(self.queries[query], self.corners[face])
        order = np.lexsort((distance, row))  # the first pair of each row is its best
        best = order[np.append(True, np.diff(row[order]) != 0)]
        best = best[distance[best] < self.distance[query[best]]]
        self.distance[query[best]] = distance[best]
        self.face[query[best]] = face[best]
        self.barycentric[query[best]] = barycentric[best]


def radius_classes(radii: FloatArray) -> Iterator[IntArray]:
    """Faces grouped by the power of two of their radius, large ones first."""
    exponents = np.frexp(radii)[1]
    for exponent in np.unique(exponents)[::-1]:
        yield np.flatnonzero(exponents == exponent)


def _closest_on_triangles(points: FloatArray, corners: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Barycentric coordinates (p, 3) and distance (p,) of the point of each triangle nearest to its point.

    Tries the foot of the perpendicular and the three sides; each of the four is a point of the triangle, so
    that a thin or flat triangle costs no accuracy.
    """
    best, shortest = _foot_on_plane(points, corners), np.full(len(points), np.inf)
    trials = [best] + [_foot_on_side(points, corners, i, (i + 1) % 3) for i in range(3)]
    for trial in trials:
        distance = row_lengths(points - np.einsum("pc,pcd->pd", trial, corners))
        closer = distance < shortest
        best = np.where(closer[:, None], trial, best)
        shortest = np.where(closer, distance, shortest)
    return best, shortest


def _foot_on_plane(points: FloatArray, corners: FloatArray) -> FloatArray:
    """Barycentric coordinates (p, 3) of the perpendicular's foot, pushed into the triangle if outside."""
    first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    normal, offset = np.cross(first, second), points - corners[:, 0]
    # Through the normal, not the Gram determinant: that one squares the thinness of the triangle.
    size = _or_one(np.einsum("pd,pd->p", normal, normal))
    u = np.einsum("pd,pd->p", np.cross(offset, second), normal) / size
    v = np.einsum("pd,pd->p", np.cross(first, offset), normal) / size
    weights = np.maximum(np.column_stack([1.0 - u - v, u, v]), 0.0)  # (p, 3), sum >= 1
    return np.asarray(weights / weights.sum(axis=1)[:, None])


def _foot_on_side(points: FloatArray, corners: FloatArray, start: int, end: int) -> FloatArray:
    """Barycentric coordinates (p, 3) of the nearest point of one side."""
    side = corners[:, end] - corners[:, start]
    along = np.einsum("pd,pd->p", points - corners[:, start], side)
    part = np.clip(along / _or_one(np.einsum("pd,pd->p", side, side)), 0.0, 1.0)
    weights = np.zeros((len(points), 3))
    weights[:, start], weights[:, end] = 1.0 - part, part
    return weights
