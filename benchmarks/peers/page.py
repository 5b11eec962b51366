"""The JSON file as a page of the documentation; nothing on it comes from elsewhere."""

import math
import pathlib
from collections.abc import Iterator
from typing import Any

from benchmarks.peers import record
from benchmarks.peers.comparison import break_even, calls_to_pay, targets, verdicts

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
        "to each width.\n\n"
        "Our rows are the exact signatures of the 512 vertices, to a tolerance: "
        '`compute_signatures(mesh_graph(mesh, weights="cotangent"), HeatKernel(t), nodes, teacher="exact", '
        "tol=...).gram()`, over the roots of the areas of both vertices (`graph.weights`). They are not "
        "`ManifoldRandomFeatures`, which are approximate, and defined off the vertices too.\n\n"
        "Eigenvectors of the Laplacian with its mass matrix are orthogonal with respect to the areas of the "
        "vertices. GeometricKernels makes them orthogonal in the plain inner product afterwards, by a QR "
        "decomposition. That may be meant so, for kernels of unit variance. Against the heat kernel it leaves a "
        "floor of error that more pairs do not lower, and that plain `eigsh` of scipy does not have.",
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
        "at most 25 steps, where its defaults are 0.5 and 10; neither is tuned. The target above is about our "
        "best walks in no more time than its own; the ratios below are over the quickest of our rows that is at "
        "least as accurate, which takes a small part of that time and has a larger error.",
    ),
    "product": (
        "Products with a kernel",
        "exp(-20 L) times 16 columns, on the graph of the 8 nearest neighbours of points on the sphere. At its "
        "first product with a graph ours finds an order of the nodes, which the graph keeps: that takes about a "
        "third of a product, and is in no row.",
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


# Notes of rows that the text of the section explains.
EXPLAINED = ("its eigenvectors are made orthogonal without the mass matrix",)
# The matched rows for which the number of times t is said.
EXAMPLE = "5,000 vertices, width 5 %"
EXAMPLE_PAIRS = ("GeometricKernels, 200 ", "GeometricKernels, 1000 ")


def number(value: float) -> str:
    """Three digits."""
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.1e}"


def span(values: list[float]) -> str:
    """The least and the largest."""
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


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
    note = "; ".join(text for text in (row["note"], said) if text and text not in EXPLAINED)
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
    verdict = next(
        verdict for verdict in verdicts(rows) if verdict["peer"]["method"].startswith("GeometricKernels")
    )
    peer, own = verdict["peer"], verdict["rival"]
    yield from about_floor(rows)
    yield (
        "For many times t on one mesh eigenpairs are prepared once, and evaluation is then quicker than ours: "
        f"{number(peer['evaluation'])} s ({peer['method']}) against {number(own['evaluation'])} s "
        f"({own['method']}) for {own['case']}."
    )


def about_floor(rows: list[Plain]) -> Iterator[str]:
    """Where the fewest pairs of scipy have less error than any number of GeometricKernels."""
    for case in dict.fromkeys(row["case"] for row in rows):
        here = [row for row in rows if row["case"] == case and row["error"] is not None]
        plain = next(row for row in here if row["method"].startswith("scipy eigsh"))
        theirs = [row["error"] for row in here if row["method"].startswith("GeometricKernels")]
        if plain["error"] < min(theirs):
            yield (
                f"For {case} its error is {span(theirs)}, whatever the number of pairs; {plain['method']} "
                f"has {number(plain['error'])}."
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


def missed_part(found: list[Plain], none: str) -> str:
    """Targets that were missed, under the reason; what to say if there are none."""
    groups: dict[str, list[Plain]] = {}
    for target in found:
        groups.setdefault(target["reason"] or "No reason is known.", []).append(target)
    parts = []
    for reason, missed in groups.items():
        lines = [
            (one["what"], number(one["seen"]), f"{one['limit']:g}", number(one["peer"]["error"])) for one in missed
        ]
        parts.append(
            f"{reason}{still_quicker(missed)}\n\n" + table(("where", "seen", "target", "its error"), lines)
        )
    return "\n".join(parts) or f"{none}\n"


def still_quicker(missed: list[Plain]) -> str:
    """By how much ours is quicker where only the target is missed, and the errors of the peer."""
    if any(target["ahead"] or not target["what"].endswith("time over ours") for target in missed):
        return ""
    errors = ", ".join(f"{number(target['peer']['error'])} ({target['peer']['case']})" for target in missed)
    return f" Its error is {errors}. Ours is {span([target['seen'] for target in missed])} times as quick still."


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


def overview(rows: list[Plain]) -> str:
    """What to take when, a line each."""
    found = verdicts(rows)

    def those(job: str, method: str = "") -> list[Plain]:
        return [one for one in found if one["peer"]["job"] == job and one["peer"]["method"].startswith(method)]

    def times(chosen: list[Plain], key: str = "time") -> str:
        return span([one[key] for one in chosen])

    nystroem = those("new points", "scikit-learn Nystroem, 512 ")
    default = span([one["default"]["error"] for one in nystroem])
    lines = [
        "The heat kernel on a mesh at one or a few times t: ours. GeometricKernels takes "
        f"{times(those('mesh', 'GeometricKernels'))} times as long for no less error.",
        "Many times t on one mesh, or gradients to hyperparameters: eigenpairs, as of GeometricKernels. "
        + caught_up(found),
        "New points where the Gaussian kernel of the space around will do: scikit-learn, which has little to fit. "
        f"Nystroem with 512 features takes {times(nystroem)} of our time; its error is {times(nystroem, 'error')} "
        f"times ours, {default} times with all by default.",
        "New points of a curved space: ours. In a cloud of points whose layers nearly touch give the number of "
        "steps, or a mesh.",
        f"Features of a graph: ours. fast-graph-gp takes {times(those('graph features', 'fast-graph-gp'))} times "
        "as long for more error.",
        f"Products with a kernel: ours. Others take {times(those('product'))} times as long.",
        "Attention by the kernel of a curved space: ours, if places stay the same for many calls or tokens are "
        "many. For a few calls with few tokens fused softmax is quicker, as preparation has to pay.",
        "Not compared: kernels between all vertices of a mesh, memory, Matern kernels, gradients.",
    ]
    return "\n".join(f"- {line}" for line in lines) + "\n"


def caught_up(found: list[Plain]) -> str:
    """From how many times t on eigenpairs are the quicker in all."""
    said = []
    for one in found:
        peer = one["peer"]
        if peer["case"] == EXAMPLE and peer["method"].startswith(EXAMPLE_PAIRS):
            count, pairs = break_even(peer, one["rival"]), peer["method"].split(", ")[1]
            when = "never" if math.isinf(count) else f"from {count} values of t on"
            said.append(f"{when} with {pairs} (error {number(peer['error'])})")
    return f"For {EXAMPLE}, they take less time in all than ours at no more error {' and '.join(said)}."


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
    parts = [INTRODUCTION, "## What to take when\n\n" + overview(rows)]
    parts.append("## Targets\n\n" + summary(rows, found))
    ahead = [target for target in found if target["ahead"]]
    parts.append(
        "## Where a peer is ahead\n\nOurs is slower here, or less accurate.\n\n"
        + missed_part(ahead, "No peer is ahead in any row.")
    )
    below = [target for target in found if not target["ok"] and not target["ahead"]]
    parts.append(
        "## Targets missed\n\nOurs is ahead here, but by less than the target.\n\n"
        + missed_part(below, "No target is missed.")
    )
    for job in dict.fromkeys(row["job"] for row in rows):
        parts.append(section(job, [row for row in rows if row["job"] == job]))
    parts.append("## Versions and machine\n\n" + environment_part(plain))
    return "\n".join(parts)


def write_page(source: pathlib.Path = record.PATH, target: pathlib.Path = PATH) -> None:
    """Write the page from the file."""
    target.write_text(page_text(record.load(source)), encoding="utf-8")
