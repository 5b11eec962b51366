"""Figure of the experiment on ambient features: error against number of features."""

import os
from pathlib import Path
from typing import Any

from manifoldrf._optional import require
from manifoldrf.experiments.record import Record
from manifoldrf.report._drawing import TITLES, legend_beside, save_figure

_OWN = "MRF"
_LABELS = {_OWN: "MRF: features of the surface", "Nystrom": "Nyström"}
_MARKERS = {"RFF": "s", "ORF": "D", "PRF": "^", "PORF": "v", "GERF": "P", "Nystrom": "X"}
# Colours that stay apart without colour vision; the surface's own line is black and twice as wide.
_COLOURS = {
    "RFF": "#0072B2",
    "ORF": "#56B4E9",
    "PRF": "#D55E00",
    "PORF": "#E69F00",
    "GERF": "#009E73",
    "Nystrom": "#CC79A7",
}
_LOWEST = 1e-4  # errors below it are named, not drawn: at nodes that are all anchors some fields are exact


def draw_ambient(record: Record, path: str | os.PathLike[str]) -> Path:
    """Four surfaces: error of the kernel against the number of features, a line for every method.

    Hollow stars and squares are the paper's errors of its own and of random Fourier features; the dotted line is
    the error of the best Gaussian kernel itself.
    """
    pyplot = require("matplotlib.pyplot", "viz")
    verdicts = record.tables["verdict"]
    figure, panels = pyplot.subplots(2, 2, figsize=(11.5, 8.2), sharex=True, sharey=True, layout="constrained")
    for axes, verdict in zip(panels.flat, verdicts, strict=True):
        surface = verdict["surface"]
        axes.set(xscale="log", yscale="log", ylim=(_LOWEST / 1.6, 2.0))
        axes.axhline(verdict["gaussian"], color="0.5", linewidth=1.1, linestyle=":", zorder=1)
        _draw_lines(axes, [row for row in record.tables["curves"] if row["surface"] == surface])
        _draw_paper(axes, [row for row in record.tables["best"] if row["surface"] == surface])
        axes.set_title(TITLES.get(surface, surface), fontsize=11)
        axes.grid(visible=True, which="major", alpha=0.3)
    sizes = sorted({row["features"] for row in record.tables["curves"]})
    for axes in panels[1]:
        axes.set_xlabel("number of features")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=45, fontsize=8)
        axes.minorticks_off()
    for axes in panels[:, 0]:
        axes.set_ylabel("relative error of the kernel, aligned")
    panels[0][0].plot([], [], color="0.5", linewidth=1.1, linestyle=":", label="best Gaussian kernel itself")
    legend_beside(figure, *panels[0][0].get_legend_handles_labels())
    return save_figure(figure, path)


def _draw_lines(axes: Any, rows: list[dict[str, Any]]) -> None:
    """Lines of all methods; where the surface's own leaves the panel, its last error is written."""
    for method in dict.fromkeys(row["method"] for row in rows):
        line = [row for row in rows if row["method"] == method]
        style: dict[str, Any] = {"color": _COLOURS.get(method), "marker": _MARKERS.get(method), "linewidth": 1.3}
        if method == _OWN:
            style = {"color": "black", "marker": "o", "linewidth": 2.8, "zorder": 5}
        style |= {"markersize": 5.5, "label": _LABELS.get(method, method)}
        axes.plot([row["features"] for row in line], [max(row["error"], 1e-9) for row in line], **style)
        if method == _OWN and line[-1]["error"] < _LOWEST:
            text = f"{line[-1]['error']:.0e} with\n{line[-1]['features']:,} features"
            axes.annotate(text, (0.985, 0.02), xycoords="axes fraction", ha="right", va="bottom", fontsize=8)


def _draw_paper(axes: Any, rows: list[dict[str, Any]]) -> None:
    """The paper's errors of its features and of random Fourier features, where the record has them."""
    for method, marker, colour in ((_OWN, "*", "black"), ("RFF", "s", _COLOURS["RFF"])):
        cells = [(row["features"], row["paper"]) for row in rows if row["method"] == method and row["paper"]]
        if cells:
            style = {"marker": marker, "s": 170 if marker == "*" else 62, "linewidths": 1.5, "zorder": 6}
            axes.scatter(*zip(*cells, strict=True), facecolors="white", edgecolors=colour, **style,
                         label=f"{method} in the paper")  # fmt: skip
