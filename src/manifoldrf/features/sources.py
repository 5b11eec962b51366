"""The nodes that a graph can be built on, and the heat time that suits them where none is given."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from manifoldrf._validation import FloatArray, IntArray, check_integer, check_points, reject
from manifoldrf.features.graph_options import GraphOptions
from manifoldrf.geometry.density import Sampling
from manifoldrf.geometry.dimension import estimate_dimension
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.manifolds import AbstractManifold, FlatTorus, HyperbolicSpace
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.neighbors import NeighborSearch, distances_between
from manifoldrf.geometry.sampling import thin
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.manifold_kernels import HeatKernel, MaternKernel

HEAT_DIM = 5  # heat graphs are off by tens of per cent above
# Clouds of real data in 4 and 5 dimensions fill them too thinly: their heat graphs had two steps and were 30 to
# 170 % off. Where no kernel is given they get neighbours with a width for every point, as those in more dimensions.
FEW_DIMS = 3
# A heat graph of a thinned cloud has about so many steps, each reaching so many nodes: 4000 of 200,000 random
# points on the sphere are within .0015 of its kernel at t = .02 with 8 to 12 steps.
_THINNED_STEPS, _THINNED_FOOTPRINT = 12, 8.0
_WORTH_THINNING = 2.0  # the most even half of a cloud is much more even than all of it
_MANIFOLD_STEPS, _MANIFOLD_FOOTPRINT = 18, 4.5  # even nodes with known weights
_FEWEST_NODES, _MOST_NODES = 500, 20_000  # laid out on a named manifold
_NODES_OF_A_WIDTH = 12.0  # default heat time: about so many nodes in a patch of area pi t / 2
_FEATURES_BY_DEFAULT = 640  # default heat time of large clouds: at most about so many anchors are needed
_CARRIED = 0.8  # spacing of anchors over the width of a kernel that they carry; so many are chosen
_WIDEST_FUNCTION = 0.1  # the same for functions given as kernels
_WIDEST = 0.02  # default heat time over the squared extent of the space: wider kernels do not see its shape
STEPS_BY_DEFAULT = 20.0  # where no heat graph is built: the paper's number of steps
_MATERN_STEPS = 1 / 12  # time of the heat graph of a Matern kernel over its squared length scale
_FUNCTION_ROWS = 64  # points at which the width of a function is measured


@dataclass(frozen=True, eq=False)
class Source:
    """The nodes that a graph can be built on."""

    nodes: Any  # an array of points or a TriangleMesh
    dim: int
    options: GraphOptions
    manifold: AbstractManifold | None = None
    n_jobs: int = 1
    n_asked: int = 0  # nodes that a manifold was asked for; grids of some have a few more or less

    @property
    def mesh(self) -> TriangleMesh | None:
        """The mesh whose vertices are the nodes."""
        return self.nodes if isinstance(self.nodes, TriangleMesh) else None

    @property
    def metric(self) -> AbstractManifold | None:
        """What distances are measured along, where coordinates do not say it."""
        # Only there are distances between nearby points not those of their coordinates.
        own = self.manifold if isinstance(self.manifold, FlatTorus | HyperbolicSpace) else None
        return self.options.metric or own

    @cached_property
    def sampling(self) -> Sampling:
        """How dense and how even the nodes are."""
        if self.mesh is not None:
            return Sampling.of_mesh(self.mesh)
        return Sampling.of_cloud(NeighborSearch(self.nodes, self.metric, self.n_jobs), self.dim)


def source_of(space: Any, kernel: Any, options: GraphOptions, n_jobs: int) -> Source:
    """The nodes to build on: points, the vertices of a mesh, or points laid out on a manifold."""
    if isinstance(space, TriangleMesh):
        if options.dim not in (None, 2):
            reject("dim", "2 or None on a mesh", options.dim)
        if isinstance(options.n_nodes, int):
            reject("n_nodes", "'auto' or 'all' on a mesh, whose vertices are the nodes", options.n_nodes)
        return Source(space, 2, options, n_jobs=n_jobs)
    if isinstance(space, AbstractManifold):
        n = options.n_nodes if isinstance(options.n_nodes, int) else _nodes_for(space, kernel)
        return Source(space.grid(n), space.dim, options, space, n_jobs, n)
    points = check_points(space, "X", min_rows=2)  # the user's own, be it on a disk: graphs take copies
    if isinstance(options.n_nodes, int) and options.n_nodes < len(points):
        if options.metric is not None or not isinstance(options.weights, str):
            rule = "'auto' or 'all' with a metric or with weights; thin the points before"
            reject("n_nodes", rule, options.n_nodes)
        points = points[thin(points, options.n_nodes)]
    return Source(points, _dimension(points, options), options, n_jobs=n_jobs)


def _dimension(points: FloatArray, options: GraphOptions) -> int:
    """As given, that of the metric, or estimated."""
    if options.dim is not None:
        return check_integer(options.dim, "dim", 1, points.shape[1])
    if options.metric is not None:
        return options.metric.dim
    return estimate_dimension(points) if len(points) > 2 else 1


def on_manifold_clock(kernel: AbstractKernel) -> bool:
    """Whether a kernel or a part of it is stated in the manifold clock."""
    parts = kernel.get_params().values()
    own = isinstance(kernel, HeatKernel) or (isinstance(kernel, MaternKernel) and kernel.clock == "manifold")
    return own or any(isinstance(part, AbstractKernel) and on_manifold_clock(part) for part in parts)


def graph_time(kernel: Any, source: Source) -> float:
    """The time of the heat graph: that of the kernel, or a part of a Matern kernel's."""
    if not isinstance(kernel, AbstractKernel):
        return _function_time(kernel, source)
    if isinstance(kernel, HeatKernel):
        return kernel.t
    if isinstance(kernel, MaternKernel):
        return _MATERN_STEPS * kernel.lengthscale**2
    times = [graph_time(part, source) for part in kernel.get_params().values() if isinstance(part, AbstractKernel)]
    return min(times) if times else _default_time(source.sampling, source)


def default_kernel(sampling: Sampling, source: Source, notes: dict[str, str]) -> AbstractKernel:
    """The heat kernel that suits the nodes."""
    t = _default_time(sampling, source)
    notes["kernel"] = f"chosen: {np.sqrt(2 * t):.3g} wide, K(x, x) = 1 on average"
    return HeatKernel(t)


def _default_time(sampling: Sampling, source: Source) -> float:
    """A heat time that the nodes can resolve, that few features can carry, and that sees the shape of the space."""
    dim, volume = sampling.dim, sampling.volume
    resolved = 2 / np.pi * (_NODES_OF_A_WIDTH * volume / sampling.n) ** (2 / dim)
    carried = _spacing2(sampling)
    points = source.nodes if source.mesh is None else source.mesh.vertices
    extent2 = float((np.ptp(points, axis=0) ** 2).sum())
    t = float(min(max(resolved, carried), _WIDEST * extent2))
    return float(f"{t:.3g}")  # a number that can be read and given again


def carried_steps(graph: Graph, source: Source) -> float:
    """Steps of the kernel by default: the paper's, or in many dimensions as many as few features can carry."""
    if source.dim <= FEW_DIMS or graph.n_nodes <= 2 * _FEATURES_BY_DEFAULT:
        return STEPS_BY_DEFAULT
    return max(STEPS_BY_DEFAULT, _spacing2(source.sampling) / (_CARRIED**2 * graph.time(1.0, source.dim)))


def _spacing2(sampling: Sampling) -> float:
    """Squared spacing of as many anchors as there are by default."""
    return float((sampling.volume / _FEATURES_BY_DEFAULT) ** (2 / sampling.dim))


def _function_time(function: Any, source: Source) -> float:
    """A heat time about as wide as a function F(X, Y): exp(-r^2 / 4t) is a half at r^2 = 4 t log 2."""
    points = source.nodes if source.mesh is None else source.mesh.vertices
    usual = _default_time(source.sampling, source)
    rows = points[:: max(1, len(points) // _FUNCTION_ROWS)][:_FUNCTION_ROWS]
    others = points[:: max(1, len(points) // 2000)]
    values, peaks = (np.asarray(function(rows, place), dtype=np.float64) for place in (others, rows))
    if values.shape != (len(rows), len(others)) or not (np.isfinite(values).all() and np.isfinite(peaks).all()):
        return usual  # refused with a clear text later
    gaps = distances_between(rows, others, source.metric)
    beyond = np.where(values < 0.5 * np.diagonal(peaks)[:, None], gaps, np.inf).min(axis=1)
    extent2 = float((np.ptp(points, axis=0) ** 2).sum())
    found = float(np.median(beyond)) ** 2 / (4 * np.log(2))
    return float(np.clip(found, usual / 4, _WIDEST_FUNCTION * extent2))


def thinned(source: Source, t: float, notes: dict[str, str]) -> tuple[Source, IntArray | None]:
    """The source without nodes that the kernel does not need, and which were kept; None for all."""
    if source.mesh is not None or source.manifold is not None or source.options.n_nodes != "auto":
        return source, None
    if source.metric is not None or not isinstance(source.options.weights, str):
        return source, None
    sampling = source.sampling
    density = _THINNED_FOOTPRINT * (_THINNED_STEPS / (4 * np.pi * t)) ** (source.dim / 2)
    needed = max(float(_FEWEST_NODES), density * sampling.volume)  # infinite for a time next to nothing
    if not len(source.nodes) >= _WORTH_THINNING * needed:
        return source, None
    enough = int(needed)
    kept = thin(source.nodes, enough)
    notes["thinned"] = f"{enough} farthest of {len(source.nodes)} points: more are not needed for t = {t:.3g}"
    return Source(source.nodes[kept], source.dim, source.options, n_jobs=source.n_jobs), kept


def _nodes_for(manifold: AbstractManifold, kernel: Any) -> int:
    """How many nodes to lay out on a manifold."""
    if not isinstance(kernel, HeatKernel):
        return 4000
    density = _MANIFOLD_FOOTPRINT * (_MANIFOLD_STEPS / (4 * np.pi * kernel.t)) ** (manifold.dim / 2)
    return int(np.clip(density * manifold.volume, _FEWEST_NODES, _MOST_NODES))
