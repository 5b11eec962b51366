"""Clouds without structure: find out whether a graph of the points shows more than their distances do.

Above three dimensions the graph of a few thousand points may follow a shape, or only the noise of the sampling. Two
graphs of different halves of the points tell which: a shape is in both. If there is none, features represent the
Gaussian kernel of the ambient space instead.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from manifoldrf._random import generator
from manifoldrf._runtime import one_blas_thread, stage_of, warn_user, without_warnings
from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.features.errors import ErrorEstimate
from manifoldrf.features.feature_map import FeatureMap, symmetric_product
from manifoldrf.features.fitting import FeatureWarning, FieldChoice, note_flat
from manifoldrf.features.options import FitOptions, GraphOptions
from manifoldrf.fields.data import Problem
from manifoldrf.fields.gaussian import GaussianField, fit_gaussian, gaussian_kernel
from manifoldrf.geometry.builders import knn_graph
from manifoldrf.geometry.graphs import GraphWarning
from manifoldrf.geometry.neighbors import distances_between
from manifoldrf.kernels.abstract_kernel import ScaledKernel
from manifoldrf.kernels.graph_kernels import DiffusionKernel
from manifoldrf.kernels.manifold_kernels import HeatKernel
from manifoldrf.metrics import relative_error

_FEWEST = 100  # points; fewer are too few for two graphs
_LARGEST_HALF = 4000  # points of each graph
_COMMON = 200  # points in both graphs, at which their kernels are compared
_STEPS = 20.0  # of the compared kernels: the paper's
_COARSE = 2  # steps of a heat graph whose nodes are too few for the kernel
# Share of the nodes in a step. 1500 points of the 4-torus and the 5-torus, t = .1: steps reach .02 and .008 of the
# nodes, the heat graph is .48 and .47 off after alignment, Gaussian features .31 and .29. 3000 points of S^4, with
# t = .05: steps reach .21, the heat graph is .11 off, Gaussian features .13.
_SHORT = 0.1
# The difference of the two graphs over the misfit of the best Gaussian. Structure: .46 to .62 on digits and
# photographs (.80 with 300 digits), .06 to .62 on clusters, a noisy roll in R^50, wine and breast cancer. None:
# .85 to 1.4 on normal, uniform and heavy-tailed clouds, tori and spheres, in 4 to 30 dimensions.
_REPRODUCED = 0.75
_GAUSSIAN = 0.05  # a graph that is this close to a Gaussian shows nothing else: 300 normal points in R^20 have .02
_WIDTHS = np.geomspace(0.003, 3.0, 25)  # heat times over the median squared distance
_FIT_NODES, _HELD_OUT = 256, 192
# Nodes that a centre is made of. With few of them, the kernel has a spike at these nodes (normal points in R^20,
# t = 5.9: errors between nodes and between new points are .279 and .142 with 2, .129 and .124 with 8).
_NODES_OF_A_CENTRE = 8
_FEWEST_CENTRES, _MOST_CENTRES = 512, 4096
_ENOUGH = 0.03  # error up to which a chosen number of centres is enough
_POOR = 0.15  # error above which there is a warning


def is_unstructured(problem: Problem, space: Any, kernel: Any, options: FitOptions) -> bool:
    """Whether the features of a cloud should represent a Gaussian kernel, not that of its graph.

    They do if nothing but a heat kernel was asked for, there are too many dimensions for a heat graph or its nodes
    are too few for the kernel, and two halves of the points give graphs that differ from each other as much as from
    a Gaussian. A heat graph is kept if the absolute scale of its kernel is asked for.
    """
    if problem.graph.n_steps is not None and not (options.normalize and _is_coarse(problem)):
        return False
    chosen = options.graph if isinstance(options.graph, GraphOptions) else GraphOptions()
    by_default = (
        isinstance(space, np.ndarray)
        and (options.graph is None or isinstance(options.graph, GraphOptions))
        and (chosen.kind, chosen.metric, chosen.wants_neighbors) == ("auto", None, False)
        and (options.field, options.anchors, options.weights) == ("auto", "farthest", "auto")
        and options.fit_field is None
        and options.signatures.teacher == "auto"
    )
    heat = kernel is None or isinstance(_unscaled(kernel)[0], HeatKernel)
    if not (by_default and heat) or problem.graph.n_nodes < _FEWEST:
        return False
    with stage_of(options.progress, "structure"), without_warnings(GraphWarning):
        return _shows_nothing(problem.graph.positions, options.n_jobs)


def _is_coarse(problem: Problem) -> bool:
    """Whether a heat graph has too few nodes for a kernel that is short compared with the space."""
    graph = problem.graph
    reached = graph.affinity.nnz / graph.n_nodes**2  # share of all nodes, in a step
    return graph.n_steps == _COARSE and reached < _SHORT


@one_blas_thread()
def _shows_nothing(points: FloatArray, n_jobs: int) -> bool:
    """Whether graphs of two halves of the points differ from each other as much as from a Gaussian."""
    n = len(points)
    # A fixed order: whether a cloud has structure must not depend on the seed.
    order = generator(0, "structure").permutation(n)
    common, rest = np.split(order, [min(_COMMON, n // 5)])
    size = min(len(rest) // 2, _LARGEST_HALF)
    apart = ~np.eye(len(common), dtype=bool)
    squares = distances_between(points[common], points[common], None)[apart] ** 2
    first, second = (
        _cosines(points[np.concatenate([common, half])], len(common), n_jobs)[apart]
        for half in (rest[:size], rest[size : 2 * size])
    )
    unit = float(np.median(squares))
    if not (first.any() and second.any() and unit > 0):
        return False  # two graphs in pieces, or many equal points
    gaussians = [np.exp(-squares / (4 * share * unit)) for share in _WIDTHS]
    misfit = np.mean([min(_difference(gaussian, graph) for gaussian in gaussians) for graph in (first, second)])
    between = (_difference(first, second) + _difference(second, first)) / 2
    return bool(misfit < _GAUSSIAN or between > _REPRODUCED * misfit)


def _cosines(points: FloatArray, n_common: int, n_jobs: int) -> FloatArray:
    """The kernel of a graph between its first nodes, scaled to K(x, x) = 1."""
    graph = knn_graph(points, bandwidth="local", density_correction=1.0, n_jobs=n_jobs)
    nodes = np.arange(n_common)
    kernel = DiffusionKernel(_STEPS).matrix(graph, nodes, nodes, n_jobs=n_jobs)
    roots = np.sqrt(np.diagonal(kernel))
    return np.asarray(kernel / roots[:, None] / roots)


def _difference(values: FloatArray, reference: FloatArray) -> float:
    """Relative difference after the best common factor."""
    return float(relative_error(values[None], reference[None], alignment="least squares"))


def _unscaled(kernel: Any) -> tuple[Any, float]:
    """A kernel without its factor, and the factor."""
    return (kernel.kernel, kernel.factor) if isinstance(kernel, ScaledKernel) else (kernel, 1.0)


def fit_unstructured(problem: Problem, kernel: Any, options: FitOptions) -> tuple[FeatureMap, FieldChoice]:
    """Features of the Gaussian kernel exp(-|x - y|^2 / 4t), times a factor, and their error at held-out nodes."""
    points, notes = problem.graph.positions, dict(problem.notes)
    if kernel is None:
        kernel = HeatKernel(float(f"{_usual_time(points) * options.scale**2:.3g}"))
        times = "" if options.scale == 1 else f"{options.scale:.3g} times "
        notes["kernel"] = f"chosen: {times}as wide as the median distance between points"
    heat, factor = _unscaled(kernel)
    notes["structure"] = (
        f"no low-dimensional structure found: features of a Gaussian kernel of width {np.sqrt(2 * heat.t):.3g}, "
        f"{factor:g} high, which is not the absolute height of a heat kernel"
    )
    split = _Split.of(len(points), options)
    wanted = options.n_features
    m = problem.graph.n_nodes if wanted == "all" else _FEWEST_CENTRES if wanted == "auto" else int(wanted)
    with stage_of(options.progress, "field gaussian"):
        anchors, field, error = _fit_field(points, heat.t, split, m, options)
        while wanted == "auto" and error > _ENOUGH and len(anchors) < _MOST_CENTRES:
            anchors, field, error = _fit_field(points, heat.t, split, 2 * len(anchors), options)
    _warn_of_error(error, len(anchors))
    marks = note_flat(notes.items(), gaussian_kernel(points[split.held_out], heat.t))
    gaussian = dataclasses.replace(
        problem,
        clock="ambient",
        stated=kernel,
        resolved=kernel.resolve(problem.graph, problem.dim).on(problem.graph),
        width=float(np.sqrt(heat.t)),
        notes=marks,
    )
    features = FeatureMap(gaussian, field, anchors, np.full(len(anchors), factor))
    estimate = ErrorEstimate(error, 0.0, error, None, 0.0, candidates=(("gaussian", error),))
    return features, FieldChoice(field, "gaussian", split.fit, estimate)


@dataclass(frozen=True, eq=False)
class _Split:
    """Nodes at which the bandwidth is fitted, at which errors are measured, and from which centres are made."""

    fit: IntArray
    held_out: IntArray
    rest: IntArray

    @classmethod
    def of(cls, n: int, options: FitOptions) -> "_Split":
        """Split n nodes at random, at least half of them for centres."""
        order = options.streams.generator("features.held out").permutation(n)
        ends = np.cumsum([min(_FIT_NODES, n // 4), min(_HELD_OUT, n // 4)])
        return cls(*(np.sort(part) for part in np.split(order, ends)))


def _fit_field(
    points: FloatArray, t: float, split: _Split, m: int, options: FitOptions
) -> tuple[IntArray, GaussianField, float]:
    """The first node of each of m centres, the field of these centres, and its error at held-out nodes."""
    # A centre is the sum of some random nodes divided by the root of their number, relative to the mean of all
    # nodes. Such points are spread like the nodes, and there are as many as needed.
    rng = options.streams.generator("features.anchors")
    rounds = -(-m // len(split.rest))  # each node is used about equally often
    nodes = [
        np.tile(split.rest, rounds)[rng.permutation(rounds * len(split.rest))[:m]]
        for _ in range(_NODES_OF_A_CENTRE)
    ]
    mean = points[split.rest].mean(axis=0)
    centres = mean + sum(points[part] - mean for part in nodes) / np.sqrt(_NODES_OF_A_CENTRE)
    field = fit_gaussian(centres, t, points[split.fit])
    held_out = points[split.held_out]
    rows = field.values(held_out, options.n_jobs)
    return nodes[0], field, relative_error(symmetric_product(rows, options.n_jobs), gaussian_kernel(held_out, t))


def _usual_time(points: FloatArray) -> float:
    """The heat time whose width is the median distance between points."""
    some = points[:: max(1, len(points) // _COMMON)]
    distances = distances_between(some, some, None)
    return float(f"{np.median(distances[np.triu_indices(len(some), 1)]) ** 2 / 2:.3g}")


def _warn_of_error(error: float, m: int) -> None:
    """Warn if there are too few features for the width of the kernel."""
    if error > _POOR:
        warn_user(
            f"{m} features represent a Gaussian kernel (no low-dimensional structure was found) with an error of "
            f"{error:.0%} at held-out points. Remedies: a larger t, or a larger n_features.",
            FeatureWarning,
        )
