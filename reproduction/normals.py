"""Vertex normals from a fifth of them: the paper's first task on meshes, with a fixed and with a tuned tau.

Claim: the paper's table is reproduced qualitatively. It depends on tau = 20, which smooths too much. With tau
chosen on the known normals the same kernel is far better than any ambient features; as a Gaussian process it ties
with a biharmonic field, the best method of all. On a folded cortex ambient methods fail, and ours do not. None of
them needs a matrix that grows with the square of the mesh.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from manifoldrf import (
    DiffusionKernel,
    FieldInterpolator,
    Graph,
    ManifoldRandomFeatures,
    ManifoldWarning,
    TriangleMesh,
    knn_graph,
    mesh_graph,
)
from manifoldrf.applications.interpolation import feature_action, reached, without_small
from manifoldrf.geometry.meshes import row_lengths, unit_rows
from reproduction.common import FloatArray, Progress, available, generator, one_blas_thread, without_warnings
from reproduction.mesh_data import THINGI10K_IDS, NamedMesh, builtin_by_name, find_meshes, mesh_files, read_named
from reproduction.record import (
    Piece,
    Record,
    checksum_of,
    environment_of,
    finished_pieces,
    rows_of,
    settings_without,
)
from reproduction.smoothers import (
    AMBIENT,
    EPOCHS_EXTRAPOLATED,
    MEASURED,
    SIGMAS,
    LearnedField,
    Recipe,
    Task,
    ambient_features,
    anchored_features,
    average_neighbours,
    box_diagonal,
    dense_action,
    exact_action,
    extrapolated,
    growth_table,
    largest_table,
    learn_field,
    nearest_in_space,
    nearest_on_edges,
    quietly,
    sparse_features,
    timed,
    tune_ambient,
    warm_up,
)

# ---------------------------------------------------------------------------------------------------------- methods
# Names of methods. Methods of the paper's table have its cosine and the exponent of its interpolation time.
FULL, KERNEL, KERNEL_UNIT = "full kernel, dense", "exact kernel, Gaussian weights", "exact kernel, unit weights"
LEARNED = "MRF, paper's recipe"
UNIFORM, FARTHEST = "exact features, uniform anchors", "exact features, farthest anchors"
SPARSE, FEATURES, AUTO = "sparse features, N/8 anchors", "library features", "library default (auto)"
GP, NEAREST, NEAREST_EDGES = "Gaussian process, unit weights", "nearest known in space", "nearest known along edges"
AVERAGE = "32 nearest known, Gaussian mean"
HARMONIC, BIHARMONIC = "harmonic, unit weights", "biharmonic, unit weights"
PUBLISHED: Mapping[str, float] = {
    LEARNED: 0.85, UNIFORM: 0.85,
    "RFF 256": 0.71, "ORF 256": 0.72, "PRF 256": 0.40, "PORF 256": 0.41,
    "RFF 1024": 0.78, "ORF 1024": 0.78, "PRF 1024": 0.47, "PORF 1024": 0.43,
}  # fmt: skip
PUBLISHED_GROWTH: Mapping[str, float] = {
    LEARNED: 0.50,
    "RFF 256": 1.06, "ORF 256": 1.01, "PRF 256": 1.09, "PORF 256": 0.97,
    "RFF 1024": 1.10, "ORF 1024": 1.07, "PRF 1024": 1.13, "PORF 1024": 1.14,
}  # fmt: skip
LARGEST = 47_024  # vertices of the paper's largest mesh
# Its times there, in seconds: of the full kernel, and of data and training of its network.
PUBLISHED_TIMES: Mapping[str, Mapping[str, float]] = {
    FULL: {"prepare_s": 2936.0, "interpolate_s": 0.42},
    LEARNED: {"prepare_s": 171.0, "interpolate_s": 0.45},
}
_TIMED_SIGMA = 0.05  # relative to the diagonal, for timing ambient features: the time does not depend on it


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
        Number of dense features; number of vertices per sparse anchor.
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
        """Graphs by their weights, built on first use."""
        return {}

    def graph(self, weights: str) -> Graph:
        """The graph of the edges, built once."""
        if weights not in self.graphs:
            self.graphs[weights] = mesh_graph(self.mesh, weights=weights)
        return self.graphs[weights]

    @cached_property
    def task(self) -> Task:
        """Known normals, and the vertices that are scored: those with a normal, in pieces with a known one."""
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
        Stage -> results that depend on the mesh only. It builds the graph, so that this time is included.
    fill : callable
        Stage and prepared results -> normals of any length, (n, 3).
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
    with without_warnings(ManifoldWarning):  # pieces without a known value do not count
        return model.fit(graph, task.values, task.known).predict()


def interpolator(weights: str, largest: int | None = None, **options: Any) -> Method:
    """A method of :class:`FieldInterpolator` with its options."""
    return Method(functools.partial(_prepare_graph, weights), functools.partial(_interpolate, options), largest)


def _ambient(name: str) -> Method:
    """Ambient features at one bandwidth, for timing only."""
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


def _library_features(stage: Stage) -> Any:
    graph = _prepare_graph("gaussian", stage)
    count = min(graph.n_nodes, math.ceil(2.5 * graph.n_nodes / stage.tau))  # closer than the kernel is wide
    options: dict[str, Any] = {
        "normalize": False,
        "quadrature": "voronoi",
        "sparse_output": True,
        "random_state": stage.seed,
    }
    features = ManifoldRandomFeatures(DiffusionKernel(stage.tau), count, **options)
    return without_small(features.fit_transform(graph), 1e-3)


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
        FEATURES: Method(_library_features, Stage.fill_by),
    }


# Methods whose parameters are chosen on the known normals, or that have none.
TUNED: Mapping[str, Method] = {
    KERNEL: interpolator("gaussian", method="kernel"),
    KERNEL_UNIT: interpolator("unit", method="kernel"),
    GP: interpolator("unit", 25_000, method="gp"),
    HARMONIC: interpolator("unit", method="harmonic"),
    "harmonic, Gaussian weights": interpolator("gaussian", method="harmonic"),
    "harmonic, cotangent weights": interpolator("cotangent", method="harmonic"),
    BIHARMONIC: interpolator("unit", method="biharmonic"),
    "biharmonic, cotangent weights": interpolator("cotangent", method="biharmonic"),
    AUTO: interpolator("unit", method="auto"),
    NEAREST: Method(lambda stage: None, lambda stage, _: nearest_in_space(stage.task)),
    NEAREST_EDGES: Method(functools.partial(_prepare_graph, "gaussian"), _along_edges),
    AVERAGE: Method(lambda stage: None, lambda stage, _: average_neighbours(stage.task)),
}
# Methods that are also run on large meshes.
LARGE = (KERNEL, UNIFORM, SPARSE, HARMONIC, BIHARMONIC, NEAREST, NEAREST_EDGES)
LARGE_AMBIENT = (("RFF", 1024),)


def full_kernel(largest: int) -> Method:
    """The paper's dense kernel, up to this number of vertices."""
    return Method(
        lambda stage: dense_action(_prepare_graph("gaussian", stage), stage.tau),
        lambda stage, action: stage.task.fill(action),
        largest,
    )


def ambient_names(budgets: tuple[int, ...]) -> list[tuple[str, int]]:
    """Ambient methods with their numbers of features."""
    return [(method, size) for size in budgets for method in AMBIENT]


def timed_methods(tau: float, budgets: tuple[int, ...]) -> dict[str, Method]:
    """Methods to time, by the name of their row."""
    own = as_paper(tau)
    names = (KERNEL, UNIFORM, FARTHEST, SPARSE, FEATURES)
    found = {f"{name}, tau = {tau:g}" if name == KERNEL else name: own[name] for name in names}
    chosen = (KERNEL, GP, HARMONIC, BIHARMONIC, NEAREST, NEAREST_EDGES)
    found |= {f"{name}, tau by CV" if name == KERNEL else name: TUNED[name] for name in chosen}
    return found | {f"{name} {size}": _ambient(f"{name} {size}") for name, size in ambient_names(budgets)}


# ----------------------------------------------------------------------------------------------- the learned recipe
def dense_points(mesh: TriangleMesh, n_dense: int, seed: int) -> FloatArray:
    """Vertices, filled up to ``n_dense`` with points drawn uniformly by area."""
    missing = n_dense - mesh.n_vertices
    return np.vstack([mesh.vertices, mesh.sample(missing, seed=seed).points]) if missing > 0 else mesh.vertices


def learn_on(stage: Stage, recipe: Recipe, progress: Progress) -> dict[str, Any]:
    """The paper's recipe on one mesh, and intermediate steps from the exact kernel to it."""
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
    """Columns with zeros at the nodes that are not vertices."""
    return np.vstack([columns, np.zeros((n - len(columns), columns.shape[1]))])


def _fill_learned(stage: Stage, learned: LearnedField) -> FloatArray:
    """The steps that the paper times as interpolation: anchors, distances, the network, products."""
    return stage.fill_by(learned.features(stage.mesh.vertices, stage.seed))


# ---------------------------------------------------------------------------------------------------------- times
def timed_shape() -> str:
    """The shape on which methods are timed: the bunny or, if its package is not installed, the torus."""
    return "bunny" if available("pymeshfix") else "torus"


def time_methods(
    config: "Config", stage: Stage, size: int, tell: Callable[[str], None]
) -> Iterator[dict[str, Any]]:
    """Times of all methods on one mesh, which may have some vertices more or less than ``size``."""
    methods = timed_methods(config.tau, config.ambient) | {FULL: full_kernel(config.largest_dense)}
    run_methods_once(config)
    for name, method in methods.items():
        if method.largest is None or size <= method.largest:
            tell(name)
            yield _time(stage, name, method, config.repeats)
    if config.time_learned and size <= config.largest_learned:
        tell(LEARNED)
        recipe = dataclasses.replace(config.recipe(config.timed_epochs), n_candidates=config.timed_candidates)
        yield _time_learned(stage, recipe)


@functools.cache
def run_methods_once(config: "Config") -> None:
    """Run all methods once on a small mesh, so that no measured time includes an import."""
    small = builtin_by_name("torus-400")
    stage = Stage(small.name, small.mesh, 0.8, config.tau, n_anchors=16)
    for method in (*timed_methods(config.tau, config.ambient).values(), full_kernel(config.largest_dense)):
        method.fill(stage, method.prepare(stage))
    if config.time_learned:
        warm_up(stage.mesh.vertices)


def with_extrapolated(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Times with those of the full kernel at the sizes where it does not fit into memory."""
    return rows + extrapolated(rows, FULL, sorted({row["vertices"] for row in rows}))


def _time(stage: Stage, name: str, method: Method, repeats: int) -> dict[str, Any]:
    """Times of both parts of a method."""
    _ = stage.task  # the mask and the true normals are not part of any method
    ready, prepare_s = timed(functools.partial(method.prepare, stage))
    _, interpolate_s = timed(functools.partial(method.fill, stage, ready), repeats)
    row = {"vertices": stage.mesh.n_vertices, "method": name, "prepare_s": prepare_s}
    return row | {"interpolate_s": interpolate_s, "how": MEASURED}


def _time_learned(stage: Stage, recipe: Recipe) -> dict[str, Any]:
    """Times of the learned recipe, extrapolated from a few epochs."""
    points = dense_points(stage.mesh, recipe.n_dense, stage.seed)
    learned, seconds = timed(lambda: learn_field(points, stage.mesh.n_vertices, recipe, stage.seed))
    prepare_s = seconds + learned.training_s * (Recipe.epochs / learned.training.epochs - 1)
    _, interpolate_s = timed(lambda: _fill_learned(stage, learned))
    row = {"vertices": stage.mesh.n_vertices, "method": LEARNED, "prepare_s": prepare_s}
    return row | {"interpolate_s": interpolate_s, "how": EPOCHS_EXTRAPOLATED}


# --------------------------------------------------------------------------------------------------- the experiment
# Without a folder: two scans from ordinary packages at several sizes, and shapes with known normals. The cortex and
# the sheet have folds that nearly touch.
BUILTIN_MESHES = (
    "torus-2000", "bunny-2500", "bunny-5000", "sheet-6000", "cortex", "bunny-10000", "bunny-20000", "bunny",
)  # fmt: skip
# Used if a folder contains all of these: models of common collections from 1100 to 153,000 vertices.
COMMON_MESHES = (
    "link", "bird", "spot", "gears", "fertility", "fandisk", "rocker_arm", "camelhead_open", "beetle_open",
    "stanford_bunny", "scorpion", "igea", "cortex_S1_pia_lh",
)  # fmt: skip
# Columns of the table of meshes: (method, whether its parameters are chosen on the known normals).
MAIN: dict[str, tuple[str, str]] = {
    "kernel_20": (KERNEL, "as_paper"),
    "uniform": (UNIFORM, "as_paper"),
    "farthest": (FARTHEST, "as_paper"),
    "sparse": (SPARSE, "as_paper"),
    "rff_1024": ("RFF 1024", "as_paper"),
    "nearest": (NEAREST, "tuned"),
    "nearest_edges": (NEAREST_EDGES, "tuned"),
    "average": (AVERAGE, "tuned"),
    "kernel_cv": (KERNEL, "tuned"),
    "harmonic": (HARMONIC, "tuned"),
    "gp": (GP, "tuned"),
    "biharmonic": (BIHARMONIC, "tuned"),
    "auto": (AUTO, "tuned"),
}


@dataclass(frozen=True)
class Config:
    """Settings of the experiment."""

    # Names of files of a folder; empty: all of the paper's that it has, COMMON_MESHES, or all files.
    meshes: tuple[str, ...] = ()
    n_meshes: int | None = None  # of files, the smallest; None: all
    shapes: tuple[str, ...] = BUILTIN_MESHES  # without a folder
    masked: float = 0.8  # the paper's, as all without another reason
    tau: float = 20.0
    n_anchors: int = 256
    ambient: tuple[int, ...] = (256, 1024)  # numbers of ambient features
    sigmas: tuple[float, ...] = SIGMAS  # their bandwidths, over the diagonal of the box
    share: int = 8  # vertices for each sparse anchor: the spacing of anchors is then below the width of the kernel
    # Of the masks. Five of them gave means of .870 to .878 (kernel, tau = 20) and .961 to .963 (biharmonic).
    seeds: tuple[int, ...] = (0,)
    # Larger meshes have a shorter list of methods and are not part of the means: conjugate gradients and all
    # bandwidths of all ambient features would take most of an hour.
    largest_full: int = 20_000
    n_learned: int = 3  # smallest meshes on which the paper's learned recipe is run, a quarter of an hour each
    n_walks: int = 10_000
    epochs: int = 1000  # the paper's
    batch: int = 32_768
    # Sizes of the bunny, coarsened or subdivided, at which times are measured; not measured for files. The sixth is
    # the size of the paper's largest mesh.
    sizes: tuple[int, ...] = (1500, 3000, 6000, 12_000, 24_000, LARGEST, 100_000, 150_000)
    largest_dense: int = 20_000  # of the dense kernel: more does not fit into 24 GB; extrapolated beyond
    time_learned: bool = True  # whether the learned recipe is timed too
    timed_epochs: int = 2  # of the learned recipe where it is timed; the others are extrapolated
    timed_candidates: int = 1000  # number of anchors for timing: paths to 5000 take minutes on larger meshes
    largest_learned: int = LARGEST  # vertices up to which it is timed
    repeats: int = 3  # number of interpolations; the fastest is reported

    def of_part(self) -> dict[str, Any]:
        """All settings except those that say which parts there are."""
        return settings_without(self, "meshes", "n_meshes", "shapes", "n_learned", "sizes")

    def recipe(self, epochs: int) -> Recipe:
        """The paper's learned recipe."""
        return Recipe(
            tau=self.tau, n_walks=self.n_walks, epochs=epochs, batch=self.batch, n_features=self.n_anchors
        )


SIZES: dict[str, Config] = {
    "smoke": Config(
        n_meshes=2,
        shapes=("torus-800", "sheet-1000"),
        n_anchors=64,
        ambient=(64,),
        sigmas=SIGMAS[2::2],
        n_learned=0,
        time_learned=False,
        sizes=(400, 800, 1600),
        largest_dense=800,
        repeats=1,
    ),
    "paper": Config(),
}


def run(
    config: Config,
    progress: Progress = lambda what, done, total: None,
    data: Path | None = None,
    parts: Path | None = None,
) -> Record:
    """Hide normals, fill them in by all methods, and time the methods on meshes of growing size.

    Tables: ``normals`` (mean cosines, the paper's beside them), ``meshes`` (by mesh), ``learned`` (the paper's
    recipe step by step), ``cells`` (every mesh and method), ``scaling``, ``exponents`` and ``largest``.

    Parameters
    ----------
    config : Config
    progress : callable
    data : path, optional
        A folder of mesh files, or a folder with the subfolder ``meshes`` or ``raw_meshes``: meshes of the paper by
        Thingi10K id (``37384.stl``), or others. By default built-in meshes.
    parts : path, optional
        Where every mesh, every training and every timed size is kept when it is finished.
    """
    sizes = config.sizes if data is None else ()
    shape = timed_shape()
    # Rounding of matrix products depends on the number of threads.
    with one_blas_thread(), quietly():
        meshes, notes = choose_meshes(config, data)
        found = finished_pieces(parts, "normals", config.of_part(), _pieces(config, meshes, sizes, progress))
    learned = rows_of(found, "learned")
    scaling = with_extrapolated(rows_of(found, "scaling"))
    cells = rows_of(found, "cells")
    cells += [
        {"mesh": row["mesh"], "vertices": row["vertices"], "method": LEARNED, "setting": "as_paper"}
        | {"cosine": row["learned"]}
        for row in learned
    ]
    progress("done", 1, 1)
    full = [item.name for item in meshes if item.mesh.n_vertices <= config.largest_full]
    tables = {
        "normals": summarise(cells, full, paper=_is_paper(config)),
        "meshes": _by_mesh(cells, meshes),
        "learned": learned,
        "cells": cells,
        "scaling": scaling,
        "exponents": growth_table(scaling, dict(PUBLISHED_GROWTH)),
        "largest": largest_table(scaling, (FULL, LEARNED), PUBLISHED_TIMES),
    }
    settings = dataclasses.asdict(config) | {"used": [item.name for item in meshes], "notes": notes}
    settings |= {"timed_shape": shape, "clock": "CPU seconds"}
    tables = {name: rows for name, rows in tables.items() if rows}
    return Record("normals", settings, tables, sum(part.seconds for part in found), environment_of(found))


def _pieces(config: Config, meshes: list[NamedMesh], sizes: tuple[int, ...], progress: Progress) -> Iterator[Piece]:
    """All that is measured: the meshes, trainings on the smallest, times at all sizes."""
    inputs = [{"checksum": checksum_of(item.mesh.vertices, item.mesh.faces)} for item in meshes]
    for place, item in enumerate(meshes):
        tell = teller(progress, item.name, place, len(meshes))
        yield "cells", item.name, inputs[place], functools.partial(_measure, config, item, tell)
    for place, item in enumerate(meshes[: config.n_learned]):
        stage = _stage(config, item, config.seeds[0])
        yield "learned", item.name, inputs[place], functools.partial(_learn, stage, config, progress)
    for place, size in enumerate(sizes):
        tell = teller(progress, f"times at {size} vertices", place, len(sizes))
        rows = functools.partial(_time_at, config, size, tell)
        yield "scaling", f"{timed_shape()}-{size}", {}, rows


def teller(progress: Progress, where: str, done: int, total: int) -> Callable[[str], None]:
    """Progress of one part, which is told the method."""
    return lambda method: progress(f"{where}: {method}", done, total)


def _learn(stage: Stage, config: Config, progress: Progress) -> Iterator[dict[str, Any]]:
    yield learn_on(stage, config.recipe(config.epochs), progress)


def _time_at(config: Config, size: int, tell: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    mesh = builtin_by_name(f"{timed_shape()}-{size}")
    return time_methods(config, _stage(config, mesh, config.seeds[0]), size, tell)


# --------------------------------------------------------------------------------------------------------- meshes
def choose_meshes(config: Config, data: Path | None) -> tuple[list[NamedMesh], list[str]]:
    """The meshes of a run from small to large, and notes about missing ones."""
    if data is None:
        return _builtin(config.shapes, optional=config.shapes == BUILTIN_MESHES)
    notes = []
    names: Sequence[str] | None = config.meshes or None
    if names is None:
        there = set(mesh_files(data))
        ids = [str(number) for number in THINGI10K_IDS]
        present = [name for name in ids if name in there]
        if present:
            names = present
            missing = [name for name in ids if name not in there]
            notes += [f"not in the folder: {', '.join(missing)}"] if missing else []
        elif there.issuperset(COMMON_MESHES):
            names = COMMON_MESHES
    found = _sorted([read_named(path) for path in find_meshes(data, names)])[: config.n_meshes]
    return found, notes + _notes(found)


def _builtin(names: Sequence[str], *, optional: bool) -> tuple[list[NamedMesh], list[str]]:
    """Built-in meshes; default meshes whose package is not installed are left out."""
    found, notes = [], []
    for name in names:
        try:
            found.append(builtin_by_name(name))
        except ModuleNotFoundError as error:
            if not optional:
                raise
            notes.append(f"{name} left out: {error}")
    return _sorted(found), notes + _notes(found)


def _sorted(found: list[NamedMesh]) -> list[NamedMesh]:
    return sorted(found, key=lambda item: (item.mesh.n_vertices, item.name))


def _notes(found: list[NamedMesh]) -> list[str]:
    return [f"{item.name}: {item.note}" for item in found if item.note]


def _is_paper(config: Config) -> bool:
    """Whether the settings are those of the paper's numbers."""
    paper = SIZES["paper"]
    return all(getattr(config, name) == getattr(paper, name) for name in ("masked", "tau", "n_anchors"))


def _stage(config: Config, item: NamedMesh, seed: int) -> Stage:
    return Stage(item.name, item.mesh, config.masked, config.tau, config.n_anchors, config.share, seed)


# -------------------------------------------------------------------------------------------------------- cosines
def _measure(config: Config, item: NamedMesh, tell: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Mean cosine of every method on a mesh, over all masks."""
    found: dict[tuple[str, str], list[float]] = {}
    for seed in config.seeds:
        for method, setting, cosine in _on_mesh(config, _stage(config, item, seed)):
            tell(method)
            found.setdefault((method, setting), []).append(cosine)
    for (method, setting), cosines in found.items():
        key = {"mesh": item.name, "vertices": item.mesh.n_vertices, "method": method, "setting": setting}
        yield key | {"cosine": float(np.mean(cosines))}


def _on_mesh(config: Config, stage: Stage) -> Iterator[tuple[str, str, float]]:
    """(method, setting, mean cosine) of all methods on one mesh; a shorter list on a large one."""
    large = stage.mesh.n_vertices > config.largest_full
    groups = {"as_paper": as_paper(config.tau), "tuned": dict(TUNED)}
    for setting, methods in groups.items():
        for name, method in methods.items():
            if not large or name in LARGE:
                yield name, setting, stage.task.judge(method.fill(stage, method.prepare(stage)))
    ambient = [pair for pair in LARGE_AMBIENT if pair[1] in config.ambient] if large else None
    for kind, size in ambient_names(config.ambient) if ambient is None else ambient:
        tuned = tune_ambient(stage.task, kind, size, config.sigmas)
        yield f"{kind} {size}", "as_paper", tuned.best
        yield f"{kind} {size}", "tuned", tuned.chosen


def summarise(cells: list[dict[str, Any]], meshes: Sequence[str], *, paper: bool) -> list[dict[str, Any]]:
    """Mean cosine of every method over the meshes on which all methods were run.

    The learned recipe is only run on some of them; its row says on how many.
    """
    rows = []
    for method in dict.fromkeys(cell["method"] for cell in cells):
        own = [cell for cell in cells if cell["method"] == method and cell["mesh"] in meshes]
        means = {
            setting: [cell["cosine"] for cell in own if cell["setting"] == setting]
            for setting in ("as_paper", "tuned")
        }
        if own:
            rows.append(
                {"method": method, "meshes": len({cell["mesh"] for cell in own})}
                | {setting: float(np.mean(values)) if values else None for setting, values in means.items()}
                | {"paper_as_paper": PUBLISHED.get(method) if paper else None}
                | {"median": float(np.median(means["as_paper"])) if means["as_paper"] else None}
            )
    return rows


def _by_mesh(cells: list[dict[str, Any]], meshes: list[NamedMesh]) -> list[dict[str, Any]]:
    """The main methods side by side, a row for each mesh."""
    known = {(cell["mesh"], cell["method"], cell["setting"]): cell["cosine"] for cell in cells}
    return [
        {"mesh": item.name, "vertices": item.mesh.n_vertices}
        | {column: known.get((item.name, *key)) for column, key in MAIN.items()}
        for item in meshes
    ]
