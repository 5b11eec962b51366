"""Features of every time from one fit."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import eval_legendre

from manifoldrf import HeatKernel, ManifoldRandomFeatures, MaternKernel, Sphere, heat_graph, load
from manifoldrf.features.errors import relative_error

RANGE = (0.1, 0.8)


@pytest.fixture(scope="module")
def sphere():
    return ManifoldRandomFeatures(times=RANGE, random_state=0, n_jobs=1).fit(Sphere())


@pytest.fixture(scope="module")
def queries():
    return Sphere().sample(300, seed=5)


@pytest.mark.parametrize("t", [0.1, 0.166, 0.1999, 0.2, 0.8])
def test_each_time_is_as_accurate_as_a_fit_of_its_own(sphere, queries, t):
    exact = Sphere().heat_kernel(queries, queries, t)
    found = sphere.at(t)
    own = ManifoldRandomFeatures(HeatKernel(t), random_state=0, n_jobs=1).fit(Sphere())
    error = relative_error(found.kernel_matrix(queries) / found.scale_, exact)
    assert error < max(1.2 * relative_error(own.kernel_matrix(queries) / own.scale_, exact), 0.003)
    assert found.scale_ == pytest.approx(own.scale_, rel=0.01)
    assert error / 3 < found.error_.kernel < 4 * error
    assert (found.transform(queries) >= 0).all()
    assert found.kernel == found.kernel_ == HeatKernel(t)


def test_prepared_points_have_the_features_of_each_time(sphere, queries):
    prepared = sphere.prepare(queries)
    for t in (0.1, 0.153, 0.3):
        assert_allclose(prepared.at(t), sphere.at(t).transform(queries), atol=1e-6)
        assert_allclose(prepared.kernel_matrix(t), sphere.at(t).kernel_matrix(queries), atol=5e-6)


@pytest.mark.parametrize("t", [0.12, 0.2001, 0.21, 0.26, 0.7])
def test_smooth_features_have_their_derivative_by_the_logarithm_of_the_time(sphere, queries, t):
    prepared, h = sphere.prepare(queries[:20]), 1e-5  # central differences err by h^2 times third derivatives
    rows, slopes = prepared.smooth(t)
    ends = [prepared.smooth(t * np.exp(sign * h))[0] for sign in (1, -1)]
    slope = (ends[0] @ ends[0].T - ends[1] @ ends[1].T) / (2 * h)
    assert_allclose(slopes @ rows.T + rows @ slopes.T, slope, atol=1e-5)
    assert_allclose(rows @ rows.T, prepared.kernel_matrix(t), atol=0.01)  # of the level before, or of both


def test_smooth_kernels_pass_from_level_to_level(sphere):
    family = sphere.times_
    for number, level in enumerate(family.levels[1:], start=1):
        for place, share in (0.0, 0.0), (1 / 12, 0.5):
            (before, first, _), (after, second, _) = family.parts(level.shortest * 2**place)
            assert (before, after) == (number - 1, number)
            assert (first, second) == pytest.approx((1 - share, share))
        assert family.parts(level.shortest * 2 ** (1 / 6 + 1e-9)) == [(number, 1.0, 0.0)]
    assert family.parts(0.1) == [(0, 1.0, 0.0)]


@pytest.fixture(scope="module")
def wide():
    return ManifoldRandomFeatures(times=(0.08, 2.6), normalize=False, random_state=0).fit(Sphere())


def exact_matern(kernel, points):
    degrees = np.arange(200)
    spectrum = (2 * degrees + 1) / (4 * np.pi) * (kernel.rate + degrees * (degrees + 1.0)) ** -(kernel.nu + 1)
    return np.polynomial.legendre.legval(np.clip(points @ points.T, -1, 1), spectrum)


@pytest.mark.parametrize(
    ("nu", "length"),
    [(2.5, 1.2), pytest.param(1.5, 1.5, marks=pytest.mark.slow), pytest.param(4.0, 1.0, marks=pytest.mark.slow)],
)
def test_matern_kernels_come_from_the_same_tables(wide, queries, nu, length):
    kernel = MaternKernel(nu, length, clock="manifold")
    found = wide.at(kernel)
    assert relative_error(found.kernel_matrix(queries), exact_matern(kernel, queries)) < 0.02
    error = relative_error(found.kernel_matrix(queries), exact_matern(kernel, queries))
    assert error / 3 < found.error_.kernel < 0.03


def test_files_keep_all_times(sphere, queries, tmp_path):
    loaded = load(sphere.save(tmp_path / "model"))
    assert loaded.times == RANGE
    for t in (0.1, 0.21):
        assert_array_equal(loaded.at(t).transform(queries), sphere.at(t).transform(queries))
    one = sphere.at(0.21)
    again = load(one.save(tmp_path / "one"))
    assert again.error_ == one.error_
    assert_array_equal(again.transform(queries), one.transform(queries))


def test_another_fit_forgets_the_times(queries, tmp_path):
    features = ManifoldRandomFeatures(times=(0.2, 0.4), random_state=0, n_jobs=1).fit(Sphere())
    features.set_params(times=None, kernel=HeatKernel(0.3)).fit(Sphere())
    with pytest.raises(ValueError, match="need a fit with a range"):
        features.at(0.3)
    loaded = load(features.save(tmp_path / "model"))
    assert_array_equal(loaded.transform(queries), features.transform(queries))


def test_a_given_graph_serves_one_time_only():
    graph = heat_graph(Sphere(), t=0.1, n_nodes=300)
    with pytest.raises(ValueError, match="`times` must be None on a given graph"):
        ManifoldRandomFeatures(times=RANGE, random_state=0).fit(graph)


@pytest.mark.parametrize("nu", [4.5, 6.0])
def test_smooth_matern_kernels_are_exact_or_refused(wide, queries, nu):
    found = wide.at(MaternKernel(nu, 1.0, clock="manifold"))
    degrees, cosines = np.arange(100), np.clip(queries @ queries.T, -1, 1)
    terms = (2 * degrees + 1) * (2 * nu + degrees * (degrees + 1.0)) ** (-nu - 1)
    exact = sum(term * eval_legendre(k, cosines) for k, term in zip(degrees, terms, strict=True))
    assert relative_error(found.kernel_matrix(queries), exact, alignment="frobenius") < 0.03
    with pytest.raises(ValueError, match="`kernel` must be of a smaller nu"):
        wide.at(MaternKernel(4 * nu, 1.0, clock="manifold"))


def test_spaces_without_a_heat_graph_are_refused():
    noise = np.random.default_rng(0).normal(size=(300, 30))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no structure was found, and so few points may have too few features
        with pytest.raises(ValueError, match="no heat graph"):
            ManifoldRandomFeatures(times=(1.0, 5.0), random_state=0).fit(noise)
