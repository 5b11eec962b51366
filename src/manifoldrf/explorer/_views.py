"""Where things are drawn: three coordinates of every point, an order in space, the triangles between points."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.geometry.meshes import TriangleMesh

_AXES = 3
_NEIGHBOR = 4  # in a random cloud the first is far nearer than the gaps between points are wide
_PATCH = 13  # a point and its nearest twelve
_FLAT = (
    0.2  # spread across a surface over that along it; evenly filled space has 0.5, random points of a torus 0.05
)
_CURVE = 1e-3  # below, a cloud is a curve, around which no normal is better than another
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
    around = points[cKDTree(points).query(points, k=_PATCH)[1]]  # (n, patch, 3)
    around = around - around.mean(axis=1, keepdims=True)
    values, vectors = np.linalg.eigh(np.einsum("npi,npj->nij", around, around))
    across, along, most = np.median(values, axis=0)
    is_surface = across <= _FLAT * along and along > _CURVE * most
    return np.asarray(vectors[:, :, 0] * float(is_surface))


def nearest(points: FloatArray, targets: FloatArray) -> IntArray:
    """The target nearest to each point, as a position in ``targets``, shape (n,)."""
    return np.asarray(cKDTree(targets).query(points)[1], dtype=np.int64)


def nearest_along(mesh: TriangleMesh, targets: IntArray) -> IntArray:
    """The same along the edges of a mesh, for all its vertices; across space where no edges lead to any."""
    ends = mesh.vertices[mesh.edges]
    lengths = np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1)
    edges = sparse.csr_array((lengths, mesh.edges.T), shape=(mesh.n_vertices, mesh.n_vertices))
    found = dijkstra(edges, directed=False, indices=targets, min_only=True, return_predecessors=True)[2]
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
