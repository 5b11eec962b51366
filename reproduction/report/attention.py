"""Figures of the experiment on tokens: error against the number of sources, and the surfaces with their signals."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import lines, pyplot

import reproduction.report.style as ink
from reproduction.common import FloatArray
from reproduction.record import Record
from reproduction.report.drawing import VIEW, frame, view_from
from reproduction.report.style import TITLES, WIDTH, legend_below, save_figure, styled

_OWN = "MRF"
# Each kind of method has a colour, and each of its methods a line style and a marker. Kinds are in the order of the
# legend, whose columns are two kinds each.
_KINDS = {
    "features of the surface, positive": (
        ink.BLACK,
        (_OWN, "MRF cells", "MRF uniform", "MRF sparse", "MRF farthest"),
    ),
    "exact kernels": (ink.GREEN, ("exact heat", "exact RBF")),
    "anchors in the space around": (
        ink.BLUE,
        ("linear RBF", "linear RBF cells", "linear RBF uniform", "linear RBF farthest"),
    ),
    "features of the surface, signed": (ink.PURPLE, ("geodesic Nystrom", "diffusion map")),
    "random features of the space around": (ink.VERMILION, ("RFF", "ORF", "PRF", "PORF")),
    "solved with the visible values": ("0.6", ("harmonic", "biharmonic")),
}
# Rolls and folds are viewed along their axis, because the outer sheet would hide the others.
_CYLINDERS, _END_ON = ("swiss", "folded"), (9.0, 7.0)
_SIGNALS = "coolwarm_r"  # red below 0, blue above; grey at 0, because white dots are invisible
_DOT = 3.2  # area of a token, in square points: small enough to separate the sheets
# Row -> text on the left, name of the array, and whether the signal is subtracted.
_ROWS = (
    ("signal", "signal", False),
    ("{} features\nof the surface", "mrf", False),
    ("Gaussian kernel\nof the space", "rbf", False),
    ("features - signal", "mrf", True),
    ("Gaussian - signal", "rbf", True),
)


@styled
def draw_attention(record: Record, path: str | os.PathLike[str]) -> Path:
    """Four surfaces: geometric mean of the squared error against the number of sources, a line for every method."""
    surfaces = record.config["surfaces"]
    columns = 1 + (len(surfaces) > 1)
    shape = (-(-len(surfaces) // columns), columns)
    figure, panels = pyplot.subplots(
        *shape, figsize=(WIDTH, 3.6 * shape[0] + 2.2), sharex=True, sharey=True, squeeze=False
    )
    for axes, surface in zip(panels.flat, surfaces, strict=False):
        _draw_lines(axes, [row for row in record.tables["sources"] if row["surface"] == surface])
        masked = record.config["masked" if surface == "mobius" else "masked_touching"]
        axes.set_title(f"{TITLES.get(surface, surface)}, {masked:.0%} masked")
        axes.set(yscale="log", xticks=record.config["sources"])
    for axes in panels.flat[len(surfaces) :]:
        axes.set_visible(False)
    for axes in panels[-1]:
        axes.set_xlabel("number of sources")
    for axes in panels[:, 0]:
        axes.set_ylabel("mean squared error (variance 1)")
    legend_below(figure, _legend(panels[0][0]), columns=len(_KINDS) // 2)
    for text in figure.legends[0].get_texts():
        text.set_fontweight("bold" if text.get_text() in _KINDS else "normal")
    return save_figure(figure, path)


def _draw_lines(axes: Any, rows: list[dict[str, Any]]) -> None:
    for colour, methods in _KINDS.values():
        for place, method in enumerate(methods):
            line = [row for row in rows if row["method"] == method]
            style: dict[str, Any] = {"color": colour, "linestyle": ink.DASHES[place], "marker": ink.MARKS[place]}
            style |= {"linewidth": 2.8, "zorder": 5} if method == _OWN else {}
            if line:
                sizes = [row["sources"] for row in line], [row["mse"] for row in line]
                axes.plot(*sizes, markersize=4.5, label=ink.NAMES.get(method, method), **style)


def _legend(axes: Any) -> tuple[list[Any], list[str]]:
    """Handles and labels, two kinds per column, each under its heading; columns are padded with blanks."""
    blank = lines.Line2D([], [], linestyle="none")
    drawn = {line.get_label(): line for line in axes.get_lines()}
    blocks = []
    for kind, (_, methods) in _KINDS.items():
        shown = [name for name in (ink.NAMES.get(method, method) for method in methods) if name in drawn]
        blocks.append([(blank, kind), *((drawn[name], name) for name in shown)])
    columns = [[*above, *below] for above, below in zip(blocks[::2], blocks[1::2], strict=True)]
    height = max(len(column) for column in columns)
    filled = [item for column in columns for item in column + [(blank, "")] * (height - len(column))]
    handles, labels = zip(*filled, strict=True)
    return list(handles), list(labels)


@styled
def draw_tokens(record: Record, path: str | os.PathLike[str]) -> Path:
    """The first task of every surface: the signal, two ways to fill it in, and their residuals.

    Visible tokens have rims. Signal and predictions share one scale of colours, both residuals another.
    """
    surfaces = record.config["surfaces"]
    figure, panels = pyplot.subplots(len(_ROWS), len(surfaces), figsize=(WIDTH, 1.75 * len(_ROWS)), squeeze=False)
    parts = {taken: _part(record, surfaces, taken=taken) for taken in (False, True)}
    bars = {False: "signal and predictions (variance 1)", True: "difference"}
    for taken, fields in parts.items():
        limits = _limits(list(fields.values()))
        lines = [line for line, row in zip(panels, _ROWS, strict=True) if row[2] == taken]
        for line, (text, name, _) in zip(lines, (row for row in _ROWS if row[2] == taken), strict=True):
            line[0].set_ylabel(text.format(record.config["n_features"]), fontsize=9)
            for axes, surface in zip(line, surfaces, strict=True):
                drawn = _draw_tokens(axes, record, surface, fields[name, surface], limits)
                axes.set_xlabel(_note(record, surface, name, fields[name, surface], taken=taken), fontsize=9)
        bar = figure.colorbar(drawn, ax=[axes for line in lines for axes in line], aspect=12 * len(lines),
                              pad=0.01, fraction=0.04, extend="both")  # fmt: skip
        bar.set_label(bars[taken])
    for axes, surface in zip(panels[0], surfaces, strict=True):
        axes.set_title(TITLES.get(surface, surface), fontsize=9.5)
        _rim(axes, record.arrays[f"{surface}_points"][record.arrays[f"{surface}_visible"]] @ _view(surface)[:, :2])
    return save_figure(figure, path)


def _part(record: Record, surfaces: list[str], *, taken: bool) -> dict[tuple[str, str], FloatArray]:
    """(array, surface) -> values as they are shown."""
    fields = {}
    for _, name, less in _ROWS:
        for surface in surfaces:
            if less == taken:
                signal = record.arrays[f"{surface}_signal"]
                fields[name, surface] = record.arrays[f"{surface}_{name}"] - taken * signal
    return fields


def _limits(fields: list[FloatArray]) -> tuple[float, float]:
    """Symmetric limits; one value in fifty is beyond them, so that peaks do not make all other values pale."""
    top = float(np.quantile(np.abs(np.concatenate(fields)), 0.98))
    return -top, top


def _note(record: Record, surface: str, name: str, values: FloatArray, *, taken: bool) -> str:
    """The text below a picture."""
    visible = record.arrays[f"{surface}_visible"]
    if taken:
        hidden = np.setdiff1d(np.arange(len(values)), visible)
        return f"squared error {np.square(values[hidden]).mean():.3f}"
    return f"{len(visible)} of {len(values)} visible" if name == "signal" else ""


def _view(surface: str) -> FloatArray:
    return view_from(*(_END_ON if surface in _CYLINDERS else VIEW))


def _draw_tokens(axes: Any, record: Record, surface: str, values: FloatArray, limits: tuple[float, float]) -> Any:
    """Dots from back to front."""
    points, view = record.arrays[f"{surface}_points"], _view(surface)
    order = np.argsort(points @ view[:, 2])
    flat = points @ view[:, :2]
    low, high = limits
    style = {"cmap": _SIGNALS, "vmin": low, "vmax": high, "linewidths": 0, "rasterized": True}
    dots = axes.scatter(*flat[order].T, c=values[order], s=_DOT, **style)
    frame(axes, flat, 0.05 * float(np.ptp(flat)))
    return dots


def _rim(axes: Any, flat: FloatArray) -> None:
    """Black rims in front of everything, so that all visible tokens can be seen."""
    width = 0.6 if len(flat) < 300 else 0.25  # many rims would hide the signal
    axes.scatter(*flat.T, s=2 * _DOT, facecolors="none", edgecolors="black", linewidths=width, rasterized=True)
