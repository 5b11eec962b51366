"""
A Gaussian process on the bunny
===============================

A function on a scanned surface is measured with noise at about 60 vertices. The Gaussian process predicts the
function everywhere, with a standard deviation that is small near measurements, *along the surface*, and large
elsewhere.

Heat time, variance and noise maximise the marginal likelihood of these values. The bunny comes from the
``pymeshfix`` wheel.
"""

import importlib.util
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import PolyCollection

from manifoldrf import ManifoldGaussianProcess, TriangleMesh, mesh_graph
from manifoldrf.geometry import thin

# %%
# 50,000 vertices are more than the process needs: 2500 farthest points represent the space. The process predicts
# at all vertices.

(folder,) = importlib.util.find_spec("pymeshfix").submodule_search_locations
bunny = TriangleMesh.load(Path(folder) / "examples" / "StanfordBunny.ply")
vertices = np.asarray(bunny.vertices)  # up is z
space = vertices[thin(vertices, 2500)]  # a cloud, for speed; space=bunny would use the mesh

# %%
# The true function: waves in the distance along the edges from the tip of an ear.

tip = int(np.argmax(vertices[:, 2]))
distance = mesh_graph(bunny, weights="unit").shortest_paths([tip])[0]
truth = np.cos(distance / 6.0)
rng = np.random.default_rng(0)
known = rng.choice(len(vertices), 60, replace=False)
known = known[vertices[known, 0] < 15]  # and one side was not measured at all
values = truth[known] + 0.1 * rng.normal(size=len(known))

# %%
# The process chooses its own scales. The intervals are checked at all vertices.

process = ManifoldGaussianProcess(space=space, random_state=0).fit(vertices[known], values)
mean, std = process.predict(vertices, return_std=True)
print(f"{len(known)} values; {process.kernel_}, noise {process.noise_variance_**0.5:.2f}")
inside = (np.abs(mean - truth) < 1.645 * std).mean()
print(f"mean error {np.abs(mean - truth).mean():.3f}, 90 % intervals hold {inside:.1%} of the truth")

# %%
# Truth, mean and standard deviation with the same vertices in front; dots are the measurements.

corners = vertices[bunny.faces]
normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-12)
front = np.flatnonzero(normals[:, 1] < 0)  # seen along y
front = front[np.argsort(-corners[front, :, 1].mean(axis=1))]  # from back to front
light = 0.6 + 0.4 * np.clip(normals[front] @ [-0.4, -0.75, 0.5], 0, 1)
figure, panels = plt.subplots(1, 3, figsize=(12, 4.0), layout="constrained")
pictures = {
    "truth": (truth, "RdYlBu_r", (-1.2, 1.2)),
    f"mean, from {len(known)} noisy values": (mean, "RdYlBu_r", (-1.2, 1.2)),
    "standard deviation": (std, "viridis", (0, float(std.max()))),
}
for axes, (title, (field, colours, limits)) in zip(panels, pictures.items(), strict=True):
    scale = plt.Normalize(*limits)
    shades = plt.colormaps[colours](scale(field[bunny.faces[front]].mean(axis=1)))
    shades[:, :3] *= light[:, None]
    axes.add_collection(PolyCollection(corners[front][:, :, [0, 2]], facecolors=shades, edgecolors=shades, lw=0.2))
    seen = known[np.isin(known, bunny.faces[front])]
    axes.scatter(*vertices[seen][:, [0, 2]].T, s=14, c="black", edgecolors="white", linewidths=0.6, zorder=3)
    axes.set(title=title, aspect="equal")
    axes.autoscale_view()
    axes.set_axis_off()
    figure.colorbar(plt.cm.ScalarMappable(scale, colours), ax=axes, shrink=0.7)
plt.show()
