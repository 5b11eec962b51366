"""One phrasing for every error: the argument, the rule, the value.

``ValueError`` for a value that breaks the rule, ``TypeError`` for a thing of the wrong kind; both read
"`n_neighbors` must be an integer in [1, 3999]. Got 5000."
"""

import datetime
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

# Squared distances of larger coordinates overflow float64 (1e154 squared is the last finite square).
LARGEST_COORDINATE = 1e150
# Squared distances within a smaller cloud underflow.
SMALLEST_SPREAD = 1e-140
# How a file becomes an array or a mesh.
_READ_BY = {".npy": "numpy.load(path, mmap_mode='r')", ".npz": "numpy.load(path)", ".csv": "numpy.loadtxt"} | (
    dict.fromkeys((".ply", ".obj", ".stl", ".off", ".glb"), "TriangleMesh.load(path)")
)
_NO_NUMBERS = (str, bytes, datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)
_SMALLEST_NORM = 1e-140  # below, squares begin to vanish
_LONGEST_VALUE = 500  # characters of a value in an error text: a list of a million numbers is no sentence


@dataclass(frozen=True)
class Interval:
    """A range of numbers that prints itself as in a textbook: "[0, 1)", "(0, inf)"."""

    low: float = -np.inf
    high: float = np.inf
    low_open: bool = False
    high_open: bool = False

    def __contains__(self, value: float) -> bool:
        above = value > self.low if self.low_open else value >= self.low
        below = value < self.high if self.high_open else value <= self.high
        return above and below and np.isfinite(value)

    def __str__(self) -> str:
        left = "(" if self.low_open or np.isinf(self.low) else "["
        right = ")" if self.high_open or np.isinf(self.high) else "]"
        return f"{left}{self.low:g}, {self.high:g}{right}"


POSITIVE = Interval(0.0, low_open=True)
NONNEGATIVE = Interval(0.0)


def reject(name: str, rule: str, value: object, kind: type[Exception] = ValueError) -> NoReturn:
    """Raise the one error text of the library."""
    text = str(value)
    if len(text) > _LONGEST_VALUE:
        text = f"{text[:_LONGEST_VALUE]} ..."
    raise kind(f"`{name}` must be {rule}. Got {text}.")


@contextmanager
def naming(outer: str, *inner: str) -> Iterator[None]:
    """Errors about an argument of a function below name it as the user did, who handed it over as another."""
    try:
        yield
    except (ValueError, TypeError) as error:
        text = str(error)
        found = next((name for name in inner if text.startswith(f"`{name}` must be")), None)
        if found is None or type(error) not in (ValueError, TypeError):
            raise
        raise type(error)(text.replace(f"`{found}`", f"`{outer}`", 1)) from error


def check_integer(value: Any, name: str, low: int, high: int | None = None) -> int:
    """Return ``value`` as an int in [low, high]; booleans are not integers here."""
    bounds = f"[{low}, {'inf)' if high is None else f'{high}]'}"
    rule = f"an integer in {bounds}"
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral):
        reject(name, rule, repr(value), TypeError)
    number = int(value)
    if number < low or (high is not None and number > high):
        reject(name, rule, value)
    return number


def check_jobs(n_jobs: Any, name: str = "n_jobs") -> int:
    """Return a number of threads, at least 1; -1 means as many as this process may use."""
    if isinstance(n_jobs, bool | np.bool_) or not isinstance(n_jobs, Integral):
        reject(name, "-1 or an integer in [1, inf)", repr(n_jobs), TypeError)
    number = int(n_jobs)
    if number < 1 and number != -1:
        reject(name, "-1 or an integer in [1, inf)", number)
    if number == -1:
        # A container or batch system may allow fewer cores than the machine has.
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return number


def check_real(value: Any, name: str, interval: Interval) -> float:
    """Return ``value`` as a finite float inside the interval."""
    rule = f"a number in {interval}"
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        reject(name, rule, repr(value), TypeError)
    try:
        number = float(value)
    except OverflowError:  # an integer with more than 308 digits
        number = np.inf
    if number not in interval:
        reject(name, rule, value)
    return number


def check_flag(value: Any, name: str) -> bool:
    """Return ``value`` if it is True or False; no other truthy thing is a flag."""
    if not isinstance(value, bool | np.bool_):
        reject(name, "True or False", repr(value), TypeError)
    return bool(value)


def check_option(value: Any, name: str, options: Collection[str]) -> str:
    """Return ``value`` if it is one of the named options."""
    if not isinstance(value, str) or value not in options:
        reject(name, "one of " + ", ".join(repr(option) for option in options), repr(value))
    return value


def check_count(value: Any, name: str, low: int, words: Collection[str]) -> int | str:
    """Return ``value`` if it is an integer of at least ``low``, or one of the words."""
    if not isinstance(value, str):
        return check_integer(value, name, low)
    if value not in words:
        reject(name, f"an integer in [{low}, inf) or one of " + ", ".join(map(repr, words)), repr(value))
    return value


def check_number_or(value: Any, name: str, word: str, interval: Interval) -> float | None:
    """Return ``value`` as a float inside the interval, or None if it is the word, such as "auto"."""
    if not isinstance(value, str):
        return check_real(value, name, interval)
    if value != word:
        reject(name, f"'{word}' or a number in {interval}", repr(value))
    return None


def as_floats(values: ArrayLike, name: str) -> FloatArray:
    """Float64 copy-free view where possible, or one clear sentence; NaN and inf are let through.

    Rows are contiguous: sums along them would round otherwise in another order of memory.
    """
    array = as_array(values, name)
    if array.dtype.kind in "biuf":
        return np.asarray(array, dtype=np.float64, order="C")
    if array.dtype.kind == "O" and array.ndim:
        _refuse_entries(array, name, lambda entry: not _is_number(entry), column_names(values))
        try:
            return np.asarray(array, dtype=np.float64, order="C")
        except (TypeError, ValueError, OverflowError):
            pass  # arrays inside an array, integers of 400 digits
    _reject_kind(values, array, name)


def refuse_text(values: Any, name: str) -> None:
    """Refuse what others take for numbers, or refuse without the name of the argument: texts, dates, no array."""
    array = as_array(values, name)
    nothing = array.dtype.kind == "O" and not array.ndim and not hasattr(values, "tocsr")
    if nothing or array.dtype.kind in "USMm":
        _reject_kind(values, array, name)
    if array.dtype.kind == "O":
        _refuse_entries(array, name, lambda entry: isinstance(entry, _NO_NUMBERS), column_names(values))


def _reject_kind(values: Any, array: NDArray[Any], name: str) -> NoReturn:
    """Say what was given instead of numbers."""
    if isinstance(values, str | os.PathLike):
        reader = _READ_BY.get(os.path.splitext(os.fspath(values))[1].lower())  # noqa: PTH122 - no path of ours
        if reader is not None:
            reject(name, f"an array of numbers, not the name of a file: {reader} reads it", repr(values), TypeError)
    kind = "None" if values is None else type(values).__name__
    found = kind if array.dtype.kind == "O" else f"{kind} of dtype {array.dtype}"
    reject(name, "an array of numbers", found, TypeError)


def _is_number(entry: object) -> bool:
    """Whether an entry of an array of objects is a real number; text that looks like one is none."""
    return hasattr(entry, "__float__") and not isinstance(entry, str | bytes | complex)


def _refuse_entries(
    array: NDArray[Any], name: str, is_bad: Callable[[object], bool], columns: Sequence[str] = ()
) -> None:
    """Name the first entry of an array of objects that is no number."""
    for index, entry in np.ndenumerate(array):
        if is_bad(entry):
            reject(name, "an array of numbers", f"{entry!r} at index {index}{_column(index, columns)}", TypeError)


def column_names(values: Any) -> tuple[str, ...]:
    """Names of the columns of a frame; none of anything else."""
    columns = getattr(values, "columns", None)
    return tuple(columns) if np.iterable(columns) and all(isinstance(text, str) for text in columns) else ()


def _column(index: tuple[int, ...], columns: Sequence[str]) -> str:
    """The name of the column of an entry, where columns have names."""
    return f", column {columns[index[1]]!r}" if len(index) == 2 and index[1] < len(columns) else ""


def check_finite(array: Any, name: str, largest: float = LARGEST_COORDINATE, columns: Sequence[str] = ()) -> None:
    """Name the first entry, of a dense or a CSR array, that is NaN, infinite or too large, by default to square."""
    is_sparse = hasattr(array, "tocoo")
    values = array.data if is_sparse else array
    if not values.size or (values.min() >= -largest and values.max() <= largest):  # False for NaN as well
        return  # without a copy: an array may be as large as memory, or lie on a disk
    good = np.abs(values) <= largest
    first = index = tuple(int(i) for i in np.argwhere(~good)[0])
    if is_sparse:
        entries = array.tocoo()  # only now, as it copies all
        index = (int(entries.row[first]), int(entries.col[first]))
    rule = "finite, without NaN or inf"
    if np.isfinite(values[first]):
        rule = f"finite, with entries below {largest:g} in size"
    reject(name, rule, f"{values[first]} at index {index}{_column(index, columns)}")


def check_points(
    points: ArrayLike,
    name: str = "points",
    *,
    n_columns: int | None = None,
    min_rows: int = 1,
    names: Sequence[str] = (),
) -> FloatArray:
    """Return points as a finite float64 array of shape (n, d), without a copy where possible.

    ``names`` are those of the columns, where the points were a frame once.
    """
    array = as_floats(points, name)
    columns = "d" if n_columns is None else str(n_columns)
    if array.ndim != 2 or (n_columns is not None and array.shape[1] != n_columns):
        reject(name, f"an array of shape (n, {columns})", f"shape {array.shape}")
    if array.shape[0] < min_rows or array.shape[1] == 0:
        reject(name, f"an array with at least {min_rows} row(s) and one column", f"shape {array.shape}")
    check_finite(array, name, columns=names or column_names(points))
    return array


def check_columns(values: ArrayLike, name: str, n_rows: int, unit: str = "node") -> FloatArray:
    """Return a vector, as one column, or columns as a finite float64 array with one row per node or point."""
    given = as_floats(values, name)
    array = check_points(given[:, None] if given.ndim == 1 else given, name)
    if len(array) != n_rows:
        reject(name, f"an array of {n_rows} rows, one per {unit}", len(array))
    return array


def check_spread(points: FloatArray, name: str) -> None:
    """Refuse a cloud so small that its squared distances vanish; all points equal is another matter."""
    spread = float(np.ptp(points, axis=0).max())
    if 0 < spread < SMALLEST_SPREAD:
        reject(name, f"spread over at least {SMALLEST_SPREAD:g}, or squared distances vanish", f"{spread:g}")


def check_vector(
    values: ArrayLike, name: str, length: int, interval: Interval, largest: float = LARGEST_COORDINATE
) -> FloatArray:
    """Return a float64 vector of the given length with every entry inside the interval."""
    array = as_floats(values, name)
    if array.shape != (length,):
        reject(name, f"a vector of shape ({length},)", f"shape {array.shape}")
    check_finite(array, name, largest)
    bad = [i for i in (int(array.argmin()), int(array.argmax())) if float(array[i]) not in interval]
    if bad:
        reject(name, f"a vector with entries in {interval}", f"{array[bad[0]]} at index {bad[0]}")
    return array


def check_indices(indices: ArrayLike, name: str, n_items: int) -> IntArray:
    """Return a vector of integer indices in [0, n_items - 1]; a single integer becomes a vector of one."""
    array = np.atleast_1d(as_array(indices, name))
    if array.ndim != 1 or array.size == 0:
        reject(name, "a non-empty vector of indices", f"shape {array.shape}")
    return _check_index_array(array, name, n_items)


def check_faces(faces: ArrayLike, name: str, n_vertices: int) -> IntArray:
    """Return faces as an int64 array of shape (m, 3) with indices in [0, n_vertices - 1]."""
    array = as_array(faces, name)
    if array.ndim != 2 or array.shape[1] != 3 or array.shape[0] == 0:
        reject(name, "an array of triangles of shape (m, 3) with m >= 1", f"shape {array.shape}")
    return _check_index_array(array, name, n_vertices)


def as_array(values: Any, name: str) -> NDArray[Any]:
    """An array, or one clear sentence for rows of unequal length and for masks, which numpy would drop."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):  # a frame may have a column "_mask"
        reject(name, "without masked entries", f"{int(np.sum(np.ma.getmaskarray(values)))} of them")
    try:
        return np.asarray(values)
    except ValueError:
        reject(name, "an array with rows of equal length", type(values).__name__, TypeError)
    except (RuntimeError, TypeError) as error:  # tensors with gradients or on another device
        reject(name, "an array of numbers", f"{type(values).__name__}: {str(error).rstrip('.')}", TypeError)


def _check_index_array(array: NDArray[Any], name: str, n_items: int) -> IntArray:
    """Check kind and range of an array of indices."""
    rule = f"integers in [0, {n_items - 1}]"
    if array.dtype.kind == "b":
        reject(name, f"{rule}; numpy.flatnonzero makes them of a mask", "booleans", TypeError)
    if array.dtype.kind not in "iu":
        reject(name, rule, f"dtype {array.dtype}", TypeError)
    bad = (array < 0) | (array >= n_items)
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        reject(name, rule, f"{array[index]} at index {index}")
    return array.astype(np.int64, copy=False)


def frobenius(matrix: FloatArray) -> float:
    """Frobenius norm, also of a matrix whose squares are beyond the range of doubles."""
    with np.errstate(over="ignore"):
        norm = float(np.linalg.norm(matrix))
    if _SMALLEST_NORM < norm < np.inf:
        return norm
    largest = float(np.abs(matrix).max(initial=0.0))
    return largest * float(np.linalg.norm(matrix / largest)) if 0 < largest < np.inf else largest
