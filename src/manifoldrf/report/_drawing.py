"""What all figures share: how they are saved, and how points and edges in space are drawn."""

import os
from pathlib import Path
from typing import Any

import numpy as np

from manifoldrf._files import as_path, atomic_path
from manifoldrf._optional import require
from manifoldrf._validation import FloatArray

VIEW = {"elev": 28.0, "azim": 22.0}
TITLES = {"mobius": "Möbius strip"}
DIFFERENCES = "RdBu"  # white where two kernels agree
COLOURS = "magma_r"  # light where the kernel is small; readable without colour vision and in print


def save_figure(figure: Any, path: str | os.PathLike[str], dpi: int = 150) -> Path:
    """Write a figure in the format of the suffix (png, pdf or svg), close it and return the path.

    The file is the old one or the new one, never half of it; the figure is closed even if it cannot be written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from matplotlib import pyplot
    >>> with TemporaryDirectory() as folder:
    ...     save_figure(pyplot.figure(), Path(folder) / "empty.png").name
    'empty.png'
    """
    pyplot = require("matplotlib.pyplot", "viz")
    try:
        target = as_path(path)
        with atomic_path(target) as temporary:
            figure.savefig(temporary, dpi=dpi)
    finally:
        pyplot.close(figure)
    return target


def legend_beside(figure: Any, handles: Any, labels: Any) -> None:
    """One legend for all panels, to the right of them."""
    figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=9)


def draw_edges(axes: Any, points: FloatArray, edges: Any, strength: float = 1.0) -> None:
    """Edges that face the viewer dark, those behind light."""
    art3d = require("mpl_toolkits.mplot3d.art3d", "viz")
    depth = points[edges].mean(axis=1) @ towards_viewer()
    shade = (depth - depth.min()) / max(float(np.ptp(depth)), 1e-12)
    colours = np.zeros((len(edges), 4))
    colours[:, 2] = 0.35
    density = min(1.0, 16_000 / len(edges))  # many edges, fainter lines: else the surface is a black blot
    colours[:, 3] = strength * density * (0.06 + 0.6 * shade**2)
    axes.add_collection3d(art3d.Line3DCollection(points[edges], colors=colours, linewidths=0.35))


def draw_field(
    axes: Any, points: FloatArray, values: FloatArray, colours: str = COLOURS, top: float | None = None
) -> Any:
    """Nodes coloured by a field, from back to front and large enough to hide what is behind.

    With ``top`` colours go from 0 to it, so that pictures can be compared.
    """
    order = np.argsort(points @ towards_viewer())
    size = float(np.abs(values).max())
    limits = {} if top is None else {"vmin": 0.0, "vmax": top}
    if colours == DIFFERENCES:
        limits = {"vmin": -size, "vmax": size}
    style = {"cmap": colours, "depthshade": False, "linewidths": 0, "s": _dot_size(points)} | limits
    return axes.scatter(*points[order].T, c=values[order], **style)


def _dot_size(points: FloatArray) -> float:
    """Area of a dot, in square points, that closes the gaps between the nodes of a closed surface."""
    return 180_000 / len(points)


def frame(axes: Any, points: FloatArray, title: str) -> None:
    """Equal scales around the points, the common view, no clutter."""
    low, high = points.min(axis=0), points.max(axis=0)
    centre, half = (low + high) / 2, float((high - low).max()) / 2
    axes.set(xlim=_around(centre[0], half), ylim=_around(centre[1], half), zlim=_around(centre[2], half))
    axes.set_box_aspect((1, 1, 1), zoom=1.35)
    axes.view_init(**VIEW)
    axes.set_axis_off()
    axes.set_title(title, fontsize=10)


def _around(centre: float, half: float) -> tuple[float, float]:
    return float(centre - half), float(centre + half)


def towards_viewer() -> FloatArray:
    """Direction from the origin to the viewer."""
    elevation, azimuth = np.deg2rad(VIEW["elev"]), np.deg2rad(VIEW["azim"])
    flat = np.cos(elevation)
    return np.array([flat * np.cos(azimuth), flat * np.sin(azimuth), np.sin(elevation)])
