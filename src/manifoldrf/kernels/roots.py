"""Numerics of power series: how many terms matter, whether they are nonnegative, and their real roots."""

import decimal
import functools
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
from scipy import fft
from scipy.special import xlogy

from manifoldrf._validation import FloatArray

Coefficients = Callable[[int], FloatArray]  # the first n of them
Exact = Callable[[int], list[Decimal]]  # the first n, in the precision of the current context

ASYMMETRIC = (
    "The asymmetric pair works for every kernel: features from alpha on one side, indicators on the other "
    "(`asymmetric=True` of compute_signatures, `coupling='asymmetric'` of GraphRandomFeatures)"
)
# Negative entries whose sum is below this share of all count as rounding of the coefficients they come from.
ROUNDING_SHARE = 1e-6

_FIRST_BLOCK = 32
_LONGEST_DIRECT = 4096
# Coefficients are exponentials of logarithms up to 1e7, so their sum is off by up to 1e-9 (1e-12 for 1000 steps).
# A sum that is short by less than this is complete.
_SHORT = 1e-8
# Two runs must agree to this many digits, more than a double holds.
_AGREEMENT = Decimal(10) ** -20
# Entries this far below the sum of all are treated as zero: they are rounding in any precision.
_NOTHING = Decimal(10) ** -40
_MOST_DIGITS = 20_000


@functools.lru_cache(maxsize=256)
def truncation_of(kernel: Any, tol: float, radius: float) -> int:
    """Smallest n such that the terms |alpha_k| radius^k from n on sum to at most ``tol`` of all."""
    if kernel.n_terms is not None:
        return _n_needed(_rest(kernel.coefficients(kernel.n_terms), radius), tol)
    value, most, n = kernel._value_at(radius), kernel._most_terms, _FIRST_BLOCK
    while n <= most:
        rest = _rest(kernel.coefficients(n), radius)
        if _is_complete(rest, tol, value):
            return _n_needed(rest, tol)
        n *= 2
    raise ValueError(
        f"The series of {kernel} is not known to end within {most} terms for `tol` = {tol:g}. Take a larger "
        "`tol` or a shorter length scale; kernel.apply needs no series if h has a closed form, and a kernel class "
        "with its own `_root` has roots of more terms."
    )


def is_nonnegative(coefficients: Coefficients, value: float, most: int) -> bool:
    """Whether a series has no negative terms beyond rounding; stops at the first block with negative terms."""
    n = _FIRST_BLOCK
    while n <= most:
        f = coefficients(n)
        rest = _rest(f, 1.0)
        if -f[f < 0].sum() > ROUNDING_SHARE * max(rest[0], value):
            return False
        if _is_complete(rest, 1e-8, value):
            return True
        n *= 2
    return False  # not decided within the terms available


def log_sizes(alpha: FloatArray, radius: float) -> FloatArray:
    """Logarithms of |alpha_k| radius^k, finite even if the power alone would overflow; -inf for zeros."""
    logs = np.log(np.abs(alpha), out=np.full(len(alpha), -np.inf), where=alpha != 0)
    return np.asarray(logs + xlogy(np.arange(len(alpha)), radius))


def _rest(alpha: FloatArray, radius: float) -> FloatArray:
    """rest[k] = sum of |alpha_j| radius^j over j >= k."""
    sizes = np.abs(alpha) if radius == 1 else np.exp(log_sizes(alpha, radius))
    return np.asarray(np.cumsum(sizes[::-1])[::-1])


def _is_complete(rest: FloatArray, tol: float, value: float) -> bool:
    """Whether the terms beyond these are negligible: blocks of doubling length shrink at least by half.

    The sizes sum to at least ``value`` = |h(radius)|, so that early zeros are not mistaken for the end.
    """
    n = len(rest)
    if not np.isfinite(rest[0]):  # overflow: a root of a series whose first term is nearly zero
        return False
    before, last = rest[n // 4] - rest[n // 2], rest[n // 2]
    return bool(rest[0] >= (1 - max(tol / 4, _SHORT)) * value and last <= min(tol / 4 * rest[0], before / 2))


def _n_needed(rest: FloatArray, tol: float) -> int:
    # The other half of the tolerance is for the terms that were never computed.
    return max(1, int(np.count_nonzero(rest > tol / 2 * rest[0])))


def convolved(first: FloatArray, second: FloatArray) -> FloatArray:
    """First n terms of the convolution of two sequences of length n."""
    n = len(first)
    if n <= _LONGEST_DIRECT:
        return np.convolve(first, second)[:n]
    # Here rounding errors are 1e-16 of the largest term, not of each term.
    return np.asarray(fft.irfft(fft.rfft(first, 2 * n) * fft.rfft(second, 2 * n), 2 * n)[:n])


def decimals(values: FloatArray) -> list[Decimal]:
    """Doubles as decimals, exactly."""
    return [Decimal(float(value)) for value in values]


def pi() -> Decimal:
    """The number pi in the precision of the current context (Machin's formula)."""
    with decimal.localcontext() as context:
        context.prec += 10
        value = 4 * (4 * _arctan_of_inverse(5) - _arctan_of_inverse(239))
    return +value


def _arctan_of_inverse(x: int) -> Decimal:
    power, total, k = Decimal(1) / x, Decimal(0), 0
    while abs(power) > Decimal(10) ** -decimal.getcontext().prec:
        total += power / (2 * k + 1) * (-1) ** k
        power /= x * x
        k += 1
    return total


def series_root(alpha: Exact, order: int, n: int) -> FloatArray | None:
    """First n coefficients of the real power series f with f^order = alpha, rounded to doubles once.

    The precision is doubled until two runs agree.

    Parameters
    ----------
    alpha : callable
        ``alpha(m)`` returns m coefficients as decimals in the current context.
    order : int
        2 for the square root.
    n : int
        Number of coefficients, at least 1.

    Returns
    -------
    f : float64 (n,), or None
        None if there is no real root: the number of leading zeros is not a multiple of ``order``, or the first
        coefficient is negative and ``order`` is even.
    """
    digits = 40 + n
    coarse = _root(alpha, order, n, digits)
    while coarse is not None and digits < _MOST_DIGITS:
        digits *= 2
        fine = _root(alpha, order, n, digits)
        if fine is None:
            break
        least, pairs = _NOTHING * sum(abs(value) for value in fine), zip(coarse, fine, strict=True)
        if all(abs(a - b) <= _AGREEMENT * abs(b) + least for a, b in pairs):
            break
        coarse = fine
    return None if coarse is None else np.array([float(value) for value in coarse])


def _root(alpha: Exact, order: int, n: int, digits: int) -> list[Decimal] | None:
    """The root in the given number of digits."""
    with decimal.localcontext() as context:
        context.prec = digits
        context.Emax, context.Emin = decimal.MAX_EMAX, decimal.MIN_EMIN
        zeros = next((k for k, value in enumerate(alpha(order * n)) if value != 0), order * n)
        if zeros % order:
            return None
        terms = alpha(zeros + n)[zeros:]
        if terms[0] < 0 and order % 2 == 0:
            return None
        shift = min(zeros // order, n)
        # The recurrence of J. C. P. Miller for (sum_k terms_k x^k)^(1/order).
        exponent = Decimal(1) / order
        first = abs(terms[0]) ** exponent
        result = [first if terms[0] > 0 else -first]
        for k in range(1, n - shift):
            total = sum((j * exponent - (k - j)) * terms[j] * result[k - j] for j in range(1, k + 1) if terms[j])
            result.append(total / (k * terms[0]))
        return ([Decimal(0)] * shift + result)[:n]
