"""Data of a regression: values at some points of a space."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from manifoldrf._validation import (
    POSITIVE,
    FloatArray,
    Interval,
    check_points,
    check_real,
    column_names,
    refuse_text,
    reject,
)
from manifoldrf.applications._places import refuse_file
from manifoldrf.features._points import estimator_points
from manifoldrf.geometry.manifolds import AbstractManifold

_ENTRIES_AT_ONCE = 2**24  # of features: 128 MB


def check_data(estimator: Any, X: Any, y: Any) -> tuple[FloatArray, FloatArray]:
    """Points (n, d) and values (n, c); notes whether the values were a vector."""
    refuse_text(X, "X")  # scikit-learn reads numbers from texts
    if y is not None:
        refuse_text(y, "y")
    points, values = validate_data(
        estimator,
        X,
        y,
        dtype=np.float64,
        ensure_all_finite=False,  # of X; that of y is checked in any case
        multi_output=True,
        y_numeric=True,
        ensure_min_samples=2,
    )
    estimator._is_vector = np.ndim(values) == 1
    targets = check_points(np.reshape(values, (len(points), -1)), "y")
    return check_points(points, "X", names=column_names(X)), np.array(targets, dtype=np.float64)


def space_of(estimator: Any, points: FloatArray) -> Any:
    """The space as given, whose points must have as many coordinates as the data; the data themselves without."""
    space = estimator.space
    if space is None:
        return points
    refuse_file(space)
    if isinstance(space, AbstractManifold):
        d: int | None = space.ambient_dim
    else:
        nodes = getattr(space, "vertices", getattr(space, "points", space))
        d = np.shape(nodes)[-1] if np.ndim(nodes) else None
    if d != points.shape[1]:
        reject("X", f"points of shape (n, {d}), as the space has", f"shape {points.shape}")
    return space


def check_queries(estimator: Any, X: Any) -> FloatArray:
    check_is_fitted(estimator, "features_")
    return estimator_points(estimator, X, reset=False)[0]


def parts_of(values: FloatArray, m: int) -> Iterator[FloatArray]:
    """Some rows at a time, so that m features of each fit into memory."""
    size = max(1, _ENTRIES_AT_ONCE // m)
    for start in range(0, len(values), size):
        yield values[start : start + size]


def check_on_space(height: float, n: int) -> None:
    """Refuse data whose features are all zero, given the mean of their squares: nothing can be learnt from them."""
    if not height > 0:
        reject("X", "on the space, where there are features; do units or coordinates differ?", f"{n} points off it")


def dense_rows(rows: Any) -> FloatArray:
    return np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows, dtype=np.float64)


def check_level(value: Any, name: str, free: str = "auto", interval: Interval = POSITIVE) -> float | None:
    """A level that is given; None for one that is to be found, which a word says."""
    if isinstance(value, str):
        if value != free:
            reject(name, f"'{free}' or a number in {interval}", repr(value))
        return None
    return check_real(value, name, interval)
