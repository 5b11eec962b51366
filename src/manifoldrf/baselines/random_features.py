"""Features of the Gaussian kernel: random Fourier and exponential features, and Gaussian bumps on a grid."""

from typing import Any, ClassVar

import numpy as np
from scipy.spatial.distance import cdist

from manifoldrf._random import SeedLike, Streams
from manifoldrf._runtime import warn_user
from manifoldrf._validation import (
    FloatArray,
    IntArray,
    Interval,
    check_flag,
    check_integer,
    check_number_or,
    check_option,
    reject,
)
from manifoldrf.baselines._base import AbstractGaussianBaseline, draw_frequencies, rowwise_product
from manifoldrf.features.errors import FeatureWarning

__all__ = ["GERF", "ORF", "PORF", "PRF", "RFF", "GaussianFeatures"]

_NOT_POSITIVE = Interval(high=0.0)
_ALL_SQUARE = 1e100  # above this, adding a number of the same size to its square changes nothing
ANCHORS = ("grid", "uniform")
# Padding of the box in units of sigma. The product of two features is a Gaussian in the anchor, sigma / 2 wide,
# around the midpoint of the two points. For a midpoint on the edge of the box, 4 of these widths miss 3e-5.
_PAD = 2.0
# Largest spacing of a grid in units of sigma: the sum over a line is off by 2 exp(-pi^2 / (2 spacing^2)), which is
# 1.4 % at 1 and 8e-6 at .63.
_COARSE = 1.0
_HOPELESS = 1e6  # grids with more anchors are not useful
# Numbers of cells along an axis that is much longer than the others: removing them one by one would take too long.
_LONG, _LONGEST = 1e5, 1e15


class _FourierFeatures(AbstractGaussianBaseline):
    """Cosines and sines of random frequencies."""

    _orthogonal: ClassVar[bool]

    def __init__(self, *, n_features: int = 512, sigma: float = 1.0, random_state: SeedLike = None) -> None:
        self.n_features = n_features
        self.sigma = sigma
        self.random_state = random_state

    def _draw(self, points: FloatArray, streams: Streams) -> None:
        n_features = check_integer(self.n_features, "n_features", 2)
        if n_features % 2:
            reject("n_features", "even: each frequency has a cosine and a sine", n_features)
        rng = streams.generator("baselines.frequencies")
        self.frequencies_ = draw_frequencies(n_features // 2, points.shape[1], rng, orthogonal=self._orthogonal)

    @property
    def n_features_out_(self) -> int:
        """Number of features."""
        return 2 * len(self.frequencies_)

    def _rows(self, points: FloatArray) -> FloatArray:
        phases = rowwise_product(points / self.sigma_, self.frequencies_.T)  # (q, m / 2)
        waves = np.concatenate([np.cos(phases), np.sin(phases)], axis=1)
        return np.asarray(waves / np.sqrt(len(self.frequencies_)))


class RFF(_FourierFeatures):
    """Random Fourier features: cosines and sines of w . x / sigma with w ~ N(0, I).

    phi(x) = (cos(w_1 . x / sigma), ..., sin(w_1 . x / sigma), ...) / sqrt(m / 2), an unbiased estimate of the
    Gaussian kernel exp(-|x - y|^2 / (2 sigma^2)) with K(x, x) = 1 exactly.

    Parameters
    ----------
    n_features : int, default=512
        m, even.
    sigma : float, default=1.0
        Width of the kernel.
    random_state : None, int, Generator or RandomState, default=None

    Attributes
    ----------
    frequencies_ : array of shape (m / 2, d)
    n_features_in_, n_features_out_ : int

    References
    ----------
    Rahimi and Recht, Random features for large-scale kernel machines, 2007.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.baselines import RFF
    >>> X = np.random.default_rng(0).standard_normal((50, 3))
    >>> features = RFF(n_features=4096, sigma=2.0, random_state=0).fit(X)
    >>> bool(np.abs(features.kernel_matrix(X) - features.exact_kernel(X)).max() < 0.1)
    True
    """

    _orthogonal = False


class ORF(_FourierFeatures):
    """Orthogonal random features: :class:`RFF` with frequencies orthogonal in blocks of d.

    Also unbiased, with lower variance for points near each other. Parameters and attributes are those of
    :class:`RFF`.

    References
    ----------
    Yu, Suresh, Choromanski, Holtmann-Rice and Kumar, Orthogonal random features, 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.baselines import ORF
    >>> X = np.random.default_rng(0).standard_normal((50, 3))
    >>> features = ORF(n_features=4096, sigma=2.0, random_state=0).fit(X)
    >>> bool(np.abs(features.kernel_matrix(X) - features.exact_kernel(X)).max() < 0.1)
    True
    """

    _orthogonal = True


class _ExponentialFeatures(AbstractGaussianBaseline):
    """D exp(A |w|^2 + B w . x - |x|^2) / sqrt(m), x in units of sigma; B = sqrt(1 - 4 A), D = (1 - 4 A)^(d / 4)."""

    _orthogonal: bool = False
    _a: float = 0.0

    def __init__(
        self, *, n_features: int = 512, sigma: float = 1.0, center: bool = True, random_state: SeedLike = None
    ) -> None:
        self.n_features = n_features
        self.sigma = sigma
        self.center = center
        self.random_state = random_state

    def _draw(self, points: FloatArray, streams: Streams) -> None:
        n_features = check_integer(self.n_features, "n_features", 1)
        # The kernel does not depend on the origin, but the variance grows as exp(2 |x + y|^2 / sigma^2).
        self.origin_ = points.mean(axis=0) * float(check_flag(self.center, "center"))
        rng = streams.generator("baselines.frequencies")
        self.frequencies_ = draw_frequencies(n_features, points.shape[1], rng, orthogonal=self._orthogonal)

    @property
    def n_features_out_(self) -> int:
        """Number of features."""
        return len(self.frequencies_)

    @property
    def bound_(self) -> FloatArray:
        """Largest value that each feature can take, shape (m,): its value at x = B w / 2."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp((self.frequencies_**2).sum(axis=1) / 4 + self._log_factor))

    @property
    def _log_factor(self) -> float:
        """Logarithm of D / sqrt(m)."""
        m, dim = self.frequencies_.shape
        return float(dim / 4 * np.log1p(-4 * self._a) - np.log(m) / 2)

    def _rows(self, points: FloatArray) -> FloatArray:
        places = (points - self.origin_) / self.sigma_
        slope = np.sqrt(1 - 4 * self._a)
        exponents = rowwise_product(places, slope * self.frequencies_.T)  # (q, m)
        with np.errstate(over="ignore"):  # an infinite square gives a feature of zero
            exponents -= (places**2).sum(axis=1)[:, None]
        exponents += self._a * (self.frequencies_**2).sum(axis=1) + self._log_factor
        # Far from the origin the square cancels the product; the rounding error must not exceed the bound.
        return np.minimum(np.exp(exponents, out=exponents), self.bound_)


class PRF(_ExponentialFeatures):
    """Positive random features: exp(w . x / sigma - |x|^2 / sigma^2) / sqrt(m) with w ~ N(0, I).

    Positive and unbiased for the Gaussian kernel exp(-|x - y|^2 / (2 sigma^2)). The variance grows exponentially
    with |x + y|^2 / sigma^2.

    Parameters
    ----------
    n_features : int, default=512
        m.
    sigma : float, default=1.0
        Width of the kernel.
    center : bool, default=True
        Whether to move the origin to the mean of the data, which lowers the variance and keeps the kernel.
    random_state : None, int, Generator or RandomState, default=None

    Attributes
    ----------
    frequencies_ : array of shape (m, d)
    origin_ : array of shape (d,)
    bound_ : array of shape (m,)
        Largest value that each feature can take.
    n_features_in_, n_features_out_ : int

    References
    ----------
    Choromanski et al., Rethinking attention with Performers, 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.baselines import PRF
    >>> X = np.random.default_rng(0).uniform(size=(50, 3))
    >>> features = PRF(n_features=4096, random_state=0).fit(X)
    >>> bool((features.transform(X) > 0).all())
    True
    >>> bool(np.abs(features.kernel_matrix(X) - features.exact_kernel(X)).max() < 0.2)
    True
    """


class PORF(_ExponentialFeatures):
    """Positive orthogonal random features: :class:`PRF` with frequencies orthogonal in blocks of d.

    Parameters and attributes are those of :class:`PRF`.

    References
    ----------
    Choromanski et al., Rethinking attention with Performers, 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.baselines import PORF
    >>> X = np.random.default_rng(0).uniform(size=(50, 3))
    >>> features = PORF(n_features=4096, random_state=0).fit(X)
    >>> bool(np.abs(features.kernel_matrix(X) - features.exact_kernel(X)).max() < 0.2)
    True
    """

    _orthogonal = True


class GERF(_ExponentialFeatures):
    """Generalised exponential features: positive like :class:`PRF`, and bounded over all frequencies.

    D exp(A |w|^2 + B w . x - |x|^2) / sqrt(m) with x in units of sigma, B = sqrt(1 - 4 A) and
    D = (1 - 4 A)^(d / 4): unbiased for every A <= 0. A = 0 is :class:`PRF`.

    Parameters
    ----------
    n_features : int, default=512
        m.
    sigma : float, default=1.0
        Width of the kernel.
    A : "auto" or float, default="auto"
        At most 0; a negative value bounds the features over all frequencies. "auto": the value of least variance
        for two points with the mean |x + y|^2 over all pairs of the data.
    orthogonal : bool, default=False
        Whether the frequencies are orthogonal in blocks of d.
    center : bool, default=True
        Whether to move the origin to the mean of the data, which lowers the variance and keeps the kernel.
    random_state : None, int, Generator or RandomState, default=None

    Attributes
    ----------
    A_ : float
    frequencies_ : array of shape (m, d)
    origin_ : array of shape (d,)
    bound_ : array of shape (m,)
        Largest value that each feature can take.
    n_features_in_, n_features_out_ : int

    References
    ----------
    Likhosherstov et al., Chefs' random tables: non-trigonometric random features, 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.baselines import GERF
    >>> X = np.random.default_rng(0).standard_normal((50, 3))
    >>> features = GERF(n_features=4096, random_state=0).fit(X)
    >>> features.A_ < 0
    True
    >>> bool((features.transform(X) <= features.bound_).all())
    True
    """

    def __init__(
        self,
        *,
        n_features: int = 512,
        sigma: float = 1.0,
        A: Any = "auto",
        orthogonal: bool = False,
        center: bool = True,
        random_state: SeedLike = None,
    ) -> None:
        self.n_features = n_features
        self.sigma = sigma
        self.A = A
        self.orthogonal = orthogonal
        self.center = center
        self.random_state = random_state

    def _draw(self, points: FloatArray, streams: Streams) -> None:
        self._orthogonal = check_flag(self.orthogonal, "orthogonal")
        super()._draw(points, streams)
        given = check_number_or(self.A, "A", "auto", _NOT_POSITIVE)
        self._a = self.A_ = best_exponent((points - self.origin_) / self.sigma_) if given is None else given


def best_exponent(points: FloatArray) -> float:
    """The A of least variance for points in units of sigma.

    With rho = 1 / (1 - 8 A) the second moment of an estimate at x, y is, up to factors that do not depend on A,
    exp((1 + rho) |x + y|^2) ((1 + rho)^2 / (4 rho))^(d / 2). Its logarithm, at the mean of |x + y|^2 over all
    pairs, is least at the positive root of 2 phi rho^2 + (d + 2 phi) rho - d = 0.
    """
    dim = points.shape[1]
    mean = points.mean(axis=0)
    phi = float(2 * (points**2).sum(axis=1).mean() + 2 * (mean @ mean))
    half = dim + 2 * phi
    root = half if half > _ALL_SQUARE else np.sqrt(half**2 + 8 * dim * phi)
    rho = 2 * dim / (half + root)  # this form of the root has no cancellation
    return float((1 - 1 / rho) / 8)


class GaussianFeatures(AbstractGaussianBaseline):
    """Gaussian bumps around anchors: positive and bounded features of the Gaussian kernel, in closed form.

    g(x, omega) = (2 / (pi sigma^2))^(d / 4) exp(-|x - omega|^2 / sigma^2). The integral of g(x, .) g(y, .) is
    exp(-|x - y|^2 / (2 sigma^2)). A sum over anchors approximates it: phi(x)_l = sqrt(w_l) g(x, omega_l).

    Parameters
    ----------
    n_features : int, default=512
        Number of anchors; for a grid the maximum.
    sigma : float, default=1.0
        Width of the kernel.
    anchors : {"grid", "uniform"}, default="grid"
        Positions of the anchors in the box around the data, enlarged by 2 sigma on each side. "grid": the centres
        of equal cells. The error is 2 exp(-pi^2 sigma^2 / (2 h^2)) per axis for cells of side h, for example 3e-4
        for h = .75 sigma. A grid is useless in more than a few dimensions, and a warning says so. "uniform":
        random, and unbiased except for a share of 3e-5 outside the box. Points outside the box of the data lose
        more.
    random_state : None, int, Generator or RandomState, default=None
        Seed of "uniform".

    Attributes
    ----------
    anchors_ : array of shape (m, d)
    box_ : array of shape (2, d)
        Lower and upper corner of the box.
    shape_ : int array of shape (d,)
        Number of cells along each axis; for a grid only.
    bound_ : array of shape (m,)
        Largest value that each feature can take.
    n_features_in_, n_features_out_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.baselines import GaussianFeatures
    >>> X = np.random.default_rng(0).uniform(size=(100, 2))
    >>> features = GaussianFeatures(n_features=400, sigma=0.3).fit(X)
    >>> bool(np.abs(features.kernel_matrix(X) - features.exact_kernel(X)).max() < 1e-4)
    True
    """

    def __init__(
        self, *, n_features: int = 512, sigma: float = 1.0, anchors: str = "grid", random_state: SeedLike = None
    ) -> None:
        self.n_features = n_features
        self.sigma = sigma
        self.anchors = anchors
        self.random_state = random_state

    def _draw(self, points: FloatArray, streams: Streams) -> None:
        n_features = check_integer(self.n_features, "n_features", 1)
        check_option(self.anchors, "anchors", ANCHORS)
        pad = _PAD * self.sigma_
        lowest, highest = points.min(axis=0), points.max(axis=0)
        if (highest + pad <= lowest - pad).any():
            reject("sigma", "large enough to change the coordinates when added to them", self.sigma_)
        self.box_ = np.stack([lowest - pad, highest + pad])
        low, sides = self.box_[0], np.ptp(self.box_, axis=0)
        if self.anchors == "grid":
            self.shape_ = grid_shape(sides, n_features)
            _warn_of_coarse(sides / self.sigma_, self.shape_)
            cells = np.stack(np.unravel_index(np.arange(self.shape_.prod()), tuple(self.shape_)), axis=1)
            self.anchors_ = low + (cells + 0.5) * (sides / self.shape_)
        else:
            places = streams.generator("baselines.anchors").random((n_features, len(sides)))
            self.anchors_ = low + sides * places

    @property
    def n_features_out_(self) -> int:
        """Number of features."""
        return len(self.anchors_)

    @property
    def bound_(self) -> FloatArray:
        """Largest value that each feature can take, shape (m,): its value at the anchor."""
        with np.errstate(over="ignore"):
            return np.full(self.n_features_out_, np.exp(self._log_height))

    @property
    def _log_height(self) -> float:
        """Logarithm of sqrt(w) g(omega, omega); all anchors have the same share of the volume."""
        sides = np.ptp(self.box_, axis=0) / self.sigma_  # in units of sigma, otherwise powers would overflow
        volumes = np.log(sides).sum() - np.log(self.n_features_out_)
        return float(volumes / 2 + len(sides) / 4 * np.log(2 / np.pi))

    def _rows(self, points: FloatArray) -> FloatArray:
        gaps = cdist(points / self.sigma_, self.anchors_ / self.sigma_, "sqeuclidean")
        return np.asarray(np.exp(self._log_height - gaps))


def grid_shape(sides: FloatArray, most: int) -> IntArray:
    """Number of cells along each axis of a box: nearly cubes, at most ``most`` in total.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.baselines.random_features import grid_shape
    >>> grid_shape(np.array([1.0, 4.0]), 100).tolist()
    [5, 20]
    """
    logs = np.log(sides)
    side = np.exp((logs.sum() - np.log(most)) / len(sides))  # of a cube
    shape: IntArray = np.clip(np.floor(sides / side * (1 + 1e-12)), 1, _LONGEST).astype(np.int64)
    if shape.max() > _LONG:
        shape = np.minimum(shape, most)
    while np.log(shape).sum() > np.log(most) * (1 + 1e-12):  # axes shorter than a cube still have one cell
        finest = int(np.argmin(np.where(shape > 1, sides / shape, np.inf)))
        shape[finest] -= 1
    while True:
        coarsest = int(np.argmax(sides / shape))
        wider = shape + (np.arange(len(shape)) == coarsest)
        if np.log(wider).sum() > np.log(most) * (1 + 1e-12):
            return shape
        shape = wider


def _warn_of_coarse(sides: FloatArray, shape: IntArray) -> None:
    """Warn if the cells of a grid are too large; sides in units of sigma."""
    spacing = float((sides / shape).max())
    if spacing <= _COARSE * (1 + 1e-9):
        return
    wanted = float(np.exp(min(np.log(np.ceil(sides / _COARSE)).sum(), 700.0)))  # exp(700) is still finite
    text = (
        f"The grid of {shape.prod()} anchors is too coarse: its cells are up to {spacing:.2g} sigma long and "
        f"should be at most {_COARSE:g}, for which it needs {wanted:.2g} anchors. "
    )
    if wanted > _HOPELESS:
        text += f"No grid is useful in {len(sides)} dimensions at this sigma. Remedies: RFF, GERF, a larger sigma."
    else:
        text += "Remedies: more features, a larger sigma."
    warn_user(text, FeatureWarning)
