"""Figures drawn from records."""

import os
from pathlib import Path

from manifoldrf._optional import require
from manifoldrf.experiments.record import Record
from manifoldrf.report._drawing import TITLES, draw_edges, draw_field, frame, save_figure


def draw_surface_graphs(record: Record, path: str | os.PathLike[str]) -> Path:
    """Four surfaces: above the edges of the nearest-neighbour graph, below the heat kernel of one node.

    The format follows the suffix of the path (png, pdf or svg).
    """
    pyplot = require("matplotlib.pyplot", "viz")
    rows = {row["surface"]: row for row in record.tables["surfaces"]}
    figure = pyplot.figure(figsize=(15, 7.4), layout="constrained")
    for column, (name, row) in enumerate(rows.items()):
        points = record.arrays[f"{name}_points"]
        above = figure.add_subplot(2, len(rows), 1 + column, projection="3d")
        draw_edges(above, points, record.arrays[f"{name}_edges"])
        frame(above, points, f"{TITLES.get(name, name)}: {row['neighbours']} neighbours, {row['edges']} edges")
        below = figure.add_subplot(2, len(rows), 1 + len(rows) + column, projection="3d")
        drawn = draw_field(below, points, record.arrays[f"{name}_kernel"])
        draw_edges(below, points, record.arrays[f"{name}_edges"], strength=0.5)  # shows the shape
        frame(below, points, f"heat graph: kernel at $t$ = {record.config['t']:g}, error {row['error']:.4f}")
        bar = figure.colorbar(drawn, ax=below, shrink=0.6, pad=0.02)
        bar.set_label("$K_t(x, \\cdot)$, per unit area")
    return save_figure(figure, path)


def draw_teachers(record: Record, path: str | os.PathLike[str]) -> Path:
    """Error of signature rows against steps per start, one panel a surface, one line an estimator."""
    pyplot = require("matplotlib.pyplot", "viz")
    table = record.tables["budgets"]
    surfaces = list(dict.fromkeys(row["surface"] for row in table))
    figure, panels = pyplot.subplots(
        1, len(surfaces), figsize=(5.6 * len(surfaces), 4.6), sharey=True, squeeze=False, layout="constrained"
    )
    for axes, surface in zip(panels[0], surfaces, strict=True):
        walked = [row for row in table if row["surface"] == surface]
        for place, name in enumerate(dict.fromkeys(row["estimator"] for row in walked)):
            line = [row for row in walked if row["estimator"] == name]
            style = {"marker": "osD^v<>"[place % 7], "color": f"C{place}", "linewidth": 1.4, "markersize": 5}
            axes.loglog([row["steps"] for row in line], [row["error"] for row in line], label=name, **style)
        kernel = f"$\\exp(-{record.config['tau']:g} L)$"
        axes.set_title(f"{TITLES.get(surface, surface)}, $N$ = {record.config['n_nodes']}, {kernel}", fontsize=11)
        axes.set_xlabel("steps per start")
        axes.grid(visible=True, which="major", alpha=0.3)
    panels[0][0].set_ylabel("relative error of the rows")
    panels[0][-1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, fontsize=9)
    return save_figure(figure, path)
