"""The table that benchmarks print: what, the figure seen, its limit, and whether it holds."""

import argparse
import dataclasses
import json
import pathlib
import resource
import sys
import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    what: str
    seen: float
    comparison: str  # "<=", ">=" or "within", a factor
    limit: float

    @property
    def holds(self) -> bool:
        """Whether the limit is kept; never by a figure that is not a number."""
        if self.comparison == "within":
            return 1 / self.limit <= self.seen <= self.limit
        return self.seen >= self.limit if self.comparison == ">=" else self.seen <= self.limit

    def show(self) -> None:
        """Print it."""
        verdict = "ok" if self.holds else "MISSED"
        print(f"{self.what:92s} {self.seen:8.4g}   limit {self.comparison} {self.limit:g}   {verdict}", flush=True)


def finish(rows, options):
    """Write the rows where asked, and say by the exit code whether all limits hold."""
    if options.json is not None:
        records = [dataclasses.asdict(row) | {"ok": row.holds} for row in rows]
        options.json.write_text(json.dumps({"quick": options.quick, "rows": records}, indent=1) + "\n")
    sys.exit(int(not options.quick and not all(row.holds for row in rows)))


def run_cases(description, cases, full, quick):
    """Measure the cases that are asked for on the command line, print the table, and exit.

    ``cases`` map titles to functions of the sizes that return rows; ``full`` and ``quick`` are such sizes.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("wanted", nargs="?", default="", help="rows whose titles contain it")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, limits not enforced")
    parser.add_argument("--json", type=pathlib.Path, help="file to write the rows to")
    options = parser.parse_args()
    rows = []
    for title, measure in cases.items():
        if options.wanted in title:
            for row in measure(quick if options.quick else full):
                row.show()
                rows.append(row)
    finish(rows, options)


def seconds(function):
    """Wall time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def peak():
    """Memory of this process so far, in GB.

    On Linux ``ru_maxrss`` begins with what the process that started this one held: where that had fitted a model,
    little memory would seem to be as much as more.
    """
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) for line in status.open() if line.startswith("VmHWM")) / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
