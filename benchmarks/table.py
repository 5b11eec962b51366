"""The table that benchmarks print: what, the figure seen, its limit, and whether it holds."""

import argparse
import sys
import time
from dataclasses import dataclass

from threadpoolctl import threadpool_limits


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


def run_cases(description, cases, full, quick):
    """Measure the cases that are asked for on the command line with one thread, print the table, and exit.

    ``cases`` map titles to functions of the sizes that yield rows; ``full`` and ``quick`` are such sizes. The exit
    code says whether all limits hold; quick sizes enforce none.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wanted", nargs="?", default="", help="cases whose titles contain it")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, limits not enforced")
    options = parser.parse_args()
    rows = []
    with threadpool_limits(1):
        for title, measure in cases.items():
            for row in measure(quick if options.quick else full) if options.wanted in title else ():
                row.show()
                rows.append(row)
    sys.exit(int(not options.quick and not all(row.holds for row in rows)))


def timed(function):
    """CPU seconds of a call, and its result."""
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def best_of(functions, repeats=3):
    """The least CPU seconds of each of several functions, which take turns, after a first call of each."""
    for function in functions:
        function()
    rounds = [[timed(function)[0] for function in functions] for _ in range(repeats)]
    return [min(column) for column in zip(*rounds, strict=True)]


def fill(page, name, text):
    """Write a text between the marks of this name on a page."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    if end not in rest:
        raise ValueError(f"the page must have the marks {begin} and {end}")
    page.write_text(f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}", encoding="utf-8")
