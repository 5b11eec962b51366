"""Triangle meshes against exact values, brute force, and every kind of broken file."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import trimesh
from scipy.stats import chi2

from manifoldrf.geometry.meshes import TriangleMesh

# A unit cube with outward faces: corners by binary digits x y z, two triangles a side.
CUBE_VERTICES = np.array([[x, y, z] for x in (0.0, 1.0) for y in (0.0, 1.0) for z in (0.0, 1.0)])
CUBE_FACES = np.array(
    [
        *([0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5]),
        *([0, 4, 5], [0, 5, 1], [2, 3, 7], [2, 7, 6]),
        *([0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]),
    ]
)


@pytest.fixture
def cube():
    return TriangleMesh(CUBE_VERTICES, CUBE_FACES)


@pytest.fixture
def tetrahedron():
    vertices = [[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]
    return TriangleMesh(vertices, [[0, 1, 2], [0, 3, 1], [0, 2, 3], [1, 3, 2]])


def sphere(subdivisions=3):
    made = trimesh.creation.icosphere(subdivisions=subdivisions)
    return TriangleMesh(made.vertices, made.faces)


def strip(n=24, *, twisted):
    """A band of 2 n triangles around a circle, with or without a half twist."""
    angle = np.linspace(0.0, 2.0 * np.pi, n, endpoint=False)
    lift = angle / 2 if twisted else np.full(n, np.pi / 2)
    rims = [
        np.column_stack(
            [(1 + w * np.cos(lift)) * np.cos(angle), (1 + w * np.cos(lift)) * np.sin(angle), w * np.sin(lift)]
        )
        for w in (-0.3, 0.3)
    ]
    faces = []
    for i in range(n):
        j = (i + 1) % n
        swap = twisted and j == 0  # the half twist joins each rim to the other
        a, b, c, d = i, n + i, n + j if not swap else j, j if not swap else n + j
        faces += [[a, d, c], [a, c, b]]
    return TriangleMesh(np.concatenate(rims), faces)


def brute_force_distance(points, corners):
    """Distance to the nearest of all triangles, by the sides and by the planes seen from above."""
    best = np.full(len(points), np.inf)
    for a, b, c in corners:
        for start, end in ((a, b), (b, c), (c, a)):
            side = end - start
            part = np.clip((points - start) @ side / max(side @ side, 1e-300), 0.0, 1.0)
            best = np.minimum(best, np.linalg.norm(points - start - part[:, None] * side, axis=1))
        normal = np.cross(b - a, c - a)
        if normal @ normal > 0.0:
            turns = [np.cross(v - u, points - u) @ normal >= 0 for u, v in ((a, b), (b, c), (c, a))]
            height = np.abs((points - a) @ normal) / np.linalg.norm(normal)
            best = np.where(np.all(turns, axis=0), np.minimum(best, height), best)
    return best


def trimesh_edge_counts(mesh):
    """Number of faces at each edge, by an independent route."""
    sides = np.sort(trimesh.Trimesh(mesh.vertices, mesh.faces, process=False).edges, axis=1)
    return np.unique(sides, axis=0, return_counts=True)[1]


def assert_places(mesh, sample):
    """The three descriptions of each place agree, and lie in the triangle."""
    assert (sample.barycentric >= 0.0).all()
    np.testing.assert_allclose(sample.barycentric.sum(axis=1), 1.0, rtol=0, atol=1e-15)
    combined = np.einsum("pc,pcd->pd", sample.barycentric, mesh.vertices[mesh.faces[sample.faces]])
    np.testing.assert_array_equal(sample.points, combined)


class TestConstruction:
    def test_arrays_are_float64_and_int64_copies_that_cannot_be_changed(self):
        vertices = np.asarray(CUBE_VERTICES, dtype=np.float32)
        own = [CUBE_VERTICES.copy(), CUBE_FACES.copy()]
        mesh = TriangleMesh(vertices, CUBE_FACES.astype(np.uint8))
        assert mesh.vertices.dtype == np.float64
        assert mesh.faces.dtype == np.int64
        mesh = TriangleMesh(*own)
        own[0][0] = 7.0
        own[1][0] = 0
        np.testing.assert_array_equal(mesh.vertices, CUBE_VERTICES)
        np.testing.assert_array_equal(mesh.faces, CUBE_FACES)
        for array in (mesh.vertices, mesh.faces):
            with pytest.raises(ValueError, match="read-only"):
                array[0] = 0

    def test_faces_stored_twice_count_once(self, cube):
        # Both sides of every face, and half of the faces once more, turned and reversed.
        stored = np.concatenate([CUBE_FACES, CUBE_FACES[:, ::-1], CUBE_FACES[:6, [1, 2, 0]]])
        with pytest.warns(UserWarning, match="18 faces are left out"):
            mesh = TriangleMesh(CUBE_VERTICES, stored)
        np.testing.assert_array_equal(mesh.faces, CUBE_FACES)
        assert mesh.area == cube.area
        assert mesh.report() == cube.report()


class TestAreasAndNormals:
    def test_cube(self, cube):
        np.testing.assert_array_equal(cube.face_areas(), np.full(12, 0.5))
        assert cube.area == 6.0
        middle = CUBE_VERTICES[CUBE_FACES].mean(axis=1) - 0.5
        outward = np.where(np.abs(middle) == 0.5, np.sign(middle), 0.0)
        np.testing.assert_array_equal(cube.face_normals(), outward)
        # A corner touches one or two of the two triangles on each of its three sides.
        touching = np.bincount(CUBE_FACES.ravel())
        np.testing.assert_allclose(cube.vertex_areas(), touching / 6.0, rtol=1e-15)

    def test_sphere(self):
        mesh = sphere(4)
        assert mesh.area == pytest.approx(4 * np.pi, rel=2e-3)
        assert mesh.vertex_areas().sum() == pytest.approx(mesh.area, rel=1e-13)
        np.testing.assert_allclose(np.linalg.norm(mesh.vertex_normals(), axis=1), 1.0, rtol=1e-14)
        # Normals converge to first order where triangles differ in shape: 0.0054 at an edge length of 0.07.
        np.testing.assert_allclose(mesh.vertex_normals(), mesh.vertices, atol=6e-3)

    def test_vertex_normals_weigh_faces_by_area(self):
        vertices = [[0, 0, 0], [3, 0, 0], [0, 1, 0], [0, 0, 1]]  # areas 3/2 (up) and 1/2 (along x)
        mesh = TriangleMesh(vertices, [[0, 1, 2], [0, 2, 3]])
        np.testing.assert_allclose(mesh.vertex_normals()[0], np.array([1, 0, 3]) / np.sqrt(10), rtol=1e-15)

    def test_zero_area_faces_change_nothing(self, cube):
        flat = [[0, 0, 1], [2, 2, 2], [0, 8, 7]]  # repeated corners, and three points on a diagonal
        vertices = np.concatenate([CUBE_VERTICES, [[0.5, 0.5, 0.5]]])
        mesh = TriangleMesh(vertices, np.concatenate([CUBE_FACES, flat]))
        np.testing.assert_array_equal(mesh.face_areas()[12:], 0.0)
        np.testing.assert_array_equal(mesh.face_normals()[12:], 0.0)
        np.testing.assert_array_equal(mesh.vertex_areas()[:8], cube.vertex_areas())
        np.testing.assert_array_equal(mesh.vertex_normals()[:8], cube.vertex_normals())
        np.testing.assert_array_equal(mesh.vertex_normals()[8], 0.0)

    def test_unreferenced_vertices_have_zero_area_and_zero_normal(self, cube):
        mesh = TriangleMesh(np.concatenate([CUBE_VERTICES, [[9, 9, 9]]]), CUBE_FACES)
        assert mesh.vertex_areas()[8] == 0.0
        np.testing.assert_array_equal(mesh.vertex_normals()[8], 0.0)
        np.testing.assert_array_equal(mesh.vertex_normals()[:8], cube.vertex_normals())

    @pytest.mark.parametrize("exponent", [-480, 480])
    def test_any_unit_of_length_gives_the_same_digits(self, cube, exponent):
        unit = 2.0**exponent
        mesh = TriangleMesh(CUBE_VERTICES * unit, CUBE_FACES)
        np.testing.assert_array_equal(mesh.face_areas(), cube.face_areas() * unit**2)
        np.testing.assert_array_equal(mesh.vertex_normals(), cube.vertex_normals())
        np.testing.assert_array_equal(mesh.sample(20, seed=1).points, cube.sample(20, seed=1).points * unit)
        queries = np.random.default_rng(0).normal(size=(20, 3))
        found = mesh.closest_points(queries * unit).points
        np.testing.assert_array_equal(found, cube.closest_points(queries).points * unit)
        assert mesh.report() == cube.report()


class TestTopology:
    def test_edges_are_unique_sorted_and_proper(self, tetrahedron):
        expected = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
        np.testing.assert_array_equal(tetrahedron.edges, expected)
        mesh = TriangleMesh(tetrahedron.vertices, [[0, 1, 2], [3, 3, 1], [2, 2, 2]])
        np.testing.assert_array_equal(mesh.edges, [[0, 1], [0, 2], [1, 2], [1, 3]])

    @pytest.mark.parametrize(
        ("mesh", "components", "loops", "closed"),
        [
            (sphere(2), 1, 0, True),
            (strip(twisted=False), 1, 2, False),
            (strip(twisted=True), 1, 1, False),
            (TriangleMesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]]), 1, 1, False),
        ],
        ids=["sphere", "cylinder", "Moebius strip", "triangle"],
    )
    def test_known_shapes(self, mesh, components, loops, closed):
        report = mesh.report()
        assert (report.components, report.boundary_loops, mesh.is_closed) == (components, loops, closed)
        assert (report.non_manifold_edges, report.degenerate_faces, report.unreferenced_vertices) == (0, 0, 0)

    def test_three_faces_on_an_edge(self):
        vertices = [[0, 0, 0], [0, 0, 1], [1, 0, 0], [-1, 1, 0], [-1, -1, 0]]
        mesh = TriangleMesh(vertices, [[0, 1, 2], [0, 1, 3], [0, 1, 4]])
        assert mesh.report().non_manifold_edges == 1
        assert not mesh.is_closed

    def test_parts_that_meet_in_a_vertex_only_have_their_own_loops(self):
        vertices = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0]]
        mesh = TriangleMesh(vertices, [[0, 1, 2], [0, 3, 4]])
        assert mesh.report().boundary_loops == 2
        assert mesh.report().components == 1

    def test_holes_that_touch_in_a_vertex_are_one_loop(self):
        ball = sphere(2)
        around = np.flatnonzero((ball.faces == 0).any(axis=1))
        shared = [len(np.intersect1d(ball.faces[around[0]], ball.faces[face])) for face in around]
        opposite = around[shared.index(1)]  # touches the first face in the vertex only
        mesh = TriangleMesh(ball.vertices, np.delete(ball.faces, [around[0], opposite], axis=0))
        assert mesh.report().boundary_loops == 1

    def test_degenerate_faces_are_counted_and_open_no_hole(self):
        mesh = TriangleMesh(CUBE_VERTICES, np.concatenate([CUBE_FACES, [[0, 0, 1], [4, 4, 4]]]))
        report = mesh.report()
        assert (report.degenerate_faces, report.boundary_loops, report.non_manifold_edges) == (2, 0, 0)
        assert mesh.is_closed

    @pytest.mark.parametrize("unit", [1e-30, 1e30])
    def test_flatness_is_measured_against_the_longest_side(self, unit):
        for height, degenerate in ((0.0, 1), (1e-13, 1), (1e-10, 0), (1.0, 0)):
            vertices = np.array([[0, 0, 0], [1, 0, 0], [0.4, height, 0]]) * unit
            assert TriangleMesh(vertices, [[0, 1, 2]]).report().degenerate_faces == degenerate


class TestSampling:
    def test_faces_are_hit_in_proportion_to_their_area(self):
        rng = np.random.default_rng(3)
        mesh = TriangleMesh(rng.normal(size=(60, 3)), np.arange(60).reshape(20, 3))
        n = 200_000
        hits = np.bincount(mesh.sample(n, seed=0).faces, minlength=20)
        expected = n * mesh.face_areas() / mesh.area
        statistic = ((hits - expected) ** 2 / expected).sum()
        assert statistic < chi2.ppf(1 - 1e-6, df=19)  # fails by chance once in a million seeds

    def test_points_are_uniform_within_a_face(self):
        mesh = TriangleMesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]])
        n = 100_000
        sample = mesh.sample(n, seed=1)
        # Cut the triangle into four equal ones: the three corners and the middle.
        corner = (sample.barycentric > 0.5).sum(axis=0)
        hits = np.append(corner, n - corner.sum())
        statistic = ((hits - n / 4) ** 2 / (n / 4)).sum()
        assert statistic < chi2.ppf(1 - 1e-6, df=3)

    def test_the_three_descriptions_agree(self, cube):
        assert_places(cube, cube.sample(1000, seed=2))

    def test_the_seed_decides(self, cube):
        first, again, other = (cube.sample(50, seed=seed).points for seed in (5, 5, 6))
        np.testing.assert_array_equal(first, again)
        assert (first != other).any(axis=1).all()

    def test_faces_without_area_are_never_hit(self):
        faces = np.concatenate([[[0, 0, 1]], CUBE_FACES, [[1, 1, 2], [3, 3, 3]]])
        hit = np.unique(TriangleMesh(CUBE_VERTICES, faces).sample(5000, seed=0).faces)
        np.testing.assert_array_equal(hit, np.arange(1, 13))

    def test_a_mesh_without_area_cannot_be_sampled(self):
        with pytest.raises(ValueError, match="`mesh` must be of positive area"):
            TriangleMesh(CUBE_VERTICES, [[0, 0, 1]]).sample(3)


class TestClosestPoints:
    def check(self, mesh, queries):
        found = mesh.closest_points(queries)
        assert_places(mesh, found)
        size = np.abs(mesh.vertices).max()
        exact = brute_force_distance(queries, mesh.vertices[mesh.faces])
        np.testing.assert_allclose(
            np.linalg.norm(found.points - queries, axis=1), exact, rtol=1e-12, atol=1e-14 * size
        )

    @pytest.mark.parametrize("spread", [0.01, 1.0, 30.0])
    def test_sphere_against_brute_force(self, spread):
        mesh = sphere(2)
        rng = np.random.default_rng(0)
        queries = mesh.vertices[rng.integers(0, mesh.n_vertices, 200)] + spread * rng.normal(size=(200, 3))
        self.check(mesh, queries)

    @pytest.mark.parametrize("thinness", [1e-2, 1e-4, 1e-7])
    def test_long_thin_triangles_among_small_ones_against_brute_force(self, thinness):
        rng = np.random.default_rng(1)
        start, along = rng.normal(size=(2, 120, 3))
        needles = np.stack([start, start + along, start + 0.5 * along + thinness * rng.normal(size=(120, 3))], 1)
        crumbs = rng.normal(size=(120, 1, 3)) + 1e-3 * rng.normal(size=(120, 3, 3))
        corners = np.concatenate([needles, crumbs])
        mesh = TriangleMesh(corners.reshape(-1, 3), np.arange(720).reshape(240, 3))
        near = corners[rng.integers(0, 240, 150)].mean(axis=1) + 0.05 * rng.normal(size=(150, 3))
        self.check(mesh, np.concatenate([near, 3.0 * rng.normal(size=(150, 3))]))

    def test_a_face_is_found_behind_many_with_nearer_centroids(self):
        """Twenty triangles above the origin, and one of their size that is nearer but centred beside it."""
        angles = 2 * np.pi * np.arange(3) / 3
        corners = 0.95 * np.column_stack([np.cos(angles), np.sin(angles), np.zeros(3)])
        above = corners + np.array([[[0.0, 0.0, 0.3 + 0.001 * k]] for k in range(20)])
        beside = corners * [-1, 1, 1] + [0.45, 0.0, 0.05]
        mesh = TriangleMesh(np.concatenate([above, beside[None]]).reshape(-1, 3), np.arange(63).reshape(21, 3))
        self.check(mesh, np.zeros((1, 3)))

    def test_a_far_query_changes_no_other(self):
        mesh = TriangleMesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]])
        found = mesh.closest_points([[0.25, 0.25, 3.0], [1e100, 0, 0], [0, 1e12, -1e12], [-1e140, -1e140, 0]])
        np.testing.assert_allclose(found.points, [[0.25, 0.25, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]], atol=1e-7)

    def test_flat_faces_are_their_sides(self):
        vertices = np.array([[0.0, 0, 0], [1, 0, 0], [3, 0, 0], [5, 5, 5]])
        mesh = TriangleMesh(vertices, [[0, 1, 2], [3, 3, 3]])
        self.check(mesh, np.random.default_rng(2).normal(size=(50, 3)) * 4)


class TestFiles:
    @pytest.mark.parametrize("kind", ["ply", "obj", "off", "glb"])
    def test_round_trip_keeps_vertices_faces_and_order(self, tmp_path, kind):
        rng = np.random.default_rng(0)
        ball = sphere(2)
        # Shuffled, with unreferenced, duplicate and degenerate parts: nothing may be tidied up.
        order = rng.permutation(ball.n_vertices)
        vertices = np.concatenate([[[7.0, 8, 9]], ball.vertices[np.argsort(order)], [[1e-5, 0, 0]], [[1e-5, 0, 0]]])
        faces = np.concatenate([rng.permutation(order[ball.faces]) + 1, [[1, 1, 2], [0, 3, 4]]])
        mesh = TriangleMesh(vertices, faces)
        assert mesh.save(tmp_path / f"mesh.{kind}") == tmp_path / f"mesh.{kind}"
        back = TriangleMesh.load(str(tmp_path / f"mesh.{kind}"))
        stored = vertices.astype(np.float32) if kind == "glb" else vertices
        np.testing.assert_array_equal(back.vertices, stored)
        np.testing.assert_array_equal(back.faces, faces)
        assert [path.name for path in tmp_path.iterdir()] == [f"mesh.{kind}"]


class TestRealScan:
    def test_the_bunny_loads_and_is_reported(self):
        package = importlib.util.find_spec("pymeshfix").submodule_search_locations[0]
        bunny = TriangleMesh.load(Path(package) / "examples" / "StanfordBunny.ply")
        report = bunny.report()
        assert bunny.n_vertices > 30_000
        assert (report.n_vertices, report.n_faces) == (bunny.n_vertices, bunny.n_faces)
        assert (report.components, report.degenerate_faces, report.unreferenced_vertices) == (1, 0, 0)
        assert report.boundary_loops > 5  # damaged on purpose: the package that ships it repairs meshes
        assert report.non_manifold_edges == np.sum(trimesh_edge_counts(bunny) > 2) > 0
        assert not bunny.is_closed
        assert bunny.area > 0.0
        assert bunny.vertex_areas().sum() == pytest.approx(bunny.area, rel=1e-12)
        sample = bunny.sample(2000, seed=0)
        np.testing.assert_allclose(bunny.closest_points(sample.points).points, sample.points, atol=1e-12)
