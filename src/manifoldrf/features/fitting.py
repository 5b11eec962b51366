"""Choose anchors, their weights and the field of a feature map, by the error at held-out nodes."""

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._runtime import quick_map, stage_of, warn_user, without_warnings
from manifoldrf._validation import FloatArray, IntArray, reject
from manifoldrf.features.errors import ErrorEstimate
from manifoldrf.features.feature_map import FeatureMap, row_spans, symmetric_product
from manifoldrf.features.options import FitOptions
from manifoldrf.features.problem import function_values
from manifoldrf.fields.anchors import (
    GOOD_SPACING,
    WIDEST_SPACING,
    Quadrature,
    QuadratureSamples,
    all_anchors,
    anchors_needed,
    compare_weights,
    farthest_anchors,
    iid_anchors,
    medoid_anchors,
    normalised_density,
    spacing_of,
    uniform_weights,
    voronoi_weights,
)
from manifoldrf.fields.data import AbstractField, FieldData, Problem, SignatureOptions, has_spike, signature_table
from manifoldrf.fields.interpolated import fit_interpolated
from manifoldrf.fields.local import fit_local
from manifoldrf.fields.mlp import fit_mlp
from manifoldrf.fields.step import fit_step
from manifoldrf.fields.training import MlpOptions, TrainingInfo
from manifoldrf.geometry.csr import as_dense
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.sampling import thin
from manifoldrf.metrics import frobenius, relative_error
from manifoldrf.signatures.teachers import row_memory

__all__ = ["FeatureWarning"]

_LARGEST = 0.03  # quadrature error up to which a chosen number of anchors is enough
_POOR = 0.1  # field error above which there is a warning
_USELESS = 0.5  # error of field or graph above which features say little about the kernel
_POOR_GRAPH = 0.2  # the same for the graph; a thousand points with an estimated boundary have half of it
# Memory for a table of signatures when the number of anchors is chosen; about twice as much is used on the way.
_MOST_BYTES = 2**31
_ALL_SHARE = 0.5  # if more than this share of the nodes would be anchors, all are
_FIT_SAMPLES = 512  # evenly spread nodes at which weights are fitted
_HELD_OUT = 192  # random nodes at which errors are measured
# Points between which a function is compared. On grids of the sphere half of the error is near the poles: with 192
# points it was missed by a factor of 3.
_NEW_POINTS = 600
_MLP_STARTS = 1000  # the paper's
_GOOD_ENOUGH = 2e-3  # a field with a smaller error is taken without trying others
_LOCAL_DIM = 3  # above, polynomial fields have too many coefficients
_FLAT = 0.99  # smallest cosine: on the unit sphere it is .985 for t = 3 and .997 for t = 4
# Nodes of a feature that a function without symmetry is fitted at. A narrow function on the sphere (6000 points,
# 600 features) is off by .30 with 1.5, .13 with 2, .11 with 3, .08 with 4; with 1 it is not determined (68).
_NODES_OF_A_FEATURE = 4
# Most features of such a function, and most nodes. 2048 features at 8192 nodes take 14 CPU s of products and
# eigenvectors, and 67 million values of the function; without bounds time grows with the cube of the features.
_MOST_MIXED, _MOST_NODES = 4096, 8192
_PAIRS_AT_ONCE = 2**20
# Combinations of features with a smaller share of the largest singular value are left out. A drifted heat kernel on
# the circle is off by 3e-4 with .01, 4e-5 with 1e-4 and 2e-5 with 1e-6; mixed features grow with smaller shares.
_RESOLVED = 1e-4
_DENSE_ENTRIES = 5e7  # rows with fewer entries are multiplied as a dense matrix


class FeatureWarning(UserWarning):
    """Features work but are less accurate than they should be: too few, or no field can follow the kernel.

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


def settle_options(problem: Problem, options: FitOptions) -> FitOptions:
    """Check the options that depend on the graph, and evaluate the density of the anchors at its nodes."""
    if options.field == "step" and options.fit_field is None and problem.graph.extension is None:
        reject("field", "other than 'step' on a graph without a rule for new points", repr(options.field))
    if options.density is None:
        return options
    n = problem.graph.n_nodes
    given = options.density(problem.graph.positions) if callable(options.density) else options.density
    if not callable(options.density) and np.shape(given) != (n,):
        rule = f"a function of the points, or a vector of shape ({n},), one entry for each node of the graph"
        reject("anchor_density", rule, f"shape {np.shape(given)}")
    density = normalised_density(given, n, "anchor_density")
    if (density[problem.measure > 0] == 0).any():
        reject("anchor_density", "positive at every node, or sums over anchors are biased", "a zero")
    return dataclasses.replace(options, density=density)


def choose_anchors(problem: Problem, options: FitOptions) -> IntArray:
    """Nodes at which the field is read."""
    n = problem.graph.n_nodes
    with stage_of(options.progress, "anchors"):
        if options.anchors == "all" or options.n_features == "all" or problem.asymmetric:
            return all_anchors(n)
        if options.n_features == "auto":
            return _place(problem, options, _needed(problem, GOOD_SPACING))
        m = int(options.n_features)
        if options.anchors == "iid":
            return iid_anchors(n, m, options.density, options.streams.generator("features.anchors"))
        if m > n:
            _warn(f"n_features = {m} is more than the graph has nodes: there are {n} features, one for each.")
        _warn_of_spacing(problem, m)
        return all_anchors(n) if m >= n else _spread(problem, options, m)


def more_anchors(problem: Problem, quadrature: Quadrature, options: FitOptions) -> IntArray | None:
    """Twice as many anchors if their number is chosen and the error is too large; None if there are enough.

    A kernel with a sharp peak needs more anchors than its width suggests.
    """
    m, error = len(quadrature.weights), quadrature.error
    if options.n_features != "auto" or error <= _LARGEST:
        return None
    with stage_of(options.progress, "anchors"):
        more = _place(problem, options, 2 * m)
    if len(more) > m:
        return more
    if m < problem.graph.n_nodes:
        _warn(
            f"n_features='auto' stops at {m} features: more take over {_MOST_BYTES / 2**20:.0f} MB. Sums "
            f"over so few anchors are off by {error:.0%}. Remedies: a wider kernel, or a larger n_features."
        )
    return None


def _needed(problem: Problem, ratio: float) -> int:
    """Number of anchors for the width of the kernel; all nodes if the kernel is too narrow for any number."""
    n = problem.graph.n_nodes
    if spacing_of(problem.volume, n, problem.dim) > ratio * problem.width:
        return n
    return anchors_needed(problem.volume, problem.width, problem.dim, ratio)


def _place(problem: Problem, options: FitOptions, m: int) -> IntArray:
    """As many of m anchors as fit in memory; all nodes if that is nearly as many."""
    n = problem.graph.n_nodes
    most = min(m, n)
    if 8.0 * n * most > _MOST_BYTES:
        most = min(most, int(_MOST_BYTES / row_memory(problem.graph, problem.series)))
    m = min(m, most)
    if options.anchors == "iid":
        return iid_anchors(n, min(m, n), options.density, options.streams.generator("features.anchors"))
    return all_anchors(n) if m > _ALL_SHARE * n else _spread(problem, options, m)


def _spread(problem: Problem, options: FitOptions, m: int) -> IntArray:
    """Farthest nodes with a volume, or the middles of their cells.

    Nearly isolated nodes are the farthest of all, and useless.
    """
    alone = problem.measure == 0
    chosen = farthest_anchors(problem.graph, min(problem.graph.n_nodes, m + int(alone.sum())))
    chosen = np.concatenate([chosen[~alone[chosen]], chosen[alone[chosen]]])[:m]
    return medoid_anchors(problem.graph, problem.measure, chosen) if options.anchors == "medoid" else chosen


def _warn_of_spacing(problem: Problem, m: int) -> None:
    ratio = spacing_of(problem.volume, m, problem.dim) / problem.width
    if ratio <= WIDEST_SPACING or m >= problem.graph.n_nodes:
        return
    needed = _needed(problem, 1.0)
    remedy = f"n_features={needed}" if needed < problem.graph.n_nodes else "n_features='all'"
    _warn(
        f"{m} feature{'s are' if m > 1 else ' is'} too few: anchors are {ratio:.2g} times as far apart as the "
        f"features of this kernel are wide ({problem.width:.2g}), and sums over them are off by several per cent "
        f"(remedy: {remedy}, or a wider kernel)."
    )


@dataclass(frozen=True, eq=False)
class Reference:
    """Exact values at some nodes.

    Attributes
    ----------
    nodes : int array of shape (s,)
    rows : CSR array of shape (s, n_nodes)
        h(node, .), in the unit of the measure.
    kernel : array of shape (s, s)
        sum over all nodes j of mu_j h(x, j) h(y, j); the kernel itself for asymmetric pairs.
    """

    nodes: IntArray
    rows: Any
    kernel: FloatArray

    def part(self, positions: IntArray) -> "Reference":
        """The values at some of the nodes."""
        return Reference(self.nodes[positions], self.rows[positions], self.kernel[np.ix_(positions, positions)])


def choose_weights(problem: Problem, anchors: IntArray, options: FitOptions) -> tuple[Quadrature, Reference]:
    """Weights of the anchors, and exact values at held-out nodes, which are not used to find the weights."""
    if problem.function is not None and len(anchors) > _MOST_MIXED:
        rule = f"at most {_MOST_MIXED} for a function without symmetry, which is fitted by a matrix of that size"
        reject("n_features", rule, f"{len(anchors)} (n_features={options.n_features!r})")
    with stage_of(options.progress, "weights"):
        fit_nodes, held_out = _choose_samples(problem, anchors, options)
        nodes = np.concatenate([fit_nodes, held_out])
        reference = exact_reference(problem, nodes, options.n_jobs)
        positions = np.arange(len(fit_nodes), len(nodes))
        samples = None
        if not problem.asymmetric:
            total = float(problem.series.spectral(np.array([1.0]))[0])
            samples = QuadratureSamples(reference.rows[:, anchors], reference.kernel, positions, total)
        iid = options.anchors == "iid"
        complete = len(anchors) == problem.graph.n_nodes and (not iid or problem.asymmetric)
        uniform = uniform_weights(problem.measure, anchors, options.density if iid else None)
        method = "uniform" if complete or (iid and options.weights == "auto") else options.weights
        base = uniform if complete else voronoi_weights(problem.graph, problem.measure, anchors)
        ratio = spacing_of(problem.volume, len(anchors), problem.dim) / problem.width
        quadrature = compare_weights(method, base, samples=samples, ratio=ratio, uniform=uniform)
        return quadrature, reference.part(positions)


def _choose_samples(problem: Problem, anchors: IntArray, options: FitOptions) -> tuple[IntArray, IntArray]:
    """Evenly spread nodes to fit weights at, and random ones to measure errors at; no anchors if possible."""
    usable = np.flatnonzero(problem.measure > 0)
    rest = np.setdiff1d(usable, anchors)
    fits = len(anchors) < problem.graph.n_nodes and options.weights in ("auto", "unity", "nnls")
    if len(rest) < 2 * _HELD_OUT:
        rest = usable
    rng = options.streams.generator("features.held out")
    count = max(1, min(_HELD_OUT, len(usable) // 4))  # a small space needs most nodes for the fit
    held_out = np.sort(rng.choice(rest, count, replace=False))
    if not fits:
        return rest[:0], held_out
    others = np.setdiff1d(rest, held_out)
    others = others if len(others) else rest
    points = problem.graph.positions[others]
    return others[thin(points, min(len(others), _FIT_SAMPLES))], held_out


def exact_reference(problem: Problem, nodes: IntArray, n_jobs: int) -> Reference:
    """Exact signatures of some nodes and the kernel between them."""
    everything = np.arange(problem.graph.n_nodes)
    rows = signature_table(problem, nodes, everything, SignatureOptions(n_jobs=n_jobs)).values
    if problem.asymmetric:
        return Reference(nodes, rows, rows[:, nodes].toarray())
    return Reference(nodes, rows, gram(rows, problem.measure, n_jobs))


def gram(rows: Any, weights: FloatArray, n_jobs: int = 1) -> FloatArray:
    """Rows times weights times their transpose, dense; the bits do not depend on ``n_jobs``."""
    roots = np.sqrt(weights)
    if not sparse.issparse(rows) or rows.shape[0] * rows.shape[1] <= _DENSE_ENTRIES:
        dense = np.zeros(rows.shape)

        def fill(span: slice) -> None:
            part = rows[span]
            np.multiply(as_dense(part), roots, out=dense[span])

        quick_map(fill, row_spans(len(dense)), n_jobs)
        return symmetric_product(dense, n_jobs)
    scaled = (rows @ sparse.diags_array(roots)).tocsr()
    return np.asarray((scaled @ scaled.T).toarray())


@dataclass(frozen=True, eq=False)
class FieldChoice:
    """The chosen field.

    Attributes
    ----------
    field : AbstractField
    name : str
    starts : int array
        Nodes whose signatures the field was fitted to.
    error : ErrorEstimate
        At held-out nodes.
    training : TrainingInfo, optional
        Of a network.
    """

    field: AbstractField
    name: str
    starts: IntArray
    error: ErrorEstimate
    training: TrainingInfo | None = None


def choose_field(
    problem: Problem, anchors: IntArray, quadrature: Quadrature, held_out: Reference, options: FitOptions
) -> FieldChoice:
    """The field that was asked for or, with "auto", the one with the smallest error at held-out nodes."""
    starts = _choose_starts(problem, options, held_out.nodes)
    choice = _FieldSelection(problem, anchors, quadrature, held_out, options, starts).choose()
    _warn_of_field(choice)
    return choice


def _choose_starts(problem: Problem, options: FitOptions, held_out: IntArray) -> IntArray:
    """Nodes whose signatures a field is fitted to: all, or random ones with the held-out ones last."""
    n = problem.graph.n_nodes
    wanted = options.n_starts or (_MLP_STARTS if options.field == "mlp" else n)
    if wanted >= n:
        return np.arange(n)
    order = options.streams.generator("features.starts").permutation(n)
    late = np.isin(order, held_out)
    return np.sort(np.concatenate([order[~late], order[late]])[:wanted])


@dataclass(frozen=True, eq=False)
class _FieldSelection:
    """Fits fields and compares them."""

    problem: Problem
    anchors: IntArray
    quadrature: Quadrature
    held_out: Reference
    options: FitOptions
    starts: IntArray

    @cached_property
    def _data(self) -> FieldData:
        """Signatures of all starts."""
        return signature_table(self.problem, self.starts, self.anchors, self.options.signatures)

    @cached_property
    def _trial_data(self) -> FieldData:
        """The same without the held-out nodes."""
        return self._data.without(np.flatnonzero(np.isin(self.starts, self.held_out.nodes)))

    def choose(self) -> FieldChoice:
        """The field that was asked for, or the one with the smallest error."""
        best: tuple[str, AbstractField, ErrorEstimate, TrainingInfo | None] | None = None
        table = []
        options, progress = self.options, self.options.progress
        for name in self._candidates():
            if name != "step" or options.fit_field is not None:
                _ = self._data  # computed before the stage of the field begins
            with stage_of(progress, f"field {name}"):
                field, training = self._fit(name, trial=True)
            with stage_of(progress, f"error of field {name}"):
                error = measure_error(self._map(field), self.held_out, options.n_jobs)
            table.append((name, error.kernel))
            if best is None or error.kernel < best[2].kernel:
                best = name, field, error, training
            if error.field <= _GOOD_ENOUGH:
                break
        if best is None:
            raise RuntimeError("Internal error: no field was tried.")
        name, field, error, training = best
        starts = self.starts
        if name not in ("step", "mlp") or options.fit_field is not None:
            # fit again to all starts; the trial left out the held-out nodes
            with stage_of(progress, f"field {name}"):
                trial, (field, _) = field, self._fit(name, trial=False)
            error = self._with_other_rule(error, trial, field)
        elif name == "mlp":  # too costly to train twice
            starts = np.setdiff1d(starts, self.held_out.nodes)
        error = dataclasses.replace(error, candidates=tuple(table), weights=self.quadrature.table)
        return FieldChoice(field, name, starts, error, training)

    def _candidates(self) -> Iterator[str]:
        """The fields to try; "step" comes first where a walk always takes a step, because it needs no fit."""
        if self.options.field != "auto":
            yield self.options.field
            return
        graph = self.problem.graph
        if not has_spike(self.problem.series) and graph.extension is not None:
            yield "step"
        yield "interpolated"
        flat = graph.mesh is None and graph.metric is None
        if not self.problem.asymmetric and self.problem.dim <= _LOCAL_DIM and flat:
            yield "local"

    def _fit(self, name: str, *, trial: bool) -> tuple[AbstractField, TrainingInfo | None]:
        """A field; a trial is fitted without the held-out nodes among the starts."""
        options = self.options
        if name == "step" and options.fit_field is None:
            return fit_step(self.problem, self.anchors, options.signatures), None
        data = self._trial_data if trial else self._data
        if options.fit_field is not None:
            return _check_made(options.fit_field(data), len(self.anchors)), None
        if name == "interpolated":
            return fit_interpolated(data), None
        if name == "local":
            return fit_local(data, n_jobs=options.n_jobs, **options.field_options), None
        if name == "mlp":
            seed = options.streams.generator("features.network")
            network = MlpOptions(**options.field_options)
            return fit_mlp(data, network, seed=seed, progress=options.progress, n_jobs=options.n_jobs)
        raise RuntimeError(f"Internal error: no fit for field {name!r}.")

    def _map(self, field: AbstractField) -> FeatureMap:
        return FeatureMap(self.problem, field, self.anchors, feature_weights(self.problem, self.quadrature))

    def _with_other_rule(self, error: ErrorEstimate, trial: AbstractField, final: AbstractField) -> ErrorEstimate:
        """The error of the final field, which on a mesh may interpolate by another rule than the trial did."""
        mesh = self.problem.graph.mesh
        if mesh is None or getattr(trial, "rule", None) == getattr(final, "rule", None):
            return error
        places = mesh.sample(_HELD_OUT, seed=self.options.streams.generator("features.places")).points
        first, second = (self._map(field).rows(places, absolute=False)[0] for field in (trial, final))
        change = relative_error((second @ second.T).toarray(), (first @ first.T).toarray())
        field, kernel = (float(np.hypot(share, change)) for share in (error.field, error.kernel))
        return dataclasses.replace(error, field=field, kernel=kernel)


def fit_mixing(
    features: FeatureMap, choice: FieldChoice, held_out: IntArray, options: FitOptions
) -> tuple[FeatureMap, FieldChoice]:
    """Mix the right features such that products with the left ones are the function of the problem.

    The matrix M with phi(x) . M phi(y) closest to F(x, y), by least squares over pairs of nodes. Its error is
    measured between held-out nodes, and takes the place of the errors of anchors and graph: M makes up for them.
    If features are normalised, the largest |F(x, .)| is one on average: F(x, x) may be zero or negative.
    """
    problem = features.problem
    others = np.setdiff1d(np.flatnonzero(problem.measure > 0), held_out)
    count = min(len(others), _NODES_OF_A_FEATURE * len(features.anchors), _MOST_NODES)
    some = options.streams.generator("features.mixing").choice(others, count, replace=False)
    known, unseen = (_dense_rows(features, problem.graph.positions[nodes], options) for nodes in (some, held_out))
    sizes, axes = np.linalg.eigh(symmetric_product(known.T, options.n_jobs))
    kept = sizes > _RESOLVED**2 * sizes[-1]
    inverse = (axes[:, kept] / sizes[kept]) @ (axes[:, kept].T @ known.T)  # (m, s)
    mixing, heights = np.zeros((len(inverse), len(inverse))), np.zeros(count)
    for span, values in _function_blocks(problem, some):
        mixing += inverse[:, span] @ (values @ inverse.T)
        heights[span] = np.abs(values).max(axis=1)
    exact = np.vstack([values for _, values in _function_blocks(problem, held_out)])
    misfit = relative_error(unseen @ mixing @ unseen.T, exact)
    mixed = "right features are mixed, because the given function is not symmetric"
    notes = (*problem.notes, ("function", f"{mixed}; relative error {misfit:.2g} on held-out pairs"))
    problem = dataclasses.replace(problem, series_error=misfit, notes=notes, function=None)
    error = dataclasses.replace(choice.error, kernel=choice.error.field, quadrature=0.0)
    with np.errstate(all="ignore"):
        factor = float(1 / heights.mean()) if options.normalize else 1.0
    factor = factor if 0 < factor < np.inf else 1.0
    mapped = dataclasses.replace(features, problem=problem, mixing=mixing, factor=factor)
    return mapped, dataclasses.replace(choice, error=error)


def check_function(
    features: FeatureMap, known: ErrorEstimate, function: Any, space: Any, options: FitOptions
) -> FeatureMap:
    """Measure how far features are from a function between new points of a named space; warn or refuse if far.

    At nodes, steps follow a peak that is narrower than the spacing of the nodes; between them they do not. On a
    cloud or a mesh the function may be known at the given points only, and its error is that between nodes. The
    known error of field and anchors is part of what is measured, and is not counted twice.
    """
    problem = features.problem
    off, where = problem.series_error or 0.0, "between held-out nodes"
    if isinstance(space, AbstractManifold):
        new = space.sample(_NEW_POINTS, seed=options.streams.generator("features.new points"))
        left = right = _dense_rows(features, new, options)
        if features.two_sided:
            right = _dense_rows(features, new, options, side="right")
        whole = relative_error(left @ right.T / features.factor, function_values(function, new, new))
        # Mixed features are worse at held-out nodes, which are holes in their fit; a series is not.
        least = 0.0 if features.mixing is not None else off
        off, where = max(least, float(np.sqrt(max(whole**2 - known.kernel**2, 0.0)))), "between new points"
        notes = (*problem.notes, ("between new points", f"relative error {whole:.2g}, measured"))
        problem = dataclasses.replace(problem, series_error=off, notes=notes)
        features = dataclasses.replace(features, problem=problem)
    if features.mixing is None:
        if off > _POOR:
            _warn(
                f"The function given as kernel is not a series of heat steps of this space: the closest is off by "
                f"{off:.0%}. Remedies: more nodes, if its peak is narrower than their spacing; wider steps, as "
                "with GraphOptions(n_steps=8), if its tail is long; else a kernel of the library."
            )
    elif off > _USELESS:
        rule = "a function that features can follow: continuous on the space, and not finer than its nodes"
        reject("kernel", rule, f"one that they miss by {off:.0%} {where}")
    elif off > _POOR:
        _warn(
            f"Features miss the function given as kernel by {off:.0%} {where}: it varies faster than the nodes "
            "resolve, or jumps. Remedies: more points, more features, a smoother function."
        )
    return features


def _dense_rows(features: FeatureMap, points: FloatArray, options: FitOptions, side: str = "left") -> FloatArray:
    with without_warnings(Warning):  # nodes in a sparse corner may count as far
        return as_dense(features.rows(points, options.n_jobs, side=side)[0])


def _function_blocks(problem: Problem, nodes: IntArray) -> Iterator[tuple[slice, FloatArray]]:
    """The function of a problem between nodes, some rows at a time: functions often use much memory."""
    points = problem.graph.positions[nodes]
    size = max(1, _PAIRS_AT_ONCE // len(points))
    for start in range(0, len(points), size):
        span = slice(start, min(start + size, len(points)))
        yield span, function_values(problem.function, points[span], points)


def feature_weights(problem: Problem, quadrature: Quadrature) -> FloatArray:
    """The weights of a feature map: asymmetric pairs have none."""
    return np.ones(len(quadrature.weights)) if problem.asymmetric else quadrature.weights


def _check_made(field: Any, n_anchors: int) -> AbstractField:
    """A field made by a function of the user."""
    if not isinstance(field, AbstractField):
        found = f"one that returns {type(field).__name__}"
        reject("field", "a function that returns an AbstractField", found, TypeError)
    if field.n_anchors != n_anchors:
        reject("field", f"a function that returns a field with {n_anchors} columns", f"one with {field.n_anchors}")
    return field


def measure_error(features: FeatureMap, reference: Reference, n_jobs: int) -> ErrorEstimate:
    """Errors of a feature map at nodes whose exact rows are known."""
    problem = features.problem
    points = problem.graph.positions[reference.nodes]
    own = np.sqrt(problem.measure[reference.nodes]) if problem.clock == "graph" else np.ones(len(points))
    exact = own[:, None] * reference.kernel * own
    known = reference.rows[:, features.anchors]
    with without_warnings(Warning):  # nodes in a sparse corner may count as far
        rows = features.rows(points, n_jobs, absolute=False)[0]
        right = features.rows(points, n_jobs, side="right", absolute=False)[0] if problem.asymmetric else rows
    found = rows @ right.T
    found = as_dense(found)
    weights: Any = features.weights
    by_anchors = exact  # asymmetric pairs have all nodes as anchors
    if not problem.asymmetric:
        by_anchors = own[:, None] * gram(known, weights, n_jobs) * own
    # The exact rows in the unit of the features, to compare signatures.
    ideal = (known.toarray() * np.sqrt(1.0 if problem.asymmetric else weights)) * own[:, None]
    dense = as_dense(rows)
    scale = frobenius(exact) or 1.0
    return ErrorEstimate(
        kernel=frobenius(found - exact) / scale,
        field=frobenius(found - by_anchors) / scale,
        quadrature=frobenius(by_anchors - exact) / scale,
        graph=None,
        signatures=float(np.linalg.norm(dense - ideal) / (np.linalg.norm(ideal) or 1.0)),
    )


def _warn_of_field(choice: FieldChoice) -> None:
    """Warn if the field cannot follow the kernel."""
    if choice.error.field > _POOR:
        _warn(
            f"The field '{choice.name}' is off by {choice.error.field:.0%} at held-out nodes. Causes: (a) a "
            "kernel with a spike at every node, such as DiffusionKernel with tau below 20, (b) too few nodes, "
            "(c) a noisy teacher, (d) few starts or few epochs of training. Remedies: a wider kernel (a Matern "
            "kernel in the unit of the points has clock='manifold'), more points, more walks, another field.",
            useless=choice.error.field > _USELESS,
        )


def warn_of_graph(error: ErrorEstimate) -> None:
    """Warn if the graph is far from the space."""
    if error.graph is not None and error.graph > _POOR_GRAPH:
        about = f"about {error.graph:.0%}" if error.graph < 1 else "more than 100%"
        _warn(
            f"The kernel of the graph is off by {about}: too few points for such a narrow kernel "
            "or so many dimensions, or a boundary. The features represent the kernel of the graph. Remedies: more "
            "points, a wider kernel (a larger t or scale). Classifiers may do well all the same.",
            useless=error.graph > _USELESS,
        )


def note_flat(notes: Iterable[tuple[str, str]], kernel: FloatArray) -> tuple[tuple[str, str], ...]:
    """Warn, and add a note for the summary, if a kernel between some nodes is nearly the same for all pairs."""
    roots = np.sqrt(np.abs(np.diagonal(kernel)))
    if len(roots) < 2 or not (kernel > _FLAT * roots[:, None] * roots).all():
        return tuple(notes)
    text = f"hardly tells points apart: between any two of {len(roots)} it is above {_FLAT:.0%} of its maximum"
    _warn(
        f"The kernel {text}, because it is much wider than the data. The features are nearly constant, and a "
        "small error says nothing about their use (remedy: a much smaller t or tau).",
        useless=True,
    )
    return (*notes, ("separation", f"the kernel {text}"))


def _warn(text: str, *, useless: bool = False) -> None:
    """Warn; a command prints that a model is useless even if it is to be quiet."""
    warning: Any = FeatureWarning(text)
    warning.useless = useless
    warn_user(warning)
