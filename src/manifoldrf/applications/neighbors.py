"""Nearest-neighbour classification in features from few labelled points, with the help of unlabelled ones."""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from manifoldrf._runtime import filtered, one_blas_thread, warn_user
from manifoldrf._validation import (
    FloatArray,
    as_array,
    check_finite,
    check_integer,
    check_option,
    column_names,
    refuse_text,
    reject,
)
from manifoldrf.features.feature_map import product
from manifoldrf.geometry.csr import reciprocal

RANKINGS = ("euclidean", "cosine", "kernel", "share", "balanced")


class KernelNeighborsClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Majority vote of the nearest labelled points in features, with the help of unlabelled points.

    C(x, l) = phi(x).phi(l) is the kernel between a point and a labelled point. The nearest l has the smallest
    |phi(x) - phi(l)| ("euclidean"), the largest cosine of phi(x) and phi(l) ("cosine"), the largest C(x, l)
    ("kernel"), the largest C(x, l) over its mean over the cloud ("share"), or the largest w_l C(x, l) with weights
    w such that all labelled points get the same share of the cloud ("balanced"): every point u of the cloud is
    divided among them as w_l C(u, l) / sum_m w_m C(u, m).

    The last two prevent labelled points in dense regions, which are close to everything, from dominating.
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
    >>> from manifoldrf import DiffusionKernel, KnnGraph, KernelNeighborsClassifier, ManifoldRandomFeatures
    >>> X, y = make_moons(200, noise=0.05, random_state=0)
    >>> known = np.concatenate([np.flatnonzero(y == c)[:2] for c in (0, 1)])
    >>> graph = KnnGraph(n_neighbors=10, bandwidth="local")
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
        as_array(y, "y")  # scikit-learn drops masks
        X, y = self._checked(X, y=y)
        with filtered("ignore", "The number of unique classes", UserWarning):  # unique labels are not regression
            check_classification_targets(y)
        check_integer(self.n_neighbors, "n_neighbors", 1, len(y))
        self.classes_, self._labels = np.unique(y, return_inverse=True)
        counts = np.bincount(self._labels)
        if len(counts) > 2 and self.classes_[0] == -1 and 2 * counts[0] > len(self._labels):
            # In other classifiers of scikit-learn -1 marks unlabelled points.
            warn_user("-1 is an ordinary class here: pass unlabelled points as `cloud`.")
        self._rows, self._norms2, self.weights_ = X, _squares(X), np.ones(len(self._labels))
        if self.ranking in ("share", "balanced"):
            given = X if cloud is None else self._checked(cloud, "cloud")
            weights = cloud_weights(self._values(given), balanced=self.ranking == "balanced")
            if not weights.any():
                reject("cloud", "points within reach of the labelled ones", "a kernel of zero between all of them")
            self.weights_ = np.asarray(weights / weights.mean())
        return self

    def _checked(self, X: Any, name: str = "X", **target: Any) -> Any:
        """Features as numbers, in ``fit`` with the labels y."""
        refuse_text(X, name)  # scikit-learn reads numbers from texts
        options = {"accept_sparse": "csr", "dtype": np.float64, "ensure_all_finite": False, "reset": bool(target)}
        found = validate_data(self, X, **target, **options)
        check_finite(found[0] if target else found, name, columns=column_names(X))
        return found

    def _values(self, X: Any) -> FloatArray:
        """Kernel values (n, n_labelled); the bits do not depend on threads or on other rows.

        All products have the same shape, the last one padded with zeros, because rounding depends on it.
        """
        n, at_once = X.shape[0], 512
        if not sparse.issparse(X):
            X = np.concatenate([X, np.zeros((-n % at_once, X.shape[1]))])
        with one_blas_thread():
            parts = [product(X[start : start + at_once], self._rows, 1) for start in range(0, n, at_once)]
        return np.concatenate(parts)[:n]

    def rank(self, X: Any) -> FloatArray:
        """Similarity of each point to each labelled point, shape (n, n_labelled); larger is nearer."""
        check_is_fitted(self, "weights_")
        X = self._checked(X)
        values = self._values(X)
        if self.ranking == "euclidean":
            return np.asarray(2 * values - self._norms2 - _squares(X)[:, None])
        if self.ranking == "cosine":
            lengths = np.sqrt(_squares(X))[:, None] * np.sqrt(self._norms2)
            return np.asarray(np.divide(values, lengths, out=np.zeros_like(values), where=lengths > 0))
        return weighted(values, self.weights_) if self.ranking in ("share", "balanced") else values

    def votes(self, X: Any, counts: Sequence[int]) -> NDArray[Any]:
        """Classes for several numbers of voting neighbours at once, shape (len(counts), n)."""
        ranks = self.rank(X)
        if not len(counts):
            reject("counts", "one number of neighbours or more", counts)
        return np.stack([self.classes_[self._shares(ranks, count).argmax(axis=1)] for count in counts])

    def _shares(self, ranks: FloatArray, count: int) -> FloatArray:
        """Share of each class in the votes of the nearest, (n, n_classes)."""
        check_integer(count, "counts", 1, ranks.shape[1])
        nearest = self._labels[np.argsort(-ranks, axis=1, kind="stable")[:, :count]]  # ties in the order of columns
        return np.stack([(nearest == label).mean(axis=1) for label in range(len(self.classes_))], axis=1)

    def predict_proba(self, X: Any) -> FloatArray:
        """Share of each class in the votes, shape (n, n_classes), as in scikit-learn's ``KNeighborsClassifier``.

        With one neighbour all shares are 0 or 1. :meth:`predict` is the class with the largest share.
        """
        return self._shares(self.rank(X), self.n_neighbors)

    def predict(self, X: Any) -> NDArray[Any]:
        """Class of each point, shape (n,)."""
        return np.asarray(self.votes(X, [self.n_neighbors])[0])


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
    inverse = reciprocal(np.where(largest > 1e-280, largest, 0.0))  # smaller ones would overflow in products
    scaled = np.maximum(values * inverse, 0.0)
    weights = reciprocal(scaled.mean(axis=0))
    # Balanced: the shares w_l C_ul / sum_m w_m C_um add up to the same for all l, by Sinkhorn's scaling. The floor
    # keeps the weights of points that are far from all others bounded. Accuracies are the same after 15 and 300
    # rounds.
    seen = scaled + 1e-6 * scaled.mean(axis=0)
    target = len(seen) / max(1, int(np.count_nonzero(weights)))
    for _ in range(50 if balanced else 0):
        shares = weights * (seen.T @ reciprocal(seen @ weights))
        if np.abs(shares[weights > 0] / target - 1.0).max(initial=0.0) <= 1e-3:
            break
        weights = weights * target * reciprocal(shares)
    return np.asarray(inverse * weights)


def weighted(values: NDArray[Any], weights: FloatArray) -> NDArray[Any]:
    """Multiply values by weights; labelled points of weight zero come last."""
    return np.where(weights > 0, values * weights, -np.inf)
