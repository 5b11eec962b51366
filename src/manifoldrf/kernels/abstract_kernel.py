"""Kernels as power series of the walk operator: the base class, roots, sums, products and multiples.

The numerics are at the end: power series on the unit disc (truncation, signs, square roots), and products of h(W)
with columns.
"""

import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import pairwise
from numbers import Real
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import fft, linalg

from manifoldrf._codec import stored
from manifoldrf._native import loops
from manifoldrf._runtime import one_blas_thread, quick_map, thread_pool
from manifoldrf._validation import (
    FloatArray,
    IntArray,
    Interval,
    check_columns,
    check_flag,
    check_indices,
    check_integer,
    check_jobs,
    check_real,
    reject,
)
from manifoldrf.geometry.csr import LocalForm, csr_parts
from manifoldrf.geometry.graphs import Graph, check_graph

TOLERANCES = Interval(1e-14, 1.0, high_open=True)  # double precision cannot guarantee less

# Columns per block: 32 columns of 4000 nodes fit the second-level cache, narrower blocks waste the vector units.
_WIDTH = 32
ASYMMETRIC = (
    "The asymmetric pair works for every kernel: rows of K on one side, indicators on the other "
    "(`asymmetric=True` of compute_signatures)"
)
_MOST_TERMS = 2**20  # a series that needs more counts as divergent
# Negative terms that sum to less than this share count as rounding errors: a double zero of the series splits into
# two that are 1e-8 apart when its coefficients are rounded to doubles.
_ROUNDING = 1e-6


class Expansion(NamedTuple):
    """h as a polynomial: a Chebyshev series on [-1, 1], or a sum of powers."""

    coefficients: FloatArray  # (degree + 1,)
    of_powers: bool = False

    @property
    def degree(self) -> int:
        """Number of products with the matrix per application."""
        return len(self.coefficients) - 1


class FrozenParams:
    """A frozen dataclass with parameters by name, as in scikit-learn; ``with_params`` makes a changed copy."""

    def _keep_real(self, name: str, interval: Interval) -> float:
        """Check a number and store it as a float: fractions and single precision would cause errors later."""
        value = check_real(getattr(self, name), name, interval)
        object.__setattr__(self, name, value)
        return value

    def __sklearn_clone__(self) -> Self:
        return self  # immutable, so no copy is needed

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002  (scikit-learn's signature)
        """Parameters by name; nested parameters are named ``part__name``."""
        params = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        for name, value in list(params.items()) if deep else []:
            if isinstance(value, FrozenParams):
                params |= {f"{name}__{inner}": part for inner, part in value.get_params().items()}
        return params

    def with_params(self, **changes: Any) -> Self:
        """Return a copy with other parameters, named as in :meth:`get_params`.

        Examples
        --------
        >>> from manifoldrf import DiffusionKernel
        >>> DiffusionKernel(5.0).with_params(tau=7.0)
        DiffusionKernel(tau=7.0)
        """
        known = self.get_params()
        for name in changes:
            if name not in known:
                kind, names = type(self).__name__, ", ".join(known) or "none"
                raise ValueError(f"{kind} has no parameter `{name}`; it has {names}.")
        own = {name: value for name, value in changes.items() if "__" not in name}
        parts: dict[str, dict[str, Any]] = {}
        for name, value in changes.items():
            if name not in own:
                part, _, rest = name.partition("__")
                parts.setdefault(part, {})[rest] = value
        for part, inner in parts.items():
            own[part] = own.get(part, known[part]).with_params(**inner)
        return dataclasses.replace(self, **own)  # type: ignore[type-var]


class EndlessSeriesError(ValueError):
    """A series needs more terms than are computed."""


class UnresolvedKernelError(ValueError):
    """An operation depends on the graph, so a kernel in the manifold clock must be resolved first."""


class AbstractKernel(FrozenParams, ABC):
    """A graph kernel K = h(W) = sum_k alpha_k W^k; immutable.

    Kernels can be added, multiplied (as matrices, so their coefficients are convolved) and scaled:
    ``2 * DiffusionKernel(5.0) + PowerKernel(2)``.

    Examples
    --------
    >>> from manifoldrf import AbstractKernel, DiffusionKernel
    >>> from manifoldrf.kernels import PowerKernel
    >>> kernel = 2 * DiffusionKernel(5.0) + PowerKernel(2)
    >>> isinstance(kernel, AbstractKernel), kernel.get_params()["right__n"]
    (True, 2)
    """

    __array_ufunc__ = None  # an array times a kernel is an error, not an array of kernels

    @abstractmethod
    def spectral(self, w: FloatArray) -> FloatArray:
        """Return h(w) in closed form, for w in [-1, 1], which holds the spectrum of W."""

    @abstractmethod
    def _coefficients(self, n: int) -> FloatArray:
        """First n coefficients, n >= 1."""

    @property
    def n_terms(self) -> int | None:
        """Number of terms of a finite series; None for an infinite one."""
        return None

    def coefficients(self, n: int) -> FloatArray:
        """First n coefficients alpha_0, ..., alpha_{n-1} of the powers of W."""
        return self._coefficients(check_integer(n, "n", 1))

    def modulation(self, n: int) -> FloatArray:
        """First n coefficients f_0, ..., f_{n-1} with f * f = alpha, so that K = Phi Phi^T, Phi = sum_k f_k W^k.

        Raises ``ValueError`` if there is no real f whose series converges.
        """
        return self.root().coefficients(n)

    def root(self) -> "AbstractKernel":
        """Return the kernel whose square is this kernel; its series is f. Closed forms override it."""
        return RootKernel(self)

    @property
    def is_positive(self) -> bool:
        """Whether f exists with f >= 0: then the features are nonnegative, and the series of f converges.

        Without a closed form, the coefficients decide. Negative coefficients that sum to less than a millionth of
        all are treated as rounding of alpha to doubles; :meth:`modulation` sets them to zero.
        """
        try:
            return self.root().series_is_nonnegative
        except (UnresolvedKernelError, EndlessSeriesError):
            raise
        except ValueError:  # no real root
            return False

    @property
    def series_is_nonnegative(self) -> bool:
        """Whether no coefficient is negative, beyond rounding."""
        return is_nonnegative(self)

    def truncation(self, tol: float = 1e-10) -> int:
        """Number n of terms that leave out at most ``tol`` of the series.

        sum_{k >= n} |alpha_k| <= tol sum_k |alpha_k|; with one term less, more than tol/2 is left.

        Examples
        --------
        >>> from manifoldrf import DiffusionKernel
        >>> DiffusionKernel(20.0).truncation(1e-6)
        46
        """
        return truncation_of(self, check_real(tol, "tol", TOLERANCES))

    def resolve(self, graph: Graph, dim: int | None = None) -> "AbstractKernel":
        """Return the kernel in steps of this graph: the same kernel, unless it uses the manifold clock."""
        return self

    @property
    def shortest_time(self) -> float | None:
        """Shortest heat time that a graph must resolve, in units of length squared; None in the graph clock.

        A fit builds its graph for this time. By default it is the shortest of the parts; a kernel whose
        :meth:`resolve` depends on the graph overrides it.

        Examples
        --------
        >>> from manifoldrf import DiffusionKernel, HeatKernel
        >>> (HeatKernel(0.1) + 2 * HeatKernel(0.3)).shortest_time, DiffusionKernel(5.0).shortest_time
        (0.1, None)
        """
        parts = [part for part in self.get_params(deep=False).values() if isinstance(part, AbstractKernel)]
        return min((time for part in parts if (time := part.shortest_time) is not None), default=None)

    def on(self, graph: Graph) -> "AbstractKernel":
        """Resolve the kernel; raise an error if the argument is not a graph."""
        return self.resolve(check_graph(graph))

    def expansion(self, tol: float) -> Expansion:
        """Return a polynomial that approximates h on [-1, 1] to ``tol`` of its largest value.

        A finite series without negative coefficients is used directly if it takes at most twice as many products:
        it keeps small entries accurate. Else it is a Chebyshev series, of at most 2^15 terms.

        Raises
        ------
        ValueError
            If ``tol`` is not in [1e-14, 1), or if the Chebyshev series needs more terms.
        """
        check_real(tol, "tol", TOLERANCES)
        degree, last = 64, 2**16
        while degree <= last:
            values = self.spectral(np.cos(np.pi * np.arange(degree + 1) / degree))
            coefficients = fft.dct(values, type=1) / degree
            coefficients[[0, -1]] /= 2
            largest = float(np.abs(values).max())
            coefficients[np.abs(coefficients) < 1e-16 * largest] = 0.0  # rounding of the transform would add up
            rest = np.cumsum(np.abs(coefficients[::-1]))[::-1]  # rest[k] = sum of terms k, k + 1, ...
            needed = max(1, int(np.count_nonzero(rest > tol * largest)))
            if needed <= degree // 2:  # the other half shows that the series has converged
                break
            degree *= 2
        else:
            raise ValueError(
                f"The kernel is too rough for `tol` = {tol:g}: more than {last // 2} Chebyshev terms. "
                "Take a larger `tol` or a shorter length scale."
            )
        chebyshev = Expansion(coefficients[:needed])
        if self.n_terms is None or self.n_terms - 1 > 2 * chebyshev.degree:
            return chebyshev
        alpha = self._coefficients(self.n_terms)
        return chebyshev if (alpha < 0).any() else Expansion(alpha, of_powers=True)

    @one_blas_thread()
    def dense(self, graph: Graph) -> FloatArray:
        """K as a matrix (N, N), exact, by eigendecomposition in O(N^3); does not use the series."""
        kernel, n_nodes, most = self.on(graph), graph.n_nodes, 20_000
        if n_nodes > most:
            reject("graph", f"a graph of at most {most} nodes; see `apply` and `matrix`", f"{n_nodes}")
        # Divide and conquer: the default driver's vectors are orthogonal only to 1e-13 if eigenvalues are close.
        values, vectors = linalg.eigh(graph.operator.toarray(), driver="evd")
        dense: FloatArray = (vectors * kernel.spectral(np.clip(values, -1.0, 1.0))) @ vectors.T
        return (dense + dense.T) / 2

    def apply(self, graph: Graph, X: ArrayLike, *, tol: float = 1e-10, n_jobs: int = 1) -> FloatArray:
        """K X by polynomials of W, without forming K.

        Parameters
        ----------
        graph : Graph
        X : array-like of shape (N,) or (N, c)
        tol : float
            Largest error of a column, relative to its 2-norm times the largest value of h.
        n_jobs : int
            Number of threads (-1: all cores); the result does not depend on it.

        Examples
        --------
        >>> import numpy as np
        >>> from manifoldrf import DiffusionKernel, Graph
        >>> graph = Graph.from_affinity([[0, 1, 0], [1, 0, 3], [0, 3, 0]])
        >>> kernel = DiffusionKernel(2.0)
        >>> np.allclose(kernel.apply(graph, [1.0, 0.0, 0.0]), kernel.dense(graph)[0])
        True
        """
        kernel, columns = self.on(graph), check_columns(X, "X", graph.n_nodes)
        result = apply_expansion(kernel.expansion(tol), graph, columns, check_jobs(n_jobs))
        return result[:, 0] if np.ndim(X) == 1 else result

    def matrix(
        self,
        graph: Graph,
        rows: ArrayLike | None = None,
        cols: ArrayLike | None = None,
        *,
        per_volume: bool = False,
        tol: float = 1e-10,
        n_jobs: int = 1,
    ) -> FloatArray:
        """K between some nodes, shape (len(rows), len(cols)); by default between all nodes.

        Parameters
        ----------
        graph : Graph
        rows, cols : array-like of int, optional
        per_volume : bool
            Divide by the square roots of the weights of both nodes: the kernel of the space itself, per unit of
            volume. Needs a graph with ``weights``: a heat graph or a cotangent graph.
        tol, n_jobs
            As in :meth:`apply`.

        Examples
        --------
        >>> from manifoldrf import HeatKernel, Sphere, heat_graph
        >>> graph = heat_graph(Sphere(), t=0.05, n_nodes=1000)
        >>> HeatKernel(0.05).matrix(graph, [0], [1, 2], per_volume=True).round(2).tolist()
        [[1.51, 1.53]]
        >>> Sphere().heat_kernel(graph.points[:1], graph.points[1:3], 0.05).round(2).tolist()
        [[1.52, 1.53]]
        """
        expansion = self.on(graph).expansion(tol)
        everything = np.arange(graph.n_nodes)
        first = everything if rows is None else check_indices(rows, "rows", graph.n_nodes)
        second = everything if cols is None else check_indices(cols, "cols", graph.n_nodes)
        swap = len(first) < len(second)  # multiply the columns of the smaller set of nodes
        sources, targets = (first, second) if swap else (second, first)
        columns = indicator_columns(graph.n_nodes, sources)
        found = apply_expansion(expansion, graph, columns, check_jobs(n_jobs))[targets]
        result = found.T if swap else found
        if not check_flag(per_volume, "per_volume"):
            return result
        if graph.weights is None:
            raise ValueError(
                "`per_volume` needs node weights, which this graph does not have: heat_graph and "
                "mesh_graph(mesh, weights='cotangent') set them."
            )
        for name, nodes in (("rows", first), ("cols", second)):
            if not graph.weights[nodes].all():
                reject(name, "nodes of positive weight, with per_volume=True", "nodes of weight zero")
        sizes = np.sqrt(graph.weights)
        return np.asarray(result / sizes[first][:, None] / sizes[second])

    def __add__(self, other: object) -> "AbstractKernel":
        return SumKernel(self, other) if isinstance(other, AbstractKernel) else NotImplemented

    def __mul__(self, other: Any) -> "AbstractKernel":
        if isinstance(other, AbstractKernel):
            return ProductKernel(self, other)
        return ScaledKernel(self, float(other)) if isinstance(other, Real) else NotImplemented

    __rmul__ = __mul__


@stored
@dataclasses.dataclass(frozen=True)
class RootKernel(AbstractKernel):
    """The square root of a kernel without a closed form, as a finite series."""

    kernel: AbstractKernel

    def spectral(self, w: FloatArray) -> FloatArray:
        """Sum the series; where h touches zero, the branch of its square root would be ambiguous."""
        return np.asarray(np.polynomial.polynomial.polyval(w, square_root(self.kernel)), np.float64)

    def _coefficients(self, n: int) -> FloatArray:
        f = square_root(self.kernel)[:n]
        return np.concatenate([f, np.zeros(n - len(f))])

    @property
    def n_terms(self) -> int:
        """Number of terms above rounding."""
        return len(square_root(self.kernel))

    def resolve(self, graph: Graph, dim: int | None = None) -> AbstractKernel:
        """Return the root of the resolved kernel."""
        return self.kernel.resolve(graph, dim).root()


@stored
@dataclasses.dataclass(frozen=True)
class ScaledKernel(AbstractKernel):
    """A kernel times a number."""

    kernel: AbstractKernel
    factor: float

    def __post_init__(self) -> None:
        self._keep_real("factor", Interval())

    def spectral(self, w: FloatArray) -> FloatArray:
        """Return the factor times h(w)."""
        return self.factor * self.kernel.spectral(w)

    def _coefficients(self, n: int) -> FloatArray:
        return self.factor * self.kernel._coefficients(n)

    def root(self) -> AbstractKernel:
        """Return the root of the kernel times that of the factor."""
        return ScaledKernel(self.kernel.root(), self.factor**0.5) if self.factor > 0 else RootKernel(self)

    @property
    def is_positive(self) -> bool:
        """Same as for the kernel if the factor is positive."""
        return self.kernel.is_positive if self.factor > 0 else super().is_positive

    @property
    def series_is_nonnegative(self) -> bool:
        """Same as for the kernel if the factor is positive."""
        return self.kernel.series_is_nonnegative if self.factor > 0 else super().series_is_nonnegative

    @property
    def n_terms(self) -> int | None:
        """Same as for the kernel."""
        return self.kernel.n_terms

    def resolve(self, graph: Graph, dim: int | None = None) -> AbstractKernel:
        """Resolve the kernel."""
        return ScaledKernel(self.kernel.resolve(graph, dim), self.factor)


@dataclasses.dataclass(frozen=True)
class _PairKernel(AbstractKernel):
    """A sum or product of two kernels."""

    left: AbstractKernel
    right: AbstractKernel

    @property
    def series_is_nonnegative(self) -> bool:
        """True if both are nonnegative; else the coefficients decide."""
        both = self.left.series_is_nonnegative and self.right.series_is_nonnegative
        return both or super().series_is_nonnegative

    def resolve(self, graph: Graph, dim: int | None = None) -> AbstractKernel:
        """Resolve both."""
        return type(self)(self.left.resolve(graph, dim), self.right.resolve(graph, dim))


@stored
@dataclasses.dataclass(frozen=True)
class SumKernel(_PairKernel):
    """Sum of two kernels."""

    def spectral(self, w: FloatArray) -> FloatArray:
        """Return the sum of both."""
        return self.left.spectral(w) + self.right.spectral(w)

    def _coefficients(self, n: int) -> FloatArray:
        return self.left._coefficients(n) + self.right._coefficients(n)

    def root(self) -> AbstractKernel:
        """Return the root in closed form if both are equal."""
        return (2.0 * self.left).root() if self.left == self.right else RootKernel(self)

    @property
    def n_terms(self) -> int | None:
        """The larger number of the two, if both are finite."""
        left, right = self.left.n_terms, self.right.n_terms
        return None if left is None or right is None else max(left, right)


@stored
@dataclasses.dataclass(frozen=True)
class ProductKernel(_PairKernel):
    """Matrix product of two kernels; functions of the same W commute."""

    def spectral(self, w: FloatArray) -> FloatArray:
        """Return the product of both."""
        return self.left.spectral(w) * self.right.spectral(w)

    def _coefficients(self, n: int) -> FloatArray:
        return convolved(self.left._coefficients(n), self.right._coefficients(n))

    def root(self) -> AbstractKernel:
        """Return one factor if both are equal, or the product of the roots if both factors are positive."""
        if self.left == self.right:
            return self.left
        if self.left.is_positive and self.right.is_positive:
            return ProductKernel(self.left.root(), self.right.root())
        return RootKernel(self)  # a product may have a root although its factors have none

    @property
    def n_terms(self) -> int | None:
        """One more than the sum of both degrees, if both are finite."""
        left, right = self.left.n_terms, self.right.n_terms
        return None if left is None or right is None else left + right - 1


@functools.lru_cache(maxsize=256)
def truncation_of(kernel: Any, tol: float) -> int:
    """Smallest n such that the terms |alpha_k| from n on sum to at most ``tol`` of all."""
    n = 32 if kernel.n_terms is None else kernel.n_terms
    while n <= _MOST_TERMS:
        rest = np.cumsum(np.abs(kernel._coefficients(n))[::-1])[::-1]  # rest[k]: sum of |alpha_j| over j >= k
        if kernel.n_terms is not None or _is_complete(rest, tol, kernel):
            # The other half of the tolerance is for the terms that were never computed.
            return max(1, int(np.count_nonzero(rest > tol / 2 * rest[0])))
        n *= 2
    raise EndlessSeriesError(
        f"The series of {kernel} is not known to end within {_MOST_TERMS} terms for `tol` = {tol:g}. Take a larger "
        "`tol` or a shorter length scale; kernel.apply needs no series."
    )


def is_nonnegative(kernel: Any) -> bool:
    """Whether a series has no negative terms beyond rounding; stops at the first block with negative terms."""
    n = 32 if kernel.n_terms is None else kernel.n_terms
    while n <= _MOST_TERMS:
        f = kernel._coefficients(n)
        rest = np.cumsum(np.abs(f)[::-1])[::-1]
        if -f[f < 0].sum() > _ROUNDING * max(rest[0], _value(kernel)):
            return False
        if kernel.n_terms is not None or _is_complete(rest, 1e-8, kernel):
            return True
        n *= 2
    return False  # not decided within the terms available


def _value(kernel: Any) -> float:
    return float(np.abs(kernel.spectral(np.ones(1))[0]))


def _is_complete(rest: FloatArray, tol: float, kernel: Any) -> bool:
    """Whether all further terms are negligible: sums over blocks of doubling length at least halve.

    Absolute values must sum to at least |h(1)|, so that early zeros are not mistaken for the end. Coefficients are
    exponentials of logarithms up to 1e7, so their sum may be too small by 1e-9.
    """
    n = len(rest)
    before, last = rest[n // 4] - rest[n // 2], rest[n // 2]
    whole = rest[0] >= (1 - max(tol / 4, 1e-8)) * _value(kernel)
    return bool(np.isfinite(rest[0]) and whole and last <= min(tol / 4 * rest[0], before / 2))


def convolved(first: FloatArray, second: FloatArray) -> FloatArray:
    """First n terms of the convolution of two sequences of length n."""
    if (n := len(first)) <= 4096:
        return np.convolve(first, second)[:n]
    # Here rounding errors are 1e-16 of the largest term, not of each term.
    return np.asarray(fft.irfft(fft.rfft(first, 2 * n) * fft.rfft(second, 2 * n), 2 * n)[:n])


@functools.lru_cache(maxsize=64)
def square_root(kernel: Any) -> FloatArray:
    """Coefficients of the real power series f with f * f = alpha, up to rounding of their sum.

    The recurrence for f loses all digits within forty terms. Values of h on a circle lose none: the square root of
    h, continued along the circle, has Fourier coefficients r^k f_k. They vanish for k < 0 only if the root is
    analytic inside. The radius r is just below 1, because h may touch zero on the unit circle; r^k stays above e^-2
    for the terms that are kept. Where h falls to 1e-16 of its largest value, f is accurate to 1e-8 of its sum.

    Raises ``ValueError`` if there is no such series: h starts with a negative coefficient or an odd power, or has
    a zero of odd order inside the disc.
    """
    alpha: FloatArray = kernel.coefficients(kernel.truncation(1e-14))
    if not alpha.any():
        return alpha
    zeros = int(np.flatnonzero(alpha)[0])
    n, wrong, terms = 2 ** max(6, (2 * len(alpha)).bit_length()), 1.0, np.zeros(1)
    while zeros % 2 == 0 and n <= max(2**14, 4 * len(alpha)) and wrong > 1e-12:
        powers = np.exp(-2.0 / n * np.arange(n))
        values = fft.rfft(alpha[zeros:] * powers[: len(alpha) - zeros], 8 * n)  # on the upper half circle
        sizes = np.where(np.abs(values) > 4e-16 * np.abs(alpha).sum(), np.abs(values), 0.0)
        found = fft.irfft(np.sqrt(sizes) * np.exp(0.5j * np.unwrap(np.angle(values))), 8 * n)
        rest = np.abs(found[n:]).sum() / np.abs(found).sum() if values[0].real > 0 else np.inf
        if rest < wrong:
            wrong, terms = rest, found[:n] / powers * np.sign(found[0])
        n *= 2
    if wrong <= _ROUNDING:
        terms[np.abs(terms) < 1e-15 * np.abs(terms).sum()] = 0.0
        if -terms[terms < 0].sum() <= _ROUNDING * np.abs(terms).sum():
            terms = np.maximum(terms, 0.0)
        f = np.concatenate([np.zeros(zeros // 2), np.trim_zeros(terms, "b")])
        f.flags.writeable = False
        return f
    raise ValueError(f"{kernel} has no real square root as a convergent series. {ASYMMETRIC}.")


# --------------------------------------------------------------------------------- polynomials of the walk operator
# h(W) times columns, as polynomials of W: the matrix h(W) itself is never formed. A smooth h becomes a Chebyshev
# series; a short series with nonnegative coefficients is summed directly.
def best_form(expansion: Expansion, graph: Graph) -> LocalForm | None:
    """The operator of a graph with its nodes in a local order, or None if that is not faster.

    Blocks of columns that do not fit the caches are read again and again. With neighbours close together in memory
    the recurrence takes a third of the time on a scan of 50,000 vertices, and half on heat graphs of 20,000 nodes.
    The choice must not depend on the number of columns: the order of the nodes changes the rounding.
    """
    worthwhile = graph.n_nodes >= 4096 and expansion.degree >= 8
    return graph._local if worthwhile else None


def indicator_columns(n: int, nodes: IntArray) -> FloatArray:
    """Columns of the identity, shape (n, len(nodes))."""
    columns = np.zeros((n, len(nodes)))
    columns[nodes, np.arange(len(nodes))] = 1.0
    return columns


def apply_expansion(expansion: Expansion, graph: Graph, block: FloatArray, n_jobs: int) -> FloatArray:
    """Return h(W) X for X of shape (N, c), C-contiguous; the bits do not depend on ``n_jobs``."""
    local = best_form(expansion, graph)
    matrix, block = (graph.operator, block) if local is None else (local.matrix, block[local.order])
    if matrix.nnz * block.shape[1] < 2**17:
        n_jobs = 1  # a second thread would cost more than it saves
    spans = list(pairwise([*range(0, block.shape[1], _WIDTH), block.shape[1]]))
    # Threads share the columns or, if these are too few, the rows.
    for_columns, for_rows = (n_jobs, 1) if len(spans) >= 2 * n_jobs else (1, n_jobs)
    polynomial = functools.partial(_recurrence, expansion, matrix, block, for_rows)
    found = np.concatenate(quick_map(polynomial, spans, for_columns), axis=1)
    return found if local is None else found[local.place]


def rows_of_expansion(
    expansion: Expansion, graph: Graph, nodes: IntArray, n_jobs: int, progress: Callable[[str, int, int], None]
) -> FloatArray:
    """Rows ``nodes`` of h(W), shape (len(nodes), N); W is symmetric, so they are its columns."""
    local = best_form(expansion, graph)
    matrix, nodes = (graph.operator, nodes) if local is None else (local.matrix, local.place[nodes])
    result = np.zeros((len(nodes), matrix.shape[0]))

    def run(span: tuple[int, int]) -> int:
        indicators = indicator_columns(matrix.shape[0], nodes[span[0] : span[1]])
        found = _recurrence(expansion, matrix, indicators, 1, (0, indicators.shape[1]))
        result[span[0] : span[1]] = (found if local is None else found[local.place]).T
        return span[1]

    with thread_pool(n_jobs) as pool:
        for done in pool.map(run, pairwise([*range(0, len(nodes), _WIDTH), len(nodes)])):
            progress("signatures", done, len(nodes))
    return result


def _recurrence(
    expansion: Expansion, matrix: Any, block: FloatArray, n_jobs: int, span: tuple[int, int]
) -> FloatArray:
    """The polynomial of M times X, for a range of columns; threads share the rows."""
    coefficients, width = expansion.coefficients, span[1] - span[0]
    start = np.zeros((block.shape[0], max(4, width)))  # four columns at a time take as long as one
    start[:, :width] = block[:, span[0] : span[1]]
    total: FloatArray = coefficients[0] * start
    edges = np.linspace(0, len(total), n_jobs + 1).astype(np.int64).tolist()

    def run(scale: float, current: FloatArray, previous: FloatArray, weight: float) -> None:
        """Previous <- scale M current - previous, total += weight previous; rows are independent of each other."""
        given = *csr_parts(matrix), scale, current, previous, total, weight
        quick_map(functools.partial(loops.step_columns, *given), edges[:-1], n_jobs, edges[1:])

    if expansion.of_powers:
        power, product = start, np.zeros_like(start)
        for coefficient in coefficients[1:]:
            product[:] = 0.0  # the step subtracts the old value
            run(1.0, power, product, coefficient)
            power, product = product, power
        return total[:, :width]
    # T_1 = M: half a step from T_0, with zero before it.
    current, before = start, np.zeros_like(start)
    for k, coefficient in enumerate(coefficients[1:]):
        run(2.0 if k else 1.0, current, before, coefficient)
        before, current = current, before
    return total[:, :width]
