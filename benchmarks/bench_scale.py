"""How the time and memory of a fit grow, and what a fit of a million points takes.

- growth: every stage of a fit (graph, anchors, weights, teacher, transform) from 9,000 to 90,000 nodes; a cloud
  gets no more than 100,000. There are as many nodes as points, and the heat time shrinks as they grow denser, so
  that a step reaches equally many nodes and an anchor stands for equally many. Exponents of CPU seconds and of
  memory over size, by least squares: at most 1.15 (of farthest points, which take N log N by nature, that of
  seconds over log N);
- a million points: random on the sphere, uneven on a torus, a scan sampled by area. CPU seconds of ``fit`` and of
  a million new points a block at a time (at most 300), memory (8 GB), the error of the kernel at new points. On the
  sphere it is against the closed form, elsewhere against a graph of four times the nodes and points.

Every measurement runs in a process of its own, with one thread. An argument selects rows; ``--quick`` takes a tenth
of the points.
"""

import importlib.util
import json
import pathlib
import subprocess
import sys
import time
from collections import defaultdict

import numpy as np
from table import Row, run_cases, timed

from manifoldrf import (
    Exact,
    HeatGraph,
    HeatKernel,
    ManifoldRandomFeatures,
    Sphere,
    TriangleMesh,
    compute_signatures,
    relative_error,
)
from manifoldrf.kernels import PowerKernel

STAGES = ("graph", "anchors", "weights", "teacher", "transform")
STATUS = pathlib.Path("/proc/self/status")
HEAT_TIMES = {"sphere": 0.02, "torus": 0.01, "scan": 0.05}
LIMIT_ERROR = {"sphere": 0.005, "torus": 0.01, "scan": 0.04}  # the scan is open and has thin parts


def elsewhere(*arguments):
    """What a job returns, run in a process of its own."""
    command = [sys.executable, __file__, "job", *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def peak():
    """Memory of this process so far, in GB: Linux counts in ``ru_maxrss`` what its parent held."""
    return next(int(line.split()[1]) for line in STATUS.open() if line.startswith("VmHWM")) / 2**20


def stages(n):
    """CPU seconds of every stage of a fit to n points, and the memory."""
    if n > 3000:
        stages(3000)  # imports before anything is timed
    before, begun, seconds = peak(), {}, defaultdict(float)

    def clock(what, done, total):
        name = what.split()[0]
        if done == 0:
            begun[name] = time.process_time()
        elif done == total:
            seconds[name] += time.process_time() - begun.get(name, time.process_time())

    graph = HeatGraph(n_nodes=n, dim=2, n_steps=10)
    rest = {"field": "step", "quadrature": "voronoi", "sparse_output": True, "verbose": clock}
    rest |= {"normalize": False, "random_state": 0, "n_jobs": 1}
    # Anchors, a tenth of the nodes, are then .8 widths apart.
    model = ManifoldRandomFeatures(HeatKernel(200 / n), n // 10, graph=graph, **rest).fit(
        Sphere().sample(n, seed=0)
    )
    few = model.anchors_[: model.n_features_out_ // 4]
    options = {"teacher": Exact(1e-7, "sparse"), "asymmetric": True, "n_jobs": 1}
    # The field takes one step itself; the teacher takes the others.
    seconds["teacher"] = 4 * timed(lambda: compute_signatures(model.graph_, PowerKernel(4), few, **options))[0]
    new = Sphere().sample(n, seed=1)
    model.transform(new[:100])  # the first call sorts the table
    seconds["transform"] = timed(lambda: sum(block.nnz for block in model.transform_blocks(new)))[0]
    return {"gigabytes": peak() - before, "seconds": seconds}


def growth(largest):
    """Exponents of all stages."""
    sizes = [largest * share // 1000 for share in (9, 27, 90)]
    found = [elsewhere("stages", n) for n in sizes]
    for name in STAGES:
        seconds = np.array([record["seconds"][name] for record in found])
        factor = np.log(sizes) if name == "anchors" else 1.0
        exponent = np.polyfit(np.log(sizes), np.log(seconds / factor), 1)[0]
        yield Row(f"growth of {name}, {sizes[0]} to {sizes[-1]} nodes ({seconds[-1]:.3g} s)", exponent, "<=", 1.15)
    memory = [record["gigabytes"] for record in found]
    exponent = np.polyfit(np.log(sizes), np.log(memory), 1)[0]
    yield Row(f"growth of memory, {sizes[0]} to {sizes[-1]} nodes ({memory[-1]:.2f} GB)", exponent, "<=", 1.15)


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


def whole(shape, n):
    """CPU seconds, memory and error from points to features."""
    kernel, options = HeatKernel(HEAT_TIMES[shape]), {"normalize": False, "n_jobs": 1}
    model = ManifoldRandomFeatures(kernel, sparse_output=True, random_state=0, **options)
    points, new = draw(shape, n, 0), draw(shape, n, 2)
    fit, _ = timed(lambda: model.fit(points))
    transform, _ = timed(lambda: sum(block.nnz for block in model.transform_blocks(new)))
    found, places = {"fit": fit, "transform": transform, "gigabytes": peak()}, new[:600]
    if shape == "sphere":
        exact = Sphere().heat_kernel(places, places, kernel.t)
    else:
        finer = ManifoldRandomFeatures(kernel, graph=HeatGraph(n_nodes=4 * model.graph_.n_nodes), **options)
        exact = finer.set_params(random_state=1).fit(draw(shape, 4 * n, 3)).kernel_matrix(places)
    return found | {"error": relative_error(model.kernel_matrix(places), exact)}


def million(largest):
    """From points to features."""
    for shape, error in LIMIT_ERROR.items():
        found, about = elsewhere("whole", shape, largest), f"{largest} points, {shape}"
        yield Row(f"{about}: CPU seconds of fit", found["fit"], "<=", 300)
        yield Row(f"{about}: CPU seconds of transform of as many new ones", found["transform"], "<=", 300)
        yield Row(f"{about}: peak memory, GB", found["gigabytes"], "<=", 8)
        yield Row(f"{about}: error of the kernel at new points", found["error"], "<=", error)


if __name__ == "__main__":
    if sys.argv[1:2] == ["job"]:
        job, *rest = sys.argv[2:]
        plain = [int(value) if value.isdecimal() else value for value in rest]
        print(json.dumps({"stages": stages, "whole": whole}[job](*plain)))
    else:
        run_cases(__doc__, {"growth": growth, "million": million}, 1_000_000, 100_000)
