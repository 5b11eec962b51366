"""Features on a ball of an unbounded space, from graphs on larger and larger balls around it.

A finite graph covers a ball, and its walks turn back at the rim. To get the kernel on a fixed inner ball, the outer
ball grows until almost no heat from the inner ball reaches the rim, with enough nodes inside.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from manifoldrf._random import Streams
from manifoldrf._runtime import without_warnings
from manifoldrf._validation import NONNEGATIVE, POSITIVE, FloatArray, Interval, check_integer, check_real, reject
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.features.options import HeatGraph
from manifoldrf.features.rules import product
from manifoldrf.geometry.graphs import GraphWarning
from manifoldrf.geometry.heat import step_reach
from manifoldrf.geometry.model_spaces import AbstractBall
from manifoldrf.geometry.sampling import graded_points
from manifoldrf.kernels.manifold_kernels import HeatKernel
from manifoldrf.metrics import relative_error

__all__ = ["Exhaustion", "ExhaustionRow", "exhaustion"]

# Steps of the heat graph. In a homogeneous space wide steps lose little, and they reach most nodes: of 4, 6, 8 and
# 12 steps on H^2, H^3, R^2 and R^3, 4 were the best in most balls; in others 6 were up to 15 % better after
# alignment and 27 % on the absolute scale, at more than twice the time.
STEPS = 4
# Allowed relative difference between the time of a step and that in flat space. On H^2 with t = 2, 4 steps last .17
# too long and the kernel is off by .037, which more nodes change by .014; with 8 steps it is off by .006.
_BENT, _MOST_STEPS = 0.1, 64
_FOOTPRINT = 60.0  # default number of nodes in the footprint of a step; gives errors of .006 to .02
# Rounds in which nodes push each other apart. Errors with 0, 4, 8, 16 and 32: .011, .009, .007, .006, .005 on H^2
# (800 nodes), .038, .021, .018, .016, .016 on H^3 (2000); each round costs a search for neighbours.
RELAXATION = 8
_MOST_NODES = 20_000  # for n_nodes="auto": features of all nodes are dense
# Depth, in units of sqrt(t), of the shell below the rim. The share of the kernel that anchors in this shell hold
# estimates the loss at the rim: it is .7 to 1.8 times the loss in balls of H^2, H^3, R^2 and R^3 where the rim
# costs .004 to .45, and .4 times where the kernel is more than twice too large. The depth was chosen on these
# balls.
_SHELL = 0.5
_FEWEST_NODES = 40
_BOTH = 0.25  # if one cause of error exceeds this share of the other, both must be reduced


@dataclass(frozen=True)
class ExhaustionRow:
    """One ball of an exhaustion.

    Attributes
    ----------
    radius : float
    n_nodes, n_inside : int
        Number of nodes, and of those in the inner ball.
    change : float, optional
        Relative change of the kernel from the previous ball; None for the first.
    resolution : float
        Relative change of the kernel from half as many nodes in the same ball: an estimate of what more nodes
        change.
    truncation : float
        Share of the kernel held by anchors close to the rim: an estimate of what a larger ball changes.
    error : float
        Estimated error: the sum of both. It does not use the exact kernel.

    Examples
    --------
    >>> from manifoldrf.applications.exhaustion import ExhaustionRow
    >>> ExhaustionRow(2.0, 1000, 300, None, 0.01, 0.02, 0.03).error
    0.03
    """

    radius: float
    n_nodes: int
    n_inside: int
    change: float | None
    resolution: float
    truncation: float
    error: float


@dataclass(frozen=True, eq=False)
class Exhaustion:
    """Features on an inner ball with an estimate of their error; returned by :func:`exhaustion`.

    Attributes
    ----------
    rows : tuple of ExhaustionRow
        One for each ball, smallest first.
    features : ManifoldRandomFeatures
        Fitted on the ball with the smallest estimated error.
    queries : array of shape (q, dim)
        Points of the inner ball at which the kernels are compared.
    tolerance : float
        The requested error.

    Examples
    --------
    >>> from manifoldrf.applications.exhaustion import exhaustion
    >>> from manifoldrf.geometry.model_spaces import EuclideanSpace
    >>> found = exhaustion(EuclideanSpace(dim=2), (1.2, 1.6, 2.0), 0.1, inner=1.0, n_nodes=500)
    >>> found.sufficient, found.best.radius
    (True, 1.6)
    """

    rows: tuple[ExhaustionRow, ...]
    features: ManifoldRandomFeatures
    queries: FloatArray
    tolerance: float

    @property
    def best(self) -> ExhaustionRow:
        """The ball with the smallest estimated error, to which the features belong."""
        return min(self.rows, key=lambda row: row.error)

    @property
    def error(self) -> float:
        """Estimated relative error of the kernel of :attr:`features` on the inner ball."""
        return self.best.error

    @property
    def sufficient(self) -> bool:
        """Whether the estimate is within the tolerance."""
        return self.error <= self.tolerance

    @property
    def advice(self) -> str:
        """What to do next, in one sentence."""
        row = self.best
        place = f"R = {row.radius:g} with {row.n_nodes} nodes"
        if self.sufficient:
            return f"{place} suffice: the estimated error is {row.error:.2g} (tolerance {self.tolerance:g})."
        small, large = sorted([row.truncation, row.resolution])
        grows = "R must grow" if row.truncation > row.resolution else "The number of nodes must grow"
        if small > _BOTH * large:
            grows = "R and the number of nodes must grow"
        if row is not self.rows[-1]:  # a larger ball was tried but had too few nodes
            grows = "The number of nodes must grow; larger balls alone do not help"
        shares = f"{row.truncation:.2g} from the rim, {row.resolution:.2g} from the nodes"
        return f"{place} do not suffice: the estimated error is {row.error:.2g}, {shares}. {grows}."

    def __repr__(self) -> str:
        return f"Exhaustion({len(self.rows)} balls, best R = {self.best.radius:g}, error = {self.error:.2g})"

    def table(self) -> list[dict[str, Any]]:
        """The rows as dictionaries."""
        return [asdict(row) for row in self.rows]


def exhaustion(
    space: AbstractBall,
    radii: Sequence[float],
    t: float,
    *,
    inner: float,
    n_nodes: int | str = "auto",
    n_queries: int = 128,
    tolerance: float = 0.05,
    seed: int = 0,
) -> Exhaustion:
    """Fit features of the heat kernel on larger and larger balls until they are accurate on an inner ball.

    For each radius, nodes are placed (:func:`graded_points`), features are fitted, and the kernel between points of
    the inner ball is compared with that of the previous ball and with that of half as many nodes. The number of
    nodes grows with the ball, so that the number in the inner ball stays the same.

    Parameters
    ----------
    space : HyperbolicSpace or EuclideanSpace
        Its own radius is not used.
    radii : sequence of float
        Radii of the balls, ascending, all larger than ``inner``.
    t : float
        Heat time of the kernel.
    inner : float
        Radius of the ball on which the kernel is wanted.
    n_nodes : int or "auto", default="auto"
        Number of nodes in the largest ball; smaller balls have the same number in the inner ball. "auto": one heat
        step reaches about 60 nodes.
    n_queries : int, default=128
        Number of random points of the inner ball at which the kernels are compared.
    tolerance : float, default=0.05
        Stop at this estimated relative error. With 0 all balls are tried.
    seed : int, default=0
        Seed of the queries.

    Returns
    -------
    Exhaustion
        ``rows``, ``features``, ``error``, ``sufficient`` and ``advice``.

    Notes
    -----
    The estimate was .4 to 4 times the true error in balls of H^2, H^3, R^2 and R^3. It is too low mostly if the rim
    is so close that the kernel is off by a quarter or more, and too high with few nodes. It cannot see errors that
    both numbers of nodes share.

    Examples
    --------
    >>> from manifoldrf import HyperbolicSpace
    >>> from manifoldrf.applications.exhaustion import exhaustion
    >>> found = exhaustion(HyperbolicSpace(dim=2), (2.0, 3.0), 0.5, inner=1.5, n_nodes=300)
    >>> found.sufficient
    True
    >>> found.features.kernel_matrix([[0.1, 0.0]], [[0.3, 0.2]]).shape
    (1, 1)
    """
    sizes = _check(space, radii, inner)
    time = check_real(t, "t", POSITIVE)
    tolerance = check_real(tolerance, "tolerance", NONNEGATIVE)
    n_queries = check_integer(n_queries, "n_queries", 2)
    density = _density(space.ball(sizes[-1]), inner, time, n_nodes)
    streams = Streams.from_seed(seed)
    queries = space.ball(inner).sample(n_queries, seed=streams.generator("exhaustion.queries"))
    rows: list[ExhaustionRow] = []
    best: Any = None
    before = None
    for radius in sizes:
        ball = space.ball(radius)
        n = max(_FEWEST_NODES, round(density * ball._volume_of(inner, ball._decay(inner))))
        features = local_features(ball, n, time, inner=inner)
        row, kernel = _measure(features, local_features(ball, n // 2, time, inner=inner), queries, before, inner)
        if best is None or row.error < min(other.error for other in rows):
            best = features
        rows.append(row)
        before = kernel
        if row.error <= tolerance:
            break
    return Exhaustion(tuple(rows), best, queries, tolerance)


def local_features(
    ball: AbstractBall, n: int, t: float, *, inner: float, relaxation: int = RELAXATION, seed: int | None = None
) -> ManifoldRandomFeatures:
    """Fit features of the heat kernel to n nodes of a ball, most of them in and near its inner ball.

    Parameters
    ----------
    ball : HyperbolicSpace or EuclideanSpace
    n : int
    t : float
    inner : float
    relaxation : int, default=8
    seed : int, optional
        Shifts the nodes.

    Examples
    --------
    >>> from manifoldrf import HyperbolicSpace
    >>> from manifoldrf.applications.exhaustion import local_features
    >>> local_features(HyperbolicSpace(dim=2, radius=2.5), 300, 0.5, inner=1.5).graph_.n_nodes
    300
    """
    nodes = graded_points(ball, n, inner=inner, relaxation=relaxation, seed=seed)
    options = HeatGraph(n_steps=_steps(ball, t), volumes=nodes.weights, metric=ball)
    features = ManifoldRandomFeatures(
        HeatKernel(t), normalize=False, n_features="all", graph=options, random_state=0
    )
    with without_warnings(GraphWarning):  # nodes at the rim may be isolated
        return features.fit(nodes.points)


def _check(space: Any, radii: Sequence[float], inner: float) -> list[float]:
    """Check the space and the radii."""
    if not isinstance(space, AbstractBall):
        rule = "an unbounded space covered by balls (HyperbolicSpace, EuclideanSpace)"
        reject("space", rule, repr(space), TypeError)
    if np.ndim(radii) != 1:
        reject("radii", "one or more numbers, ascending", radii)
    sizes = [check_real(radius, "radii", POSITIVE) for radius in radii]
    if not sizes or any(high <= low for low, high in pairwise(sizes)):
        reject("radii", "one or more numbers, ascending", radii)
    check_real(inner, "inner", Interval(0.0, sizes[0], low_open=True, high_open=True))
    return sizes


def _steps(ball: AbstractBall, t: float) -> int:
    """Few wide steps, but not so wide that curvature changes their time: more nodes would not reveal that error."""
    for steps in range(STEPS, _MOST_STEPS, 2):
        s2 = 4 * t / steps
        lasts = ball._gaussian_step(s2, step_reach(s2, ball.dim))[1]
        if abs(4 * lasts / s2 - 1) <= _BENT:
            return steps
    return _MOST_STEPS


def _density(largest: AbstractBall, inner: float, t: float, n_nodes: int | str) -> float:
    """Number of nodes per unit of volume in the inner ball."""
    held = largest._volume_of(inner, largest._decay(inner))
    if not isinstance(n_nodes, str):
        return check_integer(n_nodes, "n_nodes", 2 * _FEWEST_NODES) / held
    if n_nodes != "auto":
        reject("n_nodes", "'auto' or an integer", repr(n_nodes))
    density = _FOOTPRINT * (_steps(largest, t) / (4 * np.pi * t)) ** (largest.dim / 2)
    if density * held > _MOST_NODES:
        rule = f"a number, because 'auto' would take {density * held:.2g}"
        reject("n_nodes", f"{rule} (or use a larger t or a smaller inner ball)", "'auto'")
    return float(density)


def _measure(
    features: ManifoldRandomFeatures,
    coarse: ManifoldRandomFeatures,
    queries: FloatArray,
    before: FloatArray | None,
    inner: float,
) -> tuple[ExhaustionRow, FloatArray]:
    """Measure one ball; also return its kernel between the queries."""
    graph = features.graph_
    ball: Any = graph.metric
    depth = ball._depth(graph.positions)  # all nodes are anchors
    rows = features.transform(queries)  # (q, n)
    kernel = product(rows, rows, 1)  # the same bits for any number of threads
    time: Any = features.kernel_
    shell = rows[:, depth[features.anchors_] > ball.radius - _SHELL * np.sqrt(time.t)]
    truncation = float(np.linalg.norm(product(shell, shell, 1)) / np.linalg.norm(kernel))
    resolution = relative_error(coarse.kernel_matrix(queries), kernel)
    change = None if before is None else relative_error(before, kernel)
    inside = int(np.count_nonzero(depth <= inner))
    row = ExhaustionRow(ball.radius, graph.n_nodes, inside, change, resolution, truncation, truncation + resolution)
    return row, kernel
