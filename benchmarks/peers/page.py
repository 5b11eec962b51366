"""The JSON file as a documentation page; all numbers on the page come from the file."""

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

This page compares manifoldrf with other libraries on the same tasks, in one run on one machine, with two threads
each. `make bench-peers` creates the environment, runs everything and writes this page; in that environment
`python -m benchmarks.peers --only meshes` repeats one part. The numbers are in
[peers.json](results/peers.json).

Each peer is compared with the fastest of our rows that is at least as accurate or, if there is none, with our
most accurate row. The two ratios are the peer's time and error divided by those of that row: above 1, ours is
better. Times are wall times of one machine, so the ratios say more than the times. Our times are the best of
several runs after a warm-up run; for graph features only the smallest number of walks is repeated. Long tasks are
timed once: eigensolvers, fits of GeometricKernels and pydiffmap, and walks of other libraries. Errors below 1e-9
count as 1e-9, so that two such errors are equal.
"""

TITLES = {
    "mesh": (
        "The heat kernel on a mesh",
        "The task is the kernel between 512 vertices of the coarsened Stanford bunny, for widths of 5 and 10 % of "
        "its extent. The exact operator is the exponential of the robust cotangent Laplacian with its mass "
        "matrix, per unit of area. Errors are relative Frobenius errors after the best common factor, "
        "since GeometricKernels scales its kernels to a mean variance of one. The ratios count the preparation "
        "once for each width.\n\n"
        "Our rows are the exact signatures of the 512 vertices, up to a tolerance: "
        '`compute_signatures(mesh_graph(mesh, weights="cotangent"), HeatKernel(t), nodes, teacher="exact", '
        "tol=...).gram()`, divided by the square roots of the areas of both vertices (`graph.weights`). They "
        "are not `ManifoldRandomFeatures`, which are approximate and also defined away from the "
        "vertices.\n\nEigenvectors of the Laplacian with its mass matrix are orthogonal with respect to the "
        "areas of the vertices. GeometricKernels then makes them orthogonal in the plain inner product, by a QR "
        "decomposition. This may be intended, for kernels of unit variance. Compared with the heat kernel it "
        "leaves an error that more eigenpairs do not reduce, and that plain `eigsh` of scipy does not have.",
    ),
    "new points": (
        "Features of new points",
        "The task is 10,000 new points, given 4000 known ones, on the sphere and on a flat sheet rolled into a "
        "spiral, whose heat kernels are known in closed form, at two times t each. The error is that of the inner "
        "products of 512 of them, after the best common factor. Peers use the bandwidth with the smallest "
        "error, and one of our rows uses the best number of heat steps, which is our bandwidth; the search is not "
        "included in the times. Our other rows use what the library chooses, and the last two ratios compare with "
        "our row with all defaults. pydiffmap uses 64 neighbours, which were not tuned; its epsilon is tuned with "
        "100 eigenpairs and also used with 300.",
    ),
    "graph features": (
        "Graph random features",
        "The task is features of all nodes of a graph for K = exp(-5 L). The error is that of 64 rows of their "
        "inner products. We use as many walks as fit into half the time of fast-graph-gp, which has p_halt = "
        "0.1 and at most 25 steps (its defaults are 0.5 and 10; neither is tuned). The target above compares "
        "with our best walks in no more time than fast-graph-gp takes. The ratios below compare with the "
        "fastest of our rows that is at least as accurate, which takes a small part of that time and has a "
        "larger error.",
    ),
    "product": (
        "Products with a kernel",
        "The task is exp(-20 L) times 16 columns, on the graph of the 8 nearest neighbours of points on the "
        "sphere. For its first product with a graph, manifoldrf computes an order of the nodes, which the graph "
        "keeps. This takes about a third of a product and is not included in any row.",
    ),
    "attention": (
        "Attention",
        "The task is attention between tokens at random positions on the sphere, weighted by the sphere's heat "
        "kernel (t = 0.05) of their positions, with values of 64 numbers. Softmax attention of the positions "
        "divided by sqrt(2 t) is exact for its own kernel, the ambient Gaussian; its error here is the "
        "difference of that kernel from the sphere's. Features of positions are computed once for all layers, "
        "ours and those of the Performer, so the ratios of times leave out the preparation. The Performer's "
        "directions are orthogonal, and its error is the mean of three seeds. Queries and keys have 3 columns. "
        "For the fused softmax they are padded with zeros to 64, as many as the values have, since torch would "
        "otherwise form the whole matrix.",
    ),
}


# Notes that the text of the section explains and the rows do not repeat.
EXPLAINED = ("its eigenvectors are made orthogonal without the mass matrix",)
# The rows for which the page says how many times t make eigenpairs pay off.
EXAMPLE = "5,000 vertices, width 5 %"
EXAMPLE_PAIRS = ("GeometricKernels, 200 ", "GeometricKernels, 1000 ")


def number(value: float) -> str:
    """Format with three digits."""
    return f"{value:.3g}" if 1e-3 <= abs(value) < 1e4 or value == 0 else f"{value:.1e}"


def span(values: list[float]) -> str:
    """Format the smallest and the largest value."""
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low} to {high}"


def table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Format a Markdown table."""
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def line_of(row: Plain, verdict: Plain | None) -> tuple[str, ...]:
    """One row of a table, with the ratios to our default last."""
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
    """Heading, text and table of one job, grouped by case, our rows first."""
    title, text = TITLES[job]
    found = {id(verdict["peer"]): verdict for verdict in verdicts(rows)}
    cases = list(dict.fromkeys(row["case"] for row in rows))
    ordered = sorted(rows, key=lambda row: (cases.index(row["case"]), not row["ours"]))
    # Only jobs with a row of our defaults have the last two columns.
    width = len(HEADER) - (0 if any(verdict["default"] for verdict in found.values()) else 2)
    lines = [line_of(row, found.get(id(row)))[:width] for row in ordered]
    said = "".join(f" {remark}" for remark in REMARKS[job](ordered)) if job in REMARKS else ""
    return f"## {title}\n\n{text}{said}\n\n" + table(HEADER[:width], lines)


def about_eigenpairs(rows: list[Plain]) -> Iterator[str]:
    """Say when eigenpairs are better."""
    verdict = next(
        verdict for verdict in verdicts(rows) if verdict["peer"]["method"].startswith("GeometricKernels")
    )
    peer, own = verdict["peer"], verdict["rival"]
    yield from about_floor(rows)
    yield (
        "For many times t on one mesh, eigenpairs are prepared once, and evaluation is then faster than ours: "
        f"{number(peer['evaluation'])} s ({peer['method']}) compared with {number(own['evaluation'])} s "
        f"({own['method']}) for {own['case']}."
    )


def about_floor(rows: list[Plain]) -> Iterator[str]:
    """Say where few eigenpairs of scipy have a smaller error than any number from GeometricKernels."""
    for case in dict.fromkeys(row["case"] for row in rows):
        here = [row for row in rows if row["case"] == case and row["error"] is not None]
        plain = next(row for row in here if row["method"].startswith("scipy eigsh"))
        theirs = [row["error"] for row in here if row["method"].startswith("GeometricKernels")]
        if plain["error"] < min(theirs):
            yield (
                f"For {case} its error is {span(theirs)} for all numbers of eigenpairs; {plain['method']} "
                f"has {number(plain['error'])}."
            )


def about_walks(rows: list[Plain]) -> Iterator[str]:
    """Say where a peer has an error above 1."""
    for row in rows:
        if row["method"].startswith("fast-graph-gp") and row["error"] > 1:
            yield (
                f"At {row['case']} there was time only for {row['method']}, whose error of "
                f"{number(row['error'])} exceeds 1, the error of features that are all zero."
            )


def about_calls(rows: list[Plain]) -> Iterator[str]:
    """Say after how many calls our preparation pays off."""
    said = []
    for row in rows:
        calls = calls_to_pay(row, rows) if row["ours"] else None
        if calls is not None:
            when = "never" if math.isinf(calls) else f"after {calls} call{'s' * (calls != 1)}"
            said.append(f"{row['case']}, {row['method'].split(', ')[1]}: {when}")
    if said:
        yield f"Compared with fused softmax, our preparation pays off: {'; '.join(said)}."


REMARKS = {"mesh": about_eigenpairs, "graph features": about_walks, "attention": about_calls}


def missed_part(found: list[Plain], none: str) -> str:
    """Missed targets, grouped by reason; the text ``none`` if there are none."""
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
    """How much faster ours is if only the target is missed, and the errors of the peer."""
    if any(target["ahead"] or not target["what"].endswith("time over ours") for target in missed):
        return ""
    errors = ", ".join(f"{number(target['peer']['error'])} ({target['peer']['case']})" for target in missed)
    return f" Its error is {errors}. Ours is {span([target['seen'] for target in missed])} times as fast."


def summary(rows: list[Plain], found: list[Plain]) -> str:
    """Count the comparisons and list the targets that were reached."""
    lines = [(target["what"], number(target["seen"]), f"{target['limit']:g}") for target in found if target["ok"]]
    ahead = sum(not verdict["missed"] for verdict in verdicts(rows))
    said = f"manifoldrf is at least as fast at the same accuracy in {ahead} of {len(verdicts(rows))} comparisons.\n"
    default = [verdict["default"] for verdict in verdicts(rows) if verdict["default"]]
    if default:
        good = sum(not ratios["worse"] for ratios in default)
        said += (
            f"With all defaults it is at least as accurate in {good} of {len(default)} comparisons of features of "
            "new points.\n"
        )
    return said + "\n" + table(("target reached", "seen", "at least"), lines)


def overview(rows: list[Plain]) -> str:
    """What to use when, one line each."""
    found = verdicts(rows)

    def those(job: str, method: str = "") -> list[Plain]:
        return [one for one in found if one["peer"]["job"] == job and one["peer"]["method"].startswith(method)]

    def times(chosen: list[Plain], key: str = "time") -> str:
        return span([one[key] for one in chosen])

    nystroem = those("new points", "scikit-learn Nystroem, 512 ")
    default = span([one["default"]["error"] for one in nystroem])
    lines = [
        "The heat kernel on a mesh at one or a few times t: manifoldrf. GeometricKernels takes "
        f"{times(those('mesh', 'GeometricKernels'))} times as long, and its error is not smaller.",
        "Many times t on one mesh: one fit with `times` ([measured](measured.md#many-times-on-one-mesh)), or "
        "eigenpairs if the mesh is small. Our rows on this page need another fit for each t; eigenpairs do not. "
        + caught_up(found),
        "New points, if the ambient Gaussian kernel is good enough: scikit-learn, which has little to fit. "
        f"Nystroem with 512 features takes {times(nystroem)} of our time; its error is {times(nystroem, 'error')} "
        f"times ours, or {default} times ours with all defaults.",
        "New points of a curved space: manifoldrf. For a point cloud whose layers nearly touch, set the number of "
        "steps or use a mesh.",
        "Features of a graph: manifoldrf. fast-graph-gp takes "
        f"{times(those('graph features', 'fast-graph-gp'))} times as long and has a larger error.",
        f"Products with a kernel: manifoldrf. Others take {times(those('product'))} times as long.",
        "Attention with the kernel of a curved space: manifoldrf, if positions stay the same for many calls or "
        "there are many tokens. For a few calls with few tokens, fused softmax is faster, because preparation "
        "takes time.",
        "Not compared: kernels between all vertices of a mesh, memory, Matern kernels, gradients.",
    ]
    return "\n".join(f"- {line}" for line in lines) + "\n"


def caught_up(found: list[Plain]) -> str:
    """The number of times t from which eigenpairs are faster in total."""
    said = []
    for one in found:
        peer = one["peer"]
        if peer["case"] == EXAMPLE and peer["method"].startswith(EXAMPLE_PAIRS):
            count, pairs = break_even(peer, one["rival"]), peer["method"].split(", ")[1]
            when = "never" if math.isinf(count) else f"from {count} values of t on"
            said.append(f"{when} with {pairs} (error {number(peer['error'])})")
    return f"For {EXAMPLE}, they are faster in total than our rows of at most the same error {' and '.join(said)}."


def environment_part(plain: Plain) -> str:
    """Versions and machine of each job, listed once if they are the same."""
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
    parts = [INTRODUCTION, "## What to use when\n\n" + overview(rows)]
    parts.append("## Targets\n\n" + summary(rows, found))
    ahead = [target for target in found if target["ahead"]]
    parts.append(
        "## Where a peer is ahead\n\nHere manifoldrf is slower or less accurate.\n\n"
        + missed_part(ahead, "No peer is ahead in any row.")
    )
    below = [target for target in found if not target["ok"] and not target["ahead"]]
    parts.append(
        "## Targets missed\n\nHere manifoldrf is ahead, but by less than the target.\n\n"
        + missed_part(below, "No target is missed.")
    )
    for job in dict.fromkeys(row["job"] for row in rows):
        parts.append(section(job, [row for row in rows if row["job"] == job]))
    parts.append("## Versions and machine\n\n" + environment_part(plain))
    return "\n".join(parts)


def write_page(source: pathlib.Path = record.PATH, target: pathlib.Path = PATH) -> None:
    """Write the page from the file."""
    target.write_text(page_text(record.load(source)), encoding="utf-8")
