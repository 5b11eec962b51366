"""Thinning against the plain greedy choice of farthest points."""

import re

import numpy as np
import pytest
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from manifoldrf.geometry import sampling
from manifoldrf.geometry.sampling import farthest_points, thin


def greedy(points, n):
    """Farthest points by looking at all of them each time."""
    chosen = [int(np.argmax(np.linalg.norm(points - points.mean(axis=0), axis=1)))]
    nearest = np.full(len(points), np.inf)
    while len(chosen) < n:
        squared = sum((points[:, c] - points[chosen[-1], c]) ** 2 for c in range(points.shape[1]))
        nearest = np.minimum(nearest, squared)
        nearest[chosen] = -1.0
        chosen.append(int(np.argmax(nearest)))  # the first of equals
    return chosen


def uniform(n, d, seed):
    return np.random.default_rng(seed).random((n, d))


@pytest.mark.parametrize("d", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 65, 500])
def test_thin_equals_the_greedy_choice_of_all_points(n, d, global_seed):
    points = uniform(n, d, global_seed)
    assert thin(points, n).tolist() == greedy(points, n)


@pytest.mark.parametrize("d", [1, 2, 3, 7])
def test_thin_equals_the_greedy_choice_among_duplicates_and_ties(d, global_seed):
    """Points of a small lattice, drawn many times: nearly every choice is a tie."""
    points = np.random.default_rng(global_seed).integers(0, 3, (400, d)).astype(float)
    chosen = thin(points, 400)
    assert chosen.tolist() == greedy(points, 400)
    assert np.array_equal(np.sort(chosen), np.arange(400))


def test_equal_points_are_chosen_in_order():
    assert thin(np.ones((70, 3)), 70).tolist() == list(range(70))


def test_every_prefix_is_itself_a_thinning(global_seed):
    points = uniform(1000, 3, global_seed)
    longest = thin(points, 300)
    assert longest.dtype == np.int64
    for n in (1, 2, 17, 299):
        assert np.array_equal(thin(points, n), longest[:n])


def test_the_order_of_the_points_does_not_matter(global_seed):
    points = uniform(800, 3, global_seed)
    order = np.random.default_rng(global_seed).permutation(800)
    assert np.array_equal(order[thin(points[order], 100)], thin(points, 100))


def test_the_memory_layout_of_the_points_does_not_matter():
    points = uniform(200, 3, 0)
    for other in (np.asfortranarray(points), np.repeat(points, 2, axis=0)[::2], points.tolist()):
        assert np.array_equal(thin(other, 50), thin(points, 50))


def test_no_point_is_farther_from_the_chosen_than_they_are_from_each_other(global_seed):
    points = uniform(2000, 2, global_seed)
    chosen = thin(points, 100)
    apart = cdist(points[chosen], points[chosen]) + np.diag(np.full(100, np.inf))
    assert cdist(points, points[chosen]).min(axis=1).max() <= apart.min()


BAD = [
    (0, ValueError, "`n` must be an integer in [1, 10]. Got 0."),
    (11, ValueError, "`n` must be an integer in [1, 10]. Got 11."),
    (5.0, TypeError, "`n` must be an integer in [1, 10]. Got 5.0."),
    (True, TypeError, "`n` must be an integer in [1, 10]. Got True."),
]


@pytest.mark.parametrize(("n", "kind", "text"), BAD, ids=str)
def test_bad_sizes_are_named(n, kind, text):
    with pytest.raises(kind, match=re.escape(text)):
        thin(uniform(10, 2, 0), n)


def test_bad_points_are_named():
    with pytest.raises(ValueError, match=re.escape("`points` must be finite")):
        thin([[np.nan], [0.0]], 1)
    with pytest.raises(ValueError, match=re.escape("`points` must be an array of shape (n, d). Got shape (3,).")):
        thin([1.0, 2.0, 3.0], 1)


# The compiled search, against a reference of ten lines


FORMS = pytest.mark.parametrize("form", [lambda f: f, lambda f: f.py_func], ids=["compiled", "python"])


def greedy_from(points, n, first):
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
            chosen, expected = greedy_from(points, n, first)
            assert selected.tolist() == chosen
            np.testing.assert_allclose(radii, expected, rtol=1e-15)


@FORMS
def test_boxes_hold_their_points_and_measure_the_distance_to_them(form):
    points = np.random.default_rng(0).random((10, 3))
    order = np.arange(10)
    pyramid = form(sampling.build_pyramid)(points, order, 3)  # 4 leaves: 0-2, 3-5, 6-8, 9
    members = {4: range(3), 5: range(3, 6), 6: range(6, 9), 7: [9], 2: range(6), 3: range(6, 10), 1: range(10)}
    assert pyramid.far.shape == (8,)
    query = np.array([2.0, 0.5, -1.0])
    for node, inside in members.items():
        low, high = points[list(inside)].min(axis=0), points[list(inside)].max(axis=0)
        assert np.array_equal(pyramid.low[node], low)
        assert np.array_equal(pyramid.high[node], high)
        gap = query - np.clip(query, low, high)
        assert form(sampling._box_distance)(query, node, pyramid) == pytest.approx(gap @ gap, rel=1e-15)
        assert form(sampling._box_distance)(points[inside[0]], node, pyramid) == 0.0


@FORMS
def test_the_farther_child_wins_and_ties_go_to_the_smaller_position(form):
    for far, who, winner in [([2.0, 1.0], [8, 3], 8), ([1.0, 2.0], [3, 8], 8), ([2.0, 2.0], [8, 3], 3)]:
        above, owner = np.array([-1.0, 0.0, *far]), np.array([0, 0, *who])
        form(sampling._pull)(1, above, owner)
        assert owner[1] == winner
        assert above[1] == max(far)


@FORMS
def test_a_leaf_keeps_its_farthest_point_and_never_a_selected_one(form):
    points = np.array([[0.0], [1.0], [4.0], [4.0], [9.0]])
    pyramid = sampling.build_pyramid(points, np.arange(5), 5)
    scan = form(sampling._scan_leaf)
    scan(points, np.arange(5), 1, 0, pyramid)
    assert (pyramid.who[1], pyramid.far[1]) == (4, 81.0)
    scan(points, np.arange(5), 1, 4, pyramid)
    assert (pyramid.who[1], pyramid.far[1]) == (2, 16.0)  # of the two at 4, the first
    assert pyramid.nearest.tolist() == [-1.0, 1.0, 16.0, 16.0, -1.0]
