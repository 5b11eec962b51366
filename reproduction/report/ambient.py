"""Figure of the experiment on ambient features: error against number of features."""

import os
from pathlib import Path
from typing import Any

from matplotlib import pyplot

import reproduction.report.style as ink
from reproduction.record import Record
from reproduction.report.style import TITLES, WIDTH, legend_below, save_figure, size_ticks, styled

_OWN, _FOURIER = "MRF", "RFF"
_LABELS = dict(ink.NAMES) | {_OWN: "MRF: features of the surface"}
_LOWEST = 1e-4  # smaller errors are written as text: some fields are exact if all nodes are anchors
_GAUSSIAN = {"color": "0.5", "linewidth": 1.1, "linestyle": ":"}
_RATE_FROM, _RATE_UNTIL = 1.2e-3, 600  # error and number of features: below the curves at few features
_RATE = {"color": "0.5", "linewidth": 1.1, "linestyle": (0, (1, 1, 4, 1))}


@styled
def draw_ambient(record: Record, path: str | os.PathLike[str]) -> Path:
    """Four surfaces: error of the kernel against the number of features, a line for every method.

    Hollow stars and squares are the paper's errors for its features and for random Fourier features. The dotted
    line is the error of the best Gaussian kernel itself; the short dashed line has the slope of independent draws.
    """
    verdicts = record.tables["verdict"]
    sizes = sorted({row["features"] for row in record.tables["curves"]})
    figure, panels = pyplot.subplots(2, 2, figsize=(WIDTH, 7.8), sharex=True, sharey=True)
    for axes, verdict in zip(panels.flat, verdicts, strict=True):
        surface = verdict["surface"]
        rows = [row for row in record.tables["curves"] if row["surface"] == surface]
        axes.set(xscale="log", yscale="log", ylim=(_LOWEST / 1.6, 2.0))
        axes.axhline(verdict["gaussian"], zorder=1, **_GAUSSIAN)
        _draw_lines(axes, rows)
        _draw_paper(axes, [row for row in record.tables["best"] if row["surface"] == surface])
        _draw_rate(axes, sizes)
        axes.set_title(TITLES.get(surface, surface))
    for axes in panels[1]:
        axes.set_xlabel("number of features $m$")
        size_ticks(axes.xaxis, sizes)
        axes.tick_params(axis="x", rotation=35)
    for axes in panels[:, 0]:
        axes.set_ylabel("relative error of the kernel, aligned")
    panels[0][0].plot([], [], label="best Gaussian kernel itself", **_GAUSSIAN)
    legend_below(figure, panels[0][0].get_legend_handles_labels())
    return save_figure(figure, path)


def _draw_rate(axes: Any, sizes: list[int]) -> None:
    """The slope of independent draws, where the panels are empty."""
    shown = [size for size in sizes if size <= _RATE_UNTIL]
    found = [_RATE_FROM * (sizes[0] / size) ** 0.5 for size in shown]
    axes.plot(shown, found, label="slope of independent draws, $m^{-1/2}$", zorder=1, **_RATE)


def _draw_lines(axes: Any, rows: list[dict[str, Any]]) -> None:
    """Curves of methods with a look of their own; where that of the surface leaves the panel, its last error."""
    for method in [name for name in dict.fromkeys(row["method"] for row in rows) if name in ink.METHODS]:
        line = [row for row in rows if row["method"] == method]
        sizes, errors = [row["features"] for row in line], [max(row["error"], 1e-9) for row in line]
        axes.plot(sizes, errors, label=_LABELS.get(method, method), **ink.METHODS[method])
        if method == _OWN and line[-1]["error"] < _LOWEST:
            text = f"{line[-1]['error']:.0e} with\n{line[-1]['features']:,} features"
            axes.annotate(text, (0.985, 0.02), xycoords="axes fraction", ha="right", va="bottom", fontsize=9)


def _draw_paper(axes: Any, rows: list[dict[str, Any]]) -> None:
    """The paper's errors for its features and for random Fourier features, if the record has them."""
    for method, marker, colour in ((_OWN, "*", ink.BLACK), (_FOURIER, "s", ink.METHODS[_FOURIER]["color"])):
        cells = [(row["features"], row["paper"]) for row in rows if row["method"] == method and row["paper"]]
        if cells:
            style = {"marker": marker, "s": 170 if marker == "*" else 62, "linewidths": 1.5, "zorder": 6}
            axes.scatter(*zip(*cells, strict=True), facecolors="white", edgecolors=colour, **style,
                         label=f"{method} in the paper")  # fmt: skip
