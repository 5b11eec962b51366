"""The theorems behind the graphs, as convergence tests with fitted rates."""

import functools

import numpy as np
import pytest
from oracles import columns, diffuse, diffusion_kernel_at_nodes, heat_kernel_at_nodes, relative_error
from scipy.linalg import expm

from manifoldrf import (
    DiffusionKernel,
    Exact,
    FlatTorus,
    Sphere,
    compute_signatures,
    grid_graph,
    heat_graph,
    knn_graph,
)


def slope(sizes, errors):
    """Exponent of the power law through (size, error)."""
    return np.polyfit(np.log(sizes), np.log(errors), 1)[0]


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_rescaled_grid_laplacian_converges_to_the_laplacian_at_second_order(dim):
    """2 dim / h^2 (I - W) f -> -Laplacian f for a smooth periodic f, with an error of order h^2."""
    sides = np.array([8, 12, 16, 24])
    errors = []
    for side in sides:
        graph = grid_graph(int(side), dim)
        wave = np.sin(2 * np.pi * graph.points.sum(axis=1))
        exact = (2 * np.pi) ** 2 * dim * wave
        rescaled = 2 * dim * side**2 * (wave - graph.operator @ wave)
        errors.append(np.abs(rescaled - exact).max())
    # The next term of the expansion is (2 pi h)^2 / 30 of the first: 2 % at the coarsest grid.
    assert slope(1 / sides, errors) == pytest.approx(2.0, abs=0.02)


@pytest.mark.parametrize(("side", "dim"), [(9, 2), (5, 3), (2, 3)])
@pytest.mark.parametrize("tau", [0.5, 7.0])
def test_diffusion_on_a_grid_is_the_kronecker_product_of_its_axes(side, dim, tau):
    whole = expm(tau * (grid_graph(side, dim).operator.toarray() - np.eye(side**dim)))
    axis = expm(tau / dim * (grid_graph(side, 1).operator.toarray() - np.eye(side)))
    product = functools.reduce(np.kron, [axis] * dim)
    np.testing.assert_allclose(whole, product, atol=1e-12)


# Nodes along an axis: fine enough for the leading term, few enough for a second or two.
SIDES = {1: (15, 25, 45, 85), 2: (15, 25, 45, 65), 3: (15, 21, 27, 35)}


def images(at, width):
    """Sum over images of exp(-|x|^2 / width) on the unit torus, at points (n, dim)."""
    shifted = at[:, :, None] + np.arange(-4, 5)
    return np.exp(-(shifted**2) / width).sum(axis=2).prod(axis=1)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_diffusion_on_a_grid_converges_to_the_periodised_gaussian_at_second_order(dim):
    """At the calibrated time; sigma = .2 in exp(-r^2 / (2 sigma^2)) is t = sigma^2 / 2. All columns are alike."""
    t, torus = 0.02, FlatTorus(dim)
    sides = np.array(SIDES[dim])
    errors = []
    for side in sides:
        graph = grid_graph(int(side), dim)
        column = diffuse(graph, graph.steps(t, dim=dim), columns(graph.n_nodes, [0], 1.0))[:, 0] * side**dim
        exact = torus.heat_kernel(graph.points, graph.points[:1], t)[:, 0]
        by_images = images(graph.points, 4 * t) / (4 * np.pi * t) ** (dim / 2)
        np.testing.assert_allclose(exact, by_images, rtol=1e-10)
        errors.append(relative_error(column, exact))
    assert slope(1 / sides, errors) == pytest.approx(2.0, abs=0.1)
    assert errors[-1] < 0.01


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_gaussian_kernel_is_the_integral_of_products_of_features(dim):
    """g = (2 / (pi sigma^2))^{d/4} exp(-|x - w|^2 / sigma^2); sums over a grid are exact for such integrals.

    The spacing sigma / 3 leaves 2 exp(-pi^2 9 / 2) = 1e-19 an axis, the range of 6 sigma exp(-2 25) of the mass.
    """
    sigma, rng = 0.3, np.random.default_rng(dim)
    x, y = rng.uniform(-sigma / 2, sigma / 2, (2, dim))
    axis = np.arange(-18, 19) * sigma / 3
    nodes = np.stack(np.meshgrid(*[axis] * dim, indexing="ij"), axis=-1).reshape(-1, dim)

    def feature(at):
        return (2 / (np.pi * sigma**2)) ** (dim / 4) * np.exp(-((nodes - at) ** 2).sum(axis=1) / sigma**2)

    integral = (feature(x) * feature(y)).sum() * (sigma / 3) ** dim
    assert integral == pytest.approx(np.exp(-((x - y) ** 2).sum() / (2 * sigma**2)), rel=1e-12)


@pytest.mark.parametrize("dim", [1, 2])
def test_signatures_of_grids_converge_to_the_feature_and_their_products_to_the_kernel_at_second_order(dim):
    """(2 pi sigma^2)^{d/4} n^d Phi -> g, and with n^{d/2} inner products tend to the kernel; both periodised."""
    sigma = 0.2
    sides = np.array(SIDES[dim])
    of_feature, of_kernel = [], []
    for side in sides:
        graph = grid_graph(int(side), dim)
        kernel = DiffusionKernel(graph.steps(sigma**2 / 2, dim=dim))
        others = np.arange(side)  # along one axis
        rows = compute_signatures(graph, kernel, others, teacher=Exact(1e-14)).rows
        constant = (2 * np.pi * sigma**2) ** (dim / 4)
        feature = (2 / (np.pi * sigma**2)) ** (dim / 4) * images(graph.points, sigma**2)
        of_feature.append(relative_error(constant * side**dim * rows[0], feature))
        psi = constant * side ** (dim / 2) * rows
        of_kernel.append(relative_error(psi @ psi[0], images(graph.points[others], 2 * sigma**2)))
    assert slope(1 / sides, of_feature) == pytest.approx(2.0, abs=0.1)
    assert slope(1 / sides, of_kernel) == pytest.approx(2.0, abs=0.1)
    assert max(of_feature[-1], of_kernel[-1]) < 0.005


SPHERE = Sphere()


def sphere_errors(n, t=0.02):
    """Errors at nodes of exp(-tau L) with 24 neighbours, with 8 neighbours, and of W^n on the heat graph."""
    points = SPHERE.grid(n)
    nodes = np.arange(0, n, n // 200)
    exact = SPHERE.heat_kernel(points[nodes], points[nodes], t)
    errors = []
    for k in (24, 8):
        graph = knn_graph(points, n_neighbors=k)
        kernel = diffusion_kernel_at_nodes(graph, graph.steps(t, dim=2), SPHERE.volume, nodes)
        errors.append(relative_error(kernel, exact))
    errors.append(
        relative_error(heat_kernel_at_nodes(heat_graph(points, t, volumes=SPHERE.grid_weights(n)), nodes), exact)
    )
    return errors


@pytest.mark.slow
def test_both_kernels_converge_to_the_heat_kernel_of_the_sphere():
    """N = 1000, 4000, 16,000: exp with 24 neighbours 1.3, .094, .030; W^n .0045, .0013, .0005 (no alignment).

    The lattice makes eight neighbours anisotropic: there exp stops at .04, whatever N is.
    """
    sizes = [1000, 4000, 16_000]
    many, few, power = np.transpose([sphere_errors(n) for n in sizes])
    assert slope(sizes, many) < -0.5
    assert slope(sizes, power) < -0.7
    assert power[1] < 0.002
    assert (power < few / 15).all()
    assert 0.02 < few[2] < 0.06
