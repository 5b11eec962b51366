"""Attention between L tokens at random places of the sphere, weighted by the heat kernel of their places.

Values have 64 numbers per token, single precision, no gradients. The exact result is that of the sphere's own
kernel, in double precision, for 256 queries; the error is relative, in the Frobenius norm. Softmax attention has
the places over sqrt(2 t) as queries and keys, so that its weights are the Gaussian of the space around: it is the
usual attention, and exact in its own kernel, of which its error here is the distance to that of the sphere. The
Performer's positive features, orthogonal, approximate that softmax, and the note says how well; its errors are
means of three seeds. Places stay the same from layer to layer, so features of places are preparation, for both.
Queries and keys have 3 columns. Only the fused softmax of torch has 64, zeros but for three, since it demands as
many as values have: with 3 it falls back to the whole matrix, and takes longer.
"""

import functools
import math

import numpy as np
import torch
from torch.nn.functional import pad, scaled_dot_product_attention

from benchmarks.peers.measure import OURS, Row, not_run, timed
from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere, relative_error
from manifoldrf.torch import linear_attention

JOB = "attention"
T, HEAD, N_SCORED = 0.05, 64, 256
SEEDS = (1, 2, 3)  # of the Performer's directions
MOST_BYTES = 6e9  # of a matrix of weights and its softmax
SIZES = {
    "full": {"tokens": (1024, 4096, 16_384, 65_536), "features": (256, 512)},
    "smoke": {"tokens": (512, 1024), "features": (256,)},
}


class Problem:
    """Tokens, their places and values, and the exact means of some."""

    def __init__(self, n_tokens):
        self.n = n_tokens
        self.case = f"{n_tokens:,} tokens"
        self.places = Sphere().sample(n_tokens, seed=0)
        self.values = torch.randn(n_tokens, HEAD, generator=torch.Generator().manual_seed(0))
        # A signal on the sphere in noise, so that means differ from place to place.
        self.values[:, :3] += 3 * torch.from_numpy(self.places).float()
        self.keys = torch.from_numpy(self.places / math.sqrt(2 * T)).float()
        self.exact = self._means(Sphere().heat_kernel(self.places[:N_SCORED], self.places, T))
        self.softmax = self._means(np.exp((self.places[:N_SCORED] @ self.places.T - 1) / (2 * T)))

    def _means(self, weights):
        return (weights @ self.values.double().numpy()) / weights.sum(axis=1, keepdims=True)

    def row(self, method, preparation, function, *others):
        """A row from a function that returns the means of all tokens; its errors are averaged with those of others.

        The others are the same with another seed, and not timed.
        """
        seconds, found = timed(function)
        some = [means[:N_SCORED].double().numpy() for means in (found, *(other() for other in others))]
        error = float(np.mean([relative_error(means, self.exact) for means in some]))
        off = float(np.mean([relative_error(means, self.softmax) for means in some]))
        note = "" if method.startswith(OURS) else f"{off:.1e} off exact softmax"
        return Row(JOB, self.case, method, preparation, seconds, error, note)


def plain_softmax(problem):
    """Softmax attention with the matrix of all weights."""
    if 2 * 4 * problem.n**2 > MOST_BYTES:
        why = f"not run: {2 * 4 * problem.n**2 / 1e9:.0f} GB"
        return not_run(JOB, problem.case, "torch softmax, whole matrix", why)

    def attend():
        return torch.softmax(problem.keys @ problem.keys.T, dim=-1) @ problem.values

    return problem.row("torch softmax, whole matrix", 0.0, attend)


def fused_softmax(problem):
    """The fused attention of torch, which never holds the matrix."""
    keys, values = pad(problem.keys, (0, HEAD - 3))[None, None], problem.values[None, None]
    attend = functools.partial(scaled_dot_product_attention, keys, keys, values, scale=1.0)
    return problem.row("torch softmax, fused", 0.0, lambda: attend()[0, 0])


def positive_features(keys, n_features, seed):
    """Positive random features of the softmax kernel, orthogonal, up to a factor that cancels."""
    dim, rng = keys.shape[1], np.random.default_rng(seed)
    turns = [np.linalg.qr(rng.standard_normal((dim, dim)))[0] for _ in range(-(-n_features // dim))]
    lengths = np.linalg.norm(rng.standard_normal((n_features, dim)), axis=1)
    directions = torch.from_numpy(np.vstack(turns)[:n_features] * lengths[:, None]).float()
    exponents = keys @ directions.T - (keys**2).sum(dim=-1, keepdim=True) / 2
    return torch.exp(exponents - exponents.max())


def performer(problem, n_features):
    """A Performer with features of the places, as ours."""
    make = functools.partial(positive_features, problem.keys, n_features)
    preparation = timed(lambda: make(SEEDS[0]))[0]

    def attend(phi):
        return (phi @ (phi.T @ problem.values)) / (phi @ phi.sum(dim=0))[:, None]

    calls = [functools.partial(attend, make(seed)) for seed in SEEDS]
    return problem.row(f"Performer in plain torch, {n_features} features", preparation, *calls)


@functools.cache
def fitted(n_features):
    """Features of the sphere, and the time of the fit."""
    model = ManifoldRandomFeatures(HeatKernel(T), n_features=n_features, random_state=0)
    model.fit(Sphere())  # may compile for longer than ``timed`` repeats
    return timed(lambda: model.fit(Sphere()))


def ours(problem, n_features):
    """Linear attention with features of the places."""
    fit, model = fitted(n_features)
    seconds, phi = timed(lambda: torch.from_numpy(model.transform(problem.places)).float())
    attend = functools.partial(linear_attention, phi, phi, problem.values)
    return problem.row(f"manifoldrf, {n_features} features", fit + seconds, attend)


def run(size):
    """Rows of all methods for all numbers of tokens."""
    wanted = SIZES[size]
    with torch.no_grad():
        for n_tokens in wanted["tokens"]:
            problem = Problem(n_tokens)
            for n_features in wanted["features"]:
                yield ours(problem, n_features)
                yield performer(problem, n_features)
            yield plain_softmax(problem)
            yield fused_softmax(problem)
