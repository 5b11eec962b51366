"""Plans fits of 10^8 or 10^9 nodes on W workers: how long they take, and how much memory.

Costs of one unit (seconds per entry of the graph, per product along an edge, per query; bytes likewise) are
measured on small graphs. They predict fits of 10^5 to 10^6 nodes on this machine, which are then run: each row of
the table is a measured figure over the predicted one, and is to be within a factor 1.3. With ``--plan`` nothing is
run but the small graphs, or nothing at all if ``--costs`` names a file that an earlier run wrote, and larger
numbers are planned: a graph cut into one part for each worker, each with the halo that its signatures need
(docs/guide/clusters.md).

    python benchmarks/plan_scale.py                                             # measure, predict, check; minutes
    python benchmarks/plan_scale.py --plan 1e8 1e9 --workers 64 256 1024 --memory 32

Assumed: a worker is as fast as this machine with two threads; bandwidth and latency between workers, which are
options; that parts find their weights together, a round at a time, and tell each other those at their borders. Only
what one worker does is checked by runs: halos and exchanges are not built. Points on a surface are taken, with the
kernels of scale_stages.py: ten nodes for each anchor, about two hundred neighbours, fewer in parts of more than
500,000 nodes.
"""

import argparse
import json
import math
import pathlib

from bench_scale import run
from table import Row, finish

# Not 60,000: weights of 6000 anchors took 4 to 6 s, those of 10,000 took 1.9, and slopes between them mean nothing.
SMALL, CHECKED = (30_000, 100_000), (100_000, 300_000, 1_000_000)
FACTOR = 1.3
FIT = ("graph", "anchors", "weights", "field")
MOST_ENTRIES, FEWEST_NEIGHBORS = (
    1e8,
    64.0,
)  # of the affinity matrix: heat graphs take narrower steps above, down to these
POINT_BYTES = 24.0
ROUNDS = 340  # products with it while weights and factors are found: neighbours tell each other as often
BORDER_BYTES = 8.0
REACHED = 1.2  # nodes that a signature reaches before small entries are dropped, over those that are kept


def costs_of(records):
    """Costs of units, from two records of scale_stages.py."""
    first, last = records[0], records[-1]
    nodes = last["n"] - first["n"]

    def slope(name):
        """Seconds of one node more: what does not grow drops out."""
        return (last["seconds"][name] - first["seconds"][name]) / nodes

    memory = (last["fitted_gigabytes"] - last["before_gigabytes"]) * 2**30
    return {
        "degree": last["degree"],
        "n_steps": last["n_steps"],
        "table": last["table"],
        "nodes_per_anchor": last["n"] / last["n_anchors"],
        "graph": slope("graph") / last["degree"],
        "anchors": last["seconds"]["anchors"] / (last["n"] * math.log2(last["n"])),
        "weights": slope("weights"),
        "field": slope("field") / pushes(last["degree"], last["n_steps"]),
        # Nodes are searched for each query, and what is read lies farther apart in larger tables.
        "transform": last["seconds"]["transform"] / (last["n_queries"] * math.log2(last["n"])),
        # The most is needed while signatures are found: the graph, its walk operator, that in local order, and the
        # table, which grows with them.
        "entry_bytes": memory / (last["n"] * last["degree"]),
        "base_gigabytes": last["before_gigabytes"],
    }


def pushes(degree, n_steps):
    """Products along edges for one signature: after k steps about degree * k nodes are reached, on a surface."""
    lengths = n_steps / 2 - 1
    return degree + degree**2 * lengths * (lengths - 1) / 2


def degree_of(costs, n):
    """Neighbours of a node: as many as random points need, fewer where memory sets a limit, but not below 64."""
    return min(costs["degree"], max(FEWEST_NEIGHBORS, MOST_ENTRIES / n))


def predict(costs, n):
    """Seconds of every stage, and GB, of a fit of n nodes on one machine."""
    degree = degree_of(costs, n)
    n_steps = 2 * round(costs["n_steps"] * costs["degree"] / degree / 2)  # narrower steps are more
    seconds = {
        "graph": costs["graph"] * n * degree,
        "anchors": costs["anchors"] * n * math.log2(n),
        "weights": costs["weights"] * n,
        "field": costs["field"] * n * pushes(degree, n_steps),
    }
    memory = costs["entry_bytes"] * n * degree
    return {"seconds": seconds, "gigabytes": costs["base_gigabytes"] + memory / 2**30}


def plan(costs, n, workers, options):
    """Seconds and GB for n nodes on a number of workers, one part with its halo for each."""
    size = math.ceil(n / workers)
    halo = halo_share(costs, size) if workers > 1 else 0.0
    found = predict(costs, math.ceil(size * (1 + halo)))
    seconds = found["seconds"]
    # Rows of the halo belong to other parts; its edges are needed here.
    own = seconds["graph"] + (seconds["anchors"] + seconds["weights"] + seconds["field"]) / (1 + halo)
    bandwidth = options.bandwidth * 2**30
    sent = n * POINT_BYTES / bandwidth  # by one machine that reads the points
    rounds = ROUNDS * (options.latency + halo * size * BORDER_BYTES / bandwidth) if workers > 1 else 0.0
    return {
        "nodes": n,
        "workers": workers,
        "nodes of a part": size,
        "halo, %": 100 * halo,
        "hours": (own + sent + rounds) / 3600,
        "GB of a worker": found["gigabytes"],
        f"in {options.memory:g} GB": "fits" if found["gigabytes"] <= options.memory else "too large",
    }


def halo_share(costs, size):
    """Nodes around a part, over those in it, on a surface: as far as signatures are kept, and one step more."""
    reach = math.sqrt(REACHED * costs["table"] * costs["nodes_per_anchor"] / math.pi)  # in spacings of the nodes
    reach += math.sqrt(degree_of(costs, size) / math.pi)
    return (1 + 2 * reach / math.sqrt(size)) ** 2 - 1


def records_of(sizes, options):
    """Records of scale_stages.py: from the file that bench_scale.py wrote, or from runs."""
    if options.records is not None:
        kept = {record["n"]: record for record in json.loads(options.records.read_text())}
        return [kept[n] for n in sizes]
    return [run("scale_stages.py", n, "--queries", n) for n in sizes]


def measured_costs(options):
    """Costs from the file that is named, else from records, kept there."""
    if options.costs is not None and options.costs.exists():
        return json.loads(options.costs.read_text())
    costs = costs_of(records_of(SMALL, options))
    if options.costs is not None:
        options.costs.write_text(json.dumps(costs, indent=1) + "\n")
    return costs


def check(costs, records):
    """Real runs over predictions."""
    for record in records:
        n, expected = record["n"], predict(costs, record["n"])
        seconds = sum(record["seconds"][name] for name in FIT)
        foreseen = sum(expected["seconds"][name] for name in FIT)
        title = f"fit of {n} nodes: {seconds:.3g} s / {foreseen:.3g} s predicted"
        yield Row(title, seconds / foreseen, "within", FACTOR)
        memory, foreseen = record["fitted_gigabytes"], expected["gigabytes"]
        yield Row(f"its memory: {memory:.3g} GB / {foreseen:.3g} GB predicted", memory / foreseen, "within", FACTOR)
        took, foreseen = record["seconds"]["transform"], costs["transform"] * n * math.log2(n)
        title = f"transform of as many: {took:.3g} s / {foreseen:.3g} s predicted"
        yield Row(title, took / foreseen, "within", FACTOR)


def show(rows):
    """Print plans as a table."""
    names = list(rows[0])
    print(" | ".join(f"{name:>16s}" for name in names))
    for row in rows:
        print(
            " | ".join(
                f"{row[name]:>16s}" if isinstance(row[name], str) else f"{row[name]:16.4g}" for name in names
            )
        )


def main():
    """Check predictions, or plan."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--plan", type=float, nargs="+", metavar="NODES", help="plan so many nodes; check nothing")
    parser.add_argument("--workers", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--memory", type=float, default=32.0, help="GB of a worker")
    parser.add_argument("--bandwidth", type=float, default=1.0, help="GB/s between workers")
    parser.add_argument("--latency", type=float, default=1e-3, help="s of a message")
    parser.add_argument("--costs", type=pathlib.Path, help="file with the costs of units; written if not there")
    parser.add_argument(
        "--records", type=pathlib.Path, help="out/scale_records.json of bench_scale.py: nothing is run"
    )
    parser.add_argument("--quick", action="store_true", help="check 100,000 nodes only, limits not enforced")
    parser.add_argument("--json", type=pathlib.Path, help="file to write the rows of the check to")
    options = parser.parse_args()
    costs = measured_costs(options)
    if options.plan:
        show([plan(costs, int(n), workers, options) for n in options.plan for workers in options.workers])
        return
    rows = []
    for row in check(costs, records_of(CHECKED[:1] if options.quick else CHECKED, options)):
        row.show()
        rows.append(row)
    finish(rows, options)


if __name__ == "__main__":
    main()
