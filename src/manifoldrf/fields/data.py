"""What a field is: h(z, w_l) for every point z of the space and a fixed list of anchors w_1, ..., w_m.

Signatures are rows of Phi = sum_k f_k W^k, between nodes. Their smooth part is
h(x, w) = Phi(x, w) / sqrt(mu_x mu_w) with mu the measure of the nodes (the degrees of the graph, up to a factor).
The kernel of the space itself is the sum over all nodes j of mu_j h(x, j) h(y, j), an integral that a few anchors
with weights of their own approximate.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._random import SeedLike
from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.signatures.engines import Progress, choose_teacher, row_memory
from manifoldrf.signatures.teachers import OwnTeacher, Signatures, compute_signatures

__all__ = ["AbstractField", "FieldData"]


@dataclass(frozen=True, eq=False)
class FieldData:
    """Known values of a field: what a field is fitted to.

    Attributes
    ----------
    graph : Graph
        With points.
    starts : int array of shape (s,)
        Nodes at which the field is known.
    anchors : int array of shape (m,)
        Nodes that are anchors.
    values : CSR array of shape (s, m)
        h(start, anchor), nonnegative, with sorted columns; what is not stored is zero or negligible.
    measure : array of shape (n_nodes,)
        mu, positive but for isolated nodes.
    dim : int
        Intrinsic dimension.
    width : float
        Standard deviation of a signature along one axis, as a length: sqrt(t) for the heat kernel at the time t.
    unit : float
        What raw signatures are multiplied by to be in the paper's unit, f_0 = 1.

    Examples
    --------
    >>> from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere
    >>> from manifoldrf.fields.interpolated import fit_interpolated
    >>> seen = []
    >>> def watched(data):
    ...     seen.append(data.values.shape)
    ...     return fit_interpolated(data)
    >>> features = ManifoldRandomFeatures(HeatKernel(0.2), n_features=64, field=watched, random_state=0)
    >>> features.fit(Sphere()).field_, seen[-1]
    ('watched', (500, 64))
    """

    graph: Graph
    starts: IntArray
    anchors: IntArray
    values: Any
    measure: FloatArray
    dim: int
    width: float
    unit: float = 1.0

    @property
    def points(self) -> FloatArray:
        """Positions of all nodes, shape (n_nodes, d)."""
        return self.graph.positions

    def without(self, held_out: IntArray) -> "FieldData":
        """The same without some of the starts, given by their positions in ``starts``."""
        keep = np.setdiff1d(np.arange(len(self.starts)), held_out)
        return FieldData(
            self.graph,
            self.starts[keep],
            self.anchors,
            self.values[keep],
            self.measure,
            self.dim,
            self.width,
            self.unit,
        )


class AbstractField(ABC):
    """h(z, w_l) at any point z: nonnegative, bounded, finite everywhere, the same whenever it is asked.

    Concrete fields are frozen dataclasses whose attributes are arrays, CSR arrays, numbers, strings, None, and
    other frozen dataclasses of the library: that is all that storage knows.

    Examples
    --------
    Means of the three nearest starts, as a field of one's own:

    >>> from scipy.spatial import cKDTree
    >>> from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere
    >>> @dataclass(frozen=True, eq=False)
    ... class MeanField(AbstractField):
    ...     tree: Any
    ...     table: Any
    ...     @property
    ...     def bounds(self):
    ...         return self.table.max(axis=0)
    ...     def values(self, queries, n_jobs=1):
    ...         gaps, starts = self.tree.query(queries, 3)
    ...         shares = 1 / (gaps + 1e-9)
    ...         return np.einsum("qk,qkm->qm", shares / shares.sum(1, keepdims=True), self.table[starts])
    >>> def fit_mean(data):
    ...     return MeanField(cKDTree(data.points[data.starts]), data.values.toarray())
    >>> features = ManifoldRandomFeatures(HeatKernel(0.4), n_features=64, field=fit_mean, random_state=0)
    >>> features.fit(Sphere()).field_, 0.001 < features.error_.field < 0.1
    ('fit_mean', True)
    """

    @property
    @abstractmethod
    def bounds(self) -> FloatArray:
        """Largest value that each column can take anywhere, shape (m,)."""

    @abstractmethod
    def values(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """h(z, w_l), shape (len(queries), m): a CSR array or, where few entries vanish, a dense one.

        Rows do not depend on the other queries, nor on ``n_jobs``.
        """

    def sparse_values(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """The same as a CSR array."""
        found = self.values(queries, n_jobs)
        return found if sparse.issparse(found) else sparse.csr_array(found)

    @property
    def row_entries(self) -> int:
        """About how many values of a query are not zero, at most."""
        return self.n_anchors

    def values_on(self, device: str, queries: FloatArray, n_jobs: int = 1) -> Any:
        """The same with the heavy part on a device of torch, where the field has one; here it has none.

        Rounded otherwise than :meth:`values`; a row may be rounded otherwise when other queries are asked with it.
        """
        del device
        return self.values(queries, n_jobs)

    @property
    def is_network(self) -> bool:
        """Whether values take so much work that another device is worth looking for."""
        return False

    @property
    def n_anchors(self) -> int:
        """Number of columns."""
        return len(self.bounds)


# Entries below this share of the largest in their column are left out: a thousand of them together change a kernel
# by less than a millionth.
_NEGLIGIBLE = 1e-7
_TOLERANCE = 1e-7  # of signatures, over the sum of their series
_EXACT = ("exact", "frontier")
_TABLE_BYTES = 2**32  # of all rows; those of blocks are kept without what is negligible
_BLOCK_BYTES = 2**28  # of rows at a time
# Computes signatures, here or elsewhere: a function with the arguments of compute_signatures.
Compute = Callable[..., Signatures]


@dataclass(frozen=True)
class Teaching:
    """How signatures are computed: the arguments of :func:`compute_signatures` that say so."""

    teacher: str | OwnTeacher = "auto"
    options: tuple[tuple[str, Any], ...] = ()
    seed: SeedLike = None
    n_jobs: int = 1
    progress: Progress = lambda what, done, total: None
    compute: Compute = compute_signatures


@dataclass(frozen=True, eq=False)
class Setting:
    """The problem that a field is to solve: a kernel on a graph, with the units of both.

    Attributes
    ----------
    graph : Graph
        With points.
    kernel : AbstractKernel
        Resolved on the graph.
    measure : array of shape (n_nodes,)
        mu, as in :class:`FieldData`.
    dim : int
    width : float
        As in :class:`FieldData`.
    asymmetric : bool
        Rows of the kernel itself take the place of signatures: for kernels without a nonnegative modulation.
    """

    graph: Graph
    kernel: AbstractKernel
    measure: FloatArray
    dim: int
    width: float
    asymmetric: bool = False

    @property
    def series(self) -> AbstractKernel:
        """The series that a signature sums."""
        return self.kernel if self.asymmetric else self.kernel.root()

    @property
    def unit(self) -> float:
        """What signatures are multiplied by to be in the paper's unit, f_0 = 1; 1 where f_0 is zero."""
        first = float(self.series.coefficients(1)[0])
        return 1 / first if first > 0 else 1.0


def observe(setting: Setting, starts: IntArray, anchors: IntArray, teaching: Teaching) -> FieldData:
    """Values of the field h between starts and anchors.

    The series of a symmetric matrix is symmetric: signatures are computed from the fewer of both.
    """
    values = series_values(setting, setting.series, starts, anchors, teaching)
    return FieldData(
        setting.graph, starts, anchors, values, setting.measure, setting.dim, setting.width, setting.unit
    )


def series_values(
    setting: Setting,
    series: AbstractKernel,
    starts: IntArray,
    anchors: IntArray,
    teaching: Teaching,
    share: float = _NEGLIGIBLE,
) -> Any:
    """Entries (starts, anchors) of a series of W, divided by sqrt(mu) at both ends: CSR of shape (s, m).

    Entries below a share of the largest in their column are left out.
    """
    backwards = len(anchors) < len(starts)
    sources, targets = (anchors, starts) if backwards else (starts, anchors)
    roots = np.sqrt(setting.measure)
    # Nodes without measure reach nothing.
    inverse = np.divide(1.0, roots, out=np.zeros_like(roots), where=roots > 0)
    ends = inverse[targets]
    blocks = []
    for some, rows in _signature_rows(setting.graph, series, sources, targets, teaching):
        rows.data *= np.repeat(inverse[some], np.diff(rows.indptr))
        rows.data *= ends[rows.indices]
        # Rows from anchors are whole columns of the result: what they do not need is dropped at once.
        blocks.append(_without_small(rows, _row_peaks(rows), share) if backwards else rows)
    table = blocks[0] if len(blocks) == 1 else sparse.vstack(blocks, format="csr")
    blocks.clear()
    return table.T.tocsr() if backwards else without_negligible(table, share)


def _signature_rows(
    graph: Graph, series: AbstractKernel, sources: IntArray, targets: IntArray, teaching: Teaching
) -> Iterator[tuple[IntArray, Any]]:
    """Some sources and their entries at the targets, as CSR arrays of their own; not too many at a time."""
    teacher, options = teaching.teacher, dict(teaching.options)
    if teacher == "auto" and not options:
        teacher = choose_teacher(graph, series, sources, _TABLE_BYTES).teacher
    if teacher in _EXACT and not options:
        options = {"tol": _TOLERANCE}
    everything = len(targets) == graph.n_nodes and (np.diff(targets) == 1).all()
    size = len(sources)
    if isinstance(teacher, str):  # a function of the user's is asked once for all
        dense = teacher == "exact" or 8 * graph.n_nodes * size <= _BLOCK_BYTES
        size = max(1, int(_BLOCK_BYTES / (8.0 * graph.n_nodes if dense else row_memory(graph, series))))
    for start in range(0, len(sources), size):
        some = sources[start : start + size]
        found = teaching.compute(
            graph,
            series,
            some,
            teacher=teacher,
            asymmetric=True,  # the series as it stands
            seed=teaching.seed,
            n_jobs=teaching.n_jobs,
            progress=functools.partial(_advance, teaching.progress, start, len(sources)),
            **options,
        )
        rows = sparse.csr_array(found.rows if everything else found.rows[:, targets])
        yield some, rows if rows.data.flags.writeable else rows.copy()


def _advance(progress: Progress, before: int, everything: int, what: str, done: int, total: int) -> None:
    """Report a part of the sources as part of all."""
    # Stitches have nodes of their own to walk on from.
    part = what == "signatures"
    progress(what, before + done if part else done, everything if part else total)


def without_negligible(matrix: Any, share: float) -> Any:
    """The same without entries far below the largest of their column; columns sorted."""
    peaks = np.zeros(matrix.shape[1])
    np.maximum.at(peaks, matrix.indices, np.abs(matrix.data))
    result = _without_small(matrix, peaks[matrix.indices], share)
    result.sort_indices()
    return result


def _row_peaks(rows: Any) -> FloatArray:
    """For every stored entry the largest absolute value in its row."""
    counts = np.diff(rows.indptr)
    peaks = np.zeros(rows.shape[0])
    full = counts > 0
    if full.any():
        peaks[full] = np.maximum.reduceat(np.abs(rows.data), rows.indptr[:-1][full])
    return np.repeat(peaks, counts)


def _without_small(matrix: Any, peaks: FloatArray, share: float) -> Any:
    """The same without entries below a share of a peak that is given for each of them."""
    keep = np.abs(matrix.data) > share * peaks
    ends = np.concatenate([[0], np.cumsum(keep)])[matrix.indptr].astype(matrix.indptr.dtype)
    return sparse.csr_array((matrix.data[keep], matrix.indices[keep], ends), shape=matrix.shape)
