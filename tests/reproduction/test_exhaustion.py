"""Graded nodes have the stated intensity; the estimate of an exhaustion follows the true error."""

import itertools

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chisquare

from manifoldrf import EuclideanSpace, HyperbolicSpace, relative_error
from reproduction.exhaustion import default_decay, depth, exhaustion, graded_points, local_features, step_time

BALLS = [HyperbolicSpace(2, 4.0), HyperbolicSpace(3, 5.0), EuclideanSpace(3, 2.5)]


def shares(ball, inner, decay, edges):
    """Share of the nodes between radii, by integrating sphere areas times the intensity."""
    stretch = np.sinh if isinstance(ball, HyperbolicSpace) else (lambda r: r)

    def intensity(r):
        return stretch(r) ** (ball.dim - 1) * np.exp(-decay * max(r - inner, 0.0))

    parts = np.array([quad(intensity, a, b, points=[inner])[0] for a, b in itertools.pairwise(edges)])
    return parts / parts.sum()


@pytest.mark.parametrize("ball", BALLS, ids=str)
def test_random_nodes_have_the_stated_intensity(ball, global_seed):
    """Chi-square over shells; a correct sampler fails with probability 1e-4."""
    nodes = graded_points(ball, 20_000, inner=1.0, decay=2.5, scatter="random", seed=global_seed)
    edges = np.linspace(0, ball.radius, 13)
    counts = np.histogram(depth(ball, nodes.points), edges)[0]
    assert chisquare(counts, 20_000 * shares(ball, 1.0, 2.5, edges)).pvalue > 1e-4


@pytest.mark.parametrize("ball", BALLS, ids=str)
@pytest.mark.parametrize(("relaxation", "seed"), [(0, None), (6, None), (0, 3)])
def test_even_nodes_have_it_to_a_few_nodes_and_weights_are_volumes(ball, relaxation, seed):
    nodes = graded_points(ball, 2000, inner=1.0, relaxation=relaxation, seed=seed)
    edges = np.linspace(0, ball.radius, 13)
    deep = depth(ball, nodes.points)
    counts = np.histogram(deep, edges)[0]
    # The discrepancy of Sobol points in one coordinate is below 1 / n on powers of two; 2000 of 2048 miss a few.
    assert np.abs(counts - 2000 * shares(ball, 1.0, default_decay(ball, 1.0), edges)).max() <= 16
    inside = deep <= 1.0
    np.testing.assert_allclose(nodes.weights[inside], 1 / nodes.density, rtol=1e-9)
    assert nodes.weights[inside].sum() == pytest.approx(ball.ball(1.0).volume, rel=0.05)  # 16 of about 400


@pytest.mark.parametrize("ball", BALLS, ids=str)
def test_relaxed_nodes_are_farther_apart(ball):
    """The nearest neighbour, in spacings: about .55 for random nodes, almost 1 in a lattice."""
    closest = []
    for relaxation in (0, 8):
        nodes = graded_points(ball, 1000, inner=1.0, scatter="random", relaxation=relaxation, seed=0)
        nearest = np.sort(ball.distance(nodes.points, nodes.points), axis=1)[:, 1]
        inside = depth(ball, nodes.points) < 0.9
        closest.append(np.quantile(nearest[inside] * nodes.density ** (1 / ball.dim), 0.1))
    assert closest[1] > 1.6 * closest[0]


@pytest.mark.parametrize("s2", [0.01, 0.3, 1.0])
def test_the_time_of_a_step_has_its_closed_form_in_three_dimensions(s2):
    """E cosh d = e^{s2 / 4} (1 + e^s2) / 2 on H^3."""
    expected = (s2 / 4 + np.log1p(np.expm1(s2) / 2)) / 3
    assert step_time(HyperbolicSpace(3), s2) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("space", "radii", "t", "inner", "n"),
    [(HyperbolicSpace(2), (2.0, 2.5, 3.0), 0.5, 1.5, 400), (EuclideanSpace(2), (1.2, 1.5, 2.0), 0.1, 1.0, 400)],
    ids=str,
)
def test_the_estimate_is_within_a_factor_of_three_of_the_true_error(space, radii, t, inner, n):
    found = exhaustion(space, radii, t, inner=inner, n_nodes=n, n_queries=64)
    exact = space.heat_kernel(found.queries, found.queries, t)
    for row in found.rows:
        features = local_features(space.ball(row.radius), row.n_nodes, t, inner=inner)
        true = relative_error(features.kernel_matrix(found.queries), exact)
        assert true / 3 < row.error < 3 * true
    assert found.rows[-1].error < 0.5 * found.rows[0].error
    assert found.rows[0].n_inside == pytest.approx(found.rows[-1].n_inside, abs=5)
