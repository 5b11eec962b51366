"""The list of all experiments: claim, module, tables and pictures. A new experiment needs one entry."""

import dataclasses
import importlib
import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reproduction.common import check_option
from reproduction.record import Progress, Record
from reproduction.report.style import FORMATS

Draw = Callable[[Record, Path], Path | None]  # None if a record has nothing to draw

WITH_DATA = "_data"  # ends the name of a record that was made from user files


@dataclass(frozen=True)
class Entry:
    """One experiment and its presentation. Its code is imported on first use.

    Attributes
    ----------
    name : str
        What users call it, and the name of its record.
    module : str
        Its file in ``reproduction``, with ``Config``, ``SIZES`` and ``run``.
    claim : str
        What it shows, in one line. Measured numbers belong in records, not here.
    about : str
        What it does, in two or three sentences.
    columns : str
        What its tables mean.
    figures : mapping of str to str
        Stem of a picture's file name, which begins with the name of the experiment -> "module:function" in
        ``reproduction.report``.
    hidden : mapping of str to set of str
        Table -> columns that would not fit a terminal.
    drawn : set of str
        Tables that are too long to be printed; pictures show them.
    reads : str
        What a folder of data may hold, for experiments that can read one; empty for all others.
    in_parts : bool
        Whether ``run`` takes a folder in which it keeps its finished parts.

    Examples
    --------
    >>> CATALOGUE["teachers"].figures
    {'teachers': 'figures:draw_teachers'}
    """

    name: str
    module: str
    claim: str
    about: str
    columns: str
    figures: Mapping[str, str] = field(default_factory=dict)
    hidden: Mapping[str, frozenset[str]] = field(default_factory=dict)
    drawn: frozenset[str] = frozenset()
    reads: str = ""
    in_parts: bool = False

    def experiment(self) -> Any:
        """The module of the experiment."""
        return importlib.import_module(f"reproduction.{self.module}")

    def sizes(self) -> Mapping[str, Any]:
        """Name of a size -> settings of the experiment."""
        sizes: Mapping[str, Any] = self.experiment().SIZES
        return sizes

    @property
    def records(self) -> tuple[str, ...]:
        """Names of its records: with built-in data and, if it reads files, with those of the user."""
        return (self.name, f"{self.name}{WITH_DATA}") if self.reads else (self.name,)

    def run(self, config: Any, progress: Progress, data: Path | None = None, parts: Path | None = None) -> Record:
        """Run the experiment; with a folder of data, the name of the record ends in "_data"."""
        kept = {"parts": parts} if self.in_parts else {}
        if data is None or not self.reads:
            record: Record = self.experiment().run(config, progress, **kept)
            return record
        record = self.experiment().run(config, progress, data, **kept)
        return dataclasses.replace(record, name=f"{record.name}{WITH_DATA}")

    def pictures(self, record: str) -> dict[str, str]:
        """Stems of the file names of a record's pictures, named after it -> those of :attr:`figures`."""
        return {record + stem.removeprefix(self.name): stem for stem in self.figures}

    def draw(self, record: Record, folder: Path, format: str = "png") -> list[Path]:
        """Draw all pictures of a record into a folder, as "png", "pdf" or "svg", and return their paths."""
        suffix = check_option(format, "format", FORMATS)
        names = self.pictures(record.name)
        drawn = [self.draw_one(record, name, folder / f"{name}.{suffix}") for name in names]
        return [path for path in drawn if path is not None]

    def draw_one(self, record: Record, picture: str, path: Path) -> Path | None:
        """Draw one picture of a record, by its name in :meth:`pictures`; None if there is nothing to draw."""
        return self._drawer(self.pictures(record.name)[picture])(record, path)

    def caption(self, record: str, picture: str) -> str:
        """Caption of a picture: the first sentence of the docstring of its function, or its name."""
        about = inspect.getdoc(self._drawer(self.pictures(record)[picture])) or picture.replace("_", " ")
        return " ".join(about.partition("\n\n")[0].split())

    def _drawer(self, stem: str) -> Draw:
        """The function that draws one picture."""
        module, _, function = self.figures[stem].partition(":")
        found: Draw = getattr(importlib.import_module(f"reproduction.report.{module}"), function)
        return found


def _entry(name: str, values: dict[str, Any]) -> Entry:
    texts = {key: " ".join(values.pop(key, "").split()) for key in ("claim", "about", "columns", "reads")}
    hidden = {table: frozenset(columns) for table, columns in values.pop("hidden", {}).items()}
    drawn = frozenset(values.pop("drawn", ()))
    return Entry(**{"name": name, "module": name, **values, **texts, "hidden": hidden, "drawn": drawn})


_TEXTS = Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")
CATALOGUE = {name: _entry(name, values) for name, values in tomllib.loads(_TEXTS).items()}
