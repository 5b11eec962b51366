"""The page of promises names tests that exist."""

import re
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "reliability.md"
NAMED = sorted(set(re.findall(r"`(test_\w+\.py)(?:::(\w+))?`", PAGE.read_text(encoding="utf-8"))))


def test_every_test_that_the_page_names_is_there():
    texts = {file: (HERE / file).read_text(encoding="utf-8") for file, _ in NAMED}
    assert [pair for pair in NAMED if pair[1] and f"def {pair[1]}(" not in texts[pair[0]]] == []


def test_every_file_of_tests_is_on_the_page():
    files = {path.name for path in HERE.glob("test_*.py")} - {Path(__file__).name}
    assert files == {file for file, _ in NAMED}
