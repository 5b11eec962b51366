"""The paper's field: a small network g(x, w, d(x, w)) that is trained on signatures.

Training needs torch; a trained :class:`NetworkField` consists of arrays and is evaluated by numpy.
"""

import copy
import dataclasses
import hashlib
import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from scipy import sparse

from manifoldrf._codec import stored
from manifoldrf._files import atomic_path, output_file
from manifoldrf._random import SeedLike, Streams
from manifoldrf._runtime import Progress, SharedLimit, one_blas_thread, quick_map, require, silent
from manifoldrf._validation import (
    POSITIVE,
    FloatArray,
    IntArray,
    Interval,
    check_integer,
    check_jobs,
    check_option,
    check_points,
    check_real,
    reject,
)
from manifoldrf.geometry.csr import check_arrays, check_numbers, check_shape
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.neighbors import NeighborSearch
from manifoldrf.kernels.abstract_kernel import FrozenParams

Floats = NDArray[np.float32]


@stored
@dataclass(frozen=True)
class Network(FrozenParams):
    """The paper's network as a field; the defaults are those of the recorded results on its four surfaces.

    Examples
    --------
    >>> from manifoldrf import Network
    >>> Network(epochs=20).with_params(patience=None)
    Network(epochs=20, batch=1024, patience=None, learning_rate=0.001, hidden=(128, 128), n_starts=1000, ...
    """

    epochs: int = 1000  # at most; the paper's number
    # The paper states a batch only for meshes, 32,768. With that size, training takes far fewer steps, and errors
    # of the kernel on the torus and the strip were two to three times as large.
    batch: int = 1024
    patience: int | None = 100  # epochs without a lower validation loss before training stops; None: never
    learning_rate: float = 1e-3  # of Adam; the paper's, as are all values below
    hidden: tuple[int, ...] = (128, 128)
    n_starts: int = 1000  # nodes whose signatures it is trained on
    loss: str = "relative"  # |g - y| / max(y, threshold), or "l2", (g - y)^2
    threshold: float = 0.1  # training uses all pairs with at least this value, in the unit of exp(tau W),
    small_share: float = 0.025  # and this share of the others
    device: str = "auto"  # of the training: "cpu", "cuda"; "auto" takes "cuda" if there is one
    checkpoint: str | os.PathLike[str] | None = None  # file from which an interrupted training is resumed

    def __post_init__(self) -> None:
        for name, least in (("epochs", 1), ("batch", 1), ("n_starts", 2), ("patience", 1)):
            if name != "patience" or self.patience is not None:
                object.__setattr__(self, name, check_integer(getattr(self, name), name, least))
        if not isinstance(self.hidden, tuple | list) or not self.hidden:
            reject("hidden", "a tuple with the size of each hidden layer", repr(self.hidden), TypeError)
        object.__setattr__(self, "hidden", tuple(check_integer(size, "hidden", 1) for size in self.hidden))
        self._keep_real("learning_rate", POSITIVE)
        self._keep_real("threshold", POSITIVE)
        self._keep_real("small_share", Interval(0.0, 1.0, low_open=True))
        check_option(self.loss, "loss", ("relative", "l2"))
        check_option(self.device, "device", ("auto", "cpu", "cuda"))
        if self.checkpoint is not None:
            output_file(self.checkpoint, "checkpoint")
            object.__setattr__(self, "checkpoint", os.fspath(self.checkpoint))


@stored
@dataclass(frozen=True)
class TrainingInfo:
    """Record of a training. Errors are measured on pairs of held-out starts, in the paper's unit.

    Attributes
    ----------
    epochs : int
    stopped_by : str
        "epochs" or "patience".
    best_epoch : int
        Counted from 1; the weights are those of this epoch, which has the lowest validation loss.
    train_loss, validation_loss : tuple of float
        After every epoch.
    validation_r2 : float
        1 - squared errors / squared deviations from the mean.
    validation_re : float
        Mean of |g - y| / max(y, threshold).
    validation_mse : float
    n_train, n_validation : int
        Numbers of pairs.
    seconds : float

    Examples
    --------
    >>> from manifoldrf.paper import TrainingInfo
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


# ------------------------------------------------------------------------------------------ distances along a graph
@stored
@dataclass(frozen=True, eq=False)
class GraphDistances:
    """d(z, w_l) = min over the 8 nodes x_j nearest to z of |z - x_j| + d(x_j, w_l), for every point z.

    Attributes
    ----------
    points : array of shape (n_nodes, d)
    paths : float32 array of shape (n_nodes, m)
        Lengths of the shortest paths from the nodes to the anchors; ``far`` if there is none.
    far : float
        Largest value, for unreachable anchors: twice the largest distance of reachable ones.
    metric : AbstractManifold, optional
        Manifold along which |z - x_j| is measured; straight lines by default.
    """

    points: FloatArray
    paths: Floats
    far: float
    metric: AbstractManifold | None = None

    def _check_loaded(self) -> None:
        check_points(self.points, "points")
        check_arrays(self, paths=(len(self.points), self.paths.shape[-1]))
        check_real(self.far, "far", POSITIVE)

    @cached_property
    def _search(self) -> NeighborSearch:
        return NeighborSearch(self.points, self.metric)

    def nearest(self, queries: FloatArray) -> tuple[Floats, IntArray]:
        """Distances to the nearest nodes, at most ``far``, and their positions, both (q, k)."""
        k = min(8, len(self.points))  # the paper's number of neighbours
        if self.metric is not None:
            steps, nodes = self._search.knn(queries, k)
        else:  # the exact tree: results of an approximate search depend on the other queries
            steps, nodes = self._search.tree.query(queries, k=k)
        steps, nodes = steps.reshape(len(queries), k), nodes.reshape(len(queries), k)
        return np.minimum(steps, self.far).astype(np.float32), nodes

    def through(self, steps: Floats, nodes: IntArray) -> Floats:
        """Distances of one query to all anchors from its nearest nodes, shape (m,)."""
        lengths: Floats = (self.paths[nodes] + steps[:, None]).min(axis=0)
        return np.minimum(lengths, np.float32(self.far), out=lengths)

    def at(self, queries: FloatArray) -> Floats:
        """d(z, w_l), float32 of shape (q, m)."""
        found = [self.through(*pair) for pair in zip(*self.nearest(queries), strict=True)]
        return np.array(found, dtype=np.float32).reshape(len(queries), self.paths.shape[1])


def graph_distances(graph: Graph, anchors: IntArray) -> GraphDistances:
    """Shortest paths from every node to the anchors."""
    paths = np.full((graph.n_nodes, len(anchors)), np.inf, dtype=np.float32)
    size = max(1, 2**22 // graph.n_nodes)  # anchors at a time; their paths are in double precision
    for start in range(0, len(anchors), size):
        part = slice(start, start + size)
        paths[:, part] = graph.shortest_paths(anchors[part]).T
    reached = np.isfinite(paths)
    far = 2 * float(paths[reached].max()) or 1.0  # anchors at least reach themselves
    paths[~reached] = far
    return GraphDistances(graph.positions, paths, far, graph.metric)


# -------------------------------------------------------------------------------------------------------- the field
@stored
@dataclass(frozen=True, eq=False)
class NetworkField:
    """Signatures Phi(z, w_l) by a trained network, made by :func:`fit_network`.

    The paper does not mention scaling of inputs. On the unit sphere they are plain coordinates and distances;
    otherwise they are scaled to about [-1, 1].

    Attributes
    ----------
    weights : tuple of float32 arrays
        Matrix (inputs, outputs) and bias of each layer.
    centre : array of shape (d',)
    unit : float
        Half the extent of the nodes, so that their inputs are in [-1, 1]; others are clipped to [-2, 2].
    anchors : float32 array of shape (m, d')
        Inputs of the anchors.
    distances : GraphDistances
        The last input of the network.
    scale : float
        Divisor of the outputs.
    largest : float
        Largest value; values are clipped.
    """

    weights: tuple[Floats, ...]
    centre: FloatArray
    unit: float
    anchors: Floats
    distances: GraphDistances
    scale: float
    largest: float

    def _check_loaded(self) -> None:
        d = len(self.centre)
        check_arrays(self, centre=(d,), anchors=(self.distances.paths.shape[1], d))
        for name in ("unit", "scale", "largest"):
            check_real(getattr(self, name), name, POSITIVE)
        matrices, biases = self.weights[::2], self.weights[1::2]
        if len(matrices) != len(biases):
            reject("weights", "a matrix and a bias for each layer", f"{len(self.weights)} arrays")
        sizes = [2 * d + 1, *(bias.shape[0] for bias in biases[:-1]), 1]
        for matrix, bias, (first, last) in zip(matrices, biases, pairwise(sizes), strict=True):
            check_shape("weights", matrix, (first, last))
            check_shape("weights", bias, (last,))
            check_numbers("weights", np.append(matrix, bias))

    @property
    def bounds(self) -> FloatArray:
        """Largest value that each column can take anywhere, shape (m,)."""
        return np.full(len(self.anchors), self.largest)

    def at_anchors(self, columns: IntArray) -> "NetworkField":
        """Return the same network for some of its anchors, given by their positions."""
        paths = np.ascontiguousarray(self.distances.paths[:, columns])
        distances = dataclasses.replace(self.distances, paths=paths)
        return dataclasses.replace(self, anchors=self.anchors[columns], distances=distances)

    def inputs(self, places: FloatArray) -> Floats:
        """Inputs of positions, shape (q, d'): finite for every finite position."""
        scaled = (_embedded(places, self.distances.metric) - self.centre) / self.unit
        return np.clip(scaled, -2.0, 2.0).astype(np.float32)

    @one_blas_thread()
    def values(self, queries: FloatArray, n_jobs: int = 1) -> FloatArray:
        """Dense, nonnegative values of shape (len(queries), m); a row depends neither on other rows nor on threads.

        The first layer is applied to points and anchors separately, then added. Each product takes one query and a
        fixed block of anchors: rounding depends on the shape, and a block stays in the cache.
        """
        places = check_points(queries, "queries", n_columns=self.distances.points.shape[1], min_rows=0)
        if self.distances.metric is not None:
            places = self.distances.metric.check(places, "queries")
        d = self.anchors.shape[1]
        first, bias, *rest = self.weights
        anchors = self.anchors @ first[d : 2 * d] + bias  # (m, hidden)
        along = first[2 * d] / np.float32(self.unit)
        inputs = self.inputs(places)
        steps, nodes = self.distances.nearest(places)
        result = np.zeros((len(places), len(anchors)))

        @np.errstate(over="ignore", invalid="ignore")  # numbers from an altered file
        def evaluate(row: int) -> None:
            paths = self.distances.through(steps[row], nodes[row])
            point = inputs[row : row + 1] @ first[:d]
            for start in range(0, len(anchors), 1024):
                part = slice(start, start + 1024)
                layer = np.multiply.outer(paths[part], along) + anchors[part] + point
                for matrix, offset in zip(rest[::2], rest[1::2], strict=True):
                    layer = np.maximum(layer, 0, out=layer) @ matrix + offset
                result[row, part] = layer[:, 0]

        quick_map(evaluate, range(len(places)), check_jobs(n_jobs))
        return np.clip(np.nan_to_num(result / self.scale), 0.0, self.largest)


def _embedded(places: FloatArray, metric: AbstractManifold | None) -> FloatArray:
    """Coordinates without a seam: those of a periodic box are mapped to circles, which preserves lengths."""
    if metric is None or metric.box is None:
        return places
    box = np.asarray(metric.box, dtype=np.float64)
    periodic = box > 0
    radius = box[periodic] / (2 * math.pi)
    angle = np.remainder(places[:, periodic], box[periodic]) / radius
    return np.hstack([places[:, ~periodic], radius * np.cos(angle), radius * np.sin(angle)])


# -------------------------------------------------------------------------------------------------------- training
def fit_network(
    graph: Graph,
    starts: IntArray,
    anchors: IntArray,
    values: Any,
    options: Network,
    *,
    unit: float = 1.0,
    seed: SeedLike = None,
    progress: Progress = silent,
) -> tuple[NetworkField, TrainingInfo]:
    """Train the network on signatures of some nodes.

    Parameters
    ----------
    graph : Graph
        With points.
    starts, anchors : int arrays of shapes (s,) and (m,)
        Nodes.
    values : array or CSR array of shape (s, m)
        Signatures of the starts at the anchors.
    options : Network
        ``n_starts`` is ignored: all starts are used.
    unit : float, default=1.0
        Factor from ``values`` to the paper's unit, exp(tau / 2) for exp(-tau L). If all values are below 1 in that
        unit, as for powers of W, the largest is scaled to that of the paper's surfaces.
    seed : None, int, Generator or RandomState
        Needed with a checkpoint.
    progress : callable
        Called with (what, done, total).

    Returns
    -------
    field : NetworkField
    info : TrainingInfo

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import DiffusionKernel, Sphere, compute_signatures, knn_graph
    >>> from manifoldrf.paper import Network, fit_network
    >>> graph, starts, anchors = knn_graph(Sphere().grid(300)), np.arange(0, 300, 3), np.arange(0, 300, 10)
    >>> rows = compute_signatures(graph, DiffusionKernel(10.0), starts).rows[:, anchors]
    >>> field, info = fit_network(graph, starts, anchors, rows, Network(epochs=2), unit=np.exp(5.0), seed=0)
    >>> found = field.values(Sphere().sample(5, seed=0))
    >>> found.shape, bool((found >= 0).all()), info.epochs
    ((5, 30), True, 2)
    """
    if seed is None and options.checkpoint is not None:
        reject("seed", "given with a checkpoint, or training cannot be resumed", None)
    n, top = len(starts), float(values.max())
    if n < 2 or top <= 0:
        reject("values", "positive somewhere, at 2 starts or more, because some are held out", f"{n} starts")
    streams = Streams.from_seed(seed)
    progress("shortest paths", 0, 1)
    distances = graph_distances(graph, anchors)
    # 600: about the maximum of exp(10 W) on the paper's graphs. Squares of targets are single precision.
    scale = unit if 1 <= top * unit < 1e15 else 600.0 / top
    points = _embedded(distances.points, graph.metric)
    low, high = points.min(axis=0), points.max(axis=0)
    centre, half = (low + high) / 2, float((high - low).max()) / 2 or 1.0
    weights = _first_weights(2 * len(centre) + 1, options.hidden, streams.generator("first weights"))
    inputs = ((points - centre) / half).astype(np.float32)
    # A fifth of the starts is held out for validation, as in the paper.
    held_out = streams.generator("held-out starts").permutation(n) < max(1, round(0.2 * n))
    rng = streams.generator("pairs")
    parts = []
    for start in range(0, n, 256):
        some = slice(start, start + 256)
        targets = sparse.csr_array(values[some]).toarray() * scale
        keep = (targets >= options.threshold) | (rng.random(targets.shape) < options.small_share)
        rows, columns = np.nonzero(keep)
        paths = distances.at(distances.points[starts[some]])[keep] / np.float32(half)
        of_pairs = np.column_stack([inputs[starts[some]][rows], inputs[anchors[columns]], paths])
        parts.append((of_pairs, targets[keep].astype(np.float32), held_out[some][rows]))
    of_pairs, targets, validates = (np.concatenate(column) for column in zip(*parts, strict=True))
    if validates.all() or not validates.any():
        reject("values", "positive at enough starts to hold some out", f"{n} starts with {len(targets)} pairs")
    pairs = [part[mask] for mask in (~validates, validates) for part in (of_pairs, targets)]
    training = _Training(weights, pairs, options, streams)
    with _ONE_TORCH_THREAD.held():
        training.torch.get_num_threads()  # a new thread applies the limit only once it reads it
        info = training.run(progress)
    trained = tuple(np.ascontiguousarray(value.cpu().numpy().T) for value in training.model.state_dict().values())
    largest = 1.5 * float(targets.max()) / scale
    return NetworkField(trained, centre, half, inputs[anchors], distances, scale, largest), info


def _first_weights(n_inputs: int, hidden: tuple[int, ...], rng: np.random.Generator) -> tuple[Floats, ...]:
    """Initial weights, uniform in +-1/sqrt(inputs) as in torch."""
    found = []
    for rows, columns in pairwise((n_inputs, *hidden, 1)):
        found += [rng.uniform(-1.0, 1.0, shape) / math.sqrt(rows) for shape in ((rows, columns), (columns,))]
    return tuple(part.astype(np.float32) for part in found)


class _Training:
    """The state of a training, with its checkpoints."""

    def __init__(self, weights: Any, pairs: list[Floats], options: Network, streams: Streams) -> None:
        self.options, self.streams, self.torch = options, streams, require("torch", "torch")
        torch = self.torch
        device = "cuda" if torch.cuda.is_available() and options.device != "cpu" else "cpu"
        if device == "cpu" and options.device == "cuda":
            reject("device", "'cpu' or 'auto' on a machine without CUDA", repr(options.device))
        layers: list[Any] = []
        for matrix, bias in zip(weights[::2], weights[1::2], strict=True):
            layer = torch.nn.utils.skip_init(torch.nn.Linear, *matrix.shape)  # no draws from the global generator
            layer.weight.data, layer.bias.data = torch.tensor(matrix.T.copy()), torch.tensor(bias)
            layers += [layer, torch.nn.ReLU()]
        self.model = torch.nn.Sequential(*layers[:-1]).to(device)
        self.adam = torch.optim.Adam(self.model.parameters(), lr=options.learning_rate, fused=True)
        self.inputs, self.targets, self.others, self.wanted = (torch.tensor(part, device=device) for part in pairs)
        # Layers of half a MB stay in the cache of one core.
        self.rows_at_once = 1024 if device == "cpu" else max(options.batch, 2**16)
        self.losses: list[tuple[float, float]] = []  # of training and validation
        self.best_epoch, self.best, self.seconds = 0, self.model.state_dict(), 0.0
        settings = repr(options.with_params(checkpoint=None, device="auto")).encode()
        digest = hashlib.blake2b(settings, key=streams.root)
        for array in pairs:
            digest.update(repr(array.shape).encode() + array.tobytes())
        self.fingerprint = digest.hexdigest()  # of everything that determines the trained weights

    @property
    def has_ended(self) -> bool:
        """Whether all epochs are done, or the validation loss has not fallen for too long."""
        done, patience = len(self.losses), self.options.patience
        return done >= self.options.epochs or (patience is not None and done - self.best_epoch >= patience)

    def run(self, progress: Progress) -> TrainingInfo:
        """Train to the end, from the checkpoint if there is one, and leave the best weights in the model."""
        checkpoint = None if self.options.checkpoint is None else Path(self.options.checkpoint)
        if checkpoint is not None and checkpoint.exists():
            self.restore(checkpoint)
        while not self.has_ended:
            progress("training epochs", len(self.losses), self.options.epochs)
            began = time.perf_counter()
            self.run_epoch()
            self.seconds += time.perf_counter() - began
            if checkpoint is not None and (self.has_ended or len(self.losses) % 10 == 0):  # takes milliseconds
                self.save(checkpoint)
        progress("training epochs", self.options.epochs, self.options.epochs)
        self.model.load_state_dict(self.best)
        return self.info()

    def run_epoch(self) -> None:
        """One pass over the pairs in a new order, then the loss at the held-out starts."""
        torch, total, n = self.torch, 0.0, len(self.targets)
        rng = self.streams.generator(f"order of epoch {len(self.losses)}")
        for chosen in torch.as_tensor(rng.permutation(n), device=self.targets.device).split(self.options.batch):
            self.adam.zero_grad()
            for part in chosen.split(self.rows_at_once):
                loss = self.loss(self.model(self.inputs[part])[:, 0], self.targets[part]).sum()
                (loss / len(chosen)).backward()
                total += float(loss.detach())
            self.adam.step()
        if not math.isfinite(total):
            reject("learning_rate", "smaller: the training diverged", self.options.learning_rate)
        self.losses.append((total / n, float(self.loss(self.predictions(), self.wanted).mean())))
        if self.best_epoch == 0 or self.losses[-1][1] < self.losses[self.best_epoch - 1][1]:
            self.best_epoch, self.best = len(self.losses), copy.deepcopy(self.model.state_dict())

    def loss(self, found: Any, exact: Any) -> Any:
        """Loss of every pair."""
        if self.options.loss == "l2":
            return (found - exact) ** 2
        return (found - exact).abs() / exact.clamp_min(self.options.threshold)

    def predictions(self) -> Any:
        """Outputs for the pairs of held-out starts."""
        with self.torch.no_grad():
            return self.torch.cat([self.model(part)[:, 0] for part in self.others.split(self.rows_at_once)])

    def save(self, path: Path) -> None:
        """Write the state; an interrupted write leaves the previous file."""
        record = {"losses": self.losses, "seconds": self.seconds}
        groups = {"model": self.model.state_dict(), "best": self.best}
        groups |= {f"adam{number}": part for number, part in self.adam.state_dict()["state"].items()}
        groups["record"] = {key: self.torch.tensor(np.array(value)) for key, value in record.items()}
        tensors = {f"{group}/{name}": value for group, parts in groups.items() for name, value in parts.items()}
        with atomic_path(path) as file:
            file.write_bytes(require("safetensors.torch", "torch").save(tensors, {"training": self.fingerprint}))

    def restore(self, path: Path) -> None:
        """Continue from a checkpoint."""
        groups: dict[str, dict[str, Any]] = {}
        try:
            with safe_open(path, "pt", device=str(self.targets.device)) as file:
                fingerprint = (file.metadata() or {}).get("training")
                for key in file.keys():  # noqa: SIM118  (not a dict)
                    group, _, name = key.partition("/")
                    groups.setdefault(group, {})[name] = file.get_tensor(key)
            if fingerprint == self.fingerprint:
                adam = self.adam.state_dict()
                for number, weight in enumerate(self.model.parameters()):
                    adam["state"][number] = moments = groups[f"adam{number}"]
                    if not moments["exp_avg"].shape == moments["exp_avg_sq"].shape == weight.shape:
                        raise ValueError("moments of another shape")
                self.adam.load_state_dict(adam)
                self.best = groups["best"]
                for weights in (self.best, groups["model"]):  # fails if they do not fit
                    self.model.load_state_dict(weights)
                self.losses = [(first, second) for first, second in groups["record"]["losses"].tolist()]
                self.best_epoch = 1 + int(groups["record"]["losses"][:, 1].argmin())
                self.seconds = float(groups["record"]["seconds"])
        except (SafetensorError, OSError, LookupError, RuntimeError, TypeError, ValueError) as error:
            reject("checkpoint", f"a complete checkpoint ({error})", path)
        if fingerprint != self.fingerprint:
            reject("checkpoint", "of the same data, options and seed, or a new name", f"{path}, another file")

    def info(self) -> TrainingInfo:
        """Record of the training, with the errors of the best weights at held-out starts."""
        found, exact = (part.double().cpu().numpy() for part in (self.predictions().relu(), self.wanted))
        mse, variance = float(np.square(found - exact).mean()), float(exact.var())
        r2 = 1 - mse / variance if variance > 0 else float("nan")
        mean_re = float((np.abs(found - exact) / np.maximum(exact, self.options.threshold)).mean())
        reason = "epochs" if len(self.losses) == self.options.epochs else "patience"
        losses: Any = zip(*self.losses, strict=True)
        figures: Any = (r2, mean_re, mse, len(self.targets), len(exact), self.seconds)
        return TrainingInfo(len(self.losses), reason, self.best_epoch, *losses, *figures)


def _limit_torch() -> Callable[[], None]:
    """Limit torch to one thread: bits depend on the number, and threads block each other on a busy machine."""
    torch = require("torch", "torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    return lambda: torch.set_num_threads(before)


_ONE_TORCH_THREAD = SharedLimit(_limit_torch)  # until the last of overlapping trainings has ended
