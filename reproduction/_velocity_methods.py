"""A moving mesh with some velocities hidden, and the methods that fill them in, each in two parts."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from manifoldrf._random import generator
from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.applications.interpolation import FieldInterpolator
from manifoldrf.applications.smoothing import feature_action
from manifoldrf.geometry._triangles import row_lengths, unit_rows
from manifoldrf.geometry.builders import knn_graph, mesh_graph
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.metrics import relative_error
from reproduction._normal_methods import AVERAGE, FARTHEST, NEAREST, SPARSE, UNIFORM, mean_cosine
from reproduction._smoothers import (
    Task,
    ambient_features,
    anchored_features,
    average_neighbours,
    box_diagonal,
    dense_action,
    exact_action,
    nearest_in_space,
    sparse_features,
)
from reproduction.sequences import Sequence

KNN, EDGES = "exact kernel, kNN graph", "exact kernel, mesh edges"
UNIFORM_EDGES = f"{UNIFORM}, mesh edges"
_SOURCES = 512  # vertices whose paths are searched at once: 30 MB for 8000
_LONGER = 4.0  # times as long along the mesh as in space: an edge joins two sheets. On a flat grid no path is 1.5


# ---------------------------------------------------------------------------------------------------------- scenes
@dataclass(frozen=True, eq=False)
class Scene:
    """Nodes on a moving mesh, their velocities in some frames, and which of them are hidden.

    Attributes
    ----------
    task : Task
        Nodes are the vertices, then points on faces if there are more. Velocities of all frames stand side by side,
        (n, 3 f).
    mesh : TriangleMesh
        In the first of the frames.
    n_neighbors, n_anchors, share : int
        Of the graph; dense features; nodes for each sparse anchor.
    tau : float
    """

    task: Task
    mesh: TriangleMesh
    n_neighbors: int = 16
    tau: float = 20.0
    n_anchors: int = 256
    share: int = 8

    @cached_property
    def knn(self) -> Graph:
        """The nearest neighbours in space, with Gaussian weights."""
        return knn_graph(self.task.points, n_neighbors=self.n_neighbors)

    @cached_property
    def edges(self) -> Graph:
        """The edges of the mesh, with Gaussian weights."""
        return mesh_graph(self.mesh)

    def graph(self, kind: str) -> Graph:
        """One of the graphs above by name, or edges with "unit" or "cotangent" weights."""
        if kind in ("knn", "edges"):
            graph: Graph = getattr(self, kind)
            return graph
        return mesh_graph(self.mesh, weights=kind)

    def fill_by(self, features: Any) -> FloatArray:
        """Velocities by features (n, m) of the nodes."""
        return self.task.fill(feature_action(features, features))

    def errors(self, found: FloatArray) -> dict[str, float]:
        """Mean cosine and relative l2 error at the hidden nodes, over all frames."""
        hidden = self.task.judged
        clean = np.nan_to_num(found[hidden], posinf=0.0, neginf=0.0)  # what has no prediction counts as still
        return {"cosine": self.task.judge(found), "error": relative_error(clean, self.task.values[hidden])}


def evaluated_frames(n_frames: int, count: int, first: float) -> IntArray:
    """So many frames, evenly from a share of the sequence to its end."""
    return np.unique(np.linspace(max(1, int(first * n_frames)), n_frames - 1, count).astype(np.int64))


def make_scene(
    sequence: Sequence, frames: IntArray, masked: float, seed: int, n_nodes: int | None = None, **options: Any
) -> Scene:
    """Hide a share of the velocities of a sequence, on its vertices or on more nodes drawn by area.

    A point on a face keeps its place in it: its velocity mixes those of the corners, by the same weights.
    """
    mesh = sequence.mesh(int(frames[0]))
    points, values = mesh.vertices, np.hstack([sequence.velocity(int(frame)) for frame in frames])
    missing = 0 if n_nodes is None else n_nodes - len(points)
    if missing > 0:
        sample = mesh.sample(missing, seed=seed)
        more = np.einsum("pc,pcd->pd", sample.barycentric, values[mesh.faces[sample.faces]])
        points, values = np.vstack([points, sample.points]), np.vstack([values, more])
    n = len(points)
    known = np.ones(n, dtype=bool)
    known[generator(seed, f"mask {sequence.name}").choice(n, max(1, round(masked * n)), replace=False)] = False
    return Scene(Task(points, values, known, mean_cosine_of_frames, seed=seed), mesh, **options)


def mean_cosine_of_frames(found: FloatArray, truth: FloatArray) -> float:
    """Mean cosine over nodes and frames (q, 3 f); what stands still has no direction and does not count."""
    rows, exact = found.reshape(-1, 3), truth.reshape(-1, 3)
    moves = row_lengths(exact) > 0
    return mean_cosine(rows[moves], unit_rows(exact[moves]))


def sheet_share(mesh: TriangleMesh, graph: Graph) -> float:
    """Share of the edges of a graph on the vertices that are more than four times as long along the mesh."""
    pairs = sparse.triu(graph.lengths, 1).tocsr()
    paths = mesh_graph(mesh, weights="unit").lengths
    joins = 0
    for block in np.array_split(np.arange(mesh.n_vertices), max(1, mesh.n_vertices // _SOURCES)):
        own = pairs[block].tocoo()
        if own.nnz:
            along = csgraph.dijkstra(paths, indices=block, limit=_LONGER * own.data.max())
            joins += int((along[own.row, own.col] > _LONGER * own.data).sum())
    return joins / max(int(pairs.nnz), 1)


# --------------------------------------------------------------------------------------------------------- methods
@dataclass(frozen=True)
class Method:
    """How velocities are filled in: what depends on the nodes only, and the rest, which gives (n, 3 f)."""

    prepare: Callable[[Scene], Any]
    fill: Callable[[Scene, Any], FloatArray]

    def __call__(self, scene: Scene) -> FloatArray:
        """Both parts."""
        return self.fill(scene, self.prepare(scene))


def _apply(scene: Scene, action: Any) -> FloatArray:
    return scene.task.fill(action)


def _exact(kind: str) -> Method:
    return Method(lambda scene: exact_action(scene.graph(kind), scene.tau), _apply)


def _anchored(kind: str, anchors: str) -> Method:
    def prepare(scene: Scene) -> FloatArray:
        return anchored_features(scene.graph(kind), scene.tau, scene.n_anchors, anchors, scene.task.seed)

    return Method(prepare, Scene.fill_by)


def _interpolate(options: dict[str, Any], scene: Scene, graph: Graph) -> FloatArray:
    """The library's interpolation of all frames at once; it is shown the known values only."""
    task = scene.task
    return FieldInterpolator(random_state=task.seed, **options).fit(graph, task.values, task.known).predict()


def _library(kind: str, method: str) -> Method:
    return Method(lambda scene: scene.graph(kind), functools.partial(_interpolate, {"method": method}))


def ambient(name: str, sigma: float) -> Method:
    """Features such as "RFF 256" with one bandwidth, over the diagonal of the box."""
    kind, size = name.split()

    def prepare(scene: Scene) -> FloatArray:
        width = sigma * box_diagonal(scene.task.points)
        return ambient_features(scene.task.points, kind, int(size), width, scene.task.seed)

    return Method(prepare, Scene.fill_by)


def _nearest(scene: Scene, nothing: None) -> FloatArray:
    del nothing
    return nearest_in_space(scene.task.points, scene.task.values, scene.task.known)


FULL_METHOD = Method(lambda scene: dense_action(scene.knn, scene.tau), _apply)
# With the paper's tau. All but those on edges of the mesh do for nodes on faces, too.
AS_PAPER: dict[str, Method] = {
    KNN: _exact("knn"),
    EDGES: _exact("edges"),
    UNIFORM: _anchored("knn", "iid"),
    FARTHEST: _anchored("knn", "farthest"),
    SPARSE: Method(
        lambda scene: sparse_features(scene.knn, scene.tau, scene.share, scene.task.seed), Scene.fill_by
    ),
    UNIFORM_EDGES: _anchored("edges", "iid"),
}
# With parameters that are chosen on the known velocities, or none.
TUNED: dict[str, Method] = {
    KNN: _library("knn", "kernel"),
    EDGES: _library("edges", "kernel"),
    NEAREST: Method(lambda scene: None, _nearest),
    AVERAGE: Method(lambda scene: None, lambda scene, nothing: average_neighbours(scene.task)),
    "harmonic, kNN graph": _library("knn", "harmonic"),
    "biharmonic, kNN graph": _library("knn", "biharmonic"),
    "harmonic, mesh edges, unit": _library("unit", "harmonic"),
    "biharmonic, mesh edges, unit": _library("unit", "biharmonic"),
    "harmonic, mesh edges, cotangent": _library("cotangent", "harmonic"),
    "biharmonic, mesh edges, cotangent": _library("cotangent", "biharmonic"),
}
