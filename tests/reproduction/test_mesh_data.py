"""Meshes of the experiments: files found by name and id, shapes that are what they say, other resolutions."""

import numpy as np
import pytest

from manifoldrf import TriangleMesh
from reproduction.mesh_data import builtin_mesh, coarsened, find_meshes, prepared, subdivided

TETRAHEDRON = TriangleMesh(
    [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]], [[0, 2, 1], [0, 1, 3], [1, 2, 3], [0, 3, 2]]
)


def euler(mesh):
    return mesh.n_vertices - len(mesh.edges) + mesh.n_faces


class TestFiles:
    def test_meshes_are_found_by_id_in_the_folder_and_in_those_inside_it(self, tmp_path):
        (tmp_path / "raw_meshes").mkdir()
        (tmp_path / "meshes").mkdir()
        TETRAHEDRON.save(tmp_path / "37384.ply")
        TETRAHEDRON.save(tmp_path / "raw_meshes" / "42435.OBJ")
        TETRAHEDRON.save(tmp_path / "meshes" / "cube.ply")
        (tmp_path / "README.md").write_text("no mesh")
        found = find_meshes(tmp_path)  # the paper's, if some are there
        assert [item.name for item in found] == ["37384", "42435"]
        assert [item.mesh.n_faces for item in found] == [4, 4]
        assert [item.name for item in find_meshes(tmp_path / "meshes")] == ["cube"]
        (tmp_path / "none").mkdir()
        with pytest.raises(FileNotFoundError, match="mesh files"):
            find_meshes(tmp_path / "none")

    def test_vertices_in_no_face_are_left_out_and_pieces_are_counted(self):
        far = TETRAHEDRON.vertices + 5
        vertices = np.vstack([[[9, 9, 9]], TETRAHEDRON.vertices, far])
        mesh = TriangleMesh(vertices, np.vstack([TETRAHEDRON.faces + 1, TETRAHEDRON.faces + 5]))
        found = prepared("two", mesh)
        assert found.note == "1 vertices in no face left out, 2 pieces"
        np.testing.assert_array_equal(found.mesh.vertices[found.mesh.faces], mesh.vertices[mesh.faces])
        assert prepared("one", TETRAHEDRON).note == ""


class TestShapes:
    @pytest.mark.parametrize(("name", "characteristic"), [("sphere", 2), ("torus", 0), ("sheet", 1)])
    def test_shapes_have_about_the_size_and_the_topology_they_should(self, name, characteristic):
        mesh = builtin_mesh(name, 900).mesh
        assert abs(mesh.n_vertices - 900) < 90
        assert euler(mesh) == characteristic
        assert mesh.is_closed == (name != "sheet")
        assert mesh.report().non_manifold_edges == mesh.report().degenerate_faces == 0


class TestResolutions:
    def test_subdivision_keeps_the_surface_and_quarters_the_faces(self):
        fine = subdivided(TETRAHEDRON)
        assert (fine.n_vertices, fine.n_faces) == (10, 16)
        assert fine.area == pytest.approx(TETRAHEDRON.area, rel=1e-14)
        assert fine.is_closed
        np.testing.assert_array_equal(fine.vertices[:4], TETRAHEDRON.vertices)
        normals = {tuple(np.round(normal, 9)) for normal in fine.face_normals()}
        assert normals == {tuple(np.round(normal, 9)) for normal in TETRAHEDRON.face_normals()}  # sides kept

    def test_coarse_meshes_have_vertices_of_the_fine_one_and_its_shape(self):
        fine = builtin_mesh("torus", 4000).mesh
        coarse = coarsened(fine, 600)
        assert 590 <= coarse.n_vertices <= 600
        assert {tuple(p) for p in coarse.vertices} <= {tuple(p) for p in fine.vertices}
        assert euler(coarse) == 0
        assert coarse.area == pytest.approx(fine.area, rel=0.02)
        outwards = coarsened(builtin_mesh("sphere", 2000).mesh, 400)
        assert np.einsum("ij,ij->i", outwards.vertex_normals(), outwards.vertices).min() > 0.9  # faces keep sides
