"""The heat kernel as a kernel of scikit-learn; the first checks are those of scikit-learn's own kernel tests."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.metrics.pairwise import pairwise_kernels

from manifoldrf import ManifoldRandomFeatures, ManifoldScaleKernel, Sphere

BORDERS = (0.1, 0.2)  # of octaves of the range (0.05, 0.4)
TIMES = (0.05, 0.1, 0.106, 0.15, 0.4)


@pytest.fixture(scope="module")
def features():
    return ManifoldRandomFeatures(times=(0.05, 0.4), random_state=0, n_jobs=1).fit(Sphere())


@pytest.fixture(scope="module")
def points():
    return Sphere().sample(60, seed=2)


def kernels(features):
    plain = ManifoldScaleKernel(features, 0.12)
    return [
        plain,
        ManifoldScaleKernel(features, 0.12, (0.1, 0.2)),
        ManifoldScaleKernel(features, 0.12, "fixed"),
        2.0 * plain,
        ConstantKernel(3.0) * plain + WhiteKernel(0.1),
        plain * RBF(2.0),
        plain**2,
    ]


@pytest.mark.parametrize("number", range(7))
def test_kernels_and_compounds_pass_the_checks_of_scikit_learn(features, points, number):
    kernel = clone(kernels(features)[number])
    matrix, gradient = kernel(points, eval_gradient=True)
    assert gradient.shape == (60, 60, kernel.n_dims)
    for k in range(kernel.n_dims):
        step = np.eye(kernel.n_dims)[k] * 1e-5
        ends = [kernel.clone_with_theta(kernel.theta + sign * step)(points) for sign in (1, -1)]
        assert_allclose(gradient[..., k], (ends[0] - ends[1]) / 2e-5, atol=1e-6)
    assert_allclose(np.diag(matrix), kernel.diag(points), rtol=1e-10)
    if "White" not in repr(kernel):
        assert_allclose(matrix, kernel(points, points), atol=1e-12)
        assert_allclose(matrix, pairwise_kernels(points, metric=kernel), atol=1e-10)
    again = clone(kernel)
    assert again == kernel
    assert again is not kernel
    assert again.get_params() == kernel.get_params()
    assert again.hyperparameters == kernel.hyperparameters
    assert kernel.requires_vector_input
    assert not kernel.is_stationary()
    for hyperparameter, value in zip(kernel.hyperparameters, np.exp(kernel.theta), strict=False):
        if not hyperparameter.fixed:
            assert kernel.get_params()[hyperparameter.name] == pytest.approx(value)


def test_theta_is_the_logarithm_of_the_time(features, points):
    kernel = ManifoldScaleKernel(features, 0.12)
    assert kernel.theta == np.log(0.12)
    assert_allclose(np.exp(kernel.bounds), [[0.05, 0.4]])
    kernel.theta = np.log([0.2])
    assert kernel.t == pytest.approx(0.2)
    kernel.set_params(t=0.3)
    assert kernel.theta == np.log(0.3)
    fixed = ManifoldScaleKernel(**kernel.get_params() | {"t_bounds": "fixed"})
    assert fixed.theta.shape == (0,)
    assert_array_equal(fixed(points), kernel(points))
    assert ManifoldScaleKernel(features).theta == np.log(features.kernel_.t)


@pytest.mark.parametrize("t", TIMES)
def test_values_and_gradients_are_those_of_the_heat_kernel(features, points, t):
    kernel = ManifoldScaleKernel(features, t)
    found, gradient = kernel(points, eval_gradient=True)
    exact, h = Sphere().heat_kernel(points, points, t) * features.at(t).scale_, 1e-4
    ends = [Sphere().heat_kernel(points, points, t * np.exp(s)) for s in (h, -h)]
    volume = [1 / np.mean(np.diag(end)) for end in ends]
    slope = (ends[0] * volume[0] - ends[1] * volume[1]) / (2 * h)
    assert np.linalg.norm(found - exact) < 0.01 * np.linalg.norm(exact)
    blend = max(abs(change) for _, _, change in features.times_.parts(t))  # of levels that differ by 0.6 %
    tolerance = 0.02 * np.linalg.norm(slope) + 0.006 * blend * np.linalg.norm(exact)
    assert np.linalg.norm(gradient[..., 0] - slope) < tolerance


def test_the_kernel_has_a_continuous_gradient(features, points):
    for border in (*BORDERS, *(2 ** (1 / 6) * t for t in BORDERS)):
        near = [ManifoldScaleKernel(features, border * (1 + s))(points, eval_gradient=True) for s in (-1e-8, 1e-8)]
        assert_allclose(near[0][0], near[1][0], atol=1e-7)
        assert_allclose(near[0][1], near[1][1], atol=1e-5)  # the second derivative, below 100, times the distance


def fisher_deviation(kernel, points):
    """Standard deviation of the estimate of log t, with all hyperparameters unknown."""
    matrix, gradient = kernel(points, eval_gradient=True)
    solved = np.linalg.solve(matrix, np.moveaxis(gradient, 2, 0))
    information = np.einsum("iab,jba->ij", solved, solved) / 2
    return np.sqrt(np.linalg.inv(information)[1, 1])


def test_a_process_regressor_finds_the_time_of_a_sample(features):
    t = 0.25
    points = Sphere().sample(500, seed=7)
    covariance = 4.0 * Sphere().heat_kernel(points, points, t) * features.at(t).scale_
    rng = np.random.default_rng(1)
    values = rng.multivariate_normal(np.zeros(500), covariance + 0.01 * np.eye(500), method="cholesky")
    start = ConstantKernel(1.0) * ManifoldScaleKernel(features) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(start).fit(points, values)
    truth = ConstantKernel(4.0) * ManifoldScaleKernel(features, t) + WhiteKernel(0.01)
    assert abs(model.kernel_.theta[1] - np.log(t)) < 3 * fisher_deviation(truth, points) < 0.5
    assert model.log_marginal_likelihood_value_ >= model.log_marginal_likelihood(truth.theta)
    _, std = model.predict(Sphere().sample(5, seed=8), return_std=True)
    assert (std < 1).all()  # prior: 2


def test_a_clone_with_other_features_has_their_kernel(features, points):
    kernel = ManifoldScaleKernel(features, 0.12)
    kernel(points)
    absolute = clone(features).set_params(normalize=False).fit(Sphere())
    changed = clone(kernel).set_params(features=absolute)
    assert_allclose(changed(points), ManifoldScaleKernel(absolute, 0.12)(points))
