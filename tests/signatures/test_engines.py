"""The compiled teachers against plain Python on five nodes, and what couplings and thresholds promise."""

import numpy as np
import pytest
from oracles import as_unit, random_words
from scipy import sparse

from manifoldrf import grid_graph
from manifoldrf.geometry.csr import csr_parts
from manifoldrf.signatures import Law, build_count_table, pack_table, propagate_counts, push_frontier, run_walks

F = np.exp(-2.0) * np.cumprod(np.r_[1.0, 2.0 / np.arange(1, 15)])  # exp(-2 (I - W)) to length 14
FIVE = np.array([[0, 1, 2, 0, 0], [1, 0, 1, 3, 0], [2, 1, 1, 0, 0], [0, 3, 0, 0, 4], [0, 0, 0, 4, 0.0]])


def law_of(f, p_halt):
    """Geometric survival; s_k from the thresholds themselves."""
    go_on = np.full(len(f), round((1 - p_halt) * 2**32), np.uint64)
    go_on[-1] = 0
    return Law(f / np.cumprod(np.append(1.0, go_on[:-1] / 2**32)), go_on)


def keys(seed, n):
    return np.random.default_rng([seed, 77]).integers(0, 2**32, (n, 2), dtype=np.uint32)


def dense(found, n):
    rows = np.zeros((len(found[0]), n))
    rows[np.repeat(np.arange(len(found[0])), found[0]), found[1]] = found[2]
    return rows


def algorithm_1(matrix, start, law, n_walks, key):
    """Algorithm 1 of the paper: two walkers in turn, each with its own stream."""
    phi, load, node, length = np.zeros(matrix.shape[0]), [1.0, 1.0], [start, start], [0, 0]
    phi[start] = n_walks * law.deposit[0]
    streams, waiting, live, turn = [random_words(start, lane, key) for lane in (0, 1)], n_walks - 2, [True, True], 0
    while any(live):
        if live[turn]:
            word = next(streams[turn])
            begin, degree = matrix.indptr[node[turn]], int(np.diff(matrix.indptr)[node[turn]])
            if word % 2**32 < law.go_on[length[turn]] and degree > 0:
                entry = begin + ((word >> 32) * degree >> 32)
                load[turn] *= degree * matrix.data[entry]
                length[turn], node[turn] = length[turn] + 1, matrix.indices[entry]
                phi[node[turn]] += load[turn] * law.deposit[length[turn]]
            elif waiting > 0:
                waiting, load[turn], length[turn], node[turn] = waiting - 1, 1.0, 0, start
            else:
                live[turn] = False
        turn = 1 - turn
    return phi / n_walks


def test_walks_are_algorithm_1_step_by_step(global_seed):
    matrix, law = sparse.csr_array(FIVE / 8), law_of(F, 0.3)
    for key in keys(global_seed, 5):
        found = run_walks(pack_table(*csr_parts(matrix)), law, 40, 1, key, "iid", np.arange(5))
        expected = [algorithm_1(matrix, start, law, 40, key) for start in range(5)]
        np.testing.assert_allclose(dense(found, 5), expected, rtol=1e-13)  # weights share bits with degrees


def counted(affinity, law, start, n_walkers, key):
    """Counts in plain words, with dictionaries, for one batch."""
    words, row = random_words(start, 0, key), np.zeros(len(affinity))
    degrees, walkers = affinity.sum(axis=1), {start: n_walkers}
    for deposit, go_on in zip(law.deposit, law.go_on, strict=True):
        phase, offset, total, kept, arrivals = as_unit(next(words)), as_unit(next(words)), 0, 0, {}
        for v, c in walkers.items():
            row[v] += c * (deposit / n_walkers) * np.sqrt(degrees[start] / degrees[v])
            total += c
            upto = int(total * (go_on / 2**32) + phase)
            stay, kept = upto - kept, upto
            offset = (offset + (np.sqrt(5) - 1) / 2) % 1 if stay else offset
            bounds = np.r_[0, np.floor(np.cumsum(affinity[v]) / degrees[v] * stay + offset)].astype(int)
            for w in np.flatnonzero(np.diff(bounds)):
                arrivals[w] = arrivals.get(w, 0) + bounds[w + 1] - bounds[w]
        walkers = arrivals
    return row


def test_counts_are_as_by_hand(global_seed):
    table, law = build_count_table(*csr_parts(sparse.csr_array(FIVE))), law_of(F, 0.1)
    for key in keys(global_seed, 20):
        found = propagate_counts(table, law, 11, 1, key, np.arange(5))
        expected = [counted(FIVE, law, start, 11, key) for start in range(5)]
        np.testing.assert_allclose(dense(found, 5), expected, rtol=1e-13, atol=0)


@pytest.mark.parametrize("n_walkers", [1, 7, 12345])
def test_no_walker_is_lost_or_made(n_walkers, global_seed):
    n_lengths, table = 30, build_count_table(*csr_parts(sparse.csr_array(FIVE)))
    law = Law((np.arange(n_lengths) == n_lengths - 1) * 1.0, np.full(n_lengths, 2**32, np.uint64))
    for key in keys(global_seed, 20):
        found = propagate_counts(table, law, n_walkers, 1, key, np.array([0]))
        walkers = dense(found, 5)[0] * n_walkers * table.root_degrees / table.root_degrees[0]
        np.testing.assert_allclose(walkers, np.round(walkers), atol=1e-9 * n_walkers)
        assert np.round(walkers).sum() == n_walkers


def test_counts_converge_like_the_inverse_of_their_number(global_seed):
    graph = grid_graph(20, 2)
    table, law, starts = build_count_table(*csr_parts(graph.affinity)), law_of(F, 0.01), np.arange(0, 400, 10)
    exact = sum(f * np.linalg.matrix_power(graph.operator.toarray(), k) for k, f in enumerate(F))[starts]
    sizes = 1000 * 4 ** np.arange(6)
    errors = [
        np.linalg.norm(dense(propagate_counts(table, law, m, 1, key, starts), 400) - exact)
        for m, key in zip(sizes, keys(global_seed, 6), strict=True)
    ]
    assert -1.25 < np.polyfit(np.log(sizes), np.log(errors), 1)[0] < -0.8


def test_weighted_tables_choose_in_proportion_to_the_weights():
    rng = np.random.default_rng(0)
    dense_matrix = rng.normal(size=(40, 40)) ** 3 * (rng.random((40, 40)) < 0.3)
    matrix = sparse.csr_array(dense_matrix)
    table = pack_table(*csr_parts(matrix), weighted=True)
    for v in range(40):
        row = slice(matrix.indptr[v], matrix.indptr[v + 1])
        chance = np.diff(np.r_[0, table.shares[row].astype(float)]) / 2**32
        size = np.abs(matrix.data[row])
        np.testing.assert_allclose(chance, size / size.sum(), atol=1e-9)
        np.testing.assert_allclose(chance * table.edges["weight"][row], matrix.data[row], rtol=1e-12, atol=1e-9)


def test_repelling_walkers_leave_a_node_by_different_entries():
    """Sixteen walkers on a star of sixteen leaves reach each leaf once: no variance at all."""
    star = np.zeros((17, 17))
    star[0, 1:] = star[1:, 0] = np.random.default_rng(0).uniform(0.5, 1.5, 16)
    table, law = pack_table(*csr_parts(sparse.csr_array(star))), law_of(np.array([0.0, 1.0]), 1e-12)
    found = run_walks(table, law, 32, 2, np.array([1, 2], np.uint32), "repelling", np.array([0]))
    np.testing.assert_allclose(dense(found, 17)[0], star[0], rtol=1e-10)


def test_antithetic_pairs_do_not_die_together(global_seed):
    """The sum of the lengths of a pair varies less than that of two independent walks."""
    table = pack_table(*csr_parts(sparse.csr_array([[0.0, 1.0], [1.0, 0.0]])))
    lengths = {
        coupling: [
            run_walks(table, law_of(np.ones(30), 0.5), 2, 1, key, coupling, np.zeros(1, int))[4]
            for key in keys(global_seed, 2000)
        ]
        for coupling in ("antithetic", "iid")
    }
    paired, free = lengths["antithetic"], lengths["iid"]
    assert min(paired) == 1  # p = 1/2: exactly one of the two ends at once
    assert np.var(paired) < 0.8 * np.var(free)
    assert abs(np.mean(paired) - 2.0) < 5 * np.std(paired) / np.sqrt(len(paired))


@pytest.mark.parametrize("threshold", [0.0, 1e-4, 1e-8, 1e-12])
def test_the_frontier_is_the_polynomial_within_its_bound(threshold):
    rng = np.random.default_rng(2)
    weights = np.triu(rng.normal(size=(120, 120)) * (rng.random((120, 120)) < 0.04))
    weights = (weights + weights.T) / np.linalg.norm(weights + weights.T, 2)
    coefficients, starts = np.where(np.arange(30) % 3 == 1, -1.0, 0.7) * 0.9 ** np.arange(30), [0, 5, 5, 119, 0]
    exact = sum(f * np.linalg.matrix_power(weights, k) for k, f in enumerate(coefficients))[starts]
    found = push_frontier(*csr_parts(sparse.csr_array(weights)), coefficients, threshold, np.array(starts))
    errors = np.linalg.norm(dense(found, 120) - exact, axis=1)
    assert (errors <= found[3] + 1e-13).all()
    assert (found[3] <= 1e4 * threshold).all()  # a bound, not a platitude
    for first, second in ((1, 2), (0, 4)):  # nothing is left behind by a start
        np.testing.assert_array_equal(dense(found, 120)[first], dense(found, 120)[second])
