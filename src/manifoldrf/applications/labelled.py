"""The graph that a field lives on, and what of its nodes is seen from other points."""

import dataclasses
from collections.abc import Iterator
from os import PathLike
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree
from sklearn.utils.validation import check_is_fitted, validate_data

from manifoldrf._validation import (
    POSITIVE,
    FloatArray,
    Interval,
    check_option,
    check_points,
    check_real,
    column_names,
    naming,
    refuse_text,
    reject,
)
from manifoldrf.features._estimators import estimator_points
from manifoldrf.geometry.builders import NeighborExtension, knn_graph, mesh_graph
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh, barycentric_weights

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


_ENTRIES_AT_ONCE = 2**24  # of features: 128 MB


def check_data(estimator: Any, X: Any, y: Any) -> tuple[FloatArray, FloatArray]:
    """Points (n, d) and values (n, c); notes whether the values were a vector."""
    refuse_text(X, "X")  # scikit-learn reads numbers from texts
    if y is not None:
        refuse_text(y, "y")
    points, values = validate_data(
        estimator,
        X,
        y,
        dtype=np.float64,
        ensure_all_finite=False,  # of X; that of y is checked in any case
        multi_output=True,
        y_numeric=True,
        ensure_min_samples=2,
    )
    estimator._is_vector = np.ndim(values) == 1
    targets = check_points(np.reshape(values, (len(points), -1)), "y")
    return check_points(points, "X", names=column_names(X)), np.array(targets, dtype=np.float64)


def space_of(estimator: Any, points: FloatArray) -> Any:
    """The space as given, whose points must have as many coordinates as the data; the data themselves without."""
    space = estimator.space
    if space is None:
        return points
    refuse_file(space)
    if isinstance(space, AbstractManifold):
        d: int | None = space.ambient_dim
    else:
        nodes = getattr(space, "vertices", getattr(space, "points", space))
        d = np.shape(nodes)[-1] if np.ndim(nodes) else None
    if d != points.shape[1]:
        reject("X", f"points of shape (n, {d}), as the space has", f"shape {points.shape}")
    return space


def check_queries(estimator: Any, X: Any) -> FloatArray:
    """Check points to predict at."""
    check_is_fitted(estimator, "features_")
    return estimator_points(estimator, X, reset=False)[0]


def parts_of(values: FloatArray, m: int) -> Iterator[FloatArray]:
    """Some rows at a time, so that m features of each fit into memory."""
    size = max(1, _ENTRIES_AT_ONCE // m)
    for start in range(0, len(values), size):
        yield values[start : start + size]


def check_on_space(height: float, n: int) -> None:
    """Refuse data whose features are all zero, given the mean of their squares: nothing can be learnt from them."""
    if not height > 0:
        reject("X", "on the space, where there are features; do units or coordinates differ?", f"{n} points off it")


def dense_rows(rows: Any) -> FloatArray:
    """Return features as a dense float64 array."""
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=np.float64)


def check_level(value: Any, name: str, free: str = "auto", interval: Interval = POSITIVE) -> float | None:
    """A level that is given; None for one that is to be found, which a word says."""
    if isinstance(value, str):
        if value != free:
            reject(name, f"'{free}' or a number in {interval}", repr(value))
        return None
    return check_real(value, name, interval)
