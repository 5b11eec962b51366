"""Compiled loops that choose anchors and assign nodes to them, in space and along the edges of a graph.

Plain functions on contiguous arrays (int64 indices, float64 values); the callers validate.
"""

import heapq
from typing import Any, NamedTuple

import numpy as np

from manifoldrf._compiling import compiled
from manifoldrf.geometry._compiled import _build_pyramid, _select

_TAKEN = -1.0  # stands for the distance of a node that is chosen already: never again the farthest


class Edges(NamedTuple):
    """A graph as the searches need it: CSR with lengths for values."""

    indptr: Any  # (N + 1,)
    indices: Any  # (n_edges,)
    lengths: Any  # (n_edges,) positive


class Sweep(NamedTuple):
    """How many nodes to choose, and how."""

    n_select: Any  # how many in all
    n_exact: Any  # the first so many are exact farthest points
    visits: Any  # (N,) all nodes in the order in which the sweeps look at them
    shrink: Any  # radius of a sweep over the distance of the farthest node before it, below 1


@compiled()
def select_along_edges(edges, nearest, seeds, plan):  # type: ignore[no-untyped-def]
    """Choose the seeds, then farthest nodes along the edges, then greedy independent sets of shrinking radius.

    A search from a new node enters only nodes that come closer to the selection by it. The farthest node is the top
    of a heap whose entries are corrected when they come up: distances only fall.

    Parameters
    ----------
    edges : Edges
    nearest : float64 (N,)
        Infinite; -1 for nodes that must not be chosen. Changed: distance of each node to the selection, -1 for
        chosen ones.
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
    # Empty, but of a type the compiler can see. (numba 0.68 miscompiles empty comprehensions in longer functions.)
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
    """A share of the largest distance; below zero where all nodes left coincide with chosen ones."""
    return shrink * farthest if farthest > 0.0 else 0.5 * _TAKEN


@compiled()
def _approach(edges, nearest, source):  # type: ignore[no-untyped-def]
    """Lower the distances that a new node improves: Dijkstra that enters no other nodes."""
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
    order : int64 (N,), positions sorted so that neighbours in space stand close together
    leaf : int, points per leaf of the search pyramid
    first : int, position of the first point
    plan : Sweep, with n_select at most N

    Returns
    -------
    selected : int64 (n_select,), in order of selection
    """
    pyramid = _build_pyramid(points, order, leaf)
    selected = np.zeros(plan.n_select, np.int64)
    stack = np.zeros(192, np.int64)  # three entries a level; 64 levels hold any array
    selected[0] = first
    _select(points, order, leaf, first, pyramid, stack)
    count = 1
    while count < min(plan.n_select, plan.n_exact):
        selected[count] = pyramid.who[1]
        _select(points, order, leaf, pyramid.who[1], pyramid, stack)
        count += 1
    while count < plan.n_select:
        radius = _sweep_radius(pyramid.far[1], plan.shrink**2)  # distances are squared here
        for v in plan.visits:
            if pyramid.nearest[v] > radius and count < plan.n_select:
                selected[count] = v
                count += 1
                _select(points, order, leaf, v, pyramid, stack)
    return selected


@compiled()
def nearest_along_edges(edges, sources):  # type: ignore[no-untyped-def]
    """The source nearest to every node along the edges (Dijkstra from all sources at once).

    Parameters
    ----------
    edges : Edges
    sources : int64 (n_sources,), all different

    Returns
    -------
    owners : int64 (N,), positions in ``sources``, the smaller of equally near ones; -1 where no source is in reach
    distances : float64 (N,), infinite there
    """
    n_nodes = edges.indptr.shape[0] - 1
    owners = np.full(n_nodes, np.int64(-1))
    distances = np.full(n_nodes, np.inf)
    heap = [(0.0, np.int64(0), np.int64(0))][:0]  # (distance, owner, node)
    for position in range(sources.shape[0]):
        v = np.int64(sources[position])
        owners[v] = position
        distances[v] = 0.0
        heapq.heappush(heap, (0.0, np.int64(position), v))
    while len(heap) > 0:
        distance, owner, v = heapq.heappop(heap)
        if distance > distances[v] or owner != owners[v]:
            continue  # an older entry
        for e in range(edges.indptr[v], edges.indptr[v + 1]):
            reached = distance + edges.lengths[e]
            w = np.int64(edges.indices[e])
            if reached < distances[w] or (reached == distances[w] and owner < owners[w]):
                distances[w] = reached
                owners[w] = owner
                heapq.heappush(heap, (reached, owner, w))
    return owners, distances
