"""Relative errors against direct formulas."""

import numpy as np
import pytest
from scipy import sparse

from manifoldrf import relative_error

RNG = np.random.default_rng(0)
REFERENCE = RNG.normal(size=(7, 5))
FOUND = 3 * REFERENCE + RNG.normal(size=(7, 5))


def test_alignment_to_the_same_norm():
    aligned = np.linalg.norm(REFERENCE) / np.linalg.norm(FOUND) * FOUND
    expected = np.linalg.norm(aligned - REFERENCE) / np.linalg.norm(REFERENCE)
    assert relative_error(FOUND, REFERENCE, alignment="frobenius") == pytest.approx(expected, rel=1e-13)


def test_sparse_matrices_have_the_errors_of_dense_ones():
    assert relative_error(sparse.csr_array(FOUND), sparse.coo_matrix(REFERENCE)) == relative_error(FOUND, REFERENCE)


def test_least_squares_comes_closest():
    plain, equal, closest = (
        relative_error(FOUND, REFERENCE, alignment=how) for how in (None, "frobenius", "least squares")
    )
    assert closest < equal < plain
    assert plain == pytest.approx(np.linalg.norm(FOUND - REFERENCE) / np.linalg.norm(REFERENCE), rel=1e-14)
    fine = min(relative_error(c * FOUND, REFERENCE) for c in np.linspace(0, 1, 1001))
    assert closest <= fine < closest + 1e-3


@pytest.mark.parametrize("method", ["frobenius", "least squares"])
@pytest.mark.parametrize("factor", [1e-9, 0.5, 7.0, 1e9])
def test_aligned_errors_do_not_depend_on_the_scale(method, factor):
    expected = relative_error(FOUND, REFERENCE, alignment=method)
    assert relative_error(factor * FOUND, REFERENCE, alignment=method) == pytest.approx(expected, rel=1e-12)
    assert relative_error(factor * REFERENCE, REFERENCE, alignment=method) < 1e-14
