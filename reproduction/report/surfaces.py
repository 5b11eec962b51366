"""Figures of the first table: fields, kernels and residuals on the four surfaces, diagnostics."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot

import reproduction.report.style as ink
from reproduction.common import FloatArray, align
from reproduction.record import Record
from reproduction.report.drawing import common_limits, draw_field, view_of_peak
from reproduction.report.style import COLOURS, DIFFERENCES, TITLES, WIDTH, legend_below, save_figure, styled

_METHODS = {"network": "paper's recipe", "default": "this library"}
_DOTS = {"network": (ink.VERMILION, "o"), "default": (ink.BLUE, "D")}


@dataclass(frozen=True)
class _Group:
    """Rows of pictures with one scale of colours, and the text beside their bar."""

    rows: Sequence[tuple[str, str]]  # text on the left, name of the field
    bar: str
    colours: str = COLOURS


@styled
def draw_fields(record: Record, path: str | os.PathLike[str]) -> Path:
    """A column for each surface: fields of a node that was not a start, its exact signature, and residuals.

    Predictions and truth share one colour scale; each residual has a symmetric scale.
    """
    groups = [
        _Group(
            [
                ("paper's recipe", "network_field"),
                ("exact signature", "signature"),
                ("this library", "default_field"),
            ],
            "$g(x, \\cdot)$ and $\\varphi_f(x)$, unit: $f_0 = 1$",
        ),
        _Group([("recipe - exact", "network")], "difference, same unit", DIFFERENCES),
        _Group([("library - exact", "default")], "difference, same unit", DIFFERENCES),
    ]

    def fields(arrays: dict[str, FloatArray]) -> dict[str, FloatArray]:
        return arrays | {name: arrays[f"{name}_field"] - arrays["signature"] for name in _METHODS}

    return _draw_rows(record, path, groups, fields, "signature")


@styled
def draw_kernels(record: Record, path: str | os.PathLike[str]) -> Path:
    """A column for each surface: the kernel of a node by both methods (aligned), exact, and residuals."""
    bar = "$K(x, \\cdot)$ of $\\exp(-\\tau L)$"
    groups = [
        _Group(
            [
                ("paper's recipe", "network_aligned"),
                ("exact kernel", "kernel"),
                ("this library", "default_aligned"),
            ],
            bar,
        ),
        _Group([("recipe - exact", "network")], "difference, same unit", DIFFERENCES),
        _Group([("library - exact", "default")], "difference, same unit", DIFFERENCES),
    ]

    def fields(arrays: dict[str, FloatArray]) -> dict[str, FloatArray]:
        exact = arrays["kernel"]
        aligned = {name: align(arrays[f"{name}_kernel"], exact) for name in _METHODS}
        named = {f"{name}_aligned": values for name, values in aligned.items()}
        return arrays | named | {name: values - exact for name, values in aligned.items()}

    return _draw_rows(record, path, groups, fields, "kernel")


def _draw_rows(
    record: Record, path: str | os.PathLike[str], groups: Sequence[_Group], fields: Any, truth: str
) -> Path:
    """A column for each surface, a row for each field, a colour bar for each group of rows."""
    found = {name: fields(_of(record, name)) for name in _names(record)}
    views = {name: view_of_peak(arrays["points"], arrays[truth]) for name, arrays in found.items()}
    count = sum(len(group.rows) for group in groups)
    figure, panels = pyplot.subplots(count, len(found), figsize=(WIDTH, 1.62 * count + 0.2), squeeze=False)
    below = iter(panels)
    for group in groups:
        shown = [next(below) for _ in group.rows]
        limits = common_limits([arrays[name] for arrays in found.values() for _, name in group.rows], group.colours)
        for line, (text, name) in zip(shown, group.rows, strict=True):
            line[0].set_ylabel(text)
            for axes, (surface, arrays) in zip(line, found.items(), strict=True):
                drawn = draw_field(axes, arrays["points"], arrays[name], views[surface], limits, group.colours)
                if group.colours == DIFFERENCES:
                    axes.set_xlabel(f"{_share(arrays[name], arrays[truth])} of the norm", fontsize=9)
        axes_of_group = [axes for line in shown for axes in line]
        bar: Any = figure.colorbar(drawn, ax=axes_of_group, aspect=12 * len(shown), pad=0.01, fraction=0.04)
        bar.set_label(group.bar)
        bar.formatter.set_powerlimits((-3, 4))
    for axes, name in zip(panels[0], found, strict=True):
        axes.set_title(TITLES.get(name, name))
    return save_figure(figure, path)


@styled
def draw_diagnostics(record: Record, path: str | os.PathLike[str]) -> Path:
    """Values of both fields at nodes that were not starts against exact signatures, and their errors."""
    names = _names(record)
    figure, panels = pyplot.subplots(3, len(names), figsize=(WIDTH, 7.6), squeeze=False, sharex=True, sharey="row")
    low, high = _limits([_of(record, name)["truth"] for name in names])
    for column, name in zip(panels.T, names, strict=True):
        arrays = _of(record, name)
        for axes, method in zip(column, _METHODS, strict=False):
            axes.plot([low, high], [low, high], color="0.4", linewidth=0.8)
            _draw_dots(axes, arrays["truth"], np.maximum(arrays[f"{method}_values"], low), method)
            axes.set(ylim=(low, high))
        for method in _METHODS:
            error = np.abs(arrays[f"{method}_values"] - arrays["truth"])
            _draw_dots(column[2], arrays["truth"], np.maximum(error, _FLOOR), method)
        column[2].set(ylim=(_FLOOR, high), xlim=(low, high), xlabel="exact signature")
        column[0].set_title(TITLES.get(name, name))
        for axes in column:
            axes.set(xscale="log", yscale="log")
            axes.set_xticks([1e-2, 1e0, 1e2])
    texts = [f"{method}, predicted" for method in _METHODS.values()]
    for axes, text in zip(panels[:, 0], [*texts, "|predicted - exact|"], strict=True):
        axes.set_ylabel(text)
    legend_below(figure, panels[2][0].get_legend_handles_labels())
    for handle in filter(None, figure.legends[0].legend_handles):
        handle.set(sizes=[30], alpha=1.0)
    return save_figure(figure, path)


_FLOOR = 1e-4  # smaller errors are drawn at this value; values go up to a few hundred


def _draw_dots(axes: Any, truth: FloatArray, values: FloatArray, method: str) -> None:
    colour, mark = _DOTS[method]
    style = {"s": 3.5, "alpha": 0.35, "linewidths": 0, "color": colour, "marker": mark, "label": _METHODS[method]}
    axes.scatter(truth, values, rasterized=True, **style)


def _limits(truths: Sequence[FloatArray]) -> tuple[float, float]:
    """Limits from a tenth of the threshold of the paper to above the largest value, the same for all surfaces."""
    return 1e-2, 2.0 * max(float(truth.max()) for truth in truths)


def _names(record: Record) -> list[str]:
    return list(dict.fromkeys(row["surface"] for row in record.tables["surfaces"]))


def _of(record: Record, name: str) -> dict[str, FloatArray]:
    """Arrays of one surface."""
    start = f"{name}_"
    return {key.removeprefix(start): value for key, value in record.arrays.items() if key.startswith(start)}


def _share(difference: FloatArray, whole: FloatArray) -> str:
    return f"{100 * float(np.linalg.norm(difference) / np.linalg.norm(whole)):.2g} %"
