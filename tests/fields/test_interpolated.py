"""The interpolated field: exact at known nodes, exact for Gaussians, continuous where values are missing."""

import dataclasses

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial import ConvexHull

from manifoldrf import (
    CosineKernel,
    DiffusionKernel,
    MobiusStrip,
    Sphere,
    Torus,
    TriangleMesh,
    knn_graph,
    mesh_graph,
)
from manifoldrf.fields.data import FieldData, Problem, SignatureOptions, signature_table
from manifoldrf.fields.interpolated import fit_interpolated


def observed(manifold, n, n_neighbors=None, tau=20.0):
    graph = knn_graph(manifold.grid(n), n_neighbors=n_neighbors)
    setting = Problem(graph, DiffusionKernel(tau), graph.degrees, 2, np.sqrt(tau * graph.time(1.0, 2)))
    nodes = np.arange(graph.n_nodes)
    return signature_table(setting, nodes, nodes, SignatureOptions(teacher="exact"))


def plane_data(values, points, anchors):
    graph = knn_graph(points)
    problem = Problem(graph, DiffusionKernel(1.0), graph.degrees, 2, 0.3)
    return FieldData(problem, np.arange(len(points)), anchors, sparse.csr_array(values))


def gaussian(x, y, width):
    return np.exp(-((x[:, None] - y[None]) ** 2).sum(axis=2) / (2 * width**2))


def test_gaussians_in_the_plane_are_reproduced():
    points = np.random.default_rng(0).uniform(-1, 1, (500, 2))
    anchors = np.arange(0, 500, 10)
    field = fit_interpolated(plane_data(gaussian(points, points[anchors], 0.5), points, anchors))
    queries = np.random.default_rng(1).uniform(-0.8, 0.8, (200, 2))
    # The logarithm is a quadratic, which is exact but for the ridge of 1e-10.
    exact = gaussian(queries, points[anchors], 0.5)
    assert np.abs(field.values(queries).toarray() - exact).max() < 1e-6
    assert (field.rule, field.combine) == ("tangent", "logarithms")


@pytest.mark.parametrize(
    ("manifold", "n_neighbors", "limit"),
    [(Sphere(), 8, 0.008), (Torus(), 8, 0.0155), (MobiusStrip(), 24, 0.006)],
    ids=["sphere", "torus", "mobius"],
)
def test_the_kernel_between_held_out_nodes_is_within_a_percent(manifold, n_neighbors, limit):
    """It is .0051, .0103 and .0038; the limits leave half as much again."""
    data = observed(manifold, 1500, n_neighbors)
    n = data.graph.n_nodes
    held_out = np.random.default_rng(0).choice(n, n // 8, replace=False)
    rows, exact = fit_interpolated(data.without(held_out)).values(data.points[held_out]), data.values[held_out]
    kernel, truth = (((r * data.measure) @ r.T).toarray() for r in (rows, exact))
    assert np.linalg.norm(kernel - truth) / np.linalg.norm(truth) < limit


def test_known_values_are_returned_at_known_nodes():
    data = observed(Sphere(), 600)
    field = fit_interpolated(data)
    found = field.values(data.points).toarray()
    exact = data.values.toarray()
    peaks = exact.max(axis=0)
    assert np.abs(found - exact).max() < 1e-9 * peaks.max() + field.floors.max()
    large = exact > 1e-5 * peaks
    assert np.abs(found[large] / exact[large] - 1).max() < 1e-12


def test_the_result_is_continuous_where_known_values_end():
    """Along a path the steps shrink with its step length; only values near the floor may appear or vanish."""
    data = observed(Sphere(), 600)
    columns = np.arange(0, 600, 25)
    cut = data.values[:, columns].toarray()
    cut[cut < 1e-4 * cut.max(axis=0)] = 0  # a teacher that stops early
    field = fit_interpolated(dataclasses.replace(data, anchors=columns, values=sparse.csr_array(cut)))
    angles = np.linspace(0.3, 0.31, 41)  # steps of 2.5e-4; the width is .37
    path = np.column_stack([np.cos(angles), np.sin(angles), np.zeros(41)])
    jumps = np.abs(np.diff(field.values(path).toarray(), axis=0)).max(axis=0) / cut.max(axis=0)
    # A Gaussian's slope is at most .61 / width: steps of 4.1e-4 of the peak, and 1e-4 where the floor is crossed.
    assert jumps.max() < 5.1e-4


def test_missing_values_count_as_the_smallest_known_and_results_below_it_are_left_out():
    data = observed(Sphere(), 600)
    field = fit_interpolated(data)
    values = field.values(Sphere().sample(200, seed=0))
    assert (values.data > field.floors[values.indices]).all()
    known = data.values.tocsc()
    smallest = np.array([known.data[a:b].min() for a, b in zip(known.indptr, known.indptr[1:], strict=False)])
    assert (field.floors <= smallest * (1 + 1e-12)).all()


def test_values_are_clipped_at_twice_the_largest_known_value():
    points = np.random.default_rng(0).uniform(-1, 1, (300, 2))
    steep = np.exp(30 * points[:, :1])  # grows towards the edge
    field = fit_interpolated(plane_data(steep, points, np.array([0])))
    values = field.values(np.column_stack([np.linspace(0.8, 1.4, 50), np.zeros(50)])).toarray()
    assert values.max() == pytest.approx(2 * steep.max())
    assert np.array_equal(field.bounds, 2 * steep.max(axis=0))


def test_meshes_combine_values_with_barycentric_weights():
    points = Sphere().grid(300)
    mesh = TriangleMesh(points, ConvexHull(points).simplices)
    graph = mesh_graph(mesh)
    setting = Problem(graph, DiffusionKernel(10.0), graph.degrees, 2, np.sqrt(10 * graph.time(1.0, 2)))
    data = signature_table(setting, np.arange(300), np.arange(300), SignatureOptions(teacher="exact"))
    field = fit_interpolated(data)
    assert (field.rule, field.combine) == ("barycentric", "values")
    faces = mesh.faces[:40]
    found = field.values(points[faces].mean(axis=1)).toarray()
    assert np.abs(found - data.values.toarray()[faces].mean(axis=1)).max() < 1e-12 * field.bounds.max()
    assert np.array_equal(field.bounds, data.values.max(axis=0).toarray().ravel())


def test_values_of_both_signs_are_combined_as_they_are():
    graph = knn_graph(Sphere().grid(800))
    setting = Problem(graph, CosineKernel(), graph.degrees, 2, 0.2, asymmetric=True)
    data = signature_table(setting, np.arange(800), np.arange(800), SignatureOptions(teacher="exact"))
    smooth = data.points @ data.points.T  # both signs
    field = fit_interpolated(dataclasses.replace(data, values=sparse.csr_array(smooth)))
    assert field.signed
    assert field.combine == "values"
    queries = Sphere().sample(100, seed=0)
    # A linear function on the sphere: third derivatives along it times the cube of the spacing .125.
    assert np.abs(field.values(queries).toarray() - queries @ data.points.T).max() < 2e-3
    far = field.values(np.array([[1e6, 0, 0], [0, -50.0, 0]])).toarray()
    assert np.isfinite(far).all()
    assert (np.abs(far) <= field.bounds).all()
    assert fit_interpolated(data).signed == bool(data.values.data.min() < 0)


def test_columns_without_known_values_stay_empty():
    data = observed(Sphere(), 300)
    values = data.values.toarray()
    values[:, 5] = 0
    values[:, 6] = 0
    values[7, 6] = 0.25  # one known value
    field = fit_interpolated(dataclasses.replace(data, values=sparse.csr_array(values)))
    found = field.values(data.points).toarray()
    assert field.bounds[5] == 0
    assert (found[:, 5] == 0).all()
    assert found[7, 6] == pytest.approx(0.25)
    assert np.isfinite(field.values(Sphere().sample(50, seed=0)).data).all()
