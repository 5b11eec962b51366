"""What filling in normals costs: times of all methods on meshes of growing size, and the paper's learned recipe."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from manifoldrf._optional import available
from manifoldrf._validation import FloatArray
from manifoldrf.applications.smoothing import feature_action
from manifoldrf.geometry.builders import knn_graph
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.signatures._engines import Progress
from reproduction._growth import EPOCHS_EXTRAPOLATED, MEASURED, extrapolated, timed
from reproduction._normal_methods import FULL, LEARNED, Method, Stage, full_kernel, timed_methods
from reproduction._smoothers import (
    LearnedField,
    Recipe,
    anchored_features,
    exact_action,
    learn_field,
)
from reproduction.mesh_data import NamedMesh, builtin_by_name


@dataclass(frozen=True)
class Timing:
    """What is timed.

    Attributes
    ----------
    sizes : tuple of int
    tau : float
    ambient : tuple of int
        Numbers of ambient features.
    largest_dense : int
        Vertices up to which the dense kernel is formed.
    repeats : int
        Of interpolations, the quickest of which counts.
    recipe : Recipe or None
        The paper's, with few epochs and few candidates.
    largest_learned : int
        Vertices up to which that is timed: paths from all candidates to all nodes take minutes beyond.
    """

    sizes: tuple[int, ...]
    tau: float
    ambient: tuple[int, ...]
    largest_dense: int
    repeats: int
    recipe: Recipe | None
    largest_learned: int = 50_000


# ----------------------------------------------------------------------------------------------- the learned recipe
def dense_points(mesh: TriangleMesh, n_dense: int, seed: int) -> FloatArray:
    """Vertices, and points drawn by area where there are fewer than ``n_dense``."""
    missing = n_dense - mesh.n_vertices
    return np.vstack([mesh.vertices, mesh.sample(missing, seed=seed).points]) if missing > 0 else mesh.vertices


def learn_on(stage: Stage, recipe: Recipe, progress: Progress) -> dict[str, Any]:
    """The paper's recipe on one mesh, and the steps between it and the exact kernel."""
    task, n = stage.task, stage.mesh.n_vertices
    points = dense_points(stage.mesh, recipe.n_dense, stage.seed)

    def tell(what: str, done: int, total: int) -> None:
        progress(f"{stage.name}, learned recipe: {what}", done, total)

    learned, prepare_s = timed(lambda: learn_field(points, n, recipe, stage.seed, tell))
    filled, interpolate_s = timed(lambda: _fill_learned(stage, learned))
    graph = knn_graph(points, n_neighbors=min(recipe.n_neighbors, len(points) - 1))
    action = exact_action(graph, recipe.tau)
    features = anchored_features(graph, recipe.tau, recipe.n_features, "iid", stage.seed)[:n]
    steps = {
        "exact": task.fill(exact_action(stage.graph("gaussian"), recipe.tau)),
        "exact_dense": task.fill(lambda X: action(_padded(X, len(points)))[: len(X)]),
        "features": task.fill(feature_action(features, features)),
        "learned": filled,
    }
    return (
        {"mesh": stage.name, "vertices": n, "dense": len(points), "walks": recipe.n_walks}
        | {"epochs": learned.training.epochs, "validation_re": learned.training.validation_re}
        | {name: task.judge(found) for name, found in steps.items()}
        | {"prepare_s": prepare_s, "interpolate_s": interpolate_s}
    )


def _padded(columns: FloatArray, n: int) -> FloatArray:
    """Columns with zeros at the nodes that are no vertices."""
    return np.vstack([columns, np.zeros((n - len(columns), columns.shape[1]))])


def _fill_learned(stage: Stage, learned: LearnedField) -> FloatArray:
    """What the paper times as interpolation: anchors, distances, the network, products."""
    return stage.fill_by(learned.features(stage.mesh.vertices, stage.seed))


# ---------------------------------------------------------------------------------------------------------- times
def time_methods(
    timing: Timing, make_stage: Callable[[NamedMesh], Stage], progress: Progress
) -> tuple[list[dict[str, Any]], str]:
    """Times of all methods on one shape at all sizes, and the name of the shape.

    The shape is the bunny or, where its package is missing, the torus.
    """
    shape = "bunny" if available("pymeshfix") else "torus"
    methods = timed_methods(timing.tau, timing.ambient) | {FULL: full_kernel(timing.largest_dense)}
    rows: list[dict[str, Any]] = []
    for place, size in enumerate(timing.sizes):
        stage = make_stage(builtin_by_name(f"{shape}-{size}"))
        for name, method in methods.items():
            if method.largest is not None and size > method.largest:
                continue
            progress(f"times at {size} vertices: {name}", place, len(timing.sizes))
            if place == 0:
                _time(stage, name, method, 1)  # compiles what is to be compiled
            rows.append(_time(stage, name, method, timing.repeats))
        if timing.recipe is not None and size <= timing.largest_learned:
            progress(f"times at {size} vertices: {LEARNED}", place, len(timing.sizes))
            rows.append(_time_learned(stage, timing.recipe))
    sizes = sorted({row["vertices"] for row in rows})
    return rows + extrapolated(rows, FULL, sizes), shape


def _time(stage: Stage, name: str, method: Method, repeats: int) -> dict[str, Any]:
    """Times of both parts of a method."""
    _ = stage.task  # the mask and the true normals are nobody's work
    ready, prepare_s = timed(functools.partial(method.prepare, stage))
    _, interpolate_s = timed(functools.partial(method.fill, stage, ready), repeats)
    row = {"vertices": stage.mesh.n_vertices, "method": name, "prepare_s": prepare_s}
    return row | {"interpolate_s": interpolate_s, "how": MEASURED}


def _time_learned(stage: Stage, recipe: Recipe) -> dict[str, Any]:
    """Times of the learned recipe; those of all its epochs follow from a few."""
    points = dense_points(stage.mesh, recipe.n_dense, stage.seed)
    learned, seconds = timed(lambda: learn_field(points, stage.mesh.n_vertices, recipe, stage.seed))
    training = learned.training
    prepare_s = seconds + training.seconds * (Recipe.epochs / training.epochs - 1)
    _, interpolate_s = timed(lambda: _fill_learned(stage, learned))
    row = {"vertices": stage.mesh.n_vertices, "method": LEARNED, "prepare_s": prepare_s}
    return row | {"interpolate_s": interpolate_s, "how": EPOCHS_EXTRAPOLATED}
