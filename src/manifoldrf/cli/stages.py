"""Commands for graphs: build one, compute signatures of its nodes, fill in or smooth a field on it."""

import csv
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import rich.console
import typer

from manifoldrf._files import atomic_paths, check_output, output_file
from manifoldrf._validation import NONNEGATIVE, Interval, check_indices, check_integer, check_number_or, reject
from manifoldrf.cli.console import note, notices, print_table, progress, show, show_facts
from manifoldrf.cli.models import (
    AXES,
    MODEL,
    InputFile,
    errors_about,
    given_options,
    graph_facts,
    points_of,
    read_space,
    write_picture,
)
from manifoldrf.cli.options import (
    BuiltGraph,
    KernelChoice,
    Machines,
    Output,
    Running,
    Threads,
    option_names,
    parse,
    read_options,
    usage,
)

_GRAPH_OUT = typer.Option(
    "--output",
    "-o",
    metavar="GRAPH",
    help="A .safetensors file (for fit, signatures, manifoldrf.load) or an .npz file with the affinity matrix.",
)
_ROWS_OUT = typer.Option(
    "--output", "-o", metavar="ROWS", help="Rows as npz (sparse, scipy.sparse.load_npz), npy or csv."
)
_MESH = typer.Argument(metavar="MESH", help="A mesh (ply, obj, vtk, gii, ...) or points (npy, npz, csv).")
_VALUES = typer.Argument(
    metavar="VALUES", help="csv with rows vertex,value,... for known vertices, or npy with NaN for unknown ones."
)
_FIELD_OUT = typer.Option("--output", "-o", metavar="OUT", help="OUT.csv and OUT.ply (coloured) are written.")
_SUFFIXES = (".csv", ".ply")
# Option of interpolate -> its default, and the methods that use it.
_USED_BY = {"tau": ("cv", ("auto", "kernel", "gp")), "noise_variance": ("cv", ("auto", "gp"))}


def graph(
    source: InputFile,
    output: Output,
    choice: BuiltGraph,
    threads: Threads,
    target: Annotated[str, _GRAPH_OUT],
    t: Annotated[float | None, typer.Option("--t", help="Heat time of a heat graph.")] = None,
) -> None:
    """Build the graph of a mesh or of points and print its size.

    Examples: manifoldrf graph points.npy -o graph.safetensors --t 0.02

    manifoldrf graph bunny.ply -o affinity.npz --weights cotangent
    """
    from manifoldrf._arrays import write_matrix

    with usage():
        path = check_output(target, "--output", (*MODEL, ".npz"), [source])
        threads.check()
    with notices(quiet=output.quiet), progress("graph", quiet=output.silent) as report:
        report("reading INPUT", 0, 1)
        space = read_space(source)
        report("building", 0, 1)
        built = build_graph(choice, space, t, threads.n_jobs)
    if path.suffix.lower() in MODEL:
        built.save(path)
    else:
        write_matrix(path, built.affinity)
    show_facts(output, "graph", graph_facts(built) | {"output": str(path)})


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
        kind: str = choice.kind
        if kind == "auto" and t is None:
            kind = "mesh" if is_mesh else "knn"
        elif kind == "auto":
            kind = "heat"
        elif kind == "heat" and t is None:
            reject("--t", "given for a heat graph", "none")
        elif kind == "mesh" and not is_mesh:
            reject("--kind", "heat or knn for points", kind)
        given = given_options(choice, kind, t if kind == "heat" else own)
    with errors_about("INPUT", option_names(choice) | ({} if t is None else {"t": "--t"})):
        if kind == "heat":
            return heat_graph(space, n_jobs=n_jobs, **given)
        if kind == "knn":
            return knn_graph(space.vertices if is_mesh else space, n_jobs=n_jobs, **given)
        return mesh_graph(space, **given)


def signatures(
    source: InputFile,
    output: Output,
    kernel: KernelChoice,
    choice: BuiltGraph,
    threads: Threads,
    machines: Machines,
    target: Annotated[str, _ROWS_OUT],
    nodes: Annotated[
        str | None, typer.Option(help="Start nodes separated by commas, such as 0,5,7; all by default.")
    ] = None,
    teacher: Annotated[
        Literal["auto", "exact", "frontier", "walks", "counts"], typer.Option(help="Method that computes the rows.")
    ] = "auto",
    teacher_options: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="For example n_walks=10000; repeatable.")
    ] = None,
    asymmetric: Annotated[bool, typer.Option("--asymmetric", help="Compute rows of the kernel itself.")] = False,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of walks and counts. The same seed gives the same bits.")
    ] = 0,
) -> None:
    """Compute signatures: rows whose inner products are the kernel on the graph.

    Examples: manifoldrf signatures bunny.ply -o rows.npz --tau 20 --nodes 0,100

    manifoldrf signatures graph.safetensors -o rows.npy --tau 20 --teacher walks --teacher-options n_walks=1000
    """
    from manifoldrf import compute_signatures
    from manifoldrf._arrays import ARRAY_SUFFIXES, write_matrix
    from manifoldrf.signatures.teachers import Counts, Exact, Walks

    start = time.perf_counter()
    with usage():
        path = check_output(target, "--output", ARRAY_SUFFIXES, [source])
        wanted = kernel.build()
        if wanted is None:
            reject("--kernel", "given, or --t, or --tau", "none")
        starts = None if nodes is None else parse(nodes, tuple[int, ...], "--nodes")
        options = read_options(teacher_options, "--teacher-options") or {}
        kinds: dict[str, Any] = {"auto": Exact, "exact": Exact, "frontier": Exact, "walks": Walks, "counts": Counts}
        chosen = kinds[teacher]().with_params(**options)
        threads.check()
    with (
        machines.cluster() as cluster,
        notices(quiet=output.quiet),
        progress("signatures", quiet=output.silent) as report,
    ):
        report("reading INPUT", 0, 1)
        space = read_space(source)
        report("graph", 0, 1)
        built = build_graph(choice, space, kernel.t, threads.n_jobs, shared_t=True)
        with usage():
            starts = starts if starts is None else check_indices(starts, "--nodes", built.n_nodes)
        run: dict[str, Any] = {"teacher": chosen, "asymmetric": asymmetric, "seed": seed, "progress": report}
        if cluster is None:
            rows = compute_signatures(built, wanted, starts, n_jobs=threads.n_jobs, **run)
        else:
            rows = cluster.signatures(built, wanted, starts, **run)
    write_matrix(path, rows.rows)
    facts = {
        "rows": rows.rows.shape[0],
        "columns": rows.rows.shape[1],
        "teacher": str(rows.teacher),
        "steps": rows.n_steps,
        "bound of the error": rows.error_bound,
        "estimated relative error": None if rows.stderr is None else rows.relative_stderr,
        "seconds": time.perf_counter() - start,
        "output": str(path),
    }
    show_facts(output, "signatures", facts)


def interpolate(
    mesh: Annotated[str, _MESH],
    values: Annotated[str, _VALUES],
    output: Output,
    run: Running,
    target: Annotated[str, _FIELD_OUT],
    method: Annotated[
        Literal["auto", "kernel", "gp", "harmonic", "biharmonic"],
        typer.Option(help="auto chooses by cross-validation on the known vertices."),
    ] = "auto",
    tau: Annotated[float | str, typer.Option(metavar="FLOAT|cv", help="Diffusion time in steps.")] = "cv",
    weights: Annotated[
        Literal["unit", "gaussian", "cotangent"] | None, typer.Option(help="Edge weights, unit by default.")
    ] = None,
    normalize: Annotated[
        bool, typer.Option("--normalize", help="Values are directions: normalise the result.")
    ] = False,
    noise_variance: Annotated[
        float | str, typer.Option(metavar="FLOAT|cv", help="Variance of the noise of the method gp.")
    ] = "cv",
    column: Annotated[int, typer.Option(help="Column of the values that colours show, counted from 0.")] = 0,
) -> None:
    """Fill in a field that is known at some vertices, by the method that cross-validation chooses.

    Example: manifoldrf interpolate scan.ply known.csv -o filled
    """
    from manifoldrf import FieldInterpolator, Graph, TriangleMesh
    from manifoldrf._arrays import read_values, value_names
    from manifoldrf.applications.interpolation import GP_NODES, WIDEST

    options: dict[str, Any] = {"tau": tau, "normalize": normalize, "noise_variance": noise_variance}
    options |= {"weights": weights or "unit", "random_state": run.random_state, "n_jobs": run.n_jobs}
    model = FieldInterpolator(method, **options)
    with usage():
        files = _field_files(target, mesh, values)
        run.check()
        check_number_or(tau, "--tau", "cv", Interval(0.0, WIDEST, low_open=True))
        check_number_or(noise_variance, "--noise-variance", "cv", NONNEGATIVE)
        for name, (default, methods) in _USED_BY.items():
            if options[name] != default and method not in methods:
                reject(f"--{name.replace('_', '-')}", f"left out with the method {method}", options[name])
    space = read_space(mesh, "MESH")
    points = points_of(space)
    known_values, known = read_values(values, len(points))
    with usage():
        _check_column(column, known_values, points)
        if noise_variance != "cv" and method == "auto" and len(points) > GP_NODES:
            reject(
                "--noise-variance",
                f"left out with the method auto for more than {GP_NODES} vertices, where gp is not tried",
                noise_variance,
            )
        if weights is not None and isinstance(space, Graph):
            reject("--weights", "left out for a MESH that is a graph", weights)
        if weights == "cotangent" and not isinstance(space, Graph | TriangleMesh):
            reject("--weights", "unit or gaussian for points; cotangents need the faces of a mesh", weights)
    with notices(quiet=output.quiet), progress("interpolate", quiet=output.silent) as report:
        report("choosing the method and filling in", 0, 1)
        model.fit(space, known_values, known)
        filled = model.predict()
    _print_doubts(model, known, output)
    saved = _write_field(files, space, filled, (known, value_names(values), column), output)
    _show_choice(model, _graph_text(space), saved, output)


def smooth(
    mesh: Annotated[str, _MESH],
    values: Annotated[str, _VALUES],
    output: Output,
    threads: Threads,
    target: Annotated[str, _FIELD_OUT],
    fwhm: Annotated[
        float | None, typer.Option(help="Full width at half maximum of the filter, in units of the mesh.")
    ] = None,
    t: Annotated[float | None, typer.Option("--t", help="Heat time instead: fwhm^2 / 11.09.")] = None,
    column: Annotated[int, typer.Option(help="Column of the values that colours show, counted from 0.")] = 0,
) -> None:
    """Smooth a field along a mesh or points by the heat flow.

    Example: manifoldrf smooth cortex.ply thickness.csv -o smooth --fwhm 10
    """
    from manifoldrf import smooth as smooth_field
    from manifoldrf._arrays import read_values, value_names
    from manifoldrf.applications.heat import time_of

    names = {"fwhm": "--fwhm", "t": "--t"}
    with usage(names):
        files = _field_files(target, mesh, values)
        threads.check()
        if (fwhm is None) == (t is None):
            reject("--fwhm", "given, or --t, but not both", "neither" if t is None else "both")
        time_of(fwhm, t)
    space = read_space(mesh, "MESH")
    field, known = read_values(values, len(points_of(space)))
    with usage():
        _check_column(column, field, points_of(space))
    with notices(quiet=output.quiet), progress("smooth", quiet=output.silent) as report, usage(names):
        report("smoothing", 0, 1)
        width: dict[str, Any] = {"fwhm": fwhm, "t": t, "n_jobs": threads.n_jobs}
        found = smooth_field(space, field, known=known, **width)
    saved = _write_field(files, space, found, (known, value_names(values), column), output)
    facts = {"fwhm": fwhm, "t": time_of(fwhm, t), "known": int(known.sum()), "vertices": len(known)}
    show_facts(output, "smooth", facts | {"output": ", ".join(map(str, saved))})


def _field_files(target: str, *inputs: str) -> tuple[Path, Path]:
    """Where to write the table and the picture of a field; suffixes are added to ``target`` if it has none."""
    if target == "-":
        reject("--output", "the beginning of two names of files; nothing goes to standard output", target)
    if target.endswith("/"):
        reject("--output", "a file, not a folder", target)
    output_file(target, "--output")
    stem = Path(target).with_suffix("") if Path(target).suffix.lower() in _SUFFIXES else Path(target)
    table, picture = (
        check_output(stem.with_name(stem.name + suffix), "--output", _SUFFIXES, list(inputs))
        for suffix in _SUFFIXES
    )
    return table, picture


def _check_column(column: int, field: Any, points: Any) -> None:
    """Check the column that is drawn; points of many coordinates are not drawn."""
    check_integer(column, "--column", 0, field.shape[1] - 1)
    if column and points.shape[1] > AXES:
        reject("--column", f"left out for points of {points.shape[1]} coordinates, which get no picture", column)


def _write_field(
    paths: tuple[Path, Path], space: Any, field: Any, about: tuple[Any, list[str], int], output: Output
) -> list[Path]:
    """Write both files or neither; ``about``: known vertices, names of columns, and the column that is drawn."""
    known, names, column = about
    n_coordinates = points_of(space).shape[1]
    is_drawn = n_coordinates <= AXES
    if not is_drawn:
        note(f"no coloured ply: the points have {n_coordinates} coordinates", quiet=output.quiet)
    written = paths[: 1 + is_drawn]
    with atomic_paths(written) as drafts:
        _write_table(drafts[0], field, known, names)
        if is_drawn:
            write_picture(drafts[1], space, field[:, column])
    return list(written)


def _write_table(path: Path, filled: Any, known: Any, names: list[str]) -> None:
    """A row for every vertex: its number, whether it was known, the field by the names of its columns if any."""
    if not names:
        names = ["value"] if filled.shape[1] == 1 else [f"value_{k}" for k in range(filled.shape[1])]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["vertex", "known", *names])
        # Python numbers print all their digits.
        writer.writerows([k, int(known[k]), *row] for k, row in enumerate(filled.tolist()))


def _print_doubts(model: Any, known: Any, output: Output) -> None:
    """Print a note if there was nothing to fill in, or if the result is no better than the mean."""
    if known.all():
        note("VALUES has a value for every vertex: there was nothing to fill in", quiet=output.quiet)
    if model.beats_mean_ is False:
        tried = {row["method"] for row in model.cv_}
        who = "no method is" if len(tried) > 1 else f"{model.method_} is not"
        text = (
            f"{who} better than the mean of the known values in cross-validation: either the values vary like "
            "noise from vertex to vertex, or too few are known; the result says little"
        )
        note(text, quiet=False)  # the result is useless


def _graph_text(space: Any) -> str:
    """Describe the graph that carried the field."""
    from manifoldrf import Graph, TriangleMesh

    if isinstance(space, Graph):
        return f"as given, {space.n_nodes} nodes"
    if isinstance(space, TriangleMesh):
        return f"edges of the mesh, {space.n_vertices} vertices"
    return f"nearest neighbours in space of {len(space)} points, as there are no faces"


def _show_choice(model: Any, graph: str, saved: list[Path], output: Output) -> None:
    """Print the method, its alternatives, and the files."""
    chosen = {"method": model.method_, "tau": model.tau_, "noise_variance": model.noise_variance_}
    if model.cv_:
        what = "1 - mean cosine" if model.normalize else "mean squared error over the variance"
        title = f"{what}, cross-validated on known vertices; the best of each method"
        best: dict[str, dict[str, Any]] = {}
        for row in sorted(model.cv_, key=lambda row: (-row["folds"], row["error"])):
            best.setdefault(row["method"], row)  # most folds first: those cover all known vertices
        rows = sorted(best.values(), key=lambda row: row["error"])
        print_table(rich.console.Console(quiet=output.silent), title, rows)
    settings = ", ".join(f"{name} {value:.3g}" for name, value in chosen.items() if isinstance(value, float))
    files = [str(path) for path in saved]
    method = model.method_ + (f" ({settings})" if settings else "")
    text = f"Method: {method}\nGraph: {graph}\nSaved: {', '.join(files)}"
    facts = chosen | {"graph": graph, "known": model.n_known_, "tried": model.cv_}
    show(output, facts | {"beats_mean": model.beats_mean_, "output": files}, text)
