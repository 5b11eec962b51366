"""Numbers in text files, read line by line; whatever is wrong is named with its line."""

import csv
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from manifoldrf._validation import reject

# The first of these in the first line separates the cells, else blanks do. The comma is last: next to another
# mark it is a decimal comma, which is better refused than taken for a separator.
_SEPARATORS = (";", "\t", ",")
_LONGEST_CELL = 80  # characters in an error
_NUMBER_STARTS = "+-.,0123456789"


def csv_rows(path: Path, name: str, *, numbered: bool = False) -> Generator[tuple[int, list[float]], None, None]:
    r"""Yield the line number, counted from one, and the numbers of every row.

    Cells are separated by semicolons, tabs, commas or blanks, as the first line says. That line may hold names.
    Text after # and lines without text are skipped. NaN and infinite numbers are numbers here.

    Parameters
    ----------
    path : Path
        A text in UTF-8, with or without a byte order mark.
    name : str
        The name of the file in errors: a row of another length, a cell that is not a number.
    numbered : bool, default=False
        Whether the first column may be the numbers of rows, as tables are saved with a column without a name.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     file = Path(folder) / "points.csv"
    ...     _ = file.write_text("x;y\n1;2.5\n\n-3;1e-4\n")
    ...     list(csv_rows(file, "POINTS"))
    [(2, [1.0, 2.5]), (4, [-3.0, 0.0001])]
    """
    separator: str | None = None
    width, unnamed, counted = 0, False, False
    header: list[str] = []
    for line, text in _lines(path, name):
        if width == 0:
            separator = next((mark for mark in _SEPARATORS if mark in text), None)
        cells = _cells(text, separator)
        if width == 0:
            width = len(cells)
            if _are_names(cells):
                unnamed = not numbered and not cells[0].strip()
                header = cells
                continue
            counted = width > 1 and cells == [str(k) for k in range(width)]
        elif counted:
            _refuse_counts(cells, name, path)
            counted = False
        numbers = _numbers(cells)
        if len(numbers) != width or "_" in text:
            _reject_cells(cells, header or [""] * width, name, line, path)
        if unnamed and numbers[0] == 0:
            rule = "a file without numbers of rows, which would be taken for coordinates"
            reject(name, rule, f"a first column without a name that begins with 0 in {path.name!r}")
        unnamed = False
        yield line, numbers


def _numbers(cells: list[str]) -> list[float]:
    """All cells as numbers, or none."""
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        return []


def _refuse_counts(below: list[str], name: str, path: Path) -> None:
    """Refuse numbers of columns in the first line, as tables without names are saved: 0, 1, 2 above decimals."""
    if any("." in cell or "e" in cell.lower() for cell in below):
        counts = ",".join(str(k) for k in range(len(below)))
        rule = "a file without numbers of columns in its first line (where they are meant: with decimals, as below)"
        reject(name, rule, f"{counts} above {','.join(below)[:_LONGEST_CELL]!r} in {path.name!r}")


def _reject_cells(cells: list[str], header: list[str], name: str, line: int, path: Path) -> NoReturn:
    """Say that a line has too few or too many cells, or which of them is not a number; columns may have names."""
    if len(cells) != len(header):
        rule = f"a file with {len(header)} column(s) in every line, as in its first"
        reject(name, rule, f"{len(cells)} in line {line} of {path.name!r}")
    column, cell = next((place, cell) for place, cell in enumerate(cells, 1) if not _is_number(cell))
    found = repr(cell.strip()[:_LONGEST_CELL]) if cell.strip() else "an empty cell"
    title = header[column - 1].strip()[:_LONGEST_CELL]
    where = f"{found} in line {line}, column {column}{f' ({title!r})' if title else ''} of {path.name!r}"
    reject(name, "a file of numbers with decimal points", where)


def _lines(path: Path, name: str) -> Iterator[tuple[int, str]]:
    """Yield number and text of the lines that hold more than blanks and comments."""
    with path.open("rb") as file:
        for line, data in enumerate(file, 1):
            try:
                text = data.decode("utf-8-sig" if line == 1 else "utf-8")
            except UnicodeDecodeError:
                reject(name, "a text in UTF-8", f"other bytes in line {line} of {path.name!r}")
            text = text.partition("#")[0].rstrip("\r\n")  # not tabs: an empty last cell is an error
            if text.strip():
                yield line, text


def _cells(text: str, separator: str | None) -> list[str]:
    """Cells of a line; quotes around a cell are taken off."""
    if separator is None:
        return [cell.strip('"') for cell in text.split()]
    if '"' in text:
        with suppress(csv.Error):  # the cell that is too long or torn is then no number
            return next(csv.reader([text], delimiter=separator, skipinitialspace=True))
    return text.split(separator)


def _are_names(cells: list[str]) -> bool:
    """Whether cells name columns; what begins like a number is a number gone wrong."""
    words = [cell.strip() for cell in cells]
    return any(words) and not any(_is_number(word) or word[:1] in _NUMBER_STARTS for word in words if word)


def _is_number(cell: str) -> bool:
    """Whether a cell is a number; Python's own 1_000 is not."""
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell
