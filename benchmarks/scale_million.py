"""A fit of many points, and new points transformed from a file, each in a process of its own; prints JSON.

Called by bench_scale.py. Peak memory is that of a whole process: new points, all and a tenth of them, are
transformed by processes that load the model and do nothing else.
"""

import argparse
import functools
import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
from scale_stages import NODES_OF_AN_ANCHOR, TIME_OF_A_NODE
from table import peak

from manifoldrf import GraphOptions, HeatKernel, ManifoldRandomFeatures, Sphere, TriangleMesh, load
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


# "every": a kernel so narrow that no point can be spared as a node; as in scale_stages.py, which times its parts.
DRAWS = {"sphere": sphere, "torus": torus, "scan": scan, "every": sphere}
HEAT_TIMES = {"sphere": 0.02, "torus": 0.01, "scan": 0.05}


def recipe(shape, n):
    """Kernel and options of a fit: nothing but the time, unless every point is to be a node."""
    if shape != "every":
        return {"kernel": HeatKernel(HEAT_TIMES[shape])}
    graph = GraphOptions(n_nodes="all")
    return {"kernel": HeatKernel(TIME_OF_A_NODE / n), "graph": graph, "n_features": n // NODES_OF_AN_ANCHOR}


def transform(model, points):
    """Read the features of a file of points a block at a time, keeping none; seconds, GB, and entries in a row."""
    features, new = load(model), np.load(points, mmap_mode="r")
    start = time.perf_counter()
    entries = sum(int(block.nnz) for block in features.transform_blocks(new))
    return {"seconds": time.perf_counter() - start, "gigabytes": peak(), "entries": entries / len(new)}


def transform_elsewhere(*files):
    """The same in a process of its own."""
    command = [sys.executable, __file__, "transform", *map(str, files)]
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def exact(places, draw, n, model):
    """The kernel between places: in closed form, or of a larger graph of more points."""
    if draw is sphere:
        return Sphere().heat_kernel(places, places, model.kernel.t)
    options = GraphOptions(n_nodes=MORE * model.graph_.n_nodes)
    reference = ManifoldRandomFeatures(model.kernel, normalize=False, graph=options, random_state=1)
    return reference.fit(draw(MORE * n, 3)).kernel_matrix(places)


def measure(shape, n, mesh=None):
    """Times, memory and error."""
    draw = DRAWS[shape] if mesh is None else functools.partial(scan, mesh=mesh)
    with tempfile.TemporaryDirectory() as name:
        files = [pathlib.Path(name) / f"{what}.npy" for what in ("nodes", "few", "many")]
        for file, rows, seed in zip(files, (n, n // 10, n), (0, 2, 2), strict=True):
            np.save(file, draw(rows, seed))
        model = ManifoldRandomFeatures(**recipe(shape, n), normalize=False, sparse_output=True, random_state=0)
        start = time.perf_counter()
        model.fit(np.load(files[0], mmap_mode="r"))
        found = {"fit_seconds": time.perf_counter() - start, "fit_gigabytes": peak()}
        model.save(pathlib.Path(name) / "model.safetensors")
        few, many = (transform_elsewhere(pathlib.Path(name) / "model.safetensors", file) for file in files[1:])
        found |= {"few_gigabytes": few["gigabytes"], "many_gigabytes": many["gigabytes"]}
        found |= {"transform_seconds": many["seconds"], "entries_per_row": many["entries"]}
        places = np.array(np.load(files[2], mmap_mode="r")[:N_PAIRS])
    error = relative_error(model.kernel_matrix(places), exact(places, draw, n, model))
    made = {"n_nodes": model.graph_.n_nodes, "n_features": model.n_features_out_}
    return found | made | {"error": error}


def main():
    """Measure what the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=[*DRAWS, "transform"])
    parser.add_argument("rest", nargs="+", help="number of points; of a transform: model, points")
    parser.add_argument("--mesh", type=pathlib.Path, help="points of a scan of one's own instead")
    options = parser.parse_args()
    if options.what == "transform":
        print(json.dumps(transform(*options.rest)))
    else:
        print(json.dumps(measure(options.what, int(options.rest[0]), options.mesh)))


if __name__ == "__main__":
    main()
