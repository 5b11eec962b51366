"""Fields are what their method says, stay in range where it says so, and invent nothing."""

import numpy as np
import pytest
from oracles import cloud, sphere_mesh

from manifoldrf import DiffusionKernel, Graph, ManifoldWarning, TriangleMesh, grid_graph, mesh_graph
from manifoldrf._random import Streams
from manifoldrf.applications.interpolation import (
    FieldInterpolator,
    Problem,
    check_known,
    fill_by_gp,
    make_folds,
    nearest_known,
)

# One set of parameters for each method, so that nothing is chosen.
FIXED = {"kernel": {"tau": 3.0}, "gp": {"tau": 3.0, "noise_variance": 0.1}, "harmonic": {}, "biharmonic": {}}
METHODS = sorted(FIXED)
SLOW_AUTO = pytest.param("auto", marks=pytest.mark.slow)  # it runs all other methods
MESH = sphere_mesh(300)
GRAPH = mesh_graph(MESH, weights="unit")
RNG = np.random.default_rng(0)
KNOWN = np.arange(300) % 3 == 0
SMOOTH = np.column_stack([MESH.vertices[:, 0] * MESH.vertices[:, 1], MESH.vertices[:, 2]])  # (300, 2)


def fitted(method, space=MESH, values=SMOOTH, known=KNOWN, **changes):
    return FieldInterpolator(method, **(FIXED.get(method, {}) | changes)).fit(space, values, known)


def dense_laplacian(graph):
    affinity = graph.affinity.toarray()
    return np.diag(affinity.sum(axis=1)) - affinity


def with_fixed(matrix, values, known):
    """The dense solve: (matrix u) = 0 at unknown nodes."""
    result = values.copy()
    block, right = matrix[np.ix_(~known, ~known)], -matrix[np.ix_(~known, known)] @ values[known]
    result[~known] = np.linalg.solve(block, right)
    return result


def random_graph(seed, n=40):
    """A connected graph with affinities between 1e-6 and 1, and loops."""
    rng = np.random.default_rng(seed)
    affinity = np.where(rng.random((n, n)) < 0.08, 10.0 ** rng.uniform(-6, 0, (n, n)), 0.0)
    affinity[np.arange(n), (np.arange(n) + 1) % n] = 0.3  # a ring
    return Graph.from_affinity(affinity + affinity.T)


def two_spheres():
    """Two spheres that do not touch, the second without known values, and a vertex in no face."""
    vertices = np.vstack([MESH.vertices, MESH.vertices + 5.0, [[9.0, 9, 9]]])
    faces = np.vstack([MESH.faces, MESH.faces + 300])
    with pytest.warns(ManifoldWarning):
        graph = mesh_graph(TriangleMesh(vertices, faces), weights="unit")
    return graph


class TestMethods:
    def test_the_kernel_is_that_of_the_dense_matrix(self):
        K = DiffusionKernel(3.0).dense(GRAPH)
        expected = K[:, KNOWN] @ SMOOTH[KNOWN] / K[:, KNOWN].sum(axis=1)[:, None]
        # The action is right to 1e-14 times the norm 10 of the mask; masses are above .01.
        np.testing.assert_allclose(fitted("kernel").predict(), expected, atol=1e-10)

    def test_the_gaussian_process_is_that_of_the_direct_solve(self):
        K, noise = DiffusionKernel(3.0).dense(GRAPH), 0.1
        mean = SMOOTH[KNOWN].mean(axis=0)
        right = SMOOTH[KNOWN] - mean
        system = K[np.ix_(KNOWN, KNOWN)] + noise * np.eye(KNOWN.sum())
        expected = mean + K[:, KNOWN] @ np.linalg.solve(system, right)
        model = fitted("gp", noise_variance=noise)
        # A residual of 1e-4 |b| changes the weights by at most its 1 / noise, and no eigenvalue of K is above 1.
        bound = 1e-4 * np.linalg.norm(right, axis=0).max() / noise
        assert np.abs(model.predict() - expected).max() <= bound
        assert model.residual_ <= 1e-4

    def test_folds_and_noises_side_by_side_are_those_alone(self):
        problem = Problem(GRAPH, check_known(SMOOTH, KNOWN, 300), 1)
        stays = make_folds(KNOWN, RNG)[:2]
        together, _ = fill_by_gp(problem, stays, 3.0, (0.1, 1.0))
        ((alone,),), _ = fill_by_gp(problem, stays[1:], 3.0, (1.0,))
        np.testing.assert_allclose(together[1][1].values, alone.values, atol=1e-9)

    @pytest.mark.parametrize("weights", ["unit", "gaussian", "cotangent"])
    @pytest.mark.parametrize("method", ["harmonic", "biharmonic"])
    def test_solves_are_those_of_dense_matrices(self, method, weights):
        graph = mesh_graph(MESH, weights=weights)
        matrix = dense_laplacian(graph)
        if method == "biharmonic":
            mass = np.ones(300) if graph.weights is None else graph.weights
            matrix = matrix @ np.diag(1 / mass) @ matrix
        expected = with_fixed(matrix, SMOOTH, KNOWN)
        found = fitted(method, weights=weights).predict()
        np.testing.assert_allclose(found, expected, atol=1e-9)  # condition numbers are below 1e5

    def test_linear_functions_on_a_flat_mesh_are_reproduced_with_cotangents(self):
        side = 12
        points = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), axis=-1).reshape(-1, 2)
        corner = (np.arange(side - 1)[:, None] * side + np.arange(side - 1)).ravel()
        faces = np.vstack(
            [
                np.stack([corner, corner + side, corner + 1], axis=1),
                np.stack([corner + side, corner + side + 1, corner + 1], axis=1),
            ]
        )
        mesh = TriangleMesh(np.column_stack([points, np.zeros(len(points))]), faces)
        linear = 2.0 * points[:, 0] - 0.5 * points[:, 1] + 1.0
        # At the boundary the cotangent Laplacian is no mean: known there, for the square of it two rings deep.
        rim = np.minimum(points, side - 1 - points).min(axis=1)
        for method, depth in (("harmonic", 1), ("biharmonic", 2)):
            known = (rim < depth) | (np.arange(len(points)) % 17 == 0)
            found = fitted(method, mesh, linear, known, weights="cotangent").predict()
            np.testing.assert_allclose(found, linear, atol=1e-10)

    @pytest.mark.parametrize("method", [*METHODS, "auto"])
    def test_constants_are_reproduced(self, method):
        found = fitted(method, values=np.full((300, 2), [3.5, -2.0]), random_state=0).predict()
        np.testing.assert_allclose(found, np.full((300, 2), [3.5, -2.0]), rtol=1e-10)

    @pytest.mark.parametrize("method", ["kernel", "gp", "harmonic", "biharmonic"])
    def test_nodes_may_be_renumbered(self, method):
        order = np.random.default_rng(1).permutation(300)
        affinity = GRAPH.affinity[order][:, order]
        renumbered = fitted(method, Graph.from_affinity(affinity), SMOOTH[order], KNOWN[order]).predict()
        np.testing.assert_allclose(renumbered, fitted(method, GRAPH).predict()[order], atol=1e-9)

    @pytest.mark.parametrize("method", [*METHODS, SLOW_AUTO])
    def test_the_bits_do_not_depend_on_threads(self, method):
        mesh = sphere_mesh(700)
        # 5000 entries of the matrix times 31 columns, or 7 in each fold: enough for the action to take two threads.
        values = np.tile(mesh.vertices**3, (1, 2 if method == "auto" else 10))
        known = np.arange(0, 700, 4)
        one, two = (fitted(method, mesh, values, known, n_jobs=n, random_state=0).predict() for n in (1, 2))
        np.testing.assert_array_equal(one, two)

    @pytest.mark.parametrize("method", [*METHODS, SLOW_AUTO])
    def test_rows_of_unknown_nodes_are_never_read(self, method):
        rubbish = np.random.default_rng(0).choice([np.nan, np.inf, 1e300, -5.0], SMOOTH.shape)
        clean, other = (
            fitted(method, values=np.where(KNOWN[:, None], SMOOTH, rest), random_state=0).predict()
            for rest in (0.0, rubbish)
        )
        np.testing.assert_array_equal(clean, other)


class TestRange:
    @pytest.mark.parametrize("method", ["kernel", "harmonic"])
    @pytest.mark.parametrize("seed", range(2))
    def test_means_stay_in_the_convex_hull(self, method, seed):
        """The hull of points in the plane: every direction has its largest known value."""
        rng = np.random.default_rng(seed)
        values, known = rng.standard_normal((40, 2)), rng.random(40) < 0.3
        known[0] = True
        model = fitted(method, random_graph(seed), values, known, tau=float(10 ** rng.uniform(0, 2)))
        angles = np.linspace(0, 2 * np.pi, 64)
        axes = np.stack([np.cos(angles), np.sin(angles)])
        # Means are right to 1e-5 at the least mass that counts, and the values are of size 1.
        assert (model.predict() @ axes - (values[known] @ axes).max(axis=0)).max() <= 1e-4
        assert (model.predict() >= values[known].min(axis=0)).all()
        assert (model.predict() <= values[known].max(axis=0)).all()

    @pytest.mark.parametrize("method", ["gp", "biharmonic"])
    def test_slopes_are_followed_out_of_range(self, method):
        """The height of a sphere is known below .7 only; the cap rises above it."""
        height = MESH.vertices[:, 2]
        model = fitted(method, values=height, known=np.abs(height) < 0.7, tau=30.0, noise_variance=1e-4)
        assert model.predict().max() > 0.75

    def test_solves_keep_the_known_values(self):
        for method in ("harmonic", "biharmonic"):
            np.testing.assert_array_equal(fitted(method).predict()[KNOWN], SMOOTH[KNOWN])


class TestOutOfReach:
    def test_where_the_kernel_is_lost_the_nearest_known_value_stands(self):
        mesh = sphere_mesh(1500)
        known, values = mesh.vertices[:, 0] > 0, np.random.default_rng(0).standard_normal(1500)
        with pytest.warns(ManifoldWarning, match=r"of 1500 nodes are so far .*tau = 0.5 .*a larger tau"):
            model = fitted("kernel", mesh, values, known, tau=0.5)
        field, far = model.predict(), mesh.vertices[:, 0] < -0.9
        # From there it is 1.1 to the known half, 11 edges: weights below tau^11 / 11! = 1e-11.
        assert far.sum() > 50
        assert far.sum() < model.n_nearest_ < 700
        np.testing.assert_array_equal(field[far], values[nearest_known(model.graph_, known)[far]])
        assert field.min() >= values[known].min()
        assert field.max() <= values[known].max()

    @pytest.mark.parametrize("method", [*METHODS, "auto"])
    def test_components_without_a_known_value_are_nan_and_counted(self, method):
        graph, known = two_spheres(), np.arange(0, 300, 3)
        values = np.vstack([SMOOTH, SMOOTH, [[0.0, 0.0]]])
        with pytest.warns(ManifoldWarning, match="2 components, with 301 of 601 nodes") as caught:
            model = fitted(method, graph, values, known, random_state=0)
        assert sum(issubclass(w.category, ManifoldWarning) for w in caught) == 1
        found = model.predict()
        assert np.isnan(found[300:]).all()
        assert np.isfinite(found[:300]).all()
        assert model.n_empty_ == 301
        assert np.isnan(model.predict(graph.positions[400:402])).all()

    @pytest.mark.parametrize("method", ["kernel", "gp", "harmonic", "biharmonic"])
    def test_one_component_says_nothing_about_another(self, method):
        graph = two_spheres()
        values = np.vstack([SMOOTH, SMOOTH + 100.0, [[7.0, 7.0]]])
        both = fitted(method, graph, values, np.append(np.flatnonzero(KNOWN), [400, 600])).predict()
        np.testing.assert_allclose(both[:300], fitted(method, GRAPH).predict(), atol=1e-9)
        np.testing.assert_allclose(both[300:600], np.broadcast_to(values[400], (300, 2)), rtol=1e-9)
        np.testing.assert_allclose(both[600], [7.0, 7.0], rtol=1e-12)


class TestNewPoints:
    @pytest.mark.parametrize("method", METHODS)
    def test_at_vertices_it_is_the_field_of_the_nodes(self, method):
        model = fitted(method)
        np.testing.assert_allclose(model.predict(MESH.vertices), model.predict(), atol=1e-10)

    @pytest.mark.parametrize("method", ["kernel", "gp", "harmonic", "biharmonic"])
    def test_inside_a_face_it_lies_between_the_corners(self, method):
        model, places = fitted(method), MESH.sample(200, seed=0)
        corners = model.predict()[MESH.faces[places.faces]]  # (200, 3, 2)
        found = model.predict(places.points)
        assert (found >= corners.min(axis=1) - 1e-12).all()
        assert (found <= corners.max(axis=1) + 1e-12).all()

    def test_solves_are_mixed_linearly(self):
        model, places = fitted("harmonic"), MESH.sample(50, seed=0)
        expected = np.einsum("qc,qcd->qd", places.barycentric, model.predict()[MESH.faces[places.faces]])
        np.testing.assert_allclose(model.predict(places.points), expected, atol=1e-10)

    def test_the_kernel_mixes_numerator_and_mass(self):
        model, places = fitted("kernel"), MESH.sample(50, seed=0)
        K = DiffusionKernel(3.0).dense(GRAPH)[:, KNOWN]
        mixed = np.einsum("qc,qck->qk", places.barycentric, K[MESH.faces[places.faces]])
        expected = mixed @ SMOOTH[KNOWN] / mixed.sum(axis=1)[:, None]
        np.testing.assert_allclose(model.predict(places.points), expected, atol=1e-9)

    def test_points_off_the_surface_are_moved_to_it(self):
        model, places = fitted("kernel"), MESH.sample(20, seed=0)
        normals = MESH.face_normals()[places.faces]
        outward = np.sign((normals * places.points).sum(axis=1))[:, None] * normals
        moved = model.predict(places.points + 0.01 * outward)  # the sphere is convex: back to the same point
        np.testing.assert_allclose(moved, model.predict(places.points), atol=1e-9)

    @pytest.mark.parametrize("weights", ["unit", "gaussian"])
    def test_on_clouds_it_is_one_step_of_the_walk(self, weights):
        points, new = cloud(80, seed=2), cloud(10, seed=3)
        model = fitted("harmonic", points, points[:, :2], np.arange(80) % 2 == 0, weights=weights)
        nearest = np.argsort(np.linalg.norm(new[:, None] - points, axis=2), axis=1)[:, :8]
        gaps = np.linalg.norm(new[:, None] - points[nearest], axis=2)
        lengths = np.sort(np.linalg.norm(points[:, None] - points, axis=2), axis=1)[:, 1:9]
        shares = np.exp(-(gaps**2) / np.median(lengths**2)) if weights == "gaussian" else np.ones_like(gaps)
        expected = np.einsum("qk,qkc->qc", shares, model.predict()[nearest]) / shares.sum(axis=1)[:, None]
        np.testing.assert_allclose(model.predict(new), expected, rtol=1e-10)

    def test_a_point_on_a_node_has_its_value(self):
        points = cloud(80, seed=2)
        model = fitted("kernel", points, points[:, 0], np.arange(80) % 2 == 0)
        mixed = model.predict(np.vstack([points[5:7], cloud(1, seed=9)]))
        np.testing.assert_allclose(mixed[:2], model.predict()[5:7], rtol=1e-12)
        np.testing.assert_allclose(model.predict(points), model.predict(), rtol=1e-12)


class TestDirections:
    NORMALS = MESH.vertices

    @pytest.mark.parametrize("method", METHODS)
    def test_results_have_length_one(self, method):
        model = fitted(method, values=self.NORMALS, normalize=True)
        for found in (model.predict(), model.predict(MESH.sample(50, seed=0).points)):
            np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=1e-12)
        assert (model.predict() * self.NORMALS).sum(axis=1).mean() > 0.98

    def test_what_cancels_has_no_direction(self):
        path = Graph.from_affinity(np.diag([1.0, 1.0], 1) + np.diag([1.0, 1.0], -1))
        values = [[0.1, 0.7], [0.0, 0.0], [-0.1, -0.7]]
        found = fitted("harmonic", path, values, [0, 2], normalize=True).predict()
        assert np.isnan(found[1]).all()
        np.testing.assert_allclose(found[0], np.array([0.1, 0.7]) / np.sqrt(0.5), rtol=1e-12)


class TestChoice:
    def test_tau_is_the_one_with_the_least_error_of_the_table(self):
        model = FieldInterpolator("kernel", random_state=3).fit(MESH, SMOOTH, KNOWN)
        errors = {row["tau"]: row["error"] for row in model.cv_}
        assert model.tau_ == min(errors, key=errors.get)
        assert {0.25, 128.0} <= set(errors)

    @pytest.mark.parametrize("normalize", [False, True])
    def test_errors_are_those_at_known_nodes_left_out(self, normalize):
        """By hand, with dense matrices, for one tau of the table."""
        model = FieldInterpolator("kernel", random_state=3, normalize=normalize).fit(MESH, SMOOTH, KNOWN)
        K = DiffusionKernel(4.0).dense(GRAPH)
        squares, cosines = [], []
        for stays in make_folds(KNOWN, Streams.from_seed(3).generator("interpolation.folds")):
            out = KNOWN & ~stays
            found = K[np.ix_(out, stays)] @ SMOOTH[stays] / K[np.ix_(out, stays)].sum(axis=1)[:, None]
            squares += list(((found - SMOOTH[out]) ** 2).sum(axis=1))
            norms = np.linalg.norm(found, axis=1) * np.linalg.norm(SMOOTH[out], axis=1)
            cosines += list((found * SMOOTH[out]).sum(axis=1) / norms)
        expected = 1 - np.mean(cosines) if normalize else np.mean(squares) / SMOOTH[KNOWN].var(axis=0).sum()
        (row,) = [row for row in model.cv_ if row["tau"] == 4.0]
        np.testing.assert_allclose(row["error"], expected, rtol=1e-8)

    def test_folds_part_the_known_nodes(self):
        stays = make_folds(KNOWN, np.random.default_rng(0))
        left_out = KNOWN & ~stays
        assert stays.shape == (5, 300)
        np.testing.assert_array_equal(left_out.sum(axis=0), KNOWN.astype(int))
        np.testing.assert_array_equal(left_out.sum(axis=1), 20)

    def test_auto_takes_the_least_error_and_shows_all(self):
        model = FieldInterpolator(random_state=0).fit(MESH, SMOOTH, KNOWN)
        assert {row["method"] for row in model.cv_} == {"kernel", "harmonic", "biharmonic", "gp"}
        (row,) = [
            row
            for row in model.cv_
            if (row["method"], row["tau"], row["noise_variance"])
            == (model.method_, model.tau_, model.noise_variance_)
        ][-1:]
        others = [other["error"] for other in model.cv_ if other["method"] not in ("gp", model.method_)]
        assert row["error"] <= min(others)
        assert model.method_ in ("biharmonic", "gp")  # the field is smooth


class TestInterface:
    def test_masks_nodes_and_nans_say_the_same(self):
        values = np.where(KNOWN[:, None], SMOOTH, np.nan)
        ways = KNOWN, np.flatnonzero(KNOWN), None
        fields = [fitted("kernel", values=values, known=known).predict() for known in ways]
        np.testing.assert_array_equal(fields[0], fields[1])
        np.testing.assert_array_equal(fields[0], fields[2])

    @pytest.mark.parametrize("method", METHODS)
    def test_vectors_come_back_as_vectors(self, method):
        model = fitted(method, values=SMOOTH[:, 0])
        assert model.predict().shape == (300,)
        assert model.predict(MESH.vertices[:4]).shape == (4,)
        np.testing.assert_allclose(model.predict(), fitted(method).predict()[:, 0], atol=1e-3)

    def test_another_field_costs_no_new_choice(self):
        model = FieldInterpolator("kernel", random_state=0).fit(MESH, SMOOTH, KNOWN)
        tau, again = model.tau_, model.refit(SMOOTH**2, ~KNOWN)
        assert again is model
        expected = fitted("kernel", values=SMOOTH**2, known=~KNOWN, tau=tau).predict()
        np.testing.assert_array_equal(again.predict(), expected)

    def test_a_system_beyond_doubles_is_explained(self):
        """Affinities of 1e-200 leave nothing of their squares."""
        weak = Graph.from_affinity(np.diag([1.0, 1e-200, 1e-200], 1) + np.diag([1.0, 1e-200, 1e-200], -1))
        with pytest.raises(ValueError, match=r"biharmonic system is too ill-conditioned.*Remedies"):
            fitted("biharmonic", weak, np.arange(4.0), [0])
        np.testing.assert_allclose(fitted("harmonic", weak, np.arange(4.0), [0]).predict(), 0.0, atol=1e-12)


class TestBeatingTheMean:
    """Against the mean itself, whose error is computed here."""

    NOISE = np.random.default_rng(0).normal(size=(300, 3))

    def test_a_smooth_field_does_and_noise_does_not(self):
        assert fitted("kernel", tau="cv").beats_mean_ is True
        assert fitted("kernel", values=self.NOISE, tau="cv").beats_mean_ is False

    @pytest.mark.parametrize("offset", [0.0, 2.0])
    def test_directions_are_compared_with_the_direction_of_their_mean(self, offset):
        noise = self.NOISE + np.array([offset, 0.0, 0.0])
        model = fitted("kernel", values=noise, tau="cv", normalize=True)
        units = noise[KNOWN] / np.linalg.norm(noise[KNOWN], axis=1, keepdims=True)
        mean = units.mean(axis=0)
        of_mean = 1 - (units @ mean / np.linalg.norm(mean)).mean()
        assert model.beats_mean_ == (min(row["error"] for row in model.cv_) < of_mean)


def test_periodic_points_that_are_nodes_get_their_values():
    graph = grid_graph(8, 2)
    model = FieldInterpolator("harmonic").fit(graph, np.arange(64.0), np.arange(64) % 3 == 0)
    np.testing.assert_array_equal(model.predict(np.add(graph.positions[::3], [1.0, -2.0])), np.arange(0.0, 64, 3))


def test_unit_weights_do_not_depend_on_lengths():
    """Repeated places have no typical distance, and a point far off has affinities that underflow."""
    rng = np.random.default_rng(0)
    places = np.repeat(rng.normal(size=(60, 2)), 10, axis=0)
    with pytest.warns(ManifoldWarning, match="600 points coincide with another"):
        copies = FieldInterpolator("harmonic").fit(places, np.arange(600.0), np.arange(600) % 2 == 0)
    assert copies.n_empty_ == 0
    far = np.vstack([0.01 * rng.normal(size=(60, 2)), [[3.0, 3.0]]])
    model = FieldInterpolator("harmonic").fit(far, np.ones(61), np.arange(61) < 60)
    assert model.predict(far[60:]) == pytest.approx(1.0)
