"""Checks of arguments. Every error names the argument, the rule and the value.

``ValueError`` is for a value that breaks the rule, ``TypeError`` for an object of the wrong type. An example:
"`n_neighbors` must be an integer in [1, 3999]. Got 5000."
"""

import datetime
import math
import os
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from manifoldrf._runtime import Progress, silent, warn_user

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

LARGEST_COORDINATE = 1e150  # squares of numbers above 1e154 overflow
_NOT_REAL = (str, bytes, complex)  # text that looks like a number is not one
_DATES = (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)
_NOT_NUMBERS = (str, bytes, *_DATES, list, tuple, np.ndarray)


@dataclass(frozen=True)
class Interval:
    """A range of finite numbers, printed as "[0, 1)" or "(0, inf)"."""

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
    """Raise the error for a bad argument; its attribute ``argument`` is the name."""
    text = written(value) if isinstance(value, int) else str(value)
    text = text if len(text) <= 500 else f"{text[:500]} ..."
    error: Any = kind(f"`{name}` must be {rule}. Got {text}.")
    error.argument = name
    raise error


def written(value: int) -> str:
    """An integer as text, or its number of digits if it has many; Python refuses to print 5000 digits."""
    n_digits = int(value.bit_length() * math.log10(2)) + 1
    return str(value) if n_digits < 100 else f"an integer of {n_digits} digits"


# -------------------------------------------------------------------------------------------------------- scalars
def check_integer(value: Any, name: str, low: int, high: int | None = None) -> int:
    """Return ``value`` as an int in [low, high]; booleans are refused."""
    rule = f"an integer in [{low}, {'inf)' if high is None else f'{high}]'}"
    if isinstance(value, bool) or not isinstance(value, Integral):
        reject(name, rule, repr(value), TypeError)
    number = int(value)
    if number > 10**300 and high is None:  # larger ones exceed all floats
        reject(name, f"an integer in [{low}, 1e+300]", number)
    if number < low or (high is not None and number > high):
        reject(name, rule, value)
    return number


def check_jobs(n_jobs: Any) -> int:
    """Return a number of threads, at least 1; -1 means all cores that this process may use.

    More than four times the number of cores counts as all cores, with a warning.
    """
    rule = "-1 or an integer in [1, inf)"
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral):
        reject("n_jobs", rule, repr(n_jobs), TypeError)
    if n_jobs < 1 and n_jobs != -1:
        reject("n_jobs", rule, int(n_jobs))
    # A container or batch system may allow fewer cores than the machine has.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    number = int(n_jobs)
    if number > 4 * cores:  # these cost memory and start-up time and gain nothing
        warn_user(f"`n_jobs` = {written(number)} is far more than this process may use: {cores} threads are used.")
        return cores
    return cores if number == -1 else number


def check_real(value: Any, name: str, interval: Interval) -> float:
    """Return ``value`` as a finite float inside the interval."""
    if isinstance(value, bool) or not isinstance(value, Real):
        reject(name, f"a number in {interval}", repr(value), TypeError)
    try:
        number = float(value)
    except OverflowError:  # an integer with more than 308 digits
        number = np.inf
    if number not in interval:
        reject(name, f"a number in {interval}", value)
    return number


def check_flag(value: Any, name: str) -> bool:
    """Return ``value`` if it is True or False; other truthy objects are refused."""
    if not isinstance(value, bool | np.bool_):
        reject(name, "True or False", repr(value), TypeError)
    return bool(value)


def check_option(value: Any, name: str, options: Collection[str]) -> str:
    """Return ``value`` if it is one of the named options."""
    if not isinstance(value, str) or value not in options:
        reject(name, "one of " + ", ".join(map(repr, options)), repr(value))
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


def check_progress(verbose: Any) -> Progress:
    """The function that reports progress as (what, done, total) for a value of ``verbose``."""

    def to_terminal(what: str, done: int, total: int) -> None:
        sys.stderr.write(f"\r{what}: {done} of {total}" + ("\n" if done >= total else ""))
        sys.stderr.flush()

    if not (callable(verbose) or isinstance(verbose, bool | np.bool_)):
        reject("verbose", "True, False or a function of (what, done, total)", repr(verbose), TypeError)
    show: Progress = verbose if callable(verbose) else to_terminal if verbose else silent
    return show


# --------------------------------------------------------------------------------------------------------- arrays
def as_array(values: Any, name: str) -> NDArray[Any]:
    """Convert to an array.

    Refuses rows of unequal length, masks (which numpy would drop), and frames with sparse or duplicate columns.
    """
    if hasattr(values, "columns") or hasattr(values, "dtypes"):
        _refuse_frame(values, name)
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):  # a frame may have a column "_mask"
        reject(name, "without masked entries", f"{int(np.sum(np.ma.getmaskarray(values)))} of them")
    try:
        return np.asarray(values)
    except ValueError:
        reject(name, "an array with rows of equal length", type(values).__name__, TypeError)
    except (RuntimeError, TypeError) as error:  # tensors with gradients or on another device
        reject(name, "an array of numbers", f"{type(values).__name__}: {str(error).rstrip('.')}", TypeError)


def _refuse_frame(values: Any, name: str) -> None:
    """Refuse a data frame with sparse columns or duplicate column names."""
    columns = getattr(values, "columns", None)
    names = [column for column in columns if isinstance(column, str | tuple)] if np.iterable(columns) else []
    if len(set(names)) < len(names):
        twice = next(column for column in names if names.count(column) > 1)
        reject(name, "a frame whose columns have different names", f"{twice!r} several times")
    kinds = getattr(values, "dtypes", None)
    sparse = [type(kind).__name__ == "SparseDtype" for kind in kinds] if np.iterable(kinds) else []
    if any(sparse):
        first = list(values.columns)[sparse.index(True)]
        reject(name, "a dense frame; frame.sparse.to_dense() converts a sparse one", f"sparse column {first!r}")


def as_floats(values: ArrayLike, name: str) -> FloatArray:
    """Convert to float64 in C order, without a copy if possible. NaN and infinity are accepted.

    Other memory orders would change the rounding of sums along rows.
    """
    array = as_array(values, name)
    if array.dtype.kind in "biuf":
        return np.asarray(array, dtype=np.float64, order="C")
    if array.dtype.kind == "O" and array.ndim:
        _refuse_entries(values, array, name, lambda x: not hasattr(x, "__float__") or isinstance(x, _NOT_REAL))
        try:
            return np.asarray(array, dtype=np.float64, order="C")
        except (TypeError, ValueError):
            pass  # nested arrays
    _reject_kind(values, array, name)


def refuse_text(values: Any, name: str) -> None:
    """Refuse text, dates, complex numbers and objects that are not arrays.

    scikit-learn converts some of these to numbers, and refuses others without naming the argument.
    """
    array = as_array(values, name)
    is_scalar = array.dtype.kind == "O" and not array.ndim and not hasattr(values, "tocsr")
    if is_scalar or array.dtype.kind in "USMmV":
        _reject_kind(values, array, name)
    if array.dtype.kind == "c":  # the wording that scikit-learn's checks require, without the array
        reject(name, "an array of real numbers (Complex data not supported)", f"dtype {array.dtype}")
    if array.dtype.kind == "O":
        _refuse_entries(values, array, name, lambda entry: isinstance(entry, _NOT_NUMBERS))


def _reject_kind(values: Any, array: NDArray[Any], name: str) -> NoReturn:
    """Name the type that was given instead of numbers."""
    if isinstance(values, str | os.PathLike):
        rule = "an array of numbers, not the name of a file: numpy.load or TriangleMesh.load reads one"
        reject(name, rule, repr(values), TypeError)
    kind = "None" if values is None else type(values).__name__
    if array.dtype.names:
        rule = "a plain array of numbers, see numpy.lib.recfunctions.structured_to_unstructured"
        reject(name, rule, f"fields {', '.join(array.dtype.names)}", TypeError)
    found = kind if array.dtype.kind == "O" else f"{kind} of dtype {array.dtype}"
    reject(name, "an array of numbers", found, TypeError)


def _refuse_entries(values: Any, array: NDArray[Any], name: str, is_bad: Callable[[object], bool]) -> None:
    """Name the first bad entry of an array of objects, or the first integer that no float can hold."""
    for index, entry in np.ndenumerate(array):
        if isinstance(entry, int) and abs(entry) > LARGEST_COORDINATE:
            found = f"{written(entry)} at index {index}{_column(index, column_names(values))}"
            reject(name, f"finite, with entries below {LARGEST_COORDINATE:g} in size", found)
        if is_bad(entry):
            found = f"{entry!r} at index {index}{_column(index, column_names(values))}"
            reject(name, "an array of numbers", found, TypeError)


def counting_columns(points: FloatArray) -> list[int]:
    """Columns that number the rows, in any order: distinct integers that fill most of their range.

    Some numbers may be missing. Needs at least ten rows.
    """
    n = len(points)
    if n < 10:  # 0, 1, 2, ... may be coordinates by chance
        return []
    # Two thirds of the range must occur: half of it would also admit 0, 2, 4, ... Few rows must fill nearly all of
    # it: n random integers from a range of r are distinct with probability about exp(-n^2 / 2r).
    widest = n * min(3 / 2, n / 9)
    return [
        k
        for k, column in enumerate(points.T)
        if float(column[0]).is_integer()
        and column.max() - column.min() < widest
        and (column == np.rint(column)).all()
        and (np.diff(np.sort(column)) > 0).all()
    ]


def look_like_degrees(points: FloatArray, names: Sequence[str]) -> bool:
    """Whether two columns have names or values like longitudes and latitudes, in either order."""
    if points.shape[1] != 2:
        return False
    texts = [name.lower()[:3] for name in names]
    if texts:
        return "lat" in texts and bool({"lon", "lng"} & set(texts))
    low, high = points.min(axis=0), points.max(axis=0)
    whole = (low >= -180) & (low < -90) & (high > 90) & (high <= 180)  # the full circle
    half = (low >= -90) & (low < -20) & (high > 20) & (high <= 90)
    return bool((whole & half[::-1]).any())


def column_names(values: Any) -> tuple[str, ...]:
    """Return the names of the columns of a data frame, or an empty tuple for anything else."""
    columns = getattr(values, "columns", None)
    return tuple(columns) if np.iterable(columns) and all(isinstance(text, str) for text in columns) else ()


def _column(index: tuple[int, ...], columns: Sequence[str]) -> str:
    """Return the name of the column of an entry, if columns have names."""
    return f", column {columns[index[1]]!r}" if len(index) == 2 and index[1] < len(columns) else ""


def check_finite(array: Any, name: str, columns: Sequence[str] = ()) -> None:
    """Name the first entry of a dense or CSR array that is NaN, infinite or too large."""
    largest = LARGEST_COORDINATE
    is_sparse = hasattr(array, "tocoo")
    values = array.data if is_sparse else array
    if not values.size or (float(values.min()) >= -largest and float(values.max()) <= largest):  # False for NaN
        return  # without a copy: arrays may be huge or memory-mapped
    first = index = tuple(int(i) for i in np.argwhere(~(np.abs(values) <= largest))[0])
    if is_sparse:
        entries = array.tocoo()  # late, because it copies
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
    """Return points as a finite float64 array of shape (n, d), without a copy if possible.

    ``names`` are the names of the columns, for points that were converted from a data frame.
    """
    array = as_floats(points, name)
    if array.ndim != 2 or (n_columns is not None and array.shape[1] != n_columns):
        reject(name, f"an array of shape (n, {'d' if n_columns is None else n_columns})", f"shape {array.shape}")
    if array.shape[0] < min_rows or array.shape[1] == 0:
        reject(name, f"an array with at least {min_rows} row(s) and one column", f"shape {array.shape}")
    check_finite(array, name, names or column_names(points))
    return array


def check_columns(values: ArrayLike, name: str, n_rows: int, unit: str = "node") -> FloatArray:
    """Return finite float64 columns with one row per node or point; a vector becomes one column."""
    given = as_floats(values, name)
    array = check_points(given[:, None] if given.ndim == 1 else given, name)
    if len(array) != n_rows:
        reject(name, f"an array of {n_rows} rows, one per {unit}", len(array))
    return array


def check_spread(points: FloatArray, name: str) -> None:
    """Refuse points so close together that squared distances underflow. Equal points are accepted."""
    spread = float(np.ptp(points, axis=0).max())
    if 0 < spread < 1e-140:
        reject(name, "spread over at least 1e-140, or squared distances vanish", f"{spread:g}")


def check_vector(values: ArrayLike, name: str, length: int, interval: Interval) -> FloatArray:
    """Return a float64 vector of the given length with every entry inside the interval."""
    array = as_floats(values, name)
    if array.shape != (length,):
        reject(name, f"a vector of shape ({length},)", f"shape {array.shape}")
    check_finite(array, name)
    for index in (int(array.argmin()), int(array.argmax())):
        if float(array[index]) not in interval:
            reject(name, f"a vector with entries in {interval}", f"{array[index]} at index {index}")
    return array


def check_indices(indices: ArrayLike, name: str, n_items: int) -> IntArray:
    """Return a vector of integers in [0, n_items - 1]; a single integer becomes a vector of one."""
    array = np.atleast_1d(as_array(indices, name))
    if array.ndim != 1 or array.size == 0:
        reject(name, "a non-empty vector of indices", f"shape {array.shape}")
    return _check_range(array, name, n_items)


def check_faces(faces: ArrayLike, name: str, n_vertices: int) -> IntArray:
    """Return faces as an int64 array of shape (m, 3) with indices in [0, n_vertices - 1]."""
    array = as_array(faces, name)
    if array.ndim != 2 or array.shape[1] != 3 or array.shape[0] == 0:
        reject(name, "an array of triangles of shape (m, 3) with m >= 1", f"shape {array.shape}")
    return _check_range(array, name, n_vertices)


def _check_range(array: NDArray[Any], name: str, n_items: int) -> IntArray:
    """Return an array of indices as int64, all of them in [0, n_items - 1]."""
    rule = f"integers in [0, {n_items - 1}]"
    if array.dtype.kind == "b":
        reject(name, f"{rule}; numpy.flatnonzero converts a mask", "booleans", TypeError)
    if array.dtype.kind not in "iu":
        reject(name, rule, f"dtype {array.dtype}", TypeError)
    bad = (array < 0) | (array >= n_items)
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        reject(name, rule, f"{array[index]} at index {index}")
    return array.astype(np.int64, copy=False)
