"""Spaces: what a graph needs to know of a cloud, a curve, a mesh or a named manifold.

A space lays out *nodes*, as even as it can, at the spacing that a kernel needs. Nodes know how steps go between
them and from new points to them: along the space, and with what an edge or curvature does to a Gaussian.
"""

import abc
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from manifoldrf._codec import stored
from manifoldrf._random import generator
from manifoldrf._runtime import warn_user
from manifoldrf._validation import FloatArray, IntArray, check_integer, check_spread, reject
from manifoldrf.geometry.cleaning import CleanCloud, clean_cloud, estimate_dimension
from manifoldrf.geometry.csr import check_amounts, check_shape
from manifoldrf.geometry.curves import Curve, line_pairs, trace_curves
from manifoldrf.geometry.edges import find_edge
from manifoldrf.geometry.layout import EvenNodes, even_points
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.neighbors import NeighborSearch, Pairs
from manifoldrf.geometry.nodes import AbstractNodes, FusedSteps
from manifoldrf.geometry.sampling import Sampling, thin

# Nodes in the footprint (pi s2)^(d/2) of a step: 2.45^d. With 6 in three dimensions S^2 x S^1 was .084 off, with
# 2.45^3 .0137.
_PER_AXIS = 2.45
_ENOUGH_NODES, _MOST_NODES = 1500, 20_000  # more are laid out only if curvature or a short time asks for them
_FEWEST_STEPS, _MOST_STEPS = 12, 40


class AbstractSpace(abc.ABC):
    """A space of a dimension, with the volume and the extent of what is known of it."""

    dim: int

    @property
    @abc.abstractmethod
    def n_known(self) -> int:
        """Number of points that the space is known from."""

    @property
    @abc.abstractmethod
    def volume(self) -> float:
        """Volume, possibly estimated."""

    @property
    @abc.abstractmethod
    def extent2(self) -> float:
        """Squared diagonal of a box with the variance of the space, whatever its direction."""

    @property
    def curvature(self) -> float:
        """Typical length of the second fundamental form, one over a length; 0 where steps know it exactly."""
        return 0.0

    @abc.abstractmethod
    def layout(self, s2: float, spacing: float, n_jobs: int) -> AbstractNodes:
        """Nodes at a spacing, for steps exp(-d^2 / s2)."""

    def spacing(self, s2: float) -> float:
        """Distance between nodes that steps of a bandwidth need."""
        return float(np.sqrt(np.pi * s2)) / _PER_AXIS

    def steps(self, t: float, n_nodes: int | None = None) -> int:
        """Number of steps that make up a heat time: as many as curvature asks for and few nodes allow; even."""

        def affordable(n: float) -> float:
            return float(4 * np.pi * t * (n / self.volume) ** (2 / self.dim) / _PER_AXIS**2)

        if n_nodes is not None:
            steps = affordable(n_nodes)
        else:
            # In three dimensions a step reaches 400 nodes, and a graph of 8000 nodes is as large as one of 60,000.
            most = affordable(min(_MOST_NODES if self.dim < 3 else 8000, 4 * self.n_known))
            fewest = min(_FEWEST_STEPS if self.dim < 3 else _FEWEST_STEPS // 2, most)
            asked = max(24 * t * self.curvature**2, affordable(_ENOUGH_NODES))
            steps = float(np.clip(min(asked, most), fewest, _MOST_STEPS))
        return max(2, 2 * round(min(steps, 10_000.0) / 2))

    def _check_count(self, s2: float, spacing: float) -> None:
        """Refuse a time so short that nodes at this spacing would fill the memory."""
        count, most = self.volume / spacing**self.dim, max(100_000, self.n_known)
        if count > most:
            shortest = s2 / 2 * (count / most) ** (2 / self.dim)  # of two steps
            rule = f"at least {shortest:.2g} here, or the graph would have more than {most} nodes"
            reject("t", rule, f"{s2 / 2:.2g}")

    @property
    def _noise2(self) -> float:
        """A heat time below which a kernel would be narrower than the noise of a cloud."""
        cloud = getattr(self, "cloud", None)
        return 0.0 if cloud is None else 4.5 * float(cloud.noise_std) ** 2

    def half(self) -> "AbstractSpace":
        """The space as half of the data show it, for an estimate of the error; itself if it is known exactly."""
        return self

    @property
    def default_time(self) -> float:
        """A heat time that points resolve, that few features represent, and that sees the shape of the space."""
        resolved = 2 / np.pi * (12 * self.volume / self.n_known) ** (2 / self.dim)  # 12 points wide
        represented = (self.volume / 640) ** (2 / self.dim)  # by 640 anchors
        t = min(max(resolved, represented, self._noise2), 0.02 * self.extent2)
        return float(f"{t:.3g}")  # a number that is easy to read and to give again


@dataclass(frozen=True, eq=False)
class CloudSpace(AbstractSpace):
    """A cleaned cloud of two or three dimensions."""

    cloud: CleanCloud
    n_jobs: int = 1

    @property
    def dim(self) -> int:  # type: ignore[override]
        """Dimension."""
        return self.cloud.dim

    def half(self) -> AbstractSpace:
        """The space through half of the points."""
        return _space_through(_half_of(self.cloud, self.n_jobs), self.n_jobs)

    @property
    def n_known(self) -> int:
        """Number of points."""
        return len(self.cloud.points)

    @cached_property
    def _sampling(self) -> Sampling:
        return Sampling.of_cloud(NeighborSearch(self.cloud.points, None, self.n_jobs), self.dim, "X")

    @property
    def volume(self) -> float:
        """Volume, from the density of the points."""
        return self._sampling.volume

    @property
    def extent2(self) -> float:
        """Squared diagonal of a box with the variance of the space, whatever its direction."""
        return float(12 * self.cloud.points.var(axis=0).sum())

    @cached_property
    def curvature(self) -> float:
        """Of the surface around the points; a tenth of them are where it is larger, as on a small part."""
        surface = self.cloud.surface
        return 0.0 if surface is None else float(1 / np.quantile(surface.radii(self.cloud.points), 0.1))

    def layout(self, s2: float, spacing: float, n_jobs: int) -> AbstractNodes:
        """Even nodes on the surface through the points."""
        self._check_count(s2, spacing)
        cloud, points, dim = self.cloud, self.cloud.points, self.dim
        edge = find_edge(points, cloud.surface, dim, 0.7 * spacing, n_jobs, noise_std=cloud.noise_std)
        # Random close packings are looser than lattices: so many times the spacing gives the same density.
        places = even_points(points, cloud.surface, edge, dim, {2: 1.07, 3: 1.12}[dim] * spacing, n_jobs)
        return EvenNodes.of(places, edge, cloud, s2, spacing, n_jobs)


@dataclass(frozen=True, eq=False)
class CurveSpace(AbstractSpace):
    """Curves through a cloud."""

    cloud: CleanCloud
    curve: Curve
    n_jobs: int = 1
    dim: int = 1

    def half(self) -> AbstractSpace:
        """The curves through half of the points."""
        return _space_through(_half_of(self.cloud, self.n_jobs), self.n_jobs)

    @property
    def n_known(self) -> int:
        """Number of points."""
        return len(self.cloud.points)

    @property
    def volume(self) -> float:
        """Length of all curves."""
        return float(self.curve.lengths.sum())

    @property
    def extent2(self) -> float:
        """Squared diagonal of a box with the variance of the space, whatever its direction."""
        return float(12 * self.cloud.points.var(axis=0).sum())

    def layout(self, s2: float, spacing: float, n_jobs: int) -> AbstractNodes:
        """Even nodes by arc length."""
        del n_jobs
        self._check_count(s2, spacing)
        arcs, pieces, volumes = [], [], []
        for piece, length in enumerate(self.curve.lengths):
            n = max(8, int(np.ceil(length / spacing)))
            arcs.append((np.arange(n) + 0.5) * length / n)
            pieces.append(np.full(n, piece))
            volumes.append(np.full(n, length / n))
        places = np.concatenate(arcs), np.concatenate(pieces)
        surface = self.cloud.surface if self.cloud.noise_std else None
        at = self.curve.at(*places) @ self.cloud.axes.T + self.cloud.origin
        return CurveNodes(
            at, *places, np.concatenate(volumes), self.curve, self.cloud.origin, self.cloud.axes, surface
        )


@stored
@dataclass(frozen=True, eq=False)
class CurveNodes(AbstractNodes):
    """Nodes along curves.

    Attributes
    ----------
    points : array of shape (n, D)
    arcs : array of shape (n,)
    pieces : int array of shape (n,)
    volumes : array of shape (n,)
        Lengths.
    curve : Curve
    origin, axes : arrays of shape (D,) and (D, r)
        Coordinates of the curve.
    surface : LocalSurface, optional
        Onto which noisy points are moved.
    """

    points: FloatArray
    arcs: FloatArray
    pieces: IntArray
    volumes: FloatArray
    curve: Curve
    origin: FloatArray
    axes: FloatArray
    surface: Any = None
    dim: int = 1

    def __post_init__(self) -> None:
        n = len(self.points)
        for name in ("arcs", "pieces", "volumes"):
            check_shape(name, getattr(self, name), (n,))
        if n and not (self.pieces.min() >= 0 and self.pieces.max() < len(self.curve.lengths)):
            reject("pieces", "numbers of curves", int(self.pieces.max()))

    def mass(self, s2: float) -> Any:
        """Integral of a Gaussian step."""
        return np.full(len(self.points), self.flat_mass(s2))

    def pairs(self, radius: float, s2: float, n_jobs: int = 1) -> Pairs:
        """Pairs of nodes along the curves."""
        del s2, n_jobs
        return line_pairs(self.arcs, self.pieces, self.arcs, self.pieces, self.curve, radius)

    def pairs_from(self, z: FloatArray, radius: float, s2: float, n_jobs: int = 1) -> Pairs:
        """Pairs of the nearest points of the curves and nodes."""
        del s2
        inside = z if self.axes.shape[0] == self.axes.shape[1] else (z - self.origin) @ self.axes
        return line_pairs(*self.curve.locate(inside, n_jobs), self.arcs, self.pieces, self.curve, radius)


@dataclass(frozen=True, eq=False)
class PointSpace(AbstractSpace):
    """Points that are nodes as they are: along a metric, with known volumes, in many dimensions, or few points."""

    points: FloatArray
    dim: int
    metric: AbstractManifold | None = None
    volumes: FloatArray | None = None
    n_jobs: int = 1
    cloud: CleanCloud | None = None

    @property
    def n_known(self) -> int:
        """Number of points."""
        return len(self.points)

    @cached_property
    def _search(self) -> NeighborSearch:
        return NeighborSearch(self.points, self.metric, self.n_jobs)

    @cached_property
    def _sampling(self) -> Sampling:
        return Sampling.of_cloud(self._search, self.dim, "X")

    @property
    def volume(self) -> float:
        """Sum of the volumes, or from the density of the points."""
        return float(self.volumes.sum()) if self.volumes is not None else self._sampling.volume

    @property
    def extent2(self) -> float:
        """Squared diagonal of a box with the variance of the space; along a metric, of a box of the same volume."""
        if self.metric is not None:
            return float(self.volume ** (2 / self.dim))
        return float(12 * self.points.var(axis=0).sum())

    def steps(self, t: float, n_nodes: int | None = None) -> int:
        """As many steps as the sampling supports, with enough points in the footprint of each; even.

        Evenly spread points need few, random points need many. Known volumes allow the narrowest steps.
        """
        del n_nodes
        even = 4.5 if self.volumes is not None else 8.0
        share = np.clip((self._sampling.evenness - 0.9) / 0.7, 0.0, 1.0)
        wanted = 20.0 * (even / 20.0) ** share
        steps = 4 * np.pi * t * (self._sampling.sparse_density / wanted) ** (2 / self.dim)
        return max(2, 2 * round(min(float(steps), 72.0) / 2))

    def layout(self, s2: float, spacing: float, n_jobs: int) -> AbstractNodes:
        """The points."""
        del s2, spacing, n_jobs
        return PointNodes(self._search, self.dim, self.volumes)


@dataclass(frozen=True, eq=False)
class ManifoldSpace(AbstractSpace):
    """A named manifold."""

    manifold: AbstractManifold
    metric: AbstractManifold | None = None
    n_jobs: int = 1

    @property
    def dim(self) -> int:  # type: ignore[override]
        """Dimension."""
        return self.manifold.dim

    @property
    def n_known(self) -> int:
        """As many as may be laid out."""
        return 4000

    @property
    def volume(self) -> float:
        """Volume."""
        return self.manifold.volume

    @cached_property
    def extent2(self) -> float:
        """Of a ball or box of the same volume: coordinates may not be lengths."""
        return float(self.volume ** (2 / self.dim))

    def steps(self, t: float, n_nodes: int | None = None) -> int:
        """18 steps, 8 in more than two dimensions, or as many as the evenness of the grid allows."""
        n = self._count(4 * t / (18 if self.dim < 3 else 8)) if n_nodes is None else n_nodes
        volumes = np.asarray(self.manifold.grid_weights(n))
        points = np.array(self.manifold.grid(n), order="C")
        return min(
            PointSpace(points, self.dim, self.metric, volumes, self.n_jobs).steps(t), 18 if self.dim < 3 else 8
        )

    @property
    def _per_step(self) -> float:
        """Nodes in the footprint of a step: 4.5 are enough if volumes are known, on S^3 .135 off with 18 steps."""
        return 4.5 if self.dim < 3 else _PER_AXIS**self.dim

    def _count(self, s2: float) -> int:
        """Nodes for steps of a bandwidth."""
        return int(np.clip(self._per_step * self.volume / (np.pi * s2) ** (self.dim / 2), 500, _MOST_NODES))

    def spacing(self, s2: float) -> float:
        """Distance between nodes."""
        return float((self.volume / self._count(s2)) ** (1 / self.dim))

    def layout(self, s2: float, spacing: float, n_jobs: int) -> AbstractNodes:
        """The grid of the manifold, with its volumes."""
        del s2
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
    """

    search: NeighborSearch
    dim: int
    volumes: FloatArray | None = None
    is_even = False

    def __post_init__(self) -> None:
        check_integer(self.dim, "dim", 1)
        if self.volumes is not None:
            check_amounts("volumes", self.volumes, len(self.search.points))

    @property
    def points(self) -> FloatArray:  # type: ignore[override]
        """Positions."""
        return self.search.points

    @property
    def metric(self) -> AbstractManifold | None:
        """The manifold that distances are measured along."""
        return self.search.metric

    def bandwidth(self, step_time: float) -> float:
        """Bandwidth of the Gaussian whose step lasts so long: on a curved metric not four times as much."""
        s2 = super().bandwidth(step_time)
        if self.metric is None:
            return s2
        for _ in range(100):  # the time is nearly linear in s2: 5 to 29 rounds were needed
            found = self.metric._gaussian_step(s2, self.reach(s2))[1]
            if abs(found - step_time) <= 1e-12 * step_time:
                return s2
            if not 0 < found < np.inf:
                break
            s2 *= step_time / found
        rule = f"larger, so that a step is at most a tenth of the squared radius of curvature of {self.metric}"
        reject("n_steps", rule, f"steps of {step_time:.3g}, too long for any Gaussian")

    def mass(self, s2: float) -> Any:
        """Integral of a Gaussian step."""
        metric = self.metric
        whole = self.flat_mass(s2) if metric is None else metric._gaussian_step(s2, self.reach(s2))[0]
        return np.full(len(self.points), whole)

    def fused(self, factors: FloatArray) -> FusedSteps | None:
        """Arrays of steps, except along a metric."""
        if self.metric is not None:
            return None
        r = self.points.shape[1]
        flat = np.zeros((0, r, self.dim)), np.zeros((0, self.dim, self.dim))
        return FusedSteps(self.search, np.arange(len(self.points)), factors, *flat)

    def pairs(self, radius: float, s2: float, n_jobs: int = 1) -> Pairs:
        """Pairs of nodes."""
        return self.pairs_from(self.points, radius, s2, n_jobs)

    def pairs_from(self, z: FloatArray, radius: float, s2: float, n_jobs: int = 1) -> Pairs:
        """Pairs of points and nodes."""
        del s2, n_jobs
        found = self.search.within(z, radius)
        return found._replace(distances=found.distances**2)


def cloud_space(
    points: FloatArray,
    *,
    dim: int | None = None,
    metric: AbstractManifold | None = None,
    noise_std: float | str = "auto",
    volumes: FloatArray | None = None,
    n_jobs: int = 1,
) -> AbstractSpace:
    """The space that points lie on."""
    check_spread(points, "X")
    if dim is not None:
        check_integer(dim, "dim", 1, points.shape[1])
    points = np.array(points, order="C")  # the user may change the original later
    if not np.ptp(points, axis=0).any():
        reject("X", "mostly at distinct positions", "one place")
    if metric is not None:
        if dim not in (None, metric.dim):
            reject("dim", f"that of the metric, {metric.dim}, or None", dim)
        return PointSpace(metric.check(points, "X"), metric.dim, metric, volumes, n_jobs)
    if volumes is not None:
        return PointSpace(points, dim or estimate_dimension(points), None, volumes, n_jobs)
    if len(points) < 3:
        return PointSpace(points, dim or 1, None, None, n_jobs)
    cloud = clean_cloud(points, noise_std=noise_std, dim=dim, n_jobs=n_jobs)
    _report(cloud)
    return _space_through(cloud, n_jobs)


def _report(cloud: CleanCloud) -> None:
    """Warn of points that are lost or moved far."""
    if cloud.n_outliers > 0.01 * cloud.n_given:
        warn_user(
            f"{cloud.n_outliers} of {cloud.n_given} points were left out as outliers (remedy: drop them before, or "
            "HeatGraph(noise_std=0) to keep them)."
        )
    if cloud.hollow:
        warn_user(
            f"The points lie about {cloud.noise_std:.2g} to both sides of a surface, as those of walls do that are "
            "thin for the distance between points: both sides are taken for one (remedy: more points, or a mesh)."
        )


def _space_through(cloud: CleanCloud, n_jobs: int) -> AbstractSpace:
    """Curves, a surface or a solid through cleaned points; the points themselves where no layout can be trusted."""
    if cloud.structured and cloud.dim == 1:
        curve = trace_curves(cloud, n_jobs)
        if curve is not None:
            return CurveSpace(cloud, curve, n_jobs)
    if cloud.structured and 1 < cloud.dim <= 3 and len(cloud.points) >= 60:
        return CloudSpace(cloud, n_jobs)
    places = cloud.points @ cloud.axes.T + cloud.origin
    if len(places) > _MOST_NODES:
        places = places[thin(places, _MOST_NODES // 2)]
    return PointSpace(np.ascontiguousarray(places), cloud.dim, None, None, n_jobs, cloud)


def _half_of(cloud: CleanCloud, n_jobs: int) -> CleanCloud:
    """A random half of the points of a cloud, with its dimension and noise, which few points may not show."""
    n = len(cloud.raw)
    kept = n // 2 if n >= 400 else 3 * n // 4  # half of few points does not show the space
    some = np.sort(generator(0, "cloud.half").permutation(n)[:kept])
    half = clean_cloud(cloud.raw[some], noise_std=cloud.noise_std, dim=cloud.dim, n_jobs=n_jobs)
    origin, axes = cloud.origin + cloud.axes @ half.origin, cloud.axes @ half.axes
    return replace(half, origin=origin, axes=axes)
