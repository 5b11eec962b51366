"""Options of the teachers: frozen, checked once, with the reason beside each default."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from manifoldrf._validation import Interval, check_flag, check_integer, check_option, check_real, reject
from manifoldrf.kernels._action import TOLERANCES

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
