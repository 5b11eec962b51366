"""Figures of the paper's first table: fields, kernels and diagnostics of four surfaces."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from manifoldrf._optional import require
from manifoldrf._validation import FloatArray
from manifoldrf.experiments.record import Record
from manifoldrf.metrics import align
from manifoldrf.report._drawing import COLOURS, DIFFERENCES, TITLES, draw_field, frame, save_figure

__all__ = ["draw_diagnostics", "draw_fields", "draw_kernels"]

_METHODS = {"network": "paper's network", "default": "default field"}


def draw_fields(record: Record, path: str | os.PathLike[str]) -> Path:
    """For every surface: the network's field g(x, .) of a node that was no start, its signature, and residuals."""

    def column(name: str, arrays: dict[str, FloatArray]) -> list[tuple[FloatArray, str, str]]:
        truth = arrays["signature"]
        network, default = arrays["network_field"] - truth, arrays["default_field"] - truth
        return [
            (arrays["network_field"], f"{_title(name)}: network, $g(x, \\cdot)$", COLOURS),
            (truth, "signature $\\varphi_f(x)$, exact", COLOURS),
            (network, f"network minus signature: {_share(network, truth)}", DIFFERENCES),
            (default, f"default field minus signature: {_share(default, truth)}", DIFFERENCES),
        ]

    return _draw_columns(record, path, column, "in the paper's unit, $f_0 = 1$")


def draw_kernels(record: Record, path: str | os.PathLike[str]) -> Path:
    """For every surface: the kernel of a node, exact and by the network (aligned), and both differences."""

    def column(name: str, arrays: dict[str, FloatArray]) -> list[tuple[FloatArray, str, str]]:
        exact = arrays["kernel"]
        network, default = (_aligned(arrays[f"{method}_kernel"], exact) for method in _METHODS)
        tau = record.config["tau"]
        return [
            (exact, f"{_title(name)}: $\\exp(-{tau:g} L)$", COLOURS),
            (network, "paper's recipe, aligned", COLOURS),
            (network - exact, f"paper's recipe minus exact: {_share(network - exact, exact)}", DIFFERENCES),
            (default - exact, f"default minus exact: {_share(default - exact, exact)}", DIFFERENCES),
        ]

    return _draw_columns(record, path, column, "$K(x, \\cdot)$")


def draw_diagnostics(record: Record, path: str | os.PathLike[str]) -> Path:
    """Values of both fields at nodes that were no starts against exact signatures, and their errors."""
    pyplot = require("matplotlib.pyplot", "viz")
    names = _names(record)
    figure, panels = pyplot.subplots(
        3, len(names), figsize=(3.9 * len(names), 10.4), squeeze=False, layout="constrained"
    )
    for place, name in enumerate(names):
        arrays = _of(record, name)
        truth = arrays["truth"]
        for row, method in enumerate(_METHODS):
            _draw_pairs(panels[row][place], truth, arrays[f"{method}_values"], f"C{row}")
            panels[row][place].set_title(f"{_title(name)}: {_METHODS[method]}", fontsize=10)
        for row, method in enumerate(_METHODS):
            error = np.abs(arrays[f"{method}_values"] - truth)
            style = {"s": 4, "alpha": 0.35, "linewidths": 0, "color": f"C{row}", "label": _METHODS[method]}
            panels[2][place].scatter(truth, np.maximum(error, _FLOOR), **style)
        panels[2][place].set(xscale="log", yscale="log", xlim=_limits(truth), xlabel="exact signature")
        panels[2][place].set_ylim(bottom=_FLOOR)
        panels[2][place].grid(visible=True, alpha=0.3)
    for row, text in enumerate(("predicted", "predicted", "|predicted - exact|")):
        panels[row][0].set_ylabel(text)
    panels[2][-1].legend(loc="lower right", fontsize=8, markerscale=3)
    return save_figure(figure, path)


_FLOOR = 1e-4  # errors below it are drawn there; values go up to some hundreds


def _draw_pairs(axes: Any, truth: FloatArray, values: FloatArray, colour: str) -> None:
    low, high = _limits(truth)
    axes.plot([low, high], [low, high], color="0.4", linewidth=0.8)
    axes.scatter(truth, np.maximum(values, low), s=4, alpha=0.35, linewidths=0, color=colour)
    axes.set(
        xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), xlabel="exact signature", aspect="equal"
    )
    axes.grid(visible=True, alpha=0.3)


def _limits(truth: FloatArray) -> tuple[float, float]:
    """From a tenth of the values that are always shown to above the largest."""
    return 1e-2, 2.0 * float(truth.max())


def _draw_columns(record: Record, path: str | os.PathLike[str], column: Any, unit: str) -> Path:
    """A column of pictures for each surface."""
    pyplot = require("matplotlib.pyplot", "viz")
    names = _names(record)
    figure = pyplot.figure(figsize=(3.75 * len(names), 12.4), layout="constrained")
    for place, name in enumerate(names):
        arrays = _of(record, name)
        pictures: Sequence[tuple[FloatArray, str, str]] = column(name, arrays)
        top = max(float(values.max()) for values, _, colours in pictures if colours == COLOURS)
        for row, (values, text, colours) in enumerate(pictures):
            axes = figure.add_subplot(len(pictures), len(names), 1 + place + row * len(names), projection="3d")
            drawn = draw_field(axes, arrays["points"], values, colours, top)
            frame(axes, arrays["points"], text)
            bar = figure.colorbar(drawn, ax=axes, shrink=0.6, pad=0.02)
            if place == len(names) - 1:
                bar.set_label(unit if colours == COLOURS else "difference")
    return save_figure(figure, path, dpi=110)


def _names(record: Record) -> list[str]:
    return list(dict.fromkeys(row["surface"] for row in record.tables["surfaces"]))


def _of(record: Record, name: str) -> dict[str, FloatArray]:
    """Arrays of one surface."""
    start = f"{name}_"
    return {key.removeprefix(start): value for key, value in record.arrays.items() if key.startswith(start)}


def _title(name: str) -> str:
    return TITLES.get(name, name)


def _aligned(values: FloatArray, exact: FloatArray) -> FloatArray:
    return align(values[:, None], exact[:, None])[:, 0]


def _share(difference: FloatArray, whole: FloatArray) -> str:
    return f"{100 * float(np.linalg.norm(difference) / np.linalg.norm(whole)):.2g} %"
