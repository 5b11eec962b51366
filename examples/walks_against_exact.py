"""
Random walks against exact signatures
=====================================

The paper estimates signatures by random walks. This example compares three estimates with the exact signatures of
the same graph: walks of the paper's Algorithm 1, walks with steps in proportion to the weights, and counts of
walkers per node. The error of walks falls like one over the root of the work; that of counts falls faster.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial import ConvexHull

from manifoldrf import Counts, DiffusionKernel, Sphere, Walks, compute_signatures, knn_graph

points = Sphere().grid(2000)
graph, kernel = knn_graph(points), DiffusionKernel(20.0)
nodes = np.arange(0, 2000, 40)
exact = compute_signatures(graph, kernel, nodes).rows

# %%
# Every teacher with growing numbers of walks; steps are counted per start node.

TEACHERS = {
    "Algorithm 1 of the paper": (Walks(), "#D55E00"),
    "weighted steps, matched halting": (Walks(transitions="weighted", survival="matched"), "#0072B2"),
    "counts": (Counts(), "#009E73"),
}
found = {}
for name, (teacher, _) in TEACHERS.items():
    for n_walks in (100, 300, 1_000, 3_000, 10_000, 30_000):
        rows = compute_signatures(graph, kernel, nodes, teacher=teacher.with_params(n_walks=n_walks), seed=0)
        error = np.linalg.norm(rows.rows - exact) / np.linalg.norm(exact)
        found.setdefault(name, []).append((rows.n_steps / len(nodes), error, rows.rows[[25]]))

# %%
# Fitted slopes, on logarithmic axes.

figure, axes = plt.subplots(figsize=(7, 4.4), layout="constrained")
for name, (_, colour) in TEACHERS.items():
    steps, errors, _ = zip(*found[name], strict=True)
    slope = np.polyfit(np.log(steps), np.log(errors), 1)[0]
    axes.loglog(steps, errors, "o-", color=colour, label=f"{name}, slope {slope:.2f}")
    print(f"{name:<32} error {errors[-1]:.4f} with {steps[-1]:.0f} steps a start, slope {slope:.2f}")
axes.set(xlabel="steps of walkers for each start", ylabel="relative error of signatures")
axes.grid(alpha=0.3, which="both")
axes.legend(frameon=False)
plt.show()

# %%
# The signature of one node by 1000 walks. Exact signatures of a graph of this size take a millisecond each, so
# walks are only for comparison, and for graphs that are too large for other methods.

faces = ConvexHull(points).simplices
near = points[nodes[25]]
right = np.cross(near, [0.0, 0.0, 1.0])
right /= np.linalg.norm(right)
flat = points @ np.stack([right, np.cross(right, near)], axis=1)  # seen from above the node
front = faces[points[faces].mean(axis=1) @ near > 0]
figure, panels = plt.subplots(1, 4, figsize=(12, 3.4), layout="constrained")
pictures = {"exact": exact[25]} | {name: found[name][2][2].toarray()[0] for name in TEACHERS}
for axes, (name, values) in zip(panels, pictures.items(), strict=True):
    drawn = axes.tripcolor(*flat.T, front, values, shading="gouraud", cmap="magma_r", vmin=0, vmax=exact[25].max())
    axes.set_title(name, fontsize=10)
    axes.set_aspect("equal")
    axes.axis("off")
figure.colorbar(drawn, ax=panels, shrink=0.8, label="signature")
plt.show()
