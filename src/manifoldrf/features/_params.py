"""Parameters of frozen parts of an estimator, set by name."""

from collections import defaultdict
from typing import Any, Self

from manifoldrf.kernels._params import FrozenParams


class FrozenParamsMixin:
    """``set_params(kernel__t=...)`` for estimators that hold frozen objects, which are replaced, not changed."""

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the estimator; ``kernel__<name>`` replaces the kernel by one with another value."""
        inner: dict[str, dict[str, Any]] = defaultdict(dict)
        outer = {}
        for name, value in params.items():
            owner, _, rest = name.partition("__")
            if rest and owner in ("kernel", "graph") and params.get(owner, self.__dict__.get(owner)) is None:
                example = "HeatKernel(0.1)" if owner == "kernel" else "GraphOptions()"
                raise ValueError(f"`{name}` needs a {owner} to change: give one, such as {owner}={example}.")
            if rest and isinstance(params.get(owner, self.__dict__.get(owner)), FrozenParams):
                inner[owner][rest] = value
            else:
                outer[name] = value
        super().set_params(**outer)  # type: ignore[misc]
        for owner, changes in inner.items():
            setattr(self, owner, self.__dict__[owner].with_params(**changes))
        return self
