"""Spaces: what a graph needs to know about a cloud, a curve, a mesh or a named manifold.

A space lays out *nodes*, as evenly as possible, at the spacing that a kernel needs. Nodes provide the Gaussian
steps between them and from new points to them: along the space, with the effects of edges and curvature.
"""

import abc
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import chi2

from manifoldrf._codec import stored
from manifoldrf._validation import FloatArray, IntArray, check_integer, reject
from manifoldrf.geometry.cleaning import CleanCloud
from manifoldrf.geometry.csr import check_amounts, check_arrays
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.neighbors import NeighborSearch, Sampling, along

# Share of a Gaussian step beyond the reach of a node: distance^2 > 9 s2 on surfaces. A reach of 6 s2 costs a
# factor 10 in accuracy on the sphere; a reach of 16 s2 gains nothing.
_TAIL = float(np.exp(-9.0))
# Nodes in the footprint (pi s2)^(d/2) of a step: 2.45^d. With 6 in three dimensions S^2 x S^1 was .084 off, with
# 2.45^3 .0137.
_PER_AXIS = 2.45
ENOUGH_NODES, MOST_NODES = 1500, 20_000  # more are laid out only if curvature or a short time asks for them
_FEWEST_STEPS, _MOST_STEPS = 12, 100


def step_reach(s2: float, dim: int, tail: float = _TAIL) -> float:
    """Radius that holds all but a small share of a Gaussian step."""
    return float(np.sqrt(s2 / 2 * chi2.isf(tail, dim)))


class Steps(NamedTuple):
    """Pairs of a point and a node that a step joins, sorted by point, and the squared lengths of the steps.

    A node may occur several times, because its mirror images beyond an edge count as the node.
    """

    rows: IntArray
    nodes: IntArray
    squares: FloatArray


class FusedSteps(NamedTuple):
    """Steps along straight lines, bent by curvature, to nodes and images."""

    search: Any  # NeighborSearch over nodes and images
    node_of: IntArray  # (n + g,) the node of each
    factors: FloatArray  # (n + g,) Sinkhorn factor of each
    frames: FloatArray  # (n, r, dim), or empty in flat space
    ricci: FloatArray  # (n, dim, dim), or empty


class AbstractNodes(abc.ABC):
    """Nodes laid out on a space: their positions, and the Gaussian steps exp(-d^2 / s2) between them.

    Attributes
    ----------
    points : array of shape (n, D)
    dim : int
        Of the space.
    volumes : array of shape (n,) or None
        Volume of each node, if known; otherwise it follows from the steps.
    surface : LocalSurface or None
        The surface onto which noisy points are moved; only nodes of clouds have one.
    origin, axes : arrays of shape (D,) and (D, r)
        Coordinates of the cloud, in which the surface is.
    mesh : TriangleMesh or None
        The mesh that holds the nodes.
    metric : AbstractManifold or None
        The manifold along which distances are measured.
    is_even : bool
        Whether nodes were laid out evenly, or are the given points.
    tail : float
        Share of a step beyond its reach.
    """

    points: FloatArray
    dim: int
    volumes: FloatArray | None
    surface: Any = None
    origin: FloatArray
    axes: FloatArray
    mesh: TriangleMesh | None = None
    metric: AbstractManifold | None = None
    is_even = True
    tail = _TAIL

    def bandwidth(self, step_time: float) -> float:
        """s2 of the Gaussian step of this time, with its truncation at the reach."""
        cut = chi2.isf(self.tail, self.dim)
        return float(4 * step_time * chi2.cdf(cut, self.dim) / chi2.cdf(cut, self.dim + 2))

    def mass(self, s2: float) -> FloatArray:
        """Integral of a Gaussian step over the space, shape (n,); by default that of flat space without edge."""
        return np.full(len(self.points), (np.pi * s2) ** (self.dim / 2) * (1 - self.tail))

    @abc.abstractmethod
    def steps(self, radius: float, s2: float, n_jobs: int = 1) -> Steps:
        """Steps between nodes within a radius; each node has one to itself."""

    @abc.abstractmethod
    def steps_from(self, z: FloatArray, radius: float, s2: float, n_jobs: int = 1) -> Steps:
        """The same from points of the space to nodes."""

    def place(self, z: FloatArray, n_jobs: int = 1) -> FloatArray:
        """Positions of points on the space; noisy ones are moved."""
        if self.surface is None:
            return z
        inside = along(self.axes, z - self.origin)
        return along(self.axes.T, self.surface.project(inside, n_jobs)) + self.origin

    def inside(self, z: FloatArray) -> FloatArray:
        """Points in the coordinates in which steps are computed."""
        return z

    def fused(self, factors: FloatArray) -> FusedSteps | None:
        """Arrays of steps along straight lines; None if steps are more complicated."""
        return None


class AbstractMirrored(AbstractNodes):
    """Nodes with mirror images beyond an edge.

    Attributes
    ----------
    inner : array of shape (n, r)
        Nodes in the coordinates in which steps are computed.
    images : array of shape (g, r)
    own : int array of shape (g,)
        The node of each image.
    """

    inner: FloatArray
    images: FloatArray
    own: IntArray
    volumes = None  # derived from the steps

    @cached_property
    def search(self) -> NeighborSearch:
        """Over the nodes, then their images."""
        return NeighborSearch(np.ascontiguousarray(np.vstack([self.inner, self.images])))

    @cached_property
    def node_of(self) -> IntArray:
        """Index of the node of each node and image."""
        return np.concatenate([np.arange(len(self.inner)), self.own])


class AbstractSpace(abc.ABC):
    """A space, as far as it is known.

    Attributes
    ----------
    dim : int
    volume : float
        Possibly estimated.
    points : array of shape (n, r)
        The data; named manifolds, known exactly, have none.
    cloud : CleanCloud or None
        The analysis of a cloud.
    curvature : float
        Typical norm of the second fundamental form, one over a length; 0 where steps are exact.
    """

    dim: int
    volume: float
    points: FloatArray
    cloud: CleanCloud | None
    curvature: float = 0.0

    @property
    def n_known(self) -> int:
        """Number of points that define the space."""
        return len(self.points)

    @property
    def extent2(self) -> float:
        """Squared diagonal of a box with the variance of the space, whatever its direction."""
        return float(12 * self.points.var(axis=0).sum())

    @abc.abstractmethod
    def layout(self, s2: float, spacing: float, n_jobs: int) -> AbstractNodes:
        """Nodes at a spacing, for steps exp(-d^2 / s2)."""

    def spacing(self, s2: float) -> float:
        """Distance between nodes that is needed for steps of a bandwidth."""
        return float(np.sqrt(np.pi * s2)) / _PER_AXIS

    def steps(self, t: float, n_nodes: int | None = None) -> int:
        """Number of steps of a heat time: as many as curvature requires and few nodes allow; even."""
        # n nodes allow ``allowed * n ** (2 / dim)`` steps.
        allowed = 4 * np.pi * t / self.volume ** (2 / self.dim) / _PER_AXIS**2
        if n_nodes is not None:
            steps = float(allowed * n_nodes ** (2 / self.dim))
        else:
            # In three dimensions a step reaches 260 nodes or more, in two 60.
            nodes = min(MOST_NODES if self.dim < 3 else 8000, 4 * self.n_known)
            most, enough = (allowed * np.array([nodes, ENOUGH_NODES]) ** (2 / self.dim)).tolist()
            fewest = min(_FEWEST_STEPS if self.dim < 3 else _FEWEST_STEPS // 2, most)
            asked = max(24 * t * self.curvature**2, enough)
            steps = float(np.clip(min(asked, most), fewest, _MOST_STEPS))
        return max(2, 2 * round(min(steps, 10_000.0) / 2))

    @property
    def most_nodes(self) -> float:
        """Number of nodes whose steps fit into memory."""
        return max(100_000, self.n_known)

    def spacing_for(self, t: float, n_steps: int, n_nodes: int | None) -> float:
        """Distance between ``n_nodes`` nodes, or as many as the steps need; refuses more than memory holds."""
        most = self.most_nodes
        if n_nodes is not None:
            if n_nodes > most:
                reject("n_nodes", f"at most {most} here, or the graph would not fit into memory", n_nodes)
            return float((self.volume / n_nodes) ** (1 / self.dim))
        spacing = self.spacing(4 * t / n_steps)
        count = self.volume / spacing**self.dim
        if count > most:
            shortest = t * (count / most) ** (2 / self.dim)
            rule = f"at least {shortest:.2g} here, or the graph would have more than {most} nodes"
            reject("t", rule, f"{t:.2g}")
        return spacing

    @property
    def default_time(self) -> float:
        """A heat time that the points resolve, few features represent, and that is short enough for the space."""
        resolved = 2 / np.pi * (12 * self.volume / self.n_known) ** (2 / self.dim)  # 12 points wide
        represented = (self.volume / 640) ** (2 / self.dim)  # by 640 anchors
        noise = 0.0 if self.cloud is None else 4.5 * self.cloud.noise_std**2  # narrower kernels would resolve it
        t = min(max(resolved, represented, noise), 0.02 * self.extent2)
        return float(f"{t:.3g}")  # a short number


@dataclass(frozen=True, eq=False)
class PointSpace(AbstractSpace):
    """Points that are used as nodes: with a metric, with known volumes, in many dimensions, or few points."""

    points: FloatArray
    dim: int
    metric: AbstractManifold | None = None
    volumes: FloatArray | None = None
    n_jobs: int = 1
    cloud: CleanCloud | None = None
    most_nodes = np.inf  # no nodes are laid out

    @cached_property
    def _search(self) -> NeighborSearch:
        return NeighborSearch(self.points, self.metric, self.n_jobs)

    @cached_property
    def _sampling(self) -> Sampling:
        return Sampling.of_cloud(self._search, self.dim, "X")

    @property
    def volume(self) -> float:  # type: ignore[override]
        """Sum of the volumes, or estimated from the density of the points."""
        return float(self.volumes.sum()) if self.volumes is not None else self._sampling.volume

    @property
    def extent2(self) -> float:
        """With a metric, that of a box of the same volume, because coordinates may not be lengths."""
        return super().extent2 if self.metric is None else float(self.volume ** (2 / self.dim))

    def steps(self, t: float, n_nodes: int | None = None) -> int:
        """As many steps as the sampling supports, with enough points in the footprint of each; even.

        Evenly spread points need few, random points need many. Known volumes allow the narrowest steps.
        """
        even = 4.5 if self.volumes is not None else 8.0
        share = np.clip((self._sampling.evenness - 0.9) / 0.7, 0.0, 1.0)
        wanted = 20.0 * (even / 20.0) ** share
        steps = 4 * np.pi * t * (self._sampling.sparse_density / wanted) ** (2 / self.dim)
        return max(2, 2 * round(min(float(steps), 72.0) / 2))

    def layout(self, s2: float, spacing: float, n_jobs: int) -> AbstractNodes:
        """The points."""
        cloud = self.cloud
        noisy = (cloud.surface, cloud.origin, cloud.axes) if cloud and cloud.noise_std else ()
        return PointNodes(self._search, self.dim, self.volumes, *noisy)


@dataclass(frozen=True, eq=False)
class ManifoldSpace(AbstractSpace):
    """A named manifold."""

    manifold: AbstractManifold
    dim: int
    volume: float
    metric: AbstractManifold | None = None
    n_jobs: int = 1
    n_known = 4000  # for the default time
    most_nodes = np.inf
    cloud = None

    @property
    def extent2(self) -> float:
        """That of a box of the same volume, because coordinates may not be lengths."""
        return float(self.volume ** (2 / self.dim))

    def steps(self, t: float, n_nodes: int | None = None) -> int:
        """18 steps, 8 in more than two dimensions, or as many as the evenness of the grid allows."""
        most = 18 if self.dim < 3 else 8
        n = self._count(4 * t / most) if n_nodes is None else n_nodes
        points, volumes = np.array(self.manifold.grid(n), order="C"), np.asarray(self.manifold.grid_weights(n))
        return min(PointSpace(points, self.dim, self.metric, volumes, self.n_jobs).steps(t), most)

    def _count(self, s2: float) -> int:
        """Nodes for steps of a bandwidth."""
        # In the footprint of a step: 4.5 are enough if volumes are known, but .135 off on S^3 with 18 steps.
        wanted = 4.5 if self.dim < 3 else _PER_AXIS**self.dim
        return int(np.clip(wanted * self.volume / (np.pi * s2) ** (self.dim / 2), 500, MOST_NODES))

    def spacing(self, s2: float) -> float:
        """Distance between nodes."""
        return float((self.volume / self._count(s2)) ** (1 / self.dim))

    def layout(self, s2: float, spacing: float, n_jobs: int) -> AbstractNodes:
        """The grid of the manifold, with its volumes."""
        n = round(self.volume / spacing**self.dim)
        search = NeighborSearch(np.array(self.manifold.grid(n), order="C"), self.metric, n_jobs)
        return PointNodes(search, self.dim, self.manifold.grid_weights(n))


@stored
@dataclass(frozen=True, eq=False)
class PointNodes(AbstractNodes):
    """Points as nodes, with steps along straight lines or a metric.

    Attributes
    ----------
    search : NeighborSearch
    dim : int
    volumes : array of shape (n,), optional
        If known.
    surface, origin, axes : optional
        Of a noisy cloud.
    """

    search: NeighborSearch
    dim: int
    volumes: FloatArray | None = None
    surface: Any = None
    origin: Any = None
    axes: Any = None
    is_even = False

    def _check_loaded(self) -> None:
        check_integer(self.dim, "dim", 1)
        if self.surface is not None:
            check_arrays(self, origin=(self.points.shape[1],), axes=(len(self.origin), len(self.surface.axes)))
        if self.volumes is not None:
            check_amounts("volumes", self.volumes, len(self.search.points))

    @property
    def points(self) -> FloatArray:  # type: ignore[override]
        """Positions."""
        return self.search.points

    @property
    def metric(self) -> AbstractManifold | None:  # type: ignore[override]
        """The manifold along which distances are measured."""
        return self.search.metric

    def bandwidth(self, step_time: float) -> float:
        """Bandwidth of the Gaussian step of this time; on a curved metric it is not four times the time."""
        s2 = super().bandwidth(step_time)
        if self.metric is None:
            return s2
        for _ in range(100):  # the time is nearly linear in s2: 5 to 29 rounds were needed
            found = self.metric._gaussian_step(s2, step_reach(s2, self.dim))[1]
            if abs(found - step_time) <= 1e-12 * step_time:
                return s2
            if not 0 < found < np.inf:
                break
            s2 *= step_time / found
        rule = f"larger, so that a step is at most a tenth of the squared radius of curvature of {self.metric}"
        reject("n_steps", rule, f"steps of {step_time:.3g}, too long for any Gaussian")

    def mass(self, s2: float) -> FloatArray:
        """Integral of a Gaussian step."""
        if self.metric is None:
            return super().mass(s2)
        return np.full(len(self.points), self.metric._gaussian_step(s2, step_reach(s2, self.dim))[0])

    def fused(self, factors: FloatArray) -> FusedSteps | None:
        """Arrays of steps, except along a metric."""
        if self.metric is not None:
            return None
        r = self.points.shape[1]
        flat = np.zeros((0, r, self.dim)), np.zeros((0, self.dim, self.dim))
        return FusedSteps(self.search, np.arange(len(self.points)), factors, *flat)

    def steps(self, radius: float, s2: float, n_jobs: int = 1) -> Steps:
        """Steps between nodes."""
        return self.steps_from(self.points, radius, s2, n_jobs)

    def steps_from(self, z: FloatArray, radius: float, s2: float, n_jobs: int = 1) -> Steps:
        """Steps from points to nodes."""
        rows, nodes, distances = self.search.within(z, radius, n_jobs)
        return Steps(rows, nodes, distances**2)
