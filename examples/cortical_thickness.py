"""Thickness of the cortex from 5 % of its vertices, with intervals that say how far to trust each prediction.

The Gaussian process lives on the surface: places on opposite banks of a fold are close in space and far apart along
the cortex. Beside it stand a process with the Gaussian kernel of the space around, and the nearest labelled vertex.
Both processes find their length, variance and noise by marginal likelihood, from the labelled vertices alone.
On this field both predict about equally well; the table says by how much they differ.

The surface is fsaverage5, halfway between its inner and outer boundary (10,242 vertices, from the nilearn wheel).
The medial wall, where the hemispheres were cut apart, is no cortex. Its thickness is zero, and along its seam
between zero and that of its neighbours. Cortex is 1 to 4.5 mm thick, so vertices below 1 mm are left out: neither
labelled nor predicted. The surface keeps them.

Run: python examples/cortical_thickness.py [picture.png]
"""

import importlib.util
import sys
import time
import warnings
from pathlib import Path

import nibabel
import numpy as np
from matplotlib import pyplot
from scipy.spatial import cKDTree
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from manifoldrf import HeatKernel, TriangleMesh, heat_graph
from manifoldrf.applications.regression import ManifoldGaussianProcess

SEEDS = (0, 1, 2)
SHARE = 0.05  # of all vertices
LEAST = 1.0  # mm: what is thinner is no cortex
TIME = 66.0  # mm^2: where the search for the heat time begins
STEPS = 12  # of the heat graph in that time; times that are tried are even numbers of them
FEATURES = 2048
QUANTILE = 1.645  # of the normal distribution, for 90 % intervals


def read_cortex():
    """The surface and the thickness at its vertices, in mm."""
    folder = Path(importlib.util.find_spec("nilearn").submodule_search_locations[0]) / "datasets/data/fsaverage5"

    def read(name):
        return nibabel.load(folder / f"{name}_left.gii.gz")

    inner, outer = (read(name).agg_data("pointset").astype(np.float64) for name in ("white", "pial"))
    mesh = TriangleMesh((inner + outer) / 2, read("pial").agg_data("triangle").astype(np.int64))
    return mesh, read("thick").agg_data().astype(np.float64)


def ambient_process(points, values, new):
    """An exact process with the Gaussian kernel of the space around, on the same data."""
    kernel = ConstantKernel(0.3) * RBF(10.0, (0.5, 200.0)) + WhiteKernel(0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = GaussianProcessRegressor(kernel).fit(points, values - values.mean())
    mean, std = model.predict(new, return_std=True)  # the noise is part of this kernel
    return mean + values.mean(), std


def row(seed, method, truth, mean, std=None):
    """One line of the table."""
    error = np.abs(mean - truth)
    covered = "      " if std is None else f"{(error < QUANTILE * std).mean():6.1%}"
    width = "" if std is None else f"{2 * QUANTILE * std.mean():5.2f}"
    print(f"{seed:>4}  {method:<18} {error.mean():8.3f}  {covered}  {width:>5}")


def run(seed, graph, points, thickness):
    """Fit all methods for one choice of labelled vertices, and print their lines of the table."""
    cortex = np.flatnonzero(thickness >= LEAST)
    labelled = np.random.default_rng(seed).choice(cortex, int(SHARE * len(points)), replace=False)
    others = np.setdiff1d(cortex, labelled)
    known, truth = thickness[labelled], thickness[others]

    model = ManifoldGaussianProcess(HeatKernel(TIME), space=graph, n_features=FEATURES, random_state=0)
    model.fit(points[labelled], known)
    mean, std = model.predict(points[others], return_std=True, include_noise=True)
    row(seed, "along the surface", truth, mean, std)
    row(seed, "space around", truth, *ambient_process(points[labelled], known, points[others]))
    row(seed, "nearest labelled", truth, known[cKDTree(points[labelled]).query(points[others])[1]])
    return labelled, model


def draw(path, points, thickness, labelled, model):
    """Truth, prediction and standard deviation, seen from the side; labelled vertices as dots."""
    mean, std = model.predict(points, return_std=True)
    cortex = thickness >= LEAST
    figure, panels = pyplot.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    limits = {"vmin": 1.0, "vmax": 4.5, "cmap": "magma_r"}
    pictures = (
        ("thickness, mm", thickness, limits),
        (f"predicted from {len(labelled)} vertices, mm", mean, limits),
        ("standard deviation, mm", std, {"cmap": "viridis"}),
    )
    outer = points[:, 0] < np.median(points[:, 0])  # of a left hemisphere
    visible = np.flatnonzero(cortex & outer)
    order = visible[np.argsort(-points[visible, 0])]  # from back to front
    for axes, (title, values, style) in zip(panels, pictures, strict=True):
        drawn = axes.scatter(points[order, 1], points[order, 2], c=values[order], s=24, linewidths=0, **style)
        figure.colorbar(drawn, ax=axes, shrink=0.7)
        axes.set(title=title, aspect="equal")
        axes.set_axis_off()
    dots = labelled[np.isin(labelled, visible)]
    panels[2].scatter(points[dots, 1], points[dots, 2], s=3, color="black", linewidths=0)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def main():
    """Print the table and save the picture."""
    started = time.perf_counter()
    mesh, thickness = read_cortex()
    points = mesh.vertices
    left_out = np.count_nonzero(thickness < LEAST)
    print(f"{len(points)} vertices, {left_out} of the medial wall and its seam left out")
    graph = heat_graph(mesh, TIME, n_steps=STEPS, n_jobs=-1)
    print(f"{'seed':>4}  {'process':<18} {'error/mm':>8}  {'in 90 %':>6}  width")
    for seed in SEEDS:
        labelled, model = run(seed, graph, points, thickness)
        print(f"      heat time {model.kernel_.t:.0f} mm^2, noise {model.noise_**0.5:.2f} mm")
    path = sys.argv[1] if len(sys.argv) > 1 else "cortical_thickness.png"
    draw(path, points, thickness, labelled, model)
    print(f"{path} written, {time.perf_counter() - started:.0f} s in all")


if __name__ == "__main__":
    main()
