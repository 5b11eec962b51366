"""Graphs: the discretised space, its random walk, and its two clocks.

A graph holds a symmetric, nonnegative affinity A. Its walk operator is W = D^-1/2 A D^-1/2 with D the row
sums of A, its Laplacian L = I - W. The graph clock counts steps of the walk (tau in exp(-tau L), n in W^n);
the manifold clock is heat time t, in the user's unit of length squared.
"""

import abc
import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse import csgraph
from scipy.spatial import cKDTree

from manifoldrf._codec import save_value, stored
from manifoldrf._files import html_table
from manifoldrf._native import loops
from manifoldrf._random import generator
from manifoldrf._runtime import one_blas_thread, quiet_underflow, warn_user
from manifoldrf._validation import (
    NONNEGATIVE,
    POSITIVE,
    FloatArray,
    IntArray,
    check_indices,
    check_integer,
    check_points,
    check_real,
    check_spread,
    reject,
)
from manifoldrf.geometry.csr import (
    LocalForm,
    check_amounts,
    check_csr,
    check_shape,
    check_symmetric,
    components_of,
    csr_parts,
    local_form,
    read_only,
    read_only_view,
    reciprocal,
    scaled_both_ends,
)
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.neighbors import (
    SHRINK,
    NeighborSearch,
    check_on_metric,
    estimate_dimension,
    farthest_first,
    farthest_points,
    sample_blocks,
)
from manifoldrf.geometry.objects import read_affinity, recognise

# These first farthest points are exact; the others come from greedy sweeps, which do not search for the farthest.
_N_EXACT = 10_000
_TAKEN = -1.0  # marks the distance of a node that is chosen already
_ROWS_AT_ONCE = 65_536  # edges are measured in blocks of rows, to bound memory


class AbstractExtension(abc.ABC):
    """The rule that joins new points to the nodes of a graph.

    Row z of the affinities is the row that the point z would have if it were a node. Its sum is the degree of z,
    and the row divided by it is one step of the walk from z. A row is zero if no node is in reach.

    Attributes
    ----------
    mesh : TriangleMesh or None
        The mesh that holds the points.
    nodes_are_vertices : bool
        Whether the nodes are the vertices of the mesh.
    noise_std : float
        Standard deviation of the noise around the space, per coordinate.
    """

    mesh: TriangleMesh | None
    nodes_are_vertices = False
    noise_std: float = 0.0

    @abc.abstractmethod
    def affinities(self, queries: FloatArray, n_jobs: int = 1) -> Any:
        """Affinities of new points to the nodes, a nonnegative CSR array of shape (len(queries), n_nodes)."""

    @abc.abstractmethod
    def check(self, n: int, d: int) -> None:
        """Raise unless the extension fits a graph of n nodes with d coordinates; compiled code does not check."""

    def place(self, queries: FloatArray, n_jobs: int = 1) -> FloatArray:
        """Positions of points on the space; noisy ones are moved."""
        return queries


@stored
@dataclass(frozen=True, eq=False)
class Graph:
    """A weighted graph on points of a space.

    Build it with :func:`knn_graph`, :func:`heat_graph`, :func:`mesh_graph` or :func:`grid_graph`, or from your own
    matrix with :meth:`from_affinity`. All arrays are read-only; take a ``copy()`` of ``affinity`` or ``operator``
    to change it.

    Parameters
    ----------
    affinity : CSR array of shape (n_nodes, n_nodes)
        A, symmetric and nonnegative.
    points : array of shape (n_nodes, d), optional
        Positions of the nodes.
    metric : AbstractManifold, optional
        Manifold along which distances between nodes are measured; by default they are measured in ambient space.
    extension : AbstractExtension, optional
        How :meth:`extend` reaches new points.
    weights : array of shape (n_nodes,), optional
        Volume of each node, if known; their sum is the volume of the space.
    step_time : float, optional
        Heat time of one step of W, if known by construction.
    n_steps : int, optional
        For a heat graph: W^n_steps is the heat operator at the time the graph was built for.

    Examples
    --------
    >>> from manifoldrf import Sphere, knn_graph
    >>> graph = knn_graph(Sphere().grid(500))
    >>> graph.n_nodes, graph.n_components
    (500, 1)
    >>> graph
    Graph(500 nodes, 2071 edges, points in R^3)
    """

    affinity: Any
    points: FloatArray | None = None
    metric: AbstractManifold | None = None
    extension: AbstractExtension | None = None
    weights: FloatArray | None = None
    step_time: float | None = None
    n_steps: int | None = None

    def __post_init__(self) -> None:  # noqa: C901  (one check for each part)
        if not sparse.issparse(self.affinity):
            rule = "a CSR array; Graph.from_affinity takes any matrix"
            reject("affinity", rule, type(self.affinity).__name__, TypeError)
        # Several stages share a graph, so no stage may change it.
        object.__setattr__(self, "affinity", read_only(self.affinity))
        for name in ("points", "weights"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, read_only_view(getattr(self, name)))
        n = self.n_nodes
        check_csr("affinity", self.affinity, (n, n))
        if n == 0:
            reject("affinity", "of at least one node", n)
        if self.step_time is not None:
            check_real(self.step_time, "step_time", NONNEGATIVE)
        if self.n_steps is not None:
            check_integer(self.n_steps, "n_steps", 1)
        if self.weights is not None:
            check_amounts("weights", self.weights, n)
        if self.points is None and self.extension is None:
            return
        d = self.positions.shape[1] if self.positions.ndim == 2 else 0
        check_shape("points", self.positions, (n, d))
        check_on_metric(self.positions, self.metric)
        if self.extension is not None:
            self.extension.check(n, d)

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        # Copies and pickles go through the constructor: arrays are read-only again, and cached values are dropped.
        return type(self), tuple(getattr(self, field.name) for field in dataclasses.fields(self))

    def __sklearn_clone__(self) -> Self:
        return self

    @classmethod
    def from_affinity(cls, affinity: Any, points: ArrayLike | None = None) -> "Graph":
        """Make a graph from your own matrix, or from a graph of another library.

        Parameters
        ----------
        affinity : array-like or sparse matrix of shape (n, n), or graph
            Symmetric, finite, nonnegative; zeros mean no edge. Or an undirected networkx graph, with the attribute
            ``weight`` of its edges as affinities (1 by default); or a torch_geometric ``Data``, with its
            ``edge_weight`` (1 by default); or an array of integers of shape (2, m), m not 2. The last two hold
            every edge in both directions. Nodes keep their order, and repeated edges add up.
        points : array-like of shape (n, d), optional
            Positions of the nodes; needed for lengths, paths and the manifold clock. By default the ``pos`` of the
            nodes of a networkx graph or of ``Data``, if there are any.

        Examples
        --------
        >>> from manifoldrf import Graph
        >>> triangle = Graph.from_affinity([[0, 1, 1], [1, 0, 1], [1, 1, 0]])
        >>> triangle.operator.toarray()[0].round(12).tolist()
        [0.0, 0.5, 0.5]
        """
        located = None if points is None else check_points(points)
        found = read_affinity(affinity, "affinity", None if located is None else len(located))
        return _graph_of(found.affinity, found.points if located is None else located, "affinity")

    def save(self, path: Any) -> Path:
        """Write the graph to one file for :func:`manifoldrf.load`. The file holds arrays and text, no code.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> from manifoldrf import Sphere, knn_graph, load
        >>> with TemporaryDirectory() as folder:
        ...     load(knn_graph(Sphere().grid(500)).save(f"{folder}/graph.safetensors"))
        Graph(500 nodes, 2071 edges, points in R^3)
        """
        return save_value(path, self)

    def __repr__(self) -> str:
        parts = [f"{self.n_nodes} nodes", f"{self.n_edges} edges"]
        if self.points is not None:
            parts.append(f"points in R^{self.points.shape[1]}")
        if self.n_steps is not None:
            parts.append(f"n_steps={self.n_steps}")
        return f"Graph({', '.join(parts)})"

    def _repr_html_(self) -> str:
        return html_table("Graph", self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        """Sizes and units as names and texts, for tables."""
        degrees = self.degrees
        rows = [
            ("nodes", str(self.n_nodes)),
            ("edges", str(self.n_edges)),
            ("components", str(self.n_components)),
            ("degrees", f"{degrees.min():.3g} to {degrees.max():.3g}"),
            ("points", "none" if self.points is None else f"in R^{self.points.shape[1]}"),
            ("volume", "" if self.weights is None else f"{self.weights.sum():.4g}"),
            ("time of a step", "" if self.step_time is None else f"{self.step_time:.3g}"),
            ("steps", str(self.n_steps or "")),
        ]
        return [row for row in rows if row[1]]

    @property
    def n_edges(self) -> int:
        """Number of edges between different nodes."""
        return int(self.affinity.nnz - np.count_nonzero(self.affinity.diagonal())) // 2

    @property
    def positions(self) -> FloatArray:
        """The points, shape (n_nodes, d); raises if there are none."""
        if self.points is None:
            text = "This graph has no points; give `points` to Graph.from_affinity"
            raise ValueError(f"{text}, or use GraphRandomFeatures with a kernel in steps, such as DiffusionKernel.")
        return self.points

    @property
    def mesh(self) -> TriangleMesh | None:
        """The mesh whose vertices are the nodes, if there is one."""
        return self.whole_mesh if self.extension is not None and self.extension.nodes_are_vertices else None

    @property
    def whole_mesh(self) -> TriangleMesh | None:
        """The mesh that holds the points, if any: that of the nodes, or a finer one."""
        return None if self.extension is None else self.extension.mesh

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return int(self.affinity.shape[0])

    @cached_property
    def degrees(self) -> FloatArray:
        """Row sums of the affinity, shape (n_nodes,); zero for isolated nodes."""
        return read_only_view(np.asarray(self.affinity.sum(axis=1)).ravel())

    @cached_property
    def operator(self) -> Any:
        """W = D^-1/2 A D^-1/2, CSR; symmetric, spectrum in [-1, 1], zero rows for isolated nodes."""
        return self._with_entries(scaled_both_ends(self.affinity, reciprocal(np.sqrt(self.degrees))))

    @cached_property
    def _local(self) -> LocalForm | None:
        """The operator with its nodes reordered so that neighbours are close in memory."""
        return local_form(self.operator)

    @cached_property
    def _search(self) -> NeighborSearch:
        """Neighbour search over the nodes, taken from the extension if it has one."""
        own = getattr(self.extension, "search", None)
        return own if isinstance(own, NeighborSearch) else NeighborSearch(self.positions, self.metric)

    @cached_property
    def _dimension(self) -> int:
        """Intrinsic dimension of the metric; without a metric, estimated from at least three points."""
        if self.metric is not None:
            return self.metric.dim
        known = getattr(getattr(self.extension, "nodes", None), "dim", None)
        if known is not None:
            return int(known)
        if self.n_nodes < 3:
            reject("dim", "given for a graph of fewer than 3 nodes", None)
        check_spread(self.positions, "points")
        return estimate_dimension(self._search)

    @cached_property
    def components(self) -> IntArray:
        """Connected component of every node, shape (n_nodes,), numbered from 0."""
        return read_only_view(components_of(self.affinity))

    @property
    def n_components(self) -> int:
        """Number of connected components; an isolated node counts as one."""
        return int(self.components.max()) + 1

    @cached_property
    @one_blas_thread()
    def step_size(self) -> float:
        """Mean squared length of one step of the stationary walk: the mean of |x_i - x_j|^2 weighted by A."""
        moment = sum(float(self.affinity.data[rows] @ squared) for rows, squared in self._squared_lengths())
        total = float(self.affinity.data.sum())
        return moment / total if total > 0 else 0.0

    def time(self, tau: float, dim: int | None = None) -> float:
        """Convert ``tau`` steps of the graph clock to heat time t of the manifold clock.

        t = tau * step_size / (2 dim), or tau * step_time if the graph has a ``step_time``.

        Parameters
        ----------
        tau : float
            Number of steps.
        dim : int, optional
            Intrinsic dimension. By default the dimension of the metric; without a metric, estimated from the
            points.

        Examples
        --------
        >>> from manifoldrf import Sphere, knn_graph
        >>> round(knn_graph(Sphere().grid(4000)).time(20.0, dim=2), 4)
        0.0208
        """
        steps = check_real(tau, "tau", NONNEGATIVE)
        if dim is not None:
            check_integer(dim, "dim", 1)
        if self.step_time is not None:
            return steps * self.step_time
        return steps * (self.step_size / (2 * (self._dimension if dim is None else dim)))

    def steps(self, t: float, dim: int | None = None) -> float:
        """Convert heat time ``t`` to a number of steps tau: the inverse of :meth:`time`."""
        step = self.time(1.0, dim)
        if step == 0:
            raise ValueError(
                "This graph has steps of length zero, so no number of steps takes a positive time: "
                "it has no edges, or all its points are equal."
            )
        return check_real(t, "t", NONNEGATIVE) / step

    def shortest_paths(self, sources: ArrayLike) -> FloatArray:
        """Lengths of the shortest paths along the edges.

        Parameters
        ----------
        sources : int or array-like of int
            Start nodes.

        Returns
        -------
        distances : array of shape (n_sources, n_nodes)
            Infinite between components.
        """
        indices = check_indices(sources, "sources", self.n_nodes)
        return np.asarray(csgraph.dijkstra(self.lengths, directed=True, indices=indices))

    @quiet_underflow()
    def extend(self, points: ArrayLike) -> Any:
        """Affinities of new points to the nodes.

        The row of z divided by its sum is one step of the walk from z; the sum is about the degree that z would
        have as a node. (Not exactly: other nodes cannot choose z as their neighbour, the density at z is estimated
        from its neighbours, and without self-loops a point on a node is still joined to it.) A row is zero where no
        node is in reach.

        Parameters
        ----------
        points : array-like of shape (q, d)

        Returns
        -------
        affinities : CSR array of shape (q, n_nodes)

        Examples
        --------
        >>> from manifoldrf import Sphere, knn_graph
        >>> graph = knn_graph(Sphere().grid(500))
        >>> graph.extend(Sphere().sample(3, seed=0)).shape
        (3, 500)
        """
        if self.extension is None:
            raise ValueError(
                "This graph has no rule for new points; knn_graph, heat_graph, mesh_graph and grid_graph set one."
            )
        queries = check_points(points, n_columns=self.positions.shape[1])
        if self.metric is not None:
            queries = self.metric.check(queries, "points")
        return self.extension.affinities(self.placed(queries))

    def placed(self, queries: FloatArray, n_jobs: int = 1) -> FloatArray:
        """Noisy points moved onto the space, shape (q, d); unchanged if the cloud had no noise."""
        return queries if self.extension is None else self.extension.place(queries, n_jobs)

    @cached_property
    def lengths(self) -> Any:
        """Edge lengths in the sparsity pattern of A; zero lengths are kept as edges."""
        data = np.concatenate([np.sqrt(squared) for _, squared in self._squared_lengths()])
        # Path search treats a stored zero as no edge, so the smallest normal number replaces it.
        return self._with_entries(np.maximum(data, np.finfo(np.float64).tiny))

    def _with_entries(self, data: FloatArray) -> Any:
        """Read-only CSR array with other values where the affinity has entries."""
        return read_only(sparse.csr_array((data, self.affinity.indices, self.affinity.indptr), self.affinity.shape))

    def _squared_lengths(self) -> Iterator[tuple[slice, FloatArray]]:
        """Squared lengths of the stored entries of A, a block of rows at a time."""
        points, indptr = self.positions, self.affinity.indptr
        for start in range(0, self.n_nodes, _ROWS_AT_ONCE):
            stop = min(start + _ROWS_AT_ONCE, self.n_nodes)
            entries = slice(int(indptr[start]), int(indptr[stop]))
            rows = np.repeat(np.arange(start, stop), np.diff(indptr[start : stop + 1]))
            ends = points[self.affinity.indices[entries]]
            if self.metric is None:
                yield entries, ((points[rows] - ends) ** 2).sum(axis=1)
            else:
                yield entries, self.metric.paired_distance(points[rows], ends) ** 2


def translated(value: Any, name: str) -> Any:
    """Return an object of another library as a mesh, a graph or points; anything else is returned unchanged."""
    if isinstance(value, np.ndarray) or type(value).__module__.startswith("manifoldrf."):
        return value
    if hasattr(value, "to_delayed"):
        return sample_blocks(value, name)
    found = recognise(value, name)
    if found is None:
        return value
    if found.affinity is not None:
        return _graph_of(found.affinity, found.points, name)
    return found.points if found.faces is None else TriangleMesh(found.points, found.faces)


def _graph_of(affinity: Any, points: ArrayLike | None, name: str) -> Graph:
    """Make a graph from a user's matrix and points."""
    matrix = check_symmetric(affinity, name)
    if matrix.nnz and matrix.data.min() < 0:
        reject(name, "finite and nonnegative", f"an entry of {matrix.data.min()}")
    # A copy: the caller may change the original later.
    located = None if points is None else np.array(check_points(points))
    if located is not None and len(located) != matrix.shape[0]:
        reject("points", f"an array of {matrix.shape[0]} rows, one per node", f"{len(located)}")
    graph = Graph(matrix, located)
    report_problems(graph, "affinities that join them")
    return graph


def check_graph(graph: Any) -> Graph:
    """Return the graph; raise an error for anything else."""
    if not isinstance(graph, Graph):
        rule = "a Graph; Graph.from_affinity makes one from a matrix or from a graph of another library"
        reject("graph", rule, type(graph).__name__, TypeError)
    return graph


def check_positive_float(value: Any, name: str) -> None:
    """Raise unless the value is a positive float: compiled loops cannot take large integers."""
    if not isinstance(value, float):
        reject(name, "a float", type(value).__name__, TypeError)
    check_real(value, name, POSITIVE)


def report_problems(graph: Graph, remedy: str, nearest: FloatArray | None = None, otherwise: str = "") -> None:
    """Warn once about isolated nodes, separate components and duplicates, with counts.

    Parameters
    ----------
    graph : Graph
    remedy : str
        How to join nodes, in terms of the builder's options.
    nearest : array of shape (n_nodes,), optional
        Distance of each node to its nearest neighbour.
    otherwise : str
        What to do about coincident nodes.
    """
    problems = []
    coincident = 0 if nearest is None else int(np.count_nonzero(nearest == 0))
    if coincident:
        problems.append(f"{coincident} points coincide with another (remedy: {otherwise})")
    loops = graph.affinity.diagonal() > 0
    isolated = int(np.count_nonzero(np.diff(graph.affinity.indptr) == loops))
    if isolated:
        alone = f"{isolated} nodes are isolated, without an edge to another"
        problems.append(f"{alone} (remedy: {remedy}, or drop them)")
    pieces = int(graph.components.max()) + 1 - isolated
    if pieces > 1:
        problems.append(f"it has {pieces} pieces that are not connected (remedy: {remedy}, or one graph per piece)")
    if problems:
        warn_user(f"Graph of {graph.n_nodes} nodes: {'; '.join(problems)}.")


def follows_edges(graph: Graph) -> bool:
    """Whether distances are measured along the edges: on meshes, with a metric, with several components."""
    if graph.mesh is not None or graph.metric is not None:
        return True
    return len(np.unique(graph.components[graph.degrees > 0])) > 1


def farthest_nodes(graph: Graph, m: int, n_exact: int = _N_EXACT) -> IntArray:
    """Choose ``m`` nodes one by one, each the farthest from the nodes chosen before it.

    Distances are Euclidean in a connected cloud, else shortest paths along the edges (:func:`follows_edges`). Nodes
    of other components are infinitely far away, so every component gets a node, the largest first.

    The first ``n_exact`` are exact: no two of them are closer to each other than the farthest node is to them.
    The others come from sweeps over all nodes in a fixed, pseudorandom order. A sweep keeps each node that is
    farther from all kept ones than .95 times the largest distance before the sweep.

    Returns
    -------
    nodes : int64 array of shape (m,)
        Different nodes in order of choice, so that every prefix is itself such a choice. The first is the node
        farthest from the centroid of its component. Nodes without edges come last.

    Examples
    --------
    >>> from manifoldrf import Sphere, knn_graph
    >>> from manifoldrf.geometry.graphs import farthest_nodes
    >>> len(set(farthest_nodes(knn_graph(Sphere().grid(500)), 50).tolist()))
    50
    """
    joined = np.flatnonzero(graph.degrees > 0)
    count = min(m, len(joined))
    isolated = np.flatnonzero(graph.degrees == 0)[: m - count]
    if count == 0:
        return isolated
    if follows_edges(graph):
        return np.concatenate([_along_edges(graph, joined, count, n_exact), isolated])
    cloud = np.ascontiguousarray(graph.positions[joined])
    if count <= n_exact:
        return np.concatenate([joined[farthest_first(cloud, count)[0]], isolated])
    gaps = np.linalg.norm(cloud - cloud.mean(axis=0), axis=1)
    # Neighbours in space are stored next to each other. A tree without medians takes a third of the time to build,
    # and its order is as good.
    leaf = 32
    order = cKDTree(cloud, leafsize=leaf, balanced_tree=False, compact_nodes=False).indices.astype(np.int64)
    first = int(np.flatnonzero(order == np.argmax(gaps))[0])
    # Sweeps visit 1024 neighbours before they go elsewhere: at a million points that takes a third less time than
    # visits in random order, because the data are in the cache.
    visits, places = _visits(len(cloud), 1024), np.arange(len(cloud))
    found = farthest_points(cloud[order], places, leaf, count, first, n_exact=n_exact, visits=visits)[0]
    return np.concatenate([joined[order[found]], isolated])


def nearest_sources(graph: Graph, sources: IntArray) -> IntArray:
    """Position in ``sources`` of the source nearest to every node; -1 if none is reachable."""
    if not follows_edges(graph):
        return np.asarray(cKDTree(graph.positions[sources]).query(graph.positions)[1], dtype=np.int64)
    found = csgraph.dijkstra(graph.lengths, indices=sources, min_only=True, return_predecessors=True)[2]
    places = np.full(graph.n_nodes + 1, -1)  # nodes without a source are marked by -9999
    places[sources] = np.arange(len(sources))
    return places[np.where(found >= 0, found, graph.n_nodes)]


def _along_edges(graph: Graph, joined: IntArray, count: int, n_exact: int) -> IntArray:
    """Farthest points of the joined nodes along the edges.

    They begin with the node of each component that is farthest from its centroid, large components first.
    """
    points = graph.positions[joined]
    pieces = np.unique(graph.components[joined], return_inverse=True)[1]
    sizes = np.bincount(pieces)
    centroids = np.stack([np.bincount(pieces, weights=column) for column in points.T], axis=1) / sizes[:, None]
    gaps: FloatArray = np.linalg.norm(points - centroids[pieces], axis=1)
    order = np.lexsort((joined, -gaps, pieces))  # within a component the farthest first
    heads = joined[order[np.searchsorted(pieces[order], np.arange(len(sizes)))]]
    heads = heads[np.argsort(-sizes, kind="stable")]  # components are numbered by their smallest node
    nearest = np.full(graph.n_nodes, _TAKEN)
    nearest[joined] = np.inf
    selected = np.zeros(count, np.int64)
    given = nearest, heads[:count], n_exact, _visits(graph.n_nodes, 1), SHRINK, selected
    loops.farthest_along_edges(*csr_parts(graph.lengths), *given)
    return selected


def _visits(n: int, patch: int) -> IntArray:
    """All positions, patch by patch, in a fixed pseudorandom order of patches and of positions in them."""
    rng = generator(0, "anchor sweeps")
    whole = n - n % patch
    patches = rng.permuted(np.arange(whole, dtype=np.int64).reshape(-1, patch), axis=1)
    return np.concatenate([patches[rng.permutation(len(patches))].ravel(), whole + rng.permutation(n - whole)])
