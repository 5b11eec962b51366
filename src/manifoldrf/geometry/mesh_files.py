"""Read and write triangle meshes: ply, obj, stl, off and glb files; read gltf, vtk, vtp, vtu, gii, msh, mesh too.

The readers never trust a size that a file declares, so their memory is proportional to the size of the file, except
in meshio, which reads msh and mesh files. They open no other file. Polygons are cut into triangles.
"""

import base64
import io
import itertools
import json
import re
import struct
import zlib
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from xml.etree import ElementTree

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manifoldrf._files import as_path, atomic_path, existing_file
from manifoldrf._runtime import require
from manifoldrf._validation import FloatArray, IntArray, check_points, reject
from manifoldrf.geometry.objects import recognise

MESH_FORMATS = ("ply", "obj", "stl", "off", "glb")
READABLE_FORMATS = (*MESH_FORMATS, "gltf", "vtk", "vtp", "vtu", "gii", "msh", "mesh")
# Format -> the package of the extra `mesh` that reads it.
_PACKAGES = {"glb": "trimesh", "gltf": "trimesh", "msh": "meshio", "mesh": "meshio"}
Mesh = tuple[FloatArray, IntArray]

_LONGEST_LINE = 1 << 20  # bytes; the words of a line take up to 25 times its memory
_OFF = re.compile(rb"(ST)?C?N?OFF\b", re.IGNORECASE)  # with positions of three coordinates; 4OFF has four
_STL_HEADER = 84
_STL_FACET = np.dtype([("normal", "<f4", 3), ("vertices", "<f4", (3, 3)), ("attribute", "<u2")])

_PLY_TYPES = {
    **{"char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2"},
    **{"uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float16": "f2"},
    **{"float32": "f4", "float64": "f8", "double": "f8", "int64": "i8", "uint64": "u8"},
}
_PLY_ORDERS = {b"ascii": "", b"binary_little_endian": "<", b"binary_big_endian": ">"}
_CORNER_LISTS = ("vertex_index", "vertex_indices")  # names that writers use
_LONGEST_HEADER = 1 << 20  # bytes
_MOST_PROPERTIES = 1000  # a scan with all its measurements has about a hundred

_GLB_MAGIC, _GLB_JSON = 0x46546C67, 0x4E4F534A
_GLB_SIZES = {5120: 1, 5121: 1, 5122: 2, 5123: 2, 5125: 4, 5126: 4}  # bytes of a component
_GLB_INDICES = (5121, 5123, 5125)  # unsigned integers
_GLB_PLACING = ("children", "matrix", "translation", "rotation", "scale")  # what is kept of a node
_TRIANGLES, _STRIP = 4, 5
_LONGEST_JSON = 8_000_000  # bytes; parsed it takes up to 27 times as much
_BYTES_PER_ITEM = 48  # of a vertex or a face in memory: three numbers of 8 bytes, and their copy
_BYTES_PER_NODE = 2000  # of a node or a part while trimesh reads it
_ROOM, _ROOM_PER_BYTE = 100_000_000, 8  # bytes that may be allocated: for any file, and for each of its bytes
_SAME = 1e-8  # a matrix this close to the identity moves nothing

_MOST_TAGS = 100_000  # of an XML file; each takes about a hundred bytes
# Bytes of unpacked arrays, for any file and for each of its bytes. Reading a grid of a million triangles takes 2.5
# times as much as the arrays of a vtp file, and 9 times as much as those of a gii file, whose numbers are shorter.
_VTK_ROOM, _VTK_ROOM_PER_BYTE = 80_000_000, 4
_GII_ROOM, _GII_ROOM_PER_BYTE = 16_000_000, 1
_XML_ENCODINGS = (b"utf-8", b"us-ascii", b"iso-8859-1")  # in which tags look alike
_XML_TYPES = {"Float32": "f4", "Float64": "f8"} | {f"Int{8 * k}": f"i{k}" for k in (1, 2, 4, 8)}
_XML_TYPES |= {f"U{name}": kind.replace("i", "u") for name, kind in _XML_TYPES.items() if name[0] == "I"}
# Numbers of type vtkIdType are stored as int, whatever it is in memory.
_VTK_TYPES = {
    b"float": "f4",
    b"double": "f8",
    b"int": "i4",
    b"long": "i8",
    b"vtktypeint64": "i8",
    b"vtkidtype": "i4",
}
_GII_TYPES = {f"NIFTI_TYPE_{name.upper()}": kind for name, kind in _XML_TYPES.items()}
_GII_PARTS = ("POINTSET", "TRIANGLE")
_VTK_IGNORED = (1, 2, 3, 4)  # points and lines beside the faces of a grid
_VTK_FACES = (5, 7, 9)  # triangles, polygons and quadrilaterals


def read_mesh(path: Path) -> tuple[FloatArray, IntArray]:
    """Read vertices and faces of a mesh file; polygons are cut into triangles, indices are not checked."""
    kind = mesh_format(path, READABLE_FORMATS)
    if kind in _PACKAGES:
        require(_PACKAGES[kind], "mesh")
    data = existing_file(path).read_bytes()
    try:
        vertices, faces = _READERS[kind](data) if kind in _READERS else _by_meshio(path, kind)
    except (MemoryError, ImportError):
        raise  # not the fault of the file: readers take memory in proportion to its size
    except Exception as error:  # noqa: BLE001 - broken files fail in many ways
        reject_mesh(path, error)
    if len(faces) == 0:
        reject_mesh(path, "it has no faces; pass points as an array, or in an npy, npz or csv file")
    return _merge_equal(vertices, faces) if kind == "stl" else (vertices, faces)


def write_mesh(path: Path, vertices: FloatArray, faces: IntArray) -> None:
    """Write a mesh file in the format of its suffix, atomically."""
    kind = mesh_format(path)
    if kind in ("obj", "off"):
        # The shortest digits that read back as the same numbers. trimesh writes a fixed number of decimals, which
        # turns a mesh in small units into zeros.
        lead, three, first = ("v ", "f ", 1) if kind == "obj" else ("", "3 ", 0)
        lines = [] if kind == "obj" else ["OFF", f"{len(vertices)} {len(faces)} 0"]
        lines += [f"{lead}{x!r} {y!r} {z!r}" for x, y, z in vertices.tolist()]
        lines += [f"{three}{i} {j} {k}" for i, j, k in (faces + first).tolist()]
        data = ("\n".join(lines) + "\n").encode()
    else:
        if np.abs(vertices).max() > np.finfo(np.float32).max:
            reject("path", "an .obj or .off file for coordinates beyond single precision", path.name)
        data = require("trimesh", "mesh").Trimesh(vertices, faces, process=False).export(file_type=kind)
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_coloured_ply(path: Path, points: FloatArray, colors: ArrayLike, faces: IntArray | None = None) -> None:
    """Write a mesh, or a cloud without faces, to a binary ply file with a colour at every point, atomically.

    Positions keep every digit; trimesh would round them to single precision.

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
        reject("path", "a .ply file, the only format that keeps colours here", path.name)
    tints = np.asarray(colors)
    if tints.dtype != np.uint8 or tints.shape != (len(points), 3):
        reject("colors", f"a uint8 array of shape ({len(points)}, 3)", f"{tints.dtype} of shape {tints.shape}")
    rows = np.zeros(len(points), [("position", "<f8", 3), ("color", "u1", 3)])
    rows["position"], rows["color"] = points, tints
    lines = ["ply", "format binary_little_endian 1.0", f"element vertex {len(rows)}"]
    lines += [f"property double {axis}" for axis in "xyz"]
    lines += [f"property uchar {color}" for color in ("red", "green", "blue")]
    content = rows.tobytes()
    if faces is not None:
        corners = np.zeros(len(faces), [("count", "u1"), ("corners", "<i4", 3)])
        corners["count"], corners["corners"] = 3, faces
        lines += [f"element face {len(faces)}", "property list uchar int vertex_indices"]
        content += corners.tobytes()
    with atomic_path(path) as temporary:
        temporary.write_bytes("\n".join([*lines, "end_header\n"]).encode() + content)


def write_cloud_ply(path: str | PathLike[str], points: ArrayLike, colors: ArrayLike) -> None:
    """Write coloured points without faces to a binary ply file; positions keep every digit.

    Parameters
    ----------
    path : str or path
        A file ending in .ply; an existing one is replaced only when the new one is complete.
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


def mesh_format(path: Path, formats: Sequence[str] = MESH_FORMATS) -> str:
    """Return the mesh format of a path: its suffix in lower case."""
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in formats:
        reject("path", "a file name ending in ." + ", .".join(formats), path.name)
    return suffix


def reject_mesh(path: Path, reason: object) -> NoReturn:
    """Raise the error for a mesh file that cannot be used."""
    words = " ".join(str(reason).split()).rstrip(".")
    reject("path", "a readable triangle mesh", f"{path.name}: {words or type(reason).__name__}")


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


class Polygons:
    """Faces with any number of corners."""

    def __init__(self) -> None:
        self.counts = array("q")
        self.corners = array("q")

    def add(self, corners: Sequence[int]) -> None:
        """Append one face."""
        if len(corners) < 3:
            raise ValueError(f"a face of {len(corners)} corners")
        self.counts.append(len(corners))
        self.corners.extend(corners)

    def triangles(self, *, grouped: bool) -> IntArray:
        """Triangles of all faces, shape (m, 3), in the order of the faces.

        If ``grouped``, triangles come first, then the halves of quadrilaterals, then the rest.
        """
        counts = np.frombuffer(self.counts, np.int64)
        corners = np.frombuffer(self.corners, np.int64)
        if not (counts > 3).any():
            return corners.reshape(-1, 3)
        pieces = counts - 2
        owner = np.repeat(np.arange(len(counts)), pieces)
        piece = np.arange(len(owner)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        start = (np.cumsum(counts) - counts)[owner]
        places = np.stack([start, start + piece + 1, start + piece + 2], axis=1)
        second_half = (counts[owner] == 4) & (piece == 1)
        places[second_half] = np.roll(places[second_half], -1, axis=1)  # the same triangle from its next corner
        if grouped:
            kind = np.minimum(counts[owner], 5) + second_half
            kind[counts[owner] > 4] = 6
            places = places[np.argsort(kind, kind="stable")]
        return corners[places]


# ---------------------------------------------------------------------------------------------------- text formats
def read_obj(data: bytes) -> Mesh:
    """Vertices and faces of an obj file; texture seams split no vertex, negative indices count from the latest."""
    positions, polygons = array("d"), Polygons()
    for line in _obj_lines(data):
        kind = line[:2].rstrip()
        if kind == b"v":
            positions.extend(_numbers(line.split(None, 4)[1:4], line))
        elif kind == b"f":
            words = line.split()[1:]
            if len(words) < 3:
                raise ValueError(f"a line {_shown(line)} with fewer than three values")
            n_vertices = len(positions) // 3
            polygons.add([_obj_index(word, n_vertices) for word in words])
    all_quads = len(polygons.counts) > 0 and set(polygons.counts) == {4}
    return _positions(positions), polygons.triangles(grouped=all_quads)


def _obj_lines(data: bytes) -> Iterator[bytes]:
    """Lines without comments; one that ends in a backslash continues in the next."""
    begun = io.BytesIO()
    for line in _raw_lines(data):
        text = line.rstrip(b"\r\n")
        if text.endswith(b"\\") and text != line:
            begun.write(text[:-1] + b" ")
            if begun.tell() > _LONGEST_LINE:
                raise ValueError(f"a line of {begun.tell()} bytes")
            continue
        yield (begun.getvalue() + text).partition(b"#")[0].strip()
        if begun.tell():
            begun = io.BytesIO()
    yield begun.getvalue().partition(b"#")[0].strip()


def _obj_index(corner: bytes, n_vertices: int) -> int:
    """Vertex number, from zero, of a corner such as "7", "7/2/5" or "-1" (the latest vertex)."""
    index = integer(corner.partition(b"/")[0])
    absolute = index - 1 if index > 0 else n_vertices + index
    if index == 0 or absolute < 0:
        raise ValueError(f"a face index {index} that names no vertex")
    return absolute


def read_off(data: bytes) -> Mesh:
    """Vertices and faces of an off file; colours and normals are ignored."""
    lines = text_lines(data)
    first = next(lines, b"")
    found = _OFF.match(first)
    if found is None:
        raise ValueError("it does not begin with OFF")
    rest = first[found.end() :].split() or next(lines, b"").split()
    if len(rest) < 2:
        raise ValueError("it does not say how many vertices and faces it has")
    n_vertices, n_faces = (natural(word) for word in rest[:2])
    positions, polygons = array("d"), Polygons()
    for line in itertools.islice(lines, n_vertices):
        positions.extend(_numbers(line.split(None, 3)[:3], line))
    for line in itertools.islice(lines, n_faces):
        polygons.add(listed(line.split()))
    check_counts((n_vertices, n_faces), (len(positions) // 3, len(polygons.counts)))
    return _positions(positions), polygons.triangles(grouped=True)


def read_stl(data: bytes) -> Mesh:
    """Corners of the triangles of an stl file, three each; it is binary if its length fits, else text."""
    count = int.from_bytes(data[_STL_HEADER - 4 : _STL_HEADER], "little")
    if len(data) >= _STL_HEADER and len(data) == _STL_HEADER + count * _STL_FACET.itemsize:
        facets = np.frombuffer(data, _STL_FACET, offset=_STL_HEADER)
        with np.errstate(invalid="ignore"):  # nan is refused later
            vertices = facets["vertices"].reshape(-1, 3).astype(np.float64)
    else:
        positions, solids, ended = array("d"), 0, 0
        for line in text_lines(data, comments=False):
            word = line.split(None, 1)[0].lower()
            if word == b"vertex":
                positions.extend(_numbers(line.split(None, 4)[1:4], line))
            solids += word == b"solid"
            ended += word == b"endsolid"
        if not solids:
            raise ValueError("it is neither a text stl file nor as long as its header says")
        if solids != ended or len(positions) % 9:
            raise ValueError("it is cut off")
        vertices = _positions(positions)
    return vertices, np.arange(len(vertices)).reshape(-1, 3)


# ------------------------------------------------------------------------------------------------------------- ply
class Property(NamedTuple):
    """A number, or a list that starts with its length."""

    name: str
    kind: str
    count_kind: str | None = None


class Element(NamedTuple):
    """Rows with the same properties."""

    name: str
    n_rows: int
    properties: list[Property]


def read_ply(data: bytes) -> Mesh:
    """Vertices and faces of a ply file; other properties are ignored."""
    order, elements, start = _header(data)
    names = {prop.name for element in elements if element.name == "vertex" for prop in element.properties}
    if not {"x", "y", "z"} <= names:
        raise ValueError("it has no vertices with x, y and z")
    return _read_bytes(data, start, order, elements) if order else _read_text(data[start:], elements)


def _header(data: bytes) -> tuple[str, list[Element], int]:
    """Byte order ("" for text), elements, and where their rows begin."""
    end = data[:_LONGEST_HEADER].find(b"end_header")
    if data[:3].lower() != b"ply" or end < 0:
        raise ValueError("it has no ply header")
    line_end = data.find(b"\n", end)
    if line_end < 0:
        raise ValueError("it ends with its header")
    order, elements = None, list[Element]()
    for line in data[3:end].splitlines():
        word, *rest = line.split() or [b""]
        if word == b"format" and rest:
            order = _PLY_ORDERS.get(rest[0].lower())
        elif word not in (b"", b"comment", b"obj_info"):
            _declare(elements, word, [_name(part) for part in rest])
    if order is None or sum(len(element.properties) for element in elements) > _MOST_PROPERTIES:
        raise ValueError(f"its header has no known format, or more than {_MOST_PROPERTIES} properties")
    if len({element.name for element in elements}) < len(elements):
        raise ValueError("its header has two elements with the same name")
    return order, elements, line_end + 1


def _declare(elements: list[Element], word: bytes, rest: list[str]) -> None:
    """Add a line of the header: a new element, or a property of the last one."""
    if word == b"element" and len(rest) == 2:
        elements.append(Element(rest[0], natural(rest[1].encode()), []))
        return
    if word != b"property" or not elements:
        raise ValueError(f"its header has a line {_name(word[:40])!r}")
    kinds = rest[1:3] if rest[:1] == ["list"] else rest[:1]
    if len(rest) != len(kinds) + (2 if len(kinds) == 2 else 1) or not set(kinds) <= set(_PLY_TYPES):
        raise ValueError(f"its header has a property {' '.join(rest)[:60]!r}")
    if len(kinds) == 2 and _PLY_TYPES[kinds[0]][0] == "f":
        raise ValueError("its header has a list whose length is not an integer")
    count_kind = _PLY_TYPES[kinds[0]] if len(kinds) == 2 else None
    elements[-1].properties.append(Property(rest[-1], _PLY_TYPES[kinds[-1]], count_kind))


def _name(word: bytes) -> str:
    return word.decode("utf-8", "replace")


def _corner_list(element: Element) -> int:
    """Which property of the faces lists their corners."""
    lists = [k for k, prop in enumerate(element.properties) if prop.count_kind is not None]
    named = [k for k in lists if element.properties[k].name in _CORNER_LISTS]
    if not (named or lists) or element.properties[(named or lists)[0]].kind[0] == "f":
        raise ValueError("its faces have no list of corners")
    return (named or lists)[0]


def _read_text(text: bytes, elements: list[Element]) -> Mesh:
    positions, polygons = np.zeros((0, 3)), Polygons()
    rows = text_lines(text, comments=False)
    declared = {"vertex": 0, "face": 0}
    for element in elements:
        declared[element.name] = element.n_rows
        some = itertools.islice(rows, element.n_rows)
        if element.name == "vertex":
            positions = _text_positions(some, element)
        elif element.name == "face":
            _text_faces(some, element, polygons)
        deque(some, 0)  # skips the rows of other elements
    check_counts((declared["vertex"], declared["face"]), (len(positions), len(polygons.counts)))
    return positions, polygons.triangles(grouped=True)


def _text_positions(rows: Iterator[bytes], element: Element) -> FloatArray:
    names = [prop.name for prop in element.properties]
    places = [names.index(axis) for axis in "xyz"]
    last = max(places)
    if any(prop.count_kind is not None for prop in element.properties[:last]):
        raise ValueError("its vertices have a list before their position")
    values = array("d")
    for row in rows:
        words = row.split(None, last + 1)
        if len(words) <= last:
            raise ValueError("a vertex with too few numbers")
        values.extend([number(words[place]) for place in places])
    positions = np.frombuffer(values, np.float64).reshape(-1, 3).copy()
    with np.errstate(invalid="ignore", over="ignore"):  # too large values become infinite and are refused later
        for axis, place in enumerate(places):
            positions[:, axis] = positions[:, axis].astype(element.properties[place].kind)
    return positions


def _text_faces(rows: Iterator[bytes], element: Element, polygons: Polygons) -> None:
    which = _corner_list(element)
    for row in rows:
        words = row.split()
        at = 0
        for prop in element.properties[:which]:
            at += 1 if prop.count_kind is None else 1 + natural(words[at] if at < len(words) else b"")
        if at >= len(words):
            raise ValueError("a face with too few numbers")
        polygons.add(listed(words[at:]))


def _read_bytes(data: bytes, start: int, order: str, elements: list[Element]) -> Mesh:
    found: dict[str, NDArray[Any]] = {}
    for element in elements:
        if element.n_rows == 0 or not element.properties:
            continue
        row = _row_kind(data, start, order, element)
        stop = start + element.n_rows * row.itemsize
        if stop > len(data):
            raise ValueError("it is shorter than its header says")
        found[element.name] = np.frombuffer(data, row, element.n_rows, start)
        start = stop
    if start != len(data):
        raise ValueError("it is longer than its header says, or its lists differ in length")
    if "vertex" not in found:
        return np.zeros((0, 3)), np.zeros((0, 3), np.int64)
    kinds = {element.name: element for element in elements}
    names = [prop.name for prop in kinds["vertex"].properties]
    columns = [found["vertex"][f"p{names.index(axis)}"] for axis in "xyz"]
    with np.errstate(invalid="ignore"):  # nan is refused later
        positions = np.column_stack(columns).astype(np.float64)
    if "face" not in found:
        return positions, np.zeros((0, 3), np.int64)
    return positions, _triangles(found["face"], kinds["face"])


def _row_kind(data: bytes, start: int, order: str, element: Element) -> np.dtype[Any]:
    """The dtype of a row; all lists are as long as in the first row."""
    fields: list[tuple[Any, ...]] = []
    at = start
    for k, prop in enumerate(element.properties):
        item = np.dtype(order + prop.kind)
        if prop.count_kind is None:
            fields.append((f"p{k}", item))
            at += item.itemsize
            continue
        head = np.dtype(order + prop.count_kind)
        if at + head.itemsize > len(data):
            raise ValueError("it is shorter than its header says")
        length = int(np.frombuffer(data, head, 1, at)[0])
        at += head.itemsize + max(length, 0) * item.itemsize
        if length < 0 or at > len(data):
            raise ValueError(f"a list of {length} items, which do not fit into the file")
        fields += [(f"n{k}", head), (f"p{k}", item, (length,))]
    return np.dtype(fields)


def _triangles(rows: NDArray[Any], element: Element) -> IntArray:
    """Triangles of faces that all have the same number of corners."""
    which = _corner_list(element)
    for k, prop in enumerate(element.properties):
        if prop.count_kind is not None and (rows[f"n{k}"] != rows[f"n{k}"][0]).any():
            raise ValueError("its faces have different numbers of corners, which only a text file may have")
    corners = rows[f"p{which}"]
    if corners.dtype.kind == "u" and corners.dtype.itemsize == 8 and corners.size and corners.max() >= 2**63:
        raise ValueError("a face index beyond 64 bits")
    polygons = corners.astype(np.int64)
    count = polygons.shape[1]
    if count < 3:
        raise ValueError(f"faces of {count} corners")
    if count == 4:
        return np.vstack([polygons[:, [0, 1, 2]], polygons[:, [2, 3, 0]]])
    fan = [polygons[:, [0, k + 1, k + 2]] for k in range(count - 2)]
    return np.stack(fan, axis=1).reshape(-1, 3)


# ------------------------------------------------------------------------------------------------------------- glb
def read_glb(data: bytes) -> Mesh:
    """Vertices and faces of all parts of the scene, one part after the other, decoded by trimesh."""
    gltf = require("trimesh.exchange.gltf", "mesh")
    with np.errstate(all="ignore"):  # vertices that are not finite are refused later
        try:
            scene = gltf.load_glb(io.BytesIO(_safe_glb(data)), skip_materials=True)
        except (AssertionError, IndexError) as error:
            raise ValueError("it has fewer bytes than its buffers declare") from error
        matrices = {scene["base_frame"]: np.eye(4)}
        vertices, faces, n_before = [np.zeros((0, 3))], [np.zeros((0, 3), np.int64)], 0
        for edge in scene["graph"]:  # parents come before their children
            matrix = matrices[edge["frame_to"]] = matrices[edge["frame_from"]] @ edge["matrix"]
            if "geometry" not in edge:
                continue
            part = scene["geometry"][edge["geometry"]]
            points, corners = part["vertices"].astype(np.float64), part["faces"].astype(np.int64)
            if corners.size and int(corners.max()) >= len(points):
                raise ValueError(f"it has a face index {int(corners.max())} and {len(points)} vertices")
            if np.abs(matrix - np.eye(4)).max() >= _SAME:
                stacked = np.column_stack([points, np.ones(len(points))])
                points = np.ascontiguousarray(np.dot(matrix, stacked.T).T[:, :3])
                if np.linalg.det(matrix[:3, :3]) < 0:  # a mirror
                    corners = corners[:, ::-1]
            vertices.append(points)
            faces.append(corners + n_before)
            n_before += len(points)
    return np.concatenate(vertices), np.concatenate(faces)


def read_gltf(data: bytes) -> Mesh:
    """Vertices and faces of a gltf file, whose numbers are inside it."""
    return read_glb(struct.pack("<5I", _GLB_MAGIC, 2, 20 + len(data), len(data), _GLB_JSON) + data)


def _safe_glb(data: bytes) -> bytes:
    """The same file with only the positions and triangles of its scene, after all declared sizes are checked."""
    magic, version, _, length, kind = struct.unpack("<5I", data[:20])
    if magic != _GLB_MAGIC or version != 2 or kind != _GLB_JSON:
        raise ValueError("it is not a glb file of version 2")
    if length > _LONGEST_JSON:
        raise ValueError(f"its JSON text has {length} bytes, more than {_LONGEST_JSON}")
    tree = _reduced_glb(json.loads(data[20 : 20 + length]), _ROOM + _ROOM_PER_BYTE * len(data))
    text = json.dumps(tree).encode()
    head = struct.pack("<5I", _GLB_MAGIC, 2, len(data) + len(text), len(text), _GLB_JSON)
    return head + text + data[20 + length :]


def _reduced_glb(tree: Any, room: int) -> dict[str, Any]:
    """The tree with nodes, triangles and their numbers only; reading it takes at most ``room`` bytes."""
    n_nodes, buffers = len(tree.get("nodes", [])), tree.get("buffers", [])
    n_parts = sum(len(mesh.get("primitives", [])) for mesh in tree.get("meshes", []))
    n_bytes = _BYTES_PER_NODE * (n_nodes + len(buffers) + n_parts)  # to be allocated
    if n_bytes > room:
        raise ValueError("it has too many nodes, parts or buffers for its size")
    if any("base64," not in entry["uri"] for entry in buffers if "uri" in entry):
        raise ValueError("it refers to another file, which is not opened")
    scene = _item(tree, "scenes", tree.get("scene", 0)) if "scenes" in tree else {}
    order, nodes, meshes = list(scene.get("nodes", [])), dict[int, Any](), dict[int, tuple[dict[str, int], int]]()
    out: dict[str, list[Any]] = {"scenes": [{"nodes": order.copy()}], "meshes": []}
    out |= {"buffers": buffers, "accessors": [], "bufferViews": []}
    for index in order:  # grows by the children of each node
        node = _item(tree, "nodes", index)
        if index in nodes:
            raise ValueError("it has a node at two places")
        order += node.get("children", [])
        nodes[index] = {key: node[key] for key in _GLB_PLACING if key in node}
        if "mesh" in node:
            if node["mesh"] not in meshes:
                meshes[node["mesh"]] = _glb_mesh(tree, node["mesh"], out)
            number, n_copied = meshes[node["mesh"]]
            nodes[index] |= number
            n_bytes += n_copied
    if n_bytes + 2 * sum(view["byteLength"] for view in out["bufferViews"]) > room:
        raise ValueError("its parts together are too large for its size; a part is used too many times")
    return {**out, "nodes": [nodes.get(k, {}) for k in range(n_nodes)]}


def _glb_mesh(tree: Any, index: Any, out: dict[str, list[Any]]) -> tuple[dict[str, int], int]:
    """Copy a mesh. Return its new number, if it has triangles, and the bytes for each node that uses it."""
    parts, n_bytes = [], 0
    for part in _item(tree, "meshes", index).get("primitives", []):
        mode = part.get("mode", _TRIANGLES)
        if mode not in (_TRIANGLES, _STRIP):
            continue
        if "POSITION" not in part.get("attributes", {}):
            raise ValueError("it has a part without positions")
        position, n_vertices = _glb_accessor(tree, part["attributes"]["POSITION"], "VEC3", tuple(_GLB_SIZES), out)
        kept, n_corners = {"attributes": {"POSITION": position}, "mode": mode}, n_vertices
        if "indices" in part:
            kept["indices"], n_corners = _glb_accessor(tree, part["indices"], "SCALAR", _GLB_INDICES, out)
        n_faces = n_corners // 3 if mode == _TRIANGLES else 3 * n_corners  # of a strip, with its working copies
        n_bytes += _BYTES_PER_NODE + _BYTES_PER_ITEM * (n_vertices + n_faces)
        parts.append(kept)
    out["meshes"].append({"primitives": parts})
    return {"mesh": len(out["meshes"]) - 1} if parts else {}, n_bytes


def _glb_accessor(
    tree: Any, index: Any, kind: str, components: tuple[int, ...], out: dict[str, list[Any]]
) -> tuple[int, int]:
    """Copy an accessor and its view. Return its new number and its number of rows."""
    entry = _item(tree, "accessors", index)
    if "bufferView" not in entry or "sparse" in entry or entry.get("normalized"):
        raise ValueError("it has numbers that are compressed, sparse or scaled")
    if entry.get("type") != kind or entry.get("componentType") not in components:
        raise ValueError(f"it has positions or corners of an unknown kind {str(entry.get('type'))[:40]!r}")
    view = _item(tree, "bufferViews", entry["bufferView"])
    row = (3 if kind == "VEC3" else 1) * _GLB_SIZES[entry["componentType"]]
    count: Any = entry.get("count")
    stride, length = view.get("byteStride", row), view.get("byteLength")
    offset, start = view.get("byteOffset", 0), entry.get("byteOffset", 0)
    whole = _item(tree, "buffers", view.get("buffer")).get("byteLength")
    for size in (stride, count, length, offset, start, whole):
        if type(size) is not int or not 0 <= size < 2**53:
            raise ValueError(f"it has a size of {str(size)[:40]}")
    used = (count - 1) * stride + row
    if count == 0 or stride < row or start + used > length or offset + length > whole:
        raise ValueError("it has numbers beyond the end of their buffer")
    out["bufferViews"].append(
        {"buffer": view["buffer"], "byteOffset": offset + start, "byteLength": used, "byteStride": stride}
    )
    number = len(out["accessors"])
    out["accessors"].append(
        {"bufferView": number, "componentType": entry["componentType"], "count": count, "type": kind}
    )
    return number, count


def _item(tree: Any, name: str, index: Any) -> dict[str, Any]:
    found = tree.get(name, [])
    if type(index) is not int or not 0 <= index < len(found) or not isinstance(found[index], dict):
        raise ValueError(f"it refers to {name} that do not exist")
    item: dict[str, Any] = found[index]
    return item


# ------------------------------------------------------------------------------------------------- vtk, vtp and vtu
class _Legacy:
    """Reads lines and numbers of a vtk file, one after the other."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at, self.is_text = data, 0, True

    def words(self) -> list[bytes]:
        """The words of the next line that is not blank; none at the end."""
        words: list[bytes] = []
        while not words and self.at < len(self.data):
            words = self.line().split()
        return words

    def line(self) -> bytes:
        """The next line."""
        begin, end = self.at, self.data.find(b"\n", self.at, self.at + _LONGEST_LINE)
        if end < 0 and len(self.data) - begin > _LONGEST_LINE:
            raise ValueError(f"a line of more than {_LONGEST_LINE} bytes")
        self.at = end + 1 if end >= 0 else len(self.data)
        return self.data[begin : self.at]

    def numbers(self, count: int, kind: str) -> NDArray[Any]:
        """The next numbers, which end with a line."""
        if not self.is_text:
            begin, self.at = self.at, self.at + count * int(kind[1:])
            if self.at > len(self.data):
                raise ValueError("it is shorter than its header says")
            return np.frombuffer(self.data, f">{kind}", count, begin)
        values: array[Any] = array("d" if kind[0] == "f" else "q")
        while len(values) < count and (words := self.words()):
            values.extend([number(word) if kind[0] == "f" else integer(word) for word in words])
        if len(values) != count:
            raise ValueError(f"{len(values)} numbers where {count} should be")
        return _rounded(values, kind)

    def cells(self, sizes: list[bytes]) -> tuple[IntArray, IntArray]:
        """The numbers of corners of cells, and the corners of all of them."""
        n_first, n_second = natural(sizes[0]), natural(sizes[1])
        if self.data.startswith(b"OFFSETS", self.at):
            ends = self.numbers(n_first, _vtk_type(self.words()[1]))
            corners = self.numbers(n_second, _vtk_type(self.words()[1]))
            return _lengths(ends[1:], ends[:1]), corners.astype(np.int64)
        flat = self.numbers(n_second, "i4").astype(np.int64)
        heads, at = array("q"), 0  # the number of corners comes before the corners
        while at < len(flat):
            heads.append(at)
            at += 1 + max(int(flat[at]), 0)
        places = np.array(heads, dtype=np.int64)
        return flat[places], np.delete(flat, places)


def _lengths(ends: NDArray[Any], first: Any = 0) -> IntArray:
    """Lengths of parts that end at these places."""
    begins = np.concatenate([np.atleast_1d(first), ends])
    return np.asarray(np.diff(begins.astype(np.int64)), dtype=np.int64)


def _vtk_type(word: bytes) -> str:
    if word.lower() not in _VTK_TYPES:
        raise ValueError(f"numbers of an unknown type {_shown(word)}")
    return _VTK_TYPES[word.lower()]


def read_vtk(data: bytes) -> Mesh:
    """Points and faces of a legacy vtk file with a surface, or with a grid whose cells are faces."""
    file = _Legacy(data)
    if not file.line().startswith(b"# vtk DataFile"):
        raise ValueError("it is not a legacy vtk file")
    file.line()  # a title
    file.is_text = file.words()[:1] == [b"ASCII"]
    points, counts, corners, kinds = np.zeros((0, 3)), np.zeros(0, np.int64), np.zeros(0, np.int64), None
    while (words := [word.upper() for word in file.words()]) and words[0] not in (b"POINT_DATA", b"CELL_DATA"):
        key, sizes = words[0], words[1:]
        if key == b"TRIANGLE_STRIPS" or (
            key == b"DATASET" and sizes not in ([b"POLYDATA"], [b"UNSTRUCTURED_GRID"])
        ):
            raise ValueError(f"it has {_shown(b' '.join(words))}, and no plain faces")
        if key == b"POINTS":
            points = file.numbers(3 * natural(sizes[0]), _vtk_type(sizes[1])).reshape(-1, 3).astype(np.float64)
        elif key in (b"POLYGONS", b"CELLS"):
            counts, corners = file.cells(sizes)
        elif key in (b"LINES", b"VERTICES"):
            file.cells(sizes)
        elif key == b"CELL_TYPES":
            kinds = file.numbers(natural(sizes[0]), "i4")
    return points, _vtk_faces(counts, corners, kinds)


def _vtk_faces(counts: IntArray, corners: IntArray, kinds: NDArray[Any] | None) -> IntArray:
    """Triangles of cells with these numbers of corners; points and lines are left out, other cells refused."""
    if (counts < 0).any() or counts.sum() != len(corners) or (kinds is not None and len(kinds) != len(counts)):
        raise ValueError("its cells do not have as many corners as it says")
    if kinds is not None:
        others = np.setdiff1d(kinds, (*_VTK_IGNORED, *_VTK_FACES))
        if len(others):
            raise ValueError(f"it has cells of type {others[0]}, which are not faces")
        kept = np.isin(kinds, _VTK_FACES)
        counts, corners = counts[kept], corners[np.repeat(kept, counts)]
    if (counts < 3).any():
        raise ValueError(f"a face of {counts.min()} corners")
    if (counts == 3).all():
        return corners.reshape(-1, 3)  # without copies
    polygons = Polygons()
    polygons.counts.frombytes(counts.tobytes())
    polygons.corners.frombytes(corners.tobytes())
    return polygons.triangles(grouped=False)


def read_vtk_xml(data: bytes) -> Mesh:
    """Points and faces of all pieces of a vtp or vtu file."""
    begin = re.search(rb"<AppendedData[^>]{0,200}>\s*_", data)
    text = data if begin is None else data[: begin.start()] + b"</VTKFile>"
    file = ElementTree.fromstring(_safe_xml(text))
    rest = b"" if begin is None else data[begin.end() : data.rfind(b"</AppendedData>")]
    is_raw = begin is not None and b"raw" in begin[0]
    arrays = _XmlArrays(file, rest, _VTK_ROOM + _VTK_ROOM_PER_BYTE * len(data), is_raw=is_raw)
    vertices, faces, n_before = [np.zeros((0, 3))], [np.zeros((0, 3), np.int64)], 0
    for piece in file.iter("Piece"):
        if piece.get("NumberOfStrips", "0") != "0":
            raise ValueError("it has strips of triangles")
        points = arrays.read(piece.find("Points/DataArray"), "iuf").reshape(-1, 3).astype(np.float64)
        found = [*piece.iterfind("Polys/DataArray"), *piece.iterfind("Cells/DataArray")]
        cells = {item.get("Name"): item for item in found}
        ends, corners = (arrays.read(cells.get(name)) for name in ("offsets", "connectivity"))
        kinds = arrays.read(cells["types"]) if "types" in cells else None
        if corners.size and not 0 <= corners.min() <= corners.max() < len(points):
            raise ValueError(f"it has a corner that is none of the {len(points)} points of its piece")
        vertices.append(points)
        faces.append(_vtk_faces(_lengths(ends), corners.astype(np.int64), kinds) + n_before)
        n_before += len(points)
    return np.concatenate(vertices), np.concatenate(faces)


class _XmlArrays:
    """Reads the arrays of a vtp or vtu file: text, binary or appended, packed or not."""

    def __init__(self, file: ElementTree.Element, appended: bytes, room: int, *, is_raw: bool) -> None:
        self.appended, self.room, self.is_raw, self.packer = appended, room, is_raw, file.get("compressor")
        self.order = ">" if file.get("byte_order") == "BigEndian" else "<"
        self.header = np.dtype(self.order + _XML_TYPES[file.get("header_type", "UInt32")])
        if self.packer not in (None, "vtkZLibDataCompressor"):
            raise ValueError(f"it is packed by {self.packer[:40]}")

    def read(self, item: ElementTree.Element | None, kinds: str = "iu") -> NDArray[Any]:
        """The numbers of an element, of these kinds."""
        if item is None:
            raise ValueError("it has no points or no faces")
        kind, form = np.dtype(self.order + _XML_TYPES[str(item.get("type"))]), item.get("format")
        if kind.kind not in kinds:
            raise ValueError("it has corners that are not integers")
        if form == "ascii":
            return _text_numbers(item.text or "", kind)
        if form == "appended":
            return np.frombuffer(self._block(self.appended, int(item.get("offset", "")), is_raw=self.is_raw), kind)
        return np.frombuffer(self._block((item.text or "").strip().encode(), 0, is_raw=False), kind)

    def _block(self, text: bytes, at: int, *, is_raw: bool) -> bytes | bytearray:
        """The bytes of an array whose header is at this place."""

        def take(begin: int, n_bytes: int) -> tuple[bytes, int]:
            end = begin + (n_bytes if is_raw else -(-n_bytes // 3) * 4)
            if not 0 <= begin <= end <= len(text):
                raise ValueError("it has fewer bytes than its arrays declare")
            return (text[begin:end] if is_raw else base64.b64decode(text[begin:end], validate=True))[:n_bytes], end

        first, end = take(at, self.header.itemsize)
        size = int(np.frombuffer(first, self.header)[0])
        if self.packer is None:
            self._reserve(size)
            is_apart = not is_raw and text[end - 1 : end] == b"="  # the header may be encoded on its own
            return take(end, size)[0] if is_apart else take(at, len(first) + size)[0][len(first) :]
        head, end = take(at, (3 + size) * self.header.itemsize)
        sizes = [int(length) for length in np.frombuffer(head, self.header)[1:]]
        self._reserve(size * max(sizes[0], 1))  # all blocks but the last have the same size when they are unpacked
        packed, _ = take(end, sum(sizes[2:]))
        unpacked, begin = bytearray(), 0
        for length in sizes[2:]:
            unpacked += zlib.decompressobj().decompress(packed[begin : begin + length], max(sizes[0], 1))
            begin += length
        return unpacked

    def _reserve(self, n_bytes: int) -> None:
        """Take room for an array; several elements may refer to the same one."""
        self.room -= n_bytes
        if self.room < 0:
            raise ValueError("it unpacks to too many bytes for its size; save it without compression")


def _text_numbers(text: str, kind: np.dtype[Any]) -> NDArray[Any]:
    """The numbers in a text, which may be one long line."""
    words = (word[0].encode() for word in re.finditer(r"\S+", text))
    is_float = kind.kind == "f"
    return _rounded(array("d", map(number, words)) if is_float else array("q", map(integer, words)), kind.str[1:])


def _rounded(values: "array[Any]", kind: str) -> NDArray[Any]:
    """Numbers of a text as a binary file would hold them; integers keep 64 bits."""
    if kind[0] != "f":
        return np.frombuffer(values, np.int64)
    with np.errstate(over="ignore"):  # infinite numbers are refused later
        return np.frombuffer(values, np.float64).astype(kind)


def _safe_xml(data: bytes) -> bytes:
    """The same text, if it cannot grow while it is parsed."""
    encoding = re.search(rb"encoding\s*=\s*[\"']([^\"']*)", data[:200])
    is_plain = b"\0" not in data[:64] and (encoding is None or encoding[1].lower() in _XML_ENCODINGS)
    if not is_plain or b"<!ENTITY" in data or data.count(b"<") > _MOST_TAGS:
        raise ValueError("it defines entities, is not in UTF-8 or has too many elements")
    return data


# --------------------------------------------------------------------------------------------------- gii and meshio
def read_gii(data: bytes) -> Mesh:
    """Vertices and faces of a GIFTI surface."""
    items = list(ElementTree.fromstring(_safe_xml(data)).iter("DataArray"))
    parts = [[item for item in items if item.get("Intent") == f"NIFTI_INTENT_{kind}"] for kind in _GII_PARTS]
    if [len(part) for part in parts] != [1, 1]:
        raise ValueError(f"it has {len(parts[0])} sets of points and {len(parts[1])} of triangles, not one of each")
    points, faces = (_gii_array(part[0], _GII_ROOM + _GII_ROOM_PER_BYTE * len(data)) for part in parts)
    if faces.dtype.kind == "f":
        raise ValueError("it has corners that are not integers")
    return points.astype(np.float64), faces.astype(np.int64)


def _gii_array(item: ElementTree.Element, room: int) -> NDArray[Any]:
    """An array of shape (n, 3), whose bytes may be packed."""
    order, text, form = item.get("ArrayIndexingOrder"), item.findtext("Data") or "", item.get("Encoding")
    kind = np.dtype((">" if item.get("Endian") == "BigEndian" else "<") + _GII_TYPES[str(item.get("DataType"))])
    shape = natural(item.get("Dim0", "").encode()), natural(item.get("Dim1", "").encode())
    n_bytes = shape[0] * shape[1] * kind.itemsize
    if n_bytes > room or form not in ("ASCII", "Base64Binary", "GZipBase64Binary"):
        raise ValueError(
            "it unpacks to too many bytes for its size, or refers to another file, which is not opened"
        )
    if form == "ASCII":
        values = _text_numbers(text, kind)
    else:
        code = base64.b64decode(text)
        values = np.frombuffer(code if form[0] == "B" else zlib.decompressobj().decompress(code, n_bytes + 1), kind)
    return values.reshape(shape, order="F" if order == "ColumnMajorOrder" else "C")


def _by_meshio(path: Path, kind: str) -> Mesh:
    """Vertices and faces of a file of gmsh or medit."""
    readers = {"msh": "meshio.gmsh", "mesh": "meshio.medit"}
    found = recognise(require(readers[kind], "mesh").read(path), "path")
    if found is None or found.faces is None:
        raise ValueError("it has no triangles")
    return found.points, found.faces


# ---------------------------------------------------------------------------------------------------- shared parts
def text_lines(data: bytes, *, comments: bool = True) -> Iterator[bytes]:
    """Lines that are not blank, without comments (from # on)."""
    for line in _raw_lines(data):
        text = line.partition(b"#")[0] if comments else line
        if text := text.strip():
            yield text


def _raw_lines(data: bytes) -> Iterator[bytes]:
    """All lines; old files may end them with a carriage return."""
    if b"\n" not in data:
        data = data.replace(b"\r", b"\n")
    for line in io.BytesIO(data):
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"a line of {len(line)} bytes")
        yield line


def check_counts(declared: tuple[int, int], held: tuple[int, int]) -> None:
    """Raise if a file has fewer vertices or faces than it declares."""
    if declared != held:
        numbers = f"it declares {declared[0]} vertices and {declared[1]} faces"
        raise ValueError(f"{numbers} but holds {held[0]} and {held[1]}")


def listed(words: Sequence[bytes]) -> list[int]:
    """Integers of a list that starts with its length; more words may follow."""
    count = natural(words[0])
    if count > len(words) - 1:
        raise ValueError(f"a face of {count} corners that lists {len(words) - 1}")
    return [integer(word) for word in words[1 : count + 1]]


def natural(word: bytes) -> int:
    """A nonnegative integer."""
    if (value := integer(word)) < 0:
        raise ValueError(f"a negative number {value}")
    return value


def integer(word: bytes) -> int:
    """A 64-bit integer; Python's notation 1_000 is not accepted."""
    try:
        value = int(word) if len(word) < 24 and b"_" not in word else None
    except ValueError:
        value = None
    if value is None or abs(value) >= 2**63:
        raise ValueError(f"{_shown(word)} where an integer should be")
    return value


def number(word: bytes) -> float:
    """A number; NaN and infinity are refused later."""
    try:
        if b"_" not in word:
            return float(word)
    except ValueError:
        pass
    raise ValueError(f"{_shown(word)} where a number should be")


def _numbers(words: Iterable[bytes], line: bytes) -> list[float]:
    values = [number(word) for word in words]
    if len(values) < 3:
        raise ValueError(f"a line {_shown(line)} with fewer than three values")
    return values


def _positions(values: "array[float]") -> FloatArray:
    return np.frombuffer(values, np.float64).reshape(-1, 3)


def _shown(text: bytes) -> str:
    """The first bytes of a text, for an error message."""
    return repr(text[:40].decode("utf-8", "replace").strip())


_READERS = {
    **{"ply": read_ply, "obj": read_obj, "stl": read_stl, "off": read_off, "glb": read_glb, "gltf": read_gltf},
    **{"vtk": read_vtk, "vtp": read_vtk_xml, "vtu": read_vtk_xml, "gii": read_gii},
}
