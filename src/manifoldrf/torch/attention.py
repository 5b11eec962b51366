"""Attention in linear time whose weights are a kernel of the space that the tokens lie on (torch).

The weights phi_q phi_k^T are never formed: products are taken in the other order, and causal attention uses prefix
sums over blocks of tokens.
"""

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from manifoldrf._runtime import FIRST_PROCESS, require
from manifoldrf._validation import check_flag, check_integer, reject
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.torch.features import FLOATS, DifferentiableFeatures, check_fitted, check_tensor, features_at, wide

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn
else:  # without torch the error names the extra
    torch = require("torch", "torch")
    Tensor, nn = torch.Tensor, torch.nn


# Tokens in a block of causal attention. Work per token is 2 c (m + d) inside a block of c tokens and 4 m d between
# blocks. 8192 tokens with m = 256 and d = 64 took 48, 34, 43 and 62 ms of one core with c = 64, 128, 256 and 512.
CHUNK = 128
# A smaller sum of products of features has lost digits to underflow: 1e-31 in single, 1e-292 in double precision.
_GONE = {each: torch.finfo(each).tiny / torch.finfo(each).eps for each in (torch.float32, torch.float64)}

Sums = tuple[Tensor, Tensor]  # A (w v) of shape (..., L, d) and A w of shape (..., L, 1)


def linear_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    causal: bool = False,  # noqa: FBT001, FBT002  (an option of every attention)
    *,
    weights: Tensor | None = None,
) -> Tensor:
    r"""(A v) / (A 1) with A = phi_q phi_k^T, which is never formed: time and memory grow with L + S.

    If \|A 1\| is at most tiny / eps of the float type (1e-31 in single, 1e-292 in double precision), no visible key
    has weight: positive features far from every key are 0, and the mean would be 0 / 0. The result is then 0,
    with gradients of 0.

    Parameters
    ----------
    phi_q : tensor of shape (..., L, m)
        Features of the queries. Leading dimensions of all arguments broadcast. All arguments are on the same device
        and in double precision, or all in single or half precision, whose sums are taken in single precision.
    phi_k : tensor of shape (..., S, m)
        Features of the keys.
    v : tensor of shape (..., S, d)
        Values, finite.
    causal : bool, default=False
        Whether query i sees only the keys up to i. Needs L = S; uses sums over blocks of 128 tokens.
    weights : tensor of shape (..., S), optional
        Boolean, True for visible keys; or nonnegative weights, 0 for hidden keys. Not an additive mask.

    Returns
    -------
    means : tensor of shape (..., L, d)
        In the type of ``v`` or, under autocast, in that of autocast, like other attention in torch, unless ``v`` is
        double.

    Examples
    --------
    >>> import torch
    >>> from manifoldrf.torch import linear_attention
    >>> phi = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> v = torch.tensor([[0.0], [3.0], [6.0]])
    >>> linear_attention(phi, phi, v).ravel().tolist()
    [1.5, 3.0, 4.5]
    >>> linear_attention(phi, phi, v, causal=True).ravel().tolist()
    [0.0, 2.0, 4.5]
    """
    keep_to_own_threads()
    check_flag(causal, "causal")
    check_attention(phi_q, phi_k, v, weights, causal=causal)
    with full_precision(v):
        parts = wide(phi_q), wide(phi_k), wide(v)
        weight = None if weights is None else weights.to(parts[2])
        found = checked_attention(*parts, weight, causal=causal)
    return found.to(type_of_results(v))


class AttentionState:
    """Causal attention, one token at a time; the state has (..., m, d) numbers for any number of tokens.

    Attributes
    ----------
    sums : tensor of shape (..., m, d) or None
        Sum of phi_k v^T over the tokens so far; None before the first.
    mass : tensor of shape (..., m) or None
        Sum of phi_k over the tokens so far.
    n_tokens : int

    Examples
    --------
    >>> import torch
    >>> from manifoldrf.torch import AttentionState
    >>> state = AttentionState()
    >>> state.step(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0]), torch.tensor([0.0])).tolist()
    [0.0]
    >>> state.step(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0]), torch.tensor([3.0])).tolist()
    [2.0]
    """

    def __init__(self) -> None:
        self.sums: Tensor | None = None
        self.mass: Tensor | None = None
        self.n_tokens = 0

    def step(self, phi_q: Tensor, phi_k: Tensor, v: Tensor) -> Tensor:
        """Add the next token and return its row of causal attention.

        Parameters
        ----------
        phi_q, phi_k : tensors of shape (..., m)
        v : tensor of shape (..., d)

        Returns
        -------
        mean : tensor of shape (..., d)
        """
        keep_to_own_threads()
        for tensor, name in ((phi_q, "phi_q"), (phi_k, "phi_k"), (v, "v")):
            check_tensor(tensor, name, 1)
            if self.sums is not None:
                _check_like(tensor, name, self.sums, "the previous token")
        check_attention(phi_q[..., None, :], phi_k[..., None, :], v[..., None, :], None, causal=False)
        with full_precision(v):
            query, mass, values = wide(phi_q), wide(phi_k), wide(v)
            sums = mass[..., :, None] * values[..., None, :]
            if self.sums is not None and sums.shape != self.sums.shape:
                reject("phi_k and v", f"of the shapes of the previous token, {_shape(self.sums)}", _shape(sums))
            self.sums = sums if self.sums is None else self.sums + sums
            self.mass = mass if self.mass is None else self.mass + mass
            self.n_tokens += 1
            found = (query[..., None, :] @ self.sums)[..., 0, :]
            mean = quotient(found, (query * self.mass).sum(dim=-1, keepdim=True))
        return mean.to(type_of_results(v))


@dataclass(frozen=True, eq=False)
class PositionFeatures:
    """Features of the positions of tokens, returned by :meth:`ManifoldAttention.precompute`.

    Attributes
    ----------
    groups : tuple of tensors of shape (..., L, m)
        One tensor for each of the module's features.

    Examples
    --------
    >>> import torch
    >>> from manifoldrf.torch import PositionFeatures
    >>> places = PositionFeatures((torch.ones(50, 8), torch.ones(50, 16)))
    >>> [tuple(group.shape) for group in places.take(torch.tensor([3, 1])).groups]
    [(2, 8), (2, 16)]
    """

    groups: tuple[Tensor, ...]

    def to(self, *args: Any, **kwargs: Any) -> "PositionFeatures":
        """Move to another device or precision, like ``Tensor.to``."""
        return PositionFeatures(tuple(group.to(*args, **kwargs) for group in self.groups))

    def take(self, tokens: Tensor) -> "PositionFeatures":
        """Select some tokens by their indices."""
        return PositionFeatures(tuple(group.index_select(-2, tokens) for group in self.groups))


class ManifoldAttention(nn.Module):
    """Attention between tokens on a space, weighted by the kernel between the positions of query and key.

    The result for token i is sum_j K(x_i, x_j) c(t_i, t_j) V t_j / sum_j K(x_i, x_j) c(t_i, t_j), in time
    proportional to the number of tokens. K(x, y) = phi(x) . phi(y) is the kernel of the features; c is an optional
    positive kernel of the tokens, which is learned. The features are not part of the ``state_dict``; save them with
    :meth:`ManifoldRandomFeatures.save`.

    Parameters
    ----------
    features : fitted ManifoldRandomFeatures, or a sequence of them
        One for all heads, or one for each head. Any fitted transformer with nonnegative features works, but without
        gradients to positions.
    dim : int
        Size of a token.
    n_heads : int, optional
        By default the number of features.
    content_features : int, default=0
        Number r of features softplus(W t) of each token for the content kernel c = q . k; 0 for none. They take r
        times the work, and in causal attention m r numbers per token and head.
    causal : bool, default=False
        Whether tokens see only themselves and the tokens before them.
    trainable_times : bool, default=False
        Whether each head learns the time of its heat kernel. ``features`` is then one fit with ``times``, and the
        times of ``n_heads`` heads begin evenly spread over its range.
    projections : bool, default=True
        Whether values and results pass through linear layers. If False, each head takes a part of the tokens.
    generator : torch.Generator, optional
        For the initial values of the linear layers; the default generator of torch if None.

    Notes
    -----
    Gradients to positions are central differences of the features in double precision, with steps of 6e-6 of the
    kernel's width, accurate to about 1e-9 (3e-4 and 1e-3 for a network, which computes in single precision); at a
    jump they are one-sided. Gradients are taken in the ambient space: if a position must stay on the space, use the
    tangential part.

    Under ``torch.autocast`` linear layers compute in half precision. Features and sums stay in single precision,
    and the result has the type of autocast. Modules and tokens in half precision work in the same way.

    Examples
    --------
    >>> import torch
    >>> from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere
    >>> from manifoldrf.torch import ManifoldAttention
    >>> features = ManifoldRandomFeatures(HeatKernel(0.1), n_features=128, random_state=0).fit(Sphere())
    >>> attention = ManifoldAttention(features, dim=16, n_heads=4, content_features=2)
    >>> positions = torch.as_tensor(Sphere().sample(100, seed=1))
    >>> attention(positions, torch.ones(3, 100, 16)).shape
    torch.Size([3, 100, 16])
    """

    def __init__(
        self,
        features: Any,
        dim: int,
        *,
        n_heads: int | None = None,
        content_features: int = 0,
        causal: bool = False,
        trainable_times: bool = False,
        projections: bool = True,
        generator: torch.Generator | None = None,
    ) -> None:
        keep_to_own_threads()
        super().__init__()
        self.features = tuple(features) if isinstance(features, Sequence) else (features,)
        self.dim = check_integer(dim, "dim", 1)
        self.head_times: nn.ModuleList | None = None
        if check_flag(trainable_times, "trainable_times"):
            self.head_times = _head_times(self.features, 1 if n_heads is None else n_heads)
            self.features = self.features * len(self.head_times)
        for each in self.features:
            if not hasattr(each, "transform"):
                reject("features", "fitted features, or a sequence of them", type(each).__name__, TypeError)
            (check_fitted if isinstance(each, ManifoldRandomFeatures) else check_is_fitted)(each)
        self.n_heads = check_heads(n_heads, len(self.features), self.dim)
        self.content_features = check_integer(content_features, "content_features", 0)
        self.causal = check_flag(causal, "causal")
        inner = self.dim if check_flag(projections, "projections") else 0
        self.value, self.output = (_linear(self.dim, inner, generator) for _ in range(2))
        width = self.n_heads * self.content_features
        self.query, self.key = (_linear(self.dim, width, generator) for _ in range(2))
        # Follows the module to another precision or device, even without layers.
        self._like: Tensor
        self.register_buffer("_like", torch.zeros(()), persistent=False)

    def extra_repr(self) -> str:
        """Options for printing."""
        return f"dim={self.dim}, n_heads={self.n_heads}, causal={self.causal}"

    def precompute(self, positions: Tensor) -> PositionFeatures:
        """Compute the features of fixed positions once; pass the result to the module in their place.

        Parameters
        ----------
        positions : tensor of shape (..., L, d)
        """
        if self.head_times is not None:
            raise ValueError("Trainable times have no fixed features; pass the positions themselves.")
        return self._at(positions.detach())

    def frozen(self, positions: Tensor) -> "FixedPositions":
        """A module of the tokens alone, for fixed positions and the current parameters: for ``torch.export``.

        Parameters
        ----------
        positions : tensor of shape (..., L, d)
        """
        with torch.no_grad():
            return FixedPositions(self, self._at(positions.detach()))

    def _at(self, positions: Tensor) -> PositionFeatures:
        keep_to_own_threads()
        check_tensor(positions, "positions", 2, FLOATS[:2])  # half precision has two or three digits
        with full_precision(self._like):
            if self.head_times is not None:
                return PositionFeatures(tuple(head.root(positions) for head in self.head_times))  # type: ignore[operator]
            return PositionFeatures(tuple(features_at(each, positions, wide(self._like)) for each in self.features))

    def forward(
        self, positions: Tensor | PositionFeatures, tokens: Tensor, key_mask: Tensor | None = None
    ) -> Tensor:
        """Compute the attention.

        Parameters
        ----------
        positions : tensor of shape (..., L, d), or PositionFeatures
            Leading dimensions broadcast against those of ``tokens``, so one set of positions serves a batch.
        tokens : tensor of shape (..., L, dim)
            In the precision of the module.
        key_mask : tensor of shape (..., L), optional
            Boolean, True for visible tokens; or nonnegative weights, 0 for hidden tokens. The additive masks of
            other transformers, 0 for visible tokens and -inf for others, are given as ``mask == 0``.

        Returns
        -------
        result : tensor of shape (..., L, dim)
        """
        keep_to_own_threads()
        check_tensor(tokens, "tokens", 1)
        has_layers = self.value is not None or self.query is not None
        if has_layers and tokens.dtype != self._like.dtype and cast_type(tokens) is None:
            rule = f"of {self._like.dtype}, as the module is, outside of torch.autocast"
            reject("tokens", rule, tokens.dtype, TypeError)
        if tokens.ndim < 2 or tokens.shape[-1] != self.dim:
            reject("tokens", f"a tensor of shape (..., L, {self.dim})", _shape(tokens))
        found = positions if isinstance(positions, PositionFeatures) else self._at(positions)
        if len(found.groups) != len(self.features):
            reject("positions", f"those of a module with {len(self.features)} features", f"{len(found.groups)}")
        if any(phi.shape[-2] != tokens.shape[-2] for phi in found.groups):
            reject("tokens", f"of shape (..., {found.groups[0].shape[-2]}, {self.dim})", _shape(tokens))
        if key_mask is not None:
            _check_weights(key_mask, "key_mask", tokens.shape[-2])
        projected = tokens if self.value is None else self.value(tokens)  # (..., L, dim)
        content = [None if each is None else each(tokens) for each in (self.query, self.key)]  # (..., L, H r)
        with full_precision(projected):
            count = len(found.groups)
            values = wide(projected).chunk(count, dim=-1)
            parts = [
                [None] * count if each is None else nn.functional.softplus(wide(each)).chunk(count, dim=-1)
                for each in content
            ]
            weights = None if key_mask is None else key_mask.to(values[0])
            results = [
                self._attend(phi.to(v), v, query, key, weights)
                for phi, v, query, key in zip(found.groups, values, *parts, strict=True)
            ]
            joined = results[0] if len(results) == 1 else torch.cat(results, dim=-1)
        joined = joined.to(type_of_results(projected))
        result: Tensor = joined if self.output is None else self.output(joined)
        return result

    def _heads(self, tokens: Tensor, n_heads: int) -> Tensor:
        """Split tokens (..., L, c) among heads, (..., h, L, c / h)."""
        return tokens.reshape(*tokens.shape[:-1], n_heads, tokens.shape[-1] // n_heads).transpose(-2, -3)

    def _attend(
        self, phi: Tensor, v: Tensor, query: Tensor | None, key: Tensor | None, weights: Tensor | None
    ) -> Tensor:
        """Attention of the heads that share features of positions, side by side, (..., L, c)."""
        if query is None or key is None:  # without content the heads have the same weights
            return checked_attention(phi, phi, v, weights, causal=self.causal)
        n_heads = self.n_heads * v.shape[-1] // self.dim
        q, k, values = (self._heads(each, n_heads) for each in (query, key, v))  # (..., h, L, .)
        each_key = None if weights is None else weights[..., None, :]  # (..., 1, L)
        if self.causal:
            left, right = (products(phi[..., None, :, :], each) for each in (q, k))
            found = checked_attention(left, right, values, each_key, causal=True)
        else:
            # The content goes to the columns, so that its products with features of positions are not formed.
            columns = products(k, _with_ones(values, each_key)).transpose(-2, -3)  # (..., L, h, r (d + 1))
            seen = self._heads(_product(phi, phi, columns.flatten(-2)), n_heads)
            parts = seen.reshape(*seen.shape[:-1], q.shape[-1], values.shape[-1] + 1)
            sums = (q[..., None] * parts).sum(dim=-2)  # (..., h, L, d + 1)
            found = quotient(sums[..., :-1], sums[..., -1:])
        return found.transpose(-2, -3).flatten(-2)


class FixedPositions(nn.Module):
    """Attention between tokens at fixed positions, made by :meth:`ManifoldAttention.frozen`.

    Parameters
    ----------
    attention : ManifoldAttention
        Shared, not copied.
    places : PositionFeatures
    """

    def __init__(self, attention: ManifoldAttention, places: PositionFeatures) -> None:
        super().__init__()
        self.attention = attention
        for number, group in enumerate(places.groups):
            self.register_buffer(f"places{number}", group)
        self.n_groups = len(places.groups)

    def forward(self, tokens: Tensor, key_mask: Tensor | None = None) -> Tensor:
        """The attention, as :meth:`ManifoldAttention.forward`."""
        groups = tuple(getattr(self, f"places{number}") for number in range(self.n_groups))
        found: Tensor = self.attention(PositionFeatures(groups), tokens, key_mask)
        return found


def _head_times(features: tuple[Any, ...], n_heads: int) -> nn.ModuleList:
    """One heat kernel with a trainable time for each head."""
    number = check_integer(n_heads, "n_heads", 1)
    family = getattr(features[0], "times_", None) if len(features) == 1 else None
    if family is None:
        reject("features", "one fit with `times` where times are trained", f"{len(features)} without")
    times = np.geomspace(family.shortest, family.longest, number + 2)[1:-1]
    heads = [DifferentiableFeatures(features[0], float(t)) for t in times]
    for head in heads:
        head.kept = heads[0].kept  # all heads use the same tables
        head.log_variance.requires_grad_(False)  # noqa: FBT003  (torch has no keyword); it cancels in the means
    return nn.ModuleList(heads)


def _linear(n_in: int, n_out: int, generator: torch.Generator | None) -> nn.Linear | None:
    """A linear layer initialised by the given generator; None without outputs."""
    if not n_out:
        return None
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, n_in, n_out)  # type: ignore[no-untyped-call]
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def keep_to_own_threads() -> None:
    """In a forked process limit torch to one thread: it would wait forever for the threads of the parent.

    The limit stays, because the backward pass computes products later. A new thread uses the limit only after
    ``get_num_threads`` was called in it.
    """
    if os.getpid() != FIRST_PROCESS and torch.get_num_threads() > 1:
        torch.set_num_threads(1)


def weighted(v: Tensor, weights: Tensor | None) -> Tensor:
    """Multiply the values by the weights of their tokens."""
    return v if weights is None else v * weights[..., None]


def full_precision(like: Tensor) -> AbstractContextManager[Any]:
    """Switch autocast off on the device of a tensor: sums in half precision lose their digits."""
    return nullcontext() if cast_type(like) is None else torch.autocast(like.device.type, enabled=False)


def cast_type(like: Tensor) -> torch.dtype | None:
    """Type of autocast on the device of a tensor; None if autocast is off."""
    kind = like.device.type
    on = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if on else None


def type_of_results(v: Tensor) -> torch.dtype:
    """Type of attention with these values; autocast leaves double precision alone."""
    return v.dtype if v.dtype == torch.float64 else cast_type(v) or v.dtype


def checked_attention(phi_q: Tensor, phi_k: Tensor, v: Tensor, weights: Tensor | None, *, causal: bool) -> Tensor:
    """As :func:`linear_attention`, for valid arguments in one precision."""
    return quotient(*(prefix_sums if causal else whole_sums)(phi_q, phi_k, v, weights))


def whole_sums(phi_q: Tensor, phi_k: Tensor, v: Tensor, weights: Tensor | None) -> Sums:
    """Sums over all keys."""
    # Adding a column of ones to v instead would cost 10 % more: a copy of v and an odd number of columns.
    total = phi_k.sum(dim=-2) if weights is None else (weights[..., None, :] @ phi_k)[..., 0, :]  # (..., m)
    return _product(phi_q, phi_k, weighted(v, weights)), phi_q @ total[..., None]


def products(first: Tensor, second: Tensor) -> Tensor:
    """All products of two kinds of features, (..., L, a) and (..., L, b) to (..., L, a b)."""
    return (first[..., :, None] * second[..., None, :]).flatten(-2)


def _with_ones(v: Tensor, weights: Tensor | None) -> Tensor:
    """The weighted values, with the weights as one more column, (..., S, d + 1)."""
    shape = v.shape[:-1] if weights is None else np.broadcast_shapes(v.shape[:-1], weights.shape)
    ones = v.new_ones(shape) if weights is None else weights.expand(shape)
    return torch.cat([weighted(v, weights), ones[..., None]], dim=-1)


def _product(phi_q: Tensor, phi_k: Tensor, columns: Tensor) -> Tensor:
    """phi_q (phi_k^T columns) for columns (..., S, c)."""
    # (columns^T phi_k)^T takes 3 % less time than phi_k^T columns, 256 features and 64 columns on one core.
    return phi_q @ (columns.transpose(-1, -2) @ phi_k).transpose(-1, -2)


def prefix_sums(phi_q: Tensor, phi_k: Tensor, v: Tensor, weights: Tensor | None) -> Sums:
    """Sums over the keys up to each query: masked products inside blocks, running sums between them."""
    length = v.shape[-2]
    size = max(1, min(CHUNK, length))
    q, k, values = (_blocks(part, size) for part in (phi_q, weighted(phi_k, weights), v))  # (..., n, size, .)
    scores = (q @ k.transpose(-1, -2)).tril()  # (..., n, size, size)
    before = _exclusive(k.transpose(-1, -2) @ values, -3)  # (..., n, m, d)
    total = _exclusive(k.sum(dim=-2), -2)  # (..., n, m)
    sums = scores @ values + q @ before
    mass = scores.sum(dim=-1, keepdim=True) + q @ total[..., None]
    return sums.flatten(-3, -2)[..., :length, :], mass.flatten(-3, -2)[..., :length, :]


def _blocks(tokens: Tensor, size: int) -> Tensor:
    """Split tokens (..., L, c) into n >= 1 blocks (..., n, size, c); the last is padded with zeros."""
    number = max(1, -(-tokens.shape[-2] // size))
    missing = number * size - tokens.shape[-2]
    filled = nn.functional.pad(tokens, (0, 0, 0, missing)) if missing else tokens
    return filled.reshape(*filled.shape[:-2], number, size, filled.shape[-1])


def _exclusive(parts: Tensor, dim: int) -> Tensor:
    """Sums of the parts before each part."""
    shifted = torch.zeros_like(parts.narrow(dim, 0, 1)), parts.narrow(dim, 0, parts.shape[dim] - 1)
    return torch.cat(shifted, dim=dim).cumsum(dim=dim)


def quotient(sums: Tensor, mass: Tensor) -> Tensor:
    """Sums / mass (..., 1); 0 where the mass vanishes, with gradients of 0.

    The sums may be overwritten.
    """
    gone = mass.detach().abs() <= _GONE[mass.dtype]  # False for NaN, which is kept
    # Division by infinity makes the value and both derivatives 0, without 0 / 0.
    divisor = mass.masked_fill(gone, torch.inf)
    tracked = sums.requires_grad or divisor.requires_grad
    return sums / divisor if tracked else sums.div_(divisor)  # new memory takes a tenth of the time


def check_attention(phi_q: Any, phi_k: Any, v: Any, weights: Any, *, causal: bool) -> None:
    """Refuse tensors of the wrong kind or shape; torch checks that leading dimensions broadcast."""
    for tensor, name in ((phi_q, "phi_q"), (phi_k, "phi_k"), (v, "v")):
        check_tensor(tensor, name, 2)
        _check_like(tensor, name, phi_q, "`phi_q`")
    length, m = phi_k.shape[-2:]
    if phi_q.shape[-1] != m or (causal and phi_q.shape[-2] != length):
        rows = length if causal else "L"
        reject("phi_q", f"of shape (..., {rows}, {m}), like `phi_k`", _shape(phi_q))
    if v.shape[-2] != length:
        reject("v", f"of shape (..., {length}, d), one row per key", _shape(v))
    if weights is not None:
        _check_weights(weights, "weights", length)
        if weights.dtype != torch.bool:
            _check_like(weights, "weights", v, "`v`")


def _shape(tensor: Tensor) -> str:
    return f"shape {tuple(tensor.shape)}"


def _check_like(tensor: Tensor, name: str, like: Tensor, other: str) -> None:
    """Check that the sums of a tensor have the precision of those of another; torch checks the device."""
    if tensor.dtype not in FLOATS or (tensor.dtype == torch.float64) != (like.dtype == torch.float64):
        reject(name, f"of {like.dtype}, as {other} is", tensor.dtype, TypeError)


def _check_weights(weights: Any, name: str, length: int) -> None:
    """Refuse all but boolean masks and nonnegative weights; an additive mask would show what it hides."""
    if not isinstance(weights, Tensor) or weights.ndim < 1 or weights.shape[-1] != length:
        found = _shape(weights) if isinstance(weights, Tensor) else type(weights).__name__
        reject(name, f"a tensor of shape (..., {length}), one entry per token", found)
    if weights.dtype == torch.bool or weights.is_meta or torch.compiler.is_compiling():
        return
    if not ((weights >= 0) & (weights < torch.inf)).all():
        rule = "boolean (True for visible tokens), or finite and nonnegative; of an additive mask pass `mask == 0`"
        reject(name, rule, f"smallest {weights.min().item():g}, largest {weights.max().item():g}")


def check_heads(n_heads: int | None, n_given: int, dim: int) -> int:
    """Number of heads: it divides the size of a token, and equals the number of features if there are several."""
    if not n_given:
        reject("features", "fitted features, or a sequence of them", "an empty sequence")
    number = n_given if n_heads is None else check_integer(n_heads, "n_heads", 1)
    if n_given > 1 and number != n_given:
        reject("n_heads", f"{n_given}, the number of features", number)
    if dim % number:
        reject("dim", f"a multiple of the number of heads, {number}", dim)
    return number
