"""Neighbour searches against all pairs: in space, along a metric, along a surface."""

import itertools
import pickle
import re

import numpy as np
import pytest
from oracles import METRICS, cloud
from scipy import sparse
from scipy.sparse import csgraph
from scipy.spatial import ConvexHull
from scipy.spatial.distance import cdist

from manifoldrf import FlatTorus, HyperbolicSpace, Sphere
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.neighbors import NeighborSearch, balls_along_edges, edge_lengths, search_of, without_self

# Nearest nodes


@pytest.mark.parametrize(("n", "d", "k"), [(100, 3, 7), (100, 1, 1), (30, 6, 30)])
def test_euclidean_neighbours_equal_brute_force(n, d, k, global_seed):
    points, queries = cloud(n, d, global_seed), cloud(20, d, global_seed + 1000)
    distances, columns = NeighborSearch(points).knn(queries, k)
    dense = cdist(queries, points)
    assert distances.shape == columns.shape == (20, k)
    assert np.array_equal(columns, np.argsort(dense, axis=1)[:, :k])
    np.testing.assert_allclose(distances, np.sort(dense, axis=1)[:, :k], rtol=1e-12)


@pytest.mark.parametrize("metric", METRICS, ids=str)
@pytest.mark.parametrize("k", [8, 150])
def test_metric_neighbours_equal_brute_force(metric, k, global_seed):
    points = metric.sample(150, seed=global_seed)
    queries = metric.sample(40, seed=global_seed + 1000)
    distances, columns = NeighborSearch(points, metric).knn(queries, k)
    dense = metric.distance(queries, points)
    np.testing.assert_allclose(distances, np.sort(dense, axis=1)[:, :k], rtol=1e-9)
    np.testing.assert_allclose(np.take_along_axis(dense, columns, axis=1), distances, rtol=1e-9)
    assert all(len(set(row)) == k for row in columns)


def test_hyperbolic_order_is_not_the_order_in_coordinates():
    """Seen from near the boundary, a node toward the centre is nearer than one as far along the boundary."""
    points = np.array(
        [[0.9, 0.0], [0.0, 0.0], *([0.9 * np.cos(a), 0.9 * np.sin(a)] for a in np.linspace(0.5, 1, 30))]
    )
    space = HyperbolicSpace(dim=2)
    _, columns = NeighborSearch(points, space).knn(points[:1], 2)
    dense = space.distance(points[:1], points)[0]
    assert columns[0, 1] == np.argsort(dense)[1]
    nearest_outward = np.array([[0.9, 0.0], [0.97, 0.0], [0.8, 0.0]])  # .07 outward is farther than .1 inward
    assert NeighborSearch(nearest_outward, space).knn(points[:1], 2)[1].tolist() == [[0, 2]]


# All nodes within a radius


@pytest.mark.parametrize("d", [3, 4])
@pytest.mark.parametrize("metric", [None, *METRICS], ids=str)
def test_no_query_has_no_pairs(metric, d):
    points = cloud(50, d, 0) if metric is None else metric.sample(50, seed=0)
    assert [len(part) for part in NeighborSearch(points, metric).within(points[:0], 0.3)] == [0, 0, 0]


def test_pickles_do_not_hold_what_searches_keep():
    search = NeighborSearch(np.random.default_rng(0).random((200, 2)))
    before = pickle.dumps(search)
    search.within(search.points, 0.1)
    search.knn(search.points, 3)
    assert pickle.dumps(search) == before


@pytest.mark.parametrize("metric", [None, *METRICS], ids=str)
def test_pairs_within_a_radius_equal_brute_force(metric, global_seed):
    if metric is None:
        points, queries = cloud(100, 3, global_seed), cloud(40, 3, global_seed + 1000)
        dense = cdist(queries, points)
    else:
        points, queries = metric.sample(100, seed=global_seed), metric.sample(40, seed=global_seed + 1000)
        dense = metric.distance(queries, points)
    search = NeighborSearch(points, metric)  # one for all radii: nothing of one may serve another
    for share in (0.0, 0.05, 0.5, 1.0):
        radius = np.quantile(dense, share) * (1 + 1e-7)  # in a gap, so that rounding decides nothing
        rows, columns, distances = search.within(queries, radius)
        expected = np.argwhere(dense <= radius)  # sorted by query, then node
        order = np.lexsort((columns, rows))
        assert np.array_equal(np.column_stack([rows, columns[order]]), expected)
        np.testing.assert_allclose(distances, dense[rows, columns], rtol=1e-9)


def test_more_queries_than_are_handled_at_once_keep_their_numbers():
    points = cloud(10, 5)
    rows, columns, _ = NeighborSearch(points).within(np.tile(points, (7000, 1)), 1e-9)
    assert np.array_equal(rows, np.arange(70_000))
    assert np.array_equal(columns, np.tile(np.arange(10), 7000))


# Neighbour lists without the node itself


def test_nodes_are_dropped_from_their_own_lists():
    distances = np.array([[0.0, 0.0, 1.0], [0.0, 1.0, 2.0], [0.0, 0.0, 3.0]])
    columns = np.array([[1, 0, 2], [1, 0, 2], [0, 1, 7]])  # the last node is missing among its copies
    kept_distances, kept = without_self(distances, columns)
    assert kept.tolist() == [[1, 2], [0, 2], [0, 1]]
    assert kept_distances.tolist() == [[0, 1], [1, 2], [0, 0]]


def test_clouds_are_copied_checked_and_wrapped():
    points = cloud(5)
    assert not np.shares_memory(search_of(points, None, 1, min_rows=1).points, points)
    assert search_of([[-0.25]], FlatTorus(dim=1), 1, min_rows=1).points.tolist() == [[0.75]]
    with pytest.raises(ValueError, match=re.escape("at least 6 row(s) and one column. Got shape (5, 3).")):
        search_of(points, None, 1, min_rows=6)
    with pytest.raises(TypeError, match=re.escape("`metric` must be None or a manifold. Got 'euclidean'.")):
        search_of(points, "euclidean", 1, min_rows=1)


# Search in many dimensions


@pytest.mark.parametrize(
    "moved", [lambda x: x, lambda x: x + 1e6, lambda x: 1e-30 * x], ids=["plain", "far", "tiny"]
)
def test_neighbours_in_many_dimensions_are_exact_for_any_number_of_threads(moved, global_seed):
    points = moved(np.repeat(cloud(2500, 12, global_seed), 2, axis=0))  # every point twice
    queries = points[:4500:3]
    distances, columns = NeighborSearch(points).knn(queries, 9)
    dense = cdist(queries, points)
    # Coordinates are rounded to eps times their size, so are their distances.
    np.testing.assert_allclose(distances, np.sort(dense, axis=1)[:, :9], rtol=1e-9)
    np.testing.assert_allclose(distances, np.take_along_axis(dense, columns, axis=1), rtol=1e-9)
    again = NeighborSearch(points, n_jobs=2).knn(queries, 9)
    assert np.array_equal(again[0], distances)
    assert np.array_equal(again[1], columns)


# Balls along edges


def csr(n, edges):
    """The symmetric graph with the given lengths."""
    both = sorted([(i, j, w) for (i, j), w in edges.items()] + [(j, i, w) for (i, j), w in edges.items()])
    rows, columns, lengths = zip(*both, strict=True)
    ends = np.searchsorted(rows, np.arange(n + 1))
    return sparse.csr_array((np.array(lengths, float), columns, ends), shape=(n, n))


def all_paths(n, edges):
    """Floyd and Warshall."""
    paths = np.where(np.eye(n) > 0, 0.0, np.inf)
    for (i, j), w in edges.items():
        paths[i, j] = paths[j, i] = w
    for k, i, j in itertools.product(range(n), repeat=3):
        paths[i, j] = min(paths[i, j], paths[i, k] + paths[k, j])
    return paths


# A square with a short way round (0-1-2 is shorter than 0-2), a tail of length zero, and a separate pair.
GRAPH = {(0, 1): 1.0, (1, 2): 1.5, (0, 2): 4.0, (2, 3): 0.5, (0, 3): 3.5, (3, 4): 0.0, (5, 6): 2.0}


def test_neighbours_at_equal_distances_do_not_depend_on_other_queries():
    rng = np.random.default_rng(0)
    search = NeighborSearch(rng.integers(0, 2, size=(3000, 16)).astype(float))
    queries = rng.integers(0, 2, size=(100, 16)).astype(float)
    whole = search.knn(queries, 8)[1]
    assert np.array_equal(whole, np.vstack([search.knn(query[None], 8)[1] for query in queries]))


@pytest.mark.parametrize("limit", [0.0, 1.0, 2.5, 3.0, 100.0])
def test_balls_equal_all_shortest_paths_cut_at_the_limit(limit):
    sources = np.array([0, 4, 6, 2, 5, 1, 3, 0])  # in any order, and one twice
    counts, nodes, distances = balls_along_edges(csr(7, GRAPH), sources, limit)
    paths = all_paths(7, GRAPH)
    assert nodes.dtype == counts.dtype == np.int64
    ends = np.cumsum(counts)
    for source, start, end in zip(sources, ends - counts, ends, strict=True):
        reached = dict(zip(nodes[start:end].tolist(), distances[start:end].tolist(), strict=True))
        assert len(reached) == end - start  # no node twice
        assert reached == {j: paths[source, j] for j in range(7) if paths[source, j] <= limit}
        assert nodes[start] == source


def test_balls_equal_all_shortest_paths_on_random_graphs(global_seed):
    rng = np.random.default_rng(global_seed)
    for _ in range(20):
        pairs = rng.permutation(list(itertools.combinations(range(9), 2)))[:14]
        edges = {(int(i), int(j)): float(w) for (i, j), w in zip(pairs, rng.integers(0, 8, 14) / 4, strict=True)}
        paths = all_paths(9, edges)
        counts, nodes, distances = balls_along_edges(csr(9, edges), np.arange(9), 2.0)
        found = np.full((9, 9), np.inf)
        found[np.repeat(np.arange(9), counts), nodes] = distances
        assert np.array_equal(found, np.where(paths <= 2.0, paths, np.inf))


def test_balls_on_a_mesh_are_those_of_dijkstra_to_the_bit(global_seed):
    points = Sphere().sample(400, seed=global_seed)
    edges = edge_lengths(TriangleMesh(points, ConvexHull(points).simplices))
    counts, nodes, distances = balls_along_edges(edges, np.arange(400), 0.7)
    found = np.full((400, 400), np.inf)
    found[np.repeat(np.arange(400), counts), nodes] = distances
    np.testing.assert_array_equal(found, csgraph.dijkstra(edges, limit=0.7))
