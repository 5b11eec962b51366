"""
An interactive page of a model
==============================

``explore`` writes a fitted model to one HTML file. A click on a point shows the kernel of that point on the whole
space, computed in the browser from the features. The file needs no server and no network.

This example writes a page of the bunny in the ``pymeshfix`` wheel, and draws the kernels of three clicks.
"""

import importlib.util
from pathlib import Path
from tempfile import gettempdir

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import PolyCollection

from manifoldrf import HeatKernel, ManifoldRandomFeatures, TriangleMesh, explore
from manifoldrf.geometry import thin

# %%
# 50,000 vertices are more than a kernel of this width needs; 3000 farthest points are the nodes.

(folder,) = importlib.util.find_spec("pymeshfix").submodule_search_locations
bunny = TriangleMesh.load(Path(folder) / "examples" / "StanfordBunny.ply")
vertices = np.asarray(bunny.vertices)
features = ManifoldRandomFeatures(HeatKernel(10.0), random_state=0).fit(vertices[thin(vertices, 3000)])
print(features.summary())

# %%
# Write the page; open it in a browser. On the command line use ``manifoldrf fit`` and ``manifoldrf explore``.

place = Path(gettempdir()) / "bunny.html"  # open it in a browser
page = explore(features, place, title="The bunny")
print(f"{page.n_points} points, {page.n_features} features, {page.n_bytes / 1e6:.2f} MB")
print(f"the kernel in the page is within {page.error:.0e} of that of the model")

# %%
# The kernels that three clicks show. Each is one product of feature vectors.

corners, normals = vertices[bunny.faces], bunny.face_normals()
front = np.flatnonzero(normals[:, 1] < 0)  # seen along y
front = front[np.argsort(-corners[front, :, 1].mean(axis=1))]  # from back to front
light = 0.6 + 0.4 * np.clip(normals[front] @ [-0.4, -0.75, 0.5], 0, 1)
seen = np.unique(bunny.faces[front])
clicks = [[-18.0, 30.0], [8.0, 20.0], [2.0, 44.0]]  # x and z: cheek, flank, ear
figure, panels = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
for axes, (x, z) in zip(panels, clicks, strict=True):
    near = seen[np.abs(vertices[seen][:, [0, 2]] - [x, z]).sum(axis=1) < 2.0]
    start = near[np.argmin(vertices[near, 1])]  # the vertex in front
    heat = features.kernel_matrix(vertices[[start]], vertices)[0]
    scale = plt.Normalize(0, heat.max())
    shades = plt.cm.magma_r(scale(heat[bunny.faces[front]].mean(axis=1)))
    shades[:, :3] *= light[:, None]
    axes.add_collection(PolyCollection(corners[front][:, :, [0, 2]], facecolors=shades, edgecolors=shades, lw=0.2))
    axes.plot(*vertices[start, [0, 2]], "o", mfc="none", mec="#009E73", ms=10, mew=2)
    axes.set_title(f"K(x, ·) from x = {np.round(vertices[start]).astype(int)}", fontsize=10)
    axes.set_aspect("equal")
    axes.autoscale_view()
    axes.set_axis_off()
    figure.colorbar(plt.cm.ScalarMappable(scale, "magma_r"), ax=axes, shrink=0.7)
plt.show()
