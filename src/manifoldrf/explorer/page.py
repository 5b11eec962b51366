"""Write the explorer: one HTML page that contains a model, fields of the user, or both.

``fields_of`` evaluates a model; ``fields_on`` is for a space without a model. A :class:`Plan` says how far they are
thinned and rounded for a page, and ``contents_of`` makes the arrays of the page.
"""

import dataclasses
import functools
import html
import json
import re
import zlib
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from os import PathLike
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph
from scipy.spatial import cKDTree
from sklearn.utils.validation import check_is_fitted

from manifoldrf._colours import DIVERGING, GREY, SEQUENTIAL
from manifoldrf._files import as_path, atomic_path, escaped, output_file, visible
from manifoldrf._random import generator
from manifoldrf._validation import FloatArray, IntArray, as_floats, check_integer, check_jobs, check_points, reject
from manifoldrf.features.feature_map import FeatureMap, Teaching, signature_table, warn_of_far
from manifoldrf.features.manifold_features import ManifoldRandomFeatures, shortened
from manifoldrf.geometry.graphs import Graph, translated
from manifoldrf.geometry.meshes import TriangleMesh, has_repeats, is_doubled
from manifoldrf.geometry.neighbors import edge_lengths, thin
from manifoldrf.kernels.abstract_kernel import ScaledKernel

_SCRIPTS = ("matrix", "data", "colours", "camera", "scene", "picking", "state", "interface", "pointer", "main")
NO_DIFFERENCE = 1e-5  # differences below this share of the largest of their column come from truncated signatures
WORST = 0.2  # largest accepted error of a kernel, relative to its maximum; beyond it, colours are misleading


def quantised(matrix: Any, bits: int, *, signed: bool = False) -> tuple[Any, FloatArray]:
    """Integers (n, m), CSC, and the scale of each column; their product is within half a scale of the matrix.

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

    Bytes of equal significance are stored together, because high bytes repeat and compress well. Signed numbers are
    zigzag-coded: 0, -1, 1, -2, 2 become 0, 1, 2, 3, 4.
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


def view_of(points: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Centre (d,) and axes (d, 3) of the picture, and the share of the variance that it shows.

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

    Signs of normals are arbitrary. If the cloud is not a surface, normals are zero and its points are drawn as
    touching balls. A disc reaches the eighth neighbour, so that random points of a surface leave no gaps.
    """
    n = len(points)
    if n < 2:
        return np.zeros((n, 3)), np.ones(n), 1.0
    gaps = cKDTree(points).query(points, k=range(2, min(8, n - 1) + 2))[0]
    near = gaps[:, min(4, n - 1) - 1]
    spacing = float(np.median(near)) or float(np.ptp(points, axis=0).max()) / n or 1.0
    normals = np.zeros((n, 3))
    if n > 13:
        around = points[cKDTree(points).query(points, k=13)[1]]  # (n, 13, 3)
        around = around - around.mean(axis=1, keepdims=True)
        spreads, axes = np.linalg.eigh(np.einsum("nki,nkj->nij", around, around))
        across, along, most = np.median(spreads, axis=0)
        # Filled space has a ratio of 0.5, random points of a torus 0.05. A curve has no unique normal.
        normals = axes[:, :, 0] * float(across <= 0.2 * along and along > 1e-3 * most)
    radii = gaps[:, -1] if normals.any() else 0.6 * near
    return normals, np.clip(radii, spacing / 4, 4 * spacing), spacing  # keeps duplicate and isolated points visible


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
    """Check fields of the user, given for n points; ``what`` names these in errors."""
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
    space = translated(space, "model")
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
    positions = fitted.kernel.graph.positions
    points, mesh = _points_of(fitted, surface)
    what = "node of the model; for other points, give them as `surface`" if mesh is None else "vertex of the mesh"
    given = own_fields(fields, len(points), what if surface is None else "vertex or point of `surface`")
    chosen = thin(points, min(n_points, len(points)))
    own = [dataclasses.replace(field, values=field.values[chosen]) for field in given]
    order = thin(positions[fitted.anchors], len(fitted.anchors))
    values, window = _values(fitted, points[chosen], jobs)
    if surface is not None:  # no warning about distance at the model's own nodes
        warn_of_far(window)
    values, difference = values[:, order], None
    if points.shape == positions.shape and np.array_equal(points, positions):
        kernel = fitted.kernel
        exact = signature_table(kernel, kernel.series, chosen, fitted.anchors, Teaching(n_jobs=jobs)).tocsr()
        root = np.ones(len(chosen)) if kernel.per_volume else np.sqrt(kernel.measure[chosen])
        scale = sparse.diags_array(root * fitted.unit_scale * fitted.output_scale)  # to the unit of g
        apart = sparse.csr_array(values - sparse.csc_array(scale @ exact)[:, order])
        difference = _above(apart, NO_DIFFERENCE * peaks_of(values)).tocsc()
    anchors, weights = fitted.anchors[order], features.weights_[order]
    drawn = points[chosen], chosen, len(points), mesh
    return Fields(*drawn, anchors, positions[anchors], weights, values, difference, own)


def _points_of(fitted: FeatureMap, surface: Any) -> tuple[FloatArray, TriangleMesh | None]:
    """The points to draw, and the mesh to which they belong, if any."""
    graph = fitted.kernel.graph
    if surface is None:
        mesh = graph.whole_mesh
        return (graph.positions, None) if mesh is None else (mesh.vertices, mesh)
    surface = translated(surface, "surface")
    mesh = surface if isinstance(surface, TriangleMesh) else None
    points = surface if mesh is None else mesh.vertices
    points = check_points(points, "surface", n_columns=graph.positions.shape[1])
    return (points if graph.metric is None else graph.metric.check(points, "surface")), mesh


def _values(fitted: FeatureMap, points: FloatArray, jobs: int) -> tuple[Any, FloatArray]:
    """Values of g at points, that is, features without weights, CSC of shape (n, m); and the window, (n,).

    Entries below 1e-7 of their column's maximum, a hundredth of the resolution of 16 bits, are dropped. By the
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
    return fitted.unit_scale * _above(sparse.vstack(parts, format="csr"), 1e-7 * peaks).tocsc(), window


def _above(rows: Any, least: FloatArray) -> Any:
    """Drop the entries of a CSR array whose absolute value is below the threshold of their column."""
    rows.data[np.abs(rows.data) < least[rows.indices]] = 0.0
    rows.eliminate_zeros()
    return rows


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
        Whether to include the exact signatures of the anchors.
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
        ratio = 0.95 * limit / size  # thinning by a ratio shrinks the page a little less
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
    order = np.asarray(cKDTree(shown, leafsize=8).indices, dtype=np.int64)  # neighbours are close in the file
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
    """Factor by which a sum over the first m anchors makes up for the volume of the others."""
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
    """Triangles between kept vertices, numbered as given: each vertex moves to the nearest one along the edges."""
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
    """Faces with consistent orientation between neighbours; otherwise the lighting would show seams.

    Non-orientable surfaces keep a seam, and so do edges with more than two faces.

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
    # Each face has two copies, original and reversed, which are joined to the consistent copies of its neighbours.
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
    """Largest error of the kernel of a page, relative to the largest value of the model's kernel at its points.

    Also returns the number of rows of the kernel that were compared: all, if that takes about a second.
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


@dataclass(frozen=True)
class ExplorerPage:
    """A page made by :func:`explore`, and facts about it. A notebook shows the page itself.

    Attributes
    ----------
    path : Path or None
        The file; None if none was written.
    n_bytes : int
        Size of the page.
    n_points, n_features : int
        Number of points and features in the page.
    n_exact : int
        Number of features with an exact signature in the page.
    bits : int
        Bits of each value.
    error : float
        Largest error of the kernel of the page relative to the model's largest value, from rounding and dropped
        features; 0 without a model.
    left_out : tuple of str
        One sentence for each reduction; the page shows the same.
    html : str
        The page. It stays in memory with the object, and a notebook that shows it stores it, too.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere, explore
    >>> features = ManifoldRandomFeatures(HeatKernel(0.2), n_features=64, random_state=0).fit(Sphere())
    >>> with TemporaryDirectory() as folder:
    ...     page = explore(features, Path(folder) / "sphere.html", n_points=300)
    >>> page.n_points, page.n_features, page.bits
    (300, 64, 16)
    >>> page.left_out[0]
    '300 of 500 points are drawn.'
    """

    path: Path | None
    n_bytes: int
    n_points: int
    n_features: int
    n_exact: int
    bits: int
    error: float
    left_out: tuple[str, ...] = ()
    html: str = dataclasses.field(default="", repr=False, compare=False)

    def __str__(self) -> str:
        features = f", {_count(self.n_features, 'feature')}" if self.n_features else ""
        error = f", kernel within {self.error:.1g}" if self.n_features else ""
        size = f"{_count(self.n_points, 'point')}{features}, {self.n_bytes / 1e6:.2f} MB{error}"
        facts = f"{self.path or 'page'}: {size}."
        return " ".join([facts, *self.left_out])

    def _repr_html_(self) -> str:
        # A separate frame isolates styles and scripts of page and notebook. It may only run scripts and save files.
        style = "width:100%;height:620px;border:1px solid #8888"  # fits picture and controls, shows the next cell
        permissions = 'sandbox="allow-scripts allow-downloads"'
        return f'<iframe {permissions} style="{style}" srcdoc="{html.escape(self.html)}"></iframe>'


def explore(
    model: Any,
    path: str | PathLike[str] | None = None,
    *,
    fields: Any = None,
    surface: Any = None,
    title: str = "manifoldrf",
    n_points: int | str = "auto",
    max_bytes: int = 8_000_000,
) -> ExplorerPage:
    """Make an interactive HTML page of a fitted model, or of fields on a mesh; it needs no server or network.

    A click on a point x shows K(x, .) on the whole space, computed in the browser from the features in the file.
    For the anchor next to x the page also shows the feature g, its exact signature and their difference. Features
    are rounded to 16 bits. A model too large for ``max_bytes`` is reduced: fewer points (not below 4000), then 8
    bits, then no exact signatures, then still fewer points, then fewer features; the page lists the reductions. An
    error is raised if the kernel of the page would be off by more than 0.2 of its largest value.

    Parameters
    ----------
    model : ManifoldRandomFeatures, TriangleMesh, Graph or array-like of shape (n, d)
        A fitted model with symmetric features; kernels with two sides are not supported. A mesh (also of another
        library), a graph with points, or points show ``fields`` alone.
    path : str or path, optional
        The file to write. Without it, the page is only in the returned object, which a notebook shows.
    fields : dict of str to array-like of shape (n,), optional
        Your own fields by name, or as columns of a data frame: one number for each vertex or point of ``surface``
        if it is given, otherwise for each vertex of the mesh, node of the model or graph, or point that the page
        shows. NaN means no value and is drawn in grey. Each field is a layer of the page with its own colour range;
        fields are not rounded.
    surface : TriangleMesh, mesh of another library, or array-like of shape (n, d), optional
        Where to draw the fields; by default on the mesh that the model was fitted to, or at its nodes. Exact
        signatures are only available at the nodes. The nodes of a heat graph are not the points of the fit: pass
        those points here to show ``fields`` at them.
    title : str, default="manifoldrf"
        Heading of the page.
    n_points : int or "auto", default="auto"
        Maximum number of points. If there are more, farthest points are selected. "auto" is 20,000.
    max_bytes : int, default=8_000_000
        Maximum size of the file.

    Returns
    -------
    ExplorerPage
        Size and error of the page, and the page itself.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from manifoldrf import HeatKernel, ManifoldRandomFeatures, Torus, explore
    >>> features = ManifoldRandomFeatures(HeatKernel(0.2), n_features=128, random_state=0).fit(Torus())
    >>> with TemporaryDirectory() as folder:
    ...     page = explore(features, Path(folder) / "torus.html", title="A torus")
    >>> page.n_features, page.n_bytes < 8_000_000, page.error < 1e-3
    (128, True, True)
    >>> points = Torus().sample(500, seed=0)
    >>> explore(points, fields={"height": points[:, 2]}).n_points
    500
    """
    target = None if path is None else as_path(path)
    if target is not None:
        output_file(target)  # before any work
    if not isinstance(title, str):
        reject("title", "a string", repr(title), TypeError)
    limit = check_integer(max_bytes, "max_bytes", 1)
    # With 20,000 points clicks are still fast, and pages of surfaces have about 5 MB.
    most = 20_000 if n_points == "auto" else check_integer(n_points, "n_points", 2)
    shown = _shown(model, surface, most, fields)
    n, m = shown.values.shape
    plan = Plan(n, m, 16, shown.difference is not None)
    while True:  # until the page is small enough
        arrays, facts = contents_of(shown, plan)
        make = functools.partial(_html, model, shown, plan, packed(arrays), facts, title)
        size = len(make(0.00012345, 10**6).encode("utf-8"))  # placeholders as long as any values
        if size <= limit:
            break
        plan = plan.smaller(size, limit)
    error, n_probes = kernel_error(shown, plan)
    if error > WORST:
        reason = f"in a page so small its kernel has an error of {error:.2g} of its largest value"
        reject("max_bytes", f"larger for this model: {reason}", limit)
    page = make(error, n_probes)
    text = page.encode("utf-8")
    if target is not None:
        with atomic_path(target) as temporary:
            temporary.write_bytes(text)
    sizes = (plan.n_points, plan.n_features, plan.n_features if plan.exact else 0, plan.bits)
    return ExplorerPage(target, len(text), *sizes, error, _left_out(shown, plan), page)


def _shown(model: Any, surface: Any, most: int, fields: Any) -> Fields:
    """The fields of a page: those of a model and of the user, or of the user alone."""
    if isinstance(model, ManifoldRandomFeatures):
        check_is_fitted(model, "map_")
        if model.asymmetric_:
            rule = "a model with nonnegative features, which are the same on both sides"
            reject("model", rule, f"{shortened(model.kernel_)} with two sides")
        return fields_of(model, surface, most, fields)
    if model is None or isinstance(model, str) or hasattr(model, "get_params"):
        rule = "a fitted ManifoldRandomFeatures, a mesh, a graph or points"
        reject("model", rule, type(model).__name__, TypeError)
    if surface is not None:
        reject("surface", "left out for a space without a model", type(surface).__name__)
    return fields_on(model, most, fields)


def _left_out(fields: Fields, plan: Plan) -> tuple[str, ...]:
    """One sentence for each reduction of the model."""
    m, has_mesh = len(fields.weights), fields.mesh is not None
    what, joined = ("vertices", ", joined by coarser triangles") if has_mesh else ("points", "")
    fewer = f"{plan.n_features} of {m} features are kept, with larger weights that replace the others."
    sentences = (
        (plan.n_points < fields.total, f"{plan.n_points} of {fields.total} {what} are drawn{joined}."),
        (plan.bits < 16, "Values are rounded to 8 bits."),
        (fields.difference is not None and not plan.exact, "Exact signatures are left out."),
        (plan.n_features < m, fewer),
    )
    return tuple(sentence for holds, sentence in sentences if holds)


def _html(
    model: Any,
    fields: Fields,
    plan: Plan,
    data: Any,
    facts: dict[str, Any],
    title: str,
    error: float,
    n_probes: int,
) -> str:
    """The page as a string; the same model gives the same bytes."""
    has_model = plan.n_features > 0
    rows, error_text = _facts(model, fields), ""
    if has_model:
        fewer = " and fewer features" if facts["share"] != 1 else ""
        size = f"{error:.2g} of the largest value of the model"
        pairs = f"{size}, the largest error of {n_probes * plan.n_points:,} random pairs of points"
        if n_probes == plan.n_points:
            pairs = f"at most {size} between any two points of this page"
        error_text = f"Error of K from rounding{fewer}: {pairs}."
        rows += [
            ("features in this page", f"{plan.n_features}, rounded to {plan.bits} bits"),
            ("exact signatures", "in this page" if plan.exact else "not in this page"),
            ("error of this page", error_text),
        ]
    rows.append(("points drawn", str(plan.n_points)))
    notices = _left_out(fields, plan)
    if facts["projected"]:
        axes = f"Drawn along the first three principal axes: {facts['variance']:.0%} of the variance."
        notices = (axes, *notices)
    # 65,535 and 255 integers span 4.8 and 2.4 decades, signed ones less.
    decades = dict.fromkeys(("kernel", "feature", "exact", "difference"), 4 if plan.bits == 16 else 2)
    meta = {
        "arrays": data[1],
        "total": fields.total,
        "modelFeatures": len(fields.weights),
        "nExact": plan.n_features if plan.exact else 0,
        "noDifference": NO_DIFFERENCE,
        "dimensions": min(fields.points.shape[1], 3),
        "unit": _unit(model) if has_model else "",
        "decades": decades,
        "fields": [{"name": visible(own.name), "low": own.low, "high": own.high} for own in fields.own],
        "sequential": SEQUENTIAL.round(4).tolist(),
        "diverging": DIVERGING.round(4).tolist(),
        "grey": GREY.tolist(),
    }
    assets = files("manifoldrf.explorer") / "assets"
    scripts = [(assets / f"{name}.js").read_text("utf-8") for name in _SCRIPTS]
    return Template((assets / "page.html").read_text("utf-8")).substitute(
        title=escaped(title),
        style=(assets / "page.css").read_text("utf-8"),
        script="(() => {\n'use strict';\n" + "\n".join(scripts) + "})();",
        kernel=escaped(rows[0][1]),
        notice=escaped(" ".join(notices)),
        error=escaped(error_text),
        facts="".join(f"<dt>{escaped(name)}</dt><dd>{escaped(text)}</dd>" for name, text in rows),
        fields="".join(_label(k, own.name, own.values[: plan.n_points]) for k, own in enumerate(fields.own)),
        meta=json.dumps(meta | facts, separators=(",", ":")).replace("<", "\\u003c"),
        data=data[0],
    )


def _label(k: int, name: str, values: FloatArray) -> str:
    """The control that shows a field of the user."""
    missing = int(np.isnan(values).sum())
    about = f" <small>no value at {missing} of {len(values)} points</small>" if missing else ""
    control = f'<input type="radio" name="layer" value="own{k}">'
    return f"<label>{control}<span><b>{escaped(name)}</b>{about}</span></label>"


def _unit(model: ManifoldRandomFeatures) -> str:
    """The unit of the kernel, which a factor removes."""
    if not model.map_.kernel.per_volume and model.scale_ == 1:
        return "of the graph"
    return "" if model.scale_ != 1 or isinstance(model.kernel_, ScaledKernel) else "per unit of volume"


def _facts(model: Any, fields: Fields) -> list[tuple[str, str]]:
    """The rows of the model's summary, with 3 significant digits of long numbers, or a row about the space."""
    if isinstance(model, ManifoldRandomFeatures):
        short = functools.partial(re.sub, r"\d+\.\d{4,}(e-?\d+)?", lambda number: f"{float(number[0]):.3g}")
        _ = model.error_  # computed on first access
        return [(name, short(text)) for name, text in model._facts()]
    if fields.mesh is not None:
        return [("mesh", f"{fields.mesh.n_vertices} vertices, {_count(fields.mesh.n_faces, 'face')}")]
    return [("points", f"{_count(fields.total, 'point')} in {_count(fields.points.shape[1], 'dimension')}")]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + "s" * (number != 1)
