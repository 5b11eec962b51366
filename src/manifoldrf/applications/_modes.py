"""One kernel after another from the same walks: features of data as weighted sums of blocks that are kept.

Phi(theta) = sum_k f_k(theta) W^k, read at m anchors from n points. The blocks W^k do not depend on theta: they are
computed once, and a trial of another time is their sum with other coefficients. Walks give powers; exact blocks are
Chebyshev polynomials of W, of which a kernel of a thousand steps needs a hundred.

Memory: 8 (L + 1) n m bytes for L lengths, at most 8 * ``MOST_ENTRIES``. Of more data than ``MOST_ROWS`` a random
part is taken, and of anchors as many as then fit.
"""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._notices import warn_user
from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.applications._lowrank import decompose, find_levels
from manifoldrf.features.fitting import FeatureWarning
from manifoldrf.features.plans import Plan
from manifoldrf.features.spaces import Space
from manifoldrf.fields.anchors import all_anchors, anchors_needed, farthest_anchors, spacing_of
from manifoldrf.fields.data import Teaching
from manifoldrf.fields.quadrature import voronoi_weights
from manifoldrf.fields.tangent import interpolation_weights
from manifoldrf.geometry._sparse import reciprocal
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels._action import Expansion, apply_expansion, expand, indicator_columns
from manifoldrf.kernels.abstract_kernel import AbstractKernel, ProductKernel, ScaledKernel, SumKernel
from manifoldrf.kernels.graph_kernels import DiffusionKernel, PowerKernel, RegularizedLaplacianKernel
from manifoldrf.kernels.manifold_kernels import HeatKernel, MaternKernel
from manifoldrf.signatures._laws import coefficients_of
from manifoldrf.signatures.teachers import compute_signatures

MOST_ENTRIES = 2**26  # 512 MB
MOST_ROWS = 2048  # the time of a kernel is known to a few per cent from so many data
# Lengths that are kept. 32 Chebyshev polynomials are enough for the heat kernel of 70 steps, 128 for that of 1100;
# the number is doubled while the best time is the longest that they allow. Walks are taken once.
_FIRST_LENGTHS, _LAST_LENGTHS = 32, 128
_WALK_LENGTHS = 64  # powers: times up to 128 steps of a heat graph
_TOLERANCE = 1e-6  # share of a series that may be left out
_AT_ONCE = 256  # columns that are propagated together
_WIDEST_SPACING = 1.2  # of anchors over the width of features; above it sums are off by several per cent
# Features of a model, where their number is chosen: anchors half a width apart, and at least so many, which is
# where a decomposition takes seconds; at most so many, unless the data are so few that m n numbers are no more.
_CLOSE, _FEWEST_ANCHORS, _MOST_ANCHORS = 0.5, 2048, 4096
# A series whose first term is a larger share of its sum has a spike at every node. Smooth fields leave it out, and
# with it much of the likelihood: on 300 nodes of a sphere that of (c + L)^-1/2 rose from -55 to -35.
_SPIKE = 2e-3
# Log likelihoods of features and of trials that still are of one model: very strong evidence is a factor of e^5,
# and sums over anchors, whose weights differ, have moved those of heat kernels by less than .006 for each datum.
_SAME, _SAME_PER_DATUM = 5.0, 0.01
_ONE_STEP = Expansion(np.array([0.0, 1.0]), 1.0, of_powers=True)


@dataclass(frozen=True, eq=False)
class Modes:
    """Blocks of features, one for each length.

    Attributes
    ----------
    blocks : array of shape (L + 1, n, m)
        Of the points of the data, at the anchors, in the unit of the features.
    of_powers : bool
        Whether block k is W^k, else the Chebyshev polynomial T_k(W).
    narrowest : float
        Least time of a kernel, over that of the kernel they were made for, that the anchors can carry.
    """

    blocks: FloatArray
    of_powers: bool
    narrowest: float = 0.0

    def features(self, kernel: AbstractKernel) -> FloatArray | None:
        """Features of the data for a resolved kernel, shape (n, m); None where the lengths kept do not suffice."""
        coefficients = self._coefficients(kernel.root())
        if coefficients is None:
            return None
        return np.asarray(np.tensordot(coefficients, self.blocks[: len(coefficients)], 1))

    def _coefficients(self, series: AbstractKernel) -> FloatArray | None:
        try:
            if self.of_powers:
                needed = series.truncation(_TOLERANCE)
                return None if needed > len(self.blocks) else coefficients_of(series, needed, 1.0)
            found = expand(series.spectral, 1.0, _TOLERANCE).coefficients
        except ValueError:  # a series that does not converge, or not soon enough
            return None
        return None if len(found) > len(self.blocks) else found


def compute_modes(
    space: Space, places: FloatArray, most_anchors: int, teaching: Teaching, n_lengths: int = _FIRST_LENGTHS
) -> Modes:
    """Blocks of features of some points, exact or walked as the teacher says.

    Parameters
    ----------
    space : Space
    places : array of shape (n, d)
    most_anchors : int
        Memory may allow fewer.
    teaching : Teaching
        "walks" and "counts" walk, the others are exact.
    n_lengths : int
        L, of exact blocks.
    """
    graph, measure = space.graph, space.setting.measure
    walked = teaching.teacher in ("walks", "counts")
    n_blocks = (_WALK_LENGTHS if walked else n_lengths) + 1
    room = MOST_ENTRIES // (n_blocks * len(places))
    anchors = _anchors(graph, max(1, min(most_anchors, room)))
    everything = len(anchors) == graph.n_nodes
    weights = measure if everything else voronoi_weights(graph, measure, anchors)
    reach = _reach(space, places, teaching.n_jobs)
    blocks = np.zeros((n_blocks, len(places), len(anchors)))
    (_walk if walked else _propagate)(graph, reach, anchors, blocks, teaching)
    scale = space.unit**-0.5 if space.clock == "manifold" else 1.0
    blocks *= scale * np.sqrt(weights) * reciprocal(np.sqrt(measure[anchors]))
    spacing = spacing_of(space.volume, len(anchors), space.setting.dim)
    narrowest = 0.0 if everything else (spacing / (_WIDEST_SPACING * space.setting.width)) ** 2
    return Modes(blocks, walked, narrowest)


def _anchors(graph: Graph, m: int) -> IntArray:
    return all_anchors(graph.n_nodes) if m >= graph.n_nodes else farthest_anchors(graph, m)


def _reach(space: Space, places: FloatArray, n_jobs: int) -> Any:
    """From values at the nodes to features of points, CSR (n, N): signatures over sqrt(mu), interpolated."""
    graph, measure = space.graph, space.setting.measure
    shares = interpolation_weights(graph, np.arange(graph.n_nodes), places, space.setting.dim, n_jobs)
    own = np.ones(len(places))
    if space.clock == "graph":  # as if the point were a node
        own = np.exp(shares @ np.log(np.maximum(measure, measure[measure > 0].min())) / 2)
    return (sparse.diags_array(own) @ shares @ sparse.diags_array(reciprocal(np.sqrt(measure)))).tocsr()


def _propagate(graph: Graph, reach: Any, anchors: IntArray, blocks: FloatArray, teaching: Teaching) -> None:
    """Fill blocks k with T_k(W), from the side that has fewer columns; W is symmetric."""
    from_anchors = len(anchors) < reach.shape[0]
    total = len(anchors) if from_anchors else reach.shape[0]
    for start in range(0, total, _AT_ONCE):
        stop = min(start + _AT_ONCE, total)
        teaching.progress("lengths", start, total)
        if from_anchors:
            first = indicator_columns(graph.n_nodes, anchors[start:stop])
        else:
            first = reach[start:stop].toarray().T.copy()
        for k, columns in enumerate(_polynomials(graph, first, len(blocks), teaching.n_jobs)):
            if from_anchors:
                blocks[k, :, start:stop] = reach @ columns
            else:
                blocks[k, start:stop] = columns[anchors].T
    teaching.progress("lengths", total, total)


def _polynomials(graph: Graph, first: FloatArray, n: int, n_jobs: int) -> Iterator[FloatArray]:
    """T_0(W) X, T_1(W) X, ..., T_{n-1}(W) X, by T_{k+1} = 2 W T_k - T_{k-1}."""
    step = functools.partial(apply_expansion, _ONE_STEP, graph.operator, n_jobs=n_jobs)
    before, current = first, step(first)
    yield before
    for _ in range(n - 1):
        yield current
        before, current = current, 2 * step(current) - before


def _walk(graph: Graph, reach: Any, anchors: IntArray, blocks: FloatArray, teaching: Teaching) -> None:
    """Fill blocks k with walked estimates of W^k, from the side that has fewer start nodes."""
    touched = np.unique(reach.indices).astype(np.int64)
    from_anchors = len(anchors) < len(touched)
    starts = anchors if from_anchors else touched
    options = {**dict(teaching.options), "keep_lengths": True, "max_length": len(blocks) - 1}
    for start in range(0, len(starts), _AT_ONCE):
        nodes = starts[start : start + _AT_ONCE]
        lengths = compute_signatures(
            graph,
            PowerKernel(0),  # every length is kept, whatever the kernel: this one asks for no more
            nodes,
            teacher=teaching.teacher,
            asymmetric=True,
            seed=teaching.seed,
            n_jobs=teaching.n_jobs,
            **options,
        ).lengths
        for k in range(len(blocks)):
            rows = lengths[k :: len(blocks)]  # (len(nodes), N)
            if from_anchors:
                blocks[k, :, start : start + len(nodes)] = (reach @ rows.T).toarray()
            else:
                blocks[k] += (reach[:, nodes] @ rows[:, anchors]).toarray()
        teaching.progress("lengths", min(start + _AT_ONCE, len(starts)), len(starts))


def stretched(kernel: AbstractKernel, factor: float, graph: Graph) -> AbstractKernel | None:
    """The kernel with its time multiplied, its length scale by the root of that; None where it has neither.

    On a heat graph the time of a heat kernel is rounded to an even number of steps.
    """
    if isinstance(kernel, HeatKernel):
        t = kernel.t * factor
        if graph.n_steps is not None:
            step = graph.time(1.0)
            t = 2 * max(1, round(t / step / 2)) * step
        return HeatKernel(t)
    for kind, name, power in _TIMES:
        if isinstance(kernel, kind):
            return kernel.with_params(**{name: getattr(kernel, name) * factor**power})
    if isinstance(kernel, ScaledKernel | SumKernel | ProductKernel):
        parts = {name: part for name, part in kernel.get_params(deep=False).items() if name != "factor"}
        others = {name: stretched(part, factor, graph) for name, part in parts.items()}
        return None if None in others.values() else kernel.with_params(**others)
    return None


_TIMES: tuple[tuple[type[AbstractKernel], str, float], ...] = (
    (DiffusionKernel, "tau", 1.0),
    (MaternKernel, "lengthscale", 0.5),
    (RegularizedLaplacianKernel, "scale", 0.5),
)
# Times that are tried, over that of the kernel given: five hundred times less to five hundred times more, by
# factors of two, and then halfway between the neighbours of the best until they are 1 % apart.
_DOUBLINGS, _HALVINGS = 9, 6


@dataclass(frozen=True, eq=False)
class Search:
    """What a search has found.

    Attributes
    ----------
    kernel : AbstractKernel
        Of the largest score.
    stretch : float
        Its time over that of the kernel given.
    limited : bool
        Whether twice this time needs more lengths than were kept.
    trials : tuple of (AbstractKernel, float)
        All that were tried, in the order of the trials.
    """

    kernel: AbstractKernel
    stretch: float = 1.0
    limited: bool = False
    trials: tuple[tuple[AbstractKernel, float], ...] = ()


def search_time(space: Space, modes: Modes, score: Callable[[FloatArray], float]) -> Search:
    """The time of a kernel at which its features score best: no walk is taken and no graph built.

    Parameters
    ----------
    space : Space
        That the modes were computed on. Where its kernel has no time, nothing is tried.
    modes : Modes
    score : callable
        Features of the data (n, m) -> a number, the larger the better.
    """
    tried: dict[AbstractKernel, float] = {}
    stretches: dict[AbstractKernel, float] = {}

    def attempt(log_factor: float) -> float:
        factor = float(np.exp(log_factor))
        candidate = stretched(space.kernel, factor, space.graph)
        if candidate is None or factor < modes.narrowest:
            return -np.inf
        if candidate not in tried:
            rows = _features_of(candidate, space, modes)
            if rows is None:
                return -np.inf
            tried[candidate], stretches[candidate] = score(rows), factor
        return tried[candidate]

    gap = np.log(2.0)
    values = {j: attempt(j * gap) for j in range(-_DOUBLINGS, _DOUBLINGS + 1)}
    if not tried:
        return Search(space.kernel)
    first = max(values, key=lambda j: values[j])
    limited, best = not np.isfinite(values.get(first + 1, 0.0)), first * gap
    for _ in range(_HALVINGS):
        gap /= 2
        best = max((best, best - gap, best + gap), key=attempt)
    found = max(tried, key=lambda candidate: tried[candidate])
    return Search(found, stretches[found], limited, tuple(tried.items()))


def enough_anchors(space: Space, found: Search, n: int) -> int | str:
    """How many features n data deserve: likelihoods see what sums over the kernel do not."""
    setting, n_nodes = space.setting, space.graph.n_nodes
    needed = anchors_needed(space.volume, setting.width * found.stretch**0.5, setting.dim, _CLOSE)
    m = min(max(needed, _FEWEST_ANCHORS), max(_MOST_ANCHORS, MOST_ENTRIES // n))
    return "all" if m >= n_nodes / 2 and n_nodes <= _MOST_ANCHORS else min(m, n_nodes)


def field_of(name: str, space: Space, kernel: AbstractKernel) -> str:
    """The field of a model: where it is to be chosen and the kernel has a spike, the one that keeps it at nodes."""
    series = _on_graph(kernel, space).root()
    spike = abs(float(series.coefficients(1)[0]))
    sharp = spike > _SPIKE * abs(float(series.spectral(np.array([1.0]))[0]))
    return "interpolated" if name == "auto" and sharp else name


def warn_of_another(found: Search, likelihood: float, n: int) -> None:
    """Say so where the features that predict are not those of the kernel that was found, by their likelihoods."""
    if not found.trials or n > MOST_ROWS:  # nothing was tried, or only a part of the data
        return
    best = max(value for _, value in found.trials)
    if abs(best - likelihood) > _SAME + _SAME_PER_DATUM * n:
        warn_user(
            f"The features stand for another kernel than the one found, {found.kernel}: their log marginal "
            f"likelihood is {likelihood:.1f}, and was {best:.1f} in the search. Causes: (a) too few features for a "
            "kernel so rough, (b) a field that leaves out the spike of a kernel at every node, (c) noisy walks. "
            "Remedies: n_features='all', field='interpolated', a smoother kernel, more walks.",
            FeatureWarning,
        )


def _on_graph(kernel: AbstractKernel, space: Space) -> AbstractKernel:
    return kernel.resolve(space.graph, space.setting.dim).on(space.graph)


def _features_of(kernel: AbstractKernel, space: Space, modes: Modes) -> FloatArray | None:
    """Features for a kernel as stated; None where it cannot be resolved on the graph."""
    try:
        resolved = _on_graph(kernel, space)
    except ValueError:
        return None
    return modes.features(resolved)


def find_kernel(space: Space, plan: Plan, data: tuple[FloatArray, FloatArray], levels: Any) -> Search:
    """The kernel of the largest likelihood of some data (n, d), (n, c)."""
    points, targets = data
    if len(points) > MOST_ROWS:
        rng = plan.streams.generator("regression.rows")
        chosen = np.sort(rng.choice(len(points), MOST_ROWS, replace=False))
        points, targets = points[chosen], targets[chosen]
    most = plan.n_features if isinstance(plan.n_features, int) else space.graph.n_nodes

    def likelihood(rows: FloatArray) -> float:
        return find_levels(decompose(rows, targets), *levels).log_likelihood

    lengths = _FIRST_LENGTHS
    while True:
        modes = compute_modes(space, points, most, plan.teaching, lengths)
        found = search_time(space, modes, likelihood)
        if modes.of_powers or not found.limited or lengths >= _LAST_LENGTHS:
            return found
        lengths *= 2
