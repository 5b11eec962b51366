"""Models in files: values become a JSON tree and named arrays, stored in one safetensors file with a checksum.

Any safetensors reader can open such a file. Its metadata hold the name of the format, its version, the JSON text
and a checksum of the whole file, computed with zeros in place of the checksum. Loading never runs code from a file:
only registered classes are created. A file that is truncated, altered, foreign or newer is refused with the reason.
"""

import dataclasses
import functools
import hashlib
import json
import re
import struct
import types
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save
from scipy import sparse

from manifoldrf._files import as_path, atomic_path, existing_file, output_file
from manifoldrf._validation import reject

Arrays = dict[str, NDArray[Any]]
Registry = dict[str, Callable[..., Any]]  # classes, or functions with annotated arguments, by their name in files

# The classes that files may hold, by module. Others are refused when saving; loading creates no others.
STORED_CLASSES: dict[str, tuple[str, ...]] = {
    "geometry.builders": ("GridExtension", "MeshExtension", "NeighborExtension"),
    "geometry.graphs": ("Graph",),
    "geometry.heat": ("HeatExtension", "SheetReach", "SurfaceReach"),
    "geometry.local_surface": ("LocalSurface",),
    "geometry.manifolds": ("ProductSpace",),
    "geometry.meshes": ("TriangleMesh",),
    "geometry.model_spaces": ("EuclideanSpace", "FlatTorus", "HyperbolicSpace", "Rotations", "Sphere"),
    "geometry.neighbors": ("NeighborSearch",),
    "geometry.surfaces": ("Ellipsoid", "MobiusStrip", "Torus"),
    "kernels.abstract_kernel": ("ProductKernel", "RootKernel", "ScaledKernel", "SumKernel"),
    "kernels.graph_kernels": (
        *("CosineKernel", "DiffusionKernel", "PowerKernel", "RandomWalkKernel"),
        *("RegularizedLaplacianKernel", "ShiftedKernel"),
    ),
    "kernels.manifold_kernels": ("GammaMixtureKernel", "HeatKernel", "MaternKernel"),
    "kernels.series": ("SeriesKernel",),
    "signatures.options": ("Counts", "Walks"),
    "paper.network": ("GraphDistances", "Network", "NetworkField", "TrainingInfo"),
    "features.errors": ("ErrorEstimate",),
    "features.feature_map": ("FeatureMap",),
    "features.fit": ("FitRecord",),
    "features.graph_kernel": ("GraphKernel",),
    "features.options": ("HeatGraph", "KnnGraph", "MeshGraph"),
    "features.rules": ("Barycentric", "Interpolation", "JoinedSteps", "WalkStep"),
    "features.times": ("TimeLevel", "TimeRange"),
    "applications.interpolation": ("Filled", "Known"),
    "applications.processes": ("Posterior",),
}
# Metadata of a field with a number of threads. Files store -1, all cores of the machine that loads them: results do
# not depend on the number of threads, so files must not either.
THREADS = {"threads": True}
_DTYPES = frozenset(
    np.dtype(code) for code in ("<f8", "<f4", "<i8", "<i4", "<i2", "i1", "<u8", "<u4", "<u2", "u1", "?")
)

_MAX_DEPTH = 48  # levels of nesting; a fitted model has about 10
_MANY_FLOATS = 1000  # longer tuples of floats are stored as arrays: losses of 75,000 epochs would fill the header
_EXACT_INTEGERS = 2**53  # other JSON readers round larger integers
_MAX_DIGITS = 50_000  # of a fraction: reducing it takes time proportional to the square of this, here 0.1 s

_FORMAT = "manifoldrf"
_VERSION = 1
_METADATA = "__metadata__"  # the name that safetensors reserves
_KEYS = {"format", "format_version", "checksum", "model"}
# Parsed JSON takes up to 30 times the memory of its text, and the decoded values as much again: this limits both to
# 200 MB, whatever a file declares.
_MAX_HEADER = 3_000_000
_LONGEST_REASON = 200  # characters of an error of safetensors, which quotes names from the file
_LENGTH_BYTES = 8
_DIGEST_BYTES = 32
_NO_DIGEST = "0" * (2 * _DIGEST_BYTES)
# Quotes inside JSON strings are escaped, so this pattern only matches the key itself.
_DIGEST = re.compile(rb'"checksum":"([0-9a-f]{%d})"' % (2 * _DIGEST_BYTES))
_NAME = re.compile(r"[A-Za-z0-9_.]+")


class ModelFileError(ValueError):
    """A file is not a complete, unaltered model of this library. The message gives the reason.

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


def save_state(path: Any, kind: str, state: dict[str, Any]) -> Path:
    """Write the state of a model to one file. A failed write leaves the previous file unchanged.

    Parameters
    ----------
    path : str or path
        The file; an existing one is replaced.
    kind : str
        The kind of model; selects the loader.
    state : dict
        Values that :func:`encode` accepts.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     load_state(save_state(Path(folder) / "model", "example", {"x": np.arange(3), "n": 2}), {})
    ('example', {'x': array([0, 1, 2]), 'n': 2})
    """
    output_file(path)  # before any work
    tree, arrays = encode(state)
    return write_container(path, arrays, {"kind": kind, "state": tree})


def load_state(path: Any, registry: Registry) -> tuple[str, dict[str, Any]]:
    """Return kind and state from a file that :func:`save_state` wrote."""
    arrays, meta = read_container(path)
    with _name_file(path):
        if set(meta) != {"kind", "state"} or not isinstance(meta["kind"], str):
            raise ModelFileError("it does not say what it holds")
        state = decode(meta["state"], arrays, registry)
        if not isinstance(state, dict):
            raise ModelFileError("it holds no state")
    return meta["kind"], state


@contextmanager
def _name_file(path: Any) -> Iterator[None]:
    """Add the name of the file to errors about it."""
    try:
        yield
    except ModelFileError as error:
        raise ModelFileError(f"{path} cannot be loaded: {error}.") from error.__cause__


def encode(value: Any) -> tuple[Any, Arrays]:
    """Convert a value to a JSON tree and the arrays that the tree refers to.

    Parameters
    ----------
    value : object
        None, bool, int, float, str, bytes, Fraction, Decimal, a numpy scalar or array, a CSR array, a frozen
        dataclass of STORED_CLASSES, or a tuple, list or dict (with str keys) of these. Functions are refused.

    Returns
    -------
    tree : JSON-able
    arrays : dict of arrays

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
    return encoder.encode(value, "state", 0), encoder.arrays


def decode(tree: Any, arrays: Arrays, registry: Registry) -> Any:
    """Rebuild the value of a tree. The registry gives the class for each name.

    Raises
    ------
    ModelFileError
        If the tree is not one that :func:`encode` makes, a class is unknown, or a class refuses its fields.

    Examples
    --------
    >>> decode(*encode((1.5, np.arange(3))), {})
    (1.5, array([0, 1, 2]))
    """
    return _Decoder(arrays, registry).decode(tree, 0)


@dataclasses.dataclass(frozen=True, eq=False)
class Record:
    """A named record, stored in place of an object whose class has a different layout in files."""

    name: str
    fields: dict[str, Any]


class _Encoder:
    """Encodes one value. Arrays that share memory and repeated instances are stored once."""

    def __init__(self) -> None:
        self.arrays: Arrays = {}
        self._names: dict[Any, str] = {}
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # keeps objects alive, so that no other object gets the same address

    def encode(self, value: Any, path: str, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise TypeError(f"{path[:200]} cannot be stored: nested more than {_MAX_DEPTH} deep, or in itself.")
        if value is None or type(value) in (bool, str):
            return value
        if type(value) in _SCALAR_ENCODERS:
            return _SCALAR_ENCODERS[type(value)](value)
        if isinstance(value, np.generic) and value.dtype in _DTYPES:
            return {"scalar": [value.dtype.name, value.tobytes().hex()]}
        if type(value) in (np.ndarray, np.memmap):
            # The memory order is kept because the rounding of matrix products depends on it.
            if value.flags.f_contiguous and not value.flags.c_contiguous:
                return {"array": self._name(value.T, path), "order": "F"}
            return {"array": self._name(value, path)}
        if type(value) in (list, tuple, dict):
            return self._collection(value, path, depth)
        return self._instance(value, path, depth)

    def _collection(self, value: Any, path: str, depth: int) -> Any:
        if isinstance(value, dict):
            if not all(type(key) is str for key in value):
                raise TypeError(f"{path} cannot be stored: a dict with keys that are not str.")
            return {"dict": {key: self.encode(part, f"{path}[{key!r}]", depth + 1) for key, part in value.items()}}
        if isinstance(value, tuple) and len(value) > _MANY_FLOATS and all(type(part) is float for part in value):
            self._alive.append(numbers := np.array(value))
            return {"floats": self._name(numbers, path)}
        parts = [self.encode(part, f"{path}[{k}]", depth + 1) for k, part in enumerate(value)]
        return parts if isinstance(value, list) else {"tuple": parts}

    def _name(self, array: NDArray[Any], path: str) -> str:
        """Return the name of the stored array; views of the same numbers share one name."""
        if array.dtype not in _DTYPES:
            raise TypeError(f"{path} cannot be stored: an array of dtype {array.dtype}.")
        memory = (array.__array_interface__["data"][0], array.dtype.str, array.shape, array.strides)
        if memory not in self._names:
            self._names[memory] = name = f"a{len(self._names)}"
            self.arrays[name] = array
        return self._names[memory]

    def _instance(self, value: Any, path: str, depth: int) -> dict[str, Any]:
        """Encode a CSR array or a frozen dataclass. It gets its number after its parts."""
        if id(value) in self._numbers:
            return {"same": self._numbers[id(value)]}
        kind = type(value)
        if kind is sparse.csr_array:
            result = self._csr(value, path)
        elif kind is Record or is_storable(kind):
            record = value if kind is Record else Record(kind.__name__, _stored_fields(value))
            fields = {name: self.encode(part, f"{path}.{name}", depth + 1) for name, part in record.fields.items()}
            result = {"class": record.name, "fields": fields}
        else:
            what = f"an object of type {kind.__module__}.{kind.__qualname__}"
            if callable(value):
                what = f"the function {getattr(value, '__qualname__', kind.__qualname__)}, and files hold no code"
            raise TypeError(f"{path} cannot be stored: {what}.")
        self._alive.append(value)
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
    """Whether files may hold instances of a class."""
    package, _, module = kind.__module__.partition(".")
    return package == "manifoldrf" and kind.__name__ in STORED_CLASSES.get(module, ())


def _stored_fields(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass as they are stored in files: numbers of threads are -1."""
    has_threads = {field.name: field.metadata == THREADS for field in dataclasses.fields(value) if field.init}
    fields = {name: getattr(value, name) for name in has_threads}
    return {name: -1 if has_threads[name] and part is not None else part for name, part in fields.items()}


def _forget_threads(kind: Any, fields: dict[str, Any]) -> None:
    """Use all cores whatever number of threads a file holds, as older ones do; results do not depend on it."""
    for field in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
        if field.metadata == THREADS and fields.get(field.name) is not None:
            if type(fields[field.name]) is not int:
                reject(field.name, "an integer", repr(fields[field.name]))
            fields[field.name] = -1


def _encode_fraction(value: Fraction) -> Any:
    parts = [hex(value.numerator), hex(value.denominator)]
    if max(map(len, parts)) > _MAX_DIGITS:
        raise TypeError(f"A fraction of more than {_MAX_DIGITS} digits cannot be stored.")
    return {"fraction": parts}


_SCALAR_ENCODERS: dict[type, Callable[[Any], Any]] = {
    int: lambda value: value if abs(value) < _EXACT_INTEGERS else {"int": hex(value)},
    float: lambda value: value if np.isfinite(value) else {"float": struct.pack(">d", value).hex()},
    bytes: lambda value: {"bytes": value.hex()},
    Fraction: _encode_fraction,
    Decimal: lambda value: {"decimal": str(value)},
}


class _Decoder:
    """Decodes one tree. Instances are numbered in the order in which they are completed, as in the encoder."""

    def __init__(self, arrays: Arrays, registry: Registry) -> None:
        self._arrays = arrays
        self._registry = registry
        self._transposed: Arrays = {}
        self._tuples: dict[str, tuple[float, ...]] = {}
        self._instances: list[Any] = []
        self._tags: dict[str, Callable[[Any, int], Any]] = {
            "tuple": lambda parts, depth: tuple(self._list(parts, depth)),
            "dict": self._dict,
            "csr": lambda parts, _: self._csr(parts),
            "same": lambda number, _: self._same(number),
            "array": lambda name, _: self._array(name),
            "floats": lambda name, _: self._float_tuple(name),
        }

    def decode(self, tree: Any, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ModelFileError(f"it is nested more than {_MAX_DEPTH} deep")
        if isinstance(tree, list):
            return self._list(tree, depth)
        if not isinstance(tree, dict):
            return tree
        if set(tree) == {"class", "fields"}:
            return self._record(tree["class"], self._dict(tree["fields"], depth))
        if set(tree) == {"array", "order"} and tree["order"] == "F":
            array = self._array(tree["array"])
            return self._transposed.setdefault(tree["array"], array.T)  # always the same object
        if len(tree) != 1:
            _refuse_tree()
        ((tag, content),) = tree.items()
        return self._tags[tag](content, depth) if tag in self._tags else _decode_scalar(tag, content)

    def _list(self, parts: Any, depth: int) -> list[Any]:
        if not isinstance(parts, list):
            _refuse_tree()
        return [self.decode(part, depth + 1) for part in parts]

    def _dict(self, parts: Any, depth: int) -> dict[str, Any]:
        if not isinstance(parts, dict):
            _refuse_tree()
        return {key: self.decode(part, depth + 1) for key, part in parts.items()}

    def _array(self, name: Any) -> NDArray[Any]:
        if not isinstance(name, str) or name not in self._arrays:
            raise ModelFileError(f"it lacks the array {str(name)[:40]!r}")
        return self._arrays[name]

    def _float_tuple(self, name: Any) -> tuple[float, ...]:
        """Return an array as a tuple, the same object each time."""
        array = self._array(name)
        if array.ndim != 1 or array.dtype != np.float64:
            _refuse_tree()
        if name not in self._tuples:
            self._tuples[name] = tuple(array.tolist())
        return self._tuples[name]

    def _same(self, number: Any) -> Any:
        if type(number) is not int or not 0 <= number < len(self._instances):
            _refuse_tree()
        return self._instances[number]

    def _record(self, name: Any, fields: dict[str, Any]) -> Any:
        if not isinstance(name, str) or name not in self._registry:
            raise ModelFileError(f"it holds a {str(name)[:40]!r}, a class that this version does not know")
        try:
            check_field_types(self._registry[name], fields)
            _forget_threads(self._registry[name], fields)
            value = self._registry[name](**fields)
        except MemoryError:
            raise  # not the fault of the file
        except Exception as error:
            raise ModelFileError(f"its {name} is not valid: {str(error).rstrip('.')}") from error
        self._instances.append(value)
        return value

    def _csr(self, parts: Any) -> Any:
        """Build a CSR array from exactly these arrays. Compiled code trusts its indices, so they are checked."""
        if not isinstance(parts, dict) or set(parts) != {"data", "indices", "indptr", "shape"}:
            _refuse_tree()
        data, indices, indptr = (self._array(parts[key]) for key in ("data", "indices", "indptr"))
        shape = parts["shape"]
        if not (isinstance(shape, list) and [type(side) for side in shape] == [int, int]):
            _refuse_tree()
        if not _is_valid_csr(data, indices, indptr, shape):
            raise ModelFileError("it holds a sparse array with indices out of range")
        matrix = sparse.csr_array((data, indices, indptr), shape=tuple(shape))
        # The constructor may have converted them.
        matrix.data, matrix.indices, matrix.indptr = data, indices, indptr
        self._instances.append(matrix)
        return matrix


def _refuse_tree() -> NoReturn:
    raise ModelFileError("its description is not that of a model")


def _is_valid_csr(data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: list[int]) -> bool:
    """Whether the three arrays form a sparse array of this shape."""
    if not 0 <= min(shape) <= max(shape) < 2**62:
        return False
    if {data.ndim, indices.ndim, indptr.ndim} != {1} or indices.dtype != indptr.dtype or indices.dtype.kind != "i":
        return False
    if len(indptr) != shape[0] + 1 or indptr[0] != 0 or indptr[-1] != len(indices) or len(indices) != len(data):
        return False
    in_range = not indices.size or (indices.min() >= 0 and indices.max() < shape[1])
    return bool(in_range and (indptr[1:] >= indptr[:-1]).all())


def _decode_scalar(tag: str, content: Any) -> Any:
    try:
        return _SCALAR_DECODERS[tag](content)
    except (TypeError, ValueError, ArithmeticError, LookupError, struct.error):
        _refuse_tree()


def _decode_numpy(content: Any) -> Any:
    name, digits = content
    (dtype,) = (dtype for dtype in _DTYPES if dtype.name == name)
    (value,) = np.frombuffer(bytes.fromhex(digits), dtype=dtype)
    return value


def _decode_fraction(content: Any) -> Fraction:
    numerator, denominator = content
    if max(len(numerator), len(denominator)) > _MAX_DIGITS:
        _refuse_tree()
    return Fraction(int(numerator, 16), int(denominator, 16))


_SCALAR_DECODERS: dict[str, Callable[[Any], Any]] = {
    "int": lambda content: int(content, 16),
    "float": lambda content: struct.unpack(">d", bytes.fromhex(content))[0],
    "bytes": bytes.fromhex,
    "fraction": _decode_fraction,
    "decimal": lambda content: Decimal(str(content)),
    "scalar": _decode_numpy,
}


def check_field_types(kind: Callable[..., Any], values: dict[str, Any]) -> None:
    """Refuse values that do not have the annotated types of the fields.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Ball:
    ...     radius: float
    >>> check_field_types(Ball, {"radius": 2})
    >>> check_field_types(Ball, {"radius": "two"})
    Traceback (most recent call last):
    TypeError: `radius` must be of type float. Got str.
    """
    check_types(_type_hints(kind), values)


def check_types(hints: dict[str, Any], values: dict[str, Any]) -> None:
    """Refuse values that do not have the type given for their name."""
    for name, value in values.items():
        hint = hints.get(name, Any)
        if not _matches(value, hint):
            wanted = hint.__name__ if isinstance(hint, type) and not typing.get_args(hint) else str(hint)
            found = f"{value.dtype} array" if isinstance(value, np.ndarray) else type(value).__name__
            reject(name, f"of type {wanted}", found, TypeError)


_type_hints = functools.cache(typing.get_type_hints)
_NUMBERS: dict[Any, Any] = {float: Real, int: Integral, bool: bool | np.bool_}


def _matches(value: Any, hint: Any) -> bool:
    """Whether a value has an annotated type. Kinds of annotations that no field uses match every value."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_matches(value, part) for part in parts)
    if origin is typing.Literal:
        return any(type(value) is type(part) and value == part for part in parts)
    if origin is np.ndarray:
        scalar = next((part for part in typing.get_args(parts[1]) if isinstance(part, type)), np.generic)
        return isinstance(value, np.ndarray) and value.dtype.isnative and bool(np.issubdtype(value.dtype, scalar))
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        hints = parts[:1] * len(value) if parts[1:] == (Ellipsis,) else parts
        return len(value) == len(hints) and all(map(_matches, value, hints))
    if hint in _NUMBERS:
        is_flag = isinstance(value, bool | np.bool_)
        return is_flag == (hint is bool) and isinstance(value, _NUMBERS[hint])
    kind = origin if origin in (list, dict) else hint
    checked = isinstance(kind, type) and kind is not Any and not getattr(kind, "_is_protocol", False)
    return isinstance(value, kind) if checked else True


def write_container(path: Any, arrays: Arrays, meta: dict[str, Any]) -> Path:
    """Write arrays and a JSON-able dict to one file. A failed write leaves the previous file unchanged.

    Parameters
    ----------
    path : str or path
        The file; an existing one is replaced.
    arrays : dict
        Names consist of letters, digits, dots and underscores; arrays of float64, float32, integers or bool.
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
    metadata = {"format": _FORMAT, "format_version": str(_VERSION), "checksum": _NO_DIGEST, "model": text}
    content = memoryview(save({name: _check_array(name, array) for name, array in arrays.items()}, metadata))
    begin = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    if begin - _LENGTH_BYTES > _MAX_HEADER:
        reject("meta", f"at most {_MAX_HEADER} bytes with the names of the arrays", begin - _LENGTH_BYTES)
    head, body = _sort_header(bytes(content[_LENGTH_BYTES:begin])), content[begin:]
    found = _DIGEST.search(head)
    if found is None:
        raise RuntimeError("safetensors wrote an unknown header; this version of safetensors is not supported.")
    digest = hashlib.blake2b(head, digest_size=_DIGEST_BYTES)
    digest.update(body)
    with atomic_path(target) as temporary, temporary.open("wb") as file:
        for part in (head[: found.start(1)], digest.hexdigest().encode(), head[found.end(1) :], body):
            file.write(part)
    return target


def _check_array(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """Return the array in C order and little-endian, if it can be stored."""
    if not _NAME.fullmatch(name):
        reject("arrays", "named by letters, digits, dots and underscores", repr(name))
    little = array.dtype.newbyteorder("<")
    if little not in _DTYPES:
        kinds = ", ".join(sorted(dtype.name for dtype in _DTYPES))
        reject("arrays", f"of a dtype among {kinds}", f"{array.dtype} for {name!r}", TypeError)
    return np.asarray(array, dtype=little, order="C")


def _sort_header(header: bytes) -> bytes:
    """Return length and header with sorted entries: safetensors does not sort, so equal models would differ."""
    entries = json.loads(header)
    metadata = entries.pop(_METADATA)
    ordered = {_METADATA: dict(sorted(metadata.items()))}
    ordered |= dict(sorted(entries.items(), key=lambda item: (item[1]["data_offsets"], item[0])))
    text = json.dumps(ordered, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _LENGTH_BYTES)  # arrays begin at multiples of 8 bytes
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def read_container(path: Any) -> tuple[Arrays, dict[str, Any]]:
    """Read a file that :func:`write_container` wrote. The arrays are new, in C order, with the same bits.

    Raises
    ------
    ModelFileError
        If the file is truncated, altered, foreign or newer.
    FileNotFoundError
        If there is no such file.
    """
    source = as_path(path)
    with _name_file(source):
        if source.exists() and not (source.is_file() or source.is_dir()):
            raise ModelFileError("it is not a regular file")  # opening a pipe would wait for its other end
        with existing_file(source).open("rb") as file:
            return _read(file)


def _read(file: BinaryIO) -> tuple[Arrays, dict[str, Any]]:
    """Check format and version, let safetensors check the arrays, compare the checksum, and parse the JSON text."""
    head = _read_header(file)
    metadata = _check_metadata(_parse(head[_LENGTH_BYTES:], "its header").get(_METADATA))
    found = _DIGEST.search(head)
    if found is None or found[1].decode() != metadata["checksum"]:
        raise ModelFileError("its checksum is not where it should be; it was altered")
    content = head + file.read()
    try:
        arrays = load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        reason = " ".join(str(error).split()).removeprefix("Error while deserializing: ")[:_LONGEST_REASON]
        raise ModelFileError(f"it is cut off, altered or too long ({reason})") from None
    hashed = hashlib.blake2b(head[: found.start(1)], digest_size=_DIGEST_BYTES)
    hashed.update(_NO_DIGEST.encode())
    hashed.update(memoryview(content)[found.end(1) :])
    if hashed.hexdigest() != metadata["checksum"]:
        raise ModelFileError("its checksum differs; it was altered after it was written")
    for name, array in arrays.items():
        if array.dtype not in _DTYPES:
            raise ModelFileError(f"array {name[:40]!r} has dtype {array.dtype}, which models do not have")
        if array.dtype == np.bool_ and array.size and array.view(np.uint8).max() > 1:
            raise ModelFileError(f"array {name[:40]!r} holds bytes that are neither true nor false")
    return arrays, _parse(metadata["model"], "its description")


def _read_header(file: BinaryIO) -> bytes:
    """Return the length and the header, which is read only if it is not too long."""
    start = file.read(_LENGTH_BYTES + 1)
    if not start:
        raise ModelFileError("it is empty")
    length = int.from_bytes(start[:_LENGTH_BYTES], "little")
    if start[_LENGTH_BYTES:] != b"{" or length < len("{}"):
        raise ModelFileError("it is not a safetensors file")
    if length > _MAX_HEADER:
        raise ModelFileError(f"its header has {length} bytes, and a model has at most {_MAX_HEADER}")
    head = start + file.read(length - 1)
    if len(head) < _LENGTH_BYTES + length:
        raise ModelFileError(f"it is cut off: it ends within its header of {length} bytes")
    return head


def _parse(text: bytes | str, what: str) -> dict[str, Any]:
    """Parse a JSON object; repeated keys, NaN and infinity are refused."""
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=int)  # int refuses NaN and Infinity
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{what} is not valid JSON ({error})") from None
    if not isinstance(value, dict):
        raise ModelFileError(f"{what} is not a JSON object")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name occurs twice")
    return result


def _check_metadata(metadata: Any) -> dict[str, str]:
    """Return the metadata, if they have this format and version."""
    if not isinstance(metadata, dict) or metadata.get("format") != _FORMAT:
        raise ModelFileError("it is a safetensors file, but not one of manifoldrf")
    version = metadata.get("format_version")
    if not isinstance(version, str) or not re.fullmatch(r"[1-9][0-9]{0,8}", version):
        raise ModelFileError("it does not say which version of the format it has")
    if int(version) > _VERSION:
        reads = f"this version of manifoldrf reads up to {_VERSION}; a newer one made it"
        raise ModelFileError(f"it has format {version}, and {reads}")
    if set(metadata) != _KEYS or not all(isinstance(value, str) for value in metadata.values()):
        raise ModelFileError("its metadata are not valid for a model")
    return metadata
