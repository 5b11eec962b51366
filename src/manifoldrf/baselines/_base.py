"""Base classes of the baselines, and products whose bits do not depend on other rows."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from manifoldrf._random import Streams
from manifoldrf._runtime import map_threads, one_blas_thread
from manifoldrf._validation import (
    LARGEST_COORDINATE,
    FloatArray,
    Interval,
    check_columns,
    check_jobs,
    check_real,
    reject,
)
from manifoldrf.features.options import estimator_points
from manifoldrf.features.rules import product

_ENTRIES_AT_ONCE = 2**22  # features computed in one chunk: 32 MB
_WIDTHS = Interval(1e-140)  # allowed sigma: coordinates of 1e150 divided by it are still finite
_BLOCK = 64  # rows of one product: larger blocks slow down single queries, smaller ones are slower in total


class AbstractBaseline(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """A transformer whose inner products are a kernel: phi(x) . phi(y) ~ K(x, y).

    Subclasses implement ``_fit``, ``_rows``, ``_exact`` and ``n_features_out_``.
    """

    random_state: Any

    @abstractmethod
    def _fit(self, points: Any, streams: Streams) -> None:
        """Check the parameters and draw random numbers."""

    @abstractmethod
    def _rows(self, points: FloatArray) -> FloatArray:
        """Features of points, (q, m); a row must not depend on the others."""

    @abstractmethod
    def _exact(self, points: FloatArray, others: FloatArray) -> FloatArray:
        """The kernel that the features approximate, (len(points), len(others))."""

    @property
    @abstractmethod
    def n_features_out_(self) -> int:
        """Number of features."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the parameters and the data, and draw random numbers.

        Parameters
        ----------
        X : array-like of shape (n, d)
        y : ignored
        """
        del y
        self._fit(self._check_data(X), Streams.from_seed(self.random_state, "random_state"))
        return self

    def transform(self, X: Any) -> Any:
        """Features of points.

        Parameters
        ----------
        X : array-like of shape (q, d)

        Returns
        -------
        features : array of shape (q, m)
            With the float type of ``X``.
        """
        points, dtype = self._check_queries(X, "X")
        features = np.zeros((len(points), self.n_features_out_), dtype)
        for span in self._spans(len(points)):
            features[span] = self._rows(points[span])
        return features

    def kernel_matrix(self, Z: Any, Y: Any = None) -> FloatArray:
        """phi(z) . phi(y), shape (len(Z), len(Y)); without ``Y`` between the points of ``Z``."""
        points, dtype = self._check_queries(Z)
        left = self._rows(points)
        right = left if Y is None else self._rows(self._check_queries(Y, "Y")[0])
        return product(left, right, check_jobs(-1)).astype(dtype, copy=False)

    def exact_kernel(self, Z: Any, Y: Any = None) -> FloatArray:
        """The kernel that the features approximate, shape (len(Z), len(Y))."""
        points, dtype = self._check_queries(Z)
        others = points if Y is None else self._check_queries(Y, "Y")[0]
        return self._exact(points, others).astype(dtype, copy=False)

    def matvec(self, Z: Any, v: ArrayLike) -> FloatArray:
        """K v = phi(Z) (phi(Z)^T v) in time proportional to the number of points.

        Parameters
        ----------
        Z : array-like of shape (q, d)
        v : array-like of shape (q,) or (q, c)
        """
        points, dtype = self._check_queries(Z)
        columns = check_columns(v, "v", len(points), "point")
        spans = list(self._spans(len(points)))
        total = np.zeros((self.n_features_out_, columns.shape[1]))
        for span in spans:
            rows = self._rows(points[span])
            total += rows.T @ columns[span]
        parts = [rows] if len(spans) == 1 else (self._rows(points[span]) for span in spans)
        result = np.concatenate([part @ total for part in parts])
        return np.asarray(result[:, 0] if np.ndim(v) == 1 else result, dtype=dtype)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:  # scikit-learn's name for it
        return self.n_features_out_

    def _check_data(self, X: Any) -> Any:
        return estimator_points(self, X)[0]

    def _check_queries(self, Z: Any, name: str = "Z") -> tuple[FloatArray, Any]:
        """Return points as float64, and the type of the results."""
        check_is_fitted(self)
        points, dtype = estimator_points(self, Z, name, reset=False)
        return self._inspect(points, name), dtype

    def _inspect(self, points: FloatArray, name: str) -> FloatArray:
        """Hook for further checks of the points; ``name`` is the argument's name."""
        del name
        return points

    def _spans(self, n: int) -> Iterator[slice]:
        size = max(1, _ENTRIES_AT_ONCE // self.n_features_out_)
        return (slice(start, start + size) for start in range(0, n, size))


class AbstractGaussianBaseline(AbstractBaseline):
    """Features of the Gaussian kernel exp(-|x - y|^2 / (2 sigma^2))."""

    n_features: int
    sigma: float

    def _fit(self, points: Any, streams: Streams) -> None:
        self.sigma_ = check_sigma(self.sigma, points)
        self._draw(points, streams)

    @abstractmethod
    def _draw(self, points: FloatArray, streams: Streams) -> None:
        """Check the other parameters and draw random numbers; ``sigma_`` is set."""

    def _exact(self, points: FloatArray, others: FloatArray) -> FloatArray:
        return gaussian_kernel(points, others, self.sigma_)


def check_sigma(sigma: Any, points: FloatArray) -> float:
    """Return sigma if the squared coordinates in units of sigma do not overflow."""
    width = check_real(sigma, "sigma", _WIDTHS)
    least = float(np.abs(points).max()) / LARGEST_COORDINATE
    if width < least:
        reject("sigma", f"at least {least:g} for points of this size, or squared distances overflow", sigma)
    return width


def gaussian_kernel(points: FloatArray, others: FloatArray, sigma: float) -> FloatArray:
    """exp(-|x - y|^2 / (2 sigma^2)), shape (len(points), len(others))."""
    with np.errstate(over="ignore"):  # an infinite distance gives a kernel of zero
        return np.asarray(np.exp(-cdist(points / sigma, others / sigma, "sqeuclidean") / 2))


def rowwise_product(left: FloatArray, right: FloatArray) -> FloatArray:
    """Compute left @ right so that the bits of a row do not depend on the other rows.

    The rounding of a BLAS product depends on its shape and the number of threads. Here all blocks have the same
    shape, padded with zeros, and each uses one thread.
    """
    result = np.zeros((len(left), right.shape[1]))

    def work(start: int) -> None:
        rows = left[start : start + _BLOCK]
        block = np.zeros((_BLOCK, left.shape[1]))
        block[: len(rows)] = rows
        result[start : start + _BLOCK] = (block @ right)[: len(rows)]

    with one_blas_thread():
        map_threads(work, range(0, len(left), _BLOCK), check_jobs(-1))
    return result


def draw_frequencies(m: int, dim: int, rng: np.random.Generator, *, orthogonal: bool) -> FloatArray:
    """Draw ``m`` vectors w ~ N(0, I), shape (m, dim).

    ``orthogonal``: the vectors in a block of ``dim`` are orthogonal to each other. Each is still N(0, I): its
    direction has the Haar measure, and its length the chi distribution.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.baselines._base import draw_frequencies
    >>> w = draw_frequencies(3, 3, np.random.default_rng(0), orthogonal=True)
    >>> bool(np.abs(w @ w.T - np.diag(np.diag(w @ w.T))).max() < 1e-14)
    True
    """
    if not orthogonal:
        return rng.standard_normal((m, dim))
    n_blocks = -(-m // dim)
    vectors, triangles = np.linalg.qr(rng.standard_normal((n_blocks, dim, dim)))
    # The signs of a QR decomposition depend on the library; these make the rotations Haar distributed.
    signs = np.where(np.diagonal(triangles, axis1=1, axis2=2) < 0, -1.0, 1.0)  # (n_blocks, dim)
    directions = (vectors * signs[:, None, :]).transpose(0, 2, 1).reshape(-1, dim)[:m]
    return np.asarray(np.sqrt(rng.chisquare(dim, m))[:, None] * directions)
