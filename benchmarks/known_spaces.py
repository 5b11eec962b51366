"""Spaces whose heat kernel is known: in closed form, or by separation of variables to about six digits.

Each space draws intrinsic coordinates u, embeds them as points, and has its kernel between coordinates, so no
inverse of the embedding is needed. Sides reflect heat (Neumann).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from scipy.linalg import eigh_tridiagonal

from manifoldrf import Sphere

TAU = 2 * np.pi
CUT = 40.0  # waves that decay below exp(-40) do not count


def columns(*parts):
    """Coordinates side by side."""
    return np.column_stack(parts)


def circle_kernel(x, y, length, t):
    """Heat kernel of a circle of a given length, between arc lengths."""
    k = TAU * np.arange(1, 2 + int(length / TAU * np.sqrt(CUT / t))) / length
    waves = 2 * np.exp(-(k**2) * t)
    phases = np.exp(1j * np.outer(x, k)), np.exp(1j * np.outer(y, k))
    return (1 + ((phases[0] * waves) @ phases[1].conj().T).real) / length


def interval_kernel(x, y, length, t):
    """Heat kernel of [0, length]."""
    return circle_kernel(x, y, 2 * length, t) + circle_kernel(x, -y, 2 * length, t)


@dataclass(frozen=True)
class Known:
    """A space: ``draw(n, rng)`` gives coordinates uniform in volume, ``embed(u)`` points, ``kernel(u, t)`` K."""

    name: str
    dim: int
    t: float
    draw: Callable[..., Any]
    embed: Callable[..., Any]
    kernel: Callable[..., Any]

    def uneven(self, n, ratio, rng):
        """Coordinates whose density varies by a factor, exponentially along the first coordinate of the points."""
        if ratio == 1:
            return self.draw(n, rng)
        kept = []
        while sum(map(len, kept)) < n:
            u = self.draw(4 * n, rng)
            h = self.embed(u)[:, 0]
            h = (h - h.min()) / np.ptp(h)
            kept.append(u[rng.random(len(u)) < ratio ** (h - 1)])
        return np.concatenate(kept)[:n]


def by_arc(profile, end, n=100_001):
    """Coordinates of a curve profile(p), p in [0, end], as functions of its arc length, and its length."""
    places = np.column_stack(profile(np.linspace(0, end, n)))
    arc = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(places, axis=0), axis=1))])
    return *((lambda s, x=x: np.interp(s, arc, x)) for x in places.T), arc[-1]


def curve(name, t, place, *, closed=True, end=TAU):
    """A curve place(angle), by its arc length."""
    angles = np.linspace(0, end, 200_001)
    arc = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(columns(*place(angles)), axis=0), axis=1))])
    length, kernel = arc[-1], circle_kernel if closed else interval_kernel

    def embed(u):
        return columns(*place(np.interp(u[:, 0], arc, angles)))

    return Known(
        name, 1, t, lambda n, rng: length * rng.random((n, 1)), embed, lambda u, t: kernel(*u.T, *u.T, length, t)
    )


@dataclass(frozen=True)
class Revolution:
    """Heat kernel on a surface (rho(s) cos a, rho(s) sin a, z(s)), by waves in a and finite volumes in s.

    ``power`` 2 replaces the circle of angles by a sphere: a solid ball for rho(s) = s.
    """

    rho: Callable[..., Any]
    length: float
    periodic: bool = False
    power: int = 1
    cells: int = 3000
    solved: dict = field(default_factory=dict)

    def waves(self, t):
        """Parts even and odd (if periodic), each with places of cells and (m, eigenvalues, functions at cells)."""
        if t not in self.solved:
            self.solved[t] = [self._half(CUT / t, odd) for odd in ((False, True) if self.periodic else (False,))]
        return self.solved[t]

    def _half(self, top, odd):
        n = self.cells
        h = (self.length / 2 if self.periodic else self.length) / n
        middle, ends = (np.arange(n) + 0.5) * h, np.arange(n + 1) * h
        weight, flux = self.rho(middle) ** self.power, self.rho(ends) ** self.power
        inner = flux.copy()
        inner[[0, -1]] = 2 * flux[[0, -1]] if odd else 0.0
        waves = []
        for m in range(10_000):
            turn = m * m if self.power == 1 else m * (m + 1)
            diagonal = (inner[:-1] + inner[1:]) / h**2 / weight + turn / self.rho(middle) ** 2
            off = -flux[1:-1] / h**2 / np.sqrt(weight[:-1] * weight[1:])
            values, vectors = eigh_tridiagonal(diagonal, off, select="v", select_range=(-1.0, top))
            if not len(values):
                break
            scale = np.sqrt(weight * h * (2 if self.periodic else 1))
            waves.append((m, values, vectors / scale[:, None]))
        return middle, waves, odd

    def kernel(self, s, cosines, t):
        """Kernel between rows; ``cosines`` of the angles between them."""
        total, angle = np.zeros((len(s), len(s))), np.arccos(np.clip(cosines, -1, 1))
        for middle, waves, odd in self.waves(t):
            place, sign = s, np.ones(len(s))
            if self.periodic:
                back = s > self.length / 2
                place, sign = np.where(back, self.length - s, s), np.where(back & odd, -1.0, 1.0)
            legendre = np.ones_like(cosines), cosines
            for m, values, vectors in waves:
                if odd:  # falls to zero at the ends of the half
                    middle_, vectors = np.r_[0, middle, self.length / 2], np.pad(vectors, ((1, 1), (0, 0)))
                else:
                    middle_ = middle
                at = np.column_stack([np.interp(place, middle_, v) for v in vectors.T]) * sign[:, None]
                radial = (at * np.exp(-values * t)) @ at.T
                if self.power == 1:
                    total += radial * np.cos(m * angle) * ((1 if m == 0 else 2) / TAU)
                else:
                    total += radial * legendre[min(m, 1)] * (2 * m + 1) / (4 * np.pi)
                    if m >= 1:
                        legendre = legendre[1], ((2 * m + 1) * cosines * legendre[1] - m * legendre[0]) / (m + 1)
        return total


def revolved(name, t, rho, z, length, *, periodic=False):
    """A surface of revolution with radius rho(s) and height z(s), s its arc length."""
    solver = Revolution(rho, length, periodic)
    grid = np.linspace(0, length, 20_001)
    mass = np.concatenate([[0], np.cumsum((rho(grid[1:]) + rho(grid[:-1])) / 2)])

    def draw(n, rng):
        return columns(np.interp(rng.random(n) * mass[-1], mass, grid), TAU * rng.random(n))

    def embed(u):
        return columns(rho(u[:, 0]) * np.cos(u[:, 1]), rho(u[:, 0]) * np.sin(u[:, 1]), z(u[:, 0]))

    def kernel(u, t):
        return solver.kernel(u[:, 0], np.cos(u[:, 1][:, None] - u[:, 1]), t)

    return Known(name, 2, t, draw, embed, kernel)


def spheroid(name, t, a, c):
    """An ellipsoid of revolution."""
    return revolved(name, t, *by_arc(lambda p: (a * np.sin(p), -c * np.cos(p)), np.pi))


def cylinder(name, t, height):
    """A cylinder of radius 1."""
    return revolved(name, t, np.ones_like, lambda s: s, height)


def ring_torus(name, t, tube):
    """A torus whose tube has this radius, around the unit circle."""
    profile = lambda s: 1 + tube * np.cos(s / tube), lambda s: tube * np.sin(s / tube)
    return revolved(name, t, *profile, TAU * tube, periodic=True)


def ball(t):
    """The solid unit ball."""
    solver = Revolution(lambda s: s, 1.0, power=2)

    def draw(n, rng):
        return Sphere().sample(n, seed=rng) * rng.random((n, 1)) ** (1 / 3)

    def kernel(u, t):
        r = np.linalg.norm(u, axis=1)
        return solver.kernel(r, np.clip((u / r[:, None]) @ (u / r[:, None]).T, -1, 1), t)

    return Known("solid ball", 3, t, draw, lambda u: u, kernel)


def box(name, t, sides, embed=lambda u: u):
    """A box with reflecting sides."""
    sides = np.array(sides, float)

    def kernel(u, t):
        return np.prod([interval_kernel(x, x, side, t) for x, side in zip(u.T, sides, strict=True)], axis=0)

    return Known(name, len(sides), t, lambda n, rng: rng.random((n, len(sides))) * sides, embed, kernel)


def clifford(name, t, radii):
    """Product of circles."""
    radii = np.array(radii, float)

    def embed(u):
        return np.hstack([r * columns(np.cos(a / r), np.sin(a / r)) for r, a in zip(radii, u.T, strict=True)])

    def kernel(u, t):
        return np.prod([circle_kernel(a, a, TAU * r, t) for r, a in zip(radii, u.T, strict=True)], axis=0)

    return Known(name, len(radii), t, lambda n, rng: rng.random((n, len(radii))) * TAU * radii, embed, kernel)


def twisted(name, t, half, across):
    """A flat strip with coordinates (s, b), where (s, b + 2 pi) is (-s, b): a Klein bottle or a Möbius strip.

    It is the surface (cos a e^ib, 2 sin a e^(ib/2), sqrt(3) cos a) in R^5, with s = 2 a, |s| <= half.
    """

    def embed(u):
        a, b = u[:, 0] / 2, u[:, 1]
        turned = 2 * np.sin(a) * np.cos(b / 2), 2 * np.sin(a) * np.sin(b / 2)
        return columns(np.cos(a) * np.cos(b), np.cos(a) * np.sin(b), *turned, np.sqrt(3) * np.cos(a))

    def kernel(u, t):
        s, b = u.T
        return sum(
            across(s + half, half + sign * s, 2 * half, t) * circle_kernel(b, b + shift, 2 * TAU, t)
            for sign, shift in ((1, 0), (-1, TAU))
        )

    return Known(
        name, 2, t, lambda n, rng: columns(2 * half * (rng.random(n) - 0.5), TAU * rng.random(n)), embed, kernel
    )


def sphere(dim, t):
    """A sphere."""
    space = Sphere(dim)

    def kernel(u, t):
        return space.heat_kernel(u, u, t)

    return Known(f"S^{dim}", dim, t, lambda n, rng: space.sample(n, seed=rng), lambda u: u, kernel)


def sphere_times_circle(t):
    """The product of a sphere and a circle."""
    space = Sphere()
    return Known(
        "S^2 x S^1", 3, t, lambda n, rng: np.hstack([space.sample(n, seed=rng), TAU * rng.random((n, 1))]),
        lambda u: np.hstack([u[:, :3], columns(np.cos(u[:, 3]), np.sin(u[:, 3]))]),
        lambda u, t: space.heat_kernel(u[:, :3], u[:, :3], t) * circle_kernel(u[:, 3], u[:, 3], TAU, t),
    )  # fmt: skip


def octant(t):
    """An octant of the sphere, by reflections."""
    space = Sphere()

    def kernel(u, t):
        return sum(space.heat_kernel(u, u * signs, t) for signs in product((1, -1), repeat=3))

    return Known("octant", 2, t, lambda n, rng: np.abs(space.sample(n, seed=rng)), lambda u: u, kernel)


def triangle(t):
    """Equilateral triangle of side 1, by reflections of the plane."""

    def draw(n, rng):
        a = rng.random((n, 2))
        return np.where(a.sum(1, keepdims=True) > 1, 1 - a, a) @ np.array([[1, 0], [0.5, np.sqrt(0.75)]])

    def kernel(u, t):
        turns = [np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in TAU * np.arange(3) / 3]
        images = [u @ r.T for r in turns] + [(u * [1, -1]) @ r.T for r in turns]
        # The group of the triangle: dihedral around the corner 0, and the lattice of (3/2, sqrt(3)/2), (0, sqrt 3).
        reach = int(3 + 6 * np.sqrt(t))
        total = np.zeros((len(u), len(u)))
        for i, j in product(range(-reach, reach + 1), repeat=2):
            shift = i * np.array([1.5, np.sqrt(0.75)]) + j * np.array([0, np.sqrt(3)])
            for y in images:
                total += np.exp(-((u[:, None] - y - shift) ** 2).sum(2) / (4 * t))
        return total / (4 * np.pi * t)

    return Known("triangle", 2, t, draw, lambda u: u, kernel)


def bent(name, t, profile, high):
    """A rectangle bent along a profile: coordinates x(s) and y(s) of the arc length, and the length."""
    x, y, length = profile
    return box(name, t, (length, high), lambda u: columns(x(u[:, 0]), y(u[:, 0]), u[:, 1]))


def roll(gap, t, length=6.0, height=2.0):
    """A rectangle rolled up along a spiral whose turns are a gap apart."""
    start = 1.5 * np.pi

    def spiral(p):
        return gap / TAU * (start + p) * np.cos(start + p), gap / TAU * (start + p) * np.sin(start + p)

    return bent(f"roll, gap {gap:g}", t, (*by_arc(spiral, 60 - start, 400_001)[:2], length), height)


def layers(gap, t):
    """Two parallel unit squares."""

    def kernel(u, t):
        K = interval_kernel(u[:, 0], u[:, 0], 1, t) * interval_kernel(u[:, 1], u[:, 1], 1, t)
        return K * (u[:, 2][:, None] == u[:, 2])

    def draw(n, rng):
        return columns(rng.random((n, 2)), gap * rng.integers(0, 2, n))

    return Known(f"two layers, gap {gap:g}", 2, t, draw, lambda u: u, kernel)


CURVES = [
    curve("circle", 0.05, lambda a: (np.cos(a), np.sin(a))),
    curve("ellipse 2:1", 0.05, lambda a: (2 * np.cos(a), np.sin(a))),
    curve("trefoil", 0.1, lambda a: (np.sin(a) + 2 * np.sin(2 * a), np.cos(a) - 2 * np.cos(2 * a), -np.sin(3 * a))),
    curve("flower", 0.02, lambda a: ((1 + 0.3 * np.cos(5 * a)) * np.cos(a), (1 + 0.3 * np.cos(5 * a)) * np.sin(a))),
]
OPEN_CURVES = [
    curve("helix", 0.1, lambda a: (np.cos(a), np.sin(a), 0.15 * a), closed=False, end=2 * TAU),
    curve("arc", 0.05, lambda a: (np.cos(a), np.sin(a)), closed=False, end=4.0),
]
CLOSED = [
    sphere(2, 0.05),
    sphere(2, 0.02),
    clifford("flat torus", 0.03, (1.0, 0.5)),
    twisted("Klein bottle", 0.05, TAU, circle_kernel),
    spheroid("prolate 1:2", 0.05, 1.0, 2.0),
    spheroid("oblate 1:.5", 0.05, 1.0, 0.5),
    ring_torus("ring torus", 0.05, 0.4),
    ring_torus("ring torus", 0.2, 0.4),
]
EDGED = [
    box("square", 0.01, (1, 1)),
    box("strip 2 x .4", 0.02, (2, 0.4)),
    revolved("disc", 0.02, lambda s: s, np.zeros_like, 1.0),
    revolved("annulus", 0.02, lambda s: 0.4 + s, np.zeros_like, 0.6),
    triangle(0.005),
    octant(0.02),
    revolved("cap", 0.03, np.sin, lambda s: -np.cos(s), 1.2),
    cylinder("cylinder", 0.05, 2.0),
    revolved("cone frustum", 0.03, lambda s: 0.3 + 0.5 * s, lambda s: s * np.sqrt(0.75), 1.5),
    revolved("wavy cylinder", 0.03, *by_arc(lambda p: (1 + 0.2 * np.cos(3 * p), p), 2.0)),
    revolved("bowl", 0.03, *by_arc(lambda p: (p, 0.7 * p**2), 1.0)),
    revolved("catenoid", 0.05, lambda s: np.hypot(1, s - 1), lambda s: np.arcsinh(s - 1), 2.0),
    twisted("Möbius strip", 0.03, 0.6, interval_kernel),
    bent("corrugated sheet", 0.02, by_arc(lambda p: (p, 0.2 * np.sin(4 * p)), 3.0), 1.5),
]
SOLIDS = [sphere(3, 0.1), clifford("3-torus", 0.25, (1, 1, 1)), sphere_times_circle(0.15)]
SOLIDS_EDGED = [box("cube", 0.02, (1, 1, 1)), ball(0.05)]
LAYERED = [roll(0.9, 0.03, 8.0), roll(0.245, 0.03), layers(0.141, 0.01)]
THIN = [
    box("strip 2 x .1", 0.02, (2, 0.1)),
    cylinder("cylinder, height .1", 0.05, 0.1),
    cylinder("cylinder, height .3", 0.05, 0.3),
    ring_torus("thin torus", 0.05, 0.1),
    box("box 10 x 200", 30.0, (10, 200)),
    box("plate 1 x 1 x .1", 0.05, (1, 1, 0.1)),
]
_ALL = [*CURVES, *OPEN_CURVES, *CLOSED, *EDGED, *SOLIDS, *SOLIDS_EDGED, *LAYERED, *THIN]
SPACES = {space.name: space for space in reversed(_ALL)}  # of two times of a space, the first
