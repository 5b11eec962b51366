"""Parameters of frozen objects, by name: read as in scikit-learn, changed by making another object."""

import dataclasses
from typing import Any, Self

from manifoldrf._validation import Interval, check_real


class FrozenParams:
    """A frozen dataclass whose parameters are read by ``get_params`` and exchanged by ``with_params``."""

    def _keep_real(self, name: str, interval: Interval) -> float:
        """Check a number and keep it as a float: fractions and single precision would go wrong later."""
        value = check_real(getattr(self, name), name, interval)
        object.__setattr__(self, name, value)
        return value

    def __sklearn_clone__(self) -> Self:
        # What never changes need not be copied.
        return self

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: FBT001, FBT002  (scikit-learn's signature)
        """Parameters by name; those of parts as ``part__name``, as in scikit-learn."""
        params = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}  # type: ignore[arg-type]
        for name, value in list(params.items()) if deep else []:
            if isinstance(value, FrozenParams):
                params |= {f"{name}__{inner}": part for inner, part in value.get_params().items()}
        return params

    def with_params(self, **changes: Any) -> Self:
        """Return a copy with other parameters, by the names of :meth:`get_params`; the kernel itself never changes.

        Examples
        --------
        >>> from manifoldrf import DiffusionKernel
        >>> DiffusionKernel(5.0).with_params(tau=7.0)
        DiffusionKernel(tau=7.0, normalized=True)
        """
        known = self.get_params()
        for name in changes:
            if name not in known:
                raise ValueError(
                    f"{type(self).__name__} has no parameter `{name}`; it has {', '.join(known) or 'none'}."
                )
        own = {name: value for name, value in changes.items() if "__" not in name}
        parts: dict[str, dict[str, Any]] = {}
        for name, value in changes.items():
            if name not in own:
                part, _, rest = name.partition("__")
                parts.setdefault(part, {})[rest] = value
        for part, inner in parts.items():
            own[part] = own.get(part, known[part]).with_params(**inner)
        return dataclasses.replace(self, **own)  # type: ignore[type-var]
