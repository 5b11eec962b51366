"""Counted walkers: unbiased, with correct variances, and an error that falls like the inverse of their number."""

import numpy as np
import pytest
from oracles import csr_arrays
from scipy import sparse

import manifoldrf
from manifoldrf.signatures import counts as module
from manifoldrf.signatures.counts import CountLaw, build_count_table, propagate_counts
from manifoldrf.signatures.streams import as_unit, next_word, open_stream

N_KEYS = 600
COEFFICIENTS = np.exp(-2.0) * np.cumprod(np.r_[1.0, 2.0 / np.arange(1, 15)])  # exp(-2 (I - W)) to length 14


def law_of(coefficients, survival):
    return CountLaw(coefficients / survival, np.r_[survival[1:] / survival[:-1], 0.0])


def tail_law(coefficients):
    """Walkers survive in proportion to the root of what is still to come."""
    return law_of(coefficients, np.sqrt(np.cumsum(coefficients[::-1])[::-1] / coefficients.sum()))


def table_of(affinity):
    return build_count_table(*csr_arrays(affinity))


def exact_rows(affinity, coefficients, starts):
    degrees = affinity.sum(axis=1)
    roots = np.where(degrees > 0, np.sqrt(degrees), 1.0)
    operator = affinity.toarray() / roots / roots[:, None]
    powers = np.eye(len(roots))[starts]
    total = np.zeros_like(powers)
    for coefficient in coefficients:
        total += coefficient * powers
        powers = powers @ operator
    return total


def dense(found, n_slots):
    rows = np.zeros((len(found[0]), n_slots))
    rows[np.repeat(np.arange(len(found[0])), found[0]), found[1]] = found[2]
    return rows


def keys_of(seed, n=N_KEYS):
    return np.random.default_rng([seed, 77]).integers(0, 2**32, (n, 2), dtype=np.uint32)


def irregular(n=40):
    """Weights over four orders of magnitude, degrees from 1 to about 10."""
    rng = np.random.default_rng(5)
    weights = np.triu(np.exp(2 * rng.normal(size=(n, n))) * (rng.random((n, n)) < rng.random(n) * 0.3))
    weights[np.arange(n - 1), np.arange(1, n)] += 0.1  # in one piece
    return sparse.csr_array(weights + weights.T)


def mesh_like(side=9):
    """A grid of squares, each with one diagonal, with a boundary."""
    nodes = np.arange(side**2).reshape(side, side)
    pairs = [(nodes[1:], nodes[:-1]), (nodes[:, 1:], nodes[:, :-1]), (nodes[1:, 1:], nodes[:-1, :-1])]
    i, j = (np.concatenate([pair[end].ravel() for pair in pairs]) for end in (0, 1))
    half = sparse.coo_array((np.ones(len(i)), (i, j)), (side**2, side**2))
    return sparse.csr_array(half + half.T)


def star(n_leaves=1000):
    weights = np.zeros((n_leaves + 1, n_leaves + 1))
    weights[0, 1:] = weights[1:, 0] = np.random.default_rng(6).uniform(0.5, 2.0, n_leaves)
    return sparse.csr_array(weights)


def with_isolated_node():
    weights = np.zeros((12, 12))
    weights[:11, :11] = irregular(11).toarray()
    return sparse.csr_array(weights)


GRAPHS = {
    "irregular": (irregular(), [0, 17]),
    "mesh": (mesh_like(), [0, 40]),
    "star": (star(), [0, 500]),
    "isolated": (with_isolated_node(), [3, 11]),
}
LAWS = {"tail": tail_law(COEFFICIENTS), "geometric": law_of(COEFFICIENTS, 0.99 ** np.arange(len(COEFFICIENTS)))}


@pytest.mark.slow
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("n_walkers", [3, 200])
@pytest.mark.parametrize("graph", GRAPHS)
def test_estimates_are_unbiased(graph, n_walkers, law, global_seed):
    affinity, starts = GRAPHS[graph]
    table, exact = table_of(affinity), exact_rows(affinity, COEFFICIENTS, starts)
    # Sums over all nodes with random weights see any bias; single entries only where walkers come often.
    probes = np.random.default_rng(1).normal(size=(affinity.shape[0], 12))
    top = np.argsort(exact, axis=1)[:, -2:]
    errors = []  # (keys, starts, probes)
    for key in keys_of(global_seed):
        found = propagate_counts(table, LAWS[law], np.array(starts), n_walkers, 1, 0, key)
        error = dense(found, len(probes)) - exact
        errors.append(np.column_stack([error @ probes, np.take_along_axis(error, top, axis=1)]))
    standard_errors = np.std(errors, axis=0) / np.sqrt(N_KEYS) + 1e-12
    assert np.abs(np.mean(errors, axis=0) / standard_errors).max() < 5


@pytest.mark.parametrize(("n_walkers", "n_batches"), [(3, 4), (102, 4), (300, 2)])
def test_reported_variances_are_right(n_walkers, n_batches, global_seed):
    affinity, starts = GRAPHS["irregular"]
    table, exact = table_of(affinity), exact_rows(affinity, COEFFICIENTS, starts)
    excess, squares = np.zeros(N_KEYS), np.zeros(N_KEYS)
    for k, key in enumerate(keys_of(global_seed)):
        found = propagate_counts(table, LAWS["tail"], np.array(starts), n_walkers, n_batches, 0, key)
        squares[k] = ((dense(found, len(exact[0])) - exact) ** 2).sum()
        excess[k] = found[3].sum() - squares[k]
    band = excess.std() / np.sqrt(N_KEYS)
    assert abs(excess.mean()) < 5 * band
    assert band < 0.05 * squares.mean()  # a wider band would prove nothing


def test_one_batch_gives_no_variance_and_equal_batches_give_zero():
    affinity, starts = GRAPHS["irregular"]
    table, key = table_of(affinity), np.array([1, 2], np.uint32)
    assert np.isnan(propagate_counts(table, LAWS["tail"], np.array(starts), 10, 1, 0, key)[3]).all()
    at_length_0 = CountLaw(np.array([0.7]), np.array([0.0]))
    found = propagate_counts(table, at_length_0, np.array(starts), 9, 3, 0, key)
    assert found[1].tolist() == starts
    np.testing.assert_allclose(found[2], 0.7, rtol=1e-15)
    assert found[3].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("n_walkers", [1, 7, 1000, 12345])
@pytest.mark.parametrize("graph", ["irregular", "mesh", "star"])
def test_no_walker_is_lost_or_made(graph, n_walkers, global_seed):
    affinity, starts = GRAPHS[graph]
    n_lengths, table = 30, table_of(affinity)
    law = CountLaw((np.arange(n_lengths) == n_lengths - 1) * 1.0, np.ones(n_lengths))
    for key in keys_of(global_seed, 20):
        found = propagate_counts(table, law, np.array(starts), n_walkers, 1, 0, key)
        walkers = dense(found, affinity.shape[0]) * table.root_degrees
        walkers *= n_walkers / table.root_degrees[starts][:, None]
        np.testing.assert_allclose(walkers, np.round(walkers), atol=1e-9 * n_walkers)
        assert np.round(walkers).sum(axis=1).tolist() == [n_walkers] * 2
        assert found[4] == 2 * n_walkers * (n_lengths - 1)


@pytest.mark.parametrize("phase", [0.0, 0.5, 1 - 2.0**-53])
@pytest.mark.parametrize("n_walkers", [1, 10**6, 2**52])
def test_rounding_never_makes_walkers(n_walkers, phase):
    """n_walkers + phase may round up to n_walkers + 1, in the thinning and in the split."""
    affinity, _ = GRAPHS["irregular"]
    space = module._make_workspace(affinity.shape[0])
    space.nodes[0, :3], space.counts[0, :3] = [0, 1, 2], [n_walkers, 1, 1]
    n_occupied = 3
    for side in (0, 1, 0):
        n_occupied, moved, _ = module._step(table_of(affinity), 1.0, (phase, phase), space, side, n_occupied)
        assert moved == space.counts[1 - side].sum() == n_walkers + 2
        assert space.counts.min() == space.counts[side].max() == 0


def test_thinning_keeps_the_right_number(global_seed):
    law = law_of(np.ones(12), 0.8 ** np.arange(12))
    table = table_of(mesh_like())
    for key in keys_of(global_seed, 50):
        steps = propagate_counts(table, law, np.array([40]), 1000, 1, 0, key)[4]
        # Each length rounds to one of the two neighbouring integers and hands its deviation on, times .8.
        assert abs(steps - 1000 * (0.8 ** np.arange(1, 12)).sum()) < 11 * 5


def unsigned(function):
    """Outside compiled code a 64-bit word becomes a Python int, which compiled code takes for a signed one."""
    return lambda *words: tuple(np.uint64(word) for word in function(*words))


def as_python(monkeypatch):
    """Run the module's functions as plain Python."""
    for name, value in list(vars(module).items()):
        if hasattr(value, "py_func") and value.py_func.__module__ == module.__name__:
            monkeypatch.setattr(module, name, value.py_func)
    for function in (open_stream, next_word):
        monkeypatch.setattr(module, function.__name__, unsigned(function))


def test_search_and_scan_give_the_same_bits(monkeypatch, global_seed):
    affinity = star()
    table, key = table_of(affinity), keys_of(global_seed, 1)[0]
    runs = []
    compiled = propagate_counts(table, LAWS["geometric"], np.array([0, 7]), 60, 1, 0, key)
    as_python(monkeypatch)
    for short_row in (16, 10**9):
        monkeypatch.setattr(module, "_SHORT_ROW", short_row)
        runs.append(module.propagate_counts(table, LAWS["geometric"], np.array([0, 7]), 60, 1, 0, key))
    for searched, scanned, fast in zip(runs[0][:5], runs[1][:5], compiled[:5], strict=True):
        np.testing.assert_array_equal(searched, scanned)
        np.testing.assert_array_equal(searched, fast)
    assert runs[0][5] == compiled[5] < runs[1][5] / 5


def test_a_walker_on_a_hub_visits_one_neighbour():
    law = CountLaw(np.ones(11), np.ones(11))
    found = propagate_counts(table_of(star()), law, np.array([1]), 1, 1, 0, np.zeros(2, np.uint32))
    assert found[4:] == (10, 10)


def reference(affinity, law, start, n_walkers, key):
    """The same in plain words, with dictionaries, for one batch."""
    state, row = unsigned(open_stream)(start, 0, key), np.zeros(affinity.shape[0])
    degrees, walkers = affinity.sum(axis=1), {start: n_walkers}
    for deposit, keep in zip(law.deposit, law.keep, strict=True):
        (first, *state), total, kept, arrivals = unsigned(next_word)(*state), 0, 0, {}
        (second, *state) = unsigned(next_word)(*state)
        offset = as_unit(second)
        for v, c in walkers.items():
            row[v] += c * (deposit / n_walkers) * np.sqrt(degrees[start] / degrees[v])
            total += c
            stay, kept = int(total * keep + as_unit(first)) - kept, int(total * keep + as_unit(first))
            offset = (offset + (np.sqrt(5) - 1) / 2) % 1 if stay else offset
            bounds = np.r_[0, np.floor(np.cumsum(affinity[v]) / degrees[v] * stay + offset)].astype(int)
            for w in np.flatnonzero(np.diff(bounds)):
                arrivals[w] = arrivals.get(w, 0) + bounds[w + 1] - bounds[w]
        walkers = arrivals
    return row


@pytest.mark.parametrize("python", [False, True])
def test_five_nodes_as_by_hand(python, monkeypatch, global_seed):
    affinity = np.array([[0, 1, 2, 0, 0], [1, 0, 1, 3, 0], [2, 1, 1, 0, 0], [0, 3, 0, 0, 4], [0, 0, 0, 4, 0.0]])
    if python:
        as_python(monkeypatch)
    arrays = sparse.csr_array(affinity)
    table = module.build_count_table(*csr_arrays(arrays))
    np.testing.assert_allclose(table.root_degrees**2, affinity.sum(axis=1), rtol=1e-15)
    assert table.cumulative[arrays.indptr[1:] - 1].tolist() == [1.0] * 5
    for key in keys_of(global_seed, 20):
        for start in range(5):
            found = module.propagate_counts(table, LAWS["tail"], np.array([start]), 11, 1, 0, key)
            expected = reference(affinity, LAWS["tail"], start, 11, key)
            np.testing.assert_allclose(dense(found, 5)[0], expected, rtol=1e-13, atol=0)


def test_the_error_falls_like_the_inverse_of_the_number_of_walkers(global_seed):
    graph = manifoldrf.knn_graph(manifoldrf.Sphere().grid(500))
    starts, table = np.arange(0, 500, 10), table_of(graph.affinity)
    exact = exact_rows(graph.affinity, COEFFICIENTS, starts)
    sizes = 1000 * 4 ** np.arange(6)
    errors = [
        np.linalg.norm(dense(propagate_counts(table, LAWS["tail"], starts, m, 1, 0, key), 500) - exact)
        for m, key in zip(sizes, keys_of(global_seed, len(sizes)), strict=True)
    ]
    assert -1.25 < np.polyfit(np.log(sizes), np.log(errors), 1)[0] < -0.8
    assert errors[-1] < 1e-4 * np.linalg.norm(exact)  # independent walkers: 1 / sqrt(10^6), about 1e-3


@pytest.mark.parametrize("n_batches", [1, 3])
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_lengths_add_up_to_the_whole(graph, n_batches, global_seed):
    affinity, starts = GRAPHS[graph]
    n, key, table = affinity.shape[0], keys_of(global_seed, 1)[0], table_of(affinity)
    whole = propagate_counts(table, LAWS["tail"], np.array(starts), 500, n_batches, 0, key)
    apart = propagate_counts(table, LAWS["tail"], np.array(starts), 500, n_batches, n, key)
    rows = np.zeros((2, n))
    for length in dense(apart, n * len(COEFFICIENTS)).reshape(2, -1, n).transpose(1, 0, 2):
        rows += length
    if n_batches == 1:
        np.testing.assert_array_equal(rows, dense(whole, n))
    np.testing.assert_allclose(rows, dense(whole, n), rtol=1e-13)
    assert apart[4:] == whole[4:]
    for found in (whole, apart):
        first = found[0][0]
        assert (np.diff(found[1][:first]) > 0).all()
        assert (np.diff(found[1][first:]) > 0).all()


def test_a_start_does_not_depend_on_the_others():
    affinity, _ = GRAPHS["isolated"]
    table, key = table_of(affinity), np.array([3, 4], np.uint32)
    together = dense(propagate_counts(table, LAWS["tail"], np.array([4, 11, 0, 4]), 50, 3, 0, key), 12)
    for row, start in zip(together, [4, 11, 0, 4], strict=True):
        alone = propagate_counts(table, LAWS["tail"], np.array([start]), 50, 3, 0, key)
        np.testing.assert_array_equal(row, dense(alone, 12)[0])
    np.testing.assert_allclose(together[1], COEFFICIENTS[0] * np.eye(12)[11], rtol=1e-15)  # isolated


def test_a_row_of_stored_zeros_ends_a_walk():
    table = table_of(sparse.csr_array((np.zeros(2), [1, 0], [0, 1, 2]), shape=(2, 2)))
    found = propagate_counts(table, LAWS["tail"], np.array([0]), 50, 1, 0, np.zeros(2, np.uint32))
    assert (found[1].tolist(), found[4], found[5]) == ([0], 0, 0)
