"""All teachers behind one function: right rows, the same bits for any threads and nodes, clear errors."""

import functools
import re
import threading

import numpy as np
import pytest
from oracles import sphere_mesh
from scipy import sparse

from manifoldrf import (
    CosineKernel,
    DiffusionKernel,
    GeneralizedAdjacency,
    Graph,
    GraphRandomFeatures,
    HeatKernel,
    MaternKernel,
    MobiusStrip,
    PowerKernel,
    RandomWalkKernel,
    RegularizedLaplacianKernel,
    SeriesKernel,
    Sphere,
    compute_signature_pair,
    compute_signatures,
    grid_graph,
    knn_graph,
    mesh_graph,
)
from manifoldrf.geometry.graphs import GraphWarning
from manifoldrf.signatures import engines as _auto

KERNEL = DiffusionKernel(4.0)
KERNELS = [KERNEL, RegularizedLaplacianKernel(2.0), PowerKernel(4), SeriesKernel([1.0, 4.0, 4.0])]
NONPOSITIVE = [CosineKernel(), RandomWalkKernel(2, 3), PowerKernel(3)]
TEACHERS = {
    "exact": {},
    "frontier": {},
    "walks": {"n_walks": 100},
    "antithetic": {"teacher": "walks", "n_walks": 101, "coupling": "antithetic", "transitions": "weighted"},
    "repelling": {"teacher": "walks", "n_walks": 100, "coupling": "repelling", "survival": "matched"},
    "stitched": {"teacher": "walks", "n_walks": 20, "n_stitches": 2},
    "counts": {"n_walks": 100},
}
RANDOM = [name for name in TEACHERS if name not in ("exact", "frontier")]


def pieces(n=40):
    """Weights over two orders of magnitude; nodes 0 to 24, nodes 25 to 38, and node 39 on its own."""
    rng = np.random.default_rng(5)
    weights = np.triu(np.exp(rng.normal(size=(n, n))) * (rng.random((n, n)) < 0.3), 1)
    weights[:25, 25:] = weights[:, n - 1] = 0.0
    return Graph(sparse.csr_array(weights + weights.T))


def signed(n=30, norm=1.0):
    rng = np.random.default_rng(7)
    weights = np.triu(rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.2))
    return GeneralizedAdjacency((weights + weights.T) * (norm / np.abs(weights + weights.T).sum(axis=1).max()))


@functools.cache
def graph_of(name):
    makers = {
        "pieces": pieces,
        "knn": lambda: knn_graph(Sphere().grid(100)),
        "mesh": lambda: mesh_graph(sphere_mesh(60)),
        "cotangent": lambda: mesh_graph(sphere_mesh(60), weights="cotangent"),
        "signed": signed,
        "large": lambda: signed(norm=3.0),
        "small": lambda: signed(norm=0.1),
        "walk": lambda: GeneralizedAdjacency.random_walk(Graph(pieces().affinity[:25, :25])),
    }
    return makers[name]()


def compute(name="knn", kernel=KERNEL, nodes=None, teacher="exact", **options):
    settings = {"teacher": teacher, **TEACHERS.get(teacher, {}), **options}
    return compute_signatures(graph_of(name), kernel, nodes, **settings)


def dense(rows):
    return rows.toarray() if sparse.issparse(rows) else rows


def assert_same_bits(first, second):
    assert type(first) is type(second)
    if sparse.issparse(first):
        for part in ("indptr", "indices", "data"):
            np.testing.assert_array_equal(getattr(first, part), getattr(second, part))
    else:
        np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("tol", [1e-3, 1e-8, 1e-14])
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("graph", ["pieces", "knn", "mesh", "cotangent", "signed", "large", "small", "walk"])
@pytest.mark.parametrize("teacher", ["exact", "frontier"])
def test_rows_are_those_of_the_dense_root(teacher, graph, kernel, tol):
    if graph == "large" and kernel.convergence < 3:
        with pytest.raises(ValueError, match="`graph` must be of spectral radius below"):
            compute(graph, kernel, teacher=teacher)
        return
    found = compute(graph, kernel, teacher=teacher, tol=tol)
    series, radius = kernel.root(), getattr(graph_of(graph), "radius", 1.0)
    errors = np.linalg.norm(dense(found.rows) - series.dense(graph_of(graph)), axis=1)
    largest = series.spectral(np.array([radius]))[0]  # sum_k f_k radius^k
    rounding = 1e-13 * max(largest, 1.0)  # of the eigenvectors: of the order of 1e-15 times the number of nodes
    scaling = getattr(graph_of(graph), "scaling", None)
    stretch = 1.0 if scaling is None else scaling.max() / scaling.min()
    assert errors.max() <= tol * largest * stretch + rounding
    if found.info.error_bound is not None:
        assert errors.max() <= found.info.error_bound + rounding
        assert found.info.error_bound <= 1.1 * tol * largest * stretch
    else:
        assert (teacher, graph) == ("frontier", "large")


@pytest.mark.parametrize("side", [316, pytest.param(1000, marks=pytest.mark.slow)])
def test_the_work_of_the_frontier_does_not_depend_on_the_number_of_nodes(side):
    few, many = (compute_signatures(grid_graph(n, 2), KERNEL, [0, n + 5], teacher="frontier") for n in (100, side))
    assert few.info.n_touched == many.info.n_touched < 2000
    assert few.info.n_steps == many.info.n_steps
    np.testing.assert_array_equal(few.rows.data, many.rows.data)


@pytest.mark.parametrize("teacher", TEACHERS)
def test_rows_stay_in_their_piece(teacher):
    rows = dense(compute("pieces", nodes=[3, 30, 39], teacher=teacher, seed=0).rows)
    assert not rows[0, 25:].any() | rows[1, :25].any()
    np.testing.assert_allclose(
        rows[2], np.exp(-2.0) * np.eye(40)[39], rtol=1e-9, atol=1e-10
    )  # exact: 1e-10 by Chebyshev


@pytest.mark.parametrize("teacher", TEACHERS)
def test_bits_depend_on_the_node_and_the_seed_alone(teacher):
    whole = compute(teacher=teacher, seed=3)
    for n_jobs in (2, 3, -1):
        again = compute(teacher=teacher, seed=3, n_jobs=n_jobs)
        assert_same_bits(again.rows, whole.rows)
        if whole.stderr is not None:
            assert_same_bits(again.stderr, whole.stderr)
    for nodes in ([7], [99, 0, 7, 7], np.arange(100)[::-1]):
        some = compute(nodes=nodes, teacher=teacher, seed=3)
        assert_same_bits(some.rows, whole.rows[nodes])
        np.testing.assert_array_equal(some.nodes, nodes)


@pytest.mark.parametrize("teacher", RANDOM)
def test_seeds(teacher):
    def rows(seed):
        return dense(compute(nodes=[0, 5], teacher=teacher, seed=seed).rows)

    np.testing.assert_array_equal(rows(1), rows(np.int64(1)))
    np.testing.assert_array_equal(rows(np.random.default_rng(1)), rows(np.random.default_rng(1)))
    different = [rows(1), rows(2), rows(np.random.default_rng(1)), rows(None), rows(None)]
    assert all((a != b).any() for k, a in enumerate(different) for b in different[:k])
    first, second = compute_signature_pair(
        graph_of("knn"), KERNEL, [0], seed=1, **{"teacher": teacher, **TEACHERS[teacher]}
    )
    assert (dense(first.rows) != dense(second.rows)).any()


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize("teacher", [name for name in TEACHERS if name != "stitched"])
def test_progress_is_reported_and_may_stop_the_work(teacher, n_jobs):
    calls = []
    compute(teacher=teacher, n_jobs=n_jobs, progress=lambda *call: calls.append(call))
    assert {(what, total) for what, _, total in calls} == {("signatures", 100)}
    done = [call[1] for call in calls]
    assert done == sorted(set(done))
    assert len(done) > 2
    assert done[-1] == 100

    def stop(what, done, total):
        raise KeyboardInterrupt(f"after {done}")

    before = threading.active_count()
    with pytest.raises(KeyboardInterrupt, match=f"after {done[0]}$"):
        compute(teacher=teacher, n_jobs=n_jobs, progress=stop)
    assert threading.active_count() == before


def test_small_negative_terms_of_the_kernel_itself_are_kept():
    """A millionth of the others is rounding in a root, which no user wrote."""
    first, second = compute_signature_pair(
        graph_of("knn"), SeriesKernel([-1e-7, 1.0]), [4], teacher="exact", asymmetric=True
    )
    dense = SeriesKernel([-1e-7, 1.0]).dense(graph_of("knn"))
    np.testing.assert_allclose(first.gram(second), dense[[4]][:, [4]], rtol=0, atol=1e-9)
    assert first.rows.min() < 0


@pytest.mark.parametrize("kernel", NONPOSITIVE, ids=str)
@pytest.mark.parametrize("teacher", ["auto", *TEACHERS])
def test_kernels_without_a_modulation_take_the_asymmetric_pair(teacher, kernel):
    with pytest.raises(ValueError, match="asymmetric=True"):
        compute(kernel=kernel, teacher=teacher)
    if teacher in ("auto", "exact", "frontier"):
        first, second = compute_signature_pair(graph_of("knn"), kernel, [4, 9], teacher=teacher, asymmetric=True)
        exact = kernel.dense(graph_of("knn"))[np.ix_([4, 9], [4, 9])]
        np.testing.assert_allclose(first.gram(second), exact, atol=1e-8 * np.abs(kernel.coefficients(9)).sum())


OTHERS = [
    (DiffusionKernel(2.0), False),
    (MaternKernel(2.5, 1.0), False),
    (SeriesKernel([1.0, 4.0, 4.0]), False),
    (HeatKernel(0.05), False),
    (CosineKernel(), True),
    (DiffusionKernel(6.0), True),
]


@pytest.mark.parametrize(("kernel", "asymmetric"), OTHERS, ids=str)
@pytest.mark.parametrize("teacher", ["exact", "frontier", "walks", "counts"])
def test_reweighting_is_computing_anew_bit_for_bit(teacher, kernel, asymmetric):
    options = {"keep_lengths": True, "max_length": 40, "seed": 5, "nodes": [3, 0, 99]}
    if teacher == "counts":
        options |= {"survival": "geometric", "p_halt": 0.05}  # the former is the default where lengths are kept
    kept = compute(teacher=teacher, **options)
    anew = compute(kernel=kernel, teacher=teacher, asymmetric=asymmetric, **options)
    resolved = kernel.on(graph_of("knn"))
    again = kept.reweight(resolved, asymmetric=asymmetric)
    assert_same_bits(again.rows, anew.rows)
    assert again.info.kernel == anew.info.kernel == repr(resolved)
    # The walks are those without kept lengths, and the coefficients left out weigh less than 1e-6.
    del options["keep_lengths"]
    if teacher in ("exact", "frontier"):
        del options["max_length"]  # has no meaning for them
    plain = compute(kernel=kernel, teacher=teacher, asymmetric=asymmetric, **options)
    np.testing.assert_allclose(
        dense(again.rows), dense(plain.rows), atol=2e-6 * resolved.spectral(np.ones(1)).max()
    )


def test_auto_takes_what_costs_least(monkeypatch):
    graph, starts, series = grid_graph(200, 2), np.arange(4000), KERNEL.root()
    assert _auto.choose_teacher(graph, series, starts[:10]).teacher == "exact"
    local = _auto.choose_teacher(graph, series, starts)
    assert local.teacher == "frontier"
    assert re.search(r"exact \d.*e\+09 products and 1221 MB, frontier \d.*e\+08 and", local.reason)
    slow = RegularizedLaplacianKernel(20.0).root()  # reaches all nodes, in 10^4 lengths
    assert _auto.choose_teacher(grid_graph(100, 2), slow, starts).teacher == "exact"
    monkeypatch.setattr(_auto, "ROW_MEMORY", 2**20)
    assert _auto.choose_teacher(graph, series, starts).teacher == "counts"
    assert _auto.choose_teacher(GeneralizedAdjacency(graph.operator), series, starts).teacher == "frontier"
    assert _auto.choose_teacher(graph, series, starts[:50]).teacher == "frontier"  # few rows, but not dense ones


def test_the_choice_is_reported_and_does_not_depend_on_threads(monkeypatch):
    monkeypatch.setattr(_auto, "ROW_MEMORY", 1000)
    found = [compute(teacher="auto", seed=0, n_jobs=n_jobs) for n_jobs in (1, 3)]
    for one in found:
        assert one.info.teacher == "counts"
        assert "both above the limit" in one.info.reason
        assert one.info.reason == found[0].info.reason
        assert_same_bits(one.rows, found[0].rows)
    asked = compute(teacher="frontier", tol=1e-5).info
    assert (asked.reason, asked.options["tol"]) == ("as asked", 1e-5)
    assert repr(found[0]) == "Signatures(100 rows of 100, CSR, teacher 'counts')"
    with pytest.raises(TypeError, match="Teacher 'counts', which 'auto' chose here, has no option `tol`"):
        compute(teacher="auto", tol=1e-5)


def test_lengths_that_are_missing_are_noticed():
    kept = compute(teacher="walks", keep_lengths=True, max_length=20)
    with pytest.raises(ValueError, match=r"needs powers up to \d+, but only powers up to 20 are kept"):
        kept.reweight(DiffusionKernel(100.0))
    with pytest.raises(ValueError, match="kept no lengths; compute them with keep_lengths=True"):
        compute().reweight(KERNEL)
    with pytest.raises(ValueError, match="asymmetric=True"):
        kept.reweight(CosineKernel())
    with pytest.raises(ValueError, match="resolve"):
        kept.reweight(HeatKernel(0.05))
    # A wider spectrum needs more powers, at once and later.
    wide = {"name": "large", "teacher": "exact", "keep_lengths": True}
    with pytest.raises(ValueError, match=r"needs powers up to \d+"):
        compute(kernel=DiffusionKernel(4.0), max_length=11, **wide)
    kept = compute(kernel=DiffusionKernel(1.0), max_length=11, **wide)
    with pytest.raises(ValueError, match=r"needs powers up to \d+"):
        kept.reweight(DiffusionKernel(4.0))


BAD = [
    ({"teacher": "guess"}, ValueError, "`teacher` must be one of 'auto', 'exact'"),
    ({"nodes": [0, 100]}, ValueError, r"`nodes` must be integers in \[0, 99\]. Got 100 at index \(1,\)"),
    ({"nodes": []}, ValueError, "`nodes` must be a non-empty vector"),
    ({"nodes": [0.0]}, TypeError, "`nodes` must be integers"),
    ({"nodes": [[0]]}, ValueError, "`nodes` must be a non-empty vector"),
    ({"n_jobs": 0}, ValueError, "`n_jobs` must be -1 or an integer"),
    ({"n_jobs": 1.0}, TypeError, "`n_jobs` must be -1 or an integer"),
    ({"seed": -1}, ValueError, "`seed` must be None, a non-negative integer"),
    ({"asymmetric": 1}, TypeError, "`asymmetric` must be True or False"),
    ({"kernel": 4.0}, TypeError, "`kernel` must be a kernel, such as"),
    ({"name": "signed", "teacher": "counts"}, ValueError, "'exact', 'frontier' or 'walks' on a generalised"),
    ({"teacher": "walks", "n_stitches": 3, "kernel": PowerKernel(4)}, ValueError, "no root of order 3"),
    ({"teacher": "walks", "n_walk": 5}, TypeError, "'walks' has no option `n_walk`; it has n_walks, p_halt, max"),
    ({"teacher": "exact", "n_walks": 5}, TypeError, "'exact' has no option `n_walks`; it has tol"),
]


@pytest.mark.parametrize(("options", "kind", "message"), BAD, ids=lambda value: str(value)[:60])
def test_bad_input(options, kind, message):
    with pytest.raises(kind, match=message):
        compute(**options)


def test_a_matrix_is_no_graph():
    with pytest.raises(TypeError, match="`graph` must be a Graph or a GeneralizedAdjacency"):
        compute_signatures(graph_of("knn").operator, KERNEL)


def test_asymmetric_rows_are_entries_of_the_kernel():
    found = compute(kernel=CosineKernel(), teacher="exact", nodes=[4, 9], asymmetric=True)
    exact = CosineKernel().dense(graph_of("knn"))[np.ix_([4, 9], [4, 9])]
    np.testing.assert_allclose(found.gram(), exact, atol=1e-9)
    assert "asymmetric" in repr(found)
    with pytest.raises(ValueError, match="need `other`"):
        found.compress(10, seed=0).gram()


@pytest.mark.parametrize("teacher", ["exact", "frontier"])
def test_the_kernel_of_a_scaled_matrix_is_the_product_of_its_pair(teacher):
    graph = GeneralizedAdjacency.random_walk(knn_graph(MobiusStrip().grid(60), n_neighbors=5))
    nodes, exact = [4, 9, 30], DiffusionKernel(5.0).dense(graph)[np.ix_([4, 9, 30], [4, 9, 30])]
    found = compute_signatures(graph, DiffusionKernel(5.0), nodes, teacher=teacher)
    np.testing.assert_allclose(found.gram(), exact, atol=1e-7)
    first, second = compute_signature_pair(graph, DiffusionKernel(5.0), nodes, teacher=teacher)
    np.testing.assert_allclose(dense(first.rows) @ dense(second.rows).T, exact, atol=1e-7)
    x = np.random.default_rng(0).normal(size=graph.n_nodes)
    features = GraphRandomFeatures(graph, DiffusionKernel(5.0), teacher=teacher).fit()
    np.testing.assert_allclose(features.apply(x), DiffusionKernel(5.0).apply(graph, x), atol=1e-6)


def test_kernels_too_long_for_a_series_still_have_exact_rows():
    graph, kernel = graph_of("knn"), MaternKernel(1.5, 300.0)
    found = compute_signatures(graph, kernel, [0])
    assert found.info.teacher == "exact"
    np.testing.assert_allclose(dense(found.rows)[0], kernel.root().dense(graph)[0], rtol=1e-6)


def test_the_nodes_of_signatures_are_their_own():
    nodes = np.array([0, 1])
    found = compute(nodes=nodes)
    nodes[0] = 9
    assert found.nodes.tolist() == [0, 1]


# ---------------------------------------------------------------------------------------- functions as teachers
def dense_teacher(graph, series, nodes, *, sparse_rows=False):
    rows = series.dense(graph)[nodes]
    return sparse.csr_array(rows) if sparse_rows else rows


@pytest.mark.parametrize("sparse_rows", [False, True])
def test_a_function_is_a_teacher(sparse_rows):
    graph, kernel = knn_graph(Sphere().grid(60)), DiffusionKernel(4.0)
    found = compute_signatures(graph, kernel, [3, 7], teacher=dense_teacher, sparse_rows=sparse_rows)
    assert found.info.teacher == "dense_teacher"
    assert found.info.options == {"sparse_rows": sparse_rows}
    np.testing.assert_allclose(found.gram(), kernel.dense(graph)[np.ix_([3, 7], [3, 7])], atol=1e-12)


@pytest.mark.parametrize(
    ("teacher", "kind", "message"),
    [
        (
            lambda graph, series, nodes: np.zeros((1, 5)),
            ValueError,
            r"rows of shape \(2, 60\). Got one that returns",
        ),
        (lambda graph, series, nodes: np.full((2, 60), np.nan), ValueError, "a function that returns finite rows"),
        (lambda graph, series, nodes: sparse.eye_array(60), ValueError, r"rows of shape \(2, 60\)"),
        (3, ValueError, "`teacher` must be one of 'auto'"),
    ],
)
def test_rows_of_another_shape_or_kind_are_refused(teacher, kind, message):
    with pytest.raises(kind, match=message):
        compute_signatures(knn_graph(Sphere().grid(60)), DiffusionKernel(4.0), [0, 1], teacher=teacher)


@pytest.mark.parametrize("teacher", ["counts", "walks"])
def test_stitches_of_walks_that_reach_nothing_are_zero(teacher):
    """An isolated node takes no step, and W^4 has nothing there."""
    with pytest.warns(GraphWarning, match="isolated"):
        graph = Graph.from_affinity([[0.0]])
    found = compute_signatures(graph, PowerKernel(4), teacher=teacher, n_stitches=2, seed=0)
    assert found.rows.shape == (1, 1)
    assert found.rows.nnz == 0
