"""Real clouds with classes that need no download: digits, covariances of photographs, noisy scans."""

from dataclasses import dataclass

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.spatial import cKDTree
from sklearn.datasets import load_digits, load_sample_images

from manifoldrf import TriangleMesh, mesh_graph
from manifoldrf.geometry.paths import farthest_nodes, nearest_sources
from reproduction.common import FloatArray, IntArray, generator
from reproduction.mesh_data import builtin_mesh
from reproduction.spd import spd_to_vectors, upper_entries

OUTLIER = -1  # label of points that belong to no class and are not counted
_NEW = 4  # every fourth point is held out
_WINDOW, _STRIDE = 32, 10  # pixels of a window of a photograph, and between two of them
_ROWS, _COLUMNS = 3, 4  # fields of a photograph, each a class
_BLUR = 1.0  # pixels, before derivatives are taken
# Covariances of windows of sky are at least 1e-5; covariances that come from rounding to 1 / 255 are 1e-6.
_RIDGE = 1e-6
_PARTS = 12  # of a scan, each a class
_MARGIN = 0.1  # margin of the box of outliers around a scan, relative to its diagonal


@dataclass(frozen=True, eq=False)
class Cloud:
    """Points with classes.

    Attributes
    ----------
    name : str
    seen : array of shape (n, d)
    classes : int array of shape (n,)
        0, 1, ...; -1 for outliers.
    new : array of shape (q, d)
        Held-out points.
    new_classes : int array of shape (q,)
    """

    name: str
    seen: FloatArray
    classes: IntArray
    new: FloatArray
    new_classes: IntArray

    @property
    def n_classes(self) -> int:
        """Number of classes, outliers not counted."""
        return int(self.classes.max()) + 1


def _split(name: str, points: FloatArray, classes: IntArray, seed: int, largest: int | None) -> Cloud:
    """Hold out a part of the points; use at most ``largest``."""
    order = generator(seed, f"few labels {name} split").permutation(len(points))[:largest]
    new, seen = order[: len(order) // _NEW], order[len(order) // _NEW :]
    return Cloud(name, points[seen], classes[seen], points[new], classes[new])


def digits(seed: int = 0, largest: int | None = None) -> Cloud:
    """8 x 8 images of handwritten digits inside scikit-learn: 1797 points in 64 dimensions, 10 classes."""
    images, classes = load_digits(return_X_y=True)
    return _split("digits", images, classes, seed, largest)


# ----------------------------------------------------------------------------------------------------- photographs
def window_covariances() -> tuple[FloatArray, IntArray]:
    """Covariances of colours and slopes in windows of two photographs, (n, 5, 5), and their fields, (n,).

    The photographs are those inside scikit-learn, a temple and a flower; each is cut into 3 x 4 fields.
    """
    matrices, classes = [], []
    for place, photograph in enumerate(load_sample_images().images):
        channels = _channels(photograph / 255.0)
        height, width = channels.shape[0] // _ROWS, channels.shape[1] // _COLUMNS
        for number, (i, j) in enumerate(np.ndindex(_ROWS, _COLUMNS)):
            part = channels[i * height : (i + 1) * height, j * width : (j + 1) * width]
            found = _covariances(part)
            matrices.append(found)
            classes.append(np.full(len(found), place * _ROWS * _COLUMNS + number))
    return np.concatenate(matrices), np.concatenate(classes)


def _channels(photograph: FloatArray) -> FloatArray:
    """Red, green, blue, and the sizes of both slopes of their mean, (height, width, 5)."""
    smooth = gaussian_filter(photograph, (_BLUR, _BLUR, 0))
    slopes = np.gradient(smooth.mean(axis=2))
    return np.concatenate([smooth, np.abs(np.stack(slopes, axis=2))], axis=2)


def _covariances(part: FloatArray) -> FloatArray:
    """Covariances of the channels in all windows, (n, 5, 5)."""
    windows = np.lib.stride_tricks.sliding_window_view(part, (_WINDOW, _WINDOW), axis=(0, 1))[::_STRIDE, ::_STRIDE]
    values = windows.reshape(-1, part.shape[2], _WINDOW**2)  # (n, 5, pixels)
    centred = values - values.mean(axis=2, keepdims=True)
    return np.asarray(centred @ centred.swapaxes(1, 2)) / _WINDOW**2


def photographs(seed: int = 0, largest: int | None = None) -> Cloud:
    """Windows of two photographs by their covariances in the log-Euclidean metric: 15 dimensions, 24 classes."""
    matrices, classes = window_covariances()
    return _split("photographs", spd_to_vectors(matrices, ridge=_RIDGE), classes, seed, largest)


def plain_photographs(seed: int = 0, largest: int | None = None) -> Cloud:
    """The same covariances without the log-Euclidean metric: Euclidean distances of their entries."""
    matrices, classes = window_covariances()
    same = _split("photographs", upper_entries(matrices), classes, seed, largest)
    return Cloud("photographs, plain", same.seen, same.classes, same.new, same.new_classes)


# ----------------------------------------------------------------------------------------------------------- scans
def parts_of(mesh: TriangleMesh, n_parts: int = _PARTS) -> IntArray:
    """The part of every vertex, (n,): cells around farthest seeds, by shortest paths along the edges."""
    graph = mesh_graph(mesh, weights="unit")
    return nearest_sources(graph, farthest_nodes(graph, n_parts))


@dataclass(frozen=True)
class Damage:
    """Noise and outliers that are added to a scan.

    Attributes
    ----------
    noise : float
        Standard deviation in each direction, over the median distance of a point to its nearest.
    outliers : float
        Number of outliers relative to the points of the surface; they are uniform in a box around it.
    """

    noise: float = 0.0
    outliers: float = 0.0


def scan(name: str, n_points: int, damage: Damage, seed: int = 0) -> Cloud:
    """Vertices of a built-in mesh with noise and outliers, without the mesh; classes are parts of the surface.

    New points are other vertices with noise of the same size. Outliers are among the points seen.
    """
    mesh = builtin_mesh(name, n_points).mesh
    classes = parts_of(mesh)
    rng = generator(seed, f"few labels {name} damage")
    vertices = np.asarray(mesh.vertices)
    spacing = float(np.median(cKDTree(vertices).query(vertices, 2)[0][:, 1]))
    shaken = vertices + damage.noise * spacing * rng.normal(size=vertices.shape)
    clean = _split(name, shaken, classes, seed, None)
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    margin = _MARGIN * float(np.linalg.norm(high - low))
    outliers = rng.uniform(low - margin, high + margin, size=(round(damage.outliers * len(clean.seen)), 3))
    seen = np.vstack([clean.seen, outliers])
    labels = np.concatenate([clean.classes, np.full(len(outliers), OUTLIER)])
    return Cloud(name, seen, labels, clean.new, clean.new_classes)
