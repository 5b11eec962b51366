"""Commands around fitted features: fit them, use them, look at them."""

import dataclasses
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal

import rich.console
import rich.text
import typer

from manifoldrf.cli._console import note, notices, print_json, progress, usage
from manifoldrf.cli._inputs import MODEL, InputFile, ModelFile, read_model, read_space
from manifoldrf.cli._options import FeatureChoice, FittedGraph, KernelChoice, Output, Running, number_or_word

_ENTRIES_AT_ONCE = 2**23  # of features or of a kernel, in memory at once: 64 MB
_ARRAYS = "npy, npz or csv"

_MODEL_OUT = typer.Option("--output", "-o", metavar="MODEL", help="The model to write, ending in .safetensors.")
_PAPER = typer.Option(
    "--paper", help="The paper's recipe (walks, its network, all nodes); other options change it."
)
_JOBS = typer.Option(help="Threads, -1 for all cores; results do not depend on it.")
_CHUNK = typer.Option(help="Rows in memory at once; by default as many as 64 MB hold.", show_default=False)


def fit(
    source: InputFile,
    output: Output,
    kernel: KernelChoice,
    choice: FeatureChoice,
    graph: FittedGraph,
    run: Running,
    model: Annotated[str, _MODEL_OUT],
    paper: Annotated[bool, _PAPER] = False,
) -> None:
    """Fit features to a mesh, to points or to a graph, and save them.

    Examples: manifoldrf fit bunny.ply -o bunny.safetensors --t 2e-5

    manifoldrf fit points.csv -o model.safetensors --n-features 512 --random-state 1
    """
    from manifoldrf import ManifoldRandomFeatures
    from manifoldrf._arrays.reading import check_array_path

    start = time.perf_counter()
    with usage():
        target = check_array_path(model, "--output", MODEL, inputs=[source])
        given = {"kernel": kernel.build(), "graph": graph.build(), **choice.parameters()}
        given |= {"random_state": run.random_state, "n_jobs": run.n_jobs}
    space = read_space(source)
    with notices(quiet=output.quiet), progress("fit", quiet=output.silent) as report:
        make = ManifoldRandomFeatures.paper if paper else ManifoldRandomFeatures
        features = make(**(_changes(given) if paper else given), verbose=report)
        features.fit(space)
        features.verbose = False  # a function is not kept in the file
        features.save(target)
        summary = features.summary()
    if output.as_json:
        print_json(_facts(features, target) | {"seconds": time.perf_counter() - start})
    console = rich.console.Console(quiet=output.silent)
    console.print(rich.text.Text(summary), soft_wrap=True)
    console.print(f"Saved: {target}", soft_wrap=True)


def transform(
    source: ModelFile,
    points: Annotated[str, typer.Argument(metavar="POINTS", help=f"Points, {_ARRAYS}.")],
    output: Output,
    features: Annotated[
        str,
        typer.Option(
            "--output", "-o", metavar="FEATURES", help=f"Features, {_ARRAYS}; npz is sparse, as scipy reads it."
        ),
    ],
    side: Annotated[
        Literal["left", "right"] | None, typer.Option(help="For kernels without nonnegative features.")
    ] = None,
    chunk_size: Annotated[int | None, _CHUNK] = None,
    n_jobs: Annotated[int, _JOBS] = -1,
) -> None:
    """Write the features of points; files may be larger than memory.

    Example: manifoldrf transform bunny.safetensors points.npy -o features.npz
    """
    from manifoldrf._arrays.reading import check_array_path, open_rows
    from manifoldrf._arrays.writing import row_writer

    with usage():
        target = check_array_path(features, "--output", inputs=[source, points])
    model = read_model(source)
    sparse = target.suffix.lower() == ".npz"
    model.set_params(sparse_output=sparse, n_jobs=n_jobs)
    rows = open_rows(points, "POINTS", _chunk(chunk_size, model.n_features_out_))
    far = _Far()
    with (
        progress("transform", quiet=output.silent) as report,
        row_writer(target, model.n_features_out_, rows.dtype, sparse=sparse) as writer,
    ):
        for begin, block in rows:
            report(f"{begin} points done", begin, rows.n_rows or 0)
            with far.counted(len(block)):
                writer.append(model.transform(block, side))
    far.tell(quiet=output.quiet)
    _say_written(output, target, (writer.n_rows, model.n_features_out_))


def kernel(
    source: ModelFile,
    first: Annotated[str, typer.Argument(metavar="A", help=f"Points, {_ARRAYS}.")],
    output: Output,
    values: Annotated[str, typer.Option("--output", "-o", metavar="K", help=f"Values of the kernel, {_ARRAYS}.")],
    second: Annotated[
        str | None, typer.Argument(metavar="B", help="Other points; A itself without them.", show_default=False)
    ] = None,
    n_jobs: Annotated[int, _JOBS] = -1,
) -> None:
    """Write the kernel between the points of A and those of B.

    Example: manifoldrf kernel bunny.safetensors a.npy b.npy -o K.npy
    """
    import numpy as np

    from manifoldrf._arrays.reading import check_array_path, open_rows, read_points
    from manifoldrf._arrays.writing import row_writer
    from manifoldrf._validation import check_jobs
    from manifoldrf.features._products import product

    with usage():
        target = check_array_path(values, "--output", inputs=[source, first, *([second] if second else [])])
    model = read_model(source).set_params(sparse_output=True, n_jobs=n_jobs)
    left, right = ("left", "right") if model.asymmetric_ else (None, None)
    far = _Far()
    others = read_points(second or first, "B" if second else "A")
    with far.counted(len(others)):
        theirs = model.transform(np.asarray(others, dtype=np.float64), right)
    rows = open_rows(first, "A", _chunk(None, len(others)))
    far = far if second else _Far()  # the points of A are counted below
    with (
        progress("kernel", quiet=output.silent) as report,
        row_writer(target, len(others), rows.dtype) as writer,
    ):
        for begin, block in rows:
            report(f"{begin} rows done", begin, rows.n_rows or 0)
            with far.counted(len(block)):
                own = model.transform(block.astype(np.float64), left)
            writer.append(product(own, theirs, check_jobs(n_jobs)))
    far.tell(quiet=output.quiet)
    _say_written(output, target, (writer.n_rows, len(others)))


def explore(
    source: ModelFile,
    output: Output,
    page: Annotated[
        str, typer.Option("--output", "-o", metavar="PAGE", help="The page to write, ending in .html.")
    ],
    title: Annotated[str | None, typer.Option(help="Of the page; by default the name of the model.")] = None,
    n_points: Annotated[
        Any, typer.Option(parser=number_or_word, metavar="INTEGER|auto", help="Most points that are shown.")
    ] = "auto",
    surface: Annotated[
        str | None, typer.Option(metavar="FILE", help="A mesh or points to draw on, instead of the nodes.")
    ] = None,
    max_bytes: Annotated[int, typer.Option(help="Largest size of the page.")] = 8_000_000,
) -> None:
    """Write one HTML page that shows the kernel of any point that is clicked; it needs no server and no network.

    Example: manifoldrf explore bunny.safetensors -o bunny.html
    """
    from manifoldrf._arrays.reading import check_array_path
    from manifoldrf.explorer.page import explore as write_page

    with usage():
        target = check_array_path(page, "--output", (".html",), inputs=[source])
    model = read_model(source)
    with notices(quiet=output.quiet), progress("explore", quiet=output.silent) as report:
        report("features and exact signatures", 0, 1)
        drawn = None if surface is None else read_space(surface)
        title = title or Path(source).stem
        written = write_page(model, target, surface=drawn, title=title, n_points=n_points, max_bytes=max_bytes)
    if output.as_json:
        print_json(dataclasses.asdict(written) | {"path": str(target)})
    rich.console.Console(quiet=output.silent).print(str(written), soft_wrap=True, highlight=False)


class _Far:
    """Counts points away from the space over all chunks, so that they are told once."""

    def __init__(self) -> None:
        self._counts: list[tuple[int, int, int]] = []
        self._n_points = 0

    @contextmanager
    def counted(self, n_points: int) -> Iterator[None]:
        """Keep the warnings of a chunk."""
        from manifoldrf import FarQueryWarning

        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", FarQueryWarning)
            yield
        self._n_points += n_points
        found = [warning.message for warning in caught if isinstance(warning.message, FarQueryWarning)]
        self._counts += [(warning.fading, warning.gone, warning.total) for warning in found]

    def tell(self, *, quiet: bool) -> None:
        """Say how many there were."""
        from manifoldrf import FarQueryWarning

        if self._counts:
            fading, gone, _ = (sum(parts) for parts in zip(*self._counts, strict=True))
            note(str(FarQueryWarning(fading, gone, self._n_points)), quiet=quiet)


def _changes(given: dict[str, Any]) -> dict[str, Any]:
    """Parameters that are not those by default."""
    from manifoldrf import ManifoldRandomFeatures

    usual = ManifoldRandomFeatures().get_params(deep=False)
    return {name: value for name, value in given.items() if value != usual[name]}


def _chunk(asked: int | None, n_columns: int) -> int:
    from manifoldrf._validation import check_integer

    if asked is not None:
        with usage():
            return check_integer(asked, "--chunk-size", 1)
    return max(1, _ENTRIES_AT_ONCE // n_columns)


def _facts(features: Any, target: Any) -> dict[str, Any]:
    """What a machine wants to know of a fit."""
    error = features.error_
    return {
        "output": str(target),
        "kernel": repr(features.kernel_),
        "nodes": features.graph_.n_nodes,
        "features": features.n_features_out_,
        "field": features.field_,
        "weights": features.quadrature_,
        "error": {name: getattr(error, name) for name in ("kernel", "field", "quadrature", "graph")},
    }


def _say_written(output: Output, target: Any, shape: tuple[int, int]) -> None:
    if output.as_json:
        print_json({"output": str(target), "shape": list(shape)})
    text = f"{shape[0]} x {shape[1]} values\nSaved: {target}"
    rich.console.Console(quiet=output.silent).print(text, soft_wrap=True, highlight=False)
