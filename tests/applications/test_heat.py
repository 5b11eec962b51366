"""smooth and distances: closed forms on the plane and the sphere, constants, mass, unknown values, bad input."""

import re

import numpy as np
import pytest
from oracles import sphere_mesh
from scipy.linalg import expm
from scipy.spatial import Delaunay

from manifoldrf import (
    Graph,
    InterpolationWarning,
    Sphere,
    TriangleMesh,
    distances,
    heat_graph,
    knn_graph,
    mesh_graph,
    smooth,
)

RNG = np.random.default_rng(0)


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
SPHERE = sphere_mesh(1000)
FIELD = RNG.standard_normal((1000, 3))
AREAS = mesh_graph(SPHERE, weights="cotangent").weights
SPACES = {
    "mesh": SPHERE,
    "points": SPHERE.vertices,
    "heat graph": heat_graph(SPHERE.vertices, 0.05),
    "neighbours": knn_graph(SPHERE.vertices),
}


@pytest.fixture(params=SPACES)
def space(request):
    return SPACES[request.param]


# --------------------------------------------------------------------------------------------------- smooth
@pytest.mark.parametrize("fwhm", [0.6, 1.0, 2.0])
@pytest.mark.parametrize("space", [FLAT, PLANE], ids=["mesh", "points"])
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
    np.testing.assert_allclose(smooth(space, np.full(1000, 7.3), t=0.05), 7.3, rtol=1e-12)
    shifted = smooth(space, FIELD + 10.0, t=0.05) - 10.0
    np.testing.assert_allclose(shifted, smooth(space, FIELD, t=0.05), atol=1e-12)


def test_mass_is_conserved_and_no_value_leaves_the_range(space):
    areas = AREAS if isinstance(space, TriangleMesh) else None
    graph = space if isinstance(space, Graph) else heat_graph(SPHERE.vertices, 0.05, noise=0)
    areas = graph.degrees if areas is None else areas
    found = smooth(space, FIELD, t=0.05)
    np.testing.assert_allclose(areas @ found, areas @ FIELD, atol=1e-11 * areas.sum())
    assert (found >= FIELD.min(axis=0)).all()
    assert (found <= FIELD.max(axis=0)).all()


def test_several_fields_are_smoothed_like_each_alone(space):
    together = smooth(space, FIELD, t=0.05)
    for k in range(3):
        np.testing.assert_allclose(smooth(space, FIELD[:, k], t=0.05), together[:, k], atol=1e-13)


def test_the_number_of_threads_changes_nothing():
    np.testing.assert_array_equal(
        smooth(SPHERE, FIELD, fwhm=0.3, n_jobs=1), smooth(SPHERE, FIELD, fwhm=0.3, n_jobs=2)
    )


def test_unknown_values_are_means_of_the_known_ones(space):
    """u = P(m f) / P m with the walk P; whatever stands at unknown nodes has no effect."""
    known = RNG.random(1000) < 0.5
    gaps = np.where(known[:, None], FIELD, np.nan)
    found = smooth(space, gaps, t=0.05)
    other = smooth(space, np.where(known[:, None], FIELD, 1e6), t=0.05, known=np.flatnonzero(known))
    np.testing.assert_array_equal(found, other)
    np.testing.assert_allclose(smooth(space, np.where(known, 5.0, np.nan), t=0.05), 5.0, rtol=1e-12)
    mass = smooth(space, known.astype(float), t=0.05)[:, None]
    exact = smooth(space, np.where(known[:, None], FIELD, 0.0), t=0.05) / mass
    np.testing.assert_allclose(found, exact, atol=1e-9)


def test_conserve_keeps_the_integral_over_the_known_nodes(space):
    known = RNG.random(1000) < 0.6
    graph = space if isinstance(space, Graph) else None
    areas = AREAS if isinstance(space, TriangleMesh) else (graph or heat_graph(SPHERE.vertices, 0.05)).degrees
    found = smooth(space, FIELD, t=0.05, known=known, conserve=True)
    assert np.isnan(found[~known]).all()
    np.testing.assert_allclose(areas[known] @ found[known], areas[known] @ FIELD[known], atol=1e-12 * areas.sum())
    constant = smooth(space, np.where(known, 7.3, np.nan), t=0.05, conserve=True)
    np.testing.assert_allclose(constant[known], 7.3, rtol=1e-12)
    assert found[known].std() < 0.5 * FIELD[known].std()


@pytest.mark.filterwarnings("ignore:Graph of")  # of several pieces
def test_parts_without_a_known_value_are_empty_with_a_warning():
    two = TriangleMesh(
        np.vstack([SPHERE.vertices, SPHERE.vertices + 5.0, [[20.0, 0, 0]]]),
        np.vstack([SPHERE.faces, SPHERE.faces + 1000]),
    )
    field = np.concatenate([FIELD[:, 0], np.full(1001, np.nan)])
    with pytest.warns(InterpolationWarning, match=r"^1001 of 2001 nodes are in components without a known value"):
        found = smooth(two, field, t=0.05)
    np.testing.assert_allclose(found[:1000], smooth(SPHERE, FIELD[:, 0], t=0.05), atol=1e-11)
    assert np.isnan(found[1000:]).all()
    field[2000] = 3.0  # a vertex without a face keeps its value
    with pytest.warns(InterpolationWarning):
        assert smooth(two, field, t=0.05)[2000] == 3.0


BAD = [
    ({"fwhm": 0.0}, ValueError, "`fwhm` must be above 0. Got 0.0."),
    ({"fwhm": "1"}, TypeError, "`fwhm` must be a number in [1e-150, 1e+150]. Got '1'."),
    ({"t": -1.0}, ValueError, "`t` must be a number in (0, inf). Got -1.0."),
    ({}, ValueError, "`fwhm` must be given, or `t`, but not both. Got neither."),
    ({"fwhm": 1.0, "t": 1.0}, ValueError, "`fwhm` must be given, or `t`, but not both. Got both."),
    ({"t": 1.0, "conserve": 1}, TypeError, "`conserve` must be True or False. Got 1."),
    (
        {"t": 1.0, "field": np.ones(5)},
        ValueError,
        "`field` must be an array of shape (1000,) or (1000, c), one row per node. Got shape (5,).",
    ),
    ({"t": 1.0, "known": np.ones(5, bool)}, ValueError, "`known` must be a mask of shape (1000,). Got shape (5,)."),
    (
        {"t": 1.0, "field": np.full(1000, np.inf)},
        ValueError,
        "`field[known]` must be finite, without NaN or inf. Got inf at index",
    ),
    ({"t": 1e9}, ValueError, "`t` must be at most 40 here: heat is spread evenly long before. Got 1e+09."),
    ({"fwhm": 1e3}, ValueError, "`fwhm` must be at most 21.1 here: heat is spread evenly long before. Got 1000."),
]


@pytest.mark.parametrize(("options", "kind", "text"), BAD, ids=[text for *_, text in BAD])
def test_bad_input_is_named(options, kind, text):
    given = {"field": FIELD} | options
    with pytest.raises(kind, match=f"^{re.escape(text)}"):
        smooth(SPHERE, given.pop("field"), **given)


def test_widths_that_a_heat_graph_does_not_have_are_told_as_widths():
    graph = SPACES["heat graph"]
    with pytest.raises(
        ValueError, match=r"`fwhm` must be a width that this heat graph has, such as .*\. Got 1\."
    ) as told:
        smooth(graph, FIELD, fwhm=1.0)
    for width in re.findall(r"\d+\.\d+", str(told.value))[:2]:
        assert graph.step_time * 2 * round(float(width) ** 2 / 11.09 / graph.step_time / 2) == pytest.approx(
            float(width) ** 2 / (16 * np.log(2)), rel=1e-3
        )
    exact = 4 * np.sqrt(2 * graph.step_time * np.log(2))
    np.testing.assert_array_equal(
        smooth(graph, FIELD, fwhm=exact), smooth(graph, FIELD, t=exact**2 / 16 / np.log(2))
    )
    with pytest.raises(ValueError, match="`t` must be an even number of steps"):
        smooth(graph, FIELD, t=0.011)


# ------------------------------------------------------------------------------------------------ distances
def test_edge_paths_are_those_of_the_graph():
    graph = knn_graph(SPHERE.vertices)
    np.testing.assert_array_equal(distances(SPHERE.vertices, [0, 5], method="edges"), graph.shortest_paths([0, 5]))
    np.testing.assert_array_equal(distances(graph, 5, method="edges"), graph.shortest_paths(5)[0])
    with pytest.raises(ValueError, match=re.escape("`method` must be 'edges' on a graph; 'heat' needs a mesh")):
        distances(graph, 0)
    with pytest.raises(ValueError, match="`method` must be"):
        distances(SPHERE, 0, method="exact")
    with pytest.raises(ValueError, match="`sources` must be"):
        distances(SPHERE, 1000, method="edges")


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
        distances(RNG.random((200, 4)), 0)
    text = "`space` must be a surface for method='heat'; use method='edges'. Got one that potpourri3d refuses"
    with pytest.raises(ValueError, match=re.escape(text)):
        distances(np.linspace(0, 1, 50)[:, None], 0)


def test_tiny_triangles_neither_stop_nor_change_the_smoothing():
    """Vertices 1e-6 apart would need four million steps; the field is that of the mesh without them."""
    grid = PLANE[::7]
    points = np.vstack([grid, [[0.31, 0.2], [0.31 + 1e-6, 0.2], [0.31, 0.2 + 1e-6]]])
    clean, tiny = (
        TriangleMesh(np.column_stack([part, np.zeros(len(part))]), Delaunay(part).simplices)
        for part in (grid, points)
    )
    found = smooth(tiny, points[:, 0] ** 2, fwhm=2.0)[: len(grid)]
    np.testing.assert_allclose(found, smooth(clean, grid[:, 0] ** 2, fwhm=2.0), atol=0.01)
    np.testing.assert_allclose(smooth(tiny, np.full(len(points), 7.3), fwhm=2.0), 7.3, rtol=1e-12)
