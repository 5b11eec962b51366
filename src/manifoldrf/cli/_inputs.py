"""What commands read, and where they write: files by their suffix, checked before any work."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from manifoldrf.cli._options import BuiltGraph

MODEL = (".safetensors",)

InputFile = Annotated[
    str,
    typer.Argument(metavar="INPUT", help="A mesh (ply, obj, stl, off, glb), points (npy, npz, csv) or a graph."),
]
ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A model that `manifoldrf fit` wrote.")]

# Options of a graph -> the kind that has them.
_KIND_OF = {
    "n_steps": "heat",
    "dim": "heat",
    "n_neighbors": "knn",
    "bandwidth": "knn",
    "density_correction": "knn",
    "self_loops": "knn",
    "weights": "mesh",
}


def read_space(path: str) -> Any:
    """A mesh, a graph, or points."""
    from manifoldrf import Graph, TriangleMesh
    from manifoldrf._arrays.reading import read_points
    from manifoldrf.geometry._mesh_files import MESH_FORMATS

    suffix = Path(path).suffix.lower()
    if suffix.removeprefix(".") in MESH_FORMATS:
        return TriangleMesh.load(path)
    return read_saved(path, Graph, "INPUT") if suffix in MODEL else read_points(path, "INPUT")


def read_model(path: str) -> Any:
    """Features that were saved."""
    from manifoldrf import ManifoldRandomFeatures

    return read_saved(path, ManifoldRandomFeatures, "MODEL")


def read_saved(path: str, kind: type, name: str) -> Any:
    """What was saved, if it is of the kind that is needed."""
    from manifoldrf import load
    from manifoldrf._validation import reject

    model = load(path)
    if not isinstance(model, kind):
        reject(name, f"a file with a {kind.__name__}", f"a {type(model).__name__} in {path}")
    return model


def build_graph(choice: BuiltGraph, space: Any, t: float | None, n_jobs: int) -> Any:
    """The graph of a mesh or of points, by the kind that is asked for or that suits them."""
    from manifoldrf import Graph, TriangleMesh, heat_graph, knn_graph, mesh_graph
    from manifoldrf._validation import reject

    if isinstance(space, Graph):
        _refuse_idle(choice, None)
        return space
    is_mesh = isinstance(space, TriangleMesh)
    kind = choice.kind if choice.kind != "auto" else _usual_kind(t, is_mesh=is_mesh)
    given = _refuse_idle(choice, kind)
    if kind == "heat":
        if t is None:
            reject("--t", "given for a heat graph", "none")
        return heat_graph(space, t, n_jobs=n_jobs, **given)
    if kind == "knn":
        return knn_graph(space.vertices if is_mesh else space, n_jobs=n_jobs, **given)
    if not is_mesh:
        reject("--kind", "heat or knn for points", kind)
    return mesh_graph(space, **given)


def _usual_kind(t: float | None, *, is_mesh: bool) -> str:
    if t is not None:
        return "heat"
    return "mesh" if is_mesh else "knn"


def _refuse_idle(choice: BuiltGraph, kind: str | None) -> dict[str, Any]:
    """The options that are given; one that has no effect is a mistake."""
    from manifoldrf._validation import reject

    given = {
        field.name: getattr(choice, field.name)
        for field in dataclasses.fields(choice)
        if getattr(choice, field.name) != field.default and field.name != "kind"
    }
    for name, value in given.items():
        if _KIND_OF[name] != kind:
            what = "a graph that is made already" if kind is None else f"a graph of the kind {kind}"
            reject(f"--{name.replace('_', '-')}", f"left out for {what}", value)
    return given
