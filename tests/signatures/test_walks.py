"""Random walks against the power series that they estimate."""

import numba
import numpy as np
import pytest
from scipy import sparse

from manifoldrf._random import Streams
from manifoldrf.signatures import walks
from manifoldrf.signatures.streams import next_word, open_stream

N_LENGTHS = 7
F = 0.8 ** np.arange(N_LENGTHS)
ANTITHETIC, REPELLING = walks.Coupling(2, True, False), walks.Coupling(4, False, True)
ENGINES = {
    "uniform": (walks.pack_uniform, None),
    "weighted": (walks.pack_weighted, None),
    "antithetic": (walks.pack_uniform, ANTITHETIC),
    "antithetic weighted": (walks.pack_weighted, ANTITHETIC),
    "repelling": (walks.pack_uniform, REPELLING),
    "both": (walks.pack_uniform, walks.Coupling(6, True, True)),
}


def make_law(f, p_halt):
    """Geometric survival, the last length cut off; s_k from the thresholds themselves."""
    go_on = np.full(len(f), round((1 - p_halt) * 2**32), np.uint64)
    go_on[-1] = 0
    return walks.Law(f / np.cumprod(np.append(1.0, go_on[:-1] / 2**32)), go_on)


def make_matrix(name):
    rng = np.random.default_rng(0)
    if name == "star":  # a hub of degree 1000
        leaves = np.arange(1, 1001)
        half = sparse.coo_array((rng.uniform(0.5, 1.5, 1000), (0 * leaves, leaves)), shape=(1001, 1001))
        return ((half + half.T) / 33).tocsr()
    dense = rng.uniform(0.2, 1.0, (12, 12)) * (rng.uniform(size=(12, 12)) < rng.uniform(0.1, 0.9, 12))
    dense = (dense + dense.T) / 8
    if name == "signed":
        dense = np.tril(dense) - 0.5 * np.triu(dense, 1)
    if name == "isolated":
        dense[3], dense[:, 3] = 0.0, 0.0
    return sparse.csr_array(dense)


def pack(matrix, engine="uniform"):
    return ENGINES[engine][0](matrix.indptr, matrix.indices, matrix.data)


def estimate(table, starts, law, key, *, coupling=None, n_walks=24, n_batches=6, stride=0):
    """Dense estimates and variances, (starts, slots)."""
    args = table, np.asarray(starts), law, n_walks, n_batches, stride, key
    found = walks.independent_walks(*args) if coupling is None else walks.coupled_walks(*args, coupling)
    counts, slots, sums, variances, n_steps = found
    n = (len(law.deposit) - 1) * stride + len(table.rows) - 1
    values, spread = np.zeros((len(counts), n)), np.zeros((len(counts), n))
    rows = np.repeat(np.arange(len(counts)), counts)
    assert all(np.all(np.diff(slots[rows == row]) > 0) for row in range(min(len(counts), 20)))
    values[rows, slots], spread[rows, slots] = sums, variances
    assert n_steps >= 0
    return values, spread


def power_rows(matrix, starts, f):
    """(L, starts, N): f_k e_i W^k."""
    row = np.eye(matrix.shape[0])[starts]
    terms = [f[0] * row]
    for value in f[1:]:
        row = row @ matrix
        terms.append(value * row)
    return np.array(terms)


def keys(seed, name, n):
    return Streams.from_seed(seed).generator(name).integers(0, 2**32, (n, 2), dtype=np.uint32)


def replicate(table, start, law, key_list, **options):
    found = [estimate(table, [start], law, key, **options) for key in key_list]
    return np.array([values[0] for values, _ in found]), np.array([spread[0] for _, spread in found])


def reference_row(matrix, start, law, n_walks, key):
    """Algorithm 1 in plain Python: two walkers in turn, each with its own stream."""
    phi, load, node, length = np.zeros(matrix.shape[0]), [1.0, 1.0], [start, start], [0, 0]
    phi[start] = n_walks * law.deposit[0]
    streams, waiting, live, turn = [open_stream(start, lane, key) for lane in (0, 1)], n_walks - 2, [True, True], 0
    while any(live):
        if live[turn]:
            word, *streams[turn] = (int(x) for x in next_word(*map(np.uint64, streams[turn])))
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


WEIGHTED_FIVE = sparse.csr_array(
    [[0, 0.5, 0, 0.2, 0], [0.5, 0, 0.25, 0, 0], [0, 0.25, 0.1, 0.3, 0], [0.2, 0, 0.3, 0, 0.4], [0, 0, 0, 0.4, 0]]
)


def test_uniform_walks_are_algorithm_1_step_by_step(global_seed):
    table, law = pack(WEIGHTED_FIVE), make_law(F, 0.3)
    for key in keys(global_seed, "reference", 5):
        values, _ = estimate(table, range(5), law, key, n_walks=40, n_batches=1)
        expected = [reference_row(WEIGHTED_FIVE, start, law, 40, key) for start in range(5)]
        # Up to the bits of the weights that hold the degrees.
        np.testing.assert_allclose(values, expected, rtol=1e-13)


@pytest.mark.parametrize("engine", ENGINES)
def test_interpreted_functions_give_the_same_numbers(engine):
    key, law, coupling = np.array([3, 4], np.uint32), make_law(F, 0.3), ENGINES[engine][1]
    compiled = [name for name, value in vars(walks).items() if isinstance(value, numba.core.dispatcher.Dispatcher)]
    for matrix in (WEIGHTED_FIVE, make_matrix("signed")):
        expected = estimate(pack(matrix, engine), range(5), law, key, coupling=coupling, n_walks=26)
        with pytest.MonkeyPatch.context() as patch:
            for name in compiled:
                patch.setattr(walks, name, getattr(walks, name).py_func)
            patch.setattr(
                walks, "next_word", lambda *state: tuple(map(np.uint64, next_word(*map(np.uint64, state))))
            )
            patch.setattr(walks, "open_stream", open_stream)
            plain = estimate(pack(matrix, engine), range(5), law, key, coupling=coupling, n_walks=26)
        np.testing.assert_allclose(plain, expected, rtol=1e-12, atol=1e-17)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["irregular", "signed", "isolated", "star"])
def test_estimates_and_their_variances_are_unbiased(engine, name, global_seed):
    matrix, law = make_matrix(name), make_law(F, 0.2)
    table, coupling = pack(matrix, engine), ENGINES[engine][1]
    for start in (0, 3):
        values, spread = replicate(
            table, start, law, keys(global_seed, f"{engine} {name} {start}", 800), coupling=coupling
        )
        exact = power_rows(matrix, [start], F).sum(axis=0)[0]
        # The sums of two halves of the entries, and single entries unless they hang on rare events.
        often = (values != np.median(values, axis=0)).mean(axis=0) > 0.5
        side = np.arange(len(exact)) % 2
        pooled = np.concatenate([values[:, often], values @ np.stack([side, 1 - side], axis=1)], axis=1)
        target = np.concatenate([exact[often], [side @ exact, (1 - side) @ exact]])
        error = pooled.std(axis=0, ddof=1) / np.sqrt(len(pooled))
        assert np.all(np.abs(pooled.mean(axis=0) - target) <= 5 * error + 1e-13)
        # E of the reported variance is the true one: the total over entries, within its replicas' scatter.
        squared = ((values - exact) ** 2).sum(axis=1)
        gap = spread.sum(axis=1) - squared
        assert abs(gap.mean()) <= 5 * gap.std(ddof=1) / np.sqrt(len(gap)) + 1e-13


def test_variance_is_unbiased_when_batches_differ_in_size(global_seed):
    matrix, law = make_matrix("irregular"), make_law(F, 0.2)
    exact = power_rows(matrix, [0], F).sum(axis=0)[0]
    values, spread = replicate(pack(matrix), 0, law, keys(global_seed, "ragged", 2000), n_walks=11, n_batches=4)
    gap = spread.sum(axis=1) - ((values - exact) ** 2).sum(axis=1)
    assert abs(gap.mean()) <= 5 * gap.std(ddof=1) / np.sqrt(len(gap))
    ratio = spread.mean() / values.var(axis=0, ddof=1).mean()
    assert 0.8 < ratio < 1.25
    # More batches than walks: as many as walks. One batch: no variance.
    key = np.array([1, 2], np.uint32)
    same = [estimate(pack(matrix), [0], law, key, n_walks=3, n_batches=b)[1] for b in (3, 50)]
    np.testing.assert_array_equal(*same)
    assert np.isnan(estimate(pack(matrix), [0], law, key, n_walks=3, n_batches=1)[1]).any()


@pytest.mark.parametrize("engine", ENGINES)
def test_lengths_kept_apart_sum_to_the_row_and_estimate_the_powers(engine, global_seed):
    matrix, law = make_matrix("irregular"), make_law(np.ones(N_LENGTHS), 0.1)
    table, coupling, n = pack(matrix, engine), ENGINES[engine][1], matrix.shape[0]
    key_list = keys(global_seed, f"lengths {engine}", 400)
    kept, _ = replicate(table, 2, law, key_list, coupling=coupling, stride=n)
    rows, _ = replicate(table, 2, law, key_list, coupling=coupling)
    kept = kept.reshape(len(kept), N_LENGTHS, n)
    np.testing.assert_allclose(kept.sum(axis=1), rows, rtol=1e-10, atol=1e-14)
    totals, exact = kept.sum(axis=2), power_rows(matrix, [2], np.ones(N_LENGTHS))[:, 0].sum(axis=1)
    error = totals.std(axis=0, ddof=1) / np.sqrt(len(totals))
    assert np.all(np.abs(totals.mean(axis=0) - exact) <= 5 * error + 1e-13)


def test_error_falls_with_the_root_of_the_number_of_walks(global_seed):
    matrix, law = make_matrix("irregular"), make_law(F, 0.2)
    exact = power_rows(matrix, [0], F).sum(axis=0)[0]
    errors = []
    for n_walks in (100, 1600):
        values, _ = replicate(pack(matrix), 0, law, keys(global_seed, f"rate {n_walks}", 200), n_walks=n_walks)
        errors.append(np.sqrt(((values - exact) ** 2).sum(axis=1).mean()))
    assert 3.2 < errors[0] / errors[1] < 5.0  # 4, give or take 5 standard errors of either


def test_long_walks_stay_finite_and_results_depend_on_neither_company_nor_chunks(monkeypatch):
    matrix, key = make_matrix("irregular"), np.array([5, 6], np.uint32)
    law = make_law(np.exp(-np.arange(2000.0)), 0.01)
    together = estimate(pack(matrix), range(12), law, key, n_walks=300)
    assert np.isfinite(together).all()
    monkeypatch.setattr(walks, "_ROOM", 30)
    np.testing.assert_array_equal(estimate(pack(matrix), range(12), law, key, n_walks=300), together)
    np.testing.assert_array_equal(estimate(pack(matrix), [7], law, key, n_walks=300)[0][0], together[0][7])
    empty = walks.independent_walks(pack(matrix), np.zeros(0, np.int64), law, 10, 2, 0, key)
    assert [part.size for part in empty[:4]] == [0, 0, 0, 0]
    assert empty[4] == 0


def test_deposits_that_cancel_keep_their_slot_and_variance():
    # Node 1 is reached with loads +1 (length 1) and -1 (length 3): every walk leaves exactly zero there.
    matrix = sparse.csr_array([[0.0, 1.0], [-1.0, 0.0]])
    law = walks.Law(np.ones(4), np.array([2**32, 2**32, 2**32, 0], np.uint64))
    counts, slots, sums, variances, n_steps = walks.independent_walks(
        pack(matrix), np.array([0, 0]), law, 7, 3, 0, np.array([1, 2], np.uint32)
    )
    assert counts.tolist() == [2, 2]
    assert slots.tolist() == [0, 1, 0, 1]
    np.testing.assert_allclose([sums, variances], 0.0, atol=1e-15)
    assert n_steps == 2 * 7 * 3


def test_repelling_walkers_leave_a_node_by_different_entries(global_seed):
    matrix = make_matrix("star")
    law = walks.Law(np.array([0.0, 1.0]), np.array([2**32, 0], np.uint64))
    key = keys(global_seed, "repelling", 1)[0]
    values, _ = estimate(pack(matrix), [0], law, key, coupling=walks.Coupling(1000, False, True), n_walks=1000)
    np.testing.assert_allclose(values[0], matrix.toarray()[0], rtol=1e-10)
    with pytest.raises(ValueError, match="uniform"):
        estimate(pack(matrix, "weighted"), [0], law, key, coupling=REPELLING)


def test_antithetic_pairs_do_not_die_together(global_seed):
    """The sum of the lengths of a pair varies less than that of two independent walks."""
    matrix, law = sparse.csr_array([[0.0, 1.0], [1.0, 0.0]]), make_law(np.ones(30), 0.5)
    args = pack(matrix), np.zeros(1, np.int64), law, 2, 1, 0
    key_list = keys(global_seed, "antithetic", 2000)
    paired = [walks.coupled_walks(*args, key, ANTITHETIC)[4] for key in key_list]
    free = [walks.independent_walks(*args, key)[4] for key in key_list]
    assert min(paired) == 1  # p = 1/2: exactly one of the two ends at once
    assert np.var(paired) < 0.8 * np.var(free)
    assert abs(np.mean(paired) - 2.0) < 5 * np.std(paired) / np.sqrt(len(paired))


def test_alias_tables_choose_in_proportion_to_the_weights(global_seed):
    rng = Streams.from_seed(global_seed).generator("alias")
    matrix = sparse.random_array(
        (40, 40), density=0.3, rng=rng, data_sampler=lambda size: rng.normal(size=size) ** 3
    )
    matrix = sparse.csr_array(matrix)
    matrix.data[:2] = 0.0
    table = pack(matrix, "weighted")
    chance, threshold = np.zeros(matrix.nnz), (table.alias >> np.uint64(32)) / 2**32
    own = (table.alias & np.uint64(2**32 - 1)).astype(int)
    np.add.at(chance, np.arange(matrix.nnz), threshold)
    np.add.at(chance, own, 1 - threshold)
    degrees = np.diff(matrix.indptr)
    totals = np.repeat(abs(matrix).sum(axis=1), degrees)
    np.testing.assert_allclose(chance / np.repeat(degrees, degrees) * totals, np.abs(matrix.data), atol=1e-7)
    np.testing.assert_allclose(table.edges["weight"], np.sign(matrix.data) * totals, rtol=1e-12, atol=1e-300)
