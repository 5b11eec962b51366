"""Whether the parts of a feature map fit together: a file with a valid checksum may still have been made by hand.

Compiled code trusts sizes and indices, so they are compared once, when a model is loaded.
"""

from typing import Any

import numpy as np

from manifoldrf._validation import check_option, reject
from manifoldrf.fields._network import n_inputs
from manifoldrf.fields.abstract_field import AbstractField
from manifoldrf.fields.interpolated import InterpolatedField
from manifoldrf.fields.local import LocalField, make_basis
from manifoldrf.fields.mlp import MlpField
from manifoldrf.fields.mlp_options import NETWORKS
from manifoldrf.fields.step import StepField
from manifoldrf.fields.tangent import AbstractInterpolation, SurfaceInterpolation, TangentInterpolation
from manifoldrf.geometry.extension import (
    AbstractExtension,
    GridExtension,
    HeatExtension,
    MeshExtension,
    NeighborExtension,
)
from manifoldrf.geometry.graphs import Graph


def check_graph(graph: Graph) -> None:
    """Compare the sizes of a graph and of what reaches new points."""
    n = graph.affinity.shape[0]
    _sized("affinity", graph.affinity, (n, n))
    if not (np.isfinite(graph.affinity.data) & (graph.affinity.data >= 0)).all():
        reject("affinity", "finite and at least 0", "others")
    if graph.points is None and graph.extension is None:
        return
    d = graph.positions.shape[1]
    _sized("points", graph.positions, (n, d))
    if graph.weights is not None:
        _sized("weights", graph.weights, (n,))
    _check_extension(graph.extension, n, d)


def check_field(field: AbstractField, graph: Graph, n_anchors: int) -> None:
    """Compare the sizes of a field with those of the graph and the anchors."""
    _sized("bounds", field.bounds, (n_anchors,))
    if isinstance(field, StepField):
        _same(field.graph.n_nodes, graph.n_nodes)
        _sized("table", field.table, (graph.n_nodes, n_anchors))
        check_graph(field.graph)
    elif isinstance(field, InterpolatedField):
        n_known = field.table.shape[0]
        _sized("table", field.table, (n_known, n_anchors))
        _sized("floors", field.floors, (n_anchors,))
        _check_interpolation(field.interpolation, n_known, graph.positions.shape[1])
    elif isinstance(field, LocalField):
        _check_local(field, graph.positions.shape[1], n_anchors)
    elif isinstance(field, MlpField):
        _check_mlp(field, graph, n_anchors)
    else:
        reject("field", "a field of this library", type(field).__name__, TypeError)


def _check_extension(extension: AbstractExtension | None, n: int, d: int) -> None:
    if isinstance(extension, NeighborExtension | HeatExtension):
        _sized("points", extension.search.points, (n, d))
    if isinstance(extension, NeighborExtension):
        _check_neighbors(extension, n)
    elif isinstance(extension, HeatExtension):
        _check_heat(extension, n)
    elif isinstance(extension, MeshExtension):
        _same(extension.mesh.n_vertices, n)
        _sized("affinity", extension.affinity, (n, n))
    elif isinstance(extension, GridExtension):
        _same(extension.side**d, n)
        _sized("affinity", extension.affinity, (n, n))


def _check_neighbors(extension: NeighborExtension, n: int) -> None:
    for name, values in (("density", extension.density), ("local", extension.local)):
        if values is not None:
            _sized(name, values, (n,))
    if not 1 <= extension.n_neighbors <= n:
        reject("n_neighbors", f"in [1, {n}]", extension.n_neighbors)


def _check_heat(extension: HeatExtension, n: int) -> None:
    _sized("factors", extension.factors, (n,))
    _sized("weights", extension.weights, (n,))
    if extension.surface is not None:
        _same(extension.surface.mesh.n_vertices, n)
        _sized("detours", extension.surface.detours, (n, n))


def _check_interpolation(interpolation: AbstractInterpolation, n_known: int, d: int) -> None:
    if isinstance(interpolation, TangentInterpolation):
        _sized("points", interpolation.search.points, (n_known, d))
        if not 1 <= interpolation.n_axes <= d:
            reject("n_axes", f"in [1, {d}]", interpolation.n_axes)
    elif isinstance(interpolation, SurfaceInterpolation):
        _same(interpolation.mesh.n_vertices, n_known)
        _sized("order", interpolation.order, (n_known,))
        _within("order", interpolation.order, n_known)


def _check_local(field: LocalField, d: int, m: int) -> None:
    n_axes, n_coefficients = field.frames.shape[1], field.coefficients.shape[1]
    _sized("lists", field.lists, (len(field.search.points), m))
    _sized("points", field.search.points, (len(field.search.points), d))
    _sized("centres", field.centres, (m, d))
    _sized("frames", field.frames, (m, n_axes, d))
    _sized("coefficients", field.coefficients, (m, n_coefficients))
    _sized("radii", field.radii, (m,))
    _sized("caps", field.caps, (m, field.caps.shape[1]))
    _sized("ranges", field.ranges, (m, 2, n_axes))
    _sized("sizes", field.sizes, (m,))
    _within("sizes", field.sizes + 1, n_coefficients + 2)
    fits = 1 <= field.dim <= n_axes <= 8 and 1 <= field.degree <= 8
    if not fits or len(make_basis(field.dim, n_axes - field.dim, field.degree).parents) < n_coefficients:
        reject("degree", "one that fits the coefficients", f"{field.degree} in {field.dim} dimensions")


def _check_mlp(field: MlpField, graph: Graph, m: int) -> None:
    n, d = graph.positions.shape
    _sized("paths", field.distances.paths, (n, m))
    _sized("points", field.distances.points, (n, d))
    _same(len(field.anchors), m)
    for name in ("centre", "low", "high"):
        _sized(name, getattr(field.frame, name), (d,))
    check_option(field.network, "network", NETWORKS)
    hidden, n_ends = len(field.weights[1]), 1 if field.network == "paper" else 2
    first = n_inputs(field.network, field.frame, field.anchors.shape[1])
    shapes = [(first, hidden), (hidden,), (hidden, hidden), (hidden,), (hidden, 1), (n_ends,)]
    for weight, shape in zip(field.weights, shapes, strict=True):
        _sized("weights", weight, shape)


def _sized(name: str, array: Any, shape: tuple[int, ...]) -> None:
    if tuple(getattr(array, "shape", ())) != shape:
        reject(name, f"of shape {shape}", f"shape {getattr(array, 'shape', None)}")


def _same(found: int, expected: int) -> None:
    if found != expected:
        raise ValueError(f"its parts are of {found} and {expected} nodes")


def _within(name: str, indices: Any, n: int) -> None:
    if len(indices) and not (np.min(indices) >= 0 and np.max(indices) < n):
        reject(name, f"in [0, {n - 1}]", f"{np.min(indices)} to {np.max(indices)}")
