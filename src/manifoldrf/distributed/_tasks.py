"""What workers do: each function is one task, of something large that is there and something small that comes."""

import contextlib
import copy
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._arrays.reading import open_rows, read_points
from manifoldrf._arrays.writing import row_writer
from manifoldrf._notices import recorded_warnings
from manifoldrf._optional import require
from manifoldrf._validation import IntArray, check_integer, check_jobs, reject
from manifoldrf.features.graph_features import GraphRandomFeatures
from manifoldrf.signatures._engines import Recipe

_BLOCK_ENTRIES = 2**23  # of features in the memory of a worker at once: 64 MB
_ALL_THREADS = threading.Lock()  # of a worker: one block at a time has them, and the memory of one is taken


class Held:
    """Something large that a worker holds, with what was last made of it.

    Parameters
    ----------
    value : object
        A graph, or features; it alone travels.
    size : int
        Its bytes, for Dask, which cannot know them.
    """

    def __init__(self, value: Any, size: int) -> None:
        self.value = value
        self.size = size
        self._made: tuple[str, Any] = ("", None)

    def __reduce__(self) -> tuple[type["Held"], tuple[Any, int]]:
        return Held, (self.value, self.size)

    def __sizeof__(self) -> int:
        return self.size

    def made(self, name: str, make: Callable[[Any], Any]) -> Any:
        """``make(value)``, kept until another name is asked for; threads that ask at once may make it twice."""
        kept = self._made
        if kept[0] != name:
            kept = self._made = (name, make(self.value))
        return kept[1]


def size_of(value: Any) -> int:
    """Bytes of what is sent, without a copy of its arrays."""
    buffers: list[Any] = []
    frame: bytes = require("distributed.protocol.pickle", "dask").dumps(value, buffer_callback=buffers.append)
    return len(frame) + sum(int(buffer.raw().nbytes) for buffer in buffers)


def travelling(features: Any) -> Any:
    """The features as they are sent: tasks share the threads of a worker, and nobody there watches the progress."""
    sent = copy.copy(features)
    sent.n_jobs = 1
    if hasattr(sent, "verbose"):
        sent.verbose = False
    return sent


def itself(value: Any) -> Any:
    """A task that brings something to the workers."""
    return value


def rows_of_batch(name: str, recipe: Recipe, n_jobs: int, held: Held, nodes: IntArray) -> Any:
    """Signatures of some start nodes: a part, as the recipe makes it."""
    return held.made(name, recipe)(nodes, check_jobs(n_jobs), lambda what, done, total: None)


def features_of_block(block: Any, features: Any, side: str | None) -> Any:
    """Features of a block of a dask array, which may have no rows."""
    if len(block):
        return _transformed(features, block, side)
    kind = np.float32 if block.dtype == np.float32 else np.float64
    shape = (0, features.n_features_out_)
    return sparse.csr_array(shape, dtype=kind) if is_sparse(features) else np.zeros(shape, kind)


def is_sparse(features: Any) -> bool:
    """Whether features are CSR arrays."""
    if isinstance(features, GraphRandomFeatures):
        return features.n_components is None
    return bool(features.sparse_output)


def _transformed(features: Any, block: Any, side: str | None) -> Any:
    return features.transform(block) if side is None else features.transform(block, side)


@contextlib.contextmanager
def _recorded(features: Any) -> Iterator[list[Warning]]:
    """Warnings of the block, which has all threads of the worker."""
    with _ALL_THREADS, recorded_warnings() as found:
        features.n_jobs = require("distributed", "dask").get_worker().state.nthreads
        yield found


def rows_of_block(side: str | None, held: Held, block: Any) -> tuple[Any, list[Warning]]:
    """Features of a block of points, and the warnings about them."""
    with _recorded(held.value) as told:
        rows = _transformed(held.value, block, side)
    return rows, told


@dataclass(frozen=True)
class Piece:
    """Rows of a file of points that become one file of features."""

    source: Path
    target: Path
    begin: int
    end: int


def pieces_of(features: Any, source: Path, folder: Path, rows: int | None) -> Iterator[Piece]:
    """The file whole, or in pieces of so many rows."""
    if source.suffix.lower() != ".npy":  # in others no row is reached without those before it
        reject("files", "npy files", repr(source.name))
    opened = open_rows(source, "files")
    if opened.n_columns != features.n_features_in_:
        reject("files", f"arrays of {features.n_features_in_} columns", f"{opened.n_columns} in {source.name!r}")
    n = int(opened.n_rows or 0)
    suffix = ".npz" if is_sparse(features) else ".npy"
    if rows is None:
        yield Piece(source.resolve(), folder / f"{source.stem}{suffix}", 0, n)
        return
    for begin in range(0, max(1, n), check_integer(rows, "rows", 1)):  # a file without points has one piece, too
        name = f"{source.stem}-{begin:012d}{suffix}"  # in order, also where names are sorted
        yield Piece(source.resolve(), folder / name, begin, min(n, begin + rows))


def write_piece(side: str | None, held: Held, piece: Piece) -> list[Warning]:
    """Write the features of a piece, a block of rows in memory at once."""
    points, features = read_points(piece.source, "files"), held.value
    size = max(1, _BLOCK_ENTRIES // features.n_features_out_)
    found: list[Warning] = []
    with row_writer(piece.target, features.n_features_out_, points.dtype, sparse=is_sparse(features)) as writer:
        for start in range(piece.begin, piece.end, size):
            rows, told = rows_of_block(side, held, np.asarray(points[start : min(start + size, piece.end)]))
            writer.append(rows)
            found += told
    return found
