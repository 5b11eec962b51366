"""The record of an experiment: its settings, its numbers, and the code, commit and machine that made them."""

import ast
import dataclasses
import functools
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from reproduction.common import atomic_path, reject

Row = dict[str, Any]
ROOT = Path(__file__).parents[1]
_CHECKSUM = "sha256 of the arrays"
_PACKAGES = ("manifoldrf", "numpy", "scikit-learn", "scipy", "torch")


@dataclass(frozen=True, eq=False)
class Record:
    """The result of one experiment, or of a part of it.

    Attributes
    ----------
    name : str
    config : dict
        Its settings, seed included.
    tables : dict of str to list of dict
        Named tables; each row maps column names to plain values.
    seconds : float
        CPU time of the run, or of all its parts.
    environment : dict
        Versions, commit, machine, digest of the code, command.
    arrays : dict of str to array
        Data of the figures, saved in one .npz file.
    """

    name: str
    config: Row
    tables: dict[str, list[Row]]
    seconds: float
    environment: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)

    def save(self, folder: Path) -> Path:
        """Write NAME.npz and NAME.json, which has the checksum of the other, and return the path of NAME.json."""
        folder.mkdir(parents=True, exist_ok=True)
        plain = self.plain()  # before anything is written, because it may fail
        path = folder / f"{self.name}.json"
        with atomic_path(path.with_suffix(".npz")) as arrays:
            np.savez_compressed(arrays, **self.arrays)  # type: ignore[arg-type]
        with atomic_path(path) as numbers:
            text = json.dumps(plain | {_CHECKSUM: _checksum(path.with_suffix(".npz"))}, indent=2)
            numbers.write_text(text + "\n", encoding="utf-8")
        return path

    def plain(self) -> Row:
        """Everything except the arrays, with JSON types: lists for tuples, Python numbers for NumPy's."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "arrays"}
        plain: Row = json.loads(json.dumps(fields, default=lambda value: value.item()))
        return plain

    @classmethod
    def load(cls, path: Path, *, arrays: bool = True) -> "Record":
        """Read what :meth:`save` wrote; without ``arrays`` the .json file is enough, and the record has none."""
        try:
            plain = json.loads(path.read_text(encoding="utf-8"))
            checksum = plain.pop(_CHECKSUM, None)
            record = cls(**plain)
        except (ValueError, TypeError, AttributeError) as error:
            reject("path", "the .json file of a saved record", f"{path.name}: {error}")
        if not arrays:
            return record
        other = path.with_suffix(".npz")
        if not other.is_file() or checksum != _checksum(other):
            reject("path", "saved together with its arrays", f"{other.name} of another run")
        with np.load(other) as found:
            return dataclasses.replace(record, arrays=dict(found))


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@functools.cache
def environment() -> dict[str, str]:
    """Versions, commit and machine; fixed by the first call, because a checkout may change during a long run."""
    try:
        commit = _git("describe", "--always")
        # Records that are made again do not count: a long run writes one after the other.
        commit += "-dirty" if _git("status", "--porcelain", "--untracked-files=no", "src", "reproduction") else ""
    except (OSError, subprocess.CalledProcessError):
        commit = "unknown"
    return {name: _version(name) for name in _PACKAGES} | {
        "python": platform.python_version(),
        "commit": commit,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


# --------------------------------------------------------------------------------------------- digest of the code
_NATIVE = (".c", ".cpp", ".h", ".pyx", ".rs")


@functools.cache
def code_digest(module: str) -> str:
    """Digest of a module and of all modules of the repository that it imports, directly or not.

    Comments, docstrings and layout do not count. Numbers made by code of the same digest may be put together.
    """
    seen: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _source(name)
        if name in seen or path is None or name.startswith("manifoldrf.cli"):
            continue
        tree = _without_docstrings(ast.parse(path.read_text(encoding="utf-8")))
        seen[name] = ast.dump(tree)
        waiting += _imports(tree)
    package = _source("manifoldrf")
    native = sorted(p for p in package.parent.rglob("*") if p.suffix in _NATIVE) if package else []
    parts = [f"{name} {text}".encode() for name, text in sorted(seen.items())] + [p.read_bytes() for p in native]
    return hashlib.blake2b(b"\n".join(parts), digest_size=8).hexdigest()


@functools.cache
def _source(module: str) -> Path | None:
    """The file of a module of the repository."""
    if module.partition(".")[0] not in ("manifoldrf", "reproduction"):
        return None
    try:
        spec = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # the last part is a name inside a module
        return None
    return Path(spec.origin) if spec and spec.origin and spec.origin.endswith(".py") else None


def _imports(tree: ast.AST) -> Iterable[str]:
    """Modules that a module imports; public names of the package are found in its stub."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "manifoldrf":
            yield from (_homes().get(alias.name, f"manifoldrf.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@functools.cache
def _homes() -> dict[str, str]:
    """Public name of the package -> the module that it lives in."""
    package = _source("manifoldrf")
    stub = ast.parse(package.with_suffix(".pyi").read_text(encoding="utf-8")) if package else ast.Module([], [])
    lines = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: f"manifoldrf.{node.module}" for node in lines for alias in node.names}


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return tree


# ----------------------------------------------------------------------------------------------------------- parts
class Parts:
    """Parts of an experiment, each kept in a folder when it is finished, for a run in several sittings.

    A kept part is used again if its settings and the digest of the code are the same; otherwise it is measured
    again. Without a folder nothing is kept.

    Parameters
    ----------
    folder : Path or None
    module : str
        The experiment's, whose code decides.
    """

    def __init__(self, folder: Path | None, module: str) -> None:
        self.folder, self.code = folder, code_digest(module)
        self.found: list[Record] = []

    def get(
        self, name: str, settings: Row, measure: Callable[[], tuple[dict[str, Any], dict[str, NDArray[Any]]]]
    ) -> Record:
        """Read a part, or measure its tables and arrays and keep them."""
        config = json.loads(json.dumps(settings, default=lambda value: value.item()))
        kept = None if self.folder is None else reusable(self.folder / f"{name}.json", config, self.code)
        if kept is None:
            start = time.process_time()
            tables, arrays = measure()
            made = environment() | {"code": self.code}
            kept = Record(name, config, tables, time.process_time() - start, made, arrays)
            if self.folder is not None:
                kept.save(self.folder)
        self.found.append(kept)
        return kept

    def rows(self, table: str, name: str, settings: Row, measure: Callable[[], Iterable[Row]]) -> None:
        """A part that is some rows of one table."""
        self.get(name, settings, lambda: ({table: list(measure())}, {}))

    def table(self, name: str) -> list[Row]:
        """The rows of one table in all parts so far."""
        return [row for part in self.found for row in part.tables.get(name, [])]

    @property
    def seconds(self) -> float:
        """CPU time of all parts."""
        return sum(part.seconds for part in self.found)


def reusable(path: Path, config: Row, code: str) -> Record | None:
    """The record of a file if its settings and its code are these and both its files are whole."""
    if not path.is_file():
        return None
    try:
        found = Record.load(path)
    except ValueError:
        return None
    return found if found.config == config and found.environment.get("code") == code else None


def settings_without(config: Any, *names: str) -> Row:
    """All settings of a configuration except some: those that only say which parts there are."""
    return {name: value for name, value in dataclasses.asdict(config).items() if name not in names}


def checksum_of(*arrays: NDArray[Any]) -> str:
    """A short checksum of input arrays, by which a part notices that a file of the same name has changed."""
    digest = hashlib.blake2b(digest_size=8)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def chosen(rows: Sequence[Row], **where: Any) -> list[Row]:
    """Rows of a table with these values."""
    return [row for row in rows if all(row.get(name) == value for name, value in where.items())]
