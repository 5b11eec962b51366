"""Figures of the experiments that fill in fields on meshes: cosines and times against size, and all methods."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from manifoldrf._optional import require
from manifoldrf.experiments._growth import EPOCHS_EXTRAPOLATED, EXTRAPOLATED
from manifoldrf.experiments.record import Record
from manifoldrf.report._drawing import save_figure

Row = dict[str, Any]

# Colours that stay apart without colour vision, by what a method is; the first word that its name holds counts.
_FAMILIES = {
    "RFF": ("#0072B2", "s"),
    "PORF": ("#F0A860", "v"),
    "ORF": ("#56B4E9", "D"),
    "PRF": ("#D55E00", "^"),
    "nearest": ("0.55", "x"),
    "harmonic": ("#009E73", "P"),
    "process": ("#CC79A7", "X"),
    "features": ("#7A3E9D", "o"),
    "MRF": ("#E6AB02", "*"),
    "kernel": ("black", "o"),
    "default": ("#009E73", "h"),
}
_OTHER = ("0.4", ".")
_DASHES = ("-", "--", ":", "-.")
_SETTINGS = {"as_paper": "paper's setting", "tuned": "chosen on known values"}
# What lines show: more would hide each other. The dots show all methods.
_LINES = (
    "exact kernel, Gaussian weights", "exact kernel, kNN graph", "exact features, uniform anchors",
    "sparse features", "MRF", "full kernel", "RFF 1024", "PRF 1024", "nearest known", "Gaussian process",
    "biharmonic, unit", "biharmonic, kNN graph", "library features",
)  # fmt: skip


def draw_cosines(record: Record, path: str | os.PathLike[str]) -> Path:
    """Mean cosine on every mesh against its size: the paper's setting, and parameters chosen on known values."""
    pyplot = require("matplotlib.pyplot", "viz")
    cells = [row for row in record.tables["cells"] if _is_line(row["method"])]
    figure, panels = pyplot.subplots(1, 2, figsize=(12, 6.0), sharey=True, sharex=True, layout="constrained")
    for axes, (setting, title) in zip(panels, _SETTINGS.items(), strict=True):
        rows = [row for row in cells if row["setting"] == setting]
        for method, style in _styles(_methods(rows)).items():
            line = sorted((row["vertices"], row["cosine"]) for row in rows if row["method"] == method)
            axes.plot(*zip(*line, strict=True), label=method, **style)
        axes.set(xscale="log", xlabel="number of vertices", title=title)
        axes.grid(visible=True, alpha=0.3)
        axes.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
    panels[0].set_ylabel("mean cosine at hidden vertices")
    return save_figure(figure, path)


def draw_dense_cosines(record: Record, path: str | os.PathLike[str]) -> Path:
    """Mean cosine on denser and denser nodes of one moving mesh."""
    pyplot = require("matplotlib.pyplot", "viz")
    rows = [row for row in record.tables["scaling"] if _is_line(row["method"]) and row.get("cosine") is not None]
    figure, axes = pyplot.subplots(figsize=(8.5, 4.8), layout="constrained")
    for method, style in _styles(_methods(rows)).items():
        line = sorted((row["vertices"], row["cosine"]) for row in rows if row["method"] == method)
        axes.plot(*zip(*line, strict=True), label=method, **style)
    axes.set(xscale="log", xlabel="number of nodes", ylabel="mean cosine at hidden nodes")
    sizes = sorted({row["vertices"] for row in rows})
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes], fontsize=8)
    axes.minorticks_off()
    axes.grid(visible=True, alpha=0.3)
    axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return save_figure(figure, path)


def draw_times(record: Record, path: str | os.PathLike[str]) -> Path | None:
    """Seconds of preparation and of interpolation against size, with exponents; hollow marks are extrapolated.

    None where no times were taken.
    """
    if "scaling" not in record.tables:
        return None
    pyplot = require("matplotlib.pyplot", "viz")
    rows = [row for row in record.tables["scaling"] if _is_line(row["method"])]
    exponents = {row["method"]: row for row in record.tables["exponents"]}
    figure, panels = pyplot.subplots(2, 1, figsize=(10.5, 9.6), sharex=True, layout="constrained")
    styles = _styles(_methods(rows))
    for axes, part in zip(panels, ("prepare", "interpolate"), strict=True):
        for method, style in styles.items():
            own = [row for row in rows if row["method"] == method]
            _draw_line(axes, own, f"{part}_s", exponents.get(method, {}).get(part), style)
        axes.set(xscale="log", yscale="log", ylabel="seconds", title=_PARTS[part])
        axes.grid(visible=True, alpha=0.3)
        axes.legend(frameon=False, fontsize=8.5, loc="center left", bbox_to_anchor=(1.0, 0.5))
    panels[1].set_xlabel("number of vertices")
    return save_figure(figure, path)


_PARTS = {"prepare": "preparation: what depends on the mesh only", "interpolate": "interpolation"}
_NOTHING = 1e-5  # seconds below which there is no work to time
# What of a row was not measured. Fewer epochs than are counted shorten the preparation only.
_HOLLOW = {"prepare_s": (EXTRAPOLATED, EPOCHS_EXTRAPOLATED), "interpolate_s": (EXTRAPOLATED,)}


def _draw_line(axes: Any, rows: Sequence[Row], column: str, exponent: float | None, style: dict[str, Any]) -> None:
    """Times of one method; those that were extrapolated are hollow and joined by a thin line."""
    line = sorted((row["vertices"], row[column], row["how"]) for row in rows if row[column] > _NOTHING)
    if not line:
        return
    power = "" if exponent is None else f"  $n^{{{exponent:.2f}}}$"
    label = f"{rows[0]['method']}{power}"
    measured = [(n, seconds) for n, seconds, how in line if how not in _HOLLOW[column]]
    rest = [(n, seconds) for n, seconds, how in line if how in _HOLLOW[column]]
    if measured:
        axes.plot(*zip(*measured, strict=True), label=label, **style)
    if rest:
        thin = style | {"markerfacecolor": "white", "linewidth": 0.8, "linestyle": ":"}
        thin |= {} if measured else {"label": label}
        axes.plot(*zip(*measured[-1:], *rest, strict=True), zorder=1, **thin)


def draw_methods(record: Record, path: str | os.PathLike[str]) -> Path:
    """Mean cosine of every method: dots for both settings, stars for the paper."""
    pyplot = require("matplotlib.pyplot", "viz")
    table = next(iter(record.tables.values()))  # the summary comes first
    rows = sorted(table, key=lambda row: max(row[name] or 0.0 for name in _SETTINGS))
    figure, axes = pyplot.subplots(figsize=(9.5, 1.2 + 0.27 * len(rows)), layout="constrained")
    heights = np.arange(len(rows))
    marks = {
        "as_paper": {"marker": "o", "s": 95, "facecolors": "#0072B2", "zorder": 3, "label": "paper's setting"},
        "tuned": {"marker": "D", "s": 40, "facecolors": "#D55E00", "zorder": 4, "label": "chosen on known values"},
        "paper_as_paper": {
            "marker": "*",
            "s": 130,
            "facecolors": "white",
            "edgecolors": "black",
            "label": "the paper's",
        },
    }
    for column, style in marks.items():
        there = [
            (row[column], height) for row, height in zip(rows, heights, strict=True) if row[column] is not None
        ]
        if there:
            axes.scatter(*zip(*there, strict=True), **style)
    axes.set_yticks(heights, [row["method"] for row in rows], fontsize=8.5)
    axes.set(xlabel="mean cosine at hidden vertices", ylim=(-0.7, len(rows) - 0.3))
    axes.grid(visible=True, axis="both", alpha=0.3)
    axes.legend(frameon=False, fontsize=9, loc="lower right")
    return save_figure(figure, path)


def _is_line(method: str) -> bool:
    return any(name in method for name in _LINES)


def _methods(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(row["method"] for row in rows))


def _styles(methods: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Colour and marker by family, dashes within one."""
    styles: dict[str, dict[str, Any]] = {}
    count: dict[str, int] = {}
    for method in methods:
        family = next((word for word in _FAMILIES if word in method), "")
        colour, marker = _FAMILIES.get(family, _OTHER)
        dash = _DASHES[count.setdefault(family, 0) % len(_DASHES)]
        count[family] += 1
        styles[method] = {"color": colour, "marker": marker, "linestyle": dash, "markersize": 6, "linewidth": 1.4}
    return styles
