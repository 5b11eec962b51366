"""How times grow with the number of nodes: exponents of power laws, and what they say of sizes not run."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

MEASURED, EXTRAPOLATED = "measured", "extrapolated"
EPOCHS_EXTRAPOLATED = "epochs extrapolated"  # run at this size, with fewer epochs than are counted
_LONG = 1.0  # seconds after which work is not repeated: a hitch is a small share of it
Result = TypeVar("Result")


@dataclass(frozen=True)
class PowerLaw:
    """seconds = factor * n^exponent, by least squares of the logarithms.

    Examples
    --------
    >>> from reproduction._growth import fit_power
    >>> round(fit_power([10, 100, 1000], [2e-3, 2e-2, 2e-1]).exponent, 6)
    1.0
    """

    exponent: float
    factor: float

    def at(self, n: float) -> float:
        """Seconds at a size."""
        return float(self.factor * n**self.exponent)


def fit_power(sizes: Sequence[float], seconds: Sequence[float]) -> PowerLaw | None:
    """The power law nearest to the times; None for fewer than two sizes."""
    if len(set(sizes)) < 2:
        return None
    slope, level = np.polyfit(np.log(sizes), np.log(np.maximum(seconds, 1e-9)), 1)
    return PowerLaw(float(slope), float(np.exp(level)))


def timed(work: Callable[[], Result], repeats: int = 1) -> tuple[Result, float]:
    """What some work gives, and the least of its wall times: others had to wait for something.

    What takes longer than a second is not repeated.
    """
    times: list[float] = []
    while len(times) < max(repeats, 1) and sum(times) < _LONG:
        start = time.perf_counter()
        found = work()
        times.append(time.perf_counter() - start)
    return found, min(times)


def growth_table(rows: Sequence[dict[str, Any]], published: dict[str, float]) -> list[dict[str, Any]]:
    """Exponents of every method, the paper's of the interpolation beside them.

    Parameters
    ----------
    rows : sequence of dict
        With method, vertices, prepare_s, interpolate_s and how; extrapolated rows do not count, nor do times of
        nothing.
    published : dict
        The paper's exponents by method.
    """
    table = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method and row["how"] != EXTRAPOLATED]
        laws = {name: _law(own, f"{name}_s") for name in ("prepare", "interpolate")}
        sizes = [row["vertices"] for row in own]
        table.append(
            {"method": method, "sizes": len(set(sizes)), "largest": max(sizes, default=None)}
            | {name: None if law is None else law.exponent for name, law in laws.items()}
            | {"paper_interpolate": published.get(method)}
        )
    return table


def _law(rows: Sequence[dict[str, Any]], column: str) -> PowerLaw | None:
    there = [row for row in rows if row[column]]
    return fit_power([row["vertices"] for row in there], [row[column] for row in there])


def extrapolated(rows: Sequence[dict[str, Any]], method: str, sizes: Sequence[int]) -> list[dict[str, Any]]:
    """Rows of a method at larger sizes than it was run at, by the power laws of its last two."""
    own = sorted((row for row in rows if row["method"] == method), key=lambda row: row["vertices"])
    laws = {column: _law(own[-2:], column) for column in ("prepare_s", "interpolate_s")}
    if not own or any(law is None for law in laws.values()):
        return []
    return [
        {"vertices": n, "method": method}
        | {column: law.at(n) for column, law in laws.items() if law is not None}
        | {"how": EXTRAPOLATED}
        for n in sizes
        if n > own[-1]["vertices"]
    ]
