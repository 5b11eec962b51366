"""The estimated dimension is the true one, on every manifold and on awkward clouds."""

import re

import numpy as np
import pytest

from manifoldrf import Ellipsoid, FlatTorus, HyperbolicSpace, MobiusStrip, Sphere, Torus
from manifoldrf.geometry.clouds import estimate_dimension

EMBEDDED = [*(Sphere(dim=d) for d in (1, 2, 3, 4)), Ellipsoid(), MobiusStrip(), Torus()]
ALONG = [
    *(Sphere(dim=d) for d in (1, 2, 3, 4)),
    *(FlatTorus(dim=d) for d in (1, 2, 3)),
    *(HyperbolicSpace(dim=d) for d in (2, 3)),
]
CASES = [*((manifold, None) for manifold in EMBEDDED), *((manifold, manifold) for manifold in ALONG)]
NAMES = [f"{manifold}{' along itself' if metric else ''}" for manifold, metric in CASES]


@pytest.mark.parametrize(("manifold", "metric"), CASES, ids=NAMES)
def test_the_dimension_of_every_manifold_is_found(manifold, metric, global_seed):
    assert estimate_dimension(manifold.grid(2000), metric=metric) == manifold.dim
    assert estimate_dimension(manifold.sample(2000, seed=global_seed), metric=metric) == manifold.dim


@pytest.mark.parametrize("scale", [1e-100, 1.0, 1e100])
def test_the_dimension_does_not_depend_on_the_unit_of_length(scale):
    assert estimate_dimension(scale * Torus().sample(1000, seed=0)) == 2


def test_a_line_in_five_dimensions_is_a_line(global_seed):
    rng = np.random.default_rng(global_seed)
    direction = rng.standard_normal(5)
    for along in (np.linspace(0, 1, 300), rng.random(300)):
        assert estimate_dimension(along[:, None] * direction + 7.0) == 1


@pytest.mark.parametrize("n", [50, 4001, 9000])
def test_few_points_and_more_than_are_looked_at_give_the_same(n, global_seed):
    assert estimate_dimension(Sphere().grid(n)) == 2
    assert estimate_dimension(Sphere().sample(n, seed=global_seed)) == 2


def test_three_points_have_a_dimension():
    assert estimate_dimension([[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]) == 1
    assert estimate_dimension([[0.0, 0.0], [1.0, 0.0], [0.4, 0.9]]) == 2  # at most that of the coordinates


@pytest.mark.parametrize("copies", [2, 7, 40])
def test_duplicates_do_not_matter(copies, global_seed):
    for d in (1, 2, 3):
        points = np.repeat(Sphere(dim=d).sample(500, seed=global_seed), copies, axis=0)
        assert estimate_dimension(points) == d


@pytest.mark.parametrize("distinct", [1, 2])
def test_a_cloud_of_one_or_two_places_counts_as_a_line(distinct):
    assert estimate_dimension(np.repeat(np.eye(3)[:distinct], 50, axis=0)) == 1


def test_the_metric_decides():
    """A band of a flat torus, narrow in coordinates only where it is cut open."""
    points = FlatTorus(dim=1).sample(500, seed=0) * [1.0, 0.0]
    assert estimate_dimension(points, metric=FlatTorus(dim=2)) == 1
    outside = FlatTorus(dim=2).sample(500, seed=0) + np.arange(500)[:, None]  # the same points, turns away
    assert estimate_dimension(outside, metric=FlatTorus(dim=2)) == 2
    assert estimate_dimension(outside) == 1


BAD = [
    ({"points": np.zeros((2, 3))}, ValueError, "`points` must be an array with at least 3 row(s) and one column."),
    ({"points": np.zeros(5)}, ValueError, "`points` must be an array of shape (n, d). Got shape (5,)."),
    ({"points": [[0.0], [1.0], [np.nan]]}, ValueError, "`points` must be finite"),
    ({"points": np.eye(3), "metric": "cosine"}, TypeError, "`metric` must be None or a manifold. Got 'cosine'."),
    ({"points": 2 * np.eye(3), "metric": Sphere()}, ValueError, "`points` must be points of Sphere(dim=2"),
]


@pytest.mark.parametrize(("arguments", "kind", "text"), BAD, ids=lambda value: str(value)[:40])
def test_bad_clouds_are_named(arguments, kind, text):
    with pytest.raises(kind, match=re.escape(text)):
        estimate_dimension(**arguments)
