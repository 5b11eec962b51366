"""Triangle meshes: areas, normals, samples, nearest points of the surface, and a report of their defects.

Lengths are scaled before they are squared, so results have the same digits in any unit.
"""

from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.spatial import cKDTree

from manifoldrf._arrays import read_mesh_arrays
from manifoldrf._codec import stored
from manifoldrf._colours import field_colours
from manifoldrf._files import as_path, html_table, output_file
from manifoldrf._random import SeedLike, generator
from manifoldrf._runtime import warn_user
from manifoldrf._validation import FloatArray, IntArray, as_floats, check_faces, check_integer, check_points, reject
from manifoldrf.geometry.csr import make_csr, read_only_view
from manifoldrf.geometry.mesh_files import FIELD_FORMATS, read_mesh, reject_mesh, write_field, write_mesh, write_ply
from manifoldrf.geometry.objects import recognise

# Twice the area over the squared longest side: 0.87 for equal sides, about 1e-16 for rounding alone.
_FLAT = 1e-12

# Pairs of query and face examined at once; about 60 numbers each, so some 60 MB.
_PAIRS = 2**17
# Faces of meshes up to this size stay prepared for searches (190 bytes each); on larger ones, searches take longer.
_MOST_KEPT = 2**17
# Queries farther away, relative to the mesh, are moved closer: rounding would exceed the differences of distances.
_FAR = 2.0**26


def _power_of_two(size: float) -> float:
    """Power of two just above ``size``. Dividing by it is exact and keeps later squares finite."""
    return float(np.ldexp(1.0, np.frexp(size)[1])) if size > 0.0 else 1.0


def scaled_normals(corners: FloatArray) -> tuple[FloatArray, float]:
    """Cross products of two sides in units of ``scale``, (m, 3); their length is twice the area."""
    first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    scale = _power_of_two(max(float(np.abs(first).max()), float(np.abs(second).max())))
    return np.cross(first / scale, second / scale), scale


def unit_rows(rows: FloatArray) -> FloatArray:
    """Rows divided by their length; zero rows stay zero."""
    # Dividing by the largest entry first keeps the square of a tiny row from vanishing.
    rows = rows / _or_one(np.abs(rows).max(axis=1, keepdims=True))
    return rows / _or_one(row_lengths(rows))[:, None]


def row_lengths(rows: FloatArray) -> FloatArray:
    """Euclidean length of each row."""
    return np.asarray(np.linalg.norm(rows, axis=-1))


def _or_one(values: FloatArray) -> FloatArray:
    """Values with zeros replaced by one, for use as divisors."""
    return np.where(values > 0.0, values, 1.0)


def has_repeats(faces: IntArray) -> NDArray[np.bool_]:
    """Whether a face names a vertex twice: (m,)."""
    first, second, third = faces.T
    return np.asarray((first == second) | (second == third) | (third == first))


def is_doubled(faces: IntArray) -> NDArray[np.bool_]:
    """Whether an earlier face has the same three vertices, in any order: (m,)."""
    corners = np.sort(faces, axis=1)
    order = np.lexsort(corners.T)  # stable, so the first of equal faces comes first
    doubled = np.zeros(len(faces), dtype=bool)
    doubled[order[1:]] = (np.diff(corners[order], axis=0) == 0).all(axis=1)
    return doubled


def component_labels(pairs: IntArray, n_items: int) -> IntArray:
    """Label each item by its connected component, from zero; pairs (k, 2) join items."""
    graph = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(n_items, n_items))
    return np.asarray(connected_components(graph, directed=False)[1], dtype=np.int64)


def count_boundary_loops(faces: IntArray) -> int:
    """Count closed chains of edges that have one face only; corner 3 f + c is corner c of face f.

    Corners joined across shared edges form the fans around a vertex. Chains run from fan to fan, not from vertex to
    vertex: otherwise two triangles that touch in a corner would have one loop that crosses itself.
    """
    # A face with a repeated vertex is a line: its neighbours are joined as if it were missing.
    vertex = faces[~has_repeats(faces)].ravel()
    corner = np.arange(len(vertex))
    following = corner - corner % 3 + (corner + 1) % 3
    swap = vertex[corner] > vertex[following]
    low, high = np.where(swap, following, corner), np.where(swap, corner, following)
    order = np.lexsort((vertex[high], vertex[low]))
    low, high = low[order], high[order]  # (s,) corners at the lower and higher vertex of each side, by edge
    same = (np.diff(vertex[low]) == 0) & (np.diff(vertex[high]) == 0)  # same edge as the side before
    again = 1 + np.flatnonzero(same)
    fan = component_labels(
        np.concatenate([np.column_stack([ends[again - 1], ends[again]]) for ends in (low, high)]), len(low)
    )  # (s,): there are as many corners as sides
    alone = np.flatnonzero(~(np.append(False, same) | np.append(same, False)))[: len(low)]
    chain = component_labels(np.column_stack([fan[low[alone]], fan[high[alone]]]), len(fan))
    return len(np.unique(chain[fan[low[alone]]]))


class Faces:
    """The faces of a mesh, prepared for searches; lengths are in units of ``scale``, which keeps squares finite."""

    def __init__(self, vertices: FloatArray, faces: IntArray, scale: float) -> None:
        self.scale, vertices = scale, vertices / scale
        self.corners = vertices[faces]  # (m, 3, 3)
        self.lowest, self.highest = self.corners.min(axis=1), self.corners.max(axis=1)  # (m, 3) each
        self.centroids = self.corners.mean(axis=1)  # (m, 3)
        self.radii = row_lengths(self.corners - self.centroids[:, None]).max(axis=1)  # (m,) to the farthest corner
        used, self.first = np.unique(faces, return_index=True)
        self.tree = cKDTree(vertices[used])
        exponents = np.frexp(self.radii)[1]  # classes by the power of two of the radius, large ones first
        members = [np.flatnonzero(exponents == exponent) for exponent in np.unique(exponents)[::-1]]
        self.classes = [(some, cKDTree(self.centroids[some]), self.radii[some].max()) for some in members]


class SurfaceSearch:
    """The nearest points of the surface so far, for all queries."""

    def __init__(self, faces: Faces, queries: FloatArray) -> None:
        self.faces, self.queries = faces, queries / faces.scale  # (q, 3)
        # Start with the nearest corner of any face.
        self.distance, nearest = faces.tree.query(self.queries)  # (q,)
        self.face, place = np.divmod(faces.first[nearest], 3)  # (q,)
        self.barycentric = np.eye(3)[place]  # (q, 3)
        for members, tree, largest in faces.classes:
            self._try_faces(members, tree, largest)

    def _try_faces(self, members: IntArray, tree: Any, largest: float) -> None:
        """Improve all queries by the faces of one radius class."""
        waiting, seen, n_nearest = np.arange(len(self.queries)), 0, min(8, len(members))
        while len(waiting):
            unfinished = []
            n_chunks = min(len(waiting), -(-len(waiting) * n_nearest // _PAIRS))
            for rows in np.array_split(waiting, n_chunks):
                gaps, near = tree.query(self.queries[rows], n_nearest)
                gaps, near = gaps.reshape(len(rows), -1), members[near.reshape(len(rows), -1)]  # (r, k)
                self._try_pairs(rows, gaps[:, seen:], near[:, seen:])
                unfinished.append(rows[gaps[:, -1] <= self.distance[rows] + largest])
            waiting = np.concatenate(unfinished) if n_nearest < len(members) else waiting[:0]
            seen, n_nearest = n_nearest, min(4 * n_nearest, len(members))

    def _try_pairs(self, rows: IntArray, gaps: FloatArray, faces: IntArray) -> None:
        """Improve queries (r,) by faces (r, k) with centroids at the distances ``gaps`` (r, k)."""
        known = self.faces
        row, column = np.nonzero(gaps <= self.distance[rows, None] + known.radii[faces])  # (p,)
        face, query = faces[row, column], rows[row]
        # The box is the tighter bound for a long face, and much cheaper than the triangle.
        outside = np.maximum(known.lowest[face] - self.queries[query], self.queries[query] - known.highest[face])
        within = row_lengths(np.maximum(outside, 0.0)) <= self.distance[query]
        row, face, query = row[within], face[within], query[within]
        if not len(row):
            return
        barycentric, distance = _closest_on_triangles(self.queries[query], known.corners[face])
        order = np.lexsort((distance, row))  # the first pair of each row is its best
        best = order[np.append(True, np.diff(row[order]) != 0)]
        best = best[distance[best] < self.distance[query[best]]]
        self.distance[query[best]] = distance[best]
        self.face[query[best]] = face[best]
        self.barycentric[query[best]] = barycentric[best]


def _closest_on_triangles(points: FloatArray, corners: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Barycentric coordinates (p, 3) and distance (p,) of the point of each triangle nearest to its point.

    Tries the foot of the perpendicular and the three sides; all four are points of the triangle, so thin or flat
    triangles lose no accuracy.
    """
    first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    normal, offset = np.cross(first, second), points - corners[:, 0]
    # Use the normal. The Gram determinant would lose twice as many digits on thin triangles.
    size = _or_one(np.einsum("pd,pd->p", normal, normal))
    u = np.einsum("pd,pd->p", np.cross(offset, second), normal) / size
    v = np.einsum("pd,pd->p", np.cross(first, offset), normal) / size
    inside = np.maximum(np.column_stack([1.0 - u - v, u, v]), 0.0)  # (p, 3), sum >= 1: pushed into the triangle
    best, shortest = inside / inside.sum(axis=1)[:, None], np.full(len(points), np.inf)
    trials = [best]
    for start, end in ((0, 1), (1, 2), (2, 0)):
        side = corners[:, end] - corners[:, start]
        along = np.einsum("pd,pd->p", points - corners[:, start], side)
        part = np.clip(along / _or_one(np.einsum("pd,pd->p", side, side)), 0.0, 1.0)
        trials.append(np.zeros((len(points), 3)))
        trials[-1][:, start], trials[-1][:, end] = 1.0 - part, part
    for trial in trials:
        distance = row_lengths(points - np.einsum("pc,pcd->pd", trial, corners))
        closer = distance < shortest
        best = np.where(closer[:, None], trial, best)
        shortest = np.where(closer, distance, shortest)
    return best, shortest


@dataclass(frozen=True, eq=False)
class MeshSample:
    """Points on a mesh, each with its face and its position inside the face.

    Parameters
    ----------
    points : ndarray of shape (n, 3)
        Positions.
    faces : ndarray of shape (n,)
        Index of the face that holds each point.
    barycentric : ndarray of shape (n, 3)
        Nonnegative weights of the three corners of that face; each row sums to one.

    Examples
    --------
    >>> mesh = TriangleMesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]])
    >>> sample = mesh.sample(5, seed=0)
    >>> sample.points.shape, sample.faces.tolist()
    ((5, 3), [0, 0, 0, 0, 0])
    """

    points: FloatArray
    faces: IntArray
    barycentric: FloatArray


@dataclass(frozen=True)
class MeshReport:
    """Counts of the parts and defects of a mesh; ``str`` gives one line.

    Parameters
    ----------
    n_vertices, n_faces : int
        Sizes of the mesh.
    components : int
        Connected parts, by shared vertices; vertices in no face do not count.
    boundary_loops : int
        Closed chains of edges with one face only. Where faces meet in a vertex but share no edge there, the
        surface counts as cut at that vertex.
    non_manifold_edges : int
        Edges with more than two faces.
    degenerate_faces : int
        Faces with a repeated vertex or no area.
    unreferenced_vertices : int
        Vertices in no face.

    Examples
    --------
    >>> print(TriangleMesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]]).report())
    3 vertices, 1 face: 1 component, 1 boundary loop, 0 non-manifold edges, 0 degenerate faces, \
0 unreferenced vertices
    """

    n_vertices: int
    n_faces: int
    components: int
    boundary_loops: int
    non_manifold_edges: int
    degenerate_faces: int
    unreferenced_vertices: int

    def counts(self) -> dict[str, int]:
        """The counts by name."""
        names = (name.removeprefix("n_").replace("non_", "non-").replace("_", " ") for name in vars(self))
        return dict(zip(names, vars(self).values(), strict=True))

    def __str__(self) -> str:
        texts = [_count(number, name) for name, number in self.counts().items()]
        return f"{', '.join(texts[:2])}: {', '.join(texts[2:])}"


@stored
@dataclass(frozen=True, eq=False, repr=False)
class TriangleMesh:
    """A surface made of triangles; its arrays are copies that cannot be changed.

    Parameters
    ----------
    vertices : array-like of shape (n, 3)
        Finite positions, kept as float64.
    faces : array-like of shape (m, 3)
        Indices of the three corners of each triangle. Holes, several parts, zero-area faces and vertices in
        no face are all allowed; :meth:`report` counts them. Of faces with the same three vertices, such as the two
        sides of a sheet, the first is kept, with a warning.

    Examples
    --------
    >>> mesh = TriangleMesh([[0, 0, 0], [2, 0, 0], [0, 2, 0], [2, 2, 0]], [[0, 1, 2], [1, 3, 2]])
    >>> mesh, mesh.area
    (TriangleMesh(4 vertices, 2 faces), 4.0)
    """

    vertices: FloatArray
    faces: IntArray

    def __post_init__(self) -> None:
        vertices = np.array(check_points(self.vertices, "vertices", n_columns=3), order="C")
        faces = np.array(check_faces(self.faces, "faces", len(vertices)), order="C")
        doubled = is_doubled(faces)
        if doubled.any():
            again = f"{doubled.sum()} {'face is' if doubled.sum() == 1 else 'faces are'}"
            warn_user(f"{again} left out of the mesh: an earlier face has the same three vertices.")
            faces = faces[~doubled]
        for name, array in (("vertices", vertices), ("faces", faces)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __reduce__(self) -> tuple[Any, ...]:
        # Copies and pickles go through the constructor: arrays are read-only again, and cached values are dropped.
        return type(self), (self.vertices, self.faces)

    def check_nodes(self, n: int, d: int) -> None:
        """Raise unless the vertices can be the n nodes of a graph with d coordinates."""
        if (self.n_vertices, 3) != (n, d):
            reject("mesh", f"of {n} vertices with {d} coordinates", f"{self.n_vertices} with 3")

    def __repr__(self) -> str:
        return f"TriangleMesh({_count(self.n_vertices, 'vertices')}, {_count(self.n_faces, 'faces')})"

    def _repr_html_(self) -> str:
        counts = self.report().counts()
        defects = [f"{counts[name]} {name}" for name in list(counts)[4:] if counts[name]]
        rows = [(name, str(counts[name])) for name in list(counts)[:4]]
        rows.append(("extent", " x ".join(f"{length:.4g}" for length in np.ptp(self.vertices, axis=0))))
        rows += [("area", f"{self.area:.4g}"), ("defects", ", ".join(defects) or "none")]
        return html_table("TriangleMesh", rows)

    @classmethod
    def of(cls, mesh: Any) -> "TriangleMesh":
        """Make a mesh from that of another library; a TriangleMesh is returned unchanged.

        Parameters
        ----------
        mesh : object
            A mesh of trimesh, pyvista (``PolyData``), meshio or torch_geometric (``Data`` with ``pos`` and
            ``face``), or any object with ``vertices`` and ``faces``, all of them triangles. Points and lines of a
            meshio mesh are not read.

        Examples
        --------
        >>> from types import SimpleNamespace
        >>> mesh = SimpleNamespace(vertices=[[0, 0, 0], [1, 0, 0], [0, 1, 0]], faces=[[0, 1, 2]])
        >>> TriangleMesh.of(mesh)
        TriangleMesh(3 vertices, 1 face)
        """
        if isinstance(mesh, cls):
            return mesh
        found = recognise(mesh, "mesh")
        if found is None or found.faces is None:
            rule = "a TriangleMesh, or a mesh of trimesh, pyvista or meshio; TriangleMesh.load reads a file"
            reject("mesh", rule, type(mesh).__name__, TypeError)
        return cls(found.points, found.faces)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "TriangleMesh":
        r"""Read a mesh from a file; the suffix selects the format.

        Formats: ply, obj, stl, off, glb, npz (with arrays named "vertices" and "faces"), and with the extra
        ``mesh`` gii (GIFTI), vtk (grids of faces), vtu, msh (gmsh) and mesh (medit).

        All vertices are kept in their order, also vertices in no face. Polygons are cut into triangles; those that
        are concave and have more than four corners need the extra ``mesh``. Materials, texture coordinates,
        normals, colours, fields, and points and lines beside faces are not read. The parts of a glb scene are
        placed as the scene says and joined. An stl file stores no connections, so vertices at exactly the same
        position are merged, in the order of first appearance. In other formats, vertices are not merged.

        Files may have up to 4 GB. No other file is opened, and sizes that a file declares are compared with its
        size before they are used; vtu files may still unpack to a thousand times their size.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        TriangleMesh
            The mesh.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the format is unknown, or the file is damaged, cut off or without faces.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder) / "triangle.off"
        ...     _ = path.write_text("OFF 3 1 0\n0 0 0\n1 0 0\n0 1 0\n3 0 1 2\n")
        ...     TriangleMesh.load(path)
        TriangleMesh(3 vertices, 1 face)
        """
        path = as_path(path)
        found = read_mesh_arrays(path) if path.suffix.lower() == ".npz" else read_mesh(path)
        if found is None:
            reject("path", "an .npz file with arrays named 'vertices' and 'faces'", path.name)
        vertices, faces = found
        try:
            return cls(vertices, faces)
        except ValueError as error:
            reject_mesh(path, error)

    def save(
        self, path: str | PathLike[str], *, colors: ArrayLike | None = None, field: ArrayLike | None = None
    ) -> Path:
        """Write the mesh to a ply, obj, stl, off, glb, vtk, vtu or gii file; the suffix selects the format.

        ply, obj, off, vtk and vtu keep every digit; stl, glb and gii store single precision (7 digits). stl stores
        loose triangles, so the order of vertices and unreferenced vertices are lost, with a warning. The file
        appears only when it is complete.

        Parameters
        ----------
        path : str or path
            The file; an existing one is replaced.
        colors : array-like of shape (n_vertices, 3), uint8, optional
            Red, green and blue of each vertex, for ply only.
        field : array-like of shape (n_vertices,), optional
            A number at each vertex, instead of ``colors``. vtk and vtu (ParaView) and gii (Workbench) store the
            numbers; .shape.gii and .func.gii files store nothing else. In ply they become colours: the smallest
            is light, the largest dark, and NaN grey.

        Returns
        -------
        Path
            The file written.

        Examples
        --------
        >>> from tempfile import TemporaryDirectory
        >>> mesh = TriangleMesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]])
        >>> with TemporaryDirectory() as folder:
        ...     TriangleMesh.load(mesh.save(Path(folder) / "triangle.obj"))
        TriangleMesh(3 vertices, 1 face)
        """
        path = as_path(path)
        output_file(path)
        values = None
        if field is not None:
            if colors is not None:
                reject("field", "left out with colors", "both")
            values = as_floats(field, "field")
            if values.shape != (self.n_vertices,):
                rule = f"a vector of shape ({self.n_vertices},), one number per vertex"
                reject("field", rule, f"shape {values.shape}")
        if colors is None and path.suffix.lower()[1:] in FIELD_FORMATS:
            write_field(path, self.vertices, self.faces, values)
            return path
        colors = colors if values is None else field_colours(values)
        if colors is None:
            write_mesh(path, self.vertices, self.faces)
        else:
            write_ply(path, self.vertices, colors, self.faces)
        return path

    @property
    def n_vertices(self) -> int:
        """Number of vertices."""
        return len(self.vertices)

    @property
    def n_faces(self) -> int:
        """Number of faces."""
        return len(self.faces)

    @cached_property
    def edges(self) -> IntArray:
        """Sides of the faces, each once: an array of shape (k, 2) of i < j, sorted."""
        return read_only_view(self._edges_of(self.faces)[0])

    @property
    def area(self) -> float:
        """Area of the whole surface."""
        return float(self.face_areas().sum())

    @property
    def is_closed(self) -> bool:
        """Whether every edge has exactly two faces."""
        _, counts = self._proper_edges()
        return bool(counts.size > 0 and (counts == 2).all())

    def edge_lengths(self) -> FloatArray:
        """Length of each edge, shape (k,), in the order of ``edges``.

        Examples
        --------
        >>> TriangleMesh([[0, 0, 0], [3, 0, 0], [0, 4, 0]], [[0, 1, 2]]).edge_lengths().tolist()
        [3.0, 4.0, 5.0]
        """
        start, end = self.edges.T
        return np.asarray(np.linalg.norm(self.vertices[start] - self.vertices[end], axis=1))

    def face_areas(self) -> FloatArray:
        """Area of each face.

        Returns
        -------
        ndarray of shape (m,)
            Nonnegative areas.

        Examples
        --------
        >>> TriangleMesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]]).face_areas()
        array([0.5])
        """
        cross, scale = scaled_normals(self.vertices[self.faces])
        return row_lengths(cross) * (0.5 * scale * scale)

    def face_normals(self) -> FloatArray:
        """Give the unit normal of each face, right-handed around its corners; zero for a face without area.

        Returns
        -------
        ndarray of shape (m, 3)
            Unit or zero vectors.

        Examples
        --------
        >>> TriangleMesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]]).face_normals()
        array([[0., 0., 1.]])
        """
        return unit_rows(scaled_normals(self.vertices[self.faces])[0])

    def vertex_areas(self) -> FloatArray:
        """Area that belongs to each vertex: a third of every face around it.

        Returns
        -------
        ndarray of shape (n,)
            Nonnegative areas that sum to the area of the mesh; zero for a vertex in no face.

        Examples
        --------
        >>> TriangleMesh([[0, 0, 0], [3, 0, 0], [0, 2, 0]], [[0, 1, 2]]).vertex_areas()
        array([1., 1., 1.])
        """
        return self._sum_at_vertices(self.face_areas() / 3.0)

    def vertex_normals(self) -> FloatArray:
        """Give the unit normal at each vertex: the mean of the normals around it, weighted by area.

        Faces without area do not count. If there is no area around a vertex, or the faces around it cancel
        exactly, the normal is zero.

        Returns
        -------
        ndarray of shape (n, 3)
            Unit or zero vectors.

        Examples
        --------
        >>> TriangleMesh([[0, 0, 0], [1, 0, 0], [0, 1, 0], [5, 5, 5]], [[0, 1, 2]]).vertex_normals()
        array([[0., 0., 1.],
               [0., 0., 1.],
               [0., 0., 1.],
               [0., 0., 0.]])
        """
        cross, _ = scaled_normals(self.vertices[self.faces])  # length: twice the area
        return unit_rows(np.column_stack([self._sum_at_vertices(column) for column in cross.T]))

    def sample(self, n: int, *, seed: SeedLike = None) -> MeshSample:
        """Draw points uniformly by area.

        Parameters
        ----------
        n : int
            Number of points, at least one.
        seed : int, Generator, RandomState or None
            Source of randomness; the same integer gives the same points.

        Returns
        -------
        MeshSample
            The points, the faces that hold them and their barycentric coordinates.

        Examples
        --------
        >>> mesh = TriangleMesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]])
        >>> bool((mesh.sample(100, seed=0).points.sum(axis=1) <= 1).all())
        True
        """
        n = check_integer(n, "n", 1)
        cross, _ = scaled_normals(self.vertices[self.faces])
        upper = np.cumsum(row_lengths(cross))  # (m,)
        if upper[-1] == 0.0:
            reject("mesh", "of positive area to be sampled", "area 0")
        uniform = generator(seed, "mesh sample").random((3, n))
        # side="right" passes over faces of zero area; the minimum guards against u * total rounding to total.
        last = int(np.searchsorted(upper, upper[-1]))
        faces = np.minimum(np.searchsorted(upper, uniform[0] * upper[-1], side="right"), last)
        root = np.sqrt(uniform[1])  # distance from the first corner: area grows with its square
        barycentric = np.column_stack([1.0 - root, root * (1.0 - uniform[2]), root * uniform[2]])
        return self._at(faces, barycentric)

    def closest_points(self, points: ArrayLike) -> MeshSample:
        """Find the nearest point of the surface to each query point, exactly.

        Parameters
        ----------
        points : array-like of shape (q, 3)
            Query points, anywhere.

        Returns
        -------
        MeshSample
            The nearest points, the faces that hold them and their barycentric coordinates.

        Notes
        -----
        A face cannot hold the nearest point if its centroid is farther than the best distance so far plus the
        radius of the face. So faces are tried in order of the distance of their centroids, until all others are too
        far. Faces are grouped by radius, so that one large face does not widen the search among the small ones.

        Examples
        --------
        >>> mesh = TriangleMesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]])
        >>> mesh.closest_points([[0.25, 0.25, 3.0], [-1.0, 0.5, 0.0]]).points
        array([[0.25, 0.25, 0.  ],
               [0.  , 0.5 , 0.  ]])
        """
        queries = check_points(points, "points", n_columns=3)
        # Seen from far away, the nearest point depends on the direction only.
        farthest = _FAR * _power_of_two(float(np.abs(self.vertices).max()))
        size = np.abs(queries).max(axis=1, keepdims=True)
        queries = np.where(size > farthest, queries / np.maximum(size / farthest, 1.0), queries)
        search = SurfaceSearch(self._prepared(), queries)
        return self._at(search.face, search.barycentric)

    def report(self) -> MeshReport:
        """Count parts, holes and defects.

        Returns
        -------
        MeshReport
            The counts; ``str`` of it is one line.

        Examples
        --------
        >>> mesh = TriangleMesh([[0, 0, 0], [1, 0, 0], [0, 1, 0], [9, 9, 9]], [[0, 1, 2]])
        >>> mesh.report().boundary_loops, mesh.report().unreferenced_vertices
        (1, 1)
        """
        corners = self.vertices[self.faces]
        sides = corners - np.roll(corners, 1, axis=1)
        sides = sides / _or_one(np.abs(sides).max(axis=(1, 2), keepdims=True))  # each face in its own units
        longest = np.einsum("mcd,mcd->mc", sides, sides).max(axis=1)
        is_flat = row_lengths(np.cross(sides[:, 0], sides[:, 1])) <= _FLAT * longest
        unreferenced = self.n_vertices - len(np.unique(self.faces))
        labels = component_labels(self.edges, self.n_vertices)
        return MeshReport(
            n_vertices=self.n_vertices,
            n_faces=self.n_faces,
            components=int(labels.max()) + 1 - unreferenced,
            boundary_loops=count_boundary_loops(self.faces),
            non_manifold_edges=int((self._proper_edges()[1] > 2).sum()),
            degenerate_faces=int((has_repeats(self.faces) | is_flat).sum()),
            unreferenced_vertices=unreferenced,
        )

    def _prepared(self) -> Faces:
        """The faces for searches; cached if there are few."""
        scale = _power_of_two(float(np.abs(self.vertices).max()))
        if self.n_faces > _MOST_KEPT:
            return Faces(self.vertices, self.faces, scale)
        if "_faces" not in vars(self):
            vars(self)["_faces"] = Faces(self.vertices, self.faces, scale)
        faces: Faces = vars(self)["_faces"]
        return faces

    def _proper_edges(self) -> tuple[IntArray, IntArray]:
        """Edges and their numbers of faces; faces that repeat a vertex are lines and do not count."""
        return self._edges_of(self.faces[~has_repeats(self.faces)])

    def _edges_of(self, faces: IntArray) -> tuple[IntArray, IntArray]:
        """Edges (k, 2) of some faces, lower vertex first, and the number of these faces at each edge (k,)."""
        pairs = np.sort(faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
        pairs = pairs[pairs[:, 0] < pairs[:, 1]]  # a repeated vertex is no edge
        keys, counts = np.unique(pairs[:, 0] * self.n_vertices + pairs[:, 1], return_counts=True)
        return np.column_stack(np.divmod(keys, self.n_vertices)), counts

    def _sum_at_vertices(self, values: FloatArray) -> FloatArray:
        """Add a value per face (m,) to its three corners (n,)."""
        sums = np.bincount(self.faces.ravel(), np.repeat(values, 3), minlength=self.n_vertices)
        return np.asarray(sums, dtype=np.float64)

    def _at(self, faces: IntArray, barycentric: FloatArray) -> MeshSample:
        """Points at the given positions inside faces."""
        points = np.einsum("pc,pcd->pd", barycentric, self.vertices[self.faces[faces]])
        return MeshSample(points, faces, barycentric)


def _count(number: int, many: str) -> str:
    """Write a number with its noun, which is given in the plural."""
    one = f"{many[:-4]}ex" if many.endswith("ices") else many.removesuffix("s")
    return f"{number} {one if number == 1 else many}"


def barycentric_weights(mesh: TriangleMesh, places: MeshSample) -> Any:
    """Share of each vertex in points of the surface: CSR (q, n_vertices), rows sum to 1."""
    indptr = 3 * np.arange(len(places.points) + 1)
    return make_csr(places.barycentric.ravel(), mesh.faces[places.faces].ravel(), indptr, mesh.n_vertices)
