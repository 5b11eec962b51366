"""Features of a mesh beside the exact tools: eigenpairs and a factorisation of its cotangent Laplacian.

The space is a bumpy sphere of 5,000, 20,000 and 50,000 vertices, or with ``--data DIR`` every mesh of that folder.
The kernel is the default one, at its own time. Errors are relative Frobenius errors against the cotangent operator
itself (its exponential by Chebyshev polynomials), between vertices drawn by area. Times are CPU seconds of one
process with one thread, in turn, and the rows are their ratios:

1. fit and kernel of the features against 200 eigenpairs by scipy (shift and invert, as in GeometricKernels) and
   their kernel: as fast from 20,000 vertices on, at no larger error. The features also hold at new points;
2. the same against one sparse LU factorisation of the mass matrix plus the Laplacian: at most 60 times as long;
3. the error with thinned nodes over that with all vertices as nodes (``n_nodes="all"``, up to 25,000 vertices):
   at most 1.2;
4. the size of the model file: at most 30 MB;
5. CPU seconds of fit and kernel, and of the page that ``explore`` writes: at most 10 each.

``--quick`` takes 2,000 vertices and enforces no limit.
"""

import argparse
import pathlib
import tempfile
import time
import warnings

import numpy as np
from scipy import sparse
from scipy.sparse import linalg
from scipy.spatial import ConvexHull
from table import Row, finish
from threadpoolctl import threadpool_limits

from manifoldrf import (
    GraphOptions,
    HeatKernel,
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
FEW = 25_000  # vertices of a mesh that is also fitted with all of them as nodes
SUFFIXES = {".ply", ".obj", ".stl", ".off"}


def bumpy_sphere(n):
    """Even vertices on a sphere with bumps of about a tenth of its radius."""
    points = Sphere().grid(n)
    x, y, z = points.T
    bumps = 1 + 0.05 * np.sin(9 * x) * np.sin(9 * y + 1) * np.sin(9 * z + 2)
    return TriangleMesh(points * bumps[:, None], ConvexHull(points).simplices)


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


def compare(name, mesh, *, with_all):
    """Rows of the table for one mesh."""
    areas = mesh.vertex_areas()
    drawn = np.random.default_rng(0).choice(mesh.n_vertices, N_ROWS, replace=False, p=areas / areas.sum())
    rows, columns = drawn, drawn[:N_COLUMNS]
    seconds, (kernel, model) = timed(lambda: features_kernel(mesh, rows, columns))
    t = model.graph_.time(model.graph_.n_steps)
    graph = mesh_graph(mesh, weights="cotangent")
    exact = HeatKernel(t).matrix(graph, rows, columns, per_volume=True)
    eigen_seconds, truncated = timed(lambda: spectral_kernel(graph, t, rows, columns))
    matrix = laplacian(graph)[0]
    factor_seconds, _ = timed(lambda: linalg.splu((sparse.eye_array(mesh.n_vertices) + t * matrix).tocsc()))
    error, other = relative_error(kernel, exact), relative_error(truncated, exact)
    with tempfile.TemporaryDirectory() as folder:
        size = model.save(pathlib.Path(folder) / "model.safetensors").stat().st_size
        page_seconds, _ = timed(lambda: explore(model, pathlib.Path(folder) / "page.html"))
    quick = 1.0 if mesh.n_vertices >= LARGE else 0.5
    title = f"{name}, {mesh.n_vertices} vertices"
    yield Row(
        f"{title}: time of {N_PAIRS} eigenpairs over that of the features", eigen_seconds / seconds, ">=", quick
    )
    yield Row(
        f"{title}: error ({error:.2g}) over that of {N_PAIRS} eigenpairs ({other:.2g})", error / other, "<=", 1
    )
    yield Row(f"{title}: time of the features over one LU", seconds / factor_seconds, "<=", 60)
    yield Row(f"{title}: CPU seconds of the features", seconds, "<=", 10)
    yield Row(f"{title}: CPU seconds of `explore`", page_seconds, "<=", 10)
    yield Row(f"{title}: megabytes of the model", size / 1e6, "<=", 30)
    if with_all:
        whole, _ = features_kernel(mesh, rows, columns, graph=GraphOptions(n_nodes="all"))
        ratio = error / relative_error(whole, exact)
        yield Row(f"{title}: error over that with all vertices as nodes", ratio, "<=", 1.2)


def main():
    """Measure, print the table, and exit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", type=pathlib.Path, help="folder of meshes (ply, obj, stl, off)")
    parser.add_argument("--quick", action="store_true", help="a small mesh, limits not enforced")
    parser.add_argument("--json", type=pathlib.Path, help="file to write the rows to")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # about meshes finer than the kernel needs
    if options.data is None:
        meshes = (("bumpy sphere", bumpy_sphere(n)) for n in (QUICK if options.quick else SIZES))
    else:
        files = sorted(path for path in options.data.iterdir() if path.suffix in SUFFIXES)
        meshes = ((path.stem, TriangleMesh.load(path)) for path in files)
    rows = []
    with threadpool_limits(1):
        list(compare("compilation", bumpy_sphere(QUICK[0]), with_all=False))  # of what all meshes use
        for name, mesh in meshes:
            for row in compare(name, mesh, with_all=mesh.n_vertices <= FEW):
                row.show()
                rows.append(row)
    finish(rows, options)


if __name__ == "__main__":
    main()
