"""Kernels in the graph clock, with closed forms of their coefficients and roots."""

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln, xlogy

from manifoldrf._codec import stored
from manifoldrf._validation import NONNEGATIVE, POSITIVE, FloatArray, Interval, check_integer, reject
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.roots import ASYMMETRIC

__all__ = ["CosineKernel", "DiffusionKernel", "PowerKernel", "RandomWalkKernel", "RegularizedLaplacianKernel"]

# Coefficients are quotients of Gamma functions, which overflow near zero and lose digits for large arguments.
POWERS = Interval(1e-300, 1e6)


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
    >>> from manifoldrf import PowerKernel
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
    >>> from manifoldrf import RegularizedLaplacianKernel
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
    >>> from manifoldrf import RandomWalkKernel
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
    >>> from manifoldrf import CosineKernel
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
