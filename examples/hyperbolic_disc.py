"""
Heat in the hyperbolic disc
===========================

Hyperbolic space is unbounded, but a graph is finite. The features are fitted to larger and larger balls of the
hyperbolic plane, until the kernel inside is accurate enough. ``error_`` estimates the error without the exact
kernel.

The Poincaré disc shows all of hyperbolic space inside a circle, and equal shapes look smaller towards the rim. Heat
that starts near the rim therefore looks like a small spot, although it is as wide as elsewhere.
"""

import matplotlib.pyplot as plt
import numpy as np

from manifoldrf import HeatKernel, HyperbolicSpace, ManifoldRandomFeatures

T, INNER = 0.06, 2.0  # heat time; radius of the ball in which the kernel is wanted
STARTS = np.array([[0.0, 0.0], [0.5, 0.35], [-0.35, 0.4], [-0.15, -0.62]])  # in the Poincaré disc

# %%
# Larger and larger balls. The last one is used: its rim is farthest from the inner ball.

plane = HyperbolicSpace(dim=2)
for radius in (2.1, 2.4):
    features = ManifoldRandomFeatures(HeatKernel(T), normalize=False, random_state=0).fit(plane.ball(radius))
    print(f"R = {radius}: {features.graph_.n_nodes} nodes, error {features.error_}")

# %%
# A ball of radius r around the origin has the radius tanh(r / 2) in the disc. The exact kernel is known here, so
# that the features can be compared with it.

edge = np.tanh(INNER / 2)
x, y = np.meshgrid(np.linspace(-edge, edge, 151), np.linspace(-edge, edge, 151))
inside = x**2 + y**2 < edge**2
places = np.column_stack([x[inside], y[inside]])
heat, exact = features.kernel_matrix(STARTS, places), plane.heat_kernel(STARTS, places, T)
for start, row, truth in zip(STARTS, heat, exact, strict=True):
    off = np.linalg.norm(row - truth) / np.linalg.norm(truth)
    print(f"heat from {start}: peak {row.max():.2f}, exact {truth.max():.2f}, relative error {off:.3f}")

# %%
# All sources in one picture. Their peaks are equally high and equally wide, in hyperbolic lengths: the rings are at
# a distance of a half from each source. The dotted circle is the inner ball, the solid one infinity.

figure, panels = plt.subplots(1, 3, figsize=(12, 4.1), layout="constrained")
error = np.abs(heat - exact).sum(axis=0)
pictures = {
    "heat from four points, by features": (heat.sum(axis=0), "magma_r"),
    "exact": (exact.sum(axis=0), "magma_r"),
    "absolute error": (error, "viridis"),
}
rings = np.min(plane.distance(STARTS, places), axis=0)
for axes, (title, (values, colours)) in zip(panels, pictures.items(), strict=True):
    image, ring = np.full(x.shape, np.nan), np.full(x.shape, np.nan)
    image[inside], ring[inside] = values, rings
    top = exact.max() if colours == "magma_r" else error.max()
    drawn = axes.pcolormesh(x, y, image, cmap=colours, vmin=0, vmax=top, shading="auto", rasterized=True)
    axes.contour(x, y, ring, levels=[0.5], colors="0.35", linewidths=0.8)
    axes.add_patch(plt.Circle((0, 0), 1.0, fill=False, color="black"))
    axes.add_patch(plt.Circle((0, 0), edge, fill=False, color="0.5", linestyle=":"))
    axes.set(title=title, aspect="equal", xlim=(-1.02, 1.02), ylim=(-1.02, 1.02))
    axes.axis("off")
    figure.colorbar(drawn, ax=axes, shrink=0.75)
plt.show()
