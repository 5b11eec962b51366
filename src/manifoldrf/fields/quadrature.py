"""Weights of anchors: sum_l w_l h(x, w_l) h(y, w_l) in place of the sum over all nodes of mu_j h(x, j) h(y, j).

Weights are nonnegative, so features sqrt(w_l) h(x, w_l) stay real, nonnegative and bounded.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, optimize
from scipy.spatial import cKDTree

from manifoldrf._validation import FloatArray, IntArray, check_option, reject
from manifoldrf.fields.anchors import edges_of, follows_edges, nearest_along_edges, normalised_density
from manifoldrf.geometry.graphs import Graph
from manifoldrf.metrics import frobenius

METHODS = ("auto", "nnls", "unity", "voronoi", "uniform")

# Squares of an m x m matrix: 4096 anchors take 128 MiB and some seconds.
LARGEST_NNLS = 4096
# Least squares are refused where anchors are sparser than this many widths: the fit then follows the samples, not
# the kernel (torus, 1.75 widths, 1000 random samples: .21 at new points where Voronoi cells give .17). With evenly
# spread samples it still gains at 1.24 widths (torus, 512 anchors: .042, unity .050, Voronoi .081).
WIDEST_NNLS = 1.6
# Share of the mean diagonal of the normal matrix. Sphere and torus, errors at new points with 1e-2 / 1e-3 / 3e-4 /
# 1e-5: .0201 / .0196 / .0195 / .0195 (512 anchors on the sphere), .0075 / .0053 / .0050 / .0050 (1024, torus),
# .0032 / .0014 / .0009 / .0004 (2048, torus). Smaller ones gain little and trust few random samples too much.
_RIDGE = 3e-4
# The multiplicative fit of unity gains slowly (sphere, 512 anchors: .045 after 5 rounds, .038 after 20, .031 after
# 100, .029 after 200, .026 after 1000); a round costs two sparse products.
_UNITY_ROUNDS = 200
_PATIENCE = 5  # exchanges of blocks that may fail to reduce the violations, one after the other


@dataclass(frozen=True, eq=False)
class Quadrature:
    """Weights of anchors, and how they were found.

    Attributes
    ----------
    weights : array of shape (m,)
        Nonnegative.
    method : str
        The one whose weights these are.
    table : tuple of (str, float)
        Relative Frobenius error of the kernel between held-out nodes, for every method that was tried.
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

    Evenly spread nodes serve best: with farthest points 500 do what takes 2000 random ones.

    Attributes
    ----------
    values : CSR array of shape (s, m)
        h(sample, anchor).
    kernel : array of shape (s, s)
        sum over all nodes j of mu_j h(x, j) h(y, j) between the samples.
    held_out : int array
        Positions of the samples kept from the fit, to compare methods on.
    total : float
        sum over all nodes j of mu_j h(x, j), the same for all x: the sum of the coefficients of the signature.
    importance : array of shape (s,), optional
        Weight of each sample in the fit, nonnegative; a pair has the product of both. All alike by default.
    """

    values: Any
    kernel: FloatArray
    held_out: IntArray
    total: float
    importance: FloatArray | None = None

    def fitting(self) -> "QuadratureSamples":
        """The samples that are not held out."""
        keep = np.setdiff1d(np.arange(self.values.shape[0]), self.held_out)
        importance = None if self.importance is None else self.importance[keep]
        return QuadratureSamples(
            self.values[keep], self.kernel[np.ix_(keep, keep)], keep[:0], self.total, importance
        )

    def error(self, weights: FloatArray) -> float:
        """Relative Frobenius error of the kernel between held-out samples."""
        rows = self.values[self.held_out].toarray()  # (h, m)
        exact = self.kernel[np.ix_(self.held_out, self.held_out)]
        size = frobenius(exact)
        if size == 0:
            reject("held_out", "samples that have a positive kernel", f"{len(self.held_out)} that have none")
        return frobenius((rows * weights) @ rows.T - exact) / size


def compare_weights(
    method: str,
    base: FloatArray,
    *,
    samples: QuadratureSamples | None = None,
    ratio: float = 1.0,
    uniform: FloatArray | None = None,
) -> Quadrature:
    """Weights by the method asked for or, with "auto", by the one that is best on held-out samples.

    Parameters
    ----------
    method : {"auto", "nnls", "unity", "voronoi", "uniform"}
        "auto" tries "voronoi", "unity" and, up to 4096 anchors at most 1.6 widths apart, "nnls". "nnls" is kept
        only where it is better on held-out samples than both others; the better of these takes its place. The
        others are done as asked.
    base : array of shape (m,)
        Weights of the Voronoi cells.
    samples : QuadratureSamples, optional
        Needed for all but "voronoi" and "uniform", which only gain an entry in the table by it.
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
    >>> from manifoldrf.fields.quadrature import compare_weights
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
    kept = min(table, key=lambda entry: entry[1])[0]  # the plainest of equals
    return Quadrature(tried[kept], kept, table)


def _tried(method: str, samples: QuadratureSamples, ratio: float) -> list[str]:
    """Methods to compare, the plain ones first."""
    if method in ("voronoi", "unity"):
        return [method]
    m = samples.values.shape[1]
    if method == "nnls" and m > LARGEST_NNLS:
        reject("method", f"another than 'nnls' above {LARGEST_NNLS} anchors", f"'nnls' with {m}")
    methods = ["voronoi"]
    if _can_be_unity(samples.values, samples.total):
        methods.append("unity")
    if method == "nnls" or (m <= LARGEST_NNLS and ratio <= WIDEST_NNLS):
        methods.append("nnls")
    return methods


def _can_be_unity(values: Any, total: float) -> bool:
    """Whether multiplicative rounds make sense: nothing is negative."""
    return total > 0 and (values.nnz == 0 or values.data.min() >= 0)


def _weights(method: str, base: FloatArray, samples: QuadratureSamples) -> FloatArray:
    if method == "voronoi":
        return base
    fitting = samples.fitting()
    if method == "unity":
        return unity_weights(fitting.values, base, fitting.total, importance=fitting.importance)
    return nnls_weights(fitting.values, fitting.kernel, base, importance=fitting.importance)


def _table(tried: dict[str, FloatArray], samples: QuadratureSamples | None) -> tuple[tuple[str, float], ...]:
    """Held-out error of every method; empty without samples."""
    if samples is None:
        return ()
    return tuple((name, samples.error(weights)) for name, weights in tried.items())


def voronoi_weights(graph: Graph, measure: FloatArray, anchors: IntArray) -> FloatArray:
    """Measure of the nodes nearest to each anchor.

    Nearest is meant as in :func:`~manifoldrf.fields.anchors.farthest_anchors`: a node never counts for an anchor of
    another piece of the graph. The weights sum to the measure of the pieces that have an anchor.

    Parameters
    ----------
    graph : Graph
        With points.
    measure : array of shape (n_nodes,)
    anchors : int array of shape (m,)
        Anchors that occur several times share their cell.

    Returns
    -------
    weights : array of shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Graph
    >>> from manifoldrf.fields.quadrature import voronoi_weights
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
    """Position of the anchor nearest to every node; -1 where none is in reach."""
    if graph.points is None:
        reject("graph", "a graph with points", graph)
    if follows_edges(graph):
        owners: IntArray = nearest_along_edges(edges_of(graph), anchors)[0]
        return owners
    nearest: IntArray = cKDTree(graph.points[anchors]).query(graph.points)[1].astype(np.int64)
    return nearest


def uniform_weights(measure: FloatArray, anchors: IntArray, density: ArrayLike | None = None) -> FloatArray:
    """mu_l / (m p_l): unbiased for the sum over all nodes where anchors are drawn from the density p.

    With every node an anchor once, and no density, this is the measure itself: the sum over all nodes.

    Parameters
    ----------
    measure : array of shape (n_nodes,)
    anchors : int array of shape (m,)
    density : array-like of shape (n_nodes,), optional
        As in :func:`~manifoldrf.fields.anchors.iid_anchors`.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.fields.quadrature import uniform_weights
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


def unity_weights(
    values: Any, base: FloatArray, total: float, *, importance: FloatArray | None = None
) -> FloatArray:
    """Fit sum_l w_l h(x, w_l) = total at all samples x by multiplicative rounds (Richardson-Lucy).

    The sum over all nodes of mu_j h(x, j) is the same number at every node x, because W sqrt(mu) = sqrt(mu). Each
    round multiplies a weight by a mean of total / (sum at x), so that positive weights stay positive.

    Parameters
    ----------
    values : CSR array of shape (s, m)
        h(sample, anchor), nonnegative.
    base : array of shape (m,)
        Where the rounds start.
    total : float
        Positive.
    importance : array of shape (s,), optional
        Weight of each sample; all alike by default.

    Returns
    -------
    weights : array of shape (m,)
        Those of anchors that no sample sees are not changed.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from manifoldrf.fields.quadrature import unity_weights
    >>> unity_weights(sparse.csr_array(np.eye(2)), np.ones(2), 3.0).tolist()
    [3.0, 3.0]
    """
    if not _can_be_unity(values, total):
        reject("values", "nonnegative, with a positive total, for the method 'unity'", f"a total of {total}")
    given = np.ones(values.shape[0]) if importance is None else importance
    backward = values.T.tocsr()
    seen = backward @ given  # (m,)
    weights = base.astype(np.float64)
    for _ in range(_UNITY_ROUNDS):
        sums = values @ weights  # (s,)
        quotient = np.divide(total * given, sums, out=np.zeros_like(sums), where=sums > 0)
        factor = np.divide(backward @ quotient, seen, out=np.ones_like(seen), where=seen > 0)
        weights = weights * factor
    return weights


def nnls_weights(
    values: Any,
    kernel: FloatArray,
    base: FloatArray,
    *,
    importance: FloatArray | None = None,
    ridge: float = _RIDGE,
) -> FloatArray:
    """Nonnegative least squares: the w >= 0 with the least |K - H diag(w) H^T|_F^2 + ridge |w - base|^2.

    All pairs of samples count, and none is listed: the normal matrix is the entrywise square of H^T H, the right
    side the diagonal of H^T K H.

    Parameters
    ----------
    values : CSR array of shape (s, m)
        H: h(sample, anchor).
    kernel : array of shape (s, s)
        K, exact between the samples.
    base : array of shape (m,)
        What weights are drawn to where the samples do not determine them.
    importance : array of shape (s,), optional
        Weight of each sample; a pair has the product of both. All alike by default.
    ridge : float
        In units of the mean diagonal of the normal matrix.

    Returns
    -------
    weights : array of shape (m,)

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> from manifoldrf.fields.quadrature import nnls_weights
    >>> kernel = np.diag([2.0, 3.0])
    >>> nnls_weights(sparse.csr_array(np.eye(2)), kernel, np.ones(2), ridge=0.0).tolist()
    [2.0, 3.0]
    """
    rows = values.toarray()  # (s, m)
    if importance is not None:
        root = np.sqrt(importance)
        rows, kernel = rows * root[:, None], kernel * np.outer(root, root)
    normal = np.square(rows.T @ rows)  # (m, m)
    right = np.einsum("sl,sl->l", rows, kernel @ rows)
    # An anchor that no sample sees has a zero row: the ridge alone decides, whatever its size.
    strength = np.where(normal.diagonal() > 0, ridge, 1.0) * float(normal.diagonal().mean() or 1.0)
    normal[np.diag_indices_from(normal)] += strength
    return nonnegative_minimum(normal, right + strength * base)


def nonnegative_minimum(matrix: FloatArray, right: FloatArray) -> FloatArray:
    """The w >= 0 with the least w^T A w / 2 - b^T w, for a positive definite A.

    Block principal pivoting (Portugal, Judice, Vicente, Mathematics of Computation 63, 1994): solve for the free
    entries, set those that come out negative to zero and free those at zero whose gradient is negative. That takes
    1 to 6 solves as a rule; where it does not settle, the slower method of Lawson and Hanson does.
    """
    scale = np.sqrt(matrix.diagonal())
    # With a unit diagonal, entries and gradients share one scale, and one tolerance serves both.
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
    root = linalg.cholesky(unit)  # A = root^T root: the same minimum as of |root w - root^-T b|
    minimum: FloatArray = optimize.nnls(root, linalg.solve_triangular(root, target, trans="T"))[0] / scale
    return minimum


def _solve_free(matrix: FloatArray, right: FloatArray, free: Any) -> FloatArray:
    """Solution of the equations of the free entries, zero elsewhere."""
    solution = np.zeros(len(right))
    if free.any():
        part = matrix if free.all() else matrix[np.ix_(free, free)]
        solution[free] = linalg.cho_solve(linalg.cho_factor(part, lower=True, check_finite=False), right[free])
    return solution
