"""Options of the teachers: frozen, checked once, with the reason beside each default."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from manifoldrf._validation import FloatArray, Interval, check_flag, check_integer, check_option, check_real, reject
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.action import TOLERANCES
from manifoldrf.kernels.roots import log_sizes

_MOST_WALKS = 2**48  # counted in 64 bits, with room for their steps
_MOST_LENGTH = 2**20  # terms of a series that are ever computed
_MOST_STITCHES = 1000  # each takes a pass of its own
_BELOW_ONE = Interval(0.0, 1.0, high_open=True)
_INSIDE = Interval(0.0, 1.0, low_open=True, high_open=True)


@dataclass(frozen=True)
class ExactOptions:
    """Options of the teacher "exact"."""

    tol: float = 1e-10  # of the largest value of the series; a term more buys a factor of about 5
    max_length: int | None = None  # highest power stored with keep_lengths
    keep_lengths: bool = False

    def __post_init__(self) -> None:
        check_real(self.tol, "tol", TOLERANCES)
        _check_lengths(self)


@dataclass(frozen=True)
class FrontierOptions:
    """Options of the teacher "frontier"."""

    tol: float = 1e-8  # error of a row, over the largest value of the series
    max_length: int | None = None
    keep_lengths: bool = False

    def __post_init__(self) -> None:
        check_real(self.tol, "tol", TOLERANCES)
        _check_lengths(self)


@dataclass(frozen=True)
class WalkOptions:
    """Options of the teacher "walks": by default Algorithm 1 of the paper."""

    n_walks: int = 10_000  # the paper's on sphere and ellipsoid
    p_halt: float | None = None  # .01, the paper's, where the survival is geometric
    max_length: int | str | None = None  # None: until they halt, as in the paper; "auto": where f_k is negligible
    transitions: str = "uniform"  # the paper's; "weighted": neighbours in proportion to |W|
    survival: str = "geometric"  # the paper's; "matched": as f_k decays
    coupling: str = "independent"  # or "antithetic", "repelling"
    n_batches: int = 8  # for the standard errors, at no cost
    n_stitches: int = 1  # above 1: a product of so many shorter walks
    keep_lengths: bool = False

    def __post_init__(self) -> None:
        check_integer(self.n_walks, "n_walks", 1, _MOST_WALKS)
        _settle_survival(self, 0.01, _INSIDE)
        check_option(self.transitions, "transitions", ("uniform", "weighted"))
        check_option(self.coupling, "coupling", ("independent", "antithetic", "repelling"))
        check_integer(self.n_batches, "n_batches", 1)
        check_integer(self.n_stitches, "n_stitches", 1, _MOST_STITCHES)
        if self.coupling == "repelling" and self.transitions == "weighted":
            reject("coupling", "independent or antithetic with weighted transitions", repr(self.coupling))
        _check_lengths(self)


@dataclass(frozen=True)
class CountOptions:
    """Options of the teacher "counts"."""

    n_walks: int = 10_000
    p_halt: float | None = None  # 0 where the survival is geometric: thinning saves walker-steps, not time
    max_length: int | str | None = "auto"
    survival: str | None = None  # "matched", but "geometric" where lengths are kept
    n_batches: int = 2  # the least that gives standard errors; the error grows with the square root of it
    n_stitches: int = 1
    keep_lengths: bool = False

    def __post_init__(self) -> None:
        check_integer(self.n_walks, "n_walks", 1, _MOST_WALKS)
        if self.survival is None:
            object.__setattr__(self, "survival", "geometric" if self.keep_lengths is True else "matched")
        _settle_survival(self, 0.0, _BELOW_ONE)
        check_integer(self.n_batches, "n_batches", 1)
        check_integer(self.n_stitches, "n_stitches", 1, _MOST_STITCHES)
        _check_lengths(self)


OPTIONS: dict[str, type[Any]] = {
    "exact": ExactOptions,
    "frontier": FrontierOptions,
    "walks": WalkOptions,
    "counts": CountOptions,
}


def make_options(teacher: str, given: dict[str, Any], *, chosen: bool = False) -> Any:
    """Options of a teacher from keywords; a name that it does not have is an error that lists those it has."""
    kind = OPTIONS[teacher]
    known = [field.name for field in dataclasses.fields(kind)]
    for name in given:
        if name not in known:
            who = f"'{teacher}', which 'auto' chose here," if chosen else f"'{teacher}'"
            raise TypeError(f"Teacher {who} has no option `{name}`; it has {', '.join(known)}.")
    return kind(**given)


def _settle_survival(options: Any, default: float, interval: Interval) -> None:
    """Walks halt with p_halt, or survive as the kernel's series asks; an option without effect is refused."""
    if check_option(options.survival, "survival", ("geometric", "matched")) == "geometric":
        p_halt = default if options.p_halt is None else check_real(options.p_halt, "p_halt", interval)
        object.__setattr__(options, "p_halt", p_halt)
    elif options.p_halt is not None:
        reject("p_halt", "left out with survival='matched'", options.p_halt)


def _check_lengths(options: Any) -> None:
    """Lengths are kept for kernels yet unknown, so nothing about the walks may follow from the kernel."""
    if isinstance(options.max_length, str) and hasattr(options, "survival"):
        check_option(options.max_length, "max_length", ("auto",))
    elif options.max_length is not None:  # kept as an int: an integer of numpy is none to `isinstance`
        object.__setattr__(options, "max_length", check_integer(options.max_length, "max_length", 0, _MOST_LENGTH))
    if not check_flag(options.keep_lengths, "keep_lengths"):
        if not hasattr(options, "survival") and options.max_length is not None:
            reject("max_length", "left out unless lengths are kept", options.max_length)
        return
    if not isinstance(options.max_length, int):
        reject("max_length", "an integer when lengths are kept, such as 60", repr(options.max_length))
    if getattr(options, "survival", "geometric") != "geometric":
        reject("survival", "'geometric' when lengths are kept", repr(options.survival))
    if getattr(options, "n_stitches", 1) > 1:
        reject("n_stitches", "1 when lengths are kept", options.n_stitches)


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
