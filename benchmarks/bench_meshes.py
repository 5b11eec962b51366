"""Features of a mesh beside the exact tools: eigenpairs and a factorisation of its cotangent Laplacian.

The space is a bumpy sphere of 5,000, 20,000 and 50,000 vertices, or with ``--data DIR`` every mesh of that folder.
The kernel is the default one, at its own time. Errors are relative Frobenius errors against the cotangent operator
itself (its exponential by Chebyshev polynomials), between vertices drawn by area. Times are CPU seconds of one
process with one thread, in turn, and the rows are their ratios:

1. fit and kernel of the features against 200 eigenpairs by scipy (shift and invert) and their kernel: as fast from
   20,000 vertices on, at no larger error. The same against 200 eigenpairs of GeometricKernels, if it is installed;
   its errors are measured after the best common factor. The features also hold at new points;
2. the same against one sparse factorisation of the mass matrix plus the Laplacian: at most 60 times as long. It is
   SuperLU of scipy in symmetric mode without pivoting, which eliminates in the order of a sparse Cholesky
   factorisation (scipy has none);
3. the size of the model file: at most 30 MB;
4. CPU seconds of fit and kernel, and of the page that ``explore`` writes: at most 10 each;
5. on the bumpy sphere of 20,000 vertices, CPU seconds of `ManifoldGaussianProcess` on 5,000 values: at most 15.

``--large`` takes 500,000 and 1,000,000 vertices instead, made by subdividing the faces of a smaller bumpy sphere:
CPU seconds of fit and kernel (60 and 120) and of ``explore`` (15), the model file (30 MB) and the memory of the
process (4 GB). ``--quick`` takes 2,000 vertices and enforces no limit.
"""

import argparse
import importlib.util
import logging
import pathlib
import tempfile
import time
import warnings

import numpy as np
from scipy import sparse
from scipy.sparse import linalg
from scipy.spatial import ConvexHull
from table import Row, finish, peak
from threadpoolctl import threadpool_limits

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

SIZES, QUICK = (5_000, 20_000, 50_000), (2_000,)
LARGE = 20_000  # vertices from which on features are to be as fast
N_PAIRS, N_ROWS, N_COLUMNS = 200, 1000, 30
SUBDIVIDED = ((500_000, 60), (1_000_000, 120))  # vertices with --large, and the limit of seconds
PROCESS, N_VALUES = 20_000, 5_000  # vertices and values of the process
SUFFIXES = {".ply", ".obj", ".stl", ".off"}


def bumpy_sphere(n):
    """Even vertices on a sphere with bumps of about a tenth of its radius."""
    points = Sphere().grid(n)
    x, y, z = points.T
    bumps = 1 + 0.05 * np.sin(9 * x) * np.sin(9 * y + 1) * np.sin(9 * z + 2)
    return TriangleMesh(points * bumps[:, None], ConvexHull(points).simplices)


def subdivided(mesh):
    """A mesh with each face cut into four at the middles of its sides."""
    sides = np.sort(mesh.faces[:, [[0, 1], [1, 2], [2, 0]]], axis=2)  # (m, 3, 2)
    keys = mesh.edges @ [mesh.n_vertices, 1]
    middle = mesh.n_vertices + np.searchsorted(keys, sides @ [mesh.n_vertices, 1])  # (m, 3)
    (a, b, c), (ab, bc, ca) = mesh.faces.T, middle.T
    parts = ((a, ab, ca), (b, bc, ab), (c, ca, bc), (ab, bc, ca))
    vertices = np.concatenate([mesh.vertices, mesh.vertices[mesh.edges].mean(axis=1)])
    return TriangleMesh(vertices, np.concatenate([np.column_stack(part) for part in parts]))


def timed(function):
    """CPU seconds of a call, and its result."""
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def features_kernel(mesh, rows, columns, **options):
    """Features by default, their kernel between vertices in absolute units, and the model."""
    model = ManifoldRandomFeatures(normalize=False, random_state=0, n_jobs=1, **options).fit(mesh)
    return model.kernel_matrix(mesh.vertices[rows], mesh.vertices[columns]), model


def laplacian(graph):
    """The symmetric Laplacian M^-1/2 L M^-1/2 of a cotangent graph, and 1 / sqrt(mass)."""
    walk = sparse.csc_array(graph.operator)
    return (sparse.eye_array(graph.n_nodes) - walk).tocsc() / graph.step_time, graph.weights**-0.5


def spectral_kernel(graph, t, rows, columns):
    """The heat kernel by the smallest eigenpairs of the cotangent Laplacian."""
    matrix, scale = laplacian(graph)
    values, vectors = linalg.eigsh(matrix, N_PAIRS, sigma=-1e-8 * abs(matrix).max())
    vectors *= scale[:, None]
    return (vectors[rows] * np.exp(-t * values)) @ vectors[columns].T


def geometric_kernels(mesh, rows, n_pairs):
    """CPU seconds of eigenpairs by GeometricKernels, and its kernel by time; None if it is not installed."""
    if importlib.util.find_spec("geometric_kernels") is None:
        return None
    logging.disable(logging.INFO)  # the package greets on import
    from geometric_kernels.kernels import MaternGeometricKernel
    from geometric_kernels.spaces import Mesh

    def prepare():
        kernel = MaternGeometricKernel(Mesh(mesh.vertices, mesh.faces), num=n_pairs)
        kernel.space.get_eigensystem(n_pairs)
        return kernel

    seconds, kernel = timed(prepare)

    def kernel_at(t):
        params = {"nu": np.array([np.inf]), "lengthscale": np.array([np.sqrt(2 * t)])}
        return kernel.K(params, rows[:, None], rows[:, None])

    return seconds, kernel_at


def drawn_vertices(mesh):
    """Vertices drawn by area."""
    areas = mesh.vertex_areas()
    return np.random.default_rng(0).choice(mesh.n_vertices, N_ROWS, replace=False, p=areas / areas.sum())


def saved(model):
    """Megabytes of the file of a model, and CPU seconds of its page."""
    with tempfile.TemporaryDirectory() as folder:
        size = model.save(pathlib.Path(folder) / "model.safetensors").stat().st_size
        return size / 1e6, timed(lambda: explore(model, pathlib.Path(folder) / "page.html"))[0]


def measure_large(n, limit):
    """Rows of the table for a mesh made by subdividing."""
    mesh = subdivided(subdivided(bumpy_sphere(n // 16)))
    rows = drawn_vertices(mesh)
    seconds, (_, model) = timed(lambda: features_kernel(mesh, rows, rows[:N_COLUMNS]))
    size, page_seconds = saved(model)
    title = f"subdivided sphere, {mesh.n_vertices} vertices"
    yield Row(f"{title}: CPU seconds of the features", seconds, "<=", limit)
    yield Row(f"{title}: CPU seconds of `explore`", page_seconds, "<=", 15)
    yield Row(f"{title}: megabytes of the model", size, "<=", 30)
    yield Row(f"{title}: GB of memory", peak(), "<=", 4)


def measure_process(mesh):
    """The row of a Gaussian process with many values."""
    rng = np.random.default_rng(0)
    known = rng.choice(mesh.n_vertices, N_VALUES, replace=False)
    x, y, z = mesh.vertices[known].T
    values = np.sin(4 * x) * np.cos(3 * y) + z + 0.1 * rng.normal(size=N_VALUES)
    process = ManifoldGaussianProcess(space=mesh, random_state=0, n_jobs=1)
    seconds, _ = timed(lambda: process.fit(mesh.vertices[known], values))
    yield Row(f"{N_VALUES} values on {mesh.n_vertices} vertices: CPU seconds of a process", seconds, "<=", 15)


def compare(name, mesh):
    """Rows of the table for one mesh."""
    rows = drawn_vertices(mesh)
    columns = rows[:N_COLUMNS]
    seconds, (kernel, model) = timed(lambda: features_kernel(mesh, rows, columns))
    t = model.graph_.time(model.graph_.n_steps)
    graph = mesh_graph(mesh, weights="cotangent")
    exact = HeatKernel(t).matrix(graph, rows, columns, per_volume=True)
    eigen_seconds, truncated = timed(lambda: spectral_kernel(graph, t, rows, columns))
    matrix = laplacian(graph)[0]
    shifted = (sparse.eye_array(mesh.n_vertices) + t * matrix).tocsc()
    symmetric = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0, "options": {"SymmetricMode": True}}
    factor_seconds, _ = timed(lambda: linalg.splu(shifted, **symmetric))
    error, other = relative_error(kernel, exact), relative_error(truncated, exact)
    size, page_seconds = saved(model)
    quick = 1.0 if mesh.n_vertices >= LARGE else 0.5
    title = f"{name}, {mesh.n_vertices} vertices"
    yield Row(
        f"{title}: time of {N_PAIRS} eigenpairs over that of the features", eigen_seconds / seconds, ">=", quick
    )
    yield Row(
        f"{title}: error ({error:.2g}) over that of {N_PAIRS} eigenpairs ({other:.2g})", error / other, "<=", 1
    )
    peer = geometric_kernels(mesh, rows, N_PAIRS)
    if peer is not None:
        kernel_seconds, found = timed(lambda: peer[1](t)[:, :N_COLUMNS])
        theirs = relative_error(found, exact, alignment="least squares")
        ratio = (peer[0] + kernel_seconds) / seconds
        yield Row(f"{title}: time of {N_PAIRS} pairs of GeometricKernels over ours", ratio, ">=", quick)
        yield Row(f"{title}: error over that of GeometricKernels ({theirs:.2g})", error / theirs, "<=", 1)
    yield Row(f"{title}: time of the features over one factorisation", seconds / factor_seconds, "<=", 60)
    yield Row(f"{title}: CPU seconds of the features", seconds, "<=", 10)
    yield Row(f"{title}: CPU seconds of `explore`", page_seconds, "<=", 10)
    yield Row(f"{title}: megabytes of the model", size, "<=", 30)


def measured(options):
    """Rows of the meshes that are asked for."""
    if options.large:
        for n, limit in SUBDIVIDED:
            yield from measure_large(n, limit)
        return
    if options.data is None:
        meshes = [("bumpy sphere", bumpy_sphere(n)) for n in (QUICK if options.quick else SIZES)]
    else:
        files = sorted(path for path in options.data.iterdir() if path.suffix in SUFFIXES)
        meshes = ((path.stem, TriangleMesh.load(path)) for path in files)
    for name, mesh in meshes:
        yield from compare(name, mesh)
        if name == "bumpy sphere" and mesh.n_vertices == PROCESS:
            yield from measure_process(mesh)


def main():
    """Measure, print the table, and exit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, help="folder of meshes (ply, obj, stl, off)")
    parser.add_argument("--large", action="store_true", help="500,000 and 1,000,000 vertices, times and sizes only")
    parser.add_argument("--quick", action="store_true", help="a small mesh, limits not enforced")
    parser.add_argument("--json", type=pathlib.Path, help="file to write the rows to")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # about meshes finer than the kernel needs
    rows = []
    with threadpool_limits(1):
        list(compare("compilation", bumpy_sphere(QUICK[0])))
        for row in measured(options):
            row.show()
            rows.append(row)
    finish(rows, options)


if __name__ == "__main__":
    main()
