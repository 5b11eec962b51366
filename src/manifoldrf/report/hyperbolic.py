"""Figures of the experiment on hyperbolic space: error against the radius, the estimate, and the kernel itself."""

import os
from pathlib import Path
from typing import Any

from manifoldrf._optional import require
from manifoldrf.experiments.record import Record
from manifoldrf.report._drawing import save_figure

# Column of the table -> label, colour, mark, line. Colours stay apart without colour vision; our own line is black.
_LINES = {
    "paper_error": ("paper", "#D55E00", "*", "-"),
    "walks_error": ("paper's recipe, run here", "#E69F00", "^", "--"),
    "iid": ("independent nodes, heat graph", "#0072B2", "s", "-"),
    "fixed_nodes": ("even nodes, {} in every ball", "#009E73", "D", "--"),
    "error": ("even nodes, more in larger balls", "black", "o", "-"),
    "unaligned": ("the same, absolute scale", "black", "x", ":"),
}
_SPACES = {"H^2": ("#0072B2", "s"), "H^3": ("black", "o")}
_CURVES = {"smallest": ("#D55E00", "--", 0), "largest": ("#0072B2", "-", -1)}


def draw_radii(record: Record, path: str | os.PathLike[str]) -> Path:
    """Error of the kernel in the inner ball against the radius of the ball that is covered."""
    pyplot = require("matplotlib.pyplot", "viz")
    figure, axes = pyplot.subplots(figsize=(10.4, 5.2), layout="constrained")
    rows = record.tables["radii"]
    for column, (label, colour, mark, line) in _LINES.items():
        places = [(row["R"], row[column]) for row in rows if row[column]]
        if places:
            style = {"color": colour, "marker": mark, "linestyle": line, "markersize": 10 if mark == "*" else 6}
            text = label.format(record.config["n_fixed"])
            axes.plot(*zip(*places, strict=True), linewidth=2.4 if column == "error" else 1.4, label=text, **style)
    axes.axvline(record.config["inner"], color="0.5", linewidth=1.0, linestyle=":")
    axes.annotate(
        "rim of the inner ball", (record.config["inner"], 0.03), xycoords=("data", "axes fraction"),
        rotation=90, fontsize=8, color="0.35", ha="right", va="bottom",
    )  # fmt: skip
    axes.set(yscale="log", xlabel="radius R of the ball", ylabel="relative error of the kernel in the inner ball")
    _finish(axes, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return save_figure(figure, path)


def draw_estimate(record: Record, path: str | os.PathLike[str]) -> Path:
    """Estimated errors of an exhaustion against true ones; the band is a factor of 3."""
    pyplot = require("matplotlib.pyplot", "viz")
    figure, axes = pyplot.subplots(figsize=(6.4, 5.6), layout="constrained")
    rows = record.tables["exhaustion"]
    both = [row[name] for row in rows for name in ("true", "estimate")]
    ends = [min(both) / 2, max(both) * 2]
    axes.fill_between(ends, [e / 3 for e in ends], [3 * e for e in ends], color="0.9", label="within a factor of 3")
    axes.plot(ends, ends, color="0.5", linewidth=1.0, linestyle=":")
    for space, (colour, mark) in _SPACES.items():
        places = [row for row in rows if row["space"] == space]
        x, y = ([row[name] for row in places] for name in ("true", "estimate"))
        axes.plot(x, y, color=colour, marker=mark, linewidth=1.2, label=f"${space}$")
        for row in places:
            axes.annotate(
                f"R = {row['R']:g}", (row["true"], row["estimate"]), textcoords="offset points", xytext=(7, -10),
                fontsize=8, color=colour,
            )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.set(xlabel="true error, absolute scale", ylabel="error estimated without the exact kernel")
    _finish(axes)
    return save_figure(figure, path)


def draw_slice(record: Record, path: str | os.PathLike[str]) -> Path:
    """The kernel from a point at the rim of the inner ball along the line through the centre."""
    pyplot = require("matplotlib.pyplot", "viz")
    figure, axes = pyplot.subplots(figsize=(7.4, 4.8), layout="constrained")
    distance = record.arrays["distance"]
    axes.plot(distance, record.arrays["exact"], color="0.75", linewidth=6.0, label="exact")
    for name, (colour, line, place) in _CURVES.items():
        radius = record.config["radii"][place]
        label = f"features of the ball of radius {radius:g}"
        axes.plot(distance, record.arrays[name], color=colour, linestyle=line, linewidth=1.8, label=label)
    axes.set(xlabel="distance from a point at the rim of the inner ball", ylabel="heat kernel, not aligned")
    axes.set(yscale="log")
    _finish(axes)
    return save_figure(figure, path)


def _finish(axes: Any, **place: Any) -> None:
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(frameon=False, fontsize=9, **place)
