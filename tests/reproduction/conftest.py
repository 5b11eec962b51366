"""The quick tests run one experiment, `teachers`, and the machinery of all; `make test-all` runs every one."""

import pytest

QUICK = {"test_baselines.py", "test_commands.py", "test_page.py", "test_record.py"}


def pytest_itemcollected(item):
    """Mark the tests of all other files in this folder as slow."""
    if item.path.name not in QUICK:
        item.add_marker(pytest.mark.slow)
