"""Experiments are run by `make test-all`. The quick tests run one, `teachers`, and the machinery of all."""

import pytest

QUICK = {
    *("test_catalogue.py", "test_commands.py", "test_files.py", "test_html_page.py", "test_pages.py"),
    *("test_record.py", "test_teachers.py"),
}


def pytest_itemcollected(item):
    """Mark the tests of all other files in this folder as slow."""
    if item.path.name not in QUICK:
        item.add_marker(pytest.mark.slow)
