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
    check_indices,
    check_integer,
    check_jobs,
    check_option,
    check_points,
    check_real,
    check_vector,
    reject,
)
from manifoldrf.fields.data import AbstractField, Setting
from manifoldrf.fields.geodesics import GraphDistances
from manifoldrf.fields.interpolated import (
    AbstractInterpolation,
    InterpolatedField,
    SurfaceInterpolation,
    TangentInterpolation,
)
from manifoldrf.fields.local import LocalField, make_basis
from manifoldrf.fields.mlp import MlpField
from manifoldrf.fields.network import Frame, n_inputs
from manifoldrf.fields.options import NETWORKS
from manifoldrf.fields.step import StepField
from manifoldrf.geometry.builders import GridExtension, MeshExtension, NeighborExtension
from manifoldrf.geometry.graphs import AbstractExtension, Graph
from manifoldrf.geometry.heat import HeatExtension
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


_LARGEST_LOGARITHM = 700.0  # of a float64
_COMBINATIONS = ("logarithms", "values")


def check_setting(setting: Setting) -> None:
    """Compare the graph of a setting with its measure and dimension."""
    graph = setting.graph
    check_graph(graph)
    n, d = graph.n_nodes, graph.positions.shape[1]
    check_amounts("measure", setting.measure, n)
    if not (setting.measure > 0).any():
        reject("measure", "positive somewhere", 0)
    check_integer(setting.dim, "dim", 1, max(d, 1))
    check_real(setting.width, "width", POSITIVE)


def check_field(field: AbstractField, setting: Setting, n_anchors: int) -> None:
    """Compare the sizes and numbers of a field with those of the graph and the anchors."""
    graph, signed = setting.graph, setting.asymmetric
    n, d = graph.positions.shape
    if isinstance(field, StepField):
        if field.graph is not graph:
            check_graph(field.graph)
        same_number(field.graph.n_nodes, n)
        check_sized("points", field.graph.positions, (n, d))
        check_sparse("table", field.table, (n, n_anchors), signed=signed)
        if field.graph.extension is None:
            reject("extension", "known, or the field has no first step", None)
    elif isinstance(field, InterpolatedField):
        _check_interpolated(field, d, n_anchors, signed=signed)
    elif isinstance(field, LocalField):
        _check_local(field, d, n_anchors)
    elif isinstance(field, MlpField):
        _check_mlp(field, n, d, n_anchors)
    else:
        reject("field", "a field of this library", type(field).__name__, TypeError)
    check_sized("bounds", field.bounds, (n_anchors,))


def _check_interpolated(field: InterpolatedField, d: int, m: int, *, signed: bool) -> None:
    n_known = int(field.table.shape[0])
    check_sparse("table", field.table, (n_known, m), signed=signed)
    check_amounts("floors", field.floors, m)
    check_amounts("largest", field.largest, m)
    check_option(field.combine, "combine", _COMBINATIONS)
    if field.signed and not signed:
        reject("signed", "of a kernel that has both signs", field.signed)
    _check_interpolation(field.interpolation, n_known, d)


def _check_interpolation(interpolation: AbstractInterpolation, n_known: int, d: int) -> None:
    if isinstance(interpolation, TangentInterpolation):
        check_search(interpolation.search, n_known, d)
        check_integer(interpolation.n_axes, "n_axes", 0, d)  # none in high dimensions
        check_integer(interpolation.n_neighbors, "n_neighbors", 1, n_known)
    elif isinstance(interpolation, SurfaceInterpolation):
        same_number(interpolation.mesh.n_vertices, n_known)
        check_sized("order", interpolation.order, (n_known,))
        check_indices(interpolation.order, "order", n_known)
        if d != 3:
            reject("points", "of three coordinates, as those of a mesh", d)


def _check_local(field: LocalField, d: int, m: int) -> None:
    n_known, n_axes, n_coefficients = _local_sizes(field)
    if not isinstance(field.lists, sparse.csr_array):
        reject("lists", "a CSR array", type(field.lists).__name__, TypeError)
    shapes: dict[str, tuple[int, ...]] = {
        "lists": (n_known, m),
        "centres": (m, d),
        "frames": (m, n_axes, d),
        "coefficients": (m, n_coefficients),
        "radii": (m,),
        "ranges": (m, 2, n_axes),
        "sizes": (m,),
    }
    for name, shape in shapes.items():
        check_sized(name, getattr(field, name), shape)
    check_search(field.search, n_known, d)
    for name in ("centres", "frames", "coefficients"):
        check_numbers(name, getattr(field, name))
    used = field.sizes >= 0  # of the others nothing is read
    check_numbers("caps", field.caps[used])
    if np.max(field.caps, initial=0.0, where=used[:, None]) > _LARGEST_LOGARITHM:
        reject("caps", f"at most {_LARGEST_LOGARITHM}", "others")
    if np.isnan(field.ranges[used]).any() or not (field.radii[used] > 0).all():
        reject("radii", "positive, and `ranges` numbers", "others")
    if m and not (field.sizes.min() >= -1 and field.sizes.max() <= n_coefficients):
        reject("sizes", f"in [-1, {n_coefficients}]", f"{field.sizes.min()} to {field.sizes.max()}")
    fits = 1 <= field.dim <= n_axes <= 8 and 1 <= field.degree <= 8
    if not fits or len(make_basis(field.dim, n_axes - field.dim, field.degree).parents) < n_coefficients:
        reject("degree", "one that fits the coefficients", f"{field.degree} in {field.dim} dimensions")


def _local_sizes(field: LocalField) -> tuple[int, int, int]:
    """Numbers of start nodes, of axes and of coefficients."""
    for name, axes in (("frames", 3), ("coefficients", 2), ("caps", 2)):
        if getattr(field, name).ndim != axes:
            reject(name, f"an array of {axes} axes", getattr(field, name).ndim)
    n_coefficients = int(field.coefficients.shape[1])
    if n_coefficients < 2 or field.caps.shape[0] != len(field.radii) or field.caps.shape[1] < 2:
        reject("coefficients", "at least two of each anchor, with two caps", field.coefficients.shape)
    return len(field.search.points), int(field.frames.shape[1]), n_coefficients


def _check_mlp(field: MlpField, n: int, d: int, m: int) -> None:
    check_option(field.network, "network", NETWORKS)
    _check_frame(field.frame, d)
    _check_distances(field.distances, n, d, m)
    n_coordinates = d if field.frame.box is None else 2 * d
    check_sized("anchors", field.anchors, (m, n_coordinates))
    check_numbers("anchors", field.anchors)
    check_real(field.scale, "scale", POSITIVE)
    check_real(field.largest, "largest", NONNEGATIVE)
    if len(field.weights) != 6 or field.weights[1].ndim != 1:
        reject("weights", "six arrays", len(field.weights))
    axes = field.frame.axes
    if axes is not None:
        check_sized("axes", axes, (n_coordinates, axes.shape[1] if axes.ndim == 2 else 0))
        check_numbers("axes", axes)
    hidden, n_ends = len(field.weights[1]), 1 if field.network == "paper" else 2
    first = n_inputs(field.network, field.frame, n_coordinates)
    shapes = [(first, hidden), (hidden,), (hidden, hidden), (hidden,), (hidden, 1), (n_ends,)]
    for weight, shape in zip(field.weights, shapes, strict=True):
        check_sized("weights", weight, shape)
        check_numbers("weights", weight)


def _check_frame(frame: Frame, d: int) -> None:
    for name in ("centre", "low", "high"):
        check_sized(name, getattr(frame, name), (d,))
        check_numbers(name, getattr(frame, name))
    check_real(frame.unit, "unit", POSITIVE)
    check_real(frame.width, "width", POSITIVE)
    if frame.box is not None:
        check_vector(frame.box, "box", d, POSITIVE)


def _check_distances(distances: GraphDistances, n: int, d: int, m: int) -> None:
    check_sized("paths", distances.paths, (n, m))
    check_numbers("paths", distances.paths)
    check_real(distances.far, "far", POSITIVE)
    check_search(NeighborSearch(distances.points, distances.metric), n, d)
