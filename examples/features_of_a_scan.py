"""Fill in a field that is known at half of the points of a scan, and predict it where nothing was scanned.

The points become nonnegative features whose inner products are the heat kernel of the surface; a ridge
regression on them is then kernel regression along the surface. Points without a value help as well: they show
where the surface is.

Run: python examples/features_of_a_scan.py
"""

import numpy as np
from sklearn.linear_model import Ridge

from manifoldrf import HeatKernel, ManifoldRandomFeatures, Torus


def field(points):
    """The field to be found: three waves around the torus, and the height."""
    return np.sin(3 * np.arctan2(points[:, 1], points[:, 0])) + points[:, 2]


def main():
    """Fit, predict, and print the error."""
    rng = np.random.default_rng(0)
    surface = Torus()
    scan = surface.sample(3000, seed=0)  # all points of the scan
    known = rng.choice(len(scan), len(scan) // 2, replace=False)  # where the field was measured, with noise
    values = field(scan[known]) + 0.1 * rng.normal(size=len(known))

    features = ManifoldRandomFeatures(HeatKernel(0.05), random_state=0).fit(scan)
    model = Ridge(1.0).fit(features.transform(scan[known]), values)
    print(features.summary())

    new = surface.sample(2000, seed=1)  # points that were never scanned
    predicted = model.predict(features.transform(new))
    error = np.linalg.norm(predicted - field(new)) / np.linalg.norm(field(new))
    print(f"relative error at {len(new)} new points: {error:.3f}")


if __name__ == "__main__":
    main()
