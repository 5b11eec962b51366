"""Features of the positions of tokens as tensors, with gradients (torch)."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from manifoldrf._runtime import filtered, require
from manifoldrf._validation import FloatArray, check_jobs, check_points, reject
from manifoldrf.applications.interpolation import without_small
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.graph_kernel import warn_of_far
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.features.state import shortened
from manifoldrf.geometry.csr import as_dense
from manifoldrf.paper.network import NetworkField

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
else:  # without torch the error names the extra
    torch = require("torch", "torch")
    Tensor, nn = torch.Tensor, torch.nn

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
PRECISIONS = FLOATS[:2]  # of positions: half precision has two or three digits
_ENTRIES_AT_ONCE = 2**24  # dense features before they are made sparse: 128 MB
_PAIRS_AT_ONCE = 2**15  # pairs of a network, whose hidden layers take about 2 kB each: 64 MB
# Step of central differences, relative to the kernel's width: its square and the rounding error over it are 4e-11.
_STEP = float(np.finfo(np.float64).eps ** (1 / 3))
# Slopes above this multiple of the row's largest value over the width are jumps, for example where the list of
# nearest nodes changes. A Gaussian has at most .6, the window at the end of the space about 10.
_STEEPEST = 30.0

Function = Callable[[FloatArray], FloatArray]  # points (q, d) to values (q, c)
Weights = list[Tensor] | None  # of a network that is trained


def csr_tensor(rows: Any, device: Any, dtype: Any = None) -> Any:
    """A CSR array as a tensor on a device, in its own precision or in ``dtype``."""
    with filtered("ignore", "Sparse", UserWarning):  # torch calls sparse tensors a beta feature; products work
        return torch.sparse_csr_tensor(
            torch.as_tensor(rows.indptr.astype(np.int64), device=device),
            torch.as_tensor(rows.indices.astype(np.int64), device=device),
            torch.as_tensor(rows.data, device=device),
            size=rows.shape,
            dtype=dtype,
            device=device,
        )


def check_tensor(tensor: Any, name: str, n_dimensions: int, types: Sequence[torch.dtype] = PRECISIONS) -> None:
    """Refuse all but tensors of these types with at least ``n_dimensions`` dimensions."""
    if not isinstance(tensor, Tensor) or tensor.dtype not in types:
        given = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        *others, last = map(str, types)
        reject(name, f"a tensor of {', '.join(others)} or {last}", given, TypeError)
    if tensor.ndim < n_dimensions:
        reject(name, f"a tensor of at least {n_dimensions} dimension(s)", f"shape {tuple(tensor.shape)}")


def wide_type(tensor: Tensor) -> torch.dtype:
    """Precision in which a tensor is summed: in half precision sums lose their digits."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def wide(tensor: Tensor) -> Tensor:
    """A tensor in single precision at least."""
    return tensor.to(wide_type(tensor))


@dataclass(frozen=True, eq=False)
class Probe:
    """A function on the space, and the length scale on which it changes."""

    function: Function
    length: float

    def slopes(self, places: FloatArray, values: FloatArray, axis: int) -> FloatArray:
        """Derivative along one axis, shape (q, c)."""
        step = _STEP * self.length
        ends = []
        for sign in (1.0, -1.0):
            moved = places.copy()
            moved[:, axis] += sign * step
            gap = moved[:, axis] - places[:, axis]  # the step after rounding
            ends.append((self.function(moved) - values) / np.where(gap == 0, np.inf, gap)[:, None])
        limit = _STEEPEST * np.abs(values).max(axis=1, initial=0.0, keepdims=True) / self.length
        smaller = np.where(np.abs(ends[0]) < np.abs(ends[1]), *ends)  # the side without the jump
        return np.where(np.abs(ends[0] - ends[1]) <= limit, (ends[0] + ends[1]) / 2, smaller)


class Probed(torch.autograd.Function):
    """Values of a NumPy function; the backward pass uses central differences in double precision.

    One rule serves every field. Exact derivatives would need code for each kind of field, graph and mesh, and for
    the window and the measure of the point. Differences cover all of them, are accurate to 1e-9 where the field is
    smooth, and cost two evaluations per axis.
    """

    @staticmethod
    def forward(ctx: Any, points: Tensor, probe: Probe) -> Tensor:
        """Values at points (q, d), shape (q, c), in the precision of the points."""
        ctx.places, ctx.probe = as_places(points), probe
        ctx.values = probe.function(ctx.places)
        return points.new_tensor(ctx.values)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Gradient with respect to the points."""
        outer = as_places(gradient)
        axes = range(ctx.places.shape[1])
        inner = [(outer * ctx.probe.slopes(ctx.places, ctx.values, axis)).sum(axis=1) for axis in axes]
        return gradient.new_tensor(np.stack(inner, axis=1)), None


def as_places(tensor: Tensor) -> FloatArray:
    """Convert a tensor to an array in double precision."""
    return np.asarray(tensor.detach().cpu().double().numpy())


class AbstractPositions(ABC):
    """Features of positions, up to a common factor, which cancels in attention."""

    @property
    def network(self) -> NetworkField | None:
        """The field, if it is a network."""
        return None

    @abstractmethod
    def rows(self, points: FloatArray) -> tuple[Any, FloatArray]:
        """Features of points, dense or CSR of shape (q, m), and the window: 1 on the space, 0 far away."""

    @abstractmethod
    def differentiable(self, points: Tensor, weights: Weights) -> Tensor:
        """Dense features of points (q, d) with gradients."""

    def sparse(self, points: FloatArray, cut: float) -> tuple[Any, FloatArray]:
        """CSR features without entries below ``cut`` times the largest of their row; memory stays bounded."""
        parts, windows, start, size = [], [], 0, 1
        while start < len(points):
            found, window = self.rows(points[start : start + size])
            rows = sparse.csr_array(found)
            parts.append(without_small(rows, cut))
            windows.append(window)
            start += size
            size = max(1, _ENTRIES_AT_ONCE // rows.shape[1])
        return sparse.vstack(parts, format="csr"), np.concatenate(windows)

    def dense(self, points: Tensor, weights: Weights) -> tuple[Tensor, FloatArray]:
        """Dense features with the gradients that are needed, shape (q, m), and the window."""
        if weights is not None or points.requires_grad:  # no window: training would warn at every step
            return self.differentiable(points, weights), np.ones(len(points))
        rows, window = self.rows(as_places(points))
        return points.new_tensor(as_dense(rows)), window


@dataclass(frozen=True, eq=False)
class TransformerPositions(AbstractPositions):
    """Features of any fitted transformer, without gradients."""

    transformer: Any

    def rows(self, points: FloatArray) -> tuple[Any, FloatArray]:
        """Features of points, dense or CSR of shape (q, m), and a window of 1."""
        return self.transformer.transform(points), np.ones(len(points))

    def differentiable(self, points: Tensor, weights: Weights) -> Tensor:
        """Raise an error: only fields have gradients."""
        kind = type(self.transformer).__name__
        reject("positions", f"without gradients, which {kind} does not provide", "requires_grad=True")


@dataclass(frozen=True, eq=False)
class FieldPositions(AbstractPositions):
    """Features of a field, divided by the largest value that any of them can take."""

    map: FeatureMap
    n_jobs: int

    @cached_property
    def _factor(self) -> float:
        """Factor that makes all features at most 1."""
        return float(1 / self.map.bound.max())

    @property
    def network(self) -> NetworkField | None:
        """The field, if it is a network."""
        return self.map.table if isinstance(self.map.table, NetworkField) else None

    def rows(self, points: FloatArray) -> tuple[Any, FloatArray]:
        """Features of points, dense or CSR of shape (q, m), and the window."""
        rows, window = self.map.rows(self._checked(points), self.n_jobs, absolute=False)
        return rows * self._factor, window

    def _checked(self, points: FloatArray) -> FloatArray:
        graph = self.map.graph
        places = check_points(points, "positions", n_columns=graph.positions.shape[1])
        return places if graph.metric is None else graph.metric.check(places, "positions")

    def differentiable(self, points: Tensor, weights: Weights) -> Tensor:
        """Dense features with gradients: exact for a network, by differences for other fields."""
        self._checked(as_places(points))
        field = self.network
        if field is None:
            return self._probed(
                points,
                lambda places: as_dense(self.map.rows(places, self.n_jobs, absolute=False)[0]) * self._factor,
            )
        trained = field if weights is None else dataclasses.replace(field, weights=cast(Any, tuple(weights)))
        graph, given = self.map.graph, points
        if graph.projection is not None:  # the gradient of the projection is taken as one
            points = given + given.new_tensor(graph.placed(as_places(given.detach()))) - given.detach()
        # Some points at a time; checkpoints compute the layers again in the backward pass.
        size = max(1, _PAIRS_AT_ONCE // field.n_anchors)
        parts = [points[start : start + size] for start in range(0, len(points), size)]
        values = torch.cat(
            [torch.utils.checkpoint.checkpoint(trained.torch_values, part, use_reentrant=False) for part in parts]
        )
        columns = points.new_tensor(self._factor * self.map.columns)
        bound = points.new_tensor(self._factor * self.map.bound)
        own = self._probed(given, self._own_factors)
        return torch.minimum(values * columns * own, bound)

    def _own_factors(self, points: FloatArray) -> FloatArray:
        """Window and own factor of points, shape (q, 1)."""
        placed = self.map.graph.placed(points)
        return (self.map.kernel.window(points, placed) * self.map.own(placed, self.n_jobs))[:, None]

    def _probed(self, points: Tensor, function: Function) -> Tensor:
        values: Tensor = Probed.apply(points, Probe(function, self.map.kernel.width))  # type: ignore[no-untyped-call]
        return values


def positions_of(features: Any, name: str) -> AbstractPositions:
    """Features of positions by a fitted transformer."""
    if not hasattr(features, "transform"):
        reject(name, "fitted features, or a sequence of them", type(features).__name__, TypeError)
    check_is_fitted(features)
    if not isinstance(features, ManifoldRandomFeatures):
        return TransformerPositions(features)
    if features.asymmetric_:
        reject(name, "of a kernel with nonnegative features, not one with two sides", shortened(features.kernel_))
    return FieldPositions(features.map_, check_jobs(features.n_jobs))


def features_at(
    parts: Sequence[AbstractPositions],
    positions: Tensor,
    weights: Sequence[Weights],
    like: Tensor,
    cut: float | None,
) -> tuple[Tensor, ...]:
    """Features of positions (..., L, d), one tensor per part, sparse if ``cut`` is given; one warning for all."""
    check_tensor(positions, "positions", 1)
    given = f"shape {tuple(positions.shape)}"
    if positions.ndim < 2 or not positions.numel():
        reject("positions", "a tensor of shape (..., L, d) with L >= 1", given)
    if cut is not None and (positions.ndim != 2 or positions.requires_grad):
        rule = "of shape (L, d) and without gradients in the sparse mode"
        reject("positions", rule, f"{given}, requires_grad={positions.requires_grad}")
    found, windows = [], []
    for part, own in zip(parts, weights, strict=True):
        if cut is None:
            dense, window = part.dense(positions.flatten(0, -2), own)
            found.append(dense.reshape(*positions.shape[:-1], -1).to(like))
        else:
            rows, window = part.sparse(as_places(positions), cut)
            found.append(csr_tensor(rows, like.device, like.dtype))
        windows.append(window)
    warn_of_far(np.minimum.reduce(windows))
    return tuple(found)


def field_parameters(positions: list[AbstractPositions], mode: str) -> nn.ModuleList:
    """Weights of the networks as trainable parameters."""
    if mode == "sparse":
        reject("trainable_field", "False in the sparse mode", value=True)
    lists = []
    for each in positions:
        if each.network is None:
            rule = 'False unless the features have field="mlp", whose network has parameters'
            reject("trainable_field", rule, value=True)
        lists.append(nn.ParameterList(nn.Parameter(torch.tensor(array)) for array in each.network.weights))
    return nn.ModuleList(lists)
