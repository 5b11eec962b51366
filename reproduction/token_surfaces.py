"""Four surfaces with tokens on them, and signals that are diffused along the surface.

On the plain Mobius strip, distances in space and along the surface are nearly equal. On the other three, the
distance between sheets of the surface is smaller than the distance between tokens with known values.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import robust_laplacian
from scipy import sparse
from scipy.sparse.linalg import splu

from manifoldrf import TriangleMesh
from reproduction.common import FloatArray, IntArray

HALF_WIDTH = 0.4  # of the Mobius strip, whose central circle has radius 1
PUSH = 0.1  # of its two-sided cover along the normal: the sheet passes itself at twice this distance
ROLL_GAP, ROLL_START, ROLL_TURNS = 0.2, 0.15, 2  # of the swiss roll: from sheet to sheet, inner radius, turns
FOLD_GAP, FOLD_LENGTH, FOLD_SHEETS = 0.15, 0.75, 6  # of the accordion: from sheet to sheet, flat part of a sheet

HEAT_TIME = 0.3**2 / 2  # of the signals: a source becomes a spot of standard deviation .3
HEAT_STEPS = 8  # implicit Euler steps to that time

_DIFFERENCE = 1e-5  # of unit parameters, for derivatives by central differences: errors of about 1e-10
_NEWTON_STEPS = 6  # from a start that is off by a few per cent; the fourth has no effect

# Unit parameters (n, 2) in [0, 1]^2 -> points (n, 3).
Embedding = Callable[[FloatArray], FloatArray]


def strip(units: FloatArray, turns: int, push: float, half_width: float = HALF_WIDTH) -> FloatArray:
    """The Mobius strip, ``turns`` times around and pushed along its normal."""
    u, v = 2.0 * np.pi * turns * units[:, 0], half_width * (2.0 * units[:, 1] - 1.0)
    rho, cosine, sine = 1.0 + v * np.cos(u / 2), np.cos(u / 2), np.sin(u / 2)
    # In the frame (radial, along the circle, z) the normal is (rho sin(u/2), v/2, -rho cos(u/2)), to be scaled.
    shift = push / np.hypot(rho, v / 2)
    radial, along, height = rho * (1.0 + shift * sine), shift * v / 2, v * sine - shift * rho * cosine
    x, y = radial * np.cos(u) - along * np.sin(u), radial * np.sin(u) + along * np.cos(u)
    return np.stack([x, y, height], axis=1)


def _roll(units: FloatArray) -> FloatArray:
    """The swiss roll r = start + gap angle / (2 pi), of width 1; the first parameter is a share of the length."""
    slope = ROLL_GAP / (2.0 * np.pi)
    ends = _spiral_length(np.array([ROLL_START, ROLL_START + ROLL_GAP * ROLL_TURNS]), slope)
    wanted = ends[0] + units[:, 0] * (ends[1] - ends[0])
    radius = np.sqrt(2.0 * slope * wanted)  # the length is about r^2 / (2 slope)
    for _ in range(_NEWTON_STEPS):
        radius = radius - (_spiral_length(radius, slope) - wanted) * slope / np.hypot(radius, slope)
    angle = (radius - ROLL_START) / slope
    return np.stack([units[:, 1], radius * np.cos(angle), radius * np.sin(angle)], axis=1)


def _spiral_length(radius: FloatArray, slope: float) -> FloatArray:
    """Length of the spiral r = slope * angle from its centre to a radius."""
    ratio = radius / slope
    return np.asarray(slope / 2 * (ratio * np.hypot(1.0, ratio) + np.arcsinh(ratio)))


def _accordion(units: FloatArray) -> FloatArray:
    """Flat sheets joined by half circles, of width 1; the first parameter is a share of the length."""
    bend = np.pi * FOLD_GAP / 2
    length = FOLD_SHEETS * FOLD_LENGTH + (FOLD_SHEETS - 1) * bend
    along = units[:, 0] * length
    sheet = np.minimum(np.floor(along / (FOLD_LENGTH + bend)), FOLD_SHEETS - 1)
    rest = along - sheet * (FOLD_LENGTH + bend)  # from the beginning of the sheet
    angle = np.maximum(rest - FOLD_LENGTH, 0.0) / (FOLD_GAP / 2)  # along the half circle, 0 on the sheet
    out = np.minimum(rest, FOLD_LENGTH) + FOLD_GAP / 2 * np.sin(angle)
    side = np.where(sheet % 2 == 0, out, FOLD_LENGTH - out)  # every other sheet runs backwards
    height = sheet * FOLD_GAP + FOLD_GAP / 2 * (1.0 - np.cos(angle))
    return np.stack([units[:, 1], side, height], axis=1)


def _pairs(u: FloatArray, v: FloatArray) -> FloatArray:
    """All pairs (u_i, v_j), v running fastest."""
    return np.stack([np.repeat(u, v.size), np.tile(v, u.size)], axis=1)


@dataclass(frozen=True, eq=False)
class TokenSurface:
    """A surface over the unit square, with a fine grid on it.

    Attributes
    ----------
    name : str
    embed : callable
    grid : (int, int)
        Vertices along both parameters; cells are about .02 wide.
    seam : {"open", "closed", "flipped"}
        What the end of the first parameter is joined to: nothing, its beginning, or its beginning with the other
        parameter reversed.

    Examples
    --------
    >>> import numpy as np
    >>> from reproduction.token_surfaces import SURFACES
    >>> round(SURFACES["swiss"].area, 2), SURFACES["swiss"].sample(5, np.random.default_rng(0)).points.shape
    (4.42, (5, 3))
    """

    name: str
    embed: Embedding
    grid: tuple[int, int]
    seam: str

    @property
    def _steps(self) -> tuple[int, int]:
        """Number of cells along both parameters."""
        columns, rows = self.grid
        return columns - (self.seam == "open"), rows - 1

    def vertex(self, column: IntArray, row: IntArray) -> IntArray:
        """Indices of the vertices at positions of the grid; the column after the last is the seam."""
        columns, rows = self.grid
        if self.seam == "flipped":
            row = np.where(column == columns, rows - 1 - row, row)
        return (column % columns) * rows + row

    @cached_property
    def mesh(self) -> TriangleMesh:
        """The grid as triangles, two per cell."""
        units = _pairs(np.arange(self.grid[0]) / self._steps[0], np.arange(self.grid[1]) / self._steps[1])
        column, row = (axis.ravel() for axis in np.meshgrid(*map(np.arange, self._steps), indexing="ij"))
        a, b = self.vertex(column, row), self.vertex(column + 1, row)
        c, d = self.vertex(column + 1, row + 1), self.vertex(column, row + 1)
        faces = np.concatenate([np.stack([a, b, c], axis=1), np.stack([a, c, d], axis=1)])
        return TriangleMesh(self.embed(units), faces)

    def element(self, units: FloatArray) -> FloatArray:
        """Area per unit of both parameters, shape (n,)."""
        first, second = (
            (self.embed(units + step) - self.embed(units - step)) / (2 * _DIFFERENCE)
            for step in _DIFFERENCE * np.eye(2)
        )
        return np.asarray(np.linalg.norm(np.cross(first, second), axis=1))

    @cached_property
    def _cell_elements(self) -> FloatArray:
        """The area element in the middle of every cell."""
        columns, rows = self._steps
        return self.element(_pairs((np.arange(columns) + 0.5) / columns, (np.arange(rows) + 0.5) / rows))

    @property
    def area(self) -> float:
        """Area, by the midpoint rule on the cells."""
        return float(self._cell_elements.mean())

    def sample(self, n: int, rng: np.random.Generator) -> "Tokens":
        """Tokens that are uniform by area."""
        bound = 1.05 * float(self._cell_elements.max())  # the area element changes by less than 2 % within a cell
        units = np.zeros((0, 2))
        while len(units) < n:  # rejection
            proposed = rng.random((2 * n, 2))
            units = np.vstack([units, proposed[bound * rng.random(2 * n) < self.element(proposed)]])[:n]
        return Tokens(units, self.embed(units), self.bilinear(units))

    def bilinear(self, units: FloatArray) -> Any:
        """Weights of the vertices at the corners of the cell that holds each token, CSR (n, n_vertices)."""
        steps = np.array(self._steps)
        cell = np.minimum(np.floor(units * steps), steps - 1).astype(np.int64)  # (n, 2)
        share = units * steps - cell
        entries, columns = [], []
        for right in (0, 1):
            for up in (0, 1):
                factor = np.where([right, up], share, 1.0 - share)  # (n, 2)
                entries.append(factor.prod(axis=1))
                columns.append(self.vertex(cell[:, 0] + right, cell[:, 1] + up))
        rows = np.tile(np.arange(len(units)), 4)
        places = (rows, np.concatenate(columns))
        shape = (len(units), self.grid[0] * self.grid[1])
        return sparse.coo_array((np.concatenate(entries), places), shape=shape).tocsr()

    @cached_property
    def _heat_step(self) -> tuple[Any, FloatArray]:
        """Factors of M + dt L for the robust intrinsic-Delaunay Laplacian L, and the masses (n_vertices,)."""
        laplacian, mass = robust_laplacian.mesh_laplacian(self.mesh.vertices, self.mesh.faces)
        return splu((mass + HEAT_TIME / HEAT_STEPS * laplacian).tocsc()), mass.diagonal()

    @property
    def masses(self) -> FloatArray:
        """Area that belongs to each vertex of the grid, shape (n_vertices,)."""
        return self._heat_step[1]

    def diffuse(self, heat: FloatArray) -> FloatArray:
        """Spread amounts of heat at the vertices (n_vertices, c) along the surface; the result is per area."""
        solver, mass = self._heat_step
        density = heat / mass[:, None]
        for _ in range(HEAT_STEPS):
            density = solver.solve(mass[:, None] * density)
        return np.asarray(density)

    def draw_sources(self, counts: Iterable[int], rng: np.random.Generator) -> FloatArray:
        """Amounts of heat at the vertices, one column for each number of signed sources +-U(.5, 1.5)."""
        columns = []
        for count in counts:
            amounts = rng.choice([-1.0, 1.0], count) * rng.uniform(0.5, 1.5, count)
            columns.append(self.sample(count, rng).corners.T @ amounts)
        return np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokens on a surface.

    Attributes
    ----------
    units : array of shape (n, 2)
        Parameters in [0, 1].
    points : array of shape (n, 3)
    corners : CSR array of shape (n, n_vertices)
        Bilinear weights of the vertices of the grid; rows sum to 1.
    """

    units: FloatArray
    points: FloatArray
    corners: Any

    def read(self, density: FloatArray) -> FloatArray:
        """Values of fields on the grid at the tokens, each scaled to variance 1 there, shape (n, c)."""
        values = np.asarray(self.corners @ density)
        return np.asarray(values / values.std(axis=0))


SURFACES: Mapping[str, TokenSurface] = {
    surface.name: surface
    for surface in (
        TokenSurface("mobius", functools.partial(strip, turns=1, push=0.0), (320, 41), "flipped"),
        TokenSurface("mobius2", functools.partial(strip, turns=2, push=PUSH), (704, 41), "closed"),
        TokenSurface("swiss", _roll, (260, 57), "open"),
        TokenSurface("folded", _accordion, (320, 57), "open"),
    )
}
TOUCHING = ("mobius2", "swiss", "folded")  # where sheets pass each other closely
