"""One dense array in an .npy file or in a member of an .npz file: found, checked, mapped, read in blocks."""

import csv
import errno
import lzma
import math
import shutil
import zipfile
import zlib
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
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
from manifoldrf._validation import FloatArray, check_integer, reject

Floats = NDArray[np.floating[Any]]

_MOST_AXES = 32  # numpy's own limit before version 2
_SPARSE_MEMBERS = {"format", "shape", "data"}  # of every matrix that scipy.sparse.save_npz writes
_PIECE = 1 << 20  # bytes unpacked at once, next to the block they go into
# What is read whole may unpack to so many bytes, and to so many for each byte of the file: a few bytes can be
# packed so that they fill any memory.
_ROOM, _ROOM_PER_BYTE = 150_000_000, 8
_LONGEST_REASON = 300  # characters; libraries quote the bytes that they do not understand
_UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    UnicodeDecodeError,  # a name of a member
    NotImplementedError,  # a way of packing that this Python lacks
    RuntimeError,  # a password
)


class Stored(NamedTuple):
    """What the header of an .npy file or member promises."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    offset: int  # bytes before the numbers


def reject_file(file: Path, name: str, reason: object) -> NoReturn:
    """Raise the one error text for a file that is damaged or of another kind."""
    words = " ".join(str(reason).split()).rstrip(".")[:_LONGEST_REASON] or type(reason).__name__
    reject(name, f"a readable {file.suffix.lower()} file", f"{file.name!r}: {words}")


def check_real_dtype(dtype: np.dtype[Any], file: Path, name: str) -> np.dtype[Any]:
    """Return a type of real numbers that float64 can hold."""
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        reject(name, "an array of real numbers", f"dtype {str(dtype)[:80]} in {file.name!r}", TypeError)
    return dtype


def kept_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Type in memory: single and double precision stay, integers and half precision become double."""
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize == 4 else np.float64)


def _kept(numbers: NDArray[Any]) -> Floats:
    """Numbers in their type in memory; what is no number stays so, without a word."""
    with np.errstate(invalid="ignore"):
        return numbers.astype(kept_dtype(numbers.dtype), copy=False)


def is_sparse(names: Sequence[str]) -> bool:
    """Whether arrays of these names make a sparse matrix."""
    return set(names) >= _SPARSE_MEMBERS


@contextmanager
def _archive(file: Path, name: str) -> Iterator[zipfile.ZipFile]:
    """Open an .npz file; damage found while it is open becomes one error."""
    try:
        with zipfile.ZipFile(file) as archive:
            yield archive
    except _UNREADABLE as error:
        reject_file(file, name, error)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise  # the disk, the rights: the system's own words are better
        reject_file(file, name, "its table of contents points elsewhere")


def member_names(file: Path, name: str) -> list[str]:
    """Names of the arrays in an .npz file."""
    with _archive(file, name) as archive:
        members = archive.namelist()
    return [member.removesuffix(".npy") for member in members if member.endswith(".npy")]


def check_room(file: Path, name: str, size: int) -> None:
    """Refuse to unpack far more bytes than the file has."""
    if size > _ROOM + _ROOM_PER_BYTE * file.stat().st_size:
        text = f"it unpacks to {size} bytes, too many for a file of {file.stat().st_size}; save it uncompressed"
        reject_file(file, name, text)


def check_archive(file: Path, name: str) -> None:
    """Refuse an .npz file whose arrays are not what their headers say, or unpack to far more than the file."""
    with _archive(file, name) as archive:
        check_room(file, name, sum(member.file_size for member in archive.infolist()))
        for member in archive.infolist():
            if member.filename.endswith(".npy"):
                with archive.open(member) as stream:
                    _any_header(stream, member.file_size, file, name)


def read_members(file: Path, name: str, wanted: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Arrays of an .npz file by name, all or those that are wanted; nothing is ever unpickled.

    Parameters
    ----------
    file : Path
    name : str
        What errors call the file.
    wanted : collection of str, optional
        Names; those that are not there are left out.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/two.npz", a=np.arange(3), b="text")
    ...     read_members(Path(folder) / "two.npz", "path", ["a", "c"])
    {'a': array([0, 1, 2])}
    """
    result: dict[str, NDArray[Any]] = {}
    with _archive(file, name) as archive:
        chosen = {
            member.filename.removesuffix(".npy"): member
            for member in archive.infolist()
            if wanted is None or member.filename.removesuffix(".npy") in wanted
        }
        check_room(file, name, sum(member.file_size for member in chosen.values()))
        for key, member in chosen.items():
            with archive.open(member) as stream:
                stored = _any_header(stream, member.file_size, file, name)
                result[key] = _whole(stream, stored, file, name)
                if stream.read(1):  # the end is where checksums are compared
                    reject_file(file, name, "an array is followed by other bytes")
    return result


def _choose_member(file: Path, name: str, wanted: Sequence[str]) -> str:
    """The one array of an .npz file, or the one with a name that is wanted."""
    names = member_names(file, name)
    if is_sparse(names):
        reject(name, "a file with a dense array", f"a sparse matrix in {file.name!r}")
    found = names if len(names) == 1 else [word for word in wanted if word in names]
    if not found:
        rule = "a file with one array, or one that is called " + ", ".join(map(repr, wanted))
        reject(name, rule, f"{', '.join(map(repr, sorted(names))) or 'no array'} in {file.name!r}")
    return found[0]


@contextmanager
def open_numbers(
    file: Path, name: str, wanted: Sequence[str], axes: tuple[int, ...]
) -> Iterator[tuple[IO[bytes], Stored]]:
    """Open the bytes of an array at its first number, with its checked header."""
    if file.suffix.lower() == ".npy":
        with file.open("rb") as stream:
            yield stream, _read_header(stream, file.stat().st_size, file, name, axes)
        return
    member = _choose_member(file, name, wanted) + ".npy"
    with _archive(file, name) as archive, archive.open(member) as stream:
        yield stream, _read_header(stream, archive.getinfo(member).file_size, file, name, axes)


def _read_header(stream: IO[bytes], size: int, file: Path, name: str, axes: tuple[int, ...]) -> Stored:
    """Read and check the header of an array of numbers of so many bytes, header included."""
    stored = _any_header(stream, size, file, name)
    shape = stored.shape
    check_real_dtype(stored.dtype, file, name)
    if len(shape) not in axes:
        rule = "an array of shape (n, d)" + (" or (n,)" if 1 in axes else "")
        reject(name, rule, f"shape {str(shape)[:80]} in {file.name!r}")
    if shape[-1] == 0 and len(shape) == 2:
        reject(name, "an array with at least one column", f"shape {shape} in {file.name!r}")
    return stored


def _any_header(stream: IO[bytes], size: int, file: Path, name: str) -> Stored:
    """Read the header of an array of so many bytes, header included, which has to hold all its items."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(stream)
        # Of headers that Python 2 wrote, of signs that Python will not take.
        with filtered("ignore", "", Warning):
            # Version 3 exists for names of fields in Unicode: never one plain array.
            shape, fortran, dtype = readers[version](stream)
    except _UNREADABLE:
        raise
    except Exception as error:  # noqa: BLE001 - a broken header makes the reader fail in every possible way
        reject_file(file, name, error)
    stored = Stored(shape, fortran, dtype, stream.tell())
    if dtype.hasobject:
        found = f"dtype {str(dtype)[:80]} in {file.name!r}: Object arrays cannot be loaded"
        reject(name, "an array of real numbers", found, TypeError)
    # An empty array may have axes whose product overflows; so may an array of items of no size.
    longest = math.prod(max(axis, 1) for axis in shape) * max(dtype.itemsize, 1)
    if min(shape, default=0) < 0 or longest >= 2**62 or len(shape) > _MOST_AXES:
        reject_file(file, name, f"an array of shape {str(shape)[:80]}")
    if stored.offset + math.prod(shape) * dtype.itemsize > size:
        reject_file(file, name, "it is cut off")
    return stored


def _take(stream: IO[bytes], count: int, stored: Stored, file: Path, name: str) -> NDArray[Any]:
    """Read so many numbers, still of their type in the file. Returns a vector."""
    numbers = np.zeros(count, stored.dtype)
    view = numbers.view(np.uint8).data if numbers.nbytes else memoryview(b"")
    filled = 0
    while filled < len(view):
        got: int = stream.readinto(view[filled : filled + _PIECE])  # type: ignore[attr-defined]
        if not got:
            reject_file(file, name, "it is cut off")
        filled += got
    return numbers


def read_array(file: Path, name: str, wanted: Sequence[str], axes: tuple[int, ...]) -> Floats:
    """Read one array whole; an .npy file is mapped."""
    with open_numbers(file, name, wanted, axes) as (stream, stored):
        check_room(file, name, math.prod(stored.shape) * stored.dtype.itemsize)
        return _kept(_whole(stream, stored, file, name))


def array_blocks(file: Path, name: str, wanted: Sequence[str], chunk: int) -> Iterator[Floats]:
    """Yield the rows of an .npy or .npz file in blocks."""
    with open_numbers(file, name, wanted, (2,)) as (stream, stored):
        n_rows, n_columns = stored.shape
        # Rows in Fortran order lie apart.
        check_room(
            file, name, (n_rows if stored.fortran else min(chunk, n_rows)) * n_columns * stored.dtype.itemsize
        )
        whole = _whole(stream, stored, file, name) if stored.fortran else None
        for start in range(0, n_rows, chunk):
            n = min(chunk, n_rows - start)
            if whole is None:
                block = _take(stream, n * n_columns, stored, file, name).reshape(n, n_columns)
                yield _kept(block)
            else:
                yield whole[start : start + n].astype(kept_dtype(stored.dtype), order="C", subok=False)


def _whole(stream: IO[bytes], stored: Stored, file: Path, name: str) -> NDArray[Any]:
    """All numbers, still of their type in the file; those of an .npy file mapped."""
    count = math.prod(stored.shape)
    order: Any = "F" if stored.fortran else "C"
    if file.suffix.lower() == ".npy" and count > 0:  # nothing cannot be mapped
        return np.memmap(file, stored.dtype, "r", stored.offset, stored.shape, order)
    return _take(stream, count, stored, file, name).reshape(stored.shape, order=order)


# The first of these in the first line separates the cells, else blanks do. The comma is last: next to another
# mark it is a decimal comma, which is better refused than taken for a separator.
_SEPARATORS = (";", "\t", ",")
_LONGEST_CELL = 80  # characters in an error
_NUMBER_STARTS = "+-.,0123456789"


def csv_rows(path: Path, name: str, *, numbered: bool = False) -> Generator[tuple[int, list[float]], None, None]:
    r"""Yield the line number, counted from one, and the numbers of every row.

    Cells are separated by semicolons, tabs, commas or blanks, as the first line says. That line may hold names.
    Text after # and lines without text are skipped. NaN and infinite numbers are numbers here.

    Parameters
    ----------
    path : Path
        A text in UTF-8, with or without a byte order mark.
    name : str
        The name of the file in errors: a row of another length, a cell that is not a number.
    numbered : bool, default=False
        Whether the first column may be the numbers of rows, as tables are saved with a column without a name.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "points.csv"
    ...     _ = file.write_text("x;y\n1;2.5\n\n-3;1e-4\n")
    ...     list(csv_rows(file, "POINTS"))
    [(2, [1.0, 2.5]), (4, [-3.0, 0.0001])]
    """
    separator: str | None = None
    width, unnamed, counted = 0, False, False
    header: list[str] = []
    for line, text in _lines(path, name):
        if width == 0:
            separator = next((mark for mark in _SEPARATORS if mark in text), None)
        cells = _cells(text, separator)
        if width == 0:
            width = len(cells)
            if _are_names(cells):
                unnamed = not numbered and not cells[0].strip()
                header = cells
                continue
            counted = width > 1 and cells == [str(k) for k in range(width)]
        elif counted:
            _refuse_counts(cells, name, path)
            counted = False
        numbers = _numbers(cells)
        if len(numbers) != width or "_" in text:
            _reject_cells(cells, header or [""] * width, name, line, path)
        if unnamed and numbers[0] == 0:
            rule = "a file without numbers of rows, which would be taken for coordinates"
            reject(name, rule, f"a first column without a name that begins with 0 in {path.name!r}")
        unnamed = False
        yield line, numbers


def _numbers(cells: list[str]) -> list[float]:
    """All cells as numbers, or none."""
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        return []


def _refuse_counts(below: list[str], name: str, path: Path) -> None:
    """Refuse numbers of columns in the first line, as tables without names are saved: 0, 1, 2 above decimals."""
    if any("." in cell or "e" in cell.lower() for cell in below):
        counts = ",".join(str(k) for k in range(len(below)))
        rule = "a file without numbers of columns in its first line (where they are meant: with decimals, as below)"
        reject(name, rule, f"{counts} above {','.join(below)[:_LONGEST_CELL]!r} in {path.name!r}")


def _reject_cells(cells: list[str], header: list[str], name: str, line: int, path: Path) -> NoReturn:
    """Say that a line has too few or too many cells, or which of them is not a number; columns may have names."""
    if len(cells) != len(header):
        rule = f"a file with {len(header)} column(s) in every line, as in its first"
        reject(name, rule, f"{len(cells)} in line {line} of {path.name!r}")
    column, cell = next((place, cell) for place, cell in enumerate(cells, 1) if not _is_number(cell))
    found = repr(cell.strip()[:_LONGEST_CELL]) if cell.strip() else "an empty cell"
    title = header[column - 1].strip()[:_LONGEST_CELL]
    where = f"{found} in line {line}, column {column}{f' ({title!r})' if title else ''} of {path.name!r}"
    reject(name, "a file of numbers with decimal points", where)


def _lines(path: Path, name: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines that hold more than blanks and comments."""
    with path.open("rb") as file:
        for line, data in enumerate(file, 1):
            try:
                text = data.decode("utf-8-sig" if line == 1 else "utf-8")
            except UnicodeDecodeError:
                reject(name, "a text in UTF-8", f"other bytes in line {line} of {path.name!r}")
            text = text.partition("#")[0].rstrip("\r\n")  # not tabs: an empty last cell is an error
            if text.strip():
                yield line, text


def _cells(text: str, separator: str | None) -> list[str]:
    """Cells of a line; quotes around a cell are taken off."""
    if separator is None:
        return [cell.strip('"') for cell in text.split()]
    if '"' in text:
        with suppress(csv.Error):  # the cell that is too long or torn is then no number
            return next(csv.reader([text], delimiter=separator, skipinitialspace=True))
    return text.split(separator)


def _are_names(cells: list[str]) -> bool:
    """Whether cells name columns; what begins like a number is a number gone wrong."""
    words = [cell.strip() for cell in cells]
    return any(words) and not any(_is_number(word) or word[:1] in _NUMBER_STARTS for word in words if word)


def _is_number(cell: str) -> bool:
    """Whether a cell is a number; Python's own 1_000 is not."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


Mask = NDArray[np.bool_]

# The array that is meant in an .npz file of several.
_POINTS = ("points", "vertices", "X")
_VALUES = ("values",)
_CSV_CHUNK = 1 << 14  # rows parsed at once: lists of Python numbers take four times the memory of an array


@dataclass(frozen=True)
class RowReader:
    """Rows of a file, in blocks; each iteration reads the file from its start.

    Parameters
    ----------
    n_columns : int
        Number of columns.
    n_rows : int or None
        Number of rows; None for a text, which has to be read to know it.
    dtype : numpy.dtype
        float64 or float32: the type of the blocks.
    blocks : callable
        Gives a new iterator over the blocks.
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


def read_points(path: str | PathLike[str], name: str = "POINTS") -> Floats:
    r"""Read one array of shape (n, d) from a .npy, .npz or .csv file.

    Single and double precision are kept, integers become double. An .npy file is mapped, not read: only what is
    used takes memory. NaN and infinite numbers pass; the checks of the library name them.

    Parameters
    ----------
    path : str or path
        The file. An .npz file holds one array, or one that is called "points", "vertices" or "X". The lines of
        a .csv file hold numbers between commas, semicolons, tabs or blanks; the first line may hold names, and
        text after # is skipped.
    name : str, default="POINTS"
        What errors call the file.

    Returns
    -------
    ndarray of shape (n, d)
        float64 or float32; read-only where it is mapped.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "points.csv"
    ...     _ = file.write_text("x,y,z\n0,0,1\n0.5,1,2\n")
    ...     read_points(file).tolist()
    [[0.0, 0.0, 1.0], [0.5, 1.0, 2.0]]
    """
    file, suffix = _existing_file(path, name)
    if suffix == ".csv":
        return np.concatenate([block for _, block in open_rows(file, name, _CSV_CHUNK)])
    return read_array(file, name, _POINTS, axes=(2,))


def read_matrix(path: str | PathLike[str], name: str = "MATRIX") -> Any:
    """Read a matrix of shape (n, m): sparse from what ``scipy.sparse.save_npz`` wrote, else as ``read_points``.

    Parameters
    ----------
    path : str or path
        A .npy, .npz or .csv file.
    name : str, default="MATRIX"
        What errors call the file.

    Returns
    -------
    ndarray or csr_array of shape (n, m)
        float64 or float32.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "matrix.npz"
    ...     sp.save_npz(file, sp.csr_array([[0.0, 2.0], [0.0, 0.0]]))
    ...     read_matrix(file).toarray().tolist()
    [[0.0, 2.0], [0.0, 0.0]]
    """
    file, suffix = _existing_file(path, name)
    if suffix != ".npz" or not is_sparse(member_names(file, name)):
        return read_points(file, name)
    check_archive(file, name)
    with _refusing(file, name):
        matrix = sp.load_npz(file)
    check_room(file, name, 8 * max(matrix.shape))  # what a row or column takes, even where all are empty
    with _refusing(file, name):
        ends = getattr(matrix, "indptr", np.zeros(1, np.int64))
        if ends[0] != 0 or (ends[1:] < ends[:-1]).any():  # scipy looks only where the last one is not zero
            raise ValueError("its rows end before they begin")
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)  # else indices out of range crash compiled code
        rows = sp.csr_array(matrix)
        rows.check_format(full_check=True)  # of other formats, what was made of them
    return rows.astype(kept_dtype(check_real_dtype(rows.dtype, file, name)), copy=False)


@contextmanager
def _refusing(file: Path, name: str) -> Iterator[None]:
    """Refuse the file where the block fails; warnings are of what is refused later."""
    try:
        with filtered("ignore", "", Warning):
            yield
    except MemoryError:
        raise  # the file is not to blame
    except Exception as error:  # noqa: BLE001 - a broken file makes the reader fail in every possible way
        reject_file(file, name, error)


def open_rows(path: str | PathLike[str], name: str = "POINTS", chunk: int = 8192) -> RowReader:
    """Open an array of shape (n, d) in a .npy, .npz or .csv file to be read in blocks of rows.

    Memory holds one block, whatever the size of the file. The exception is an .npz file in Fortran order, whose
    rows lie apart: it is unpacked whole.

    Parameters
    ----------
    path : str or path
        The file, as for ``read_points``.
    name : str, default="POINTS"
        What errors call the file.
    chunk : int, default=8192
        Number of rows of a block; the last block may be shorter.

    Returns
    -------
    RowReader
        With ``n_columns``, ``n_rows`` (None for .csv) and ``dtype``; iteration gives (start, block).

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "points.npy"
    ...     np.save(file, np.arange(10).reshape(5, 2))
    ...     [(start, block.shape) for start, block in open_rows(file, chunk=2)]
    [(0, (2, 2)), (2, (2, 2)), (4, (1, 2))]
    """
    file, suffix = _existing_file(path, name)
    chunk = check_integer(chunk, "chunk", 1)
    if suffix == ".csv":
        with closing(csv_rows(file, name)) as rows:
            first = next(rows, None)
        if first is None:
            reject(name, "a file with at least one line of numbers", repr(file.name))
        return RowReader(len(first[1]), None, np.dtype(np.float64), partial(_csv_blocks, file, name, chunk))
    with open_numbers(file, name, _POINTS, (2,)) as (_, stored):
        n_rows, n_columns = stored.shape
    return RowReader(n_columns, n_rows, kept_dtype(stored.dtype), partial(array_blocks, file, name, _POINTS, chunk))


def read_values(path: str | PathLike[str], n_rows: int, name: str = "VALUES") -> tuple[FloatArray, Mask]:
    r"""Read the values that are known at some of the vertices of a mesh, or at some points.

    Parameters
    ----------
    path : str or path
        An .npy or .npz file of shape (n_rows,) or (n_rows, c), with NaN in the rows that are unknown; or a .csv
        file with the index of a vertex, counted from zero, and its c values in every line.
    n_rows : int
        Number of vertices.
    name : str, default="VALUES"
        What errors call the file.

    Returns
    -------
    values : ndarray of shape (n_rows, c)
        NaN in the rows that are unknown.
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
    file, suffix = _existing_file(path, name)
    n_rows = check_integer(n_rows, "n_rows", 1)
    if suffix == ".csv":
        values = _indexed_values(file, name, n_rows)
    else:
        array = read_array(file, name, _VALUES, axes=(1, 2))
        values = np.array(array.reshape(len(array), -1), np.float64)
        if len(values) != n_rows:
            reject(name, f"an array of {n_rows} rows, one per vertex", f"{len(values)} in {file.name!r}")
    unknown = np.isnan(values)
    known = np.asarray(~unknown.all(axis=1))  # of no columns, none
    partly = np.flatnonzero(unknown.any(axis=1) & known)
    if len(partly):
        reject(
            name,
            "numbers, or NaN, in all columns of a row",
            f"some of both for vertex {partly[0]} in {file.name!r}",
        )
    if not known.any():
        reject(name, "a file with at least one known value", repr(file.name))
    infinite = np.flatnonzero(np.isinf(values).any(axis=1))
    if len(infinite):
        reject(
            name,
            "finite numbers, or NaN where nothing is known",
            f"an infinite one for vertex {infinite[0]} in {file.name!r}",
        )
    return values, known


def _existing_file(path: str | PathLike[str], name: str) -> tuple[Path, str]:
    """Path and suffix of a file that is there and not empty."""
    suffix = check_suffix(as_path(path, name), name, ARRAY_SUFFIXES)
    file = existing_file(path, name)
    if file.stat().st_size == 0:
        reject(name, "a file that is not empty", repr(file.name))
    return file, suffix


def _csv_blocks(file: Path, name: str, chunk: int) -> Iterator[Floats]:
    """Yield the rows of a text in blocks."""
    rows = csv_rows(file, name)
    while block := [numbers for _, numbers in islice(rows, chunk)]:
        yield np.array(block)


def _indexed_values(file: Path, name: str, n_rows: int) -> FloatArray:
    """Values of the vertices that the lines of a text name, NaN elsewhere. Returns (n_rows, c)."""
    values = np.zeros((n_rows, 0))
    seen = np.zeros(n_rows, dtype=np.int64)  # line of each vertex, zero for none
    for line, (vertex, *numbers) in csv_rows(file, name, numbered=True):
        if not numbers:
            reject(name, "a file with a vertex and at least one value in every line", repr(file.name))
        if not (vertex.is_integer() and 0 <= vertex < n_rows):
            where = f"{vertex:g} in line {line}, column 1 of {file.name!r}"
            reject(name, f"a file with an integer in [0, {n_rows - 1}] first in every line", where)
        row = int(vertex)
        if seen[row]:
            reject(
                name, "a file that names a vertex once", f"{row} in lines {seen[row]} and {line} of {file.name!r}"
            )
        if values.shape[1] == 0:
            values = np.full((n_rows, len(numbers)), np.nan)
        seen[row], values[row] = line, numbers
    return values


ARRAY_SUFFIXES = (".npy", ".npz", ".csv")

# Enough for the names, a dtype and two numbers of 20 digits, and a multiple of 64 as the format wants it.
_HEADER_BYTES = 128
# Of deflate. Level 6 would take 1 % off the features and 9 % off the indices, for nine times the time of these.
_ZIP_LEVEL = 1
_BLOCK_ENTRIES = 1 << 20  # of a matrix in memory, written at once: 8 MB of float64

_Append = Callable[[Any], None]


class RowWriter:
    """Takes the rows of one array, block by block.

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
        Number of rows taken so far.
    """

    def __init__(self, n_columns: int, dtype: np.dtype[Any], write: _Append) -> None:
        self.n_columns = n_columns
        self.dtype = dtype
        self.n_rows = 0
        self._write = write

    def append(self, block: Any) -> None:
        """Write the rows of a dense array or sparse matrix of shape (k, n_columns)."""
        rows = block.tocsr() if sp.issparse(block) else np.asarray(block)
        if rows.ndim != 2 or rows.shape[1] != self.n_columns:
            reject("block", f"an array of shape (k, {self.n_columns})", f"shape {rows.shape}")
        if not np.can_cast(rows.dtype, self.dtype, "same_kind"):
            reject("block", f"an array that converts to {self.dtype}", f"dtype {rows.dtype}", TypeError)
        self._write(rows.astype(self.dtype, copy=False))
        self.n_rows += rows.shape[0]


@contextmanager
def row_writer(
    path: str | PathLike[str],
    n_columns: int,
    dtype: DTypeLike = np.float64,
    *,
    sparse: bool = False,
    header: Sequence[str] | None = None,
) -> Iterator[RowWriter]:
    """Open a .npy, .npz or .csv file for the rows of one array.

    The file appears when the block of the ``with`` statement ends well. After any exception, an interrupt
    included, there is no trace of it and an existing file is as it was. No more than a block is held in memory.

    Parameters
    ----------
    path : str or path
        The file. The suffix names the format: .npy; .npz, compressed; .csv, with the shortest digits that read
        back as the same numbers.
    n_columns : int
        Number of columns.
    dtype : dtype, default=numpy.float64
        Type of the numbers; blocks are converted to it.
    sparse : bool, default=False
        Whether an .npz file holds a CSR array, as ``scipy.sparse.load_npz`` reads it, instead of one dense
        array called "rows". The other formats have no sparse form: there, blocks are written dense.
    header : sequence of str, optional
        Names of the columns for the first line of a .csv file.

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
    if header is not None and len(header) != n_columns:
        reject("header", f"{n_columns} names, one per column", len(header))
    with atomic_path(path) as temporary:
        opened: AbstractContextManager[_Append]
        if suffix == ".npy":
            opened = _npy_file(temporary, kind, (n_columns,))
        elif suffix == ".csv":
            opened = _csv_file(temporary, header)
        elif sparse:
            opened = _sparse_npz(temporary, n_columns, kind)
        else:
            opened = _dense_npz(temporary, n_columns, kind)
        with opened as write:
            yield RowWriter(n_columns, kind, write)


def write_matrix(path: str | PathLike[str], array: Any, *, header: Sequence[str] | None = None) -> None:
    r"""Write one array or sparse matrix of shape (n, m) to a .npy, .npz or .csv file, whole or not at all.

    Parameters
    ----------
    path : str or path
        The file; see ``row_writer``. A sparse matrix stays sparse in an .npz file and is dense in the others.
    array : array-like or sparse matrix of shape (n, m)
        The numbers; a vector is one column.
    header : sequence of str, optional
        Names of the columns for the first line of a .csv file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     write_matrix(Path(folder) / "a.csv", [[0.1, 2.0]], header=["x", "y"])
    ...     (Path(folder) / "a.csv").read_text()
    'x,y\n0.1,2.0\n'
    """
    sparse = sp.issparse(array)
    rows = array.tocsr() if sparse else np.asarray(array)
    if rows.ndim == 1 and not sparse:
        rows = rows[:, None]
    if rows.ndim != 2:
        reject("array", "an array of shape (n, m)", f"shape {rows.shape}")
    step = max(1, _BLOCK_ENTRIES // max(1, rows.shape[1]))
    with row_writer(path, rows.shape[1], rows.dtype, sparse=sparse, header=header) as writer:
        for start in range(0, rows.shape[0], step):
            writer.append(rows[start : start + step])


def _dense(rows: Any) -> NDArray[Any]:
    """Rows as a dense array in C order."""
    return np.ascontiguousarray(rows.toarray() if sp.issparse(rows) else rows)


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Header of an .npy file of version 1.0, of the same length for every number of rows."""
    text = repr({"descr": dtype.str, "fortran_order": False, "shape": shape}).encode()
    lead = np.lib.format.magic(1, 0)
    length = _HEADER_BYTES - len(lead) - 2
    return lead + length.to_bytes(2, "little") + text.ljust(length - 1) + b"\n"


@contextmanager
def _npy_file(path: Path, dtype: np.dtype[Any], tail: tuple[int, ...]) -> Iterator[_Append]:
    """Write an .npy file whose number of rows is known at the end only."""
    n_rows = 0
    with path.open("wb") as file:
        file.write(_npy_header(dtype, (n_rows, *tail)))

        def append(rows: Any) -> None:
            nonlocal n_rows
            block = _dense(rows)
            file.write(block.data)
            n_rows += len(block)

        yield append
        file.seek(0)
        file.write(_npy_header(dtype, (n_rows, *tail)))


@contextmanager
def _csv_file(path: Path, header: Sequence[str] | None) -> Iterator[_Append]:
    """Write lines of comma separated numbers."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        if header is not None:
            file.write(",".join(header) + "\n")

        def append(rows: Any) -> None:
            block = _dense(rows)
            # numpy writes the shortest digits for single precision too, but takes longer than Python.
            for row in block.tolist() if block.dtype.itemsize == 8 else block:
                file.write(",".join(map(str, row)) + "\n")

        yield append


@contextmanager
def _dense_npz(path: Path, n_columns: int, dtype: np.dtype[Any]) -> Iterator[_Append]:
    """Write one dense array called "rows"; the plain form waits in a temporary file."""
    with _beside(path) as folder:
        with _npy_file(folder / "rows.npy", dtype, (n_columns,)) as append:
            yield append
        _zip(path, folder)


@contextmanager
def _sparse_npz(path: Path, n_columns: int, dtype: np.dtype[Any]) -> Iterator[_Append]:
    """Write a CSR array in the layout of scipy; its three parts wait in temporary files."""
    index = np.dtype("<i4" if n_columns <= np.iinfo(np.int32).max else "<i8")
    pointer = np.dtype("<i8")
    n_rows = n_stored = 0
    with _beside(path) as folder:
        with (
            _npy_file(folder / "data.npy", dtype, ()) as data,
            _npy_file(folder / "indices.npy", index, ()) as indices,
            _npy_file(folder / "indptr.npy", pointer, ()) as indptr,
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
        _zip(path, folder)


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """Give a temporary folder next to a temporary file: the one of the system may be small, or be memory."""
    folder = path.with_suffix("")
    try:
        folder.mkdir()
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _zip(path: Path, folder: Path) -> None:
    """Pack the files of a folder, in the order of their names."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=_ZIP_LEVEL) as archive:
        for source in sorted(folder.iterdir()):
            # A member opened by name gets no date, so that equal arrays give equal files.
            with source.open("rb") as file, archive.open(source.name, "w", force_zip64=True) as packed:
                shutil.copyfileobj(file, packed)
