"""Commands for fitted features (fit, transform, kernel, explore, info), and how commands read their input files."""

import dataclasses
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from manifoldrf._files import check_output, check_suffix, existing_file
from manifoldrf._runtime import available, warn_user
from manifoldrf._validation import check_integer, check_jobs, check_points, counting_columns, reject
from manifoldrf.cli.console import environment, note, notices, progress, show, show_facts
from manifoldrf.cli.options import (
    Features,
    FittedGraph,
    KernelChoice,
    Machines,
    Output,
    Running,
    TableChoice,
    Threads,
    UsageError,
    option_names,
    renamed,
    usage,
)

MODEL = (".safetensors",)

InputFile = Annotated[
    str,
    typer.Argument(
        metavar="INPUT", help="A mesh (ply, obj, vtk, gii, ...), points (npy, npz, csv) or a graph (safetensors)."
    ),
]
ModelFile = Annotated[str, typer.Argument(metavar="MODEL", help="A model written by `manifoldrf fit`.")]

# Kind of graph -> its options.
_OPTIONS_OF = {
    "heat": ("t", "n_steps", "dim", "noise"),
    "knn": ("n_neighbors", "bandwidth", "density_correction", "self_loops", "noise"),
    "mesh": ("weights",),
}
_ENTRIES_AT_ONCE = 2**23  # entries of features or of a kernel in memory at once: 64 MB
_SMALLER = 8  # chunks for a cluster are this much smaller, because up to 64 of them are in flight
_ARRAYS = "npy, npz or csv"
_PLACES = f"Points, {_ARRAYS}, or a mesh (ply, obj, vtk, gii, ...), whose vertices are taken."
AXES = 3  # of a picture

_MODEL_OUT = typer.Option("--output", "-o", metavar="MODEL", help="File to write, ending in .safetensors.")
_PAPER = typer.Option(
    "--paper", help="Use the paper's recipe (walks, network, all nodes); other options change it."
)
_SAVED = typer.Argument(
    metavar="MODEL", help="A model or a graph to describe; without it, print versions.", show_default=False
)
_EXTRAS = {"mesh": "trimesh", "ann": "faiss", "viz": "matplotlib", "dask": "distributed", "torch": "torch"}
_CHUNK = typer.Option(
    min=1, help="Rows in memory at once; by default as many as fit into 64 MB.", show_default=False
)


def fit(
    source: InputFile,
    output: Output,
    kernel: KernelChoice,
    choice: Features,
    graph: FittedGraph,
    table: TableChoice,
    run: Running,
    machines: Machines,
    model: Annotated[str, _MODEL_OUT],
    context: typer.Context,
    paper: Annotated[bool, _PAPER] = False,
) -> None:
    """Fit features to a mesh, to points or to a graph, and save them.

    --t is in units of length squared: use t = l^2 / 2 for details of size l. Without it a time is chosen.

    Examples: manifoldrf fit bunny.ply -o bunny.safetensors

    manifoldrf fit points.csv -o model.safetensors --columns x,y,z --missing drop
    """
    from manifoldrf import Graph, ManifoldRandomFeatures
    from manifoldrf.features.options import FitOptions

    start = time.perf_counter()
    names = option_names(kernel, choice, graph)
    with usage({name: option for name, option in names.items() if " " in option}):
        target = check_output(model, "--output", MODEL, [source])
        given = {"kernel": kernel.build(), "graph": graph.build(), **choice.parameters()}
        if paper:
            given = {name: value for name, value in given.items() if value is not None and _is_given(context, name)}
        given |= {"random_state": run.random_state, "n_jobs": run.n_jobs}
        make = ManifoldRandomFeatures.paper if paper else ManifoldRandomFeatures
        features = make(**given)
        FitOptions.of(features.get_params(deep=False))  # an error for a wrong option, before any work
    with (
        machines.cluster() as cluster,
        notices(quiet=output.quiet),
        progress("fit", quiet=output.silent, stages=True) as report,
    ):
        report("reading INPUT", 0, 1)
        opened = table.open(source, "INPUT")
        space = read_space(source, table=opened)
        with usage():
            if isinstance(space, Graph):
                given_options(graph, None, None)
        features.set_params(verbose=report)
        with errors_about("INPUT", names):
            if cluster is None:
                features.fit(space)
            else:
                cluster.fit(features, space)
        report("estimating the error", 0, 1)
        summary = features.summary()
        report("writing MODEL", 0, 1)
        features.set_params(verbose=False).save(target)  # the file cannot hold a function
    facts = {"output": str(target)} | model_facts(features) | {"seconds": time.perf_counter() - start}
    facts |= _dropped(output, (opened, source))
    show(output, facts, f"{summary}\nSaved: {target}")


def transform(
    source: ModelFile,
    points: Annotated[str, typer.Argument(metavar="POINTS", help=_PLACES)],
    output: Output,
    table: TableChoice,
    threads: Threads,
    machines: Machines,
    features: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FEATURES", help=f"Features, {_ARRAYS}; npz is sparse, as scipy reads it."
        ),
    ],
    side: Annotated[
        Literal["left", "right"] | None, typer.Option(help="Side of a kernel without nonnegative features.")
    ] = None,
    chunk_size: Annotated[int | None, _CHUNK] = None,
) -> None:
    """Write the features of points; the files may be larger than memory.

    Examples: manifoldrf transform bunny.safetensors points.npy -o features.npz

    manifoldrf transform bunny.safetensors scan.ply -o features.npy
    """
    from manifoldrf._arrays import ARRAY_SUFFIXES, row_writer

    with usage():
        target = check_output(features, "--output", ARRAY_SUFFIXES, [source, points])
        threads.check()
    model = read_model(source)
    if model.asymmetric_ and side is None:
        with usage():
            reject("--side", "left or right for a kernel without nonnegative features", "none")
    if side is not None and not model.asymmetric_:
        with usage():
            reject("--side", "left out for a kernel with nonnegative features, which have one side", side)
    sparse = target.suffix.lower() == ".npz"
    model.set_params(sparse_output=sparse, n_jobs=threads.n_jobs)
    chunk = chunk_size or _chunk(model.n_features_out_ * (_SMALLER if machines.scheduler else 1))
    opened = table.open(points, "POINTS", keep=target.suffix.lower() == ".csv")
    rows = _open_points(points, "POINTS", chunk, opened)
    check_columns(rows.n_columns, model, "POINTS", points)
    names = _titles(model, opened, points) if opened else []
    far = _Far()
    with (
        machines.cluster() as cluster,
        progress("transform", quiet=output.silent) as report,
        row_writer(target, model.n_features_out_, rows.dtype, sparse=sparse, titles=names) as writer,
    ):
        report("0 points done", 0, rows.n_rows or 0)
        blocks = (check_rows(block, "POINTS", points, begin, opened) for begin, block in rows)
        for found in _transformed(cluster, model, filter(len, blocks), side, far):
            writer.append(found, opened.blocks.popleft() if opened and names else ())
            report(f"{writer.n_rows} points done", writer.n_rows, rows.n_rows or 0)
        refuse_empty(writer.n_rows, "POINTS", points)
    far.print(quiet=output.quiet)
    _show_written(output, target, (writer.n_rows, model.n_features_out_), _dropped(output, (opened, points)))


def kernel(
    source: ModelFile,
    output: Output,
    table: TableChoice,
    threads: Threads,
    values: Annotated[
        str,
        typer.Option("--output", "-o", metavar="K", help=f"Values, {_ARRAYS}; with --vertex also ply, coloured."),
    ],
    first: Annotated[str | None, typer.Argument(metavar="A", help=_PLACES, show_default=False)] = None,
    second: Annotated[
        str | None, typer.Argument(metavar="B", help="Other points; without them, A itself.", show_default=False)
    ] = None,
    vertex: Annotated[
        int | None, typer.Option(min=0, help="One point, counted from 0: the kernel between it and all points.")
    ] = None,
) -> None:
    """Write the kernel matrix between the points of A and those of B.

    With --vertex, write one column: the kernel seen from that point of A. Without A it is a vertex of the mesh that
    MODEL was fitted to, if all of its vertices are nodes, or a node of a model of points.

    Examples: manifoldrf kernel bunny.safetensors a.npy b.npy -o K.npy

    manifoldrf kernel bunny.safetensors bunny.ply --vertex 17 -o heat.ply
    """
    from manifoldrf._arrays import ARRAY_SUFFIXES, row_writer
    from manifoldrf.features.rules import product

    with usage():
        suffixes = ARRAY_SUFFIXES if vertex is None else (*ARRAY_SUFFIXES, ".ply")
        target = check_output(values, "--output", suffixes, [part for part in (source, first, second) if part])
        threads.check()
        _check_vertex(vertex, first, second, table)
    if vertex is not None:
        _write_column(source, first, vertex, target, output, threads, table)
        return
    model = read_model(source).set_params(sparse_output=True, n_jobs=threads.n_jobs)
    left, right = ("left", "right") if model.asymmetric_ else (None, None)
    far = _Far()
    other, name = (second, "B") if second else (first, "A")
    theirs_table, own_table = table.open(str(other), name), table.open(str(first), "A")
    others = _read_points(str(other), name, theirs_table).astype("float64")
    check_columns(others.shape[1], model, name, str(other))
    others = check_rows(others, name, str(other), table=theirs_table)
    refuse_empty(len(others), name, str(other))
    with far.counted(len(others)):
        theirs = model.transform(others, right)
    rows = _open_points(str(first), "A", _chunk(len(others)), own_table)
    check_columns(rows.n_columns, model, "A", str(first))
    far = far if second else _Far()  # the points of A are counted below
    with progress("kernel", quiet=output.silent) as report, row_writer(target, len(others), rows.dtype) as writer:
        for begin, block in rows:
            report(f"{begin} rows done", begin, rows.n_rows or 0)
            block = check_rows(block, "A", str(first), begin, own_table)
            if not len(block):
                continue
            with far.counted(len(block)):
                own = model.transform(block.astype("float64"), left)
            writer.append(product(own, theirs, check_jobs(threads.n_jobs)))
        refuse_empty(writer.n_rows, "A", str(first))
    far.print(quiet=output.quiet)
    facts = _dropped(output, (own_table, str(first)), *([(theirs_table, second)] if second else []))
    _show_written(output, target, (writer.n_rows, len(others)), facts)


def _check_vertex(vertex: int | None, first: str | None, second: str | None, table: TableChoice) -> None:
    """Refuse files and options that do not go together with --vertex, or without it."""
    if first is None and vertex is None:
        reject("A", "given, or --vertex", "none")
    if vertex is not None and second is not None:
        reject("B", "left out with --vertex", second)
    if vertex is not None and table.missing == "drop":
        reject("--missing", "error with --vertex, which counts all rows of A", "drop")
    for option in option_names(table).values():
        if first is None:
            reject(option, "left out without A", "it")


def _is_thinned(graph: Any) -> bool:
    """Whether a graph keeps only some vertices of a mesh."""
    return graph.mesh is not None and graph.extension.whole_mesh() is not graph.mesh


def _write_column(
    source: str,
    space_file: str | None,
    vertex: int,
    target: Path,
    output: Output,
    threads: Threads,
    table: TableChoice,
) -> None:
    """Write the kernel between one point and all points of a space, as colours or as a column."""
    from manifoldrf._arrays import write_matrix
    from manifoldrf.features.rules import product

    model = read_model(source).set_params(sparse_output=True, n_jobs=threads.n_jobs)
    graph = model.graph_
    own = graph if graph.mesh is None else graph.mesh
    with usage():
        if space_file is None and _is_thinned(graph):
            example = f"manifoldrf kernel {source} MESH --vertex {vertex}"
            reject("A", f"the mesh, because MODEL keeps only some of its vertices: {example}", "none")
    space = own if space_file is None else read_space(space_file, "A", table.open(space_file, "A"))
    points = points_of(space)
    with usage():
        check_integer(vertex, "--vertex", 0, len(points) - 1)
        if target.suffix.lower() == ".ply" and points.shape[1] > AXES:
            reject("--output", f"{_ARRAYS} for points of {points.shape[1]} coordinates", target)
    check_columns(points.shape[1], model, "A" if space_file else "MODEL", space_file or source)
    left, right = ("left", "right") if model.asymmetric_ else (None, None)
    with _Far().counted(1):  # the vertex is one of the points, which are counted below
        seen_from = model.transform(points[[vertex]], right)
    far, parts, step = _Far(), [], _chunk(model.n_features_out_)
    for begin in range(0, len(points), step):
        block = points[begin : begin + step]
        with far.counted(len(block)):
            parts.append(product(model.transform(block, left), seen_from, check_jobs(threads.n_jobs)))
    column = np.concatenate(parts)
    far.print(quiet=output.quiet)
    if target.suffix.lower() == ".ply":
        write_picture(target, space, column[:, 0])
    else:
        write_matrix(target, column)
    _show_written(output, target, (len(points), 1))


def explore(
    source: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model, or an INPUT of fit, which is fitted first.")
    ],
    output: Output,
    page: Annotated[str, typer.Option("--output", "-o", metavar="PAGE", help="The page, ending in .html.")],
    title: Annotated[str | None, typer.Option(help="Title of the page; by default the name of the model.")] = None,
    n_points: Annotated[
        int | str, typer.Option(metavar="INTEGER|auto", help="Largest number of points to show.")
    ] = "auto",
    surface: Annotated[
        str | None, typer.Option(metavar="FILE", help="Mesh or points to draw instead of the nodes.")
    ] = None,
    field: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Your own fields: csv with rows vertex,value,... or npy; repeatable.",
            show_default=False,
        ),
    ] = None,
    max_bytes: Annotated[int, typer.Option(min=1, help="Largest size of the page in bytes.")] = 8_000_000,
) -> None:
    """Write one HTML page that shows the kernel of any point you click; it needs no server and no network.

    Fields have a value for each vertex or point of --surface, of INPUT, or for each node of MODEL.

    Examples: manifoldrf explore bunny.safetensors -o bunny.html

    manifoldrf explore scan.ply -o scan.html --field thickness.csv
    """
    from manifoldrf import ManifoldRandomFeatures
    from manifoldrf.explorer.page import explore as write_page
    from manifoldrf.features.state import shortened

    with usage():
        target = check_output(page, "--output", (".html",), [source, *(field or [])])
        if n_points != "auto":
            check_integer(n_points, "--n-points", 2)
    is_model = Path(source).suffix.lower() in MODEL
    model = read_model(source) if is_model else ManifoldRandomFeatures(random_state=0)
    if is_model and model.asymmetric_:
        reject("MODEL", "a model with nonnegative features", f"{shortened(model.kernel_)} with two sides")
    with notices(quiet=output.quiet), progress("explore", quiet=output.silent) as report:
        if not is_model:
            report("fitting", 0, 1)
            space = read_space(source)
            with errors_about("INPUT"):
                model.fit(space)
        report("features and exact signatures", 0, 1)
        drawn = None if surface is None else read_space(surface, "--surface")
        if drawn is None and field and not is_model:
            drawn = space if not hasattr(space, "positions") else None  # fields belong to all vertices of INPUT
        own = _read_fields(field or [], model.graph_, drawn)
        sizes: dict[str, Any] = {"n_points": n_points, "max_bytes": max_bytes}
        drawing: dict[str, Any] = {"fields": own, "surface": drawn, "title": title or Path(source).stem}
        try:
            written = write_page(model, target, **drawing, **sizes)
        except ValueError as error:
            if about_option := renamed(error, {"max_bytes": "--max-bytes"}):
                raise UsageError(about_option) from error
            if about_file := renamed(error, {f"fields[{name!r}]": f"--field {name}" for name in own}):
                raise ValueError(about_file) from error
            raise
    facts = {name: value for name, value in vars(written).items() if name != "html"}
    show(output, facts | {"path": str(target)}, str(written))


def _read_fields(files: list[str], graph: Any, drawn: Any) -> dict[str, Any]:
    """Read fields by name; names that several files have are preceded by those of the files."""
    from manifoldrf._arrays import read_fields

    unit = "node of MODEL; give its mesh or points as --surface for values there" if drawn is None else "vertex"
    if files and drawn is None and _is_thinned(graph):  # numbers of vertices would be taken for those of nodes
        with usage():
            rule = "given with --field, because MODEL keeps only some vertices of its mesh"
            reject("--surface", f"{rule}: --surface scan.ply", "none")
    n_rows = len(points_of(graph if drawn is None else drawn))
    read = [(Path(file).stem, read_fields(file, n_rows, "--field", unit)) for file in files]
    names = [name for _, fields in read for name in fields]
    found: dict[str, Any] = {}
    for stem, fields in read:
        for name, values in fields.items():
            full = name if names.count(name) == 1 else f"{stem}: {name}"
            if full in found:
                with usage():
                    reject("--field", "files with different names or columns", f"{full!r} twice")
            found[full] = values
    return found


def info(output: Output, source: Annotated[str | None, _SAVED] = None) -> None:
    """Describe a saved model or graph; without one, print versions, threads, devices and extras.

    Examples: manifoldrf info bunny.safetensors

    manifoldrf info --json
    """
    if source is None:
        show_facts(output, "manifoldrf", _installed())
        return
    from safetensors import safe_open

    from manifoldrf import Graph

    saved = read_any(source, "MODEL")
    with safe_open(source, "numpy") as file:
        version = int(file.metadata()["format_version"])
    size = Path(source).stat().st_size
    facts: dict[str, Any] = {"file": source, "kind": type(saved).__name__, "bytes": size, "format": version}
    if isinstance(saved, Graph):
        show_facts(output, "graph", facts | graph_facts(saved))
        return
    if not hasattr(saved, "map_"):  # a regressor or an interpolator
        facts |= {"written by": f"manifoldrf {saved._version}", "method": getattr(saved, "method_", None)}
        kernel = getattr(saved, "kernel_", None) or getattr(getattr(saved, "features_", None), "kernel_", None)
        show_facts(output, facts["kind"], facts | {"kernel": None if kernel is None else str(kernel)})
        return
    facts |= {"coordinates": saved.n_features_in_, "dimension": saved.map_.kernel.dim} | model_facts(saved)
    facts["bytes of"] = _sizes(saved.map_)
    parts = ", ".join(f"{part} {n_bytes / 1e6:.2f} MB" for part, n_bytes in facts["bytes of"].items())
    head = f"{source}: {facts['kind']} of points with {saved.n_features_in_} coordinates"
    show(output, facts, f"{head}, {size / 1e6:.2f} MB, format {version}\n{saved.summary()}\nin the file: {parts}")


def _sizes(fitted: Any) -> dict[str, int]:
    """Bytes that the largest parts of a model take in its file, the largest first."""
    from manifoldrf._codec import encode

    graph = fitted.graph
    # Arrays that several values share are stored once.
    steps, graph_too, all_three = (
        sum(array.nbytes for array in encode(value)[1].values())
        for value in (graph.extension, graph, (graph, fitted.field))
    )
    sizes = {"field": all_three - graph_too, "graph": graph_too - steps, "steps of new points": steps}
    return dict(sorted(sizes.items(), key=lambda part: -part[1]))


# ------------------------------------------------------------------------------------------------- input files
@contextmanager
def errors_about(name: str, options: Mapping[str, str] | None = None) -> Iterator[None]:
    """Name the input file in errors of the library, which only know the name of a parameter.

    ``options``: as in :func:`usage`; an error about one of them is wrong usage.
    """
    try:
        yield
    except (ValueError, TypeError) as error:
        if type(error) not in (ValueError, TypeError):
            raise  # errors of other kinds, such as usage errors, say it themselves
        about_option = renamed(error, options or {})
        if about_option:
            raise UsageError(about_option) from error
        raise type(error)(f"{name}: {error}") from error


def read_space(path: str, name: str = "INPUT", table: Any = None) -> Any:
    """Read a mesh, a graph, or points."""
    from manifoldrf import Graph, TriangleMesh
    from manifoldrf._arrays import ARRAY_SUFFIXES, read_mesh_arrays, read_points
    from manifoldrf.geometry.mesh_files import READABLE_FORMATS

    meshes = tuple(f".{form}" for form in READABLE_FORMATS)
    suffix = check_suffix(Path(path), name, (*ARRAY_SUFFIXES, *meshes, *MODEL))
    if suffix == ".npz":
        arrays = read_mesh_arrays(path, name)
        if arrays is not None:
            if table is not None:
                reject(name, "a table, not a mesh, with options of tables", path)
            with errors_about(name):
                return TriangleMesh(*arrays)
    if suffix in ARRAY_SUFFIXES:
        points = check_rows(read_points(path, name, table), name, path, table=table)
        check_points(points, name, min_rows=2)
        if suffix == ".csv" and not (table and table.is_chosen):
            _warn_of_counts(points, path, name, table)
        return points
    existing_file(path, name)
    if suffix in MODEL:
        return read_saved(path, Graph, name)
    with errors_about(name):
        return TriangleMesh.load(path)


def points_of(space: Any) -> Any:
    """The vertices of a mesh, the points of a graph, or points."""
    return space.positions if hasattr(space, "positions") else getattr(space, "vertices", space)


def _is_mesh_file(path: str) -> bool:
    from manifoldrf.geometry.mesh_files import READABLE_FORMATS

    return Path(path).suffix.lower() in {f".{form}" for form in READABLE_FORMATS}


def _read_points(path: str, name: str, table: Any = None) -> Any:
    """Read points, or the vertices of a mesh."""
    from manifoldrf._arrays import read_points

    return read_space(path, name).vertices if _is_mesh_file(path) else read_points(path, name, table)


def _open_points(path: str, name: str, chunk: int, table: Any) -> Any:
    """Open points, or the vertices of a mesh, to read them in blocks."""
    from manifoldrf._arrays import RowReader, open_rows

    if not _is_mesh_file(path):
        return open_rows(path, name, chunk, table)
    points = _read_points(path, name)
    blocks = [points[start : start + chunk] for start in range(0, len(points), chunk)]
    return RowReader(points.shape[1], len(points), points.dtype, lambda: iter(blocks))


def write_picture(path: Path, space: Any, values: Any) -> None:
    """Write a mesh or points to a ply file, coloured by a field from its smallest to its largest value."""
    from manifoldrf import TriangleMesh
    from manifoldrf._colours import field_colours
    from manifoldrf.geometry.mesh_files import write_cloud_ply

    if isinstance(space, TriangleMesh):
        space.save(path, field=values)
        return
    points = points_of(space)
    flat = np.zeros((len(points), AXES))
    flat[:, : points.shape[1]] = points
    write_cloud_ply(path, flat, field_colours(values))


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


def check_rows(block: Any, name: str, path: str, begin: int = 0, table: Any = None) -> Any:
    """Return points if they are finite, without missing values if the table asks for it.

    The error names the first bad row of the file.
    """
    refuse_empty(len(block), name, path)
    bad = np.isinf(block) if table is not None and table.drop else ~np.isfinite(block)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        place = column if table is None else table.places[column]
        found = f"{block[row, column]} in row {begin + row + 1}, column {place + 1} of {path}"
        found += " (see fit --missing drop)" if np.isnan(block[row, column]) else ""
        reject(name, "a file of finite numbers", found)
    return block if table is None else table.complete(block)


def _warn_of_counts(points: Any, path: str, name: str, table: Any) -> None:
    """Name columns of a csv file that merely count its rows."""
    from manifoldrf._arrays import column_titles

    titles = column_titles(path, name)
    for column in counting_columns(points):
        place = column if table is None else table.places[column]
        text = f"Column {titles[place] or place} of {name} looks like a row number, but is used as a coordinate"
        warn_user(f"{text} (remedy: leave it out, see fit --columns).")


def _titles(model: Any, table: Any, path: str) -> list[str]:
    """The first line of features in a csv file with kept cells, or nothing without them."""
    from manifoldrf._arrays import column_titles

    titles = column_titles(path)
    kept = [titles[place] or f"column {place}" for place in table.kept]
    return [*kept, *model.get_feature_names_out()] if kept else []


def _dropped(output: Output, *opened: tuple[Any, str]) -> dict[str, int]:
    """The number of rows that were left out of files, for --json; notes say it to people."""
    counts = {path: table.n_dropped for table, path in opened if table is not None and table.drop}
    lines = [
        f"{count} rows of {path} have missing values and are left out" for path, count in counts.items() if count
    ]
    note(*lines, quiet=output.quiet)
    return {"rows left out": sum(counts.values())} if counts else {}


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
        if kind is None or name not in _OPTIONS_OF[kind]:
            what = "an INPUT that is a graph" if kind is None else f"a graph of the kind {kind}"
            reject(f"--{name.replace('_', '-')}", f"left out for {what}", value)
    return given


# ------------------------------------------------------------------------------------------- parts of the commands
class _Far:
    """Counts far points over all chunks, so that there is one note for all of them."""

    def __init__(self) -> None:
        self._counts: list[tuple[int, int]] = []
        self._n_points = 0
        self._others: dict[str, None] = {}  # other warnings, in order

    @contextmanager
    def counted(self, n_points: int) -> Iterator[None]:
        """Collect the warnings of a chunk."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        self.add(n_points, [item.message for item in caught])

    def add(self, n_points: int, messages: Iterable[Warning | str]) -> None:
        """Add the warnings about a chunk of points."""
        from manifoldrf import FarQueryWarning

        self._n_points += n_points
        for warning in messages:
            if isinstance(warning, FarQueryWarning):
                self._counts.append((warning.fading, warning.gone))
            else:
                self._others[str(warning)] = None

    def print(self, *, quiet: bool) -> None:
        """Print the notes."""
        from manifoldrf import FarQueryWarning

        note(*self._others, quiet=quiet)
        if self._counts:
            fading, gone = (sum(parts) for parts in zip(*self._counts, strict=True))
            note(FarQueryWarning(fading, gone, self._n_points).count, quiet=quiet)


def _transformed(cluster: Any, model: Any, blocks: Iterator[Any], side: str | None, far: _Far) -> Iterator[Any]:
    """Features of each block of points; warnings are counted."""
    if cluster is None:
        for block in blocks:
            with far.counted(len(block)):
                found = model.transform(block, side)
            yield found
        return
    from manifoldrf.distributed.cluster import transform_blocks

    for found, messages in transform_blocks(cluster, model, blocks, side):
        far.add(found.shape[0], messages)
        yield found


def _is_given(context: typer.Context, parameter: str) -> bool:
    """Whether the user gave an option for a parameter of the estimator."""
    parts = {"kernel": KernelChoice, "graph": FittedGraph}
    names = [field.name for field in dataclasses.fields(parts[parameter])] if parameter in parts else [parameter]
    sources = [context.get_parameter_source(name) for name in names]
    return any(source is not None and source.name == "COMMANDLINE" for source in sources)


def _chunk(n_columns: int) -> int:
    """Number of rows in memory at once."""
    return max(1, _ENTRIES_AT_ONCE // n_columns)


def _show_written(
    output: Output, target: Path, shape: tuple[int, int], facts: Mapping[str, Any] | None = None
) -> None:
    text = f"{shape[0]} x {shape[1]} values\nSaved: {target}"
    show(output, {"output": str(target), "shape": list(shape), **(facts or {})}, text)


def model_facts(features: Any) -> dict[str, Any]:
    """Facts about fitted features, for --json."""
    error = features.error_
    return {
        "kernel": repr(features.kernel_),
        "scale": features.scale_,
        "nodes": features.graph_.n_nodes,
        "features": features.n_features_out_,
        "field": features.field_,
        "weights": features.anchors_,
        "error": {name: getattr(error, name) for name in ("kernel", "field", "quadrature", "graph")},
    }


def graph_facts(graph: Any) -> dict[str, Any]:
    """Facts about a graph."""
    return {
        "nodes": graph.n_nodes,
        "edges": graph.n_edges,
        "components": graph.n_components,
        "smallest degree": float(graph.degrees.min()),
        "largest degree": float(graph.degrees.max()),
        "steps": graph.n_steps,
        "time of a step": graph.step_time,
        "volume": None if graph.weights is None else float(graph.weights.sum()),
    }


def _installed() -> dict[str, str]:
    """Versions, threads, devices for networks and attention, and extras."""
    devices = ["cpu"]
    if available("torch"):
        import torch

        cuda: Any = torch.cuda
        devices += [f"cuda:{k} {cuda.get_device_name(k)}" for k in range(cuda.device_count())]
    facts = environment() | {"threads": str(check_jobs(-1)), "devices": ", ".join(devices)}
    return facts | {f"extra {name}": "yes" if available(package) else "no" for name, package in _EXTRAS.items()}
