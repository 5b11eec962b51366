"""The results page and the table of the README, made from saved records; the same records give the same bytes.

Nothing is computed here: numbers are formatted, and compared with the paper's that stand beside them.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from manifoldrf._files import as_path, files_in
from manifoldrf._validation import reject
from manifoldrf.cli.console import Row
from reproduction.record import Record
from reproduction.report._blocks import Block, Paragraph, Span
from reproduction.report._comparison import IN_README, PUBLISHED, SAME_KERNEL
from reproduction.report._markdown import markdown
from reproduction.report._sections import ENTRY_OF, results, size_note, table

BEGIN = "<!-- results: begin -->"
END = "<!-- results: end -->"
_BY_COMMAND = "<!-- Made by `manifoldrf results`; changes made by hand are lost. -->"


def read_records(folder: str | os.PathLike[str], *, arrays: bool = False) -> dict[str, Record]:
    """Records of all .json files of a folder, in the order of the catalogue; their arrays are not needed.

    With ``arrays`` those are read as well, where their .npz file is there.

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
    about = Paragraph(
        (
            Span("Every number here comes from a saved record of an experiment; "),
            Span("manifoldrf results", "code"),
            Span(" writes the page."),
        )
    )
    title, *rest = results(records, "Results", about)
    return "\n\n".join([markdown([title]), _BY_COMMAND, markdown(rest, images)]) + "\n"


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
    blocks: list[Block] = [table(shown, keep_empty=True)]
    blocks += filter(None, (size_note(records[name]) for name in ("surfaces", "ambient") if name in records))
    return markdown(blocks)


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


def _best_ambient(records: Mapping[str, Record]) -> dict[tuple[Any, str], dict[str, Any]]:
    """(surface, method they are set against) -> errors of features of the space around: the paper's and ours.

    Nystrom's method, which the paper lacks, is apart: it has no more features than there are nodes.
    """
    best = {}
    for row in _rows(records, "ambient", "verdict") if "ambient" in records else []:
        theirs, ours = (row.get("paper_ambient"), None), (row.get("ambient"), row.get("nystrom"))
        for method, errors in ((PUBLISHED, theirs), (SAME_KERNEL, ours)):
            best[row.get("surface"), method] = dict(zip(("best ambient", "Nystrom"), errors, strict=True))
    return best


def _rows(records: Mapping[str, Record], experiment: str, title: str) -> Sequence[Row]:
    """A table that has to be there."""
    if experiment not in records or title not in records[experiment].tables:
        reject("records", f"with the table {title!r} in {experiment}.json", ", ".join(records) or "none")
    return records[experiment].tables[title]
