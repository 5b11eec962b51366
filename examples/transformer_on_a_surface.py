"""
A transformer on the cortex
===========================

Build a small transformer whose tokens are vertices of a surface, train it, and compare it with a Performer.

The task is to fill in a map on a human cortex (fsaverage5, in the package nilearn) from its values at 15 % of the
vertices. The network sees mixtures of three maps in training (sulcal depth, curvature and area). It is tested on a
fourth, the thickness, at vertices that were not used in training. The steps are those of any task on a surface:

1. fit features of heat kernels to the surface, one kernel for each head;
2. use ``ManifoldAttention`` where a transformer has its attention, and give it the positions of the tokens;
3. compute the features of all vertices once with ``precompute``, and ``take`` those that a training step needs.

Attention then knows which vertices are near along the surface before any training, and its time is proportional
to the number of tokens. ``python examples/transformer_on_a_surface.py 11 12 13`` trains in full, with three seeds
(140 s of one core); without seeds the script, and this page, take a fifth of the steps and one seed.
"""

import importlib.util
import sys
import warnings
from functools import cache
from pathlib import Path

import matplotlib.pyplot as plt
import nibabel
import numpy as np
import torch
from matplotlib.collections import PolyCollection
from torch import nn

from manifoldrf import HeatKernel, ManifoldRandomFeatures, ManifoldWarning, TriangleMesh
from manifoldrf.torch import ManifoldAttention, linear_attention

N_FEATURES = 256  # per head, in both kinds of attention; fixed before the search
DIM, N_HEADS, N_LAYERS = 32, 2, 2
SHARE = 0.15  # of the vertices have a known value
SEEDS = [int(text) for text in sys.argv[1:] if text.isdecimal()]  # the search had seed 10
N_STEPS, N_ASKED = 300 if SEEDS else 60, 800  # training steps; vertices predicted in a step
SPLIT_SEED = 0  # the same split for all networks
CHOSEN = {  # rate, frequencies, and the reach of the heads: heat times in mm^2, or factors of queries and keys
    "surface": (3e-2, 2, (30.0, 120.0)),
    "Performer": (1e-2, 2, (0.5, 0.5)),
    "none": (3e-2, 2, ()),
}


# %%
# **Step 1: the surface, its maps, and features of its heat kernels.** The time of a kernel is its reach squared,
# over two: 30 mm^2 looks about 8 mm far, 120 mm^2 about 15 mm.


def of_nilearn(name):
    """A file of the left hemisphere."""
    folder = Path(importlib.util.find_spec("nilearn").submodule_search_locations[0]) / "datasets/data/fsaverage5"
    return nibabel.load(folder / f"{name}_left.gii.gz")


@cache
def cortex():
    """The surface."""
    surface = of_nilearn("pial")
    return TriangleMesh(surface.agg_data("pointset"), surface.agg_data("triangle").astype(np.int64))


def values(name):
    """A map on the vertices, centred and scaled."""
    found = np.asarray(of_nilearn(name).agg_data(), dtype=np.float64)
    return torch.tensor((found - found.mean()) / found.std(), dtype=torch.float32)


def coordinates(n_frequencies):
    """Scaled coordinates of all vertices, with sines and cosines of 1, 2, 4 ... times them."""
    positions = torch.tensor(cortex().vertices)
    scaled = ((positions - positions.mean(dim=0)) / positions.std()).float()
    waves = [wave(2**k * scaled) for k in range(n_frequencies) for wave in (torch.sin, torch.cos)]
    return torch.cat([scaled, *waves], dim=1)


@cache
def heat_features(t, seed):
    """Features of the heat kernel on the surface."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ManifoldWarning)  # the shorter time would need more anchors
        return ManifoldRandomFeatures(HeatKernel(t), n_features=N_FEATURES, random_state=seed).fit(cortex())


# %%
# **Step 2: the networks.** They are two layers of a usual transformer and differ only in attention:
# ``ManifoldAttention``, softmax of learned queries and keys by as many positive orthogonal random features
# (FAVOR+, the Performer), or none. ``key_mask`` hides the tokens whose value is not known from the others.


def linear(n_in, n_out, generator):
    """A linear layer whose first values come from the generator."""
    layer = nn.Linear(n_in, n_out)
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


class PerformerAttention(nn.Module):
    """Softmax attention by positive orthogonal random features, with learnt queries, keys, values and output."""

    def __init__(self, factors, generator):
        super().__init__()
        self.factors = torch.tensor(factors)[:, None, None] / (DIM / N_HEADS) ** 0.25
        self.layers = nn.ModuleList(linear(DIM, DIM, generator) for _ in range(4))
        size = DIM // N_HEADS
        blocks = [torch.randn(size, size, generator=generator) for _ in range(N_FEATURES // size)]
        lengths = torch.randn(N_FEATURES, size, generator=generator).norm(dim=1, keepdim=True)
        self.register_buffer("directions", torch.cat([torch.linalg.qr(block)[0] for block in blocks]) * lengths)

    def features(self, tokens, shared):
        """exp(w . x - |x|^2 / 2) up to factors that the quotient does not see: shared ones of keys; (H, L, m)."""
        x = tokens.unflatten(-1, (N_HEADS, -1)).transpose(0, 1) * self.factors
        exponents = x @ self.directions.T - x.square().sum(dim=-1, keepdim=True) / 2
        return torch.exp(exponents - exponents.detach().amax(dim=shared, keepdim=True)) + 1e-6

    def forward(self, places, tokens, key_mask):
        """``places`` are not used: the tokens know where they are."""
        query, key, value, output = self.layers
        v = value(tokens).unflatten(-1, (N_HEADS, -1)).transpose(0, 1)
        phi_q, phi_k = self.features(query(tokens), -1), self.features(key(tokens), (-1, -2))
        found = linear_attention(phi_q, phi_k, v, weights=key_mask.to(tokens).expand(N_HEADS, -1))
        return output(found.transpose(0, 1).flatten(-2))


class Network(nn.Module):
    """Tokens of (value or 0, whether it is known, coordinates) to the value everywhere."""

    def __init__(self, n_inputs, attention, generator):
        super().__init__()
        self.entry, self.exit = linear(n_inputs, DIM, generator), linear(DIM, 1, generator)
        self.attention = nn.ModuleList(attention() for _ in range(N_LAYERS) if attention is not None)
        self.norms = nn.ModuleList(nn.LayerNorm(DIM) for _ in range(2 * N_LAYERS))
        self.mlps = nn.ModuleList(
            nn.Sequential(linear(DIM, 2 * DIM, generator), nn.GELU(), linear(2 * DIM, DIM, generator))
            for _ in range(N_LAYERS)
        )

    def forward(self, places, inputs):
        """Predictions of shape (L,); only tokens with a known value are looked at by others."""
        known = inputs[:, 1] > 0
        tokens = self.entry(inputs)
        for k in range(N_LAYERS):
            if self.attention:
                tokens = tokens + self.attention[k](places, self.norms[2 * k](tokens), known)
            tokens = tokens + self.mlps[k](self.norms[2 * k + 1](tokens))
        return self.exit(tokens)[:, 0]


# %%
# **Step 3: training** on random mixtures of three maps, and a test on the fourth. Features of positions do not
# change, so they are computed once. Under ``torch.autocast`` the same loop trains in half precision, with sums
# in single precision.


def filled(kind, settings, seed):
    """Train, and return the error on a map and vertices never seen, as a share of the variance, and the map."""
    rate, n_frequencies, reach = settings
    maps, unseen = torch.stack([values(name) for name in ("sulc", "curv", "area")]), values("thick")
    places, generator = coordinates(n_frequencies), torch.Generator().manual_seed(seed)
    n, n_known = len(unseen), int(SHARE * len(unseen))
    order = torch.randperm(n, generator=torch.Generator().manual_seed(SPLIT_SEED))
    held_out, seen = order[: n // 5], order[3 * n // 10 :]

    def attention():
        if kind == "Performer":
            return PerformerAttention(reach, generator)
        return ManifoldAttention([heat_features(t, seed) for t in reach], DIM, generator=generator)

    network = Network(2 + places.shape[1], None if kind == "none" else attention, generator)
    on_surface = network.attention[0].precompute(torch.tensor(cortex().vertices)) if kind == "surface" else None

    def answers(target, vertices):
        known = torch.arange(len(vertices)) < n_known
        shown = torch.stack([torch.where(known, target[vertices], 0.0), known.float()], dim=1)
        here = None if on_surface is None else on_surface.take(vertices)
        return network(here, torch.cat([shown, places[vertices]], dim=1))[n_known:]

    def loss(target, vertices):
        return (answers(target, vertices) - target[vertices][n_known:]).square().mean()

    optimiser = torch.optim.AdamW(network.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=N_STEPS)
    for _ in range(N_STEPS):
        mixture = torch.randn(len(maps), generator=generator)
        vertices = seen[torch.randperm(len(seen), generator=generator)[: n_known + N_ASKED]]
        optimiser.zero_grad()
        loss((mixture / mixture.norm()) @ maps, vertices).backward()
        optimiser.step()
        schedule.step()
    with torch.no_grad():
        known = seen[torch.randperm(len(seen), generator=generator)[:n_known]]
        missed = float(loss(unseen, torch.cat([known, held_out])) / unseen[held_out].var())
        others = torch.tensor(np.setdiff1d(np.arange(n), known))
        whole = unseen.clone()
        whole[others] = answers(unseen, torch.cat([known, others]))
    return missed, whole.numpy(), known.numpy()


# %%
# **The result**: the share of the variance of the thickness that each network does not explain. Predicting the
# mean leaves about 1. After full training (mean and spread over three seeds) the surface leaves .226 +- .021,
# the Performer 1.088 +- .063, and no attention .997 +- .027. The Performer had to learn which vertices are near,
# and did not: with four times the steps it fills in mixtures of its training maps (.18) but not a new map (.97
# on area, one seed). Most of the gain comes from the kernel itself: smoothing with it at 30 mm^2, without
# network and training, leaves .264 +- .019.

torch.set_num_threads(1)  # the same sums, and the same digits, on any number of cores
pictures = {}
for kind, settings in CHOSEN.items():
    runs = [filled(kind, settings, seed) for seed in SEEDS or (11,)]
    errors = [missed for missed, *_ in runs]
    each = ", ".join(f"{missed:.3f}" for missed in errors)
    print(f"{kind:9s}  test error {np.mean(errors):.3f} ({each})", flush=True)
    pictures[f"{kind}: {np.mean(errors):.2f} left"] = runs[0][1]
    given = runs[0][2]

# %%
# **How the comparison was made.** The task was chosen after two earlier results. A first task, to learn one
# fixed map, had shown no difference between the networks (surface .052, Performer .044, none .042). A first run
# of the present task on validation vertices with seed 10 had given .25, .81 and 1.08 at best.
#
# The settings were chosen without thickness, by training on depth and curvature with seed 10 and taking the
# smallest error on area. They were tuned one after the other, each starting from the middle of its list: the
# rate (.003, .01, .03), the number of frequencies of the coordinates (0, 2, 4), and the times (30 and 120, 60
# and 240, 120 and 480 mm^2) or, for the Performer, the factor of queries and keys (.5, 1, 2). That is seven
# trials each (none: five), with errors of .41 to .53, .96 to 1.09 and 1.00 to 1.01. The Performer's choice is
# therefore hardly better than chance; with factor 1, its second best, it has 1.076 +- .094. No list was extended
# if its end was best.
#
# The picture shows the thickness, the known 15 %, and the prediction of each network, seen from the left.

truth, mesh = values("thick").numpy(), cortex()
points, faces, normals = mesh.vertices, mesh.faces, mesh.face_normals()
front = np.flatnonzero(normals[:, 0] < 0)
front = front[np.argsort(-points[faces[front], 0].mean(axis=1))]  # from back to front
light = 0.72 + 0.28 * np.clip(normals[front] @ [-0.8, 0.2, 0.55], 0, 1)
flat, front = points[:, 1:] * [-1, 1], faces[front]  # the forehead is on the left
scale = plt.Normalize(-2, 2)
figure, panels = plt.subplots(1, 5, figsize=(15, 2.8), layout="constrained")
masked = np.where(np.isin(np.arange(len(truth)), given), truth, np.nan)
for axes, (title, field) in zip(panels, ({"thickness": truth, "known": masked} | pictures).items(), strict=True):
    shown = field[front]
    counted = np.isfinite(shown).sum(axis=1)
    means = np.nansum(shown, axis=1) / np.maximum(counted, 1)
    shades = plt.cm.RdYlBu_r(scale(means))
    shades[counted == 0] = (0.8, 0.8, 0.8, 1.0)
    shades[:, :3] *= light[:, None]
    axes.add_collection(PolyCollection(flat[front], facecolors=shades, edgecolors=shades, lw=0.2))
    axes.set(title=title, aspect="equal")
    axes.autoscale_view()
    axes.set_axis_off()
figure.colorbar(plt.cm.ScalarMappable(scale, "RdYlBu_r"), ax=panels, shrink=0.8, label="standard deviations")
plt.show()
