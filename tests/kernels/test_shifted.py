"""A series without its first term: h(W) = alpha_0 + W times the rest, in coefficients and in closed form."""

import numpy as np
import pytest

from manifoldrf import (
    CosineKernel,
    DiffusionKernel,
    MaternKernel,
    PowerKernel,
    RandomWalkKernel,
    SeriesKernel,
    Sphere,
    knn_graph,
)
from manifoldrf.kernels.graph_kernels import ShiftedKernel, shifted

GRAPH = knn_graph(Sphere().grid(80))
KERNELS = [
    DiffusionKernel(0.5),
    DiffusionKernel(20.0),
    DiffusionKernel(20.0).root(),
    MaternKernel(1.5, 2.0),
    PowerKernel(0),
    PowerKernel(1),
    PowerKernel(8),
    RandomWalkKernel(2.5, 3.0),
    SeriesKernel((1.0, 0.5, 0.25, 2.0)),
    SeriesKernel((3.0,)),
    SeriesKernel((0.0, 2.0)),
    CosineKernel(),
    2 * DiffusionKernel(1.0) + PowerKernel(3),
]


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_coefficients_move_by_one(kernel):
    np.testing.assert_array_equal(shifted(kernel).coefficients(20), kernel.coefficients(21)[1:])


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_the_closed_form_is_the_series(kernel):
    w = np.concatenate([np.linspace(-0.9, 0.9, 37), [-0.25, 0.25, 1e-12, -1e-12, 0.0]])
    exact = np.polynomial.polynomial.polyval(w, kernel.coefficients(400)[1:])  # .9^400 is 5e-19
    # Cancellation in (h - alpha_0) / w costs at most 1 / .25 in digits.
    scale = np.abs(kernel.spectral(np.array([1.0]))).max() + np.abs(kernel.coefficients(1)).max()
    np.testing.assert_allclose(shifted(kernel).spectral(w), exact, rtol=1e-11, atol=1e-13 * scale)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_the_kernel_is_its_first_term_and_a_step_times_the_rest(kernel):
    operator = GRAPH.operator.toarray()
    rebuilt = kernel.coefficients(1)[0] * np.eye(80) + operator @ shifted(kernel).dense(GRAPH)
    exact = kernel.dense(GRAPH)
    np.testing.assert_allclose(rebuilt, exact, atol=1e-12 * np.abs(exact).max())


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_applied_to_columns_it_is_its_matrix(kernel):
    columns = np.random.default_rng(0).normal(size=(80, 3))
    rest = shifted(kernel)
    exact = rest.dense(GRAPH) @ columns
    np.testing.assert_allclose(rest.apply(GRAPH, columns), exact, atol=1e-8 * max(np.abs(exact).max(), 1e-300))


@pytest.mark.parametrize("tau", [50.0, 60.0, 80.0, 199.0])
def test_wide_kernels_have_a_closed_form_too(tau):
    w = np.array([-0.2, 0.1, 0.24, 0.5, 1.0])
    # (exp(-tau (1 - w)) - exp(-tau)) / w, without cancellation.
    exact = np.exp(-tau) * np.expm1(tau * w) / w
    np.testing.assert_allclose(shifted(DiffusionKernel(tau)).spectral(w), exact, rtol=1e-10, atol=1e-14)


def test_powers_stay_powers_and_lengths_shrink():
    assert shifted(PowerKernel(8)) == PowerKernel(7)
    assert shifted(PowerKernel(1)) == PowerKernel(0)
    assert isinstance(shifted(PowerKernel(0)), ShiftedKernel)
    assert shifted(SeriesKernel((1.0, 0.5, 0.25))).n_terms == 2
    assert shifted(SeriesKernel((1.0,))).n_terms == 1
    assert shifted(DiffusionKernel(2.0)).n_terms is None
    assert shifted(RandomWalkKernel(2.5, 3.0)).convergence == RandomWalkKernel(2.5, 3.0).convergence


def test_signs_are_those_of_the_rest():
    assert shifted(DiffusionKernel(2.0)).series_is_nonnegative
    assert not shifted(SeriesKernel((1.0, -0.5))).series_is_nonnegative
    assert shifted(SeriesKernel((-1.0, 0.5))).series_is_nonnegative  # the negative term is gone


def test_high_precision_coefficients_agree():
    kernel = shifted(DiffusionKernel(3.0))
    np.testing.assert_allclose([float(x) for x in kernel._exact(15)], kernel.coefficients(15), rtol=1e-14)
