"""Interpolation weights: exact on quadratics, exact at nodes, and finite wherever they are asked."""

import numpy as np
import pytest
from scipy.spatial import ConvexHull

from manifoldrf import FlatTorus, Graph, Sphere, TriangleMesh, heat_graph, knn_graph, mesh_graph
from manifoldrf.fields.interpolated import (
    interpolate_rows,
    interpolation_weights,
    make_interpolation,
    principal_axes,
    solve_positive,
)


def plane(n, seed=0, d=2):
    return np.random.default_rng(seed).uniform(-1.0, 1.0, (n, d))


def cloud(points):
    """A graph with points and no edges that matter."""
    return Graph(knn_graph(np.arange(len(points), dtype=float)[:, None]).affinity, points)


def quadratic(points):
    x, y = points[:, 0], points[:, 1]
    return 1.0 + 2.0 * x - y + 0.5 * x**2 - 3.0 * x * y + y**2


@pytest.mark.parametrize("unit", [1.0, 1e-6, 1e6])
def test_quadratics_in_the_plane_are_reproduced_in_any_unit(unit):
    points, queries = plane(300), 0.7 * plane(200, seed=1)
    found = interpolation_weights(cloud(unit * points), np.arange(300), unit * queries, 2) @ quadratic(points)
    # The ridge of 1e-10 moves coefficients of size 1 by that much, amplified by the condition of few neighbours.
    assert np.abs(found - quadratic(queries)).max() < 1e-6


def test_rows_sum_to_one_and_stay_small():
    points, queries = Sphere().grid(400), Sphere().sample(300, seed=0)
    weights = interpolation_weights(knn_graph(points), np.arange(400), queries, 2)
    assert np.abs(np.asarray(weights.sum(axis=1)) - 1).max() < 1e-12
    assert np.asarray(abs(weights).sum(axis=1)).max() <= 4.0 + 1e-9


def test_at_a_node_only_the_node_counts():
    points = Sphere().grid(400)
    weights = interpolation_weights(knn_graph(points), np.arange(400), points, 2).toarray()
    assert np.array_equal(weights, np.eye(400))


def test_weights_are_continuous_at_a_node():
    points = Sphere().grid(400)
    step = 1e-7 * Sphere().sample(400, seed=0)
    near = interpolation_weights(knn_graph(points), np.arange(400), points + step, 2).toarray()
    # Spacing is .18: a step of 1e-7 changes linear weights by a few times 1e-6.
    assert np.abs(near - np.eye(400)).max() < 2e-5


def test_the_third_order_of_the_error_is_seen_when_nodes_are_refined():
    queries = Sphere().sample(300, seed=0)
    exact = np.exp(queries @ [1.0, -0.5, 0.7])
    errors = []
    for n in (500, 4000):
        points = Sphere().grid(n)
        values = np.exp(points @ [1.0, -0.5, 0.7])
        found = interpolation_weights(knn_graph(points), np.arange(n), queries, 2) @ values
        errors.append(np.sqrt(np.mean((found - exact) ** 2)))
    # Spacing falls by sqrt(8): third order gains 8^1.5 = 22, second order only 8.
    assert errors[0] / errors[1] > 13


def test_known_nodes_may_be_a_subset_in_any_order():
    points = Sphere().grid(600)
    nodes = np.random.default_rng(0).permutation(600)[:450]
    queries = Sphere().sample(200, seed=1)
    found = interpolation_weights(knn_graph(points), nodes, queries, 2) @ points[nodes, 2]
    assert np.abs(found - queries[:, 2]).max() < 5e-3  # spacing .17 cubed


def test_offsets_on_a_flat_torus_take_the_short_way():
    torus = FlatTorus()
    points = torus.grid(900)
    graph = knn_graph(points, metric=torus)
    queries = np.random.default_rng(0).uniform(-0.02, 0.02, (100, 2))  # around the corner

    def wave(at):
        return np.cos(2 * np.pi * at[:, 0]) + np.sin(2 * np.pi * at[:, 1])

    found = interpolation_weights(graph, np.arange(900), queries, 2) @ wave(points)
    inside = interpolation_weights(graph, np.arange(900), queries + 0.5, 2) @ wave(points)
    assert np.abs(found - wave(queries)).max() < 5e-3
    assert np.abs(inside - wave(queries + 0.5)).max() < 5e-3
    assert (
        np.abs(interpolation_weights(graph, np.arange(900), queries + 3.0, 2) @ wave(points) - found).max() < 1e-9
    )


@pytest.mark.parametrize("far", [1.5, 3.0, 1e3, 1e6, 1e12])
def test_far_from_all_nodes_the_values_stay_within_reach_of_the_known_ones(far):
    points = plane(300)
    queries = far * np.array([[1.0, 0.3], [-1.0, 0.0], [0.2, -1.0]])
    weights = interpolation_weights(cloud(points), np.arange(300), queries, 2)
    assert np.isfinite(weights.data).all()
    assert np.abs(np.asarray(weights.sum(axis=1)) - 1).max() < 1e-9
    limit = 4.0 if far < 10 else 1.001  # far away, extrapolation has died out
    assert np.asarray(abs(weights).sum(axis=1)).max() <= limit + 1e-9


@pytest.mark.parametrize(
    ("points", "why"),
    [
        (np.zeros((1, 2)), "one node"),
        (plane(2), "two nodes"),
        (plane(5), "fewer nodes than coefficients"),
        (np.column_stack([np.linspace(0, 1, 30), np.linspace(0, 2, 30)]), "collinear"),
        (np.zeros((30, 2)), "all equal"),
        (np.repeat(plane(4), 10, axis=0), "few places, each ten times"),
        (np.vstack([plane(40), plane(40)]), "each node twice"),
        (
            np.array([[np.cos(a), np.sin(a)] for a in np.arange(5) * 0.4 * np.pi]),
            "all at one distance of the origin",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_degenerate_neighbours_give_finite_weights_that_sum_to_one(points, why):
    queries = np.vstack([points, plane(20, seed=3), np.zeros((1, 2)), [[1e6, -1e6]]])
    graph = Graph(knn_graph(np.arange(50.0)[:, None]).affinity, np.resize(points, (51, 2))[:50])
    weights = interpolation_weights(graph, np.arange(len(points)) % 50, queries, 2)
    assert np.isfinite(weights.data).all(), why
    assert np.abs(np.asarray(weights.sum(axis=1)) - 1).max() < 1e-9
    assert np.asarray(abs(weights).sum(axis=1)).max() <= 4.0 + 1e-9


def test_coincident_nodes_share_equally():
    points = np.vstack([plane(40), plane(40)])
    weights = interpolation_weights(cloud(points), np.arange(80), points[:3], 2).toarray()
    for i in range(3):
        assert weights[i, i] == weights[i, i + 40] == 0.5


def test_more_coordinates_than_neighbours_give_the_weights_of_the_subspace():
    points, queries = plane(200), 0.6 * plane(50, seed=1)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(40, 40)))[0][:2]  # the plane inside R^40
    flat = interpolation_weights(cloud(points), np.arange(200), queries, 2).toarray()
    turned = interpolation_weights(cloud(points @ turn), np.arange(200), queries @ turn, 2).toarray()
    assert np.abs(flat - turned).max() < 1e-6


@pytest.mark.filterwarnings("ignore:.*2 pieces:manifoldrf.GraphWarning")  # the two sheets
def test_meshes_with_all_vertices_known_use_barycentric_weights_and_keep_sheets_apart():
    points = Sphere().grid(200)
    faces = ConvexHull(points).simplices
    both = TriangleMesh(np.vstack([points, 1.01 * points]), np.vstack([faces, faces + 200]))  # sheets .01 apart
    for graph in (mesh_graph(both), heat_graph(both, 0.05)):
        order = np.random.default_rng(0).permutation(400)
        assert make_interpolation(graph, order, 2).rule == "barycentric"
        inner = (order < 200).astype(float)
        queries = np.vstack([points[:20], 1.01 * points[:20]])
        found = interpolation_weights(graph, order, queries, 2) @ inner
        assert np.abs(found - np.repeat([1.0, 0.0], 20)).max() < 1e-9
        assert make_interpolation(graph, order[:300], 2).rule == "tangent"


def test_weights_do_not_depend_on_threads_or_on_the_batch():
    points, queries = Sphere().grid(500), Sphere().sample(1500, seed=0)
    graph = knn_graph(points)
    one = interpolation_weights(graph, np.arange(500), queries, 2)
    two = interpolation_weights(graph, np.arange(500), queries, 2, n_jobs=2)
    some = interpolation_weights(graph, np.arange(500), queries[700:703], 2)
    assert np.array_equal(one.toarray(), two.toarray())
    assert np.array_equal(one[700:703].toarray(), some.toarray())


def test_no_queries_give_no_rows():
    graph = knn_graph(Sphere().grid(50))
    assert interpolation_weights(graph, np.arange(50), np.zeros((0, 3)), 2).shape == (0, 50)


def test_compiled_weights_equal_a_dense_least_squares_reference():
    points, query = plane(12), np.array([[0.1, -0.2]])
    neighbors = np.argsort(np.linalg.norm(points - query, axis=1))[None]
    found = interpolate_rows.py_func(points, query, neighbors, np.zeros(2), 2)[0]
    gaps = points[neighbors[0]] - query
    r = np.linalg.norm(gaps, axis=1) / np.linalg.norm(gaps, axis=1).max()
    x, y = gaps.T
    columns = np.column_stack([np.ones(12), x, y, x * x, x * y, y * y])
    roots = np.sqrt(1 / r**2 - 0.999)
    reference = np.linalg.pinv(roots[:, None] * columns)[0] * roots
    assert np.abs(found - reference).max() < 1e-6


def test_principal_axes_and_solver_agree_with_numpy():
    rng = np.random.default_rng(0)
    for shape in ((20, 5), (5, 20)):
        rows = rng.normal(size=shape) * np.geomspace(1, 0.1, shape[1])
        axes = principal_axes.py_func(rows, 3)  # as such it is only called by compiled code
        exact = np.linalg.svd(rows)[2][:3]
        assert np.abs(np.abs((axes * exact).sum(axis=1)) - 1).max() < 1e-10
    matrix = rng.normal(size=(6, 6))
    matrix = matrix @ matrix.T + np.eye(6)
    right = rng.normal(size=6)
    solution = right.copy()
    solve_positive.py_func(matrix.copy(), solution)
    assert np.abs(matrix @ solution - right).max() < 1e-12


def test_a_graph_without_points_has_no_weights():
    graph = Graph(knn_graph(Sphere().grid(50)).affinity)
    with pytest.raises(ValueError, match="has no points"):
        interpolation_weights(graph, np.arange(50), np.zeros((1, 3)), 2)


def test_above_five_dimensions_values_are_means_by_inverse_squared_distance():
    points, queries = plane(200, d=6), plane(20, seed=1, d=6)
    found = interpolation_weights(cloud(points), np.arange(200), queries, 6).toarray()
    gaps = np.linalg.norm(queries[:, None] - points, axis=2)
    near = gaps <= np.sort(gaps, axis=1)[:, 11:12]  # two for each axis
    expected = np.where(near, gaps**-2.0, 0.0)
    np.testing.assert_allclose(found, expected / expected.sum(axis=1, keepdims=True), rtol=1e-9, atol=1e-300)
    at_nodes = interpolation_weights(cloud(points), np.arange(200), points[:5], 6).toarray()
    np.testing.assert_array_equal(at_nodes, np.eye(200)[:5])
