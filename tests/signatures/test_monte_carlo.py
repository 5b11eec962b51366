"""Every Monte Carlo estimator is unbiased, and its standard errors are right.

This is the one layer of statistical tests that `make test` runs: through the public functions, with seeds from
``global_seed`` and limits computed from the samples. All other combinations, and the same tests of the compiled
functions (test_walks.py, test_counts.py), are marked slow.
"""

import functools
import itertools

import numpy as np
import pytest
from oracles import sphere_mesh
from scipy import sparse, stats

from manifoldrf import (
    CosineKernel,
    DiffusionKernel,
    GeneralizedAdjacency,
    Graph,
    PowerKernel,
    RandomWalkKernel,
    RegularizedLaplacianKernel,
    Sphere,
    compute_signature_pair,
    compute_signatures,
    knn_graph,
    mesh_graph,
)

KERNEL = DiffusionKernel(4.0)
STARTS = [0, 7]
FALSE_ALARM = 1e-6  # of one test, for normal errors
N_REPLICAS = 48


def irregular(n=40):
    """Weights over two orders of magnitude, degrees from 2 to about 15."""
    rng = np.random.default_rng(5)
    weights = np.triu(np.exp(rng.normal(size=(n, n))) * (rng.random((n, n)) < rng.random(n) * 0.3), 1)
    weights[np.arange(n - 1), np.arange(1, n)] += 0.1  # in one piece
    return Graph.from_affinity(weights + weights.T)


def hub(n_leaves=1000):
    """Node 0 with a thousand neighbours, some of which are joined."""
    rng = np.random.default_rng(6)
    weights = sparse.lil_array((n_leaves + 1, n_leaves + 1))
    weights[0, 1:] = rng.uniform(0.5, 2.0, n_leaves)
    weights[np.arange(1, 500), np.arange(501, 1000)] = 1.0
    return Graph.from_affinity(weights + weights.T)


def signed(n=30):
    """A matrix of both signs with its spectrum within [-1, 1] or so."""
    rng = np.random.default_rng(7)
    weights = np.triu(rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.2))
    return GeneralizedAdjacency((weights + weights.T) / np.linalg.norm(weights + weights.T, 2))


@functools.cache
def graph_of(name):
    makers = {
        "irregular": irregular,
        "knn": lambda: knn_graph(Sphere().grid(100)),
        "mesh": lambda: mesh_graph(sphere_mesh(60)),
        "hub": hub,
        "signed": signed,
        "walk": lambda: GeneralizedAdjacency.random_walk(irregular()),
    }
    return makers[name]()


@functools.cache
def exact_rows(name, series=None):
    return (series or KERNEL.root()).dense(graph_of(name))[STARTS]


def assert_unbiased(samples, exact):
    """t-tests of the means of (replicas, ...) samples; the false alarm of the largest is FALSE_ALARM."""
    samples, exact = np.reshape(samples, (len(samples), -1)), np.ravel(exact)
    assert np.isfinite(samples).all()
    error = samples.mean(axis=0) - exact
    band = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    limit = stats.t.isf(FALSE_ALARM / (2 * len(exact)), len(samples) - 1)
    assert (np.abs(error) <= limit * band + 1e-12 * np.abs(exact).max()).all(), np.abs(error / band).max()


def summaries(rows, exact):
    """Sums of all entries, random combinations that see any bias, and the entry where walks come most often."""
    probes = np.random.default_rng(1).normal(size=(exact.shape[1], 6))
    probes = np.column_stack([np.ones(len(probes)), probes])
    top = np.argmax(np.abs(exact), axis=1)[:, None]
    return np.column_stack([rows @ probes, np.take_along_axis(rows, top, axis=1)])


def replicas(name, kernel=KERNEL, seed=0, n=N_REPLICAS, **options):
    """Signatures of independent seeds."""
    for k in range(n):
        yield compute_signatures(graph_of(name), kernel, STARTS, seed=10_000 * seed + k, **options)


def check_rows(name, exact, **options):
    samples = [summaries(found.rows.toarray(), exact) for found in replicas(name, **options)]
    assert_unbiased(samples, summaries(exact, exact))


def sweep(*axes):
    """All combinations of values; quick are those in which the last axis takes turns over the others.

    The quick ones cover every combination of all axes but the last, each with one value of the last.
    """
    combinations = []
    for indices in itertools.product(*map(range, map(len, axes))):
        quick = sum(indices) % len(axes[-1]) == 0
        values = (axis[k] for axis, k in zip(axes, indices, strict=True))
        combinations.append(pytest.param(*values, marks=[] if quick else [pytest.mark.slow]))
    return combinations


MOVES = [*itertools.product(["uniform", "weighted"], ["independent", "antithetic"]), ("uniform", "repelling")]
LIVES = [{"p_halt": 0.01}, {"p_halt": 0.2, "max_length": "auto"}, {"survival": "matched"}]


@pytest.mark.parametrize(
    ("graph", "move", "life"), sweep(["irregular", "knn", "mesh", "hub", "signed", "walk"], MOVES, LIVES)
)
def test_walks_are_unbiased(graph, move, life, global_seed):
    transitions, coupling = move
    options = dict(teacher="walks", transitions=transitions, coupling=coupling, n_walks=256, **life)
    check_rows(graph, exact_rows(graph), seed=global_seed, **options)


COUNT_LIVES = [{}, {"survival": "geometric"}, {"survival": "geometric", "p_halt": 0.01, "max_length": None}]


@pytest.mark.parametrize(
    ("graph", "n_walks", "life"), sweep(["irregular", "knn", "mesh", "hub"], [5, 300], COUNT_LIVES)
)
def test_counts_are_unbiased(graph, n_walks, life, global_seed):
    check_rows(graph, exact_rows(graph), seed=global_seed, teacher="counts", n_walks=n_walks, **life)


STITCHED = [{"teacher": "walks", "p_halt": 0.2}, {"teacher": "counts", "survival": "matched"}]


@pytest.mark.parametrize(("graph", "options", "n_stitches"), sweep(["irregular", "knn", "mesh"], STITCHED, [2, 3]))
def test_stitched_rows_are_unbiased(graph, options, n_stitches, global_seed):
    check_rows(graph, exact_rows(graph), seed=global_seed, n_walks=100, n_stitches=n_stitches, **options)


@pytest.mark.parametrize("kernel", [CosineKernel(), RandomWalkKernel(2, 3), PowerKernel(3)], ids=str)
@pytest.mark.parametrize("options", [{"teacher": "walks", "p_halt": 0.1}, {"teacher": "counts"}], ids=str)
def test_rows_of_kernels_without_modulation_are_unbiased(kernel, options, global_seed):
    exact = exact_rows("irregular", kernel)
    check_rows("irregular", exact, kernel=kernel, asymmetric=True, n_walks=256, seed=global_seed, **options)


@pytest.mark.parametrize(
    "kernel", [RegularizedLaplacianKernel(2.0), DiffusionKernel(2.0) + DiffusionKernel(3.0)], ids=str
)
@pytest.mark.parametrize("survival", ["geometric", "matched"])
def test_other_kernels_are_unbiased(kernel, survival, global_seed):
    exact = exact_rows("irregular", kernel.root())
    options = {"teacher": "walks", "survival": survival, "n_walks": 256}
    check_rows("irregular", exact, kernel=kernel, seed=global_seed, **options)


@pytest.mark.parametrize("max_length", [0, 1, 3])
def test_a_cap_leaves_out_what_lies_beyond_and_nothing_else(max_length, global_seed):
    operator = graph_of("irregular").operator.toarray()
    f = KERNEL.modulation(max_length + 1)
    capped = sum(value * np.linalg.matrix_power(operator, k) for k, value in enumerate(f))[STARTS]
    assert np.abs(capped - exact_rows("irregular")).max() > 0.01  # the bias would be seen
    check_rows("irregular", capped, teacher="walks", n_walks=500, max_length=max_length, seed=global_seed)
    options = {"teacher": "counts", "n_walks": 10**6, "survival": "geometric", "max_length": max_length}
    counted = compute_signatures(graph_of("irregular"), KERNEL, STARTS, seed=global_seed, **options).rows.toarray()
    # Each of the 40 nodes rounds by less than one of 10^6 walkers at each length; roots of degrees differ by 10.
    np.testing.assert_allclose(counted, capped, atol=1e-4)


PAIRED = [
    {"teacher": "walks"},
    {"teacher": "walks", "transitions": "weighted", "coupling": "antithetic"},
    {"teacher": "walks", "n_stitches": 2, "transitions": "weighted"},
    {"teacher": "counts"},
]


@pytest.mark.parametrize(("options", "graph"), sweep(PAIRED, ["mesh", "knn"]))
def test_two_sets_give_an_unbiased_kernel_and_one_a_diagonal_too_large(graph, options, global_seed):
    exact = KERNEL.dense(graph_of(graph))
    probes = np.random.default_rng(1).normal(size=(2, len(exact), 6))
    products, diagonals, excess = [], [], []
    for k in range(N_REPLICAS):
        seed = 1000 * global_seed + k
        first, second = compute_signature_pair(graph_of(graph), KERNEL, n_walks=16, seed=seed, **options)
        error = first.gram(second) - exact
        products.append([np.trace(error), *np.einsum("ik,ij,jk->k", probes[0], error, probes[1])])
        diagonals.append(np.trace(first.gram() - exact))
        if first.stderr is not None:
            excess.append(diagonals[-1] - (first.stderr.data**2).sum())
    assert_unbiased(products, np.zeros(7))
    assert np.mean(diagonals) > 6 * np.std(diagonals) / np.sqrt(N_REPLICAS)
    if excess:  # the excess of the diagonal is the variance, which the standard errors estimate
        assert_unbiased(excess, 0.0)


def test_compressed_inner_products_are_unbiased(global_seed):
    upper, seeds = np.triu_indices(2), range(1000 * global_seed, 1000 * global_seed + 400)
    exact = KERNEL.dense(graph_of("knn"))[np.ix_(STARTS, STARTS)][upper]
    found = compute_signatures(graph_of("knn"), KERNEL, STARTS, teacher="exact")
    samples = np.array([found.compress(16, seed=seed).gram()[upper] for seed in seeds])
    assert_unbiased(samples, exact)
    # Their variance is (x.x y.y + (x.y)^2) / 16. A sample variance of 400 has a relative standard error of about
    # sqrt((2 + excess kurtosis) / 400) with an excess of 12 / 16 at most: .083, and five of them are .42.
    expected = np.array([2 * exact[0] ** 2, exact[0] * exact[2] + exact[1] ** 2, 2 * exact[2] ** 2]) / 16
    np.testing.assert_allclose(samples.var(axis=0), expected, rtol=0.42)
    first, second = compute_signature_pair(graph_of("knn"), KERNEL, STARTS, teacher="counts", seed=global_seed)
    pairs = [first.compress(16, seed=seed).gram(second.compress(16, seed=seed))[upper] for seed in seeds]
    assert_unbiased(pairs, first.gram(second)[upper])


@pytest.mark.parametrize(
    "options",
    [
        *({"teacher": "walks", "transitions": move, "coupling": coupling} for move, coupling in MOVES),
        {"teacher": "walks", "n_walks": 100, "n_batches": 3},
        {"teacher": "walks", "survival": "matched"},
        {"teacher": "counts"},
        {"teacher": "counts", "n_walks": 7, "n_batches": 3},
    ],
    ids=str,
)
def test_standard_errors_are_right(options, global_seed):
    excess, squares = [], []
    for found in replicas("irregular", seed=global_seed, n=200, **{"n_walks": 128, **options}):
        squares.append(((found.rows.toarray() - exact_rows("irregular")) ** 2).sum())
        excess.append((found.stderr.toarray() ** 2).sum() - squares[-1])
    band = np.std(excess) / np.sqrt(len(excess))
    assert abs(np.mean(excess)) < 5 * band
    assert band < 0.15 * np.mean(squares)  # a wider band would prove nothing


def test_relative_standard_errors_are_those_of_the_rows(global_seed):
    options = {"teacher": "walks", "n_walks": 1000, "seed": global_seed}
    found = compute_signatures(graph_of("knn"), KERNEL, np.arange(100), **options)
    exact = KERNEL.root().dense(graph_of("knn"))
    error = np.linalg.norm(found.rows.toarray() - exact) / np.linalg.norm(exact)
    np.testing.assert_allclose(found.relative_stderr, error, rtol=0.1)  # 100 rows of some 30 entries each


@pytest.mark.parametrize(
    "options",
    [
        {"teacher": "walks", "n_walks": 1},
        {"teacher": "walks", "n_walks": 16, "coupling": "repelling"},
        {"teacher": "walks", "n_batches": 1},
        {"teacher": "counts", "n_walks": 1},
    ],
    ids=str,
)
def test_one_batch_gives_no_standard_error(options):
    found = compute_signatures(graph_of("knn"), KERNEL, STARTS, seed=0, **options)
    assert found.stderr is None
    assert found.relative_stderr is None


def test_stitching_tames_long_kernels(global_seed):
    """Plain walks that halt with probability .3 hardly get to length 10, where this kernel has its mass.

    Measured over seeds 0 to 4: relative errors of 3.0 to 6.4 with plain walks, .25 to .28 with three stitches.
    """
    graph, kernel, nodes = knn_graph(Sphere().grid(500)), DiffusionKernel(20.0), np.arange(0, 500, 10)
    exact = kernel.root().dense(graph)[nodes]
    options = {"teacher": "walks", "n_walks": 100, "p_halt": 0.3, "seed": global_seed}
    errors = [
        np.linalg.norm(compute_signatures(graph, kernel, nodes, n_stitches=n, **options).rows.toarray() - exact)
        for n in (1, 3)
    ]
    assert errors[1] < 0.2 * errors[0]
    assert errors[1] < 0.35 * np.linalg.norm(exact)
