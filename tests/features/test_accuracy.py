"""Features against closed forms, and the estimated error against the true one."""

import pickle
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.spatial import ConvexHull

from manifoldrf import (
    AbstractKernel,
    DiffusionKernel,
    FlatTorus,
    HeatGraph,
    HeatKernel,
    KnnGraph,
    ManifoldRandomFeatures,
    ManifoldWarning,
    MaternKernel,
    MeshGraph,
    MobiusStrip,
    Sphere,
    TriangleMesh,
    heat_graph,
    knn_graph,
    relative_error,
)
from manifoldrf.features.errors import ErrorEstimate

NEW = Sphere().sample(200, seed=1)


def test_an_estimated_error_is_printed_as_its_number():
    error = ErrorEstimate(kernel=0.0123, field=0.01, quadrature=0.002, graph=None, signatures=0.1)
    assert f"{error:.3f}" == "0.012"
    assert f"{error}" == str(error)


def features(*arguments, **options):
    return ManifoldRandomFeatures(*arguments, **({"random_state": 0, "normalize": False} | options))


def sphere_mesh(n=800):
    hull = ConvexHull(Sphere().grid(n))
    return TriangleMesh(hull.points, hull.simplices)


@pytest.mark.parametrize(
    ("space", "t", "most"),
    [
        (Sphere(), 0.05, 0.005),
        (Sphere(dim=1), 0.05, 0.005),
        (FlatTorus(2), 0.01, 0.005),
        pytest.param(Sphere(dim=3), 0.2, 0.06, marks=pytest.mark.slow),
    ],
)
def test_heat_kernels_of_named_manifolds_and_their_estimated_errors(space, t, most):
    model = features(HeatKernel(t)).fit(space)
    new = space.sample(200, seed=1)
    true = relative_error(model.kernel_matrix(new), space.heat_kernel(new, new, t))
    assert true < most
    assert true / 3 < model.error_.kernel < 3 * most


@dataclass(frozen=True)
class Both(AbstractKernel):
    """Heat kernels at t and 1.4 t, added, which may keep quiet about their times."""

    t: float
    quiet: bool = False

    @property
    def shortest_time(self):
        return None if self.quiet else self.t

    def resolve(self, graph, dim=None):
        return (HeatKernel(self.t) + HeatKernel(1.4 * self.t)).resolve(graph, dim)

    def spectral(self, w):
        raise NotImplementedError

    _coefficients = spectral


@pytest.mark.parametrize(
    ("kernel", "times"),
    [
        (HeatKernel(0.05) + HeatKernel(0.07), (0.05, 0.07)),
        (HeatKernel(0.05) * HeatKernel(0.0713), (0.1213,)),
        (Both(0.05), (0.05, 0.07)),
    ],
    ids=str,
)
def test_sums_and_products_of_heat_kernels_and_their_estimated_errors(kernel, times):
    model = features(kernel).fit(Sphere())
    true = relative_error(model.kernel_matrix(NEW), sum(Sphere().heat_kernel(NEW, NEW, t) for t in times))
    assert true < 0.005
    assert true / 3 < model.error_.kernel < 0.015


def test_a_kernel_that_depends_on_the_graph_must_state_its_time():
    with pytest.raises(ValueError, match=r"`kernel` .*`shortest_time`"):
        features(Both(0.05, quiet=True)).fit(NEW)


@pytest.mark.parametrize(
    ("make", "most"), [(lambda: Sphere().sample(1500, seed=0), 0.03), (sphere_mesh, 0.005)], ids=["cloud", "mesh"]
)
def test_the_heat_kernel_of_a_sphere_from_points_and_meshes(make, most):
    model = features(HeatKernel(0.2)).fit(make())
    true = relative_error(model.kernel_matrix(NEW), Sphere().heat_kernel(NEW, NEW, 0.2))
    assert true < most
    assert true / 3 < model.error_.graph < 3 * true + 0.002


def test_features_of_all_nodes_are_the_kernel_of_the_graph():
    graph = knn_graph(Sphere().grid(500))
    model = features(DiffusionKernel(20.0), "all", field="step").fit(graph)
    exact = DiffusionKernel(20.0).dense(graph)
    assert relative_error(model.kernel_matrix(graph.points), exact) < 0.1
    heat = heat_graph(Sphere(), 0.2, n_nodes=300)
    model = features(HeatKernel(0.2), "all").fit(heat)
    assert relative_error(model.kernel_matrix(heat.points), HeatKernel(0.2).matrix(heat, per_volume=True)) < 1e-5


def test_the_better_of_step_and_interpolation_is_used():
    for points in (Sphere().grid(1000), Sphere().sample(1000, seed=0)):
        error = features(DiffusionKernel(20.0)).fit(points).error_
        errors = dict(error.candidates)
        assert set(errors) == {"step", "interpolated"}
        assert np.isclose(min(errors.values()), error.kernel)


def test_independent_anchors_are_unbiased():
    graph = heat_graph(Sphere(), 0.3, n_nodes=150)
    exact = HeatKernel(0.3).matrix(graph, per_volume=True)[:50, :50]
    draws = np.array(
        [
            features(HeatKernel(0.3), 40, anchors="iid", random_state=seed)
            .fit(graph)
            .kernel_matrix(graph.points[:50])
            for seed in range(40)
        ]
    )
    errors = (draws.mean(axis=0) - exact) / (draws.std(axis=0) / np.sqrt(40))
    assert np.abs(errors).mean() < 1.3  # .8 for normal errors; pairs are dependent


def test_a_kernel_with_a_sharp_peak_gets_more_features():
    matern = features(MaternKernel(1.5, 1.0, clock="manifold")).fit(Sphere())
    assert matern.error_.quadrature < 0.03
    assert matern.n_features_out_ > 4 * np.pi / (0.8 * matern.map_.kernel.width) ** 2 * 1.5


def test_units_motions_and_order_change_nothing_but_the_unit():
    points = Sphere().sample(600, seed=0)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    order = np.random.default_rng(1).permutation(len(points))
    here = features(HeatKernel(0.4)).fit(points).kernel_matrix(NEW)
    moved = features(HeatKernel(0.4)).fit(points @ turn + 5).kernel_matrix(NEW @ turn + 5)
    larger = features(HeatKernel(0.4e6)).fit(1e3 * points).kernel_matrix(1e3 * NEW)
    mixed = features(HeatKernel(0.4)).fit(points[order]).kernel_matrix(NEW)
    assert relative_error(moved, here) < 5e-3  # random steps of the layout are turned, too
    assert relative_error(1e6 * larger, here) < 1e-3
    assert relative_error(mixed, here) < 0.02  # held-out nodes differ


def test_symmetric_functions_are_followed_and_others_refused():
    def function(X, Y):
        return np.exp(-((X[:, None] - Y) ** 2).sum(-1) / 0.3)

    model = features(function, graph=HeatGraph(n_nodes=250)).fit(Sphere())
    assert relative_error(model.kernel_matrix(NEW), function(NEW, NEW)) < 0.02
    assert model.error_.graph < 0.02
    few = [
        features(lambda X, Y, unit=unit: unit * function(X, Y), graph=HeatGraph(n_nodes=500)).fit(Sphere())
        for unit in (1.0, 2.0**-300)
    ]
    assert relative_error(2.0**300 * few[1].kernel_matrix(NEW), few[0].kernel_matrix(NEW)) < 1e-9
    for bad in (lambda X, Y: X @ np.diag([1, 2, 3]) @ np.ones((3, len(Y))), lambda X: X, lambda X, Y: 0 * X @ Y.T):
        with pytest.raises((ValueError, TypeError), match="`kernel`"):
            features(bad, graph=HeatGraph(n_nodes=100)).fit(Sphere())
    rough = features(lambda X, Y: np.exp(-np.abs(X[:, :1] - Y[:, 0]) / 0.01), graph=HeatGraph(n_nodes=250))
    with pytest.warns(ManifoldWarning, match="not a series"):
        rough.fit(Sphere())


def test_graphs_that_can_be_asked_for():
    mesh = sphere_mesh(300)
    assert features(HeatKernel(0.2), graph=MeshGraph()).fit(mesh).graph_.n_edges == len(mesh.edges)
    assert features(HeatKernel(0.2), graph=KnnGraph()).fit(mesh).graph_.mesh is None
    assert features(DiffusionKernel(9.0)).fit(mesh).graph_.mesh is mesh
    assert features(HeatKernel(0.2), graph=HeatGraph(n_nodes=400, n_steps=6)).fit(Sphere()).graph_.n_steps == 6
    strip = MobiusStrip()  # heat stays on it, so its kernel is 1 / volume on average
    known = features(HeatKernel(0.05), graph=KnnGraph(), n_features=200).fit(strip)
    assert abs(known.kernel_matrix(strip.grid(1000)).mean() * strip.volume - 1) < 0.1  # by its density: .2
    volumes = Sphere().grid_weights(500)
    given = features(HeatKernel(0.2), graph=HeatGraph(volumes=volumes)).fit(Sphere().grid(500))
    assert np.array_equal(given.graph_.weights, volumes)
    torus = FlatTorus(2)
    assert (
        features(HeatKernel(0.01), graph=HeatGraph(metric=torus)).fit(torus.sample(900, seed=0)).graph_.metric
        == torus
    )
    points = Sphere().grid(300)
    graph = knn_graph(points)
    by_graph, by_points = (
        features(DiffusionKernel(9.0)).fit(graph),
        features(DiffusionKernel(9.0), graph=graph).fit(points),
    )
    assert np.array_equal(by_graph.transform(NEW), by_points.transform(NEW))
    with pytest.raises(ValueError, match="`graph`"):
        features(DiffusionKernel(9.0), graph=graph).fit(points[:200])
    copied = pickle.loads(pickle.dumps(HeatGraph(dim=2)))
    assert np.array_equal(
        features(DiffusionKernel(9.0), graph=copied).fit(graph).transform(NEW), by_graph.transform(NEW)
    )
    with pytest.raises(ValueError, match="`n_nodes`"):
        HeatGraph(n_nodes="all")


def test_two_steps_on_a_known_space_are_not_taken_for_exact():
    model = features(HeatKernel(0.3), graph=HeatGraph(n_steps=2)).fit(Sphere())
    error = relative_error(model.kernel_matrix(NEW), Sphere().heat_kernel(NEW, NEW, 0.3))
    assert 0.5 * error < model.error_.kernel < 2 * error
    given = HeatGraph(volumes=Sphere().grid_weights(600))  # too few for more than two steps
    assert features(HeatKernel(0.01), graph=given).fit(Sphere().grid(600)).error_.graph is None


@pytest.mark.slow  # 60,000 nodes
def test_the_shortest_times_of_a_mesh_have_an_error_estimate():
    with pytest.warns(ManifoldWarning, match="too few"):
        model = features(HeatKernel(2.6e-4), 64).fit(sphere_mesh(2000))
    assert 0 < model.error_.graph < 1  # four steps with as many nodes as fit, not twice as many


def test_clouds_that_show_little_are_said_to_do_so():
    rng = np.random.default_rng(0)
    with pytest.warns(ManifoldWarning, match="no low-dimensional structure"):
        features().fit(rng.normal(size=(300, 10)))
    with pytest.raises(ValueError, match="`X`"):
        features().fit(np.repeat([[0.0, 1.0], [2.0, 3.0]], 20, axis=0))
    with pytest.warns(ManifoldWarning, match="straight line"):
        features().fit(np.outer(rng.random(300), [1.0, 2.0, 3.0]))
    with pytest.warns(ManifoldWarning, match="Column 1"):
        features().fit(rng.random((300, 2)) * [1, 1000])


def test_useless_kernels_and_too_few_features_warn():
    with pytest.warns(ManifoldWarning, match="nearly constant"):
        features(HeatKernel(6.0)).fit(Sphere())
    with pytest.warns(ManifoldWarning, match="n_features=") as caught:
        features(HeatKernel(0.05), 50).fit(Sphere())
    needed = int(str(caught[0].message).split("n_features=")[1].split(",")[0])
    with pytest.warns(ManifoldWarning, match="more than the graph has nodes"):
        assert features(HeatKernel(0.2), 10**5).fit(Sphere()).quadrature_ == "uniform"
    features(HeatKernel(0.05), needed).fit(Sphere())
