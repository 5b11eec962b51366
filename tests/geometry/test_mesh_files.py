"""Mesh files keep every vertex, every digit the format holds, and refuse what they cannot hold."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import nibabel
import numpy as np
import pytest
import trimesh
from reliability.loaders import VTK, gii, gltf

from manifoldrf import TriangleMesh
from manifoldrf._colours import colours_of
from manifoldrf.geometry.mesh_files import (
    MESH_FORMATS,
    _merge_equal,
    mesh_format,
    read_mesh,
    write_cloud_ply,
    write_mesh,
)

VERTICES = np.random.default_rng(0).normal(size=(30, 3)) * 10.0 ** np.arange(-150, 150, 10)[:, None]
FACES = np.arange(30).reshape(10, 3)
COLORS = np.random.default_rng(1).integers(0, 256, size=(30, 3)).astype(np.uint8)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("name", ["mesh", "mesh.ply.gz", "mesh.stp", ".ply"])
def test_an_unknown_format_names_the_known_ones(name):
    with pytest.raises(
        ValueError, match=r"`path` must be a file name ending in \.ply, \.obj, \.stl, \.off, \.glb\. Got "
    ):
        mesh_format(Path(name))


def test_the_format_is_read_in_any_case():
    assert [mesh_format(Path(f"mesh.{kind.upper()}")) for kind in MESH_FORMATS] == list(MESH_FORMATS)


def test_equal_positions_merge_in_order_of_first_appearance():
    soup = np.array([[5.0, 0, 0], [1, 0, 0], [0, 3, 0], [0, 3, 0], [1, -0.0, 0], [9, 9, 9]])
    vertices, faces = _merge_equal(soup, np.arange(6).reshape(2, 3))
    np.testing.assert_array_equal(vertices, [[5, 0, 0], [1, 0, 0], [0, 3, 0], [9, 9, 9]])
    np.testing.assert_array_equal(faces, [[0, 1, 2], [2, 1, 3]])


@pytest.mark.parametrize("kind", ["ply", "stl", "glb"])
def test_coordinates_beyond_single_precision_are_refused_before_anything_is_written(tmp_path, kind):
    vertices = np.array([[0.0, 0, 0], [1e40, 0, 0], [0, 1, 0]])
    with pytest.raises(ValueError, match=r"an \.obj or \.off file for coordinates beyond single precision"):
        write_mesh(tmp_path / f"mesh.{kind}", vertices, np.array([[0, 1, 2]]))
    assert names(tmp_path) == []


@pytest.mark.parametrize("kind", ["obj", "off"])
def test_text_formats_keep_every_bit_at_every_size(tmp_path, kind):
    path = tmp_path / f"mesh.{kind}"
    write_mesh(path, VERTICES, FACES)
    read_vertices, read_faces = read_mesh(path)
    np.testing.assert_array_equal(read_vertices, VERTICES)
    np.testing.assert_array_equal(read_faces, FACES)


def test_a_coloured_mesh_keeps_colours_and_every_bit_of_its_positions(tmp_path):
    path = TriangleMesh(VERTICES, FACES).save(tmp_path / "mesh.PLY", colors=COLORS)
    found = trimesh.load(path, process=False)
    np.testing.assert_array_equal(found.vertices, VERTICES)
    np.testing.assert_array_equal(found.faces, FACES)
    np.testing.assert_array_equal(found.visual.vertex_colors[:, :3], COLORS)
    again = TriangleMesh.load(path)
    np.testing.assert_array_equal(again.vertices, VERTICES)
    np.testing.assert_array_equal(again.faces, FACES)


def test_a_coloured_cloud_keeps_colours_and_every_bit_of_its_positions(tmp_path):
    write_cloud_ply(tmp_path / "cloud.ply", VERTICES, COLORS)
    found = trimesh.load(tmp_path / "cloud.ply", process=False)
    assert isinstance(found, trimesh.PointCloud)
    np.testing.assert_array_equal(found.vertices, VERTICES)
    np.testing.assert_array_equal(found.colors[:, :3], COLORS)


def test_a_field_is_written_as_colours(tmp_path):
    mesh, field = TriangleMesh(VERTICES, FACES), np.arange(30.0)
    field[3] = np.nan
    found = trimesh.load(mesh.save(tmp_path / "mesh.ply", field=field), process=False).visual.vertex_colors[:, :3]
    np.testing.assert_array_equal(found, colours_of(field, 0.0, 29.0))
    with pytest.raises(ValueError, match=r"`field` must be a vector of shape \(30,\), one number per vertex\. Got"):
        mesh.save(tmp_path / "mesh.ply", field=field[:5])
    with pytest.raises(ValueError, match=r"`field` must be left out with colors\. Got both\."):
        mesh.save(tmp_path / "mesh.ply", field=field, colors=COLORS)


@pytest.mark.parametrize("kind", [kind for kind in MESH_FORMATS if kind != "ply"])
def test_colours_go_to_ply_files_only(tmp_path, kind):
    mesh = TriangleMesh(VERTICES, FACES)
    with pytest.raises(ValueError, match=rf"`path` must be a \.ply file, .* colours here\. Got mesh\.{kind}"):
        mesh.save(tmp_path / f"mesh.{kind}", colors=COLORS)
    assert names(tmp_path) == []


@pytest.mark.parametrize("colors", [COLORS[:5], COLORS / 255.0, np.zeros((30, 4), np.uint8), COLORS[:, 0]])
def test_colours_that_do_not_fit_the_vertices_are_refused(tmp_path, colors):
    with pytest.raises(ValueError, match=r"`colors` must be a uint8 array of shape \(30, 3\)\. Got "):
        write_cloud_ply(tmp_path / "cloud.ply", VERTICES, colors)
    assert names(tmp_path) == []


def test_a_glb_file_without_trimesh_names_the_extra_that_installs_it(tmp_path, monkeypatch):
    path = TriangleMesh(VERTICES[10:16], [[0, 1, 2], [3, 4, 5]]).save(tmp_path / "mesh.glb")
    monkeypatch.setitem(sys.modules, "trimesh", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'manifoldrf\[mesh\]'"):
        TriangleMesh.load(path)


def test_a_glb_strip_of_triangles_keeps_its_orientation(tmp_path):
    square = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]])
    data = trimesh.Trimesh(square, [[0, 1, 2], [2, 1, 3]], process=False).export(file_type="glb")
    length = int.from_bytes(data[12:16], "little")
    tree = json.loads(data[20 : 20 + length])
    tree["meshes"][0]["primitives"][0] |= {"mode": 5}
    del tree["meshes"][0]["primitives"][0]["indices"]
    text = json.dumps(tree).encode()
    (tmp_path / "strip.glb").write_bytes(
        data[:12] + len(text).to_bytes(4, "little") + data[16:20] + text + data[20 + length :]
    )
    mesh = TriangleMesh.load(tmp_path / "strip.glb")
    np.testing.assert_array_equal(mesh.vertices, square)
    np.testing.assert_array_equal(mesh.faces, [[0, 1, 2], [3, 2, 1]])


TETRAHEDRON = np.array([[0.0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]])
ITS_FACES = [[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]]


@pytest.mark.parametrize("path", sorted(VTK.iterdir()), ids=lambda path: path.name)
def test_files_that_vtk_and_meshio_wrote_are_read(path):
    mesh = TriangleMesh.load(path)
    np.testing.assert_array_equal(mesh.vertices, TETRAHEDRON)
    np.testing.assert_array_equal(mesh.faces, ITS_FACES)


def test_polygons_of_vtk_are_cut_and_points_and_lines_left_out(tmp_path):
    head = "# vtk DataFile Version 3.0\n\nASCII\ndataset unstructured_grid\nPOINTS 5 float\n"
    points = "0 0 0 1 0 0\n1 1 0 0 1 0 2 2 0\n"
    cells = "CELLS 4 14\n1 0\n2 0 1\n4 0 1 2 3\n3 1\n4 2\nCELL_TYPES 4\n1 3 9 5\nPOINT_DATA 5\nSCALARS a float\n"
    (tmp_path / "mesh.vtk").write_text(head + points + cells)
    mesh = TriangleMesh.load(tmp_path / "mesh.vtk")
    np.testing.assert_array_equal(mesh.vertices, [[0, 0, 0], [1, 0, 0], [1, 1, 0], [0, 1, 0], [2, 2, 0]])
    np.testing.assert_array_equal(mesh.faces, [[0, 1, 2], [2, 3, 0], [1, 4, 2]])
    for old, new, text in (
        ("1 3 9 5", "1 3 10 5", "it has cells of type 10, which are not faces"),
        ("1 3 9 5", "1 3 9", "'POINT_DATA' where an integer should be"),
        (
            "dataset unstructured_grid",
            "DATASET STRUCTURED_POINTS",
            "it has 'DATASET STRUCTURED_POINTS', and no plain",
        ),
        ("0 0 0 1 0 0\n", "0 0 0 1 0 0 7\n", "16 numbers where 15 should be"),
        ("float\n0", "half\n0", "numbers of an unknown type 'HALF'"),
    ):
        (tmp_path / "bad.vtk").write_text((head + points + cells).replace(old, new))
        with pytest.raises(ValueError, match=text):
            TriangleMesh.load(tmp_path / "bad.vtk")


def test_pieces_of_a_vtp_file_are_joined(tmp_path):
    text = (VTK / "ascii.vtp").read_text()
    begin, end = text.index("<Piece"), text.index("</Piece>") + len("</Piece>")
    (tmp_path / "two.vtp").write_text(text[:end] + text[begin:end] + text[end:])
    mesh = TriangleMesh.load(tmp_path / "two.vtp")
    np.testing.assert_array_equal(mesh.vertices, [*TETRAHEDRON, *TETRAHEDRON])
    np.testing.assert_array_equal(mesh.faces, [*ITS_FACES, *(np.array(ITS_FACES) + 4)])
    first = text[:end].replace("0 2 1 0 1 3", "0 2 1 0 1 7")  # a point of the other piece
    assert first != text[:end]
    (tmp_path / "two.vtp").write_text(first + text[begin:end] + text[end:])
    with pytest.raises(ValueError, match="a corner that is none of the 4 points of its piece"):
        TriangleMesh.load(tmp_path / "two.vtp")


def test_a_gii_file_is_what_nibabel_reads(tmp_path):
    for encoding in ("ASCII", "B64BIN", "B64GZ"):
        (tmp_path / "mesh.gii").write_bytes(gii(encoding))
        mesh = TriangleMesh.load(tmp_path / "mesh.gii")
        points, faces = nibabel.load(tmp_path / "mesh.gii").agg_data(("pointset", "triangle"))
        np.testing.assert_array_equal(mesh.vertices, points)
        np.testing.assert_array_equal(mesh.faces, faces)
    (tmp_path / "field.gii").write_bytes(gii("ASCII").replace(b"INTENT_TRIANGLE", b"INTENT_SHAPE"))
    with pytest.raises(ValueError, match="it has 1 sets of points and 0 of triangles, not one of each"):
        TriangleMesh.load(tmp_path / "field.gii")


def test_a_gltf_file_is_the_glb_file_of_the_same_mesh(tmp_path):
    mesh = TriangleMesh(TETRAHEDRON, ITS_FACES)
    (tmp_path / "mesh.gltf").write_bytes(gltf(mesh))
    found, wanted = TriangleMesh.load(tmp_path / "mesh.gltf"), TriangleMesh.load(mesh.save(tmp_path / "mesh.glb"))
    np.testing.assert_array_equal(found.vertices, wanted.vertices)
    np.testing.assert_array_equal(found.faces, wanted.faces)


def test_files_of_meshio(tmp_path):
    meshio = pytest.importorskip("meshio")
    made = meshio.Mesh(TETRAHEDRON, [("line", [[0, 1]]), ("triangle", ITS_FACES)])
    for name, form in (("text.msh", "gmsh22"), ("mesh.mesh", "medit")):
        meshio.write(tmp_path / name, made, file_format=form)
        mesh = TriangleMesh.load(tmp_path / name)
        np.testing.assert_array_equal(mesh.vertices, TETRAHEDRON)
        np.testing.assert_array_equal(mesh.faces, ITS_FACES)
    meshio.write(tmp_path / "full.msh", meshio.Mesh(TETRAHEDRON, [("tetra", [[0, 1, 2, 3]])]), file_format="gmsh")
    with pytest.raises(
        ValueError, match=r"full\.msh: .*triangles only\. Got Mesh with other cells: 1 of type 'tetra'"
    ):
        TriangleMesh.load(tmp_path / "full.msh")
    (tmp_path / "bad.msh").write_bytes((tmp_path / "text.msh").read_bytes()[:90])
    with pytest.raises(ValueError, match=r"`path` must be a readable triangle mesh\. Got bad\.msh"):
        TriangleMesh.load(tmp_path / "bad.msh")


def test_meshio_reads_msh_and_mesh_files(tmp_path, monkeypatch):
    """With a stand-in for meshio, which may be missing."""
    made = SimpleNamespace(points=TETRAHEDRON, cells=[SimpleNamespace(type="triangle", data=np.array(ITS_FACES))])
    for kind, module in (("msh", "meshio.gmsh"), ("mesh", "meshio.medit")):
        (tmp_path / f"mesh.{kind}").write_text("")
        for name in ("meshio", module):
            monkeypatch.setitem(sys.modules, name, SimpleNamespace(read=lambda path: made))
        np.testing.assert_array_equal(TriangleMesh.load(tmp_path / f"mesh.{kind}").faces, ITS_FACES)


@pytest.mark.parametrize(("kind", "package"), [("gltf", "trimesh"), ("msh", "meshio"), ("mesh", "meshio")])
def test_formats_of_the_extra_name_it_if_it_is_missing(tmp_path, monkeypatch, kind, package):
    (tmp_path / f"mesh.{kind}").write_text("")
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModuleNotFoundError, match=rf"package '{package}'.*pip install 'manifoldrf\[mesh\]'"):
        TriangleMesh.load(tmp_path / f"mesh.{kind}")


def test_formats_that_are_only_read_are_not_written(tmp_path):
    with pytest.raises(ValueError, match=r"must be a file name ending in \.ply, \.obj, \.stl, \.off, \.glb\. Got"):
        TriangleMesh(TETRAHEDRON, ITS_FACES).save(tmp_path / "mesh.vtk")
    with pytest.raises(
        ValueError, match=r"\.glb, \.gltf, \.vtk, \.vtp, \.vtu, \.gii, \.msh, \.mesh\. Got mesh\.stp"
    ):
        TriangleMesh.load(tmp_path / "mesh.stp")
