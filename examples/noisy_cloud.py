"""Label the parts of a noisy cloud of points with outliers, from five labels for each part.

The cortex inside the nilearn wheel (the torus of the library without it) loses its mesh: what is left are points
with noise, and outliers around them. Features are fitted on the cloud as it is, and on the cloud without points
whose eighth neighbour is far away. A point far from everything has features of zero, and a warning says so.

Run: python examples/noisy_cloud.py [picture.png]
"""

import sys
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from scipy.spatial import cKDTree
from sklearn.linear_model import RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from manifoldrf import (
    DiffusionKernel,
    FarQueryWarning,
    GraphOptions,
    GraphWarning,
    ManifoldRandomFeatures,
    mesh_graph,
)
from manifoldrf.experiments.mesh_data import builtin_mesh

N_POINTS, PARTS, LABELS, DRAWS = 3000, 12, 5, 10
DAMAGES = ((0.0, 0.0), (0.3, 0.05), (0.3, 0.5), (1.0, 0.05), (2.5, 0.05))  # noise over spacing, outliers per point
FAR = 3.0  # times the median distance to the eighth neighbour: an outlier


def read_scan():
    """Vertices of a surface, and the part of each: the nearest of 12 far seeds, along the edges."""
    try:
        mesh = builtin_mesh("cortex", N_POINTS).mesh
    except ModuleNotFoundError:
        mesh = builtin_mesh("torus", N_POINTS).mesh
    graph = mesh_graph(mesh, weights="unit")
    ways = graph.shortest_paths([0])
    for _ in range(PARTS):  # each seed is the vertex farthest from those before it
        ways = np.vstack([ways, graph.shortest_paths([int(ways.min(axis=0).argmax())])])
    return np.array(mesh.vertices), ways[1:].argmin(axis=0)


def damage(points, noise, outliers, rng):
    """Points with noise, then outliers evenly in a box around them."""
    spacing = np.median(cKDTree(points).query(points, 2)[0][:, 1])
    shaken = points + noise * spacing * rng.normal(size=points.shape)
    low, high = points.min(axis=0), points.max(axis=0)
    margin = 0.1 * np.linalg.norm(high - low)
    return np.vstack([shaken, rng.uniform(low - margin, high + margin, size=(int(outliers * len(points)), 3))])


def fit(cloud):
    """Features of a cloud; nodes without neighbours and such are what this is about."""
    options = GraphOptions(kind="knn", n_neighbors=8)
    features = ManifoldRandomFeatures(
        DiffusionKernel(60.0), n_features=512, field="step", graph=options, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        return features.fit(cloud)


def rows_of(features, points):
    """Features of points, zero for those that are far away."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FarQueryWarning)
        return features.transform(points)


def judge(model, rows, parts):
    """Mean accuracy over draws of labels, at points without one; and the last answers."""
    shares = []
    for draw in range(DRAWS):
        rng = np.random.default_rng(draw)
        chosen = [rng.choice(np.flatnonzero(parts == part), LABELS, replace=False) for part in range(PARTS)]
        labelled = np.concatenate(chosen)
        answers = model.fit(rows[labelled], parts[labelled]).predict(rows)
        shares.append(np.delete(answers[: len(parts)] == parts, labelled).mean())
    return np.mean(shares), answers


def draw(panels, path):
    """Clouds coloured by the parts that were found, the nearest points last."""
    figure, axes = plt.subplots(1, len(panels), figsize=(3.6 * len(panels), 3.6), layout="constrained")
    for axis, (title, points, answers) in zip(axes, panels, strict=True):
        order = np.argsort(-points[:, 0])
        axis.scatter(*points[order][:, 1:].T, c=answers[order], s=5, cmap="tab20", vmin=0, vmax=19)
        axis.set_title(title, fontsize=10)
        axis.set_aspect("equal")
        axis.axis("off")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)


def main():
    """Damage the cloud more and more, classify, print and draw."""
    surface, parts = read_scan()
    linear = make_pipeline(Normalizer(), RidgeClassifier(1.0, fit_intercept=False))
    panels = [("all labels", surface, parts)]
    print(f"{len(surface)} points in {PARTS} parts, {LABELS} labels each, {DRAWS} draws")
    print(f"{'noise':<7}{'outliers':>9}{'left out':>10}{'5-NN':>8}{'MRF':>8}{'MRF, cleaned':>14}")
    for noise, outliers in DAMAGES:
        cloud = damage(surface, noise, outliers, np.random.default_rng(0))
        reach = cKDTree(cloud).query(cloud, 9)[0][:, -1]
        kept = reach <= FAR * np.median(reach)
        own = cloud[: len(surface)]
        near, _ = judge(KNeighborsClassifier(5, weights="distance"), own, parts)
        plain, _ = judge(linear, rows_of(fit(cloud), own), parts)
        features = fit(cloud[kept])
        clean, answers = judge(linear, rows_of(features, own), parts)
        print(f"{noise:<7g}{outliers:>9g}{np.mean(~kept):>10.3f}{near:>8.3f}{plain:>8.3f}{clean:>14.3f}")
        if (noise, outliers) in DAMAGES[1::3]:
            panels.append((f"noise {noise:g}, outliers {outliers:g}", own, answers))
    far = cloud.max(axis=0, keepdims=True) + 100 * np.ptp(cloud, axis=0)
    size = float(np.abs(rows_of(features, far)).max())
    print(f"a point {features.distance_to_space(far)[0]:.0f} away has features of at most {size:g}")
    if len(sys.argv) > 1:
        draw(panels, Path(sys.argv[1]))
        print(f"picture: {sys.argv[1]}")


if __name__ == "__main__":
    main()
