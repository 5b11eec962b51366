"""What several experiments use: random streams, errors of kernels, vectors, quiet blocks, files."""

import os
import uuid
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from manifoldrf import ManifoldWarning

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]
Progress = Callable[[str, int, int], None]  # what is done, how many of these are done, and of how many
RECIPE, LIBRARY = "paper's recipe", "this library"  # the two columns of every comparison


def silent(what: str, done: int, total: int) -> None:
    """Report no progress."""


def reject(name: str, rule: str, got: Any, kind: type[Exception] = ValueError) -> NoReturn:
    """Raise an error that names the argument, the rule and the value."""
    raise kind(f"`{name}` must be {rule}. Got {got}.")


def generator(seed: int, name: str) -> np.random.Generator:
    """A stream of random numbers for each name, so that a new consumer does not change the others.

    Examples
    --------
    >>> generator(0, "mask").random() == generator(0, "mask").random() != generator(0, "tokens").random()
    True
    """
    return np.random.default_rng(int.from_bytes(blake2b(f"{seed} {name}".encode(), digest_size=16).digest()))


@contextmanager
def reproducible() -> Iterator[None]:
    """One thread for matrix products, whose rounding depends on their number, and none of the library's warnings.

    What the warnings say (few features, holes, far queries) is in the tables.
    """
    with threadpool_limits(1, "blas"), warnings.catch_warnings():
        warnings.simplefilter("ignore", ManifoldWarning)
        yield


# ---------------------------------------------------------------------------------------------------------- errors
def align(found: FloatArray, exact: FloatArray) -> FloatArray:
    """Scale a kernel to the Frobenius norm of another, as the paper does."""
    size = float(np.linalg.norm(found))
    return found if size == 0 else np.asarray(found * (float(np.linalg.norm(exact)) / size))


def errors_of(found: FloatArray, exact: FloatArray, clamp: float = 1e-3) -> dict[str, float]:
    """The paper's errors of a prediction; relative ones divide by at least ``clamp``.

    Examples
    --------
    >>> {name: round(value, 3) for name, value in errors_of(np.array([1.0, 2.0]), np.array([1.0, 4.0])).items()}
    {'r2': 0.111, 'rmse': 1.414, 'mae': 1.0, 'mean_re': 0.25, 'median_re': 0.25}
    """
    size = np.abs(found - exact)
    relative = size / np.maximum(np.abs(exact), clamp)
    squares = float(np.square(size).mean())
    return {
        "r2": 1 - squares / float(exact.var()),
        "rmse": squares**0.5,
        "mae": float(size.mean()),
        "mean_re": float(relative.mean()),
        "median_re": float(np.median(relative)),
    }


def unit_rows(rows: FloatArray) -> FloatArray:
    """Rows of length 1; zero stays zero."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0))


# ----------------------------------------------------------------------------------------------------------- files
@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary name in the folder of a file, which replaces the file when the block succeeds."""
    temporary = path.with_name(f".{uuid.uuid4().hex}{path.suffix}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def files_in(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    """Files of a folder by name, without hidden ones such as those of killed processes."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in suffixes and not p.name.startswith("."))


def existing_folder(folder: str | os.PathLike[str], name: str) -> Path:
    """The path of a folder that exists."""
    path = Path(folder)
    if not path.is_dir():
        reject(name, "an existing folder", path)
    return path
