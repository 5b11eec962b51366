"""Values, names of columns and times as text, for the terminal and for pages."""

from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

_HEADINGS = {
    "r2": "R²",
    "re": "mean RE",
    "mse": "MSE",
    "rmse": "RMSE",
    "mae": "MAE",
    "mean_re": "mean RE",
    "median_re": "median RE",
    "fit_s": "fit, s",
    "kernel_ms": "kernel, ms",
    "speed_up": "speed-up",
    "ms_per_start": "ms per start",
}


def cell(value: object) -> str:
    """A value with the digits a reader needs.

    Examples
    --------
    >>> [cell(value) for value in (0.012345, 0.99987, 12.3456, 12345.6, 4000, 16000, True, None)]
    ['0.0123', '0.9999', '12.35', '12,346', '4000', '16,000', 'yes', '']
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return _decimals(value)
    if isinstance(value, list | tuple):
        return ", ".join(cell(item) for item in value)
    return str(value)


def _decimals(value: float) -> str:
    size = abs(value)
    if 1000 <= size < float("inf"):
        return f"{value:,.0f}" if size >= 10_000 else f"{value:.0f}"
    return f"{value:.4g}" if size >= 0.9 else f"{value:.3g}"  # shares just below one need the digit


def columns(rows: Sequence[Row]) -> list[str]:
    """All columns of a table in the order they first come in.

    Examples
    --------
    >>> columns([{"a": 1}, {"a": 2, "b": 3}])
    ['a', 'b']
    """
    return list(dict.fromkeys(name for row in rows for name in row))


def heading(column: str) -> str:
    """Name of a column as it is printed.

    Examples
    --------
    >>> heading("new_points"), heading("r2")
    ('new points', 'R²')
    """
    return _HEADINGS.get(column, column.replace("_", " "))


def is_text(rows: Sequence[Row], column: str) -> bool:
    """Whether a column holds text, which is aligned to the left.

    Examples
    --------
    >>> is_text([{"surface": "torus", "error": 0.1}], "error")
    False
    """
    return any(isinstance(row.get(column), str) for row in rows)


def duration(seconds: float) -> str:
    """Time in words.

    Examples
    --------
    >>> duration(42.3), duration(150), duration(7260)
    ('42 s', '2 min 30 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
