"""Clouds along curves: the points in order, and nodes by arc length.

On a curve everything follows from arc length: even nodes, their volumes, and distances along the curve.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph
from scipy.spatial import cKDTree

from manifoldrf._codec import stored
from manifoldrf._validation import FloatArray, IntArray, reject
from manifoldrf.geometry.cleaning import CleanCloud
from manifoldrf.geometry.csr import check_amounts, check_arrays, check_positions, components_of
from manifoldrf.geometry.neighbors import along
from manifoldrf.geometry.patches import LocalSurface
from manifoldrf.geometry.spaces import AbstractNodes, AbstractSpace, Steps


@stored
@dataclass(frozen=True, eq=False)
class Curve:
    """Traced curves.

    Attributes
    ----------
    places : array of shape (k, D)
        Points in order, one curve after the other.
    arcs : array of shape (k,)
        Arc length from the start of the curve.
    pieces : int array of shape (k,)
        Index of the curve of each point.
    lengths : array of shape (c,)
    closed : bool array of shape (c,)
    """

    places: FloatArray
    arcs: FloatArray
    pieces: IntArray
    lengths: FloatArray
    closed: FloatArray

    def _check_loaded(self) -> None:
        k, c = len(self.places), len(self.lengths)
        check_arrays(self, places=(k, self.places.shape[-1]), arcs=(k,), pieces=(k,), lengths=(c,), closed=(c,))
        check_positions("pieces", self.pieces, c)
        if not k:
            reject("places", "at least one", k)

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self.places)

    def locate(self, z: FloatArray, n_jobs: int = 1) -> tuple[FloatArray, IntArray]:
        """Arc lengths and curves of the nearest points of the curves."""
        j = self._tree.query(z, workers=n_jobs)[1]
        piece, k = self.pieces[j], len(self.places)
        before, after = np.maximum(j - 1, 0), np.minimum(j + 1, k - 1)
        before = np.where(self.pieces[before] == piece, before, j)
        after = np.where(self.pieces[after] == piece, after, j)
        tangent = self.places[after] - self.places[before]
        length = np.maximum(np.linalg.norm(tangent, axis=1), 1e-300)
        arc = self.arcs[j] + np.einsum("qd,qd->q", z - self.places[j], tangent) / length
        whole = self.lengths[piece]
        return np.where(self.closed[piece] > 0, np.mod(arc, whole), np.clip(arc, 0.0, whole)), piece

    def at(self, arcs: FloatArray, pieces: IntArray) -> FloatArray:
        """Points at arc lengths."""
        found = np.zeros((len(arcs), self.places.shape[1]))
        for piece in range(len(self.lengths)):
            own, here = self.pieces == piece, pieces == piece
            for c in range(found.shape[1]):
                found[here, c] = np.interp(arcs[here], self.arcs[own], self.places[own, c])
        return found


def trace_curves(cloud: CleanCloud, n_jobs: int) -> Curve | None:
    """The curves through a cloud of dimension 1, in order; None if they branch or cross.

    The minimum spanning tree of the points is a path; for a closed curve its two ends are joined.
    """
    surface = cloud.surface

    def project(z: FloatArray) -> FloatArray:
        return z if surface is None else surface.project(z, n_jobs)

    ends = project(cloud.points)
    tree = _paths(ends, surface, n_jobs)
    label = components_of(tree)
    parts, close = [], []
    for piece in range(label.max() + 1):
        own = np.flatnonzero(label == piece)
        if len(own) < 4:
            continue
        graph = tree[own][:, own]
        first = int(np.argmax(csgraph.dijkstra(graph, indices=0)))
        distance, before = csgraph.dijkstra(graph, indices=first, return_predecessors=True)
        path = [int(np.argmax(distance))]
        while path[-1] != first:
            path.append(int(before[path[-1]]))
        off_path = np.setdiff1d(np.arange(len(own)), path)
        x = ends[own[path]]
        gaps = np.linalg.norm(np.diff(x, axis=0), axis=1)
        if len(off_path) > 0.05 * len(own):
            away = cKDTree(x).query(ends[own[off_path]])[0]
            if (away > 3 * gaps.max()).any():
                return None  # a branch
        parts.append(_resampled(x, gaps, project))
        close.append(3 * gaps.mean())
    if not parts or _meet([places for _, places, _ in parts], close):
        return None
    arcs, places, closed = zip(*parts, strict=True)
    pieces = np.repeat(np.arange(len(parts)), [len(part) for part in arcs])
    lengths = np.array([arc[-1] for arc in arcs])
    return Curve(np.vstack(places), np.concatenate(arcs), pieces, lengths, np.array(closed, dtype=float))


def _paths(ends: FloatArray, surface: LocalSurface | None, n_jobs: int) -> Any:
    """The minimum spanning tree of points as a symmetric CSR array, cut between curves."""
    n = len(ends)
    d, near = cKDTree(ends).query(ends, min(24, n), workers=n_jobs)
    # scipy 1.15 fails to find the spanning tree of a matrix with wider indices.
    rows, columns = np.repeat(np.arange(n, dtype=np.int32), d.shape[1] - 1), near[:, 1:].ravel().astype(np.int32)
    links = sparse.coo_array((d[:, 1:].ravel() + 1e-300, (rows, columns)), shape=(n, n)).tocsr()
    tree = csgraph.minimum_spanning_tree(links.maximum(links.T.tocsr())).tocoo()
    if surface is not None:  # on a line, every edge leads ahead
        # An edge much longer than those to a few neighbours that leaves a curve sideways leads to another one.
        few = d[:, min(3, d.shape[1] - 1)]
        near_ends = np.sort([few[tree.row], few[tree.col]], axis=0)
        tangents = surface.tangents(ends)[:, :, 0]
        steps = (ends[tree.col] - ends[tree.row]) / np.maximum(tree.data, 1e-300)[:, None]
        ahead = [np.abs(np.einsum("ed,ed->e", steps, tangents[side])) for side in (tree.row, tree.col)]
        kept = (tree.data <= np.maximum(2 * near_ends[0], near_ends[1])) | (np.minimum(*ahead) > 0.7)
        tree = sparse.coo_array((tree.data[kept], (tree.row[kept], tree.col[kept])), shape=(n, n))
    return (tree + tree.T).tocsr()


def _meet(curves: list[FloatArray], close: list[float]) -> bool:
    """Whether curves come closer to each other than some gaps between their points: they cross or branch."""
    trees = [cKDTree(places) for places in curves]
    return any(
        np.isfinite(other.query(places, distance_upper_bound=near)[0]).any()
        for k, (places, near) in enumerate(zip(curves, close, strict=True))
        for other in [*trees[:k], *trees[k + 1 :]]
    )


def _resampled(x: FloatArray, gaps: FloatArray, project: Any) -> tuple[FloatArray, FloatArray, bool]:
    """Arc lengths and points of a curve through ordered points, and whether it is closed."""
    gap = float(np.linalg.norm(x[0] - x[-1]))
    ahead = (x[0] - x[min(2, len(x) - 1)]), (x[-1] - x[max(-3, -len(x))])
    link = (x[-1] - x[0]) / max(gap, 1e-300)
    facing = [
        float(v @ w) / max(float(np.linalg.norm(v)), 1e-300) for v, w in zip(ahead, (link, -link), strict=True)
    ]
    closed = len(x) > 4 and (gap < 1.5 * gaps.max() or (gap < 3 * gaps.max() and min(facing) > 0.7))
    if closed:
        x = np.vstack([x, x[:1]])
    else:  # open curves extend beyond the outermost points
        outer = [v / max(float(np.linalg.norm(v)), 1e-300) for v in ahead]
        first, last = gaps[: max(1, len(gaps) // 20)].mean(), gaps[-max(1, len(gaps) // 20) :].mean()
        x = np.vstack([x[0] + 0.5 * first * outer[0], x, x[-1] + 0.5 * last * outer[1]])
    count = int(np.clip(4 * len(x), 400, 8000))
    for _ in range(3):  # even points along the line, projected onto the surface
        arc = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(x, axis=0), axis=1))])
        even = np.linspace(0.0, arc[-1], count + 1)
        y = np.column_stack([np.interp(even, arc, column) for column in x.T])
        x = project(y)
        x[[0, -1]] = x[[0, 0]] if closed else y[[0, -1]]
    arc = np.concatenate([[0.0], np.cumsum(np.linalg.norm(np.diff(x, axis=0), axis=1))])
    return arc, x, closed


def line_steps(
    arcs: FloatArray, pieces: IntArray, node_arcs: FloatArray, node_pieces: IntArray, curve: Curve, radius: float
) -> Steps:
    """Steps from points to nodes along curves within a radius.

    Closed curves are periodic. At the ends of open curves heat is reflected, by mirror images of the nodes.
    """
    images, own, where = [], [], []
    for piece, length in enumerate(curve.lengths):
        nodes = np.flatnonzero(node_pieces == piece)
        x = node_arcs[nodes]
        turns = range(-int(radius / length) - 1, int(radius / length) + 2)
        for turn in turns:
            if curve.closed[piece]:
                images.append(x + turn * length)
            else:
                images.append(turn * length + (x if turn % 2 == 0 else length - x))
            own.append(nodes)
            where.append(np.full(len(nodes), piece))
    x, node, line_of = np.concatenate(images), np.concatenate(own), np.concatenate(where)
    spread = float(x.max() - x.min()) + float(curve.lengths.max()) + 4 * radius  # separates the curves on one line
    offset = line_of * spread
    order = np.argsort(x + offset, kind="stable")
    line, node = (x + offset)[order], node[order]
    at = arcs + pieces * spread
    low, high = np.searchsorted(line, at - radius), np.searchsorted(line, at + radius, side="right")
    counts = high - low
    rows = np.repeat(np.arange(len(at)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(low, counts)
    return Steps(rows, node[within], (line[within] - at[rows]) ** 2)


@dataclass(frozen=True, eq=False)
class CurveSpace(AbstractSpace):
    """Curves through a cloud."""

    points: FloatArray
    volume: float
    cloud: CleanCloud
    curve: Curve
    dim: int = 1

    def layout(self, s2: float, spacing: float, n_jobs: int) -> AbstractNodes:
        """Even nodes by arc length."""
        cloud, lengths = self.cloud, self.curve.lengths
        counts = np.maximum(8, np.ceil(lengths / spacing)).astype(np.int64)
        pieces = np.repeat(np.arange(len(counts)), counts)
        before, whole, n = (np.cumsum(counts) - counts)[pieces], lengths[pieces], counts[pieces]
        places = (np.arange(len(pieces)) - before + 0.5) * whole / n, pieces
        surface = cloud.surface if cloud.noise_std else None
        at = self.curve.at(*places) @ cloud.axes.T + cloud.origin
        return CurveNodes(at, *places, whole / n, self.curve, cloud.origin, cloud.axes, surface)


@stored
@dataclass(frozen=True, eq=False)
class CurveNodes(AbstractNodes):
    """Nodes along curves.

    Attributes
    ----------
    points : array of shape (n, D)
    arcs : array of shape (n,)
    pieces : int array of shape (n,)
    volumes : array of shape (n,)
        Lengths.
    curve : Curve
    origin, axes : arrays of shape (D,) and (D, r)
        Coordinates of the curve.
    surface : LocalSurface, optional
        The surface onto which noisy points are moved.
    """

    points: FloatArray
    arcs: FloatArray
    pieces: IntArray
    volumes: FloatArray
    curve: Curve
    origin: FloatArray
    axes: FloatArray
    surface: Any = None
    dim: int = 1

    def _check_loaded(self) -> None:
        n, (d, r) = len(self.points), self.axes.shape
        check_arrays(self, arcs=(n,), pieces=(n,), origin=(d,), axes=(d, r))
        check_amounts("volumes", self.volumes, n)
        check_positions("pieces", self.pieces, len(self.curve.lengths))

    def steps(self, radius: float, s2: float, n_jobs: int = 1) -> Steps:
        """Steps between nodes along the curves."""
        return line_steps(self.arcs, self.pieces, self.arcs, self.pieces, self.curve, radius)

    def steps_from(self, z: FloatArray, radius: float, s2: float, n_jobs: int = 1) -> Steps:
        """Steps from the nearest points of the curves."""
        inside = along(self.axes, z - self.origin)
        return line_steps(*self.curve.locate(inside, n_jobs), self.arcs, self.pieces, self.curve, radius)
