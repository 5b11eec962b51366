"""The search for the bandwidth finds the one the target was made with."""

import numpy as np
import pytest

from manifoldrf import HeatKernel, relative_error
from manifoldrf.baselines import GERF, RFF, GaussianFeatures, Nystrom, SpectralFeatures, tune_bandwidth

X = np.random.default_rng(0).standard_normal((60, 2))
POINTS = np.random.default_rng(1).standard_normal((40, 2))


def gaussian(points, sigma):
    return np.exp(-((points[:, None] - points[None]) ** 2).sum(axis=2) / (2 * sigma**2))


@pytest.mark.parametrize("sigma", [0.3, 0.8, 2.0])
def test_the_width_of_a_gaussian_is_found(sigma):
    search = tune_bandwidth(Nystrom(), X, gaussian(X, sigma))
    # The last refinement leaves steps of 2 %, and with all points as landmarks the error grows from zero.
    assert search.sigma == pytest.approx(sigma, rel=0.015)
    assert search.error < 0.02


@pytest.mark.parametrize(
    "features", [RFF(n_features=2000), GERF(n_features=2000), GaussianFeatures(n_features=2000)]
)
def test_the_width_is_found_by_random_features_and_at_other_points(features):
    search = tune_bandwidth(features, X, gaussian(POINTS, 0.8), points=POINTS)
    assert search.sigma == pytest.approx(0.8, rel=0.1)  # features are off by some per cent themselves
    assert search.features.sigma == search.sigma
    found = relative_error(search.features.kernel_matrix(POINTS), gaussian(POINTS, 0.8), alignment="frobenius")
    assert found == search.error


def test_the_table_has_every_value_and_the_best_is_the_least():
    search = tune_bandwidth(Nystrom(), X, gaussian(X, 0.8), sigmas=[2.0, 0.5, 1.0])
    assert [sigma for sigma, _ in search.table] == [0.5, 1.0, 2.0]
    assert search.error == min(error for _, error in search.table)
    assert (search.sigma, search.error) in search.table
    assert 15 <= len(tune_bandwidth(Nystrom(), X, gaussian(X, 0.8)).table) <= 40


def test_the_search_is_repeatable_and_leaves_the_estimator_alone():
    features = RFF(n_features=100)
    first, second = (tune_bandwidth(features, X, gaussian(X, 0.8)) for _ in range(2))
    assert first.table == second.table
    assert features.sigma == 1.0
    assert not hasattr(features, "frequencies_")


def test_the_scale_matters_without_alignment():
    target = 3 * gaussian(X, 0.8)
    assert tune_bandwidth(Nystrom(), X, target, sigmas=[0.8]).error < 1e-9
    assert tune_bandwidth(Nystrom(), X, target, sigmas=[0.8], alignment=None).error == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("settings", "kind", "text"),
    [
        (
            {"features": SpectralFeatures(HeatKernel(0.1))},
            TypeError,
            "`features` must be an estimator with a parameter",
        ),
        ({"features": "RFF"}, TypeError, "`features` must be an estimator with a parameter `sigma`. Got 'RFF'"),
        ({"target": np.eye(5)}, ValueError, r"`target` must be of shape \(60, 60\), one row for each point"),
        ({"points": POINTS}, ValueError, r"`target` must be of shape \(40, 40\)"),
        ({"points": POINTS[:, :1]}, ValueError, r"`points` must be an array of shape \(n, 2\)"),
        ({"sigmas": []}, ValueError, "`sigmas` must be a vector of at least one number"),
        ({"sigmas": [1.0, -1.0]}, ValueError, r"`sigmas` must be a vector with entries in \(0, inf\)"),
        ({"alignment": "best"}, ValueError, "`alignment` must be one of"),
        ({"features": Nystrom}, TypeError, "`features` must be an estimator with a parameter `sigma`"),
        ({"features": Nystrom(kernel=gaussian)}, ValueError, "`features` must be without a kernel of its own"),
        ({"X": np.ones((60, 2))}, ValueError, "`X` must be at least two different points"),
    ],
)
def test_bad_values_are_refused(settings, kind, text):
    arguments = {"features": Nystrom(), "X": X, "target": gaussian(X, 0.8), **settings}
    with pytest.raises(kind, match=text):
        tune_bandwidth(arguments.pop("features"), arguments.pop("X"), arguments.pop("target"), **arguments)
