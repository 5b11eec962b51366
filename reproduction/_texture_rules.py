"""Textures by their nearest labelled windows: what nearest means, how it is chosen, and votes of groups.

A method is seen through values of its kernel between windows and labelled windows. All rules follow from them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manifoldrf._validation import IntArray
from manifoldrf.applications.neighbors import cloud_weights, inverse_or_zero, largest_columns, majority, weighted
from reproduction.texture_views import Views

PLAIN = "plain"  # the paper's protocol: neighbours in features
SHARE = "share"  # values over their mean over the cloud
BALANCED = "balanced"  # labelled windows share the cloud equally
# Rules are tried in this order, and the first of equals is taken.
RULES: dict[str, tuple[str, ...]] = {
    PLAIN: ("euclidean", "cosine", "kernel"),
    SHARE: ("share",),
    BALANCED: ("balanced",),
}

_ROWS_AT_ONCE = 2048  # put in order at a time


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
        norms2 = self.norms2[columns].astype(np.float64)
        if rule == "euclidean":
            return np.asarray(2 * found - norms2)
        if rule == "cosine":
            return np.asarray(found * np.sqrt(inverse_or_zero(norms2)))
        if rule == "kernel":
            return found
        return weighted(found, cloud_weights(self.cloud[:, columns], balanced=rule == "balanced"))


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
        most = min(max(counts), ranks.shape[1])
        nearest = views.labelled_y[_nearest(ranks, most)]
        row: dict[str, Any] = {"setting": self.setting, "rule": self.rule, "validation": self.score}
        for count in counts:
            found = majority(nearest[:, :count])
            row[f"k{count}"] = group_accuracy(found, views)
            if count == counts[0]:
                row["window"] = 100 * float(np.mean(found == views.test_y))
        return row


def _nearest(ranks: NDArray[Any], count: int) -> IntArray:
    """Columns of the largest entries of each row, largest first; of equal ones the first."""
    parts = range(0, len(ranks), _ROWS_AT_ONCE)
    return np.concatenate([largest_columns(ranks[start : start + _ROWS_AT_ONCE], count) for start in parts])
