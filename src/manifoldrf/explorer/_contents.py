"""From fields in full precision to the arrays of a page: which points, how many bits, and the error of it all."""

import dataclasses
import zlib
from base64 import b64encode
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manifoldrf._random import generator
from manifoldrf._validation import FloatArray, IntArray, reject
from manifoldrf.explorer._columns import QuantisedColumns
from manifoldrf.explorer._fields import Fields
from manifoldrf.explorer._views import (
    View,
    coarse_faces,
    nearest,
    nearest_along,
    normals_of,
    order_in_space,
    spacing_of,
)

# Of points: as many as give a fine picture, a rough one, any. With fewer points the picture is coarser, with fewer
# features the kernel is another one: features go only after the second.
_FINE, _ROUGH, _FEWEST_POINTS = 4000, 500, 64
_FEW_EXACT = 8  # columns; fewer are not worth their words
_FEWEST_FEATURES = 16
_MARGIN = 0.95  # of a size: what is thinned by a ratio shrinks a little less than by the ratio
PROBES = 64  # points whose whole kernel is compared
# Differences below this share of the fields are kept with 8 bits: their error is then below 4e-4 of a field.
_SMALL_DIFFERENCE = 0.1
_LEVEL = 9  # of packing: 3 % smaller than 6


@dataclass(frozen=True)
class Plan:
    """How much of a model goes into a page.

    Attributes
    ----------
    n_points, n_features : int
    bits : {16, 8}
        Of each value.
    n_exact : int
        Anchors that have exact values.
    """

    n_points: int
    n_features: int
    bits: int
    n_exact: int

    def smaller(self, size: int, limit: int) -> "Plan":
        """The next plan after one that made a page of ``size`` bytes; raises where nothing is left to leave out.

        First fewer points, then 8 bits, then fewer exact columns, then still fewer points, then fewer features, and
        the fewest points at last.
        """
        ratio = _MARGIN * limit / size
        if self.n_points > _FINE:
            return self._with_points(_FINE, ratio)
        if self.bits > 8:
            return dataclasses.replace(self, bits=8)
        if self.n_exact > 0:
            fewer = self.n_exact // 2
            return dataclasses.replace(self, n_exact=fewer if fewer >= _FEW_EXACT else 0)
        if self.n_points > _ROUGH:
            return self._with_points(_ROUGH, ratio)
        if self.n_features > _FEWEST_FEATURES:
            return dataclasses.replace(self, n_features=max(_FEWEST_FEATURES, int(self.n_features * ratio)))
        if self.n_points > _FEWEST_POINTS:
            return self._with_points(_FEWEST_POINTS, 0.5)
        return reject("max_bytes", f"at least {size} for this model", limit)

    def _with_points(self, least: int, ratio: float) -> "Plan":
        return dataclasses.replace(self, n_points=max(least, int(self.n_points * ratio)))


@dataclass(frozen=True, eq=False)
class Contents:
    """The arrays of a page, and what there is to say of them.

    Attributes
    ----------
    arrays : dict
        By the names that the page knows.
    plan : Plan
        What is in them.
    view : View
    spacing : float
        Between points drawn.
    error : float
        Largest error of the kernel as the page shows it against the model's, over the largest value of the model's.
    share : float
        Sum of the weights over that of the anchors kept.
    """

    arrays: dict[str, NDArray[Any]]
    plan: Plan
    view: View
    spacing: float
    error: float
    share: float

    def packed(self) -> tuple[str, list[dict[str, Any]]]:
        """All arrays as one text, and the table of what begins where."""
        blocks: list[bytes] = []
        table: list[dict[str, Any]] = []
        offset = 0
        for name, array in self.arrays.items():
            block = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).tobytes()
            table.append({"name": name, "type": array.dtype.name, "offset": offset, "length": array.size})
            padding = -len(block) % 8  # typed arrays of the browser begin at multiples of their width
            blocks += [block, bytes(padding)]
            offset += len(block) + padding
        return b64encode(zlib.compress(b"".join(blocks), _LEVEL)).decode("ascii"), table


def contents_of(fields: Fields, plan: Plan) -> Contents:
    """Round, thin and order the fields as a plan says."""
    n, m = plan.n_points, plan.n_features
    view = View.of(fields.points)
    shown = view.shown(fields.points[:n])
    order = order_in_space(shown)
    values = QuantisedColumns.of(fields.values[:n][order][:, :m], plan.bits)
    share = _share(fields.weights, m)
    weights = fields.weights[:m]
    arrays: dict[str, NDArray[Any]] = {
        "positions": shown[order].astype(np.float32),
        "ids": fields.ids[:n][order].astype(np.uint32),
        "faces": _faces(fields, order).astype(np.uint32),
        "normals": _normals(fields, shown[order]),
        "anchors": view.shown(fields.places[:m]).astype(np.float32),
        "anchorIds": fields.anchors[:m].astype(np.uint32),
        "weights": weights,
        "nearest": _nearest(fields, order, plan.n_exact or m).astype(np.uint32),
        **_prefixed("field", values),
    }
    if plan.n_exact > 0 and fields.difference is not None:
        arrays |= _prefixed("difference", _difference(fields, order, plan))
    error = _kernel_error(fields, order, values.matrix(), share)
    return Contents(arrays, plan, view, spacing_of(shown), error, share)


def _share(weights: FloatArray, m: int) -> float:
    """What a sum over the first anchors is multiplied by, for the volume of those left out."""
    kept = float(weights[:m].sum())
    return float(weights.sum()) / kept if kept > 0 and m < len(weights) else 1.0


def _prefixed(name: str, columns: QuantisedColumns) -> dict[str, NDArray[Any]]:
    return {f"{name}{part}": array for part, array in columns.arrays().items()}


def _difference(fields: Fields, order: IntArray, plan: Plan) -> QuantisedColumns:
    """Model minus exact for the first anchors, with 8 bits where that is enough."""
    some: Any = fields.difference
    some = some[: len(order)][order][:, : plan.n_exact]
    small = abs(some).max() <= _SMALL_DIFFERENCE * fields.values.max() if some.nnz else True
    return QuantisedColumns.of(some, 8 if small else plan.bits, signed=True)


def _faces(fields: Fields, order: IntArray) -> IntArray:
    """Triangles between the points of the page, shape (f, 3); none for a cloud."""
    if fields.mesh is None:
        return np.zeros((0, 3), dtype=np.int64)
    kept = fields.ids[: len(order)][order]
    if len(kept) < fields.mesh.n_vertices:
        return coarse_faces(fields.mesh, kept)
    place = np.zeros(len(kept), dtype=np.int64)
    place[kept] = np.arange(len(kept))
    faces = place[fields.mesh.faces]
    return np.asarray(faces[np.argsort(faces.min(axis=1), kind="stable")])  # packs to half the size


def _normals(fields: Fields, shown: FloatArray) -> NDArray[np.int8]:
    """Normals of a cloud in the picture; the browser finds those of a mesh itself."""
    normals = normals_of(shown) if fields.mesh is None else np.zeros((0, 3))
    return np.rint(127 * normals).astype(np.int8)


def _nearest(fields: Fields, order: IntArray, m: int) -> IntArray:
    """The nearest of the first ``m`` anchors, for each point of the page."""
    chosen = fields.ids[: len(order)][order]
    if fields.mesh is not None and fields.difference is not None:  # whose vertices are the nodes
        return nearest_along(fields.mesh, fields.anchors[:m])[chosen]
    return nearest(fields.points[: len(order)][order], fields.places[:m])


def _kernel_error(fields: Fields, order: IntArray, decoded: Any, share: float) -> float:
    """Largest error of the kernel between some points and all, over its largest value."""
    n, m = decoded.shape
    rng = generator(0, "explorer.error")
    probes = np.sort(rng.choice(n, min(n, PROBES), replace=False))
    whole = fields.values.tocsr()[:n][order]
    true = _kernel(whole, fields.weights, probes)
    found = share * _kernel(decoded.tocsr(), fields.weights[:m], probes)
    largest = float(np.abs(true).max()) or 1.0
    return float(np.abs(found - true).max()) / largest


def _kernel(rows: Any, weights: FloatArray, probes: IntArray) -> FloatArray:
    """K between probes and all points, dense of shape (p, n)."""
    heavy = rows[probes].multiply(weights[None, :]).tocsr()
    return np.asarray((heavy @ rows.T).toarray())
