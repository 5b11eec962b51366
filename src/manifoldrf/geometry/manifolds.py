"""The interface of all manifolds: public methods with their checks; subclasses supply the formulas."""

import abc
from collections.abc import Callable
from typing import ClassVar, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, gammaln
from scipy.stats import qmc

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

__all__ = ["AbstractManifold"]


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

    has_boundary: ClassVar[bool] = False
    _equation: ClassVar[str]  # condition for points on the manifold, for errors

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
        """Sides of the periodic box of the coordinates; None if they are not periodic."""
        return None

    def grid(self, n: int) -> FloatArray:
        """Return evenly spread points: n of them, or nearly n.

        Sphere, Ellipsoid, EuclideanSpace and HyperbolicSpace give exactly n points. MobiusStrip and Torus give the
        rows x columns of a parameter grid of almost square cells with rows = round(sqrt(n / aspect)),
        columns = round(n / rows); FlatTorus gives round(n^(1/dim))^dim points.

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
        return self._grid(check_integer(n, "n", 1))

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
        density = self._density(check_integer(n, "n", 1))  # (N,)
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

        It turns a search within a geodesic radius (one for all, or one for each x) into one that a k-d tree can
        answer, with ``box`` as its periodic box.

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

        On spheres of dimension 1, 2 and 3, flat tori, H^2 and H^3, the relative error is at most 1e-10 for all
        values above 1e-290. On spheres of dimension 4 and more, the error is at most 1e-10 of the value at
        coincident points. Values below about 1e-15 of that value are round-off there (never negative), and t must
        be at least 1e-6 radius^2. No other kernel is known in closed form.

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
            reject(name, f"points of {self}: {self._equation}", f"{array[bad[0]]} at index {bad[0]}")
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
        return r.copy()  # a chord is never longer than the geodesic above it

    def _distance(self, x: FloatArray, y: FloatArray) -> FloatArray:
        self._unknown("geodesic distance", "use Graph.shortest_paths on a knn_graph of its points")

    def _gaussian_step(self, s2: float, reach: float) -> tuple[float, float]:
        """Integral of exp(-distance^2 / s2), and the heat time that a step with this density lasts."""
        del reach  # in flat space its effect is negligible
        return (np.pi * s2) ** (self.dim / 2), s2 / 4

    def _heat(self, x: FloatArray, y: FloatArray, t: float) -> FloatArray:
        self._unknown("heat kernel", "use a heat_graph of its points")


def store(manifold: AbstractManifold, **values: object) -> None:
    """Keep checked parameters, as plain numbers, in a frozen dataclass."""
    for name, value in values.items():
        object.__setattr__(manifold, name, value)


# Nodes of the Gauss-Legendre rules; exact to rounding for every admissible Moebius strip and hyperbolic ball.
NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)


def norm(points: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.norm(points, axis=-1))


def gap(x: FloatArray, y: FloatArray) -> FloatArray:
    """Euclidean distances over broadcast leading axes, one coordinate at a time: no (n, m, d) array."""
    return np.asarray(np.sqrt(sum((x[..., k] - y[..., k]) ** 2 for k in range(x.shape[-1]))))


def unit_sphere_volume(dim: int) -> float:
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


def shifted_sobol(n: int, dim: int, rng: np.random.Generator) -> FloatArray:
    """First n Sobol points, shifted by a random vector and wrapped: uniform, and as even as before."""
    wrapped = np.mod(sobol(n, dim) + rng.random(dim), 1.0)
    return np.asarray(np.clip(wrapped, 2.0**-40, 1.0 - 2.0**-40))


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
