"""Whether a field fits its graph and its anchors, in sizes and in numbers: see :mod:`._graph_integrity`."""

import numpy as np
from scipy import sparse

from manifoldrf._validation import (
    NONNEGATIVE,
    POSITIVE,
    check_indices,
    check_integer,
    check_option,
    check_real,
    check_vector,
    reject,
)
from manifoldrf.features._graph_integrity import (
    check_amounts,
    check_graph,
    check_numbers,
    check_search,
    check_sized,
    check_sparse,
    same_number,
)
from manifoldrf.fields._network import Frame, n_inputs
from manifoldrf.fields.abstract_field import AbstractField
from manifoldrf.fields.data import Setting
from manifoldrf.fields.geodesics import GraphDistances
from manifoldrf.fields.interpolated import InterpolatedField
from manifoldrf.fields.local import LocalField, make_basis
from manifoldrf.fields.mlp import MlpField
from manifoldrf.fields.mlp_options import NETWORKS
from manifoldrf.fields.step import StepField
from manifoldrf.fields.tangent import AbstractInterpolation, SurfaceInterpolation, TangentInterpolation
from manifoldrf.geometry.neighbors import NeighborSearch

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
