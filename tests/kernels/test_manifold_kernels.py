"""Kernels in the manifold clock: what they become on each graph, against spectral series of the sphere."""

import functools

import numpy as np
import pytest
from numpy.polynomial.legendre import legval
from oracles import relative_error, sphere_mesh

from manifoldrf import (
    DiffusionKernel,
    Graph,
    HeatKernel,
    MaternKernel,
    Sphere,
    grid_graph,
    heat_graph,
    knn_graph,
    mesh_graph,
)
from manifoldrf.kernels import PowerKernel
from manifoldrf.kernels.named_kernels import GammaMixtureKernel

SPHERE = Sphere()


@functools.cache
def sphere_graph(kind, n=1000, t=0.05):
    if kind == "heat":
        return heat_graph(SPHERE, t=t, n_nodes=n, n_steps=6)
    return mesh_graph(sphere_mesh(n), weights="cotangent") if kind == "cotangent" else knn_graph(SPHERE.grid(n))


def sphere_matern(points, nu, lengthscale):
    """sum_l (2l + 1) / (4 pi) (a + l (l + 1))^-(nu + 1) P_l(cos), with 3000 terms."""
    degree = np.arange(3000)
    rates = 2 * nu / lengthscale**2 + degree * (degree + 1.0)
    return legval(np.clip(points @ points.T, -1, 1), (2 * degree + 1) / (4 * np.pi) * rates ** -(nu + 1))


def errors(kernel, graph, exact):
    """Relative errors of the kernel of the space between some nodes: all pairs, and those off the diagonal."""
    nodes = np.arange(0, graph.n_nodes, graph.n_nodes // 100)
    if graph.weights is not None:
        computed = kernel.matrix(graph, nodes, nodes, per_volume=True)
    else:
        computed = kernel.matrix(graph, nodes, nodes) * graph.n_nodes / SPHERE.volume
    truth, off = exact(graph.points[nodes]), ~np.eye(len(nodes), dtype=bool)
    return relative_error(computed, truth), relative_error(computed[off], truth[off])


@pytest.mark.parametrize(
    ("kind", "nu", "lengthscale", "limits"),
    [  # measured values in the comments
        ("heat", 0.5, 1.0, (0.02, 0.005)),  # .0160, .0026
        ("heat", 2.5, 0.5, (0.009, 0.005)),  # .0065, .0041
        ("cotangent", 1.5, 0.5, (0.025, 0.006)),  # .0193, .0041
        ("knn", 1.5, 0.5, (0.06, 0.05)),  # .046, .039
    ],
)
def test_matern_meets_the_series_of_the_sphere(kind, nu, lengthscale, limits):
    kernel, graph = MaternKernel(nu, lengthscale, clock="manifold"), sphere_graph(kind)
    found = errors(kernel, graph, lambda points: sphere_matern(points, nu, lengthscale))
    assert found[0] < limits[0]
    assert found[1] < limits[1]
    assert kernel.is_positive
    assert (kernel.resolve(graph).modulation(500) >= 0).all()


@pytest.mark.parametrize(("kind", "limit"), [("heat", 0.01), ("cotangent", 0.04), ("knn", 0.08)])
def test_heat_meets_the_series_of_the_sphere(kind, limit):
    exact = errors(HeatKernel(0.05), sphere_graph(kind), lambda points: SPHERE.heat_kernel(points, points, 0.05))
    assert exact[0] < limit


def test_heat_is_a_power_on_a_heat_graph_and_calibrated_diffusion_elsewhere():
    graph = sphere_graph("heat")
    for steps in (2, graph.n_steps, 10):
        t = 0.05 * steps / graph.n_steps
        assert HeatKernel(t * (1 + 1e-9)).resolve(graph) == PowerKernel(steps)  # the same time up to rounding
    for kind in ("knn", "cotangent"):
        graph = sphere_graph(kind)
        kernel = HeatKernel(0.05).resolve(graph, dim=2)
        assert kernel.tau == pytest.approx(graph.steps(0.05, 2), rel=1e-12)
        assert HeatKernel(0.05).resolve(graph) == kernel  # the dimension is estimated
    grid = grid_graph(10, 2)  # a metric tells the dimension: steps of .1, t = tau h^2 / (2 dim)
    assert HeatKernel(0.05).resolve(grid).tau == pytest.approx(20.0, rel=1e-12)
    assert HeatKernel(0.05).resolve(grid, dim=1).tau == pytest.approx(10.0, rel=1e-12)


def test_composites_resolve_by_parts():
    graph = sphere_graph("heat")
    composite = 2 * HeatKernel(0.05) + HeatKernel(0.05) * DiffusionKernel(1.0)
    assert composite.resolve(graph) == 2 * PowerKernel(6) + PowerKernel(6) * DiffusionKernel(1.0)
    assert (HeatKernel(0.05) * HeatKernel(0.1)).root().resolve(graph) == PowerKernel(3) * PowerKernel(6)
    matern = MaternKernel(1.5, 1.0, clock="manifold")
    assert matern.root().resolve(graph) == matern.resolve(graph).root()


@pytest.mark.parametrize("steps", [3.0, 4.7, 11.0])
def test_times_between_even_numbers_of_steps_are_squares_within_the_stated_bound(steps):
    graph = sphere_graph("heat")
    kernel, w = HeatKernel(steps * graph.step_time).resolve(graph), np.linspace(0, 1, 101)
    share = steps / 2 % 1
    # The line between w^k and w^(k+1) is above w^(k+s) by at most s (1 - s) / 2 times log(w)^2 w^k.
    root = np.sqrt(kernel.spectral(w[1:]))
    exact, log = w[1:] ** (steps / 2), np.log(w[1:])
    assert (root >= exact * (1 - 1e-12)).all()  # by convexity
    assert (root <= exact * (1 + share * (1 - share) / 2 * log**2 * w[1:] ** -share + 1e-12)).all()
    assert kernel.is_positive
    with pytest.raises(ValueError, match="`t` must be at least"):
        HeatKernel(1.9 * graph.step_time).resolve(graph)


@pytest.mark.parametrize("kernel", [HeatKernel(0.1), MaternKernel(1.5, 1.0, clock="manifold")], ids=str)
def test_nothing_is_known_before_the_graph(kernel):
    for ask in (kernel.coefficients, kernel.modulation, lambda n: kernel.truncation(), (2 * kernel).coefficients):
        with pytest.raises(ValueError, match="before the graph is known"):
            ask(3)


@pytest.mark.parametrize("kind", ["heat", "knn"])
def test_a_length_scale_below_the_resolution_of_the_steps_is_refused(kind):
    graph = sphere_graph(kind)
    shortest = np.sqrt(2 * 1.5 * graph.time(1.0, 2))
    MaternKernel(1.5, 1.001 * shortest, clock="manifold").resolve(graph)
    with pytest.raises(ValueError, match=rf"`lengthscale` must be at least {shortest:.3g}"):
        MaternKernel(1.5, 0.999 * shortest, clock="manifold").resolve(graph)


def test_a_dimension_given_replaces_that_of_the_graph():
    graph, kernel = sphere_graph("cotangent"), MaternKernel(1.5, 1.0, clock="manifold")
    step, power, w = graph.step_time, 1.5 + 3 / 2, np.linspace(-1, 1, 9)
    exact = step**power * (3.0 * step + 1 - w) ** -power
    np.testing.assert_allclose(kernel.resolve(graph, dim=3).spectral(w), exact)
    np.testing.assert_array_equal(kernel.resolve(graph, dim=2).spectral(w), kernel.resolve(graph).spectral(w))


PATH = Graph.from_affinity([[0, 1, 0], [1, 0, 1], [0, 1, 0]])


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: HeatKernel(1.0).resolve(PATH), ValueError, "give `points`"),
        (lambda: HeatKernel(1.0).resolve(grid_graph(4, 1), dim=0), ValueError, "`dim` must be"),
        (lambda: HeatKernel(1.0).resolve("graph"), TypeError, "`graph` must be a Graph"),
        (lambda: HeatKernel(1.0).resolve(Graph(PATH.affinity, np.zeros((3, 2))), 1), ValueError, "length zero"),
        (lambda: DiffusionKernel(1.0).matrix(PATH, per_volume=True), ValueError, "`per_volume` needs"),
        (lambda: DiffusionKernel(1.0).matrix(PATH, per_volume=1), TypeError, "`per_volume` must be"),
    ],
)
def test_unsuitable_graphs_are_refused(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.slow
@pytest.mark.parametrize(("nu", "limit"), [(0.5, 0.18), (1.5, 0.04)])
def test_matern_has_no_spike_at_nodes_of_small_weight(nu, limit):
    graph = heat_graph(SPHERE.sample(4000, seed=0), t=0.02)
    nodes = np.concatenate([np.argsort(graph.weights)[:50], np.argsort(graph.weights)[-50:]])
    kernel = MaternKernel(nu, 0.5, clock="manifold").matrix(graph, nodes, nodes, per_volume=True)
    # Low by what lies below the resolution of the steps: measured .117-.130 (nu = .5), .005-.024.
    np.testing.assert_allclose(np.diag(kernel), np.diag(sphere_matern(graph.points[nodes], nu, 0.5)), rtol=limit)


@pytest.mark.parametrize("power", [0.3, 0.5, 1.0, 2.0, 7.5, 30.0])
def test_the_gamma_mixture_is_its_series(power):
    kernel = GammaMixtureKernel(0.05, power, 0.01)
    series = kernel.coefficients(5000)  # e^-250 is left of the weights
    assert (series >= 0).all()
    w = np.array([-1.0, -0.3, 0.0, 1e-3, 0.2, 0.26, 0.7, 0.99, 1.0])
    exact = np.polynomial.polynomial.polyval(w, series)
    # Alternating sums are accurate relative to the sum of sizes.
    np.testing.assert_allclose(kernel.spectral(w), exact, rtol=1e-10, atol=1e-12 * exact[-1])
