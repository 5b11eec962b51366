"""What every kernel promises, on every kind of graph: series, dense form, action, root and parameters agree."""

import copy
import dataclasses
import decimal
import functools
import pickle
import warnings
from fractions import Fraction

import numpy as np
import pytest
from oracles import sphere_mesh
from sklearn.base import clone

import manifoldrf
from manifoldrf import (
    CosineKernel,
    DiffusionKernel,
    Graph,
    GraphWarning,
    HeatKernel,
    MaternKernel,
    PowerKernel,
    RandomWalkKernel,
    RegularizedLaplacianKernel,
    SeriesKernel,
    Sphere,
    grid_graph,
    heat_graph,
    mesh_graph,
)
from manifoldrf.kernels import abstract_kernel
from manifoldrf.kernels.graph_kernels import ShiftedKernel

# Kernel, whether K is positive semi-definite on every graph, whether f >= 0 exists.
TABLE = [
    (DiffusionKernel(5.0), True, True),
    (DiffusionKernel(0.0), True, True),
    (DiffusionKernel(3.0, normalized=False), True, True),
    (PowerKernel(0), True, True),
    (PowerKernel(3), False, False),
    (PowerKernel(4), True, True),
    (RegularizedLaplacianKernel(2.0), True, True),
    (RegularizedLaplacianKernel(0.0, 2), True, True),
    (RegularizedLaplacianKernel(1.5, power=2.5), True, True),
    (RandomWalkKernel(2.0, 4), True, True),
    (RandomWalkKernel(2.5, 3), True, False),
    (RandomWalkKernel(3.0, 1.5), True, False),
    (CosineKernel(), True, False),
    (MaternKernel(1.5, 2.0), True, True),
    (SeriesKernel([1.0, 4.0, 4.0]), True, True),
    (SeriesKernel([Fraction(1, 3), 0.25, 1]), True, False),
    (SeriesKernel([0.0, 1.0, -0.5]), False, False),
    (SeriesKernel([0, 0, 9]), True, True),
    (2.5 * DiffusionKernel(2.0), True, True),
    (-1 * DiffusionKernel(2.0), False, False),
    (0.0 * DiffusionKernel(2.0), True, True),
    (DiffusionKernel(0.5) + RegularizedLaplacianKernel(1.0), True, True),
    (DiffusionKernel(5.0) + DiffusionKernel(20.0), True, False),
    (DiffusionKernel(2.0) * PowerKernel(2), True, True),
    (PowerKernel(3) * PowerKernel(3), True, True),
    (2 * (CosineKernel() * DiffusionKernel(1.0)), True, False),
]
KERNELS = [row[0] for row in TABLE]
POSITIVE = [row[0] for row in TABLE if row[2]]
# An odd number of leading zeros, or a negative first coefficient.
WITHOUT_REAL_ROOT = [PowerKernel(3), SeriesKernel([0.0, 1.0, -0.5]), -1 * DiffusionKernel(2.0)]
WITH_REAL_ROOT = [kernel for kernel in KERNELS if kernel not in WITHOUT_REAL_ROOT]
IN_THE_MANIFOLD_CLOCK = [HeatKernel(0.6), MaternKernel(1.5, 1.0, clock="manifold")]


@functools.cache
def graph_named(name):
    if name == "path":
        return Graph.from_affinity(np.eye(7, k=1) + np.eye(7, k=-1))
    if name == "grid":
        return grid_graph(4, 2)
    if name == "random weights":
        rng = np.random.default_rng(0)
        upper = np.triu(rng.random((12, 12)) * (rng.random((12, 12)) < 0.6))
        return Graph.from_affinity(upper + upper.T)
    if name == "disconnected":
        blocks = np.zeros((7, 7))
        blocks[:3, :3] = 1 - np.eye(3)
        blocks[3:6, 3:6] = 2.0  # with loops; the last node is isolated
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GraphWarning)
            return Graph.from_affinity(blocks)
    if name == "heat graph":
        return heat_graph(Sphere().grid(80), t=0.6)
    return mesh_graph(sphere_mesh(40), weights=name.removesuffix(" mesh"))


NAMES = ["path", "grid", "random weights", "disconnected", "heat graph", "gaussian mesh", "cotangent mesh"]
CALIBRATED = ["grid", "heat graph", "gaussian mesh", "cotangent mesh"]  # those with points


def on_graphs(kernels):
    return pytest.mark.parametrize(
        ("kernel", "name"),
        [(kernel, name) for kernel in kernels for name in (NAMES if kernel in KERNELS else CALIBRATED)],
        ids=str,
    )


def total_size(kernel):
    """sum_k |alpha_k|, which bounds the spectrum of K and of every partial sum."""
    return np.abs(kernel.coefficients(kernel.n_terms or 4096)).sum()


@on_graphs(KERNELS + IN_THE_MANIFOLD_CLOCK)
def test_dense_is_symmetric_and_the_sum_of_the_series(kernel, name):
    graph = graph_named(name)
    dense = kernel.dense(graph)
    steps = kernel.resolve(graph)
    w, total = graph.operator.toarray(), np.zeros_like(dense)
    for alpha in steps.coefficients(steps.truncation(1e-12))[::-1]:
        total = w @ total + alpha * np.eye(len(w))
    np.testing.assert_array_equal(dense, dense.T)
    # What was left out, and rounding of the eigendecomposition.
    np.testing.assert_allclose(dense, total, rtol=0, atol=2e-12 * total_size(steps))


def test_dense_is_right_to_rounding_where_eigenvalues_are_close():
    """One edge of 97 beside some of .03 to 1: eigenvalues near 1 and -1 come in pairs."""
    affinity = np.zeros((5, 5))
    edges = {(0, 1): 0.797726823, (0, 3): 0.143731763, (0, 4): 97.2095395, (3, 4): 0.0273274408}
    for (i, j), weight in edges.items():
        affinity[i, j] = affinity[j, i] = weight
    affinity[2, 2], affinity[4, 4] = 45.1695598, 1.14312064
    with pytest.warns(GraphWarning, match="isolated"):
        graph = Graph.from_affinity(affinity)
    dense = DiffusionKernel(0.0, normalized=False).dense(graph)
    np.testing.assert_allclose(dense, np.eye(5), atol=1e-14)


@on_graphs(KERNELS + IN_THE_MANIFOLD_CLOCK)
def test_apply_and_matrix_are_the_dense_kernel(kernel, name):
    graph = graph_named(name)
    dense, n = kernel.dense(graph), graph.n_nodes
    X = np.random.default_rng(1).standard_normal((n, 70))
    largest = np.abs(kernel.resolve(graph).spectral(np.linspace(-1, 1, 201))).max()
    limit = 1.1e-10 * largest * np.linalg.norm(X, axis=0)  # the default `tol`, and a tenth of it for rounding
    for block in (X[:, 0], X[:, :1], X[:, :3], X[:, :33], X):
        applied = kernel.apply(graph, block)
        assert applied.shape == block.shape
        error = np.linalg.norm(applied - dense @ block, axis=0)
        assert (error <= limit[: np.size(error)]).all()
    rows, cols = [n - 1, 0, 0], [2, n - 1]
    picked = kernel.matrix(graph, rows, cols)
    np.testing.assert_allclose(picked, dense[rows][:, cols], rtol=0, atol=1.1e-10 * largest)
    np.testing.assert_allclose(kernel.matrix(graph), dense, rtol=0, atol=1.1e-10 * largest)


@pytest.mark.parametrize(("kernel", "semidefinite", "positive"), TABLE, ids=str)
def test_definiteness_and_positivity_are_as_stated(kernel, semidefinite, positive):
    assert kernel.is_positive is positive
    smallest = min(np.linalg.eigvalsh(kernel.dense(graph_named(name))).min() for name in NAMES)
    assert (smallest >= -1e-13 * total_size(kernel)) == semidefinite


@pytest.mark.parametrize("kernel", [*KERNELS, ShiftedKernel(DiffusionKernel(2.0))], ids=str)
def test_decimal_coefficients_are_those_of_the_series(kernel):
    with decimal.localcontext(prec=50):
        exact = np.array([float(value) for value in kernel._exact(15)])
    np.testing.assert_allclose(exact, kernel.coefficients(15), rtol=1e-12, atol=1e-14 * np.abs(exact).max())


@on_graphs(POSITIVE + IN_THE_MANIFOLD_CLOCK)
def test_features_of_the_root_multiply_to_the_kernel_and_are_nonnegative(kernel, name):
    graph = graph_named(name)
    dense, features = kernel.dense(graph), kernel.resolve(graph).root().dense(graph)
    size = max(np.abs(dense).max(), 1e-300)
    np.testing.assert_allclose(features @ features.T, dense, rtol=0, atol=1e-12 * size)
    assert features.min() >= -1e-13 * np.sqrt(size)
    np.testing.assert_allclose(kernel.root().dense(graph), features, rtol=0, atol=1e-12 * np.sqrt(size))


@pytest.mark.parametrize("kernel", WITH_REAL_ROOT, ids=str)
@pytest.mark.parametrize("n", [1, 2, 30])
def test_modulation_convolved_with_itself_is_the_series(kernel, n):
    f, alpha = kernel.modulation(n), kernel.coefficients(n)
    assert f.shape == alpha.shape == (n,)
    assert f.dtype == alpha.dtype == np.float64
    assert kernel.is_positive <= bool((f >= 0).all())
    np.testing.assert_allclose(np.convolve(f, f)[:n], alpha, rtol=1e-12, atol=1e-14 * (np.abs(f).sum() ** 2))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-10])
@pytest.mark.parametrize("radius", [1.0, 0.5])
def test_truncation_leaves_out_at_most_tol_and_wastes_no_term(kernel, tol, radius):
    n = kernel.truncation(tol, radius)
    sizes = np.abs(kernel.coefficients(2048)) * radius ** np.arange(2048)
    assert sizes[n:].sum() <= tol * sizes.sum()
    if n > 1:  # half of `tol` is kept for terms that are never computed
        assert sizes[n - 1 :].sum() > tol / 2 * sizes.sum() * (1 - 1e-6)


@pytest.mark.parametrize("kernel", KERNELS + IN_THE_MANIFOLD_CLOCK, ids=str)
class TestParameters:
    """Kernels are values: equal, hashable, printable, copied and changed by name."""

    def test_parameters_make_the_kernel_again(self, kernel):
        shallow = kernel.get_params(deep=False)
        assert type(kernel)(**shallow) == kernel
        assert kernel.with_params(**shallow) == kernel
        assert kernel.with_params(**kernel.get_params()) == kernel
        assert shallow.keys() <= kernel.get_params().keys()

    def test_copies_are_equal_and_hash_alike(self, kernel):
        names = {name: getattr(manifoldrf, name) for name in manifoldrf.__all__}
        again = eval(repr(kernel), names | vars(abstract_kernel) | {"Fraction": Fraction})
        for other in (again, clone(kernel), pickle.loads(pickle.dumps(kernel)), copy.deepcopy(kernel)):
            assert other == kernel
            assert hash(other) == hash(kernel)
            assert repr(other) == repr(kernel)
        assert len({kernel, again}) == 1

    def test_kernels_are_frozen(self, kernel):
        for name in [*kernel.get_params(deep=False), "other"]:
            with pytest.raises(dataclasses.FrozenInstanceError):
                setattr(kernel, name, 1.0)

    def test_unknown_parameters_are_refused(self, kernel):
        with pytest.raises(ValueError, match="Kernel has no parameter `sigma`; it has "):
            kernel.with_params(sigma=1.0)


@pytest.mark.parametrize("kernel", WITH_REAL_ROOT + IN_THE_MANIFOLD_CLOCK, ids=str)
def test_the_root_is_computed_once_and_is_no_part_of_the_value(kernel):
    fresh = dataclasses.replace(kernel)
    pickled = pickle.dumps(fresh)
    assert fresh.root() is fresh.root(2)
    assert pickle.dumps(fresh) == pickled
    assert "_square_root" not in vars(copy.copy(fresh))
    assert (fresh == kernel, hash(fresh), repr(fresh)) == (True, hash(kernel), repr(kernel))


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_a_kernel_in_steps_resolves_to_itself(kernel):
    assert kernel.resolve(graph_named("path")) is kernel


def test_different_kernels_differ():
    assert len(set(KERNELS)) == len(KERNELS)
    assert DiffusionKernel(2) == DiffusionKernel(2.0) == DiffusionKernel(Fraction(2))
    assert DiffusionKernel(2.0) != DiffusionKernel(2.0, normalized=False)
    assert MaternKernel(1.0, 2.0) != MaternKernel(1.0, 2.0, clock="manifold")


def test_parts_are_reached_by_nested_names():
    kernel = 2 * DiffusionKernel(5.0) + PowerKernel(2)
    assert kernel.get_params()["left__kernel__tau"] == 5.0
    changed = kernel.with_params(left__kernel__tau=7.0, left__factor=3.0, right=PowerKernel(4))
    assert changed == 3 * DiffusionKernel(7.0) + PowerKernel(4)
    with pytest.raises(ValueError, match=r"`tau` must be a number in \[0, inf\)\. Got -1\.0\."):
        kernel.with_params(left__kernel__tau=-1.0)


@pytest.mark.parametrize("other", [1.0, "x", None, np.ones(2)], ids=str)
def test_only_kernels_are_added_and_only_numbers_scale(other):
    kernel = DiffusionKernel(1.0)
    with pytest.raises(TypeError):
        _ = kernel + other
    if not isinstance(other, float):
        for product in (lambda: kernel * other, lambda: other * kernel):
            with pytest.raises(TypeError):
                product()


def test_arithmetic_is_that_of_matrices():
    graph = graph_named("random weights")
    a, b = DiffusionKernel(1.5), RandomWalkKernel(2.0, 3)
    A, B = a.dense(graph), b.dense(graph)
    for kernel, exact in [(a + b, A + B), (a * b, A @ B), (3 * a, 3 * A), (a * np.float64(3), 3 * A)]:
        np.testing.assert_allclose(kernel.dense(graph), exact, rtol=0, atol=1e-13 * np.abs(exact).max())
    assert (PowerKernel(2) + SeriesKernel([1.0])).n_terms == 3
    assert (PowerKernel(2) * PowerKernel(3)).n_terms == 6
    assert (a * PowerKernel(3)).n_terms is None
    for factor in (np.nan, np.inf):
        with pytest.raises(ValueError, match=r"`factor` must be a number in \(-inf, inf\)"):
            _ = factor * a


def test_long_products_of_series_are_right():
    """Beyond 4096 terms the convolution runs by Fourier transforms."""
    n = 5000
    kernel = RegularizedLaplacianKernel(30.0) * RegularizedLaplacianKernel(30.0)
    exact = RegularizedLaplacianKernel(30.0, power=2).coefficients(n)
    np.testing.assert_allclose(kernel.coefficients(n), exact, rtol=0, atol=1e-14)  # 2e-15 measured
    assert kernel.root() == RegularizedLaplacianKernel(30.0)
