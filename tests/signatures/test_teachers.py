"""All teachers behind one function: right rows, the same bits for any threads and nodes, clear errors."""

import functools
import pickle
import threading

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from manifoldrf import (
    Counts,
    DiffusionKernel,
    Exact,
    Graph,
    MaternKernel,
    Sphere,
    Walks,
    compute_signatures,
    grid_graph,
    knn_graph,
)
from manifoldrf.kernels import CosineKernel, PowerKernel, RegularizedLaplacianKernel, SeriesKernel
from manifoldrf.signatures import choose_form, row_memory

KERNEL = DiffusionKernel(4.0)
TEACHERS = [
    Exact(form="dense"),
    Exact(form="sparse"),
    Walks(100),
    Walks(101, coupling="antithetic", transitions="weighted"),
    Walks(100, coupling="repelling", survival="matched"),
    Counts(100),
]


@functools.cache
def graph_of(name):
    if name == "knn":
        return knn_graph(Sphere().grid(100))
    # Nodes 0 to 24, nodes 25 to 38, and node 39 on its own.
    rng = np.random.default_rng(5)
    weights = np.triu(np.exp(rng.normal(size=(40, 40))) * (rng.random((40, 40)) < 0.3), 1)
    weights[:25, 25:] = weights[:, 39] = 0.0
    return Graph(sparse.csr_array(weights + weights.T))


def compute(nodes=None, name="knn", kernel=KERNEL, **options):
    return compute_signatures(graph_of(name), kernel, nodes, **options)


def dense(rows):
    return rows.toarray() if sparse.issparse(rows) else rows


@pytest.mark.parametrize(
    ("kernel", "tol"), [(KERNEL, 1e-3), (RegularizedLaplacianKernel(2.0), 1e-8), (PowerKernel(4), 1e-14)]
)
@pytest.mark.parametrize(("name", "form"), [("knn", "dense"), ("knn", "sparse"), ("pieces", "sparse")])
def test_exact_rows_are_those_of_the_dense_root(form, name, kernel, tol):
    found, series = compute(name=name, kernel=kernel, teacher=Exact(tol, form)), kernel.root()
    errors = np.linalg.norm(dense(found.rows) - series.dense(graph_of(name)), axis=1)
    largest = series.spectral(np.ones(1))[0]  # sum_k f_k
    assert sparse.issparse(found.rows) == (form == "sparse")
    assert errors.max() <= found.error_bound + 1e-13  # rounding of the eigenvectors
    assert found.error_bound <= 1.1 * tol * largest
    assert (dense(found.rows) >= 0).all()


@pytest.mark.parametrize("teacher", TEACHERS, ids=str)
def test_bits_depend_on_the_node_and_the_seed_alone(teacher):
    whole = compute(teacher=teacher, seed=3)
    for n_jobs in (2, 3, -1):
        again = compute(teacher=teacher, seed=3, n_jobs=n_jobs)
        np.testing.assert_array_equal(dense(again.rows), dense(whole.rows))
        if whole.stderr is not None:
            np.testing.assert_array_equal(again.stderr.toarray(), whole.stderr.toarray())
    for nodes in ([7], [99, 0, 7, 7], np.arange(100)[::-1]):
        some = compute(nodes, teacher=teacher, seed=3)
        np.testing.assert_array_equal(dense(some.rows), dense(whole.rows)[nodes])
        np.testing.assert_array_equal(some.nodes, nodes)
    if not isinstance(teacher, Exact):
        others = [dense(compute([0, 5], teacher=teacher, seed=seed).rows) for seed in (1, 2, None, None)]
        assert all((a != b).any() for k, a in enumerate(others) for b in others[:k])


@pytest.mark.parametrize("teacher", TEACHERS, ids=str)
def test_rows_stay_in_their_piece(teacher):
    rows = dense(compute([3, 30, 39], "pieces", teacher=teacher, seed=0).rows)
    assert not rows[0, 25:].any() | rows[1, :25].any()
    np.testing.assert_allclose(rows[2], np.exp(-2.0) * np.eye(40)[39], rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("teacher", TEACHERS, ids=str)
def test_progress_is_reported_and_may_stop_the_work(teacher):
    calls = []
    compute(teacher=teacher, n_jobs=3, progress=lambda *call: calls.append(call))
    done = [call[1] for call in calls]
    assert {(what, total) for what, _, total in calls} == {("signatures", 100)}
    assert done == sorted(set(done))
    assert done[-1] == 100

    def stop(what, done, total):
        raise KeyboardInterrupt

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt):
        compute(teacher=teacher, n_jobs=3, progress=stop)
    assert threading.active_count() == before


@pytest.mark.parametrize("kernel", [CosineKernel(), PowerKernel(3), SeriesKernel([-1e-7, 1.0])], ids=str)
def test_kernels_without_a_modulation_take_the_asymmetric_pair(kernel):
    with pytest.raises(ValueError, match="asymmetric=True"):
        compute(kernel=kernel)
    exact = kernel.dense(graph_of("knn"))
    found = compute([4, 9], kernel=kernel, asymmetric=True)
    np.testing.assert_allclose(found.gram(), exact[np.ix_([4, 9], [4, 9])], rtol=0, atol=1e-8)
    np.testing.assert_allclose(dense(found.rows), exact[[4, 9]], rtol=0, atol=1e-8)


def test_the_form_is_the_cheaper_one_and_fits_the_memory():
    graph, series = grid_graph(200, 2), KERNEL.root()
    assert choose_form(graph, series, 10, 1e-8) == "dense"
    assert choose_form(graph, series, 4000, 1e-8) == "sparse"
    assert choose_form(graph, series, 10, 1e-8, most=1000) == "sparse"
    slow = RegularizedLaplacianKernel(20.0).root()  # reaches all nodes, in 10^4 lengths
    assert choose_form(grid_graph(100, 2), slow, 4000, 1e-8) == "dense"
    assert row_memory(grid_graph(100, 2), slow) == 80_000
    assert row_memory(graph, series) < 20_000
    assert compute([0]).teacher == Exact(form="dense")
    long = MaternKernel(1.5, 300.0)  # too long for a series
    np.testing.assert_allclose(compute([0], kernel=long).rows, long.root().dense(graph_of("knn"))[[0]], rtol=1e-6)


def test_the_order_of_the_nodes_in_memory_changes_only_the_rounding():
    """From 50,000 nodes on, sparse rows are computed in an order that brings neighbours together."""
    side, teacher = 230, Exact(1e-12, "sparse")
    graph, order = grid_graph(side, 2), np.random.default_rng(0).permutation(side**2)
    moved = Graph(sparse.csr_array(graph.affinity[order][:, order]))
    place = np.argsort(order)
    here = compute_signatures(graph, KERNEL, [5], teacher=teacher).rows.toarray()
    there = compute_signatures(moved, KERNEL, [place[5]], teacher=teacher).rows
    assert there.has_canonical_format
    np.testing.assert_allclose(there.toarray()[:, place], here, rtol=0, atol=1e-11)


def test_the_cost_of_a_sparse_row_does_not_grow_with_the_graph():
    few, many = (
        compute_signatures(grid_graph(n, 2), KERNEL, [0], teacher=Exact(form="sparse")) for n in (100, 200)
    )
    assert few.n_steps == many.n_steps
    assert few.rows.nnz == many.rows.nnz < 2000


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_a_function_is_a_teacher(form):
    found = compute([3, 7], teacher=lambda graph, series, nodes: form(series.dense(graph)[nodes]))
    np.testing.assert_allclose(found.gram(), KERNEL.dense(graph_of("knn"))[np.ix_([3, 7], [3, 7])], atol=1e-12)
    for wrong in (np.zeros((1, 5)), np.full((2, 100), np.nan)):
        with pytest.raises(ValueError, match="`teacher` must be a function that returns"):
            compute([0, 1], teacher=lambda graph, series, nodes, rows=wrong: rows)


def test_teachers_are_values_with_parameters_by_name():
    teacher = Walks(500)
    assert teacher.get_params()["n_walks"] == 500
    assert teacher.with_params(p_halt=0.1) == Walks(500, 0.1)
    assert clone(teacher) == pickle.loads(pickle.dumps(teacher)) == teacher
