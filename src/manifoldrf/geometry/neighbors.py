"""Nearest nodes in Euclidean space or in a manifold's own distance, exact unless stated."""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse import csgraph
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from manifoldrf._codec import THREADS
from manifoldrf._compiling import compiled
from manifoldrf._runtime import asked_search_jobs, available, map_threads, require, thread_pool
from manifoldrf._validation import FloatArray, IntArray, check_jobs, check_points, check_spread, reject
from manifoldrf.geometry.cells import Cells, collect, make_cells, room_for, visit_cells
from manifoldrf.geometry.loops import ball_along_edges, check_shape, sort_entries, symmetric
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh

# Above these, an inverted-file index is 7x faster than a k-d tree (200k x 15: 5.8 s against 40 s with a
# twelfth of the lists probed). An eighth finds .987 of the neighbours among 60k Gaussian points in 12 dimensions,
# the hardest cloud tried, where a twelfth finds .967; points on a manifold are easier.
_FEW = 2048  # neighbours that are found sooner than threads can be started
_ANN_MIN_DIM = 11
_ANN_MIN_POINTS = 50_001
_ANN_SHARE = 8
_SOURCES = 2000  # vertices searched from by one task
# Paths along mesh edges zigzag: they are up to about this much longer than the shortest paths of the surface.
# On an even sphere mesh 1.4 loses nothing and 1.3 a third of the accuracy; larger values let folds leak.
_DETOUR = 1.4
_MOST_THREADS = 4096  # that a stored search may ask for
_QUERIES_AT_ONCE = 256  # handled by one task
_CHUNK = 65_536  # queries handled at once, so that memory stays bounded


def check_cloud(points: ArrayLike, metric: AbstractManifold | None, *, min_rows: int) -> FloatArray:
    """Return a copy of valid points, on the manifold where one is given (the caller may change his later)."""
    cloud = np.array(check_points(points, min_rows=min_rows), order="C")
    check_spread(cloud, "points")
    if metric is None:
        return cloud
    if not isinstance(metric, AbstractManifold):
        reject("metric", "None or a manifold", repr(metric), TypeError)
    return metric.check(cloud, "points")


def search_of(
    points: "ArrayLike | NeighborSearch", metric: AbstractManifold | None, n_jobs: int | None, *, min_rows: int
) -> "NeighborSearch":
    """Return a search over a checked copy of the points; one that is given already is used as it is."""
    if isinstance(points, NeighborSearch):
        return points
    return NeighborSearch(check_cloud(points, metric, min_rows=min_rows), metric, n_jobs)


def check_on_metric(points: FloatArray, metric: AbstractManifold | None) -> None:
    """Raise unless points are finite and, where there is a metric, on it."""
    check_points(points, "points")
    if metric is None:
        return
    if metric.ambient_dim != points.shape[1]:
        reject("metric", f"of points with {points.shape[1]} coordinates", repr(metric)[:100])
    metric.check(points, "points")


class Pairs(NamedTuple):
    """Query-node pairs: row of the query, column of the node, their distance."""

    rows: IntArray
    columns: IntArray
    distances: FloatArray


@dataclass(frozen=True, eq=False)
class NeighborSearch:
    """Nearest-node queries over a fixed set of points.

    Parameters
    ----------
    points : array of shape (N, d)
        Valid points, as returned by ``check_points``.
    metric : AbstractManifold, optional
        Measure distances along this manifold instead of in the ambient space.
    n_jobs : int, optional
        Threads of the search, -1 for all cores; the caller's alone by default. Results do not depend on it.
    """

    points: FloatArray
    metric: AbstractManifold | None = None
    n_jobs: int | None = field(default=None, metadata=THREADS)

    def check(self, n: int, d: int) -> None:
        """Raise unless there are n finite points with d coordinates, on the metric if there is one."""
        check_shape("points", self.points, (n, d))
        check_on_metric(self.points, self.metric)
        if self.n_jobs is not None and check_jobs(self.n_jobs) > _MOST_THREADS:
            reject("n_jobs", f"at most {_MOST_THREADS}", self.n_jobs)

    @property
    def threads(self) -> int:
        """How many there are, at least 1: those of the caller, if he says so, else the search's own."""
        asked = asked_search_jobs()
        n_jobs = self.n_jobs if asked is None else asked
        return 1 if n_jobs is None else check_jobs(n_jobs)

    @cached_property
    def tree(self) -> Any:
        """The k-d tree of the points, in their coordinates."""
        if self.metric is None or self.metric.box is None:
            return cKDTree(self.points)
        # Wrapped coordinates can round up to the side itself, which the tree refuses.
        box = np.asarray(self.metric.box)
        return cKDTree(np.minimum(np.mod(self.points, box), np.nextafter(box, 0.0)), boxsize=box)

    def knn(self, queries: FloatArray, k: int) -> tuple[FloatArray, IntArray]:
        """Distances and positions, both (n, k), of the k nearest nodes, nearest first."""
        if self.metric is not None:
            return self._metric_knn(self.metric, queries, k)
        n, d = self.points.shape
        if d >= _ANN_MIN_DIM and n >= _ANN_MIN_POINTS and available("faiss"):
            return self._approximate_knn(queries, k)
        return self._exact_knn(queries, k)

    def _exact_knn(self, queries: FloatArray, k: int) -> tuple[FloatArray, IntArray]:
        workers = self.threads if len(queries) * k > _FEW else 1
        distances, columns = self.tree.query(queries, k=k, workers=workers)
        return distances.reshape(len(queries), k), columns.reshape(len(queries), k)

    def _metric_knn(self, metric: AbstractManifold, queries: FloatArray, k: int) -> tuple[FloatArray, IntArray]:
        """Candidates in coordinates, re-ranked along the manifold until no better node can be outside."""
        n = len(self.points)
        distances = np.zeros((len(queries), k))
        columns = np.zeros((len(queries), k), dtype=np.int64)
        open_rows = np.arange(len(queries))
        n_candidates = min(n, 2 * k + 8)
        while open_rows.size:
            near, index = self.tree.query(queries[open_rows], k=n_candidates, workers=self.threads)
            near, index = near.reshape(open_rows.size, -1), index.reshape(open_rows.size, -1)  # (r, c)
            along = metric.paired_distance(queries[open_rows, None, :], self.points[index])
            rank = np.argsort(along, axis=1, kind="stable")[:, :k]
            distances[open_rows] = np.take_along_axis(along, rank, axis=1)
            columns[open_rows] = np.take_along_axis(index, rank, axis=1)
            covered = metric.reach(queries[open_rows], distances[open_rows, -1]) <= near[:, -1]
            open_rows = open_rows[~covered] if n_candidates < n else open_rows[:0]
            n_candidates = min(n, 2 * n_candidates)
        return distances, columns

    def _approximate_knn(self, queries: FloatArray, k: int) -> tuple[FloatArray, IntArray]:
        """Inverted-file search (recall about .99), with distances recomputed in double precision."""
        index, centre, unit = self._inverted_file
        columns = np.zeros((len(queries), k), dtype=np.int64)
        distances = np.zeros((len(queries), k))
        for start in range(0, len(queries), _CHUNK):
            part = slice(start, start + _CHUNK)
            _, found = index.search(((queries[part] - centre) / unit).astype(np.float32), k)
            gaps = np.linalg.norm(queries[part, None, :] - self.points[found], axis=2)
            rank = np.argsort(gaps, axis=1, kind="stable")
            distances[part] = np.take_along_axis(gaps, rank, axis=1)
            columns[part] = np.take_along_axis(found, rank, axis=1)
        short = np.flatnonzero((columns < 0).any(axis=1))  # fewer than k nodes in the probed lists
        if short.size:
            distances[short], columns[short] = self._exact_knn(queries[short], k)
        return distances, columns

    @cached_property
    def _inverted_file(self) -> tuple[Any, FloatArray, float]:
        """The trained index, and the centre and unit of its coordinates."""
        faiss = require("faiss", "ann")
        # Single precision resolves the cloud only around its centre and in its own unit.
        centre = self.points.mean(axis=0)
        unit = float(np.abs(self.points - centre).max()) or 1.0
        data = ((self.points - centre) / unit).astype(np.float32)
        n_lists = int(np.sqrt(len(data)))
        index = faiss.IndexIVFFlat(faiss.IndexFlatL2(data.shape[1]), data.shape[1], n_lists)
        index.train(data)
        index.add(data)
        index.nprobe = max(8, n_lists // _ANN_SHARE)
        return index, centre, unit

    def within(self, queries: FloatArray, radius: float) -> Pairs:
        """All query-node pairs at most ``radius`` apart, sorted by query."""
        cells = self.cells(radius) if self.metric is None else None
        if cells is not None:
            return _pairs_in_cells(np.ascontiguousarray(queries), cells, self.threads)
        parts = map_threads(
            lambda start: self._within_chunk(queries[start : start + _CHUNK], radius, start),
            range(0, len(queries), _CHUNK),  # whatever the number of threads: the order within a row follows it
            self.threads if self.metric is None else 1,  # with a metric the tree has threads of its own
        )
        rows, columns, distances = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(rows, kind="stable")
        return Pairs(rows[order], columns[order], distances[order])

    def cells(self, radius: float) -> Cells | None:
        """Cells of the size of the radius, kept for the next call: queries come with the same radius again."""
        kept: tuple[float, Cells | None] | None = self.__dict__.get("_kept_cells")
        if kept is None or kept[0] != radius:
            kept = radius, make_cells(self.points, radius) if radius > 0 else None
            self.__dict__["_kept_cells"] = kept
        return kept[1]

    def _within_chunk(self, queries: FloatArray, radius: float, offset: int) -> Pairs:
        if self.metric is None:
            found = cKDTree(queries).sparse_distance_matrix(self.tree, radius, output_type="coo_matrix")
            return Pairs(found.row.astype(np.int64) + offset, found.col.astype(np.int64), found.data)
        reach = self.metric.reach(queries, np.full(len(queries), radius))
        # The ball in coordinates only bounds the candidates: a hair more costs nothing, a hair less does.
        lists = self.tree.query_ball_point(queries, reach * (1 + 1e-12), workers=self.threads)
        rows = np.repeat(np.arange(len(queries)), [len(found) for found in lists])
        columns = np.concatenate([np.asarray(found, dtype=np.int64) for found in lists])
        # Both are valid points already; to check every pair again would take half of the time.
        distances = self.metric._distance(queries[rows], self.points[columns])
        keep = distances <= radius
        return Pairs(rows[keep] + offset, columns[keep], distances[keep])


def _pairs_in_cells(queries: FloatArray, cells: Cells, n_jobs: int) -> Pairs:
    """Pairs by cells: counted first, then listed, a few queries per task."""
    n = len(queries)
    found, columns, distances = np.zeros(n, np.int64), np.zeros(0, np.int64), np.zeros(0)
    spans = list(pairwise([*range(0, n, _QUERIES_AT_ONCE), n]))
    with thread_pool(min(n_jobs, len(spans))) as pool:
        list(pool.map(lambda span: visit_cells(queries, cells, span, found, columns, distances), spans))
        counts = found.copy()
        total = int(counts.sum())
        if total:
            found = np.cumsum(counts) - counts
            columns, distances = np.zeros(total, np.int64), np.zeros(total)
            list(pool.map(lambda span: visit_cells(queries, cells, span, found, columns, distances), spans))
    return Pairs(np.repeat(np.arange(n), counts), columns, distances)


def without_self(distances: FloatArray, columns: IntArray) -> tuple[FloatArray, IntArray]:
    """Drop each node from its own neighbour list: (N, k + 1) becomes (N, k).

    Among many equal points a node may be missing from its own list; its last neighbour is dropped then.
    """
    n, width = columns.shape
    own = columns == np.arange(n)[:, None]
    own[~own.any(axis=1), width - 1] = True
    return distances[~own].reshape(n, width - 1), columns[~own].reshape(n, width - 1)


def pairs_along_surface(mesh: TriangleMesh, radius: float, *, n_jobs: int = 1) -> Pairs:
    """All pairs of vertices within the radius along the surface, both directions and each vertex with itself.

    The distance is the one in space, unless the path along edges is so much longer, even after its detours, that
    the straight line must be a short cut between folds: then it is that path less the detour.
    """
    edges = edge_lengths(mesh)
    indptr, indices = edges.indptr.astype(np.int64), edges.indices.astype(np.int64)
    blocks = np.array_split(np.arange(mesh.n_vertices), max(1, mesh.n_vertices // _SOURCES))
    found = map_threads(
        lambda block: ball_along_edges(indptr, indices, edges.data, block, _DETOUR * radius), blocks, n_jobs
    )
    counts, columns, paths = (np.concatenate(part) for part in zip(*found, strict=True))
    rows = np.repeat(np.arange(mesh.n_vertices), counts)
    straight = np.linalg.norm(mesh.vertices[rows] - mesh.vertices[columns], axis=1)
    distances = np.maximum(straight, paths / _DETOUR)
    # One direction decides for both: path lengths summed from the other end may differ in the last bit.
    keep = (columns > rows) & (distances <= radius)
    rows, columns, distances = rows[keep], columns[keep], distances[keep]
    loops = np.arange(mesh.n_vertices)
    return Pairs(
        np.concatenate([rows, columns, loops]),
        np.concatenate([columns, rows, loops]),
        np.concatenate([distances, distances, np.zeros(mesh.n_vertices)]),
    )


def distance_to_boundary(mesh: TriangleMesh) -> FloatArray:
    """Distance of every vertex to the boundary vertex nearest along the edges; infinite where there is none."""
    boundary = mesh.boundary_vertices
    distances = np.full(mesh.n_vertices, np.inf)
    if len(boundary):
        _, _, nearest = csgraph.dijkstra(
            edge_lengths(mesh), indices=boundary, min_only=True, return_predecessors=True
        )
        reached = nearest >= 0
        gaps = mesh.vertices[reached] - mesh.vertices[nearest[reached]]
        distances[reached] = np.linalg.norm(gaps, axis=1)  # paths along edges zigzag, the straight line does not
    return distances


def edge_lengths(mesh: TriangleMesh) -> Any:
    """Symmetric CSR array of the lengths of a mesh's edges."""
    return symmetric(mesh.edge_lengths(), mesh.edges[:, 0], mesh.edges[:, 1], mesh.n_vertices)


def distances_between(points: FloatArray, others: FloatArray, metric: AbstractManifold | None) -> FloatArray:
    """Distances of some points to others, in a straight line or along a metric, shape (n, m)."""
    return np.asarray(cdist(points, others) if metric is None else metric.distance(points, others))


_ROWS_AT_ONCE = 4096  # handled by one task


def gaussian_in_cells(cells: Cells, s2: float, n_jobs: int) -> Any:
    """G_ij = exp(-|x_i - x_j|^2 / s2) between all nodes within the size of a cell, self-loops included.

    CSR array of shape (N, N), symmetric to the bit, columns sorted. Nothing larger is made on the way.
    """
    n = len(cells.nodes)
    spans = list(pairwise([*range(0, n, _ROWS_AT_ONCE), n]))
    counts = np.zeros(n + 1, dtype=np.int64)
    with thread_pool(min(n_jobs, len(spans))) as pool:
        list(pool.map(lambda span: _count_neighbors(cells, span, counts), spans))
        ends = np.cumsum(counts)
        index = np.int32 if max(ends[-1], n) < 2**31 else np.int64
        columns, values = np.zeros(ends[-1], index), np.zeros(ends[-1])
        list(pool.map(lambda span: _fill_gaussian(cells, s2, span, ends, columns, values), spans))
    return sparse.csr_array((values, columns, ends.astype(index)), shape=(n, n))


def matrix_of_pairs(values: FloatArray, pairs: Pairs, n: int) -> Any:
    """CSR array of shape (n, n) with one value per pair."""
    return sparse.coo_array((values, (pairs.rows, pairs.columns)), shape=(n, n)).tocsr()


@compiled()
def _count_neighbors(cells, span, counts):  # type: ignore[no-untyped-def]
    """counts[i + 1] = number of nodes within reach of node i."""
    columns, squares = room_for(64)
    ranges = np.zeros((9, 2), np.int64)
    for q in range(span[0], span[1]):
        found, columns, squares = collect(cells.points[q], cells, ranges, columns, squares)
        counts[cells.nodes[q] + 1] = found


@compiled()
def _fill_gaussian(cells, s2, span, ends, columns, values):  # type: ignore[no-untyped-def]
    """Rows of the nodes in a range of the cells, which are close together, so that what they read is cached."""
    near, squares = room_for(64)
    ranges = np.zeros((9, 2), np.int64)
    for q in range(span[0], span[1]):
        found, near, squares = collect(cells.points[q], cells, ranges, near, squares)
        begin = ends[cells.nodes[q]]
        sort_entries(near[:found], squares[:found])
        for p in range(found):
            columns[begin + p] = near[p]
            values[begin + p] = np.exp(-squares[p] / s2)
