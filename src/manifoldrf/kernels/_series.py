"""How many terms of a power series matter, and whether they are nonnegative."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import fft
from scipy.special import xlogy

from manifoldrf._validation import FloatArray

Coefficients = Callable[[int], FloatArray]  # the first n of them

# Negative entries that sum to less than this share count as rounding of the coefficients they come from.
ROUNDING_SHARE = 1e-6
_FIRST_BLOCK = 32
_LONGEST_DIRECT = 4096
# Coefficients are exponentials of logarithms of up to 1e7, so that their sum is off by up to 1e-9 (1e-12 for 1000
# steps). A sum that is short by less is complete.
_SHORT = 1e-8


def count_terms(coefficients: Coefficients, tol: float, radius: float, value: float, most: int) -> int | None:
    """Smallest n such that the terms |alpha_k| radius^k from n on sum to at most ``tol`` of all; None if too many.

    Parameters
    ----------
    coefficients : callable
    tol, radius : float
    value : float
        |h(radius)|, which the sizes sum to at least: early zeros are not mistaken for the end.
    most : int
    """
    n = _FIRST_BLOCK
    while n <= most:
        rest = _rest(coefficients(n), radius)
        if _complete(rest, tol, value):
            return _needed(rest, tol)
        n *= 2
    return None


@functools.lru_cache(maxsize=256)
def truncation_of(kernel: Any, tol: float, radius: float) -> int:
    """Number of terms of a kernel's series, remembered: kernels never change."""
    if kernel.n_terms is not None:
        return _needed(_rest(kernel.coefficients(kernel.n_terms), radius), tol)
    most = kernel._most_terms
    n = count_terms(kernel.coefficients, tol, radius, kernel._value_at(radius), most)
    if n is None:
        raise ValueError(
            f"The series of {kernel} is not known to end within {most} terms for `tol` = {tol:g}. Take a larger "
            "`tol` or a shorter length scale; kernel.apply needs no series where h has a closed form. A root "
            "has more terms where the kernel supplies `_root`."
        )
    return n


def is_nonnegative(coefficients: Coefficients, value: float, most: int) -> bool:
    """Whether a series has no negative terms beyond rounding; ends at the first block that shows some."""
    n = _FIRST_BLOCK
    while n <= most:
        f = coefficients(n)
        rest = _rest(f, 1.0)
        if -f[f < 0].sum() > ROUNDING_SHARE * max(rest[0], value):
            return False
        if _complete(rest, 1e-8, value):
            return True
        n *= 2
    return False  # not decided within the terms that can be had


def log_sizes(alpha: FloatArray, radius: float) -> FloatArray:
    """Logarithms of |alpha_k| radius^k, which stay finite where the power alone would overflow; -inf for zeros."""
    logs = np.log(np.abs(alpha), out=np.full(len(alpha), -np.inf), where=alpha != 0)
    return np.asarray(logs + xlogy(np.arange(len(alpha)), radius))


def _rest(alpha: FloatArray, radius: float) -> FloatArray:
    """rest[k] = sum of |alpha_j| radius^j over j >= k."""
    sizes = np.abs(alpha) if radius == 1 else np.exp(log_sizes(alpha, radius))
    return np.asarray(np.cumsum(sizes[::-1])[::-1])


def _complete(rest: FloatArray, tol: float, value: float) -> bool:
    """Whether the terms beyond these are negligible: blocks of doubling length shrink by half at least."""
    n = len(rest)
    if not np.isfinite(rest[0]):  # terms beyond doubles: a root of a series that starts next to zero
        return False
    before, last = rest[n // 4] - rest[n // 2], rest[n // 2]
    return bool(rest[0] >= (1 - max(tol / 4, _SHORT)) * value and last <= min(tol / 4 * rest[0], before / 2))


def _needed(rest: FloatArray, tol: float) -> int:
    # Half of the tolerance is left for the terms that were never computed.
    return max(1, int(np.count_nonzero(rest > tol / 2 * rest[0])))


def convolved(first: FloatArray, second: FloatArray) -> FloatArray:
    """First n terms of the convolution of two sequences of length n."""
    n = len(first)
    if n <= _LONGEST_DIRECT:
        return np.convolve(first, second)[:n]
    # Rounding is 1e-16 of the largest term instead of each.
    return np.asarray(fft.irfft(fft.rfft(first, 2 * n) * fft.rfft(second, 2 * n), 2 * n)[:n])
