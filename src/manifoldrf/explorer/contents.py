"""The contents of a page: fields of a model and of the user at points, thinned and rounded until they fit.

``fields_of`` evaluates a model, ``fields_on`` takes a space without one; both take fields of the user. A
:class:`Plan` says how much of them a page holds, ``contents_of`` makes the arrays of the page, and ``kernel_error``
compares the kernel of the page with that of the model.
"""

import dataclasses
import zlib
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from manifoldrf._random import generator
from manifoldrf._validation import FloatArray, IntArray, as_floats, check_jobs, check_points, reject
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.graph_kernel import signature_table, warn_of_far
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.features.options import Teaching
from manifoldrf.geometry.graphs import Graph, as_space
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.neighbors import coarse_faces, nearest_along
from manifoldrf.geometry.sampling import thin

_ENTRIES_AT_ONCE = 2**24  # entries of a dense field in memory: 128 MB
# Entries below this share of the largest of their column are dropped: a hundredth of the resolution of 16 bits. By
# the Cauchy-Schwarz inequality this changes K by less than 2e-7 sqrt(m) of its largest value.
_NEGLIGIBLE = 1e-7
# Differences below this share of the largest of their column come from the truncation of signatures.
NO_DIFFERENCE = 1e-5

# Numbers of points for a fine picture, a rough one, and the least. Fewer points make the picture coarser, fewer
# features change the kernel: features are only dropped below the second number.
_FINE, _ROUGH, _FEWEST_POINTS = 4000, 500, 64
_FEW_EXACT = 8  # columns of exact signatures; fewer are not worth keeping
_MARGIN = 0.95  # a page that is thinned by a ratio shrinks a little less than by the ratio
# Largest error of a kernel that is shown, relative to its largest value. Beyond it, colours and shape are wrong.
WORST = 0.2
_FEWEST_PROBES = 64  # points whose whole kernel is compared, for any size of the model
_WORK = 1.5e10  # products of a comparison: about 2 s on one core, all pairs of 5000 points and 512 features
_SPARSE = 0.1  # share of entries below which sparse products are faster
# Differences below this share of the fields are stored with 8 bits. Their error is then below 4e-4 of a field.
_SMALL_DIFFERENCE = 0.1
_PAIRS_AT_ONCE = 2**23  # pairs of a comparison in memory: 64 MB
_LEVEL = 9  # of the compression: 3 % smaller than 6
_LOW_BITS = 7  # bits of a number in each byte of a chain; the eighth says that another byte follows

_AXES = 3
_NEIGHBOR = 4  # in a random cloud the first neighbour is much nearer than the width of the gaps
_PATCH = 13  # a point and its twelve nearest neighbours
# Spread across a surface relative to the spread along it. Filled space has 0.5, random points of a torus 0.05.
_FLAT = 0.2
_CURVE = 1e-3  # below this a cloud is a curve, which has no unique normal
_AROUND = 24  # neighbours that bound the cell of a point; more never changed it on random points of a torus
_DIRECTIONS = 32  # rays that measure a cell: they miss at most 2 % of its radius, a corner between two rays
_CONE = 0.82  # cosine of the angle, 35 degrees, within which a point lies beyond another
_OVERLAP = 1.3  # of discs, because rays miss corners and a surface bends between points
_BALL = 0.6  # radius of a ball relative to the distance to its neighbours: a loose cloud
_RANGE = 4.0  # largest ratio between the gap of a point and the usual one
_WIDEST = 2.0  # largest cell that is covered, relative to the gap of its point; wider ones are holes of the space
_POINTS_AT_ONCE = 4096  # 25 MB of cuts
_LEAF = 8  # points of a leaf; neighbours in space are then neighbours in the file, which compresses better


@dataclass(frozen=True, eq=False)
class QuantisedColumns:
    """A sparse matrix whose entries are integer multiples of one scale per column.

    Attributes
    ----------
    shape : (int, int)
    bits : {8, 16}
        Bits of each number.
    signed : bool
        Whether numbers may be negative.
    starts : int array of shape (m + 1,)
        Start of each column.
    rows : int array of shape (nnz,)
        Ascending in each column.
    numbers : int array of shape (nnz,)
        Nonzero; entries that round to zero are dropped.
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
        """Round the entries of a sparse matrix by at most half the scale of their column.

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
        """The entries as the page decodes them, CSC of shape ``shape``."""
        data = self.numbers * np.repeat(self.scales, np.diff(self.starts))
        return sparse.csc_array((data, self.rows, self.starts), shape=self.shape)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of the page: counts, steps between rows, numbers as planes of bytes, scales.

        High and low bytes are stored separately, because high bytes repeat and compress well. Signed numbers are
        coded alternately: 0, -1, 1, -2, 2 become 0, 1, 2, 3, 4.
        """
        steps = np.diff(self.rows, prepend=-1)
        counts = np.diff(self.starts)
        first = self.starts[:-1][counts > 0]
        steps[first] = self.rows[first] + 1  # counted from -1
        coded = np.where(self.numbers < 0, -2 * self.numbers - 1, 2 * self.numbers) if self.signed else self.numbers
        arrays: dict[str, NDArray[Any]] = {
            "Counts": counts.astype(np.uint32),
            "Steps": chained(steps),
            "Scales": self.scales,
            "Low": (coded & 255).astype(np.uint8),
        }
        if self.bits == 16:
            arrays["High"] = (coded >> 8).astype(np.uint8)
        return arrays


def chained(numbers: IntArray) -> NDArray[np.uint8]:
    """Nonnegative numbers as bytes with seven bits each, lowest first.

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
    """Principal axes of the nearest points around each point, including itself.

    Parameters
    ----------
    points : array of shape (n, d)
    count : int
        Number of points around each, at most all.
    rows : int array of shape (q,), optional
        Points at which the axes are wanted; all by default.

    Returns
    -------
    spreads : array of shape (q, d)
        Sums of squares along the axes, ascending.
    axes : array of shape (q, d, d)
        Columns, with arbitrary signs. On a surface in space the first is the normal.

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


@dataclass(frozen=True, eq=False)
class View:
    """Projection of the space to three coordinates.

    Attributes
    ----------
    centre : array of shape (d,)
    axes : array of shape (d, 3)
        The columns give the coordinates of the picture; zero if the space has fewer than three.
    share : float
        Share of the variance in the picture; 1 in up to three dimensions.
    """

    centre: FloatArray
    axes: FloatArray
    share: float

    @classmethod
    def of(cls, points: FloatArray) -> "View":
        """The coordinates themselves, or the first three principal axes if there are more than three."""
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
        """Whether the picture is a projection from more than three dimensions."""
        return len(self.centre) > _AXES

    def shown(self, points: FloatArray) -> FloatArray:
        """Coordinates of the picture, shape (n, 3), centred."""
        return np.asarray((points - self.centre) @ self.axes)

    @property
    def origin(self) -> list[float]:
        """Offset from coordinates of the picture to those of the space; zeros for principal axes."""
        return [0.0] * _AXES if self.projects else [*self.centre.tolist(), 0.0, 0.0][:_AXES]


def spacing_of(points: FloatArray) -> float:
    """Median distance to the fourth neighbour, positive: the spacing of points on an even surface."""
    if len(points) < 2:
        return 1.0
    gaps = cKDTree(points).query(points, k=min(_NEIGHBOR, len(points) - 1) + 1)[0][:, -1]
    usual = float(np.median(gaps))
    return usual if usual > 0 else float(np.ptp(points, axis=0).max()) / len(points) or 1.0


def normals_of(points: FloatArray) -> FloatArray:
    """Normals of a cloud, shape (n, 3), with arbitrary signs; zeros if it is not a surface."""
    if len(points) <= _PATCH:
        return np.zeros((len(points), _AXES))
    spreads, axes = neighbor_axes(points, _PATCH)
    across, along, most = np.median(spreads, axis=0)
    is_surface = across <= _FLAT * along and along > _CURVE * most
    return np.asarray(axes[:, :, 0] * float(is_surface))


def radii_of(points: FloatArray, normals: FloatArray) -> FloatArray:
    """Radii of the discs or balls that represent points, shape (n,).

    A disc covers the Voronoi cell of its point, so that discs leave no gaps even for uneven points. Balls of a
    loose cloud just touch.
    """
    if len(points) < 2:
        return np.ones(len(points))
    count = min(_AROUND, len(points) - 1)
    gaps, rows = cKDTree(points).query(points, k=range(2, count + 2))
    usual = gaps[:, min(_NEIGHBOR, count) - 1]
    middle = spacing_of(points)
    own = np.clip(usual, middle / _RANGE, middle * _RANGE)  # so that duplicates and outliers are visible
    if not normals.any():
        return np.asarray(_BALL * own)
    parts = [
        _cell_radii(points[rows[part]] - points[part][:, None], normals[part])
        for part in np.array_split(np.arange(len(points)), len(points) // _POINTS_AT_ONCE + 1)
    ]
    return np.asarray(_OVERLAP * np.clip(np.concatenate(parts), 0.5 * own, _WIDEST * np.maximum(own, middle)))


def _cell_radii(steps: FloatArray, normals: FloatArray) -> FloatArray:
    """Largest distance from each point to the boundary of its cell in the tangent plane, shape (n,).

    ``steps`` : (n, k, 3) from the point to its neighbours. The bisector of a step s cuts the ray along u at
    |s|^2 / (2 u.s); the cell ends at the first cut. Cells at the rim of a sheet are unbounded, so a ray is used
    only if a point lies beyond its cut.
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
    """Index of the nearest target of each point, shape (n,)."""
    return np.asarray(cKDTree(targets).query(points)[1], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class OwnField:
    """A field of the user.

    Attributes
    ----------
    name : str
    values : array of shape (n,)
        At the points of the page; NaN where there is no value.
    low, high : float
        The range of its colours: of all given values, also of those that are not drawn.
    """

    name: str
    values: FloatArray
    low: float
    high: float


def own_fields(fields: Any, n: int, what: str) -> list[OwnField]:
    """Check fields of the user, given for n points; ``what`` says which, for errors."""
    columns = getattr(fields, "columns", None)
    given = {name: fields[name] for name in columns} if np.iterable(columns) else {} if fields is None else fields
    if not isinstance(given, Mapping):
        reject("fields", "a dictionary of names and vectors, or a frame", type(fields).__name__, TypeError)
    found = []
    for name, field in given.items():
        if not isinstance(name, str) or not name.strip():
            rule = "a dictionary whose keys are names, or a frame whose columns have names"
            reject("fields", rule, repr(name), TypeError)
        argument = f"fields[{name!r}]"
        values = as_floats(field, argument)
        if values.shape != (n,):
            reject(argument, f"a vector of shape ({n},): one number for each {what}", f"shape {values.shape}")
        if np.isinf(values).any():
            place = int(np.isinf(values).argmax())
            reject(argument, "finite, or NaN where there is no value", f"{values[place]} at index {place}")
        if np.isnan(values).all():
            reject(argument, "a vector with at least one number", "NaN everywhere")
        found.append(OwnField(name, values, float(np.nanmin(values)), float(np.nanmax(values))))
    return found


@dataclass(frozen=True, eq=False)
class Fields:
    """Fields of a model at points, with the weights of its kernel, and fields of the user.

    Points and anchors are ordered such that the first n are evenly spread, for every n.

    Attributes
    ----------
    points : array of shape (n, d)
    ids : int array of shape (n,)
        Nodes of the graph, or rows of the given points.
    total : int
        Number of points before thinning.
    mesh : TriangleMesh, optional
        The mesh, if the ids are vertices of one.
    anchors : int array of shape (m,)
        Nodes of the anchors.
    places : array of shape (m, d)
        Positions of the anchors.
    weights : array of shape (m,)
    values : CSC array of shape (n, m)
        g(point, anchor), so that K(x, y) = sum_l w_l g(x, l) g(y, l).
    difference : CSC array of shape (n, m), optional
        Model minus exact; None away from the nodes, where exact values are unknown.
    own : list of OwnField
        Fields of the user.
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
    own: list[OwnField]


def fields_on(space: Any, n_points: int, own: Any) -> Fields:
    """Fields of the user on a mesh, a graph or points, without a model."""
    space = as_space(space, "model")
    mesh = space if isinstance(space, TriangleMesh) else space.mesh if isinstance(space, Graph) else None
    points = space.positions if isinstance(space, Graph) else space if mesh is None else mesh.vertices
    points = check_points(points, "model", min_rows=2)
    given = own_fields(own, len(points), "point" if mesh is None else "vertex of the mesh")
    if not given:
        reject("fields", "given for a space without a model: there is nothing else to show", "none")
    chosen = thin(points, min(n_points, len(points)))
    empty, none = sparse.csc_array((len(chosen), 0)), np.zeros(0, dtype=np.int64)
    return Fields(
        points=points[chosen],
        ids=chosen,
        total=len(points),
        mesh=mesh,
        anchors=none,
        places=points[none],
        weights=np.zeros(0),
        values=empty,
        difference=None,
        own=_at(given, chosen),
    )


def _at(own: list[OwnField], chosen: IntArray) -> list[OwnField]:
    """Fields at some of their points."""
    return [dataclasses.replace(field, values=field.values[chosen]) for field in own]


def fields_of(features: ManifoldRandomFeatures, surface: Any, n_points: int, own: Any = None) -> Fields:
    """Compute the fields of a fitted model at no more than ``n_points`` points.

    ``surface`` : TriangleMesh, array of points of shape (n, d), or None for the nodes of the graph.
    """
    fitted, jobs = features.map_, check_jobs(features.n_jobs)
    positions = fitted.graph.positions
    points, mesh = _points_of(fitted, surface)
    what = "node of the model; with `surface`, for each of its vertices or points"
    given = own_fields(own, len(points), what if surface is None else "vertex or point of `surface`")
    chosen = thin(points, min(n_points, len(points)))
    order = thin(positions[fitted.anchors], len(fitted.anchors))
    values, window = _values(fitted, points[chosen], jobs)
    if surface is not None:  # the model's own nodes are never reported as far
        warn_of_far(window)
    values = values[:, order]
    on_nodes = points.shape == positions.shape and np.array_equal(points, positions)
    difference = None
    if on_nodes:
        # Without the truncation error of signatures.
        apart = sparse.csr_array(values - _exact(fitted, chosen, jobs)[:, order])
        difference = _above(apart, NO_DIFFERENCE * peaks_of(values)).tocsc()
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
        own=_at(given, chosen),
    )


def _points_of(fitted: FeatureMap, surface: Any) -> tuple[FloatArray, TriangleMesh | None]:
    """The points to draw, and the mesh to which they belong, if any."""
    graph = fitted.graph
    if surface is None:
        return graph.positions, graph.mesh
    surface = as_space(surface, "surface")
    mesh = surface if isinstance(surface, TriangleMesh) else None
    n_columns = graph.positions.shape[1]
    if mesh is not None and n_columns != mesh.vertices.shape[1]:
        rule = f"an array of points of shape (n, {n_columns}), like those of the model"
        reject("surface", rule, f"a mesh: {mesh}")
    points = check_points(surface if mesh is None else mesh.vertices, "surface", n_columns=n_columns)
    return (points if graph.metric is None else graph.metric.check(points, "surface")), mesh


def _values(fitted: FeatureMap, points: FloatArray, jobs: int) -> tuple[Any, FloatArray]:
    """Values of g at points, CSC of shape (n, m): features without the weights; and the window, (n,)."""
    bare = dataclasses.replace(fitted, weights=np.ones_like(fitted.weights))
    size = max(1, _ENTRIES_AT_ONCE // len(fitted.anchors))
    window = np.ones(len(points))
    # Peaks of the points so far are never above the final peaks, so no entry is dropped too early.
    peaks = np.zeros(len(fitted.anchors))
    parts = []
    for start in range(0, len(points), size):
        stop = start + size
        rows, window[start:stop] = bare.rows(points[start:stop], jobs)
        part = sparse.csr_array(rows)
        np.maximum.at(peaks, part.indices, part.data)
        parts.append(_above(part, _NEGLIGIBLE * peaks))
    return fitted.scale * _above(sparse.vstack(parts, format="csr"), _NEGLIGIBLE * peaks).tocsc(), window


def _above(rows: Any, least: FloatArray) -> Any:
    """Drop the entries of a CSR array whose size is below the given value of their column."""
    rows.data[np.abs(rows.data) < least[rows.indices]] = 0.0
    rows.eliminate_zeros()
    return rows


def _exact(fitted: FeatureMap, nodes: IntArray, jobs: int) -> Any:
    """Exact signatures of the anchors at nodes in the unit of g, CSC of shape (n, m)."""
    kernel = fitted.kernel
    known = signature_table(kernel, kernel.series, nodes, fitted.anchors, Teaching(n_jobs=jobs)).tocsr()
    own = np.ones(len(nodes)) if kernel.per_volume else np.sqrt(kernel.measure[nodes])
    return sparse.csc_array(sparse.diags_array(own * fitted.scale * fitted.output_scale) @ known)


def peaks_of(columns: Any) -> FloatArray:
    """Largest absolute value of each column, shape (m,)."""
    return np.asarray(abs(columns).max(axis=0).todense()).ravel()


@dataclass(frozen=True)
class Plan:
    """How much of a model goes into a page.

    Attributes
    ----------
    n_points, n_features : int
    bits : {16, 8}
        Bits of each value.
    n_exact : int
        Number of anchors with exact values.
    """

    n_points: int
    n_features: int
    bits: int
    n_exact: int

    def smaller(self, size: int, limit: int, fewest: Callable[[], int]) -> "Plan":
        """The next smaller plan after a page of ``size`` bytes; an error if nothing is left to drop.

        The order is: fewer points, 8 bits, fewer exact columns, still fewer points, fewer features (at least
        ``fewest()``), and finally the fewest points.
        """
        ratio = _MARGIN * limit / size
        if self.n_points > _FINE:
            return self._with_points(_FINE, ratio)
        if self.bits > 8 and self.n_features:
            return dataclasses.replace(self, bits=8)
        if self.n_exact > 0:
            fewer = self.n_exact // 2
            return dataclasses.replace(self, n_exact=fewer if fewer >= _FEW_EXACT else 0)
        if self.n_points > _ROUGH:
            return self._with_points(_ROUGH, ratio)
        if self.n_features and self.n_features > (least := fewest()):
            return dataclasses.replace(self, n_features=max(least, int(self.n_features * ratio)))
        if self.n_points > _FEWEST_POINTS:
            return self._with_points(_FEWEST_POINTS, 0.5)
        rule = f"at least {size} for this model, whose kernel a smaller page shows with an error above {WORST:g}"
        why = f"{rule} of its largest value" if self.n_features else f"at least {size} for these fields"
        return reject("max_bytes", why, limit)

    def _with_points(self, least: int, ratio: float) -> "Plan":
        return dataclasses.replace(self, n_points=max(least, int(self.n_points * ratio)))


@dataclass(frozen=True, eq=False)
class Contents:
    """The arrays of a page and facts about them.

    Attributes
    ----------
    arrays : dict
        By the names that the page uses.
    plan : Plan
        The size of the contents.
    view : View
    spacing : float
        Distance between the points.
    share : float
        Sum of all weights relative to those of the kept anchors.
    """

    arrays: dict[str, NDArray[Any]]
    plan: Plan
    view: View
    spacing: float
    share: float

    @cached_property
    def packed(self) -> tuple[str, list[dict[str, Any]]]:
        """All arrays as one string, and the table of their offsets."""
        blocks: list[bytes] = []
        table: list[dict[str, Any]] = []
        offset = 0
        for name, array in self.arrays.items():
            block = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).tobytes()
            table.append({"name": name, "type": array.dtype.name, "offset": offset, "length": array.size})
            padding = -len(block) % 8  # typed arrays in JavaScript are aligned to their width
            blocks += [block, bytes(padding)]
            offset += len(block) + padding
        return b64encode(zlib.compress(b"".join(blocks), _LEVEL)).decode("ascii"), table


def contents_of(fields: Fields, plan: Plan) -> Contents:
    """Round, thin and order the fields according to a plan."""
    n, m = plan.n_points, plan.n_features
    view = View.of(fields.points)
    shown = view.shown(fields.points[:n])
    order = np.asarray(cKDTree(shown, leafsize=_LEAF).indices, dtype=np.int64)  # close in space, close in the file
    values = QuantisedColumns.of(fields.values[:n][order][:, :m], plan.bits)
    # For a mesh the browser computes normals of the triangles.
    normals = normals_of(shown[order]) if fields.mesh is None else np.zeros((0, 3))
    radii = radii_of(shown[order], normals) if fields.mesh is None else np.zeros(0)
    arrays: dict[str, NDArray[Any]] = {
        "positions": shown[order].astype(np.float32),
        "ids": fields.ids[:n][order].astype(np.uint32),
        "faces": _faces(fields, order).astype(np.uint32),
        "normals": np.rint(127 * normals).astype(np.int8),
        "radii": radii.astype(np.float32),
        "anchors": view.shown(fields.places[:m]).astype(np.float32),
        "anchorIds": fields.anchors[:m].astype(np.uint32),
        "weights": fields.weights[:m],
        "nearest": _nearest(fields, order, plan.n_exact or m).astype(np.uint32),
        **_prefixed("field", values),
        **{f"own{k}": _exact_floats(field.values[:n][order]) for k, field in enumerate(fields.own)},
    }
    if plan.n_exact > 0 and fields.difference is not None:
        some = fields.difference[:n][order][:, : plan.n_exact]
        small = peaks_of(some) <= _SMALL_DIFFERENCE * peaks_of(fields.values[:, : plan.n_exact])
        bits = 8 if small.all() else plan.bits
        arrays |= _prefixed("difference", QuantisedColumns.of(some, bits, signed=True))
    return Contents(arrays, plan, view, spacing_of(shown), _share(fields.weights, m))


def _exact_floats(values: FloatArray) -> NDArray[Any]:
    """Values in single precision if that changes none of them."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    return single if np.array_equal(single, values, equal_nan=True) else values


def _share(weights: FloatArray, m: int) -> float:
    """Factor of a sum over the first anchors that replaces the volume of the others."""
    kept = float(weights[:m].sum())
    return float(weights.sum()) / kept if kept > 0 and m < len(weights) else 1.0


def _prefixed(name: str, columns: QuantisedColumns) -> dict[str, NDArray[Any]]:
    return {f"{name}{part}": array for part, array in columns.arrays().items()}


def _faces(fields: Fields, order: IntArray) -> IntArray:
    """Triangles between the points of the page, shape (f, 3); none for a cloud."""
    if fields.mesh is None:
        return np.zeros((0, 3), dtype=np.int64)
    kept = fields.ids[: len(order)][order]
    if len(kept) < fields.mesh.n_vertices:
        return oriented(coarse_faces(fields.mesh, nearest_along(fields.mesh, kept)))
    place = np.zeros(len(kept), dtype=np.int64)
    place[kept] = np.arange(len(kept))
    faces = oriented(place[fields.mesh.faces])
    return np.asarray(faces[np.argsort(faces.min(axis=1), kind="stable")])  # compresses to half the size


def oriented(faces: IntArray) -> IntArray:
    """Faces with corners in an order such that neighbours face the same side; the light would show every seam.

    Surfaces with one side keep a seam, and so do edges with more than two faces.

    Examples
    --------
    >>> import numpy as np
    >>> oriented(np.array([[0, 1, 2], [1, 2, 3]])).tolist()
    [[0, 1, 2], [2, 1, 3]]
    """
    count = len(faces)
    sides = faces[:, [0, 1, 1, 2, 2, 0]].reshape(-1, 2)
    low, high = sides.min(axis=1), sides.max(axis=1)
    order = np.lexsort((high, low))
    same = (np.diff(low[order]) == 0) & (np.diff(high[order]) == 0)
    first, second = order[:-1][same], order[1:][same]  # sides of two faces at one edge
    agree = sides[first, 0] != sides[second, 0]  # they run along it in opposite directions
    # A face has two copies, as it is and turned, which are joined to those of its neighbours that agree with them.
    one, other = first // 3, second // 3
    ends = np.where(agree, other, other + count), np.where(agree, other + count, other)
    pairs = np.concatenate([one, one + count]), np.concatenate(ends)
    graph = sparse.coo_array((np.ones(len(pairs[0])), pairs), shape=(2 * count, 2 * count))
    labels = connected_components(graph, directed=False)[1]
    turned = labels[:count] > labels[count:]  # labels count from the first face, whose own copy comes first
    return np.where(turned[:, None], faces[:, [1, 0, 2]], faces)


def _nearest(fields: Fields, order: IntArray, m: int) -> IntArray:
    """The nearest of the first ``m`` anchors for each point of the page."""
    chosen = fields.ids[: len(order)][order]
    if m == 0:  # no model
        return np.zeros(len(order), dtype=np.int64)
    if fields.mesh is not None and fields.difference is not None:  # the vertices are the nodes
        return nearest_along(fields.mesh, fields.anchors[:m])[chosen]
    return nearest(fields.points[: len(order)][order], fields.places[:m])


@dataclass(frozen=True)
class KernelError:
    """Error of the kernel of a page.

    Attributes
    ----------
    largest : float
        Largest error relative to the largest value of the model's kernel at the points of the page.
    n_probes, n_points : int
        Number of compared rows, and their length. If they are equal, all pairs were compared.
    """

    largest: float
    n_probes: int
    n_points: int

    def __str__(self) -> str:
        size = f"{self.largest:.2g} of the largest value of the model"
        if self.n_probes == self.n_points:
            return f"at most {size} between any two points of this page"
        return f"{size}, the largest error of {self.n_probes * self.n_points:,} random pairs of points"


def kernel_error(fields: Fields, plan: Plan) -> KernelError:
    """Compare the kernel of a page with that of the model, at all pairs of points if that is fast."""
    n, m = plan.n_points, plan.n_features
    if m == 0:  # no model
        return KernelError(0.0, n, n)
    whole = _quick(fields.values[:n])
    found = _quick(QuantisedColumns.of(fields.values[:n, :m], plan.bits).matrix())
    count = min(n, max(_FEWEST_PROBES, int(_WORK / (n * len(fields.weights)))))
    probes = np.sort(generator(0, "explorer.error").choice(n, count, replace=False))
    share = _share(fields.weights, m)
    worst = 0.0
    for part in np.array_split(probes, len(probes) * n // _PAIRS_AT_ONCE + 1):
        error = share * _kernel(found, fields.weights[:m], part) - _kernel(whole, fields.weights, part)
        worst = max(worst, float(np.abs(error).max()))
    # The largest value of a kernel is on its diagonal.
    largest = float(np.max(fields.values[:n].power(2) @ fields.weights))
    return KernelError(worst / (largest or 1.0), count, n)


def fewest_features(fields: Fields) -> int:
    """Smallest number of features for an error of at most ``WORST`` in a small page, by bisection."""
    n, m = fields.values.shape
    low, high = 0, int(m)
    while high - low > 1:
        middle = (low + high) // 2
        error = kernel_error(fields, Plan(min(n, _ROUGH), middle, 8, 0)).largest
        low, high = (low, middle) if error <= _MARGIN * WORST else (middle, high)
    return high


def _quick(rows: Any) -> Any:
    """Rows as a sparse or dense array, whichever has faster products."""
    n, m = rows.shape
    return rows.tocsr() if rows.nnz < _SPARSE * n * m else rows.toarray()


def _kernel(rows: Any, weights: FloatArray, probes: IntArray) -> FloatArray:
    """K between probes and all points, dense of shape (p, n)."""
    if isinstance(rows, np.ndarray):
        return np.asarray((rows[probes] * weights) @ rows.T)
    heavy = rows[probes].multiply(weights[None, :]).tocsr()
    return np.asarray((heavy @ rows.T).toarray())
