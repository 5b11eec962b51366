"""Classification from few labelled points by the nearest of them in features, with help of unlabelled points."""

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
from manifoldrf.features.rules import product
from manifoldrf.geometry.csr import reciprocal

__all__ = ["KernelNeighborsClassifier"]

RANKINGS = ("euclidean", "cosine", "kernel", "share", "balanced")
_OF_CLOUD = ("share", "balanced")
# Rows of one product. All products have the same shape, the last one padded with zeros, so that the rounding of a
# row does not depend on the other rows.
_ROWS_AT_ONCE = 512
# Shares even out within tens of rounds; accuracies are the same after 15 and after 300.
_ROUNDS, _EVEN = 50, 1e-3
_SMALLEST = 1e-280  # smallest value whose inverse does not overflow in products
# Added to each kernel value, relative to the mean of its labelled point. Without it the weights of points that are
# far from all others would grow without bound.
_FLOOR = 1e-6


class KernelNeighborsClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Majority vote of the nearest labelled points in features, with help of unlabelled points.

    C(x, l) = phi(x).phi(l) is the kernel between a point and a labelled point. The nearest l has the smallest
    |phi(x) - phi(l)| ("euclidean"), the largest cosine of phi(x) and phi(l) ("cosine"), the largest C(x, l)
    ("kernel"), the largest C(x, l) over its mean over the cloud ("share"), or the largest w_l C(x, l) with weights
    w such that all labelled points get the same share of the cloud ("balanced"): every point u of the cloud is
    divided among them as w_l C(u, l) / sum_m w_m C(u, m).

    The last two prevent labelled points in dense regions, which are near to everything, from winning everywhere.
    They assume that labelled points are distributed like the cloud: a class with twice as many labels gets twice
    the share. Points whose features are all zero, such as points far from the space, are equally near to all
    labelled points, and their class is meaningless.

    Parameters
    ----------
    n_neighbors : int, default=1
        Number of labelled points that vote. A tie goes to the first of the sorted classes, as in scikit-learn.
    ranking : {"euclidean", "cosine", "kernel", "share", "balanced"}, default="cosine"
        The meaning of nearest. The last two treat negative values of the kernel, which signed features can have, as
        zero when they compute weights.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
    weights_ : array of shape (n_labelled,)
        Factors of the kernel values; ones for rankings without weights.

    Examples
    --------
    Two half moons with two labels each and 196 unlabelled points:

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
        """Store the labelled points and compute their weights from the cloud if the ranking needs them.

        Parameters
        ----------
        X : array-like or sparse array of shape (n_labelled, m)
            Features of the labelled points.
        y : array-like of shape (n_labelled,)
            Their classes.
        cloud : array-like or sparse array of shape (n, m), optional
            Features of points of any class, for "share" and "balanced"; a few thousand are enough. By default the
            labelled points themselves.
        """
        check_option(self.ranking, "ranking", RANKINGS)
        refuse_text(X, "X")  # scikit-learn reads numbers from texts
        names = column_names(X)
        as_array(y, "y")  # and drops masks
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False)
        check_finite(X, "X", columns=names)
        with filtered("ignore", "The number of unique classes", UserWarning):  # one label each is no regression
            check_classification_targets(y)
        check_integer(self.n_neighbors, "n_neighbors", 1, len(y))
        self.classes_, self._labels = np.unique(y, return_inverse=True)
        counts = np.bincount(self._labels)
        if len(counts) > 2 and self.classes_[0] == -1 and 2 * counts[0] > len(self._labels):
            # In other classifiers of scikit-learn -1 marks unlabelled points.
            warn_user("-1 is an ordinary class here: pass unlabelled points as `cloud`.", UserWarning)
        self._rows = X
        self._norms2 = _squares(X)
        given = X if cloud is None else _check_cloud(cloud, X.shape[1])
        self.weights_ = np.ones(len(self._labels))
        if self.ranking in _OF_CLOUD:
            weights = cloud_weights(self._values(given), balanced=self.ranking == "balanced")
            if not weights.any():
                reject("cloud", "points within reach of the labelled ones", "a kernel of zero between all of them")
            self.weights_ = np.asarray(weights / weights.mean())
        return self

    def _values(self, X: Any) -> FloatArray:
        """Kernel values (n, n_labelled); the bits do not depend on threads or on other rows."""
        n = X.shape[0]
        if not sparse.issparse(X):
            X = np.concatenate([X, np.zeros((-n % _ROWS_AT_ONCE, X.shape[1]))])
        parts = [X[start : start + _ROWS_AT_ONCE] for start in range(0, n, _ROWS_AT_ONCE)]
        with one_blas_thread():
            return np.concatenate([product(part, self._rows, 1) for part in parts])[:n]

    def rank(self, X: Any) -> FloatArray:
        """Similarity of each point to each labelled point, shape (n, n_labelled); larger is nearer."""
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
        """Classes for several numbers of voting neighbours at once, shape (len(counts), n)."""
        ranks = self.rank(X)
        if not len(counts):
            reject("counts", "one number of neighbours or more", counts)
        most = max(check_integer(count, "counts", 1, ranks.shape[1]) for count in counts)
        nearest = self._labels[largest_columns(ranks, most)]  # (n, most)
        return np.stack([self.classes_[majority(nearest[:, :count])] for count in counts])

    def predict_proba(self, X: Any) -> FloatArray:
        """Share of each class in the votes, shape (n, n_classes), as in scikit-learn's ``KNeighborsClassifier``.

        With one neighbour all shares are 0 or 1. :meth:`predict` is the class with the largest share.
        """
        ranks = self.rank(X)
        nearest = self._labels[largest_columns(ranks, self.n_neighbors)]  # (n, k)
        return np.asarray(count_votes(nearest, len(self.classes_)) / self.n_neighbors)

    def predict(self, X: Any) -> NDArray[Any]:
        """Class of each point, shape (n,)."""
        return np.asarray(self.votes(X, [self.n_neighbors])[0])


def _check_cloud(cloud: Any, n_features: int) -> Any:
    """Check the features of unlabelled points."""
    refuse_text(cloud, "cloud")
    rows = check_array(cloud, accept_sparse="csr", dtype=np.float64, ensure_all_finite=False, input_name="cloud")
    if rows.shape[1] != n_features:
        reject("cloud", f"features of shape (n, {n_features}), like those of X", f"shape {rows.shape}")
    check_finite(rows, "cloud", columns=column_names(cloud))
    return rows


def _squares(rows: Any) -> FloatArray:
    """Squared lengths of rows, shape (n,)."""
    if sparse.issparse(rows):
        return np.asarray(rows.multiply(rows).sum(axis=1)).ravel()
    return np.asarray((rows * rows).sum(axis=1))


def cloud_weights(values: NDArray[Any], *, balanced: bool) -> FloatArray:
    """Weights of labelled points from values (n, n_labelled) between them and a cloud; negative ones become zero.

    Columns are scaled to a largest entry of one first, because the values of narrow kernels are too small to
    invert.
    """
    largest = np.asarray(values.max(axis=0), dtype=np.float64)
    inverse = reciprocal(np.where(largest > _SMALLEST, largest, 0.0))
    scaled = np.maximum(values * inverse, 0.0)
    weights = reciprocal(scaled.mean(axis=0))
    # Balanced: the shares w_l C_ul / sum_m w_m C_um add up to the same for all l, by Sinkhorn's scaling.
    seen = scaled + _FLOOR * scaled.mean(axis=0)
    target = len(seen) / max(1, int(np.count_nonzero(weights)))
    for _ in range(_ROUNDS if balanced else 0):
        shares = weights * (seen.T @ reciprocal(seen @ weights))
        if np.abs(shares[weights > 0] / target - 1.0).max(initial=0.0) <= _EVEN:
            break
        weights = weights * target * reciprocal(shares)
    return np.asarray(inverse * weights)


def weighted(values: NDArray[Any], weights: FloatArray) -> NDArray[Any]:
    """Multiply values by weights; labelled points of weight zero come last."""
    return np.where(weights > 0, values * weights, -np.inf)


def largest_columns(ranks: FloatArray, count: int) -> IntArray:
    """Columns of the largest entries of each row, largest first; ties in order of the columns.

    Of 666 columns, 15 are found in under a third of the time of a sort of whole rows.
    """
    falling = -ranks
    if count >= falling.shape[1]:
        return np.argsort(falling, axis=1, kind="stable")
    columns = np.sort(np.argpartition(falling, count - 1, axis=1)[:, :count], axis=1)
    found = np.take_along_axis(falling, columns, axis=1)
    order = np.argsort(found, axis=1, kind="stable")
    columns = np.take_along_axis(columns, order, axis=1)
    # Where the last entry ties with entries left out, the partition has kept any of them.
    tied = (falling <= found.max(axis=1, keepdims=True)).sum(axis=1) != count
    columns[tied] = np.argsort(falling[tied], axis=1, kind="stable")[:, :count]
    return columns


def majority(labels: IntArray) -> IntArray:
    """The most frequent label of each row; ties go to the smallest."""
    return np.asarray(np.argmax(count_votes(labels, int(labels.max()) + 1), axis=1), dtype=np.int64)


def count_votes(labels: IntArray, n_classes: int) -> IntArray:
    """How often each label occurs in each row, shape (n, n_classes)."""
    votes = np.zeros((len(labels), n_classes), dtype=np.int64)
    for column in labels.T:
        votes[np.arange(len(labels)), column] += 1
    return votes
