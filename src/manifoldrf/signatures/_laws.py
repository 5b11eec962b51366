"""From the series of a kernel to the tables that walks follow: how long they live, what they deposit."""

import math
from dataclasses import dataclass

import numpy as np

from manifoldrf._validation import FloatArray, reject
from manifoldrf.kernels._series import log_sizes
from manifoldrf.kernels.abstract_kernel import AbstractKernel

# Share of the series that walks of length "auto" leave out; far below any Monte Carlo error.
NEGLIGIBLE = 1e-10
# Without a cap, walks go on until this share of them is left; the terms beyond are below NEGLIGIBLE anyway.
_SURVIVORS = 1e-9
_LONGEST = 2**20
_WORDS = 2.0**32
# Walks are too short where lengths that less than a hundredth of a walk is expected at hold all but so much of f.
_EXPECTED, _SEEN = 0.01, 0.01


@dataclass(frozen=True)
class SurvivalLaw:
    """Walks of length k go on to k + 1 with probability keep_k; f_k is their coefficient."""

    coefficients: FloatArray  # (L,) f_k
    keep: FloatArray  # (L,) in [0, 1], whole multiples of 2^-32; the last is 0

    @property
    def reached(self) -> FloatArray:
        """s_k, the share of walks that reach length k."""
        return np.concatenate([[1.0], np.cumprod(self.keep[:-1])])

    @property
    def deposit(self) -> FloatArray:
        """f_k / s_k, with s_k the share of walks that reach length k."""
        reached = self.reached
        deposit: FloatArray = np.zeros_like(reached)
        # A share of 1e-300 is that of no walk at all, and the quotient would overflow.
        np.divide(self.coefficients, reached, out=deposit, where=(self.coefficients != 0) & (reached > 1e-300))
        return deposit

    @property
    def thresholds(self) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """``keep`` as numbers of 32-bit words."""
        return (self.keep * _WORDS).astype(np.uint64)


def refuse_unreached(law: SurvivalLaw, n_walks: int, p_halt: float | None) -> None:
    """Refuse walks of which none lives as long as the series asks: the answer would be rows of zeros."""
    sizes = np.abs(law.coefficients)
    seen = n_walks * law.reached >= _EXPECTED
    if sizes[seen].sum() >= _SEEN * sizes.sum():
        return
    length = max(1, int(np.searchsorted(np.cumsum(sizes), sizes.sum() / 2)))  # half of the series is within it
    most = -math.expm1(-math.log(max(n_walks, 2)) / length)
    rule = f"at most {most:.1g} for {n_walks} walks of {length} steps, or left out with survival='matched'"
    reject("p_halt", rule, p_halt)


def survival_law(
    series: AbstractKernel | None,
    *,
    survival: str,
    p_halt: float | None,
    max_length: int | str | None,
    radius: float = 1.0,
) -> SurvivalLaw:
    """Law of walks for the series of a kernel; without a kernel every length counts one."""
    p_halt = 0.0 if survival == "matched" or p_halt is None else p_halt
    n = _n_lengths(series, p_halt, max_length, radius)
    f = np.ones(n) if series is None else coefficients_of(series, n, radius)
    geometric = np.full(n, max(1.0 - p_halt, 1 / _WORDS))
    keep = _matched(_sizes(f, radius)) if survival == "matched" else geometric
    keep = np.round(keep * _WORDS) / _WORDS  # what 32 random bits can tell apart: unbiased to the last bit
    keep[-1] = 0.0
    return SurvivalLaw(f, keep)


def _n_lengths(series: AbstractKernel | None, p_halt: float, max_length: int | str | None, radius: float) -> int:
    if isinstance(max_length, int) or series is None:
        return int(max_length or 0) + 1
    negligible = series.truncation(NEGLIGIBLE, radius)
    if max_length == "auto" or p_halt == 0:
        return negligible
    return max(negligible, math.ceil(min(math.log(_SURVIVORS) / math.log1p(-p_halt), _LONGEST)))


def coefficients_of(series: AbstractKernel, n: int, radius: float) -> FloatArray:
    """First n coefficients; of a root without a closed form, which knows no more, those that are not negligible."""
    f = series.coefficients(n if n <= series._most_terms else series.truncation(NEGLIGIBLE, radius))
    return np.concatenate([f, np.zeros(n - len(f))])


def _sizes(f: FloatArray, radius: float) -> FloatArray:
    """|f_k| radius^k up to a common factor, also where the power alone would overflow."""
    logs = log_sizes(f, radius)
    return np.asarray(np.exp(logs - max(float(logs.max()), -1e300)))  # all may be zero


def _matched(sizes: FloatArray) -> FloatArray:
    """s_k = sqrt(sum_{j >= k} |f_j| / sum_j |f_j|): as many walks at each length as their deposits deserve."""
    rest = np.cumsum(sizes[::-1])[::-1]
    ratios = np.divide(rest[1:], rest[:-1], out=np.zeros(len(rest) - 1), where=rest[:-1] > 0)
    # A walk that could still deposit something must have a chance to live.
    chances = np.where(rest[1:] > 0, np.maximum(np.sqrt(ratios), 1 / _WORDS), 0.0)
    return np.concatenate([chances, [0.0]])
