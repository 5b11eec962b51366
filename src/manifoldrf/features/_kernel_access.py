"""One name for two things: ``features.kernel`` is the parameter and, called, the kernel of the features."""

from typing import Any


class BoundKernel:
    """The parameter ``kernel`` of an estimator, which can also be called with points."""

    def __init__(self, estimator: Any, parameter: Any) -> None:
        self._estimator = estimator
        self._parameter = parameter

    def __call__(self, Z: Any, Y: Any = None) -> Any:
        """K(z, y) = phi(z) . phi(y), shape (len(Z), len(Y)); between the points of ``Z`` without ``Y``."""
        return self._estimator.kernel_matrix(Z, Y)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy in the making has no parameter yet
            raise AttributeError(name)
        return getattr(self._parameter, name)

    def __eq__(self, other: object) -> bool:
        return bool(self._parameter == (other._parameter if isinstance(other, BoundKernel) else other))

    def __hash__(self) -> int:
        return hash(self._parameter)

    def __repr__(self) -> str:
        return repr(self._parameter)


class KernelAccess:
    """Descriptor that stores the parameter under its own name and gives it back with a call."""

    def __get__(self, estimator: Any, owner: Any = None) -> Any:
        return self if estimator is None else BoundKernel(estimator, estimator.__dict__["kernel"])

    def __set__(self, estimator: Any, value: Any) -> None:
        estimator.__dict__["kernel"] = value._parameter if isinstance(value, BoundKernel) else value
