"""Anchors: the nodes at which a field is read.

Farthest points are the most even choice. Draws from a density make unbiased features, at a far larger error.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial import cKDTree

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
from manifoldrf.fields._selection import Edges, Sweep, select_along_edges, select_in_space
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.sampling import thin

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
