"""How a graph reaches points that are not its nodes: affinities of new points to the nodes.

Row z of the result holds the affinities the point z would have if it were a node; its sum is the degree z
would have, and the row divided by it is one step of the walk from z. A row is zero where no node is in reach.
"""

import abc
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._validation import POSITIVE, FloatArray, IntArray, check_integer, check_real, reject
from manifoldrf.geometry.cells import heat_steps
from manifoldrf.geometry.loops import check_amounts, check_csr
from manifoldrf.geometry.meshes import MeshSample, TriangleMesh
from manifoldrf.geometry.model_spaces import FlatTorus
from manifoldrf.geometry.neighbors import NeighborSearch, Pairs

_LOCAL_NEIGHBOR = 7  # sets the width of a point that has its own (Zelnik-Manor and Perona 2004)


class AbstractExtension(abc.ABC):
    """Affinities of new points to the nodes of one graph."""

    @abc.abstractmethod
    def affinities(self, queries: FloatArray) -> Any:
        """CSR array of shape (len(queries), n_nodes), nonnegative."""

    @abc.abstractmethod
    def check(self, n: int, d: int) -> None:
        """Raise unless it fits a graph of n nodes with d coordinates: compiled code trusts sizes and indices."""


@dataclass(frozen=True, eq=False)
class NeighborExtension(AbstractExtension):
    """Gaussian affinities to the k nearest nodes, corrected for density as those of the graph are.

    Attributes
    ----------
    search : NeighborSearch
        The nodes.
    n_neighbors : int
        How many of them a new point is joined to.
    bandwidth : float
        Affinity exp(-distance^2 / bandwidth).
    density : array of shape (n_nodes,), optional
        What the affinities of the graph were divided by, at both ends (the exponent is applied already).
    local : array of shape (n_nodes,), optional
        Widths s of the nodes, where each has its own: distances are divided by sqrt(s_i s_j).
    """

    search: NeighborSearch
    n_neighbors: int
    bandwidth: float
    density: FloatArray | None = None
    local: FloatArray | None = None

    def check(self, n: int, d: int) -> None:
        """Raise unless it fits a graph of n nodes with d coordinates."""
        self.search.check(n, d)
        _check_float(self.bandwidth, "bandwidth")
        for name, values in (("density", self.density), ("local", self.local)):
            if values is not None:
                check_amounts(name, values, n)
        check_integer(self.n_neighbors, "n_neighbors", 1, n)

    def affinities(self, queries: FloatArray) -> Any:
        """CSR array of shape (len(queries), n_nodes)."""
        distances, columns = self.search.knn(queries, self.n_neighbors)
        if self.local is not None:
            distances = locally_scaled(distances, self._widths(distances, columns), self.local[columns])
        with np.errstate(over="ignore"):  # far away, or at a tiny bandwidth, all is zero
            weights = np.exp(-(distances**2) / self.bandwidth)  # (q, k)
        if self.density is not None:
            local = self.density[columns]
            own = _divide((weights * local).sum(axis=1), weights.sum(axis=1))  # (q,)
            weights = _divide(weights, local * own[:, None])
        indptr = np.arange(len(queries) + 1) * self.n_neighbors
        return _csr(weights.ravel(), columns.ravel(), indptr, len(self.search.points))

    def _widths(self, distances: FloatArray, columns: IntArray) -> FloatArray:
        """Widths (q,) of new points, where each has its own; at a node that of the node."""
        nodes: Any = self.local
        return np.where(distances[:, 0] > 0, local_widths(distances), nodes[columns[:, 0]])


@dataclass(frozen=True, eq=False)
class HeatExtension(AbstractExtension):
    """One heat step from a new point: normalised Gaussian weights times the nodes' Sinkhorn factors.

    Attributes
    ----------
    search : NeighborSearch
        The nodes.
    radius : float
        Reach of one step.
    bandwidth : float
        s2 of one step: weights exp(-distance^2 / s2).
    factors : array of shape (n_nodes,)
        u mu: Sinkhorn scaling times node weight.
    weights : array of shape (n_nodes,)
        mu, the node weights; a new point takes the mean of those it steps to.
    surface : SurfaceReach, optional
        On a mesh: which nodes a point of the surface can step to without leaving it.
    """

    search: NeighborSearch
    radius: float
    bandwidth: float
    factors: FloatArray
    weights: FloatArray
    surface: "SurfaceReach | None" = None

    def check(self, n: int, d: int) -> None:
        """Raise unless it fits a graph of n nodes with d coordinates."""
        self.search.check(n, d)
        _check_float(self.bandwidth, "bandwidth")
        _check_float(self.radius, "radius")
        check_amounts("factors", self.factors, n)
        check_amounts("weights", self.weights, n)
        if self.surface is not None:
            check_vertices(self.surface.mesh, n, d)
            check_csr("detours", self.surface.detours, (n, n))

    def affinities(self, queries: FloatArray) -> Any:
        """CSR array of shape (len(queries), n_nodes)."""
        if self.surface is None:
            pairs = self.search.within(queries, self.radius)
        else:
            pairs = self.surface.pairs(queries, self.radius)
        indptr = np.searchsorted(pairs.rows, np.arange(len(queries) + 1))
        values = np.zeros(len(pairs.rows))
        heat_steps(indptr, (pairs.columns, pairs.distances), (self.factors, self.weights), self.bandwidth, values)
        return _csr(values, pairs.columns, indptr, len(self.weights))


@dataclass(frozen=True, eq=False)
class SurfaceReach:
    """The nodes of a mesh that a point on its surface can step to along the surface.

    Attributes
    ----------
    mesh : TriangleMesh
    detours : CSR array of shape (n_nodes, n_nodes)
        Stored for all vertices each vertex can step to: how much longer than the straight line the step is.
    """

    mesh: TriangleMesh
    detours: Any

    def pairs(self, queries: FloatArray, radius: float) -> Pairs:
        """Query-vertex pairs at most ``radius`` apart, through the vertices of the query's nearest face.

        Distances are those of the point of the surface nearest to the query: off the surface, nothing is lost.
        """
        nearest = self.mesh.closest_points(queries)
        corners = barycentric_weights(self.mesh, nearest)
        # In units of the radius: added to one, a detour in tiny units of length would be lost.
        reached, longer = (corners @ self._with_data(data) for data in (1.0, 1.0 + self.detours.data / radius))
        for product in (reached, longer):  # the same pattern: all terms are positive
            product.sort_indices()
        rows = np.repeat(np.arange(len(queries)), np.diff(reached.indptr))
        columns = reached.indices.astype(np.int64)
        straight = np.linalg.norm(nearest.points[rows] - self.mesh.vertices[columns], axis=1)
        distances = straight + radius * (longer.data - reached.data)  # detours interpolated inside the face
        keep = distances <= radius
        return Pairs(rows[keep], columns[keep], distances[keep])

    def _with_data(self, data: FloatArray | float) -> Any:
        """The pattern of the detours with other values."""
        values = np.broadcast_to(data, self.detours.data.shape)
        return sparse.csr_array((values, self.detours.indices, self.detours.indptr), shape=self.detours.shape)


@dataclass(frozen=True, eq=False)
class MeshExtension(AbstractExtension):
    """Affinities interpolated inside the nearest face: exact at the vertices, continuous between them."""

    mesh: TriangleMesh
    affinity: Any

    def check(self, n: int, d: int) -> None:
        """Raise unless it fits a graph of n nodes with d coordinates."""
        check_vertices(self.mesh, n, d)
        check_csr("affinity", self.affinity, (n, n))

    def affinities(self, queries: FloatArray) -> Any:
        """CSR array of shape (len(queries), n_nodes)."""
        return (barycentric_weights(self.mesh, self.mesh.closest_points(queries)) @ self.affinity).tocsr()


@dataclass(frozen=True, eq=False)
class GridExtension(AbstractExtension):
    """Affinities interpolated linearly in every coordinate inside the cell of a wrap-around grid."""

    torus: FlatTorus
    side: int
    affinity: Any

    def check(self, n: int, d: int) -> None:
        """Raise unless it fits a graph of n nodes with d coordinates."""
        # First the bounds: the power of a made-up side would take hours.
        if not (1 <= self.side <= n and (self.side == 1 or d < 64)) or self.side**d != n:
            reject("side", f"one with side^{d} = {n} nodes", self.side)
        check_csr("affinity", self.affinity, (n, n))

    def affinities(self, queries: FloatArray) -> Any:
        """CSR array of shape (len(queries), n_nodes)."""
        position = np.mod(queries / self.torus.side, 1.0) * self.side  # (q, dim) in cells
        # (1 / 49) * 49 is not 1: a point within rounding of a node is that node.
        whole = np.rint(position)
        position = np.where(np.abs(position - whole) <= 1e-15 * self.side, whole, position)
        lower = np.floor(position).astype(np.int64)
        share = position - lower
        weights = np.ones((len(queries), 1))
        columns = np.zeros((len(queries), 1), dtype=np.int64)
        for axis in range(queries.shape[1]):  # twice the corners per axis
            ends = np.stack([lower[:, axis] % self.side, (lower[:, axis] + 1) % self.side], axis=1)
            parts = np.stack([1 - share[:, axis], share[:, axis]], axis=1)
            columns = (columns[:, :, None] * self.side + ends[:, None, :]).reshape(len(queries), -1)
            weights = (weights[:, :, None] * parts[:, None, :]).reshape(len(queries), -1)
        indptr = np.arange(len(queries) + 1) * weights.shape[1]
        corners = _csr(weights.ravel(), columns.ravel(), indptr, self.affinity.shape[0])
        return (corners @ self.affinity).tocsr()


def check_vertices(mesh: TriangleMesh, n: int, d: int) -> None:
    """Raise unless the vertices of a mesh can be the n nodes with d coordinates."""
    if (mesh.n_vertices, 3) != (n, d):
        reject("mesh", f"of {n} vertices with {d} coordinates", f"{mesh.n_vertices} with 3")


def _check_float(value: Any, name: str) -> None:
    """Raise unless it is a positive float: compiled loops take no integers of any length."""
    if not isinstance(value, float):
        reject(name, "a float", type(value).__name__, TypeError)
    check_real(value, name, POSITIVE)


def local_widths(distances: FloatArray) -> FloatArray:
    """The width (q,) of each point that has its own, from the distances (q, k) to its nearest others."""
    return np.asarray(distances[:, min(_LOCAL_NEIGHBOR, distances.shape[1]) - 1])


def locally_scaled(distances: FloatArray, own: FloatArray, others: FloatArray) -> FloatArray:
    """Distances (q, k) over the geometric mean of the widths of both ends: own (q,), others (q, k)."""
    # One root after the other: the product of two tiny widths would vanish.
    return _divide(distances, np.sqrt(own)[:, None] * np.sqrt(others))


def mesh_of(extension: AbstractExtension | None) -> TriangleMesh | None:
    """The mesh whose vertices are the nodes, where there is one."""
    if isinstance(extension, MeshExtension):
        return extension.mesh
    if isinstance(extension, HeatExtension) and extension.surface is not None:
        return extension.surface.mesh
    return None


def barycentric_weights(mesh: TriangleMesh, places: MeshSample) -> Any:
    """Share of each vertex in points of the surface: CSR (q, n_vertices), rows sum to 1."""
    indptr = 3 * np.arange(len(places.points) + 1)
    return _csr(places.barycentric.ravel(), mesh.faces[places.faces].ravel(), indptr, mesh.n_vertices)


def _csr(values: FloatArray, columns: Any, indptr: Any, n_nodes: int) -> Any:
    """CSR array with sorted columns and no stored zeros."""
    matrix = sparse.csr_array((values, columns, indptr), shape=(len(indptr) - 1, n_nodes))
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    return matrix


def _divide(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Quotient that is zero where the denominator is."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
