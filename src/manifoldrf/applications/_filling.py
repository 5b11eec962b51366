"""The methods of interpolation: each fills a graph from what stays known, for several folds at once."""

from dataclasses import dataclass

import numpy as np

from manifoldrf._validation import FloatArray
from manifoldrf.applications._known import BoolArray, Known, nearest_known, reached
from manifoldrf.applications._solves import (
    SolverReport,
    System,
    biharmonic,
    conjugate_gradients,
    harmonic,
    solve_with_fixed,
)
from manifoldrf.applications.smoothing import Action, smooth
from manifoldrf.geometry.graphs import Graph
from manifoldrf.kernels.graph_kernels import DiffusionKernel

# The action is off by at most this, times the norm of the column. Wide kernels, which reach everywhere anyway,
# cannot be expanded to more than 1e-10 in doubles.
_ACTION_TOL, _WIDE_ACTION_TOL, _WIDE = 1e-12, 1e-10, 1024.0
# A mass counts where it is so many times that error: the mean is then right to 1e-4 of the spread, mostly to 1e-8.
_RESOLVED = 1e4
WIDEST = 1e6  # the action takes 7000 products there, and beyond does not converge

# Conjugate gradients: residuals of 1e-4 change no third digit of a prediction, and most runs end at the cap before
# (which smooths as a little more noise would).
GP_TOL = 1e-4
GP_ITERATIONS = 60


@dataclass(frozen=True, eq=False)
class Problem:
    """What is to be filled: known values on a graph, by so many threads."""

    graph: Graph
    known: Known
    n_jobs: int

    def kernel_action(self, tau: float) -> Action:
        """X -> exp(-tau L) X, without the matrix."""
        kernel, graph, n_jobs = DiffusionKernel(tau), self.graph, self.n_jobs
        return lambda X: kernel.apply(graph, X, tol=_tolerance(tau), n_jobs=n_jobs)


@dataclass(frozen=True, eq=False)
class Filled:
    """A field at all nodes.

    Attributes
    ----------
    values : array of shape (n_nodes, c)
        NaN in components without a known value.
    mass : array of shape (n_nodes,)
        How much each node counts where the field is mixed between nodes; zero where it is NaN.
    n_nearest : int
        Nodes that have the value of the nearest known node, because the kernel does not reach them.
    """

    values: FloatArray
    mass: FloatArray
    n_nearest: int = 0


def _tolerance(tau: float) -> float:
    """What the action is asked for."""
    return _ACTION_TOL if tau <= _WIDE else _WIDE_ACTION_TOL


def side_by_side(action: Action, n_folds: int) -> Action:
    """The action on folds that stand below each other, (folds n, c), as one action on (n, folds c)."""

    def stacked(columns: FloatArray) -> FloatArray:
        width = columns.shape[1]
        wide = columns.reshape(n_folds, -1, width).swapaxes(0, 1).reshape(-1, n_folds * width)
        return action(wide).reshape(-1, n_folds, width).swapaxes(0, 1).reshape(-1, width)

    return stacked


def fill_by_kernel(problem: Problem, stays: BoolArray, tau: float) -> list[Filled]:
    """K(m u) / (K m) for every mask m of ``stays`` (folds, n_nodes), all in one action."""
    values, (n_folds, n) = problem.known.values, stays.shape
    action = side_by_side(problem.kernel_action(tau), n_folds)
    found = smooth(action, np.tile(values, (n_folds, 1)), stays.ravel().astype(np.float64))
    means, masses = found.values.reshape(n_folds, n, -1), found.mass.reshape(n_folds, n)
    floors = _RESOLVED * _tolerance(tau) * np.sqrt(stays.sum(axis=1))
    return [finish_means(problem, *parts) for parts in zip(stays, means, masses, floors, strict=True)]


def finish_means(problem: Problem, mask: BoolArray, means: FloatArray, mass: FloatArray, floor: float) -> Filled:
    """Means with the nearest known value where the mass is at most ``floor``, within the range of what is known.

    A mean is off by 1e-4 of the spread of all values at most; a component of its own may have a smaller one.
    """
    known, inside = problem.known, reached(problem.graph, mask)
    lost = inside & ~(mass > floor)
    values = np.where(inside[:, None], known.within(means, problem.graph, mask), np.nan)
    if lost.any():
        values[lost] = known.values[nearest_known(problem.graph, mask)[lost]]
    counts = np.bincount(problem.graph.components[mask], minlength=problem.graph.n_components)
    several = counts[problem.graph.components] > 1  # the nearest of one known value is no makeshift
    share = np.where(inside, np.maximum(mass, max(floor, np.finfo(np.float64).tiny)), 0.0)
    return Filled(values, share, int((lost & several).sum()))


def fill_by_solve(problem: Problem, stays: BoolArray, method: str) -> list[Filled]:
    """Harmonic or biharmonic field with the values of each mask of ``stays`` fixed."""
    system = harmonic(problem.graph) if method == "harmonic" else biharmonic(problem.graph)
    return [_solved(problem, mask, system, keep_range=method == "harmonic") for mask in stays]


def _solved(problem: Problem, mask: BoolArray, system: System, *, keep_range: bool) -> Filled:
    known, inside = problem.known, reached(problem.graph, mask)
    values = solve_with_fixed(system, known.values, mask, inside & ~mask)
    cut = known.within(values, problem.graph, mask) if keep_range else values
    return Filled(cut, inside.astype(np.float64))


@dataclass(frozen=True, eq=False)
class Regressed:
    """Gaussian-process means for one noise: one field for each fold, and how the solver ended."""

    noise: float
    folds: list[Filled]
    report: SolverReport


def fill_by_gp(
    problem: Problem, stays: BoolArray, tau: float, noises: tuple[float, ...], max_iterations: int = GP_ITERATIONS
) -> list[Regressed]:
    """Mean of a Gaussian process, u0 + K_nk (K_kk + noise I)^-1 (u_k - u0), for every mask and every noise.

    u0 is the mean of the known values of a component. All systems run side by side in one action: the columns of a
    fold are zero where it knows nothing, and the kernel is cut to its mask.
    """
    n_folds, n_noises = len(stays), len(noises)
    width = problem.known.values.shape[1]
    means = np.stack([_component_means(problem, mask) for mask in stays], axis=1)  # (n, folds, c)
    masks = stays.T[:, :, None].astype(np.float64)  # (n, folds, 1)
    right = masks * (problem.known.values[:, None] - np.nan_to_num(means))  # (n, folds, c)
    wide = np.tile(right.reshape(len(right), -1), (1, n_noises))  # (n, noises folds c)
    cut = np.tile(np.repeat(masks[:, :, 0], width, axis=1), (1, n_noises))
    shift = np.repeat(noises, n_folds * width)
    action = problem.kernel_action(tau)
    solution, report = conjugate_gradients(
        lambda X, at: cut[:, at] * action(X) + shift[at] * X, wide, tol=GP_TOL, max_iterations=max_iterations
    )
    fields = action(solution).reshape(-1, n_noises, n_folds, width) + means[:, None]
    inside = [reached(problem.graph, mask).astype(np.float64) for mask in stays]
    return [
        Regressed(noise, [Filled(fields[:, i, f], inside[f]) for f in range(n_folds)], report)
        for i, noise in enumerate(noises)
    ]


def _component_means(problem: Problem, mask: BoolArray) -> FloatArray:
    """Mean of the known values of each node's component, shape (n_nodes, c); NaN where there are none."""
    labels, count = problem.graph.components, problem.graph.n_components
    own = labels[mask]
    totals = [np.bincount(own, column, minlength=count) for column in problem.known.values[mask].T]
    with np.errstate(invalid="ignore"):
        means = np.stack(totals, axis=1) / np.bincount(own, minlength=count)[:, None]
    return np.asarray(means[labels])
