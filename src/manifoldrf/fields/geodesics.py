"""Distances along a graph from any point of the space to a fixed list of anchors."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manifoldrf._codec import stored
from manifoldrf._runtime import map_threads, require
from manifoldrf._validation import POSITIVE, FloatArray, IntArray, check_jobs, check_real
from manifoldrf.fields.anchors import edges_of, paths_along_edges
from manifoldrf.geometry.csr import check_numbers, check_shape
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.neighbors import NeighborSearch

_NEAREST = 8  # nodes that a path may start at: the paper's number of neighbours
_ANCHORS_AT_ONCE = 16  # per task
_ENTRIES_AT_ONCE = 4_000_000  # distances that a task holds in double precision, 32 MB
_BEYOND = 2.0  # distance of unreachable nodes over the largest distance


@stored
@dataclass(frozen=True, eq=False)
class GraphDistances:
    """d(z, w_l) = min over the nodes x_j nearest to z of |z - x_j| + d(x_j, w_l), for every point z.

    Attributes
    ----------
    points : array of shape (n_nodes, d)
    paths : float32 array of shape (n_nodes, m)
        Lengths of the shortest paths from the nodes to the anchors; ``far`` if there is none.
    far : float
        Largest value, for unreachable anchors: twice the largest distance of reachable ones.
    metric : AbstractManifold, optional
        Manifold along which |z - x_j| is measured; straight lines by default.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Sphere, knn_graph
    >>> from manifoldrf.fields.geodesics import graph_distances
    >>> distances = graph_distances(knn_graph(Sphere().grid(500)), np.array([0, 499]))
    >>> distances.at(np.array([[0.0, 0.0, 1.0], [0.0, 0.0, -1.0]])).astype(float).round(1).tolist()
    [[0.1, 3.1], [3.1, 0.1]]
    """

    points: FloatArray
    paths: NDArray[np.float32]
    far: float
    metric: AbstractManifold | None = None

    def check(self, n: int, d: int, m: int) -> None:
        """Raise unless these are distances between n nodes with d coordinates and m anchors."""
        check_shape("paths", self.paths, (n, m))
        check_numbers("paths", self.paths)
        check_real(self.far, "far", POSITIVE)
        self._search.check(n, d)

    @cached_property
    def _search(self) -> NeighborSearch:
        return NeighborSearch(self.points, self.metric)

    def nearest(self, queries: FloatArray) -> tuple[FloatArray, IntArray]:
        """Distances to the nearest nodes and their positions, both (q, k)."""
        k = min(_NEAREST, len(self.points))
        if self.metric is not None:
            return self._search.knn(queries, k)
        # The exact tree: results of an approximate search depend on the other queries.
        steps, nodes = self._search.tree.query(queries, k=k)
        return steps.reshape(len(queries), k), nodes.reshape(len(queries), k)

    def through(self, steps: FloatArray, nodes: IntArray) -> NDArray[np.float32]:
        """Distances of one query to all anchors from its nearest nodes, shape (m,)."""
        # Clip before rounding: single precision cannot represent steps from 1e40 away.
        lengths = self.paths[nodes] + np.minimum(steps, self.far)[:, None].astype(np.float32)  # (k, m)
        result: NDArray[np.float32] = np.minimum(lengths.min(axis=0), np.float32(self.far))
        return result

    def at(self, queries: FloatArray) -> NDArray[np.float32]:
        """d(z, w_l), float32 of shape (q, m)."""
        steps, nodes = self.nearest(queries)
        result = np.zeros((len(queries), self.paths.shape[1]), dtype=np.float32)
        for row in range(len(queries)):
            result[row] = self.through(steps[row], nodes[row])
        return result

    def torch_through(self, paths: Any, steps: FloatArray, nodes: IntArray) -> Any:
        """Distances of many queries from their nearest nodes, shape (q, m), on the device of ``paths``.

        ``paths`` are those of the nodes, as a tensor. The bits are those of :meth:`through`.
        """
        torch = require("torch", "torch")
        cut = torch.as_tensor(np.minimum(steps, self.far).astype(np.float32), device=paths.device)  # (q, k)
        lengths = paths[torch.as_tensor(nodes, device=paths.device)] + cut[:, :, None]  # (q, k, m)
        return lengths.amin(dim=1).clamp_max(self.far)

    def torch_at(self, queries: Any) -> Any:
        """d(z, w_l) as a tensor in the precision of the queries, with a gradient except at nodes."""
        torch = require("torch", "torch")
        places = queries.detach().cpu().double().numpy()
        steps, nodes = self.nearest(places)
        near = queries.new_tensor(self.points[nodes])  # (q, k, d)
        gaps = queries[:, None, :] - near
        if self.metric is not None and self.metric.box is not None:
            box = queries.new_tensor(self.metric.box)
            gaps = gaps - box * torch.round(gaps / torch.where(box > 0, box, 1.0))  # to the nearest image
        straight = _norms(gaps)
        if self.metric is not None:
            # Use the length along the metric, with the gradient of the straight line scaled accordingly.
            measured = queries.new_tensor(steps)
            plain = straight.detach()
            stretch = torch.where(plain > 0, measured / plain.clamp_min(1e-300), 1.0)
            straight = straight * stretch
        paths = queries.new_tensor(self.paths[nodes])  # (q, k, m)
        return (paths + straight.clamp_max(self.far)[:, :, None]).amin(dim=1).clamp_max(self.far)


def graph_distances(graph: Graph, anchors: IntArray, n_jobs: int = 1) -> GraphDistances:
    """Shortest paths from every node to the anchors, by one search per anchor.

    ``n_jobs`` is the number of threads, which does not change the result.
    """
    n = graph.n_nodes
    paths = np.full((n, len(anchors)), np.inf, dtype=np.float32)
    size = max(1, min(_ANCHORS_AT_ONCE, _ENTRIES_AT_ONCE // n))
    edges = edges_of(graph)

    def search(start: int) -> None:
        part = slice(start, start + size)
        paths[:, part] = paths_along_edges(edges, anchors[part]).T

    map_threads(search, range(0, len(anchors), size), check_jobs(n_jobs))
    reached = np.isfinite(paths)
    far = _BEYOND * float(paths[reached].max()) or 1.0  # at least, anchors reach themselves
    paths[~reached] = far
    points = graph.points
    if points is None:
        raise ValueError("This graph has no points, so it has no distances; give `points` to Graph.from_affinity.")
    return GraphDistances(np.asarray(points), paths, far, graph.metric)


def _norms(gaps: Any) -> Any:
    """Norms along the last axis of a tensor, with a zero gradient at zero."""
    torch = require("torch", "torch")
    squares = (gaps * gaps).sum(dim=-1)
    zero = squares == 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, squares).sqrt())
