"""From a few labels to all: ridge, votes, nearest neighbours and label spreading.

No label enters what is computed once: a matrix from all points to those that may be labelled. A draw of labels, or
a fold of one, is some of its columns.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.csgraph import laplacian
from scipy.sparse.linalg import splu

from manifoldrf._validation import FloatArray, IntArray

_FOLDS = 5  # of a cross-validation, or as many as a class has labels
_SMALLEST = 1e-12  # distances below it count as such: a copy of a labelled point has its class


@dataclass(frozen=True, eq=False)
class AbstractRule(ABC):
    """A classifier that sees the points through one matrix.

    Attributes
    ----------
    matrix : array of shape (n, l)
        From all points to the l that may be labelled: a kernel, distances, or an operator.
    own : int array of shape (l,)
        Rows of these points.
    """

    matrix: FloatArray
    own: IntArray

    @abstractmethod
    def scores(self, chosen: IntArray, targets: FloatArray, rows: Any) -> FloatArray:
        """Scores of the classes, shape (rows, c), from labelled columns (k,) and their classes, (k, c), 0 or 1."""


@dataclass(frozen=True, eq=False)
class Ridge(AbstractRule):
    """Ridge regression on zeros and ones in its dual form: ``RidgeClassifier(penalty, fit_intercept=False)``."""

    penalty: float

    def scores(self, chosen: IntArray, targets: FloatArray, rows: Any) -> FloatArray:
        """K_q (K + penalty)^-1 Y."""
        inner = self.matrix[np.ix_(self.own[chosen], chosen)]
        weights = linalg.solve(inner + self.penalty * np.eye(len(chosen)), targets, assume_a="pos")
        return np.asarray(self.matrix[rows][:, chosen] @ weights)


@dataclass(frozen=True, eq=False)
class Vote(AbstractRule):
    """Every labelled point votes for its class with the kernel as weight."""

    def scores(self, chosen: IntArray, targets: FloatArray, rows: Any) -> FloatArray:
        """K_q Y."""
        return np.asarray(self.matrix[rows][:, chosen] @ targets)


@dataclass(frozen=True, eq=False)
class Nearest(AbstractRule):
    """Votes of the nearest labelled points; the matrix holds distances."""

    k: int = 1
    weighted: bool = False  # by one over the distance

    def scores(self, chosen: IntArray, targets: FloatArray, rows: Any) -> FloatArray:
        """Sums over the neighbours; the first one breaks ties."""
        distances = self.matrix[rows][:, chosen]
        k = min(self.k, len(chosen))
        near = np.argsort(distances, axis=1, kind="stable")[:, :k]
        weights = np.ones(near.shape)
        if self.weighted:
            weights = 1 / np.maximum(np.take_along_axis(distances, near, axis=1), _SMALLEST)
        weights[:, 0] *= 1 + 1e-9
        return np.asarray(np.einsum("qk,qkc->qc", weights, targets[near]))


@dataclass(frozen=True, eq=False)
class Spread(AbstractRule):
    """scikit-learn's ``LabelSpreading`` after infinitely many iterations.

    The matrix is (1 - alpha) (I - alpha S)^-1 on the points that it has seen. Others, with rows after those, have
    the mean of the distributions at their neighbours.

    Attributes
    ----------
    step : array or CSR of shape (new, seen)
    """

    step: Any = field(default=None)

    def scores(self, chosen: IntArray, targets: FloatArray, rows: Any) -> FloatArray:
        """Distributions over the classes, zero where no label arrives."""
        seen = len(self.matrix)
        if isinstance(rows, np.ndarray) and rows.max() < seen:
            return _shares(self.matrix[rows][:, chosen] @ targets)
        known = _shares(self.matrix[:, chosen] @ targets)
        return np.asarray(np.vstack([known, self.step @ known])[rows])


def _shares(weights: FloatArray) -> FloatArray:
    """Rows that sum to one, or are zero."""
    sums = weights.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0))


def spreading_operator(affinity: Any, alpha: float, columns: IntArray) -> FloatArray:
    """Columns of (1 - alpha) (I - alpha S)^-1, with S = -L off the diagonal as in scikit-learn, shape (n, l)."""
    n = affinity.shape[0]
    unit = np.zeros((n, len(columns)))
    unit[columns, np.arange(len(columns))] = 1 - alpha
    walk = -laplacian(affinity, normed=True)
    if sparse.issparse(walk):
        walk.setdiag(0.0)
        return np.asarray(splu(sparse.csc_array(sparse.eye_array(n) - alpha * walk)).solve(unit))
    np.fill_diagonal(walk, 0.0)
    return np.asarray(linalg.solve(np.eye(n) - alpha * walk, unit))


# ------------------------------------------------------------------------------------------------------ evaluation
@dataclass(frozen=True, eq=False)
class Draw:
    """Some labelled points, and how they are cut for cross-validation.

    Attributes
    ----------
    chosen : int array of shape (k,)
        Columns of the matrices.
    targets : array of shape (k, c)
        Classes as zeros and ones.
    folds : int array of shape (k,)
        Number of the fold that leaves a point out; every class is in every fold. Empty for one label per class.
    """

    chosen: IntArray
    targets: FloatArray
    folds: IntArray

    @classmethod
    def of(cls, by_class: IntArray) -> "Draw":
        """Make a draw of columns, shape (c, labels of each class)."""
        c, per_class = by_class.shape
        folds = np.tile(np.arange(per_class) % min(per_class, _FOLDS), c)
        return cls(by_class.ravel(), np.repeat(np.eye(c), per_class, axis=0), folds if per_class > 1 else folds[:0])

    def validate(self, rule: AbstractRule) -> float:
        """Accuracy at labelled points that are left out in turn; zero with one label for each class."""
        if not len(self.folds):
            return 0.0
        hits = 0
        for number in range(self.folds.max() + 1):
            out = self.folds == number
            scores = rule.scores(self.chosen[~out], self.targets[~out], rule.own[self.chosen[out]])
            hits += int((scores.argmax(axis=1) == self.targets[out].argmax(axis=1)).sum())
        return hits / len(self.folds)

    def predict(self, rule: AbstractRule) -> IntArray:
        """Classes of all points."""
        return np.asarray(rule.scores(self.chosen, self.targets, slice(None)).argmax(axis=1))
