"""Signatures on ever finer grids become Gaussians: the paper's check of its theory, in 2 to 32 dimensions.

Claim: on the wrap-around grid with n nodes an axis the squared errors of the exact signature against the feature
g_sigma, and of its inner products against the Gaussian kernel, fall with n in every dimension, finally like n^-4.
Errors of random walks fall in the same way until the noise of the walks dominates.

Constants. With Phi = exp(-t/2 L_n), t = sigma^2 / 2, a row of Phi sums to one and n^d Phi tends to the heat kernel
of the torus at time sigma^2 / 4, which is (pi sigma^2)^{-d/2} sum_k exp(-|x - w + k|^2 / sigma^2). The feature
g_sigma has (2 / (pi sigma^2))^{d/4} before its exponential. So

* (2 pi sigma^2)^{d/4} n^d Phi[x, w] -> g_sigma(x, w), pointwise; and
* psi = (2 pi sigma^2)^{d/4} n^{d/2} Phi has <psi(x), psi(y)> -> K(x, y) = exp(-|x - y|^2 / (2 sigma^2)): the sum
over n^d nodes approximates n^d times the integral.

The paper uses the second constant for both. Both limits are periodised (sums over images). All n of the paper are
odd, so (1/2, ..., 1/2) is not a node; here the centre is node floor(n/2) of every axis.

Method. Diffusion on the grid is a Kronecker product over the axes, each of which diffuses for sigma^2 n^2 steps.
Estimates on rings are independent for each axis, and norms and inner products of tensor products are products over
the axes, so no array of size n^d is formed. A ring is the same around every node, so walks from all its nodes,
rotated to the centre, are independent runs from the centre. Each axis uses a different run. Mean errors are means
over all such choices; spreads are standard deviations between random choices. In <psi(x), psi(y)> the walks from x
and y are independent, as they are for any x != y.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from manifoldrf import (
    Counts,
    DiffusionKernel,
    Exact,
    FlatTorus,
    HeatKernel,
    Walks,
    compute_signatures,
    grid_graph,
    heat_graph,
)
from reproduction.common import FloatArray, Progress, generator, silent
from reproduction.record import Parts, Record, Row


# ------------------------------------------------------------------------------------------------------------ rings
def tensor_errors(factors: FloatArray, target: FloatArray, dims: Sequence[int]) -> FloatArray:
    """Relative squared errors of tensor products x_1 x ... x x_d against y x ... x y, without forming them.

    |x_1 ... x_d - y ... y|^2 / |y|^{2d} = prod_j a_j - 2 prod_j b_j + 1 with a_j = |x_j|^2 / |y|^2 and
    b_j = <x_j, y> / |y|^2. Both products are computed with log1p, because an error of 1e-12 would be lost in the
    rounding of numbers near one.

    Parameters
    ----------
    factors : array of shape (r, d_max, n)
        One tensor product per row.
    target : array of shape (n,)
        The vector y, the same along each axis.
    dims : sequence of int
        Each takes the first d factors.

    Returns
    -------
    errors : array of shape (r, len(dims))

    Examples
    --------
    >>> import numpy as np
    >>> tensor_errors(np.array([[[1.1, 0.0], [1.0, 0.0]]]), np.array([1.0, 0.0]), [1, 2]).round(9).tolist()
    [[0.01, 0.01]]
    """
    squares, inners = (np.cumsum(np.log1p(part), axis=1) for part in _moments(factors, target))
    last = np.asarray(dims) - 1
    return np.asarray(np.expm1(squares[:, last]) - 2 * np.expm1(inners[:, last]))


def expected_errors(runs: FloatArray, target: FloatArray, dims: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Mean of :func:`tensor_errors` over all choices of a different run for each axis, and its standard error.

    Axes are independent, so that the mean of a product is the product of means: a^d - 2 b^d + 1. In powers of
    averages, axes share runs, which overestimates the noise by a share of d / m. The jackknife, which leaves out
    one run at a time, removes this bias (in two dimensions exactly) and gives the standard error.

    Parameters
    ----------
    runs : array of shape (m, n)
        Independent estimates.
    target : array of shape (n,)
    dims : sequence of int

    Returns
    -------
    mean, stderr : array of shape (len(dims),)
    """
    square, inner = _moments(runs, target)  # (m,)
    d, m = np.asarray(dims), len(runs)

    def mean(a: Any, b: Any) -> FloatArray:
        return np.asarray(np.expm1(d * np.log1p(a)) - 2 * np.expm1(d * np.log1p(b)))

    whole = mean(square.mean(), inner.mean())
    if m == 1:
        return whole, np.zeros(len(d))
    without = [((part.sum() - part) / (m - 1))[:, None] for part in (square, inner)]
    left = mean(*without)  # (m, len(dims))
    return whole - (m - 1) * (left - whole).mean(axis=0), np.sqrt(m - 1) * left.std(axis=0)


def _moments(factors: FloatArray, target: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Squared norm and inner product with the target, divided by the squared norm of the target, each minus one."""
    gap, size = factors - target, target @ target
    inner = gap @ target / size
    return 2 * inner + (gap * gap).sum(axis=-1) / size, inner


def kernel_rows(first: FloatArray, second: FloatArray) -> FloatArray:
    """<psi(centre), psi(y)> for every node y of a ring, given psi(centre) twice; the last axis runs over the ring.

    The signature of y is the signature of the centre, rotated by y minus the centre.
    """
    n = first.shape[-1]
    spectrum = np.fft.rfft(first) * np.conj(np.fft.rfft(second))
    return np.roll(np.fft.irfft(spectrum, n), n // 2, axis=-1)


@dataclass(frozen=True)
class Ring:
    """One axis of the grid: a ring of length 1 with the centre at index floor(n/2), and how to walk on it.

    Parameters
    ----------
    side : int
        n, the number of nodes.
    sigma : float
        Of the Gaussian kernel that is the limit.
    n_runs : int
        Independent estimates; half as many of the kernel, as each takes two.
    n_walks : int
        Walks per start.
    p_halt : float
        Of Algorithm 1.
    n_jobs, seed : int
    """

    side: int
    sigma: float
    n_runs: int
    n_walks: int
    p_halt: float
    n_jobs: int = 1
    seed: int = 0

    @property
    def offsets(self) -> FloatArray:
        """Coordinates minus that of the centre, in [-1/2, 1/2), shape (n,)."""
        return (np.arange(self.side) - self.side // 2) / self.side

    @property
    def scale(self) -> tuple[float, float]:
        """Factors of one axis of a row of Phi: for g, and for inner products that are kernels."""
        root = (2 * np.pi * self.sigma**2) ** 0.25
        return root * self.side, root * np.sqrt(self.side)

    def periodised(self) -> tuple[FloatArray, FloatArray]:
        """Limits of signature and kernel along one axis: multiples of the heat kernel of the circle."""
        circle, variance = FlatTorus(1), self.sigma**2
        at, centre = self.offsets[:, None], np.zeros((1, 1))
        field = (2 * np.pi * variance) ** 0.25 * circle.heat_kernel(at, centre, variance / 4)
        kernel = (2 * np.pi * variance) ** 0.5 * circle.heat_kernel(at, centre, variance / 2)
        return field[:, 0], kernel[:, 0]

    def plain(self) -> tuple[FloatArray, FloatArray]:
        """g_sigma and the Gaussian kernel along one axis, as the paper states them."""
        squares, variance = self.offsets**2, self.sigma**2
        field = (2 / (np.pi * variance)) ** 0.25 * np.exp(-squares / variance)
        return field, np.exp(-squares / (2 * variance))

    def rows(self, teacher: str, n_copies: int) -> tuple[FloatArray, float]:
        """Rows of Phi along one axis, (n_copies, n), and the sum of their estimated variances."""
        graph = grid_graph(self.side, 1)
        kernel = DiffusionKernel(graph.steps(self.sigma**2 / 2, dim=1))
        if teacher == "exact":
            exact = compute_signatures(graph, kernel, [self.side // 2], teacher=Exact(1e-14))
            return np.repeat(exact.rows, n_copies, axis=0), 0.0
        options = walk_options(self.n_walks, self.p_halt) if teacher == "walks" else Counts(self.n_walks)
        copies: list[FloatArray] = []
        variances: list[FloatArray] = []
        while len(copies) * self.side < n_copies:
            found = compute_signatures(
                graph,
                kernel,
                teacher=options,
                seed=generator(self.seed, f"{teacher} {self.side} {len(copies)}"),
                n_jobs=self.n_jobs,
            )
            copies.append(_centred(found))
            variances.append(np.asarray(found.stderr.power(2).sum(axis=1)).ravel())
        return np.vstack(copies)[:n_copies], float(np.mean(variances))

    def estimates(self, teacher: str) -> tuple[tuple[FloatArray, FloatArray], tuple[float, float]]:
        """Signatures (runs, n) and kernel rows (runs / 2, n) along an axis, and their predicted variances.

        The walks of x and y in a row of the kernel are two runs. Its variance is estimated from the rows of
        different pairs.
        """
        to_field, to_kernel = self.scale
        if teacher == "exact":
            row, _ = self.rows(teacher, 1)
            return (to_field * row, to_kernel**2 * kernel_rows(row, row)), (0.0, 0.0)
        rows, variance = self.rows(teacher, self.n_runs)
        pairs = self.n_runs // 2
        first, second = rows[:pairs], rows[pairs : 2 * pairs]
        kernels, others = (to_kernel**2 * kernel_rows(first, y) for y in (second, np.roll(second, 1, axis=0)))
        spread = float(others.var(axis=0, ddof=1).sum())
        return (to_field * rows, kernels), (to_field**2 * variance, spread)

    def errors(self, teacher: str, dims: Sequence[int], n_repeats: int) -> list[Row]:
        """Rows of a table of relative mean squared errors, one for each dimension.

        For psi and for the kernel: the mean against the periodised limit and its standard error; the standard
        deviation between single repetitions, which use one run for each axis; the predicted Monte Carlo part; and
        the mean against the plain Gaussian.
        """
        found, variances = self.estimates(teacher)
        limits, plains, columns = self.periodised(), self.plain(), {}
        for place, name in enumerate(("psi", "kernel")):
            runs, limit = found[place], limits[place]
            columns[name], columns[f"{name}_stderr"] = expected_errors(runs, limit, dims)
            columns[f"{name}_spread"] = self._spread(runs, limit, dims, n_repeats)
            columns[f"{name}_noise"] = self._noise(place, limit, variances[place], dims)
            columns[f"{name}_plain"], _ = expected_errors(runs, plains[place], dims)
        return [
            {"d": d, "n": self.side, "teacher": teacher} | {name: float(c[i]) for name, c in columns.items()}
            for i, d in enumerate(dims)
        ]

    def _spread(self, runs: FloatArray, limit: FloatArray, dims: Sequence[int], n_repeats: int) -> FloatArray:
        """Standard deviation of the error of one repetition; repetitions share runs, but axes of one do not."""
        if len(runs) == 1:
            return np.zeros(len(dims))
        rng = generator(self.seed, f"repetitions {self.side}")
        drawn = rng.permuted(np.tile(np.arange(len(runs)), (n_repeats, 1)), axis=1)[:, : max(dims)]
        return np.asarray(tensor_errors(runs[drawn], limit, dims).std(axis=0, ddof=1))

    def _noise(self, place: int, limit: FloatArray, variance: float, dims: Sequence[int]) -> FloatArray:
        """Monte Carlo part of the mean squared error, ((|e|^2 + v)^d - |e|^{2d}) / |y|^{2d}, shape (len(dims),).

        The estimates are unbiased with mean error e and total variance v, and independent along the axes. The rest
        of the error comes from e itself: the mean of a square is the square of the mean plus the variance.
        """
        exact = self.estimates("exact")[0][place][0]
        d, size, of_limit = np.asarray(dims), exact @ exact, limit @ limit
        return np.asarray((size / of_limit) ** d * np.expm1(d * np.log1p(variance / size)))


def walk_options(n_walks: int, p_halt: float) -> Walks:
    """Algorithm 1, truncated where 1e-10 of the series is left: the same estimate in less than half the steps."""
    return Walks(n_walks, p_halt, truncate=True)


def _centred(found: Any) -> FloatArray:
    """Rows of all nodes of a ring, each rotated so that its start is at floor(n/2)."""
    rows = found.rows.toarray()
    n = len(rows)
    turned = (np.arange(n)[None, :] + np.arange(n)[:, None] - n // 2) % n
    return np.asarray(np.take_along_axis(rows, turned, axis=1))


# --------------------------------------------------------------------------------------------------- the experiment
TEACHERS = ("exact", "walks", "counts")
# Probability that a correct prediction is rejected, over all dimensions and grids; gives the quantiles of Student's
# t.
_FALSE_ALARM = 1e-3
_SOURCE = (0.15, 0.2)  # on the saddle; off the middle, where it is not symmetric
_SAMPLES = ((0.35, 0.45), (-0.2, 0.25), (0.5, -0.15), (-0.45, -0.45))  # from near to far, for the picture


@dataclass(frozen=True)
class Config:
    """Settings of the experiment."""

    dims: tuple[int, ...] = (2, 3, *range(4, 33, 2))  # the paper's, and 3
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


def run(config: Config, progress: Progress = silent, data: Path | None = None, parts: Path | None = None) -> Record:
    """Measure every teacher on every grid.

    Tables: ``errors`` (every dimension, grid and teacher), ``claims`` and ``constants`` (how far both limits are
    from one). Errors are E |x - y|^2 / |y|^2 as in the paper, with their standard errors, the standard deviation
    between repetitions, and the Monte Carlo part ("noise") that the teachers predict.
    """
    del data
    kept = Parts(parts, __name__).get(
        "gaussian_grid", dataclasses.asdict(config), lambda: _measure(config, progress)
    )
    return dataclasses.replace(kept, config=dataclasses.asdict(config))


def _measure(config: Config, progress: Progress) -> tuple[dict[str, list[Row]], dict[str, FloatArray]]:
    total = len(config.sides) * len(TEACHERS) + 2
    errors: list[Row] = []
    for place, side in enumerate(config.sides):
        ring = config.ring(side)
        for which, teacher in enumerate(TEACHERS):
            progress(f"{teacher} on {side} nodes an axis", place * len(TEACHERS) + which, total)
            errors += ring.errors(teacher, config.dims, config.n_repeats)
    progress("pictures", total - 2, total)
    arrays = _panels(config) | _grid_signatures(config)
    progress("saddle", total - 1, total)
    arrays |= _saddle(config)
    tables = {"claims": _claims(errors, config), "constants": _constants(config), "errors": errors}
    progress("done", total, total)
    return tables, arrays


def _column(errors: list[Row], d: int, teacher: str, name: str) -> FloatArray:
    """Values of one column for one dimension and teacher, from the coarsest grid to the finest."""
    return np.array([row[name] for row in errors if row["d"] == d and row["teacher"] == teacher])


def _claims(errors: list[Row], config: Config) -> list[Row]:
    """The claims of the experiment, whether they hold, and the worst cases."""
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


def _constants(config: Config) -> list[Row]:
    """Both constants on the finest grid, and the least-squares factor between exact results and the limits."""
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
    """Two dimensions: limits and walks as arrays of shape (n, n), each axis with a different run."""
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
        seed = generator(config.seed, f"grid {side}")
        found = compute_signatures(
            graph, kernel, [centre], teacher=walk_options(config.n_walks, config.p_halt), seed=seed
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
    graph = heat_graph(points, config.saddle_t, volumes=areas, dim=2)
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
