"""Node weights of a cloud: how much volume each point stands for, without knowing the space.

The integral of exp(-|x - y|^2 / s2) over a space of dimension d without boundary is (pi s2)^(d/2), so weights
mu with G mu = (pi s2)^(d/2) at every node are a quadrature for the volume. Near a boundary only the share m of
the Gaussian lies inside the space; mistaking it for low density would make the edge several times too heavy.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.stats import norm

from manifoldrf._validation import FloatArray

# Rounds of mu <- mu m / (G mu). Random sphere clouds gain another factor 2 from 60 to 300 rounds, but with a
# boundary the half-space model's own error is fitted from about 60 on (cylinder, t = .02: .026 to .033).
_ROUNDS_WITH_BOUNDARY = 60
_ROUNDS_CLOSED = 300
# The boundary distances settle as the weights do; late changes are small.
_REFRESH = (2, 5, 9, 14, 20, 30, 40)
# Offsets below this many widths (in two dimensions) are sampling noise, not a boundary.
_NOISE_GATE = 0.25


@dataclass(frozen=True)
class NodeWeights:
    """Weights of the nodes and what was found on the way.

    Attributes
    ----------
    values : array of shape (N,)
        mu; sums to the estimated volume.
    n_boundary : int
        Nodes whose neighbourhood is cut off by a boundary.
    """

    values: FloatArray
    n_boundary: int


def iterated_weights(gaussian: Any, mass: float, boundary: "BoundaryModel | None" = None) -> NodeWeights:
    """Weights mu with G mu = m mass, m the share of each Gaussian that lies inside the space.

    Parameters
    ----------
    gaussian : CSR array of shape (N, N)
        G, Gaussian affinities with self-loops.
    mass : float
        The full integral of one Gaussian, (pi s2)^(d/2).
    boundary : BoundaryModel, optional
        Finds m; without it the space is taken to be closed (m = 1).
    """
    share = np.ones(gaussian.shape[0])
    weights = 1.0 / np.asarray(gaussian.sum(axis=1)).ravel()
    for step in range(_ROUNDS_WITH_BOUNDARY):
        if boundary is not None and step in _REFRESH:
            share = boundary.inside_share(weights)
        weights = weights * share / (gaussian @ weights)
    n_boundary = int(np.count_nonzero(share < 1))
    if n_boundary == 0:
        for _ in range(_ROUNDS_CLOSED - _ROUNDS_WITH_BOUNDARY):
            weights = weights / (gaussian @ weights)
    return NodeWeights(weights * mass, n_boundary)


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
    """

    points: FloatArray
    wide: Any
    s2: float
    frames: FloatArray

    @classmethod
    def fit(cls, points: FloatArray, wide: Any, s2: float, dim: int) -> "BoundaryModel":
        """Tangent frames by local principal components of density-corrected neighbourhoods."""
        centred = points - points.mean(axis=0)  # second moments lose digits far from the origin
        weights = 1.0 / np.asarray(wide.sum(axis=1)).ravel()
        n, d = points.shape
        averaging = _row_stochastic(wide, weights)
        means = averaging @ centred  # (N, d)
        products = (centred[:, :, None] * centred[:, None, :]).reshape(n, d * d)
        second = (averaging @ products).reshape(n, d, d)
        covariance = second - means[:, :, None] * means[:, None, :]  # (N, d, d)
        frames = np.linalg.eigh(covariance)[1][:, :, -dim:]
        return cls(centred, wide, s2, np.ascontiguousarray(frames))

    def inside_share(self, weights: FloatArray) -> FloatArray:
        """Share of each step Gaussian inside the space, shape (N,), in [1/2, 1]."""
        offsets = _row_stochastic(self.wide, weights) @ self.points - self.points  # (N, d)
        tangential = np.einsum("ndk,nd->nk", self.frames, offsets)
        width = np.sqrt(self.s2)  # standard deviation of exp(-r^2 / (2 s2))
        relative = np.linalg.norm(tangential, axis=1) / width
        gate = _NOISE_GATE * np.sqrt(self.frames.shape[2] / 2)  # noise grows with the number of axes
        distance = np.where(relative < gate, np.inf, width * _half_space_distance(relative))
        return np.asarray(norm.cdf(distance / np.sqrt(self.s2 / 2)))


def _row_stochastic(gaussian: Any, weights: FloatArray) -> Any:
    """Weighted affinities with rows summing to one."""
    weighted = gaussian @ sparse.diags_array(weights)
    return sparse.diags_array(1.0 / np.asarray(weighted.sum(axis=1)).ravel()) @ weighted


_GRID = np.linspace(0.0, 8.0, 4001)
_OFFSET = np.exp(-(_GRID**2) / 2) / np.sqrt(2 * np.pi) / norm.cdf(_GRID)  # falls from .798 to 0


def _half_space_distance(relative_offset: FloatArray) -> FloatArray:
    """Distance b >= 0 to a flat boundary, in widths, from the centroid's offset in widths."""
    return np.interp(relative_offset, _OFFSET[::-1], _GRID[::-1])
