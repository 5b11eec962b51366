"""Sparse solves, conjugate gradients and weighted means agree with dense algebra."""

from fractions import Fraction

import numpy as np
import pytest
from oracles import sphere_mesh
from scipy import sparse

from manifoldrf import Graph, mesh_graph
from manifoldrf.applications.interpolation import conjugate_gradients, solve_positive, solve_with_fixed, system_of

RNG = np.random.default_rng(0)


def positive_matrix(n, seed=0):
    root = np.random.default_rng(seed).standard_normal((n, n))
    return root @ root.T / n + np.eye(n)


def test_the_laplacian_is_degrees_minus_affinities():
    affinity = np.array([[2.0, 1, 0], [1, 0, 3], [0, 3, 0]])
    expected = np.diag(affinity.sum(axis=1)) - affinity
    np.testing.assert_array_equal(system_of(Graph.from_affinity(affinity), "harmonic")[0].toarray(), expected)


def test_on_a_cotangent_graph_loops_cancel_and_the_mass_divides():
    graph = mesh_graph(sphere_mesh(60), weights="cotangent")
    dense = graph.affinity.toarray()
    plain = np.diag(dense.sum(axis=1)) - dense
    # Degrees are the masses; the loops, up to 1, are rounded to 1e-16 of them.
    np.testing.assert_allclose(system_of(graph, "harmonic")[0].toarray(), plain, atol=1e-15)
    expected = plain @ np.diag(graph.weights.mean() / graph.weights) @ plain
    np.testing.assert_allclose(
        system_of(graph, "biharmonic")[0].toarray(), expected, atol=1e-14 * np.abs(expected).max()
    )


def test_fixed_values_stay_free_ones_solve_the_system_others_are_nan():
    matrix = positive_matrix(12)
    fixed = np.arange(12) < 4
    free = (np.arange(12) >= 4) & (np.arange(12) < 11)
    values = RNG.standard_normal((12, 2))
    found = solve_with_fixed((sparse.csr_array(matrix), lambda x: matrix @ x), values, fixed, free)
    np.testing.assert_array_equal(found[fixed], values[fixed])
    expected = np.linalg.solve(matrix[np.ix_(free, free)], -matrix[np.ix_(free, fixed)] @ values[fixed])
    np.testing.assert_allclose(found[free], expected, rtol=1e-11)
    assert np.isnan(found[11]).all()


def test_rows_of_very_different_size_are_no_hindrance():
    scale = 10.0 ** np.linspace(-60, 60, 15)
    matrix, right = positive_matrix(15) * scale * scale[:, None], RNG.standard_normal((15, 1)) * scale[:, None]
    found = solve_positive(sparse.csr_array(matrix), lambda x: right - matrix @ x, np.ones(1))
    expected = np.linalg.solve(positive_matrix(15), right / scale[:, None]) / scale[:, None]
    np.testing.assert_allclose(found, expected, rtol=1e-11)


@pytest.mark.parametrize("matrix", [np.ones((2, 2)), np.zeros((2, 2))], ids=["singular", "zero"])
def test_a_singular_matrix_is_an_error_not_a_field(matrix):
    with pytest.raises(ArithmeticError):
        solve_positive(sparse.csr_array(matrix), lambda x: np.array([[1.0], [0.0]]) - matrix @ x, np.ones(1))


@pytest.mark.parametrize("method", ["harmonic", "biharmonic"])
@pytest.mark.parametrize("weights", ["gaussian", "cotangent"])
def test_differences_along_edges_are_products_with_the_matrix(method, weights):
    matrix, action = system_of(mesh_graph(sphere_mesh(60), weights=weights), method)
    field = RNG.standard_normal((60, 2))
    expected = matrix @ field
    np.testing.assert_allclose(action(field), expected, atol=1e-14 * np.abs(expected).max())


@pytest.mark.parametrize("values", [[1.0, -1.0], [1.0, -2.0]])
def test_a_field_that_vanishes_to_rounding_is_no_hindrance(values):
    """The mean of what surrounds a free node is zero, and corrections are as large as it."""
    star = np.zeros((3, 3))
    star[0, 1:] = star[1:, 0] = [0.3 * abs(values[1]), 0.3]
    known, fixed = np.array([[0.0], *[[value] for value in values]]), np.array([False, True, True])
    found = solve_with_fixed(system_of(Graph.from_affinity(star), "harmonic"), known, fixed, ~fixed)
    np.testing.assert_allclose(found, known, atol=1e-15)


def uneven_problem(seed):
    """A path with edges across, affinities from 1e-9 to 1e9, and some nodes that are fixed."""
    rng = np.random.default_rng(seed)
    affinity = np.triu(10.0 ** rng.uniform(-9, 9, (7, 7)) * (rng.random((7, 7)) < 0.3), 1)
    affinity += np.diag(10.0 ** rng.uniform(-9, 9, 6), 1)
    fixed = rng.random(7) < 0.3
    fixed[rng.integers(7)] = True
    return Graph.from_affinity(affinity + affinity.T), rng.standard_normal((7, 1)), fixed


def rational_field(graph, values, fixed):
    """The harmonic field in rational numbers, which round nothing: each free node is eliminated in turn."""
    affinity = [[Fraction(x) for x in row] for row in graph.affinity.toarray()]
    order = [*np.flatnonzero(~fixed), *np.flatnonzero(fixed)]
    n_free = int((~fixed).sum())
    for place, node in enumerate(order[:n_free]):  # a star becomes edges between its ends
        later = order[place + 1 :]
        total = sum(affinity[node][k] for k in later)
        for i in later:
            for j in later:
                affinity[i][j] += affinity[i][node] * affinity[node][j] / total
    field = [Fraction(x) for x in values[:, 0]]
    for place in reversed(range(n_free)):
        node, later = order[place], order[place + 1 :]
        field[node] = sum(affinity[node][k] * field[k] for k in later) / sum(affinity[node][k] for k in later)
    return np.array([[float(x)] for x in field])


@pytest.mark.parametrize("seed", range(10))
def test_harmonic_fields_are_right_however_much_affinities_differ(seed):
    graph, values, fixed = uneven_problem(seed)
    expected = rational_field(graph, values, fixed)
    np.testing.assert_allclose(
        solve_with_fixed(system_of(graph, "harmonic"), values, fixed, ~fixed), expected, atol=1e-8
    )


def test_conjugate_gradients_solve_each_column_by_its_own_matrix():
    matrices = [positive_matrix(20, seed) for seed in range(3)]
    right = RNG.standard_normal((20, 3))

    def action(X, at):
        return np.stack([matrices[j] @ x for j, x in zip(at, X.T, strict=True)], axis=1)

    found, residual = conjugate_gradients(action, right, tol=1e-13, max_iterations=100)
    expected = np.stack([np.linalg.solve(m, b) for m, b in zip(matrices, right.T, strict=True)], axis=1)
    # Eigenvalues are above 1, so the error of x is below 1e-13 |b|.
    assert np.linalg.norm(found - expected, axis=0).max() <= 1e-12 * np.linalg.norm(right, axis=0).max()
    assert residual <= 1e-13
