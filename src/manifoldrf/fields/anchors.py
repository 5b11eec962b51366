"""Anchors and their weights: the quadrature that replaces the sum over all nodes.

sum_l w_l h(x, w_l) h(y, w_l) approximates the sum over all nodes of mu_j h(x, j) h(y, j). Weights are nonnegative,
so features sqrt(w_l) h(x, w_l) stay real, nonnegative and bounded. The compiled loops at the end work on contiguous
arrays (int64 indices, float64 values) and rely on their callers for checks.
"""

import heapq
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, optimize
from scipy.spatial import cKDTree

from manifoldrf._compiling import compiled
from manifoldrf._random import generator
from manifoldrf._validation import (
    NONNEGATIVE,
    POSITIVE,
    FloatArray,
    IntArray,
    check_integer,
    check_option,
    check_real,
    check_vector,
    reject,
)
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.neighbors import edge_lengths
from manifoldrf.geometry.sampling import build_pyramid, select_point, thin
from manifoldrf.metrics import frobenius

METHODS = ("auto", "nnls", "unity", "voronoi", "uniform")

# Spacing of the anchors over the width of a signature. Sums over anchors are off by about .02 at the first, with
# which the number of anchors is chosen, and by .03 to .05 or more above the second.
GOOD_SPACING, WIDEST_SPACING = 0.8, 1.2

# Squares of an m x m matrix: 4096 anchors take 128 MiB and some seconds.
LARGEST_NNLS = 4096
# Least squares are not tried if anchors are more than this many widths apart: the fit then follows the samples, not
# the kernel (torus, 1.75 widths, 1000 random samples: .21 at new points where Voronoi cells give .17). With evenly
# spread samples it still gains at 1.24 widths (torus, 512 anchors: .042, unity .050, Voronoi .081).
WIDEST_NNLS = 1.6
# Share of the mean diagonal of the normal matrix. Sphere and torus, errors at new points with 1e-2 / 1e-3 / 3e-4 /
# 1e-5: .0201 / .0196 / .0195 / .0195 (512 anchors on the sphere), .0075 / .0053 / .0050 / .0050 (1024, torus),
# .0032 / .0014 / .0009 / .0004 (2048, torus). Smaller values gain little and overfit if there are few random
# samples.
_RIDGE = 3e-4
# The multiplicative fit of unity gains slowly (sphere, 512 anchors: .045 after 5 rounds, .038 after 20, .031 after
# 100, .029 after 200, .026 after 1000); a round costs two sparse products.
_UNITY_ROUNDS = 200
_PATIENCE = 5  # consecutive exchanges of blocks that may fail to reduce the violations
# This many are exact farthest points. The others come from greedy sweeps, which do not search the farthest node.
_EXACT = 10_000
# Radius of a sweep over the distance of the farthest node before it, and so the least distance of two anchors over
# the largest gap: .95 with .95, .90 with .9, .80 with .8, measured; exact farthest points have 1. On 20,000 random
# points of the sphere all of these cost the same.
_SHRINK = 0.95
_LEAF = 32  # points per leaf of the search pyramid; 16 to 64 cost the same within 10 %
# Sweeps in space visit this many neighbours before they turn to another place. At a million points that takes a
# third less time than visits in random order, because the data are in the cache. Gaps agree to three digits.
_PATCH = 1024
# 64 and 256 anchors among 1000 random points of square, Moebius strip and uneven sphere, two draws: .83 of the
# error of farthest points after one round on average, .81 after ten; a mesh of a square .66 and .60.
_MEDOID_ROUNDS = 10
_PAIRS_AT_ONCE = 2**20  # distances along a metric: 8 MB
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
    shrink: Any  # radius of a sweep over the distance of the farthest node before it, below 1


def farthest_anchors(graph: Graph, m: int) -> IntArray:
    """Choose ``m`` nodes one by one, each the farthest from the nodes chosen before it.

    Distances are Euclidean in a connected cloud. On a mesh, with a metric and in a graph with several components
    they are shortest paths along the edges. Nodes of other components are infinitely far away, so every component
    gets an anchor (the largest first, if there are more components than anchors).

    Up to 10,000 anchors the choice is exact: no two anchors are closer to each other than the farthest node is to
    its anchor. Further anchors are found by sweeps over all nodes in a fixed, pseudorandom order. A sweep keeps
    every node that is farther than r from all kept ones, with r = .95 times the largest distance before the sweep.
    No two anchors are then closer to each other than .95 times the distance of the farthest node to its anchor.

    Parameters
    ----------
    graph : Graph
        With points.
    m : int
        Number of anchors, in [1, n_nodes].

    Returns
    -------
    anchors : int64 array of shape (m,)
        Different nodes in order of choice, so that every prefix is itself such a choice. The first is the node
        farthest from the centroid of its component. Ties go to the smaller index or, with more than 10,000 anchors,
        to the first in a spatial order. Nodes without edges come last.

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
    """Farthest nodes, of which the first ``n_exact`` are exact."""
    joined = np.flatnonzero(graph.degrees > 0)
    count = min(m, len(joined))
    chosen = joined[:0]
    if count > 0:
        chosen = (_along_edges if follows_edges(graph) else _in_space)(graph, joined, count, n_exact)
    isolated = np.flatnonzero(graph.degrees == 0)[: m - count]
    return np.concatenate([chosen, isolated])


def farthest_vertices(mesh: TriangleMesh, m: int) -> IntArray:
    """At most ``m`` vertices of a mesh, each the farthest along the edges from those chosen before it."""
    graph = Graph(edge_lengths(mesh), mesh.vertices)
    joined = np.flatnonzero(graph.degrees > 0)
    return _along_edges(graph, joined, min(m, len(joined)), _EXACT)


def medoid_anchors(graph: Graph, measure: FloatArray, anchors: IntArray) -> IntArray:
    """Move each of m different anchors to the middle of its cell; the result has different nodes, too.

    The middle is the node of the cell with the least mean squared distance to the cell. Distances are those of the
    metric, if the graph has one, else straight lines. Farthest points lie on the boundary of a space, where half of
    their cell is missing. Anchors without a cell of their own, and those of cells without measure, stay.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Graph
    >>> from manifoldrf.fields.anchors import medoid_anchors
    >>> chain = np.eye(6, k=1) + np.eye(6, k=-1)
    >>> line = Graph.from_affinity(chain, points=np.arange(6.0)[:, None])
    >>> medoid_anchors(line, np.ones(6), np.array([0, 5])).tolist()
    [1, 4]
    """
    for _ in range(_MEDOID_ROUNDS):
        owners = _owners(graph, anchors)
        inside = np.flatnonzero((owners >= 0) & (measure > 0))
        own = owners[inside]
        gaps = _gaps_to_cells(graph, inside, own, measure[inside])
        # An anchor that coincides with another may own nothing, and lies in the cell of the other.
        staying = np.delete(anchors, np.unique(own))
        order = np.lexsort((inside, gaps, own))  # within a cell the node nearest to the middle first
        order = order[~np.isin(inside[order], staying)]
        used, first = np.unique(own[order], return_index=True)
        moved = anchors.copy()
        moved[used] = inside[order[first]]
        if (moved == anchors).all():
            break
        anchors = moved
    return anchors


def _gaps_to_cells(graph: Graph, nodes: IntArray, own: IntArray, mass: FloatArray) -> FloatArray:
    """Distances that order the nodes of each cell by their mean squared distance to the cell."""
    points = _points(graph)[nodes]
    if graph.metric is None:  # the distance to the centre of mass gives the same order
        total = np.bincount(own, mass)
        centres = [np.bincount(own, mass * column)[own] / total[own] for column in points.T]
        return np.asarray(np.linalg.norm(points - np.stack(centres, axis=1), axis=1))
    gaps = np.zeros(len(nodes))
    order = np.argsort(own, kind="stable")
    for cell in np.split(order, np.flatnonzero(np.diff(own[order])) + 1):
        for block in np.array_split(cell, 1 + len(cell) ** 2 // _PAIRS_AT_ONCE):
            gaps[block] = graph.metric.distance(points[block], points[cell]) ** 2 @ mass[cell]
    return gaps


def follows_edges(graph: Graph) -> bool:
    """Whether distances are measured along the edges: on meshes, with a metric, with several components."""
    if graph.mesh is not None or graph.metric is not None:
        return True
    return len(np.unique(graph.components[graph.degrees > 0])) > 1


def edges_of(graph: Graph) -> Edges:
    """The edges of a graph with their lengths."""
    lengths = graph.lengths
    return Edges(lengths.indptr.astype(np.int64), lengths.indices.astype(np.int64), lengths.data)


def _in_space(graph: Graph, joined: IntArray, count: int, n_exact: int) -> IntArray:
    """Farthest points of the joined nodes in Euclidean distance."""
    cloud = np.ascontiguousarray(_points(graph)[joined])
    if count <= n_exact:
        return joined[thin(cloud, count)]
    gaps = np.linalg.norm(cloud - cloud.mean(axis=0), axis=1)
    # Neighbours in space are stored next to each other. A tree without medians is built in a third of the time, and
    # its order is as good.
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
    """All positions, patch by patch, in a fixed pseudorandom order of patches and of positions in them."""
    rng = generator(0, "anchor sweeps")
    whole = n - n % patch
    patches = rng.permuted(np.arange(whole, dtype=np.int64).reshape(-1, patch), axis=1)
    return np.concatenate([patches[rng.permutation(len(patches))].ravel(), whole + rng.permutation(n - whole)])


def _seeds(graph: Graph, joined: IntArray) -> IntArray:
    """For every component the node farthest from its centroid; large components first."""
    points = _points(graph)[joined]
    pieces = np.unique(graph.components[joined], return_inverse=True)[1]
    sizes = np.bincount(pieces)
    centroids = np.stack([np.bincount(pieces, weights=column) for column in points.T], axis=1) / sizes[:, None]
    gaps = np.linalg.norm(points - centroids[pieces], axis=1)
    order = np.lexsort((joined, -gaps, pieces))  # within a component the farthest first
    heads = joined[order[np.searchsorted(pieces[order], np.arange(len(sizes)))]]
    seeds: IntArray = heads[np.argsort(-sizes, kind="stable")]  # components are numbered by their smallest node
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
        Number of draws, at least 1, possibly more than there are nodes.
    density : array-like of shape (n_nodes,), optional
        Nonnegative, not all zero; divided by its sum. Uniform by default.
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
    """Distance between neighbouring anchors, if ``m`` of them are evenly spread: (volume / m)^(1 / dim).

    Examples
    --------
    >>> from manifoldrf.fields.anchors import spacing_of
    >>> spacing_of(4.0, 16, 2)
    0.5
    """
    total = check_real(volume, "volume", POSITIVE)
    return float((total / check_integer(m, "m", 1)) ** (1 / check_integer(dim, "dim", 1)))


def anchors_needed(volume: float, width: float, dim: int, ratio: float = 1.0) -> int:
    """Smallest number of anchors whose spacing is at most ``ratio`` widths.

    Parameters
    ----------
    volume : float
        Of the space, as in :func:`spacing_of`.
    width : float
        Standard deviation of a signature along one axis.
    dim : int
        Intrinsic dimension.
    ratio : float, default=1.0
        On surfaces, features of the heat kernel are 5 % off at 1 (2 % with fitted weights) and 12 % at 1.5.

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
        reject("width", "large enough for a finite number of anchors", width)
    return max(1, int(np.ceil(wanted * (1 - 1e-12))))  # rounding adds no anchor


@dataclass(frozen=True, eq=False)
class Quadrature:
    """Weights of anchors, and how they were found.

    Attributes
    ----------
    weights : array of shape (m,)
        Nonnegative.
    method : str
        The method of these weights.
    table : tuple of (str, float)
        Relative Frobenius error of the kernel between held-out nodes, by method tried.
    """

    weights: FloatArray
    method: str
    table: tuple[tuple[str, float], ...] = ()

    @property
    def error(self) -> float:
        """Error of these weights at held-out nodes; 0 for the plain sum over all nodes."""
        return 0.0 if self.method == "uniform" else min(error for _, error in self.table)


@dataclass(frozen=True, eq=False)
class QuadratureSamples:
    """Nodes at which weights are fitted and compared.

    Evenly spread nodes work best: 500 farthest points are as good as 2000 random ones.

    Attributes
    ----------
    values : CSR array of shape (s, m)
        h(sample, anchor).
    kernel : array of shape (s, s)
        sum over all nodes j of mu_j h(x, j) h(y, j) between the samples.
    held_out : int array
        Positions of the held-out samples, on which methods are compared.
    total : float
        sum over all nodes j of mu_j h(x, j), which is the same for all x: the sum of the signature's coefficients.
    """

    values: Any
    kernel: FloatArray
    held_out: IntArray
    total: float

    def fitting(self) -> "QuadratureSamples":
        """The samples that are not held out."""
        keep = np.setdiff1d(np.arange(self.values.shape[0]), self.held_out)
        return QuadratureSamples(self.values[keep], self.kernel[np.ix_(keep, keep)], keep[:0], self.total)

    def error(self, weights: FloatArray) -> float:
        """Relative Frobenius error of the kernel between held-out samples."""
        rows = self.values[self.held_out].toarray()  # (h, m)
        exact = self.kernel[np.ix_(self.held_out, self.held_out)]
        size = frobenius(exact)
        if size == 0:
            reject("held_out", "samples with a positive kernel", f"{len(self.held_out)} without one")
        return frobenius((rows * weights) @ rows.T - exact) / size


def compare_weights(
    method: str,
    base: FloatArray,
    *,
    samples: QuadratureSamples | None = None,
    ratio: float = 1.0,
    uniform: FloatArray | None = None,
) -> Quadrature:
    """Weights by the given method or, with "auto", by the best one on held-out samples.

    Parameters
    ----------
    method : {"auto", "nnls", "unity", "voronoi", "uniform"}
        "auto" tries "voronoi", "unity" and, for up to 4096 anchors at most 1.6 widths apart, "nnls". "nnls" also
        tries the two others and is kept only if it is better than both on held-out samples.
    base : array of shape (m,)
        Weights of the Voronoi cells.
    samples : QuadratureSamples, optional
        Required except for "voronoi" and "uniform", which use them only for the table of errors.
    ratio : float, default=1.0
        Spacing of the anchors over the width of a signature.
    uniform : array of shape (m,), optional
        Weights of "uniform".

    Returns
    -------
    Quadrature

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.fields.anchors import compare_weights
    >>> compare_weights("voronoi", np.array([0.5, 0.5])).method
    'voronoi'
    """
    check_option(method, "method", METHODS)
    if method == "uniform":
        if uniform is None:
            reject("uniform", "given for this method", None)
        return Quadrature(uniform, "uniform", _table({"uniform": uniform}, samples))
    if samples is None:
        if method != "voronoi":
            reject("samples", f"given for the method {method!r}", None)
        return Quadrature(base, "voronoi")
    tried = {name: _weights(name, base, samples) for name in _tried(method, samples, ratio)}
    table = _table(tried, samples)
    kept = min(table, key=lambda entry: entry[1])[0]  # ties go to the simplest method
    return Quadrature(tried[kept], kept, table)


def _tried(method: str, samples: QuadratureSamples, ratio: float) -> list[str]:
    """Methods to compare, the simple ones first."""
    if method in ("voronoi", "unity"):
        return [method]
    m = samples.values.shape[1]
    if method == "nnls" and m > LARGEST_NNLS:
        reject("method", f"other than 'nnls' above {LARGEST_NNLS} anchors", f"'nnls' with {m}")
    methods = ["voronoi"]
    if _can_be_unity(samples.values, samples.total):
        methods.append("unity")
    if method == "nnls" or (m <= LARGEST_NNLS and ratio <= WIDEST_NNLS):
        methods.append("nnls")
    return methods


def _can_be_unity(values: Any, total: float) -> bool:
    """Whether multiplicative rounds are possible: nothing is negative."""
    return total > 0 and (values.nnz == 0 or values.data.min() >= 0)


def _weights(method: str, base: FloatArray, samples: QuadratureSamples) -> FloatArray:
    if method == "voronoi":
        return base
    fitting = samples.fitting()
    if method == "unity":
        return unity_weights(fitting.values, base, fitting.total)
    return nnls_weights(fitting.values, fitting.kernel, base)


def _table(tried: dict[str, FloatArray], samples: QuadratureSamples | None) -> tuple[tuple[str, float], ...]:
    """Held-out error of every method; empty without samples."""
    if samples is None:
        return ()
    return tuple((name, samples.error(weights)) for name, weights in tried.items())


def voronoi_weights(graph: Graph, measure: FloatArray, anchors: IntArray) -> FloatArray:
    """Measure of the nodes nearest to each anchor.

    Distances are those of :func:`farthest_anchors`, so a node never counts for an anchor of another component. The
    weights sum to the measure of the components that have an anchor.

    Parameters
    ----------
    graph : Graph
        With points.
    measure : array of shape (n_nodes,)
    anchors : int array of shape (m,)
        Repeated anchors share their cell.

    Returns
    -------
    weights : array of shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Graph
    >>> from manifoldrf.fields.anchors import voronoi_weights
    >>> line = Graph.from_affinity([[0, 1, 0], [1, 0, 1], [0, 1, 0]], points=[[0.0], [1.0], [3.0]])
    >>> voronoi_weights(line, np.ones(3), np.array([0, 2])).tolist()
    [2.0, 1.0]
    """
    different, which, repeats = np.unique(anchors, return_inverse=True, return_counts=True)
    owners = _owners(graph, different)
    inside = owners >= 0
    cells = np.bincount(owners[inside], weights=measure[inside], minlength=len(different))
    weights: FloatArray = (cells / repeats)[which]
    return weights


def _owners(graph: Graph, anchors: IntArray) -> IntArray:
    """Position of the anchor nearest to every node; -1 if none is reachable."""
    points = _points(graph)
    if follows_edges(graph):
        owners: IntArray = nearest_along_edges(edges_of(graph), anchors)[0]
        return owners
    nearest: IntArray = cKDTree(points[anchors]).query(points)[1].astype(np.int64)
    return nearest


def uniform_weights(measure: FloatArray, anchors: IntArray, density: ArrayLike | None = None) -> FloatArray:
    """mu_l / (m p_l): gives unbiased sums over all nodes if anchors are drawn from the density p.

    If every node is an anchor once, and without a density, this is the measure itself.

    Parameters
    ----------
    measure : array of shape (n_nodes,)
    anchors : int array of shape (m,)
    density : array-like of shape (n_nodes,), optional
        As in :func:`iid_anchors`.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.fields.anchors import uniform_weights
    >>> uniform_weights(np.ones(4), np.array([0, 3])).tolist()
    [2.0, 2.0]
    """
    n_nodes, m = len(measure), len(anchors)
    if density is None:
        return measure[anchors] * (n_nodes / m)
    share = normalised_density(density, n_nodes)[anchors]
    if not share.all():
        reject("density", "positive at every anchor", f"0 at node {anchors[int(np.argmin(share))]}")
    weights: FloatArray = measure[anchors] / (m * share)
    return weights


def unity_weights(values: Any, base: FloatArray, total: float) -> FloatArray:
    """Fit sum_l w_l h(x, w_l) = total at all samples x by multiplicative rounds (Richardson-Lucy).

    The sum over all nodes of mu_j h(x, j) is the same at every node x, because W sqrt(mu) = sqrt(mu). Each round
    multiplies a weight by a mean of total / (sum at x), so positive weights stay positive.

    Parameters
    ----------
    values : CSR array of shape (s, m)
        h(sample, anchor), nonnegative.
    base : array of shape (m,)
        Initial weights.
    total : float
        Positive.

    Returns
    -------
    weights : array of shape (m,)
        Anchors that no sample reaches keep their weights.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from manifoldrf.fields.anchors import unity_weights
    >>> unity_weights(sparse.csr_array(np.eye(2)), np.ones(2), 3.0).tolist()
    [3.0, 3.0]
    """
    if not _can_be_unity(values, total):
        reject("values", "nonnegative, with a positive total, for the method 'unity'", f"a total of {total}")
    given = np.ones(values.shape[0])
    backward = values.T.tocsr()
    seen = backward @ given  # (m,)
    weights = base.astype(np.float64)
    for _ in range(_UNITY_ROUNDS):
        sums = values @ weights  # (s,)
        quotient = np.divide(total * given, sums, out=np.zeros_like(sums), where=sums > 0)
        factor = np.divide(backward @ quotient, seen, out=np.ones_like(seen), where=seen > 0)
        weights = weights * factor
    return weights


def nnls_weights(values: Any, kernel: FloatArray, base: FloatArray, *, ridge: float = _RIDGE) -> FloatArray:
    """Nonnegative least squares: the w >= 0 with the least |K - H diag(w) H^T|_F^2 + ridge |w - base|^2.

    All pairs of samples count, without being listed: the normal matrix is the entrywise square of H^T H, and the
    right side is the diagonal of H^T K H.

    Parameters
    ----------
    values : CSR array of shape (s, m)
        H: h(sample, anchor).
    kernel : array of shape (s, s)
        K, exact between the samples.
    base : array of shape (m,)
        The ridge pulls towards these weights if the samples do not determine others.
    ridge : float
        In units of the mean diagonal of the normal matrix.

    Returns
    -------
    weights : array of shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from manifoldrf.fields.anchors import nnls_weights
    >>> kernel = np.diag([2.0, 3.0])
    >>> nnls_weights(sparse.csr_array(np.eye(2)), kernel, np.ones(2), ridge=0.0).tolist()
    [2.0, 3.0]
    """
    rows = values.toarray()  # (s, m)
    normal = np.square(rows.T @ rows)  # (m, m)
    right = np.einsum("sl,sl->l", rows, kernel @ rows)
    # An anchor that no sample sees has a zero row, so the ridge alone determines its weight.
    strength = np.where(normal.diagonal() > 0, ridge, 1.0) * float(normal.diagonal().mean() or 1.0)
    normal[np.diag_indices_from(normal)] += strength
    return nonnegative_minimum(normal, right + strength * base)


def nonnegative_minimum(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """The w >= 0 with the least w^T A w / 2 - b^T w, for a positive definite A.

    Block principal pivoting (Portugal, Judice, Vicente, Mathematics of Computation 63, 1994): solve for the free
    entries, set negative ones to zero, and free those at zero whose gradient is negative. This usually takes 1 to 6
    solves. If it does not converge, the slower method of Lawson and Hanson is used.
    """
    scale = np.sqrt(matrix.diagonal())
    # With a unit diagonal, entries and gradients have the same scale, so one tolerance is enough.
    unit = matrix / np.outer(scale, scale)
    target = right / scale
    slack = 1e-12 * float(np.abs(target).max())
    free = np.ones(len(right), dtype=bool)
    fewest, patience = len(right) + 1, _PATIENCE
    while patience > 0:
        solution = _solve_free(unit, target, free)
        wrong = np.where(free, solution, unit @ solution - target) < -slack
        count = int(np.count_nonzero(wrong))
        if count == 0:
            return np.maximum(solution, 0.0) / scale
        fewest, patience = (count, _PATIENCE) if count < fewest else (fewest, patience - 1)
        free ^= wrong
    root = linalg.cholesky(unit)  # A = root^T root, so this is the minimum of |root w - root^-T b|
    minimum: FloatArray = optimize.nnls(root, linalg.solve_triangular(root, target, trans="T"))[0] / scale
    return minimum


def _solve_free(matrix: FloatArray, right: FloatArray, free: Any) -> FloatArray:
    """Solve the equations of the free entries; zero elsewhere."""
    solution = np.zeros(len(right))
    if free.any():
        part = matrix if free.all() else matrix[np.ix_(free, free)]
        solution[free] = linalg.cho_solve(linalg.cho_factor(part, lower=True, check_finite=False), right[free])
    return solution


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


@compiled()
def nearest_along_edges(edges, sources):  # type: ignore[no-untyped-def]
    """The source nearest to every node along the edges (Dijkstra from all sources at once).

    Parameters
    ----------
    edges : Edges
    sources : int64 (n_sources,), all different

    Returns
    -------
    owners : int64 (N,), positions in ``sources``, the smallest of equally near ones; -1 if no source is reachable
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
