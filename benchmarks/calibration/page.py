"""The table of the documentation page, between two marks, from the record."""

import pathlib

from benchmarks.calibration.record import CLEAN, FACTOR, ROOT, Row, extremes, fill, load, too_low, within

PATH = ROOT / "docs" / "reliability" / "numerics.md"


def section(rows: list[Row]) -> str:
    """What the record says, in some sentences and a table."""
    header = ("seed", "problem", "kernel", "nodes", "features", "true error", "`error_`", "ratio")
    lines = [header, tuple("---" for _ in header), *map(_line, rows)]
    said = [
        f"{within(rows)} of {len(rows)} estimates are within a factor of {FACTOR:g} of the true error, and "
        f"{too_low(rows)} are below a third of it.",
        _said("clean spaces", rows[:CLEAN]),
        _said("clouds as they come", rows[CLEAN:]),
    ]
    return " ".join(said) + "\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _said(what: str, rows: list[Row]) -> str:
    """A sentence about one half of the problems."""
    low, high = extremes(rows)
    return (
        f"Of the {len(rows)} {what}, {within(rows)} are: the lowest is {low['ratio']:.2g} times the truth (seed "
        f"{low['seed']}), the highest {high['ratio']:.2g} times (seed {high['seed']})."
    )


def _line(row: Row) -> tuple[str, ...]:
    good = 1 / FACTOR <= row["ratio"] <= FACTOR
    ratio = f"{row['ratio']:.2f}" if row["ratio"] > 0.01 else f"{row['ratio']:.1e}"
    return (
        str(row["seed"]), f"{row['family']}: {row['space']}", f"`{row['kernel']}`", str(row["nodes"]),
        str(row["features"]), f"{row['true']:.2g}", f"{row['estimate']:.2g}", ratio if good else f"**{ratio}**",
    )  # fmt: skip


def page_text(text: str, rows: list[Row]) -> str:
    """The page with the table of these rows in the place of the one it has."""
    return fill(text, "calibration", section(rows))


def write_page(rows: list[Row] | None = None, path: pathlib.Path = PATH) -> None:
    """Put the table into the page."""
    text = path.read_text(encoding="utf-8")
    path.write_text(page_text(text, load() if rows is None else rows), encoding="utf-8")
