"""One dense array in an .npy file or in a member of an .npz file: found, checked, mapped, read in blocks."""

import errno
import lzma
import math
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from manifoldrf._validation import reject

Floats = NDArray[np.floating[Any]]

_SPARSE_MEMBERS = {"format", "shape", "data"}  # of every matrix that scipy.sparse.save_npz writes
_PIECE = 1 << 20  # bytes unpacked at once, next to the block they go into
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
    words = " ".join(str(reason).split()).rstrip(".") or type(reason).__name__
    reject(name, f"a readable {file.suffix.lower()} file", f"{file.name!r}: {words}")


def check_real_dtype(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    """Return a type of real numbers that float64 can hold."""
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        reject(name, "an array of real numbers", f"dtype {dtype}", TypeError)
    return dtype


def kept_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Type in memory: single and double precision stay, integers and half precision become double."""
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize == 4 else np.float64)


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
    """Read and check the header of an array of so many bytes, header included."""
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    try:
        version = np.lib.format.read_magic(stream)
        # Version 3 exists for names of fields in Unicode: never one plain array.
        shape, fortran, dtype = readers[version](stream)
    except _UNREADABLE:
        raise
    except Exception as error:  # noqa: BLE001 - a broken header makes the reader fail in every possible way
        reject_file(file, name, error)
    stored = Stored(shape, fortran, check_real_dtype(dtype, name), stream.tell())
    if len(shape) not in axes:
        reject(name, "an array of shape (n, d)" + (" or (n,)" if 1 in axes else ""), f"shape {shape}")
    if shape[-1] == 0 and len(shape) == 2:
        reject(name, "an array with at least one column", f"shape {shape}")
    if min(shape) < 0 or stored.offset + math.prod(shape) * dtype.itemsize > size:
        reject_file(file, name, "it is cut off")
    return stored


def _take(stream: IO[bytes], count: int, stored: Stored, file: Path, name: str) -> NDArray[Any]:
    """Read so many numbers, still of their type in the file. Returns a vector."""
    numbers = np.zeros(count, stored.dtype)
    view = numbers.view(np.uint8).data
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
        return _whole(stream, stored, file, name).astype(kept_dtype(stored.dtype), copy=False)


def array_blocks(file: Path, name: str, wanted: Sequence[str], chunk: int) -> Iterator[Floats]:
    """Yield the rows of an .npy or .npz file in blocks."""
    with open_numbers(file, name, wanted, (2,)) as (stream, stored):
        n_rows, n_columns = stored.shape
        # Rows in Fortran order lie apart.
        whole = _whole(stream, stored, file, name) if stored.fortran else None
        for start in range(0, n_rows, chunk):
            n = min(chunk, n_rows - start)
            if whole is None:
                block = _take(stream, n * n_columns, stored, file, name).reshape(n, n_columns)
                yield block.astype(kept_dtype(stored.dtype), copy=False)
            else:
                yield whole[start : start + n].astype(kept_dtype(stored.dtype), order="C", subok=False)


def _whole(stream: IO[bytes], stored: Stored, file: Path, name: str) -> NDArray[Any]:
    """All numbers, still of their type in the file; those of an .npy file mapped."""
    count = math.prod(stored.shape)
    order: Any = "F" if stored.fortran else "C"
    if file.suffix.lower() == ".npy" and count > 0:  # nothing cannot be mapped
        return np.memmap(file, stored.dtype, "r", stored.offset, stored.shape, order)
    return _take(stream, count, stored, file, name).reshape(stored.shape, order=order)
