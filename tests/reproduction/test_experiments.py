"""What the experiments compute, against formulas written out."""

import dataclasses
import hashlib

import numpy as np
import pytest
from scipy import linalg

from manifoldrf import (
    DiffusionKernel,
    Exact,
    HyperbolicSpace,
    ManifoldRandomFeatures,
    Sphere,
    compute_signatures,
    mesh_graph,
    relative_error,
)
from reproduction import attention, brodatz, hyperbolic, normals, surfaces, velocity
from reproduction.common import align, errors_of, reproducible
from reproduction.convert_meshes import merged, read, write
from reproduction.exhaustion import depth, graded_points, local_features
from reproduction.interpolation import LearnedSettings, as_paper, drawn_features, fit_power, growth_table
from reproduction.mesh_data import builtin_mesh
from reproduction.sequences import generate_cloth
from reproduction.surface_graphs import (
    FINGERPRINTS,
    SPHERE_TIME,
    SURFACES,
    fingerprint,
    paper_graph,
    reference_kernel,
)


# ------------------------------------------------------------------------------------------------------ surfaces
@pytest.mark.parametrize("name", SURFACES)
def test_the_recipe_of_the_first_table_is_that_of_the_estimator(name):
    """Nothing is set but the neighbours: 24 on the strip, 8 elsewhere."""
    neighbours = SURFACES[name][1]
    assert neighbours == (24 if name == "mobius" else 8)
    recipe = surfaces.SIZES["paper"].recipe(neighbours)
    assert repr(recipe.get_params()) == repr(
        ManifoldRandomFeatures.paper(graph__n_neighbors=neighbours).get_params()
    )
    graph = ManifoldRandomFeatures.paper().graph
    assert (graph.n_neighbors, graph.bandwidth) == (8, "mean")


def test_the_recipe_of_meshes_has_what_the_paper_states_for_them():
    recipe = LearnedSettings().recipe()
    assert (recipe.graph.n_neighbors, recipe.graph.bandwidth, recipe.n_features) == (16, "median", 256)
    assert (recipe.teacher.n_walks, recipe.teacher.p_halt, recipe.kernel.tau) == (10_000, 0.01, 20.0)
    field = recipe.field
    assert (field.epochs, field.batch, field.patience, field.hidden) == (1000, 32_768, None, (128, 128))
    assert (field.n_starts, field.learning_rate, field.threshold, field.small_share) == (1000, 1e-3, 0.1, 0.025)


def test_fingerprints_are_those_of_the_papers_kernels():
    """Within 1 % on graphs of the paper's size; on the strip with 12 neighbours."""
    for name, neighbours in {"ellipsoid": 8, "torus": 8, "mobius": 12}.items():
        row = fingerprint(name, neighbours, 4000, 20.0)
        assert row["fingerprint"] == pytest.approx(1e4 * FINGERPRINTS[name], rel=0.01)


def test_errors_at_nodes_are_those_of_the_paper():
    """Aligned, between all nodes; on the sphere against the analytic kernel at the time of the fingerprint."""
    config = dataclasses.replace(surfaces.SIZES["smoke"], n_nodes=500, n_walks=50, n_starts=60, epochs=1)
    surface = surfaces._Surface("sphere", 8, config)
    with reproducible():  # hardly trained
        recipe = config.recipe(8, random_state=0).fit(surface.points)
    assert (recipe.graph_.affinity != paper_graph("sphere", 500).affinity).nnz == 0
    row = surface.errors_at_nodes(recipe)
    found = recipe.kernel_matrix(surface.points)
    exact = Sphere().heat_kernel(surface.points, surface.points, 8 * SPHERE_TIME)  # as many steps on 500 nodes
    gap = found * np.linalg.norm(exact) / np.linalg.norm(found) - exact
    assert row["kernel"] == pytest.approx(np.linalg.norm(gap) / np.linalg.norm(exact), rel=1e-9)
    assert row["kernel_rmse"] == pytest.approx(1e4 * np.sqrt(np.mean(gap**2)), rel=1e-9)
    dense = linalg.expm(20.0 * (surface.graph.operator.toarray() - np.eye(500)))
    assert row["nodes"] == pytest.approx(relative_error(found, dense, alignment="frobenius"), rel=1e-6)
    # The torch program is the same network, in single precision.
    rows = surfaces.torch_values(recipe, surface.queries)
    np.testing.assert_allclose(rows, recipe.transform(surface.queries), atol=1e-5 * rows.max())


def test_references_are_analytic_on_the_sphere_and_converged_elsewhere():
    sphere, torus = Sphere(), SURFACES["torus"][0]
    places = sphere.sample(30, seed=1)
    np.testing.assert_array_equal(
        reference_kernel(sphere, places, 0.1, 500, 4), sphere.heat_kernel(places, places, 0.1)
    )
    places = torus.sample(40, seed=1)
    coarse, fine = (reference_kernel(torus, places, 0.1, n, 4) for n in (400, 800))
    assert relative_error(coarse, fine) < 0.02  # halves when the nodes double


def test_errors_are_those_of_their_definitions():
    rng = np.random.default_rng(0)
    exact = rng.random((20, 20))
    found = exact + 0.1 * rng.standard_normal((20, 20))
    errors = errors_of(found, exact, clamp=0.5)
    assert errors["r2"] == pytest.approx(1 - ((found - exact) ** 2).sum() / ((exact - exact.mean()) ** 2).sum())
    assert errors["median_re"] == pytest.approx(np.median(np.abs(found - exact) / np.maximum(exact, 0.5)))
    assert np.linalg.norm(align(3 * exact, exact) - exact) < 1e-12


# -------------------------------------------------------------------------------------------------------- meshes
@pytest.fixture(scope="module")
def torus():
    return normals._scene(normals.SIZES["smoke"], "torus", builtin_mesh("torus", 400).mesh, 0)


def test_the_exact_kernel_is_the_dense_matrix_and_all_features_make_it_up(torus):
    """K = exp(-20 L) on the edges; sums of the known normals, as in the paper."""
    graph = mesh_graph(torus.mesh)
    dense = linalg.expm(20.0 * (graph.operator.toarray() - np.eye(graph.n_nodes)))
    expected = dense @ (torus.known[:, None] * torus.values)
    found = as_paper(20.0, 64)["exact kernel"](torus)
    np.testing.assert_allclose(found, expected, atol=1e-9)
    everything = drawn_features(graph, 20.0, graph.n_nodes, 0)
    np.testing.assert_allclose(torus.fill_by(everything), expected, atol=1e-9)


def test_scores_are_mean_cosines_at_hidden_vertices(torus):
    assert torus.score(2 * torus.values) == pytest.approx(1.0)
    assert torus.score(-torus.values) == pytest.approx(-1.0)
    assert torus.score(np.full_like(torus.values, np.nan)) == 0.0
    assert round(0.2 * len(torus.known)) == torus.known.sum()


def test_velocities_are_weighted_means_and_points_on_faces_mix_their_corners():
    config = velocity.SIZES["smoke"]
    cloth = generate_cloth(1, n_frames=12, shape=(12, 10))
    scene = velocity.make_scene(config, cloth, 0, 200)
    assert len(scene.points) == 200
    constant = dataclasses.replace(scene, values=np.ones_like(scene.values))
    np.testing.assert_allclose(constant.fill_by(np.random.default_rng(0).random((200, 5))), 1.0)
    frame = int(velocity._frames(config, 12)[0])
    np.testing.assert_allclose(scene.values[:120, :3], cloth.velocity(frame))
    assert np.abs(scene.values[120:, :3]).max() <= np.abs(cloth.velocity(frame)).max() + 1e-12


def test_power_laws_are_found_and_extrapolated_rows_are_no_evidence():
    rows = [
        {"vertices": n, "method": "RFF 256", "prepare_s": 1e-6 * n**2, "interpolate_s": 1e-6 * n, "how": "measured"}
        for n in (100, 200, 400)
    ]
    rows.append(rows[-1] | {"vertices": 800, "interpolate_s": 99.0, "how": "extrapolated"})
    (line,) = growth_table(rows, "normals")
    assert (line["prepare"], line["interpolate"], line["paper_interpolate"]) == pytest.approx((2.0, 1.0, 1.06))
    assert fit_power([1, 10], [1.0, 100.0])[0] == pytest.approx(2.0)


def test_converted_meshes_come_back_with_the_same_bytes(tmp_path):
    mesh = builtin_mesh("torus", 300).mesh
    twice = np.vstack([mesh.vertices, mesh.vertices, [[9.0, 9, 9]]])
    faces = np.vstack([mesh.faces[::2], mesh.faces[1::2] + mesh.n_vertices])
    write(tmp_path / "a.ply", *merged(twice, faces))
    vertices, triangles = read(tmp_path / "a.ply")
    np.testing.assert_array_equal(vertices, mesh.vertices.astype(np.float32))
    np.testing.assert_array_equal(triangles, np.vstack([mesh.faces[::2], mesh.faces[1::2]]))
    write(tmp_path / "b.ply", *merged(vertices, triangles))
    sums = {hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("a.ply", "b.ply")}
    assert len(sums) == 1


# ---------------------------------------------------------------------------------------------------- attention
def test_attention_is_a_mean_of_visible_values_and_tuning_sees_no_hidden_one():
    config = dataclasses.replace(attention.SIZES["smoke"], n_tokens=300, n_features=16)
    task, hidden = attention.draw_task("mobius", config, 0)
    assert (len(task.visible), hidden.shape) == (120, (180, 2))
    constant = dataclasses.replace(task, known=np.ones_like(task.known))
    for name in (attention.LIBRARY, "exact heat", "RFF", "linear RBF"):
        filled = attention.tune(constant, attention.METHODS[name](constant))
        np.testing.assert_allclose(filled.values, 1.0, atol=1e-9, err_msg=name)
    tau = attention.TAUS[2]
    rows = attention.signatures(task.graph, tau, np.arange(300))
    np.testing.assert_allclose(rows @ rows.T, DiffusionKernel(tau).matrix(task.graph), atol=1e-8)


# ------------------------------------------------------------------------------------------------------- brodatz
def test_walks_of_windows_are_powers_of_the_walk_with_them_in_the_graph():
    """phi_2(x) W^(n - 2) phi_2(l), and votes by hand."""
    rng = np.random.default_rng(0)
    cloud, own = rng.standard_normal((200, 15)), rng.standard_normal((6, 15))
    views = type("V", (), {"unlabelled": cloud, "labelled": own, "test": own, "seed": 0})()
    stage = brodatz.Stage(views, dataclasses.replace(brodatz.Grids(), powers=(4,)))
    ((_, values),) = brodatz.own_settings(stage)
    graph = brodatz.knn_graph(cloud, n_neighbors=16, bandwidth="local")
    rows = brodatz._joined(graph, own).toarray()
    walk = graph.operator.toarray()
    np.testing.assert_allclose(values.labelled, rows @ walk @ walk @ rows.T, rtol=1e-4, atol=1e-8)
    votes = brodatz.vote(np.array([[3, 1, 1], [2, 5, 4], [7, 0, 7]]))
    assert votes.tolist() == [1, 2, 7]


# ---------------------------------------------------------------------------------------------------- hyperbolic
def test_a_larger_ball_is_closer_to_the_exact_kernel():
    found = []
    for radius, n in ((2.0, 400), (4.0, 900)):
        ball = HyperbolicSpace(3, radius)
        nodes = graded_points(ball, n, 1.5, 0)
        assert nodes.weights[depth(ball, nodes.points) < 1.5].sum() == pytest.approx(ball.ball(1.5).volume, rel=0.1)
        row = hyperbolic._errors(hyperbolic.SIZES["smoke"], ball, nodes, local_features(ball, nodes, 0.5), 0)
        found.append(row)
    assert found[1]["error"] < 0.3 * found[0]["error"]
    assert found[1]["unaligned"] < 0.1


def test_rows_of_the_library_without_a_network_are_exact_signatures():
    graph = paper_graph("sphere", 300)
    rows = compute_signatures(graph, DiffusionKernel(20.0), [0, 1], teacher=Exact(1e-14, "dense")).rows
    half = linalg.expm(10.0 * (graph.operator.toarray() - np.eye(300)))
    np.testing.assert_allclose(rows, half[:2], atol=1e-12)
