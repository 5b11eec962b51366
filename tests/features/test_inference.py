"""The sums of the paper: over all nodes exactly, over i.i.d. anchors without bias and with variance 1 / m."""

import numpy as np
import pytest
from scipy import stats

from manifoldrf import DiffusionKernel, HeatKernel, ManifoldRandomFeatures, PowerKernel, Sphere, heat_graph

T = 0.3
NODES = Sphere().grid(200)
GRAPH = heat_graph(NODES, t=T, n_steps=8)
SOME = np.array([0, 3, 40, 150, 199])
UNIFORM = None
UNEVEN = 1.0 + 3.0 * (NODES[:, 2] > 0)  # four times as many anchors in the north


def all_nodes(kernel, **settings):
    return ManifoldRandomFeatures(kernel, normalize=False, n_features="all", random_state=0, **settings)


@pytest.mark.parametrize("n", [2, 8, 14])
def test_the_sum_over_all_nodes_is_the_kernel_at_nodes(n):
    kernel = PowerKernel(n)
    for weights in ("uniform", "auto"):
        model = all_nodes(kernel, weights=weights).fit(GRAPH)
        assert model.quadrature_ == "uniform"
        exact = kernel.dense(GRAPH)
        # Entries below 1e-7 of the largest of their column are left out.
        assert np.linalg.norm(model.kernel_matrix(NODES) - exact) < 1e-5 * np.linalg.norm(exact)


def test_the_sum_over_all_nodes_is_the_kernel_of_the_space_in_its_clock():
    model = all_nodes(HeatKernel(T)).fit(GRAPH)
    roots = np.sqrt(GRAPH.weights)
    exact = PowerKernel(8).dense(GRAPH) / np.outer(roots, roots)
    assert np.linalg.norm(model.kernel_matrix(NODES) - exact) < 1e-5 * np.linalg.norm(exact)


@pytest.mark.slow
def test_the_sum_over_all_nodes_of_a_graph_of_neighbours():
    nodes, kernel = Sphere().grid(600), DiffusionKernel(20.0)
    model = all_nodes(kernel, field="interpolated").fit(nodes)
    exact = kernel.dense(model.graph_)
    # Quadratics through the logarithms of nearby values, also at the nodes: 1 % off.
    assert np.linalg.norm(model.kernel_matrix(nodes) - exact) < 0.03 * np.linalg.norm(exact)


def drawn(density, m, seed):
    model = ManifoldRandomFeatures(
        HeatKernel(T),
        normalize=False,
        n_features=m,
        anchors="iid",
        anchor_density=density,
        field="step",
        random_state=seed,
        n_jobs=1,
    )
    return model.fit(GRAPH)


def terms(density, m, seed):
    """What each of m anchors adds to K between some nodes, times m: independent samples, shape (m, pairs)."""
    rows = drawn(density, m, seed).transform(NODES[SOME])
    return m * np.einsum("al,bl->lab", rows, rows).reshape(m, -1)


@pytest.mark.parametrize("density", [UNIFORM, UNEVEN], ids=["uniform", "uneven"])
def test_independent_anchors_are_unbiased_for_the_full_sum(density, global_seed):
    found = np.concatenate([terms(density, 4000, 1000 * global_seed + k) for k in range(4)])
    exact = all_nodes(HeatKernel(T)).fit(GRAPH).kernel_matrix(NODES[SOME]).ravel()
    band = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    limit = stats.norm.isf(1e-6 / (2 * exact.size))  # a false alarm in a million
    assert (np.abs(found.mean(axis=0) - exact) < limit * band).all()
    # The test can fail: a bias of a quarter would be seen.
    assert (limit * band.reshape(5, 5).diagonal() < 0.25 * exact.reshape(5, 5).diagonal()).all()


@pytest.mark.slow
def test_the_variance_is_inverse_to_the_number_of_anchors(global_seed):
    of_one = terms(UNIFORM, 4000, global_seed).var(axis=0).reshape(5, 5).diagonal()
    for m in (25, 100):
        found = [drawn(UNIFORM, m, 1000 * global_seed + k).kernel_matrix(NODES[SOME]).diagonal() for k in range(12)]
        ratio = np.mean(np.var(found, axis=0, ddof=1) / of_one) * m
        # The mean of five nearly independent variances of 12 each: chi squared with 55 degrees, within 3.5 of its
        # standard deviations of 19 %.
        assert 0.33 < ratio < 1.67


@pytest.mark.slow
@pytest.mark.parametrize("density", [UNIFORM, UNEVEN], ids=["uniform", "uneven"])
def test_the_mean_over_many_seeds_is_the_full_sum(density, global_seed):
    found = np.array(
        [drawn(density, 60, 10_000 * global_seed + k).kernel_matrix(NODES[SOME]).ravel() for k in range(200)]
    )
    exact = all_nodes(HeatKernel(T)).fit(GRAPH).kernel_matrix(NODES[SOME]).ravel()
    band = found.std(axis=0, ddof=1) / np.sqrt(200)
    assert (np.abs(found.mean(axis=0) - exact) < stats.t.isf(1e-6 / (2 * exact.size), 199) * band).all()


def test_weights_of_independent_anchors_are_the_measure_over_the_density():
    for density, share in ((UNIFORM, np.full(200, 1 / 200)), (UNEVEN, UNEVEN / UNEVEN.sum())):
        model = drawn(density, 50, 0)
        assert model.quadrature_ == "uniform"
        assert len(model.anchors_) == 50
        np.testing.assert_allclose(model.weights_, GRAPH.weights[model.anchors_] / (50 * share[model.anchors_]))


def test_anchors_are_drawn_from_the_density():
    north = drawn(lambda points: 1e-9 + (points[:, 2] > 0), 60, 0)  # a function of the nodes
    assert (NODES[north.anchors_, 2] > 0).all()
    anchors = np.concatenate([drawn(UNEVEN, 60, seed).anchors_ for seed in range(5)])
    expected = UNEVEN[NODES[:, 2] > 0].sum() / UNEVEN.sum()
    # A false alarm in a million: the share of 300 draws, binomial.
    assert stats.binomtest(int((NODES[anchors, 2] > 0).sum()), len(anchors), expected).pvalue > 1e-6


def test_anchors_may_outnumber_the_nodes_when_they_are_drawn():
    assert drawn(UNIFORM, 500, 0).n_features_out_ == 500


def test_all_weights_of_anchors_sum_to_the_measure():
    for weights in ("voronoi", "unity", "nnls", "auto"):
        model = ManifoldRandomFeatures(
            HeatKernel(T), normalize=False, n_features=60, weights=weights, random_state=0
        ).fit(GRAPH)
        assert (model.weights_ >= 0).all()
        # Cells share out the area exactly; fitted weights make the sums of the features one, within their error.
        assert model.weights_.sum() == pytest.approx(
            GRAPH.weights.sum(), rel=1e-12 if weights == "voronoi" else 0.02
        )
        if weights in ("voronoi", "unity"):
            assert model.quadrature_ == weights
    even = ManifoldRandomFeatures(
        HeatKernel(T), normalize=False, n_features=60, weights="uniform", random_state=0
    ).fit(GRAPH)
    np.testing.assert_allclose(even.weights_, GRAPH.weights[even.anchors_] * 200 / 60)


def test_farthest_anchors_are_far_better_than_drawn_ones():
    exact = all_nodes(HeatKernel(T)).fit(GRAPH).kernel_matrix(NODES)

    def error(model):
        return np.linalg.norm(model.kernel_matrix(NODES) - exact) / np.linalg.norm(exact)

    chosen = ManifoldRandomFeatures(HeatKernel(T), normalize=False, n_features=60, random_state=0).fit(GRAPH)
    assert error(chosen) < 0.3 * error(drawn(UNIFORM, 60, 0))
