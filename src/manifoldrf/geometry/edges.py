"""Edges of clouds: the share of each node's Gaussian that lies inside the space.

A cloud has no list of its boundary. Close to an edge the centroid of a neighbourhood is off its node, which shows
that there is an edge and roughly where; the outermost nodes show exactly where it is. *Edge places* are points of
the edge, with the outward normal. The distance of a node to the plane through the places around it gives its share.
"""

import math
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.stats import norm

from manifoldrf._compiling import compiled
from manifoldrf._runtime import map_threads
from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.geometry.csr import times
from manifoldrf.geometry.sampling import Sampling, ball_volume

_FEW_AXES = 16  # up to this many axes, local covariances are computed for all nodes at once
_MATRICES_AT_ONCE = 8192  # decomposed by one task
_MOST_NEIGHBORS = 128  # used for the tangent frame of one node if there are many axes
_NODES_AT_ONCE = 1024  # measured by one task
# Offsets below this many widths (in two dimensions) are sampling noise, not a boundary.
_NOISE_GATE = 0.25
_GRID = np.linspace(0.0, 8.0, 4001)
_OFFSET = np.exp(-(_GRID**2) / 2) / np.sqrt(2 * np.pi) / norm.cdf(_GRID)  # falls from .798 to 0
# Lengths are in widths sqrt(s2). An offset of .4 means an edge at .66: five standard deviations of the
# noise of random nodes.
_CLEAR_OFFSET = 0.4
# Half-width and depth of the window at whose end the edge is. A half-width of .8 sees too few nodes (rectangle
# .033, .019 at 1.2); from 1.6 to 2, bent sheets gain and discs lose.
_ACROSS, _BEHIND = 1.6, 2.0
_REACH = math.exp(-4.5)  # smallest affinity of nodes that count: three widths
_FARTHEST_PLACE = 1.5  # if nodes go on beyond, there is no edge
_FEWEST_IN_WINDOW = 6
# Turns of the normal: the first leads from the diagonal of a corner to a face (.4 stops on some diagonals), the
# last is below the noise of a normal.
_FIRST_TURN, _LAST_TURN = 0.8, 0.1
_SAME_FACE, _OTHER_FACE = 0.85, 0.5  # cosines between normals
# Share of the places around a place that are of its face: below .2 on the diagonal of a corner, mostly above .44.
# With .6, the ends of a strip three widths wide are lost (.11, .026 with .5).
_COHERENT = 0.5
_SMOOTHINGS = 4  # of the normals; with 2, the rectangle is .021 instead of .013 off
# If the centroid says that so much less of a Gaussian is inside, an edge was missed: ends of narrow strips, whose
# nodes would get twice their weight.
_MISSED = 0.15
_MOST_FACES = 3
_BEYOND = 0.3  # a node so far outside shows that the edge ends before it
# Squared offsets from the tangent plane over squared offsets: with more, a step is wide against a bend or reaches
# another sheet. Edges of rolls and s-curves have up to .04, limbs of scans .06 to .1 (with .1, fertility goes from
# .111 to .133).
_FLAT = 0.05
# A plane through the places around a node cuts a curved edge off, and planes tangent at the places miss it by as
# much on the other side. This share of the first makes up for the edge that curves away within a step (disc .015,
# .034 with planes through the places only).
_CHORD = 0.625
# Random nodes end one mean gap before the edge, farthest points of a larger cloud on it. The rows of a grid may end
# on the edge or half a spacing before: the outermost nodes say nothing there.
_BLURRED_RANK = 4  # of the outermost node that counts at a blurred edge: single nodes may be outliers
_FEWEST_NODES = 700  # with fewer nodes, single nodes decide where an edge is
_EVENNESS_RANDOM, _EVENNESS_EVEN, _EVENNESS_GRID = 0.9, 1.6, 1.5


class BoundaryModel:
    """Share of each node's Gaussian inside the space.

    In the tangent plane the centroid of a neighbourhood of width w lies off the node by w pdf(b/w) / cdf(b/w)
    if a flat boundary is at distance b; inverting this gives b, and the share of the (narrower) step
    Gaussian is cdf(b / s). Where the space is flat enough to see single edges, b is measured to the outermost nodes
    instead, and the shares of the faces of a corner are combined.

    Parameters
    ----------
    points : array of shape (N, d)
    wide : CSR array of shape (N, N)
        Gaussian affinities at twice the bandwidth of the step, for less noisy centroids.
    s2 : float
        Bandwidth of one step.
    dim : int
        Dimension of the tangent frames, which are local principal components of density-corrected neighbourhoods.
    evenness : float
        That of the :class:`~manifoldrf.geometry.sampling.Sampling` of the nodes.
    blur : float
        Standard deviation of noise that moved the points along the space, in widths sqrt(s2).
    n_jobs : int
        Threads.
    """

    def __init__(
        self,
        points: FloatArray,
        wide: Any,
        s2: float,
        dim: int,
        *,
        evenness: float = _EVENNESS_RANDOM,
        blur: float = 0.0,
        n_jobs: int = 1,
    ) -> None:
        # In widths, the standard deviation of exp(-r^2 / (2 s2)); second moments lose digits far from the origin.
        centred = points - points.mean(axis=0)
        # Squares must not overflow for steps that reach no neighbour.
        self.points = centred / max(np.sqrt(s2), 1e-100 * float(np.abs(centred).max()))
        self.wide, self.evenness, self.blur, self.n_jobs = wide, evenness, blur, n_jobs
        evenly = 1.0 / times(wide, np.ones(len(points)), n_jobs)
        find_frames = _frames_by_moments if points.shape[1] <= _FEW_AXES else _frames_by_offsets
        self.frames = find_frames(self.points, wide, evenly, dim, n_jobs)  # (N, d, dim), orthonormal

    def rough_share(self, weights: FloatArray) -> FloatArray:
        """Share of each step Gaussian inside the space by the offset of the centroid, shape (N,), in [1/2, 1]."""
        return self._half_space(weights)[0]

    def inside_share(self, weights: FloatArray) -> FloatArray:
        """The same in (0, 1], measured to the outermost nodes where possible."""
        shares, tangential, lengths = self._half_space(weights)
        nodes, places, outward = self._edge_places(tangential, lengths)
        if len(nodes):
            measured, faces = shares.copy(), (self._positions(nodes), places, outward)
            self._run(len(shares), lambda span: measure_shares(self._graph, self._space, faces, span, measured))
            shares = np.where(shares < measured - _MISSED, shares, measured)
        return shares

    def _half_space(self, weights: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Shares, tangential offsets of the centroids, and the lengths of these."""
        offsets = _means(self.wide, weights, self.points, self.n_jobs) - self.points  # (N, d)
        tangential = np.einsum("ndk,nd->nk", self.frames, offsets)
        lengths = np.linalg.norm(tangential, axis=1)
        gate = _NOISE_GATE * np.sqrt(self.frames.shape[2] / 2)  # noise grows with the number of axes
        half_space = np.interp(lengths, _OFFSET[::-1], _GRID[::-1])  # distance to a flat boundary
        distance = np.where(lengths < gate, np.inf, half_space)
        return np.asarray(norm.cdf(distance * np.sqrt(2))), tangential, lengths  # a step is 1 / sqrt(2) wide

    def edge_places(self) -> tuple[FloatArray, FloatArray]:
        """Points of the edges, in widths from the mean of the nodes, and outward normals there, shapes (e, d)."""
        weights = 1.0 / times(self.wide, np.ones(len(self.points)), self.n_jobs)
        return self._edge_places(*self._half_space(weights)[1:])[1:]

    def _edge_places(self, tangential: FloatArray, lengths: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Nodes in front of an edge, the points of the edge beyond them, and its outward normals."""
        nodes = np.flatnonzero(lengths > _CLEAR_OFFSET)
        if self.evenness >= _EVENNESS_GRID or len(self.points) < _FEWEST_NODES or not len(nodes):
            return nodes[:0], self.points[:0], self.points[:0]
        outward = -np.einsum("ndk,nk->nd", self.frames[nodes], tangential[nodes] / lengths[nodes, None])  # (n, d)
        outward, _ = self._places(nodes, outward, turn=True)
        outward, agreement = self._smooth(nodes, outward)
        kept = agreement >= _COHERENT
        nodes, outward = nodes[kept], outward[kept]
        for _ in range(_SMOOTHINGS - 1):
            outward = self._smooth(nodes, outward)[0]
        outward, depths = self._places(nodes, outward, turn=False)
        found = np.isfinite(depths)
        nodes, outward, depths = nodes[found], outward[found], depths[found]
        return nodes, self.points[nodes] + depths[:, None] * outward, outward

    def _places(self, nodes: IntArray, outward: FloatArray, *, turn: bool) -> tuple[FloatArray, FloatArray]:
        """Normals of the edge, turned if asked, and its distances from nodes; zero and infinite without an edge."""
        found, depths = outward.copy(), np.zeros(len(nodes))
        gaps = float(np.clip((_EVENNESS_EVEN - self.evenness) / (_EVENNESS_EVEN - _EVENNESS_RANDOM), 0.0, 1.0))
        faces = nodes, found, depths
        settings = gaps, self.blur, turn
        self._run(len(nodes), lambda span: seek_faces(self._graph, self._space, faces, settings, span))
        found[np.isinf(depths)] = 0.0
        return found, depths

    def _smooth(self, nodes: IntArray, outward: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Mean of the normals around each place that are of the same face, and their share."""
        smooth, agreement = np.zeros_like(outward), np.zeros(len(nodes))
        faces = self._positions(nodes), nodes, outward
        self._run(len(nodes), lambda span: smooth_normals(self._graph, faces, span, smooth, agreement))
        return smooth, agreement

    @property
    def _graph(self) -> tuple[Any, Any, Any]:
        return self.wide.indptr, self.wide.indices, self.wide.data

    @property
    def _space(self) -> tuple[FloatArray, FloatArray]:
        return self.points, self.frames

    def _positions(self, nodes: IntArray) -> IntArray:
        """Position of each node among some nodes, -1 for the others."""
        which = np.full(len(self.points), -1)
        which[nodes] = np.arange(len(nodes))
        return which

    def _run(self, n: int, task: Any) -> None:
        """Call a compiled function on spans of n rows."""
        if n:
            map_threads(task, list(pairwise([*range(0, n, _NODES_AT_ONCE), n])), self.n_jobs)


def edge_uncertainty(sampling: Sampling, spacing: float, width: float) -> float:
    """How far off an edge may be: a mean gap between nodes along a window's axis, or half the spacing of a grid."""
    if sampling.evenness >= _EVENNESS_GRID or sampling.n < _FEWEST_NODES:
        return 0.5 * spacing
    across = sampling.dim - 1
    return float(spacing * (spacing / (_ACROSS * width)) ** across / ball_volume(across))


def _means(gaussian: Any, weights: FloatArray, table: FloatArray, n_jobs: int) -> FloatArray:
    """Means of a table (N, c) over the neighbourhoods of all nodes, by affinity times weight."""
    sums = times(gaussian, np.column_stack([weights, weights[:, None] * table]), n_jobs)
    return np.asarray(sums[:, 1:] / sums[:, :1])


def _frames_by_moments(points: FloatArray, wide: Any, weights: FloatArray, dim: int, n_jobs: int) -> FloatArray:
    """Leading eigenvectors of all local covariances at once: O(N d^2) memory, for few axes."""
    n, d = points.shape
    first, second = np.triu_indices(d)
    moments = _means(wide, weights, np.hstack([points, points[:, first] * points[:, second]]), n_jobs)
    means = moments[:, :d]
    covariance = np.zeros((n, d, d))
    covariance[:, first, second] = moments[:, d:] - means[:, first] * means[:, second]
    covariance[:, second, first] = covariance[:, first, second]
    blocks = np.array_split(covariance, max(1, n // _MATRICES_AT_ONCE))
    vectors = map_threads(lambda block: np.linalg.eigh(block)[1][:, :, -dim:], blocks, n_jobs)
    return np.ascontiguousarray(np.concatenate(vectors))  # (N, d, dim)


def _frames_by_offsets(points: FloatArray, wide: Any, weights: FloatArray, dim: int, n_jobs: int) -> FloatArray:
    """The same frames for many axes: one node at a time, from its strongest neighbours."""
    frames = np.zeros((*points.shape, dim))

    def fill(nodes: Any) -> None:
        for node in nodes:
            entries = slice(wide.indptr[node], wide.indptr[node + 1])
            columns = wide.indices[entries]
            shares = wide.data[entries] * weights[columns]
            strongest = np.argsort(-shares, kind="stable")[:_MOST_NEIGHBORS]
            shares, around = shares[strongest], points[columns[strongest]]
            offsets = (around - shares @ around / shares.sum()) * np.sqrt(shares / shares.sum())[:, None]  # (k, d)
            axes = np.linalg.svd(offsets, full_matrices=False)[2][:dim]
            frames[node, :, : len(axes)] = axes.T  # a node with few neighbours has few axes

    map_threads(fill, np.array_split(np.arange(len(points)), max(1, len(points) // _MATRICES_AT_ONCE)), n_jobs)
    return frames


@compiled()
def dot(first, second):  # type: ignore[no-untyped-def]
    """Inner product of short vectors, without temporary arrays."""
    total = 0.0
    for a in range(len(first)):
        total += first[a] * second[a]
    return total


@compiled()
def window_depth(around, normal, gaps, blur):  # type: ignore[no-untyped-def]
    """Distance to the edge along a normal: the outermost node of a window, and so many mean gaps beyond it."""
    heights, count = np.zeros(len(around)), 0
    for p in range(len(around)):
        height, square = 0.0, 0.0
        for k in range(len(normal)):  # this loop takes most of the time
            height += around[p, k] * normal[k]
            square += around[p, k] * around[p, k]
        if height > -_BEHIND and square - height * height < _ACROSS**2:
            heights[count] = height
            count += 1
    if count < _FEWEST_IN_WINDOW:
        return np.inf
    heights = heights[:count]
    top, bottom = heights.max(), heights.min()
    gap = (top - bottom) / (count - 1)
    depth = top + gaps * gap
    if blur > 0:
        rank = min(_BLURRED_RANK, count - 1)
        outer = np.partition(heights, count - rank)[count - rank]
        for _ in range(3):  # the mean gap depends on where the edge is
            if gap <= 0:  # the heights are closer together than the blur lets them be
                return np.inf
            depth = outer - blur * blurred_excess((rank - 0.5) * gap / blur)
            gap = (depth - bottom) / count
    return depth if depth < _FARTHEST_PLACE else np.inf


@compiled()
def blurred_excess(y):  # type: ignore[no-untyped-def]
    """The z beyond which y nodes are expected if nodes of density one up to 0 are moved by normal noise.

    Solves pdf(z) - z (1 - cdf(z)) = y, a convex and falling function above -z, by Newton's method.
    """
    z = -y
    for _ in range(12):
        tail = 0.5 * math.erfc(z / math.sqrt(2.0))
        z += (math.exp(-z * z / 2) / math.sqrt(2 * math.pi) - z * tail - y) / tail
    return z


@compiled()
def turned(around, normal, gaps, blur):  # type: ignore[no-untyped-def]
    """The direction near a normal in which the edge is closest: the normal of a face, also at a corner."""
    best, turn = window_depth(around, normal, gaps, blur), _FIRST_TURN
    while turn > _LAST_TURN:
        moved = False
        for k in range(2 * len(normal)):
            other = normal.copy()
            other[k // 2] += turn if k % 2 else -turn
            other /= np.sqrt(dot(other, other))
            depth = window_depth(around, other, gaps, blur)
            if depth < best:
                best, normal, moved = depth, other, True
        if not moved:
            turn /= 2
    return normal


@compiled()
def tangent_offsets(points, frame, i, j, out):  # type: ignore[no-untyped-def]
    """Write the offset of node j from node i along its frame; returns the squared lengths before and after."""
    square = 0.0
    out[:] = 0.0
    for a in range(points.shape[1]):
        offset = points[j, a] - points[i, a]
        square += offset * offset
        for k in range(len(out)):
            out[k] += offset * frame[a, k]
    return square, dot(out, out)


@compiled()
def flat_neighborhood(graph, space, i):  # type: ignore[no-untyped-def]
    """Tangential offsets of the nodes around a node; none if they are not close to a plane."""
    indptr, indices, values = graph
    points, frames = space
    around, n = np.zeros((indptr[i + 1] - indptr[i], frames.shape[2])), 0
    squares, squares_along = 0.0, 0.0
    for p in range(indptr[i], indptr[i + 1]):
        if values[p] >= _REACH:
            square, along = tangent_offsets(points, frames[i], i, indices[p], around[n])
            squares, squares_along, n = squares + square, squares_along + along, n + 1
    return around[: n if squares - squares_along <= _FLAT * squares else 0]


@compiled()
def seek_faces(graph, space, faces, settings, span):  # type: ignore[no-untyped-def]
    """Distance from nodes to the edge along normals, infinite if there is none; the normals are turned if asked.

    ``faces`` are nodes, normals and distances, ``settings`` the gaps beyond the last node, the blur, and whether
    to turn.
    """
    nodes, outward, depths = faces
    gaps, blur, turn = settings
    for q in range(span[0], span[1]):
        frame = space[1][nodes[q]]
        around = flat_neighborhood(graph, space, nodes[q])
        normal = np.zeros(frame.shape[1])
        for k in range(len(normal)):
            normal[k] = dot(outward[q], frame[:, k])
        normal /= max(np.sqrt(dot(normal, normal)), 1e-300)
        if turn and len(normal) > 1:
            normal = turned(around, normal, gaps, blur)
        depths[q] = window_depth(around, normal, gaps, blur)
        outward[q] = 0.0
        for k in range(len(normal)):
            outward[q] += frame[:, k] * normal[k]


@compiled()
def smooth_normals(graph, faces, span, smooth, agreement):  # type: ignore[no-untyped-def]
    """Mean normal of the places around each place that are of the same face, and their share of all."""
    indptr, indices, values = graph
    which, nodes, outward = faces
    for q in range(span[0], span[1]):
        same, total = 0.0, 0.0
        for p in range(indptr[nodes[q]], indptr[nodes[q] + 1]):
            other = which[indices[p]]
            if other < 0 or values[p] < _REACH:
                continue
            cosine = dot(outward[q], outward[other])
            if cosine > -_OTHER_FACE:  # the other side of a thin strip says nothing about this one
                total += values[p]
            if cosine > _SAME_FACE:
                same += values[p]
                for a in range(outward.shape[1]):
                    smooth[q, a] += values[p] * outward[other, a]
        agreement[q] = same / total
        smooth[q] /= max(np.sqrt(dot(smooth[q], smooth[q])), 1e-300)


@compiled()
def places_around(graph, space, which, i):  # type: ignore[no-untyped-def]
    """Positions of the edge places around a node, along its tangent plane, and their strengths."""
    indptr, indices, values = graph
    near, n = np.zeros(indptr[i + 1] - indptr[i], np.int64), 0
    strength, along = np.zeros(len(near)), np.zeros(space[1].shape[2])
    for p in range(indptr[i], indptr[i + 1]):
        if which[indices[p]] >= 0 and values[p] >= _REACH:
            square, square_along = tangent_offsets(space[0], space[1][i], i, indices[p], along)
            if square - square_along <= _FLAT * square:
                near[n], strength[n], n = which[indices[p]], np.sqrt(values[p]), n + 1
    return near[:n], strength[:n]


@compiled()
def face_of(spot, near, strength, places, outward):  # type: ignore[no-untyped-def]
    """The face of the strongest place: its mean place, normal, and distance from a spot; uses its places up."""
    normal, place, tangents, total = np.zeros(len(spot)), np.zeros(len(spot)), 0.0, 0.0
    lead = outward[near[np.argmax(strength)]]
    for p in range(len(near)):
        q = near[p]
        cosine = dot(outward[q], lead)
        if cosine > _SAME_FACE:
            total += strength[p]
            for a in range(len(spot)):
                normal[a] += strength[p] * outward[q, a]
                place[a] += strength[p] * places[q, a]
                tangents += strength[p] * (places[q, a] - spot[a]) * outward[q, a]
        if cosine > _OTHER_FACE:
            strength[p] = 0.0
    normal /= np.sqrt(dot(normal, normal))
    place /= total
    chord = dot(place - spot, normal)
    return place, normal, _CHORD * chord + (1 - _CHORD) * tangents / total


@compiled()
def measure_shares(graph, space, faces, span, shares):  # type: ignore[no-untyped-def]
    """Shares of the step Gaussians of nodes that have edge places around them, by the distances of their faces."""
    points = space[0]
    which, places, outward = faces
    for i in range(span[0], span[1]):
        near, strength = places_around(graph, space, which, i)
        if len(near) == 0:
            continue
        first_place, first_normal, first = face_of(points[i], near, strength, places, outward)
        share = 1.0 - 0.5 * math.erfc(max(first, 0.0))  # the step is 1 / sqrt(2) wide
        seen = first > -_BEYOND
        for _ in range(1, _MOST_FACES):
            if strength.max() == 0:
                break
            place, _normal, distance = face_of(points[i], near, strength, places, outward)
            if dot(place - first_place, first_normal) > 0:  # an inward corner cuts off what is outside of both
                share, seen = 1.0 - 0.25 * math.erfc(first) * math.erfc(distance), True
            else:
                share *= 1.0 - 0.5 * math.erfc(max(distance, 0.0))
        if seen:
            shares[i] = share
