"""Figures of the experiment on grids: errors, convergence in two dimensions, signatures, and a saddle."""

import os
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import cm, colors, pyplot, ticker

import reproduction.report.style as ink
from reproduction.common import FloatArray
from reproduction.record import Record
from reproduction.report.drawing import common_limits, draw_patches, view_from
from reproduction.report.style import (
    COLOURS,
    DIFFERENCES,
    WIDTH,
    fitted_exponent,
    power,
    save_figure,
    size_ticks,
    styled,
)

_TEACHERS = {"exact": "exact signatures", "walks": "random walks (Algorithm 1)", "counts": "counted walkers"}
_OBJECTS = {"psi": "$\\psi$ against $g_\\sigma$", "kernel": "$\\langle\\psi, \\psi\\rangle$ against $K_\\sigma$"}
# Part of a panel's name -> titles of prediction, truth and residual.
_TRIPLETS = {
    "kernel": ("$\\langle\\psi(c), \\psi(\\cdot)\\rangle$", "$K_\\sigma(c, \\cdot)$, exact", "difference"),
    "psi": ("$\\psi(c)[\\cdot]$", "$g_\\sigma(c, \\cdot)$, exact", "difference"),
}
_BARS = {"kernel": "$\\langle\\psi, \\psi\\rangle$ and $K_\\sigma$", "psi": "$\\psi$ and $g_\\sigma$"}
_FITTED = 0.5  # share of the finest grids that exponents are fitted to: coarse grids are too far from the limit


@styled
def draw_grid_errors(record: Record, path: str | os.PathLike[str]) -> Path:
    """Relative mean squared errors against n, one line per dimension: psi (top) and the kernel (bottom).

    Dotted lines are the noise that walks predict for themselves. Grey dashes are the exact teacher against the
    plain Gaussian in the smallest and the largest dimension. Exponents are fitted to the finer half of the grids.
    """
    dims = record.config["dims"]
    norm = colors.Normalize(min(dims), max(dims))
    shades = cm.ScalarMappable(norm, pyplot.get_cmap("viridis"))
    figure, panels = pyplot.subplots(2, 3, figsize=(WIDTH, 6.6), sharex=True, sharey="row")
    for above, name in zip(panels, _OBJECTS, strict=True):
        for axes, teacher in zip(above, _TEACHERS, strict=True):
            axes.set(xscale="log", yscale="log")
            for d in dims:
                rows = [row for row in record.tables["errors"] if row["d"] == d and row["teacher"] == teacher]
                _draw_line(axes, rows, name, shades.to_rgba(d), label=d in (dims[0], dims[-1]))
        above[0].set_ylabel(f"relative MSE, {_OBJECTS[name]}")
        _draw_plain(above[0], record, name)
    for axes, teacher in zip(panels[0], _TEACHERS, strict=True):
        axes.set_title(_TEACHERS[teacher])
    for axes in panels[1]:
        axes.set_xlabel("nodes along an axis $n$")
        size_ticks(axes.xaxis, record.config["sides"])
    for axes in panels.flat:
        if axes not in panels[:, 0]:
            axes.plot([], [], ":", color="grey", label="predicted noise")
        axes.legend(loc="lower left" if axes in panels[:, 0] else "upper right", fontsize=8.5)
    bar = figure.colorbar(shades, ax=panels, shrink=0.7, pad=0.01, aspect=30)
    bar.set_label("dimension $d$")
    return save_figure(figure, path)


@styled
def draw_grid_convergence(record: Record, path: str | os.PathLike[str]) -> Path:
    """Two dimensions, a row for each n: kernel, its limit, their difference, and the same for the signature.

    All values of a kind share one colour scale, and all their differences another.
    """
    sides = record.config["panels"]
    figure, panels = pyplot.subplots(len(sides), 6, figsize=(WIDTH, 1.5 * len(sides) + 1.5), squeeze=False)
    for block, (kind, titles) in zip((panels[:, :3], panels[:, 3:]), _TRIPLETS.items(), strict=True):
        _draw_triplets(figure, block, record, kind)
        for axes, title in zip(block[0], titles, strict=True):
            axes.set_title(title, fontsize=9.5)
    for axes in panels.flat:
        axes.set(xticks=[0, 0.5], yticks=[0, 0.5])
        axes.tick_params(labelbottom=axes in panels[-1], labelleft=axes in panels[:, 0], labelsize=8)
        axes.grid(visible=False)
    for line, side in zip(panels, sides, strict=True):
        line[0].set_ylabel(f"$n$ = {side}\n$\\omega_2$")
    for axes in panels[-1]:
        axes.set_xlabel("$\\omega_1$")
    walks = f"$d$ = 2, $\\sigma$ = {record.config['sigma']:g}, {record.config['n_walks']:,} walks"
    figure.suptitle(f"{walks}, limits periodised", fontsize=10.5)
    return save_figure(figure, path)


def _draw_triplets(figure: Any, block: Any, record: Record, kind: str) -> None:
    """Prediction, truth and residual for each n, with a colour bar for the first two and one for the last."""
    found = [record.arrays[f"panel_{side}_{kind}"] for side in record.config["panels"]]
    exact = [record.arrays[f"panel_{side}_{kind}_exact"] for side in record.config["panels"]]
    rest = [values - truth for values, truth in zip(found, exact, strict=True)]
    limits, small = common_limits(found + exact), common_limits(rest, DIFFERENCES)
    for line, *pictures in zip(block, found, exact, rest, strict=True):
        for axes, values in zip(line[:2], pictures[:2], strict=True):
            drawn = _draw_squares(axes, values, limits)
        residual = _draw_squares(line[2], pictures[2], small, DIFFERENCES)
        text = f"at most {np.abs(pictures[2]).max():.2g}"
        line[2].text(0.5, 0.96, text, transform=line[2].transAxes, ha="center", va="top", fontsize=8)
    style = {"location": "bottom", "aspect": 25, "pad": 0.01, "fraction": 0.03}
    figure.colorbar(drawn, ax=block[:, :2], **style).set_label(_BARS[kind], fontsize=9)
    bar = figure.colorbar(residual, ax=block[:, 2], **style | {"aspect": 12})
    bar.set_label("difference", fontsize=9)
    bar.locator = ticker.MaxNLocator(3)


@styled
def draw_grid_signatures(record: Record, path: str | os.PathLike[str]) -> Path:
    """Signature of one vertex z on finer and finer grids: as coloured vertices (top) and squares (bottom)."""
    sides = record.config["grids"]
    figure, panels = pyplot.subplots(2, len(sides), figsize=(WIDTH, 4.6), squeeze=False)
    for above, below, side in zip(*panels, sides, strict=True):
        values = record.arrays[f"grid_{side}"]
        _draw_vertices(above, values / values.max())
        above.set_title(f"${side} \\times {side}$")
        drawn = _draw_squares(below, values / values.max(), (0.0, 1.0))
        for axes in (above, below):
            axes.set(xticks=[], yticks=[], xlim=(-0.5 / side, 1 - 0.5 / side), ylim=(-0.5 / side, 1 - 0.5 / side))
            axes.set_aspect("equal")
            axes.grid(visible=False)
    panels[0][0].set_ylabel("vertices of the grid")
    panels[1][0].set_ylabel("unit squares")
    bar = figure.colorbar(drawn, ax=panels, shrink=0.8, pad=0.01, aspect=28)
    bar.set_label("$\\phi(z)[\\cdot]$ over its largest value")
    return save_figure(figure, path)


@styled
def draw_saddle(record: Record, path: str | os.PathLike[str]) -> Path:
    """The heat kernel F of one point x of a saddle; x is green, some other points have their values beside them."""
    points, kernel = record.arrays["saddle_points"], record.arrays["saddle_kernel"]
    view = view_from(40.0, -62.0)  # from this view no point is hidden
    figure, axes = pyplot.subplots(figsize=(WIDTH, 5.9))
    drawn = draw_patches(axes, points, kernel, view, common_limits([kernel]))
    marks: Any = {"edgecolors": "white", "linewidths": 1.0, "zorder": 2}
    across, up = record.arrays["saddle_source"] @ view[:, :2]
    axes.scatter(across, up, c=ink.GREEN, s=110, label="$x$", **marks)
    samples = record.arrays["saddle_samples"] @ view[:, :2]
    axes.scatter(
        samples[:, 0], samples[:, 1], c=ink.SKY, s=60, marker="D", label="$y$, with $F(x, y)$ beside it", **marks
    )
    for place, value in zip(samples, record.arrays["saddle_values"], strict=True):
        box = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1.0}
        axes.annotate(f"{value:.2g}", place, xytext=(9, 5), textcoords="offset points", fontsize=9, bbox=box)
    axes.set_title(f"heat kernel $F = K_t$ of a saddle, $t$ = {record.config['saddle_t']:g}")
    axes.legend(loc="upper right")
    bar = figure.colorbar(drawn, ax=axes, shrink=0.8, pad=0.01)
    bar.set_label("$F(x, y)$, per unit area")
    return save_figure(figure, path)


def _draw_line(axes: Any, rows: list[dict[str, Any]], name: str, colour: Any, *, label: bool) -> None:
    """Mean error with the standard deviation over repetitions as bars, and the predicted noise in dots.

    The label of a line contains its exponent, unless noise dominates.
    """
    sides, found = [row["n"] for row in rows], [row[name] for row in rows]
    above = [row[f"{name}_spread"] for row in rows]
    bars = [np.minimum(above, 0.7 * np.array(found)), above]  # on a logarithmic scale no bar may reach zero
    noise = np.array([row[f"{name}_noise"] for row in rows])
    style = {"linewidth": 1.2, "marker": "o", "markersize": 3, "elinewidth": 0.8}
    if label and not noise.any():
        fine = max(0, min(int(_FITTED * len(sides)), len(sides) - 3))  # an exponent needs three
        style["label"] = f"$d$ = {rows[0]['d']}{power('n', fitted_exponent(sides[fine:], found[fine:]))}"
    axes.errorbar(sides, found, yerr=bars, color=colour, **style)
    if noise.any():
        axes.plot(sides, noise, ":", color=colour, linewidth=0.9)


def _draw_plain(axes: Any, record: Record, name: str) -> None:
    """The error of the exact teacher against the Gaussian that is not periodised."""
    dims = record.config["dims"]
    for d in dict.fromkeys((dims[0], dims[-1])):
        rows = [row for row in record.tables["errors"] if row["d"] == d and row["teacher"] == "exact"]
        label = "plain Gaussian, same $d$" if d == dims[0] else None
        sides, found = [row["n"] for row in rows], [row[f"{name}_plain"] for row in rows]
        axes.plot(sides, found, "--", color="grey", linewidth=1.1, label=label)


def _draw_squares(axes: Any, values: FloatArray, limits: tuple[float, float], colours: str = COLOURS) -> Any:
    """Values at the nodes (i, j) / n as squares around them; the first axis runs to the right."""
    half = 0.5 / len(values)
    place = (-half, 1 - half, -half, 1 - half)
    low, high = limits
    axes.spines[:].set_visible(True)  # a picture has a frame
    return axes.imshow(values.T, origin="lower", extent=place, vmin=low, vmax=high, cmap=colours)


def _draw_vertices(axes: Any, values: FloatArray) -> None:
    """Lines of the grid, its vertices coloured, and the vertex z named; edges that wrap around are left out."""
    side = len(values)
    at = np.arange(side) / side
    axes.spines[:].set_visible(True)
    for line in at:
        axes.plot([0, at[-1]], [line, line], color="0.75", linewidth=0.5, zorder=1)
        axes.plot([line, line], [0, at[-1]], color="0.75", linewidth=0.5, zorder=1)
    x, y = np.meshgrid(at, at, indexing="ij")
    size = 1100 / side**1.6  # square points: dots as wide as a third of the mesh, a little more on fine grids
    style = {"cmap": COLOURS, "vmin": 0.0, "vmax": 1.0, "edgecolors": "0.4", "linewidths": 0.3, "zorder": 2}
    axes.scatter(x, y, c=values, s=size, **style)
    centre, apart = at[side // 2], (0.09 if side <= 8 else 0.29)  # between vertices, or outside the dark ones
    axes.annotate(
        "$z$",
        (centre, centre),
        xytext=(centre + apart, centre + apart),
        fontsize=11,
        bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "0.6"},
        arrowprops={"arrowstyle": "-", "color": "black", "linewidth": 0.9},
        zorder=3,
    )
