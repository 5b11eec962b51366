"""Whether the parts of a graph fit together: a file with a valid checksum may still have been made by hand.

Compiled code trusts sizes and indices, and what is made of numbers is finite only where they are; so both are
compared once, when a file is loaded. Kinds of arrays were compared with what classes declare before.
"""

from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._validation import (
    NONNEGATIVE,
    POSITIVE,
    Interval,
    check_integer,
    check_jobs,
    check_points,
    check_real,
    reject,
)
from manifoldrf.geometry.extension import (
    AbstractExtension,
    GridExtension,
    HeatExtension,
    MeshExtension,
    NeighborExtension,
)
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.neighbors import NeighborSearch

_MOST_THREADS = 4096  # that a file may ask for


def check_graph(graph: Graph) -> None:
    """Compare the sizes and numbers of a graph and of what reaches new points."""
    n = graph.affinity.shape[0]
    check_sparse("affinity", graph.affinity, (n, n))
    if n == 0:
        reject("affinity", "of at least one node", n)
    _check_times(graph)
    if graph.weights is not None:
        check_amounts("weights", graph.weights, n)
    if graph.points is None and graph.extension is None:
        return
    d = graph.positions.shape[1] if graph.positions.ndim == 2 else 0
    check_sized("points", graph.positions, (n, d))
    _check_places(graph.positions, graph.metric)
    _check_extension(graph.extension, n, d)


def check_sparse(name: str, matrix: Any, shape: tuple[int, ...], *, signed: bool = False) -> None:
    """Raise unless it is a CSR array of this shape, of finite numbers that are at least 0."""
    if not isinstance(matrix, sparse.csr_array):
        reject(name, "a CSR array", type(matrix).__name__, TypeError)
    check_sized(name, matrix, shape)
    if matrix.dtype != np.float64:
        reject(name, "an array of float64", matrix.dtype, TypeError)
    check_numbers(name, matrix.data, signed=signed)


def check_float(value: Any, name: str, interval: Interval) -> None:
    """Raise unless it is a float inside the interval: compiled loops take no integers of any length."""
    if not isinstance(value, float):
        reject(name, "a float", type(value).__name__, TypeError)
    check_real(value, name, interval)


def check_numbers(name: str, array: Any, *, signed: bool = True) -> None:
    """Raise where an array has entries that are not finite or, unless they are signed, below 0."""
    if not (np.isfinite(array) & (signed | (array >= 0))).all():
        reject(name, "finite" if signed else "finite and at least 0", "others")


def check_amounts(name: str, array: Any, n: int) -> None:
    """Raise unless it is a vector of n numbers that are at least 0; volumes may be larger than any coordinate."""
    if np.shape(array) != (n,):
        reject(name, f"a vector of shape ({n},)", f"shape {np.shape(array)}")
    check_numbers(name, array, signed=False)


def check_sized(name: str, array: Any, shape: tuple[int, ...]) -> None:
    """Raise unless an array has this shape."""
    if tuple(getattr(array, "shape", ())) != shape:
        reject(name, f"of shape {shape}", f"shape {getattr(array, 'shape', None)}")


def check_search(search: NeighborSearch, n: int, d: int) -> None:
    """Compare the points of a search with their number, and with their metric."""
    check_sized("points", search.points, (n, d))
    _check_places(search.points, search.metric)
    if search.n_jobs is not None:
        check_jobs(search.n_jobs)
        if search.n_jobs > _MOST_THREADS:
            reject("n_jobs", f"at most {_MOST_THREADS}", search.n_jobs)


def same_number(found: int, expected: int) -> None:
    """Raise unless two parts are of as many nodes."""
    if found != expected:
        raise ValueError(f"its parts are of {found} and {expected} nodes")


def _check_times(graph: Graph) -> None:
    if graph.step_time is not None:
        check_real(graph.step_time, "step_time", NONNEGATIVE)
    if graph.n_steps is not None:
        check_integer(graph.n_steps, "n_steps", 1)


def _check_places(points: Any, metric: AbstractManifold | None) -> None:
    """Points are finite and, where there is a manifold, on it."""
    check_points(points, "points")
    if metric is None:
        return
    if metric.ambient_dim != points.shape[1]:
        reject("metric", f"of points with {points.shape[1]} coordinates", repr(metric)[:100])
    metric.check(points, "points")


def _check_extension(extension: AbstractExtension | None, n: int, d: int) -> None:
    if isinstance(extension, NeighborExtension | HeatExtension):
        check_search(extension.search, n, d)
        check_float(extension.bandwidth, "bandwidth", POSITIVE)
    if isinstance(extension, NeighborExtension):
        _check_neighbors(extension, n)
    elif isinstance(extension, HeatExtension):
        _check_heat(extension, n)
    elif isinstance(extension, MeshExtension):
        _check_mesh(extension.mesh.n_vertices, n, d)
        check_sparse("affinity", extension.affinity, (n, n))
    elif isinstance(extension, GridExtension):
        # Compared one by one: a made-up power would take hours.
        if not (1 <= extension.side <= n and (extension.side == 1 or d < 64)):
            reject("side", f"in [1, {n}]", extension.side)
        same_number(extension.side**d, n)
        check_sparse("affinity", extension.affinity, (n, n))


def _check_neighbors(extension: NeighborExtension, n: int) -> None:
    for name, values in (("density", extension.density), ("local", extension.local)):
        if values is not None:
            check_amounts(name, values, n)
    check_integer(extension.n_neighbors, "n_neighbors", 1, n)


def _check_heat(extension: HeatExtension, n: int) -> None:
    check_float(extension.radius, "radius", POSITIVE)
    check_amounts("factors", extension.factors, n)
    check_amounts("weights", extension.weights, n)
    if extension.surface is not None:
        _check_mesh(extension.surface.mesh.n_vertices, n, extension.search.points.shape[1])
        check_sparse("detours", extension.surface.detours, (n, n))


def _check_mesh(n_vertices: int, n: int, d: int) -> None:
    same_number(n_vertices, n)
    if d != 3:
        reject("points", "of three coordinates, as those of a mesh", d)
