"""
Heat from one point on four surfaces
====================================

The heat kernel K(x, .) is the distribution of heat some time after it was released at x. It follows the surface: on
the Möbius strip around the twist, on the torus around the tube, and never through the air.

The features are fitted to the surfaces and evaluated at new points of a fine grid. The kernel between x and all of
them is one product of feature vectors.
"""

import matplotlib.pyplot as plt
import numpy as np

from manifoldrf import Ellipsoid, HeatKernel, ManifoldRandomFeatures, MobiusStrip, Sphere, Torus

T = 0.04  # heat time: the kernel is about 0.28 wide

# %%
# A grid of parameters gives a grid of points on each surface for the picture.

u, v = np.meshgrid(np.linspace(0, 2 * np.pi, 121), np.linspace(0, 1, 61))
polar = np.pi * v
ball = np.stack([np.sin(polar) * np.cos(u), np.sin(polar) * np.sin(u), np.cos(polar)], axis=-1)
ring, tube = Torus(), 2 * np.pi * v
around = ring.major + ring.minor * np.cos(tube)
strip = MobiusStrip()
across = strip.half_width * (2 * v - 1)
out = strip.radius + across * np.cos(u / 2)
surfaces = {
    "sphere": (Sphere(), ball),
    "ellipsoid": (Ellipsoid(), ball * Ellipsoid().axes),
    "Möbius strip": (strip, np.stack([out * np.cos(u), out * np.sin(u), across * np.sin(u / 2)], axis=-1)),
    "torus": (ring, np.stack([around * np.cos(u), around * np.sin(u), ring.minor * np.sin(tube)], axis=-1)),
}

# %%
# Heat starts on the part of each surface that faces the viewer. This part is drawn brighter.

VIEW = {"elev": 38, "azim": 39}
eye = np.array([np.cos(0.66) * np.cos(0.68), np.cos(0.66) * np.sin(0.68), np.sin(0.66)])  # the same in radians


def facing(grid):
    """How much the surface faces the viewer, from 0 to 1, at each point of the grid."""
    across, along = np.gradient(grid, axis=(0, 1))
    normal = np.cross(across, along)
    length = np.linalg.norm(normal, axis=-1)
    return np.where(
        length > 1e-9, np.abs(normal @ eye) / np.maximum(length, 1e-9), 0.6
    )  # a pole has no normal here


# %%
# One fit for each surface; then the kernel between one point and all points of the grid.

heat = {}
for name, (surface, grid) in surfaces.items():
    features = ManifoldRandomFeatures(HeatKernel(T), normalize=False, random_state=0).fit(surface)
    middle = grid[15:46].reshape(-1, 3)
    start = middle[[np.argmax(facing(grid)[15:46].ravel() + 1.2 * middle @ eye)]]
    heat[name] = features.kernel_matrix(start, grid.reshape(-1, 3)).reshape(u.shape)
    print(f"{name:<13}{features.n_features_out_} features, estimated error {float(features.error_):.3f}")

# %%
# On a flat sheet the peak would be 1 / (4 pi t) = 1.99, the end of the colour scale. On the strip it is higher:
# heat cannot leave over the edge, which is nearer than the kernel is wide.

figure, panels = plt.subplots(1, 4, figsize=(12, 3.2), subplot_kw={"projection": "3d"}, layout="constrained")
scale = plt.Normalize(0, 1 / (4 * np.pi * T))
for axes, (name, (_, grid)) in zip(panels, surfaces.items(), strict=True):
    colours = plt.cm.magma_r(scale(heat[name]))
    colours[..., :3] *= 0.7 + 0.3 * facing(grid)[..., None]
    axes.plot_surface(
        *np.moveaxis(grid, -1, 0), facecolors=colours, rstride=1, cstride=1, shade=False, antialiased=False
    )
    half = np.abs(grid).max()
    axes.set(xlim=(-half, half), ylim=(-half, half), zlim=(-half, half), title=name)
    axes.set_box_aspect((1, 1, 1), zoom=1.6)
    axes.view_init(**VIEW)
    axes.set_axis_off()
figure.colorbar(plt.cm.ScalarMappable(scale, "magma_r"), ax=panels, shrink=0.8, label=f"K(x, ·), t = {T}")
plt.show()
