"""Even nodes on the surface through a cloud, and Gaussian steps between them.

New nodes are laid out at the spacing that the kernel needs, whatever the density of the data: farthest points of
the data, new points in the gaps, and some rounds of repulsion. Mirror images push them to half a spacing from the
edge. Steps go along the surface: chords are lengthened to arcs, and curvature spreads or focuses heat.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from manifoldrf._codec import stored
from manifoldrf._native import loops
from manifoldrf._random import generator
from manifoldrf._runtime import in_blocks, quick_map
from manifoldrf._validation import FloatArray, IntArray, reject
from manifoldrf.geometry.cleaning import CleanCloud
from manifoldrf.geometry.csr import check_arrays, check_csr, check_numbers, check_positions, check_shape, make_csr
from manifoldrf.geometry.neighbors import (
    NeighborSearch,
    Pairs,
    Sampling,
    along,
    balls_along_edges,
    farthest_first,
    without_self,
)
from manifoldrf.geometry.patches import Edge, LocalSurface, find_edge, fit_patches
from manifoldrf.geometry.spaces import AbstractMirrored, AbstractNodes, AbstractSpace, FusedSteps, Steps, step_reach

_PUSHED_BY = {2: 12, 3: 24}  # number of nearest nodes that repel a node, by dimension
# Share of a step beyond its reach, by dimension. In three dimensions most nodes are far out: a reach of 8.2 s2
# instead of 10.3 saves a third of the steps, and kernels of clouds are as exact. Named manifolds keep 10.3.
_TAILS = {2: float(np.exp(-9.0)), 3: float(np.exp(-7.0))}
_CLOSEST = 0.75  # least distance of two nodes, in units of the spacing
_ROUNDS = 6  # of repulsion: 2 to 30 give the same kernels, but each moves nodes away from outliers left in the data


@dataclass(frozen=True, eq=False)
class CloudSpace(AbstractSpace):
    """A cleaned cloud of two or three dimensions."""

    points: FloatArray
    dim: int
    cloud: CleanCloud

    @cached_property
    def volume(self) -> float:  # type: ignore[override]
        """From the density of the points."""
        return Sampling.of_cloud(self.cloud.search, self.dim, "X").volume

    @cached_property
    def curvature(self) -> float:  # type: ignore[override]
        """Curvature of the surface that a tenth of the points exceed, so that small parts count."""
        surface = self.cloud.surface
        return 0.0 if surface is None else float(1 / np.quantile(surface.radii(self.points), 0.1))

    def layout(self, s2: float, spacing: float, n_jobs: int) -> AbstractNodes:
        """Even nodes on the surface through the points."""
        cloud, dim = self.cloud, self.dim
        if self.volume < 4 * spacing**dim:
            wide = f"{2 * np.sqrt(s2):.3g} wide, in a space of the volume {self.volume:.3g}"
            reject("n_steps", "so many that steps are narrower than the space", wide)
        edge = find_edge(cloud.search, cloud.surface, dim, 0.7 * spacing, n_jobs, noise_std=cloud.noise_std)
        # Random close packings are looser than lattices: these factors of the spacing give the same density.
        inner = even_points(cloud.search, cloud.surface, edge, dim, {2: 1.07, 3: 1.12}[dim] * spacing, n_jobs)
        r, reach, layers = inner.shape[1], step_reach(s2, dim, _TAILS[dim]), None
        images, own = edge.images(inner, reach)
        frames, ricci = np.zeros((0, r, dim)), np.zeros((0, dim, dim))
        if cloud.surface is not None:
            search = NeighborSearch(inner, None, n_jobs)
            frames, ricci = curvature_at(search, dim, spacing)
            layers = find_layers(search, reach, s2)
        noisy = cloud.surface if cloud.noise_std else None
        return EvenNodes(inner, dim, images, own, frames, ricci, cloud.origin, cloud.axes, noisy, layers)


def curvature_at(search: NeighborSearch, dim: int, spacing: float) -> tuple[FloatArray, FloatArray]:
    """Tangents (n, r, dim) and Ricci curvature (n, dim, dim) at even nodes.

    They are those of quadratics through the nodes around every fourth one. Patches through the data may be so much
    narrower than the spacing of the nodes that they show the noise.
    """
    order, apart = farthest_first(search.points, tree=search.tree)
    centres = search.points[order[apart > 1.5 * spacing]]
    patches = fit_patches(search, centres, dim, ((2.2 if dim < 3 else 1.7) * spacing) ** 2)
    r = search.points.shape[1]
    return LocalSurface(NeighborSearch(centres), np.zeros(r), np.eye(r), patches).curvature(search.points)


def even_points(
    search: NeighborSearch, surface: LocalSurface | None, edge: Edge, dim: int, spacing: float, n_jobs: int
) -> FloatArray:
    """Points at a spacing on the surface through a cloud, or inside a cloud that fills its coordinates."""
    points, tree = search.points, search.tree
    n, n_axes = points.shape
    few, many = np.minimum({2: (8, 14), 3: (12, 24)}[dim], n - 1)
    local = tree.query(points, few + 1, workers=n_jobs)[0][:, few]
    rng = generator(0, "even nodes")

    def project(z: FloatArray) -> FloatArray:
        return z if surface is None else surface.project(z, n_jobs)

    def belongs(z: FloatArray) -> Any:
        """Whether the space continues at z: data are near, and on all sides or at least ahead."""
        d, near = tree.query(z, many, workers=n_jobs)
        offset = points[near].mean(axis=1) - z
        one_sided = np.linalg.norm(offset, axis=1) / np.sqrt((d**2).mean(axis=1))
        ahead = (np.einsum("nkd,nd->nk", points[near] - z[:, None], -offset) > 0).any(axis=1)
        depths = edge.faces(z, np.inf)[0]
        return (
            (d[:, 0] < 1.5 * local[near[:, 0]]) & (ahead | (one_sided < 0.35)) & (depths >= 0.25 * spacing).all(1)
        )

    order, apart = farthest_first(points, tree=tree)
    nodes = project(points[order[apart > _CLOSEST * spacing]])
    active = nodes  # nodes around which there may be room
    for _ in range(15):
        steps = rng.normal(size=(len(active), 6, dim))
        if surface is not None:
            steps = steps @ surface.tangents(active).transpose(0, 2, 1)
        steps *= spacing * rng.uniform(0.8, 1.3, (len(active), 6, 1)) / np.linalg.norm(steps, axis=2, keepdims=True)
        new, nearest = (active[:, None] + steps).reshape(-1, n_axes), cKDTree(nodes).query
        room = np.flatnonzero(nearest(new, workers=n_jobs)[0] > _CLOSEST * spacing)  # project only these
        new = project(new[room])
        kept = belongs(new) & (nearest(new, workers=n_jobs)[0] > _CLOSEST * spacing)
        if not kept.any():
            break
        active, new = active[np.unique(room[kept] // 6)], new[kept]
        order, apart = farthest_first(np.ascontiguousarray(new))
        new = new[order[apart > _CLOSEST * spacing]]
        nodes, active = np.vstack([nodes, new]), np.vstack([active, new])
        if len(new) < 0.002 * len(nodes):
            break
    moved = nodes
    for _ in range(_ROUNDS):
        mirrored = np.vstack([moved, edge.images(moved, 2.5 * spacing)[0]])
        d, near = cKDTree(mirrored).query(moved, min(_PUSHED_BY[dim], len(mirrored) - 1) + 1, workers=n_jobs)
        shares = np.exp(-((d[:, 1:] / spacing) ** 2))
        push = 0.5 * (moved * shares.sum(1, keepdims=True) - np.einsum("nk,nkd->nd", shares, mirrored[near[:, 1:]]))
        length = np.maximum(np.linalg.norm(push, axis=1, keepdims=True), 1e-300)
        push *= np.minimum(length, 0.25 * spacing) / length
        moved = edge.inside(project(moved + push), 4 * spacing, 0.25 * spacing)
    gap, near = tree.query(moved, workers=n_jobs)
    nodes = np.where((gap < local[near])[:, None], moved, nodes)  # stay in the space, where no edge is known
    return np.ascontiguousarray(nodes)


@stored
@dataclass(frozen=True, eq=False)
class EvenNodes(AbstractMirrored):
    """Nodes laid out evenly on the surface through a cloud, or inside a solid.

    Attributes
    ----------
    inner : array of shape (n, r)
        Nodes in the coordinates of the cloud.
    dim : int
    images : array of shape (g, r)
        Mirror images of nodes beyond the edge.
    own : int array of shape (g,)
        The node of each image.
    frames : array of shape (n, r, dim)
        Tangents at the nodes; empty where the space is flat.
    ricci : array of shape (n, dim, dim)
        Ricci curvature in these frames.
    origin, axes : arrays of shape (D,) and (D, r)
        Coordinates of the cloud.
    surface : LocalSurface, optional
        The surface onto which noisy points are moved.
    layers : Layers, optional
        Tells which nodes are close only through empty space.
    """

    inner: FloatArray
    dim: int
    images: FloatArray
    own: IntArray
    frames: FloatArray
    ricci: FloatArray
    origin: FloatArray
    axes: FloatArray
    surface: LocalSurface | None = None
    layers: "Layers | None" = None
    tail = property(lambda self: _TAILS[self.dim])

    def _check_loaded(self) -> None:
        (n, r), d, curved = self.inner.shape, self.dim, len(self.inner) * (len(self.frames) > 0)
        check_arrays(self, inner=(n, r), images=(len(self.own), r), frames=(curved, r, d))
        check_arrays(self, origin=(len(self.axes),), axes=(len(self.axes), r))
        check_shape("ricci", self.ricci, (curved, d, d))
        check_numbers("ricci", self.ricci)  # one over a squared length, which may be huge
        check_positions("own", self.own, n)

    @cached_property
    def points(self) -> FloatArray:  # type: ignore[override]
        """Positions in the user's coordinates."""
        return np.ascontiguousarray(self.inner @ self.axes.T + self.origin)

    def inside(self, z: FloatArray) -> FloatArray:
        """Points in the coordinates of the cloud."""
        return along(self.axes, z - self.origin)

    def fused(self, factors: FloatArray) -> FusedSteps | None:
        """Arrays of steps, except between layers."""
        if self.layers is not None:
            return None
        return FusedSteps(self.search, self.node_of, factors[self.node_of], self.frames, self.ricci)

    def mass(self, s2: float) -> FloatArray:
        """Integral of a Gaussian step over the space at each node; images receive what would leave it."""
        flat = super().mass(s2)
        return flat * np.clip(1 - np.einsum("naa->n", self.ricci) * s2 / 24, 0.5, 1.5) if len(self.ricci) else flat

    def steps(self, radius: float, s2: float, n_jobs: int = 1) -> Steps:
        """Steps between nodes; several for a pair if images are also in reach."""
        found = self._steps(self.inner, np.arange(len(self.inner)), radius, s2, n_jobs)
        return found if self.layers is None else self.layers.cut(found)

    def steps_from(self, z: FloatArray, radius: float, s2: float, n_jobs: int = 1) -> Steps:
        """The same from points of the space to nodes."""
        inside = self.inside(z)
        nearest = np.zeros(len(z), np.int64)
        if len(self.frames):
            nearest = self.node_of[self.search.knn(inside, 1, n_jobs)[1][:, 0]]
        found = self._steps(inside, nearest, radius, s2, n_jobs)
        return found if self.layers is None else self.layers.cut_from(inside, found, s2, n_jobs)

    def _steps(self, z: FloatArray, at: IntArray, radius: float, s2: float, n_jobs: int) -> Steps:
        found = self.search.within(z, radius, n_jobs)
        squares = found.distances**2
        if len(self.frames):
            given = z, self.search.points, found.rows, found.columns, at, self.frames, self.ricci, s2, squares
            in_blocks(partial(loops.bend_squares, *given), len(squares), 2**16, n_jobs)
        return Steps(found.rows, self.node_of[found.columns], squares)


@stored
@dataclass(frozen=True, eq=False)
class Layers:
    """Layers of a space that nearly touch: which nodes a step may join.

    Attributes
    ----------
    search : NeighborSearch
        The nodes.
    joined : CSR array of shape (n, n)
        1 for each pair of nodes that is close along the space.
    """

    search: NeighborSearch
    joined: Any

    def _check_loaded(self) -> None:
        n = len(self.search.points)
        check_csr("joined", self.joined, (n, n))

    def cut(self, steps: Steps) -> Steps:
        """The steps without those between layers."""
        keep = np.asarray(self.joined[steps.rows, steps.nodes]).ravel() > 0
        return Steps(steps.rows[keep], steps.nodes[keep], steps.squares[keep])

    def cut_from(self, z: FloatArray, steps: Steps, s2: float, n_jobs: int) -> Steps:
        """The same from points. A node that is joined to only some nodes near a point counts as farther away.

        Steps therefore fade out as a point moves from one layer to another.
        """
        if not len(steps.rows):  # an empty selection of a sparse matrix is sparse
            return steps
        n = len(self.search.points)
        k = min(6, n - 1)
        distances, near = self.search.knn(z, k + 1, n_jobs)
        votes = np.maximum(1 - distances[:, :k] / np.maximum(distances[:, k:], 1e-300), 0.0) ** 2 + 1e-12
        votes /= votes.sum(axis=1, keepdims=True)
        voters = make_csr(votes.ravel(), near[:, :k].ravel(), k * np.arange(len(z) + 1), n)
        share = np.asarray((voters @ self.joined).tocsr()[steps.rows, steps.nodes]).ravel()
        keep = share > 1e-3
        squares = steps.squares[keep] - s2 * np.log(np.minimum(share[keep], 1.0))
        return Steps(steps.rows[keep], steps.nodes[keep], squares)


def find_layers(search: NeighborSearch, radius: float, s2: float) -> Layers | None:
    """The layers of a space, if steps would jump between them; else None.

    Two nodes are on different layers if the path along near neighbours is more than twice as long as the straight
    line (half a circle is 1.57 times its diameter).
    """
    points, n = search.points, len(search.points)
    distances, near = without_self(*search.knn(points, min(12, n - 1) + 1))
    k = near.shape[1]
    lengths = np.maximum(distances.ravel(), np.finfo(np.float64).tiny)
    edges = sparse.csr_array((lengths, near.ravel(), k * np.arange(n + 1)), shape=(n, n))
    edges = edges.maximum(edges.T.tocsr())
    spacing = np.minimum(distances[:, -1], 4 * np.median(distances[:, -1]))
    limit = 2 * radius + 2 * float(spacing.max())

    def far_along(starts: IntArray) -> tuple[Pairs, Any]:
        """Pairs from some nodes within the reach of a step, and which of them are far apart along paths."""
        found = search.within(points[starts], radius)
        blocks = np.array_split(starts, max(1, len(starts) // 1000))
        balls = quick_map(partial(balls_along_edges, edges, limit=limit), blocks, search.n_jobs)
        counts, columns, paths = map(np.concatenate, zip(*balls, strict=True))
        rows = np.repeat(np.arange(len(starts)), counts)
        # Shifted to [1, 2], because a sparse matrix does not distinguish a stored zero from no path.
        along = sparse.coo_array((1 + paths / limit, (rows, columns)), shape=(len(starts), n)).tocsr()
        length = np.asarray(along[found.rows, found.columns]).ravel()
        path = np.where(length > 0, (length - 1) * limit, np.inf)
        pairs = found._replace(rows=starts[found.rows])
        return pairs, path > 2 * pairs.distances + spacing[pairs.rows] + spacing[pairs.columns]

    pairs, apart = far_along(np.arange(0, n, max(1, n // 200)))
    weights = np.exp(-(pairs.distances**2) / s2)
    if weights[apart].sum() <= 1e-4 * weights.sum():
        return None
    pairs, apart = far_along(np.arange(n))
    rows, columns = pairs.rows[~apart], pairs.columns[~apart]
    joined = sparse.coo_array((np.ones(len(rows)), (rows, columns)), shape=(n, n)).tocsr()
    joined = joined.multiply(joined.T).tocsr()  # both directions: sums of paths differ in the last bit
    joined.sort_indices()
    return Layers(search, joined)
