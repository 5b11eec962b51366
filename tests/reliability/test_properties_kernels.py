"""Kernels of any parameters: a documented error, or series, closed form, root and action that agree."""

import math

import numpy as np
from hypothesis import strategies as st
from reliability.strategies import (
    KERNELS,
    POSITIVE_KERNELS,
    SCALES,
    SEEDS,
    SIMPLE_KERNELS,
    Outcomes,
    graphs,
    holds_for,
    kernel_calls,
    mostly,
    neighbor_graphs,
    quietly,
    shuffled,
    surfaces,
)

from manifoldrf import AbstractKernel, DiffusionKernel, Graph, HeatKernel, MaternKernel, knn_graph

EPS, TINY = np.finfo(np.float64).eps, np.finfo(np.float64).tiny


def as_series(kernel):
    """The kernel if its series is known to end within its limit on every graph; an empty list if it says not."""
    return Outcomes().of(kernel.truncation, 1e-12)


def test_kernels_of_any_parameters_are_refused_with_a_reason_or_finite():
    outcomes = Outcomes()

    @holds_for(call=kernel_calls())
    def check(call):
        kind, parameters = call
        for kernel in outcomes.of(kind, **parameters):
            assert isinstance(kernel, AbstractKernel)
            if kernel.get_params().get("clock") != "manifold" and kind is not HeatKernel:
                assert np.isfinite(kernel.coefficients(8)).all()
                assert np.isfinite(kernel.spectral(np.linspace(-1, 1, 9))).all()

    check()
    assert outcomes.both_happened(), outcomes.counts


@holds_for(kernel=KERNELS)
def test_the_closed_form_is_the_sum_of_the_series(kernel):
    for n in as_series(kernel):
        w = np.linspace(-1, 1, 41)
        terms = kernel.coefficients(n)
        total = np.abs(terms).sum()
        # What is left out, and the rounding of n terms.
        found = np.polynomial.polynomial.polyval(w, terms)
        np.testing.assert_allclose(found, kernel.spectral(w), rtol=0, atol=(2e-12 + 4 * n * EPS) * total + TINY)


@holds_for(kernel=POSITIVE_KERNELS, n=st.integers(1, 40))
def test_the_modulation_is_nonnegative_and_its_square_is_the_series(kernel, n):
    assert kernel.is_positive
    f, alpha = kernel.modulation(n), kernel.coefficients(n)
    assert (f >= 0).all()
    # Sums of n products of logarithms' exponentials, each right to some hundred eps.
    np.testing.assert_allclose(np.convolve(f, f)[:n], alpha, rtol=1e-11, atol=1e-13 * alpha.max())


@holds_for(kernel=KERNELS)
def test_a_root_squares_to_the_kernel_or_is_refused_with_a_reason(kernel):
    w = np.linspace(-1, 1, 21)
    for root in Outcomes().of(lambda: kernel.root().spectral(w)):
        # A root without a closed form may leave out a millionth of its sum.
        size = float(np.abs(kernel.coefficients(1024)).sum()) ** 0.5 + float(np.abs(root).max())
        np.testing.assert_allclose(root**2, kernel.spectral(w), rtol=0, atol=1e-5 * size**2)


@holds_for(kernel=KERNELS, graph=graphs(), seed=SEEDS)
def test_the_action_of_a_kernel_is_its_matrix_times_columns(kernel, graph, seed):
    for dense in Outcomes().of(kernel.dense, graph):
        assert np.array_equal(dense, dense.T)
        columns = np.random.default_rng(seed).standard_normal((graph.n_nodes, 2))
        height = float(np.abs(kernel.spectral(np.linspace(-1, 1, 2001))).max())
        for applied in Outcomes().of(kernel.apply, graph, columns):
            # The tolerance of `apply`, rounding of the decomposition, and numbers too small for digits.
            atol = (1e-9 + 100 * graph.n_nodes * EPS) * height + 1e-322
            size = max(1.0, np.linalg.norm(columns, axis=0).max())
            np.testing.assert_allclose(applied, dense @ columns, rtol=0, atol=atol * size)
            np.testing.assert_array_equal(kernel.apply(graph, columns, n_jobs=2), applied)
            np.testing.assert_array_equal(kernel.apply(graph, columns[:, 0]), applied[:, 0])
            some = np.arange(0, graph.n_nodes, 2)
            entries = kernel.matrix(graph, some, [0])
            np.testing.assert_allclose(entries, dense[np.ix_(some, [0])], rtol=0, atol=atol)


@holds_for(kernel=POSITIVE_KERNELS, graph=graphs(), seed=SEEDS)
def test_positive_kernels_are_positive_in_both_senses_and_follow_the_order_of_nodes(kernel, graph, seed):
    dense = kernel.dense(graph)
    height = max(float(np.abs(dense).max()), float(kernel.spectral(np.ones(1))[0]))
    accuracy = 100 * graph.n_nodes * EPS * height
    assert (dense >= -accuracy).all()  # sums of nonnegative terms
    assert np.linalg.eigvalsh(dense).min() >= -accuracy
    order = shuffled(graph.n_nodes, seed)
    other = quietly(Graph.from_affinity, graph.affinity.toarray()[np.ix_(order, order)])
    np.testing.assert_allclose(kernel.dense(other), dense[np.ix_(order, order)], rtol=0, atol=accuracy)


@holds_for(one=SIMPLE_KERNELS, two=SIMPLE_KERNELS, factor=st.floats(-5.0, 5.0), graph=graphs(8))
def test_sums_products_and_multiples_are_those_of_the_matrices(one, two, factor, graph):
    for first in Outcomes().of(one.dense, graph):
        for second in Outcomes().of(two.dense, graph):
            size = 100 * graph.n_nodes * EPS * (1 + np.abs(first).sum()) * (1 + np.abs(second).sum())
            np.testing.assert_allclose((one + two).dense(graph), first + second, rtol=0, atol=size)
            np.testing.assert_allclose((one * two).dense(graph), first @ second, rtol=0, atol=size)
            np.testing.assert_allclose((factor * one).dense(graph), factor * first, rtol=0, atol=6 * size)
            assert (one * two).coefficients(5).shape == (5,)
            expected = np.convolve(one.coefficients(5), two.coefficients(5))[:5]
            scale = np.abs(expected).max(initial=0.0) + largest_term(one) * largest_term(two)
            np.testing.assert_allclose((one * two).coefficients(5), expected, rtol=0, atol=1e-13 * scale)


def largest_term(kernel):
    return float(np.abs(kernel.coefficients(5)).sum())


@holds_for(points=surfaces(), nu=st.floats(0.3, 3.0), factor=st.floats(1.01, 5.0), scale=SCALES)
def test_kernels_in_the_manifold_clock_follow_the_unit_of_any_graph(points, nu, factor, scale):
    near, far = quietly(knn_graph, points), quietly(knn_graph, scale * points)
    step = near.time(1.0, 2)
    one = HeatKernel(factor * step).resolve(near, 2)
    other = HeatKernel(factor * step * scale**2).resolve(far, 2)
    assert isinstance(one, DiffusionKernel)
    assert math.isclose(one.tau, other.tau, rel_tol=1e-12)
    assert math.isclose(one.tau, factor, rel_tol=1e-12)
    length = math.sqrt(2 * nu * step) * factor  # the shortest that this graph allows, or longer
    matern = [
        MaternKernel(nu, length * unit, "manifold").resolve(graph, 2).matrix(graph, [0])
        for graph, unit in ((near, 1.0), (far, scale))
    ]
    # (c - Delta)^-(nu + 1) is in units of length^(2 nu + 2).
    np.testing.assert_allclose(matern[1], matern[0] * scale ** (2 * nu + 2), rtol=1e-8, atol=1e-8 * matern[1].max())


@holds_for(graph=neighbor_graphs(), tau=st.floats(1e-6, 1e4), dim=mostly(st.integers(1, 4)))
def test_the_two_clocks_are_inverse_to_each_other(graph, tau, dim):
    for t in Outcomes().of(graph.time, tau, dim):
        assert math.isclose(graph.steps(t, dim), tau, rel_tol=1e-12)
