"""Anchors against plain greedy choices and their guarantees."""

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial import Delaunay, cKDTree
from scipy.stats import chi2

from manifoldrf import FlatTorus, HeatKernel, ManifoldRandomFeatures, Sphere, relative_error
from manifoldrf.fields import anchors as _anchors
from manifoldrf.fields.anchors import (
    _farthest,
    all_anchors,
    anchors_needed,
    farthest_anchors,
    follows_edges,
    iid_anchors,
    medoid_anchors,
    spacing_of,
)
from manifoldrf.geometry.builders import grid_graph, knn_graph, mesh_graph
from manifoldrf.geometry.graphs import Graph, GraphWarning
from manifoldrf.geometry.heat import heat_graph
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.sampling import thin


def folded_mesh(n=12):
    """A strip of triangles bent into two sheets that nearly touch."""
    along, across = np.meshgrid(np.arange(2 * n), np.arange(4), indexing="ij")
    folded = np.where(along < n, along, 2 * n - 1 - along)
    height = np.where(along < n, 0.0, 0.05)
    vertices = np.stack([folded, 1.03 * across, height], axis=2).reshape(-1, 3).astype(float)
    corner = (np.arange(2 * n - 1)[:, None] * 4 + np.arange(3)).ravel()
    faces = np.concatenate(
        [np.stack([corner, corner + 4, corner + 1], 1), np.stack([corner + 1, corner + 4, corner + 5], 1)]
    )
    return TriangleMesh(vertices, faces)


def greedy_along_edges(graph, first, m):
    """Farthest nodes by all shortest paths."""
    paths = graph.shortest_paths(np.arange(graph.n_nodes))
    chosen = [first]
    while len(chosen) < m:
        gaps = paths[chosen].min(axis=0)
        gaps[chosen] = -1.0
        chosen.append(int(np.argmax(gaps)))
    return chosen


def random_sphere(n, seed):
    return Sphere().sample(n, seed=seed)


def test_anchors_of_a_cloud_are_its_farthest_points(global_seed):
    graph = knn_graph(random_sphere(600, global_seed))
    assert not follows_edges(graph)
    assert np.array_equal(farthest_anchors(graph, 100), thin(graph.points, 100))


@pytest.mark.parametrize(
    "graph",
    [
        pytest.param(lambda: mesh_graph(folded_mesh()), id="mesh"),
        pytest.param(lambda: heat_graph(folded_mesh(), 0.5), id="heat on a mesh"),
        pytest.param(lambda: knn_graph(random_sphere(150, 1), metric=Sphere()), id="metric"),
    ],
)
def test_anchors_on_meshes_and_metrics_are_farthest_along_the_edges(graph):
    """Lengths are generic but for symmetries of the mesh: ties go to the smaller index in both."""
    graph = graph()
    assert follows_edges(graph)
    chosen = farthest_anchors(graph, 60)
    gaps = np.linalg.norm(graph.points - graph.points.mean(axis=0), axis=1)
    assert gaps[chosen[0]] == pytest.approx(gaps.max(), rel=1e-12)
    expected = greedy_along_edges(graph, int(chosen[0]), 60)
    paths = graph.shortest_paths(chosen)
    # Sums along a path may round differently from either end, which turns ties: the greedy distances must agree.
    for k in range(1, 60):
        best = paths[:k].min(axis=0)
        assert best[chosen[k]] == pytest.approx(best.max(), rel=1e-12)
    assert chosen[:10].tolist() == expected[:10]


def test_ties_go_to_the_smaller_node():
    """On a ring of 16 nodes at equal distances, a quarter of the way round is a tie of two."""
    chosen = farthest_anchors(grid_graph(16, 1), 3).tolist()
    assert chosen[1] == (chosen[0] + 8) % 16
    assert chosen[2] == min((chosen[0] + 4) % 16, (chosen[0] + 12) % 16)


def test_every_prefix_is_the_choice_of_fewer_anchors(global_seed):
    for graph in (knn_graph(random_sphere(500, global_seed)), mesh_graph(folded_mesh())):
        assert np.array_equal(farthest_anchors(graph, 80)[:33], farthest_anchors(graph, 33))


def two_pieces(seed):
    """A small and a large cloud, nearer to each other than the large one is wide, and two nodes without edges."""
    rng = np.random.default_rng(seed)
    small, large = rng.random((10, 2)) * 0.01 + [1.1, 0.5], rng.random((200, 2))
    parts = [knn_graph(part, n_neighbors=8).affinity for part in (small, large)]
    affinity = sparse.block_diag([*parts, sparse.csr_array((2, 2))], format="csr")
    points = np.concatenate([small, large, [[5.0, 5.0], [6.0, 6.0]]])
    with pytest.warns(GraphWarning):
        return Graph.from_affinity(affinity, points=points)


def test_every_piece_has_an_anchor_and_isolated_nodes_come_last(global_seed):
    graph = two_pieces(global_seed)
    chosen = farthest_anchors(graph, 2)
    assert chosen[1] < 10 <= chosen[0] < 210  # the large piece first
    assert np.array_equal(farthest_anchors(graph, 1), chosen[:1])
    everything = farthest_anchors(graph, 212)
    assert sorted(everything) == list(range(212))
    assert everything[-2:].tolist() == [210, 211]


def test_isolated_nodes_of_a_single_piece_are_left_out():
    points = np.array([[0.0], [1.0], [3.0], [90.0]])
    line = np.array([[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]], dtype=float)
    with pytest.warns(GraphWarning):
        graph = Graph.from_affinity(line, points=points)
    assert not follows_edges(graph)
    assert farthest_anchors(graph, 2).tolist() == [2, 0]
    assert farthest_anchors(graph, 4).tolist() == [2, 0, 1, 3]


def test_a_graph_without_edges_has_its_nodes_for_anchors():
    with pytest.warns(GraphWarning):
        graph = Graph.from_affinity(np.zeros((3, 3)), points=np.eye(3))
    assert farthest_anchors(graph, 2).tolist() == [0, 1]


@pytest.mark.parametrize("metric", [None, Sphere()], ids=["in space", "along edges"])
def test_sweeps_keep_their_distance_and_leave_no_hole(metric, global_seed):
    """The promise: least distance >= .95 of the largest gap. Rounding of lengths needs 1e-9 at most."""
    graph = knn_graph(random_sphere(2000, global_seed), metric=metric)
    chosen = _farthest(graph, 400, 40)
    assert len(np.unique(chosen)) == 400
    assert np.array_equal(chosen[:40], farthest_anchors(graph, 40))
    if metric is None:
        least = cKDTree(graph.points[chosen]).query(graph.points[chosen], k=2)[0][:, 1].min()
        gap = cKDTree(graph.points[chosen]).query(graph.points)[0].max()
    else:
        paths = graph.shortest_paths(chosen)
        gap = paths.min(axis=0).max()
        least = (paths[:, chosen] + np.diag(np.full(400, np.inf))).min()
    assert least >= 0.95 * gap * (1 - 1e-9)


def test_more_than_ten_thousand_anchors_are_as_even_as_promised(global_seed):
    graph = knn_graph(random_sphere(20_000, global_seed))
    chosen = farthest_anchors(graph, 10_500)
    assert len(np.unique(chosen)) == 10_500
    tree = cKDTree(graph.points[chosen])
    least = tree.query(graph.points[chosen], k=2)[0][:, 1].min()
    gap = tree.query(graph.points)[0].max()
    exact = thin(graph.points, 10_500)
    assert np.array_equal(chosen[:10_000], exact[:10_000])
    assert not np.array_equal(chosen, exact)  # the others come from sweeps
    best = cKDTree(graph.points[exact]).query(graph.points)[0].max()
    assert least >= 0.95 * gap
    assert gap <= 1.2 * best  # measured: 1.00 to 1.05


def test_sweeps_choose_among_equal_points():
    points = np.repeat(np.arange(10.0)[:, None], 5, axis=0)
    affinity = np.ones((50, 50)) - np.eye(50)
    graph = Graph.from_affinity(affinity, points=points)
    assert sorted(_farthest(graph, 50, 3)) == list(range(50))


def test_anchors_need_points():
    graph = Graph.from_affinity([[0, 1], [1, 0]])
    with pytest.raises(ValueError, match="`graph` must be a graph with points"):
        farthest_anchors(graph, 1)


@pytest.mark.parametrize("m", [0, 51])
def test_the_number_of_anchors_is_checked(m):
    with pytest.raises(ValueError, match=r"`m` must be an integer in \[1, 50\]"):
        farthest_anchors(knn_graph(Sphere().grid(50)), m)


def test_draws_follow_the_density(global_seed):
    """Chi-square with 3 degrees of freedom; one false alarm in 10,000 seeds."""
    density = np.array([3.0, 0.0, 1.0, 2.0, 4.0])
    counts = np.bincount(iid_anchors(5, 5000, density, np.random.default_rng(global_seed)), minlength=5)
    assert counts[1] == 0
    expected = 500 * density[density > 0]
    assert ((counts[density > 0] - expected) ** 2 / expected).sum() < chi2.ppf(1 - 1e-4, 3)


def test_draws_without_a_density_are_uniform(global_seed):
    counts = np.bincount(iid_anchors(4, 4000, None, np.random.default_rng(global_seed)), minlength=4)
    assert ((counts - 1000) ** 2 / 1000).sum() < chi2.ppf(1 - 1e-4, 3)


@pytest.mark.parametrize(
    ("density", "text"),
    [
        ([0, 0], "`density` must be positive at one node at least"),
        ([1, -1], r"`density` must be a vector with entries in \[0, inf\)"),
        ([1, 1, 1], r"`density` must be a vector of shape \(2,\)"),
    ],
)
def test_bad_densities_are_refused(density, text):
    with pytest.raises(ValueError, match=text):
        iid_anchors(2, 3, density, np.random.default_rng(0))


def test_huge_and_tiny_densities_keep_their_ratios():
    drawn = iid_anchors(2, 50, [1e150, 0.0], np.random.default_rng(0))
    assert (drawn == 0).all()
    assert (iid_anchors(2, 50, [0.0, 1e-320], np.random.default_rng(0)) == 1).all()


def test_all_nodes_are_anchors():
    assert all_anchors(3).tolist() == [0, 1, 2]


@pytest.mark.parametrize("dim", [1, 2, 3, 7])
@pytest.mark.parametrize("ratio", [0.5, 1.0, 1.2])
def test_anchors_needed_are_the_fewest_that_are_dense_enough(dim, ratio):
    m = anchors_needed(12.566, 0.4, dim, ratio)
    assert spacing_of(12.566, m, dim) <= ratio * 0.4 * (1 + 1e-9)
    assert m == 1 or spacing_of(12.566, m - 1, dim) > ratio * 0.4


def test_widths_that_no_anchors_resolve_are_refused():
    with pytest.raises(ValueError, match="`width` must be large enough"):
        anchors_needed(1.0, 1e-200, 3)


@pytest.mark.parametrize("kind", ["cloud", "mesh"])
def test_medoids_are_the_nodes_nearest_to_the_centres_of_their_cells(kind, global_seed):
    """A fixed point of Lloyd's rounds, found by plain loops; the cells are those of the Voronoi weights."""
    rng = np.random.default_rng(global_seed)
    points = np.column_stack([rng.random((300, 2)), np.zeros(300)])
    mesh = TriangleMesh(points, Delaunay(points[:, :2]).simplices)
    graph = knn_graph(points) if kind == "cloud" else mesh_graph(mesh)
    measure = rng.random(300)
    start = farthest_anchors(graph, 12)
    found = start
    for _ in range(_anchors._MEDOID_ROUNDS):
        cells = [np.flatnonzero(_anchors._owners(graph, found) == k) for k in range(12)]
        centres = [np.average(points[cell], axis=0, weights=measure[cell]) for cell in cells]
        pairs = zip(cells, centres, strict=True)
        found = np.array([cell[np.argmin(np.linalg.norm(points[cell] - centre, axis=1))] for cell, centre in pairs])
    chosen = medoid_anchors(graph, measure, start)
    assert np.array_equal(chosen, found)
    assert len(set(chosen.tolist())) == 12
    spread = [np.average(cKDTree(points[each]).query(points)[0] ** 2, weights=measure) for each in (start, chosen)]
    assert spread[1] < spread[0]


def test_medoids_leave_cells_without_measure_alone():
    graph = Graph.from_affinity(np.eye(6, k=1) + np.eye(6, k=-1), points=np.arange(6.0)[:, None])
    measure = np.array([0.0, 0.0, 0.0, 1.0, 1.0, 1.0])
    assert medoid_anchors(graph, measure, np.array([0, 5])).tolist() == [0, 4]


def test_medoids_on_a_flat_torus_do_not_notice_its_seam(global_seed):
    """The rounds by plain loops, with distances along the metric."""
    torus = FlatTorus(2)
    points = torus.sample(400, seed=global_seed)
    graph = knn_graph(points, metric=torus)
    start = farthest_anchors(graph, 20)
    found = start
    for _ in range(_anchors._MEDOID_ROUNDS):
        cells = [np.flatnonzero(_anchors._owners(graph, found) == k) for k in range(20)]
        sums = [(torus.distance(points[cell], points[cell]) ** 2).sum(axis=1) for cell in cells]
        found = np.array([cell[np.argmin(each)] for cell, each in zip(cells, sums, strict=True)])
    chosen = medoid_anchors(graph, np.ones(400), start)
    assert np.array_equal(chosen, found)
    gaps = [torus.distance(points[each], points).min(axis=0) for each in (start, chosen)]
    assert np.square(gaps[1]).mean() < np.square(gaps[0]).mean()


def test_medoids_of_coincident_points_are_different_nodes(global_seed):
    points = np.repeat(np.random.default_rng(global_seed).random((40, 2)), 3, axis=0)
    graph = Graph.from_affinity(np.ones((120, 120)) - np.eye(120), points=points)
    chosen = medoid_anchors(graph, np.ones(120), farthest_anchors(graph, 60))
    assert len(set(chosen.tolist())) == 60


def test_medoids_have_smaller_errors_on_a_space_with_corners():
    square, new = (np.random.default_rng(seed).random((n, 2)) for seed, n in ((0, 1000), (1, 200)))
    options = {"normalize": False, "random_state": 0}
    whole = ManifoldRandomFeatures(HeatKernel(0.01), n_features="all", **options).fit(square).kernel_matrix(new)
    errors = [
        relative_error(
            ManifoldRandomFeatures(HeatKernel(0.01), n_features=80, anchors=anchors, **options)
            .fit(square)
            .kernel_matrix(new),
            whole,
        )
        for anchors in ("farthest", "medoid")
    ]
    assert errors[1] < 0.95 * errors[0]
