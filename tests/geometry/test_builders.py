"""One contract for all graph builders, and each builder against a construction by hand."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from oracles import METRICS, cloud, sphere_mesh
from scipy.spatial import ConvexHull
from scipy.spatial.distance import cdist

from manifoldrf import FlatTorus, HyperbolicSpace, Sphere, Torus
from manifoldrf._runtime import ManifoldWarning
from manifoldrf.geometry.builders import grid_graph, knn_graph, mesh_graph
from manifoldrf.geometry.meshes import TriangleMesh

EPS = np.finfo(np.float64).eps


def turn(points, seed=1):
    """Rotate (or reflect) by a random orthogonal matrix."""
    return points @ np.linalg.qr(cloud(points.shape[1], points.shape[1], seed))[0]


def move(points):
    return turn(points) + np.arange(1.0, points.shape[1] + 1.0)


def from_cloud(**options):
    def build(points, order, n_jobs=1, scale=1.0):
        return knn_graph(points[order] * scale, n_jobs=n_jobs, **options)

    return build


def from_mesh(faces, **options):
    def build(points, order, scale=1.0):
        return mesh_graph(TriangleMesh(points[order] * scale, np.argsort(order)[faces]), **options)

    return build


@dataclass(frozen=True)
class Case:
    """How to build a graph on points in any order, and what moves the points without changing it."""

    name: str
    build: Callable[..., Any]
    points: Any = field(repr=False)
    isometry: Callable[..., Any] = move
    scalable: bool = True
    threaded: bool = True

    def graph(self, **options):
        return self.build(self.points, np.arange(len(self.points)), **options)


BALL = HyperbolicSpace(dim=2, radius=6.0)
HULL = sphere_mesh(250)
MESHES = [
    Case(f"mesh, {weights}", from_mesh(HULL.faces, weights=weights), HULL.vertices, threaded=False)
    for weights in ("gaussian", "unit", "cotangent")
]
CASES = [
    Case("torus", from_cloud(n_neighbors=12), Torus().sample(250, seed=0)),
    Case("cloud in R^7", from_cloud(n_neighbors=20), cloud(150, 7)),
    Case("local bandwidth", from_cloud(n_neighbors=9, bandwidth="local"), cloud(150, 7) ** 3),
    Case("self loops", from_cloud(self_loops=True, density_correction=0.5), cloud(200)),
    Case("on S^2", from_cloud(metric=Sphere()), Sphere().sample(200, seed=0), turn, scalable=False),
    Case(
        "on a flat torus",
        from_cloud(metric=FlatTorus(), density_correction=1.0),
        FlatTorus().sample(200, seed=0),
        lambda points: points + np.array([0.3, 0.9]),
        scalable=False,
    ),
    Case("on H^2", from_cloud(metric=BALL), BALL.sample(200, seed=0), turn, scalable=False),
    *MESHES,
]
EVERY = [*CASES, Case("grid", lambda points, order: grid_graph(6, 3), np.zeros((216, 3)))]


def named(cases):
    return pytest.mark.parametrize("case", cases, ids=lambda case: case.name)


# The contract


@named(EVERY)
def test_affinity_is_symmetric_to_the_bit_and_nonnegative(case):
    affinity = case.graph().affinity
    dense = affinity.toarray()
    assert np.array_equal(dense, dense.T)
    assert affinity.data.min() > 0  # no stored zeros either
    assert affinity.has_canonical_format  # the operator shares the indices, so they must need no sorting


@named(EVERY)
def test_operator_is_the_symmetric_normalised_affinity_with_spectrum_within_one(case):
    graph = case.graph()
    dense, degrees = graph.affinity.toarray(), graph.degrees
    np.testing.assert_allclose(degrees, dense.sum(axis=1), rtol=graph.n_nodes * EPS)
    walk = graph.operator.toarray()
    np.testing.assert_allclose(walk, dense / np.sqrt(np.outer(degrees, degrees)), rtol=16 * EPS)
    assert np.array_equal(walk, walk.T)
    spectrum = np.linalg.eigvalsh(walk)
    # The error of a symmetric eigenvalue solver is a small multiple of n eps |W|; the connected W reaches 1.
    assert spectrum[0] >= -1 - graph.n_nodes * EPS
    assert abs(spectrum[-1] - 1) <= graph.n_nodes * EPS


@named(CASES)
def test_permuting_the_points_permutes_the_affinity(case):
    order = np.random.default_rng(2).permutation(len(case.points))
    permuted = case.build(case.points, order).affinity.toarray()
    expected = case.graph().affinity.toarray()[np.ix_(order, order)]
    np.testing.assert_allclose(permuted, expected, atol=1e-10 * expected.max())


@named(CASES)
def test_isometries_change_nothing(case):
    moved = case.build(case.isometry(case.points), np.arange(len(case.points)))
    still = case.graph()
    assert abs(moved.affinity - still.affinity).max() <= 1e-10 * still.affinity.max()
    assert moved.step_size == pytest.approx(still.step_size, rel=1e-10)


@named([case for case in CASES if case.scalable])
def test_scaling_the_points_scales_only_the_step_size(case):
    small, large = case.graph(), case.graph(scale=2.5)
    assert abs(small.operator - large.operator).max() <= 1e-12
    assert large.step_size == pytest.approx(2.5**2 * small.step_size, rel=1e-12)


@named([case for case in CASES if case.threaded])
def test_threads_change_no_bit(case):
    one, again, two = case.graph(n_jobs=1), case.graph(n_jobs=1), case.graph(n_jobs=2)
    for other in (again, two):
        for part in ("data", "indices", "indptr"):
            assert np.array_equal(getattr(one.affinity, part), getattr(other.affinity, part))
    queries = case.points[:20]
    assert np.array_equal(one.extend(queries).toarray(), two.extend(queries).toarray())


# knn_graph


def reference(distance, k, *, bandwidth=None, self_loops=False, exponent=0.0, density=None):
    """The affinity from all pairwise distances."""
    n = len(distance)
    near = np.argsort(distance + np.diag(np.full(n, np.inf)), axis=1)[:, :k]
    joined = np.zeros((n, n), dtype=bool)
    np.put_along_axis(joined, near, values=True, axis=1)
    width = np.median(np.take_along_axis(distance, near, axis=1) ** 2) if bandwidth is None else bandwidth
    if bandwidth == "local":  # the distance to the 7th neighbour, or to the last
        own = np.sort(distance, axis=1)[:, min(7, k)]
        width = np.outer(own, own)
    affinity = np.where(joined | joined.T, np.exp(-(distance**2) / width), 0.0) + self_loops * np.eye(n)
    ends = affinity.sum(axis=1) ** exponent if density is None else density
    return affinity / np.outer(ends, ends)


DENSITY = np.random.default_rng(5).uniform(0.1, 3.0, 60)
OPTIONS = [
    ({}, {}),
    ({"self_loops": True}, {"self_loops": True}),
    ({"bandwidth": 0.7}, {"bandwidth": 0.7}),
    ({"bandwidth": "local"}, {"bandwidth": "local"}),
    ({"bandwidth": "local", "density_correction": 1}, {"bandwidth": "local", "exponent": 1}),
    ({"density_correction": 0.5}, {"exponent": 0.5}),
    ({"density_correction": 1, "self_loops": True}, {"exponent": 1, "self_loops": True}),
    ({"density_correction": DENSITY.tolist()}, {"density": DENSITY}),
]


@pytest.mark.parametrize(
    ("k", "options", "expected"), [(1, {}, {}), (59, {}, {}), *((6, *pair) for pair in OPTIONS)], ids=str
)
def test_knn_graph_equals_brute_force(options, expected, k, global_seed):
    points = cloud(seed=global_seed)
    distance = cdist(points, points)
    if k == 1:  # one neighbour each: many pieces, and it says so
        with pytest.warns(ManifoldWarning, match=r"has \d+ pieces"):
            graph = knn_graph(points, n_neighbors=k, **options)
    else:
        graph = knn_graph(points, n_neighbors=k, **options)
    np.testing.assert_allclose(graph.affinity.toarray(), reference(distance, k, **expected), rtol=1e-12)


@pytest.mark.parametrize("metric", METRICS, ids=str)
def test_knn_graph_with_a_metric_equals_brute_force(metric, global_seed):
    points = metric.sample(200, seed=global_seed)
    graph = knn_graph(points, n_neighbors=9, metric=metric)
    # Opposite directions may round differently: one part in 1e8 where 1 - |x| is 1e-7.
    np.testing.assert_allclose(graph.affinity.toarray(), reference(metric.distance(points, points), 9), rtol=1e-8)


def test_flat_torus_neighbours_wrap_around():
    points = np.array([[0.01], [0.3], [0.5], [0.7], [0.99]])
    with pytest.warns(ManifoldWarning, match="2 pieces"):
        graph = knn_graph(points - 3.0, n_neighbors=1, bandwidth=1.0, metric=FlatTorus(dim=1))
    assert graph.affinity[[0], [4]] == pytest.approx(np.exp(-(0.02**2)))
    assert graph.n_components == 2
    assert ((graph.points >= 0) & (graph.points < 1)).all()


# mesh_graph


def test_gaussian_mesh_affinities_equal_a_loop_over_the_edges():
    vertices = [[0, 0, 0], [2, 0, 0], [2, 1, 0], [0, 1, 0.5], [5, 5, 5]]
    lengths = {(0, 1): 4.0, (1, 2): 1.0, (0, 2): 5.0, (2, 3): 4.25, (0, 3): 1.25}  # squared; their median is 4
    expected = np.zeros((5, 5))
    for (i, j), squared in lengths.items():
        expected[i, j] = expected[j, i] = np.exp(-squared / 4.0)
    mesh = TriangleMesh(vertices, [[0, 1, 2], [0, 2, 3]])
    with pytest.warns(ManifoldWarning, match="1 nodes are isolated"):
        graph = mesh_graph(mesh)
    np.testing.assert_allclose(graph.affinity.toarray(), expected, rtol=4 * EPS)
    with pytest.warns(ManifoldWarning, match="1 nodes are isolated"):
        graph = mesh_graph(mesh, weights="unit")
    assert np.array_equal(graph.affinity.toarray(), expected > 0)


def test_local_bandwidths_see_no_change_of_scale_between_regions():
    """Two copies of one cloud, one a thousand times smaller, have the same affinities inside."""
    large = cloud(60)
    both = np.concatenate([large, 100.0 + 1e-3 * large])
    with pytest.warns(ManifoldWarning, match="2 pieces"):
        affinity = knn_graph(both, n_neighbors=9, bandwidth="local").affinity.toarray()
    np.testing.assert_allclose(affinity[:60, :60], affinity[60:, 60:], rtol=1e-8)  # 100 + x rounds at 1e-14


def test_points_that_coincide_with_many_others_have_a_typical_local_bandwidth():
    points = np.concatenate([np.zeros((9, 2)), cloud(30, 2)])
    with pytest.warns(ManifoldWarning, match="9 points coincide"):
        graph = knn_graph(points, n_neighbors=12, bandwidth="local")
    widths = np.sort(cdist(points, points), axis=1)[:, 7]
    np.testing.assert_allclose(graph.extension.local[:9], np.median(widths[9:]), rtol=1e-12)
    with pytest.raises(ValueError, match="`bandwidth` must be a positive number where most neighbours coincide"):
        knn_graph(np.repeat([[0.0], [1.0]], 9, axis=0), n_neighbors=8, bandwidth="local")


def test_at_a_node_a_query_has_the_local_bandwidth_of_the_node():
    points = cloud(80, 4)
    graph = knn_graph(points, n_neighbors=10, bandwidth="local", self_loops=True)
    rows, dense = graph.extend(points).toarray(), graph.affinity.toarray()
    reached = rows > 0  # the graph also has the edges of those that have the node in their lists
    np.testing.assert_allclose(rows[reached], dense[reached], rtol=1e-12)


def test_median_bandwidth_is_the_median_of_the_squares():
    points = np.array([[0.0], [1.0], [3.0]])  # nearest neighbours at 1, 1 and 2
    four = np.concatenate([points, [[6.0]]])  # and 3: the squares 1, 1, 4, 9 have the median 2.5
    assert knn_graph(four, n_neighbors=1).affinity[[0], [1]] == pytest.approx(np.exp(-1 / 2.5))


def test_cotangent_graph_carries_area_and_heat_time():
    mesh = sphere_mesh(1000)
    graph = mesh_graph(mesh, weights="cotangent")
    assert graph.weights.min() > 0
    assert graph.weights.sum() == pytest.approx(mesh.area, rel=1e-6)  # side lengths are mended by 1e-5 at most
    np.testing.assert_allclose(graph.degrees, graph.weights, rtol=8 * EPS)
    # The Dirichlet energy of the coordinates of a surface is its dimension times its area.
    assert graph.step_time == pytest.approx(graph.step_size / 4, rel=0.01)
    assert graph.time(3.0, dim=7) == 3.0 * graph.step_time
    assert graph.affinity.diagonal().min() <= EPS * graph.weights.max()  # no longer step leaves self-loops >= 0


def test_cotangent_generator_has_the_spectrum_of_the_sphere():
    graph = mesh_graph(sphere_mesh(1000), weights="cotangent")
    rates = (1 - np.linalg.eigvalsh(graph.operator.toarray())[:-17:-1]) / graph.step_time
    assert abs(rates[0]) <= graph.n_nodes * EPS / graph.step_time
    degree = np.repeat([1, 2, 3], [3, 5, 7])
    np.testing.assert_allclose(rates[1:], degree * (degree + 1), rtol=0.03)


SQUARE = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]
FLAWED = {
    "repeated vertex": (SQUARE, [[0, 1, 2], [1, 3, 2], [1, 1, 2]]),
    "face without area": ([*SQUARE, [0.5, 0.5, 0]], [[0, 1, 2], [1, 3, 2], [1, 4, 2]]),
    "obtuse": ([[0, 0, 0], [4, 0, 0], [2, 0.1, 0], [2, -0.1, 0]], [[0, 1, 2], [0, 1, 3]]),
    "sliver": ([[0, 0, 0], [1, 0, 0], [0.5, 1e-9, 0]], [[0, 1, 2]]),
    "three faces at one edge": ([*SQUARE[:3], [0, -1, 0], [0, 0, 1]], [[0, 1, 2], [0, 1, 3], [0, 1, 4]]),
}


@pytest.mark.parametrize("flaw", FLAWED)
def test_cotangent_weights_are_nonnegative_on_flawed_meshes(flaw):
    graph = mesh_graph(TriangleMesh(*FLAWED[flaw]), weights="cotangent")
    assert graph.affinity.data.min() > 0
    assert graph.weights.min() > 0
    assert graph.n_components == 1
    assert graph.step_time > 0
    assert np.abs(np.linalg.eigvalsh(graph.operator.toarray())).max() <= 1 + 16 * EPS


@pytest.mark.parametrize("weights", ["gaussian", "unit", "cotangent"])
def test_unreferenced_vertices_are_isolated_and_change_nothing_else(weights):
    mesh = sphere_mesh(50)
    plain = mesh_graph(mesh, weights=weights)
    with pytest.warns(ManifoldWarning, match="Graph of 51 nodes: 1 nodes are isolated"):
        graph = mesh_graph(TriangleMesh(np.insert(mesh.vertices, 0, 9.0, axis=0), mesh.faces + 1), weights=weights)
    assert graph.degrees[0] == 0
    np.testing.assert_allclose(graph.affinity.toarray()[1:, 1:], plain.affinity.toarray(), rtol=1e-12)
    if weights == "cotangent":
        assert graph.weights[0] == 0


# grid_graph


@pytest.mark.parametrize(("side", "dim"), [(2, 1), (2, 3), (7, 1), (5, 3), (49, 2)])
def test_grid_nodes_are_joined_to_their_neighbours_along_every_axis(side, dim):
    graph = grid_graph(side, dim)
    assert graph.n_nodes == side**dim
    assert np.array_equal(graph.degrees, np.full(side**dim, 2.0 * dim))
    corners = np.array(list(np.ndindex(*[side] * dim)))  # the last axis runs fastest
    assert np.array_equal(graph.points, corners / side)
    for node in range(0, side**dim, 5):
        row = np.zeros([side] * dim)
        for axis in range(dim):
            for step in (-1, 1):
                place = corners[node].copy()
                place[axis] = (place[axis] + step) % side
                row[tuple(place)] += 1.0  # twice the same node where side is 2
        assert np.array_equal(graph.affinity[[node]].toarray().ravel(), row.ravel())
    # Coordinates are rounded to eps, a step is 1 / side long.
    assert graph.step_size == pytest.approx(1 / side**2, rel=4 * side * EPS)


def test_an_edge_too_long_for_its_affinity_is_no_edge():
    vertices = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0], [200, 0, 0]]
    mesh = TriangleMesh(vertices, [[0, 1, 2], [1, 3, 2], [1, 4, 3]])
    with pytest.warns(ManifoldWarning, match="Graph of 5 nodes: 1 nodes are isolated"):
        graph = mesh_graph(mesh)
    assert graph.affinity.data.min() > 0
    assert graph.n_components == 2
    assert np.isinf(graph.shortest_paths(0)[0, 4])


@pytest.mark.parametrize("unit", [1e-100, 1e100])
def test_the_cotangent_graph_does_not_depend_on_the_unit(unit):
    points = Sphere().grid(100)
    faces = ConvexHull(points).simplices
    here, there = (mesh_graph(TriangleMesh(s * points, faces), weights="cotangent") for s in (1.0, unit))
    assert abs(there.operator - here.operator).max() < 1e-12
    assert there.step_time == pytest.approx(unit**2 * here.step_time, rel=1e-12)
