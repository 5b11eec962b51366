"""The path of a fit: parameters, space, graph, anchors, weights, table, map.

Anchors are the nodes that define the features. sum_l w_l g(x, l) g(y, l) over anchors l approximates the sum over
all nodes of mu_j g(x, j) g(y, j). Weights are nonnegative, so features sqrt(w_l) g(x, l) stay real, nonnegative and
bounded.
"""

import dataclasses
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import linalg, optimize, sparse

from manifoldrf._codec import stored
from manifoldrf._random import Streams
from manifoldrf._runtime import stage_of, warn_user
from manifoldrf._validation import (
    FloatArray,
    IntArray,
    check_count,
    check_flag,
    check_jobs,
    check_option,
    check_progress,
    reject,
)
from manifoldrf.features.errors import POOR, USELESS, ErrorEstimate, relative_error, warn_inaccurate
from manifoldrf.features.feature_map import (
    STEP_SHARE,
    FeatureMap,
    Teaching,
    WalkStep,
    interpolation_rule,
    signature_table,
    symmetric_product,
)
from manifoldrf.features.graph_kernel import (
    ANCHOR_SPACING,
    GraphKernel,
    HeatGraph,
    KnnGraph,
    MeshGraph,
    build_graph,
    function_values,
    resolve_kernel,
)
from manifoldrf.geometry.csr import as_dense, frobenius
from manifoldrf.geometry.graphs import Graph, farthest_nodes, nearest_sources
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.neighbors import farthest_first
from manifoldrf.kernels.abstract_kernel import FrozenParams
from manifoldrf.kernels.named_kernels import HeatKernel, shifted
from manifoldrf.paper import Network, TrainingInfo, fit_network
from manifoldrf.signatures import check_kernel, check_teacher, row_memory

FIELDS = ("auto", "step", "interpolated")
ANCHORS = ("farthest", "iid", "all")
QUADRATURES = ("auto", "nnls", "voronoi", "uniform")
_MOST_NNLS = 4096  # anchors whose weights least squares fit: their normal matrix takes 128 MiB


@dataclass(frozen=True, eq=False, kw_only=True)
class FitOptions(Teaching):
    """Checked parameters of :class:`ManifoldRandomFeatures`, and the random streams of a fit."""

    streams: Streams
    kernel: Any
    n_features: int | str
    normalize: bool
    graph: Any
    field: str | Network
    anchors: str
    quadrature: str

    @classmethod
    def of(cls, params: dict[str, Any], streams: Streams | None = None) -> "FitOptions":
        """Check the parameters of the estimator."""
        streams = streams or Streams.from_seed(params["random_state"], "random_state")
        kernel, graph, field, n_features = params["kernel"], params["graph"], params["field"], params["n_features"]
        if kinds := [name for name in ("kernel", "graph", "teacher") if isinstance(params[name], type)]:
            named = params[kinds[0]].__name__  # it would count as a function
            reject(kinds[0], f"an object, not its class: {named}(...)", named, TypeError)
        if kernel is not None and not callable(kernel):
            check_kernel(kernel)
        if not (graph is None or isinstance(graph, HeatGraph | KnnGraph | MeshGraph | Graph) or callable(graph)):
            reject("graph", "None, HeatGraph, KnnGraph, MeshGraph, a Graph or a function", repr(graph), TypeError)
        if not isinstance(field, Network):
            check_option(field, "field", FIELDS)
        elif field.checkpoint is not None and params["random_state"] is None:
            reject("random_state", "given with a checkpoint, or training cannot be resumed", None)
        check_teacher(params["teacher"])
        check_count(n_features, "n_features", 1, ("auto", "all"))
        anchors = check_option(params["anchors"], "anchors", ANCHORS)
        if anchors == "all" and not isinstance(n_features, str):
            reject("n_features", "'auto' or 'all' with anchors='all'", n_features)
        if anchors == "iid" and n_features == "all":
            reject("n_features", "'auto' or an integer with anchors='iid'", repr(n_features))
        check_flag(params["sparse_output"], "sparse_output")
        return cls(
            teacher=params["teacher"],
            # A number, not a generator: the draws of one table must not depend on the tables before it.
            seed=int(streams.generator("features.signatures").integers(2**62)),
            n_jobs=check_jobs(params["n_jobs"]),
            progress=check_progress(params["verbose"]),
            streams=streams,
            kernel=kernel,
            n_features=n_features,
            normalize=check_flag(params["normalize"], "normalize"),
            graph=graph,
            field=field,
            anchors=anchors,
            quadrature=check_option(params["quadrature"], "quadrature", QUADRATURES),
        )


class FrozenParamsMixin:
    """``set_params(kernel__t=...)`` for estimators with frozen parameters, which are replaced, not changed.

    ``kernel=None`` stands for a heat kernel, so ``kernel__t`` makes it one with this time.
    """

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__<name>`` replaces the kernel by one with another value, and so on."""
        inner: dict[str, dict[str, Any]] = defaultdict(dict)
        outer = {}
        for name, value in params.items():
            owner, _, rest = name.partition("__")
            part = params.get(owner, getattr(self, owner, None))
            if name == "kernel__t" and part is None:
                outer["kernel"] = HeatKernel(value)
            elif rest and isinstance(part, FrozenParams):
                inner[owner][rest] = value
            elif rest and hasattr(self, owner) and not hasattr(part, "set_params"):
                raise ValueError(f"`{name}` needs an object to change: `{owner}` is {part!r}.")
            else:
                outer[name] = value
        super().set_params(**outer)  # type: ignore[misc]
        for owner, changes in inner.items():
            setattr(self, owner, getattr(self, owner).with_params(**changes))
        return self


@stored
@dataclass(frozen=True)
class FitRecord:
    """What was chosen in a fit, for the summary.

    Attributes
    ----------
    notes : tuple of pairs of str
        About the space, the graph and the kernel.
    field : str
        "step", "interpolated" or "network".
    quadrature : str
    error : ErrorEstimate
        At held-out nodes.
    series_error : float, optional
        Of the series fitted to a function.
    training : TrainingInfo, optional
        Of a network.
    """

    notes: tuple[tuple[str, str], ...]
    field: str
    quadrature: str
    error: ErrorEstimate
    series_error: float | None = None
    training: TrainingInfo | None = None


def fit_features(space: Any, options: FitOptions) -> tuple[FeatureMap, FitRecord]:
    """Fit features to a space, as returned by ``check_space``."""
    with stage_of(options.progress, "graph"):
        built = build_graph(space, options.kernel, options.graph, options.n_jobs)
    kernel, notes, series_error = resolve_kernel(built, space, options.streams)
    with stage_of(options.progress, "anchors"):
        anchors = choose_anchors(kernel, options)
    with stage_of(options.progress, "weights"):
        while True:
            fitting, held_out = _references(kernel, anchors, options)
            quadrature = fit_weights(kernel, anchors, fitting, held_out, options)
            # A kernel with a sharp peak needs more anchors than its width suggests: a Matern kernel (nu = 1.5) on
            # the sphere is .13 off with 95 anchors, .02 with 380.
            most = _MOST_NNLS if options.quadrature == "nnls" else kernel.graph.n_nodes
            if options.n_features != "auto" or quadrature.error <= 0.02 or 2 * len(anchors) > most:
                break
            more = choose_anchors(kernel, options, 2 * len(anchors))
            if len(more) == len(anchors):
                break
            anchors = more
    map_, field, error, training = _fit_field(kernel, anchors, quadrature, held_out, options)
    if series_error is not None:
        series_error = _check_function(map_, error, series_error, space, options)
    roots = np.sqrt(np.abs(np.diagonal(held_out.kernel)))
    # On the unit sphere the smallest cosine is .985 for t = 3 and .997 for t = 4.
    if len(roots) > 1 and (held_out.kernel > 0.99 * roots[:, None] * roots).all():
        notes = (*notes, ("separation", "the kernel is nearly constant"))
        warn_inaccurate(
            "The kernel is nearly constant: above 99% of its maximum for all sampled pairs, because it is much "
            "wider than the data. A small error says nothing about the use of such features (remedy: a much "
            "shorter time).",
            useless=True,
        )
    if options.normalize:
        map_ = map_.normalized(options.n_jobs)
    return map_, FitRecord(notes, field, quadrature.method, error, series_error, training)


def anchors_needed(kernel: GraphKernel, ratio: float = ANCHOR_SPACING) -> int:
    """Smallest number of anchors whose spacing is at most ``ratio`` widths, at most all nodes.

    Above a ratio of 1.2, sums over anchors are off by .03 to .05 or more (features of the heat kernel on surfaces).
    """
    with np.errstate(over="ignore", divide="ignore"):
        wanted = np.float64(kernel.volume ** (1 / kernel.dim) / (ratio * kernel.width)) ** kernel.dim
    return max(1, int(min(np.ceil(wanted * (1 - 1e-12)), kernel.graph.n_nodes)))  # rounding adds no anchor


def choose_anchors(kernel: GraphKernel, options: FitOptions, at_least: int = 1) -> IntArray:
    """The nodes that serve as anchors: all, independent random ones, or farthest ones.

    ``at_least`` is a lower bound for ``n_features="auto"``.
    """
    n, wanted = kernel.graph.n_nodes, options.n_features
    if options.anchors == "all" or wanted == "all" or kernel.asymmetric:
        return np.arange(n)
    if wanted == "auto":
        m = min(n, max(at_least, anchors_needed(kernel)))
        if 8.0 * n * m > 2**31:  # memory of the table; computing it takes about twice as much
            m = min(m, int(2**31 / row_memory(kernel.graph, kernel.series)))
    else:
        m = int(wanted)
        ratio = kernel.spacing(m) / kernel.width  # of even anchors
        if m > n and options.anchors != "iid":
            warn_user(f"n_features = {m} is more than the graph has nodes: there are {n} features, one for each.")
        elif ratio > 1.2 and m < n and options.anchors != "iid":
            needed = anchors_needed(kernel, 1.0)
            warn_user(
                f"{m} feature{'s are' if m > 1 else ' is'} too few: anchors are {ratio:.2g} times as far apart as "
                f"the features of this kernel are wide ({kernel.width:.2g}), and sums over them are several per "
                f"cent off (remedy: n_features={needed if needed < n else repr('all')}, or a wider kernel)."
            )
    if options.anchors == "iid":
        return options.streams.generator("features.anchors").integers(0, n, size=m, dtype=np.int64)
    if m >= n or (wanted == "auto" and m > n / 2):  # nearly all nodes
        return np.arange(n)
    alone = kernel.measure == 0  # nearly isolated nodes are farthest, but useless
    chosen = farthest_nodes(kernel.graph, min(n, m + int(alone.sum())))
    return np.concatenate([chosen[~alone[chosen]], chosen[alone[chosen]]])[:m]


class Reference(NamedTuple):
    """Exact values at some nodes.

    Attributes
    ----------
    nodes : int array of shape (s,)
    rows : CSR array of shape (s, n_nodes)
        g(node, .), in the unit of the measure.
    kernel : array of shape (s, s)
        Sum over all nodes j of mu_j g(x, j) g(y, j); the kernel itself for asymmetric pairs.
    """

    nodes: IntArray
    rows: Any
    kernel: FloatArray


def _references(kernel: GraphKernel, anchors: IntArray, options: FitOptions) -> tuple[Reference, Reference]:
    """Exact values at evenly spread nodes for fitting weights, and at random nodes for measuring errors.

    Nodes that are not anchors are preferred.
    """
    usable = np.flatnonzero(kernel.measure > 0)
    rest = np.setdiff1d(usable, anchors)
    if len(rest) < 2 * 192:
        rest = usable
    rng = options.streams.generator("features.held out")
    # 192 nodes have 18,000 pairs. A small space needs most nodes for the fit.
    held_out = np.sort(rng.choice(rest, max(1, min(192, len(usable) // 4)), replace=False))
    fitting = rest[:0]
    if len(anchors) < kernel.graph.n_nodes and options.quadrature in ("auto", "nnls"):
        others = np.setdiff1d(rest, held_out)
        others = others if len(others) else rest
        # As many as anchors: more make no difference (256 anchors), half as many add a tenth to the error.
        count = min(len(others), max(64, len(anchors)), 512)
        fitting = others[farthest_first(kernel.graph.positions[others], count)[0]]
    nodes, everything = np.concatenate([fitting, held_out]), np.arange(kernel.graph.n_nodes)
    # Always exact, whatever the teacher, whose errors are to be seen.
    rows = signature_table(kernel, kernel.series, nodes, everything, Teaching(n_jobs=options.n_jobs))
    exact = rows[:, nodes].toarray() if kernel.asymmetric else gram(rows, kernel.measure, options.n_jobs)
    first, last = slice(len(fitting)), slice(len(fitting), None)
    return Reference(fitting, rows[first], exact[first, first]), Reference(held_out, rows[last], exact[last, last])


def gram(rows: Any, weights: FloatArray, n_jobs: int = 1) -> FloatArray:
    """Rows times weights times their transpose, dense; the bits do not depend on ``n_jobs``."""
    roots = np.sqrt(weights)
    if rows.shape[0] * rows.shape[1] > 5e7:
        scaled = (rows @ sparse.diags_array(roots)).tocsr()
        return np.asarray((scaled @ scaled.T).toarray())
    return symmetric_product(as_dense(rows) * roots, n_jobs)


@dataclass(frozen=True, eq=False)
class Quadrature:
    """Weights of anchors, the method in use, and the error of each method tried at held-out nodes."""

    weights: FloatArray
    method: str
    errors: tuple[tuple[str, float], ...] = ()

    @property
    def error(self) -> float:
        """Error of these weights at held-out nodes, which more anchors would reduce.

        0 for plain sums. Over all nodes they are exact. Over other anchors, which a user must request, the error
        falls slowly, and the width of the kernel alone decides how many anchors are used.
        """
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
        if options.quadrature == "nnls" and m > _MOST_NNLS:
            reject("quadrature", f"other than 'nnls' above {_MOST_NNLS} features", f"'nnls' with {m}")
        # Least squares are not tried if anchors are more than 1.6 widths apart, because they would overfit the
        # samples (torus, 1.75 widths: .21 at new points, .17 with Voronoi cells).
        close = kernel.spacing(m) <= 1.6 * kernel.width
        if options.quadrature == "nnls" or (options.quadrature == "auto" and m <= _MOST_NNLS and close):
            tried["nnls"] = nnls_weights(fitting.rows[:, anchors].toarray(), fitting.kernel, base)
    rows = held_out.rows[:, anchors].toarray()  # (h, m)
    scale = frobenius(held_out.kernel) or 1.0
    errors = {}
    for name, weights in tried.items():
        errors[name] = frobenius((rows * weights) @ rows.T - held_out.kernel) / scale
    best = min(errors, key=errors.__getitem__)  # ties go to the simplest method
    return Quadrature(tried[best], best, tuple(errors.items()))


def voronoi_weights(graph: Graph, measure: FloatArray, anchors: IntArray) -> FloatArray:
    """Measure of the nodes nearest to each anchor, shape (m,); repeated anchors share their cell.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Graph
    >>> from manifoldrf.features.fit import voronoi_weights
    >>> line = Graph.from_affinity([[0, 1, 0], [1, 0, 1], [0, 1, 0]], points=[[0.0], [1.0], [3.0]])
    >>> voronoi_weights(line, np.ones(3), np.array([0, 2])).tolist()
    [2.0, 1.0]
    """
    different, which, repeats = np.unique(anchors, return_inverse=True, return_counts=True)
    owners = nearest_sources(graph, different)
    inside = owners >= 0
    cells = np.bincount(owners[inside], weights=measure[inside], minlength=len(different))
    return np.asarray((cells / repeats)[which])


def nnls_weights(rows: FloatArray, kernel: FloatArray, base: FloatArray, *, ridge: float = 3e-4) -> FloatArray:
    """Nonnegative least squares: the w >= 0 with the least |K - H diag(w) H^T|_F^2 + ridge |w - base|^2.

    All pairs of samples are used, but never formed: the normal matrix is the entrywise square of H^T H, and the
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
    >>> from manifoldrf.features.fit import nnls_weights
    >>> nnls_weights(np.eye(2), np.diag([2.0, 3.0]), np.ones(2), ridge=0.0).tolist()
    [2.0, 3.0]
    """
    normal = np.square(rows.T @ rows)  # (m, m)
    right = np.einsum("sl,sl->l", rows, kernel @ rows)
    # An anchor out of reach of all samples has a zero row, so the ridge alone determines its weight.
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
    return np.asarray(optimize.nnls(root, linalg.solve_triangular(root, target, trans="T"))[0] / scale)


def _fit_field(
    kernel: GraphKernel, anchors: IntArray, quadrature: Quadrature, held_out: Reference, options: FitOptions
) -> tuple[FeatureMap, str, ErrorEstimate, TrainingInfo | None]:
    """The map with the given rule or, with "auto", with the rule of the smaller error at held-out nodes.

    The step is tried first if the kernel has no spike: it needs no fit, and on heat graphs it is exact. A rule that
    is off by at most .002 ends the search.
    """
    graph, everything, training = kernel.graph, np.arange(kernel.graph.n_nodes), None
    names = [options.field] if isinstance(options.field, str) else ["network"]
    if options.field == "auto":
        names = ["interpolated"] if graph.extension is None or kernel.has_spike else ["step", "interpolated"]
    tried: dict[str, tuple[ErrorEstimate, FeatureMap]] = {}
    candidates: dict[str, float] = {}  # their errors
    for name in names:
        rule: Any = WalkStep(graph) if name == "step" else interpolation_rule(graph, kernel.dim)
        if name == "step":
            table = signature_table(kernel, shifted(kernel.series), everything, anchors, options, STEP_SHARE)
        elif name == "interpolated":
            table = signature_table(kernel, kernel.series, everything, anchors, options)
        else:
            table, training = _train(kernel, anchors, held_out.nodes, options)
        final = trial = FeatureMap(kernel, rule, table, anchors, quadrature.weights)
        if name == "interpolated":  # errors are measured at unknown nodes
            known = np.setdiff1d(everything, held_out.nodes)
            rule = interpolation_rule(graph, kernel.dim, known)
            trial = dataclasses.replace(final, rule=rule, table=table[known])
        with stage_of(options.progress, f"error of field {name}"):
            error = held_out_error(trial, held_out, options.n_jobs)
        tried[name], candidates[name] = (error, final), error.kernel
        if error.field <= 2e-3:
            break
    best = min(candidates, key=candidates.__getitem__)
    error, map_ = tried[best]
    if error.field > POOR:
        warn_inaccurate(
            f"The field '{best}' is off by {error.field:.0%} at held-out nodes. Causes: (a) a kernel with a spike "
            "at every node, such as DiffusionKernel with tau below 20, (b) too few nodes, (c) a noisy teacher, (d) "
            "few starts or few epochs of training. Remedies: a wider kernel (a Matern kernel in the unit of the "
            "points has clock='manifold'), more points, more walks, another field.",
            useless=error.field > USELESS,
        )
    error = dataclasses.replace(error, candidates=tuple(candidates.items()), quadratures=quadrature.errors)
    return map_, best, error, training


def _train(
    kernel: GraphKernel, anchors: IntArray, held_out: IntArray, options: FitOptions
) -> tuple[Any, TrainingInfo]:
    """A network trained on signatures of random nodes that are not held out."""
    if kernel.asymmetric:
        reject("field", "other than a network for a kernel with two sides", repr(options.field))
    network: Any = options.field
    order = options.streams.generator("features.starts").permutation(kernel.graph.n_nodes)
    starts = np.sort(order[~np.isin(order, held_out)][: network.n_starts])
    table = signature_table(kernel, kernel.series, starts, anchors, options)
    roots, first = np.sqrt(kernel.measure), float(kernel.series.coefficients(1)[0])
    table.data *= np.repeat(roots[starts], np.diff(table.indptr)) * roots[anchors][table.indices]
    return fit_network(
        kernel.graph,
        starts,
        anchors,
        table,
        network,
        unit=1 / first if first > 0 else 1.0,  # the paper's, in which f_0 = 1
        seed=options.streams.generator("features.network"),
        progress=options.progress,
    )


def held_out_error(map_: FeatureMap, reference: Reference, n_jobs: int) -> ErrorEstimate:
    """Errors of a feature map at nodes whose exact rows are known."""
    kernel = map_.kernel
    points = kernel.graph.positions[reference.nodes]
    own = np.ones(len(points)) if kernel.per_volume else np.sqrt(kernel.measure[reference.nodes])
    exact = own[:, None] * reference.kernel * own
    known = reference.rows[:, map_.anchors]
    rows = right = as_dense(map_.rows(points, n_jobs, absolute=False)[0])
    by_anchors = exact  # asymmetric pairs have all nodes as anchors
    if kernel.asymmetric:
        right = as_dense(map_.rows(points, n_jobs, side="right", absolute=False)[0])
    else:
        by_anchors = own[:, None] * gram(known, map_.weights, n_jobs) * own
    found = rows @ right.T
    ideal = known.toarray() * np.sqrt(map_.weights) * own[:, None]  # in the unit of the features
    scale = frobenius(exact) or 1.0
    return ErrorEstimate(
        kernel=frobenius(found - exact) / scale,
        field=frobenius(found - by_anchors) / scale,
        quadrature=frobenius(by_anchors - exact) / scale,
        graph=None,
        signatures=float(np.linalg.norm(rows - ideal) / (np.linalg.norm(ideal) or 1.0)),
    )


def _check_function(
    map_: FeatureMap, known: ErrorEstimate, series_error: float, space: Any, options: FitOptions
) -> float:
    """Error of the series of a function, on a named space between new points; warn if it is large.

    Steps reproduce a peak that is narrower than the spacing of the nodes only at the nodes themselves. On a cloud
    or a mesh the function may be known only at the given points. The measured error includes the known error of
    field and anchors, which is not counted twice.
    """
    if isinstance(space, AbstractManifold):
        # On grids of the sphere half of the error is near the poles: with 192 points it was off by a factor of 3.
        new = space.sample(600, seed=options.streams.generator("features.new points"))
        left = right = as_dense(map_.rows(new, options.n_jobs, absolute=False)[0])
        if map_.kernel.asymmetric:
            right = as_dense(map_.rows(new, options.n_jobs, side="right", absolute=False)[0])
        whole = relative_error(left @ right.T * map_.unit_scale**2, function_values(options.kernel, new, new))
        series_error = max(series_error, float(np.sqrt(max(whole**2 - known.kernel**2, 0.0))))
    if series_error > POOR:
        warn_inaccurate(
            "The function given as kernel is not a series of heat steps of this space: the closest is off by "
            f"{series_error:.0%}. Remedies: more nodes, if its peak is narrower than their spacing; wider steps, "
            "as with HeatGraph(n_steps=8), if its tail is long; else a kernel of the library."
        )
    return series_error
