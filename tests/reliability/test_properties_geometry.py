"""Graphs, meshes and what is measured on them: a documented error, or a result that keeps the contract."""

import numpy as np
from hypothesis import strategies as st
from reliability.strategies import (
    NUMBERS,
    ROUGH_SCALES,
    SCALES,
    SEEDS,
    Outcomes,
    affinities,
    any_clouds,
    clouds,
    holds_for,
    hulls,
    meshes,
    mostly,
    motions,
    neighbor_graphs,
    options,
    quietly,
    shuffled,
)
from scipy.spatial.distance import cdist

from manifoldrf import Graph, TriangleMesh, heat_graph, knn_graph, mesh_graph
from manifoldrf.geometry import estimate_dimension, thin

EPS = np.finfo(np.float64).eps
KNN_OPTIONS = {
    "n_neighbors": mostly(st.integers(1, 8)),
    "bandwidth": mostly(st.one_of(st.sampled_from(["median", "local"]), st.floats(0.01, 10.0))),
    "self_loops": mostly(st.booleans()),
    "density_correction": mostly(st.floats(0.0, 1.0)),
    "n_jobs": mostly(st.sampled_from([1, 2, -1])),
}
HEAT_OPTIONS = {
    "n_steps": mostly(st.sampled_from(["auto", 2, 4, 6])),
    "dim": mostly(st.integers(1, 3)),
    "noise_std": mostly(st.sampled_from(["auto", 0.0, 0.01])),
    "n_nodes": mostly(st.sampled_from(["auto", 20])),
    "volumes": mostly(st.none()),
    "n_jobs": mostly(st.sampled_from([1, 2, -1])),
}


def check_graph(graph):
    """What every graph promises."""
    affinity = graph.affinity.toarray()
    assert np.array_equal(affinity, affinity.T)
    assert np.isfinite(affinity).all()
    assert (graph.affinity.data > 0).all()
    operator = graph.operator.toarray()
    assert np.array_equal(operator, operator.T)
    assert np.isfinite(operator).all()
    spectrum = np.linalg.eigvalsh(operator)
    # A symmetric solver is right to a small multiple of n eps; so is D^-1/2 A D^-1/2 itself.
    assert np.abs(spectrum).max() <= 1 + 8 * len(operator) * EPS
    # sqrt(degrees) is an eigenvector of the value 1: the walk loses nothing.
    root = np.sqrt(graph.degrees)
    np.testing.assert_allclose(operator @ root, root, rtol=0, atol=8 * len(operator) * EPS * root.max(initial=0.0))


def same_operator(one, other, tolerance):
    np.testing.assert_allclose(one.operator.toarray(), other.operator.toarray(), rtol=0, atol=tolerance)


# ------------------------------------------------------------------------------------------------ graphs of clouds
def test_neighbours_of_any_cloud_are_refused_with_a_reason_or_joined_symmetrically():
    outcomes = Outcomes()

    @holds_for(points=any_clouds(), chosen=options(KNN_OPTIONS))
    def check(points, chosen):
        for graph in outcomes.of(knn_graph, points, **chosen):
            check_graph(graph)
            assert graph.n_nodes == len(points)

    check()
    assert outcomes.both_happened(), outcomes.counts


@holds_for(points=clouds(), k=st.integers(1, 7), bandwidth=st.sampled_from(["median", "local"]), seed=SEEDS)
def test_neighbours_do_not_depend_on_the_order_of_the_points(points, k, bandwidth, seed):
    order = shuffled(len(points), seed)
    one = quietly(knn_graph, points, n_neighbors=k, bandwidth=bandwidth)
    other = quietly(knn_graph, points[order], n_neighbors=k, bandwidth=bandwidth)
    # Affinities are the same numbers; degrees are sums of them in another order.
    np.testing.assert_array_equal(other.affinity.toarray(), one.affinity.toarray()[np.ix_(order, order)])
    np.testing.assert_allclose(
        other.operator.toarray(), one.operator.toarray()[np.ix_(order, order)], rtol=len(points) * EPS
    )


@holds_for(data=st.data(), points=clouds(), scale=ROUGH_SCALES, correction=st.floats(0.0, 1.0), loops=st.booleans())
def test_neighbours_do_not_depend_on_place_direction_and_unit(data, points, scale, correction, loops):
    moved = data.draw(motions(points.shape[1]))(points) * scale
    settings = {"density_correction": correction, "self_loops": loops}
    # Moved coordinates of size 15 are rounded to 15 eps; distances of 1e-3 to relative 1e-10 then, exponents too.
    same_operator(quietly(knn_graph, points, **settings), quietly(knn_graph, moved, **settings), 1e-9)


def test_a_heat_graph_of_any_cloud_is_refused_with_a_reason_or_conserves_heat():
    outcomes = Outcomes()

    @holds_for(points=any_clouds(), t=mostly(st.floats(0.001, 1.0), NUMBERS), chosen=options(HEAT_OPTIONS, most=2))
    def check(points, t, chosen):
        for graph in outcomes.of(heat_graph, points, t, **chosen):
            check_graph(graph)
            assert graph.n_steps % 2 == 0
            assert np.isclose(graph.step_time * graph.n_steps, float(t), rtol=4 * EPS)
            assert np.isfinite(graph.weights).all()
            assert (graph.weights >= 0).all()
            assert graph.weights.sum() > 0

    check()
    assert outcomes.both_happened(), outcomes.counts


@holds_for(graph=neighbor_graphs(), seed=SEEDS, distance=st.sampled_from([0.0, 0.1, 1e3, 1e100]))
def test_affinities_of_new_points_are_finite_and_do_not_depend_on_each_other(graph, seed, distance):
    rng = np.random.default_rng(seed)
    directions = rng.standard_normal((4, graph.points.shape[1]))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    queries = graph.points[:4] + distance * directions
    rows = graph.extend(queries).toarray()
    assert rows.shape == (4, graph.n_nodes)
    assert np.isfinite(rows).all()
    assert (rows >= 0).all()
    assert distance < 1e3 or not rows.any()
    np.testing.assert_array_equal(graph.extend(queries[2:3]).toarray(), rows[2:3])


def test_any_matrix_is_refused_with_a_reason_or_a_graph():
    outcomes = Outcomes()

    @holds_for(matrix=affinities(), where=st.tuples(st.integers(0, 15), st.integers(0, 15)), value=NUMBERS)
    def check(matrix, where, value):
        row, column = where[0] % len(matrix), where[1] % len(matrix)
        matrix[row, column] = value
        if value != value or where[0] % 2:  # half of the changes are symmetric
            matrix[column, row] = value
        for graph in outcomes.of(Graph.from_affinity, matrix):
            check_graph(graph)
            assert graph.n_components == len(np.unique(graph.components))
            joined = np.nonzero(graph.affinity.toarray())
            assert (graph.components[joined[0]] == graph.components[joined[1]]).all()

    check()
    assert outcomes.both_happened(), outcomes.counts


@holds_for(graph=neighbor_graphs())
def test_shortest_paths_are_a_distance_along_edges(graph):
    paths = graph.shortest_paths(np.arange(graph.n_nodes))
    straight = cdist(graph.points, graph.points)
    slack = 1 + 4 * graph.n_nodes * EPS
    np.testing.assert_allclose(paths, paths.T, rtol=4 * graph.n_nodes * EPS)
    assert (straight <= paths * slack + EPS).all()
    assert (np.isinf(paths) == (graph.components[:, None] != graph.components)).all()
    for middle in range(0, graph.n_nodes, 5):
        assert (paths <= (paths[:, middle, None] + paths[middle]) * slack).all()


# ---------------------------------------------------------------------------------------------- measures of clouds
def test_thinning_any_cloud_is_refused_with_a_reason_or_takes_farthest_points():
    outcomes = Outcomes()

    @holds_for(points=any_clouds(), n=mostly(st.integers(1, 8)))
    def check(points, n):
        for chosen in outcomes.of(thin, points, n):
            assert chosen.shape == (n,)
            assert ((chosen >= 0) & (chosen < len(points))).all()
            gaps = cdist(points, points[chosen])
            for k in range(1, len(chosen)):
                nearest = gaps[:, :k].min(axis=1)
                # No point is farther from those chosen before; distances are rounded in the last digits.
                assert nearest[chosen[k]] >= nearest.max() * (1 - 1e-12)
            assert len(np.unique(chosen)) == n or len(np.unique(points, axis=0)) < n
            np.testing.assert_array_equal(thin(points, 1), chosen[:1])

    check()
    assert outcomes.both_happened(), outcomes.counts


def test_the_dimension_of_any_cloud_is_refused_with_a_reason_or_possible():
    outcomes = Outcomes()

    @holds_for(points=any_clouds(max_dim=5), scale=SCALES)
    def check(points, scale):
        for dim in outcomes.of(estimate_dimension, points):
            assert isinstance(dim, int)
            assert 1 <= dim <= points.shape[1]
            if np.abs(points).max() < 1e140 and np.ptp(points, axis=0).max() > 1e-120:  # scaled ones are valid too
                assert estimate_dimension(scale * points) == dim

    check()
    assert outcomes.both_happened(), outcomes.counts


# ---------------------------------------------------------------------------------------------------------- meshes
@holds_for(mesh=meshes(), seed=SEEDS)
def test_areas_and_normals_of_any_mesh_are_its_own_whatever_the_order(mesh, seed):
    areas, normals, around = mesh.face_areas(), mesh.face_normals(), mesh.vertex_normals()
    assert np.isfinite(areas).all()
    assert (areas >= 0).all()
    np.testing.assert_allclose(mesh.vertex_areas().sum(), mesh.area, rtol=1e-12)
    for rows in (normals, around):
        lengths = np.linalg.norm(rows, axis=1)
        assert (np.isclose(lengths, 1, rtol=0, atol=1e-14) | (lengths == 0)).all()
    order, faces = shuffled(mesh.n_vertices, seed), shuffled(mesh.n_faces, seed)
    place = np.argsort(order)
    other = TriangleMesh(mesh.vertices[order], place[mesh.faces[faces]])
    np.testing.assert_array_equal(other.face_areas(), areas[faces])
    np.testing.assert_array_equal(other.face_normals(), normals[faces])
    # Sums over the faces of a vertex, in another order.
    np.testing.assert_allclose(other.vertex_areas(), mesh.vertex_areas()[order], rtol=1e-12)
    assert other.report() == mesh.report()
    assert other.is_closed == mesh.is_closed


@holds_for(mesh=meshes(), seed=SEEDS, distance=st.sampled_from([0.0, 0.3, 100.0]))
def test_no_point_of_a_mesh_is_closer_than_the_closest(mesh, seed, distance):
    rng = np.random.default_rng(seed)
    size = np.ptp(mesh.vertices, axis=0).max() + 1
    queries = mesh.vertices[rng.integers(0, mesh.n_vertices, 5)] + distance * size * rng.standard_normal((5, 3))
    found = mesh.closest_points(queries)
    assert (found.barycentric >= 0).all()
    np.testing.assert_allclose(found.barycentric.sum(axis=1), 1, rtol=8 * EPS)
    # Rivals on all faces: corners, midpoints, and points anywhere.
    shares = np.vstack([np.eye(3), (1 - np.eye(3)) / 2, rng.dirichlet([1, 1, 1], 20)])
    rivals = np.einsum("sc,mcd->msd", shares, mesh.vertices[mesh.faces]).reshape(-1, 3)
    gaps = np.linalg.norm(queries - found.points, axis=1)
    coordinates = max(np.abs(queries).max(), np.abs(mesh.vertices).max())
    assert (gaps <= cdist(queries, rivals).min(axis=1) + 64 * EPS * coordinates).all()


def test_the_graph_of_any_mesh_is_refused_with_a_reason_or_keeps_the_contract():
    outcomes = Outcomes()
    kinds = mostly(st.sampled_from(["gaussian", "unit", "cotangent"]))

    @holds_for(mesh=meshes(), weights=kinds)
    def check(mesh, weights):
        for graph in outcomes.of(mesh_graph, mesh, weights=weights):
            check_graph(graph)
            if weights != "cotangent":
                joined = np.argwhere(np.triu(graph.affinity.toarray()))
                assert set(map(tuple, joined)) <= set(map(tuple, mesh.edges))
            else:
                assert (graph.weights >= 0).all()
                assert graph.step_time > 0

    check()
    assert outcomes.both_happened(), outcomes.counts


@holds_for(data=st.data(), mesh=hulls(), weights=st.sampled_from(["gaussian", "unit", "cotangent"]), scale=SCALES)
def test_the_graph_of_a_mesh_follows_order_motion_and_unit(data, mesh, weights, scale):
    graph = mesh_graph(mesh, weights=weights)
    order = shuffled(mesh.n_vertices, data.draw(SEEDS))
    moved = scale * data.draw(motions(3))(mesh.vertices)
    other = mesh_graph(TriangleMesh(moved[order], np.argsort(order)[mesh.faces]), weights=weights)
    np.testing.assert_allclose(
        other.operator.toarray(), graph.operator.toarray()[np.ix_(order, order)], rtol=0, atol=1e-8
    )
    if weights == "cotangent":
        np.testing.assert_allclose(other.weights.sum(), scale**2 * mesh.area, rtol=1e-6)
        np.testing.assert_allclose(other.step_time, scale**2 * graph.step_time, rtol=1e-6)


# -------------------------------------------------------------------------------------------- matrices and metrics
