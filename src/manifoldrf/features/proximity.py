"""How far points are from the space, and how features fade there."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from manifoldrf._notices import warn_user
from manifoldrf._validation import FloatArray
from manifoldrf.geometry.extension import HeatExtension
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.neighbors import NeighborSearch

__all__ = ["FarQueryWarning"]

# A query counts as near within this many distances from its nearest node to that node's own neighbours: of random
# points on the sphere fewer than one in 10,000 is farther from all nodes.
_NEAR = 1.5


class FarQueryWarning(UserWarning):
    """Points were transformed that are not on the space: their features fade to zero.

    Parameters
    ----------
    fading : int
        How many points are away from the space.
    gone : int
        Those of them whose features are zero.
    total : int
        All points that were asked for.

    Examples
    --------
    >>> import warnings
    >>> from manifoldrf import FarQueryWarning, HeatKernel, ManifoldRandomFeatures, Sphere
    >>> features = ManifoldRandomFeatures(HeatKernel(0.1)).fit(Sphere())
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", FarQueryWarning)
    ...     far = features.transform([[0.0, 0.0, 3.0]])
    >>> float(far.max()), len(caught)
    (0.0, 1)
    """

    def __init__(self, fading: int, gone: int, total: int) -> None:
        super().__init__(fading, gone, total)
        self.fading, self.gone, self.total = fading, gone, total

    @property
    def count(self) -> str:
        """How many points are meant, as a sentence."""
        return (
            f"{self.fading} of {self.total} points are away from the space, so their features fade; those of "
            f"{self.gone} are zero."
        )

    def __str__(self) -> str:
        return f"{self.count} `distance_to_space` says how far they are."


@dataclass(frozen=True, eq=False)
class Proximity:
    """Distances of points to the nodes of a graph, or to the surface of its mesh.

    Attributes
    ----------
    graph : Graph
    dim : int
    """

    graph: Graph
    dim: int

    @cached_property
    def _search(self) -> NeighborSearch:
        extension = self.graph.extension
        own = getattr(extension, "search", None)  # its tree may exist already
        return own if isinstance(own, NeighborSearch) else NeighborSearch(self.graph.positions, self.graph.metric)

    @cached_property
    def _reaches(self) -> FloatArray:
        """How far from each node a query still counts as near, shape (n_nodes,)."""
        points = self._search.points
        k = min(2 * self.dim + 2, len(points) - 1)
        reaches = _NEAR * self._search.knn(points, k + 1)[0][:, k]
        if isinstance(self.graph.extension, HeatExtension):  # whose steps end at its radius, twice as far
            reaches = np.minimum(np.maximum(reaches, self.graph.extension.radius / 2), self.graph.extension.radius)
        return np.asarray(reaches)

    def distance(self, queries: FloatArray) -> FloatArray:
        """Distance to the nearest node or, on a mesh, to the surface, shape (q,)."""
        mesh = self.graph.mesh
        if mesh is None:
            return np.asarray(self._search.knn(queries, 1)[0][:, 0])
        return np.asarray(np.linalg.norm(queries - mesh.closest_points(queries).points, axis=1))

    def window(self, queries: FloatArray) -> FloatArray:
        """Factor of the features, shape (q,): 1 near the space, falling smoothly to 0 at twice that distance."""
        distances, nodes = self._search.knn(queries, 1)
        distances, reaches = distances[:, 0], self._reaches[nodes[:, 0]]
        mesh = self.graph.mesh
        away = np.flatnonzero(distances > reaches)
        if mesh is not None and len(away):  # far from all vertices may still be inside a large face
            distances[away] = np.linalg.norm(queries[away] - mesh.closest_points(queries[away]).points, axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            beyond = np.where(distances <= reaches, 0.0, np.clip(distances / reaches - 1.0, 0.0, 1.0))
        return np.asarray((1 - beyond) ** 2 * (1 + 2 * beyond))


def warn_of_far(window: FloatArray) -> None:
    """Say how many queries are off the space, once."""
    fading, gone = int(np.count_nonzero(window < 1)), int(np.count_nonzero(window == 0))
    if fading:
        warn_user(FarQueryWarning(fading, gone, len(window)))
