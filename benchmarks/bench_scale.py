"""How a fit grows from 10,000 to 1,000,000 nodes, what threads bring, and a million points end to end.

Each row of the table says what, the figure seen, the limit, and whether it holds:

- growth: every stage of a fit (graph, anchors, weights, teacher, transform) at six sizes. There are as many
  nodes as points, and the heat time shrinks as they grow denser, so that a step reaches equally many nodes and an
  anchor stands for equally many. The exponent of time over size by least squares, at most 1.15 (of farthest points,
  which take N log N by nature, that of time over log N);
- threads: time of the teacher and of the transform with one thread over that with two: at least 1.7;
- a million points: random on the sphere, uneven on a torus, a scan sampled by area; ``fit`` below 300 s and 8 GB,
  the error of the kernel at new points, and a million new points transformed a block at a time.

Every measurement runs in a process of its own. An argument selects the rows whose titles contain it; ``--quick``
takes a tenth of the points. Exits with code 1 if a limit is missed, with ``--quick`` never. The machine is to do
nothing else meanwhile.
"""

import importlib.util
import json
import pathlib
import subprocess
import sys
import tempfile
import time
from collections import defaultdict

import numpy as np
from table import Row, peak, run_cases

from manifoldrf import (
    Exact,
    HeatGraph,
    HeatKernel,
    ManifoldRandomFeatures,
    Sphere,
    TriangleMesh,
    compute_signatures,
    load,
    relative_error,
)
from manifoldrf.kernels import PowerKernel

STAGES = ("graph", "anchors", "weights", "teacher", "transform")
WITH_LOGARITHM = {"anchors"}  # a pyramid is searched for each of them
THREADED = ("teacher", "transform")
TIME_OF_A_NODE = 200.0  # heat time times number of nodes: anchors are then .8 widths apart
NODES_OF_AN_ANCHOR, N_STEPS = 10, 10
LIMIT_SECONDS, LIMIT_GIGABYTES = 300.0, 8.0
LIMIT_MORE = 1.2  # pages of the file of points that were read count as memory: 24 MB for a million
HEAT_TIMES = {"sphere": 0.02, "torus": 0.01, "scan": 0.05}
# Of the kernel between new points: on the sphere against the closed form, elsewhere against a graph of four times
# as many nodes out of four times as many points. The scan is open and has thin parts.
LIMIT_ERROR = {"sphere": 0.005, "torus": 0.01, "scan": 0.04}
N_PAIRS, MORE = 600, 4


def elsewhere(job, *arguments):
    """What a job returns, run in a process of its own."""
    command = [sys.executable, __file__, "job", job, *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def timed(work):
    """Result of a call, and its seconds."""
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def stages(n, n_jobs):
    """Seconds of every stage of a fit to n points, and the memory."""
    if n > 3000:
        stages(3000, n_jobs)  # imports and starts threads before anything is timed
    before, begun, seconds = peak(), {}, defaultdict(float)

    def clock(what, done, total):
        name = what.split()[0]
        if done == 0:
            begun[name] = time.perf_counter()
        elif done == total:
            seconds[name] += time.perf_counter() - begun.get(name, time.perf_counter())

    model = ManifoldRandomFeatures(
        HeatKernel(TIME_OF_A_NODE / n),
        n // NODES_OF_AN_ANCHOR,
        normalize=False,
        graph=HeatGraph(n_nodes=n, dim=2, n_steps=N_STEPS),
        field="step",
        quadrature="voronoi",
        sparse_output=True,
        random_state=0,
        n_jobs=n_jobs,
        verbose=clock,
    ).fit(Sphere().sample(n, seed=0))
    # The field takes one step itself; the teacher takes the others.
    kernel, few = PowerKernel(N_STEPS // 2 - 1), model.anchors_[: max(1, model.n_features_out_ // 4)]
    options = {"teacher": Exact(1e-7, "sparse"), "asymmetric": True, "n_jobs": n_jobs}
    _, spent = timed(lambda: compute_signatures(model.graph_, kernel, few, **options))
    seconds["teacher"] = spent * model.n_features_out_ / len(few)
    new = Sphere().sample(n, seed=1)
    model.transform(new[:100])  # the first call sorts the table
    _, seconds["transform"] = timed(lambda: sum(block.nnz for block in model.transform_blocks(new)))
    return {"n_anchors": model.n_features_out_, "before": before, "gigabytes": peak(), "seconds": seconds}


def draw(shape, n, seed):
    """Points on the unit sphere, on a torus (up to 2.3 times as dense inside as outside), or of a scan by area."""
    if shape == "sphere":
        return Sphere().sample(n, seed=seed)
    if shape == "torus":
        u, v = np.random.default_rng(seed).uniform(0, 2 * np.pi, (2, n))
        ring = 1 + 0.4 * np.cos(v)
        return np.stack([ring * np.cos(u), ring * np.sin(u), 0.4 * np.sin(v)], axis=1)
    folder = pathlib.Path(importlib.util.find_spec("pymeshfix").origin).parent
    surface = TriangleMesh.load(folder / "examples" / "StanfordBunny.ply")
    return surface.sample(n, seed=seed).points / (np.ptp(surface.vertices, axis=0).max() / 10)


def transform(model, points):
    """Read the features of a file of points a block at a time, keeping none; seconds and GB."""
    features, new = load(model), np.load(points, mmap_mode="r")
    _, seconds = timed(lambda: sum(int(block.nnz) for block in features.transform_blocks(new)))
    return {"seconds": seconds, "gigabytes": peak()}


def whole(shape, n):
    """Times, memory and error from points to features."""
    kernel = HeatKernel(HEAT_TIMES[shape])
    with tempfile.TemporaryDirectory() as name:
        files = [pathlib.Path(name) / f"{what}.npy" for what in ("nodes", "few", "many")]
        for file, rows, seed in zip(files, (n, n // 10, n), (0, 2, 2), strict=True):
            np.save(file, draw(shape, rows, seed))
        model = ManifoldRandomFeatures(kernel, normalize=False, sparse_output=True, random_state=0)
        _, fit_seconds = timed(lambda: model.fit(np.load(files[0], mmap_mode="r")))
        found = {"fit_seconds": fit_seconds, "fit_gigabytes": peak(), "n_features": model.n_features_out_}
        model.save(pathlib.Path(name) / "model.safetensors")
        few, many = (elsewhere("transform", pathlib.Path(name) / "model.safetensors", file) for file in files[1:])
        places = np.array(np.load(files[2], mmap_mode="r")[:N_PAIRS])
    if shape == "sphere":
        exact = Sphere().heat_kernel(places, places, kernel.t)
    else:
        graph = HeatGraph(n_nodes=MORE * model.graph_.n_nodes)
        finer = ManifoldRandomFeatures(kernel, normalize=False, graph=graph, random_state=1)
        exact = finer.fit(draw(shape, MORE * n, 3)).kernel_matrix(places)
    found |= {"few_gigabytes": few["gigabytes"], "many_gigabytes": many["gigabytes"]}
    error = relative_error(model.kernel_matrix(places), exact)
    return found | {"transform_seconds": many["seconds"], "error": error}


def growth(largest):
    """Exponents of all stages."""
    sizes = [largest * share // 100 for share in (1, 3, 6, 10, 30, 100)]
    found = [elsewhere("stages", n, 2) for n in sizes]
    for n, record in zip(sizes, found, strict=True):
        parts = ", ".join(f"{name} {record['seconds'][name]:.3g}" for name in STAGES)
        print(f"# {n} nodes, {record['n_anchors']} anchors: {parts} s; {record['gigabytes']:.2f} GB")
    for name in STAGES:
        seconds = np.array([record["seconds"][name] for record in found])
        factor, title = (np.log(sizes), f"{name} over log N") if name in WITH_LOGARITHM else (1.0, name)
        exponent = np.polyfit(np.log(sizes), np.log(seconds / factor), 1)[0]
        yield Row(f"growth of {title}, {sizes[0]} to {largest} nodes ({seconds[-1]:.3g} s)", exponent, "<=", 1.15)
    memory = [record["gigabytes"] - record["before"] for record in found]
    exponent = np.polyfit(np.log(sizes[3:]), np.log(memory[3:]), 1)[0]
    yield Row(f"growth of memory, {sizes[3]} to {largest} nodes ({memory[-1]:.2f} GB)", exponent, "<=", 1.15)


def threads(largest):
    """One thread against two."""
    n = largest // 10
    one, two = (elsewhere("stages", n, jobs)["seconds"] for jobs in (1, 2))
    for name in THREADED:
        title = f"{name}, {n} nodes: one thread ({one[name]:.3g} s) / two ({two[name]:.3g} s)"
        yield Row(title, one[name] / two[name], ">=", 1.7)


def million(largest):
    """From points to features."""
    for shape in HEAT_TIMES:
        found = elsewhere("whole", shape, largest)
        about = f"{largest} points, {shape}"
        yield Row(f"{about}: fit, {found['n_features']} features, s", found["fit_seconds"], "<=", LIMIT_SECONDS)
        yield Row(f"{about}: peak memory of fit, GB", found["fit_gigabytes"], "<=", LIMIT_GIGABYTES)
        yield Row(f"{about}: error of the kernel at new points", found["error"], "<=", LIMIT_ERROR[shape])
        yield Row(f"{about}: transform of as many new ones, s", found["transform_seconds"], "<=", LIMIT_SECONDS)
        title = f"{about}: peak memory of transform ({found['many_gigabytes']:.2f} GB) / a tenth of the points"
        yield Row(title, found["many_gigabytes"] / found["few_gigabytes"], "<=", LIMIT_MORE)


if __name__ == "__main__":
    if sys.argv[1:2] == ["job"]:
        job, *rest = sys.argv[2:]
        plain = [int(value) if value.isdecimal() else value for value in rest]
        print(json.dumps({"stages": stages, "whole": whole, "transform": transform}[job](*plain)))
    else:
        cases = {"growth": growth, "threads": threads, "million": million}
        run_cases("Growth, threads, and a million points.", cases, full=1_000_000, quick=100_000)
