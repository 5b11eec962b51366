"""Features of positions as tensors, dense or without their zeros; gradients to positions and through a network."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from scipy import sparse
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from manifoldrf._validation import FloatArray, check_jobs, check_points, reject
from manifoldrf.applications._linear import check_tensor
from manifoldrf.applications.smoothing import without_small
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.features.proximity import warn_of_far
from manifoldrf.fields._devices import csr_tensor
from manifoldrf.fields.mlp import MlpField

_ENTRIES_AT_ONCE = 2**24  # of dense rows on their way to sparse ones: 128 MB
_PAIRS_AT_ONCE = 2**15  # of a network, whose hidden layers take about 2 kB each: 64 MB
# Central differences with this share of the kernel's width: its square and the rounding error over it are 4e-11.
_STEP = float(np.finfo(np.float64).eps ** (1 / 3))
# Slopes beyond so many times the row's largest value over the width are no slopes but a jump, such as where the
# list of nearest nodes changes. A Gaussian has at most .6, the window at the end of the space about 10.
_STEEPEST = 30.0

Function = Callable[[FloatArray], FloatArray]  # points (q, d) to values (q, c)
Weights = list[Tensor] | None  # of a network that is trained


@dataclass(frozen=True, eq=False)
class Probe:
    """A function on the space, and the length on which it changes."""

    function: Function
    length: float

    def slopes(self, places: FloatArray, values: FloatArray, axis: int) -> FloatArray:
        """Derivative along one axis, shape (q, c)."""
        step = _STEP * self.length
        ends = []
        for sign in (1.0, -1.0):
            moved = places.copy()
            moved[:, axis] += sign * step
            gap = moved[:, axis] - places[:, axis]  # as rounded
            ends.append((self.function(moved) - values) / np.where(gap == 0, np.inf, gap)[:, None])
        limit = _STEEPEST * np.abs(values).max(axis=1, initial=0.0, keepdims=True) / self.length
        smaller = np.where(np.abs(ends[0]) < np.abs(ends[1]), *ends)  # the side without the jump
        return np.where(np.abs(ends[0] - ends[1]) <= limit, (ends[0] + ends[1]) / 2, smaller)


class Probed(torch.autograd.Function):
    """Values of a function that NumPy computes; the backward pass takes central differences in double precision.

    One rule for every field. Exact derivatives would be wanted for each kind of field, of graph and of mesh, times
    the window and the measure of the point itself; differences see all of them, are off by 1e-9 where the field is
    smooth, and cost two evaluations per axis.
    """

    @staticmethod
    def forward(ctx: Any, points: Tensor, probe: Probe) -> Tensor:
        """Values at points (q, d): shape (q, c), of their precision."""
        ctx.places, ctx.probe = as_places(points), probe
        ctx.values = probe.function(ctx.places)
        return points.new_tensor(ctx.values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        """Gradient with respect to the points."""
        outer = as_places(gradient)
        axes = range(ctx.places.shape[1])
        inner = [(outer * ctx.probe.slopes(ctx.places, ctx.values, axis)).sum(axis=1) for axis in axes]
        return gradient.new_tensor(np.stack(inner, axis=1)), None


def as_places(tensor: Tensor) -> FloatArray:
    """A tensor as an array in double precision."""
    return np.asarray(tensor.detach().cpu().double().numpy())


class AbstractPositions(ABC):
    """Features of positions, up to a common factor, which attention does not see."""

    @property
    @abstractmethod
    def network(self) -> MlpField | None:
        """The field, if it is a network."""

    @abstractmethod
    def rows(self, points: FloatArray) -> tuple[Any, FloatArray]:
        """Features of points, dense or CSR of shape (q, m), and the window there: 1 on the space, 0 far away."""

    @abstractmethod
    def differentiable(self, points: Tensor, weights: Weights) -> Tensor:
        """Dense features of points (q, d) with gradients."""

    def sparse(self, points: FloatArray, cut: float) -> tuple[Any, FloatArray]:
        """CSR array without the entries below ``cut`` times the largest of their row; never dense as a whole."""
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
        """Dense features with those gradients that are asked for, shape (q, m), and the window."""
        if weights is not None or points.requires_grad:  # training would warn at every step
            return self.differentiable(points, weights), np.ones(len(points))
        rows, window = self.rows(as_places(points))
        return points.new_tensor(_filled(rows)), window


@dataclass(frozen=True, eq=False)
class TransformerPositions(AbstractPositions):
    """Features of any fitted transformer, without gradients."""

    transformer: Any

    @property
    def network(self) -> None:
        """None."""

    def rows(self, points: FloatArray) -> tuple[Any, FloatArray]:
        """Features of points, dense or CSR of shape (q, m); no window is known."""
        return self.transformer.transform(points), np.ones(len(points))

    def differentiable(self, points: Tensor, weights: Weights) -> Tensor:
        """Raise: only fields have gradients."""
        kind = type(self.transformer).__name__
        reject("positions", f"without gradients, which {kind} does not have", "requires_grad=True")


@dataclass(frozen=True, eq=False)
class FieldPositions(AbstractPositions):
    """Features of a field, divided by the largest value that any of them can take."""

    map: FeatureMap
    n_jobs: int
    device: str = "cpu"  # where the field is read, as in ManifoldRandomFeatures

    @cached_property
    def _factor(self) -> float:
        """From the unit of the measure to features of at most 1."""
        return float(1 / self.map.bound.max())

    @property
    def network(self) -> MlpField | None:
        """The field, if it is a network."""
        return self.map.field if isinstance(self.map.field, MlpField) else None

    def rows(self, points: FloatArray) -> tuple[Any, FloatArray]:
        """Features of points, dense or CSR of shape (q, m), and the window there."""
        rows, window = self.map.rows(self._checked(points), self.n_jobs, absolute=False, device=self.device)
        return rows * self._factor, window

    def _checked(self, points: FloatArray) -> FloatArray:
        graph = self.map.space.graph
        places = check_points(points, "positions", n_columns=graph.positions.shape[1])
        return places if graph.metric is None else graph.metric.check(places, "positions")

    def differentiable(self, points: Tensor, weights: Weights) -> Tensor:
        """Through a network exactly, through other fields by differences."""
        self._checked(as_places(points))
        field = self.network
        if field is None:
            return self._probed(points, self._plain_rows)
        trained = field if weights is None else dataclasses.replace(field, weights=cast(Any, tuple(weights)))
        # Some points at a time; layers are computed again on the way back.
        size = max(1, _PAIRS_AT_ONCE // field.n_anchors)
        parts = [points[start : start + size] for start in range(0, len(points), size)]
        values = torch.cat([checkpoint(trained.torch_values, part, use_reentrant=False) for part in parts])
        columns, bound = (
            points.new_tensor(self._factor * part) for part in (self.map.column_factors, self.map.bound)
        )
        return torch.minimum(values * columns * self._probed(points, self._row_factors), bound)

    def _probed(self, points: Tensor, function: Function) -> Tensor:
        values: Tensor = Probed.apply(points, Probe(function, self.map.space.setting.width))  # type: ignore[no-untyped-call]
        return values

    def _plain_rows(self, places: FloatArray) -> FloatArray:
        """Dense features, without a warning."""
        return _filled(self.map.rows(places, self.n_jobs, absolute=False)[0]) * self._factor

    def _row_factors(self, places: FloatArray) -> FloatArray:
        """What rows of the field are multiplied by, shape (q, 1)."""
        return np.asarray(self.map.proximity.window(places) * self.map.own(places, self.n_jobs))[:, None]


def _filled(rows: Any) -> FloatArray:
    """Rows with their zeros."""
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows)


def positions_of(features: Any, name: str) -> AbstractPositions:
    """What a fitted transformer makes of positions."""
    if not hasattr(features, "transform"):
        reject(name, "fitted features, or a sequence of them", type(features).__name__, TypeError)
    check_is_fitted(features)
    if not isinstance(features, ManifoldRandomFeatures):
        return TransformerPositions(features)
    if features.map_.space.setting.asymmetric:
        reject(name, "of a kernel with nonnegative features, not one with two sides", repr(features.kernel_))
    return FieldPositions(features.map_, check_jobs(features.n_jobs), features.device)


def check_positions(positions: Any, mode: str) -> None:
    """Raise where positions are of the wrong kind or shape, or more than the mode can do."""
    check_tensor(positions, "positions", 1)
    given = f"shape {tuple(positions.shape)}"
    if positions.ndim < 2 or not positions.numel():
        reject("positions", "a tensor of shape (..., L, d) with L >= 1", given)
    if mode == "sparse" and (positions.ndim != 2 or positions.requires_grad):
        rule = "of shape (L, d) and without gradients in the sparse mode"
        reject("positions", rule, f"{given}, requires_grad={positions.requires_grad}")


def features_at(
    parts: Sequence[AbstractPositions],
    positions: Tensor,
    weights: Sequence[Weights],
    like: Tensor,
    cut: float | None,
) -> tuple[Tensor, ...]:
    """Features of positions (..., L, d), one tensor for each part, sparse with a ``cut``; one warning for all."""
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
    """Weights of the networks as parameters."""
    if mode == "sparse":
        reject("trainable_field", "False in the sparse mode", value=True)
    lists = []
    for each in positions:
        if each.network is None:
            reject("trainable_field", 'False but for features with field="mlp", which have parameters', value=True)
        lists.append(nn.ParameterList(nn.Parameter(torch.tensor(array)) for array in each.network.weights))
    return nn.ModuleList(lists)
