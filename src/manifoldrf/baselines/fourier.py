"""Random Fourier features of the Gaussian kernel: unbiased, bounded, of both signs."""

from typing import ClassVar

import numpy as np

from manifoldrf._random import SeedLike, Streams
from manifoldrf._validation import FloatArray, check_integer, reject
from manifoldrf.baselines._base import AbstractGaussianBaseline, rowwise_product
from manifoldrf.baselines._frequencies import draw_frequencies

__all__ = ["ORF", "RFF"]


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
