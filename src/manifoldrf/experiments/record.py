"""What an experiment leaves behind: its settings, its numbers, and where they were measured."""

import dataclasses
import importlib.metadata
import json
import os
import platform
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from manifoldrf._files import as_path, atomic_path, writable_folder
from manifoldrf._validation import FloatArray, reject

_PACKAGES = ("manifoldrf", "numba", "numpy", "scikit-learn", "scipy", "torch")


@dataclass(frozen=True, eq=False)
class Record:
    """The result of one experiment.

    Attributes
    ----------
    name : str
        The experiment.
    config : dict
        Its settings, seed included.
    tables : dict of str to list of dict
        Named tables; each row maps column names to plain values.
    seconds : float
        Wall time of the run.
    environment : dict
        Versions, commit and machine.
    arrays : dict of str to array
        What the figures draw. Saved beside the numbers, in one .npz file.
    """

    name: str
    config: dict[str, Any]
    tables: dict[str, list[dict[str, Any]]]
    seconds: float
    environment: dict[str, str] = field(default_factory=lambda: environment())
    arrays: dict[str, FloatArray] = field(default_factory=dict)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write NAME.json and NAME.npz into a folder (made if needed) and return the path of the former."""
        target = writable_folder(folder)
        with atomic_path(target / f"{self.name}.npz") as temporary:
            np.savez_compressed(temporary, **self.arrays)  # type: ignore[arg-type]
        path = target / f"{self.name}.json"
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(self.plain(), indent=2) + "\n", encoding="utf-8")
        return path

    def plain(self) -> dict[str, Any]:
        """Everything but the arrays, ready for JSON."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "arrays"}

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Record":
        """Read what :meth:`save` wrote, given the path of the .json file."""
        source = as_path(path)
        try:
            plain = json.loads(source.read_text(encoding="utf-8"))
            with np.load(source.with_suffix(".npz"), allow_pickle=False) as arrays:
                return cls(**plain, arrays=dict(arrays))
        except (json.JSONDecodeError, TypeError, ValueError, UnicodeDecodeError) as error:
            reject("path", "the .json file of a saved record", f"{source.name}: {error}")


def environment() -> dict[str, str]:
    """Versions, commit and machine, so that a number can be traced."""
    versions = {name: importlib.metadata.version(name) for name in _PACKAGES}
    return versions | {
        "python": platform.python_version(),
        "commit": _commit(),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def _commit() -> str:
    """The commit the package was run from, "unknown" outside a checkout."""
    folder = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty"], cwd=folder, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
