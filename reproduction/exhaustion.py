"""Features on a ball of an unbounded space, from graphs on larger and larger balls around it.

A finite graph covers a ball, and its walks turn back at the rim. To get the kernel on a fixed inner ball, the outer
ball grows until almost no heat from the inner ball reaches the rim, with enough nodes inside.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.integrate import cumulative_simpson
from scipy.special import gamma

from manifoldrf import (
    EuclideanSpace,
    HeatGraph,
    HeatKernel,
    HyperbolicSpace,
    ManifoldRandomFeatures,
    ManifoldWarning,
    relative_error,
)
from manifoldrf.geometry.neighbors import NeighborSearch
from reproduction.common import without_warnings

FloatArray = NDArray[np.float64]
Space = HyperbolicSpace | EuclideanSpace

# Steps of the heat graph. In a homogeneous space wide steps lose little, and they reach most nodes: of 4, 6, 8 and
# 12 steps on H^2, H^3, R^2 and R^3, 4 were the best in most balls.
STEPS = 4
# Rounds in which nodes push each other apart. Errors with 0, 4, 8, 16 and 32: .011, .009, .007, .006, .005 on H^2
# (800 nodes), .038, .021, .018, .016, .016 on H^3 (2000); each round costs a search for neighbours.
RELAXATION = 8


# ----------------------------------------------------------------------------------------------------- graded nodes
class GradedPoints(NamedTuple):
    """Nodes with a known intensity, made by :func:`graded_points`.

    Attributes
    ----------
    points : array of shape (n, dim)
    weights : array of shape (n,)
        The volume that each node stands for: one over the number of nodes per unit of volume.
    density : float
        Nodes per unit of volume in the inner ball.
    """

    points: FloatArray
    weights: FloatArray
    density: float


def graded_points(
    space: Space,
    n: int,
    *,
    inner: float,
    decay: float | None = None,
    scatter: str = "even",
    relaxation: int = 0,
    seed: int | None = None,
) -> GradedPoints:
    """Lay out nodes in a ball: evenly up to the radius ``inner``, beyond it with intensity e^{-decay (r - inner)}.

    Parameters
    ----------
    space : HyperbolicSpace or EuclideanSpace
        Its ``radius`` is the radius of the ball.
    n : int
    inner : float
    decay : float, optional
        By default 2 / inner in flat space, and in hyperbolic space the dimension, one more than the growth rate of
        volumes.
    scatter : {"even", "random"}, default="even"
        "even": those of the grid of the space, turned and shifted outwards if there is a seed; or independent.
    relaxation : int, default=0
        Rounds in which nodes push each other apart, in units of the local spacing. After each round the radii are
        reset to their distribution, in the same order: otherwise nodes would spread from the middle to the rim.
    seed : optional

    Examples
    --------
    >>> ball = HyperbolicSpace(dim=3, radius=5.0)
    >>> nodes = graded_points(ball, 2000, inner=1.5)
    >>> inside = depth(ball, nodes.points) < 1.5
    >>> round(float(nodes.weights[inside].sum() / ball.ball(1.5).volume), 2)
    1.0
    """
    decay = default_decay(space, inner) if decay is None else decay
    rng = np.random.default_rng(seed)
    points = space.sample(n, seed=rng) if scatter == "random" else space.grid(n)
    radii, held = _radial(space, space.radius, 0.0)
    shares = np.interp(depth(space, points), radii, held / held[-1])  # of the volume within the depth of a point
    if scatter == "even" and seed is not None:
        shares = (shares + rng.random()) % 1.0
        points = points @ np.linalg.qr(rng.standard_normal((space.dim, space.dim)))[0]
    points = _at_radii(space, points, _radii(space, shares, inner, decay))
    for _ in range(relaxation):
        points = push_apart(space, points, _weights(space, points, n, inner, decay))
        radii = np.zeros(n)
        order = np.argsort(depth(space, points), kind="stable")
        radii[order] = _radii(space, (np.arange(n) + 0.5) / n, inner, decay)
        points = _at_radii(space, points, radii)
    return GradedPoints(points, _weights(space, points, n, inner, decay), n / volume(space, inner, decay))


def depth(space: Space, points: FloatArray) -> FloatArray:
    """Distance from the origin."""
    return np.asarray(space.distance(np.zeros((1, space.dim)), points)[0])


def default_decay(space: Space, inner: float) -> float:
    """A decay that leaves most nodes in and near the inner ball."""
    return float(space.dim) if isinstance(space, HyperbolicSpace) else 2.0 / inner


def intensity(rho: FloatArray, inner: float, decay: float) -> FloatArray:
    """Nodes per unit of volume at the depth rho, over those in the inner ball."""
    return np.asarray(np.exp(-decay * np.maximum(rho - inner, 0.0)))


def volume(space: Space, inner: float, decay: float) -> float:
    """Integral of the intensity over the ball."""
    sphere = 2 * np.pi ** (space.dim / 2) / gamma(space.dim / 2)
    return float(sphere * _radial(space, inner, decay)[1][-1])


def _radial(space: Space, inner: float, decay: float) -> tuple[FloatArray, FloatArray]:
    """Radii, and the integral of the intensity up to each of them over the area of the unit sphere."""
    kink = min(inner, space.radius)
    parts = [np.linspace(0.0, kink, 2001), np.linspace(kink, space.radius, 2001)]
    held: list[FloatArray] = []
    for radii in parts[: 1 + (kink < space.radius)]:
        stretch = np.sinh(radii) if isinstance(space, HyperbolicSpace) else radii
        values = stretch ** (space.dim - 1) * intensity(radii, inner, decay)
        held.append(cumulative_simpson(values, x=radii, initial=0.0) + (held[0][-1] if held else 0.0))
    return np.concatenate(parts[: len(held)]), np.concatenate(held)


def _radii(space: Space, shares: FloatArray, inner: float, decay: float) -> FloatArray:
    """Radii below which the ball holds these shares of the intensity."""
    radii, held = _radial(space, inner, decay)
    # The dim-th root of the volume is almost linear in the radius.
    root = 1.0 / space.dim
    return np.interp(shares**root, (np.maximum(held, 0.0) / held[-1]) ** root, radii)


def _at_radii(space: Space, points: FloatArray, radii: FloatArray) -> FloatArray:
    """Points in the same directions at other distances from the origin."""
    directions = points / np.maximum(np.linalg.norm(points, axis=1), 1e-300)[:, None]
    sizes = np.tanh(0.5 * radii) if isinstance(space, HyperbolicSpace) else radii
    return np.asarray(sizes[:, None] * directions)


def _weights(space: Space, points: FloatArray, n: int, inner: float, decay: float) -> FloatArray:
    return volume(space, inner, decay) / (n * intensity(depth(space, points), inner, decay))


def push_apart(space: Space, points: FloatArray, weights: FloatArray) -> FloatArray:
    """Move every node away from neighbours that are closer than the spacing of both (one round).

    Neighbours farther than 1.6 spacings do not push: a close-packed lattice has its nearest at 1.07 in two
    dimensions and 1.12 in three. No node moves by more than .3 of them, or it would leap over neighbours.
    """
    near = NeighborSearch(points, space).knn(points, min(20, len(points) - 1) + 1)[1][:, 1:]  # (n, k)
    spacing = weights ** (1.0 / space.dim)
    offsets = _offsets(space, points, points[near])  # (n, k, dim)
    lengths = np.maximum(np.linalg.norm(offsets, axis=2), 1e-300)
    apart = lengths / np.sqrt(spacing[:, None] * spacing[near])
    force = np.maximum(1.6 - apart, 0.0) ** 2 / lengths
    pushed = -0.1 * (offsets * force[:, :, None]).sum(axis=1)  # (n, dim), in spacings
    size = np.maximum(np.linalg.norm(pushed, axis=1), 1e-300)
    moves = pushed * (spacing * np.minimum(size, 0.3) / size)[:, None]
    if isinstance(space, EuclideanSpace):
        return np.asarray(points + moves)
    length = np.maximum(np.linalg.norm(moves, axis=1), 1e-300)[:, None]
    return _moebius_sum(points, moves * np.tanh(0.5 * length) / length)


def _offsets(space: Space, x: FloatArray, y: FloatArray) -> FloatArray:
    """Initial direction and length of the geodesics from x (n, dim) to y (n, k, dim)."""
    if isinstance(space, EuclideanSpace):
        return y - x[:, None, :]
    seen = _moebius_sum(-x[:, None, :], y)
    size = np.maximum(np.linalg.norm(seen, axis=-1), 1e-300)[..., None]
    return np.asarray(seen * (2.0 * np.arctanh(size) / size))


def _moebius_sum(x: FloatArray, y: FloatArray) -> FloatArray:
    """Image of y under the translation that moves the origin to x; broadcasts over leading axes."""
    dot, x2, y2 = ((a * b).sum(axis=-1)[..., None] for a, b in ((x, y), (x, x), (y, y)))
    return np.asarray(((1.0 + 2.0 * dot + y2) * x + (1.0 - x2) * y) / (1.0 + 2.0 * dot + x2 * y2))


# ------------------------------------------------------------------------------------------------------- exhaustion
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
        Relative change of the kernel from half as many nodes: an estimate of what more nodes change.
    truncation : float
        Share of the kernel held by anchors close to the rim: an estimate of what a larger ball changes.
    """

    radius: float
    n_nodes: int
    n_inside: int
    change: float | None
    resolution: float
    truncation: float

    @property
    def error(self) -> float:
        """Estimated error: the sum of both estimates. It does not use the exact kernel."""
        return self.resolution + self.truncation


@dataclass(frozen=True, eq=False)
class Exhaustion:
    """One row for each ball, and the points of the inner ball at which kernels were compared, (q, dim)."""

    rows: tuple[ExhaustionRow, ...]
    queries: FloatArray


def exhaustion(
    space: Space,
    radii: Sequence[float],
    t: float,
    *,
    inner: float,
    n_nodes: int,
    n_queries: int = 128,
    seed: int = 0,
) -> Exhaustion:
    """Fit features of the heat kernel on larger and larger balls, and estimate their error on an inner ball.

    For each radius, nodes are placed, features are fitted, and the kernel between points of the inner ball is
    compared with that of the previous ball and with that of half as many nodes. The number of nodes grows with the
    ball, up to ``n_nodes`` in the largest, so that the number in the inner ball stays the same.

    Notes
    -----
    The estimate was .4 to 4 times the true error in balls of H^2, H^3, R^2 and R^3. It is too low mostly if the rim
    is so close that the kernel is off by a quarter or more, and too high with few nodes. It cannot see errors that
    both numbers of nodes share.

    Examples
    --------
    >>> found = exhaustion(HyperbolicSpace(dim=2), (2.0, 3.0), 0.5, inner=1.5, n_nodes=300)
    >>> found.rows[1].error < 0.05 < found.rows[0].error
    True
    """
    decay = default_decay(space, inner)
    largest = volume(space.ball(radii[-1]), inner, decay)
    queries = space.ball(inner).sample(n_queries, seed=seed)
    rows: list[ExhaustionRow] = []
    before: FloatArray | None = None
    for radius in radii:
        ball = space.ball(radius)
        n = round(n_nodes * volume(ball, inner, decay) / largest)
        features = local_features(ball, n, t, inner=inner)
        coarse = local_features(ball, n // 2, t, inner=inner)
        deep = depth(ball, features.graph_.positions)  # all nodes are anchors
        mapped = features.transform(queries)  # (q, n)
        kernel = mapped @ mapped.T
        # The loss at the rim, .7 to 1.8 times, where it is .004 to .45: what anchors within sqrt(t) / 2 of it hold.
        shell = mapped[:, deep[features.anchors_] > ball.radius - 0.5 * np.sqrt(t)]
        rows.append(
            ExhaustionRow(
                radius=radius,
                n_nodes=n,
                n_inside=int(np.count_nonzero(deep <= inner)),
                change=None if before is None else relative_error(before, kernel),
                resolution=relative_error(coarse.kernel_matrix(queries), kernel),
                truncation=float(np.linalg.norm(shell @ shell.T) / np.linalg.norm(kernel)),
            )
        )
        before = kernel
    return Exhaustion(tuple(rows), queries)


def local_features(
    ball: Space, n: int, t: float, *, inner: float, relaxation: int = RELAXATION, seed: int | None = None
) -> ManifoldRandomFeatures:
    """Features of the heat kernel from n nodes of a ball, most of them in and near its inner ball."""
    nodes = graded_points(ball, n, inner=inner, relaxation=relaxation, seed=seed)
    options = HeatGraph(n_steps=_steps(ball, t), volumes=nodes.weights, metric=ball)
    features = ManifoldRandomFeatures(
        HeatKernel(t), normalize=False, n_features="all", graph=options, random_state=0
    )
    with without_warnings(ManifoldWarning):  # nodes at the rim may be isolated
        return features.fit(nodes.points)


def step_time(ball: Space, s2: float) -> float:
    """How long a step with density exp(-d^2 / s2) lasts: log E cosh d / dim in hyperbolic space, s2 / 4 in flat."""
    if isinstance(ball, EuclideanSpace):
        return s2 / 4
    r = np.linspace(0.0, 8.0 * np.sqrt(s2) + ball.dim * s2, 4001)
    density = np.sinh(r) ** (ball.dim - 1) * np.exp(-(r**2) / s2)
    return float(np.log1p(np.average(2.0 * np.sinh(0.5 * r) ** 2, weights=density)) / ball.dim)


def _steps(ball: Space, t: float) -> int:
    """Few wide steps, but not so wide that curvature changes their time: more nodes would not reveal that error."""
    # On H^2 with t = 2, 4 steps last .17 too long and the kernel is off by .037, which more nodes change by .014;
    # with 8 steps it is off by .006.
    return next((n for n in range(STEPS, 64, 2) if abs(step_time(ball, 4 * t / n) * n / t - 1) <= 0.1), 64)
