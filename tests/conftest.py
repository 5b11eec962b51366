"""Fixtures shared by all tests."""

import os

import pytest

SWEEP = 5


def _devices():
    import torch

    return ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def pytest_generate_tests(metafunc):
    """Run statistical tests with seed 0, and in `make test-all` with seeds 0 to 4.

    MANIFOLDRF_TEST_SEEDS=N in the environment selects the seeds 0 to N-1 for both. Tests with a ``device`` run on
    every device of the machine.
    """
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", _devices())
    if "global_seed" in metafunc.fixturenames:
        asked = int(os.environ.get("MANIFOLDRF_TEST_SEEDS", "1"))
        sweep = [pytest.param(seed, marks=pytest.mark.slow) for seed in range(asked, SWEEP)]
        metafunc.parametrize("global_seed", [*range(asked), *sweep])
