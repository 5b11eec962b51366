"""Every Monte Carlo estimator is unbiased, and its standard errors are right.

Limits are computed from the samples; the seeds come from ``global_seed``.
"""

import functools

import numpy as np
import pytest
from scipy import sparse, stats

from manifoldrf import Counts, DiffusionKernel, Graph, Sphere, Walks, compute_signatures, knn_graph
from manifoldrf.kernels import CosineKernel, RegularizedLaplacianKernel

KERNEL = DiffusionKernel(4.0)
STARTS = [0, 7]
FALSE_ALARM = 1e-6  # of one test, for normal errors
N_REPLICAS = 48
WALKS = [
    Walks(256),
    Walks(256, p_halt=0.2, truncate=True),
    Walks(256, transitions="weighted"),
    Walks(256, coupling="antithetic"),
    Walks(256, coupling="antithetic", transitions="weighted", survival="matched"),
    Walks(256, coupling="repelling"),
    Walks(256, coupling="repelling", survival="matched"),
]
COUNTS = [Counts(5), Counts(300)]


@functools.cache
def graph_of(name):
    rng = np.random.default_rng(5)
    if name == "knn":
        return knn_graph(Sphere().grid(100))
    if name == "hub":  # node 0 with a thousand neighbours, some of which are joined
        weights = sparse.lil_array((1001, 1001))
        weights[0, 1:] = rng.uniform(0.5, 2.0, 1000)
        weights[np.arange(1, 500), np.arange(501, 1000)] = 1.0
        return Graph.from_affinity(weights + weights.T)
    # Weights over two orders of magnitude, degrees from 2 to about 15.
    weights = np.triu(np.exp(rng.normal(size=(40, 40))) * (rng.random((40, 40)) < rng.random(40) * 0.3), 1)
    weights[np.arange(39), np.arange(1, 40)] += 0.1  # in one piece
    return Graph.from_affinity(weights + weights.T)


@functools.cache
def exact_rows(name, series):
    return series.dense(graph_of(name))[STARTS]


def assert_unbiased(samples, exact):
    """t-tests of the means of (replicas, ...) samples; the false alarm of the largest is FALSE_ALARM."""
    samples, exact = np.reshape(samples, (len(samples), -1)), np.ravel(exact)
    error = samples.mean(axis=0) - exact
    band = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    limit = stats.t.isf(FALSE_ALARM / (2 * len(exact)), len(samples) - 1)
    assert (np.abs(error) <= limit * band + 1e-12 * np.abs(exact).max()).all(), np.abs(error / band).max()


def check_rows(name, exact, seed, kernel=KERNEL, **options):
    """Sums of all entries, random combinations that see any bias, and the entry where walks come most often."""
    probes = np.column_stack([np.ones(exact.shape[1]), np.random.default_rng(1).normal(size=(exact.shape[1], 6))])
    top = np.argmax(np.abs(exact), axis=1)[:, None]

    def summary(rows):
        return np.column_stack([rows @ probes, np.take_along_axis(rows, top, axis=1)])

    seeds = range(10_000 * seed, 10_000 * seed + N_REPLICAS)
    found = (compute_signatures(graph_of(name), kernel, STARTS, seed=k, **options).rows.toarray() for k in seeds)
    assert_unbiased([summary(rows) for rows in found], summary(exact))


@pytest.mark.parametrize(
    ("graph", "teacher"), [("hub", WALKS[0]), ("hub", COUNTS[1]), *(("irregular", each) for each in WALKS + COUNTS)]
)
def test_rows_are_unbiased(graph, teacher, global_seed):
    check_rows(graph, exact_rows(graph, KERNEL.root()), global_seed, teacher=teacher)


@pytest.mark.parametrize(
    ("kernel", "teacher"),
    [
        (CosineKernel(), Walks(256, p_halt=0.1)),
        (CosineKernel(), Counts(300)),
        (RegularizedLaplacianKernel(2.0), Walks(256, survival="matched")),
    ],
    ids=str,
)
def test_other_series_are_unbiased(kernel, teacher, global_seed):
    signed = not kernel.is_positive
    exact = exact_rows("irregular", kernel if signed else kernel.root())
    check_rows("irregular", exact, global_seed, kernel, teacher=teacher, asymmetric=signed)


@pytest.mark.parametrize("teacher", [Walks(16), Counts(16)], ids=str)
def test_two_seeds_give_an_unbiased_kernel_and_one_a_diagonal_too_large(teacher, global_seed):
    graph, exact = graph_of("knn"), KERNEL.dense(graph_of("knn"))
    probes = np.random.default_rng(1).normal(size=(2, len(exact), 6))
    products, diagonals, excess = [], [], []
    for k in range(N_REPLICAS):
        seeds = 1000 * global_seed + 2 * k, 1000 * global_seed + 2 * k + 1
        first, second = (compute_signatures(graph, KERNEL, teacher=teacher, seed=seed) for seed in seeds)
        error = first.gram(second) - exact
        products.append([np.trace(error), *np.einsum("ik,ij,jk->k", probes[0], error, probes[1])])
        diagonals.append(np.trace(first.gram() - exact))
        excess.append(diagonals[-1] - (first.stderr.data**2).sum())
    assert_unbiased(products, np.zeros(7))
    assert np.mean(diagonals) > 6 * np.std(diagonals) / np.sqrt(N_REPLICAS)
    assert_unbiased(excess, 0.0)  # the excess of the diagonal is the variance, which standard errors estimate


@pytest.mark.parametrize(
    "teacher",
    [*(w.with_params(n_walks=128) for w in WALKS[::2]), Walks(100, n_batches=3), Counts(128), Counts(7, 3)],
    ids=str,
)
def test_standard_errors_are_right(teacher, global_seed):
    exact, excess, squares = exact_rows("irregular", KERNEL.root()), [], []
    for k in range(200):
        found = compute_signatures(
            graph_of("irregular"), KERNEL, STARTS, teacher=teacher, seed=10_000 * global_seed + k
        )
        squares.append(((found.rows.toarray() - exact) ** 2).sum())
        excess.append((found.stderr.toarray() ** 2).sum() - squares[-1])
    band = np.std(excess) / np.sqrt(len(excess))
    assert abs(np.mean(excess)) < 5 * band
    assert band < 0.15 * np.mean(squares)  # a wider band would prove nothing


@pytest.mark.parametrize("teacher", [Walks(1), Walks(16, coupling="repelling"), Counts(1)], ids=str)
def test_one_batch_gives_no_standard_error(teacher):
    found = compute_signatures(graph_of("knn"), KERNEL, STARTS, seed=0, teacher=teacher)
    assert found.stderr is None
    assert found.relative_stderr is None


def test_errors_fall_with_the_root_of_the_number_of_walks_and_are_predicted(global_seed):
    graph, exact = graph_of("knn"), KERNEL.root().dense(graph_of("knn"))
    errors = []
    for n_walks in (100, 1600):
        found = compute_signatures(graph, KERNEL, teacher=Walks(n_walks), seed=global_seed)
        errors.append(np.linalg.norm(found.rows.toarray() - exact) / np.linalg.norm(exact))
        np.testing.assert_allclose(found.relative_stderr, errors[-1], rtol=0.1)  # 100 rows of some 30 entries each
    assert 3.4 < errors[0] / errors[1] < 4.6
