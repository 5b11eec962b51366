"""
Cortical thickness from 5 % of the vertices
===========================================

Predict the thickness of a human cortex from 5 % of its vertices, with prediction intervals.

The Gaussian process is defined on the surface. Its heat time, variance and noise maximise the marginal likelihood
of the labelled vertices. It is compared with a process of the ambient space, whose Gaussian or Matern kernel is
chosen by the same rule, and with the nearest labelled vertex.

On this field the surface does not win: the process of the ambient space has the higher likelihood, and its error is
smaller by about a tenth. The table shows the errors, and how often the 90 % intervals contain the true value.

Thickness is measured from the inner boundary of the cortex to the outer one. The example uses the surface halfway
between them, of fsaverage5 (10,242 vertices, from the nilearn wheel). The medial wall, where the hemispheres were
cut apart, is not cortex. Its thickness is zero; along its seam, the thickness is between zero and that of its
neighbours. Cortex is 1 to 4.5 mm thick, so vertices below 1 mm are neither labelled nor predicted; they remain part
of the surface.

The arguments are seeds that choose other vertices: ``python examples/cortical_thickness.py 0 1 2``.
"""

import importlib.util
import sys
import warnings
from pathlib import Path

import nibabel
import numpy as np
from matplotlib import collections, colormaps, pyplot
from scipy.spatial import cKDTree
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from manifoldrf import HeatKernel, ManifoldGaussianProcess, TriangleMesh, heat_graph

SEEDS = [int(text) for text in sys.argv[1:] if text.isdecimal()] or [0]
SHARE = 0.05  # of all vertices
LEAST = 1.0  # mm: thinner vertices are not cortex
TIME = 66.0  # mm^2: time of the heat graph
STEPS = 12  # in that time; the search tries even numbers of steps
FEATURES = 2048
START = 33.0  # mm^2: start of the search, a Gaussian of 8 mm; labelled vertices are 12 mm apart
QUANTILE = 1.645  # of the normal distribution, for 90 % intervals


# %%
# The surface, and the thickness at its vertices.


def read_cortex():
    """The surface and the thickness at its vertices, in mm."""
    folder = Path(importlib.util.find_spec("nilearn").submodule_search_locations[0]) / "datasets/data/fsaverage5"

    def read(name):
        return nibabel.load(folder / f"{name}_left.gii.gz")

    inner, outer = (read(name).agg_data("pointset").astype(np.float64) for name in ("white", "pial"))
    mesh = TriangleMesh((inner + outer) / 2, read("pial").agg_data("triangle").astype(np.int64))
    return mesh, read("thick").agg_data().astype(np.float64)


# %%
# The process on the surface, and the one in the ambient space with a choice of two kernels.


def surface_process(graph, points, values):
    """The process on the surface, with its time, variance and noise found by the likelihood."""
    model = ManifoldGaussianProcess(HeatKernel(START), space=graph, n_features=FEATURES, random_state=0)
    model.fit(points, values)
    print(f"      log likelihoods: along the surface {model.log_marginal_likelihood_:.1f}", end="")
    return model


def ambient_process(points, values):
    """An exact process of the space around, on the same data and by the same choice."""
    models = []
    for shape in (RBF(10.0, (0.5, 200.0)), Matern(10.0, (0.5, 200.0), nu=1.5)):
        kernel = ConstantKernel(0.3) * shape + WhiteKernel(0.05)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            models.append(GaussianProcessRegressor(kernel).fit(points, values - values.mean()))
    found = [model.log_marginal_likelihood_value_ for model in models]
    print(f"; in the space around, Gaussian {found[0]:.1f} and Matern {found[1]:.1f}")
    return models[int(np.argmax(found))]


# %%
# The table: mean error, share of true values inside the 90 % intervals, and mean width of the intervals.


def row(seed, method, truth, mean, std=None):
    """One line of the table."""
    error = np.abs(mean - truth)
    covered = "      " if std is None else f"{(error < QUANTILE * std).mean():6.1%}"
    width = "" if std is None else f"{2 * QUANTILE * std.mean():5.2f}"
    print(f"{seed:>4}  {method:<18} {error.mean():8.3f}  {covered}  {width:>5}", flush=True)


def run(seed, graph, points, thickness):
    """Fit all methods for one choice of labelled vertices, and print their lines of the table."""
    cortex = np.flatnonzero(thickness >= LEAST)
    labelled = np.random.default_rng(seed).choice(cortex, int(SHARE * len(points)), replace=False)
    others = np.setdiff1d(cortex, labelled)
    known, truth = thickness[labelled], thickness[others]

    model = surface_process(graph, points[labelled], known)
    around = ambient_process(points[labelled], known)
    mean, std = model.predict(points[others], return_std=True, include_noise=True)
    row(seed, "along the surface", truth, mean, std)
    mean, std = around.predict(points[others], return_std=True)  # the noise is part of this kernel
    row(seed, "space around", truth, mean + known.mean(), std)
    row(seed, "nearest labelled", truth, known[cKDTree(points[labelled]).query(points[others])[1]])
    return labelled, model


mesh, thickness = read_cortex()
points = mesh.vertices
print(f"{len(points)} vertices, {np.count_nonzero(thickness < LEAST)} of the medial wall and its seam left out")
graph = heat_graph(mesh, TIME, n_steps=STEPS, n_jobs=-1)
print(f"{'seed':>4}  {'process':<18} {'error/mm':>8}  {'in 90 %':>6}  width")
for seed in SEEDS:
    labelled, model = run(seed, graph, points, thickness)
    print(f"      heat time {model.kernel_.t:.0f} mm^2, noise {model.noise_variance_**0.5:.2f} mm", flush=True)

# %%
# Truth, prediction and standard deviation, seen from the left. Dots are labelled vertices; grey is not cortex.

faces = mesh.faces
mean, std = model.predict(points, return_std=True)
flat = points[:, 1:] * [-1, 1]  # the forehead is on the left
normals = mesh.face_normals()
front = np.flatnonzero(normals[:, 0] < 0)
front = front[np.argsort(-points[faces[front], 0].mean(axis=1))]  # from back to front
light = 0.72 + 0.28 * np.clip(normals[front] @ [-0.8, 0.2, 0.55], 0, 1)
front = faces[front]
cortex = (thickness >= LEAST)[front].all(axis=1)
pictures = (
    ("thickness, mm", thickness, "magma_r", (1.5, 4.0)),
    (f"predicted from {len(labelled)} vertices, mm", mean, "magma_r", (1.5, 4.0)),
    ("standard deviation of the prediction, mm", std, "viridis", (0.0, float(std.max()))),
)
figure, panels = pyplot.subplots(1, 3, figsize=(13, 3.4), layout="constrained")
for axes, (title, values, colours, limits) in zip(panels, pictures, strict=True):
    scale = pyplot.Normalize(*limits)
    shades = colormaps[colours](scale(values[front].mean(axis=1)))
    shades[~cortex] = (0.85, 0.85, 0.85, 1.0)
    shades[:, :3] *= light[:, None]
    axes.add_collection(collections.PolyCollection(flat[front], facecolors=shades, edgecolors=shades, lw=0.3))
    figure.colorbar(pyplot.cm.ScalarMappable(scale, colours), ax=axes, shrink=0.8)
    axes.set(title=title, aspect="equal")
    axes.autoscale_view()
    axes.set_axis_off()
panels[2].scatter(*flat[np.intersect1d(labelled, front)].T, s=3, color="black", linewidths=0)
pyplot.show()
