"""The heat kernel between 512 vertices of a mesh.

The mesh is the Stanford bunny, coarsened. The exact operator is exp(-t M^-1 L) per unit of area, with the robust
cotangent Laplacian L and its mass matrix M, which all methods use. Its kernel is computed once to 1e-12, and four
columns of it are checked by scipy's ``expm_multiply``. GeometricKernels scales its kernels to a mean variance of
one, so that errors are relative Frobenius errors after the best common factor, for everybody.
"""

import functools
import logging
from dataclasses import dataclass

import numpy as np
import robust_laplacian
from scipy import linalg, sparse
from scipy.sparse.linalg import eigsh, expm_multiply

from benchmarks.peers.filters import heat_filter, pygsp_graph
from benchmarks.peers.measure import Row, not_run, once, timed
from manifoldrf import Exact, HeatKernel, compute_signatures, mesh_graph, relative_error
from reproduction.mesh_data import builtin_mesh

JOB = "mesh"
N_QUERIES, N_CHECKED = 512, 4
WIDTHS = (0.05, 0.1)  # of the kernel, over the largest extent of the mesh; t is half the square
TOLERANCES = (1e-10, 1e-4, 1e-2, 1e-1)
LARGEST_DENSE = 8000  # an eigendecomposition of 20,000 vertices takes about 20 minutes and 10 GB
SHIFT = 1e-8  # that of GeometricKernels
SIZES = {
    "full": {"vertices": (5000, 20_000), "pairs": (200, 1000), "levels": (200, 500, 1000), "orders": (30, 100)},
    "smoke": {"vertices": (1200,), "pairs": (100,), "levels": (100, 200), "orders": (30, 100)},
}


@dataclass(frozen=True)
class Problem:
    """A mesh, some of its vertices, and the exact kernels between them."""

    mesh: object
    nodes: np.ndarray
    times: tuple[float, ...]
    exact: tuple[np.ndarray, ...]

    @property
    def cases(self):
        """Names of the tasks."""
        return [f"{self.mesh.n_vertices:,} vertices, width {100 * width:g} %" for width in WIDTHS]

    def rows(self, method, preparation, kernels, note=""):
        """A row for every width, from (seconds, kernel) of each."""
        rows = []
        for case, exact, (seconds, kernel) in zip(self.cases, self.exact, kernels, strict=True):
            error = relative_error(kernel, exact, alignment="least squares")
            rows.append(Row(JOB, case, method, preparation, seconds, error, note))
        return rows


def make_problem(n_vertices):
    """The mesh of a size, with its exact kernels."""
    mesh = builtin_mesh("bunny", n_vertices).mesh
    nodes = np.sort(np.random.default_rng(0).choice(mesh.n_vertices, N_QUERIES, replace=False))
    extent = float(np.ptp(mesh.vertices, axis=0).max())
    times = tuple((width * extent) ** 2 / 2 for width in WIDTHS)
    graph = mesh_graph(mesh, weights="cotangent")
    exact = tuple(HeatKernel(t).matrix(graph, nodes, nodes, per_volume=True, tol=1e-12, n_jobs=-1) for t in times)
    problem = Problem(mesh, nodes, times, exact)
    check(problem)
    return problem


def check(problem):
    """Compare some columns of the narrowest exact kernel with an independent exponential."""
    laplacian, mass = robust_laplacian.mesh_laplacian(problem.mesh.vertices, problem.mesh.faces)
    roots = np.sqrt(mass.diagonal())
    scale = sparse.diags_array(1 / roots)
    matrix = (scale @ laplacian @ scale).tocsr()
    columns = np.zeros((len(roots), N_CHECKED))
    nodes = problem.nodes[:N_CHECKED]
    columns[nodes, np.arange(N_CHECKED)] = 1 / roots[nodes]
    found = expm_multiply(-problem.times[0] * matrix, columns)[problem.nodes] / roots[problem.nodes][:, None]
    off = relative_error(found, problem.exact[0][:, :N_CHECKED])
    print(f"  exact kernel of {problem.mesh.n_vertices:,} vertices: {off:.0e} off expm_multiply", flush=True)
    if off > 1e-8:
        raise RuntimeError(f"The exact kernel is {off:.1e} off another exponential.")


def own_kernel(graph, problem, t, tol):
    """The kernel as inner products of the features of the vertices."""
    found = compute_signatures(graph, HeatKernel(t), problem.nodes, teacher=Exact(tol), n_jobs=-1)
    roots = np.sqrt(graph.weights[problem.nodes])
    return found.gram() / roots[:, None] / roots


def ours(problem):
    """Features of this library on the cotangent graph, to several tolerances."""
    preparation, graph = timed(functools.partial(mesh_graph, problem.mesh, weights="cotangent"))
    rows = []
    for tol in TOLERANCES:
        kernels = [timed(functools.partial(own_kernel, graph, problem, t, tol)) for t in problem.times]
        rows += problem.rows(f"manifoldrf, features to {tol:g}", preparation, kernels)
    return rows


def geometric_kernels(problem, levels):
    """The mesh of GeometricKernels."""
    logging.disable(logging.INFO)  # the package greets on import
    from geometric_kernels.kernels import MaternGeometricKernel
    from geometric_kernels.spaces import Mesh

    def prepare():
        kernel = MaternGeometricKernel(Mesh(problem.mesh.vertices, problem.mesh.faces), num=levels)
        kernel.space.get_eigensystem(levels)
        return kernel

    def evaluate(t):
        params = {"nu": np.array([np.inf]), "lengthscale": np.array([np.sqrt(2 * t)])}
        return kernel.K(params, problem.nodes[:, None], problem.nodes[:, None])

    preparation, kernel = once(prepare)
    kernels = [timed(functools.partial(evaluate, t)) for t in problem.times]
    default = ", its default" if levels == 1000 else ""
    note = "its eigenvectors are made orthogonal without the mass matrix"
    return problem.rows(f"GeometricKernels, {levels} eigenpairs{default}", preparation, kernels, note)


def from_pairs(problem, method, preparation, pairs, note=""):
    """Rows of a kernel from eigenpairs that are orthonormal in the mass matrix."""
    values, vectors = pairs
    chosen = vectors[problem.nodes]
    kernels = [timed(lambda t=t: (chosen * np.exp(-t * values)) @ chosen.T) for t in problem.times]
    return problem.rows(method, preparation, kernels, note)


def some_pairs(problem, n_pairs):
    """Eigenpairs by scipy's Lanczos iteration in shift-invert mode."""

    def prepare():
        laplacian, mass = robust_laplacian.mesh_laplacian(problem.mesh.vertices, problem.mesh.faces)
        return eigsh(laplacian, n_pairs, mass, sigma=SHIFT)

    preparation, pairs = once(prepare)
    return from_pairs(problem, f"scipy eigsh, {n_pairs} pairs", preparation, pairs)


def all_pairs(problem):
    """Eigenpairs of the dense matrix."""
    if problem.mesh.n_vertices > LARGEST_DENSE:
        why = "not run: about 20 minutes (64 times that of 5,000) and 10 GB"
        return [not_run(JOB, case, "scipy eigh, dense", why) for case in problem.cases]

    def prepare():
        laplacian, mass = robust_laplacian.mesh_laplacian(problem.mesh.vertices, problem.mesh.faces)
        roots = np.sqrt(mass.diagonal())
        values, vectors = linalg.eigh(laplacian.toarray() / roots[:, None] / roots, driver="evd")
        return values, vectors / roots[:, None]

    return from_pairs(problem, "scipy eigh, dense", *once(prepare))


def chebyshev(problem, order):
    """Chebyshev filters of pygsp on the same operator: that of the walk, whose steps last ``step_time``."""
    graph = mesh_graph(problem.mesh, weights="cotangent")
    columns = np.zeros((graph.n_nodes, N_QUERIES))
    columns[problem.nodes, np.arange(N_QUERIES)] = 1.0
    roots = np.sqrt(graph.weights[problem.nodes])
    preparation, peer = timed(lambda: pygsp_graph(mesh_graph(problem.mesh, weights="cotangent")))

    def evaluate(t):
        return heat_filter(peer, t / graph.step_time, columns, order)[problem.nodes] / roots[:, None] / roots

    kernels = [timed(functools.partial(evaluate, t)) for t in problem.times]
    return problem.rows(f"pygsp Chebyshev, order {order}", preparation, kernels)


def run(size):
    """Rows of all methods on all meshes."""
    wanted = SIZES[size]
    for n_vertices in wanted["vertices"]:
        problem = make_problem(n_vertices)
        yield from ours(problem)
        for order in wanted["orders"]:
            yield from chebyshev(problem, order)
        for n_pairs in wanted["pairs"]:
            yield from some_pairs(problem, n_pairs)
        for levels in wanted["levels"]:
            yield from geometric_kernels(problem, levels)
        yield from all_pairs(problem)
