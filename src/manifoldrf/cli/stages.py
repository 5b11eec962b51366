"""Commands for the stages below features: the graph, and the signatures of its nodes."""

import time
from typing import Annotated, Any, Literal

import rich.console
import typer

from manifoldrf.cli._console import notices, print_facts, print_json, progress, usage
from manifoldrf.cli._inputs import MODEL, InputFile, build_graph, read_space
from manifoldrf.cli._options import BuiltGraph, KernelChoice, Output, Running, read_options
from manifoldrf.cli._settings import parse

_GRAPH_OUT = typer.Option(
    "--output",
    "-o",
    metavar="GRAPH",
    help="A .safetensors file that fit, signatures and manifoldrf.load take, or an .npz file with the affinities.",
)
_ROWS_OUT = typer.Option(
    "--output", "-o", metavar="ROWS", help="Rows: npz (sparse, as scipy reads it), npy or csv."
)


def graph(
    source: InputFile,
    output: Output,
    choice: BuiltGraph,
    target: Annotated[str, _GRAPH_OUT],
    t: Annotated[float | None, typer.Option("--t", help="Heat time of a heat graph.")] = None,
    n_jobs: Annotated[int, typer.Option(help="Threads, -1 for all cores.")] = -1,
) -> None:
    """Build the graph of a mesh or of points, and say what it is.

    Examples: manifoldrf graph points.npy -o graph.safetensors --t 0.02

    manifoldrf graph bunny.ply -o affinity.npz --weights cotangent
    """
    from manifoldrf._arrays.reading import check_array_path
    from manifoldrf._arrays.writing import write_matrix

    with usage():
        path = check_array_path(target, "--output", (*MODEL, ".npz"), inputs=[source])
    space = read_space(source)
    with notices(quiet=output.quiet), progress("graph", quiet=output.silent), usage():
        built = build_graph(choice, space, t, n_jobs)
    if path.suffix.lower() in MODEL:
        built.save(path)
    else:
        write_matrix(path, built.affinity)
    facts = _graph_facts(built) | {"saved": str(path)}
    if output.as_json:
        print_json(facts)
    print_facts(rich.console.Console(quiet=output.silent), "graph", facts)


def signatures(
    source: InputFile,
    output: Output,
    kernel: KernelChoice,
    choice: BuiltGraph,
    run: Running,
    target: Annotated[str, _ROWS_OUT],
    nodes: Annotated[
        str | None, typer.Option(help="Start nodes with commas between them, such as 0,5,7; all by default.")
    ] = None,
    teacher: Annotated[
        Literal["auto", "exact", "frontier", "walks", "counts"], typer.Option(help="What computes the rows.")
    ] = "auto",
    teacher_options: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="Such as n_walks=10000; repeatable.")
    ] = None,
    asymmetric: Annotated[bool, typer.Option("--asymmetric", help="Rows of the kernel itself.")] = False,
) -> None:
    """Compute signatures: rows whose inner products are the kernel of the graph.

    Examples: manifoldrf signatures bunny.ply -o rows.npz --tau 20 --nodes 0,100

    manifoldrf signatures graph.safetensors -o rows.npy --tau 20 --teacher walks --teacher-options n_walks=1000
    """
    from manifoldrf import compute_signatures
    from manifoldrf._arrays.reading import check_array_path
    from manifoldrf._arrays.writing import write_matrix
    from manifoldrf._validation import reject

    start = time.perf_counter()
    with usage():
        path = check_array_path(target, "--output", inputs=[source])
        wanted = kernel.build()
        if wanted is None:
            reject("--kernel", "given, or --t, or --tau", "none")
        starts = None if nodes is None else parse(nodes, tuple[int, ...], "--nodes")
        options = read_options(teacher_options, "--teacher-options") or {}
    space = read_space(source)
    with notices(quiet=output.quiet), progress("signatures", quiet=output.silent) as report:
        with usage():
            built = build_graph(choice, space, kernel.t, run.n_jobs)
        rows = compute_signatures(
            built,
            wanted,
            starts,
            teacher=teacher,
            asymmetric=asymmetric,
            seed=run.random_state,
            n_jobs=run.n_jobs,
            progress=report,
            **options,
        )
    write_matrix(path, rows.rows)
    facts = _signature_facts(rows) | {"seconds": time.perf_counter() - start, "saved": str(path)}
    if output.as_json:
        print_json(facts)
    print_facts(rich.console.Console(quiet=output.silent), "signatures", facts)


def _graph_facts(graph: Any) -> dict[str, Any]:
    """What a graph is, in numbers."""
    loops = int((graph.affinity.diagonal() != 0).sum())
    return {
        "nodes": graph.n_nodes,
        "edges": (graph.affinity.nnz - loops) // 2,
        "components": graph.n_components,
        "smallest degree": float(graph.degrees.min()),
        "largest degree": float(graph.degrees.max()),
        "steps": graph.n_steps,
        "time of a step": graph.step_time,
        "volume": None if graph.weights is None else float(graph.weights.sum()),
    }


def _signature_facts(rows: Any) -> dict[str, Any]:
    """What was computed, and how well."""
    info = rows.info
    n_rows, n_columns = rows.rows.shape
    return {
        "rows": n_rows,
        "columns": n_columns,
        "teacher": info.teacher,
        "reason": info.reason,
        "kernel on the graph": info.kernel,
        "steps": info.n_steps,
        "bound of the error": info.error_bound,
        "estimated relative error": None if rows.stderr is None else rows.relative_stderr,
    }
