"""Whether attention takes linear time, and no more of it than plain code of the same shapes.

Each row of the table says what, the figure seen, the limit, and whether it holds. All are ratios of times taken in
one run, medians over alternating calls after a first one that is not counted, in single precision with gradients
off. There are 16,384 tokens, 256 features and values of size 64.

1. explicit attention with the same kernel, its matrix formed 2048 rows at a time, over ``linear_attention``: at
   least 20;
2. a Performer's products and division in plain torch over ``linear_attention``, and a Performer's layer (linear
   layers before and after, four heads, features shared by them) over ``ManifoldAttention`` with as many features,
   1,024 and 16,384 tokens: at least 1, less 2 % of noise;
3. causal: explicit attention over ``linear_attention``, at least 5; and ``linear_attention`` over the running sum
   of all outer products, kept at every token, 1024 tokens at a time: at most 0.5;
4. both, 131,072 over 16,384 tokens, per token: at most 1.3.

An argument selects the rows whose titles contain it. ``--quick`` takes 2048 tokens. Exits with code 1 if a limit is
missed, with ``--quick`` never. The machine is to do nothing else meanwhile.
"""

import functools

import numpy as np
import torch
from table import Row, run_cases, seconds

from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere
from manifoldrf.torch import ManifoldAttention, linear_attention

N_FEATURES, SIZE, REPEATS = 256, 64, 15
ROWS = 2048  # of the explicit matrix at a time, 128 MB: the whole would take 1 GB
STEPS = 1024  # tokens whose running sums are kept at once, 64 MB


@functools.cache
def inputs(n_tokens):
    """Positive features of queries and keys, and values."""
    generator = torch.Generator().manual_seed(0)
    phi_q, phi_k = (torch.rand(n_tokens, N_FEATURES, generator=generator) for _ in range(2))
    return phi_q, phi_k, torch.randn(n_tokens, SIZE, generator=generator)


def explicit(phi_q, phi_k, v, *, causal=False):
    """Attention with the matrix of all weights, some rows at a time."""
    parts = []
    for start in range(0, len(phi_q), ROWS):
        weights = phi_q[start : start + ROWS] @ phi_k.T
        weights = weights.tril(start) if causal else weights
        parts.append((weights @ v) / weights.sum(dim=-1, keepdim=True))
    return torch.cat(parts)


def performer(phi_q, phi_k, v):
    """The products of a Performer in the right order."""
    state = phi_k.transpose(-1, -2) @ v
    return (phi_q @ state) / (phi_q @ phi_k.sum(dim=-2))[..., None]


def running_sums(phi_q, phi_k, v):
    """Causal attention by the sum of outer products at every token."""
    state, total, parts = torch.zeros(N_FEATURES, SIZE), torch.zeros(N_FEATURES), []
    for start in range(0, len(v), STEPS):
        part = slice(start, start + STEPS)
        states = state + (phi_k[part, :, None] * v[part, None, :]).cumsum(dim=0)  # (STEPS, m, d)
        totals = total + phi_k[part].cumsum(dim=0)
        found = torch.einsum("lm,lmd->ld", phi_q[part], states)
        parts.append(found / (phi_q[part] * totals).sum(dim=-1, keepdim=True))
        state, total = states[-1], totals[-1]
    return torch.cat(parts)


def ratio(first, second, repeats=REPEATS):
    """Median of the ratios of times over alternating calls, and both medians in milliseconds."""
    first(), second()
    times = np.array([(seconds(first), seconds(second)) for _ in range(repeats)])
    return float(np.median(times[:, 0] / times[:, 1])), 1000 * np.median(times, axis=0)


def compare(ours, theirs, n_tokens):
    """Say it if both do not give the same, to single precision."""
    given = inputs(n_tokens)
    off = float((ours(*given) - theirs(*given)).abs().max())
    if off > 1e-4:
        raise RuntimeError(f"{theirs} is {off:.1e} off ours")
    return functools.partial(ours, *given), functools.partial(theirs, *given)


def against_explicit(n_tokens, *, causal):
    """Time of explicit attention over ours."""
    ours, theirs = compare(
        functools.partial(linear_attention, causal=causal), functools.partial(explicit, causal=causal), n_tokens
    )
    seen, (slow, quick) = ratio(theirs, ours, 3)
    what = f"{'causal ' if causal else ''}explicit / linear attention, {n_tokens} tokens"
    return [Row(f"{what} ({slow:.0f}, {quick:.1f} ms)", seen, ">=", 5 if causal else 20)]


class PlainLayer(torch.nn.Module):
    """A layer of a Performer with the linear layers and the features of ours: heads, products, division."""

    def __init__(self, ours, phi):
        super().__init__()
        self.value, self.output, self.phi, self.n_heads = ours.value, ours.output, phi, ours.n_heads

    def forward(self, tokens):
        """Attention of the tokens."""
        values = self.value(tokens).unflatten(-1, (self.n_heads, -1)).transpose(0, 1)  # (H, L, d / H)
        return self.output(performer(self.phi, self.phi, values).transpose(0, 1).flatten(1))


def layers(n_tokens):
    """Our layer and a Performer's as functions without arguments, which give the same."""
    features = ManifoldRandomFeatures(HeatKernel(0.05), n_features=N_FEATURES, random_state=0).fit(Sphere())
    places = torch.as_tensor(Sphere().sample(n_tokens, seed=0))
    ours = ManifoldAttention(features, SIZE, n_heads=4, generator=torch.Generator().manual_seed(0))
    known, tokens = ours.precompute(places), inputs(n_tokens)[2]
    plain = PlainLayer(ours, known.groups[0])
    off = float((ours(known, tokens) - plain(tokens)).abs().max())
    if off > 1e-4:
        raise RuntimeError(f"the layers differ by {off:.1e}")
    return functools.partial(ours, known, tokens), functools.partial(plain, tokens)


def against_performer(n_tokens):
    """Time of a Performer over ours, of the products alone and of a layer."""
    rows = []
    for n in (n_tokens // 16, n_tokens):
        for what, pair in (
            ("linear attention", compare(linear_attention, performer, n)),
            ("ManifoldAttention", layers(n)),
        ):
            seen, (other, own) = ratio(*pair[::-1], 5 * REPEATS)
            rows.append(Row(f"plain torch / {what}, {n} tokens ({other:.2f}, {own:.2f} ms)", seen, ">=", 0.98))
    return rows


def against_running_sums(n_tokens):
    """Our causal time over that of running sums."""
    ours, theirs = compare(functools.partial(linear_attention, causal=True), running_sums, n_tokens)
    seen, (own, other) = ratio(ours, theirs, 3)
    return [Row(f"causal attention / running sums, {n_tokens} tokens ({own:.1f}, {other:.0f} ms)", seen, "<=", 0.5)]


def growth(n_tokens):
    """Time per token, eight times as many over so many."""
    rows = []
    for causal in (False, True):
        few, many = (functools.partial(linear_attention, *inputs(n), causal) for n in (n_tokens, 8 * n_tokens))
        seen = ratio(many, few, 5)[0] / 8
        what = f"{'causal ' if causal else ''}attention per token, {8 * n_tokens} / {n_tokens} tokens"
        rows.append(Row(what, seen, "<=", 1.3))
    return rows


CASES = {
    "explicit": functools.partial(against_explicit, causal=False),
    "performer": against_performer,
    "causal explicit": functools.partial(against_explicit, causal=True),
    "causal running sums": against_running_sums,
    "growth": growth,
}


def main():
    """Measure and print."""
    with torch.no_grad():
        run_cases("Time of attention.", CASES, 16_384, 2048)


if __name__ == "__main__":
    main()
