"""Even nodes on clouds, their edges and images, curves and layers, against shapes that are known."""

import numpy as np
import pytest
from marks import quick_ones
from scipy.spatial import cKDTree

from benchmarks.known_spaces import SPACES
from manifoldrf import MobiusStrip, Sphere, Torus, heat_graph
from manifoldrf.geometry import clean_cloud
from manifoldrf.geometry.curves import CurveSpace, trace_curves
from manifoldrf.geometry.heat import space_of
from manifoldrf.geometry.layout import CloudSpace, EvenNodes
from manifoldrf.geometry.neighbors import NeighborSearch
from manifoldrf.geometry.patches import Edge, LocalSurface, Patches, find_edge, quadratic_terms
from manifoldrf.geometry.spaces import PointSpace, step_reach


def edge_of(points, spacing=0.03):
    return find_edge(NeighborSearch(points), None, points.shape[1], spacing)


def laid_out(points, s2=0.01):
    space = space_of(points)
    assert isinstance(space, CloudSpace)
    return space.layout(s2, space.spacing(s2), 1)


# -------------------------------------------------------------------------------------------------------- edges
@pytest.mark.parametrize(("dim", "n"), [(2, 3000), (3, 6000)])
def test_the_edge_of_a_box_is_at_its_faces(dim, n, global_seed):
    points = np.random.default_rng(global_seed).random((n, dim))
    edge = edge_of(points, 0.03 if dim == 2 else 0.08)
    gap = n ** (-1 / dim)
    off = np.abs(edge.places - np.clip(edge.places, 0, 1)).max(axis=1) + np.minimum(
        edge.places, 1 - edge.places
    ).min(1)
    assert np.abs(np.median(off)) < 0.3 * gap
    assert np.quantile(np.abs(off), 0.9) < gap
    assert np.median(np.abs(edge.normals).max(axis=1)) > 0.98
    assert np.isclose(np.linalg.norm(edge.normals, axis=1), 1).all()
    middle = np.full((1, dim), 0.5)
    assert np.einsum("ed,ed->e", edge.places - middle, edge.normals).min() > 0  # outward
    apart = np.hstack([edge.places, edge.normals])  # on one face; others meet it at corners
    assert cKDTree(apart).query(apart, 2)[0][:, 1].min() > 0.01
    depths, normals = edge.faces(np.full((1, dim), 0.05), 0.3)
    assert np.isfinite(depths[0, :2]).all()  # two faces at a corner
    assert np.allclose(depths[0, :2], 0.05, atol=gap)
    assert abs(normals[0, 0] @ normals[0, 1]) < 0.5  # measured .43 in three dimensions


def test_the_edge_of_a_disc_and_that_of_its_hole(global_seed):
    rng = np.random.default_rng(global_seed)
    points = rng.uniform(-1, 1, size=(8000, 2))
    radius = np.linalg.norm(points, axis=1)
    edge = edge_of(points[(radius > 0.4) & (radius < 1)], 0.05)
    radius = np.linalg.norm(edge.places, axis=1)
    assert np.abs(np.where(radius > 0.7, radius - 1, radius - 0.4)).max() < 0.05


@pytest.mark.parametrize("noise", [0.02, 0.04])
def test_noise_does_not_move_the_edge(noise, global_seed):
    rng = np.random.default_rng(global_seed)
    r, angle = np.sqrt(rng.random(3000)), rng.uniform(0, 2 * np.pi, 3000)
    bowl = np.column_stack([r * np.cos(angle), r * np.sin(angle), 0.3 * r**2])
    area = 2 * np.pi / 1.08 * (1.36**1.5 - 1)  # of z = .3 r^2: the integral of 2 pi r (1 + .36 r^2)^.5
    graph = heat_graph(bowl + noise * rng.normal(size=bowl.shape), 0.02)
    assert graph.weights.sum() == pytest.approx(area, rel=0.015)  # eight draws: .7 % at most


def test_many_points_show_a_hole_that_a_quarter_of_them_would_not(global_seed):
    points = Sphere().sample(20_000, seed=global_seed)
    points = points[points[:, 2] < np.cos(0.15)]
    nodes = laid_out(points)
    assert nodes.points[:, 2].max() < np.cos(0.12)
    assert nodes.images[:, 2].max() > np.cos(0.12)


@pytest.mark.parametrize("space", [Sphere(), Torus()], ids=str)
def test_closed_surfaces_have_no_edge(space, global_seed):
    nodes = laid_out(space.sample(3000, seed=global_seed))
    assert len(nodes.images) <= 0.002 * len(nodes.points)


def test_images_mirror_nodes_and_corners_have_three():
    sides = np.linspace(0.025, 0.975, 20)
    zero, one = np.zeros(20), np.ones(20)
    places = np.concatenate(
        [np.column_stack(p) for p in ((sides, zero), (sides, one), (zero, sides), (one, sides))]
    )
    normals = np.repeat([[0.0, -1], [0, 1], [-1, 0], [1, 0]], 20, axis=0)
    edge = Edge(places, normals, normals[:, None, ::-1], 2)
    images, own = edge.images(np.array([[0.5, 0.1], [0.1, 0.05], [0.5, 0.5]]), 0.2)
    assert np.allclose(images[own == 0], [[0.5, -0.1]])
    assert {tuple(p) for p in images[own == 1].round(6)} == {(-0.1, 0.05), (0.1, -0.05), (-0.1, -0.05)}
    assert not (own == 2).any()
    moved = edge.inside(np.array([[0.5, -0.02], [0.5, 0.5]]), 0.2, 0.05)
    assert np.allclose(moved, [[0.5, 0.05], [0.5, 0.5]])
    assert not len(Edge.none(2, 2).images(places, 1.0)[0])


# -------------------------------------------------------------------------------------------------- even nodes
@pytest.mark.parametrize(
    ("name", "ratio"),
    [
        ("S^2", 1),
        ("ring torus", 30),
        ("square", 30),
        pytest.param("Möbius strip", 1, marks=pytest.mark.slow),
        ("cube", 30),
    ],
)
def test_nodes_are_even_and_on_the_space(name, ratio, global_seed):
    space, rng = SPACES[name], np.random.default_rng(global_seed)
    nodes = laid_out(space.embed(space.uneven(4000, ratio, rng)), s2=space.t / 2)
    gaps = cKDTree(nodes.points).query(nodes.points, 2)[0][:, 1]
    assert gaps.std() / gaps.mean() < 0.2  # random points .52
    # No hole: every point of the space is near a node.
    holes = cKDTree(nodes.points).query(space.embed(space.draw(3000, rng)))[0]
    most = 2.5 if name == "cube" else 1.6  # where data of a solid are sparse, nodes are, too
    assert np.quantile(holes, 0.999) < most * gaps.mean()
    if name == "S^2":
        assert np.abs(np.linalg.norm(nodes.points, axis=1) - 1).max() < 0.02
        assert np.abs(nodes.ricci - np.eye(2)).mean() < 0.25


def test_the_number_of_nodes_follows_from_the_time_not_from_the_points(global_seed):
    sizes = [heat_graph(Sphere().sample(n, seed=global_seed), 0.1).n_nodes for n in (1000, 6000)]
    assert max(sizes) < 1.1 * min(sizes)
    graph = heat_graph(Sphere().sample(1000, seed=global_seed), 0.1, n_nodes=300)
    assert graph.n_nodes == pytest.approx(300, rel=0.15)


@pytest.mark.parametrize("name", quick_ones(["two layers, gap 0.141", "roll, gap 0.245"], "two layers, gap 0.141"))
def test_steps_do_not_jump_between_layers(name, global_seed):
    space, rng = SPACES[name], np.random.default_rng(global_seed)
    u = space.draw(4000, rng)
    points = space.embed(u)
    s2 = 4 * space.t / 28
    nodes = laid_out(points, s2)
    at = u[cKDTree(points).query(nodes.points)[1]]
    rows, columns, squares = nodes.steps(step_reach(s2, 2), s2)
    share = np.exp(-squares / s2)
    jumps = np.linalg.norm(at[rows] - at[columns], axis=1) > 1.0
    if name.startswith("two"):
        jumps = at[rows, 2] != at[columns, 2]
    assert share[jumps].sum() < 0.003 * share.sum()


def test_curvature_does_not_follow_the_noise_of_dense_data(global_seed):
    """The Ricci curvature of the unit sphere has the trace 2, whatever the distance between points."""
    rng = np.random.default_rng(global_seed)
    points = Sphere().sample(20_000, seed=global_seed)
    nodes = laid_out(points + 0.005 * rng.normal(size=points.shape), 0.0167)
    traces = np.einsum("naa->n", nodes.ricci)
    assert 1.8 < np.median(traces) < 2.3
    assert 1.0 < traces.min() < traces.max() < 3.0


def test_tangents_of_a_patch_are_the_derivatives_of_its_points():
    """The graph of a quadratic function over a plane; central differences are exact for it, up to rounding."""
    heights, width, mean = np.array([0.1, 0.2, -0.3, 0.5, 0.7, -0.4]), 0.7, np.array([1.0, 2.0, 3.0])
    bends = np.column_stack([0 * heights, 0 * heights, heights])
    patch = Patches(mean[None], np.eye(3)[None, :, :2], bends[None], np.array([width]))

    def place(a):
        return mean + np.array([width * a[0], width * a[1], quadratic_terms(a[None])[0] @ heights])

    a, h = np.array([0.3, -0.4]), 1e-3
    slopes = np.column_stack([(place(a + step) - place(a - step)) / (2 * h) for step in h * np.eye(2)])
    surface = LocalSurface(NeighborSearch(mean[None]), np.zeros(3), np.eye(3), patch)
    found = surface.tangents(place(a)[None])[0]
    np.testing.assert_allclose(found.T @ found, np.eye(2), atol=1e-12)
    np.testing.assert_allclose(found @ (found.T @ slopes), slopes, atol=1e-9)


# ------------------------------------------------------------------------------------------------------ curves
@pytest.mark.parametrize(
    ("name", "n", "noise"),
    [("circle", 200, 0.0), ("trefoil", 1000, 0.0), ("trefoil", 1000, 0.03), ("helix", 1000, 0.03)],
)
def test_curves_are_traced(name, n, noise, global_seed):
    space, rng = SPACES[name], np.random.default_rng(global_seed)
    points = space.embed(space.draw(n, rng))
    cloud = clean_cloud(points + noise * rng.normal(size=points.shape), dim=1)
    curve = trace_curves(cloud, 1)
    exact = 1 / space.kernel(np.array([[1.0]]), 1e6)[0, 0]  # heat is spread over the whole length
    assert curve.closed.tolist() == [name != "helix"]
    assert curve.lengths[0] == pytest.approx(exact, rel=0.02 + 2 / n)
    arcs, pieces = curve.locate((points - cloud.origin) @ cloud.axes)
    assert np.abs(curve.at(arcs, pieces) @ cloud.axes.T + cloud.origin - points).max() < 0.05 + 20 / n + 4 * noise


@pytest.mark.parametrize("n_coordinates", [1, 3])
def test_random_points_of_a_line_are_one_curve(n_coordinates, global_seed):
    points = np.zeros((400, n_coordinates))
    points[:, 0] = np.random.default_rng(global_seed).random(400)
    space = space_of(points)
    assert isinstance(space, CurveSpace)
    assert space.curve.lengths == pytest.approx([1.0], rel=0.02)


def test_noisy_curves_in_a_plane_of_space(global_seed):
    """They have two coordinates of their own, and new points have three."""
    rng = np.random.default_rng(global_seed)
    angle = rng.uniform(0, 2 * np.pi, 800)
    circle = np.column_stack([np.cos(angle), 0 * angle + 5, np.sin(angle)])
    graph = heat_graph(circle + 0.02 * rng.normal(size=circle.shape) * [1, 0, 1], 0.05)
    placed = graph.placed(circle[:20] * [1.05, 1, 1.05])
    assert graph.weights.sum() == pytest.approx(2 * np.pi, rel=0.01)
    assert np.allclose(placed, circle[:20], atol=0.02)


def test_several_curves_and_branches(global_seed):
    rng = np.random.default_rng(global_seed)
    circle = Sphere(dim=1).sample(500, seed=rng)
    two = space_of(np.vstack([circle, 2 * circle]))
    assert isinstance(two, CurveSpace)
    assert sorted(two.curve.lengths) == pytest.approx([2 * np.pi, 4 * np.pi], rel=0.01)
    cross = np.zeros((1000, 2))
    cross[np.arange(1000), np.arange(1000) % 2] = rng.uniform(-1, 1, 1000)
    assert not isinstance(space_of(cross), CurveSpace)
    apart = space_of(np.vstack([circle[::5], np.add(circle[1::5], [2.6, 0])]))  # few points, a gap of .6
    assert isinstance(apart, CurveSpace)
    assert apart.curve.closed.tolist() == [1, 1]
    segments = [np.column_stack([rng.random(300), np.full(300, height)]) for height in (0, 0.05)]
    assert space_of(np.vstack(segments)).curve.closed.tolist() == [0, 0]


def test_points_are_nodes_where_no_layout_can_be_trusted(global_seed):
    rng = np.random.default_rng(global_seed)
    for points in (rng.normal(size=(300, 10)), Sphere(dim=4).sample(1500, seed=0), rng.random((20, 3))):
        space = space_of(points)
        assert isinstance(space, PointSpace)
        assert np.allclose(np.sort(space.points, axis=0), np.sort(points, axis=0))


def test_the_moebius_strip_has_one_edge_and_its_area(global_seed):
    graph = heat_graph(MobiusStrip().sample(2000, seed=global_seed), 0.05)
    assert isinstance(graph.extension.nodes, EvenNodes)
    assert graph.weights.sum() == pytest.approx(MobiusStrip().volume, rel=0.02)
