"""Roots of series: the trap of deconvolution in doubles, leading zeros, signs, and how positivity is decided."""

import decimal
import math
import time
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import binom

from manifoldrf import (
    CosineKernel,
    DiffusionKernel,
    Graph,
    HeatKernel,
    MaternKernel,
    PowerKernel,
    RandomWalkKernel,
    RegularizedLaplacianKernel,
    SeriesKernel,
    Sphere,
    grid_graph,
    heat_graph,
)
from manifoldrf.kernels.abstract_kernel import ProductKernel, RootKernel
from manifoldrf.kernels.manifold_kernels import GammaMixtureKernel
from manifoldrf.kernels.roots import pi, series_root

TAU = 20
EXACT = DiffusionKernel(TAU / 2, normalized=False)  # the closed form of f
CYCLE = grid_graph(12, 1)


def deconvolved_in_doubles(alpha):
    """The recursion as it is usually written down."""
    f = [math.sqrt(alpha[0])]
    for k in range(1, len(alpha)):
        f.append((alpha[k] - sum(f[j] * f[k - j] for j in range(1, k))) / (2 * f[0]))
    return np.array(f)


def series_of_exponential(n, number=Fraction):
    return [number(Fraction(TAU) ** k / math.factorial(k)) for k in range(n)]


def test_deconvolution_in_doubles_is_a_trap():
    """Off by 1e-6 at k = 23, by its own size around k = 36, then negative; where exactly is up to rounding."""
    f, exact = deconvolved_in_doubles(series_of_exponential(61, float)), EXACT.coefficients(61)
    error = np.abs(f / exact - 1)
    assert 1e-7 < error[23] < 1e-5
    assert error[34:39].max() > 0.4
    assert (f[33:42] < 0).any()


def test_closed_forms_and_exact_fractions_avoid_the_trap():
    truth = [float(Fraction(TAU // 2) ** k / math.factorial(k)) for k in range(61)]
    for kernel in (DiffusionKernel(TAU, normalized=False), SeriesKernel(series_of_exponential(61))):
        np.testing.assert_allclose(kernel.modulation(61), truth, rtol=1e-12)


def test_no_algorithm_can_repair_coefficients_rounded_to_doubles():
    """f is the exact root of the doubles given, and still off from that of the series meant, growing like 3^k."""
    alpha = series_of_exponential(61, float)
    f, exact = series_root(SeriesKernel(alpha)._exact, 2, 61), EXACT.coefficients(61)
    convolved = [sum(Fraction(f[j]) * Fraction(f[k - j]) for j in range(k + 1)) for k in range(61)]
    # f itself is rounded once: 2^-53 of every product.
    sizes = np.convolve(np.abs(f), np.abs(f))[:61]
    assert (np.abs([float(c - Fraction(a)) for c, a in zip(convolved, alpha, strict=True)]) <= 3e-16 * sizes).all()
    k = np.arange(10, 31)
    slope = np.polyfit(k, np.log(np.abs(f[k] / exact[k] - 1)), 1)[0]
    assert 2.5 < np.exp(slope) < 4.5


def test_the_kernel_of_a_modulation_from_doubles_is_right_all_the_same():
    f = SeriesKernel(DiffusionKernel(TAU).coefficients(61)).modulation(50)  # f_50 is negligible
    assert (f >= 0).all()  # negative entries are rounding here, and dropped
    features = SeriesKernel(f).dense(CYCLE)
    np.testing.assert_allclose(features @ features.T, DiffusionKernel(TAU).dense(CYCLE), rtol=0, atol=1e-7)


@pytest.mark.parametrize("r", [0, 1, 2, 7])
def test_an_even_number_of_leading_zeros_shifts_the_modulation(r):
    f = SeriesKernel([0] * (2 * r) + [1, 4, 4]).modulation(12)
    np.testing.assert_array_equal(f, [0] * r + [1, 2] + [0] * (10 - r))
    np.testing.assert_array_equal(PowerKernel(2 * r).modulation(12), 1.0 * (np.arange(12) == r))


ODD = [
    PowerKernel(1),
    PowerKernel(7),
    SeriesKernel([0, 1]),
    SeriesKernel([0.0, 0.0, 0.0, 1.0, 1.0]),
    PowerKernel(3) + PowerKernel(5),
    PowerKernel(1) * DiffusionKernel(2.0),
    SeriesKernel([0] * 65 + [1]),
]
NEGATIVE = [SeriesKernel([-1.0, 2.0]), -2 * DiffusionKernel(1.0), SeriesKernel([0, 0, -1]), -1 * PowerKernel(4)]


@pytest.mark.parametrize("kernel", ODD + NEGATIVE, ids=str)
def test_where_there_is_no_real_root_the_asymmetric_option_is_named(kernel):
    with pytest.raises(ValueError, match=r"has no (real )?root of order 2.*The asymmetric pair.*`asymmetric=True`"):
        kernel.modulation(70)
    assert not kernel.is_positive


WITH_NEGATIVE_ENTRIES = [
    RandomWalkKernel(2.0, 1),
    RandomWalkKernel(2.0, 3),
    RandomWalkKernel(3.0, 2.5),
    CosineKernel(),
    3 * CosineKernel(),
    CosineKernel() + CosineKernel(),
    CosineKernel() * CosineKernel(),
    DiffusionKernel(5.0) + DiffusionKernel(20.0),
    2 * (DiffusionKernel(5.0) + DiffusionKernel(20.0)),
    (DiffusionKernel(5.0) + DiffusionKernel(20.0)) * DiffusionKernel(1.0),
    SeriesKernel([1.0, 0.5]),
    SeriesKernel([1, 2, 1, 1]),
]
NONNEGATIVE = [
    DiffusionKernel(1e6),
    PowerKernel(10**6),
    RegularizedLaplacianKernel(1e3, 0.1),
    MaternKernel(0.2, 1e3),
    MaternKernel(1.5, 1.0, clock="manifold"),
    HeatKernel(1e-3),
    2 * HeatKernel(0.1),
    RandomWalkKernel(2.0, 200),
    DiffusionKernel(0.5) + DiffusionKernel(1.0),
    DiffusionKernel(4.0) + DiffusionKernel(4.0),
    SeriesKernel(series_of_exponential(120)),
    (DiffusionKernel(5.0) + DiffusionKernel(20.0)) * (DiffusionKernel(5.0) + DiffusionKernel(20.0)),
    0.0 * CosineKernel(),
]


@pytest.mark.parametrize(
    ("kernel", "positive"),
    [(kernel, False) for kernel in ODD + NEGATIVE + WITH_NEGATIVE_ENTRIES]
    + [(kernel, True) for kernel in NONNEGATIVE],
    ids=lambda value: repr(value)[:60],
)
def test_positivity_is_decided_rightly_and_quickly(kernel, positive):
    start = time.process_time()  # not of the clock: a busy machine is not the kernel's fault
    assert kernel.is_positive is positive
    assert time.process_time() - start < 2  # .3 s at most


@pytest.mark.parametrize("kernel", WITH_NEGATIVE_ENTRIES, ids=str)
def test_entries_said_to_be_negative_are(kernel):
    assert kernel.modulation(120).min() < 0


def test_positivity_of_sums_in_the_manifold_clock_is_left_to_the_graph():
    kernel = HeatKernel(0.05) + HeatKernel(0.05)
    with pytest.raises(ValueError, match=r"has no coefficients before the graph is known: kernel\.resolve"):
        _ = kernel.is_positive
    assert kernel.resolve(CYCLE, dim=1).is_positive


def test_rounding_does_not_spoil_positivity_but_true_negatives_do():
    """alpha = f * f in doubles, f = (1, 1/3, 0, 1/7); a true f_2 of -1e-4 is kept."""
    f = np.array([1, 1 / 3, 0, 1 / 7])
    kernel = SeriesKernel(np.convolve(f, f))
    assert kernel.is_positive
    np.testing.assert_allclose(kernel.modulation(9), np.append(f, np.zeros(5)), rtol=0, atol=1e-15)
    assert (kernel.modulation(40) >= 0).all()
    f[2] = -1e-4
    assert not SeriesKernel(np.convolve(f, f)).is_positive
    assert SeriesKernel(np.convolve(f, f)).modulation(4)[2] == pytest.approx(-1e-4, rel=1e-9)


@pytest.mark.parametrize("order", [2, 3, 4, 5])
@pytest.mark.parametrize(
    "kernel",
    [
        DiffusionKernel(6.0),
        RegularizedLaplacianKernel(1.2, 2.0),
        MaternKernel(1.5, 1.0),
        PowerKernel(60),
        8.0 * DiffusionKernel(1.0),
        RandomWalkKernel(3.5, 2),
        DiffusionKernel(1.0) + DiffusionKernel(1.0),
        SeriesKernel([Fraction(3), 1, Fraction(1, 7)]),
    ],
    ids=str,
)
def test_roots_of_every_order_multiply_to_the_kernel(kernel, order):
    root = kernel.root(order)
    np.testing.assert_allclose(
        np.linalg.matrix_power(root.dense(CYCLE), order), kernel.dense(CYCLE), rtol=0, atol=1e-11
    )
    product = root.coefficients(20)
    for _ in range(order - 1):
        product = np.convolve(product, root.coefficients(20))[:20]
    np.testing.assert_allclose(product, kernel.coefficients(20), rtol=1e-10, atol=1e-14)


def test_negative_entries_below_a_millionth_are_dropped():
    """The cube root of this sum has a few, of 1e-10 in all; the features stay nonnegative."""
    kernel = DiffusionKernel(1.0) + DiffusionKernel(1.5)
    root = kernel.root(3)
    assert series_root(kernel._exact, 3, 30).min() < 0
    assert root.coefficients(30).min() == 0
    cube = np.linalg.matrix_power(root.dense(CYCLE), 3)
    np.testing.assert_allclose(cube, kernel.dense(CYCLE), rtol=0, atol=1e-9)  # 2e-10 measured, 6e-6 promised


def test_roots_of_roots_and_of_negative_series():
    kernel = SeriesKernel([1, Fraction(1, 2)])
    assert kernel.root().root(3) == RootKernel(kernel, 6)
    np.testing.assert_allclose(kernel.root(6).coefficients(30), binom(1 / 6, np.arange(30)) / 2.0 ** np.arange(30))
    np.testing.assert_array_equal(SeriesKernel([-8]).root(3).coefficients(2), [-2, 0])
    assert kernel.root(1).coefficients(3).tolist() == [1, 0.5, 0]


def test_the_root_of_a_square_is_its_factor():
    factor = CosineKernel() + PowerKernel(1)
    assert (factor * factor).root() == factor


def test_a_root_without_a_closed_form_has_a_limit():
    kernel = CosineKernel() + PowerKernel(2)
    with pytest.raises(ValueError, match=r"`n` must be at most 512 for a root without a closed form\. Got 513\."):
        kernel.modulation(513)
    with pytest.raises(ValueError, match=r"is not known to end within 512 terms"):
        SeriesKernel([1, 2, 1, 1]).root().truncation()  # a zero inside the unit circle: no convergence


def test_half_the_steps_of_a_heat_graph_may_be_odd():
    graph = heat_graph(Sphere().grid(80), t=0.6)
    assert graph.n_steps == 6
    np.testing.assert_array_equal(HeatKernel(0.6).root().dense(graph), PowerKernel(3).dense(graph))
    with pytest.raises(ValueError, match="before the graph is known"):
        HeatKernel(0.6).modulation(3)


def test_isolated_nodes_see_the_first_coefficient_only():
    with pytest.warns(UserWarning, match="isolated"):
        graph = Graph.from_affinity(np.zeros((2, 2)))
    for kernel in (DiffusionKernel(2.0), CosineKernel().root(), DiffusionKernel(1.0) + PowerKernel(2)):
        np.testing.assert_allclose(kernel.dense(graph), kernel.coefficients(1) * np.eye(2), rtol=1e-12, atol=0)


@pytest.mark.parametrize("digits", [30, 300])
def test_pi_to_any_number_of_digits(digits):
    with decimal.localcontext() as context:
        context.prec = digits
        computed = pi()
    assert str(computed)[:29] == "3.141592653589793238462643383"
    with decimal.localcontext() as context:
        context.prec = digits + 20
        sine = term = computed  # sin(pi - e) = e
        for k in range(1, 200):
            term *= -(computed**2) / ((2 * k) * (2 * k + 1))
            sine += term
        assert abs(sine) < Decimal(10) ** (2 - digits)


@pytest.mark.parametrize(
    "kernel",
    [
        MaternKernel(1.0, 20.0) + MaternKernel(1.0, 20.0),
        DiffusionKernel(400.0) + DiffusionKernel(400.0),
        PowerKernel(1300) + PowerKernel(1300),
        MaternKernel(1.5, 300.0) * DiffusionKernel(2.0),
        ProductKernel(*2 * [GammaMixtureKernel(1e-6, 1.25, 0.001)]),
    ],
    ids=str,
)
def test_long_series_with_closed_roots_are_positive_at_once(kernel):
    assert kernel.is_positive
