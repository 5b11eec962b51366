"""A fit of many points in a process of its own, and new points transformed from a file; prints a line of JSON.

Called by bench_scale.py. Peak memory is that of the process up to then, so stages run in the order of their needs:
the fit first, then a transform of a tenth of the points, then of all.
"""

import argparse
import importlib.util
import json
import pathlib
import resource
import tempfile
import time

import numpy as np

from manifoldrf import GraphOptions, HeatKernel, ManifoldRandomFeatures, Sphere, TriangleMesh
from manifoldrf.metrics import relative_error

N_PAIRS = 600  # new points between which the kernel is compared
MORE = 4  # times as many nodes and points for references


def sphere(n, seed):
    """Random points on the unit sphere."""
    return Sphere().sample(n, seed=seed)


def torus(n, seed):
    """Points on a torus, uniform in its angles: up to 2.3 times as dense inside as outside."""
    u, v = np.random.default_rng(seed).uniform(0, 2 * np.pi, (2, n))
    ring = 1 + 0.4 * np.cos(v)
    return np.stack([ring * np.cos(u), ring * np.sin(u), 0.4 * np.sin(v)], axis=1)


def scan(n, seed, mesh=None):
    """Points of a scan by area, in units of a tenth of its extent: the Stanford bunny, or a file of one's own."""
    if mesh is None:
        folder = pathlib.Path(importlib.util.find_spec("pymeshfix").origin).parent
        mesh = folder / "examples" / "StanfordBunny.ply"
    surface = TriangleMesh.load(mesh)
    unit = np.ptp(surface.vertices, axis=0).max() / 10
    return surface.sample(n, seed=seed).points / unit


SHAPES = {"sphere": (sphere, 0.02), "torus": (torus, 0.01), "scan": (scan, 0.05)}


def peak():
    """Memory so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def drain(blocks):
    """Read blocks of features one after the other, keeping none; how many entries they had."""
    return sum(int(block.nnz) for block in blocks)


def exact(shape, places, t, draw, n, model):
    """The kernel between places: in closed form, or of a larger graph of more points."""
    if shape == "sphere":
        return Sphere().heat_kernel(places, places, t)
    options = GraphOptions(n_nodes=MORE * model.graph_.n_nodes)
    reference = ManifoldRandomFeatures(HeatKernel(t), graph=options, random_state=1)
    return reference.fit(draw(MORE * n, 3)).kernel(places)


def measure(shape, n, mesh=None):
    """Times, memory and error."""
    draw, t = SHAPES[shape]
    if shape == "scan" and mesh is not None:

        def draw(n, seed):
            return scan(n, seed, mesh)

    with tempfile.TemporaryDirectory() as name:
        files = [pathlib.Path(name) / f"{what}.npy" for what in ("nodes", "few", "many")]
        for file, rows, seed in zip(files, (n, n // 10, n), (0, 2, 2), strict=True):
            np.save(file, draw(rows, seed))
        nodes, few, many = (np.load(file, mmap_mode="r") for file in files)
        model = ManifoldRandomFeatures(HeatKernel(t), sparse_output=True, random_state=0)
        start = time.perf_counter()
        model.fit(nodes)
        found = {"fit_seconds": time.perf_counter() - start, "fit_gigabytes": peak()}
        drain(model.transform_blocks(few))
        found["few_gigabytes"] = peak()
        start = time.perf_counter()
        entries = drain(model.transform_blocks(many))
        found |= {"transform_seconds": time.perf_counter() - start, "many_gigabytes": peak()}
        places = np.array(many[:N_PAIRS])
    error = relative_error(model.kernel(places), exact(shape, places, t, draw, n, model))
    made = {"n_nodes": model.graph_.n_nodes, "n_features": model.n_features_out_, "entries_per_row": entries / n}
    return found | made | {"error": error}


def main():
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("n", type=int)
    parser.add_argument("--mesh", type=pathlib.Path, help="a scan of one's own")
    options = parser.parse_args()
    print(json.dumps(measure(options.shape, options.n, options.mesh)))


if __name__ == "__main__":
    main()
