"""The problem, the known values and the interface of a field: h(z, w_l) for any point z and anchors w_1, ..., w_m.

Signatures are rows of Phi = sum_k f_k W^k between nodes. Their smooth part is
h(x, w) = Phi(x, w) / sqrt(mu_x mu_w), with mu the measure of the nodes (the degrees of the graph, up to a factor).
The kernel of the space is the sum over all nodes j of mu_j h(x, j) h(y, j). A few anchors with quadrature weights
approximate this sum.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._codec import stored
from manifoldrf._random import SeedLike
from manifoldrf._runtime import Progress, filtered, require, silent
from manifoldrf._validation import POSITIVE, FloatArray, IntArray, check_integer, check_option, check_real, reject
from manifoldrf.geometry.csr import check_amounts, reciprocal, row_peaks, select_entries
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.heat import HeatExtension
from manifoldrf.geometry.model_spaces import AbstractBall
from manifoldrf.geometry.neighbors import NeighborSearch
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.signatures.teachers import Exact, Signatures, choose_form, compute_signatures, row_memory

__all__ = ["AbstractField", "FieldData"]

CLOCKS = ("graph", "manifold", "ambient")
DEVICES = ("auto", "cpu", "cuda")
# A query is near the space if it is within this many times the distance between its nearest node and the neighbours
# of that node. Fewer than one in 10,000 random points on the sphere is farther away.
_NEAR = 1.5
# Entries below this share of the largest in their column are dropped: a thousand of them together change a kernel
# by less than a millionth.
_NEGLIGIBLE = 1e-7
_TOLERANCE = 1e-7  # of signatures, relative to the sum of their series
# A kernel has a spike at every node if the first term of its series is more than this share of the sum. On 300
# nodes of a sphere, a field that keeps the spike raised the log likelihood of (c + L)^-1/2 from -55 to -35.
_SPIKE = 2e-3
_TABLE_BYTES = 2**32  # of all rows; those of finished blocks are kept without negligible entries
_BLOCK_BYTES = 2**28  # of rows at a time
_ENTRIES_AT_ONCE = 2**22  # of a dense product on a device: 64 MB with the columns, and as much working memory
# Computes signatures, here or on other machines: a function with the arguments of compute_signatures.
Compute = Callable[..., Signatures]


@stored
@dataclass(frozen=True, eq=False)
class Problem:
    """A kernel on a graph that discretises a space, with the units of both.

    Attributes
    ----------
    graph : Graph
        With points.
    resolved : AbstractKernel
        The kernel in steps of the graph.
    measure : array of shape (n_nodes,)
        mu, the volume of each node in the unit ``unit``; positive except at isolated nodes.
    dim : int
        Intrinsic dimension.
    width : float
        Standard deviation of a signature along one axis, as a length: sqrt(t) for the heat kernel at time t.
    asymmetric : bool
        Whether rows of the kernel replace signatures: for kernels without a nonnegative modulation.
    stated : AbstractKernel, optional
        The kernel as the user stated it, or as it was chosen; ``resolved`` by default.
    clock : {"graph", "manifold", "ambient"}
        "manifold": features approximate a kernel of the space, per unit of volume. "graph": they approximate the
        kernel of the graph, as if a point were a node. "ambient": they approximate a Gaussian kernel of straight
        distances with K(x, x) = 1, because no structure was found.
    volume : float
        Volume of the space, also in the graph clock.
    notes : tuple of pairs of str
        What was chosen, for the summary.
    unit : float
        Mean volume of a node. The measure is stored in this unit so that nothing overflows in the user's units.
    weights_known : bool
        Whether the volumes of the nodes were given, not estimated.
    series_error : float, optional
        Error of the series, or of the mixing matrix, that was fitted to a function.
    ball : AbstractBall, optional
        The space itself if it is unbounded and the nodes are a grid of this ball.
    function : callable, optional
        A function F(X, Y) without symmetry: features of ``resolved`` are mixed to represent it. It is not stored.
    """

    graph: Graph
    resolved: AbstractKernel
    measure: FloatArray
    dim: int
    width: float
    asymmetric: bool = False
    stated: AbstractKernel | None = None
    clock: str = "graph"
    volume: float = 1.0
    notes: tuple[tuple[str, str], ...] = ()
    unit: float = 1.0
    weights_known: bool = True
    series_error: float | None = None
    ball: AbstractBall | None = None
    function: Callable[[FloatArray, FloatArray], Any] | None = None

    def __post_init__(self) -> None:
        """Raise if the parts do not fit together: compiled code relies on sizes and indices."""
        check_option(self.clock, "clock", CLOCKS)
        check_real(self.unit, "unit", POSITIVE)
        check_amounts("measure", self.measure, self.graph.n_nodes)
        if not (self.measure > 0).any():
            reject("measure", "positive somewhere", 0)
        check_integer(self.dim, "dim", 1, max(self.graph.positions.shape[1], 1))
        check_real(self.width, "width", POSITIVE)

    @property
    def kernel(self) -> AbstractKernel:
        """The kernel as stated or chosen, before it was resolved on the graph."""
        return self.resolved if self.stated is None else self.stated

    @cached_property
    def series(self) -> AbstractKernel:
        """The series that a signature sums."""
        return self.resolved if self.asymmetric else self.resolved.root()

    @property
    def paper_unit(self) -> float:
        """Factor from signatures to the paper's unit, in which f_0 = 1; 1 if f_0 is zero."""
        first = float(self.series.coefficients(1)[0])
        return 1 / first if first > 0 else 1.0

    @cached_property
    def _reaches(self) -> FloatArray:
        """Distance from each node within which a query counts as near, shape (n_nodes,)."""
        search = self.graph._search
        k = min(2 * self.dim + 2, len(search.points) - 1)
        reaches = _NEAR * search.knn(search.points, k + 1)[0][:, k]
        extension = self.graph.extension
        if isinstance(extension, HeatExtension):  # its steps end at its radius, which is where features vanish
            reaches = np.minimum(np.maximum(reaches, extension.radius / 2), extension.radius)
        return np.asarray(reaches)

    def distance(self, queries: FloatArray) -> FloatArray:
        """Distance to the nearest node or, on a mesh or a noisy cloud, to the surface, shape (q,)."""
        extension, projection = self.graph.extension, self.graph.projection
        mesh = None if extension is None else extension.whole_mesh()
        if mesh is not None:
            return np.asarray(np.linalg.norm(queries - mesh.closest_points(queries).points, axis=1))
        placed = self.graph.placed(queries)
        distances = np.asarray(self.graph._search.knn(placed, 1)[0][:, 0])
        return distances if projection is None else np.hypot(distances, np.linalg.norm(queries - placed, axis=1))

    def window(self, queries: FloatArray, placed: FloatArray | None = None) -> FloatArray:
        """Factor of the features, shape (q,): 1 near the space, falling smoothly to 0 at twice that distance.

        ``placed`` is where the queries are on the space, if that is known already.
        """
        if placed is None:
            placed = self.graph.placed(queries)
        distances, nodes = self.graph._search.knn(placed, 1)
        distances, reaches = distances[:, 0], self._reaches[nodes[:, 0]]
        away = np.flatnonzero(distances > reaches)
        if self.graph.mesh is not None and len(away):  # far from all vertices, but maybe inside a large face
            distances[away] = self.distance(queries[away])
        projection = self.graph.projection
        if projection is not None:  # farther from the surface than noise is
            moved = np.linalg.norm(queries - placed, axis=1)
            distances = np.hypot(distances, np.maximum(moved - projection.typical_distance, 0.0))
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = np.where(distances <= reaches, 0.0, np.clip(distances / reaches - 1.0, 0.0, 1.0))
        return np.asarray((1 - beyond) ** 2 * (1 + 2 * beyond))


@dataclass(frozen=True, eq=False)
class FieldData:
    """Known values of a field: the data a field is fitted to.

    Attributes
    ----------
    problem : Problem
        The graph, the kernel and their units.
    starts : int array of shape (s,)
        Nodes at which the field is known.
    anchors : int array of shape (m,)
        Nodes that are anchors.
    values : CSR array of shape (s, m)
        h(start, anchor), nonnegative, with sorted columns; entries that are not stored are zero or negligible.
    graph : Graph
        With points.
    points : array of shape (n_nodes, d)
        Positions of all nodes.
    measure : array of shape (n_nodes,)
        mu, positive except at isolated nodes.
    dim : int
        Intrinsic dimension.
    width : float
        Standard deviation of a signature along one axis, as a length: sqrt(t) for the heat kernel at time t.
    unit : float
        Factor from signatures to the paper's unit, in which f_0 = 1.

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

    problem: Problem
    starts: IntArray
    anchors: IntArray
    values: Any

    @property
    def graph(self) -> Graph:
        """The graph, which has points."""
        return self.problem.graph

    @property
    def points(self) -> FloatArray:
        """Positions of all nodes, shape (n_nodes, d)."""
        return self.problem.graph.positions

    @property
    def measure(self) -> FloatArray:
        """mu, shape (n_nodes,)."""
        return self.problem.measure

    @property
    def dim(self) -> int:
        """Intrinsic dimension."""
        return self.problem.dim

    @property
    def width(self) -> float:
        """Standard deviation of a signature along one axis."""
        return self.problem.width

    @property
    def unit(self) -> float:
        """Factor from signatures to the paper's unit."""
        return self.problem.paper_unit

    @cached_property
    def search(self) -> NeighborSearch:
        """Neighbour search over the starts."""
        return search_nodes(self.graph, self.starts)

    def without(self, held_out: IntArray) -> "FieldData":
        """Return the data without some of the starts, given by their positions in ``starts``."""
        keep = np.setdiff1d(np.arange(len(self.starts)), held_out)
        return replace(self, starts=self.starts[keep], values=self.values[keep])


class AbstractField(ABC):
    """h(z, w_l) at any point z: nonnegative, bounded, finite everywhere, and deterministic.

    Concrete fields are frozen dataclasses. To be stored in a model file, their attributes must be arrays, CSR
    arrays, numbers, strings, None, or other frozen dataclasses of the library.

    Examples
    --------
    A field of your own, which averages the three nearest starts:

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
        """h(z, w_l), shape (len(queries), m): a CSR array or, if few entries vanish, a dense one.

        A row depends neither on the other queries nor on ``n_jobs``.
        """

    def sparse_values(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """h(z, w_l) as a CSR array."""
        found = self.values(queries, n_jobs)
        return found if sparse.issparse(found) else sparse.csr_array(found)

    def values_on(self, device: str, queries: FloatArray, n_jobs: int = 1) -> Any:
        """h(z, w_l) with the heavy part on a torch device, if the field supports it; this default does not.

        Rounding may differ from :meth:`values` and may depend on the other queries.
        """
        del device
        return self.values(queries, n_jobs)

    def check(self, problem: Problem, n_anchors: int) -> None:
        """Raise if a field from a file does not fit the problem and the anchors."""
        del problem, n_anchors
        raise TypeError(f"{type(self).__name__} has no `check`, so it cannot be loaded")

    @property
    def row_entries(self) -> int:
        """Approximate upper bound of the number of nonzero values of a query."""
        return self.n_anchors

    @property
    def is_network(self) -> bool:
        """Whether evaluation is so costly that a CUDA device is worth looking for."""
        return False

    @property
    def n_anchors(self) -> int:
        """Number of columns."""
        return len(self.bounds)


def has_spike(series: AbstractKernel) -> bool:
    """Whether signatures have a spike at their own node, which smooth fields and those of a first step lose."""
    first, total = float(series.coefficients(1)[0]), float(series.spectral(np.array([1.0]))[0])
    return abs(first) > _SPIKE * abs(total)


def search_nodes(graph: Graph, nodes: IntArray) -> NeighborSearch:
    """Neighbour search over some nodes, by the caller's thread alone; over all nodes it shares the graph's tree."""
    search = NeighborSearch(np.ascontiguousarray(graph.positions[nodes]), graph.metric)
    if np.array_equal(nodes, np.arange(graph.n_nodes)):
        search.share_tree(graph._search)
    return search


@dataclass(frozen=True)
class SignatureOptions:
    """How signatures are computed: the corresponding arguments of :func:`compute_signatures`."""

    teacher: Any = "auto"
    seed: SeedLike = None
    n_jobs: int = 1
    progress: Progress = silent
    compute: Compute = compute_signatures


def signature_table(problem: Problem, starts: IntArray, anchors: IntArray, options: SignatureOptions) -> FieldData:
    """Values of the field h between starts and anchors.

    A series of a symmetric matrix is symmetric, so signatures are computed from the smaller of the two sets.
    """
    return FieldData(problem, starts, anchors, series_values(problem, problem.series, starts, anchors, options))


def series_values(
    problem: Problem,
    series: AbstractKernel,
    starts: IntArray,
    anchors: IntArray,
    options: SignatureOptions,
    share: float = _NEGLIGIBLE,
) -> Any:
    """Entries (starts, anchors) of a series of W, divided by sqrt(mu) at both ends: CSR of shape (s, m).

    Entries below a share of the largest in their column are dropped.
    """
    backwards = len(anchors) < len(starts)
    sources, targets = (anchors, starts) if backwards else (starts, anchors)
    inverse = reciprocal(np.sqrt(problem.measure))  # nodes without measure reach nothing
    ends = inverse[targets]
    blocks = []
    for some, rows in _signature_rows(problem.graph, series, sources, targets, options):
        rows.data *= np.repeat(inverse[some], np.diff(rows.indptr))
        rows.data *= ends[rows.indices]
        # Rows from anchors are whole columns of the result, so negligible entries can be dropped at once.
        blocks.append(_without_small(rows, row_peaks(rows), share) if backwards else rows)
    table = blocks[0] if len(blocks) == 1 else sparse.vstack(blocks, format="csr")
    blocks.clear()
    return table.T.tocsr() if backwards else without_negligible(table, share)


def _signature_rows(
    graph: Graph, series: AbstractKernel, sources: IntArray, targets: IntArray, signatures: SignatureOptions
) -> Iterator[tuple[IntArray, Any]]:
    """Blocks of sources with their entries at the targets, as writable CSR arrays; blocks fit in memory."""
    teacher = signatures.teacher
    if isinstance(teacher, str):
        teacher = Exact(_TOLERANCE, choose_form(graph, series, len(sources), _TOLERANCE, _TABLE_BYTES))
    everything = len(targets) == graph.n_nodes and (np.diff(targets) == 1).all()
    size = len(sources)
    if not callable(teacher):  # a function given by the user is called once for all sources
        dense = getattr(teacher, "form", "") == "dense" or 8 * graph.n_nodes * size <= _BLOCK_BYTES
        size = max(1, int(_BLOCK_BYTES / (8.0 * graph.n_nodes if dense else row_memory(graph, series))))
    for start in range(0, len(sources), size):
        some = sources[start : start + size]
        found = signatures.compute(
            graph,
            series,
            some,
            teacher=teacher,
            asymmetric=True,  # the series itself, not its root
            seed=signatures.seed,
            n_jobs=signatures.n_jobs,
            progress=functools.partial(_advance, signatures.progress, start, len(sources)),
        )
        rows = sparse.csr_array(found.rows if everything else found.rows[:, targets])
        yield some, rows if rows.data.flags.writeable else rows.copy()


def _advance(progress: Progress, before: int, everything: int, what: str, done: int, total: int) -> None:
    """Report the progress of a block as progress of the whole; other stages have their own totals."""
    part = what == "signatures"
    progress(what, before + done if part else done, everything if part else total)


def without_negligible(matrix: Any, share: float) -> Any:
    """Drop entries far below the largest in their column; the result has sorted columns."""
    peaks = np.zeros(matrix.shape[1])
    np.maximum.at(peaks, matrix.indices, np.abs(matrix.data))
    result = _without_small(matrix, peaks[matrix.indices], share)
    result.sort_indices()
    return result


def _without_small(matrix: Any, peaks: FloatArray, share: float) -> Any:
    """Drop entries below a share of their peak; ``peaks`` has one value per stored entry."""
    return select_entries(matrix, matrix.data, np.abs(matrix.data) > share * peaks)


def pick_device(device: str) -> str:
    """Return "cuda" or "cpu"; asking for "cuda" on a machine without it is an error."""
    found = require("torch", "torch").cuda.is_available()
    if device == "cuda" and not found:
        reject("device", "'cpu' or 'auto' on a machine without CUDA", "'cuda'")
    return "cuda" if found and device != "cpu" else "cpu"


def check_device(device: Any) -> None:
    """Raise if a device is not a known name or is not available."""
    if check_option(device, "device", DEVICES) == "cuda":
        pick_device(device)


def read_field(
    field: AbstractField, queries: FloatArray, n_jobs: int, device: str, *, as_sparse: bool = False
) -> Any:
    """Values of a field, computed on the given device.

    "auto" looks for a CUDA device only for networks: for other fields, loading torch takes longer than most calls.
    """
    wanted = check_option(device, "device", DEVICES)
    looks = wanted == "cuda" or (wanted == "auto" and field.is_network)
    chosen = pick_device(wanted) if looks else "cpu"
    if chosen == "cpu":
        return field.sparse_values(queries, n_jobs) if as_sparse else field.values(queries, n_jobs)
    found = field.values_on(chosen, queries, n_jobs)
    return sparse.csr_array(found) if as_sparse and not sparse.issparse(found) else found


def sparse_product(left: Any, right: Any, device: str) -> Any:
    """Product of two CSR arrays on a device, as a CSR array with sorted columns; a block of rows at a time."""
    size = max(1, _ENTRIES_AT_ONCE // max(1, right.shape[1]))
    table = csr_tensor(right, device)
    parts = []
    for start in range(0, left.shape[0], size):
        found = csr_tensor(left[start : start + size], device) @ table
        names = ("values", "col_indices", "crow_indices")
        data, columns, ends = (getattr(found, name)().cpu().numpy() for name in names)
        parts.append(sparse.csr_array((data, columns, ends), shape=tuple(found.shape)))
        parts[-1].sort_indices()
    if not parts:
        return sparse.csr_array((0, right.shape[1]))
    return parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")


def csr_tensor(rows: Any, device: Any, dtype: Any = None) -> Any:
    """A CSR array as a tensor on a device, in its own precision or in ``dtype``."""
    torch = require("torch", "torch")
    with filtered("ignore", "Sparse", UserWarning):  # torch calls sparse tensors a beta feature; products work
        return torch.sparse_csr_tensor(
            torch.as_tensor(rows.indptr.astype(np.int64), device=device),
            torch.as_tensor(rows.indices.astype(np.int64), device=device),
            torch.as_tensor(rows.data, device=device),
            size=rows.shape,
            dtype=dtype,
            device=device,
        )
