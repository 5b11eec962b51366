"""Roots of power series in high precision: f with f * f = alpha, and * the convolution.

The problem is ill-conditioned, whatever the algorithm: rounding alpha_k = 20^k / k! to doubles moves f_36 by a
third of its size, and errors grow almost like 3^k. Coefficients are therefore computed as decimals with as many
digits as it takes, from exact parameters to the last digit of f, and rounded once.
"""

import decimal
from collections.abc import Callable
from decimal import Decimal

import numpy as np

from manifoldrf._validation import FloatArray

ASYMMETRIC = (
    "The asymmetric pair serves every kernel: features from alpha on one side, indicators on the other "
    "(`asymmetric=True` of compute_signatures, `coupling='asymmetric'` of GraphRandomFeatures)"
)

Exact = Callable[[int], list[Decimal]]  # the first n coefficients, in the digits of the current context

# Digits that two runs must share: more than a double holds.
_AGREEMENT = Decimal(10) ** -20
# Entries this far below the sum of all are zero, up to rounding in any precision.
_NOTHING = Decimal(10) ** -40
_MOST_DIGITS = 20_000


def series_root(alpha: Exact, order: int, n: int) -> FloatArray | None:
    """First n coefficients of the real power series f with f^order = alpha, rounded to doubles once.

    Parameters
    ----------
    alpha : callable
        ``alpha(m)`` gives m coefficients as decimals in the current context.
    order : int
        2 for the square root.
    n : int
        Number of coefficients, at least 1.

    Returns
    -------
    f : float64 (n,), or None
        None where there is no real root: a number of leading zeros that ``order`` does not divide, or a negative
        first coefficient under an even order.
    """
    digits = 40 + n
    coarse = _root(alpha, order, n, digits)
    while coarse is not None and digits < _MOST_DIGITS:
        digits *= 2
        fine = _root(alpha, order, n, digits)
        if fine is None or _agree(coarse, fine):
            break
        coarse = fine
    return None if coarse is None else np.array([float(value) for value in coarse])


def decimals(values: FloatArray) -> list[Decimal]:
    """Doubles as the decimals that they are, exactly."""
    return [Decimal(float(value)) for value in values]


def pi() -> Decimal:
    """The number pi in the digits of the current context (Machin's formula)."""
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


def _root(alpha: Exact, order: int, n: int, digits: int) -> list[Decimal] | None:
    """The root in the given number of digits."""
    with decimal.localcontext() as context:
        context.prec = digits
        context.Emax, context.Emin = decimal.MAX_EMAX, decimal.MIN_EMIN
        shift = _leading_zeros(alpha, order, n)
        if shift is None:
            return None
        terms = alpha(order * shift + n)[order * shift :]
        if terms[0] < 0 and order % 2 == 0:
            return None
        return [Decimal(0)] * min(shift, n) + _power(terms, order, n - min(shift, n))


def _leading_zeros(alpha: Exact, order: int, n: int) -> int | None:
    """Shift r of the root for a series that starts with ``order`` r zeros; n where all that matter are zero."""
    terms = alpha(order * n)
    zeros = next((k for k, value in enumerate(terms) if value != 0), order * n)
    return None if zeros % order else zeros // order


def _power(terms: list[Decimal], order: int, n: int) -> list[Decimal]:
    """First n coefficients of (sum_k terms_k x^k)^(1/order), by the recurrence of J. C. P. Miller."""
    if n == 0:
        return []
    exponent = Decimal(1) / order
    first = abs(terms[0]) ** exponent
    result = [first if terms[0] > 0 else -first]
    for k in range(1, n):
        total = sum((j * exponent - (k - j)) * terms[j] * result[k - j] for j in range(1, k + 1) if terms[j])
        result.append(total / (k * terms[0]))
    return result


def _agree(coarse: list[Decimal], fine: list[Decimal]) -> bool:
    scale = sum(abs(value) for value in fine)
    pairs = zip(coarse, fine, strict=True)
    return all(abs(a - b) <= _AGREEMENT * abs(b) + _NOTHING * scale for a, b in pairs)
