"""Experiments are run by `make test-all`. The quick tests run one, `teachers`, and the machinery of all."""

import pytest

QUICK = {
    *("test_catalogue.py", "test_commands.py", "test_files.py", "test_html_page.py", "test_mesh_data.py"),
    *("test_pages.py", "test_record.py", "test_report_browser.py", "test_sequences.py", "test_style.py"),
    *("test_teachers.py", "test_texture_data.py", "test_texture_views.py"),
}


def pytest_itemcollected(item):
    """Mark the tests of all other files in this folder as slow."""
    if item.path.name not in QUICK:
        item.add_marker(pytest.mark.slow)
