"""smooth and distances: closed forms on the plane and the sphere, constants, mass, unknown values, bad input."""

import re

import numpy as np
import pytest
from oracles import sphere_mesh
from scipy.linalg import expm
from scipy.spatial import Delaunay

from manifoldrf import (
    FieldInterpolator,
    Graph,
    ManifoldWarning,
    Sphere,
    TriangleMesh,
    distances,
    heat_graph,
    knn_graph,
    mesh_graph,
    smooth,
)

RNG = np.random.default_rng(0)
CLOUD = Sphere().sample(300, seed=0)


def plane():
    """A jittered grid of the square of side 8, spacing 0.1; the vertex in the middle is at the origin."""
    line = np.linspace(-4.0, 4.0, 81)
    points = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    inside = np.abs(points).max(axis=1) < 3.99
    points[inside] += 0.02 * RNG.standard_normal((int(inside.sum()), 2))
    points[len(points) // 2] = 0.0
    return points


PLANE = plane()
FLAT = TriangleMesh(np.column_stack([PLANE, np.zeros(len(PLANE))]), Delaunay(PLANE).simplices)
N = 600
SPHERE = sphere_mesh(N)
FIELD = RNG.standard_normal((N, 3))
AREAS = mesh_graph(SPHERE, weights="cotangent").weights
SPACES = {
    "mesh": SPHERE,
    "points": SPHERE.vertices,
    "heat graph": heat_graph(SPHERE.vertices, 0.05, volumes=AREAS),
    "neighbours": knn_graph(SPHERE.vertices),
}


def tolerance(space, exact):
    """Of integrals: volumes of points are found from their density, to about 1 % here."""
    return exact if isinstance(space, Graph | TriangleMesh) else 0.01


@pytest.fixture(params=SPACES)
def space(request):
    return SPACES[request.param]


# --------------------------------------------------------------------------------------------------- smooth
@pytest.mark.parametrize(
    ("space", "fwhm"),
    [(FLAT, 0.6), (FLAT, 1.0), (FLAT, 2.0), (PLANE, 1.0), pytest.param(PLANE, 0.6, marks=pytest.mark.slow)],
    ids=lambda value: {FLAT: "mesh"}.get(value, value) if isinstance(value, TriangleMesh | float) else "points",
)
def test_a_point_on_the_plane_spreads_to_that_width(space, fwhm):
    """Both the variance and the slope of log u against r^2 have the width of the Gaussian within 2 %."""
    start = np.zeros(len(PLANE))
    start[len(PLANE) // 2] = 1.0
    found = smooth(space, start, fwhm=fwhm)
    squares = (PLANE**2).sum(axis=1)
    high = found > 0.1 * found.max()
    slope = np.polyfit(squares[high], np.log(found[high]), 1)[0]
    assert 2 * np.sqrt(np.log(2) / -slope) == pytest.approx(fwhm, rel=0.02)
    variance = (found * squares).sum() / found.sum() / 2  # along each axis
    assert np.sqrt(8 * np.log(2) * variance) == pytest.approx(fwhm, rel=0.02)


def test_waves_of_the_sphere_decay_as_in_the_closed_form():
    """Harmonics of degrees 1 and 2 decay by e^{-2t} and e^{-6t}; the error of the mesh is of order h^2 = .01."""
    z = SPHERE.vertices[:, 2]
    found = smooth(SPHERE, np.column_stack([z, 3 * z**2 - 1]), t=0.2)
    np.testing.assert_allclose(found[:, 0], np.exp(-0.4) * z, atol=0.01)
    np.testing.assert_allclose(found[:, 1], np.exp(-1.2) * (3 * z**2 - 1), atol=0.02)


def test_smoothing_of_a_mesh_is_the_exponential_of_its_laplacian():
    mesh = sphere_mesh(100)
    graph = mesh_graph(mesh, weights="cotangent")
    generator = (np.eye(100) - graph.affinity.toarray() / graph.weights[:, None]) / graph.step_time
    exact = expm(-0.3 * generator) @ FIELD[:100]
    np.testing.assert_allclose(smooth(mesh, FIELD[:100], t=0.3), exact, atol=1e-11)


def test_constants_stay_constant_and_shifts_stay_shifts(space):
    np.testing.assert_allclose(smooth(space, np.full(N, 7.3), t=0.05), 7.3, rtol=1e-12)
    shifted = smooth(space, FIELD + 10.0, t=0.05) - 10.0
    np.testing.assert_allclose(shifted, smooth(space, FIELD, t=0.05), atol=1e-12)


def test_mass_is_conserved_and_no_value_leaves_the_range(space):
    areas = space.degrees if isinstance(space, Graph) else AREAS
    found = smooth(space, FIELD, t=0.05)
    np.testing.assert_allclose(areas @ found, areas @ FIELD, atol=tolerance(space, 1e-11) * areas.sum())
    assert (found >= FIELD.min(axis=0)).all()
    assert (found <= FIELD.max(axis=0)).all()


def test_unknown_values_are_means_of_the_known_ones(space):
    """u = P(m f) / P m with the walk P; whatever stands at unknown nodes has no effect."""
    known = RNG.random(N) < 0.5
    gaps = np.where(known[:, None], FIELD, np.nan)
    found = smooth(space, gaps, t=0.05)
    other = smooth(space, np.where(known[:, None], FIELD, 1e6), t=0.05, known=np.flatnonzero(known))
    np.testing.assert_array_equal(found, other)
    np.testing.assert_allclose(smooth(space, np.where(known, 5.0, np.nan), t=0.05), 5.0, rtol=1e-12)
    mass = smooth(space, known.astype(float), t=0.05)[:, None]
    exact = smooth(space, np.where(known[:, None], FIELD, 0.0), t=0.05) / mass
    np.testing.assert_allclose(found, exact, atol=1e-9)


@pytest.mark.filterwarnings("ignore:Graph of")  # of several pieces
def test_parts_without_a_known_value_are_empty_with_a_warning():
    two = TriangleMesh(
        np.vstack([SPHERE.vertices, SPHERE.vertices + 5.0, [[20.0, 0, 0]]]),
        np.vstack([SPHERE.faces, SPHERE.faces + N]),
    )
    field = np.concatenate([FIELD[:, 0], np.full(N + 1, np.nan)])
    with pytest.warns(ManifoldWarning, match=r"^601 of 1201 nodes are in components without a known value"):
        found = smooth(two, field, t=0.05)
    np.testing.assert_allclose(found[:N], smooth(SPHERE, FIELD[:, 0], t=0.05), atol=1e-11)
    assert np.isnan(found[N:]).all()
    field[2 * N] = 3.0  # a vertex without a face keeps its value
    with pytest.warns(ManifoldWarning):
        assert smooth(two, field, t=0.05)[2 * N] == 3.0


# ------------------------------------------------------------------------------------------------ distances
def test_edge_paths_are_those_of_the_graph():
    graph = knn_graph(SPHERE.vertices)
    np.testing.assert_array_equal(distances(SPHERE.vertices, [0, 5], method="edges"), graph.shortest_paths([0, 5]))
    np.testing.assert_array_equal(distances(graph, 5), graph.shortest_paths(5)[0])
    for space, source, options, text in [
        (graph, 0, {"method": "heat"}, "`method` must be 'edges' on a graph"),
        (SPHERE, 0, {"method": "exact"}, "`method` must be"),
        (SPHERE, N, {"method": "edges"}, "`sources` must be"),
    ]:
        with pytest.raises(ValueError, match=text):
            distances(space, source, **options)


def off(found, exact):
    return np.abs(found - exact).sum() / exact.sum()


@pytest.mark.parametrize("shape", [(1000, 2), (3000, 3)])
def test_inside_a_solid_cloud_distances_are_straight_lines(shape):
    points = np.random.default_rng(0).uniform(size=shape)
    exact = np.linalg.norm(points - points[0], axis=1)
    assert off(distances(points, 0), exact) < 0.01
    if shape[1] == 2:
        assert off(distances(np.pad(points, ((0, 0), (0, 1)), constant_values=5.0), 0), exact) < 0.01


def test_around_a_hollow_distances_follow_it():
    """Across a ring: two tangents to the inner circle and the arc between them."""
    rng = np.random.default_rng(0)
    angles, radii = 2 * np.pi * rng.random(3000), np.sqrt(rng.uniform(0.25, 1, 3000))
    ring = np.vstack([[[1.0, 0], [-1.0, 0]], np.column_stack([radii * np.cos(angles), radii * np.sin(angles)])])
    exact = 2 * np.sqrt(0.75) + 0.5 * (np.pi - 2 * np.arccos(0.5))
    assert distances(ring, 0)[1] == pytest.approx(exact, rel=0.02)


@pytest.mark.parametrize(("noise", "tolerance"), [(0.0, 0.001), (0.02, 0.03)])
def test_along_a_curve_distances_are_the_length_of_its_arc(noise, tolerance):
    rng = np.random.default_rng(0)
    angles = 2 * np.pi * rng.random(1000)
    points = np.column_stack([np.cos(angles), np.sin(angles)]) + noise * rng.normal(size=(1000, 2))
    exact = np.abs((angles - angles[0] + np.pi) % (2 * np.pi) - np.pi)
    assert off(distances(points, 0), exact) < tolerance


@pytest.mark.parametrize("kind", ["mesh", "points"])
def test_heat_distances_on_a_sphere_are_within_one_per_cent(kind):
    """Edge paths along the same mesh are 5 to 8 % too long."""
    pytest.importorskip("potpourri3d")
    mesh = sphere_mesh(4000)
    starts = [0, 2000]
    exact = Sphere().distance(mesh.vertices[starts], mesh.vertices)
    apart = exact > 0
    found, edges = (
        distances(mesh if kind == "mesh" else mesh.vertices, starts, method=method) for method in ("heat", "edges")
    )
    error = np.abs(found - exact)[apart] / exact[apart]
    assert error.mean() < 0.01
    assert (np.abs(edges - exact)[apart] / exact[apart]).mean() > 2 * error.mean()
    assert (found[[0, 1], starts] == 0).all()


@pytest.mark.filterwarnings("ignore:Graph of")  # of several pieces
def test_heat_distances_scale_and_end_at_other_parts():
    pytest.importorskip("potpourri3d")
    one = sphere_mesh(500)
    two = TriangleMesh(
        np.vstack([one.vertices, one.vertices + 5.0, [[20.0, 0, 0]]]), np.vstack([one.faces, one.faces + 500])
    )
    alone = distances(one, 3)
    found = distances(two, [3, 503, 1000])
    np.testing.assert_allclose(found[0, :500], alone, rtol=1e-9)
    np.testing.assert_allclose(found[1, 500:1000], alone, rtol=1e-6)
    assert np.isinf(found[0, 500:]).all()
    assert found[2, 1000] == 0
    assert np.isinf(found[2, :1000]).all()
    large = TriangleMesh(1e80 * one.vertices, one.faces)
    np.testing.assert_allclose(distances(large, 3), 1e80 * alone, rtol=1e-6)


def test_heat_distances_need_at_most_three_coordinates():
    pytest.importorskip("potpourri3d")
    text = "`space` must be points with at most 3 coordinates for method='heat'. Got 4 coordinates."
    with pytest.raises(ValueError, match=re.escape(text)):
        distances(RNG.random((200, 4)), 0, method="heat")
    text = "`space` must be a surface for method='heat'; use method='edges'. Got one that potpourri3d refuses"
    with pytest.raises(ValueError, match=re.escape(text)):
        distances(np.linspace(0, 1, 50)[:, None], 0, method="heat")


def test_tiny_triangles_neither_stop_nor_change_the_smoothing():
    """Vertices 1e-6 apart would need four million steps; the field is that of the mesh without them."""
    grid = PLANE[::7]
    points = np.vstack([grid, [[0.31, 0.2], [0.31 + 1e-6, 0.2], [0.31, 0.2 + 1e-6]]])
    clean, tiny = (
        TriangleMesh(np.column_stack([part, np.zeros(len(part))]), Delaunay(part).simplices)
        for part in (grid, points)
    )
    found = smooth(tiny, points[:, 0] ** 2, fwhm=2.0)[: len(grid)]
    np.testing.assert_allclose(found, smooth(clean, grid[:, 0] ** 2, fwhm=2.0), atol=0.06)  # .3 % of the range
    np.testing.assert_allclose(smooth(tiny, np.full(len(points), 7.3), fwhm=2.0), 7.3, rtol=1e-12)


def test_places_measured_several_times_are_one_place(global_seed):
    """300 stations of a sphere, ten times each: neighbours of a measurement were those of the same station."""
    rng = np.random.default_rng(global_seed)
    points = np.repeat(Sphere().sample(300, seed=rng), 10, axis=0) + 1e-3 * rng.normal(size=(3000, 3))
    z = points[:, 2]
    assert np.linalg.norm(smooth(points, z, t=0.05) - np.exp(-0.1) * z) < 0.03 * np.linalg.norm(z)
    arcs = np.arccos(np.clip(points @ points[0], -1, 1))
    assert np.linalg.norm(distances(points, 0) - arcs) < 0.03 * np.linalg.norm(arcs)


@pytest.mark.parametrize(
    ("call", "stages"),
    [
        (lambda **how: smooth(CLOUD, CLOUD[:, 2], fwhm=0.5, **how), ["graph", "smoothing"]),
        (lambda **how: distances(CLOUD, 0, method="edges", **how), ["graph", "distances"]),
        (
            lambda **how: FieldInterpolator("kernel", **how).fit(CLOUD, CLOUD[:, 2], range(0, 300, 3)),
            ["graph", *(f"trial of kernel, tau = {2.0**k:g}" for k in range(-2, 8)), "field"],
        ),
    ],
)
def test_each_stage_is_reported_with_its_end(call, stages):
    told = []
    call(verbose=lambda *report: told.append(report))
    assert [what for what, done, _ in told if not done] == [what for what, done, _ in told if done] == stages
