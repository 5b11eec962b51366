"""Nodes of a ball in a space without end: even where the kernel is asked for, thinner and thinner beyond.

Volumes of hyperbolic balls grow like e^{(dim - 1) R}: nodes spread evenly would be at the rim, almost all of them.
"""

from typing import NamedTuple

import numpy as np

from manifoldrf._random import SeedLike, generator
from manifoldrf._validation import (
    NONNEGATIVE,
    FloatArray,
    Interval,
    check_integer,
    check_option,
    check_real,
    reject,
)
from manifoldrf.geometry._point_sets import norm, shifted_sobol, sobol
from manifoldrf.geometry.abstract_ball import AbstractBall
from manifoldrf.geometry.neighbors import NeighborSearch

__all__ = ["GradedPoints", "graded_points"]

SCATTERS = ("even", "random")
# Neighbours farther than this many spacings do not push. A close-packed lattice has its nearest at 1.12 in three
# dimensions and 1.07 in two.
_PUSH_REACH = 1.6
_PUSH = 0.1  # spacings a node moves for a unit of force
_LONGEST_PUSH = 0.3  # spacings per round; longer ones would leap over neighbours
_PUSHED_BY = 20  # nearest neighbours that push: all within reach up to H^3, the nearest two thirds of them on H^4


class GradedPoints(NamedTuple):
    """Nodes with a known intensity, made by :func:`graded_points`.

    Attributes
    ----------
    points : array of shape (n, dim)
    weights : array of shape (n,)
        The volume that each node stands for: one over the number of nodes per unit of volume.
    density : float
        Nodes per unit of volume in the inner ball.

    Examples
    --------
    >>> from manifoldrf import HyperbolicSpace
    >>> from manifoldrf.geometry.grading import graded_points
    >>> nodes = graded_points(HyperbolicSpace(dim=2, radius=3.0), 200, inner=1.0)
    >>> nodes.points.shape, nodes.weights.shape
    ((200, 2), (200,))
    >>> bool(nodes.weights.min() * nodes.density > 1 - 1e-12)  # one over the density in the inner ball, more beyond
    True
    """

    points: FloatArray
    weights: FloatArray
    density: float


def graded_points(
    space: AbstractBall,
    n: int,
    *,
    inner: float,
    decay: float | None = None,
    scatter: str = "even",
    relaxation: int = 0,
    seed: SeedLike = None,
) -> GradedPoints:
    """Lay out nodes in a ball: evenly up to the radius ``inner``, beyond it with a falling intensity.

    It falls like e^{-decay (r - inner)}.

    Parameters
    ----------
    space : HyperbolicSpace or EuclideanSpace
        Its radius is that of the ball.
    n : int
    inner : float
        Radius of the inner ball, at most that of the ball.
    decay : float, optional
        One over a length; 0 for even nodes everywhere. By default the dimension in hyperbolic space, one more than
        volumes grow by, and 2 / inner in flat space.
    scatter : {"even", "random"}, default="even"
        "even": Sobol points, shifted at random if there is a seed. "random": independent points.
    relaxation : int, default=0
        Rounds in which nodes push each other apart, in units of the local spacing (blue noise). After each, radii
        get back the law they had, in the same order: nodes that push would spread from the middle to the rim, and
        the intensity would not be the stated one any more.
    seed : optional
        Of random points and of shifts; even points are always the same without.

    Returns
    -------
    GradedPoints
        (points, weights, density)

    Examples
    --------
    >>> from manifoldrf import HyperbolicSpace
    >>> from manifoldrf.geometry.grading import graded_points
    >>> space = HyperbolicSpace(dim=3, radius=5.0)
    >>> nodes = graded_points(space, 2000, inner=1.5)
    >>> inside = space.distance([[0.0, 0.0, 0.0]], nodes.points)[0] < 1.5
    >>> int(inside.sum())  # of 2000; evenly spread, it would be one
    543
    >>> round(float(nodes.weights[inside].sum() / space.ball(1.5).volume), 2)
    1.0
    """
    if not isinstance(space, AbstractBall):
        reject("space", "a space covered by a ball (HyperbolicSpace, EuclideanSpace)", repr(space), TypeError)
    n, relaxation = check_integer(n, "n", 2), check_integer(relaxation, "relaxation", 0)
    inner = check_real(inner, "inner", Interval(0.0, space.radius, low_open=True))
    decay = space._decay(inner) if decay is None else check_real(decay, "decay", NONNEGATIVE)
    points = _scatter(space, n, inner, decay, check_option(scatter, "scatter", SCATTERS), seed)
    density = n / space._volume_of(inner, decay)
    for _ in range(relaxation):
        points = push_apart(space, points, _weights(space, points, inner, decay, density))
        points = _restore_radii(space, points, inner, decay)
    return GradedPoints(points, _weights(space, points, inner, decay, density), density)


def _scatter(space: AbstractBall, n: int, inner: float, decay: float, scatter: str, seed: SeedLike) -> FloatArray:
    if scatter == "random":
        return space._random(n, inner, decay, generator(seed, "graded points"))
    u = sobol(n, space.dim) if seed is None else shifted_sobol(n, space.dim, generator(seed, "graded points"))
    return space._even(u, inner, decay)


def _weights(space: AbstractBall, points: FloatArray, inner: float, decay: float, density: float) -> FloatArray:
    return np.asarray(1.0 / (density * space._intensity(space._depth(points), inner, decay)))


def push_apart(space: AbstractBall, points: FloatArray, weights: FloatArray) -> FloatArray:
    """One round: every node moves away from neighbours that are closer than the spacing of both."""
    near = NeighborSearch(points, space).knn(points, min(_PUSHED_BY, len(points) - 1) + 1)[1][:, 1:]  # (n, k)
    spacing = weights ** (1.0 / space.dim)
    offsets = space._offset_to(points, points[near])  # (n, k, dim)
    lengths = np.maximum(norm(offsets), 1e-300)
    apart = lengths / np.sqrt(spacing[:, None] * spacing[near])
    force = np.maximum(_PUSH_REACH - apart, 0.0) ** 2 / lengths
    pushed = -_PUSH * (offsets * force[:, :, None]).sum(axis=1)  # (n, dim), in spacings
    size = np.maximum(norm(pushed), 1e-300)
    scale = spacing * np.minimum(size, _LONGEST_PUSH) / size
    return space._move(points, pushed * scale[:, None])


def _restore_radii(space: AbstractBall, points: FloatArray, inner: float, decay: float) -> FloatArray:
    """The same directions and order of radii, with the radii that the intensity asks for."""
    n = len(points)
    order = np.argsort(space._depth(points), kind="stable")
    radii = np.zeros(n)
    radii[order] = space._radii((np.arange(n) + 0.5) / n, inner, decay)
    return space._place(radii, points / np.maximum(norm(points), 1e-300)[:, None])
