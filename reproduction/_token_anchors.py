"""Anchors among tokens: farthest points, and points in the middle of their cells, along the surface or in space."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csgraph
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.fields.anchors import Sweep, edges_of, farthest_anchors, nearest_along_edges, select_along_edges
from manifoldrf.geometry.graphs import Graph

# Rounds in which anchors move into the middle of their cells. 5 are within 2 % of 20; most settle before the last.
_ROUNDS = 20


@dataclass(frozen=True, eq=False)
class Anchors:
    """Anchors and the number of tokens in the cell of each, both of shape (m,)."""

    nodes: IntArray
    cells: FloatArray


Owners = Callable[[IntArray], IntArray]  # anchors -> position of the anchor nearest to every token
Within = Callable[[IntArray], FloatArray]  # tokens of a cell -> distances between them


def medoid_anchors(start: IntArray, owners: Owners, within: Within) -> Anchors:
    """Lloyd's rounds on tokens: every anchor moves to the token with the least squared distances to its cell.

    Farthest points lie on the edges of a surface, where half of their cell is missing.
    """
    nodes = start
    for _ in range(_ROUNDS):
        owner = owners(nodes)
        moved = np.array([_medoid(np.flatnonzero(owner == k), within) for k in range(len(nodes))])
        if (moved == nodes).all():
            break
        nodes = moved
    return with_cells(nodes, owners)


def _medoid(cell: IntArray, within: Within) -> int:
    return int(cell[np.argmin((within(cell) ** 2).sum(axis=1))])


def with_cells(nodes: IntArray, owners: Owners) -> Anchors:
    """Anchors with the numbers of tokens that are nearest to each."""
    return Anchors(nodes, np.bincount(owners(nodes), minlength=len(nodes)).astype(np.float64))


def along_edges(graph: Graph) -> tuple[Owners, Within]:
    """Distances along the edges; those within a cell do not leave it."""
    edges, lengths = edges_of(graph), graph.lengths

    def owners(anchors: IntArray) -> IntArray:
        found: IntArray = nearest_along_edges(edges, anchors)[0]
        return found

    def within(cell: IntArray) -> FloatArray:
        return np.asarray(csgraph.dijkstra(lengths[cell][:, cell], directed=False))

    return owners, within


def in_space(points: FloatArray) -> tuple[Owners, Within]:
    """Distances in space."""

    def owners(anchors: IntArray) -> IntArray:
        return np.asarray(cKDTree(points[anchors]).query(points)[1], dtype=np.int64)

    return owners, lambda cell: cdist(points[cell], points[cell])


def farthest_along_edges(graph: Graph, m: int) -> IntArray:
    """Farthest points along the edges of a graph in one piece, from the first farthest point in space."""
    n = graph.n_nodes
    # All of them exact, so that no sweep is made.
    plan = Sweep(m, m, np.arange(n), 1.0)
    chosen: IntArray = select_along_edges(edges_of(graph), np.full(n, np.inf), farthest_anchors(graph, 1), plan)
    return chosen
