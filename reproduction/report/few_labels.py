"""Figures of the experiment on few labels: accuracy against their number, and against damage."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot

import reproduction.report.style as ink
from reproduction.record import Record
from reproduction.report.style import WIDTH, handles_of, legend_below, save_figure, styled

# Our methods are black and grey. Ambient methods are dashed.
_STYLES: dict[str, dict[str, Any]] = {
    "MRF + ridge": {"color": ink.BLACK, "marker": "o", "linewidth": 2.8, "zorder": 5},
    "MRF + vote": {"color": "0.45", "marker": "o", "linewidth": 2.0, "zorder": 4},
    "LabelSpreading, knn": {"color": ink.VERMILION, "marker": "^"},
    "LabelSpreading, rbf": {"color": ink.ORANGE, "marker": "v"},
    "DiffusionMap + ridge": {"color": ink.GREEN, "marker": "P"},
    "kernel ridge, rbf": {"color": ink.BLUE, "marker": "s", "linestyle": "--"},
    "Nystroem + ridge": {"color": ink.PURPLE, "marker": "X", "linestyle": "--"},
    "RBFSampler + ridge": {"color": ink.SKY, "marker": "D", "linestyle": "--"},
    "kNN": {"color": "0.35", "marker": "*", "linestyle": "--", "markersize": 7},
}
_COLUMNS = 3  # panels in a row: more would be too small to read


@styled
def draw_accuracy(record: Record, path: str | os.PathLike[str]) -> Path:
    """A panel for each cloud: accuracy at new points against the number of labels, a line for each method.

    The grey band is one standard deviation over draws of labels, of the first method only.
    """
    rows = record.tables["accuracy"]
    clouds = list(dict.fromkeys(row["cloud"] for row in rows))
    columns = min(len(clouds), _COLUMNS)
    lines = -(-len(clouds) // columns)
    figure, panels = pyplot.subplots(lines, columns, figsize=(WIDTH, 3.0 * lines + 0.9), squeeze=False)
    for axes, cloud in zip(panels.flat, clouds, strict=False):
        here = [row for row in rows if row["cloud"] == cloud]
        axes.set_xscale("log")
        _draw_lines(axes, here, "labels")
        numbers = sorted({row["labels"] for row in here})
        axes.set_xticks(numbers, [str(number) for number in numbers])
        axes.minorticks_off()
        axes.set_xlabel("labels for each class")
        axes.set_title(cloud)
    for axes in panels.flat[len(clouds) :]:
        axes.remove()
    for line in panels:
        line[0].set_ylabel("accuracy at new points")
    legend_below(figure, handles_of(figure.axes), columns=3)
    return save_figure(figure, path)


@styled
def draw_damage(record: Record, path: str | os.PathLike[str]) -> Path | None:
    """Two panels: accuracy on a scan against its noise, and against its share of outliers.

    None where a record has no sweep.
    """
    rows = record.tables.get("sweep", [])
    if not rows:
        return None
    parts = {
        "noise": [row for row in rows if row["outliers"] == 0],
        "outliers": [row for row in rows if row["outliers"] > 0],
    }
    titles = {"noise": "noise over the spacing of the points", "outliers": "outliers for each point"}
    figure, panels = pyplot.subplots(1, 2, figsize=(WIDTH, 4.0), sharey=True)
    for axes, (column, part) in zip(panels, parts.items(), strict=True):
        _draw_lines(axes, part, column)
        axes.set_xlabel(titles[column])
    panels[0].set_ylabel("accuracy at new points")
    legend_below(figure, handles_of(panels))
    return save_figure(figure, path)


def _draw_lines(axes: Any, rows: list[dict[str, Any]], column: str) -> None:
    """A line for each method, with a band for the first."""
    for place, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
        line = [row for row in rows if row["method"] == method]
        x, y = (np.array([row[name] for row in line]) for name in (column, "new"))
        style = {"label": ink.NAMES.get(method, method)} | _STYLES.get(method, {})
        axes.plot(x, y, **style)
        if place == 0:
            spread = np.array([row["new_spread"] for row in line])
            band = {
                "color": style.get("color"),
                "alpha": 0.12,
                "linewidth": 0,
                "label": f"{method}, ± standard deviation",
            }
            axes.fill_between(x, y - spread, y + spread, **band)
