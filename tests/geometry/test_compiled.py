"""The compiled loops against references of ten lines, on graphs and clouds small enough to draw."""

import itertools

import numpy as np
import pytest
from scipy.spatial import cKDTree

from manifoldrf.geometry import loops as _compiled
from manifoldrf.geometry.loops import ball_along_edges, farthest_points

FORMS = pytest.mark.parametrize("form", [lambda f: f, lambda f: f.py_func], ids=["compiled", "python"])


def greedy(points, n, first):
    """Farthest points and the distance of each to those before it, over all pairs."""
    chosen, radii = [first], [np.inf]
    while len(chosen) < n:
        nearest = np.array([min(((p - points[c]) ** 2).sum() for c in chosen) for p in points])
        nearest[chosen] = -1.0
        chosen.append(int(np.argmax(nearest)))
        radii.append(np.sqrt(nearest[chosen[-1]]))
    return chosen, radii


@FORMS
@pytest.mark.parametrize("leaf", [1, 2, 3, 5, 16])
@pytest.mark.parametrize("n", [1, 5, 12])
def test_farthest_points_equal_the_greedy_choice_for_every_leaf_size(form, n, leaf):
    # Quarters are exact in binary, so that distances computed in any order tie alike.
    points = np.random.default_rng(n).integers(0, 5, (n, 2)) / 4.0
    for order in (np.arange(n), np.arange(n)[::-1].copy(), cKDTree(points).indices.astype(np.int64)):
        for first in range(n):
            selected, radii = form(farthest_points)(points, order, leaf, n, first)
            chosen, expected = greedy(points, n, first)
            assert selected.tolist() == chosen
            np.testing.assert_allclose(radii, expected, rtol=1e-15)


@FORMS
def test_boxes_hold_their_points_and_measure_the_distance_to_them(form):
    points = np.random.default_rng(0).random((10, 3))
    order = np.arange(10)
    pyramid = form(_compiled._build_pyramid)(points, order, 3)  # 4 leaves: 0-2, 3-5, 6-8, 9
    members = {4: range(3), 5: range(3, 6), 6: range(6, 9), 7: [9], 2: range(6), 3: range(6, 10), 1: range(10)}
    assert pyramid.far.shape == (8,)
    query = np.array([2.0, 0.5, -1.0])
    for node, inside in members.items():
        low, high = points[list(inside)].min(axis=0), points[list(inside)].max(axis=0)
        assert np.array_equal(pyramid.low[node], low)
        assert np.array_equal(pyramid.high[node], high)
        gap = query - np.clip(query, low, high)
        assert form(_compiled._box_distance)(query, node, pyramid) == pytest.approx(gap @ gap, rel=1e-15)
        assert form(_compiled._box_distance)(points[inside[0]], node, pyramid) == 0.0


@FORMS
def test_the_farther_child_wins_and_ties_go_to_the_smaller_position(form):
    for far, who, winner in [([2.0, 1.0], [8, 3], 8), ([1.0, 2.0], [3, 8], 8), ([2.0, 2.0], [8, 3], 3)]:
        above, owner = np.array([-1.0, 0.0, *far]), np.array([0, 0, *who])
        form(_compiled._pull)(1, above, owner)
        assert owner[1] == winner
        assert above[1] == max(far)


@FORMS
def test_a_leaf_keeps_its_farthest_point_and_never_a_selected_one(form):
    points = np.array([[0.0], [1.0], [4.0], [4.0], [9.0]])
    pyramid = _compiled._build_pyramid(points, np.arange(5), 5)
    scan = form(_compiled._scan_leaf)
    scan(points, np.arange(5), 1, 0, pyramid)
    assert (pyramid.who[1], pyramid.far[1]) == (4, 81.0)
    scan(points, np.arange(5), 1, 4, pyramid)
    assert (pyramid.who[1], pyramid.far[1]) == (2, 16.0)  # of the two at 4, the first
    assert pyramid.nearest.tolist() == [-1.0, 1.0, 16.0, 16.0, -1.0]


# Balls along edges


def csr(n, edges):
    """Arrays of the symmetric graph with the given lengths."""
    both = sorted([(i, j, w) for (i, j), w in edges.items()] + [(j, i, w) for (i, j), w in edges.items()])
    rows = [i for i, _, _ in both]
    indptr = np.searchsorted(rows, np.arange(n + 1)).astype(np.int64)
    return indptr, np.array([j for _, j, _ in both], dtype=np.int64), np.array([w for _, _, w in both], dtype=float)


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


@pytest.mark.parametrize("limit", [0.0, 1.0, 2.5, 3.0, 100.0])
def test_balls_equal_all_shortest_paths_cut_at_the_limit(limit):
    sources = np.array([0, 4, 6, 2, 5, 1, 3, 0])  # in any order, and one twice
    counts, nodes, distances = ball_along_edges(*csr(7, GRAPH), sources, limit)
    paths = all_paths(7, GRAPH)
    assert nodes.dtype == counts.dtype == np.int64
    ends = np.cumsum(counts)
    for source, start, end in zip(sources, ends - counts, ends, strict=True):
        reached = dict(zip(nodes[start:end].tolist(), distances[start:end].tolist(), strict=True))
        assert len(reached) == end - start  # no node twice
        assert reached == {j: paths[source, j] for j in range(7) if paths[source, j] <= limit}
        assert nodes[start] == source
        assert (np.diff(distances[start:end]) >= 0).all()  # nearest first


def test_balls_equal_all_shortest_paths_on_random_graphs(global_seed):
    rng = np.random.default_rng(global_seed)
    for _ in range(20):
        pairs = rng.permutation(list(itertools.combinations(range(9), 2)))[:14]
        edges = {(int(i), int(j)): float(w) for (i, j), w in zip(pairs, rng.integers(0, 8, 14) / 4, strict=True)}
        paths = all_paths(9, edges)
        counts, nodes, distances = ball_along_edges(*csr(9, edges), np.arange(9), 2.0)
        found = np.full((9, 9), np.inf)
        found[np.repeat(np.arange(9), counts), nodes] = distances
        assert np.array_equal(found, np.where(paths <= 2.0, paths, np.inf))
