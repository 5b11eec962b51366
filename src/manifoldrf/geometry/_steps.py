"""How long one Gaussian step lasts in a space of constant curvature, and how much volume it sees."""

import math

import numpy as np

from manifoldrf.geometry._point_sets import NODES, WEIGHTS, unit_sphere_volume


def gaussian_step(s2: float, reach: float, dim: int, curvature: float) -> tuple[float, float]:
    """Integral of exp(-distance^2 / s2) over a ball, and the heat time of a step with this density.

    In flat space they are (pi s2)^(dim / 2) and s2 / 4. In a curved one the step sees another volume at the same
    distance, so that it lasts s2 / 4 (1 - (dim - 1) curvature s2 / 12 + ...). Its time is exact: for heat, cos d
    (or cosh d), an eigenfunction of the Laplacian, has the mean e^{-dim curvature t}. On such a space the step is a
    function of the Laplacian, and to second order in s2 it differs from heat by its time alone.

    Parameters
    ----------
    s2 : float
        Bandwidth.
    reach : float
        Longer steps are not taken.
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
