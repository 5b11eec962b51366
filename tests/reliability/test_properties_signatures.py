"""Signatures by every teacher: a documented error, or rows that are nonnegative, within bounds and repeatable."""

import numpy as np
from hypothesis import strategies as st
from reliability.strategies import (
    POSITIVE_KERNELS,
    SEEDS,
    SIMPLE_KERNELS,
    Outcomes,
    graphs,
    holds_for,
    mostly,
    options,
    quietly,
    shuffled,
)
from scipy import sparse

from manifoldrf import Counts, DiffusionKernel, Exact, Graph, GraphRandomFeatures, Walks, compute_signatures

EPS = np.finfo(np.float64).eps
# Short series, so that a walk of each of a few starts takes microseconds.
SHORT = st.builds(DiffusionKernel, st.floats(0.0, 5.0))
OPTIONS = {
    Exact: {
        "tol": mostly(st.sampled_from([1e-4, 1e-8, 1e-12])),
        "form": mostly(st.sampled_from(["auto", "dense", "sparse"])),
    },
    Walks: {
        "n_walks": mostly(st.integers(1, 40)),
        "p_halt": mostly(st.floats(0.05, 0.9)),
        "coupling": mostly(st.sampled_from(["iid", "antithetic", "repelling"])),
        "transitions": mostly(st.sampled_from(["uniform", "weighted"])),
        "survival": mostly(st.sampled_from(["geometric", "matched"])),
        "truncate": mostly(st.booleans()),
        "n_batches": mostly(st.integers(1, 8)),
    },
    Counts: {"n_walks": mostly(st.integers(1, 40)), "n_batches": mostly(st.integers(1, 8))},
}


def dense_rows(signatures):
    return signatures.rows.toarray() if sparse.issparse(signatures.rows) else signatures.rows


@holds_for(kernel=POSITIVE_KERNELS, graph=graphs(), form=st.sampled_from(["auto", "dense", "sparse"]))
def test_exact_rows_are_within_their_bound_and_nonnegative(kernel, graph, form):
    for signatures in Outcomes().of(compute_signatures, graph, kernel, teacher=Exact(form=form)):
        rows, exact = dense_rows(signatures), kernel.root().dense(graph)
        assert np.isfinite(rows).all()
        assert (rows >= 0).all()
        rounding = 100 * graph.n_nodes * EPS * float(kernel.root().spectral(np.ones(1))[0])
        assert np.linalg.norm(rows - exact, axis=1).max() <= signatures.error_bound + rounding


@holds_for(kernel=POSITIVE_KERNELS, graph=graphs(), seed=SEEDS)
def test_exact_signatures_follow_the_order_of_the_nodes(kernel, graph, seed):
    order = shuffled(graph.n_nodes, seed)
    other = quietly(Graph.from_affinity, graph.affinity.toarray()[np.ix_(order, order)])
    one = dense_rows(compute_signatures(graph, kernel, n_jobs=1))
    two = dense_rows(compute_signatures(other, kernel, np.arange(other.n_nodes)[::-1], n_jobs=2))
    height = float(kernel.root().spectral(np.ones(1))[0])
    np.testing.assert_allclose(two[::-1], one[np.ix_(order, order)], rtol=0, atol=3e-8 * height)


@holds_for(kernel=SHORT, graph=graphs(), teacher=st.sampled_from([Walks, Counts]), seed=SEEDS, n=st.integers(1, 60))
def test_walked_rows_depend_on_the_seed_alone(kernel, graph, teacher, seed, n):
    whole = compute_signatures(graph, kernel, n_jobs=1, teacher=teacher(n), seed=seed)
    rows = dense_rows(whole)
    assert np.isfinite(rows).all()
    assert (rows >= 0).all()
    # No walk leaves its component.
    assert not rows[graph.components[:, None] != graph.components].any()
    some = np.arange(graph.n_nodes)[::-2]
    part = compute_signatures(graph, kernel, some, n_jobs=2, teacher=teacher(n), seed=seed)
    np.testing.assert_array_equal(dense_rows(part), rows[some])
    assert whole.stderr is None or (whole.stderr.data >= 0).all()


def test_any_options_of_a_teacher_are_refused_with_a_reason_or_make_finite_rows():
    outcomes = Outcomes()

    @holds_for(
        data=st.data(),
        kernel=st.one_of(SHORT, SHORT, SIMPLE_KERNELS),
        graph=graphs(10),
        kind=st.sampled_from([Exact, Walks, Counts]),
        seed=SEEDS,
    )
    def check(data, kernel, graph, kind, seed):
        given = data.draw(options(OPTIONS[kind]))
        for teacher in outcomes.of(kind, **given):
            features = GraphRandomFeatures(kernel, graph=graph, teacher=teacher, random_state=seed, n_jobs=1)
            for rows in outcomes.of(features.fit_transform, [0]):
                assert rows.shape == (1, graph.n_nodes)
                assert np.isfinite(rows.data).all()
                assert (rows.data >= 0).all()

    check()
    assert outcomes.both_happened(0.2), outcomes.counts


@holds_for(kernel=SIMPLE_KERNELS, graph=graphs())
def test_the_asymmetric_pair_serves_every_kernel(kernel, graph):
    for found in Outcomes().of(compute_signatures, graph, kernel, asymmetric=True):
        height = float(np.abs(kernel.spectral(np.linspace(-1, 1, 2001))).max())
        np.testing.assert_allclose(found.gram(), kernel.dense(graph), rtol=0, atol=3e-8 * height)
