"""The paper's numbers, all of them in ``paper.csv``, and where in the paper they are."""

import csv
from pathlib import Path

# (table, row, method, column) -> the digits as printed.
PRINTED: dict[tuple[str, str, str, str], str] = {
    (line["table"], line["row"], line["method"], line["column"]): line["value"]
    for line in csv.DictReader(Path(__file__).with_suffix(".csv").read_text(encoding="utf-8").splitlines())
}
PLACES = {
    "signatures": "Sec. 1, Fig. 1",
    "surfaces": "Sec. 3.1, Table 1",
    "fields": "Sec. 3.1, Fig. 2; App. A.4, Figs. 8 to 12",
    "meshes": "Sec. 3.2, Table 2",
    "times": "Sec. 3.2, Table 2 and Fig. 3",
    "attention": "Sec. 3.3, Fig. 4 left; App. A.6, Table 4",
    "brodatz": "Sec. 3.3, Fig. 4 right; App. A.7, Table 5",
    "saddle": "App. A.1, Fig. 5",
    "gaussian_grid": "App. A.3, Figs. 6 and 7",
    "ambient": "App. A.4, Table 3",
    "hyperbolic": "App. A.8, Table 6",
}


def published(table: str, row: object, method: str, column: str) -> float | None:
    """A number of the paper, or None.

    Examples
    --------
    >>> published("surfaces", "sphere", "MRF", "kernel"), published("surfaces", "cube", "MRF", "kernel")
    (0.067, None)
    """
    text = PRINTED.get((table, str(row), method, column))
    return None if text is None else float(text)


def is_reached(ours: float, table: str, row: object, method: str, column: str, *, higher: bool = False) -> int:
    """1, 0 or -1: better than the paper, equal in its digits, worse.

    Examples
    --------
    >>> [is_reached(value, "surfaces", "sphere", "MRF", "kernel") for value in (0.05, 0.0674, 0.071)]
    [1, 0, -1]
    """
    text = PRINTED[table, str(row), method, column]
    gap = round(ours, len(text.partition(".")[2])) - float(text)
    return 0 if gap == 0 else 1 if (gap > 0) == higher else -1
