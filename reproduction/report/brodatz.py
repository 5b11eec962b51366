"""Figure of the experiment on textures: accuracy against the number of neighbours."""

import os
from pathlib import Path
from typing import Any

import numpy as np

import reproduction.report.style as ink
from manifoldrf._runtime import require
from reproduction.record import Record
from reproduction.report.style import WIDTH, legend_below, save_figure, styled

_OWN, _RAW = "MRF", "raw"
_TITLES = {
    "plain": "neighbours in features",
    "share": "values over their mean\nover unlabelled windows",
    "balanced": "labelled windows share\nthe unlabelled ones equally",
}
_STYLES: dict[str, dict[str, Any]] = {name: dict(style) for name, style in ink.METHODS.items()} | {
    "MRF learned": {"color": ink.BLACK, "marker": "o", "linestyle": "--", "markerfacecolor": "white"},
    _RAW: {"color": ink.GREY, "marker": "h", "linewidth": 2.2, "zorder": 4},
    "Gaussian": {"color": "0.35", "marker": "*", "linestyle": "--", "markersize": 7},
    "diffusion map": {"color": ink.GREEN, "marker": "P"},
    "kPCA": {"color": ink.YELLOW, "marker": "d", "markeredgecolor": "0.3", "linestyle": "--"},
}
_LABELS = dict(ink.NAMES) | {"Gaussian": "Gaussian kernel itself", "MRF learned": "MRF learned, one seed"}


@styled
def draw_brodatz(record: Record, path: str | os.PathLike[str]) -> Path:
    """A panel for each block: group accuracy against the number of neighbours, a line for each method.

    Bands show one standard deviation over seeds, for the first method and for raw descriptors. Dotted lines are the
    paper's results for these two, if the record has them.
    """
    pyplot = require("matplotlib.pyplot", "viz")
    rows = record.tables["by_k"]
    blocks = list(dict.fromkeys(row["block"] for row in rows))
    figure, panels = pyplot.subplots(1, len(blocks), figsize=(WIDTH, 5.0), sharey=True, squeeze=False)
    counts = sorted({row["k"] for row in rows})
    raw = [row for row in rows if row["method"] == _RAW]
    for axes, block in zip(panels[0], blocks, strict=True):
        here = [row for row in rows if row["block"] == block]
        # Raw descriptors cannot be weighted; they are in every panel for comparison.
        _draw_lines(axes, here if any(row["method"] == _RAW for row in here) else here + raw)
        axes.set_xlabel("neighbours that vote")
        axes.set_xticks(counts)
        axes.set_title(_TITLES.get(block, block))
    for axes in panels[0]:
        _draw_paper(axes, rows)
    panels[0][0].set_ylabel("groups recognised, percent")
    panels[0][0].set_ylim(bottom=0)
    legend_below(figure, panels[0][0].get_legend_handles_labels(), columns=5)
    return save_figure(figure, path)


def _draw_lines(axes: Any, rows: list[dict[str, Any]]) -> None:
    """A line for each method, with bands for ours and for raw descriptors."""
    for method in dict.fromkeys(row["method"] for row in rows):
        line = [row for row in rows if row["method"] == method]
        x, y = (np.array([row[name] for row in line], dtype=np.float64) for name in ("k", "accuracy"))
        style = {"label": _LABELS.get(method, method)} | _STYLES.get(method, {})
        axes.plot(x, y, **style)
        if method in (_OWN, _RAW) and line[0]["spread"] is not None:
            spread = np.array([row["spread"] for row in line])
            axes.fill_between(x, y - spread, y + spread, color=style["color"], alpha=0.15, linewidth=0)


def _draw_paper(axes: Any, rows: list[dict[str, Any]]) -> None:
    """The paper's results for its features and for raw descriptors."""
    for method in (_OWN, _RAW):
        line = [
            (row["k"], row["paper_accuracy"]) for row in rows if row["method"] == method and row["paper_accuracy"]
        ]
        if line:
            colour = _STYLES[method]["color"]
            axes.plot(*zip(*line, strict=True), color=colour, linewidth=1.6, linestyle=":",
                      label=f"{method} in the paper")  # fmt: skip
