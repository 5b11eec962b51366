"""Spectral features and diffusion maps, against the heat kernel of the sphere and the kernel of the graph."""

import functools

import numpy as np
import pytest
from oracles import heat_kernel_at_points, sphere_mesh, uneven_sphere

from manifoldrf import (
    DiffusionKernel,
    FarQueryWarning,
    GraphOptions,
    HeatKernel,
    ManifoldRandomFeatures,
    PowerKernel,
    Sphere,
    knn_graph,
    relative_error,
)
from manifoldrf.baselines import DiffusionMap, SpectralFeatures
from manifoldrf.baselines import spectral as _eigen

T = 0.15
NODES = Sphere().grid(500)
NEW = Sphere().sample(150, seed=1)


@pytest.fixture(scope="module")
def heat():
    return SpectralFeatures(HeatKernel(T), n_features="all").fit(NODES)


@pytest.fixture(scope="module")
def steps():
    return SpectralFeatures(DiffusionKernel(10.0), n_features="all").fit(NODES)


def test_heat_features_are_those_of_the_sphere_at_nodes_and_at_new_points(heat):
    # The error is that of the graph; .012 measured at both.
    assert relative_error(heat.kernel_matrix(NODES), Sphere().heat_kernel(NODES, NODES, T)) < 0.015
    assert relative_error(heat.kernel_matrix(NEW), Sphere().heat_kernel(NEW, NEW, T)) < 0.015


def test_new_points_are_reached_by_one_step_of_the_walk(heat):
    """The kernel is P W^(n - 2) P^T by powers; eigenvalues below .1, damped, have powers below 1e-5."""
    assert relative_error(heat.kernel_matrix(NEW), heat_kernel_at_points(heat.graph_, NEW)) < 1e-5


def test_all_eigenvectors_give_the_kernel_of_manifold_features(heat):
    """The same graph, the same first step, the same units; manifold features drop 3e-6 of their entries."""
    own = ManifoldRandomFeatures(HeatKernel(T), normalize=False, n_features="all").fit(NODES)
    assert relative_error(heat.kernel_matrix(NEW), own.kernel_matrix(NEW)) < 1e-5


def test_new_points_in_steps_are_as_if_they_were_nodes():
    """Two ways to new points: eigenvectors after one step, and signatures interpolated in the log domain."""
    spectral = SpectralFeatures(DiffusionKernel(40.0), n_features="all").fit(NODES)
    own = ManifoldRandomFeatures(
        DiffusionKernel(40.0), normalize=False, n_features="all", field="interpolated"
    ).fit(NODES)
    assert (
        relative_error(spectral.kernel_matrix(NEW), own.kernel_matrix(NEW)) < 0.03
    )  # .016 measured: the sum of both errors
    # In absolute units: the mean of the diagonal is that of the nodes.
    nodes = np.diagonal(spectral.exact_kernel(NODES)).mean()
    assert np.diagonal(spectral.kernel_matrix(NEW)).mean() == pytest.approx(nodes, rel=0.03)


def test_exact_kernel_between_nodes_is_the_matrix_of_the_kernel(heat, steps):
    per_volume = HeatKernel(T).matrix(heat.graph_, per_volume=True)
    np.testing.assert_allclose(heat.exact_kernel(NODES), per_volume, rtol=1e-12)
    np.testing.assert_allclose(
        heat.kernel_matrix(NODES), per_volume, atol=1e-8 * per_volume.max()
    )  # tol of `matrix`
    in_steps = DiffusionKernel(10.0).matrix(steps.graph_)
    np.testing.assert_allclose(steps.exact_kernel(NODES[:30], NODES), in_steps[:30], rtol=1e-12)
    np.testing.assert_allclose(steps.kernel_matrix(NODES), in_steps, atol=1e-8 * in_steps.max())


@pytest.mark.parametrize("m", [20, 60, 150])
def test_the_error_is_that_of_the_eigenvalues_left_out(m):
    graph = knn_graph(NODES)
    features = SpectralFeatures(DiffusionKernel(10.0), n_features=m).fit(graph)
    heights = np.sort(np.exp(10 * (np.linalg.eigvalsh(graph.operator.toarray()) - 1)))[::-1]
    left_out = np.linalg.norm(features.kernel_matrix(NODES) - features.exact_kernel(NODES))
    assert left_out == pytest.approx(np.sqrt((heights[m:] ** 2).sum()), rel=1e-6)  # `matrix` is exact to 1e-10
    np.testing.assert_allclose(np.exp(10 * (features.eigenvalues_ - 1)), heights[:m], rtol=1e-10)


def test_new_points_lose_as_little_as_nodes_by_leaving_out_eigenvectors(heat):
    few = SpectralFeatures(HeatKernel(T), n_features=40).fit(NODES)
    np.testing.assert_allclose(few.exact_kernel(NEW), heat.kernel_matrix(NEW), rtol=1e-9, atol=1e-12)
    at_nodes = relative_error(few.kernel_matrix(NODES), few.exact_kernel(NODES))
    at_new = relative_error(few.kernel_matrix(NEW), few.exact_kernel(NEW))
    assert 1e-4 < at_new < 1.5 * at_nodes  # the same eigenvalues are missing


def test_features_of_nodes_are_continued(heat):
    """On a heat graph the step from a place beside a node leads to the features of the node itself."""
    beside = NODES[:50] + 1e-9
    np.testing.assert_array_equal(heat.transform(NODES[:50]), heat.embedding_[:50])
    large = heat.eigenvalues_ > 0.1
    scale = np.abs(heat.embedding_).max()
    np.testing.assert_allclose(heat.transform(beside)[:, large], heat.embedding_[:50, large], atol=1e-6 * scale)
    assert np.isfinite(heat.transform(NEW)).all()  # small eigenvalues are not divided by


def test_lanczos_and_dense_eigenvectors_give_the_same_features(monkeypatch):
    dense = SpectralFeatures(HeatKernel(T), n_features=49).fit(NODES)
    monkeypatch.setattr(_eigen, "_DENSE_NODES", 0)
    iterated = SpectralFeatures(HeatKernel(T), n_features=49).fit(NODES)
    # Kernels, not features: eigenspaces of the sphere have many bases.
    np.testing.assert_allclose(
        iterated.kernel_matrix(NEW), dense.kernel_matrix(NEW), atol=1e-10 * dense.kernel_matrix(NEW).max()
    )
    np.testing.assert_array_equal(
        SpectralFeatures(HeatKernel(T), n_features=49).fit(NODES).embedding_, iterated.embedding_
    )


def test_both_ends_of_the_spectrum_count_where_the_kernel_is_even(monkeypatch):
    monkeypatch.setattr(_eigen, "_DENSE_NODES", 0)
    circle = knn_graph(Sphere(dim=1).grid(60), n_neighbors=2)  # without odd cycles: the spectrum is symmetric
    features = SpectralFeatures(PowerKernel(4), n_features=10).fit(circle)
    values = np.sort(features.eigenvalues_)
    np.testing.assert_allclose(values[:5], -values[:4:-1], rtol=1e-10)  # as many at both ends


def test_every_kind_of_space_can_be_fitted():
    options = GraphOptions(n_nodes=500)
    for space in (Sphere(), sphere_mesh(500), knn_graph(NODES)):
        graph = options if isinstance(space, Sphere) else None
        features = SpectralFeatures(HeatKernel(0.3), n_features=60, graph=graph).fit(space)
        assert features.n_features_in_ == 3
        exact = Sphere().heat_kernel(NEW, NEW, 0.3)
        assert relative_error(features.kernel_matrix(NEW), exact) < 0.1  # a graph of 8 neighbours: .07


def test_functions_become_series():
    features = SpectralFeatures(lambda x, y: np.exp(2 * (x @ y.T - 1)), n_features=60, random_state=0).fit(NODES)
    assert relative_error(features.kernel_matrix(NEW), np.exp(2 * (NEW @ NEW.T - 1))) < 0.1


def test_parameters_of_the_kernel_can_be_set():
    features = SpectralFeatures(HeatKernel(T)).set_params(kernel__t=0.3)
    assert features.kernel == HeatKernel(0.3)
    assert features.get_params()["kernel"] == HeatKernel(0.3)
    assert features.fit(NODES).kernel_ == HeatKernel(0.3)
    assert features.n_features_out_ == 500  # fewer than 512 nodes


def test_kernels_without_real_features_are_refused():
    with pytest.raises(ValueError, match="`kernel` must be positive semi-definite, or it has no real features"):
        SpectralFeatures(PowerKernel(1), n_features="all").fit(NODES)


def test_features_fade_away_from_the_space(heat):
    with pytest.warns(FarQueryWarning, match="1 of 1 points are away from the space"):
        far = heat.transform([[0.0, 0.0, 3.0]])
    assert (far == 0).all()


# ------------------------------------------------------------------------------------------------- diffusion maps
@pytest.fixture(scope="module")
def diffusion():
    return DiffusionMap(n_features="all", t=T).fit(NODES)


def test_the_diffusion_map_is_the_heat_kernel_of_the_sphere(diffusion):
    # The walk to 32 neighbours is a coarse heat flow, and the volume is estimated: .035 measured.
    assert relative_error(diffusion.kernel_matrix(NODES), Sphere().heat_kernel(NODES, NODES, T)) < 0.06
    assert relative_error(diffusion.kernel_matrix(NEW), Sphere().heat_kernel(NEW, NEW, T)) < 0.06


def test_the_density_of_the_points_does_not_matter():
    cloud = uneven_sphere(1500, np.random.default_rng(0))
    exact = Sphere().heat_kernel(NEW, NEW, 0.3)
    corrected = DiffusionMap(n_features=60, t=0.3).fit(cloud)
    plain = DiffusionMap(n_features=60, t=0.3, graph=functools.partial(knn_graph, n_neighbors=32, self_loops=True))
    found = relative_error(corrected.kernel_matrix(NEW), exact, alignment="frobenius")
    assert 2 * found < relative_error(plain.fit(cloud).kernel_matrix(NEW), exact, alignment="frobenius")


def test_coordinates_are_eigenvectors_of_the_walk_after_its_steps(diffusion):
    graph, m = diffusion.graph_, 30
    walk = graph.affinity / graph.degrees[:, None]
    values = diffusion.eigenvalues_[:m]
    functions = diffusion.embedding_[:, :m] / values ** (diffusion.steps_ / 2)
    np.testing.assert_allclose(walk @ functions, functions * values, atol=1e-10 * np.abs(functions).max())
    assert np.ptp(functions[:, 0]) < 1e-10 * functions[0, 0]  # psi_0
    volumes = graph.degrees / graph.degrees.sum() / functions[0, 0] ** 2  # psi_0 is one over the root of the volume
    np.testing.assert_allclose(functions.T * volumes @ functions, np.eye(m), atol=1e-10)


def test_the_error_of_a_short_diffusion_map_is_that_of_the_terms_left_out(diffusion):
    short = DiffusionMap(n_features=20, t=T).fit(NODES)
    rest = diffusion.embedding_[:, 20:]
    left_out = diffusion.exact_kernel(NODES) - short.kernel_matrix(NODES)
    np.testing.assert_allclose(left_out, rest @ rest.T, atol=1e-9 * left_out.max())


def test_time_and_steps_are_two_names_of_one_thing(diffusion):
    again = DiffusionMap(n_features="all", steps=diffusion.steps_).fit(NODES)
    np.testing.assert_array_equal(again.embedding_, diffusion.embedding_)
    assert DiffusionMap(n_features=5).fit(NODES).steps_ == 20


def test_the_constant_can_be_left_out(diffusion):
    without = DiffusionMap(n_features="all", t=T, constant=False).fit(NODES)
    np.testing.assert_array_equal(without.embedding_, diffusion.embedding_[:, 1:])
    constant = diffusion.embedding_[0, 0] ** 2  # one over the volume
    np.testing.assert_allclose(without.exact_kernel(NEW), diffusion.exact_kernel(NEW) - constant, atol=1e-9)


def test_far_points_are_told_how_far_they_are(heat):
    np.testing.assert_allclose(heat.distance_to_space(2 * NODES[:5]), 1.0, rtol=1e-12)
