"""Figures of the experiment on hyperbolic space: error against the radius, the estimate, and the kernel itself."""

import os
from pathlib import Path
from typing import Any

from matplotlib import pyplot

import reproduction.report.style as ink
from reproduction.record import Record
from reproduction.report.style import WIDTH, save_figure, styled

# Column of the table -> label, colour, mark, line. Our own line is black.
_LINES = {
    "paper_error": ("paper", ink.VERMILION, "*", "-"),
    "walks_error": ("paper's recipe, run here", ink.ORANGE, "^", "--"),
    "iid": ("independent nodes, heat graph", ink.BLUE, "s", "-"),
    "fixed_nodes": ("even nodes, {} in every ball", ink.GREEN, "D", "--"),
    "error": ("even nodes, more in larger balls", ink.BLACK, "o", "-"),
    "unaligned": ("the same, absolute scale", ink.BLACK, "x", ":"),
}
# Space -> colour, mark, where the names of its radii stand (points to the right and upwards).
_SPACES = {"H^2": (ink.BLUE, "s", (8, -13)), "H^3": (ink.BLACK, "o", (-9, 8))}
_CURVES = {"smallest": (ink.VERMILION, "--", 0), "largest": (ink.BLUE, "-", -1)}
_BAND = "0.92"
_UNIT = "curvature radii"  # lengths in a space of curvature -1


@styled
def draw_radii(record: Record, path: str | os.PathLike[str]) -> Path:
    """Error of the kernel in the inner ball against the radius of the ball that is covered."""
    figure, axes = pyplot.subplots(figsize=(WIDTH, 4.8))
    rows = record.tables["radii"]
    for column, (label, colour, mark, line) in _LINES.items():
        places = [(row["R"], row[column]) for row in rows if row[column]]
        if places:
            style: Any = {
                "color": colour,
                "marker": mark,
                "linestyle": line,
                "markersize": 10 if mark == "*" else 6,
            }
            text = label.format(record.config["n_fixed"])
            axes.plot(*zip(*places, strict=True), linewidth=2.8 if column == "error" else 1.4, label=text, **style)
    axes.axvline(record.config["inner"], color="0.5", linewidth=1.0, linestyle=":")
    axes.annotate(
        "rim of the inner ball", (record.config["inner"], 0.03), xycoords=("data", "axes fraction"),
        rotation=90, fontsize=9, color="0.35", ha="right", va="bottom",
    )  # fmt: skip
    axes.set(yscale="log", xlabel=f"radius $R$ of the ball, {_UNIT}", ylabel="relative error in the inner ball")
    axes.legend(loc="upper right")  # errors fall: the corner is empty
    return save_figure(figure, path)


@styled
def draw_estimate(record: Record, path: str | os.PathLike[str]) -> Path:
    """Estimated errors of an exhaustion against true ones; the band is a factor of 3."""
    figure, axes = pyplot.subplots(figsize=(WIDTH, 5.4))
    rows = record.tables["exhaustion"]
    both = [row[name] for row in rows for name in ("true", "estimate")]
    ends = [min(both) / 2, max(both) * 2]
    axes.fill_between(ends, [e / 3 for e in ends], [3 * e for e in ends], color=_BAND, label="within a factor of 3")
    axes.plot(ends, ends, color="0.5", linewidth=1.0, linestyle=":", label="estimate as large as the error")
    for space, (colour, mark, shift) in _SPACES.items():
        places = [row for row in rows if row["space"] == space]
        x, y = ([row[name] for row in places] for name in ("true", "estimate"))
        axes.plot(x, y, color=colour, marker=mark, label=f"${space}$")
        for row in places:
            axes.annotate(
                f"R = {row['R']:g}", (row["true"], row["estimate"]), textcoords="offset points", xytext=shift,
                fontsize=9, color=colour, ha="left" if shift[0] > 0 else "right",
                bbox={"facecolor": _BAND if shift[0] > 0 else "none", "edgecolor": "none", "pad": 0.5},
            )  # fmt: skip
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.set(xlabel="true relative error, absolute scale", ylabel="estimate without the exact kernel")
    axes.legend(loc="upper left")
    return save_figure(figure, path)


@styled
def draw_slice(record: Record, path: str | os.PathLike[str]) -> Path:
    """The kernel from a point at the rim of the inner ball along the line through the centre."""
    figure, axes = pyplot.subplots(figsize=(WIDTH, 4.6))
    distance = record.arrays["distance"]
    axes.plot(distance, record.arrays["exact"], color="0.75", linewidth=6.0, label="exact")
    for name, (colour, line, place) in _CURVES.items():
        radius = record.config["radii"][place]
        label = f"features of the ball of radius {radius:g}"
        axes.plot(distance, record.arrays[name], color=colour, linestyle=line, linewidth=1.8, label=label)
    axes.set(xlabel=f"distance from a point at the rim of the inner ball, {_UNIT}", yscale="log")
    axes.set_ylabel("heat kernel, per unit volume, not aligned")
    axes.legend(loc="upper right")
    return save_figure(figure, path)
