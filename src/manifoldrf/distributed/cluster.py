"""Signatures and features on a Dask cluster.

A task is a batch of start nodes or a block of points. The graph or the features, which all tasks read, are sent to
the workers once. Random numbers depend only on the seed and the start node, and the parts are combined here, so
results are bit for bit those of one machine. A worker that dies only costs time.
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
_SHARES = 4  # batches per thread of the cluster, so that all workers finish at about the same time
_BATCH_BYTES = 2**26  # memory of the rows of a batch
_BATCH_UNIT = 32  # exact rows are computed in blocks of this size
_MOST_BLOCKS = 64  # blocks of features under way at once; waiting blocks take memory here
_ENTRY_BYTES = 24  # per entry of a sparse row during the computation: node, value, variance


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

        def run(recipe: Recipe, graph: AnyGraph, nodes: Any, stage: str) -> list[Any]:
            # Options are already checked; those of a custom teacher may mean anything.
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
        return features._fit(X, self._compute)

    def _compute(self, *given: Any, n_jobs: int, **named: Any) -> Signatures:
        """Signatures for a fit; its number of threads applies to this machine only."""
        del n_jobs
        return self.signatures(*given, **named)

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

    def _batch_size(self, n: int, row_bytes: Callable[[int], float]) -> int:
        """Number of start nodes of one task."""
        if not isinstance(self.batch, str):
            return int(self.batch)
        share = -(-n // (_SHARES * n_threads(self.client)))
        size = min(share, int(_BATCH_BYTES / row_bytes(share)))
        return max(_BATCH_UNIT, size // _BATCH_UNIT * _BATCH_UNIT)


def transform_blocks(
    cluster: Cluster, features: Any, blocks: Iterable[Any], side: str | None
) -> Iterator[tuple[Any, list[Warning]]]:
    """Features of blocks of points in order, with their warnings; a limited number is under way at once."""
    sent = Sent(cluster.client, travelling(features))
    task = functools.partial(rows_of_block, side)
    yield from Flow(cluster.client, task, sent, most=_MOST_BLOCKS).results(blocks)


def _row_bytes(
    recipe: Recipe, graph: AnyGraph, kernel: AbstractKernel, n_powers: int, n: int, *, asymmetric: bool
) -> float:
    """Bytes of the rows of one start node; their reach is estimated only if n full rows could be too many."""
    is_sparse = _kind_of(recipe) is chunk_worker
    most = float(_ENTRY_BYTES if is_sparse else 8) * graph.n_nodes * n_powers
    if not is_sparse or n * most <= _BATCH_BYTES:
        return most
    series = series_of(check_kernel(kernel).on(graph), asymmetric=asymmetric)
    return min(most, row_memory(graph, series) / 12 * _ENTRY_BYTES * n_powers)  # 12 bytes per entry of a CSR array


def _kind_of(recipe: Any) -> Any:
    """The function behind a recipe, which determines the form of its parts."""
    return recipe.func


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
