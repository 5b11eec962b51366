"""The one-step field: exact rows at nodes, averages of them between nodes, the same bits however it is asked."""

import numpy as np
import pytest
from oracles import sphere_mesh
from scipy import sparse

from manifoldrf import DiffusionKernel, PowerKernel, Sphere, heat_graph, knn_graph, mesh_graph
from manifoldrf.fields import step
from manifoldrf.fields import step as _step_rows
from manifoldrf.fields.data import Problem, SignatureOptions
from manifoldrf.fields.step import StepField, fit_step, one_step

NEW = Sphere().sample(300, seed=1)
ANCHORS = np.array([0, 7, 200, 399, 55])


@pytest.fixture(scope="module")
def heat():
    graph = heat_graph(Sphere().grid(400), t=0.15, n_steps=8)
    return Problem(graph, PowerKernel(8), graph.weights, 2, np.sqrt(0.15))


def exact_rows(setting, anchors):
    """h(x, w) at all nodes, from a dense power of the operator."""
    roots = np.sqrt(setting.measure)
    return (setting.kernel.root().dense(setting.graph) / np.outer(roots, roots))[:, anchors]


@pytest.mark.parametrize("n", [2, 8, 14])
def test_at_nodes_it_is_the_exact_row_of_a_power(heat, n):
    setting = Problem(heat.graph, PowerKernel(n), heat.measure, 2, heat.width)
    field = fit_step(setting, ANCHORS, SignatureOptions())
    exact = exact_rows(setting, ANCHORS)
    found = field.values(heat.graph.points)
    found = found.toarray() if sparse.issparse(found) else found
    # Entries below 3e-6 of the largest of their column are left out.
    np.testing.assert_allclose(found, exact, atol=1.1e-5 * exact.max())


def test_at_vertices_of_a_mesh_it_is_the_exact_row():
    mesh = sphere_mesh(400)
    graph = mesh_graph(mesh)
    setting = Problem(graph, PowerKernel(12), graph.degrees, 2, 0.3)
    found = fit_step(setting, ANCHORS, SignatureOptions()).values(mesh.vertices)
    exact = exact_rows(setting, ANCHORS)
    np.testing.assert_allclose(found, exact, atol=1e-6 * exact.max())


def test_the_spike_at_the_node_itself_is_left_out():
    mesh = sphere_mesh(400)
    setting = Problem(mesh_graph(mesh), DiffusionKernel(4.0), mesh_graph(mesh).degrees, 2, 0.2)
    found = fit_step(setting, ANCHORS, SignatureOptions()).values(mesh.vertices)
    lacking = exact_rows(setting, ANCHORS) - found
    spike = np.zeros_like(lacking)
    spike[ANCHORS, np.arange(5)] = np.exp(-2.0) / setting.measure[ANCHORS]  # f_0 of exp(-2 L)
    np.testing.assert_allclose(lacking, spike, atol=1.1e-5 * found.max())


def test_between_nodes_it_is_the_average_after_one_step(heat):
    field = fit_step(heat, ANCHORS, SignatureOptions())
    steps = one_step(heat.graph, NEW)
    np.testing.assert_allclose(np.asarray(steps.sum(axis=1)), 1.0, rtol=1e-12)
    rest = PowerKernel(3).dense(heat.graph) / np.sqrt(np.outer(heat.measure, heat.measure))
    exact = steps @ rest[:, ANCHORS]
    np.testing.assert_allclose(field.values(NEW), exact, atol=1.1e-5 * exact.max())


def test_the_fused_step_is_the_step_times_the_table(heat, global_seed):
    nodes = np.random.default_rng(global_seed).permutation(heat.graph.n_nodes)[:123]  # no whole number of blocks
    field = fit_step(heat, nodes, SignatureOptions())
    table = field.table.copy()
    places = np.vstack([NEW, 1.05 * NEW[:20], heat.graph.points[:20], [[50.0, 0.0, 0.0]]])
    np.testing.assert_allclose(field.values(places), field.rows_of(one_step(heat.graph, places)), rtol=1e-12)
    assert (field.table != table).nnz == 0  # the blocks are a copy


def test_values_are_nonnegative_and_within_their_bounds(heat):
    field = fit_step(heat, np.arange(400), SignatureOptions())
    values = field.values(NEW)
    assert (values >= 0).all()
    assert (values <= field.bounds * (1 + 1e-12)).all()
    assert field.n_anchors == 400
    np.testing.assert_array_equal(field.bounds, field.table.toarray().max(axis=0))


@pytest.mark.parametrize("share", [0.0, 2.0], ids=["dense", "sparse"])
def test_rows_do_not_depend_on_threads_nor_on_other_rows(heat, monkeypatch, share):
    monkeypatch.setattr(step, "_DENSE_SHARE", share)
    monkeypatch.setattr(step, "_QUERIES_AT_ONCE", 64)
    field = fit_step(heat, ANCHORS, SignatureOptions())
    whole = field.values(NEW)
    assert sparse.issparse(whole) == (share > 0)
    whole = whole.toarray() if sparse.issparse(whole) else whole
    for rows in (slice(3, 4), slice(50, 270), np.arange(300)[::-1]):
        part = field.values(NEW[rows], n_jobs=2)
        np.testing.assert_array_equal(part.toarray() if sparse.issparse(part) else part, whole[rows])


def test_sparse_and_dense_results_agree(heat, monkeypatch):
    field = fit_step(heat, ANCHORS, SignatureOptions())
    dense = field.values(NEW)
    monkeypatch.setattr(step, "_DENSE_SHARE", 2.0)
    compressed = field.values(NEW)
    assert compressed.has_sorted_indices
    np.testing.assert_allclose(compressed.toarray(), dense, rtol=1e-13)


def test_points_out_of_reach_take_no_step(heat):
    far = np.array([[0.0, 0.0, 50.0]])
    assert one_step(heat.graph, far).nnz == 0
    np.testing.assert_array_equal(fit_step(heat, ANCHORS, SignatureOptions()).values(far), np.zeros((1, 5)))


def test_anchors_may_repeat_and_keep_their_order(heat):
    anchors = np.array([7, 0, 7])
    values = fit_step(heat, anchors, SignatureOptions()).values(NEW)
    single = fit_step(heat, np.array([0, 7]), SignatureOptions()).values(NEW)
    np.testing.assert_array_equal(values, single[:, [1, 0, 1]])


def test_negative_tables_are_bounded_by_their_size():
    graph = knn_graph(Sphere().grid(50))
    table = sparse.csr_array(np.random.default_rng(0).normal(size=(50, 3)))
    field = StepField(graph, table)
    np.testing.assert_array_equal(field.bounds, np.abs(table.toarray()).max(axis=0))


@pytest.mark.parametrize("n_anchors", [1, 5, 8, 60, 400])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_sparse_rows_are_the_step_times_the_table(heat, monkeypatch, n_anchors, n_jobs):
    monkeypatch.setattr(step, "_SPARSE_AT_ONCE", 37)  # several tasks
    field = fit_step(heat, np.arange(400)[::-1][:n_anchors], SignatureOptions())
    exact = (one_step(heat.graph, NEW) @ field.table).toarray()
    by_cells, by_steps = field.sparse_values(NEW, n_jobs), field._sparse_rows(one_step(heat.graph, NEW), n_jobs)
    for found in (by_cells, by_steps):
        assert found.shape == (300, n_anchors)
        assert (np.diff(found.indices)[np.diff(np.repeat(np.arange(300), np.diff(found.indptr))) == 0] > 0).all()
        # Sums of 30 to 60 nonnegative terms, in any order.
        np.testing.assert_allclose(found.toarray(), exact, rtol=60 * np.finfo(float).eps)
        assert found.nnz == np.count_nonzero(exact)  # zeros are not stored
    assert field.row_entries >= by_cells.nnz / 300


def test_sparse_rows_grow_beyond_what_was_expected(heat):
    """Lists begin with room for 64 entries a row; here rows have 400."""
    field = StepField(heat.graph, sparse.csr_array(np.ones((400, 400))))
    np.testing.assert_allclose(field.sparse_values(NEW).toarray(), 1.0, rtol=1e-14)


def test_queries_out_of_reach_have_empty_rows(heat):
    field = fit_step(heat, ANCHORS, SignatureOptions())
    far = np.array([[0.0, 0.0, 1.0], [9.0, 0.0, 0.0], [0.0, -1.0, 0.0]])
    found = field.sparse_values(far)
    assert np.diff(found.indptr)[1] == 0
    np.testing.assert_array_equal(found[[0, 2]].toarray(), field.sparse_values(far[[0, 2]]).toarray())
    assert field.sparse_values(far[:0]).shape == (0, 5)


def test_a_table_without_neighbours_in_its_rows_is_multiplied_as_it_stands(heat, monkeypatch):
    """Blocks of neighbouring columns would be all but empty, and many times as large as the table."""
    monkeypatch.setattr(_step_rows, "_LARGE_TABLE", 0)
    rng = np.random.default_rng(0)
    table = sparse.random_array((400, 400), density=0.005, rng=rng, format="csr")
    field = StepField(heat.graph, table)
    assert field._blocks is None
    exact = (one_step(heat.graph, NEW) @ table).toarray()
    np.testing.assert_allclose(field.sparse_values(NEW).toarray(), exact, rtol=1e-13)
    assert field.rows_of(one_step(heat.graph, NEW)[:0]).shape == (0, 400)


def test_a_table_without_blocks_is_multiplied_by_threads(heat, monkeypatch):
    monkeypatch.setattr(_step_rows, "_LARGE_TABLE", 0)
    monkeypatch.setattr(step, "_PRODUCTS_AT_ONCE", 30)
    given = []
    quick_map = step.quick_map

    def watched(function, items, n_jobs):
        given.append((len(items), n_jobs))
        return quick_map(function, items, n_jobs)

    monkeypatch.setattr(step, "quick_map", watched)
    table = sparse.random_array((400, 400), density=0.005, rng=np.random.default_rng(0), format="csr")
    one, three = (StepField(heat.graph, table).sparse_values(NEW, jobs) for jobs in (1, 3))
    assert given == [(10, 1), (10, 3)]
    assert (one != three).nnz == 0
    assert three.has_sorted_indices
