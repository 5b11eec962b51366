"""The contract of all baselines: a scikit-learn transformer with the interface of ManifoldRandomFeatures."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

from manifoldrf import baselines
from manifoldrf.baselines import (
    GERF,
    ORF,
    PORF,
    PRF,
    RFF,
    DiffusionMap,
    GaussianFeatures,
    Nystrom,
    SpectralFeatures,
)

CLASSES = [RFF, ORF, PRF, PORF, GERF, GaussianFeatures, Nystrom, SpectralFeatures, DiffusionMap]
GAUSSIAN = CLASSES[:7]
# An open patch of a paraboloid: all classes can be fitted on it.
_FLAT = np.random.default_rng(0).uniform(-1, 1, size=(300, 2))
X = np.column_stack([_FLAT, 0.3 * (_FLAT**2).sum(axis=1)])
_INSIDE = np.random.default_rng(1).uniform(-0.8, 0.8, size=(70, 2))
NEW = np.column_stack([_INSIDE, 0.3 * (_INSIDE**2).sum(axis=1)])


def make(cls, **settings):
    return cls(**{"n_features": 100, "random_state": 0, **settings})


@pytest.fixture(scope="module", params=CLASSES, ids=lambda cls: cls.__name__)
def fitted(request):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 100 nodes are few for a grid
        return make(request.param).fit(X)


@parametrize_with_checks([cls() for cls in CLASSES])
@pytest.mark.filterwarnings("ignore")  # the data of the checks are blobs of a few points in many dimensions
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def test_the_folder_names_all_that_its_modules_name():
    names = []
    for module in ("nystrom", "random_features", "spectral", "tuning"):
        own = getattr(baselines, module).__all__
        names += own
    assert sorted(names) == sorted(baselines.__all__)
    for name in baselines.__all__:
        assert ">>> " in getattr(baselines, name).__doc__, name


# -------------------------------------------------------------------------------------------- what fits together
def test_kernel_is_the_inner_product_of_features(fitted):
    left, right = fitted.transform(NEW), fitted.transform(X[:40])
    exact = left @ right.T
    # Sums of 100 products, in another order.
    np.testing.assert_allclose(
        fitted.kernel_matrix(NEW, X[:40]), exact, rtol=1e-12, atol=1e-13 * np.abs(exact).max()
    )
    square = left @ left.T
    np.testing.assert_allclose(fitted.kernel_matrix(NEW), square, rtol=1e-12, atol=1e-13 * np.abs(square).max())


def test_kernel_is_symmetric_and_positive_semi_definite(fitted):
    kernel = fitted.kernel_matrix(NEW)
    np.testing.assert_array_equal(kernel, kernel.T)
    values = np.linalg.eigvalsh(kernel)
    assert values[0] >= -1e-13 * values[-1]  # rounding of an eigenvalue of 70 rows


def test_matvec_is_the_kernel_times_a_vector(fitted, monkeypatch):
    v = np.random.default_rng(2).standard_normal((len(NEW), 3))
    exact = fitted.kernel_matrix(NEW) @ v
    tolerance = 1e-12 * np.abs(exact).max()
    np.testing.assert_allclose(fitted.matvec(NEW, v), exact, atol=tolerance)
    np.testing.assert_allclose(fitted.matvec(NEW, v[:, 0]), exact[:, 0], atol=tolerance)
    whole = fitted.transform(NEW)
    monkeypatch.setattr(baselines._base, "_ENTRIES_AT_ONCE", 1000)  # as if the points were very many
    np.testing.assert_allclose(fitted.matvec(NEW, v), exact, atol=tolerance)
    np.testing.assert_array_equal(fitted.transform(NEW), whole)


def test_exact_kernel_is_symmetric_and_of_two_sets(fitted):
    exact = fitted.exact_kernel(NEW)
    tolerance = 1e-12 * np.abs(exact).max()
    np.testing.assert_allclose(exact, exact.T, atol=tolerance)
    np.testing.assert_allclose(fitted.exact_kernel(NEW, NEW[:5]), exact[:, :5], atol=tolerance)


@pytest.mark.parametrize("cls", GAUSSIAN)
@pytest.mark.filterwarnings("ignore::manifoldrf.FeatureWarning")
def test_exact_kernel_of_gaussian_baselines_is_the_gaussian(cls):
    features = make(cls, sigma=0.7).fit(X)
    squared = ((NEW[:, None] - X[None, :30]) ** 2).sum(axis=2)
    np.testing.assert_allclose(features.exact_kernel(NEW, X[:30]), np.exp(-squared / (2 * 0.7**2)), rtol=1e-13)


# ------------------------------------------------------------------------------------------------- bits and types
def test_a_row_does_not_depend_on_the_others(fitted):
    whole = fitted.transform(NEW)
    for rows in (slice(0, 1), slice(3, 4), slice(5, 38), slice(69, 70), slice(63, 66)):
        np.testing.assert_array_equal(fitted.transform(NEW[rows]), whole[rows])


@pytest.mark.filterwarnings("ignore::manifoldrf.FeatureWarning")
def test_the_same_seed_gives_the_same_bits(fitted):
    again = clone(fitted).fit(X)
    np.testing.assert_array_equal(again.transform(NEW), fitted.transform(NEW))


@pytest.mark.parametrize("cls", [RFF, ORF, PRF, PORF, GERF, Nystrom])
def test_another_seed_gives_other_features(cls):
    first, second = (make(cls, random_state=seed).fit(X).transform(NEW) for seed in (0, 1))
    assert np.abs(first - second).max() > 1e-3


def test_pickled_features_are_the_same(fitted):
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.transform(NEW), fitted.transform(NEW))
    assert copy.get_params().keys() == fitted.get_params().keys()


def test_single_precision_in_single_precision_out(fitted):
    single = NEW.astype(np.float32)
    features = fitted.transform(single)
    assert features.dtype == np.float32
    assert fitted.kernel_matrix(single).dtype == fitted.exact_kernel(single).dtype == np.float32
    assert fitted.matvec(single, np.ones(len(single))).dtype == np.float32
    exact = fitted.transform(NEW)
    # Points are off by 6e-8 of their size, at most 1; features have slopes below 100 times their size here.
    assert np.abs(features - exact).max() < 1e-5 * np.abs(exact).max()


def test_output_has_names(fitted):
    names = fitted.get_feature_names_out()
    assert len(names) == fitted.n_features_out_ == fitted.transform(NEW).shape[1]
    assert names[1] == f"{type(fitted).__name__.lower()}1"
    table = clone(fitted).set_output(transform="pandas")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        table = table.fit(pd.DataFrame(X, columns=list("xyz"))).transform(pd.DataFrame(NEW, columns=list("xyz")))
    assert list(table.columns) == list(names)


# ------------------------------------------------------------------------------------------------- bad values
def with_hole(points):
    broken = points.copy()
    broken[3, 1] = np.nan
    return broken


@pytest.mark.parametrize("cls", CLASSES)
def test_bad_data_are_refused(cls):
    with pytest.raises(ValueError, match=r"`[XZ]` must be finite, without NaN or inf"):
        make(cls).fit(with_hole(X))
    with pytest.raises(ValueError, match="Expected 2D array"):
        make(cls).fit(X[:, 0])
    with pytest.raises(ValueError, match=r"`X` must be finite, with entries below 1e\+150"):
        make(cls).fit(1e200 * X)


def test_bad_queries_are_refused(fitted):
    for method in (fitted.transform, fitted.kernel_matrix, fitted.exact_kernel):
        with pytest.raises(ValueError, match=r"has 2 features, but .* is expecting 3 features"):
            method(NEW[:, :2])
        with pytest.raises(ValueError, match=r"`[XZ]` must be finite, without NaN or inf"):
            method(with_hole(NEW))
    with pytest.raises(ValueError, match="`v` must be an array of 70 rows"):
        fitted.matvec(NEW, np.ones(7))


@pytest.mark.parametrize("cls", CLASSES)
def test_not_fitted_is_said(cls):
    for method in ("transform", "kernel_matrix", "exact_kernel", "get_feature_names_out"):
        with pytest.raises(NotFittedError):
            getattr(make(cls), method)(*([NEW] if method != "get_feature_names_out" else []))


@pytest.mark.parametrize("cls", CLASSES)
def test_bad_numbers_of_features_are_refused(cls):
    with pytest.raises(ValueError, match=r"`n_features` must be an integer in \[[12], inf\). Got 0"):
        make(cls, n_features=0).fit(X)
    with pytest.raises(TypeError, match="`n_features` must be an integer"):
        make(cls, n_features=2.5).fit(X)


@pytest.mark.parametrize("cls", GAUSSIAN)
def test_bad_widths_are_refused(cls):
    with pytest.raises(ValueError, match=r"`sigma` must be a number in \[1e-140, inf\). Got 0"):
        make(cls, sigma=0).fit(X)
    with pytest.raises(TypeError, match="`sigma` must be a number"):
        make(cls, sigma="wide").fit(X)


BAD = [
    (
        RFF,
        {"n_features": 7},
        ValueError,
        "`n_features` must be even: each frequency has a cosine and a sine. Got 7",
    ),
    (PRF, {"center": "yes"}, TypeError, "`center` must be True or False"),
    (GERF, {"A": 0.1}, ValueError, r"`A` must be a number in \(-inf, 0\]. Got 0.1"),
    (GERF, {"A": "best"}, ValueError, r"`A` must be 'auto' or a number in \(-inf, 0\]. Got 'best'"),
    (GERF, {"orthogonal": 1}, TypeError, "`orthogonal` must be True or False"),
    (GaussianFeatures, {"anchors": "sobol"}, ValueError, "`anchors` must be one of 'grid', 'uniform'. Got 'sobol'"),
    (Nystrom, {"landmarks": "k-means"}, ValueError, "`landmarks` must be one of 'uniform', 'farthest'"),
    (
        Nystrom,
        {"kernel": "rbf"},
        TypeError,
        "`kernel` must be None or a function of two arrays of points. Got 'rbf'",
    ),
    (
        SpectralFeatures,
        {"n_features": "most"},
        ValueError,
        r"`n_features` must be 'all' or an integer in \[1, inf\)",
    ),
    (SpectralFeatures, {"kernel": "heat"}, TypeError, "`kernel` must be"),
    (DiffusionMap, {"t": 1.0, "steps": 3.0}, ValueError, "`steps` must be None if `t` is given. Got 3.0"),
    (DiffusionMap, {"t": -1.0}, ValueError, r"`t` must be a number in \(0, inf\). Got -1.0"),
    (DiffusionMap, {"constant": None}, TypeError, "`constant` must be True or False"),
]


@pytest.mark.parametrize(("cls", "settings", "kind", "text"), BAD)
def test_bad_options_are_refused(cls, settings, kind, text):
    with pytest.raises(kind, match=text):
        make(cls, **settings).fit(X)
