"""Estimate against truth on logarithmic axes, a mark for each family of problems."""

import os
from pathlib import Path
from typing import Any

import reproduction.report.style as ink
from benchmarks.calibration.record import FACTOR, within
from manifoldrf._runtime import require
from reproduction.report.style import WIDTH, save_figure, styled

BAND = "0.92"
# Families whose estimates are made in the same way share a colour.
LOOKS = {
    "spheres, even": (ink.BLUE, "o"),
    "surfaces, even": (ink.BLUE, "s"),
    "spheres, random": (ink.VERMILION, "o"),
    "surfaces, random": (ink.VERMILION, "s"),
    "flat tori": (ink.GREEN, "D"),
    "balls": (ink.GREEN, "v"),
    "closed meshes": (ink.PURPLE, "^"),
    "open meshes": (ink.PURPLE, "P"),
    "clouds with a rim": (ink.ORANGE, "X"),
    "kernels in steps": (ink.BLACK, "*"),
}
# Clouds as they come are hollow.
ROUGH_LOOKS = {
    "noise": (ink.BLUE, "o"),
    "noise, many coordinates": (ink.BLUE, "s"),
    "noise, uneven": (ink.BLUE, "^"),
    "noise, edges": (ink.ORANGE, "X"),
    "heavy tails": (ink.VERMILION, "o"),
    "outliers": (ink.VERMILION, "s"),
    "rolls": (ink.PURPLE, "v"),
    "parallel layers": (ink.PURPLE, "P"),
    "dimension 3": (ink.GREEN, "D"),
    "dimensions 4 to 6": (ink.GREEN, "s"),
}


@styled
def draw_calibration(rows: Any, path: str | os.PathLike[str]) -> Path:
    """The picture of the documentation."""
    pyplot = require("matplotlib.pyplot", "viz")
    figure, axes = pyplot.subplots(figsize=(WIDTH, 6.4))
    both = [row[name] for row in rows for name in ("true", "estimate")]
    ends = [min(both) / 1.6, max(both) * 1.6]
    low, high = ([end * factor for end in ends] for factor in (1 / FACTOR, FACTOR))
    axes.fill_between(ends, low, high, color=BAND, label=f"within a factor of {FACTOR:g}", zorder=0)
    axes.plot(ends, ends, color="0.5", linewidth=1.0, linestyle=":", label="estimate as large as the error")
    for looks, hollow in ((LOOKS, False), (ROUGH_LOOKS, True)):
        for family, (colour, mark) in looks.items():
            places = [(row["true"], row["estimate"]) for row in rows if row["family"] == family]
            axes.scatter(
                *zip(*places, strict=True), s=90 if mark == "*" else 52, marker=mark, label=family, zorder=3,
                facecolor="white" if hollow else colour, edgecolor=colour if hollow else "white",
                linewidth=1.4 if hollow else 0.7,
            )  # fmt: skip
    for k, row in enumerate(sorted(rows, key=lambda row: row["ratio"])):  # those outside the band by their seeds
        low = row["ratio"] < 1 / FACTOR
        if low or row["ratio"] > FACTOR:  # the low ones are often close together: labels above each other
            axes.annotate(
                f"seed {row['seed']}", (row["true"], row["estimate"]), textcoords="offset points", fontsize=9,
                xytext=(14, 12 * k - 16) if low else (-9, -4), ha="left" if low else "right",
            )  # fmt: skip
    axes.set(
        xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal",
        xlabel="true relative error of the kernel", ylabel="error_, estimated by the fit itself",
        title=f"{within(rows)} of {len(rows)} problems within a factor of {FACTOR:g}",
    )  # fmt: skip
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), fontsize=8)
    return save_figure(figure, path)
