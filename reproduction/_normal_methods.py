"""The methods that fill in vertex normals, each in two parts: what depends on the mesh only, and the rest."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np

from manifoldrf._notices import without_warnings
from manifoldrf._random import generator
from manifoldrf._validation import FloatArray
from manifoldrf.applications._known import reached
from manifoldrf.applications.interpolation import FieldInterpolator, InterpolationWarning
from manifoldrf.applications.smoothing import feature_action
from manifoldrf.geometry._triangles import row_lengths, unit_rows
from manifoldrf.geometry.builders import mesh_graph
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.meshes import TriangleMesh
from reproduction._smoothers import (
    AMBIENT,
    Task,
    ambient_features,
    anchored_features,
    average_neighbours,
    box_diagonal,
    dense_action,
    nearest_in_space,
    nearest_on_edges,
    sparse_features,
)

# Names of methods. Those of the paper's table come with its cosine and the growth of its interpolation time.
FULL, KERNEL, KERNEL_UNIT = "full kernel, dense", "exact kernel, Gaussian weights", "exact kernel, unit weights"
LEARNED = "MRF, paper's recipe"
UNIFORM, FARTHEST = "exact features, uniform anchors", "exact features, farthest anchors"
SPARSE, FEATURES, AUTO = "sparse features, N/8 anchors", "library features", "library default (auto)"
GP, NEAREST, NEAREST_EDGES = "Gaussian process, unit weights", "nearest known in space", "nearest known along edges"
AVERAGE = "32 nearest known, Gaussian mean"
HARMONIC, BIHARMONIC = "harmonic, unit weights", "biharmonic, unit weights"
PUBLISHED: Mapping[str, float] = MappingProxyType(
    {
        LEARNED: 0.85, UNIFORM: 0.85,
        "RFF 256": 0.71, "ORF 256": 0.72, "PRF 256": 0.40, "PORF 256": 0.41,
        "RFF 1024": 0.78, "ORF 1024": 0.78, "PRF 1024": 0.47, "PORF 1024": 0.43,
    }
)  # fmt: skip
PUBLISHED_GROWTH: Mapping[str, float] = MappingProxyType(
    {
        LEARNED: 0.50,
        "RFF 256": 1.06, "ORF 256": 1.01, "PRF 256": 1.09, "PORF 256": 0.97,
        "RFF 1024": 1.10, "ORF 1024": 1.07, "PRF 1024": 1.13, "PORF 1024": 1.14,
    }
)  # fmt: skip
_TIMED_SIGMA = 0.05  # of the diagonal, where ambient features are timed: the time does not depend on it


def mean_cosine(found: FloatArray, truth: FloatArray) -> float:
    """Mean cosine between predictions of any length and unit vectors; a missing or zero prediction counts 0."""
    clean = unit_rows(np.nan_to_num(found, posinf=0.0, neginf=0.0))
    return float(np.einsum("ij,ij->i", clean, truth).mean()) if len(truth) else float("nan")


@dataclass(frozen=True, eq=False)
class Stage:
    """One mesh with one mask: its normals, 80 % of them hidden.

    Attributes
    ----------
    name : str
    mesh : TriangleMesh
    masked : float
        Share of the vertices whose normals are hidden.
    tau : float
    n_anchors, share : int
        Dense features; one sparse anchor for so many vertices.
    seed : int
    """

    name: str
    mesh: TriangleMesh
    masked: float
    tau: float
    n_anchors: int = 256
    share: int = 8
    seed: int = 0

    @cached_property
    def graphs(self) -> dict[str, Graph]:
        """Graphs by their weights, as far as they were asked for."""
        return {}

    def graph(self, weights: str) -> Graph:
        """The graph of the edges, built once."""
        if weights not in self.graphs:
            self.graphs[weights] = mesh_graph(self.mesh, weights=weights)
        return self.graphs[weights]

    @cached_property
    def task(self) -> Task:
        """Known normals, and those that count: vertices with a normal, in pieces with a known one."""
        normals = self.mesh.vertex_normals()
        n = len(normals)
        known = np.ones(n, dtype=bool)
        known[generator(self.seed, f"mask {self.name}").choice(n, round(self.masked * n), replace=False)] = False
        has_normal = row_lengths(normals) > 0.5  # unit, or zero where faces cancel
        counted = has_normal & reached(self.graph("unit"), known & has_normal)
        return Task(
            self.mesh.vertices,
            normals,
            known & has_normal,
            mean_cosine,
            counted=counted,
            directions=True,
            seed=self.seed,
        )

    def fill_by(self, features: Any) -> FloatArray:
        """Normals by features (n, m) of the vertices."""
        return self.task.fill(feature_action(features, features))


@dataclass(frozen=True)
class Method:
    """How normals are filled in.

    Attributes
    ----------
    prepare : callable
        Stage -> what depends on the mesh only. It builds its own graph, so that its time is whole.
    fill : callable
        Stage and what was prepared -> normals of any length, (n, 3).
    largest : int or None
        Vertices of the largest mesh on which it is timed.
    """

    prepare: Callable[[Stage], Any]
    fill: Callable[[Stage, Any], FloatArray]
    largest: int | None = None


def _prepare_graph(weights: str, stage: Stage) -> Graph:
    return mesh_graph(stage.mesh, weights=weights)


def _interpolate(options: dict[str, Any], stage: Stage, graph: Any) -> FloatArray:
    """The library's interpolation on a graph."""
    task = stage.task
    model = FieldInterpolator(normalize=True, random_state=stage.seed, **options)
    with without_warnings(InterpolationWarning):  # pieces without a known value do not count
        return model.fit(graph, task.values, task.known).predict()


def interpolator(weights: str, largest: int | None = None, **options: Any) -> Method:
    """A method of :class:`FieldInterpolator` with its options."""
    return Method(functools.partial(_prepare_graph, weights), functools.partial(_interpolate, options), largest)


def _ambient(name: str) -> Method:
    """Ambient features at one bandwidth: for times only."""
    method, _, size = name.partition(" ")

    def prepare(stage: Stage) -> FloatArray:
        points = stage.mesh.vertices
        return ambient_features(points, method, int(size), _TIMED_SIGMA * box_diagonal(points), stage.seed)

    return Method(prepare, Stage.fill_by)


def _anchored(kind: str) -> Method:
    def prepare(stage: Stage) -> FloatArray:
        return anchored_features(_prepare_graph("gaussian", stage), stage.tau, stage.n_anchors, kind, stage.seed)

    return Method(prepare, Stage.fill_by)


def _sparse(stage: Stage) -> Any:
    return sparse_features(_prepare_graph("gaussian", stage), stage.tau, stage.share, stage.seed)


def _dense(stage: Stage) -> Any:
    return dense_action(_prepare_graph("gaussian", stage), stage.tau)


def _library_features(stage: Stage) -> FieldInterpolator:
    task = stage.task
    model = FieldInterpolator("features", tau=stage.tau, normalize=True, random_state=stage.seed)
    return model.fit(_prepare_graph("gaussian", stage), task.values, task.known)


def _refit(stage: Stage, model: FieldInterpolator) -> FloatArray:
    return model.refit(stage.task.values, stage.task.known).predict()


def _no_graph(stage: Stage) -> None:
    del stage


def _nearest(stage: Stage, nothing: None) -> FloatArray:
    del nothing
    return nearest_in_space(stage.task.points, stage.task.values, stage.task.known)


def _average(stage: Stage, nothing: None) -> FloatArray:
    del nothing
    return average_neighbours(stage.task)


def _along_edges(stage: Stage, graph: Graph) -> FloatArray:
    return nearest_on_edges(graph, stage.task.values, stage.task.known)


def as_paper(tau: float) -> dict[str, Method]:
    """Methods with the paper's tau."""
    return {
        KERNEL: interpolator("gaussian", method="kernel", tau=tau),
        KERNEL_UNIT: interpolator("unit", method="kernel", tau=tau),
        UNIFORM: _anchored("iid"),
        FARTHEST: _anchored("farthest"),
        SPARSE: Method(_sparse, Stage.fill_by),
        FEATURES: Method(_library_features, _refit),
    }


# Methods whose parameters are chosen on the known normals, or that have none.
TUNED: Mapping[str, Method] = MappingProxyType(
    {
        KERNEL: interpolator("gaussian", method="kernel"),
        KERNEL_UNIT: interpolator("unit", method="kernel"),
        GP: interpolator("unit", 25_000, method="gp"),
        HARMONIC: interpolator("unit", method="harmonic"),
        "harmonic, Gaussian weights": interpolator("gaussian", method="harmonic"),
        "harmonic, cotangent weights": interpolator("cotangent", method="harmonic"),
        BIHARMONIC: interpolator("unit", method="biharmonic"),
        "biharmonic, cotangent weights": interpolator("cotangent", method="biharmonic"),
        AUTO: interpolator("unit", method="auto"),
        NEAREST: Method(_no_graph, _nearest),
        NEAREST_EDGES: Method(functools.partial(_prepare_graph, "gaussian"), _along_edges),
        AVERAGE: Method(_no_graph, _average),
    }
)
# What is run on large meshes, too.
LARGE = (KERNEL, UNIFORM, SPARSE, HARMONIC, BIHARMONIC, NEAREST, NEAREST_EDGES)
LARGE_AMBIENT = (("RFF", 1024),)


def full_kernel(largest: int) -> Method:
    """The paper's dense kernel, up to so many vertices."""
    return Method(_dense, lambda stage, action: stage.task.fill(action), largest)


def ambient_names(budgets: tuple[int, ...]) -> list[tuple[str, int]]:
    """Ambient methods with their numbers of features."""
    return [(method, size) for size in budgets for method in AMBIENT]


def timed_methods(tau: float, budgets: tuple[int, ...]) -> dict[str, Method]:
    """Methods whose times are taken, by the name their row has."""
    own = as_paper(tau)
    names = (KERNEL, UNIFORM, FARTHEST, SPARSE, FEATURES)
    found = {f"{name}, tau = {tau:g}" if name == KERNEL else name: own[name] for name in names}
    chosen = (KERNEL, GP, HARMONIC, BIHARMONIC, NEAREST, NEAREST_EDGES)
    found |= {f"{name}, tau by CV" if name == KERNEL else name: TUNED[name] for name in chosen}
    return found | {f"{name} {size}": _ambient(f"{name} {size}") for name, size in ambient_names(budgets)}
