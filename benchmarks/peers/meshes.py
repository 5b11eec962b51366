"""The heat kernel between 512 vertices of the Stanford bunny, coarsened.

The exact kernel is that of the robust cotangent Laplacian with its mass matrix, per unit of area. GeometricKernels
scales its kernels to a mean variance of one, so errors are relative Frobenius errors after the best common factor,
for everybody. Eigenpairs are prepared; what depends on t is evaluation, and so is the whole fit of features.
"""

import numpy as np
import robust_laplacian
from geometric_kernels.kernels import MaternGeometricKernel
from geometric_kernels.spaces import Mesh
from scipy.sparse.linalg import eigsh

from benchmarks.peers.measure import OURS, Row, timed
from manifoldrf import Exact, HeatKernel, ManifoldRandomFeatures, compute_signatures, mesh_graph, relative_error
from reproduction.mesh_data import builtin_mesh

N_QUERIES = 512
TOLERANCE = 1e-3  # of exact rows
SHIFT = 1e-8  # that of GeometricKernels
# Vertices, width of the kernel over the largest extent of the mesh, numbers of eigenpairs; t is half the square of
# the width.
CASES = ((5000, 0.05, (200, 1000)), (5000, 0.1, (200,)))
QUICK_CASES = ((1200, 0.1, (100,)),)


class Problem:
    """A mesh, some of its vertices, and the exact kernel between them."""

    def __init__(self, n_vertices, width):
        self.task = f"mesh of {n_vertices:,} vertices, width {100 * width:g} %"
        self.mesh = builtin_mesh("bunny", n_vertices).mesh
        self.nodes = np.sort(np.random.default_rng(0).choice(self.mesh.n_vertices, N_QUERIES, replace=False))
        self.t = (width * np.ptp(self.mesh.vertices, axis=0).max()) ** 2 / 2
        graph = mesh_graph(self.mesh, weights="cotangent")
        self.exact = HeatKernel(self.t).matrix(graph, self.nodes, self.nodes, per_volume=True, tol=1e-12, n_jobs=1)

    def row(self, method, preparation, evaluate):
        """A row from a function that returns the kernel."""
        seconds, kernel = timed(evaluate)
        error = relative_error(kernel, self.exact, alignment="least squares")
        return Row(self.task, method, preparation, seconds, error)


def features(problem):
    """Fit features to the mesh, and multiply those of the vertices."""
    model = ManifoldRandomFeatures(HeatKernel(problem.t), random_state=0, n_jobs=1)
    places = problem.mesh.vertices[problem.nodes]
    return problem.row(OURS, 0.0, lambda: model.fit(problem.mesh).kernel_matrix(places))


def exact_rows(problem):
    """Signatures of the vertices on the cotangent graph."""
    preparation, graph = timed(lambda: mesh_graph(problem.mesh, weights="cotangent"))
    roots = np.sqrt(graph.weights[problem.nodes])

    def evaluate():
        teacher = Exact(TOLERANCE)
        found = compute_signatures(graph, HeatKernel(problem.t), problem.nodes, teacher=teacher, n_jobs=1)
        return found.gram() / roots[:, None] / roots

    return problem.row(f"exact signature rows to {TOLERANCE:g}", preparation, evaluate)


def eigenpairs(problem, n_pairs):
    """Eigenpairs by scipy's Lanczos iteration in shift-invert mode."""

    def prepare():
        laplacian, mass = robust_laplacian.mesh_laplacian(problem.mesh.vertices, problem.mesh.faces)
        return eigsh(laplacian, n_pairs, mass, sigma=SHIFT)

    preparation, (values, vectors) = timed(prepare)
    chosen = vectors[problem.nodes]
    return problem.row(
        f"scipy `eigsh`, {n_pairs} pairs", preparation, lambda: (chosen * np.exp(-problem.t * values)) @ chosen.T
    )


def geometric_kernels(problem, n_pairs):
    """The mesh of GeometricKernels."""

    def prepare():
        kernel = MaternGeometricKernel(Mesh(problem.mesh.vertices, problem.mesh.faces), num=n_pairs)
        kernel.space.get_eigensystem(n_pairs)
        return kernel

    params = {"nu": np.array([np.inf]), "lengthscale": np.array([np.sqrt(2 * problem.t)])}
    at = problem.nodes[:, None]
    preparation, kernel = timed(prepare)
    return problem.row(f"GeometricKernels, {n_pairs} pairs", preparation, lambda: kernel.K(params, at, at))


def run(quick):
    """Rows of all methods on all meshes."""
    for n_vertices, width, numbers in QUICK_CASES if quick else CASES:
        problem = Problem(n_vertices, width)
        yield features(problem)
        yield exact_rows(problem)
        yield eigenpairs(problem, numbers[0])
        for n_pairs in numbers:
            yield geometric_kernels(problem, n_pairs)
