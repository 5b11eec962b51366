"""Meshes as spaces: even nodes on the faces, and steps along the surface."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from manifoldrf._codec import stored
from manifoldrf._runtime import quick_map
from manifoldrf._validation import FloatArray, IntArray, check_spread, reject
from manifoldrf.geometry.csr import check_arrays, check_csr, check_positions, check_shape, make_csr
from manifoldrf.geometry.meshes import MeshSample, TriangleMesh, has_repeats
from manifoldrf.geometry.neighbors import NeighborSearch, balls_along_edges, edge_lengths, farthest_first
from manifoldrf.geometry.patches import Edge
from manifoldrf.geometry.spaces import AbstractMirrored, AbstractNodes, AbstractSpace, FusedSteps, Steps, step_reach

# Paths along mesh edges zigzag: they are up to about this much longer than the shortest paths of the surface.
# On an even sphere mesh 1.4 loses no accuracy and 1.3 loses a third of it; larger values join neighbouring folds.
_DETOUR = 1.4
_CANDIDATES = 16  # random points on the faces for each node, from which farthest points are chosen
_MOST_FACES = 2**17  # of a mesh after large faces are divided: so many stay prepared for searches


@dataclass(frozen=True, eq=False)
class MeshSpace(AbstractSpace):
    """A triangle mesh."""

    mesh: TriangleMesh
    points: FloatArray
    volume: float
    dim: int = 2
    cloud = None

    def __post_init__(self) -> None:
        check_spread(self.points, "X")
        if not self.volume > 0:
            reject("X", "a mesh with area", "degenerate faces only")

    @property
    def extent2(self) -> float:
        """Of the area, however its vertices are spread."""
        corners, areas = self.points[self.mesh.faces], self.mesh.face_areas()
        middles = corners.mean(axis=1)
        offsets = middles - np.average(middles, axis=0, weights=areas)
        within = ((corners - middles[:, None]) ** 2).sum(axis=(1, 2)) / 12
        return float(12 * np.average((offsets**2).sum(axis=1) + within, weights=areas))

    def steps(self, t: float, n_nodes: int | None = None) -> int:
        """As many steps as ``n_nodes`` allows or, by default, as 4000 nodes allow, 12 to 40; even."""
        allowed = 4 * np.pi * t * (n_nodes or 4000) / self.volume / 8
        if n_nodes is None:
            allowed = np.clip(allowed, min(12, 4 * np.pi * t * 20_000 / self.volume / 8), 40)
        return max(2, 2 * round(min(float(allowed), 10_000.0) / 2))

    def spacing(self, s2: float) -> float:
        """Distance between nodes: 8 in the footprint of a step, as farthest points are less even than a grid."""
        return float(np.sqrt(np.pi * s2 / 8))

    def layout(self, s2: float, spacing: float, n_jobs: int) -> AbstractNodes:
        """Even points on the faces."""
        fine = divided(self.mesh, 1.5 * spacing)  # twice as long or half, kernels are as exact
        n = max(16, round(self.volume / spacing**2))
        sample = fine.sample(_CANDIDATES * n, seed=0)
        normals = fine.face_normals()[sample.faces]
        # Points on opposite sides of a thin wall are close together, but their normals are not.
        order = np.sort(farthest_first(np.hstack([sample.points, spacing * normals]), n)[0])
        points, faces = np.ascontiguousarray(sample.points[order]), sample.faces[order]
        reach = step_reach(s2, 2)
        images, own = boundary_of(self.mesh, spacing).images(points, reach)
        paths = paths_through(fine, points, faces)
        detours = detours_between(NeighborSearch(points, None, n_jobs), paths, reach, spacing)
        if detours is None:
            return MeshNodes(self.mesh, points, images, own)
        found = csgraph.dijkstra(paths, indices=np.arange(n), min_only=True, return_predecessors=True)
        owners = found[2][n:].astype(np.int64)
        lost = np.flatnonzero(owners < 0)  # pieces too small to have a node
        if len(lost):
            owners[lost] = NeighborSearch(points).knn(fine.vertices[lost], 1)[1][:, 0]
        return MeshNodes(self.mesh, points, images, own, Detours(fine, detours, owners, reach))


def paths_through(fine: TriangleMesh, points: FloatArray, faces: IntArray) -> Any:
    """Edges of a mesh, and from points to the corners of their faces, as a CSR array of lengths: points first."""
    n, m = len(points), fine.n_vertices
    edges = edge_lengths(fine).tocoo()
    rows, corners = np.repeat(np.arange(n), 3), fine.faces[faces].ravel()
    spokes = np.linalg.norm(np.repeat(points, 3, axis=0) - fine.vertices[corners], axis=1)
    lengths = np.maximum(np.concatenate([edges.data, spokes, spokes]), np.finfo(np.float64).tiny)
    start = np.concatenate([n + edges.row, rows, n + corners])
    end = np.concatenate([n + edges.col, n + corners, rows])
    return sparse.coo_array((lengths, (start, end)), shape=(n + m, n + m)).tocsr()


def detours_between(search: NeighborSearch, paths: Any, radius: float, spacing: float) -> Any:
    """CSR array: for each pair of close points 1 plus the detour of the path (length minus distance), in radii.

    None if no pair within the radius takes a detour.
    """
    points, n, limit = search.points, len(search.points), _DETOUR * radius + 2 * spacing

    def ball(block: IntArray) -> tuple[IntArray, IntArray, FloatArray]:
        counts, nodes, lengths = balls_along_edges(paths, block, limit)
        is_node = nodes < n
        return np.repeat(block, counts)[is_node], nodes[is_node], lengths[is_node]

    found = quick_map(ball, np.array_split(np.arange(n), max(1, n // 500)), search.n_jobs)
    start, end, path = map(np.concatenate, zip(*found, strict=True))
    straight = np.linalg.norm(points[start] - points[end], axis=1)
    longer = np.maximum((path - 2 * spacing) / _DETOUR - straight, 0.0)
    if np.count_nonzero((straight <= radius) & (longer == 0)) == len(search.within(points, radius).rows):
        return None
    detours = sparse.coo_array((1 + longer / radius, (start, end)), shape=(n, n)).tocsr()
    detours = detours.minimum(detours.T.tocsr())  # sums of paths from both ends differ in the last bit
    detours.sort_indices()
    return sparse.csr_array(detours)


def divided(mesh: TriangleMesh, longest: float) -> TriangleMesh:
    """The mesh with faces divided in four until no edge is longer, or there are very many faces.

    Midpoints of edges are shared, but not with an undivided face beside a divided one: the result is for paths,
    samples and nearest points, not for its boundary.
    """
    vertices, faces = mesh.vertices, mesh.faces
    for _ in range(16):
        corners = vertices[faces]
        lengths = np.linalg.norm(corners - np.roll(corners, -1, axis=1), axis=2)  # (m, 3): edges 01, 12, 20
        large = lengths.max(axis=1) > longest
        if not large.any() or len(faces) + 3 * large.sum() > _MOST_FACES:
            break
        old = faces[large]
        pairs = np.sort(np.stack([old, np.roll(old, -1, axis=1)], axis=2).reshape(-1, 2), axis=1)
        ends, which = np.unique(pairs, axis=0, return_inverse=True)
        middle = len(vertices) + which.reshape(-1, 3)  # (l, 3): of edges 01, 12, 20
        vertices = np.vstack([vertices, vertices[ends].mean(axis=1)])
        a, b, c = old.T
        x, y, z = middle.T
        new = np.concatenate([np.stack(part, axis=1) for part in ((a, x, z), (x, b, y), (z, y, c), (x, y, z))])
        faces = np.concatenate([faces[~large], new])
    return mesh if len(faces) == mesh.n_faces else TriangleMesh(vertices, faces)


def boundary_of(mesh: TriangleMesh, spacing: float) -> Edge:
    """The boundary of a mesh as points about half a spacing apart, with normals in the planes of the faces."""
    faces = mesh.faces[~has_repeats(mesh.faces)]  # others are lines
    ends = np.sort(np.stack([faces, np.roll(faces, -1, axis=1)], axis=2).reshape(-1, 2), axis=1)
    _, first, counts = np.unique(ends, axis=0, return_index=True, return_counts=True)
    single = first[counts == 1]
    if not len(single):
        return Edge.none(2, 3)
    face, corner = single // 3, single % 3
    a, b, c = (mesh.vertices[faces[face, (corner + k) % 3]] for k in range(3))
    along = b - a
    length = np.linalg.norm(along, axis=1, keepdims=True)
    kept = length[:, 0] > 0
    a, along, c, length = a[kept], along[kept], c[kept], length[kept]
    inward = c - a - ((c - a) * along).sum(axis=1, keepdims=True) / length**2 * along
    size = np.linalg.norm(inward, axis=1, keepdims=True)
    normals = -inward / np.maximum(size, 1e-300)
    number = np.maximum(1, np.ceil(2 * length[:, 0] / spacing).astype(np.int64))
    which = np.repeat(np.arange(len(a)), number)
    place = (np.arange(len(which)) - np.repeat(np.cumsum(number) - number, number) + 0.5) / number[which]
    places = a[which] + place[:, None] * along[which]
    good = size[which, 0] > 0
    places, normals, edges = places[good], normals[which][good], (along / length)[which][good]
    # On short edges they are closer: the nearest ones must reach around a corner.
    order, apart = farthest_first(np.hstack([places, spacing * normals]))
    order = np.sort(order[apart > 0.4 * spacing])
    return Edge(places[order], normals[order], edges[order][:, None], 2)


@stored
@dataclass(frozen=True, eq=False)
class Detours:
    """How much longer paths along a mesh are than straight lines, near folds and walls.

    Attributes
    ----------
    fine : TriangleMesh
        The mesh with its large faces divided, so that the corners around every point have nodes in reach.
    longer : CSR array of shape (n, n)
        For each pair of nodes that is close along the surface: 1 plus the detour of the path (length minus
        distance), in units of the reach.
    owners : int array
        The node nearest to each vertex of ``fine`` along the surface.
    radius : float
        Reach of a step.
    """

    fine: TriangleMesh
    longer: Any
    owners: IntArray
    radius: float

    def _check_loaded(self) -> None:
        n = self.longer.shape[0]
        check_csr("longer", self.longer, (n, n))
        check_shape("owners", self.owners, (self.fine.n_vertices,))
        check_positions("owners", self.owners, n)

    def seen_from(self, nearest: MeshSample) -> Any:
        """The rows of points of the mesh: means over the corners of a face from which a node is reached."""
        corners = self.owners[self.fine.faces[nearest.faces]]  # (q, 3)
        shares = np.maximum(nearest.barycentric, 1e-6)
        shares /= shares.sum(axis=1, keepdims=True)
        voters = make_csr(shares.ravel(), corners.ravel(), 3 * np.arange(len(corners) + 1), self.longer.shape[0])
        longer = voters @ self.longer
        longer.data = longer.data / (voters @ self.longer.sign()).data
        return longer.tocsr()

    def added(self, steps: Steps, longer: Any, radius: float) -> Steps:
        """Steps with their detours, which are in ``longer``; without those that are then beyond the radius."""
        if not len(steps.rows):  # an empty selection of a sparse matrix is sparse
            return steps
        found = np.asarray(longer[steps.rows, steps.nodes]).ravel()
        distances = np.sqrt(steps.squares) + (found - 1) * self.radius
        keep = (found > 0) & (distances <= radius)
        return Steps(steps.rows[keep], steps.nodes[keep], distances[keep] ** 2)


@stored
@dataclass(frozen=True, eq=False)
class MeshNodes(AbstractMirrored):
    """Nodes on the faces of a mesh.

    Attributes
    ----------
    surface_mesh : TriangleMesh
    points : array of shape (n, 3)
    images : array of shape (g, 3)
        Mirror images of nodes beyond the boundary.
    own : int array of shape (g,)
        The node of each image.
    detours : Detours, optional
        Where paths along the surface are longer than straight lines.
    """

    surface_mesh: TriangleMesh
    points: FloatArray
    images: FloatArray
    own: IntArray
    detours: Detours | None = None
    dim: int = 2
    inner = property(lambda self: self.points)

    def _check_loaded(self) -> None:
        n = len(self.points)
        check_arrays(self, points=(n, 3), images=(len(self.own), 3))
        check_positions("own", self.own, n)
        if self.detours is not None:
            check_shape("detours", self.detours.longer, (n, n))

    @property
    def mesh(self) -> TriangleMesh:  # type: ignore[override]
        """The mesh."""
        return self.surface_mesh

    def inside(self, z: FloatArray) -> FloatArray:
        """The nearest points of the surface."""
        return self.mesh.closest_points(z).points if len(z) else z

    def fused(self, factors: FloatArray) -> FusedSteps | None:
        """Arrays of steps, if there are no detours."""
        if self.detours is not None:
            return None
        flat = np.zeros((0, 3, 2)), np.zeros((0, 2, 2))
        return FusedSteps(self.search, self.node_of, factors[self.node_of], *flat)

    def steps(self, radius: float, s2: float, n_jobs: int = 1) -> Steps:
        """Steps between nodes along the surface; images receive what would leave it."""
        found = self._straight(self.points, radius, n_jobs)
        return found if self.detours is None else self.detours.added(found, self.detours.longer, radius)

    def steps_from(self, z: FloatArray, radius: float, s2: float, n_jobs: int = 1) -> Steps:
        """Steps from the nearest points of the surface, through the corners of the face of a point."""
        if self.detours is None or not len(z):
            return self._straight(self.inside(z), radius, n_jobs)
        nearest = self.detours.fine.closest_points(z)
        found = self._straight(nearest.points, radius, n_jobs)
        return self.detours.added(found, self.detours.seen_from(nearest), radius)

    def _straight(self, z: FloatArray, radius: float, n_jobs: int) -> Steps:
        """Steps along straight lines."""
        found = self.search.within(np.ascontiguousarray(z), radius, n_jobs)
        return Steps(found.rows, self.node_of[found.columns], found.distances**2)
