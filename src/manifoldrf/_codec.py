"""Model files: the arrays of a model, a JSON description and a checksum of both, in one safetensors file.

A class whose instances files may hold has the decorator :func:`stored`. The description of an instance is its class
and its fields. Loading calls the constructor with these fields, and ``_check_loaded`` if the class has it. Loading
runs no code from a file and creates instances of stored classes only. A file that is truncated, altered, foreign or
of another format raises a :class:`ModelFileError` with the reason.
"""

import dataclasses
import hashlib
import json
import re
import types
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from numbers import Integral, Real
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from scipy import sparse

from manifoldrf._files import as_path, atomic_path, existing_file, output_file
from manifoldrf._validation import reject

Arrays = dict[str, NDArray[Any]]
Kind = TypeVar("Kind", bound=type)

FORMAT = 2  # of files; other formats are refused
_DEPTH = 32  # levels of nested values; a fitted model has about 10
# Parsed JSON takes up to 30 times the memory of its text, and the values as much again: at most 200 MB per file.
_LONGEST_HEADER = 3_000_000
_DTYPES = frozenset(map(np.dtype, ("<f8", "<f4", "<i8", "<i4", "<i2", "i1", "<u8", "<u4", "<u2", "u1", "?")))
_CLASSES: dict[str, type] = {}
UNSTORED = {"unstored": True}  # metadata of a field that files do not hold; a loaded instance has its default


class ModelFileError(ValueError):
    """A file is not a complete, unaltered model of this library. The message gives the reason.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "notes.txt"
    ...     _ = path.write_text("These are my notes.")
    ...     try:
    ...         load_value(path)
    ...     except ModelFileError as error:
    ...         str(error).partition(": ")[2]
    'it is not a safetensors file.'
    """


def stored(kind: Kind) -> Kind:
    """Allow instances of a class in files: a frozen dataclass, or a class with ``_state`` and ``_from_state``.

    Files refer to the class by its name. ``_state`` returns a dict of values; the class method ``_from_state``
    builds the instance from them, or raises if they are inconsistent. Users cannot construct most of these classes,
    and compiled code trusts them, so ``_check_loaded`` raises if the loaded fields are inconsistent.
    """
    _CLASSES[kind.__name__] = kind
    if dataclasses.is_dataclass(kind):
        kind.__getstate__ = _without_caches  # type: ignore[method-assign]
    return kind


def _without_caches(self: Any) -> dict[str, Any]:
    """State for pickle, joblib and skops: trees and other cached values are computed again."""
    return {part.name: vars(self)[part.name] for part in dataclasses.fields(self) if part.name in vars(self)}


# ---------------------------------------------------------------------------------------------------------- values
def save_value(path: Any, value: Any) -> Path:
    """Write a value that :func:`encode` accepts to one file. A failed write leaves the previous file unchanged.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     load_value(save_value(Path(folder) / "model", {"x": np.arange(3), "n": (2, None)}))
    {'x': array([0, 1, 2]), 'n': (2, None)}
    """
    output_file(path)  # before any work
    tree, arrays = encode(value)
    return write_container(path, arrays, tree)


def load_value(path: Any) -> Any:
    """Return the value of a file that :func:`save_value` wrote, with the same bits."""
    arrays, tree = read_container(path)
    with _naming(path):
        return _Decoder(arrays).decode(tree)


def encode(value: Any) -> tuple[Any, Arrays]:
    """Convert a value to a JSON tree and the arrays that the tree refers to.

    Parameters
    ----------
    value : object
        None, bool, int, float, str, a numpy scalar or array, a CSR array, an instance of a stored class, or a
        tuple, list or dict (with str keys) of these.

    Raises
    ------
    TypeError
        If a part cannot be stored; the message names it.

    Examples
    --------
    >>> encode((1.5, np.arange(3)))
    ({'tuple': [1.5, {'array': 'a0'}]}, {'a0': array([0, 1, 2])})
    """
    encoder = _Encoder()
    return encoder.encode(value, "value", 0), encoder.arrays


class _Encoder:
    """Encodes one value. Arrays that share memory and repeated instances are stored once."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self._names: dict[Any, str] = {}
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # keeps the ids of encoded objects from being reused

    def encode(self, value: Any, path: str, depth: int) -> Any:  # noqa: C901  (one case for each kind of value)
        if depth > _DEPTH:
            raise TypeError(f"{path[:200]} cannot be stored: nested more than {_DEPTH} deep, or in itself.")
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return value
        if isinstance(value, np.generic):
            return {"scalar": self._name(np.asarray(value), path)}
        if kind in (np.ndarray, np.memmap):  # keeps the memory order, which affects the rounding of products
            is_fortran = value.flags.f_contiguous and not value.flags.c_contiguous
            return {"transposed": self._name(value.T, path)} if is_fortran else {"array": self._name(value, path)}
        if kind is dict:
            if not all(type(key) is str for key in value):
                raise TypeError(f"{path} cannot be stored: a dict with keys that are not str.")
            return {"dict": {key: self.encode(part, f"{path}[{key!r}]", depth + 1) for key, part in value.items()}}
        if kind in (list, tuple):
            if kind is tuple and len(value) > 1000 and all(type(part) is float for part in value):
                return {"floats": self._name(np.array(value), path)}  # such as losses: too long for the header
            parts = [self.encode(part, f"{path}[{k}]", depth + 1) for k, part in enumerate(value)]
            return parts if kind is list else {"tuple": parts}
        return self._instance(value, path, depth)

    def _instance(self, value: Any, path: str, depth: int) -> dict[str, Any]:
        """Encode a CSR array or an instance of a stored class; its number follows those of its parts."""
        if id(value) in self._numbers:
            return {"same": self._numbers[id(value)]}
        kind, result = type(value), dict[str, Any]()
        if kind is sparse.csr_array and value.ndim == 2:
            used = int(value.indptr[-1])
            parts = (value.data[:used], value.indices[:used], value.indptr)
            result = {"csr": [*(self._name(part, path) for part in parts), *map(int, value.shape)]}
        elif _CLASSES.get(kind.__name__) is kind:
            known = value._state() if hasattr(value, "_state") else {n: getattr(value, n) for n in _kept(kind)}
            fields = {name: self.encode(part, f"{path}.{name}", depth + 1) for name, part in known.items()}
            result = {"class": kind.__name__, "fields": fields}
        else:
            what = "a function, and files hold no code," if callable(value) else "an object"
            raise TypeError(f"{path} cannot be stored: {what} of type {kind.__module__}.{kind.__qualname__}.")
        self._alive.append(value)
        self._numbers[id(value)] = len(self._numbers)
        return result

    def _name(self, array: NDArray[Any], path: str) -> str:
        """The name of an array; views of the same numbers share one."""
        if array.dtype.newbyteorder("<") not in _DTYPES:
            raise TypeError(f"{path} cannot be stored: an array of dtype {array.dtype}.")
        memory = (array.__array_interface__["data"][0], array.dtype.str, array.shape, array.strides)
        if memory not in self._names:
            self._names[memory] = name = f"a{len(self._names)}"
            self.arrays[name] = array
        return self._names[memory]


def _kept(kind: Any) -> list[str]:
    """Names of the fields that are saved."""
    return [part.name for part in dataclasses.fields(kind) if part.init and "unstored" not in part.metadata]


class _Decoder:
    """Decodes one tree. Instances are numbered in order of completion, as in the encoder."""

    def __init__(self, arrays: Arrays) -> None:
        self._arrays = arrays
        self._views: dict[str, Any] = {}  # objects made from arrays, each made once
        self._instances: list[Any] = []

    def decode(self, tree: Any) -> Any:  # noqa: C901  (one case for each kind of value)
        if isinstance(tree, list):
            return [self.decode(part) for part in tree]
        if not isinstance(tree, dict):
            return tree
        match tree if len(tree) == 1 + ("class" in tree) else None:
            case {"class": str(name), "fields": dict(fields)}:
                values = {key: self.decode(part) for key, part in fields.items()}
                self._instances.append(_construct(name, values))
                return self._instances[-1]
            case {"tuple": list(parts)}:
                return tuple(map(self.decode, parts))
            case {"dict": dict(parts)}:
                return {key: self.decode(part) for key, part in parts.items()}
            case {"array": name}:
                return self._array(name)
            case {"transposed": name}:
                return self._views.setdefault(name, self._array(name).T)
            case {"floats": name} if self._array(name).dtype == np.float64 and self._array(name).ndim == 1:
                return self._views.setdefault(name, tuple(self._array(name).tolist()))
            case {"scalar": name} if self._array(name).ndim == 0:
                return self._array(name)[()]
            case {"same": int(number)} if 0 <= number < len(self._instances):
                return self._instances[number]
            case {"csr": [data, indices, indptr, int(n), int(m)]}:
                self._instances.append(self._csr((data, indices, indptr), (n, m)))
                return self._instances[-1]
        raise ModelFileError("its description is not that of a model")

    def _array(self, name: Any) -> NDArray[Any]:
        if not isinstance(name, str) or name not in self._arrays:
            raise ModelFileError(f"it lacks the array {str(name)[:40]!r}")
        return self._arrays[name]

    def _csr(self, names: tuple[Any, ...], shape: tuple[int, int]) -> Any:
        """A CSR array made of exactly these arrays. The indices are checked, because compiled code trusts them."""
        data, indices, indptr = map(self._array, names)
        valid: Any = {data.ndim, indices.ndim, indptr.ndim} == {1} and indices.dtype == indptr.dtype
        valid = valid and indices.dtype.kind == "i" and 0 <= min(shape) <= max(shape) < 2**62
        # Checked here, because the constructor may truncate large integers before its own check.
        valid = valid and len(indptr) == shape[0] + 1 and indptr[0] == 0 and (indptr[1:] >= indptr[:-1]).all()
        valid = valid and indptr[-1] == len(indices) == len(data)
        if not valid or (len(indices) and not 0 <= indices.min() <= indices.max() < shape[1]):
            raise ModelFileError("it holds a sparse array with indices out of range")
        matrix = sparse.csr_array((data, indices, indptr), shape=shape)
        matrix.data, matrix.indices, matrix.indptr = data, indices, indptr  # scipy may have converted them
        return matrix


def _construct(name: str, fields: dict[str, Any]) -> Any:
    """An instance of a stored class, whose constructor checks the fields."""
    if name not in _CLASSES:
        raise ModelFileError(f"it holds a {name[:40]!r}, a class that this version does not know")
    kind: Any = _CLASSES[name]
    try:
        if hasattr(kind, "_from_state"):
            return kind._from_state(fields)
        check_types(typing.get_type_hints(kind), fields)
        if unknown := set(fields).difference(_kept(kind)):
            reject("fields", f"those of {name}", sorted(unknown))
        instance = kind(**fields)
        if hasattr(instance, "_check_loaded"):
            instance._check_loaded()
        return instance
    except MemoryError:
        raise  # not the fault of the file
    except Exception as error:
        raise ModelFileError(f"its {name} is not valid: {str(error).rstrip('.')}") from error


def check_types(hints: dict[str, Any], values: dict[str, Any]) -> None:
    """Refuse values that do not have the type given for their name.

    Examples
    --------
    >>> check_types({"radius": float}, {"radius": 2})
    >>> check_types({"radius": float}, {"radius": "two"})
    Traceback (most recent call last):
    TypeError: `radius` must be of type float. Got str.
    """
    for name, value in values.items():
        hint = hints.get(name, Any)
        if not _matches(value, hint):
            wanted = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
            given = f"{value.dtype} array" if isinstance(value, np.ndarray) else type(value).__name__
            reject(name, f"of type {wanted}", given, TypeError)


def _matches(value: Any, hint: Any) -> bool:
    """Whether a value has an annotated type. Annotations of a kind that no field uses match every value."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_matches(value, part) for part in parts)
    if origin is np.ndarray:
        scalar = next((part for part in typing.get_args(parts[1]) if isinstance(part, type)), np.generic)
        return isinstance(value, np.ndarray) and bool(np.issubdtype(value.dtype, scalar))
    if origin is tuple:
        hints = parts[:1] * len(value) if isinstance(value, tuple) and parts[1:] == (Ellipsis,) else parts
        return isinstance(value, tuple) and len(value) == len(hints) and all(map(_matches, value, hints))
    if hint in (bool, int, float):
        is_flag = isinstance(value, bool | np.bool_)
        return is_flag if hint is bool else not is_flag and isinstance(value, Integral if hint is int else Real)
    kind = origin if origin in (list, dict) else hint
    is_checked = isinstance(kind, type) and kind is not Any and not getattr(kind, "_is_protocol", False)
    return isinstance(value, kind) if is_checked else True


# ----------------------------------------------------------------------------------------------------------- files
def write_container(path: Any, arrays: Arrays, tree: Any) -> Path:
    """Write arrays and a JSON-able value to one file, atomically; the same content gives the same bytes.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     read_container(write_container(Path(folder) / "model", {"a": np.arange(3)}, {"kind": "example"}))
    ({'a': array([0, 1, 2])}, {'kind': 'example'})
    """
    plain = {name: np.asarray(part, part.dtype.newbyteorder("<"), order="C") for name, part in arrays.items()}
    text = json.dumps(tree, separators=(",", ":"))
    description = json.dumps({"format": FORMAT, "checksum": _checksum(plain, text), "model": text})
    content = save(plain, {"manifoldrf": description})  # one key: equal models have equal bytes
    length = int.from_bytes(content[:8], "little")
    if length > _LONGEST_HEADER:
        reject("model", f"one with a description of at most {_LONGEST_HEADER} bytes", length)
    with atomic_path(as_path(path)) as temporary:
        temporary.write_bytes(content)
    return as_path(path)


def read_container(path: Any) -> tuple[Arrays, Any]:
    """Read a file that :func:`write_container` wrote. The arrays are new, in C order, with the same bits."""
    with existing_file(path).open("rb") as file, _naming(path):
        return _read(file)


@contextmanager
def _naming(path: Any) -> Iterator[None]:
    """Add the name of the file to errors about it."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{path} cannot be loaded: {error}.") from error.__cause__


def _read(file: BinaryIO) -> tuple[Arrays, Any]:
    header = _read_header(file)
    metadata = _parse(header[8:]).get("__metadata__")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("manifoldrf"), str):
        raise ModelFileError("it is a safetensors file, but not one of this version of manifoldrf")
    description = _parse(metadata["manifoldrf"])
    if description.get("format") != FORMAT:
        version = str(description.get("format"))[:40]
        raise ModelFileError(f"it has format {version}, and this version of manifoldrf reads format {FORMAT}")
    try:
        arrays = load(header + file.read())
    except (SafetensorError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split()).removeprefix("Error while deserializing: ")[:200]
        raise ModelFileError(f"it is cut off, altered or too long ({reason})") from None
    for name, array in arrays.items():
        if array.dtype not in _DTYPES or (array.dtype == np.bool_ and array.view(np.uint8).max(initial=0) > 1):
            raise ModelFileError(f"array {name[:40]!r} is not a plain array of {array.dtype}")
    text = str(description.get("model"))
    if _checksum(arrays, text) != description.get("checksum"):
        raise ModelFileError("its checksum differs; it was altered after it was written")
    return arrays, _parse(text)


def _read_header(file: BinaryIO) -> bytes:
    """The 8 bytes of the header's length and the header, which is read only if it is not too long."""
    start = file.read(9)
    length = int.from_bytes(start[:8], "little")
    if start[8:] != b"{" or length < len("{}"):
        raise ModelFileError("it is not a safetensors file")
    if length > _LONGEST_HEADER:
        raise ModelFileError(f"its header has {length} bytes, and a model has at most {_LONGEST_HEADER}")
    return start + file.read(length - 1)


def _checksum(arrays: Arrays, text: str) -> str:
    """Hash of a description and of the names, types, shapes and bytes of arrays."""
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=32)
    for name in sorted(arrays):
        digest.update(repr((name, arrays[name].dtype.str, arrays[name].shape)).encode())
        digest.update(arrays[name].data if arrays[name].size else b"")
    return digest.hexdigest()


def _parse(text: bytes | str) -> dict[str, Any]:
    """Parse JSON of bounded depth, whatever the recursion limit of Python; anything but an object is empty."""
    try:
        plain = text.encode() if isinstance(text, str) else text
        marks = np.frombuffer(re.sub(rb'"(?:[^"\\]|\\.)*+"', b"", plain), dtype=np.uint8)
        steps = np.isin(marks, [ord("["), ord("{")]).astype(np.int64) - np.isin(marks, [ord("]"), ord("}")])
        if steps.cumsum().max(initial=0) > 2 * _DEPTH + 2:  # each level of values takes at most two levels of JSON
            raise ValueError("too deeply nested")
        tree = json.loads(plain)
    except ValueError as error:
        raise ModelFileError(f"its description is cut off or not valid JSON ({error})") from None
    return tree if isinstance(tree, dict) else {}
