"""Numerics of power series on the unit disc: how many terms matter, whether any is negative, square roots."""

import functools
from typing import Any

import numpy as np
from scipy import fft

from manifoldrf._validation import FloatArray

ASYMMETRIC = (
    "The asymmetric pair works for every kernel: rows of K on one side, indicators on the other "
    "(`asymmetric=True` of compute_signatures)"
)
MOST_TERMS = 2**20  # a series that needs more counts as divergent
# Negative terms that sum to less than this share are rounding: a double zero of the series, rounded to doubles,
# splits into two that are 1e-8 apart.
_ROUNDING = 1e-6


@functools.lru_cache(maxsize=256)
def truncation_of(kernel: Any, tol: float) -> int:
    """Smallest n such that the terms |alpha_k| from n on sum to at most ``tol`` of all."""
    n = 32 if kernel.n_terms is None else kernel.n_terms
    while n <= MOST_TERMS:
        rest = _rest(kernel.coefficients(n))
        if kernel.n_terms is not None or _is_complete(rest, tol, kernel):
            # The other half of the tolerance is for the terms that were never computed.
            return max(1, int(np.count_nonzero(rest > tol / 2 * rest[0])))
        n *= 2
    raise ValueError(
        f"The series of {kernel} is not known to end within {MOST_TERMS} terms for `tol` = {tol:g}. Take a larger "
        "`tol` or a shorter length scale; kernel.apply needs no series."
    )


def is_nonnegative(kernel: Any) -> bool:
    """Whether a series has no negative terms beyond rounding; stops at the first block with negative terms."""
    n = 32 if kernel.n_terms is None else kernel.n_terms
    while n <= MOST_TERMS:
        f = kernel.coefficients(n)
        rest = _rest(f)
        if -f[f < 0].sum() > _ROUNDING * max(rest[0], _value(kernel)):
            return False
        if kernel.n_terms is not None or _is_complete(rest, 1e-8, kernel):
            return True
        n *= 2
    return False  # not decided within the terms available


def _rest(alpha: FloatArray) -> FloatArray:
    """rest[k] = sum of |alpha_j| over j >= k."""
    return np.asarray(np.cumsum(np.abs(alpha)[::-1])[::-1])


def _value(kernel: Any) -> float:
    return float(np.abs(kernel.spectral(np.ones(1))[0]))


def _is_complete(rest: FloatArray, tol: float, kernel: Any) -> bool:
    """Whether the terms beyond these are negligible: blocks of doubling length shrink at least by half.

    The sizes sum to at least |h(1)|, so that early zeros are not mistaken for the end. Coefficients are
    exponentials of logarithms up to 1e7, so their sum may be short by 1e-9.
    """
    n = len(rest)
    before, last = rest[n // 4] - rest[n // 2], rest[n // 2]
    whole = rest[0] >= (1 - max(tol / 4, 1e-8)) * _value(kernel)
    return bool(np.isfinite(rest[0]) and whole and last <= min(tol / 4 * rest[0], before / 2))


def convolved(first: FloatArray, second: FloatArray) -> FloatArray:
    """First n terms of the convolution of two sequences of length n."""
    if (n := len(first)) <= 4096:
        return np.convolve(first, second)[:n]
    # Here rounding errors are 1e-16 of the largest term, not of each term.
    return np.asarray(fft.irfft(fft.rfft(first, 2 * n) * fft.rfft(second, 2 * n), 2 * n)[:n])


@functools.lru_cache(maxsize=64)
def square_root(kernel: Any) -> FloatArray:
    """Coefficients of the real power series f with f * f = alpha, up to rounding of their sum.

    The recurrence for f loses all digits within forty terms. Values of h on a circle lose none: the square root of
    h, continued along the circle, has the Fourier coefficients r^k f_k. They vanish for k < 0 only if the root is
    analytic inside. The radius r is just below 1, because h may touch zero on the unit circle; r^k stays above e^-2
    for the terms that are kept. Where h falls to 1e-16 of its largest value, f is accurate to 1e-8 of its sum.

    Raises ``ValueError`` if there is no such series: h starts with a negative coefficient or an odd power, or has
    a zero of odd order inside the disc.
    """
    alpha: FloatArray = kernel.coefficients(kernel.truncation(1e-14))
    if not alpha.any():
        return alpha
    zeros = int(np.flatnonzero(alpha)[0])
    n, wrong, terms = 2 ** max(6, (2 * len(alpha)).bit_length()), 1.0, np.zeros(1)
    while zeros % 2 == 0 and n <= max(2**14, 4 * len(alpha)) and wrong > 1e-12:
        powers = np.exp(-2.0 / n * np.arange(n))
        values = fft.rfft(alpha[zeros:] * powers[: len(alpha) - zeros], 8 * n)  # on the upper half circle
        sizes = np.where(np.abs(values) > 4e-16 * np.abs(alpha).sum(), np.abs(values), 0.0)
        found = fft.irfft(np.sqrt(sizes) * np.exp(0.5j * np.unwrap(np.angle(values))), 8 * n)
        rest = np.abs(found[n:]).sum() / np.abs(found).sum() if values[0].real > 0 else np.inf
        if rest < wrong:
            wrong, terms = rest, found[:n] / powers * np.sign(found[0])
        n *= 2
    if wrong <= _ROUNDING:
        terms[np.abs(terms) < 1e-15 * np.abs(terms).sum()] = 0.0
        if -terms[terms < 0].sum() <= _ROUNDING * np.abs(terms).sum():
            terms = np.maximum(terms, 0.0)
        f = np.concatenate([np.zeros(zeros // 2), np.trim_zeros(terms, "b")])
        f.flags.writeable = False
        return f
    raise ValueError(f"{kernel} has no real square root as a convergent series. {ASYMMETRIC}.")
