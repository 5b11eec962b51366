"""Compiled loops that choose anchors and assign nodes to them, in space and along the edges of a graph.

Plain functions on contiguous arrays (int64 indices, float64 values); the callers validate.
"""

import heapq
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree

from manifoldrf._compiling import compiled
from manifoldrf._random import generator
from manifoldrf._validation import (
    NONNEGATIVE,
    POSITIVE,
    FloatArray,
    IntArray,
    check_integer,
    check_real,
    check_vector,
    reject,
)
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.sampling import _build_pyramid, _select, thin

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


# So many are exact farthest points; the others come from greedy sweeps, which need no search for the farthest node.
_EXACT = 10_000
# Radius of a sweep over the distance of the farthest node before it, and so the least distance of two anchors over
# the largest gap: .95 with .95, .90 with .9, .80 with .8, measured; exact farthest points have 1. On 20,000 random
# points of the sphere all of these cost the same.
_SHRINK = 0.95
_LEAF = 32  # points per leaf of the search pyramid; 16 to 64 cost the same within 10 %
# Sweeps in space look at so many neighbours before they turn to another place. At a million points that takes a
# third less time than leaps from point to point: what they read is at hand. Gaps are the same to three digits.
_PATCH = 1024


def farthest_anchors(graph: Graph, m: int) -> IntArray:
    """Choose ``m`` nodes, each the one farthest from those chosen before it.

    Distances are Euclidean in a cloud in one piece. On a mesh, with a metric and where the graph falls into pieces
    they are shortest paths along the edges: nodes of another piece are infinitely far, so every piece gets an
    anchor (the larger pieces first, if there are more pieces than anchors).

    Up to 10,000 anchors the choice is exact: no two anchors are nearer to each other than the farthest node is to
    its anchor. Those after are found by sweeps over all nodes in a fixed order that looks random. A sweep keeps
    every node farther than r from all kept ones, with r = .95 times the largest distance before the sweep. No two
    anchors are then nearer to each other than .95 times the distance of the farthest node to its anchor.

    Parameters
    ----------
    graph : Graph
        With points.
    m : int
        Number of anchors, in [1, n_nodes].

    Returns
    -------
    anchors : int64 array of shape (m,)
        Different nodes, in order of choice: every prefix is itself such a choice.
        The first is the node farthest from the centroid of its piece; ties go to the smaller index, or where there
        are more than 10,000 anchors to the first in a spatial order. Nodes without
        any edge come last, where all others are chosen already.

    Examples
    --------
    >>> from manifoldrf import Sphere, knn_graph
    >>> from manifoldrf.fields.anchors import farthest_anchors
    >>> graph = knn_graph(Sphere().grid(500))
    >>> len(set(farthest_anchors(graph, 50).tolist()))
    50
    """
    return _farthest(graph, check_integer(m, "m", 1, graph.n_nodes), _EXACT)


def _farthest(graph: Graph, m: int, n_exact: int) -> IntArray:
    """The same, with the number of exact farthest points to choose."""
    joined = np.flatnonzero(graph.degrees > 0)
    count = min(m, len(joined))
    chosen = joined[:0]
    if count > 0:
        chosen = (_along_edges if follows_edges(graph) else _in_space)(graph, joined, count, n_exact)
    isolated = np.flatnonzero(graph.degrees == 0)[: m - count]
    return np.concatenate([chosen, isolated])


def follows_edges(graph: Graph) -> bool:
    """Whether distances between nodes are those along the edges: on meshes, with a metric, between pieces."""
    if graph.mesh is not None or graph.metric is not None:
        return True
    return len(np.unique(graph.components[graph.degrees > 0])) > 1


def edges_of(graph: Graph) -> Edges:
    """The edges of a graph with their lengths, for compiled searches."""
    lengths = graph.lengths
    return Edges(lengths.indptr.astype(np.int64), lengths.indices.astype(np.int64), lengths.data)


def _in_space(graph: Graph, joined: IntArray, count: int, n_exact: int) -> IntArray:
    """Farthest points of the joined nodes in Euclidean distance."""
    cloud = np.ascontiguousarray(_points(graph)[joined])
    if count <= n_exact:
        return joined[thin(cloud, count)]
    gaps = np.linalg.norm(cloud - cloud.mean(axis=0), axis=1)
    # Points that are neighbours in space are looked at together: in memory, too, they stand side by side.
    # A tree without medians is built in a third of the time, and its order serves as well.
    tree = cKDTree(cloud, leafsize=_LEAF, balanced_tree=False, compact_nodes=False)
    order = tree.indices.astype(np.int64)
    first = int(np.flatnonzero(order == np.argmax(gaps))[0])
    plan = Sweep(count, n_exact, _visits(len(cloud), _PATCH), _SHRINK)
    found = select_in_space(cloud[order], np.arange(len(cloud)), _LEAF, first, plan)
    selected: IntArray = joined[order[found]]
    return selected


def _along_edges(graph: Graph, joined: IntArray, count: int, n_exact: int) -> IntArray:
    """Farthest points of the joined nodes along the edges."""
    nearest = np.full(graph.n_nodes, -1.0)
    nearest[joined] = np.inf
    plan = Sweep(count, n_exact, _visits(graph.n_nodes, 1), _SHRINK)
    seeds = _seeds(graph, joined)[:count]
    selected: IntArray = select_along_edges(edges_of(graph), nearest, seeds, plan)
    return selected


def _visits(n: int, patch: int) -> IntArray:
    """All positions, patch by patch, patches and positions in an order that looks random, always the same."""
    rng = generator(0, "anchor sweeps")
    whole = n - n % patch
    patches = rng.permuted(np.arange(whole, dtype=np.int64).reshape(-1, patch), axis=1)
    return np.concatenate([patches[rng.permutation(len(patches))].ravel(), whole + rng.permutation(n - whole)])


def _seeds(graph: Graph, joined: IntArray) -> IntArray:
    """In every piece the node farthest from the centroid of the piece; those of large pieces first."""
    points = _points(graph)[joined]
    pieces = np.unique(graph.components[joined], return_inverse=True)[1]
    sizes = np.bincount(pieces)
    centroids = np.stack([np.bincount(pieces, weights=column) for column in points.T], axis=1) / sizes[:, None]
    gaps = np.linalg.norm(points - centroids[pieces], axis=1)
    order = np.lexsort((joined, -gaps, pieces))  # within a piece the farthest first
    heads = joined[order[np.searchsorted(pieces[order], np.arange(len(sizes)))]]
    seeds: IntArray = heads[np.argsort(-sizes, kind="stable")]  # pieces are numbered by their smallest node
    return seeds


def _points(graph: Graph) -> FloatArray:
    if graph.points is None:
        reject("graph", "a graph with points", graph)
    return graph.points


def iid_anchors(n_nodes: int, m: int, density: ArrayLike | None, rng: np.random.Generator) -> IntArray:
    """Draw ``m`` nodes from a density, independently and with replacement.

    Parameters
    ----------
    n_nodes : int
    m : int
        Number of draws, at least 1; it may exceed the number of nodes.
    density : array-like of shape (n_nodes,), optional
        Nonnegative, not all zero; divided by its sum. None: all nodes alike.
    rng : numpy Generator

    Returns
    -------
    anchors : int64 array of shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.fields.anchors import iid_anchors
    >>> iid_anchors(3, 4, [0, 1, 0], np.random.default_rng(0)).tolist()
    [1, 1, 1, 1]
    """
    count = check_integer(m, "m", 1)
    if density is None:
        return rng.integers(0, n_nodes, size=count, dtype=np.int64)
    drawn: IntArray = rng.choice(n_nodes, size=count, p=normalised_density(density, n_nodes)).astype(np.int64)
    return drawn


def normalised_density(density: ArrayLike, n_nodes: int, name: str = "density") -> FloatArray:
    """A nonnegative vector divided by its sum."""
    values = check_vector(density, name, n_nodes, NONNEGATIVE)
    largest = float(values.max())
    if largest == 0:
        reject(name, "positive at one node at least", "zeros only")
    scaled = values / largest  # sums of huge or tiny entries would overflow or vanish
    share: FloatArray = scaled / scaled.sum()
    return share


def all_anchors(n_nodes: int) -> IntArray:
    """Every node, in order."""
    return np.arange(n_nodes, dtype=np.int64)


def spacing_of(volume: float, m: int, dim: int) -> float:
    """Distance between neighbours among ``m`` even anchors: (volume / m)^(1 / dim).

    Examples
    --------
    >>> from manifoldrf.fields.anchors import spacing_of
    >>> spacing_of(4.0, 16, 2)
    0.5
    """
    total = check_real(volume, "volume", POSITIVE)
    return float((total / check_integer(m, "m", 1)) ** (1 / check_integer(dim, "dim", 1)))


def anchors_needed(volume: float, width: float, dim: int, ratio: float = 1.0) -> int:
    """Fewest anchors whose spacing is at most ``ratio`` widths.

    Parameters
    ----------
    volume : float
        Of the space, as :func:`spacing_of` takes it.
    width : float
        Of a signature: its standard deviation along one axis.
    dim : int
        Intrinsic dimension.
    ratio : float, default=1.0
        Features of the heat kernel on surfaces are 5 % off at 1 (2 % with fitted weights), 12 % at 1.5.

    Examples
    --------
    >>> from manifoldrf.fields.anchors import anchors_needed
    >>> anchors_needed(4.0, 0.5, 2)
    16
    """
    total = check_real(volume, "volume", POSITIVE)
    reach = check_real(ratio, "ratio", POSITIVE) * check_real(width, "width", POSITIVE)
    check_integer(dim, "dim", 1)
    with np.errstate(over="ignore", divide="ignore"):
        wanted = float(np.float64(total ** (1 / dim) / reach) ** dim)
    if not wanted < 2**62:
        reject("width", "wide enough that a countable number of anchors resolves it", width)
    return max(1, int(np.ceil(wanted * (1 - 1e-12))))  # rounding asks for no anchor more
