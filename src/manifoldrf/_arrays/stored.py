"""One dense array in an .npy file or in a member of an .npz file: found, checked, mapped, read in blocks."""

import errno
import lzma
import math
import zipfile
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from manifoldrf._notices import filtered
from manifoldrf._validation import reject

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
