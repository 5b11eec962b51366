"""Nearest nodes, and nodes within a radius: in space, along a manifold, along the surface of a mesh.

Searches are exact. Within a radius, in at most three dimensions, nodes are sorted into cells of that size.
"""

from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree
from scipy.special import gammaln

from manifoldrf._codec import UNSTORED, stored
from manifoldrf._native import loops
from manifoldrf._runtime import in_blocks, quick_map, require
from manifoldrf._validation import (
    FloatArray,
    IntArray,
    check_integer,
    check_jobs,
    check_points,
    check_spread,
    reject,
)
from manifoldrf.geometry.csr import arrays, csr_parts, symmetric
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh

_ROWS = 2**15  # of a cloud, handled at once
_LEAF = 32  # points per leaf of the box tree; 16 to 64 cost the same within 10 %
_OUTLIER = 20.0  # volumes of nodes are capped at this many median volumes
_DENSITY_NEIGHBORS = 48  # densities are then good to 15 %
ENOUGH_POINTS = 30_000  # of a larger cloud a part is examined
SHRINK = 0.95  # of the radius of sweeps for farthest points
_VOLUMES = 1e-300, 1e300  # of one node: their sum and their inverses stay finite
_FEW = 2048  # below this many neighbours, starting threads takes longer than the search
# Clouds of more than 10 coordinates, with so many points, are searched without a tree. 20,000 points in 15
# dimensions take 1.2 s of CPU, with a tree .9 (on a space of 6 dimensions) to 7.9 s (Gaussian); 60,000 take 10 s,
# with a tree 4 to 136.
_DENSE_DIM, _DENSE_POINTS = 11, range(2000, 100_000)
_CHUNK = 65_536  # queries handled at once, to bound memory
_QUERIES_AT_ONCE, _ROWS_AT_ONCE = 256, 4096  # handled by one task
_MOST_CELLS = 2**60  # of the box around the nodes: cell numbers are 64-bit integers


class Pairs(NamedTuple):
    """Query-node pairs: row of the query, column of the node, their distance."""

    rows: IntArray
    columns: IntArray
    distances: FloatArray


class Cells(NamedTuple):
    """Nodes sorted by cell; the nodes of a row of cells are contiguous."""

    points: FloatArray  # (N, 3), in the order of ``nodes``; missing coordinates are zero
    nodes: IntArray  # (N,)
    keys: IntArray  # (N,), ascending
    origin: FloatArray  # (3,)
    shape: IntArray  # (3,), number of cells along each axis
    size: float


@stored
@dataclass(frozen=True, eq=False)
class NeighborSearch:
    """Nearest-node queries over a fixed set of points.

    Parameters
    ----------
    points : array of shape (N, d)
        Valid points, as returned by ``check_points``.
    metric : AbstractManifold, optional
        Measure distances along this manifold instead of in the ambient space.
    n_jobs : int
        Default number of threads; results do not depend on it. Not saved to files.
    """

    points: FloatArray
    metric: AbstractManifold | None = None
    n_jobs: int = field(default=1, metadata=UNSTORED)

    def _check_loaded(self) -> None:
        check_on_metric(self.points, self.metric)

    @cached_property
    def tree(self) -> Any:
        """The k-d tree of the points, in their coordinates."""
        if self.metric is None or self.metric.box is None:
            return cKDTree(self.points)
        # Wrapped coordinates can round up to the side itself, which the tree rejects.
        box = np.asarray(self.metric.box)
        inside = np.minimum(np.mod(self.points, np.where(box > 0, box, 1.0)), np.nextafter(box, 0.0))
        return cKDTree(np.where(box > 0, inside, self.points), boxsize=box)

    def knn(self, queries: FloatArray, k: int, n_jobs: int | None = None) -> tuple[FloatArray, IntArray]:
        """Distances and positions, both (n, k), of the k nearest nodes, nearest first."""
        threads = n_jobs or self.n_jobs
        if self.metric is not None:
            return self._metric_knn(self.metric, queries, k, threads)
        n, d = self.points.shape
        if d >= _DENSE_DIM and n in _DENSE_POINTS and len(queries):
            return self._dense_knn(queries, k, threads)
        distances, columns = self.tree.query(queries, k=k, workers=threads if len(queries) * k > _FEW else 1)
        return distances.reshape(len(queries), k), columns.reshape(len(queries), k)

    def _metric_knn(
        self, metric: AbstractManifold, queries: FloatArray, k: int, n_jobs: int
    ) -> tuple[FloatArray, IntArray]:
        """Candidates in coordinates, re-ranked along the manifold until no better node can be outside."""
        n = len(self.points)
        distances = np.zeros((len(queries), k))
        columns = np.zeros((len(queries), k), dtype=np.int64)
        open_rows = np.arange(len(queries))
        n_candidates = min(n, 2 * k + 8)
        while open_rows.size:
            near, index = self.tree.query(queries[open_rows], k=n_candidates, workers=n_jobs)
            near, index = near.reshape(open_rows.size, -1), index.reshape(open_rows.size, -1)  # (r, c)
            along = metric.paired_distance(queries[open_rows, None, :], self.points[index])
            rank = np.argsort(along, axis=1, kind="stable")[:, :k]
            distances[open_rows] = np.take_along_axis(along, rank, axis=1)
            columns[open_rows] = np.take_along_axis(index, rank, axis=1)
            covered = metric.reach(queries[open_rows], distances[open_rows, -1]) <= near[:, -1]
            open_rows = open_rows[~covered] if n_candidates < n else open_rows[:0]
            n_candidates = min(n, 2 * n_candidates)
        return distances, columns

    def _dense_knn(self, queries: FloatArray, k: int, n_jobs: int) -> tuple[FloatArray, IntArray]:
        """Compare with all nodes, by matrix products: in many dimensions a tree visits most of them anyway."""
        from sklearn.neighbors import NearestNeighbors
        from threadpoolctl import threadpool_limits

        # Products are accurate only if the cloud is centred and of unit size; distances are recomputed.
        centre = self.points.mean(axis=0)
        unit = float(np.abs(self.points - centre).max()) or 1.0
        more = min(len(self.points), k + 16)
        index = NearestNeighbors(n_neighbors=more, algorithm="brute").fit((self.points - centre) / unit)

        def nearest(block: FloatArray) -> tuple[FloatArray, IntArray]:
            with threadpool_limits(1, "openmp"):  # ties must not depend on the number of threads
                columns = index.kneighbors((block - centre) / unit, return_distance=False)
            gaps = np.linalg.norm(block[:, None, :] - self.points[columns], axis=2)
            rank = np.lexsort((columns, gaps), axis=1)
            gaps, columns = np.take_along_axis(gaps, rank, axis=1), np.take_along_axis(columns, rank, axis=1)
            # Rounding of products, which depends on the other rows, decides which of many ties are found.
            tied = np.flatnonzero((gaps[:, k - 1] >= (1 - 1e-9) * gaps[:, -1]) & (more < len(self.points)))
            if len(tied):
                found = self.tree.query(block[tied], k=k)
                gaps[tied, :k], columns[tied, :k] = (part.reshape(len(tied), k) for part in found)
            return gaps[:, :k], columns[:, :k]

        size = int(np.clip(2**22 // (more * queries.shape[1]), 16, _ROWS_AT_ONCE))  # 64 MB in each thread
        blocks = [queries[start : start + size] for start in range(0, len(queries), size)]
        found = quick_map(nearest, blocks or [queries], n_jobs)
        return np.concatenate([part[0] for part in found]), np.concatenate([part[1] for part in found])

    def within(self, queries: FloatArray, radius: float, n_jobs: int | None = None) -> Pairs:
        """All query-node pairs at most ``radius`` apart, sorted by query."""
        threads = n_jobs or self.n_jobs
        if not len(queries):
            return Pairs(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
        cells = self.cells(radius) if self.metric is None else None
        if cells is not None:  # pairs are counted first, then listed, a few queries per task
            n, given = len(queries), (np.ascontiguousarray(queries), *cells)
            counts, columns, distances = np.zeros(n, np.int64), np.zeros(0, np.int64), np.zeros(0)
            count = partial(loops.list_neighbors, *given, counts, columns, distances)
            in_blocks(count, n, _QUERIES_AT_ONCE, threads)
            if total := int(counts.sum()):
                columns, distances = np.zeros(total, np.int64), np.zeros(total)
                write = partial(loops.list_neighbors, *given, np.cumsum(counts) - counts, columns, distances)
                in_blocks(write, n, _QUERIES_AT_ONCE, threads)
            return Pairs(np.repeat(np.arange(n), counts), columns, distances)
        parts = quick_map(
            lambda start: self._within_chunk(queries[start : start + _CHUNK], radius, start, threads),
            range(0, len(queries), _CHUNK),  # for any number of threads: the order within a row depends on it
            threads if self.metric is None else 1,  # with a metric the tree itself uses threads
        )
        rows, columns, distances = (np.concatenate(column) for column in zip(*parts, strict=True))
        order = np.argsort(rows, kind="stable")
        return Pairs(rows[order], columns[order], distances[order])

    def cells(self, size: float) -> Cells | None:
        """Nodes sorted into cells, kept for the next call; None for more than three axes or too many cells."""
        kept: tuple[float, Cells | None] | None = self.__dict__.get("_kept_cells")
        if kept is not None and kept[0] == size:  # usually the reach of a step
            return kept[1]
        found, (n, dim) = None, self.points.shape
        if dim <= 3 and size > 0:
            padded = np.zeros((n, 3))
            padded[:, :dim] = self.points
            origin = padded.min(axis=0)
            extent = (padded.max(axis=0) - origin) / size
            if (extent < 2**20).all() and np.prod(extent + 1) <= _MOST_CELLS:
                place = np.floor((padded - origin) / size).astype(np.int64)
                shape = place.max(axis=0) + 1
                keys = (place[:, 0] * shape[1] + place[:, 1]) * shape[2] + place[:, 2]
                nodes = np.argsort(keys, kind="stable")
                ordered = np.ascontiguousarray(padded[nodes])
                found = Cells(ordered, nodes.astype(np.int64), keys[nodes], origin, shape, size)
        self.__dict__["_kept_cells"] = size, found
        return found

    def _within_chunk(self, queries: FloatArray, radius: float, offset: int, n_jobs: int) -> Pairs:
        if self.metric is None:
            found = cKDTree(queries).sparse_distance_matrix(self.tree, radius, output_type="coo_matrix")
            return Pairs(found.row.astype(np.int64) + offset, found.col.astype(np.int64), found.data)
        reach = self.metric.reach(queries, np.full(len(queries), radius))
        # The ball only bounds the candidates, so it may be slightly too large but not too small.
        lists = self.tree.query_ball_point(queries, reach * (1 + 1e-12), workers=n_jobs)
        rows = np.repeat(np.arange(len(queries)), [len(found) for found in lists])
        columns = np.concatenate([np.asarray(found, dtype=np.int64) for found in lists])
        # Both are valid points; checking every pair again would take half of the time.
        distances = self.metric._distance(queries[rows], self.points[columns])
        keep = distances <= radius
        return Pairs(rows[keep] + offset, columns[keep], distances[keep])


def search_of(
    points: "ArrayLike | NeighborSearch", metric: AbstractManifold | None, n_jobs: int, *, min_rows: int
) -> "NeighborSearch":
    """Return a search over a checked copy of the points; a given search is used unchanged."""
    if isinstance(points, NeighborSearch):
        return points
    cloud = np.array(check_points(points, min_rows=min_rows), order="C")
    check_spread(cloud, "points")
    check_metric(metric)
    cloud = cloud if metric is None else metric.check(cloud, "points")
    return NeighborSearch(cloud, metric, check_jobs(n_jobs))


def check_metric(metric: Any) -> None:
    """Raise unless it is a manifold or None."""
    if metric is not None and not isinstance(metric, AbstractManifold):
        reject("metric", "None or a manifold", repr(metric), TypeError)


def check_on_metric(points: FloatArray, metric: AbstractManifold | None) -> None:
    """Raise unless points are finite and lie on the metric if there is one."""
    check_points(points, "points")
    if metric is None:
        return
    if metric.ambient_dim != points.shape[1]:
        reject("metric", f"of points with {points.shape[1]} coordinates", repr(metric)[:100])
    metric.check(points, "points")


def along(axes: FloatArray, offsets: FloatArray) -> FloatArray:
    """Coordinates of offsets (q, D) along axes (D, r); products by BLAS would depend on the number of offsets."""
    found = np.zeros((len(offsets), axes.shape[1]))
    for axis, offset in zip(axes, offsets.T, strict=True):
        found += offset[:, None] * axis
    return found


def without_self(distances: FloatArray, columns: IntArray) -> tuple[FloatArray, IntArray]:
    """Drop each node from its own neighbour list: (N, k + 1) becomes (N, k).

    Among many equal points a node may be missing from its own list; its last neighbour is dropped then.
    """
    n, width = columns.shape
    own = columns == np.arange(n)[:, None]
    own[~own.any(axis=1), width - 1] = True
    return distances[~own].reshape(n, width - 1), columns[~own].reshape(n, width - 1)


def visiting_order(queries: FloatArray, cells: Cells) -> IntArray:
    """An order of the queries by coarse cells, in which neighbours follow each other."""
    axes = queries.shape[1]
    place = np.clip((queries - cells.origin[:axes]) / (2 * cells.size), -1.0, 2.0**20).astype(np.int64)
    return np.lexsort(place.T)


def edge_lengths(mesh: TriangleMesh) -> Any:
    """Symmetric CSR array of the lengths of a mesh's edges."""
    return symmetric(mesh.edge_lengths(), mesh.edges[:, 0], mesh.edges[:, 1], mesh.n_vertices)


def balls_along_edges(lengths: Any, sources: IntArray, limit: float) -> tuple[IntArray, IntArray, FloatArray]:
    """All nodes within ``limit`` of each source along the edges of a CSR array of lengths.

    Returns
    -------
    counts : int64 (len(sources),)
    nodes : int64 (sum of counts,), the nodes of one source after the other, itself first
    distances : float64 (sum of counts,)
    """
    found = loops.balls_along_edges(*csr_parts(lengths), np.ascontiguousarray(sources, np.int64), limit)
    counts, nodes, distances = arrays(found[1:], "lld")
    return counts, nodes, distances


def estimate_dimension(points: ArrayLike | NeighborSearch, *, metric: AbstractManifold | None = None) -> int:
    """Estimate the dimension of the space that the points fill.

    A ball around a point of a space of dimension d holds a number of points that grows like radius^d, so
    log(24 / 6) / d is the mean of log(r_24 / r_6), with r_k the distance to the k-th neighbour. Noise fills all
    coordinates at such small distances; :func:`.clean_cloud` recognises it.

    Parameters
    ----------
    points : array-like of shape (n, D)
        At least three points; a NeighborSearch over them is used unchanged.
    metric : AbstractManifold, optional
        Measure distances along this manifold.

    Returns
    -------
    dim : int
        In [1, D]. Reliable to about 5 dimensions from a few thousand points; above that, finite samples
        make every estimate too low.

    Examples
    --------
    >>> from manifoldrf import Sphere
    >>> from manifoldrf.geometry import estimate_dimension
    >>> estimate_dimension(Sphere().sample(2000, seed=0))
    2
    """
    search = search_of(points, metric, 1, min_rows=3)
    inner, outer, growth = _radii(search)
    if (inner == 0).any():  # duplicates hide how a neighbourhood grows
        search = NeighborSearch(np.unique(search.points, axis=0), search.metric)
        if len(search.points) < 3:
            return 1
        inner, outer, growth = _radii(search)
    grown = (inner > 0) & (outer > inner)  # equal rings carry no information
    if not grown.any():
        return 1
    found = np.log(growth) / np.log(outer[grown] / inner[grown]).mean()
    return int(np.clip(np.rint(found), 1, search.points.shape[1]))


def _radii(search: NeighborSearch) -> tuple[FloatArray, FloatArray, float]:
    """Radii of a small and a large neighbourhood of some nodes, and the ratio of their numbers of points."""
    n = len(search.points)
    far = min(24, n - 1)
    near = max(1, far // 4)
    radii = search.knn(search.points[:: max(1, n // 2000)], far + 1)[0]  # the node itself comes first
    return radii[:, near], radii[:, far], far / near


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


def farthest_first(
    cloud: FloatArray, n: int | None = None, *, tree: Any = None, first: int | None = None
) -> tuple[IntArray, FloatArray]:
    """The first n (by default all) farthest points, and the distance of each to those before it.

    ``tree`` is a k-d tree of the cloud, ``first`` the index of the first point, if given.
    """
    tree = cKDTree(cloud, leafsize=_LEAF) if tree is None else tree
    if first is None:
        centre = cloud.mean(axis=0)
        # Some rows at a time, as a cloud may be as large as memory.
        gaps = [np.linalg.norm(cloud[k : k + _ROWS] - centre, axis=1) for k in range(0, len(cloud), _ROWS)]
        first = int(np.argmax(np.concatenate(gaps)))
    return farthest_points(cloud, tree.indices.astype(np.int64), tree.leafsize, n or len(cloud), first)


def sample_blocks(table: Any, name: str) -> Any:
    """Rows of a Dask array or data frame that cover its points: all of them, or 30,000.

    Blocks are thinned on their workers: a worker needs memory for a block, this process for the sample. Half of the
    rows are random, to keep density and noise, and half are farthest points, to cover the whole space.
    """
    dask = require("dask", "dask")
    if table.ndim != 2:
        reject(name, "a dask array or data frame of shape (n, d)", f"{table.ndim} dimensions")
    is_frame = hasattr(table, "map_partitions")
    blocks = list(np.ravel((table if is_frame else table.rechunk({1: -1})).to_delayed()))
    sizes = np.array(dask.compute(*map(dask.delayed(len), blocks)))
    shares = np.ceil(sizes * min(1.0, ENOUGH_POINTS / max(1, sizes.sum()))).astype(np.int64).tolist()
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
        # A far outlier has a huge volume and says nothing about the other nodes.
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

    The others come from sweeps. A sweep keeps each point that is farther from all kept ones than .95 times the
    largest distance before the sweep. So .95 is the least ratio of the distance of two chosen points to the largest
    gap; on 20,000 random points of the sphere .8 to .95 cost the same.

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
