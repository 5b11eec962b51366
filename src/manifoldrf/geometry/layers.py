"""Layers of a cloud that nearly touch: steps go along a layer, not through the space between two of them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._runtime import map_threads
from manifoldrf._validation import POSITIVE, FloatArray, check_real
from manifoldrf.geometry.csr import check_csr
from manifoldrf.geometry.local_surface import some_points
from manifoldrf.geometry.neighbors import NeighborSearch, Pairs, ball_along_edges, without_self

# Pairs whose path along nearest neighbours is longer than twice the straight line, and the distances to their
# neighbours, touch only through space. (Half a circle is 1.57 times its diameter.) Rolls had the least error with
# steps of which a share of .003 jumped.
_PATH_NEIGHBORS, _DETOUR, _LEAK, _LEAK_NODES = 12, 2.0, 3e-3, 200
_SOURCES = 2000  # points from which paths are searched by one task
_VOTERS, _SMALLEST_VOTE = 6, 1e-3  # nearest nodes that decide which layer a query is on, and the least share


@dataclass(frozen=True, eq=False)
class Sheets:
    """Paths along the layers of a cloud: edges between near neighbours, which do not join layers.

    Attributes
    ----------
    edges : CSR array of shape (n, n)
        Lengths.
    spacing : array of shape (n,)
        Distance of each point to the last of its neighbours.
    threads : int
    """

    edges: Any
    spacing: FloatArray
    threads: int

    def cut(self, pairs: Pairs) -> Pairs:
        """The pairs without those that are close only through empty space."""
        keep = ~self.are_apart(pairs)
        n = len(self.spacing)
        # Paths summed from the other end may differ in the last bit: a pair needs both directions.
        kept = sparse.coo_array((keep.astype(np.int8), (pairs.rows, pairs.columns)), shape=(n, n)).tocsr()
        both = np.asarray(kept[pairs.columns, pairs.rows]).ravel() > 0
        keep &= both
        return Pairs(pairs.rows[keep], pairs.columns[keep], pairs.distances[keep])

    def are_apart(self, pairs: Pairs) -> Any:
        """Whether the path between two points is much longer than the straight line, for each pair."""
        n, rows = len(self.spacing), np.unique(pairs.rows)
        limit = _DETOUR * float(pairs.distances.max(initial=0.0)) + 2 * float(self.spacing.max())
        indptr, indices = self.edges.indptr.astype(np.int64), self.edges.indices.astype(np.int64)
        blocks = np.array_split(rows, max(1, len(rows) // _SOURCES))
        found = map_threads(
            lambda block: ball_along_edges(indptr, indices, self.edges.data, block, limit), blocks, self.threads
        )
        counts, columns, lengths = (np.concatenate(part) for part in zip(*found, strict=True))
        starts = np.repeat(rows, counts)
        # From 1 to 2: a sparse matrix does not tell a stored zero from no path.
        paths = sparse.coo_array((1 + lengths / limit, (starts, columns)), shape=(n, n)).tocsr()
        along = np.asarray(paths[pairs.rows, pairs.columns]).ravel()
        along = np.where(along > 0, (along - 1) * limit, np.inf)
        return along > _DETOUR * pairs.distances + self.spacing[pairs.rows] + self.spacing[pairs.columns]


def find_sheets(search: NeighborSearch, s2: float, radius: float) -> Sheets | None:
    """The layers of a cloud, if steps of the squared bandwidth s2 would jump between them; else None."""
    points = search.points
    k = min(_PATH_NEIGHBORS, len(points) - 1)
    distances, near = without_self(*search.knn(points, k + 1))
    edges = sparse.csr_array(
        (np.maximum(distances.ravel(), np.finfo(np.float64).tiny), near.ravel(), k * np.arange(len(points) + 1)),
        shape=(len(points), len(points)),
    )
    sheets = Sheets(edges.maximum(edges.T.tocsr()), distances[:, -1], search.threads)
    some = np.sort(some_points(search, _LEAK_NODES, "cloud.layers"))
    found = search.within(points[some], radius)
    pairs = Pairs(some[found.rows], found.columns, found.distances)
    weights = np.exp(-(pairs.distances**2) / s2)
    leak = float(weights[sheets.are_apart(pairs)].sum() / weights.sum())
    return sheets if leak > _LEAK else None


@dataclass(frozen=True, eq=False)
class SheetReach:
    """The nodes of a cloud with layers that a point can step to along its own layer.

    Attributes
    ----------
    search : NeighborSearch
        The nodes.
    joined : CSR array of shape (n_nodes, n_nodes)
        1 for each pair of nodes that is joined by a step.
    bandwidth : float
        s2 of one step.
    """

    search: NeighborSearch
    joined: Any
    bandwidth: float

    def check(self, n: int, d: int) -> None:
        """Raise unless it fits a graph of n nodes with d coordinates."""
        self.search.check(n, d)
        check_csr("joined", self.joined, (n, n))
        check_real(self.bandwidth, "bandwidth", POSITIVE)

    def pairs(self, queries: FloatArray, radius: float) -> Pairs:
        """Query-node pairs at most ``radius`` apart that are joined through the nodes nearest to the query.

        A node joined to only a share of the nearest nodes counts as farther away, so that steps fade out where a
        query moves from one layer to another.
        """
        found = self.search.within(queries, radius)
        k = min(_VOTERS, len(self.search.points) - 1)
        distances, near = self.search.knn(queries, k + 1)
        votes = np.maximum(1 - distances[:, :k] / np.maximum(distances[:, k:], 1e-300), 0.0) ** 2 + 1e-12
        votes /= votes.sum(axis=1, keepdims=True)
        shape = len(queries), len(self.search.points)
        voters = sparse.csr_array(
            (votes.ravel(), near[:, :k].ravel(), k * np.arange(len(queries) + 1)), shape=shape
        )
        share = np.asarray((voters @ self.joined).tocsr()[found.rows, found.columns]).ravel()
        keep = share > _SMALLEST_VOTE
        farther = np.sqrt(found.distances[keep] ** 2 - self.bandwidth * np.log(np.minimum(share[keep], 1.0)))
        return Pairs(found.rows[keep], found.columns[keep], farther)
