"""Kernels as power series of the walk operator: the base class, roots, sums, products and multiples."""

import dataclasses
import functools
from abc import ABC, abstractmethod
from decimal import Decimal
from numbers import Real
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg

from manifoldrf._codec import stored
from manifoldrf._runtime import one_blas_thread
from manifoldrf._validation import (
    NONNEGATIVE,
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
from manifoldrf.geometry.graphs import Graph, as_adjacency
from manifoldrf.kernels import action, roots
from manifoldrf.kernels.action import AnyGraph, Expansion

__all__ = ["AbstractKernel"]

_LARGEST_DENSE = 20_000
_MOST_TERMS = 2**20
# A high-precision root of n terms takes n^2 operations on numbers of n digits: seconds at this size.
_MOST_EXACT_TERMS = 512
_LONGER_FOR_POWERS = 2  # the accuracy of small entries is worth this many times more products


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
        """Parameters by name; parameters of a part are named ``part__name``."""
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
        DiffusionKernel(tau=7.0, normalized=True)
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


class UnresolvedKernelError(ValueError):
    """A kernel in the manifold clock was asked for something that depends on the graph."""


class AbstractKernel(FrozenParams, ABC):
    """A graph kernel K = h(W) = sum_k alpha_k W^k; immutable.

    Kernels can be added, multiplied (as matrices, so their coefficients are convolved) and scaled:
    ``2 * DiffusionKernel(5.0) + PowerKernel(2)``.

    Examples
    --------
    >>> from manifoldrf import AbstractKernel, DiffusionKernel, PowerKernel
    >>> kernel = 2 * DiffusionKernel(5.0) + PowerKernel(2)
    >>> isinstance(kernel, AbstractKernel), kernel.get_params()["right__n"]
    (True, 2)
    """

    __array_ufunc__ = None  # an array times a kernel is an error, not an array of kernels

    @abstractmethod
    def spectral(self, w: FloatArray) -> FloatArray:
        """Return h(w) in closed form, for w in the spectrum of W."""

    @abstractmethod
    def _coefficients(self, n: int) -> FloatArray:
        """First n coefficients, n >= 1."""

    @abstractmethod
    def _exact(self, n: int) -> list[Decimal]:
        """The first n coefficients as decimals, in the precision of the current context."""

    def _root(self, order: int) -> "AbstractKernel":
        """The root of the given order; kernels with a closed form override this method."""
        return RootKernel(self, order)

    @property
    def convergence(self) -> float:
        """Radius of convergence of the series."""
        return np.inf

    @property
    def n_terms(self) -> int | None:
        """Number of terms of a finite series; None for an infinite one."""
        return None

    @property
    def _most_terms(self) -> int:
        """A series that needs more terms counts as divergent."""
        return _MOST_TERMS

    def _value_at(self, radius: float) -> float:
        """|h(radius)|, from the closed form."""
        return float(np.abs(self.spectral(np.array([radius]))[0]))

    def coefficients(self, n: int) -> FloatArray:
        """First n coefficients alpha_0, ..., alpha_{n-1} of the powers of W."""
        return self._coefficients(check_integer(n, "n", 1))

    def modulation(self, n: int) -> FloatArray:
        """First n coefficients f_0, ..., f_{n-1} with f * f = alpha, so that K = Phi Phi^T, Phi = sum_k f_k W^k.

        Raises ``ValueError`` if there is no real f.
        """
        return self.root().coefficients(n)

    def root(self, order: int = 2) -> "AbstractKernel":
        """Return the kernel whose ``order``-th matrix power is this kernel. For order 2, its series is f."""
        check_integer(order, "order", 1)
        return self._square_root if order == 2 else self._root(order)

    @functools.cached_property
    def _square_root(self) -> "AbstractKernel":
        return self._root(2)

    def __getstate__(self) -> dict[str, Any]:
        # Copies and pickles hold the parameters, not the root computed from them.
        return {name: value for name, value in vars(self).items() if name != "_square_root"}

    @property
    def is_positive(self) -> bool:
        """Whether f exists with f >= 0: then the features are nonnegative, and the series of f converges.

        Without a closed form, the coefficients decide. Negative coefficients that sum to less than a millionth of
        all are treated as rounding of alpha to doubles; :meth:`modulation` sets them to zero. A root that does not
        converge within 512 terms counts as not positive.
        """
        try:
            return self.root().series_is_nonnegative
        except UnresolvedKernelError:
            raise
        except ValueError:  # no real root
            return False

    @property
    def series_is_nonnegative(self) -> bool:
        """Whether no coefficient is negative, beyond rounding."""
        return roots.is_nonnegative(self.coefficients, self._value_at(1.0), self._most_terms)

    def truncation(self, tol: float = 1e-10, radius: float = 1.0) -> int:
        """Number n of terms that leave out at most ``tol`` of the series, for spectra in [-radius, radius].

        sum_{k >= n} |alpha_k| radius^k <= tol sum_k |alpha_k| radius^k; with one term less, more than tol/2 is
        left.

        Examples
        --------
        >>> from manifoldrf import DiffusionKernel
        >>> DiffusionKernel(20.0).truncation(1e-6)
        46
        """
        check_real(tol, "tol", action.TOLERANCES)
        self._check_radius(check_real(radius, "radius", NONNEGATIVE))
        return roots.truncation_of(self, float(tol), float(radius))

    def resolve(self, graph: AnyGraph, dim: int | None = None) -> "AbstractKernel":
        """Return the kernel in steps of this graph: the same kernel, unless it uses the manifold clock."""
        del graph, dim
        return self

    def on(self, graph: AnyGraph) -> "AbstractKernel":
        """Resolve the kernel; raise an error if the series does not converge on this graph."""
        kernel = self.resolve(graph)
        kernel._check_radius(graph.radius)
        return kernel

    def expansion(self, radius: float, tol: float) -> Expansion:
        """Return a polynomial that approximates h on [-radius, radius] to ``tol`` of its largest value.

        A short, finite series without negative coefficients is used directly.
        """
        chebyshev = action.expand(self.spectral, radius, tol)
        if self.n_terms is None or self.n_terms - 1 > _LONGER_FOR_POWERS * chebyshev.degree:
            return chebyshev
        alpha = self._coefficients(self.n_terms)
        return chebyshev if (alpha < 0).any() else Expansion(alpha, radius, of_powers=True)

    @one_blas_thread()
    def dense(self, graph: AnyGraph) -> FloatArray:
        """K as a matrix (N, N), exact, by eigendecomposition in O(N^3); does not use the series."""
        kernel, n_nodes, scaling = self.on(as_adjacency(graph)), graph.n_nodes, graph.scaling
        if n_nodes > _LARGEST_DENSE:
            reject("graph", f"a graph of at most {_LARGEST_DENSE} nodes; see `apply` and `matrix`", f"{n_nodes}")
        # Divide and conquer: the default driver's vectors are orthogonal only to 1e-13 if eigenvalues are close.
        values, vectors = linalg.eigh(graph.symmetric.toarray(), driver="evd")
        dense: FloatArray = (vectors * kernel.spectral(np.clip(values, -graph.radius, graph.radius))) @ vectors.T
        dense = (dense + dense.T) / 2
        return dense if scaling is None else dense * scaling / scaling[:, None]

    def apply(self, graph: AnyGraph, X: ArrayLike, *, tol: float = 1e-10, n_jobs: int = 1) -> FloatArray:
        """K X by polynomials of W, without forming K.

        Parameters
        ----------
        graph : Graph or GeneralizedAdjacency
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
        kernel = self.on(as_adjacency(graph))
        columns = check_columns(X, "X", graph.n_nodes)
        expansion = kernel.expansion(graph.radius, tol)
        scaling = 1.0 if graph.scaling is None else graph.scaling[:, None]
        matrix = action.best_matrix(expansion, graph)
        result = action.apply_expansion(expansion, matrix, columns * scaling, check_jobs(n_jobs)) / scaling
        return result[:, 0] if np.ndim(X) == 1 else result

    def matrix(
        self,
        graph: AnyGraph,
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
        graph : Graph or GeneralizedAdjacency
        rows, cols : array-like of int, optional
        per_volume : bool
            Divide by the square roots of the weights of both nodes: the kernel of the space itself, per unit of
            volume. Needs a graph with ``weights``: a heat graph or a cotangent graph.
        tol, n_jobs
            As in :meth:`apply`.

        Examples
        --------
        >>> from manifoldrf import HeatKernel, Sphere, heat_graph
        >>> graph = heat_graph(Sphere().grid(1000), t=0.05)
        >>> HeatKernel(0.05).matrix(graph, [0], [1, 2], per_volume=True).round(2).tolist()
        [[1.51, 1.52]]
        >>> Sphere().heat_kernel(graph.points[:1], graph.points[1:3], 0.05).round(2).tolist()
        [[1.52, 1.53]]
        """
        adjacency = as_adjacency(graph)
        everything = np.arange(adjacency.n_nodes)
        first = everything if rows is None else check_indices(rows, "rows", adjacency.n_nodes)
        second = everything if cols is None else check_indices(cols, "cols", adjacency.n_nodes)
        expansion = self.on(adjacency).expansion(adjacency.radius, tol)
        swap = len(first) < len(second)  # multiply the columns of the smaller set of nodes
        sources, targets = (first, second) if swap else (second, first)
        columns = action.indicator_columns(adjacency.n_nodes, sources)
        found = action.apply_expansion(
            expansion, action.best_matrix(expansion, adjacency), columns, check_jobs(n_jobs)
        )[targets]
        result = found.T if swap else found
        if adjacency.scaling is not None:
            result = result * adjacency.scaling[second] / adjacency.scaling[first][:, None]
        return _per_volume(result, adjacency, first, second) if check_flag(per_volume, "per_volume") else result

    def __add__(self, other: object) -> "AbstractKernel":
        return SumKernel(self, other) if isinstance(other, AbstractKernel) else NotImplemented

    def __mul__(self, other: Any) -> "AbstractKernel":
        if isinstance(other, AbstractKernel):
            return ProductKernel(self, other)
        return (
            ScaledKernel(self, check_real(other, "factor", Interval()))
            if isinstance(other, Real)
            else NotImplemented
        )

    __rmul__ = __mul__

    def _check_radius(self, radius: float) -> None:
        if not radius < self.convergence and self.convergence < np.inf:
            reject("graph", f"of spectral radius below {self.convergence:g} for {self}", f"{radius:g}")


def _per_volume(values: FloatArray, graph: AnyGraph, rows: IntArray, cols: IntArray) -> FloatArray:
    """Entries K_ij / sqrt(mu_i mu_j): the kernel of the space, if the graph has the volumes of its nodes."""
    if not isinstance(graph, Graph) or graph.weights is None:
        raise ValueError(
            "`per_volume` needs node weights, which this graph does not have: heat_graph and "
            "mesh_graph(mesh, weights='cotangent') set them."
        )
    for name, nodes in (("rows", rows), ("cols", cols)):
        if not graph.weights[nodes].all():
            reject(name, "nodes of positive weight, with per_volume=True", "nodes of weight zero")
    sizes = np.sqrt(graph.weights)
    return np.asarray(values / sizes[rows][:, None] / sizes[cols])


@functools.lru_cache(maxsize=256)
def _root_coefficients(kernel: AbstractKernel, order: int, n: int) -> FloatArray:
    f = roots.series_root(kernel._exact, order, n)
    if f is None:
        raise ValueError(
            f"{kernel} has no real root of order {order}: its series starts with a negative coefficient, or with "
            f"a number of zeros that {order} does not divide. {roots.ASYMMETRIC}."
        )
    root_value = kernel._value_at(1.0) ** (1 / order)
    if -f[f < 0].sum() <= roots.ROUNDING_SHARE * max(np.abs(f).sum(), root_value):
        f = np.maximum(f, 0.0)
    f.flags.writeable = False
    return f


@stored
@dataclasses.dataclass(frozen=True)
class RootKernel(AbstractKernel):
    """The kernel whose ``order``-th power is the given one; coefficients by high-precision deconvolution."""

    kernel: AbstractKernel
    order: int

    def spectral(self, w: FloatArray) -> FloatArray:
        """Sum the series. A root of the values of h has no known branch where h touches zero."""
        radius = float(np.abs(w).max(initial=0.0))
        terms = self._coefficients(self.truncation(1e-13, max(radius, 1e-3)))
        return np.asarray(np.polynomial.polynomial.polyval(w, terms), np.float64)

    def _coefficients(self, n: int) -> FloatArray:
        if n > _MOST_EXACT_TERMS:
            reject("n", f"at most {_MOST_EXACT_TERMS} for a root without a closed form", n)
        return _root_coefficients(self.kernel, self.order, n)

    def _exact(self, n: int) -> list[Decimal]:
        return roots.decimals(self._coefficients(n))

    def _root(self, order: int) -> AbstractKernel:
        return RootKernel(self.kernel, self.order * order)

    def resolve(self, graph: AnyGraph, dim: int | None = None) -> AbstractKernel:
        """Return the root of the resolved kernel."""
        return self.kernel.resolve(graph, dim).root(self.order)

    @property
    def _most_terms(self) -> int:
        return _MOST_EXACT_TERMS

    def _value_at(self, radius: float) -> float:
        return float(self.kernel._value_at(radius) ** (1 / self.order))


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

    def _exact(self, n: int) -> list[Decimal]:
        return [Decimal(float(self.factor)) * value for value in self.kernel._exact(n)]

    def _root(self, order: int) -> AbstractKernel:
        if self.factor <= 0:
            return RootKernel(self, order)
        return ScaledKernel(self.kernel.root(order), float(self.factor) ** (1 / order))

    @property
    def is_positive(self) -> bool:
        """Same as for the kernel if the factor is positive."""
        return self.kernel.is_positive if self.factor > 0 else super().is_positive

    @property
    def series_is_nonnegative(self) -> bool:
        """Same as for the kernel if the factor is positive."""
        return self.kernel.series_is_nonnegative if self.factor > 0 else super().series_is_nonnegative

    @property
    def convergence(self) -> float:
        """Same as for the kernel."""
        return self.kernel.convergence

    @property
    def n_terms(self) -> int | None:
        """Same as for the kernel."""
        return self.kernel.n_terms

    def resolve(self, graph: AnyGraph, dim: int | None = None) -> AbstractKernel:
        """Resolve the kernel; returns itself if nothing changes, so that the root is computed only once."""
        kernel = self.kernel.resolve(graph, dim)
        return self if kernel is self.kernel else ScaledKernel(kernel, self.factor)


@dataclasses.dataclass(frozen=True)
class _PairKernel(AbstractKernel):
    """A sum or product of two kernels."""

    left: AbstractKernel
    right: AbstractKernel

    @property
    def convergence(self) -> float:
        """The smaller radius of the two."""
        return min(self.left.convergence, self.right.convergence)

    @property
    def _lengths(self) -> tuple[int, int] | None:
        left, right = self.left.n_terms, self.right.n_terms
        return None if left is None or right is None else (left, right)

    @property
    def series_is_nonnegative(self) -> bool:
        """True if both are nonnegative; else the coefficients decide."""
        both = self.left.series_is_nonnegative and self.right.series_is_nonnegative
        return both or super().series_is_nonnegative

    def resolve(self, graph: AnyGraph, dim: int | None = None) -> AbstractKernel:
        """Resolve both; returns itself if nothing changes, so that the root is computed only once."""
        left, right = self.left.resolve(graph, dim), self.right.resolve(graph, dim)
        return self if left is self.left and right is self.right else type(self)(left, right)


@stored
@dataclasses.dataclass(frozen=True)
class SumKernel(_PairKernel):
    """Sum of two kernels."""

    def spectral(self, w: FloatArray) -> FloatArray:
        """Return the sum of both."""
        return self.left.spectral(w) + self.right.spectral(w)

    def _coefficients(self, n: int) -> FloatArray:
        return self.left._coefficients(n) + self.right._coefficients(n)

    def _exact(self, n: int) -> list[Decimal]:
        return [a + b for a, b in zip(self.left._exact(n), self.right._exact(n), strict=True)]

    def _root(self, order: int) -> AbstractKernel:
        return (2.0 * self.left).root(order) if self.left == self.right else RootKernel(self, order)

    @property
    def n_terms(self) -> int | None:
        """The larger number of the two, if both are finite."""
        return None if self._lengths is None else max(self._lengths)


@stored
@dataclasses.dataclass(frozen=True)
class ProductKernel(_PairKernel):
    """Matrix product of two kernels; functions of the same W commute."""

    def spectral(self, w: FloatArray) -> FloatArray:
        """Return the product of both."""
        return self.left.spectral(w) * self.right.spectral(w)

    def _coefficients(self, n: int) -> FloatArray:
        return roots.convolved(self.left._coefficients(n), self.right._coefficients(n))

    def _exact(self, n: int) -> list[Decimal]:
        left, right = self.left._exact(n), self.right._exact(n)
        return [sum((left[j] * right[k - j] for j in range(k + 1)), Decimal(0)) for k in range(n)]

    def _root(self, order: int) -> AbstractKernel:
        if order == 2 and self.left == self.right:
            return self.left
        if self.left.is_positive and self.right.is_positive:
            return ProductKernel(self.left.root(order), self.right.root(order))
        return RootKernel(self, order)  # a product may have a root although its factors have none

    @property
    def n_terms(self) -> int | None:
        """One more than the sum of both degrees, if both are finite."""
        return None if self._lengths is None else sum(self._lengths) - 1
