"""Common tasks that the heat flow solves: smooth a field on a space, and measure distances along it."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.spatial import cKDTree

from manifoldrf._runtime import require, stage_of, warn_user
from manifoldrf._validation import (
    POSITIVE,
    FloatArray,
    Interval,
    check_indices,
    check_jobs,
    check_option,
    check_points,
    check_progress,
    check_real,
    check_spread,
    reject,
)
from manifoldrf.applications.interpolation import WIDEST, Action, Problem, check_known, finish_means, weighted_means
from manifoldrf.features.feature_map import WalkStep
from manifoldrf.geometry.builders import knn_graph, mesh_graph
from manifoldrf.geometry.cleaning import clean_cloud, merge_copies
from manifoldrf.geometry.csr import reciprocal
from manifoldrf.geometry.graphs import Graph, translated
from manifoldrf.geometry.heat import graph_on, space_of
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.neighbors import NeighborSearch
from manifoldrf.kernels.named_kernels import HeatKernel


def smooth(
    space: Any,
    field: ArrayLike,
    *,
    fwhm: float | None = None,
    t: float | None = None,
    known: ArrayLike | None = None,
    n_jobs: int = -1,
    verbose: Any = False,
) -> FloatArray:
    """Smooth a field on a mesh, a cloud or a graph by the heat flow: a Gaussian filter along the space.

    Give the width of the filter or the time of the flow. In the plane, heat from one point is a Gaussian with
    fwhm^2 = 16 ln(2) t. Constants stay constant, and no value leaves the range of the field.

    Parameters
    ----------
    space : TriangleMesh, array-like of shape (n, d), or Graph
        The n vertices, points or nodes carry the field. Meshes use the cotangent Laplacian (extra ``mesh``); heat
        of points goes to the nodes of their :func:`heat_graph` and back.
    field : array-like of shape (n,) or (n, c)
        One or several fields. A row with NaN is unknown.
    fwhm : float, optional
        Full width at half maximum of the filter, in units of the space.
    t : float, optional
        Heat time, in squared units of the space.
    known : bool array-like of shape (n,) or int array-like, optional
        A mask, or the indices of the nodes with known values; by default the rows without NaN.
        Unknown nodes get the mean of the known values around them.
    n_jobs : int, default=-1
        Threads, -1 for all cores; the result does not depend on it.
    verbose : bool or callable (what, done, total), default=False
        Report progress on stderr, or to a function.

    Returns
    -------
    array of the shape of the field
        NaN in components without a known value; a warning counts them.

    Notes
    -----
    Without unknown nodes the integral is preserved: the sum over nodes times their areas, which are the vertex
    areas of a mesh and the degrees of a graph (``weights`` of a heat graph). Areas of points are estimated from
    their density.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Sphere, smooth
    >>> points = Sphere().grid(1000)
    >>> noisy = points[:, 2] + 0.5 * np.random.default_rng(0).standard_normal(1000)
    >>> found = smooth(points, noisy, fwhm=0.6)
    >>> round(float(np.abs(noisy - points[:, 2]).mean()), 2), round(float(np.abs(found - points[:, 2]).mean()), 2)
    (0.39, 0.05)
    """
    time, jobs, space = time_of(fwhm, t), check_jobs(n_jobs), translated(space, "space")
    progress = check_progress(verbose)
    mesh = space if isinstance(space, TriangleMesh) else None
    graph = space if isinstance(space, Graph) else None
    if graph is None:
        points = check_points(space, "space", min_rows=3) if mesh is None else mesh.vertices
        check_spread(points, "space")
        # Even the longest wave of a square has fallen by e^-98 at 10 squared extents.
        longest = 10 * float(np.ptp(points, axis=0).max()) ** 2
        _check_width(fwhm, time, longest, "here: heat is spread evenly long before")
        places, own = (points, None) if mesh is not None else _merged_places(points)
        if own is not None:  # smooth the means of copies, so that neighbours are not copies
            values = check_known(field, known, len(points), "field")
            sums = np.zeros((len(places), values.values.shape[1]))
            np.add.at(sums, own[values.mask], values.values[values.mask])
            counts = np.bincount(own[values.mask], minlength=len(places))[:, None]
            by_place = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
            at_points = smooth(places, by_place, t=time, n_jobs=jobs, verbose=verbose)[own]
            return np.asarray(at_points[:, 0] if values.is_vector else at_points)
        with stage_of(progress, "graph"):
            graph = knn_graph(points, n_jobs=jobs) if mesh is None else mesh_graph(mesh, weights="cotangent")
    values = check_known(field, known, graph.n_nodes, "field")
    mask, by_nodes = values.mask, mesh is None and not isinstance(space, Graph)
    if mesh is not None:
        lengths, width = mesh.edge_lengths(), 4.0 * math.sqrt(time * math.log(2.0))
        if len(lengths) and width < 0.1 * np.median(lengths):  # white noise on 1000 vertices changes by .4 %
            warn_user(
                f"The filter is {width:.3g} wide (fwhm), the median edge of the mesh {np.median(lengths):.3g}: the "
                "field is hardly smoothed (remedy: a larger fwhm or t)."
            )
        # The tiniest triangles set the length of a step of the mesh; even nodes need far fewer than 100,000 steps.
        by_nodes = time > 1e5 * float(graph.step_time or time)
    mean = values.values[mask].mean(axis=0)  # subtracted, to make constants exact
    centred = replace(values, values=np.where(mask[:, None], values.values - mean, 0.0))
    with stage_of(progress, "smoothing"):
        flow = _flow_by_nodes(space, graph, time, jobs) if by_nodes else _flow_along_edges(graph, fwhm, time, jobs)
        smoothed = weighted_means(flow, centred.values, mask.astype(np.float64))
    # Shares of known nodes below 1e-6 are rounding errors; the nearest known value is better.
    found = finish_means(Problem(graph, centred, jobs), mask, smoothed.values, smoothed.mass, 1e-6).values + mean
    n_empty = int(np.isnan(found).any(axis=1).sum())
    if n_empty:
        text = f"{n_empty} of {graph.n_nodes} nodes are in components without a known value"
        warn_user(f"{text}: the field is NaN there.")
    return np.asarray(found[:, 0] if values.is_vector else found)


def _merged_places(points: FloatArray) -> tuple[FloatArray, Any]:
    """Points with copies merged, and the merged point of each point; None if there are few copies."""
    places = merge_copies(points)
    if len(places) < 3 or len(places) > 0.95 * len(points):
        return points, None
    return places, cKDTree(places).query(points)[1]


def _flow_along_edges(graph: Graph, fwhm: float | None, time: float, jobs: int) -> Action:
    """M^-1/2 h(W) M^1/2 X, which preserves constants; M holds the degrees."""
    kernel = HeatKernel(time).resolve(graph)
    steps = float(getattr(kernel, "tau", 0.0))
    _check_width(fwhm, time, time * WIDEST / max(steps, 1.0), "on this graph, which has much shorter steps")
    root, tol = np.sqrt(graph.degrees)[:, None], 1e-10 if steps > 1024 else 1e-13  # long sums are less accurate

    def flow(columns: FloatArray) -> FloatArray:
        moved = kernel.apply(graph, columns * root, tol=tol, n_jobs=jobs) * reciprocal(root)
        return np.where(root > 0, moved, columns)  # isolated nodes keep their values

    return flow


def _flow_by_nodes(space: Any, graph: Graph, time: float, jobs: int) -> Action:
    """The heat flow between points or vertices through the even nodes of the space.

    K(x, y) = R(x) P^(n - 2) M^-1 R(y)^T for one step R from a point to the nodes, the walk P between them and their
    volumes M. Scaled at both ends, K preserves constants and integrals.
    """
    points, areas = graph.positions, np.ones(graph.n_nodes)
    found = space_of(space, n_jobs=jobs)
    most = max(20_000, 4 * len(points))
    if found.volume > most * found.spacing(4 * time / found.steps(time)) ** found.dim:
        # A filter this narrow reaches few points, along straight lines.
        near = NeighborSearch(points).within(points, math.sqrt(4 * time * 30))
        weights = np.exp(-(near.distances**2) / (4 * time))
        step = sparse.coo_array((weights, (near.rows, near.columns)), shape=graph.affinity.shape).tocsr()
        kernel: Action = step.__matmul__
    else:
        nodes = graph_on(found, time, n_jobs=jobs)
        volumes = np.asarray(nodes.weights)
        rows = WalkStep(nodes).rows(nodes.placed(points))
        back, walk = rows.T.tocsr(), sparse.diags_array(reciprocal(volumes)) @ nodes.affinity
        if isinstance(space, TriangleMesh):
            areas = np.asarray(graph.weights)
        else:
            for _ in range(20):  # volumes of points that nearly add up to those of the nodes
                areas = areas * (rows @ (volumes * reciprocal(back @ areas)))

        def kernel(columns: FloatArray) -> FloatArray:
            moved = reciprocal(volumes)[:, None] * (back @ columns)
            for _ in range(int(nodes.n_steps or 2) - 2):
                moved = walk @ moved
            return np.asarray(rows @ moved)

    mass, scale = areas[:, None], np.ones((len(points), 1))
    for _ in range(100):
        sums = kernel(mass * scale)
        if np.abs(scale * sums - 1)[sums > 0].max(initial=0.0) < 1e-11:
            break
        scale = np.sqrt(scale * reciprocal(sums))
    reached = sums > 0  # others keep their values
    return lambda columns: np.where(reached, scale * kernel(mass * scale * columns), columns)


def time_of(fwhm: float | None, t: float | None) -> float:
    """The heat time of a filter, given by exactly one of the two."""
    if (fwhm is None) == (t is None):
        reject("fwhm", "given, or `t`, but not both", "both" if t is not None else "neither")
    if fwhm is None:
        return check_real(t, "t", POSITIVE)
    if isinstance(fwhm, int | float) and fwhm <= 0:
        reject("fwhm", "above 0", fwhm)
    return check_real(fwhm, "fwhm", Interval(1e-150, 1e150)) ** 2 / (16.0 * math.log(2.0))


def _check_width(fwhm: float | None, time: float, most: float, where: str) -> None:
    """Refuse a longer time; the error refers to the argument that was given."""
    if time > most:
        limit = most if fwhm is None else 4.0 * math.sqrt(most * math.log(2.0))
        reject("t" if fwhm is None else "fwhm", f"at most {limit:.3g} {where}", f"{fwhm or time:g}")


def distances(
    space: Any, sources: ArrayLike, *, method: str = "auto", n_jobs: int = -1, verbose: Any = False
) -> FloatArray:
    """Distances along a space from some of its nodes to all others.

    Parameters
    ----------
    space : TriangleMesh, array-like of shape (n, d), or Graph
        On a graph, paths follow the edges.
    sources : int or array-like of int
        Nodes to start from.
    method : {"auto", "heat", "edges"}, default="auto"
        "heat": the heat method of potpourri3d (extra ``mesh``), which crosses triangles, for surfaces with at most
        three coordinates. "edges": shortest paths along edges, which are several per cent too long on a surface
        however fine it is. "auto": paths along the points of a curve; straight lines inside a solid cloud, with as
        many dimensions as coordinates, and paths around its hollows; else "heat", and "edges" on a graph.
    n_jobs : int, default=-1
        Threads of the neighbour search that joins points.
    verbose : bool or callable (what, done, total), default=False
        Report progress on stderr, or to a function.

    Returns
    -------
    array of shape (n,) for one source, else (n_sources, n)
        Infinite if there is no path.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Sphere, distances
    >>> points = Sphere().grid(2000)
    >>> found, exact = distances(points, 0, method="edges"), Sphere().distance(points[:1], points)[0]
    >>> round(float((found[1:] / exact[1:]).mean()), 2)
    1.03
    """
    check_option(method, "method", ("auto", "heat", "edges"))
    space, progress = translated(space, "space"), check_progress(verbose)
    if isinstance(space, Graph):
        if method == "heat":
            reject("method", "'edges' on a graph; 'heat' needs a mesh or points", "'heat'")
        graph, method = space, "edges"
    elif isinstance(space, TriangleMesh):
        graph = mesh_graph(space, weights="unit")
    else:
        points = check_points(space, "space", min_rows=3)
        check_spread(points, "space")
        places, own = _merged_places(points)
        if own is not None:
            nodes = check_indices(sources, "sources", len(points))
            rows = distances(places, own[nodes], method=method, n_jobs=n_jobs, verbose=verbose)[:, own]
            return rows[0] if np.ndim(sources) == 0 else rows
        count = None
        with stage_of(progress, "graph"):
            if method == "auto":
                cloud = clean_cloud(points, n_jobs=n_jobs)
                choices = {1: ("edges", 16), cloud.axes.shape[1]: ("straight", 40)}
                method, count = choices.get(cloud.dim, ("heat", None))
            graph = knn_graph(points, n_neighbors=count and min(count, len(points) - 1), n_jobs=n_jobs)
    nodes = check_indices(sources, "sources", graph.n_nodes)
    with stage_of(progress, "distances"):
        rows = graph.shortest_paths(nodes) if method in ("edges", "straight") else _by_heat(space, graph, nodes)
    if method == "straight":
        straight = np.linalg.norm(graph.positions[nodes][:, None] - graph.positions, axis=2)
        # Longer paths go around a hollow; above three dimensions 40 neighbours are too few to tell.
        known = np.isfinite(rows) if cloud.dim > 3 else rows <= 1.1 * straight
        rows = np.where(known, straight, rows)
    return rows[0] if np.ndim(sources) == 0 else rows


def _by_heat(space: Any, graph: Graph, nodes: Any) -> FloatArray:
    """Distances by the heat method within each component, one row for each node."""
    potpourri3d, n_coordinates = require("potpourri3d", "mesh"), graph.positions.shape[1]
    if n_coordinates > 3:
        reject("space", "points with at most 3 coordinates for method='heat'", f"{n_coordinates} coordinates")
    # Over the squared mean edge. Mean errors with 4000 vertices at times 1, 2, 4: .007, .003 and .002 on an even
    # sphere, .012, .007 and .004 on a random one, .007, .010 and .017 on a square, which has a boundary.
    time = {"t_coef": 2.0}
    rows = np.full((len(nodes), graph.n_nodes), np.inf)
    rows[np.arange(len(nodes)), nodes] = 0.0
    for component in np.unique(graph.components[nodes]):
        part = np.flatnonzero(graph.components == component)
        if len(part) < 3:
            continue  # a vertex without a face
        place = np.full(graph.n_nodes, -1)
        place[part] = np.arange(len(part))
        corners = graph.positions[part]
        # Unit size: squares of tiny or huge coordinates are out of range.
        unit = float(np.abs(corners - corners[0]).max()) or 1.0
        corners = (corners - corners[0]) / unit
        try:
            if isinstance(space, TriangleMesh):
                faces = place[space.faces[(graph.components[space.faces] == component).all(axis=1)]]
                solver = potpourri3d.MeshHeatMethodDistanceSolver(corners, faces, **time)
            else:
                solver = potpourri3d.PointCloudHeatSolver(np.pad(corners, ((0, 0), (0, 3 - n_coordinates))), **time)
        except RuntimeError as error:
            reason = f"one that potpourri3d refuses ({str(error).rpartition(' - ')[2][:100]})"
            reject("space", "a surface for method='heat'; use method='edges'", reason)
        for k in np.flatnonzero(graph.components[nodes] == component):
            found = unit * np.asarray(solver.compute_distance(int(place[nodes[k]])))
            # The gradient of heat is wrong next to the source, which shifts all distances by the same amount (the
            # mean error of an even sphere is .009 without this). The edges there have known lengths.
            edges = graph.lengths[[nodes[k]]]
            near = place[edges.indices]
            found = np.maximum(found + (edges.data - found[near]).mean(), 0.0)
            found[near], found[place[nodes[k]]] = edges.data, 0.0
            rows[k, part] = found
    return rows
