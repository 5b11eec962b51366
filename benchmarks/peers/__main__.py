"""Measure this library beside others: ``python -m benchmarks.peers``, or ``make bench-peers`` from nothing.

Each job runs in a process of its own, one after the other, with two threads for everybody, and its rows replace
those of an earlier run in the JSON file. The page is written from that file alone (``--page``: nothing is run).
Exits with code 1 if a target is missed and no reason is stated. Nothing else may run on the machine meanwhile.
"""

import argparse
import importlib
import os
import pathlib
import subprocess
import sys
import time

from benchmarks.peers import record
from benchmarks.peers.comparison import targets
from benchmarks.peers.page import write_page

JOBS = {
    "meshes": "heat kernel on meshes",
    "new_points": "features of new points",
    "graph_features": "graph random features",
    "actions": "products with a kernel",
    "attention": "attention",
}
SMOKE = pathlib.Path("out") / "peers-smoke.json"


def parse() -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=JOBS, action="append", help="run this job; may be repeated")
    parser.add_argument("--size", choices=("full", "smoke"), default="full", help="smoke: seconds, page untouched")
    parser.add_argument("--page", action="store_true", help="write the page from the JSON file and run nothing")
    parser.add_argument("--worker", choices=JOBS, help=argparse.SUPPRESS)
    return parser.parse_args()


def work(job: str, path: pathlib.Path, size: str) -> None:
    """Run one job in this process and keep its rows."""
    import torch  # after the number of threads is in the environment

    torch.set_num_threads(record.THREADS)
    rows, start = [], time.perf_counter()
    for row in importlib.import_module(f"benchmarks.peers.{job}").run(size):
        row.show()
        rows.append(row.plain())
    record.keep(path, job, rows, time.perf_counter() - start)


def run_apart(job: str, size: str) -> None:
    """Run one job in a process of its own."""
    threads = {f"{name}_NUM_THREADS": str(record.THREADS) for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")}
    print(f"{JOBS[job]} ({job})", flush=True)
    command = [sys.executable, "-m", "benchmarks.peers", "--worker", job, "--size", size]
    subprocess.run(command, check=True, env=os.environ | threads | {"OMP_WAIT_POLICY": "passive"})


def report(path: pathlib.Path) -> int:
    """Print the targets; the number of those missed without a reason."""
    open_misses = 0
    for target in targets(record.rows_of(record.load(path))):
        said = "ok" if target["ok"] else f"missed: {target['reason'] or 'NO REASON STATED'}"
        print(f"{target['what']}: {target['seen']:.3g}, limit {target['limit']:g}, {said}")
        open_misses += target["reason"] is None
    return open_misses


def main() -> None:
    """Run what is asked for, write the page, and say by the exit code whether the targets hold."""
    options = parse()
    path = record.PATH if options.size == "full" else SMOKE
    if options.worker:
        work(options.worker, path, options.size)
        return
    if not options.page:
        for job in options.only or JOBS:
            run_apart(job, options.size)
    open_misses = report(path)
    if options.size == "full":
        write_page()
        sys.exit(int(open_misses > 0))


if __name__ == "__main__":
    main()
