"""Line charts of the experiments: errors, accuracies, cosines and times, the paper's numbers beside ours."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from matplotlib import pyplot

import reproduction.report.style as ink
from reproduction.common import LIBRARY, RECIPE
from reproduction.interpolation import EXTRAPOLATED, FEW_EPOCHS
from reproduction.paper import PRINTED
from reproduction.record import Record, Row, chosen
from reproduction.report.page import by_norms
from reproduction.report.style import (
    TITLES,
    WIDTH,
    fitted_exponent,
    handles_of,
    legend_below,
    power,
    save_figure,
    size_ticks,
    styled,
)
from reproduction.surface_graphs import N_NODES

PAPER: dict[str, Any] = {"facecolors": "white", "marker": "*", "s": 150, "linewidths": 1.4, "zorder": 6}


def style_of(method: str, place: int) -> dict[str, Any]:
    """Colour, marker and dashes: fixed for known methods, by place for others; our two columns are wide."""
    if method in ink.METHODS:
        return dict(ink.METHODS[method])
    known = next((style for name, style in ink.METHODS.items() if method.startswith(name)), None)
    dash = ink.DASHES[place % len(ink.DASHES)]
    return dict(known or {"color": ink.CYCLE[place % 7], "marker": ink.MARKS[place % 7]}) | {"linestyle": dash}


def _lines(axes: Any, rows: Sequence[Row], x: str, y: str, methods: Iterable[str] | None = None) -> None:
    """A line for each method."""
    for place, method in enumerate(methods or dict.fromkeys(row["method"] for row in rows)):
        line = sorted((row[x], row[y]) for row in chosen(rows, method=method) if row.get(y))
        if line:
            axes.plot(*zip(*line, strict=True), label=ink.NAMES.get(method, method), **style_of(method, place))


def _stars(axes: Any, places: Sequence[tuple[float, float]], label: str, colour: str = ink.VERMILION) -> None:
    """Numbers of the paper."""
    if places:
        axes.scatter(*zip(*places, strict=True), label=label, edgecolors=colour, **PAPER)


def _published(
    table: str, column: str, method: str = "MRF", row: str | None = None
) -> list[tuple[str, str, float]]:
    """Row, method and number of the paper's entries; ``method`` may be followed by its number of features."""
    return [
        (key[1], key[2], float(text))
        for key, text in PRINTED.items()
        if (key[0], key[3]) == (table, column)
        and row in (None, key[1])
        and re.fullmatch(rf"{method}( \d+)?", key[2])
    ]


@styled
def draw_ambient(record: Record, path: str | os.PathLike[str]) -> Path:
    """Error of the kernel against the number of features on four surfaces; stars are the paper's MRF and RFF."""
    rows = record.tables["best"]
    surfaces = list(dict.fromkeys(row["surface"] for row in rows))
    figure, panels = pyplot.subplots(2, 2, figsize=(WIDTH, 7.8), sharex=True, sharey=True)
    for axes, surface in zip(panels.flat, surfaces, strict=True):
        here = chosen(rows, surface=surface)
        gaussian = chosen(here, method="Gaussian kernel itself")
        _lines(axes, [row for row in here if row not in gaussian], "features", "error")
        for row in gaussian:
            axes.axhline(row["error"], color="0.5", linestyle=":", label="best Gaussian kernel itself")
        fourier = _published("ambient", "error", "RFF", surface)
        _stars(axes, [(float(name.split()[1]), value) for _, name, value in fourier], "RFF, published", ink.BLUE)
        own = [(float(N_NODES), value) for _, _, value in _published("ambient", "error", "MRF", surface)]
        _stars(axes, own, "MRF, published")
        axes.set(xscale="log", yscale="log", title=TITLES.get(surface, surface))
    for axes in panels[1]:
        axes.set_xlabel("number of features $m$")
        size_ticks(axes.xaxis, sorted({row["features"] for row in rows}))
        axes.tick_params(axis="x", rotation=35)
    for axes in panels[:, 0]:
        axes.set_ylabel("relative error of the kernel, aligned")
    legend_below(figure, handles_of(panels.flat))
    return save_figure(figure, path)


@styled
def draw_attention(record: Record, path: str | os.PathLike[str]) -> Path:
    """Mean squared error against the number of sources (geometric mean over draws), a line for every method."""
    rows = record.tables["sources"]
    surfaces = list(dict.fromkeys(row["surface"] for row in rows))
    columns = 1 + (len(surfaces) > 1)
    shape = (-(-len(surfaces) // columns), columns)
    figure, panels = pyplot.subplots(
        *shape, figsize=(WIDTH, 3.4 * shape[0] + 1), sharex=True, sharey=True, squeeze=False
    )
    for axes, surface in zip(panels.flat, surfaces, strict=False):
        _lines(axes, chosen(rows, surface=surface), "sources", "mse")
        axes.set(yscale="log", title=TITLES.get(surface, surface), xlabel="number of sources")
    for axes in panels[:, 0]:
        axes.set_ylabel("mean squared error (variance 1)")
    legend_below(figure, handles_of(panels.flat))
    return save_figure(figure, path)


@styled
def draw_brodatz(record: Record, path: str | os.PathLike[str]) -> Path:
    """Groups recognised against the number of neighbours, for every window, with and without standardisation.

    Each method decides by the rule that recognises most labelled windows. Stars are the paper's MRF and raw rows.
    """
    rows = chosen(record.tables["by_k"], rule="chosen")
    kinds = list(dict.fromkeys((row["window"], row["coordinates"]) for row in rows))
    figure, panels = pyplot.subplots(2, 2, figsize=(WIDTH, 8.0), sharex=True, sharey=True, squeeze=False)
    for axes, (window, coordinates) in zip(panels.flat, kinds, strict=False):
        _lines(axes, chosen(rows, window=window, coordinates=coordinates), "k", "accuracy")
        for method, colour in (("MRF", ink.VERMILION), ("raw", "0.5")):
            places = [(float(k), value) for k, _, value in _published("brodatz", "accuracy", method)]
            _stars(axes, places, f"{method}, published", colour)
        axes.set(title=f"windows of {window}, coordinates {coordinates}", xlabel="neighbours that vote")
    panels[0][0].set_ylim(bottom=0)  # of all, when all are drawn
    for axes in panels[:, 0]:
        axes.set_ylabel("groups recognised, percent")
    legend_below(figure, handles_of(panels.flat), columns=5)
    return save_figure(figure, path)


@styled
def draw_radii(record: Record, path: str | os.PathLike[str]) -> Path:
    """Error of the kernel of hyperbolic space in the inner ball against the radius of the ball that is covered."""
    figure, axes = pyplot.subplots(figsize=(WIDTH, 4.6))
    rows = record.tables["radii"]
    for column, method in (("walks_error", RECIPE), ("error", LIBRARY)):
        errors = [by_norms(row[column]) for row in rows]
        axes.plot([row["R"] for row in rows], errors, label=method, **style_of(method, 0))
    _stars(axes, [(float(r), value) for r, _, value in _published("hyperbolic", "error")], "MRF, published")
    axes.set(yscale="log", xlabel="radius $R$ of the ball", ylabel="relative error in the inner ball")
    axes.legend()
    return save_figure(figure, path)


@styled
def draw_methods(record: Record, path: str | os.PathLike[str]) -> Path:
    """Mean cosine of every method: dots in the paper's setting, diamonds tuned by a user, stars in the paper."""
    table = record.tables[record.name]
    rows = sorted(table, key=lambda row: max(row.get(name) or 0.0 for name in ("as_paper", "tuned")))
    figure, axes = pyplot.subplots(figsize=(WIDTH, 1.4 + 0.27 * len(rows)))
    marks = {"as_paper": ("o", ink.BLUE, "paper's setting"), "tuned": ("D", ink.GREEN, "chosen on known values")}
    marks["dense"] = ("s", ink.SKY, "mean over sizes")
    for column, (mark, colour, label) in marks.items():
        there = [(row[column], height) for height, row in enumerate(rows) if row.get(column) is not None]
        if there:
            style: dict[str, Any] = {"marker": mark, "color": colour, "s": 45, "label": label, "zorder": 3}
            axes.scatter(*zip(*there, strict=True), **style)
    names = {row["method"]: height for height, row in enumerate(rows)}
    found = [(key[2], float(text)) for key, text in PRINTED.items() if (key[0], key[3]) == (record.name, "cosine")]
    places = [(value, names[RECIPE if name == "MRF" else name]) for name, value in found
              if (RECIPE if name == "MRF" else name) in names]  # fmt: skip
    _stars(axes, places, "published")
    most = max(row.get("shapes", 0) for row in rows)
    fewer = {row["method"]: f" ({row['shapes']} of {most})" for row in rows if row.get("shapes", most) < most}
    axes.set_yticks(range(len(rows)), [name + fewer.get(name, "") for name in names])
    axes.set(xlabel="mean cosine at hidden vertices")
    axes.legend(loc="upper left")  # where no method is: the best are above and to the right
    return save_figure(figure, path)


@styled
def draw_times(record: Record, path: str | os.PathLike[str]) -> Path:
    """CPU seconds of preparation and of interpolation against size; hollow marks are extrapolated."""
    rows = record.tables["scaling"]
    figure, panels = pyplot.subplots(2, 1, figsize=(WIDTH, 8.6), sharex=True)
    titles = {"prepare": "preparation: what depends on the mesh only", "interpolate": "interpolation"}
    for axes, (part, title) in zip(panels, titles.items(), strict=True):
        for place, method in enumerate(dict.fromkeys(row["method"] for row in rows)):
            line = sorted((row["vertices"], row[f"{part}_s"], row["how"]) for row in chosen(rows, method=method))
            line = [item for item in line if item[1] > 1e-5]
            guessed = (EXTRAPOLATED, FEW_EPOCHS) if part == "prepare" else (EXTRAPOLATED,)
            measured = [item[:2] for item in line if item[2] not in guessed]
            if not line:
                continue
            style = style_of(method, place)
            exponent = fitted_exponent(*zip(*measured, strict=True)) if measured else None
            axes.plot(*zip(*[item[:2] for item in line], strict=True), label=method + power("n", exponent), **style)
            hollow = [item[:2] for item in line if item[2] in guessed]
            if hollow:
                marks = {
                    "marker": style["marker"],
                    "edgecolors": style["color"],
                    "facecolors": "white",
                    "zorder": 5,
                }
                axes.scatter(*zip(*hollow, strict=True), **marks)
        axes.set(xscale="log", yscale="log", ylabel="CPU time, seconds", title=title)
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8.5)
    panels[1].set_xlabel("number of vertices $n$")
    size_ticks(panels[1].xaxis, sorted({row["vertices"] for row in rows}))
    return save_figure(figure, path)


@styled
def draw_teachers(record: Record, path: str | os.PathLike[str]) -> Path:
    """Error of signature rows against steps per start: one panel per surface, one line per estimator."""
    table = record.tables["budgets"]
    surfaces = list(dict.fromkeys(row["surface"] for row in table))
    figure, panels = pyplot.subplots(1, len(surfaces), figsize=(WIDTH, 5.4), sharey=True, squeeze=False)
    for axes, surface in zip(panels[0], surfaces, strict=True):
        for place, name in enumerate(dict.fromkeys(row["estimator"] for row in table)):
            line = chosen(table, surface=surface, estimator=name)
            steps, errors = [row["steps"] for row in line], [row["error"] for row in line]
            label = name + power("s", fitted_exponent(steps, errors))
            axes.loglog(steps, errors, label=label, **style_of(name, place))
        axes.set(title=TITLES.get(surface, surface), xlabel="steps per start $s$")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14))
    panels[0][0].set_ylabel("relative error of the rows")
    return save_figure(figure, path)
