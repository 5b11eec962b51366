"""Figures of the experiment on few labels: accuracy against their number, and against damage."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from manifoldrf._optional import require
from manifoldrf.experiments.record import Record
from manifoldrf.report._drawing import legend_beside, save_figure

# Ours are black; colours of the others stay apart without colour vision. Dashes are methods of the space around.
_STYLES: dict[str, dict[str, Any]] = {
    "MRF + ridge": {"color": "black", "marker": "o", "linewidth": 2.6, "zorder": 5},
    "MRF + vote": {"color": "0.45", "marker": "o", "linewidth": 2.0, "zorder": 4},
    "LabelSpreading, knn": {"color": "#D55E00", "marker": "^"},
    "LabelSpreading, rbf": {"color": "#E69F00", "marker": "v"},
    "DiffusionMap + ridge": {"color": "#009E73", "marker": "P"},
    "kernel ridge, rbf": {"color": "#0072B2", "marker": "s", "linestyle": "--"},
    "Nystroem + ridge": {"color": "#CC79A7", "marker": "X", "linestyle": "--"},
    "RBFSampler + ridge": {"color": "#56B4E9", "marker": "D", "linestyle": "--"},
    "kNN": {"color": "#8C564B", "marker": "*", "linestyle": "--"},
}


def draw_accuracy(record: Record, path: str | os.PathLike[str]) -> Path:
    """A panel for each cloud: accuracy at new points against the number of labels, a line for each method.

    The grey band is one standard deviation over draws of labels, of the first method only.
    """
    pyplot = require("matplotlib.pyplot", "viz")
    rows = record.tables["accuracy"]
    clouds = list(dict.fromkeys(row["cloud"] for row in rows))
    figure, panels = pyplot.subplots(
        1, len(clouds), figsize=(2.9 * len(clouds) + 2.4, 4.2), squeeze=False, layout="constrained"
    )
    for axes, cloud in zip(panels[0], clouds, strict=True):
        here = [row for row in rows if row["cloud"] == cloud]
        axes.set_xscale("log")
        _draw_lines(axes, here, "labels")
        numbers = sorted({row["labels"] for row in here})
        axes.set_xticks(numbers, [str(number) for number in numbers])
        axes.minorticks_off()
        axes.set_xlabel("labels for each class")
        axes.set_title(cloud, fontsize=10.5)
    panels[0][0].set_ylabel("accuracy at new points")
    _legend(figure, panels[0])
    return save_figure(figure, path)


def draw_damage(record: Record, path: str | os.PathLike[str]) -> Path | None:
    """Two panels: accuracy on a scan against its noise, and against its share of outliers; None without a sweep."""
    pyplot = require("matplotlib.pyplot", "viz")
    rows = record.tables.get("sweep", [])
    if not rows:
        return None
    parts = {
        "noise": [row for row in rows if row["outliers"] == 0],
        "outliers": [row for row in rows if row["outliers"] > 0],
    }
    titles = {"noise": "noise, over the spacing of the points", "outliers": "outliers for each point"}
    figure, panels = pyplot.subplots(1, 2, figsize=(9.6, 4.0), sharey=True, layout="constrained")
    for axes, (column, part) in zip(panels, parts.items(), strict=True):
        _draw_lines(axes, part, column)
        axes.set_xlabel(titles[column])
    panels[0].set_ylabel("accuracy at new points")
    _legend(figure, panels)
    return save_figure(figure, path)


def _draw_lines(axes: Any, rows: list[dict[str, Any]], column: str) -> None:
    """A line for each method, with a band for the first."""
    for place, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
        line = [row for row in rows if row["method"] == method]
        x, y = (np.array([row[name] for row in line]) for name in (column, "new"))
        style = {"linewidth": 1.3, "markersize": 5.5, "label": method} | _STYLES.get(method, {})
        axes.plot(x, y, **style)
        if place == 0:
            spread = np.array([row["new_spread"] for row in line])
            axes.fill_between(x, y - spread, y + spread, color=style.get("color"), alpha=0.12, linewidth=0)
    axes.grid(visible=True, which="major", alpha=0.3)


def _legend(figure: Any, panels: Any) -> None:
    """One legend for all panels, beside them."""
    found: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    legend_beside(figure, found.values(), found.keys())
