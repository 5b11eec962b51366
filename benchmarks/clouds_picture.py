"""Draw the picture of the guide to noisy data: the scale curve, and a cloud before and after cleaning.

Run ``python benchmarks/clouds_picture.py``; it writes docs/images/noisy_data.png.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from manifoldrf import Sphere, clean_cloud

TARGET = Path(__file__).resolve().parents[1] / "docs" / "images" / "noisy_data.png"
NOISES = {0.0: "#009E73", 0.02: "#0072B2", 0.06: "#D55E00"}


def main() -> None:
    """Draw and save."""
    rng = np.random.default_rng(0)
    clean = Sphere().sample(4000, seed=0)
    offsets = rng.normal(size=clean.shape)
    figure, panels = plt.subplots(1, 3, figsize=(13, 4.2), layout="constrained")
    for noise, colour in NOISES.items():
        points = clean + noise * offsets
        cloud = clean_cloud(points, scale=0.32)
        curve, x = cloud.curve, 4 * cloud.noise**2 / cloud.curve.scales**2
        label = f"noise {noise:g}: found {cloud.noise:.3f}, dimension {cloud.dim}"
        panels[0].semilogx(curve.scales, curve.growth, "o", ms=4, color=colour, label=label)
        panels[0].semilogx(curve.scales, cloud.dim + x / (1 + x), "--", color=colour)
    panels[0].set(xlabel="scale s", ylabel="growth of the number of pairs, d(s)", ylim=(1.7, 3.1))
    panels[0].set_xticks([0.1, 0.2, 0.3, 0.4], ["0.1", "0.2", "0.3", "0.4"], minor=False)
    panels[0].minorticks_off()
    panels[0].legend(frameon=False, fontsize=9)
    panels[0].grid(alpha=0.3)
    for axes, title, shown in ((panels[1], "points as given", points), (panels[2], "after cleaning", cloud.points)):
        slab = shown[np.abs(shown[:, 2]) < 0.1]
        axes.plot(*slab[:, :2].T, ".", color="#0072B2", ms=4)
        axes.set(title=f"noise 0.06, {title} (a slab)", aspect="equal", xlim=(-1.3, 1.3), ylim=(-1.3, 1.3))
        axes.axis("off")
    figure.savefig(TARGET, dpi=110)


if __name__ == "__main__":
    main()
