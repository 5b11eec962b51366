"""Commands for the stages below features: the graph, and the signatures of its nodes."""

import time
from typing import Annotated, Any, Literal

import typer

from manifoldrf.cli._console import notices, progress, show_facts, usage
from manifoldrf.cli._inputs import MODEL, InputFile, build_graph, read_space
from manifoldrf.cli._options import BuiltGraph, KernelChoice, Machines, Output, Threads, read_options
from manifoldrf.cli._settings import parse
from manifoldrf.cli.facts import graph_facts

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
    threads: Threads,
    target: Annotated[str, _GRAPH_OUT],
    t: Annotated[float | None, typer.Option("--t", help="Heat time of a heat graph.")] = None,
) -> None:
    """Build the graph of a mesh or of points, and say what it is.

    Examples: manifoldrf graph points.npy -o graph.safetensors --t 0.02

    manifoldrf graph bunny.ply -o affinity.npz --weights cotangent
    """
    from manifoldrf._arrays import write_matrix
    from manifoldrf._files import check_output

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


def signatures(
    source: InputFile,
    output: Output,
    kernel: KernelChoice,
    choice: BuiltGraph,
    threads: Threads,
    machines: Machines,
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
    seed: Annotated[int, typer.Option(min=0, help="Of walks and counts: the same seed gives the same bits.")] = 0,
) -> None:
    """Compute signatures: rows whose inner products are the kernel of the graph.

    Examples: manifoldrf signatures bunny.ply -o rows.npz --tau 20 --nodes 0,100

    manifoldrf signatures graph.safetensors -o rows.npy --tau 20 --teacher walks --teacher-options n_walks=1000
    """
    from manifoldrf import compute_signatures
    from manifoldrf._arrays import ARRAY_SUFFIXES, write_matrix
    from manifoldrf._files import check_output
    from manifoldrf._validation import check_indices

    start = time.perf_counter()
    with usage():
        path = check_output(target, "--output", ARRAY_SUFFIXES, [source])
        wanted = _wanted(kernel)
        starts = None if nodes is None else parse(nodes, tuple[int, ...], "--nodes")
        options = _teacher_options(teacher, teacher_options)
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
        run: dict[str, Any] = {"teacher": teacher, "asymmetric": asymmetric, "seed": seed, "progress": report}
        if cluster is None:
            rows = compute_signatures(built, wanted, starts, n_jobs=threads.n_jobs, **run, **options)
        else:
            rows = cluster.signatures(built, wanted, starts, **run, **options)
    write_matrix(path, rows.rows)
    facts = _signature_facts(rows) | {"seconds": time.perf_counter() - start, "output": str(path)}
    show_facts(output, "signatures", facts)


def _wanted(kernel: KernelChoice) -> Any:
    """The kernel, which must be given."""
    from manifoldrf._validation import reject

    wanted = kernel.build()
    if wanted is None:
        reject("--kernel", "given, or --t, or --tau", "none")
    return wanted


def _teacher_options(teacher: str, texts: list[str] | None) -> dict[str, Any]:
    """Options that the teacher has; which one "auto" takes is known later."""
    from manifoldrf._validation import reject
    from manifoldrf.signatures.options import make_options

    options = read_options(texts, "--teacher-options") or {}
    if options and teacher == "auto":
        reject("--teacher-options", "left out with --teacher auto", options)
    if teacher != "auto":
        make_options(teacher, options)
    return options


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
