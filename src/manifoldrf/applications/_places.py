"""The graph that a field lives on, and what of its nodes is seen from other points."""

import dataclasses
from os import PathLike
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from manifoldrf._validation import FloatArray, check_option, check_points, naming, reject
from manifoldrf.geometry.builders import knn_graph, mesh_graph
from manifoldrf.geometry.extension import NeighborExtension, barycentric_weights
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.meshes import TriangleMesh

WEIGHTS = ("unit", "gaussian", "cotangent")


def graph_of(space: Any, weights: str, n_jobs: int) -> Graph:
    """The graph itself, the edges of a mesh, or the nearest neighbours of points, with the weights asked for."""
    check_option(weights, "weights", WEIGHTS)
    if isinstance(space, Graph):
        return space
    if isinstance(space, TriangleMesh):
        with naming("space", "mesh"):
            return mesh_graph(space, weights=weights)
    refuse_file(space)
    if hasattr(space, "vertices") and hasattr(space, "faces"):
        kind = type(space).__name__
        reject("space", "a TriangleMesh; make one by TriangleMesh(mesh.vertices, mesh.faces)", kind, TypeError)
    if weights == "cotangent":
        reject("weights", "'unit' or 'gaussian' for points; cotangents need the faces of a mesh", repr(weights))
    with naming("space", "points"):
        graph = knn_graph(check_points(space, "space", min_rows=2), n_jobs=n_jobs)
    return graph if weights == "gaussian" else _with_unit_affinities(graph)


def refuse_file(space: Any) -> None:
    """Say how a file becomes a space."""
    if isinstance(space, str | PathLike):
        reject("space", "a mesh, not its file: TriangleMesh.load reads one", repr(space), TypeError)


def _with_unit_affinities(graph: Graph) -> Graph:
    """The same edges with affinity 1, and new points joined to their neighbours with affinity 1."""
    affinity, extension = graph.affinity, graph.extension
    ones = sparse.csr_array((np.ones(affinity.nnz), affinity.indices, affinity.indptr), shape=affinity.shape)
    if isinstance(extension, NeighborExtension):
        extension = dataclasses.replace(extension, bandwidth=np.inf)  # exp(-distance^2 / inf) = 1
    return Graph(ones, graph.points, graph.metric, extension)


def views_of(graph: Graph, queries: FloatArray) -> Any:
    """How much each node counts at each point, CSR (q, n_nodes), nonnegative.

    On a mesh the shares of the corners of the nearest face; elsewhere one step of the walk, and the node itself
    where a point is one.
    """
    if graph.mesh is not None:
        return barycentric_weights(graph.mesh, graph.mesh.closest_points(queries))
    steps = graph.extend(queries)
    distances, nodes = cKDTree(graph.positions).query(queries)
    there = distances == 0
    if not there.any():
        return steps
    itself = sparse.csr_array((np.ones(int(there.sum())), (np.flatnonzero(there), nodes[there])), shape=steps.shape)
    return (sparse.diags_array((~there).astype(np.float64)) @ steps + itself).tocsr()
