"""Kernels in the graph clock against matrix functions of scipy, closed forms of the series, roots, and theory."""

import math

import numpy as np
import pytest
from scipy import linalg
from scipy.special import binom, poch
from scipy.stats import nbinom, poisson

from manifoldrf import DiffusionKernel, Graph, HeatKernel, MaternKernel, grid_graph
from manifoldrf.kernels import CosineKernel, PowerKernel, RandomWalkKernel, RegularizedLaplacianKernel, SeriesKernel

UPPER = np.triu(np.random.default_rng(3).random((15, 15)))
GRAPH = Graph.from_affinity(UPPER + UPPER.T)
W, EYE = GRAPH.operator.toarray(), np.eye(15)
L = EYE - W
K = np.arange(40)


@pytest.mark.parametrize(
    ("kernel", "exact"),
    [
        (DiffusionKernel(20.0), linalg.expm(-20.0 * L)),
        (PowerKernel(7), np.linalg.matrix_power(W, 7)),
        (RegularizedLaplacianKernel(3.0, power=2), np.linalg.matrix_power(np.linalg.inv(EYE + 9.0 * L), 2)),
        (RegularizedLaplacianKernel(0.7, power=1.5), linalg.fractional_matrix_power(EYE + 0.49 * L, -1.5)),
        (MaternKernel(2.5, 1.5), linalg.fractional_matrix_power(5 / 2.25 * EYE + L, -2.5)),
        (RandomWalkKernel(2.0, 3), np.linalg.matrix_power(2 * EYE - L, 3)),
        (RandomWalkKernel(2.5, 1.5), linalg.fractional_matrix_power(2.5 * EYE - L, 1.5)),
        (CosineKernel(), linalg.cosm(np.pi / 4 * L)),
        (SeriesKernel([1.0, 0, 0.5, -2]), EYE + W @ W / 2 - 2 * W @ W @ W),
    ],
    ids=str,
)
def test_dense_is_the_matrix_function(kernel, exact):
    # scipy's matrix functions of 15 x 15 matrices lose two or three digits.
    np.testing.assert_allclose(kernel.dense(GRAPH), np.real(exact), rtol=0, atol=1e-12 * np.abs(exact).max())


@pytest.mark.parametrize(
    ("kernel", "alpha", "f"),
    [
        (DiffusionKernel(20.0), poisson.pmf(K, 20), poisson.pmf(K, 10)),
        # q^k (1 - q)^d C(k + d - 1, k) is a negative binomial law.
        (RegularizedLaplacianKernel(3.0, 1.3), nbinom.pmf(K, 1.3, 0.1), nbinom.pmf(K, 0.65, 0.1)),
        (
            MaternKernel(1.5, 2.0),
            1.75 ** (-1.5 - K) * poch(1.5, K) / poch(1.0, K),
            1.75 ** (-0.75 - K) * poch(0.75, K) / poch(1.0, K),
        ),
        (PowerKernel(6), 1.0 * (K == 6), 1.0 * (K == 3)),
        (RandomWalkKernel(3.0, 5), binom(5, K) * 2.0 ** (5 - K), binom(2.5, K) * 2.0 ** (2.5 - K)),
    ],
    ids=str,
)
def test_coefficients_and_modulation_have_the_stated_closed_forms(kernel, alpha, f):
    np.testing.assert_allclose(kernel.coefficients(40), alpha, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(kernel.modulation(40), f, rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("dim", [1, 7])
def test_on_the_hypercube_diffusion_is_a_function_of_the_hamming_distance(dim):
    """W is the mean of dim commuting flips X_i, and exp(s X) = cosh s I + sinh s X."""
    graph, tau = grid_graph(2, dim), 3.0
    bits = np.rint(2 * graph.points)
    hamming = np.abs(bits[:, None] - bits[None]).sum(axis=2)
    exact = np.exp(-tau) * np.cosh(tau / dim) ** dim * np.tanh(tau / dim) ** hamming
    np.testing.assert_allclose(DiffusionKernel(tau).dense(graph), exact, rtol=0, atol=1e-13)


def test_semigroups():
    graph = grid_graph(6, 1)
    for product, whole in [
        (DiffusionKernel(3.0) * DiffusionKernel(4.5), DiffusionKernel(7.5)),
        (PowerKernel(3) * PowerKernel(5), PowerKernel(8)),
        (HeatKernel(0.5) * HeatKernel(0.25), HeatKernel(0.75)),
    ]:
        parts, one = product.resolve(graph), whole.resolve(graph)
        np.testing.assert_allclose(parts.coefficients(50), one.coefficients(50), rtol=1e-12, atol=1e-16)


@pytest.mark.parametrize("tau", [700.0, 1e4])
def test_long_diffusion_neither_overflows_nor_vanishes(tau):
    n = DiffusionKernel(tau).truncation(1e-8)
    assert tau < n < tau + 8 * np.sqrt(tau)
    assert DiffusionKernel(tau).modulation(n).sum() == pytest.approx(1.0, abs=1e-7)


# ------------------------------------------------------------------------------------- roots without a closed form
def deconvolved(alpha):
    """The recursion as it is usually written down."""
    f = [math.sqrt(alpha[0])]
    for k in range(1, len(alpha)):
        f.append((alpha[k] - sum(f[j] * f[k - j] for j in range(1, k))) / (2 * f[0]))
    return np.array(f)


@pytest.mark.parametrize("tau", [5.0, 20.0, 100.0])
def test_roots_of_given_series_are_right_where_deconvolution_is_not(tau):
    alpha, exact = DiffusionKernel(tau).coefficients(400), DiffusionKernel(tau / 2).coefficients(60)
    f = SeriesKernel(alpha).modulation(60)
    np.testing.assert_allclose(f, exact, rtol=0, atol=1e-13 if tau < 10 else 1e-7)  # their sum is 1
    assert SeriesKernel(alpha).is_positive
    if tau == 20.0:  # off by its own size around k = 36, then negative
        assert np.abs(deconvolved(alpha[:60]) / exact - 1)[34:39].max() > 0.4


def test_roots_of_sums_square_to_them():
    kernel = DiffusionKernel(3.0) + MaternKernel(1.0, 3.0)
    f = kernel.modulation(kernel.root().n_terms)
    np.testing.assert_allclose(np.convolve(f, f)[:100], kernel.coefficients(100), rtol=0, atol=1e-14)


@pytest.mark.parametrize("r", [0, 7])
def test_squares_have_their_root_and_leading_zeros_shift_it(r):
    for given in ([1, 2], [1, 1], [3, 0, 1], [2, 3, 1]):  # zeros inside, on and outside the circle
        kernel = SeriesKernel([0] * (2 * r) + np.convolve(given, given).tolist())
        exact = np.concatenate([np.zeros(r), given, np.zeros(5)])
        np.testing.assert_allclose(kernel.modulation(len(exact)), exact, rtol=0, atol=1e-13)
        assert kernel.is_positive


@pytest.mark.parametrize(
    "kernel",
    [
        PowerKernel(7),
        SeriesKernel([0.0, 0.0, 0.0, 1.0, 1.0]),
        PowerKernel(1) * DiffusionKernel(2.0),
        SeriesKernel([-1.0, 2.0]),
        SeriesKernel([1.0, 2.0]),  # a simple zero inside the disc
        SeriesKernel([1e-308, 1.2, -0.3]),
        -1 * PowerKernel(4),
    ],
    ids=str,
)
def test_where_there_is_no_real_root_the_asymmetric_option_is_named(kernel):
    assert not kernel.is_positive
    with pytest.raises(ValueError, match="`asymmetric=True`"):
        kernel.modulation(70)
