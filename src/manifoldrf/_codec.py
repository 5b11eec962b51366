"""One file of named arrays and a JSON text: safetensors, with a checksum over every byte.

The file is an ordinary safetensors file, which any reader of that format opens. Its metadata hold the name of
the format, its version, the JSON text and a checksum of the whole file, taken with zeros in the place of the
checksum. A file that is cut off, altered, foreign or newer is refused with a sentence that says so.
"""

import dataclasses
import functools
import hashlib
import json
import math
import os
import re
import stat
import struct
import types
import typing
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from numbers import Integral, Real
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save
from scipy import sparse

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
_MOST_JSON_DEPTH = 200  # nested brackets; Python's own limit is about 1000 less what the caller has used
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
    if _depth(text) > _MOST_JSON_DEPTH:
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
        if _depth(decoded) > _MOST_JSON_DEPTH:
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


def check_kinds(kind: Callable[..., Any], values: dict[str, Any]) -> None:
    """Raise where a value is not of the kind that the field of this name declares.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Ball:
    ...     radius: float
    >>> check_kinds(Ball, {"radius": 2})
    >>> check_kinds(Ball, {"radius": "two"})
    Traceback (most recent call last):
    TypeError: `radius` must be of the kind float. Got str.
    """
    for name, value in values.items():
        hint = _hints(kind).get(name, Any)
        if not _fits(value, hint):
            found = f"{value.dtype} array" if isinstance(value, np.ndarray) else type(value).__name__
            reject(name, f"of the kind {_named(hint)}", found, TypeError)


@functools.cache
def _hints(kind: Callable[..., Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _named(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is what an annotation says; annotations of other kinds than those of fields fit anything."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if origin is typing.Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin is np.ndarray:
        return isinstance(value, np.ndarray) and _has_dtype(value, typing.get_args(parts[1]))
    if origin is tuple:
        return isinstance(value, tuple) and _tuple_fits(value, parts)
    if origin in (list, dict):
        return isinstance(value, origin)
    return _plain_fits(value, hint) if isinstance(hint, type) and origin is None else True


def _has_dtype(array: np.ndarray[Any, Any], kinds: tuple[Any, ...]) -> bool:
    """Whether an array is of the kind declared; of any, where none is."""
    wanted = kinds[0] if kinds and isinstance(kinds[0], type) else np.generic
    return bool(np.issubdtype(array.dtype, wanted)) and array.dtype.isnative


def _tuple_fits(values: tuple[Any, ...], parts: tuple[Any, ...]) -> bool:
    if len(parts) == 2 and parts[1] is Ellipsis:
        return all(_fits(value, parts[0]) for value in values)
    return len(values) == len(parts) and all(map(_fits, values, parts))


def _plain_fits(value: Any, hint: type) -> bool:
    """Whether a value is of a class; an integer is a number, true is none."""
    if hint in (float, int):
        return isinstance(value, Real if hint is float else Integral) and not isinstance(value, bool | np.bool_)
    if hint is bool:
        return isinstance(value, bool | np.bool_)
    if getattr(hint, "_is_protocol", False):
        return True  # cannot be asked for; such fields take what anything converts to
    return isinstance(value, hint)


_MOST_DEPTH = 48  # a field of features is about 10 deep; every level takes up to 4 brackets of 200
_MANY_FLOATS = 1000  # in a tuple: kept as an array, as the losses of 75,000 epochs would fill the head of a file
_EXACT_INTEGERS = 2**53  # beyond them other readers of JSON round
_MOST_DIGITS = 50_000  # of a fraction: reducing it takes time proportional to their square, here 0.1 s
# Where storable classes live; what reads a file makes no others.
_STAGES = ("_random", "geometry", "kernels", "signatures", "fields", "features")
# Metadata of a field with a number of threads. Files have -1 in its place, all cores of the machine that reads
# them: results do not depend on it, so files must not either.
THREADS = {"threads": True}

Arrays = dict[str, NDArray[Any]]
Registry = dict[str, Callable[..., Any]]  # classes, or functions with annotated arguments, by name in files


@dataclasses.dataclass(frozen=True, eq=False)
class Record:
    """A named record to be written in the place of an object whose class has another layout than files."""

    name: str
    fields: dict[str, Any]


def save_state(path: Any, kind: str, state: dict[str, Any]) -> Path:
    """Write the state of a model of this kind to one file, which appears whole or not at all.

    Parameters
    ----------
    path : str or path
        The file; an existing one is replaced.
    kind : str
        What the state is of; the reader chooses by it.
    state : dict
        As in :func:`encode`.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     load_state(save_state(Path(folder) / "model", "example", {"x": np.arange(3), "n": 2}), {})
    ('example', {'x': array([0, 1, 2]), 'n': 2})
    """
    tree, arrays = encode(state)
    return write_container(path, arrays, {"kind": kind, "state": tree})


def load_state(path: Any, registry: Registry) -> tuple[str, dict[str, Any]]:
    """Kind and state of a file of :func:`save_state`."""
    arrays, meta = read_container(path)
    try:
        if set(meta) != {"kind", "state"} or not isinstance(meta["kind"], str):
            raise ModelFileError("it does not say what it holds")
        state = decode(meta["state"], arrays, registry)
        if not isinstance(state, dict):
            raise ModelFileError("it holds no state")
    except ModelFileError as error:
        raise ModelFileError(f"{path} cannot be loaded: {error}.") from error.__cause__
    return meta["kind"], state


def encode(value: Any) -> tuple[Any, Arrays]:
    """Turn a value into a JSON-able tree and the arrays it names.

    Parameters
    ----------
    value : object
        None, bool, int, float, str, bytes, Fraction, Decimal, a numpy scalar or array, a CSR array, a frozen
        dataclass of this library, or a tuple, list or dict (with str keys) of these. Nothing else, no functions.

    Returns
    -------
    tree : JSON-able
    arrays : dict of arrays

    Raises
    ------
    TypeError
        If a part cannot be stored; the text says which one.

    Examples
    --------
    >>> encode((1.5, np.arange(3)))
    ({'tuple': [1.5, {'array': 'a0'}]}, {'a0': array([0, 1, 2])})
    """
    encoder = _Encoder()
    return encoder.encode(value, "state", 0), encoder.arrays


def decode(tree: Any, arrays: Arrays, registry: Registry) -> Any:
    """Make the value of a tree again; classes are those of the registry, by name.

    Raises
    ------
    ModelFileError
        If the tree is not one of :func:`encode`, names an unknown class, or a class refuses its fields.

    Examples
    --------
    >>> decode(*encode((1.5, np.arange(3))), {})
    (1.5, array([0, 1, 2]))
    """
    return _Decoder(arrays, registry).decode(tree, 0)


class _Encoder:
    """One pass over a value; remembers arrays by their memory and instances by identity."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self._names: dict[Any, str] = {}
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # what is alive keeps its address

    def encode(self, value: Any, path: str, depth: int) -> Any:
        if depth > _MOST_DEPTH:
            raise TypeError(f"{path[:200]} cannot be stored: nested more than {_MOST_DEPTH} deep, or in itself.")
        if value is None or type(value) in (bool, str):
            return value
        if type(value) in _SCALARS:
            return _SCALARS[type(value)](value)
        if isinstance(value, np.generic) and value.dtype in DTYPES:
            return {"scalar": [value.dtype.name, value.tobytes().hex()]}
        if type(value) in (np.ndarray, np.memmap):
            return self._array(value, path)
        if type(value) in (list, tuple, dict):
            return self._collection(value, path, depth)
        return self._instance(value, path, depth)

    def _collection(self, value: Any, path: str, depth: int) -> Any:
        if isinstance(value, dict):
            if not all(type(key) is str for key in value):
                raise TypeError(f"{path} cannot be stored: a dict with keys that are not str.")
            return {"dict": {key: self.encode(part, f"{path}[{key!r}]", depth + 1) for key, part in value.items()}}
        if isinstance(value, tuple) and len(value) > _MANY_FLOATS and all(type(part) is float for part in value):
            self._kept.append(numbers := np.array(value))
            return {"floats": self._name(numbers, path)}
        parts = [self.encode(part, f"{path}[{k}]", depth + 1) for k, part in enumerate(value)]
        return parts if isinstance(value, list) else {"tuple": parts}

    def _array(self, array: NDArray[Any], path: str) -> dict[str, Any]:
        # The order of the axes in memory is kept: products of matrices round by it.
        if array.flags.f_contiguous and not array.flags.c_contiguous:
            return {"array": self._name(array.T, path), "order": "F"}
        return {"array": self._name(array, path)}

    def _name(self, array: NDArray[Any], path: str) -> str:
        """Name of the stored array; views of the same numbers have the same name."""
        if array.dtype not in DTYPES:
            raise TypeError(f"{path} cannot be stored: an array of dtype {array.dtype}.")
        memory = (array.__array_interface__["data"][0], array.dtype.str, array.shape, array.strides)
        if memory not in self._names:
            self._names[memory] = name = f"a{len(self._names)}"
            self.arrays[name] = array
        return self._names[memory]

    def _instance(self, value: Any, path: str, depth: int) -> dict[str, Any]:
        """A CSR array or a frozen dataclass, numbered when it is complete."""
        if id(value) in self._numbers:
            return {"same": self._numbers[id(value)]}
        kind = type(value)
        if kind is sparse.csr_array:
            result = self._csr(value, path)
        elif kind is Record or is_storable(kind):
            parts = value.fields if kind is Record else _parts(value)
            fields = {name: self.encode(part, f"{path}.{name}", depth + 1) for name, part in parts.items()}
            result = {"class": value.name if kind is Record else kind.__name__, "fields": fields}
        else:
            raise TypeError(f"{path} cannot be stored: {_describe(value)}.")
        self._kept.append(value)
        self._numbers[id(value)] = len(self._numbers)
        return result

    def _csr(self, matrix: Any, path: str) -> dict[str, Any]:
        if matrix.ndim != 2:
            raise TypeError(f"{path} cannot be stored: a sparse array of {matrix.ndim} axes.")
        used = int(matrix.indptr[-1])
        parts = {"data": matrix.data[:used], "indices": matrix.indices[:used], "indptr": matrix.indptr}
        names = {key: self._name(part, f"{path}.{key}") for key, part in parts.items()}
        return {"csr": {**names, "shape": [int(side) for side in matrix.shape]}}


def is_storable(kind: type) -> bool:
    """Whether instances can be stored: a frozen dataclass of one of the stages, not a private one."""
    package, _, rest = kind.__module__.partition(".")
    if package != "manifoldrf" or rest.split(".")[0] not in _STAGES or kind.__name__.startswith("_"):
        return False
    return dataclasses.is_dataclass(kind) and bool(kind.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def _parts(value: Any) -> dict[str, Any]:
    """The fields of a dataclass as a file holds them: numbers of threads are -1."""
    fields = {field.name: field.metadata == THREADS for field in dataclasses.fields(value) if field.init}
    parts = {name: getattr(value, name) for name in fields}
    return {name: -1 if fields[name] and part is not None else part for name, part in parts.items()}


def _describe(value: Any) -> str:
    """What a thing is that cannot be stored."""
    name = type(value).__qualname__
    if callable(value):
        return f"the function {getattr(value, '__qualname__', name)}, and files hold no code"
    return f"an object of type {type(value).__module__}.{name}"


def _encode_integer(value: int) -> Any:
    return value if abs(value) < _EXACT_INTEGERS else {"int": hex(value)}


def _encode_float(value: float) -> Any:
    return value if np.isfinite(value) else {"float": struct.pack(">d", value).hex()}


def _encode_fraction(value: Fraction) -> Any:
    parts = [hex(value.numerator), hex(value.denominator)]
    if max(map(len, parts)) > _MOST_DIGITS:
        raise TypeError(f"A fraction of more than {_MOST_DIGITS} digits cannot be stored.")
    return {"fraction": parts}


_SCALARS: dict[type, Callable[[Any], Any]] = {
    int: _encode_integer,
    float: _encode_float,
    bytes: lambda value: {"bytes": value.hex()},
    Fraction: _encode_fraction,
    Decimal: lambda value: {"decimal": str(value)},
}


class _Decoder:
    """One pass over a tree; remembers instances in the order in which they are complete."""

    def __init__(self, arrays: Arrays, registry: Registry) -> None:
        self._arrays = arrays
        self._registry = registry
        self._turned: Arrays = {}
        self._floats: dict[str, tuple[float, ...]] = {}
        self._complete: list[Any] = []
        self._tags: dict[str, Callable[[Any, int], Any]] = {
            "tuple": lambda parts, depth: tuple(self._parts(parts, depth)),
            "dict": self._dict,
            "csr": lambda content, _: self._finish(self._csr(content)),
            "same": lambda number, _: self._same(number),
            "array": lambda name, _: self._array(name),
            "floats": lambda name, _: self._tuple(name),
        }

    def decode(self, tree: Any, depth: int) -> Any:
        if depth > _MOST_DEPTH:
            raise ModelFileError(f"it is nested more than {_MOST_DEPTH} deep")
        if isinstance(tree, list):
            return self._parts(tree, depth)
        if not isinstance(tree, dict):
            return tree
        if set(tree) == {"class", "fields"}:
            return self._finish(self._record(tree["class"], self._dict(tree["fields"], depth)))
        if set(tree) == {"array", "order"} and tree["order"] == "F":
            return self._turn(tree["array"])
        if len(tree) != 1:
            _damaged()
        ((tag, content),) = tree.items()
        if tag in self._tags:
            return self._tags[tag](content, depth)
        return _decode_scalar(tag, content)

    def _parts(self, parts: Any, depth: int) -> list[Any]:
        if not isinstance(parts, list):
            _damaged()
        return [self.decode(part, depth + 1) for part in parts]

    def _dict(self, parts: Any, depth: int) -> dict[str, Any]:
        if not isinstance(parts, dict):
            _damaged()
        return {key: self.decode(part, depth + 1) for key, part in parts.items()}

    def _array(self, name: Any) -> NDArray[Any]:
        if not isinstance(name, str) or name not in self._arrays:
            raise ModelFileError(f"it lacks the array {str(name)[:40]!r}")
        return self._arrays[name]

    def _tuple(self, name: Any) -> tuple[float, ...]:
        """Numbers that are kept as an array, the same tuple whenever it is asked for."""
        array = self._array(name)
        if array.ndim != 1 or array.dtype != np.float64:
            _damaged()
        if name not in self._floats:
            self._floats[name] = tuple(array.tolist())
        return self._floats[name]

    def _turn(self, name: Any) -> NDArray[Any]:
        """The array with its axes reversed, the same object whenever it is asked for."""
        array = self._array(name)
        return self._turned.setdefault(name, array.T)

    def _finish(self, value: Any) -> Any:
        self._complete.append(value)
        return value

    def _same(self, number: Any) -> Any:
        if type(number) is not int or not 0 <= number < len(self._complete):
            _damaged()
        return self._complete[number]

    def _record(self, name: Any, fields: dict[str, Any]) -> Any:
        if not isinstance(name, str) or name not in self._registry:
            raise ModelFileError(f"it holds a {str(name)[:40]!r}, a class that this version does not know")
        try:
            check_kinds(self._registry[name], fields)
            return self._registry[name](**fields)
        except MemoryError:
            raise  # the file is not to blame
        except Exception as error:
            raise ModelFileError(f"its {name} is not valid: {str(error).rstrip('.')}") from error

    def _csr(self, content: Any) -> Any:
        """A CSR array with exactly these arrays, all of whose indices are in range: compiled code trusts them."""
        if not isinstance(content, dict) or set(content) != {"data", "indices", "indptr", "shape"}:
            _damaged()
        data, indices, indptr = (self._array(content[key]) for key in ("data", "indices", "indptr"))
        shape = content["shape"]
        if not (isinstance(shape, list) and [type(side) for side in shape] == [int, int]):
            _damaged()
        if not _is_valid_csr(data, indices, indptr, shape):
            raise ModelFileError("it holds a sparse array with indices out of range")
        result = sparse.csr_array((data, indices, indptr), shape=tuple(shape))
        result.data, result.indices, result.indptr = (
            data,
            indices,
            indptr,
        )  # the constructor may narrow or copy them
        return result


def _is_valid_csr(data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: list[int]) -> bool:
    """Whether the three arrays are a sparse array of this shape."""
    if not 0 <= min(shape) <= max(shape) < 2**62:
        return False
    if {data.ndim, indices.ndim, indptr.ndim} != {1} or indices.dtype != indptr.dtype or indices.dtype.kind != "i":
        return False
    if len(indptr) != shape[0] + 1 or indptr[0] != 0 or indptr[-1] != len(indices) or len(indices) != len(data):
        return False
    in_range = not indices.size or (indices.min() >= 0 and indices.max() < shape[1])
    return bool(in_range and (indptr[1:] >= indptr[:-1]).all())


def _decode_scalar(tag: str, content: Any) -> Any:
    """A number or bytes from their digits."""
    if tag not in _SCALAR_TAGS:
        _damaged()
    try:
        return _SCALAR_TAGS[tag](content)
    except (TypeError, ValueError, ArithmeticError, IndexError, struct.error):
        _damaged()


def _decode_numpy(content: Any) -> Any:
    name, digits = content
    (dtype,) = (dtype for dtype in DTYPES if dtype.name == name)
    (value,) = np.frombuffer(bytes.fromhex(digits), dtype=dtype)
    return value


def _decode_fraction(content: Any) -> Fraction:
    numerator, denominator = content
    if max(len(numerator), len(denominator)) > _MOST_DIGITS:
        _damaged()
    return Fraction(int(numerator, 16), int(denominator, 16))


_SCALAR_TAGS: dict[str, Callable[[Any], Any]] = {
    "int": lambda content: int(content, 16),
    "float": lambda content: struct.unpack(">d", bytes.fromhex(content))[0],
    "bytes": bytes.fromhex,
    "fraction": _decode_fraction,
    "decimal": lambda content: Decimal(str(content)),
    "scalar": _decode_numpy,
}


def _damaged() -> NoReturn:
    raise ModelFileError("its description is not that of a model")
