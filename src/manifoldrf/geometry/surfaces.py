"""Parametrised surfaces in R^3: ellipsoid, torus, Moebius strip."""

from dataclasses import dataclass, field
from typing import ClassVar, final

import numpy as np
from scipy.special import elliprg

from manifoldrf._codec import stored
from manifoldrf._validation import POSITIVE, FloatArray, Interval, check_real, check_vector
from manifoldrf.geometry.manifolds import (
    NODES,
    TOLERANCE,
    WEIGHTS,
    AbstractManifold,
    BoolArray,
    cells,
    circle,
    fibonacci,
    norm,
    product,
    random_directions,
    store,
    thinned,
)


@stored
@final
@dataclass(frozen=True)
class Ellipsoid(AbstractManifold):
    """The ellipsoid (x/a)^2 + (y/b)^2 + (z/c)^2 = 1 in R^3; its grid is a scaled Fibonacci lattice.

    Parameters
    ----------
    axes : tuple of three floats
        Semi-axes a, b, c.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Ellipsoid
    >>> round(Ellipsoid(axes=(2.0, 2.0, 2.0)).volume / np.pi, 12)
    16.0
    """

    axes: tuple[float, float, float] = (1.0, 1.3, 0.7)
    dim: int = field(default=2, init=False, repr=False)
    ambient_dim: int = field(default=3, init=False, repr=False)
    _equation: ClassVar[str] = "(x/a)^2 + (y/b)^2 + (z/c)^2 = 1"

    def __post_init__(self) -> None:
        store(self, axes=tuple(check_vector(self.axes, "axes", 3, POSITIVE).tolist()))

    @property
    def volume(self) -> float:
        """Surface area, by Carlson's symmetric elliptic integral."""
        a, b, c = self.axes
        return float(4.0 * np.pi * elliprg((a * b) ** 2, (a * c) ** 2, (b * c) ** 2))

    def _stretch(self, directions: FloatArray) -> FloatArray:
        """Area element of the ellipsoid over that of the unit sphere, at points of the unit sphere."""
        a, b, c = self.axes
        return norm(directions * np.array([b * c, a * c, a * b]))

    def _grid(self, n: int) -> FloatArray:
        return np.asarray(fibonacci(n) * np.array(self.axes))

    def _density(self, n: int) -> FloatArray:
        return self._stretch(fibonacci(n))

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        bound = float(np.prod(self.axes)) / min(self.axes)
        directions = thinned(n, lambda k: random_directions(k, 3, rng), self._stretch, bound, rng)
        return np.asarray(directions * np.array(self.axes))

    def _member(self, points: FloatArray) -> BoolArray:
        return np.abs(norm(points / np.array(self.axes)) - 1.0) <= TOLERANCE


@stored
@final
@dataclass(frozen=True)
class Torus(AbstractManifold):
    """The torus of revolution in R^3: ((R + r cos v) cos u, (R + r cos v) sin u, r sin v) with R > r.

    The grid is uniform in the angles u and v, with about R / r times as many values of u as of v.

    Parameters
    ----------
    major : float
        Radius R of the circle of centres.
    minor : float
        Radius r of the tube, below ``major``.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Torus
    >>> round(Torus(major=2.0, minor=0.5).volume / (4 * np.pi**2), 12)
    1.0
    """

    major: float = 1.0
    minor: float = 0.4
    dim: int = field(default=2, init=False, repr=False)
    ambient_dim: int = field(default=3, init=False, repr=False)
    _equation: ClassVar[str] = "(hypot(x, y) - major)^2 + z^2 = minor^2"

    def __post_init__(self) -> None:
        major = check_real(self.major, "major", POSITIVE)
        minor = check_real(self.minor, "minor", Interval(0.0, major, low_open=True, high_open=True))
        store(self, major=major, minor=minor)

    @property
    def volume(self) -> float:
        """Surface area, 4 pi^2 R r."""
        return 4.0 * np.pi**2 * self.major * self.minor

    def _embed(self, angles: FloatArray) -> FloatArray:
        u, v = angles.T
        rho = self.major + self.minor * np.cos(v)
        return np.stack([rho * np.cos(u), rho * np.sin(u), self.minor * np.sin(v)], axis=1)

    def _angles(self, n: int) -> FloatArray:
        columns, rows = cells(n, self.major / self.minor, 3)
        return product(circle(columns), circle(rows))

    def _element(self, angles: FloatArray) -> FloatArray:
        return self.major + self.minor * np.cos(angles[:, 1])

    def _grid(self, n: int) -> FloatArray:
        return self._embed(self._angles(n))

    def _density(self, n: int) -> FloatArray:
        return self._element(self._angles(n))

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        bound = self.major + self.minor
        return self._embed(thinned(n, lambda k: 2.0 * np.pi * rng.random((k, 2)), self._element, bound, rng))

    def _member(self, points: FloatArray) -> BoolArray:
        tube = np.hypot(np.hypot(points[:, 0], points[:, 1]) - self.major, points[:, 2])
        return np.abs(tube - self.minor) <= TOLERANCE * self.major


@stored
@final
@dataclass(frozen=True)
class MobiusStrip(AbstractManifold):
    """The Moebius strip ((R + v cos(u/2)) cos u, (R + v cos(u/2)) sin u, v sin(u/2)), |v| <= half_width, in R^3.

    The grid is uniform in u (the end point left out) and in v (both edges included), with about 2.5 R / half_width
    times as many values of u as of v: 200 x 20 for n = 4000 and the default strip.

    Parameters
    ----------
    radius : float
        Radius R of the central circle.
    half_width : float
        Half of the width of the band, below ``radius``.

    Examples
    --------
    >>> from manifoldrf import MobiusStrip
    >>> round(MobiusStrip().volume, 6)
    3.149911
    """

    radius: float = 1.0
    half_width: float = 0.25
    dim: int = field(default=2, init=False, repr=False)
    ambient_dim: int = field(default=3, init=False, repr=False)
    _equation: ClassVar[str] = "on the band of that half_width"

    def __post_init__(self) -> None:
        radius = check_real(self.radius, "radius", POSITIVE)
        half_width = check_real(self.half_width, "half_width", Interval(0.0, radius, low_open=True, high_open=True))
        store(self, radius=radius, half_width=half_width)

    @property
    def volume(self) -> float:
        """Surface area, by quadrature to machine precision."""
        # The trapezoidal rule converges exponentially in u: the integrand is periodic, up to the sign of v.
        u = circle(256)
        element = self._element(product(u, self.half_width * NODES)).reshape(u.size, -1)  # (u, v)
        return float(2.0 * np.pi * self.half_width * np.mean(element @ WEIGHTS))

    def _embed(self, parameters: FloatArray) -> FloatArray:
        u, v = parameters.T
        rho = self.radius + v * np.cos(0.5 * u)
        return np.stack([rho * np.cos(u), rho * np.sin(u), v * np.sin(0.5 * u)], axis=1)

    def _element(self, parameters: FloatArray) -> FloatArray:
        u, v = parameters.T
        return np.asarray(np.hypot(self.radius + v * np.cos(0.5 * u), 0.5 * v))

    def _axes(self, n: int) -> tuple[FloatArray, FloatArray]:
        columns, rows = cells(n, 2.5 * self.radius / self.half_width, 2)
        return circle(columns), np.linspace(-self.half_width, self.half_width, rows)

    def _grid(self, n: int) -> FloatArray:
        return self._embed(product(*self._axes(n)))

    def _density(self, n: int) -> FloatArray:
        u, v = self._axes(n)
        cell = np.where(np.abs(v) < self.half_width, 1.0, 0.5)  # half cells at the edges
        return np.asarray(self._element(product(u, v)) * np.tile(cell, u.size))

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        low, size = np.array([0.0, -self.half_width]), np.array([2.0 * np.pi, 2.0 * self.half_width])
        bound = np.hypot(self.radius + self.half_width, 0.5 * self.half_width)
        return self._embed(thinned(n, lambda k: low + size * rng.random((k, 2)), self._element, bound, rng))

    def _member(self, points: FloatArray) -> BoolArray:
        # Undo the embedding: u is the polar angle (rho > 0), the rest is a rotation by u / 2 in the (rho, z) plane.
        u = np.mod(np.arctan2(points[:, 1], points[:, 0]), 2.0 * np.pi)
        out = np.hypot(points[:, 0], points[:, 1]) - self.radius
        v = out * np.cos(0.5 * u) + points[:, 2] * np.sin(0.5 * u)
        off = points[:, 2] * np.cos(0.5 * u) - out * np.sin(0.5 * u)
        slack = TOLERANCE * self.radius
        return (np.abs(off) <= slack) & (np.abs(v) <= self.half_width + slack)
