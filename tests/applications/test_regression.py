"""Regression on features against dense formulas with the exact kernel of a small graph."""

import importlib
import pickle
import warnings
from pathlib import Path
from types import SimpleNamespace

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator

from manifoldrf import (
    DiffusionKernel,
    FarQueryWarning,
    Graph,
    GraphRandomFeatures,
    HeatKernel,
    ManifoldGaussianProcess,
    ManifoldRandomFeatures,
    ManifoldRidge,
    ManifoldWarning,
    MaternKernel,
    Sphere,
    grid_graph,
    heat_graph,
    load,
)
from manifoldrf.applications import processes

T = 0.1
GRAPH = heat_graph(Sphere(), T, n_nodes=300)
NODES = GRAPH.positions
N = len(NODES)
RNG, RNG_WEIGHTS = np.random.default_rng(0), np.random.default_rng(1)
KNOWN = RNG.choice(N, 60, replace=False)
TRUTH = np.sin(3 * NODES[:, 0]) + NODES[:, 2] * NODES[:, 1]
X, Y = NODES[KNOWN], (TRUTH + 0.1 * RNG.normal(size=N))[KNOWN]
LEVELS = {"optimize": False, "variance": 0.7, "noise_variance": 0.02}


def process(kernel=None, **settings):
    settings = {"space": GRAPH, "random_state": 0, "n_jobs": 1, **settings}
    return ManifoldGaussianProcess(HeatKernel(T) if kernel is None else kernel, **settings)


def exact_kernel(kernel):
    """The kernel of the space between all nodes, by eigendecomposition."""
    roots = np.sqrt(GRAPH.weights)
    return kernel.dense(GRAPH) / roots / roots[:, None]


def dense_process(K, y, variance, noise, known=KNOWN):
    """Mean and covariance at all nodes, and the log marginal likelihood, by the textbook's formulas."""
    S = variance * K[np.ix_(known, known)] + noise * np.eye(len(known))
    centred = y - y.mean()
    solved = np.linalg.solve(S, np.column_stack([centred, variance * K[known]]))
    mean = y.mean() + variance * K[:, known] @ solved[:, 0]
    cov = variance * K - variance * K[:, known] @ solved[:, 1:]
    likelihood = -0.5 * (centred @ solved[:, 0] + np.linalg.slogdet(2 * np.pi * S)[1])
    return mean, cov, likelihood


@pytest.fixture(scope="module")
def fitted():
    return process().fit(X, Y)


# ---------------------------------------------------------------------------------------------- the dense oracle
@pytest.mark.parametrize(
    ("kernel", "tolerance"), [(HeatKernel(T), 1e-5), (MaternKernel(1.5, 1.0, clock="manifold"), 1e-5)]
)
def test_with_all_nodes_as_anchors_it_is_the_exact_process(kernel, tolerance):
    model = process(kernel, n_features="all", **LEVELS).fit(X, Y)
    mean, cov, likelihood = dense_process(exact_kernel(kernel), Y, 0.7, 0.02)
    found, std = model.predict(NODES, return_std=True)
    np.testing.assert_allclose(found, mean, atol=tolerance)
    np.testing.assert_allclose(std, np.sqrt(np.diag(cov)), atol=tolerance)
    np.testing.assert_allclose(model.predict(NODES, return_cov=True)[1], cov, atol=tolerance)
    assert model.log_marginal_likelihood_ == pytest.approx(likelihood, rel=10 * tolerance)


@pytest.mark.parametrize("n_features", ["all", 120, 40])  # more, twice and fewer features than data
def test_all_is_exact_for_the_kernel_of_the_features(n_features):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ManifoldWarning)  # 40 are too few for the sphere, not for this test
        model = process(n_features=n_features, **LEVELS).fit(X, Y)
    mean, cov, likelihood = dense_process(model.features_.kernel_matrix(NODES), Y, 0.7, 0.02)
    found, std = model.predict(NODES, return_std=True)
    np.testing.assert_allclose(found, mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(std, np.sqrt(np.diag(cov)), rtol=1e-8)
    assert model.log_marginal_likelihood_ == pytest.approx(likelihood, rel=1e-8)
    noisy = model.predict(NODES, return_std=True, include_noise=True)[1]
    np.testing.assert_allclose(noisy**2, std**2 + 0.02, rtol=1e-8)


def test_posterior_samples_have_the_posterior_mean_and_covariance():
    """4000 draws; z = 5 for 20 means and 210 covariances: a false alarm in fewer than 1 of 5000 seeds."""
    model = process(n_features="all", **LEVELS).fit(X, Y)
    places, n = Sphere().sample(20, seed=3), 4000
    mean, cov = model.predict(places, return_cov=True)
    samples = model.sample_posterior(places, n, random_state=1)
    assert samples.shape == (n, 20)
    assert (np.abs(samples.mean(axis=0) - mean) < 5 * np.sqrt(np.diag(cov) / n)).all()
    errors = np.sqrt((cov**2 + np.outer(np.diag(cov), np.diag(cov))) / n)
    assert (np.abs(np.cov(samples.T) - cov) < 5 * errors).all()
    np.testing.assert_array_equal(samples, model.sample_posterior(places, n, random_state=1))


def dense_average(kernels, log_prior, y, heights, queries):
    """Mean and variance of the mixture at all nodes, of noise included, by a sum over all times and ratios."""
    n, parts = len(y), []
    for K, log_share, height in zip(kernels, log_prior, heights, strict=True):
        for ratio in height * np.geomspace(1e-7, 1e3, 21):
            S = K[np.ix_(KNOWN, KNOWN)] + ratio * np.eye(n)
            solved = np.linalg.solve(S, np.column_stack([np.ones(n), y, K[KNOWN][:, queries]]))
            one, data, cross = solved[:, 0], solved[:, 1], solved[:, 2:]
            offset = one @ y / one.sum()
            misfit = (y - offset) @ (data - offset * one)
            log_share_here = log_share - 0.5 * (
                np.linalg.slogdet(S)[1] + np.log(one.sum()) + (n - 1) * np.log(misfit)
            )
            mean = offset + K[np.ix_(queries, KNOWN)] @ (data - offset * one)
            own = np.diag(K)[queries] - (K[np.ix_(KNOWN, queries)] * cross).sum(axis=0) + ratio
            own += (1 - K[np.ix_(queries, KNOWN)] @ one) ** 2 / one.sum()  # the offset is unknown
            parts.append((log_share_here, mean, misfit / (n - 3) * own))
    shares = np.exp(np.array([part[0] for part in parts]) - max(part[0] for part in parts))
    shares /= shares.sum()
    means, squares = (np.array([part[k] for part in parts]) for k in (1, 2))
    mean = shares @ means
    return mean, shares @ (squares + means**2) - mean**2


def test_few_data_get_the_average_over_times_ratios_variances_and_offsets():
    """All nodes are anchors: features of longer times, made from those of the shortest, are exact to 1e-4."""
    model = process(n_features="all").fit(X, Y)
    mean, std = model.predict(NODES, return_std=True, include_noise=True)
    tried, logs = zip(*model.trials_, strict=True)
    prior = np.gradient(np.log([kernel.t for kernel in tried]))  # even in log t
    shares = np.exp(np.array(logs) - max(logs)) * prior
    kept = np.flatnonzero(shares > 1e-3 * shares.max())
    assert len(kept) > 3
    kernels = [exact_kernel(tried[k]) for k in kept]
    # The constant part of f, 1 over the volume, is left to the offset.
    heights = [np.diag(K)[KNOWN].mean() - 1 / GRAPH.weights.sum() for K in kernels]
    expected, square = dense_average(kernels, np.log(prior[kept]), Y, heights, np.arange(N))
    np.testing.assert_allclose(mean, expected, atol=2e-3)
    np.testing.assert_allclose(std, np.sqrt(square), rtol=0.01)


@pytest.mark.parametrize("n", [12, 30])  # fewer data than features, and more
def test_spectra_of_parts_and_of_turned_and_scaled_features_are_those_of_the_dense_process(n):
    rng = np.random.default_rng(2)
    rows, targets, scale = rng.normal(size=(n, 20)), rng.normal(size=(n, 2)), rng.uniform(0.5, 2.0, 20)
    basis = np.linalg.qr(rng.normal(size=(20, 20)))[0]
    moments = processes.Moments([(rows[:7], targets[:7]), (rows[7:], targets[7:])], n, 20).turned(basis)
    turned = (rows @ basis) * scale
    S = turned @ turned.T + 0.3 * np.eye(n)
    for directions in (True, False):
        spectrum = moments.spectrum(scale, directions=directions)
        found = processes.find_levels(spectrum, (1.0, 0.3))
        for k, y in enumerate(targets.T):
            expected = -0.5 * (y @ np.linalg.solve(S, y) + np.linalg.slogdet(2 * np.pi * S)[1])
            assert found.log_likelihood[k] == pytest.approx(expected, rel=1e-10)
    posterior = processes.plain_posterior(moments.spectrum(scale), processes.find_levels(spectrum, (1.0, 0.3)))
    queries = rng.normal(size=(5, 20))
    np.testing.assert_allclose(
        posterior.means(queries), queries @ turned.T @ np.linalg.solve(S, targets), rtol=1e-8
    )
    expected = queries @ (np.eye(20) - turned.T @ np.linalg.solve(S, turned)) @ queries.T
    np.testing.assert_allclose(posterior.covariances(queries, 1)[..., 1], expected, rtol=1e-7, atol=1e-9)


# ------------------------------------------------------------------------------------------------------- coverage
@pytest.fixture
def coverage(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("bench_coverage")


@pytest.mark.filterwarnings("ignore")  # some fields are too rough for few data; too few data show no space
@pytest.mark.parametrize(
    ("name", "n"), [("along_space", 60), pytest.param("without_space", 20, marks=pytest.mark.slow)]
)
def test_intervals_of_few_values_hold_what_they_say(coverage, name, n):
    """Fifteen fields, three of each kind. Shares of one field scatter by .09, and the mean by .025 around .9."""
    space = GRAPH, T, Sphere().sample(1000, seed=4), None
    held, error = coverage.measure(space, n, 15, getattr(coverage, name))[:2]
    assert error < 0.04
    assert 0.82 < held < 0.98


def test_too_few_data_to_show_a_space_are_told_apart_by_their_coordinates():
    points = Sphere().sample(400, seed=1)
    values = points[:, 2] + 0.1 * np.random.default_rng(0).normal(size=400)
    with pytest.warns(ManifoldWarning, match="too few to show the space"):
        few = ManifoldGaussianProcess(random_state=0).fit(points[:60], values[:60])
    assert few.features_ is None
    mean, std = few.predict(points, return_std=True)
    assert np.abs(mean - points[:, 2]).mean() < 0.1
    assert 0.75 < (np.abs(mean - points[:, 2]) < 1.645 * std).mean() < 1
    assert "coordinates" in few.summary()
    with pytest.warns(ManifoldWarning, match="too few"):  # too many values for an average
        many = ManifoldGaussianProcess(random_state=0).fit(points[:60], np.tile(values[:60, None], (1, 10)))
    np.testing.assert_allclose(many.predict(points)[:, 3], few.predict(points), atol=0.1)
    own = ManifoldGaussianProcess(random_state=0).fit(points[:300], values[:300])
    assert own.features_ is not None


# ------------------------------------------------------------------------------------------- levels and the search
@pytest.mark.parametrize(("variance", "noise"), [("auto", "auto"), (0.8, "auto"), ("auto", 0.01)])
def test_levels_are_those_of_the_largest_likelihood(variance, noise):
    model = process(optimize=False, variance=variance, noise_variance=noise).fit(X, Y)
    K = model.features_.kernel_matrix(NODES)
    best = dense_process(K, Y, model.variance_, model.noise_variance_)[2]
    assert best == pytest.approx(model.log_marginal_likelihood_, rel=1e-8)
    assert variance in ("auto", model.variance_)
    assert noise == "auto" or model.noise_variance_ == pytest.approx(noise, rel=1e-12)
    for factor in (0.99, 1.01):  # no neighbour is better
        if variance == "auto":
            assert dense_process(K, Y, factor * model.variance_, model.noise_variance_)[2] < best
        if noise == "auto":
            assert dense_process(K, Y, model.variance_, factor * model.noise_variance_)[2] < best


def dense_profile(K):
    """Largest likelihood over both levels, by a search of its own on a fine grid of ratios."""
    n, y = len(Y), Y - Y.mean()
    values, vectors = np.linalg.eigh(K[np.ix_(KNOWN, KNOWN)])
    squares = (vectors.T @ y) ** 2
    spectra = values + np.geomspace(1e-8, 1e4, 4001)[:, None] * values.mean()
    return np.max(
        -0.5 * (n * np.log(2 * np.pi * (squares / spectra).mean(axis=1)) + np.log(spectra).sum(axis=1) + n)
    )


def test_time_of_a_heat_kernel_is_that_of_a_dense_search(fitted):
    best, step = max(likelihood for _, likelihood in fitted.trials_), GRAPH.step_time
    others = [dense_profile(exact_kernel(HeatKernel(fitted.kernel_.t * s))) for s in (0.8, 0.94, 1.06, 1.25)]
    assert max(others) < best + 0.05
    assert 2 * step < fitted.kernel_.t < 48 * step  # not an end of the search
    for kernel, likelihood in fitted.trials_:
        if kernel.t < 48 * step:
            assert likelihood == pytest.approx(dense_profile(exact_kernel(kernel)), abs=0.05)


def test_length_scale_of_a_matern_kernel_is_that_of_a_dense_search():
    model = process(MaternKernel(1.5, 0.5, clock="manifold"), n_features="all").fit(X, Y)
    best = max(likelihood for _, likelihood in model.trials_)
    lengths = model.kernel_.lengthscale * np.array([0.9, 0.97, 1.03, 1.1])  # the search ends 4 % apart in time
    others = [dense_profile(exact_kernel(MaternKernel(1.5, s, clock="manifold"))) for s in lengths]
    assert max(others) < best + 0.05
    assert best == pytest.approx(dense_profile(exact_kernel(model.kernel_)), abs=0.05)


def test_each_output_has_its_own_noise(fitted):
    """A clean column beside a noisy one is predicted as well as alone."""
    rng = np.random.default_rng(5)
    clean, noisy = TRUTH[KNOWN] + 0.01 * rng.normal(size=60), TRUTH[KNOWN] + rng.normal(size=60)
    both = process().fit(X, np.column_stack([clean, noisy]))
    alone = process().fit(X, clean)
    assert both.noise_variance_[1] > 100 * both.noise_variance_[0]
    errors = [np.sqrt(np.mean((mean - TRUTH) ** 2)) for mean in (both.predict(NODES)[:, 0], alone.predict(NODES))]
    assert errors[0] < 1.1 * errors[1]


@pytest.mark.filterwarnings("ignore::manifoldrf.FarQueryWarning")
def test_off_the_space_few_values_give_their_own_mean_and_spread():
    """A constant in f and another in the offset cancelled on the space only: the mean off it was anything."""
    values = np.sin(3 * X[:10, 0]) + X[:10, 1]
    mean, std = process().fit(X[:10], values).predict([[9.0, 0.0, 0.0]], return_std=True)
    assert values.min() < mean < values.max()
    assert 0.3 * np.std(values) < std < 5 * np.ptp(values)


@pytest.mark.parametrize("levels", [LEVELS, {}])
def test_off_the_space_the_process_is_as_uncertain_as_before_any_data(levels):
    model = process(**levels).fit(X, Y)
    with pytest.warns(FarQueryWarning, match="away from the space"):
        mean, std = model.predict([[0.0, 0.0, 5.0]], return_std=True)
    height = np.diag(model.features_.kernel_matrix(X)).mean()
    assert mean[0] == model.offset_
    if levels:
        assert std[0] == pytest.approx(np.sqrt(0.7 * height), rel=1e-9)
    else:  # the average also counts larger variances, and the offset is not known for certain
        assert 1 < std[0] / np.sqrt(np.var(Y)) < 5
    with pytest.warns(FarQueryWarning, match="away from the space"):
        samples = model.sample_posterior([[0.0, 0.0, 5.0], [5.0, 0.0, 0.0]], 2000, random_state=0)
    assert samples.std(axis=0) == pytest.approx(std[[0, 0]], rel=0.1)  # 6 standard errors of 2000 draws
    shared = model._posterior.variances(np.zeros((1, model.features_.n_features_out_)), 1)[0, 0]  # of the offset
    assert abs(np.corrcoef(samples.T)[0, 1] - shared / std[0] ** 2) < 0.12


@pytest.mark.parametrize("model", [ManifoldRidge, ManifoldGaussianProcess])
@pytest.mark.filterwarnings("ignore")  # the data of the checks are blobs of a few points in many dimensions
def test_scikit_learn_contract(model):
    """Without a space the points are also the space, in which copies and points of weight 0 count."""
    options = {"optimize": False} if model is ManifoldGaussianProcess else {}
    unlike = {"check_sample_weight_equivalence_on_dense_data": "the points are also the space"}
    check_estimator(model(random_state=0, n_jobs=1, **options), expected_failed_checks=unlike)


def test_several_outputs_share_the_kernel_and_have_levels_of_their_own(fitted):
    both = process().fit(X, np.column_stack([Y, 10 * Y + 3]))
    assert both.variance_.shape == both.noise_variance_.shape == both.offset_.shape == (2,)
    np.testing.assert_allclose(both.variance_, fitted.variance_ * np.array([1, 100]), rtol=1e-5)
    mean, std = both.predict(NODES, return_std=True)
    np.testing.assert_allclose(mean[:, 1], 10 * mean[:, 0] + 3, atol=1e-8)
    np.testing.assert_allclose(std[:, 1], 10 * std[:, 0], rtol=1e-6)
    # Twice the data for the same kernel: only the shares of the kernels in the average change.
    np.testing.assert_allclose(mean[:, 0], fitted.predict(NODES), atol=0.05)
    assert both.predict(NODES[:5], return_cov=True)[1].shape == (5, 5, 2)
    assert both.sample_posterior(NODES[:5], 3).shape == (3, 5, 2)
    ridge = ManifoldRidge(space=GRAPH, alpha=0.1, random_state=0).fit(X, np.column_stack([Y, 10 * Y + 3]))
    alone = ManifoldRidge(space=GRAPH, alpha=0.1, random_state=0).fit(X, Y).predict(NODES)
    np.testing.assert_allclose(ridge.predict(NODES), np.column_stack([alone, 10 * alone + 3]), atol=1e-9)


def test_a_constant_output_leaves_the_others_as_they_are(fitted):
    """The smaller its variance, the more likely it is with any kernel."""
    both = process().fit(X, np.column_stack([Y, np.full(len(Y), 0.1)]))
    assert both.kernel_ == fitted.kernel_
    mean, std = both.predict(NODES, return_std=True)
    np.testing.assert_allclose(mean, np.column_stack([fitted.predict(NODES), np.full(N, 0.1)]), atol=1e-9)
    assert std[:, 1].max() < 1e-6


def test_a_given_variance_means_the_same_in_any_unit_of_the_points():
    own, other = (
        ManifoldGaussianProcess(space=unit * NODES, variance=1.0, random_state=0).fit(unit * X, Y)
        for unit in (1.0, 1024.0)
    )
    assert other.kernel_.kernel.t == pytest.approx(1024**2 * own.kernel_.kernel.t, rel=0.05)
    np.testing.assert_allclose(other.predict(1024 * NODES), own.predict(NODES), atol=0.05)


def test_frames_as_output_of_transformers_change_nothing(fitted):
    with sklearn.config_context(transform_output="pandas"):
        again = process().fit(X, Y)
        ridge = ManifoldRidge(space=nodes_of("matrix"), alpha=0.1).fit([0, 3, 6], [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(again.predict(NODES), fitted.predict(NODES))
    assert ridge.predict([0, 1]).shape == (2,)


@pytest.mark.parametrize("make", [process, lambda: ManifoldRidge(space=GRAPH, random_state=0, n_jobs=1)])
def test_same_seed_same_bits_for_any_number_of_threads_and_after_a_copy(make):
    first = make().fit(X, Y)
    mean = first.predict(NODES)
    np.testing.assert_array_equal(make().set_params(n_jobs=2).fit(X, Y).predict(NODES), mean)
    np.testing.assert_array_equal(clone(first).fit(X, Y).predict(NODES), mean)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(first)).predict(NODES), mean)
    order = np.random.default_rng(5).permutation(len(X))
    np.testing.assert_allclose(make().fit(X[order], Y[order]).predict(NODES), mean, atol=1e-6)
    single = make().fit(X.astype(np.float32), Y.astype(np.float32)).predict(NODES.astype(np.float32))
    np.testing.assert_allclose(single, mean, atol=1e-3)  # of points 1e-7 apart; the kernel of the nodes is smooth


@pytest.mark.parametrize("alpha", [0.3, "cv"])
def test_a_weight_of_ridge_regression_counts_as_so_many_equal_data(alpha):
    mass = RNG_WEIGHTS.integers(0, 4, len(X))
    weighted = ManifoldRidge(space=GRAPH, alpha=alpha, random_state=0).fit(X, Y, sample_weight=mass)
    copied = ManifoldRidge(space=GRAPH, alpha=alpha, random_state=0).fit(np.repeat(X, mass, 0), np.repeat(Y, mass))
    assert weighted.alpha_ == pytest.approx(copied.alpha_, rel=1e-12)
    assert weighted.loo_error_ == pytest.approx(copied.loo_error_, rel=1e-9)
    np.testing.assert_allclose(weighted.predict(NODES), copied.predict(NODES), atol=1e-9)


def test_a_weight_of_a_process_divides_the_noise():
    """Given levels: the posterior of copies, and the likelihood of unequal noise, by dense formulas."""
    mass = RNG_WEIGHTS.integers(1, 4, len(X))
    weighted = process(**LEVELS).fit(X, Y, sample_weight=mass)
    copied = process(**LEVELS).fit(np.repeat(X, mass, 0), np.repeat(Y, mass))
    for one, other in zip(
        weighted.predict(NODES, return_std=True), copied.predict(NODES, return_std=True), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-7)
    assert weighted.noise_variance_ == pytest.approx(0.02)
    S = 0.7 * weighted.features_.kernel_matrix(X) + np.diag(0.02 / mass)
    centred = Y - np.average(Y, weights=mass)
    expected = -0.5 * (centred @ np.linalg.solve(S, centred) + np.linalg.slogdet(2 * np.pi * S)[1])
    assert weighted.log_marginal_likelihood_ == pytest.approx(expected, rel=1e-8)
    # The average: weights relative to each other leave the noise of a datum of weight 1 as it is.
    model, scaled = process().fit(X, Y, sample_weight=mass), process().fit(X, Y, sample_weight=5 * mass)
    np.testing.assert_allclose(scaled.predict(NODES), model.predict(NODES), atol=1e-9)
    assert scaled.noise_variance_ == pytest.approx(5 * model.noise_variance_, rel=1e-9)


def test_constant_data_are_predicted_as_they_are():
    with pytest.warns(ManifoldWarning, match="`y` is constant") as caught:
        model = process().fit(X, np.full(len(X), 4.0))
    assert len(caught) == 1  # no advice about the time
    mean, std = model.predict(NODES, return_std=True)
    np.testing.assert_array_equal(mean, 4.0)
    assert std.max() < 1e-6


@pytest.mark.parametrize("m", [30, 120])
def test_ridge_is_that_of_scikit_learn_on_the_same_features(m):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ManifoldWarning)
        features = ManifoldRandomFeatures(HeatKernel(T), n_features=m, random_state=0)
        model = ManifoldRidge(features, space=GRAPH, alpha=0.3).fit(X, Y)
    expected = Ridge(0.3).fit(model.features_.transform(X), Y).predict(model.features_.transform(NODES))
    np.testing.assert_allclose(model.predict(NODES), expected, atol=1e-9)


def test_penalty_is_the_one_with_the_least_leave_one_out_error():
    """The closed form against fits without each of the data in turn."""

    def left_out(alpha):
        errors = []
        for i in range(len(X)):
            rest = np.arange(len(X)) != i
            errors.append(Ridge(alpha).fit(rows[rest], Y[rest]).predict(rows[[i]])[0] - Y[i])
        return np.sqrt(np.mean(np.square(errors)))

    model = ManifoldRidge(ManifoldRandomFeatures(HeatKernel(T), random_state=0), space=GRAPH).fit(X, Y)
    rows = model.features_.transform(X)
    assert model.loo_error_ == pytest.approx(left_out(model.alpha_), rel=1e-6)
    assert left_out(model.alpha_) < min(left_out(2 * model.alpha_), left_out(model.alpha_ / 2))


def test_ridge_on_a_range_of_times_finds_that_of_samples():
    t = 0.2
    points, rng = Sphere().sample(100, seed=3), np.random.default_rng(4)
    covariance = 4 * np.pi * Sphere().heat_kernel(points, points, t) + 0.04 * np.eye(100)
    values = np.linalg.cholesky(covariance) @ rng.normal(size=(100, 20))
    values /= values.std(axis=0)  # each output counts as much as the others
    features = ManifoldRandomFeatures(times=(0.1, 0.4), random_state=0, n_jobs=1)
    model = ManifoldRidge(features, space=Sphere(), n_jobs=1).fit(points, values)
    assert abs(np.log2(model.features_.kernel_.t / t)) < 0.5
    scaled = ManifoldRidge(features, space=Sphere(), n_jobs=1).fit(points, values * np.geomspace(1, 100, 20))
    assert scaled.features_.kernel_ == model.features_.kernel_
    for other in (0.1, 0.4):
        given = clone(features).set_params(kernel=HeatKernel(other))
        single = ManifoldRidge(given, space=Sphere(), n_jobs=1).fit(points, values)
        assert single.features_.kernel_ == given.kernel
        assert single.loo_error_ > 0.999 * model.loo_error_


def test_ridge_takes_any_transformer():
    dense, sparse = (
        ManifoldRidge(ManifoldRandomFeatures(HeatKernel(T), sparse_output=form, random_state=0), space=GRAPH)
        for form in (False, True)
    )
    np.testing.assert_allclose(sparse.fit(X, Y).predict(NODES), dense.fit(X, Y).predict(NODES), atol=1e-9)
    straight = ManifoldRidge(FunctionTransformer(), alpha=0.0).fit(NODES, NODES @ [1.0, 2.0, 0.0])
    np.testing.assert_allclose(straight.coef_, [1.0, 2.0, 0.0], atol=1e-12)


def test_without_a_penalty_coefficients_are_the_smallest_that_fit():
    twice = np.column_stack([NODES, NODES[:, 0]])  # a singular value is zero up to rounding
    model = ManifoldRidge(FunctionTransformer(), alpha=0.0).fit(twice, NODES @ [1.0, 2.0, 0.0])
    np.testing.assert_allclose(model.coef_, [0.5, 2.0, 0.0, 0.5], atol=1e-12)
    exact = ManifoldRidge(space=GRAPH, alpha=0.0, random_state=0).fit(X, Y)  # more features than data
    nearly = ManifoldRidge(space=GRAPH, alpha=1e-9, random_state=0).fit(X, Y)
    assert exact.loo_error_ == pytest.approx(nearly.loo_error_, rel=1e-2)


# ----------------------------------------------------------------------------------------------------------- nodes
def nodes_of(kind):
    """A graph of 120 nodes without points, as its library has it."""
    graph = nx.watts_strogatz_graph(120, 6, 0.1, seed=0)
    if kind == "networkx":
        return graph
    if kind == "matrix":
        return nx.to_scipy_sparse_array(graph)
    edges = np.array(graph.edges).T
    return SimpleNamespace(edge_index=np.hstack([edges, edges[::-1]]), pos=None, num_nodes=120)


@pytest.mark.parametrize("kind", ["networkx", "matrix", "torch_geometric"])
def test_processes_on_nodes_are_those_of_the_dense_kernel(kind, tmp_path):
    graph, known = Graph.from_affinity(nodes_of(kind)), np.arange(0, 120, 3)
    y = np.sin(known / 9)
    model = ManifoldGaussianProcess(DiffusionKernel(5.0), space=nodes_of(kind), **LEVELS).fit(known, y)
    mean, cov, likelihood = dense_process(DiffusionKernel(5.0).dense(graph), y, 0.7, 0.02, known)
    found, found_cov = model.predict(np.arange(120), return_cov=True)
    np.testing.assert_allclose(found, mean, atol=1e-12)
    np.testing.assert_allclose(found_cov, cov, atol=1e-12)
    assert model.log_marginal_likelihood_ == pytest.approx(likelihood, rel=1e-12)
    again = load(model.save(tmp_path / "nodes.safetensors"))
    assert np.array_equal(again.predict(known[:, None], return_std=True), model.predict(known, return_std=True))


def test_eigenvectors_of_a_large_regular_graph_have_the_same_bits_each_time():
    operator = grid_graph(66, 2).operator
    values, vectors = processes.leading_eigenvectors(operator, 6)
    assert np.array_equal(vectors, processes.leading_eigenvectors(operator, 6)[1])
    np.testing.assert_allclose(operator @ vectors, vectors * values, atol=1e-10)


def test_the_time_on_nodes_is_found_and_intervals_hold():
    """40 fields, known at half of the nodes. An average over times makes 90 % intervals a little wide."""
    graph = Graph.from_affinity(nodes_of("networkx"))
    root, rng = (
        np.linalg.cholesky(DiffusionKernel(8.0).dense(graph) + 1e-10 * np.eye(120)),
        np.random.default_rng(0),
    )
    fields = root @ rng.normal(size=(120, 40))
    noisy, inside, octaves = fields + 0.05 * rng.normal(size=fields.shape), [], []
    for field, values in zip(fields.T, noisy.T, strict=True):
        model = ManifoldGaussianProcess(space=graph).fit(np.arange(0, 120, 2), values[::2])
        mean, std = model.predict(np.arange(1, 120, 2), return_std=True)
        inside.append((np.abs(mean - field[1::2]) < 1.645 * std).mean())
        octaves.append(np.log2(model.kernel_.kernel.tau / 8))
    error = np.std(inside) / np.sqrt(40)
    assert 0.9 - 5 * error < np.mean(inside) < 0.95 + 5 * error
    assert abs(np.mean(octaves)) < 1


def test_ridge_on_nodes_is_ridge_on_the_features_of_the_graph():
    graph, known = nodes_of("matrix"), np.arange(0, 120, 3)
    model = ManifoldRidge(space=graph, alpha=0.1).fit(known, np.sin(known / 9))
    phi = GraphRandomFeatures(sparse_output=False).fit_transform(graph)
    own = Ridge(0.1).fit(phi[known], np.sin(known / 9))
    np.testing.assert_allclose(model.predict(np.arange(120)), own.predict(phi), atol=1e-12)
    with pytest.raises(ValueError, match=r"`X` must be integers in \[0, 119\]"):
        model.fit([0, 120], [1.0, 2.0])
    with pytest.raises(ValueError, match=r"`X` must be nodes of shape \(q,\) or \(q, 1\). Got shape \(2, 2\)"):
        model.predict([[0, 1], [2, 3]])


# ------------------------------------------------------------------------------------------------------- bad input
def test_columns_of_the_space_in_another_order_are_refused():
    space = pd.DataFrame(NODES, columns=["x", "y", "z"])
    with pytest.raises(ValueError, match=r"the columns of the space, x, y, z\. Got z, y, x"):
        ManifoldRidge(space=space).fit(space.iloc[KNOWN, ::-1], Y)


@pytest.mark.parametrize("variance", [0.7, "auto"])
def test_a_noise_too_small_to_resolve_is_raised_and_changes_nothing_else(variance):
    """However small it is, variance and standard deviations are those of data without noise."""
    settings = {"optimize": False, "variance": variance}
    small, smaller = (process(**settings, noise_variance=noise).fit(X, Y) for noise in (1e-14, 1e-25))
    assert smaller.noise_variance_ >= 1e-25
    np.testing.assert_allclose(smaller.variance_, small.variance_, rtol=0.2)
    stds = [model.predict(NODES, return_std=True)[1] for model in (small, smaller)]
    np.testing.assert_allclose(stds[1], stds[0], rtol=0.2, atol=1e-4)


def test_labels_off_the_space_are_left_out_of_the_fit():
    """An outlier with a wild value: the fit is that of the other labels."""
    few, wild = slice(0, 40), [0.0, 0.0, 9.0]
    times = ManifoldRandomFeatures(times=(0.1, 0.4), random_state=0)
    for model in (process(), ManifoldRidge(times, space=Sphere(), random_state=0)):
        clean = clone(model).fit(X[few], Y[few])
        with pytest.warns(ManifoldWarning, match="1 of 41 labels are off the space.*: rows 0 of `X`"):
            other = clone(model).fit([wild, *X[few]], [50.0, *Y[few]])
        np.testing.assert_allclose(other.predict(NODES), clean.predict(NODES), rtol=1e-9, atol=1e-9)
        with pytest.raises(ValueError, match=r"`X` must be on the space.*2 of 3 points off it"):
            model.fit([X[0], wild, wild], [1.0, 2.0, 3.0])
