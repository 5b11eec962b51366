"""Options of the teachers, and the survival law of walks.

Options are checked when they are created. The comment next to a default gives its reason.
"""

import dataclasses
import math
from typing import Any

import numpy as np

from manifoldrf._validation import (
    FloatArray,
    Interval,
    check_flag,
    check_integer,
    check_option,
    check_real,
    fail,
    reject,
)
from manifoldrf.kernels.abstract_kernel import AbstractKernel, FrozenParams
from manifoldrf.kernels.action import TOLERANCES
from manifoldrf.kernels.roots import log_sizes

# Share of the series that walks of length "auto" leave out; far below any Monte Carlo error.
NEGLIGIBLE = 1e-10
_MOST_WALKS = 2**48  # 64-bit integers can then also count their steps
_MOST_LENGTH = 2**20  # no series is computed to more terms
_MOST_STITCHES = 1000  # each takes a separate pass
# Without a cap, walks continue until this share of them is left; the terms beyond are below NEGLIGIBLE anyway.
_SURVIVORS = 1e-9
_WORDS = 2.0**32
# Walks are too short if the lengths at which at least _EXPECTED walks are expected hold less than _SEEN of f.
_EXPECTED, _SEEN = 0.01, 0.01


@dataclasses.dataclass(frozen=True)
class ExactOptions:
    """Options of the teacher "exact"."""

    tol: float = 1e-10  # of the largest value of the series; each further term gains a factor of about 5
    max_length: int | None = None  # highest power stored with keep_lengths
    keep_lengths: bool = False

    def __post_init__(self) -> None:
        check_real(self.tol, "tol", TOLERANCES)
        _check_lengths(self)


@dataclasses.dataclass(frozen=True)
class FrontierOptions(ExactOptions):
    """Options of the teacher "frontier"."""

    tol: float = 1e-8  # error of a row, relative to the largest value of the series


@dataclasses.dataclass(frozen=True)
class WalkOptions:
    """Options of the teacher "walks"; the defaults are Algorithm 1 of the paper."""

    n_walks: int = 10_000  # as in the paper on sphere and ellipsoid
    p_halt: float | None = None  # .01 with geometric survival, as in the paper
    max_length: int | str | None = None  # None: until they halt, as in the paper; "auto": until f_k is negligible
    transitions: str = "uniform"  # as in the paper; "weighted": in proportion to |W|
    survival: str = "geometric"  # as in the paper; "matched": follows the decay of f_k
    coupling: str = "independent"  # or "antithetic", "repelling"
    n_batches: int = 8  # for the standard errors, at no cost
    n_stitches: int = 1  # above 1: a product of this many shorter walks
    keep_lengths: bool = False

    def __post_init__(self) -> None:
        _check_walks(self, 0.01, Interval(0.0, 1.0, low_open=True, high_open=True))
        check_option(self.transitions, "transitions", ("uniform", "weighted"))
        check_option(self.coupling, "coupling", ("independent", "antithetic", "repelling"))
        if self.coupling == "repelling" and self.transitions == "weighted":
            reject("coupling", "independent or antithetic with weighted transitions", repr(self.coupling))


@dataclasses.dataclass(frozen=True)
class CountOptions:
    """Options of the teacher "counts"."""

    n_walks: int = 10_000
    p_halt: float | None = None  # 0 with geometric survival: thinning saves steps of walkers, but no time
    max_length: int | str | None = "auto"
    survival: str | None = None  # "matched", but "geometric" if lengths are kept
    n_batches: int = 2  # the fewest that give standard errors; the error grows with their square root
    n_stitches: int = 1
    keep_lengths: bool = False

    def __post_init__(self) -> None:
        if self.survival is None:
            object.__setattr__(self, "survival", "geometric" if self.keep_lengths is True else "matched")
        _check_walks(self, 0.0, Interval(0.0, 1.0, high_open=True))


OPTIONS: dict[str, type[Any]] = {
    "exact": ExactOptions,
    "frontier": FrontierOptions,
    "walks": WalkOptions,
    "counts": CountOptions,
}


def make_options(teacher: str, given: dict[str, Any], *, chosen: bool = False) -> Any:
    """Make the options of a teacher from keywords; the error about an unknown name lists the known ones."""
    kind = OPTIONS[teacher]
    known = [field.name for field in dataclasses.fields(kind)]
    for name in given:
        if name not in known:
            who = f"'{teacher}', which 'auto' chose here," if chosen else f"'{teacher}'"
            fail(name, f"Teacher {who} has no option `{name}`; it has {', '.join(known)}.", TypeError)
    return kind(**given)


def _check_walks(options: Any, default: float, halting: Interval) -> None:
    """Check the options of walks and counts; ``p_halt`` has an effect only if the survival is geometric."""
    check_integer(options.n_walks, "n_walks", 1, _MOST_WALKS)
    if check_option(options.survival, "survival", ("geometric", "matched")) == "geometric":
        p_halt = default if options.p_halt is None else check_real(options.p_halt, "p_halt", halting)
        object.__setattr__(options, "p_halt", p_halt)
    elif options.p_halt is not None:
        reject("p_halt", "left out with survival='matched'", options.p_halt)
    check_integer(options.n_batches, "n_batches", 1)
    check_integer(options.n_stitches, "n_stitches", 1, _MOST_STITCHES)
    _check_lengths(options)


def _check_lengths(options: Any) -> None:
    """Check ``max_length`` and ``keep_lengths``.

    Lengths are kept for kernels that are not known yet, so the walks must not depend on the kernel.
    """
    if isinstance(options.max_length, str) and hasattr(options, "survival"):
        check_option(options.max_length, "max_length", ("auto",))
    elif options.max_length is not None:  # stored as an int, because `isinstance` is used below
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


@dataclasses.dataclass(frozen=True)
class SurvivalLaw:
    """Walks of length k continue to k + 1 with probability keep_k; f_k is their coefficient."""

    coefficients: FloatArray  # (L,) f_k
    keep: FloatArray  # (L,) in [0, 1], multiples of 2^-32; the last is 0

    @property
    def reached(self) -> FloatArray:
        """s_k, the share of walks that reach length k."""
        return np.concatenate([[1.0], np.cumprod(self.keep[:-1])])

    @property
    def deposit(self) -> FloatArray:
        """f_k / s_k."""
        reached = self.reached
        deposit: FloatArray = np.zeros_like(reached)
        # No walk survives to a share of 1e-300, and the quotient would overflow.
        np.divide(self.coefficients, reached, out=deposit, where=(self.coefficients != 0) & (reached > 1e-300))
        return deposit

    @property
    def thresholds(self) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        """``keep`` as a number of 32-bit words."""
        return (self.keep * _WORDS).astype(np.uint64)


def survival_law(series: AbstractKernel | None, options: Any, radius: float) -> SurvivalLaw:
    """Law of walks for the series of a kernel; without a kernel, all coefficients are 1.

    ``options`` has the attributes ``survival``, ``p_halt`` and ``max_length``.
    """
    p_halt = 0.0 if options.survival == "matched" or options.p_halt is None else options.p_halt
    n = _n_lengths(series, p_halt, options.max_length, radius)
    f = np.ones(n) if series is None else coefficients_of(series, n, radius)
    keep = np.full(n, max(1.0 - p_halt, 1 / _WORDS))
    if options.survival == "matched":  # s_k = sqrt(sum_{j >= k} |f_j| / sum_j |f_j|)
        logs = log_sizes(f, radius)
        sizes = np.exp(logs - max(float(logs.max()), -1e300))  # |f_k| radius^k up to a factor; all may be zero
        rest = np.cumsum(sizes[::-1])[::-1]
        ratios = np.divide(rest[1:], rest[:-1], out=np.zeros(n - 1), where=rest[:-1] > 0)
        # A walk that can still deposit something must have a chance to continue.
        keep[:-1] = np.where(rest[1:] > 0, np.maximum(np.sqrt(ratios), 1 / _WORDS), 0.0)
    keep = np.round(keep * _WORDS) / _WORDS  # the resolution of 32 random bits: unbiased to the last bit
    keep[-1] = 0.0
    return SurvivalLaw(f, keep)


def refuse_unreached(law: SurvivalLaw, n_walks: int, p_halt: float | None) -> None:
    """Raise an error if hardly any walk is as long as the series needs: the rows would be zero."""
    sizes = np.abs(law.coefficients)
    seen = n_walks * law.reached >= _EXPECTED
    if sizes[seen].sum() >= _SEEN * sizes.sum():
        return
    length = max(1, int(np.searchsorted(np.cumsum(sizes), sizes.sum() / 2)))  # holds half of the series
    most = -math.expm1(-math.log(max(n_walks, 2)) / length)
    rule = f"at most {most:.1g} for {n_walks} walks of {length} steps, or left out with survival='matched'"
    reject("p_halt", rule, p_halt)


def coefficients_of(series: AbstractKernel, n: int, radius: float) -> FloatArray:
    """First n coefficients. A root without a closed form may have fewer; the rest is negligible and set to zero."""
    f = series.coefficients(n if n <= series._most_terms else series.truncation(NEGLIGIBLE, radius))
    return np.concatenate([f, np.zeros(n - len(f))])


def _n_lengths(series: AbstractKernel | None, p_halt: float, max_length: int | str | None, radius: float) -> int:
    if isinstance(max_length, int) or series is None:
        return int(max_length or 0) + 1
    negligible = series.truncation(NEGLIGIBLE, radius)
    if max_length == "auto" or p_halt == 0:
        return negligible
    return max(negligible, math.ceil(min(math.log(_SURVIVORS) / math.log1p(-p_halt), _MOST_LENGTH)))


@dataclasses.dataclass(frozen=True)
class Walks(WalkOptions, FrozenParams):
    """Random walks as a teacher."""


@dataclasses.dataclass(frozen=True)
class Counts(CountOptions, FrozenParams):
    """Counted walkers as a teacher."""
