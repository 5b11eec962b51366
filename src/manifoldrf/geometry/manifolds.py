"""Curved spaces that are known in closed form: grids, uniform samples, distances and exact heat kernels.

:class:`AbstractManifold` holds every public method, with its checks, once; a concrete manifold supplies the
formulas. Lengths are in the manifold's own units, and times are those of e^{t Delta}.
"""

import abc
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, NoReturn, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, elliprg, gammaln
from scipy.stats import qmc

from manifoldrf._random import SeedLike, generator
from manifoldrf._validation import (
    NONNEGATIVE,
    POSITIVE,
    FloatArray,
    Interval,
    check_integer,
    check_points,
    check_real,
    check_vector,
    reject,
)
from manifoldrf.geometry import _heat_series

__all__ = [
    "AbstractManifold",
    "Ellipsoid",
    "FlatTorus",
    "HyperbolicSpace",
    "MobiusStrip",
    "Sphere",
    "Torus",
]

BoolArray = NDArray[np.bool_]

# A point this far off (relative to the size of the manifold) still counts as lying on it: single precision.
_TOLERANCE = 1e-6
# Inside this range no intermediate result of a heat kernel overflows.
_TIMES = Interval(1e-100, 1e100)
# Nodes of the Gauss-Legendre rules; exact to rounding for every admissible Moebius strip and hyperbolic ball.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


class AbstractManifold(abc.ABC):
    """A space with a volume, grids and samples; distances and heat kernels where they are known.

    Points are rows of coordinates: of the surrounding Euclidean space for embedded surfaces, of the named model
    otherwise.

    Examples
    --------
    >>> Sphere().grid(4000).shape, MobiusStrip().grid(4000).shape, FlatTorus(dim=3).grid(1000).shape
    ((4000, 3), (4000, 3), (1000, 3))
    """

    has_boundary: ClassVar[bool] = False
    _equation: ClassVar[str]  # what membership means, for the error text

    @property
    @abc.abstractmethod
    def dim(self) -> int:
        """Intrinsic dimension."""

    @property
    @abc.abstractmethod
    def ambient_dim(self) -> int:
        """Number of coordinates of a point."""

    @property
    @abc.abstractmethod
    def volume(self) -> float:
        """Riemannian volume: length, area, ... of what ``grid`` and ``sample`` cover."""

    @property
    def box(self) -> tuple[float, ...] | None:
        """Sides of the periodic box the coordinates live in; None where they are not periodic."""
        return None

    def grid(self, n: int) -> FloatArray:
        """Return evenly spread points, as many as asked for or nearly so.

        Sphere, Ellipsoid and HyperbolicSpace give exactly n points. MobiusStrip and Torus give the rows x columns
        of a parameter grid of almost square cells with rows = round(sqrt(n / aspect)), columns = round(n / rows);
        FlatTorus gives round(n^(1/dim))^dim points.

        Parameters
        ----------
        n : int
            Number of points.

        Returns
        -------
        array of shape (N, ambient_dim)
            The points; the same at each call.

        Examples
        --------
        >>> Torus().grid(1000).shape  # 50 columns, 20 rows
        (1000, 3)
        """
        return self._grid(check_integer(n, "n", 1))

    def grid_weights(self, n: int) -> FloatArray:
        """Return the quadrature weights of ``grid(n)``: cell volumes, half cells at edges, summing to the volume.

        Examples
        --------
        >>> manifold = Torus(major=2.0, minor=0.5)
        >>> points, weights = manifold.grid(400), manifold.grid_weights(400)
        >>> exact = 0.5 * np.pi**2 * (2 * 2.0**3 + 3 * 2.0 * 0.5**2)  # integral of x^2
        >>> round(float(weights @ points[:, 0] ** 2 / exact), 12)
        1.0
        """
        density = self._density(check_integer(n, "n", 1))  # (N,)
        return np.asarray(density * (self.volume / density.sum()))

    def sample(self, n: int, *, seed: SeedLike = None) -> FloatArray:
        """Draw n independent points, uniform in Riemannian volume, as an array of shape (n, ambient_dim).

        Examples
        --------
        >>> bool(np.all(Ellipsoid().sample(5, seed=0) == Ellipsoid().sample(5, seed=0)))
        True
        """
        return self._sample(check_integer(n, "n", 1), generator(seed, f"{type(self).__name__}.sample"))

    def check(self, points: ArrayLike, name: str = "points") -> FloatArray:
        """Return points as a float64 array of shape (n, ambient_dim), or say which of them is off the manifold.

        Points within 1e-6 of the manifold (relative to its size) pass; those of a FlatTorus are wrapped into its
        box, whatever they are.

        Examples
        --------
        >>> FlatTorus(dim=1).check([[-0.25]])
        array([[0.75]])
        >>> Sphere(dim=1).check([[1.0, 1.0]], "X")
        Traceback (most recent call last):
        ...
        ValueError: `X` must be points of Sphere(dim=1, radius=1.0): |x| = radius. Got [1. 1.] at index 0.
        """
        return self._checked(points, name, min_rows=1)

    def distance(self, X: ArrayLike, Y: ArrayLike) -> FloatArray:
        """Geodesic distances of all pairs, shape (len(X), len(Y)); accurate for close points as well.

        Examples
        --------
        >>> Sphere(radius=2.0).distance([[0, 0, 2.0]], [[0, 0, -2.0], [0, 2.0, 0]]) / np.pi
        array([[2., 1.]])
        """
        x, y = self.check(X, "X"), self.check(Y, "Y")
        return self._distance(x[:, None, :], y[None, :, :])

    def paired_distance(self, X: ArrayLike, Y: ArrayLike) -> FloatArray:
        """Geodesic distances of corresponding points: (..., ambient_dim) and (..., ambient_dim) give (...).

        Examples
        --------
        >>> FlatTorus(dim=1).paired_distance([[0.1], [0.5]], [[0.9], [0.7]])
        array([0.2, 0.2])
        """
        return self._distance(self._check_rows(X, "X"), self._check_rows(Y, "Y"))

    def reach(self, X: ArrayLike, r: ArrayLike) -> FloatArray:
        """Radius, in coordinates, of a Euclidean ball around each x that holds the metric ball of radius r.

        It turns a search within a geodesic radius (one for all, or one for each x) into one that a k-d tree can
        answer, with ``box`` as its periodic box.

        Examples
        --------
        >>> Sphere().reach([[0, 0, 1.0]], np.pi / 2) ** 2  # the equator is a chord of sqrt(2) away
        array([2.])
        """
        x = self.check(X, "X")
        radii = np.full(len(x), r) if np.ndim(r) == 0 else r
        return self._reach(x, check_vector(radii, "r", len(x), NONNEGATIVE))

    def heat_kernel(self, X: ArrayLike, Y: ArrayLike, t: float) -> FloatArray:
        """Exact kernel of e^{t Delta}, per unit volume, for all pairs; shape (len(X), len(Y)).

        The error is at most 1e-10 of each value, however small, as long as it is above 1e-290: on spheres of
        dimension 1, 2 and 3, flat tori, H^2 and H^3. On spheres of dimension 4 and more it is at most 1e-10 of
        the value at coincident points; there, values below about 1e-15 of that are round-off (never negative),
        and t must be at least 1e-6 radius^2. No other kernel is known in closed form.

        Parameters
        ----------
        X, Y : arrays of shape (n, ambient_dim) and (m, ambient_dim)
            Points.
        t : float
            Time; at short times the kernel is a Gaussian of variance 2 t in each direction.

        Returns
        -------
        array of shape (n, m)
            The kernel.

        Examples
        --------
        >>> sphere = Sphere()
        >>> points, weights = sphere.grid(2000), sphere.grid_weights(2000)
        >>> heat = sphere.heat_kernel(points[:3], points, t=0.05)
        >>> np.round(heat @ weights, 3)  # no heat is lost
        array([1., 1., 1.])
        """
        time = check_real(t, "t", _TIMES)
        x, y = self.check(X, "X"), self.check(Y, "Y")
        return self._heat(x[:, None, :], y[None, :, :], time)

    def _checked(self, points: ArrayLike, name: str, min_rows: int) -> FloatArray:
        array = self._wrap(check_points(points, name, n_columns=self.ambient_dim, min_rows=min_rows))
        bad = np.flatnonzero(~self._member(array))
        if bad.size:
            reject(name, f"points of {self}: {self._equation}", f"{array[bad[0]]} at index {bad[0]}")
        return array

    def _check_rows(self, points: ArrayLike, name: str) -> FloatArray:
        """Check points with any number of leading axes."""
        shape = np.shape(points)
        if not shape or shape[-1] != self.ambient_dim:
            reject(name, f"an array of shape (..., {self.ambient_dim})", f"shape {shape}")
        # No pairs at all is a fair question here.
        return self._checked(np.reshape(points, (-1, self.ambient_dim)), name, min_rows=0).reshape(shape)

    def _unknown(self, what: str, instead: str) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} has no closed-form {what}; {instead}.")

    # What a manifold supplies. In `_distance` and `_heat`, x and y broadcast over their leading axes.

    @abc.abstractmethod
    def _grid(self, n: int) -> FloatArray: ...

    @abc.abstractmethod
    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray: ...

    def _density(self, n: int) -> FloatArray:
        """Cell volumes of the grid up to a constant factor; equal cells unless said otherwise."""
        return np.ones(len(self._grid(n)))

    def _wrap(self, points: FloatArray) -> FloatArray:
        return points

    @abc.abstractmethod
    def _member(self, points: FloatArray) -> BoolArray: ...

    def _reach(self, points: FloatArray, r: FloatArray) -> FloatArray:
        return r.copy()  # a chord is never longer than the geodesic above it

    def _distance(self, x: FloatArray, y: FloatArray) -> FloatArray:
        self._unknown("geodesic distance", "use Graph.shortest_paths on a knn_graph of its points")

    def _heat(self, x: FloatArray, y: FloatArray, t: float) -> FloatArray:
        self._unknown("heat kernel", "use a heat_graph of its points")


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
        _store(self, dim=check_integer(self.dim, "dim", 1), radius=check_real(self.radius, "radius", POSITIVE))

    @property
    def ambient_dim(self) -> int:
        """Number of coordinates, dim + 1."""
        return self.dim + 1

    @property
    def volume(self) -> float:
        """Volume of the whole sphere."""
        return _unit_sphere_volume(self.dim) * self.radius**self.dim

    def _grid(self, n: int) -> FloatArray:
        if self.dim == 1:
            return self.radius * _equal_volume_map(np.linspace(0.0, 1.0, n, endpoint=False)[:, None])
        return self.radius * (_fibonacci(n) if self.dim == 2 else _equal_volume_map(_sobol(n, self.dim)))

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self.radius * _random_directions(n, self.ambient_dim, rng)

    def _member(self, points: FloatArray) -> BoolArray:
        return np.abs(_norm(points) - self.radius) <= _TOLERANCE * self.radius

    def _angle(self, x: FloatArray, y: FloatArray) -> FloatArray:
        x, y = x / _norm(x)[..., None], y / _norm(y)[..., None]
        # Kahan's form is accurate at both ends; the arc cosine blurs angles below 1e-8 and near pi.
        return np.asarray(2.0 * np.arctan2(_gap(x, y), _gap(x, -y)))

    def _distance(self, x: FloatArray, y: FloatArray) -> FloatArray:
        return self.radius * self._angle(x, y)

    def _reach(self, points: FloatArray, r: FloatArray) -> FloatArray:
        return np.asarray(2.0 * self.radius * np.sin(0.5 * np.minimum(r / self.radius, np.pi)))  # the chord

    def _heat(self, x: FloatArray, y: FloatArray, t: float) -> FloatArray:
        unit_time = t / self.radius**2
        if self.dim > 3:  # shorter times would ask for a series of many thousand terms
            check_real(unit_time, "t / radius^2", Interval(1e-6))
        return _heat_series.sphere_kernel(self._angle(x, y), unit_time, self.dim) / self.radius**self.dim


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
        _store(self, dim=check_integer(self.dim, "dim", 1), side=check_real(self.side, "side", POSITIVE))

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
            _heat_series.circle_log_kernel(unit * self._offset(x[..., k], y[..., k]), t * unit**2)
            for k in range(self.dim)
        ]
        return np.asarray(np.exp(sum(factors) + self.dim * np.log(unit)))


@final
@dataclass(frozen=True)
class HyperbolicSpace(AbstractManifold):
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
    >>> ball = HyperbolicSpace(dim=2, radius=1.0)
    >>> round(float(ball.volume / (2 * np.pi * (np.cosh(1.0) - 1.0))), 12)
    1.0
    >>> round(float(ball.distance([[0.0, 0.0]], ball.grid(100)).max()), 1)
    1.0
    """

    dim: int = 3
    radius: float = 2.0
    has_boundary: ClassVar[bool] = True
    _equation: ClassVar[str] = "|x| < 1"

    def __post_init__(self) -> None:
        dim = check_integer(self.dim, "dim", 2)
        # The second bound keeps the radial quadrature exact: the volume grows like e^{(dim - 1) radius}.
        farthest = min(20.0, 200.0 / (dim - 1))
        _store(self, dim=dim, radius=check_real(self.radius, "radius", Interval(0.0, farthest, low_open=True)))

    @property
    def ambient_dim(self) -> int:
        """Number of coordinates, dim."""
        return self.dim

    @property
    def volume(self) -> float:
        """Volume of the geodesic ball."""
        return _unit_sphere_volume(self.dim - 1) * float(self._radial_integral(np.array([self.radius]))[0])

    def _radial_integral(self, rho: FloatArray) -> FloatArray:
        """Integral of sinh^(dim - 1) from 0 to each rho."""
        s = 0.5 * rho[:, None] * (_NODES + 1.0)  # (n, nodes)
        return np.asarray(0.5 * rho * (np.sinh(s) ** (self.dim - 1) @ _WEIGHTS))

    def _radii(self, u: FloatArray) -> FloatArray:
        """Radii below which the ball holds the fractions u of its volume."""
        table = np.linspace(0.0, self.radius, 1025)[1:]
        # The dim-th root of the volume is almost linear in the radius, so that the table starts Newton close by.
        target = u * self._radial_integral(table[-1:])
        root = 1.0 / self.dim
        rho = np.interp(target**root, np.append(0.0, self._radial_integral(table) ** root), np.append(0.0, table))
        for _ in range(3):
            rho = rho - (self._radial_integral(rho) - target) / np.sinh(rho) ** (self.dim - 1)
        return np.asarray(np.clip(rho, 0.0, self.radius))

    def _grid(self, n: int) -> FloatArray:
        u = _sobol(n, self.dim)
        return np.asarray(np.tanh(0.5 * self._radii(u[:, 0]))[:, None] * _equal_volume_map(u[:, 1:]))

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        radii = self._radii(1.0 - rng.random(n))  # in (0, 1]: Newton divides by sinh
        return np.asarray(np.tanh(0.5 * radii)[:, None] * _random_directions(n, self.dim, rng))

    def _member(self, points: FloatArray) -> BoolArray:
        return _norm(points) < 1.0

    def _reach(self, points: FloatArray, r: FloatArray) -> FloatArray:
        # A metric ball is a Euclidean ball with another centre: x (1 - T^2) / (1 - T^2 |x|^2).
        norm, tanh = _norm(points), np.tanh(0.5 * r)
        # Its radius plus the shift of the centre:
        return np.asarray(tanh * (1.0 - norm) * (1.0 + norm) / (1.0 - tanh * norm))

    def _distance(self, x: FloatArray, y: FloatArray) -> FloatArray:
        inside = [(1.0 - _norm(z)) * (1.0 + _norm(z)) for z in (x, y)]  # 1 - |z|^2 without cancellation
        return np.asarray(2.0 * np.arcsinh(_gap(x, y) / np.sqrt(inside[0] * inside[1])))

    def _heat(self, x: FloatArray, y: FloatArray, t: float) -> FloatArray:
        if self.dim > 3:
            self._unknown("heat kernel for dim > 3", "use dim=2 or dim=3, or a heat_graph of its points")
        kernel = _heat_series.hyperbolic_two_kernel if self.dim == 2 else _heat_series.hyperbolic_three_kernel
        return kernel(self._distance(x, y), t)


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
    >>> round(Ellipsoid(axes=(2.0, 2.0, 2.0)).volume / np.pi, 12)
    16.0
    """

    axes: tuple[float, float, float] = (1.0, 1.3, 0.7)
    dim: int = field(default=2, init=False, repr=False)
    ambient_dim: int = field(default=3, init=False, repr=False)
    _equation: ClassVar[str] = "(x/a)^2 + (y/b)^2 + (z/c)^2 = 1"

    def __post_init__(self) -> None:
        _store(self, axes=tuple(check_vector(self.axes, "axes", 3, POSITIVE).tolist()))

    @property
    def volume(self) -> float:
        """Surface area, by Carlson's symmetric elliptic integral."""
        a, b, c = self.axes
        return float(4.0 * np.pi * elliprg((a * b) ** 2, (a * c) ** 2, (b * c) ** 2))

    def _stretch(self, directions: FloatArray) -> FloatArray:
        """Area of the ellipsoid over that of the unit sphere at points of the latter."""
        a, b, c = self.axes
        return _norm(directions * np.array([b * c, a * c, a * b]))

    def _grid(self, n: int) -> FloatArray:
        return np.asarray(_fibonacci(n) * np.array(self.axes))

    def _density(self, n: int) -> FloatArray:
        return self._stretch(_fibonacci(n))

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        bound = float(np.prod(self.axes)) / min(self.axes)
        directions = _thinned(n, lambda k: _random_directions(k, 3, rng), self._stretch, bound, rng)
        return np.asarray(directions * np.array(self.axes))

    def _member(self, points: FloatArray) -> BoolArray:
        return np.abs(_norm(points / np.array(self.axes)) - 1.0) <= _TOLERANCE


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
        _store(self, major=major, minor=minor)

    @property
    def volume(self) -> float:
        """Surface area, 4 pi^2 R r."""
        return 4.0 * np.pi**2 * self.major * self.minor

    def _embed(self, angles: FloatArray) -> FloatArray:
        u, v = angles.T
        rho = self.major + self.minor * np.cos(v)
        return np.stack([rho * np.cos(u), rho * np.sin(u), self.minor * np.sin(v)], axis=1)

    def _angles(self, n: int) -> FloatArray:
        columns, rows = _cells(n, self.major / self.minor, 3)
        return _product(_circle(columns), _circle(rows))

    def _element(self, angles: FloatArray) -> FloatArray:
        return self.major + self.minor * np.cos(angles[:, 1])

    def _grid(self, n: int) -> FloatArray:
        return self._embed(self._angles(n))

    def _density(self, n: int) -> FloatArray:
        return self._element(self._angles(n))

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        bound = self.major + self.minor
        return self._embed(_thinned(n, lambda k: 2.0 * np.pi * rng.random((k, 2)), self._element, bound, rng))

    def _member(self, points: FloatArray) -> BoolArray:
        tube = np.hypot(np.hypot(points[:, 0], points[:, 1]) - self.major, points[:, 2])
        return np.abs(tube - self.minor) <= _TOLERANCE * self.major


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
    >>> strip = MobiusStrip()
    >>> strip.has_boundary, round(strip.volume, 6)
    (True, 3.149911)
    """

    radius: float = 1.0
    half_width: float = 0.25
    dim: int = field(default=2, init=False, repr=False)
    ambient_dim: int = field(default=3, init=False, repr=False)
    has_boundary: ClassVar[bool] = True
    _equation: ClassVar[str] = "on the band of that half_width"

    def __post_init__(self) -> None:
        radius = check_real(self.radius, "radius", POSITIVE)
        half_width = check_real(self.half_width, "half_width", Interval(0.0, radius, low_open=True, high_open=True))
        _store(self, radius=radius, half_width=half_width)

    @property
    def volume(self) -> float:
        """Surface area, by quadrature to machine precision."""
        # The trapezoidal rule converges exponentially in u: turning once and flipping v changes nothing.
        u = _circle(256)
        element = self._element(_product(u, self.half_width * _NODES)).reshape(u.size, -1)  # (u, v)
        return float(2.0 * np.pi * self.half_width * np.mean(element @ _WEIGHTS))

    def _embed(self, parameters: FloatArray) -> FloatArray:
        u, v = parameters.T
        rho = self.radius + v * np.cos(0.5 * u)
        return np.stack([rho * np.cos(u), rho * np.sin(u), v * np.sin(0.5 * u)], axis=1)

    def _element(self, parameters: FloatArray) -> FloatArray:
        u, v = parameters.T
        return np.asarray(np.hypot(self.radius + v * np.cos(0.5 * u), 0.5 * v))

    def _axes(self, n: int) -> tuple[FloatArray, FloatArray]:
        columns, rows = _cells(n, 2.5 * self.radius / self.half_width, 2)
        return _circle(columns), np.linspace(-self.half_width, self.half_width, rows)

    def _grid(self, n: int) -> FloatArray:
        return self._embed(_product(*self._axes(n)))

    def _density(self, n: int) -> FloatArray:
        u, v = self._axes(n)
        cell = np.where(np.abs(v) < self.half_width, 1.0, 0.5)  # half cells at the edges
        return np.asarray(self._element(_product(u, v)) * np.tile(cell, u.size))

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        low, size = np.array([0.0, -self.half_width]), np.array([2.0 * np.pi, 2.0 * self.half_width])
        bound = np.hypot(self.radius + self.half_width, 0.5 * self.half_width)
        return self._embed(_thinned(n, lambda k: low + size * rng.random((k, 2)), self._element, bound, rng))

    def _member(self, points: FloatArray) -> BoolArray:
        # Undo the embedding: u is the polar angle (rho > 0), the rest is a rotation by u / 2 in the (rho, z) plane.
        u = np.mod(np.arctan2(points[:, 1], points[:, 0]), 2.0 * np.pi)
        out = np.hypot(points[:, 0], points[:, 1]) - self.radius
        v = out * np.cos(0.5 * u) + points[:, 2] * np.sin(0.5 * u)
        off = points[:, 2] * np.cos(0.5 * u) - out * np.sin(0.5 * u)
        slack = _TOLERANCE * self.radius
        return (np.abs(off) <= slack) & (np.abs(v) <= self.half_width + slack)


def _store(manifold: AbstractManifold, **values: object) -> None:
    """Keep checked parameters, as plain numbers, in a frozen dataclass."""
    for name, value in values.items():
        object.__setattr__(manifold, name, value)


def _norm(points: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.norm(points, axis=-1))


def _gap(x: FloatArray, y: FloatArray) -> FloatArray:
    """Euclidean distances over broadcast leading axes, one coordinate at a time: no (n, m, d) array."""
    return np.asarray(np.sqrt(sum((x[..., k] - y[..., k]) ** 2 for k in range(x.shape[-1]))))


def _unit_sphere_volume(dim: int) -> float:
    return float(2.0 * np.exp(0.5 * (dim + 1) * np.log(np.pi) - gammaln(0.5 * (dim + 1))))


def _fibonacci(n: int) -> FloatArray:
    """Fibonacci lattice on the unit sphere: n equal-area bands, turned by the golden angle, shape (n, 3)."""
    index = np.arange(n)
    z = 1.0 - (2.0 * index + 1.0) / n
    angle = np.pi * (3.0 - np.sqrt(5.0)) * index
    rho = np.sqrt((1.0 - z) * (1.0 + z))
    return np.stack([rho * np.cos(angle), rho * np.sin(angle), z], axis=1)


def _sobol(n: int, dim: int) -> FloatArray:
    """First n Sobol points in the open cube (0, 1)^dim, moved off its corner by half their resolution."""
    bits = (n - 1).bit_length()
    return np.asarray(qmc.Sobol(dim, scramble=False).random_base2(bits)[:n] + 0.5 / 2**bits)


def _equal_volume_map(u: FloatArray) -> FloatArray:
    """Map the cube [0, 1)^d one-to-one onto the unit sphere S^d, volumes in proportion: (n, d) to (n, d + 1).

    Normalised Gaussian quantiles would do so only from one dimension more, and send points of one ray to one.
    """
    angle = 2.0 * np.pi * u[:, 0]
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    for k in range(2, u.shape[1] + 1):
        height = betaincinv(0.5 * k, 0.5 * k, u[:, k - 1])[:, None]  # (1 + z) / 2 has this Beta law on S^k
        points = np.hstack([2.0 * np.sqrt(height * (1.0 - height)) * points, 2.0 * height - 1.0])
    return points


def _random_directions(n: int, dim: int, rng: np.random.Generator) -> FloatArray:
    vectors = rng.standard_normal((n, dim))
    return vectors / _norm(vectors)[:, None]


def _thinned(
    n: int,
    propose: Callable[[int], FloatArray],
    density: Callable[[FloatArray], FloatArray],
    bound: float,
    rng: np.random.Generator,
) -> FloatArray:
    """Draw n points of a density by rejection; ``bound`` is its maximum."""
    kept: list[FloatArray] = []
    missing = n
    while missing > 0:
        candidates = propose(2 * missing)
        kept.append(candidates[bound * rng.random(len(candidates)) < density(candidates)][:missing])
        missing -= len(kept[-1])
    return np.concatenate(kept)


def _cells(n: int, aspect: float, least_rows: int) -> tuple[int, int]:
    """Columns and rows of a grid of about n cells with ``aspect`` times as many columns as rows."""
    rows = max(least_rows, round(np.sqrt(n / aspect)))
    return max(3, round(n / rows)), rows


def _circle(n: int) -> FloatArray:
    """Return n equally spaced angles in [0, 2 pi)."""
    return np.linspace(0.0, 2.0 * np.pi, n, endpoint=False)


def _product(u: FloatArray, v: FloatArray) -> FloatArray:
    """All pairs (u_i, v_j), v running fastest, shape (len(u) * len(v), 2)."""
    return np.stack([np.repeat(u, v.size), np.tile(v, u.size)], axis=1)
