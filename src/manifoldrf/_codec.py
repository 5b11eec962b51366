"""Frozen dataclasses, numbers and arrays as a JSON-able tree and named arrays, and back, without running code.

In the tree None, bool, str, list, finite floats and integers below 2^53 stand for themselves. Everything else is
an object of JSON with a tag: ``{"tuple": [...]}``, ``{"array": "a0"}``, ``{"class": "Sphere", "fields": {...}}``.
Arrays that share their memory are stored once and come back as one; so do instances that occur twice
(``{"same": 3}``).
"""

import dataclasses
import struct
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from manifoldrf._container import DTYPES, ModelFileError, read_container, write_container
from manifoldrf._field_kinds import check_kinds

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
Registry = dict[str, type]


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
        elif is_storable(kind):
            parts = {field.name: _part(value, field) for field in dataclasses.fields(value) if field.init}
            fields = {name: self.encode(part, f"{path}.{name}", depth + 1) for name, part in parts.items()}
            result = {"class": kind.__name__, "fields": fields}
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


def _part(value: Any, field: "dataclasses.Field[Any]") -> Any:
    """What a file has of a field."""
    part = getattr(value, field.name)
    return -1 if part is not None and field.metadata == THREADS else part


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
