"""Heat-kernel signatures against closed forms, and between meshes of one shape."""

import numpy as np
import pytest
from oracles import hull_mesh, sphere_mesh
from scipy.stats import special_ortho_group

from manifoldrf import Sphere, TriangleMesh, heat_signature

TIMES = [0.2, 0.5]
RANDOM = Sphere().sample(1000, seed=0)


@pytest.mark.parametrize(
    ("space", "error"),
    [
        (sphere_mesh(600), 0.016),
        (Sphere().grid(1000), 0.036),
        pytest.param(hull_mesh(RANDOM), 0.035, marks=pytest.mark.slow),
    ],
)
def test_those_of_the_sphere_are_its_closed_form(space, error):
    """Errors of the heat graph, about twice those measured (.008 on the even mesh)."""
    pole = [[0, 0, 1.0]]
    exact = np.array([Sphere().heat_kernel(pole, pole, t)[0, 0] for t in TIMES])
    points = space.vertices if isinstance(space, TriangleMesh) else space
    np.testing.assert_allclose(heat_signature(space, TIMES, at=points[::40]) / exact, 1.0, atol=error)


def test_all_vertices_are_the_default_and_threads_change_nothing():
    mesh = sphere_mesh(500)
    everywhere = heat_signature(mesh, 0.5)
    assert everywhere.shape == (500, 1)
    few = heat_signature(mesh, 0.5, at=mesh.vertices[[7, 3]], n_jobs=2)
    np.testing.assert_array_equal(few, everywhere[[7, 3]])


def test_a_finer_mesh_is_thinned_and_has_the_same_signature():
    """At t = .5 a thousand of 6000 vertices are enough."""
    fine = sphere_mesh(6000)
    exact = Sphere().heat_kernel(fine.vertices[:1], fine.vertices[:1], 0.5)
    np.testing.assert_allclose(heat_signature(fine, 0.5, at=fine.vertices[::200]) / exact, 1.0, atol=0.01)


def test_they_depend_on_the_shape_alone():
    """One ellipsoid in two meshes that share 100 vertices, one of them turned, moved and in another order."""
    shape, common = np.diag([1.0, 0.7, 0.5]), Sphere().sample(100, seed=1)
    shared = common @ shape
    one = hull_mesh(np.concatenate([common, Sphere().grid(900)]) @ shape)
    first = heat_signature(one, 0.3, at=shared)
    turn = special_ortho_group.rvs(3, random_state=0)
    order = np.random.default_rng(0).permutation(1000)
    moved = TriangleMesh((one.vertices @ turn.T + 5)[order], np.argsort(order)[one.faces])
    # Chosen nodes depend on the order; their errors are below one per cent.
    np.testing.assert_allclose(heat_signature(moved, 0.3, at=shared @ turn.T + 5), first, rtol=0.01)
    other = hull_mesh(np.concatenate([common, Sphere().grid(700)]) @ shape)
    second = heat_signature(other, 0.3, at=shared)
    # Between vertices they differ by up to 30 %, between the meshes by .006 (twice that is allowed).
    np.testing.assert_allclose(second, first, rtol=0.012)
    assert np.corrcoef(first[:, 0], second[:, 0])[0, 1] > 0.99
