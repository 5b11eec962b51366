"""The command that fills in a field."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal

import rich.console
import typer

from manifoldrf.cli._console import note, notices, print_table, progress, show, usage
from manifoldrf.cli._inputs import read_space
from manifoldrf.cli._options import Output, Running, float_or_word, number_or_word

_MESH = typer.Argument(metavar="MESH", help="A mesh (ply, obj, stl, off, glb) or points (npy, npz, csv).")
_VALUES = typer.Argument(
    metavar="VALUES", help="csv with rows vertex,value,... for known vertices, or npy with NaN for unknown ones."
)
_OUT = typer.Option("--output", "-o", metavar="OUT", help="OUT.csv and OUT.ply (coloured) are written.")
_SUFFIXES = (".csv", ".ply")
_AXES = 3


def interpolate(
    mesh: Annotated[str, _MESH],
    values: Annotated[str, _VALUES],
    output: Output,
    run: Running,
    target: Annotated[str, _OUT],
    method: Annotated[
        Literal["auto", "kernel", "features", "gp", "harmonic", "biharmonic"],
        typer.Option(help="auto: the best at known vertices that are left out in turn."),
    ] = "auto",
    tau: Annotated[Any, typer.Option(parser=float_or_word, metavar="FLOAT|cv", help="Steps of the walk.")] = "cv",
    weights: Annotated[
        Literal["unit", "gaussian", "cotangent"] | None, typer.Option(help="Of the edges; unit by default.")
    ] = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Values are directions.")] = False,
    noise: Annotated[Any, typer.Option(parser=float_or_word, metavar="FLOAT|cv", help="Of the method gp.")] = "cv",
    n_features: Annotated[
        Any, typer.Option(parser=number_or_word, metavar="INTEGER|auto|all", help="Of the method features.")
    ] = "auto",
    column: Annotated[int, typer.Option(help="Which value gives the colours, counted from 0.")] = 0,
) -> None:
    """Fill in a field that is known at some vertices; the method is chosen by cross-validation and printed.

    Example: manifoldrf interpolate scan.ply known.csv -o filled
    """
    from manifoldrf import FieldInterpolator, Graph, TriangleMesh
    from manifoldrf._arrays import read_values
    from manifoldrf._validation import check_integer, reject

    options = {"tau": tau, "normalize": normalize, "noise": noise, "n_features": n_features}
    options |= {"weights": weights or "unit", "random_state": run.random_state, "n_jobs": run.n_jobs}
    model = FieldInterpolator(method, **options)
    with usage():
        table, picture = _targets(target, [mesh, values])
        run.check()
        model._check_options()
    space = read_space(mesh, "MESH")
    points = _points_of(space)
    known_values, known = read_values(values, len(points))
    with usage():
        check_integer(column, "--column", 0, known_values.shape[1] - 1)
        if weights is not None and isinstance(space, Graph):
            reject("--weights", "left out for a graph that is made already", weights)
        if weights == "cotangent" and not isinstance(space, Graph | TriangleMesh):
            reject("--weights", "unit or gaussian for points; cotangents need the faces of a mesh", weights)
    with notices(quiet=output.quiet), progress("interpolate", quiet=output.silent) as report:
        report("choosing the method and filling in", 0, 1)
        model.fit(space, known_values, known)
        filled = model.predict()
    _doubt(model, known, output)
    if points.shape[1] > _AXES:
        note(f"no coloured ply: the points have {points.shape[1]} coordinates", quiet=output.quiet)
        picture = None
    _write(table, picture, (space, points), (filled, known), column)
    _say(model, _graph_text(space), [table] if picture is None else [table, picture], output)


def _targets(target: str, inputs: list[str]) -> tuple[Path, Path | None]:
    """Both files, by the name that is given with or without their suffix."""
    from manifoldrf._files import check_output

    path = Path(target)
    stem = path.with_suffix("") if path.suffix.lower() in _SUFFIXES else path
    table, picture = (stem.with_name(stem.name + suffix) for suffix in _SUFFIXES)
    return (
        check_output(table, "--output", _SUFFIXES, inputs),
        check_output(picture, "--output", _SUFFIXES, inputs),
    )


def _points_of(space: Any) -> Any:
    from manifoldrf import Graph, TriangleMesh

    if isinstance(space, Graph):
        return space.positions
    return space.vertices if isinstance(space, TriangleMesh) else space


def _write(table: Path, picture: Path | None, where: tuple[Any, Any], what: tuple[Any, Any], column: int) -> None:
    """Write the table and the picture, both or none."""
    from manifoldrf._files import atomic_path

    filled, known = what
    with ExitStack() as files:
        _write_table(files.enter_context(atomic_path(table)), filled, known)
        if picture is not None:
            _write_picture(files.enter_context(atomic_path(picture)), *where, filled[:, column])


def _write_table(path: Path, filled: Any, known: Any) -> None:
    """A row for every vertex: its number, whether it was known, the field."""
    names = ["value"] if filled.shape[1] == 1 else [f"value_{k}" for k in range(filled.shape[1])]
    with path.open("w", encoding="utf-8") as file:
        file.write(",".join(["vertex", "known", *names]) + "\n")
        for vertex, row in enumerate(filled.tolist()):  # whole numbers stay whole
            file.write(",".join(map(repr, [vertex, int(known[vertex]), *row])) + "\n")


def _write_picture(path: Path, space: Any, points: Any, values: Any) -> None:
    """The vertices coloured by the field, from its smallest to its largest value."""
    import numpy as np

    from manifoldrf import TriangleMesh
    from manifoldrf._colours import colours_of
    from manifoldrf.geometry.mesh_files import write_cloud_ply

    present = values[np.isfinite(values)]
    low, high = (float(present.min()), float(present.max())) if len(present) else (0.0, 1.0)
    colours = colours_of(values, low, high)
    if isinstance(space, TriangleMesh):
        space.save(path, colors=colours)
    else:
        flat = np.zeros((len(points), _AXES))
        flat[:, : points.shape[1]] = points
        write_cloud_ply(path, flat, colours)


def _best_of_each(tried: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The best row of each method among those with the most folds: others were not judged on all known vertices."""
    best: dict[str, dict[str, Any]] = {}
    for row in sorted(tried, key=lambda row: (-row["folds"], row["error"])):
        best.setdefault(row["method"], row)
    return sorted(best.values(), key=lambda row: row["error"])


def _doubt(model: Any, known: Any, output: Output) -> None:
    """Say so where there was nothing to fill in, or where what was filled in is worth nothing."""
    if known.all():
        note("VALUES has a value for every vertex: nothing was to be filled in", quiet=output.quiet)
    if model.beats_mean_ is False:
        tried = {row["method"] for row in model.cv_}
        who = "no method is" if len(tried) > 1 else f"{model.method_} is not"
        text = f"{who} better than the mean of the known values, at known vertices left out in turn. Either "
        text += (
            "they differ from vertex to vertex as noise does, or too few are known: what is filled in says little"
        )
        note(text, quiet=output.quiet)


def _graph_text(space: Any) -> str:
    """Along what the field was filled in."""
    from manifoldrf import Graph, TriangleMesh

    if isinstance(space, Graph):
        return f"as given, {space.n_nodes} nodes"
    if isinstance(space, TriangleMesh):
        return f"edges of the mesh, {space.n_vertices} vertices"
    return f"nearest neighbours in space of {len(space)} points, as there are no faces"


def _say(model: Any, graph: str, saved: list[Path], output: Output) -> None:
    """The method, what else was tried, and where the result is."""
    chosen = {"method": model.method_, "tau": model.tau_, "noise": model.noise_}
    if model.cv_:
        what = "1 - mean cosine" if model.normalize else "mean squared error over the variance"
        title = f"{what}, at known vertices left out in turn; the best of each method"
        print_table(rich.console.Console(quiet=output.silent), title, _best_of_each(model.cv_))
    settings = ", ".join(f"{name} {value:.3g}" for name, value in chosen.items() if isinstance(value, float))
    files = [str(path) for path in saved]
    method = model.method_ + (f" ({settings})" if settings else "")
    text = f"Method: {method}\nGraph: {graph}\nSaved: {', '.join(files)}"
    facts = chosen | {"graph": graph, "known": model.info_.n_known, "tried": model.cv_}
    show(output, facts | {"beats_mean": model.beats_mean_, "output": files}, text)
