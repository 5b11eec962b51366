"""Exhaustion: the estimate follows the true error, and says what must grow."""

import numpy as np
import pytest

from manifoldrf import EuclideanSpace, HyperbolicSpace, Sphere
from manifoldrf.applications.exhaustion import Exhaustion, ExhaustionRow, exhaustion, local_features
from manifoldrf.metrics import relative_error

CASES = [
    (HyperbolicSpace(2), (2.0, 2.5, 3.0), 0.5, 1.5, 400),
    pytest.param(HyperbolicSpace(3), (2.0, 3.0), 0.5, 1.5, 700, marks=pytest.mark.slow),
    pytest.param(EuclideanSpace(2), (1.2, 1.5, 2.0), 0.1, 1.0, 400, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("space", "radii", "t", "inner", "n"), CASES, ids=lambda value: str(value))
def test_the_estimate_is_within_a_factor_of_three_of_the_true_error(space, radii, t, inner, n):
    found = exhaustion(space, radii, t, inner=inner, n_nodes=n, n_queries=64, tolerance=0.0)
    exact = space.heat_kernel(found.queries, found.queries, t)
    assert [row.radius for row in found.rows] == list(radii)
    for row in found.rows:
        features = local_features(space.ball(row.radius), row.n_nodes, t, inner=inner)
        true = relative_error(features.kernel_matrix(found.queries), exact)
        assert true / 3 < row.error < 3 * true
    assert found.rows[-1].error < 0.5 * found.rows[0].error  # the exhaustion exhausts


def test_features_are_those_of_the_best_ball_on_an_absolute_scale():
    space = HyperbolicSpace(2)
    found = exhaustion(space, (2.0, 3.0), 0.5, inner=1.5, n_nodes=500)
    new = space.ball(1.5).sample(80, seed=9)
    assert relative_error(found.features.kernel_matrix(new), space.heat_kernel(new, new, 0.5)) < found.error
    assert found.best.radius == found.features.graph_.metric.radius == 3.0


def test_the_inner_ball_keeps_its_nodes_as_the_ball_grows():
    found = exhaustion(EuclideanSpace(2), (1.2, 1.6), 0.1, inner=1.0, n_nodes=300, tolerance=0.0, n_queries=8)
    small, large = found.rows
    assert large.n_nodes == 300 > small.n_nodes
    assert abs(small.n_inside - large.n_inside) <= 3  # Sobol points miss a shell by a node or two
    assert small.change is None
    assert large.change > large.resolution


def test_it_stops_when_both_suffice():
    found = exhaustion(HyperbolicSpace(2), (2.0, 3.0, 4.0), 0.5, inner=1.5, n_nodes=400, n_queries=32)
    assert [row.radius for row in found.rows] == [2.0, 3.0]
    assert found.sufficient
    assert found.advice.startswith("R = 3 with ")
    assert "suffice: the estimated error is 0.0" in found.advice


def test_a_space_without_a_known_kernel_has_an_estimate_too():
    found = exhaustion(HyperbolicSpace(4), (1.5, 2.5), 0.5, inner=0.8, n_nodes=500, n_queries=16, tolerance=0.0)
    assert found.rows[1].truncation < 0.1 * found.rows[0].truncation
    assert found.advice.endswith("The number of nodes must grow.")


def _with(truncation, resolution):
    row = ExhaustionRow(2.0, 900, 300, None, resolution, truncation, truncation + resolution)
    return Exhaustion((row,), None, np.zeros((1, 2)), 0.05)


@pytest.mark.parametrize(
    ("truncation", "resolution", "sentence"),
    [
        (0.2, 0.01, "0.2 from the rim, 0.01 from the nodes. R must grow."),
        (0.01, 0.2, "0.01 from the rim, 0.2 from the nodes. The number of nodes must grow."),
        (0.1, 0.1, "0.1 from the rim, 0.1 from the nodes. R and the number of nodes must grow."),
    ],
)
def test_the_advice_names_what_must_grow(truncation, resolution, sentence):
    found = _with(truncation, resolution)
    assert not found.sufficient
    assert found.advice.endswith(sentence)
    assert found.table()[0]["error"] == found.error


def test_the_same_seed_gives_the_same_bits():
    first, again = (
        exhaustion(EuclideanSpace(2), (1.5,), 0.1, inner=1.0, n_nodes=200, n_queries=16, seed=4) for _ in range(2)
    )
    assert first.rows == again.rows
    np.testing.assert_array_equal(first.queries, again.queries)


def test_the_number_of_nodes_by_default_follows_the_time_and_has_a_limit():
    found = exhaustion(EuclideanSpace(2), (1.2,), 0.5, inner=1.0, n_queries=8)
    ball = EuclideanSpace(2, 1.2)
    # 60 nodes in the footprint pi s2 = pi t of a step of four
    assert found.rows[0].n_nodes == round(60 * 4 / (4 * np.pi * 0.5) * ball._volume_of(1.0, 2.0))
    with pytest.raises(ValueError, match=r"`n_nodes` must be a number, because 'auto' would take"):
        exhaustion(HyperbolicSpace(4), (3.0,), 0.05, inner=1.5)


H2 = HyperbolicSpace(2)
BAD = [
    (lambda: exhaustion(Sphere(), (2.0,), 0.5, inner=1.0), TypeError, "`space` must be an unbounded space"),
    (lambda: exhaustion(H2, (2.0, 2.0), 0.5, inner=1.0), ValueError, "`radii` must be one or more numbers, ascend"),
    (lambda: exhaustion(H2, (), 0.5, inner=1.0), ValueError, "`radii` must be one or more"),
    (lambda: exhaustion(H2, (2.0,), 0.5, inner=2.0), ValueError, r"`inner` must be a number in \(0, 2\). Got 2.0"),
    (lambda: exhaustion(H2, (2.0,), -1.0, inner=1.0), ValueError, "`t` must be"),
    (lambda: exhaustion(H2, (2.0,), 0.5, inner=1.0, n_nodes=10), ValueError, "`n_nodes` must be an integer"),
    (lambda: exhaustion(H2, (2.0,), 0.5, inner=1.0, n_nodes="many"), ValueError, "`n_nodes` must be 'auto'"),
    (lambda: exhaustion(H2, (2.0,), 0.5, inner=1.0, tolerance=-1.0), ValueError, "`tolerance` must be"),
    (lambda: exhaustion(H2, (2.0,), 0.5, inner=1.0, n_queries=1), ValueError, "`n_queries` must be"),
]


@pytest.mark.parametrize(("call", "kind", "text"), BAD)
def test_bad_values_are_named(call, kind, text):
    with pytest.raises(kind, match=text):
        call()
