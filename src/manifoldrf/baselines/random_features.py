"""Random Fourier features of the Gaussian kernel: unbiased, bounded, of both signs."""

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from manifoldrf._random import SeedLike, Streams
from manifoldrf._validation import FloatArray, Interval, check_flag, check_integer, check_real, reject
from manifoldrf.baselines._base import AbstractGaussianBaseline, draw_frequencies, rowwise_product

__all__ = ["GERF", "ORF", "PORF", "PRF", "RFF"]


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
            reject("n_features", "even: a cosine and a sine for every frequency", n_features)
        rng = streams.generator("baselines.frequencies")
        dim = points.shape[1]
        self.frequencies_ = draw_frequencies(n_features // 2, dim, rng, orthogonal=self._orthogonal)

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
    >>> bool(np.abs(features.kernel(X) - features.exact_kernel(X)).max() < 0.1)
    True
    """

    _orthogonal = False


class ORF(_FourierFeatures):
    """Orthogonal random features: :class:`RFF` with frequencies orthogonal in blocks of d.

    Unbiased as well, and of lower variance for points that are near each other.

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
    Yu, Suresh, Choromanski, Holtmann-Rice and Kumar, Orthogonal random features, 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.baselines import ORF
    >>> X = np.random.default_rng(0).standard_normal((50, 3))
    >>> features = ORF(n_features=4096, sigma=2.0, random_state=0).fit(X)
    >>> bool(np.abs(features.kernel(X) - features.exact_kernel(X)).max() < 0.1)
    True
    """

    _orthogonal = True


_NOT_POSITIVE = Interval(high=0.0)
_ALL_SQUARE = 1e100  # beside the square of a larger number what is of its own size is lost


class _ExponentialFeatures(AbstractGaussianBaseline):
    """D exp(A |w|^2 + B w . x - |x|^2) / sqrt(m), x in units of sigma: B = sqrt(1 - 4 A), D = (1 - 4 A)^(d / 4)."""

    center: bool

    def _draw_exponents(self, points: FloatArray, streams: Streams, *, orthogonal: bool) -> None:
        """Frequencies and the origin."""
        n_features = check_integer(self.n_features, "n_features", 1)
        # The kernel does not change with the origin. The variance does: it grows as exp(2 |x + y|^2 / sigma^2).
        self.origin_ = points.mean(axis=0) * float(check_flag(self.center, "center"))
        rng = streams.generator("baselines.frequencies")
        self.frequencies_ = draw_frequencies(n_features, points.shape[1], rng, orthogonal=orthogonal)

    @property
    @abstractmethod
    def _a(self) -> float:
        """A."""

    @property
    def n_features_out_(self) -> int:
        """Number of features."""
        return len(self.frequencies_)

    @property
    def bound_(self) -> FloatArray:
        """Largest value that each feature can take, shape (m,): that at x = B w / 2."""
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
        with np.errstate(over="ignore"):  # a square beyond the range of doubles makes a feature of zero
            exponents -= (places**2).sum(axis=1)[:, None]
        exponents += self._a * (self.frequencies_**2).sum(axis=1) + self._log_factor
        # Far out a square cancels a product, and what rounding leaves of it must not break the bound.
        return np.minimum(np.exp(exponents, out=exponents), self.bound_)


class _PlainExponentialFeatures(_ExponentialFeatures):
    """A = 0."""

    _orthogonal: ClassVar[bool]

    def __init__(
        self, *, n_features: int = 512, sigma: float = 1.0, center: bool = True, random_state: SeedLike = None
    ) -> None:
        self.n_features = n_features
        self.sigma = sigma
        self.center = center
        self.random_state = random_state

    def _draw(self, points: FloatArray, streams: Streams) -> None:
        self._draw_exponents(points, streams, orthogonal=self._orthogonal)

    @property
    def _a(self) -> float:
        return 0.0


class PRF(_PlainExponentialFeatures):
    """Positive random features: exp(w . x / sigma - |x|^2 / sigma^2) / sqrt(m) with w ~ N(0, I).

    Positive, and unbiased for the Gaussian kernel exp(-|x - y|^2 / (2 sigma^2)). The variance grows exponentially
    with |x + y|^2 / sigma^2.

    Parameters
    ----------
    n_features : int, default=512
        m.
    sigma : float, default=1.0
        Width of the kernel.
    center : bool, default=True
        Whether the mean of the data becomes the origin, which lowers the variance and leaves the kernel as it is.
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
    >>> bool(np.abs(features.kernel(X) - features.exact_kernel(X)).max() < 0.2)
    True
    """

    _orthogonal = False


class PORF(_PlainExponentialFeatures):
    """Positive orthogonal random features: :class:`PRF` with frequencies orthogonal in blocks of d.

    Parameters
    ----------
    n_features : int, default=512
        m.
    sigma : float, default=1.0
        Width of the kernel.
    center : bool, default=True
        Whether the mean of the data becomes the origin, which lowers the variance and leaves the kernel as it is.
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
    >>> from manifoldrf.baselines import PORF
    >>> X = np.random.default_rng(0).uniform(size=(50, 3))
    >>> features = PORF(n_features=4096, random_state=0).fit(X)
    >>> bool(np.abs(features.kernel(X) - features.exact_kernel(X)).max() < 0.2)
    True
    """

    _orthogonal = True


class GERF(_ExponentialFeatures):
    """Generalised exponential features: positive as :class:`PRF`, and bounded over all frequencies.

    D exp(A |w|^2 + B w . x - |x|^2) / sqrt(m) with x in units of sigma, B = sqrt(1 - 4 A) and
    D = (1 - 4 A)^(d / 4): unbiased for every A <= 0. A = 0 is :class:`PRF`.

    Parameters
    ----------
    n_features : int, default=512
        m.
    sigma : float, default=1.0
        Width of the kernel.
    A : "auto" or float, default="auto"
        At most 0; negative makes features bounded over all frequencies. "auto" takes the value of least variance
        for two points with the mean of |x + y|^2 over all pairs of the data.
    orthogonal : bool, default=False
        Whether frequencies are orthogonal in blocks of d.
    center : bool, default=True
        Whether the mean of the data becomes the origin, which lowers the variance and leaves the kernel as it is.
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
        self._draw_exponents(points, streams, orthogonal=check_flag(self.orthogonal, "orthogonal"))
        if isinstance(self.A, str):
            if self.A != "auto":
                reject("A", f"'auto' or a number in {_NOT_POSITIVE}", repr(self.A))
            self.A_ = best_exponent((points - self.origin_) / self.sigma_)
        else:
            self.A_ = check_real(self.A, "A", _NOT_POSITIVE)

    @property
    def _a(self) -> float:
        return self.A_


def best_exponent(points: FloatArray) -> float:
    """A of least variance for points in units of sigma.

    With rho = 1 / (1 - 8 A) the second moment of an estimate at x, y is, up to what does not depend on A,
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
