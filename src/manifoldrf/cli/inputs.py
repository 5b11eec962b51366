"""Input files of the commands, checked before any work, and the graphs built from them."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from manifoldrf._files import check_suffix, existing_file
from manifoldrf._validation import reject
from manifoldrf.cli.options import BuiltGraph, usage

MODEL = (".safetensors",)

InputFile = Annotated[
    str,
    typer.Argument(
        metavar="INPUT", help="A mesh (ply, obj, stl, off, glb), points (npy, npz, csv) or a graph (safetensors)."
    ),
]
ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A model written by `manifoldrf fit`.")]

# Option of a graph -> the kind of graph that has it.
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


@contextmanager
def errors_about(name: str) -> Iterator[None]:
    """Say which input an error of the library is about; the library knows it under the name of a parameter."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if type(error) not in (ValueError, TypeError):
            raise  # errors of other kinds, such as usage errors, say it themselves
        raise type(error)(f"{name}: {error}") from error


def read_space(path: str, name: str = "INPUT") -> Any:
    """Read a mesh, a graph, or points."""
    from manifoldrf import Graph, TriangleMesh
    from manifoldrf._arrays import ARRAY_SUFFIXES, read_points
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
    with errors_about(name):
        return TriangleMesh.load(path)


def read_model(path: str) -> Any:
    """Read fitted features."""
    from manifoldrf import ManifoldRandomFeatures

    return read_saved(path, ManifoldRandomFeatures, "MODEL")


def read_saved(path: str, kind: type, name: str) -> Any:
    """Read a saved object, which must be of the given kind."""
    command = "graph" if kind.__name__ == "Graph" else "fit"
    model = read_any(path, name, f"`manifoldrf {command}`")
    if not isinstance(model, kind):
        reject(name, f"a file written by `manifoldrf {command}`", f"{path}, with a {type(model).__name__}")
    return model


def read_any(path: str, name: str, commands: str = "`manifoldrf fit` or `manifoldrf graph`") -> Any:
    """Read a saved model or graph."""
    from manifoldrf import load

    if Path(path).suffix.lower() not in MODEL:
        reject(name, f"a .safetensors file written by {commands}", path)
    return load(existing_file(path, name))


def check_columns(n_columns: int, model: Any, name: str, path: str) -> None:
    """Check that points have as many coordinates as the model."""
    if n_columns != model.n_features_in_:
        reject(name, f"points with {model.n_features_in_} columns, as MODEL has", f"{n_columns} in {path}")


def refuse_empty(n_rows: int, name: str, path: str) -> None:
    """Refuse a file without rows."""
    if not n_rows:
        reject(name, "a file with at least one row", path)


def check_rows(block: Any, name: str, path: str, begin: int = 0) -> None:
    """Check that points are finite; the error names the first bad row of the file."""
    refuse_empty(len(block), name, path)
    finite = np.isfinite(block)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        found = f"{block[row, column]} in row {begin + row + 1}, column {column + 1} of {path}"
        reject(name, "a file of finite numbers", found)


def build_graph(choice: BuiltGraph, space: Any, t: float | None, n_jobs: int, *, shared_t: bool = False) -> Any:
    """Build the graph of a mesh or of points, of the given kind or of the one that suits them.

    ``shared_t``: t belongs to the kernel, so that a graph that does not use it is no error.
    """
    from manifoldrf import Graph, TriangleMesh, heat_graph, knn_graph, mesh_graph
    from manifoldrf.geometry.heat import check_steps

    own = None if shared_t else t
    if isinstance(space, Graph):
        with usage():
            given_options(choice, None, own)
        return space
    is_mesh = isinstance(space, TriangleMesh)
    with usage():
        check_steps(choice.n_steps, "--n-steps")
        kind = _kind(choice, t, is_mesh=is_mesh)
        given = given_options(choice, kind, t if kind == "heat" else own)
    with errors_about("INPUT"):
        if kind == "heat":
            return heat_graph(space, n_jobs=n_jobs, **given)
        if kind == "knn":
            return knn_graph(space.vertices if is_mesh else space, n_jobs=n_jobs, **given)
        return mesh_graph(space, **given)


def _kind(choice: BuiltGraph, t: float | None, *, is_mesh: bool) -> str:
    """The kind of graph to build."""
    if choice.kind == "auto":
        usual = "mesh" if is_mesh else "knn"
        return usual if t is None else "heat"
    if choice.kind == "heat" and t is None:
        reject("--t", "given for a heat graph", "none")
    if choice.kind == "mesh" and not is_mesh:
        reject("--kind", "heat or knn for points", choice.kind)
    return str(choice.kind)


def given_options(choice: Any, kind: str | None, t: float | None) -> dict[str, Any]:
    """The options that differ from their default; one without effect is refused.

    ``kind``: the kind of graph to build, or None if INPUT is a graph already.
    """
    given = {
        field.name: getattr(choice, field.name)
        for field in dataclasses.fields(choice)
        if getattr(choice, field.name) != field.default and (field.name != "kind" or kind is None)
    }
    if t is not None:
        given["t"] = t
    for name, value in given.items():
        if kind is None or _KIND_OF[name] != kind:
            what = "an INPUT that is a graph" if kind is None else f"a graph of the kind {kind}"
            reject(f"--{name.replace('_', '-')}", f"left out for {what}", value)
    return given
