"""Node weights of a cloud: how much volume each point stands for, without knowing the space.

The integral of exp(-|x - y|^2 / s2) over a space of dimension d without boundary is (pi s2)^(d/2), so weights
mu with G mu = (pi s2)^(d/2) at every node are a quadrature for the volume. Near a boundary only the share m of
the Gaussian lies inside the space; mistaking it for low density would make the edge several times too heavy.
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import norm

from manifoldrf._threads import map_threads
from manifoldrf._validation import FloatArray
from manifoldrf.geometry._sparse import times
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.neighbors import distance_to_boundary

# Rounds of mu <- mu m / (G mu). Random sphere clouds gain another factor 2 from 60 to 300 rounds, but with an
# estimated boundary the half-space model's own error is fitted from about 60 on (cylinder, t = .02: .026 to .033).
_ROUNDS_WITH_BOUNDARY = 60
_ROUNDS_CLOSED = 240  # more, where none was found
# Vertex areas are a good start: in 100 rounds an even sphere mesh goes from .005 to .0007, the cortex from .097 to
# .075 (t = 30). With a boundary the half-space model is fitted early: a random cylinder mesh is best after 5 to 20.
_ROUNDS_CLOSED_MESH, _ROUNDS_OPEN_MESH = 100, 20
# The boundary distances settle as the weights do; late changes are small.
_REFRESH = (2, 5, 9, 14, 20, 30, 40)
_FEW_AXES = 16  # up to here local covariances are formed for all nodes at once
_MATRICES_AT_ONCE = 8192  # decomposed by one task
_MOST_NEIGHBORS = 128  # looked at for the tangent frame of one node among many axes
# Offsets below this many widths (in two dimensions) are sampling noise, not a boundary.
_NOISE_GATE = 0.25


def cloud_weights(gaussian: Any, mass: float, boundary: "BoundaryModel | None", n_jobs: int = 1) -> FloatArray:
    """Weights mu, shape (N,), with G mu = m mass; they sum to the estimated volume.

    Parameters
    ----------
    gaussian : CSR array of shape (N, N)
        G, Gaussian affinities with self-loops.
    mass : float
        The full integral of one Gaussian, (pi s2)^(d/2).
    boundary : BoundaryModel, optional
        Finds the share m of each Gaussian that lies inside; without it the space is taken to be closed (m = 1).
    """
    share = np.ones(gaussian.shape[0])
    weights = 1.0 / times(gaussian, np.ones(len(share)), n_jobs)
    if boundary is not None:
        for begin, end in itertools.pairwise((0, *_REFRESH, _ROUNDS_WITH_BOUNDARY)):
            weights = _correct(gaussian, weights, share, end - begin, n_jobs)
            if end in _REFRESH:
                share = boundary.inside_share(weights)
    if (share == 1).all():
        weights = _correct(gaussian, weights, share, _ROUNDS_CLOSED, n_jobs)
    return weights * mass


def surface_weights(mesh: TriangleMesh, gaussian: Any, s2: float, n_jobs: int = 1) -> FloatArray:
    """Weights of a mesh's vertices, shape (N,): its areas, evened out; they sum to the area of the mesh.

    The boundary of a mesh is known, and so is the share of each Gaussian inside it: that of a half-space.
    """
    distance = distance_to_boundary(mesh)
    share = norm.cdf(distance / np.sqrt(s2 / 2))
    areas = mesh.vertex_areas()
    rounds = _ROUNDS_CLOSED_MESH if np.isinf(distance).all() else _ROUNDS_OPEN_MESH
    weights = _correct(gaussian, areas, share, rounds, n_jobs)
    return np.asarray(weights * (areas.sum() / weights.sum()))


def _correct(gaussian: Any, weights: FloatArray, share: FloatArray, rounds: int, n_jobs: int) -> FloatArray:
    """Rounds of mu <- mu m / (G mu); nodes without weight stay without."""
    for _ in range(rounds):
        flow = times(gaussian, weights, n_jobs)
        weights = weights * np.divide(share, flow, out=np.zeros_like(flow), where=flow > 0)
    return weights


@dataclass(frozen=True, eq=False)
class BoundaryModel:
    """Share of each node's Gaussian inside the space, by a half-space model of the boundary.

    In the tangent plane the centroid of a neighbourhood of width w lies off the node by w pdf(b/w) / cdf(b/w)
    if a flat boundary stands at distance b; inverting this gives b, and the share of the (narrower) step
    Gaussian is cdf(b / s).

    Attributes
    ----------
    points : array of shape (N, d)
    wide : CSR array of shape (N, N)
        Gaussian affinities at twice the bandwidth of the step: quieter centroids.
    s2 : float
        Bandwidth of one step.
    frames : array of shape (N, d, dim)
        Orthonormal tangent frames.
    n_jobs : int
        Threads.
    """

    points: FloatArray
    wide: Any
    s2: float
    frames: FloatArray
    n_jobs: int = 1

    @classmethod
    def fit(cls, points: FloatArray, wide: Any, s2: float, dim: int, n_jobs: int = 1) -> "BoundaryModel":
        """Tangent frames by local principal components of density-corrected neighbourhoods."""
        centred = points - points.mean(axis=0)  # second moments lose digits far from the origin
        evenly = 1.0 / times(wide, np.ones(len(points)), n_jobs)
        find_frames = _frames_by_moments if points.shape[1] <= _FEW_AXES else _frames_by_offsets
        return cls(centred, wide, s2, find_frames(centred, wide, evenly, dim, n_jobs), n_jobs)

    def inside_share(self, weights: FloatArray) -> FloatArray:
        """Share of each step Gaussian inside the space, shape (N,), in [1/2, 1]."""
        offsets = _means(self.wide, weights, self.points, self.n_jobs) - self.points  # (N, d)
        tangential = np.einsum("ndk,nd->nk", self.frames, offsets)
        width = np.sqrt(self.s2)  # standard deviation of exp(-r^2 / (2 s2))
        relative = np.linalg.norm(tangential, axis=1) / width
        gate = _NOISE_GATE * np.sqrt(self.frames.shape[2] / 2)  # noise grows with the number of axes
        distance = np.where(relative < gate, np.inf, width * _half_space_distance(relative))
        return np.asarray(norm.cdf(distance / np.sqrt(self.s2 / 2)))


def _means(gaussian: Any, weights: FloatArray, table: FloatArray, n_jobs: int) -> FloatArray:
    """Means of a table (N, c) over the neighbourhoods of all nodes, by affinity times weight."""
    sums = times(gaussian, np.column_stack([weights, weights[:, None] * table]), n_jobs)
    return np.asarray(sums[:, 1:] / sums[:, :1])


def _frames_by_moments(points: FloatArray, wide: Any, weights: FloatArray, dim: int, n_jobs: int) -> FloatArray:
    """Leading eigenvectors of all local covariances at once: O(N d^2) memory, for few axes."""
    n, d = points.shape
    first, second = np.triu_indices(d)
    moments = _means(wide, weights, np.hstack([points, points[:, first] * points[:, second]]), n_jobs)
    means = moments[:, :d]
    covariance = np.zeros((n, d, d))
    covariance[:, first, second] = moments[:, d:] - means[:, first] * means[:, second]
    covariance[:, second, first] = covariance[:, first, second]
    blocks = np.array_split(covariance, max(1, n // _MATRICES_AT_ONCE))
    vectors = map_threads(lambda block: np.linalg.eigh(block)[1][:, :, -dim:], blocks, n_jobs)
    return np.ascontiguousarray(np.concatenate(vectors))  # (N, d, dim)


def _frames_by_offsets(points: FloatArray, wide: Any, weights: FloatArray, dim: int, n_jobs: int) -> FloatArray:
    """The same for many axes, one node at a time, from its strongest neighbours."""
    frames = np.zeros((*points.shape, dim))

    def fill(nodes: Any) -> None:
        for node in nodes:
            entries = slice(wide.indptr[node], wide.indptr[node + 1])
            columns = wide.indices[entries]
            shares = wide.data[entries] * weights[columns]
            strongest = np.argsort(-shares, kind="stable")[:_MOST_NEIGHBORS]
            shares, around = shares[strongest], points[columns[strongest]]
            offsets = (around - shares @ around / shares.sum()) * np.sqrt(shares / shares.sum())[:, None]  # (k, d)
            axes = np.linalg.svd(offsets, full_matrices=False)[2][:dim]
            frames[node, :, : len(axes)] = axes.T  # a node with few neighbours has few axes

    map_threads(fill, np.array_split(np.arange(len(points)), max(1, len(points) // _MATRICES_AT_ONCE)), n_jobs)
    return frames


_GRID = np.linspace(0.0, 8.0, 4001)
_OFFSET = np.exp(-(_GRID**2) / 2) / np.sqrt(2 * np.pi) / norm.cdf(_GRID)  # falls from .798 to 0


def _half_space_distance(relative_offset: FloatArray) -> FloatArray:
    """Distance b >= 0 to a flat boundary, in widths, from the centroid's offset in widths."""
    return np.interp(relative_offset, _OFFSET[::-1], _GRID[::-1])
