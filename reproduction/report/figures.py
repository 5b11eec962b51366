"""Figures of the graphs, and of the methods that compute signatures."""

import os
from pathlib import Path

from matplotlib import pyplot

import reproduction.report.style as ink
from reproduction.record import Record
from reproduction.report.drawing import common_limits, draw_edges, draw_field, view_of_peak
from reproduction.report.style import (
    TITLES,
    WIDTH,
    fitted_exponent,
    legend_below,
    power,
    save_figure,
    size_ticks,
    styled,
)

# Column of the table of convergence -> label, colour, mark.
_GRAPHS = {
    "exp(-tau L), k = 8": ("$\\exp(-\\tau L)$, paper's graph of 8 neighbours", ink.VERMILION, "s"),
    "W^n, heat graph": ("$W^n$, heat graph", ink.BLUE, "o"),
}


@styled
def draw_surface_graphs(record: Record, path: str | os.PathLike[str]) -> Path:
    """Four surfaces: edges of the nearest-neighbour graph (top) and the heat kernel of one node (bottom).

    The format follows the suffix of the path (png, pdf or svg).
    """
    rows = {row["surface"]: row for row in record.tables["surfaces"]}
    figure, panels = pyplot.subplots(2, len(rows), figsize=(WIDTH, 4.6), squeeze=False)
    limits = common_limits([record.arrays[f"{name}_kernel"] for name in rows])
    for (above, below), (name, row) in zip(panels.T, rows.items(), strict=True):
        points, kernel = record.arrays[f"{name}_points"], record.arrays[f"{name}_kernel"]
        view = view_of_peak(points, kernel)
        draw_edges(above, points, record.arrays[f"{name}_edges"], view)
        above.set_title(TITLES.get(name, name))
        above.set_xlabel(f"{row['neighbours']} neighbours,\n{row['edges']:,} edges", fontsize=9)
        drawn = draw_field(below, points, kernel, view, limits)
        below.set_xlabel(f"error {row['error']:.4f}", fontsize=9)
    panels[0][0].set_ylabel("graph of neighbours")
    panels[1][0].set_ylabel(f"heat graph, $t$ = {record.config['t']:g}")
    bar = figure.colorbar(drawn, ax=panels, pad=0.01, fraction=0.03, aspect=28)
    bar.set_label("$K_t(x, \\cdot)$, per unit area")
    return save_figure(figure, path)


@styled
def draw_graph_convergence(record: Record, path: str | os.PathLike[str]) -> Path | None:
    """Error of the heat kernel of the sphere against the number of nodes, with fitted exponents.

    None where a record has fewer than two numbers of nodes.
    """
    rows = record.tables["convergence"]
    if len(rows) < 2:
        return None
    figure, axes = pyplot.subplots(figsize=(WIDTH, 3.6))
    nodes = [row["nodes"] for row in rows]
    for column, (label, colour, mark) in _GRAPHS.items():
        errors = [row[column] for row in rows]
        text = label + power("N", fitted_exponent(nodes, errors))
        axes.loglog(nodes, errors, color=colour, marker=mark, label=text)
    size_ticks(axes.xaxis, nodes)
    axes.set(xlabel="number of nodes $N$ on the sphere", ylabel="relative error at the nodes")
    axes.set_title(f"heat kernel of the sphere, $t$ = {record.config['t']:g}")
    legend_below(figure, axes.get_legend_handles_labels())
    return save_figure(figure, path)


@styled
def draw_teachers(record: Record, path: str | os.PathLike[str]) -> Path:
    """Error of signature rows against steps per start: one panel per surface, one line per estimator."""
    table = record.tables["budgets"]
    surfaces = list(dict.fromkeys(row["surface"] for row in table))
    names = list(dict.fromkeys(row["estimator"] for row in table))
    figure, panels = pyplot.subplots(1, len(surfaces), figsize=(WIDTH, 5.4), sharey=True, squeeze=False)
    for axes, surface in zip(panels[0], surfaces, strict=True):
        for place, name in enumerate(names):
            line = [row for row in table if row["surface"] == surface and row["estimator"] == name]
            steps, errors = [row["steps"] for row in line], [row["error"] for row in line]
            style = {
                "marker": ink.MARKS[place % 7],
                "color": ink.CYCLE[place % 7],
                "linestyle": ink.DASHES[place % 3],
            }
            label = name + power("s", fitted_exponent(steps, errors))
            axes.loglog(steps, errors, label=label, **style)
        kernel = f"$\\exp(-{record.config['tau']:g} L)$"
        axes.set_title(f"{TITLES.get(surface, surface)}, $N$ = {record.config['n_nodes']}, {kernel}")
        axes.set_xlabel("steps per start $s$")
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14))
    panels[0][0].set_ylabel("relative error of the rows")
    return save_figure(figure, path)
