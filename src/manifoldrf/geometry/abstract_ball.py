"""Spaces without end, of which a ball is covered: what they share."""

import abc
import dataclasses
from typing import Any, ClassVar, Self

import numpy as np

from manifoldrf._validation import FloatArray
from manifoldrf.geometry._point_sets import (
    NODES,
    WEIGHTS,
    equal_volume_map,
    random_directions,
    sobol,
    unit_sphere_volume,
)
from manifoldrf.geometry.abstract_manifold import AbstractManifold

_FADED = 60.0  # e^-60 of the intensity inside: no node is there


class AbstractBall(AbstractManifold):
    """A space that looks alike from everywhere and has no end, covered by a geodesic ball around its origin.

    Grid, samples and volume are those of the ball; distance and heat kernel are those of the whole space.

    Examples
    --------
    >>> from manifoldrf import HyperbolicSpace
    >>> from manifoldrf.geometry.abstract_ball import AbstractBall
    >>> isinstance(HyperbolicSpace(), AbstractBall)
    True
    >>> HyperbolicSpace(dim=2).ball(4.0)
    HyperbolicSpace(dim=2, radius=4.0)
    """

    has_boundary: ClassVar[bool] = True

    @property
    @abc.abstractmethod
    def radius(self) -> float:
        """Geodesic radius of the ball."""

    @property
    def ambient_dim(self) -> int:
        """Number of coordinates, dim."""
        return self.dim

    @property
    def volume(self) -> float:
        """Volume of the geodesic ball."""
        return self._volume_of(self.radius, 0.0)

    def ball(self, radius: float) -> Self:
        """Return the same space with a ball of another radius."""
        space: Any = self
        changed: Self = dataclasses.replace(space, radius=radius)
        return changed

    # An intensity is radial: 1 up to the radius `inner`, then falling like e^{-decay (r - inner)}. The uniform one
    # has the whole ball inside.

    def _intensity(self, rho: FloatArray, inner: float, decay: float) -> FloatArray:
        return np.asarray(np.exp(-decay * np.maximum(rho - inner, 0.0)))

    def _volume_of(self, inner: float, decay: float) -> float:
        """Integral of an intensity over the ball."""
        whole = self._radial_integral(np.array([self.radius]), inner, decay)
        return unit_sphere_volume(self.dim - 1) * float(whole[0])

    def _radial_integral(self, rho: FloatArray, inner: float, decay: float) -> FloatArray:
        """Integral of stretch^(dim - 1) times an intensity from 0 to each rho, in two pieces: it has a kink."""
        rho = np.minimum(rho, self._end(inner, decay))
        split = np.minimum(rho, inner)
        return self._piece(np.zeros_like(rho), split, inner, decay) + self._piece(split, rho, inner, decay)

    def _piece(self, low: FloatArray, high: FloatArray, inner: float, decay: float) -> FloatArray:
        half = 0.5 * (high - low)
        s = low[:, None] + half[:, None] * (NODES + 1.0)  # (n, nodes)
        values = self._stretch(s) ** (self.dim - 1) * self._intensity(s, inner, decay)
        return np.asarray(half * (values @ WEIGHTS))

    def _radii(self, u: FloatArray, inner: float, decay: float) -> FloatArray:
        """Radii below which the ball holds the fractions u of an intensity."""
        end = self._end(inner, decay)
        table = np.linspace(0.0, end, 1025)[1:]
        held = self._radial_integral(table, inner, decay)
        # The dim-th root of the volume is almost linear in the radius, so that the table starts Newton close by.
        target, root = u * held[-1], 1.0 / self.dim
        rho = np.interp(target**root, np.append(0.0, held**root), np.append(0.0, table))
        for _ in range(3):
            slope = self._stretch(rho) ** (self.dim - 1) * self._intensity(rho, inner, decay)
            rho = rho - (self._radial_integral(rho, inner, decay) - target) / slope
        return np.asarray(np.clip(rho, 0.0, end))

    def _end(self, inner: float, decay: float) -> float:
        """Radius beyond which an intensity is too small to be integrated."""
        return self.radius if decay == 0 else min(self.radius, inner + _FADED / decay)

    def _even(self, u: FloatArray, inner: float, decay: float) -> FloatArray:
        """Points of the cube (0, 1)^dim carried to the ball, with an intensity."""
        return self._place(self._radii(u[:, 0], inner, decay), equal_volume_map(u[:, 1:]))

    def _random(self, n: int, inner: float, decay: float, rng: np.random.Generator) -> FloatArray:
        """Draw n independent points of an intensity."""
        radii = self._radii(1.0 - rng.random(n), inner, decay)  # in (0, 1]: Newton divides by the stretch
        return self._place(radii, random_directions(n, self.dim, rng))

    def _place(self, radii: FloatArray, directions: FloatArray) -> FloatArray:
        return np.asarray(self._coordinate(radii)[:, None] * directions)

    def _grid(self, n: int) -> FloatArray:
        return self._even(sobol(n, self.dim), self.radius, 0.0)

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self._random(n, self.radius, 0.0, rng)

    # What a space supplies.

    @abc.abstractmethod
    def _decay(self, inner: float) -> float:
        """A decay that leaves most nodes in and near the inner ball."""

    @abc.abstractmethod
    def _stretch(self, rho: FloatArray) -> FloatArray:
        """Circumference of a circle of radius rho over 2 pi."""

    @abc.abstractmethod
    def _coordinate(self, rho: FloatArray) -> FloatArray:
        """Euclidean norm of the coordinates of a point at the distance rho from the origin."""

    @abc.abstractmethod
    def _depth(self, points: FloatArray) -> FloatArray:
        """Distance from the origin, the inverse of `_coordinate`."""

    @abc.abstractmethod
    def _move(self, x: FloatArray, v: FloatArray) -> FloatArray:
        """Points at which geodesics from x with the initial direction and length of v end."""

    @abc.abstractmethod
    def _offset_to(self, x: FloatArray, y: FloatArray) -> FloatArray:
        """Initial direction and length of the geodesic from x to y, the inverse of `_move`; (n, k, dim)."""
