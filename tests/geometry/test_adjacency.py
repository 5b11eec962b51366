"""Matrices of one's own in the place of W: their forms, clocks, bounds and refusals."""

import copy
import pickle

import numpy as np
import pytest
from scipy import sparse

from manifoldrf import DiffusionKernel, GeneralizedAdjacency, Graph, GraphWarning, Sphere, heat_graph

GRAPH = Graph.from_affinity([[0, 1, 0, 0], [1, 2, 3, 0], [0, 3, 0, 0.5], [0, 0, 0.5, 0]])
A, DEGREES = GRAPH.affinity.toarray(), GRAPH.degrees


def test_the_matrix_is_given_back_as_it_is():
    matrix = np.array([[0.0, -2.0], [-2.0, 5.0]])
    for given in (matrix, matrix.tolist(), sparse.csr_array(matrix), sparse.coo_matrix(matrix)):
        adjacency = GeneralizedAdjacency(given)
        np.testing.assert_array_equal(adjacency.operator.toarray(), matrix)
        assert adjacency.n_nodes == 2
        assert repr(adjacency) == "GeneralizedAdjacency(2 nodes, 3 entries)"


def test_the_scaling_makes_it_unsymmetric():
    s = np.array([1.0, 2.0, 4.0, 0.5])
    scaled = GeneralizedAdjacency(GRAPH.affinity, s).operator.toarray()
    np.testing.assert_allclose(scaled, np.diag(1 / s) @ A @ np.diag(s), rtol=1e-15)


def test_the_random_walk_is_stochastic():
    walk = GeneralizedAdjacency.random_walk(GRAPH)
    np.testing.assert_allclose(walk.operator.toarray(), A / DEGREES[:, None], rtol=1e-14)
    assert walk.radius == pytest.approx(1.0, rel=1e-15)
    assert walk.step_time is None


def test_the_combinatorial_walk_has_the_clock_of_its_largest_degree():
    walk = GeneralizedAdjacency.combinatorial(GRAPH)
    exact = np.eye(4) - (np.diag(DEGREES) - A) / DEGREES.max()
    np.testing.assert_allclose(walk.operator.toarray(), exact, rtol=1e-14)
    assert walk.step_time == 1 / DEGREES.max()
    assert walk.radius == pytest.approx(1.0, rel=1e-15)


def test_the_clock_of_a_heat_graph_is_kept_by_its_walk():
    graph = heat_graph(Sphere().grid(80), t=0.6)
    assert GeneralizedAdjacency.random_walk(graph).step_time == graph.step_time


@pytest.mark.parametrize("seed", range(5))
def test_the_radius_bounds_the_spectrum(seed):
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((9, 9)) * (rng.random((9, 9)) < 0.4)
    matrix += matrix.T
    scaling = rng.random(9) + 0.1
    largest = np.abs(np.linalg.eigvalsh(matrix)).max()
    for adjacency in (GeneralizedAdjacency(matrix), GeneralizedAdjacency(matrix, scaling)):
        assert largest <= adjacency.radius <= np.abs(matrix).sum(axis=1).max() * (1 + 1e-14)
    assert GeneralizedAdjacency(np.zeros((2, 2))).radius == 0


def test_nothing_can_be_changed_from_outside():
    matrix, scaling = A.copy(), np.ones(4)
    adjacency = GeneralizedAdjacency(matrix, scaling, 0.5)
    matrix[:], scaling[:] = 0.0, 7.0
    np.testing.assert_array_equal(adjacency.operator.toarray(), A)
    for one in (adjacency, pickle.loads(pickle.dumps(adjacency)), copy.deepcopy(adjacency)):
        np.testing.assert_array_equal(one.operator.toarray(), A)
        assert one.step_time == 0.5
        for array in (one.symmetric.data, one.scaling, one.operator.data, one.operator.indices):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 1


def isolated():
    with pytest.warns(GraphWarning, match="isolated"):
        return Graph.from_affinity([[0, 1, 0], [1, 0, 0], [0, 0, 0]])


def empty():
    with pytest.warns(GraphWarning, match="isolated"):
        return Graph.from_affinity(np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: GeneralizedAdjacency([[0, 1], [2, 0]]), ValueError, r"`symmetric` must be symmetric\. Got a diff"),
        (lambda: GeneralizedAdjacency(np.ones((2, 3))), ValueError, r"`symmetric` must be a square matrix"),
        (lambda: GeneralizedAdjacency([[np.nan]]), ValueError, r"`symmetric` must be finite"),
        (lambda: GeneralizedAdjacency("matrix"), TypeError, r"`symmetric` must be an array of numbers"),
        (lambda: GeneralizedAdjacency(sparse.csr_array([[1j]])), TypeError, r"`symmetric` must be a matrix of"),
        (lambda: GeneralizedAdjacency(A, [1.0, 2.0]), ValueError, r"`scaling` must be a vector of shape \(4,\)"),
        (lambda: GeneralizedAdjacency(A, [1, 1, 0, 1]), ValueError, r"`scaling` must be .* in \(0, inf\)"),
        (lambda: GeneralizedAdjacency(A, None, 0.0), ValueError, r"`step_time` must be a number in \(0, inf\)"),
        (lambda: GeneralizedAdjacency(A, None, "1"), TypeError, r"`step_time` must be a number in \(0, inf\)"),
        (
            lambda: GeneralizedAdjacency.random_walk(isolated()),
            ValueError,
            r"`graph` must be without isolated nodes\. Got 1 of them\.",
        ),
        (
            lambda: GeneralizedAdjacency.combinatorial(empty()),
            ValueError,
            r"`graph` must be a graph with edges\. Got none\.",
        ),
        (lambda: GeneralizedAdjacency.random_walk(A), TypeError, r"`graph` must be a Graph\. Got ndarray\."),
        (lambda: GeneralizedAdjacency.combinatorial("A"), TypeError, r"`graph` must be a Graph\. Got str\."),
    ],
)
def test_bad_input_names_argument_rule_and_value(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_the_radius_is_a_tight_bound(scale):
    star = np.zeros((30, 30))
    star[0, 1:] = star[1:, 0] = scale
    signed = np.random.default_rng(0).normal(size=(40, 40))
    for matrix in (star, signed + signed.T):
        largest = np.abs(np.linalg.eigvalsh(matrix)).max()
        sizes = np.abs(np.linalg.eigvalsh(np.abs(matrix))).max()
        assert largest <= GeneralizedAdjacency(matrix).radius <= 1.02 * sizes
    kernel = DiffusionKernel(2.0, normalized=False)
    graph = GeneralizedAdjacency(star / scale)
    np.testing.assert_allclose(kernel.matrix(graph), kernel.dense(graph), rtol=1e-8, atol=1e-5)
