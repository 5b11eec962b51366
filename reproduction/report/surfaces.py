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
from reproduction.report.style import COLOURS, DIFFERENCES, TITLES, WIDTH, save_figure, styled


@dataclass(frozen=True)
class _Group:
    """Rows of pictures with one scale of colours, and the text beside their bar."""

    rows: Sequence[tuple[str, str]]  # text on the left, name of the field
    bar: str
    colours: str = COLOURS


@styled
def draw_fields(record: Record, path: str | os.PathLike[str]) -> Path:
    """A column for each surface: the recipe's field of a node that was not a start, its exact signature, residual.

    Prediction and truth share one colour scale; the residual has a symmetric one. This library is not drawn: with
    every node an anchor it is exact at the nodes by construction.
    """

    def fields(arrays: dict[str, FloatArray]) -> dict[str, FloatArray]:
        return arrays | {"found": arrays["network_field"], "exact": arrays["signature"]}

    return _draw_rows(record, path, fields, "$g(x, \\cdot)$ and $\\varphi_f(x)$, unit: $f_0 = 1$")


@styled
def draw_kernels(record: Record, path: str | os.PathLike[str]) -> Path:
    """A column for each surface: the recipe's kernel of a node, aligned, that of the graph, and the residual."""

    def fields(arrays: dict[str, FloatArray]) -> dict[str, FloatArray]:
        return arrays | {"found": align(arrays["network_kernel"], arrays["kernel"]), "exact": arrays["kernel"]}

    return _draw_rows(record, path, fields, "$K(x, \\cdot)$ of $\\exp(-\\tau L)$")


def _draw_rows(record: Record, path: str | os.PathLike[str], fields: Any, text: str) -> Path:
    """A column for each surface, a row for each field, a colour bar for both fields and one for the difference."""
    found = {name: fields(_of(record, name)) for name in _names(record)}
    for arrays in found.values():
        arrays["difference"] = arrays["found"] - arrays["exact"]
    views = {name: view_of_peak(arrays["points"], arrays["exact"]) for name, arrays in found.items()}
    groups = [
        _Group([("paper's recipe", "found"), ("exact", "exact")], text),
        _Group([("recipe - exact", "difference")], "difference, same unit", DIFFERENCES),
    ]
    count = sum(len(group.rows) for group in groups)
    figure, panels = pyplot.subplots(count, len(found), figsize=(WIDTH, 1.62 * count + 0.2), squeeze=False)
    below = iter(panels)
    for group in groups:
        shown = [next(below) for _ in group.rows]
        limits = common_limits([arrays[name] for arrays in found.values() for _, name in group.rows], group.colours)
        for line, (label, name) in zip(shown, group.rows, strict=True):
            line[0].set_ylabel(label)
            for axes, (surface, arrays) in zip(line, found.items(), strict=True):
                drawn = draw_field(axes, arrays["points"], arrays[name], views[surface], limits, group.colours)
                if group.colours == DIFFERENCES:
                    axes.set_xlabel(f"{_share(arrays[name], arrays['exact'])} of the norm", fontsize=9)
        axes_of_group = [axes for line in shown for axes in line]
        bar: Any = figure.colorbar(drawn, ax=axes_of_group, aspect=12 * len(shown), pad=0.01, fraction=0.04)
        bar.set_label(group.bar)
        bar.formatter.set_powerlimits((-3, 4))
    for axes, name in zip(panels[0], found, strict=True):
        axes.set_title(TITLES.get(name, name))
    return save_figure(figure, path)


@styled
def draw_diagnostics(record: Record, path: str | os.PathLike[str]) -> Path:
    """The recipe's field at nodes against exact signatures, its relative and squared errors, as in the paper."""
    names = _names(record)
    figure, panels = pyplot.subplots(3, len(names), figsize=(WIDTH, 7.4), squeeze=False, sharex=True, sharey="row")
    low, high = _limits([_of(record, name)["truth"] for name in names])
    for column, name in zip(panels.T, names, strict=True):
        truth, values = _of(record, name)["truth"], _of(record, name)["network_values"]
        error = np.abs(values - truth)
        relative = error / np.maximum(truth, 0.1)  # as in the paper's loss
        column[0].plot([low, high], [low, high], color="0.4", linewidth=0.8)
        for axes, dots in zip(column, (np.maximum(values, low), relative, error**2), strict=True):
            axes.scatter(truth, dots, rasterized=True, s=3.5, alpha=0.35, linewidths=0, color=ink.VERMILION)
            axes.set(xscale="log", yscale="log")
        column[0].set(ylim=(low, high), title=TITLES.get(name, name))
        column[1].set(ylim=(_FLOOR, None))
        column[2].set(ylim=(_FLOOR**2, None), xlim=(low, high), xlabel="exact signature")
        column[2].set_xticks([1e-2, 1e0, 1e2])
    for axes, text in zip(
        panels[:, 0], ["paper's recipe, predicted", "relative error", "squared error"], strict=True
    ):
        axes.set_ylabel(text)
    return save_figure(figure, path)


_FLOOR = 1e-4  # smaller relative errors, and squares of smaller errors, are not drawn


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
