"""The normalised interpolant is a weighted mean of what is known."""

import numpy as np
import pytest
from scipy import sparse

from manifoldrf.applications.filling import feature_action, smooth, without_small

RNG = np.random.default_rng(0)
KERNEL = RNG.random((5, 8))
VALUES = RNG.standard_normal((8, 3))
KNOWN = np.array([1.0, 0, 1, 1, 0, 1, 0, 1])


def test_it_is_the_weighted_mean_of_the_known():
    found = smooth(lambda X: KERNEL @ X, VALUES, KNOWN)
    for row in range(5):
        weights = KERNEL[row] * KNOWN
        np.testing.assert_allclose(found.values[row], weights @ VALUES / weights.sum(), rtol=1e-13)
        np.testing.assert_allclose(found.mass[row], weights.sum(), rtol=1e-14)


def test_what_is_not_known_counts_for_nothing():
    other = np.where(KNOWN[:, None] == 1, VALUES, 1e6)
    first, second = (smooth(lambda X: KERNEL @ X, values, KNOWN).values for values in (VALUES, other))
    np.testing.assert_array_equal(first, second)


def test_constants_are_reproduced_whatever_the_weights():
    signed = RNG.standard_normal((5, 8))
    constant = np.full((8, 2), 7.0)
    np.testing.assert_allclose(smooth(lambda X: signed @ X, constant).values, 7.0, rtol=1e-12)


def test_no_weight_gives_no_value():
    kernel = KERNEL * (np.arange(5) != 2)[:, None]
    found = smooth(lambda X: kernel @ X, VALUES)
    np.testing.assert_array_equal(np.isnan(found.values).all(axis=1), np.arange(5) == 2)
    assert found.mass[2] == 0


@pytest.mark.parametrize("as_sparse", [False, True])
def test_features_act_as_their_kernel(as_sparse):
    left, right = RNG.random((5, 4)), RNG.random((8, 4))
    kind = sparse.csr_array if as_sparse else np.asarray
    found = feature_action(kind(left), kind(right))(VALUES)
    np.testing.assert_allclose(found, left @ right.T @ VALUES, rtol=1e-13)


def test_small_entries_go_and_empty_rows_stay_empty():
    rows = sparse.csr_array(np.array([[0.0, 0.0], [1.0, 0.01], [0.0, 0.0], [0.3, 0.2], [0.0, 0.0]]))
    kept = without_small(rows, 0.1)
    np.testing.assert_array_equal(kept.toarray(), [[0, 0], [1, 0], [0, 0], [0.3, 0.2], [0, 0]])
    assert kept.nnz == 3
    assert without_small(sparse.csr_array((3, 2)), 0.1).nnz == 0
