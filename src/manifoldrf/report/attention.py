"""Figures of the experiment on tokens: error against the number of sources, and the surfaces with their signals."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from manifoldrf._optional import require
from manifoldrf._validation import FloatArray
from manifoldrf.experiments.record import Record
from manifoldrf.report._drawing import DIFFERENCES, TITLES, VIEW, draw_field, frame, legend_beside, save_figure

_OWN = "MRF"
_TITLES = dict(TITLES) | {
    "mobius2": "two-sided cover of the strip",
    "swiss": "swiss roll",
    "folded": "accordion",
}
# A colour for each kind of method that stays apart without colour vision, a line and a mark for each method of it.
_KINDS = {
    "features of the surface, positive": (
        "black",
        (_OWN, "MRF cells", "MRF uniform", "MRF sparse", "MRF farthest"),
    ),
    "features of the surface, signed": ("#CC79A7", ("geodesic Nystrom", "diffusion map")),
    "anchors in the space around": (
        "#0072B2",
        ("linear RBF", "linear RBF cells", "linear RBF uniform", "linear RBF farthest"),
    ),
    "random features of the space around": ("#D55E00", ("RFF", "ORF", "PRF", "PORF")),
    "exact kernels": ("#009E73", ("exact heat", "exact RBF")),
    "solved with the visible values": ("0.6", ("harmonic", "biharmonic")),
}
_LINES, _MARKS = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1))), ("o", "s", "^", "D", "X")
# Rolls and folds are looked at along their axis, or the outer sheet would hide the others.
_CYLINDERS, _END_ON = ("swiss", "folded"), {"elev": 9.0, "azim": 7.0}
_DOT = 7.0  # area of a token, in square points
_ROWS = {"signal": "signal", "mrf": "{} features of the surface", "rbf": "exact Gaussian kernel of the space"}


def draw_attention(record: Record, path: str | os.PathLike[str]) -> Path:
    """Four surfaces: geometric mean of the squared error against the number of sources, a line for every method."""
    pyplot = require("matplotlib.pyplot", "viz")
    surfaces = record.config["surfaces"]
    columns = 1 + (len(surfaces) > 1)
    shape = (-(-len(surfaces) // columns), columns)
    figure, panels = pyplot.subplots(
        *shape, figsize=(12.6, 8.8), sharex=True, sharey=True, squeeze=False, layout="constrained"
    )
    for axes, surface in zip(panels.flat, surfaces, strict=False):
        _draw_lines(axes, [row for row in record.tables["sources"] if row["surface"] == surface])
        masked = record.config["masked" if surface == "mobius" else "masked_touching"]
        axes.set_title(f"{_TITLES.get(surface, surface)}, {masked:.0%} of the values masked", fontsize=11)
        axes.set(yscale="log", xticks=record.config["sources"])
        axes.grid(visible=True, which="both", alpha=0.25)
    for axes in panels.flat[len(surfaces) :]:
        axes.set_visible(False)
    for axes in panels[-1]:
        axes.set_xlabel("number of sources")
    for axes in panels[:, 0]:
        axes.set_ylabel("mean squared error (signals have variance 1)")
    legend_beside(figure, *_legend(panels[0][0]))
    return save_figure(figure, path)


def _draw_lines(axes: Any, rows: list[dict[str, Any]]) -> None:
    for colour, methods in _KINDS.values():
        for place, method in enumerate(methods):
            line = [row for row in rows if row["method"] == method]
            style: dict[str, Any] = {"color": colour, "linestyle": _LINES[place], "marker": _MARKS[place]}
            style |= {"linewidth": 3.0, "zorder": 5} if method == _OWN else {"linewidth": 1.4}
            if line:
                sizes = [row["sources"] for row in line], [row["mse"] for row in line]
                axes.plot(*sizes, markersize=4.5, label=method, **style)


def _legend(axes: Any) -> tuple[list[Any], list[str]]:
    """Handles and labels, each kind under its heading."""
    lines = require("matplotlib.lines", "viz")
    drawn = {line.get_label(): line for line in axes.get_lines()}
    handles, labels = [], []
    for kind, (_, methods) in _KINDS.items():
        shown = [method for method in methods if method in drawn]
        if shown:
            handles += [lines.Line2D([], [], linestyle="none"), *(drawn[method] for method in shown)]
            labels += [f"\n{kind}", *shown]
    return handles, labels


def draw_tokens(record: Record, path: str | os.PathLike[str]) -> Path:
    """The first task of every surface: the signal, with rims around visible tokens, and two ways to fill it in."""
    pyplot = require("matplotlib.pyplot", "viz")
    surfaces = record.config["surfaces"]
    figure = pyplot.figure(figsize=(3.8 * len(surfaces), 3.1 * len(_ROWS)), layout="constrained")
    for column, surface in enumerate(surfaces):
        points, visible = record.arrays[f"{surface}_points"], record.arrays[f"{surface}_visible"]
        signal = record.arrays[f"{surface}_signal"]
        hidden = np.setdiff1d(np.arange(len(points)), visible)
        for row, (name, text) in enumerate(_ROWS.items()):
            axes = figure.add_subplot(len(_ROWS), len(surfaces), 1 + row * len(surfaces) + column, projection="3d")
            values = record.arrays[f"{surface}_{name}"]
            _draw_signal(axes, points, values, float(np.quantile(np.abs(signal), 0.98)))
            error = np.square(values - signal)[hidden].mean()
            title = f"{text.format(record.config['n_features'])}: error {error:.3f}"
            if name == "signal":
                _rim(axes, points[visible])
                title = f"{_TITLES.get(surface, surface)}: {len(visible)} of {len(points)} tokens visible"
            frame(axes, points, title)
            axes.set_box_aspect((1, 1, 1), zoom=1.3 if surface in _CYLINDERS else 1.45)
            axes.view_init(**(_END_ON if surface in _CYLINDERS else VIEW))
    return save_figure(figure, path)


def _draw_signal(axes: Any, points: FloatArray, values: FloatArray, top: float) -> None:
    """Dots small enough that sheets are seen apart, in colours whose middle is no white: paper is."""
    dots = draw_field(axes, points, values, DIFFERENCES)
    dots.set(sizes=[_DOT], cmap="coolwarm", clim=(-top, top))


def _rim(axes: Any, points: FloatArray) -> None:
    """Black rims, in front of everything so that all visible tokens are seen."""
    axes.computed_zorder = False
    width = 0.8 if len(points) < 300 else 0.3  # many rims would hide the signal
    axes.scatter(*points.T, s=1.6 * _DOT, facecolors="none", edgecolors="black", linewidths=width, zorder=9)
