"""Where a field is read: on the processor by compiled code, or on another device by torch.

Searches for neighbours stay on the processor. Networks and sparse products go to the device, some queries at a
time; results come back as arrays.
"""

import os
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._files import as_path
from manifoldrf._runtime import filtered
from manifoldrf._validation import POSITIVE, FloatArray, check_integer, check_option, check_real, reject
from manifoldrf.fields.data import AbstractField

__all__ = ["MlpOptions", "TrainingInfo"]


DEVICES = ("auto", "cpu", "cuda")
_ENTRIES_AT_ONCE = 2**22  # of a product, if it has no zeros: 64 MB with the columns, and as much again for the work


def pick_device(device: str) -> str:
    """The device asked for; "cuda" where there is none is an error."""
    import torch

    found = torch.cuda.is_available()
    if device == "cuda" and not found:
        reject("device", "'cpu' or 'auto' on a machine without CUDA", "'cuda'")
    return "cuda" if found and device != "cpu" else "cpu"


def check_device(device: Any) -> None:
    """Raise where a device is no word for one, or not there."""
    if check_option(device, "device", DEVICES) == "cuda":
        pick_device(device)


def read_field(
    field: AbstractField, queries: FloatArray, n_jobs: int, device: str, *, as_sparse: bool = False
) -> Any:
    """Values of a field, read on the device asked for.

    "auto" looks for another device for networks only: for other fields loading torch alone takes longer than most
    calls.
    """
    wanted = check_option(device, "device", DEVICES)
    looks = wanted == "cuda" or (wanted == "auto" and field.is_network)
    chosen = pick_device(wanted) if looks else "cpu"
    if chosen == "cpu":
        return field.sparse_values(queries, n_jobs) if as_sparse else field.values(queries, n_jobs)
    found = field.values_on(chosen, queries, n_jobs)
    return sparse.csr_array(found) if as_sparse and not sparse.issparse(found) else found


def sparse_product(left: Any, right: Any, device: str) -> Any:
    """Product of two CSR arrays on a device, as a CSR array with sorted columns; some rows at a time."""
    size = max(1, _ENTRIES_AT_ONCE // max(1, right.shape[1]))
    table = csr_tensor(right, device)
    parts = []
    for start in range(0, left.shape[0], size):
        found = csr_tensor(left[start : start + size], device) @ table
        names = ("values", "col_indices", "crow_indices")
        data, columns, ends = (getattr(found, name)().cpu().numpy() for name in names)
        parts.append(sparse.csr_array((data, columns, ends), shape=tuple(found.shape)))
        parts[-1].sort_indices()
    if not parts:
        return sparse.csr_array((0, right.shape[1]))
    return parts[0] if len(parts) == 1 else sparse.vstack(parts, format="csr")


def csr_tensor(rows: Any, device: Any, dtype: Any = None) -> Any:
    """A CSR array as a tensor on a device, of its own precision or another."""
    import torch

    with filtered("ignore", "Sparse", UserWarning):  # only products are taken, which all have had since 1.13
        return torch.sparse_csr_tensor(
            torch.as_tensor(rows.indptr.astype(np.int64), device=device),
            torch.as_tensor(rows.indices.astype(np.int64), device=device),
            torch.as_tensor(rows.data, device=device),
            size=rows.shape,
            dtype=dtype,
            device=device,
        )


NETWORKS = ("log", "paper")
LOSSES = ("relative", "l2", "weighted")
SCHEDULES = ("constant", "one-cycle")

# What the options are where they are left out, by network. The paper's: its appendix. Those of "log" were not
# compared with others: kernel errors of .008 to .019 on the four surfaces, 4000 nodes, one seed. Smaller batches
# than the paper's take more steps in an epoch.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "paper": {
        "loss": "relative",
        "schedule": "constant",
        "epochs": 1000,
        "batch": 32_768,
        "learning_rate": 1e-3,
    },
    "log": {"loss": "weighted", "schedule": "one-cycle", "epochs": 60, "batch": 4096, "learning_rate": 1e-2},
}


@dataclass(frozen=True)
class MlpOptions:
    """Options of :func:`fit_mlp`; what is None follows from the network.

    Examples
    --------
    >>> from manifoldrf.fields.options import MlpOptions
    >>> MlpOptions(network="paper").epochs, MlpOptions().epochs
    (1000, 60)
    """

    network: str = "log"  # or "paper": three layers on (x, w, d(x, w)), exactly as published
    loss: str | None = None  # "relative", the paper's; "l2", plain squares; "weighted", (g - y)^2 / (y + 1)
    epochs: int | None = None  # at most: 1000, the paper's; 60 for "log"
    batch: int | None = None  # pairs in a step
    learning_rate: float | None = None  # the largest of a schedule
    schedule: str | None = None  # "constant", the paper's; "one-cycle", up and down again
    patience: int | None = None  # epochs without a lower validation loss before training stops; None: it does not
    checkpoint: str | os.PathLike[str] | None = None  # a file that training goes on from when it was interrupted
    device: str = "auto"  # "cpu", "cuda"; "auto" takes "cuda" where there is one
    hidden: int = 128  # the paper's

    def __post_init__(self) -> None:
        check_option(self.network, "network", NETWORKS)
        for name, value in _DEFAULTS[self.network].items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        check_option(self.loss, "loss", LOSSES)
        check_option(self.schedule, "schedule", SCHEDULES)
        check_option(self.device, "device", DEVICES)
        check_real(self.learning_rate, "learning_rate", POSITIVE)
        for name in ("epochs", "batch", "hidden", "patience"):
            value = getattr(self, name)
            if value is not None:  # kept as an int: an integer of numpy is none to `isinstance`
                object.__setattr__(self, name, check_integer(value, name, 1))
        if self.checkpoint is not None:
            as_path(self.checkpoint, "checkpoint")


@dataclass(frozen=True)
class TrainingInfo:
    """What happened in training; figures over the kept pairs of the held-out starts, in the paper's unit.

    Attributes
    ----------
    epochs : int
        How many were run; the weights are those of the epoch with the lowest validation loss.
    stopped_by : str
        "epochs" or "patience".
    best_epoch : int
        Counted from 1.
    train_loss, validation_loss : tuple of float
        After every epoch.
    validation_r2 : float
        1 - squared errors / squared deviations from the mean.
    validation_re : float
        Mean of |g - y| / max(y, 0.1).
    validation_mse : float
    n_train, n_validation : int
        Numbers of pairs.
    seconds : float

    Examples
    --------
    >>> from manifoldrf.fields.options import TrainingInfo
    >>> TrainingInfo(1, "epochs", 1, (2.0,), (2.1,), 0.9, 0.3, 4.0, 800, 200, 0.1).stopped_by
    'epochs'
    """

    epochs: int
    stopped_by: str
    best_epoch: int
    train_loss: tuple[float, ...] = field(repr=False)
    validation_loss: tuple[float, ...] = field(repr=False)
    validation_r2: float
    validation_re: float
    validation_mse: float
    n_train: int
    n_validation: int
    seconds: float
