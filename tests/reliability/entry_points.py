"""The public entry points that get bad inputs; their other arguments are small and valid."""

import functools
import tempfile
from pathlib import Path

import numpy as np
import torch
from command_line import invoke, words
from reliability.promises import EntryPoint
from scipy.spatial import ConvexHull

from manifoldrf import (
    Counts,
    DiffusionKernel,
    Exact,
    FieldInterpolator,
    Graph,
    GraphOptions,
    GraphRandomFeatures,
    HeatKernel,
    KernelNeighborsClassifier,
    ManifoldGaussianProcess,
    ManifoldRandomFeatures,
    ManifoldRidge,
    Sphere,
    TriangleMesh,
    Walks,
    compute_signatures,
    distances,
    errors_of,
    estimate_dimension,
    heat_graph,
    knn_graph,
    mesh_graph,
    relative_error,
    smooth,
    thin,
)
from manifoldrf.applications.attention import linear_attention
from manifoldrf.baselines import (
    GERF,
    ORF,
    PORF,
    PRF,
    RFF,
    DiffusionMap,
    GaussianFeatures,
    Nystrom,
    SpectralFeatures,
    tune_bandwidth,
)

N = 60  # points of a clean cloud


@functools.cache
def cloud():
    """Even points of the sphere."""
    points = Sphere().grid(N)
    points.flags.writeable = False
    return points


@functools.cache
def faces():
    """The triangles of the cloud."""
    return np.sort(ConvexHull(cloud()).simplices, axis=1).astype(np.int64)


@functools.cache
def ring():
    """Affinities of a ring of n nodes."""
    steps = np.eye(N, k=1) + np.eye(N, k=N - 1)
    return steps + steps.T


@functools.cache
def graph():
    return knn_graph(cloud(), n_neighbors=6)


@functools.cache
def mesh():
    return TriangleMesh(cloud(), faces())


@functools.cache
def model():
    """Features of the sphere."""
    return ManifoldRandomFeatures(DiffusionKernel(20.0), random_state=0, n_jobs=1).fit(graph())


@functools.cache
def baseline():
    return RFF(n_features=8, random_state=0).fit(cloud())


@functools.cache
def ridge():
    return _ridge().fit(cloud(), heights())


@functools.cache
def process():
    return _process().fit(cloud(), heights())


@functools.cache
def filled():
    return _interpolator().fit(graph(), heights())


def heights():
    return cloud()[:, 2]


def hemispheres():
    return np.where(heights() > 0, "north", "south")


def _fit(**options):
    """Fit features to the space and read them at its own points."""

    def call(space):
        made = ManifoldRandomFeatures(random_state=0, n_jobs=1, **options).fit(space)
        features = made.transform(made.graph_.points if isinstance(space, TriangleMesh | Graph) else space)
        return features, made.weights_, made.anchors_

    return call


def _regress(make):
    def call(X):
        return make().fit(X, heights()).predict(X)

    return call


def _ridge():
    features = ManifoldRandomFeatures(DiffusionKernel(20.0), random_state=0, n_jobs=1)
    return ManifoldRidge(features, alpha=1e-3, n_jobs=1)


def _process():
    return ManifoldGaussianProcess(DiffusionKernel(20.0), optimize=False, random_state=0, n_jobs=1)


def _interpolator():
    return FieldInterpolator("kernel", tau=4.0, random_state=0, n_jobs=1)


def _baseline(make):
    return lambda X: make().fit_transform(X)


# Points that a space is made of.
KNN = EntryPoint("knn_graph", "points", knn_graph)
HEAT = EntryPoint("heat_graph", "points", lambda X: heat_graph(X, 0.3))
THIN = EntryPoint("thin", "points", lambda X: thin(X, 5))
DIMENSION = EntryPoint("estimate_dimension", "points", estimate_dimension)
LOCATED = EntryPoint("Graph.from_affinity, points", "points", lambda X: Graph.from_affinity(ring(), X))
FIT = EntryPoint(
    "ManifoldRandomFeatures.fit", "X", _fit(kernel=DiffusionKernel(20.0), graph=GraphOptions(kind="knn"))
)
FIT_HEAT = EntryPoint("ManifoldRandomFeatures.fit, heat kernel", "X", _fit(kernel=HeatKernel(0.3)))
FIT_DEFAULT = EntryPoint("ManifoldRandomFeatures.fit, defaults", "X", _fit())
FILL = EntryPoint("FieldInterpolator.fit", "space", lambda X: _interpolator().fit(X, heights()).predict())
SMOOTH = EntryPoint("smooth", "space", lambda X: smooth(X, heights(), t=0.3))
PATHS = EntryPoint("distances", "space", lambda X: distances(X, 0, method="edges"))
RIDGE = EntryPoint("ManifoldRidge.fit", "X", _regress(_ridge))
PROCESS = EntryPoint("ManifoldGaussianProcess.fit", "X", _regress(_process))
NEIGHBORS = EntryPoint(
    "KernelNeighborsClassifier.fit",
    "X",
    lambda X: KernelNeighborsClassifier(3).fit(X, hemispheres()).predict(X) == "north",
)
_GAUSSIAN = functools.partial(GaussianFeatures, n_features=125, sigma=10.0)
GAUSSIAN = EntryPoint("GaussianFeatures.fit", "X", _baseline(_GAUSSIAN))
BASELINES = (
    *(
        EntryPoint(f"{cls.__name__}.fit", "X", _baseline(functools.partial(cls, n_features=8, random_state=0)))
        for cls in (RFF, ORF, PRF, PORF, GERF, Nystrom)
    ),
    GAUSSIAN,
)
SPECTRAL = tuple(
    EntryPoint(f"{cls.__name__}.fit", "X", _baseline(functools.partial(cls, n_features=8)))
    for cls in (DiffusionMap, SpectralFeatures)
)
TUNE = EntryPoint(
    "tune_bandwidth", "X", lambda X: tune_bandwidth(RFF(n_features=8), X, np.eye(N), sigmas=[0.5, 1.0]).error
)
VERTICES = EntryPoint("TriangleMesh, vertices", "vertices", lambda X: TriangleMesh(X, faces()))
FUNCTIONS = (KNN, HEAT, THIN, DIMENSION, LOCATED, FILL, SMOOTH, PATHS, TUNE, VERTICES)
ESTIMATORS = (FIT, FIT_HEAT, FIT_DEFAULT, RIDGE, PROCESS, *BASELINES, *SPECTRAL, NEIGHBORS)

# Points that are asked about.
TRANSFORM = EntryPoint("ManifoldRandomFeatures.transform", "X", lambda X: model().transform(X))
KERNEL = EntryPoint("ManifoldRandomFeatures.kernel_matrix", "Z", lambda Z: model().kernel_matrix(Z))
KERNEL_Y = EntryPoint(
    "ManifoldRandomFeatures.kernel_matrix, second", "Y", lambda Y: model().kernel_matrix(cloud(), Y)
)
MATVEC = EntryPoint("ManifoldRandomFeatures.matvec", "Z", lambda Z: model().matvec(Z, np.ones(N)))
DISTANCE = EntryPoint("ManifoldRandomFeatures.distance_to_space", "Z", lambda Z: model().distance_to_space(Z))
BLOCKS = EntryPoint(
    "ManifoldRandomFeatures.transform_blocks", "X", lambda X: np.concatenate(list(model().transform_blocks(X)))
)
EXTEND = EntryPoint("Graph.extend", "points", lambda X: graph().extend(X))
CLOSEST = EntryPoint("TriangleMesh.closest_points", "points", lambda X: mesh().closest_points(X))
FILL_AT = EntryPoint("FieldInterpolator.predict", "Z", lambda Z: filled().predict(Z))
RIDGE_AT = EntryPoint("ManifoldRidge.predict", "X", lambda X: ridge().predict(X))
PROCESS_AT = EntryPoint("ManifoldGaussianProcess.predict", "X", lambda X: process().predict(X, return_std=True))
BASELINE_AT = EntryPoint("RFF.transform", "X", lambda X: baseline().transform(X))
ON_SPHERE = EntryPoint("Sphere.distance", "X", lambda X: Sphere().distance(X, cloud()))
QUERIES = (EXTEND, CLOSEST, FILL_AT, ON_SPHERE)
ASKED = (TRANSFORM, KERNEL, KERNEL_Y, MATVEC, DISTANCE, BLOCKS, RIDGE_AT, PROCESS_AT, BASELINE_AT)

# What the page calls them where all are meant.
GROUPS = {
    "functions of points": FUNCTIONS,
    "estimators": ESTIMATORS,
    "queries": QUERIES,
    "queries of estimators": ASKED,
}


# Values at points.
VALUES = EntryPoint("FieldInterpolator.fit, values", "values", lambda y: _interpolator().fit(graph(), y).predict())
RIDGE_Y = EntryPoint("ManifoldRidge.fit, y", "y", lambda y: _ridge().fit(cloud(), y).predict(cloud()))
PROCESS_Y = EntryPoint("ManifoldGaussianProcess.fit, y", "y", lambda y: _process().fit(cloud(), y).predict(cloud()))
APPLY = EntryPoint("kernel.apply", "X", lambda X: DiffusionKernel(4.0).apply(graph(), X))
VECTOR = EntryPoint("ManifoldRandomFeatures.matvec, v", "v", lambda v: model().matvec(cloud(), v))
ERRORS = EntryPoint("errors_of", "K", lambda K: errors_of(K, cloud()))
RELATIVE = EntryPoint("relative_error, reference", "reference", lambda K: relative_error(cloud(), K))
WEIGHTS = EntryPoint("heat_graph, weights", "weights", lambda mu: heat_graph(cloud(), 0.3, weights=mu))
DENSITY = EntryPoint(
    "knn_graph, density_correction", "density_correction", lambda p: knn_graph(cloud(), density_correction=p)
)
ANCHOR_DENSITY = EntryPoint(
    "ManifoldRandomFeatures.fit, anchor_density",
    "anchor_density",
    lambda p: _fit(kernel=DiffusionKernel(20.0), anchors="iid", anchor_density=p)(graph()),
)

# Nodes.
NODES = EntryPoint(
    "compute_signatures, nodes", "nodes", lambda nodes: compute_signatures(graph(), DiffusionKernel(4.0), nodes)
)
GRAPH_NODES = EntryPoint(
    "GraphRandomFeatures.transform",
    "X",
    lambda X: GraphRandomFeatures(DiffusionKernel(4.0)).fit(graph()).transform(X),
)
PATHS = EntryPoint("Graph.shortest_paths", "sources", lambda nodes: graph().shortest_paths(nodes))
ROWS = EntryPoint("kernel.matrix, rows", "rows", lambda rows: DiffusionKernel(4.0).matrix(graph(), rows))

# Matrices and graphs.
AFFINITY = EntryPoint("Graph.from_affinity", "affinity", Graph.from_affinity)
ON_GRAPH = EntryPoint("kernel.dense", "graph", lambda made: DiffusionKernel(4.0).dense(made))
SIGNATURES = EntryPoint("compute_signatures", "graph", lambda made: compute_signatures(made, DiffusionKernel(4.0)))
WALKS = EntryPoint(
    "compute_signatures, walks",
    "graph",
    lambda made: compute_signatures(made, DiffusionKernel(4.0), teacher=Walks(50), seed=0),
)
COUNTS = EntryPoint(
    "compute_signatures, counts",
    "graph",
    lambda made: compute_signatures(made, DiffusionKernel(4.0), teacher=Counts(50), seed=0),
)
FRONTIER = EntryPoint(
    "compute_signatures, sparse",
    "graph",
    lambda made: compute_signatures(made, DiffusionKernel(4.0), teacher=Exact(form="sparse")),
)
FIT_GRAPH = EntryPoint("ManifoldRandomFeatures.fit, a graph", "X", _fit(kernel=DiffusionKernel(20.0)))
FILL_GRAPH = EntryPoint(
    "FieldInterpolator.fit, a graph",
    "space",
    lambda made: _interpolator().fit(made, np.arange(float(made.n_nodes))).predict(),
)

# Meshes.
FACES = EntryPoint("TriangleMesh, faces", "faces", lambda given: TriangleMesh(cloud(), given))
MESH_GRAPH = EntryPoint("mesh_graph", "mesh", mesh_graph)
COTANGENT = EntryPoint("mesh_graph, cotangent", "mesh", lambda made: mesh_graph(made, weights="cotangent"))
HEAT_MESH = EntryPoint("heat_graph, a mesh", "points", lambda made: heat_graph(made, 0.3))
FIT_MESH = EntryPoint("ManifoldRandomFeatures.fit, a mesh", "X", _fit(kernel=DiffusionKernel(20.0)))
FIT_SURFACE = EntryPoint("ManifoldRandomFeatures.fit, a mesh, heat kernel", "X", _fit(kernel=HeatKernel(0.3)))
FILL_MESH = EntryPoint(
    "FieldInterpolator.fit, a mesh",
    "space",
    lambda made: _interpolator().fit(made, np.arange(float(made.n_vertices))).predict(),
)
MEASURES = EntryPoint(
    "TriangleMesh: areas, normals, samples, nearest points, report",
    "mesh",
    lambda made: (
        *(made.face_areas(), made.vertex_areas(), made.face_normals(), made.vertex_normals(), made.area),
        *(made.edge_lengths(), made.sample(5, seed=0), made.closest_points(cloud()), made.report()),
    ),
)


# Attention.
def _attend(name):
    def call(given):
        phi, v = torch.from_numpy(np.abs(cloud())), torch.from_numpy(heights()[:, None].copy())
        parts = {"phi_q": phi, "phi_k": phi, "v": v}
        return linear_attention(**(parts | {name: given}))

    return call


ATTEND_Q, ATTEND_K, ATTEND_V = (
    EntryPoint(f"linear_attention, {name}", name, _attend(name)) for name in ("phi_q", "phi_k", "v")
)


# The command line, which reads the same things from files.
class Stopped(ValueError):
    """The error that a command printed."""


def _command(*arguments):
    """Run a command on a file INPUT: the array it wrote, or its error without the name of the folder."""

    def call(write):
        with tempfile.TemporaryDirectory() as folder:
            path = write(Path(folder))
            target = Path(folder) / "written.safetensors"
            done = invoke(*arguments, path, "-o", target, "--json")
            if done.exit_code != 0:
                told = str(done.exception) if done.exit_code == 1 else words(done.stderr)
                raise Stopped(told.replace(f"{folder}/", ""))
            return target.stat().st_size

    return call


CLI_GRAPH = EntryPoint("manifoldrf graph", "INPUT", _command("graph"))
CLI_FIT = EntryPoint("manifoldrf fit", "INPUT", _command("fit", "--tau", "20"))
