"""Marks for parametrised tests."""

import pytest


def quick_ones(values, *quick):
    """The values as test parameters; only those named in ``quick`` run in `make test`, all in `make test-all`."""
    missing = [value for value in quick if value not in values]
    assert not missing, missing
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values]
