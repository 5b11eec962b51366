"""The results page: every number is the paper's or a record's, and the committed files are those of the records."""

import ast
import re
from pathlib import Path

import pytest
from command_line import reproduce

from reproduction.paper import PRINTED, is_reached
from reproduction.record import Record
from reproduction.report.page import BEGIN, END, foreign_numbers, read_records, readme_block, results_page

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def records():
    return read_records(ROOT / "docs" / "records")


@pytest.fixture(scope="module")
def page(records):
    return results_page(records)


def test_no_number_is_typed_by_hand(records, page):
    """The committed page and the README's block have no number but those of paper.csv and of records."""
    assert foreign_numbers((ROOT / "docs" / "results.md").read_text(encoding="utf-8"), page[1]) == []
    block = (ROOT / "README.md").read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert foreign_numbers(block, readme_block(records)[1]) == []


@pytest.mark.parametrize("typed", ["0.0712", "an error of .0321", "1,234", "7.7e-05"])
def test_a_number_typed_into_the_page_is_found(page, typed):
    assert foreign_numbers(page[0].replace("## ", f"{typed} ## ", 1), page[1])


def test_no_sentence_of_the_writer_has_a_number():
    """Not even one that is known from another place."""
    tree = ast.parse((ROOT / "reproduction/report/page.py").read_text(encoding="utf-8"))
    nodes = [node for node in ast.walk(tree) if not isinstance(node, ast.Expr)]  # without docstrings
    texts = {
        child.value for node in nodes for child in ast.iter_child_nodes(node) if isinstance(child, ast.Constant)
    }
    sentences = {text for text in texts if isinstance(text, str) and (" " in text or text[:1].isdigit())}
    methods = {key[2] for key in PRINTED}  # such as RFF 1024
    assert [text for text in sentences - methods if re.search(r"(?<!\w)\.?\d", text)] == []


def test_a_changed_record_changes_the_page(records, page):
    """So that the page shows the records' numbers and not others."""
    table = records["surfaces"].tables["recipe"]
    before = [row["kernel"] for row in table]
    try:
        for row in table:
            row["kernel"] = 0.5432
        text, known = results_page(records)
        assert "0.543" in text
        assert foreign_numbers(page[0], known)
    finally:
        for row, value in zip(table, before, strict=True):
            row["kernel"] = value


def test_the_committed_files_are_those_of_the_records():
    done = reproduce(
        "results", "--check", "--records", ROOT / "docs/records", "--docs", ROOT / "docs/results.md",
        "--readme", ROOT / "README.md",
    )  # fmt: skip
    assert done.exit_code == 0, done.output


def test_the_page_is_short_and_never_calls_a_column_mrf(page):
    text = page[0]
    assert len(text.split()) <= 2500
    headings = [line for line in text.splitlines() if line.startswith("|") and "published" in line]
    assert all("MRF" not in cell or "published" in cell for line in headings for cell in line.split("|"))
    for name in re.findall(r"images/(\w+)\.png", text):
        assert (ROOT / "docs" / "images" / f"{name}.png").is_file()


def test_without_a_record_its_rows_say_so(records, page):
    fewer = {name: record for name, record in records.items() if name != "hyperbolic"}
    assert "to be remade" in results_page(fewer)[0].split("hyperbolic space")[1].partition("\n")[0]
    assert page[0] != results_page(fewer)[0]


def test_verdicts_are_in_the_digits_of_the_paper():
    key = ("normals", "", "MRF", "cosine")  # .85
    assert [is_reached(value, *key, higher=True) for value in (0.8449, 0.8451, 0.8549, 0.8551)] == [-1, 0, 0, 1]
    assert all(float(text) == float(text) for text in PRINTED.values())


def test_records_must_be_readable(tmp_path):
    with pytest.raises(FileNotFoundError, match="`--records` must be"):
        read_records(tmp_path)
    Record("teachers", {}, {}, 1.0).save(tmp_path)
    (tmp_path / "teachers.json").write_text("{")
    with pytest.raises(ValueError, match=r"teachers\.json"):
        read_records(tmp_path)
