"""The fitted state of :class:`ManifoldRandomFeatures`, as values for a file and as text for a reader."""

import os
from typing import Any

import numpy as np

from manifoldrf._random import Streams
from manifoldrf._validation import check_flag, check_integer, reject
from manifoldrf.features.errors import ErrorEstimate, brief
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.fit import FitRecord
from manifoldrf.features.times import TimeRange
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels.abstract_kernel import FrozenParams, ScaledKernel

# Types of parameters that are kept in a file; functions and generators are not needed after the fit.
_PLAIN = (
    *(FrozenParams, Graph, np.ndarray, np.generic, str, int, float, list, tuple, dict, os.PathLike, type(None)),
)


def state_of(features: Any) -> dict[str, Any]:
    """The state of a fitted estimator in values that a file can hold, without ``n_jobs``, which changes nothing."""
    family = getattr(features, "times_", None)
    return {
        "times": family,
        "params": plain_params(features, without=("n_jobs",)),
        "map": features.map_.kernel.stated if family is not None else features.map_,
        "record": features.record_,
        "error": features.error_,
        "root": features._streams.root.hex(),
        "n_features_in": int(features.n_features_in_),
        "feature_names_in": [str(name) for name in getattr(features, "feature_names_in_", [])],
    }


def restore(features: Any, state: dict[str, Any]) -> Any:
    """Give an estimator the state from a file; raises if the state is not one that was saved."""
    fitted, record, error = state["map"], state["record"], state["error"]
    if state["times"] is not None:
        if not isinstance(state["times"], TimeRange):
            raise TypeError("its range of times is none")
        features.times_ = features._source = state["times"]
        fitted = features.times_.at(fitted, normalize=bool(features.normalize))
    if (
        not isinstance(fitted, FeatureMap)
        or not isinstance(error, ErrorEstimate)
        or not isinstance(record, FitRecord)
    ):
        raise TypeError("it has no feature map")
    with np.errstate(all="ignore"):
        if not np.isfinite(fitted.bound * fitted.output_scale).all():
            reject("weights", "such that features are finite", "others")
    features.map_, features.record_ = fitted, record
    features._error = error, True
    features._streams = Streams(bytes.fromhex(state["root"]))
    n_coordinates, names = fitted.graph.positions.shape[1], state["feature_names_in"]
    features.n_features_in_ = check_integer(state["n_features_in"], "n_features_in", n_coordinates, n_coordinates)
    if names:
        if len(names) != n_coordinates or not all(isinstance(name, str) for name in names):
            reject("feature_names_in", f"{n_coordinates} texts", str(names)[:80])
        features.feature_names_in_ = np.array(names, dtype=object)
    check_flag(features.sparse_output, "sparse_output")
    return features


def summary_rows(features: Any, error: ErrorEstimate | None) -> list[tuple[str, str]]:
    """What was fitted, chosen and estimated, as names and texts; without an estimate, where to find it."""
    map_, record, kernel = features.map_, features.record_, features.map_.kernel
    notes = dict(record.notes)
    chosen = f", {notes.pop('kernel')}" if "kernel" in notes else ""
    weights = f"quadrature '{record.quadrature}'"
    if kernel.asymmetric:
        weights = "with two sides: this kernel has no nonnegative features"
    clock = "manifold" if kernel.per_volume else "graph"
    scale = f"{map_.factor:.3g} times the kernel: K(x, x) = 1 on average" if map_.factor != 1 else ""
    rows = [
        ("kernel", f"{shortened(kernel.stated)}{chosen}"),
        ("on the graph", "" if "times" in notes else f"{shortened(kernel.resolved)}, in the {clock} clock"),
        ("scale", scale),
        *notes.items(),
        ("width of features", f"{kernel.width:.3g}"),
        ("features", f"{len(map_.anchors)}, {weights}"),
        ("field", record.field),
    ]
    if error is None:
        return [row for row in rows if row[1]] + [("relative error", "estimated by `error_`")]
    share = error.graph if record.series_error is None else None  # else the share is that of a series
    advice = "; use more points or a wider kernel" if (share or 0) >= 0.1 else ""  # earlier than the warning
    rows += [
        ("fields tried", ", ".join(f"{name} {brief(one)}" for name, one in error.candidates)),
        ("quadratures tried", ", ".join(f"{name} {brief(one)}" for name, one in error.weights)),
        ("relative error", f"{error}{advice}"),
    ]
    return [row for row in rows if row[1]]


def text_table(rows: list[tuple[str, str]]) -> str:
    """Names and texts, one line each."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def shortened(kernel: Any) -> str:
    """A kernel as text of at most 100 characters."""
    scaled = isinstance(kernel, ScaledKernel)
    text = f"{kernel.factor:.3g} * {kernel.kernel!r}" if scaled else repr(kernel)
    return text if len(text) <= 100 else f"{text[:96]} ..."


def plain_params(estimator: Any, *, without: tuple[str, ...]) -> dict[str, Any]:
    """The parameters of an estimator that a file can hold, except those named."""
    params = estimator.get_params(deep=False)
    return {
        name: _plain(value) for name, value in params.items() if name not in without and isinstance(value, _PLAIN)
    }


def _plain(value: Any) -> Any:
    """A parameter as a file holds it: Python numbers, paths as text, and the plain values of a dictionary."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items() if isinstance(part, _PLAIN)}
    if isinstance(value, np.generic):
        return value.item()
    return os.fspath(value) if isinstance(value, os.PathLike) else value
