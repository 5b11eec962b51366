"""Fixtures shared by all tests."""

import os


def pytest_generate_tests(metafunc):
    """Statistical tests run with seed 0, and with seeds 0..N-1 when MANIFOLDRF_TEST_SEEDS=N asks for it."""
    if "global_seed" in metafunc.fixturenames:
        metafunc.parametrize("global_seed", range(int(os.environ.get("MANIFOLDRF_TEST_SEEDS", "1"))))
