"""Grids and the Gaussian kernel: errors without tensors are those with them, and the claims hold."""

import dataclasses
import functools

import numpy as np
import pytest

from manifoldrf import DiffusionKernel, Exact, compute_signatures, grid_graph
from reproduction.gaussian_grid import Config, Ring, expected_errors, run, tensor_errors

SMALL = Config(
    dims=(1, 2, 3, 8),
    sides=(5, 9, 15, 25),
    n_walks=1000,
    n_repeats=8,
    n_runs=64,
    panels=(5, 9),
    grids=(4, 8),
    saddle_side=21,
    n_jobs=1,
)


@pytest.fixture(scope="module")
def steps():
    return []


@pytest.fixture(scope="module")
def record(steps):
    return run(SMALL, lambda *step: steps.append(step))


def column(record, d, teacher, name):
    return np.array([row[name] for row in record.tables["errors"] if (row["d"], row["teacher"]) == (d, teacher)])


def kron(vectors):
    return functools.reduce(np.kron, vectors)


@pytest.mark.parametrize("d", [2, 3])
def test_tensorised_errors_are_those_of_the_tensors_themselves(d):
    ring = SMALL.ring(9)
    for runs, limit in zip(ring.estimates("walks")[0], ring.periodised(), strict=True):
        found = runs[:6].reshape(2, 3, 9)
        whole = kron([limit] * d)
        formed = [np.sum((kron(axes[:d]) - whole) ** 2) / np.sum(whole**2) for axes in found]
        # Sums of 729 products of size one: rounding is below 1e-13.
        np.testing.assert_allclose(tensor_errors(found, limit, [d])[:, 0], formed, rtol=1e-10, atol=1e-13)


def test_expected_errors_are_unbiased_and_know_their_standard_error(global_seed):
    """400 experiments of 50 runs with known moments, in 1 and 16 dimensions.

    z = 5 for the means. The spread is good to 1 / sqrt(800) = .035, with heavier tails to .06; five times that.
    """
    rng = np.random.default_rng(global_seed)
    target, noise = np.array([1.0, 0.5, 0.2]), 0.02
    runs = target + noise * rng.standard_normal((400, 50, 3))
    means, errors = np.moveaxis(np.array([expected_errors(part, target, [1, 16]) for part in runs]), 1, 0)
    exact = (1 + 3 * noise**2 / (target @ target)) ** np.array([1, 16]) - 1
    assert (np.abs(means.mean(axis=0) - exact) < 5 * means.std(axis=0) / np.sqrt(400)).all()
    np.testing.assert_allclose(errors.mean(axis=0), means.std(axis=0), rtol=0.3)


@pytest.mark.parametrize("side", [6, 7])
def test_the_axes_make_up_the_signature_and_the_kernel_of_the_whole_grid(side):
    graph = grid_graph(side, 2)
    kernel = DiffusionKernel(graph.steps(SMALL.sigma**2 / 2, dim=2))
    centre = (side + 1) * (side // 2)
    ring = SMALL.ring(side)
    to_field, to_kernel = ring.scale
    (fields, kernels), _ = ring.estimates("exact")
    signature = compute_signatures(graph, kernel, [centre], teacher=Exact(1e-14)).rows[0]
    np.testing.assert_allclose(kron([fields[0]] * 2), to_field**2 * signature, atol=1e-9)
    np.testing.assert_allclose(kron([kernels[0]] * 2), to_kernel**4 * kernel.dense(graph)[centre], atol=1e-9)


def test_limits_are_sums_over_images():
    ring = SMALL.ring(11)
    shifted = dataclasses.replace(ring, side=11).offsets[:, None] + np.arange(-6, 7)
    field, kernel = ring.periodised()
    height = (2 / (np.pi * 0.04)) ** 0.25
    np.testing.assert_allclose(field, height * np.exp(-(shifted**2) / 0.04).sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(kernel, np.exp(-(shifted**2) / 0.08).sum(axis=1), rtol=1e-12)
    plain_field, plain_kernel = ring.plain()
    assert (plain_field < field).all()
    assert (plain_kernel < kernel).all()


@pytest.mark.parametrize("teacher", ["walks", "counts"])
def test_copies_of_a_start_are_independent_unbiased_and_know_their_variance(teacher, global_seed):
    """1200 copies on 15 nodes; z = 5 on a mean and two correlations: false alarm below 1e-5."""
    ring = Ring(15, 0.2, n_runs=1200, n_walks=200, p_halt=0.005, seed=global_seed)
    rows, predicted = ring.rows(teacher, 1200)
    exact = ring.rows("exact", 1)[0][0]
    gaps = rows - exact
    projections = gaps @ exact  # one number a copy: its mean is zero
    assert abs(projections.mean()) < 5 * projections.std() / np.sqrt(1200)
    for lag in (1, 15):  # the next node of the same call; the same node of the next call
        products = projections[lag:] * projections[:-lag]
        assert abs(products.mean()) < 5 * products.std() / np.sqrt(len(products))
    squares = (gaps**2).sum(axis=1)
    # Both are means of 1200 numbers, the prediction of differences between few batches: three times the spread.
    assert predicted == pytest.approx(squares.mean(), abs=5 * 3 * squares.std() / np.sqrt(1200))


@pytest.mark.parametrize("name", ["psi", "kernel"])
def test_exact_errors_fall_with_n_in_every_dimension(record, name):
    for d in SMALL.dims:
        errors = column(record, d, "exact", name)
        assert (np.diff(errors) < 0).all()
        assert errors[-1] > 0


def test_all_claims_hold(record):
    assert len(record.tables["claims"]) == 6
    for row in record.tables["claims"]:
        assert row["holds"], row
