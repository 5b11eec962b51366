"""Interpolation of values known at nodes: value(z) = sum_j b_j(z) value(x_j), with weights b that sum to 1.

In a cloud, b comes from the quadratic polynomial that fits the nearest nodes in the plane of their principal axes,
by least squares weighted with 1 / distance^2: at a node it is the node's own value. On a mesh whose vertices are
all known, b are the barycentric coordinates of the nearest point of the surface, so that sheets that lie close in
space never mix.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._threads import map_threads
from manifoldrf._validation import FloatArray, IntArray, check_jobs
from manifoldrf.fields._tangent import interpolate_rows
from manifoldrf.geometry.extension import barycentric_weights
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.neighbors import NeighborSearch

# Neighbours for each coefficient of the quadratic. Relative error of the kernel of exp(-20 L) at held-out nodes of
# 4000 on sphere, ellipsoid, Moebius strip and torus: .0048 .0083 .0035 .0025 with 3; .0051 .0087 .0036 .0028 with
# 2.3; .0051 .0089 .0039 .0029 with 4; equal weights on twice as many neighbours as coefficients give .0049 .0083
# .0042 .0043. On three-dimensional spheres 4 is better than 3: .038 against .041 on even nodes, .092 against .14 on
# uneven ones.
_NODES_PER_COEFFICIENT = 3
_NODES_PER_COEFFICIENT_FROM_DIM_3 = 4
# Above this dimension a quadratic would need more than a hundred neighbours, most of them far away: values are
# averaged there with weights 1 / distance^2.
_QUADRATIC_DIM, _NODES_PER_AXIS = 5, 2
_QUERIES_AT_ONCE = 1024  # handled by one task


class AbstractInterpolation(ABC):
    """Weights of the known nodes at any point."""

    @property
    @abstractmethod
    def rule(self) -> str:
        """Where the weights come from: "tangent" or "barycentric"."""

    @abstractmethod
    def weights(self, queries: FloatArray) -> Any:
        """b(z), CSR array of shape (len(queries), n_known); rows sum to 1, none depends on the others."""


@dataclass(frozen=True, eq=False)
class TangentInterpolation(AbstractInterpolation):
    """Local quadratic least squares in the principal axes of the nearest known nodes.

    Attributes
    ----------
    search : NeighborSearch
        The known nodes.
    n_axes : int
        Coordinates that the quadratic is a function of; 0 for a weighted mean.
    n_neighbors : int
        Nodes that it is fitted to.
    """

    search: NeighborSearch
    n_axes: int
    n_neighbors: int

    @property
    def rule(self) -> str:
        """The string "tangent"."""
        return "tangent"

    def weights(self, queries: FloatArray) -> Any:
        """b(z), CSR array of shape (len(queries), n_known)."""
        points, k = self.search.points, self.n_neighbors
        _, neighbors = self.search.knn(queries, k)
        neighbors = neighbors.astype(np.int64, copy=False)
        found = interpolate_rows(points, queries, neighbors, periods(self.search), self.n_axes)  # (q, k)
        indptr = k * np.arange(len(queries) + 1)
        weights = sparse.csr_array((found.ravel(), neighbors.ravel(), indptr), shape=(len(queries), len(points)))
        weights.sort_indices()
        return weights


@dataclass(frozen=True, eq=False)
class SurfaceInterpolation(AbstractInterpolation):
    """Barycentric coordinates of the nearest point of a mesh whose vertices are the known nodes.

    Attributes
    ----------
    mesh : TriangleMesh
    order : int array of shape (n_vertices,)
        Position of each vertex among the known nodes.
    """

    mesh: TriangleMesh
    order: IntArray

    @property
    def rule(self) -> str:
        """The string "barycentric"."""
        return "barycentric"

    def weights(self, queries: FloatArray) -> Any:
        """b(z), CSR array of shape (len(queries), n_known)."""
        corners = barycentric_weights(self.mesh, self.mesh.closest_points(queries))
        weights = sparse.csr_array((corners.data, self.order[corners.indices], corners.indptr), shape=corners.shape)
        weights.sort_indices()
        return weights


def make_interpolation(graph: Graph, nodes: IntArray, dim: int) -> AbstractInterpolation:
    """The rule that fits a graph: barycentric on a mesh whose vertices are all known, else tangent planes.

    Parameters
    ----------
    graph : Graph
        With points.
    nodes : int array of shape (n_known,)
        Nodes at which values are known.
    dim : int
        Intrinsic dimension.
    """
    mesh = graph.mesh
    if mesh is not None and len(np.unique(nodes)) == graph.n_nodes == len(nodes):
        return SurfaceInterpolation(mesh, np.argsort(nodes))
    search = search_known(graph, nodes)
    n_known, d = search.points.shape
    # From dimension 3 on, one axis more than the dimension: a cloud of affordable size is too coarse for its
    # tangent spaces, and the offset along the main normal carries the curvature.
    n_axes, per_coefficient = min(dim, d), _NODES_PER_COEFFICIENT
    if dim > 2:
        n_axes, per_coefficient = min(dim + 1, d), _NODES_PER_COEFFICIENT_FROM_DIM_3
    if dim > _QUADRATIC_DIM:
        return TangentInterpolation(search, 0, min(_NODES_PER_AXIS * dim, n_known))
    n_coefficients = (n_axes + 1) * (n_axes + 2) // 2
    return TangentInterpolation(search, n_axes, min(per_coefficient * n_coefficients, n_known))


def interpolation_weights(graph: Graph, nodes: IntArray, queries: FloatArray, dim: int, n_jobs: int = 1) -> Any:
    """Weights b with value(z) = sum_j b_j(z) value(x_j) for values known at some nodes.

    Parameters
    ----------
    graph : Graph
        With points.
    nodes : int array of shape (n_known,)
        Nodes at which values are known.
    queries : array of shape (q, d)
        Points in the coordinates of the graph.
    dim : int
        Intrinsic dimension.
    n_jobs : int, default=1
        Threads. Results do not depend on it.

    Returns
    -------
    weights : CSR array of shape (q, n_known)
        Rows sum to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Sphere, knn_graph
    >>> from manifoldrf.fields.tangent import interpolation_weights
    >>> graph = knn_graph(Sphere().grid(500))
    >>> places = Sphere().sample(100, seed=0)
    >>> weights = interpolation_weights(graph, np.arange(500), places, dim=2)
    >>> heights = weights @ graph.points[:, 2]
    >>> bool(np.abs(heights - places[:, 2]).max() < 1e-3)
    True
    """
    rule = make_interpolation(graph, nodes, dim)
    return stack_rows(rule.weights, queries, len(nodes), check_jobs(n_jobs))


def stack_rows(rows_of: Callable[[FloatArray], Any], queries: FloatArray, n_columns: int, n_jobs: int) -> Any:
    """CSR rows of all queries, some at a time over threads: no row depends on how they are shared out."""
    queries = np.array(queries, dtype=np.float64, order="C")  # a writable copy: loops are compiled for one kind
    parts = [queries[k : k + _QUERIES_AT_ONCE] for k in range(0, len(queries), _QUERIES_AT_ONCE)]
    if not parts:
        return sparse.csr_array((0, n_columns))
    found = map_threads(rows_of, parts, n_jobs)
    return found[0] if len(found) == 1 else sparse.vstack(found, format="csr")


def search_known(graph: Graph, nodes: IntArray) -> NeighborSearch:
    """Search among some of the nodes of a graph, in its own metric; one thread, because callers use several."""
    if graph.points is None:
        raise ValueError("This graph has no points, so it has no field; give `points` to Graph.from_affinity.")
    return NeighborSearch(np.ascontiguousarray(graph.points[nodes]), graph.metric)


def periods(search: NeighborSearch) -> FloatArray:
    """Sides of the periodic box of the coordinates, shape (d,); zero where they are not periodic."""
    box = None if search.metric is None else search.metric.box
    return np.zeros(search.points.shape[1]) if box is None else np.asarray(box, dtype=np.float64)
