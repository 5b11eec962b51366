"""Kernels of many times t on one mesh: features of a range of times beside eigenpairs of the cotangent Laplacian.

The mesh is the bumpy sphere of ``bench_meshes``. Each line needs the heat kernel between 512 of its vertices at 1,
10, 100 or 1000 times t, even in log t: in an octave from a narrow, a medium or a wide kernel on, or in a range of
six octaves. Ours is one fit with ``times`` and ``prepare`` (for one time a plain fit). The others are 50 to 1000
eigenpairs by scipy (shift and invert) and their sums over pairs that matter at t, and GeometricKernels, if it is
installed. Errors are relative Frobenius errors against the exponential of the cotangent operator of the same mesh,
after the best common factor (GeometricKernels scales its kernels), the largest of three times. This favours
eigenpairs, which share its discretisation.

Seconds are CPU seconds of one process with one thread: of the preparation, plus for each time the mean of 100 of
them. ``--quick`` takes 2,000 vertices and at most 200 eigenpairs.
"""

import argparse
import importlib.util
import pathlib
import sys
import warnings

import numpy as np
import record
from bench_meshes import bumpy_sphere, geometric_kernels, laplacian, timed
from scipy.sparse import linalg
from threadpoolctl import threadpool_limits

from manifoldrf import HeatKernel, ManifoldRandomFeatures, mesh_graph, relative_error

COUNTS = 1, 10, 100, 1000
RANGES = {"narrow": (0.01, 0.02), "medium": (0.05, 0.1), "wide": (0.32, 0.64), "all": (0.01, 0.64)}
N_POINTS, N_COLUMNS, N_TIMED = 512, 30, 100
NEGLIGIBLE = 37.0  # exp(-37) is below the rounding of 1


def drawn_vertices(mesh):
    """Random vertices, by area."""
    areas = mesh.vertex_areas()
    return np.random.default_rng(0).choice(mesh.n_vertices, N_POINTS, replace=False, p=areas / areas.sum())


def measure(setup, kernel_at, ends, exact):
    """Seconds of the preparation and of each time, and the largest error."""
    first, known = timed(setup)
    times = np.geomspace(*ends, N_TIMED)
    begun, _ = timed(lambda: [kernel_at(known, t) for t in np.geomspace(*ends, 13)])  # what levels do once
    each = timed(lambda: [kernel_at(known, t) for t in times])[0] / N_TIMED
    errors = [
        relative_error(kernel_at(known, t)[:, :N_COLUMNS], truth, alignment="least squares")
        for t, truth in exact.items()
    ]
    return first + max(0.0, begun - 13 * each), each, max(errors, default=0.0)


def ours(mesh, points, ends, exact):
    """Seconds for each number of times, and the error, of our features."""

    def one():
        t = float(np.sqrt(ends[0] * ends[1]))
        model = ManifoldRandomFeatures(HeatKernel(t), normalize=False, random_state=0, n_jobs=1).fit(mesh)
        return model.kernel_matrix(points)

    def fit():
        model = ManifoldRandomFeatures(times=ends, normalize=False, random_state=0, n_jobs=1).fit(mesh)
        return model.prepare(points)

    setup, each, error = measure(fit, lambda known, t: known.kernel_matrix(t), ends, exact)
    single, _ = timed(one)
    return [single, *(setup + n * each for n in COUNTS[1:])], error, each


def eigenpairs(graph, rows, n_pairs):
    """CPU seconds of the eigenpairs, and a function that makes a kernel of them."""
    matrix, scale = laplacian(graph)
    seconds, (values, vectors) = timed(lambda: linalg.eigsh(matrix, n_pairs, sigma=-1e-8 * abs(matrix).max()))
    at_points = scale[rows, None] * vectors[rows]

    def kernel_at(t):
        kept = t * values < NEGLIGIBLE
        part = at_points[:, kept] * np.exp(-t / 2 * values[kept])
        return part @ part.T

    return seconds, kernel_at


def compare(mesh, pairs):
    """Rows of the record for one mesh."""
    rows = drawn_vertices(mesh)
    points, graph = mesh.vertices[rows], mesh_graph(mesh, weights="cotangent")
    others = {}
    for k in pairs:
        others[f"eigsh, {k} pairs"] = eigenpairs(graph, rows, k)
        others[f"GeometricKernels, {k} pairs"] = geometric_kernels(mesh, rows, k) if k > pairs[0] else None
    for name, ends in RANGES.items():
        moments = np.geomspace(*ends, 3) if name != "all" else [ends[0], 0.1, ends[1]]
        exact = {t: HeatKernel(t).matrix(graph, rows, rows[:N_COLUMNS], per_volume=True) for t in moments}
        common = {"vertices": mesh.n_vertices, "range": name, "ends": list(ends)}
        seconds, error, each = ours(mesh, points, ends, exact)
        one = slice(1) if name == "all" else slice(0)  # a single time is the matter of the lines above
        seconds[one] = [None] * len(seconds[one])
        yield common | {"method": "features", "seconds": seconds, "each": each, "error": error}
        for method, found in others.items():
            if found is not None:
                _, each, error = measure(lambda: None, lambda _, t, at=found[1]: at(t), ends, exact)
                totals = [found[0] + n * each for n in COUNTS]
                totals[one] = [None] * len(totals[one])
                yield common | {"method": method, "seconds": totals, "each": each, "error": error}


def _text(number):
    if number is None:
        return ""
    return f"{number:.2g}" if number < 10 else f"{number:.0f}"


def section(rows):
    """The tables: all figures, and who is ahead at no larger error."""
    head = [f"{n} time{'s' * (n > 1)}" for n in COUNTS]
    lines = ["| vertices | t | method | error | " + " | ".join(head) + " |", "|---" * (4 + len(COUNTS)) + "|"]
    for row in rows:
        ends = " to ".join(f"{end:g}" for end in row["ends"])
        cells = [f"{row['vertices']:,}", ends, row["method"], _text(row["error"])]
        lines.append("| " + " | ".join(cells + [_text(s) for s in row["seconds"]]) + " |")
    lines += ["", "Seconds of the cheapest other method at no larger error, over ours:", ""]
    lines += ["| vertices | t | method | " + " | ".join(head) + " |", "|---" * (3 + len(COUNTS)) + "|"]
    for ours_row in (row for row in rows if row["method"] == "features"):
        place = ours_row["vertices"], ours_row["range"]
        rivals = [row for row in rows if (row["vertices"], row["range"]) == place and row is not ours_row]
        fair = [row for row in rivals if row["error"] <= ours_row["error"]]
        best = min(fair, key=lambda row: row["seconds"][1], default=None)
        pairs = zip(best["seconds"], ours_row["seconds"], strict=True) if best else ()
        ratios = [_text(own and theirs / own) for theirs, own in pairs] or len(COUNTS) * [""]
        name = best["method"] if best else "none of them"
        ends = " to ".join(f"{end:g}" for end in ours_row["ends"])
        lines.append(f"| {place[0]:,} | {ends} | {name} | " + " | ".join(ratios) + " |")
    return "\n".join(lines)


def main():
    """Measure, print the table, and write it where asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a small mesh and few eigenpairs")
    parser.add_argument("--json", type=pathlib.Path, help="file to write the rows to")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # about meshes finer than the kernel needs
    sizes, pairs = ((2_000,), (50, 200)) if options.quick else ((5_000, 20_000), (50, 200, 500, 1000))
    if importlib.util.find_spec("geometric_kernels") is None:
        print("GeometricKernels is not installed, so it is left out.", file=sys.stderr)
    with threadpool_limits(1):
        ours(bumpy_sphere(500), np.eye(3), RANGES["medium"], {})  # compilation
        rows = [row for n in sizes for row in compare(bumpy_sphere(n), pairs)]
    print(section(rows))
    if options.json is not None:
        record.keep(rows, options.json)


if __name__ == "__main__":
    main()
