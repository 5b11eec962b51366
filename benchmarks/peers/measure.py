"""A line of the comparison, and how long something takes."""

import time
from dataclasses import asdict, dataclass
from typing import Any

LONG = 10.0  # seconds after which once is enough: the whole is to take a quarter of an hour
PATIENCE = 6.0  # seconds that repeated calls of one thing may take together
MOST_REPEATS = 7
OURS = "manifoldrf"  # how the names of our methods begin
BY_DEFAULT = "all by default"  # note of a row of ours in which nothing was chosen by hand


@dataclass(frozen=True)
class Row:
    """One method on one task.

    ``job`` and ``case`` name the task, such as "mesh" and "5,000 vertices, width 5 %". Times are in seconds,
    None where the method was not run; ``note`` then says why.
    """

    job: str
    case: str
    method: str
    preparation: float | None
    evaluation: float | None
    error: float | None
    note: str = ""

    def plain(self) -> dict[str, Any]:
        """As JSON has it, and whose method it is."""
        return asdict(self) | {"ours": self.method.startswith(OURS)}

    def show(self) -> None:
        """Print it."""
        if self.error is None:
            print(f"  {self.case:34s} {self.method:44s} {self.note}", flush=True)
            return
        times = f"{self.preparation:9.3f} s {self.evaluation:9.4f} s"
        print(f"  {self.case:34s} {self.method:44s} {times}   error {self.error:.2e}", flush=True)


def not_run(job, case, method, why):
    """A row that says why there are no figures."""
    return Row(job, case, method, None, None, None, why)


def timed(function):
    """Best time of several calls after a first one that is not counted, and what the last call returned.

    The first may compile code and load libraries, for everybody. One that takes long is the only one, and counts.
    """
    best, result = once(function)
    if best > LONG:
        return best, result
    best, begun = float("inf"), time.perf_counter()
    for _ in range(MOST_REPEATS):
        seconds, result = once(function)
        best = min(best, seconds)
        if time.perf_counter() - begun > PATIENCE:
            break
    return best, result


def once(function):
    """Time of one call, for what is known to take long, and what it returned."""
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result
