"""Triangle meshes: reading and writing, areas and normals, sampling, nearest points, defects."""

from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from manifoldrf._files import as_path
from manifoldrf._random import SeedLike, generator
from manifoldrf._validation import (
    FloatArray,
    IntArray,
    check_faces,
    check_integer,
    check_points,
    reject,
)
from manifoldrf.geometry._mesh_files import read_mesh, reject_mesh, write_coloured_ply, write_mesh
from manifoldrf.geometry._sparse import read_only_view
from manifoldrf.geometry._triangles import (
    Sides,
    SurfaceSearch,
    component_labels,
    has_repeats,
    is_flat,
    radius_classes,
    row_lengths,
    scaled_normals,
    unit_rows,
)

__all__ = ["MeshReport", "MeshSample", "TriangleMesh"]


@dataclass(frozen=True, eq=False)
class MeshSample:
    """Points on a mesh, each known by its face and its place in it.

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
    """What a mesh is made of; its text is one line.

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

    def __str__(self) -> str:
        sizes = f"{_count(self.n_vertices, 'vertex', 'vertices')}, {_count(self.n_faces, 'face')}"
        findings = (
            _count(self.components, "component"),
            _count(self.boundary_loops, "boundary loop"),
            _count(self.non_manifold_edges, "non-manifold edge"),
            _count(self.degenerate_faces, "degenerate face"),
            _count(self.unreferenced_vertices, "unreferenced vertex", "unreferenced vertices"),
        )
        return f"{sizes}: {', '.join(findings)}"


@dataclass(frozen=True, eq=False, repr=False)
class TriangleMesh:
    """A surface made of triangles; its arrays are copies that cannot be changed.

    Parameters
    ----------
    vertices : array-like of shape (n, 3)
        Finite positions, kept as float64.
    faces : array-like of shape (m, 3)
        Indices of the three corners of each triangle. Holes, several parts, zero-area faces and vertices in
        no face are all allowed; :meth:`report` counts them.

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
        for name, array in (("vertices", vertices), ("faces", faces)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    def __repr__(self) -> str:
        return f"TriangleMesh({_count(self.n_vertices, 'vertex', 'vertices')}, {_count(self.n_faces, 'face')})"

    @classmethod
    def load(cls, path: str | PathLike[str]) -> "TriangleMesh":
        r"""Read a mesh from a ply, obj, stl, off or glb file, the format taken from the name.

        Vertices keep their number and order, those in no face included. Polygons are cut into triangles (a
        binary ply may hold triangles or quadrilaterals, not both). Materials, texture coordinates, normals
        and colours are not read. The parts of a glb scene are placed as the scene says and joined. An stl
        file stores no connections: there, and only there, vertices of exactly equal position are merged, in
        the order of first appearance.

        A file of a stranger is safe to read: no other file is opened, whatever it refers to, and no more
        memory is taken than ten times its size and 200 MB, whatever it declares.

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
        vertices, faces = read_mesh(path)
        try:
            return cls(vertices, faces)
        except ValueError as error:
            reject_mesh(path, error)

    def save(self, path: str | PathLike[str], *, colors: ArrayLike | None = None) -> Path:
        """Write the mesh to a ply, obj, stl, off or glb file, the format taken from the name.

        obj and off keep every digit; ply, stl and glb store single precision (7 digits). stl stores loose
        triangles, so that order and unreferenced vertices are lost. The file appears whole or not at all.

        Parameters
        ----------
        path : str or path
            The file; an existing one is replaced.
        colors : array-like of shape (n_vertices, 3), uint8, optional
            Red, green and blue of each vertex, for ply only; such a file keeps every digit of the positions.

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
        if colors is None:
            write_mesh(path, self.vertices, self.faces)
        else:
            write_coloured_ply(path, self.vertices, colors, self.faces)
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
        edges: IntArray = read_only_view(self._edges_of(self.faces)[0])
        return edges

    @property
    def boundary_vertices(self) -> IntArray:
        """Vertices at an edge that belongs to one face only, sorted; none on a closed surface."""
        # A face with a repeated vertex is a line: it closes nothing.
        edges, n_faces = self._edges_of(self.faces[~has_repeats(self.faces)])
        return np.unique(edges[n_faces == 1])

    @property
    def area(self) -> float:
        """Area of the whole surface."""
        return float(self.face_areas().sum())

    @property
    def is_closed(self) -> bool:
        """Whether every edge has exactly two faces."""
        sides = Sides.of(self.faces)
        return bool(sides.counts.size > 0 and (sides.counts == 2).all())

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

        Faces without area have no say. Where no area is around a vertex, or the faces around it cancel
        exactly, the normal is the zero vector.

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
        A face whose centroid is farther than the best distance so far plus the radius of the face cannot win,
        so faces are tried by rising distance of their centroids until all others are out of reach. Faces are
        grouped by radius, so that one large face does not widen the search among the small ones.

        Examples
        --------
        >>> mesh = TriangleMesh([[0, 0, 0], [1, 0, 0], [0, 1, 0]], [[0, 1, 2]])
        >>> mesh.closest_points([[0.25, 0.25, 3.0], [-1.0, 0.5, 0.0]]).points
        array([[0.25, 0.25, 0.  ],
               [0.  , 0.5 , 0.  ]])
        """
        queries = check_points(points, "points", n_columns=3)
        search = SurfaceSearch.on(self.vertices, self.faces, queries)
        for members in radius_classes(search.radii):
            search.try_faces(members)
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
        unreferenced = self.n_vertices - len(np.unique(self.faces))
        labels = component_labels(self.edges, self.n_vertices)
        sides = Sides.of(self.faces)
        return MeshReport(
            n_vertices=self.n_vertices,
            n_faces=self.n_faces,
            components=int(labels.max()) + 1 - unreferenced,
            boundary_loops=sides.count_loops(),
            non_manifold_edges=int((sides.counts > 2).sum()),
            degenerate_faces=int((has_repeats(self.faces) | is_flat(self.vertices[self.faces])).sum()),
            unreferenced_vertices=unreferenced,
        )

    def _edges_of(self, faces: IntArray) -> tuple[IntArray, IntArray]:
        """Edges (k, 2) of some faces, lower vertex first, and the number of these faces at each (k,)."""
        pairs = np.sort(faces[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2), axis=1)
        pairs = pairs[pairs[:, 0] < pairs[:, 1]]  # a repeated vertex is no edge
        keys, counts = np.unique(pairs[:, 0] * self.n_vertices + pairs[:, 1], return_counts=True)
        return np.column_stack(np.divmod(keys, self.n_vertices)), counts

    def _sum_at_vertices(self, values: FloatArray) -> FloatArray:
        """Add a value per face (m,) to its three corners (n,)."""
        sums = np.bincount(self.faces.ravel(), np.repeat(values, 3), minlength=self.n_vertices)
        return np.asarray(sums, dtype=np.float64)

    def _at(self, faces: IntArray, barycentric: FloatArray) -> MeshSample:
        """Points at the given places."""
        points = np.einsum("pc,pcd->pd", barycentric, self.vertices[self.faces[faces]])
        return MeshSample(points, faces, barycentric)


def _count(number: int, one: str, many: str | None = None) -> str:
    """Write a number with its noun, in singular or plural."""
    return f"{number} {one if number == 1 else many or one + 's'}"
