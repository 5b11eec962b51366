"""Attention in linear time whose weights are a kernel of the space that the tokens lie on (torch)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from manifoldrf._random import SeedLike
from manifoldrf._validation import Interval, check_flag, check_integer, check_option, check_real, reject
from manifoldrf.applications.positions import (
    EMPTY,
    check_attention,
    check_fit,
    check_heads,
    check_positions,
    check_step,
    check_tokens,
    content_sums,
    features_at,
    field_parameters,
    keep_to_own_threads,
    means,
    positions_of,
    prefix_sums,
    products,
    quotient,
    whole_sums,
)
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.kernels.manifold_kernels import HeatKernel

__all__ = ["AttentionState", "ManifoldAttention", "PositionFeatures", "linear_attention"]

MODES = ("dense", "sparse")
_SHARE = Interval(0.0, 1.0, high_open=True)


def linear_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    causal: bool = False,  # noqa: FBT001, FBT002  (an option of every attention)
    *,
    weights: Tensor | None = None,
    empty: str = "zero",
) -> Tensor:
    r"""(A v) / (A 1) with A = phi_q phi_k^T, which is never formed: time and memory grow with L + S.

    Where \|A 1\| is not above tiny / eps of the float type (1e-31 in single, 1e-292 in double precision) nothing
    visible has weight: positive features far from every key are 0, and the mean would be 0 / 0. The result is then
    what ``empty`` says, with gradients of 0.

    Parameters
    ----------
    phi_q : tensor of shape (..., L, m)
        Features of the queries; leading dimensions of all arguments broadcast. All are of one type, single or
        double precision, and on one device.
    phi_k : tensor of shape (..., S, m)
        Features of the keys. Both may be sparse tensors of two dimensions, such as CSR, if not ``causal``;
        gradients then reach ``v`` and ``weights`` only.
    v : tensor of shape (..., S, d)
        Values, finite.
    causal : bool, default=False
        Whether query i sees the keys up to i only, for L = S: by sums over blocks of 128 tokens.
    weights : tensor of shape (..., S), optional
        Of the keys, such as 0 for those that are masked and 1 for the others.
    empty : {"zero", "mean"}, default="zero"
        What stands where nothing has weight: 0, or the mean of the values that are visible.

    Returns
    -------
    means : tensor of shape (..., L, d)

    Examples
    --------
    >>> import torch
    >>> from manifoldrf.applications.attention import linear_attention
    >>> phi = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    >>> v = torch.tensor([[0.0], [3.0], [6.0]])
    >>> linear_attention(phi, phi, v).ravel().tolist()
    [1.5, 3.0, 4.5]
    >>> linear_attention(phi, phi, v, causal=True).ravel().tolist()
    [0.0, 2.0, 4.5]
    """
    keep_to_own_threads()
    check_flag(causal, "causal")
    check_option(empty, "empty", EMPTY)
    check_attention(phi_q, phi_k, v, weights, causal=causal)
    sums = (prefix_sums if causal else whole_sums)(phi_q, phi_k, v, weights)
    return means(sums, v, weights, causal=causal, empty=empty)


class AttentionState:
    """Causal attention one token after the other: the state is (..., m, d) numbers, however many tokens came.

    Parameters
    ----------
    empty : {"zero", "mean"}, default="zero"
        As in :func:`linear_attention`.

    Attributes
    ----------
    sums : tensor of shape (..., m, d) or None
        Sum of phi_k v^T over the tokens that came; None before the first.
    mass : tensor of shape (..., m) or None
        Sum of phi_k.
    n_tokens : int

    Examples
    --------
    >>> import torch
    >>> from manifoldrf.applications.attention import AttentionState
    >>> state = AttentionState()
    >>> state.step(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0]), torch.tensor([0.0])).tolist()
    [0.0]
    >>> state.step(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1.0]), torch.tensor([3.0])).tolist()
    [2.0]
    """

    def __init__(self, empty: str = "zero") -> None:
        self.empty = check_option(empty, "empty", EMPTY)
        self.sums: Tensor | None = None
        self.mass: Tensor | None = None
        self.n_tokens = 0
        self._values: Tensor | None = None  # sum of all v, for their mean

    def step(self, phi_q: Tensor, phi_k: Tensor, v: Tensor) -> Tensor:
        """Take in the next token and return what it sees: the row of causal attention that belongs to it.

        Parameters
        ----------
        phi_q, phi_k : tensors of shape (..., m)
        v : tensor of shape (..., d)

        Returns
        -------
        mean : tensor of shape (..., d)
        """
        keep_to_own_threads()
        check_step(phi_q, phi_k, v, self.sums)
        sums, mass = phi_k[..., :, None] * v[..., None, :], phi_k
        self.sums = sums if self.sums is None else self.sums + sums
        self.mass = mass if self.mass is None else self.mass + mass
        self._values = v if self._values is None else self._values + v
        self.n_tokens += 1
        found = (phi_q[..., None, :] @ self.sums)[..., 0, :]
        fallback = self._values / self.n_tokens if self.empty == "mean" else None
        return quotient(found, (phi_q * self.mass).sum(dim=-1), fallback)


@dataclass(frozen=True, eq=False)
class PositionFeatures:
    """Features of the positions of tokens, made by :meth:`ManifoldAttention.precompute`.

    Attributes
    ----------
    groups : tuple of tensors of shape (..., L, m)
        One for each of the features of the module; CSR in the sparse mode.

    Examples
    --------
    >>> import torch
    >>> from manifoldrf.applications.attention import PositionFeatures
    >>> places = PositionFeatures((torch.ones(50, 8), torch.ones(50, 16)))
    >>> [tuple(group.shape) for group in places.take(torch.tensor([3, 1])).groups]
    [(2, 8), (2, 16)]
    """

    groups: tuple[Tensor, ...]

    def to(self, *args: Any, **kwargs: Any) -> "PositionFeatures":
        """The same on another device or in another precision, as ``Tensor.to``."""
        return PositionFeatures(tuple(group.to(*args, **kwargs) for group in self.groups))

    def take(self, tokens: Tensor) -> "PositionFeatures":
        """Those of some tokens, given by their numbers; of dense features only."""
        return PositionFeatures(tuple(group.index_select(-2, tokens) for group in self.groups))


class ManifoldAttention(nn.Module):
    """Attention between tokens on a space: the weight of a key is the kernel between its position and the query's.

    Token i takes up sum_j K(x_i, x_j) c(t_i, t_j) V t_j / sum_j K(x_i, x_j) c(t_i, t_j), all in time proportional
    to the number of tokens. K(x, y) = phi(x) . phi(y) is the kernel of the features; c, if wanted, is a positive
    kernel of the tokens themselves that is learnt. The features are not part of the ``state_dict``:
    :meth:`ManifoldRandomFeatures.save` keeps them.

    Parameters
    ----------
    features : fitted ManifoldRandomFeatures, or a sequence of them
        For all heads, or one for each head. Any fitted transformer with nonnegative features will do, but without
        gradients to positions.
    dim : int
        Size of a token.
    n_heads : int, optional
        By default as many as there are features.
    content_features : int, default=0
        r features softplus(W t) of each token for the content kernel c = q . k; 0 for none. Products with the
        features of positions take m r numbers per token and head.
    mode : {"dense", "sparse"}, default="dense"
        "sparse": features without their zeros, for many anchors (about a quarter of the number of tokens) with
        short kernels. Not causal, positions of shape (L, d), and no gradients to them.
    causal : bool, default=False
        Whether tokens see those before them and themselves only.
    trainable_field : bool, default=False
        Whether the network of the features (``field="mlp"``) is trained along: its weights become parameters.
    projections : bool, default=True
        Whether values and results pass a linear layer. Without, heads are parts of the tokens.
    empty : {"zero", "mean"}, default="zero"
        What a token takes up where no other has weight, as in :func:`linear_attention`.
    cut : float, default=1e-3
        In the sparse mode, features below this share of the token's largest count as zeros. A mean moves by about
        as much, relative to the spread of the values.
    generator : torch.Generator, optional
        For the first values of the linear layers; torch's own by default.

    Notes
    -----
    Gradients to positions are exact through a network. Through other fields they are central differences of the
    features in double precision, with steps of 6e-6 of the kernel's width, which are off by about 1e-9; where the
    field has a jump, on the side without it. They are derivatives in the space around: of a position that is to
    stay on the space take the tangential part.

    Examples
    --------
    >>> import torch
    >>> from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere
    >>> from manifoldrf.applications.attention import ManifoldAttention
    >>> features = ManifoldRandomFeatures(HeatKernel(0.1), n_features=128, random_state=0).fit(Sphere())
    >>> attention = ManifoldAttention(features, dim=16, n_heads=4, content_features=2)
    >>> positions = torch.as_tensor(Sphere().sample(100, seed=1))
    >>> attention(positions, torch.ones(3, 100, 16)).shape
    torch.Size([3, 100, 16])
    """

    def __init__(  # noqa: PLR0913  (a module remembers all its options)
        self,
        features: Any,
        dim: int,
        *,
        n_heads: int | None = None,
        content_features: int = 0,
        mode: str = "dense",
        causal: bool = False,
        trainable_field: bool = False,
        projections: bool = True,
        empty: str = "zero",
        cut: float = 1e-3,
        generator: torch.Generator | None = None,
    ) -> None:
        keep_to_own_threads()
        super().__init__()
        self.features = tuple(features) if isinstance(features, Sequence) else (features,)
        self.dim = check_integer(dim, "dim", 1)
        self.n_heads = check_heads(n_heads, len(self.features), self.dim)
        self.content_features = check_integer(content_features, "content_features", 0)
        self.mode = check_option(mode, "mode", MODES)
        self.causal = check_flag(causal, "causal")
        self.empty = check_option(empty, "empty", EMPTY)
        self.cut = check_real(cut, "cut", _SHARE)
        if self.causal and self.mode == "sparse":
            reject("mode", "'dense' for causal attention: a sparse state grows with the anchors", repr(mode))
        self._positions = [positions_of(each, "features") for each in self.features]
        self.field_weights = (
            field_parameters(self._positions, self.mode) if check_flag(trainable_field, "trainable_field") else None
        )
        inner = self.dim if check_flag(projections, "projections") else 0
        self.value, self.output = (_linear(self.dim, inner, generator) for _ in range(2))
        width = self.n_heads * self.content_features
        self.query, self.key = (_linear(self.dim, width, generator) for _ in range(2))
        # Follows the module to another precision or device, also where there are no layers.
        self._like: Tensor
        self.register_buffer("_like", torch.zeros(()), persistent=False)

    @classmethod
    def at_times(
        cls,
        space: Any,
        times: Sequence[float],
        dim: int,
        *,
        n_features: int | str = "auto",
        random_state: SeedLike = None,
        **options: Any,
    ) -> Self:
        """One head for each heat time: from near neighbours to the whole space.

        Parameters
        ----------
        space : array-like, TriangleMesh, AbstractManifold or Graph
            As in :meth:`ManifoldRandomFeatures.fit`.
        times : sequence of float
        dim : int
        n_features : int or {"auto", "all"}, default="auto"
            Of each head.
        random_state : None, int, Generator or RandomState, default=None
        **options
            Of the module.

        Examples
        --------
        >>> from manifoldrf import Sphere
        >>> from manifoldrf.applications.attention import ManifoldAttention
        >>> ManifoldAttention.at_times(Sphere(), [0.1, 0.5], 8, n_features=128, random_state=0).n_heads
        2
        """
        common: dict[str, Any] = {"n_features": n_features, "random_state": random_state}
        return cls([ManifoldRandomFeatures(HeatKernel(t), **common).fit(space) for t in times], dim, **options)

    def extra_repr(self) -> str:
        """Options, for printing."""
        return f"dim={self.dim}, n_heads={self.n_heads}, mode={self.mode!r}, causal={self.causal}"

    def precompute(self, positions: Tensor) -> PositionFeatures:
        """Features of positions that stay: given to the module in their place they are not computed again.

        Parameters
        ----------
        positions : tensor of shape (..., L, d)
        """
        if self.field_weights is not None:
            raise ValueError("A field that is trained has no fixed features; give positions themselves.")
        return self._at(positions.detach())

    def _at(self, positions: Tensor) -> PositionFeatures:
        keep_to_own_threads()
        check_positions(positions, self.mode)
        weights: list[Any] = [None] * len(self._positions)
        if self.field_weights is not None:
            weights = [list(each.parameters()) for each in self.field_weights]
        cut = self.cut if self.mode == "sparse" else None
        return PositionFeatures(features_at(self._positions, positions, weights, self._like, cut))

    def forward(
        self, positions: Tensor | PositionFeatures, tokens: Tensor, key_mask: Tensor | None = None
    ) -> Tensor:
        """Attend.

        Parameters
        ----------
        positions : tensor of shape (..., L, d), or PositionFeatures
            Leading dimensions broadcast against those of ``tokens``: one set of positions serves a batch.
        tokens : tensor of shape (..., L, dim)
            L >= 1 of them, in single or double precision.
        key_mask : tensor of shape (..., L), optional
            True for the tokens that others may see; or weights, 0 for those that they may not.

        Returns
        -------
        result : tensor of shape (..., L, dim)
        """
        keep_to_own_threads()
        check_tokens(tokens, self.dim, self._like)
        found = positions if isinstance(positions, PositionFeatures) else self._at(positions)
        check_fit(found.groups, tokens, key_mask, n_groups=len(self.features), mode=self.mode)
        weights = None if key_mask is None else key_mask.to(tokens)[..., None, :]  # (..., 1, L)
        values = self._heads(tokens if self.value is None else self.value(tokens))  # (..., H, L, dim / H)
        content = [None if each is None else softplus(self._heads(each(tokens))) for each in (self.query, self.key)]
        per_group = self.n_heads // len(found.groups)
        results = []
        for number, phi in enumerate(found.groups):
            heads = slice(number * per_group, (number + 1) * per_group)
            own = [None if each is None else each[..., heads, :, :] for each in content]
            results.append(self._attend(phi.to(values), values[..., heads, :, :], own, weights))
        joined = torch.cat(results, dim=-3).transpose(-2, -3).flatten(-2)  # (..., L, dim)
        result: Tensor = joined if self.output is None else self.output(joined)
        return result

    def _heads(self, tokens: Tensor) -> Tensor:
        """Tokens (..., L, c) divided among heads, (..., H, L, c / H)."""
        return tokens.reshape(*tokens.shape[:-1], self.n_heads, tokens.shape[-1] // self.n_heads).transpose(-2, -3)

    def _attend(self, phi: Tensor, values: Tensor, content: list[Any], weights: Tensor | None) -> Tensor:
        """Some heads that share the features of positions, (..., h, L, dim / H)."""
        query, key = content
        if self.mode == "dense":
            shared = phi[..., None, :, :]  # (..., 1, L, m)
            left, right = (shared if each is None else products(shared, each) for each in content)
            return linear_attention(left, right, values, self.causal, weights=weights, empty=self.empty)
        if query is None or key is None:
            return linear_attention(phi, phi, values, weights=weights, empty=self.empty)
        sums = content_sums(phi, (query, key), values, weights)
        return means(sums, values, weights, causal=False, empty=self.empty)


def _linear(n_in: int, n_out: int, generator: torch.Generator | None) -> nn.Linear | None:
    """A linear layer whose first values come from one's own generator; none without outputs."""
    if not n_out:
        return None
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, n_in, n_out)  # type: ignore[no-untyped-call]
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
