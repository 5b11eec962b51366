"""The JSON file of the comparison: rows of every job, versions and machine."""

import datetime
import importlib.metadata
import json
import os
import pathlib
import platform
from typing import Any

from manifoldrf._files import atomic_path

ROOT = pathlib.Path(__file__).parents[2]
PATH = ROOT / "docs" / "results" / "peers.json"
THREADS = 2
PACKAGES = (
    "manifoldrf", "geometric_kernels", "pygsp", "pydiffmap", "fast-graph-gp", "scikit-learn", "scipy", "torch",
    "numpy", "numba", "robust_laplacian",
)  # fmt: skip


def load(path: pathlib.Path = PATH) -> dict[str, Any]:
    """What the file holds."""
    plain: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return plain


def rows_of(plain: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of all jobs."""
    return [row for job in plain["jobs"].values() for row in job["rows"]]


def keep(path: pathlib.Path, job: str, rows: list[dict[str, Any]], seconds: float) -> None:
    """Put the rows of one job into the file, in the place of earlier ones; others stay, with their own versions."""
    plain = load(path) if path.exists() else {"jobs": {}}
    plain["jobs"][job] = {"rows": rows, "seconds": round(seconds, 1), "environment": environment()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as temporary:  # a run of a quarter of an hour is not lost by an interrupt
        temporary.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")


def environment() -> dict[str, str]:
    """Versions, machine and day."""
    return {name: importlib.metadata.version(name) for name in PACKAGES} | {
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {THREADS} threads",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
    }
