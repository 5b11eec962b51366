"""The path of a fit: space, graph, anchors, weights, table, map."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from manifoldrf._codec import stored
from manifoldrf._runtime import stage_of, without_warnings
from manifoldrf._validation import FloatArray, IntArray, reject
from manifoldrf.features.anchors import Quadrature, choose_anchors, fit_weights
from manifoldrf.features.errors import POOR, USELESS, ErrorEstimate, warn
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.graph_kernel import (
    STEP_SHARE,
    GraphKernel,
    Reference,
    discretise,
    exact_reference,
    gram,
    signature_table,
)
from manifoldrf.features.graphs import function_values
from manifoldrf.features.options import FitOptions
from manifoldrf.features.rules import WalkStep, interpolation_rule
from manifoldrf.geometry.csr import as_dense
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.sampling import thin
from manifoldrf.kernels.graph_kernels import shifted
from manifoldrf.metrics import frobenius, relative_error
from manifoldrf.paper.network import TrainingInfo, fit_network


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


def fit_features(space: Any, options: FitOptions, learner: str | None = None) -> tuple[FeatureMap, FitRecord]:
    """Fit features to a space, as returned by ``check_space``.

    A ``learner`` needs features with one side: others are refused as soon as the kernel is known on the graph.
    """
    kernel, found = discretise(space, options)
    if learner is not None and kernel.asymmetric:
        reject("features", f"features with one side in {learner}", f"those of {kernel.stated!r}"[:200])
    with stage_of(options.progress, "anchors"):
        anchors = choose_anchors(kernel, options)
    with stage_of(options.progress, "weights"):
        fitting, held_out = _references(kernel, anchors, options)
        quadrature = fit_weights(kernel, anchors, fitting, held_out, options)
        # A kernel with a sharp peak needs more anchors than its width suggests: a Matern kernel (nu = 1.5) on the
        # sphere is .13 off with 95, .02 with 380.
        while options.n_features == "auto" and quadrature.error > 0.03:
            more = choose_anchors(kernel, options, 2 * len(anchors))
            if len(more) == len(anchors):
                break
            anchors = more
            fitting, held_out = _references(kernel, anchors, options)
            quadrature = fit_weights(kernel, anchors, fitting, held_out, options)
    map_, field, error, training = _fit_field(kernel, anchors, quadrature, held_out, options)
    notes, series_error = found.notes, found.series_error
    if series_error is not None:
        series_error = _check_function(map_, error, series_error, space, options)
    if _is_flat(held_out.kernel):
        notes = (*notes, ("separation", "the kernel is nearly constant"))
    if options.normalize:
        map_ = map_.normalized(options.n_jobs)
    return map_, FitRecord(notes, field, quadrature.method, error, series_error, training)


def _references(kernel: GraphKernel, anchors: IntArray, options: FitOptions) -> tuple[Reference, Reference]:
    """Exact values at evenly spread nodes to fit weights at, and at random ones to measure errors at.

    They are no anchors if possible.
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
        fitting = others[thin(kernel.graph.positions[others], min(len(others), 512))]
    reference = exact_reference(kernel, np.concatenate([fitting, held_out]), options.n_jobs)
    first = np.arange(len(fitting))
    return reference.part(first), reference.part(np.arange(len(fitting), len(reference.nodes)))


def _fit_field(
    kernel: GraphKernel, anchors: IntArray, quadrature: Quadrature, held_out: Reference, options: FitOptions
) -> tuple[FeatureMap, str, ErrorEstimate, TrainingInfo | None]:
    """The map by the rule that was asked for or, with "auto", by the one with the smaller error at held-out nodes.

    The step comes first where a walk always takes one: it needs no fit, and on heat graphs it is exact.
    """
    graph, everything, training = kernel.graph, np.arange(kernel.graph.n_nodes), None
    names = [options.field] if isinstance(options.field, str) else ["network"]
    if options.field == "auto":
        names = ["step", "interpolated"][graph.extension is None or kernel.has_spike :]
    tried: dict[str, tuple[ErrorEstimate, FeatureMap]] = {}
    for name in names:
        if name == "step":
            rule: Any = WalkStep(graph)
            table = signature_table(
                kernel, shifted(kernel.series), everything, anchors, options.teaching, STEP_SHARE
            )
            final = trial = FeatureMap(kernel, rule, table, anchors, quadrature.weights)
        elif name == "interpolated":
            table = signature_table(kernel, kernel.series, everything, anchors, options.teaching)
            final = FeatureMap(kernel, interpolation_rule(graph, kernel.dim), table, anchors, quadrature.weights)
            known = np.setdiff1d(everything, held_out.nodes)  # the error is that at nodes that are not known
            rule = interpolation_rule(graph, kernel.dim, known)
            trial = dataclasses.replace(final, rule=rule, table=table[known])
        else:
            table, training = _train(kernel, anchors, held_out.nodes, options)
            rule = interpolation_rule(graph, kernel.dim)
            final = trial = FeatureMap(kernel, rule, table, anchors, quadrature.weights)
        with stage_of(options.progress, f"error of field {name}"):
            tried[name] = held_out_error(trial, held_out, options.n_jobs), final
        if tried[name][0].field <= 2e-3:
            break
    best = min(tried, key=lambda name: tried[name][0].kernel)
    error, map_ = tried[best]
    if error.field > POOR:
        warn(
            f"The field '{best}' is off by {error.field:.0%} at held-out nodes. Causes: (a) a kernel with a spike "
            "at every node, such as DiffusionKernel with tau below 20, (b) too few nodes, (c) a noisy teacher, (d) "
            "few starts or few epochs of training. Remedies: a wider kernel (a Matern kernel in the unit of the "
            "points has clock='manifold'), more points, more walks, another field.",
            useless=error.field > USELESS,
        )
    candidates = tuple((name, one.kernel) for name, (one, _) in tried.items())
    error = dataclasses.replace(error, candidates=candidates, weights=quadrature.errors)
    return map_, best, error, training


def _train(
    kernel: GraphKernel, anchors: IntArray, held_out: IntArray, options: FitOptions
) -> tuple[Any, TrainingInfo]:
    """A network trained on signatures of random nodes that are not held out."""
    network: Any = options.field
    order = options.streams.generator("features.starts").permutation(kernel.graph.n_nodes)
    starts = np.sort(order[~np.isin(order, held_out)][: network.n_starts])
    table = signature_table(kernel, kernel.series, starts, anchors, options.teaching)
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
        n_jobs=options.n_jobs,
    )


def held_out_error(map_: FeatureMap, reference: Reference, n_jobs: int) -> ErrorEstimate:
    """Errors of a feature map at nodes whose exact rows are known."""
    kernel = map_.kernel
    points = map_.graph.positions[reference.nodes]
    own = np.ones(len(points)) if kernel.per_volume else np.sqrt(kernel.measure[reference.nodes])
    exact = own[:, None] * reference.kernel * own
    known = reference.rows[:, map_.anchors]
    rows = right = dense_rows(map_, points, n_jobs)
    by_anchors = exact  # asymmetric pairs have all nodes as anchors
    if kernel.asymmetric:
        right = dense_rows(map_, points, n_jobs, side="right")
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


def dense_rows(map_: FeatureMap, points: FloatArray, n_jobs: int, *, side: str = "left") -> FloatArray:
    """Features of points of the space in the unit of the measure, without warnings: some nodes may count as far."""
    with without_warnings(Warning):
        return as_dense(map_.rows(points, n_jobs, side=side, absolute=False)[0])


def _check_function(
    map_: FeatureMap, known: ErrorEstimate, series_error: float, space: Any, options: FitOptions
) -> float:
    """Error of the series of a function, on a named space between new points; warn if it is large.

    At nodes, steps follow a peak that is narrower than the spacing of the nodes; between them they do not. On a
    cloud or a mesh the function may be known at the given points only. The known error of field and anchors is part
    of what is measured, and is not counted twice.
    """
    if isinstance(space, AbstractManifold):
        # On grids of the sphere half of the error is near the poles: 192 points missed it by a factor of 3.
        new = space.sample(600, seed=options.streams.generator("features.new points"))
        left = right = dense_rows(map_, new, options.n_jobs)
        if map_.kernel.asymmetric:
            right = dense_rows(map_, new, options.n_jobs, side="right")
        whole = relative_error(left @ right.T * map_.scale**2, function_values(options.kernel, new, new))
        series_error = max(series_error, float(np.sqrt(max(whole**2 - known.kernel**2, 0.0))))
    if series_error > POOR:
        warn(
            "The function given as kernel is not a series of heat steps of this space: the closest is off by "
            f"{series_error:.0%}. Remedies: more nodes, if its peak is narrower than their spacing; wider steps, "
            "as with HeatGraph(n_steps=8), if its tail is long; else a kernel of the library."
        )
    return series_error


def _is_flat(kernel: FloatArray) -> bool:
    """Whether a kernel between some nodes is nearly constant; warns if it is."""
    roots = np.sqrt(np.abs(np.diagonal(kernel)))
    # On the unit sphere the smallest cosine is .985 for t = 3 and .997 for t = 4.
    if len(roots) < 2 or not (kernel > 0.99 * roots[:, None] * roots).all():
        return False
    warn(
        "The kernel is nearly constant: above 99% of its maximum for all sampled pairs, because it is much wider "
        "than the data. A small error says nothing about the use of such features (remedy: a much shorter time).",
        useless=True,
    )
    return True
