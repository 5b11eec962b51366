"""Nodes that thin out from an inner ball: their intensity is the stated one, and relaxation keeps it."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chisquare

from manifoldrf import EuclideanSpace, HyperbolicSpace, Sphere
from manifoldrf.geometry.neighbors import NeighborSearch
from manifoldrf.geometry.sampling import GradedPoints, graded_points

BALLS = [HyperbolicSpace(2, 4.0), HyperbolicSpace(3, 5.0), HyperbolicSpace(4, 3.0), EuclideanSpace(3, 2.5)]


@pytest.fixture(params=BALLS, ids=str)
def ball(request):
    return request.param


def _depth(ball, points):
    return ball.distance(np.zeros((1, ball.dim)), points)[0]


def _shares(ball, inner, decay, edges):
    """Share of the nodes between radii, by integrating sphere areas times the intensity."""
    stretch = np.sinh if isinstance(ball, HyperbolicSpace) else (lambda r: r)

    def intensity(r):
        return stretch(r) ** (ball.dim - 1) * np.exp(-decay * max(r - inner, 0.0))

    parts = np.array([quad(intensity, a, b, points=[inner])[0] for a, b in itertools.pairwise(edges)])
    return parts / parts.sum()


def test_random_nodes_have_the_stated_intensity(ball):
    """Chi-square over shells; a correct sampler fails with probability 1e-4."""
    nodes = graded_points(ball, 20_000, inner=1.0, decay=2.5, scatter="random", seed=3)
    edges = np.linspace(0, ball.radius, 13)
    counts = np.histogram(_depth(ball, nodes.points), edges)[0]
    assert chisquare(counts, 20_000 * _shares(ball, 1.0, 2.5, edges)).pvalue > 1e-4


@pytest.mark.parametrize("relaxation", [0, 6])
def test_even_nodes_have_it_to_a_few_nodes_relaxed_or_not(ball, relaxation):
    nodes = graded_points(ball, 2000, inner=1.0, relaxation=relaxation)
    edges = np.linspace(0, ball.radius, 13)
    counts = np.histogram(_depth(ball, nodes.points), edges)[0]
    # The discrepancy of Sobol points in one coordinate is below 1 / n on powers of two; 2000 of 2048 miss a few.
    assert np.abs(counts - 2000 * _shares(ball, 1.0, ball._decay(1.0), edges)).max() <= 16


@pytest.mark.parametrize("relaxation", [0, 6])
def test_weights_are_the_volume_of_the_inner_ball(ball, relaxation):
    nodes = graded_points(ball, 2000, inner=1.0, relaxation=relaxation)
    inside = _depth(ball, nodes.points) <= 1.0
    assert np.ptp(nodes.weights[inside]) <= 1e-12 * nodes.weights.max()
    assert nodes.weights[inside][0] == pytest.approx(1 / nodes.density)
    # A node more or less at the rim of the inner ball: 16 of about 400, as above.
    assert nodes.weights[inside].sum() == pytest.approx(ball.ball(1.0).volume, rel=0.05)


def test_relaxed_nodes_are_farther_apart(ball):
    """The nearest neighbour, in spacings: about .55 for random nodes, almost 1 in a lattice."""
    closest = []
    for relaxation in (0, 8):
        nodes = graded_points(ball, 1000, inner=1.0, scatter="random", relaxation=relaxation, seed=0)
        nearest = NeighborSearch(nodes.points, ball).knn(nodes.points, 2)[0][:, 1]
        inside = _depth(ball, nodes.points) < 0.9
        closest.append(np.quantile(nearest[inside] * nodes.density ** (1 / ball.dim), 0.1))
    assert closest[1] > 1.6 * closest[0]


def test_a_seed_moves_nodes_and_fixes_them():
    ball = BALLS[1]
    first, again, other, none = (graded_points(ball, 300, inner=1.5, seed=seed) for seed in (1, 1, 2, None))
    np.testing.assert_array_equal(first.points, again.points)
    assert not np.array_equal(first.points, other.points)
    np.testing.assert_array_equal(none.points, graded_points(ball, 300, inner=1.5).points)
    assert isinstance(none, GradedPoints)


def test_without_decay_nodes_are_those_of_the_grid():
    ball = HyperbolicSpace(3, 2.0)
    nodes = graded_points(ball, 500, inner=1.0, decay=0.0)
    np.testing.assert_allclose(nodes.points, ball.grid(500), atol=1e-12)
    np.testing.assert_allclose(nodes.weights, ball.grid_weights(500), rtol=1e-12)


def test_moves_and_offsets_are_inverse_and_of_the_right_length(ball):
    x, y = ball.sample(40, seed=0), ball.sample(40, seed=1)
    offset = ball._offset_to(x, y[:, None, :])[:, 0]
    # Coordinates near the rim of the model lose digits: e^5 of 1e-16, squared.
    np.testing.assert_allclose(np.linalg.norm(offset, axis=1), ball.paired_distance(x, y), rtol=1e-9)
    np.testing.assert_allclose(ball.paired_distance(ball._move(x, offset), y), 0.0, atol=1e-7)
    np.testing.assert_array_equal(ball._move(x, 0 * x), x)


BAD = [
    (lambda: graded_points(Sphere(), 100, inner=1.0), TypeError, "`space` must be a space covered by a ball"),
    (lambda: graded_points(BALLS[0], 100, inner=5.0), ValueError, "`inner` must be a number in"),
    (lambda: graded_points(BALLS[0], 100, inner=1.0, decay=-1.0), ValueError, "`decay` must be"),
    (lambda: graded_points(BALLS[0], 1, inner=1.0), ValueError, "`n` must be an integer"),
    (lambda: graded_points(BALLS[0], 9, inner=1.0, scatter="grid"), ValueError, "`scatter` must be one of"),
    (lambda: graded_points(BALLS[0], 9, inner=1.0, relaxation=-1), ValueError, "`relaxation` must be"),
]


@pytest.mark.parametrize(("call", "kind", "text"), BAD)
def test_bad_values_are_named(call, kind, text):
    with pytest.raises(kind, match=text):
        call()
