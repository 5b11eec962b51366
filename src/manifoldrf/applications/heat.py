"""Everyday tasks that the heat flow solves: smooth a field on a space, and measure distances along it."""

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse

from manifoldrf._runtime import require, warn_user
from manifoldrf._validation import (
    POSITIVE,
    FloatArray,
    Interval,
    check_flag,
    check_indices,
    check_jobs,
    check_option,
    check_points,
    check_real,
    check_spread,
    reject,
)
from manifoldrf.applications.filling import WIDEST, Known, Problem, check_known, finish_means
from manifoldrf.applications.filling import smooth as weighted_means
from manifoldrf.applications.interpolation import InterpolationWarning
from manifoldrf.geometry.builders import knn_graph, mesh_graph
from manifoldrf.geometry.csr import reciprocal
from manifoldrf.geometry.graphs import Graph, as_space
from manifoldrf.geometry.heat import heat_graph
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.kernels.manifold_kernels import HeatKernel

__all__ = ["distances", "smooth"]

# Errors of the Chebyshev series, relative to the norm of the field. Longer series cannot be summed more accurately.
_TOL, _LONG_TOL, _LONG = 1e-13, 1e-10, 1024.0
# Shares of known nodes below this are rounding errors; the nearest known value is better.
_RESOLVED = 1e-6
# Steps of a filter (3000 products) beyond which a mesh is changed at its tiniest vertices, and the area these get
# over the usual one.
_MANY_STEPS, _TINY = 1e5, 0.05
_NARROW = 0.1  # fwhm over the median edge: white noise on a sphere of 1000 vertices changes by .4 %
_WIDEST = 10.0  # time over the squared extent: even the longest wave of a square has fallen by e^-98
# Time of the heat method over the squared mean edge. Mean errors with 4000 vertices at times 1, 2, 4: .007, .003
# and .002 on an even sphere, .012, .007 and .004 on a random one, .007, .010 and .017 on a square, which has a
# boundary.
_HEAT_TIME = 2.0


def smooth(
    space: Any,
    field: ArrayLike,
    *,
    fwhm: float | None = None,
    t: float | None = None,
    known: ArrayLike | None = None,
    conserve: bool = False,
    n_jobs: int = -1,
) -> FloatArray:
    """Smooth a field on a mesh, a cloud or a graph by the heat flow: a Gaussian filter along the space.

    Give the width of the filter or the time of the flow. In the plane, heat from one point is a Gaussian with
    fwhm^2 = 16 ln(2) t. Constants stay constant, and no value leaves the range of the field.

    Parameters
    ----------
    space : TriangleMesh, array-like of shape (n, d), or Graph
        The n vertices, points or nodes carry the field. A mesh has its cotangent Laplacian (extra ``mesh``), points
        have a :func:`heat_graph`, on which every point is a node.
    field : array-like of shape (n,) or (n, c)
        One or several fields. A row with NaN is unknown.
    fwhm : float, optional
        Full width at half maximum of the filter, in units of the space.
    t : float, optional
        Heat time, in squared units of the space.
    known : bool array-like of shape (n,) or int array-like, optional
        A mask, or the indices of the nodes with known values; by default the rows without NaN.
    conserve : bool, default=False
        What happens where values are unknown. By default each node, known or not, gets the mean of the known values
        around it. With ``conserve=True`` heat does not leave the known nodes: unknown ones become NaN, and the
        integral over the others stays the same. Without unknown nodes it always does.
    n_jobs : int, default=-1
        Threads, -1 for all cores; the result does not depend on it.

    Returns
    -------
    array of the shape of the field
        NaN in components without a known value; a warning counts them.

    Notes
    -----
    Integrals are sums over nodes times their areas: the vertex areas of a mesh, the ``weights`` of a heat graph,
    the degrees of another graph.

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
    time = time_of(fwhm, t)
    space = as_space(space, "space")
    check_flag(conserve, "conserve")
    jobs = check_jobs(n_jobs)
    if not isinstance(space, Graph):
        space = space if isinstance(space, TriangleMesh) else check_points(space, "space", min_rows=3)
        extent = np.ptp(space.vertices if isinstance(space, TriangleMesh) else space, axis=0)
        _check_width(fwhm, time, _WIDEST * float(extent.max()) ** 2, "here: heat is spread evenly long before")
    graph = _heat_graph_of(space, time, jobs)
    values = check_known(field, known, graph.n_nodes, "field")
    if isinstance(space, TriangleMesh):
        _warn_of_narrow(graph, time)
    kernel = _in_steps(graph, time, fwhm)
    steps = float(getattr(kernel, "tau", 0.0))
    _check_width(fwhm, time, time * WIDEST / max(steps, 1.0), "on this graph, which has much shorter steps")
    found = (_within if conserve else _averaged)(graph, values, kernel, _LONG_TOL if steps > _LONG else _TOL, jobs)
    n_empty = int(np.isnan(found[values.mask | (not conserve)]).any(axis=1).sum())
    if n_empty:
        warn_user(
            f"{n_empty} of {graph.n_nodes} nodes are in components without a known value: the field is NaN there.",
            InterpolationWarning,
        )
    return found[:, 0] if values.is_vector else found


def time_of(fwhm: float | None, t: float | None) -> float:
    """The heat time of a filter, given by exactly one of the two."""
    if (fwhm is None) == (t is None):
        reject("fwhm", "given, or `t`, but not both", "both" if t is not None else "neither")
    if fwhm is None:
        return check_real(t, "t", POSITIVE)
    if isinstance(fwhm, int | float) and fwhm <= 0:
        reject("fwhm", "above 0", fwhm)
    return check_real(fwhm, "fwhm", Interval(1e-150, 1e150)) ** 2 / (16.0 * math.log(2.0))


def _warn_of_narrow(graph: Graph, time: float) -> None:
    """Warn of a filter on a mesh that is too narrow to reach the next vertex."""
    row, column = sparse.triu(graph.affinity, 1).tocoo().coords
    if not len(row):
        return
    edge = float(np.median(np.linalg.norm(graph.positions[row] - graph.positions[column], axis=1)))
    width = 4.0 * math.sqrt(time * math.log(2.0))
    if width < _NARROW * edge:
        warn_user(
            f"The filter is {width:.3g} wide (fwhm), but the median edge of the mesh is {edge:.3g} long: the field "
            "is hardly smoothed (remedy: a larger fwhm or t).",
            InterpolationWarning,
        )


def _check_width(fwhm: float | None, time: float, most: float, where: str) -> None:
    """Refuse a longer time, in the words of the argument that was given."""
    if time > most:
        limit = most if fwhm is None else 4.0 * math.sqrt(most * math.log(2.0))
        reject("t" if fwhm is None else "fwhm", f"at most {limit:.3g} {where}", f"{fwhm or time:g}")


def _in_steps(graph: Graph, time: float, fwhm: float | None) -> Any:
    """The heat kernel in steps of a graph; a time that a heat graph cannot have is told as the width given."""
    try:
        return HeatKernel(time).resolve(graph)
    except ValueError:
        if fwhm is None or graph.n_steps is None or not graph.step_time:
            raise
    least = max(1, math.floor(time / graph.step_time / 2))
    widths = [4.0 * math.sqrt(2 * k * graph.step_time * math.log(2.0)) for k in (least, least + 1)]
    rule = (
        f"a width that this heat graph has, such as {widths[0]:.4g} or {widths[1]:.4g}; smooth the points instead"
    )
    reject("fwhm", rule, f"{fwhm:g}")


def _heat_graph_of(space: Any, time: float, n_jobs: int) -> Graph:
    """The graph whose walk is the heat flow; its nodes are the vertices or points."""
    if isinstance(space, Graph):
        return space
    if isinstance(space, TriangleMesh):
        check_spread(space.vertices, "space")
        graph = mesh_graph(space, weights="cotangent")
        return graph if time <= _MANY_STEPS * (graph.step_time or 0.0) else _with_longer_steps(graph, time)
    check_spread(space, "space")
    return heat_graph(space, time, noise=0, n_jobs=n_jobs)


def _with_longer_steps(graph: Graph, time: float) -> Graph:
    """A cotangent graph without its quickest exchange of heat, whose steps are so short that they are too many.

    The tiniest triangles set the length of a step. Their vertices get a little more area and exchange less heat:
    over the time of the filter it evens out there in any case.
    """
    walk, area = graph.affinity - sparse.diags_array(graph.affinity.diagonal()), np.asarray(graph.weights)
    outflow = np.asarray(walk.sum(axis=1)).ravel()
    step = float(graph.step_time or 0.0)
    # At most a tenth of the usual ratio, which leaves usual vertices as they are.
    longer = min(time / step / _MANY_STEPS, 0.1 * float(np.median(area[outflow > 0] / outflow[outflow > 0])))
    if longer <= 1:
        return graph
    area = np.maximum(area, np.where(outflow > 0, _TINY * np.median(area), 0.0))
    edges = walk.tocoo()
    row, column = edges.coords
    shares = np.minimum(longer * edges.data, np.minimum(area[row], area[column]) / 8)  # seldom more than 8 edges
    walk = sparse.csr_array((shares, (row, column)), shape=walk.shape)
    outflow = np.asarray(walk.sum(axis=1)).ravel()
    area = np.maximum(area, outflow)
    affinity = (walk + sparse.diags_array(area - outflow)).tocsr()
    return Graph(affinity, graph.points, weights=area, step_time=longer * step)


def _flow(graph: Graph, kernel: Any, tol: float, n_jobs: int) -> Any:
    """X -> M^-1/2 h(W) M^1/2 X, which keeps constants; M are the degrees. Isolated nodes keep their values."""
    root = np.sqrt(graph.degrees)[:, None]

    def action(columns: FloatArray) -> FloatArray:
        moved = kernel.apply(graph, columns * root, tol=tol, n_jobs=n_jobs) * reciprocal(root)
        return np.where(root > 0, moved, columns)

    return action


def _averaged(graph: Graph, known: Known, kernel: Any, tol: float, n_jobs: int) -> FloatArray:
    """Means of the known values around each node."""
    mean = known.values[known.mask].mean(axis=0)  # without it, constants are exact
    centred = dataclasses.replace(known, values=np.where(known.mask[:, None], known.values - mean, 0.0))
    found = weighted_means(_flow(graph, kernel, tol, n_jobs), centred.values, known.mask.astype(np.float64))
    filled = finish_means(Problem(graph, centred, n_jobs), known.mask, found.values, found.mass, _RESOLVED)
    return np.asarray(filled.values + mean)


def _within(graph: Graph, known: Known, kernel: Any, tol: float, n_jobs: int) -> FloatArray:
    """The flow that does not leave the known nodes: what would leave stays where it is."""
    nodes = np.flatnonzero(known.mask)
    affinity = graph.affinity[nodes][:, nodes].tocsr()
    lost = np.maximum(graph.degrees[nodes] - np.asarray(affinity.sum(axis=1)).ravel(), 0.0)
    part = Graph((affinity + sparse.diags_array(lost)).tocsr())
    values, degrees = known.values[nodes], graph.degrees[nodes]
    mean = degrees @ values / degrees.sum() if degrees.any() else values.mean(axis=0)
    moved = _flow(part, kernel, tol, n_jobs)(values - mean)
    if degrees.any():
        moved = moved - degrees @ moved / degrees.sum()  # rounding errors of the series
    result = np.full_like(known.values, np.nan)
    result[nodes] = moved + mean
    return result


def distances(space: Any, sources: ArrayLike, *, method: str = "heat", n_jobs: int = -1) -> FloatArray:
    """Distances along a space from some of its nodes to all others.

    Parameters
    ----------
    space : TriangleMesh, array-like of shape (n, d), or Graph
        A graph has paths along its edges only.
    sources : int or array-like of int
        Nodes to start from.
    method : {"heat", "edges"}, default="heat"
        "heat": the heat method of potpourri3d (extra ``mesh``), which crosses triangles. "edges": shortest paths
        along edges, which are several per cent too long however fine a mesh is.
    n_jobs : int, default=-1
        Threads of the neighbour search that joins points for "edges".

    Returns
    -------
    array of shape (n,) for one source, else (n_sources, n)
        Infinite where no path leads.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Sphere, distances
    >>> points = Sphere().grid(2000)
    >>> found, exact = distances(points, 0, method="edges"), Sphere().distance(points[:1], points)[0]
    >>> round(float((found[1:] / exact[1:]).mean()), 2)
    1.03
    """
    check_option(method, "method", ("heat", "edges"))
    space = as_space(space, "space")
    if isinstance(space, Graph):
        if method == "heat":
            reject("method", "'edges' on a graph; 'heat' needs a mesh or points", "'heat'")
        graph = space
    elif isinstance(space, TriangleMesh):
        graph = mesh_graph(space, weights="unit")
    else:
        points = check_points(space, "space", min_rows=3)
        check_spread(points, "space")
        graph = knn_graph(points, n_jobs=n_jobs)
    nodes = check_indices(sources, "sources", graph.n_nodes)
    rows = graph.shortest_paths(nodes) if method == "edges" else _by_heat(space, graph, nodes)
    return rows[0] if np.ndim(sources) == 0 else rows


def _by_heat(space: Any, graph: Graph, nodes: Any) -> FloatArray:
    """Distances by the heat method within each component, one row for each node."""
    potpourri3d = require("potpourri3d", "mesh")
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
                solver = potpourri3d.MeshHeatMethodDistanceSolver(corners, faces, t_coef=_HEAT_TIME)
            else:
                solver = potpourri3d.PointCloudHeatSolver(_in_space(corners), t_coef=_HEAT_TIME)
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


def _in_space(points: FloatArray) -> FloatArray:
    """Points with three coordinates, which is what the solver takes."""
    n_coordinates = points.shape[1]
    if n_coordinates > 3:
        reject("space", "points with at most 3 coordinates for method='heat'", f"{n_coordinates} coordinates")
    return np.pad(points, ((0, 0), (0, 3 - n_coordinates)))
