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

from manifoldrf import DiffusionKernel, Graph, GraphRandomFeatures, compute_signature_pair, compute_signatures

EPS = np.finfo(np.float64).eps
# Short series, so that a walk of each of a few starts takes microseconds.
SHORT = st.builds(DiffusionKernel, st.floats(0.0, 5.0))
MONTE_CARLO = st.sampled_from(["walks", "counts"])
OPTIONS = {
    "tol": mostly(st.sampled_from([1e-4, 1e-8, 1e-12])),
    "n_walks": mostly(st.integers(1, 40)),
    "p_halt": mostly(st.floats(0.05, 0.9)),
    "max_length": mostly(st.one_of(st.integers(0, 40), st.sampled_from([None, "auto"]))),
    "survival": mostly(st.sampled_from(["geometric", "matched"])),
    "transitions": mostly(st.sampled_from(["uniform", "weighted"])),
    "coupling": mostly(st.sampled_from(["independent", "antithetic", "repelling"])),
    "n_batches": mostly(st.integers(1, 8)),
    "n_stitches": mostly(st.integers(1, 3)),
    "keep_lengths": mostly(st.booleans()),
}
COMMON = ("max_length", "keep_lengths")
OWN = {
    "exact": ("tol", *COMMON),
    "frontier": ("tol", *COMMON),
    "walks": tuple(name for name in OPTIONS if name != "tol"),
    "counts": ("n_walks", "p_halt", "survival", "n_batches", "n_stitches", *COMMON),
}


def dense_rows(signatures):
    return signatures.rows.toarray() if sparse.issparse(signatures.rows) else signatures.rows


def root_rows(kernel, graph):
    """Rows of the root, by eigendecomposition."""
    return kernel.root().dense(graph)


@holds_for(kernel=POSITIVE_KERNELS, graph=graphs(), teacher=st.sampled_from(["exact", "frontier", "auto"]))
def test_exact_teachers_are_within_their_bound_and_nonnegative(kernel, graph, teacher):
    for signatures in Outcomes().of(compute_signatures, graph, kernel, teacher=teacher):
        rows, exact = dense_rows(signatures), root_rows(kernel, graph)
        assert np.isfinite(rows).all()
        assert (rows >= 0).all()
        rounding = 100 * graph.n_nodes * EPS * float(kernel.root().spectral(np.ones(1))[0])
        assert np.linalg.norm(rows - exact, axis=1).max() <= signatures.info.error_bound + rounding
        gram = signatures.gram()
        np.testing.assert_allclose(gram, gram.T, rtol=0, atol=1e-13 * np.abs(gram).max(initial=0.0))


@holds_for(kernel=POSITIVE_KERNELS, graph=graphs(), seed=SEEDS)
def test_exact_signatures_follow_the_order_of_the_nodes(kernel, graph, seed):
    order = shuffled(graph.n_nodes, seed)
    other = quietly(Graph.from_affinity, graph.affinity.toarray()[np.ix_(order, order)])
    one = dense_rows(compute_signatures(graph, kernel, teacher="exact", n_jobs=1))
    two = dense_rows(compute_signatures(other, kernel, np.arange(other.n_nodes)[::-1], teacher="exact", n_jobs=2))
    height = float(kernel.root().spectral(np.ones(1))[0])
    np.testing.assert_allclose(two[::-1], one[np.ix_(order, order)], rtol=0, atol=(2e-10 + 1e-12) * height)


@holds_for(kernel=SHORT, graph=graphs(), teacher=MONTE_CARLO, seed=SEEDS, n_walks=st.integers(1, 60))
def test_walked_rows_depend_on_the_seed_alone(kernel, graph, teacher, seed, n_walks):
    settings = {"teacher": teacher, "n_walks": n_walks, "seed": seed}
    whole = compute_signatures(graph, kernel, n_jobs=1, **settings)
    rows = dense_rows(whole)
    assert np.isfinite(rows).all()
    assert (rows >= 0).all()
    # No walk leaves its component.
    assert not rows[graph.components[:, None] != graph.components].any()
    some = np.arange(graph.n_nodes)[::-2]
    part = compute_signatures(graph, kernel, some, n_jobs=2, **settings)
    np.testing.assert_array_equal(dense_rows(part), rows[some])
    assert whole.stderr is None or (whole.stderr.data >= 0).all()


def test_any_options_of_a_teacher_are_refused_with_a_reason_or_make_finite_rows():
    outcomes = Outcomes()

    @holds_for(
        data=st.data(),
        kernel=st.one_of(SHORT, SHORT, SIMPLE_KERNELS),
        graph=graphs(10),
        teacher=mostly(st.sampled_from(sorted(OWN))),
        seed=SEEDS,
    )
    def check(data, kernel, graph, teacher, seed):
        own = OWN.get(teacher) if isinstance(teacher, str) else None
        given = data.draw(options({name: OPTIONS[name] for name in own or OPTIONS}))
        for signatures in outcomes.of(compute_signatures, graph, kernel, [0], teacher=teacher, seed=seed, **given):
            rows = dense_rows(signatures)
            assert rows.shape == (1, graph.n_nodes)
            assert np.isfinite(rows).all()
            assert (rows >= 0).all()

    check()
    assert outcomes.both_happened(0.2), outcomes.counts


@holds_for(
    one=SHORT, two=SHORT, graph=graphs(10), teacher=st.sampled_from(["frontier", "walks", "counts"]), seed=SEEDS
)
def test_reweighted_rows_are_those_of_a_new_computation(one, two, graph, teacher, seed):
    settings = {"teacher": teacher, "keep_lengths": True, "max_length": 40, "seed": seed}
    settings |= {"n_walks": 20} if teacher != "frontier" else {}
    kept = compute_signatures(graph, one, [0], **settings).reweight(two)
    again = compute_signatures(graph, two, [0], **settings)
    np.testing.assert_array_equal(kept.rows.toarray(), again.rows.toarray())


@holds_for(kernel=SIMPLE_KERNELS, graph=graphs())
def test_the_asymmetric_pair_serves_every_kernel(kernel, graph):
    for first, second in Outcomes().of(compute_signature_pair, graph, kernel, asymmetric=True, teacher="exact"):
        dense = kernel.dense(graph)
        height = float(np.abs(kernel.spectral(np.linspace(-1, 1, 2001))).max())
        np.testing.assert_allclose(first.gram(second), dense, rtol=0, atol=1e-9 * height)


@holds_for(
    kernel=POSITIVE_KERNELS,
    graph=graphs(),
    coupling=st.sampled_from(["shared", "independent", "asymmetric"]),
    seed=SEEDS,
)
def test_features_of_nodes_are_nonnegative_and_multiply_to_the_kernel(kernel, graph, coupling, seed):
    features = GraphRandomFeatures(graph, kernel, coupling=coupling, teacher="frontier", random_state=seed)
    for fitted in Outcomes().of(features.fit):
        nodes = np.arange(graph.n_nodes)
        first, second = fitted.transform(nodes), fitted.transform_second(nodes)
        for rows in (first, second):
            assert np.isfinite(rows.data).all()
            assert (rows.data >= 0).all()
        dense = kernel.dense(graph)
        # Rows are off by 1e-8 of the largest value of the series they sum.
        height = float(kernel.spectral(np.ones(1))[0])
        np.testing.assert_allclose((first @ second.T).toarray(), dense, rtol=0, atol=3e-8 * height)
        np.testing.assert_array_equal(fitted.transform(nodes[:1]).toarray(), first[[0]].toarray())
        columns = np.random.default_rng(seed).standard_normal((graph.n_nodes, 2))
        size = height * np.linalg.norm(columns, axis=0).max()
        np.testing.assert_allclose(fitted.apply(columns), dense @ columns, rtol=0, atol=3e-8 * len(nodes) * size)


def test_any_options_of_features_of_nodes_are_refused_with_a_reason_or_work():
    outcomes = Outcomes()
    choices = {
        "teacher": mostly(st.sampled_from(["auto", *OWN])),
        "coupling": mostly(st.sampled_from(["shared", "independent", "asymmetric"])),
        "n_components": mostly(st.integers(1, 6)),
        "options": mostly(st.sampled_from([None, {}, {"n_walks": 20}, {"tol": 1e-6}])),
        "random_state": mostly(SEEDS),
        "n_jobs": mostly(st.sampled_from([1, 2, -1])),
    }

    @holds_for(kernel=st.one_of(SHORT, SIMPLE_KERNELS), graph=graphs(10), given=options(choices))
    def check(kernel, graph, given):
        made = outcomes.of(lambda: GraphRandomFeatures(graph, kernel, **given).fit())
        for features in made:
            for rows in outcomes.of(features.transform, [0]):
                values = rows.data if sparse.issparse(rows) else rows
                assert rows.shape == (1, features.n_features_out_)
                assert np.isfinite(values).all()
                assert (
                    given.get("n_components") is not None
                    or (values >= 0).all()
                    or features.coupling == "asymmetric"
                )

    check()
    assert outcomes.both_happened(), outcomes.counts
