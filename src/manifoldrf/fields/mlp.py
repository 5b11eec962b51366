"""Fields given by a small trained network: the paper's, and one that predicts the logarithm."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np

from manifoldrf._random import SeedLike, Streams
from manifoldrf._runtime import Progress, require, silent, thread_pool
from manifoldrf._validation import (
    NONNEGATIVE,
    POSITIVE,
    FloatArray,
    IntArray,
    check_jobs,
    check_option,
    check_points,
    check_real,
    reject,
)
from manifoldrf.fields.data import AbstractField, FieldData, Problem
from manifoldrf.fields.geodesics import GraphDistances, graph_distances
from manifoldrf.fields.network import (
    MARGIN,
    Floats,
    Frame,
    affine,
    finish,
    first_layer,
    make_frame,
    meet,
    n_inputs,
    pair_inputs,
    upper_layers,
)
from manifoldrf.fields.training import (
    NETWORKS,
    MlpOptions,
    TrainingInfo,
    make_training_data,
    network_scale,
    paper_unit,
    saved_streams,
    train,
)
from manifoldrf.geometry.csr import check_numbers, check_shape

__all__ = ["MlpField", "fit_mlp"]

_QUERIES_AT_ONCE = 16  # per task
_PAIRS_ON_DEVICE = 2**18  # at a time: hidden layers take about 2 kB per pair, 512 MB in all


@dataclass(frozen=True, eq=False)
class MlpField(AbstractField):
    """A field given by a network, made by :func:`fit_mlp`.

    Attributes
    ----------
    network : str
        "log" or "paper".
    weights : tuple of float32 arrays
    frame : Frame
        How positions become inputs.
    distances : GraphDistances
        Distances along the graph, the last input of the network.
    anchors : float32 array of shape (m, d')
        Inputs of the anchors.
    scale : float
        Divisor of the predictions.
    largest : float
        Largest value; values are clipped.
    raw : bool
        Whether values are signatures Phi(z, w) of the graph, as for the network "paper"; else h(z, w).

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import DiffusionKernel, Sphere, knn_graph
    >>> from manifoldrf.fields.data import Problem, SignatureOptions, signature_table
    >>> from manifoldrf.fields.mlp import fit_mlp
    >>> from manifoldrf.fields.training import MlpOptions
    >>> graph = knn_graph(Sphere().grid(300))
    >>> problem = Problem(graph, DiffusionKernel(10.0), graph.degrees, 2, np.sqrt(10 * graph.time(1.0, 2)))
    >>> data = signature_table(problem, np.arange(300), np.arange(0, 300, 10), SignatureOptions())
    >>> field, info = fit_mlp(data, MlpOptions(epochs=2), seed=0)
    >>> values = field.values(Sphere().sample(5, seed=0))
    >>> values.shape, bool((values >= 0).all()), info.epochs
    ((5, 30), True, 2)
    """

    network: str
    weights: tuple[Floats, ...]
    frame: Frame
    distances: GraphDistances
    anchors: Floats
    scale: float
    largest: float
    raw: bool

    def check(self, problem: Problem, n_anchors: int) -> None:
        """Raise if the parts do not fit together, or do not fit the problem and the anchors."""
        n, d = problem.graph.positions.shape
        check_option(self.network, "network", NETWORKS)
        self.frame.check(d)
        self.distances.check(n, d, n_anchors)
        n_coordinates = d if self.frame.box is None else 2 * d
        check_shape("anchors", self.anchors, (n_anchors, n_coordinates))
        check_numbers("anchors", self.anchors)
        check_real(self.scale, "scale", POSITIVE)
        check_real(self.largest, "largest", NONNEGATIVE)
        if len(self.weights) != 6 or self.weights[1].ndim != 1:
            reject("weights", "six arrays", len(self.weights))
        hidden, n_ends = len(self.weights[1]), 1 if self.network == "paper" else 2
        first = n_inputs(self.network, self.frame, n_coordinates)
        shapes = [(first, hidden), (hidden,), (hidden, hidden), (hidden,), (hidden, 1), (n_ends,)]
        for weight, shape in zip(self.weights, shapes, strict=True):
            check_shape("weights", weight, shape)
            check_numbers("weights", weight)

    @property
    def bounds(self) -> FloatArray:
        """Largest value that each column can take anywhere, shape (m,)."""
        return np.full(len(self.anchors), self.largest)

    def values(self, queries: FloatArray, n_jobs: int = 1) -> FloatArray:
        """Dense values of shape (len(queries), m), nonnegative."""
        jobs, places = check_jobs(n_jobs), self._checked(queries)
        result = np.zeros((len(places), len(self.anchors)))
        blocks = [slice(start, start + _QUERIES_AT_ONCE) for start in range(0, len(places), _QUERIES_AT_ONCE)]
        _, matrix, _ = first_layer(self.network, self.weights, self.anchors.shape[1])
        anchors = affine(self.anchors, matrix, self.weights[1])  # (m, hidden)
        with thread_pool(jobs) as pool:
            found = pool.map(lambda part: self._block(places[part], anchors), blocks)
            for block, rows in zip(blocks, found, strict=True):
                result[block] = rows
        return result

    def _checked(self, queries: FloatArray) -> FloatArray:
        places = check_points(queries, "queries", n_columns=len(self.frame.centre), min_rows=0)
        return places if self.distances.metric is None else self.distances.metric.check(places, "queries")

    @np.errstate(over="ignore", invalid="ignore")  # numbers from a manipulated file may overflow
    def _block(self, places: FloatArray, anchors: Floats) -> FloatArray:
        """Values of a few queries, computed one after the other."""
        inputs = self.frame.coordinates(np, places).astype(np.float32)
        steps, nodes = self.distances.nearest(places)
        matrix, _, of_pair = first_layer(self.network, self.weights, inputs.shape[1])
        _, bias, second, second_bias, last, ends = self.weights
        points = affine(inputs, matrix, np.zeros_like(bias))  # (b, hidden)
        result = np.zeros((len(places), len(anchors)))
        for row in range(len(places)):
            pair = (inputs[row], self.anchors, self.distances.through(steps[row], nodes[row]))
            both, squared = pair_inputs(np, self.network, self.frame, pair)
            top = meet(points[row], anchors, both, of_pair, second, second_bias, last[:, 0])
            result[row] = finish(np, self.network, ends, top, squared)
        return np.clip(np.nan_to_num(result / self.scale), 0.0, self.largest)

    def at_anchors(self, columns: IntArray) -> "MlpField":
        """Return the same network for some of its anchors, given by their positions."""
        distances = dataclasses.replace(
            self.distances, paths=np.ascontiguousarray(self.distances.paths[:, columns])
        )
        return dataclasses.replace(self, anchors=self.anchors[columns], distances=distances)

    @property
    def is_network(self) -> bool:
        """True: evaluation is costly."""
        return True

    def values_on(self, device: str, queries: FloatArray, n_jobs: int = 1) -> FloatArray:
        """Dense values of shape (len(queries), m) by torch on a device, in single precision as on the processor."""
        torch = require("torch", "torch")
        del n_jobs  # the device has its own threads
        places = self._checked(queries)
        result = np.zeros((len(places), len(self.anchors)))
        paths = torch.as_tensor(self.distances.paths, device=device)
        size = max(1, _PAIRS_ON_DEVICE // len(self.anchors))
        for start in range(0, len(places), size):
            some = places[start : start + size]
            # As in `_block`, inputs are computed in double precision and then rounded.
            inputs = self.frame.coordinates(np, some).astype(np.float32)
            with torch.no_grad():
                reached = self.distances.torch_through(paths, *self.distances.nearest(some))
                found = self._meet(torch.as_tensor(inputs, device=device), reached)
            result[start : start + size] = found.cpu().numpy()
        return np.clip(np.nan_to_num(result / self.scale), 0.0, self.largest)

    def torch_values(self, queries: Any) -> Any:
        """Values as a tensor of shape (q, m) in the queries' precision and on their device, with gradients.

        All pairs are held in memory with their hidden layers, about 2 kB each, so pass a few queries at a time.
        Distances along the graph are piecewise smooth. Where the nearest path changes, the gradient is that of one
        of the two paths.
        """
        torch = require("torch", "torch")
        found = self._meet(self.frame.coordinates(torch, queries), self.distances.torch_at(queries))
        return (found / self.scale).clamp(0.0, self.largest)

    def _meet(self, points: Any, paths: Any) -> Any:
        """Output of the network for inputs (q, d') and distances (q, m), tensors: (q, m), before scaling."""
        torch = require("torch", "torch")
        inputs = points[:, None, :]  # (q, 1, d')
        anchors = torch.as_tensor(self.anchors, dtype=points.dtype, device=points.device)[None]
        # The weights are parameters of a module if the network is trained further.
        weights = [torch.as_tensor(weight, dtype=points.dtype, device=points.device) for weight in self.weights]
        pair = (inputs, anchors, paths)
        both, squared = pair_inputs(torch, self.network, self.frame, pair)
        at_point, at_anchor, of_pair = first_layer(self.network, weights, inputs.shape[-1])
        hidden = inputs @ at_point + (anchors @ at_anchor + weights[1]) + both @ of_pair  # (q, m, hidden)
        return upper_layers(torch, self.network, weights, hidden, squared)


def fit_mlp(
    data: FieldData, options: MlpOptions, *, seed: SeedLike = None, progress: Progress = silent, n_jobs: int = 1
) -> tuple[MlpField, TrainingInfo]:
    """Train a network on known values of a field.

    The network "paper" learns signatures Phi(x, w) from (x, w, d(x, w)), as published. The network "log" learns
    log h(x, w) = c + a |x - w|^2 + MLP(...). Its values are positive and smooth, and it needs far fewer epochs.

    Parameters
    ----------
    data : FieldData
    options : MlpOptions
    seed : None, int, Generator or RandomState
        With None, an existing checkpoint is resumed with its own seed.
    progress : callable
        Called with (what, done, total).
    n_jobs : int, default=1
        Number of threads, -1 for all cores; on the CPU it does not change the weights.

    Returns
    -------
    field : MlpField
    info : TrainingInfo

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import DiffusionKernel, Sphere, knn_graph
    >>> from manifoldrf.fields.data import Problem, SignatureOptions, signature_table
    >>> from manifoldrf.fields.mlp import fit_mlp
    >>> from manifoldrf.fields.training import MlpOptions
    >>> graph = knn_graph(Sphere().grid(300))
    >>> problem = Problem(graph, DiffusionKernel(10.0), graph.degrees, 2, np.sqrt(10 * graph.time(1.0, 2)))
    >>> data = signature_table(problem, np.arange(300), np.arange(0, 300, 10), SignatureOptions())
    >>> field, info = fit_mlp(data, MlpOptions(network="paper", epochs=2), seed=0)
    >>> field.raw, info.stopped_by
    (True, 'epochs')
    """
    streams = (saved_streams(options.checkpoint) if seed is None else None) or Streams.from_seed(seed)
    unit = paper_unit(data)
    scale = network_scale(data, options.network, unit)
    progress("shortest paths", 0, 1)
    distances = graph_distances(data.graph, data.anchors, n_jobs)
    progress("shortest paths", 1, 1)
    metric = data.graph.metric
    frame = make_frame(data.points, data.width, None if metric is None else metric.box)
    pairs = make_training_data(data, distances, frame, options.network, streams)
    weights, info = train(pairs, options, streams, progress, check_jobs(n_jobs))
    largest = max(float(part.targets.max(initial=0.0)) for part in (pairs.train, pairs.validation))
    field = MlpField(
        network=options.network,
        weights=tuple(weights),
        frame=frame,
        distances=distances,
        anchors=pairs.anchors,
        scale=scale,
        largest=MARGIN * largest / scale,
        raw=options.network == "paper",
    )
    return field, info
