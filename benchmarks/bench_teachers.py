"""Whether the teachers are as fast as they could be.

Each row of the table is measured by one function; ratios are medians over alternating runs in one process, so that
a machine that slows down slows both sides (two threads and the torus: best runs; the eigendecomposition: one run).
An argument selects the rows whose names contain it.

1. steps per second of the random-walk engine against the same loop in C (gcc -O3 -march=native), one core
   (at least 0.9);
2. throughput of the engine on two threads against one (at least 1.8; nothing else may run meanwhile);
3. error of counted walkers against Algorithm 1 at equal steps, sphere and Moebius graphs (at most 1/15);
4. exact teacher at 1e-7 for 1000 starts against ``expm_multiply`` of scipy, one thread each (at least 4);
5. the same on all cores against the dense eigendecomposition (at least 30);
6. ``kernel.apply`` at 1e-6 for 3 columns of 50,000 nodes against ``expm_multiply``, one thread each (at least 5);
7. a torus of a million nodes, 1000 starts: seconds, gigabytes, and time per start against 100,000 nodes (1.5).

Exits with code 1 if a limit is missed.
"""

import ctypes
import functools
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import expm_multiply
from scipy.special import gammaln
from table import seconds

from manifoldrf import Counts, DiffusionKernel, Exact, MobiusStrip, Sphere, Walks, compute_signatures, knn_graph
from manifoldrf._native import loops
from manifoldrf.signatures import Law, pack_table, run_walks

N_NODES, N_STARTS, N_WALKS, N_BATCHES, REPEATS = 4000, 200, 5000, 10, 7
N_LENGTHS, TAU, P_HALT = 400, 20.0, 0.01
KEY = np.array([1, 2], np.uint32)


def median_ratio(first, second, repeats=REPEATS):
    """Median over alternating runs of the time of ``first`` over that of ``second``, and the best time of each."""
    times = np.array([(seconds(first), seconds(second)) for _ in range(repeats)])
    return float(np.median(times[:, 0] / times[:, 1])), times.min(axis=0)


@functools.cache
def sphere_walks():
    """Table of the sphere's graph, starts, and the law: diffusion f_k = e^-10 10^k / k!, geometric halting."""
    matrix = knn_graph(Sphere().grid(N_NODES)).operator.tocsr()
    k = np.arange(N_LENGTHS)
    go_on = np.full(N_LENGTHS, int((1 - P_HALT) * 2**32), np.uint64)
    go_on[-1] = 0
    survival = np.cumprod(np.append(1.0, go_on[:-1] / 2**32))
    modulation = np.exp(k * np.log(TAU / 2) - TAU / 2 - gammaln(k + 1))
    starts = np.arange(0, N_NODES, N_NODES // N_STARTS)
    return pack_table(matrix.indptr, matrix.indices, matrix.data), starts, Law(modulation / survival, go_on)


def walk(part=slice(None)):
    """The engine on a part of the starts."""
    table, starts, law = sphere_walks()
    return run_walks(table, law, N_WALKS, N_BATCHES, KEY, "iid", starts[part])


@functools.cache
def c_loop():
    """The C loop as a function without arguments, with the engine's results."""
    if shutil.which("gcc") is None:
        sys.exit("gcc is missing: the walk engine has no rival to be measured against")
    with tempfile.TemporaryDirectory() as folder:
        library = pathlib.Path(folder) / "walk_loop.so"
        source = pathlib.Path(__file__).with_name("walk_loop.c")
        command = ["gcc", "-O3", "-march=native", "-shared", "-fPIC", "-o", library, source, "-lm"]
        subprocess.run(command, check=True)
        function = ctypes.CDLL(library).walk_loop
    function.restype = ctypes.c_int64
    table, starts, law = sphere_walks()
    streams = np.zeros((len(starts), 2, 2), np.uint64)
    for stream, start in zip(streams, starts.tolist(), strict=True):
        for lane in (0, 1):
            loops.stream_words(start, lane, KEY, stream[lane])
    room = len(starts) * N_NODES
    counts, slots = np.zeros(len(starts), np.int64), np.zeros(room, np.int64)
    sums, variances = np.zeros(room), np.zeros(room)

    def pointer(array):
        return ctypes.c_void_p(array.ctypes.data)

    def number(value):
        return ctypes.c_int64(int(value))

    def run():
        n_steps = function(
            pointer(table.edges), pointer(table.rows), number(table.mask), number(N_NODES),
            pointer(starts), pointer(streams), number(len(starts)),
            pointer(law.deposit), pointer(law.go_on), number(N_LENGTHS),
            number(N_WALKS), number(N_BATCHES), number(0), number(room),
            pointer(counts), pointer(slots), pointer(sums), pointer(variances),
        )  # fmt: skip
        n = counts.sum()
        return counts, slots[:n], sums[:n], variances[:n], n_steps

    return run


def engine_against_c():
    """Speed of the engine over that of the C loop, after a check that both do the same work."""
    run = c_loop()
    ours, theirs = walk(), run()
    for mine, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-15)
    ratio, best = median_ratio(run, walk)
    theirs_best, ours_best = ours[4] / best / 1e6
    name = f"walk engine / C loop, one core ({ours_best:.0f}, {theirs_best:.0f} M steps/s)"
    return name, ratio, ">=", 0.9


def two_threads():
    """Throughput of two threads over that of one; they share the starts in chunks, as the teachers do."""
    n_steps = walk()[4]
    with ThreadPoolExecutor(2) as pool:
        chunks = [slice(k, None, 12) for k in range(12)]
        # Whatever else runs on the second core slows two threads and not one: the best runs tell of the engine.
        best = median_ratio(walk, lambda: list(pool.map(walk, chunks)), repeats=15)[1]
    one, two = n_steps / best / 1e6
    return f"walk engine, two threads / one ({two:.0f}, {one:.0f} M steps/s)", two / one, ">=", 1.8


def equal_steps(surface, n_neighbors):
    """Error of counts over that of Algorithm 1 at about 1e6 steps per start."""
    graph = knn_graph(surface.grid(N_NODES), n_neighbors=n_neighbors)
    nodes, kernel = np.arange(0, N_NODES, 40), DiffusionKernel(TAU)
    exact = compute_signatures(graph, kernel, nodes, teacher="exact").rows
    errors, steps = [], []
    for teacher in (Counts(76_000), Walks()):
        found = compute_signatures(graph, kernel, nodes, teacher=teacher, seed=0, n_jobs=-1)
        errors.append(np.linalg.norm(found.rows - exact) / np.linalg.norm(exact))
        steps.append(found.n_steps / len(nodes))
    name = f"error of counts / Algorithm 1, {type(surface).__name__} ({errors[0]:.4f}, {errors[1]:.3f})"
    if steps[0] > steps[1]:
        sys.exit("counts took more steps than Algorithm 1: the comparison is not fair")
    return name, errors[0] / errors[1], "<=", 1 / 15


@functools.cache
def sphere_problem():
    """The 4000-node graph, 1000 starts, and their indicators."""
    graph = knn_graph(Sphere().grid(N_NODES))
    nodes = np.arange(0, N_NODES, 4)
    indicators = np.zeros((N_NODES, len(nodes)))
    indicators[nodes, np.arange(len(nodes))] = 1.0
    return graph, nodes, indicators


def exact_against_expm():
    """Speed of the exact teacher over that of expm_multiply, with a check of its accuracy."""
    graph, nodes, indicators = sphere_problem()
    half = TAU / 2 * (graph.operator - sparse.eye_array(N_NODES))

    def ours():
        return compute_signatures(graph, DiffusionKernel(TAU), nodes, teacher=Exact(1e-7, "dense")).rows

    def theirs():
        return expm_multiply(half, indicators, traceA=-TAU / 2 * N_NODES)

    worst = np.linalg.norm(ours() - theirs().T, axis=1).max()
    if worst > 1e-7:
        sys.exit(f"the exact teacher is off by {worst:.1e}")
    ratio, best = median_ratio(theirs, ours, repeats=3)
    return f"exact teacher / expm_multiply, 1000 starts ({best[1]:.2f}, {best[0]:.2f} s)", ratio, ">=", 4


def exact_against_eigh():
    """Speed of the exact teacher over that of the dense eigendecomposition, both on all cores."""
    graph, nodes, _ = sphere_problem()
    dense = graph.operator.toarray()

    def ours():
        return compute_signatures(graph, DiffusionKernel(TAU), nodes, teacher=Exact(1e-7, "dense"), n_jobs=-1)

    ours()
    ratio, best = median_ratio(lambda: linalg.eigh(dense), ours, repeats=1)
    return f"exact teacher / dense eigendecomposition ({best[1]:.2f}, {best[0]:.1f} s)", ratio, ">=", 30


def apply_against_expm():
    """Speed of kernel.apply over that of expm_multiply, with a check of its accuracy."""
    graph = knn_graph(Sphere().grid(50_000))
    columns = np.random.default_rng(0).normal(size=(graph.n_nodes, 3))
    generator = TAU * (graph.operator - sparse.eye_array(graph.n_nodes))

    def ours():
        return DiffusionKernel(TAU).apply(graph, columns, tol=1e-6)

    def theirs():
        return expm_multiply(generator, columns, traceA=-TAU * graph.n_nodes)

    worst = (np.linalg.norm(ours() - theirs(), axis=0) / np.linalg.norm(columns, axis=0)).max()
    if worst > 1e-6:
        sys.exit(f"kernel.apply is off by {worst:.1e}")
    ratio, best = median_ratio(theirs, ours, repeats=5)
    return f"kernel.apply / expm_multiply, 50,000 nodes ({best[1]:.3f}, {best[0]:.2f} s)", ratio, ">=", 5


TORUS = """
import json, resource, sys, time
import numpy as np
from manifoldrf import Counts, DiffusionKernel, Exact, compute_signatures, grid_graph
kernel, times = DiffusionKernel(20.0), {}
for side in (316, 1000):
    graph = grid_graph(side, 2)
    nodes = np.random.default_rng(0).choice(graph.n_nodes, 1000, replace=False)
    for name, teacher in {"counts": Counts(), "frontier": Exact(form="sparse")}.items():
        compute_signatures(graph, kernel, nodes[:2], teacher=teacher)
        best = np.inf
        for _ in range(3):
            start = time.perf_counter()
            compute_signatures(graph, kernel, nodes, teacher=teacher, seed=0, n_jobs=2)
            best = min(best, time.perf_counter() - start)
        times[f"{name} {side}"] = best
print(json.dumps([times, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20]))
"""


@functools.cache
def torus():
    """Best times of both teachers on both tori, and the peak memory, in a fresh process."""
    done = subprocess.run([sys.executable, "-c", TORUS], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def torus_seconds(teacher):
    """Seconds for 1000 starts on a million nodes."""
    return f"seconds, torus of 1M nodes, 1000 starts, {teacher}", torus()[0][f"{teacher} 1000"], "<=", 60


def torus_growth(teacher):
    """Time per start on a million nodes over that on a hundred thousand."""
    times = torus()[0]
    ratio = times[f"{teacher} 1000"] / times[f"{teacher} 316"]
    return f"time per start, 1M / 100k nodes, {teacher}", ratio, "<=", 1.5


def torus_memory():
    """Peak memory of the process."""
    return "peak GB of the process, torus of 1M nodes", torus()[1], "<=", 4


ROWS = [
    ("walk engine / C loop", engine_against_c),
    ("walk engine, two threads / one", two_threads),
    ("error of counts, sphere", lambda: equal_steps(Sphere(), 8)),
    ("error of counts, mobius", lambda: equal_steps(MobiusStrip(), 24)),
    ("exact teacher / expm_multiply", exact_against_expm),
    ("exact teacher / dense eigendecomposition", exact_against_eigh),
    ("kernel.apply / expm_multiply", apply_against_expm),
    ("torus seconds counts", lambda: torus_seconds("counts")),
    ("torus seconds frontier", lambda: torus_seconds("frontier")),
    ("torus growth counts", lambda: torus_growth("counts")),
    ("torus growth frontier", lambda: torus_growth("frontier")),
    ("torus memory", torus_memory),
]


def main():
    """Measure, print the table, and say by the exit code whether the limits hold."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    missed = False
    for title, measure in ROWS:
        if wanted not in title:
            continue
        name, value, comparison, limit = measure()
        holds = value >= limit if comparison == ">=" else value <= limit
        missed |= not holds
        print(f"{name:62s} {value:6.2f}   limit {comparison} {limit:g}   {'ok' if holds else 'MISSED'}", flush=True)
    sys.exit(int(missed))


if __name__ == "__main__":
    main()
