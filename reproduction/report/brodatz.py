"""Figure of the experiment on textures: accuracy against the number of neighbours."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot

import reproduction.report.style as ink
from reproduction.record import Record
from reproduction.report.style import WIDTH, legend_below, save_figure, styled

_OWN, _RAW = "MRF", "raw"
_ROWS = {
    "chosen": "decision by distance, cosine or inner product",
    "balanced": "labelled windows weighted by unlabelled ones",
}
_STYLES: dict[str, dict[str, Any]] = {name: dict(style) for name, style in ink.METHODS.items()} | {
    "MRF learned": {"color": ink.BLACK, "marker": "o", "linestyle": "--", "markerfacecolor": "white"},
    _RAW: {"color": ink.GREY, "marker": "h", "linewidth": 2.2, "zorder": 4},
    "Gaussian": {"color": "0.35", "marker": "*", "linestyle": "--", "markersize": 7},
    "kPCA": {"color": ink.YELLOW, "marker": "d", "markeredgecolor": "0.3", "linestyle": "--"},
}
_LABELS = dict(ink.NAMES) | {"Gaussian": "Gaussian kernel itself", "MRF learned": "MRF learned, fewer seeds"}


@styled
def draw_brodatz(record: Record, path: str | os.PathLike[str]) -> Path:
    """Group accuracy against the number of neighbours, a line for each method, without and with standardisation.

    In the first row by the decision that recognises most labelled windows, in the second one with weights. Bands
    show one standard deviation over seeds, for the first method and for raw descriptors. Dotted lines are the
    paper's results for these two, if the record has them. Only the main window is drawn.
    """
    table = record.tables["by_k"]
    rows = [row for row in table if row["window"] == table[0]["window"]]
    columns = list(dict.fromkeys(row["coordinates"] for row in rows))
    shape = len(_ROWS), len(columns)
    figure, panels = pyplot.subplots(*shape, figsize=(WIDTH, 8.0), sharex=True, sharey=True, squeeze=False)
    for line, (rule, title) in zip(panels, _ROWS.items(), strict=True):
        for axes, coordinates in zip(line, columns, strict=True):
            here = [row for row in rows if row["coordinates"] == coordinates]
            # Raw descriptors cannot be weighted; they are in every panel for comparison.
            raw = [row for row in here if row["method"] == _RAW and row["rule"] == "chosen"]
            _draw_lines(axes, raw + [row for row in here if row["rule"] == rule and row["method"] != _RAW])
            _draw_paper(axes, rows)
            axes.set_title(f"coordinates {coordinates}:\n{title}")
            axes.set_xticks(sorted({row["k"] for row in rows}))
        line[0].set_ylabel("groups recognised, percent")
    for axes in panels[-1]:
        axes.set_xlabel("neighbours that vote")
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
        # The same number may stand beside several of our rows.
        line = {
            row["k"]: row["paper_accuracy"] for row in rows if row["method"] == method and row["paper_accuracy"]
        }
        if line:
            colour = _STYLES[method]["color"]
            axes.plot(list(line), list(line.values()), color=colour, linewidth=1.6, linestyle=":",
                      label=f"{method} in the paper")  # fmt: skip
