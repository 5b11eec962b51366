"""K X for a graph of 50,000 nodes: the 8 nearest neighbours on the sphere, K = exp(-20 L), 16 columns.

The exact product is the Poisson sum of powers of the walk applied to nonnegative columns, in which nothing cancels.
Errors are relative Frobenius errors, as they are.
"""

import functools

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import expm_multiply
from scipy.stats import poisson

from benchmarks.peers.filters import heat_filter, pygsp_graph
from benchmarks.peers.measure import Row, timed
from manifoldrf import DiffusionKernel, Sphere, knn_graph, relative_error

JOB = "product"
TAU, N_COLUMNS = 20.0, 16
TOLERANCES = (1e-14, 1e-12, 1e-6, 1e-3)
ORDERS = (30, 60, 100)
SIZES = {"full": 50_000, "smoke": 3000}


def poisson_sum(matrix, columns, tau=TAU):
    """exp(-tau (I - W)) X as the sum of P(k) W^k X, for X >= 0."""
    total, power = np.zeros_like(columns), columns
    for weight in poisson.pmf(np.arange(int(tau + 12 * np.sqrt(tau) + 30)), tau):  # the rest is below 1e-20
        total += weight * power
        power = matrix @ power
    return total


def run(size):
    """Rows of all methods."""
    n = SIZES[size]
    graph = knn_graph(Sphere().grid(n))
    columns = np.random.default_rng(0).random((n, N_COLUMNS))
    exact = poisson_sum(graph.operator, columns)
    laplacian = (sparse.eye_array(n) - graph.operator).tocsr()

    def row(method, preparation, function):
        seconds, found = timed(function)
        return Row(JOB, f"{n:,} nodes", method, preparation, seconds, relative_error(found, exact))

    kernel = DiffusionKernel(TAU)
    for tol in TOLERANCES:
        apply = functools.partial(kernel.apply, graph, columns, tol=tol, n_jobs=-1)
        yield row(f"manifoldrf, kernel.apply to {tol:g}", 0.0, apply)
    yield row("scipy expm_multiply", 0.0, lambda: expm_multiply(-TAU * laplacian, columns))
    preparation, peer = timed(lambda: pygsp_graph(graph))
    for order in ORDERS:
        apply = functools.partial(heat_filter, peer, TAU, columns, order)
        yield row(f"pygsp Chebyshev, order {order}", preparation, apply)
