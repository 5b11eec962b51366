"""How a fit grows from 10,000 to 1,000,000 nodes, what threads bring, and a million points end to end.

Each row of the table says what, the figure seen, the limit, and whether it holds:

- growth: every stage of a fit (graph, anchors, weights, teacher, field, transform) at six sizes, all nodes kept
  and the kernel narrower as they grow denser; the exponent of time over size by least squares, at most 1.15 (of
  farthest points, which take N log N by nature, that of time over log N);
- threads: time of the teacher, of the field and of the transform with one thread over that with two: at least 1.7;
- a million points: random on the sphere, uneven on a torus, a scan sampled by area; ``fit`` below 300 s and 8 GB,
  the error of the kernel at new points, and a million new points transformed a block at a time.

Every measurement runs in a process of its own. An argument selects the rows whose titles contain it; ``--quick``
takes a tenth of the points. Exits with code 1 if a limit is missed, with ``--quick`` never. The machine is to do
nothing else meanwhile.
"""

import json
import pathlib
import subprocess
import sys

import numpy as np
from table import Row, run_cases

HERE = pathlib.Path(__file__).parent
STAGES = ("graph", "anchors", "weights", "teacher", "field", "transform")
WITH_LOGARITHM = {"anchors"}  # a pyramid is searched for each of them
THREADED = ("teacher", "field", "transform")
SHAPES = ("sphere", "torus", "scan", "every")  # the last: on the sphere, every point a node
LIMIT_SECONDS, LIMIT_GIGABYTES = 300.0, 8.0
LIMIT_MORE = 1.2  # pages of the file of points that were read count as memory: 24 MB for a million
# Of the kernel between new points: on the sphere against the closed form, elsewhere against a graph of four times
# as many nodes out of four times as many points.
# The scan is open and has thin parts: .034 was seen. With every point a node, ten for each anchor: .047.
LIMIT_ERROR = {"sphere": 0.005, "torus": 0.01, "scan": 0.04, "every": 0.06}


def run(program, *arguments):
    """What a program of this folder prints as JSON on its last line."""
    command = [sys.executable, str(HERE / program), *map(str, arguments)]
    return json.loads(
        subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1]
    )


def growth(largest):
    """Exponents of all stages."""
    sizes = [largest * share // 100 for share in (1, 3, 6, 10, 30, 100)]
    found = [run("scale_stages.py", n, "--queries", n) for n in sizes]
    for record in found:
        parts = ", ".join(f"{name} {record['seconds'][name]:.3g}" for name in STAGES)
        print(f"# {record['n']} nodes, {record['n_anchors']} anchors: {parts} s; {record['gigabytes']:.2f} GB")
    for name in STAGES:
        seconds = np.array([record["seconds"][name] for record in found])
        factor, title = (np.log(sizes), f"{name} over log N") if name in WITH_LOGARITHM else (1.0, name)
        exponent = np.polyfit(np.log(sizes), np.log(seconds / factor), 1)[0]
        yield Row(f"growth of {title}, {sizes[0]} to {largest} nodes ({seconds[-1]:.3g} s)", exponent, "<=", 1.15)
    memory = [record["gigabytes"] - record["before_gigabytes"] for record in found]
    exponent = np.polyfit(np.log(sizes[3:]), np.log(memory[3:]), 1)[0]
    yield Row(f"growth of memory, {sizes[3]} to {largest} nodes ({memory[-1]:.2f} GB)", exponent, "<=", 1.15)


def threads(largest):
    """One thread against two."""
    n = largest // 10
    one, two = (run("scale_stages.py", n, "--jobs", jobs, "--queries", n)["seconds"] for jobs in (1, 2))
    for name in THREADED:
        title = f"{name}, {n} nodes: one thread ({one[name]:.3g} s) / two ({two[name]:.3g} s)"
        yield Row(title, one[name] / two[name], ">=", 1.7)


def million(largest):
    """From points to features."""
    for shape in SHAPES:
        found = run("scale_million.py", shape, largest)
        about = f"{largest} points, {shape}"
        yield Row(f"{about}: fit, {found['n_features']} features, s", found["fit_seconds"], "<=", LIMIT_SECONDS)
        yield Row(f"{about}: peak memory of fit, GB", found["fit_gigabytes"], "<=", LIMIT_GIGABYTES)
        yield Row(f"{about}: error of the kernel at new points", found["error"], "<=", LIMIT_ERROR[shape])
        yield Row(f"{about}: transform of as many new ones, s", found["transform_seconds"], "<=", LIMIT_SECONDS)
        title = f"{about}: peak memory of transform ({found['many_gigabytes']:.2f} GB) / a tenth of the points"
        yield Row(title, found["many_gigabytes"] / found["few_gigabytes"], "<=", LIMIT_MORE)


if __name__ == "__main__":
    cases = {"growth": growth, "threads": threads, "million": million}
    run_cases("Growth, threads, and a million points.", cases, full=1_000_000, quick=100_000)
