"""Farthest nodes and nearest sources of a graph, along its edges or in space."""

import numpy as np
from scipy.sparse import csgraph
from scipy.spatial import cKDTree

from manifoldrf._native import loops
from manifoldrf._random import generator
from manifoldrf._validation import FloatArray, IntArray, check_integer
from manifoldrf.geometry.csr import csr_parts
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.sampling import SHRINK, farthest_points, thin

# This many are exact farthest points. The others come from greedy sweeps, which do not search the farthest node.
_EXACT = 10_000
_TAKEN = -1.0  # marks the distance of a node that is chosen already


def follows_edges(graph: Graph) -> bool:
    """Whether distances are measured along the edges: on meshes, with a metric, with several components."""
    if graph.mesh is not None or graph.metric is not None:
        return True
    return len(np.unique(graph.components[graph.degrees > 0])) > 1


def farthest_nodes(graph: Graph, m: int, n_exact: int = _EXACT) -> IntArray:
    """Choose ``m`` nodes one by one, each the farthest from the nodes chosen before it.

    Distances are Euclidean in a connected cloud, else shortest paths along the edges (:func:`follows_edges`). Nodes
    of other components are infinitely far away, so every component gets a node, the largest first.

    The first ``n_exact`` are exact: no two of them are closer to each other than the farthest node is to them.
    Further ones are found by sweeps over all nodes in a fixed, pseudorandom order, which keep every node that is
    farther than .95 times the largest distance before the sweep from all kept ones.

    Returns
    -------
    nodes : int64 array of shape (m,)
        Different nodes in order of choice, so that every prefix is itself such a choice. The first is the node
        farthest from the centroid of its component. Nodes without edges come last.

    Examples
    --------
    >>> from manifoldrf import Sphere, knn_graph
    >>> from manifoldrf.geometry.paths import farthest_nodes
    >>> len(set(farthest_nodes(knn_graph(Sphere().grid(500)), 50).tolist()))
    50
    """
    check_integer(m, "m", 1, graph.n_nodes)
    joined = np.flatnonzero(graph.degrees > 0)
    count = min(m, len(joined))
    isolated = np.flatnonzero(graph.degrees == 0)[: m - count]
    if count == 0:
        return isolated
    chosen = (_along_edges if follows_edges(graph) else _in_space)(graph, joined, count, n_exact)
    return np.concatenate([chosen, isolated])


def nearest_sources(graph: Graph, sources: IntArray) -> IntArray:
    """Position in ``sources`` of the source nearest to every node; -1 if none is reachable."""
    if not follows_edges(graph):
        return np.asarray(cKDTree(graph.positions[sources]).query(graph.positions)[1], dtype=np.int64)
    found = csgraph.dijkstra(graph.lengths, indices=sources, min_only=True, return_predecessors=True)[2]
    places = np.full(graph.n_nodes + 1, -1)  # nodes without a source are marked by -9999
    places[sources] = np.arange(len(sources))
    return places[np.where(found >= 0, found, graph.n_nodes)]


def _in_space(graph: Graph, joined: IntArray, count: int, n_exact: int) -> IntArray:
    """Farthest points of the joined nodes in Euclidean distance."""
    cloud = np.ascontiguousarray(graph.positions[joined])
    if count <= n_exact:
        return joined[thin(cloud, count)]
    gaps = np.linalg.norm(cloud - cloud.mean(axis=0), axis=1)
    # Neighbours in space are stored next to each other. A tree without medians is built in a third of the time, and
    # its order is as good.
    leaf = 32
    order = cKDTree(cloud, leafsize=leaf, balanced_tree=False, compact_nodes=False).indices.astype(np.int64)
    first = int(np.flatnonzero(order == np.argmax(gaps))[0])
    # Sweeps visit 1024 neighbours before they turn to another place: at a million points that takes a third less
    # time than visits in random order, because the data are in the cache.
    visits = _visits(len(cloud), 1024)
    places = np.arange(len(cloud))
    found = farthest_points(cloud[order], places, leaf, count, first, n_exact=n_exact, visits=visits)[0]
    selected: IntArray = joined[order[found]]
    return selected


def _along_edges(graph: Graph, joined: IntArray, count: int, n_exact: int) -> IntArray:
    """Farthest points of the joined nodes along the edges."""
    nearest = np.full(graph.n_nodes, _TAKEN)
    nearest[joined] = np.inf
    selected = np.zeros(count, np.int64)
    given = nearest, _seeds(graph, joined)[:count], n_exact, _visits(graph.n_nodes, 1), SHRINK, selected
    loops.farthest_along_edges(*csr_parts(graph.lengths), *given)
    return selected


def _visits(n: int, patch: int) -> IntArray:
    """All positions, patch by patch, in a fixed pseudorandom order of patches and of positions in them."""
    rng = generator(0, "anchor sweeps")
    whole = n - n % patch
    patches = rng.permuted(np.arange(whole, dtype=np.int64).reshape(-1, patch), axis=1)
    return np.concatenate([patches[rng.permutation(len(patches))].ravel(), whole + rng.permutation(n - whole)])


def _seeds(graph: Graph, joined: IntArray) -> IntArray:
    """For every component the node farthest from its centroid; large components first."""
    points = graph.positions[joined]
    pieces = np.unique(graph.components[joined], return_inverse=True)[1]
    sizes = np.bincount(pieces)
    centroids = np.stack([np.bincount(pieces, weights=column) for column in points.T], axis=1) / sizes[:, None]
    gaps: FloatArray = np.linalg.norm(points - centroids[pieces], axis=1)
    order = np.lexsort((joined, -gaps, pieces))  # within a component the farthest first
    heads = joined[order[np.searchsorted(pieces[order], np.arange(len(sizes)))]]
    seeds: IntArray = heads[np.argsort(-sizes, kind="stable")]  # components are numbered by their smallest node
    return seeds
