"""Thinning against the plain greedy choice of farthest points."""

import re

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from manifoldrf.geometry.sampling import thin


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
