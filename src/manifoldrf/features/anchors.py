"""Anchors, the nodes at which features are read, and their weights: a quadrature for the sum over all nodes.

sum_l w_l g(x, l) g(y, l) over anchors l approximates the sum over all nodes of mu_j g(x, j) g(y, j). Weights are
nonnegative, so features sqrt(w_l) g(x, l) stay real, nonnegative and bounded.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, optimize

from manifoldrf._runtime import warn_user
from manifoldrf._validation import FloatArray, IntArray, reject
from manifoldrf.features.errors import FeatureWarning
from manifoldrf.features.graph_kernel import GraphKernel, Reference
from manifoldrf.features.options import FitOptions
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.paths import farthest_nodes, nearest_sources
from manifoldrf.metrics import relative_error
from manifoldrf.signatures.teachers import row_memory


def spacing_of(volume: float, m: int, dim: int) -> float:
    """Distance between neighbouring anchors, if ``m`` of them are evenly spread: (volume / m)^(1 / dim)."""
    return float((volume / m) ** (1 / dim))


def anchors_needed(kernel: GraphKernel, ratio: float = 0.8) -> int:
    """Smallest number of anchors whose spacing is at most ``ratio`` widths, at most all nodes.

    Sums over anchors are off by about .02 at .8, with which the number of anchors is chosen, and by .03 to .05 or
    more above 1.2 (features of the heat kernel on surfaces).
    """
    with np.errstate(over="ignore", divide="ignore"):
        wanted = np.float64(kernel.volume ** (1 / kernel.dim) / (ratio * kernel.width)) ** kernel.dim
    return max(1, int(min(np.ceil(wanted * (1 - 1e-12)), kernel.graph.n_nodes)))  # rounding adds no anchor


def choose_anchors(kernel: GraphKernel, options: FitOptions, at_least: int = 1) -> IntArray:
    """Nodes at which features are read: all, independent random ones, or farthest ones.

    ``at_least`` is a lower bound for a number that is chosen.
    """
    n, wanted = kernel.graph.n_nodes, options.n_features
    if options.anchors == "all" or wanted == "all" or kernel.asymmetric:
        return np.arange(n)
    if wanted == "auto":
        m = min(n, max(at_least, anchors_needed(kernel)))
        if 8.0 * n * m > 2**31:  # memory of the table; about twice as much is used on the way
            m = min(m, int(2**31 / row_memory(kernel.graph, kernel.series)))
    else:
        m = int(wanted)
        _warn_of_number(kernel, m, options)
    if options.anchors == "iid":
        drawn = options.streams.generator("features.anchors").integers(0, n, size=m, dtype=np.int64)
        return drawn
    if m >= n or (wanted == "auto" and m > n / 2):  # nearly as many
        return np.arange(n)
    alone = kernel.measure == 0  # nearly isolated nodes are the farthest of all, and useless
    chosen = farthest_nodes(kernel.graph, min(n, m + int(alone.sum())))
    return np.concatenate([chosen[~alone[chosen]], chosen[alone[chosen]]])[:m]


def _warn_of_number(kernel: GraphKernel, m: int, options: FitOptions) -> None:
    """Warn if a given number of features is more than there are nodes, or too few for the width of the kernel."""
    n = kernel.graph.n_nodes
    ratio = spacing_of(kernel.volume, m, kernel.dim) / kernel.width
    if m > n and options.anchors != "iid":
        text = f"n_features = {m} is more than the graph has nodes: there are {n} features, one for each."
        warn_user(text, FeatureWarning)
    elif ratio > 1.2 and m < n and options.anchors != "iid":
        needed = anchors_needed(kernel, 1.0)
        warn_user(
            f"{m} feature{'s are' if m > 1 else ' is'} too few: anchors are {ratio:.2g} times as far apart as the "
            f"features of this kernel are wide ({kernel.width:.2g}), and sums over them are several per cent off "
            f"(remedy: n_features={needed if needed < n else repr('all')}, or a wider kernel).",
            FeatureWarning,
        )


@dataclass(frozen=True, eq=False)
class Quadrature:
    """Weights of anchors, the method that found them, and the error at held-out nodes of each method tried."""

    weights: FloatArray
    method: str
    errors: tuple[tuple[str, float], ...] = ()

    @property
    def error(self) -> float:
        """Error of these weights at held-out nodes; 0 for the plain sum over all nodes."""
        return 0.0 if self.method == "uniform" else min(error for _, error in self.errors)


def fit_weights(
    kernel: GraphKernel, anchors: IntArray, fitting: Reference, held_out: Reference, options: FitOptions
) -> Quadrature:
    """Weights by the given method or, with "auto", by the best one at held-out nodes.

    Least squares are fitted at evenly spread nodes: 500 farthest ones are as good as 2000 random ones.
    """
    m, measure = len(anchors), kernel.measure
    if kernel.asymmetric:
        return Quadrature(np.ones(m), "uniform")
    iid = options.anchors == "iid"
    complete = m == kernel.graph.n_nodes and not iid
    if complete or options.quadrature == "uniform" or (iid and options.quadrature == "auto"):
        # The plain sum over all nodes, or its unbiased estimate from independent anchors.
        tried = {"uniform": measure[anchors] * (len(measure) / m)}
    else:
        base = voronoi_weights(kernel.graph, measure, anchors)
        tried = {"voronoi": base}
        if options.quadrature == "nnls" and m > 4096:
            reject("quadrature", "other than 'nnls' above 4096 features", f"'nnls' with {m}")
        # Least squares are not tried if anchors are more than 1.6 widths apart: the fit then follows the samples,
        # not the kernel (torus, 1.75 widths: .21 at new points where Voronoi cells give .17). 4096 anchors take 128
        # MiB.
        close = spacing_of(kernel.volume, m, kernel.dim) <= 1.6 * kernel.width
        if options.quadrature == "nnls" or (options.quadrature == "auto" and m <= 4096 and close):
            tried["nnls"] = nnls_weights(fitting.rows[:, anchors].toarray(), fitting.kernel, base)
    rows = held_out.rows[:, anchors].toarray()  # (h, m)
    errors = {name: float(relative_error((rows * w) @ rows.T, held_out.kernel)) for name, w in tried.items()}
    best = min(errors, key=lambda name: errors[name])  # ties go to the simplest method
    return Quadrature(tried[best], best, tuple(errors.items()))


def voronoi_weights(graph: Graph, measure: FloatArray, anchors: IntArray) -> FloatArray:
    """Measure of the nodes nearest to each anchor, shape (m,); repeated anchors share their cell.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Graph
    >>> from manifoldrf.features.anchors import voronoi_weights
    >>> line = Graph.from_affinity([[0, 1, 0], [1, 0, 1], [0, 1, 0]], points=[[0.0], [1.0], [3.0]])
    >>> voronoi_weights(line, np.ones(3), np.array([0, 2])).tolist()
    [2.0, 1.0]
    """
    different, which, repeats = np.unique(anchors, return_inverse=True, return_counts=True)
    owners = nearest_sources(graph, different)
    inside = owners >= 0
    cells = np.bincount(owners[inside], weights=measure[inside], minlength=len(different))
    weights: FloatArray = (cells / repeats)[which]
    return weights


def nnls_weights(rows: FloatArray, kernel: FloatArray, base: FloatArray, *, ridge: float = 3e-4) -> FloatArray:
    """Nonnegative least squares: the w >= 0 with the least |K - H diag(w) H^T|_F^2 + ridge |w - base|^2.

    All pairs of samples count, without being listed: the normal matrix is the entrywise square of H^T H, and the
    right side is the diagonal of H^T K H.

    Parameters
    ----------
    rows : array of shape (s, m)
        H: g(sample, anchor).
    kernel : array of shape (s, s)
        K, exact between the samples.
    base : array of shape (m,)
        The ridge pulls towards these weights if the samples do not determine others.
    ridge : float
        In units of the mean diagonal of the normal matrix. Errors at new points of the sphere and the torus with
        1e-2 / 1e-3 / 3e-4 / 1e-5: .0201 / .0196 / .0195 / .0195, .0075 / .0053 / .0050 / .0050. Smaller values gain
        little and overfit if there are few samples.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.features.anchors import nnls_weights
    >>> nnls_weights(np.eye(2), np.diag([2.0, 3.0]), np.ones(2), ridge=0.0).tolist()
    [2.0, 3.0]
    """
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
    solves. If five exchanges in a row do not reduce the violations, the slower method of Lawson and Hanson is used.
    """
    scale = np.sqrt(matrix.diagonal())
    # With a unit diagonal, entries and gradients have the same scale, so one tolerance is enough.
    unit: Any = matrix / np.outer(scale, scale)
    target = right / scale
    slack = 1e-12 * float(np.abs(target).max())
    free = np.ones(len(right), dtype=bool)
    fewest, patience = len(right) + 1, 5
    while patience > 0:
        solution = np.zeros(len(right))
        if free.any():
            part = unit if free.all() else unit[np.ix_(free, free)]
            factor = linalg.cho_factor(part, lower=True, check_finite=False)
            solution[free] = linalg.cho_solve(factor, target[free])
        wrong = np.where(free, solution, unit @ solution - target) < -slack
        count = int(np.count_nonzero(wrong))
        if count == 0:
            return np.maximum(solution, 0.0) / scale
        fewest, patience = (count, 5) if count < fewest else (fewest, patience - 1)
        free ^= wrong
    root = linalg.cholesky(unit)  # A = root^T root, so this is the minimum of |root w - root^-T b|
    minimum: FloatArray = optimize.nnls(root, linalg.solve_triangular(root, target, trans="T"))[0] / scale
    return minimum
