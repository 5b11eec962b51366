"""The table of the documentation page, between two marks, from the record."""

import pathlib

from benchmarks.calibration.record import FACTOR, ROOT, Row, extremes, fill, load, within

PATH = ROOT / "docs" / "reliability" / "numerics.md"


def section(rows: list[Row]) -> str:
    """What the record says, in a sentence and a table."""
    low, high = extremes(rows)
    said = (
        f"{within(rows)} of {len(rows)} estimates are within a factor of {FACTOR:g} of the true error. The lowest "
        f"is {low['ratio']:.2f} times the truth (seed {low['seed']}), the highest {high['ratio']:.2f} times (seed "
        f"{high['seed']})."
    )
    header = ("seed", "problem", "kernel", "nodes", "features", "true error", "`error_`", "ratio")
    lines = [header, tuple("---" for _ in header), *map(_line, rows)]
    return said + "\n\n" + "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _line(row: Row) -> tuple[str, ...]:
    good = 1 / FACTOR <= row["ratio"] <= FACTOR
    ratio = f"{row['ratio']:.2f}"
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
