"""Mesh files, read and written by trimesh; those with colours are written here.

What trimesh does differently from what a library of numbers needs is put right here: no vertex is split, merged
or dropped, a cut-off file is an error, and text keeps all digits.
"""

import io
import re
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike

from manifoldrf._files import as_path, atomic_path
from manifoldrf._notices import filtered
from manifoldrf._optional import require
from manifoldrf._validation import FloatArray, IntArray, check_points, reject

MESH_FORMATS = ("ply", "obj", "stl", "off", "glb")

# Readers of trimesh ignore the options of other formats. Materials would only cost time; `fix_texture` would
# split vertices of a ply where texture coordinates differ, `maintain_order=False` would drop some of an obj.
_READER_OPTIONS = {"process": False, "maintain_order": True, "skip_materials": True, "fix_texture": False}


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
    kind = mesh_format(path)
    trimesh = require("trimesh", "mesh")
    if not path.exists():
        reject("path", "an existing file", path, FileNotFoundError)
    data = path.read_bytes()
    try:
        vertices, faces = _decode(trimesh, data, kind)
    except Exception as error:  # noqa: BLE001 - a broken file makes the readers fail in every possible way
        reject_mesh(path, error)
    if len(faces) == 0:
        reject_mesh(path, "it has no faces")
    return _merge_equal(vertices, faces) if kind == "stl" else (vertices, faces)


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


def _decode(trimesh: Any, data: bytes, kind: str) -> tuple[FloatArray, IntArray]:
    """Let trimesh parse the bytes; the parts of a scene become one mesh."""
    counts = _declared_counts(data, kind)
    stream = io.BytesIO(_plain_obj(data) if kind == "obj" else data)
    # Older readers stop quietly at the first word that is no number.
    with filtered("error", "string or file could not be read", Warning):
        mesh = trimesh.load_mesh(stream, file_type=kind, **_READER_OPTIONS)
    vertices, faces = np.asarray(mesh.vertices, np.float64), np.asarray(mesh.faces, np.int64)
    # A polygon becomes several triangles, so a whole file has at least as many faces as it declares.
    if counts is not None and counts[1] > 0 and (len(vertices) != counts[0] or len(faces) < counts[1]):
        declared = f"it declares {counts[0]} vertices and {counts[1]} faces"
        raise ValueError(f"{declared} but holds {len(vertices)} and {len(faces)}")
    return vertices, faces


def _declared_counts(data: bytes, kind: str) -> tuple[int, int] | None:
    """Read the numbers of vertices and faces that a ply or off header promises."""
    if kind == "ply":
        header = data[: max(data.find(b"end_header"), 0)]
        found = dict(re.findall(rb"^element\s+(\w+)\s+(\d+)", header, flags=re.MULTILINE))
        return int(found.get(b"vertex", 0)), int(found.get(b"face", 0))
    if kind == "off":
        numbers = re.search(rb"OFF\s+(\d+)\s+(\d+)", re.sub(rb"#[^\n]*", b"", data))
        return (int(numbers[1]), int(numbers[2])) if numbers else None
    return None


def _plain_obj(data: bytes) -> bytes:
    """Keep the positions and faces of an obj text, each corner as one index counted from the start.

    trimesh splits vertices along texture seams, repeats them for every material, and counts negative indices
    from the end of the file; of what is left here there is nothing to split, repeat or misread.
    """
    lines, n_vertices = [], 0
    text = data.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\\\n", " ")
    for line in text.splitlines():
        word, *values = line.split("#")[0].split() or [""]
        if word in ("v", "f") and len(values) < 3:
            raise ValueError(f"a line {line.strip()!r} with fewer than three values")
        if word == "v":
            n_vertices += 1
            lines.append("v " + " ".join(values[:3]))
        elif word == "f":
            lines.append("f " + " ".join(str(_obj_index(value, n_vertices)) for value in values))
    return "\n".join(lines).encode()


def _obj_index(corner: str, n_vertices: int) -> int:
    """Position index of a corner such as "7", "7/2/5" or "-1" (the latest vertex), counted from one."""
    index = int(corner.split("/")[0])
    absolute = index if index > 0 else n_vertices + 1 + index
    if index == 0 or absolute < 1:
        raise ValueError(f"a face index {index} that names no vertex")
    return absolute


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
