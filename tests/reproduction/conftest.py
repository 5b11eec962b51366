"""Experiments are run by `make test-all`. The quick tests run one, `teachers`, and the machinery of all."""

import numpy as np
import pytest
from pictures import shows_something

from reproduction.record import Record
from reproduction.report.catalogue import CATALOGUE

QUICK = {
    "test_baselines.py",
    "test_catalogue.py",
    "test_commands.py",
    "test_pages.py",
    "test_paper_recipe.py",
    "test_record.py",
    "test_teachers.py",
}


def pytest_itemcollected(item):
    """Mark the tests of all other files in this folder as slow."""
    if item.path.name not in QUICK:
        item.add_marker(pytest.mark.slow)


@pytest.fixture
def saved_and_drawn(tmp_path):
    """A check of any record: it comes back from its files, and all its pictures can be drawn from them."""

    def check(record):
        again = Record.load(record.save(tmp_path))
        assert again.plain() == record.plain()
        assert again.arrays.keys() == record.arrays.keys()
        for name, values in record.arrays.items():
            np.testing.assert_array_equal(again.arrays[name], values)
        drawn = CATALOGUE[record.name].draw(again, tmp_path)
        assert drawn
        assert all(shows_something(path) for path in drawn)

    return check
