"""Arrays written row by row to .npy, .npz and .csv files: the whole file or nothing, a block in memory at most."""

import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse as sp

from manifoldrf._files import as_path, atomic_path, check_suffix
from manifoldrf._validation import check_integer, reject

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
