"""Draw surfaces in orthographic projection: points, edges and patches, coloured by a field."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import collections, colors, pyplot
from scipy.spatial import KDTree

from reproduction.common import FloatArray
from reproduction.report.style import COLOURS, DIFFERENCES

Limits = tuple[float, float]

_LOWEST, _HIGHEST = 22.0, 52.0  # degrees of elevation from which holes and twists are visible
_SHAPE = 0.82  # height of a panel over its width: spheres and rings both fill most of it
_NEIGHBOURS = 12  # neighbours that determine the normal of a surface
_COVER = 1.25  # size of a dot over the distance to its sixth neighbour: just closes the gaps between nodes


def view_from(elevation: float, azimuth: float) -> FloatArray:
    """Columns: to the right, upwards, towards the viewer; shape (3, 3)."""
    up, around = np.deg2rad(elevation), np.deg2rad(azimuth)
    right = np.array([-np.sin(around), np.cos(around), 0.0])
    towards = np.array([np.cos(up) * np.cos(around), np.cos(up) * np.sin(around), np.sin(up)])
    return np.stack([right, np.cross(towards, right), towards], axis=1)


def view_of_peak(points: FloatArray, values: FloatArray) -> FloatArray:
    """The view in which the surface faces the viewer where a field is largest, from a little above."""
    place = int(np.argmax(values))
    normal = _normals(points, [place])[0]
    outwards = points[place] - points.mean(axis=0)
    if abs(float(normal @ outwards)) < 0.5 * float(np.linalg.norm(outwards)):
        # For a strip that is flat there, or the top of a ring: from above, on the side of that place.
        return view_from(_HIGHEST, _azimuth(outwards))
    normal = normal * np.sign(normal @ outwards)
    elevation = float(np.rad2deg(np.arcsin(np.clip(normal[2], -1, 1))))
    return view_from(float(np.clip(elevation, _LOWEST, _HIGHEST)), _azimuth(normal))


def _azimuth(direction: FloatArray) -> float:
    return float(np.rad2deg(np.arctan2(direction[1], direction[0])))


def draw_field(
    axes: Any, points: FloatArray, values: FloatArray, view: FloatArray, limits: Limits, colours: str = COLOURS
) -> Any:
    """Nodes coloured by a field, from back to front; parts that face sideways are darker.

    Dots are as large as the gaps between nodes in units of the axes, so that a surface looks closed at any size of
    the picture. In vector files they are rasterised. Returns the object for a colour bar.
    """
    order = np.argsort(points @ view[:, 2])
    shades = pyplot.get_cmap(colours)(colors.Normalize(*limits)(values))
    slant = np.abs(_normals(points, range(len(points))) @ view[:, 2])
    shades[:, :3] *= (0.72 + 0.28 * slant)[:, None]  # (n, 4)
    width = _COVER * float(np.median(_gaps(points, 7)))
    flat = points @ view[:, :2]
    dots = collections.EllipseCollection(
        np.full(len(points), width), np.full(len(points), width), np.zeros(len(points)), units="xy",
        offsets=flat[order], offset_transform=axes.transData, facecolors=shades[order], linewidths=0, zorder=1,
    )  # fmt: skip
    dots.set(cmap=colours, clim=limits, rasterized=True)
    axes.add_collection(dots)
    frame(axes, flat, width)
    return dots


def draw_patches(axes: Any, corners: FloatArray, values: FloatArray, view: FloatArray, limits: Limits) -> Any:
    """Quadrilaterals with corners (m, n, 3), coloured by values at their corners (m, n), from back to front."""
    at = (slice(None, -1), slice(1, None))
    turns = [(at[0], at[0]), (at[1], at[0]), (at[1], at[1]), (at[0], at[1])]
    places = np.stack([corners[i, j].reshape(-1, 3) for i, j in turns], axis=1)  # (faces, 4, 3)
    means = np.mean([values[i, j].ravel() for i, j in turns], axis=0)
    order = np.argsort(places.mean(axis=1) @ view[:, 2])
    faces = collections.PolyCollection(
        list(places[order] @ view[:, :2]), array=means[order], cmap=COLOURS, clim=limits,
        edgecolors=(0.2, 0.2, 0.2, 0.25), linewidths=0.25, rasterized=True,
    )  # fmt: skip
    axes.add_collection(faces)
    flat = corners.reshape(-1, 3) @ view[:, :2]
    low, high = flat.min(axis=0), flat.max(axis=0)
    frame(axes, flat, 0.0, float((high - low)[1] / (high - low)[0]))
    return faces


def frame(axes: Any, flat: FloatArray, margin: float, shape: float = _SHAPE) -> None:
    """Equal scales, nothing clipped, panels of the same shape, no axes."""
    low, high = flat.min(axis=0) - margin, flat.max(axis=0) + margin
    centre, size = (low + high) / 2, high - low
    half = max(float(size[0]), float(size[1]) / shape) / 2
    axes.set(xlim=(centre[0] - half, centre[0] + half), xticks=[], yticks=[], aspect="equal")
    axes.set(ylim=(centre[1] - shape * half, centre[1] + shape * half))
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)


def common_limits(fields: Sequence[FloatArray], colours: str = COLOURS) -> Limits:
    """Limits of a colour bar for several fields: from 0, or symmetric for differences."""
    size = max(float(np.abs(values).max()) for values in fields) or 1.0
    return (-size, size) if colours == DIFFERENCES else (0.0, size)


def _normals(points: FloatArray, rows: Sequence[int]) -> FloatArray:
    """Normals of the surface at some nodes, with arbitrary signs; shape (n, 3)."""
    around = points[KDTree(points).query(points[np.asarray(rows)], min(_NEIGHBOURS, len(points)))[1]]
    around = around - around.mean(axis=1, keepdims=True)
    return np.asarray(np.linalg.eigh(np.einsum("nki,nkj->nij", around, around))[1][:, :, 0])


def _gaps(points: FloatArray, count: int) -> FloatArray:
    """Distance of each node to the last of its nearest nodes, counting itself; shape (n,)."""
    found: FloatArray = KDTree(points).query(points, min(count, len(points)))[0][:, -1]
    return found
