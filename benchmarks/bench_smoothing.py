"""Smoothing a field on a mesh beside nilearn's neighbour averages and implicit Euler steps.

The space is a sphere of 150,000 vertices, as many as half a cortex has, evenly spread or with a density that varies
by a factor of nine; the filter is eleven mean edges wide. The field has four columns of noise. Times are CPU
seconds of one process with one thread, in turn, the best of three, and the rows are their ratios:

1. ``smooth`` over nilearn's ``smooth_img``: at most 6. It averages neighbours and knows neither lengths nor areas;
2. ``smooth`` over one implicit Euler step with the same Laplacian (scipy's sparse LU): at most 1;
3. the width of a spread point over the one asked for, for each of them: ours within 2 %.

``--quick`` takes 10,000 vertices and enforces no limit.
"""

import argparse
import math
import pathlib
import time

import numpy as np
from nilearn.image import smooth_img
from nilearn.surface import InMemoryMesh, PolyMesh, SurfaceImage
from scipy import sparse
from scipy.sparse import linalg
from scipy.spatial import ConvexHull
from table import Row, finish
from threadpoolctl import threadpool_limits

from manifoldrf import Sphere, TriangleMesh, mesh_graph, smooth

FULL, QUICK = 150_000, 10_000
EDGES = 11  # width of the filter in edges
ROUNDS, COLUMNS = 3, 4


def sphere(n, *, even):
    """A sphere; an uneven one has nine times as many vertices per area at one pole as at the other."""
    points = Sphere().grid(n)
    if not even:  # a conformal map that triples areas at one pole and divides them by three at the other
        z = points[:, 2]
        tangent = np.sqrt((1 - z) / (1 + z)) * math.sqrt(3)
        height = (1 - tangent**2) / (1 + tangent**2)
        points = np.column_stack([points[:, :2] * np.sqrt((1 - height**2) / (1 - z**2))[:, None], height])
    return TriangleMesh(points, ConvexHull(points).simplices)


def by_nilearn(mesh, field, fwhm):
    """Smooth a surface image, which needs two hemispheres: the second one has four vertices."""
    tiny = InMemoryMesh(np.eye(4, 3), np.array([[0, 1, 2], [0, 1, 3], [0, 2, 3], [1, 2, 3]]))
    parts = PolyMesh(left=InMemoryMesh(mesh.vertices, mesh.faces), right=tiny)
    image = SurfaceImage(parts, {"left": field, "right": np.zeros((4, field.shape[1]))})
    return smooth_img(image, fwhm).data.parts["left"]


def by_euler(mesh, field, fwhm):
    """One implicit step (M + t L) u = M f."""
    graph = mesh_graph(mesh, weights="cotangent")
    masses = sparse.diags_array(graph.weights)
    laplacian = (masses - graph.affinity) / graph.step_time
    factors = linalg.splu((masses + fwhm**2 / (16 * math.log(2)) * laplacian).tocsc())
    return factors.solve(masses @ field)


WAYS = {"smooth": lambda mesh, field, fwhm: smooth(mesh, field, fwhm=fwhm, n_jobs=1), "nilearn": by_nilearn}
WAYS["implicit Euler"] = by_euler


def timed(function, *arguments):
    """CPU seconds of a call."""
    start = time.process_time()
    function(*arguments)
    return time.process_time() - start


def width(mesh, way, fwhm, node):
    """Width of a Gaussian with the variance of a spread point, along the surface, over the width asked for."""
    start = np.zeros((mesh.n_vertices, 1))
    start[node] = 1.0
    areas = mesh.vertex_areas()
    found = way(mesh, start, fwhm)[:, 0] * areas
    apart = Sphere().distance(mesh.vertices[[node]], mesh.vertices)[0]
    return math.sqrt(8 * math.log(2) * (found * apart**2).sum() / found.sum() / 2) / fwhm


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="smaller sizes, limits not enforced")
    parser.add_argument("--json", type=pathlib.Path, help="file to write the rows to")
    options = parser.parse_args()
    n, rows = QUICK if options.quick else FULL, []
    field = np.random.default_rng(0).standard_normal((n, COLUMNS))
    fwhm = EDGES * math.sqrt(4 * math.pi / n)
    with threadpool_limits(1):
        for even in (True, False):
            mesh, name = sphere(n, even=even), "even" if even else "uneven"
            best = dict.fromkeys(WAYS, math.inf)
            for _ in range(ROUNDS):
                for key, way in WAYS.items():
                    best[key] = min(best[key], timed(way, mesh, field, fwhm))
            for key, limit in (("nilearn", 6), ("implicit Euler", 1)):
                rows.append(Row(f"{name}: smooth over {key}", best["smooth"] / best[key], "<=", limit))
            print(f"{name}, CPU seconds: {', '.join(f'{key} {took:.2f}' for key, took in best.items())}")
            for pole in ("dense", "sparse"):
                node = int(np.argmin(mesh.vertices[:, 2]) if pole == "dense" else np.argmax(mesh.vertices[:, 2]))
                for key, way in WAYS.items():
                    limit = 1.02 if key == "smooth" else math.inf
                    what = f"{name}, {pole} pole: width by {key} over the one asked for"
                    rows.append(Row(what, width(mesh, way, fwhm, node), "within", limit))
    for row in rows:
        row.show()
    finish(rows, options)


if __name__ == "__main__":
    main()
