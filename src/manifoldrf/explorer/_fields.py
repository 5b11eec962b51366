"""What the page shows, in full precision: the fields of a model at points, and the exact ones beside them."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._validation import FloatArray, IntArray, check_jobs, check_points, reject
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.features.proximity import warn_of_far
from manifoldrf.fields.data import Teaching, observe
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.sampling import thin

_ENTRIES_AT_ONCE = 2**24  # of a dense field: 128 MB
# Of the largest value of a column: a hundredth of what 16 bits resolve. All that is left out below it changes K by
# less than 2e-7 sqrt(m) of its largest value, by the inequality of Cauchy and Schwarz.
_NEGLIGIBLE = 1e-7
# Of the largest value of a column: what is below comes from leaving out the smallest entries of signatures.
NO_DIFFERENCE = 1e-5


@dataclass(frozen=True, eq=False)
class Fields:
    """Fields of a model at points, and what is needed to make a kernel of them.

    Points come in an order of which every beginning is an even choice; so do anchors.

    Attributes
    ----------
    points : array of shape (n, d)
    ids : int array of shape (n,)
        Of the points: nodes of the graph, or rows of what was given.
    total : int
        Of points that there were.
    mesh : TriangleMesh, optional
        Whose vertices the ids are.
    anchors : int array of shape (m,)
        Nodes.
    places : array of shape (m, d)
        Of the anchors.
    weights : array of shape (m,)
    values : CSC array of shape (n, m)
        g(point, anchor), so that K(x, y) = sum_l w_l g(x, l) g(y, l).
    difference : CSC array of shape (n, m), optional
        Model minus exact; None where exact values are not known, away from the nodes.
    """

    points: FloatArray
    ids: IntArray
    total: int
    mesh: TriangleMesh | None
    anchors: IntArray
    places: FloatArray
    weights: FloatArray
    values: Any
    difference: Any | None


def fields_of(features: ManifoldRandomFeatures, surface: Any, n_points: int) -> Fields:
    """Compute the fields of a fitted model at no more than ``n_points`` points.

    ``surface`` : TriangleMesh, array of points of shape (n, d), or None for the nodes of the graph.
    """
    fitted, jobs = features.map_, check_jobs(features.n_jobs)
    positions = fitted.space.graph.positions
    points, mesh = _points_of(fitted, surface)
    chosen = thin(points, min(n_points, len(points)))
    order = thin(positions[fitted.anchors], len(fitted.anchors))
    values, window = _values(fitted, points[chosen], jobs)
    if surface is not None:  # nodes of a sparse corner may count as far from their own space
        warn_of_far(window)
    values = values[:, order]
    on_nodes = points.shape == positions.shape and np.array_equal(points, positions)
    difference = None
    if on_nodes:
        difference = _without_noise(values - _exact(fitted, chosen, jobs)[:, order], values)
    return Fields(
        points=points[chosen],
        ids=chosen,
        total=len(points),
        mesh=mesh,
        anchors=fitted.anchors[order],
        places=positions[fitted.anchors[order]],
        weights=features.weights_[order],
        values=values,
        difference=difference,
    )


def _points_of(fitted: FeatureMap, surface: Any) -> tuple[FloatArray, TriangleMesh | None]:
    """Where the fields are drawn, and the mesh whose vertices these are."""
    graph = fitted.space.graph
    if surface is None:
        return graph.positions, graph.mesh
    mesh = surface if isinstance(surface, TriangleMesh) else None
    n_columns = graph.positions.shape[1]
    if mesh is not None and n_columns != mesh.vertices.shape[1]:
        reject("surface", f"an array of points of shape (n, {n_columns}), as the model's", f"a mesh: {mesh}")
    points = check_points(surface if mesh is None else mesh.vertices, "surface", n_columns=n_columns)
    return (points if graph.metric is None else graph.metric.check(points, "surface")), mesh


def _values(fitted: FeatureMap, points: FloatArray, jobs: int) -> tuple[Any, FloatArray]:
    """Values of g at points, CSC of shape (n, m): features without roots of weights; and the window, (n,)."""
    bare = dataclasses.replace(fitted, weights=np.ones_like(fitted.weights))
    size = max(1, _ENTRIES_AT_ONCE // len(fitted.anchors))
    window = np.ones(len(points))
    peaks = np.zeros(len(fitted.anchors))  # so far: never above those of all points, so that no cut is too large
    parts = []
    for start in range(0, len(points), size):
        stop = start + size
        rows, window[start:stop] = bare.rows(points[start:stop], jobs)
        part = sparse.csr_array(rows)
        np.maximum.at(peaks, part.indices, part.data)
        parts.append(_above(part, _NEGLIGIBLE * peaks))
    return fitted.scale * _above(sparse.vstack(parts, format="csr"), _NEGLIGIBLE * peaks).tocsc(), window


def _above(rows: Any, least: FloatArray) -> Any:
    """CSR without the entries that are smaller, sign or not, than the least of their column."""
    rows.data[np.abs(rows.data) < least[rows.indices]] = 0.0
    rows.eliminate_zeros()
    return rows


def _exact(fitted: FeatureMap, nodes: IntArray, jobs: int) -> Any:
    """The exact signatures of the anchors at nodes, in the unit of g, CSC of shape (n, m)."""
    setting = fitted.space.setting
    known = observe(setting, nodes, fitted.anchors, Teaching(n_jobs=jobs)).values.tocsr()
    own = np.sqrt(setting.measure[nodes]) if fitted.space.clock == "graph" else np.ones(len(nodes))
    factors = own * fitted.scale**2
    return sparse.csc_array(sparse.diags_array(factors) @ known)


def _without_noise(difference: Any, values: Any) -> Any:
    """Differences that say something, CSC."""
    return _above(sparse.csr_array(difference), NO_DIFFERENCE * peaks_of(values)).tocsc()


def peaks_of(columns: Any) -> FloatArray:
    """Largest size of an entry of each column, shape (m,)."""
    return np.asarray(abs(columns).max(axis=0).todense()).ravel()
