"""Graphs: matrices of one's own, the two clocks, paths, new points, and what a graph warns of."""

import dataclasses
import re

import numpy as np
import pytest
from oracles import cloud, sphere_mesh
from scipy import sparse
from scipy.sparse import csgraph
from scipy.sparse.linalg import expm_multiply
from scipy.spatial.distance import cdist

from manifoldrf import FlatTorus, HyperbolicSpace, Sphere, Torus
from manifoldrf._runtime import ManifoldWarning
from manifoldrf.geometry.builders import grid_graph, knn_graph, mesh_graph
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.heat import heat_graph

EPS = np.finfo(np.float64).eps
PATH = np.array([[0, 1, 0, 0], [1, 0, 2, 0], [0, 2, 0, 3], [0, 0, 3, 0]])  # 0 - 1 - 2 - 3
PLACES = np.array([[0.0], [1.0], [3.0], [7.0]])


# Matrices of one's own


@pytest.mark.parametrize("kind", [np.ndarray.tolist, sparse.csc_array, sparse.coo_array, sparse.csr_matrix])
def test_dense_and_sparse_matrices_make_the_same_graph(kind):
    graph = Graph.from_affinity(kind(PATH))
    assert graph.affinity.dtype == np.float64
    assert np.array_equal(graph.affinity.toarray(), PATH)
    assert np.array_equal(graph.degrees, [1, 3, 5, 3])
    expected = PATH / np.sqrt(np.outer(graph.degrees, graph.degrees))
    np.testing.assert_allclose(graph.operator.toarray(), expected, rtol=4 * EPS)


def test_the_callers_arrays_are_neither_changed_nor_shared():
    dense, places = PATH.astype(np.float64), PLACES.copy()
    messy = sparse.csr_array((np.ones(4), [1, 1, 0, 0], [0, 2, 4]), shape=(2, 2))  # two entries for each edge
    stored = sparse.csr_array(dense)
    merged, graph = Graph.from_affinity(messy), Graph.from_affinity(dense, places)
    other = Graph.from_affinity(stored)
    assert messy.nnz == 4
    assert np.array_equal(merged.affinity.toarray(), [[0, 2], [2, 0]])
    dense[:], places[:], stored.data[:] = 9.0, 9.0, 9.0
    for kept in (graph, other):
        assert np.array_equal(kept.affinity.toarray(), PATH)
    assert np.array_equal(graph.points, PLACES)


def test_asymmetry_within_rounding_is_evened_out():
    graph = Graph.from_affinity([[0.0, 1.0, 1e-14], [1.0, 0.0, 1.0], [0.0, 1.0 + 2 * EPS, 0.0]])
    dense = graph.affinity.toarray()
    assert np.array_equal(dense, dense.T)
    assert graph.affinity.has_canonical_format


def test_components_are_numbered_from_zero():
    with pytest.warns(ManifoldWarning, match="1 nodes are isolated.*; it has 2 pieces"):
        graph = Graph.from_affinity(sparse.block_diag([PATH, [[0]], PATH]))
    assert np.array_equal(graph.components, [0, 0, 0, 0, 1, 2, 2, 2, 2])
    assert graph.components.dtype == np.int64
    assert graph.n_components == 3


# The two clocks


def test_the_clock_of_the_sphere_is_that_of_its_exact_heat_kernel():
    graph = knn_graph(Sphere().grid(4000))
    t = graph.time(20.0, dim=2)
    assert t == pytest.approx(0.0208, abs=5e-5)
    starts = np.arange(100, 4000, 1000)
    impulses = np.zeros((4000, len(starts)))
    impulses[starts, np.arange(len(starts))] = 4000 / (4 * np.pi)  # one over the area of a node
    walked = expm_multiply(20.0 * (graph.operator - sparse.eye_array(4000)).tocsc(), impulses).T

    def error(time):
        exact = Sphere().heat_kernel(graph.points[starts], graph.points, time)
        return np.linalg.norm(walked - exact) / np.linalg.norm(exact)

    assert error(t) < 0.045
    assert error(t) < min(error(0.93 * t), error(1.07 * t))


def test_step_size_is_the_mean_squared_length_weighted_by_affinity():
    assert Graph.from_affinity(PATH, PLACES).step_size == pytest.approx((1 * 1 + 2 * 4 + 3 * 16) / 6, rel=4 * EPS)
    lengths = np.linspace(1.0, 3.0, 69_999)  # more rows than are measured at once
    path = sparse.diags_array([np.ones(69_999)] * 2, offsets=[-1, 1])
    long = Graph.from_affinity(path, np.concatenate([[0.0], np.cumsum(lengths)])[:, None])
    assert long.step_size == pytest.approx(np.mean(lengths**2), rel=1e-9)


@pytest.mark.parametrize("metric", [Sphere(), FlatTorus(), HyperbolicSpace(dim=3)], ids=str)
def test_step_size_is_measured_along_the_metric(metric):
    graph = knn_graph(metric.sample(100, seed=0), metric=metric)
    squared = metric.distance(graph.points, graph.points) ** 2
    dense = graph.affinity.toarray()
    assert graph.step_size == pytest.approx((dense * squared).sum() / dense.sum(), rel=1e-10)


@pytest.mark.parametrize(
    "graph",
    [
        knn_graph(Sphere().grid(500)),
        knn_graph(HyperbolicSpace(dim=3).sample(300, seed=0), metric=HyperbolicSpace(dim=3)),
        heat_graph(Sphere().grid(300), 0.2),
        mesh_graph(sphere_mesh(200), weights="cotangent"),
        grid_graph(8, 2),
    ],
    ids=["knn", "metric", "heat", "cotangent", "grid"],
)
def test_steps_undo_time(graph):
    for tau in (0.0, 1e-3, 1.0, 20.0):
        assert graph.steps(graph.time(tau)) == pytest.approx(tau, rel=4 * EPS)


def test_the_dimension_is_estimated_or_that_of_the_metric():
    sphere = knn_graph(Sphere().grid(1000))
    assert sphere.time(5.0) == sphere.time(5.0, dim=2) == 5.0 * sphere.step_size / 4
    assert grid_graph(4, 5).time(1.0) == pytest.approx(1 / 16 / 10, rel=1e-14)


# Paths


def test_shortest_paths_add_up_lengths():
    lengths = Graph.from_affinity(PATH, PLACES).shortest_paths([0, 2])
    assert np.array_equal(lengths, [[0, 1, 3, 7], [3, 2, 0, 4]])
    assert Graph.from_affinity(PATH, PLACES).shortest_paths(3).shape == (1, 4)


def test_shortest_paths_equal_dense_dijkstra(global_seed):
    graph = knn_graph(cloud(80, seed=global_seed), n_neighbors=6)
    dense = np.where(graph.affinity.toarray() > 0, cdist(graph.points, graph.points), 0.0)
    expected = csgraph.shortest_path(dense, method="FW")
    np.testing.assert_allclose(graph.shortest_paths(np.arange(80)), expected, rtol=1e-12)


def test_shortest_paths_follow_the_metric():
    circle = knn_graph(Sphere(dim=1).grid(100), n_neighbors=2, metric=Sphere(dim=1))
    assert circle.shortest_paths(0).max() == pytest.approx(np.pi, rel=1e-12)


def test_shortest_paths_are_infinite_between_components():
    with pytest.warns(ManifoldWarning, match="2 pieces"):
        graph = Graph.from_affinity(sparse.block_diag([PATH, PATH]), np.concatenate([PLACES, PLACES]))
    lengths = graph.shortest_paths(0)[0]
    assert np.array_equal(lengths, [0, 1, 3, 7, np.inf, np.inf, np.inf, np.inf])


# New points


@pytest.mark.parametrize(("exponent", "self_loops"), [(0.0, False), (0.5, True), (1.0, False)])
def test_knn_extension_equals_brute_force(exponent, self_loops, global_seed):
    points, queries = cloud(80, seed=global_seed), cloud(30, seed=global_seed + 1000)
    graph = knn_graph(points, n_neighbors=7, bandwidth=0.8, self_loops=self_loops, density_correction=exponent)
    plain = knn_graph(points, n_neighbors=7, bandwidth=0.8, self_loops=self_loops)
    distance = cdist(queries, points)
    weights = np.exp(-(distance**2) / 0.8)
    reach = np.sort(distance, axis=1)[:, 6 + self_loops]  # a node with a self-loop counts itself
    weights[distance > reach[:, None]] = 0.0
    local = plain.degrees**exponent
    own = (weights @ local) / weights.sum(axis=1)
    np.testing.assert_allclose(graph.extend(queries).toarray(), weights / np.outer(own, local), rtol=1e-12)


@pytest.mark.parametrize("weights", ["gaussian", "unit", "cotangent"])
def test_mesh_extension_is_exact_at_nodes_and_linear_inside_faces(weights, global_seed):
    mesh = sphere_mesh(150)
    graph = mesh_graph(mesh, weights=weights)
    dense = graph.affinity.toarray()
    assert np.array_equal(graph.extend(mesh.vertices).toarray(), dense)
    inside = mesh.sample(50, seed=global_seed)
    expected = np.einsum("pc,pcn->pn", inside.barycentric, dense[mesh.faces[inside.faces]])
    np.testing.assert_allclose(graph.extend(inside.points).toarray(), expected, atol=1e-12 * dense.max())
    assert graph.extend(1.2 * inside.points).sum(axis=1).min() > 0  # off the surface, its nearest point speaks


@pytest.mark.parametrize(("side", "dim"), [(2, 1), (2, 2), (5, 2), (4, 3), (49, 1)])
def test_grid_extension_is_exact_at_nodes_and_multilinear_between(side, dim, global_seed):
    graph = grid_graph(side, dim)
    dense = graph.affinity.toarray()
    assert np.array_equal(graph.extend(graph.points).toarray(), dense)
    assert np.array_equal(graph.extend(graph.points - 1.0).toarray(), dense)  # coordinates wrap around
    queries = np.random.default_rng(global_seed).random((40, dim))
    rows = graph.extend(queries).toarray()
    np.testing.assert_allclose(rows.sum(axis=1), 2.0 * dim, rtol=1e-14)
    expected = np.zeros((40, side**dim))
    for corner in np.ndindex(*[2] * dim):
        cell = np.floor(queries * side).astype(int)
        share = queries * side - cell
        weight = np.where(np.array(corner), share, 1 - share).prod(axis=1)
        expected += weight[:, None] * dense[np.ravel_multi_index(((cell + corner) % side).T, [side] * dim)]
    np.testing.assert_allclose(rows, expected, atol=16 * side * EPS)


HEAT_GRAPHS = {
    "sphere": lambda: heat_graph(Sphere().grid(300), 0.2),
    "cloud": lambda: heat_graph(Torus().sample(400, seed=0), 0.2),
    "metric": lambda: heat_graph(FlatTorus().grid(200), 0.02, metric=FlatTorus()),
    "mesh": lambda: heat_graph(sphere_mesh(300), 0.2),  # coarse: some steps are longer than straight lines
}


@pytest.mark.parametrize("name", HEAT_GRAPHS)
def test_heat_extension_at_nodes_is_the_walk_of_the_graph(name):
    graph = HEAT_GRAPHS[name]()
    rows = graph.extend(graph.points).toarray()
    walk = graph.affinity.toarray() / graph.degrees[:, None]
    # Curvature is measured at the start of a step; the walk takes the mean of both ends.
    slack = 5e-3 if name in ("sphere", "cloud") else 0.0
    np.testing.assert_allclose(rows / rows.sum(axis=1, keepdims=True), walk, atol=1e-10 + slack)
    np.testing.assert_allclose(rows.sum(axis=1), walk @ graph.weights, rtol=1e-8 + slack)  # a mean around


@pytest.mark.parametrize("correction", [0.0, 1.0])
def test_a_query_out_of_reach_has_an_empty_row(correction):
    queries = [[1e3, 0.0, 0.0], [0.0, 0.0, 1.0]]
    for graph in (
        knn_graph(Sphere().grid(100), density_correction=correction),
        heat_graph(Sphere().grid(200), 0.2),
    ):
        rows = graph.extend(queries)
        assert rows.shape == (2, graph.n_nodes)
        assert np.diff(rows.indptr)[0] == 0
        assert np.diff(rows.indptr)[1] > 0


# What a graph warns of


@pytest.mark.parametrize("correction", [0.0, 1.0])
def test_an_outlier_becomes_an_isolated_node_with_a_warning(correction):
    points = np.concatenate([cloud(60), [[1e3, 0.0, 0.0]]])
    text = "61 nodes: 1 nodes are isolated, without an edge to another (remedy: more neighbours or a larger"
    with pytest.warns(ManifoldWarning, match=re.escape(text)):
        graph = knn_graph(points, density_correction=correction)
    assert graph.degrees[-1] == 0
    assert np.isfinite(graph.operator.data).all()
    assert graph.operator[[60]].nnz == graph.operator[:, [60]].nnz == 0
    assert graph.n_components == 2
    still = knn_graph(cloud(60), bandwidth=float(np.median(np.sort(cdist(points, points))[:, 1:9] ** 2)))
    if correction == 0:
        assert abs(graph.affinity[:60, :60] - still.affinity).max() <= 16 * EPS  # the others do not notice


def test_affinities_on_the_brink_of_underflow_stay_finite_after_density_correction():
    """Two far points with affinity exp(-708) = 3e-308 to each other: dividing by it twice would overflow."""
    points = np.concatenate([cloud(60), [[1e3, 0.0, 0.0], [1e3, 708**0.5, 0.0]]])
    with pytest.warns(ManifoldWarning, match="2 nodes are isolated"):
        graph = knn_graph(points, bandwidth=1.0, density_correction=1.0)
    assert np.isfinite(graph.affinity.data).all()
    assert np.isfinite(graph.operator.data).all()


def test_points_are_copied_and_left_alone():
    points = cloud(60)
    graph = knn_graph(points)
    before = graph.extend([[0.0, 0.0, 0.0]]).toarray()
    assert np.array_equal(points, cloud(60))
    points[:] = 0.0
    assert np.array_equal(graph.points, cloud(60))
    assert np.array_equal(graph.extend([[0.0, 0.0, 0.0]]).toarray(), before)


# Checks and shared searches

WHOLE = knn_graph(Sphere().grid(60), n_neighbors=6, metric=Sphere())
BAD_PARTS = {
    "affinity with nan": ({"affinity": WHOLE.affinity * np.nan}, r"`affinity` must be finite and at least 0"),
    "negative affinity": ({"affinity": -WHOLE.affinity}, r"`affinity` must be finite and at least 0"),
    "fewer points": ({"points": WHOLE.points[1:]}, r"`points` must be of shape \(60, 3\)"),
    "points off the metric": ({"points": 2 * WHOLE.points}, r"`points` must be points of Sphere"),
    "a metric of other dimension": ({"metric": Sphere(dim=3)}, r"`metric` must be of points with 3 coordinates"),
    "a weight too few": ({"weights": np.ones(59)}, r"`weights` must be of shape \(60,\)"),
    "infinite weights": ({"weights": np.full(60, np.inf)}, r"`weights` must be finite"),
    "no steps": ({"n_steps": 0}, r"`n_steps` must be"),
    "the extension of another graph": (
        {"extension": knn_graph(Sphere().grid(50)).extension},
        r"`points` must be of shape \(60, 3\)",
    ),
}


@pytest.mark.parametrize("name", BAD_PARTS)
def test_a_graph_of_parts_that_do_not_fit_is_refused(name):
    changes, text = BAD_PARTS[name]
    with pytest.raises(ValueError, match=text):
        dataclasses.replace(WHOLE, **changes)
