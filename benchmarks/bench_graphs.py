"""Whether building a graph is ever the bottleneck.

1. Time of ``knn_graph`` on 200,000 points of R^3 over that of the bare k-d tree query inside it: at most 2.5.
2. Peak memory of that build over the size of the CSR matrix that it returns: at most 12.
3. Peak memory of the whole process for 1,000,000 points, k = 8: at most 4 GB.

An argument selects the rows whose titles contain it. ``--quick`` takes a tenth of the points. Exits with code 1 if
a limit is missed, never with ``--quick``. Nothing else should run on the machine.
"""

import json
import subprocess
import sys
import tracemalloc

import numpy as np
from scipy.spatial import cKDTree
from table import Row, run_cases, seconds

from manifoldrf import knn_graph

N_NEIGHBORS, REPEATS = 8, 5

# A process of its own: the peak is that of the whole process.
BUILD = """
import json, sys, time
import numpy as np
from table import peak
from manifoldrf import knn_graph
points = np.random.default_rng(0).normal(size=(int(sys.argv[1]), 3))
start = time.perf_counter()
knn_graph(points).operator
print(json.dumps([time.perf_counter() - start, peak()]))
"""


def points_of(n):
    """Gaussian points of R^3."""
    return np.random.default_rng(0).normal(size=(n, 3))


def time_over_query(n_large):
    """Median ratio over alternating runs: a machine that slows down slows both sides."""
    n = n_large // 5
    points = points_of(n)
    knn_graph(points[:1000])  # imports and first-call costs
    tree = cKDTree(points)  # knn_graph builds its own; this one is not counted
    ratios = []
    for _ in range(REPEATS):
        bare = seconds(lambda: tree.query(points, k=N_NEIGHBORS + 1, workers=-1))
        ratios.append(seconds(lambda: knn_graph(points, n_neighbors=N_NEIGHBORS)) / bare)
    yield Row(f"knn_graph / bare cKDTree query, {n} points", float(np.median(ratios)), "<=", 2.5)


def memory_over_matrix(n_large):
    """Peak of traced allocations during the build, over the bytes of the affinity matrix."""
    points = points_of(n_large // 5)
    tracemalloc.start()
    matrix = knn_graph(points, n_neighbors=N_NEIGHBORS).affinity
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    size = matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes
    yield Row(f"peak memory / CSR matrix, {len(points)} points", most / size, "<=", 12.0)


def memory_of_process(n_large):
    """Peak gigabytes of a fresh process that builds the large graph."""
    command = [sys.executable, "-c", BUILD, str(n_large)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=sys.path[0])
    took, gigabytes = json.loads(done.stdout)
    yield Row(f"peak GB of the process, {n_large} points, k = 8 ({took:.1f} s)", gigabytes, "<=", 4.0)


if __name__ == "__main__":
    cases = {"time": time_over_query, "memory": memory_over_matrix, "process": memory_of_process}
    run_cases("Time and memory of knn_graph.", cases, full=1_000_000, quick=100_000)
