"""Known values of a field: entries of a series over the roots of the measure, whichever way they are computed."""

import numpy as np
import pytest
from scipy import sparse

from manifoldrf import (
    CosineKernel,
    Counts,
    DiffusionKernel,
    Exact,
    Graph,
    GraphWarning,
    PowerKernel,
    SeriesKernel,
    Sphere,
    Walks,
    knn_graph,
)
from manifoldrf.fields import data
from manifoldrf.fields.data import AbstractField, Problem, SignatureOptions, series_values, signature_table

GRAPH = knn_graph(Sphere().grid(150))
KERNEL = DiffusionKernel(10.0)
SOME, OTHERS = np.array([3, 0, 149, 60]), np.arange(0, 150, 10)
EVERYTHING = np.arange(150)


def setting(kernel=KERNEL, **more):
    return Problem(GRAPH, kernel, GRAPH.degrees, 2, 0.3, **more)


def exact(series, starts, anchors):
    roots = np.sqrt(GRAPH.degrees)
    return (series.dense(GRAPH) / np.outer(roots, roots))[np.ix_(starts, anchors)]


@pytest.mark.parametrize("teacher", ["auto", Exact(form="sparse")])
@pytest.mark.parametrize(
    ("starts", "anchors"),
    [(SOME, OTHERS), (OTHERS, SOME), (EVERYTHING, SOME), (SOME, EVERYTHING), (EVERYTHING, EVERYTHING)],
    ids=["few to many", "many to few", "all to few", "few to all", "all to all"],
)
def test_values_are_signatures_over_the_roots_of_the_measure(starts, anchors, teacher):
    data = signature_table(setting(), starts, anchors, SignatureOptions(teacher=teacher))
    assert isinstance(data.values, sparse.csr_array)
    assert data.values.shape == (len(starts), len(anchors))
    assert data.values.has_sorted_indices
    truth = exact(KERNEL.root(), starts, anchors)
    # Entries below 1e-7 of the largest of their column are left out; teachers are exact up to 1e-8.
    np.testing.assert_allclose(data.values.toarray(), truth, atol=3e-7 * truth.max())
    np.testing.assert_array_equal(data.starts, starts)
    np.testing.assert_array_equal(data.anchors, anchors)


def test_the_kernel_is_the_sum_over_all_nodes_in_units_of_the_measure():
    values = signature_table(setting(), SOME, EVERYTHING, SignatureOptions()).values.toarray()
    np.testing.assert_allclose((values * GRAPH.degrees) @ values.T, exact(KERNEL, SOME, SOME), rtol=1e-5)


def test_asymmetric_values_are_those_of_the_kernel_itself():
    for kernel in (CosineKernel(), KERNEL):
        data = signature_table(setting(kernel, asymmetric=True), SOME, EVERYTHING, SignatureOptions())
        truth = exact(kernel, SOME, EVERYTHING)
        np.testing.assert_allclose(data.values.toarray(), truth, atol=3e-7 * np.abs(truth).max())


def test_walked_values_are_reproduced_by_their_seed():
    def walked(seed):
        return series_values(setting(), KERNEL.root(), SOME, OTHERS, SignatureOptions(Walks(50), seed))

    assert (walked(0) != walked(0)).nnz == 0
    assert (walked(0) != walked(1)).nnz > 0


def test_negligible_entries_are_left_out_and_no_others():
    tight = SignatureOptions(Exact(1e-12))
    values = signature_table(setting(DiffusionKernel(1.0)), EVERYTHING, EVERYTHING, tight).values
    truth = exact(DiffusionKernel(0.5), EVERYTHING, EVERYTHING)
    kept = values.toarray() != 0
    peaks = truth.max(axis=0)
    assert kept[truth > 1.01e-7 * peaks].all()
    assert not kept[truth < 0.99e-7 * peaks].any()
    assert 0 < kept.mean() < 1


def test_nodes_without_measure_have_no_values():
    affinity = np.zeros((4, 4))
    affinity[0, 1] = affinity[1, 0] = affinity[1, 2] = affinity[2, 1] = 1.0
    with pytest.warns(GraphWarning, match="isolated"):
        graph = Graph.from_affinity(affinity, points=np.arange(4.0)[:, None])
    parts = Problem(graph, PowerKernel(4), graph.degrees, 1, 1.0)
    values = signature_table(parts, np.arange(4), np.arange(4), SignatureOptions("exact")).values.toarray()
    assert np.isfinite(values).all()
    assert (values[3] == 0).all()
    assert (values[:, 3] == 0).all()
    assert values[0, 0] > 0


def test_the_series_and_the_unit_of_the_paper():
    assert setting().series == KERNEL.root()
    assert setting(asymmetric=True).series == KERNEL
    assert setting().paper_unit == pytest.approx(np.exp(5.0))  # the root is exp(-5 L), f_0 = exp(-5)
    assert setting(PowerKernel(4)).paper_unit == 1.0  # f_0 is zero
    assert setting(SeriesKernel((4.0, 4.0, 1.0))).paper_unit == pytest.approx(0.5)  # (2 + W)^2


def test_starts_can_be_held_out():
    data = signature_table(setting(), OTHERS, SOME, SignatureOptions())
    rest = data.without(np.array([0, 2]))
    keep = np.delete(np.arange(len(OTHERS)), [0, 2])
    np.testing.assert_array_equal(rest.starts, OTHERS[keep])
    np.testing.assert_array_equal(rest.values.toarray(), data.values.toarray()[keep])
    np.testing.assert_array_equal(rest.anchors, SOME)
    assert (rest.graph, rest.unit, rest.width, rest.dim) == (data.graph, data.unit, data.width, data.dim)
    assert len(data.without(np.array([], dtype=np.int64)).starts) == len(OTHERS)
    assert data.points is GRAPH.points


@pytest.mark.parametrize(("starts", "anchors"), [(EVERYTHING, OTHERS), (OTHERS, EVERYTHING)], ids=["back", "forth"])
@pytest.mark.parametrize("teacher", ["exact", Exact(form="sparse"), Counts(100)])
def test_rows_made_a_few_at_a_time_are_the_same(monkeypatch, starts, anchors, teacher):
    whole = series_values(setting(), KERNEL.root(), starts, anchors, SignatureOptions(teacher, seed=0))
    monkeypatch.setattr(data, "_BLOCK_BYTES", 4 * 8 * GRAPH.n_nodes)  # four rows
    seen = []
    teaching = SignatureOptions(teacher, seed=0, progress=lambda what, done, total: seen.append((done, total)))
    parts = series_values(setting(), KERNEL.root(), starts, anchors, teaching)
    assert (parts != whole).nnz == 0
    assert parts.has_sorted_indices
    n = min(len(starts), len(anchors))
    assert seen == sorted(seen)
    assert seen[-1] == (n, n)  # of all, not of a few


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
def test_the_matrix_of_a_teacher_of_ones_own_is_not_changed(dtype):
    kept = sparse.csr_array(np.rint(100 * KERNEL.root().dense(GRAPH)[SOME]).astype(dtype))
    before = kept.copy()
    first, second = (
        series_values(
            setting(), KERNEL.root(), EVERYTHING, SOME, SignatureOptions(lambda graph, series, nodes: kept)
        )
        for _ in range(2)
    )
    assert (kept != before).nnz == 0
    assert (first != second).nnz == 0
    assert first.dtype == np.float64


def test_a_field_without_a_check_cannot_be_loaded():
    class Plain(AbstractField):
        bounds = np.ones(3)

        def values(self, queries, n_jobs=1):
            return np.ones((len(queries), 3))

    with pytest.raises(TypeError, match="Plain has no `check`, so it cannot be loaded"):
        Plain().check(None, 3)
