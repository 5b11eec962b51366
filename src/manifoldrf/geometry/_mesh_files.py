"""Mesh files: readers of our own, which take no file for more than its bytes; writers of our own or of trimesh.

No vertex is split, merged or dropped, a cut-off file is an error, text keeps all digits, and whatever a file
declares or refers to, no more memory is taken than it has bytes for and no other file is opened.
"""

from os import PathLike
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike

from manifoldrf._files import as_path, atomic_path, existing_file
from manifoldrf._optional import require
from manifoldrf._validation import FloatArray, IntArray, check_points, reject
from manifoldrf.geometry._glb import read_glb
from manifoldrf.geometry._mesh_text import read_obj, read_off, read_stl
from manifoldrf.geometry._ply import read_ply

_READERS = {"ply": read_ply, "obj": read_obj, "stl": read_stl, "off": read_off, "glb": read_glb}
MESH_FORMATS = tuple(_READERS)


def mesh_format(path: Path) -> str:
    """Return the mesh format that the suffix of a path names, in lower case."""
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in MESH_FORMATS:
        reject("path", "a file name ending in ." + ", .".join(MESH_FORMATS), path.name)
    return suffix


def reject_mesh(path: Path, reason: object) -> NoReturn:
    """Raise the one error text for a mesh file that cannot be used."""
    words = " ".join(str(reason).split()).rstrip(".")
    reject("path", "a readable triangle mesh", f"{path.name}: {words or type(reason).__name__}")


def read_mesh(path: Path) -> tuple[FloatArray, IntArray]:
    """Read vertices and faces of a mesh file; polygons are cut into triangles, indices are not checked."""
    read = _READERS[mesh_format(path)]
    data = existing_file(path).read_bytes()
    try:
        vertices, faces = read(data)
    except MemoryError:
        raise  # the file is not to blame: readers take no more than it has bytes for
    except Exception as error:  # noqa: BLE001 - a broken file makes the readers fail in every possible way
        reject_mesh(path, error)
    if len(faces) == 0:
        reject_mesh(path, "it has no faces; points alone are given as an array, or in an npy, npz or csv file")
    return _merge_equal(vertices, faces) if read is read_stl else (vertices, faces)


def write_mesh(path: Path, vertices: FloatArray, faces: IntArray) -> None:
    """Write a mesh file in the format of its suffix, atomically."""
    kind = mesh_format(path)
    if kind in ("obj", "off"):
        data = _encode_text(vertices, faces, kind)
    else:
        if np.abs(vertices).max() > np.finfo(np.float32).max:
            reject("path", "an .obj or .off file for coordinates beyond single precision", path.name)
        mesh = require("trimesh", "mesh").Trimesh(vertices, faces, process=False)
        data = mesh.export(file_type=kind)
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_coloured_ply(path: Path, points: FloatArray, colors: ArrayLike, faces: IntArray | None = None) -> None:
    """Write a mesh, or a cloud without faces, to a binary ply file with a colour at every point, atomically.

    trimesh would round the positions to single precision; here they keep every digit.

    Parameters
    ----------
    path : Path
        A file ending in .ply.
    points : ndarray of shape (n, 3)
        Positions.
    colors : array-like of shape (n, 3), uint8
        Red, green and blue.
    faces : ndarray of shape (m, 3), optional
        Triangles.
    """
    if mesh_format(path) != "ply":
        reject("path", "a .ply file, as other formats keep no colours here", path.name)
    tints = np.asarray(colors)
    if tints.dtype != np.uint8 or tints.shape != (len(points), 3):
        reject("colors", f"a uint8 array of shape ({len(points)}, 3)", f"{tints.dtype} of shape {tints.shape}")
    rows = np.zeros(len(points), [("position", "<f8", 3), ("color", "u1", 3)])
    rows["position"], rows["color"] = points, tints
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {len(rows)}"]
    lines += [f"property double {axis}" for axis in "xyz"]
    lines += [f"property uchar {color}" for color in ("red", "green", "blue")]
    parts = [rows.tobytes()]
    if faces is not None:
        corners = np.zeros(len(faces), [("count", "u1"), ("corners", "<i4", 3)])
        corners["count"], corners["corners"] = 3, faces
        lines += [f"element face {len(faces)}", "property list uchar int vertex_indices"]
        parts.append(corners.tobytes())
    header = "\n".join([*lines, "end_header"]) + "\n"
    with atomic_path(path) as temporary:
        temporary.write_bytes(b"".join([header.encode(), *parts]))


def write_cloud_ply(path: str | PathLike[str], points: ArrayLike, colors: ArrayLike) -> None:
    """Write coloured points without faces to a binary ply file; positions keep every digit.

    Parameters
    ----------
    path : str or path
        A file ending in .ply; an existing one is replaced, whole or not at all.
    points : array-like of shape (n, 3)
        Positions.
    colors : array-like of shape (n, 3), uint8
        Red, green and blue.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "cloud.ply"
    ...     write_cloud_ply(file, [[0, 0, 0], [1, 2, 3]], np.zeros((2, 3), np.uint8))
    ...     file.read_bytes().splitlines()[2]
    b'element vertex 2'
    """
    write_coloured_ply(as_path(path), check_points(points, n_columns=3), colors)


def _encode_text(vertices: FloatArray, faces: IntArray, kind: str) -> bytes:
    """Write obj or off with the shortest digits that read back as the same numbers.

    trimesh writes a fixed number of decimals, which turns a mesh in small units into zeros.
    """
    lead, three, first = ("v ", "f ", 1) if kind == "obj" else ("", "3 ", 0)
    lines = [] if kind == "obj" else ["OFF", f"{len(vertices)} {len(faces)} 0"]
    lines += [f"{lead}{x!r} {y!r} {z!r}" for x, y, z in vertices.tolist()]
    lines += [f"{three}{i} {j} {k}" for i, j, k in (faces + first).tolist()]
    return ("\n".join(lines) + "\n").encode()


def _merge_equal(vertices: FloatArray, faces: IntArray) -> tuple[FloatArray, IntArray]:
    """Merge vertices of equal position, in the order of first appearance: stl repeats them for each face."""
    order = np.lexsort(vertices.T)  # stable: the first of equal rows is the first in the file
    ranked = vertices[order]
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = (ranked[1:] != ranked[:-1]).any(axis=1)
    group = np.zeros(len(order), dtype=np.int64)
    group[order] = np.cumsum(is_new) - 1  # (n,) group of each vertex, numbered by position
    first = order[is_new]  # (g,) first vertex of each group
    appearance = np.argsort(first)
    rank = np.zeros(len(first), dtype=np.int64)
    rank[appearance] = np.arange(len(first))
    return vertices[first[appearance]], rank[group][faces]
