"""The surfaces with tokens: their measures, their seams, and heat that stays on the surface."""

import numpy as np
import pytest
from scipy.sparse import coo_array, csgraph

from reproduction.token_surfaces import HEAT_TIME, SURFACES

AREAS = {"mobius": 5.06, "mobius2": 10.1, "swiss": 4.4, "folded": 5.7}
CYLINDERS = ("swiss", "folded")


def _units(n, seed=0):
    return np.random.default_rng(seed).uniform(0.001, 0.999, (n, 2))


@pytest.mark.parametrize("name", SURFACES)
def test_areas_are_those_of_the_protocol_and_of_the_mesh(name):
    surface = SURFACES[name]
    assert surface.area == pytest.approx(AREAS[name], rel=0.01)  # two digits are stated
    # Flat triangles cut off what bends: a share of (cell / radius)^2 / 24, below .1 % for cells of .02 and folds.
    assert surface.mesh.area == pytest.approx(surface.area, rel=1e-3)
    assert 13_000 <= surface.mesh.n_vertices <= 29_000


@pytest.mark.parametrize("name", CYLINDERS)
def test_rolls_and_folds_are_isometric_to_a_rectangle(name):
    """Both parameters run at constant speed and at right angles."""
    surface, units, step = SURFACES[name], _units(500), 1e-5
    along, across = (
        (surface.embed(units + shift) - surface.embed(units - shift)) / (2 * step) for shift in step * np.eye(2)
    )
    np.testing.assert_allclose(np.linalg.norm(along, axis=1), surface.area, rtol=1e-3)  # the width is 1
    np.testing.assert_allclose(np.linalg.norm(across, axis=1), 1.0, rtol=1e-9)
    np.testing.assert_allclose((along * across).sum(axis=1), 0.0, atol=1e-8)


@pytest.mark.parametrize(
    ("name", "euler", "edges_of_surface"), [("mobius", 0, 1), ("mobius2", 0, 2), ("swiss", 1, 1)]
)
def test_meshes_have_the_topology_of_their_surface(name, euler, edges_of_surface):
    mesh = SURFACES[name].mesh
    edges = np.sort(mesh.faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2), axis=1)
    unique, counts = np.unique(edges, axis=0, return_counts=True)
    assert mesh.n_vertices - len(unique) + len(mesh.faces) == euler
    assert set(counts) == {1, 2}
    rim = _closed_lines(unique[counts == 1], mesh.n_vertices)
    assert rim == edges_of_surface


def _closed_lines(edges, n):
    """Number of closed lines that some edges form."""
    graph = coo_array((np.ones(len(edges)), edges.T), shape=(n, n))
    labels = csgraph.connected_components(graph, directed=False)[1]
    return len(np.unique(labels[np.unique(edges)]))


@pytest.mark.parametrize("name", SURFACES)
def test_tokens_are_uniform_by_area(name):
    surface, n = SURFACES[name], 4000
    tokens = surface.sample(n, np.random.default_rng(1))
    np.testing.assert_allclose(tokens.points, surface.embed(tokens.units))
    mass = surface.masses / surface.masses.sum()
    for function in (lambda x: x, np.square):
        on_mesh = function(surface.mesh.vertices)
        mean = mass @ on_mesh
        spread = np.sqrt(mass @ (on_mesh - mean) ** 2 / n)
        # z = 5: a false alarm in a million; the mesh adds its own error of a thousandth.
        assert (np.abs(function(tokens.points).mean(axis=0) - mean) < 5 * spread + 1e-3).all()


@pytest.mark.parametrize("name", SURFACES)
def test_heat_is_neither_lost_nor_made_and_constants_stay(name):
    surface = SURFACES[name]
    heat = surface.draw_sources((5, 8), np.random.default_rng(3))
    everywhere = surface.masses[:, None]
    found = surface.diffuse(np.column_stack([heat, everywhere]))
    np.testing.assert_allclose(surface.masses @ found[:, :2], heat.sum(axis=0), atol=1e-11)  # rounding of 8 solves
    np.testing.assert_allclose(found[:, 2], 1.0, rtol=1e-9)


@pytest.mark.parametrize("name", CYLINDERS)
def test_heat_spreads_along_the_surface_only(name):
    """The variance of a spot along the roll grows by 2 t, by implicit steps too; a jump of heat would add to it."""
    surface = SURFACES[name]
    columns, rows = surface.grid
    along = np.repeat(np.linspace(0, surface.area, columns), rows)
    start = surface.vertex(np.array([columns // 2]), np.array([rows // 2]))
    heat = np.zeros((columns * rows, 1))
    heat[start] = 1.0
    share = surface.masses * surface.diffuse(heat)[:, 0]
    # The ends are six standard deviations away; lengths on the flat triangles are .1 % shorter.
    assert share @ (along - along[start]) ** 2 == pytest.approx(2 * HEAT_TIME, rel=0.01)
