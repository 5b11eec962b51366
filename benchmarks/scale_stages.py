"""Time the stages of one fit in its own process; print seconds and peak memory as a line of JSON.

Called by bench_scale.py. All nodes are kept. The heat time shrinks as the number of nodes grows,
so that a step reaches equally many nodes and an anchor stands for equally many at every size: times then grow as
the algorithms do. The weights are "unity", because "nnls", which "auto" also tries, is for at most 4096 anchors.
"""

import argparse
import json
import time
from collections import defaultdict

from table import peak

from manifoldrf import GraphOptions, HeatKernel, ManifoldRandomFeatures, PowerKernel, Sphere, compute_signatures

TIME_OF_A_NODE = 200.0  # heat time times number of nodes: anchors are then .8 widths apart
NODES_OF_AN_ANCHOR = 10
# A fit would take 8 or 10 steps, depending on how even the points are. The number is fixed here, since two more
# steps cost as much as twice the nodes. Larger graphs have more and narrower steps, so that they fit in memory.
N_STEPS, ALL_NEIGHBORS = 10, 400_000


class Clock:
    """Seconds of each stage that a fit reports to ``verbose``."""

    def __init__(self):
        self.seconds, self.begun = defaultdict(float), {}

    def __call__(self, what, done, total):
        """Note the begin and the end of a stage."""
        name = what.split()[0]  # "field step" is the field
        if done == 0:
            self.begun[name] = time.perf_counter()
        elif done == total:
            self.seconds[name] += time.perf_counter() - self.begun.get(name, time.perf_counter())


def timed(work):
    """Result of a call, and its seconds."""
    start = time.perf_counter()
    return work(), time.perf_counter() - start


def measure(n, n_jobs, n_queries):
    """Seconds of every stage, and the sizes of the results."""
    points, new = Sphere().sample(n, seed=0), Sphere().sample(n_queries, seed=1)
    options = GraphOptions(n_nodes="all", dim=2, n_steps=N_STEPS if n <= ALL_NEIGHBORS else "auto")
    recipe = {"graph": options, "n_features": n // NODES_OF_AN_ANCHOR, "field": "step", "weights": "unity"}
    clock = Clock()
    model = ManifoldRandomFeatures(
        HeatKernel(TIME_OF_A_NODE / n),
        normalize=False,
        sparse_output=True,
        random_state=0,
        n_jobs=n_jobs,
        verbose=clock,
        **recipe,
    ).fit(points)
    fitted, seconds = peak(), {name: clock.seconds[name] for name in ("graph", "anchors", "weights", "field")}
    graph, anchors = model.graph_, model.anchors_
    # The field takes one step itself; the teacher takes the others.
    kernel, few = PowerKernel(graph.n_steps // 2 - 1), anchors[: max(1, len(anchors) // 4)]
    teacher = {"teacher": "frontier", "asymmetric": True, "tol": 1e-7, "n_jobs": n_jobs}
    rows, spent = timed(lambda: compute_signatures(graph, kernel, few, **teacher).rows)
    seconds["teacher"] = spent * len(anchors) / len(few)
    model.transform(new[:100])  # the first call sorts the table
    entries, seconds["transform"] = timed(lambda: sum(block.nnz for block in model.transform_blocks(new)))
    made = {
        "n": n,
        "n_jobs": n_jobs,
        "n_queries": n_queries,
        "n_steps": graph.n_steps,
        "degree": graph.affinity.nnz / n,
        "n_anchors": len(anchors),
        "table": rows.nnz / len(few) * len(anchors) / n,
        "features": entries / n_queries,
        "gigabytes": peak(),
        "fitted_gigabytes": fitted,
    }
    return made | {"seconds": seconds}


def main():
    """Measure the size given on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--queries", type=int, default=100_000)
    options = parser.parse_args()
    measure(3000, options.jobs, 500)  # loads compiled code and starts threads before anything is timed
    before = peak()
    print(json.dumps(measure(options.n, options.jobs, options.queries) | {"before_gigabytes": before}))


if __name__ == "__main__":
    main()
