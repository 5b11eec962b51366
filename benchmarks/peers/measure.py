"""A line of the comparison, and how long something takes."""

import time
from dataclasses import dataclass

OURS = "**features**"  # `ManifoldRandomFeatures` with its defaults, with which all others are compared
LONG = 1.0  # CPU seconds after which one call is enough


@dataclass(frozen=True)
class Row:
    """One method on one task: CPU seconds of preparation and of evaluation, and the error."""

    task: str
    method: str
    preparation: float
    evaluation: float
    error: float

    @property
    def seconds(self) -> float:
        """All of the time."""
        return self.preparation + self.evaluation


def timed(function):
    """Least CPU time of three calls, or of one that takes long, and what the last call returned."""
    best = float("inf")
    for _ in range(3):
        start = time.process_time()
        result = function()
        best = min(best, time.process_time() - start)
        if best > LONG:
            break
    return best, result
