"""Kernels with closed forms: in steps of the graph, and in the units of the space.

The coefficients of the latter depend on the graph, so they are *resolved* on a graph first.
"""

import math
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
from scipy.special import gammaln, xlogy, zeta

from manifoldrf._codec import stored
from manifoldrf._validation import NONNEGATIVE, POSITIVE, FloatArray, Interval, check_integer, check_option, reject
from manifoldrf.geometry.graphs import Graph, check_graph
from manifoldrf.kernels.abstract_kernel import (
    ASYMMETRIC,
    AbstractKernel,
    ProductKernel,
    ScaledKernel,
    UnresolvedKernelError,
)

# Coefficients are quotients of Gamma functions, which overflow near zero and lose digits for large arguments.
POWERS = Interval(1e-300, 1e6)
_LENGTHS = Interval(1e-100, 1e100)  # squares of others are outside the range of doubles


@stored
@dataclass(frozen=True)
class DiffusionKernel(AbstractKernel):
    """exp(-tau L) = exp(tau (W - I)): heat after tau steps of the walk on average; the paper's kernel.

    alpha_k = e^-tau tau^k / k!, and f is the same with tau / 2. At an isolated node W is zero and K is e^-tau; a
    self-loop keeps the heat at the node.

    Parameters
    ----------
    tau : float
        Number of steps, at least 0. The paper's exp(tau W) is ``math.exp(tau) * DiffusionKernel(tau)``.

    Examples
    --------
    >>> import math
    >>> from manifoldrf import DiffusionKernel
    >>> (math.exp(2.0) * DiffusionKernel(2.0)).modulation(4).round(4).tolist()
    [1.0, 1.0, 0.5, 0.1667]
    """

    tau: float
    series_is_nonnegative = True

    def __post_init__(self) -> None:
        self._keep_real("tau", NONNEGATIVE)

    def spectral(self, w: FloatArray) -> FloatArray:
        """Return exp(tau (w - 1))."""
        return np.asarray(np.exp(self.tau * (w - 1.0)))

    def _coefficients(self, n: int) -> FloatArray:
        k = np.arange(n)
        return np.asarray(np.exp(xlogy(k, self.tau) - gammaln(k + 1) - self.tau))

    def root(self) -> AbstractKernel:
        """Return the kernel of half the steps."""
        return DiffusionKernel(self.tau / 2)


@stored
@dataclass(frozen=True)
class PowerKernel(AbstractKernel):
    """W^n: exactly n steps of the walk; on a heat graph, the heat kernel of the space.

    f is the indicator of n/2; for odd n there is no f.

    Parameters
    ----------
    n : int
        Number of steps, at least 0.

    Examples
    --------
    >>> from manifoldrf.kernels import PowerKernel
    >>> PowerKernel(4).modulation(4).tolist()
    [0.0, 0.0, 1.0, 0.0]
    """

    n: int
    series_is_nonnegative = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_integer(self.n, "n", 0, 2**53))

    def spectral(self, w: FloatArray) -> FloatArray:
        """Return w^n."""
        return np.asarray(w**self.n)

    def _coefficients(self, n: int) -> FloatArray:
        return np.where(np.arange(n) == self.n, 1.0, 0.0)

    def root(self) -> AbstractKernel:
        """Return the kernel of half the steps, if their number is even."""
        if self.n % 2:
            raise ValueError(f"{self} has no square root, because {self.n} is odd. {ASYMMETRIC}.")
        return PowerKernel(self.n // 2)

    @property
    def n_terms(self) -> int:
        """The number of steps plus one."""
        return int(self.n) + 1


@stored
@dataclass(frozen=True)
class RegularizedLaplacianKernel(AbstractKernel):
    """(I + scale^2 L)^-power, the regularised Laplacian.

    With q = scale^2 / (1 + scale^2): alpha_k = (1 - q)^power q^k Gamma(k + power) / (Gamma(power) k!), and f is
    the same with power / 2.

    Parameters
    ----------
    scale : float
        s in I + s^2 L, at least 0.
    power : float
        Positive.

    Examples
    --------
    >>> from manifoldrf.kernels import RegularizedLaplacianKernel
    >>> RegularizedLaplacianKernel(scale=1.0, power=2).coefficients(4).round(6).tolist()
    [0.25, 0.25, 0.1875, 0.125]
    """

    scale: float
    power: float = 1.0
    series_is_nonnegative = True

    def __post_init__(self) -> None:
        self._keep_real("scale", Interval(0.0, 1e150))  # larger squares overflow
        self._keep_real("power", POWERS)

    def spectral(self, w: FloatArray) -> FloatArray:
        """Return (1 + scale^2 (1 - w))^-power."""
        return np.asarray((1.0 + self.scale**2 * (1.0 - w)) ** -float(self.power))

    def _coefficients(self, n: int) -> FloatArray:
        k = np.arange(n)
        logs = xlogy(k, self.scale**2) - (k + self.power) * math.log1p(self.scale**2)
        return np.asarray(np.exp(logs + gammaln(k + self.power) - gammaln(self.power) - gammaln(k + 1)))

    def root(self) -> AbstractKernel:
        """Return the kernel of half the power."""
        return RegularizedLaplacianKernel(self.scale, self.power / 2)


@stored
@dataclass(frozen=True)
class RandomWalkKernel(AbstractKernel):
    """(a I - L)^p, the p-step random walk kernel.

    alpha_k = C(p, k) (a - 1)^(p - k), and f is the same with p / 2, which is nonnegative only for even p.

    Parameters
    ----------
    a : float
        At least 2, so that the kernel is positive semi-definite.
    p : float
        Number of steps, positive; may be fractional.

    Examples
    --------
    >>> from manifoldrf.kernels import RandomWalkKernel
    >>> RandomWalkKernel(a=2.0, p=4).modulation(4).tolist()
    [1.0, 2.0, 1.0, 0.0]
    >>> RandomWalkKernel(a=2.0, p=3).is_positive
    False
    """

    a: float
    p: float

    def __post_init__(self) -> None:
        self._keep_real("a", Interval(2.0))
        self._keep_real("p", POSITIVE)
        if self.p * math.log(self.a) > 700:
            reject("p", f"at most {700 / math.log(self.a):.0f} for a = {self.a:g}, or a^p overflows", self.p)

    def spectral(self, w: FloatArray) -> FloatArray:
        """Return (a - 1 + w)^p."""
        return np.asarray(np.maximum(self.a - 1.0 + w, 0.0) ** self.p)  # w >= -1 up to rounding, a >= 2

    def _coefficients(self, n: int) -> FloatArray:
        k = np.arange(n - 1)
        ratios = (self.p - k) / ((k + 1.0) * (self.a - 1.0))
        return np.asarray(float(self.a - 1.0) ** self.p * np.concatenate([[1.0], np.cumprod(ratios)]))

    def root(self) -> AbstractKernel:
        """Return the kernel of half the steps."""
        return RandomWalkKernel(self.a, self.p / 2)

    @property
    def n_terms(self) -> int | None:
        """For integer p: p + 1, else None."""
        return int(self.p) + 1 if float(self.p).is_integer() else None

    @property
    def series_is_nonnegative(self) -> bool:
        """Whether p is an integer: then the series ends before its signs alternate."""
        return self.n_terms is not None


@stored
@dataclass(frozen=True)
class CosineKernel(AbstractKernel):
    """cos(pi L / 4), the inverse cosine kernel. Its modulation has negative entries.

    alpha_k = sqrt(1/2) s_k (pi/4)^k / k! with signs s = +, +, -, -, +, ...

    Examples
    --------
    >>> from manifoldrf.kernels import CosineKernel
    >>> CosineKernel().is_positive
    False
    """

    is_positive = False  # f_2 is negative

    def spectral(self, w: FloatArray) -> FloatArray:
        """Return cos(pi (1 - w) / 4)."""
        return np.asarray(np.cos(np.pi / 4 * (1.0 - w)))

    def _coefficients(self, n: int) -> FloatArray:
        k = np.arange(n)
        signs = np.where(k % 4 < 2, 1.0, -1.0)
        return np.asarray(signs * np.exp(k * math.log(np.pi / 4) - gammaln(k + 1)) * math.sqrt(0.5))


def shifted(kernel: AbstractKernel) -> AbstractKernel:
    """Return sum_k alpha_{k+1} W^k, so that h(W) = alpha_0 + W times it."""
    if isinstance(kernel, PowerKernel) and kernel.n > 0:
        return PowerKernel(kernel.n - 1)
    return ShiftedKernel(kernel)


@stored
@dataclass(frozen=True)
class ShiftedKernel(AbstractKernel):
    """(h(W) - alpha_0) / W, as a series."""

    kernel: AbstractKernel

    def spectral(self, w: FloatArray) -> FloatArray:
        """Return (h(w) - alpha_0) / w, by the series near zero."""
        first = self.kernel._coefficients(1)[0]
        small = np.abs(w) < 1e-3  # the difference would lose digits to cancellation; eight terms are enough
        terms = self._coefficients(8)
        near = np.polynomial.polynomial.polyval(np.where(small, w, 0.0), terms)
        far = np.where(small, 1.0, w)
        return np.asarray(np.where(small, near, (self.kernel.spectral(far) - first) / far))

    def _coefficients(self, n: int) -> FloatArray:
        return self.kernel._coefficients(n + 1)[1:]

    @property
    def n_terms(self) -> int | None:
        """One less than for the kernel, at least one."""
        return None if self.kernel.n_terms is None else max(1, self.kernel.n_terms - 1)

    @property
    def series_is_nonnegative(self) -> bool:
        """True if the series of the kernel is nonnegative; else the coefficients decide."""
        return self.kernel.series_is_nonnegative or super().series_is_nonnegative


@stored
@dataclass(frozen=True)
class HeatKernel(AbstractKernel):
    """exp(t Delta): the heat kernel of the space at the time t, in units of length squared.

    :meth:`resolve` gives the kernel on a graph: W^n on a heat graph if n steps last t and n is even; on other
    graphs exp(-tau L), where tau steps last t on average. ``dense``, ``apply``, ``matrix`` and the teachers resolve
    it automatically, with the dimension of the graph.

    Parameters
    ----------
    t : float
        Heat time, positive; use t = l^2 / 2 for structures of size l.

    Examples
    --------
    >>> from manifoldrf import HeatKernel, Sphere, heat_graph, knn_graph
    >>> points = Sphere().grid(1000)
    >>> HeatKernel(0.05).resolve(heat_graph(points, t=0.05))
    PowerKernel(n=12)
    >>> round(HeatKernel(0.05).resolve(knn_graph(points), dim=2).tau, 4)
    11.9757
    """

    t: float
    is_positive = True  # the root is not HeatKernel(t / 2), which may need an odd number of steps

    def __post_init__(self) -> None:
        self._keep_real("t", POSITIVE)

    @property
    def shortest_time(self) -> float:
        """The time t."""
        return self.t

    def resolve(self, graph: Graph, dim: int | None = None) -> AbstractKernel:
        """Return the kernel in steps of this graph: ``PowerKernel`` on a heat graph, else ``DiffusionKernel``.

        Any other time of at least two steps of a heat graph is the square of (1 - s) W^k + s W^(k+1), with k + s
        steps in half the time. It differs from e^{t Delta} by (s - s^2) (step Delta)^2 to first order, which is at
        most .3 / n^2 of the norm of the kernel after n steps on a surface.

        Parameters
        ----------
        graph : Graph
        dim : int, optional
            Intrinsic dimension, used if the graph has no ``step_time``; estimated by default.

        Raises
        ------
        ValueError
            On a heat graph, if t is shorter than two steps.
        """
        step = _step_time(graph, dim)
        if graph.n_steps is None:
            return DiffusionKernel(self.t / step)
        half = self.t / step / 2
        if half > 0.5 and abs(half - round(half)) <= 1e-6 * half:
            return PowerKernel(2 * round(half))
        if half < 1:
            reject("t", f"at least {2 * step:g}, two steps of the graph; or build heat_graph(points, t)", self.t)
        low = math.floor(half)
        root = (1 - half + low) * PowerKernel(low) + (half - low) * PowerKernel(low + 1)
        return root * root

    def spectral(self, w: FloatArray) -> FloatArray:
        """Raise an error: h depends on the graph."""
        _unresolved(self)

    def _coefficients(self, n: int) -> FloatArray:
        _unresolved(self)


@stored
@dataclass(frozen=True)
class MaternKernel(AbstractKernel):
    """The Matern kernel: (c + L)^-nu in the graph clock, (c - Delta)^-(nu + dim/2) in the manifold clock.

    c = 2 nu / lengthscale^2. In the graph clock alpha_k = (1 + c)^(-nu - k) Gamma(k + nu) / (Gamma(nu) k!), and f
    is the same with nu / 2. In the manifold clock the kernel is resolved on a graph. On a heat graph, where
    W = e^{dt Delta}, it is a Gamma mixture of powers of W. On other graphs L / dt replaces -Delta. f is nonnegative
    in all cases.

    Parameters
    ----------
    nu : float
        Smoothness, positive.
    lengthscale : float
        kappa: the square root of a number of steps in the graph clock, a length in the user's unit in the manifold
        clock.
    clock : {"graph", "manifold"}
        The clock of ``lengthscale``.

    Examples
    --------
    >>> from manifoldrf import MaternKernel
    >>> MaternKernel(nu=1.0, lengthscale=2.0).coefficients(3).round(4).tolist()
    [0.6667, 0.4444, 0.2963]
    """

    nu: float
    lengthscale: float
    clock: str = "graph"
    is_positive = True

    def __post_init__(self) -> None:
        nu, length = self._keep_real("nu", POWERS), self._keep_real("lengthscale", _LENGTHS)
        check_option(self.clock, "clock", ("graph", "manifold"))
        if self.rate < 1e-290:  # the square of the scale 1 / sqrt(rate) overflows
            longest = math.sqrt(2 * nu) * 1e145
            rule = f"at most {longest:.3g} for nu = {nu:g}, or 2 nu / lengthscale^2 vanishes"
            reject("lengthscale", rule, length)
        if not nu * abs(math.log(self.rate)) < 600:
            most = 600 / abs(math.log(self.rate))
            reject("nu", f"at most {most:.0f}, or (2 nu / lengthscale^2)^-nu overflows", nu)

    @property
    def rate(self) -> float:
        """The shift c = 2 nu / lengthscale^2."""
        return 2 * self.nu / self.lengthscale**2

    @property
    def shortest_time(self) -> float | None:
        """In the manifold clock, a time so short that steps are far shorter than the length scale."""
        return self.lengthscale**2 / 12 if self.clock == "manifold" else None

    def resolve(self, graph: Graph, dim: int | None = None) -> AbstractKernel:
        """Return the kernel in steps of this graph; a kernel in the graph clock is returned unchanged."""
        if self.clock == "graph":
            return self
        step = _step_time(graph, dim)
        if dim is None and graph.points is None:
            reject("dim", "given where the graph has no points", None)
        power = self.nu + (graph._dimension if dim is None else check_integer(dim, "dim", 1)) / 2
        if self.rate * step > 1:
            rule = f"at least {math.sqrt(2 * self.nu * step):.3g} on this graph, whose steps last {step:g}"
            reject("lengthscale", rule, self.lengthscale)
        if graph.n_steps is not None:
            root = GammaMixtureKernel(self.rate * step, power / 2, step)
            return ProductKernel(root, root)
        return _shifted_power(self.rate * step, power, step**power)

    def spectral(self, w: FloatArray) -> FloatArray:
        """Return (c + 1 - w)^-nu, in the graph clock."""
        return self._in_steps().spectral(w)

    def _coefficients(self, n: int) -> FloatArray:
        return self._in_steps()._coefficients(n)

    def root(self) -> AbstractKernel:
        """Return the kernel of half the power, in the graph clock."""
        return super().root() if self.clock == "manifold" else self._in_steps().root()

    def _in_steps(self) -> ScaledKernel:
        if self.clock == "manifold":
            _unresolved(self)
        return _shifted_power(self.rate, self.nu, 1.0)


@stored
@dataclass(frozen=True)
class GammaMixtureKernel(AbstractKernel):
    """(a - Delta)^-p on a heat graph: step^p / Gamma(p) times the integral of x^(p-1) e^(-rate x) W^x over x > 0.

    The integral is approximated by the trapezoidal sum over integers x > 0. The expansion of the error at the
    singular end starts with zeta(1 - p) - zeta(-p) b, b = (a - Delta) step. The coefficients of W and W^2 are
    changed so that both terms vanish. (A multiple of W^0 could cancel the first term, but it is a spike at every
    node. Per unit of volume it is unbounded for nodes of small volume.)

    Parameters
    ----------
    rate : float
        a times the time of a step.
    power : float
        p.
    step : float
        Time of a step.
    """

    rate: float
    power: float
    step: float
    series_is_nonnegative = True

    def spectral(self, w: FloatArray) -> FloatArray:
        """Sum of the series: a polylogarithm of e^-rate w, with the first two terms corrected."""
        z = math.exp(-self.rate) * np.asarray(w, np.float64)
        first, second = self._weights(2)
        size = np.abs(z)
        # Sum of k^(p-1) z^k over k >= 1: Li_s(z) of order s = 1 - p, with Li_s(-x) = 2^(1-s) Li_s(x^2) - Li_s(x).
        plain = _positive_powers_sum(size, self.power)
        sums = np.where(z < 0, 2.0**self.power * _positive_powers_sum(size**2, self.power) - plain, plain)
        whole = sums + (first - 1.0) * z + (second - 2.0 ** (self.power - 1)) * z**2
        return np.asarray(math.exp(self._log_scale) * whole)

    def _coefficients(self, n: int) -> FloatArray:
        k = np.arange(1.0, n)
        return np.concatenate([[0.0], self._weights(n - 1) * np.exp(self._log_scale - self.rate * k)])

    @property
    def _log_scale(self) -> float:
        return float(self.power * math.log(self.step) - gammaln(self.power))

    def _weights(self, n: int) -> FloatArray:
        """k^(p-1) for k = 1, ..., n, with the first two corrected, so that the sum is closer to the integral."""
        weights = np.arange(1.0, n + 1) ** (self.power - 1)
        constant, linear = -float(zeta(1 - self.power)), -float(zeta(-self.power))
        second = linear - constant
        # Change only the first weight if the second would become negative.
        changes = [constant, 0.0] if 2 ** (self.power - 1) + second < 0 else [constant - second, second]
        weights[:2] += changes[: len(weights)]
        return np.maximum(weights, 0.0)


def _positive_powers_sum(x: FloatArray, p: float) -> FloatArray:
    """Sum of k^(p-1) x^k over k >= 1 for 0 <= x < 1.

    Up to 1/4 the series converges as .25^k; above, the expansion around 1 converges as (1.4 / 2 pi)^k.
    """
    split, n_terms = 0.25, 80
    k = np.arange(1.0, n_terms)
    small = np.minimum(x, split)
    result = np.polynomial.polynomial.polyval(small, np.concatenate([[0.0], k ** (p - 1)]))
    log = np.log(np.maximum(x, split))
    j = np.arange(n_terms)
    near_one = np.polynomial.polynomial.polyval(log, zeta(1 - p - j) * np.exp(-gammaln(j + 1.0)))
    near_one += np.exp(gammaln(p) - p * np.log(-log))
    return np.asarray(np.where(x <= split, result, near_one))


def _shifted_power(c: float, power: float, factor: float) -> ScaledKernel:
    """Return factor (c + L)^-power."""
    return ScaledKernel(RegularizedLaplacianKernel(c**-0.5, power), factor * c**-power)


def _step_time(graph: Graph, dim: int | None) -> float:
    step = check_graph(graph).time(1.0, dim)
    if step == 0:
        raise ValueError("This graph has steps of length zero, so no number of steps takes a positive time.")
    return step


def _unresolved(kernel: AbstractKernel) -> NoReturn:
    raise UnresolvedKernelError(
        f"{kernel} has no coefficients before the graph is known: kernel.resolve(graph, dim) gives them."
    )
