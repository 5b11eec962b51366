"""
Ridge regression on features of a scan
======================================

A field is measured with noise at half of the points of a scan, and predicted at new points. The points become
nonnegative features whose inner products are the heat kernel of the surface, so ridge regression on them is kernel
regression along the surface. Points without a value also help, because they show the shape of the surface.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.linear_model import Ridge

from manifoldrf import HeatKernel, ManifoldRandomFeatures, Torus

# %%
# The scan: 3000 random points of a torus. The field: three waves around it, and the height.


def field(points):
    """The field to be found."""
    return np.sin(3 * np.arctan2(points[:, 1], points[:, 0])) + points[:, 2]


rng = np.random.default_rng(0)
surface = Torus()
scan = surface.sample(3000, seed=0)  # all points of the scan
known = rng.choice(len(scan), len(scan) // 2, replace=False)  # where the field was measured
values = field(scan[known]) + 0.3 * rng.normal(size=len(known))

# %%
# Features of all points, and a linear model on those with a value.

features = ManifoldRandomFeatures(HeatKernel(0.05), normalize=False, random_state=0).fit(scan)
model = Ridge(1.0).fit(features.transform(scan[known]), values)
print(features.summary())

new = surface.sample(6000, seed=1)  # points that were never scanned
predicted = model.predict(features.transform(new))
error = np.linalg.norm(predicted - field(new)) / np.linalg.norm(field(new))
print(f"noise of the measurements: {0.3 / field(scan[known]).std():.2f} of the field")
print(f"relative error at {len(new)} new points: {error:.3f}")

# %%
# The noisy measurements, the prediction at new points, and its error, seen from above.

figure, panels = plt.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
pictures = {
    f"{len(known)} measurements": (scan[known], values, 12.0, 1.5),
    f"predicted at {len(new)} new points": (new, predicted, 9.0, 1.5),
    "predicted - true": (new, predicted - field(new), 9.0, 0.3),
}
for axes, (title, (points, colours, size, top)) in zip(panels, pictures.items(), strict=True):
    order = np.argsort(points[:, 2])  # the upper points are drawn last
    style = {"s": size, "cmap": "coolwarm", "vmin": -top, "vmax": top, "linewidths": 0}
    drawn = axes.scatter(*points[order, :2].T, c=colours[order], **style)
    axes.set(title=title, aspect="equal")
    axes.axis("off")
    figure.colorbar(drawn, ax=axes, shrink=0.8)
plt.show()
