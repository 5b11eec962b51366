"""Results are right over wide ranges of precision, times, steps, sizes and units."""

import functools
import re
import warnings

import numpy as np
import pytest
import torch
from oracles import relative_error, sphere_mesh
from reliability.strategies import quietly

from manifoldrf import (
    Counts,
    DiffusionKernel,
    EuclideanSpace,
    Exact,
    FlatTorus,
    Graph,
    HeatGraph,
    HeatKernel,
    HyperbolicSpace,
    ManifoldRandomFeatures,
    ManifoldWarning,
    MaternKernel,
    Sphere,
    TriangleMesh,
    Walks,
    compute_signatures,
    heat_graph,
    knn_graph,
    load,
)
from manifoldrf.kernels import PowerKernel, RegularizedLaplacianKernel
from manifoldrf.torch import linear_attention

EPS = np.finfo(np.float64).eps
EPS32 = np.finfo(np.float32).eps
NODES = Sphere().grid(400)
NEW = Sphere().sample(200, seed=1)
TAUS = [1e-3, 1.0, 1e4]


def features(kernel=None, **settings):
    return ManifoldRandomFeatures(kernel, **{"random_state": 0, "normalize": False, **settings})


def outcome_of(function):
    """The result of a function, or its ValueError."""
    try:
        return function()
    except ValueError as error:
        return error


# ------------------------------------------------------------------------------------------- single precision
@pytest.mark.parametrize(
    "kernel", [HeatKernel(0.1), DiffusionKernel(20.0), MaternKernel(1.5, 0.5, clock="manifold")], ids=str
)
def test_points_in_single_precision_give_the_bits_of_their_conversion(kernel):
    rounded = NODES.astype(np.float32)
    both = rounded, rounded.astype(np.float64)
    graph = None if isinstance(kernel, DiffusionKernel) else HeatGraph(n_nodes=150)
    single, double = (quietly(features(kernel, n_features="all", graph=graph).fit, X) for X in both)
    np.testing.assert_array_equal(single.transform(NEW), double.transform(NEW))
    np.testing.assert_array_equal(single.bound_, double.bound_)
    assert quietly(getattr, single, "error_") == quietly(getattr, double, "error_")


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("spread", [1.0, 1e-12])
def test_attention_in_single_precision_agrees_with_double_precision(causal, spread):
    """Sums of nonnegative products of n terms and of m: each rounding is at most eps of the sum of sizes."""
    n, m = 300, 40
    rng = np.random.default_rng(0)
    phi_q, phi_k = (torch.tensor(spread * rng.random((n, m))) for _ in range(2))
    v = torch.tensor(rng.standard_normal((n, 5)))
    double = linear_attention(phi_q, phi_k, v, causal=causal)
    single = linear_attention(phi_q.float(), phi_k.float(), v.float(), causal=causal)
    assert single.dtype == torch.float32
    size = float(v.abs().max())
    assert float((single.double() - double).abs().max()) < 2 * (n + m + 3) * EPS32 * size


# --------------------------------------------------------------------------------------- kernels in steps, tau
@functools.cache
def small_graph():
    """Forty nodes with weights over two orders of magnitude, and its eigenpairs."""
    rng = np.random.default_rng(3)
    n = 40
    upper = np.triu(10.0 ** rng.uniform(-2, 0, (n, n)) * (rng.random((n, n)) < 0.2), 1)
    ring = np.roll(np.eye(n), 1, axis=1)
    graph = Graph.from_affinity(upper + upper.T + ring + ring.T)
    return graph, *np.linalg.eigh(graph.operator.toarray())


def by_eigenpairs(function):
    """h(W) for a function of the eigenvalues."""
    _, values, vectors = small_graph()
    return (vectors * function(np.minimum(values, 1.0))) @ vectors.T


def lipschitz(kernel):
    """Largest |h| and |h'| on the spectrum: how much a rounding of the eigenvalues changes h."""
    w = np.linspace(-1.0, 1.0, 20_001)
    values = kernel.spectral(w)
    return np.abs(values).max(), np.abs(np.diff(values)).max() / (w[1] - w[0])


def in_steps(tau):
    """Kernels whose walks take about tau steps."""
    kernels = [
        DiffusionKernel(tau),
        RegularizedLaplacianKernel(np.sqrt(tau)),
        RegularizedLaplacianKernel(np.sqrt(tau), 2.5),
        MaternKernel(1.5, np.sqrt(tau)),
        MaternKernel(0.5, np.sqrt(tau)),
        2.5 * DiffusionKernel(tau),
        DiffusionKernel(tau) * PowerKernel(2),
    ]
    return [*kernels, PowerKernel(int(tau) // 2 * 2)] if tau >= 2 else kernels


@pytest.mark.parametrize("tau", TAUS)
def test_kernels_of_a_thousandth_to_ten_thousand_steps_are_their_closed_form(tau):
    graph = small_graph()[0]
    for kernel in in_steps(tau):
        top, slope = lipschitz(kernel)
        exact = by_eigenpairs(kernel.spectral)
        rounding = 40 * EPS * (top + slope)
        assert np.abs(kernel.dense(graph) - exact).max() <= rounding, kernel
        assert np.abs(kernel.apply(graph, np.eye(40)) - exact).max() <= 1e-10 * top + rounding, kernel
        assert np.abs(kernel.matrix(graph, np.arange(40)) - exact).max() <= 1e-10 * top + rounding, kernel


@pytest.mark.parametrize("tau", TAUS)
def test_coefficients_of_up_to_ten_thousand_steps_neither_overflow_nor_vanish(tau):
    """Both series sum to h(1), up to what the truncation leaves out and the rounding of logarithms of about tau."""
    for kernel in in_steps(tau):
        for series in (kernel, kernel.root()):
            n = series.truncation(1e-12)
            alpha = series.coefficients(n)
            assert np.isfinite(alpha).all()
            total = float(series.spectral(np.array([1.0]))[0])
            assert abs(alpha.sum() / total - 1) < 1e-12 + 100 * EPS * max(1.0, n), series
        assert (kernel.modulation(50) >= 0).all()


@pytest.mark.parametrize(("tau", "form"), [(1e-3, "sparse"), (1.0, "sparse"), (1.0, "dense"), (1e4, "dense")])
def test_exact_teachers_are_right_from_a_thousandth_to_ten_thousand_steps(tau, form):
    graph = small_graph()[0]
    for kernel in in_steps(tau):
        top, slope = lipschitz(kernel.root())
        found = compute_signatures(graph, kernel, [0, 7], teacher=Exact(1e-9, form)).rows
        exact = by_eigenpairs(kernel.root().spectral)[[0, 7]]
        rows = found if form == "dense" else found.toarray()
        assert np.abs(rows - exact).max() <= 1e-9 * top + 40 * EPS * (top + slope), kernel


WEIGHTED = Walks(200, survival="matched", transitions="weighted")


@pytest.mark.parametrize(("teacher", "tau"), [(WEIGHTED, 100.0), (Counts(200), 1.0)], ids=str)
def test_random_teachers_are_unbiased_from_a_thousandth_to_ten_thousand_steps(teacher, tau):
    """The mean over seeds of a projection of a row; 4.5 standard errors: a false alarm in 150,000 tests."""
    graph = small_graph()[0]
    kernel = DiffusionKernel(tau)
    exact = by_eigenpairs(kernel.root().spectral)[3]
    direction = np.random.default_rng(5).standard_normal(40)
    n_seeds = 60
    rows = [compute_signatures(graph, kernel, [3], teacher=teacher, seed=s).rows.toarray() for s in range(n_seeds)]
    found = np.vstack(rows) @ direction
    assert np.isfinite(found).all()
    stderr = np.std(found, ddof=1) / np.sqrt(n_seeds) + 1e-9 * np.linalg.norm(direction)
    assert abs(np.mean(found) - exact @ direction) < 4.5 * stderr


@pytest.mark.parametrize("n_walks", [1, 1000])
@pytest.mark.parametrize("kernel", [DiffusionKernel(3e3), RegularizedLaplacianKernel(60.0, 2.0)], ids=str)
def test_the_largest_halting_probability_named_is_accepted(n_walks, kernel):
    """Also if the first term is the largest, where the error text once divided by zero."""
    graph, halting = small_graph()[0], 0.2 if isinstance(kernel, DiffusionKernel) else 0.99
    with pytest.raises(ValueError, match="`p_halt` must be at most") as caught:
        compute_signatures(graph, kernel, [3], teacher=Walks(n_walks, halting), seed=0)
    named = float(re.search(r"at most ([\d.e-]+) for", str(caught.value))[1])
    rows = compute_signatures(graph, kernel, [3], teacher=Walks(n_walks, named), seed=0).rows
    assert np.isfinite(rows.data).all()


# ------------------------------------------------------------------------------------- heat times, exact kernels
SPACES = {
    "S^1": Sphere(1),
    "S^2": Sphere(2),
    "S^3": Sphere(3),
    "T^2": FlatTorus(2),
    "T^3": FlatTorus(3),
    "H^2": HyperbolicSpace(2),
    "H^3": HyperbolicSpace(3),
    "R^3": EuclideanSpace(3),
}


@pytest.mark.parametrize("name", SPACES)
def test_exact_heat_kernels_at_short_times_are_gaussians_in_the_log_domain(name):
    """Within some widths the kernel is (4 pi t)^(-d/2) e^(-r^2/4t) (1 + O(r^2 + t)); far away it is zero."""
    space = SPACES[name]
    x = space.grid(50)[7:8]
    near = space.sample(40, seed=0)
    r = space.distance(x, near)[0]
    for t in (1e-100, 1e-12, 1e-6, 1e-3):
        found = space.heat_kernel(x, np.vstack([x, near]), t)[0]
        assert np.isfinite(found).all()
        assert (found >= 0).all()
        peak = (4 * np.pi * t) ** (-space.dim / 2)
        assert found[0] == pytest.approx(peak, rel=space.dim * t + 1e-10)
        expected = -(r**2) / (4 * t)  # logarithm over the peak
        tiny = expected + np.log(peak) < -750  # beneath the smallest float
        assert (found[1:][tiny] == 0).all()
        seen = (expected + np.log(peak) > -600) & (r < 0.5)
        np.testing.assert_allclose(np.log(found[1:][seen] / peak), expected[seen], rtol=0.05, atol=0.3)
    for t in (50.0, 1e100) if name[0] in "ST" else ():
        np.testing.assert_allclose(space.heat_kernel(x, near, t), 1 / space.volume, rtol=1e-12)


# What is fitted, and its volume; unknown to clouds.
FITTED = {
    "sphere": (Sphere, 4 * np.pi),
    "flat torus": (FlatTorus, 1.0),
    "even cloud": (lambda: Sphere().grid(300), 4 * np.pi),
    "random cloud": (lambda: Sphere().sample(300, seed=2), 4 * np.pi),
    "mesh": (lambda: sphere_mesh(200), sphere_mesh(200).area),
}


def fitted_at(name, t):
    """The heat kernel of a space at a time, on a few hundred nodes; or the error."""
    make = FITTED[name][0]
    options = {"sphere": HeatGraph(n_nodes=400), "flat torus": HeatGraph(n_nodes=100)}.get(name)
    return outcome_of(lambda: features(HeatKernel(t), graph=options).fit(make()))


def points_of(name):
    return (FlatTorus() if name == "flat torus" else Sphere()).sample(50, seed=4)


def test_heat_times_too_short_for_any_nodes_are_called_poor_or_refused():
    """No affordable number of nodes is as close as these kernels are wide."""
    assert isinstance(fitted_at("random cloud", 1e-100), ValueError)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        outcome = fitted_at("sphere", 1e-100)
        rows = outcome.transform(points_of("sphere"))
        assert np.isfinite(rows).all()
        assert (rows >= 0).all()
        assert float(outcome.error_) > 0.5
    assert {"ManifoldWarning"} <= {warning.category.__name__ for warning in caught}  # nodes without neighbours


@pytest.mark.parametrize("name", FITTED)
def test_long_heat_times_give_the_constant_kernel(name):
    """The first eigenfunctions of the sphere are left with 3 e^(-2t) of the constant, at most."""
    with pytest.warns(ManifoldWarning, match="nearly constant"):
        model = fitted_at(name, 20.0)
    found = model.kernel_matrix(points_of(name)) * FITTED[name][1]
    np.testing.assert_allclose(found, found.mean(), rtol=2e-4)
    assert found.mean() == pytest.approx(1.0, abs=0.015)  # the volume of a cloud of 300 points is estimated


@pytest.mark.parametrize("name", FITTED)
def test_heat_times_beyond_any_use_are_refused_with_the_longest(name):
    for t in (1e9, 1e300):
        assert re.search(r"`t` must be at most [\d.]+ here", str(fitted_at(name, t)))


# ------------------------------------------------------------------------------------------ Matern, nu and length
@pytest.mark.parametrize("nu", [0.1, 0.5, 5.0, 20.0])
def test_matern_kernels_in_the_graph_clock_are_their_closed_form_over_a_wide_range(nu):
    for scale in (1e-2, 1.0, 100.0):
        kernel = MaternKernel(nu, scale)
        top, slope = lipschitz(kernel)
        exact = by_eigenpairs(lambda w, c=2 * nu / scale**2: (c + 1 - w) ** -nu)
        found = kernel.apply(small_graph()[0], np.eye(40))
        assert np.abs(found - exact).max() <= 1e-10 * top + 40 * EPS * (top + slope), scale


@pytest.mark.parametrize(("nu", "scale"), [(0.5, 1e-90), (1.5, 1e-90), (0.5, 0.3), (4.0, 0.3), (1.5, 1e90)])
def test_matern_kernels_in_the_manifold_clock_are_finite_or_refused(nu, scale):
    options = HeatGraph(n_nodes=400)

    def fit():
        return quietly(features(MaternKernel(nu, scale, clock="manifold"), graph=options).fit, Sphere())

    outcome = outcome_of(fit)
    if 1e-3 <= scale <= 5.0 or (nu, scale) == (0.5, 1e-90):  # a spike at every node, said to be poor
        rows = quietly(outcome.transform, NODES)  # the nodes themselves: nothing else is within a thousandth
        assert np.isfinite(rows).all()
        assert (rows >= 0).all()
        assert rows.any(axis=1).all()
    else:
        assert re.search(r"`(lengthscale|t|kernel|nu)` must be", str(outcome)), outcome


# ------------------------------------------------------------------------------------------------ numbers of nodes
def check_contract(model, X):
    """Finite, nonnegative, bounded features of the right shape, the same a second time."""
    rows = quietly(model.transform, X)
    assert rows.shape == (len(X), model.n_features_out_)
    dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
    assert np.isfinite(dense).all()
    assert (dense >= 0).all()
    assert (dense <= model.bound_ * (1 + 1e-12)).all()
    np.testing.assert_array_equal(dense, quietly(model.transform, X))


@pytest.mark.parametrize(("n", "dim"), [(3, 2), (5, 1), (5, 3), (30, 2), (200, 3)])
def test_few_to_a_thousand_nodes_are_fitted(n, dim):
    X = Sphere(dim).sample(n, seed=n)
    check_contract(quietly(features().fit, X), X[:50])


@pytest.mark.parametrize("n", [2, 10_000])
@pytest.mark.parametrize("teacher", [Exact(form="dense"), Exact(form="sparse"), Walks(50), Counts(50)], ids=str)
def test_signatures_of_two_to_ten_thousand_nodes(n, teacher):
    graph = quietly(knn_graph, Sphere().sample(n, seed=0), n_neighbors=min(8, n - 1))
    rows = compute_signatures(graph, DiffusionKernel(10.0), [0, n - 1], teacher=teacher, seed=0).rows
    dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
    assert dense.shape == (2, n)
    assert np.isfinite(dense).all()
    # Rows of exp(-tau L / 2) have norms of at most 1; Chebyshev sums may be below zero by their tolerance.
    assert dense.min() >= -1e-9
    if isinstance(teacher, Exact):
        assert (np.linalg.norm(dense, axis=1) <= 1 + 1e-8).all()


@pytest.mark.slow
def test_a_million_nodes_are_fitted():
    n = 1_000_000
    X = Sphere().sample(n, seed=0)
    model = quietly(features(HeatKernel(0.02), sparse_output=True).fit, X)
    check_contract_sparse(model, NEW)
    assert relative_error(model.kernel_matrix(NEW), Sphere().heat_kernel(NEW, NEW, 0.02)) < 0.02
    graph = quietly(knn_graph, X, n_neighbors=8)
    rows = compute_signatures(graph, DiffusionKernel(20.0), [0, n - 1], teacher=Exact(form="sparse")).rows
    assert rows.shape == (2, n)
    assert np.isfinite(rows.data).all()
    assert (rows.data >= 0).all()
    heat = quietly(heat_graph, X, 2e-4, dim=2)
    assert heat.weights.sum() == pytest.approx(4 * np.pi, rel=0.01)
    root = np.sqrt(heat.weights)
    np.testing.assert_allclose(heat.operator @ root, root, rtol=1e-9)


def check_contract_sparse(model, X):
    rows = model.transform(X)
    assert rows.shape == (len(X), model.n_features_out_)
    assert np.isfinite(rows.data).all()
    assert (rows.data >= 0).all()


# ----------------------------------------------------------------------------------------------------- other units
def in_unit(kind, s):
    """Features of one cloud, or mesh, with coordinates times s and heat times times s^2."""
    n = 300
    points = s * (Sphere().sample(n, seed=2) if kind == "random cloud" else Sphere().grid(n))
    space = TriangleMesh(points, sphere_mesh(n).faces) if kind == "mesh" else points
    kernel = DiffusionKernel(20.0) if kind == "steps" else HeatKernel(0.3 * s * s)
    options = HeatGraph(n_nodes=200) if kind == "mesh" else HeatGraph(dim=2)
    return quietly(features(kernel, n_features="all", graph=options).fit, space)


@pytest.mark.parametrize("kind", ["random cloud", "mesh", "steps"])
def test_scaled_coordinates_give_scaled_features(kind):
    """K(s x, s y; s^2 t) = s^-d K(x, y; t): features times s^(d/2) are the same, to rounding of the coordinates.

    Rounding moves points by eps. A step of a thirtieth of the extent has a Gaussian that changes by 100 eps then,
    and some hundred rounds of correction follow: 1e-10 is a hundred times what can be expected. The field of a
    kernel in steps solves local systems with condition numbers of up to 1e5, and is that much less steady.
    """
    scale = 1e-30
    one, other = in_unit(kind, 1.0), in_unit(kind, scale)
    factor = 1.0 if kind == "steps" else scale
    found, expected = (quietly(model.transform, NEW * s) for model, s in ((other, scale), (one, 1.0)))
    tolerance = 1e-7 if kind == "steps" else 1e-10
    np.testing.assert_allclose(found * factor, expected, rtol=0, atol=tolerance * one.bound_.max())
    # Rounding may decide whether half of so few points gets one node more.
    assert float(other.error_) == pytest.approx(float(one.error_), rel=0.01)


@pytest.mark.parametrize("kind", ["even cloud", "mesh"])
def test_a_model_in_any_unit_is_loaded_again(tmp_path, kind):
    """Volumes are then far larger than coordinates may be."""
    scale = 1e30
    model = in_unit(kind, scale)
    again = load(quietly(model.save, tmp_path / "model"))
    np.testing.assert_array_equal(quietly(again.transform, NEW * scale), quietly(model.transform, NEW * scale))
