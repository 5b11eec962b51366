"""Features of a mesh beside the exact tools: eigenpairs and a factorisation of its cotangent Laplacian.

The space is a bumpy sphere of 5,000, 20,000 and 50,000 vertices. The kernel is the default one, at its own time.
Errors are relative Frobenius errors against the exponential of the cotangent operator, between vertices drawn by
area. Times are CPU seconds of one thread:

1. 200 eigenpairs by scipy (shift and invert) and their kernel over fit and kernel of the features: at least 1 from
   20,000 vertices on, at no larger error. The features also hold at new points;
2. the features over one sparse factorisation of the mass matrix plus the Laplacian: at most 60 (SuperLU without
   pivoting, which eliminates in the order of a sparse Cholesky factorisation);
3. 500 eigenpairs and 100 kernels between 512 vertices over one fit with ``times``, at 100 times in a range of six
   octaves: at least 1 from 20,000 vertices on;
4. CPU seconds of the features and of the page that ``explore`` writes (at most 10), megabytes of the model (30);
5. CPU seconds of `ManifoldGaussianProcess` on a quarter of the vertices: at most 5 on 20,000 vertices.

``--quick`` takes 2,000 vertices. `benchmarks/peers` compares with other libraries.
"""

import pathlib
import tempfile
import warnings

import numpy as np
from scipy import sparse
from scipy.sparse import linalg
from scipy.spatial import ConvexHull
from table import Row, run_cases, timed

from manifoldrf import (
    HeatKernel,
    ManifoldGaussianProcess,
    ManifoldRandomFeatures,
    Sphere,
    TriangleMesh,
    explore,
    mesh_graph,
    relative_error,
)

OURS = {"random_state": 0, "n_jobs": 1}
ENDS = 0.01, 0.64  # of the range of times


def bumpy_sphere(n):
    """Even vertices on a sphere with bumps of about a tenth of its radius."""
    points = Sphere().grid(n)
    x, y, z = points.T
    bumps = 1 + 0.05 * np.sin(9 * x) * np.sin(9 * y + 1) * np.sin(9 * z + 2)
    return TriangleMesh(points * bumps[:, None], ConvexHull(points).simplices)


def drawn_vertices(mesh, n):
    """Vertices drawn by area."""
    areas = mesh.vertex_areas()
    return np.random.default_rng(0).choice(mesh.n_vertices, n, replace=False, p=areas / areas.sum())


def eigenpairs(graph, n_pairs):
    """The smallest eigenvalues of the cotangent Laplacian, and its eigenvectors per root of the area."""
    matrix = laplacian(graph)
    values, vectors = linalg.eigsh(matrix, n_pairs, sigma=-1e-8 * abs(matrix).max())
    return values, vectors * graph.weights[:, None] ** -0.5


def laplacian(graph):
    """The symmetric Laplacian M^-1/2 L M^-1/2 of a cotangent graph."""
    return ((sparse.eye_array(graph.n_nodes) - graph.operator) / graph.step_time).tocsc()


def one_kernel(mesh):
    """Rows of the default kernel."""
    rows = drawn_vertices(mesh, 1000)
    columns, graph = rows[:30], mesh_graph(mesh, weights="cotangent")

    def features():
        model = ManifoldRandomFeatures(normalize=False, **OURS).fit(mesh)
        return model, model.kernel_matrix(mesh.vertices[rows], mesh.vertices[columns])

    def spectral():
        values, vectors = eigenpairs(graph, 200)
        return (vectors[rows] * np.exp(-t * values)) @ vectors[columns].T

    seconds, (model, kernel) = timed(features)
    t = model.graph_.time(model.graph_.n_steps)
    exact = HeatKernel(t).matrix(graph, rows, columns, per_volume=True)
    theirs, truncated = timed(spectral)
    error, other = relative_error(kernel, exact), relative_error(truncated, exact)
    shifted = (sparse.eye_array(mesh.n_vertices) + t * laplacian(graph)).tocsc()
    symmetric = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    factor, _ = timed(lambda: linalg.splu(shifted, **symmetric))
    with tempfile.TemporaryDirectory() as folder:
        size = model.save(pathlib.Path(folder) / "model.safetensors").stat().st_size / 1e6
        page, _ = timed(lambda: explore(model, pathlib.Path(folder) / "page.html"))
    yield "200 eigenpairs / features", theirs / seconds, ">=", 1 if mesh.n_vertices >= 20_000 else 0.5
    yield f"error ({error:.2g}) / that of 200 eigenpairs ({other:.2g})", error / other, "<=", 1
    yield "features / one factorisation", seconds / factor, "<=", 60
    yield "CPU seconds of the features", seconds, "<=", 10
    yield "CPU seconds of `explore`", page, "<=", 10
    yield "megabytes of the model", size, "<=", 30


def many_kernels(mesh):
    """The row of a range of times."""
    rows, times = drawn_vertices(mesh, 512), np.geomspace(*ENDS, 100)

    def ours():
        model = ManifoldRandomFeatures(times=ENDS, normalize=False, **OURS).fit(mesh)
        prepared = model.prepare(mesh.vertices[rows])
        return [prepared.kernel_matrix(t) for t in times]

    def theirs():
        values, vectors = eigenpairs(mesh_graph(mesh, weights="cotangent"), 500)
        parts = (vectors[rows] * np.exp(-t / 2 * values) for t in times)
        return [part @ part.T for part in parts]

    seconds, rivals = timed(ours)[0], timed(theirs)[0]
    yield f"100 times: 500 eigenpairs / features ({seconds:.1f} s)", rivals / seconds, ">=", 1


def process(mesh):
    """The row of a Gaussian process with many values."""
    rng = np.random.default_rng(0)
    known = rng.choice(mesh.n_vertices, mesh.n_vertices // 4, replace=False)
    x, y, z = mesh.vertices[known].T
    values = np.sin(4 * x) * np.cos(3 * y) + z + 0.1 * rng.normal(size=len(known))
    model = ManifoldGaussianProcess(space=mesh, **OURS)
    yield "CPU seconds of a process", timed(lambda: model.fit(mesh.vertices[known], values))[0], "<=", 5


def case(*measures):
    """Rows of all meshes."""

    def run(sizes):
        warnings.simplefilter("ignore")  # about meshes finer than the kernel needs
        for n in sizes:
            mesh = bumpy_sphere(n)
            for measure in measures:
                for what, *rest in measure(mesh):
                    yield Row(f"{n} vertices, {what}", *rest)

    return run


if __name__ == "__main__":
    cases = {
        "kernel": case(one_kernel),
        "times": lambda sizes: case(many_kernels)(sizes[:2]),
        "process": lambda sizes: case(process)(sizes[:2]),
    }
    run_cases(__doc__, cases, (5_000, 20_000, 50_000), (2_000,))
