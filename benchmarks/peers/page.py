"""The JSON file as a page of the documentation; nothing on it comes from elsewhere."""

import math
import pathlib
from collections.abc import Iterator
from typing import Any

from benchmarks.peers import record
from benchmarks.peers.comparison import calls_to_pay, targets, verdicts

Plain = dict[str, Any]

PATH = record.ROOT / "docs" / "peers.md"

INTRODUCTION = """\
# Beside other libraries

The same work by this library and by others, in one run on one machine, two threads for everybody.
`make bench-peers` makes the environment, runs all of it and writes this page; in that environment
`python -m benchmarks.peers --only meshes` repeats one part. The numbers are in
[peers.json](results/peers.json).

Every peer is compared with the quickest of our rows that is at least as accurate, or, where none is, with our
most accurate one. The two ratios are the peer's time and error over those of that row: above 1 ours is better.
Times are wall times of this machine; the ratios tell more. Ours are the best of several after one that is not
counted, but for those of graph features, where only the least number of walks is. What is long is timed once:
eigen-solvers, fits of GeometricKernels and pydiffmap, and the walks of others. Errors below 1e-9 count as 1e-9, so
that two such are equal.
"""

TITLES = {
    "mesh": (
        "The heat kernel on a mesh",
        "The kernel between 512 vertices of the Stanford bunny, coarsened, for widths of 5 and 10 % of its "
        "extent. The exact operator is the exponential of the robust cotangent Laplacian with its mass "
        "matrix, per unit of area. Errors are relative, in the Frobenius norm, after the best common factor, "
        "since GeometricKernels scales its kernels to a mean variance of one. Verdicts charge the preparation "
        "to each width.",
    ),
    "new points": (
        "Features of new points",
        "10,000 new points from 4000 known ones, on the sphere and on a flat sheet rolled into a spiral, "
        "whose heat kernels are known in closed form, at two times t each. The error is that of the inner "
        "products of 512 of them, after the best common factor. Peers have the bandwidth with the least "
        "error, and one of our rows the number of heat steps, which is our bandwidth; the search is in "
        "nobody's time. The others of our rows have what the library chooses by itself, and the last two "
        "ratios are those over our row with all by default. pydiffmap has 64 neighbours, not searched for; its "
        "epsilon is searched for with 100 eigenpairs, and used with 300 too.",
    ),
    "graph features": (
        "Graph random features",
        "Features of all nodes of a graph, K = exp(-5 L). The error is that of 64 rows of their inner "
        "products. Our walks are as many as fit into half the time of fast-graph-gp. That has p_halt = 0.1 and "
        "at most 25 steps, where its defaults are 0.5 and 10; neither is tuned.",
    ),
    "product": (
        "Products with a kernel",
        "exp(-20 L) times 16 columns, on the graph of the 8 nearest neighbours of points on the sphere.",
    ),
    "attention": (
        "Attention",
        "Attention between tokens at random places of the sphere, weighted by the sphere's heat kernel (t = "
        "0.05) of their places, values of 64 numbers. Softmax attention of the places over sqrt(2 t) is exact "
        "in its own kernel, the Gaussian of the space around; its error here is what that differs from the "
        "sphere's. Features of places are made once for all layers, ours and those of the Performer: ratios of "
        "times leave preparation out. The Performer's directions are orthogonal, and its error is the mean of "
        "three seeds. Queries and keys have 3 columns. Only those of the fused softmax are filled up with "
        "zeros to 64, as many as values have, since torch would otherwise fall back to the whole matrix.",
    ),
}


def number(value: float) -> str:
    """Three digits."""
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.1e}"


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def line_of(row: Plain, verdict: Plain | None) -> tuple[str, ...]:
    """A row of a table, with the ratios over our default last."""
    if row["error"] is None:
        return row["case"], row["method"], *[""] * 5, row["note"], "", ""
    figures = (number(row["preparation"]), number(row["evaluation"]), number(row["error"]))
    if verdict is None:
        return row["case"], f"**{row['method']}**", *figures, "", "", row["note"], "", ""
    said = f"ours {' and '.join(verdict['missed'])}" * bool(verdict["missed"])
    note = "; ".join(text for text in (row["note"], said) if text)
    default = verdict["default"]
    last = ("", "") if default is None else (number(default["time"]), number(default["error"]))
    return row["case"], row["method"], *figures, number(verdict["time"]), number(verdict["error"]), note, *last


HEADER = (
    "task", "method", "preparation, s", "evaluation, s", "error", "time / ours", "error / ours", "note",
    "time / default", "error / default",
)  # fmt: skip


def section(job: str, rows: list[Plain]) -> str:
    """The heading, the text and the table of one job, cases together, ours first."""
    title, text = TITLES[job]
    found = {id(verdict["peer"]): verdict for verdict in verdicts(rows)}
    cases = list(dict.fromkeys(row["case"] for row in rows))
    ordered = sorted(rows, key=lambda row: (cases.index(row["case"]), not row["ours"]))
    # The last two columns are for jobs with a row of ours by default.
    width = len(HEADER) - (0 if any(verdict["default"] for verdict in found.values()) else 2)
    lines = [line_of(row, found.get(id(row)))[:width] for row in ordered]
    said = "".join(f" {remark}" for remark in REMARKS[job](ordered)) if job in REMARKS else ""
    return f"## {title}\n\n{text}{said}\n\n" + table(HEADER[:width], lines)


def about_eigenpairs(rows: list[Plain]) -> Iterator[str]:
    """What eigenpairs are better for."""
    own = next(row for row in rows if row["ours"])
    peer = next(row for row in rows if row["method"].startswith("GeometricKernels") and row["case"] == own["case"])
    yield (
        "For many times t on one mesh eigenpairs are prepared once, and evaluation is then quicker than ours: "
        f"{number(peer['evaluation'])} s ({peer['method']}) against {number(own['evaluation'])} s "
        f"({own['method']}) for {own['case']}."
    )


def about_walks(rows: list[Plain]) -> Iterator[str]:
    """Where a peer is worse than nothing."""
    for row in rows:
        if row["method"].startswith("fast-graph-gp") and row["error"] > 1:
            yield (
                f"At {row['case']} there was time for no more than {row['method']}, whose error of "
                f"{number(row['error'])} exceeds that of no features at all, which is 1."
            )


def about_calls(rows: list[Plain]) -> Iterator[str]:
    """When our preparation has paid."""
    said = []
    for row in rows:
        calls = calls_to_pay(row, rows) if row["ours"] else None
        if calls is not None:
            when = "never" if math.isinf(calls) else f"after {calls} call{'s' * (calls != 1)}"
            said.append(f"{row['case']}, {row['method'].split(', ')[1]}: {when}")
    if said:
        yield f"Against fused softmax our preparation pays: {'; '.join(said)}."


REMARKS = {"mesh": about_eigenpairs, "graph features": about_walks, "attention": about_calls}


def missed_part(found: list[Plain]) -> str:
    """Where a target was missed, under the reason."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    for target in found:
        if not target["ok"]:
            line = (target["what"], number(target["seen"]), f"{target['limit']:g}")
            groups.setdefault(target["reason"] or "No reason is known.", []).append(line)
    if not groups:
        return "No peer is ahead in any row.\n"
    return "\n".join(f"{reason}\n\n{table(('where', 'seen', 'target'), rows)}" for reason, rows in groups.items())


def summary(rows: list[Plain], found: list[Plain]) -> str:
    """The two promises in figures."""
    lines = [(target["what"], number(target["seen"]), f"{target['limit']:g}") for target in found if target["ok"]]
    ahead = sum(not verdict["missed"] for verdict in verdicts(rows))
    said = f"Ours is no slower at the same accuracy in {ahead} of {len(verdicts(rows))} comparisons.\n"
    default = [verdict["default"] for verdict in verdicts(rows) if verdict["default"]]
    if default:
        good = sum(not ratios["worse"] for ratios in default)
        said += f"With all by default it is as accurate in {good} of {len(default)} with features of new points.\n"
    return said + "\n" + table(("target reached", "seen", "at least"), lines)


def environment_part(plain: Plain) -> str:
    """Versions and machine of each job, once where they are all the same."""
    texts = {}
    for name, job in plain["jobs"].items():
        text = ", ".join(
            f"{key} {value}" for key, value in job["environment"].items() if key not in ("machine", "date")
        )
        place = f"{job['environment']['machine']}, {job['environment']['date']}: {text}"
        texts.setdefault(place, []).append(f"{name} ({job['seconds']:.0f} s)")
    return "\n".join(f"- {', '.join(names)}: {place}." for place, names in texts.items()) + "\n"


def page_text(plain: Plain) -> str:
    """The whole page."""
    rows = record.rows_of(plain)
    found = targets(rows)
    parts = [INTRODUCTION, "## Targets\n\n" + summary(rows, found)]
    parts.append("## Where a peer is ahead, or a target missed\n\n" + missed_part(found))
    for job in dict.fromkeys(row["job"] for row in rows):
        parts.append(section(job, [row for row in rows if row["job"] == job]))
    parts.append("## Versions and machine\n\n" + environment_part(plain))
    return "\n".join(parts)


def write_page(source: pathlib.Path = record.PATH, target: pathlib.Path = PATH) -> None:
    """Write the page from the file."""
    target.write_text(page_text(record.load(source)), encoding="utf-8")
