"""Signatures and features on a Dask cluster.

A task is a batch of start nodes or a block of points. The graph or the features, which all tasks read, are sent to
the workers once. Random numbers depend only on the seed and the start node, and the parts are combined here, so
results are bit for bit those of one machine. If a worker dies, only time is lost.
"""

import contextlib
import copy
import dataclasses
import functools
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from manifoldrf._arrays import open_rows, read_points, row_writer
from manifoldrf._files import as_path, writable_folder
from manifoldrf._random import SeedLike
from manifoldrf._runtime import recorded_warnings, require, warn_user
from manifoldrf._validation import IntArray, check_flag, check_integer, check_jobs, check_option, reject
from manifoldrf.features.graph_features import GraphRandomFeatures
from manifoldrf.features.graph_kernel import FarQueryWarning
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.action import AnyGraph
from manifoldrf.signatures.engines import Progress, Recipe, chunk_worker, own_worker, row_memory
from manifoldrf.signatures.teachers import OwnTeacher, Signatures, check_kernel, series_of, signatures_by

__all__ = ["Cluster"]

_EXTRA = "dask"
_SHARES = 4  # batches per thread of the cluster, so that all workers finish at about the same time
_BATCH_BYTES = 2**26  # memory of the rows of a batch
_BATCH_UNIT = 32  # exact rows are computed in blocks of this size
_MOST_BLOCKS = 64  # blocks of features under way at once; waiting blocks take memory here
_ENTRY_BYTES = 24  # per entry of a sparse row during the computation: node, value, variance
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
    def sent(self, client: Any, graph: AnyGraph, *, whole: bool) -> "Iterator[Sent]":
        """The graph on the workers, without its points unless ``whole``."""
        if self._graph is None or self._graph() is not graph or self._whole != whole:
            self.forget()
        bare = graph
        if isinstance(graph, Graph) and not whole:  # rows of a series only need the matrix
            bare = dataclasses.replace(graph, points=None, metric=None, extension=None, weights=None)
        found = Sent(client, bare, self._future)
        yield found
        me = weakref.ref(self)

        def gone(reference: "weakref.ref[AnyGraph]") -> None:
            """Remove the graph from the workers when it is garbage collected here."""
            kept = me()
            if kept is not None and kept._graph is reference:
                kept.forget()

        self._graph, self._whole, self._future = weakref.ref(graph, gone), whole, found.place


@dataclass(frozen=True, eq=False)
class Cluster:
    """A Dask cluster that computes signatures and features, bit for bit like one machine.

    Parameters
    ----------
    client : dask.distributed.Client, cluster object, or address
        For example ``Client()``, ``LocalCluster()``, ``KubeCluster(...)`` or ``"tcp://10.0.0.1:8786"``.
        :meth:`close` and the end of a ``with`` block close a client that was created here, but not a given one.
    batch : int or "auto", default="auto"
        Number of start nodes of one task. "auto": four tasks for each thread of the cluster, or more if the rows of
        a task would take over 64 MB.

    Notes
    -----
    Needs the extra ``dask`` here, and the same version of manifoldrf on all workers. The graph stays on the workers
    for the next call until another graph is used, it is garbage collected, or :meth:`close` is called. Each worker
    needs memory for the graph, without its points, and for one batch per thread.

    Examples
    --------
    >>> from dask.distributed import LocalCluster
    >>> from manifoldrf import Cluster, DiffusionKernel, Sphere, compute_signatures, knn_graph
    >>> graph, kernel = knn_graph(Sphere().grid(500)), DiffusionKernel(10.0)
    >>> with LocalCluster(processes=False, dashboard_address=":0") as local, Cluster(local) as cluster:
    ...     found = cluster.signatures(graph, kernel, teacher="counts", seed=0)
    >>> here = compute_signatures(graph, kernel, teacher="counts", seed=0)
    >>> bool((found.rows != here.rows).nnz == 0)
    True
    """

    client: Any
    batch: int | str = "auto"
    _own: bool = field(default=False, init=False, repr=False)
    _kept: Kept = field(default_factory=Kept, init=False, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.batch, str):
            check_option(self.batch, "batch", ("auto",))
        else:
            check_integer(self.batch, "batch", 1)
        client = connected(self.client)
        object.__setattr__(self, "_own", client is not self.client)
        object.__setattr__(self, "client", client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the graph from the workers and close the client if it was created here."""
        self._kept.forget()
        if self._own:
            self.client.close()

    def signatures(
        self,
        graph: AnyGraph,
        kernel: AbstractKernel,
        nodes: ArrayLike | None = None,
        *,
        teacher: str | OwnTeacher = "auto",
        asymmetric: bool = False,
        seed: SeedLike = None,
        n_jobs: int = 1,
        progress: Progress = lambda what, done, total: None,
        **options: Any,
    ) -> Signatures:
        """Signatures of nodes, bit for bit those of :func:`compute_signatures` with the same arguments.

        Parameters
        ----------
        graph : Graph or GeneralizedAdjacency
        kernel : AbstractKernel
        nodes : array-like of int, optional
        teacher : str or callable, default="auto"
            Chosen once for all nodes. A custom function gets one batch of nodes at a time.
        asymmetric : bool, default=False
        seed : None, int, Generator or RandomState
        n_jobs : int, default=1
            Threads of one task. A worker runs one task per thread, so 1 uses all threads.
        progress : callable (what, done, total)
        **options
            Options of the teacher.

        Returns
        -------
        signatures : Signatures
        """
        check_jobs(n_jobs)

        def run(recipe: Any, graph: AnyGraph, nodes: Any, stage: str) -> list[Any]:
            is_sparse = recipe.func is chunk_worker
            # Options are already checked; those of a custom teacher may mean anything.
            n_powers = int(options["max_length"]) + 1 if options.get("keep_lengths") and is_sparse else 1

            def row_bytes(n: int) -> float:
                """Bytes of the rows of a start; their reach is estimated only if n full rows could be too many."""
                most = float(_ENTRY_BYTES if is_sparse else 8) * graph.n_nodes * n_powers
                if not is_sparse or n * most <= _BATCH_BYTES:
                    return most
                series = series_of(check_kernel(kernel).on(graph), asymmetric=asymmetric)
                # A CSR array has 12 bytes per entry.
                return min(most, row_memory(graph, series) / 12 * _ENTRY_BYTES * n_powers)

            size: Any = self.batch
            if size == "auto":
                share = -(-len(nodes) // (_SHARES * n_threads(self.client)))
                fitting = min(share, int(_BATCH_BYTES / row_bytes(share)))
                size = max(_BATCH_UNIT, fitting // _BATCH_UNIT * _BATCH_UNIT)
            batches = [nodes[k : k + size] for k in range(0, max(1, len(nodes)), size)]
            task = functools.partial(rows_of_batch, uuid.uuid4().hex, recipe, n_jobs)
            count = Counter(progress, stage, len(nodes))
            with self._kept.sent(self.client, graph, whole=recipe.func is own_worker) as sent:
                flow = Flow(self.client, task, sent, lambda batch: count.add(len(batch)))
                return list(flow.results(batches))

        return signatures_by(run, graph, kernel, nodes, options, teacher=teacher, asymmetric=asymmetric, seed=seed)

    def fit(self, features: Any, X: Any = None, y: Any = None) -> Any:
        """Fit features with signatures from the cluster; bit for bit ``features.fit(X)``.

        Parameters
        ----------
        features : ManifoldRandomFeatures or GraphRandomFeatures
            The latter compute signatures in ``transform``, so their fit runs here.
        X : as for ``features.fit``
        y : ignored

        Returns
        -------
        features
            The given object.
        """
        del y
        if isinstance(_check_features(features), GraphRandomFeatures):
            return features.fit(X)
        # The number of threads of a fit applies to this machine only.
        return features._fit(X, lambda *given, n_jobs, **named: self.signatures(*given, **named))

    def transform(self, features: Any, X: Any, side: str | None = None) -> Any:
        """Features of the rows of a dask array, as a lazy dask array with the same blocks.

        Bit for bit ``features.transform`` of the same rows; compressed graph features agree up to rounding. The
        features are sent once for all blocks and stay on the workers as long as the result is in use. Warnings
        about points far from the space appear in the logs of the workers.

        Parameters
        ----------
        features : fitted ManifoldRandomFeatures or GraphRandomFeatures
        X : dask array of shape (q, d)
            Its blocks are blocks of rows; ``X.rechunk({1: -1})`` joins blocks of columns.
        side : {"left", "right"}, optional
            As for ``features.transform``.

        Returns
        -------
        features : dask array of shape (q, m)
            Its blocks are CSR arrays if ``features.transform`` returns them.
        """
        arrays = require("dask.array", _EXTRA)
        if not isinstance(X, arrays.Array) or X.ndim != 2:
            shape = f" of shape {X.shape}" if hasattr(X, "shape") else ""
            reject("X", "a dask array of shape (q, d)", f"{type(X).__name__}{shape}", TypeError)
        if len(X.chunks[1]) > 1:
            reject("X", "in blocks of rows only, use X.rechunk({1: -1})", f"{len(X.chunks[1])} blocks of columns")
        width = getattr(_check_fitted(features, side), "n_features_in_", 1)
        if X.shape[1] != width:
            reject("X", f"an array of {width} columns", X.shape[1])
        # A task instead of plain data: if its worker dies, the scheduler computes it again.
        settings = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}  # large on purpose, sent once
        with require("dask", _EXTRA).config.set(settings):
            sent = self.client.submit(itself, travelling(features), pure=False)
        kind = np.float32 if X.dtype == np.float32 else np.float64
        return X.map_blocks(
            features_of_block,
            sent,
            side,
            chunks=(X.chunks[0], (features.n_features_out_,)),
            meta=sparse.csr_array((0, 0), dtype=kind) if is_sparse(features) else np.zeros((0, 0), kind),
        )

    def transform_files(
        self,
        features: Any,
        files: str | PathLike[str] | Sequence[str | PathLike[str]],
        folder: str | PathLike[str],
        *,
        rows: int | None = None,
        side: str | None = None,
        resume: bool = False,
        progress: Progress = lambda what, done, total: None,
    ) -> list[Path]:
        """Transform files of points to files of features on the workers, on a shared file system.

        Files may be larger than memory. A file appears only when it is complete. After an error the complete files
        stay.

        Parameters
        ----------
        features : fitted ManifoldRandomFeatures
        files : path or sequence of paths
            .npy files of points of shape (q, d).
        folder : path
            For the results: ``name.npy`` or, with ``sparse_output``, ``name.npz`` in the format of scipy.
        rows : int, optional
            Split every file into pieces of this many rows. Each is a task and a file ``name-000000000000.npy`` with
            the number of its first row.
        side : {"left", "right"}, optional
            As for ``features.transform``.
        resume : bool, default=False
            Whether to keep existing files, from an interrupted run with the same features.
        progress : callable (what, done, total)

        Returns
        -------
        paths : list of Path
            The files, in the order of the points.
        """
        if isinstance(_check_fitted(features, side), GraphRandomFeatures):
            reject("features", "ManifoldRandomFeatures", type(features).__name__, TypeError)
        target = writable_folder(folder).resolve()
        given = list(files) if isinstance(files, Iterable) and not isinstance(files, str | PathLike) else [files]
        pieces = [piece for path in given for piece in pieces_of(features, as_path(path, "files"), target, rows)]
        paths = [piece.target for piece in pieces]
        _check_distinct(paths, [piece.source for piece in pieces])
        kept = {path for path in paths if path.exists()} if check_flag(resume, "resume") else set()
        missing = [piece for piece in pieces if piece.target not in kept]
        count = Counter(progress, "files", len(paths), len(kept))
        task = functools.partial(write_piece, side)
        flow = Flow(self.client, task, Sent(self.client, travelling(features)), lambda piece: count.add(1))
        found = [warning for part in flow.results(missing) for warning in part]
        _warn_once(found, sum(piece.end - piece.begin for piece in missing))
        return paths


def transform_blocks(
    cluster: Cluster, features: Any, blocks: Iterable[Any], side: str | None
) -> Iterator[tuple[Any, list[Warning]]]:
    """Features of blocks of points in order, with their warnings; a limited number is under way at once."""
    sent = Sent(cluster.client, travelling(features))
    task = functools.partial(rows_of_block, side)
    yield from Flow(cluster.client, task, sent, most=_MOST_BLOCKS).results(blocks)


def _check_features(features: Any) -> Any:
    if not isinstance(features, ManifoldRandomFeatures | GraphRandomFeatures):
        rule = "ManifoldRandomFeatures or GraphRandomFeatures"
        reject("features", rule, type(features).__name__, TypeError)
    return features


def _check_fitted(features: Any, side: str | None) -> Any:
    """Check that features are fitted and have the side, before workers are involved."""
    is_graph = isinstance(_check_features(features), GraphRandomFeatures)
    check_is_fitted(features, "streams_" if is_graph else "map_")
    if not is_graph:
        features._check_side(side)
    elif side is not None:
        reject("side", "left out with GraphRandomFeatures", repr(side))
    return features


def _check_distinct(targets: list[Path], sources: list[Path]) -> None:
    """Refuse files of features with equal names or the name of a file of points."""
    seen = set(sources)
    for path in targets:
        if path in seen:
            reject("files", "files with different names, outside the folder of the features", path.name)
        seen.add(path)


def _warn_once(found: list[Warning], n_points: int) -> None:
    """Repeat the warnings of workers once each; those about far points are added up."""
    far = [warning for warning in found if isinstance(warning, FarQueryWarning)]
    if far:
        fading, gone = (sum(getattr(warning, name) for warning in far) for name in ("fading", "gone"))
        warn_user(FarQueryWarning(fading, gone, n_points))
    for text, kind in {str(warning): type(warning) for warning in found if warning not in far}.items():
        warn_user(text, kind)


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


def rows_of_block(side: str | None, held: Held, block: Any) -> tuple[Any, list[Warning]]:
    """Features of a block of points by all threads of the worker, and the warnings."""
    with _ALL_THREADS, recorded_warnings() as found:
        held.value.n_jobs = require("distributed", "dask").get_worker().state.nthreads
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


@dataclass(eq=False)
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

    client: Any
    function: Callable[[Any, Any], Any]
    shared: Sent
    finished: Callable[[Any], None] = lambda item: None
    most: int | None = None
    _pending: dict[Any, _Task] = field(default_factory=dict, init=False)
    _ready: dict[int, Any] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        distributed = require("distributed", "dask")
        self._completed = distributed.as_completed(loop=self.client.loop)
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
            pending, self._pending = list(self._pending), {}
            self._ready.clear()
            if pending:
                # An error of a lost connection must not hide the original error.
                with contextlib.suppress(Exception):
                    self.client.cancel(pending, force=True)

    def _fill(self, numbered: Iterator[tuple[int, Any]]) -> None:
        room = _AHEAD * n_threads(self.client) - len(self._pending)
        if self.most is not None:
            room = min(room, self.most - len(self._pending) - len(self._ready))
        for _ in range(room):
            number, item = next(numbered, (-1, None))
            if number < 0:
                return
            self._submit(_Task(number, item, self.shared.future()))

    def _submit(self, task: _Task) -> None:
        with _reaching(self.client):
            future = self.client.submit(self.function, task.shared, task.item, pure=False)
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
        except (CancelledError, self._closed) as error:  # it was lost with its worker or its data
            _check_running(self.client, error)
            n_losses = task.n_losses + 1
            if n_losses >= _MOST_LOSSES:
                _give_up("A task", n_losses, error)
            # A task is cancelled if its data are gone. If only the connection failed, they are still there.
            lost = task.shared if isinstance(error, CancelledError) else None
            self._submit(dataclasses.replace(task, shared=self.shared.future(lost), n_losses=n_losses))
            return
        finally:
            # A future keeps the error of its task, whose traceback keeps the future: without this the shared data
            # would stay on the workers.
            future.release()
        self._ready[task.number] = result
        self.finished(task.item)
