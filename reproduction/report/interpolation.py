"""Figures of the experiments that fill in fields on meshes: cosines and times against size, and all methods."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import pyplot

import reproduction.report.style as ink
from reproduction.record import Record
from reproduction.report.style import (
    WIDTH,
    fitted_exponent,
    handles_of,
    legend_below,
    power,
    save_figure,
    size_ticks,
    styled,
)
from reproduction.smoothers import EPOCHS_EXTRAPOLATED, EXTRAPOLATED

Row = dict[str, Any]

# Colour and marker by kind of method: the first entry whose word is in its name is used.
_FAMILIES = {
    name: (str(ink.METHODS[name]["color"]), str(ink.METHODS[name]["marker"]))
    for name in ("RFF", "PORF", "ORF", "PRF")
} | {
    "nearest": (ink.GREY, "x"),
    "harmonic": (ink.GREEN, "P"),
    "process": (ink.PURPLE, "X"),
    "features": (ink.SKY, "h"),
    "MRF": (ink.ORANGE, "*"),
    "kernel": (ink.BLACK, "o"),
    "default": (ink.GREEN, "h"),
}
_OTHER = ("0.4", ".")
_SETTINGS = {"as_paper": "paper's setting", "tuned": "chosen on known values"}
# Methods that are drawn as lines; more would hide each other. The dots show all methods.
_LINES = (
    "exact kernel, Gaussian weights", "exact kernel, kNN graph", "exact features, uniform anchors",
    "sparse features", "MRF", "full kernel", "RFF 1024", "PRF 1024", "nearest known", "Gaussian process",
    "biharmonic, unit", "biharmonic, kNN graph", "library features",
)  # fmt: skip


@styled
def draw_cosines(record: Record, path: str | os.PathLike[str]) -> Path:
    """Mean cosine on every mesh, small ones first: the paper's setting, and parameters chosen on known values."""
    cells = [row for row in record.tables["cells"] if _is_line(row["method"])]
    meshes = sorted({(row["vertices"], row["mesh"]) for row in cells})
    places = {mesh: place for place, (_, mesh) in enumerate(meshes)}
    figure, panels = pyplot.subplots(2, 1, figsize=(WIDTH, 8.4), sharey=True, sharex=True)
    styles = _styles(_methods(cells))
    for axes, (setting, title) in zip(panels, _SETTINGS.items(), strict=True):
        rows = [row for row in cells if row["setting"] == setting]
        for method in _methods(rows):
            line = sorted((places[row["mesh"]], row["cosine"]) for row in rows if row["method"] == method)
            # Lines between meshes have no meaning and are faint.
            axes.plot(*zip(*line, strict=True), label=_label(method), **styles[method] | {"linewidth": 0.7})
        axes.set(title=title, ylabel="mean cosine at hidden vertices")
    texts = [f"{mesh}\n{vertices:,}" for vertices, mesh in meshes]
    many = len(meshes) > 6  # names would touch each other
    panels[1].set_xticks(range(len(meshes)), texts, **({"rotation": 40, "ha": "right"} if many else {}))
    panels[1].set_xlabel("mesh and number of its vertices")
    legend_below(figure, handles_of(panels), columns=3)
    return save_figure(figure, path)


@styled
def draw_dense_cosines(record: Record, path: str | os.PathLike[str]) -> Path:
    """Mean cosine on denser and denser nodes of one moving mesh."""
    rows = [row for row in record.tables["scaling"] if _is_line(row["method"]) and row.get("cosine") is not None]
    figure, axes = pyplot.subplots(figsize=(WIDTH, 5.2))
    for method, style in _styles(_methods(rows)).items():
        line = sorted((row["vertices"], row["cosine"]) for row in rows if row["method"] == method)
        axes.plot(*zip(*line, strict=True), label=_label(method), **style)
    axes.set(xscale="log", xlabel="number of nodes", ylabel="mean cosine at hidden nodes")
    size_ticks(axes.xaxis, sorted({row["vertices"] for row in rows}))
    legend_below(figure, axes.get_legend_handles_labels(), columns=3)
    return save_figure(figure, path)


@styled
def draw_times(record: Record, path: str | os.PathLike[str]) -> Path | None:
    """Seconds of preparation and of interpolation against size, with exponents; hollow marks are extrapolated.

    None where no times were taken.
    """
    if "exponents" not in record.tables:
        return None
    rows = [row for row in record.tables["scaling"] if _is_line(row["method"])]
    exponents = {row["method"]: row for row in record.tables["exponents"]}
    figure, panels = pyplot.subplots(2, 1, figsize=(WIDTH, 8.6), sharex=True)
    styles = _styles(_methods(rows))
    for axes, part in zip(panels, ("prepare", "interpolate"), strict=True):
        for method, style in styles.items():
            own = [row for row in rows if row["method"] == method]
            _draw_line(axes, own, f"{part}_s", exponents.get(method, {}).get(part), style)
        axes.set(xscale="log", yscale="log", ylabel="time, seconds", title=_PARTS[part])
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8.5)
    panels[1].set_xlabel("number of vertices $n$")
    size_ticks(panels[1].xaxis, sorted({row["vertices"] for row in rows}))
    return save_figure(figure, path)


_PARTS = {"prepare": "preparation: what depends on the mesh only", "interpolate": "interpolation"}
_NOTHING = 1e-5  # smaller times, in seconds, are not drawn
# The times of a row that were not measured. Fewer epochs shorten the preparation only.
_HOLLOW = {"prepare_s": (EXTRAPOLATED, EPOCHS_EXTRAPOLATED), "interpolate_s": (EXTRAPOLATED,)}


def _draw_line(axes: Any, rows: Sequence[Row], column: str, exponent: float | None, style: dict[str, Any]) -> None:
    """Times of one method; extrapolated times are hollow and joined by a thin line.

    The exponent is omitted if there are too few measured times, or if they do not follow a power law.
    """
    line = sorted((row["vertices"], row[column], row["how"]) for row in rows if row[column] > _NOTHING)
    if not line:
        return
    measured = [(n, seconds) for n, seconds, how in line if how not in _HOLLOW[column]]
    follows = bool(measured) and fitted_exponent(*zip(*measured, strict=True)) is not None
    label = f"{_label(rows[0]['method'])}{power('n', exponent if follows else None)}"
    rest = [(n, seconds) for n, seconds, how in line if how in _HOLLOW[column]]
    if measured:
        axes.plot(*zip(*measured, strict=True), label=label, **style)
    if rest:
        thin = style | {"markerfacecolor": "white", "linewidth": 0.8, "linestyle": ":"}
        thin |= {} if measured else {"label": label}
        axes.plot(*zip(*measured[-1:], *rest, strict=True), zorder=1, **thin)


@styled
def draw_methods(record: Record, path: str | os.PathLike[str]) -> Path:
    """Mean cosine of every method: dots for both settings, squares for means over sizes, stars for the paper."""
    table = next(iter(record.tables.values()))  # the summary comes first
    rows = sorted(table, key=lambda row: max(row[name] or 0.0 for name in _SETTINGS))
    figure, axes = pyplot.subplots(figsize=(WIDTH, 1.4 + 0.27 * len(rows)))
    heights = np.arange(len(rows))
    marks: dict[str, Any] = {
        "as_paper": {"marker": "o", "s": 95, "facecolors": ink.BLUE, "zorder": 3, "label": "paper's setting"},
        "tuned": {
            "marker": "D",
            "s": 40,
            "facecolors": ink.VERMILION,
            "zorder": 4,
            "label": "chosen on known values",
        },
        "dense": {"marker": "s", "s": 40, "facecolors": ink.SKY, "zorder": 4, "label": "mean over sizes"},
    }
    stars = {"marker": "*", "s": 150, "facecolors": "none", "edgecolors": ink.BLACK, "zorder": 5}  # in front
    marks |= {
        "paper_as_paper": stars | {"label": "the paper's"},
        "paper_dense": stars | {"label": "the paper's, over sizes"},
    }
    for column, style in marks.items():
        values = [row.get(column) for row in rows]
        there = [(value, height) for value, height in zip(values, heights, strict=True) if value is not None]
        if there:
            axes.scatter(*zip(*there, strict=True), **style)
    axes.set_yticks(heights, [_label(row["method"]) for row in rows])
    axes.set(xlabel="mean cosine at hidden vertices", ylim=(-0.7, len(rows) - 0.3))
    axes.legend(loc="lower right")  # the methods below have small cosines
    return save_figure(figure, path)


def _label(method: str) -> str:
    """Name of a method for printing, with mathematical symbols."""
    return re.sub(r"\btau\b", r"$\\tau$", method)


def _is_line(method: str) -> bool:
    return any(name in method for name in _LINES)


def _methods(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows))


def _styles(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and marker by family; methods of a family differ in dashes."""
    styles: dict[str, dict[str, Any]] = {}
    count: dict[str, int] = {}
    for method in methods:
        family = next((word for word in _FAMILIES if word in method), "")
        colour, marker = _FAMILIES.get(family, _OTHER)
        dash = ink.DASHES[count.setdefault(family, 0) % len(ink.DASHES)]
        count[family] += 1
        styles[method] = {"color": colour, "marker": marker, "linestyle": dash}
    return styles
