"""Kernels from given coefficients, or from coefficients fitted to samples of a function of two nodes."""

import functools
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import least_squares, nnls

from manifoldrf._codec import stored
from manifoldrf._runtime import one_blas_thread
from manifoldrf._validation import (
    FloatArray,
    IntArray,
    Interval,
    as_floats,
    check_flag,
    check_indices,
    check_integer,
    check_vector,
    reject,
)
from manifoldrf.geometry.graphs import Graph, check_graph
from manifoldrf.kernels.abstract_kernel import AbstractKernel, ProductKernel, indicator_columns


@stored
@dataclass(frozen=True)
class SeriesKernel(AbstractKernel):
    """K = sum_k alpha_k W^k with given coefficients.

    Parameters
    ----------
    alpha : sequence of numbers
        alpha_0, alpha_1, ...

    Examples
    --------
    >>> from manifoldrf.kernels import SeriesKernel
    >>> SeriesKernel([1.0, 4.0, 4.0]).modulation(4).tolist()
    [1.0, 2.0, 0.0, 0.0]
    >>> SeriesKernel([1.0, 0.5]).is_positive
    False
    """

    alpha: tuple[float, ...]

    def __post_init__(self) -> None:
        values = as_floats(self.alpha, "alpha")
        if values.ndim != 1 or not values.size:
            reject("alpha", "a sequence of at least one number", f"shape {values.shape}")
        object.__setattr__(self, "alpha", tuple(values.tolist()))
        if not sum(map(abs, self.alpha)) < np.inf:
            reject("alpha", "finite, with a finite sum", f"sizes up to {np.abs(values).max():g}")

    @classmethod
    @one_blas_thread()
    def fit(
        cls,
        graph: Graph,
        i: ArrayLike,
        j: ArrayLike,
        values: ArrayLike,
        *,
        degree: int = 20,
        nonnegative: bool = True,
        square: bool = False,
        spike: bool = True,
    ) -> "SeriesFit":
        """Fit alpha_0, ..., alpha_degree to samples F(i, j) of a function of two nodes, by least squares.

        The result is not always positive semi-definite and may have no nonnegative modulation: see
        :attr:`is_positive`. A series is symmetric, so the errors include half of F(i, j) - F(j, i);
        :class:`ManifoldRandomFeatures` represents functions without symmetry.

        Parameters
        ----------
        graph : Graph
        i, j : array-like of int, shape (n,)
            Pairs of nodes, at least 2 (degree + 1).
        values : array-like of shape (n,)
            F(i, j).
        degree : int
            Highest power of W.
        nonnegative : bool
            Constrain alpha >= 0, which makes the entries of K nonnegative. Without it the fit is closer.
        square : bool
            Fit f >= 0 with alpha = f * f: the kernel is a square and has nonnegative features. This fit cannot be
            closer than a fit of alpha itself.
        spike : bool
            Whether alpha_0, or f_0, may differ from zero. It is a spike at every node that new points between the
            nodes do not have.

        Returns
        -------
        fit : SeriesFit
            The kernel, its relative error on the samples, and the held-out error on every fifth sample, for a fit
            to the others.

        Examples
        --------
        >>> import numpy as np
        >>> from manifoldrf import DiffusionKernel, Sphere, knn_graph
        >>> from manifoldrf.kernels import SeriesKernel
        >>> graph = knn_graph(Sphere().grid(300))
        >>> rng = np.random.default_rng(0)
        >>> i, j = rng.integers(0, 300, 2000), rng.integers(0, 20, 2000)
        >>> F = DiffusionKernel(5.0).dense(graph)
        >>> fit = SeriesKernel.fit(graph, i, j, F[i, j])
        >>> fit.error < 1e-3
        True
        """
        check_graph(graph)
        first = check_indices(i, "i", graph.n_nodes)
        second = check_indices(j, "j", graph.n_nodes)
        if len(first) != len(second):
            reject("j", f"a vector of {len(first)} indices, as many as `i`", len(second))
        targets = check_vector(values, "values", len(first), Interval())
        check_flag(nonnegative, "nonnegative")
        lowest = 0 if check_flag(spike, "spike") else 1
        if check_flag(square, "square"):
            solve = functools.partial(_square_root, lowest)
        else:
            solve = functools.partial(_least_squares, lowest, nonnegative)
        n = check_integer(degree, "degree", 2 * lowest) + 1
        if len(first) < 2 * n:
            reject("values", f"at least {2 * n} samples for degree {degree}", len(first))
        # Scaling by a power of 4 and by its root is exact: the series of c F is c times that of F, for any c.
        half_unit = 2.0 ** round(np.log2(np.abs(targets).max() or 1.0) / 2)
        targets = targets / half_unit / half_unit
        design = _powers_at(graph, first, second, n)
        train = np.arange(len(first)) % 5 != 0  # every fifth sample is held out
        held_out = _residual(design[~train], targets[~train], solve(design[train], targets[train]), square)
        found = solve(design, targets)
        series = cls(tuple((found * half_unit * (1.0 if square else half_unit)).tolist()))
        kernel = ProductKernel(series, series) if square else series
        return SeriesFit(kernel, _residual(design, targets, found, square), held_out)

    def spectral(self, w: FloatArray) -> FloatArray:
        """Return the polynomial at w."""
        return np.asarray(np.polynomial.polynomial.polyval(w, np.array(self.alpha)), np.float64)

    def _coefficients(self, n: int) -> FloatArray:
        given = self.alpha[:n]
        return np.concatenate([given, np.zeros(n - len(given))])

    @property
    def n_terms(self) -> int:
        """Length of alpha."""
        return len(self.alpha)


class SeriesFit(NamedTuple):
    """Result of :meth:`.SeriesKernel.fit`.

    Examples
    --------
    >>> from manifoldrf import Graph
    >>> from manifoldrf.kernels import SeriesKernel
    >>> graph = Graph.from_affinity([[0, 1], [1, 0]])
    >>> kernel, error, _ = SeriesKernel.fit(graph, [0, 0, 1, 1], [0, 1, 0, 1], [2, 3, 3, 2], degree=1)
    >>> [round(value, 6) for value in kernel.alpha], error < 1e-12
    ([2.0, 3.0], True)
    """

    kernel: AbstractKernel
    error: float  # |K - F| / |F| over the samples
    held_out_error: float  # the same on every fifth sample, for a fit without these samples


def _powers_at(graph: Graph, i: IntArray, j: IntArray, n: int) -> FloatArray:
    """(W^k)[i, j] for k < n, shape (len(i), n), computed on the distinct nodes of j in blocks."""
    result = np.zeros((len(i), n))
    sources, place = np.unique(j, return_inverse=True)
    for start in range(0, len(sources), 64):
        block = sources[start : start + 64]
        here = np.flatnonzero((place >= start) & (place < start + len(block)))
        power = indicator_columns(graph.n_nodes, block)
        for k in range(n):
            result[here, k] = power[i[here], place[here] - start]
            power = graph.operator @ power
    return result


def _least_squares(lowest: int, nonnegative: bool, design: FloatArray, targets: FloatArray) -> FloatArray:  # noqa: FBT001
    """Least-squares coefficients; columns are scaled to unit length because high powers are small."""
    lengths = np.linalg.norm(design[:, lowest:], axis=0)
    scale = np.where(lengths > 0, lengths, 1.0)
    scaled = design[:, lowest:] / scale
    if nonnegative:
        solution = nnls(scaled, targets, maxiter=100 * design.shape[1])[0]
    else:
        solution = np.linalg.lstsq(scaled, targets, rcond=1e-13)[0]
    return np.concatenate([np.zeros(lowest), solution / scale])


def _square_root(lowest: int, design: FloatArray, targets: FloatArray) -> FloatArray:
    """The series f >= 0, from the coefficient ``lowest`` on, whose square fits the targets best."""
    n = (design.shape[1] + 1) // 2 - lowest  # coefficients of f
    basis, triangle = np.linalg.qr(design[:, 2 * lowest : 2 * (lowest + n) - 1])
    goal = basis.T @ targets  # the objective depends on the targets only through this

    def residual(f: FloatArray) -> FloatArray:
        return np.asarray(triangle @ np.convolve(f, f) - goal)

    def slopes(f: FloatArray) -> FloatArray:
        return np.stack([triangle[:, k : k + n] @ (2 * f) for k in range(n)], axis=1)

    sizes = np.maximum(triangle.T @ goal, 0.0) / np.maximum((triangle**2).sum(axis=0), 1e-300)
    floor = 1e-3 * np.sqrt(sizes.max())
    starts = [np.where(np.arange(n) == k, np.sqrt(sizes[2 * k]), 0.0) + floor for k in range(n)]
    starts.sort(key=lambda f: float(np.linalg.norm(residual(f))))
    found = [least_squares(residual, f, slopes, bounds=(0.0, np.inf)) for f in starts[:3]]
    return np.concatenate([np.zeros(lowest), min(found, key=lambda result: float(result.cost)).x])


def _residual(design: FloatArray, targets: FloatArray, series: FloatArray, square: bool) -> float:  # noqa: FBT001
    """Relative error of a fitted series, or of its square."""
    alpha = np.convolve(series, series) if square else series
    norm = float(np.linalg.norm(targets))
    difference = float(np.linalg.norm(design[:, : len(alpha)] @ alpha - targets))
    return difference / norm if norm > 0 else difference
