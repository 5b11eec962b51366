"""Features that the experiments compare with: random features of the Gaussian kernel, landmarks, eigenvectors."""

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from scipy import linalg
from scipy.sparse.linalg import eigsh
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator, TransformerMixin

from manifoldrf import Graph
from manifoldrf.geometry import thin
from reproduction.common import FloatArray


def gaussian_kernel(points: FloatArray, others: FloatArray, sigma: float) -> FloatArray:
    """exp(-|x - y|^2 / (2 sigma^2)), shape (len(points), len(others))."""
    return np.asarray(np.exp(-cdist(points / sigma, others / sigma, "sqeuclidean") / 2))


class _Gaussian(TransformerMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Features of the Gaussian kernel exp(-|x - y|^2 / (2 sigma^2)).

    Parameters
    ----------
    n_features : int, default=512
    sigma : float, default=1.0
        Width of the kernel.
    random_state : None, int or Generator, default=None
    """

    def __init__(self, *, n_features: int = 512, sigma: float = 1.0, random_state: Any = None) -> None:
        self.n_features = n_features
        self.sigma = sigma
        self.random_state = random_state

    @abstractmethod
    def _draw(self, points: FloatArray, rng: np.random.Generator) -> None:
        """Draw what is random."""

    @abstractmethod
    def transform(self, X: Any) -> Any:
        """Features of points, (q, m), with the float type of the points."""

    def fit(self, X: Any, y: Any = None) -> Self:
        """Draw what is random, for points of shape (n, d)."""
        del y
        self._draw(np.asarray(X, dtype=np.float64), np.random.default_rng(self.random_state))
        return self

    def kernel_matrix(self, X: Any) -> FloatArray:
        """phi(x) . phi(y) between points."""
        rows = self.transform(X)
        return np.asarray(rows @ rows.T)


class RFF(_Gaussian):
    """Random Fourier features: cosines and sines of w . x / sigma with w ~ N(0, I) (Rahimi and Recht, 2007)."""

    _orthogonal = False

    def _draw(self, points: FloatArray, rng: np.random.Generator) -> None:
        self.frequencies_ = draw_frequencies(
            self.n_features // 2, points.shape[1], rng, orthogonal=self._orthogonal
        )

    def transform(self, X: Any) -> Any:
        """Features of points: all cosines, then all sines."""
        dtype = np.result_type(X, np.float32)
        phases = X @ (self.frequencies_.T / self.sigma).astype(dtype)
        waves = np.concatenate([np.cos(phases), np.sin(phases)], axis=1)
        return waves / np.sqrt(len(self.frequencies_)).astype(dtype)


class ORF(RFF):
    """:class:`RFF` with frequencies that are orthogonal in blocks of d (Yu et al., 2016)."""

    _orthogonal = True


class PRF(_Gaussian):
    """Positive random features: exp(w . x / sigma - |x|^2 / sigma^2) / sqrt(m) (Choromanski et al., 2021).

    Points are taken relative to the mean of the data: the kernel does not depend on the origin, but the variance
    grows as exp(2 |x + y|^2 / sigma^2).
    """

    _orthogonal = False

    def _draw(self, points: FloatArray, rng: np.random.Generator) -> None:
        self.origin_ = points.mean(axis=0)
        self.frequencies_ = draw_frequencies(self.n_features, points.shape[1], rng, orthogonal=self._orthogonal)

    def transform(self, X: Any) -> Any:
        """Features of points."""
        dtype = np.result_type(X, np.float32)
        places = (np.asarray(X, dtype=np.float64) - self.origin_) / self.sigma
        squares = (self.frequencies_**2).sum(axis=1)
        exponents = places @ self.frequencies_.T - (places**2).sum(axis=1)[:, None]
        # Far from the origin the square cancels the product; rounding must not exceed the largest value.
        rows = np.exp(np.minimum(exponents, squares / 4)) / np.sqrt(len(squares))
        return rows.astype(dtype, copy=False)


class PORF(PRF):
    """:class:`PRF` with frequencies that are orthogonal in blocks of d."""

    _orthogonal = True


def draw_frequencies(m: int, dim: int, rng: np.random.Generator, *, orthogonal: bool) -> FloatArray:
    """Draw ``m`` vectors w ~ N(0, I), shape (m, dim); ``orthogonal``: to each other in blocks of ``dim``."""
    if not orthogonal:
        return rng.standard_normal((m, dim))
    vectors, triangles = np.linalg.qr(rng.standard_normal((-(-m // dim), dim, dim)))
    # The signs of a QR decomposition depend on the library; these make the rotations Haar distributed.
    signs = np.where(np.diagonal(triangles, axis1=1, axis2=2) < 0, -1.0, 1.0)  # (blocks, dim)
    directions = (vectors * signs[:, None, :]).transpose(0, 2, 1).reshape(-1, dim)[:m]
    return np.asarray(np.sqrt(rng.chisquare(dim, m))[:, None] * directions)


class Nystrom(_Gaussian):
    """Features from the kernel to landmarks, phi(z) = k(z, L) K_LL^(-1/2): exact if x or y is a landmark.

    Parameters
    ----------
    n_features, sigma, random_state
        As in the other classes; all points are landmarks if there are fewer.
    landmarks : {"uniform", "farthest"}, default="uniform"
        Drawn without replacement, or each farthest from the previous ones.
    """

    def __init__(
        self, *, n_features: int = 512, sigma: float = 1.0, landmarks: str = "uniform", random_state: Any = None
    ) -> None:
        super().__init__(n_features=n_features, sigma=sigma, random_state=random_state)
        self.landmarks = landmarks

    def _draw(self, points: FloatArray, rng: np.random.Generator) -> None:
        count = min(self.n_features, len(points))
        farthest = self.landmarks == "farthest"
        self.landmarks_ = points[thin(points, count) if farthest else rng.choice(len(points), count, replace=False)]
        self.whitening_ = inverse_root(gaussian_kernel(self.landmarks_, self.landmarks_, self.sigma))

    def transform(self, X: Any) -> Any:
        """Features of points."""
        rows = gaussian_kernel(X, self.landmarks_, self.sigma) @ self.whitening_
        return rows.astype(np.result_type(X, np.float32), copy=False)


def inverse_root(matrix: FloatArray) -> FloatArray:
    """R with R R^T = M^-1 for a positive semi-definite M, with zeros for eigenvalues that are rounding errors.

    Its columns are eigenvectors over the roots of their eigenvalues. The symmetric root differs by a rotation,
    which would mix the errors of small eigenvalues into all columns.
    """
    values, vectors = linalg.eigh((matrix + matrix.T) / 2)
    kept = values > len(values) * np.finfo(np.float64).eps * values[-1]
    return np.where(kept, vectors / np.sqrt(np.where(kept, values, 1.0)), 0.0)


def eigenpairs(graph: Graph, count: int) -> tuple[FloatArray, FloatArray]:
    """The ``count`` largest eigenvalues of the operator of a graph, largest first, and their eigenvectors."""
    n = graph.n_nodes
    if n <= 600 or count > n // 5:  # where a dense decomposition is faster
        values, vectors = linalg.eigh(graph.operator.toarray())
    else:
        start = np.random.default_rng(0).standard_normal(n)  # fixed, so that the bits are reproducible
        values, vectors = eigsh(graph.operator, k=count, which="LA", v0=start)
    order = np.argsort(-values, kind="stable")[:count]
    values, vectors = np.clip(values[order], -1.0, 1.0), vectors[:, order]
    # Fix the arbitrary sign of each eigenvector: its largest entry is positive.
    peaks = np.abs(vectors).argmax(axis=0)
    return values, vectors * np.where(vectors[peaks, np.arange(len(peaks))] < 0, -1.0, 1.0)
