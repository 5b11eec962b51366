"""Every validator refuses bad values with the argument, the rule and the value."""

from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse

from manifoldrf import _validation as v


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (5000, ValueError, r"`n_neighbors` must be an integer in \[1, 3999\]\. Got 5000\."),
        (0, ValueError, r"`n_neighbors` must be an integer in \[1, 3999\]\. Got 0\."),
        (2.0, TypeError, r"`n_neighbors` must be an integer in \[1, 3999\]\. Got 2\.0\."),
        (True, TypeError, r"Got True\."),
        (None, TypeError, r"Got None\."),
        ("8", TypeError, r"Got '8'\."),
    ],
)
def test_integer_names_argument_rule_and_value(value, kind, message):
    with pytest.raises(kind, match=message):
        v.check_integer(value, "n_neighbors", 1, 3999)


def test_integer_accepts_numpy_integers_and_open_ends():
    assert v.check_integer(np.int32(7), "k", 1) == 7
    assert type(v.check_integer(np.uint8(7), "k", 1)) is int
    with pytest.raises(ValueError, match=r"`k` must be an integer in \[1, inf\)\. Got -3\."):
        v.check_integer(-3, "k", 1)


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        (0.0, ValueError, r"`t` must be a number in \(0, inf\)\. Got 0\.0\."),
        (-1, ValueError, r"`t` must be a number in \(0, inf\)\. Got -1\."),
        (float("nan"), ValueError, r"Got nan\."),
        (float("inf"), ValueError, r"Got inf\."),
        ("0.1", TypeError, r"Got '0\.1'\."),
        (False, TypeError, r"Got False\."),
        (1j, TypeError, r"Got 1j\."),
    ],
)
def test_real_names_argument_rule_and_value(value, kind, message):
    with pytest.raises(kind, match=message):
        v.check_real(value, "t", v.POSITIVE)


@pytest.mark.parametrize("n_digits", [401, 5001])  # Python prints no integer of more than 4300 digits
def test_numbers_of_any_size_are_compared_and_long_values_are_cut(n_digits):
    found = rf"Got an integer of {n_digits} digits\."
    with pytest.raises(ValueError, match=r"`t` must be a number in \(0, inf\)\. " + found):
        v.check_real(10 ** (n_digits - 1), "t", v.POSITIVE)
    with pytest.raises(ValueError, match=r"`n` must be an integer in \[1, 1e\+300\]\. " + found):
        v.check_integer(10 ** (n_digits - 1), "n", 1)
    with pytest.raises(ValueError, match=r"`t` must be a number\. Got x{500} \.\.\.\."):
        v.reject("t", "a number", "x" * 600)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.full((2, 2), "1.5"), r"`X` must be an array of numbers\. Got ndarray of dtype <U3\."),
        (np.zeros((2, 2), "datetime64[s]"), r"Got ndarray of dtype datetime64\[s\]\."),
        (np.array([[1.0, "1.5"]], object), r"`X` must be an array of numbers\. Got '1\.5' at index \(0, 1\)\."),
        ([[1.0], [1.0, 2.0]], r"`X` must be an array with rows of equal length\. Got list\."),
    ],
)
def test_texts_are_refused_even_where_they_look_like_numbers(values, message):
    with pytest.raises(TypeError, match=message):
        v.refuse_text(values, "X")
    v.refuse_text(np.array([[1.0, None]], object), "X")  # left to whoever converts them


@pytest.mark.parametrize(
    ("file", "reader"),
    [
        ("cloud.npy", r"numpy\.load\(path, mmap_mode='r'\)"),
        (Path("cloud.NPZ"), r"numpy\.load\(path\)"),
        ("cloud.csv", r"numpy\.loadtxt"),
        ("scan.ply", r"TriangleMesh\.load\(path\)"),
    ],
)
def test_the_name_of_a_file_is_refused_with_what_reads_it(file, reader):
    for check in (v.check_points, v.refuse_text):
        with pytest.raises(TypeError, match=f"`X` must be .*, not the name of a file: {reader} reads it. Got .*"):
            check(file, "X")


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_what_is_wrong_with_a_frame_is_named_by_its_column(make):
    with pytest.raises(TypeError, match=r"Got 'b' at index \(0, 1\), column 'name'\."):
        v.check_points(make({"x": [1.0], "name": ["b"]}), "X")
    with pytest.raises(ValueError, match=r"Got nan at index \(1, 0\), column 'x'\."):
        v.check_points(make({"x": [1.0, np.nan], "y": [0.0, 0.0]}), "X")


def test_dates_in_a_frame_are_refused_in_our_words():
    with pytest.raises(TypeError, match=r"Got Timestamp\(.*\) at index \(0, 1\), column 'day'\."):
        v.refuse_text(pd.DataFrame({"x": [1.0], "day": [pd.Timestamp("2026-11-17")]}), "X")


def test_columns_that_are_numbered_have_no_name():
    with pytest.raises(ValueError, match=r"Got nan at index \(0, 1\)\."):
        v.check_points(pd.DataFrame([[1.0, np.nan]]), "X")


@pytest.mark.parametrize("value", ["512", "many", ""])
def test_counts_are_integers_or_words(value):
    assert v.check_count(np.int64(3), "n", 1, ("auto", "all")) == 3
    assert v.check_count("all", "n", 1, ("auto", "all")) == "all"
    with pytest.raises(ValueError, match=rf"`n` must be an integer in .* or one of 'auto', 'all'\. Got '{value}'"):
        v.check_count(value, "n", 1, ("auto", "all"))
    with pytest.raises(ValueError, match=r"`n` must be an integer in \[1, inf\)\. Got 0\."):
        v.check_count(0, "n", 1, ("auto", "all"))
    with pytest.raises(TypeError, match=r"`n` must be an integer in \[1, inf\)\. Got 2\.0\."):
        v.check_count(2.0, "n", 1, ("auto", "all"))


def test_a_column_may_have_the_name_of_a_mask():
    frame = pd.DataFrame({"_mask": [1.0, 2.0], "b": [3.0, 4.0]})
    np.testing.assert_array_equal(v.as_floats(frame, "X"), [[1.0, 3.0], [2.0, 4.0]])


def test_intervals_print_as_in_a_textbook_and_respect_their_ends():
    half_open = v.Interval(0.0, 1.0, high_open=True)
    assert str(half_open) == "[0, 1)"
    assert 0.0 in half_open
    assert 1.0 not in half_open
    assert str(v.Interval(0.0, 1.0, low_open=True)) == "(0, 1]"
    assert 0.0 not in v.POSITIVE
    assert 0.0 in v.NONNEGATIVE


@pytest.mark.parametrize("value", [1, "yes", None])
def test_flags_are_true_or_false(value):
    assert v.check_flag(np.True_, "self_loops") is True
    with pytest.raises(TypeError, match=r"`self_loops` must be True or False\. Got "):
        v.check_flag(value, "self_loops")


def test_option_lists_the_options():
    assert v.check_option("unit", "weights", ("unit", "gaussian")) == "unit"
    with pytest.raises(ValueError, match=r"`weights` must be one of 'unit', 'gaussian'\. Got 'units'\."):
        v.check_option("units", "weights", ("unit", "gaussian"))
    with pytest.raises(ValueError, match=r"Got 3\."):
        v.check_option(3, "weights", ("unit",))


@pytest.mark.parametrize(
    ("points", "kind", "message"),
    [
        ([1.0, 2.0], ValueError, r"`X` must be an array of shape \(n, 3\)\. Got shape \(2,\)\."),
        (np.zeros((4, 2)), ValueError, r"`X` must be an array of shape \(n, 3\)\. Got shape \(4, 2\)\."),
        (np.zeros((0, 3)), ValueError, r"at least 1 row.*Got shape \(0, 3\)\."),
        ([[0, 0, np.nan]], ValueError, r"`X` must be finite, without NaN or inf\. Got nan at index \(0, 2\)\."),
        ([[0, -np.inf, 0]], ValueError, r"Got -inf at index \(0, 1\)\."),
        ([[1e300, 0, 0]], ValueError, r"below 1e\+150 in size\. Got 1e\+300 at index \(0, 0\)\."),
        ([["a", "b", "c"]], TypeError, r"`X` must be an array of numbers\. Got list of dtype <U1\."),
        ([[1, 2], [3]], TypeError, r"`X` must be an array with rows of equal length\. Got list\."),
        ([[[], 1, 2]], TypeError, r"`X` must be an array with rows of equal length\. Got list\."),
        ([[None, 1, 2]], TypeError, r"`X` must be an array of numbers\. Got None at index \(0, 0\)\."),
        (np.array([[1, "2", 3]], object), TypeError, r"numbers\. Got '2' at index \(0, 1\)\."),
        (np.array([[1, 2j, 3]], object), TypeError, r"numbers\. Got 2j at index \(0, 1\)\."),
        ([[10**400, 0, 0]], ValueError, r"below 1e\+150 in size\. Got an integer of 401 digits at index"),
        (None, TypeError, r"`X` must be an array of numbers\. Got None\."),
        ({}, TypeError, r"`X` must be an array of numbers\. Got dict\."),
        (np.ma.masked_equal([[1, 2, 3]], 2), ValueError, r"`X` must be without masked entries\. Got 1 of them\."),
        (torch.ones(2, 3, requires_grad=True), TypeError, r"array of numbers\. Got Tensor: Can't call numpy"),
        (np.zeros((2, 3), dtype=complex), TypeError, r"Got ndarray of dtype complex128\."),
        (sparse.csr_array((2, 3)), TypeError, r"`X` must be an array of numbers\. Got csr_array\."),
    ],
)
def test_points_name_argument_rule_and_value(points, kind, message):
    with pytest.raises(kind, match=message):
        v.check_points(points, "X", n_columns=3)


def test_points_refuse_zero_columns_and_too_few_rows():
    with pytest.raises(ValueError, match=r"one column\. Got shape \(3, 0\)\."):
        v.check_points(np.zeros((3, 0)))
    with pytest.raises(ValueError, match=r"at least 2 row\(s\).*Got shape \(1, 3\)\."):
        v.check_points(np.zeros((1, 3)), min_rows=2)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float16, np.float32, np.float64, object, bool])
def test_points_of_any_numeric_type_become_doubles(dtype):
    array = np.ones((2, 3), dtype=dtype)
    assert v.check_points(array).dtype == np.float64


def test_double_points_are_not_copied():
    array = np.ones((5, 3))
    assert v.check_points(array) is array


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ([1.0, 2.0], ValueError, r"`weights` must be a vector of shape \(3,\)\. Got shape \(2,\)\."),
        ([1.0, 0.0, 2.0], ValueError, r"entries in \(0, inf\)\. Got 0\.0 at index 1\."),
        ([1.0, np.nan, 2.0], ValueError, r"`weights` must be finite.*Got nan at index \(1,\)\."),
        ("abc", TypeError, r"`weights` must be an array of numbers"),
    ],
)
def test_vector_names_argument_rule_and_value(values, kind, message):
    with pytest.raises(kind, match=message):
        v.check_vector(values, "weights", 3, v.POSITIVE)


@pytest.mark.parametrize(
    ("indices", "kind", "message"),
    [
        ([0, 5], ValueError, r"`sources` must be integers in \[0, 4\]\. Got 5 at index \(1,\)\."),
        (-1, ValueError, r"Got -1 at index \(0,\)\."),
        ([0.5], TypeError, r"`sources` must be integers in \[0, 4\]\. Got dtype float64\."),
        ([], ValueError, r"`sources` must be a non-empty vector of indices\. Got shape \(0,\)\."),
        ([[0]], ValueError, r"Got shape \(1, 1\)\."),
    ],
)
def test_indices_name_argument_rule_and_value(indices, kind, message):
    with pytest.raises(kind, match=message):
        v.check_indices(indices, "sources", 5)


@pytest.mark.parametrize(
    ("faces", "kind", "message"),
    [
        ([[0, 1, 2, 3]], ValueError, r"`faces` must be an array of triangles of shape \(m, 3\).*\(1, 4\)\."),
        (np.zeros((0, 3), dtype=int), ValueError, r"m >= 1\. Got shape \(0, 3\)\."),
        ([[0, 1, 99]], ValueError, r"`faces` must be integers in \[0, 3\]\. Got 99 at index \(0, 2\)\."),
        ([[0, 1, -1]], ValueError, r"Got -1 at index \(0, 2\)\."),
        ([[0.0, 1.0, 2.0]], TypeError, r"Got dtype float64\."),
    ],
)
def test_faces_name_argument_rule_and_value(faces, kind, message):
    with pytest.raises(kind, match=message):
        v.check_faces(faces, "faces", 4)


@pytest.mark.parametrize(
    ("value", "kind"), [(0, ValueError), (-2, ValueError), (1.5, TypeError), (True, TypeError)]
)
def test_jobs_are_minus_one_or_positive(value, kind):
    with pytest.raises(kind, match=r"`n_jobs` must be -1 or an integer in \[1, inf\)\. Got"):
        v.check_jobs(value)
    assert v.check_jobs(3) == 3
    assert v.check_jobs(-1) >= 1


def test_far_too_many_jobs_are_all_cores_with_a_warning():
    cores = v.check_jobs(-1)
    most = 4 * cores
    assert v.check_jobs(most) == most  # more threads than cores are slow, but they end
    for n_jobs in (most + 1, most + 1, 10**400):  # every time, also for the same number
        with pytest.warns(UserWarning, match=rf"`n_jobs` = .* is far more .*: {cores} threads are used\."):
            assert v.check_jobs(n_jobs) == cores


def test_errors_know_their_argument():
    with pytest.raises(ValueError, match="`degree` must be even") as caught:
        v.reject("degree", "even", 3)
    assert caught.value.argument == "degree"


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_entries_of_sparse_matrices_are_named_by_row_and_column(bad):
    with pytest.raises(ValueError, match=r"`A` must be finite, with.* Got .* at index \(2, 1\)\."):
        v.check_finite(sparse.csr_array(([1.0, bad], ([0, 2], [2, 1])), shape=(3, 3)), "A")
    v.check_finite(sparse.csr_array((3, 3)), "A")
