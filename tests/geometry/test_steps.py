"""The time and the mass of a Gaussian step along a curved metric, and heat graphs that use them."""

import warnings

import numpy as np
import pytest
from scipy.integrate import quad

from manifoldrf import EuclideanSpace, FlatTorus, HyperbolicSpace, Sphere
from manifoldrf.geometry.graphs import GraphWarning
from manifoldrf.geometry.heat import _calibrated, _check_space, heat_graph, step_reach
from manifoldrf.geometry.model_spaces import gaussian_step
from manifoldrf.kernels.manifold_kernels import HeatKernel
from manifoldrf.metrics import align, relative_error
from reproduction.exhaustion import graded_points


@pytest.mark.parametrize("s2", [0.01, 0.3, 1.0])
def test_a_gaussian_step_in_three_dimensions_has_its_closed_form(s2):
    """On H^3 all integrals are elementary: E cosh d = e^{s2 / 4} (1 + e^s2) / 2."""
    mass, time = gaussian_step(s2, 8 * np.sqrt(s2) + s2, 3, -1.0)
    assert mass == pytest.approx(np.pi**1.5 * np.sqrt(s2) * np.expm1(s2), rel=1e-10)
    assert time == pytest.approx((s2 / 4 + np.log1p(np.expm1(s2) / 2)) / 3, rel=1e-10)


@pytest.mark.parametrize("dim", [2, 3, 5])
@pytest.mark.parametrize("curvature", [-1.0, 1.0, 0.25])
def test_it_is_later_than_in_flat_space_by_the_curvature(dim, curvature):
    for s2 in (0.004, 0.04):
        mass, time = gaussian_step(s2, 7 * np.sqrt(s2), dim, curvature)
        # The next term is of the order s2^2; its coefficient was below 1.
        assert time / (s2 / 4) - 1 == pytest.approx(-(dim - 1) * curvature * s2 / 12, abs=s2**2)
        sine = np.sin if curvature > 0 else np.sinh
        root = np.sqrt(abs(curvature))
        area = [2 * np.pi, 4 * np.pi, 0, 8 * np.pi**2 / 3][dim - 2]
        whole = quad(lambda r: (sine(root * r) / root) ** (dim - 1) * np.exp(-(r**2) / s2), 0, 7 * np.sqrt(s2))[0]  # noqa: B023
        assert mass == pytest.approx(area * whole, rel=1e-9)


@pytest.mark.parametrize("metric", [HyperbolicSpace(2), HyperbolicSpace(3), Sphere(2, 1.5), FlatTorus(2)], ids=str)
def test_the_bandwidth_of_a_heat_graph_is_the_one_whose_step_lasts(metric):
    space = _check_space(metric.grid(100), "auto", None, metric, 1)
    s2, mass = _calibrated(space, 0.02)
    assert metric._gaussian_step(s2, step_reach(s2, metric.dim)) == pytest.approx((mass, 0.02), rel=1e-11)
    assert (s2 == 0.08) == isinstance(metric, FlatTorus)


@pytest.mark.parametrize(("dim", "n", "within"), [(2, 500, 0.02), (3, 1500, 0.05)])
def test_a_few_wide_steps_are_the_heat_kernel_of_hyperbolic_space_on_an_absolute_scale(dim, n, within):
    """Four steps: not calibrated, they would last 8 % too long on H^3, and the scale would be 8 to 16 % off."""
    ball, t = HyperbolicSpace(dim, 3.5), 0.5
    nodes = graded_points(ball, n, inner=1.0, relaxation=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)  # nodes at the rim are isolated
        graph = heat_graph(nodes.points, t, n_steps=4, weights=nodes.weights, metric=ball)
    inside = np.flatnonzero(ball.distance(np.zeros((1, dim)), nodes.points)[0] < 1.0)[::3]
    roots = np.sqrt(nodes.weights[inside])
    found = HeatKernel(t).matrix(graph, inside, inside) / roots[:, None] / roots
    exact = ball.heat_kernel(nodes.points[inside], nodes.points[inside], t)
    assert relative_error(found, exact) < within
    assert align(found, exact, "least squares").sum() / found.sum() == pytest.approx(1.0, abs=0.02)


def test_estimated_weights_see_the_volume_of_hyperbolic_space():
    """With the mass of flat space they would be 12 % too small at this bandwidth."""
    ball = HyperbolicSpace(3, 3.0)
    nodes = graded_points(ball, 1500, inner=1.5, decay=2.0, relaxation=8)
    graph = heat_graph(nodes.points, 0.5, n_steps=8, metric=ball)
    inside = ball.distance(np.zeros((1, 3)), nodes.points)[0] < 1.5
    assert graph.weights[inside].sum() == pytest.approx(HyperbolicSpace(3, 1.5).volume, rel=0.06)


@pytest.mark.parametrize("n_steps", [2, 6])
def test_along_the_sphere_wide_steps_last_as_long_as_they_say(n_steps):
    """By chords, which are shorter than arcs, two steps are .055 off and six .021; along it, below .0005."""
    sphere, t = Sphere(), 0.2
    points, weights = sphere.grid(1500), sphere.grid_weights(1500)
    rows = np.arange(0, 1500, 15)
    exact = sphere.heat_kernel(points[rows], points[rows], t)
    errors = []
    for metric in (sphere, None):
        graph = heat_graph(points, t, n_steps=n_steps, weights=weights, metric=metric)
        roots = np.sqrt(weights[rows])
        errors.append(relative_error(HeatKernel(t).matrix(graph, rows, rows) / roots[:, None] / roots, exact))
    assert errors[0] < 2e-3
    assert errors[0] < errors[1]


def test_flat_space_as_metric_changes_nothing():
    ball = EuclideanSpace(2, 1.0)
    points, weights = ball.grid(300), ball.grid_weights(300)
    along, plain = (heat_graph(points, 0.05, n_steps=4, weights=weights, metric=m) for m in (ball, None))
    np.testing.assert_allclose(along.affinity.toarray(), plain.affinity.toarray(), atol=1e-15)
