"""Progress of an experiment that goes over its surfaces twice: quick models first, then networks."""

from collections.abc import Callable
from typing import Any

from manifoldrf.signatures.engines import Progress, silent

# Units of time, as measured at both sizes: a round of quick models, all but the training of a network, a training.
_QUICK, _BESIDE, _TRAINING = 10, 15, 90
_PAPER = 1000 * 1000 * 4000  # epochs, starts and nodes of that training


class Rounds:
    """Progress of one surface among several.

    Parameters
    ----------
    config : Config
        Of the surfaces: how long a network is trained, and so which share of the whole the second round is.
    progress : callable (what, done, total)
    place, count : int
        Which surface of how many this is.
    """

    def __init__(self, config: Any, progress: Progress = silent, place: int = 0, count: int = 1) -> None:
        self._progress, self._place, self._count = progress, place, count
        training = round(_TRAINING * config.epochs * config.n_starts * config.n_nodes / _PAPER)
        self._second = _BESIDE + training
        self._trained = (_BESIDE / 2 + training) / self._second  # walks included; then kernels are compared

    def first(self, text: str) -> None:
        """Say what is done in the first round."""
        self._tell(text, _QUICK * self._place)

    def comparing(self, text: str) -> None:
        """Say what is done in the second round after the training."""
        self._tell_second(text, self._trained)

    def training(self, name: str) -> Callable[[str, int, int], None]:
        """Progress of a fit, most of which is training."""
        share = 0.0

        def tell(what: str, done: int, total: int) -> None:
            nonlocal share
            if what == "training epochs":  # other stages come before and after
                share = done / max(total, 1)
            self._tell_second(f"{name}: {what} {done} of {total}", self._trained * share)

        return tell

    def _tell_second(self, text: str, share: float) -> None:
        self._tell(text, _QUICK * self._count + round(self._second * (self._place + share)))

    def _tell(self, text: str, done: int) -> None:
        self._progress(text, done, (_QUICK + self._second) * self._count)
