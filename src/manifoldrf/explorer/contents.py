"""The contents of a page: fields of a model and of the user at points, thinned and rounded until they fit.

``fields_of`` evaluates a model, ``fields_on`` takes a space without one; both take fields of the user. A
:class:`Plan` says how much of them a page holds, ``contents_of`` makes the arrays of the page, and ``kernel_error``
compares the kernel of the page with that of the model.
"""

import dataclasses
import zlib
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph
from scipy.spatial import cKDTree

from manifoldrf._random import generator
from manifoldrf._validation import FloatArray, IntArray, as_floats, check_jobs, check_points, reject
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.graph_kernel import Teaching, signature_table, warn_of_far
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.geometry.graphs import Graph, as_space
from manifoldrf.geometry.meshes import TriangleMesh, has_repeats, is_doubled
from manifoldrf.geometry.neighbors import edge_lengths
from manifoldrf.geometry.sampling import thin

NO_DIFFERENCE = 1e-5  # differences below this share of the largest of their column come from truncated signatures
WORST = 0.2  # largest error of a kernel that is shown, relative to its largest value; beyond it, colours are wrong


def quantised(matrix: Any, bits: int, *, signed: bool = False) -> tuple[Any, FloatArray]:
    """Integers (n, m), CSC, and the scale of each column: their product is the matrix within half a scale.

    Examples
    --------
    >>> import numpy as np
    >>> numbers, scales = quantised(np.array([[1.0, 0.0], [0.25, 3.0]]), 8)
    >>> numbers.toarray().tolist()
    [[255, 0], [64, 255]]
    """
    columns = sparse.csc_array(matrix)
    columns.sum_duplicates()
    scales = peaks_of(columns) / (2 ** (bits - 1) - 1 if signed else 2**bits - 1)
    own = np.repeat(np.where(scales > 0, scales, 1.0), np.diff(columns.indptr))
    numbers = np.rint(columns.data / own).astype(np.int64)
    result = sparse.csc_array((numbers, columns.indices.copy(), columns.indptr.copy()), shape=columns.shape)
    result.eliminate_zeros()
    return result, scales


def _column_arrays(name: str, numbers: Any, scales: FloatArray, bits: int, *, signed: bool) -> dict[str, Any]:
    """Columns as arrays of the page: counts, steps from row to row, numbers and scales.

    Bytes of each significance are stored together, because high ones repeat and compress well. Signed numbers are
    coded alternately: 0, -1, 1, -2, 2 become 0, 1, 2, 3, 4.
    """
    counts, rows = np.diff(numbers.indptr), numbers.indices.astype(np.int64)
    steps = np.diff(rows, prepend=-1)
    first = numbers.indptr[:-1][counts > 0]
    steps[first] = rows[first] + 1  # counted from -1
    data = numbers.data
    coded = np.where(data < 0, -2 * data - 1, 2 * data) if signed else data
    planes = {f"{name}Steps{k}": steps >> 8 * k for k in range(3)}
    planes |= {f"{name}Numbers{k}": coded >> 8 * k for k in range(bits // 8)}
    arrays = {plane: (values & 255).astype(np.uint8) for plane, values in planes.items()}
    return {f"{name}Counts": counts.astype(np.uint32), f"{name}Scales": scales, **arrays}


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


def view_of(points: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Centre (d,) and axes (d, 3) of the picture, and its share of the variance.

    The axes are the coordinates themselves, or the first three principal ones if there are more than three.
    """
    centre = (points.min(axis=0) + points.max(axis=0)) / 2
    d = points.shape[1]
    if d <= 3:
        return centre, np.eye(d, 3), 1.0
    variances, vectors = np.linalg.eigh(np.cov(points.T))
    axes = vectors[:, :-4:-1]
    largest = axes[np.abs(axes).argmax(axis=0), np.arange(3)]
    axes = axes * np.where(largest < 0, -1.0, 1.0)  # the sign of an eigenvector is arbitrary
    total = float(variances.sum())
    return centre, axes, float(variances[-3:].sum()) / total if total > 0 else 1.0


def normals_and_radii(points: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Normals (n, 3) and radii (n,) of the discs that represent points of a cloud, and their usual spacing.

    Signs of normals are arbitrary; those of a cloud that is no surface vanish, and its points are balls that just
    touch. A disc reaches the eighth neighbour: then those of random points of a surface leave no gap.
    """
    n = len(points)
    if n < 2:
        return np.zeros((n, 3)), np.ones(n), 1.0
    gaps = cKDTree(points).query(points, k=range(2, min(8, n - 1) + 2))[0]
    near = gaps[:, min(4, n - 1) - 1]
    spacing = float(np.median(near)) or float(np.ptp(points, axis=0).max()) / n or 1.0
    normals = np.zeros((n, 3))
    if n > 13:
        spreads, axes = neighbor_axes(points, 13)
        across, along, most = np.median(spreads, axis=0)
        # Filled space has a ratio of 0.5, random points of a torus 0.05. A curve has no unique normal.
        normals = axes[:, :, 0] * float(across <= 0.2 * along and along > 1e-3 * most)
    radii = gaps[:, -1] if normals.any() else 0.6 * near
    return normals, np.clip(radii, spacing / 4, 4 * spacing), spacing  # so that doubled and lone points are visible


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
    if not isinstance(given, Mapping) or not all(isinstance(name, str) and name.strip() for name in given):
        reject("fields", "a dictionary of names and vectors, or a frame", repr(fields)[:80], TypeError)
    result = []
    for name, field in given.items():
        argument = f"fields[{name!r}]"
        values = as_floats(field, argument)
        if values.shape != (n,):
            reject(argument, f"a vector of shape ({n},): one number for each {what}", f"shape {values.shape}")
        if np.isinf(values).any() or np.isnan(values).all():
            reject(argument, "finite, or NaN where there is no value", "inf, or NaN everywhere")
        result.append(OwnField(name, values, float(np.nanmin(values)), float(np.nanmax(values))))
    return result


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


def fields_on(space: Any, n_points: int, fields: Any) -> Fields:
    """Fields of the user on a mesh, a graph or points, without a model."""
    space = as_space(space, "model")
    mesh = space if isinstance(space, TriangleMesh) else space.mesh if isinstance(space, Graph) else None
    points = space.positions if isinstance(space, Graph) else space if mesh is None else mesh.vertices
    points = check_points(points, "model", min_rows=2)
    given = own_fields(fields, len(points), "point" if mesh is None else "vertex of the mesh")
    if not given:
        reject("fields", "given for a space without a model: there is nothing else to show", "none")
    chosen = thin(points, min(n_points, len(points)))
    own = [dataclasses.replace(field, values=field.values[chosen]) for field in given]
    none, empty = np.zeros(0, dtype=np.int64), sparse.csc_array((len(chosen), 0))
    return Fields(points[chosen], chosen, len(points), mesh, none, points[none], np.zeros(0), empty, None, own)


def fields_of(features: ManifoldRandomFeatures, surface: Any, n_points: int, fields: Any = None) -> Fields:
    """Compute the fields of a fitted model at no more than ``n_points`` points.

    ``surface`` : TriangleMesh, array of points of shape (n, d), or None for the mesh of the model, or its nodes.
    """
    fitted, jobs = features.map_, check_jobs(features.n_jobs)
    positions = fitted.graph.positions
    points, mesh = _points_of(fitted, surface)
    what = "node of the model; for other points, give them as `surface`" if mesh is None else "vertex of the mesh"
    given = own_fields(fields, len(points), what if surface is None else "vertex or point of `surface`")
    chosen = thin(points, min(n_points, len(points)))
    own = [dataclasses.replace(field, values=field.values[chosen]) for field in given]
    order = thin(positions[fitted.anchors], len(fitted.anchors))
    values, window = _values(fitted, points[chosen], jobs)
    if surface is not None:  # the model's own nodes are never reported as far
        warn_of_far(window)
    values, difference = values[:, order], None
    if points.shape == positions.shape and np.array_equal(points, positions):
        apart = sparse.csr_array(values - _exact(fitted, chosen, jobs)[:, order])
        difference = _above(apart, NO_DIFFERENCE * peaks_of(values)).tocsc()
    anchors, weights = fitted.anchors[order], features.weights_[order]
    return Fields(
        points[chosen], chosen, len(points), mesh, anchors, positions[anchors], weights, values, difference, own
    )


def _points_of(fitted: FeatureMap, surface: Any) -> tuple[FloatArray, TriangleMesh | None]:
    """The points to draw, and the mesh to which they belong, if any."""
    graph = fitted.graph
    if surface is None:
        mesh = None if graph.extension is None else graph.extension.whole_mesh()
        return (graph.positions, None) if mesh is None else (mesh.vertices, mesh)
    surface = as_space(surface, "surface")
    mesh = surface if isinstance(surface, TriangleMesh) else None
    points = surface if mesh is None else mesh.vertices
    points = check_points(points, "surface", n_columns=graph.positions.shape[1])
    return (points if graph.metric is None else graph.metric.check(points, "surface")), mesh


def _values(fitted: FeatureMap, points: FloatArray, jobs: int) -> tuple[Any, FloatArray]:
    """Values of g at points, CSC of shape (n, m): features without the weights; and the window, (n,).

    Entries below 1e-7 of the largest of their column are dropped, a hundredth of the resolution of 16 bits. By the
    Cauchy-Schwarz inequality this changes K by less than 2e-7 sqrt(m) of its largest value.
    """
    bare = dataclasses.replace(fitted, weights=np.ones_like(fitted.weights))
    size = max(1, 2**24 // len(fitted.anchors))  # 128 MB if they are dense
    window, peaks = np.ones(len(points)), np.zeros(len(fitted.anchors))
    parts = []
    for start in range(0, len(points), size):
        stop = start + size
        rows, window[start:stop] = bare.rows(points[start:stop], jobs)
        part = sparse.csr_array(rows)
        np.maximum.at(peaks, part.indices, part.data)  # never above the final peaks: nothing is dropped too early
        parts.append(_above(part, 1e-7 * peaks))
    return fitted.scale * _above(sparse.vstack(parts, format="csr"), 1e-7 * peaks).tocsc(), window


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
    exact : bool
        Whether with the exact signatures of the anchors.
    """

    n_points: int
    n_features: int
    bits: int
    exact: bool

    def smaller(self, size: int, limit: int) -> "Plan":
        """The next smaller plan after a page of ``size`` bytes; an error if nothing is left to drop.

        Fewer points make the picture coarser, fewer features change the kernel. So the order is: points down to a
        fine picture, 8 bits, exact signatures, points down to a rough picture, features.
        """
        ratio = 0.95 * limit / size  # a page that is thinned by a ratio shrinks a little less
        fine, rough = 4000, 500
        if self.n_points > fine:
            return dataclasses.replace(self, n_points=max(fine, int(self.n_points * ratio)))
        if self.bits > 8 and self.n_features:
            return dataclasses.replace(self, bits=8)
        if self.exact:
            return dataclasses.replace(self, exact=False)
        if self.n_points > rough:
            return dataclasses.replace(self, n_points=max(rough, int(self.n_points * ratio)))
        if self.n_features > 1:
            return dataclasses.replace(self, n_features=max(1, int(self.n_features * ratio)))
        return reject("max_bytes", f"at least {size} here", limit)


def contents_of(fields: Fields, plan: Plan) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Round, thin and order the fields according to a plan: the arrays of the page, and facts about them."""
    n, m = plan.n_points, plan.n_features
    centre, axes, variance = view_of(fields.points)
    shown = (fields.points[:n] - centre) @ axes
    order = np.asarray(cKDTree(shown, leafsize=8).indices, dtype=np.int64)  # close in space, close in the file
    shown = shown[order]
    normals, radii, spacing = normals_and_radii(shown)
    if fields.mesh is not None:  # the browser computes normals of the triangles
        normals, radii = np.zeros((0, 3)), np.zeros(0)
    arrays: dict[str, NDArray[Any]] = {
        "positions": shown.astype(np.float32),
        "ids": fields.ids[:n][order].astype(np.uint32),
        "faces": _faces(fields, order).astype(np.uint32),
        "normals": np.rint(127 * normals).astype(np.int8),
        "radii": radii.astype(np.float32),
        "anchors": ((fields.places[:m] - centre) @ axes).astype(np.float32),
        "anchorIds": fields.anchors[:m].astype(np.uint32),
        "weights": fields.weights[:m],
        "nearest": _nearest(fields, order, m).astype(np.uint32),
        **_column_arrays("field", *quantised(fields.values[:n][order][:, :m], plan.bits), plan.bits, signed=False),
        **{f"own{k}": _exact_floats(field.values[:n][order]) for k, field in enumerate(fields.own)},
    }
    if plan.exact and fields.difference is not None:
        some = fields.difference[:n][order]
        arrays |= _column_arrays("difference", *quantised(some, plan.bits, signed=True), plan.bits, signed=True)
    facts: dict[str, Any] = {"share": _share(fields.weights, m), "spacing": spacing, "projected": len(centre) > 3}
    facts["origin"] = [0.0] * 3 if len(centre) > 3 else [*centre.tolist(), 0.0, 0.0][:3]
    facts["variance"] = variance
    return arrays, facts


def packed(arrays: dict[str, NDArray[Any]]) -> tuple[str, list[dict[str, Any]]]:
    """All arrays as one string, and the table of their offsets."""
    blocks: list[bytes] = []
    table: list[dict[str, Any]] = []
    offset = 0
    for name, array in arrays.items():
        block = array.astype(array.dtype.newbyteorder("<")).tobytes()
        table.append({"name": name, "type": array.dtype.name, "offset": offset, "length": array.size})
        blocks += [block, bytes(-len(block) % 8)]  # typed arrays in JavaScript are aligned to their width
        offset += len(block) + -len(block) % 8
    return b64encode(zlib.compress(b"".join(blocks), 9)).decode("ascii"), table


def _exact_floats(values: FloatArray) -> NDArray[Any]:
    """Values in single precision if that changes none of them."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    return single if np.array_equal(single, values, equal_nan=True) else values


def _share(weights: FloatArray, m: int) -> float:
    """Factor of a sum over the first anchors that replaces the volume of the others."""
    kept = float(weights[:m].sum())
    return float(weights.sum()) / kept if kept > 0 and m < len(weights) else 1.0


def _faces(fields: Fields, order: IntArray) -> IntArray:
    """Triangles between the points of the page, shape (f, 3); none for a cloud."""
    if fields.mesh is None:
        return np.zeros((0, 3), dtype=np.int64)
    kept = fields.ids[: len(order)][order]
    if len(kept) < fields.mesh.n_vertices:
        return oriented(coarse_faces(fields.mesh, kept))
    place = np.zeros(len(kept), dtype=np.int64)
    place[kept] = np.arange(len(kept))
    faces = oriented(place[fields.mesh.faces])
    return np.asarray(faces[np.argsort(faces.min(axis=1), kind="stable")])  # compresses to half the size


def coarse_faces(mesh: TriangleMesh, kept: IntArray) -> IntArray:
    """Triangles between some vertices, numbered as given: each vertex moves to the nearest along the edges."""
    options = {"min_only": True, "return_predecessors": True}
    found = csgraph.dijkstra(edge_lengths(mesh), indices=kept, **options)[2]
    place = np.zeros(mesh.n_vertices, dtype=np.int64)
    place[kept] = np.arange(len(kept))
    nearest, apart = place[np.maximum(found, 0)], found < 0  # no path leads to a kept vertex
    nearest[apart] = cKDTree(mesh.vertices[kept]).query(mesh.vertices[apart])[1]
    faces = nearest[mesh.faces]
    faces = faces[~has_repeats(faces)]
    return np.asarray(faces[~is_doubled(faces)])


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
    labels = csgraph.connected_components(graph, directed=False)[1]
    turned = labels[:count] > labels[count:]  # labels count from the first face, whose own copy comes first
    return np.where(turned[:, None], faces[:, [1, 0, 2]], faces)


def _nearest(fields: Fields, order: IntArray, m: int) -> IntArray:
    """The nearest of the first ``m`` anchors for each point of the page."""
    if m == 0:  # no model
        return np.zeros(len(order), dtype=np.int64)
    if fields.mesh is not None:  # along the surface: the one with the largest signature
        return np.asarray(fields.values[: len(order)].tocsr()[order][:, :m].argmax(axis=1)).ravel()
    return np.asarray(cKDTree(fields.places[:m]).query(fields.points[: len(order)][order])[1])


def kernel_error(fields: Fields, plan: Plan) -> tuple[float, int]:
    """Largest error of the kernel of a page, relative to the largest value of that of the model at its points.

    Also returns the number of points whose whole kernel was compared: all, if that takes about a second, or some.
    """
    n, m = plan.n_points, plan.n_features
    if m == 0:  # no model
        return 0.0, n
    whole = fields.values[:n].tocsr()
    numbers, scales = quantised(whole[:, :m], plan.bits)
    count = min(n, max(64, 10**9 // max(1, whole.nnz)))
    probes = np.sort(generator(0, "explorer.error").choice(n, count, replace=False))
    heavier = _share(fields.weights, m) * fields.weights[:m] * scales**2
    page, worst = numbers.tocsr().astype(np.float64), 0.0
    for part in np.array_split(probes, count * n // 2**23 + 1):  # 64 MB of pairs
        error = page @ (page[part].toarray() * heavier).T - whole @ (whole[part].toarray() * fields.weights).T
        worst = max(worst, float(np.abs(error).max()))
    largest = float(np.max(whole.power(2) @ fields.weights))  # of a kernel, on its diagonal
    return worst / (largest or 1.0), count
