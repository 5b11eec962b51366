"""Spaces whose heat kernel is known: in closed form, or by separation of variables to about six digits.

Each space draws intrinsic coordinates u, embeds them as points, and has its kernel between coordinates, so no
inverse of the embedding is needed. Sides reflect heat (Neumann).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.linalg import eigh_tridiagonal

from manifoldrf import Sphere

TAU = 2 * np.pi
CUT = 40.0  # waves that decay below exp(-40) do not count


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
    """A space.

    Attributes
    ----------
    name : str
    dim : int
    t : float
        Heat time.
    draw : callable (n, rng) -> u
        Uniform in volume.
    embed : callable u -> X
    kernel : callable (u, t) -> K
    height : callable u -> numbers
        Along which an uneven density varies; the first coordinate of the points by default.
    """

    name: str
    dim: int
    t: float
    draw: Callable[..., Any]
    embed: Callable[..., Any]
    kernel: Callable[..., Any]
    edge: bool = False
    height: Callable[..., Any] | None = None

    def uneven(self, n, ratio, rng):
        """Coordinates whose density varies by a factor, exponentially along the height."""
        if ratio == 1:
            return self.draw(n, rng)
        kept = []
        while sum(map(len, kept)) < n:
            u = self.draw(4 * n, rng)
            h = self.embed(u)[:, 0] if self.height is None else self.height(u)
            h = (h - h.min()) / np.ptp(h)
            kept.append(u[rng.random(len(u)) < ratio ** (h - 1)])
        return np.concatenate(kept)[:n]


# --- curves ---------------------------------------------------------------------------------------------------


def curve(name, t, place, *, closed=True, end=TAU):
    """A curve place(angle), by its arc length."""
    angles = np.linspace(0, end, 200_001)
    points = place(angles)
    arc = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(points, axis=0), axis=1))])
    length = arc[-1]
    kernel = circle_kernel if closed else interval_kernel
    return Known(
        name,
        1,
        t,
        lambda n, rng: length * rng.random((n, 1)),
        lambda u: place(np.interp(u[:, 0], arc, angles)),
        lambda u, t: kernel(u[:, 0], u[:, 0], length, t),
        not closed,
    )


def columns(*parts):
    """Coordinates side by side."""
    return np.column_stack(parts)


# --- surfaces of revolution -------------------------------------------------------------------------------------


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
        """Pairs (m, eigenvalues, functions at cells) for all that count at time t."""
        if t not in self.solved:
            top, found = CUT / t, []
            halves = ("even", "odd") if self.periodic else ("even",)
            for half in halves:
                found.append(self._half(top, half))
            self.solved[t] = found
        return self.solved[t]

    def _half(self, top, half):
        n = self.cells
        length = self.length / 2 if self.periodic else self.length
        h = length / n
        middle, ends = (np.arange(n) + 0.5) * h, np.arange(n + 1) * h
        weight, flux = self.rho(middle) ** self.power, self.rho(ends) ** self.power
        inner = flux.copy()
        inner[[0, -1]] = 0.0 if half == "even" else 2 * flux[[0, -1]]
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
        return middle, waves, half

    def kernel(self, s, cosines, t):
        """Kernel between rows; ``cosines`` of the angles between them."""
        total = np.zeros((len(s), len(s)))
        if self.power == 1:
            angle = np.arccos(np.clip(cosines, -1, 1))
        for middle, waves, half in self.waves(t):
            place, sign = s, np.ones(len(s))
            if self.periodic:
                back = s > self.length / 2
                place = np.where(back, self.length - s, s)
                sign = np.where(back & (half == "odd"), -1.0, 1.0)
            legendre = np.ones_like(cosines), cosines
            for m, values, vectors in waves:
                at = np.column_stack([np.interp(place, middle, v) for v in vectors.T]) * sign[:, None]
                if half == "odd":  # falls to zero at the ends of the half
                    ends = np.concatenate([[0], middle, [self.length / 2]])
                    at = np.column_stack([np.interp(place, ends, np.concatenate([[0], v, [0]])) for v in vectors.T])
                    at *= sign[:, None]
                radial = (at * np.exp(-values * t)) @ at.T
                if self.power == 1:
                    total += radial * np.cos(m * angle) * ((1 if m == 0 else 2) / TAU)
                else:
                    p = legendre[0] if m == 0 else legendre[1]
                    total += radial * p * (2 * m + 1) / (4 * np.pi)
                    if m >= 1:
                        legendre = legendre[1], ((2 * m + 1) * cosines * legendre[1] - m * legendre[0]) / (m + 1)
        return total


def revolved(name, t, rho, z, length, *, periodic=False, edge=True, cells=3000):
    """A surface of revolution with radius rho(s) and height z(s), s its arc length."""
    solver = Revolution(rho, length, periodic, 1, cells)
    grid = np.linspace(0, length, 20_001)
    mass = np.concatenate([[0], np.cumsum((rho(grid[1:]) + rho(grid[:-1])) / 2)])

    def draw(n, rng):
        return columns(np.interp(rng.random(n) * mass[-1], mass, grid), TAU * rng.random(n))

    def embed(u):
        return columns(rho(u[:, 0]) * np.cos(u[:, 1]), rho(u[:, 0]) * np.sin(u[:, 1]), z(u[:, 0]))

    def kernel(u, t):
        return solver.kernel(u[:, 0], np.cos(u[:, 1][:, None] - u[:, 1]), t)

    return Known(name, 2, t, draw, embed, kernel, edge)


def by_arc(profile, end, n=100_001):
    """Rho and z as functions of the arc length of a profile (rho(p), z(p)), p in [0, end], and its length."""
    p = np.linspace(0, end, n)
    rho, z = profile(p)
    arc = np.concatenate([[0], np.cumsum(np.hypot(np.diff(rho), np.diff(z)))])
    return (lambda s: np.interp(s, arc, rho)), (lambda s: np.interp(s, arc, z)), arc[-1]


def spheroid(name, t, a, c):
    """An ellipsoid of revolution."""
    rho, z, length = by_arc(lambda p: (a * np.sin(p), -c * np.cos(p)), np.pi)
    return revolved(name, t, rho, z, length, edge=False)


# --- products and quotients ---------------------------------------------------------------------------------------


def box(name, t, sides, embed=None):
    """A box with reflecting sides."""
    sides = np.array(sides, float)

    def kernel(u, t):
        return np.prod([interval_kernel(u[:, k], u[:, k], s, t) for k, s in enumerate(sides)], axis=0)

    return Known(
        name,
        len(sides),
        t,
        lambda n, rng: rng.random((n, len(sides))) * sides,
        embed or (lambda u: u),
        kernel,
        edge=True,
    )


def clifford(name, t, radii):
    """Product of circles."""
    radii = np.array(radii, float)

    def embed(u):
        return np.hstack([r * columns(np.cos(a / r), np.sin(a / r)) for r, a in zip(radii, u.T, strict=True)])

    def kernel(u, t):
        return np.prod([circle_kernel(a, a, TAU * r, t) for r, a in zip(radii, u.T, strict=True)], axis=0)

    return Known(name, len(radii), t, lambda n, rng: rng.random((n, len(radii))) * TAU * radii, embed, kernel)


def _klein_point(u):
    """The flat surface (cos a e^ib, 2 sin a e^(ib/2), sqrt(3) cos a) in R^5, with s = 2 a."""
    a, b = u[:, 0] / 2, u[:, 1]
    return columns(
        np.cos(a) * np.cos(b),
        np.cos(a) * np.sin(b),
        2 * np.sin(a) * np.cos(b / 2),
        2 * np.sin(a) * np.sin(b / 2),
        np.sqrt(3) * np.cos(a),
    )


def klein(t):
    """Flat Klein bottle: (s, b + 2 pi) is (-s, b)."""
    length = 2 * TAU

    def kernel(u, t):
        s, b = u.T
        return circle_kernel(s, s, length, t) * circle_kernel(b, b, 2 * TAU, t) + circle_kernel(
            s, -s, length, t
        ) * circle_kernel(b, b + TAU, 2 * TAU, t)

    return Known(
        "Klein bottle",
        2,
        t,
        lambda n, rng: columns(length * (rng.random(n) - 0.5), TAU * rng.random(n)),
        _klein_point,
        kernel,
    )


def mobius(t, half):
    """Flat Möbius strip of the given half width."""

    def kernel(u, t):
        s, b = u.T
        s = s + half
        return interval_kernel(s, s, 2 * half, t) * circle_kernel(b, b, 2 * TAU, t) + interval_kernel(
            s, 2 * half - s, 2 * half, t
        ) * circle_kernel(b, b + TAU, 2 * TAU, t)

    return Known(
        "Möbius strip",
        2,
        t,
        lambda n, rng: columns(half * (2 * rng.random(n) - 1), TAU * rng.random(n)),
        _klein_point,
        kernel,
        edge=True,
    )


def sphere(dim, t, radius=1.0):
    """A sphere."""
    space = Sphere(dim, radius)
    return Known(
        f"S^{dim}",
        dim,
        t,
        lambda n, rng: space.sample(n, seed=rng),
        lambda u: u,
        lambda u, t: space.heat_kernel(u, u, t),
    )


def octant(t):
    """An octant of the sphere, by reflections."""
    space = Sphere()
    signs = np.array([[a, b, c] for a in (1, -1) for b in (1, -1) for c in (1, -1)])

    def kernel(u, t):
        return sum(space.heat_kernel(u, u * s, t) for s in signs)

    return Known("octant", 2, t, lambda n, rng: np.abs(space.sample(n, seed=rng)), lambda u: u, kernel, edge=True)


def triangle(t):
    """Equilateral triangle of side 1, by reflections of the plane."""
    corners = np.array([[0, 0], [1, 0], [0.5, np.sqrt(0.75)]])

    def draw(n, rng):
        a = rng.random((n, 2))
        a = np.where(a.sum(1, keepdims=True) > 1, 1 - a, a)
        return a @ (corners[1:] - corners[0])

    def kernel(u, t):
        turns = [np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in TAU * np.arange(3) / 3]
        images = [u @ r.T for r in turns] + [(u * [1, -1]) @ r.T for r in turns]
        # The group of the triangle: dihedral around the corner 0, and the lattice of (3/2, sqrt(3)/2), (0, sqrt 3).
        reach = int(3 + 6 * np.sqrt(t))
        total = np.zeros((len(u), len(u)))
        for i in range(-reach, reach + 1):
            for j in range(-reach, reach + 1):
                shift = i * np.array([1.5, np.sqrt(0.75)]) + j * np.array([0, np.sqrt(3)])
                for y in images:
                    d2 = ((u[:, None] - y - shift) ** 2).sum(2)
                    total += np.exp(-d2 / (4 * t))
        return total / (4 * np.pi * t)

    return Known("triangle", 2, t, draw, lambda u: u, kernel, edge=True)


def ball(t):
    """The solid unit ball."""
    solver = Revolution(lambda s: s, 1.0, power=2)

    def draw(n, rng):
        return Sphere().sample(n, seed=rng) * rng.random((n, 1)) ** (1 / 3)

    def kernel(u, t):
        r = np.linalg.norm(u, axis=1)
        return solver.kernel(r, np.clip((u / r[:, None]) @ (u / r[:, None]).T, -1, 1), t)

    return Known("solid ball", 3, t, draw, lambda u: u, kernel, edge=True)


def sphere_times_circle(t):
    """The product of a sphere and a circle."""
    space = Sphere()
    return Known(
        "S^2 x S^1",
        3,
        t,
        lambda n, rng: np.hstack([space.sample(n, seed=rng), TAU * rng.random((n, 1))]),
        lambda u: np.hstack([u[:, :3], columns(np.cos(u[:, 3]), np.sin(u[:, 3]))]),
        lambda u, t: space.heat_kernel(u[:, :3], u[:, :3], t) * circle_kernel(u[:, 3], u[:, 3], TAU, t),
    )


def roll(gap, t, length=6.0, height=2.0):
    """A rectangle rolled up along a spiral whose turns are a gap apart."""
    angles = np.linspace(1.5 * np.pi, 60, 400_001)
    arc = gap / (4 * np.pi) * (angles * np.sqrt(1 + angles**2) + np.arcsinh(angles))
    arc -= arc[0]

    def embed(u):
        a = np.interp(u[:, 0], arc, angles)
        r = gap * a / TAU
        return columns(r * np.cos(a), r * np.sin(a), u[:, 1])

    return box(f"roll, gap {gap:g}", t, (length, height), embed)


def layers(gap, t):
    """Two parallel unit squares."""

    def kernel(u, t):
        K = interval_kernel(u[:, 0], u[:, 0], 1, t) * interval_kernel(u[:, 1], u[:, 1], 1, t)
        return K * (u[:, 2][:, None] == u[:, 2])

    return Known(
        f"two layers, gap {gap:g}",
        2,
        t,
        lambda n, rng: columns(rng.random((n, 2)), gap * rng.integers(0, 2, n)),
        lambda u: u,
        kernel,
        edge=True,
    )


def corrugated(t, wide=3.0, amplitude=0.2, high=1.5):
    """A sheet bent to waves."""
    x = np.linspace(0, wide, 100_001)
    z = amplitude * np.sin(4 * x)
    arc = np.concatenate([[0], np.cumsum(np.hypot(np.diff(x), np.diff(z)))])

    def embed(u):
        p = np.interp(u[:, 0], arc, x)
        return columns(p, u[:, 1], amplitude * np.sin(4 * p))

    return box("corrugated sheet", t, (arc[-1], high), embed)


def ring_torus(name, t, tube):
    """A torus whose tube has this radius, around the unit circle."""
    return revolved(
        name,
        t,
        lambda s: 1 + tube * np.cos(s / tube),
        lambda s: tube * np.sin(s / tube),
        TAU * tube,
        periodic=True,
        edge=False,
    )


def cylinder(name, t, height):
    """A cylinder of radius 1."""
    return revolved(name, t, np.ones_like, lambda s: s, height)


_bowl = by_arc(lambda p: (p, 0.7 * p**2), 1.0)
CURVES = [
    curve("circle", 0.05, lambda a: columns(np.cos(a), np.sin(a))),
    curve("ellipse", 0.05, lambda a: columns(2 * np.cos(a), np.sin(a))),
    curve(
        "trefoil",
        0.1,
        lambda a: columns(np.sin(a) + 2 * np.sin(2 * a), np.cos(a) - 2 * np.cos(2 * a), -np.sin(3 * a)),
    ),
    curve("helix", 0.1, lambda a: columns(np.cos(a), np.sin(a), 0.15 * a), closed=False, end=2 * TAU),
]
CLOSED = [
    sphere(2, 0.05),
    clifford("flat torus", 0.03, (1.0, 0.5)),
    klein(0.05),
    spheroid("spheroid 1:2", 0.05, 1.0, 2.0),
    spheroid("spheroid 1:.5", 0.05, 1.0, 0.5),
    ring_torus("ring torus", 0.05, 0.4),
]
EDGED = [
    box("square", 0.01, (1, 1)),
    revolved("disc", 0.02, lambda s: s, np.zeros_like, 1.0),
    revolved("annulus", 0.02, lambda s: 0.4 + s, np.zeros_like, 0.6),
    triangle(0.005),
    octant(0.02),
    revolved("cap", 0.03, np.sin, lambda s: -np.cos(s), 1.2),
    cylinder("cylinder", 0.05, 2.0),
    revolved("cone frustum", 0.03, lambda s: 0.3 + 0.5 * s, lambda s: s * np.sqrt(0.75), 1.5),
    revolved("bowl", 0.03, *_bowl),
    revolved("catenoid", 0.05, lambda s: np.hypot(1, s - 1), lambda s: np.arcsinh(s - 1), 2.0),
    mobius(0.03, 0.6),
    corrugated(0.02),
]
SOLID = [
    sphere(3, 0.1),
    clifford("3-torus", 0.25, (1, 1, 1)),
    sphere_times_circle(0.15),
    box("cube", 0.02, (1, 1, 1)),
    ball(0.05),
]
LAYERED = [roll(0.9, 0.03, 8.0), roll(0.245, 0.03), layers(0.141, 0.01)]
THIN = [
    box("strip 2 x .1", 0.02, (2, 0.1)),
    cylinder("cylinder, height .1", 0.05, 0.1),
    cylinder("cylinder, height .3", 0.05, 0.3),
    ring_torus("thin torus", 0.05, 0.1),
    box("box 10 x 200", 30.0, (10, 200)),
    box("plate 1 x 1 x .1", 0.05, (1, 1, 0.1)),
]
SPACES = {space.name: space for space in [*CURVES, *CLOSED, *EDGED, *SOLID, *LAYERED, *THIN]}
