"""Attention with weights phi_q phi_k^T that are never formed: the order of products, prefix sums, safe division."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from scipy import sparse
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad
from torch.utils.checkpoint import checkpoint

from manifoldrf._runtime import in_a_copy
from manifoldrf._validation import FloatArray, check_integer, check_jobs, check_points, reject
from manifoldrf.applications.filling import without_small
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.features.problem import warn_of_far
from manifoldrf.fields.mlp import MlpField
from manifoldrf.fields.options import csr_tensor

# Tokens of a block of causal attention. Work per token is 2 c (m + d) inside a block of c tokens and 4 m d between
# blocks. 8192 tokens with m = 256 and d = 64 took 48, 34, 43 and 62 ms of one core with c = 64, 128, 256 and 512.
CHUNK = 128

EMPTY = ("zero", "mean")  # what stands where nothing has weight
# In half precision `smallest_mass` is .06, and sums over many tokens have lost their digits.
PRECISIONS = (torch.float32, torch.float64)
_PRECISION_RULE = "a tensor of torch.float32 or torch.float64"

Sums = tuple[Tensor, Tensor]  # A (w v) of shape (..., L, d) and A w of shape (..., L)


def keep_to_own_threads() -> None:
    """In a copy of a process (fork) hold torch to one thread: it would wait for those of the parent for good.

    It stays so, since products follow that are not made here, those of gradients. A new thread heeds the number
    only once something asked for it there.
    """
    if in_a_copy() and torch.get_num_threads() > 1:
        torch.set_num_threads(1)


def smallest_mass(dtype: torch.dtype) -> float:
    """What a sum of weights must exceed: below it, products of features have lost digits to underflow."""
    limits = torch.finfo(dtype)
    return float(limits.tiny / limits.eps)


def is_sparse(features: Tensor) -> bool:
    """Whether a tensor is stored without its zeros."""
    return features.layout != torch.strided


def weighted(v: Tensor, weights: Tensor | None) -> Tensor:
    """The values times the weights of their tokens."""
    return v if weights is None else v * weights[..., None]


def whole_sums(phi_q: Tensor, phi_k: Tensor, v: Tensor, weights: Tensor | None) -> Sums:
    """Sums over all keys."""
    if is_sparse(phi_k):
        return _sparse_sums(phi_q, phi_k, v, weights)
    # The sum of the keys is not one more column of v: a copy of v and an odd number of columns cost a tenth more.
    total = phi_k.sum(dim=-2) if weights is None else (weights[..., None, :] @ phi_k)[..., 0, :]  # (..., m)
    state = phi_k.transpose(-1, -2) @ weighted(v, weights)  # (..., m, d)
    return phi_q @ state, (phi_q @ total[..., None])[..., 0]


def _sparse_sums(phi_q: Tensor, phi_k: Tensor, v: Tensor, weights: Tensor | None) -> Sums:
    """The same for features of shapes (L, m) and (S, m) without their zeros; values may have batch dimensions."""
    found = _sparse_product(phi_q, phi_k, _with_ones(v, weights))
    return found[..., :-1], found[..., -1]


def content_sums(phi: Tensor, content: tuple[Tensor, Tensor], v: Tensor, weights: Tensor | None) -> Sums:
    """Sums for all products of sparse features (L, m) and dense ones of queries and keys (..., L, r)."""
    query, key = content
    columns = products(key, _with_ones(v, weights))  # (..., L, r (d + 1))
    found = _sparse_product(phi, phi, columns)
    summed = (query[..., None] * found.reshape(*query.shape, v.shape[-1] + 1)).sum(dim=-2)
    return summed[..., :-1], summed[..., -1]


def products(first: Tensor, second: Tensor) -> Tensor:
    """All products of features of two kinds, (..., L, a) and (..., L, b) to (..., L, a b)."""
    return (first[..., :, None] * second[..., None, :]).flatten(-2)


def _with_ones(v: Tensor, weights: Tensor | None) -> Tensor:
    """The values times their weights, and the weights as one more column, (..., S, d + 1)."""
    shape = v.shape[:-1] if weights is None else np.broadcast_shapes(v.shape[:-1], weights.shape)
    ones = v.new_ones(shape) if weights is None else weights.expand(shape)
    return torch.cat([weighted(v, weights), ones[..., None]], dim=-1)


def _sparse_product(phi_q: Tensor, phi_k: Tensor, columns: Tensor) -> Tensor:
    """phi_q (phi_k^T columns) for columns (..., S, c), all batches side by side."""
    flat = columns.movedim(-2, 0)  # (S, ..., c)
    found = phi_q @ (phi_k.t() @ flat.flatten(1))
    return found.reshape(len(phi_q), *flat.shape[1:]).movedim(0, -2)


def prefix_sums(phi_q: Tensor, phi_k: Tensor, v: Tensor, weights: Tensor | None) -> Sums:
    """Sums over the keys up to each query: masked products inside blocks, running sums between them."""
    length = v.shape[-2]
    size = max(1, min(CHUNK, length))
    q, k, values = (_blocks(part, size) for part in (phi_q, weighted(phi_k, weights), v))  # (..., n, size, .)
    scores = (q @ k.transpose(-1, -2)).tril()  # (..., n, size, size)
    before = _exclusive(k.transpose(-1, -2) @ values, -3)  # (..., n, m, d)
    total = _exclusive(k.sum(dim=-2), -2)  # (..., n, m)
    sums = scores @ values + q @ before
    mass = scores.sum(dim=-1) + (q @ total[..., None])[..., 0]
    return sums.flatten(-3, -2)[..., :length, :], mass.flatten(-2)[..., :length]


def _blocks(tokens: Tensor, size: int) -> Tensor:
    """Tokens (..., L, c) in n >= 1 blocks (..., n, size, c), the last one filled up with zeros."""
    number = max(1, -(-tokens.shape[-2] // size))
    missing = number * size - tokens.shape[-2]
    filled = pad(tokens, (0, 0, 0, missing)) if missing else tokens
    return filled.reshape(*filled.shape[:-2], number, size, filled.shape[-1])


def _exclusive(parts: Tensor, dim: int) -> Tensor:
    """Sums of what stands before each part."""
    shifted = torch.zeros_like(parts.narrow(dim, 0, 1)), parts.narrow(dim, 0, parts.shape[dim] - 1)
    return torch.cat(shifted, dim=dim).cumsum(dim=dim)


def quotient(sums: Tensor, mass: Tensor, fallback: Tensor | None) -> Tensor:
    """Sums / mass; where no mass is left the fallback, by default 0. Gradients are finite too, and 0 there."""
    if mass.dtype not in PRECISIONS:  # arguments were checked, so their products are of another type
        reject("torch.autocast", "off for attention, which sums in full precision", mass.dtype, TypeError)
    gone = mass.abs() <= smallest_mass(mass.dtype)  # not where it is NaN, which stays
    # Divided by infinity: the value is 0 and so are both derivatives, with no 0 / 0 on the way.
    found = sums / torch.where(gone, torch.inf, mass)[..., None]
    return found if fallback is None else torch.where(gone[..., None], fallback, found)


def means(sums: Sums, v: Tensor, weights: Tensor | None, *, causal: bool, empty: str) -> Tensor:
    """Weighted means of the values; where nothing has weight, 0 or the plain mean of what is visible."""
    return quotient(*sums, visible_mean(v, weights, causal=causal) if empty == "mean" else None)


def visible_mean(v: Tensor, weights: Tensor | None, *, causal: bool) -> Tensor:
    """Mean of the values visible to each query: of all, shape (..., 1, d), or up to it, shape (..., L, d)."""
    ones = v.new_ones(v.shape[-2]) if weights is None else weights
    values = weighted(v, weights)
    if causal:
        return quotient(values.cumsum(dim=-2), ones.cumsum(dim=-1), None)
    return quotient(values.sum(dim=-2, keepdim=True), ones.sum(dim=-1, keepdim=True), None)


def check_attention(phi_q: Any, phi_k: Any, v: Any, weights: Any, *, causal: bool) -> None:
    """Raise where tensors are of the wrong kind or shape."""
    for tensor, name in ((phi_q, "phi_q"), (phi_k, "phi_k"), (v, "v")):
        check_tensor(tensor, name, 2)
        _check_like(tensor, name, phi_q, "`phi_q`")
    _check_dense(v, "v")
    if phi_q.shape[-1] != phi_k.shape[-1]:
        reject("phi_k", f"of shape (..., S, {phi_q.shape[-1]}), as many features as `phi_q`", _shape(phi_k))
    if v.shape[-2] != phi_k.shape[-2]:
        reject("v", f"of shape (..., {phi_k.shape[-2]}, d), one row per key", _shape(v))
    if causal and phi_q.shape[-2] != phi_k.shape[-2]:
        reject("phi_q", f"of shape (..., {phi_k.shape[-2]}, m): causal queries are the keys", _shape(phi_q))
    _check_layout(phi_q, phi_k, causal=causal)
    batches = {"phi_q": phi_q.shape[:-2], "phi_k": phi_k.shape[:-2], "v": v.shape[:-2]}
    _check_batches(batches)
    if weights is not None:
        _check_weights(weights, v)
        _check_batches(batches | {"weights": weights.shape[:-1]})


def check_step(phi_q: Any, phi_k: Any, v: Any, sums: Tensor | None) -> None:
    """The same for the parts of one token, and against the sums (..., m, d) over those before it."""
    for tensor, name in ((phi_q, "phi_q"), (phi_k, "phi_k"), (v, "v")):
        check_tensor(tensor, name, 1)
        _check_dense(tensor, name)
        _check_like(tensor, name, phi_q, "`phi_q`")
        if sums is not None:
            _check_like(tensor, name, sums, "the token before")
    if phi_q.shape[-1] != phi_k.shape[-1]:
        reject("phi_k", f"of shape (..., {phi_q.shape[-1]}), as `phi_q` is", _shape(phi_k))
    batches = {"phi_q": phi_q.shape[:-1], "phi_k": phi_k.shape[:-1], "v": v.shape[:-1]}
    if sums is not None:
        size = phi_k.shape[-1], v.shape[-1]
        if size != sums.shape[-2:]:
            rule = "of {} features and {} values, as those of the token before".format(*sums.shape[-2:])
            reject("phi_k and v", rule, "{} and {}".format(*size))
        batches["sums"] = sums.shape[:-2]
    _check_batches(batches)


def check_tokens(tokens: Any, dim: int, like: Tensor) -> None:
    """Tokens of a module whose own numbers are like those of a tensor."""
    if like.dtype not in PRECISIONS:
        reject("ManifoldAttention", "a module of torch.float32 or torch.float64", like.dtype, TypeError)
    check_tensor(tokens, "tokens", 1)
    _check_dense(tokens, "tokens")
    if tokens.ndim < 2 or tokens.shape[-1] != dim or not tokens.shape[-2]:
        reject("tokens", f"a tensor of shape (..., L, {dim}) with L >= 1", _shape(tokens))


def check_fit(groups: Sequence[Tensor], tokens: Tensor, key_mask: Any, *, n_groups: int, mode: str) -> None:
    """Features of positions, tokens and their mask belong together."""
    if len(groups) != n_groups or any(is_sparse(phi) != (mode == "sparse") for phi in groups):
        rule = f"those of a module of mode {mode!r} and as many features, {n_groups}"
        reject("positions", rule, f"{len(groups)} of layout {', '.join(str(phi.layout) for phi in groups)}")
    length, dim = tokens.shape[-2:]
    batches = {"positions": groups[0].shape[:-2], "tokens": tokens.shape[:-2]}
    if any(phi.shape[-2] != length for phi in groups):
        rule = f"a tensor of shape (..., {groups[0].shape[-2]}, {dim}), one token per position"
        reject("tokens", rule, _shape(tokens))
    _check_batches(batches)
    if key_mask is None:
        return
    if not isinstance(key_mask, Tensor):
        reject("key_mask", "a tensor", type(key_mask).__name__, TypeError)
    if key_mask.ndim < 1 or key_mask.shape[-1] != length:
        reject("key_mask", f"a tensor of shape (..., {length}), one entry per token", _shape(key_mask))
    _check_batches(batches | {"key_mask": key_mask.shape[:-1]})


def _shape(tensor: Tensor) -> str:
    return f"shape {tuple(tensor.shape)}"


def check_tensor(tensor: Any, name: str, n_dimensions: int) -> None:
    """A tensor in single or double precision with at least so many dimensions."""
    if not isinstance(tensor, Tensor):
        reject(name, _PRECISION_RULE, type(tensor).__name__, TypeError)
    if tensor.dtype not in PRECISIONS:
        reject(name, _PRECISION_RULE, tensor.dtype, TypeError)
    if tensor.ndim < n_dimensions:
        reject(name, f"a tensor of at least {n_dimensions} dimension(s)", _shape(tensor))


def _check_like(tensor: Tensor, name: str, like: Tensor, other: str) -> None:
    """Of the same precision and on the same device as another."""
    if tensor.dtype != like.dtype:
        reject(name, f"of {like.dtype}, as {other} is", tensor.dtype, TypeError)
    if tensor.device != like.device:
        reject(name, f"on the device {like.device}, as {other} is", f"device {tensor.device}")


def _check_dense(tensor: Tensor, name: str) -> None:
    if is_sparse(tensor):
        reject(name, "a dense tensor", f"layout {tensor.layout}")


def _check_layout(phi_q: Tensor, phi_k: Tensor, *, causal: bool) -> None:
    sparse = is_sparse(phi_q), is_sparse(phi_k)
    if sparse[0] != sparse[1]:
        reject("phi_k", f"{'sparse' if sparse[0] else 'dense'}, as `phi_q` is", f"layout {phi_k.layout}")
    if sparse[0] and causal:
        reject("causal", "False for sparse features: their prefix sums would be dense", causal)
    if sparse[0] and (phi_q.ndim, phi_k.ndim) != (2, 2):
        reject("phi_q and phi_k", "of two dimensions where they are sparse", f"{phi_q.ndim} and {phi_k.ndim}")


def _check_batches(batches: Mapping[str, Sequence[int]]) -> None:
    """Leading dimensions of all arguments broadcast."""
    shapes = [tuple(batch) for batch in batches.values()]
    try:
        np.broadcast_shapes(*shapes)
    except ValueError:
        names = "`, `".join(batches)
        reject(names, "of leading dimensions that broadcast", " ".join(map(str, shapes)))


def _check_weights(weights: Any, v: Tensor) -> None:
    if not isinstance(weights, Tensor):
        reject("weights", f"a tensor of {v.dtype}", type(weights).__name__, TypeError)
    _check_like(weights, "weights", v, "`v`")
    _check_dense(weights, "weights")
    if weights.ndim < 1 or weights.shape[-1] != v.shape[-2]:
        reject("weights", f"of shape (..., {v.shape[-2]}), one per key", _shape(weights))


def check_heads(n_heads: int | None, n_given: int, dim: int) -> int:
    """Number of heads, which divides the tokens and, if there are several, is that of the features."""
    if not n_given:
        reject("features", "fitted features, or a sequence of them", "an empty sequence")
    number = n_given if n_heads is None else check_integer(n_heads, "n_heads", 1)
    if n_given > 1 and number != n_given:
        reject("n_heads", f"{n_given}, the number of features", number)
    if dim % number:
        reject("dim", f"a multiple of the number of heads, {number}", dim)
    return number


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
