"""Fitting a feature map: anchors, their weights, and the field, chosen by the error on nodes kept from the fit."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from manifoldrf._runtime import one_blas_thread, warn_user
from manifoldrf._validation import FloatArray, IntArray, reject
from manifoldrf.features.errors import ErrorEstimate, Reference, exact_reference, measure_error
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.options import Plan
from manifoldrf.features.problem import Space
from manifoldrf.fields.anchors import (
    all_anchors,
    anchors_needed,
    farthest_anchors,
    iid_anchors,
    normalised_density,
    spacing_of,
)
from manifoldrf.fields.data import AbstractField, FieldData, observe
from manifoldrf.fields.interpolated import fit_interpolated
from manifoldrf.fields.local import fit_local
from manifoldrf.fields.mlp import fit_mlp
from manifoldrf.fields.options import MlpOptions, TrainingInfo
from manifoldrf.fields.quadrature import (
    Quadrature,
    QuadratureSamples,
    choose_weights,
    uniform_weights,
    voronoi_weights,
)
from manifoldrf.fields.step import fit_step
from manifoldrf.geometry.sampling import thin
from manifoldrf.metrics import relative_error
from manifoldrf.signatures.engines import row_memory, stage_of

__all__ = ["FeatureWarning"]

# Spacing of the anchors over the width of a signature, where their number is chosen: about .02 of error.
_CHOSEN_RATIO = 0.8
_MOST_RATIO = 1.2  # above it the error of the quadrature is 3 to 5 % and more, and a warning says so
_LARGEST = 0.03  # error of the quadrature up to which a chosen number of anchors is enough
_POOR = 0.1  # error of the field from which on a warning says so
_POOR_GRAPH = 0.2  # the same of the graph; a thousand points with a rim that has to be guessed have half of it
# Of a table of signatures, while a number of anchors is chosen; about twice that is used while it is made.
_MOST_BYTES = 2**31
_ALL_SHARE = 0.5  # where more than this share of the nodes would be anchors, all are
_FIT_SAMPLES = 512  # evenly spread nodes at which weights are fitted
_HELD_OUT = 192  # random nodes at which errors are measured
_MLP_STARTS = 1000  # the paper's
_GOOD_ENOUGH = 2e-3  # a field with a smaller error needs no rival
_LOCAL_DIM = 3  # polynomial fields have too many coefficients above


class FeatureWarning(UserWarning):
    """Features that work but are less accurate than they should be: too few, or of a kernel no field can follow.

    Examples
    --------
    >>> import warnings
    >>> from manifoldrf import FeatureWarning, HeatKernel, ManifoldRandomFeatures, Sphere
    >>> with warnings.catch_warnings(record=True) as caught:
    ...     warnings.simplefilter("always", FeatureWarning)
    ...     features = ManifoldRandomFeatures(HeatKernel(0.05), n_features=20).fit(Sphere())
    >>> print(str(caught[0].message).partition(":")[0])
    20 features are too few
    """


@dataclass(frozen=True, eq=False)
class Fitted:
    """A feature map and what is known about it."""

    features: FeatureMap
    field_name: str
    quadrature: Quadrature
    starts: IntArray
    error: ErrorEstimate
    training: TrainingInfo | None = None


@one_blas_thread()  # else the last bits of errors, by which weights and fields are chosen, depend on threads
def fit_features(space: Space, plan: Plan) -> Fitted:
    """Choose anchors, weights and the field."""
    if plan.field == "step" and plan.fit_field is None and space.graph.extension is None:
        reject("field", "another than 'step' on a graph without a rule for new points", repr(plan.field))
    plan = dataclasses.replace(plan, density=_density(space, plan))
    with stage_of(plan.teaching.progress, "anchors"):
        anchors = choose_anchors(space, plan)
    with stage_of(plan.teaching.progress, "weights"):
        quadrature, exam = _weigh(space, anchors, plan)
    while plan.n_features == "auto" and _error_of(quadrature) > _LARGEST:
        with stage_of(plan.teaching.progress, "anchors"):
            # A kernel with a sharp peak needs more than its width says.
            more = _place(space, plan, 2 * len(anchors))
        if len(more) <= len(anchors):
            _warn_of_memory(space, len(anchors), _error_of(quadrature))
            break
        anchors = more
        with stage_of(plan.teaching.progress, "weights"):
            quadrature, exam = _weigh(space, anchors, plan)
    starts = _choose_starts(space, plan, exam.nodes)
    fitted = _Workshop(space, plan, anchors, quadrature, starts, exam).choose()
    _warn_of_field(fitted)
    return fitted


def _density(space: Space, plan: Plan) -> FloatArray | None:
    """The density that anchors are drawn from, on the nodes of the graph."""
    if plan.density is None:
        return None
    n = space.graph.n_nodes
    given = plan.density(space.graph.positions) if callable(plan.density) else plan.density
    if not callable(plan.density) and np.shape(given) != (n,):
        rule = f"a function of the points, or a vector of shape ({n},), one entry for each node of the graph"
        reject("anchor_density", rule, f"shape {np.shape(given)}")
    density = normalised_density(given, n, "anchor_density")
    if (density[space.setting.measure > 0] == 0).any():
        reject("anchor_density", "positive at every node, or sums over anchors are biased", "a zero")
    return density


def choose_anchors(space: Space, plan: Plan) -> IntArray:
    """Nodes at which the field is read."""
    n, setting = space.graph.n_nodes, space.setting
    if plan.anchors == "all" or plan.n_features == "all" or setting.asymmetric:
        return all_anchors(n)
    if plan.n_features == "auto":
        return _place(space, plan, _needed(space, _CHOSEN_RATIO))
    m = int(plan.n_features)
    if plan.anchors == "iid":
        return iid_anchors(n, m, plan.density, plan.streams.generator("features.anchors"))
    if m > n:
        _warn(f"n_features = {m} is more than the graph has nodes: there are {n} features, one for each.")
    _warn_of_spacing(space, m)
    return all_anchors(n) if m >= n else _farthest(space, m)


def _needed(space: Space, ratio: float) -> int:
    """Anchors that the width of the kernel asks for, or all nodes: a kernel next to nothing asks for no end."""
    n, width, dim = space.graph.n_nodes, space.setting.width, space.setting.dim
    if spacing_of(space.volume, n, dim) > ratio * width:
        return n
    return anchors_needed(space.volume, width, dim, ratio)


def _place(space: Space, plan: Plan, m: int) -> IntArray:
    """So many anchors as memory allows, or all nodes where that are not many more."""
    n = space.graph.n_nodes
    m = min(m, _affordable(space, min(m, n)))
    if plan.anchors == "iid":
        return iid_anchors(n, min(m, n), plan.density, plan.streams.generator("features.anchors"))
    return all_anchors(n) if m > _ALL_SHARE * n else _farthest(space, m)


def _farthest(space: Space, m: int) -> IntArray:
    """Farthest nodes that stand for a volume: those all but isolated are the farthest of all, and of no use."""
    alone = space.setting.measure == 0
    chosen = farthest_anchors(space.graph, min(space.graph.n_nodes, m + int(alone.sum())))
    return np.concatenate([chosen[~alone[chosen]], chosen[alone[chosen]]])[:m]


def _affordable(space: Space, m: int) -> int:
    """As many of m anchors as a table of their signatures at all nodes has room for."""
    n, setting = space.graph.n_nodes, space.setting
    if 8.0 * n * m <= _MOST_BYTES:
        return m
    return min(m, int(_MOST_BYTES / row_memory(setting.graph, setting.series)))


def _warn_of_memory(space: Space, m: int, error: float) -> None:
    """Say so where a chosen number of anchors is not enough but more would not fit."""
    if m < space.graph.n_nodes:
        _warn(
            f"n_features='auto' stops at {m} features: more take over {_MOST_BYTES / 2**20:.0f} MB. Sums "
            f"over so few anchors are off by {error:.0%}. Remedies: a wider kernel, or a larger n_features."
        )


def _error_of(quadrature: Quadrature) -> float:
    """Error of the weights that were kept, on held-out nodes."""
    return 0.0 if quadrature.method == "uniform" else min(error for _, error in quadrature.table)


def _warn_of_spacing(space: Space, m: int) -> None:
    setting = space.setting
    ratio = spacing_of(space.volume, m, setting.dim) / setting.width
    if ratio <= _MOST_RATIO or m >= space.graph.n_nodes:
        return
    needed = _needed(space, 1.0)
    remedy = f"n_features={needed}" if needed < space.graph.n_nodes else "n_features='all'"
    _warn(
        f"{m} feature{'s are' if m > 1 else ' is'} too few: anchors are {ratio:.2g} times as far apart as the "
        f"features of this kernel are wide ({setting.width:.2g}), and sums over them are off by several per cent "
        f"(remedy: {remedy}, or a wider kernel)."
    )


def _warn_of_field(fitted: Fitted) -> None:
    """Say so where the series cannot follow a function, or the field the kernel."""
    series_error = fitted.features.space.series_error
    if series_error is not None and series_error > _POOR:
        _warn(
            f"The function given as kernel is no series of heat steps of this space: the closest is off by "
            f"{series_error:.0%}. Remedies: a narrower function, a graph with wider steps (GraphOptions), or a "
            "kernel of the library."
        )
    error = fitted.error.field
    if error > _POOR:
        _warn(
            f"The field '{fitted.field_name}' is off by {error:.0%} at nodes kept from the fit. Causes: (a) a "
            "kernel with a spike at every node, such as DiffusionKernel with tau below 20, (b) too few nodes, "
            "(c) a noisy teacher, (d) few starts or few epochs of training. Remedies: a wider kernel (a Matern "
            "kernel in the unit of the points has clock='manifold'), more points, more walks, another field."
        )


def warn_of_graph(error: ErrorEstimate) -> None:
    """Say so where the graph is far from the space."""
    if error.graph is not None and error.graph > _POOR_GRAPH:
        _warn(
            f"The kernel of the graph is off by about {error.graph:.0%}: too few points for a kernel so narrow, or "
            "a boundary. The features stand for that of the graph. Remedies: more points, a larger t."
        )


def _warn(text: str) -> None:
    warn_user(text, FeatureWarning)


def _choose_samples(space: Space, anchors: IntArray, plan: Plan) -> tuple[IntArray, IntArray]:
    """Evenly spread nodes to fit weights at, random ones to measure errors at; no anchors if there are others."""
    usable = np.flatnonzero(space.setting.measure > 0)
    rest = np.setdiff1d(usable, anchors)
    fits = len(anchors) < space.graph.n_nodes and plan.weights in ("auto", "unity", "nnls")
    if len(rest) < 2 * _HELD_OUT:
        rest = usable
    rng = plan.streams.generator("features.held out")
    count = max(1, min(_HELD_OUT, len(usable) // 4))  # most nodes of a small space are to be learnt from
    held_out = np.sort(rng.choice(rest, count, replace=False))
    if not fits:
        return rest[:0], held_out
    others = np.setdiff1d(rest, held_out)
    others = others if len(others) else rest
    points = space.graph.positions[others]
    return others[thin(points, min(len(others), _FIT_SAMPLES))], held_out


def _weigh(space: Space, anchors: IntArray, plan: Plan) -> tuple[Quadrature, Reference]:
    """Weights of the anchors, and exact values at nodes that took no part in finding them."""
    setting = space.setting
    measure, graph = setting.measure, setting.graph
    fit_nodes, held_out = _choose_samples(space, anchors, plan)
    nodes = np.concatenate([fit_nodes, held_out])
    reference = exact_reference(setting, nodes, plan.teaching.n_jobs)
    positions = np.arange(len(fit_nodes), len(nodes))
    samples = None
    if not setting.asymmetric:
        total = float(setting.series.spectral(np.array([1.0]))[0])
        samples = QuadratureSamples(reference.rows[:, anchors], reference.kernel, positions, total)
    complete = len(anchors) == graph.n_nodes and (plan.anchors != "iid" or setting.asymmetric)
    uniform = uniform_weights(measure, anchors, plan.density if plan.anchors == "iid" else None)
    method = "uniform" if complete or (plan.anchors == "iid" and plan.weights == "auto") else plan.weights
    base = uniform if complete else voronoi_weights(graph, measure, anchors)
    ratio = spacing_of(space.volume, len(anchors), setting.dim) / setting.width
    quadrature = choose_weights(method, base, samples=samples, ratio=ratio, uniform=uniform)
    return quadrature, reference.part(positions)


def _choose_starts(space: Space, plan: Plan, held_out: IntArray) -> IntArray:
    """Nodes whose signatures a field is fitted to: all, or so many random ones, the held-out ones last."""
    n = space.graph.n_nodes
    wanted = plan.n_starts or (_MLP_STARTS if plan.field == "mlp" else n)
    if wanted >= n:
        return np.arange(n)
    order = plan.streams.generator("features.starts").permutation(n)
    late = np.isin(order, held_out)
    return np.sort(np.concatenate([order[~late], order[late]])[:wanted])


@dataclass(frozen=True, eq=False)
class _Workshop:
    """Makes fields and compares them."""

    space: Space
    plan: Plan
    anchors: IntArray
    quadrature: Quadrature
    starts: IntArray
    exam: Reference

    def choose(self) -> Fitted:
        """The field that was asked for, or the one with the least error."""
        best: tuple[str, AbstractField, ErrorEstimate, TrainingInfo | None] | None = None
        table = []
        data = None
        told = self.plan.teaching.progress
        for name in self._candidates():
            if data is None and (name != "step" or self.plan.fit_field is not None):
                data = self._observe()
            with stage_of(told, f"field {name}"):
                field, training = self._make(name, data, trial=True)
            with stage_of(told, f"error of field {name}"):
                error = measure_error(self._map(field), self.exam, self.plan.teaching.n_jobs)
            table.append((name, error.kernel))
            if best is None or error.kernel < best[2].kernel:
                best = name, field, error, training
            if error.field <= _GOOD_ENOUGH:
                break
        if best is None:
            raise RuntimeError("no field was tried")
        name, field, error, training = best
        starts = self.starts
        if name in ("interpolated", "local") or self.plan.fit_field is not None:  # again with all: leaves no holes
            with stage_of(told, f"field {name}"):
                trial, (field, _) = field, self._make(name, data, trial=False)
            error = self._with_other_rule(error, trial, field)
        elif name == "mlp":  # too costly to be trained twice
            starts = np.setdiff1d(starts, self.exam.nodes)
        error = dataclasses.replace(error, candidates=tuple(table), weights=self.quadrature.table)
        return Fitted(self._map(field), name, self.quadrature, starts, error, training)

    def _with_other_rule(self, error: ErrorEstimate, trial: AbstractField, final: AbstractField) -> ErrorEstimate:
        """The error of a field that interpolates by another rule, now that all vertices of a mesh are known."""
        mesh = self.space.graph.mesh
        if mesh is None or getattr(trial, "rule", None) == getattr(final, "rule", None):
            return error
        places = mesh.sample(_HELD_OUT, seed=self.plan.streams.generator("features.places")).points
        first, second = (self._map(field).rows(places, 1, absolute=False)[0] for field in (trial, final))
        change = relative_error((second @ second.T).toarray(), (first @ first.T).toarray())
        field, kernel = (float(np.hypot(share, change)) for share in (error.field, error.kernel))
        return dataclasses.replace(error, field=field, kernel=kernel)

    def _candidates(self) -> Iterator[str]:
        """The fields to try: those of a walk that always takes a step begin with the one that needs no fit."""
        if self.plan.field != "auto":
            yield self.plan.field
            return
        setting = self.space.setting
        spike = abs(float(setting.series.coefficients(1)[0]))
        small = spike <= _GOOD_ENOUGH * abs(float(setting.series.spectral(np.array([1.0]))[0]))
        if small and setting.graph.extension is not None:
            yield "step"
        yield "interpolated"
        flat = setting.graph.mesh is None and setting.graph.metric is None
        if not setting.asymmetric and setting.dim <= _LOCAL_DIM and flat:
            yield "local"

    def _map(self, field: AbstractField) -> FeatureMap:
        weights = self.quadrature.weights
        if self.space.setting.asymmetric:
            weights = np.ones(len(self.anchors))
        return FeatureMap(self.space, field, self.anchors, weights)

    def _observe(self) -> FieldData:
        return observe(self.space.setting, self.starts, self.anchors, self.plan.teaching)

    def _make(self, name: str, data: FieldData | None, *, trial: bool) -> tuple[AbstractField, TrainingInfo | None]:
        """A field; for a trial, without the held-out nodes among its starts."""
        teaching = self.plan.teaching
        if data is None:
            return fit_step(self.space.setting, self.anchors, teaching), None
        if trial:
            data = data.without(np.flatnonzero(np.isin(data.starts, self.exam.nodes)))
        if self.plan.fit_field is not None:
            return _check_made(self.plan.fit_field(data), len(self.anchors)), None
        if name == "interpolated":
            return fit_interpolated(data), None
        if name == "local":
            return fit_local(data, n_jobs=teaching.n_jobs, **self.plan.field_options), None
        options = MlpOptions(**self.plan.field_options)
        seed = self.plan.streams.generator("features.network")
        return fit_mlp(data, options, seed=seed, progress=teaching.progress, n_jobs=teaching.n_jobs)


def _check_made(field: Any, n_anchors: int) -> AbstractField:
    """A field that a function of the user's made."""
    if not isinstance(field, AbstractField):
        reject(
            "field",
            "a function that returns an AbstractField",
            f"one that returns {type(field).__name__}",
            TypeError,
        )
    if field.n_anchors != n_anchors:
        reject("field", f"a function that returns a field with {n_anchors} columns", f"one with {field.n_anchors}")
    return field
