"""Heat kernels of the model spaces as functions of the distance: theta series, image integrals, closed forms.

Everything is for unit size (radius 1, curvature +1 or -1) and in the time of e^{t Delta}. Each kernel is written as
a Gaussian, whose exponent may underflow on its own, times a factor without cancellation, so the values keep their
relative accuracy far into the tails, where the eigenfunction series is only round-off.
"""

import abc
import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import gammaln

from manifoldrf._codec import stored
from manifoldrf._validation import (
    POSITIVE,
    FloatArray,
    Interval,
    as_floats,
    check_integer,
    check_points,
    check_real,
    column_names,
    reject,
)
from manifoldrf.geometry.manifolds import (
    NODES,
    TOLERANCE,
    WEIGHTS,
    AbstractManifold,
    BoolArray,
    equal_volume_map,
    fibonacci,
    gap,
    norm,
    random_directions,
    sobol,
    store,
    unit_sphere_volume,
)
from manifoldrf.geometry.objects import lonlat_of

# Up to this time the nearest images suffice: the next ones are below e^{-pi^2/t} = 1e-18. At this time the
# eigenfunction series has lost four digits to cancellation at the antipode (an error of 3e-13), and fewer later.
_IMAGES_UNTIL = 0.24
# The theta function is its own Fourier transform; both of its series converge equally fast at this time.
_SELF_DUAL_TIME = np.pi
# Terms below e^-40 = 4e-18 of the largest one are below float64 precision.
_NEGLIGIBLE = 40.0
# With these numbers of nodes the midpoint rules differ from rules with four times as many nodes by 2e-13
# (relative), at every angle or distance and every time. The difference is rounding of exponents of several hundred.
_SPHERE_NODES = 20
_HYPERBOLIC_NODES = 24
# The integrand on H^2 is analytic for |Im psi| < pi/2: the trapezoidal error is exp(-pi^2/h) = 7e-18.
_HYPERBOLIC_STEP = 0.25
# Share of the series at coincident points that may be cut off.
_TAIL = 1e-17


def circle_log_kernel(angle: FloatArray, t: float) -> FloatArray:
    """Logarithm of the heat kernel of the unit circle, for angles in [0, pi]; the logarithm never underflows."""
    if t < _SELF_DUAL_TIME:
        # (angle + 2 pi n)^2 - angle^2 = 4 pi n (angle + pi n); 4 images: e^-40 at t = pi
        images = sum(
            np.exp(-np.pi * n * (angle + np.pi * n) / t) + np.exp(-np.pi * n * (np.pi * n - angle) / t)
            for n in range(1, 5)
        )
        return np.asarray(np.log1p(images) - angle**2 / (4.0 * t) - 0.5 * np.log(4.0 * np.pi * t))
    waves = sum(2.0 * np.exp(-(k**2) * t) * np.cos(k * angle) for k in range(1, 5))
    return np.asarray(np.log1p(waves) - np.log(2.0 * np.pi))


def sphere_kernel(angle: FloatArray, t: float, dim: int) -> FloatArray:
    """Heat kernel of the unit sphere S^dim for angles in [0, pi]; never negative.

    For dim <= 3 the error is below 1e-10 of the value itself. From dim = 4 on it is relative to the value at
    coincident points, because the series cancels where t is small and the points are far apart.
    """
    if dim == 1:
        return np.asarray(np.exp(circle_log_kernel(angle, t)))
    if dim == 2 and t <= _IMAGES_UNTIL:
        return _two_sphere_images(angle, t)
    if dim == 3 and t <= _IMAGES_UNTIL:
        return _three_sphere_images(angle, t)
    return gegenbauer_series(angle, t, dim)


def gegenbauer_series(angle: FloatArray, t: float, dim: int) -> FloatArray:
    """Sum of mult_l e^{-l(l+d-1)t} G_l(cos angle) / volume with G_l(1) = 1, for dim >= 2; clipped at 0."""
    weights = _series_weights(t, dim)  # (degree + 1,)
    # Reinsch's form of the three-term recurrence advances the differences G_{l+1} - G_l: near coincident
    # points the plain form loses a factor l^2 of accuracy.
    cosine_minus_one = -2.0 * np.sin(0.5 * angle) ** 2
    current = np.ones_like(angle)  # G_0
    difference = np.zeros_like(angle)  # G_0 - G_{-1}
    total = np.full_like(angle, weights[0])
    for degree, weight in enumerate(weights[1:]):
        difference *= degree / (degree + dim - 1)
        difference += (2 * degree + dim - 1) / (degree + dim - 1) * cosine_minus_one * current
        current += difference
        total += weight * current
    return np.maximum(total, 0.0)


def _series_weights(t: float, dim: int) -> FloatArray:
    """Weights mult_l e^{-l(l+d-1)t} / volume of the series, truncated where the rest is negligible."""
    log_weights = _log_weights(8, t, dim)
    # The logarithms are concave in l, so beyond this decrease the sum of the rest is below float64 precision.
    while log_weights[-1] > log_weights.max() - 3.0 * _NEGLIGIBLE:
        log_weights = _log_weights(2 * len(log_weights), t, dim)
    weights = np.exp(log_weights)
    rest = np.cumsum(weights[::-1])[::-1]  # rest[l] = sum of the weights from l on
    return np.asarray(weights[: max(1, np.count_nonzero(rest > _TAIL * rest[0]))])


def _log_weights(degrees: int, t: float, dim: int) -> FloatArray:
    """Logarithms of multiplicity times decay over volume, for l = 0 .. degrees - 1."""
    degree = np.arange(degrees, dtype=np.float64)
    # multiplicity (2l + d - 1)/(d - 1) * binomial(l + d - 2, l)
    log_multiplicity = np.log((2.0 * degree + dim - 1.0) / (dim - 1.0))
    log_multiplicity += gammaln(degree + dim - 1.0) - gammaln(degree + 1.0) - gammaln(dim - 1.0)
    log_volume = np.log(2.0) + 0.5 * (dim + 1) * np.log(np.pi) - gammaln(0.5 * (dim + 1))
    return np.asarray(log_multiplicity - degree * (degree + dim - 1.0) * t - log_volume)


def _two_sphere_images(angle: FloatArray, t: float) -> FloatArray:
    """Heat kernel of S^2 for small t by the spherical counterpart of McKean's integral.

    The classical form integrates phi e^{-phi^2/(4t)} / sqrt(cos angle - cos phi) over [angle, 2 pi - angle]. With
    cos(phi/2) = cos(angle/2) cos(psi), the hypotenuse of a right spherical triangle, the singularities cancel and
    the integrand is smooth and periodic in psi, so that the midpoint rule converges exponentially.
    """
    # psi_max: where the integrand has fallen by e^-40 (phi = reach there), at most pi
    reach = np.sqrt(angle**2 + 4.0 * t * _NEGLIGIBLE)
    outer, inner = 0.25 * (reach + angle), t * _NEGLIGIBLE / (reach + angle)  # inner = (reach - angle) / 4
    whole = outer >= 0.5 * np.pi
    tangents = np.tan(np.where(whole, 0.0, outer)) * np.tan(np.where(whole, 0.0, inner))
    psi_max = np.where(whole, np.pi, 2.0 * np.arctan(np.sqrt(tangents)))
    sine, cosine = np.sin(0.5 * angle), np.cos(0.5 * angle)
    total = np.zeros_like(angle)
    for node in range(_SPHERE_NODES):
        psi = psi_max * ((node + 0.5) / _SPHERE_NODES)
        half_sine = np.sqrt(sine**2 + (cosine * np.sin(psi)) ** 2)  # sin(phi / 2)
        half = np.arctan2(half_sine, cosine * np.cos(psi))  # phi / 2; an arc cosine is inaccurate at small angles
        total += half / half_sine * np.exp(np.minimum(0.25 * angle**2 - half**2, 0.0) / t)
    log_scale = np.log(4.0) + 0.25 * t - 1.5 * np.log(4.0 * np.pi * t) - angle**2 / (4.0 * t)
    return np.asarray(np.exp(log_scale) * total * (psi_max / _SPHERE_NODES))


def _three_sphere_images(angle: FloatArray, t: float) -> FloatArray:
    """Heat kernel of S^3 for small t: e^t (4 pi t)^{-3/2} sum_n (a + 2 pi n)/sin(a) e^{-(a + 2 pi n)^2/(4t)}.

    Terms are summed in pairs around the nearer of the two poles, where the formula is 0/0.
    """
    near = angle <= 0.5 * np.pi
    x = np.where(near, angle, np.pi - angle)  # angle to the nearer pole
    around_zero = 1.0 + _image_pair(x, x, 2, t)
    around_pi = -_image_pair(x, np.pi - x, 1, t) - _image_pair(x, np.pi - x, 3, t)
    log_scale = t - 1.5 * np.log(4.0 * np.pi * t) - angle**2 / (4.0 * t)
    ratio = _quotient(x, np.sin(x))
    return np.asarray(np.exp(log_scale) * ratio * np.where(near, around_zero, around_pi))


def _image_pair(x: FloatArray, angle: FloatArray, m: int, t: float) -> FloatArray:
    """Images at x + m pi and x - m pi, divided by x and by the Gaussian of ``angle``."""
    fade = m * np.pi * x / t
    slope = _quotient(-np.expm1(-fade), fade)  # (1 - e^-fade) / fade
    gaussian = np.exp((angle - (m * np.pi - x)) * (angle + (m * np.pi - x)) / (4.0 * t))
    return np.asarray(gaussian * (1.0 + np.exp(-fade) - (m * np.pi) ** 2 / t * slope))


def hyperbolic_three_kernel(distance: FloatArray, t: float) -> FloatArray:
    """Heat kernel of H^3: (4 pi t)^{-3/2} (r / sinh r) e^{-t - r^2/(4t)}."""
    ratio = _quotient(distance, np.sinh(distance))
    return np.asarray(np.exp(-t - distance**2 / (4.0 * t) - 1.5 * np.log(4.0 * np.pi * t)) * ratio)


def hyperbolic_two_kernel(distance: FloatArray, t: float) -> FloatArray:
    """Heat kernel of H^2: McKean's integral over psi >= 0 of s / sinh(s/2) e^{-s^2/(4t)}.

    H^2 lies in H^3, and s, cosh(s/2) = cosh(r/2) cosh(psi), is the hypotenuse of a right hyperbolic triangle with
    the side r in H^2. In s instead of psi the integrand has a factor 1 / sqrt(cosh s - cosh r). In psi it is
    analytic around the real axis, and the midpoint rule converges exponentially.
    """
    # s - r at which e^{-(s^2 - r^2)/(4t) - (s - r)/2} has fallen by e^-40: the root of x^2 + b x = c,
    # written without a difference
    slope, fall = 2.0 * (distance + t), 4.0 * t * _NEGLIGIBLE
    beyond = 2.0 * fall / (slope + np.sqrt(slope**2 + 4.0 * fall))
    sine, cosine = np.sinh(0.5 * distance), np.cosh(0.5 * distance)
    psi_max = np.arcsinh(np.sqrt(np.sinh(distance + 0.5 * beyond) * np.sinh(0.5 * beyond)) / cosine)
    nodes = max(_HYPERBOLIC_NODES, int(np.ceil(psi_max.max(initial=0.0) / _HYPERBOLIC_STEP)))
    total = np.zeros_like(distance)
    for node in range(nodes):
        psi = psi_max * ((node + 0.5) / nodes)
        half_sine = np.sqrt(sine**2 + (cosine * np.sinh(psi)) ** 2)  # sinh(s / 2)
        half = np.arcsinh(half_sine)  # s / 2
        total += half / half_sine * np.exp(np.minimum(0.25 * distance**2 - half**2, 0.0) / t)
    log_scale = np.log(4.0) - 0.25 * t - 1.5 * np.log(4.0 * np.pi * t) - distance**2 / (4.0 * t)
    return np.asarray(np.exp(log_scale) * total * (psi_max / nodes))


def _quotient(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Quotient of two functions with the same slope at 0, where it is 1."""
    return np.divide(numerator, denominator, out=np.ones_like(numerator), where=denominator != 0.0)


def gaussian_step(s2: float, reach: float, dim: int, curvature: float) -> tuple[float, float]:
    """Integral of exp(-distance^2 / s2) over a ball, and the heat time of a step with this density.

    In flat space they are (pi s2)^(dim / 2) and s2 / 4. In a curved space, volume grows differently with distance,
    so the step lasts s2 / 4 (1 - (dim - 1) curvature s2 / 12 + ...). The time is computed exactly: cos d (or cosh
    d) is an eigenfunction of the Laplacian, and its mean under heat is e^{-dim curvature t}. On such a space the
    step is a function of the Laplacian, and to second order in s2 it differs from heat only in its time.

    Parameters
    ----------
    s2 : float
        Bandwidth.
    reach : float
        Length of the longest step.
    dim : int
    curvature : float
        Not zero.
    """
    unit = math.sqrt(abs(curvature))
    longest = unit * reach if curvature < 0 else min(unit * reach, math.pi)
    r = 0.5 * longest * (NODES + 1.0)  # in radii of curvature
    sine = np.sin if curvature > 0 else np.sinh
    density = sine(r) ** (dim - 1) * np.exp(-((r / unit) ** 2) / s2) * WEIGHTS
    total = float(density.sum())
    change = 2.0 * float(density @ sine(0.5 * r) ** 2) / total  # |mean of cos d - 1| without cancellation
    if not change < (1.0 if curvature > 0 else math.inf):  # spread over the whole sphere, or out of range
        return math.nan, math.nan
    time = -math.log1p(-change) if curvature > 0 else math.log1p(change)
    mass = unit_sphere_volume(dim - 1) * 0.5 * longest * total / unit**dim
    return mass, time / (dim * unit**2)


class AbstractBall(AbstractManifold):
    """A homogeneous, unbounded space with a geodesic ball around its origin, which grid and samples cover.

    Grid, samples and volume refer to the ball; distance and heat kernel refer to the whole space.

    Examples
    --------
    >>> from manifoldrf import HyperbolicSpace
    >>> from manifoldrf.geometry.model_spaces import AbstractBall
    >>> isinstance(HyperbolicSpace(), AbstractBall)
    True
    >>> HyperbolicSpace(dim=2).ball(4.0)
    HyperbolicSpace(dim=2, radius=4.0)
    """

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
        return unit_sphere_volume(self.dim - 1) * float(self._radial_integral(np.array([self.radius]))[0])

    def ball(self, radius: float) -> Self:
        """Return the same space with a ball of another radius."""
        changed: Self = dataclasses.replace(self, radius=radius)  # type: ignore[type-var]
        return changed

    def _radial_integral(self, rho: FloatArray) -> FloatArray:
        """Integral of stretch^(dim - 1) from 0 to each rho."""
        half = 0.5 * rho
        s = half[:, None] * (NODES + 1.0)  # (n, nodes)
        return np.asarray(half * (self._stretch(s) ** (self.dim - 1) @ WEIGHTS))

    def _radii(self, u: FloatArray) -> FloatArray:
        """Radii below which the ball holds the fractions u of its volume."""
        table = np.linspace(0.0, self.radius, 1025)[1:]
        held = self._radial_integral(table)
        # The dim-th root of the volume is almost linear in the radius, so the table gives Newton's method a close
        # start.
        target, root = u * held[-1], 1.0 / self.dim
        rho = np.interp(target**root, np.append(0.0, held**root), np.append(0.0, table))
        for _ in range(3):
            rho = rho - (self._radial_integral(rho) - target) / self._stretch(rho) ** (self.dim - 1)
        return np.asarray(np.clip(rho, 0.0, self.radius))

    def _place(self, radii: FloatArray, directions: FloatArray) -> FloatArray:
        return np.asarray(self._coordinate(radii)[:, None] * directions)

    def _grid(self, n: int) -> FloatArray:
        if self.dim == 1:  # Sobol points on a line are even only for powers of two
            side = 2.0 * (np.arange(n)[:, None] + 0.5) / n - 1.0
            return self._place(self._radii(np.abs(side[:, 0])), np.sign(side))
        u = sobol(n, self.dim)
        return self._place(self._radii(u[:, 0]), equal_volume_map(u[:, 1:]))

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        radii = self._radii(1.0 - rng.random(n))  # in (0, 1]: Newton divides by the stretch
        return self._place(radii, random_directions(n, self.dim, rng))

    # Supplied by subclasses.

    @abc.abstractmethod
    def _stretch(self, rho: FloatArray) -> FloatArray:
        """Circumference of a circle of radius rho over 2 pi."""

    @abc.abstractmethod
    def _coordinate(self, rho: FloatArray) -> FloatArray:
        """Euclidean norm of the coordinates of a point at the distance rho from the origin."""

    @abc.abstractmethod
    def _depth(self, points: FloatArray) -> FloatArray:
        """Distance from the origin, the inverse of `_coordinate`."""


# Volumes of unit spheres fall like d^(-d/2): beyond this dimension kernels overflow at short times.
_LARGEST_SPHERE = 100


@stored
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
    >>> import numpy as np
    >>> from manifoldrf import Sphere
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
        store(self, dim=check_integer(self.dim, "dim", 1), radius=check_real(self.radius, "radius", POSITIVE))

    @property
    def ambient_dim(self) -> int:
        """Number of coordinates, dim + 1."""
        return self.dim + 1

    @property
    def volume(self) -> float:
        """Volume of the whole sphere."""
        return unit_sphere_volume(self.dim) * self.radius**self.dim

    def from_lonlat(self, lonlat: Any, latitudes: ArrayLike | None = None) -> FloatArray:
        """Points of longitudes and latitudes in degrees, shape (n, 3); a radius of 6371.0 is the Earth in km.

        Parameters
        ----------
        lonlat : array-like of shape (n, 2), or GeoDataFrame of points
            Longitude in [-360, 360], then latitude in [-90, 90].
        latitudes : array-like of shape (n,), optional
            The latitudes, if ``lonlat`` holds only longitudes.

        Examples
        --------
        >>> from manifoldrf import Sphere
        >>> earth = Sphere(radius=6371.0)
        >>> date_line = earth.from_lonlat([[-179.9, 0.0], [179.9, 0.0]])
        >>> round(float(earth.distance(date_line, date_line)[0, 1]), 2)
        22.24
        """
        if self.dim != 2:
            reject("dim", "2 for longitudes and latitudes", self.dim)
        if latitudes is not None:
            if np.shape(lonlat) != np.shape(latitudes):
                reject("latitudes", f"of the shape {np.shape(lonlat)} of the longitudes", np.shape(latitudes))
            lonlat = np.column_stack([lonlat, latitudes])
        if (names := column_names(lonlat)) and names[0].lower().startswith("lat"):
            reject("lonlat", "longitudes, then latitudes", f"columns {', '.join(names)}")
        degrees = check_points(lonlat_of(lonlat), "lonlat", n_columns=2)
        for column, name, most in ((0, "longitudes", 360.0), (1, "latitudes", 90.0)):
            worst = int(np.abs(degrees[:, column]).argmax())
            if abs(degrees[worst, column]) > most:
                rule = f"longitudes, then latitudes, in degrees: {name} in [-{most:g}, {most:g}]"
                reject("lonlat", rule, f"{degrees[worst, column]:g} in row {worst}")
        east, north = np.radians(degrees).T
        rows = np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)
        return self.radius * np.stack(rows, axis=1)

    def to_lonlat(self, points: ArrayLike) -> FloatArray:
        """Longitude in [-180, 180] and latitude in degrees of points near the sphere, shape (n, 2)."""
        if self.dim != 2:
            reject("dim", "2 for longitudes and latitudes", self.dim)
        x, y, z = check_points(points, n_columns=3).T
        return np.asarray(np.degrees(np.stack([np.arctan2(y, x), np.arctan2(z, np.hypot(x, y))], axis=1)))

    def _grid(self, n: int) -> FloatArray:
        if self.dim == 1:
            return self.radius * equal_volume_map(np.linspace(0.0, 1.0, n, endpoint=False)[:, None])
        return self.radius * (fibonacci(n) if self.dim == 2 else equal_volume_map(sobol(n, self.dim)))

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        return self.radius * random_directions(n, self.ambient_dim, rng)

    def _member(self, points: FloatArray) -> BoolArray:
        return np.abs(norm(points) - self.radius) <= TOLERANCE * self.radius

    def _angle(self, x: FloatArray, y: FloatArray) -> FloatArray:
        x, y = x / norm(x)[..., None], y / norm(y)[..., None]
        # Kahan's form is accurate at both ends; the arc cosine is inaccurate below 1e-8 and near pi.
        return np.asarray(2.0 * np.arctan2(gap(x, y), gap(x, -y)))

    def _distance(self, x: FloatArray, y: FloatArray) -> FloatArray:
        return self.radius * self._angle(x, y)

    def _reach(self, points: FloatArray, r: FloatArray) -> FloatArray:
        return np.asarray(2.0 * self.radius * np.sin(0.5 * np.minimum(r / self.radius, np.pi)))  # the chord

    def _gaussian_step(self, s2: float, reach: float) -> tuple[float, float]:
        return gaussian_step(s2, reach, self.dim, self.radius**-2.0)

    def _heat(self, x: FloatArray, y: FloatArray, t: float) -> FloatArray:
        unit_time = t / self.radius**2
        if self.dim > _LARGEST_SPHERE:
            self._unknown(f"heat kernel for dim > {_LARGEST_SPHERE}", "its values leave the range of floats")
        if self.dim > 3:  # shorter times need a series of many thousand terms
            check_real(unit_time, "t / radius^2", Interval(1e-6))
        return sphere_kernel(self._angle(x, y), unit_time, self.dim) / self.radius**self.dim


@stored
@final
@dataclass(frozen=True)
class Rotations(AbstractManifold):
    """The rotations of space, SO(3), with the angle of the rotation between them as distance.

    A point is a row of the nine entries of its matrix, row by row. The methods also take matrices and quaternions;
    ``rows`` converts these. A rotation is a pair of opposite points on a 3-sphere of radius 2, so the heat kernel
    is the sum of two values of the sphere's. The grid is an equal-volume image of Sobol points.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Rotations
    >>> rotations = Rotations()
    >>> turns = [[0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 1.0, 0.0]]  # quaternions: none, and half a turn around z
    >>> rotations.rows(turns)[1].tolist()
    [-1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0, 0.0, 1.0]
    >>> rotations.distance(turns, turns)[0] / np.pi
    array([0., 1.])
    """

    _equation: ClassVar[str] = "the nine entries of a rotation matrix"
    # A rotation by a small angle changes the nine entries by sqrt(2) times the angle.
    _steps_along_distance: ClassVar[bool] = True

    @property
    def dim(self) -> int:
        """Dimension, 3."""
        return 3

    @property
    def ambient_dim(self) -> int:
        """Number of coordinates, 9."""
        return 9

    @property
    def volume(self) -> float:
        """Volume of all rotations, 8 pi^2."""
        return 8.0 * np.pi**2

    def rows(self, rotations: ArrayLike, name: str = "rotations") -> FloatArray:
        """Convert rotations to points, shape (n, 9).

        Parameters
        ----------
        rotations : array-like of shape (n, 3, 3), (n, 4) or (n, 9)
            Matrices, quaternions (x, y, z, w) of any length (as scipy's ``Rotation.as_quat`` has them), or points.
        name : str, default="rotations"
            Name of the argument in errors.
        """
        array = as_floats(rotations, name)
        if array.ndim == 3 and array.shape[1:] == (3, 3):
            return array.reshape(-1, 9)
        if array.ndim == 2 and array.shape[1] == 4:
            lengths = norm(check_points(array, name))
            if not lengths.all():
                reject(name, "quaternions that are not zero", f"zeros at index {int(np.argmin(lengths))}")
            return _matrix_rows(array / lengths[:, None])
        return array

    def _checked(self, points: ArrayLike, name: str, min_rows: int) -> FloatArray:
        return super()._checked(self.rows(points, name), name, min_rows)

    def _grid(self, n: int) -> FloatArray:
        half = sobol(n, 3)
        half[:, 2] = 0.5 * (1.0 + half[:, 2])  # the half of the sphere with w > 0
        return _matrix_rows(equal_volume_map(half))

    def _sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        return _matrix_rows(random_directions(n, 4, rng))

    def _member(self, points: FloatArray) -> BoolArray:
        matrices = points.reshape(-1, 3, 3)
        far = np.abs(points).max(axis=1, initial=0.0) > 2.0  # squares of large numbers overflow
        matrices = np.where(far[:, None, None], 0.0, matrices)
        skew = np.abs(matrices @ matrices.swapaxes(1, 2) - np.eye(3)).max(axis=(1, 2), initial=0.0)
        return np.asarray((skew <= 4 * TOLERANCE) & (np.linalg.det(matrices) > 0))

    def _distance(self, x: FloatArray, y: FloatArray) -> FloatArray:
        chord2 = gap(x, y) ** 2  # 8 sin(angle / 2)^2
        near = 2.0 * np.arcsin(np.sqrt(np.minimum(chord2, 4.0) / 8.0))
        # Beyond a quarter turn the arc sine is inaccurate. The skew part of X Y^T has the length 2 sin(angle).
        axis2 = np.zeros_like(chord2)
        for i, j in ((0, 3), (3, 6), (6, 0)):
            pairs = ((x[..., i + k] * y[..., j + k], x[..., j + k] * y[..., i + k]) for k in range(3))
            axis2 += sum(one - other for one, other in pairs) ** 2
        return np.where(chord2 < 4.0, near, np.arctan2(0.5 * np.sqrt(axis2), 1.0 - 0.25 * chord2))

    def _reach(self, points: FloatArray, r: FloatArray) -> FloatArray:
        return np.asarray(math.sqrt(8.0) * np.sin(0.5 * np.minimum(r, np.pi)))

    def _gaussian_step(self, s2: float, reach: float) -> tuple[float, float]:
        return gaussian_step(s2, min(reach, np.pi), 3, 0.25)

    def _heat(self, x: FloatArray, y: FloatArray, t: float) -> FloatArray:
        angle = 0.5 * self._distance(x, y)  # on the sphere
        return (sphere_kernel(angle, t / 4.0, 3) + sphere_kernel(np.pi - angle, t / 4.0, 3)) / 8.0


def _matrix_rows(quaternions: FloatArray) -> FloatArray:
    """Rotation matrices of unit quaternions (x, y, z, w), as rows of nine entries."""
    x, y, z, w = quaternions.T
    rows = [1 - 2 * (y * y + z * z), 2 * (x * y - z * w), 2 * (x * z + y * w)]
    rows += [2 * (x * y + z * w), 1 - 2 * (x * x + z * z), 2 * (y * z - x * w)]
    rows += [2 * (x * z - y * w), 2 * (y * z + x * w), 1 - 2 * (x * x + y * y)]
    return np.stack(rows, axis=1)


@stored
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
    >>> from manifoldrf import FlatTorus
    >>> torus = FlatTorus(dim=2, side=3.0)
    >>> torus.volume, torus.box
    (9.0, (3.0, 3.0))
    >>> torus.grid(4).tolist()
    [[0.0, 0.0], [0.0, 1.5], [1.5, 0.0], [1.5, 1.5]]
    """

    dim: int = 2
    side: float = 1.0
    _equation: ClassVar[str] = "any finite coordinates"
    _steps_along_distance: ClassVar[bool] = True

    def __post_init__(self) -> None:
        store(self, dim=check_integer(self.dim, "dim", 1), side=check_real(self.side, "side", POSITIVE))

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

    def _offset(self, x: FloatArray, y: FloatArray) -> FloatArray:
        apart = np.abs(x - y)
        return np.minimum(apart, self.side - apart)

    def _distance(self, x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(np.sqrt(sum(self._offset(x[..., k], y[..., k]) ** 2 for k in range(self.dim))))

    def _heat(self, x: FloatArray, y: FloatArray, t: float) -> FloatArray:
        unit = 2.0 * np.pi / self.side  # turns a coordinate into an angle of the unit circle
        angles = [unit * self._offset(x[..., k], y[..., k]) for k in range(self.dim)]
        factors = [circle_log_kernel(angle, t * unit**2) for angle in angles]
        return np.asarray(np.exp(sum(factors) + self.dim * np.log(unit)))


@stored
@final
@dataclass(frozen=True)
class HyperbolicSpace(AbstractBall):
    """Hyperbolic space H^dim of curvature -1 in the Poincare ball model: coordinates with |x| < 1.

    Grid, samples and volume refer to the geodesic ball of the given radius around the origin, which is the
    Euclidean ball of radius tanh(radius / 2). Distance and heat kernel refer to the whole space. The grid is an
    equal-volume image of Sobol points. The heat kernel is McKean's integral on H^2 and a closed form
    on H^3.

    Parameters
    ----------
    dim : int
        Dimension, at least 2.
    radius : float
        Geodesic radius of the ball, at most 20 (farther out, different points round to the same coordinates)
        and at most 200 / (dim - 1).

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import HyperbolicSpace
    >>> ball = HyperbolicSpace(dim=2, radius=1.0)
    >>> round(float(ball.volume / (2 * np.pi * (np.cosh(1.0) - 1.0))), 12)
    1.0
    >>> round(float(ball.distance([[0.0, 0.0]], ball.grid(100)).max()), 1)
    1.0
    """

    dim: int = 3
    radius: float = 2.0
    _equation: ClassVar[str] = "|x| < 1"
    _steps_along_distance: ClassVar[bool] = True

    def __post_init__(self) -> None:
        dim = check_integer(self.dim, "dim", 2)
        # The second bound keeps the radial quadrature exact: the volume grows like e^{(dim - 1) radius}.
        farthest = min(20.0, 200.0 / (dim - 1))
        store(self, dim=dim, radius=check_real(self.radius, "radius", Interval(0.0, farthest, low_open=True)))

    def _stretch(self, rho: FloatArray) -> FloatArray:
        return np.asarray(np.sinh(rho))

    def _coordinate(self, rho: FloatArray) -> FloatArray:
        return np.asarray(np.tanh(0.5 * rho))

    def _depth(self, points: FloatArray) -> FloatArray:
        # At the largest radii the norm of a point rounds to 1.
        return np.asarray(2.0 * np.arctanh(np.minimum(norm(points), np.nextafter(1.0, 0.0))))

    def _member(self, points: FloatArray) -> BoolArray:
        return norm(points) < 1.0

    def _reach(self, points: FloatArray, r: FloatArray) -> FloatArray:
        # A metric ball is a Euclidean ball with another centre: x (1 - T^2) / (1 - T^2 |x|^2).
        size, tanh = norm(points), np.tanh(0.5 * r)
        # Its radius plus the shift of the centre:
        return np.asarray(tanh * (1.0 - size) * (1.0 + size) / (1.0 - tanh * size))

    def _distance(self, x: FloatArray, y: FloatArray) -> FloatArray:
        inside = [(1.0 - norm(z)) * (1.0 + norm(z)) for z in (x, y)]  # 1 - |z|^2 without cancellation
        return np.asarray(2.0 * np.arcsinh(gap(x, y) / np.sqrt(inside[0] * inside[1])))

    def _gaussian_step(self, s2: float, reach: float) -> tuple[float, float]:
        return gaussian_step(s2, reach, self.dim, -1.0)

    def _heat(self, x: FloatArray, y: FloatArray, t: float) -> FloatArray:
        if self.dim > 3:
            self._unknown("heat kernel for dim > 3", "use a heat_graph of its points, with the space as metric")
        kernel = hyperbolic_two_kernel if self.dim == 2 else hyperbolic_three_kernel
        return kernel(self._distance(x, y), t)


@stored
@final
@dataclass(frozen=True)
class EuclideanSpace(AbstractBall):
    """Flat space R^dim, covered by the ball of a given radius around the origin.

    Grid, samples and volume refer to the ball. Distance and heat kernel, a Gaussian, refer to the whole space. The
    grid is an equal-volume image of Sobol points.

    Parameters
    ----------
    dim : int
        Dimension, at least 1. The space of dimension 1 is an interval, for example of time.
    radius : float
        Radius of the ball.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.geometry.model_spaces import EuclideanSpace
    >>> ball = EuclideanSpace(dim=3, radius=2.0)
    >>> round(float(ball.volume / (4 / 3 * np.pi * 2.0**3)), 12)
    1.0
    >>> round(float(ball.heat_kernel([[0.0, 0.0, 0.0]], [[0.0, 0.0, 3.0]], t=0.25)[0, 0] * np.pi**1.5), 8)
    0.00012341
    """

    dim: int = 3
    radius: float = 1.0
    _equation: ClassVar[str] = "any finite coordinates"

    def __post_init__(self) -> None:
        dim = check_integer(self.dim, "dim", 1, _LARGEST_SPHERE)
        store(self, dim=dim, radius=check_real(self.radius, "radius", POSITIVE))

    def _stretch(self, rho: FloatArray) -> FloatArray:
        return rho

    def _coordinate(self, rho: FloatArray) -> FloatArray:
        return rho

    def _depth(self, points: FloatArray) -> FloatArray:
        return norm(points)

    def _distance(self, x: FloatArray, y: FloatArray) -> FloatArray:
        return gap(x, y)

    def _heat(self, x: FloatArray, y: FloatArray, t: float) -> FloatArray:
        log_scale = 0.5 * self.dim * np.log(4.0 * np.pi * t)
        return np.asarray(np.exp(-(gap(x, y) ** 2) / (4.0 * t) - log_scale))
