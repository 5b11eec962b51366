"""The graphs of the four surfaces, and how close their heat kernels are to those of the surfaces.

Claim: at N = 4000 and t = .02, with the node weights of the grid, the kernel of the heat graph is within .002 of
the analytic kernel on the sphere, and within .008 of a graph with four times as many nodes on the other surfaces.
The paper's graph (exp(-tau L), k nearest neighbours) is .03 to .05 off on the sphere. Graphs with wider weights
have the norms of the paper's kernels, its fingerprints.
"""

import dataclasses
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.spatial import cKDTree

from manifoldrf import (
    AbstractManifold,
    DiffusionKernel,
    Ellipsoid,
    Graph,
    HeatKernel,
    MobiusStrip,
    Sphere,
    Torus,
    Walks,
    compute_signatures,
    heat_graph,
    knn_graph,
    relative_error,
)
from manifoldrf.geometry import estimate_dimension
from manifoldrf.kernels import PowerKernel
from reproduction.common import FloatArray, Progress, reject
from reproduction.record import Record

# The surfaces of the paper's first table, with its number of neighbours.
SURFACES: dict[str, tuple[AbstractManifold, int]] = {
    "sphere": (Sphere(), 8),
    "ellipsoid": (Ellipsoid(), 8),
    "mobius": (MobiusStrip(), 24),
    "torus": (Torus(), 8),
}
# |K|_F / N of the paper's kernels, a fingerprint of its graphs: RMSE / relative Frobenius error of its ambient
# features with the largest errors. All rounded pairs of that table agree with these values to .001 (relative).
FINGERPRINTS = {"sphere": 0.3626, "ellipsoid": 11.95e-4, "mobius": 11.35e-4, "torus": 11.86e-4}
SPHERE_TIME = 0.0245  # the time at which the analytic kernel has that value; the paper's text says .25
BANDWIDTHS = ("median", "mean")
# Of the strip: the number that the paper's text states, then the one that gives its fingerprint.
STRIP_NEIGHBORS = (24, 12)
# Of the sphere, from nearly the median squared distance to nearly equal weights.
_SPHERE_BANDWIDTHS = (1.0, 2.0, 2.5, 3.0, 4.0, 8.0, 100.0)
_WALKED = 50  # starts at which the noise of walks is measured


def paper_graph(
    name: str, n_nodes: int, *, n_neighbors: int | None = None, bandwidth: str | float = "median"
) -> Graph:
    """The paper's graph of a surface: even nodes, its number of neighbours unless another one is given.

    The paper states no bandwidth for surfaces. "median", the median squared distance to a neighbour, is the one it
    states for meshes. "mean", twice the squared mean distance, gives the fingerprints of its ambient table: exactly
    on the ellipsoid, within 1 % on the torus, and on the strip with 12 neighbours instead of 24. A number is a
    multiple of the squared mean distance.
    """
    manifold, published = SURFACES[name]
    k = published if n_neighbors is None else n_neighbors
    points = manifold.grid(n_nodes)
    if not isinstance(bandwidth, str):
        bandwidth *= float(cKDTree(points).query(points, k + 1)[0][:, 1:].mean()) ** 2
    return knn_graph(points, n_neighbors=k, bandwidth=bandwidth)


def fingerprint_graph(name: str, n_nodes: int) -> Graph:
    """The graph of a surface whose kernel has the norm of the paper's: with 12 neighbours on the strip."""
    n_neighbors = STRIP_NEIGHBORS[-1] if name == "mobius" else None
    return paper_graph(name, n_nodes, n_neighbors=n_neighbors, bandwidth="mean")


@dataclass(frozen=True)
class Config:
    """Settings of the experiment."""

    n_nodes: int = 4000  # the paper's
    tau: float = 20.0  # the paper's diffusion time, in steps
    t: float = 0.02  # heat time, close to that of tau on the sphere
    n_queries: int = 300  # new points at which kernels are compared
    sizes: tuple[int, ...] = (1000, 4000, 16_000)  # of the convergence table
    reference_factor: int = 4  # size of the reference graph relative to n_nodes, for surfaces without a closed form
    reference_steps: int = 36  # of that reference; twice and three times as many agree to .001
    seed: int = 0


SIZES = {"smoke": Config(n_nodes=1000, t=0.08, sizes=(250, 1000)), "paper": Config()}  # the same n_nodes t


def run(config: Config, progress: Progress = lambda what, done, total: None) -> Record:
    """Build the graphs and compare their kernels.

    Tables: ``surfaces``, ``convergence``, ``fingerprints`` and ``sphere`` (other bandwidths of its graph).
    """
    start = time.perf_counter()
    total = 2 * len(SURFACES) + len(config.sizes) + len(_SPHERE_BANDWIDTHS)
    arrays: dict[str, FloatArray] = {}
    surfaces = []
    for done, name in enumerate(SURFACES):
        progress(f"graphs of the {name}", done, total)
        row, drawn = _surface(name, config)
        surfaces.append(row)
        arrays |= drawn
    convergence = []
    for done, size in enumerate(config.sizes):
        progress(f"sphere with {size} nodes", len(SURFACES) + done, total)
        convergence.append(_sphere_errors(size, config.t))
    fingerprints = []
    for done, name in enumerate(SURFACES):
        progress(f"fingerprints of the {name}", len(SURFACES) + len(config.sizes) + done, total)
        for n_neighbors in STRIP_NEIGHBORS if name == "mobius" else (SURFACES[name][1],):
            fingerprints += [_fingerprint(name, n_neighbors, bandwidth, config) for bandwidth in BANDWIDTHS]
    sphere = []
    analytic = paper_sphere_kernel(Sphere().grid(config.n_nodes), config.tau)
    for done, factor in enumerate(_SPHERE_BANDWIDTHS):
        progress(f"bandwidth {factor:g} of the sphere", total - len(_SPHERE_BANDWIDTHS) + done, total)
        sphere.append(_sphere_bandwidth(factor, config, analytic))
    progress("done", total, total)
    tables = {"surfaces": surfaces, "convergence": convergence, "fingerprints": fingerprints, "sphere": sphere}
    settings = dataclasses.asdict(config)
    return Record("surface_graphs", settings, tables, time.perf_counter() - start, arrays=arrays)


def _surface(name: str, config: Config) -> tuple[dict[str, Any], dict[str, FloatArray]]:
    """One row of the table, and the data of its picture."""
    manifold, n_neighbors = SURFACES[name]
    points = manifold.grid(config.n_nodes)
    plain = paper_graph(name, config.n_nodes)
    heat = heat_graph(manifold, config.t, n_nodes=config.n_nodes)
    cloud = heat_graph(points, config.t)  # the surface is found from the points
    queries = manifold.sample(config.n_queries, seed=config.seed)
    exact = reference_kernel(
        manifold, queries, config.t, config.n_nodes, config.reference_factor, config.reference_steps
    )
    source = int(np.argmax(points @ np.array([0.82, 0.33, 0.47])))  # a node that faces the viewer
    row = {
        "surface": name,
        "nodes": plain.n_nodes,
        "neighbours": n_neighbors,
        "edges": plain.affinity.nnz // 2,
        "components": plain.n_components,
        "dim": estimate_dimension(points),
        "t_of_tau": plain.time(config.tau, dim=2),
        "area": manifold.volume,
        "area_found": float(_weights(cloud).sum()),
        "n_steps": heat.n_steps,
        "error": relative_error(heat_kernel_at(heat, queries), exact),
        "error_points_only": relative_error(heat_kernel_at(cloud, queries), exact),
        "reference": "analytic" if name == "sphere" else f"{config.reference_factor}x finer graph",
    }
    edges = sparse.triu(plain.affinity).tocoo()
    drawn = {
        f"{name}_points": points,
        f"{name}_edges": np.column_stack([edges.row, edges.col]),
        f"{name}_kernel": heat_kernel_at(heat, points, points[[source]])[:, 0],
    }
    return row, drawn


def _fingerprint(name: str, n_neighbors: int, bandwidth: str, config: Config) -> dict[str, Any]:
    """|K|_F / N of the kernel that the paper compares with, in units of 1e-4, and the noise of walks."""
    graph = paper_graph(name, config.n_nodes, n_neighbors=n_neighbors, bandwidth=bandwidth)
    kernel = DiffusionKernel(config.tau)
    exact = kernel.matrix(graph)
    sphere = paper_sphere_kernel(graph.positions, config.tau) if name == "sphere" else None
    row: dict[str, Any] = {"surface": name, "neighbours": n_neighbors, "bandwidth": bandwidth}
    row["fingerprint"] = 1e4 * float(np.linalg.norm(exact if sphere is None else sphere)) / len(exact)
    if (config.n_nodes, config.tau) == (Config.n_nodes, Config.tau):  # the paper's
        row |= {"paper_fingerprint": 1e4 * FINGERPRINTS[name]}
        row["difference"] = row["fingerprint"] / row["paper_fingerprint"] - 1
    if sphere is not None:
        row["graph_to_analytic"] = relative_error(exact, sphere, alignment="frobenius")
    starts = np.arange(0, graph.n_nodes, max(1, graph.n_nodes // _WALKED))
    walked = compute_signatures(graph, kernel, starts, teacher=Walks(), seed=config.seed)
    known = compute_signatures(graph, kernel, starts, teacher="exact")
    row["walks"] = relative_error(*(sparse.csr_array(found.rows).toarray() for found in (walked, known)))
    return row


def _sphere_bandwidth(factor: float, config: Config, analytic: FloatArray) -> dict[str, Any]:
    """How far the kernel of the sphere's graph is from the paper's analytic one, for some bandwidth."""
    graph = paper_graph("sphere", config.n_nodes, bandwidth=factor)
    exact = DiffusionKernel(config.tau).matrix(graph)
    row = {"bandwidth": f"{factor:g} mean d^2", "t_of_tau": graph.time(config.tau, dim=2)}
    return row | {"graph_to_analytic": relative_error(exact, analytic, alignment="frobenius")}


def paper_sphere_kernel(points: FloatArray, tau: float) -> FloatArray:
    """The analytic kernel between nodes of the sphere at the paper's time."""
    return Sphere().heat_kernel(points, points, paper_sphere_time(len(points), tau))


def paper_sphere_time(n_nodes: int, tau: float) -> float:
    """The time of the paper's analytic kernel, scaled to other sizes and tau."""
    return SPHERE_TIME * (Config.n_nodes / n_nodes) * (tau / Config.tau)


def reference_kernel(
    manifold: AbstractManifold, places: FloatArray, t: float, n_nodes: int, factor: int, n_steps: int | None = None
) -> FloatArray:
    """The heat kernel between points: analytic on the sphere, else from a graph with ``factor`` times the nodes.

    The reference graph has ``n_steps`` steps, by default twice as many as a graph of ``n_nodes`` nodes.
    """
    if isinstance(manifold, Sphere):
        return manifold.heat_kernel(places, places, t)
    if n_steps is None:
        n_steps = 2 * int(heat_graph(manifold, t, n_nodes=n_nodes).n_steps or 2)
    return heat_kernel_at(heat_graph(manifold, t, n_nodes=factor * n_nodes, n_steps=n_steps), places)


def _sphere_errors(size: int, t: float) -> dict[str, Any]:
    """Errors of both kernels at nodes of the sphere, against the analytic kernel and without any alignment."""
    sphere = Sphere()
    points = sphere.grid(size)
    nodes = np.arange(0, size, max(1, size // 200))
    exact = sphere.heat_kernel(points[nodes], points[nodes], t)
    plain = knn_graph(points)
    diffusion = HeatKernel(t).resolve(plain, dim=2).matrix(plain, nodes, nodes) * (size / sphere.volume)
    heat = heat_graph(points, t)
    return {
        "nodes": size,
        "exp(-tau L), k = 8": relative_error(diffusion, exact),
        "W^n, heat graph": relative_error(heat_kernel_at(heat, points[nodes]), exact),
        "n": heat.n_steps,
    }


def heat_kernel_at(graph: Graph, queries: FloatArray, sources: FloatArray | None = None) -> FloatArray:
    """Heat kernel between new points: the first and the last step by the extension, the others on the graph."""

    def step(places: FloatArray) -> Any:
        rows = graph.extend(places)
        scales = sparse.diags_array(1 / np.asarray(rows.sum(axis=1)).ravel())
        return scales @ rows @ sparse.diags_array(1 / np.sqrt(_weights(graph)))

    left = step(queries)
    right = left if sources is None else step(sources)
    return np.asarray(left @ PowerKernel(int(graph.n_steps or 2) - 2).apply(graph, right.T.toarray()))


def _weights(graph: Graph) -> FloatArray:
    """Node weights of a heat graph."""
    if graph.weights is None:
        reject("graph", "a heat graph", graph)
    return graph.weights
