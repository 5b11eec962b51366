"""Rows evaluated on reached nodes: exact without a threshold, within the bound with one, and local."""

import functools

import numpy as np
import pytest
from oracles import csr_arrays
from scipy import sparse

import manifoldrf
from manifoldrf.signatures import engines as _engines
from manifoldrf.signatures import frontier as module

HEAT = np.exp(-10.0) * np.cumprod(np.r_[1.0, 10.0 / np.arange(1, 50)])  # exp(-10 (I - W))
SIGNED = np.where(np.arange(30) % 3 == 1, -1.0, 0.7) * 0.9 ** np.arange(30)


@functools.cache
def operator_of(signed, n=120):
    """A sparse symmetric W of norm 1."""
    rng = np.random.default_rng(2)
    weights = np.triu(rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.04))
    weights = weights + weights.T if signed else np.abs(weights + weights.T)
    return sparse.csr_array(weights / np.linalg.norm(weights, 2))


def push(operator, coefficients, starts, threshold=0.0, stride=0):
    return module.push_frontier(*csr_arrays(operator), coefficients, np.array(starts), threshold, stride)


def dense(found, n_slots):
    rows = np.zeros((len(found[0]), n_slots))
    rows[np.repeat(np.arange(len(found[0])), found[0]), found[1]] = found[2]
    return rows


def polynomial(operator, coefficients, starts):
    powers, total = np.eye(operator.shape[0])[starts], 0.0
    for coefficient in coefficients:
        total = total + coefficient * powers
        powers = powers @ operator.toarray()
    return total


@pytest.mark.parametrize("coefficients", [HEAT, SIGNED], ids=["heat", "signed"])
@pytest.mark.parametrize("signed", [False, True])
def test_without_threshold_it_is_the_polynomial(signed, coefficients):
    operator, starts = operator_of(signed), [0, 5, 5, 119, 0]
    found = push(operator, coefficients, starts)
    np.testing.assert_allclose(dense(found, 120), polynomial(operator, coefficients, starts), atol=1e-14)
    assert found[3].tolist() == [0.0] * 5
    for first, second in ((1, 2), (0, 4)):  # nothing is left behind by a start
        np.testing.assert_array_equal(dense(found, 120)[first], dense(found, 120)[second])


@pytest.mark.parametrize("threshold", [1e-4, 1e-6, 1e-8, 1e-10, 1e-12])
@pytest.mark.parametrize("coefficients", [HEAT, SIGNED], ids=["heat", "signed"])
@pytest.mark.parametrize("signed", [False, True])
def test_the_error_is_within_the_bound(signed, coefficients, threshold):
    operator, starts = operator_of(signed), np.arange(0, 120, 7)
    found = push(operator, coefficients, starts, threshold)
    errors = np.linalg.norm(dense(found, 120) - polynomial(operator, coefficients, starts), axis=1)
    assert (errors <= found[3] + 1e-14).all()
    assert (found[3] < 1e4 * threshold).all()  # a bound, not a platitude


def test_the_bound_is_reached_when_all_is_dropped_at_once():
    operator = sparse.csr_array(np.array([[0.0, 0.6, 0.8], [0.6, 0.0, 0.0], [0.8, 0.0, 0.0]]))
    counts, slots, values, bounds, n_touched, n_pushes = push(operator, np.array([1.0, 3.0]), [0], 0.9)
    assert (counts.tolist(), slots.tolist(), values.tolist()) == ([1], [0], [1.0])
    np.testing.assert_allclose(bounds, 3.0, rtol=1e-15)  # |(.6, .8)| times 3
    assert (n_touched.tolist(), n_pushes) == ([1], 2)


@pytest.mark.parametrize("python", [False, True])
def test_five_nodes_as_by_hand(python, monkeypatch):
    if python:
        for name, value in list(vars(module).items()):
            if hasattr(value, "py_func"):
                monkeypatch.setattr(module, name, value.py_func)
    weights = np.array([[0, 1, 2, 0, 0], [1, 0, -1, 3, 0], [2, -1, 1, 0, 0], [0, 3, 0, 0, 4], [0, 0, 0, 4, 0]]) / 8
    x, row, bound = np.eye(5)[0], np.zeros(5), 0.0
    touched = x != 0
    for k, coefficient in enumerate(SIGNED):
        small = (np.abs(x) < 0.05) & (k > 0)
        bound += np.linalg.norm(x[small]) * np.abs(SIGNED[k:]).sum()
        x = np.where(small, 0.0, x)
        row += coefficient * x
        touched |= x != 0
        x = weights @ x
    found = push(sparse.csr_array(weights), SIGNED, [0], 0.05)
    np.testing.assert_allclose(dense(found, 5)[0], row, rtol=1e-14)
    np.testing.assert_allclose(found[3], bound, rtol=1e-13)
    assert found[4] == touched.sum()


@pytest.mark.parametrize("threshold", [0.0, 1e-5])
def test_the_lengths_add_up_to_the_whole(threshold):
    operator, starts = operator_of(signed=True), [3, 50]
    whole, apart = (push(operator, SIGNED, starts, threshold, stride) for stride in (0, 120))
    rows = np.zeros((2, 120))
    for length in dense(apart, 120 * len(SIGNED)).reshape(2, -1, 120).transpose(1, 0, 2):
        rows += length
    np.testing.assert_array_equal(rows, dense(whole, 120))
    for part, same in zip(whole[3:], apart[3:], strict=True):
        np.testing.assert_array_equal(part, same)
    for found in (whole, apart):
        assert (np.diff(found[1][: found[0][0]]) > 0).all()


def touched(side):
    operator = manifoldrf.grid_graph(side, 2).operator
    return push(operator, HEAT, [0, side * side // 2 + side // 2], 1e-9)[4].tolist()


def test_the_work_does_not_depend_on_the_number_of_nodes():
    assert touched(100) == touched(316)
    assert touched(100)[0] == touched(100)[1] < 5000


@pytest.mark.slow
def test_the_work_does_not_depend_on_the_number_of_nodes_up_to_a_million():
    assert touched(1000) == touched(100)


@pytest.mark.parametrize("lengths", [{}, {"keep_lengths": True, "max_length": 60}])
def test_the_order_of_the_nodes_in_memory_changes_only_the_rounding(monkeypatch, lengths):
    graph = manifoldrf.knn_graph(manifoldrf.Sphere().sample(600, seed=0))  # in random order
    kernel, starts = manifoldrf.DiffusionKernel(10.0), np.arange(0, 600, 7)
    options = {"teacher": "frontier", "tol": 1e-12} | lengths
    plain = manifoldrf.compute_signatures(graph, kernel, starts, **options)
    monkeypatch.setattr(_engines, "_LARGE", 1)
    moved = manifoldrf.compute_signatures(graph, kernel, starts, n_jobs=2, **options)
    assert moved.rows.has_canonical_format
    assert abs(moved.rows - plain.rows).max() < 1e-11 * plain.rows.max()  # other entries may be cut off
    if lengths:
        assert moved.lengths.has_canonical_format
        assert abs(moved.lengths - plain.lengths).max() < 1e-11
    few = manifoldrf.compute_signatures(graph, kernel, starts[5:9], **options)
    assert (few.rows != moved.rows[5:9]).nnz == 0  # whatever else is asked
