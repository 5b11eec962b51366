"""Figures of the experiment on grids: errors, convergence in two dimensions, signatures, and a saddle."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from manifoldrf._optional import require
from manifoldrf._validation import FloatArray
from manifoldrf.experiments.record import Record
from manifoldrf.report._drawing import COLOURS, frame, save_figure

_TEACHERS = {"exact": "exact signatures", "walks": "random walks (Algorithm 1)", "counts": "counted walkers"}
_OBJECTS = {"psi": "$\\psi$ against $g_\\sigma$", "kernel": "$\\langle\\psi, \\psi\\rangle$ against $K_\\sigma$"}
_REDS = "Reds"  # the paper's shades for the kernel on the saddle


def draw_grid_errors(record: Record, path: str | os.PathLike[str]) -> Path:
    """Relative mean squared errors against n, a line for every dimension: above psi, below the kernel.

    Dotted lines are the noise that walks predict of themselves; grey dashes the exact teacher against the plain
    Gaussian of the smallest and the largest dimension.
    """
    pyplot = require("matplotlib.pyplot", "viz")
    dims = record.config["dims"]
    colours = pyplot.get_cmap("viridis")
    shades = require("matplotlib.cm", "viz").ScalarMappable(pyplot.Normalize(min(dims), max(dims)), colours)
    figure, panels = pyplot.subplots(2, 3, figsize=(13, 7.6), sharex=True, sharey="row", layout="constrained")
    for above, name in zip(panels, _OBJECTS, strict=True):
        for axes, teacher in zip(above, _TEACHERS, strict=True):
            for d in dims:
                rows = [row for row in record.tables["errors"] if row["d"] == d and row["teacher"] == teacher]
                _draw_line(axes, rows, name, shades.to_rgba(d))
            axes.set_yscale("log")
            axes.grid(visible=True, which="major", alpha=0.3)
        above[0].set_ylabel(f"relative MSE, {_OBJECTS[name]}")
        _draw_plain(above[0], record, name)
    for axes, teacher in zip(panels[0], _TEACHERS, strict=True):
        axes.set_title(_TEACHERS[teacher], fontsize=11)
    for axes in panels[1]:
        axes.set_xlabel("$n$, nodes along an axis")
        axes.set_xticks(record.config["sides"])
    for axes in panels[0][1:]:
        axes.plot([], [], ":", color="grey", label="predicted noise")
        axes.legend(loc="upper right", frameon=False, fontsize=9)
    bar = figure.colorbar(shades, ax=panels, shrink=0.7, pad=0.01)
    bar.set_label("dimension $d$")
    return save_figure(figure, path)


def draw_grid_convergence(record: Record, path: str | os.PathLike[str]) -> Path:
    """Two dimensions, a row for each n: kernel and its limit, signature and its limit, as squares of colour."""
    pyplot = require("matplotlib.pyplot", "viz")
    sides = record.config["panels"]
    columns = {
        "kernel_exact": "exact kernel $K_\\sigma(c, \\cdot)$",
        "kernel": "induced $\\langle\\psi(c), \\psi(\\cdot)\\rangle$",
        "psi_exact": "exact feature $g_\\sigma(c, \\cdot)$",
        "psi": "signature $\\psi(c)[\\cdot]$",
    }
    figure, panels = pyplot.subplots(
        len(sides), 4, figsize=(11.5, 2.6 * len(sides) + 0.7), squeeze=False, layout="constrained"
    )
    drawn = {}
    for line, side in zip(panels, sides, strict=True):
        for axes, name in zip(line, columns, strict=True):
            kind = name.split("_")[0]
            limits = [record.arrays[f"panel_{n}_{kind}_exact"] for n in sides]
            largest = max(float(values.max()) for values in limits)
            drawn[kind] = _draw_squares(axes, record.arrays[f"panel_{side}_{name}"], largest)
            axes.set(xticks=[0, 0.25, 0.5, 0.75], yticks=[0, 0.25, 0.5, 0.75])
            axes.tick_params(labelbottom=side == sides[-1], labelleft=name == "kernel_exact", labelsize=8)
        line[0].set_ylabel(f"$n$ = {side}\n$\\omega_2$")
    for axes, title in zip(panels[0], columns.values(), strict=True):
        axes.set_title(title, fontsize=11)
    for axes in panels[-1]:
        axes.set_xlabel("$\\omega_1$")
    for place, kind in ((panels[:, :2], "kernel"), (panels[:, 2:], "psi")):
        figure.colorbar(drawn[kind], ax=place, shrink=0.6, pad=0.02)
    walks = f"$d$ = 2, $\\sigma$ = {record.config['sigma']:g}, {record.config['n_walks']:,} walks"
    figure.suptitle(f"{walks}, limits periodised", fontsize=11)
    return save_figure(figure, path)


def draw_grid_signatures(record: Record, path: str | os.PathLike[str]) -> Path:
    """Signature of one vertex z on ever finer grids: above as colours of the vertices, below as unit squares."""
    pyplot = require("matplotlib.pyplot", "viz")
    sides = record.config["grids"]
    figure, panels = pyplot.subplots(
        2, len(sides), figsize=(3.3 * len(sides) + 1, 7), squeeze=False, layout="constrained"
    )
    for above, below, side in zip(*panels, sides, strict=True):
        values = record.arrays[f"grid_{side}"]
        _draw_vertices(above, values / values.max())
        above.set_title(f"${side} \\times {side}$", fontsize=12)
        drawn = _draw_squares(below, values / values.max(), 1.0)
        for axes in (above, below):
            axes.set(xticks=[], yticks=[], xlim=(-0.5 / side, 1 - 0.5 / side), ylim=(-0.5 / side, 1 - 0.5 / side))
            axes.set_aspect("equal")
    panels[0][0].set_ylabel("vertices of the grid graph")
    panels[1][0].set_ylabel("unit squares")
    bar = figure.colorbar(drawn, ax=panels, shrink=0.6, pad=0.01)
    bar.set_label("$\\phi(z)[\\cdot]$, over its largest value")
    return save_figure(figure, path)


def draw_saddle(record: Record, path: str | os.PathLike[str]) -> Path:
    """The heat kernel of one point of a saddle in shades of red; the point is green, some others are blue."""
    pyplot = require("matplotlib.pyplot", "viz")
    points, kernel = record.arrays["saddle_points"], record.arrays["saddle_kernel"]
    shades = require("matplotlib.cm", "viz").ScalarMappable(pyplot.Normalize(0, float(kernel.max())), _REDS)
    figure = pyplot.figure(figsize=(7.2, 5.0), layout="constrained")
    axes = figure.add_subplot(projection="3d", computed_zorder=False)
    faces = (kernel[1:, 1:] + kernel[:-1, 1:] + kernel[1:, :-1] + kernel[:-1, :-1]) / 4  # of the four corners
    axes.plot_surface(
        *np.moveaxis(points, -1, 0), facecolors=shades.to_rgba(faces), rcount=len(points), ccount=len(points),
        shade=False, edgecolor=(0.3, 0.3, 0.3, 0.25), linewidth=0.2, zorder=1,
    )  # fmt: skip
    marks = {"depthshade": False, "edgecolors": "white", "linewidths": 0.8, "zorder": 2}
    axes.scatter(*record.arrays["saddle_source"], c="limegreen", s=90, label="$x$", **marks)
    label = f"$y$, with $F(x, y)$ = {', '.join(f'{value:.2g}' for value in record.arrays['saddle_values'])}"
    axes.scatter(*record.arrays["saddle_samples"].T, c="royalblue", s=45, label=label, **marks)
    frame(axes, points.reshape(-1, 3), f"heat kernel $F = K_t$ of a saddle, $t$ = {record.config['saddle_t']:g}")
    axes.view_init(elev=40.0, azim=-62.0)  # from here the flank hides none of the points
    axes.set_box_aspect((1, 1, 1), zoom=1.25)  # the corners reach farther out than those of closed surfaces
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, -0.02), ncols=2, frameon=False, fontsize=9)
    bar = figure.colorbar(shades, ax=axes, shrink=0.65, pad=0.02)
    bar.set_label("$F(x, y)$, per unit area")
    return save_figure(figure, path)


def _draw_line(axes: Any, rows: list[dict[str, Any]], name: str, colour: Any) -> None:
    """Mean error with the standard deviation over repetitions as bars, and the predicted noise in dots."""
    sides, found = [row["n"] for row in rows], [row[name] for row in rows]
    above = [row[f"{name}_spread"] for row in rows]
    bars = [np.minimum(above, 0.7 * np.array(found)), above]  # on a logarithmic scale no bar may reach zero
    axes.errorbar(sides, found, yerr=bars, color=colour, linewidth=1.2, marker="o", markersize=3, elinewidth=0.8)
    noise = np.array([row[f"{name}_noise"] for row in rows])
    if noise.any():
        axes.plot(sides, noise, ":", color=colour, linewidth=0.9)


def _draw_plain(axes: Any, record: Record, name: str) -> None:
    """What is left of the error of the exact teacher against the Gaussian that is not periodised."""
    dims = record.config["dims"]
    for d in dict.fromkeys((dims[0], dims[-1])):
        rows = [row for row in record.tables["errors"] if row["d"] == d and row["teacher"] == "exact"]
        label = "against the plain Gaussian, least and largest $d$" if d == dims[0] else None
        sides, found = [row["n"] for row in rows], [row[f"{name}_plain"] for row in rows]
        axes.plot(sides, found, "--", color="grey", linewidth=1.1, label=label)
    axes.legend(loc="upper right", frameon=False, fontsize=9)


def _draw_squares(axes: Any, values: FloatArray, largest: float) -> Any:
    """Values at the nodes (i, j) / n as squares around them; the first axis runs to the right."""
    half = 0.5 / len(values)
    place = (-half, 1 - half, -half, 1 - half)
    return axes.imshow(values.T, origin="lower", extent=place, vmin=0.0, vmax=largest, cmap=COLOURS)


def _draw_vertices(axes: Any, values: FloatArray) -> None:
    """Lines of the grid, its vertices coloured, and the vertex z named; edges that wrap around are left out."""
    side = len(values)
    at = np.arange(side) / side
    for line in at:
        axes.plot([0, at[-1]], [line, line], color="0.75", linewidth=0.6, zorder=1)
        axes.plot([line, line], [0, at[-1]], color="0.75", linewidth=0.6, zorder=1)
    x, y = np.meshgrid(at, at, indexing="ij")
    size = 2600 / side**1.6  # square points: dots as wide as a third of the mesh, a little more on fine grids
    style = {"cmap": COLOURS, "vmin": 0.0, "vmax": 1.0, "edgecolors": "0.4", "linewidths": 0.4, "zorder": 2}
    axes.scatter(x, y, c=values, s=size, **style)
    centre, apart = at[side // 2], (0.07 if side <= 8 else 0.27)  # between vertices, or outside the dark ones
    axes.annotate(
        "$z$",
        (centre, centre),
        xytext=(centre + apart, centre + apart),
        fontsize=13,
        bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "0.6"},
        arrowprops={"arrowstyle": "-", "color": "black", "linewidth": 0.9},
        zorder=3,
    )
