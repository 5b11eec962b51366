"""Meshes in texts, line by line: obj, off and stl, and stl in bytes; polygons become triangles.

Nothing is believed that the file does not hold: numbers are kept as they are read, so that memory follows the size
of the file and not what its header declares. No other file is ever opened.
"""

import io
import itertools
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from manifoldrf._validation import FloatArray, IntArray

_LONGEST_LINE = 1 << 20  # bytes; words of a line take up to 25 times their memory
_STL_HEADER = 84
_STL_FACET = np.dtype([("normal", "<f4", 3), ("vertices", "<f4", (3, 3)), ("attribute", "<u2")])
_OFF = re.compile(rb"(ST)?C?N?OFF\b", re.IGNORECASE)  # with positions of three coordinates; 4OFF has four

Mesh = tuple[FloatArray, IntArray]


class Polygons:
    """Faces of any number of corners, kept as plain numbers."""

    def __init__(self) -> None:
        self.counts = array("q")
        self.corners = array("q")

    def add(self, corners: Sequence[int]) -> None:
        """Keep one face."""
        if len(corners) < 3:
            raise ValueError(f"a face of {len(corners)} corners")
        self.counts.append(len(corners))
        self.corners.extend(corners)

    def triangles(self, *, grouped: bool) -> IntArray:
        """Triangles of all faces, shape (m, 3).

        In the order of the faces; ``grouped``: triangles first, then the halves of quadrilaterals, then the rest.
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


def read_obj(data: bytes) -> Mesh:
    """Positions and faces of an obj text; texture seams split no vertex, negative indices count from the latest."""
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


def read_off(data: bytes) -> Mesh:
    """Positions and faces of an off text; colours and normals are passed over."""
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
    """Corners of the triangles of an stl file, three for each: bytes where its length fits, else text."""
    count = int.from_bytes(data[_STL_HEADER - 4 : _STL_HEADER], "little")
    if len(data) >= _STL_HEADER and len(data) == _STL_HEADER + count * _STL_FACET.itemsize:
        facets = np.frombuffer(data, _STL_FACET, offset=_STL_HEADER)
        with np.errstate(invalid="ignore"):  # what is no number is refused later
            vertices = facets["vertices"].reshape(-1, 3).astype(np.float64)
    else:
        vertices = _stl_text(data)
    return vertices, np.arange(len(vertices)).reshape(-1, 3)


def _stl_text(data: bytes) -> FloatArray:
    positions, solids, ended = array("d"), 0, 0
    for line in text_lines(data, comments=False):
        word = line.split(None, 1)[0].lower()
        if word == b"vertex":
            positions.extend(_numbers(line.split(None, 4)[1:4], line))
        solids += word == b"solid"
        ended += word == b"endsolid"
    if not solids:
        raise ValueError("it is neither an stl text nor as long as its header says")
    if solids != ended or len(positions) % 9:
        raise ValueError("it is cut off")
    return _positions(positions)


# -------------------------------------------------------------------------------------------------------- shared
def text_lines(data: bytes, *, comments: bool = True) -> Iterator[bytes]:
    """Lines that hold more than blanks, without what follows a #."""
    for line in _raw_lines(data):
        text = line.partition(b"#")[0] if comments else line
        if text := text.strip():
            yield text


def check_counts(declared: tuple[int, int], held: tuple[int, int]) -> None:
    """Raise where there are fewer vertices or faces than a file declares."""
    if declared != held:
        numbers = f"it declares {declared[0]} vertices and {declared[1]} faces"
        raise ValueError(f"{numbers} but holds {held[0]} and {held[1]}")


def listed(words: Sequence[bytes]) -> list[int]:
    """Integers of a list that begins with their number; more may follow."""
    count = natural(words[0])
    if count > len(words) - 1:
        raise ValueError(f"a face of {count} corners that lists {len(words) - 1}")
    return [integer(word) for word in words[1 : count + 1]]


def natural(word: bytes) -> int:
    """A number of things."""
    if (value := integer(word)) < 0:
        raise ValueError(f"a number of {value}")
    return value


def integer(word: bytes) -> int:
    """An integer that 64 bits hold; Python's own 1_000 is none."""
    try:
        value = int(word) if len(word) < 24 and b"_" not in word else None
    except ValueError:
        value = None
    if value is None or abs(value) >= 2**63:
        raise ValueError(f"{_shown(word)} where an integer should be")
    return value


def number(word: bytes) -> float:
    """A number; those that are not finite are named later, by their place."""
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


def _raw_lines(data: bytes) -> Iterator[bytes]:
    """All lines; those of an old text may end in a carriage return."""
    if b"\n" not in data:
        data = data.replace(b"\r", b"\n")
    for line in io.BytesIO(data):
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"a line of {len(line)} bytes")
        yield line


def _obj_lines(data: bytes) -> Iterator[bytes]:
    """Lines without comments; one that ends in a backslash goes on in the next."""
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
    """Position index, counted from zero, of a corner such as "7", "7/2/5" or "-1" (the latest vertex)."""
    index = integer(corner.partition(b"/")[0])
    absolute = index - 1 if index > 0 else n_vertices + index
    if index == 0 or absolute < 0:
        raise ValueError(f"a face index {index} that names no vertex")
    return absolute


def _shown(text: bytes) -> str:
    """Bytes of a file in an error: the first of them, as text."""
    return repr(text[:40].decode("utf-8", "replace").strip())
