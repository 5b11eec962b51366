"""Distances along a graph against shortest paths, brute force and finite differences."""

import numpy as np
import pytest
import torch
from scipy import sparse

from manifoldrf import FlatTorus, Sphere
from manifoldrf.fields.geodesics import graph_distances
from manifoldrf.geometry.builders import knn_graph
from manifoldrf.geometry.graphs import Graph, GraphWarning

ANCHORS = np.array([3, 100, 299])
SINGLE = 1e-6  # paths of a few lengths, kept in single precision


@pytest.fixture(scope="module")
def graph():
    return knn_graph(Sphere().grid(300))


@pytest.fixture(scope="module")
def distances(graph):
    return graph_distances(graph, ANCHORS)


def test_at_a_node_it_is_the_shortest_path(graph, distances):
    found = distances.at(graph.points)
    # The eight nearest nodes of this graph are its neighbours, so no path through them is shorter.
    np.testing.assert_allclose(found, graph.shortest_paths(ANCHORS).T, atol=SINGLE)


def test_elsewhere_it_is_the_best_way_through_the_nearest_nodes(graph, distances):
    queries = Sphere().sample(20, seed=0)
    paths = graph.shortest_paths(ANCHORS)
    for query, row in zip(queries, distances.at(queries), strict=True):
        steps = np.linalg.norm(graph.points - query, axis=1)
        near = np.argsort(steps)[:8]
        np.testing.assert_allclose(row, (steps[near] + paths[:, near]).min(axis=1), atol=SINGLE)


def test_no_way_is_shorter_than_the_straight_line(graph, distances):
    queries = Sphere().sample(50, seed=1)
    straight = np.linalg.norm(queries[:, None] - graph.points[ANCHORS], axis=2)
    assert (distances.at(queries) >= straight - SINGLE).all()


def test_blocks_of_anchors_change_nothing(graph, monkeypatch):
    everything = np.arange(300)
    whole = graph_distances(graph, everything)
    monkeypatch.setattr("manifoldrf.fields.geodesics._ENTRIES_AT_ONCE", 2000)
    np.testing.assert_array_equal(graph_distances(graph, everything).paths, whole.paths)


def test_a_row_does_not_depend_on_the_other_queries(distances):
    queries = Sphere().sample(9, seed=2)
    whole = distances.at(queries)
    for i in range(9):
        np.testing.assert_array_equal(distances.at(queries[i : i + 1])[0], whole[i])


def test_what_cannot_be_reached_is_finite_and_twice_the_largest_distance():
    line = sparse.diags_array([np.ones(19), np.ones(19)], offsets=[1, -1])
    points = np.column_stack([np.r_[np.arange(20.0), 100 + np.arange(20.0)], np.zeros(40)])
    with pytest.warns(GraphWarning, match="2 pieces"):
        graph = Graph.from_affinity(sparse.block_diag([line, line]), points)
    distances = graph_distances(graph, np.array([0]))
    found = distances.at(np.array([[10.0, 0.0], [110.0, 0.0], [1e6, 0.0]]))
    np.testing.assert_allclose(found[:, 0], [10.0, 38.0, 38.0])  # the line is 19 long


def test_paths_are_those_of_the_graph_whatever_the_number_of_threads(graph):
    anchors = np.arange(0, graph.n_nodes, 3)  # several tasks
    for jobs in (1, 3):
        paths = graph_distances(graph, anchors, jobs).paths
        np.testing.assert_array_equal(paths, graph.shortest_paths(anchors).T.astype(np.float32))


def test_a_single_node_is_at_distance_zero_from_itself():
    with pytest.warns(GraphWarning, match="isolated"):
        graph = Graph.from_affinity([[0.0]], [[1.0, 2.0]])
    assert graph_distances(graph, np.array([0])).at(np.array([[1.0, 2.0]])).item() == 0.0


def test_a_graph_without_points_is_refused():
    with pytest.raises(ValueError, match="no points"):
        graph_distances(Graph.from_affinity([[0.0, 1.0], [1.0, 0.0]]), np.array([0]))


@pytest.fixture(scope="module")
def periodic():
    torus = FlatTorus(dim=1)
    return graph_distances(knn_graph(np.arange(50.0)[:, None] / 50, n_neighbors=2, metric=torus), np.array([0]))


def test_distances_of_a_metric_cross_the_seam(periodic):
    np.testing.assert_allclose(periodic.at(np.array([[0.99], [0.03], [0.5]]))[:, 0], [0.01, 0.03, 0.5], atol=SINGLE)


def slopes(function, queries, step=1e-5):
    """Central differences of the sum of a row, shape (q, d)."""
    result = np.zeros_like(queries)
    for axis in range(queries.shape[1]):
        shift = step * np.eye(queries.shape[1])[axis]
        sides = [function(torch.tensor(queries + sign * shift)).sum(dim=1).numpy() for sign in (1, -1)]
        result[:, axis] = (sides[0] - sides[1]) / (2 * step)
    return result


def test_the_tensor_is_the_same_and_its_gradient_that_of_differences(distances):
    queries = Sphere().sample(10, seed=3)
    leaf = torch.tensor(queries, requires_grad=True)
    found = distances.torch_at(leaf)
    np.testing.assert_allclose(found.detach().numpy(), distances.at(queries), atol=SINGLE)
    found.sum().backward()
    # Double precision: differences are good to about step^2 and rounding / step, both 1e-10.
    np.testing.assert_allclose(leaf.grad.numpy(), slopes(distances.torch_at, queries), atol=1e-6)


def test_the_gradient_at_a_node_is_finite(graph, distances):
    leaf = torch.tensor(graph.points[:5], requires_grad=True)
    distances.torch_at(leaf).sum().backward()
    assert torch.isfinite(leaf.grad).all()


def test_the_gradient_along_a_metric_crosses_the_seam(periodic):
    queries = np.array([[0.993], [0.013], [0.303], [0.707]])
    leaf = torch.tensor(queries, requires_grad=True)
    periodic.torch_at(leaf).sum().backward()
    np.testing.assert_allclose(leaf.grad.numpy(), slopes(periodic.torch_at, queries), atol=1e-6)
