"""Signatures along the axes of a wrap-around grid, and errors of their tensor products in any dimension."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from manifoldrf import FlatTorus
from manifoldrf._random import Streams, generator
from manifoldrf._validation import FloatArray
from manifoldrf.geometry.builders import grid_graph
from manifoldrf.kernels.graph_kernels import DiffusionKernel
from manifoldrf.signatures.teachers import Signatures, compute_signatures


def tensor_errors(factors: FloatArray, target: FloatArray, dims: Sequence[int]) -> FloatArray:
    """Relative squared errors of tensor products x_1 x ... x x_d against y x ... x y, without forming them.

    |x_1 ... x_d - y ... y|^2 / |y|^{2d} = prod_j a_j - 2 prod_j b_j + 1 with a_j = |x_j|^2 / |y|^2 and
    b_j = <x_j, y> / |y|^2. Both products are taken by logarithms of one plus a small number: an error of 1e-12
    would drown in the rounding of numbers near one.

    Parameters
    ----------
    factors : array of shape (r, d_max, n)
        One tensor product a row.
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
    """Mean of :func:`tensor_errors` over the ways to give each axis a run of its own, and its standard error.

    Axes are independent, so that the mean of a product is the product of means: a^d - 2 b^d + 1. Powers of averages
    let axes share runs, which is d / m of the noise too much; the jackknife, which leaves out one run at a time,
    takes that away (in two dimensions exactly) and gives the standard error.

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
    """Squared norm and inner product with the target, over the target's own squared norm, each minus one."""
    gap, size = factors - target, target @ target
    inner = gap @ target / size
    return 2 * inner + (gap * gap).sum(axis=-1) / size, inner


def kernel_rows(first: FloatArray, second: FloatArray) -> FloatArray:
    """<psi(centre), psi(y)> for every node y of a ring, given psi(centre) twice; the last axis runs over the ring.

    The signature of y is that of the centre, turned by y minus the centre.
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
        """What one axis of a row of Phi is multiplied with: for g, and for inner products that are kernels."""
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
        """Rows of Phi along one axis, (n_copies, n), and the variance that they predict of themselves, summed."""
        graph = grid_graph(self.side, 1)
        kernel = DiffusionKernel(graph.steps(self.sigma**2 / 2, dim=1))
        if teacher == "exact":
            exact = compute_signatures(graph, kernel, [self.side // 2], teacher=teacher, tol=1e-14)
            return np.repeat(exact.rows, n_copies, axis=0), 0.0
        options = walk_options(self.n_walks, self.p_halt) if teacher == "walks" else {"n_walks": self.n_walks}
        copies: list[FloatArray] = []
        variances: list[FloatArray] = []
        streams = Streams.from_seed(self.seed)
        while len(copies) * self.side < n_copies:
            found = compute_signatures(
                graph,
                kernel,
                teacher=teacher,
                seed=streams.generator(f"{teacher} {self.side} {len(copies)}"),
                n_jobs=self.n_jobs,
                **options,
            )
            copies.append(_centred(found))
            variances.append(np.asarray(found.stderr.power(2).sum(axis=1)).ravel())
        return np.vstack(copies)[:n_copies], float(np.mean(variances))

    def estimates(self, teacher: str) -> tuple[tuple[FloatArray, FloatArray], tuple[float, float]]:
        """Signatures (runs, n) and kernel rows (runs / 2, n) along an axis, and their predicted variances.

        The walks of x and y in a row of the kernel are two runs; its variance is that between rows of other pairs.
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

    def errors(self, teacher: str, dims: Sequence[int], n_repeats: int) -> list[dict[str, Any]]:
        """Rows of a table of relative mean squared errors, one for each dimension.

        For psi and for the kernel: the mean against the periodised limit and its standard error; the standard
        deviation between single repetitions, which take one run for each axis; the Monte Carlo part as it is
        predicted; and the mean against the plain Gaussian.
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

        Unbiased estimates of e with summed variance v, independent along the axes; the rest of the error is that of
        e itself, as the mean of the square is the square of the mean plus the variance.
        """
        exact = self.estimates("exact")[0][place][0]
        d, size, of_limit = np.asarray(dims), exact @ exact, limit @ limit
        return np.asarray((size / of_limit) ** d * np.expm1(d * np.log1p(variance / size)))


def walk_options(n_walks: int, p_halt: float) -> dict[str, Any]:
    """Algorithm 1, cut where 1e-10 of the series is left: the same estimate in less than half the steps."""
    return {"n_walks": n_walks, "p_halt": p_halt, "max_length": "auto"}


def _centred(found: Signatures) -> FloatArray:
    """Rows of all nodes of a ring, each turned so that its start stands at floor(n/2)."""
    rows = found.rows.toarray()
    n = len(rows)
    turned = (np.arange(n)[None, :] + np.arange(n)[:, None] - n // 2) % n
    return np.asarray(np.take_along_axis(rows, turned, axis=1))
