"""Meshes in glb files: the triangles of all parts of a scene, placed as the scene says.

Only the file itself is read: a scene that refers to another file is refused. Every size and every place is compared
with the bytes that are there, and parts that are shown many times are counted before they are made.
"""

import base64
import json
import struct
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from manifoldrf._validation import FloatArray, IntArray

_MAGIC, _JSON, _BINARY = 0x46546C67, 0x4E4F534A, 0x004E4942
_COMPONENTS = {5120: "<i1", 5121: "<u1", 5122: "<i2", 5123: "<u2", 5125: "<u4", 5126: "<f4"}
_WIDTHS = {"SCALAR": 1, "VEC2": 2, "VEC3": 3, "VEC4": 4}
_TRIANGLES, _STRIP = 4, 5
_LONGEST_JSON = 8_000_000  # bytes; parsed it takes up to 27 times as much
_BYTES_PER_ITEM = 48  # of a vertex or a face in memory: three numbers of 8 bytes, and their copy
_ROOM, _ROOM_PER_BYTE = 100_000_000, 8  # bytes of all parts together, whatever the file, and for each of its bytes
_SAME = 1e-8  # a matrix this close to the identity moves nothing


class _Part(NamedTuple):
    """Triangles of one part, and the matrix that places it."""

    positions: NDArray[Any]
    faces: IntArray
    matrix: FloatArray


def read_glb(data: bytes) -> tuple[FloatArray, IntArray]:
    """Vertices and faces of all parts of the scene, one part after the other."""
    scene = _Scene(data)
    parts = [part for node, matrix in scene.placed_nodes() for part in scene.parts(node, matrix)]
    vertices, faces, before = [np.zeros((0, 3))], [np.zeros((0, 3), np.int64)], 0
    for part in parts:
        moved, turned = _placed(part)
        vertices.append(moved)
        faces.append(turned + before)
        before += len(moved)
    return np.concatenate(vertices), np.concatenate(faces)


def _placed(part: _Part) -> tuple[FloatArray, IntArray]:
    """Vertices where the matrix puts them; a mirror turns the faces around."""
    with np.errstate(invalid="ignore"):
        points = part.positions.astype(np.float64)
    if np.abs(part.matrix - np.eye(4)).max() < _SAME:
        return points, part.faces
    with np.errstate(all="ignore"):  # vertices that are not finite are refused later
        stacked = np.column_stack([points, np.ones(len(points))])
        moved = np.ascontiguousarray(np.dot(part.matrix, stacked.T).T[:, :3])
        mirrored = np.linalg.det(part.matrix[:3, :3]) < 0
    return moved, part.faces[:, ::-1] if mirrored else part.faces


class _Scene:
    """What a glb file holds, taken out piece by piece."""

    def __init__(self, data: bytes) -> None:
        text, self._chunks = _split(data)
        self._tree = json.loads(text)
        if not isinstance(self._tree, dict):
            _refuse("its JSON text is no object")
        self._room = _ROOM + _ROOM_PER_BYTE * len(data)
        self._kept: dict[int, bytes] = {}

    def placed_nodes(self) -> list[tuple[dict[str, Any], FloatArray]]:
        """The nodes of the scene, each with the matrix that places it."""
        scenes = self._list("scenes")
        if not scenes:
            return []
        scene = self._item("scenes", self._tree.get("scene", 0))
        waiting = [(index, np.eye(4)) for index in _integers(scene.get("nodes", []))]
        found, seen = [], set[int]()
        while waiting:  # the last one first
            index, above = waiting.pop()
            if index in seen:
                _refuse(f"its node {index} hangs at two places")
            seen.add(index)
            node = self._item("nodes", index)
            with np.errstate(all="ignore"):  # vertices that are not finite are refused later
                matrix = above @ _local_matrix(node)
            found.append((node, matrix))
            waiting += [(child, matrix) for child in _integers(node.get("children", []))]
        return found

    def parts(self, node: dict[str, Any], matrix: FloatArray) -> list[_Part]:
        """The triangles at a node; lines and points are passed over."""
        if "mesh" not in node:
            return []
        result = []
        for primitive in _objects(self._item("meshes", node["mesh"]).get("primitives", [])):
            mode = primitive.get("mode", _TRIANGLES)
            if mode in (_TRIANGLES, _STRIP):
                positions = self._positions(primitive)
                faces = self._faces(primitive, len(positions), mode)
                self._take_room(len(positions) + len(faces))
                result.append(_Part(positions, faces, matrix))
        return result

    def _positions(self, primitive: dict[str, Any]) -> NDArray[Any]:
        attributes = primitive.get("attributes")
        if not isinstance(attributes, dict) or "POSITION" not in attributes:
            _refuse("it has a part without positions")
        positions = self._accessor(attributes["POSITION"])
        if positions.shape[1] != 3:
            _refuse("it has positions of other than three coordinates")
        return positions

    def _faces(self, primitive: dict[str, Any], n_vertices: int, mode: int) -> IntArray:
        if "indices" in primitive:
            corners = self._accessor(primitive["indices"])
            if corners.dtype.kind != "u" or corners.shape[1] != 1:
                _refuse("it has faces whose corners are no indices")
            if corners.size and int(corners.max()) >= n_vertices:
                _refuse(f"it has a face index {int(corners.max())} and {n_vertices} vertices")
        else:
            corners = np.arange(n_vertices)
        self._take_room(len(corners) // 3)
        flat = corners.reshape(-1).astype(np.int64)
        if mode == _TRIANGLES:
            return flat.reshape(-1, 3)
        self._take_room(2 * len(flat))
        strip = np.stack([flat[:-2], flat[1:-1], flat[2:]], axis=1) if len(flat) > 2 else np.zeros((0, 3), np.int64)
        strip[1::2] = strip[1::2, ::-1].copy()
        return strip

    def _take_room(self, n_items: int) -> None:
        """Count what is going to be made, before it is made."""
        self._room -= _BYTES_PER_ITEM * n_items
        if self._room < 0:
            _refuse("its parts together are too large for its size; a part is shown too many times")

    def _accessor(self, index: Any) -> NDArray[Any]:
        """Numbers of an accessor, shape (count, width), not copied."""
        entry = self._item("accessors", index)
        if "bufferView" not in entry or "sparse" in entry or entry.get("normalized"):
            _refuse("it has numbers that are compressed, sparse or scaled")
        view = self._item("bufferViews", entry["bufferView"])
        dtype = np.dtype(_chosen(_COMPONENTS, entry.get("componentType")))
        width, count = _chosen(_WIDTHS, entry.get("type")), _size(entry.get("count"))
        row = width * dtype.itemsize
        stride = _size(view.get("byteStride", row))
        begin, end = _size(view.get("byteOffset", 0)), _size(view.get("byteLength"))
        end += begin
        start = begin + _size(entry.get("byteOffset", 0))
        buffer = self._buffer(view.get("buffer"))
        if end > len(buffer) or stride < row or (count and start + (count - 1) * stride + row > end):
            _refuse("it has numbers beyond the end of their bytes")
        if not count:
            return np.zeros((0, width), dtype)
        return np.ndarray((count, width), dtype, buffer, start, (stride, dtype.itemsize))

    def _buffer(self, index: Any) -> bytes:
        """The bytes of a buffer: a chunk of the file, or written in the scene itself."""
        entry = self._item("buffers", index)
        if index not in self._kept:
            self._kept[index] = self._bytes_of(entry, index)
        return self._kept[index]

    def _bytes_of(self, entry: dict[str, Any], index: int) -> bytes:
        if "uri" in entry:
            head, found, digits = str(entry["uri"]).partition("base64,")
            if not found or not head.startswith("data:"):
                _refuse("it refers to another file, which is not opened")
            return base64.b64decode(digits)
        earlier = _objects(self._list("buffers")[:index])
        place = sum("uri" not in other for other in earlier)
        if place >= len(self._chunks):
            _refuse("it lacks the bytes of a buffer")
        return self._chunks[place]

    def _list(self, name: str) -> list[Any]:
        found = self._tree.get(name, [])
        if not isinstance(found, list):
            _refuse(f"its {name} are no list")
        return found

    def _item(self, name: str, index: Any) -> dict[str, Any]:
        found = self._list(name)
        if type(index) is not int or not 0 <= index < len(found) or not isinstance(found[index], dict):
            _refuse(f"it refers to {name} that it lacks")
        item: dict[str, Any] = found[index]
        return item


def _split(data: bytes) -> tuple[bytes, list[bytes]]:
    """The JSON text of a file and its chunks of bytes."""
    if len(data) < 20:
        _refuse("it is shorter than any glb file")
    magic, version, _, length, kind = struct.unpack("<5I", data[:20])
    if magic != _MAGIC or version != 2 or kind != _JSON:
        _refuse("it is no glb file of version 2")
    if length > _LONGEST_JSON:
        _refuse(f"its JSON text has {length} bytes, more than {_LONGEST_JSON}")
    chunks, at = [], 20 + length
    while at + 8 <= len(data):
        size, kind = struct.unpack("<2I", data[at : at + 8])
        if at + 8 + size > len(data):
            _refuse("it is cut off")
        if kind == _BINARY:
            chunks.append(data[at + 8 : at + 8 + size])
        at += 8 + size
    if at > len(data):
        _refuse("it is cut off")
    return data[20 : 20 + length], chunks


def _local_matrix(node: dict[str, Any]) -> FloatArray:
    """The matrix of a node within the one above: its own times translation, rotation and scale."""
    matrix = _floats(node, "matrix", 16).reshape(4, 4).T if "matrix" in node else np.eye(4)
    if "translation" in node:
        moved = np.eye(4)
        moved[:3, 3] = _floats(node, "translation", 3)
        matrix = matrix @ moved
    if "rotation" in node:
        turned = np.eye(4)
        turned[:3, :3] = _rotation(_floats(node, "rotation", 4))
        matrix = matrix @ turned
    if "scale" in node:
        matrix = matrix @ np.diag([*_floats(node, "scale", 3), 1.0])
    return matrix


def _rotation(quaternion: FloatArray) -> FloatArray:
    """The matrix of a quaternion (x, y, z, w) of any length but zero."""
    square = float(quaternion @ quaternion)
    if not 0 < square < np.inf:
        return np.eye(3)
    x, y, z, w = quaternion * np.sqrt(2.0 / square)
    return np.array(
        [
            [1 - y * y - z * z, x * y - z * w, x * z + y * w],
            [x * y + z * w, 1 - x * x - z * z, y * z - x * w],
            [x * z - y * w, y * z + x * w, 1 - x * x - y * y],
        ]
    )


def _floats(node: dict[str, Any], name: str, count: int) -> FloatArray:
    values = node[name]
    if not isinstance(values, list) or len(values) != count:
        _refuse(f"a node has a {name} that is not of {count} numbers")
    if not all(type(value) in (int, float) and abs(value) < 1e100 for value in values):
        _refuse(f"a node has a {name} with numbers out of range")
    return np.array(values, dtype=np.float64)


def _integers(values: Any) -> list[int]:
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        _refuse("its nodes are listed by other things than integers")
    return values


def _objects(values: Any) -> list[dict[str, Any]]:
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        _refuse("its scene is not made of objects")
    return values


def _chosen(table: dict[Any, Any], key: Any) -> Any:
    if not isinstance(key, int | str) or key not in table:
        _refuse(f"it has numbers of an unknown kind {str(key)[:40]!r}")
    return table[key]


def _size(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 2**53:
        _refuse(f"it has a size of {str(value)[:40]}")
    return value


def _refuse(reason: str) -> NoReturn:
    raise ValueError(reason)
