"""Positive definite matrices as vectors: isometry, inverse, errors."""

import numpy as np
import pytest
from scipy.linalg import logm

from manifoldrf.geometry.spd import spd_to_vectors, vectors_to_spd


def some_matrices(n, d, seed=0):
    """Well-conditioned random matrices: a Wishart with three times as many degrees of freedom."""
    factors = np.random.default_rng(seed).standard_normal((n, d, 3 * d))
    return factors @ factors.swapaxes(1, 2) / (3 * d)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_distance_of_vectors_is_the_log_euclidean_distance(d):
    matrices = some_matrices(8, d)
    logs = np.array([logm(matrix) for matrix in matrices])
    expected = np.linalg.norm(logs[:, None] - logs[None, :], axis=(2, 3))
    vectors = spd_to_vectors(matrices)
    assert vectors.shape == (8, d * (d + 1) // 2)
    distances = np.linalg.norm(vectors[:, None] - vectors[None, :], axis=2)
    # Condition numbers are below 1e3 here: logarithms are good to 1e-12.
    np.testing.assert_allclose(distances, expected, atol=1e-11)


def test_entries_are_the_upper_triangle_in_row_order_with_root_two():
    matrix = some_matrices(1, 3)[0]
    log = logm(matrix)
    root = np.sqrt(2)
    expected = [log[0, 0], root * log[0, 1], root * log[0, 2], log[1, 1], root * log[1, 2], log[2, 2]]
    np.testing.assert_allclose(spd_to_vectors([matrix])[0], expected, atol=1e-12)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_vectors_and_matrices_are_inverse_to_each_other(d):
    matrices = some_matrices(20, d)
    np.testing.assert_allclose(vectors_to_spd(spd_to_vectors(matrices)), matrices, rtol=1e-11, atol=1e-12)
    vectors = np.random.default_rng(1).standard_normal((20, d * (d + 1) // 2))
    np.testing.assert_allclose(spd_to_vectors(vectors_to_spd(vectors)), vectors, atol=1e-11)


def test_matrices_from_vectors_are_symmetric_to_the_last_bit():
    matrices = vectors_to_spd(np.random.default_rng(2).standard_normal((50, 15)))
    np.testing.assert_array_equal(matrices, matrices.swapaxes(1, 2))


def test_distance_does_not_change_under_rotations_scalings_and_inversion():
    """The log-Euclidean metric knows neither the basis, nor the unit, nor a matrix from its inverse."""
    matrices = some_matrices(2, 5)
    basis = np.linalg.qr(np.random.default_rng(3).standard_normal((5, 5)))[0]
    expected = np.linalg.norm(np.subtract(*spd_to_vectors(matrices)))
    for others in (basis @ matrices @ basis.T, 1e-6 * matrices, np.linalg.inv(matrices)):
        assert np.linalg.norm(np.subtract(*spd_to_vectors(others))) == pytest.approx(expected, rel=1e-10)


def test_ridge_is_added_to_the_diagonal():
    matrices = some_matrices(4, 3)
    expected = spd_to_vectors(matrices + 0.25 * np.eye(3))
    np.testing.assert_allclose(spd_to_vectors(matrices, ridge=0.25), expected, atol=1e-12)


def test_ridge_makes_singular_matrices_finite():
    np.testing.assert_allclose(spd_to_vectors(np.zeros((1, 2, 2)), ridge=1e-6), [[np.log(1e-6), 0, np.log(1e-6)]])


def test_a_row_does_not_depend_on_the_others():
    matrices = some_matrices(30, 5)
    np.testing.assert_array_equal(spd_to_vectors(matrices)[7:9], spd_to_vectors(matrices[7:9]))


def test_lists_and_float32_are_taken():
    np.testing.assert_allclose(spd_to_vectors([[[1.0]], [[np.e]]]), [[0], [1]], atol=1e-15)
    matrices = some_matrices(3, 4).astype(np.float32)
    assert spd_to_vectors(matrices).dtype == np.float64


def with_entry(value, index):
    matrices = some_matrices(4, 3)
    matrices[index] = value
    return matrices


@pytest.mark.parametrize(
    ("matrices", "text"),
    [
        (np.eye(3), r"shape \(n, d, d\).*Got shape \(3, 3\)"),
        (np.ones((2, 3, 4)), r"Got shape \(2, 3, 4\)"),
        (np.zeros((0, 3, 3)), r"Got shape \(0, 3, 3\)"),
        (with_entry(np.nan, (2, 0, 1)), r"finite.*Got nan at index \(2, 1\)"),
        (with_entry(7.0, (1, 0, 2)), "symmetric.*in matrix 1"),
        (with_entry(-2.0, (3, 1, 1)), "positive definite.*eigenvalue of -2.*in matrix 3"),
        (np.ones((1, 2, 2)), "positive definite; `ridge` helps.*in matrix 0"),
        (np.zeros((1, 2, 2)), "positive definite.*eigenvalue of 0 "),
    ],
)
def test_matrices_without_a_logarithm_are_refused(matrices, text):
    with pytest.raises(ValueError, match=text):
        spd_to_vectors(matrices)


@pytest.mark.parametrize(
    ("vectors", "text"),
    [
        (np.ones((2, 4)), "1, 3, 6, 10, 15, ... columns. Got 4 columns"),
        (np.ones(3), r"shape \(n, d\)"),
        ([[0.0, np.inf, 0.0]], "finite"),
        ([[0.0, 0.0, 0.0], [0.0, 0.0, 800.0]], "up to 700 in size. Got 800 in row 1"),
    ],
)
def test_vectors_of_no_matrix_are_refused(vectors, text):
    with pytest.raises(ValueError, match=text):
        vectors_to_spd(vectors)


def test_a_negative_ridge_is_refused():
    with pytest.raises(ValueError, match="`ridge` must be a number in"):
        spd_to_vectors([np.eye(2)], ridge=-1.0)


def test_text_is_refused():
    with pytest.raises(TypeError, match="array of numbers"):
        spd_to_vectors([[["a"]]])
