"""Read and write triangle meshes.

trimesh reads and writes stl and glb files; meshio reads vtk, vtu, msh and mesh files, and nibabel gii files.
Readers of ply, obj and off files are here: trimesh splits vertices along the texture seams of an obj file, refuses
binary ply files of triangles and quadrilaterals, and cuts concave polygons wrongly. When it writes, it rounds
positions in ply files to single precision, and in obj and off files to a fixed number of decimals.

Sizes that a file declares are compared with the size of the file before they are used. No other file is opened.
"""

import base64
import io
import json
import re
import struct
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manifoldrf._files import as_path, atomic_path, existing_file
from manifoldrf._runtime import filtered, require, warn_user
from manifoldrf._validation import FloatArray, IntArray, check_points, reject

MESH_FORMATS = ("ply", "obj", "stl", "off", "glb")
# Format -> the module of the extra `mesh` that reads it.
_EXTRA = {"vtk": "meshio.vtk", "vtu": "meshio.vtu", "msh": "meshio.gmsh", "mesh": "meshio.medit", "gii": "nibabel"}
FIELD_FORMATS = ("vtk", "vtu", "gii")  # hold numbers at the vertices
READABLE_FORMATS = (*MESH_FORMATS, *_EXTRA)
Polygons = tuple[FloatArray, IntArray, IntArray]  # positions, numbers of corners, and the corners of all faces

_PLY_TYPES = {
    **{"char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2"},
    **{"uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "int64": "i8", "uint64": "u8"},
    **{"float": "f4", "float32": "f4", "double": "f8", "float64": "f8"},
}


def read_mesh(path: Path) -> tuple[FloatArray, IntArray]:
    """Read vertices and faces of a mesh file; polygons are cut into triangles."""
    kind = mesh_format(path, READABLE_FORMATS)
    module = require(_EXTRA[kind], "mesh") if kind in _EXTRA else None
    if existing_file(path).stat().st_size > 2**32:  # memory is up to thirty times the size of the file
        reject_mesh(path, "it has more than 4 GB")
    data = path.read_bytes()
    try:
        with np.errstate(all="ignore"), filtered("error", "string or file could not be read", DeprecationWarning):
            if kind in _READERS:
                vertices, faces = triangles(*_READERS[kind](data))
            elif kind == "gii":
                vertices, faces = _read_gii(data, module)
            elif kind in _EXTRA:
                vertices, faces = triangles(*_by_meshio(path, data, module))
            else:
                vertices, faces = _by_trimesh(data, kind)
    except ImportError:
        raise
    except Exception as error:  # noqa: BLE001 - readers fail in many ways
        reject_mesh(path, str(error) or f"{type(error).__name__} of its reader")
    if len(faces) == 0:
        reject_mesh(path, "it has no faces; pass points as an array, or in an npy, npz or csv file")
    return vertices, faces


def write_mesh(path: Path, vertices: FloatArray, faces: IntArray) -> None:
    """Write a mesh file in the format of its suffix, atomically."""
    kind = mesh_format(path)
    if kind == "ply":
        write_ply(path, vertices, faces=faces)
        return
    if kind in ("obj", "off"):
        # The shortest digits that read back as the same numbers.
        lead, three, first = ("v ", "f ", 1) if kind == "obj" else ("", "3 ", 0)
        lines = [] if kind == "obj" else ["OFF", f"{len(vertices)} {len(faces)} 0"]
        lines += [f"{lead}{x!r} {y!r} {z!r}" for x, y, z in vertices.tolist()]
        lines += [f"{three}{i} {j} {k}" for i, j, k in (faces + first).tolist()]
        data = ("\n".join(lines) + "\n").encode()
    else:
        import trimesh

        if np.abs(vertices).max() > np.finfo(np.float32).max:
            reject("path", "a .ply, .obj or .off file for coordinates beyond single precision", path.name)
        remedy = "a .ply file keeps every vertex and digit"
        sides = np.abs(vertices[faces[:, 0]] - vertices[faces[:, 1]]).max(axis=1)
        moved = float(np.abs(vertices.astype(np.float32) - vertices).max())
        if kind == "stl":
            warn_user(f"An stl file rounds positions to single precision and splits vertices ({remedy}).")
        elif moved > 1e-3 * np.median(sides):  # 1 % of an area, in the worst case
            warn_user(f"A glb file rounds positions to single precision, here by {moved:.2g} ({remedy}).")
        exported: Any = trimesh.Trimesh(vertices, faces, process=False).export(file_type=kind)
        data = bytes(exported)
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_field(path: Path, vertices: FloatArray, faces: IntArray, field: FloatArray | None) -> None:
    """Write a mesh and a field at its vertices, (n,), for ParaView (vtk, vtu) or Workbench (gii), atomically.

    gii files have single precision; those that end in .shape.gii or .func.gii hold the field alone.
    """
    if mesh_format(path, FIELD_FORMATS) != "gii":
        meshio, columns = require("meshio", "mesh"), {} if field is None else {"field": field}
        with atomic_path(path) as temporary:
            meshio.Mesh(vertices, [("triangle", faces)], point_data=columns).write(temporary)
        return
    gifti = require("nibabel", "mesh").gifti
    parts: list[Any] = [(field, "SHAPE", "FLOAT32")]
    if not path.name.lower().endswith((".shape.gii", ".func.gii")):
        parts = [(vertices, "POINTSET", "FLOAT32"), (faces, "TRIANGLE", "INT32"), *parts]
    arrays = [
        gifti.GiftiDataArray(values.astype(kind.lower()), f"NIFTI_INTENT_{intent}", f"NIFTI_TYPE_{kind}")
        for values, intent, kind in parts
        if values is not None
    ]
    if not arrays:
        reject("field", "given for a file of a field", None)
    with atomic_path(path) as temporary:
        temporary.write_bytes(gifti.GiftiImage(darrays=arrays).to_bytes())


def write_ply(
    path: str | PathLike[str], points: ArrayLike, colors: ArrayLike | None = None, faces: IntArray | None = None
) -> None:
    """Write a mesh, or points without faces, to a binary ply file, atomically; positions keep every digit.

    Parameters
    ----------
    path : str or path
        A file ending in .ply.
    points : array-like of shape (n, 3)
        Positions.
    colors : array-like of shape (n, 3), uint8, optional
        Red, green and blue.
    faces : ndarray of shape (m, 3), optional
        Triangles.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "cloud.ply"
    ...     write_ply(file, [[0, 0, 0], [1, 2, 3]], np.zeros((2, 3), np.uint8))
    ...     file.read_bytes().splitlines()[2]
    b'element vertex 2'
    """
    path, points = as_path(path), check_points(points, n_columns=3)
    if mesh_format(path) != "ply":
        reject("path", "a .ply file, the only format that keeps colours here", path.name)
    columns, lines = [("position", "<f8", 3)], [f"property double {axis}" for axis in "xyz"]
    if colors is not None:
        tints = np.asarray(colors)
        if tints.dtype != np.uint8 or tints.shape != points.shape:
            reject("colors", f"a uint8 array of shape {points.shape}", f"{tints.dtype} of shape {tints.shape}")
        columns.append(("color", "u1", 3))
        lines += [f"property uchar {color}" for color in ("red", "green", "blue")]
    rows = np.zeros(len(points), columns)
    rows["position"] = points
    if colors is not None:
        rows["color"] = tints
    corners = np.zeros(0 if faces is None else len(faces), [("count", "u1"), ("corners", "<i4", 3)])
    if faces is not None:
        corners["count"], corners["corners"] = 3, faces
        lines += [f"element face {len(faces)}", "property list uchar int vertex_indices"]
    head = ["ply", "format binary_little_endian 1.0", f"element vertex {len(rows)}", *lines, "end_header\n"]
    with atomic_path(path) as temporary:
        temporary.write_bytes("\n".join(head).encode() + rows.tobytes() + corners.tobytes())


def mesh_format(path: Path, formats: Sequence[str] = MESH_FORMATS) -> str:
    """Return the mesh format of a path: its suffix in lower case."""
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in formats:
        remedies = {"vtp": "; TriangleMesh.of(pyvista.read(path)) takes it", "gltf": "; save it as glb"}
        reject("path", f"a file name ending in .{', .'.join(formats)}{remedies.get(suffix, '')}", path.name)
    return suffix


def reject_mesh(path: Path, reason: object) -> NoReturn:
    """Raise the error for a mesh file that cannot be used."""
    words = " ".join(str(reason).split()).rstrip(".")[:300]
    reject("path", "a readable triangle mesh", f"{path.name}: {words}")


def triangles(vertices: FloatArray, counts: IntArray, corners: IntArray) -> tuple[FloatArray, IntArray]:
    """Cut polygons into triangles: a fan if it covers the polygon, otherwise by cutting off ears."""
    if counts.sum() != len(corners):
        raise ValueError(f"{len(corners)} corners of {counts.sum()}")
    if len(counts) and counts.min() < 3:
        raise ValueError(f"a face of {counts.min()} corners")
    if (counts == 3).all():
        return vertices, corners.reshape(-1, 3)
    if not np.isfinite(vertices).all() or not 0 <= corners.min() <= corners.max() < len(vertices):
        raise ValueError("positions that are not finite, or corners that are no vertices")
    places = vertices / max(float(np.abs(vertices).max()), 1e-300)  # squares stay finite
    start, found, owner = np.cumsum(counts) - counts, [], []
    for size in np.unique(counts):
        which = np.flatnonzero(counts == size)
        faces = corners[start[which, None] + np.arange(size)]
        for first in range(2):  # one of the diagonals of a quadrilateral is inside
            turned = np.roll(faces, -first, axis=1)
            fan = np.stack([np.repeat(turned[:, :1], size - 2, axis=1), turned[:, 1:-1], turned[:, 2:]], axis=2)
            parts = _doubled_areas(places[fan])  # (m, size - 2, 3)
            whole = parts.sum(axis=1)
            along = np.einsum("fpd,fd->fp", parts, whole)
            right = (along >= -1e-9 * np.abs(along).sum(axis=1, keepdims=True)).all(axis=1)
            found.append(fan[right].reshape(-1, 3))
            owner.append(np.repeat(which[right], size - 2))
            which, faces, whole = which[~right], faces[~right], whole[~right]
        for index, face, normal in zip(which, faces, whole, strict=True):
            found.append(_without_ears(places, face, normal))
            owner.append(np.full(len(found[-1]), index))
    return vertices, np.concatenate(found)[np.argsort(np.concatenate(owner), kind="stable")]


def _without_ears(places: FloatArray, face: IntArray, normal: FloatArray) -> IntArray:
    """Triangles of a concave polygon whose sides do not cross."""
    flat = np.delete(places[face], np.abs(normal).argmax(), axis=1)
    ends = np.array([len(face)], np.uint32)
    cut: Any = require("mapbox_earcut", "mesh").triangulate_float64(np.ascontiguousarray(flat), ends)
    found = face[cut.reshape(-1, 3).astype(np.int64)]
    along = _doubled_areas(places[found]) @ normal
    found[along < 0] = found[along < 0][:, ::-1]
    if not np.isclose(np.abs(along).sum(), normal @ normal, rtol=1e-6):
        raise ValueError("a polygon whose sides cross")
    return np.asarray(found, dtype=np.int64)


def _doubled_areas(corners: FloatArray) -> FloatArray:
    """Normals of triangles (..., 3, 3), as long as twice their areas."""
    base = corners[..., 0, :]
    return np.asarray(np.cross(corners[..., 1, :] - base, corners[..., 2, :] - base))


# --------------------------------------------------------------------------------------------------------- readers
def _read_obj(data: bytes) -> Polygons:
    """Positions and faces; other lines are ignored, and negative indices count from the latest vertex."""
    positions, counts, corners = array("d"), array("q"), array("q")
    for line in _lines(re.sub(rb"\\\r?\n", b" ", data)):
        key, *words = line.split()
        if key == b"v":
            positions.extend(_three(words))
        elif key == b"f":
            numbers = [int(word.partition(b"/")[0]) for word in words]
            if 0 in numbers:
                raise ValueError("a face index 0, but vertices are counted from 1")
            counts.append(len(numbers))
            corners.extend(k - 1 if k > 0 else len(positions) // 3 + k for k in numbers)
    return _arrays(positions, counts, corners)


def _read_off(data: bytes) -> Polygons:
    """Positions and faces; colours and normals after them are ignored."""
    lines = _lines(data)
    found = re.match(rb"(?:ST)?C?N?OFF\b(.*)", next(lines, b""), re.IGNORECASE)
    if found is None:
        raise ValueError("it does not begin with OFF")
    declared = [int(word) for word in (found[1] or next(lines, b"")).split()[:2]]
    if len(declared) < 2 or min(declared) < 0 or max(declared) > len(data):
        raise ValueError("it does not have as many vertices and faces as it says")
    positions, counts, corners = array("d"), array("q"), array("q")
    for _ in range(declared[0]):
        positions.extend(_three(next(lines, b"").split()))
    for _ in range(declared[1]):
        words = next(lines, b"-1").split()
        counts.append(int(words[0]))
        corners.extend(map(int, words[1 : counts[-1] + 1]))
    return _arrays(positions, counts, corners)


def _lines(data: bytes) -> Iterator[bytes]:
    """Lines that are not blank, without comments; old files end them with a carriage return."""
    for line in io.BytesIO(data if b"\n" in data else data.replace(b"\r", b"\n")):
        if text := line.partition(b"#")[0].strip():
            yield text


def _three(words: list[bytes]) -> list[float]:
    """The position at the beginning of a line."""
    if len(words) < 3:
        raise ValueError("a vertex with fewer than three coordinates")
    return [float(word) for word in words[:3]]


def _arrays(positions: Any, counts: Any, corners: Any) -> Polygons:
    whole = np.frombuffer(positions, np.float64).reshape(-1, 3)
    return whole, np.frombuffer(counts, np.int64), np.frombuffer(corners, np.int64)


def _read_ply(data: bytes) -> Polygons:
    """Positions and faces of a text or binary file; other elements and properties are ignored."""
    found = re.match(rb"ply\s.*?\nend_header[ \t]*\r?\n", data[: 2**20], re.DOTALL)
    if found is None:
        raise ValueError("it is not a ply file, or its header has no end")
    header = found[0].decode("utf-8", "replace").replace("\r", "")
    form = re.findall(r"^format +(\w+)", header, re.MULTILINE)[0]
    order = {"ascii": "", "binary_little_endian": "<", "binary_big_endian": ">"}[form]
    # A text is read as a binary file in which every number is a double.
    body = data[found.end() :] if order else np.fromstring(data[found.end() :], sep=" ").tobytes()
    at, parts = 0, dict[str, Any](face=(np.zeros(0, np.int64), np.zeros(0, np.int64)))
    for text in re.split(r"^element +", header, flags=re.MULTILINE)[1:]:
        name, count = text.split()[0], int(text.split()[1])
        properties = [  # the types of its length, if it is a list, and of its numbers, and its name
            (_ply_type(length, order) if length else None, _ply_type(kind, order), title)
            for length, kind, title in re.findall(r"^property +(?:list +(\w+) +)?(\w+) +(\S+)", text, re.MULTILINE)
        ]
        if any(length for length, _, _ in properties):
            parts[name], at = _ply_lists(body, at, count, properties)
        elif properties:
            row = np.dtype([(title, kind) for _, kind, title in properties])
            if not 0 <= count * row.itemsize <= len(body) - at:
                raise ValueError(f"it has fewer than the {count} rows of {name} that it declares")
            parts[name] = np.frombuffer(body, row, count, at)
            at += count * row.itemsize
    vertices: Any = np.column_stack([parts["vertex"][axis] for axis in "xyz"])
    return vertices.astype(np.float64), *parts["face"]


def _ply_type(word: str, order: str) -> np.dtype[Any]:
    return np.dtype(order + _PLY_TYPES[word] if order else np.float64)


def _ply_lists(body: bytes, at: int, count: int, properties: list[Any]) -> tuple[Any, int]:
    """Lengths and items of the list of corners in some rows, and where the rows end."""
    names = [title for length, _, title in properties if length]
    wanted = ({"vertex_index", "vertex_indices"}.intersection(names) or {names[0]}).pop()
    if not 0 <= count <= len(body) - at:
        raise ValueError(f"it has fewer than the {count} lists that it declares")
    lengths, corners = array("q"), array("q")
    if len(properties) == 1 and count and (equal := _equal_lists(body, at, count, *properties[0][:2])):
        return equal
    for _ in range(count):
        for head, item, title in properties:
            size = 1 if head is None else int(np.frombuffer(body, head, 1, at)[0])
            at += 0 if head is None else head.itemsize
            if not 0 <= size * item.itemsize <= len(body) - at:
                raise ValueError(f"a list of {size} items, which do not fit into the file")
            if title == wanted:
                lengths.append(size)
                corners.extend(_whole(np.frombuffer(body, item, size, at)).tolist())
            at += size * item.itemsize
    return (np.frombuffer(lengths, np.int64), np.frombuffer(corners, np.int64)), at


def _equal_lists(body: bytes, at: int, count: int, head: Any, item: Any) -> tuple[Any, int] | None:
    """The same for rows of one list each, if all lists have the same length, as in most files."""
    first = int(np.frombuffer(body, head, 1, at)[0])
    row = np.dtype([("length", head), ("items", item, (max(first, 0),))])
    if at + count * row.itemsize > len(body):
        return None
    rows = np.frombuffer(body, row, count, at)
    return (
        ((rows["length"].astype(np.int64), _whole(rows["items"].ravel())), at + rows.nbytes)
        if (rows["length"] == first).all()
        else None
    )


def _whole(numbers: NDArray[Any]) -> IntArray:
    if numbers.dtype.kind == "f" and not np.array_equal(numbers, np.rint(numbers)):
        raise ValueError("a face index that is not an integer")
    return numbers.astype(np.int64)


def _by_trimesh(data: bytes, kind: str) -> tuple[FloatArray, IntArray]:
    """Vertices and faces of an stl file, whose equal vertices are merged, or of all parts of a glb scene."""
    import trimesh

    if kind == "glb":
        _check_glb(data)
    mesh = trimesh.load_mesh(io.BytesIO(data), file_type=kind, process=False, skip_materials=True)
    vertices, faces = np.array(mesh.vertices, np.float64, order="C"), np.array(mesh.faces, np.int64)
    if kind == "glb" or len(faces) == 0:
        return vertices, faces
    keys = (vertices + 0.0).view("V24").ravel()  # -0.0 becomes 0.0
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))  # in the order of first appearance
    return vertices[np.sort(first)], rank[group.reshape(-1)][faces]


def _check_glb(data: bytes) -> None:
    """Refuse a glb file that declares more than it holds, uses parts too often, or refers to another file."""
    magic, version, _, length, kind = struct.unpack("<5I", data[:20])
    if (magic, version, kind) != (0x46546C67, 2, 0x4E4F534A) or length > 8_000_000:  # parsed: 27 times as much
        raise ValueError("it is not a glb file of version 2, or its JSON text has more than 8 MB")
    tree = json.loads(data[20 : 20 + length])
    if any("uri" in buffer for buffer in tree.get("buffers", [])):
        raise ValueError("it refers to another file, which is not opened")
    rows = [entry["count"] for entry in tree.get("accessors", [])]
    nodes, sizes = tree.get("nodes", []), []
    for mesh in tree.get("meshes", []):
        parts = [(part["attributes"]["POSITION"], part.get("indices")) for part in mesh["primitives"]]
        sizes.append(sum(rows[k] for part in parts for k in part if k is not None))
    children = [child for node in nodes for child in node.get("children", [])]
    held = sum(sizes[node["mesh"]] for node in nodes if "mesh" in node)
    if len(set(children)) < len(children) or max([0, *rows, held // 8 - 10**5]) > len(data) or len(nodes) > 10_000:
        raise ValueError("it declares more than it holds, or has too many nodes")


def _by_meshio(path: Path, data: bytes, module: Any) -> Polygons:
    """Points, triangles and polygons; cells that are points or lines are ignored."""
    words = rb"(?:POINTS|CELLS|CELL_TYPES|NumberOf\w+=\"|[$](?:Nodes|Elements)|Vertices|Triangles)"
    declared = [
        int(size[:20]) for pair in re.findall(words + rb"\s*(\d+)(?: +(\d+))?", data) for size in pair if size
    ]
    if max([0, *declared]) > 1000 + 8 * len(data) or b"<!ENTITY" in data:
        raise ValueError("it declares more than it holds")
    if b"DATASET POLYDATA" in data[:1000].upper():
        raise ValueError("meshio does not read POLYDATA; TriangleMesh.of(pyvista.read(path)) takes it")
    mesh = module.read(path)
    blocks = [(block.type, np.asarray(block.data)) for block in mesh.cells if block.type not in ("vertex", "line")]
    others = {kind for kind, _ in blocks} - {"triangle", "quad", "polygon"}
    if others:
        raise ValueError(f"it has cells of type {min(others)}, which are not faces")
    counts = [np.full(len(corners), corners.shape[1]) for _, corners in blocks]
    corners = [corners.astype(np.int64).ravel() for _, corners in blocks]
    nothing = np.zeros(0, np.int64)
    return mesh.points.astype(np.float64), np.concatenate([nothing, *counts]), np.concatenate([nothing, *corners])


def _read_gii(data: bytes, nibabel: Any) -> tuple[FloatArray, IntArray]:
    """Vertices and faces of a GIFTI surface."""
    most = 0 if b"<!ENTITY" in data else 2**24 + 16 * len(data)
    for text in re.findall(rb"<Data>([^<]*)</Data>", data):
        code = base64.b64decode(text) if text.lstrip()[:1] == b"e" else b""  # a zlib stream begins with x
        if len(zlib.decompressobj().decompress(code, most + 1)) > most:
            raise ValueError("it unpacks to too many bytes for its size")
    image = nibabel.gifti.GiftiImage.from_bytes(data)
    points, faces = image.agg_data("pointset"), image.agg_data("triangle")
    if isinstance(points, tuple) or isinstance(faces, tuple) or faces.dtype.kind not in "iu":
        raise ValueError("it does not have one set of points and one of triangles")
    return points.astype(np.float64), faces.astype(np.int64)


_READERS: dict[str, Callable[[bytes], Polygons]] = {"ply": _read_ply, "obj": _read_obj, "off": _read_off}
