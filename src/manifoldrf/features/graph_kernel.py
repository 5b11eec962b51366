"""A kernel on the graph of a space with the units of both, and tables of its signatures."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.stats import chi2

from manifoldrf._codec import UNSTORED, stored
from manifoldrf._random import SeedLike
from manifoldrf._runtime import ManifoldWarning, Progress, silent, warn_user
from manifoldrf._validation import FloatArray, IntArray, check_integer, reject
from manifoldrf.geometry.csr import check_amounts, reciprocal, row_peaks, select_entries
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.heat import HeatExtension
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.model_spaces import AbstractBall
from manifoldrf.geometry.neighbors import Sampling
from manifoldrf.geometry.spaces import AbstractSpace
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.signatures import Exact, choose_form, compute_signatures, row_memory


@stored
@dataclass(frozen=True, eq=False)
class GraphKernel:
    """A kernel K = h(W) on a graph that discretises a space.

    Signatures are rows of Phi with K = Phi Phi^T. Their smooth part is g(x, y) = Phi(x, y) / sqrt(mu_x mu_y), with
    mu the volume of a node (degrees of the graph, up to a factor, if volumes are not known).

    Attributes
    ----------
    graph : Graph
        With points.
    stated : AbstractKernel
        The kernel as the user stated it, or as it was chosen.
    resolved : AbstractKernel
        The same in steps of the graph.
    dim : int
        Intrinsic dimension.
    per_volume : bool
        Whether features represent a kernel of the space, per unit of volume ("manifold clock"); else the kernel of
        the graph, as if a point were a node ("graph clock").
    manifold : AbstractManifold, optional
        The space itself, if it is a named one: the nodes are its grid.
    asymmetric : bool
        Whether rows of the kernel replace signatures, because it has no nonnegative features.
    space : AbstractSpace, optional
        What the graph was built on, for an estimate of its error; not kept in files.
    """

    graph: Graph
    stated: AbstractKernel
    resolved: AbstractKernel
    dim: int
    per_volume: bool
    manifold: AbstractManifold | None = None
    asymmetric: bool = False
    space: AbstractSpace | None = field(default=None, metadata=UNSTORED)

    def _check_loaded(self) -> None:
        check_integer(self.dim, "dim", 1, max(self.graph.positions.shape[1], 1))

    @cached_property
    def series(self) -> AbstractKernel:
        """The series that a signature sums."""
        return self.resolved if self.asymmetric else self.resolved.root()

    @cached_property
    def volume(self) -> float:
        """Volume of the space: known to the graph, the mesh or the metric, else estimated from the density."""
        graph = self.graph
        if graph.weights is not None:
            return float(graph.weights.sum())
        if graph.mesh is not None:
            if not graph.mesh.area > 0:
                reject("X", "a mesh with area", "degenerate faces only")
            return float(graph.mesh.area)
        if graph.metric is not None and not isinstance(graph.metric, AbstractBall):
            return float(graph.metric.volume)
        return Sampling.of_cloud(graph._search, self.dim, "X").volume

    @cached_property
    def _volumes(self) -> FloatArray:
        """Volume of each node: its weight, or its share of the degrees; zero for nearly isolated nodes."""
        if self.graph.weights is not None:
            check_amounts("weights", self.graph.weights, self.graph.n_nodes)
            return self.graph.weights
        degrees = self.graph.degrees
        if not degrees.any():
            reject("X", "a space whose graph has edges", f"{self.graph.n_nodes} isolated nodes")
        # Values divided by the degree of nearly isolated nodes would be noise.
        kept = np.where(degrees >= 1e-4 * np.median(degrees[degrees > 0]), degrees, 0.0)
        share = self.volume / float(kept.sum())
        if not np.isfinite(share):  # affinities are tiny
            return kept / float(kept.sum()) * self.volume
        return kept * share

    @cached_property
    def unit(self) -> float:
        """Mean volume of a node. The measure is in this unit so that nothing overflows in the user's units."""
        volumes = self._volumes
        return float(volumes[volumes > 0].mean())

    @cached_property
    def measure(self) -> FloatArray:
        """mu, the volume of each node over ``unit``, shape (n_nodes,); zero at isolated nodes."""
        return self._volumes / self.unit

    @cached_property
    def width(self) -> float:
        """Standard deviation of a signature along one axis, as a length: sqrt(t) for the heat kernel at time t."""
        values = self.series.spectral(np.array([1.0 - 1e-6, 1.0]))
        low, high = np.ldexp(values, -np.frexp(values)[1].max())  # coefficients may be as small as doubles get
        mean_length = abs(float((high - low) / (1e-6 * high))) if high else 1.0
        return float(np.sqrt(2 * mean_length * self.graph.time(1.0, self.dim)))

    @property
    def has_spike(self) -> bool:
        """Whether signatures have a spike at their own node, which a first step would lose."""
        first, total = float(self.series.coefficients(1)[0]), float(self.series.spectral(np.array([1.0]))[0])
        # On 300 nodes of a sphere, features with the spike raised the log likelihood of (c + L)^-1/2 from -55 to
        # -35.
        return abs(first) > 2e-3 * abs(total)

    @cached_property
    def reaches(self) -> FloatArray:
        """Distance from each node within which a query counts as near the space, shape (n_nodes,).

        1.5 times the distance to the neighbours of the node: fewer than one in 10,000 random points on the sphere
        is farther away from its nearest node.
        """
        search = self.graph._search
        k = min(2 * self.dim + 2, len(search.points) - 1)
        reaches = 1.5 * search.knn(search.points, k + 1)[0][:, k]
        extension = self.graph.extension
        if isinstance(extension, HeatExtension):  # its steps end at its radius, which is where features vanish
            reaches = np.minimum(np.maximum(reaches, extension.radius / 2), extension.radius)
        return np.asarray(reaches)

    def distance(self, queries: FloatArray) -> FloatArray:
        """Distance to the nearest node or, on a mesh or a noisy cloud, to the surface, shape (q,)."""
        mesh = self.graph.whole_mesh
        if mesh is not None:
            return np.asarray(np.linalg.norm(queries - mesh.closest_points(queries).points, axis=1))
        placed = self.graph.placed(queries)
        distances = np.asarray(self.graph._search.knn(placed, 1)[0][:, 0])
        return np.asarray(np.hypot(distances, np.linalg.norm(queries - placed, axis=1)))

    @property
    def _noise(self) -> float:
        """Distance from the space that one in a thousand noisy points exceeds."""
        extension = self.graph.extension
        if extension is None or extension.noise_std == 0:
            return 0.0
        return float(
            extension.noise_std * np.sqrt(chi2.isf(1e-3, max(1, self.graph.positions.shape[1] - self.dim)))
        )

    def window(self, queries: FloatArray, placed: FloatArray | None = None, n_jobs: int = 1) -> FloatArray:
        """Factor of the features, shape (q,): 1 near the space, falling smoothly to 0 at twice that distance.

        ``placed`` is where the queries are on the space, if that is known already.
        """
        if placed is None:
            placed = self.graph.placed(queries)
        distances, nodes = self.graph._search.knn(placed, 1, n_jobs)
        distances, reaches = distances[:, 0], self.reaches[nodes[:, 0]]
        away = np.flatnonzero(distances > reaches)
        if len(away) and self.graph.whole_mesh is not None:  # far from all nodes, but maybe inside a large face
            distances[away] = self.distance(queries[away])
        if placed is not queries:  # farther from the surface than noise is
            moved, noise = np.linalg.norm(queries - placed, axis=1), self._noise
            distances = np.hypot(distances, np.maximum(moved - noise, 0.0))
            reaches = reaches + noise  # which moves points beyond an edge, too
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = np.where(distances <= reaches, 0.0, np.clip(distances / reaches - 1.0, 0.0, 1.0))
        return np.asarray((1 - beyond) ** 2 * (1 + 2 * beyond))


@dataclass(frozen=True)
class Teaching:
    """How signatures are computed: the corresponding arguments of :func:`compute_signatures`."""

    teacher: Any = "auto"
    seed: SeedLike = None
    n_jobs: int = 1
    progress: Progress = silent


# Entries below this share of the largest in their column are dropped from tables that one more step follows: the
# kernel changes by a similar share, and the table becomes a quarter smaller.
STEP_SHARE = 3e-6


def signature_table(
    kernel: GraphKernel,
    series: AbstractKernel,
    starts: IntArray,
    anchors: IntArray,
    teaching: Teaching,
    share: float = 1e-7,
) -> Any:
    """Entries (starts, anchors) of a series of W, divided by sqrt(mu) at both ends: CSR of shape (s, m).

    A series of a symmetric matrix is symmetric, so rows are computed from the smaller of the two sets. Entries
    below a share of the largest in their column are dropped: a thousand of them at 1e-7 change a kernel by less
    than a millionth.
    """
    graph, teacher = kernel.graph, teaching.teacher
    backwards = len(anchors) < len(starts)
    sources, targets = (anchors, starts) if backwards else (starts, anchors)
    everything = len(targets) == graph.n_nodes and (np.diff(targets) == 1).all()
    inverse = reciprocal(np.sqrt(kernel.measure))  # nodes without measure reach nothing
    if isinstance(teacher, str):  # "auto" or "exact"
        teacher = Exact(1e-7, choose_form(graph, series, len(sources), 1e-7, 2**32))  # kept rows are smaller
    size = len(sources)
    if not callable(teacher):  # a function given by the user is called once for all sources
        dense = teacher == Exact(1e-7, "dense") or 8 * graph.n_nodes * size <= 2**28
        size = max(1, int(2**28 / (8.0 * graph.n_nodes if dense else row_memory(graph, series))))
    blocks: list[Any] = []  # of sources, such that each fits in memory

    def progress(what: str, done: int, total: int) -> None:
        if what == "signatures":  # other stages have their own totals
            done, total = done + len(blocks) * size, len(sources)
        teaching.progress(what, done, total)

    for start in range(0, len(sources), size):
        some = sources[start : start + size]
        found = compute_signatures(
            graph,
            series,
            some,
            teacher=teacher,
            asymmetric=True,  # the series itself, not its root
            seed=teaching.seed,
            n_jobs=teaching.n_jobs,
            progress=progress,
        )
        rows = sparse.csr_array(found.rows if everything else found.rows[:, targets])
        rows = rows if rows.data.flags.writeable else rows.copy()
        rows.data *= np.repeat(inverse[some], np.diff(rows.indptr))
        rows.data *= inverse[targets][rows.indices]
        if backwards:  # rows from anchors are whole columns of the result
            rows = select_entries(rows, rows.data, np.abs(rows.data) > share * row_peaks(rows))
        blocks.append(rows)
    table = blocks[0] if len(blocks) == 1 else sparse.vstack(blocks, format="csr")
    blocks.clear()
    return table.T.tocsr() if backwards else without_negligible(table, share)


def without_negligible(matrix: Any, share: float) -> Any:
    """Drop entries far below the largest in their column; the result has sorted columns."""
    peaks = np.zeros(matrix.shape[1])
    np.maximum.at(peaks, matrix.indices, np.abs(matrix.data))
    result = select_entries(matrix, matrix.data, np.abs(matrix.data) > share * peaks[matrix.indices])
    result.sort_indices()
    return result


class FarQueryWarning(ManifoldWarning):
    """Some transformed points are not on the space: their features fade to zero.

    Parameters
    ----------
    fading : int
        Number of points that are away from the space.
    gone : int
        Number of those whose features are zero.
    total : int
        Number of all transformed points.

    Examples
    --------
    >>> import warnings
    >>> from manifoldrf import FarQueryWarning, HeatKernel, ManifoldRandomFeatures, Sphere
    >>> features = ManifoldRandomFeatures(HeatKernel(0.1)).fit(Sphere())
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", FarQueryWarning)
    ...     far = features.transform([[0.0, 0.0, 3.0]])
    >>> float(far.max()), len(caught)
    (0.0, 1)
    """

    def __init__(self, fading: int, gone: int, total: int) -> None:
        super().__init__(fading, gone, total)
        self.fading, self.gone, self.total = fading, gone, total

    @property
    def count(self) -> str:
        """The numbers of points, as a sentence."""
        text = f"{self.fading} of {self.total} points are away from the space, so their features fade"
        return f"{text}; those of {self.gone} are zero." if self.gone else f"{text}."

    def __str__(self) -> str:
        return f"{self.count} `distance_to_space` says how far they are."


def warn_of_far(window: FloatArray) -> None:
    """Warn once about all queries that are away from the space."""
    fading, gone = int(np.count_nonzero(window < 1)), int(np.count_nonzero(window == 0))
    if fading:
        warn_user(FarQueryWarning(fading, gone, len(window)))
