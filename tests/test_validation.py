"""Every validator refuses bad values with the argument, the rule and the value."""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse

from manifoldrf import _validation as v

integer = partial(v.check_integer, name="x", low=1, high=3999)
real = partial(v.check_real, name="x", interval=v.POSITIVE)
points = partial(v.check_points, name="x", n_columns=3)
vector = partial(v.check_vector, name="x", length=3, interval=v.POSITIVE)
indices = partial(v.check_indices, name="x", n_items=5)
faces = partial(v.check_faces, name="x", n_vertices=4)
text = partial(v.refuse_text, name="x")
count = partial(v.check_count, name="x", low=1, words=("auto", "all"))

# (validator, value, kind of error, what the message has after "`x` must be ")
BAD = [
    (integer, 5000, ValueError, r"an integer in \[1, 3999\]\. Got 5000"),
    (integer, 2.0, TypeError, r"Got 2\.0"),
    (integer, True, TypeError, "Got True"),
    (integer, "8", TypeError, "Got '8'"),
    (real, 0.0, ValueError, r"a number in \(0, inf\)\. Got 0\.0"),
    (real, float("nan"), ValueError, "Got nan"),
    (real, "0.1", TypeError, r"Got '0\.1'"),
    (real, 1j, TypeError, "Got 1j"),
    (real, 10**5000, ValueError, "Got an integer of 5001 digits"),  # Python prints at most 4300
    (partial(v.check_integer, name="x", low=1), 10**400, ValueError, r"\[1, 1e\+300\]\. Got an integer of 401"),
    (partial(v.check_flag, name="x"), 1, TypeError, "True or False"),
    (partial(v.check_option, name="x", options=("a", "b")), "c", ValueError, "one of 'a', 'b'. Got 'c'"),
    (count, "many", ValueError, "one of 'auto', 'all'. Got 'many'"),
    (count, 0, ValueError, r"\[1, inf\)\. Got 0"),
    (v.check_jobs, 0, ValueError, None),
    (v.check_jobs, 1.5, TypeError, None),
    (points, [1.0, 2.0], ValueError, r"\(n, 3\)\. Got shape \(2,\)"),
    (points, np.zeros((0, 3)), ValueError, r"at least 1 row.*Got shape \(0, 3\)"),
    (points, [[0, 0, np.nan]], ValueError, r"finite, without NaN or inf\. Got nan at index \(0, 2\)"),
    (points, [[1e300, 0, 0]], ValueError, r"below 1e\+150 in size\. Got 1e\+300 at index \(0, 0\)"),
    (points, [[10**400, 0, 0]], ValueError, "Got an integer of 401 digits at index"),
    (points, [["a", "b", "c"]], TypeError, "numbers. Got list of dtype <U1"),
    (points, [[1, 2], [3]], TypeError, "rows of equal length"),
    (points, [[None, 1, 2]], TypeError, r"numbers\. Got None at index \(0, 0\)"),
    (points, np.array([[1, "2", 3]], object), TypeError, r"Got '2' at index \(0, 1\)"),
    (points, None, TypeError, "Got None"),
    (points, np.ma.masked_equal([[1, 2, 3]], 2), ValueError, "without masked entries"),
    (points, torch.ones(2, 3, requires_grad=True), TypeError, "numbers. Got Tensor: Can't call numpy"),
    (points, np.zeros((2, 3), complex), TypeError, "dtype complex128"),
    (points, sparse.csr_array((2, 3)), TypeError, "Got csr_array"),
    (points, Path("cloud.npy"), TypeError, "not the name of a file"),
    (points, pd.DataFrame([[1.0, np.nan, 0.0]]), ValueError, r"Got nan at index \(0, 1\)\."),
    (points, pd.DataFrame({"a": [1.0], "b": ["x"], "c": [2.0]}), TypeError, "column 'b'"),
    (points, pl.DataFrame({"a": [1.0], "b": ["x"], "c": [2.0]}), TypeError, "column 'b'"),
    (points, pd.DataFrame(np.zeros((2, 3)), columns=["a", "a", "b"]), ValueError, "'a' several times"),
    (text, np.full((2, 2), "1.5"), TypeError, "dtype <U3"),
    (text, np.zeros((2, 2), "datetime64[s]"), TypeError, "datetime64"),
    (text, pd.DataFrame({"x": [1.0], "day": [pd.Timestamp("2026-11-17")]}), TypeError, "column 'day'"),
    (text, np.zeros((2, 2), complex), ValueError, "real numbers"),
    (vector, [1.0, 2.0], ValueError, r"\(3,\)\. Got shape \(2,\)"),
    (vector, [1.0, 0.0, 2.0], ValueError, r"entries in \(0, inf\)\. Got 0\.0 at index 1"),
    (indices, [0, 5], ValueError, r"integers in \[0, 4\]\. Got 5 at index \(1,\)"),
    (indices, [0.5], TypeError, "dtype float64"),
    (indices, [True, False], TypeError, "flatnonzero"),
    (indices, [], ValueError, "non-empty"),
    (faces, [[0, 1, 2, 3]], ValueError, "triangles"),
    (faces, [[0, 1, 99]], ValueError, r"\[0, 3\]\. Got 99 at index \(0, 2\)"),
    (partial(v.check_spread, name="x"), np.array([[0.0], [1e-200]]), ValueError, "spread"),
]  # fmt: skip


@pytest.mark.parametrize(("check", "value", "kind", "message"), BAD, ids=range(len(BAD)))
def test_bad_values_are_refused_by_argument_rule_and_value(check, value, kind, message):
    with pytest.raises(
        kind, match="`n_jobs` must be -1" if message is None else f"^`x` must be .*{message}"
    ) as caught:
        check(value)
    assert caught.value.argument in ("x", "n_jobs")


def test_good_values_pass():
    assert type(integer(np.uint8(7))) is int
    assert v.check_flag(np.True_, "x") is True
    assert count("all") == "all"
    array = np.ones((5, 3))
    assert points(array) is array  # not copied
    for dtype in (np.int32, np.float16, np.float32, object, bool):
        assert points(np.ones((2, 3), dtype)).dtype == np.float64
    frame = pd.DataFrame({"_mask": [1.0, 2.0], "b": [3.0, 4.0]})  # as masked arrays have one
    np.testing.assert_array_equal(v.as_floats(frame, "x"), [[1.0, 3.0], [2.0, 4.0]])
    text(np.array([[1.0, None]], object))  # left to whoever converts them


def test_intervals_print_as_in_a_textbook_and_respect_their_ends():
    half_open = v.Interval(0.0, 1.0, high_open=True)
    assert (str(half_open), 0.0 in half_open, 1.0 in half_open) == ("[0, 1)", True, False)
    assert (0.0 in v.POSITIVE, 0.0 in v.NONNEGATIVE) == (False, True)


def test_long_values_are_cut():
    with pytest.raises(ValueError, match=r"`t` must be a number\. Got x{500} \.\.\.\."):
        v.reject("t", "a number", "x" * 600)


def test_far_too_many_jobs_are_all_cores_with_a_warning():
    cores = v.check_jobs(-1)
    assert v.check_jobs(4 * cores) == 4 * cores  # more threads than cores are slow, but they end
    for n_jobs in (4 * cores + 1, 10**400):
        with pytest.warns(UserWarning, match=f"{cores} threads are used"):
            assert v.check_jobs(n_jobs) == cores


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_entries_of_sparse_matrices_are_named_by_row_and_column(bad):
    with pytest.raises(ValueError, match=r"`A` must be finite, with.* Got .* at index \(2, 1\)\."):
        v.check_finite(sparse.csr_array(([1.0, bad], ([0, 2], [2, 1])), shape=(3, 3)), "A")
    v.check_finite(sparse.csr_array((3, 3)), "A")
