"""Fixtures shared by all tests."""

import gc
import os

import pytest


def _devices():
    import torch

    return ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect without the garbage collector, which took a quarter of the time, and hide the tests from it later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_generate_tests(metafunc):
    """Run statistical tests with seed 0; MANIFOLDRF_TEST_SEEDS=N in the environment selects the seeds 0 to N-1.

    Tests with a ``device`` run on every device of the machine.
    """
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", _devices())
    if "global_seed" in metafunc.fixturenames:
        metafunc.parametrize("global_seed", range(int(os.environ.get("MANIFOLDRF_TEST_SEEDS", "1"))))
