"""Meshes in ply files: text, and bytes in either order."""

import itertools
from array import array
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.geometry._mesh_text import Mesh, Polygons, check_counts, listed, natural, number, text_lines

_KINDS = {
    **{"char": "i1", "int8": "i1", "uchar": "u1", "uint8": "u1", "short": "i2", "int16": "i2", "ushort": "u2"},
    **{"uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4", "float": "f4", "float16": "f2"},
    **{"float32": "f4", "float64": "f8", "double": "f8", "int64": "i8", "uint64": "u8"},
}
_ORDERS = {b"ascii": "", b"binary_little_endian": "<", b"binary_big_endian": ">"}
_LISTS = ("vertex_index", "vertex_indices")  # names of the lists of corners that writers use
_LONGEST_HEADER = 1 << 20  # bytes
_MOST_PROPERTIES = 1000  # a scan with all its measurements has about a hundred


class Property(NamedTuple):
    """A number, or a list with the number of its items in front."""

    name: str
    kind: str
    count_kind: str | None = None


class Element(NamedTuple):
    """So many rows with the same properties."""

    name: str
    n_rows: int
    properties: list[Property]


def read_ply(data: bytes) -> Mesh:
    """Positions and faces of a ply file; what else there is at vertices and faces is passed over."""
    order, elements, start = _header(data)
    vertices = next((element for element in elements if element.name == "vertex"), None)
    if vertices is None or not {"x", "y", "z"} <= {prop.name for prop in vertices.properties}:
        raise ValueError("it has no vertices with x, y and z")
    if order:
        return _read_bytes(data, start, order, elements)
    return _read_text(data[start:], elements)


def _header(data: bytes) -> tuple[str, list[Element], int]:
    """Order of the bytes ("" for text), elements, and where their rows begin."""
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
            order = _ORDERS.get(rest[0].lower())
        elif word not in (b"", b"comment", b"obj_info"):
            _declare(elements, word, rest)
    if order is None or sum(len(element.properties) for element in elements) > _MOST_PROPERTIES:
        raise ValueError(f"its header has no known format, or more than {_MOST_PROPERTIES} properties")
    if len({element.name for element in elements}) < len(elements):
        raise ValueError("its header has two elements of one name")
    return order, elements, line_end + 1


def _declare(elements: list[Element], word: bytes, rest: list[bytes]) -> None:
    """Take up a line of the header: a new element, or a property of the last one."""
    if word == b"element" and len(rest) == 2:
        elements.append(Element(_name(rest[0]), natural(rest[1]), []))
    elif word == b"property" and elements:
        elements[-1].properties.append(_property(rest))
    else:
        raise ValueError(f"its header has a line {_name(word[:40])!r}")


def _property(words: list[bytes]) -> Property:
    names = [_name(word) for word in words]
    kinds = names[1:3] if names[:1] == ["list"] else names[:1]
    if len(names) != len(kinds) + (2 if len(kinds) == 2 else 1) or not set(kinds) <= set(_KINDS):
        raise ValueError(f"its header has a property {' '.join(names)[:60]!r}")
    if len(kinds) == 2 and _KINDS[kinds[0]][0] == "f":
        raise ValueError("its header has a list whose length is no integer")
    return Property(names[-1], _KINDS[kinds[-1]], _KINDS[kinds[0]] if len(kinds) == 2 else None)


def _name(word: bytes) -> str:
    return word.decode("utf-8", "replace")


def _corner_list(element: Element) -> int:
    """Which property of the faces lists their corners."""
    lists = [k for k, prop in enumerate(element.properties) if prop.count_kind is not None]
    named = [k for k in lists if element.properties[k].name in _LISTS]
    if not (named or lists) or element.properties[(named or lists)[0]].kind[0] == "f":
        raise ValueError("its faces have no list of corners")
    return (named or lists)[0]


# --------------------------------------------------------------------------------------------------------- text
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
        else:
            for _ in some:
                pass
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
    with np.errstate(invalid="ignore", over="ignore"):  # what the kind cannot hold is infinite, and refused later
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


# --------------------------------------------------------------------------------------------------------- bytes
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
    names = [prop.name for prop in next(e for e in elements if e.name == "vertex").properties]
    columns = [found["vertex"][f"p{names.index(axis)}"] for axis in "xyz"]
    with np.errstate(invalid="ignore"):  # what is no number is refused later
        positions = np.column_stack(columns).astype(np.float64)
    faces = next((e for e in elements if e.name == "face"), None)
    if faces is None or "face" not in found:
        return positions, np.zeros((0, 3), np.int64)
    return positions, _triangles(found["face"], faces)


def _row_kind(data: bytes, start: int, order: str, element: Element) -> np.dtype[Any]:
    """The kind of a row; every list is as long as that of the first row."""
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
            raise ValueError(f"a list of {length} items, which it has no room for")
        fields += [(f"n{k}", head), (f"p{k}", item, (length,))]
    return np.dtype(fields)


def _triangles(rows: NDArray[Any], element: Element) -> IntArray:
    """Triangles of faces that all have the same number of corners."""
    which = _corner_list(element)
    for k, prop in enumerate(element.properties):
        if prop.count_kind is not None and (rows[f"n{k}"] != rows[f"n{k}"][0]).any():
            raise ValueError("its faces differ in their numbers of corners, which only a text may")
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
