"""Arrays in .npy, .npz and .csv files: read and written in blocks of rows, so they may be larger than memory."""

import csv
import errno
import lzma
import math
import shutil
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse as sp

from manifoldrf._files import as_path, atomic_path, check_suffix, existing_file
from manifoldrf._runtime import filtered
from manifoldrf._validation import FloatArray, IntArray, check_integer, reject

Floats = NDArray[np.floating[Any]]
Mask = NDArray[np.bool_]
_Append = Callable[..., None]  # takes rows and, in .csv files, the cells before them

ARRAY_SUFFIXES = (".npy", ".npz", ".csv")
# Preferred names in an .npz file with several arrays.
_POINTS = ("points", "vertices", "verts", "X", "V", "v")
_FACES = ("faces", "triangles", "F", "f")
_VALUES = ("values",)
_SPARSE_MEMBERS = {"format", "shape", "data"}  # scipy.sparse.save_npz always writes these
# A small archive can unpack to any size. Memory may hold this many bytes, plus some for each byte of the file.
_ROOM, _ROOM_PER_BYTE = 150_000_000, 8
_PIECE = 1 << 20  # bytes unpacked at once
_LONGEST_REASON = 300  # characters; libraries quote bytes that they do not understand
_LONGEST_FOUND = 80  # characters of a shape, a dtype or a cell in an error
_CSV_CHUNK = 1 << 14  # rows parsed at once: Python numbers take four times the memory of an array
_UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError),
    *(UnicodeDecodeError, NotImplementedError, RuntimeError),  # names of members, compression methods, passwords
)
# The first of these that occurs in the first line is the separator; if none occurs, cells are separated by spaces.
# The comma is last: next to another separator it is a decimal comma, which is refused.
_SEPARATORS = (";", "\t", ",")
_NUMBER_STARTS = "+-.,0123456789"
_MISSING = ("", "na", "n/a", "null", "none")  # besides NaN, as spreadsheets and databases write it
_ZIP_LEVEL = 1  # level 6 makes features 1 % and indices 9 % smaller, but takes nine times as long
_BLOCK_ENTRIES = 1 << 20  # of a matrix in memory, written at once: 8 MB of float64


@dataclass(frozen=True)
class RowReader:
    """Rows of a file in blocks. Each iteration reads the file from the start.

    Parameters
    ----------
    n_columns : int
        Number of columns.
    n_rows : int or None
        Number of rows; None for a .csv file, whose rows are not counted in advance.
    dtype : numpy.dtype
        float64 or float32: the type of the blocks.
    blocks : callable
        Returns a new iterator over the blocks.
    """

    n_columns: int
    n_rows: int | None
    dtype: np.dtype[Any]
    blocks: Callable[[], Iterator[Floats]]

    def __iter__(self) -> Iterator[tuple[int, Floats]]:
        """Yield the index of the first row of a block, and the block of shape (k, n_columns)."""
        start = 0
        for block in self.blocks():
            yield start, block
            start += len(block)


@dataclass
class Table:
    """The columns of a file that are coordinates, and what is done with the others and with missing values.

    Parameters
    ----------
    places : sequence of int
        The columns that are coordinates.
    kept : sequence of int
        Other columns, whose cells are kept as text.
    drop : bool
        Whether empty cells and words such as NA are NaN; :meth:`complete` leaves out rows with NaN.
    is_chosen : bool
        Whether the user named the coordinates.

    Attributes
    ----------
    n_dropped : int
        Number of rows left out so far.
    cells : deque
        The kept cells of rows that were read, and not yet seen by :meth:`complete`.
    blocks : deque
        The kept cells of the rows of every block that :meth:`complete` returned.
    """

    places: Sequence[int]
    kept: Sequence[int] = ()
    drop: bool = False
    is_chosen: bool = False
    n_dropped: int = 0
    cells: deque[list[str]] = field(default_factory=deque)
    blocks: deque[list[list[str]]] = field(default_factory=deque)

    def numbers(self, cells: list[str]) -> list[str]:
        """The cells of a line that are coordinates; the others are kept."""
        if self.kept:
            self.cells.append([cells[place].strip() for place in self.kept])
        picked = [cells[place] for place in self.places]
        return ["nan" if cell.strip().lower() in _MISSING else cell for cell in picked] if self.drop else picked

    def columns(self, block: Floats) -> Floats:
        """The columns of a block that are coordinates; the others are kept."""
        self.cells.extend(block[:, list(self.kept)].astype(str).tolist() if self.kept else ())
        return np.ascontiguousarray(block[:, list(self.places)])

    def complete(self, block: Floats) -> Floats:
        """The rows of a block without missing values; their kept cells are added to ``blocks``."""
        whole: Any = ~np.isnan(block).any(axis=1) if self.drop else np.ones(len(block), dtype=bool)
        self.n_dropped += int(np.count_nonzero(~whole))
        if self.kept:
            cells = [self.cells.popleft() for _ in range(len(block))]
            if whole.any():
                self.blocks.append([row for row, is_whole in zip(cells, whole, strict=True) if is_whole])
        return block if whole.all() else block[whole]


def column_titles(path: str | PathLike[str], name: str = "POINTS") -> list[str]:
    """The names of all columns of a file; empty texts where they have none."""
    file = _check_file(path, name)
    if file.suffix.lower() != ".csv":
        return [""] * open_rows(file, name).n_columns
    cells = next((cells for _, cells in _csv_cells(file, name)), [])
    return [cell.strip() for cell in cells] if _are_names(cells) else [""] * len(cells)


def find_column(wanted: str, titles: Sequence[str], option: str) -> int:
    """The place of a column that is named, or numbered from 0."""
    if titles.count(wanted) > 1:
        reject(option, "a column whose name occurs once", repr(wanted))
    if wanted in titles:
        return titles.index(wanted)
    if wanted.isdecimal() and len(wanted) < 10 and int(wanted) < len(titles):
        return int(wanted)
    names = ", ".join(filter(None, titles))[:_LONGEST_REASON] or "there are none"
    reject(option, f"names of columns ({names}) or their numbers from 0 to {len(titles) - 1}", repr(wanted))


def open_rows(
    path: str | PathLike[str], name: str = "POINTS", chunk: int = 8192, table: Table | None = None
) -> RowReader:
    """Open an array of shape (n, d) in a .npy, .npz or .csv file, to read it in blocks of rows.

    Memory holds one block for files of any size. Only an .npz file in Fortran order is unpacked completely.

    Parameters
    ----------
    path : str or path
        The file, as for ``read_points``.
    name : str, default="POINTS"
        Name of the file in errors.
    chunk : int, default=8192
        Number of rows of a block; the last block may be shorter.
    table : Table, optional
        The columns to read; all by default.

    Returns
    -------
    RowReader
        With ``n_columns``, ``n_rows`` (None for .csv) and ``dtype``; iteration yields (start, block).

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "points.npy"
    ...     np.save(file, np.arange(10).reshape(5, 2))
    ...     [(start, block.shape) for start, block in open_rows(file, chunk=2)]
    [(0, (2, 2)), (2, (2, 2)), (4, (1, 2))]
    """
    file = _check_file(path, name)
    chunk = check_integer(chunk, "chunk", 1)
    if file.suffix.lower() == ".csv":
        with closing(_csv_rows(file, name, table=None if table is None else replace(table, kept=()))) as rows:
            _, first = next(rows, (0, []))
        if not first:
            reject(name, "a file with at least one line of numbers", repr(file.name))
        return RowReader(len(first), None, np.dtype(np.float64), partial(_csv_blocks, file, name, chunk, table))
    with _open_array(file, name, _POINTS, (2,)) as (_, header):
        n_rows, n_columns = header.shape
    n_read = n_columns if table is None else len(table.places)
    return RowReader(n_read, n_rows, _kept_dtype(header.dtype), partial(_binary_blocks, file, name, chunk, table))


def read_points(path: str | PathLike[str], name: str = "POINTS", table: Table | None = None) -> Floats:
    r"""Read one array of shape (n, d) from a .npy, .npz or .csv file.

    Single and double precision are kept, integers become double. An .npy file is memory-mapped, not read. NaN and
    infinite numbers are accepted here; later checks refuse them.

    Parameters
    ----------
    path : str or path
        The file. An .npz file holds one array, or one named "points", "vertices", "verts", "X", "V" or "v".
        Numbers in a .csv file are separated by commas, semicolons, tabs or spaces; the first line may hold names,
        and text after # is skipped.
    name : str, default="POINTS"
        Name of the file in errors.
    table : Table, optional
        The columns to read; all by default.

    Returns
    -------
    ndarray of shape (n, d)
        float64 or float32; read-only if it is memory-mapped.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "points.csv"
    ...     _ = file.write_text("x,y,z\n0,0,1\n0.5,1,2\n")
    ...     read_points(file).tolist()
    [[0.0, 0.0, 1.0], [0.5, 1.0, 2.0]]
    """
    file = _check_file(path, name)
    if file.suffix.lower() == ".csv":
        return np.concatenate([block for _, block in open_rows(file, name, _CSV_CHUNK, table)])
    found = _read_array(file, name, _POINTS, axes=(2,))
    return found if table is None else table.columns(found)


def read_mesh_arrays(path: str | PathLike[str], name: str = "path") -> tuple[FloatArray, IntArray] | None:
    """Read vertices and faces from an .npz file; None if it has no array named "faces", "triangles", "F" or "f"."""
    file = _check_file(path, name)
    with open_archive(file, name) as archive:
        members = archive.namelist()
    if not any(f"{word}.npy" in members for word in _FACES):
        return None
    vertices, faces = (_read_array(file, name, wanted, axes=(2,)) for wanted in (_POINTS, _FACES))
    if not np.array_equal(faces, np.rint(faces)):
        reject(name, "a file whose faces are integers", f"fractions in {file.name!r}")
    return vertices.astype(np.float64, copy=False), faces.astype(np.int64)


def value_names(path: str | PathLike[str]) -> list[str]:
    """Names of the columns of values in a .csv file for :func:`read_values`; none without a line of names."""
    titles = column_titles(path, "VALUES") if Path(path).suffix.lower() == ".csv" else []
    return titles[1:] if any(titles) else []


def read_values(path: str | PathLike[str], n_rows: int, name: str = "VALUES") -> tuple[FloatArray, Mask]:
    r"""Read values that are known at some vertices of a mesh, or at some points.

    Parameters
    ----------
    path : str or path
        An .npy or .npz file of shape (n_rows,) or (n_rows, c), with NaN in unknown rows; or a .csv file whose lines
        hold the index of a vertex, counted from zero, and its c values.
    n_rows : int
        Number of vertices.
    name : str, default="VALUES"
        Name of the file in errors.

    Returns
    -------
    values : ndarray of shape (n_rows, c)
        NaN in unknown rows.
    known : ndarray of bool of shape (n_rows,)
        Whether each row is known.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "values.csv"
    ...     _ = file.write_text("vertex,height\n2,0.5\n0,-1\n")
    ...     values, known = read_values(file, 3)
    >>> values.ravel().tolist(), known.tolist()
    ([-1.0, nan, 0.5], [True, False, True])
    """
    file = _check_file(path, name)
    n_rows = check_integer(n_rows, "n_rows", 1)
    values = (
        _indexed_values(file, name, n_rows) if file.suffix.lower() == ".csv" else _value_rows(file, name, n_rows)
    )
    unknown = np.isnan(values)
    known = np.asarray(~unknown.all(axis=1))  # all False if there are no columns
    if not known.any():
        reject(name, "a file with at least one known value", repr(file.name))
    for bad, rule, found in (
        (unknown.any(axis=1) & known, "numbers, or NaN, in all columns of a row", "some of both"),
        (np.isinf(values).any(axis=1), "finite numbers, or NaN for unknown values", "an infinite number"),
    ):
        if bad.any():
            reject(name, rule, f"{found} for vertex {bad.argmax()} in {file.name!r}")
    return values, known


def read_fields(path: str | PathLike[str], n_rows: int, name: str, unit: str = "vertex") -> dict[str, FloatArray]:
    r"""Read fields at the vertices of a mesh, or at points, by the names of their columns.

    Files are those of :func:`read_values`, but NaN may be in some columns only. A .csv file with one column has a
    line for every vertex. Columns without a name get that of the file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "thickness.csv"
    ...     _ = file.write_text("2.5\n2.25\n")
    ...     {field: values.tolist() for field, values in read_fields(file, 2, "--field").items()}
    {'thickness': [2.5, 2.25]}
    """
    file = _check_file(path, name)
    titles = column_titles(file, name) if file.suffix.lower() == ".csv" else []
    if len(titles) > 1:
        titles, values = titles[1:], _indexed_values(file, name, n_rows, unit)
    else:
        values = _value_rows(file, name, n_rows, unit)
    stems = [file.stem] if values.shape[1] == 1 else [f"{file.stem} {k}" for k in range(values.shape[1])]
    names = [title or stem for title, stem in zip(titles or stems, stems, strict=True)]
    twice = [title for title in names if names.count(title) > 1]
    if twice:
        reject(name, "a file whose columns have different names", f"{twice[0]!r} several times in {file.name!r}")
    return dict(zip(names, np.ascontiguousarray(values.T), strict=True))


def _value_rows(file: Path, name: str, n_rows: int, unit: str = "vertex") -> FloatArray:
    """Read a row of values for every vertex, shape (n_rows, c)."""
    is_text = file.suffix.lower() == ".csv"
    array = read_points(file, name) if is_text else _read_array(file, name, _VALUES, axes=(1, 2))
    if len(array) != n_rows:
        reject(name, f"an array of {n_rows} rows, one per {unit}", f"{len(array)} in {file.name!r}")
    return np.array(array.reshape(len(array), -1), np.float64)


def _indexed_values(file: Path, name: str, n_rows: int, unit: str = "vertex") -> FloatArray:
    """Read a .csv file of vertices and their values. Returns (n_rows, c), NaN for other vertices."""
    values = np.zeros((n_rows, 0))
    line_of = np.zeros(n_rows, dtype=np.int64)  # zero: no line
    for line, (vertex, *numbers) in _csv_rows(file, name, numbered=True):
        if not numbers:
            reject(name, "a file with a vertex and at least one value in every line", repr(file.name))
        if not (vertex.is_integer() and 0 <= vertex < n_rows):
            found = f"{vertex:g} in line {line}, column 1 of {file.name!r}"
            hint = "" if unit == "vertex" else f", the {unit}"
            reject(name, f"a file with an integer in [0, {n_rows - 1}] first in every line{hint}", found)
        row = int(vertex)
        if line_of[row]:
            found = f"{row} in lines {line_of[row]} and {line} of {file.name!r}"
            reject(name, "a file that names a vertex once", found)
        if values.shape[1] == 0:
            values = np.full((n_rows, len(numbers)), np.nan)
        line_of[row], values[row] = line, numbers
    return values


def _check_file(path: str | PathLike[str], name: str) -> Path:
    """Return the path of an existing array file that is not empty."""
    check_suffix(as_path(path, name), name, ARRAY_SUFFIXES)
    file = existing_file(path, name)
    if file.stat().st_size == 0:
        reject(name, "a file that is not empty", repr(file.name))
    return file


def reject_file(file: Path, name: str, reason: object) -> NoReturn:
    """Raise the error for a damaged file or a file of another kind."""
    words = " ".join(str(reason).split()).rstrip(".")[:_LONGEST_REASON] or type(reason).__name__
    reject(name, f"a readable {file.suffix.lower()} file", f"{file.name!r}: {words}")


# ----------------------------------------------------------------------------------------- reading .npy and .npz
class _Header(NamedTuple):
    """Header of an .npy file or member."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    offset: int  # bytes before the numbers


def _kept_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the type in memory: single and double precision stay, everything else becomes double."""
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize == 4 else np.float64)


def _kept(array: NDArray[Any]) -> Floats:
    """Convert numbers to their type in memory. NaN is accepted."""
    with np.errstate(invalid="ignore"):
        return array.astype(_kept_dtype(array.dtype), copy=False)


def _read_array(file: Path, name: str, wanted: Sequence[str], axes: tuple[int, ...]) -> Floats:
    """Read one array; an .npy file is memory-mapped."""
    with _open_array(file, name, wanted, axes) as (stream, header):
        check_room(file, name, math.prod(header.shape) * header.dtype.itemsize)
        return _kept(read_whole(stream, header, file, name))


def _binary_blocks(file: Path, name: str, chunk: int, table: Table | None) -> Iterator[Floats]:
    """Yield the rows of an .npy or .npz file in blocks."""
    blocks = _whole_blocks(file, name, chunk)
    return blocks if table is None else map(table.columns, blocks)


def _whole_blocks(file: Path, name: str, chunk: int) -> Iterator[Floats]:
    """Yield all columns of the rows of an .npy or .npz file in blocks."""
    with _open_array(file, name, _POINTS, (2,)) as (stream, header):
        n_rows, n_columns = header.shape
        n_held = n_rows if header.fortran else min(chunk, n_rows)  # rows in Fortran order are not contiguous
        check_room(file, name, n_held * n_columns * header.dtype.itemsize)
        whole = read_whole(stream, header, file, name) if header.fortran else None
        for start in range(0, n_rows, chunk):
            n = min(chunk, n_rows - start)
            if whole is not None:
                yield _kept(np.array(whole[start : start + n], order="C"))
            else:
                yield _kept(_read_numbers(stream, n * n_columns, header, file, name).reshape(n, n_columns))


@contextmanager
def _open_array(
    file: Path, name: str, wanted: Sequence[str], axes: tuple[int, ...]
) -> Iterator[tuple[IO[bytes], _Header]]:
    """Open an array of real numbers at its first number, and check its header."""
    with ExitStack() as stack:
        if file.suffix.lower() == ".npy":
            stream: IO[bytes] = stack.enter_context(file.open("rb"))
            size = file.stat().st_size
        else:
            archive = stack.enter_context(open_archive(file, name))
            member = archive.getinfo(_choose_member(archive, wanted, file, name))
            stream, size = stack.enter_context(archive.open(member)), member.file_size
        header = read_header(stream, size, file, name)
        _check_numbers(header, axes, file, name)
        yield stream, header


@contextmanager
def open_archive(file: Path, name: str) -> Iterator[zipfile.ZipFile]:
    """Open an .npz file. Damage that is found while it is open becomes one error."""
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except _UNREADABLE as error:
        reject_file(file, name, error)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise  # disk or permissions: the message of the system is better
        reject_file(file, name, "its table of contents is wrong")


def _choose_member(archive: zipfile.ZipFile, wanted: Sequence[str], file: Path, name: str) -> str:
    """Return the only array of an .npz file, or the one with a preferred name."""
    names = [member.removesuffix(".npy") for member in archive.namelist() if member.endswith(".npy")]
    if set(names) >= _SPARSE_MEMBERS:
        reject(name, "a file with a dense array", f"a sparse matrix in {file.name!r}")
    found = names if len(names) == 1 else [word for word in wanted if word in names]
    if not found:
        rule = "a file with one array, or with one named " + ", ".join(map(repr, wanted))
        reject(name, rule, f"{', '.join(map(repr, sorted(names))) or 'no array'} in {file.name!r}")
    return f"{found[0]}.npy"


def read_header(stream: IO[bytes], size: int, file: Path, name: str) -> _Header:
    """Read the header of an array. ``size`` is its number of bytes with the header; all items must fit in."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        with filtered("ignore", "", Warning):  # headers from Python 2, odd escapes
            # Version 3 is for field names in Unicode, which plain arrays do not have.
            header = _Header(*readers[np.lib.format.read_magic(stream)](stream), stream.tell())
    except _UNREADABLE:
        raise
    except Exception as error:  # noqa: BLE001 - a damaged header makes the reader fail in many ways
        reject_file(file, name, error)
    shape, dtype = header.shape, header.dtype
    if dtype.hasobject:
        found = f"dtype {str(dtype)[:_LONGEST_FOUND]} in {file.name!r}: Object arrays cannot be loaded"
        reject(name, "an array of real numbers", found, TypeError)
    # numpy counts empty axes and items without size as one.
    if min(shape, default=0) < 0 or math.prod(max(axis, 1) for axis in shape) * max(dtype.itemsize, 1) >= 2**62:
        reject_file(file, name, f"an array of shape {str(shape)[:_LONGEST_FOUND]}")
    if header.offset + math.prod(shape) * dtype.itemsize > size:
        reject_file(file, name, "it is cut off")
    return header


def _check_numbers(header: _Header, axes: tuple[int, ...], file: Path, name: str) -> None:
    """Check that an array holds real numbers that fit in float64, and has one of these numbers of axes."""
    shape, dtype = header.shape, header.dtype
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        found = f"dtype {str(dtype)[:_LONGEST_FOUND]} in {file.name!r}"
        reject(name, "an array of real numbers", found, TypeError)
    found = f"shape {str(shape)[:_LONGEST_FOUND]} in {file.name!r}"
    if len(shape) not in axes:
        reject(name, "an array of shape (n, d)" + (" or (n,)" if 1 in axes else ""), found)
    if shape[-1] == 0 and len(shape) == 2:
        reject(name, "an array with at least one column", found)


def check_room(file: Path, name: str, size: int) -> None:
    """Refuse to unpack far more bytes than the file has."""
    if size > _ROOM + _ROOM_PER_BYTE * file.stat().st_size:
        text = f"it unpacks to {size} bytes, too many for a file of {file.stat().st_size}; save it uncompressed"
        reject_file(file, name, text)


def read_whole(stream: IO[bytes], header: _Header, file: Path, name: str) -> NDArray[Any]:
    """Return the whole array in the type of the file; an .npy file is memory-mapped."""
    count = math.prod(header.shape)
    order: Any = "F" if header.fortran else "C"
    if file.suffix.lower() == ".npy" and count > 0:  # an empty array cannot be mapped
        return np.memmap(file, header.dtype, "r", header.offset, header.shape, order)
    return _read_numbers(stream, count, header, file, name).reshape(header.shape, order=order)


def _read_numbers(stream: IO[bytes], count: int, header: _Header, file: Path, name: str) -> NDArray[Any]:
    """Read this many numbers in small pieces, so that memory holds them once. Returns a vector."""
    numbers = np.zeros(count, header.dtype)
    memory = numbers.view(np.uint8).data if numbers.nbytes else memoryview(b"")
    filled = 0
    while filled < len(memory):
        n_read: int = stream.readinto(memory[filled : filled + _PIECE])  # type: ignore[attr-defined]
        if not n_read:
            reject_file(file, name, "it is cut off")
        filled += n_read
    return numbers


# --------------------------------------------------------------------------------------------------- reading .csv
def _csv_blocks(file: Path, name: str, chunk: int, table: Table | None) -> Iterator[FloatArray]:
    """Yield the rows of a .csv file in blocks."""
    rows = _csv_rows(file, name, table=table)
    while block := [numbers for _, numbers in islice(rows, chunk)]:
        yield np.array(block)


def _csv_rows(
    file: Path, name: str, *, numbered: bool = False, table: Table | None = None
) -> Generator[tuple[int, list[float]], None, None]:
    r"""Yield the line number, counted from one, and the numbers of every row.

    The first line decides how cells are separated, and it may hold names. NaN and infinite numbers are accepted.
    With ``numbered``, a first column without a name may hold row numbers, as in saved data frames. A ``table``
    selects the columns.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "points.csv"
    ...     _ = file.write_text("x;y\n1;2.5\n\n-3;1e-4\n")
    ...     list(_csv_rows(file, "POINTS"))
    [(2, [1.0, 2.5]), (4, [-3.0, 0.0001])]
    """
    header: list[str] = []
    numbered = numbered or (table is not None and 0 not in table.places)
    unnamed = counted = False  # an unnamed first column, a first line of column numbers: refused on the next line
    for line, cells in _csv_cells(file, name):
        if not header:
            if _are_names(cells):
                header, unnamed = cells, not numbered and not cells[0].strip()
                continue
            header = [""] * len(cells)
            counted = len(cells) > 1 and cells == [str(k) for k in range(len(cells))]
        elif counted:
            counted = False
            _refuse_column_numbers(cells, name, file)
        picked = cells if table is None or len(cells) != len(header) else table.numbers(cells)
        numbers = _to_numbers(picked)
        if not numbers or len(cells) != len(header):
            _reject_cells(cells, header, name, line, file, table)
        if unnamed and numbers[0] == 0:
            found = f"a first column without a name that begins with 0 in {file.name!r}"
            reject(name, "a file without row numbers, which would be taken for coordinates", found)
        unnamed = False
        yield line, numbers


def _csv_cells(file: Path, name: str) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and cells of the lines that hold more than spaces and comments."""
    separator: str | None = ""  # not known yet; None for spaces
    with file.open("rb") as stream:
        for line, data in enumerate(stream, 1):
            try:
                text = data.decode("utf-8-sig" if line == 1 else "utf-8")
            except UnicodeDecodeError:
                reject(name, "a text in UTF-8", f"other bytes in line {line} of {file.name!r}")
            text = text.partition("#")[0].rstrip("\r\n")  # not tabs: an empty last cell is an error
            if text.strip():
                if separator == "":
                    separator = next((mark for mark in _SEPARATORS if mark in text), None)
                yield line, _split_cells(text, separator)


def _split_cells(text: str, separator: str | None) -> list[str]:
    """Return the cells of a line without quotes around them."""
    if separator is None:
        return [cell.strip('"') for cell in text.split()]
    if '"' in text:
        with suppress(csv.Error):  # a cell that is too long is not a number either
            return next(csv.reader([text], delimiter=separator, skipinitialspace=True))
    return text.split(separator)


def _are_names(cells: list[str]) -> bool:
    """Whether cells are names of columns. A cell that begins like a number is a damaged number."""
    words = [cell.strip() for cell in cells]
    return any(words) and not any(_to_numbers([word]) or word[:1] in _NUMBER_STARTS for word in words if word)


def _to_numbers(cells: list[str]) -> list[float]:
    """Convert cells to numbers. Returns an empty list if one of them is not a number."""
    with suppress(ValueError):
        if not any("_" in cell for cell in cells):  # Python accepts 1_000
            return [float(cell) for cell in cells]
    return []


def _refuse_column_numbers(below: list[str], name: str, file: Path) -> None:
    """Refuse 0, 1, 2 above decimals: tables without names are saved with such a first line."""
    if any("." in cell or "e" in cell.lower() for cell in below):
        rule = "a file without column numbers in its first line (write them with decimals if they are coordinates)"
        counts = ",".join(str(k) for k in range(len(below)))
        reject(name, rule, f"{counts} above {','.join(below)[:_LONGEST_FOUND]!r} in {file.name!r}")


def _reject_cells(
    cells: list[str], header: list[str], name: str, line: int, file: Path, table: Table | None
) -> NoReturn:
    """Name the wrong number of cells in a line, or the first cell that is not a number."""
    if len(cells) != len(header):
        rule = f"a file with {len(header)} column(s) in every line, as in its first"
        reject(name, rule, f"{len(cells)} in line {line} of {file.name!r}")
    places = range(len(cells)) if table is None else table.places
    words = cells if table is None else table.numbers(cells)
    column, cell = next((k, word) for k, word in zip(places, words, strict=True) if not _to_numbers([word]))
    found = repr(cell.strip()[:_LONGEST_FOUND]) if cell.strip() else "an empty cell"
    title = header[column].strip()[:_LONGEST_FOUND]
    where = f"{found} in line {line}, column {column + 1}{f' ({title!r})' if title else ''} of {file.name!r}"
    reject(name, "a file of numbers with decimal points", where)


# -------------------------------------------------------------------------------------------------------- writing
class RowWriter:
    """Writes the rows of one array, block by block.

    Parameters
    ----------
    n_columns : int
        Number of columns of every block.
    dtype : numpy.dtype
        Type of the numbers in the file.
    write : callable
        Writes checked rows of that type, dense or CSR.

    Attributes
    ----------
    n_rows : int
        Number of rows written so far.
    """

    def __init__(self, n_columns: int, dtype: np.dtype[Any], write: _Append) -> None:
        self.n_columns = n_columns
        self.dtype = dtype
        self.n_rows = 0
        self._write = write

    def append(self, block: Any, cells: Sequence[Sequence[str]] = ()) -> None:
        """Write the rows of a dense array or sparse matrix of shape (k, n_columns), in .csv files behind cells."""
        rows = block.tocsr() if sp.issparse(block) else np.asarray(block)
        if rows.ndim != 2 or rows.shape[1] != self.n_columns:
            reject("block", f"an array of shape (k, {self.n_columns})", f"shape {rows.shape}")
        if not np.can_cast(rows.dtype, self.dtype, "same_kind"):
            reject("block", f"an array that converts to {self.dtype}", f"dtype {rows.dtype}", TypeError)
        numbers = rows.astype(self.dtype, copy=False)
        self._write(numbers, *([cells] if cells else []))
        self.n_rows += rows.shape[0]


@contextmanager
def row_writer(
    path: str | PathLike[str],
    n_columns: int,
    dtype: DTypeLike = np.float64,
    *,
    sparse: bool = False,
    titles: Sequence[str] = (),
) -> Iterator[RowWriter]:
    """Open a .npy, .npz or .csv file for the rows of one array.

    The file appears when the ``with`` block ends without an exception. After any exception, including an interrupt,
    no new file is left and an existing file is unchanged. Memory holds one block.

    Parameters
    ----------
    path : str or path
        The file. The suffix selects the format: .npy; .npz, compressed; .csv, with the fewest digits that give the
        same numbers when read.
    n_columns : int
        Number of columns.
    dtype : dtype, default=numpy.float64
        Type of the numbers; blocks are converted to it.
    sparse : bool, default=False
        Whether an .npz file holds a CSR array, as ``scipy.sparse.load_npz`` reads it, instead of one dense array
        named "rows". The other formats are always dense.
    titles : sequence of str, optional
        First line of a .csv file.

    Yields
    ------
    RowWriter
        Its ``append(block)`` takes dense or sparse blocks of shape (k, n_columns).

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "features.npy"
    ...     with row_writer(file, 2) as writer:
    ...         writer.append([[1.0, 2.0]])
    ...         writer.append([[3.0, 4.0], [5.0, 6.0]])
    ...     np.load(file).tolist()
    [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    """
    path = as_path(path)
    suffix = check_suffix(path, "path", ARRAY_SUFFIXES)
    n_columns = check_integer(n_columns, "n_columns", 1)
    kind = np.dtype(dtype).newbyteorder("<")
    if kind.kind not in "iuf":
        reject("dtype", "a type of real numbers", kind, TypeError)
    with atomic_path(path) as temporary, ExitStack() as stack:
        if suffix == ".csv":
            write = stack.enter_context(_csv_file(temporary, titles))
        elif suffix == ".npz" and sparse:
            write = stack.enter_context(_sparse_npz(temporary, kind, n_columns))
        else:
            is_packed = suffix == ".npz"
            file = stack.enter_context(_zipped_folder(temporary)) / "rows.npy" if is_packed else temporary
            write = stack.enter_context(_npy_file(file, kind, n_columns))
        yield RowWriter(n_columns, kind, write)


def write_matrix(path: str | PathLike[str], array: Any) -> None:
    r"""Write one array or sparse matrix of shape (n, m) to a .npy, .npz or .csv file.

    Parameters
    ----------
    path : str or path
        The file; see ``row_writer``. A sparse matrix stays sparse in an .npz file and is dense in the others.
    array : array-like or sparse matrix of shape (n, m)
        The numbers; a vector is one column.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_matrix(Path(folder) / "a.csv", [[0.1, 2.0]])
    ...     (Path(folder) / "a.csv").read_text()
    '0.1,2.0\n'
    """
    sparse = sp.issparse(array)
    rows = array.tocsr() if sparse else np.asarray(array)
    if rows.ndim == 1 and not sparse:
        rows = rows[:, None]
    if rows.ndim != 2:
        reject("array", "an array of shape (n, m)", f"shape {rows.shape}")
    step = max(1, _BLOCK_ENTRIES // max(1, rows.shape[1]))
    with row_writer(path, rows.shape[1], rows.dtype, sparse=sparse) as writer:
        for start in range(0, rows.shape[0], step):
            writer.append(rows[start : start + step])


def _dense(rows: Any) -> NDArray[Any]:
    """Return rows as a dense array in C order."""
    return np.ascontiguousarray(rows.toarray() if sp.issparse(rows) else rows)


@contextmanager
def _npy_file(path: Path, dtype: np.dtype[Any], *tail: int) -> Iterator[_Append]:
    """Write an .npy file of shape (n, *tail). The header is written again when the number of rows is known."""
    n_rows = 0
    with path.open("wb") as file:

        def write_header() -> None:
            header = {"descr": dtype.str, "fortran_order": False, "shape": (n_rows, *tail)}
            np.lib.format.write_array_header_1_0(file, header)  # leaves room for any number of rows

        def append(rows: Any) -> None:
            nonlocal n_rows
            file.write(_dense(rows).data)
            n_rows += rows.shape[0]

        write_header()
        yield append
        file.seek(0)
        write_header()


@contextmanager
def _csv_file(path: Path, titles: Sequence[str]) -> Iterator[_Append]:
    """Write lines of comma-separated cells and numbers."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([titles] if titles else [])

        def append(rows: Any, cells: Sequence[Sequence[str]] = ()) -> None:
            if cells:
                writer.writerows([*words, *map(str, row)] for words, row in zip(cells, _dense(rows), strict=True))
            else:
                np.savetxt(file, _dense(rows), fmt="%s", delimiter=",")  # the fewest digits

        yield append


@contextmanager
def _sparse_npz(path: Path, dtype: np.dtype[Any], n_columns: int) -> Iterator[_Append]:
    """Write a CSR array as scipy does."""
    index = np.dtype("<i4" if n_columns <= np.iinfo(np.int32).max else "<i8")
    pointer = np.dtype("<i8")
    n_rows = n_stored = 0
    with _zipped_folder(path) as folder:
        with (
            _npy_file(folder / "data.npy", dtype) as data,
            _npy_file(folder / "indices.npy", index) as indices,
            _npy_file(folder / "indptr.npy", pointer) as indptr,
        ):
            indptr(np.zeros(1, pointer))

            def append(rows: Any) -> None:
                nonlocal n_rows, n_stored
                block = sp.csr_array(rows)
                data(block.data)
                indices(block.indices.astype(index, copy=False))
                indptr(block.indptr[1:].astype(pointer) + n_stored)
                n_rows, n_stored = n_rows + block.shape[0], n_stored + block.nnz

            yield append
        shape = np.array([n_rows, n_columns], pointer)
        for name, value in {"format": b"csr", "shape": shape, "_is_array": True}.items():
            np.save(folder / f"{name}.npy", np.asarray(value), allow_pickle=False)


@contextmanager
def _zipped_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder, and pack its files into an archive when the block ends.

    The folder is next to the archive: the temporary folder of the system may be small, or in memory.
    """
    folder = path.with_suffix("")
    try:
        folder.mkdir()
        yield folder
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=_ZIP_LEVEL) as archive:
            for source in sorted(folder.iterdir()):
                # A member opened by name has no date, so equal arrays give equal files.
                with source.open("rb") as file, archive.open(source.name, "w", force_zip64=True) as packed:
                    shutil.copyfileobj(file, packed)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
