"""Which tau, noise and method: by the error at known nodes that are left out in turn."""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from manifoldrf._validation import FloatArray
from manifoldrf.applications._filling import Filled, Problem, fill_by_gp, fill_by_kernel, fill_by_solve
from manifoldrf.applications._known import BoolArray
from manifoldrf.geometry._triangles import row_lengths

# From means over the neighbours to walks of 128 steps, each twice as long; continued where the best is at an end.
_KERNEL_TAUS = tuple(2.0**k for k in range(-2, 8))
_GP_TAUS = tuple(2.0**k for k in range(1, 7))
# Of a kernel whose diagonal is below 1. Less noise than 1e-4 is not resolved within the cap of iterations.
_NOISES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_TAU_RANGE = 2.0**-10, 2.0**19  # below, only nearest values are left; above, one mean for each component
# With a single known value in every component all tau give the same field.
_ANY_TAU, _ANY_NOISE = 1.0, 1e-3
# A direction is a row longer than this share of the longest known row: what rows that cancel leave is rounding.
_NO_DIRECTION = 1e-12
_ROUNDING = 1e-9  # an error below is none: where all known values are the same, their mean has none, either

# Factors for each of five folds take a minute at 150,000 nodes, where one fold has thousands of errors to average.
_NODES_FOR_FOLDS = 50_000
# Above, the iterations of "auto" for the Gaussian process would take longer than all else (minutes on two cores).
GP_NODES = 20_000


@dataclass(frozen=True)
class Choice:
    """A method with its parameters, and its error where it was measured, over so many folds."""

    method: str
    tau: float | None = None
    noise: float | None = None
    error: float | None = None
    folds: int = 0

    def as_row(self) -> dict[str, Any]:
        """A row of the table of what was tried."""
        return dataclasses.asdict(self)


def directions(rows: FloatArray, longest: float) -> FloatArray:
    """Rows divided by their lengths; NaN where a row has none."""
    lengths = row_lengths(rows)[:, None]
    return np.divide(rows, lengths, out=np.full_like(rows, np.nan), where=lengths > _NO_DIRECTION * longest)


@dataclass(frozen=True, eq=False)
class Examiner:
    """Measures errors at known nodes that were left out, and looks for the least.

    Attributes
    ----------
    problem : Problem
    stays : bool array of shape (folds, n_nodes)
        What stays known in each fold.
    normalize : bool
        Whether values are directions: the error is then 1 minus the mean cosine, else the mean squared error over
        the variance of the known values.
    """

    problem: Problem
    stays: BoolArray
    normalize: bool

    def error(self, fields: Sequence[Filled]) -> float:
        """Error over all folds; NaN where no known node was left out of a component that has others."""
        known = self.problem.known
        found, true = [], []
        for mask, field in zip(self.stays, fields, strict=False):
            out = known.mask & ~mask & (field.mass > 0)
            found.append(field.values[out])
            true.append(known.values[out])
        return self._compare(np.concatenate(found), np.concatenate(true)) if found else np.nan

    def _compare(self, found: FloatArray, true: FloatArray) -> float:
        if not len(true):
            return np.nan
        known = self.problem.known.values[self.problem.known.mask]
        if self.normalize:
            longest = float(row_lengths(known).max())
            right = directions(true, longest)
            cosines = (np.nan_to_num(directions(found, longest)) * right).sum(axis=1)
            cosines = cosines[~np.isnan(cosines)]  # a known row without direction says nothing
            return float(1.0 - cosines.mean()) if len(cosines) else np.nan
        spread = float(known.var(axis=0).sum())
        return float(((found - true) ** 2).sum(axis=1).mean() / (spread or 1.0))

    def beats_mean(self, choice: Choice) -> bool | None:
        """Whether a choice is better than the mean of all known values; None where nothing was measured."""
        if choice.error is None or np.isnan(choice.error):
            return None
        mean_error = 1.0  # over the variance
        if self.normalize:
            known = self.problem.known.values[self.problem.known.mask]
            found = directions(known, float(row_lengths(known).max()))
            mean_error = 1.0 - float(np.linalg.norm(np.nanmean(found, axis=0)))
        return bool(choice.error < max(mean_error, _ROUNDING))

    def kernel(self, tau: float | None) -> list[Choice]:
        """Errors of the kernel for the given tau, or for those of the search."""

        def measure(trial: float) -> list[Choice]:
            found = fill_by_kernel(self.problem, self.stays, trial)
            return [Choice("kernel", trial, None, self.error(found), len(found))]

        return _scan(measure, _KERNEL_TAUS) if tau is None else measure(tau)

    def gp(self, tau: float | None, noise: float | None) -> list[Choice]:
        """Errors of the Gaussian process on one fold, for tau and noises given or searched for."""
        noises = _NOISES if noise is None else (noise,)

        def measure(trial: float) -> list[Choice]:
            tried = fill_by_gp(self.problem, self.stays[:1], trial, noises)
            return [Choice("gp", trial, found.noise, self.error(found.folds), 1) for found in tried]

        return _scan(measure, _GP_TAUS) if tau is None else measure(tau)

    def gp_on_all_folds(self, choice: Choice) -> Choice:
        """The same choice with its error over all folds."""
        tau, noise = choice.tau or _ANY_TAU, choice.noise or 0.0
        (found,) = fill_by_gp(self.problem, self.stays, tau, (noise,))
        return Choice("gp", tau, noise, self.error(found.folds), len(found.folds))

    def solve(self, method: str) -> Choice:
        """Error of a harmonic or biharmonic field; infinite where it cannot be had."""
        try:
            found = fill_by_solve(self.problem, self.stays, method)
            return Choice(method, error=self.error(found), folds=len(found))
        except ArithmeticError:
            return Choice(method, error=np.inf, folds=len(self.stays))


def best_of(choices: Sequence[Choice], options: Choice | None = None) -> Choice:
    """The least error; where none could be measured, the first method with what was asked for, or with anything."""
    measured = [choice for choice in choices if choice.error is not None and not np.isnan(choice.error)]
    if measured:
        return min(measured, key=lambda choice: float(choice.error or 0.0))
    return _with_any(Choice(choices[0].method) if options is None else options)


def _with_any(options: Choice) -> Choice:
    """A choice where nothing can be measured: with one known value for a component, all methods give that value."""
    method = "harmonic" if options.method == "auto" else options.method
    tau = (options.tau or _ANY_TAU) if method in ("kernel", "features", "gp") else None
    noise = (_ANY_NOISE if options.noise is None else options.noise) if method == "gp" else None
    return Choice(method, tau, noise)


def folds_worth(stays: BoolArray) -> BoolArray:
    """All folds of small graphs, the first one of large ones."""
    return stays if stays.shape[1] <= _NODES_FOR_FOLDS else stays[:1]


def _scan(measure: Callable[[float], list[Choice]], taus: Sequence[float]) -> list[Choice]:
    """Errors for rising tau, continued by factors of 2 as long as the best is at an end."""
    tried = {tau: measure(tau) for tau in taus}

    def is_best(tau: float) -> bool:
        best = best_of([choice for choices in tried.values() for choice in choices])
        return best.error is not None and best.tau == tau

    while is_best(low := min(tried)) and low > _TAU_RANGE[0]:
        tried[low / 2] = measure(low / 2)
    while is_best(high := max(tried)) and high < _TAU_RANGE[1]:
        tried[high * 2] = measure(high * 2)
    return [choice for tau in sorted(tried) for choice in tried[tau]]


def choose(examiner: Examiner, options: Choice) -> tuple[Choice, list[Choice]]:
    """The method with its parameters, and all that was tried; what is given is not tried.

    Parameters
    ----------
    examiner : Examiner
    options : Choice
        What the user asked for; None stands for what is to be chosen.
    """
    method, tau, noise = options.method, options.tau, options.noise
    if not len(examiner.stays):
        return _with_any(options), []
    if method == "auto":
        return _choose_method(dataclasses.replace(examiner, stays=folds_worth(examiner.stays)), tau, noise)
    if method == "gp":
        if tau is not None and noise is not None:
            return Choice(method, tau, noise), []
        tried = examiner.gp(tau, noise)
    elif method in ("kernel", "features"):
        if tau is not None:
            return Choice(method, tau), []
        tried = examiner.kernel(None)  # features stand for the same kernel
    else:
        return Choice(method), []
    return dataclasses.replace(best_of(tried, options), method=method), tried


def _choose_method(examiner: Examiner, tau: float | None, noise: float | None) -> tuple[Choice, list[Choice]]:
    """The method with the least error, each with its best parameters, on the same folds."""
    finals = [examiner.solve(method) for method in ("harmonic", "biharmonic")]
    tried = [*examiner.kernel(tau), *finals]
    finals.append(best_of(tried[: -len(finals)], Choice("kernel", tau)))
    if examiner.stays.shape[1] <= GP_NODES:
        trials = examiner.gp(tau, noise)
        finals.append(examiner.gp_on_all_folds(best_of(trials, Choice("gp", tau, noise))))
        tried += [*trials, finals[-1]]
    return best_of(finals), tried
