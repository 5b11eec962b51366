"""Rules that reach nodes from any point, and products of their rows with tables."""

import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial import ConvexHull

from manifoldrf import (
    Exact,
    FlatTorus,
    HeatKernel,
    ManifoldRandomFeatures,
    Sphere,
    TriangleMesh,
    grid_graph,
    heat_graph,
    knn_graph,
    mesh_graph,
)
from manifoldrf.features.feature_map import (
    Teaching,
    WalkStep,
    interpolation_rule,
    interpolation_weights,
    rows_of,
    signature_table,
    times_table,
    without_negligible,
)
from manifoldrf.features.graph_kernel import GraphKernel
from manifoldrf.kernels import PowerKernel

NEW = Sphere().sample(200, seed=1)
HULL = ConvexHull(Sphere().grid(500))
MESH = TriangleMesh(HULL.points, HULL.simplices)
RULES = {
    "heat step": lambda: WalkStep(heat_graph(Sphere().grid(500), 0.1)),
    "knn step": lambda: WalkStep(knn_graph(Sphere().grid(500))),
    "interpolation": lambda: interpolation_rule(knn_graph(Sphere().grid(500)), 2),
    "barycentric": lambda: interpolation_rule(mesh_graph(MESH), 2),
}


@pytest.mark.parametrize("axis", [0, 1])
def test_negligible_entries_are_dropped_in_a_copy(axis, global_seed):
    rng = np.random.default_rng(global_seed)
    matrix = sparse.csr_array(sparse.random_array((30, 20), density=0.3, rng=rng, format="csr"))
    matrix.data[::3] *= -1
    dense = matrix.toarray()
    kept = without_negligible(matrix, 0.5, axis)
    large = np.abs(dense) > 0.5 * np.abs(dense).max(axis=axis, keepdims=True)
    np.testing.assert_array_equal(kept.toarray(), np.where(large, dense, 0.0))
    np.testing.assert_array_equal(matrix.toarray(), dense)
    assert 0 < kept.nnz < matrix.nnz


@pytest.mark.parametrize("name", RULES)
def test_rows_sum_to_one_and_are_independent(name):
    rule = RULES[name]()
    rows = rule.rows(NEW)
    assert rows.shape == (len(NEW), rule.n_nodes)
    assert np.allclose(rows.sum(axis=1), 1, atol=1e-9)
    assert np.array_equal(rule.rows(NEW[50:60]).toarray(), rows[50:60].toarray())
    many = np.tile(NEW, (11, 1))  # more than a block
    assert np.array_equal(rows_of(rule, many, 2).toarray(), rows_of(rule, many, 1).toarray())


@pytest.mark.parametrize("name", ["interpolation", "barycentric"])
def test_interpolation_returns_the_value_of_a_node(name):
    rule = RULES[name]()
    nodes = rule.search.points if name == "interpolation" else rule.mesh.vertices
    assert np.allclose(rule.rows(nodes[:20]).toarray(), np.eye(20, rule.n_nodes), atol=1e-9)


@pytest.mark.parametrize(("d", "n_axes"), [(2, 2), (3, 3), (30, 2)])
def test_interpolation_is_exact_for_quadratics(d, n_axes):
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(d, d)))[0][:n_axes]
    gaps = rng.uniform(-1, 1, (50, 3 * (n_axes + 1) * (n_axes + 2) // 2, n_axes))
    weights = interpolation_weights(gaps @ axes, n_axes)
    u = gaps + 0.3  # the origin is at .3
    values = 1 + 2 * u[..., 0] - u[..., 1] ** 2 + u[..., 0] * u[..., -1]
    exact = 1 + 2 * 0.3 - 0.3**2 + 0.3**2
    good = np.abs(weights).sum(axis=1) < 3.9  # others are blended with coarser weights
    assert good.mean() > 0.8
    assert np.allclose((weights * values).sum(axis=1)[good], exact, atol=1e-6)


def test_coincident_and_distant_neighbours_have_finite_weights():
    gaps = np.zeros((3, 18, 3))
    gaps[1, 1:] = 1e200
    gaps[2] = 1e-200 * np.random.default_rng(0).normal(size=(18, 3)) + 1e-190
    weights = interpolation_weights(gaps, 2)
    assert np.isfinite(weights).all()
    assert np.allclose(weights.sum(axis=1), 1)


def test_interpolation_goes_around_a_torus():
    torus = FlatTorus(2)
    graph = knn_graph(torus.grid(400), metric=torus)
    waves = np.cos(2 * np.pi * graph.points[:, 0])
    seam = torus.sample(300, seed=0) * [0.02, 1]
    found = interpolation_rule(graph, 2).rows(seam) @ waves
    assert np.abs(found - np.cos(2 * np.pi * seam[:, 0])).max() < 5e-3


def test_the_fused_product_is_that_of_rows_and_table():
    features = ManifoldRandomFeatures(HeatKernel(0.1), random_state=0).fit(Sphere())
    map_ = features.map_
    plain = (map_.rule.rows(NEW) @ map_.table).toarray()
    assert np.allclose(map_.values(NEW), plain, rtol=1e-12, atol=1e-15)
    assert np.allclose(map_.values(NEW, as_sparse=True).toarray(), plain, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("as_sparse", [True, False])
def test_products_do_not_depend_on_threads(as_sparse):
    rows = sparse.random_array((5000, 300), density=0.02, rng=np.random.default_rng(0), format="csr")
    table = sparse.random_array((300, 70), density=0.1, rng=np.random.default_rng(1), format="csr")
    first, second = (times_table(rows, table, n_jobs, as_sparse=as_sparse) for n_jobs in (1, 2))
    dense = [part.toarray() if as_sparse else part for part in (first, second)]
    assert np.array_equal(*dense)
    assert np.allclose(dense[0], rows.toarray() @ table.toarray())


def test_dense_signatures_are_computed_in_blocks():
    graph, step = grid_graph(8192, 1), PowerKernel(1)
    kernel, nodes = GraphKernel(graph, step, step, 1, per_volume=False), np.arange(8192)
    tracemalloc.start()
    table = signature_table(kernel, step, nodes, nodes, Teaching(Exact(form="dense")))
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert table.nnz == graph.operator.nnz
    assert most < 6e8  # in one block 9e8
