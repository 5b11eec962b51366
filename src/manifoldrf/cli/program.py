"""The program: its commands, and how they read and write files."""

import csv
import functools
import platform
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer
from typer.core import TyperCommand, TyperGroup

import manifoldrf
from manifoldrf._files import atomic_paths, check_output, check_suffix, existing_file, output_file
from manifoldrf._runtime import available, recorded_warnings, warn_user
from manifoldrf._validation import check_integer, check_jobs, check_points, counting_columns, reject
from manifoldrf.cli.console import note, notices, progress, show, show_facts
from manifoldrf.cli.demo import demo
from manifoldrf.cli.options import Output, Parameters, Running, TableChoice, Threads, option_names, spread, usage

MODEL = (".safetensors",)
AXES = 3  # of a picture

_ARRAYS = "npy, npz or csv"
_PLACES = f"Points, {_ARRAYS}, or a mesh (ply, obj, vtk, gii, ...), whose vertices are taken."
_SPACE = "A mesh (ply, obj, vtk, gii, ...), points (npy, npz, csv) or a graph (safetensors)."
_EXTRAS = {"dask": "distributed", "gpytorch": "gpytorch", "mesh": "meshio", "torch": "torch", "viz": "matplotlib"}

_out = functools.partial(typer.Option, "--out", "-o")
InputFile = Annotated[str, typer.Argument(metavar="INPUT", help=_SPACE)]
SpaceFile = Annotated[str, typer.Argument(metavar="SPACE", help=_SPACE)]
ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A model written by `manifoldrf fit`.")]
_VALUES = "csv with rows vertex,value,... for known vertices, or npy with NaN for unknown ones."
ValuesFile = Annotated[str, typer.Argument(metavar="VALUES", help=_VALUES)]
FieldOut = Annotated[str, _out(metavar="OUT", help="OUT.csv and OUT.ply (coloured) are written.")]
Column = Annotated[int, typer.Option(help="Column of the values that colours show, counted from 0.")]


def fit(
    source: InputFile,
    output: Output,
    parameters: Parameters,
    table: TableChoice,
    run: Running,
    out: Annotated[str, _out(metavar="MODEL", help="File to write, ending in .safetensors.")],
) -> None:
    """Fit features to a mesh, to points or to a graph, and save them.

    -t is in units of length squared: use t = l^2 / 2 for details of size l. Without it a time is chosen.

    Examples: manifoldrf fit bunny.ply -o bunny.safetensors

    manifoldrf fit points.csv -o model.safetensors -t 0.02 --columns x,y,z --missing drop
    """
    from manifoldrf.features.fit import FitOptions

    start = time.perf_counter()
    with usage():
        target = check_output(out, "--out", MODEL, [source])
        features = parameters.estimator(run)
        FitOptions.of(features.get_params(deep=False))  # an error for a wrong option, before any work
    with notices(quiet=output.quiet), progress("fit", quiet=output.silent) as report:
        report("reading INPUT", 0, 1)
        opened = table.open(source, "INPUT")
        space = read_space(source, table=opened)
        features.set_params(verbose=report)
        with usage(option_names(parameters), "INPUT"):
            features.fit(space)
        summary = features.summary()
        report("writing MODEL", 0, 1)
        features.set_params(verbose=False).save(target)  # the file cannot hold a function
    facts = {"out": str(target)} | model_facts(features) | {"seconds": time.perf_counter() - start}
    show(output, facts | _dropped(output, (opened, source)), f"{summary}\nSaved: {target}")


def transform(
    source: ModelFile,
    points: Annotated[str, typer.Argument(metavar="POINTS", help=_PLACES)],
    output: Output,
    table: TableChoice,
    threads: Threads,
    out: Annotated[str, _out(metavar="FEATURES", help=f"{_ARRAYS}; npz is sparse, as scipy reads it.")],
    side: Annotated[
        Literal["left", "right"] | None, typer.Option(help="Side of a kernel without nonnegative features.")
    ] = None,
    chunk_size: Annotated[
        int | None, typer.Option(min=1, help="Rows at once; by default 64 MB of them.", show_default=False)
    ] = None,
) -> None:
    """Write the features of points; the files may be larger than memory.

    Examples: manifoldrf transform bunny.safetensors points.npy -o features.npz

    manifoldrf transform bunny.safetensors scan.ply -o features.npy
    """
    from manifoldrf._arrays import ARRAY_SUFFIXES, column_titles, row_writer

    with usage():
        target = check_output(out, "--out", ARRAY_SUFFIXES, [source, points])
        threads.check()
    suffix = target.suffix.lower()
    model = read_model(source).set_params(sparse_output=suffix == ".npz", n_jobs=threads.n_jobs)
    with usage({"side": "--side"}):
        model._check_side(side)
    m = model.n_features_out_
    chunk = chunk_size or _chunk(m)
    opened = table.open(points, "POINTS", keep=suffix == ".csv")
    rows = _open_points(points, "POINTS", model, chunk, opened)
    names: list[str] = []
    if opened and opened.kept:
        titles = column_titles(points)
        names = [titles[place] or f"column {place}" for place in opened.kept] + list(model.get_feature_names_out())
    with (
        recorded_warnings() as warned,
        progress("transform", quiet=output.silent) as report,
        row_writer(target, m, rows.dtype, sparse=suffix == ".npz", titles=names) as writer,
    ):
        report("0 points done", 0, rows.n_rows or 0)
        for _, block in _checked(rows, "POINTS", points, opened):
            writer.append(model.transform(block, side), opened.blocks.popleft() if opened and names else ())
            report(f"{writer.n_rows} points done", writer.n_rows, rows.n_rows or 0)
    _note_warnings(warned, writer.n_rows, output)
    _show_written(output, target, (writer.n_rows, m), (opened, points))


def kernel(  # noqa: C901  (one way for matrices, one for pictures)
    source: ModelFile,
    first: Annotated[str, typer.Argument(metavar="A", help=_PLACES)],
    output: Output,
    table: TableChoice,
    threads: Threads,
    out: Annotated[str, _out(metavar="K", help=f"Values, {_ARRAYS}; with --vertex also ply, coloured.")],
    second: Annotated[
        str | None, typer.Argument(metavar="B", help="Other points; without them, A itself.", show_default=False)
    ] = None,
    vertex: Annotated[
        int | None, typer.Option(min=0, help="One point of A, counted from 0: the kernel between it and all of A.")
    ] = None,
) -> None:
    """Write the kernel matrix between the points of A and those of B.

    Examples: manifoldrf kernel bunny.safetensors a.npy b.npy -o K.npy

    manifoldrf kernel bunny.safetensors bunny.ply --vertex 17 -o heat.ply
    """
    from manifoldrf._arrays import ARRAY_SUFFIXES, row_writer
    from manifoldrf.features.feature_map import product

    with usage():
        suffixes = ARRAY_SUFFIXES if vertex is None else (*ARRAY_SUFFIXES, ".ply")
        target = check_output(out, "--out", suffixes, [part for part in (source, first, second) if part])
        threads.check()
        if vertex is not None and second is not None:
            reject("B", "left out with --vertex", second)
        if vertex is not None and table.missing == "drop":
            reject("--missing", "error with --vertex, which counts all rows of A", "drop")
    model = read_model(source).set_params(sparse_output=True, n_jobs=threads.n_jobs)
    left, right = ("left", "right") if model.asymmetric_ else (None, None)
    other, name = (second, "B") if second else (first, "A")
    theirs = _open_points(other, name, model, 2**15, theirs_table := table.open(other, name))
    others = np.concatenate([block for _, block in _checked(theirs, name, other, theirs_table)]).astype("float64")
    if vertex is not None:
        with usage():
            check_integer(vertex, "--vertex", 0, len(others) - 1)
            if target.suffix.lower() == ".ply" and others.shape[1] > AXES:
                reject("--out", f"{_ARRAYS} for points of {others.shape[1]} coordinates", target)
        others = others[[vertex]]
    with recorded_warnings() as warned, progress("kernel", quiet=output.silent) as report:
        report(f"features of {name}", 0, 1)
        known = model.transform(others, right)
    if second:  # the points of A are counted below
        _note_warnings(warned, len(others), output)
    chunk = _chunk(max(len(others), model.n_features_out_))
    rows = _open_points(first, "A", model, chunk, own_table := table.open(first, "A"))

    n_rows = 0

    def found() -> Iterator[Any]:
        nonlocal n_rows
        with progress("kernel", quiet=output.silent) as report:
            for begin, block in _checked(rows, "A", first, own_table):
                report(f"{begin} rows done", begin, rows.n_rows or 0)
                n_rows += len(block)
                own = model.transform(block.astype("float64"), left)
                yield product(own, known, check_jobs(threads.n_jobs))

    with recorded_warnings() as warned:
        if target.suffix.lower() == ".ply":
            column = np.concatenate(list(found()))[:, 0]
            write_picture(target, read_space(first, "A", table.open(first, "A")), column)
        else:
            with row_writer(target, len(others), rows.dtype) as writer:
                for part in found():
                    writer.append(part)
    _note_warnings(warned, n_rows, output)
    opened = [(own_table, first), (theirs_table if second else None, other)]
    _show_written(output, target, (n_rows, len(others)), *opened)


def explore(
    source: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model, or an INPUT of fit, which is fitted first.")
    ],
    output: Output,
    out: Annotated[str, _out(metavar="PAGE", help="The page, ending in .html.")],
    title: Annotated[str | None, typer.Option(help="Title of the page; by default the name of the model.")] = None,
    n_points: Annotated[
        int | str, typer.Option(metavar="INTEGER|auto", help="Largest number of points to show.")
    ] = "auto",
    surface: Annotated[
        str | None, typer.Option(metavar="FILE", help="Mesh or points to draw instead of those of the model.")
    ] = None,
    values: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help=f"Fields of your own: {_VALUES} Repeatable.", show_default=False),
    ] = None,
    max_bytes: Annotated[int, typer.Option(min=1, help="Largest size of the page in bytes.")] = 8_000_000,
) -> None:
    """Write one HTML page that shows the kernel of any point you click; it needs no server and no network.

    --values has a value for each vertex or point of --surface, of INPUT, or of the mesh of MODEL.

    Examples: manifoldrf explore bunny.safetensors -o bunny.html

    manifoldrf explore scan.ply -o scan.html --values thickness.csv
    """
    from manifoldrf.explorer.page import explore as write_page

    with usage():
        target = check_output(out, "--out", (".html",), [source, *(values or [])])
    saved = read_saved(source, object, "MODEL") if Path(source).suffix.lower() in MODEL else None
    is_model = saved is not None and not isinstance(saved, manifoldrf.Graph)
    model: Any = read_model(source) if is_model else manifoldrf.ManifoldRandomFeatures(random_state=0)
    with notices(quiet=output.quiet), progress("explore", quiet=output.silent) as report:
        drawn = None if surface is None else read_space(surface, "--surface")
        if not is_model:
            report("fitting", 0, 1)
            space = read_space(source)
            with usage(about="INPUT"):
                model.fit(space)
            drawn = space if drawn is None and values and not hasattr(space, "positions") else drawn
        report("features and exact signatures", 0, 1)
        places = drawn if drawn is not None else model.graph_.whole_mesh or model.graph_
        own = _read_fields(values or [], len(points_of(places)))
        drawing: dict[str, Any] = {"fields": own, "surface": drawn, "title": title or Path(source).stem}
        names = {f"fields[{name!r}]": f"--values {name}" for name in own}
        with usage({"max_bytes": "--max-bytes", "n_points": "--n-points"} | names, "MODEL"):
            written = write_page(model, target, n_points=n_points, max_bytes=max_bytes, **drawing)
    facts = {name: value for name, value in vars(written).items() if name != "html"}
    show(output, facts | {"path": str(target)}, str(written))


def _read_fields(files: list[str], n_rows: int) -> dict[str, Any]:
    """Read fields by the names of their columns or files; a name that is taken is preceded by that of its file."""
    from manifoldrf._arrays import read_values

    found: dict[str, Any] = {}
    for file in files:
        stem = Path(file).stem
        names, values = read_values(file, n_rows, "--values", "vertex, or point of --surface")
        for k, column in enumerate(np.ascontiguousarray(values.T)):
            name = (names[k] if names else "") or (stem if len(values.T) == 1 else f"{stem} {k}")
            name = f"{stem}: {name}" if name in found else name
            if name in found:
                with usage():
                    reject("--values", "files with different names or columns", f"{name!r} twice")
            found[name] = column
    return found


def interpolate(
    space_file: SpaceFile,
    values: ValuesFile,
    output: Output,
    run: Running,
    out: FieldOut,
    method: Annotated[
        Literal["auto", "kernel", "gp", "harmonic", "biharmonic"],
        typer.Option(help="auto chooses by cross-validation on the known vertices."),
    ] = "auto",
    tau: Annotated[float | str, typer.Option(metavar="FLOAT|cv", help="Diffusion time in steps.")] = "cv",
    weights: Annotated[Literal["unit", "gaussian", "cotangent"], typer.Option(help="Weights of edges.")] = "unit",
    noise_variance: Annotated[
        float | str, typer.Option(metavar="FLOAT|cv", help="Variance of the noise of the method gp.")
    ] = "cv",
    directions: Annotated[
        bool, typer.Option("--directions", help="Values are directions: results have length one.")
    ] = False,
    column: Column = 0,
) -> None:
    """Fill in a field that is known at some vertices, by the method that cross-validation chooses.

    Example: manifoldrf interpolate scan.ply known.csv -o filled
    """
    options: dict[str, Any] = {"tau": tau, "noise_variance": noise_variance, "weights": weights}
    names = {name: f"--{name.replace('_', '-')}" for name in options}
    model = manifoldrf.FieldInterpolator(
        method, **options, normalize=directions, random_state=run.seed, n_jobs=run.n_jobs
    )
    with usage():
        files = _field_files(out, space_file, values)
        run.check()
    with notices(quiet=output.quiet), progress("interpolate", quiet=output.silent) as report:
        report("reading SPACE and VALUES", 0, 1)
        space, titles, field, known = _read_problem(space_file, values, column)
        with usage(names, "SPACE"):
            filled = model.set_params(verbose=report).fit(space, field, known).predict()
    if known.all():
        note("VALUES has a value for every vertex: there was nothing to fill in", quiet=output.quiet)
    if model.beats_mean_ is False:
        tried = {row["method"] for row in model.cv_}
        who = "no method is" if len(tried) > 1 else f"{model.method_} is not"
        text = f"{who} better than the mean of the known values in cross-validation: either the values vary like "
        note(f"{text}noise from vertex to vertex, or too few are known; the result says little", quiet=False)
    saved = _write_field(files, space, filled, (known, titles, column), output)
    chosen = {"method": model.method_, "tau": model.tau_, "noise_variance": model.noise_variance_}
    facts = chosen | {"known": model.n_known_, "tried": model.cv_, "beats_mean": model.beats_mean_, "out": saved}
    show(output, facts, f"{model.summary()}\nSaved: {', '.join(saved)}")


def smooth(
    space_file: SpaceFile,
    values: ValuesFile,
    output: Output,
    threads: Threads,
    out: FieldOut,
    fwhm: Annotated[
        float | None, typer.Option(help="Full width at half maximum of the filter, in units of the mesh.")
    ] = None,
    t: Annotated[float | None, typer.Option("--t", "-t", help="Heat time instead: fwhm^2 / 11.09.")] = None,
    column: Column = 0,
) -> None:
    """Smooth a field along a mesh, points or a graph by the heat flow.

    Example: manifoldrf smooth cortex.ply thickness.csv -o smooth --fwhm 10
    """
    from manifoldrf.applications.heat import time_of

    names = {"fwhm": "--fwhm", "t": "--t"}
    with usage(names):
        files = _field_files(out, space_file, values)
        threads.check()
        if (fwhm is None) == (t is None):
            reject("--fwhm", "given, or --t, but not both", "neither" if t is None else "both")
        heat_time = time_of(fwhm, t)
    with notices(quiet=output.quiet), progress("smooth", quiet=output.silent) as report:
        report("reading SPACE and VALUES", 0, 1)
        space, titles, field, known = _read_problem(space_file, values, column)
        width: dict[str, Any] = {"fwhm": fwhm, "t": t, "n_jobs": threads.n_jobs, "verbose": report}
        with usage(names, "SPACE"):
            found = manifoldrf.smooth(space, field, known=known, **width)
    saved = _write_field(files, space, found, (known, titles, column), output)
    facts = {"fwhm": fwhm, "t": heat_time, "known": int(known.sum()), "vertices": len(known), "out": saved}
    show_facts(output, "smooth", facts)


def _field_files(out: str, *inputs: str) -> tuple[Path, Path]:
    """Where to write the table and the picture of a field; suffixes are added to the name if it has none."""
    if out == "-" or out.endswith("/"):
        reject("--out", "the beginning of the names of two files", out)
    output_file(out, "--out")
    suffixes = (".csv", ".ply")
    stem = Path(out).with_suffix("") if Path(out).suffix.lower() in suffixes else Path(out)
    table, picture = (check_output(f"{stem}{suffix}", "--out", suffixes, list(inputs)) for suffix in suffixes)
    return table, picture


def _read_problem(space_file: str, values: str, column: int) -> tuple[Any, list[str], Any, Any]:
    """A space, the names of the columns of values on it, the values, and which vertices are known."""
    from manifoldrf._arrays import read_values

    space = read_space(space_file, "SPACE")
    names, field = read_values(values, len(points_of(space)))
    known = ~np.isnan(field).all(axis=1)
    bad = ~np.isfinite(field).all(axis=1) & known
    if bad.any() or not known.any():
        found = f"other values for vertex {bad.argmax()}" if bad.any() else "no known value"
        reject("VALUES", "a file of finite numbers, or NaN in all columns of a row", f"{found} in {values}")
    with usage():
        check_integer(column, "--column", 0, field.shape[1] - 1)
    return space, names, field, known


def _write_field(
    paths: tuple[Path, Path], space: Any, field: Any, about: tuple[Any, list[str], int], output: Output
) -> list[str]:
    """Write both files or neither; ``about``: known vertices, names of columns, and the column that is drawn."""
    known, names, column = about
    n_coordinates = points_of(space).shape[1]
    is_drawn = n_coordinates <= AXES
    if not is_drawn:
        note(f"no coloured ply: the points have {n_coordinates} coordinates", quiet=output.quiet)
    if not names:
        names = ["value"] if field.shape[1] == 1 else [f"value_{k}" for k in range(field.shape[1])]
    written = paths[: 1 + is_drawn]
    with atomic_paths(written) as drafts:
        with drafts[0].open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(["vertex", "known", *names])
            # Python numbers print all their digits.
            writer.writerows([k, int(known[k]), *row] for k, row in enumerate(field.tolist()))
        if is_drawn:
            write_picture(drafts[1], space, field[:, column])
    return [str(path) for path in written]


_SAVED = typer.Argument(
    metavar="MODEL", help="A saved model or graph; without it, print versions.", show_default=False
)


def info(output: Output, source: Annotated[str | None, _SAVED] = None) -> None:
    """Describe a saved model or graph; without one, print versions, threads and extras.

    Examples: manifoldrf info bunny.safetensors

    manifoldrf info --json
    """
    if source is None:
        about = {name: version(name) for name in ("manifoldrf", "numpy", "scikit-learn", "scipy")}
        about |= {"python": platform.python_version(), "machine": f"{platform.system()} {platform.machine()}"}
        about["threads"] = str(check_jobs(-1))
        extras = {f"extra {name}": "yes" if available(package) else "no" for name, package in _EXTRAS.items()}
        show_facts(output, "manifoldrf", about | extras)
        return
    saved = read_saved(source, object, "MODEL")
    facts: dict[str, Any] = {"file": source, "kind": type(saved).__name__, "bytes": Path(source).stat().st_size}
    if not hasattr(saved, "map_"):  # a graph, a regressor or an interpolator
        show_facts(output, facts["kind"], facts | dict(saved._facts()))
        return
    facts |= {"coordinates": saved.n_features_in_, "dimension": saved.map_.kernel.dim} | model_facts(saved)
    head = f"{source}: {facts['kind']} of points with {saved.n_features_in_} coordinates"
    show(output, facts, f"{head}, {facts['bytes'] / 1e6:.2f} MB\n{saved.summary()}")


# ------------------------------------------------------------------------------------------------- input files
def read_space(path: str, name: str = "INPUT", table: Any = None) -> Any:
    """Read a mesh, a graph, or points."""
    from manifoldrf._arrays import ARRAY_SUFFIXES, column_titles, read_mesh_arrays, read_points
    from manifoldrf.geometry.mesh_files import READABLE_FORMATS

    meshes = tuple(f".{form}" for form in READABLE_FORMATS)
    suffix = check_suffix(Path(path), name, (*ARRAY_SUFFIXES, *meshes, *MODEL))
    if suffix == ".npz":
        arrays = read_mesh_arrays(path, name)
        if arrays is not None:
            if table is not None:
                reject(name, "a table, not a mesh, with options of tables", path)
            with usage(about=name):
                return manifoldrf.TriangleMesh(*arrays)
    if suffix in ARRAY_SUFFIXES:
        points = check_rows(read_points(path, name, table), name, path, table=table)
        check_points(points, name, min_rows=2)
        for column in counting_columns(points) if suffix == ".csv" and not (table and table.is_chosen) else []:
            place = column if table is None else table.places[column]
            title = column_titles(path, name)[place]
            text = f"Column {place} of {name} (counted from 0){title and f', {title!r},'} looks like a row number"
            warn_user(f"{text}, but is used as a coordinate (remedy: leave it out, see fit --columns).")
        return points
    existing_file(path, name)
    if suffix in MODEL:
        return read_saved(path, manifoldrf.Graph, name)
    with usage(about=name):
        return manifoldrf.TriangleMesh.load(path)


def read_model(path: str) -> Any:
    """Read fitted features."""
    return read_saved(path, manifoldrf.ManifoldRandomFeatures, "MODEL")


def read_saved(path: str, kind: type, name: str) -> Any:
    """Read a saved object, which must be of the given kind."""
    what = "a graph, from Graph.save" if kind is manifoldrf.Graph else "a model, from `manifoldrf fit`"
    if Path(path).suffix.lower() not in MODEL:
        reject(name, f"a .safetensors file with {what}", path)
    model = manifoldrf.load(existing_file(path, name))
    if not isinstance(model, kind):
        reject(name, f"a file with {what}", f"{path}, with a {type(model).__name__}")
    return model


def points_of(space: Any) -> Any:
    """The vertices of a mesh, the points of a graph, or points."""
    return space.positions if hasattr(space, "positions") else getattr(space, "vertices", space)


def write_picture(path: Path, space: Any, values: Any) -> None:
    """Write a mesh or points to a ply file, coloured by a field from its smallest to its largest value."""
    from manifoldrf._colours import field_colours
    from manifoldrf.geometry.mesh_files import write_ply

    if isinstance(space, manifoldrf.TriangleMesh):
        space.save(path, field=values)
        return
    points = points_of(space)
    flat = np.zeros((len(points), AXES))
    flat[:, : points.shape[1]] = points
    write_ply(path, flat, field_colours(values))


def _open_points(path: str, name: str, model: Any, chunk: int, table: Any) -> Any:
    """Open points, or the vertices of a mesh, to read them in blocks; they have the coordinates of the model."""
    from manifoldrf._arrays import ARRAY_SUFFIXES, RowReader, open_rows

    if Path(path).suffix.lower() in ARRAY_SUFFIXES:
        rows = open_rows(path, name, chunk, table)
    else:
        points = points_of(read_space(path, name))
        blocks = [points[start : start + chunk] for start in range(0, len(points), chunk)]
        rows = RowReader(points.shape[1], len(points), points.dtype, lambda: iter(blocks))
    if rows.n_columns != model.n_features_in_:
        rule = f"points with {model.n_features_in_} columns, as MODEL has (--columns and --id choose them)"
        reject(name, rule, f"{rows.n_columns} in {path}")
    return rows


def _checked(rows: Any, name: str, path: str, table: Any) -> Iterator[tuple[int, Any]]:
    """The whole rows of each block of a file, if there are any, with the number of the first row of the block."""
    is_empty = True
    for begin, block in rows:
        whole = check_rows(block, name, path, begin, table)
        if len(whole):
            is_empty = False
            yield begin, whole
    if is_empty:
        reject(name, "a file with at least one row", path)


def check_rows(block: Any, name: str, path: str, begin: int = 0, table: Any = None) -> Any:
    """Return points if they are finite, without missing values if the table asks for it.

    The error names the first bad row of the file.
    """
    bad = np.isinf(block) if table is not None and table.drop else ~np.isfinite(block)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        place = column if table is None else table.places[column]
        found = f"{block[row, column]} in row {begin + row + 1}, column {place + 1} of {path}"
        found += " (see fit --missing drop)" if np.isnan(block[row, column]) else ""
        reject(name, "a file of finite numbers", found)
    return block if table is None else table.complete(block)


# ------------------------------------------------------------------------------------------- parts of the commands
def _note_warnings(warned: list[Warning], n_points: int, output: Output) -> None:
    """Print the warnings about all blocks of points, with one note for all points off the space."""
    far = [warning for warning in warned if isinstance(warning, manifoldrf.FarQueryWarning)]
    note(*dict.fromkeys(str(warning) for warning in warned if warning not in far), quiet=output.quiet)
    if far:
        counts = sum(warning.fading for warning in far), sum(warning.gone for warning in far)
        note(manifoldrf.FarQueryWarning(*counts, n_points).count, quiet=output.quiet)


def _chunk(n_columns: int) -> int:
    """Number of rows in memory at once: 64 MB."""
    return max(1, 2**23 // n_columns)


def _dropped(output: Output, *opened: tuple[Any, str]) -> dict[str, int]:
    """The number of rows that were left out of files, for --json; notes say it to people."""
    counts = {path: table.n_dropped for table, path in opened if table is not None and table.drop}
    left_out = [
        f"{count} rows of {path} have missing values and are left out" for path, count in counts.items() if count
    ]
    note(*left_out, quiet=output.quiet)
    return {"rows left out": sum(counts.values())} if counts else {}


def _show_written(output: Output, target: Path, shape: tuple[int, int], *opened: tuple[Any, str]) -> None:
    facts = {"out": str(target), "shape": list(shape)} | _dropped(output, *opened)
    show(output, facts, f"{shape[0]} x {shape[1]} values\nSaved: {target}")


def model_facts(features: Any) -> dict[str, Any]:
    """Facts about fitted features, for --json."""
    error = features.error_
    return {
        "kernel": repr(features.kernel_),
        "scale": features.scale_,
        "nodes": features.graph_.n_nodes,
        "features": features.n_features_out_,
        "field": features.field_,
        "quadrature": features.quadrature_,
        "error": {name: getattr(error, name) for name in ("kernel", "field", "quadrature", "graph")},
    }


# ----------------------------------------------------------------------------------------------------- the program
class _PlainFlags:
    """A command or group whose help shows no type for flags."""

    def get_params(self, context: Any) -> list[Any]:
        parameters: list[Any] = super().get_params(context)  # type: ignore[misc]
        for flag in (parameter for parameter in parameters if getattr(parameter, "is_flag", False)):
            flag.metavar = ""
        return parameters


class _Command(_PlainFlags, TyperCommand):
    pass


class _Group(_PlainFlags, TyperGroup):
    pass


_HELP = "Kernels on curved spaces as plain feature vectors."
app = typer.Typer(cls=_Group, help=_HELP, pretty_exceptions_enable=False)
for _command in (demo, fit, transform, kernel, explore, interpolate, smooth, info):
    app.command(cls=_Command)(spread(_command))


def _print_version(asked: bool) -> None:  # noqa: FBT001 - the signature of an option's callback
    if asked:
        sys.stdout.write(f"manifoldrf {manifoldrf.__version__}\n")
        raise typer.Exit


_VERSION = typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")


@app.callback(invoke_without_command=True)
def _root(context: typer.Context, version: Annotated[bool, _VERSION] = False) -> None:
    if context.invoked_subcommand is None:
        app(args=["--help"], prog_name=context.info_name, standalone_mode=False)
