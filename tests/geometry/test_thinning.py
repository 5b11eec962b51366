"""Thinning against the plain greedy choice of farthest points, and estimated densities."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from manifoldrf import Sphere
from manifoldrf.geometry import thin
from manifoldrf.geometry.neighbors import NeighborSearch, Sampling, farthest_first


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


@pytest.mark.parametrize(("n", "d"), [(1, 2), (33, 1), (65, 7), (500, 3)])
def test_thin_is_the_greedy_choice(n, d, global_seed):
    rng = np.random.default_rng(global_seed)
    points, lattice = rng.random((n, d)), rng.integers(0, 3, (n, d)).astype(float)  # nearly every choice is a tie
    assert thin(points, n).tolist() == greedy(points, n)
    assert thin(lattice, n).tolist() == greedy(lattice, n)


def test_prefixes_order_and_layout_do_not_matter(global_seed):
    points = np.random.default_rng(global_seed).random((800, 3))
    chosen = thin(points, 100)
    order = np.random.default_rng(global_seed).permutation(800)
    assert np.array_equal(thin(points, 17), chosen[:17])
    assert np.array_equal(order[thin(points[order], 100)], chosen)
    assert np.array_equal(thin(np.asfortranarray(points), 100), chosen)
    assert thin(np.ones((70, 3)), 70).tolist() == list(range(70))


def test_no_point_is_farther_from_the_chosen_than_they_are_from_each_other(global_seed):
    points = np.random.default_rng(global_seed).random((2000, 2))
    chosen, gaps = farthest_first(points, 100)
    apart = cdist(points[chosen], points[chosen]) + np.diag(np.full(100, np.inf))
    assert cdist(points, points[chosen]).min(axis=1).max() <= apart.min()
    assert apart.min() == pytest.approx(gaps.min())
    assert gaps[0] == np.inf
    assert (np.diff(gaps[1:]) <= 0).all()


def test_densities_of_the_sphere_are_estimated(global_seed):
    even, random = (
        Sampling.of_cloud(NeighborSearch(points), 2)
        for points in (Sphere().grid(2000), Sphere().sample(2000, seed=0))
    )
    for found in (even, random):
        assert found.volume == pytest.approx(4 * np.pi, rel=0.05)
    assert even.evenness > 1.4 > 1.1 > random.evenness
