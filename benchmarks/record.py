"""Rows of a benchmark in a JSON file, and tables between marks of a page."""

import datetime
import importlib.metadata
import json
import pathlib
import platform
from typing import Any

from manifoldrf._files import atomic_path

ROOT = pathlib.Path(__file__).parents[1]

Row = dict[str, Any]


def load(path: pathlib.Path) -> list[Row]:
    """The rows of the file."""
    rows: list[Row] = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return rows


def keep(rows: list[Row], path: pathlib.Path) -> None:
    """Write the rows with versions and day."""
    names = ("manifoldrf", "numpy", "scipy")
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
