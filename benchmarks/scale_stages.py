"""One fit in a process of its own, stage by stage: prints seconds and peak memory as a line of JSON.

Called by bench_scale.py and plan_scale.py. All nodes are kept, and the heat time shrinks as their number grows, so
that a step reaches as many nodes and an anchor carries as many at every size: times then grow as the algorithms do.
Weights are fitted by "unity": "nnls", which "auto" also tries, is for at most 4096 anchors.
"""

import argparse
import json
import time

from table import peak

from manifoldrf import (
    GraphOptions,
    HeatKernel,
    ManifoldRandomFeatures,
    Sphere,
    compute_signatures,
    knn_graph,
)
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.fitting import choose_anchors, choose_weights
from manifoldrf.features.options import fit_options
from manifoldrf.features.problem import make_problem
from manifoldrf.fields.anchors import _farthest
from manifoldrf.fields.step import fit_step
from manifoldrf.kernels.graph_kernels import shifted

TIME_OF_A_NODE = 200.0  # heat time times number of nodes: anchors are then .8 widths apart
NODES_OF_AN_ANCHOR = 10
# Steps are chosen by how even the points seem, 8 or 10; here they are fixed, since two more cost as much as twice
# the nodes. Larger graphs have more and narrower ones, so that they fit into memory.
N_STEPS, ALL_NEIGHBORS = 10, 400_000


def measure(n, n_jobs, n_queries):
    """Seconds of every stage, and what was made."""
    points, new = Sphere().sample(n, seed=0), Sphere().sample(n_queries, seed=1)
    options = GraphOptions(n_nodes="all", dim=2, n_steps=N_STEPS if n <= ALL_NEIGHBORS else "auto")
    kernel = HeatKernel(TIME_OF_A_NODE / n)
    recipe = {"graph": options, "n_features": n // NODES_OF_AN_ANCHOR, "weights": "unity", "n_jobs": n_jobs}
    model = ManifoldRandomFeatures(kernel, sparse_output=True, random_state=0, **recipe)
    plan = fit_options(model.get_params(deep=False))
    found, seconds = {}, {}

    def stage(name, work):
        start = time.perf_counter()
        found[name] = work()
        seconds[name] = time.perf_counter() - start

    stage("graph", lambda: make_problem(points, kernel, plan))
    space = found["graph"]
    _ = space.graph.operator  # made once, for all stages
    stage("anchors", lambda: choose_anchors(space, plan))
    anchors = found["anchors"]
    stage("weights", lambda: choose_weights(space, anchors, plan))
    series = shifted(space.series)
    few = anchors[: max(1, len(anchors) // 4)]
    stage(
        "teacher",
        lambda: (
            compute_signatures(
                space.graph, series, few, teacher="frontier", asymmetric=True, tol=1e-7, n_jobs=n_jobs
            ).rows.shape
        ),
    )
    seconds["teacher"] *= len(anchors) / len(few)
    stage("field", lambda: fit_step(space, anchors, plan.signatures))
    field = found["field"]
    fitted = peak()
    features = FeatureMap(space, field, anchors, found["weights"][0].weights)
    stage("sorted", lambda: features.rows(new[:100], n_jobs, as_sparse=True))  # the first call sorts the table
    blocks = [new[span] for span in features.spans(n_queries, as_sparse=True)]
    stage("transform", lambda: sum(features.rows(block, n_jobs, as_sparse=True)[0].nnz for block in blocks))
    made = {
        "n": n,
        "n_jobs": n_jobs,
        "n_queries": n_queries,
        "n_steps": space.graph.n_steps,
        "degree": space.graph.affinity.nnz / n,
        "n_anchors": len(anchors),
        "table": field.table.nnz / n,
        "features": found["transform"] / n_queries,
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
    # Compiled code is loaded and threads are started before anything is timed.
    measure(3000, options.jobs, 500)
    _farthest(knn_graph(Sphere().grid(200)), 20, 5)  # sweeps, which only many anchors need
    before = peak()
    print(json.dumps(measure(options.n, options.jobs, options.queries) | {"before_gigabytes": before}))


if __name__ == "__main__":
    main()
