"""Spaces whose heat kernel is known: in closed form, or from many more nodes than the fit has."""

import abc
import functools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial import ConvexHull, Delaunay

from manifoldrf import Ellipsoid, FlatTorus, GraphOptions, MobiusStrip, Sphere, Torus, TriangleMesh, heat_graph

FINE = 24_000  # nodes of a reference
FINE_STEPS = 48  # in a reference; half of them are used to remove the first order of what is left


@dataclass(frozen=True)
class Given:
    """What is fitted: a space, and options of its graph."""

    space: Any
    graph: GraphOptions | None = None


class AbstractKnown(abc.ABC):
    """A space with random points and the exact heat kernel."""

    dim: int
    volume: float
    widest: float  # heat times above are of no interest: the kernel is nearly constant

    @abc.abstractmethod
    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Random points, uniform in volume."""

    @abc.abstractmethod
    def kernel(self, X: np.ndarray, t: float) -> np.ndarray:
        """Exact kernel between points."""

    def places(self, n: int, t: float, rng: np.random.Generator) -> np.ndarray:
        """New points, where the kernel is known."""
        del t
        return self.sample(n, rng)


@dataclass(frozen=True)
class AbstractOnManifold(AbstractKnown):
    """A manifold of the library, which knows all but perhaps its kernel."""

    manifold: Any

    @property
    def dim(self) -> int:
        """Dimension."""
        return self.manifold.dim

    @property
    def volume(self) -> float:
        """Volume."""
        return self.manifold.volume

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Random points."""
        return self.manifold.sample(n, seed=rng)


@dataclass(frozen=True)
class Named(AbstractOnManifold):
    """A manifold with a closed form."""

    widest: float = 0.2

    def kernel(self, X: np.ndarray, t: float) -> np.ndarray:
        """The closed form."""
        return self.manifold.heat_kernel(X, X, t)


@dataclass(frozen=True)
class Ball(AbstractOnManifold):
    """A ball in a space without end; the kernel of the whole space is known away from the rim."""

    widest: float

    def kernel(self, X: np.ndarray, t: float) -> np.ndarray:
        """The closed form of the whole space."""
        return self.manifold.heat_kernel(X, X, t)

    def places(self, n: int, t: float, rng: np.random.Generator) -> np.ndarray:
        """Points from which heat reaches the rim and comes back with a share of e^-9."""
        inner = self.manifold.ball(self.manifold.radius - 3.0 * np.sqrt(t))
        return inner.sample(n, seed=rng)


@dataclass(frozen=True)
class Clifford(AbstractKnown):
    """The flat torus of two circles of radius 1 and ``minor``, embedded in R^4."""

    minor: float = 0.5
    dim: int = 2
    widest: float = 0.1

    @property
    def volume(self) -> float:
        """Area."""
        return 4 * np.pi**2 * self.minor

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Random points."""
        return self.at(2 * np.pi * rng.random((n, 2)))

    def at(self, angles: np.ndarray) -> np.ndarray:
        """Points with given angles."""
        circles = [
            radius * np.column_stack([np.cos(a), np.sin(a)])
            for radius, a in zip((1.0, self.minor), angles.T, strict=True)
        ]
        return np.hstack(circles)

    def kernel(self, X: np.ndarray, t: float) -> np.ndarray:
        """Product of the kernels of two circles."""
        first, second = (Sphere(dim=1, radius=radius) for radius in (1.0, self.minor))
        return first.heat_kernel(X[:, :2], X[:, :2], t) * second.heat_kernel(X[:, 2:], X[:, 2:], t)


def reflected(X: np.ndarray, length: float, t: float) -> np.ndarray:
    """Heat kernel of an interval [0, length] with reflecting ends, between numbers."""
    line, x = FlatTorus(dim=1, side=2.0 * length), X[:, None]
    return line.heat_kernel(x, x, t) + line.heat_kernel(x, -x, t)


@dataclass(frozen=True)
class Rectangle(AbstractKnown):
    """The rectangle [0, 1] x [0, height] with reflecting sides; the third coordinate is zero."""

    height: float = 1.0
    dim: int = 2
    widest: float = 0.05

    @property
    def volume(self) -> float:
        """Area."""
        return self.height

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Random points."""
        return np.column_stack([rng.random(n), self.height * rng.random(n), np.zeros(n)])

    def kernel(self, X: np.ndarray, t: float) -> np.ndarray:
        """Product of two intervals."""
        return reflected(X[:, 0], 1.0, t) * reflected(X[:, 1], self.height, t)


@dataclass(frozen=True)
class Cylinder(AbstractKnown):
    """The cylinder of radius 1 with reflecting ends."""

    height: float = 1.0
    dim: int = 2
    widest: float = 0.08

    @property
    def volume(self) -> float:
        """Area."""
        return 2 * np.pi * self.height

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Random points."""
        turn = 2 * np.pi * rng.random(n)
        return np.column_stack([np.cos(turn), np.sin(turn), self.height * rng.random(n)])

    def grid(self, n: int) -> np.ndarray:
        """Even points, both ends included."""
        rows = max(2, round(np.sqrt(n * self.height / (2 * np.pi))))
        turn, along = np.meshgrid(
            2 * np.pi * np.arange(n // rows) / (n // rows), np.linspace(0, self.height, rows), indexing="ij"
        )
        return np.column_stack([np.cos(turn.ravel()), np.sin(turn.ravel()), along.ravel()])

    def kernel(self, X: np.ndarray, t: float) -> np.ndarray:
        """Circle times interval."""
        circle = Sphere(dim=1)
        return circle.heat_kernel(X[:, :2], X[:, :2], t) * reflected(X[:, 2], self.height, t)


@dataclass(frozen=True)
class Fine(AbstractOnManifold):
    """A surface without a closed form: its kernel comes from a heat graph of many even nodes with known weights."""

    widest: float = 0.08

    def kernel(self, X: np.ndarray, t: float) -> np.ndarray:
        """Two numbers of steps, extrapolated: the error of a step is of the first order in its time."""
        n = int(np.clip(FINE_STEPS * 6.0 * self.volume / (4 * np.pi * t), 4000, FINE))
        steps = 2 * max(2, round(min(FINE_STEPS, 4 * np.pi * t * n / (5.0 * self.volume)) / 2))
        half = 2 * max(1, round(steps / 4))
        nodes, weights = self.manifold.grid(n), self.manifold.grid_weights(n)
        many, few = (reference(nodes, weights, t, k, X) for k in (steps, half))
        return many + (many - few) / (steps / half - 1)


def reference(nodes: np.ndarray, weights: np.ndarray, t: float, steps: int, X: np.ndarray) -> np.ndarray:
    """Kernel between points of the heat graph on these nodes: all signatures, no anchors."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        graph = heat_graph(nodes, t, n_steps=steps, weights=weights, dim=2)
    rows = graph.extend(X)
    step = sparse.diags_array(1 / np.asarray(rows.sum(axis=1)).ravel()) @ rows
    half = (step @ sparse.diags_array(graph.weights**-0.5)).T.toarray()
    for _ in range(steps // 2 - 1):
        half = graph.operator @ half
    return half.T @ half


def hull_mesh(points: np.ndarray) -> TriangleMesh:
    """Points of a convex surface as a mesh."""
    return TriangleMesh(points, ConvexHull(points).simplices)


def rectangle_mesh(points: np.ndarray, top: float) -> TriangleMesh:
    """Points of a rectangle as a mesh, with its corners and points along its sides."""
    n = max(2, round(np.sqrt(len(points))))
    s = np.linspace(0, 1, n)
    sides = [(s, 0 * s), (s, top + 0 * s), (0 * s[1:-1], top * s[1:-1]), (1 + 0 * s[1:-1], top * s[1:-1])]
    rim = np.vstack([np.column_stack([x, y, 0 * x]) for x, y in sides])
    inside = np.vstack([points, rim])
    return TriangleMesh(inside, Delaunay(inside[:, :2]).simplices)


@functools.cache
def surfaces() -> dict[str, Fine]:
    """Surfaces with a reference of many nodes."""
    return {
        "ellipsoid": Fine(Ellipsoid()),
        "torus": Fine(Torus()),
        "Möbius strip": Fine(MobiusStrip(), widest=0.02),
    }
