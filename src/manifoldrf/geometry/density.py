"""How densely and how evenly nodes are spread over their space."""

from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from manifoldrf._validation import FloatArray, reject
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.neighbors import NeighborSearch

_OUTLIER = 20.0  # a node that stands for more than so many median volumes is no sign of low density
_DENSITY_NEIGHBORS = 48  # densities are then good to 15 %
_VOLUMES = 1e-300, 1e300  # of one node: those of all, and their inverse, stay numbers


@dataclass(frozen=True)
class Sampling:
    """How densely and how evenly the nodes are spread.

    Attributes
    ----------
    n, dim : int
    sparse_density : float
        Nodes per unit of volume where they are sparsest (the sparsest quarter of the volume).
    mean_density : float
        Mean over the nodes.
    evenness : float
        Nearest-neighbour distance in units of the local spacing: .9 for random points, 1.6 on an even grid.
    volume : float
        Estimated volume of the space; too large by up to the share of nodes near a boundary.
    """

    n: int
    dim: int
    sparse_density: float
    mean_density: float
    evenness: float
    volume: float

    @classmethod
    def of_cloud(cls, search: NeighborSearch, dim: int) -> "Sampling":
        """Measure by the neighbourhoods of at most 8000 nodes."""
        return cls._of(len(search.points), dim, *_cloud_spacing(search, dim))

    @classmethod
    def of_mesh(cls, mesh: TriangleMesh) -> "Sampling":
        """Measure by areas and edges."""
        return cls._of(mesh.n_vertices, 2, *_mesh_spacing(mesh))

    @classmethod
    def _of(cls, n: int, dim: int, volume: FloatArray, nearest: FloatArray) -> "Sampling":
        evenness = float(np.mean(nearest * (ball_volume(dim) / volume) ** (1 / dim)))
        # One far outlier stands for a huge volume and says nothing about the rest.
        volume = np.minimum(volume, _OUTLIER * np.median(volume))
        # The quarter of the volume where nodes are sparsest decides: an average would starve it, and a smaller
        # share would be decided by the cut-off neighbourhoods along a boundary.
        falling = np.sort(volume)[::-1]
        sparsest = falling[np.searchsorted(np.cumsum(falling), 0.25 * falling.sum())]
        total = n * float(np.mean(volume))
        return cls(n, dim, float(1 / sparsest), float(np.mean(1 / volume)), evenness, total)


def _cloud_spacing(search: NeighborSearch, dim: int) -> tuple[FloatArray, FloatArray]:
    """The volume that nodes stand for and the distance to their nearest neighbour, by nearest neighbours."""
    n = len(search.points)
    k = min(_DENSITY_NEIGHBORS, n - 1)
    distances = search.knn(search.points[:: max(1, n // 4000)], k + 1)[0]  # the node itself first
    distances = distances[distances[:, k] > 0]
    if not len(distances):
        reject("points", "at distinct positions, most of them", "duplicates only")
    with np.errstate(over="ignore", under="ignore"):  # reported below, by name
        volume = ball_volume(dim) * distances[:, k] ** dim / k
    bad = ~((volume > _VOLUMES[0]) & (volume < _VOLUMES[1]))
    if bad.any():
        rule = f"in a unit in which volumes of dimension {dim} are numbers from {_VOLUMES[0]:g} to {_VOLUMES[1]:g}"
        reject("points", rule, f"neighbours {distances[bad][0, k]:.3g} away")
    return volume, distances[:, 1]


def _mesh_spacing(mesh: TriangleMesh) -> tuple[FloatArray, FloatArray]:
    """The same for a mesh, along its surface: a fold nearby adds nothing."""
    start, end = mesh.edges.T
    degree = 1 + np.bincount(mesh.edges.ravel(), minlength=mesh.n_vertices)
    areas = mesh.vertex_areas()
    for _ in range(2):  # single areas of a random mesh say little about its density
        around = np.bincount(start, areas[end], mesh.n_vertices) + np.bincount(end, areas[start], mesh.n_vertices)
        areas = (areas + around) / degree
    nearest = np.full(mesh.n_vertices, np.inf)
    np.minimum.at(nearest, start, mesh.edge_lengths())
    np.minimum.at(nearest, end, mesh.edge_lengths())
    counted = (areas > 0) & np.isfinite(nearest)
    if not counted.any():
        reject("points", "a mesh with area", "degenerate faces only")
    return areas[counted], nearest[counted]


def ball_volume(dim: int) -> float:
    """Volume of the unit ball."""
    return float(np.exp(dim / 2 * np.log(np.pi) - gammaln(dim / 2 + 1)))
