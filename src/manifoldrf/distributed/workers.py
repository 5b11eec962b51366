"""The parts of :class:`Cluster`: the connection to a scheduler, the tasks of workers, and the flow of tasks."""

import contextlib
import copy
import dataclasses
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from scipy import sparse

from manifoldrf._arrays import open_rows, read_points, row_writer
from manifoldrf._runtime import recorded_warnings, require
from manifoldrf._validation import IntArray, check_integer, check_jobs, reject
from manifoldrf.features.graph_features import GraphRandomFeatures
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels.action import AnyGraph
from manifoldrf.signatures.engines import Progress, Recipe

_EXTRA = "dask"
_ANSWER = 10  # seconds until a scheduler must have answered
_PARTING = 5  # seconds for a client without connection to end its thread
_ARRIVAL = 60  # seconds until a worker must have come: a restart takes a few
_PAUSE = 0.5  # seconds, for the scheduler to notice that a worker died while data were sent to it
_AHEAD = 2  # tasks sent per thread: while one is computed, the next waits on the worker
_MOST_LOSSES = 5  # after so many lost workers the task or the data are probably the cause
_BLOCK_ENTRIES = 2**23  # features in the memory of a worker at once: 64 MB
_ALL_THREADS = threading.Lock()  # one block at a time uses all threads of a worker, and the memory of one block

_NO_SCHEDULER = "The connection to the scheduler of the cluster was lost."
_CERTIFICATES = (
    "Addresses of encrypted schedulers begin with tls://, and their certificates must be configured: set "
    "`distributed.comm.tls` in the configuration of Dask, or pass a Client made with `security`."
)


def connected(client: Any) -> Any:
    """Return a client: the given one, or a new one for a cluster or an address."""
    distributed = require("distributed", _EXTRA)
    if isinstance(client, distributed.Client):
        if client.asynchronous:
            reject("client", "a client that is not asynchronous", repr(client))
        return client
    rule = "a Client or a cluster of dask.distributed, or the address of a scheduler, such as 'tcp://10.0.0.1:8786'"
    if not isinstance(client, str) and not hasattr(client, "scheduler_address"):
        reject("client", rule, repr(client), TypeError)
    try:
        return _made(distributed, client)
    except (OSError, RuntimeError) as error:
        _explain(client, error)
    except (ValueError, TypeError) as error:
        if isinstance(error, TypeError) and str(client).startswith("tls://"):
            raise ConnectionError(_no_connection(client, "no certificates are set")) from error
        reject("client", rule, f"{client!r}: {error}")


def _made(distributed: Any, address: Any) -> Any:
    """Return a connected client. Without connection, end its thread and make sure Dask does not use it."""
    client = distributed.Client.__new__(distributed.Client)
    try:
        client.__init__(address, timeout=_ANSWER)
    except BaseException:
        with contextlib.suppress(Exception):
            client.close(timeout=_PARTING)
        with contextlib.suppress(Exception):
            client._loop_runner.stop()  # a client that failed to close leaves it running
        raise
    return client


def _explain(client: Any, error: OSError | RuntimeError) -> NoReturn:
    """Raise one error that names the reason."""
    if isinstance(error, RuntimeError):
        if isinstance(client, str):
            raise error
        reject("client", "a cluster that is not closed", f"{client!r}: {error}")
    if type(error) in (OSError, TimeoutError):  # a timeout; other errors come at once
        text = f"No scheduler answers at {client!r} within {_ANSWER} seconds; is `dask scheduler` running there?"
        raise ConnectionError(text) from error
    reason: BaseException = error
    while reason.__cause__ is not None:
        reason = reason.__cause__
    raise ConnectionError(_no_connection(client, reason)) from error


def _no_connection(client: Any, reason: object) -> str:
    return f"No connection to the scheduler at {client!r}: {reason}. {_CERTIFICATES}"


class Held:
    """A large object on a worker, with the last result computed from it.

    Parameters
    ----------
    value : object
        A graph or features; only this is sent.
    size : int
        Its bytes, which Dask cannot know.
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
        """``make(value)``, cached until another name is used; concurrent threads may compute it twice."""
        kept = self._made
        if kept[0] != name:
            kept = self._made = (name, make(self.value))
        return kept[1]


def size_of(value: Any) -> int:
    """Size of a pickled object in bytes, without a copy of its arrays."""
    buffers: list[Any] = []
    frame: bytes = require("distributed.protocol.pickle", "dask").dumps(value, buffer_callback=buffers.append)
    return len(frame) + sum(int(buffer.raw().nbytes) for buffer in buffers)


def travelling(features: Any) -> Any:
    """A copy of the features to send: one thread, because tasks share the worker's, and no progress output."""
    sent = copy.copy(features)
    sent.n_jobs = 1
    if hasattr(sent, "verbose"):
        sent.verbose = False
    return sent


def itself(value: Any) -> Any:
    """Return the value: a task that brings it to a worker."""
    return value


def rows_of_batch(name: str, recipe: Recipe, n_jobs: int, held: Held, nodes: IntArray) -> Any:
    """Signatures of some start nodes."""
    return held.made(name, recipe)(nodes, check_jobs(n_jobs), lambda what, done, total: None)


def features_of_block(block: Any, features: Any, side: str | None) -> Any:
    """Features of a block of a dask array, which may be empty."""
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
    """Record warnings and use all threads of the worker."""
    with _ALL_THREADS, recorded_warnings() as found:
        features.n_jobs = require("distributed", "dask").get_worker().state.nthreads
        yield found


def rows_of_block(side: str | None, held: Held, block: Any) -> tuple[Any, list[Warning]]:
    """Features of a block of points, and the warnings."""
    with _recorded(held.value) as found:
        rows = _transformed(held.value, block, side)
    return rows, found


@dataclass(frozen=True)
class Piece:
    """Rows of a file of points that become one file of features."""

    source: Path
    target: Path
    begin: int
    end: int


def pieces_of(features: Any, source: Path, folder: Path, rows: int | None) -> Iterator[Piece]:
    """The whole file, or pieces of ``rows`` rows."""
    if source.suffix.lower() != ".npy":  # other formats cannot be read from the middle
        reject("files", "npy files", repr(source.name))
    opened = open_rows(source, "files")
    if opened.n_columns != features.n_features_in_:
        reject("files", f"arrays of {features.n_features_in_} columns", f"{opened.n_columns} in {source.name!r}")
    n = int(opened.n_rows or 0)
    suffix = ".npz" if is_sparse(features) else ".npy"
    if rows is None:
        yield Piece(source.resolve(), folder / f"{source.stem}{suffix}", 0, n)
        return
    for begin in range(0, max(1, n), check_integer(rows, "rows", 1)):  # an empty file has one piece, too
        name = f"{source.stem}-{begin:012d}{suffix}"  # sorted names are in the order of the rows
        yield Piece(source.resolve(), folder / name, begin, min(n, begin + rows))


def write_piece(side: str | None, held: Held, piece: Piece) -> list[Warning]:
    """Write the features of a piece, one block of rows at a time."""
    points, features = read_points(piece.source, "files"), held.value
    size = max(1, _BLOCK_ENTRIES // features.n_features_out_)
    found: list[Warning] = []
    with row_writer(piece.target, features.n_features_out_, points.dtype, sparse=is_sparse(features)) as writer:
        for start in range(piece.begin, piece.end, size):
            rows, caught = rows_of_block(side, held, np.asarray(points[start : min(start + size, piece.end)]))
            writer.append(rows)
            found += caught
    return found


def n_threads(client: Any) -> int:
    """Number of threads of all current workers, at least 1."""
    with _reaching(client):
        return max(1, sum(map(int, client.nthreads().values())))


@contextlib.contextmanager
def _reaching(client: Any) -> Iterator[None]:
    """Turn the various errors of a lost scheduler into one."""
    _check_running(client)  # a call without connection would wait half a minute
    try:
        yield
    except OSError as error:
        raise ConnectionError(_NO_SCHEDULER) from error
    except Exception as error:
        _check_running(client, error)
        raise


def _check_running(client: Any, error: BaseException | None = None) -> None:
    if client.status != "running":
        raise ConnectionError(_NO_SCHEDULER) from error


def _give_up(what: str, n_losses: int, error: BaseException) -> NoReturn:
    raise ConnectionError(
        f"{what} was lost {n_losses} times, each time with its worker. Causes: (a) workers with too little memory "
        "for the graph and a batch, (b) machines that are taken away. Remedies: a smaller `batch`, fewer threads "
        "per worker, more memory."
    ) from error


class Sent:
    """A large object that all tasks read: sent to the workers once, and again if all its copies are lost."""

    def __init__(self, client: Any, value: Any, future: Any = None) -> None:
        self._client = client
        self._value = value
        self.place = future

    def future(self, lost: Any = None) -> Any:
        """The future of the object; a new one if the current is lost."""
        if self.place is None or self.place is lost or self.place.status != "finished":
            self.place = self._scatter()
        return self.place

    def _scatter(self) -> Any:
        held = Held(self._value, size_of(self._value))
        n_losses = 0
        while True:
            try:
                self._client.wait_for_workers(1, _ARRIVAL)
                # To one worker, from which others copy it: a broadcast would hang if a worker died meanwhile.
                return self._client.scatter(held, hash=False, timeout=_ARRIVAL)
            except TimeoutError as error:
                where = self._client.scheduler.address
                text = f"No worker connected to the scheduler at {where} within {_ARRIVAL} seconds."
                raise ConnectionError(text) from error
            except (OSError, KeyError) as error:  # its worker died: connection closed, or address unknown
                _check_running(self._client, error)
                n_losses += 1
                if n_losses >= _MOST_LOSSES:
                    _give_up("The shared object", n_losses, error)
            time.sleep(_PAUSE)


class Kept:
    """The graph on the workers, kept as long as it is in use."""

    def __init__(self) -> None:
        self._graph: weakref.ref[AnyGraph] | None = None
        self._whole = False
        self._future: Any = None

    def forget(self) -> None:
        """Remove it from the workers."""
        self._graph = self._future = None

    @contextlib.contextmanager
    def sent(self, client: Any, graph: AnyGraph, *, whole: bool) -> Iterator[Sent]:
        """The graph on the workers, without its points unless ``whole``."""
        if self._graph is None or self._graph() is not graph or self._whole != whole:
            self.forget()
        found = Sent(client, graph if whole else _bare(graph), self._future)
        yield found
        self._graph, self._whole, self._future = self._watch(graph), whole, found.place

    def _watch(self, graph: AnyGraph) -> "weakref.ref[AnyGraph]":
        """A weak reference that removes the graph from the workers when it is garbage collected here."""
        me = weakref.ref(self)

        def gone(reference: "weakref.ref[AnyGraph]") -> None:
            kept = me()
            if kept is not None and kept._graph is reference:
                kept.forget()

        return weakref.ref(graph, gone)


def _bare(graph: AnyGraph) -> AnyGraph:
    """The graph without points: rows of a series only need the matrix."""
    if not isinstance(graph, Graph):
        return graph
    return dataclasses.replace(graph, points=None, metric=None, extension=None, weights=None)


class Counter:
    """Reports progress by the sizes of finished tasks, in any order."""

    def __init__(self, progress: Progress, what: str, total: int, done: int = 0) -> None:
        self._progress, self._what, self._total, self._done = progress, what, total, done

    def add(self, n: int) -> None:
        """Count n more as done."""
        self._done += n
        self._progress(self._what, self._done, self._total)


@dataclass(frozen=True, eq=False)
class _Task:
    number: int
    item: Any
    shared: Any  # future of the object it reads
    n_losses: int = 0


class Flow:
    """Results of ``function(shared, item)`` for many items.

    Parameters
    ----------
    client : dask.distributed.Client
    function : callable
        Must be picklable.
    shared : Sent
    finished : callable (item), optional
        Called as results arrive, in any order.
    most : int, optional
        Limit on running tasks plus results that wait for their turn.
    """

    def __init__(
        self,
        client: Any,
        function: Callable[[Any, Any], Any],
        shared: Sent,
        finished: Callable[[Any], None] = lambda item: None,
        *,
        most: int | None = None,
    ) -> None:
        distributed = require("distributed", "dask")
        self._client = client
        self._function = function
        self._shared = shared
        self._finished = finished
        self._most = most
        self._pending: dict[Any, _Task] = {}
        self._ready: dict[int, Any] = {}
        self._completed = distributed.as_completed(loop=client.loop)
        self._closed = distributed.comm.CommClosedError
        self._killed = distributed.KilledWorker

    def results(self, items: Iterable[Any]) -> Iterator[Any]:
        """Results in the order of the items; an error or Ctrl-C cancels the remaining tasks."""
        numbered = enumerate(items)
        expected = 0
        try:
            while True:
                self._fill(numbered)
                if expected in self._ready:
                    yield self._ready.pop(expected)
                    expected += 1
                elif self._pending:
                    self._collect()
                else:
                    return
        except self._closed as error:
            raise ConnectionError(_NO_SCHEDULER) from error
        finally:
            self._drop()

    def _fill(self, numbered: Iterator[tuple[int, Any]]) -> None:
        room = _AHEAD * n_threads(self._client) - len(self._pending)
        if self._most is not None:
            room = min(room, self._most - len(self._pending) - len(self._ready))
        for _ in range(room):
            number, item = next(numbered, (-1, None))
            if number < 0:
                return
            self._submit(_Task(number, item, self._shared.future()))

    def _submit(self, task: _Task) -> None:
        with _reaching(self._client):
            future = self._client.submit(self._function, task.shared, task.item, pure=False)
        self._pending[future] = task
        self._completed.add(future)

    def _collect(self) -> None:
        """Wait for one result."""
        future = next(self._completed)
        task = self._pending.pop(future)
        try:
            result = future.result()
        except self._killed as error:  # Dask itself already tried several workers
            _give_up("A task", error.allowed_failures + 1, error)
        except (CancelledError, self._closed) as error:
            self._again(task, error)
            return
        finally:
            # A future keeps the error of its task, whose traceback keeps the future: without this the shared data
            # would stay on the workers.
            future.release()
        self._ready[task.number] = result
        self._finished(task.item)

    def _again(self, task: _Task, error: BaseException) -> None:
        """Submit a task again that was lost with its worker or its data."""
        _check_running(self._client, error)
        n_losses = task.n_losses + 1
        if n_losses >= _MOST_LOSSES:
            _give_up("A task", n_losses, error)
        # A task is cancelled if its data are gone. If only the connection failed, they are still there.
        lost = task.shared if isinstance(error, CancelledError) else None
        self._submit(dataclasses.replace(task, shared=self._shared.future(lost), n_losses=n_losses))

    def _drop(self) -> None:
        pending, self._pending = list(self._pending), {}
        self._ready.clear()
        if pending:
            # An error of a lost connection must not hide the original error.
            with contextlib.suppress(Exception):
                self._client.cancel(pending, force=True)
