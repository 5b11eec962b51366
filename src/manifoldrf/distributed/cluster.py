"""Signatures and features on many machines, by any cluster that Dask knows.

A task is a batch of start nodes, or a block of points. What all tasks read, the graph or the features, is sent to
the workers once. Random numbers follow from the seed and the start node, and everything that is put together of the
parts is put together here: results are those of one machine, bit for bit. A worker that dies costs time only.
"""

import functools
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from manifoldrf._files import as_path, writable_folder
from manifoldrf._random import SeedLike
from manifoldrf._runtime import require, warn_user
from manifoldrf._validation import check_flag, check_integer, check_jobs, check_option, reject
from manifoldrf.distributed.workers import (
    Counter,
    Flow,
    Kept,
    Sent,
    connected,
    features_of_block,
    is_sparse,
    itself,
    n_threads,
    pieces_of,
    rows_of_batch,
    rows_of_block,
    travelling,
    write_piece,
)
from manifoldrf.features.graph_features import GraphRandomFeatures
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.features.problem import FarQueryWarning
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.action import AnyGraph
from manifoldrf.signatures.engines import Progress, Recipe, chunk_worker, own_worker, row_memory
from manifoldrf.signatures.teachers import OwnTeacher, Signatures, check_kernel, series_of, signatures_by

__all__ = ["Cluster"]

_EXTRA = "dask"
# Batches for each thread of a cluster: the last ones end at about the same time, whatever the workers are.
_SHARES = 4
_BATCH_BYTES = 2**26  # of the rows of a batch
_BATCH_UNIT = 32  # exact rows are made so many at a time
_MOST_BLOCKS = 64  # of features that are on their way to one place: those that wait take its memory
_ENTRY_BYTES = 24  # of a sparse row while it is made: node, value, variance


@dataclass(frozen=True, eq=False)
class Cluster:
    """A Dask cluster that computes signatures and features; the bits are those of one machine.

    Parameters
    ----------
    client : dask.distributed.Client, cluster object, or address
        Such as ``Client()``, ``LocalCluster()``, ``KubeCluster(...)`` or ``"tcp://10.0.0.1:8786"``. A client that
        is made here is closed by :meth:`close`, or at the end of a ``with`` block; one that is given is not.
    batch : int or "auto", default="auto"
        Start nodes of one task. "auto": four tasks for each thread of the cluster, or more where their rows would
        take over 64 MB.

    Notes
    -----
    Needs the extra ``dask`` here, and manifoldrf in the same version on all workers. The graph stays on the workers
    for the next call, until another one is used, this one is gone, or :meth:`close` is called. Each worker needs
    the memory of the graph, without its points, and of one batch for each of its threads.

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
        """Take the graph off the workers and, if the client was made here, end the connection."""
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
        """Signatures of nodes, bit for bit those of :func:`compute_signatures`, whose arguments these are.

        Parameters
        ----------
        graph : Graph or GeneralizedAdjacency
        kernel : AbstractKernel
        nodes : array-like of int, optional
        teacher : str or callable, default="auto"
            Chosen once, for all nodes. A function of one's own sees one batch of nodes at a time.
        asymmetric : bool, default=False
        seed : None, int, Generator or RandomState
        n_jobs : int, default=1
            Threads of one task. The threads of a worker share its tasks, so that 1 uses them all.
        progress : callable (what, done, total)
        **options
            Of the teacher.

        Returns
        -------
        signatures : Signatures
        """
        check_jobs(n_jobs)

        def run(recipe: Recipe, graph: AnyGraph, nodes: Any, stage: str) -> list[Any]:
            # Options are checked by now; those of a teacher of one's own may mean anything.
            lengths = options.get("keep_lengths") and _kind_of(recipe) is chunk_worker
            n_powers = int(options["max_length"]) + 1 if lengths else 1
            wanted = functools.partial(_row_bytes, recipe, graph, kernel, n_powers, asymmetric=asymmetric)
            size = self._batch_size(len(nodes), wanted)
            batches = [nodes[k : k + size] for k in range(0, max(1, len(nodes)), size)]
            task = functools.partial(rows_of_batch, uuid.uuid4().hex, recipe, n_jobs)
            count = Counter(progress, stage, len(nodes))
            whole = _kind_of(recipe) is own_worker
            with self._kept.sent(self.client, graph, whole=whole) as sent:
                flow = Flow(self.client, task, sent, lambda batch: count.add(len(batch)))
                return list(flow.results(batches))

        return signatures_by(run, graph, kernel, nodes, options, teacher=teacher, asymmetric=asymmetric, seed=seed)

    def fit(self, features: Any, X: Any = None, y: Any = None) -> Any:
        """Fit features with the signatures computed on the cluster, all else here; the bits of ``features.fit(X)``.

        Parameters
        ----------
        features : ManifoldRandomFeatures or GraphRandomFeatures
            The latter compute signatures when they transform, and nothing at their fit.
        X : as for ``features.fit``
        y : ignored

        Returns
        -------
        features
            Those that were given.
        """
        del y
        if isinstance(_check_features(features), GraphRandomFeatures):
            return features.fit(X)
        return features._fit(X, self._compute)

    def _compute(self, *given: Any, n_jobs: int, **named: Any) -> Signatures:
        """Signatures for a fit, whose number of threads is meant for the machine that fits."""
        del n_jobs
        return self.signatures(*given, **named)

    def transform(self, features: Any, X: Any, side: str | None = None) -> Any:
        """Features of the rows of a dask array, as a lazy dask array of the same blocks.

        Bit for bit ``features.transform`` of the same rows; compressed graph features agree up to rounding. The
        features are sent once, for all blocks, and stay on the workers as long as the result is in use. That points
        are far from the space is said in the logs of the workers.

        Parameters
        ----------
        features : fitted ManifoldRandomFeatures or GraphRandomFeatures
        X : dask array of shape (q, d)
            In blocks of rows; ``X.rechunk({1: -1})`` joins blocks of columns.
        side : {"left", "right"}, optional
            As for ``features.transform``.

        Returns
        -------
        features : dask array of shape (q, m)
            Its blocks are CSR arrays where ``features.transform`` returns those.
        """
        arrays = require("dask.array", _EXTRA)
        if not isinstance(X, arrays.Array) or X.ndim != 2:
            found = f"one of shape {X.shape}" if hasattr(X, "shape") else type(X).__name__
            reject("X", "a dask array of shape (q, d)", f"a {type(X).__name__}, {found}", TypeError)
        if len(X.chunks[1]) > 1:
            reject(
                "X", "in blocks of rows alone, as X.rechunk({1: -1}) is", f"{len(X.chunks[1])} blocks of columns"
            )
        width = getattr(_check_fitted(features, side), "n_features_in_", 1)
        if X.shape[1] != width:
            reject("X", f"an array of {width} columns", X.shape[1])
        # A task and not plain data: where its worker dies the scheduler makes it again.
        settings = {"distributed.admin.large-graph-warning-threshold": "1 TiB"}  # it is sent once, on purpose
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
        """Transform files of points to files of features, each by a worker, on a file system that all share.

        Files may be larger than memory. Each appears when it is complete, and none is ever half written. After an
        error those that are complete stay.

        Parameters
        ----------
        features : fitted ManifoldRandomFeatures
        files : path or sequence of paths
            Points, .npy files of shape (q, d).
        folder : path
            Where ``name.npy`` becomes ``name.npy`` or, with ``sparse_output``, ``name.npz``, as scipy reads it.
        rows : int, optional
            Cut every file into pieces of so many rows, each a task and a file ``name-000000000000.npy`` with the
            number of its first row.
        side : {"left", "right"}, optional
            As for ``features.transform``.
        resume : bool, default=False
            Whether files that are there already are kept: those of a run that was stopped, with the same features.
        progress : callable (what, done, total)

        Returns
        -------
        paths : list of Path
            The files in the order of their points.
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
        told = [warning for part in flow.results(missing) for warning in part]
        _tell(told, sum(piece.end - piece.begin for piece in missing))
        return paths

    def _batch_size(self, n: int, row_bytes: Callable[[int], float]) -> int:
        """Start nodes of one task."""
        if not isinstance(self.batch, str):
            return int(self.batch)
        share = -(-n // (_SHARES * n_threads(self.client)))
        size = min(share, int(_BATCH_BYTES / row_bytes(share)))
        return max(_BATCH_UNIT, size // _BATCH_UNIT * _BATCH_UNIT)


def transform_blocks(
    cluster: Cluster, features: Any, blocks: Iterable[Any], side: str | None
) -> Iterator[tuple[Any, list[Warning]]]:
    """Features of blocks of points in their order, with the warnings of each; a few are under way at once."""
    sent = Sent(cluster.client, travelling(features))
    task = functools.partial(rows_of_block, side)
    yield from Flow(cluster.client, task, sent, most=_MOST_BLOCKS).results(blocks)


def _row_bytes(
    recipe: Recipe, graph: AnyGraph, kernel: AbstractKernel, n_powers: int, n: int, *, asymmetric: bool
) -> float:
    """Bytes of the part of one start node; how far rows reach is looked at only if n of them could be too many."""
    is_sparse = _kind_of(recipe) is chunk_worker
    most = float(_ENTRY_BYTES if is_sparse else 8) * graph.n_nodes * n_powers
    if not is_sparse or n * most <= _BATCH_BYTES:
        return most
    series = series_of(check_kernel(kernel).on(graph), asymmetric=asymmetric)
    return min(most, row_memory(graph, series) / 12 * _ENTRY_BYTES * n_powers)  # 12: of an entry of a CSR array


def _kind_of(recipe: Any) -> Any:
    """The function behind a recipe, which says how its parts look."""
    return recipe.func


def _check_features(features: Any) -> Any:
    if not isinstance(features, ManifoldRandomFeatures | GraphRandomFeatures):
        rule = "ManifoldRandomFeatures or GraphRandomFeatures"
        reject("features", rule, type(features).__name__, TypeError)
    return features


def _check_fitted(features: Any, side: str | None) -> Any:
    """Features that are fitted and have the side that is asked for: workers would find out late."""
    is_graph = isinstance(_check_features(features), GraphRandomFeatures)
    check_is_fitted(features, "streams_" if is_graph else "map_")
    if not is_graph:
        features._check_side(side)
    elif side is not None:
        reject("side", "left out with GraphRandomFeatures", repr(side))
    return features


def _check_distinct(targets: list[Path], sources: list[Path]) -> None:
    """No two files of features may have the same name, nor that of points."""
    seen = set(sources)
    for path in targets:
        if path in seen:
            reject("files", "files with different names, in another folder than that of the features", path.name)
        seen.add(path)


def _tell(told: list[Warning], n_points: int) -> None:
    """Warnings of workers, those about far points as one."""
    far = [warning for warning in told if isinstance(warning, FarQueryWarning)]
    if far:
        fading, gone = (sum(getattr(warning, name) for warning in far) for name in ("fading", "gone"))
        warn_user(FarQueryWarning(fading, gone, n_points))
    for text, kind in {str(warning): type(warning) for warning in told if warning not in far}.items():
        warn_user(text, kind)
