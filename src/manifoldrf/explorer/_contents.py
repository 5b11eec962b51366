"""From fields in full precision to the arrays of a page: which points, how many bits, and the error of it all."""

import dataclasses
import zlib
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manifoldrf._random import generator
from manifoldrf._validation import FloatArray, IntArray, reject
from manifoldrf.explorer._columns import QuantisedColumns
from manifoldrf.explorer._fields import Fields, peaks_of
from manifoldrf.explorer._views import (
    View,
    coarse_faces,
    nearest,
    nearest_along,
    normals_of,
    order_in_space,
    radii_of,
    spacing_of,
)

# Of points: as many as give a fine picture, a rough one, any. With fewer points the picture is coarser, with fewer
# features the kernel is another one: features go only after the second.
_FINE, _ROUGH, _FEWEST_POINTS = 4000, 500, 64
_FEW_EXACT = 8  # columns; fewer are not worth their words
_MARGIN = 0.95  # of a size: what is thinned by a ratio shrinks a little less than by the ratio
# Largest error of a kernel that is still shown, over its largest value: beyond, colours and shape are wrong.
WORST = 0.2
_FEWEST_PROBES = 64  # points whose whole kernel is compared, however large the model
_WORK = 1.5e10  # products of a comparison: about 2 s on one core, all pairs of 5000 points and 512 features
_SPARSE = 0.1  # share of entries below which products of sparse matrices are quicker
# Differences below this share of the fields are kept with 8 bits: their error is then below 4e-4 of a field.
_SMALL_DIFFERENCE = 0.1
_PAIRS_AT_ONCE = 2**23  # of a comparison: 64 MB
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

    def smaller(self, size: int, limit: int, fewest: Callable[[], int]) -> "Plan":
        """The next plan after one that made a page of ``size`` bytes; raises where nothing is left to leave out.

        First fewer points, then 8 bits, then fewer exact columns, then still fewer points, then fewer features, not
        fewer than ``fewest`` says, and the fewest points at last.
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
        least = fewest()
        if self.n_features > least:
            return dataclasses.replace(self, n_features=max(least, int(self.n_features * ratio)))
        if self.n_points > _FEWEST_POINTS:
            return self._with_points(_FEWEST_POINTS, 0.5)
        rule = f"at least {size} for this model, whose kernel a smaller page shows with an error above {WORST:g}"
        return reject("max_bytes", f"{rule} of its largest value", limit)

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
    share : float
        Sum of the weights over that of the anchors kept.
    """

    arrays: dict[str, NDArray[Any]]
    plan: Plan
    view: View
    spacing: float
    share: float

    @cached_property
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
        **_discs(fields, shown[order]),
        "anchors": view.shown(fields.places[:m]).astype(np.float32),
        "anchorIds": fields.anchors[:m].astype(np.uint32),
        "weights": weights,
        "nearest": _nearest(fields, order, plan.n_exact or m).astype(np.uint32),
        **_prefixed("field", values),
    }
    if plan.n_exact > 0 and fields.difference is not None:
        arrays |= _prefixed("difference", _difference(fields, order, plan))
    return Contents(arrays, plan, view, spacing_of(shown), share)


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
    small = peaks_of(some) <= _SMALL_DIFFERENCE * peaks_of(fields.values[:, : plan.n_exact])
    return QuantisedColumns.of(some, 8 if small.all() else plan.bits, signed=True)


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


def _discs(fields: Fields, shown: FloatArray) -> dict[str, NDArray[Any]]:
    """Normals and radii of the points of a cloud; a mesh has triangles instead, whose normals the browser finds."""
    normals = normals_of(shown) if fields.mesh is None else np.zeros((0, 3))
    radii = radii_of(shown, normals) if fields.mesh is None else np.zeros(0)
    return {"normals": np.rint(127 * normals).astype(np.int8), "radii": radii.astype(np.float32)}


def _nearest(fields: Fields, order: IntArray, m: int) -> IntArray:
    """The nearest of the first ``m`` anchors, for each point of the page."""
    chosen = fields.ids[: len(order)][order]
    if fields.mesh is not None and fields.difference is not None:  # whose vertices are the nodes
        return nearest_along(fields.mesh, fields.anchors[:m])[chosen]
    return nearest(fields.points[: len(order)][order], fields.places[:m])


@dataclass(frozen=True)
class KernelError:
    """How far the kernel of a page is from the model's.

    Attributes
    ----------
    largest : float
        Largest error found, over the largest value of the model's kernel at the points of the page.
    n_probes, n_points : int
        Rows that were compared, and their length. All pairs, where both are the same.
    """

    largest: float
    n_probes: int
    n_points: int

    def __str__(self) -> str:
        size = f"{self.largest:.2g} of the model's largest value"
        if self.n_probes == self.n_points:
            return f"at most {size} between any two points of this page"
        return f"{size}, the largest of {self.n_probes * self.n_points:,} pairs of points drawn by lot"


def kernel_error(fields: Fields, plan: Plan) -> KernelError:
    """Compare the kernel that a page shows with the model's: between all its points where that is quick."""
    n, m = plan.n_points, plan.n_features
    whole = _quick(fields.values[:n])
    found = _quick(QuantisedColumns.of(fields.values[:n, :m], plan.bits).matrix())
    count = min(n, max(_FEWEST_PROBES, int(_WORK / (n * len(fields.weights)))))
    probes = np.sort(generator(0, "explorer.error").choice(n, count, replace=False))
    share = _share(fields.weights, m)
    worst = 0.0
    for part in np.array_split(probes, len(probes) * n // _PAIRS_AT_ONCE + 1):
        error = share * _kernel(found, fields.weights[:m], part) - _kernel(whole, fields.weights, part)
        worst = max(worst, float(np.abs(error).max()))
    # No value of a kernel is larger than the largest of its diagonal.
    largest = float(np.max(fields.values[:n].power(2) @ fields.weights))
    return KernelError(worst / (largest or 1.0), count, n)


def fewest_features(fields: Fields) -> int:
    """Number of features with which a small page shows the kernel no worse than ``WORST``, by halving intervals."""
    n, m = fields.values.shape
    low, high = 0, int(m)
    while high - low > 1:
        middle = (low + high) // 2
        error = kernel_error(fields, Plan(min(n, _ROUGH), middle, 8, 0)).largest
        low, high = (low, middle) if error <= _MARGIN * WORST else (middle, high)
    return high


def _quick(rows: Any) -> Any:
    """Rows in the form whose products are quicker."""
    n, m = rows.shape
    return rows.tocsr() if rows.nnz < _SPARSE * n * m else rows.toarray()


def _kernel(rows: Any, weights: FloatArray, probes: IntArray) -> FloatArray:
    """K between probes and all points, dense of shape (p, n)."""
    if isinstance(rows, np.ndarray):
        return np.asarray((rows[probes] * weights) @ rows.T)
    heavy = rows[probes].multiply(weights[None, :]).tocsr()
    return np.asarray((heavy @ rows.T).toarray())
