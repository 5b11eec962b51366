"""Attention with weights phi_q phi_k^T that are never formed: the order of products, prefix sums, safe division."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from manifoldrf._threads import in_a_copy
from manifoldrf._validation import check_integer, reject

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
