"""Thinned meshes: nodes are some of the vertices, and steps between them are made of shorter steps."""

import warnings

import numpy as np
import pytest
from oracles import columns, diffuse, folded_strip, relative_error, sphere_mesh

from manifoldrf import (
    DiffusionKernel,
    GraphOptions,
    GraphWarning,
    HeatKernel,
    ManifoldRandomFeatures,
    Sphere,
    TriangleMesh,
    heat_graph,
    load,
    mesh_graph,
)
from manifoldrf.fields.anchors import farthest_vertices
from manifoldrf.geometry.sampling import ThinnedMesh

T, SHIFT = 0.1, np.array([4.0, 0.0, 0.0])


@pytest.fixture(scope="module")
def mesh():
    return sphere_mesh(6000)


@pytest.fixture(scope="module")
def model(mesh):
    return features().fit(mesh)


def features(**options):
    return ManifoldRandomFeatures(HeatKernel(T), normalize=False, random_state=0, **options)


def test_the_kernel_of_a_thinned_sphere_is_that_of_the_sphere(mesh, model):
    assert model.graph_.n_nodes < mesh.n_vertices / 2
    assert "farthest of 6000 vertices" in model.summary()
    places = Sphere().sample(300, seed=1)
    exact = Sphere().heat_kernel(places, places, T)
    error = relative_error(model.kernel_matrix(places), exact)
    # Measured .006. The estimate covers the features, not the mesh: its faces are below the sphere.
    assert error < 0.01
    assert error < 3 * model.error_.kernel


def test_the_areas_of_the_nodes_sum_to_that_of_the_mesh(mesh, model):
    assert model.graph_.weights.sum() == pytest.approx(mesh.area, rel=1e-12)
    thinned = ThinnedMesh.of(mesh, farthest_vertices(mesh, 2000), 500)
    assert thinned.areas.sum() == pytest.approx(mesh.area, rel=1e-12)
    np.testing.assert_array_equal(thinned.fine.mesh.vertices[:500], thinned.mesh.vertices)
    assert thinned.mesh.is_closed  # cells of nearest vertices keep the topology
    assert thinned.fine.mesh.is_closed


def test_a_step_from_a_node_is_the_step_of_the_graph(model):
    graph = model.graph_
    steps = graph.extend(graph.positions[::7]).toarray()
    own = graph.affinity[::7].toarray()
    np.testing.assert_allclose(steps / steps.sum(axis=1)[:, None], own / own.sum(axis=1)[:, None], atol=1e-6)


def test_a_rough_surface_is_as_accurate_as_with_all_vertices():
    """Bumps of the size of a step: straight lines are 10 % shorter than the surface. Reference: cotangents."""
    mesh = sphere_mesh(9000)
    x, y, z = mesh.vertices.T
    bumpy = TriangleMesh(
        mesh.vertices * (1 + 0.04 * np.sin(14 * x) * np.sin(14 * y) * np.sin(14 * z))[:, None], mesh.faces
    )
    fine = mesh_graph(bumpy, weights="cotangent")
    order = farthest_vertices(bumpy, 4 * 1500)
    nodes = order[:1500:50]
    flow = diffuse(fine, fine.steps(T), columns(fine.n_nodes, nodes, fine.weights[nodes] ** -0.5))
    exact = (fine.weights[:, None] ** -0.5 * flow)[order[:1500]]

    def error(graph, starts, rows):
        flow = columns(graph.n_nodes, starts, graph.weights[starts] ** -0.5)
        for _ in range(graph.n_steps):
            flow = graph.operator @ flow
        return relative_error((graph.weights[:, None] ** -0.5 * flow)[rows], exact)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)  # finer than t needs
        whole = error(heat_graph(bumpy, T), nodes, order[:1500])
    thinned = ThinnedMesh.of(bumpy, order, 1500)
    starts = np.arange(0, 1500, 50)
    composed = error(heat_graph(thinned, T), starts, slice(None))
    coarse = error(heat_graph(thinned.mesh, T), starts, slice(None))
    assert composed < max(1.5 * whole, 0.005)
    assert composed < coarse / 2


def test_the_sheets_of_a_thinned_strip_are_not_joined():
    """The gap (.03) is smaller than a step, and nodes are farther apart than the gap."""
    mesh, position = folded_strip(260, 50, gap=0.03)
    model = ManifoldRandomFeatures(HeatKernel(0.01), random_state=0, graph=GraphOptions(n_nodes=800)).fit(mesh)
    lower, upper = (position > 0.4) & (position < 0.6), (position > 1.45) & (position < 1.65)
    kernel = model.kernel_matrix(mesh.vertices[lower][::20], mesh.vertices[upper][::20])
    own = model.kernel_matrix(mesh.vertices[lower][::20])
    assert kernel.max() < 1e-3 * own.max()


def test_threads_and_files_change_no_bit(mesh, model, tmp_path):
    places = mesh.sample(50, seed=0).points
    expected = model.transform(places)
    single = features(n_jobs=1).fit(mesh)
    np.testing.assert_array_equal(single.transform(places), expected)
    loaded = load(model.save(tmp_path / "model.safetensors"))
    np.testing.assert_array_equal(loaded.transform(places), expected)
    assert loaded.distance_to_space(places).max() < 0.01


@pytest.mark.parametrize("kernel", [HeatKernel(T), DiffusionKernel(20.0)], ids=["heat", "edges"])
def test_the_number_of_nodes_can_be_given(mesh, kernel):
    options = GraphOptions(n_nodes=700)
    graph = ManifoldRandomFeatures(kernel, random_state=0, n_features=256, graph=options).fit(mesh).graph_
    assert graph.n_nodes == 700
    assert graph.mesh.n_vertices == 700


def test_all_vertices_are_nodes_if_asked():
    mesh = sphere_mesh(2000)
    assert features().fit(mesh).graph_.n_nodes < 1000
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        graph = features(n_features=256, graph=GraphOptions(n_nodes="all")).fit(mesh).graph_
        np.testing.assert_array_equal(graph.affinity.data, heat_graph(mesh, T).affinity.data)


def test_separate_parts_and_unused_vertices(mesh):
    both = np.vstack([mesh.vertices, mesh.vertices + SHIFT, [[9.0, 9.0, 9.0]]])
    pair = TriangleMesh(both, np.vstack([mesh.faces, mesh.faces + mesh.n_vertices]))
    with pytest.warns(GraphWarning, match="2 pieces that are not connected"):
        model = features(n_features=256).fit(pair)
    assert model.graph_.n_nodes < mesh.n_vertices
    assert model.graph_.weights.sum() == pytest.approx(pair.area, rel=1e-12)
    here = mesh.vertices[:50]
    assert model.kernel_matrix(here, here + SHIFT).max() == 0.0
    assert relative_error(model.kernel_matrix(here), model.kernel_matrix(here + SHIFT)) < 0.2
