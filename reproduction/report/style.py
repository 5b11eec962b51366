"""Style of all figures: sizes, colours and marks, and how their files are written."""

import functools
import io
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from reproduction.common import atomic_path, reject
from reproduction.record import Record

FORMATS = ("png", "pdf", "svg")
TITLES = {
    "mobius": "Möbius strip",
    "mobius2": "two-sided cover of the strip",
    "swiss": "swiss roll",
    "folded": "accordion",
}

WIDTH = 9.0  # inches, of every figure: on a page of 800 pixels ten points are then twelve pixels high
DPI = 140  # 1260 pixels: sharp on screens of higher resolution than that
COLOURS = "magma_r"  # light where the kernel is small; readable without colour vision and in print
DIFFERENCES = "RdBu"  # white where two kernels agree

_SETTINGS: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib: the same picture on every machine
    "font.size": 10.0,
    "axes.titlesize": 10.5,
    "axes.labelsize": 10.0,
    "xtick.labelsize": 9.0,
    "ytick.labelsize": 9.0,
    "legend.fontsize": 9.0,
    "legend.frameon": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "lines.linewidth": 1.4,
    "lines.markersize": 5.5,
    "image.cmap": COLOURS,
    "figure.constrained_layout.use": True,
    "pdf.fonttype": 42,  # TrueType inside the file: text can be searched, and journals ask for it
    "svg.hashsalt": "manifoldrf",  # otherwise the ids in svg files are random
}
# Neither dates nor versions: the same record gives the same bytes.
_METADATA: Mapping[str, Mapping[str, None]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
}

# The palette of Okabe and Ito, which is readable without colour vision. Markers and dashes differ as well.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
GREY = "0.5"
CYCLE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK)
MARKS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", ":", "-.", (0, (6, 1, 1, 1, 1, 1)))
# A method looks the same in all experiments; the two columns of every comparison are wide.
METHODS: Mapping[str, Mapping[str, Any]] = {
    "paper's recipe": {"color": VERMILION, "marker": "o", "linewidth": 2.4, "zorder": 4},
    "this library": {"color": BLACK, "marker": "o", "linewidth": 2.8, "zorder": 5},
    "raw": {"color": GREY, "marker": "h", "linewidth": 2.2},
    "RFF": {"color": BLUE, "marker": "s"},
    "ORF": {"color": SKY, "marker": "D"},
    "PRF": {"color": YELLOW, "marker": "^", "markeredgecolor": "0.3"},
    "PORF": {"color": ORANGE, "marker": "v"},
    "Nystrom": {"color": PURPLE, "marker": "X"},
    "geodesic Nystrom": {"color": PURPLE, "marker": "X"},
    "linear RBF": {"color": PURPLE, "marker": "p", "linestyle": "--"},
    "exact RBF": {"color": GREY, "marker": "P"},
    "exact heat": {"color": GREEN, "marker": "d"},
    "diffusion map": {"color": GREEN, "marker": "<", "linestyle": "--"},
    "kPCA": {"color": GREEN, "marker": "P"},
    "full kernel": {"color": PURPLE, "marker": "D"},
    "exact kernel": {"color": GREEN, "marker": "d"},
    "biharmonic": {"color": GREY, "marker": "P"},
    "nearest known": {"color": GREY, "marker": "X"},
}
# Full names of methods that are abbreviated in records.
NAMES = {"Nystrom": "Nyström", "geodesic Nystrom": "geodesic Nyström"}

_FEWEST_PLACES = 3  # of a power law
_POOR_FIT = 0.3  # largest root mean square deviation of the logarithms from the line: about a third

Drawn = TypeVar("Drawn", Path, Path | None)


def styled(draw: Callable[[Record, Any], Drawn]) -> Callable[[Record, str | os.PathLike[str]], Drawn]:
    """Decorate a drawing function: it uses the common style and restores the caller's settings.

    If it fails, its figures are closed.
    """

    @functools.wraps(draw)
    def drawn(record: Record, path: str | os.PathLike[str]) -> Drawn:
        import matplotlib
        from matplotlib import pyplot

        before = set(pyplot.get_fignums())
        try:
            with matplotlib.rc_context(_SETTINGS):
                return draw(record, path)
        except BaseException:
            for number in set(pyplot.get_fignums()) - before:
                pyplot.close(number)  # the record lacks data that the figure shows
            raise

    return drawn


def save_figure(figure: Any, path: str | os.PathLike[str]) -> Path:
    """Write a figure in the format of the suffix (png, pdf or svg), close it and return the path.

    An interrupted write leaves the old file; the figure is closed even if it cannot be written.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> from matplotlib import pyplot
    >>> with TemporaryDirectory() as folder:
    ...     save_figure(pyplot.figure(), Path(folder) / "empty.png").name
    'empty.png'
    """
    from matplotlib import pyplot

    try:
        target = Path(path)
        suffix = target.suffix.removeprefix(".")
        if suffix not in FORMATS:
            reject("format", f"one of {', '.join(FORMATS)}", repr(suffix))
        with atomic_path(target) as temporary:
            drawn = io.BytesIO()  # matplotlib does not close a file if the disk is full
            figure.savefig(drawn, format=suffix, dpi=DPI, metadata=_METADATA[suffix])
            temporary.write_bytes(drawn.getvalue())
    finally:
        pyplot.close(figure)
    return target


def legend_below(figure: Any, entries: tuple[list[Any], list[str]], columns: int = 4) -> None:
    """One legend for all panels, below them, from handles and labels."""
    figure.legend(*entries, loc="outside lower center", ncols=columns)


def handles_of(panels: Any) -> tuple[list[Any], list[str]]:
    """Handles and labels of all panels, each label once."""
    found: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)


def fitted_exponent(x: Sequence[float], y: Sequence[float]) -> float | None:
    """Exponent p of the power law y = c x^p that fits best on logarithmic axes; None if there is no power law.

    Two points are not enough, and a curve that bends or levels off has no power law.

    Examples
    --------
    >>> round(fitted_exponent([1, 2, 4], [3, 12, 48]), 6)
    2.0
    >>> fitted_exponent([1, 2], [3, 12]), fitted_exponent([1, 10, 100, 1000], [1, 0.01, 0.01, 0.01])
    (None, None)
    """
    if len(set(x)) < _FEWEST_PLACES:
        return None
    logs = np.log(x), np.log(y)
    slope, level = np.polyfit(*logs, 1)
    residual = logs[1] - slope * logs[0] - level
    return float(slope) if np.sqrt(np.mean(residual**2)) <= _POOR_FIT else None


def power(letter: str, exponent: float | None) -> str:
    r"""Text of a power for legends, with a leading blank; empty without an exponent.

    Examples
    --------
    >>> power("n", -0.5), power("n", None)
    ('  $\\propto n^{-0.50}$', '')
    """
    return "" if exponent is None else f"  $\\propto {letter}^{{{exponent:.2f}}}$"


def size_ticks(axis: Any, sizes: Sequence[int]) -> None:
    """Ticks at sizes on a logarithmic axis, in digits; those that would touch a larger neighbour have no text."""
    texts: list[str] = []
    last = float("inf")
    for size in reversed(sizes):
        texts.append(f"{size:,}" if 1.6 * size < last else "")
        last = size if texts[-1] else last
    axis.set_ticks(sizes, texts[::-1])
    axis.set_ticks([], minor=True)
