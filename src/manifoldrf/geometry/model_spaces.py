"""Spaces of constant curvature: sphere, flat torus, flat and hyperbolic space, with distances and heat kernels."""

from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from manifoldrf._validation import POSITIVE, FloatArray, Interval, check_integer, check_real
from manifoldrf.geometry._heat_series import (
    circle_log_kernel,
    hyperbolic_three_kernel,
    hyperbolic_two_kernel,
    sphere_kernel,
)
from manifoldrf.geometry._point_sets import (
    equal_volume_map,
    fibonacci,
    gap,
    norm,
    random_directions,
    sobol,
    unit_sphere_volume,
)
from manifoldrf.geometry._steps import gaussian_step
from manifoldrf.geometry.abstract_ball import AbstractBall
from manifoldrf.geometry.abstract_manifold import TOLERANCE, AbstractManifold, BoolArray, store

__all__ = ["EuclideanSpace", "FlatTorus", "HyperbolicSpace", "Sphere"]


# Volumes of unit spheres fall like d^(-d/2): beyond this dimension kernels overflow at short times.
_LARGEST_SPHERE = 100


@final
@dataclass(frozen=True)
class Sphere(AbstractManifold):
    """The sphere S^dim of a given radius around the origin of R^(dim + 1).

    The grid is equally spaced on the circle, a Fibonacci lattice on S^2, and an equal-volume image of Sobol points
    from S^3 on. The heat kernel is a theta series (S^1), an integral or a sum over images at short times (S^2 and
    S^3), and the Gegenbauer series otherwise.

    Parameters
    ----------
    dim : int
        Dimension, at least 1.
    radius : float
        Radius.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Sphere
    >>> sphere = Sphere(radius=2.0)
    >>> round(sphere.volume / np.pi, 12)
    16.0
    >>> np.round(np.linalg.norm(sphere.grid(3), axis=1), 12)
    array([2., 2., 2.])
    """

    dim: int = 2
    radius: float = 1.0
    _equation: ClassVar[str] = "|x| = radius"

    def __post_init__(self) -> None:
        store(self, dim=check_integer(self.dim, "dim", 1), radius=check_real(self.radius, "radius", POSITIVE))

    @property
    def ambient_dim(self) -> int:
        """Number of coordinates, dim + 1."""
        return self.dim + 1

    @property
    def volume(self) -> float:
        """Volume of the whole sphere."""
        return unit_sphere_volume(self.dim) * self.radius**self.dim

    def _grid(self, n: int) -> FloatArray:
        if self.dim == 1:
            return self.radius * equal_volume_map(np.linspace(0.0, 1.0, n, endpoint=False)[:, None])
        return self.radius * (fibonacci(n) if self.dim == 2 else equal_volume_map(sobol(n, self.dim)))

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self.radius * random_directions(n, self.ambient_dim, rng)

    def _member(self, points: FloatArray) -> BoolArray:
        return np.abs(norm(points) - self.radius) <= TOLERANCE * self.radius

    def _angle(self, x: FloatArray, y: FloatArray) -> FloatArray:
        x, y = x / norm(x)[..., None], y / norm(y)[..., None]
        # Kahan's form is accurate at both ends; the arc cosine blurs angles below 1e-8 and near pi.
        return np.asarray(2.0 * np.arctan2(gap(x, y), gap(x, -y)))

    def _distance(self, x: FloatArray, y: FloatArray) -> FloatArray:
        return self.radius * self._angle(x, y)

    def _reach(self, points: FloatArray, r: FloatArray) -> FloatArray:
        return np.asarray(2.0 * self.radius * np.sin(0.5 * np.minimum(r / self.radius, np.pi)))  # the chord

    def _gaussian_step(self, s2: float, reach: float) -> tuple[float, float]:
        return gaussian_step(s2, reach, self.dim, self.radius**-2.0)

    def _heat(self, x: FloatArray, y: FloatArray, t: float) -> FloatArray:
        unit_time = t / self.radius**2
        if self.dim > _LARGEST_SPHERE:
            self._unknown(f"heat kernel for dim > {_LARGEST_SPHERE}", "its values leave the range of floats")
        if self.dim > 3:  # shorter times would ask for a series of many thousand terms
            check_real(unit_time, "t / radius^2", Interval(1e-6))
        return sphere_kernel(self._angle(x, y), unit_time, self.dim) / self.radius**self.dim


@final
@dataclass(frozen=True)
class FlatTorus(AbstractManifold):
    """The flat torus: the cube [0, side)^dim with opposite faces glued.

    Any coordinates are accepted and wrapped into the cube.

    Parameters
    ----------
    dim : int
        Dimension, at least 1.
    side : float
        Length of each closed coordinate line.

    Examples
    --------
    >>> from manifoldrf import FlatTorus
    >>> torus = FlatTorus(dim=2, side=3.0)
    >>> torus.volume, torus.box
    (9.0, (3.0, 3.0))
    >>> torus.grid(4).tolist()
    [[0.0, 0.0], [0.0, 1.5], [1.5, 0.0], [1.5, 1.5]]
    """

    dim: int = 2
    side: float = 1.0
    _equation: ClassVar[str] = "any finite coordinates"

    def __post_init__(self) -> None:
        store(self, dim=check_integer(self.dim, "dim", 1), side=check_real(self.side, "side", POSITIVE))

    @property
    def ambient_dim(self) -> int:
        """Number of coordinates, dim."""
        return self.dim

    @property
    def volume(self) -> float:
        """Volume, side^dim."""
        return self.side**self.dim

    @property
    def box(self) -> tuple[float, ...]:
        """Sides of the periodic box."""
        return (self.side,) * self.dim

    def _grid(self, n: int) -> FloatArray:
        steps = max(1, round(n ** (1.0 / self.dim)))
        axes = np.meshgrid(*[self.side / steps * np.arange(steps)] * self.dim, indexing="ij")
        return np.stack([axis.ravel() for axis in axes], axis=1)  # (steps^dim, dim)

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self.side * rng.random((n, self.dim))

    def _wrap(self, points: FloatArray) -> FloatArray:
        wrapped = np.mod(points, self.side)
        return np.where(wrapped < self.side, wrapped, 0.0)  # -1e-20 rounds to the side itself

    def _member(self, points: FloatArray) -> BoolArray:
        return np.ones(len(points), dtype=np.bool_)

    def _offset(self, x: FloatArray, y: FloatArray) -> FloatArray:
        apart = np.abs(x - y)
        return np.minimum(apart, self.side - apart)

    def _distance(self, x: FloatArray, y: FloatArray) -> FloatArray:
        squares = [self._offset(x[..., k], y[..., k]) ** 2 for k in range(self.dim)]
        return np.asarray(np.sqrt(sum(squares)))

    def _heat(self, x: FloatArray, y: FloatArray, t: float) -> FloatArray:
        unit = 2.0 * np.pi / self.side  # turns a coordinate into an angle of the unit circle
        factors = [
            circle_log_kernel(unit * self._offset(x[..., k], y[..., k]), t * unit**2) for k in range(self.dim)
        ]
        return np.asarray(np.exp(sum(factors) + self.dim * np.log(unit)))


@final
@dataclass(frozen=True)
class HyperbolicSpace(AbstractBall):
    """Hyperbolic space H^dim of curvature -1 in the Poincare ball model: coordinates with |x| < 1.

    Grid, samples and volume are those of the geodesic ball of the given radius around the origin, which is the
    Euclidean ball of radius tanh(radius / 2); distance and heat kernel are those of the whole space. The grid is an
    equal-volume image of Sobol points. The heat kernel is known for H^2 (McKean's integral) and H^3.

    Parameters
    ----------
    dim : int
        Dimension, at least 2.
    radius : float
        Geodesic radius of the ball, at most 20 (farther out, the coordinates of different points round to one)
        and at most 200 / (dim - 1).

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import HyperbolicSpace
    >>> ball = HyperbolicSpace(dim=2, radius=1.0)
    >>> round(float(ball.volume / (2 * np.pi * (np.cosh(1.0) - 1.0))), 12)
    1.0
    >>> round(float(ball.distance([[0.0, 0.0]], ball.grid(100)).max()), 1)
    1.0
    """

    dim: int = 3
    radius: float = 2.0
    _equation: ClassVar[str] = "|x| < 1"

    def __post_init__(self) -> None:
        dim = check_integer(self.dim, "dim", 2)
        # The second bound keeps the radial quadrature exact: the volume grows like e^{(dim - 1) radius}.
        farthest = min(20.0, 200.0 / (dim - 1))
        store(self, dim=dim, radius=check_real(self.radius, "radius", Interval(0.0, farthest, low_open=True)))

    def _decay(self, inner: float) -> float:
        # Inside r = 1.5 at t = .5, from as many nodes, the kernel is .007 off with 2 and .009 with 3 on H^2, and
        # about .014 with both on H^3, where 2 leaves half as many nodes inside.
        return float(self.dim)

    def _stretch(self, rho: FloatArray) -> FloatArray:
        return np.asarray(np.sinh(rho))

    def _coordinate(self, rho: FloatArray) -> FloatArray:
        return np.asarray(np.tanh(0.5 * rho))

    def _depth(self, points: FloatArray) -> FloatArray:
        # At the largest radii the norm of a point rounds to 1.
        return np.asarray(2.0 * np.arctanh(np.minimum(norm(points), np.nextafter(1.0, 0.0))))

    def _move(self, x: FloatArray, v: FloatArray) -> FloatArray:
        length = norm(v)[..., None]
        return _moebius_sum(
            x, v * np.divide(np.tanh(0.5 * length), length, out=0.5 + 0.0 * length, where=length > 0)
        )

    def _offset_to(self, x: FloatArray, y: FloatArray) -> FloatArray:
        seen = _moebius_sum(-x[:, None, :], y)
        size = norm(seen)[..., None]
        ratio = np.divide(2.0 * np.arctanh(size), size, out=2.0 + 0.0 * size, where=size > 0)
        return np.asarray(seen * ratio)

    def _member(self, points: FloatArray) -> BoolArray:
        return norm(points) < 1.0

    def _reach(self, points: FloatArray, r: FloatArray) -> FloatArray:
        # A metric ball is a Euclidean ball with another centre: x (1 - T^2) / (1 - T^2 |x|^2).
        size, tanh = norm(points), np.tanh(0.5 * r)
        # Its radius plus the shift of the centre:
        return np.asarray(tanh * (1.0 - size) * (1.0 + size) / (1.0 - tanh * size))

    def _distance(self, x: FloatArray, y: FloatArray) -> FloatArray:
        inside = [(1.0 - norm(z)) * (1.0 + norm(z)) for z in (x, y)]  # 1 - |z|^2 without cancellation
        return np.asarray(2.0 * np.arcsinh(gap(x, y) / np.sqrt(inside[0] * inside[1])))

    def _gaussian_step(self, s2: float, reach: float) -> tuple[float, float]:
        return gaussian_step(s2, reach, self.dim, -1.0)

    def _heat(self, x: FloatArray, y: FloatArray, t: float) -> FloatArray:
        if self.dim > 3:
            self._unknown("heat kernel for dim > 3", "use dim=2 or dim=3, or a heat_graph of its points")
        kernel = hyperbolic_two_kernel if self.dim == 2 else hyperbolic_three_kernel
        return kernel(self._distance(x, y), t)


def _moebius_sum(x: FloatArray, y: FloatArray) -> FloatArray:
    """Where the translation that takes the origin to x takes y; over broadcast leading axes."""
    dot, x2, y2 = ((a * b).sum(axis=-1)[..., None] for a, b in ((x, y), (x, x), (y, y)))
    return np.asarray(((1.0 + 2.0 * dot + y2) * x + (1.0 - x2) * y) / (1.0 + 2.0 * dot + x2 * y2))


@final
@dataclass(frozen=True)
class EuclideanSpace(AbstractBall):
    """Flat space R^dim, covered by the ball of a given radius around the origin.

    Grid, samples and volume are those of the ball; distance and heat kernel, a Gaussian, are those of the whole
    space. The grid is an equal-volume image of Sobol points.

    Parameters
    ----------
    dim : int
        Dimension, at least 2.
    radius : float
        Radius of the ball.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.geometry.manifolds import EuclideanSpace
    >>> ball = EuclideanSpace(dim=3, radius=2.0)
    >>> round(float(ball.volume / (4 / 3 * np.pi * 2.0**3)), 12)
    1.0
    >>> round(float(ball.heat_kernel([[0.0, 0.0, 0.0]], [[0.0, 0.0, 3.0]], t=0.25)[0, 0] * np.pi**1.5), 8)
    0.00012341
    """

    dim: int = 3
    radius: float = 1.0
    _equation: ClassVar[str] = "any finite coordinates"

    def __post_init__(self) -> None:
        dim = check_integer(self.dim, "dim", 2, _LARGEST_SPHERE)
        store(self, dim=dim, radius=check_real(self.radius, "radius", POSITIVE))

    def _decay(self, inner: float) -> float:
        return 2.0 / inner

    def _stretch(self, rho: FloatArray) -> FloatArray:
        return rho

    def _coordinate(self, rho: FloatArray) -> FloatArray:
        return rho

    def _depth(self, points: FloatArray) -> FloatArray:
        return norm(points)

    def _move(self, x: FloatArray, v: FloatArray) -> FloatArray:
        return x + v

    def _offset_to(self, x: FloatArray, y: FloatArray) -> FloatArray:
        return y - x[:, None, :]

    def _member(self, points: FloatArray) -> BoolArray:
        return np.ones(len(points), dtype=np.bool_)

    def _distance(self, x: FloatArray, y: FloatArray) -> FloatArray:
        return gap(x, y)

    def _heat(self, x: FloatArray, y: FloatArray, t: float) -> FloatArray:
        return np.asarray(
            np.exp(-(self._distance(x, y) ** 2) / (4.0 * t) - 0.5 * self.dim * np.log(4.0 * np.pi * t))
        )
