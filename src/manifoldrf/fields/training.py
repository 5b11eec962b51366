"""Training of the network: its options, the pairs it is trained on, and checkpoints."""

import dataclasses
import functools
import hashlib
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from manifoldrf._codec import ModelFileError, read_container, write_container
from manifoldrf._files import as_path
from manifoldrf._random import Streams
from manifoldrf._runtime import Progress, SharedLimit, require, thread_pool
from manifoldrf._validation import POSITIVE, FloatArray, IntArray, check_integer, check_option, check_real, reject
from manifoldrf.fields.data import DEVICES, FieldData, pick_device
from manifoldrf.fields.geodesics import GraphDistances
from manifoldrf.fields.network import (
    TOP,
    Floats,
    Frame,
    finish,
    joint_inputs,
    n_inputs,
    start_weights,
    upper_layers,
)
from manifoldrf.metrics import errors_of

__all__ = ["MlpOptions", "TrainingInfo"]

NETWORKS = ("log", "paper")
LOSSES = ("relative", "l2", "weighted")
SCHEDULES = ("constant", "one-cycle")

# Default options by network. Those of "paper" are from its appendix. Those of "log" were not tuned: kernel errors
# are .008 to .019 on the four surfaces, with 4000 nodes and one seed. Smaller batches mean more steps in an epoch.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "paper": {"loss": "relative", "schedule": "constant", "epochs": 1000, "batch": 32_768, "learning_rate": 1e-3},
    "log": {"loss": "weighted", "schedule": "one-cycle", "epochs": 60, "batch": 4096, "learning_rate": 1e-2},
}

# The paper trains on all pairs from this value on, in its unit, and on a share of the smaller ones, zeros included.
SMALL = 0.1
SMALL_SHARE = 0.025
_HELD_OUT = 0.2  # share of the starts
_STARTS_AT_ONCE = 256
_ROWS_AT_ONCE = 1024  # in a forward and backward pass: layers of half a MB stay in the cache of one core
_PAIRS_AT_ONCE = 65_536  # whose inputs are computed together
_EPOCHS_BETWEEN = 10  # checkpoints
# The rate climbs from a tenth of its peak during this share of the steps, then falls to a thousandth on a cosine.
_CLIMB = 0.15
_FIRST, _LAST = 0.1, 1e-3
_KIND = "checkpoint"  # kind of a checkpoint file


@dataclass(frozen=True)
class MlpOptions:
    """Options of :func:`fit_mlp`; None stands for the default of the network.

    Examples
    --------
    >>> from manifoldrf.fields.training import MlpOptions
    >>> MlpOptions(network="paper").epochs, MlpOptions().epochs
    (1000, 60)
    """

    network: str = "log"  # or "paper": three layers on (x, w, d(x, w)), exactly as published
    loss: str | None = None  # "relative", the paper's; "l2", plain squares; "weighted", (g - y)^2 / (y + 1)
    epochs: int | None = None  # at most: 1000, the paper's; 60 for "log"
    batch: int | None = None  # pairs in a step
    learning_rate: float | None = None  # the largest of a schedule
    schedule: str | None = None  # "constant", the paper's; "one-cycle", up and down again
    patience: int | None = None  # epochs without a lower validation loss before training stops; None: no early stop
    checkpoint: str | os.PathLike[str] | None = None  # file from which an interrupted training is resumed
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
            if value is not None:  # stored as an int: numpy integers are not instances of int
                object.__setattr__(self, name, check_integer(value, name, 1))
        if self.checkpoint is not None:
            as_path(self.checkpoint, "checkpoint")


@dataclass(frozen=True)
class TrainingInfo:
    """Record of a training; errors are those of pairs of held-out starts, in the paper's unit.

    Attributes
    ----------
    epochs : int
        Number of epochs; the weights are those of the epoch with the lowest validation loss.
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
    >>> from manifoldrf.fields.training import TrainingInfo
    >>> TrainingInfo(1, "epochs", 1, (2.0,), (2.1,), 0.9, 0.3, 4.0, 800, 200, 0.1).stopped_by
    'epochs'
    """

    epochs: int
    stopped_by: str
    best_epoch: int
    train_loss: tuple[float, ...] = dataclasses.field(repr=False)
    validation_loss: tuple[float, ...] = dataclasses.field(repr=False)
    validation_r2: float
    validation_re: float
    validation_mse: float
    n_train: int
    n_validation: int
    seconds: float


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs with their targets.

    Attributes
    ----------
    rows, columns : int array of shape (n,)
        Positions among the starts and the anchors.
    paths : float32 array of shape (n,)
        d(x, w) along the graph.
    targets : float32 array of shape (n,)
        In the network's unit.
    factors : float32 array of shape (n,)
        Factors from predictions to signatures in the paper's unit.
    """

    rows: IntArray
    columns: IntArray
    paths: Floats
    targets: Floats
    factors: Floats

    def subset(self, mask: NDArray[np.bool_]) -> "Pairs":
        """The pairs of the mask, in the same order."""
        return Pairs(self.rows[mask], self.columns[mask], self.paths[mask], self.targets[mask], self.factors[mask])


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The data of a training.

    Attributes
    ----------
    network : str
    frame : Frame
    starts : float32 array of shape (s, d')
        Inputs of the starts.
    anchors : float32 array of shape (m, d')
    train, validation : Pairs
        Of different starts.
    """

    network: str
    frame: Frame
    starts: Floats
    anchors: Floats
    train: Pairs
    validation: Pairs


def paper_unit(data: FieldData) -> float:
    """Factor from raw signatures to the paper's unit.

    A series without a term f_0 has no such unit, and all its values may be below the paper's threshold. Its largest
    value is then scaled to that of the paper's surfaces.
    """
    largest = float(_raw(data).max()) if data.values.nnz else 0.0
    if largest <= 0:
        reject("data", "positive somewhere", "values that are all zero")
    return data.unit if largest * data.unit >= 1 else TOP / largest


def network_scale(data: FieldData, network: str, unit: float) -> float:
    """Factor from the field to the network's unit: from signatures for "paper", from h for "log"."""
    return unit if network == "paper" else TOP / float(data.values.data.max())


def make_training_data(
    data: FieldData, distances: GraphDistances, frame: Frame, network: str, streams: Streams
) -> TrainingData:
    """Choose the pairs and the starts that are held out."""
    n = len(data.starts)
    if n < 2:
        reject("data", "known at 2 starts or more, because some are held out", f"{n} start")
    order = streams.generator("held-out starts").permutation(n)
    held_out = np.zeros(n, dtype=bool)
    held_out[order[: max(1, round(_HELD_OUT * n))]] = True
    pairs = _choose(data, distances, network, streams.generator("pairs"))
    inputs = [frame.coordinates(np, data.points[nodes]).astype(np.float32) for nodes in (data.starts, data.anchors)]
    inside = held_out[pairs.rows]
    if inside.all() or not inside.any():
        reject("data", "positive at enough starts to hold some out", f"{n} starts with {len(inside)} pairs")
    return TrainingData(network, frame, inputs[0], inputs[1], pairs.subset(~inside), pairs.subset(inside))


def _choose(data: FieldData, distances: GraphDistances, network: str, rng: np.random.Generator) -> Pairs:
    """Choose all large values and a share of the others, a block of starts at a time."""
    unit = paper_unit(data)
    scale = network_scale(data, network, unit)
    roots = np.sqrt(data.measure)
    parts = []
    for first in range(0, len(data.starts), _STARTS_AT_ONCE):
        nodes = data.starts[first : first + _STARTS_AT_ONCE]
        values = data.values[first : first + _STARTS_AT_ONCE].toarray()  # (b, m)
        factors = np.outer(roots[nodes], roots[data.anchors])
        raw = values * factors * unit
        keep = (raw >= SMALL) | (rng.random(raw.shape) < SMALL_SHARE)
        rows, columns = np.nonzero(keep)
        paths = distances.at(data.points[nodes])[keep]
        target = raw[keep] if network == "paper" else scale * values[keep]
        factor = np.ones(len(rows)) if network == "paper" else factors[keep] * (unit / scale)
        parts.append((rows + first, columns, paths, target.astype(np.float32), factor.astype(np.float32)))
    return Pairs(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _raw(data: FieldData) -> FloatArray:
    """The stored entries of the signatures: h times the roots of the measure."""
    entries = data.values.tocoo()
    roots = np.sqrt(data.measure)
    result: FloatArray = entries.data * roots[data.starts[entries.row]] * roots[data.anchors[entries.col]]
    return result


@dataclass
class _State:
    """The state that changes during training."""

    weights: list[Any]
    optimizer: Any
    best: list[Floats]
    best_epoch: int = 0
    train_loss: list[float] = dataclasses.field(default_factory=list)
    validation_loss: list[float] = dataclasses.field(default_factory=list)
    seconds: float = 0.0

    @property
    def epoch(self) -> int:
        return len(self.train_loss)


# Applies a function to the parts of a batch and returns the results in their order.
_Map = Callable[[Callable[[Any], Any], Any], Any]


def train(
    dataset: TrainingData, options: MlpOptions, streams: Streams, progress: Progress, n_jobs: int = 1
) -> tuple[list[Floats], TrainingInfo]:
    """Train, and return the best weights and the record of the training."""
    device = pick_device(options.device)
    state = _begin(dataset, options, streams, device)
    fingerprint = "" if options.checkpoint is None else _fingerprint(dataset, options, streams)
    path = None if options.checkpoint is None else Path(options.checkpoint)
    if path is not None and not path.resolve().parent.is_dir():
        reject("checkpoint", "in a folder that exists", path, FileNotFoundError)
    if path is not None and path.exists():
        _restore(state, path, fingerprint, device)
    data = {name: _Tensors(dataset, getattr(dataset, name), device) for name in ("train", "validation")}
    total = int(options.epochs or 0)
    with _threads(n_jobs, device) as each:
        epoch = _Epoch(dataset, options, data["train"], data["validation"], each)
        while state.epoch < total and not _should_stop(state, options):
            progress("training epochs", state.epoch, total)
            began = time.perf_counter()
            epoch.run(state, streams.generator(f"order of epoch {state.epoch}"))
            state.seconds += time.perf_counter() - began
            last = state.epoch == total or _should_stop(state, options)
            if path is not None and (last or state.epoch % _EPOCHS_BETWEEN == 0):
                _save(state, path, fingerprint, streams)
        progress("training epochs", total, total)
        return state.best, _report(state, epoch)


@contextmanager
def _threads(n_jobs: int, device: str) -> Iterator[_Map]:
    """Use one thread per part instead of torch's threads, which wait for each other in every product.

    On a busy machine this waiting made trainings thirty times slower. A new thread applies torch's limit only after
    it has queried the limit. Otherwise its first product uses two threads and gives other bits.
    """
    limit, query = _torch_limit(os.getpid()), _torch().get_num_threads
    if n_jobs == 1 or device != "cpu":
        with limit.held():
            query()
            yield map
    else:
        with limit.held(), thread_pool(n_jobs, query) as pool:
            yield pool.map


@functools.cache
def _torch_limit(process: int) -> SharedLimit:
    """One torch thread for the whole process, until the last of overlapping trainings has ended."""
    del process  # a forked process has no training yet

    def change() -> Callable[[], None]:
        torch = _torch()
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        return functools.partial(torch.set_num_threads, before)

    return SharedLimit(change)


def saved_streams(checkpoint: Any) -> Streams | None:
    """Streams of an existing checkpoint, with which a training without a seed is resumed."""
    if checkpoint is None or not Path(checkpoint).exists():
        return None
    path = Path(checkpoint)
    try:
        return Streams(bytes.fromhex(_read(path)[1]["root"]))
    except ValueError as error:
        if str(path) in str(error):
            raise
        reject("checkpoint", "a checkpoint of this training, or a new name", f"{path}, whose streams are damaged")


class _Tensors:
    """Inputs and targets of all pairs on the device."""

    def __init__(self, dataset: TrainingData, pairs: Pairs, device: str) -> None:
        torch = _torch()
        n, dim = len(pairs.rows), dataset.starts.shape[1]
        inputs = np.zeros((n, n_inputs(dataset.network, dataset.frame, dim)), dtype=np.float32)
        squared = np.zeros(n, dtype=np.float32)
        for start in range(0, n, _PAIRS_AT_ONCE):
            part = slice(start, start + _PAIRS_AT_ONCE)
            ends = (dataset.starts[pairs.rows[part]], dataset.anchors[pairs.columns[part]], pairs.paths[part])
            inputs[part], found = joint_inputs(np, dataset.network, dataset.frame, ends)
            squared[part] = 0.0 if found is None else found
        self.inputs = torch.as_tensor(inputs, device=device)
        self.squared = torch.as_tensor(squared, device=device)
        self.targets = torch.as_tensor(pairs.targets, device=device)
        self.factors = torch.as_tensor(pairs.factors, device=device)

    def __len__(self) -> int:
        return len(self.targets)

    def values(self, network: str, weights: Any, part: Any) -> Any:
        """Predictions for some pairs."""
        torch = _torch()
        hidden = torch.addmm(weights[1], self.inputs[part], weights[0])
        return upper_layers(torch, network, weights, hidden, self.squared[part])


def _begin(dataset: TrainingData, options: MlpOptions, streams: Streams, device: str) -> _State:
    torch = _torch()
    n_first = n_inputs(options.network, dataset.frame, dataset.starts.shape[1])
    first = start_weights(options.network, n_first, options.hidden, streams.generator("first weights"))
    weights = [torch.tensor(array, device=device, requires_grad=True) for array in first]
    optimizer = torch.optim.Adam(weights, lr=float(options.learning_rate or 0), fused=True)
    return _State(weights, optimizer, first)


@dataclass(frozen=True, eq=False)
class _Epoch:
    """One pass over the pairs in a new order, then the loss at the held-out starts."""

    dataset: TrainingData
    options: MlpOptions
    train: _Tensors
    validation: _Tensors
    each: _Map

    def run(self, state: _State, rng: np.random.Generator) -> None:
        """Train for one epoch, and update the state."""
        torch = _torch()
        batch = int(self.options.batch or 0)
        order = torch.as_tensor(rng.permutation(len(self.train)), device=self.train.targets.device)
        steps = math.ceil(len(self.train) / batch)
        total = 0.0
        for step in range(steps):
            _set_rate(state.optimizer, self.options, state.epoch + step / steps)
            total += self._step(state, order[step * batch : (step + 1) * batch])
        state.train_loss.append(total / len(self.train))
        losses = self._losses(self.predictions(state.weights), self.validation.targets)
        state.validation_loss.append(float(losses.mean()))
        if not math.isfinite(state.train_loss[-1]):
            reject("learning_rate", "smaller: the training diverged", self.options.learning_rate)
        if state.best_epoch == 0 or state.validation_loss[-1] < state.validation_loss[state.best_epoch - 1]:
            state.best_epoch = state.epoch
            state.best = [weight.detach().cpu().numpy().copy() for weight in state.weights]

    def _step(self, state: _State, chosen: Any) -> float:
        """One step of Adam on the mean loss of a batch, with gradients summed over parts; return the total loss."""
        weights = state.weights

        def gradient(part: Any) -> tuple[Any, Any]:
            return self._gradient(weights, part, len(chosen))

        losses, gradients = zip(*self.each(gradient, chosen.split(self._part)), strict=True)
        for weight, parts in zip(weights, zip(*gradients, strict=True), strict=True):
            weight.grad = sum(parts)
        state.optimizer.step()
        return float(sum(losses))

    def _gradient(self, weights: Any, part: Any, n: int) -> tuple[Any, Any]:
        """Total loss of some pairs, and the gradient of that loss over ``n``.

        The layers are differentiated by hand, with layers overwritten as soon as they are no longer needed, which
        takes less time than autograd and gives the same bits. Matrix products are then about 70 % of the training
        (torch.profiler, one thread).
        """
        torch, data = _torch(), self.train
        first, bias, second, second_bias, last, ends = weights
        mask = torch.ops.aten.threshold_backward.grad_input  # zero where the unit is inactive
        with torch.no_grad():  # a setting of the current thread
            inputs = data.inputs[part]
            lower = torch.addmm(bias, inputs, first).relu_()
            upper = torch.addmm(second_bias, lower, second).relu_()
            top = torch.mv(upper, last[:, 0]).requires_grad_()
            with torch.enable_grad():
                values = finish(torch, self.dataset.network, ends, top, data.squared[part])
                loss = self._losses(values, data.targets[part]).sum()
                of_top, of_ends = torch.autograd.grad(loss / n, (top, ends))
            of_last = torch.mv(upper.T, of_top)[:, None]
            of_upper = torch.outer(of_top, last[:, 0])
            mask(of_upper, upper, 0, grad_input=of_upper)
            of_second = lower.T @ of_upper
            of_lower = torch.mm(of_upper, second.T, out=upper)
            mask(of_lower, lower, 0, grad_input=of_lower)
            of_first = inputs.T @ of_lower
            return loss.detach(), (of_first, of_lower.sum(0), of_second, of_upper.sum(0), of_last, of_ends)

    def predictions(self, weights: Any) -> Any:
        """Values of all validation pairs."""
        torch, data = _torch(), self.validation

        def predict(part: Any) -> Any:
            with torch.no_grad():  # a setting of the current thread
                return data.values(self.dataset.network, weights, part)

        parts = torch.arange(len(data), device=data.targets.device).split(self._part)
        return torch.cat(list(self.each(predict, parts)))

    @property
    def _part(self) -> int:
        """Rows per part; on other devices than the CPU the whole batch."""
        return _ROWS_AT_ONCE if self.train.targets.device.type == "cpu" else int(self.options.batch or 0)

    def _losses(self, values: Any, targets: Any) -> Any:
        return _losses(self.options.loss, values, targets)


def _losses(kind: str | None, values: Any, targets: Any) -> Any:
    """Loss of every pair."""
    if kind == "relative":
        return (values - targets).abs() / targets.clamp_min(SMALL)
    squares = (values - targets) ** 2
    # The noise of an estimate from walks grows like the square root of its value.
    return squares if kind == "l2" else squares / (targets + 1)


def _set_rate(optimizer: Any, options: MlpOptions, epoch: float) -> None:
    """Set the learning rate at a time given in epochs."""
    rate = float(options.learning_rate or 0)
    if options.schedule == "one-cycle":
        share = epoch / float(options.epochs or 1)
        if share < _CLIMB:
            rate *= _FIRST + (1 - _FIRST) * share / _CLIMB
        else:
            fall = 0.5 * (1 + math.cos(math.pi * (share - _CLIMB) / (1 - _CLIMB)))
            rate *= _LAST + (1 - _LAST) * fall
    for group in optimizer.param_groups:
        group["lr"] = rate


def _should_stop(state: _State, options: MlpOptions) -> bool:
    """Whether the validation loss has not fallen for too long."""
    return options.patience is not None and state.epoch - state.best_epoch >= options.patience


def _report(state: _State, epoch: _Epoch) -> TrainingInfo:
    """Record of the training, with the errors of the best weights at held-out starts."""
    torch, data = _torch(), epoch.validation
    weights = [torch.as_tensor(array, device=data.targets.device) for array in state.best]
    factors = data.factors.double()
    found = epoch.predictions(weights).clamp_min(0).double() * factors
    truth = data.targets.double() * factors
    errors = errors_of(found.cpu().numpy()[:, None], truth.cpu().numpy()[:, None], clamp=SMALL)
    return TrainingInfo(
        epochs=state.epoch,
        stopped_by="epochs" if state.epoch == epoch.options.epochs else "patience",
        best_epoch=state.best_epoch,
        train_loss=tuple(state.train_loss),
        validation_loss=tuple(state.validation_loss),
        validation_r2=errors.r2,
        validation_re=errors.mean_re,
        validation_mse=errors.mse,
        n_train=len(epoch.train),
        n_validation=len(data),
        seconds=state.seconds,
    )


def _fingerprint(dataset: TrainingData, options: MlpOptions, streams: Streams) -> str:
    """Hash of everything that determines the weights: data, options and seed."""
    digest = hashlib.blake2b(streams.root, digest_size=16)
    settings = {name: value for name, value in vars(options).items() if name not in ("checkpoint", "device")}
    digest.update(repr(sorted(settings.items())).encode())
    for owner in (dataset.frame, dataset.train, dataset.validation, dataset):
        for name, value in sorted(vars(owner).items()):
            if isinstance(value, np.ndarray):
                digest.update(
                    f"{name} {value.dtype} {value.shape}".encode() + np.ascontiguousarray(value).tobytes()
                )
            elif isinstance(value, str | float | None):
                digest.update(f"{name} {value!r}".encode())
    return digest.hexdigest()


def _save(state: _State, path: Path, fingerprint: str, streams: Streams) -> None:
    """Write the complete state; an interrupted write leaves the previous file."""
    arrays: dict[str, NDArray[Any]] = {
        "train_loss": np.array(state.train_loss),
        "validation_loss": np.array(state.validation_loss),
        "seconds": np.array([state.seconds]),
        "best_epoch": np.array([state.best_epoch]),
    }
    for i, weight in enumerate(state.weights):
        arrays[f"weight.{i}"] = weight.detach().cpu().numpy()
        arrays[f"best.{i}"] = state.best[i]
        for name, value in state.optimizer.state[weight].items():
            arrays[f"adam.{i}.{name}"] = value.detach().cpu().numpy()
    meta = {"kind": _KIND, "fingerprint": fingerprint, "root": streams.root.hex()}
    write_container(path, arrays, meta)


def _read(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Read arrays and metadata of a checkpoint, or raise a clear error."""
    try:
        arrays, meta = read_container(path)
    except (ModelFileError, OSError) as error:
        reject("checkpoint", f"a checkpoint that can be read ({str(error).rstrip('.')})", path)
    if meta.get("kind") != _KIND or not all(isinstance(meta.get(name), str) for name in ("fingerprint", "root")):
        reject("checkpoint", "a checkpoint of this training, or a new name", f"{path}, a file of another kind")
    return arrays, meta


def _restore(state: _State, path: Path, fingerprint: str, device: str) -> None:
    """Restore the state from a checkpoint."""
    arrays, metadata = _read(path)
    if metadata["fingerprint"] != fingerprint:
        reject("checkpoint", "of the same data, options and seed, or a new name", f"{path}, of another training")
    torch = _torch()
    try:
        _check_shapes(state, arrays)
        with torch.no_grad():
            for i, weight in enumerate(state.weights):
                weight.copy_(torch.as_tensor(arrays[f"weight.{i}"], device=device))
                state.optimizer.state[weight] = {
                    name: torch.as_tensor(arrays[f"adam.{i}.{name}"], device=device)
                    for name in ("step", "exp_avg", "exp_avg_sq")
                }
        state.best = [arrays[f"best.{i}"] for i in range(len(state.weights))]
        state.train_loss = arrays["train_loss"].tolist()
        state.validation_loss = arrays["validation_loss"].tolist()
        state.best_epoch, state.seconds = int(arrays["best_epoch"][0]), float(arrays["seconds"][0])
    except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
        reject("checkpoint", f"a complete checkpoint ({error})", path)


def _check_shapes(state: _State, arrays: dict[str, NDArray[Any]]) -> None:
    """Raise if an array has another shape than the one it replaces, which torch would broadcast."""
    for i, weight in enumerate(state.weights):
        for name in ("weight", "best", "adam.exp_avg", "adam.exp_avg_sq"):
            first, _, rest = name.partition(".")
            key = f"{first}.{i}.{rest}" if rest else f"{first}.{i}"
            if arrays[key].shape != tuple(weight.shape) or arrays[key].dtype != np.float32:
                raise ValueError(f"{key} has another shape or dtype")
    for name in ("train_loss", "validation_loss", "seconds", "best_epoch"):
        if arrays[name].ndim != 1:
            raise ValueError(f"{name} is not a vector")
    if not len(arrays["train_loss"]) == len(arrays["validation_loss"]) >= int(arrays["best_epoch"][0]) >= 0:
        raise ValueError("its numbers of epochs differ")


def _torch() -> Any:
    return require("torch", "torch")
