"""Whether building the graph is ever the bottleneck.

Three ratios, each taken in one run:

1. time of ``knn_graph`` on 200,000 points of R^3 against the bare k-d tree query it rests on (limit 2.5);
2. peak memory of that build against the CSR matrix it returns (limit 12);
3. peak memory of the whole process for 1,000,000 points, k = 8 (limit 4 GB).

Exits with code 1 if a limit is missed.
"""

import json
import subprocess
import sys
import tracemalloc

import numpy as np
from scipy.spatial import cKDTree
from table import seconds

from manifoldrf import knn_graph

N_POINTS, N_NEIGHBORS, REPEATS = 200_000, 8, 5
TIME_LIMIT, MEMORY_LIMIT, GIGABYTES_LIMIT = 2.5, 12.0, 4.0

LARGE = """
import json, resource, time
import numpy as np
from manifoldrf import knn_graph
points = np.random.default_rng(0).normal(size=(1_000_000, 3))
start = time.perf_counter()
graph = knn_graph(points)
graph.operator
print(json.dumps([time.perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20]))
"""


def time_ratio(points):
    """Median ratio over alternating runs: a machine that slows down slows both sides."""
    knn_graph(points[:1000])  # imports and first-call costs
    tree = cKDTree(points)  # not counted for the rival; knn_graph builds its own
    ratios = []
    for _ in range(REPEATS):
        bare = seconds(lambda: tree.query(points, k=N_NEIGHBORS + 1, workers=-1))
        ratios.append(seconds(lambda: knn_graph(points, n_neighbors=N_NEIGHBORS)) / bare)
    return float(np.median(ratios))


def memory_ratio(points):
    """Peak of traced allocations during the build, over the bytes of the affinity matrix."""
    tracemalloc.start()
    graph = knn_graph(points, n_neighbors=N_NEIGHBORS)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    matrix = graph.affinity
    return peak / (matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes)


def large_build():
    """Seconds and peak gigabytes of a fresh process that builds the large graph."""
    done = subprocess.run([sys.executable, "-c", LARGE], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main():
    """Measure, print the table, and say by the exit code whether the limits hold."""
    points = np.random.default_rng(0).normal(size=(N_POINTS, 3))
    took, gigabytes = large_build()
    rows = [
        ("knn_graph / bare cKDTree query, 200k points", time_ratio(points), TIME_LIMIT),
        ("peak memory / CSR matrix, 200k points", memory_ratio(points), MEMORY_LIMIT),
        (f"peak GB of the process, 1M points, k = 8 ({took:.1f} s)", gigabytes, GIGABYTES_LIMIT),
    ]
    for name, value, limit in rows:
        print(f"{name:62s} {value:6.2f}   limit {limit:g}   {'ok' if value <= limit else 'MISSED'}")
    sys.exit(int(any(value > limit for _, value, limit in rows)))


if __name__ == "__main__":
    main()
