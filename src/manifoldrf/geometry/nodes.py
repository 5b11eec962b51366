"""The nodes of a space, as heat graphs use them."""

import abc
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2

from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.neighbors import Pairs

# Share of a Gaussian step beyond the reach of a node: distance^2 > 9 s2 on surfaces. A reach of 6 s2 costs a
# factor 10 in accuracy on the sphere; a reach of 16 s2 gains nothing.
_TAIL = float(np.exp(-9.0))


def step_reach(s2: float, dim: int) -> float:
    """Radius that holds all but a share e^-9 of a Gaussian step."""
    return float(np.sqrt(s2 / 2 * chi2.isf(_TAIL, dim)))


class FusedSteps(NamedTuple):
    """Steps along straight lines, bent by curvature, to nodes and images."""

    search: Any  # NeighborSearch over nodes and images
    node_of: IntArray  # (n + g,) the node of each
    factors: FloatArray  # (n + g,) Sinkhorn factors times the weights of images
    frames: FloatArray  # (n, r, dim), or empty in flat space
    ricci: FloatArray  # (n, dim, dim), or empty


class AbstractNodes(abc.ABC):
    """Nodes laid out on a space: where they are, and how Gaussian steps exp(-d^2 / s2) go between them.

    Attributes
    ----------
    points : array of shape (n, D)
    dim : int
        Of the space.
    volumes : array of shape (n,) or None
        The volume that each node stands for, if it is known; else it follows from the steps.
    """

    points: FloatArray
    dim: int
    volumes: FloatArray | None
    surface: Any = None
    is_even = True  # laid out, not as they came

    def bandwidth(self, step_time: float) -> float:
        """s2 of the Gaussian whose step lasts so long, although it is cut off at its reach."""
        cut = chi2.isf(_TAIL, self.dim)
        return float(4 * step_time * chi2.cdf(cut, self.dim) / chi2.cdf(cut, self.dim + 2))

    def flat_mass(self, s2: float) -> float:
        """Integral of a step over flat space without edge."""
        return float((np.pi * s2) ** (self.dim / 2) * (1 - _TAIL))

    def reach(self, s2: float) -> float:
        """How far a step goes."""
        return step_reach(s2, self.dim)

    @abc.abstractmethod
    def mass(self, s2: float) -> FloatArray:
        """Integral of a Gaussian step over the space, shape (n,)."""

    @abc.abstractmethod
    def pairs(self, radius: float, s2: float, n_jobs: int = 1) -> Pairs:
        """Pairs of nodes within a radius, each node with itself, and *squared* lengths of steps between them."""

    @abc.abstractmethod
    def pairs_from(self, z: FloatArray, radius: float, s2: float, n_jobs: int = 1) -> Pairs:
        """The same from points of the space to nodes."""

    def place(self, z: FloatArray, n_jobs: int = 1) -> FloatArray:
        """Where points are on the space: noisy ones are moved."""
        return z if self.surface is None else self.surface.project(z, n_jobs)

    def inside(self, z: FloatArray) -> FloatArray:
        """Points in the coordinates that steps are computed in."""
        return z

    def fused(self, factors: FloatArray) -> "FusedSteps | None":
        """Arrays of steps along straight lines; None where steps need more."""
        del factors
        return None

    @property
    def metric(self) -> AbstractManifold | None:
        """The manifold that distances are measured along, if any."""
        return None

    def mesh(self) -> TriangleMesh | None:
        """The mesh that the nodes are on, if any."""
        return None
