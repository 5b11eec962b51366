"""
Attention along a rolled-up strip
=================================

The tokens lie on a roll whose turns nearly touch. Values are known at 1 % of them, and attention fills in the
others. Attention with features of the strip's heat kernel follows the strip. Attention with a Gaussian kernel of
the ambient space, exact and with its best width, mixes neighbouring turns.

``linear_attention`` takes linear time: it never forms the matrix between tokens.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch
from scipy.spatial.distance import cdist

from manifoldrf import HeatGraph, HeatKernel, ManifoldRandomFeatures
from manifoldrf.torch import linear_attention

# %%
# The roll, and a wave along it. Turns are 0.2 apart, the wave is 2.2 long.

rng = np.random.default_rng(0)
angle = np.sqrt(rng.uniform((1.5 * np.pi) ** 2, (6.5 * np.pi) ** 2, 3000))  # evenly along the spiral
radius = 0.2 * angle / (2 * np.pi)
tokens = np.column_stack([radius * np.cos(angle), radius * np.sin(angle), 0.4 * rng.random(3000)])
length = 0.2 / (2 * np.pi) * angle**2 / 2  # along the spiral, nearly
wave = np.sin(2 * np.pi * length / 2.2)
visible = rng.random(3000) < 0.015
print(f"{len(tokens)} tokens, {visible.sum()} with a value")

# %%
# Attention with features, and explicit attention with the exact Gaussian. The width of each is the best of a list,
# chosen by predicting one half of the visible tokens from the other.


def along(features, shown):
    """Values everywhere, by features of the strip."""
    keep = torch.as_tensor(shown, dtype=torch.float64)
    return linear_attention(features, features, torch.as_tensor(wave)[:, None], weights=keep).numpy()[:, 0]


def through(squared, shown):
    """Values everywhere, by a Gaussian of the space around; squared are distances over the width."""
    weights = np.exp(-squared[:, shown] + squared[:, shown].min(axis=1, keepdims=True))
    return weights @ wave[shown] / weights.sum(axis=1)


half = visible & (rng.random(len(tokens)) < 0.5)
squares, found = cdist(tokens, tokens, "sqeuclidean"), {}
for t in (0.005, 0.01, 0.02):
    model = ManifoldRandomFeatures(HeatKernel(t), graph=HeatGraph(dim=2), random_state=0)
    rows = model.fit(tokens).transform(tokens)
    for name, look, kernel in (
        ("along the strip", along, torch.as_tensor(rows)),
        ("through the air", through, squares / (4 * t)),
    ):
        missed = np.square(look(kernel, half) - wave)[visible & ~half].mean()
        if name not in found or missed < found[name][0]:
            found[name] = missed, t, look(kernel, visible)
for name, (_, t, filled) in found.items():
    error = np.square(filled - wave)[~visible].mean() / wave.var()
    print(f"{name}: t = {t}, {error:.2f} of the variance is left")

# %%
# The roll from the side. Turns that are close in space have different values.

figure, panels = plt.subplots(1, 4, figsize=(14, 3.8), layout="constrained")
pictures = {"the wave": (wave, slice(None)), f"{visible.sum()} visible tokens": (wave, visible)}
pictures |= {name: (filled, slice(None)) for name, (*_, filled) in found.items()}
for axes, (title, (values, shown)) in zip(panels, pictures.items(), strict=True):
    style = {"cmap": "coolwarm", "vmin": -1, "vmax": 1, "linewidths": 0}
    axes.scatter(*tokens[:, :2].T, s=2, color="0.88", linewidths=0)
    drawn = axes.scatter(*tokens[shown, :2].T, c=values[shown], s=20 if shown is visible else 7, **style)
    axes.set(title=title, aspect="equal")
    axes.axis("off")
figure.colorbar(drawn, ax=panels, shrink=0.8, label="value")
plt.show()
