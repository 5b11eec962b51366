"""Mesh files keep every vertex, every digit the format holds, and refuse what they cannot hold."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import trimesh

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
