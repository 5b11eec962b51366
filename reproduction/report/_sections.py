"""From records to blocks: the page of all results, before it is written in Markdown or HTML."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from manifoldrf.cli.console import Row, cell, columns, duration, heading, is_text
from reproduction.record import Record
from reproduction.report._blocks import (
    Block,
    Cell,
    Column,
    Command,
    Heading,
    Origin,
    Paragraph,
    Picture,
    Settings,
    Span,
    Table,
)
from reproduction.report._comparison import ours_of, pairs
from reproduction.report._style import TITLES
from reproduction.report.catalogue import CATALOGUE, WITH_DATA, Entry

ENTRY_OF = {record: entry for entry in CATALOGUE.values() for record in entry.records}  # name of a record -> entry


def results(records: Mapping[str, Record], title: str, about: Paragraph) -> list[Block]:
    """All blocks of the page: where the records come from, then a section for each in order of the catalogue."""
    blocks: list[Block] = [Heading(1, title, "results"), about, Heading(2, "How it was made", "how-it-was-made")]
    blocks += _origins(records)
    missing = [name for name in CATALOGUE if name not in records]
    if missing:
        blocks.append(Paragraph.of("Without a record so far: " + ", ".join(missing) + "."))
    for name, entry in ENTRY_OF.items():
        if name in records:
            blocks += _section(entry, records[name])
    return blocks


def size_note(record: Record) -> Paragraph | None:
    """A warning where numbers beside the paper's may be of another size than the paper's."""
    command = record.environment.get("command")
    name, with_data = record.name.removesuffix(WITH_DATA), record.name.endswith(WITH_DATA)
    if command == f"manifoldrf reproduce {name} --size paper" + with_data * " --data DIR":
        return None
    made = Span(str(command), "code") if command else Span("a command that the record does not name")
    if _is_small(record):
        strong = Span("A small run", "strong")
        text = " is far below the paper's size; the paper's numbers stand beside it for orientation only."
        return Paragraph((strong, Span(": "), made, Span(text)))
    strong = Span("Not known to be of the paper's size", "strong")
    return Paragraph((strong, Span(f": {record.name} was made by "), made, Span(".")))


def _is_small(record: Record) -> bool:
    """Whether a record is one to try things out with: nothing in it can be worse than the paper."""
    return "--size smoke" in str(record.environment.get("command", ""))


def table(rows: Sequence[Row], *, keep_empty: bool = False, compared: bool = True) -> Table:
    """Rows as a table; the paper's numbers stand beside ours instead of in columns of their own.

    Columns without a value are left out unless they are to be kept. ``compared``: whether those are marked that are
    worse than the paper's.
    """
    worse = {(pair.row, pair.column) for pair in pairs(rows) if pair.is_worse} if compared else set()
    given = columns(rows)
    paper_of = {ours_of(name): name for name in given if ours_of(name) in given}
    names = [
        name
        for name in given
        if name not in paper_of.values()
        and (
            keep_empty or any(row.get(key) is not None for row in rows for key in (name, paper_of.get(name, name)))
        )
    ]
    cells = (
        tuple(_cell(row, name, paper_of.get(name), worse=(place, name) in worse) for name in names)
        for place, row in enumerate(rows)
    )
    return Table(tuple(_column(rows, name, paired=name in paper_of) for name in names), tuple(cells))


def _column(rows: Sequence[Row], name: str, *, paired: bool) -> Column:
    if paired:
        return Column(f"{heading(name)} (paper)", "pair")
    return Column(heading(name), "text" if is_text(rows, name) else "number")


def _cell(row: Row, name: str, paper: str | None, *, worse: bool) -> Cell:
    text = cell(row.get(name))
    return Cell(TITLES.get(text, text), "" if paper is None else cell(row.get(paper)), worse)


def _origins(records: Mapping[str, Record]) -> Iterator[Origin]:
    """Where the records come from: one block for all that share commit, versions and machine."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in ENTRY_OF:
        if name in records:
            facts = records[name].environment.items()
            shared = tuple(sorted((what, str(value)) for what, value in facts if what != "command"))
            groups.setdefault(shared, []).append(name)
    for shared, names in groups.items():
        yield Origin(tuple(names), shared)


def _section(entry: Entry, record: Record) -> Iterator[Block]:
    """All of one experiment."""
    yield Heading(2, record.name, record.name)
    yield from _about(entry, record)
    items = tuple((name, _setting(value)) for name, value in record.config.items())
    yield Settings(duration(record.seconds), items)
    for title, rows in record.tables.items():
        if title not in entry.drawn and rows:
            yield Heading(3, f"Table {title}", f"{record.name}-{title}")
            yield table([_with_target(row) for row in rows], compared=not _is_small(record))
    yield Paragraph.of(entry.columns)
    for name in entry.pictures(record.name):
        yield Picture(name, entry.caption(record.name, name))
    if not _is_small(record):
        yield Heading(3, "Where we are worse than the paper", f"{record.name}-worse")
        yield from _worse(entry, record)


def _about(entry: Entry, record: Record) -> Iterator[Block]:
    """What the experiment shows and does, its command, and a warning where it may be of another size."""
    if record.name == entry.name:
        yield Paragraph((Span(entry.claim, "strong"), Span(f" {entry.about}")))
    else:
        text = f"The experiment {entry.name} on files: {entry.reads}. Their names are in the tables."
        yield Paragraph.of(text)
    if "command" in record.environment:
        yield Command(str(record.environment["command"]))
    if note := size_note(record):
        yield note


def _setting(value: Any) -> str:
    """A setting; of a long list the ends."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {cell(part)}" for name, part in value.items())
    if isinstance(value, list) and len(value) > 8:  # a grid of values
        return f"{cell(value[:2])}, ..., {cell(value[-1])} ({len(value)} values)"
    return cell(value)


def _with_target(row: Row) -> Row:
    """A row with its limit in words, where it has one."""
    words = {"<=": "at most", ">=": "at least"}
    found = words.get(str(row.get("comparison")))
    if found is None or not {"limit", "holds"} <= row.keys():
        return row
    rest = {name: value for name, value in row.items() if name not in ("comparison", "limit", "holds")}
    return rest | {"target": f"{found} {cell(row['limit'])}", "holds": row["holds"]}


def _worse(entry: Entry, record: Record) -> Iterator[Block]:
    """Every number that is worse than the paper's, with the reason."""
    found = [pair for rows in record.tables.values() for pair in pairs(rows)]
    worse = [pair for pair in found if pair.is_worse]
    if not found:
        yield Paragraph.of("The paper gives no numbers to compare with.")
    elif not worse:
        yield Paragraph.of(f"Nowhere, in {len(found)} numbers.")
    else:
        yield Paragraph.of(f"In {len(worse)} of {len(found)} numbers:")
        yield Table(
            (Column("where"), Column("what"), Column("ours", "number"), Column("paper", "number"), Column("why")),
            tuple(
                tuple(map(Cell, (p.where, heading(p.column), cell(p.ours), cell(p.paper), p.reason(entry.name))))
                for p in worse
            ),
        )
