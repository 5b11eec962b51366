"""One file of named arrays and a JSON text: safetensors, with a checksum over every byte.

The file is an ordinary safetensors file, which any reader of that format opens. Its metadata hold the name of
the format, its version, the JSON text and a checksum of the whole file, taken with zeros in the place of the
checksum. A file that is cut off, altered, foreign or newer is refused with a sentence that says so.
"""

import hashlib
import json
import math
import os
import re
import stat
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from manifoldrf._files import as_path, atomic_path
from manifoldrf._validation import reject

_FORMAT = "manifoldrf"
_VERSION = 1
_METADATA = "__metadata__"  # the name that safetensors reserves
_KEYS = {"format", "format_version", "checksum", "model"}
_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
DTYPES = frozenset(_DTYPES.values())

# Parsed JSON takes up to 30 times the memory of its text, and what is made of it as much again: 200 MB at most,
# whatever a file says.
_MOST_HEADER = 3_000_000
_MOST_DEPTH = 200  # nested brackets; Python's own limit is about 1000 less what the caller has used
_MOST_AXES = 32  # numpy's own limit before version 2
_CHUNK = 1 << 24  # bytes read and hashed at once
_LENGTH_BYTES = 8
_DIGEST_BYTES = 32
_NO_DIGEST = "0" * (2 * _DIGEST_BYTES)
# Quotes inside JSON strings are escaped, so that this text is found at the key itself and nowhere else.
_DIGEST = re.compile(rb'"checksum":"([0-9a-f]{%d})"' % (2 * _DIGEST_BYTES))
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\Z)', re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9_.]+")


class ModelFileError(ValueError):
    """A file that is not a whole, unaltered model of this library; the text says what is wrong with it.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "notes.txt"
    ...     _ = path.write_text("These are my notes.")
    ...     try:
    ...         read_container(path)
    ...     except ModelFileError as error:
    ...         str(error).partition(": ")[2]
    'it is not a safetensors file.'
    """


class _Place(NamedTuple):
    """Where an array lies in the file."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    end: int


def write_container(path: Any, arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> Path:
    """Write arrays and a JSON-able dict to one file, which appears whole or not at all.

    Parameters
    ----------
    path : str or path
        The file; an existing one is replaced.
    arrays : dict
        Names of letters, digits, dots and underscores; float64, float32, integers or bool.
    meta : dict
        Of None, bool, int, finite float, str, list and dict with str keys.

    Returns
    -------
    Path
        The file written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = write_container(Path(folder) / "model", {"a": np.arange(3)}, {"kind": "example"})
    ...     arrays, meta = read_container(path)
    >>> arrays["a"].tolist(), meta
    ([0, 1, 2], {'kind': 'example'})
    """
    target = as_path(path)
    text = json.dumps(meta, allow_nan=False, separators=(",", ":"))
    if _depth(text) > _MOST_DEPTH:
        reject("meta", f"nested at most {_MOST_DEPTH} deep", _depth(text))
    metadata = {"format": _FORMAT, "format_version": str(_VERSION), "checksum": _NO_DIGEST, "model": text}
    content = memoryview(save({name: _check_array(name, array) for name, array in arrays.items()}, metadata))
    begin = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    if begin - _LENGTH_BYTES > _MOST_HEADER:
        reject("meta", f"at most {_MOST_HEADER} bytes with the names of the arrays", begin - _LENGTH_BYTES)
    head, body = _ordered(bytes(content[_LENGTH_BYTES:begin])), content[begin:]
    found = _DIGEST.search(head)
    if found is None:
        raise RuntimeError("safetensors wrote a header of another form; this version of it is not supported.")
    digest = hashlib.blake2b(head, digest_size=_DIGEST_BYTES)
    digest.update(body)
    with atomic_path(target) as temporary, temporary.open("wb") as file:
        for part in (head[: found.start(1)], digest.hexdigest().encode(), head[found.end(1) :], body):
            file.write(part)
    return target


def _ordered(header: bytes) -> bytes:
    """Length and header with entries in a fixed order: safetensors writes them in any, and files would differ."""
    entries = json.loads(header)
    metadata = entries.pop("__metadata__")
    ordered = {"__metadata__": dict(sorted(metadata.items()))}
    ordered |= dict(sorted(entries.items(), key=lambda item: (item[1]["data_offsets"], item[0])))
    text = json.dumps(ordered, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)  # arrays begin at multiples of 8 bytes
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def read_container(path: Any) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read what :func:`write_container` wrote; arrays are new, in C order, and of the same bits.

    Raises
    ------
    ModelFileError
        If the file is cut off, altered, foreign or newer.
    FileNotFoundError
        If there is no such file.
    """
    source = as_path(path)
    if not source.exists():
        reject("path", "the name of a file that exists", source, FileNotFoundError)
    if source.is_dir():
        reject("path", "a file, not a folder", source, IsADirectoryError)
    if not stat.S_ISREG(source.stat().st_mode):
        _refuse("it is not a regular file", source)  # opening a pipe would wait for its other end
    try:
        with source.open("rb") as file:
            return _read(file)
    except ModelFileError as error:
        _refuse(str(error), source)


def _check_array(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array in C order, little-endian, of a kind that can be stored."""
    if not _NAME.fullmatch(name):
        reject("arrays", "named by letters, digits, dots and underscores", repr(name))
    little = array.dtype.newbyteorder("<")
    if little not in DTYPES:
        kinds = ", ".join(sorted(dtype.name for dtype in DTYPES))
        reject("arrays", f"of a dtype among {kinds}", f"{array.dtype} for {name!r}", TypeError)
    return np.asarray(array, dtype=little, order="C")


def _refuse(reason: str, path: Path | None = None) -> NoReturn:
    """Raise the error of this module: the reason alone while reading, a sentence where the file is known."""
    raise ModelFileError(reason if path is None else f"{path} cannot be loaded: {reason}.") from None


def _read(file: BinaryIO) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Check sizes, header, version and layout; then read the arrays; then, if the sum is right, the JSON text."""
    size = os.fstat(file.fileno()).st_size
    start = _read_header(file, size)
    header = _parse(start[_LENGTH_BYTES:], "its header")
    metadata = _check_metadata(header.pop(_METADATA, None))
    places = _check_layout([_check_place(*item) for item in header.items()], size - len(start))
    found = _DIGEST.search(start)
    if found is None or found[1].decode() != metadata["checksum"]:
        _refuse("its checksum is not where it should be; it was altered")
    hashed = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in (start[: found.start(1)], _NO_DIGEST.encode(), start[found.end(1) :]):
        hashed.update(part)
    arrays = {place.name: _read_array(file, place, hashed.update) for place in places}
    if hashed.hexdigest() != metadata["checksum"]:
        _refuse("its checksum differs; it was altered after it was written")
    for name, array in arrays.items():
        if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
            _refuse(f"array {name!r} holds bytes that are neither true nor false")
    return arrays, _parse(metadata["model"].encode("utf-8", "surrogatepass"), "its description")


def _read_header(file: BinaryIO, size: int) -> bytes:
    """The length and the header, once they are known to fit into the file."""
    start = file.read(_LENGTH_BYTES + 1)
    if not start:
        _refuse("it is empty")
    if len(start) <= _LENGTH_BYTES or start[_LENGTH_BYTES:] != b"{":
        _refuse("it is not a safetensors file")
    length = int.from_bytes(start[:_LENGTH_BYTES], "little")
    if length < len("{}"):
        _refuse("it is not a safetensors file")
    if length > _MOST_HEADER:
        _refuse(f"its header has {length} bytes, more than the {_MOST_HEADER} of any model")
    if _LENGTH_BYTES + length > size:
        _refuse(f"it is cut off: {size} bytes, and its header alone has {length}")
    header = start + file.read(length - 1)
    if len(header) != _LENGTH_BYTES + length:
        _refuse("it is cut off: it became shorter while it was read")
    return header


def _parse(text: bytes, what: str) -> dict[str, Any]:
    """A JSON object without repeated keys, without NaN, not nested deep."""
    try:
        decoded = text.decode("utf-8", "strict")
        if _depth(decoded) > _MOST_DEPTH:
            _refuse(f"{what} is nested more than {_MOST_DEPTH} deep")
        value = json.loads(decoded, object_pairs_hook=_without_repeats, parse_constant=_no_constant)
    except ModelFileError:
        raise
    except ValueError:  # not UTF-8, not JSON, a number of too many digits
        _refuse(f"{what} is not valid JSON")
    if not isinstance(value, dict):
        _refuse(f"{what} is not a JSON object")
    return value


def _depth(text: str) -> int:
    """How deep brackets are nested, outside strings."""
    outside = np.frombuffer(_STRING.sub("", text).encode("utf-8", "surrogatepass"), dtype=np.uint8)
    steps = np.isin(outside, list(b"[{")).astype(np.int64) - np.isin(outside, list(b"]}"))
    return int(np.cumsum(steps).max(initial=0))


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        _refuse("a name occurs twice in its JSON text")
    return result


def _no_constant(text: str) -> NoReturn:
    _refuse(f"its JSON text holds {text}, which is not JSON")


def _check_metadata(metadata: Any) -> dict[str, str]:
    """The metadata of this format, in this version."""
    if not isinstance(metadata, dict) or metadata.get("format") != _FORMAT:
        _refuse("it is a safetensors file, but not one of manifoldrf")
    version = metadata.get("format_version")
    if not isinstance(version, str) or not re.fullmatch(r"[1-9][0-9]{0,8}", version):
        _refuse("it does not say which version of the format it has")
    if int(version) > _VERSION:
        _refuse(
            f"it has format {version}, and this version of manifoldrf reads up to {_VERSION}; a newer one made it"
        )
    if set(metadata) != _KEYS or not all(isinstance(value, str) for value in metadata.values()):
        _refuse("its metadata are not those of a model")
    return metadata


def _check_place(name: str, entry: Any) -> _Place:
    """Dtype, shape and place of an array, whose size is that of its place."""
    wrong = f"its header does not describe array {name[:40]!r} as it should"
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        _refuse(wrong)
    shape, offsets = entry["shape"], entry["data_offsets"]
    if not isinstance(entry["dtype"], str) or entry["dtype"] not in _DTYPES:
        _refuse(f"array {name[:40]!r} has a dtype that models do not have")
    if not (_are_sizes(shape) and _are_sizes(offsets) and len(shape) <= _MOST_AXES and len(offsets) == 2):
        _refuse(wrong)
    dtype, (begin, end) = _DTYPES[entry["dtype"]], offsets
    # An empty array may have axes whose product overflows; numpy counts as if its empty axes had length one.
    if math.prod(max(axis, 1) for axis in shape) * dtype.itemsize >= 2**62:
        _refuse(f"array {name[:40]!r} has a shape beyond any memory")
    if end - begin != math.prod(shape) * dtype.itemsize:
        _refuse(wrong)
    return _Place(name, dtype, tuple(shape), begin, end)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _check_layout(places: list[_Place], size: int) -> list[_Place]:
    """The arrays in the order of the file, which they fill without a hole, an overlap or a rest."""
    ordered = sorted(places, key=lambda place: (place.begin, place.end))
    ends = [0, *(place.end for place in ordered)]
    if any(place.begin != end for place, end in zip(ordered, ends, strict=False)):
        _refuse("its arrays overlap or leave holes")
    if ends[-1] > size:
        _refuse(f"it is cut off: {size} bytes of arrays, and its header declares {ends[-1]}")
    if ends[-1] < size:
        _refuse(f"{size - ends[-1]} bytes follow after its end")
    return ordered


def _read_array(file: BinaryIO, place: _Place, update: Callable[[Any], None]) -> NDArray[Any]:
    """Read one array into its own memory and hash its bytes on the way."""
    array = np.zeros(place.shape, dtype=place.dtype)
    if array.size == 0:
        return array
    memory = array.reshape(-1).view(np.uint8).data
    for begin, end in pairwise([*range(0, len(memory), _CHUNK), len(memory)]):
        part = memory[begin:end]
        if file.readinto(part) != len(part):  # type: ignore[attr-defined]
            _refuse("it is cut off: it became shorter while it was read")
        update(part)
    return array
