"""Point sets on spheres and in rectangles: lattices, quasi-random points, samples; and their quadrature."""

from collections.abc import Callable

import numpy as np
from scipy.special import betaincinv, gammaln
from scipy.stats import qmc

from manifoldrf._validation import FloatArray

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

    Normalised Gaussian quantiles would do so only from one dimension more, and send points of one ray to one.
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
    """Draw n points of a density by rejection; ``bound`` is its maximum."""
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
