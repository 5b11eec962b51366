"""Textures by their nearest labelled windows: what nearest means, how it is chosen, and votes of groups.

A method is seen through values of its kernel between windows and labelled windows. All rules follow from them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.applications.neighbors import balanced_weights, inverse_or_zero, largest_columns, majority
from manifoldrf.experiments.texture_views import Views

PLAIN = "plain"  # the paper's protocol: neighbours in features
BALANCED = "balanced"  # labelled windows share the cloud equally
# Rules are tried in this order, and the first of equals is taken.
RULES: dict[str, tuple[str, ...]] = {PLAIN: ("euclidean", "cosine", "kernel", "share"), BALANCED: ("balanced",)}

_SMALLEST = 1e-280  # of a value: its inverse times all else is still in the range of doubles


@dataclass(frozen=True, eq=False)
class Values:
    """Inner products C(x, l) = phi(x) . phi(l) of a method's features with those of l labelled windows.

    Attributes
    ----------
    labelled : array of shape (l, l)
    cloud : array of shape (n, l)
        From some unlabelled windows.
    norms2 : array of shape (l,)
        Squared lengths of the features of labelled windows.
    of_test : callable
        Returns the values from all test windows, shape (t, l). They are large, and most settings never need them.
    """

    labelled: NDArray[Any]
    cloud: NDArray[Any]
    norms2: NDArray[Any]
    of_test: Callable[[], NDArray[Any]]

    def ranks(self, found: NDArray[Any], rule: str, columns: Any = slice(None)) -> NDArray[Any]:
        """How near labelled windows are by a rule, larger is nearer: from values of the same shape (q, some of l).

        Rules are those of :class:`KernelNeighborsClassifier`, up to factors and terms of a whole row.
        """
        norms2 = _above_rounding(self.norms2[columns])
        if rule == "euclidean":
            return np.asarray(2 * found - norms2)
        if rule == "cosine":
            return np.asarray(found * np.sqrt(inverse_or_zero(norms2)))
        if rule == "kernel":
            return found
        return np.asarray(found * _weights(self.cloud[:, columns], balanced=rule == "balanced"))


def _above_rounding(values: NDArray[Any]) -> FloatArray:
    """Values whose inverse is finite, zero for all others: narrow kernels are that small at outliers."""
    return np.where(values > _SMALLEST, values, 0.0).astype(np.float64)


def _weights(cloud: NDArray[Any], *, balanced: bool) -> FloatArray:
    """What values of labelled windows are multiplied by, given those from the cloud; negative ones count as zero.

    Columns are scaled to a largest entry of one first: narrow kernels have columns below the range of single
    precision, which is enough for all else.
    """
    largest = inverse_or_zero(_above_rounding(cloud.max(axis=0)))
    scaled: NDArray[Any] = np.maximum(cloud * largest, 0.0).astype(np.float32)
    weights = inverse_or_zero(scaled.mean(axis=0))
    return np.asarray(largest * (balanced_weights(scaled, weights) if balanced else weights))


def validate(values: Values, rule: str, views: Views) -> float:
    """Share of labelled windows that those of other angles recognise, in percent. Test windows play no part."""
    hits = []
    for angle in np.unique(views.labelled_angle):
        known = views.labelled_angle == angle
        ranks = values.ranks(values.labelled[np.ix_(~known, known)], rule, known)
        found = views.labelled_y[known][ranks.argmax(axis=1)]
        hits.append(np.mean(found == views.labelled_y[~known]))
    return 100 * float(np.mean(hits))


def group_accuracy(found: IntArray, views: Views) -> float:
    """Share of groups of test windows whose most frequent class is the right one, in percent.

    Of equally frequent classes the first counts.
    """
    n_classes = int(views.labelled_y.max()) + 1
    votes = np.zeros((int(views.test_group[-1]) + 1, n_classes), dtype=np.int64)
    np.add.at(votes, (views.test_group, found), 1)
    truth = np.zeros(len(votes), dtype=np.int64)
    truth[views.test_group] = views.test_y
    return 100 * float(np.mean(votes.argmax(axis=1) == truth))


def nearest_accuracy(test: NDArray[Any], values: Values, rule: str, views: Views) -> float:
    """Group accuracy of the one nearest labelled window."""
    return group_accuracy(views.labelled_y[values.ranks(test, rule).argmax(axis=1)], views)


@dataclass(frozen=True)
class Choice:
    """The setting and the rule of a method that recognise labelled windows best.

    Attributes
    ----------
    setting, rule : str
    score : float
        Of :func:`validate`.
    values : Values
    """

    setting: str
    rule: str
    score: float
    values: Values

    def measure(self, views: Views, counts: Sequence[int]) -> dict[str, Any]:
        """Accuracies at test windows in percent: of groups for every number of neighbours, and of windows."""
        ranks = self.values.ranks(self.values.of_test(), self.rule)
        # Only as many as vote are put in order.
        most = min(max(counts), ranks.shape[1])
        nearest = views.labelled_y[_nearest(ranks, most)]
        row: dict[str, Any] = {"setting": self.setting, "rule": self.rule, "validation": self.score}
        for count in counts:
            found = majority(nearest[:, :count])
            row[f"k{count}"] = group_accuracy(found, views)
            if count == counts[0]:
                row["window"] = 100 * float(np.mean(found == views.test_y))
        return row


def _nearest(ranks: FloatArray, count: int) -> IntArray:
    """Columns of the largest entries of each row, largest first; of equal ones the first."""
    if count == ranks.shape[1]:
        return largest_columns(ranks, count)
    some = np.sort(np.argpartition(-ranks, count, axis=1)[:, : count + 1], axis=1)
    order = largest_columns(np.take_along_axis(ranks, some, axis=1), count)
    return np.asarray(np.take_along_axis(some, order, axis=1))
