"""Mesh files keep every vertex, every digit the format holds, and refuse what they cannot hold."""

from pathlib import Path

import numpy as np
import pytest

from manifoldrf.geometry._mesh_files import MESH_FORMATS, _merge_equal, mesh_format, read_mesh, write_mesh


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
    vertices = np.random.default_rng(0).normal(size=(30, 3)) * 10.0 ** np.arange(-150, 150, 10)[:, None]
    faces = np.arange(30).reshape(10, 3)
    path = tmp_path / f"mesh.{kind}"
    write_mesh(path, vertices, faces)
    read_vertices, read_faces = read_mesh(path)
    np.testing.assert_array_equal(read_vertices, vertices)
    np.testing.assert_array_equal(read_faces, faces)
