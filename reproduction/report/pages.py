"""The results page in Markdown, made from saved records.

Nothing is computed here: numbers are formatted and compared with the paper's. The same records give the same bytes.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from manifoldrf.cli.console import Row, cell, columns, duration, is_text
from reproduction.common import as_path, reject
from reproduction.files import files_in
from reproduction.record import Record
from reproduction.report.catalogue import CATALOGUE, WITH_DATA, Entry
from reproduction.report.comparison import KINDS, PUBLISHED, Pair, ours_of, ranks, record_pairs
from reproduction.report.style import TITLES

BEGIN = "<!-- results: begin -->"
END = "<!-- results: end -->"
_BY_COMMAND = "<!-- Made by `python -m reproduction results`; changes made by hand are lost. -->"
_ABOUT = (
    "Every number comes from a saved record of an experiment; `python -m reproduction results` writes this page."
)
_COMPARED = (
    "The table counts our numbers with one of the paper's beside them, in brackets or in a row of its own, and "
    "how many of them are worse, by any amount: those of features of the surface (MRF), those of other methods, "
    "which are worse where our baseline is weaker than the paper's, and times and speed-ups on another machine. "
    "A number of the paper may have several of ours beside it. Every section ends with its worse numbers and "
    "reasons. Errors of attention have an unknown unit; their section compares ranks, which differ, and none is "
    "counted."
)
_ORDER = (
    "The paper does not state the unit of these errors, so values cannot be compared, but the order of the methods "
    "can. Ours and the paper's (published) side by side, rank 1 is the best:"
)
_OLD_PROGRAM, _PROGRAM = "manifoldrf reproduce ", "python -m reproduction "  # records made before the move
_ABSENT = object()  # no setting
_EDITED = "edited"  # of an environment: what was changed in the record after the run
ENTRY_OF = {record: entry for entry in CATALOGUE.values() for record in entry.records}  # name of a record -> entry

# Methods of the README's table: the paper's numbers, its recipe here, the default with the same and its own kernel.
RECIPE, SAME, DEFAULT = "paper's recipe", "default, same kernel", "default, heat kernel, 1024 features"
README_METHODS = (PUBLISHED, RECIPE, SAME, DEFAULT)
_README_NOTE = (
    "Relative errors of the kernel matrix. The first three columns are between nodes of the graph, as in the "
    "paper: against the kernel of the graph, on the sphere against the exact heat kernel, which the kernel of the "
    "graph is 0.075 off. The last column is for the heat kernel of the surface with 1024 features, between points "
    "that no graph contains; except on the sphere, its reference is a graph with four times as many nodes."
)
_README_STRIP = (
    " The strip has {stated} neighbours, as the paper states; with {fitting}, which give the norm of its kernel, "
    "the error of the recipe is {error}."
)
_HEADINGS = {
    "r2": "R²",
    "re": "mean RE",
    "mse": "MSE",
    "rmse": "RMSE",
    "mae": "MAE",
    "mean_re": "mean RE",
    "median_re": "median RE",
    "fit_s": "fit, s",
    "kernel_ms": "kernel, ms",
    "speed_up": "speed-up",
    "ms_per_start": "ms per start",
}


# ------------------------------------------------------------------------------------------------------- records
def read_records(folder: str | os.PathLike[str], *, arrays: bool = False) -> dict[str, Record]:
    """Read the records of all .json files of a folder, in the order of the catalogue.

    With ``arrays``, also read their .npz files, as far as they exist.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Record("teachers", {}, {}, 1.0).save(folder)
    ...     list(read_records(folder))
    ['teachers']
    """
    source = as_path(folder, "records")
    paths = files_in(source, "*.json")
    if not paths:
        reject("records", "a folder with the .json files of records", source, FileNotFoundError)
    found = {}
    for path in paths:
        record = Record.load(path, arrays=arrays and path.with_suffix(".npz").exists())
        if record.name not in ENTRY_OF or record.name != path.stem:
            choices = ", ".join(f"{name}.json" for name in ENTRY_OF)
            reject("records", f"named after their experiment: {choices}", f"{record.name!r} in {path.name}")
        found[record.name] = record
    return {name: found[name] for name in ENTRY_OF if name in found}


# --------------------------------------------------------------------------------------------------------- pages
def results_page(records: Mapping[str, Record], images: Collection[str] = ()) -> str:
    """The page of all results, in Markdown.

    Parameters
    ----------
    records : mapping of str to Record
        Name of an experiment -> its record.
    images : collection of str
        File names of pictures in the folder ``images`` beside the page; others are left out.

    Examples
    --------
    >>> page = results_page({"teachers": Record("teachers", {"seed": 0}, {"teachers": [{"error": 0.0125}]}, 1.0)})
    >>> print(page.splitlines()[0], "| 0.0125 |" in page)
    # Results True
    """

    def picture(name: str, caption: str) -> str:
        return f"![{escape(caption)}](images/{name}.png)" if f"{name}.png" in images else ""

    return "\n\n".join(["# Results", _BY_COMMAND, results(records, _ABOUT, picture)]) + "\n"


def results(records: Mapping[str, Record], about: str, picture: Callable[[str, str], str]) -> str:
    """All results in Markdown, below the title; ``picture`` makes Markdown of a name and a caption."""
    parts = [about, *_summary(records), "## How it was made", *_origins(records)]
    missing = [name for name in CATALOGUE if name not in records]
    if missing:
        parts.append(escape("Without a record so far: " + ", ".join(missing) + "."))
    for name, entry in ENTRY_OF.items():
        if name in records:
            parts += _section(entry, records[name], picture)
    return "\n\n".join(part for part in parts if part)


def readme_table(records: Mapping[str, Record]) -> str:
    """A small table of the first experiment for the README, in Markdown.

    Examples
    --------
    >>> errors = {"kernel": 0.5, "nodes": 0.5, "new_points": 0.1}
    >>> row = {"surface": "torus", "fit_s": 1.0, "kernel_ms": 9.0, "speed_up": 5.0} | errors
    >>> rows = [row | {"method": name} for name in README_METHODS]
    >>> print(readme_table({"surfaces": Record("surfaces", {}, {"surfaces": rows}, 1.0)}).splitlines()[2])
    | torus | 0.5 | 0.5 | 0.5 | 0.1 |
    """
    if "surfaces" not in records or "surfaces" not in records["surfaces"].tables:
        found = ", ".join(records) or "none"
        reject("records", "with the table 'surfaces' in surfaces.json", found)
    rows = records["surfaces"].tables["surfaces"]
    methods = {(str(row["surface"]), row["method"]): row for row in rows}
    shown = []
    for surface in dict.fromkeys(str(row["surface"]) for row in rows):
        absent = [name for name in README_METHODS if (surface, name) not in methods]
        if absent:
            reject("records", "with all methods of the README's table in surfaces.json", f"no {', '.join(absent)}")
        paper, recipe, same, default = (methods[surface, name] for name in README_METHODS)
        row = {
            "surface": surface,
            "paper, published": paper.get("kernel"),
            "paper's recipe, here": recipe.get("kernel"),
        }
        shown.append(row | {"this library": same.get("kernel"), "this library, new points": default["new_points"]})
    note = size_note(records["surfaces"])
    strip = _readme_strip(records["surfaces"].tables.get("recipe", ()))
    speed = _readme_speed([row for row in rows if row["method"] == DEFAULT])
    return "\n\n".join([_table(shown, keep_empty=True), _README_NOTE + strip, speed, *([note] if note else [])])


def _readme_strip(trainings: Sequence[Row]) -> str:
    """Say which graph the strip has, and how far errors on both graphs are apart for other seeds."""
    errors: dict[int, list[float]] = {}
    for row in trainings:
        if row["surface"] == "mobius":
            errors.setdefault(row["neighbours"], []).append(row["kernel"])
    if len(errors) != 2:
        return ""
    stated, fitting = errors  # in the order of the settings
    text = _README_STRIP.format(stated=stated, fitting=fitting, error=_span(errors[fitting]))
    seeds = len(errors[stated])
    return text if seeds == 1 else f"{text} Over {seeds} seeds it is {_span(errors[stated])} with {stated}."


def _readme_speed(rows: Sequence[Row]) -> str:
    """Say what the last column of the README's table costs, with and without the fit."""
    fits, kernels, gains = ([float(row[name]) for row in rows] for name in ("fit_s", "kernel_ms", "speed_up"))
    whole = [gain * ms / (1000 * fit + ms) for fit, ms, gain in zip(fits, kernels, gains, strict=True)]
    return (
        f"A fit for the last column took {_span(fits)} s, the kernel between 512 new points {_span(kernels)} ms. "
        f"A dense eigendecomposition and the kernel of all nodes from it take {_span(gains)} times as long as the "
        f"kernel, and {_span(whole)} times as long as fit and kernel together."
    )


def _span(values: Sequence[float]) -> str:
    """The smallest and the largest value in words; one of them if they round to the same."""
    ends = (cell(float(f"{value:.2g}")) for value in (min(values), max(values)))
    return " to ".join(dict.fromkeys(ends))


def replace_between(text: str, begin: str, end: str, new: str, name: str = "text") -> str:
    """Replace the lines between two markers, which stay; ``name`` is what an error calls the text.

    Examples
    --------
    >>> print(replace_between("a <b> old <e> c", "<b>", "<e>", "new"))
    a <b>
    <BLANKLINE>
    new
    <BLANKLINE>
    <e> c
    """
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        counts = f"{text.count(begin)} and {text.count(end)} of them"
        reject(name, f"a text with {begin} and, after it, {end}, each once", counts)
    head, _, rest = text.partition(begin)
    return f"{head}{begin}\n\n{new}\n\n{end}{rest.partition(end)[2]}"  # a Markdown table ends at an empty line


def size_note(record: Record) -> str:
    """A warning if the record may not have the paper's size; empty otherwise."""
    command = _command(record)
    name, with_data = record.name.removesuffix(WITH_DATA), record.name.endswith(WITH_DATA)
    paper = f"{_PROGRAM}{name} --size paper"
    if command == paper + with_data * " --data DIR":
        return ""
    made = _code(command) if command else "a command that the record does not name"
    if _is_small(record):
        text = "is far below the paper's size; the paper's numbers are shown for orientation only."
        return f"**A small run**: {made} {text}"
    kind = "With changed settings" if command.startswith(f"{paper} --") else "Not known to be of the paper's size"
    return f"**{kind}**: {escape(record.name)} was made by {made}."


# ------------------------------------------------------------------------------------------------------ sections
def _summary(records: Mapping[str, Record]) -> Iterator[str]:
    """How many numbers of each record have one of the paper's beside them, and how many of these are worse."""
    rows = []
    for name in [name for name in ENTRY_OF if name in records]:
        found = [] if _is_small(records[name]) else list(record_pairs(records[name].tables))
        row: dict[str, Any] = {"record": name}
        for kind in KINDS:
            worse = [pair.is_worse for pair in found if pair.kind == kind]
            row |= {kind: len(worse) or None, f"{kind}, worse": sum(worse) if worse else None}
        if found:
            rows.append(row)
    if rows:
        yield "## The paper's numbers and ours"
        yield _COMPARED
        yield _table(rows)


def _origins(records: Mapping[str, Record]) -> Iterator[str]:
    """Where the records come from: one paragraph for all that share commit, versions and machine."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in ENTRY_OF:
        if name in records:
            facts = records[name].environment.items()
            shared = tuple(sorted((what, str(value)) for what, value in facts if what not in ("command", _EDITED)))
            groups.setdefault(shared, []).append(name)
    commits = {str(records[name].environment.get("commit")) for names in groups.values() for name in names}
    if len(commits) > 1:
        yield (
            f"The records come from {len(commits)} different commits: numbers of two sections need not belong to "
            "the same code. Each paragraph names the records of one commit. `make records` makes all again with "
            "today's settings, which takes about ten hours on a quiet machine."
        )
    for shared, names in groups.items():
        text = ", ".join(f"{what} {value}" for what, value in shared)
        yield escape(f"{', '.join(names)}: {text}.")
    for name in ENTRY_OF:
        if name in records and _EDITED in records[name].environment:
            yield escape(f"{name} was changed after the run: {records[name].environment[_EDITED]}.")


def _section(entry: Entry, record: Record, picture: Callable[[str, str], str]) -> Iterator[str]:
    """All of one experiment."""
    yield f"## {escape(record.name)}"
    if record.name == entry.name:
        yield f"**{escape(entry.claim)}** {escape(entry.about)}"
    else:
        yield escape(f"The experiment {entry.name} on files: {entry.reads}. Their names are in the tables.")
    if command := _command(record):
        yield f"```sh\n{_one_line(command).replace('```', '')}\n```"
    yield size_note(record)
    yield _changed_settings(entry, record)
    settings = "; ".join(f"{name} = {_setting(value)}" for name, value in record.config.items())
    whole = " in all parts" if "commits of its parts" in record.environment else ""
    yield f"Took {duration(record.seconds)}{whole}. Settings: {escape(settings)}."
    for title, rows in record.tables.items():
        if title not in entry.drawn and rows:
            yield f"### {escape(f'Table {title}')}"
            yield _table([_with_target(row) for row in rows])
    yield escape(entry.columns)
    for name in entry.pictures(record.name):
        yield picture(name, entry.caption(record.name, name))
    if not _is_small(record):
        yield "### Where we are worse than the paper"
        yield from _worse(entry, record)


def _changed_settings(entry: Entry, record: Record) -> str:
    """Settings of the paper's size that have changed since the record was made, so that its command has others."""
    command = _command(record)
    if _is_small(record) or not command:
        return ""
    now = json.loads(json.dumps(dataclasses.asdict(entry.sizes()["paper"])))
    changed = [
        f"{name} was {_setting(record.config[name])}" if name in record.config else f"there was no {name}"
        for name, value in now.items()
        if f"--set {name}=" not in command and record.config.get(name, _ABSENT) != value
    ]
    return escape(f"Settings have changed since this run: {'; '.join(changed)}.") if changed else ""


def _command(record: Record) -> str:
    """The command that makes a record again, or an empty text."""
    command = str(record.environment.get("command", ""))
    return _PROGRAM + command.removeprefix(_OLD_PROGRAM) if command.startswith(_OLD_PROGRAM) else command


def _is_small(record: Record) -> bool:
    """Whether a record is of the size smoke, which says nothing about the paper."""
    return "--size smoke" in _command(record)


def _setting(value: Any) -> str:
    """A setting; of a long list, the ends."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {cell(part)}" for name, part in value.items())
    if isinstance(value, list) and len(value) > 8:  # a grid of values
        return f"{cell(value[:2])}, ..., {cell(value[-1])} ({len(value)} values)"
    return cell(value)


def _with_target(row: Row) -> Row:
    """A row with its limit in words, if it has one."""
    words = {"<=": "at most", ">=": "at least"}
    found = words.get(str(row.get("comparison")))
    if found is None or not {"limit", "holds"} <= row.keys():
        return row
    rest = {name: value for name, value in row.items() if name not in ("comparison", "limit", "holds")}
    return rest | {"target": f"{found} {cell(row['limit'])}", "holds": row["holds"]}


def _worse(entry: Entry, record: Record) -> Iterator[str]:
    """Every number that is worse than the paper's, with the reason, the paper's method first."""
    found = sorted(record_pairs(record.tables), key=lambda pair: KINDS.index(pair.kind))
    shown = [rows for title, rows in record.tables.items() if title not in entry.drawn]
    orders = [table for rows in shown if (table := ranks(rows))]
    worse = [pair for pair in found if pair.is_worse]
    if orders:
        yield escape(_ORDER)
        for table in orders:
            yield _table(table)
            yield escape(_order_in_words(table))
    elif not found:
        yield "No number of the paper stands beside those of this record."
    elif not worse:
        yield f"Nowhere, in {len(found)} numbers."
    else:
        groups: dict[tuple[str, str], list[Pair]] = {}
        for pair in worse:
            groups.setdefault((pair.where, pair.reason(entry.name)), []).append(pair)
        yield f"In {len(worse)} of {len(found)} numbers:"
        yield _table(
            [
                {"where": where, "what": ", ".join(heading(pair.column) for pair in alike)}
                | {"ours": ", ".join(cell(pair.ours) for pair in alike)}
                | {"paper": ", ".join(cell(pair.paper) for pair in alike), "why": why}
                for (where, why), alike in groups.items()
            ]
        )


def _order_in_words(table: Sequence[Row]) -> str:
    """The methods whose ranks differ most."""
    pairs_of = [(name.removeprefix("published_"), name) for name in table[0] if name.startswith("published_")]
    ours, paper = next(pair for pair in pairs_of if pair[1].endswith("_rank"))
    rows = sorted(table, key=lambda row: -abs(int(row[ours]) - int(row[paper])))
    if all(row[ours] == row[paper] for row in rows):
        return "The orders agree."
    best = next(row for row in table if row[paper] == 1)
    named = [best, *[row for row in rows if row is not best][:3]]
    found = [f"{row['method']} is {row[ours]} of {len(table)} here and {row[paper]} in the paper" for row in named]
    return f"The orders disagree: {'; '.join(found)}."


# -------------------------------------------------------------------------------------------------------- tables
def _table(rows: Sequence[Row], *, keep_empty: bool = False) -> str:
    """Rows as a Markdown table, with the paper's numbers in brackets beside ours.

    Columns without a value are left out unless ``keep_empty``.
    """
    given = columns(rows)
    paper_of = {ours_of(name): name for name in given if ours_of(name) in given}
    filled = {name for row in rows for name in row if row[name] is not None}
    names = [
        name
        for name in given
        if name not in paper_of.values() and (keep_empty or {name, paper_of.get(name)} & filled)
    ]
    heads = [heading(name) + (" (paper)" if name in paper_of else "") for name in names]
    rules = ["---" if name in paper_of or is_text(rows, name) else "---:" for name in names]
    body = [[_cell(row, name, paper_of.get(name)) for name in names] for row in rows]
    first, *rest = ("| " + " | ".join(escape(text) for text in line) + " |" for line in (heads, *body))
    return "\n".join([first, "|" + "|".join(rules) + "|", *rest])


def _cell(row: Row, name: str, paper: str | None) -> str:
    text = cell(row.get(name))
    beside = "" if paper is None else cell(row.get(paper))
    return TITLES.get(text, text) + (f" ({beside})" if beside else "")


# ---------------------------------------------------------------------------------------------------------- text
def escape(text: str) -> str:
    r"""Escape what Markdown would not take for text, in one line.

    Examples
    --------
    >>> print(escape("n_nodes |x|"))
    n\_nodes \|x\|
    """
    for sign in ("\\", "|", "*", "_", "`", "<", "$", "[", "&"):
        text = text.replace(sign, f"\\{sign}")
    return _one_line(text)


def _code(text: str) -> str:
    return f"`{_one_line(text).replace('`', '')}`"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def heading(column: str) -> str:
    """Heading of a column.

    Examples
    --------
    >>> heading("new_points"), heading("r2")
    ('new points', 'R²')
    """
    return _HEADINGS.get(column, column.replace("_", " "))
