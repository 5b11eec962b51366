"""Grids and the Gaussian kernel: errors without tensors are those with them, and the claims hold."""

import dataclasses
import functools
import itertools
import json

import numpy as np
import pytest

from manifoldrf import DiffusionKernel, compute_signatures, grid_graph
from reproduction.gaussian_grid import (
    SIZES,
    TEACHERS,
    Config,
    Ring,
    expected_errors,
    kernel_rows,
    run,
    tensor_errors,
)
from reproduction.record import Record

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


def test_expected_errors_are_means_over_all_pairs_of_different_runs():
    rng = np.random.default_rng(0)
    target, runs = np.array([1.0, 0.5]), np.array([1.0, 0.5]) + 0.1 * rng.random((5, 2))
    pairs = np.array(list(itertools.permutations(range(5), 2)))
    mean, _ = expected_errors(runs, target, [2])
    assert mean[0] == pytest.approx(tensor_errors(runs[pairs], target, [2]).mean(), rel=1e-10)


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


def test_tensorised_errors_far_below_rounding_keep_their_digits():
    """Perturbed by 1e-9 across the target, in one axis of four: the squared error is 1e-18."""
    target = np.array([0.6, 0.8])
    factors = np.tile(target, (1, 4, 1))
    factors[0, 2] += 1e-9 * np.array([-0.8, 0.6])
    assert tensor_errors(factors, target, [4])[0, 0] == pytest.approx(1e-18, rel=1e-6)


def test_kernel_rows_are_inner_products_of_turned_signatures():
    rng = np.random.default_rng(0)
    first, second = rng.random((2, 3, 7))
    at = np.arange(7) - 7 // 2  # nodes y minus the centre
    direct = [[x @ np.roll(y, turn) for turn in at] for x, y in zip(first, second, strict=True)]
    np.testing.assert_allclose(kernel_rows(first, second), direct, atol=1e-14)


@pytest.mark.parametrize("side", [6, 7])
def test_the_axes_make_up_the_signature_and_the_kernel_of_the_whole_grid(side):
    graph = grid_graph(side, 2)
    kernel = DiffusionKernel(graph.steps(SMALL.sigma**2 / 2, dim=2))
    centre = (side + 1) * (side // 2)
    ring = SMALL.ring(side)
    to_field, to_kernel = ring.scale
    (fields, kernels), _ = ring.estimates("exact")
    signature = compute_signatures(graph, kernel, [centre], teacher="exact").rows[0]
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


def test_threads_do_not_change_the_walks():
    one, two = (dataclasses.replace(SMALL.ring(9), n_jobs=jobs).rows("walks", 12)[0] for jobs in (1, 2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", ["psi", "kernel"])
def test_exact_errors_fall_with_n_in_every_dimension(record, name):
    for d in SMALL.dims:
        errors = column(record, d, "exact", name)
        assert (np.diff(errors) < 0).all()
        assert errors[-1] > 0


@pytest.mark.parametrize("name", ["psi", "kernel"])
def test_exact_errors_fall_like_the_fourth_power_of_n_in_32_dimensions(name):
    sides = np.array([65, 85, 105])
    errors = [SMALL.ring(int(side)).errors("exact", [32], 2)[0][name] for side in sides]
    # The next term is of relative size (h / sigma)^2 < .006 an axis, and there are 32: a few hundredths.
    assert np.polyfit(np.log(sides), np.log(errors), 1)[0] == pytest.approx(-4, abs=0.1)


def test_against_the_plain_gaussian_the_kernel_stops_at_the_images(record):
    for d in SMALL.dims:
        ring = SMALL.ring(SMALL.sides[-1])
        gap = tensor_errors(np.tile(ring.periodised()[1], (1, 8, 1)), ring.plain()[1], [d])[0, 0]
        errors = column(record, d, "exact", "kernel_plain")
        assert errors[-1] == pytest.approx(gap, rel=0.3)  # what is left of the discretisation
        assert errors[-1] > 3 * column(record, d, "exact", "kernel")[-1]


def test_all_claims_hold(record):
    assert len(record.tables["claims"]) == 6
    for row in record.tables["claims"]:
        assert row["holds"], row


@pytest.mark.parametrize("name", ["psi", "kernel"])
def test_noise_of_walks_grows_with_n_and_with_d_and_that_of_counts_is_smaller(record, name):
    for d in SMALL.dims:
        walks, counts = (column(record, d, teacher, f"{name}_noise") for teacher in ("walks", "counts"))
        assert walks[-1] > 2 * walks[0]  # between neighbours the estimate of the variance, of 32 rows, decides
        assert (counts < walks / 5).all()
    largest = [column(record, d, "walks", f"{name}_noise")[-1] for d in SMALL.dims]
    assert (np.diff(largest) > 0).all()


def test_more_walks_lower_the_noise_in_proportion():
    few, many = (dataclasses.replace(SMALL.ring(15), n_walks=n).errors("walks", [4], 2)[0] for n in (500, 8000))
    # Sixteen times as many; sums over 64 runs of eight batches each are good to a few per cent.
    assert few["psi_noise"] / many["psi_noise"] == pytest.approx(16, rel=0.25)


def test_constants_are_right_and_one_of_them_serves_one_limit_only(record):
    for row in record.tables["constants"]:
        d, n = row["d"], row["n"]
        assert row["log10_for_psi"] == pytest.approx(d * np.log10((2 * np.pi * 0.04) ** 0.25 * n))
        assert row["log10_for_psi"] - row["log10_for_kernel"] == pytest.approx(d / 2 * np.log10(n))
        assert row["psi_ratio"] == pytest.approx(1, abs=0.003 * d)  # (h / sigma)^2 / 16 an axis
        assert row["kernel_ratio"] == pytest.approx(1, abs=0.003 * d)
        assert row["psi_ratio_with_kernel_constant"] == pytest.approx(row["psi_ratio"] * n ** (-d / 2))


def test_the_record_has_every_setting_and_survives_saving(record, tmp_path):
    assert record.name == "gaussian_grid"
    rows = {(row["d"], row["n"], row["teacher"]) for row in record.tables["errors"]}
    assert rows == {(d, n, teacher) for d in SMALL.dims for n in SMALL.sides for teacher in TEACHERS}
    again = Record.load(record.save(tmp_path))
    assert again.tables == record.tables
    assert again.config == json.loads(json.dumps(record.config))
    assert again.config["seed"] == 0
    assert set(again.arrays) == set(record.arrays)


def test_the_record_has_what_the_figures_show(record):
    for side in SMALL.panels:
        for name in ("kernel", "psi"):
            exact, found = (record.arrays[f"panel_{side}_{name}{end}"] for end in ("_exact", ""))
            assert exact.shape == found.shape == (side, side)
            assert np.unravel_index(exact.argmax(), exact.shape) == (side // 2, side // 2)
    for side in SMALL.grids:
        signature = record.arrays[f"grid_{side}"]
        assert np.unravel_index(signature.argmax(), signature.shape) == (side // 2, side // 2)
        # A row of Phi sums to one; Algorithm 1 with p_halt = .005 keeps that to a few per cent with 1000 walks.
        assert signature.sum() == pytest.approx(1, abs=0.1)
    peak = 1 / (4 * np.pi * SMALL.saddle_t)
    assert record.arrays["saddle_kernel"].max() == pytest.approx(peak, rel=0.05)  # curvature lowers it a little
    values = record.arrays["saddle_values"]
    assert (values[0] > values[1:]).all()


def test_progress_runs_from_start_to_end(record, steps):
    done, totals = [step[1] for step in steps], {step[2] for step in steps}
    assert done == list(range(len(done)))
    assert totals == {done[-1]}


def test_sizes_are_the_papers_and_a_quick_one():
    paper = SIZES["paper"]
    assert paper == Config()
    assert (paper.dims[0], paper.dims[-1], len(paper.dims)) == (2, 32, 16)
    assert (paper.sides[0], paper.sides[-1], len(paper.sides)) == (5, 105, 11)
    assert SIZES["smoke"].n_walks * SIZES["smoke"].n_runs < 100_000


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"dims": (4, 2)}, r"`dims` must be a tuple of growing integers in \[1, inf\)\. Got \(4, 2\)"),
        ({"dims": (0, 2)}, r"`dims` must be an integer in \[1, inf\)\. Got 0"),
        ({"sides": (2, 5)}, r"`sides` must be an integer in \[3, inf\)\. Got 2"),
        ({"sigma": 0.0}, r"`sigma` must be a number in \(0, inf\)\. Got 0"),
        ({"p_halt": 1.0}, r"`p_halt` must be a number in \(0, 1\)\. Got 1"),
        ({"n_walks": 7}, r"`n_walks` must be an integer in \[8, inf\)\. Got 7"),
        ({"n_repeats": 1}, r"`n_repeats` must be an integer in \[2, inf\)\. Got 1"),
        ({"n_runs": 15}, r"`n_runs` must be an integer in \[16, inf\)\. Got 15"),
        ({"saddle_side": 3}, r"`saddle_side` must be an integer in \[11, inf\)\. Got 3"),
        ({"seed": -1}, r"`seed` must be an integer in \[0, inf\)\. Got -1"),
    ],
)
def test_wrong_settings_are_named(wrong, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **wrong)


@pytest.mark.parametrize("wrong", [(), [2, 4], 5])
def test_dimensions_are_a_tuple(wrong):
    with pytest.raises(TypeError, match="`dims` must be a tuple of growing integers"):
        dataclasses.replace(SMALL, dims=wrong)
