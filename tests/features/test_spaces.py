"""Spaces of every kind against exact kernels at new points, on an absolute scale: no alignment of any kind."""

import dataclasses
import functools
import re
import warnings
from importlib import import_module

import numpy as np
import pytest
from oracles import relative_error, sphere_mesh
from scipy.spatial.transform import Rotation

from manifoldrf import (
    CosineKernel,
    DiffusionKernel,
    Ellipsoid,
    FeatureWarning,
    FlatTorus,
    Graph,
    GraphOptions,
    HeatKernel,
    HyperbolicSpace,
    ManifoldGaussianProcess,
    ManifoldRandomFeatures,
    ManifoldRidge,
    MaternKernel,
    MobiusStrip,
    PowerKernel,
    ProductSpace,
    Rotations,
    SeriesKernel,
    Sphere,
    Torus,
    TriangleMesh,
    heat_graph,
    knn_graph,
    load,
    mesh_graph,
)
from manifoldrf._random import Streams
from manifoldrf.explorer.page import explore
from manifoldrf.features import fitting
from manifoldrf.features.options import FitOptions
from manifoldrf.features.problem import default_steps, find_nodes, make_problem

T = 0.1
HEAT = HeatKernel(T)
NEW = Sphere().sample(200, seed=1)
EXACT = Sphere().heat_kernel(NEW, NEW, T)
CLOUD = Sphere().sample(1000, seed=2)
STEPS = DiffusionKernel(20.0)


def features(kernel=HEAT, **settings):
    return ManifoldRandomFeatures(kernel, normalize=False, **{"random_state": 0, **settings})


# --------------------------------------------------------------------------------------------------- accuracy
@pytest.mark.parametrize("field", ["step", "local", pytest.param("mlp", marks=pytest.mark.slow)])
def test_heat_kernel_of_a_product_with_one_periodic_coordinate(field, tmp_path):
    """Twice the error measured, .0007 and .006 for the network; the seam of the coordinate does not show."""
    space = ProductSpace(FlatTorus(dim=1, side=3.0), Sphere(dim=1, radius=0.5))
    new = space.sample(200, seed=1)
    model = features(field=field, n_features=300).fit(space)
    assert relative_error(model.kernel_matrix(new), space.heat_kernel(new, new, T)) < (
        0.012 if field == "mlp" else 0.0015
    )
    again = load(model.save(tmp_path / "product.safetensors"))
    assert again.graph_.metric == space
    np.testing.assert_array_equal(again.transform(new), model.transform(new))


@pytest.mark.slow
def test_heat_kernel_of_the_rotations():
    """The error is that of 1500 nodes in three dimensions, .056; the limit is twice that."""
    model = features(HeatKernel(0.5), graph=GraphOptions(n_nodes=1500)).fit(Rotations())
    new = Rotations().sample(200, seed=1)
    assert relative_error(model.kernel_matrix(new), Rotations().heat_kernel(new, new, 0.5)) < 0.11


# Limits are twice the error measured, which falls with the number of nodes: .0026 with 1000 even nodes, .015
# with as many random ones.
@pytest.mark.parametrize("n_features", ["all", 512, pytest.param(256, marks=pytest.mark.slow)])
def test_heat_kernel_of_the_sphere_at_new_points(n_features):
    model = features(n_features=n_features, graph=GraphOptions(n_nodes=1000)).fit(Sphere())
    assert model.n_features_out_ == (1000 if n_features == "all" else n_features)
    assert relative_error(model.kernel_matrix(NEW), EXACT) < 0.005
    # Inner products of one are inner products of another: between different sets of points, too.
    assert relative_error(model.kernel_matrix(NEW[:30], NEW[30:]), EXACT[:30, 30:]) < 0.01


@pytest.mark.parametrize("n_features", ["auto", pytest.param("all", marks=pytest.mark.slow)])
def test_heat_kernel_from_random_points(n_features):
    model = features(n_features=n_features).fit(CLOUD)
    assert relative_error(model.kernel_matrix(NEW), EXACT) < 0.03


@pytest.mark.slow
def test_errors_fall_with_the_number_of_nodes():
    errors = [
        relative_error(
            features(n_features="all", graph=GraphOptions(n_nodes=n)).fit(Sphere()).kernel_matrix(NEW), EXACT
        )
        for n in (400, 1600)
    ]
    assert errors[1] < 0.5 * errors[0]


@pytest.mark.parametrize("manifold", [Sphere(dim=1), Sphere(dim=1, radius=2.0), FlatTorus(), FlatTorus(side=2.0)])
def test_heat_kernels_of_named_manifolds(manifold):
    # A time at which the kernel is neither a spike nor flat: the same share of every space.
    t = 0.01 * manifold.volume ** (2 / manifold.dim) / (4 if manifold.dim == 1 else 1)
    model = features(HeatKernel(t)).fit(manifold)
    points = manifold.sample(150, seed=5)
    assert model.n_features_in_ == manifold.ambient_dim
    # The default number of features is allowed an error of .03.
    assert relative_error(model.kernel_matrix(points), manifold.heat_kernel(points, points, t)) < 0.03


def test_heat_kernel_of_a_torus_preserves_mass():
    torus = Torus()
    model = features(n_features="all", graph=GraphOptions(n_nodes=600)).fit(torus)
    # The integral of K(x, .) is 1: the mean over uniform random points times the area, with its standard error.
    values = model.kernel_matrix(torus.sample(20, seed=0), torus.sample(4000, seed=1)) * torus.volume
    band = values.std(axis=1) / np.sqrt(4000)
    assert (np.abs(values.mean(axis=1) - 1) < 6 * band + 0.02).all()


@pytest.mark.filterwarnings("ignore::manifoldrf.GraphWarning")  # more steps than needed
@pytest.mark.parametrize("n_nodes", [500, 611, 2027])
@pytest.mark.parametrize("manifold", [Torus(), MobiusStrip(), Ellipsoid()], ids=lambda space: type(space).__name__)
def test_grids_that_have_not_the_number_asked_for_have_their_weights(manifold, n_nodes):
    """A grid of rings has whole rings: a few more nodes or less than were asked for."""
    space = make_problem(manifold, HeatKernel(0.1), FitOptions(Streams.from_seed(0), GraphOptions(n_nodes=n_nodes)))
    np.testing.assert_array_equal(space.graph.points, manifold.grid(n_nodes))
    assert space.graph.weights.sum() == pytest.approx(manifold.volume, rel=0.02)


@pytest.mark.slow
def test_heat_kernel_of_the_three_sphere():
    space, t = Sphere(dim=3), 0.2
    points = space.sample(150, seed=5)
    model = features(HeatKernel(t)).fit(space)
    assert relative_error(model.kernel_matrix(points), space.heat_kernel(points, points, t)) < 0.08


def test_heat_kernel_on_a_mesh():
    mesh = sphere_mesh(1000)
    model = features(n_features="all").fit(mesh)
    places = mesh.sample(150, seed=0).points
    above = places / np.linalg.norm(places, axis=1, keepdims=True)
    assert relative_error(model.kernel_matrix(places), Sphere().heat_kernel(above, above, T)) < 0.005
    assert model.graph_.n_nodes == 1000
    assert (model.distance_to_space(places) < 1e-12).all()
    assert model.n_features_in_ == 3


def test_steps_along_the_edges_of_a_mesh():
    mesh = sphere_mesh(600)
    model = features(STEPS, n_features="all").fit(mesh)
    exact = STEPS.dense(mesh_graph(mesh))
    # The step field leaves out f_0 = e^-10 of a total of 1; the kernel at a node is about .01.
    assert relative_error(model.kernel_matrix(mesh.vertices), exact) < 1e-3


def test_a_large_cloud_is_thinned_and_stays_accurate():
    model = features(HeatKernel(0.05)).fit(Sphere().sample(12_000, seed=0))
    assert model.graph_.n_nodes < 3000
    assert "farthest of 12000 points" in model.summary()
    assert relative_error(model.kernel_matrix(NEW), Sphere().heat_kernel(NEW, NEW, 0.05)) < 0.01


@pytest.mark.slow
def test_thinning_can_be_forbidden_or_asked_for():
    wide = HeatKernel(0.2)
    assert features(wide).fit(CLOUD).graph_.n_nodes == 500
    assert features(wide, graph=GraphOptions(n_nodes="all")).fit(CLOUD).graph_.n_nodes == 1000
    assert features(wide, graph=GraphOptions(n_nodes=300)).fit(CLOUD).graph_.n_nodes == 300


def test_steps_of_a_graph_at_nodes_kept_from_the_fit_and_at_others():
    nodes = Sphere().grid(1000)
    model = features(STEPS, n_starts=900).fit(nodes)
    assert len(model.starts_) == 900
    exact = STEPS.matrix(model.graph_)
    out = np.setdiff1d(np.arange(1000), model.starts_)
    # .0085 and .0043 measured; the limit is the promise of a per cent at new points.
    assert relative_error(model.kernel_matrix(nodes[out]), exact[np.ix_(out, out)]) < 0.015
    some = model.starts_[:300]
    assert relative_error(model.kernel_matrix(nodes[some]), exact[np.ix_(some, some)]) < 0.01


def test_neighbours_in_the_manifold_clock_include_the_volume_factor():
    nodes = Sphere().grid(600)
    model = features(n_features="all", graph=GraphOptions(kind="knn")).fit(nodes)
    degrees = model.graph_.degrees
    area = degrees * (4 * np.pi / degrees.sum())  # that each node stands for
    by_area = HEAT.dense(model.graph_) / np.sqrt(np.outer(area, area))
    # The field of so few nodes is off by 2 %, and the whole area is estimated from the density within 2 %.
    assert relative_error(model.kernel_matrix(nodes), by_area) < 0.05
    assert relative_error(model.kernel_matrix(NEW), EXACT) < 0.1  # graphs of 8 neighbours are off by 4 %
    assert "manifold clock" in model.summary()


# ------------------------------------------------------------------------------------------------ invariance
@pytest.fixture(scope="module")
def of_the_cloud():
    return features(n_features=200).fit(CLOUD[:600]).transform(NEW)


def test_rigid_motions_change_nothing(of_the_cloud):
    turn = Rotation.from_euler("xyz", [0.3, 1.1, -2.0]).as_matrix()

    def moved(points):
        return points @ turn.T + np.array([3.0, -1.0, 0.5])

    model = features(n_features=200).fit(moved(CLOUD[:600]))
    # Rounding of coordinates of size 3, through about 10 steps and a fit of weights.
    np.testing.assert_allclose(model.transform(moved(NEW)), of_the_cloud, atol=1e-7 * of_the_cloud.max())


@pytest.mark.parametrize("scale", [1000.0, *(pytest.param(s, marks=pytest.mark.slow) for s in (1e-6, 1e8))])
def test_units_of_length_only_change_the_unit_of_the_kernel(of_the_cloud, scale):
    model = features(HeatKernel(T * scale**2), n_features=200).fit(scale * CLOUD[:600])
    # A density over areas: K is divided by the square of the scale, features by the scale.
    np.testing.assert_allclose(scale * model.transform(scale * NEW), of_the_cloud, atol=1e-7 * of_the_cloud.max())


@pytest.mark.slow
def test_the_default_kernel_follows_the_unit_of_length():
    models = [ManifoldRandomFeatures(random_state=0).fit(scale * CLOUD[:500]) for scale in (1.0, 1000.0)]
    times = [model.kernel_.t for model in models]
    assert times[1] == pytest.approx(1e6 * times[0], rel=1e-9)
    assert 0 < times[0] < 1
    assert models[0].n_features_out_ == models[1].n_features_out_


@pytest.mark.slow
def test_the_order_of_the_points_does_not_matter(of_the_cloud):
    order = np.random.default_rng(0).permutation(600)
    found = features(n_features=200).fit(CLOUD[:600][order])
    expected = features(n_features=200).fit(CLOUD[:600])
    assert set(order[found.anchors_].tolist()) == set(expected.anchors_.tolist())
    # Other nodes are drawn to fit weights at: within the error of the quadrature.
    assert relative_error(found.kernel_matrix(NEW), of_the_cloud @ of_the_cloud.T) < 2 * expected.error_.quadrature


# ------------------------------------------------------------------------------------------- graphs of all kinds
def test_a_graph_with_points_is_a_space():
    graph = heat_graph(CLOUD, t=T)
    model = features(PowerKernel(graph.n_steps), n_features="all").fit(graph)
    assert model.graph_ is graph
    assert model.n_features_in_ == 3
    by_time = features(n_features="all").fit(graph)
    assert relative_error(by_time.kernel_matrix(NEW), EXACT) < 0.03
    assert "as given" in model.summary()


def test_a_graph_on_the_points_and_a_builder_give_the_same():
    nodes = CLOUD[:300]
    expected = features(STEPS, graph=knn_graph(nodes)).fit(nodes).transform(NEW)
    for graph in (knn_graph, functools.partial(knn_graph, n_neighbors=8), GraphOptions(n_neighbors=8)):
        np.testing.assert_array_equal(features(STEPS, graph=graph).fit(nodes).transform(NEW), expected)
    np.testing.assert_array_equal(features(STEPS).fit(knn_graph(nodes)).transform(NEW), expected)


def test_a_builder_takes_a_mesh_or_the_points_of_a_manifold():
    mesh = sphere_mesh(300)
    assert features(STEPS, graph=mesh_graph).fit(mesh).graph_.n_nodes == 300
    taken = []

    def build(points):
        taken.append(points.shape)
        return knn_graph(points[::8])

    features(STEPS, graph=build).fit(Sphere())
    assert taken == [(4000, 3)]


def test_the_edges_of_a_mesh_and_neighbours_of_its_vertices_are_options():
    mesh = sphere_mesh(300)
    edges = features(STEPS, graph=GraphOptions(kind="mesh")).fit(mesh)
    assert "edges of the mesh" in edges.summary()
    assert edges.graph_.affinity.nnz == 2 * (3 * 300 - 6)  # Euler's formula
    neighbours = features(STEPS, graph=GraphOptions(kind="knn", n_neighbors=5)).fit(mesh)
    assert "nearest neighbours, 5 each" in neighbours.summary()


def test_kernels_in_the_graph_clock_take_neighbours_and_those_of_the_space_heat():
    nodes = CLOUD[:500]
    assert features(STEPS).fit(nodes).graph_.n_steps is None
    assert features().fit(nodes).graph_.n_steps is not None


@pytest.mark.slow
def test_sums_of_kernels_are_sums():
    mixed = features(0.5 * HEAT + HeatKernel(2 * T), n_features="all").fit(CLOUD)
    exact = 0.5 * EXACT + Sphere().heat_kernel(NEW, NEW, 2 * T)
    assert relative_error(mixed.kernel_matrix(NEW), exact) < 0.04


def test_a_metric_measures_distances():
    torus = FlatTorus()
    cloud = torus.sample(1000, seed=0)
    model = features(HeatKernel(0.01), n_features="all", graph=GraphOptions(metric=torus)).fit(cloud)
    points = torus.sample(150, seed=1)
    exact = torus.heat_kernel(points, points, 0.01)
    assert relative_error(model.kernel_matrix(points), exact) < 0.08
    # One period on, the same point: coordinates are added to and reduced again.
    np.testing.assert_allclose(
        model.kernel_matrix(points + 1.0, points), model.kernel_matrix(points), atol=1e-9 * exact.max()
    )


def test_known_weights_of_points_are_used():
    nodes = Sphere().grid(600)
    options = GraphOptions(weights=np.full(600, 2 * np.pi / 600))  # half the area: all densities double
    model = features(n_features="all", graph=options).fit(nodes)
    assert relative_error(model.kernel_matrix(NEW), 2 * EXACT) < 0.01


# ------------------------------------------------------------------------------------------ how many features
def test_the_number_of_features_follows_the_width_of_the_kernel():
    options = GraphOptions(n_nodes=1000)
    wide, narrow = (features(HeatKernel(t), graph=options).fit(Sphere()) for t in (0.24, 0.06))
    # The spacing of the anchors goes with the width: four times as many for a quarter of the time.
    assert narrow.n_features_out_ == pytest.approx(4 * wide.n_features_out_, rel=0.05)


def test_kernels_with_sharp_peaks_get_more_features_than_their_width_asks_for():
    matern = features(MaternKernel(1.5, 0.3, "manifold"), graph=GraphOptions(n_nodes=800)).fit(Sphere())
    width = matern.map_.problem.width
    smooth = features(HeatKernel(width**2), graph=GraphOptions(n_nodes=800)).fit(Sphere())
    assert smooth.map_.problem.width == pytest.approx(width, rel=0.05)
    assert matern.n_features_out_ >= 2 * smooth.n_features_out_
    assert matern.error_.quadrature <= 0.03


def test_a_series_of_the_smallest_number_there_is_takes_no_step():
    """Its sum at 1 and next to 1 is the same float: no width can be read off it."""
    with pytest.raises(ValueError, match=r"`kernel` must be one whose walks take a step.*5e-324"):
        ManifoldRandomFeatures(SeriesKernel([0.0, 5e-324]), normalize=False).fit(Sphere().grid(20))


def test_all_nodes_are_features():
    for model in (features(n_features="all"), features(anchors="all"), features(anchors="all", n_features="all")):
        model.fit(CLOUD[:300])
        np.testing.assert_array_equal(model.anchors_, np.arange(300))
        np.testing.assert_allclose(model.weights_, model.graph_.weights, rtol=1e-14)


# ---------------------------------------------------------------------------------------------------- mistakes
GRAPH = knn_graph(CLOUD[:300])
MESH = sphere_mesh(100)
TWO_PIECES = TriangleMesh(
    np.vstack([MESH.vertices, MESH.vertices + 9]), np.vstack([MESH.faces, MESH.faces + MESH.n_vertices])
)


@pytest.mark.parametrize(
    ("space", "graph", "kernel", "kind", "message"),
    [
        (CLOUD[:300] + 1, GRAPH, STEPS, ValueError, "`graph` must be a graph on the same points"),
        (CLOUD[:200], GRAPH, STEPS, ValueError, "`graph` must be a graph on the same points"),
        (Sphere(), GRAPH, STEPS, ValueError, "`graph` must be a graph on the same points"),
        (MESH, GRAPH, STEPS, ValueError, "`graph` must be a graph on the same points"),
        (GRAPH, GRAPH, STEPS, ValueError, "`graph` must be None or GraphOptions.* where the space is"),
        (GRAPH, GraphOptions(n_steps=4), STEPS, ValueError, "`graph` must be None or GraphOptions"),
        (CLOUD, GraphOptions(n_steps=4), STEPS, ValueError, "`n_steps` must be left out where no heat"),
        (CLOUD, GraphOptions(weights=np.ones(len(CLOUD))), STEPS, ValueError, "`weights` must be left out"),
        (
            MESH,
            GraphOptions(n_nodes=50, weights=np.ones(100)),
            HEAT,
            ValueError,
            "`n_nodes` must be 'auto' or 'all'",
        ),
        (TWO_PIECES, GraphOptions(n_nodes=3), HEAT, ValueError, "`n_nodes` must be large enough to span triangles"),
        (
            CLOUD,
            lambda points: points,
            STEPS,
            TypeError,
            "`graph` must be a function that returns a Graph. Got nda",
        ),
        (CLOUD, "knn", STEPS, TypeError, "`graph` must be None, GraphOptions, a Graph or a function"),
        (MESH, GraphOptions(dim=3), HEAT, ValueError, "`dim` must be 2 or None on a mesh"),
        (
            CLOUD,
            GraphOptions(kind="mesh"),
            STEPS,
            ValueError,
            "`kind` must be 'mesh' only where the space is a Tri",
        ),
        (CLOUD, GraphOptions(kind="mesh"), HEAT, ValueError, "`kind` must be 'mesh' only where the space is a Tri"),
        (MESH, GraphOptions(kind="mesh", metric=Sphere()), STEPS, ValueError, "`metric` must be None on a mesh"),
        (CLOUD[:300], GraphOptions(weights=np.ones(3)), HEAT, ValueError, r"`weights` must be .*\(300,\)"),
        (Graph.from_affinity(np.ones((4, 4))), None, STEPS, ValueError, "has no points"),
    ],
)
def test_spaces_and_graphs_that_do_not_go_together(space, graph, kernel, kind, message):
    with pytest.raises(kind, match=message):
        features(kernel, graph=graph).fit(space)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"kind": "edges"}, ValueError, "`kind` must be one of"),
        ({"n_nodes": "few"}, ValueError, r"`n_nodes` must be an integer in \[3, inf\) or one of 'auto', 'all'"),
        ({"n_nodes": 2}, ValueError, "`n_nodes` must be an integer"),
        ({"n_neighbors": 0}, ValueError, "`n_neighbors` must be an integer"),
        ({"density_correction": 2.0}, ValueError, "`density_correction` must be a number in"),
        ({"dim": 0}, ValueError, "`dim` must be an integer"),
        ({"metric": "sphere"}, TypeError, "`metric` must be None or a manifold"),
        ({"kind": "heat", "n_neighbors": 8}, ValueError, "`n_neighbors` must be left out with kind='heat'"),
        ({"kind": "mesh", "density_correction": 1.0}, ValueError, "`density_correction` must be left out with"),
        ({"kind": "knn", "n_steps": 8}, ValueError, "`n_steps` must be left out with kind='knn'"),
        ({"kind": "knn", "weights": [1.0]}, ValueError, "`weights` must be left out with kind='knn'"),
    ],
)
def test_bad_graph_options(options, kind, message):
    with pytest.raises(kind, match=message):
        GraphOptions(**options)


def test_points_outside_a_metric_are_refused():
    space = HyperbolicSpace(2)
    model = features(HeatKernel(0.3), graph=GraphOptions(metric=space))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few points in a large space
        model.fit(space.sample(300, seed=0))
    with pytest.raises(ValueError, match="`X` must be points of HyperbolicSpace"):
        model.transform([[2.0, 0.0]])


# ------------------------------------------------------------------------------------- functions as kernels
def gaussian(X, Y):
    return np.exp(-((X[:, None] - Y[None]) ** 2).sum(axis=-1) / 0.4)


def test_a_function_is_approximated_and_its_error_reported():
    model = features(gaussian).fit(Sphere().grid(400))
    exact = gaussian(NEW, NEW)
    found = relative_error(model.kernel_matrix(NEW), exact)
    assert found < 0.02
    line = next(line for line in model.summary().splitlines() if line.startswith("series"))
    assert "fitted to the given function, relative error" in line
    stated = float(line.split("relative error ")[1].split()[0])
    assert 0 < stated < 0.01
    assert (model.transform(NEW) >= 0).all()  # a Gaussian is a square of heat steps
    assert 0.5 < float(model.error_) / found < 2


@pytest.mark.filterwarnings("ignore:The function given as kernel")
def test_the_error_of_a_rough_function_is_known():
    """Its peak is narrower than a step. A spike at the nodes follows it there, and is 60 % off elsewhere."""

    def rough(X, Y):
        return np.exp(-np.arccos(np.clip(X @ Y.T, -1, 1)) / 0.2)

    model = features(rough).fit(Sphere().sample(1000, seed=0))
    found = relative_error(model.kernel_matrix(NEW), rough(NEW, NEW))
    assert found < 0.3
    assert 0.5 < float(model.error_) / found < 2


def test_the_error_of_a_rough_function_on_a_named_space_is_measured_between_new_points():
    """Even nodes have no close neighbours, so that a peak is followed at the nodes and not between them."""

    def rough(X, Y):
        return np.exp(-np.arccos(np.clip(X @ Y.T, -1, 1)) / 0.2)

    model = features(rough, graph=GraphOptions(n_nodes=1000)).fit(Sphere())
    found = relative_error(model.kernel_matrix(NEW), rough(NEW, NEW))
    stated = {line.split("  ")[0]: line for line in model.summary().splitlines()}
    at_nodes, between = (
        float(stated[name].split("relative error ")[1].split()[0].rstrip(","))
        for name in ("series", "between new points")
    )
    assert at_nodes < 0.7 * between  # what the error was before
    assert 0.8 < between / found < 1.25  # two draws of some hundred points
    assert 0.8 < float(model.error_) / found < 1.25


@pytest.mark.filterwarnings("ignore::manifoldrf.FeatureWarning")
@pytest.mark.parametrize(
    ("width", "skew", "options"),
    [(0.1, 0.0, {"n_features": 80}), (0.1, 0.0, {}), (0.025, 0.5, {})],
    ids=["few features", "enough features", "not symmetric"],
)
def test_the_error_between_new_points_counts_nothing_twice(width, skew, options):
    """It contains the errors of field and anchors; held-out nodes are holes in the fit of mixed features."""

    def smooth(X, Y):
        return np.exp((X @ Y.T - 1) / width) * (1 + skew * Y[:, 0])

    model = features(smooth, graph=GraphOptions(n_nodes=700), **options).fit(Sphere())
    found = relative_error(model.kernel_matrix(NEW), smooth(NEW, NEW))
    assert 0.6 < float(model.error_) / found < 1.6  # two draws of points; much of the error is at few of them


def test_a_tail_is_followed_by_a_long_series():
    """With twice as many powers as the graph has steps, this function was .25 off; with fewer nodes, .08."""

    def rough(X, Y):
        return np.exp(-np.arccos(np.clip(X @ Y.T, -1, 1)) / 0.4)

    model = features(rough).fit(Sphere().grid(2000))
    assert relative_error(model.kernel_matrix(NEW), rough(NEW, NEW)) < 0.08


def drifted_heat(X, Y, drift=0.3, t=0.05):
    """Heat on the circle with a current: the sum over k of exp(-k^2 t + i k (y - x - drift)) / 2 pi, to e^-100."""
    angles = [np.arctan2(points[:, 1], points[:, 0]) for points in (X, Y)]
    k = np.arange(1, 45)[:, None, None]
    waves = np.exp(-(k**2) * t) * np.cos(k * (angles[1] - angles[0][:, None] - drift))
    return (1 + 2 * waves.sum(axis=0)) / (2 * np.pi)


def scaled_heat(X, Y):
    return (2 + X[:, :1]) * Sphere().heat_kernel(X, Y, 0.2) * np.exp(Y[:, 2])


def circle(n, seed):
    angles = np.random.default_rng(seed).uniform(0, 2 * np.pi, n)
    return np.column_stack([np.cos(angles), np.sin(angles)])


@pytest.mark.parametrize(
    ("function", "points", "new"),
    [
        (drifted_heat, circle(300, 0), circle(200, 1)),
        (functools.partial(drifted_heat, drift=1.5), circle(300, 2), circle(200, 3)),
        (scaled_heat, Sphere().sample(600, seed=0), NEW),
    ],
    ids=["drift", "far drift", "scaled"],
)
def test_a_function_without_symmetry_is_a_product_of_left_and_right_features(function, points, new, global_seed):
    model = features(function, random_state=global_seed).fit(points)
    assert model.asymmetric_
    exact = function(new, new)
    left, right = (model.transform(new, side=side) for side in ("left", "right"))
    found = relative_error(left @ right.T, exact)
    symmetrised = relative_error((exact + exact.T) / 2, exact)  # the best that features of one side can do
    assert found < 0.02 < symmetrised
    # Held-out pairs and new pairs are draws of the same kind: 192 nodes and 200 points agree within this factor.
    assert 0.4 < float(model.error_) / found < 2.5
    assert (left >= 0).all()
    np.testing.assert_allclose(model.kernel_matrix(new), left @ right.T, rtol=0, atol=1e-12 * exact.max())
    ones = np.ones(len(new))
    np.testing.assert_allclose(model.matvec(new, ones), left @ (right.T @ ones), rtol=0, atol=1e-9 * exact.max())
    assert "right features are mixed, because the given function is not symmetric" in model.summary()


def test_right_features_of_a_point_do_not_depend_on_other_points_threads_or_the_file(tmp_path):
    model = features(drifted_heat).fit(circle(300, 0))
    new = circle(300, 1)
    whole = model.transform(new, side="right")
    parts = [model.transform(new[start : start + 7], side="right") for start in range(0, 300, 7)]
    np.testing.assert_array_equal(np.vstack(parts), whole)
    np.testing.assert_array_equal(model.set_params(n_jobs=1).transform(new, side="right"), whole)
    loaded = load(model.save(tmp_path / "drift.safetensors"))
    np.testing.assert_array_equal(loaded.transform(new, side="right"), whole)
    assert loaded.asymmetric_
    assert float(loaded.error_) == float(model.error_)
    with pytest.raises(ValueError, match=r"The function given as kernel is not symmetric: .* 'left' or 'right'"):
        loaded.transform(new)


def wave(X, Y):
    """sin(x - y) of angles: F(x, x) = 0."""
    return X[:, 1:] * Y[:, 0] - X[:, :1] * Y[:, 1]


@pytest.mark.parametrize(
    ("function", "height"),
    [
        (functools.partial(drifted_heat, drift=2.0), drifted_heat(circle(1, 0), circle(1, 0), 0.0)[0, 0]),
        (lambda X, Y: -drifted_heat(X, Y), drifted_heat(circle(1, 0), circle(1, 0), 0.0)[0, 0]),
        (wave, 1.0),
    ],
    ids=["drift", "negative", "antisymmetric"],
)
def test_a_function_without_symmetry_has_unit_height_if_normalised(function, height):
    model = ManifoldRandomFeatures(function, random_state=0).fit(circle(300, 0))
    found = model.kernel_matrix(circle(200, 1))
    assert relative_error(found, model.scale_ * function(circle(200, 1), circle(200, 1))) < 0.02
    # The largest value is missed by at most a gap between nodes: .1, which is .3 of the standard deviation.
    assert model.scale_ == pytest.approx(1 / height, rel=0.02)
    assert "times the function: the largest |F(x, .)| = 1 on average" in model.summary()


@pytest.mark.parametrize(
    ("mixing", "rule"), [(np.zeros((2, 3)), "`mixing` must be of shape"), (np.nan, "`mixing` must be finite")]
)
def test_a_mixing_matrix_that_does_not_fit_is_refused(mixing, rule):
    fitted = features(drifted_heat).fit(circle(300, 0)).map_
    bad = mixing if np.ndim(mixing) else np.full_like(fitted.mixing, mixing)
    with pytest.raises(ValueError, match=rule):
        dataclasses.replace(fitted, mixing=bad)


def test_a_function_without_symmetry_has_bounded_numbers_of_features_and_nodes(monkeypatch):
    monkeypatch.setattr(fitting, "_MOST_MIXED", 100)
    with pytest.raises(ValueError, match=r"`n_features` must be at most 100 .* Got 300 \(n_features='all'\)"):
        features(drifted_heat, n_features="all").fit(circle(300, 0))
    seen = []

    def watched(X, Y):
        seen.append(len(Y))
        return drifted_heat(X, Y)

    monkeypatch.setattr(fitting, "_MOST_NODES", 90)
    model = features(watched, n_features=40).fit(circle(300, 0))
    assert 90 in seen  # not 4 * 40
    assert 4 * 40 not in seen
    new = circle(200, 1)
    assert relative_error(model.kernel_matrix(new), drifted_heat(new, new)) < 0.02


def test_a_function_of_anything_but_the_space_is_refused_with_its_misfit():
    def noise(X, Y):
        return np.sin(1e4 * (X[:, :1] + 2 * Y[:, 1]))

    with pytest.raises(ValueError, match=r"`kernel` must be a function that features can follow.* miss by [0-9]+%"):
        features(noise).fit(Sphere().grid(400))


def test_a_function_without_symmetry_that_jumps_is_warned_of_with_its_misfit():
    def jumps(X, Y):  # jumps where the current crosses an axis
        return drifted_heat(X, Y) * np.sign(Y[:, 0] * Y[:, 1])

    with pytest.warns(FeatureWarning, match="miss the function given as kernel by [0-9]+% between held-out nodes"):
        model = features(jumps).fit(Sphere(dim=1).grid(300))
    new = circle(200, 1)
    found = relative_error(model.kernel_matrix(new), jumps(new, new))
    assert 0.4 < float(model.error_) / found < 2.5


def test_a_function_without_symmetry_is_called_so_where_its_features_are_shown_or_refused():
    model = features(drifted_heat).fit(circle(300, 0))
    name = r"a function without symmetry \(features of HeatKernel\(.*\), mixed\)"
    assert re.match(f"kernel +{name}", model.summary())
    assert re.search(name, model._repr_html_())
    with pytest.raises(ValueError, match=f"`model` must be .* Got {name} with two sides"):
        explore(model)
    pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"`features` must be .* not one with two sides"):
        import_module("manifoldrf.torch").ManifoldAttention(model, 2)


def test_a_gaussian_process_refuses_a_covariance_without_symmetry():
    with pytest.raises(ValueError, match="`kernel` must be a symmetric function"):
        ManifoldGaussianProcess(drifted_heat).fit(circle(300, 0), np.arange(300.0))


@pytest.mark.parametrize(
    ("kernel", "found"), [(drifted_heat, "those of a function whose values"), (CosineKernel(), r"CosineKernel\(")]
)
def test_ridge_regression_refuses_features_with_two_sides_before_they_are_fitted(kernel, found):
    stages = []
    model = ManifoldRidge(features(kernel, verbose=lambda what, done, total: stages.append(what)))
    with pytest.raises(
        ValueError, match=f"`features` must be features with one side in ManifoldRidge. Got .*{found}"
    ):
        model.fit(circle(300, 0), np.arange(300.0))
    assert "graph" in stages
    assert "anchors" not in stages


def test_a_function_that_no_heat_steps_follow_is_warned_of():
    with pytest.warns(FeatureWarning, match="is not a series of heat steps of this space: the closest is off by"):
        model = features(lambda X, Y: np.sign(X[:, :1] * Y[:, 0])).fit(Sphere().grid(400))
    assert float(model.error_) > 0.1


@pytest.mark.slow
def test_a_function_that_no_series_of_steps_follows_has_a_large_error_in_the_summary():
    def checkers(X, Y):  # no function of the distance
        return np.sign(X[:, :1]) * np.sign(Y[:, :1].T) * np.sign(X[:, 1:2]) * np.sign(Y[:, 1:2].T)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = features(checkers).fit(Sphere().grid(500))
    line = next(line for line in model.summary().splitlines() if line.startswith("series"))
    assert float(line.split("relative error ")[1].split()[0]) > 0.3


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda X, Y: np.full((len(X), len(Y)), np.nan), "a function with finite values"),
        (lambda X, Y: np.full((len(X), len(Y)), np.inf), "a function with finite values"),
        (lambda X, Y: np.ones(len(X)), "a function .* with a result of shape .* Got a result of shape"),
        (lambda X, Y: np.zeros((len(X), len(Y))), "a function that is not 0 everywhere. Got 0 for all of"),
        (
            lambda x, y: float(np.exp(-((x - y) ** 2).sum())),
            r"a function F\(X, Y\) of two arrays of points, of shapes \(n, d\)",
        ),
    ],
)
def test_functions_that_are_no_kernels(function, message):
    with pytest.raises(ValueError, match=f"`kernel` must be {message}"):
        features(function).fit(CLOUD[:300])


def test_a_function_of_one_argument_is_no_kernel():
    with pytest.raises(TypeError, match=r"`kernel` must be a function F\(X, Y\) of two arrays of points"):
        features(lambda x: x).fit(CLOUD[:300])


# --------------------------------------------------------------------------------------------------- summary
@pytest.mark.parametrize(
    ("kernel", "dim", "said"),
    [(None, 6, True), (None, 4, True), (None, 2, False), (HeatKernel(1.0), 6, True), (STEPS, 6, False)],
)
@pytest.mark.filterwarnings("ignore::manifoldrf.FeatureWarning", "ignore::manifoldrf.GraphWarning")
def test_the_summary_says_where_there_are_too_many_dimensions_for_a_heat_graph(kernel, dim, said):
    points = np.random.default_rng(0).normal(size=(300, dim))
    text = (
        ManifoldRandomFeatures(kernel, normalize=False, graph=GraphOptions(dim=dim), random_state=0)
        .fit(points)
        .summary()
    )
    assert (f"; no heat graph: {dim} dimensions are too many" in text) == said
    asked = GraphOptions(kind="knn", dim=dim)
    text = ManifoldRandomFeatures(kernel, normalize=False, graph=asked, random_state=0).fit(points).summary()
    assert "too many" not in text


@pytest.mark.parametrize(
    ("share", "said"),
    [
        pytest.param(None, False, marks=pytest.mark.slow),
        (0.09, False),
        (0.15, True),
        pytest.param(0.3, True, marks=pytest.mark.slow),
    ],
)
def test_the_summary_says_what_helps_a_poor_graph_before_a_warning_does(share, said):
    model = features(n_features=256).fit(CLOUD)
    model._error = dataclasses.replace(model.error_, graph=share), True
    assert ("; use more points or a wider kernel" in model.summary()) == said


def test_the_summary_names_what_was_fitted():
    model = features(n_features=256).fit(CLOUD)
    text = model.summary()
    for part in (
        "HeatKernel(t=0.1)",
        "manifold clock",
        f"heat graph, 1000 nodes, {model.graph_.n_steps} steps",
        "256, weights 'nnls'",
        "step, which needs no fit",
        str(model.error_),
    ):
        assert part in text
    assert [line.split()[-1] for line in text.splitlines() if line.startswith("dimension")] == ["2"]
    steps = features(STEPS, field="interpolated", n_starts=450).fit(Sphere().grid(500)).summary()
    for part in ("DiffusionKernel(tau=20.0", "graph clock", "nearest neighbours", "fitted to 450 nodes"):
        assert part in steps
    default = ManifoldRandomFeatures(random_state=0).fit(CLOUD[:200]).summary()
    assert "chosen: " in default
    assert "K(x, x) = 1 on average" in default


# ------------------------------------------------------------------------------------------------------- units
def test_a_graph_without_a_rule_for_new_points_has_features_of_them():
    graph = Graph.from_affinity(knn_graph(Sphere().grid(500)).affinity, points=Sphere().grid(500))
    model = features(STEPS).fit(graph)
    assert model.field_ != "step"
    assert float(model.error_) < 0.05
    with pytest.raises(ValueError, match="`field` must be other than 'step' on a graph without a rule"):
        features(STEPS, field="step").fit(graph)


@pytest.mark.parametrize("scale", [1e-40, 1e-3, 1e3, 1e40])
def test_a_chosen_kernel_does_not_depend_on_the_unit_of_the_points(scale):
    points = np.random.default_rng(0).normal(size=(200, 2))
    here, there = (ManifoldRandomFeatures(random_state=0).fit(unit * points) for unit in (1.0, scale))
    # The chosen time is rounded to three digits.
    np.testing.assert_allclose(there.transform(scale * points), here.transform(points), atol=0.02)
    assert np.mean(here.transform(points) ** 2 @ np.ones(here.n_features_out_)) == pytest.approx(1.0, rel=0.1)


def test_nodes_all_but_isolated_do_not_spoil_the_others():
    points = np.random.default_rng(0).normal(size=(600, 2))  # degrees from 1e-20 to 8
    model = features(STEPS).fit(points)
    found = model.transform(points)
    assert float(model.error_) < 0.1
    assert (found <= model.bound_).all()
    assert model.bound_.max() <= 1 + 1e-9  # no entry of a signature of exp(-20 L) is larger


def test_the_error_of_a_field_interpolated_on_a_mesh_is_that_of_its_faces():
    mesh = sphere_mesh(600)
    places = mesh.sample(200, seed=3).points
    out = places / np.linalg.norm(places, axis=1, keepdims=True)
    model = features(field="interpolated", n_features="all").fit(mesh)
    assert model.map_.field.rule == "barycentric"
    true = relative_error(model.kernel_matrix(places), Sphere().heat_kernel(out, out, T))
    assert 0.5 < float(model.error_) / true < 2


# Many dimensions


def descriptors(n=1500, dim=8, seed=0):
    """A cloud whose density varies over orders of magnitude."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, dim)) * np.exp(rng.normal(size=(n, 1)))


def test_above_five_dimensions_every_point_has_its_own_bandwidth():
    points = descriptors(600)
    fitted = ManifoldRandomFeatures(DiffusionKernel(40.0), normalize=False, n_features="all", random_state=0).fit(
        points
    )
    expected = knn_graph(points, bandwidth="local").affinity
    np.testing.assert_array_equal(fitted.graph_.affinity.toarray(), expected.toarray())
    assert "bandwidth local" in fitted.summary()
    median = GraphOptions(bandwidth="median")
    other = ManifoldRandomFeatures(
        DiffusionKernel(40.0), normalize=False, n_features="all", graph=median, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one width isolates the points far out
        other.fit(points)
    assert (other.graph_.affinity != expected).nnz > 0


def test_a_large_cloud_in_many_dimensions_gets_a_kernel_that_few_features_carry():
    """The squared width of signatures, the time of all steps, is that of 640 anchors at .8 of it apart."""
    points = np.random.default_rng(0).uniform(size=(6000, 6))
    source = find_nodes(points, None, GraphOptions(dim=6), 1, {})
    graph = knn_graph(points, bandwidth="local")
    steps = default_steps(graph, source)
    assert steps > 20
    np.testing.assert_allclose(graph.time(steps, 6), (source.sampling.volume / 640) ** (1 / 3) / 0.64, rtol=1e-12)
    few = find_nodes(points[:1000], None, GraphOptions(dim=6), 1, {})
    assert default_steps(knn_graph(points[:1000], bandwidth="local"), few) == 20  # all can be anchors


def test_a_chosen_number_of_features_stays_within_memory(monkeypatch):
    monkeypatch.setattr(fitting, "_MOST_BYTES", 8 * 2000 * 50)  # fifty dense rows
    with pytest.warns(FeatureWarning, match="n_features='auto' stops at 50 features"):
        fitted = ManifoldRandomFeatures(
            HEAT, normalize=False, graph=GraphOptions(n_nodes="all"), random_state=0
        ).fit(Sphere().grid(2000))
    assert fitted.n_features_out_ == 50


def test_no_anchor_is_wasted_on_nodes_that_stand_for_nothing():
    """A few points far out have edges of hardly any weight: the farthest of all, without a share of the space."""
    points = np.concatenate([Sphere().grid(400), 3.0 + np.random.default_rng(0).uniform(0, 4.0, (12, 3))])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = ManifoldRandomFeatures(
            DiffusionKernel(20.0),
            normalize=False,
            n_features=60,
            graph=GraphOptions(kind="knn", bandwidth=0.02),
            random_state=0,
        ).fit(points)
    measure = fitted.map_.problem.measure
    assert (measure == 0).any()
    assert (measure[fitted.anchors_] > 0).all()


# ------------------------------------------------------------------------------------ clouds that show no shape
@pytest.mark.parametrize(
    ("points", "text"),
    [
        (np.random.default_rng(0).normal(size=(10, 50)), "10 points are too few to find a dimension; "),
        (np.outer(np.arange(30.0), [1.0, -2.0]) + 5, "All points of X lie on one straight line"),
    ],
    ids=["few", "line"],
)
def test_clouds_that_show_little_are_said_to_do_so(points, text):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        fitted = features(None).fit(points)
        assert np.isfinite(fitted.transform(points)).all()
    assert any(str(item.message).startswith(text) for item in caught)


def test_constant_columns_change_nothing():
    wider = np.insert(CLOUD, 1, 7.0, axis=1)
    np.testing.assert_allclose(
        features().fit(wider).kernel_matrix(wider[:50]), features().fit(CLOUD).kernel_matrix(CLOUD[:50]), rtol=1e-8
    )


def test_noise_larger_than_the_structure_is_said_to_hide_it():
    rng = np.random.default_rng(0)
    points = np.pad(Sphere().sample(800, seed=0), ((0, 0), (0, 47))) + 0.5 * rng.normal(size=(800, 50))
    assert "no low-dimensional structure found" in features(None).fit(points).summary()
