"""Arrays in .npy, .npz and .csv files. Those in .npy and .csv files are read and written in blocks of rows."""

import csv
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse as sp

from manifoldrf._files import as_path, atomic_path, check_suffix, existing_file
from manifoldrf._runtime import filtered
from manifoldrf._validation import FloatArray, IntArray, check_integer, reject

ARRAY_SUFFIXES = (".npy", ".npz", ".csv")
# Preferred names in an .npz file with several arrays.
_POINTS = ("points", "vertices", "verts", "X", "V", "v")
_FACES = ("faces", "triangles", "F")
_MISSING = ("", "na", "n/a", "null", "none")  # besides NaN, as written by spreadsheets and databases
AnyPath = str | PathLike[str]


@dataclass(frozen=True)
class RowReader:
    """Rows of a file in blocks of float64 or float32; ``n_rows`` of a .csv file is None."""

    n_columns: int
    n_rows: int | None
    dtype: np.dtype[Any]
    blocks: Callable[[], Iterator[Any]]

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Yield each block with the index of its first row, from the start of the file."""
        start = 0
        for block in self.blocks():
            yield start, block
            start += len(block)


@dataclass
class Table:
    """Which columns of a file are coordinates, and how the others and missing values are treated.

    The cells of the columns ``kept`` are kept as text. With ``drop``, empty cells and words such as NA become NaN,
    and :meth:`complete` drops their rows; it adds the kept cells of each block that it returns to ``blocks``.
    """

    places: Sequence[int]
    kept: Sequence[int] = ()
    drop: bool = False
    is_chosen: bool = False  # by the user
    n_dropped: int = 0
    cells: deque[list[str]] = field(default_factory=deque)
    blocks: deque[list[list[str]]] = field(default_factory=deque)

    def keep(self, cells: NDArray[Any]) -> None:
        """Store the texts of the ``kept`` columns of some rows."""
        texts = np.char.strip(cells.astype(str))
        if np.char.count(texts, "\ufffd").any():
            reject("--id and --label", "columns of a file in UTF-8", "bytes that are not text")
        self.cells.extend(texts.tolist())

    def columns(self, rows: NDArray[Any]) -> NDArray[Any]:
        """The coordinate columns of some rows; cells of the ``kept`` columns are stored."""
        if self.kept:
            self.keep(rows[:, list(self.kept)])
        return np.ascontiguousarray(rows[:, list(self.places)])

    def complete(self, block: NDArray[Any]) -> NDArray[Any]:
        """The rows of a block without missing values."""
        whole = ~np.isnan(block).any(axis=1) if self.drop else np.ones(len(block), dtype=bool)
        self.n_dropped += int(np.count_nonzero(~whole))
        cells = [self.cells.popleft() for _ in range(len(block))] if self.kept else []
        if cells and whole.any():
            self.blocks.append([row for row, is_whole in zip(cells, whole, strict=True) if is_whole])
        return np.asarray(block[whole])


# --------------------------------------------------------------------------------------------------------- reading
def open_rows(path: AnyPath, name: str = "POINTS", chunk: int = 8192, table: Table | None = None) -> RowReader:
    """Open an array of shape (n, d), as in :func:`read_points`, for reading in blocks of ``chunk`` rows."""
    file, chunk = _check_file(path, name), check_integer(chunk, "chunk", 1)
    if file.suffix.lower() == ".csv":
        n_columns = len(column_titles(file, name)) if table is None else len(table.places)
        return RowReader(n_columns, None, np.dtype(np.float64), lambda: _csv_blocks(file, name, chunk, table))
    array = _read_array(file, name, _POINTS)

    def blocks() -> Iterator[Any]:
        for start in range(0, len(array), chunk):
            block = np.array(array[start : start + chunk], order="C")
            yield _kept(block if table is None else table.columns(block))  # cells are kept with all their digits

    n_columns = array.shape[1] if table is None else len(table.places)
    return RowReader(n_columns, len(array), _kept(array[:0]).dtype, blocks)


def read_points(path: AnyPath, name: str = "POINTS", table: Table | None = None) -> NDArray[Any]:
    r"""Read one array of shape (n, d), in single or double precision; an .npy file is memory-mapped.

    An .npz file has one array, or one named "points", "vertices", "verts", "X", "V" or "v". Numbers in a .csv file
    are separated by commas, semicolons, tabs or spaces; the first line may hold names, and # begins a comment.

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
        return np.concatenate(list(_csv_blocks(file, name, 2**14, table)))
    found = _read_array(file, name, _POINTS)
    return _kept(found if table is None else table.columns(found))


def read_mesh_arrays(path: AnyPath, name: str = "path") -> tuple[FloatArray, IntArray] | None:
    """Read vertices and faces from an .npz file; None if it has no array named "faces", "triangles" or "F"."""
    file = _check_file(path, name)
    if not read_npz(file, name, _FACES):
        return None
    vertices, faces = (_read_array(file, name, wanted) for wanted in (_POINTS, _FACES))
    if not np.array_equal(faces, np.rint(faces)):
        reject(name, "a file whose faces are integers", f"fractions in {file.name!r}")
    return vertices.astype(np.float64), faces.astype(np.int64)


def read_values(
    path: AnyPath, n_rows: int, name: str = "VALUES", unit: str = "vertex"
) -> tuple[list[str], FloatArray]:
    """Read values at vertices: the names of their columns, if any, and an array (n_rows, c), NaN where unknown.

    A .npy or .npz file, and a .csv file of one column, have a row for every vertex. A line of another .csv file
    holds the index of a vertex, counted from zero, and its values.
    """
    file = _check_file(path, name)
    titles = column_titles(file, name) if file.suffix.lower() == ".csv" else []
    names = titles[1:] if len(titles) > 1 else titles
    if "vertex" in titles[1:]:
        reject(name, "a file whose first column is that of the vertices", f"the columns {titles} in {file.name!r}")
    if len(set(filter(None, names))) < len(list(filter(None, names))):
        reject(name, "a file whose columns have different names", f"{names} in {file.name!r}")
    names = names if any(names) else []
    if len(titles) < 2:
        array = read_points(file, name) if titles else _read_array(file, name, ("values",), (1, 2))
        if len(array) != n_rows:
            reject(name, f"an array of {n_rows} rows, one per {unit}", f"{len(array)} in {file.name!r}")
        return names, np.array(array.reshape(len(array), -1), np.float64)
    table = np.concatenate(list(_csv_blocks(file, name, 2**14, None)))
    rows, first = np.unique(table[:, 0], return_index=True)
    bad = rows[~((rows == np.rint(rows)) & (rows >= 0) & (rows < n_rows))]
    if len(bad) or len(rows) < len(table):
        rule = f"a file with an integer in [0, {n_rows - 1}], each once, in every line: the {unit}"
        found = f"{bad[0]:g}" if len(bad) else f"{len(table)} lines for {len(rows)}"
        reject(name, rule, f"{found} in {file.name!r}")
    values = np.full((n_rows, len(names or titles[1:])), np.nan)
    values[rows.astype(np.int64)] = table[first, 1:]
    flags = int(len(names) > 1 and names[0] == "known")  # a column that `interpolate` writes
    return names[flags:], values[:, flags:]


def column_titles(path: AnyPath, name: str = "POINTS") -> list[str]:
    """The names of all columns of a file; empty strings where they have none."""
    file = _check_file(path, name)
    if file.suffix.lower() != ".csv":
        return [""] * _read_array(file, name, _POINTS).shape[1]
    return _csv_layout(file, name)[1]


def find_column(wanted: str, titles: Sequence[str], option: str) -> int:
    """The index of a column, given by its name or its number from 0."""
    if titles.count(wanted) == 1:
        return titles.index(wanted)
    if wanted.isdecimal() and len(wanted) < 10 and int(wanted) < len(titles):
        return int(wanted)
    names = ", ".join(filter(None, titles))[:300] or "there are none"
    rule = f"names of columns that occur once ({names}) or their numbers from 0 to {len(titles) - 1}"
    reject(option, rule, repr(wanted))


def _check_file(path: AnyPath, name: str) -> Path:
    """Return the path of an existing array file that is not empty."""
    check_suffix(as_path(path, name), name, ARRAY_SUFFIXES)
    file = existing_file(path, name)
    if file.stat().st_size == 0:
        reject(name, "a file that is not empty", repr(file.name))
    return file


def _kept(array: NDArray[Any]) -> NDArray[Any]:
    """Convert numbers to double precision, except those in single precision."""
    with np.errstate(invalid="ignore"):
        return array.astype(np.float32 if array.dtype.str[1:] == "f4" else np.float64, copy=False)


@contextmanager
def _readable(file: Path, name: str) -> Iterator[None]:
    """Turn any error of numpy for a damaged file into one sentence."""
    try:
        with filtered("ignore", "", Warning):  # headers from Python 2, odd escapes
            yield
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise  # the message of the system names the file
        words = " ".join(str(error).split()).rstrip(".")[:300] or type(error).__name__
        reject(name, f"a readable {file.suffix.lower()} file", f"{file.name!r}: {words}")


def _read_array(file: Path, name: str, wanted: Sequence[str], axes: tuple[int, ...] = (2,)) -> NDArray[Any]:
    """Read one array of real numbers: the only one of an .npz file, or the first with a wanted name."""
    if file.suffix.lower() == ".npy":
        with _readable(file, name):
            array: Any = np.lib.format.open_memmap(file, mode="r")
    else:
        array = next(iter(read_npz(file, name, wanted, alone=True).values()))
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        reject(name, "an array of real numbers", f"dtype {str(array.dtype)[:80]} in {file.name!r}", TypeError)
    if array.ndim not in axes or array.shape[1:] == (0,):
        rule = f"an array of shape (n, d){' or (n,)' if 1 in axes else ''} with at least one column"
        reject(name, rule, f"shape {array.shape} in {file.name!r}")
    return np.asanyarray(array)


def read_npz(file: Path, name: str, wanted: Sequence[str] | None, *, alone: bool = False) -> dict[str, Any]:
    """Read the wanted arrays of an .npz file, or all; with ``alone`` only the first of them, or the only array."""
    with _readable(file, name), np.load(file, allow_pickle=False) as archive:
        members, result = archive.zip.namelist(), dict[str, NDArray[Any]]()
        names = [member.removesuffix(".npy") for member in members if member.endswith(".npy")]
        chosen = [word for word in (names if wanted is None else wanted) if word in names]
        chosen = (names if len(names) == 1 else chosen)[:1] if alone else chosen
        for key in chosen:
            size, most = archive.zip.getinfo(f"{key}.npy").file_size, 150_000_000 + 8 * file.stat().st_size
            if size > most:  # a small archive can unpack to any size
                raise ValueError(f"it unpacks to {size} bytes, more than {most}; save it uncompressed")
            result[key] = archive[key]
            if not isinstance(result[key], np.ndarray):  # not an array, just bytes
                raise TypeError(f"{key!r} is not an array")
    if alone and (not result or {"format", "shape", "data"}.issubset(names)):
        rule = "a file with one dense array, or with one named " + ", ".join(map(repr, wanted or ()))
        reject(name, rule, f"{', '.join(map(repr, sorted(names))) or 'no array'} in {file.name!r}")
    return result


def _csv_layout(file: Path, name: str) -> tuple[str | None, list[str], int]:
    """The separator, the titles of the columns (empty if none), and the number of lines before the numbers."""
    with file.open(encoding="utf-8-sig", errors="replace") as stream:
        texts = (line.partition("#")[0].strip("\n") for line in stream)
        found = [*islice(((text, k) for k, text in enumerate(texts) if text.strip()), 2), ("", 0), ("", 0)]
    (first, begin), (second, _) = found[:2]
    # A comma comes last: next to another separator it is a decimal comma, which is refused.
    separator = next((mark for mark in ";\t," if mark in first), None)
    reader = csv.reader([first if separator else " ".join(first.split())], delimiter=separator or " ")
    try:
        cells = [cell.strip() for cell in next(reader, [])]
    except csv.Error as error:
        reject(name, "a table of numbers", f"{error} in {file.name!r}")
    words = [cell for cell in cells if cell]
    if words and not any(word[0] in "+-.,0123456789" or word.lower() in ("nan", "inf") for word in words):
        return separator, cells, begin + 1
    # Also after the empty cell above the row numbers of pandas.
    if len(words) > 1 and words == [str(k) for k in range(len(words))] and set(second) & set(".eE"):
        rule = "a file without column numbers in its first line (write them with decimals if they are coordinates)"
        reject(name, rule, f"{first[:80]!r} above {second[:80]!r} in {file.name!r}")
    return separator, [""] * len(cells), begin


def _csv_blocks(file: Path, name: str, chunk: int, table: Table | None) -> Iterator[FloatArray]:
    """Yield the numbers of a text in blocks of rows."""
    separator, titles, begin = _csv_layout(file, name)
    options: dict[str, Any] = {"delimiter": separator, "ndmin": 2, "quotechar": '"'}
    options |= {"comments": None} if table is not None and table.kept else {}  # texts may hold #
    numbers = options | {"usecols": None if table is None else table.places}
    if table is not None and table.drop:
        numbers |= {"converters": lambda cell: np.nan if cell.strip().lower() in _MISSING else float(cell)}
    with file.open(encoding="utf-8-sig", errors="replace") as stream:
        at, is_empty = sum(1 for _ in islice(stream, begin)), True
        while lines := [line if line.strip() else "\n" for line in islice(stream, chunk)]:
            with filtered("ignore", "loadtxt: input contained no data", UserWarning):
                try:
                    block = np.loadtxt(lines, **numbers)
                except ValueError as error:
                    _reject_lines(lines, numbers, error, (file, name, at))
            if table is None and len(block) and block.shape[1] != len(titles):
                rule = f"a file with {len(titles)} column(s) in every line, as in its first"
                reject(name, rule, f"{block.shape[1]} from line {at + 1} of {file.name!r}")
            if table is not None and table.kept and len(block):
                with filtered("ignore", "Input line", UserWarning):  # empty ones
                    table.keep(np.loadtxt(lines, str, usecols=table.kept, **options))
            if len(block):
                is_empty = False
                yield block
            at += len(lines)
    if is_empty:
        reject(name, "a file with at least one line of numbers", repr(file.name))


def _reject_lines(lines: list[str], options: Any, error: Any, about: tuple[Path, str, int]) -> NoReturn:
    """Name the first cell that is not a number, or the first line with another number of cells."""
    file, name, at = about
    error = f"{str(error).partition(';')[0]}, from line {at + 1} on, of {file.name!r}"
    for line, text in enumerate(lines, at + 1):
        try:
            np.loadtxt([text], **options)
        except ValueError as found:
            cell = re.search(r"string (.*) to float64 at row 0, (column \d+)", str(found), re.DOTALL)
            words = f"{cell[1][:80]} in line {line}, {cell[2]}" if cell else f"{found} in line {line}"
            error = f"{words} of {file.name!r} (fit, transform and kernel have --columns, --id and --missing)"
            break
    reject(name, "a table of numbers with decimal points", error)


# --------------------------------------------------------------------------------------------------------- writing
@dataclass
class RowWriter:
    """Writes the rows of one array, dense or sparse, block by block."""

    n_columns: int
    dtype: np.dtype[Any]
    write: Callable[[Any, Sequence[Sequence[str]]], Any]
    n_rows: int = 0

    def append(self, block: Any, cells: Sequence[Sequence[str]] = ()) -> None:
        """Write an array or sparse matrix of shape (k, n_columns); in .csv files after ``cells``."""
        rows = block.tocsr() if sp.issparse(block) else np.asarray(block)
        if rows.ndim != 2 or rows.shape[1] != self.n_columns:
            reject("block", f"an array of shape (k, {self.n_columns})", f"shape {rows.shape}")
        if not np.can_cast(rows.dtype, self.dtype, "same_kind"):
            reject("block", f"an array that converts to {self.dtype}", f"dtype {rows.dtype}", TypeError)
        self.write(rows.astype(self.dtype, copy=False), cells)
        self.n_rows += rows.shape[0]


@contextmanager
def row_writer(
    path: AnyPath,
    n_columns: int,
    dtype: DTypeLike = np.float64,
    *,
    sparse: bool = False,
    titles: Sequence[str] = (),
) -> Iterator[RowWriter]:
    """Open a .npy, .npz or .csv file for the rows of one array; it appears when the block ends without an error.

    Rows of .npy and .csv files are written at once; those of .npz files are kept in memory until the end. With
    ``sparse`` they are saved for ``scipy.sparse.load_npz``, else as "rows". ``titles``: first line of a .csv file.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     with row_writer(Path(folder) / "features.npy", 2) as writer:
    ...         writer.append([[1.0, 2.0]])
    ...         writer.append([[3.0, 4.0], [5.0, 6.0]])
    ...     np.load(Path(folder) / "features.npy").tolist()
    [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    """
    suffix = check_suffix(as_path(path), "path", ARRAY_SUFFIXES)
    kind, n_columns = np.dtype(dtype).newbyteorder("<"), check_integer(n_columns, "n_columns", 1)
    if kind.kind not in "iuf":
        reject("dtype", "a type of real numbers", kind, TypeError)
    with atomic_path(as_path(path)) as temporary, ExitStack() as stack:
        if suffix == ".npz":
            blocks: list[Any] = [sp.csr_array((0, n_columns), dtype=kind)]
            form = sp.csr_array if sparse else _dense
            yield RowWriter(n_columns, kind, lambda rows, _: blocks.append(form(rows)))
            if sparse:
                sp.save_npz(temporary, sp.vstack(blocks, "csr"))
            else:
                np.savez_compressed(temporary, rows=np.concatenate([blocks[0].toarray(), *blocks[1:]]))
        elif suffix == ".csv":
            text = stack.enter_context(temporary.open("w", encoding="utf-8", newline="\n"))
            lines = csv.writer(text, lineterminator="\n")
            lines.writerows([titles] if titles else [])

            def write_lines(rows: Any, cells: Sequence[Sequence[str]]) -> None:
                if not cells:
                    np.savetxt(text, _dense(rows), fmt="%s", delimiter=",")  # the shortest exact decimals
                for words, row in zip(cells, _dense(rows) if cells else (), strict=True):
                    lines.writerow([*words, *map(str, row)])

            yield RowWriter(n_columns, kind, write_lines)
        else:
            file = stack.enter_context(temporary.open("wb"))
            header = {"descr": kind.str, "fortran_order": False, "shape": (0, n_columns)}
            np.lib.format.write_array_header_1_0(file, header)  # has room for any number of rows
            writer = RowWriter(n_columns, kind, lambda rows, _: file.write(_dense(rows).data))
            yield writer
            file.seek(0)
            np.lib.format.write_array_header_1_0(file, header | {"shape": (writer.n_rows, n_columns)})


def _dense(rows: Any) -> NDArray[Any]:
    """Rows as a dense array in C order."""
    return np.ascontiguousarray(rows.toarray() if sp.issparse(rows) else rows)
