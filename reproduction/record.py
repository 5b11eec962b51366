"""The record of an experiment: its settings, its numbers, and where they were measured."""

import dataclasses
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manifoldrf.cli.console import environment
from reproduction.common import FloatArray, as_path, atomic_paths, existing_file, reject, writable_folder
from reproduction.files import read_members, small_text

Progress = Callable[[str, int, int], None]  # what is done, how many of these are done, and of how many
_CHECKSUM = "sha256 of the arrays"
_LONGEST_REASON = 500  # characters of an error text


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
        Wall time of the run, or of all its parts.
    environment : dict
        Versions, commit and machine.
    arrays : dict of str to array
        Data of the figures, saved in one .npz file.
    """

    name: str
    config: dict[str, Any]
    tables: dict[str, list[dict[str, Any]]]
    seconds: float
    environment: dict[str, str] = field(default_factory=environment)
    arrays: dict[str, FloatArray] = field(default_factory=dict)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write NAME.json and NAME.npz into a folder (created if needed) and return the path of NAME.json.

        Both files are replaced or neither. NAME.json has the checksum of the other, because nothing can stop a kill
        between the two.
        """
        target = writable_folder(folder)
        plain = self.plain()  # before anything is written, because it may fail
        path = target / f"{self.name}.json"
        with atomic_paths([path, target / f"{self.name}.npz"]) as (numbers, arrays):
            np.savez_compressed(arrays, **self.arrays)  # type: ignore[arg-type]
            text = json.dumps(plain | {_CHECKSUM: _checksum(arrays)}, indent=2)
            numbers.write_text(text + "\n", encoding="utf-8")
        return path

    def plain(self) -> dict[str, Any]:
        """Everything except the arrays, with JSON types: lists for tuples, Python numbers for NumPy's."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "arrays"}
        plain: dict[str, Any] = json.loads(json.dumps(fields, default=_plain_number))
        return plain

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, arrays: bool = True) -> "Record":
        """Read what :meth:`save` wrote, given the path of the .json file.

        Without ``arrays`` that file is enough, and the record has none.
        """
        source = as_path(path)
        try:
            whole = json.loads(small_text(source))
            checksum = whole.pop(_CHECKSUM, None) if isinstance(whole, dict) else None  # older files have none
            plain = _check_plain(whole)
            if not arrays:
                return cls(**plain)
            other = existing_file(source.with_suffix(".npz"))
            if checksum not in (None, _checksum(other)):
                reject("path", "saved together with its arrays", f"{other.name} of another run")
            return cls(**plain, arrays=read_members(other, "arrays"))
        except (TypeError, ValueError, RecursionError) as error:  # also raised for broken JSON
            reason = str(error).partition("\n")[0][:_LONGEST_REASON].rstrip(".")
            reject("path", "the .json file of a saved record", f"{source.name}: {reason}")


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def finished_part(folder: Path | None, name: str, config: dict[str, Any], measure: Callable[[], Record]) -> Record:
    """Read a part of an experiment from a folder, or measure it and keep it there, for a run in several sittings.

    A kept part of other settings is measured again and replaced; so is one whose two files are of different runs,
    because a kill came between them. A part carries the commit and the machine that it was measured with, and may
    come from another commit than the rest of the record, see :func:`environment_of`. Without a folder nothing is
    kept.
    """
    if folder is None:
        return measure()
    path = folder / f"{name}.json"
    if path.exists():
        found = Record.load(path, arrays=False)
        if found.config == json.loads(json.dumps(config, default=_plain_number)) and not _is_torn(path):
            return Record.load(path)
    part = dataclasses.replace(measure(), name=name, config=config)
    part.save(folder)
    return part


def settings_without(config: Any, *names: str) -> dict[str, Any]:
    """All settings of a configuration except some: those that only say which parts there are."""
    return {name: value for name, value in dataclasses.asdict(config).items() if name not in names}


def checksum_of(*arrays: NDArray[Any]) -> str:
    """A short checksum of input arrays, by which a part notices that a file of the same name has changed."""
    digest = hashlib.blake2b(digest_size=8)
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def finished_rows(
    folder: Path | None, name: str, table: str, config: dict[str, Any], rows: Callable[[], Iterable[dict[str, Any]]]
) -> Record:
    """A part of an experiment that is some rows of one table, see :func:`finished_part`."""

    def measure() -> Record:
        start = time.perf_counter()
        return Record(name, {}, {table: list(rows())}, time.perf_counter() - start)

    return finished_part(folder, name, config, measure)


# A part to be measured: table, name, its settings beside those of all parts, rows.
Piece = tuple[str, str, dict[str, Any], Callable[[], Iterable[dict[str, Any]]]]


def finished_pieces(
    folder: Path | None, experiment: str, settings: dict[str, Any], pieces: Iterable[Piece]
) -> list[Record]:
    """All parts of an experiment that is made of rows, in order, see :func:`finished_rows`."""
    return [
        finished_rows(folder, f"{experiment}-{table}-{name}", table, settings | own, rows)
        for table, name, own, rows in pieces
    ]


def rows_of(parts: Sequence[Record], table: str) -> list[dict[str, Any]]:
    """The rows of one table in all parts."""
    return [row for part in parts for row in part.tables.get(table, [])]


def environment_of(parts: Sequence[Record]) -> dict[str, str]:
    """The environment of a record that is made of parts: of this run, with the commits of the parts."""
    commits = Counter(part.environment.get("commit", "unknown") for part in parts)
    listed = ", ".join(f"{commit} ({count} of {len(parts)})" for commit, count in commits.items())
    return environment() | {"commits of its parts": listed}


def _is_torn(path: Path) -> bool:
    """Whether the arrays of a record, given its .json file, are missing or of another run."""
    arrays = path.with_suffix(".npz")
    checksum = json.loads(small_text(path)).get(_CHECKSUM)
    return not arrays.exists() or checksum not in (None, _checksum(arrays))


def _plain_number(value: Any) -> Any:
    """Convert a NumPy number to a Python number."""
    if not isinstance(value, np.generic):
        reject("record", "made of text, numbers, lists and dictionaries", type(value).__name__, TypeError)
    return value.item()


def _check_plain(plain: Any) -> dict[str, Any]:
    """Check that a .json file has the parts of a record."""
    kinds = {"name": str, "config": dict, "tables": dict, "seconds": float | int, "environment": dict}
    if not isinstance(plain, dict) or plain.keys() != kinds.keys():
        reject("record", "a dictionary with " + ", ".join(kinds), type(plain).__name__)
    for name, kind in kinds.items():
        if not isinstance(plain[name], kind):
            reject(name, "of the kind a record has", type(plain[name]).__name__)
    for title, rows in plain["tables"].items():
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            reject("tables", "lists of rows that map columns to values", title)
    return plain
