"""The results page and the table of the README, made from saved records; the same records give the same bytes.

Nothing is computed here: numbers are formatted, and compared with the paper's that stand beside them.
"""

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from manifoldrf._files import as_path
from manifoldrf._validation import reject
from manifoldrf.experiments.record import Record
from manifoldrf.report._drawing import TITLES
from manifoldrf.report._tables import Row, cell, duration, escape, heading, markdown_table
from manifoldrf.report.catalogue import CATALOGUE, WITH_DATA, Entry

BEGIN = "<!-- results: begin -->"
END = "<!-- results: end -->"

_ENTRY_OF = {record: entry for entry in CATALOGUE.values() for record in entry.records}  # name of a record -> entry
PUBLISHED = "paper, published"  # the row of the paper's own numbers
_HIGHER_IS_BETTER = frozenset(
    {"accuracy", "as_paper", "r2", "speed_up"}
)  # lower is better in all others of the paper
_NOT_COMPARED = frozenset({"features"})  # a setting, not a result
_SAME_KERNEL = "default, same kernel"  # ours for the kernel that the paper and the ambient features approximate
IN_README = (PUBLISHED, "paper's recipe", _SAME_KERNEL, "default, heat kernel, 1024 features")
_NO_REASON = "no reason known"
# Why a number is worse than the paper's: (experiment, "method, column", column or method) -> reason.
_OUR_NETWORK = (
    "the paper says neither how inputs are scaled nor how starts are held out; the largest values, which its "
    "relative loss weighs least, make most of this figure"
)
_NOISY_WALKS = (
    "not explained; walks are noisiest there, with 24 neighbours of unequal weight (experiment teachers), and the "
    "paper may have used other ones"
)
_OTHER_MACHINE = "another machine and other code: caches and fixed costs bend lines on logarithmic axes"
_RIM = "the rim is half a unit from the inner ball and turns heat back; the paper says nothing of its nodes"
_OTHER_DRAW = "another draw, and a sigma chosen by the relative Frobenius error, not by each column"
_REASONS = {
    ("surfaces", "kernel_ms"): "another machine; times can be compared within one run only",
    ("surfaces", "speed_up"): "another machine and another eigendecomposition, both timed in this run",
    ("surfaces", "paper's network, our 1024 anchors"): "fewer anchors than the paper's, which are all nodes",
    ("surfaces", "paper's recipe, nodes"): _NOISY_WALKS,
    ("surfaces", "paper's recipe, r2"): _OUR_NETWORK,
    (
        "surfaces",
        "paper's recipe, re",
    ): "ours is against exact signatures, small ones included, the paper's against walks",
    ("surfaces", "paper's recipe, mse"): _OUR_NETWORK,
    ("surfaces", "default, same kernel, re"): "made by values near the clamp, far from the start",
    ("normals", "as_paper"): "other meshes: the paper's could not be had",
    (
        "normals",
        "exact features, uniform anchors",
    ): "other meshes, some of which (gears) no method fills in; beside it stands the paper's learned network",
    ("normals", "MRF, paper's recipe"): "one mesh of others than the paper's, and fewer epochs than its 1000",
    ("normals", "interpolate"): _OTHER_MACHINE,
    ("velocity", "as_paper"): "other sequences, most of them coarser: tau = 20 then spans more of the cloth",
    ("velocity", "interpolate"): _OTHER_MACHINE,
    ("brodatz", "MRF, accuracy"): (
        "another descriptor and another graph: the paper names neither its windows nor its graph, and it chooses "
        "settings for each number of neighbours, here for one"
    ),
    ("brodatz", "accuracy"): "another descriptor: the paper names neither its windows nor its smoothing",
    ("hyperbolic", "error"): _RIM,
    ("hyperbolic", "rmse"): _RIM,
    ("ambient", "mrf"): "fewer features than the paper's, which has one for every node",
    ("ambient", "MRF"): "the paper's is rounded to three digits",
    ("ambient", "RFF"): _OTHER_DRAW,
    ("ambient", "ORF"): _OTHER_DRAW,
    ("ambient", "PRF"): "squares of positive features have heavy tails: other seeds change it by 5 to 10 %",
    ("ambient", "PORF"): (
        "not explained: four other seeds gave .95 to 1.00 on the ellipsoid; the paper does not say how its "
        "directions are made orthogonal"
    ),
}


@dataclass(frozen=True)
class _Pair:
    """A number of ours and the paper's."""

    where: str  # surface, method, number of features
    method: str
    column: str
    ours: float
    paper: float

    @property
    def is_worse(self) -> bool:
        """Whether ours is worse, or no number at all."""
        good = self.ours >= self.paper if self.column in _HIGHER_IS_BETTER else self.ours <= self.paper
        return not good

    def reason(self, experiment: str) -> str:
        """Why, from the most particular remark to the most general."""
        keys = [(experiment, what) for what in (f"{self.method}, {self.column}", self.column, self.method)]
        return next((_REASONS[key] for key in keys if key in _REASONS), _NO_REASON)


def read_records(folder: str | os.PathLike[str]) -> dict[str, Record]:
    """Records of all .json files of a folder, in the order of the catalogue; their arrays are not needed.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     _ = Record("teachers", {}, {}, 1.0).save(folder)
    ...     list(read_records(folder))
    ['teachers']
    """
    source = as_path(folder, "records")
    paths = sorted(source.glob("*.json"))
    if not paths:
        reject("records", "a folder with the .json files of records", source, FileNotFoundError)
    found = {}
    for path in paths:
        record = Record.load(path, arrays=False)
        if record.name not in _ENTRY_OF or record.name != path.stem:
            choices = ", ".join(f"{name}.json" for name in _ENTRY_OF)
            reject("records", f"named after their experiment: {choices}", f"{record.name!r} in {path.name}")
        found[record.name] = record
    return {name: found[name] for name in _ENTRY_OF if name in found}


def results_page(records: Mapping[str, Record], images: Collection[str] = ()) -> str:
    """The page of all results, in Markdown.

    Parameters
    ----------
    records : mapping of str to Record
        Name of an experiment -> its record.
    images : collection of str
        File names of pictures in the folder ``images`` beside the page.

    Examples
    --------
    >>> page = results_page({"teachers": Record("teachers", {"seed": 0}, {"teachers": [{"error": 0.0125}]}, 1.0)})
    >>> print(page.splitlines()[0], "| 0.0125 |" in page)
    # Results True
    """
    missing = [name for name in CATALOGUE if name not in records]
    parts = [
        "# Results",
        "<!-- Made by `manifoldrf results`; changes made by hand are lost. -->",
        "Every number here comes from a saved record of an experiment; `manifoldrf results` writes the page.",
        "## How it was made",
        *_origins(records),
    ]
    if missing:
        parts.append("Without a record so far: " + ", ".join(missing) + ".")
    for name, entry in _ENTRY_OF.items():
        if name in records:
            parts += _section(entry, records[name], images)
    return "\n\n".join(parts) + "\n"


def readme_table(records: Mapping[str, Record]) -> str:
    """The first table of the paper with ours beside it, in Markdown.

    Examples
    --------
    >>> rows = [{"surface": "sphere", "method": method, "r2": 0.997} for method in IN_README]
    >>> print(readme_table({"surfaces": Record("surfaces", {}, {"surfaces": rows}, 1.0)}).splitlines()[2][:40])
    | sphere | paper, published | 0.997 |  |
    """
    ambient = _best_ambient(records)
    rows = [row for row in _rows(records, "surfaces", "surfaces") if row.get("method") in IN_README]
    absent = set(IN_README).difference(row["method"] for row in rows)
    if absent:
        reject("records", "with all methods of the table in surfaces.json", f"none of {', '.join(sorted(absent))}")
    shown = [
        {
            **{name: row.get(name) for name in ("surface", "method", "r2", "re", "mse")},
            "kernel error, nodes": row.get("nodes"),
            "surface's own, nodes": row.get("own_kernel"),
            "new points": row.get("new_points"),
            **{name: row.get(name) for name in ("fit_s", "kernel_ms", "speed_up")},
            **ambient.get((row.get("surface"), row["method"]), {}),
        }
        for row in rows
    ]
    notes = [_size_note(records[name]) for name in ("surfaces", "ambient") if name in records]
    return "\n\n".join([markdown_table(shown, keep_empty=True), *filter(None, notes)])


def replace_between(text: str, begin: str, end: str, new: str, name: str = "text") -> str:
    """Put new lines between two markers, which stay; an error calls the text by its name.

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
    return f"{head}{begin}\n\n{new}\n\n{end}{rest.partition(end)[2]}"  # empty lines: a table ends at one


def _origins(records: Mapping[str, Record]) -> Iterator[str]:
    """Where the records come from: one paragraph for all that share commit, versions and machine."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name in _ENTRY_OF:
        if name in records:
            facts = tuple(sorted((k, v) for k, v in records[name].environment.items() if k != "command"))
            groups.setdefault(facts, []).append(name)
    for facts, names in groups.items():
        yield ", ".join(names) + ": " + ", ".join(f"{what} {value}" for what, value in facts) + "."


def _section(entry: Entry, record: Record, images: Collection[str]) -> Iterator[str]:
    """All of one experiment."""
    yield f"## {escape(record.name)}"
    if record.name == entry.name:
        yield f"**{entry.claim}** {entry.about}"
    else:
        yield f"The experiment {escape(entry.name)} on files: {entry.reads}. Their names are in the tables."
    if "command" in record.environment:
        yield f"```sh\n{record.environment['command']}\n```"
    if note := _size_note(record):
        yield note
    settings = "; ".join(f"{name} = {_setting(value)}" for name, value in record.config.items())
    yield f"Took {duration(record.seconds)}. Settings: {escape(settings)}."
    for title, rows in record.tables.items():
        if title not in entry.drawn and rows:
            yield f"### Table {escape(title)}"
            yield markdown_table([_beside(_with_target(row)) for row in rows])
    yield escape(entry.columns)
    for stem in entry.pictures(record.name):
        if f"{stem}.png" in images:
            yield f"![{stem.replace('_', ' ')}](images/{stem}.png)"
    yield "### Where we are worse than the paper"
    yield _worse(entry, record)


def _size_note(record: Record) -> str:
    """A warning where numbers beside the paper's may be of another size than the paper's."""
    command = record.environment.get("command")
    name, with_data = record.name.removesuffix(WITH_DATA), record.name.endswith(WITH_DATA)
    if command == f"manifoldrf reproduce {name} --size paper" + with_data * " --data DIR":
        return ""
    made = f"`{command}`" if command else "a command that the record does not name"
    return f"**Not known to be of the paper's size**: {escape(record.name)} was made by {made}."


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
    if row.get("comparison") not in words:
        return row
    limit = f"{words[row['comparison']]} {cell(row['limit'])}"
    rest = {name: value for name, value in row.items() if name not in ("comparison", "limit", "holds")}
    return rest | {"target": limit, "holds": row["holds"]}


def _beside(row: Row) -> Row:
    """A row with the paper's numbers in brackets beside ours instead of in columns of their own."""
    papers = {_ours(name): value for name, value in row.items() if _ours(name) in row}
    merged = {}
    for name, value in row.items():
        if name in papers:
            paper = "" if papers[name] is None else f" ({cell(papers[name])})"
            merged[f"{heading(name)} (paper)"] = f"{cell(value)}{paper}"
        elif _ours(name) not in papers:
            merged[name] = value
    return merged


def _worse(entry: Entry, record: Record) -> str:
    """Every number that is worse than the paper's, with the reason."""
    pairs = [pair for rows in record.tables.values() for pair in _pairs(rows)]
    worse = [pair for pair in pairs if pair.is_worse]
    if not pairs:
        return "The paper gives no numbers to compare with."
    if not worse:
        return f"Nowhere, in {len(pairs)} numbers."
    rows = [
        {"where": p.where, "what": heading(p.column), "ours": p.ours, "paper": p.paper, "why": p.reason(entry.name)}
        for p in worse
    ]
    return f"In {len(worse)} of {len(pairs)} numbers:\n\n" + markdown_table(rows)


def _pairs(rows: Sequence[Row]) -> Iterator[_Pair]:
    """All numbers of a table that have one of the paper's: in a row of its own for the surface, or a column."""
    published = {row.get("surface"): row for row in rows if row.get("method") == PUBLISHED}
    for row in rows:
        if row.get("method") == PUBLISHED:
            continue
        papers = dict(published.get(row.get("surface"), {}))
        papers |= {_ours(name): row[name] for name in row if _ours(name)}
        for name, paper in papers.items():
            ours = row.get(name)
            if _is_number(ours) and _is_number(paper) and name not in _NOT_COMPARED:
                yield _Pair(_where(row), str(row.get("method", "")), name, ours, paper)


def _where(row: Row) -> str:
    """What a row is about."""
    parts = [TITLES.get(row[name], str(row[name])) for name in ("surface", "method", "block") if name in row]
    parts += [f"{name} = {row[name]}" for name in ("k", "R") if name in row]
    if row.get("features") and "features" not in row.get("method", ""):
        parts.append(f"{cell(row['features'])} features")
    return ", ".join(parts)


def _ours(column: str) -> str:
    """The column that one of the paper's belongs to: "paper_r2" to "r2", "paper" to "error"; "" for one of ours."""
    if column == "paper":
        return "error"
    return column.removeprefix("paper_") if column.startswith("paper_") else ""


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _best_ambient(records: Mapping[str, Record]) -> dict[tuple[Any, str], dict[str, Any]]:
    """(surface, method they are set against) -> errors of features of the space around: the paper's and ours.

    Nystrom's method, which the paper lacks, is apart: it has no more features than there are nodes.
    """
    best = {}
    for row in _rows(records, "ambient", "verdict") if "ambient" in records else []:
        theirs, ours = (row.get("paper_ambient"), None), (row.get("ambient"), row.get("nystrom"))
        for method, errors in ((PUBLISHED, theirs), (_SAME_KERNEL, ours)):
            best[row.get("surface"), method] = dict(zip(("best ambient", "Nystrom"), errors, strict=True))
    return best


def _rows(records: Mapping[str, Record], experiment: str, title: str) -> Sequence[Row]:
    """A table that has to be there."""
    if experiment not in records or title not in records[experiment].tables:
        reject("records", f"with the table {title!r} in {experiment}.json", ", ".join(records) or "none")
    return records[experiment].tables[title]
