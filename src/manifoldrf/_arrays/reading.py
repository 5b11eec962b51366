"""Arrays read from .npy, .npz and .csv files, at once or in blocks of rows."""

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from manifoldrf._arrays.csv_text import csv_rows
from manifoldrf._arrays.stored import (
    Floats,
    array_blocks,
    check_archive,
    check_real_dtype,
    check_room,
    is_sparse,
    kept_dtype,
    member_names,
    open_numbers,
    read_array,
    reject_file,
)
from manifoldrf._arrays.writing import ARRAY_SUFFIXES
from manifoldrf._files import as_path, check_suffix, existing_file
from manifoldrf._notices import filtered
from manifoldrf._validation import FloatArray, check_integer, reject

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
