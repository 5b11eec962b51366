"""The pictures at the top of the tutorials, drawn from what the code of the pages computes.

Run ``python benchmarks/tutorial_pictures.py``; it writes docs/images/tutorial_table.png, tutorial_scan.png and
tutorial_graph.png in about ten seconds.
"""

import contextlib
import io
import os
import re
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from matplotlib.tri import Triangulation

DOCS = Path(__file__).resolve().parents[1] / "docs"
MARK = "#009E73"
SIDES = np.array(["#E69F00", "#56B4E9"])


def names_of(page):
    """Run the Python blocks of a page, and return its variables."""
    text = (DOCS / "tutorials" / f"{page}.md").read_text(encoding="utf-8")
    variables = {}
    with TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()), contextlib.chdir(folder):
        exec("\n".join(re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)), variables)
    return variables


def draw_table(page):
    """Two sensors, coloured by the true and by two predicted wears."""
    sensors, wear, others = page["sensors"], page["wear"], page["others"]
    svm = page["svm"].predict(sensors[others])
    figure, panels = plt.subplots(1, 3, figsize=(12, 4.1), layout="constrained", sharex=True, sharey=True)
    titles = (
        "wear of all rows; rings: measured",
        f"support vector machine: {page['explained'](svm):.2f} explained",
        f"along the table: {page['explained'](page['mean']):.2f} explained",
    )
    fields = ((np.arange(len(wear)), wear), (others, svm), (others, page["mean"]))
    for axes, title, (rows, values) in zip(panels, titles, fields, strict=True):
        shown = axes.scatter(*sensors[rows, :2].T, c=values, s=14, cmap="viridis", vmin=wear.min(), vmax=wear.max())
        axes.set_title(title, fontsize=11)
        axes.set_xlabel("sensor 1")
        axes.set_aspect("equal")
    panels[0].set_ylabel("sensor 2")
    panels[0].scatter(*sensors[page["measured"], :2].T, s=70, facecolors="none", edgecolors="black", linewidths=1.2)
    figure.colorbar(shown, ax=panels, label="wear", shrink=0.9)
    return figure


def draw_scan(page):
    """The roll, its unrolled scan, and the errors of two ways to fill it in."""
    pattern, sheet = page["pattern"], page["sheet"]
    figure = plt.figure(figsize=(12, 5.2), layout="constrained")
    left, right = figure.subfigures(1, 2, width_ratios=(2, 3))
    colours = plt.get_cmap("RdBu").with_extremes(bad="0.6")
    limit = np.abs(pattern).max()
    roll = left.add_subplot(projection="3d", computed_zorder=False)
    vertices = np.asarray(sheet.vertices)
    shades = colours(plt.Normalize(-limit, limit)(np.ma.masked_invalid(page["scan"][sheet.faces].mean(axis=1))))
    drawn = roll.plot_trisurf(*vertices[:, :2].T, vertices[:, 2], triangles=sheet.faces, linewidth=0.2)
    drawn.set_facecolor(shades)
    drawn.set_edgecolor(shades)
    roll.view_init(elev=38, azim=-70)
    roll.set_box_aspect((1, 1, 1.1), zoom=1.25)
    roll.set_axis_off()
    left.suptitle("a rolled sheet; grey: missing", fontsize=11)
    panels = right.subplots(3, 1, sharex=True)
    flat = Triangulation(4 * page["u"], page["v"], sheet.faces)
    worst = 0.5 * pattern.std()
    errors = {"filled in along the sheet": page["filled"], "thin-plate spline through space": page["through_space"]}
    fields = {"the scan, unrolled": (page["scan"], colours, -limit, limit)}
    for name, values in errors.items():
        title = f"error, {name}: {page['error'](values):.2f} of the spread of the pattern"
        fields[title] = np.abs(values - pattern), "magma_r", 0.0, worst
    for axes, (title, (values, palette, low, high)) in zip(panels, fields.items(), strict=True):
        faces = np.ma.masked_invalid(values[flat.triangles].mean(axis=1))
        shown = axes.tripcolor(flat, facecolors=faces, cmap=palette, vmin=low, vmax=high)
        axes.set_title(title, fontsize=11)
        axes.set_aspect("equal")
        axes.set_axis_off()
        right.colorbar(shown, ax=axes, aspect=8, pad=0.01)
    return figure


def draw_graph(page):
    """The club with the sides that were found, and bars of all methods."""
    club, sides, found = page["club"], page["sides"], page["found"]
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4), layout="constrained")
    places = nx.spring_layout(club, seed=3)
    nx.draw_networkx_edges(club, places, ax=left, alpha=0.25)
    rings = np.where(np.isin(np.arange(len(sides)), page["known"]), 3.0, 0.0)
    nx.draw_networkx_nodes(
        club, places, ax=left, node_color=SIDES[found], node_size=170, linewidths=rings, edgecolors="black"
    )
    for member in np.flatnonzero(found != sides):
        left.plot(*places[member], "x", color="crimson", ms=14, mew=3)
    left.set_title("sides found from two labels (rings); the cross is a mistake", fontsize=11)
    left.set_axis_off()
    cases = {"karate club, 1 label a side": page["in_club"], "4 random groups, 3 labels each": page["in_groups"]}
    for k, (case, shares) in enumerate(cases.items()):
        rows = np.arange(len(shares)) - 0.2 + 0.4 * k
        bars = right.barh(rows, list(shares.values()), height=0.38, label=case, color=(MARK, "0.65")[k])
        right.bar_label(bars, fmt="%.2f", padding=3, fontsize=9)
    right.set_yticks(range(len(shares)), list(shares))
    right.invert_yaxis()
    right.set_xlim(0, 1.08)
    right.set_xlabel("share of right labels")
    right.legend(loc="upper center", bbox_to_anchor=(0.4, 1.13), ncols=2, frameon=False)
    right.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    os.environ.setdefault("MPLBACKEND", "Agg")
    for name, draw in (("table", draw_table), ("scan", draw_scan), ("graph", draw_graph)):
        draw(names_of(name)).savefig(DOCS / "images" / f"tutorial_{name}.png", dpi=110)
