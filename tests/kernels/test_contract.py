"""What every kernel promises: closed form, series, action, root and parameters agree."""

import copy
import dataclasses
import functools
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone

from manifoldrf import (
    AbstractKernel,
    DiffusionKernel,
    Graph,
    HeatKernel,
    ManifoldWarning,
    MaternKernel,
    Sphere,
    compute_signatures,
    heat_graph,
)
from manifoldrf.kernels import CosineKernel, PowerKernel, RandomWalkKernel, RegularizedLaplacianKernel, SeriesKernel
from manifoldrf.kernels.named_kernels import shifted

# Kernel, whether K is positive semi-definite on every graph, whether f >= 0 exists.
TABLE = [
    (DiffusionKernel(5.0), True, True),
    (DiffusionKernel(0.0), True, True),
    (PowerKernel(3), False, False),
    (PowerKernel(4), True, True),
    (RegularizedLaplacianKernel(1.5, power=2.5), True, True),
    (RandomWalkKernel(2.0, 4), True, True),
    (RandomWalkKernel(2.5, 3), True, False),
    (RandomWalkKernel(3.0, 1.5), True, False),
    (CosineKernel(), True, False),
    (MaternKernel(1.5, 2.0), True, True),
    (SeriesKernel([1.0, 4.0, 4.0]), True, True),
    (SeriesKernel([0.0, 1.0, -0.5]), False, False),
    (-1 * DiffusionKernel(2.0), False, False),
    (0.0 * DiffusionKernel(2.0), True, True),
    (DiffusionKernel(0.5) + RegularizedLaplacianKernel(1.0), True, True),
    (DiffusionKernel(5.0) + DiffusionKernel(20.0), True, False),
    (DiffusionKernel(2.0) * PowerKernel(2), True, True),
    (PowerKernel(3) * PowerKernel(3), True, True),
]
KERNELS = [row[0] for row in TABLE]
CLOCKED = [HeatKernel(0.6), MaternKernel(1.5, 1.0, clock="manifold")]


@functools.cache
def graph_of(name):
    if name == "heat":
        return heat_graph(Sphere().grid(80), t=0.6)
    blocks = np.random.default_rng(0).random((13, 13)) < 0.5
    blocks = np.triu(blocks * np.random.default_rng(1).random((13, 13)))
    blocks[:6, 6:] = blocks[:, 12] = 0.0  # pieces, and an isolated node
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ManifoldWarning)
        return Graph.from_affinity(blocks + blocks.T)


@pytest.mark.parametrize("kernel", KERNELS + CLOCKED, ids=str)
def test_series_dense_form_and_action_agree(kernel):
    for name in ("heat",) if kernel in CLOCKED else ("heat", "pieces"):
        graph = graph_of(name)
        steps, dense, w = kernel.resolve(graph), kernel.dense(graph), graph.operator.toarray()
        alpha, total = steps.coefficients(steps.truncation(1e-12)), np.zeros_like(dense)
        for value in alpha[::-1]:
            total = w @ total + value * np.eye(len(w))
        size = np.abs(alpha).sum()  # bounds the spectrum of K and of every partial sum
        np.testing.assert_array_equal(dense, dense.T)
        np.testing.assert_allclose(dense, total, rtol=0, atol=2e-12 * size)
        X = np.random.default_rng(1).standard_normal((len(w), 33))
        limit = 1.1e-10 * size * np.linalg.norm(X, axis=0).max()  # the default `tol`, and a tenth for rounding
        for block in (X[:, 0], X[:, :3], X):
            np.testing.assert_allclose(kernel.apply(graph, block), dense @ block, rtol=0, atol=limit)
        rows, cols = [len(w) - 1, 0, 0], [2, len(w) - 1]
        np.testing.assert_allclose(kernel.matrix(graph, rows, cols), dense[rows][:, cols], rtol=0, atol=limit)


@pytest.mark.parametrize(("kernel", "semidefinite", "positive"), TABLE, ids=str)
def test_definiteness_and_positivity_are_as_stated(kernel, semidefinite, positive):
    assert kernel.is_positive is positive
    size = np.abs(kernel.coefficients(kernel.n_terms or 4096)).sum()
    smallest = min(np.linalg.eigvalsh(kernel.dense(graph_of(name))).min() for name in ("heat", "pieces"))
    assert (smallest >= -1e-13 * size) == semidefinite


@pytest.mark.parametrize("kernel", [row[0] for row in TABLE if row[2]] + CLOCKED, ids=str)
def test_the_root_squares_to_the_kernel_and_is_nonnegative(kernel):
    graph = graph_of("heat")
    dense, features = kernel.dense(graph), kernel.resolve(graph).root().dense(graph)
    size = max(np.abs(dense).max(), 1e-300)
    np.testing.assert_allclose(features @ features.T, dense, rtol=0, atol=1e-12 * size)
    assert features.min() >= -1e-13 * np.sqrt(size)
    np.testing.assert_allclose(kernel.root().dense(graph), features, rtol=0, atol=1e-12 * np.sqrt(size))
    f, alpha = kernel.resolve(graph).modulation(30), kernel.resolve(graph).coefficients(30)
    assert (f >= 0).all()
    np.testing.assert_allclose(np.convolve(f, f)[:30], alpha, rtol=1e-11, atol=1e-14 * f.sum() ** 2)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_truncation_leaves_out_at_most_tol_and_wastes_no_term(kernel):
    sizes = np.abs(kernel.coefficients(2048))
    for tol in (1e-3, 1e-10):
        n = kernel.truncation(tol)
        assert sizes[n:].sum() <= tol * sizes.sum()
        # Half of `tol` is kept for terms that are never computed.
        assert n <= 1 or sizes[n - 1 :].sum() > tol / 2 * sizes.sum() * (1 - 1e-6)


@pytest.mark.parametrize("kernel", [DiffusionKernel(20.0), PowerKernel(8), CosineKernel(), KERNELS[-4]], ids=str)
def test_a_shifted_series_leaves_the_first_term(kernel):
    w = np.concatenate([np.linspace(-0.9, 0.9, 37), [1e-12, -1e-12, 0.0]])
    rest, first = shifted(kernel), kernel.coefficients(1)[0]
    np.testing.assert_array_equal(rest.coefficients(20), kernel.coefficients(21)[1:])
    np.testing.assert_allclose(first + w * rest.spectral(w), kernel.spectral(w), rtol=1e-11, atol=1e-13)
    assert rest.n_terms == (None if kernel.n_terms is None else kernel.n_terms - 1)


@pytest.mark.parametrize("kernel", KERNELS + CLOCKED, ids=str)
def test_kernels_are_values(kernel):
    assert type(kernel)(**kernel.get_params(deep=False)) == kernel == kernel.with_params(**kernel.get_params())
    for other in (clone(kernel), pickle.loads(pickle.dumps(kernel)), copy.deepcopy(kernel)):
        assert (other, hash(other), repr(other)) == (kernel, hash(kernel), repr(kernel))
    for name in [*kernel.get_params(deep=False), "other"]:
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(kernel, name, 1.0)
    with pytest.raises(ValueError, match="`sigma`"):
        kernel.with_params(sigma=1.0)
    if kernel in KERNELS:
        assert kernel.resolve(graph_of("pieces")) == kernel


def test_parts_are_reached_by_nested_names():
    kernel = 2 * DiffusionKernel(5.0) + PowerKernel(2)
    changed = kernel.with_params(left__kernel__tau=7.0, left__factor=3.0, right=PowerKernel(4))
    assert changed == 3 * DiffusionKernel(7.0) + PowerKernel(4)
    with pytest.raises(ValueError, match=r"`tau` .* Got -1\.0"):
        kernel.with_params(left__kernel__tau=-1.0)


def test_arithmetic_is_that_of_matrices():
    graph = graph_of("pieces")
    a, b = DiffusionKernel(1.5), RandomWalkKernel(2.0, 3)
    A, B = a.dense(graph), b.dense(graph)
    for kernel, exact in [(a + b, A + B), (a * b, A @ B), (3 * a, 3 * A), (a * np.float64(3), 3 * A)]:
        np.testing.assert_allclose(kernel.dense(graph), exact, rtol=0, atol=1e-13 * np.abs(exact).max())
    lengths = [k.n_terms for k in (PowerKernel(2) + SeriesKernel([1.0]), PowerKernel(2) * PowerKernel(3), a * b)]
    assert lengths == [3, 6, None]
    for other in ("x", None, np.ones(2)):
        for operation in (lambda x: a + x, lambda x: a * x, lambda x: x * a):
            with pytest.raises(TypeError):
                operation(other)
    with pytest.raises(ValueError, match="`factor`"):
        _ = np.nan * a


def test_long_products_of_series_are_right():
    """Beyond 4096 terms the convolution runs by Fourier transforms."""
    kernel = RegularizedLaplacianKernel(30.0) * RegularizedLaplacianKernel(30.0)
    exact = RegularizedLaplacianKernel(30.0, power=2).coefficients(5000)
    np.testing.assert_allclose(kernel.coefficients(5000), exact, rtol=0, atol=1e-14)  # 2e-15 measured
    assert kernel.root() == RegularizedLaplacianKernel(30.0)


def test_threads_and_memory_order_change_no_bit():
    """The graph is large enough for threads: they share rows where columns are few, else columns."""
    graph = heat_graph(Sphere().grid(4000), t=0.02)
    assert graph.operator.nnz >= 2**17
    X = np.random.default_rng(0).standard_normal((4000, 65))
    for block in (X[:, 0], X[:, :4], X):
        one, two, three = (DiffusionKernel(5.0).apply(graph, block, n_jobs=n, tol=1e-6) for n in (1, 2, 3))
        np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(one, three)
    np.testing.assert_array_equal(DiffusionKernel(5.0).apply(graph, np.asfortranarray(X), tol=1e-6), one)


def test_a_kernel_must_be_a_dataclass_with_hashable_fields():
    class Plain(AbstractKernel):
        spectral = _coefficients = DiffusionKernel.spectral

    @dataclasses.dataclass(frozen=True)
    class WithArray(Plain):
        factors: np.ndarray

    for kernel in (Plain(), WithArray(np.ones(3))):
        with pytest.raises(TypeError, match="`kernel` must be a frozen dataclass"):
            compute_signatures(graph_of("pieces"), kernel, [0])
