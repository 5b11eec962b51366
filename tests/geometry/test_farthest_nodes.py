"""Farthest nodes and nearest sources."""

import numpy as np
import pytest
from scipy import sparse
from scipy.sparse import csgraph

from manifoldrf import Graph, Sphere, knn_graph
from manifoldrf.geometry.graphs import farthest_nodes, follows_edges, nearest_sources

CLOUD = knn_graph(Sphere().grid(400))
CHAINS = np.kron(np.eye(3), np.eye(20, k=1) + np.eye(20, k=-1))
PIECES = Graph(sparse.csr_array(CHAINS), np.arange(60.0)[:, None] ** 1.1)


@pytest.mark.parametrize("graph", [CLOUD, PIECES], ids=["in space", "along edges"])
@pytest.mark.parametrize("n_exact", [5, 100])
def test_anchors_are_apart_by_the_largest_gap(graph, n_exact):
    chosen = farthest_nodes(graph, 30, n_exact)
    assert len(set(chosen.tolist())) == 30
    lengths = csgraph.dijkstra(graph.lengths, indices=chosen)
    if not follows_edges(graph):
        lengths = np.linalg.norm(graph.points[chosen][:, None] - graph.points, axis=2)
    gap = lengths.min(axis=0).max()
    apart = lengths[:, chosen][~np.eye(30, dtype=bool)].min()
    assert apart >= (1 if n_exact == 100 else 0.95) * gap * (1 - 1e-12)
    assert np.array_equal(farthest_nodes(graph, 5, n_exact), chosen[:5])


def test_every_component_gets_an_anchor_and_isolated_nodes_come_last():
    lonely = Graph(sparse.block_diag([CHAINS, np.zeros((1, 1))], "csr"), np.vstack([PIECES.points, [[1000.0]]]))
    assert sorted(farthest_nodes(lonely, 3) // 20) == [0, 1, 2]
    assert farthest_nodes(lonely, 61)[-1] == 60


def test_nearest_sources_are_those_of_all_distances():
    for graph in (CLOUD, PIECES):
        sources = np.array([3, 25, 30])
        found = nearest_sources(graph, sources)
        lengths = csgraph.dijkstra(graph.lengths, indices=sources)
        if not follows_edges(graph):
            lengths = np.linalg.norm(graph.points[sources][:, None] - graph.points, axis=2)
        reached = np.isfinite(lengths).any(axis=0)
        assert np.array_equal(found >= 0, reached)
        every = np.arange(graph.n_nodes)[reached]
        assert np.allclose(lengths[found[reached], every], lengths.min(axis=0)[reached])
