"""Kernels in the manifold clock: what they become on each graph, against spectral series of the sphere."""

import functools
import warnings

import numpy as np
import pytest
from numpy.polynomial.legendre import legval
from oracles import relative_error, sphere_mesh

from manifoldrf import (
    DiffusionKernel,
    GeneralizedAdjacency,
    Graph,
    GraphWarning,
    HeatKernel,
    MaternKernel,
    PowerKernel,
    RegularizedLaplacianKernel,
    Sphere,
    grid_graph,
    heat_graph,
    knn_graph,
    mesh_graph,
)
from manifoldrf.kernels.manifold_kernels import GammaMixtureKernel

SPHERE = Sphere()


@functools.cache
def sphere_graph(kind, n=1000, t=0.05):
    if kind == "heat":
        return heat_graph(SPHERE.grid(n), t=t)
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
    truth = exact(graph.points[nodes])
    off = ~np.eye(len(nodes), dtype=bool)
    return relative_error(computed, truth), relative_error(computed[off], truth[off])


@pytest.mark.parametrize(
    ("kind", "n", "t", "nu", "lengthscale", "limits"),
    [  # measured values in the comments
        ("heat", 1000, 0.05, 1.5, 0.5, (0.02, 0.005)),  # .0137, .0031
        ("heat", 1000, 0.05, 0.5, 1.0, (0.02, 0.005)),  # .0160, .0026
        ("heat", 1000, 0.05, 2.5, 0.5, (0.009, 0.005)),  # .0065, .0041
        ("heat", 1000, 0.05, 5.0, 0.6, (0.006, 0.006)),  # .0047, .0043
        pytest.param("heat", 4000, 0.02, 1.5, 0.5, (0.003, 0.001), marks=pytest.mark.slow),  # .0018, .0005
        ("cotangent", 1000, 0.05, 1.5, 0.5, (0.025, 0.006)),  # .0193, .0041
        ("cotangent", 1000, 0.05, 2.5, 0.8, (0.006, 0.005)),  # .0045, .0037
        ("knn", 1000, 0.05, 1.5, 0.5, (0.06, 0.05)),  # .046, .039
    ],
)
def test_matern_meets_the_series_of_the_sphere(kind, n, t, nu, lengthscale, limits):
    kernel, graph = MaternKernel(nu, lengthscale, clock="manifold"), sphere_graph(kind, n, t)
    found = errors(kernel, graph, lambda points: sphere_matern(points, nu, lengthscale))
    assert found[0] < limits[0]
    assert found[1] < limits[1]
    steps = kernel.resolve(graph)
    assert kernel.is_positive
    assert steps.is_positive
    assert (steps.modulation(500) >= 0).all()


@pytest.mark.parametrize(
    ("kind", "t", "limit"),
    [  # measured values in the comments
        ("heat", 0.05, 0.01),
        ("heat", 0.1, 0.01),
        ("cotangent", 0.05, 0.04),  # .028
        ("cotangent", 0.1, 0.02),  # .012
        ("knn", 0.05, 0.08),  # .065
        ("knn", 0.1, 0.06),  # .044
    ],
)
def test_heat_meets_the_series_of_the_sphere(kind, t, limit):
    exact = errors(HeatKernel(t), sphere_graph(kind), lambda points: SPHERE.heat_kernel(points, points, t))
    assert exact[0] < limit


def test_heat_is_a_power_on_a_heat_graph():
    graph = sphere_graph("heat")
    for steps in (2, 4, graph.n_steps, 10):
        t = 0.05 * steps / graph.n_steps
        kernel = HeatKernel(t).resolve(graph)
        assert kernel == PowerKernel(steps)
        assert HeatKernel(t * (1 + 1e-9)).resolve(graph) == kernel  # the same time up to rounding
    assert HeatKernel(0.05).describe(graph) == "heat graph: 6 steps, each lasting 0.00833333, last t = 0.05 exactly"


def test_heat_is_calibrated_diffusion_elsewhere():
    for kind in ("knn", "cotangent"):
        graph = sphere_graph(kind)
        kernel = HeatKernel(0.05).resolve(graph, dim=2)
        assert isinstance(kernel, DiffusionKernel)
        assert kernel.tau == pytest.approx(graph.steps(0.05, 2), rel=1e-12)
        assert HeatKernel(0.05).resolve(graph) == kernel  # the dimension is estimated
        text = HeatKernel(0.05).describe(graph, dim=2)
        assert text == (
            f"calibrated: {kernel.tau:g} steps on average, each lasting {graph.time(1.0, 2):g}, last t = 0.05"
        )
    grid = grid_graph(10, 2)  # a metric tells the dimension: steps of .1, t = tau h^2 / (2 dim)
    assert HeatKernel(0.05).resolve(grid).tau == pytest.approx(20.0, rel=1e-12)
    assert HeatKernel(0.05).resolve(grid, dim=1).tau == pytest.approx(10.0, rel=1e-12)


def test_kernels_in_the_graph_clock_resolve_to_themselves_and_composites_by_parts():
    graph = sphere_graph("heat")
    for kernel in (DiffusionKernel(2.0), MaternKernel(1.5, 2.0), RegularizedLaplacianKernel(1.0)):
        assert kernel.resolve(graph) is kernel
    composite = 2 * HeatKernel(0.05) + HeatKernel(0.05) * DiffusionKernel(1.0)
    assert composite.resolve(graph) == 2 * PowerKernel(6) + PowerKernel(6) * DiffusionKernel(1.0)
    assert (HeatKernel(0.05) * HeatKernel(0.1)).root().resolve(graph) == PowerKernel(3) * PowerKernel(6)
    assert (
        MaternKernel(1.5, 1.0, clock="manifold").root().resolve(graph)
        == MaternKernel(1.5, 1.0, clock="manifold").resolve(graph).root()
    )


@pytest.mark.parametrize("share", [0.5, 1.0, 3.0, 4.7, 5.99])
def test_times_between_even_numbers_of_steps_name_their_neighbours(share):
    graph = sphere_graph("heat")
    step = 0.05 / 6
    low = max(2, 2 * int(share // 2))
    message = rf"`t` must be an even number of steps .*{low * step:g} or {(low + 2) * step:g}; or build heat_graph"
    for method in (HeatKernel(share * step).resolve, HeatKernel(share * step).dense):
        with pytest.raises(ValueError, match=message):
            method(graph)


@pytest.mark.parametrize("kernel", [HeatKernel(0.1), MaternKernel(1.5, 1.0, clock="manifold")], ids=str)
def test_nothing_is_known_before_the_graph(kernel):
    for ask in (kernel.coefficients, kernel.modulation):
        with pytest.raises(ValueError, match=r"has no coefficients before the graph is known: kernel\.resolve\("):
            ask(3)
    for call in (kernel.truncation, lambda: kernel.spectral(np.ones(2)), lambda: (2 * kernel).coefficients(3)):
        with pytest.raises(ValueError, match="before the graph is known"):
            call()


@pytest.mark.parametrize("kind", ["heat", "cotangent", "knn"])
def test_a_length_scale_below_the_resolution_of_the_steps_is_refused(kind):
    graph = sphere_graph(kind)
    shortest = np.sqrt(2 * 1.5 * graph.time(1.0, 2))
    MaternKernel(1.5, 1.001 * shortest, clock="manifold").resolve(graph)
    message = rf"`lengthscale` must be at least {shortest:.3g} on this graph, whose steps last .*Got "
    with pytest.raises(ValueError, match=message):
        MaternKernel(1.5, 0.999 * shortest, clock="manifold").resolve(graph)


def test_a_dimension_given_replaces_that_of_the_graph():
    graph = sphere_graph("cotangent")
    kernel = MaternKernel(1.5, 1.0, clock="manifold")
    step = graph.step_time
    c, power = 3.0 * step, 1.5 + 3 / 2
    w = np.linspace(-1, 1, 9)
    np.testing.assert_allclose(kernel.resolve(graph, dim=3).spectral(w), step**power * (c + 1 - w) ** -power)
    np.testing.assert_array_equal(kernel.resolve(graph, dim=2).spectral(w), kernel.resolve(graph).spectral(w))


PATH = Graph.from_affinity([[0, 1, 0], [1, 0, 1], [0, 1, 0]])


def test_adjacencies_with_a_clock_are_resolved_by_it():
    adjacency = GeneralizedAdjacency(np.eye(3) / 2, step_time=0.25)
    assert HeatKernel(2.0).resolve(adjacency) == DiffusionKernel(8.0)
    assert "8 steps on average, each lasting 0.25" in HeatKernel(2.0).describe(adjacency)
    steps = MaternKernel(1.5, 2.0, clock="manifold").resolve(adjacency, dim=1)
    assert steps.spectral(np.array([0.5]))[0] == pytest.approx((0.75 + 0.5 / 0.25) ** -2.0, rel=1e-12)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda: HeatKernel(1.0).resolve(PATH), ValueError, "This graph has no points; give `points`"),
        (
            lambda: HeatKernel(1.0).dense(GeneralizedAdjacency(np.eye(3))),
            ValueError,
            "This adjacency has no clock; give `step_time` to GeneralizedAdjacency, or a kernel in steps",
        ),
        (
            lambda: MaternKernel(1.0, 9.0, "manifold").resolve(GeneralizedAdjacency(np.eye(3), step_time=1.0)),
            ValueError,
            r"`dim` must be given where the graph has no points\. Got None\.",
        ),
        (lambda: HeatKernel(1.0).resolve(grid_graph(4, 1), dim=0), ValueError, r"`dim` must be an integer in \[1,"),
        (
            lambda: MaternKernel(1.0, 1.0, "manifold").resolve(grid_graph(4, 1), dim=1.5),
            TypeError,
            r"`dim` must be an integer in \[1, inf\)\. Got 1\.5\.",
        ),
        (lambda: HeatKernel(1.0).resolve("graph"), TypeError, r"`graph` must be a Graph or a General.*Got str\."),
        (lambda: HeatKernel(1.0).describe(np.eye(3)), TypeError, r"`graph` must be a Graph or a G.*Got ndarray\."),
        (
            lambda: DiffusionKernel(1.0).matrix(PATH, per_volume=True),
            ValueError,
            "`per_volume` needs node weights, which this graph does not have: heat_graph and",
        ),
        (
            lambda: DiffusionKernel(1.0).matrix(sphere_graph("heat"), [0], [0], per_volume=1),
            TypeError,
            r"`per_volume` must be True or False\. Got 1\.",
        ),
    ],
)
def test_errors_about_unsuitable_graphs_name_the_remedy(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_steps_of_length_zero_last_no_time():
    graph = Graph(grid_graph(4, 1).affinity, np.zeros((4, 2)))
    with pytest.raises(ValueError, match="This graph has steps of length zero"):
        HeatKernel(1.0).resolve(graph, dim=1)


def test_nodes_without_weight_have_no_kernel_per_volume():
    mesh = sphere_mesh(100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        graph = heat_graph(mesh, 0.5, weights=np.where(np.arange(100) < 5, 0.0, mesh.vertex_areas()))
    kernel = HeatKernel(0.5)
    assert np.isfinite(kernel.matrix(graph, [10, 20], [30], per_volume=True)).all()
    for rows, cols, name in [([10, 2], [20], "rows"), ([10], [4], "cols"), (None, None, "rows")]:
        with pytest.raises(ValueError, match=rf"`{name}` must be nodes of positive weight, with per_volume=True"):
            kernel.matrix(graph, rows, cols, per_volume=True)


@pytest.fixture(scope="module")
def random_graph():
    """A heat graph on random points, whose weights differ by orders of magnitude."""
    return heat_graph(SPHERE.sample(4000, seed=0), t=0.02)


@pytest.mark.parametrize("n", [16, pytest.param(50, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("nu", "limit"), [pytest.param(0.5, 0.14, marks=pytest.mark.slow), (1.5, 0.03)])
def test_matern_has_no_spike_at_nodes_of_small_weight(nu, limit, n, random_graph):
    graph = random_graph
    nodes = np.concatenate([np.argsort(graph.weights)[:n], np.argsort(graph.weights)[-n:]])
    kernel = MaternKernel(nu, 0.5, clock="manifold").matrix(graph, nodes, nodes, per_volume=True)
    exact = sphere_matern(graph.points[nodes], nu, 0.5)
    assert graph.weights[nodes[0]] < graph.weights[nodes[-1]] / 20
    # Low by what lies below the resolution of the steps: measured .117-.130 (nu = .5), .005-.024.
    np.testing.assert_allclose(np.diag(kernel), np.diag(exact), rtol=1.3 * limit)


@pytest.mark.parametrize("power", [0.3, 0.5, 0.75, 1.0, 1.25, 2.0, 3.2, 7.5, 16.05, 30.0])
def test_the_gamma_mixture_is_its_series(power):
    kernel = GammaMixtureKernel(0.05, power, 0.01)
    series = kernel.coefficients(5000)  # e^-250 is left of the weights
    assert (series >= 0).all()
    w = np.array([-1.0, -0.9, -0.3, 0.0, 1e-3, 0.2, 0.26, 0.7, 0.99, 1.0])
    exact = np.polynomial.polynomial.polyval(w, series)
    # Alternating sums are accurate relative to the sum of sizes.
    np.testing.assert_allclose(kernel.spectral(w), exact, rtol=1e-10, atol=1e-12 * exact[-1])


def test_matern_with_a_long_length_scale_is_quick():
    graph = sphere_graph("heat", 1000, 0.05)
    kernel = MaternKernel(1.5, 30.0, clock="manifold").resolve(graph, dim=2)
    assert kernel.is_positive
    # Almost constant: the kernel of the constant mode, 1 / (area c^(nu + 1)), with c = 2 nu / 900.
    exact = (3.0 / 900) ** -2.5 / (4 * np.pi)
    found = kernel.matrix(graph, [0], [500], per_volume=True)[0, 0]
    assert found == pytest.approx(exact, rel=0.01)
