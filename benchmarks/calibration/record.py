"""The JSON file of the calibration, and what it comes to."""

import datetime
import importlib.metadata
import json
import pathlib
import platform
from typing import Any

from manifoldrf._files import atomic_path

ROOT = pathlib.Path(__file__).parents[2]
PATH = ROOT / "docs" / "results" / "calibration.json"
PICTURE = ROOT / "docs" / "images" / "calibration.png"
SEEDS = range(60)  # those reported; most of what was chosen was chosen on seeds from 100 on
CLEAN = 30  # the first of them; the others are clouds as they come
FACTOR = 2.0
LOWEST = 1 / 3  # no estimate should be lower than this share of the truth

Row = dict[str, Any]


def load(path: pathlib.Path = PATH) -> list[Row]:
    """The rows of the file."""
    rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return rows


def keep(rows: list[Row], path: pathlib.Path = PATH) -> None:
    """Write the rows with versions and day."""
    names = ("manifoldrf", "numpy", "scipy", "numba")
    plain = {
        "rows": [{name: _short(value) for name, value in row.items()} for row in rows],
        "environment": {name: importlib.metadata.version(name) for name in names}
        | {"python": platform.python_version(), "date": datetime.datetime.now(datetime.UTC).date().isoformat()},
    }
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(plain, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _short(value: Any) -> Any:
    """Four digits: the rest is rounding of the machine."""
    return float(f"{value:.4g}") if isinstance(value, float) else value


def fill(text: str, name: str, body: str) -> str:
    """A page with this text between its marks of this name."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if begin not in text or end not in text:
        raise ValueError(f"the page must have the marks {begin} and {end}")
    before, _, rest = text.partition(begin)
    return f"{before}{begin}\n{body}\n{end}{rest.partition(end)[2]}"


def within(rows: list[Row], factor: float = FACTOR) -> int:
    """How many estimates are within a factor of the truth."""
    return sum(1 / factor <= row["ratio"] <= factor for row in rows)


def too_low(rows: list[Row]) -> int:
    """How many estimates are so low that they mislead."""
    return sum(row["ratio"] < LOWEST for row in rows)


def extremes(rows: list[Row]) -> tuple[Row, Row]:
    """The estimates that are too low and too high by most."""
    return min(rows, key=lambda row: row["ratio"]), max(rows, key=lambda row: row["ratio"])
