"""Do others do the same work faster or more accurately? ``python -m benchmarks.peers``, or ``make bench-peers``.

One run, one thread, CPU times, so other work on the machine matters little. The table goes between the marks
``peers`` of docs/comparisons.md. With ``--quick``, sizes are small and the page stays as it is.
"""

import argparse
import datetime
import importlib.metadata
import logging
import pathlib

import torch
from threadpoolctl import threadpool_limits

from benchmarks.table import fill

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "comparisons.md"
PACKAGES = ("geometric_kernels", "gpytorch", "pydiffmap", "scikit-learn", "scipy")


def table(rows):
    """Lines of Markdown: each method beside the features of the same task, which come first."""
    lines = ["| task and method | preparation, s | evaluation, s | error | time ratio | error ratio |"]
    lines.append("|---|---:|---:|---:|---:|---:|")
    own = rows[0]
    for row in rows:
        if row.task != own.task or row is rows[0]:
            own = row
            lines.append(f"| *{row.task}* | | | | | |")
        ratios = (row.seconds / own.seconds, row.error / own.error)
        said = ("", "") if row is own else [f"{ratio:.2g}" if ratio < 100 else f"{ratio:.0f}" for ratio in ratios]
        figures = (f"{row.preparation:.2g}", f"{row.evaluation:.2g}", f"{row.error:.2g}")
        lines.append(f"| {row.method} | {' | '.join([*figures, *said])} |")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    return "\n".join([*lines, "", f"{datetime.datetime.now(datetime.UTC).date()}: {versions}."])


def main():
    """Run everything, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, page untouched")
    quick = parser.parse_args().quick
    logging.disable(logging.WARNING)  # packages greet on import
    from benchmarks.peers import meshes, new_points, processes

    torch.set_num_threads(1)
    rows = []
    with threadpool_limits(1):
        for job in (meshes, new_points, processes):
            for row in job.run(quick):
                print(row, flush=True)
                rows.append(row)
    print(table(rows))
    if not quick:
        fill(PAGE, "peers", table(rows))


if __name__ == "__main__":
    main()
