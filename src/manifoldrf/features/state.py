"""The fitted state of :class:`ManifoldRandomFeatures`, as values for a file and as text for a reader."""

import dataclasses
import os
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from manifoldrf._codec import Record
from manifoldrf._random import Streams
from manifoldrf._validation import (
    FloatArray,
    IntArray,
    check_flag,
    check_indices,
    check_integer,
    check_option,
    reject,
)
from manifoldrf.features.errors import ErrorEstimate, brief
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.options import GraphOptions
from manifoldrf.features.times import TimeLevel, TimeRange
from manifoldrf.fields.data import DEVICES, AbstractField, Problem
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.model_spaces import AbstractBall
from manifoldrf.kernels.abstract_kernel import AbstractKernel, ScaledKernel

Estimator = TypeVar("Estimator")

_LONGEST = 100  # characters of a kernel in the summary
_FAR_GRAPH = 0.1  # graph error above which the summary gives advice; the warning comes at twice that

# Types of parameters that are kept in a file; functions and generators are not needed after the fit.
_PLAIN = (
    *(AbstractKernel, GraphOptions, Graph, np.ndarray, np.generic),
    *(str, int, float, list, tuple, dict, os.PathLike, type(None)),
)


def state_of(features: Any) -> dict[str, Any]:
    """The state of a fitted estimator in values that a file can hold, without ``n_jobs``, which changes nothing."""
    family = getattr(features, "times_", None)
    return {
        "times": None if family is None else [[_level_record(level) for level in family.levels], family.longest],
        "params": plain_params(features, without=("n_jobs",)),
        "map": features.map_.problem.kernel if family is not None else _map_record(features.map_),
        "field": features.field_,
        "starts": features.starts_,
        "quadrature": features.quadrature_,
        "training": features.training_,
        "error": features.error_,
        "root": features._streams.root.hex(),
        "n_features_in": int(features.n_features_in_),
        "feature_names_in": [str(name) for name in getattr(features, "feature_names_in_", [])],
    }


def _level_record(level: TimeLevel) -> Record:
    """A level as files hold it."""
    parts = {field.name: getattr(level, field.name) for field in dataclasses.fields(level)}
    return Record("TimeLevel", parts | {"problem": _problem_record(level.problem)})


def _map_record(fitted: FeatureMap) -> Record:
    """A feature map as files of format 1 hold it."""
    parts = {name: getattr(fitted, name) for name in ("field", "anchors", "weights", "factor")}
    parts |= {} if fitted.mixing is None else {"mixing": fitted.mixing}
    return Record("FeatureMap", {"space": _problem_record(fitted.problem)} | parts)


def _problem_record(problem: Problem) -> Record:
    """A problem as files of format 1 hold it, in two nested records."""
    setting = {"graph": problem.graph, "kernel": problem.resolved, "measure": problem.measure}
    setting |= {"dim": problem.dim, "width": problem.width, "asymmetric": problem.asymmetric}
    names = ("kernel", "clock", "volume", "notes", "unit", "weights_known", "series_error", "ball")
    return Record(
        "Space", {"setting": Record("Setting", setting)} | {name: getattr(problem, name) for name in names}
    )


class _Setting(dict[str, Any]):
    """The first attributes of a problem."""


def _read_setting(
    *, graph: Graph, kernel: AbstractKernel, measure: FloatArray, dim: int, width: float, asymmetric: bool = False
) -> _Setting:
    return _Setting(graph=graph, resolved=kernel, measure=measure, dim=dim, width=width, asymmetric=asymmetric)


def _read_space(  # noqa: PLR0913  (the fields of the record)
    *,
    setting: _Setting,
    kernel: AbstractKernel,
    clock: str,
    volume: float,
    notes: tuple[tuple[str, str], ...],
    unit: float = 1.0,
    weights_known: bool = True,
    series_error: float | None = None,
    ball: AbstractBall | None = None,
) -> Problem:
    rest: dict[str, Any] = {"clock": clock, "volume": volume, "notes": notes, "unit": unit}
    rest |= {"weights_known": weights_known, "series_error": series_error, "ball": ball}
    return Problem(**setting, stated=kernel, **rest)


def _read_map(
    *,
    space: Problem,
    field: AbstractField,
    anchors: IntArray,
    weights: FloatArray,
    factor: float = 1.0,
    mixing: FloatArray | None = None,
) -> FeatureMap:
    return FeatureMap(space, field, anchors, weights, factor, mixing)


# Records of format 1 that are no longer classes of this name, and the functions that read them.
RECORDS: dict[str, Callable[..., Any]] = {"Setting": _read_setting, "Space": _read_space, "FeatureMap": _read_map}


def restore(features: Estimator, state: dict[str, Any]) -> Estimator:
    """Give an estimator the state from a file; raises if the state is not one that was saved."""
    target: Any = features
    fitted, error = state["map"], state["error"]
    if state.get("times") is not None:
        levels, longest = state["times"]
        target.times_ = target._source = TimeRange(tuple(levels), longest)
        fitted = target.times_.at(fitted, normalize=bool(target.normalize))
    if not isinstance(fitted, FeatureMap) or not isinstance(error, ErrorEstimate):
        raise TypeError("it has no feature map")
    fitted.check_field()
    target.map_ = fitted
    target.field_ = str(state["field"])
    target.starts_ = check_indices(state["starts"], "starts", fitted.problem.graph.n_nodes)
    target.quadrature_ = str(state["quadrature"])
    target.training_ = state["training"]
    target._error = error, True
    target._streams = Streams(bytes.fromhex(state["root"]))
    n_coordinates = fitted.problem.graph.positions.shape[1]
    target.n_features_in_ = check_integer(state["n_features_in"], "n_features_in", n_coordinates, n_coordinates)
    names = state["feature_names_in"]
    if names:
        if len(names) != n_coordinates or not all(isinstance(name, str) for name in names):
            reject("feature_names_in", f"{n_coordinates} texts", str(names)[:80])
        target.feature_names_in_ = np.array(names, dtype=object)
    if type(target.n_jobs) is not int:
        reject("n_jobs", "an integer", repr(target.n_jobs))
    target.n_jobs = -1  # older files hold the number of threads of another machine
    check_option(target.device, "device", DEVICES)
    check_flag(target.sparse_output, "sparse_output")
    return features


def summary_rows(features: Any, error: ErrorEstimate | None) -> list[tuple[str, str]]:
    """What was fitted, chosen and estimated, as names and texts; without an estimate, where to find it."""
    problem = features.map_.problem
    notes = dict(problem.notes)
    chosen = f", {notes.pop('kernel')}" if "kernel" in notes else ""
    field = "step, which needs no fit" if features.field_ == "step" else features.field_
    if features.field_ != "step":
        field += f", fitted to {len(features.starts_)} nodes"
    weights, height = f"weights '{features.quadrature_}'", "kernel: K(x, x)"
    if problem.asymmetric:
        weights = "with two sides: this kernel has no nonnegative features"
    if features.map_.mixing is not None:
        weights = "on each side"
        height = "function: the largest |F(x, .)|"
    ambient = problem.clock == "ambient"
    if ambient:
        weights = "windows of equal weight"
    rows = [
        ("kernel", f"{described(features.map_)}{chosen}"),
        (
            "on the graph",
            "" if ambient or "times" in notes else f"{shortened(problem.resolved)}, in the {problem.clock} clock",
        ),
        ("scale", f"{features.scale_:.3g} times the {height} = 1 on average" if features.scale_ != 1 else ""),
        *notes.items(),
        ("width of features", f"{problem.width:.3g}"),
        ("features", f"{features.n_features_out_}, {weights}"),
        ("field", field),
    ]
    if error is None:
        return [row for row in rows if row[1]] + [("relative error", "estimated by `error_`")]
    share = error.graph if problem.series_error is None else None  # else the share is that of a series
    advice = "; use more points or a wider kernel" if (share or 0) >= _FAR_GRAPH else ""  # earlier than the warning
    rows += [
        ("fields tried", _listed(error.candidates)),
        ("weights tried", _listed(error.weights)),
        ("relative error", f"{error}{advice}"),
    ]
    return [row for row in rows if row[1]]


def text_table(rows: list[tuple[str, str]]) -> str:
    """Names and texts, one line each."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def shortened(kernel: Any) -> str:
    """A kernel as text; a long series is cut."""
    scaled = isinstance(kernel, ScaledKernel)
    text = f"{kernel.factor:.3g} * {kernel.kernel!r}" if scaled else repr(kernel)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 4]} ..."


def described(fitted: FeatureMap) -> str:
    """What features represent, as text: a kernel, or a function for which those of a kernel are mixed."""
    text = shortened(fitted.problem.kernel)
    return text if fitted.mixing is None else f"a function without symmetry (features of {text}, mixed)"


def _listed(table: tuple[tuple[str, float], ...]) -> str:
    return ", ".join(f"{name} {brief(error)}" for name, error in table)


def plain_params(estimator: Any, *, without: tuple[str, ...]) -> dict[str, Any]:
    """The parameters of an estimator that a file can hold, except those named."""
    params = estimator.get_params(deep=False)
    return {name: _plain(value) for name, value in params.items() if name not in without and _is_plain(value)}


def _is_plain(value: Any) -> bool:
    return isinstance(value, _PLAIN)


def _plain(value: Any) -> Any:
    """A parameter as a file holds it: Python numbers, paths as text, and the plain values of a dictionary."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items() if _is_plain(part)}
    if isinstance(value, np.generic):
        return value.item()
    return os.fspath(value) if isinstance(value, os.PathLike) else value
