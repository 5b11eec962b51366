"""Classes from few labelled points by the nearest of them in features, and what the unlabelled points add to it."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from manifoldrf._runtime import filtered, one_blas_thread, warn_user
from manifoldrf._validation import (
    FloatArray,
    IntArray,
    as_array,
    check_finite,
    check_integer,
    check_option,
    column_names,
    refuse_text,
    reject,
)
from manifoldrf.features._estimators import product

__all__ = ["KernelNeighborsClassifier"]

RANKINGS = ("euclidean", "cosine", "kernel", "share", "balanced")
_OF_CLOUD = ("share", "balanced")
# Rows of one task. All tasks have so many, the last one filled up with zeros, so that every row rounds alike
# whatever rows come before and after it.
_ROWS_AT_ONCE = 512
# Shares even out within tens of rounds; accuracies are the same after 15 and after 300.
_ROUNDS, _EVEN = 50, 1e-3
_SMALLEST = 1e-280  # of a value: its inverse times all else is still in the range of doubles
# Of its mean value: each labelled point is seen a little by everything, or the weights of points that hardly any
# other sees would grow without end.
_FLOOR = 1e-6


class KernelNeighborsClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Majority of the nearest labelled points, where near is said by features, with the help of unlabelled points.

    With C(x, l) = phi(x).phi(l), the value of the kernel between a point and a labelled point, the nearest l has
    the least |phi(x) - phi(l)| ("euclidean"), the largest cosine of phi(x) and phi(l) ("cosine"), the largest
    C(x, l) ("kernel"), the largest C(x, l) over its mean over the cloud ("share"), or the largest w_l C(x, l) with
    weights w such that all labelled points get the same share of the cloud ("balanced"): every point u of the
    cloud is divided among them as w_l C(u, l) / sum_m w_m C(u, m).

    The last two see to it that labelled points in dense regions, which are near to everything, do not take all.
    They assume that labelled points are drawn as the cloud is: a class with twice as many gets twice the share.
    Points whose features are all zero, as those far from the space are, are as near to one labelled point as to
    another: their class means nothing.

    Parameters
    ----------
    n_neighbors : int, default=1
        How many labelled points vote. A tie goes to the first of the sorted classes, as in scikit-learn.
    ranking : {"euclidean", "cosine", "kernel", "share", "balanced"}, default="cosine"
        What nearest means. The last two take negative values of the kernel, which signed features have, for zero
        when they weigh.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    weights_ : array of shape (n_labelled,)
        What values of the kernel are multiplied by; ones where there is nothing to weigh.

    Examples
    --------
    Two half moons, two labels each, and 196 points without:

    >>> import numpy as np
    >>> from sklearn.datasets import make_moons
    >>> from manifoldrf import DiffusionKernel, GraphOptions, KernelNeighborsClassifier, ManifoldRandomFeatures
    >>> X, y = make_moons(200, noise=0.05, random_state=0)
    >>> known = np.concatenate([np.flatnonzero(y == c)[:2] for c in (0, 1)])
    >>> graph = GraphOptions(kind="knn", n_neighbors=10, bandwidth="local")
    >>> phi = ManifoldRandomFeatures(DiffusionKernel(100.0), graph=graph, random_state=0).fit_transform(X)
    >>> near = KernelNeighborsClassifier(ranking="balanced").fit(phi[known], y[known], cloud=phi)
    >>> near.score(phi, y)
    1.0
    """

    def __init__(self, n_neighbors: int = 1, ranking: str = "cosine") -> None:
        self.n_neighbors = n_neighbors
        self.ranking = ranking

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def fit(self, X: Any, y: Any, cloud: Any = None) -> Self:
        """Keep the labelled points and, where the ranking needs them, weigh them by the cloud.

        Parameters
        ----------
        X : array-like or sparse array of shape (n_labelled, m)
            Features of the labelled points.
        y : array-like of shape (n_labelled,)
            Their classes.
        cloud : array-like or sparse array of shape (n, m), optional
            Features of points of any class, for "share" and "balanced"; a few thousand are enough. The labelled
            points themselves when not given.
        """
        check_option(self.ranking, "ranking", RANKINGS)
        refuse_text(X, "X")  # scikit-learn reads numbers from texts
        names = column_names(X)
        as_array(y, "y")  # and drops masks
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False)
        check_finite(X, "X", columns=names)
        with filtered("ignore", "The number of unique classes", UserWarning):  # one label a class is no regression
            check_classification_targets(y)
        check_integer(self.n_neighbors, "n_neighbors", 1, len(y))
        self.classes_, self._labels = np.unique(y, return_inverse=True)
        self._warn_of_unlabelled()
        self._rows = X
        self._norms2 = _squares(X)
        self.weights_ = self._weigh(X if cloud is None else _check_cloud(cloud, X.shape[1]))
        return self

    def _warn_of_unlabelled(self) -> None:
        """Elsewhere in scikit-learn -1 stands for points without a label."""
        counts = np.bincount(self._labels)
        if len(counts) > 2 and self.classes_[0] == -1 and 2 * counts[0] > len(self._labels):
            warn_user(
                "-1 is a class like all others here: hand over points without a label as `cloud`.", UserWarning
            )

    def _weigh(self, cloud: Any) -> FloatArray:
        """Weights of the labelled points, with a mean of 1."""
        if self.ranking not in _OF_CLOUD:
            return np.ones(len(self._labels))
        weights = cloud_weights(self._values(cloud), balanced=self.ranking == "balanced")
        if not weights.any():
            reject("cloud", "points that the labelled ones see", "a kernel of zero between all of them")
        return np.asarray(weights / weights.mean())

    def _values(self, X: Any) -> FloatArray:
        """Values of the kernel (n, n_labelled), the same bits for every number of threads and of other rows."""
        n = X.shape[0]
        if not sparse.issparse(X):
            X = np.concatenate([X, np.zeros((-n % _ROWS_AT_ONCE, X.shape[1]))])
        parts = [X[start : start + _ROWS_AT_ONCE] for start in range(0, n, _ROWS_AT_ONCE)]
        with one_blas_thread():
            return np.concatenate([product(part, self._rows, 1) for part in parts])[:n]

    def rank(self, X: Any) -> FloatArray:
        """How near each labelled point is to each point, shape (n, n_labelled); larger is nearer."""
        check_is_fitted(self, "weights_")
        refuse_text(X, "X")
        names = column_names(X)
        X = validate_data(self, X, reset=False, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False)
        check_finite(X, "X", columns=names)
        values = self._values(X)
        if self.ranking == "euclidean":
            return np.asarray(2 * values - self._norms2 - _squares(X)[:, None])
        if self.ranking == "cosine":
            lengths = np.sqrt(_squares(X))[:, None] * np.sqrt(self._norms2)
            return np.asarray(np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0))
        return weighted(values, self.weights_) if self.ranking in _OF_CLOUD else values

    def votes(self, X: Any, counts: Sequence[int]) -> NDArray[Any]:
        """Classes by the votes of 1, 3, ... labelled points at once, shape (len(counts), n)."""
        ranks = self.rank(X)
        if not len(counts):
            reject("counts", "one number of neighbours or more", counts)
        most = max(check_integer(count, "counts", 1, ranks.shape[1]) for count in counts)
        nearest = self._labels[largest_columns(ranks, most)]  # (n, most)
        return np.stack([self.classes_[majority(nearest[:, :count])] for count in counts])

    def predict(self, X: Any) -> NDArray[Any]:
        """Class of each point, shape (n,)."""
        return np.asarray(self.votes(X, [self.n_neighbors])[0])


def _check_cloud(cloud: Any, n_features: int) -> Any:
    """Features of points without a label."""
    refuse_text(cloud, "cloud")
    rows = check_array(cloud, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False, input_name="cloud")
    if rows.shape[1] != n_features:
        reject("cloud", f"features of shape (n, {n_features}), as those of X", f"shape {rows.shape}")
    check_finite(rows, "cloud", columns=column_names(cloud))
    return rows


def _squares(rows: Any) -> FloatArray:
    """Squared lengths of rows, shape (n,)."""
    if sparse.issparse(rows):
        return np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
    return np.asarray((rows * rows).sum(axis=1))


def cloud_weights(values: NDArray[Any], *, balanced: bool) -> FloatArray:
    """Weights of labelled points from values (n, n_labelled) between them and a cloud; negative ones count as zero.

    Columns are scaled to a largest entry of one first: narrow kernels are below all that can be divided by.
    """
    largest = np.asarray(values.max(axis=0), dtype=np.float64)
    inverse = inverse_or_zero(np.where(largest > _SMALLEST, largest, 0.0))
    scaled = np.maximum(values * inverse, 0.0)
    weights = inverse_or_zero(scaled.mean(axis=0))
    return np.asarray(inverse * (balanced_weights(scaled, weights) if balanced else weights))


def weighted(values: NDArray[Any], weights: FloatArray) -> NDArray[Any]:
    """Values times weights; labelled points of weight zero, which nothing sees, are the last."""
    return np.where(weights > 0, values * weights, -np.inf)


def inverse_or_zero(values: FloatArray) -> FloatArray:
    """One over each value, zero for zero: a point that no other sees has no share to be made larger."""
    return np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)


def balanced_weights(values: FloatArray, weights: FloatArray) -> FloatArray:
    """Weights w for which the shares w_l C_ul / sum_m w_m C_um add up to the same for all l: Sinkhorn's scaling."""
    seen = values + _FLOOR * values.mean(axis=0)
    target = len(seen) / max(1, int(np.count_nonzero(weights)))
    for _ in range(_ROUNDS):
        shares = weights * (seen.T @ inverse_or_zero(seen @ weights))
        if np.abs(shares[weights > 0] / target - 1.0).max(initial=0.0) <= _EVEN:
            break
        weights = weights * target * inverse_or_zero(shares)
    return weights


def largest_columns(ranks: FloatArray, count: int) -> IntArray:
    """Columns of the largest entries of each row, largest first; of equal ones the first."""
    return np.argsort(-ranks, axis=1, kind="stable")[:, :count]


def majority(labels: IntArray) -> IntArray:
    """The most frequent label of each row, of equally frequent ones the smallest."""
    votes = np.zeros((len(labels), int(labels.max()) + 1), dtype=np.int64)
    for column in labels.T:
        votes[np.arange(len(labels)), column] += 1
    return np.asarray(np.argmax(votes, axis=1), dtype=np.int64)
