"""The field of a Gaussian kernel: windows around centres, each row scaled to length one.

Sums over centres a of exp(-|x - a|^2 / b) exp(-|y - a|^2 / b) are exp(-|x - y|^2 / 2b) times the density of centres
around the midpoint of x and y. Rows of length one divide by the densities around x and around y. For centres from a
normal distribution, the result is exactly Gaussian again, but wider. Therefore b is fitted.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import optimize
from scipy.spatial.distance import cdist

from manifoldrf._codec import stored
from manifoldrf._runtime import one_blas_thread, quick_map
from manifoldrf._validation import FloatArray, reject
from manifoldrf.fields.data import AbstractField, Problem
from manifoldrf.geometry.csr import check_shape
from manifoldrf.geometry.graphs import check_positive_float
from manifoldrf.metrics import relative_error

_QUERIES_AT_ONCE = 128  # per task
_LARGEST = 1e300  # squared distances stay finite
# Bandwidths b over 2 t that are tried. The best were .2 to .9 for kernels as wide as the median distance or as the
# distance to the nearest neighbour; wider kernels need smaller ones.
_BANDWIDTHS = np.geomspace(1e-3, 1.5, 25)


@stored
@dataclass(frozen=True, eq=False)
class GaussianField(AbstractField):
    """exp(-|z - a_l|^2 / b), divided by the length of the row.

    Attributes
    ----------
    centres : array of shape (m, d)
        The points a_l.
    bandwidth : float
        b.
    """

    centres: FloatArray
    bandwidth: float

    def check(self, problem: Problem, n_anchors: int) -> None:
        """Raise if the centres do not fit the problem and the anchors."""
        check_shape("centres", self.centres, (n_anchors, problem.graph.positions.shape[1]))
        if not np.isfinite(self.centres).all():
            reject("centres", "finite", "NaN or inf")
        check_positive_float(self.bandwidth, "bandwidth")

    @property
    def bounds(self) -> FloatArray:
        """Ones: rows have length one."""
        return np.ones(len(self.centres))

    def values(self, queries: FloatArray, n_jobs: int = 1) -> FloatArray:
        """Rows of length one, shape (len(queries), m)."""
        unit = np.sqrt(self.bandwidth)
        places, centres = queries / unit, self.centres / unit
        rows = np.zeros((len(queries), len(centres)))

        def fill(span: tuple[int, int]) -> None:
            squares = cdist(places[slice(*span)], centres, "sqeuclidean")
            rows[slice(*span)] = windows(np.minimum(squares, _LARGEST))

        quick_map(fill, pairwise([*range(0, len(queries), _QUERIES_AT_ONCE), len(queries)]), n_jobs)
        return rows


def windows(squares: FloatArray) -> FloatArray:
    """Gaussians of squared distances, shape (q, m), in rows of length one."""
    values = np.exp(squares.min(axis=1, keepdims=True) - squares)  # relative to the nearest: nothing underflows
    return np.asarray(values / np.sqrt((values * values).sum(axis=1, keepdims=True)))


def gaussian_kernel(points: FloatArray, t: float) -> FloatArray:
    """exp(-|x - y|^2 / 4t) between all points, the heat kernel of flat space up to a factor."""
    unit = 2 * np.sqrt(t)
    return np.asarray(np.exp(-cdist(points / unit, points / unit, "sqeuclidean")))


@one_blas_thread()
def fit_gaussian(centres: FloatArray, t: float, points: FloatArray) -> GaussianField:
    """The field whose kernel is closest to exp(-|x - y|^2 / 4t) between some points that are not centres."""
    exact = gaussian_kernel(points, t)
    unit = np.sqrt(2 * t)
    squares = np.minimum(cdist(points / unit, centres / unit, "sqeuclidean"), _LARGEST)

    def error(log_share: float) -> float:
        rows = windows(squares / np.exp(log_share))
        return relative_error(rows @ rows.T, exact)

    tried = np.log(_BANDWIDTHS)
    best = tried[np.argmin([error(share) for share in tried])]
    step = tried[1] - tried[0]
    found: Any = optimize.minimize_scalar(
        error, bounds=(best - step, best + step), method="bounded", options={"xatol": 0.01}
    )
    return GaussianField(centres, float(2 * t * np.exp(found.x)))
