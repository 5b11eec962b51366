"""Heat kernels of the model spaces as functions of the distance: theta series, image integrals, closed forms.

Everything is for unit size (radius 1, curvature +1 or -1) and for the clock of e^{t Delta}. Each kernel is
written as a Gaussian, whose exponent may underflow on its own, times a factor without cancellation; so the
values keep their relative accuracy far into the tails, where the eigenfunction series is all round-off.
"""

import numpy as np
from scipy.special import gammaln

from manifoldrf._validation import FloatArray

# Up to this time the nearest images suffice: the next ones are below e^{-pi^2/t} = 1e-18. At this time the
# eigenfunction series has lost four digits to cancellation at the antipode (3e-13 is wrong there), later fewer.
_IMAGES_UNTIL = 0.24
# The theta function is its own Fourier transform; both of its series converge equally fast at this time.
_SELF_DUAL_TIME = np.pi
# Terms below e^-40 = 4e-18 of the largest one are beneath float64.
_NEGLIGIBLE = 40.0
# With these numbers of nodes the midpoint rules agree with four times as many to 2e-13 (relative), at every
# angle or distance and every time; the rest is the rounding of exponents of several hundred.
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

    Relative to the value itself the error is below 1e-10 for dim <= 3. From dim = 4 on it is relative to the
    value at coincident points, because the series cancels where t is small and the points are far apart.
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
    """Weights mult_l e^{-l(l+d-1)t} / volume of the series, cut where the rest is below its share."""
    degrees = 8
    log_weights = _log_weights(degrees, t, dim)
    # The logarithms are concave in l, so that beyond this fall the whole rest is beneath float64.
    while log_weights[-1] > log_weights.max() - 3.0 * _NEGLIGIBLE:
        degrees *= 2
        log_weights = _log_weights(degrees, t, dim)
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
        half = np.arctan2(half_sine, cosine * np.cos(psi))  # phi / 2; an arc cosine would blur small angles
        total += half / half_sine * np.exp(np.minimum(0.25 * angle**2 - half**2, 0.0) / t)
    log_scale = np.log(4.0) + 0.25 * t - 1.5 * np.log(4.0 * np.pi * t) - angle**2 / (4.0 * t)
    return np.asarray(np.exp(log_scale) * total * (psi_max / _SPHERE_NODES))


def _three_sphere_images(angle: FloatArray, t: float) -> FloatArray:
    """Heat kernel of S^3 for small t: e^t (4 pi t)^{-3/2} sum_n (a + 2 pi n)/sin(a) e^{-(a + 2 pi n)^2/(4t)}.

    The sum is taken in pairs around the nearer of the two poles, where it is 0/0.
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
    """Heat kernel of H^2 by McKean's integral over s >= r against s e^{-s^2/(4t)} / sqrt(cosh s - cosh r).

    With cosh(s/2) = cosh(r/2) cosh(psi), the hypotenuse of a right hyperbolic triangle, the singularity cancels;
    the integrand is analytic around the real axis and the midpoint rule converges exponentially.
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
