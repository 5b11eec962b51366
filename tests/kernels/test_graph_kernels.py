"""Kernels in the graph clock against matrix functions of scipy, closed forms of the series, and theory."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import linalg
from scipy.special import binom, poch
from scipy.stats import nbinom, poisson

from manifoldrf import (
    CosineKernel,
    DiffusionKernel,
    GeneralizedAdjacency,
    Graph,
    HeatKernel,
    MaternKernel,
    PowerKernel,
    RandomWalkKernel,
    RegularizedLaplacianKernel,
    SeriesKernel,
    Sphere,
    grid_graph,
    knn_graph,
)
from manifoldrf.kernels.graph_kernels import ShiftedKernel, shifted


def random_graph(n=15, seed=3):
    rng = np.random.default_rng(seed)
    upper = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.5))
    return Graph.from_affinity(upper + upper.T + np.eye(n, k=1) + np.eye(n, k=-1))


GRAPH = random_graph()
W = GRAPH.operator.toarray()
EYE = np.eye(len(W))
L = EYE - W
RTOL = 1e-12  # scipy's matrix functions of 15 x 15 matrices lose two or three digits


def assert_same_matrix(computed, exact):
    np.testing.assert_allclose(computed, exact, rtol=0, atol=RTOL * np.abs(exact).max())


@pytest.mark.parametrize(
    ("kernel", "exact"),
    [
        (DiffusionKernel(0.5), linalg.expm(-0.5 * L)),
        (DiffusionKernel(20.0), linalg.expm(-20.0 * L)),
        (DiffusionKernel(20.0, normalized=False), linalg.expm(20.0 * W)),
        (PowerKernel(0), EYE),
        (PowerKernel(7), np.linalg.matrix_power(W, 7)),
        (RegularizedLaplacianKernel(3.0), np.linalg.inv(EYE + 9.0 * L)),
        (RegularizedLaplacianKernel(3.0, power=2), np.linalg.matrix_power(np.linalg.inv(EYE + 9.0 * L), 2)),
        (RegularizedLaplacianKernel(0.7, power=1.5), linalg.fractional_matrix_power(EYE + 0.49 * L, -1.5)),
        (MaternKernel(1.0, 2.0), np.linalg.inv(0.5 * EYE + L)),
        (MaternKernel(2.5, 1.5), linalg.fractional_matrix_power(5 / 2.25 * EYE + L, -2.5)),
        (RandomWalkKernel(2.0, 3), np.linalg.matrix_power(2 * EYE - L, 3)),
        (RandomWalkKernel(2.5, 1.5), linalg.fractional_matrix_power(2.5 * EYE - L, 1.5)),
        (CosineKernel(), linalg.cosm(np.pi / 4 * L)),
        (SeriesKernel([1.0, 0, Fraction(1, 2), -2]), EYE + W @ W / 2 - 2 * W @ W @ W),
        (DiffusionKernel(3.0) + 0.5 * CosineKernel(), linalg.expm(-3 * L) + 0.5 * linalg.cosm(np.pi / 4 * L)),
        (PowerKernel(2) * MaternKernel(1.0, 2.0), W @ W @ np.linalg.inv(0.5 * EYE + L)),
    ],
    ids=str,
)
def test_dense_is_the_matrix_function(kernel, exact):
    assert_same_matrix(kernel.dense(GRAPH), np.real(exact))


K = np.arange(40)


@pytest.mark.parametrize(
    ("kernel", "alpha", "f"),
    [
        (DiffusionKernel(20.0), poisson.pmf(K, 20), poisson.pmf(K, 10)),
        (
            DiffusionKernel(2.0, normalized=False),
            [2.0**k / math.factorial(k) for k in K],
            [1 / math.factorial(k) for k in K],
        ),
        # q^k (1 - q)^d C(k + d - 1, k) is a negative binomial law.
        (RegularizedLaplacianKernel(3.0, 2), nbinom.pmf(K, 2, 0.1), nbinom.pmf(K, 1, 0.1)),
        (RegularizedLaplacianKernel(3.0, 1.3), nbinom.pmf(K, 1.3, 0.1), nbinom.pmf(K, 0.65, 0.1)),
        (
            MaternKernel(1.5, 2.0),
            1.75 ** (-1.5 - K) * poch(1.5, K) / poch(1.0, K),
            1.75 ** (-0.75 - K) * poch(0.75, K) / poch(1.0, K),
        ),
        (PowerKernel(6), 1.0 * (K == 6), 1.0 * (K == 3)),
        (RandomWalkKernel(3.0, 6), binom(6, K) * 2.0 ** (6 - K), binom(3, K) * 2.0 ** (3 - K)),
        (RandomWalkKernel(3.0, 5), binom(5, K) * 2.0 ** (5 - K), binom(2.5, K) * 2.0 ** (2.5 - K)),
    ],
    ids=str,
)
def test_coefficients_and_modulation_have_the_stated_closed_forms(kernel, alpha, f):
    np.testing.assert_allclose(kernel.coefficients(40), alpha, rtol=1e-12, atol=1e-300)
    np.testing.assert_allclose(kernel.modulation(40), f, rtol=1e-12, atol=1e-300)


def test_the_signs_of_the_cosine_come_in_pairs():
    alpha = CosineKernel().coefficients(9)
    np.testing.assert_array_equal(np.sign(alpha), [1, 1, -1, -1, 1, 1, -1, -1, 1])
    sizes = [math.sqrt(0.5) * (np.pi / 4) ** k / math.factorial(k) for k in range(9)]
    np.testing.assert_allclose(np.abs(alpha), sizes, rtol=1e-13)


@pytest.mark.parametrize("tau", [0.5, 3.0, 20.0])
@pytest.mark.parametrize("dim", [1, 4, 7])
def test_on_the_hypercube_diffusion_is_a_function_of_the_hamming_distance(tau, dim):
    """W is the mean of dim commuting flips X_i, and exp(s X) = cosh s I + sinh s X."""
    graph = grid_graph(2, dim)
    bits = np.rint(2 * graph.points)
    hamming = np.abs(bits[:, None] - bits[None]).sum(axis=2)
    s = tau / dim
    exact = np.exp(-tau) * np.cosh(s) ** dim * np.tanh(s) ** hamming
    assert_same_matrix(DiffusionKernel(tau).dense(graph), exact)


@pytest.mark.parametrize("tau", [1.0, 15.0])
def test_on_a_wrap_around_grid_diffusion_factorises_over_the_axes(tau):
    axis = DiffusionKernel(tau / 3).dense(grid_graph(5, 1))  # an axis is chosen at every third step
    assert_same_matrix(DiffusionKernel(tau).dense(grid_graph(5, 3)), np.kron(np.kron(axis, axis), axis))


@pytest.mark.parametrize(
    ("product", "whole"),
    [
        (DiffusionKernel(3.0) * DiffusionKernel(4.5), DiffusionKernel(7.5)),
        (PowerKernel(3) * PowerKernel(5), PowerKernel(8)),
        (
            RegularizedLaplacianKernel(2.0, 0.5) * RegularizedLaplacianKernel(2.0, 1.5),
            RegularizedLaplacianKernel(2.0, 2.0),
        ),
        (RandomWalkKernel(2.5, 1) * RandomWalkKernel(2.5, 1.5), RandomWalkKernel(2.5, 2.5)),
        (HeatKernel(0.5) * HeatKernel(0.25), HeatKernel(0.75)),
    ],
    ids=str,
)
def test_semigroups(product, whole):
    graph = grid_graph(6, 1)
    assert_same_matrix(product.dense(graph), whole.dense(graph))
    parts, one = product.resolve(graph), whole.resolve(graph)
    np.testing.assert_allclose(parts.coefficients(50), one.coefficients(50), rtol=1e-12, atol=1e-16)
    np.testing.assert_allclose(parts.modulation(50), one.modulation(50), rtol=1e-12, atol=1e-16)


def test_the_random_walk_normalisation_is_exact():
    walk, P = GeneralizedAdjacency.random_walk(GRAPH), GRAPH.affinity.toarray() / GRAPH.degrees[:, None]
    X = np.random.default_rng(0).standard_normal((15, 3))
    for kernel, exact in [
        (DiffusionKernel(3.0), linalg.expm(-3.0 * (EYE - P))),
        (RegularizedLaplacianKernel(2.0), np.linalg.inv(EYE + 4 * (EYE - P))),
        (PowerKernel(5), np.linalg.matrix_power(P, 5)),
        (RandomWalkKernel(2.0, 1.5), linalg.fractional_matrix_power(EYE + P, 1.5)),  # converges up to radius 1
    ]:
        assert_same_matrix(kernel.dense(walk), exact)
        np.testing.assert_allclose(kernel.apply(walk, X), exact @ X, rtol=0, atol=1e-9)
        np.testing.assert_allclose(kernel.matrix(walk, [1, 2], [3]), exact[1:3, [3]], rtol=0, atol=1e-9)


@pytest.mark.parametrize("t", [0.05, 1.0])
def test_the_combinatorial_laplacian_is_exact(t):
    exact = linalg.expm(-t * (np.diag(GRAPH.degrees) - GRAPH.affinity.toarray()))
    adjacency = GeneralizedAdjacency.combinatorial(GRAPH)
    for kernel in (HeatKernel(t), DiffusionKernel(t * GRAPH.degrees.max())):
        assert_same_matrix(kernel.dense(adjacency), exact)
        np.testing.assert_allclose(kernel.matrix(adjacency), exact, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: DiffusionKernel(-1.0), ValueError, r"`tau` must be a number in \[0, inf\)\. Got -1\.0\."),
        (lambda: DiffusionKernel(np.nan), ValueError, r"`tau` must be .*Got nan\."),
        (lambda: DiffusionKernel(np.inf), ValueError, r"`tau` must be .*Got inf\."),
        (lambda: DiffusionKernel(True), TypeError, r"`tau` must be .*Got True\."),
        (lambda: DiffusionKernel("5"), TypeError, r"`tau` must be .*Got '5'\."),
        (lambda: DiffusionKernel(None), TypeError, r"`tau` must be .*Got None\."),
        (lambda: DiffusionKernel(1.0, 1), TypeError, r"`normalized` must be True or False\. Got 1\."),
        (
            lambda: DiffusionKernel(701.0, normalized=False),
            ValueError,
            r"`tau` must be at most 700 with normalized=False, or exp\(tau\) overflows\. Got 701\.0\.",
        ),
        (lambda: PowerKernel(-1), ValueError, r"`n` must be an integer in \[0, 9007199254740992\]\. Got -1\."),
        (lambda: PowerKernel(2.0), TypeError, r"`n` must be an integer in \[0, 9007199254740992\]\. Got 2\.0\."),
        (lambda: PowerKernel(True), TypeError, r"`n` must be an integer"),
        (lambda: RegularizedLaplacianKernel(-1.0), ValueError, r"`scale` must be a number in \[0, 1e\+150\]"),
        (lambda: RegularizedLaplacianKernel(1e200), ValueError, r"`scale` must be a number in \[0, 1e\+150\]"),
        (
            lambda: RegularizedLaplacianKernel(1.0, 0),
            ValueError,
            r"`power` must be a number in \[1e-300, 1e\+06\]\. Got 0\.",
        ),
        (lambda: RegularizedLaplacianKernel(1.0, "2"), TypeError, r"`power` must be a number in"),
        (lambda: RandomWalkKernel(1.9, 2), ValueError, r"`a` must be a number in \[2, inf\)\. Got 1\.9\."),
        (lambda: RandomWalkKernel(2.0, 0), ValueError, r"`p` must be a number in \(0, inf\)\. Got 0\."),
        (
            lambda: RandomWalkKernel(2.0, 1011),
            ValueError,
            r"`p` must be at most 1010 for a = 2, or a\^p overflows\. Got 1011",
        ),
        (lambda: RegularizedLaplacianKernel(1.0, 1e7), ValueError, r"`power` must be a number in .* Got 1"),
        (lambda: MaternKernel(0.0, 1.0), ValueError, r"`nu` must be a number in \[1e-300, 1e\+06\]\. Got 0\.0\."),
        (lambda: MaternKernel(1e-299, 100.0), ValueError, r"`lengthscale` must be at most .* Got 100"),
        (lambda: SeriesKernel([1e308, 1e308]), ValueError, r"`alpha` must be of a sum that stays finite\. Got"),
        (lambda: SeriesKernel(b"12"), TypeError, r"`alpha` must be a sequence of numbers\. Got bytes\."),
        (lambda: MaternKernel(1.0, 0.0), ValueError, r"`lengthscale` must be a number in \[1e-100, 1e\+100\]"),
        (lambda: MaternKernel(1.0, [1.0]), TypeError, r"`lengthscale` must be a number in"),
        (lambda: MaternKernel(50.0, 1e10), ValueError, r"`nu` must be at most \d+, or .* overflows\. Got 50\.0\."),
        (
            lambda: MaternKernel(1.0, 1.0, "steps"),
            ValueError,
            r"`clock` must be one of 'graph', 'manifold'\. Got 'steps'\.",
        ),
        (lambda: MaternKernel(1.0, 1.0, None), ValueError, r"`clock` must be one of .*Got None\."),
        (lambda: HeatKernel(0.0), ValueError, r"`t` must be a number in \(0, inf\)\. Got 0\.0\."),
        (lambda: HeatKernel("1"), TypeError, r"`t` must be a number in \(0, inf\)\. Got '1'\."),
        (
            lambda: DiffusionKernel(1.0).coefficients(0),
            ValueError,
            r"`n` must be an integer in \[1, inf\)\. Got 0\.",
        ),
        (lambda: DiffusionKernel(1.0).coefficients(2.5), TypeError, r"`n` must be an integer in \[1, inf\)"),
        (lambda: DiffusionKernel(1.0).modulation("3"), TypeError, r"`n` must be an integer in \[1, inf\)"),
        (lambda: DiffusionKernel(1.0).root(0), ValueError, r"`order` must be an integer in \[1, inf\)\. Got 0\."),
        (lambda: DiffusionKernel(1.0).truncation(0.0), ValueError, r"`tol` must be a number in \[1e-14, 1\)"),
        (lambda: DiffusionKernel(1.0).truncation(1.0), ValueError, r"`tol` must be a number in \[1e-14, 1\)"),
        (
            lambda: DiffusionKernel(1.0).truncation(1e-6, -1.0),
            ValueError,
            r"`radius` must be a number in \[0, inf\)",
        ),
        (lambda: DiffusionKernel(1.0).truncation(1e-6, "1"), TypeError, r"`radius` must be a number in \[0, inf\)"),
        (
            lambda: MaternKernel(1.0, 2.0).truncation(1e-6, 1.5),
            ValueError,
            r"`graph` must be of spectral radius below 1\.5 for MaternKernel.*Got 1\.5\.",
        ),
    ],
)
def test_bad_values_name_argument_rule_and_value(make, kind, message):
    with pytest.raises(kind, match=message):
        make()


@pytest.mark.parametrize("number", [Fraction(5, 2), np.float32(2.5), np.float64(2.5)], ids=repr)
def test_numbers_of_every_kind_are_kept_as_floats(number):
    for kind in (DiffusionKernel, RegularizedLaplacianKernel, HeatKernel):
        assert repr(kind(number)) == repr(kind(2.5))
    for kind in (RandomWalkKernel, MaternKernel):
        assert repr(kind(number, number)) == repr(kind(2.5, 2.5))
    third = np.float32(1 / 3)  # squared in single precision it would be off by 1e-8
    np.testing.assert_array_equal(
        RegularizedLaplacianKernel(third).coefficients(5), RegularizedLaplacianKernel(float(third)).coefficients(5)
    )


@pytest.mark.parametrize(
    "kernel", [DiffusionKernel(1e6), RegularizedLaplacianKernel(1e4), RandomWalkKernel(2.0, 0.5)], ids=str
)
def test_series_that_are_too_long_are_refused_with_a_remedy(kernel):
    with pytest.raises(ValueError, match=r"within 1048576 terms for `tol` = 1e-10\. Take a larger `tol`"):
        kernel.truncation()


@pytest.mark.parametrize("tau", [700.0, 1e4])
def test_long_diffusion_neither_overflows_nor_vanishes(tau):
    kernel = DiffusionKernel(tau)
    n = kernel.truncation(1e-8)
    assert tau < n < tau + 8 * np.sqrt(tau)
    for series in (kernel.coefficients(n), kernel.modulation(n)):
        assert series.sum() == pytest.approx(1.0, abs=1e-7)  # gammaln of 1e4 is good to 1e-11


def test_a_scale_whose_square_vanishes_converges_everywhere():
    # A property found it: the radius of convergence overflowed.
    assert RegularizedLaplacianKernel(1e-200).convergence == np.inf


def test_a_series_that_starts_next_to_nothing_has_no_nonnegative_root():
    # Its root grows beyond doubles within 32 terms.
    assert not SeriesKernel([1e-308, 1.2, -0.3]).is_positive


# ------------------------------------------------------ a series without its first term: h(W) = alpha_0 + W S
SPHERE_GRAPH = knn_graph(Sphere().grid(80))
TO_SHIFT = [
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


@pytest.mark.parametrize("kernel", TO_SHIFT, ids=str)
def test_coefficients_move_by_one(kernel):
    np.testing.assert_array_equal(shifted(kernel).coefficients(20), kernel.coefficients(21)[1:])


@pytest.mark.parametrize("kernel", TO_SHIFT, ids=str)
def test_the_closed_form_is_the_series(kernel):
    w = np.concatenate([np.linspace(-0.9, 0.9, 37), [-0.25, 0.25, 1e-12, -1e-12, 0.0]])
    exact = np.polynomial.polynomial.polyval(w, kernel.coefficients(400)[1:])  # .9^400 is 5e-19
    # Cancellation in (h - alpha_0) / w costs at most 1 / .25 in digits.
    scale = np.abs(kernel.spectral(np.array([1.0]))).max() + np.abs(kernel.coefficients(1)).max()
    np.testing.assert_allclose(shifted(kernel).spectral(w), exact, rtol=1e-11, atol=1e-13 * scale)


@pytest.mark.parametrize("kernel", TO_SHIFT, ids=str)
def test_the_kernel_is_its_first_term_and_a_step_times_the_rest(kernel):
    operator = SPHERE_GRAPH.operator.toarray()
    rebuilt = kernel.coefficients(1)[0] * np.eye(80) + operator @ shifted(kernel).dense(SPHERE_GRAPH)
    exact = kernel.dense(SPHERE_GRAPH)
    np.testing.assert_allclose(rebuilt, exact, atol=1e-12 * np.abs(exact).max())


@pytest.mark.parametrize("kernel", TO_SHIFT, ids=str)
def test_applied_to_columns_it_is_its_matrix(kernel):
    columns = np.random.default_rng(0).normal(size=(80, 3))
    rest = shifted(kernel)
    exact = rest.dense(SPHERE_GRAPH) @ columns
    np.testing.assert_allclose(
        rest.apply(SPHERE_GRAPH, columns), exact, atol=1e-8 * max(np.abs(exact).max(), 1e-300)
    )


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
