"""Old names of :mod:`manifoldrf.paper.network`, until fits use the new ones."""

from typing import Any

from manifoldrf.paper.network import Network, TrainingInfo

__all__ = ["MlpOptions", "TrainingInfo"]


class MlpOptions:
    """Makes the options of the paper's network; ``hidden`` may be the size of both layers."""

    __dataclass_fields__ = {**Network.__dataclass_fields__, "network": None}  # noqa: RUF012

    def __new__(cls, network: str = "paper", hidden: Any = 128, **options: Any) -> Any:
        """The options."""
        del network
        return Network(hidden=(hidden, hidden) if isinstance(hidden, int) else hidden, **options)
