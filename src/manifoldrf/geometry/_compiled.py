"""Compiled loops of the geometry stage: farthest points, searches along a surface.

Plain functions on contiguous arrays (int64 indices, float64 values); the callers validate.
"""

import heapq
from typing import Any, NamedTuple

import numpy as np

from manifoldrf._compiling import compiled


class _Pyramid(NamedTuple):
    """Boxes over a k-d tree's leaf order: a heap of nodes, leaves last, the root at position 1."""

    low: Any  # (2 width, d) corners of the boxes
    high: Any  # (2 width, d)
    far: Any  # (2 width,) largest squared distance to the selection inside the box
    who: Any  # (2 width,) the point at that distance
    nearest: Any  # (N,) squared distance of each point to the selection


@compiled()
def farthest_points(points, order, leaf, n_select, first):  # type: ignore[no-untyped-def]
    """Greedy farthest points, exact, with a pyramid of bounding boxes.

    A point can only come closer to the selection if its box lies nearer to the new point than the farthest
    of its members lies to the selection, so most boxes are skipped: O(log N) boxes per selected point.

    Parameters
    ----------
    points : float64 (N, d)
    order : int64 (N,), positions sorted so that neighbours in space stand close together
    leaf : int, points per leaf
    n_select : int, at most N
    first : int, position of the first selected point

    Returns
    -------
    selected : int64 (n_select,), in order of selection
    radii : float64 (n_select,), distance of each to those selected before it (inf for the first)
    """
    pyramid = _build_pyramid(points, order, leaf)
    selected = np.zeros(n_select, np.int64)
    radii = np.zeros(n_select)
    stack = np.zeros(192, np.int64)  # three entries a level; 64 levels hold any array
    current, current_far = first, np.inf
    for step in range(n_select):
        selected[step] = current
        radii[step] = np.sqrt(current_far)
        _select(points, order, leaf, current, pyramid, stack)
        current, current_far = pyramid.who[1], pyramid.far[1]
    return selected, radii


@compiled()
def _build_pyramid(points, order, leaf):  # type: ignore[no-untyped-def]
    """Bounding boxes of the leaves and of all pairs above them, every distance still infinite."""
    n, d = points.shape
    n_leaves = (n + leaf - 1) // leaf
    width = 1
    while width < n_leaves:
        width *= 2
    low = np.full((2 * width, d), np.inf)
    high = np.full((2 * width, d), -np.inf)
    far = np.full(2 * width, -1.0)  # boxes without points are never farthest
    who = np.zeros(2 * width, np.int64)
    for s in range(n):
        node = width + s // leaf
        far[node] = np.inf
        for c in range(d):
            low[node, c] = min(low[node, c], points[order[s], c])
            high[node, c] = max(high[node, c], points[order[s], c])
    for node in range(width - 1, 0, -1):
        for c in range(d):
            low[node, c] = min(low[2 * node, c], low[2 * node + 1, c])
            high[node, c] = max(high[2 * node, c], high[2 * node + 1, c])
        far[node] = max(far[2 * node], far[2 * node + 1])
    return _Pyramid(low, high, far, who, np.full(n, np.inf))


@compiled()
def _select(points, order, leaf, new, pyramid, stack):  # type: ignore[no-untyped-def]
    """Lower the distances that the new point improves, and repair the pyramid above them."""
    width = pyramid.far.shape[0] // 2
    stack[0] = 1
    top = 1
    while top > 0:
        top -= 1
        node = stack[top]
        if node < 0:  # on the way up: both children are done
            _pull(-node, pyramid.far, pyramid.who)
        elif _box_distance(points[new], node, pyramid) > pyramid.far[node]:
            continue
        elif node < width:
            stack[top] = -node
            stack[top + 1] = 2 * node
            stack[top + 2] = 2 * node + 1
            top += 3
        else:
            _scan_leaf(points, order[(node - width) * leaf : (node - width + 1) * leaf], node, new, pyramid)


@compiled()
def _pull(node, far, who):  # type: ignore[no-untyped-def]
    """Largest distance and its owner from the children; ties go to the smaller index."""
    left, right = 2 * node, 2 * node + 1
    take_left = far[left] > far[right] or (far[left] == far[right] and who[left] < who[right])
    child = left if take_left else right
    far[node] = far[child]
    who[node] = who[child]


@compiled()
def _box_distance(x, node, pyramid):  # type: ignore[no-untyped-def]
    """Squared distance from a point to a box."""
    total = 0.0
    for c in range(x.shape[0]):
        gap = max(pyramid.low[node, c] - x[c], x[c] - pyramid.high[node, c], 0.0)
        total += gap * gap
    return total


@compiled()
def _scan_leaf(points, members, node, new, pyramid):  # type: ignore[no-untyped-def]
    """Distances of one leaf's points to the selection, and the farthest of them."""
    best, owner = -2.0, -1
    for i in members:
        distance = 0.0
        for c in range(points.shape[1]):
            gap = points[i, c] - points[new, c]
            distance += gap * gap
        pyramid.nearest[i] = min(pyramid.nearest[i], distance)
        if i == new:
            pyramid.nearest[i] = -1.0  # selected: never again, even among equal points
        if pyramid.nearest[i] > best or (pyramid.nearest[i] == best and i < owner):
            best, owner = pyramid.nearest[i], i
    pyramid.far[node] = best
    pyramid.who[node] = owner


@compiled()
def ball_along_edges(indptr, indices, lengths, sources, limit):  # type: ignore[no-untyped-def]
    """All nodes within ``limit`` of each source along the edges (Dijkstra cut at the limit).

    Returns
    -------
    counts : int64 (len(sources),)
    nodes : int64 (sum of counts,), the nodes of one source after the other, itself first
    distances : float64 (sum of counts,)
    """
    best = np.full(indptr.shape[0] - 1, np.inf)
    counts = np.zeros(sources.shape[0], np.int64)
    # Empty, but of a type the compiler can see. (numba 0.68 miscompiles empty comprehensions in longer functions.)
    nodes = [np.int64(0)][:0]
    distances = [0.0][:0]
    for s in range(sources.shape[0]):
        begin = len(nodes)
        _settle(indptr, indices, lengths, limit, np.int64(sources[s]), best, nodes, distances)
        counts[s] = len(nodes) - begin
        for position in range(begin, len(nodes)):
            best[nodes[position]] = np.inf
    return counts, np.array(nodes), np.array(distances)


@compiled()
def _settle(indptr, indices, lengths, limit, source, best, nodes, distances):  # type: ignore[no-untyped-def]
    """Append the nodes around one source, nearest first; ``best`` keeps their distances until it is reset."""
    best[source] = 0.0
    heap = [(0.0, source)]
    while len(heap) > 0:
        distance, v = heapq.heappop(heap)
        if distance > best[v]:
            continue  # an older, longer entry of a node already settled
        nodes.append(v)
        distances.append(distance)
        for e in range(indptr[v], indptr[v + 1]):
            reached = distance + lengths[e]
            w = np.int64(indices[e])
            if reached <= limit and reached < best[w]:
                best[w] = reached
                heapq.heappush(heap, (reached, w))
