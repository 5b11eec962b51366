"""Nodes in a ball of hyperbolic space, even in an inner ball and sparser towards the rim, and features on them.

A finite graph covers a ball, and its walks turn back at the rim. To get the kernel on a fixed inner ball, the outer
ball grows until almost no heat from the inner ball reaches the rim, with enough nodes inside.
"""

from typing import Any, NamedTuple

import numpy as np
from scipy.integrate import cumulative_simpson
from scipy.special import gamma

from manifoldrf import HeatGraph, HeatKernel, HyperbolicSpace, ManifoldRandomFeatures
from reproduction.common import FloatArray

# Wide steps reach most nodes and lose little in a homogeneous space: of 4, 6, 8 and 12, 4 were best in most balls.
STEPS = 4
# Rounds in which nodes push each other apart. Errors with 0, 4, 8, 16 and 32 rounds: .038, .021, .018, .016, .016.
RELAXATION = 8


class GradedPoints(NamedTuple):
    """Nodes (n, dim), and the volume that each stands for, (n,)."""

    points: FloatArray
    weights: FloatArray


def graded_points(ball: HyperbolicSpace, n: int, inner: float, seed: int) -> GradedPoints:
    """Lay out nodes evenly up to the radius ``inner``, beyond it with an intensity that falls as e^{-dim r}.

    The grid of the ball is turned and shifted outwards by the seed. Then nodes push each other apart; after each
    round the radii are reset to their distribution, in the same order, or nodes would spread to the rim.

    Examples
    --------
    >>> ball = HyperbolicSpace(dim=3, radius=5.0)
    >>> nodes = graded_points(ball, 1000, 1.5, 0)
    >>> round(float(nodes.weights[depth(ball, nodes.points) < 1.5].sum() / ball.ball(1.5).volume), 1)
    1.0
    """
    rng = np.random.default_rng(seed)
    points = ball.grid(n)
    radii, held = _radial(ball, ball.radius, 0.0)
    shares = (np.interp(depth(ball, points), radii, held / held[-1]) + rng.random()) % 1.0
    points = points @ np.linalg.qr(rng.standard_normal((ball.dim, ball.dim)))[0]
    points = _at_radii(points, _radii(ball, shares, inner))
    for _ in range(RELAXATION):
        points = _push_apart(ball, points, _weights(ball, points, n, inner))
        radii = np.zeros(n)
        radii[np.argsort(depth(ball, points), kind="stable")] = _radii(ball, (np.arange(n) + 0.5) / n, inner)
        points = _at_radii(points, radii)
    return GradedPoints(points, _weights(ball, points, n, inner))


def local_features(ball: HyperbolicSpace, nodes: GradedPoints, t: float) -> ManifoldRandomFeatures:
    """Fit the library: features of the heat kernel, with known volumes of the nodes and steps along the metric."""
    graph: Any = HeatGraph(n_steps=STEPS, volumes=nodes.weights, metric=ball)
    features = ManifoldRandomFeatures(HeatKernel(t), "all", normalize=False, graph=graph, random_state=0)
    return features.fit(nodes.points)


def depth(ball: HyperbolicSpace, points: FloatArray) -> FloatArray:
    """Distance from the origin."""
    return np.asarray(ball.distance(np.zeros((1, ball.dim)), points)[0])


def _intensity(ball: HyperbolicSpace, rho: FloatArray, inner: float, decay: float | None = None) -> FloatArray:
    """Nodes per unit of volume at the depth rho, over those in the inner ball."""
    rate = ball.dim if decay is None else decay  # one more than the growth rate of volumes
    return np.asarray(np.exp(-rate * np.maximum(rho - inner, 0.0)))


def _radial(ball: HyperbolicSpace, inner: float, decay: float | None = None) -> tuple[FloatArray, FloatArray]:
    """Radii, and the integral of the intensity up to each of them over the area of the unit sphere."""
    radii = np.linspace(0.0, ball.radius, 8001)
    values = np.sinh(radii) ** (ball.dim - 1) * _intensity(ball, radii, inner, decay)
    return radii, np.asarray(cumulative_simpson(values, x=radii, initial=0.0))


def _radii(ball: HyperbolicSpace, shares: FloatArray, inner: float) -> FloatArray:
    """Radii below which the ball holds these shares of the intensity; roots are almost linear in the radius."""
    radii, held = _radial(ball, inner)
    root = 1.0 / ball.dim
    return np.interp(shares**root, (np.maximum(held, 0.0) / held[-1]) ** root, radii)


def _at_radii(points: FloatArray, radii: FloatArray) -> FloatArray:
    """Points in the same directions at other distances from the origin."""
    lengths = np.maximum(np.linalg.norm(points, axis=1), 1e-300)
    return np.asarray((np.tanh(0.5 * radii) / lengths)[:, None] * points)


def _weights(ball: HyperbolicSpace, points: FloatArray, n: int, inner: float) -> FloatArray:
    whole = 2 * np.pi ** (ball.dim / 2) / gamma(ball.dim / 2) * _radial(ball, inner)[1][-1]
    return np.asarray(whole / (n * _intensity(ball, depth(ball, points), inner)))


def _push_apart(ball: HyperbolicSpace, points: FloatArray, weights: FloatArray) -> FloatArray:
    """Move every node away from neighbours that are closer than the spacing of both (one round).

    Neighbours farther than 1.6 spacings do not push: a close-packed lattice has its nearest at 1.12. No node moves
    by more than .3 of them, or it would leap over neighbours.
    """
    near = np.argpartition(ball.distance(points, points), 21, axis=1)[:, :21]  # (n, k), itself included
    spacing = weights ** (1.0 / ball.dim)
    seen = _moebius_sum(-points[:, None, :], points[near])
    size = np.maximum(np.linalg.norm(seen, axis=-1), 1e-300)[..., None]
    offsets = seen * (2.0 * np.arctanh(size) / size)  # (n, k, dim): directions and lengths of the geodesics
    lengths = np.maximum(np.linalg.norm(offsets, axis=2), 1e-300)
    apart = lengths / np.sqrt(spacing[:, None] * spacing[near])
    force = np.where(lengths > 1e-12, np.maximum(1.6 - apart, 0.0) ** 2 / lengths, 0.0)
    pushed = -0.1 * (offsets * force[:, :, None]).sum(axis=1)  # (n, dim), in spacings
    size = np.maximum(np.linalg.norm(pushed, axis=1), 1e-300)
    moves = pushed * (spacing * np.minimum(size, 0.3) / size)[:, None]
    length = np.maximum(np.linalg.norm(moves, axis=1), 1e-300)[:, None]
    return _moebius_sum(points, moves * np.tanh(0.5 * length) / length)


def _moebius_sum(x: FloatArray, y: FloatArray) -> FloatArray:
    """Image of y under the translation that moves the origin to x; broadcasts over leading axes."""
    dot, x2, y2 = ((a * b).sum(axis=-1)[..., None] for a, b in ((x, y), (x, x), (y, y)))
    return np.asarray(((1.0 + 2.0 * dot + y2) * x + (1.0 - x2) * y) / (1.0 + 2.0 * dot + x2 * y2))
