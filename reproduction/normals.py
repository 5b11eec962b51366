"""Vertex normals from a fifth of them: the paper's first task on meshes, with what its fixed tau hides.

Claim: the paper's table is reproduced in kind, and it is a table about tau = 20, which smooths too much. With tau
chosen on the known normals the same kernel is far better than any feature of the space around; as a Gaussian
process it ties a biharmonic field, the best of all. On a folded cortex methods of the space around fail, ours do
not. None of them needs a matrix that grows with the square of the mesh.
"""

import dataclasses
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from manifoldrf._threads import one_blas_thread
from manifoldrf._validation import POSITIVE, Interval, check_integer, check_real, reject
from manifoldrf.signatures._engines import Progress
from reproduction._growth import growth_table
from reproduction._normal_methods import (
    AUTO,
    AVERAGE,
    BIHARMONIC,
    FARTHEST,
    GP,
    HARMONIC,
    KERNEL,
    LARGE,
    LARGE_AMBIENT,
    LEARNED,
    NEAREST,
    NEAREST_EDGES,
    PUBLISHED,
    PUBLISHED_GROWTH,
    SPARSE,
    TUNED,
    UNIFORM,
    Stage,
    ambient_names,
    as_paper,
)
from reproduction._normal_times import Timing, learn_on, time_methods
from reproduction._smoothers import (
    SIGMAS,
    Recipe,
    quietly,
    tune_ambient,
)
from reproduction.mesh_data import (
    THINGI10K_IDS,
    NamedMesh,
    builtin_by_name,
    find_meshes,
    mesh_files,
    read_named,
)
from reproduction.record import Record

# Without a folder: two scans from ordinary packages at several sizes, and shapes with known normals. The cortex and
# the sheet have folds that nearly touch.
BUILTIN_MESHES = (
    "torus-2000", "bunny-2500", "bunny-5000", "sheet-6000", "cortex", "bunny-10000", "bunny-20000", "bunny",
)  # fmt: skip
# Of a folder that has all of these, these are taken: models of common collections from 1100 to 153,000 vertices.
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
    # Larger meshes have a shorter list of methods, and do not enter the means: conjugate gradients and all
    # bandwidths of all ambient features would take most of an hour there.
    largest_full: int = 20_000
    n_learned: int = 1  # smallest meshes that the paper's learned recipe is run on: minutes each
    n_walks: int = 10_000
    # The paper has 1000, which take half an hour for each mesh on two cores.
    epochs: int = 150
    batch: int = 32_768
    # Sizes of the bunny, coarsened or subdivided, at which times are taken; not again with files.
    sizes: tuple[int, ...] = (1500, 3000, 6000, 12_500, 25_000, 50_000, 100_000, 150_000)
    largest_dense: int = 6000  # of the dense kernel: its time grows with the cube, its memory with the square
    timed_epochs: int = 2  # of the learned recipe where it is timed; the others are extrapolated
    timed_candidates: int = 1000  # anchors it is then trained at: paths to 5000 take minutes on larger meshes
    largest_learned: int = 50_000  # vertices up to which it is timed; the paper's largest mesh has 47,024
    repeats: int = 3  # of an interpolation, of which the quickest counts

    def __post_init__(self) -> None:
        check_real(self.masked, "masked", Interval(0.0, 1.0, low_open=True, high_open=True))
        check_real(self.tau, "tau", POSITIVE)
        counts = ("n_anchors", "share", "n_walks", "epochs", "batch", "timed_epochs", "timed_candidates", "repeats")
        for name in (*counts, "largest_full", "largest_dense", "largest_learned"):
            check_integer(getattr(self, name), name, 1)
        check_integer(self.n_learned, "n_learned", 0)
        if self.n_meshes is not None:
            check_integer(self.n_meshes, "n_meshes", 1)
        for name in ("seeds", "ambient", "sigmas"):
            if not getattr(self, name):
                reject(name, "at least one number", getattr(self, name))
        if any(size < 200 for size in self.sizes):
            reject("sizes", "200 vertices at least", self.sizes)

    def recipe(self, epochs: int) -> Recipe:
        """The paper's learned recipe."""
        return Recipe(
            tau=self.tau, n_walks=self.n_walks, epochs=epochs, batch=self.batch, n_features=self.n_anchors
        )

    def timing(self) -> Timing:
        """What is timed."""
        recipe = None
        if self.n_learned:
            recipe = dataclasses.replace(self.recipe(self.timed_epochs), n_candidates=self.timed_candidates)
        return Timing(
            self.sizes,
            self.tau,
            self.ambient,
            self.largest_dense,
            self.repeats,
            recipe,
            self.largest_learned,
        )


SIZES: dict[str, Config] = {
    "smoke": Config(
        n_meshes=2,
        shapes=("torus-800", "sheet-1000"),
        n_anchors=64,
        ambient=(64,),
        sigmas=SIGMAS[2::2],
        n_learned=0,
        sizes=(400, 800, 1600),
        largest_dense=800,
        repeats=1,
    ),
    "paper": Config(),
}


def run(config: Config, progress: Progress = lambda what, done, total: None, data: Path | None = None) -> Record:
    """Hide normals, fill them in by all methods, and time these on meshes of growing size.

    Tables: ``normals`` (mean cosines, the paper's beside them), ``meshes`` (by mesh), ``learned`` (the paper's
    recipe step by step), ``cells`` (every mesh and method), ``scaling`` and ``exponents``.

    Parameters
    ----------
    config : Config
    progress : callable
    data : path, optional
        A folder of mesh files, or one with them in ``meshes`` or ``raw_meshes``: those of the paper by Thingi10K id
        (``37384.stl``), or others. Without it, built-in ones.
    """
    start = time.perf_counter()
    # Threads of the library of matrix products round otherwise for other numbers of them.
    with one_blas_thread(), quietly():
        meshes, notes = choose_meshes(config, data)
        cells = list(_measure(config, meshes, progress))
        learned = []
        for item in meshes[: config.n_learned]:
            learned.append(learn_on(_stage(config, item, config.seeds[0]), config.recipe(config.epochs), progress))
        timing = dataclasses.replace(config.timing(), sizes=config.sizes if data is None else ())
        scaling, shape = time_methods(timing, lambda item: _stage(config, item, config.seeds[0]), progress)
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
    }
    settings = dataclasses.asdict(config) | {"used": [item.name for item in meshes], "notes": notes}
    settings |= {"timed_shape": shape}
    return Record("normals", settings, {name: rows for name, rows in tables.items() if rows},
                  time.perf_counter() - start)  # fmt: skip


# --------------------------------------------------------------------------------------------------------- meshes
def choose_meshes(config: Config, data: Path | None) -> tuple[list[NamedMesh], list[str]]:
    """The meshes of a run from small to large, and sentences about what is not there."""
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
    """Built-in meshes; where they are the default, those of a package that is missing are left out."""
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
    """Whether the paper's figures are of the same setting."""
    paper = SIZES["paper"]
    return all(getattr(config, name) == getattr(paper, name) for name in ("masked", "tau", "n_anchors"))


def _stage(config: Config, item: NamedMesh, seed: int) -> Stage:
    return Stage(item.name, item.mesh, config.masked, config.tau, config.n_anchors, config.share, seed)


# -------------------------------------------------------------------------------------------------------- cosines
def _measure(config: Config, meshes: list[NamedMesh], progress: Progress) -> Iterator[dict[str, Any]]:
    """Mean cosine of every method on every mesh, over all masks."""
    for place, item in enumerate(meshes):
        found: dict[tuple[str, str], list[float]] = {}
        for seed in config.seeds:
            for method, setting, cosine in _on_mesh(config, _stage(config, item, seed)):
                progress(f"{item.name}: {method}", place, len(meshes))
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
    """Mean cosine of every method over the meshes that have them all.

    The learned recipe is run on some of them only; its row says on how many.
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
