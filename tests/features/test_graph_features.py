"""Graph features as a transformer: the kernel, its forms of graphs, pipelines, and clear errors."""

import networkx as nx
import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline

from manifoldrf import Counts, DiffusionKernel, Exact, GraphRandomFeatures, Sphere, Walks, knn_graph

GRAPH = knn_graph(Sphere().grid(100))
KERNEL = DiffusionKernel(4.0)
K = KERNEL.dense(GRAPH)
NODES = np.array([5, 0, 99, 5])


@pytest.mark.parametrize("teacher", ["auto", "exact", Exact(form="sparse"), Counts(10**7)], ids=str)
def test_inner_products_are_the_kernel(teacher):
    phi = GraphRandomFeatures(KERNEL, teacher=teacher, random_state=0).fit_transform(GRAPH)
    assert isinstance(phi, sparse.csr_array)
    assert phi.shape == (100, 100)
    # Counts: each of a hundred nodes rounds by less than one of 10^7 walkers at each of some twenty lengths.
    np.testing.assert_allclose((phi @ phi.T).toarray(), K, atol=1e-4 if isinstance(teacher, Counts) else 4e-8)


@pytest.mark.parametrize(
    "given", [GRAPH.affinity, GRAPH.affinity.toarray(), nx.from_scipy_sparse_array(GRAPH.affinity)], ids=type
)
def test_graphs_come_as_matrices_or_from_other_libraries(given):
    found = GraphRandomFeatures(KERNEL).fit_transform(given).toarray()
    np.testing.assert_allclose(found, GraphRandomFeatures(KERNEL).fit_transform(GRAPH).toarray(), atol=1e-12)


def test_a_node_has_the_same_features_whatever_others_are_transformed():
    for teacher in ("auto", Walks(50)):
        model = GraphRandomFeatures(KERNEL, teacher=teacher, random_state=0).fit(GRAPH)
        for X in (NODES, NODES[:, None], NODES.tolist(), NODES[:, None] * 1.0):
            assert (model.transform(X) != model.transform(None)[NODES]).nnz == 0
    assert model.n_features_out_ == 100
    assert model.get_feature_names_out()[:2].tolist() == ["node0", "node1"]


def test_normalized_features_have_unit_kernels_on_average():
    model = GraphRandomFeatures(KERNEL, normalize=True, sparse_output=False).fit(GRAPH)
    phi = model.transform(None)
    assert isinstance(phi, np.ndarray)
    assert (phi**2).sum(axis=1).mean() == pytest.approx(1.0, rel=1e-12)
    np.testing.assert_allclose(phi @ phi.T / model.scale_**2, K, atol=4e-8)


def test_a_fit_that_fails_keeps_the_one_before():
    model = GraphRandomFeatures(KERNEL).fit(GRAPH)
    with pytest.raises(TypeError, match="`random_state`"):
        model.set_params(random_state="x").fit(knn_graph(Sphere().grid(50)))
    assert model.graph_ is GRAPH
    assert model.transform([0]).shape == (1, 100)


def test_parameters_of_kernel_and_teacher_are_those_of_the_estimator():
    model = GraphRandomFeatures(KERNEL, teacher=Walks(50), random_state=3)
    assert model.get_params()["teacher__n_walks"] == 50
    model.set_params(kernel__tau=7.0, teacher__n_walks=20)
    assert (model.kernel, model.teacher) == (DiffusionKernel(7.0), Walks(20))
    again = clone(model)
    assert (again.fit_transform(GRAPH) != model.fit_transform(GRAPH)).nnz == 0


@pytest.mark.parametrize("search", ["kernel__tau", "kernel"])
def test_with_a_graph_given_nodes_go_through_pipelines_and_searches(search):
    height, nodes = GRAPH.points[:, 2], np.arange(100)[:, None]
    model = make_pipeline(GraphRandomFeatures(KERNEL, graph=GRAPH), Ridge(1e-3)).fit(nodes[::2], height[::2])
    assert np.abs(model.predict(nodes) - height).max() < 0.2
    taus, folds = [0.1, 4.0], KFold(5, shuffle=True, random_state=0)  # the shorter reaches hardly a neighbour
    values = taus if search == "kernel__tau" else [DiffusionKernel(tau) for tau in taus]
    found = GridSearchCV(model, {f"graphrandomfeatures__{search}": values}, cv=folds, error_score="raise")
    assert found.fit(nodes, height).best_estimator_[0].kernel == KERNEL
    assert found.best_score_ > 0.9
