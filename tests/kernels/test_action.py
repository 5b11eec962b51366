"""K X without K: the error is within the tolerance, threads change no bit, errors name the argument."""

import functools

import numpy as np
import pytest
from scipy import sparse

from manifoldrf import (
    CosineKernel,
    DiffusionKernel,
    GeneralizedAdjacency,
    Graph,
    MaternKernel,
    PowerKernel,
    RandomWalkKernel,
    RegularizedLaplacianKernel,
    SeriesKernel,
    Sphere,
    compute_signatures,
    heat_graph,
    knn_graph,
)
from manifoldrf.kernels import action as _action
from manifoldrf.kernels.action import best_matrix, expand

KERNELS = [
    DiffusionKernel(20.0),
    DiffusionKernel(300.0),
    DiffusionKernel(50.0, normalized=False),
    PowerKernel(18),
    PowerKernel(1001),
    RegularizedLaplacianKernel(10.0),
    MaternKernel(2.5, 8.0),
    RandomWalkKernel(2.0, 9),
    CosineKernel(),
    SeriesKernel([0.0, -1.0, 0.5, 3.0]),
    DiffusionKernel(2.0) + PowerKernel(31),
]


@functools.cache
def sphere_graph(n):
    return knn_graph(Sphere().grid(n))


@functools.cache
def large_graph():
    return heat_graph(Sphere().grid(4000), t=0.02)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("tol", [1e-4, 1e-8, 1e-12])
def test_the_error_is_within_the_tolerance(kernel, tol):
    graph = sphere_graph(250)
    X = np.random.default_rng(0).standard_normal((250, 6))
    X[:, 0] = np.sqrt(graph.degrees)  # the largest eigenvector
    error = np.linalg.norm(kernel.apply(graph, X, tol=tol) - kernel.dense(graph) @ X, axis=0)
    largest = np.abs(kernel.spectral(np.linspace(-1, 1, 4001))).max()
    assert (error <= tol * largest * np.linalg.norm(X, axis=0)).all()


@pytest.mark.parametrize("tol", [1e-4, 1e-8, 1e-12])
def test_a_looser_tolerance_takes_fewer_products(tol):
    """About sqrt(2 tau log(1 / tol)) for diffusion, where the series takes tau and more."""
    degree = expand(DiffusionKernel(300.0).spectral, 1.0, tol).degree
    assert degree <= np.sqrt(2 * 300 * np.log(2 / tol)) + 5
    assert degree > 0.6 * np.sqrt(2 * 300 * np.log(1 / tol))


def test_constant_functions_and_the_zero_matrix_take_no_product():
    assert expand(DiffusionKernel(0.0).spectral, 1.0, 1e-10).degree == 0
    assert expand(DiffusionKernel(3.0).spectral, 0.0, 1e-10).degree == 0
    nothing = GeneralizedAdjacency(np.zeros((3, 3)))
    np.testing.assert_allclose(PowerKernel(2).apply(nothing, np.ones(3)), 0.0)
    np.testing.assert_allclose(DiffusionKernel(3.0).apply(nothing, np.ones(3)), np.exp(-3.0), rtol=1e-14)


def test_kernels_too_rough_for_the_tolerance_say_so():
    graph = sphere_graph(250)
    kernel = RandomWalkKernel(2.0, 0.01)  # (1 + w)^.01: a cusp at w = -1
    with pytest.raises(ValueError, match=r"The kernel is too rough for `tol` = 1e-10: more than 32768 Chebyshev"):
        kernel.apply(graph, np.ones(250))


MORE_COLUMNS = [pytest.param(n, marks=pytest.mark.slow) for n in (3, 5, 32, 200)]


@pytest.mark.parametrize("n_columns", [1, 4, 65, *MORE_COLUMNS])
def test_the_number_of_threads_changes_no_bit(n_columns):
    """The graph is large enough for threads: they share rows where columns are few, else columns."""
    graph = large_graph()
    assert graph.operator.nnz >= 2**17
    X = np.random.default_rng(0).standard_normal((4000, n_columns))
    one, *others = (DiffusionKernel(5.0).apply(graph, X, n_jobs=jobs, tol=1e-6) for jobs in (1, 2, 3, -1))
    for other in others:
        np.testing.assert_array_equal(one, other)


def test_small_work_gives_the_same_bits_with_any_number_of_threads():
    graph = sphere_graph(250)
    X = np.random.default_rng(0).standard_normal((250, 70))
    for block in (X[:, 0], X[:, :3], X):
        one, two, three = (DiffusionKernel(5.0).apply(graph, block, n_jobs=jobs) for jobs in (1, 2, 3))
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)
    np.testing.assert_array_equal(
        CosineKernel().matrix(graph, [1], [2, 3], n_jobs=3), CosineKernel().matrix(graph, [1], [2, 3])
    )


@pytest.mark.parametrize(
    "change", [np.asfortranarray, lambda X: np.repeat(X, 2, axis=1)[:, ::2], lambda X: X.tolist()]
)
def test_the_layout_of_the_columns_does_not_matter(change):
    graph, kernel = sphere_graph(250), DiffusionKernel(5.0)
    X = np.random.default_rng(0).standard_normal((250, 5))
    before = X.copy()
    np.testing.assert_array_equal(kernel.apply(graph, change(X)), kernel.apply(graph, X))
    np.testing.assert_array_equal(X, before)


def test_integers_and_single_precision_are_columns_too():
    graph, kernel = sphere_graph(250), DiffusionKernel(5.0)
    ones = kernel.apply(graph, np.ones(250))
    assert ones.dtype == np.float64
    for kind in (np.int64, np.float32, bool):
        np.testing.assert_array_equal(kernel.apply(graph, np.ones(250, kind)), ones)


def test_a_vector_is_a_column():
    graph, kernel = sphere_graph(250), MaternKernel(1.5, 3.0)
    x = np.random.default_rng(0).standard_normal(250)
    np.testing.assert_array_equal(kernel.apply(graph, x), kernel.apply(graph, x[:, None])[:, 0])


def test_the_largest_graphs_are_never_dense():
    n = 20_001
    ring = sparse.coo_array((np.ones(n), (np.arange(n), (np.arange(n) + 1) % n)), shape=(n, n))
    graph = Graph.from_affinity(ring + ring.T)
    with pytest.raises(ValueError, match=r"`graph` must be a graph of at most 20000 nodes; see `apply`"):
        DiffusionKernel(1.0).dense(graph)
    near = DiffusionKernel(1.0).matrix(graph, [0, 1, n - 1], [0])
    assert near[1] == near[2]
    assert DiffusionKernel(1.0).apply(graph, np.ones(n)) == pytest.approx(np.ones(n), abs=1e-8)


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"tol": 0.0}, ValueError, r"`tol` must be a number in \[1e-14, 1\)\. Got 0\.0\."),
        ({"tol": 1e-15}, ValueError, r"`tol` must be a number in \[1e-14, 1\)"),
        ({"tol": 1.0}, ValueError, r"`tol` must be a number in \[1e-14, 1\)\. Got 1\.0\."),
        ({"tol": np.nan}, ValueError, r"`tol` must be a number in"),
        ({"tol": "tight"}, TypeError, r"`tol` must be a number in \[1e-14, 1\)\. Got 'tight'\."),
        ({"X": np.ones(7)}, ValueError, r"`X` must be an array of 250 rows, one per node\. Got 7\."),
        ({"X": np.ones((7, 250))}, ValueError, r"`X` must be an array of 250 rows"),
        ({"X": np.full(250, np.nan)}, ValueError, r"`X` must be finite.*Got nan at index \(0, 0\)"),
        ({"X": np.full((250, 2), np.inf)}, ValueError, r"`X` must be finite"),
        ({"X": ["a"] * 250}, TypeError, r"`X` must be an array of numbers"),
        ({"X": 3.0}, ValueError, r"`X` must be an array of shape \(n, d\)"),
        ({"X": np.ones((250, 2, 2))}, ValueError, r"`X` must be an array of shape \(n, d\)"),
        ({"X": np.ones((250, 0))}, ValueError, r"`X` must be an array with at least 1 row"),
        ({"graph": np.eye(250)}, TypeError, r"`graph` must be a Graph or a GeneralizedAdjacency; .* Got ndarray\."),
        ({"graph": None}, TypeError, r"`graph` must be a Graph or a GeneralizedAdjacency; .* Got NoneType\."),
        ({"n_jobs": 0}, ValueError, r"`n_jobs` must be -1 or an integer in \[1, inf\)\. Got 0\."),
        ({"n_jobs": 1.5}, TypeError, r"`n_jobs` must be -1 or an integer"),
    ],
)
def test_bad_input_of_apply_is_named(changes, kind, message):
    arguments = {"graph": sphere_graph(250), "X": np.ones(250)} | changes
    with pytest.raises(kind, match=message):
        DiffusionKernel(1.0).apply(**arguments)


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"rows": [250]}, ValueError, r"`rows` must be integers in \[0, 249\]\. Got 250 at index \(0,\)\."),
        ({"cols": [-1]}, ValueError, r"`cols` must be integers in \[0, 249\]\. Got -1 at index \(0,\)\."),
        ({"rows": [0.5]}, TypeError, r"`rows` must be integers in \[0, 249\]"),
        ({"cols": []}, ValueError, r"`cols` must be a non-empty vector of indices"),
        ({"graph": "graph"}, TypeError, r"`graph` must be a Graph or a GeneralizedAdjacency; .* Got str\."),
        ({"tol": 2}, ValueError, r"`tol` must be a number in \[1e-14, 1\)\. Got 2\."),
    ],
)
def test_bad_input_of_matrix_is_named(changes, kind, message):
    with pytest.raises(kind, match=message):
        DiffusionKernel(1.0).matrix(**({"graph": sphere_graph(250)} | changes))
    if "graph" in changes:
        with pytest.raises(kind, match=message):
            DiffusionKernel(1.0).dense(changes["graph"])


@pytest.mark.parametrize("kernel", [DiffusionKernel(20.0), PowerKernel(12)], ids=repr)
def test_the_order_of_the_nodes_in_memory_changes_only_the_rounding(kernel, monkeypatch):
    graph = knn_graph(Sphere().sample(600, seed=0))  # in random order
    columns, nodes = np.random.default_rng(0).standard_normal((600, 40)), np.arange(0, 600, 7)
    plain = kernel.apply(graph, columns), kernel.matrix(graph, nodes), exact_rows(graph, kernel, nodes)
    monkeypatch.setattr(_action, "_LARGE", 1)
    assert best_matrix(kernel.expansion(1.0, 1e-10), graph) is graph._local
    moved = kernel.apply(graph, columns), kernel.matrix(graph, nodes), exact_rows(graph, kernel, nodes)
    for one, other in zip(plain, moved, strict=True):
        np.testing.assert_allclose(other, one, atol=1e-13 * np.abs(one).max())
    np.testing.assert_array_equal(kernel.apply(graph, columns[:, :3]), moved[0][:, :3])  # whatever stands beside it
    np.testing.assert_array_equal(exact_rows(graph, kernel, nodes[5:9]), moved[2][5:9])


def exact_rows(graph, kernel, nodes):
    return compute_signatures(graph, kernel, nodes, teacher="exact").rows
