"""Everyday tasks that the heat flow solves: smooth a field on a space, and measure distances along it."""

import math
from dataclasses import replace
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
from manifoldrf.applications.interpolation import (
    WIDEST,
    InterpolationWarning,
    Problem,
    check_known,
    finish_means,
    weighted_means,
)
from manifoldrf.geometry.builders import knn_graph, mesh_graph
from manifoldrf.geometry.cleaning import estimate_dimension
from manifoldrf.geometry.csr import reciprocal
from manifoldrf.geometry.graphs import Graph, as_space
from manifoldrf.geometry.heat import heat_graph
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.kernels.manifold_kernels import HeatKernel

__all__ = ["distances", "smooth"]


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
    time, jobs, space = time_of(fwhm, t), check_jobs(n_jobs), as_space(space, "space")
    check_flag(conserve, "conserve")
    graph = space
    if not isinstance(space, Graph):
        mesh = space if isinstance(space, TriangleMesh) else None
        points = check_points(space, "space", min_rows=3) if mesh is None else mesh.vertices
        check_spread(points, "space")
        # Even the longest wave of a square has fallen by e^-98 at 10 squared extents.
        longest = 10 * float(np.ptp(points, axis=0).max()) ** 2
        _check_width(fwhm, time, longest, "here: heat is spread evenly long before")
        graph = heat_graph(points, time, noise=0, n_jobs=jobs) if mesh is None else _mesh_graph(mesh, time)
    values = check_known(field, known, graph.n_nodes, "field")
    kernel = HeatKernel(time).resolve(graph)
    steps = float(getattr(kernel, "tau", 0.0))
    _check_width(fwhm, time, time * WIDEST / max(steps, 1.0), "on this graph, which has much shorter steps")
    root, tol = np.sqrt(graph.degrees)[:, None], 1e-10 if steps > 1024 else 1e-13  # long sums are less accurate

    def flow(of: Graph, root: FloatArray, columns: FloatArray) -> FloatArray:
        """M^-1/2 h(W) M^1/2 X, which keeps constants; M are the degrees. Isolated nodes keep their values."""
        moved = kernel.apply(of, columns * root, tol=tol, n_jobs=jobs) * reciprocal(root)
        return np.where(root > 0, moved, columns)

    mask = values.mask
    if conserve:
        found = np.full_like(values.values, np.nan)
        # What would leave the known nodes stays where it is.
        affinity, degrees = graph.affinity[mask][:, mask].tocsr(), graph.degrees[mask]
        lost = np.maximum(degrees - np.asarray(affinity.sum(axis=1)).ravel(), 0.0)
        inner, shares = values.values[mask], degrees / (degrees.sum() or 1.0)
        mean = shares @ inner
        moved = flow(Graph((affinity + sparse.diags_array(lost)).tocsr()), root[mask], inner - mean)
        found[mask] = moved - shares @ moved + mean  # the sum has rounding errors of the series
        return found[:, 0] if values.is_vector else found
    mean = values.values[mask].mean(axis=0)  # without it, constants are exact
    centred = replace(values, values=np.where(mask[:, None], values.values - mean, 0.0))
    means = weighted_means(lambda X: flow(graph, root, X), centred.values, mask.astype(np.float64))
    # Shares of known nodes below 1e-6 are rounding errors; the nearest known value is better.
    found = finish_means(Problem(graph, centred, jobs), mask, means.values, means.mass, 1e-6).values + mean
    n_empty = int(np.isnan(found).any(axis=1).sum())
    if n_empty:
        warn_user(
            f"{n_empty} of {graph.n_nodes} nodes are in components without a known value: the field is NaN there.",
            InterpolationWarning,
        )
    return np.asarray(found[:, 0] if values.is_vector else found)


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
    """Refuse a longer time, in the words of the argument that was given."""
    if time > most:
        limit = most if fwhm is None else 4.0 * math.sqrt(most * math.log(2.0))
        reject("t" if fwhm is None else "fwhm", f"at most {limit:.3g} {where}", f"{fwhm or time:g}")


def _mesh_graph(mesh: TriangleMesh, time: float) -> Graph:
    """The cotangent graph of a mesh, in at most about 100,000 steps (3000 products).

    The tiniest triangles set the length of a step. If there would be more steps, their vertices get a little more
    area and exchange less heat: over the time of the filter it evens out there in any case.
    """
    graph = mesh_graph(mesh, weights="cotangent")
    lengths, width = mesh.edge_lengths(), 4.0 * math.sqrt(time * math.log(2.0))
    if len(lengths) and width < 0.1 * np.median(lengths):  # white noise on 1000 vertices changes by .4 %
        warn_user(
            f"The filter is {width:.3g} wide (fwhm), but the median edge of the mesh is {np.median(lengths):.3g} "
            "long: the field is hardly smoothed (remedy: a larger fwhm or t).",
            InterpolationWarning,
        )
    step, area = float(graph.step_time or 0.0), np.asarray(graph.weights)
    walk = (graph.affinity - sparse.diags_array(graph.affinity.diagonal())).tocoo()
    outflow = np.asarray(walk.sum(axis=1)).ravel()
    if not step or time <= 1e5 * step or not outflow.any():
        return graph
    # At most a tenth of the usual ratio, which leaves usual vertices as they are.
    longer = min(time / step / 1e5, 0.1 * float(np.median(area[outflow > 0] / outflow[outflow > 0])))
    if longer <= 1:
        return graph
    area = np.maximum(area, np.where(outflow > 0, 0.05 * np.median(area), 0.0))
    row, column = walk.coords
    shares = np.minimum(longer * walk.data, np.minimum(area[row], area[column]) / 8)  # seldom more than 8 edges
    edges = sparse.csr_array((shares, (row, column)), shape=walk.shape)
    outflow = np.asarray(edges.sum(axis=1)).ravel()
    area = np.maximum(area, outflow)
    affinity = (edges + sparse.diags_array(area - outflow)).tocsr()
    return Graph(affinity, graph.points, weights=area, step_time=longer * step)


def distances(space: Any, sources: ArrayLike, *, method: str = "auto", n_jobs: int = -1) -> FloatArray:
    """Distances along a space from some of its nodes to all others.

    Parameters
    ----------
    space : TriangleMesh, array-like of shape (n, d), or Graph
        A graph has paths along its edges only.
    sources : int or array-like of int
        Nodes to start from.
    method : {"auto", "heat", "edges"}, default="auto"
        "heat": the heat method of potpourri3d (extra ``mesh``), which crosses triangles, for surfaces with at most
        three coordinates. "edges": shortest paths along edges, which are several per cent too long on a surface
        however fine it is. "auto": paths along the points of a curve; straight lines inside a solid cloud, with as
        many dimensions as coordinates, and paths around its hollows; else "heat", and "edges" on a graph.
    n_jobs : int, default=-1
        Threads of the neighbour search that joins points.

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
    check_option(method, "method", ("auto", "heat", "edges"))
    space = as_space(space, "space")
    if isinstance(space, Graph):
        if method == "heat":
            reject("method", "'edges' on a graph; 'heat' needs a mesh or points", "'heat'")
        graph, method = space, "edges"
    elif isinstance(space, TriangleMesh):
        graph = mesh_graph(space, weights="unit")
    else:
        points = check_points(space, "space", min_rows=3)
        check_spread(points, "space")
        count = None
        if method == "auto":
            extent = float(np.ptp(points, axis=0).max())
            dim = estimate_dimension(points, scale=extent / 10)  # noise does not count
            method, count = {1: ("edges", 16), points.shape[1]: ("straight", 40)}.get(dim, ("heat", None))
        graph = knn_graph(points, n_neighbors=count and min(count, len(points) - 1), n_jobs=n_jobs)
    nodes = check_indices(sources, "sources", graph.n_nodes)
    rows = graph.shortest_paths(nodes) if method in ("edges", "straight") else _by_heat(space, graph, nodes)
    if method == "straight":
        straight = np.linalg.norm(graph.positions[nodes][:, None] - graph.positions, axis=2)
        # Longer paths go around a hollow; above three dimensions 40 neighbours are too few to tell.
        longest = 1.1 if graph.positions.shape[1] <= 3 else np.inf
        rows = np.where(np.isfinite(rows) & (rows <= longest * straight), straight, rows)
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
