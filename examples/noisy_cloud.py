"""
A noisy scan, moved onto its surface
====================================

The points of a scan do not lie exactly on the surface. Seen from nearby, noise fills all three coordinates. Seen
from farther away, the cloud is a surface. The library finds the dimension and the noise, and moves the points onto
the surface before it builds a graph.

This example uses a sphere, where the exact kernel is known, and a rolled-up strip, whose turns nearly touch.
"""

import warnings

import matplotlib.pyplot as plt
import numpy as np

from manifoldrf import HeatGraph, HeatKernel, ManifoldRandomFeatures, Sphere
from manifoldrf.geometry import clean_cloud

# %%
# A sphere with noise of 0.06 in each coordinate, and what is found.

rng = np.random.default_rng(0)
sphere, T, noise = Sphere(), 0.05, 0.06
points = sphere.sample(4000, seed=0) + noise * rng.normal(size=(4000, 3))
cloud = clean_cloud(points)
print(cloud)

figure, panels = plt.subplots(1, 2, figsize=(9, 4.4), layout="constrained")
cleaned = cloud.origin + cloud.points @ cloud.axes.T
for axes, title, shown in ((panels[0], "given", points), (panels[1], "cleaned", cleaned)):
    slab = shown[np.abs(shown[:, 2]) < 0.1]
    axes.plot(*slab[:, :2].T, ".", color="#0072B2", ms=4)
    axes.set(title=f"{title}: a slab through the middle", aspect="equal", xlim=(-1.3, 1.3), ylim=(-1.3, 1.3))
    axes.axis("off")
plt.show()

# %%
# The error of the kernel at new points, with the points as they are and with cleaned ones. Cleaning is the default;
# it leaves clouds without noise as they are.

new = sphere.sample(400, seed=1)
exact = sphere.heat_kernel(new, new, T)
sizes, errors = (0.003, 0.01, 0.03, 0.06), {"as they are": [], "cleaned": []}
for size in sizes:
    scan = sphere.sample(4000, seed=0) + size * rng.normal(size=(4000, 3))
    for name, option in (("as they are", 0), ("cleaned", "auto")):
        features = ManifoldRandomFeatures(
            HeatKernel(T), normalize=False, graph=HeatGraph(noise_std=option), random_state=0
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the error of points as they are
            features.fit(scan)
        errors[name].append(np.linalg.norm(features.kernel_matrix(new) - exact) / np.linalg.norm(exact))
figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
for (name, values), colour in zip(errors.items(), ("#D55E00", "#0072B2"), strict=True):
    axes.loglog(sizes, values, "o-", color=colour, label=f"points {name}")
    print(name, [f"{value:.4f}" for value in values])
axes.set(xlabel="noise per coordinate", ylabel="relative error of the kernel")
axes.grid(alpha=0.3, which="both")
axes.legend(frameon=False)
plt.show()

# %%
# Layers: the turns of the roll are 0.35 apart, about as far as the kernel is wide. Steps between turns are cut,
# since the path along the roll is much longer than the straight line. Heat stays on its own turn.

turn = np.sqrt(np.linspace((2 * np.pi) ** 2, (6.0 * np.pi) ** 2, 4000))
radius = 0.35 * turn / (2 * np.pi)
roll = np.column_stack([radius * np.cos(turn), radius * np.sin(turn), 0.8 * rng.random(len(turn))])
start = int(np.argmin(np.abs(turn - 4 * np.pi)))
features = ManifoldRandomFeatures(HeatKernel(T), normalize=False, graph=HeatGraph(dim=2), random_state=0).fit(roll)
heat = features.kernel_matrix(roll, roll[[start]])[:, 0]
away = np.abs(turn - turn[start]) > np.pi
print(f"{heat[away].sum() / heat.sum():.1%} of the heat is on other turns")
figure, axes = plt.subplots(figsize=(5.5, 5), layout="constrained")
order = np.argsort(heat)
drawn = axes.scatter(*roll[order, :2].T, c=heat[order], s=8, cmap="magma_r", linewidths=0)
axes.plot(*roll[start, :2], "o", mfc="none", mec="#009E73", ms=11, mew=2)
axes.set(aspect="equal", title="heat from one point of a roll")
axes.axis("off")
figure.colorbar(drawn, shrink=0.8, label=f"K(x, ·), t = {T}")
plt.show()
