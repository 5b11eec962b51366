"""The interface of manifolds: public methods check arguments, subclasses supply formulas. Also their products."""

import abc
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, gammainc, gammaln
from scipy.stats import qmc

from manifoldrf._codec import stored
from manifoldrf._random import SeedLike, generator
from manifoldrf._runtime import quiet_underflow
from manifoldrf._validation import (
    NONNEGATIVE,
    FloatArray,
    Interval,
    as_floats,
    check_integer,
    check_points,
    check_real,
    check_vector,
    reject,
)

BoolArray = NDArray[np.bool_]

# A point this far off (relative to the size of the manifold) still counts as lying on it, to accept single
# precision.
TOLERANCE = 1e-6
# Inside this range no intermediate result of a heat kernel overflows.
_TIMES = Interval(1e-100, 1e100)


class AbstractManifold(abc.ABC):
    """A space with a volume, grids and samples; some also have distances and heat kernels.

    Points are rows of coordinates: of the surrounding Euclidean space for embedded surfaces, of the named model
    otherwise.

    Examples
    --------
    >>> from manifoldrf import FlatTorus, MobiusStrip, Sphere
    >>> Sphere().grid(4000).shape, MobiusStrip().grid(4000).shape, FlatTorus(dim=3).grid(1000).shape
    ((4000, 3), (4000, 3), (1000, 3))
    """

    _equation: ClassVar[str] = ""  # condition for points on the manifold, for errors
    _steps_along_distance: ClassVar[bool] = False  # whether steps of a fit use `_distance`, not the coordinates

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
        """Riemannian volume (length, area, ...) of the region that ``grid`` and ``sample`` cover."""

    @property
    def box(self) -> tuple[float, ...] | None:
        """Sides of the periodic box of the coordinates, 0 along those that are not periodic; None if none is."""
        return None

    def grid(self, n: int) -> FloatArray:
        """Return evenly spread points: n of them, or nearly n.

        Sphere, Ellipsoid, EuclideanSpace and HyperbolicSpace give exactly n points. MobiusStrip and Torus give the
        rows x columns of a parameter grid of almost square cells with rows = round(sqrt(n / aspect)),
        columns = round(n / rows); FlatTorus gives round(n^(1/dim))^dim points. ProductSpace gives all pairs of
        points of grids of its factors, which have nearly the same spacing.

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
        >>> from manifoldrf import Torus
        >>> Torus().grid(1000).shape  # 50 columns, 20 rows
        (1000, 3)
        """
        return check_points(self._grid(check_integer(n, "n", 1)), "_grid(n)", n_columns=self.ambient_dim)

    def grid_weights(self, n: int) -> FloatArray:
        """Return the quadrature weights of ``grid(n)``: cell volumes, half cells at edges, summing to the volume.

        Examples
        --------
        >>> import numpy as np
        >>> from manifoldrf import Torus
        >>> manifold = Torus(major=2.0, minor=0.5)
        >>> points, weights = manifold.grid(400), manifold.grid_weights(400)
        >>> exact = 0.5 * np.pi**2 * (2 * 2.0**3 + 3 * 2.0 * 0.5**2)  # integral of x^2
        >>> round(float(weights @ points[:, 0] ** 2 / exact), 12)
        1.0
        """
        density = np.asarray(self._density(check_integer(n, "n", 1)))  # (N,)
        if density.shape != (len(self.grid(n)),):
            reject("_density(n)", "a number for each point of _grid(n)", f"shape {density.shape}")
        return np.asarray(density * (self.volume / density.sum()))

    def sample(self, n: int, *, seed: SeedLike = None) -> FloatArray:
        """Draw n independent points, uniform in Riemannian volume, as an array of shape (n, ambient_dim).

        Examples
        --------
        >>> import numpy as np
        >>> from manifoldrf import Ellipsoid
        >>> bool(np.all(Ellipsoid().sample(5, seed=0) == Ellipsoid().sample(5, seed=0)))
        True
        """
        return self._sample(check_integer(n, "n", 1), generator(seed, f"{type(self).__name__}.sample"))

    def check(self, points: ArrayLike, name: str = "points") -> FloatArray:
        """Return points as a float64 array of shape (n, ambient_dim); raise if one is off the manifold.

        Points within 1e-6 of the manifold (relative to its size) pass. A FlatTorus accepts all points and wraps
        them into its box.

        Examples
        --------
        >>> from manifoldrf import FlatTorus, Sphere
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
        >>> import numpy as np
        >>> from manifoldrf import Sphere
        >>> Sphere(radius=2.0).distance([[0, 0, 2.0]], [[0, 0, -2.0], [0, 2.0, 0]]) / np.pi
        array([[2., 1.]])
        """
        x, y = self.check(X, "X"), self.check(Y, "Y")
        return self._distance(x[:, None, :], y[None, :, :])

    def paired_distance(self, X: ArrayLike, Y: ArrayLike) -> FloatArray:
        """Geodesic distances of corresponding points: (..., ambient_dim) and (..., ambient_dim) give (...).

        Examples
        --------
        >>> from manifoldrf import FlatTorus
        >>> FlatTorus(dim=1).paired_distance([[0.1], [0.5]], [[0.9], [0.7]])
        array([0.2, 0.2])
        """
        return self._distance(self._check_rows(X, "X"), self._check_rows(Y, "Y"))

    def reach(self, X: ArrayLike, r: ArrayLike) -> FloatArray:
        """Radius, in coordinates, of a Euclidean ball around each x that holds the metric ball of radius r.

        It turns a search within a geodesic radius (a scalar, or one for each x) into a search in a k-d tree with
        the periodic box ``box``.

        Examples
        --------
        >>> import numpy as np
        >>> from manifoldrf import Sphere
        >>> Sphere().reach([[0, 0, 1.0]], np.pi / 2) ** 2  # the equator is a chord of sqrt(2) away
        array([2.])
        """
        x = self.check(X, "X")
        radii = np.full(len(x), r) if np.ndim(r) == 0 else r
        return self._reach(x, check_vector(radii, "r", len(x), NONNEGATIVE))

    @quiet_underflow()
    def heat_kernel(self, X: ArrayLike, Y: ArrayLike, t: float) -> FloatArray:
        """Exact kernel of e^{t Delta}, per unit volume, for all pairs; shape (len(X), len(Y)).

        On spheres and hyperbolic spaces of dimension 1, 2 and 3, flat tori, rotations and Euclidean spaces, the
        relative error is at most 1e-10 for all values above 1e-290. On spheres of dimension 4 and more, it is at
        most 1e-10 of the value at coincident points. Values below about 1e-15 of that value are round-off there
        (never negative), and t must be at least 1e-6 radius^2. The kernel of a product is that of its factors. No
        other kernel is known in closed form.

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
        >>> import numpy as np
        >>> from manifoldrf import Sphere
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
            rule = f"points of {self}" + (f": {self._equation}" if self._equation else "")
            reject(name, rule, f"{array[bad[0]]} at index {bad[0]}")
        return array

    def _check_rows(self, points: ArrayLike, name: str) -> FloatArray:
        """Check points with any number of leading axes."""
        array = as_floats(points, name)
        shape = array.shape
        if not shape or shape[-1] != self.ambient_dim:
            reject(name, f"an array of shape (..., {self.ambient_dim})", f"shape {shape}")
        # Empty arrays are allowed here.
        return self._checked(array.reshape(-1, self.ambient_dim), name, min_rows=0).reshape(shape)

    def _unknown(self, what: str, instead: str) -> NoReturn:
        raise NotImplementedError(f"{type(self).__name__} has no closed-form {what}; {instead}.")

    # Supplied by subclasses. In `_distance` and `_heat`, x and y broadcast over their leading axes.

    @abc.abstractmethod
    def _grid(self, n: int) -> FloatArray: ...

    @abc.abstractmethod
    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray: ...

    def _density(self, n: int) -> FloatArray:
        """Cell volumes of the grid up to a constant factor; equal cells by default."""
        return np.ones(len(self._grid(n)))

    def _wrap(self, points: FloatArray) -> FloatArray:
        return points

    def _member(self, points: FloatArray) -> BoolArray:
        """Whether each point lies on the manifold; by default all points do."""
        return np.ones(len(points), dtype=np.bool_)

    def _reach(self, points: FloatArray, r: FloatArray) -> FloatArray:
        return r.copy()  # a chord is never longer than the geodesic

    def _distance(self, x: FloatArray, y: FloatArray) -> FloatArray:
        self._unknown("geodesic distance", "use Graph.shortest_paths on a knn_graph of its points")

    def _gaussian_step(self, s2: float, reach: float) -> tuple[float, float]:
        """Integral of exp(-distance^2 / s2) over a ball, and the heat time that a step with this density lasts."""
        inside, delay = flat_cut(s2, reach, self.dim)
        return (np.pi * s2) ** (self.dim / 2) * inside, s2 / 4 * delay

    def _heat(self, x: FloatArray, y: FloatArray, t: float) -> FloatArray:
        self._unknown("heat kernel", "use a heat_graph of its points")


def flat_cut(s2: float, reach: float, dim: int) -> tuple[float, float]:
    """Shares of the mass and of the heat time of a Gaussian step that are left if it is truncated at a reach."""
    inside, second = gammainc(np.array([dim / 2, dim / 2 + 1]), reach**2 / s2)
    return float(inside), float(second / inside)


def store(manifold: AbstractManifold, **values: object) -> None:
    """Keep checked parameters, as plain numbers, in a frozen dataclass."""
    for name, value in values.items():
        object.__setattr__(manifold, name, value)


@stored
@final
@dataclass(frozen=True, init=False, repr=False)
class ProductSpace(AbstractManifold):
    """The product of spaces: points are pairs (or more) of points, their coordinates side by side.

    Squared distances add up, volumes and heat kernels multiply. Space and time, for example, are a
    ``ProductSpace(Sphere(), EuclideanSpace(dim=1))``. Scale the factors (radius, side) so that a unit of distance
    has the same importance in each.

    Parameters
    ----------
    *factors : AbstractManifold
        At least two spaces.

    Notes
    -----
    Features of a product need no graph of its dimension. If phi are features of A and psi of B, the products
    phi_i(x) psi_j(y) are features of the product of the kernels, and they are nonnegative if phi and psi are.

    Examples
    --------
    >>> from manifoldrf import EuclideanSpace, ProductSpace, Sphere
    >>> space = ProductSpace(Sphere(), EuclideanSpace(dim=1, radius=2.0))
    >>> space.dim, space.ambient_dim, round(space.volume, 6)
    (3, 4, 50.265482)
    >>> float(space.distance([[0, 0, 1.0, 0.5]], [[0, 0, 1.0, 1.5]])[0, 0])
    1.0
    """

    factors: tuple[AbstractManifold, ...]
    _equation: ClassVar[str] = "the coordinates of its factors, side by side"

    def __init__(self, *spaces: AbstractManifold, factors: tuple[AbstractManifold, ...] = ()) -> None:
        given = spaces or factors
        if len(given) < 2:
            reject("factors", "at least two spaces", f"{len(given)}")
        for space in given:
            if not isinstance(space, AbstractManifold):
                reject("factors", "manifolds", repr(space), TypeError)
        store(self, factors=tuple(given), _steps_along_distance=any(space._steps_along_distance for space in given))

    def __repr__(self) -> str:
        return f"ProductSpace({', '.join(map(repr, self.factors))})"

    @property
    def dim(self) -> int:
        """Sum of the dimensions."""
        return sum(space.dim for space in self.factors)

    @property
    def ambient_dim(self) -> int:
        """Sum of the numbers of coordinates."""
        return sum(space.ambient_dim for space in self.factors)

    @property
    def volume(self) -> float:
        """Product of the volumes."""
        return math.prod(space.volume for space in self.factors)

    @property
    def box(self) -> tuple[float, ...] | None:
        """Sides of the periodic box, 0 along coordinates that are not periodic; None if none is."""
        if all(space.box is None for space in self.factors):
            return None
        return tuple(side for space in self.factors for side in space.box or (0.0,) * space.ambient_dim)

    def _parts(self, *arrays: FloatArray) -> Iterator[tuple[Any, ...]]:
        """Each factor with its columns of each array."""
        start = 0
        for space in self.factors:
            columns = slice(start, start + space.ambient_dim)
            yield space, *(array[..., columns] for array in arrays)
            start = columns.stop

    def _sizes(self, n: int) -> list[int]:
        """Numbers of grid points of the factors that give cells with equal sides."""
        cell = (self.volume / n) ** (1.0 / self.dim)
        return [max(1, round(space.volume / cell**space.dim)) for space in self.factors]

    def _grid(self, n: int) -> FloatArray:
        points = np.zeros((1, 0))
        for space, size in zip(self.factors, self._sizes(n), strict=True):
            grid = space._grid(size)
            points = np.hstack([np.repeat(points, len(grid), axis=0), np.tile(grid, (len(points), 1))])
        return points

    def _density(self, n: int) -> FloatArray:
        density = np.ones(1)
        for space, size in zip(self.factors, self._sizes(n), strict=True):
            density = np.outer(density, space._density(size)).ravel()
        return density

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        return np.hstack([space._sample(n, rng) for space in self.factors])

    def _wrap(self, points: FloatArray) -> FloatArray:
        return np.hstack([space._wrap(part) for space, part in self._parts(points)])

    def _member(self, points: FloatArray) -> BoolArray:
        return np.asarray(np.logical_and.reduce([space._member(part) for space, part in self._parts(points)]))

    def _reach(self, points: FloatArray, r: FloatArray) -> FloatArray:
        return np.asarray(np.sqrt(sum(space._reach(part, r) ** 2 for space, part in self._parts(points))))

    def _distance(self, x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(np.sqrt(sum(space._distance(a, b) ** 2 for space, a, b in self._parts(x, y))))

    def _gaussian_step(self, s2: float, reach: float) -> tuple[float, float]:
        """Product of the integrals, and mean of the times, which differ between curved factors.

        Factors are truncated at the reach one by one, the product by the sum of the squared distances.
        """
        mass, lasts = flat_cut(s2, reach, self.dim)
        total = 0.0
        for space in self.factors:
            (own_mass, time), (inside, delay) = space._gaussian_step(s2, reach), flat_cut(s2, reach, space.dim)
            mass, total = mass * own_mass / inside, total + space.dim * time / delay
        return mass, lasts * total / self.dim

    def _heat(self, x: FloatArray, y: FloatArray, t: float) -> FloatArray:
        return np.asarray(math.prod(space._heat(a, b, t) for space, a, b in self._parts(x, y)))


# Nodes of the Gauss-Legendre rules; exact to rounding for every admissible Moebius strip and hyperbolic ball.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)


def norm(points: FloatArray) -> FloatArray:
    """Length of each point."""
    return np.asarray(np.linalg.norm(points, axis=-1))


def gap(x: FloatArray, y: FloatArray) -> FloatArray:
    """Euclidean distances over broadcast leading axes, one coordinate at a time: no (n, m, d) array."""
    return np.asarray(np.sqrt(sum((x[..., k] - y[..., k]) ** 2 for k in range(x.shape[-1]))))


def unit_sphere_volume(dim: int) -> float:
    """Volume of the unit sphere S^dim."""
    return float(2.0 * np.exp(0.5 * (dim + 1) * np.log(np.pi) - gammaln(0.5 * (dim + 1))))


def fibonacci(n: int) -> FloatArray:
    """Fibonacci lattice on the unit sphere: n equal-area bands, turned by the golden angle, shape (n, 3)."""
    index = np.arange(n)
    z = 1.0 - (2.0 * index + 1.0) / n
    angle = np.pi * (3.0 - np.sqrt(5.0)) * index
    rho = np.sqrt((1.0 - z) * (1.0 + z))
    return np.stack([rho * np.cos(angle), rho * np.sin(angle), z], axis=1)


def sobol(n: int, dim: int) -> FloatArray:
    """First n Sobol points in the open cube (0, 1)^dim, moved off its corner by half their resolution."""
    bits = (n - 1).bit_length()
    return np.asarray(qmc.Sobol(dim, scramble=False).random_base2(bits)[:n] + 0.5 / 2**bits)


def equal_volume_map(u: FloatArray) -> FloatArray:
    """Map the cube [0, 1)^d one-to-one onto the unit sphere S^d, volumes in proportion: (n, d) to (n, d + 1).

    Normalised Gaussian quantiles would need a cube of one dimension more, and would map all points of a ray to one.
    """
    angle = 2.0 * np.pi * u[:, 0]
    points = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    for k in range(2, u.shape[1] + 1):
        height = betaincinv(0.5 * k, 0.5 * k, u[:, k - 1])[:, None]  # (1 + z) / 2 has this Beta law on S^k
        points = np.hstack([2.0 * np.sqrt(height * (1.0 - height)) * points, 2.0 * height - 1.0])
    return points


def random_directions(n: int, dim: int, rng: np.random.Generator) -> FloatArray:
    """Uniform random points of the unit sphere in R^dim, shape (n, dim)."""
    vectors = rng.standard_normal((n, dim))
    return vectors / norm(vectors)[:, None]


def thinned(
    n: int,
    propose: Callable[[int], FloatArray],
    density: Callable[[FloatArray], FloatArray],
    bound: float,
    rng: np.random.Generator,
) -> FloatArray:
    """Draw n points from a density by rejection; ``bound`` is its maximum."""
    kept: list[FloatArray] = []
    missing = n
    while missing > 0:
        candidates = propose(2 * missing)
        kept.append(candidates[bound * rng.random(len(candidates)) < density(candidates)][:missing])
        missing -= len(kept[-1])
    return np.concatenate(kept)


def cells(n: int, aspect: float, least_rows: int) -> tuple[int, int]:
    """Columns and rows of a grid of about n cells with ``aspect`` times as many columns as rows."""
    rows = max(least_rows, round(np.sqrt(n / aspect)))
    return max(3, round(n / rows)), rows


def circle(n: int) -> FloatArray:
    """Return n equally spaced angles in [0, 2 pi)."""
    return np.linspace(0.0, 2.0 * np.pi, n, endpoint=False)


def product(u: FloatArray, v: FloatArray) -> FloatArray:
    """All pairs (u_i, v_j), v running fastest, shape (len(u) * len(v), 2)."""
    return np.stack([np.repeat(u, v.size), np.tile(v, u.size)], axis=1)
