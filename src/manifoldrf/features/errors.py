"""Estimated errors of features: the record of all shares, and the error of the graph."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._codec import stored
from manifoldrf._random import Streams
from manifoldrf._runtime import one_blas_thread, without_warnings
from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.fields.data import Problem
from manifoldrf.geometry.clouds import Sheets
from manifoldrf.geometry.edges import edge_uncertainty
from manifoldrf.geometry.graphs import Graph, GraphWarning
from manifoldrf.geometry.heat import HeatExtension, SurfaceReach, heat_graph, inner_steps, step_bias
from manifoldrf.geometry.meshes import barycentric_weights
from manifoldrf.geometry.neighbors import NeighborSearch, Pairs, distances_between
from manifoldrf.geometry.sampling import Sampling, ThinnedMesh
from manifoldrf.kernels.abstract_kernel import AbstractKernel, ScaledKernel
from manifoldrf.kernels.graph_kernels import PowerKernel
from manifoldrf.kernels.manifold_kernels import HeatKernel
from manifoldrf.metrics import relative_error

__all__ = ["ErrorEstimate"]

_ROUNDING = 1e-5  # smaller errors come from dropping the smallest entries of signatures
_PROBES = 200  # nodes at which graphs are compared
_SURFACE_PROBES = 300  # points on a mesh with a boundary; with 160, estimates varied by a factor of 3
_FROM_RIM = 3.0  # in units of sqrt(t): of the heat at this distance, a share of e^-9 is reflected by the rim
_SMALL_PART = 0.1  # of a change, whose accuracy is no better
_TAIL_NODES = 50  # nodes at which the loss of steps beyond their reach is measured
_FEWEST_INSIDE = 20  # nodes of a ball that far from its rim; with fewer, all nodes are compared
_RESOLVED = 4.0  # nodes under a kernel that a graph can follow
_DOUBTFUL = 0.15  # larger changes of the kernel may come from steps that are too wide for the space
# A scaling of 1.12 times the median means that a fifth of the Gaussian is cut off: the rim is .84 deviations away.
_CUT_OFF, _RIM_DEPTH = 1.12, 0.84
# How far off the edge of a noisy cloud is, in units of the noise (sheets and cylinders: .46, .5).
_BLURRED_EDGE = 0.5
_SPARSE_DIM, _EVEN = 3, 1.25  # random points have an evenness of .9 to 1.05, grids one above 1.6
# The change at new points if half of the nodes are left out, over the error: 2.0 to 2.5 on 3-tori, S^3, 4- and
# 5-tori of 2000 to 6800 nodes with two to four steps.
_FROM_HALF = 0.43
# A surface of few patches may be off by much or little: noise is drawn until so many patches are seen.
_PATCHES, _MOST_DRAWS = 200, 4
# Paths along fewer neighbours than those of a fit see layers whose noise nearly closes the gap: of steps on a roll
# a share of .07 then jumps, of those on single sheets none, on layers that were found at most .006.
_PATH_NEIGHBORS, _LEAK, _LAYERED_DIMS = 8, 0.01, (2, 3)
_SHARE_OF_CURVATURE = 0.15  # of the log of the volume; on S^5 half of the nodes are wrong in the same way
_ROUGH_VOLUME = 0.25  # log error of volumes by nearest neighbours: .02 to .25 on closed spaces of dimension 3 to 5
_DENSE_HEAT = 10_000_000  # entries of the rows whose spread is measured: 80 MB


@stored
@dataclass(frozen=True)
class ErrorEstimate:
    """Relative errors of the kernel, in Frobenius norms over pairs of held-out nodes.

    ``float(error)`` is :attr:`kernel`, the whole error.

    Attributes
    ----------
    kernel : float
        Total error of the features' kernel: field and quadrature, and the graph if its share is known.
    field : float
        Share of the field: features of the field against features of exact signatures, at the same anchors.
    quadrature : float
        Share of the anchors: their weighted sum against the sum over all nodes.
    graph : float, optional
        Share of the graph, for :class:`HeatKernel`: the change of the kernel if steps are twice as long or, if the
        graph is not a heat graph, the difference to a heat graph, between random points of the space. In a ball of
        an unbounded space only points that are 3 sqrt(t) away from the rim count. For clouds of three and more
        dimensions, part of the change if half of the nodes are left out. Added to it: a gap between nodes along an
        estimated boundary, the change if noise that was removed is drawn again, and the change if steps between
        possible layers are cut. For a function given as kernel, the error of its series, or of mixed features, on
        held-out pairs, on a named space between new points. None in the graph clock and for other kernels.
    signatures : float
        Error of the values of the field at the anchors.
    candidates : tuple of (str, float)
        Error of the features' kernel, by field tried.
    weights : tuple of (str, float)
        Error of the quadrature, by rule tried.

    Examples
    --------
    >>> from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere
    >>> error = ManifoldRandomFeatures(HeatKernel(0.05), n_features=256, random_state=0).fit(Sphere()).error_
    >>> error.field < 1e-5 < error.quadrature < 0.05
    True
    """

    kernel: float
    field: float
    quadrature: float
    graph: float | None
    signatures: float
    candidates: tuple[tuple[str, float], ...] = ()
    weights: tuple[tuple[str, float], ...] = ()

    def __float__(self) -> float:
        return self.kernel

    def __str__(self) -> str:
        shares = {"field": self.field, "quadrature": self.quadrature, "graph": self.graph}
        text = ", ".join(f"{name} {brief(share)}" for name, share in shares.items() if share is not None)
        # First what is missing: the number must not be taken for the whole error.
        return f"{'graph not estimated; rest ' if self.graph is None else ''}{brief(self.kernel)} ({text})"

    def with_graph(self, graph: float | None) -> "ErrorEstimate":
        """Return the estimate with the share of the graph, which is independent of the others."""
        if graph is None:
            return self
        return dataclasses.replace(self, graph=graph, kernel=float(np.hypot(self.kernel, graph)))


def brief(error: float) -> str:
    """An error with its significant digits."""
    return f"{error:.2g}" if error >= _ROUNDING else f"below {_ROUNDING:g}"


@dataclass(frozen=True, eq=False)
class _Places:
    """Places at which two graphs are compared, weighted as if they were random points of the space.

    Attributes
    ----------
    nodes : int array of shape (s,)
        Nodes at which both kernels are evaluated.
    mix : sparse array of shape (p, s)
        Interpolates values at places from values at nodes.
    volumes : array of shape (p,)
        Number of random points that each place represents, one on average.
    """

    nodes: IntArray
    mix: Any
    volumes: FloatArray

    def difference(self, here: FloatArray, there: FloatArray) -> float:
        """Relative difference of two kernels."""
        roots = np.sqrt(self.volumes)
        pairs = roots[:, None] * roots
        np.fill_diagonal(pairs, roots)  # a random point has one pair with itself
        first, second = (pairs * (self.mix @ kernel @ self.mix.T) for kernel in (here, there))
        return float(relative_error(second, first))


@one_blas_thread()
def graph_error(problem: Problem, streams: Streams, n_jobs: int) -> float | None:
    """Estimate how far the heat kernel of a graph is from that of the space, by comparison with another graph.

    A heat graph is compared with one whose steps are twice as long. The error is of first order in the time of a
    step, so the error of the other graph is twice as large, and the change equals the error. (On random points the
    change is .8 to 1.2 of the error, half of which is noise.) Random clouds from dimension 3 on are compared
    with half of their nodes. Other graphs are compared with a heat graph.
    """
    if problem.series_error is not None:
        return problem.series_error
    kernel = problem.kernel.kernel if isinstance(problem.kernel, ScaledKernel) else problem.kernel
    if not isinstance(kernel, HeatKernel) or problem.clock == "ambient":
        return None
    rng = streams.generator("features.graph error")
    if _is_sparse(problem):
        shares, nodes = _shares_of_sparse_cloud(problem, kernel, rng, n_jobs)
    else:
        shares, nodes = _shares_of_steps(problem, kernel, rng, n_jobs)
    if not shares:
        return None
    missing = _missing_heat(problem, kernel, nodes[:_PROBES], n_jobs)
    shares += _boundary_error(problem), _layer_error(problem, kernel, nodes, n_jobs)
    return max(float(np.linalg.norm(shares)), missing)


_Shares = tuple[tuple[float, ...], IntArray]  # of the error, and the nodes at which they were measured
_UNKNOWN: _Shares = ((), np.zeros(0, dtype=np.int64))


def _shares_of_steps(problem: Problem, kernel: HeatKernel, rng: np.random.Generator, n_jobs: int) -> _Shares:
    """The change of the kernel with longer or shorter steps, and if noise is drawn again."""
    other = _other_graph(problem, kernel.t, n_jobs)
    if other is None and problem.graph.n_steps is not None:  # shorter steps fit into memory
        other = _other_graph(problem, kernel.t, n_jobs, longer=0.5)
    if other is None:
        return _UNKNOWN
    usable = (problem.measure > 0) & (other.degrees > 0)
    places = _places(problem, kernel.t, usable, rng)
    here = _per_volume(kernel, (problem.graph, problem.measure), places.nodes, n_jobs)
    change = _change(problem, here, _on_other(problem, other, kernel, places, n_jobs), places, n_jobs)
    if change > _DOUBTFUL and problem.graph.n_steps is not None:  # steps may be as wide as the space
        narrower = _other_graph(problem, kernel.t, n_jobs, longer=0.5)
        if narrower is not None:
            finer = _on_other(problem, narrower, kernel, places, n_jobs)
            change = min(change, _change(problem, here, finer, places, n_jobs))
    rough = []
    for both in _on_two_surfaces(problem, rng, n_jobs):
        graphs = [_other_graph(problem, kernel.t, n_jobs, longer=1.0, nodes=nodes) for nodes in both]
        first, second = (None if one is None else _on_other(problem, one, kernel, places, n_jobs) for one in graphs)
        if first is not None and second is not None:
            rough.append(places.difference(first, second))
    return (change, _mean_square_root(rough)), places.nodes


def _on_two_surfaces(
    problem: Problem, rng: np.random.Generator, n_jobs: int
) -> Iterator[tuple[FloatArray, FloatArray]]:
    """Nodes on the surface of a noisy cloud, and on one through points with new noise; nothing without noise.

    What noise leaves of the error is the change from the space to the surface through the noisy points, which is
    about the change from this surface to another.
    """
    nodes, surface = problem.graph.positions, problem.graph.projection
    if surface is None or not surface.noise:
        return
    n = max(len(nodes), surface.n_points)
    for _ in range(min(_MOST_DRAWS, -(-_PATCHES // len(surface.widths)))):
        noisy = np.resize(nodes, (n, nodes.shape[1]))  # thinned nodes are repeated
        noisy += surface.noise * rng.standard_normal(noisy.shape)
        moved = surface.fitted_again(noisy, n_jobs).project(noisy[: len(nodes)], n_jobs)
        yield surface.project(moved, n_jobs), moved


def _mean_square_root(values: Sequence[float]) -> float:
    """Root of the mean square; 0 without values."""
    return float(np.sqrt(np.mean(np.square(values)))) if values else 0.0


def _layer_error(problem: Problem, kernel: HeatKernel, nodes: IntArray, n_jobs: int) -> float:
    """The change of the kernel if steps between layers are cut that the fit takes for one."""
    graph = problem.graph
    free = graph.mesh is None and graph.metric is None and not problem.weights_known
    # A cloud that fills its coordinates has no layers.
    fills = problem.dim not in _LAYERED_DIMS or problem.dim == graph.positions.shape[1]
    if not free or fills or graph.n_steps is None:
        return 0.0
    sheets = Sheets.of(graph._search, _PATH_NEIGHBORS)
    some = graph.affinity[np.sort(nodes)]
    steps = some.tocoo()
    apart = sheets.are_apart(_pairs(graph, np.sort(nodes)[steps.row], steps.col))
    if not steps.data[apart].sum() > _LEAK * steps.data.sum():
        return 0.0
    steps = graph.affinity.tocoo()
    kept = sheets.cut(_pairs(graph, steps.row, steps.col))[0]
    single = sparse.csr_array((np.ones(len(kept.rows)), (kept.rows, kept.columns)), shape=steps.shape)
    other = dataclasses.replace(graph, affinity=(graph.affinity * single).tocsr())
    here, there = (_per_volume(kernel, (one, problem.measure), nodes, n_jobs) for one in (graph, other))
    return float(relative_error(there, here))


def _pairs(graph: Graph, rows: IntArray, columns: IntArray) -> Pairs:
    """Pairs of nodes with their distances."""
    return Pairs(rows, columns, np.linalg.norm(graph.positions[rows] - graph.positions[columns], axis=1))


def _is_sparse(problem: Problem) -> bool:
    """Whether a heat graph joins random points of three or more dimensions, where sampling is most of the error."""
    graph = problem.graph
    if graph.n_steps is None or graph.metric is not None or problem.weights_known or problem.dim < _SPARSE_DIM:
        return False
    return Sampling.of_cloud(graph._search, problem.dim).evenness < _EVEN


def _volume_error(problem: Problem) -> float:
    """How much more the volume differs from that by nearest neighbours than these explain.

    Steps as wide as the space find edges where there are none, and half of the nodes find the same.
    """
    volume = problem.unit * float(problem.measure.sum())
    by_neighbors = Sampling.of_cloud(problem.graph._search, problem.dim).volume
    return max(0.0, abs(float(np.log(by_neighbors / volume))) - _ROUGH_VOLUME)


def _shares_of_sparse_cloud(problem: Problem, kernel: HeatKernel, rng: np.random.Generator, n_jobs: int) -> _Shares:
    """The change of the kernel if half of the nodes are left out, of the curvature, the volume, and of noise.

    Steps twice as long are no comparison here: they would be as wide as the space, and do not fit into memory. The
    half is compared at nodes that are left out, because a kernel at its own nodes is higher than elsewhere.
    """
    graph, n = problem.graph, problem.graph.n_nodes
    order = rng.permutation(n)
    half, left_out = np.sort(order[: n // 2]), np.zeros(n, dtype=bool)
    left_out[order[n // 2 :]] = True
    n_steps = 2 * int(np.ceil(round(kernel.t / graph.time(1.0)) / 3))  # fewer and wider, for fewer nodes
    places = _places(problem, kernel.t, left_out & (problem.measure > 0), rng)

    def by_half(positions: FloatArray) -> FloatArray:
        nodes = NeighborSearch(positions[half], None, n_jobs)
        other = heat_graph(nodes, kernel.t, n_steps=n_steps, dim=problem.dim)
        return problem.unit * _at_new_points(other, positions[places.nodes])

    here = _per_volume(kernel, (graph, problem.measure), places.nodes, n_jobs)
    with without_warnings(GraphWarning):
        try:
            there = by_half(graph.positions)
            drawn = _on_two_surfaces(problem, rng, n_jobs)
            rough = [places.difference(*(by_half(nodes) for nodes in both)) for both in drawn]
        except ValueError:  # too few nodes
            return _UNKNOWN
    half_error = _FROM_HALF * places.difference(here, there)
    shares = max(half_error, _volume_error(problem)), _curvature_error(problem), _mean_square_root(rough)
    return shares, places.nodes


def _at_new_points(graph: Graph, points: FloatArray) -> FloatArray:
    """The kernel of all steps of a heat graph between new points, per unit of volume."""
    rows = graph.extend(points)
    sums = np.asarray(rows.sum(axis=1)).ravel()
    scale = np.divide(1.0, sums, out=np.zeros_like(sums), where=sums > 0)
    half = (rows.multiply(scale[:, None]) @ sparse.diags_array(_weights_of(graph) ** -0.5)).T.toarray()
    for _ in range(int(graph.n_steps or 0) // 2 - 1):
        half = graph.operator @ half
    return np.asarray(half.T @ half)


def _curvature_error(problem: Problem) -> float:
    """What is left of the bias of steps along straight lines where the graph was corrected for it."""
    graph, extension = problem.graph, problem.graph.extension
    if not isinstance(extension, HeatExtension) or np.isclose(extension.bandwidth, 4 * graph.time(1.0), rtol=1e-6):
        return 0.0
    mu = _weights_of(graph)
    bias = step_bias(graph.positions, graph.affinity, mu, extension.bandwidth, problem.dim)
    return 0.0 if bias is None else _SHARE_OF_CURVATURE * abs(bias[1])


def _weights_of(graph: Graph) -> FloatArray:
    """Volumes of the nodes, or degrees if they are not known."""
    return graph.degrees if graph.weights is None else graph.weights


def _places(problem: Problem, t: float, usable: Any, rng: np.random.Generator) -> _Places:
    """Random nodes, weighted by volume; on a mesh with a boundary, random points, few of them on the boundary.

    In an unbounded space only the inside of the ball counts: near the rim, heat is reflected.
    """
    mesh, measure = problem.graph.mesh, problem.measure
    if mesh is not None and len(mesh.boundary_vertices):
        found = mesh.sample(_SURFACE_PROBES, seed=rng)
        corners = barycentric_weights(mesh, found)[usable[mesh.faces[found.faces]].all(axis=1)]
        if corners.shape[0]:
            nodes = rng.permutation(np.unique(corners.indices))  # the first of them are used as random nodes
            return _Places(nodes, corners[:, nodes], np.ones(corners.shape[0]))
    if problem.ball is not None:
        depth = problem.ball._depth(problem.graph.positions)
        inside = usable & (depth < problem.ball.radius - _FROM_RIM * np.sqrt(t))
        usable = inside if np.count_nonzero(inside) >= _FEWEST_INSIDE else usable
    candidates = np.flatnonzero(usable)
    nodes = rng.choice(candidates, min(len(candidates), _PROBES), replace=False)
    return _Places(nodes, sparse.eye_array(len(nodes)), measure[nodes] / measure[nodes].mean())


def _on_other(problem: Problem, other: Graph, kernel: HeatKernel, places: _Places, n_jobs: int) -> FloatArray:
    """The kernel on another graph of the same nodes."""
    same: AbstractKernel = kernel
    if problem.graph.n_steps is not None:  # the same time in steps that last longer or shorter
        same = PowerKernel(round(kernel.t / other.time(1.0)))
    return _per_volume(same, (other, _weights_of(other) / problem.unit), places.nodes, n_jobs)


def _change(problem: Problem, here: FloatArray, there: FloatArray, places: _Places, n_jobs: int) -> float:
    """Relative difference to the kernel of another graph, increased by the loss that both graphs have.

    Steps lose the heat beyond their reach. Longer steps lose the same share, so the comparison does not show it.
    """
    change = places.difference(here, there)
    lost, dim = _lost_time(problem), problem.dim
    # The factor is the norm of t dK/dt over that of K, in flat space.
    if lost * np.sqrt(dim**2 / 16 + dim / 8) < _SMALL_PART * change:
        return change
    n_steps = int(problem.graph.n_steps or 0)
    more = _per_volume(PowerKernel(n_steps + 1), (problem.graph, problem.measure), places.nodes, n_jobs)
    # The two errors may cancel, but it is not known how far.
    return max(change, places.difference(here, there - lost * n_steps * (more - here)))


def _lost_time(problem: Problem) -> float:
    """Share of the time of a step (its mean squared length) that lies beyond its reach, for the given nodes."""
    graph, extension = problem.graph, problem.graph.extension
    if not isinstance(extension, HeatExtension):
        return 0.0
    s2, dim = extension.bandwidth, problem.dim
    if graph.metric is not None and graph.metric._gaussian_step(s2, extension.radius)[1] != s2 / 4:
        return 0.0  # the bandwidth accounts for the reach already
    counted = np.flatnonzero(problem.measure > 0)
    some = counted[:: max(1, len(counted) // _TAIL_NODES, len(counted) * graph.n_nodes // _DENSE_HEAT)]
    gaps = distances_between(graph.positions[some], graph.positions, graph.metric)
    lengths = (gaps / np.sqrt(s2)) ** 2  # (s, N)
    beyond = np.where(gaps > extension.radius, np.exp(-lengths) * (2 / dim * lengths - 1), 0.0)
    footprint = (np.pi * s2 * problem.unit ** (-2 / dim)) ** (dim / 2)  # in nodes, because volumes may overflow
    return float((beyond @ problem.measure).mean() / footprint)


def _boundary_error(problem: Problem) -> float:
    """Uncertain share of the volume if the boundary of a cloud is estimated: a gap between nodes along it.

    Close to the boundary Gaussians are cut off, so their scaling factors are larger.
    """
    graph, extension = problem.graph, problem.graph.extension
    guessed = graph.mesh is None and graph.metric is None and not problem.weights_known
    if not guessed or not isinstance(extension, HeatExtension) or graph.weights is None:
        return 0.0
    weights = graph.weights
    scaling = np.divide(extension.factors, weights, out=np.zeros_like(weights), where=weights > 0)
    held = weights[scaling > _CUT_OFF * np.median(scaling)].sum() / weights.sum()
    spacing = (weights.sum() / graph.n_nodes) ** (1 / problem.dim)
    if not held:
        return 0.0
    width = np.sqrt(extension.bandwidth)
    off = edge_uncertainty(Sampling.of_cloud(extension.search, problem.dim), spacing, width)
    if graph.projection is not None:
        off = np.hypot(off, _BLURRED_EDGE * graph.projection.noise)
    return float(off * held / (_RIM_DEPTH * width / np.sqrt(2)))


def _missing_heat(problem: Problem, kernel: HeatKernel, probes: IntArray, n_jobs: int) -> float:
    """How much less heat spreads than in flat space, if nodes are too sparse for the kernel.

    Two graphs whose steps reach no neighbours agree, and both are wrong: the heat of a node stays there. If several
    nodes are under the kernel, curvature may hold heat back, and the result is 0.
    """
    graph = problem.graph
    n_nodes = (4 * np.pi * kernel.t) ** (problem.dim / 2) / (problem.unit * problem.measure[probes])
    lost = probes[n_nodes < _RESOLVED]
    if not len(lost):
        return 0.0
    some = lost[: max(1, _DENSE_HEAT // graph.n_nodes)]
    roots = np.sqrt(problem.measure / problem.measure[some][:, None])  # rows of the kernel become shares of heat
    shares = kernel.matrix(graph, some, n_jobs=n_jobs) * roots  # (s, N)
    gaps = distances_between(graph.positions[some], graph.positions, graph.metric)
    spread = (shares * gaps**2).sum(axis=1) / (2 * problem.dim * kernel.t)
    short = np.clip(1 - spread, 0.0, 1.0)
    return float(np.sqrt(np.mean(short**2) * len(lost) / len(probes)))


def _per_volume(
    kernel: AbstractKernel, measured: tuple[Graph, FloatArray], nodes: IntArray, n_jobs: int
) -> FloatArray:
    """A kernel between nodes, per unit of volume."""
    graph, measure = measured
    roots = np.sqrt(measure[nodes])
    return kernel.matrix(graph, nodes, nodes, n_jobs=n_jobs) / roots[:, None] / roots


def _other_graph(
    problem: Problem, t: float, n_jobs: int, *, longer: float = 2.0, nodes: FloatArray | None = None
) -> Graph | None:
    """A heat graph of the nodes, or of moved ones, with steps of another length; None if it cannot be built."""
    graph = problem.graph
    step = None if graph.n_steps is None else graph.time(longer)
    with without_warnings(GraphWarning):
        try:
            return heat_graph(
                _space_of(graph) if nodes is None else nodes,
                t if step is None else 2 * step,
                n_steps="auto" if step is None else 2,
                weights=_other_weights(problem),
                dim=problem.dim,
                metric=graph.metric,
                noise=0,  # the nodes are on the space already
                n_jobs=n_jobs,
            )
        except ValueError:  # steps too wide for the memory, or too few nodes
            return None


def _space_of(graph: Graph) -> Any:
    """The nodes, their mesh, or the finer mesh that they are vertices of, with as many shorter steps in a step."""
    reach = getattr(graph.extension, "surface", None)
    if not isinstance(reach, SurfaceReach) or reach.fine is None:
        return graph.positions if graph.mesh is None else graph.mesh
    thinned = ThinnedMesh.of(reach.fine, np.arange(reach.fine.n_vertices), graph.n_nodes)
    return dataclasses.replace(thinned, n_inner=inner_steps(reach.fine, graph.time(1.0)))


def _other_weights(problem: Problem) -> Any:
    """Node weights from another source than those of the graph, if possible.

    Estimated weights change with the steps. Weights of an open mesh depend on a model of its boundary; the areas of
    the mesh do not. Weights of a grid are trusted; inside a ball they are estimated, since no boundary matters
    there.
    """
    graph, mesh = problem.graph, problem.graph.mesh
    if mesh is not None:
        whole = graph.extension is None or graph.extension.whole_mesh() is mesh
        return mesh.vertex_areas() if whole and len(mesh.boundary_vertices) else "auto"
    known = graph.weights is not None and problem.weights_known and problem.ball is None
    return graph.weights if known else "auto"
