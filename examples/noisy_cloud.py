"""
Noise makes a surface larger
============================

The points of a scan do not lie exactly on the surface. This has two effects on a kernel that follows the surface.

Noise thickens the surface: the graph has more area than the surface, and heat spreads more thinly. The effect
depends on the noise relative to the width of one step of the walk; at a tenth of it the kernel is several per cent
off.

Noise also bridges gaps. This example rolls up a strip. If the noise is comparable to the gap between its turns,
heat leaks from one turn to the next, and the kernel belongs to another space.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from manifoldrf import GraphWarning, HeatKernel, Sphere, heat_graph

# %%
# The roll: two turns, 0.5 apart, and noise in the plane of the roll.

rng = np.random.default_rng(0)
angle = np.sqrt(np.linspace((1.5 * np.pi) ** 2, (5.0 * np.pi) ** 2, 3000))  # evenly along the spiral
radius = 0.5 * angle / (2 * np.pi)
roll = np.column_stack([radius * np.cos(angle), radius * np.sin(angle), 0.6 * rng.random(len(angle))])
start = int(np.argmin(np.abs(angle - 2.6 * np.pi)))
T = 0.06  # the kernel is about 0.35 wide
pictures = []
for noise in (0.0, 0.04, 0.12):
    cloud = roll + noise * rng.normal(size=roll.shape)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)  # about points in sparse regions
        graph = heat_graph(cloud, t=T, dim=2)
    heat = HeatKernel(T).matrix(graph, cols=[start], per_volume=True)[:, 0]
    away = np.abs(angle - angle[start]) > np.pi  # more than half a turn away along the strip
    leaked = (heat * graph.weights)[away].sum() / (heat * graph.weights).sum()
    print(f"noise {noise:.2f}: area {graph.weights.sum():5.2f}, {leaked:.1%} of the heat on other turns")
    pictures.append((f"noise {noise:.2f}: {leaked:.0%} leaks", cloud, heat))

# %%
# Heat from one point of the roll, seen from the side; the colour scale ends at the peak without noise.

figure, panels = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
top = pictures[0][2].max()
for axes, (title, cloud, heat) in zip(panels, pictures, strict=True):
    order = np.argsort(heat)
    drawn = axes.scatter(
        *cloud[order, :2].T, c=heat[order], s=8, cmap="magma_r", vmin=-0.1 * top, vmax=top, linewidths=0
    )
    axes.plot(*cloud[start, :2], "o", mfc="none", mec="#009E73", ms=11, mew=2)
    axes.set(title=title, aspect="equal")
    axes.axis("off")
figure.colorbar(drawn, ax=panels, shrink=0.8, label=f"K(x, ·), t = {T}")
plt.show()

# %%
# How much noise is too much: the error of the kernel on a sphere, where the exact kernel is known, against the
# noise relative to the width of a step. Remedies are a longer time, fewer steps, or averaging the points
# beforehand.

sphere, nodes = Sphere(), np.arange(200)
clean = sphere.sample(3000, seed=0)
figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
for t, colour in {0.02: "#0072B2", 0.1: "#D55E00"}.items():
    exact = sphere.heat_kernel(clean[nodes], clean[nodes], t)
    found = []
    for noise in (0.001, 0.004, 0.015, 0.06):
        graph = heat_graph(clean + noise * rng.normal(size=clean.shape), t=t, dim=2)
        kernel = HeatKernel(t).matrix(graph, nodes, nodes, per_volume=True)
        share = noise / np.sqrt(2 * t / graph.n_steps)
        found.append((share, np.linalg.norm(kernel - exact) / np.linalg.norm(exact)))
    axes.loglog(*np.transpose(found), "o-", color=colour, label=f"sphere, t = {t}")
axes.set(xlabel="noise / width of a step", ylabel="relative error of the kernel")
axes.grid(alpha=0.3, which="both")
axes.legend(frameon=False)
plt.show()
