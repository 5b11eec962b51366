"""Spaces whose heat kernel is known: in closed form, or from many more nodes than the fit has."""

import abc
import functools
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree
from scipy.spatial.transform import Rotation

from manifoldrf import Ellipsoid, FlatTorus, MobiusStrip, Sphere, Torus, heat_graph

FINE = 24_000  # nodes of a reference
FINE_STEPS = 48  # in a reference; half of them are used to remove the first order of what is left
POOL = 8  # even points drawn for each uneven one; at least one in seven is kept
TAIL = 3.0  # degrees of freedom of noise with heavy tails: the fewest integer with a finite variance


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

    def position(self, X: np.ndarray) -> np.ndarray:
        """A number along the space, on which an uneven density depends: by default the first coordinate."""
        return X[:, 0]

    def sample_uneven(self, n: int, rng: np.random.Generator, ratio: float = 7.0) -> np.ndarray:
        """Random points whose density grows linearly with the position, from 1 to ``ratio``."""
        pool = self.sample(POOL * n, rng)
        position = self.position(pool)
        share = (position - position.min()) / np.ptp(position)
        return pool[rng.random(len(pool)) * ratio < 1 + (ratio - 1) * share][:n]

    def nearest(self, X: np.ndarray) -> np.ndarray:
        """Nearest points of the space."""
        raise NotImplementedError(f"nearest points of {self!r}")


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

    def nearest(self, X: np.ndarray) -> np.ndarray:
        """Nearest points of a sphere."""
        if not isinstance(self.manifold, Sphere):
            return super().nearest(X)
        return self.manifold.radius * _unit(X)


def _unit(X: np.ndarray) -> np.ndarray:
    """Rows of length 1."""
    return X / np.linalg.norm(X, axis=-1, keepdims=True)


@dataclass(frozen=True)
class Clifford(AbstractKnown):
    """The flat torus of circles of these radii, two coordinates each: a product without curvature of its own."""

    radii: tuple[float, ...] = (1.0, 0.5)
    widest: float = 0.1

    @property
    def dim(self) -> int:
        """Number of circles."""
        return len(self.radii)

    @property
    def volume(self) -> float:
        """Product of the lengths."""
        return float(np.prod(2 * np.pi * np.array(self.radii)))

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Random points."""
        angles = 2 * np.pi * rng.random((n, self.dim))
        return np.hstack(
            [r * np.column_stack([np.cos(a), np.sin(a)]) for r, a in zip(self.radii, angles.T, strict=True)]
        )

    def kernel(self, X: np.ndarray, t: float) -> np.ndarray:
        """Product of the kernels of the circles."""
        pairs = [X[:, 2 * k : 2 * k + 2] for k in range(self.dim)]
        return np.prod([Sphere(1, r).heat_kernel(x, x, t) for r, x in zip(self.radii, pairs, strict=True)], axis=0)

    def nearest(self, X: np.ndarray) -> np.ndarray:
        """Nearest points of each circle."""
        return (np.array(self.radii)[:, None] * _unit(X.reshape(len(X), -1, 2))).reshape(X.shape)


@dataclass(frozen=True)
class Rotations(AbstractKnown):
    """The rotations of space as 3 x 3 matrices, nine coordinates: half of a sphere S^3 of radius sqrt(8).

    A rotation by an angle a moves the matrix by sqrt(2) a, and its unit quaternion by a / 2.
    """

    dim: int = 3
    widest: float = 1.0
    _RADIUS = 8**0.5

    @property
    def volume(self) -> float:
        """Half of that of the sphere."""
        return Sphere(3, self._RADIUS).volume / 2

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Random rotations."""
        return Rotation.from_quat(rng.standard_normal((n, 4))).as_matrix().reshape(n, 9)

    def kernel(self, X: np.ndarray, t: float) -> np.ndarray:
        """That of the sphere, summed over the two quaternions of a rotation."""
        sphere = Sphere(3, self._RADIUS)
        q = self._RADIUS * Rotation.from_matrix(X.reshape(-1, 3, 3)).as_quat()
        return sphere.heat_kernel(q, q, t) + sphere.heat_kernel(q, -q, t)

    def nearest(self, X: np.ndarray) -> np.ndarray:
        """Orthogonal factors of determinant 1."""
        left, _, right = np.linalg.svd(X.reshape(-1, 3, 3))
        left[:, :, 2] *= np.linalg.det(left @ right)[:, None]
        return (left @ right).reshape(X.shape)


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

    def nearest(self, X: np.ndarray) -> np.ndarray:
        """Nearest points."""
        return np.clip(X, 0.0, [1.0, self.height, 0.0])


@dataclass(frozen=True)
class Layers(AbstractKnown):
    """Two parallel unit squares with reflecting sides; no heat passes from one to the other."""

    gap: float
    dim: int = 2
    volume: float = 2.0
    widest: float = 0.05

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Random points."""
        points = Rectangle().sample(n, rng)
        points[:, 2] = self.gap * rng.integers(0, 2, n)
        return points

    def kernel(self, X: np.ndarray, t: float) -> np.ndarray:
        """That of the square on each layer, and zero between them."""
        upper = X[:, 2] > self.gap / 2
        return Rectangle().kernel(X, t) * (upper[:, None] == upper)

    def nearest(self, X: np.ndarray) -> np.ndarray:
        """Nearest points of the nearer square."""
        flat = np.clip(X[:, :2], 0.0, 1.0)
        return np.column_stack([flat, self.gap * (X[:, 2] > self.gap / 2)])


@dataclass(frozen=True)
class Roll(AbstractKnown):
    """A rectangle with reflecting sides, rolled up along an Archimedean spiral; turns are a gap apart.

    Distances along the roll are those of the rectangle, so the heat kernel is that of the rectangle.
    """

    gap: float
    length: float = 6.0
    height: float = 2.0
    dim: int = 2
    widest: float = 0.2
    _FIRST = 1.5 * np.pi  # angle at the inner end
    _NEAR = 20_001  # places of the spiral among which the nearest is found

    @property
    def volume(self) -> float:
        """Area."""
        return self.length * self.height

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Random points."""
        return self.at(rng.random((n, 2)) * [self.length, self.height])

    def _arc(self, angle: np.ndarray) -> np.ndarray:
        """Length of the spiral r = gap angle / (2 pi) up to an angle."""
        return self.gap / (4 * np.pi) * (angle * np.sqrt(1 + angle**2) + np.arcsinh(angle))

    def at(self, flat: np.ndarray) -> np.ndarray:
        """Points of the roll from points of the rectangle."""
        arc = flat[:, 0] + self._arc(self._FIRST)
        angle = np.sqrt(4 * np.pi * arc / self.gap)  # too large, so Newton's method falls to the solution
        for _ in range(8):
            angle = angle - (self._arc(angle) - arc) / (self.gap / (2 * np.pi) * np.sqrt(1 + angle**2))
        radius = self.gap * angle / (2 * np.pi)
        return np.column_stack([radius * np.cos(angle), radius * np.sin(angle), flat[:, 1]])

    def flat(self, X: np.ndarray) -> np.ndarray:
        """Points of the rectangle from points of the roll."""
        angle = 2 * np.pi * np.hypot(X[:, 0], X[:, 1]) / self.gap
        return np.column_stack([self._arc(angle) - self._arc(self._FIRST), X[:, 2]])

    def position(self, X: np.ndarray) -> np.ndarray:
        """Distance along the roll from its inner end."""
        return self.flat(X)[:, 0]

    def kernel(self, X: np.ndarray, t: float) -> np.ndarray:
        """That of the rectangle."""
        flat = self.flat(X)
        return reflected(flat[:, 0], self.length, t) * reflected(flat[:, 1], self.height, t)

    def nearest(self, X: np.ndarray) -> np.ndarray:
        """Nearest points, to about 1e-4 along the roll."""
        along = np.linspace(0, self.length, self._NEAR)
        spiral = self.at(np.column_stack([along, 0 * along]))[:, :2]
        found = along[cKDTree(spiral).query(X[:, :2])[1]]
        return self.at(np.column_stack([found, np.clip(X[:, 2], 0, self.height)]))


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

    def nearest(self, X: np.ndarray) -> np.ndarray:
        """Nearest points."""
        return np.column_stack([_unit(X[:, :2]), np.clip(X[:, 2], 0, self.height)])


@dataclass(frozen=True, eq=False)
class Embedded(AbstractKnown):
    """A space turned into more coordinates; distances stay the same."""

    known: AbstractKnown
    axes: np.ndarray  # (D, d), orthonormal columns

    @classmethod
    def draw(cls, known: AbstractKnown, coordinates: int, rng: np.random.Generator) -> "Embedded":
        """Place the space into random axes."""
        own = known.sample(1, np.random.default_rng(0)).shape[1]
        return cls(known, np.linalg.qr(rng.standard_normal((coordinates, own)))[0])

    @property
    def dim(self) -> int:
        """Dimension of the space itself."""
        return self.known.dim

    @property
    def volume(self) -> float:
        """Volume of the space itself."""
        return self.known.volume

    @property
    def widest(self) -> float:
        """Longest time of interest."""
        return self.known.widest

    def sample(self, n: int, rng: np.random.Generator) -> np.ndarray:
        """Random points."""
        return self.known.sample(n, rng) @ self.axes.T

    def position(self, X: np.ndarray) -> np.ndarray:
        """Position in the space itself."""
        return self.known.position(X @ self.axes)

    def kernel(self, X: np.ndarray, t: float) -> np.ndarray:
        """That of the space itself."""
        return self.known.kernel(X @ self.axes, t)

    def nearest(self, X: np.ndarray) -> np.ndarray:
        """Nearest points: the other coordinates do not matter."""
        return self.known.nearest(X @ self.axes) @ self.axes.T


def add_noise(X: np.ndarray, sigma: float, rng: np.random.Generator, *, heavy: bool = False) -> np.ndarray:
    """Points with noise of standard deviation ``sigma`` on each coordinate: normal, or Student's t."""
    if not heavy:
        return X + sigma * rng.standard_normal(X.shape)
    return X + sigma / np.sqrt(TAIL / (TAIL - 2)) * rng.standard_t(TAIL, X.shape)


def add_outliers(X: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Replace a share of the points by points uniform in the box around the cloud."""
    outliers = rng.uniform(X.min(axis=0), X.max(axis=0), (round(share * len(X)), X.shape[1]))
    return np.vstack([X[: len(X) - len(outliers)], outliers])


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


@functools.cache
def surfaces() -> dict[str, Fine]:
    """Surfaces with a reference of many nodes."""
    return {
        "ellipsoid": Fine(Ellipsoid()),
        "torus": Fine(Torus()),
        "Möbius strip": Fine(MobiusStrip(), widest=0.02),
    }
