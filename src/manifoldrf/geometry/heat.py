"""Heat graphs: graphs whose walk is the heat flow of the space.

One step is a Gaussian G of bandwidth s2, scaled at both ends (Sinkhorn) so that it conserves mass. Each node stands
for a volume mu. The integral of exp(-|x - y|^2 / s2) over a space of dimension d without boundary is (pi s2)^(d/2),
so weights with G mu = (pi s2)^(d/2) at every node are a quadrature for the volume. Along straight lines in a curved
space both the integral and the time of a step, s2 / 4, are corrected. Near a boundary only the share m
of the Gaussian lies inside the space: without m, the nodes there would get several times too much weight.
"""

import itertools
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.spatial import cKDTree
from scipy.stats import chi2, norm

from manifoldrf._codec import stored
from manifoldrf._compiling import compiled
from manifoldrf._runtime import one_blas_thread, warn_user, without_warnings
from manifoldrf._validation import (
    NONNEGATIVE,
    POSITIVE,
    FloatArray,
    IntArray,
    Interval,
    check_integer,
    check_jobs,
    check_real,
    check_spread,
    check_vector,
    reject,
)
from manifoldrf.geometry.clouds import CleanCloud, Sheets, check_noise, clean_cloud, estimate_dimension, find_sheets
from manifoldrf.geometry.csr import (
    check_amounts,
    check_csr,
    make_csr,
    product_above,
    read_only,
    reciprocal,
    renumbered,
    scaled_both_ends,
    times,
)
from manifoldrf.geometry.edges import BoundaryModel
from manifoldrf.geometry.graphs import (
    DROP_THEM,
    MERGE_THEM,
    AbstractExtension,
    Graph,
    GraphWarning,
    as_space,
    check_positive_float,
    report_problems,
    warn_of_outliers,
)
from manifoldrf.geometry.local_surface import LocalSurface
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh, barycentric_weights
from manifoldrf.geometry.neighbors import (
    Cells,
    NeighborSearch,
    Pairs,
    distance_to_boundary,
    gaussian_in_cells,
    make_cells,
    matrix_of_pairs,
    nearest_along,
    pairs_along_surface,
    search_of,
)
from manifoldrf.geometry.sampling import Sampling, ThinnedMesh, ball_volume

__all__ = ["heat_graph"]

_PREPARED = (TriangleMesh, ThinnedMesh, NeighborSearch, CleanCloud)  # spaces that are used as they are

_LONGEST_TIME = 1e300  # the square of the largest coordinate; multiples of it stay finite
# Share of a Gaussian step beyond the reach of a node: distance^2 > 9 s2 on surfaces. A reach of 6 s2 costs a
# factor 10 in accuracy on the sphere; a reach of 16 s2 gains nothing.
_TAIL = float(np.exp(-9.0))
# Number of nodes required in the footprint (pi s2)^(d/2) of a step: evenly spread points need few, random points
# need many. Known weights allow the narrowest steps. Estimated weights need wider steps for accurate boundaries
# (cylinder grid, t = .02: .006 with 8 nodes, .027 with 4.5).
_FOOTPRINT_KNOWN, _FOOTPRINT_EVEN, _FOOTPRINT_RANDOM = 4.5, 8.0, 20.0
_EVENNESS_EVEN, _EVENNESS_RANDOM = 1.6, 0.9
# Above this dimension a few thousand nodes are too few: with 6000 nodes the error is 6 to 25 % on S^5, and more
# than 50 % on S^9.
_RELIABLE_DIM = 5
_VOTERS, _SMALLEST_VOTE = 6, 1e-3  # nearest nodes that decide which layer a query is on, and the least share
# From this dimension on, steps are so wide that chords matter. On surfaces the correction gains nothing, and heat
# kernels of long times would be off by .0007 instead of .0002.
_CURVED_DIM = 3
_LAYERED_DIM = 3  # layers are looked for up to this dimension
_TOO_MANY_STEPS = 10_000
_WIDEST_STEP = 0.01  # s2 over the squared extent of the space: wider steps do not resolve its shape
_MOST_STEPS = 72  # with more steps, the nodes are far denser than the kernel needs
# Limits for the entries of the affinity matrix. The first takes about .8 GB while it is built. Steps between random
# points need 200 neighbours, and larger clouds get them up to the second limit: 4 GB for 500,000 points. Even
# larger clouds get fewer neighbours, but at least 64.
_MOST_ENTRIES, _NEIGHBORS_NEEDED, _MOST_OF_LARGE = 2e7, 200.0, 1e8
_REMEDY = "a larger t, more points, or on a mesh parts that share vertices"
# Rounds of s2 <- s2 t / (time of its step): the time is nearly linear in s2. 5 to 15 were needed on H^2 to H^4 and
# S^2 for steps up to .25, 29 on S^5.
_CLOCK_ROUNDS, _CLOCK_TOLERANCE = 100, 1e-12
# The straight line between two points is shorter than their path, so steps of a cloud last longer than s2 / 4, and
# their integral differs from (pi s2)^(d/2). Smaller biases are not worth a second graph.
_SMALLEST_BIAS = 0.005
# Sinkhorn factors differ from their median where a Gaussian is cut off. If they do at a tenth of the volume,
# the cloud has edges, which bias the measurement.
_CLOSED, _OPEN_SHARE = 0.02, 0.1
# Beyond these limits steps are as wide as the space, and series in s2 say nothing. (On the 3-torus of unit circles
# steps of s2 = .8 have a bias of .34, and the correction reduces the error from .14 to .05.)
_WIDEST_DRIFT, _LARGEST_BIAS = 0.6, 0.5
# The clock is measured for the longest waves. Shorter ones, which make up the kernel, feel .6 to .85 of the bias
# from curvature (exact spectra of S^3 to S^5, flat 3-torus and SO(3), 2 to 6 steps).
_SLOWER_WAVES = 0.25
_CURVATURE_NODES = 200  # nodes at which the normal spread is measured: it varies by 20 % from node to node
_SMALLEST_WEIGHT = 1e-307  # dividing by smaller weights overflows
_LARGEST_VOLUME = 1e300  # sums of a few hundred larger weights overflow
_SINKHORN_ROUNDS, _SINKHORN_TOLERANCE = 1000, 1e-12  # about 35 rounds reach it on every space tried
# Rounds of mu <- mu m / (G mu). Random sphere clouds gain another factor 2 from 60 to 300 rounds, but with an
# estimated boundary, more than about 60 rounds fit the error of the half-space model (cylinder, t = .02: .026 to
# .033).
_ROUNDS_WITH_BOUNDARY = 60
_ROUNDS_CLOSED = 240  # if no boundary was found
# Vertex areas are a good start: in 100 rounds an even sphere mesh goes from .005 to .0007, the cortex from .097 to
# .075 (t = 30). With a boundary, 20 and 60 rounds differ by less than 5 %.
_ROUNDS_CLOSED_MESH, _ROUNDS_OPEN_MESH = 100, 20
# Where less of a Gaussian is inside a half-space, areas say how much is inside the mesh. 700 vertices, t =
# .01: random square .087 with the share of the half-space, .026 with areas as they are, .024 with this; random
# triangle .117, .021, .021; random cylinder .068, .035, .031; even square .022, .012, .008; even cylinder .0048,
# .0113, .0087, the only one where the half-space is better: its boundary has no corners and is evenly sampled.
_COMPLETE = 0.98
# Steps of thinned meshes consist of at most this many steps between finer vertices: with 8 steps between 30,000 of
# 40,000 vertices of an even sphere mesh the kernel is .008 off, with 4 between 20,000 it is .002 off. On the way,
# shares of the peak below the second number are dropped.
_MOST_INNER, _NEGLIGIBLE = 6, 1e-6
# Median edges of a thinned mesh. Without this slack half of the vertices of an even sphere mesh are .013 off, with
# it .0013.
_SLACK = 1.0
# The boundary distances converge together with the weights; late changes are small.
_REFRESH = (2, 5, 9, 14, 20, 40)
_MEASURED_FROM = 20  # before, weights are too rough to find edges


def heat_graph(
    points: ArrayLike | TriangleMesh | ThinnedMesh | NeighborSearch | CleanCloud,
    t: float,
    *,
    n_steps: int | str = "auto",
    weights: str | ArrayLike = "auto",
    dim: int | None = None,
    metric: AbstractManifold | None = None,
    noise: float | str = "auto",
    n_jobs: int = -1,
) -> Graph:
    """Build the graph whose walk is the heat flow of the space: W^n_steps is the heat operator at time ``t``.

    Parameters
    ----------
    points : array-like of shape (n, d), TriangleMesh or CleanCloud
        The nodes. On a mesh these are its vertices, and steps go along the surface. In a cloud of at most three
        dimensions, steps between layers that nearly touch are cut. Internal: a ThinnedMesh, whose nodes are some
        vertices of a mesh, or a NeighborSearch over valid points, with its own metric and threads.
    t : float
        Heat time, in the square of the unit of the points; the kernel is about sqrt(2 t) wide.
    n_steps : "auto" or even int, default="auto"
        Number of steps that make up ``t``. With more steps, each step is narrower. This reduces the error from
        curvature, but each step needs enough nodes around every node. "auto" chooses from the density and evenness
        of the nodes.
    weights : "auto" or array-like of shape (n,), default="auto"
        The volume each node stands for. "auto" starts from the vertex areas of a mesh and from the density of a
        cloud, and corrects them iteratively. The boundary of a mesh is known, the boundary of a cloud is detected.
        Pass the weights if they are known (:meth:`grid_weights` of a manifold).
    dim : int, optional
        Intrinsic dimension. By default 2 on a mesh, that of the metric if there is one, and estimated otherwise.
    metric : AbstractManifold, optional
        Measure distances along this manifold (boundaries are not detected then).
    noise : "auto" or float, default="auto"
        Standard deviation of the noise in each coordinate of a cloud, see :func:`clean_cloud`: noisy points are
        moved onto the space, and outliers are left out with a warning. 0 takes the points as they are, and so does
        "auto" if weights or a metric are given.
    n_jobs : int, default=-1
        Threads, -1 for all cores; the result does not depend on it.

    Returns
    -------
    Graph
        With ``n_steps``, ``weights`` (mu, summing to the volume) and ``step_time`` = t / n_steps. The heat kernel
        between nodes is mu_i^-1/2 (W^n_steps)_ij mu_j^-1/2.

    Examples
    --------
    >>> from manifoldrf import Sphere, heat_graph
    >>> graph = heat_graph(Sphere().grid(1000), t=0.1)
    >>> round(float(graph.weights.sum()), 2)  # the area, 12.57, found from the points alone
    12.57
    >>> round(graph.time(graph.n_steps), 6)
    0.1
    """
    time = check_real(t, "t", POSITIVE)
    check_noise(noise)
    points = as_space(points, "points")
    if metric is None and isinstance(weights, str) and not isinstance(points, _PREPARED):
        points = warn_of_outliers(clean_cloud(points, np.sqrt(2 * time), noise=noise, dim=dim, n_jobs=n_jobs))
    elif noise not in ("auto", 0):
        reject("noise", "'auto' or 0 for meshes and prepared clouds, and with weights or a metric", noise)
    space = _check_space(points, weights, dim, metric, check_jobs(n_jobs))
    steps = _check_steps(n_steps, space, time)
    if not 0 < time / steps <= _LONGEST_TIME:
        reject("t", f"a time of at most {_LONGEST_TIME:g} that can be divided into {steps} steps", t)
    s2, mass = _calibrated(space, time / steps)
    radius = step_reach(s2, space.dim)
    space = _with_sheets(space, s2)
    cells, ordered = space.cells(radius), space
    if cells is not None:  # neighbours are then close in memory, and products take half of the time
        known = None if space.weights is None else space.weights[cells.nodes]
        ordered = replace(space, points=space.points[cells.nodes], weights=known)
    solved = _solve(ordered, s2, mass)
    corrected = _corrected(ordered, s2, solved) if space.corrects_chords else None
    if corrected is not None:
        s2, mass = corrected
        radius, solved = step_reach(s2, space.dim), _solve(ordered, s2, mass)
    mu, factors, affinity, pairs, n_cut = solved
    if cells is not None:
        back = np.argsort(cells.nodes)
        mu, factors, affinity = mu[back], factors[back], renumbered(affinity, cells.nodes, space.n_jobs)
    surface = None if pairs is None else _reach_along(space, pairs, s2, n_cut)
    extension = HeatExtension(space.search, radius, s2, factors, mu, surface)
    located = space.points, space.search.metric, extension
    graph = Graph(affinity, *located, mu, time / steps, steps, space.projection)
    nearest = space.search.knn(space.points, 2)[0][:, 1]
    report_problems(graph, _REMEDY, nearest, DROP_THEM if space.mesh is None else MERGE_THEM)
    return graph


@dataclass(frozen=True)
class _Space:
    """The nodes: a search over their points, and the mesh if they are its vertices."""

    search: NeighborSearch
    points: FloatArray  # the points of the search, possibly in another order
    dim: int
    mesh: TriangleMesh | None
    weights: FloatArray | None  # the volume each node stands for, if it is known
    projection: LocalSurface | None = None
    sheets: Sheets | None = None  # along which steps go, if a cloud has layers
    thinned: ThinnedMesh | None = None  # what the mesh stands for, if it is a part of another

    @property
    def n_jobs(self) -> int:
        return self.search.threads

    @property
    def corrects_chords(self) -> bool:
        """Whether steps go along straight lines, which are shorter than the paths of a curved space."""
        return self.mesh is None and self.search.metric is None and self.dim >= _CURVED_DIM

    def cells(self, radius: float) -> Cells | None:
        """Cells of the size of a radius; None if distances are not straight or in more than three dimensions."""
        straight = self.mesh is None and self.search.metric is None and self.sheets is None
        return make_cells(self.points, radius) if straight else None


def _with_sheets(space: "_Space", s2: float) -> "_Space":
    """The space with its layers, if steps would jump between them. The model of edges looks twice as far."""
    if space.mesh is not None or space.search.metric is not None or space.dim > _LAYERED_DIM:
        return space
    return replace(space, sheets=find_sheets(space.search, 2 * s2, step_reach(2 * s2, space.dim)))


def _reach_along(space: "_Space", pairs: Pairs, s2: float, n_cut: int) -> "SurfaceReach | SheetReach | None":
    """How new points step along a mesh or a layer; None if they step straight."""
    n = len(space.points)
    if space.sheets is not None:
        return SheetReach(space.search, matrix_of_pairs(np.ones(len(pairs.rows)), pairs, n), s2, n_cut)
    if space.mesh is None:
        return None
    straight = np.linalg.norm(space.points[pairs.rows] - space.points[pairs.columns], axis=1)
    # How much longer than the straight line each step is: zero, except between folds.
    fine = None if space.thinned is None or space.thinned.fine is None else space.thinned.fine.mesh
    return SurfaceReach(space.mesh, read_only(matrix_of_pairs(pairs.distances - straight, pairs, n)), fine)


def _check_space(
    points: ArrayLike | TriangleMesh | ThinnedMesh | NeighborSearch | CleanCloud,
    weights: str | ArrayLike,
    dim: int | None,
    metric: AbstractManifold | None,
    n_jobs: int,
) -> _Space:
    """Validate the nodes and their weights."""
    thinned, points = (points, points.mesh) if isinstance(points, ThinnedMesh) else (None, points)
    if isinstance(points, TriangleMesh):
        if metric is not None:
            reject("metric", "None on a mesh, where steps follow the edges", repr(metric))
        if dim not in (None, 2):
            reject("dim", "2 or None on a mesh", dim)
        check_spread(points.vertices, "points")
        given = _check_weights(weights, points.n_vertices, NONNEGATIVE)  # vertices without faces have weight 0
        return _Space(
            NeighborSearch(points.vertices, None, n_jobs), points.vertices, 2, points, given, thinned=thinned
        )
    projection = None
    if isinstance(points, CleanCloud):
        dim, projection, points = dim or points.dim, points.surface, points.search
    search = search_of(points, metric, n_jobs, min_rows=3)
    cloud, metric = search.points, search.metric
    if dim is None:
        dim = estimate_dimension(search) if metric is None else metric.dim
    if metric is not None and dim != metric.dim:
        reject("dim", f"that of the metric, {metric.dim}, or None", dim)
    check_integer(dim, "dim", 1, cloud.shape[1])
    if len(cloud) < dim + 2:
        reject("points", f"at least {dim + 2} rows to fill a space of dimension {dim}", f"shape {cloud.shape}")
    return _Space(search, cloud, dim, None, _check_weights(weights, len(cloud), POSITIVE), projection)


def _check_weights(weights: str | ArrayLike, n: int, interval: Interval) -> FloatArray | None:
    """Given node weights, or None for "auto"."""
    if isinstance(weights, str) and weights == "auto":
        return None
    if isinstance(weights, str) or weights is None:
        reject("weights", f"'auto' or a vector of shape ({n},)", repr(weights))
    given = check_vector(weights, "weights", n, interval, np.finfo(np.float64).max)
    if not given.any():
        reject("weights", "positive somewhere", "zeros only")
    with np.errstate(over="ignore"):
        largest, total = float(given.max()), float(given.sum())
    if largest < _SMALLEST_WEIGHT:
        reject("weights", f"at least {_SMALLEST_WEIGHT:g} somewhere", f"{largest} at most")
    if total > _LARGEST_VOLUME:
        reject("weights", f"a vector with a sum of at most {_LARGEST_VOLUME:g}", total)
    return given.copy()  # the caller may change the original later


def check_steps(n_steps: Any, name: str = "n_steps") -> None:
    """Raise unless it is "auto" or an even number of steps."""
    if isinstance(n_steps, str) and n_steps == "auto":
        return
    is_count = isinstance(n_steps, int | np.integer) and not isinstance(n_steps, bool)
    if not is_count or int(n_steps) < 2 or int(n_steps) % 2:
        kind = ValueError if is_count or isinstance(n_steps, str) else TypeError
        reject(name, "'auto' or an even integer in [2, inf)", repr(n_steps), kind)
    check_integer(n_steps, name, 2)


def _check_steps(n_steps: int | str, space: _Space, t: float) -> int:
    """The number of steps, chosen or checked."""
    if space.dim > _RELIABLE_DIM:
        warn_user(
            f"Nodes fill a space of dimension {space.dim} too sparsely for heat kernels: above dimension "
            f"{_RELIABLE_DIM} expect errors of tens of per cent (remedy: knn_graph, whose kernels need no volume).",
            GraphWarning,
        )
    check_steps(n_steps)
    sampling = Sampling.of_cloud(space.search, space.dim) if space.mesh is None else Sampling.of_mesh(space.mesh)
    fewest = fewest_steps(sampling, t)
    if isinstance(n_steps, str):
        return _choose_steps(space, sampling, fewest, t)
    if n_steps < fewest:
        rule = f"at least {fewest} for {len(space.points)} nodes, or the graph would take too much memory"
        reject("n_steps", rule, n_steps)
    return int(n_steps)


def _choose_steps(space: _Space, sampling: Sampling, fewest: int, t: float) -> int:
    """As many steps as the sampling supports, with enough nodes in the footprint of each."""
    n, extent2 = len(space.points), float((np.ptp(space.points, axis=0) ** 2).sum())
    narrow = 4 * t / (_WIDEST_STEP * extent2)  # steps that still resolve the shape of the space
    if narrow > _TOO_MANY_STEPS:
        reject("t", f"at most {25 * extent2:g} here (heat is spread evenly long before)", f"{t:g}")
    if fewest > _TOO_MANY_STEPS:
        rule = f"at most {t * _TOO_MANY_STEPS / fewest:.2g} for {n} nodes (or use points[thin(points, 4000)])"
        reject("t", rule, f"{t:g}")
    composed = space.thinned is not None and space.thinned.fine is not None  # narrow steps gain nothing
    wanted = _wanted_footprint(
        sampling, known=space.weights is not None or (space.mesh is not None and not composed)
    )
    # (pi 4 t / n)^(d/2) density = wanted, solved for n
    steps = 4 * np.pi * t * (sampling.sparse_density / wanted) ** (2 / space.dim)
    if steps < 1:
        held = wanted * (steps / 2) ** (space.dim / 2)
        warn_user(
            f"t = {t:g} is short for {n} nodes: where they are sparsest, a step reaches about {held:.2g} nodes "
            f"and should reach {wanted:.2g} (remedy: more points or a larger t).",
            GraphWarning,
        )
    if steps > _MOST_STEPS:
        enough = max(500, int(n * (_MOST_STEPS / steps) ** (space.dim / 2)))
        if enough < n:
            remedy = f"points[thin(points, {enough})]" if space.mesh is None else "a coarser mesh"
            text = f"{n} nodes are far finer than t = {t:g} needs: it works, but slowly (remedy: {remedy})."
            warn_user(text, GraphWarning)
        steps = min(steps, max(_MOST_STEPS, narrow))
    return max(2, 2 * round(float(steps) / 2), fewest)


def _wanted_footprint(sampling: Sampling, *, known: bool) -> float:
    """Nodes that a step should reach: few if they are evenly spread, fewer still if their weights are known."""
    even = _FOOTPRINT_KNOWN if known else _FOOTPRINT_EVEN
    share = np.clip((sampling.evenness - _EVENNESS_RANDOM) / (_EVENNESS_EVEN - _EVENNESS_RANDOM), 0.0, 1.0)
    return float(_FOOTPRINT_RANDOM * (even / _FOOTPRINT_RANDOM) ** share)


def fewest_steps(sampling: Sampling, t: float) -> int:
    """Fewest (widest) steps for which the affinity matrix stays within memory; even."""
    if sampling.n**2 <= _MOST_ENTRIES:
        return 2  # all entries fit
    per_row = max(64.0, min(max(_MOST_ENTRIES / sampling.n, _NEIGHBORS_NEEDED), _MOST_OF_LARGE / sampling.n))
    reach2 = (per_row / (sampling.mean_density * ball_volume(sampling.dim))) ** (2 / sampling.dim)
    return 2 * int(np.ceil(t / reach2 * chi2.isf(_TAIL, sampling.dim)))


def step_reach(s2: float, dim: int) -> float:
    """Radius that holds all but the share _TAIL of a Gaussian step."""
    return float(np.sqrt(s2 / 2 * chi2.isf(_TAIL, dim)))


def _calibrated(space: _Space, step_time: float) -> tuple[float, float]:
    """Bandwidth of the Gaussian whose step lasts ``step_time``, and its integral over the space."""
    metric, flat = space.search.metric, 4 * step_time
    if metric is None:
        return flat, (np.pi * flat) ** (space.dim / 2)
    s2 = flat
    for _ in range(_CLOCK_ROUNDS):
        mass, found = metric._gaussian_step(s2, step_reach(s2, space.dim))
        if abs(found - step_time) <= _CLOCK_TOLERANCE * step_time:
            return s2, mass
        if not 0 < found < np.inf:
            break
        s2 *= step_time / found
    rule = f"larger, so that a step is at most a tenth of the squared radius of curvature of {metric}"
    reject("n_steps", rule, f"steps of {step_time:.3g}, too long for any Gaussian")


def _solve(space: _Space, s2: float, mass: float) -> tuple[FloatArray, FloatArray, Any, Pairs | None, int]:
    """Node weights, weights times Sinkhorn factors, affinities, the pairs, if listed, and the number cut."""
    composed, n_cut = _composed(space, s2), 0
    if composed is None:
        gaussian, pairs, n_cut = _gaussian(space, s2)
        mu = _node_weights(space, gaussian, s2, mass)
    else:
        gaussian, pairs, mu = composed
    factors = mu * _sinkhorn(gaussian, mu, space.n_jobs)
    # A_ij = G_ij factors_i factors_j, exactly symmetric
    data = scaled_both_ends(gaussian, factors, space.n_jobs)
    affinity = sparse.csr_array((data, gaussian.indices, gaussian.indptr), shape=gaussian.shape)
    if np.count_nonzero(data) < len(data):  # nodes without weight
        affinity = affinity.copy()  # the pattern is shared
        affinity.eliminate_zeros()
    return mu, factors, affinity, pairs, n_cut


def _composed(space: _Space, s2: float) -> tuple[Any, Pairs, FloatArray] | None:
    """A step between the nodes of a thinned mesh, made of shorter steps between more of its vertices; node weights.

    Straight lines are shorter than paths on a rough surface, and the error grows with the length of a step. The
    values are those of a Gaussian, with 1 on the diagonal, of the distances in the list of pairs. The result is
    None if the mesh has no vertices for shorter steps.
    """
    thinned = space.thinned
    if thinned is None or thinned.fine is None or space.weights is not None:
        return None
    n_inner = thinned.n_inner or inner_steps(thinned.fine.mesh, s2 / 4)
    if n_inner < 2:
        return None
    n = len(space.points)
    operator, inner_weights, at = _inner_steps(thinned.fine, s2 / 4, n_inner, space.n_jobs)
    own = np.argsort(at[:n])  # the nodes in the order of the operator
    rows = operator[at[own]]
    for _ in range(n_inner // 2 - 1):
        rows = product_above(rows, operator, _NEGLIGIBLE * rows.max(axis=1).toarray().ravel(), space.n_jobs)
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    rows = (sparse.diags_array(reciprocal(lengths)) @ rows).tocsr()
    steps = product_above(rows, rows.T.tocsr(), np.full(n, _TAIL), space.n_jobs)
    steps, lengths = renumbered(steps, own, space.n_jobs), lengths[np.argsort(own)]
    steps = ((steps + steps.T) / 2 + sparse.diags_array((steps.diagonal() == 0).astype(np.float64))).tocsr()
    steps.data = np.minimum(steps.data, 1.0)
    entries = np.repeat(np.arange(n), np.diff(steps.indptr))
    pairs = Pairs(entries, steps.indices.astype(np.int64), np.sqrt(-s2 * np.log(steps.data)))
    # The kernel is steps_ij peak_i peak_j. Heat does not leave at a boundary, so its integral is 1 at every node.
    peaks = lengths * reciprocal(np.sqrt(inner_weights[at[:n]]))
    areas = thinned.areas * peaks
    weights = _correct(steps, areas, reciprocal(peaks), _ROUNDS_CLOSED_MESH, space.n_jobs) * reciprocal(peaks)
    return steps, pairs, np.asarray(weights * (thinned.areas.sum() / weights.sum()))


def _inner_steps(fine: ThinnedMesh, time: float, n_steps: int, n_jobs: int) -> tuple[Any, FloatArray, IntArray]:
    """Operator of a heat graph between the finer vertices of a thinned mesh, their weights, and where each is.

    The order is that of a k-d tree: neighbours are then close in memory, and products take half of the time.
    """
    order = np.asarray(cKDTree(fine.mesh.vertices).indices, dtype=np.int64)
    at = np.argsort(order)
    mesh = TriangleMesh(fine.mesh.vertices[order], at[fine.mesh.faces])
    space = _check_space(ThinnedMesh(mesh, fine.areas[order], fine.depths[order]), "auto", None, None, n_jobs)
    s2 = 4 * time / _check_steps(n_steps, space, time)
    with without_warnings(GraphWarning):  # about nodes that are reported again for the whole graph
        mu, _, affinity = _solve(space, s2, np.pi * s2)[:3]
    return Graph(affinity).operator, mu, at


def inner_steps(fine: TriangleMesh, time: float) -> int:
    """Even number of steps between finer vertices that make up a time; 1 if they are too sparse for that."""
    sampling = Sampling.of_mesh(fine)
    steps = 4 * np.pi * time * sampling.sparse_density / _wanted_footprint(sampling, known=True)
    return 2 * round(min(float(steps), _MOST_INNER) / 2) if steps >= 1.5 else 1


def _corrected(space: _Space, s2: float, solved: tuple[FloatArray, FloatArray, Any, Any, int]) -> Any:
    """Bandwidth and integral of a step of the time s2 / 4, if a closed cloud shows that the flat ones are wrong.

    If they are right, the cloud has edges, or steps are too wide for the space, the result is None.
    """
    mu, factors, affinity = solved[:3]
    scaling = factors / mu  # larger where a Gaussian is cut off
    cut_off = np.abs(scaling / np.median(scaling) - 1) > _CLOSED
    if mu[cut_off].sum() > _OPEN_SHARE * mu.sum():
        return None
    bias = step_bias(space.points, affinity, mu, s2, space.dim, space.n_jobs)
    if bias is None or max(abs(bias[0] - 1), abs(bias[1])) < _SMALLEST_BIAS:
        return None
    clock, mass = bias
    # The bias from curvature is proportional to the bandwidth; what nodes are short of, wider steps find.
    ratio = clock / (2 * clock - 1) if clock > 1 else 2 - clock
    return s2 * ratio, (np.pi * s2 * ratio) ** (space.dim / 2) * np.exp(mass * ratio)


@one_blas_thread()
def step_bias(
    points: FloatArray, affinity: Any, mu: FloatArray, s2: float, dim: int, n_jobs: int = 1
) -> tuple[float, float] | None:
    """Time of a step over s2 / 4, and log of its integral over (pi s2)^(d/2); None if it is too wide to say.

    With P the step and x the coordinates, whose gradients have d for the sum of their squares, the time of P is
    <x, -log P x> / d. The spread of a step normal to the space, s2^2 / 8 times the squared second fundamental form,
    and its mean, s2 / 4 times the mean curvature, give the integral: docs/theory.md has the formulas.
    """
    share = mu / mu.sum()
    places = (points - share @ points) / np.sqrt(s2)  # squares of other units may overflow
    drift = times(affinity, places, n_jobs) / mu[:, None] - places  # (N, D): P x - x
    first = -float(share @ (places * drift).sum(axis=1))  # <x, (1 - P) x>
    second = float(share @ (drift**2).sum(axis=1))  # <x, (1 - P)^2 x>
    if not 0 < second < _WIDEST_DRIFT * first:
        return None
    # Exact if all coordinates have one frequency, as on spheres.
    series = -np.log1p(-second / first) * first / second
    clock = 4 / dim * first * series
    normal = _normal_spread(places, affinity, mu, dim)
    curved = 2 / dim * normal  # what curvature adds to the clock; the rest of its bias comes from sampling
    by_length = dim / 2 * ((1 + curved) / series - 1)  # d log(integral) / d log(s2) = E|x - y|^2 / s2 - d / 2
    clock -= _SLOWER_WAVES * curved
    return None if abs(clock - 1) > _LARGEST_BIAS else (float(clock), float(normal - second + by_length) / 2)


def _normal_spread(points: FloatArray, affinity: Any, mu: FloatArray, dim: int) -> float:
    """Mean variance of a step normal to the space: all but the d largest local principal components."""
    some = np.unique(np.linspace(0, len(points) - 1, _CURVATURE_NODES).astype(np.int64))
    nodes = np.argsort(mu, kind="stable")[some]  # the same whatever the order of the points
    spreads = np.zeros(len(nodes))
    for k, node in enumerate(nodes):
        entries = slice(affinity.indptr[node], affinity.indptr[node + 1])
        shares = affinity.data[entries] / affinity.data[entries].sum()
        around = points[affinity.indices[entries]]
        offsets = (around - shares @ around) * np.sqrt(shares)[:, None]  # (neighbours, D)
        gram = offsets.T @ offsets if offsets.shape[0] > offsets.shape[1] else offsets @ offsets.T
        spreads[k] = np.linalg.eigvalsh(gram)[:-dim].sum()
    return float(spreads @ mu[nodes] / mu[nodes].sum())


def _gaussian(space: _Space, s2: float) -> tuple[Any, Pairs | None, int]:
    """G_ij = exp(-distance^2 / s2) on the pairs one step joins, self-loops included, as symmetric CSR.

    Also the pairs, and how many were cut. If the nodes are sorted into cells, no list of pairs is made.
    """
    radius = step_reach(s2, space.dim)
    cells = space.cells(radius)
    if cells is not None:
        return gaussian_in_cells(cells, s2, space.n_jobs), None, 0
    n_cut = 0
    if space.mesh is None:
        pairs = space.search.within(space.points, radius)
        if space.sheets is not None:
            pairs, n_cut = space.sheets.cut(pairs)
    else:
        edge = 0.0 if space.thinned is None else _SLACK * float(np.median(space.mesh.edge_lengths()))
        pairs = pairs_along_surface(space.mesh, radius, slack=edge, n_jobs=space.n_jobs)
    return matrix_of_pairs(np.exp(-(pairs.distances**2) / s2), pairs, len(space.points)), pairs, n_cut


def _node_weights(space: _Space, gaussian: Any, s2: float, mass: float) -> FloatArray:
    """The volume that each node stands for: given, corrected areas of a mesh, or estimated from a cloud."""
    if space.weights is not None:
        return space.weights
    if space.mesh is not None:
        # The boundary of a mesh is known. Away from it all of a Gaussian is inside.
        thinned = space.thinned
        if thinned is None:
            thinned = ThinnedMesh(space.mesh, space.mesh.vertex_areas(), distance_to_boundary(space.mesh))
        distance, areas = thinned.depths, thinned.areas
        rounds = _ROUNDS_CLOSED_MESH if np.isinf(distance).all() else _ROUNDS_OPEN_MESH
        complete = norm.cdf(distance / np.sqrt(s2 / 2)) > _COMPLETE
        share = np.ones(len(areas))
        if not complete.all():  # vertices that are too few for their steps have more than a whole Gaussian
            inside = np.minimum(times(gaussian, areas, space.n_jobs), 2 * mass) / mass
            share[~complete] = inside[~complete]
        weights = _correct(gaussian, areas, share, rounds, space.n_jobs)
        return np.asarray(weights * (areas.sum() / weights.sum()))
    boundary = None
    # Tangent planes are meaningless in the coordinates of a curved metric.
    if space.search.metric is None and space.dim <= _RELIABLE_DIM:
        evenness = Sampling.of_cloud(space.search, space.dim).evenness
        wide = _gaussian(space, 2 * s2)[0]
        boundary = BoundaryModel(space.points, wide, s2, space.dim, evenness=evenness, n_jobs=space.n_jobs)
    return cloud_weights(gaussian, mass, boundary, space.n_jobs)


def _sinkhorn(gaussian: Any, mu: FloatArray, n_jobs: int) -> FloatArray:
    """Scaling u with u_i sum_j G_ij u_j mu_j = 1: makes the step conserve mass and stay symmetric."""
    scaling = np.full(len(mu), 1.0 / np.sqrt(float(times(gaussian, mu, n_jobs).mean())))
    for _ in range(_SINKHORN_ROUNDS):
        flow = times(gaussian, scaling * mu, n_jobs)
        if np.abs(scaling * flow - 1)[mu > 0].max() <= _SINKHORN_TOLERANCE:
            return scaling
        scaling = np.sqrt(np.divide(scaling, flow, out=np.zeros_like(flow), where=flow > 0))
    residual = float(np.abs(scaling * times(gaussian, scaling * mu, n_jobs) - 1)[mu > 0].max())
    warn_user(
        f"The Sinkhorn scaling stopped after {_SINKHORN_ROUNDS} rounds with a residual of {residual:.1e}. Causes: "
        "(a) weights that differ by many orders of magnitude, (b) nodes with very few neighbours. "
        "Remedy: a larger t.",
        GraphWarning,
    )
    return scaling


def cloud_weights(gaussian: Any, mass: float, boundary: BoundaryModel | None, n_jobs: int = 1) -> FloatArray:
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
                share = (boundary.rough_share if end < _MEASURED_FROM else boundary.inside_share)(weights)
    if (share == 1).all():
        weights = _correct(gaussian, weights, share, _ROUNDS_CLOSED, n_jobs)
    return weights * mass


def _correct(gaussian: Any, weights: FloatArray, share: FloatArray, rounds: int, n_jobs: int) -> FloatArray:
    """Rounds of mu <- mu m / (G mu); zero weights stay zero."""
    for _ in range(rounds):
        flow = times(gaussian, weights, n_jobs)
        weights = weights * np.divide(share, flow, out=np.zeros_like(flow), where=flow > 0)
    return weights


@stored
@dataclass(frozen=True, eq=False)
class HeatExtension(AbstractExtension):
    """One heat step from a new point: normalised Gaussian weights times the nodes' Sinkhorn factors.

    Attributes
    ----------
    search : NeighborSearch
        The nodes.
    radius : float
        Reach of one step.
    bandwidth : float
        s2 of one step: weights exp(-distance^2 / s2).
    factors : array of shape (n_nodes,)
        u mu: Sinkhorn scaling times node weight.
    weights : array of shape (n_nodes,)
        mu, the node weights; a new point gets the mean weight of the nodes it steps to.
    surface : SurfaceReach or SheetReach, optional
        On a mesh or a cloud with layers: the nodes that a point can step to along the surface.
    """

    search: NeighborSearch
    radius: float
    bandwidth: float
    factors: FloatArray
    weights: FloatArray
    surface: "SurfaceReach | SheetReach | None" = None

    def check(self, n: int, d: int) -> None:
        """Raise unless the extension fits a graph of n nodes with d coordinates."""
        self.search.check(n, d)
        check_positive_float(self.bandwidth, "bandwidth")
        check_positive_float(self.radius, "radius")
        check_amounts("factors", self.factors, n)
        check_amounts("weights", self.weights, n)
        if self.surface is not None:
            self.surface.check(n, d)

    def affinities(self, queries: FloatArray) -> Any:
        """CSR array of shape (len(queries), n_nodes)."""
        if self.surface is None:
            pairs = self.search.within(queries, self.radius)
        else:
            pairs = self.surface.pairs(queries, self.radius)
        indptr = np.searchsorted(pairs.rows, np.arange(len(queries) + 1))
        values = np.zeros(len(pairs.rows))
        heat_steps(indptr, (pairs.columns, pairs.distances), (self.factors, self.weights), self.bandwidth, values)
        return make_csr(values, pairs.columns, indptr, len(self.weights))

    def node_mesh(self) -> TriangleMesh | None:
        """The mesh whose vertices are the nodes, if there is one."""
        return self.surface.mesh if isinstance(self.surface, SurfaceReach) else None

    def whole_mesh(self) -> TriangleMesh | None:
        """The finer mesh that the nodes are vertices of, if there is one."""
        return (isinstance(self.surface, SurfaceReach) and self.surface.fine) or self.node_mesh()


@stored
@dataclass(frozen=True, eq=False)
class SurfaceReach:
    """The nodes of a mesh that a point on its surface can step to along the surface.

    Attributes
    ----------
    mesh : TriangleMesh
    detours : CSR array of shape (n_nodes, n_nodes)
        For each pair of vertices joined by a step: how much longer the step is than the straight line.
    fine : TriangleMesh, optional
        The surface, if the mesh is a coarser one. Its first vertices are the nodes.
    """

    mesh: TriangleMesh
    detours: Any
    fine: TriangleMesh | None = None

    def check(self, n: int, d: int) -> None:
        """Raise unless it fits a graph of n nodes with d coordinates."""
        self.mesh.check_nodes(n, d)
        check_csr("detours", self.detours, (n, n), signed=self.fine is not None)
        if self.fine is not None and not np.array_equal(self.fine.vertices[:n], self.mesh.vertices):
            reject("fine", "a mesh whose first vertices are the nodes", self.fine)

    @cached_property
    def _nearest(self) -> IntArray:
        """The node nearest to each vertex of the finer mesh."""
        return nearest_along(self.mesh if self.fine is None else self.fine, np.arange(self.mesh.n_vertices))

    def _corners(self, queries: FloatArray) -> tuple[FloatArray, Any]:
        """The nearest points of the surface, and the share of each node in them."""
        if self.fine is None:
            nearest = self.mesh.closest_points(queries)
            return nearest.points, barycentric_weights(self.mesh, nearest)
        nearest = self.fine.closest_points(queries)
        inside = self.mesh.closest_points(nearest.points)
        own = self._nearest[self.fine.faces[nearest.faces]]  # (q, 3)
        corners = self.mesh.faces[inside.faces]
        # The nearest coarse face is on another fold if none of its corners is near along the surface.
        strange = ~(own[:, :, None] == corners[:, None, :]).any(axis=(1, 2))
        corners[strange], inside.barycentric[strange] = own[strange], nearest.barycentric[strange]
        indptr = 3 * np.arange(len(queries) + 1)
        return nearest.points, make_csr(inside.barycentric.ravel(), corners.ravel(), indptr, self.mesh.n_vertices)

    def pairs(self, queries: FloatArray, radius: float) -> Pairs:
        """Query-vertex pairs at most ``radius`` apart, through the vertices of the query's nearest face.

        Distances are measured from the point of the surface nearest to the query.
        """
        places, corners = self._corners(queries)
        # In units of the radius: a detour in tiny units of length would be lost when added to one.
        values = np.ones(self.detours.nnz), 1.0 + self.detours.data / radius
        pattern = self.detours.indices, self.detours.indptr
        reached, longer = (corners @ sparse.csr_array((v, *pattern), shape=self.detours.shape) for v in values)
        for product in (reached, longer):  # the same pattern: all terms are positive
            product.sort_indices()
        rows = np.repeat(np.arange(len(queries)), np.diff(reached.indptr))
        columns = reached.indices.astype(np.int64)
        straight = np.linalg.norm(places[rows] - self.mesh.vertices[columns], axis=1)
        distances = straight + radius * (longer.data - reached.data)  # detours interpolated inside the face
        keep = distances <= radius
        return Pairs(rows[keep], columns[keep], np.maximum(distances[keep], 0.0))


@stored
@dataclass(frozen=True, eq=False)
class SheetReach:
    """The nodes of a cloud with layers that a point can step to along its own layer.

    Attributes
    ----------
    search : NeighborSearch
        The nodes.
    joined : CSR array of shape (n_nodes, n_nodes)
        1 for each pair of nodes that is joined by a step.
    bandwidth : float
        s2 of one step.
    n_cut : int
        Number of pairs within the reach of a step that are not joined.
    """

    search: NeighborSearch
    joined: Any
    bandwidth: float
    n_cut: int = 0

    def check(self, n: int, d: int) -> None:
        """Raise unless it fits a graph of n nodes with d coordinates."""
        self.search.check(n, d)
        check_csr("joined", self.joined, (n, n))
        check_positive_float(self.bandwidth, "bandwidth")

    def pairs(self, queries: FloatArray, radius: float) -> Pairs:
        """Query-node pairs at most ``radius`` apart that are joined through the nodes nearest to the query.

        A node joined to only a share of the nearest nodes counts as farther away, so that steps fade out where a
        query moves from one layer to another.
        """
        found = self.search.within(queries, radius)
        k = min(_VOTERS, len(self.search.points) - 1)
        distances, near = self.search.knn(queries, k + 1)
        votes = np.maximum(1 - distances[:, :k] / np.maximum(distances[:, k:], 1e-300), 0.0) ** 2 + 1e-12
        votes /= votes.sum(axis=1, keepdims=True)
        shape = len(queries), len(self.search.points)
        voters = sparse.csr_array(
            (votes.ravel(), near[:, :k].ravel(), k * np.arange(len(queries) + 1)), shape=shape
        )
        share = np.asarray((voters @ self.joined).tocsr()[found.rows, found.columns]).ravel()
        keep = share > _SMALLEST_VOTE
        farther = np.sqrt(found.distances[keep] ** 2 - self.bandwidth * np.log(np.minimum(share[keep], 1.0)))
        return Pairs(found.rows[keep], found.columns[keep], farther)


def cut_pairs(graph: Graph) -> str:
    """How many pairs of nodes were not joined, because they are close only between layers; "" if none were."""
    surface = getattr(graph.extension, "surface", None)
    return f", {surface.n_cut} pairs cut between layers" if isinstance(surface, SheetReach) else ""


@compiled()
def heat_steps(ends, pairs, nodes, bandwidth, out):  # type: ignore[no-untyped-def]
    """Affinities of queries to the nodes they step to: the mean weight of these nodes times the share of each.

    ``pairs`` are columns and distances, ``nodes`` Sinkhorn factors and weights.
    """
    columns, distances = pairs
    factors, weights = nodes
    for i in range(len(ends) - 1):
        begin, end = ends[i], ends[i + 1]
        for p in range(begin, end):
            out[p] = distances[p] * distances[p]
        total = weigh(out[begin:end], columns[begin:end], factors, bandwidth)
        weighted = 0.0
        for p in range(begin, end):
            weighted += out[p] * weights[columns[p]]
        square = total * total
        scale = 0.0  # no step to nodes without weight
        if 0 < square < np.inf and 0 < weighted < np.inf:
            scale = weighted / square
        elif total > 0:  # squares of the volumes overflow or underflow
            for p in range(begin, end):
                scale += out[p] / total * weights[columns[p]]
            scale /= total
        for p in range(begin, end):
            out[p] *= scale


@compiled()
def weigh(squares, columns, factors, bandwidth):  # type: ignore[no-untyped-def]
    """Turn squared distances into weights of a heat step, in place; returns their sum."""
    # Relative to the nearest node: a query off the surface takes the same step, without underflow.
    nearest = np.inf
    for p in range(len(squares)):
        nearest = min(nearest, squares[p])
    total = 0.0
    for p in range(len(squares)):
        squares[p] = np.exp((nearest - squares[p]) / bandwidth) * factors[columns[p]]
        total += squares[p]
    return total
