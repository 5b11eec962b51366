"""Regression on features against dense formulas with the exact kernel of a small graph."""

import importlib
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

from manifoldrf import (
    CosineKernel,
    DiffusionKernel,
    FarQueryWarning,
    FeatureWarning,
    HeatKernel,
    ManifoldRandomFeatures,
    MaternKernel,
    Sphere,
    TriangleMesh,
    heat_graph,
    knn_graph,
)
from manifoldrf._random import Streams
from manifoldrf.applications import modes as _modes
from manifoldrf.applications.averaging import choose_family
from manifoldrf.applications.modes import compute_modes, decompose, decompose_parts, singular_parts, stretched
from manifoldrf.applications.regression import ManifoldGaussianProcess, ManifoldRidge
from manifoldrf.features import feature_map
from manifoldrf.features.options import fit_options
from manifoldrf.features.problem import make_problem
from manifoldrf.fields.anchors import farthest_anchors, voronoi_weights

N, T = 300, 0.1
NODES = Sphere().grid(N)
GRAPH = heat_graph(NODES, T)
RNG, RNG_WEIGHTS = np.random.default_rng(0), np.random.default_rng(1)
KNOWN = RNG.choice(N, 60, replace=False)
TRUTH = np.sin(3 * NODES[:, 0]) + NODES[:, 2] * NODES[:, 1]
X, Y = NODES[KNOWN], (TRUTH + 0.1 * RNG.normal(size=N))[KNOWN]


def process(kernel=None, **settings):
    settings = {"space": GRAPH, "random_state": 0, "n_jobs": 1, **settings}
    return ManifoldGaussianProcess(HeatKernel(T) if kernel is None else kernel, **settings)


def exact_kernel(kernel):
    """The kernel of the space between all nodes, by eigendecomposition."""
    roots = np.sqrt(GRAPH.weights)
    return kernel.dense(GRAPH) / roots / roots[:, None]


@pytest.mark.parametrize("shape", [(500, 7), (90, 7), (5, 7), (7 * 8 * 16 + 900, 7)])
def test_blocks_of_rows_have_the_singular_values_of_the_whole_whatever_the_number_of_threads(shape):
    """Eight blocks, one, a wide one, and the most there are."""
    rows = np.random.default_rng(0).random(shape)
    rows[:, 0] = rows[:, 1]  # one singular value is rounding
    left, singular, right = singular_parts(rows, 1)
    scale = 100 * np.finfo(np.float64).eps * singular[0]  # some sums of up to a thousand roundings
    np.testing.assert_allclose(singular, np.linalg.svd(rows, compute_uv=False), atol=scale)
    np.testing.assert_allclose((left * singular) @ right, rows, atol=scale)
    for basis in (left.T, right):
        np.testing.assert_allclose(basis @ basis.T, np.eye(len(singular)), atol=100 * np.finfo(np.float64).eps)
    for one, three in zip((left, singular, right), singular_parts(rows, 3), strict=True):
        np.testing.assert_array_equal(one, three)


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
# On so few nodes the table of the heat kernel leaves nothing out; that of a long series is exact to 1e-7.
@pytest.mark.parametrize(
    ("kernel", "tolerance"), [(HeatKernel(T), 1e-8), (MaternKernel(1.5, 1.0, clock="manifold"), 1e-5)]
)
def test_with_all_nodes_as_anchors_it_is_the_exact_process(kernel, tolerance):
    model = process(kernel, optimize=False, variance=0.7, noise=0.02, n_features="all").fit(X, Y)
    mean, cov, likelihood = dense_process(exact_kernel(kernel), Y, 0.7, 0.02)
    found, std = model.predict(NODES, return_std=True)
    np.testing.assert_allclose(found, mean, atol=tolerance)
    np.testing.assert_allclose(std, np.sqrt(np.diag(cov)), atol=tolerance)
    np.testing.assert_allclose(model.predict(NODES, return_cov=True)[1], cov, atol=tolerance)
    assert model.log_marginal_likelihood_ == pytest.approx(likelihood, rel=10 * tolerance)


@pytest.mark.parametrize("n_features", ["all", 120, 40])  # more, twice and fewer features than data
def test_all_is_exact_for_the_kernel_of_the_features(n_features):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FeatureWarning)  # 40 are too few for the sphere, not for this test
        model = process(optimize=False, variance=0.7, noise=0.02, n_features=n_features).fit(X, Y)
    mean, cov, likelihood = dense_process(model.features_.kernel_matrix(NODES), Y, 0.7, 0.02)
    found, std = model.predict(NODES, return_std=True)
    np.testing.assert_allclose(found, mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(std, np.sqrt(np.diag(cov)), rtol=1e-8)
    assert model.log_marginal_likelihood_ == pytest.approx(likelihood, rel=1e-8)
    noisy = model.predict(NODES, return_std=True, include_noise=True)[1]
    np.testing.assert_allclose(noisy**2, std**2 + 0.02, rtol=1e-8)


def test_error_falls_with_the_number_of_anchors():
    mean, cov, _ = dense_process(exact_kernel(HeatKernel(T)), Y, 0.7, 0.02)
    errors = []
    for m in (40, 80, 160, "all"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FeatureWarning)
            model = process(optimize=False, variance=0.7, noise=0.02, n_features=m).fit(X, Y)
        found, std = model.predict(NODES, return_std=True)
        errors.append(max(np.abs(found - mean).max(), np.abs(std - np.sqrt(np.diag(cov))).max()))
    assert (np.diff(errors) < 0).all()
    assert errors[2] < 0.05  # of values between -1.4 and 1.4
    assert errors[3] < 1e-10


def test_posterior_samples_have_the_posterior_mean_and_covariance():
    """4000 draws; z = 5 for 20 means and 210 covariances: a false alarm in fewer than 1 of 5000 seeds."""
    model = process(optimize=False, variance=0.7, noise=0.02, n_features="all").fit(X, Y)
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
    space, plan = space_and_plan(HeatKernel(T))
    found = _modes.find_kernel(
        space, plan, _modes.Data(X, (Y - Y.mean())[:, None], np.ones((len(X), 1))), (None, None)
    )
    family = choose_family(space, found, 1024, 0.7)
    assert len(family.kernels) > 3
    assert model.kernel_ in family.kernels
    kernels = [exact_kernel(kernel) for kernel in family.kernels]
    heights = [np.diag(K)[KNOWN].mean() for K in kernels]
    expected, square = dense_average(kernels, family.log_prior, Y, heights, np.arange(N))
    np.testing.assert_allclose(mean, expected, atol=2e-3)
    np.testing.assert_allclose(std, np.sqrt(square), rtol=0.01)


def test_an_average_too_large_for_memory_is_the_process_of_the_best_kernel(monkeypatch):
    """Five outputs and 300 features fit exactly, and then not."""
    truths = np.column_stack([NODES, NODES[:, 0] * NODES[:, 1], NODES[:, 1] * NODES[:, 2]])
    values = (truths + 0.1 * np.random.default_rng(3).normal(size=truths.shape))[KNOWN[:20]]
    monkeypatch.setattr(_modes, "MOST_ENTRIES", 5 * (N + 1) ** 2)
    mixed = process(n_features="all").fit(X[:20], values)
    assert mixed.features_.kernel_ != mixed.kernel_  # there are shorter times to average
    monkeypatch.setattr(_modes, "MOST_ENTRIES", 5 * (N + 1) ** 2 - 1)
    plain = process(n_features="all").fit(X[:20], values)
    assert plain.features_.kernel_ == plain.kernel_ == mixed.kernel_
    np.testing.assert_allclose(plain.noise_, mixed.noise_, rtol=0.01)
    K, known = exact_kernel(plain.kernel_), KNOWN[:20]
    for k, (variance, noise) in enumerate(zip(plain.variance_, plain.noise_, strict=True)):
        mean, cov, _ = dense_process(K, values[:, k], variance, noise, known)
        found, std = (part[:, k] for part in plain.predict(NODES, return_std=True))
        np.testing.assert_allclose(found, mean, atol=2e-3)
        np.testing.assert_allclose(std, np.sqrt(np.diag(cov)), atol=2e-3)


# ------------------------------------------------------------------------------------------------------- coverage
@pytest.fixture
def coverage(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    return importlib.import_module("bench_coverage")


def shares_held(coverage, space, n, seeds):
    """Share of new values inside 90 % intervals, and the standard error of its mean over the seeds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some fields are too rough for few data
        return coverage.measure(space, n, seeds, coverage.along_space)[:2]


def test_intervals_of_twenty_values_hold_what_they_say(coverage):
    """Fifteen fields, three of each kind. Shares of one field scatter by .09, and the mean by .025 around .9."""
    held, error = shares_held(coverage, (GRAPH, T, Sphere().sample(1000, seed=4), None), 20, 15)
    assert error < 0.04
    assert 0.82 < held < 0.98


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 20, 50, 100, 300, 1000])
@pytest.mark.parametrize("name", ["sphere", "torus", "line"])
def test_intervals_hold_85_to_95_percent_for_any_number_of_values(coverage, name, n):
    """40 seeds; beyond the limits only by two standard errors of the mean over the seeds."""
    held, error = shares_held(coverage, getattr(coverage, name)(), n, 40)
    assert 0.85 - 2 * error < held < 0.95 + 2 * error


# ------------------------------------------------------------------------------------------- levels and the search
@pytest.mark.parametrize(("variance", "noise"), [("auto", "auto"), (0.8, "auto"), ("auto", 0.01)])
def test_levels_are_those_of_the_largest_likelihood(variance, noise):
    model = process(optimize=False, variance=variance, noise=noise).fit(X, Y)
    K = model.features_.kernel_matrix(NODES)
    best = dense_process(K, Y, model.variance_, model.noise_)[2]
    assert best == pytest.approx(model.log_marginal_likelihood_, rel=1e-8)
    assert variance in ("auto", model.variance_)
    assert noise == "auto" or model.noise_ == pytest.approx(noise, rel=1e-12)
    for factor in (0.9, 1.1):  # no neighbour is better
        if variance == "auto":
            assert dense_process(K, Y, factor * model.variance_, model.noise_)[2] < best
        if noise == "auto":
            assert dense_process(K, Y, model.variance_, factor * model.noise_)[2] < best


def dense_profile(K):
    """Largest likelihood over both levels, by a search of its own on a fine grid of ratios."""
    n, y = len(Y), Y - Y.mean()
    values, vectors = np.linalg.eigh(K[np.ix_(KNOWN, KNOWN)])
    squares = (vectors.T @ y) ** 2
    spectra = values + np.geomspace(1e-8, 1e4, 4001)[:, None] * values.mean()
    return np.max(
        -0.5 * (n * np.log(2 * np.pi * (squares / spectra).mean(axis=1)) + np.log(spectra).sum(axis=1) + n)
    )


def test_time_of_a_heat_kernel_is_the_best_even_number_of_steps(fitted):
    step = GRAPH.step_time
    table = {2 * k: dense_profile(exact_kernel(HeatKernel(2 * k * step))) for k in range(1, 25)}
    best = max(table, key=table.get)
    assert fitted.kernel_.t == pytest.approx(best * step)
    assert 2 < best < 48  # not the end of the table
    for kernel, likelihood in fitted.trials_:
        n = round(kernel.t / step)
        if n in table:  # blocks are cut at a millionth
            assert likelihood == pytest.approx(table[n], abs=0.01)


def test_length_scale_of_a_matern_kernel_is_that_of_a_dense_search():
    model = process(MaternKernel(1.5, 0.5, clock="manifold")).fit(X, Y)
    best = max(likelihood for _, likelihood in model.trials_)
    scales = model.kernel_.lengthscale * np.array([0.9, 0.97, 1.03, 1.1])  # the search ends 1 % apart in time
    others = [dense_profile(exact_kernel(MaternKernel(1.5, s, clock="manifold"))) for s in scales]
    assert max(others) < best + 0.01
    assert best == pytest.approx(dense_profile(exact_kernel(model.kernel_)), abs=0.01)


def space_and_plan(kernel, graph=GRAPH, **settings):
    streams = Streams.from_seed(0)
    params = ManifoldRandomFeatures(kernel, **settings).get_params(deep=False)
    options = fit_options(params, streams)
    return make_problem(graph, kernel, options), options


@pytest.mark.parametrize(("n_places", "anchors"), [(20, N), (60, 30)])  # from the data, and from the anchors
def test_exact_blocks_are_those_of_the_dense_series(n_places, anchors):
    space, plan = space_and_plan(DiffusionKernel(6.0), knn_graph(NODES))
    modes = compute_modes(space, NODES[:n_places], anchors, plan.signatures)
    rows = modes.features(DiffusionKernel(9.0))
    assert rows.shape == (n_places, anchors)
    phi, measure = DiffusionKernel(4.5).dense(space.graph)[:n_places], space.measure
    if anchors < N:
        chosen = farthest_anchors(space.graph, anchors)
        phi = phi[:, chosen] * np.sqrt(voronoi_weights(space.graph, measure, chosen) / measure[chosen])
    np.testing.assert_allclose(rows, phi, atol=5e-6)  # a millionth of the series is left out; weights reach 20


def test_processes_can_be_fitted_from_walks():
    options = {"teacher": "walks", "teacher_options": {"n_walks": 1000, "transitions": "weighted"}}
    walked, exact = process(**options).fit(X, Y), process().fit(X, Y)
    assert 0.5 < walked.kernel_.t / exact.kernel_.t < 2
    # Walks move the mean by less than the noise of the data, .1.
    assert np.abs(walked.predict(NODES) - exact.predict(NODES)).mean() < 0.06


# A spike at every node: a smooth field leaves it out, and is then another model than the one that was searched for.
ROUGH = MaternKernel(0.5, 16.0)


@pytest.mark.parametrize("places", [NODES, pytest.param(Sphere().sample(50, seed=1), marks=pytest.mark.slow)])
def test_a_kernel_with_a_spike_is_that_of_the_search_at_the_nodes(places):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FeatureWarning)  # between nodes no field can follow a spike
        model = process(ROUGH, space=knn_graph(NODES)).fit(X, Y)
    assert model.field == "auto"
    assert model.features_.field_ == "interpolated"
    assert model.log_marginal_likelihood_ == pytest.approx(max(v for _, v in model.trials_), abs=0.01)
    assert np.isfinite(model.predict(places, return_std=True)).all()


def test_kernels_without_a_spike_keep_the_best_field(fitted):
    assert fitted.features_.field_ == "step"


@pytest.mark.filterwarnings("ignore:The field 'local'")
def test_features_of_another_model_than_the_one_found_are_reported():
    """The smooth field raises the likelihood by 20: it has no spike."""
    with pytest.warns(FeatureWarning, match=r"do not represent the kernel found, MaternKernel\(nu=0.5"):
        model = process(ROUGH, space=knn_graph(NODES), field="local").fit(X, Y)
    assert model.log_marginal_likelihood_ > max(v for _, v in model.trials_) + 10


def test_lengths_are_doubled_until_they_are_enough():
    """A constant slope wants a kernel far wider than the first 32 lengths of this fine clock allow."""
    graph = heat_graph(NODES, 0.4, n_steps=16)
    assert graph.step_time == pytest.approx(0.025)
    smooth = NODES[KNOWN, 2]
    model = process(HeatKernel(0.05), space=graph).fit(X, smooth)
    assert model.kernel_.t > 0.8
    assert np.abs(model.predict(NODES) - NODES[:, 2]).max() < 0.05


def test_data_rougher_than_the_steps_of_the_graph_are_warned_of():
    """Waves about as long as a step: every shorter time is rounded to two steps, and longer ones are worse."""
    graph = heat_graph(NODES, 0.4, n_steps=2)
    rough, smooth = np.sin(4 * NODES[:, 0]) * np.sin(4 * NODES[:, 1]), NODES[:, 2]
    with pytest.warns(FeatureWarning, match="shortest time of the graph"):
        model = process(HeatKernel(0.4), space=graph).fit(NODES[::2], rough[::2])
    assert model.kernel_.t == pytest.approx(2 * graph.step_time)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FeatureWarning)
        process(HeatKernel(0.4), space=graph).fit(NODES[::2], smooth[::2])


def test_data_that_the_shortest_time_fits_are_not_warned_of():
    """The height at points of the sphere, without noise: the shortest time is the best, and predicts it."""
    points = Sphere().sample(100, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FeatureWarning)
        model = ManifoldGaussianProcess(random_state=0).fit(points, points[:, 2])
    assert model.noise_ < 1e-6


def test_kernels_without_a_time_are_taken_as_they_are():
    assert stretched(CosineKernel(), 2.0, GRAPH) is None
    assert stretched(2.0 * DiffusionKernel(3.0) + DiffusionKernel(1.0), 2.0, GRAPH) == 2.0 * DiffusionKernel(
        6.0
    ) + DiffusionKernel(2.0)
    model = process(gaussian).fit(X, Y)
    assert model.trials_ == ()
    np.testing.assert_array_equal(model.predict(NODES), process(gaussian, optimize=False).fit(X, Y).predict(NODES))
    K = model.features_.kernel_matrix(X)
    assert np.linalg.norm(K - gaussian(X, X)) < 0.05 * np.linalg.norm(K)  # still a function of the space


def gaussian(first, second):
    return np.exp(-((first[:, None] - second) ** 2).sum(axis=2) / 0.4)


# --------------------------------------------------------------------------------------------------- other spaces
def test_labelled_vertices_of_a_mesh_tell_about_the_others():
    tetrahedron = np.array([[0, 1, 2], [0, 2, 3], [0, 3, 1], [1, 3, 2]])
    points = np.array([[1.0, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]])
    for _ in range(4):
        points, tetrahedron = subdivide(points, tetrahedron)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    mesh = TriangleMesh(points, tetrahedron)
    known = np.random.default_rng(1).choice(len(points), 60, replace=False)
    model = process(HeatKernel(0.1), space=mesh).fit(points[known], points[known, 2])
    mean, std = model.predict(points, return_std=True)
    error = np.abs(mean - points[:, 2])
    assert error.max() < 0.05
    assert std[known].mean() < std.mean()


def subdivide(points, faces):
    """Each triangle in four."""
    edges = np.sort(faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1)
    unique, place = np.unique(edges, axis=0, return_inverse=True)
    a, b, c = (len(points) + place.reshape(-1, 3)).T
    i, j, k = faces.T
    new = np.concatenate([np.column_stack(part) for part in ((i, a, c), (a, j, b), (c, b, k), (a, b, c))])
    return np.concatenate([points, points[unique].mean(axis=1)]), new


@pytest.mark.parametrize("levels", [{"optimize": False, "variance": 0.7, "noise": 0.02}, {}])
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
    shared = model._posterior.squares(np.zeros((1, model.features_.n_features_out_)), 1)[0, 0]  # of the offset
    assert abs(np.corrcoef(samples.T)[0, 1] - shared / std[0] ** 2) < 0.12


# ------------------------------------------------------------------------------------------------------- contracts
def not_for_spaces_of_data(estimator):
    """Without a space the points are also the space, in which copies and points of weight 0 count."""
    name = "check_sample_weight_equivalence_on_dense_data"
    return {name: "the points are also the space"}


@parametrize_with_checks(
    [ManifoldRidge(random_state=0, n_jobs=1), ManifoldGaussianProcess(optimize=False, random_state=0, n_jobs=1)],
    expected_failed_checks=not_for_spaces_of_data,
)
@pytest.mark.filterwarnings("ignore")  # the data of the checks are blobs of a few points in many dimensions
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [ManifoldGaussianProcess(random_state=0, n_jobs=1)], expected_failed_checks=not_for_spaces_of_data
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_contract_with_the_search(estimator, check):
    test_scikit_learn_contract(estimator, check)


def test_several_outputs_share_the_kernel_and_have_levels_of_their_own(fitted):
    both = process().fit(X, np.column_stack([Y, 10 * Y + 3]))
    assert both.variance_.shape == both.noise_.shape == both.offset_.shape == (2,)
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


@pytest.mark.parametrize("settings", [{}, {"optimize": False, "variance": 1.0, "noise": 0.01}])
def test_a_process_uses_the_threads_it_is_given(settings, monkeypatch):
    used = set()

    def run(function, items, n_jobs):
        used.add(n_jobs)
        return [function(item) for item in items]

    for module in (_modes, feature_map):
        monkeypatch.setattr(module, "quick_map", run)
    model = process(n_jobs=3, **settings).fit(X, Y)
    model.predict(NODES, return_std=True)
    model.predict(NODES, return_cov=True)
    model.sample_posterior(NODES, 2, random_state=0)
    assert used == {3}


def test_parts_of_the_data_give_the_same_spectrum():
    rng = np.random.default_rng(2)
    rows, targets = rng.normal(size=(50, 8)), rng.normal(size=(50, 2))
    whole = decompose(rows, targets)
    parts = decompose_parts([(rows[:20], targets[:20]), (rows[20:], targets[20:])], 8)
    variance = np.array([0.5, 2.0])
    assert parts.log_likelihood(variance, 0.3) == pytest.approx(whole.log_likelihood(variance, 0.3), rel=1e-12)
    S = rows @ rows.T + 0.3 * np.eye(50)
    expected = sum(
        -0.5 * (y @ np.linalg.solve(v * S, y) + np.linalg.slogdet(2 * np.pi * v * S)[1])
        for y, v in zip(targets.T, variance, strict=True)
    )
    assert whole.log_likelihood(variance, 0.3) == pytest.approx(expected, rel=1e-10)


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
    levels = {"optimize": False, "variance": 0.7, "noise": 0.02}
    weighted = process(**levels).fit(X, Y, sample_weight=mass)
    copied = process(**levels).fit(np.repeat(X, mass, 0), np.repeat(Y, mass))
    for one, other in zip(
        weighted.predict(NODES, return_std=True), copied.predict(NODES, return_std=True), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-7)
    assert weighted.noise_ == pytest.approx(0.02)
    S = 0.7 * weighted.features_.kernel_matrix(X) + np.diag(0.02 / mass)
    centred = Y - np.average(Y, weights=mass)
    expected = -0.5 * (centred @ np.linalg.solve(S, centred) + np.linalg.slogdet(2 * np.pi * S)[1])
    assert weighted.log_marginal_likelihood_ == pytest.approx(expected, rel=1e-8)
    # The average: weights relative to each other leave the noise of a datum of weight 1 as it is.
    model, scaled = process().fit(X, Y, sample_weight=mass), process().fit(X, Y, sample_weight=5 * mass)
    np.testing.assert_allclose(scaled.predict(NODES), model.predict(NODES), atol=1e-9)
    assert scaled.noise_ == pytest.approx(5 * model.noise_, rel=1e-9)


def test_prior_samples_have_the_prior_covariance(fitted):
    """4000 draws; z = 5 for 20 means and 210 covariances: a false alarm in fewer than 1 of 5000 seeds."""
    places, n = NODES[::15], 4000
    samples = fitted.sample_prior(places, n, random_state=1)
    nodes = np.arange(N)[::15]
    cov = fitted.variance_ * exact_kernel(fitted.kernel_)[np.ix_(nodes, nodes)]
    assert (np.abs(samples.mean(axis=0) - fitted.offset_) < 5 * np.sqrt(np.diag(cov) / n)).all()
    errors = np.sqrt((cov**2 + np.outer(np.diag(cov), np.diag(cov))) / n)
    assert (np.abs(np.cov(samples.T) - cov) < 5 * errors).all()
    np.testing.assert_array_equal(samples, fitted.sample_prior(places, n, random_state=1))


def test_constant_data_are_predicted_as_they_are():
    with pytest.warns(FeatureWarning, match="`y` is constant") as caught:
        model = process().fit(X, np.full(len(X), 4.0))
    assert len(caught) == 1  # no advice about the time
    mean, std = model.predict(NODES, return_std=True)
    np.testing.assert_array_equal(mean, 4.0)
    assert std.max() < 1e-6


# ----------------------------------------------------------------------------------------------------------- ridge
@pytest.mark.parametrize("m", [30, 120])
def test_ridge_is_that_of_scikit_learn_on_the_same_features(m):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FeatureWarning)
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


@pytest.mark.parametrize("t", [0.1, 0.3])
def test_ridge_on_a_range_of_times_finds_that_of_samples(t):
    points, rng = Sphere().sample(200, seed=3), np.random.default_rng(4)
    covariance = 4 * np.pi * Sphere().heat_kernel(points, points, t) + 0.04 * np.eye(200)
    values = np.linalg.cholesky(covariance) @ rng.normal(size=(200, 20))
    values /= values.std(axis=0)  # each output counts as much as the others
    features = ManifoldRandomFeatures(scales=(0.05, 0.8), random_state=0, n_jobs=1)
    model = ManifoldRidge(features, space=Sphere(), n_jobs=1).fit(points, values)
    assert abs(np.log2(model.features_.kernel_.t / t)) < 0.5
    scaled = ManifoldRidge(features, space=Sphere(), n_jobs=1).fit(points, values * np.geomspace(1, 100, 20))
    assert scaled.features_.kernel_ == model.features_.kernel_
    for step in range(0, 17, 2):
        given = clone(features).set_params(kernel=HeatKernel(0.05 * 2 ** (step / 4)))
        single = ManifoldRidge(given, space=Sphere(), n_jobs=1).fit(points, values)
        assert single.features_.kernel_ == given.kernel
        assert single.loo_error_ > 0.999 * model.loo_error_


def test_ridge_takes_any_transformer():
    model = ManifoldRidge(PCA(2), alpha=1e-8).fit(NODES, NODES @ [1.0, 2.0, 0.0])
    assert model.features_.n_components_ == 2
    dense, sparse = (
        ManifoldRidge(ManifoldRandomFeatures(HeatKernel(T), sparse_output=form, random_state=0), space=GRAPH)
        for form in (False, True)
    )
    np.testing.assert_allclose(sparse.fit(X, Y).predict(NODES), dense.fit(X, Y).predict(NODES), atol=1e-9)
    straight = ManifoldRidge(FunctionTransformer(), alpha=0.0).fit(NODES, NODES @ [1.0, 2.0, 0.0])
    np.testing.assert_allclose(straight.coef_, [1.0, 2.0, 0.0], atol=1e-12)


# ------------------------------------------------------------------------------------------------------- bad input
@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"noise": 0.0}, "`noise` must be a number in"),
        ({"noise": "cv"}, "`noise` must be 'auto' or a number"),
        ({"variance": -1.0}, "`variance` must be a number in"),
        ({"optimize": "yes"}, "`optimize` must be True or False"),
        ({"n_features": 0}, "`n_features` must be an integer"),
        ({"teacher": "oracle"}, "`teacher` must be"),
        ({"kernel": CosineKernel()}, "`kernel` must be one with nonnegative features"),
        ({"space": NODES[:, :2]}, r"`X` must be points of shape \(n, 2\)"),
        ({"space": "sphere"}, "`space` must be an array of numbers"),
    ],
)
def test_bad_settings_of_a_process_are_named(settings, match):
    with pytest.raises((TypeError, ValueError), match=match):
        process(**settings).fit(X, Y)


def test_bad_calls_are_named(fitted):
    with pytest.raises(ValueError, match="`return_std` must be False with return_cov=True"):
        fitted.predict(NODES, return_std=True, return_cov=True)
    with pytest.raises(TypeError, match="`include_noise` must be True or False"):
        fitted.predict(NODES, include_noise=1)
    with pytest.raises(ValueError, match="`n_samples` must be an integer"):
        fitted.sample_posterior(NODES, 0)
    with pytest.raises(ValueError, match="`alpha` must be 'cv' or a number"):
        ManifoldRidge(alpha="gcv").fit(X, Y)
    with pytest.raises(ValueError, match="`alpha` must be a number in"):
        ManifoldRidge(alpha=-1.0).fit(X, Y)
    with pytest.raises(ValueError, match=r"`sample_weight` must be an array of shape \(60,\)"):
        process().fit(X, Y, sample_weight=[1.0])
    for bad in (-1.5, np.nan, np.inf):
        mass = np.ones(len(X))
        mass[7:9] = bad
        with pytest.raises(ValueError, match=rf"`sample_weight` must be finite .*\. Got {bad} at index 7"):
            ManifoldRidge().fit(X, Y, sample_weight=mass)
    with pytest.raises(ValueError, match=r"`sample_weight` must be not zero for at least two data\. Got 1 of 60"):
        process().fit(X, Y, sample_weight=np.arange(len(X)) == 3)
    for bad in (np.nan, np.inf):
        values = np.where(np.arange(len(Y)) == 7, bad, Y)
        for model in (process(), ManifoldRidge()):
            with pytest.raises(ValueError, match=rf"`y` must be finite, .* leave out .*\. Got {bad} at index 7\."):
                model.fit(X, values)
            with pytest.raises(ValueError, match=r"`y` must be 60 values, one for each row of `X`\. Got 59\."):
                model.fit(X, Y[:59])
    with pytest.raises(TypeError, match="`features` must be None or a transformer"):
        ManifoldRidge(features="auto").fit(X, Y)


@pytest.mark.parametrize("variance", [0.7, "auto"])
def test_a_noise_too_small_to_resolve_is_raised_and_changes_nothing_else(variance):
    """However small it is, variance and standard deviations are those of data without noise."""
    small, smaller = (process(optimize=False, variance=variance, noise=noise).fit(X, Y) for noise in (1e-14, 1e-25))
    assert smaller.noise_ >= 1e-25
    np.testing.assert_allclose(smaller.variance_, small.variance_, rtol=0.2)
    stds = [model.predict(NODES, return_std=True)[1] for model in (small, smaller)]
    np.testing.assert_allclose(stds[1], stds[0], rtol=0.2, atol=1e-4)


def test_data_off_the_space_are_refused():
    far = X + 100.0
    for model in (process(space=NODES), ManifoldRidge(space=NODES, random_state=0)):
        with pytest.warns(FarQueryWarning), pytest.raises(ValueError, match="`X` must be on the space"):
            model.fit(far, Y)


def test_labels_off_the_space_are_left_out_of_the_fit():
    """An outlier with a wild value, last and first: the fit is that of the other labels."""
    few, wild = slice(0, 40), [0.0, 0.0, 9.0]
    scales = ManifoldRandomFeatures(scales=(0.1, 0.4), random_state=0)
    models = [
        process(optimize=False),
        process(space=NODES, n_features=60),
        ManifoldRidge(space=GRAPH, random_state=0),
        ManifoldRidge(scales, space=NODES, random_state=0),
    ]
    for model in models:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FeatureWarning)  # of 60 features
            clean = clone(model).fit(X[few], Y[few])
        for places, values, row in ([*X[few], wild], [*Y[few], 50.0], 40), ([wild, *X[few]], [50.0, *Y[few]], 0):
            with pytest.warns(FeatureWarning, match=f"1 of 41 labels are off the space.*: row {row} of `X`"):
                other = clone(model).fit(places, values)
            for name in ("noise_", "variance_", "offset_", "log_marginal_likelihood_", "intercept_", "loo_error_"):
                if hasattr(clean, name):
                    assert getattr(other, name) == pytest.approx(getattr(clean, name), rel=1e-9)
            np.testing.assert_allclose(other.predict(NODES), clean.predict(NODES), rtol=1e-9, atol=1e-9)
    weights = np.r_[0.0, np.ones(39), 2.0, 3.0]
    with pytest.warns(FeatureWarning, match="2 of 41 labels .*: rows 40, 41 of `X`"):  # rows as given
        ManifoldRidge(space=GRAPH, random_state=0).fit([*X[few], wild, wild], [*Y[few], 50.0, 60.0], weights)
    with pytest.warns(FarQueryWarning), pytest.raises(ValueError, match="Got 2 of 3 points off it"):
        process().fit([X[0], wild, wild], [1.0, 2.0, 3.0])


def test_the_features_of_a_process_say_how_its_graph_was_built():
    rng = np.random.default_rng(0)
    cloud = np.vstack([Sphere().sample(800, seed=0), rng.uniform(2.0, 3.0, size=(5, 3))])
    model = ManifoldGaussianProcess(space=cloud, optimize=False, random_state=0, n_jobs=1).fit(X, Y)
    summary = model.features_.summary()
    assert "5 of 805 points are outliers, left out" in summary
    assert re.search(r"\ngraph +heat graph, 800 nodes", summary)
    assert "as given" in process(optimize=False).fit(X, Y).features_.summary()
    on_sphere = ManifoldGaussianProcess(space=Sphere(), random_state=0, n_jobs=1).fit(X, Y).features_
    assert f"heat graph, {on_sphere.graph_.n_nodes} nodes" in on_sphere.summary()


def test_a_summary_is_the_table_of_notebooks_as_text(fitted):
    rows = dict(re.split(r"  +", line, maxsplit=1) for line in fitted.summary().splitlines())
    assert float(rows["noise variance"]) == pytest.approx(fitted.noise_, rel=1e-3)
    assert "the largest marginal likelihood" in rows["best kernel"]
    assert not re.search(r"\d\.\d{7}", fitted.summary())
    for name, text in rows.items():
        assert name in fitted._repr_html_()
        assert text[:8] in fitted._repr_html_()
    ridge = ManifoldRidge(space=NODES, random_state=0)
    with pytest.raises(ValueError, match="not fitted"):
        ridge.summary()
    assert "leave-one-out error" in ridge.fit(X, Y).summary()
    assert len(repr(ridge)) < 250
