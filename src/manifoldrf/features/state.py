"""The fitted state of :class:`ManifoldRandomFeatures`: as values for a file, and as a text for a reader."""

import os
from typing import Any, TypeVar

import numpy as np

from manifoldrf._random import Streams
from manifoldrf._validation import check_flag, check_indices, check_integer, check_jobs, check_option, reject
from manifoldrf.features.errors import ErrorEstimate, brief
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.options import GraphOptions
from manifoldrf.fields.options import DEVICES
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels.abstract_kernel import AbstractKernel, ScaledKernel

Estimator = TypeVar("Estimator")

_LONGEST = 100  # characters of a kernel in the summary
_FAR_GRAPH = 0.1  # error of a graph from which on the summary says so; a warning comes with twice that

# What a parameter may be to be kept in a file; functions and generators have done their work.
_PLAIN = (
    *(AbstractKernel, GraphOptions, Graph, np.ndarray, np.generic),
    *(str, int, float, list, tuple, dict, os.PathLike, type(None)),
)


def state_of(features: Any) -> dict[str, Any]:
    """All that a fitted estimator knows, in values that a file can hold; not its threads, which change nothing."""
    params = features.get_params(deep=False)
    del params["n_jobs"]
    return {
        "params": {name: _plain(value) for name, value in params.items() if _is_plain(value)},
        "map": features.map_,
        "field": features.field_,
        "starts": features.starts_,
        "quadrature": features.quadrature_,
        "training": features.training_,
        "error": features.error_,
        "root": features._streams.root.hex(),
        "n_features_in": int(features.n_features_in_),
        "feature_names_in": [str(name) for name in getattr(features, "feature_names_in_", [])],
    }


def restore(features: Estimator, state: dict[str, Any]) -> Estimator:
    """Give an estimator the state of a file; raises where it is not one that was saved."""
    fitted, error = state["map"], state["error"]
    if not isinstance(fitted, FeatureMap) or not isinstance(error, ErrorEstimate):
        raise TypeError("it has no feature map")
    fitted.check()
    target: Any = features
    target.map_ = fitted
    target.field_ = str(state["field"])
    target.starts_ = check_indices(state["starts"], "starts", fitted.space.graph.n_nodes)
    target.quadrature_ = str(state["quadrature"])
    target.training_ = state["training"]
    target._error = error, True
    target._streams = Streams(bytes.fromhex(state["root"]))
    n_coordinates = fitted.space.graph.positions.shape[1]
    target.n_features_in_ = check_integer(state["n_features_in"], "n_features_in", n_coordinates, n_coordinates)
    names = state["feature_names_in"]
    if names:
        if len(names) != n_coordinates or not all(isinstance(name, str) for name in names):
            reject("feature_names_in", f"{n_coordinates} texts", str(names)[:80])
        target.feature_names_in_ = np.array(names, dtype=object)
    _check_reading(target)
    return features


def _check_reading(features: Any) -> None:
    """The parameters that are used whenever features are made."""
    check_jobs(features.n_jobs)
    check_option(features.device, "device", DEVICES)
    check_flag(features.sparse_output, "sparse_output")


def summarise(features: Any) -> str:
    """What was fitted, chosen and estimated, a line for each."""
    space = features.map_.space
    setting, notes = space.setting, dict(space.notes)
    chosen = f", {notes.pop('kernel')}" if "kernel" in notes else ""
    field = "step, which needs no fit" if features.field_ == "step" else features.field_
    if features.field_ != "step":
        field += f", fitted to {len(features.starts_)} nodes"
    lines = [
        ("kernel", f"{_shortened(space.kernel)}{chosen}"),
        ("on the graph", f"{_shortened(setting.kernel)}, in the {space.clock} clock"),
        *notes.items(),
        ("width of features", f"{setting.width:.3g}"),
        ("features", f"{features.n_features_out_}, {_weights_text(features)}"),
        ("field", field),
        ("fields tried", _listed(features.error_.candidates)),
        ("weights tried", _listed(features.error_.weights)),
        ("relative error", f"{features.error_}{_about_graph(features)}"),
    ]
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in lines if text)


def _about_graph(features: Any) -> str:
    """What helps a graph that is far from the space, said before it is far enough for a warning."""
    share = features.error_.graph
    of_series = features.map_.space.series_error is not None  # the share is that of a series, not of the graph
    return "" if share is None or of_series or share < _FAR_GRAPH else "; the graph wants more points or a larger t"


def _weights_text(features: Any) -> str:
    if features.map_.space.setting.asymmetric:
        return "with two sides: this kernel has no nonnegative features"
    return f"weights '{features.quadrature_}'"


def _shortened(kernel: Any) -> str:
    """A kernel as text; a long series is cut."""
    scaled = isinstance(kernel, ScaledKernel)
    text = f"{kernel.factor:.3g} * {kernel.kernel!r}" if scaled else repr(kernel)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."


def _listed(table: tuple[tuple[str, float], ...]) -> str:
    return ", ".join(f"{name} {brief(error)}" for name, error in table)


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN)


def _plain(value: Any) -> Any:
    """A parameter as a file holds it: numbers of Python, paths as text, of a dictionary what can be kept."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items() if _is_plain(part)}
    if isinstance(value, np.generic):
        return value.item()
    return os.fspath(value) if isinstance(value, os.PathLike) else value
