"""Series fitted to samples of a function of two nodes."""

import functools

import numpy as np
import pytest
from oracles import relative_error

from manifoldrf import DiffusionKernel, MaternKernel, Sphere, knn_graph
from manifoldrf.kernels import CosineKernel, RandomWalkKernel, SeriesKernel


@functools.cache
def sphere_graph():
    return knn_graph(Sphere().grid(200))


def pairs(n_samples, seed):
    """Pairs of nodes, half of them near each other, where a kernel is large."""
    graph, rng = sphere_graph(), np.random.default_rng(seed)
    i, j = rng.integers(0, graph.n_nodes, (2, n_samples))
    near = (graph.affinity @ graph.affinity).tocoo()  # two steps apart
    picked = rng.integers(0, near.nnz, len(i[::2]))
    i[::2], j[::2] = near.row[picked], near.col[picked]
    return i, j


@pytest.mark.parametrize("nonnegative", [True, False])
@pytest.mark.parametrize(
    ("kernel", "limit"),
    [(DiffusionKernel(3.0), 1e-6), (MaternKernel(1.5, 1.5), 1e-4), (RandomWalkKernel(2.0, 4), 1e-10)],
    ids=str,
)
def test_fit_recovers_kernels_at_unseen_pairs(kernel, limit, nonnegative, global_seed):
    graph, (i, j) = sphere_graph(), pairs(1500, global_seed)
    exact = kernel.dense(graph)
    fit = SeriesKernel.fit(graph, i, j, exact[i, j], degree=20, nonnegative=nonnegative)
    assert fit.kernel.n_terms == 21
    assert fit.error <= limit
    assert fit.held_out_error <= 10 * limit
    assert relative_error(fit.kernel.dense(graph), exact) <= 10 * limit  # 40 000 pairs, of which 1500 were seen
    if nonnegative:
        assert min(fit.kernel.alpha) >= 0


def test_fit_of_a_kernel_with_negative_coefficients_needs_them(global_seed):
    graph, (i, j) = sphere_graph(), pairs(1500, global_seed)
    exact = CosineKernel().dense(graph)
    free = SeriesKernel.fit(graph, i, j, exact[i, j], degree=8, nonnegative=False)
    bound = SeriesKernel.fit(graph, i, j, exact[i, j], degree=8)
    assert free.error < 1e-6
    assert bound.error > 1000 * free.error
    assert min(free.kernel.alpha) < 0 <= min(bound.kernel.alpha)


@pytest.mark.parametrize("level", [0.01, 0.1])
def test_noise_is_reported_and_mostly_averaged_out(level, global_seed):
    graph, (i, j) = sphere_graph(), pairs(3000, global_seed)
    exact = DiffusionKernel(3.0).dense(graph)
    values = exact[i, j]
    noise = level * np.sqrt(np.mean(values**2)) * np.random.default_rng(global_seed).standard_normal(3000)
    fit = SeriesKernel.fit(graph, i, j, values + noise)
    # 21 coefficients cannot follow 3000 draws of noise; the norm of the noise varies by some percent.
    assert fit.error == pytest.approx(level, rel=0.1)
    assert fit.held_out_error == pytest.approx(level, rel=0.2)
    assert relative_error(fit.kernel.dense(graph)[i, j], values) < level / 3


@pytest.mark.parametrize(
    ("kind", "nonnegative", "least"),
    [
        ("random", True, 0.9),
        ("random", False, 0.9),
        ("far apart", True, 0.9),
        ("far apart", False, 0.15),  # a function of the distance alone: coefficients of both signs come near
    ],
)
def test_functions_that_are_no_kernel_of_the_graph_give_a_large_honest_error(kind, nonnegative, least, global_seed):
    graph, (i, j) = sphere_graph(), pairs(3000, global_seed)
    if kind == "random":
        values = np.random.default_rng(global_seed).standard_normal((200, 200))[i, j]
    else:
        values = ((graph.points[i] * graph.points[j]).sum(axis=1) < -0.5).astype(np.float64)
    fit = SeriesKernel.fit(graph, i, j, values, nonnegative=nonnegative)
    everywhere = fit.kernel.matrix(graph)[i, j]
    assert fit.error == pytest.approx(relative_error(everywhere, values), rel=1e-3)
    assert fit.error > least
    assert fit.held_out_error > least


def test_the_held_out_error_shows_what_was_only_learned_by_heart(global_seed):
    """21 free coefficients follow half of 42 random numbers, and help nothing elsewhere."""
    i, j = pairs(84, global_seed)
    values = np.random.default_rng(global_seed).standard_normal(42)
    fit = SeriesKernel.fit(sphere_graph(), i[::2], j[::2], values, nonnegative=False)
    assert fit.error < 0.9
    assert fit.held_out_error > 1.0


def test_more_than_64_sources():
    graph = sphere_graph()
    i, j = np.divmod(np.arange(200 * 100), 100)
    exact = RandomWalkKernel(2.0, 3).dense(graph)
    fit = SeriesKernel.fit(graph, i, j, exact[i, j], degree=3)
    np.testing.assert_allclose(fit.kernel.alpha, [1, 3, 3, 1], rtol=1e-9)


def test_polynomials_have_their_own_length():
    assert SeriesKernel([1.0] * 5000).truncation(1e-6) == 5000
    assert SeriesKernel([1.0, 1e-12]).truncation(1e-6) == 1
    assert SeriesKernel([0.0]).truncation() == 1


def test_a_square_is_learned_with_its_nonnegative_root():
    graph = knn_graph(Sphere().grid(300))
    rng = np.random.default_rng(0)
    i, j = rng.integers(0, 300, 3000), rng.integers(0, 40, 3000)
    truth = SeriesKernel([0.5, 0.0, 1.0, 0.25])
    squared = (truth * truth).dense(graph)
    fit = SeriesKernel.fit(graph, i, j, squared[i, j], degree=8, square=True)
    assert fit.error < 1e-4
    assert fit.held_out_error < 1e-4
    assert fit.kernel.is_positive
    assert (fit.kernel.modulation(5) >= 0).all()
    np.testing.assert_allclose(fit.kernel.dense(graph), squared, atol=1e-4 * np.abs(squared).max())


@pytest.mark.parametrize("square", [False, True])
def test_without_a_spike_the_first_coefficient_is_zero_and_the_others_are_found(square):
    graph = knn_graph(Sphere().grid(200))
    i, j = np.divmod(np.arange(200 * 30), 30)
    exact = SeriesKernel([0, 2.0, 1.0])  # f; its square starts at W^2
    kernel = exact * exact if square else exact
    values = kernel.dense(graph)[i, j] + 3.0 * (i == j)  # the spike is not part of the series
    fit = SeriesKernel.fit(graph, i, j, values, degree=8, square=square, spike=False)
    assert fit.kernel.coefficients(1)[0] == 0
    assert SeriesKernel.fit(graph, i, j, values, degree=8, square=square).kernel.coefficients(1)[0] > 1
    clean = SeriesKernel.fit(graph, i, j, kernel.dense(graph)[i, j], degree=8, square=square, spike=False)
    assert clean.error < 1e-4


@pytest.mark.parametrize("square", [False, True])
def test_the_series_of_a_multiple_is_the_multiple_of_the_series(square):
    graph = knn_graph(Sphere().grid(200))
    i, j = np.random.default_rng(0).integers(0, 200, (2, 600))
    values = DiffusionKernel(5.0).dense(graph)[i, j]
    w = np.linspace(0.5, 1, 20)
    one = SeriesKernel.fit(graph, i, j, values, square=square).kernel.spectral(w)
    for factor in (1e-90, 1e-15, 1e-3, 1e90):
        other = SeriesKernel.fit(graph, i, j, factor * values, square=square).kernel.spectral(w)
        np.testing.assert_allclose(other / factor, one, atol=1e-3 * one.max())
