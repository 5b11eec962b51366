"""The radial heat kernels against 40-digit values, against each other, and against the heat equation."""

import numpy as np
import pytest
from numpy.polynomial.legendre import leggauss
from scipy.special import gamma

from manifoldrf.geometry import model_spaces as _heat_series

NODES, WEIGHTS = leggauss(160)

# (dim, angle, t, value): the eigenfunction series summed with mpmath, the precision raised until the cancellation
# was covered (up to 360 digits).
SPHERE_VALUES = [
    (1, 0.0, 0.002, 6.3078313050504001),
    (1, 2.0, 0.002, 4.4940626093666641e-217),
    (1, 0.3, 0.05, 0.80441016315624895),
    (1, 3.14, 0.05, 9.3519957023457092e-22),
    (1, 3.14, 0.3, 0.00027602579988359904),
    (1, 0.3, 2.0, 0.20039759525923581),
    (2, 0.0, 0.002, 39.815272211196075),
    (2, 0.3, 0.002, 0.00052180020178858207),
    (2, 2.0, 0.002, 4.2072893529533075e-216),
    (2, 0.0, 0.05, 1.618343071442043),
    (2, 2.0, 0.05, 4.9562609141473638e-9),
    (2, 3.14, 0.05, 1.4865466606761825e-20),
    (2, 0.3, 0.3, 0.27437187780704963),
    (2, 3.14, 0.3, 0.00077890133743855621),
    (2, 2.0, 2.0, 0.077757266942935718),
    (3, 0.0, 0.002, 251.48309665941178),
    (3, 0.3, 0.002, 0.0033207023609362855),
    (3, 2.0, 0.002, 3.940867936707325e-215),
    (3, 0.0, 0.05, 2.1107894826014577),
    (3, 2.0, 0.05, 9.5692812052865492e-9),
    (3, 3.14, 0.05, 1.5273916227805969e-19),
    (3, 3.14, 0.3, 0.0015268849617346301),
    (3, 2.0, 2.0, 0.050451555922596101),
    (4, 0.0, 0.01, 64.604572231155835),
    (4, 0.3, 0.01, 6.9645838531710339),
    (4, 3.14, 0.3, 0.0025598352940885338),
    (7, 0.0, 0.01, 1524.4926068551085),
    (7, 0.3, 0.3, 0.068526321620951214),
    (7, 3.14, 0.3, 0.0085050070451621881),
]

# (distance, t, value): McKean's integral, in its usual form, with mpmath.
HYPERBOLIC_PLANE_VALUES = [
    (0.0, 0.002, 39.762220555414713),
    (0.3, 0.002, 0.00051334654848829756),
    (2.0, 0.002, 2.1037459410297305e-216),
    (0.0, 0.5, 0.13505600024041982),
    (0.3, 0.5, 0.12817822871779273),
    (2.0, 0.5, 0.013668272010699109),
    (15.0, 0.5, 5.8530977522344805e-53),
    (0.0, 30.0, 6.5133923677944167e-7),
    (2.0, 30.0, 4.9554670644540039e-7),
    (15.0, 30.0, 4.778836003810147e-10),
]

# name: (dim, kernel(distance, t), the sine of the geometry, its radial range at time t)
RADIAL = {
    f"S^{dim}": (dim, lambda r, t, dim=dim: _heat_series.sphere_kernel(r, t, dim), np.sin, lambda t: np.pi)
    for dim in (1, 2, 3, 4, 6)
} | {
    f"H^{dim}": (
        dim,
        {2: _heat_series.hyperbolic_two_kernel, 3: _heat_series.hyperbolic_three_kernel}[dim],
        np.sinh,
        lambda t, dim=dim: 14.0 * np.sqrt(t) + 2.0 * max(dim, 2) * t,
    )
    for dim in (2, 3)
}


@pytest.fixture(params=RADIAL.values(), ids=RADIAL.keys())
def radial(request):
    return request.param


def test_kernels_equal_the_multiprecision_values():
    for dim, angle, t, value in SPHERE_VALUES:
        found = _heat_series.sphere_kernel(np.array([angle]), t, dim)[0]
        assert found == pytest.approx(value, rel=1e-12), (dim, angle, t)
    for distance, t, value in HYPERBOLIC_PLANE_VALUES:
        found = _heat_series.hyperbolic_two_kernel(np.array([distance]), t)[0]
        assert found == pytest.approx(value, rel=1e-12), (distance, t)


def test_heat_is_neither_lost_nor_made(radial):
    dim, kernel, sine, extent = radial
    shell = 2 * np.pi ** (dim / 2) / gamma(dim / 2)  # volume of S^(dim-1)
    for t in (0.01, 0.2, 0.26, 1.0, 5.0):
        r = 0.5 * extent(t) * (NODES + 1.0)
        mass = 0.5 * extent(t) * shell * WEIGHTS @ (kernel(r, t) * sine(r) ** (dim - 1))
        assert mass == pytest.approx(1.0, abs=1e-10), t


@pytest.mark.parametrize("t", [0.05, 2.0])
def test_heat_equation_holds(radial, t):
    """d/dt K = K'' + (dim - 1) (sin'/sin) K', by central differences of fourth order (error about 1e-8)."""
    dim, kernel, sine, _ = radial
    r, h = np.linspace(0.2, 2.8, 14), 2e-3
    cotangent = (np.cos(r) if sine is np.sin else np.cosh(r)) / sine(r)
    minus2, minus1, mid, plus1, plus2 = (kernel(r + k * h, t) for k in (-2, -1, 0, 1, 2))
    first = (minus2 - 8 * minus1 + 8 * plus1 - plus2) / (12 * h)
    second = (-minus2 + 16 * minus1 - 30 * mid + 16 * plus1 - plus2) / (12 * h**2)
    d = 1e-3 * t
    rate = (kernel(r, t - 2 * d) - 8 * kernel(r, t - d) + 8 * kernel(r, t + d) - kernel(r, t + 2 * d)) / (12 * d)
    scale = np.abs(second) + np.abs(cotangent * first) + mid / t
    # From S^4 on the accuracy is relative to the peak, not to the value.
    noise = 1e-13 * kernel(np.zeros(1), t) / h**2 if dim > 3 and sine is np.sin else 0.0
    np.testing.assert_array_less(np.abs(rate - second - (dim - 1) * cotangent * first), 1e-5 * scale + noise)


@pytest.mark.parametrize("dim", [2, 3])
def test_images_and_series_agree_where_both_converge(dim):
    angle = np.linspace(0.0, np.pi, 501)
    images = {2: _heat_series._two_sphere_images, 3: _heat_series._three_sphere_images}[dim]
    for t in (0.2, 0.24):
        np.testing.assert_allclose(images(angle, t), _heat_series.gegenbauer_series(angle, t, dim), rtol=1e-11)


def test_extreme_times_give_finite_nonnegative_values(radial):
    dim, kernel, _, _ = radial
    for t in (1e-100, 1e-12, 1e12, 1e100):
        # Shorter times than 1e-5 are refused by spheres of more than three dimensions.
        value = kernel(np.array([0.0, 1e-15, 1e-6, 1.0, 3.0, np.pi]), max(t, 1e-5) if dim > 3 else t)
        assert np.isfinite(value).all()
        assert (value >= 0.0).all()
    assert kernel(np.zeros((0, 3)), 0.1).shape == (0, 3)


def test_short_times_give_the_gaussian(radial):
    dim, kernel, _, _ = radial
    t = 1e-5
    r = np.sqrt(t) * np.linspace(0.0, 6.0, 13)
    gaussian = (4 * np.pi * t) ** (-dim / 2) * np.exp(-(r**2) / (4 * t))
    # The first correction is of order (t + r^2) times the curvature, here below 36 t dim^2.
    np.testing.assert_allclose(kernel(r, t), gaussian, rtol=36 * t * dim**2)
