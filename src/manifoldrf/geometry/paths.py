"""Farthest nodes and nearest sources of a graph, along its edges or in space.

The compiled loops at the end work on contiguous arrays (int64 indices, float64 values) and rely on their callers
for checks.
"""

import heapq
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csgraph
from scipy.spatial import cKDTree

from manifoldrf._compiling import compiled
from manifoldrf._random import generator
from manifoldrf._validation import FloatArray, IntArray, check_integer
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.sampling import build_pyramid, select_point, thin

# This many are exact farthest points. The others come from greedy sweeps, which do not search the farthest node.
_EXACT = 10_000
_TAKEN = -1.0  # marks the distance of a node that is chosen already


class Edges(NamedTuple):
    """The edges of a graph for compiled searches: CSR with lengths as values."""

    indptr: Any  # (N + 1,)
    indices: Any  # (n_edges,)
    lengths: Any  # (n_edges,) positive


class Sweep(NamedTuple):
    """How many nodes to choose, and how."""

    n_select: Any  # number of nodes to choose
    n_exact: Any  # number of exact farthest points, which come first
    visits: Any  # (N,) all nodes in the order in which the sweeps visit them
    # Radius of a sweep over the distance of the farthest node before it, and so the least distance of two chosen
    # nodes over the largest gap. On 20,000 random points of the sphere .8 to .95 cost the same.
    shrink: Any = 0.95


def follows_edges(graph: Graph) -> bool:
    """Whether distances are measured along the edges: on meshes, with a metric, with several components."""
    if graph.mesh is not None or graph.metric is not None:
        return True
    return len(np.unique(graph.components[graph.degrees > 0])) > 1


def edges_of(graph: Graph) -> Edges:
    """The edges of a graph with their lengths."""
    lengths = graph.lengths
    return Edges(lengths.indptr.astype(np.int64), lengths.indices.astype(np.int64), lengths.data)


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
    plan = Sweep(count, n_exact, _visits(len(cloud), 1024))
    found = select_in_space(cloud[order], np.arange(len(cloud)), leaf, first, plan)
    selected: IntArray = joined[order[found]]
    return selected


def _along_edges(graph: Graph, joined: IntArray, count: int, n_exact: int) -> IntArray:
    """Farthest points of the joined nodes along the edges."""
    nearest = np.full(graph.n_nodes, _TAKEN)
    nearest[joined] = np.inf
    plan = Sweep(count, n_exact, _visits(graph.n_nodes, 1))
    selected: IntArray = select_along_edges(edges_of(graph), nearest, _seeds(graph, joined)[:count], plan)
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


@compiled()
def select_along_edges(edges, nearest, seeds, plan):  # type: ignore[no-untyped-def]
    """Choose the seeds, then farthest nodes along the edges, then greedy independent sets of shrinking radius.

    A search from a new node visits only nodes whose distance to the selection it reduces. The farthest node is the
    top of a heap, whose entries are updated when they are popped: distances only decrease.

    Parameters
    ----------
    edges : Edges
    nearest : float64 (N,)
        Infinite; -1 for nodes that must not be chosen. Overwritten with the distance of each node to the
        selection, -1 for chosen nodes.
    seeds : int64 (n_seeds,), one in every component that has nodes to choose, at most n_select
    plan : Sweep, with n_select at most the number of nodes to choose from

    Returns
    -------
    selected : int64 (n_select,), in order of selection
    """
    selected = np.zeros(plan.n_select, np.int64)
    count = 0
    for seed in seeds:
        selected[count] = seed
        count += 1
        _approach(edges, nearest, seed)
    count = _add_farthest(edges, nearest, selected, count, min(plan.n_select, plan.n_exact))
    while count < plan.n_select:
        radius = _sweep_radius(nearest.max(), plan.shrink)
        for v in plan.visits:
            if nearest[v] > radius and count < plan.n_select:
                selected[count] = v
                count += 1
                _approach(edges, nearest, v)
    return selected


@compiled()
def _add_farthest(edges, nearest, selected, count, wanted):  # type: ignore[no-untyped-def]
    """Append farthest nodes to the first ``count`` selected ones up to ``wanted``; return their number."""
    # An empty list of a known type. (numba 0.68 miscompiles empty comprehensions in longer functions.)
    heap = [(0.0, np.int64(0))][:0]
    for v in range(nearest.shape[0]):
        if nearest[v] != _TAKEN:
            heap.append((-nearest[v], np.int64(v)))
    heapq.heapify(heap)
    while count < wanted:
        negative, node = heapq.heappop(heap)
        if -negative > nearest[node]:  # the entry is old
            if nearest[node] != _TAKEN:
                heapq.heappush(heap, (-nearest[node], node))
            continue
        selected[count] = node
        count += 1
        _approach(edges, nearest, node)
    return count


@compiled()
def _sweep_radius(farthest, shrink):  # type: ignore[no-untyped-def]
    """A share of the largest distance; negative if all remaining nodes coincide with chosen ones."""
    return shrink * farthest if farthest > 0.0 else 0.5 * _TAKEN


@compiled()
def _approach(edges, nearest, source):  # type: ignore[no-untyped-def]
    """Lower the distances that a new node improves: Dijkstra that visits no other nodes."""
    nearest[source] = _TAKEN
    heap = [(0.0, np.int64(source))]
    while len(heap) > 0:
        distance, v = heapq.heappop(heap)
        if distance > max(nearest[v], 0.0):
            continue  # an older, longer entry
        for e in range(edges.indptr[v], edges.indptr[v + 1]):
            reached = distance + edges.lengths[e]
            w = np.int64(edges.indices[e])
            if reached < nearest[w]:
                nearest[w] = reached
                heapq.heappush(heap, (reached, w))


@compiled()
def paths_along_edges(edges, sources):  # type: ignore[no-untyped-def]
    """Lengths of the shortest paths from each source to every node, float64 (n_sources, N), infinite if none."""
    result = np.full((sources.shape[0], edges.indptr.shape[0] - 1), np.inf)
    for s in range(sources.shape[0]):
        _approach(edges, result[s], sources[s])
        result[s, sources[s]] = 0.0
    return result


@compiled()
def select_in_space(points, order, leaf, first, plan):  # type: ignore[no-untyped-def]
    """Farthest points, then greedy independent sets of shrinking radius, in Euclidean distance.

    Parameters
    ----------
    points : float64 (N, d)
    order : int64 (N,), positions sorted so that neighbours in space are close together
    leaf : int, points per leaf of the search pyramid
    first : int, position of the first point
    plan : Sweep, with n_select at most N

    Returns
    -------
    selected : int64 (n_select,), in order of selection
    """
    pyramid = build_pyramid(points, order, leaf)
    selected = np.zeros(plan.n_select, np.int64)
    stack = np.zeros(192, np.int64)  # three entries a level; 64 levels hold any array
    selected[0] = first
    select_point(points, order, leaf, first, pyramid, stack)
    count = 1
    while count < min(plan.n_select, plan.n_exact):
        selected[count] = pyramid.who[1]
        select_point(points, order, leaf, pyramid.who[1], pyramid, stack)
        count += 1
    while count < plan.n_select:
        radius = _sweep_radius(pyramid.far[1], plan.shrink**2)  # distances are squared here
        for v in plan.visits:
            if pyramid.nearest[v] > radius and count < plan.n_select:
                selected[count] = v
                count += 1
                select_point(points, order, leaf, v, pyramid, stack)
    return selected
