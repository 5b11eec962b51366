"""Signatures and features on a Dask cluster.

A task is a batch of start nodes or a block of points. The graph or the features, which all tasks read, are the
result of a task of their own, so the scheduler makes them again if their worker dies. Random numbers depend only on
the seed and the start node, and the parts are combined here in order, so results are bit for bit those of one
machine.
"""

import contextlib
import copy
import functools
import itertools
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from manifoldrf._random import SeedLike
from manifoldrf._runtime import Progress, recorded_warnings, require, silent
from manifoldrf._validation import IntArray, check_count, check_jobs, reject
from manifoldrf.features.graph_features import GraphRandomFeatures
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.signatures.teachers import Plan, Signatures, Teacher, make_plan

__all__ = ["Cluster"]

_TASKS_PER_THREAD = 4  # under way at once; also the shares of a thread, so that all workers finish about together


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
    for the next call until another graph is used or :meth:`close` is called. Each worker needs memory for the graph
    and for one batch per thread. If a worker is killed, only time is lost; Dask gives up a task that killed four.

    Examples
    --------
    >>> from dask.distributed import LocalCluster
    >>> from manifoldrf import Cluster, Counts, DiffusionKernel, Sphere, compute_signatures, knn_graph
    >>> graph, kernel = knn_graph(Sphere().grid(500)), DiffusionKernel(10.0)
    >>> with LocalCluster(processes=False, dashboard_address=":0") as local, Cluster(local) as cluster:
    ...     there = cluster.signatures(graph, kernel, teacher=Counts(), seed=0)
    >>> here = compute_signatures(graph, kernel, teacher=Counts(), seed=0)
    >>> bool((there.rows != here.rows).nnz == 0)
    True
    """

    client: Any
    batch: int | str = "auto"
    _own: bool = field(default=False, init=False, repr=False)
    _sent: dict[str, Any] = field(default_factory=dict, init=False, repr=False)  # the last graph and its future

    def __post_init__(self) -> None:
        check_count(self.batch, "batch", 1, ("auto",))
        client = _connected(self.client)
        object.__setattr__(self, "_own", client is not self.client)
        object.__setattr__(self, "client", client)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the graph from the workers and close the client if it was created here."""
        self._sent.clear()
        if self._own:
            self.client.close()

    def signatures(
        self,
        graph: Graph,
        kernel: AbstractKernel,
        nodes: ArrayLike | None = None,
        *,
        teacher: Teacher = "auto",
        asymmetric: bool = False,
        seed: SeedLike = None,
        n_jobs: int = 1,
        progress: Progress = silent,
    ) -> Signatures:
        """Signatures of nodes, bit for bit those of :func:`compute_signatures` with the same arguments.

        The teacher is chosen once for all nodes; a function as teacher gets one batch of nodes at a time.
        ``n_jobs`` are the threads of one task: a worker runs one task per thread, so 1 uses all of them.
        """
        start, _ = time.perf_counter(), check_jobs(n_jobs)
        plan, picked = make_plan(graph, kernel, nodes, teacher, asymmetric=asymmetric, seed=seed)
        size: Any = self.batch
        if size == "auto":  # exact rows are computed in blocks of 32; an entry takes up to 24 bytes on the way
            share = -(-len(picked) // (_TASKS_PER_THREAD * self._n_threads()))
            size = max(32, min(share, 2**26 // (24 * graph.n_nodes)) // 32 * 32)
        batches = [picked[k : k + size] for k in range(0, max(1, len(picked)), size)]
        if self._sent.get("graph") is not graph or self._sent["future"].cancelled():
            self._sent.update(graph=graph, future=self._send(_Held(graph)))
        task = functools.partial(_rows_of_batch, uuid.uuid4().hex, plan, n_jobs)
        parts, done = [], 0
        for batch, part in zip(batches, self._results(task, self._sent["future"], batches), strict=True):
            parts.append(part)
            done += len(batch)
            progress("signatures", done, len(picked))
        return plan.joined(parts, picked, start)

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

        Bit for bit ``features.transform`` of the same rows. The features are sent once for all blocks and stay on
        the workers as long as the result is in use. Warnings about points far from the space appear in the logs of
        the workers.

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
        arrays = require("dask.array", "dask")
        if not isinstance(X, arrays.Array) or X.ndim != 2:
            shape = f" of shape {X.shape}" if hasattr(X, "shape") else ""
            reject("X", "a dask array of shape (q, d)", f"{type(X).__name__}{shape}", TypeError)
        if len(X.chunks[1]) > 1:
            reject("X", "in blocks of rows only, use X.rechunk({1: -1})", f"{len(X.chunks[1])} blocks of columns")
        sent = self._send(_travelling(features, side))
        width = getattr(features, "n_features_in_", 1)
        if X.shape[1] != width:
            reject("X", f"an array of {width} columns", X.shape[1])
        chunks = (X.chunks[0], (features.n_features_out_,))
        empty = _no_rows(features, X.dtype)
        return X.map_blocks(_features_of_block, sent, side, empty, chunks=chunks, meta=empty)

    def transform_blocks(self, features: Any, blocks: Iterable[Any], side: str | None = None) -> Iterator[Any]:
        """Features of blocks of points in order, each with the list of its warnings; few are under way at once."""
        sent = self._send(_travelling(features, side))
        return self._results(functools.partial(_features_and_warnings, side), sent, blocks)

    def _n_threads(self) -> int:
        """Number of threads of all current workers, at least 1."""
        with self._reaching():
            return max(1, sum(map(int, self.client.nthreads().values())))

    def _send(self, value: Any) -> Any:
        """The future of a task that brings a value to a worker, from which others copy it."""
        try:
            self.client.wait_for_workers(1, timeout=60)  # a restart takes a few seconds
        except TimeoutError as error:
            where = self.client.scheduler.address
            raise ConnectionError(f"No worker connected to the scheduler at {where} within 60 seconds.") from error
        settings = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}  # large on purpose, sent once
        with self._reaching(), require("dask", "dask").config.set(settings):
            return self.client.submit(_itself, value, pure=False)

    def _results(self, function: Callable[..., Any], shared: Any, items: Iterable[Any]) -> Iterator[Any]:
        """Results of ``function(shared, item)`` in the order of the items; an error or Ctrl-C cancels the rest."""
        remaining, pending = iter(items), deque[Any]()
        try:
            while True:
                room = max(0, _TASKS_PER_THREAD * self._n_threads() - len(pending))  # workers may have gone
                for item in itertools.islice(remaining, room):
                    pending.append(self.client.submit(function, shared, item, pure=False))
                if not pending:
                    return
                with self._reaching():
                    result = pending[0].result()
                pending.popleft().release()
                yield result
        finally:
            if pending:
                with contextlib.suppress(Exception):  # a lost connection must not hide the first error
                    self.client.cancel(list(pending), force=True)

    @contextlib.contextmanager
    def _reaching(self) -> Iterator[None]:
        """Turn the various errors of a lost scheduler, and of workers that die again and again, into one."""
        distributed = require("distributed", "dask")
        lost = "The connection to the scheduler of the cluster was lost."
        if self.client.status != "running":
            raise ConnectionError(lost)  # a call would wait half a minute
        try:
            yield
        except distributed.KilledWorker as error:
            text = (
                "A task was lost with its worker again and again: the workers may have too little memory for the "
            )
            raise ConnectionError(f"{text}graph and a batch. Remedies: a smaller `batch`, more memory.") from error
        except Exception as error:
            if (
                isinstance(error, CancelledError | distributed.comm.CommClosedError)
                or self.client.status != "running"
            ):
                raise ConnectionError(lost) from error
            raise


# ------------------------------------------------------------------------------------------------- on the workers
class _Held:
    """A graph on a worker, with what the last tasks made from it."""

    def __init__(self, graph: Any) -> None:
        self.graph = graph
        self._made: tuple[str, Any] = ("", None)

    def __reduce__(self) -> tuple[type["_Held"], tuple[Any]]:
        return _Held, (self.graph,)

    def worker(self, name: str, plan: Plan) -> Any:
        """``plan.worker(graph)``, kept until another name is used; concurrent threads may compute it twice."""
        kept = self._made
        if kept[0] != name:
            kept = self._made = (name, plan.worker(self.graph))
        return kept[1]


def _itself(value: Any) -> Any:
    return value


def _rows_of_batch(name: str, plan: Plan, n_jobs: int, held: _Held, nodes: IntArray) -> Any:
    return held.worker(name, plan)(nodes, check_jobs(n_jobs), silent)


def _features_of_block(block: Any, features: Any, side: str | None, empty: Any) -> Any:
    """Features of a block of a dask array, which may be empty."""
    if not len(block):
        return empty
    return features.transform(block) if side is None else features.transform(block, side)


def _features_and_warnings(side: str | None, features: Any, block: Any) -> tuple[Any, list[Warning]]:
    with recorded_warnings() as warned:
        return _features_of_block(block, features, side, None), warned


# ------------------------------------------------------------------------------------------------------- arguments
def _check_features(features: Any) -> Any:
    if not isinstance(features, ManifoldRandomFeatures | GraphRandomFeatures):
        reject("features", "ManifoldRandomFeatures or GraphRandomFeatures", type(features).__name__, TypeError)
    return features


def _travelling(features: Any, side: str | None) -> Any:
    """A copy of fitted features to send: one thread, because tasks share the worker's, and no progress output."""
    is_graph = isinstance(_check_features(features), GraphRandomFeatures)
    check_is_fitted(features, "streams_" if is_graph else "map_")
    if not is_graph:
        features._check_side(side)
    elif side is not None:
        reject("side", "left out with GraphRandomFeatures", repr(side))
    sent = copy.copy(features)
    sent.n_jobs = 1
    if hasattr(sent, "verbose"):
        sent.verbose = False
    return sent


def _no_rows(features: Any, dtype: Any) -> Any:
    """The features of no points, in the form that they have for points of this type."""
    shape, kind = (0, features.n_features_out_), np.float32 if dtype == np.float32 else np.float64
    return sparse.csr_array(shape, dtype=kind) if features.sparse_output else np.zeros(shape, kind)


def _connected(client: Any) -> Any:
    """A client: the given one, or a new one for a cluster or an address."""
    distributed = require("distributed", "dask")
    rule = "a Client or a cluster of dask.distributed, or the address of a scheduler, such as 'tcp://10.0.0.1:8786'"
    if isinstance(client, distributed.Client):
        if client.asynchronous:
            reject("client", "a client that is not asynchronous", repr(client))
        return client
    if not isinstance(client, str) and not hasattr(client, "scheduler_address"):
        reject("client", rule, repr(client), TypeError)
    made = distributed.Client.__new__(distributed.Client)
    try:
        made.__init__(client, timeout=10)
    except BaseException as error:
        with contextlib.suppress(Exception):  # without connection, end its thread and let Dask forget it
            made.close(timeout=5)
        with contextlib.suppress(Exception):
            made._loop_runner.stop()
        if isinstance(error, ValueError):
            reject("client", rule, f"{client!r}: {error}")
        if not isinstance(error, OSError | RuntimeError | TypeError):
            raise
        text = f"No connection to a scheduler at {client!r} ({error}). Is `dask scheduler` running there? Addresses"
        text += " of encrypted ones begin with tls://; set their certificates as `distributed.comm.tls` of Dask."
        raise ConnectionError(text) from error
    return made
