"""Whether the teachers are as fast as they could be.

Each row of the table is measured by one function; the ratios are medians over alternating runs in one process, so
that a machine that slows down slows both sides. An argument selects the rows whose names contain it.

1. steps per second of the random-walk engine against the same loop in C (gcc -O3 -march=native), one core
   (at least 0.85);
2. throughput of the engine on two threads against one (at least 1.8).

Exits with code 1 if a limit is missed.
"""

import ctypes
import functools
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from scipy.special import gammaln

from manifoldrf import Sphere, knn_graph
from manifoldrf.signatures._streams import open_stream
from manifoldrf.signatures.walks import Law, independent_walks, pack_uniform

N_NODES, N_STARTS, N_WALKS, N_BATCHES, REPEATS = 4000, 200, 1000, 10, 9
N_LENGTHS, TAU, P_HALT = 400, 20.0, 0.01
KEY = np.array([1, 2], np.uint32)


def seconds(function):
    """Wall time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def median_ratio(first, second):
    """Median over alternating runs of the time of ``first`` over that of ``second``, and the best time of each."""
    times = np.array([(seconds(first), seconds(second)) for _ in range(REPEATS)])
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
    return pack_uniform(matrix.indptr, matrix.indices, matrix.data), starts, Law(modulation / survival, go_on)


def walk(part=slice(None)):
    """The engine on a part of the starts."""
    table, starts, law = sphere_walks()
    return independent_walks(table, starts[part], law, N_WALKS, N_BATCHES, 0, KEY)


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
    streams = np.array([open_stream(s, lane, KEY) for s in starts for lane in (0, 1)], np.uint64)
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
    return name, ratio, ">=", 0.85


def two_threads():
    """Throughput of two threads over that of one, each with half of the starts."""
    n_steps = walk()[4]
    with ThreadPoolExecutor(2) as pool:
        halves = [slice(None, None, 2), slice(1, None, 2)]
        ratio, best = median_ratio(walk, lambda: list(pool.map(walk, halves)))
    one, two = n_steps / best / 1e6
    return f"walk engine, two threads / one ({two:.0f}, {one:.0f} M steps/s)", ratio, ">=", 1.8


ROWS = [
    ("walk engine / C loop", engine_against_c),
    ("walk engine, two threads / one", two_threads),
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
