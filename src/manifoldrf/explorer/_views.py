"""Where things are drawn: three coordinates of every point, an order in space, the triangles between points."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse.csgraph import dijkstra
from scipy.spatial import cKDTree

from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.geometry._normals import neighbor_axes
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.neighbors import edge_lengths

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
