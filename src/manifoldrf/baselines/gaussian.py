"""Positive features of the Gaussian kernel in closed form: the field that signatures of grids tend to."""

import numpy as np
from scipy.spatial.distance import cdist

from manifoldrf._random import SeedLike, Streams
from manifoldrf._runtime import warn_user
from manifoldrf._validation import FloatArray, IntArray, check_integer, check_option, reject
from manifoldrf.baselines._base import AbstractGaussianBaseline
from manifoldrf.features.fitting import FeatureWarning

__all__ = ["GaussianFeatures"]

ANCHORS = ("grid", "uniform")
# In units of sigma. The product of two features is a Gaussian of the anchor, sigma / 2 wide, around the middle of
# the two points. Of one on the edge of the box, 4 of these widths leave out 3e-5.
_PAD = 2.0
# Spacing of a grid in units of sigma: the sum over a line is off by 2 exp(-pi^2 / (2 spacing^2)), 1.4 % at 1,
# and 8e-6 at .63.
_COARSE = 1.0
_HOPELESS = 1e6  # nodes: no grid of that many features is of use
# Cells of an axis so much longer than the others that taking them away one by one would take forever.
_LONG, _LONGEST = 1e5, 1e15


class GaussianFeatures(AbstractGaussianBaseline):
    """Gaussian bumps around anchors: positive and bounded features of the Gaussian kernel, in closed form.

    g(x, omega) = (2 / (pi sigma^2))^(d / 4) exp(-|x - omega|^2 / sigma^2). The integral of g(x, .) g(y, .) is
    exp(-|x - y|^2 / (2 sigma^2)), and a sum over anchors takes its place: phi(x)_l = sqrt(w_l) g(x, omega_l).

    Parameters
    ----------
    n_features : int, default=512
        Number of anchors; of a grid, the most that it may have.
    sigma : float, default=1.0
        Width of the kernel.
    anchors : {"grid", "uniform"}, default="grid"
        In the box around the data, wider by 2 sigma on each side. "grid": the centres of equal cells. Accurate to
        2 exp(-pi^2 sigma^2 / (2 h^2)) per axis for cells of side h, so h = .75 sigma is 3e-4; hopeless above a few
        dimensions, and a warning says so. "uniform": random, unbiased but for the share of 3e-5 that lies outside.
        Points beyond the box of the data lose more.
    random_state : None, int, Generator or RandomState, default=None
        Of "uniform".

    Attributes
    ----------
    anchors_ : array of shape (m, d)
    box_ : array of shape (2, d)
        Lower and upper corner.
    shape_ : int array of shape (d,)
        Cells of the grid along each axis; only of a grid.
    bound_ : array of shape (m,)
        Largest value that each feature can take.
    n_features_in_, n_features_out_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.baselines import GaussianFeatures
    >>> X = np.random.default_rng(0).uniform(size=(100, 2))
    >>> features = GaussianFeatures(n_features=400, sigma=0.3).fit(X)
    >>> bool(np.abs(features.kernel(X) - features.exact_kernel(X)).max() < 1e-4)
    True
    """

    def __init__(
        self,
        *,
        n_features: int = 512,
        sigma: float = 1.0,
        anchors: str = "grid",
        random_state: SeedLike = None,
    ) -> None:
        self.n_features = n_features
        self.sigma = sigma
        self.anchors = anchors
        self.random_state = random_state

    def _draw(self, points: FloatArray, streams: Streams) -> None:
        n_features = check_integer(self.n_features, "n_features", 1)
        kind = check_option(self.anchors, "anchors", ANCHORS)
        pad = _PAD * self.sigma_
        lowest, highest = points.min(axis=0), points.max(axis=0)
        if (highest + pad <= lowest - pad).any():
            reject("sigma", "large enough to be seen beside the coordinates", self.sigma_)
        self.box_ = np.stack([lowest - pad, highest + pad])
        low, sides = self.box_[0], np.ptp(self.box_, axis=0)
        if kind == "grid":
            self.shape_ = grid_shape(sides, n_features)
            _warn_of_coarse(sides / self.sigma_, self.shape_)
            cells = np.stack(np.unravel_index(np.arange(self.shape_.prod()), tuple(self.shape_)), axis=1)
            self.anchors_ = low + (cells + 0.5) * (sides / self.shape_)
        else:
            rng = streams.generator("baselines.anchors")
            self.anchors_ = low + sides * rng.random((n_features, len(sides)))

    @property
    def n_features_out_(self) -> int:
        """Number of features."""
        return len(self.anchors_)

    @property
    def bound_(self) -> FloatArray:
        """Largest value that each feature can take, shape (m,): that at its anchor."""
        with np.errstate(over="ignore"):
            return np.full(self.n_features_out_, np.exp(self._log_height))

    @property
    def _log_height(self) -> float:
        """Logarithm of sqrt(w) g(omega, omega); the volume of the box is shared by all anchors alike."""
        sides = np.ptp(self.box_, axis=0) / self.sigma_  # in units of sigma, or powers of it would overflow
        volumes = np.log(sides).sum() - np.log(self.n_features_out_)
        return float(volumes / 2 + len(sides) / 4 * np.log(2 / np.pi))

    def _rows(self, points: FloatArray) -> FloatArray:
        gaps = cdist(points / self.sigma_, self.anchors_ / self.sigma_, "sqeuclidean")
        return np.asarray(np.exp(self._log_height - gaps))


def grid_shape(sides: FloatArray, most: int) -> IntArray:
    """Cells along each axis of a box: as nearly cubes as can be, at most ``most`` together.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.baselines.gaussian import grid_shape
    >>> grid_shape(np.array([1.0, 4.0]), 100).tolist()
    [5, 20]
    """
    logs = np.log(sides)
    side = np.exp((logs.sum() - np.log(most)) / len(sides))  # of a cube
    shape: IntArray = np.clip(np.floor(sides / side * (1 + 1e-12)), 1, _LONGEST).astype(np.int64)
    if shape.max() > _LONG:
        shape = np.minimum(shape, most)
    while np.log(shape).sum() > np.log(most) * (1 + 1e-12):  # axes shorter than a cube have one cell all the same
        finest = int(np.argmin(np.where(shape > 1, sides / shape, np.inf)))
        shape[finest] -= 1
    while True:
        coarsest = int(np.argmax(sides / shape))
        wider = shape + (np.arange(len(shape)) == coarsest)
        if np.log(wider).sum() > np.log(most) * (1 + 1e-12):
            return shape
        shape = wider


def _warn_of_coarse(sides: FloatArray, shape: IntArray) -> None:
    """Say so where the cells of a grid are too large; sides in units of sigma."""
    spacing = float((sides / shape).max())
    if spacing <= _COARSE * (1 + 1e-9):
        return
    wanted = float(np.exp(min(np.log(np.ceil(sides / _COARSE)).sum(), 700.0)))  # exp(700) is still finite
    text = (
        f"The grid of {shape.prod()} anchors is too coarse: its cells are up to {spacing:.2g} sigma long and "
        f"should be at most {_COARSE:g}, for which it needs {wanted:.2g} anchors. "
    )
    if wanted > _HOPELESS:
        text += f"No grid is of use in {len(sides)} dimensions at this sigma. Remedies: RFF, GERF, a larger sigma."
    else:
        text += "Remedies: more features, a larger sigma."
    warn_user(text, FeatureWarning)
