"""A series without its first term, one step shorter: what is left to do after the first step of a walk."""

from dataclasses import dataclass
from decimal import Decimal

import numpy as np

from manifoldrf._validation import FloatArray
from manifoldrf.kernels.abstract_kernel import AbstractKernel
from manifoldrf.kernels.graph_kernels import PowerKernel

# Below it (h(w) - alpha_0) / w loses digits to cancellation, and a few terms of the series are all of it.
_SMALL, _FEW_TERMS = 1e-3, 8


def shifted(kernel: AbstractKernel) -> AbstractKernel:
    """Return sum_k alpha_{k+1} W^k, so that h(W) = alpha_0 + W times it."""
    if isinstance(kernel, PowerKernel) and kernel.n > 0:
        return PowerKernel(kernel.n - 1)
    return ShiftedKernel(kernel)


@dataclass(frozen=True)
class ShiftedKernel(AbstractKernel):
    """(h(W) - alpha_0) / W, as a series."""

    kernel: AbstractKernel

    def spectral(self, w: FloatArray) -> FloatArray:
        """Return (h(w) - alpha_0) / w, near zero by the series."""
        first = self.kernel._coefficients(1)[0]
        small = np.abs(w) < _SMALL
        terms = self._coefficients(_FEW_TERMS)
        near = np.polynomial.polynomial.polyval(np.where(small, w, 0.0), terms)
        far = np.where(small, 1.0, w)
        return np.asarray(np.where(small, near, (self.kernel.spectral(far) - first) / far))

    def _coefficients(self, n: int) -> FloatArray:
        return self.kernel._coefficients(n + 1)[1:]

    def _exact(self, n: int) -> list[Decimal]:
        return self.kernel._exact(n + 1)[1:]

    @property
    def convergence(self) -> float:
        """That of the kernel."""
        return self.kernel.convergence

    @property
    def n_terms(self) -> int | None:
        """One less than those of the kernel, at least one."""
        return None if self.kernel.n_terms is None else max(1, self.kernel.n_terms - 1)

    @property
    def _most_terms(self) -> int:
        return self.kernel._most_terms - 1

    @property
    def series_is_nonnegative(self) -> bool:
        """True where the kernel's is."""
        return self.kernel.series_is_nonnegative or super().series_is_nonnegative
