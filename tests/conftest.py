"""Fixtures shared by all tests."""

import gc
import os

import pytest

LONG_RUN = 500  # tests


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


def pytest_collection_finish(session):
    """Before a long run in two processes, each compiles other loops, instead of both the same at the same time.

    Without compiled code on disk this saves about 20 s of 50; with it, the calls take about a second.
    """
    worker = getattr(session.config, "workerinput", {}).get("workerid")
    if worker not in ("gw0", "gw1") or len(session.items) < LONG_RUN:
        return
    import manifoldrf as mrf

    points = mrf.Sphere().grid(400)
    graph, kernel = mrf.knn_graph(points), mrf.DiffusionKernel(40.0)
    if worker == "gw0":
        mrf.ManifoldRandomFeatures(kernel, field="interpolated", random_state=0).fit(graph).transform(points)
        return
    mrf.ManifoldRandomFeatures(mrf.HeatKernel(0.3), field="step", random_state=0).fit(points).transform(points)
    for teacher in (mrf.Walks(), mrf.Exact(form="sparse"), mrf.Counts()):
        mrf.compute_signatures(graph, kernel, [0], teacher=teacher, seed=0)


def pytest_generate_tests(metafunc):
    """Run statistical tests with seed 0; MANIFOLDRF_TEST_SEEDS=N in the environment selects the seeds 0 to N-1.

    Tests with a ``device`` run on every device of the machine.
    """
    if "device" in metafunc.fixturenames:
        metafunc.parametrize("device", _devices())
    if "global_seed" in metafunc.fixturenames:
        metafunc.parametrize("global_seed", range(int(os.environ.get("MANIFOLDRF_TEST_SEEDS", "1"))))
