"""The Nystrom method: features from the kernel between points and landmarks."""

from typing import Any

import numpy as np
from scipy import linalg

from manifoldrf._random import SeedLike, Streams
from manifoldrf._runtime import one_blas_thread
from manifoldrf._validation import POSITIVE, FloatArray, check_integer, check_option, check_real, reject
from manifoldrf.baselines._base import AbstractBaseline, check_sigma, gaussian_kernel, rowwise_product
from manifoldrf.geometry.sampling import thin

__all__ = ["Nystrom"]

LANDMARKS = ("uniform", "farthest")
# Allowed deviation from a symmetric positive semi-definite matrix, relative to the largest eigenvalue. Rounding of
# a kernel in single precision is smaller; a function that is no such kernel deviates much more.
_NOT_A_KERNEL = 1e-5


class Nystrom(AbstractBaseline):
    """Features from the kernel to landmarks: phi(z) = k(z, L) K_LL^(-1/2).

    phi(x) . phi(y) = k(x, L) K_LL^-1 k(L, y), which is exact if x or y is a landmark. The root of K_LL^-1 consists
    of scaled eigenvectors, in increasing order of the eigenvalues.

    Parameters
    ----------
    n_features : int, default=512
        Number of landmarks. If the data have fewer points, all of them are landmarks.
    sigma : float, default=1.0
        Width of the Gaussian kernel exp(-|x - y|^2 / (2 sigma^2)); ignored if a kernel is given.
    landmarks : {"uniform", "farthest"}, default="uniform"
        "uniform": drawn from the data without replacement. "farthest": each is the point farthest from the previous
        ones.
    kernel : callable, optional
        A function F(X, Y) of two arrays of points that returns the matrix of a positive semi-definite kernel,
        shape (len(X), len(Y)).
    random_state : None, int, Generator or RandomState, default=None

    Attributes
    ----------
    landmarks_ : array of shape (m, d)
    rank_ : int
        Number of eigenvalues of K_LL in use. Eigenvalues below m times 2e-16 of the largest are rounding errors,
        and their features are zero.
    n_features_in_, n_features_out_ : int

    References
    ----------
    Williams and Seeger, Using the Nystrom method to speed up kernel machines, 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf.baselines import Nystrom
    >>> X = np.random.default_rng(0).standard_normal((300, 2))
    >>> features = Nystrom(n_features=100, landmarks="farthest").fit(X)
    >>> bool(np.abs(features.kernel_matrix(X) - features.exact_kernel(X)).max() < 1e-4)
    True
    """

    def __init__(
        self,
        *,
        n_features: int = 512,
        sigma: float = 1.0,
        landmarks: str = "uniform",
        kernel: Any = None,
        random_state: SeedLike = None,
    ) -> None:
        self.n_features = n_features
        self.sigma = sigma
        self.landmarks = landmarks
        self.kernel = kernel
        self.random_state = random_state

    def _fit(self, points: Any, streams: Streams) -> None:
        count = min(check_integer(self.n_features, "n_features", 1), len(points))
        own = self.kernel is not None
        self.sigma_ = check_real(self.sigma, "sigma", POSITIVE) if own else check_sigma(self.sigma, points)
        if own and not callable(self.kernel):
            reject("kernel", "None or a function of two arrays of points", repr(self.kernel), TypeError)
        if check_option(self.landmarks, "landmarks", LANDMARKS) == "farthest":
            chosen = thin(points, count)
        else:
            chosen = streams.generator("baselines.landmarks").choice(len(points), count, replace=False)
        self.landmarks_ = points[chosen]
        self.whitening_, self.rank_ = inverse_root(self._exact(self.landmarks_, self.landmarks_))

    @property
    def n_features_out_(self) -> int:
        """Number of features."""
        return len(self.landmarks_)

    def _rows(self, points: FloatArray) -> FloatArray:
        return rowwise_product(self._exact(points, self.landmarks_), self.whitening_)

    def _exact(self, points: FloatArray, others: FloatArray) -> FloatArray:
        if self.kernel is None:
            return gaussian_kernel(points, others, self.sigma_)
        values = np.asarray(self.kernel(points, others), dtype=np.float64)
        if values.shape != (len(points), len(others)):
            reject("kernel", f"a function whose result has shape {(len(points), len(others))}", values.shape)
        if not np.isfinite(values).all():
            reject("kernel", "a function with finite values", "NaN or inf")
        return values


@one_blas_thread()
def inverse_root(matrix: FloatArray) -> tuple[FloatArray, int]:
    """R with R R^T = M^-1 for a positive semi-definite M, with zeros for tiny eigenvalues; and the rank.

    Its columns are eigenvectors over the roots of their eigenvalues. The symmetric root differs by a rotation,
    which would mix the errors of small eigenvalues into all columns.
    """
    if np.abs(matrix - matrix.T).max() > _NOT_A_KERNEL * np.abs(matrix).max():
        reject("kernel", "a symmetric function", "different values if the points are exchanged")
    values, vectors = linalg.eigh((matrix + matrix.T) / 2)
    largest = float(values[-1])
    if not largest > 0 or values[0] < -_NOT_A_KERNEL * largest:
        reject("kernel", "positive semi-definite", f"an eigenvalue of {values[0]:.2g} beside one of {largest:.2g}")
    kept = values > len(values) * np.finfo(np.float64).eps * largest
    roots = np.sqrt(np.where(kept, values, 1.0))
    return np.where(kept, vectors / roots, 0.0), int(kept.sum())
