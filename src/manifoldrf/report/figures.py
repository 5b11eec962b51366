"""Figures drawn from records."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from manifoldrf._files import as_path, atomic_path
from manifoldrf._optional import require
from manifoldrf._validation import FloatArray
from manifoldrf.experiments.record import Record

_VIEW = {"elev": 28.0, "azim": 22.0}
_TITLES = {"mobius": "Möbius strip"}
_DIFFERENCES = "RdBu"  # white where two kernels agree
_COLOURS = "magma_r"  # light where the kernel is small; readable without colour vision and in print


def draw_surface_graphs(record: Record, path: str | os.PathLike[str]) -> Path:
    """Four surfaces: above the edges of the nearest-neighbour graph, below the heat kernel of one node.

    The format follows the suffix of the path (png, pdf or svg).
    """
    pyplot = require("matplotlib.pyplot", "viz")
    target = as_path(path)
    rows = {row["surface"]: row for row in record.tables["surfaces"]}
    figure = pyplot.figure(figsize=(15, 7.4), layout="constrained")
    for column, (name, row) in enumerate(rows.items()):
        points = record.arrays[f"{name}_points"]
        above = figure.add_subplot(2, len(rows), 1 + column, projection="3d")
        _draw_edges(above, points, record.arrays[f"{name}_edges"])
        _frame(above, points, f"{_TITLES.get(name, name)}: {row['neighbours']} neighbours, {row['edges']} edges")
        below = figure.add_subplot(2, len(rows), 1 + len(rows) + column, projection="3d")
        drawn = _draw_field(below, points, record.arrays[f"{name}_kernel"])
        _draw_edges(below, points, record.arrays[f"{name}_edges"], strength=0.5)  # shows the shape
        _frame(below, points, f"heat graph: kernel at $t$ = {record.config['t']:g}, error {row['error']:.4f}")
        bar = figure.colorbar(drawn, ax=below, shrink=0.6, pad=0.02)
        bar.set_label("$K_t(x, \\cdot)$, per unit area")
    with atomic_path(target) as temporary:
        figure.savefig(temporary, dpi=150)
    pyplot.close(figure)
    return target


def draw_teachers(record: Record, path: str | os.PathLike[str]) -> Path:
    """Error of signature rows against steps per start, one panel a surface, one line an estimator."""
    pyplot = require("matplotlib.pyplot", "viz")
    target = as_path(path)
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
        axes.set_title(f"{_TITLES.get(surface, surface)}, $N$ = {record.config['n_nodes']}, {kernel}", fontsize=11)
        axes.set_xlabel("steps per start")
        axes.grid(visible=True, which="major", alpha=0.3)
    panels[0][0].set_ylabel("relative error of the rows")
    panels[0][-1].legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, fontsize=9)
    with atomic_path(target) as temporary:
        figure.savefig(temporary, dpi=150)
    pyplot.close(figure)
    return target


def draw_features(record: Record, path: str | os.PathLike[str]) -> Path:
    """Four surfaces: the field g(x, .) of one point, its kernel by features, and the difference to the graph's."""
    pyplot = require("matplotlib.pyplot", "viz")
    target = as_path(path)
    names = list(dict.fromkeys(row["surface"] for row in record.tables["features"]))
    figure = pyplot.figure(figsize=(15, 10.6), layout="constrained")
    for column, name in enumerate(names):
        points = record.arrays[f"{name}_points"]
        kernel, exact = record.arrays[f"{name}_kernel"], record.arrays[f"{name}_exact"]
        error = float(np.linalg.norm(kernel - exact) / np.linalg.norm(exact))
        title = _TITLES.get(name, name)
        sizes = [row["features"] for row in record.tables["features"] if row["surface"] == name]
        panels = [
            (record.arrays[f"{name}_field"], f"{title}: field $g(x, \\cdot)$", _COLOURS),
            (kernel, f"kernel of {sizes[-2]} features $\\phi(x) \\cdot \\phi(\\cdot)$", _COLOURS),
            (kernel - exact, f"minus that of the graph: {100 * error:.2g} % of it", _DIFFERENCES),
        ]
        for row, (values, text, colours) in enumerate(panels):
            axes = figure.add_subplot(3, len(names), 1 + column + row * len(names), projection="3d")
            drawn = _draw_field(axes, points, values, colours)
            _frame(axes, points, text)
            figure.colorbar(drawn, ax=axes, shrink=0.6, pad=0.02)
    with atomic_path(target) as temporary:
        figure.savefig(temporary, dpi=130)
    pyplot.close(figure)
    return target


def _draw_edges(axes: Any, points: FloatArray, edges: Any, strength: float = 1.0) -> None:
    """Edges that face the viewer dark, those behind light."""
    art3d = require("mpl_toolkits.mplot3d.art3d", "viz")
    depth = points[edges].mean(axis=1) @ _towards_viewer()
    shade = (depth - depth.min()) / max(float(np.ptp(depth)), 1e-12)
    colours = np.zeros((len(edges), 4))
    colours[:, 2] = 0.35
    density = min(1.0, 16_000 / len(edges))  # many edges, fainter lines: else the surface is a black blot
    colours[:, 3] = strength * density * (0.06 + 0.6 * shade**2)
    axes.add_collection3d(art3d.Line3DCollection(points[edges], colors=colours, linewidths=0.35))


def _draw_field(axes: Any, points: FloatArray, values: FloatArray, colours: str = _COLOURS) -> Any:
    """Nodes coloured by a field, from back to front and large enough to hide what is behind."""
    order = np.argsort(points @ _towards_viewer())
    size = float(np.abs(values).max())
    limits = {"vmin": -size, "vmax": size} if colours == _DIFFERENCES else {}
    style = {"cmap": colours, "depthshade": False, "linewidths": 0, "s": _dot_size(points)} | limits
    return axes.scatter(*points[order].T, c=values[order], **style)


def _dot_size(points: FloatArray) -> float:
    """Area of a dot, in square points, that closes the gaps between the nodes of a closed surface."""
    return 180_000 / len(points)


def _frame(axes: Any, points: FloatArray, title: str) -> None:
    """Equal scales, no clutter."""
    low, high = points.min(axis=0), points.max(axis=0)
    centre, half = (low + high) / 2, float((high - low).max()) / 2
    axes.set(xlim=_around(centre[0], half), ylim=_around(centre[1], half), zlim=_around(centre[2], half))
    axes.set_box_aspect((1, 1, 1), zoom=1.35)
    axes.view_init(**_VIEW)
    axes.set_axis_off()
    axes.set_title(title, fontsize=10)


def _around(centre: float, half: float) -> tuple[float, float]:
    return float(centre - half), float(centre + half)


def _towards_viewer() -> FloatArray:
    """Direction from the origin to the viewer."""
    elevation, azimuth = np.deg2rad(_VIEW["elev"]), np.deg2rad(_VIEW["azim"])
    flat = np.cos(elevation)
    return np.array([flat * np.cos(azimuth), flat * np.sin(azimuth), np.sin(elevation)])
