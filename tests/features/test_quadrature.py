"""Weights of anchors."""

import numpy as np
import pytest
from scipy import optimize

from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere, Torus, knn_graph
from manifoldrf.features.fit import nnls_weights, nonnegative_minimum, voronoi_weights


@pytest.mark.parametrize("seed", range(3))
def test_the_nonnegative_minimum_is_that_of_lawson_and_hanson(seed):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(60, 30))
    right = rng.normal(size=60)
    found = nonnegative_minimum(root.T @ root, root.T @ right)
    assert np.allclose(found, optimize.nnls(root, right)[0], atol=1e-8)


def test_least_squares_find_the_weights_of_a_kernel():
    rng = np.random.default_rng(0)
    rows, weights = rng.random((80, 10)), rng.random(10)
    found = nnls_weights(rows, (rows * weights) @ rows.T, np.ones(10), ridge=0.0)
    assert np.allclose(found, weights, atol=1e-8)


def test_an_anchor_that_no_sample_sees_keeps_its_weight():
    rows = np.diag([1.0, 0.0])
    assert np.allclose(nnls_weights(rows, np.diag([2.0, 5.0]), np.array([1.0, 3.0]), ridge=1e-9), [2, 3])


def test_cells_hold_the_whole_measure_and_repeated_anchors_share():
    graph = knn_graph(Sphere().grid(300))
    measure = np.random.default_rng(0).random(300)
    weights = voronoi_weights(graph, measure, np.array([0, 7, 100, 100]))
    assert np.isclose(weights.sum(), measure.sum())
    assert weights[2] == weights[3]


@pytest.mark.parametrize("space", [Sphere(), Torus()])
def test_least_squares_beat_cells_and_a_plain_sum(space):
    errors = {}
    for quadrature in ("auto", "voronoi", "uniform"):
        options = {"n_features": 400, "quadrature": quadrature, "random_state": 0}
        model = ManifoldRandomFeatures(HeatKernel(0.05), **options).fit(space)
        errors[quadrature] = model._error[0].quadrature
        assert (model.weights_ >= 0).all()
    assert model.quadrature_ == "uniform"
    assert errors["auto"] < errors["voronoi"] < errors["uniform"]


def test_all_nodes_and_independent_anchors_are_summed_plainly():
    whole = ManifoldRandomFeatures(HeatKernel(0.2), "all", random_state=0).fit(Sphere())
    drawn = ManifoldRandomFeatures(HeatKernel(0.2), 200, anchors="iid", random_state=0).fit(Sphere())
    assert (whole.quadrature_, drawn.quadrature_) == ("uniform", "uniform")
    assert whole._error[0].quadrature < 1e-6
    assert np.allclose(drawn.weights_, whole.graph_.weights[drawn.anchors_] * len(whole.anchors_) / 200)
