"""Sparse columns as whole numbers: small enough for a page, and with an error that is known."""

import dataclasses
import zlib
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from manifoldrf._random import generator
from manifoldrf._validation import FloatArray, IntArray, check_jobs, check_points, reject
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.features.problem import warn_of_far
from manifoldrf.fields.data import Teaching, observe
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.neighbors import edge_lengths
from manifoldrf.geometry.sampling import thin

_LOW_BITS = 7  # of a number, in each byte of a chain; the eighth says that another byte follows


@dataclass(frozen=True, eq=False)
class QuantisedColumns:
    """A sparse matrix whose entries are whole multiples of one scale per column.

    Attributes
    ----------
    shape : (int, int)
    bits : {8, 16}
        Of each number.
    signed : bool
        Whether numbers may be negative.
    starts : int array of shape (m + 1,)
        Where each column begins.
    rows : int array of shape (nnz,)
        Ascending in each column.
    numbers : int array of shape (nnz,)
        None is zero: what would be rounded to zero is left out.
    scales : array of shape (m,)
    """

    shape: tuple[int, int]
    bits: int
    signed: bool
    starts: IntArray
    rows: IntArray
    numbers: IntArray
    scales: FloatArray

    @classmethod
    def of(cls, matrix: Any, bits: int, *, signed: bool = False) -> "QuantisedColumns":
        """Round the entries of a sparse matrix, each by at most half the scale of its column.

        Examples
        --------
        >>> import numpy as np
        >>> from scipy import sparse
        >>> whole = sparse.csc_array(np.array([[1.0, 0.0], [0.25, 3.0]]))
        >>> packed = QuantisedColumns.of(whole, 8)
        >>> packed.numbers.tolist(), packed.rows.tolist()
        ([255, 64, 255], [0, 1, 1])
        """
        columns = sparse.csc_array(matrix)
        columns.sum_duplicates()
        counts = np.diff(columns.indptr)
        peaks = np.zeros(columns.shape[1])
        owners = np.repeat(np.arange(columns.shape[1]), counts)
        np.maximum.at(peaks, owners, np.abs(columns.data))
        scales = peaks / (2 ** (bits - 1) - 1 if signed else 2**bits - 1)
        safe = np.where(scales > 0, scales, 1.0)
        numbers = np.rint(columns.data / safe[owners]).astype(np.int64)
        kept = numbers != 0
        starts = np.concatenate([[0], np.cumsum(kept)])[columns.indptr].astype(np.int64)
        rows = columns.indices[kept].astype(np.int64)
        return cls(columns.shape, bits, signed, starts, rows, numbers[kept], scales)

    def matrix(self) -> Any:
        """The entries as the page reads them, CSC of shape ``shape``."""
        data = self.numbers * np.repeat(self.scales, np.diff(self.starts))
        return sparse.csc_array((data, self.rows, self.starts), shape=self.shape)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What the page holds: counts, steps between rows, numbers as planes of bytes, scales.

        High and low bytes are kept apart, since high ones repeat and pack well. Numbers with a sign take turns:
        0, -1, 1, -2, 2 are 0, 1, 2, 3, 4.
        """
        steps = np.diff(self.rows, prepend=-1)
        counts = np.diff(self.starts)
        first = self.starts[:-1][counts > 0]
        steps[first] = self.rows[first] + 1  # from before the first row
        coded = np.where(self.numbers < 0, -2 * self.numbers - 1, 2 * self.numbers) if self.signed else self.numbers
        planes: dict[str, NDArray[Any]] = {"Low": (coded & 255).astype(np.uint8)}
        if self.bits == 16:
            planes["High"] = (coded >> 8).astype(np.uint8)
        counted: dict[str, NDArray[Any]] = {
            "Counts": counts.astype(np.uint32),
            "Steps": chained(steps),
            "Scales": self.scales,
        }
        return counted | planes


def chained(numbers: IntArray) -> NDArray[np.uint8]:
    """Nonnegative numbers as bytes, seven bits in each, the lowest first.

    Examples
    --------
    >>> import numpy as np
    >>> chained(np.array([1, 127, 128, 300])).tolist()
    [1, 127, 128, 1, 172, 2]
    """
    lengths = np.ones(len(numbers), dtype=np.int64)
    rest = numbers >> _LOW_BITS
    while rest.any():
        lengths += rest > 0
        rest = rest >> _LOW_BITS
    ends = np.cumsum(lengths)
    result = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    for place in range(int(lengths.max(initial=0))):
        some = lengths > place
        more = lengths[some] > place + 1
        low = (numbers[some] >> (_LOW_BITS * place)) & 127
        result[(ends - lengths)[some] + place] = low + 128 * more
    return result


def neighbor_axes(points: FloatArray, count: int, rows: IntArray | None = None) -> tuple[FloatArray, FloatArray]:
    """Principal axes of the points around each point, itself among them.

    Parameters
    ----------
    points : array of shape (n, d)
    count : int
        Of points around each; all where there are fewer.
    rows : int array of shape (q,), optional
        Points that are asked for; all by default.

    Returns
    -------
    spreads : array of shape (q, d)
        Sums of squares along the axes, ascending.
    axes : array of shape (q, d, d)
        Columns, of either sign. On a surface in space the first is its normal.

    Examples
    --------
    >>> import numpy as np
    >>> plane = np.random.default_rng(0).random((50, 3)) * [1, 1, 0]
    >>> spreads, axes = neighbor_axes(plane, 8)
    >>> bool(spreads[:, 0].max() < 1e-12), np.abs(axes[0, :, 0]).round(6).tolist()
    (True, [0.0, 0.0, 1.0])
    """
    queries = points if rows is None else points[rows]
    around = points[cKDTree(points).query(queries, k=range(1, min(count, len(points)) + 1))[1]]  # (q, count, d)
    around = around - around.mean(axis=1, keepdims=True)
    spreads, axes = np.linalg.eigh(np.einsum("nki,nkj->nij", around, around))
    return np.asarray(spreads), np.asarray(axes)


_AXES = 3
_NEIGHBOR = 4  # in a random cloud the first is far nearer than the gaps between points are wide
_PATCH = 13  # a point and its nearest twelve
_FLAT = (
    0.2  # spread across a surface over that along it; evenly filled space has 0.5, random points of a torus 0.05
)
_CURVE = 1e-3  # below, a cloud is a curve, around which no normal is better than another
_AROUND = 24  # neighbours that bound the cell of a point; more never cut it on random points of a torus
_DIRECTIONS = 32  # in which a cell is measured: 2 % of its radius are missed at most, a corner between two of them
_CONE = 0.82  # cosine of the angle, 35 degrees, within which a point lies beyond another
_OVERLAP = 1.3  # of discs: for what directions miss, and for a surface that bends between points
_BALL = 0.6  # radius of a ball over the distance to its neighbours: a loose cloud
_RANGE = 4.0  # the widest gap of a point that is used over the usual one, and the reverse
_WIDEST = 2.0  # cell that is covered, over the gap of its point: what is wider is a hole of the space
_POINTS_AT_ONCE = 4096  # 25 MB of cuts
_LEAF = 8  # points of a leaf; neighbours in space are then neighbours in the file, which packs better


@dataclass(frozen=True, eq=False)
class View:
    """From the space to three coordinates.

    Attributes
    ----------
    centre : array of shape (d,)
    axes : array of shape (d, 3)
        Columns are where the coordinates of the picture come from; zero where the space has fewer than three.
    share : float
        Share of the variance that the picture shows; 1 in up to three dimensions.
    """

    centre: FloatArray
    axes: FloatArray
    share: float

    @classmethod
    def of(cls, points: FloatArray) -> "View":
        """The coordinates themselves, or the first three principal axes where there are more than three."""
        centre = (points.min(axis=0) + points.max(axis=0)) / 2
        d = points.shape[1]
        if d <= _AXES:
            return cls(centre, np.eye(d, _AXES), 1.0)
        values, vectors = np.linalg.eigh(np.cov(points.T))
        axes = vectors[:, ::-1][:, :_AXES]
        largest = axes[np.abs(axes).argmax(axis=0), np.arange(_AXES)]
        axes = axes * np.where(largest < 0, -1.0, 1.0)  # the sign of an eigenvector is arbitrary
        total = float(values.sum())
        return cls(centre, axes, float(values[-_AXES:].sum()) / total if total > 0 else 1.0)

    @property
    def projects(self) -> bool:
        """Whether something is lost."""
        return len(self.centre) > _AXES

    def shown(self, points: FloatArray) -> FloatArray:
        """Coordinates of the picture, shape (n, 3), centred."""
        return np.asarray((points - self.centre) @ self.axes)

    @property
    def origin(self) -> list[float]:
        """What to add to coordinates of the picture to have those of the space; zeros on principal axes."""
        return [0.0] * _AXES if self.projects else [*self.centre.tolist(), 0.0, 0.0][:_AXES]


def order_in_space(points: FloatArray) -> IntArray:
    """An order in which near points are near each other, shape (n,)."""
    return np.asarray(cKDTree(points, leafsize=_LEAF).indices, dtype=np.int64)


def spacing_of(points: FloatArray) -> float:
    """Median distance of a point to its fourth neighbour, positive: that of the next on an even surface."""
    if len(points) < 2:
        return 1.0
    gaps = cKDTree(points).query(points, k=min(_NEIGHBOR, len(points) - 1) + 1)[0][:, -1]
    usual = float(np.median(gaps))
    return usual if usual > 0 else float(np.ptp(points, axis=0).max()) / len(points) or 1.0


def normals_of(points: FloatArray) -> FloatArray:
    """Normals of a cloud, shape (n, 3), of either sign; zeros where it is no surface."""
    if len(points) <= _PATCH:
        return np.zeros((len(points), _AXES))
    spreads, axes = neighbor_axes(points, _PATCH)
    across, along, most = np.median(spreads, axis=0)
    is_surface = across <= _FLAT * along and along > _CURVE * most
    return np.asarray(axes[:, :, 0] * float(is_surface))


def radii_of(points: FloatArray, normals: FloatArray) -> FloatArray:
    """Radii of the discs or balls that points are drawn as, shape (n,).

    Discs cover the cells of their points, which are the places that no other point is nearer to. Together they
    leave no gap, however uneven the points are. Balls of a loose cloud just touch.
    """
    if len(points) < 2:
        return np.ones(len(points))
    count = min(_AROUND, len(points) - 1)
    gaps, rows = cKDTree(points).query(points, k=range(2, count + 2))
    usual = gaps[:, min(_NEIGHBOR, count) - 1]
    middle = spacing_of(points)
    own = np.clip(usual, middle / _RANGE, middle * _RANGE)  # doubled points and outliers are drawn as well
    if not normals.any():
        return np.asarray(_BALL * own)
    parts = [
        _cell_radii(points[rows[part]] - points[part][:, None], normals[part])
        for part in np.array_split(np.arange(len(points)), len(points) // _POINTS_AT_ONCE + 1)
    ]
    return np.asarray(_OVERLAP * np.clip(np.concatenate(parts), 0.5 * own, _WIDEST * np.maximum(own, middle)))


def _cell_radii(steps: FloatArray, normals: FloatArray) -> FloatArray:
    """Distance of the farthest place of each cell from its point in the tangent plane, shape (n,).

    ``steps`` : (n, k, 3) from the point to those around it. The bisector of a step s cuts the ray along u at
    |s|^2 / (2 u.s); the first cut is where the cell ends. At the rim of a sheet cells have no end: a ray counts
    only where a point lies beyond its cut.
    """
    helper = np.where(np.abs(normals[:, :1]) < 0.6, [[1.0, 0.0, 0.0]], [[0.0, 1.0, 0.0]])
    first = np.cross(normals, helper)
    first /= np.linalg.norm(first, axis=1, keepdims=True)
    flat = np.stack([np.einsum("nki,ni->nk", steps, axis) for axis in (first, np.cross(normals, first))], axis=-1)
    angles = 2 * np.pi * np.arange(_DIRECTIONS) / _DIRECTIONS
    along = flat @ np.stack([np.cos(angles), np.sin(angles)])  # (n, k, directions)
    squares = (flat**2).sum(axis=-1)[:, :, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        cuts = np.where(along > 0, squares / (2 * along), np.inf)
    ends = cuts.min(axis=1)  # (n, directions)
    beyond = (along >= ends[:, None]) & (along >= _CONE * np.sqrt(squares))
    return np.asarray(np.where(beyond.any(axis=1), ends, 0.0).max(axis=1))


def nearest(points: FloatArray, targets: FloatArray) -> IntArray:
    """The target nearest to each point, as a position in ``targets``, shape (n,)."""
    return np.asarray(cKDTree(targets).query(points)[1], dtype=np.int64)


def nearest_along(mesh: TriangleMesh, targets: IntArray) -> IntArray:
    """The same along the edges of a mesh, for all its vertices; across space where no edges lead to any."""
    found = dijkstra(edge_lengths(mesh), indices=targets, min_only=True, return_predecessors=True)[2]
    place = np.zeros(mesh.n_vertices, dtype=np.int64)
    place[targets] = np.arange(len(targets))
    result: IntArray = place[np.maximum(found, 0)]
    apart = found < 0
    if apart.any():
        result[apart] = nearest(mesh.vertices[apart], mesh.vertices[targets])
    return result


def coarse_faces(mesh: TriangleMesh, kept: IntArray) -> IntArray:
    """Triangles between kept vertices: each vertex moves to the nearest kept one, and flat triangles vanish.

    Returns
    -------
    faces : int array of shape (f, 3)
        Positions in ``kept``.
    """
    faces = nearest_along(mesh, kept)[mesh.faces]
    first, second, third = faces.T
    faces = faces[(first != second) & (second != third) & (third != first)]
    once = np.unique(np.sort(faces, axis=1), axis=0, return_index=True)[1]
    return np.asarray(faces[np.sort(once)])


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
