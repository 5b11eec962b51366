"""Threads: callers that want one each do not wait for each other."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from manifoldrf import DiffusionKernel, Sphere, compute_signatures, knn_graph
from manifoldrf._runtime import quick_map
from manifoldrf.kernels import SeriesKernel

GRAPH, KERNEL = knn_graph(Sphere().sample(700, seed=0)), DiffusionKernel(5.0)
ROWS = compute_signatures(GRAPH, KERNEL, teacher="exact")


def fitted_series():
    i, j = np.random.default_rng(0).integers(0, 700, (2, 40_000))
    return SeriesKernel.fit(GRAPH, i, j, np.cos(i - j), nonnegative=False).kernel.alpha


PRODUCTS = {"dense": lambda: KERNEL.dense(GRAPH), "gram": ROWS.gram, "series": fitted_series}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_do_not_depend_on_the_threads_of_their_library(name):
    found = []
    for n_threads in (1, 2):
        with threadpool_limits(n_threads, "blas"):
            found.append(PRODUCTS[name]())
    np.testing.assert_array_equal(*found)


def test_callers_with_one_thread_each_work_at_the_same_time():
    """As the tasks of a worker do: each meets the other in the middle of its work."""
    both = threading.Barrier(2, timeout=30)
    found = []

    def call():
        found.append(quick_map(lambda item: both.wait() >= 0 and item, [7], 1))

    callers = [threading.Thread(target=call) for _ in range(2)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert found == [[7], [7]]
