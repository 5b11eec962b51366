"""Signatures on ever finer grids become Gaussians: the paper's check of its theory, in 2 to 32 dimensions.

Claim: on the wrap-around grid with n nodes an axis the squared errors of the exact signature against the feature
g_sigma, and of its inner products against the Gaussian kernel, fall with n in every dimension, at last like n^-4;
those of random walks fall with them until the walks' own noise is larger.

Constants. With Phi = exp(-t/2 L_n), t = sigma^2 / 2, a row of Phi sums to one and n^d Phi tends to the heat kernel
of the torus at time sigma^2 / 4, which is (pi sigma^2)^{-d/2} sum_k exp(-|x - w + k|^2 / sigma^2). The feature
g_sigma has (2 / (pi sigma^2))^{d/4} before its exponential. So

* (2 pi sigma^2)^{d/4} n^d Phi[x, w] -> g_sigma(x, w), pointwise; and
* psi = (2 pi sigma^2)^{d/4} n^{d/2} Phi has <psi(x), psi(y)> -> K(x, y) = exp(-|x - y|^2 / (2 sigma^2)): the sum
  over n^d nodes stands for n^d times the integral.

The paper takes the second constant for both. Both limits are periodised (sums over images), not the plain ones.
All n of the paper are odd, so that (1/2, ..., 1/2) is no node: the centre here is node floor(n/2) of every axis.

Method. Diffusion on the grid is a Kronecker product over the axes, each of which diffuses for sigma^2 n^2 steps of
its own. Estimates on rings are independent for each axis, and norms and inner products of tensor products are
products over the axes: nothing of size n^d is formed. A ring looks the same from every node, so that walks from all
its nodes, turned back to the centre, are independent runs from one. Each axis takes a run of its own; mean errors
are those over all such choices, and spreads those between repetitions that choose at random. In <psi(x), psi(y)>
the walks from x and y are independent, as they are for any x != y.
"""

import dataclasses
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import stats

from manifoldrf._random import Streams
from manifoldrf._validation import POSITIVE, FloatArray, Interval, check_integer, check_jobs, check_real, reject
from manifoldrf.geometry.builders import grid_graph
from manifoldrf.geometry.heat import heat_graph
from manifoldrf.kernels.graph_kernels import DiffusionKernel
from manifoldrf.kernels.manifold_kernels import HeatKernel
from manifoldrf.signatures._engines import Progress
from manifoldrf.signatures.teachers import compute_signatures
from reproduction._rings import Ring, walk_options
from reproduction.record import Record

TEACHERS = ("exact", "walks", "counts")
# Chance that a right prediction is called wrong, over all dimensions and grids; quantiles of Student's t for it.
_FALSE_ALARM = 1e-3
_SOURCE = (0.15, 0.2)  # on the saddle; off the middle, where it is not symmetric
_SAMPLES = ((0.35, 0.45), (-0.2, 0.25), (0.5, -0.15), (-0.45, -0.45))  # from near to far, for the picture


def _check_growing(values: Any, name: str, low: int) -> None:
    """A tuple of integers from ``low`` on, each larger than the one before."""
    rule = f"a tuple of growing integers in [{low}, inf)"
    if not isinstance(values, tuple) or not values:
        reject(name, rule, repr(values), TypeError)
    numbers = [check_integer(value, name, low) for value in values]
    if any(a >= b for a, b in pairwise(numbers)):
        reject(name, rule, repr(values))


@dataclass(frozen=True)
class Config:
    """Settings of the experiment."""

    dims: tuple[int, ...] = tuple(range(2, 33, 2))  # the paper's
    sides: tuple[int, ...] = tuple(range(5, 106, 10))  # the paper's n, nodes along an axis
    sigma: float = 0.2  # the paper's, on the cube of side 1
    p_halt: float = 0.005  # the paper's, of Algorithm 1
    n_walks: int = 100_000  # the paper's, per start
    n_repeats: int = 30  # the paper's, for the spread
    n_runs: int = (
        256  # independent runs on each ring; 30 times 32 would take four times as long, for half the error
    )
    panels: tuple[int, ...] = (5, 15, 35, 105)  # n of the pictures in two dimensions: coarse to converged
    grids: tuple[int, ...] = (4, 8, 16, 32)  # of the paper's first figure
    saddle_side: int = 51  # nodes along a side of the saddle: edges of .04 under a kernel .3 wide
    saddle_t: float = 0.05  # heat time on the saddle: the kernel ends well before the boundary
    n_jobs: int = -1  # threads; results do not depend on it
    seed: int = 0

    def __post_init__(self) -> None:
        _check_growing(self.dims, "dims", 1)
        _check_growing(self.sides, "sides", 3)
        _check_growing(self.panels, "panels", 3)
        _check_growing(self.grids, "grids", 3)
        check_real(self.sigma, "sigma", POSITIVE)
        check_real(self.p_halt, "p_halt", Interval(0.0, 1.0, low_open=True, high_open=True))
        check_integer(self.n_walks, "n_walks", 8)  # standard errors take eight batches
        check_integer(self.n_repeats, "n_repeats", 2)
        check_integer(self.n_runs, "n_runs", max(2 * max(self.dims), 4))  # an axis of the kernel takes two
        check_integer(self.saddle_side, "saddle_side", 11)
        check_real(self.saddle_t, "saddle_t", POSITIVE)
        check_jobs(self.n_jobs)
        check_integer(self.seed, "seed", 0)

    def ring(self, side: int) -> Ring:
        """One axis of a grid."""
        return Ring(side, self.sigma, self.n_runs, self.n_walks, self.p_halt, self.n_jobs, self.seed)


SIZES: dict[str, Config] = {
    "smoke": Config(
        dims=(2, 4, 8),
        sides=(5, 15, 25),
        n_walks=2000,
        n_repeats=10,
        n_runs=32,
        panels=(5, 25),
        grids=(4, 8),
        saddle_side=31,
    ),
    "paper": Config(),
}


def run(config: Config, progress: Progress = lambda what, done, total: None) -> Record:
    """Measure every teacher on every grid.

    Tables: ``summary`` (some dimensions, coarsest and finest grid), ``errors`` (every dimension, grid and teacher),
    ``constants`` (how far both limits are from one) and ``claims``. Relative mean squared errors are the paper's,
    E |x - y|^2 / |y|^2, with their standard errors, the standard deviation between repetitions, and the Monte Carlo
    part ("noise") that the teachers predict: for psi from the standard errors of the signatures.
    """
    start = time.perf_counter()
    total = len(config.sides) * len(TEACHERS) + 2
    errors: list[dict[str, Any]] = []
    for place, side in enumerate(config.sides):
        ring = config.ring(side)
        for which, teacher in enumerate(TEACHERS):
            progress(f"{teacher} on {side} nodes an axis", place * len(TEACHERS) + which, total)
            errors += ring.errors(teacher, config.dims, config.n_repeats)
    progress("pictures", total - 2, total)
    arrays = _panels(config) | _grid_signatures(config)
    progress("saddle", total - 1, total)
    arrays |= _saddle(config)
    tables = {
        "summary": _summary(errors, config),
        "claims": _claims(errors, config),
        "constants": _constants(config),
        "errors": errors,
    }
    progress("done", total, total)
    settings = dataclasses.asdict(config)
    return Record("gaussian_grid", settings, tables, time.perf_counter() - start, arrays=arrays)


def _column(errors: list[dict[str, Any]], d: int, teacher: str, name: str) -> FloatArray:
    """One column for one dimension and teacher, from the coarsest grid to the finest."""
    return np.array([row[name] for row in errors if row["d"] == d and row["teacher"] == teacher])


def _summary(errors: list[dict[str, Any]], config: Config) -> list[dict[str, Any]]:
    """Coarsest and finest grid, for the first and last dimension and powers of two between."""
    shown = [d for d in config.dims if d & (d - 1) == 0 or d in (config.dims[0], config.dims[-1])]
    first, last = config.sides[0], config.sides[-1]
    rows = []
    for name in ("psi", "kernel"):
        for d in shown:
            exact, walks = _column(errors, d, "exact", name), _column(errors, d, "walks", name)
            row = {"of": name, "d": d, f"exact_n{first}": exact[0], f"exact_n{last}": exact[-1]}
            row |= {f"walks_n{first}": walks[0], "walks_least": walks.min(), f"walks_n{last}": walks[-1]}
            row |= {f"noise_n{last}": _column(errors, d, "walks", f"{name}_noise")[-1]}
            row |= {f"counts_n{last}": _column(errors, d, "counts", name)[-1]}
            row |= {f"plain_n{last}": _column(errors, d, "exact", f"{name}_plain")[-1]}
            rows.append({key: float(value) if key not in ("of", "d") else value for key, value in row.items()})
    return rows


def _claims(errors: list[dict[str, Any]], config: Config) -> list[dict[str, Any]]:
    """What the experiment claims, whether it holds, and the worst case."""
    claims = []
    cases = len(config.dims) * len(config.sides)
    allowed = float(stats.t.isf(_FALSE_ALARM / (2 * cases), config.n_runs // 2 - 1))
    for name in ("psi", "kernel"):
        exact = [_column(errors, d, "exact", name) for d in config.dims]
        growth = max((float((c[1:] / c[:-1]).max()) for c in exact if len(c) > 1), default=0.0)
        text = f"exact {name}: errors fall with n for every d (largest ratio of neighbours)"
        claims.append({"claim": text, "holds": growth < 1, "worst": growth, "allowed": 1.0})
        for teacher in ("walks", "counts"):
            misses = []
            for d, bias in zip(config.dims, exact, strict=True):
                found, stderr = _column(errors, d, teacher, name), _column(errors, d, teacher, f"{name}_stderr")
                noise = _column(errors, d, teacher, f"{name}_noise")
                misses.append(np.abs(found - bias - noise) / stderr)
            worst = float(np.max(misses))
            text = f"{teacher} {name}: errors are those of exact plus the noise (largest miss, standard errors)"
            claims.append({"claim": text, "holds": worst < allowed, "worst": worst, "allowed": allowed})
    return claims


def _constants(config: Config) -> list[dict[str, Any]]:
    """Both constants on the finest grid, and by which factor exact results miss the limits, by least squares."""
    ring = config.ring(config.sides[-1])
    exact, _ = ring.estimates("exact")
    ratios = [float(f[0] @ y / (y @ y)) for f, y in zip(exact, ring.periodised(), strict=True)]
    to_field, to_kernel = ring.scale
    return [
        {
            "d": d,
            "n": ring.side,
            "log10_for_psi": d * float(np.log10(to_field)),
            "log10_for_kernel": d * float(np.log10(to_kernel)),
            "psi_ratio": ratios[0] ** d,
            "kernel_ratio": ratios[1] ** d,
            "psi_ratio_with_kernel_constant": (ratios[0] * to_kernel / to_field) ** d,
        }
        for d in config.dims
    ]


def _panels(config: Config) -> dict[str, FloatArray]:
    """Two dimensions: limits and walks as squares of numbers, (n, n), each axis with a run of its own."""
    drawn = {}
    for side in config.panels:
        ring = dataclasses.replace(config.ring(side), n_runs=4)
        (fields, kernels), _ = ring.estimates("walks")
        field, kernel = ring.periodised()
        drawn[f"panel_{side}_kernel_exact"] = np.outer(kernel, kernel)
        drawn[f"panel_{side}_kernel"] = np.outer(*kernels)
        drawn[f"panel_{side}_psi_exact"] = np.outer(field, field)
        drawn[f"panel_{side}_psi"] = np.outer(*fields[:2])
    return drawn


def _grid_signatures(config: Config) -> dict[str, FloatArray]:
    """The signature of the centre by Algorithm 1 on whole grids in two dimensions, (n, n)."""
    drawn = {}
    for side in config.grids:
        graph = grid_graph(side, 2)
        kernel = DiffusionKernel(graph.steps(config.sigma**2 / 2, dim=2))
        centre = side // 2 * (side + 1)
        seed = Streams.from_seed(config.seed).generator(f"grid {side}")
        found = compute_signatures(
            graph, kernel, [centre], teacher="walks", seed=seed, **walk_options(config.n_walks, config.p_halt)
        )
        drawn[f"grid_{side}"] = found.rows.toarray().reshape(side, side)
    return drawn


def _saddle(config: Config) -> dict[str, FloatArray]:
    """The heat kernel of one point of the saddle z = (x^2 - y^2) / 2 above the square of side 2, per unit area."""
    n = config.saddle_side
    axis = np.linspace(-1.0, 1.0, n)
    x, y = np.meshgrid(axis, axis, indexing="ij")
    points = np.column_stack([x.ravel(), y.ravel(), (x**2 - y**2).ravel() / 2])
    cells = np.full(n, 2 / (n - 1))
    cells[[0, -1]] /= 2  # half cells at the edges
    areas = (np.outer(cells, cells) * np.sqrt(1 + x**2 + y**2)).ravel()
    graph = heat_graph(points, config.saddle_t, weights=areas, dim=2)
    source = int(np.argmin(np.linalg.norm(points[:, :2] - _SOURCE, axis=1)))
    kernel = HeatKernel(config.saddle_t).matrix(graph, cols=[source], per_volume=True)[:, 0]
    others = [int(np.argmin(np.linalg.norm(points[:, :2] - place, axis=1))) for place in _SAMPLES]
    return {
        "saddle_samples": points[others],
        "saddle_values": kernel[others],
        "saddle_points": points.reshape(n, n, 3),
        "saddle_kernel": kernel.reshape(n, n),
        "saddle_source": points[source],
    }
