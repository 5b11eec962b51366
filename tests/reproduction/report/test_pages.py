"""Pages say what the records say, name every number that is worse than the paper's, and change no other text."""

import dataclasses
from pathlib import Path

import pytest

from reproduction.record import Record
from reproduction.report.catalogue import CATALOGUE
from reproduction.report.pages import (
    BEGIN,
    DEFAULT,
    END,
    PUBLISHED,
    RECIPE,
    read_records,
    readme_table,
    replace_between,
    results_page,
)

ROOT = Path(__file__).parents[3]
COMMAND = "python -m reproduction surfaces --size paper"
PLACE = {"commit": "abc1234", "machine": "Linux x86_64, 2 cores", "numpy": "2.1.0"}
ERRORS = ("r2", "re", "mse", "kernel", "nodes", "own_kernel", "new_points", "nodes_plain", "new_points_plain")
METHODS = (PUBLISHED, RECIPE, "default, same kernel", DEFAULT)
NOTHING = dict.fromkeys((*ERRORS, "features", "fit_s", "kernel_ms", "speed_up"))


def surfaces(**changes):
    """A record of one surface; changes are of the row of the default for the same kernel."""
    published = {
        "r2": 0.997,
        "re": 0.23,
        "mse": 26.9,
        "kernel": 0.067,
        "nodes": 0.067,
        "kernel_ms": 66.0,
        "speed_up": 55,
    }
    same = {"r2": 0.9999, "re": 0.01, "mse": 0.12, "new_points": 0.0042, "features": 4000}
    same |= {"kernel": 0.0031, "nodes": 0.0031}
    same |= {"fit_s": 1.25, "kernel_ms": 8.5, "speed_up": 1234.0} | changes
    heat = {"kernel": 0.0011, "new_points": 0.0015, "features": 1024}
    heat |= {"fit_s": 0.75, "kernel_ms": 1.5, "speed_up": 3456.0}
    recipe = {"r2": 0.998, "kernel": 0.05}
    rows = [published, recipe, same, heat]
    table = [
        {"surface": "mobius", "method": method} | NOTHING | row for method, row in zip(METHODS, rows, strict=True)
    ]
    targets = [
        {"what": "error at nodes", "seen": 0.0031, "comparison": "<=", "limit": 0.012, "holds": True},
        {"what": "speed-up", "seen": 900.0, "comparison": ">=", "limit": 1000.0, "holds": False},
    ]
    tables = {"surfaces": table, "targets": targets}
    return Record("surfaces", {"n_nodes": 4000, "tau": 20.0}, tables, 95.0, PLACE | {"command": COMMAND})


def ambient(**changes):
    row = {"surface": "mobius", "method": "RFF", "features": 16_000, "sigma": 0.2, "r2": 0.75, "error": 0.48}
    row |= {"paper_r2": 0.748, "paper": 0.489} | changes
    verdict = {"surface": "mobius", "mrf": 0.02, "ambient": 0.123, "nystrom": 0.0456, "paper_ambient": 0.489}
    tables = {"best": [row], "curves": [{"features": 987_654}], "verdict": [verdict]}
    return Record("ambient", {"widths": list(range(40)), "limits": {"Nystrom": "few"}}, tables, 5.0, PLACE)


def teachers():
    return Record("teachers", {"seed": 0}, {"teachers": [{"estimator": "a|b", "error": 0.05}]}, 7000.0, PLACE)


@pytest.fixture
def records():
    return {"surfaces": surfaces(), "ambient": ambient(), "teachers": teachers()}


def section(page, name, title=None):
    """The part of a page below a heading."""
    part = page.split(f"\n## {name}\n")[1].split("\n## ")[0]
    return part if title is None else part.split(f"\n### {title}\n")[1].split("\n### ")[0]


def test_tables_have_our_numbers_and_the_papers(records):
    page = results_page(records)
    table = section(page, "surfaces", "Table surfaces")
    assert "| Möbius strip | paper, published | 0.997 | 0.23 | 26.9 | 0.067 |" in table
    assert (
        "| Möbius strip | default, same kernel | 0.9999 | 0.01 | 0.12 | 0.0031 | 0.0031 | 0.0042 | 4000 | 1.25 |"
        in table
    )
    assert "plain" not in table  # a column without a value
    assert "| Möbius strip | RFF | 16,000 | 0.2 | 0.75 (0.748) | 0.48 (0.489) |" in section(page, "ambient")


@pytest.mark.parametrize(
    ("command", "kind", "made"),
    [
        (f"{COMMAND} --set n_nodes=9", "With changed settings", f"`{COMMAND} --set n_nodes=9`"),
        (None, "Not known to be of the paper's size", "a command that the record does not name"),
    ],
)
def test_numbers_of_another_size_are_marked_on_the_page_and_in_the_readme(command, kind, made):
    """Small runs beside the paper's numbers would be read as if they were alike."""
    found = PLACE | ({"command": command} if command else {})
    small = {"surfaces": dataclasses.replace(surfaces(), environment=found)}
    note = f"**{kind}**: surfaces was made by {made}."
    for text in (results_page(small), readme_table(small)):
        assert text.count(note) == 1
    full = {"surfaces": surfaces()}
    assert "was made by" not in results_page(full) + readme_table(full)


def test_pictures_are_linked_if_they_are_there(records):
    assert "![" not in results_page(records)
    page = results_page(records, images={"surfaces_fields.png", "other.png"})
    assert page.count("![") == 1
    caption = CATALOGUE["surfaces"].caption("surfaces", "surfaces_fields")
    assert caption.startswith("A column for each surface: fields of a node")
    assert f"![{caption}](images/surfaces_fields.png)" in page


def test_the_same_records_give_the_same_bytes_in_any_order(records):
    turned = dict(reversed(records.items()))
    assert results_page(turned) == results_page(records)
    assert readme_table(turned) == readme_table(records)


WORSE = "Where we are worse than the paper"


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({"r2": 0.9}, "R² | 0.9 | 0.997 | no reason known |"),
        ({"re": 0.24}, "mean RE | 0.24 | 0.23 | no reason known |"),
        ({"kernel": float("nan")}, "kernel | nan | 0.067 | on the sphere against the analytic"),
        (
            {"kernel_ms": 80.0},
            "kernel, ms | 80 | 66 | another machine; times can only be compared within one run |",
        ),
        (
            {"speed_up": 54},
            "speed-up | 54 | 55 | another machine and another eigendecomposition, both timed in this",
        ),
    ],
)
def test_every_number_worse_than_the_papers_is_named_with_a_reason(changes, row):
    text = section(results_page({"surfaces": surfaces(**changes)}), "surfaces", WORSE)
    assert "In 1 of 12 numbers:" in text
    assert f"| Möbius strip, default, same kernel, 4000 features | {row}" in text
    assert text.count("| Möbius strip,") == 1


def test_the_readme_has_a_small_table(records):
    lines = readme_table(records).splitlines()
    assert (
        lines[0]
        == "| surface | paper, published | paper's recipe, here | this library | this library, new points |"
    )
    assert lines[2] == "| Möbius strip | 0.067 | 0.05 | 0.0031 | 0.0015 |"
    # The eigendecomposition takes 3456 x 1.5 ms = 5.184 s, the fit and the kernel together .7515 s.
    assert "took 0.75 s" in lines[-1]
    assert lines[-1].endswith("and 6.9 times as long as fit and kernel together.")
    assert len(lines) == 7


def test_only_the_text_between_the_markers_is_replaced():
    text = f"above\n{BEGIN}\nold\n{END}\nbelow\n"
    new = replace_between(text, BEGIN, END, "| new |")
    assert new == f"above\n{BEGIN}\n\n| new |\n\n{END}\nbelow\n"
    assert replace_between(new, BEGIN, END, "| new |") == new


@pytest.mark.parametrize("text", ["", BEGIN, END, f"{END} {BEGIN}", f"{BEGIN} {BEGIN} {END}"])
def test_missing_or_doubled_markers_are_refused(text):
    with pytest.raises(ValueError, match=r"`README.md` must be a text with <!-- results: begin --> and, after it,"):
        replace_between(text, BEGIN, END, "new", name="README.md")


def test_a_broken_record_is_refused_by_name(tmp_path):
    teachers().save(tmp_path)
    (tmp_path / "surfaces.json").write_text("{broken")
    with pytest.raises(ValueError, match=r"must be the \.json file of a saved record\. Got surfaces\.json"):
        read_records(tmp_path)


def test_where_units_differ_ranks_are_compared_and_their_differences_said():
    rows = [
        {"method": name, "mse": ours, "published_mse": paper}
        for name, ours, paper in (("MRF", 0.3, 1.0), ("heat", 0.1, 3.0), ("RFF", 0.2, 2.0), ("other", 0.4, None))
    ]
    record = Record("attention", {}, {"attention": rows, "sources": rows}, 1.0, PLACE)
    page = results_page({"attention": record})
    assert "no numbers to compare with" not in page
    assert page.count("| MRF | 0.3 | 3 | 1 | 1 |") == 1  # tables that are drawn are not ranked
    assert "MRF is 3 of 3 here and 1 in the paper; heat is 1 of 3 here and 3 in the paper" in page
    agreed = [row | {"mse": row["published_mse"]} for row in rows[:3]]
    assert "The orders agree." in results_page({"attention": dataclasses.replace(record, tables={"a": agreed})})


# ------------------------------------------------------ the committed page, computed again from the records' arrays
@pytest.fixture(scope="module")
def committed():
    return read_records(ROOT / "docs" / "records", arrays=True)
