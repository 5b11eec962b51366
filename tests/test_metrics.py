"""Alignments and relative errors against direct formulas."""

import numpy as np
import pytest
from sklearn.metrics import r2_score

from manifoldrf.metrics import align, errors_of, relative_error

RNG = np.random.default_rng(0)
REFERENCE = RNG.normal(size=(7, 5))
FOUND = 3 * REFERENCE + RNG.normal(size=(7, 5))


def test_alignment_to_the_same_norm():
    factor = np.linalg.norm(REFERENCE) / np.linalg.norm(FOUND)
    np.testing.assert_allclose(align(FOUND, REFERENCE), factor * FOUND, rtol=1e-14)
    assert np.linalg.norm(align(FOUND, REFERENCE)) == pytest.approx(np.linalg.norm(REFERENCE), rel=1e-14)


def test_alignment_by_least_squares():
    factor = np.linalg.lstsq(FOUND.reshape(-1, 1), REFERENCE.ravel(), rcond=None)[0].item()
    np.testing.assert_allclose(align(FOUND, REFERENCE, "least squares"), factor * FOUND, rtol=1e-13)


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


def test_all_errors_agree_with_their_definitions():
    rng = np.random.default_rng(0)
    exact = rng.random((6, 7))
    exact[0] = 1e-6  # below the clamp
    found = exact + 0.1 * rng.normal(size=exact.shape)
    errors = errors_of(found, exact, clamp=1e-3)
    gap = np.abs(found - exact)
    assert errors.r2 == pytest.approx(r2_score(exact.ravel(), found.ravel()))
    assert errors.rmse == pytest.approx(np.sqrt((gap**2).mean()))
    assert errors.mse == pytest.approx((gap**2).mean())
    assert errors.mae == pytest.approx(gap.mean())
    relative = np.concatenate([gap[0] / 1e-3, (gap[1:] / exact[1:]).ravel()])
    assert errors.mean_re == pytest.approx(relative.mean())
    assert errors.median_re == pytest.approx(np.median(relative))
    assert errors.frobenius == relative_error(found, exact)


@pytest.mark.parametrize("alignment", ["frobenius", "least squares"])
def test_alignment_removes_a_factor_from_all_errors(alignment):
    exact = np.random.default_rng(0).random((5, 5))
    errors = errors_of(3 * exact, exact, alignment=alignment).plain()
    assert errors.pop("r2") == pytest.approx(1.0)
    np.testing.assert_allclose(list(errors.values()), 0, atol=1e-14)
