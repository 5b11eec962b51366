"""What commands read: files by their suffix, checked before any work; and the graphs that are built of them."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from manifoldrf.cli._console import usage
from manifoldrf.cli._options import BuiltGraph

MODEL = (".safetensors",)

InputFile = Annotated[
    str,
    typer.Argument(metavar="INPUT", help="A mesh (ply, obj, stl, off, glb), points (npy, npz, csv), a graph."),
]
ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A model that `manifoldrf fit` wrote.")]

# Options of a graph -> the kind that has them.
_KIND_OF = {
    "t": "heat",
    "n_steps": "heat",
    "dim": "heat",
    "n_neighbors": "knn",
    "bandwidth": "knn",
    "density_correction": "knn",
    "self_loops": "knn",
    "weights": "mesh",
}


def read_space(path: str, name: str = "INPUT") -> Any:
    """A mesh, a graph, or points."""
    from manifoldrf import Graph, TriangleMesh
    from manifoldrf._arrays import ARRAY_SUFFIXES, read_points
    from manifoldrf._files import check_suffix, existing_file
    from manifoldrf._validation import naming
    from manifoldrf.geometry.mesh_files import MESH_FORMATS

    meshes = tuple(f".{form}" for form in MESH_FORMATS)
    suffix = check_suffix(Path(path), name, (*ARRAY_SUFFIXES, *meshes, *MODEL))
    if suffix in ARRAY_SUFFIXES:
        points = read_points(path, name)
        check_rows(points, name, path)
        return points
    existing_file(path, name)
    if suffix in MODEL:
        return read_saved(path, Graph, name)
    with naming(name, "path"):
        return TriangleMesh.load(path)


def read_model(path: str) -> Any:
    """Features that were saved."""
    from manifoldrf import ManifoldRandomFeatures

    return read_saved(path, ManifoldRandomFeatures, "MODEL")


def read_saved(path: str, kind: type, name: str) -> Any:
    """What was saved, if it is of the kind that is needed."""
    from manifoldrf._validation import reject

    command = "graph" if kind.__name__ == "Graph" else "fit"
    model = read_any(path, name, f"`manifoldrf {command}`")
    if not isinstance(model, kind):
        reject(name, f"a file that `manifoldrf {command}` wrote", f"{path}, with a {type(model).__name__}")
    return model


def read_any(path: str, name: str, commands: str = "`manifoldrf fit` or `manifoldrf graph`") -> Any:
    """What was saved by one of the commands."""
    from manifoldrf import load
    from manifoldrf._files import existing_file
    from manifoldrf._validation import reject

    if Path(path).suffix.lower() not in MODEL:
        reject(name, f"a .safetensors file that {commands} wrote", path)
    return load(existing_file(path, name))


def check_columns(n_columns: int, model: Any, name: str, path: str) -> None:
    """Points must have the coordinates that the model has; known before any work."""
    from manifoldrf._validation import reject

    if n_columns != model.n_features_in_:
        reject(name, f"points with {model.n_features_in_} columns, as MODEL has", f"{n_columns} in {path}")


def refuse_empty(n_rows: int, name: str, path: str) -> None:
    """A file without a row is a mistake."""
    from manifoldrf._validation import reject

    if not n_rows:
        reject(name, "a file with at least one row", path)


def check_rows(block: Any, name: str, path: str, begin: int = 0) -> None:
    """Points must be finite; the first that is not is named by its row in the file."""
    import numpy as np

    from manifoldrf._validation import reject

    refuse_empty(len(block), name, path)
    finite = np.isfinite(block)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        found = f"{block[row, column]} in row {begin + row + 1}, column {column + 1} of {path}"
        reject(name, "a file of finite numbers", found)


def build_graph(choice: BuiltGraph, space: Any, t: float | None, n_jobs: int, *, shared_t: bool = False) -> Any:
    """The graph of a mesh or of points, by the kind that is asked for or that suits them.

    ``shared_t``: the time is that of a kernel, and not without effect where the graph has no use for it.
    """
    from manifoldrf import Graph, TriangleMesh, heat_graph, knn_graph, mesh_graph
    from manifoldrf._validation import naming
    from manifoldrf.geometry.heat import check_steps

    own = None if shared_t else t
    if isinstance(space, Graph):
        with usage():
            _refuse_idle(choice, None, own)
        return space
    is_mesh = isinstance(space, TriangleMesh)
    with usage():
        check_steps(choice.n_steps, "--n-steps")
        kind = _kind(choice, t, is_mesh=is_mesh)
        given = _refuse_idle(choice, kind, t if kind == "heat" else own)
    with naming("INPUT", "points", "mesh"):
        if kind == "heat":
            return heat_graph(space, n_jobs=n_jobs, **given)
        if kind == "knn":
            return knn_graph(space.vertices if is_mesh else space, n_jobs=n_jobs, **given)
        return mesh_graph(space, **given)


def refuse_on_graph(choice: Any) -> None:
    """A graph that is made already takes no options of graphs."""
    _refuse_idle(choice, None, None)


def _kind(choice: BuiltGraph, t: float | None, *, is_mesh: bool) -> str:
    """The kind of graph."""
    from manifoldrf._validation import reject

    if choice.kind == "auto":
        usual = "mesh" if is_mesh else "knn"
        return usual if t is None else "heat"
    if choice.kind == "heat" and t is None:
        reject("--t", "given for a heat graph", "none")
    if choice.kind == "mesh" and not is_mesh:
        reject("--kind", "heat or knn for points", choice.kind)
    return str(choice.kind)


def _refuse_idle(choice: Any, kind: str | None, t: float | None) -> dict[str, Any]:
    """The options that are given; one that has no effect is a mistake."""
    from manifoldrf._validation import reject

    given = {
        field.name: getattr(choice, field.name)
        for field in dataclasses.fields(choice)
        if getattr(choice, field.name) != field.default and (field.name != "kind" or kind is None)
    }
    if t is not None:
        given["t"] = t
    for name, value in given.items():
        if kind is None or _KIND_OF[name] != kind:
            what = "a graph that is made already" if kind is None else f"a graph of the kind {kind}"
            reject(f"--{name.replace('_', '-')}", f"left out for {what}", value)
    return given
