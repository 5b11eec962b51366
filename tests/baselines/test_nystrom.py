"""The Nystrom method: exact at the landmarks, positive semi-definite, with any kernel."""

import numpy as np
import pytest

from manifoldrf import relative_error, thin
from manifoldrf.baselines import Nystrom

X = np.random.default_rng(0).standard_normal((200, 2))
NEW = np.random.default_rng(1).standard_normal((50, 2))


def cauchy(first, second):
    return 1 / (1 + ((first[:, None] - second[None]) ** 2).sum(axis=2))


@pytest.mark.parametrize("landmarks", ["uniform", "farthest"])
@pytest.mark.parametrize("kernel", [None, cauchy])
def test_the_kernel_is_exact_at_the_landmarks(landmarks, kernel):
    features = Nystrom(n_features=40, sigma=0.5, landmarks=landmarks, kernel=kernel, random_state=0).fit(X)
    chosen = features.landmarks_
    exact = features.exact_kernel(chosen)
    rounding = 40 * np.finfo(float).eps * np.linalg.eigvalsh(exact)[-1]  # of what is left out and of products
    np.testing.assert_allclose(features.kernel_matrix(chosen), exact, atol=10 * rounding)
    # Beside a landmark any point will do: k(z, L) K^-1 K. Small eigenvalues cost digits here.
    np.testing.assert_allclose(features.kernel_matrix(NEW, chosen), features.exact_kernel(NEW, chosen), atol=1e-7)


def test_all_points_as_landmarks_give_the_kernel_itself():
    features = Nystrom(n_features=10**6, sigma=0.5).fit(X)
    assert features.n_features_out_ == len(X)
    assert relative_error(features.kernel_matrix(X), features.exact_kernel(X)) < 1e-12


def test_the_error_falls_with_more_landmarks_and_the_kernel_stays_below_the_exact_one():
    errors = []
    for m in (10, 30, 90):
        features = Nystrom(n_features=m, sigma=0.5, landmarks="farthest").fit(X)
        left_out = features.exact_kernel(NEW) - features.kernel_matrix(NEW)
        assert np.linalg.eigvalsh(left_out)[0] > -1e-10  # a projection: what is left out is positive semi-definite
        errors.append(np.linalg.norm(left_out))
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_farthest_landmarks_are_those_of_thinning_and_random_ones_differ():
    features = Nystrom(n_features=30, landmarks="farthest").fit(X)
    np.testing.assert_array_equal(features.landmarks_, X[thin(X, 30)])
    drawn = Nystrom(n_features=30, random_state=0).fit(X).landmarks_
    assert len(np.unique(drawn, axis=0)) == 30


def test_equal_points_leave_the_rank_and_the_kernel_in_order():
    doubled = np.concatenate([X[:20], X[:20]])
    features = Nystrom(n_features=40, sigma=0.3).fit(doubled)
    assert features.rank_ <= 20
    np.testing.assert_allclose(features.kernel_matrix(doubled), features.exact_kernel(doubled), atol=1e-12)


def test_the_parameter_kernel_is_the_function_itself():
    features = Nystrom(n_features=20, kernel=cauchy, random_state=0).fit(X)
    assert features.get_params()["kernel"] is cauchy
    assert features.kernel is cauchy
    np.testing.assert_allclose(features.exact_kernel(NEW), cauchy(NEW, NEW))


@pytest.mark.parametrize(
    ("kernel", "text"),
    [
        (lambda a, b: np.ones(len(a)), r"a function whose result has shape \(20, 20\). Got \(20,\)"),
        (lambda a, b: np.full((len(a), len(b)), np.nan), "a function with finite values. Got NaN or inf"),
        (lambda a, b: a[:, :1] + 2 * b[:, 0], "a symmetric function"),
        (lambda a, b: -cauchy(a, b), "positive semi-definite. Got an eigenvalue of"),
    ],
)
def test_functions_that_are_no_kernels_are_refused(kernel, text):
    with pytest.raises(ValueError, match=f"`kernel` must be {text}"):
        Nystrom(n_features=20, kernel=kernel, random_state=0).fit(X)
