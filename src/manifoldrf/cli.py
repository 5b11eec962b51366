"""The command line: parses arguments, calls the library, prints what comes back."""

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import rich.box
import rich.console
import rich.markup
import rich.progress
import rich.table
import typer

import manifoldrf

app = typer.Typer(
    help="Kernels on curved spaces as plain feature vectors. Add --debug to any command to see the full traceback.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

# Columns that are in the record but would not fit a terminal.
_HIDDEN = {"surfaces": {"nodes", "neighbours", "components", "reference"}, "teachers": {"budget"}}
_DRAWN = {"budgets"}  # tables that the picture shows
_SURFACES_TEXT = (
    "surfaces: error of the heat kernel at new points, with known node weights and from the points only (the "
    "reference is exact on the sphere, a finer graph elsewhere); t of tau: heat time of the paper's 20 steps. "
    "convergence: error at the nodes of the sphere."
)
_TEACHERS_TEXT = (
    "teachers: relative error of signature rows for exp(-20 L), the error that walks predict of themselves, and "
    "milliseconds per start on one core. Steps of the exact teachers are products with entries of W. The picture "
    "has smaller budgets of steps too."
)
_FEATURES_TEXT = (
    "features: relative error of the kernel between 512 new points, in absolute units, against the exact kernel "
    "(sphere) or a four times finer graph; own estimate: the error that the features report of themselves; times "
    "faster: than a dense eigendecomposition with the kernel formed from it; paper: error of its network, aligned."
)
_OUT = typer.Option("--out", help="Folder for the results (made if needed).")
_JSON = typer.Option("--json", help="Print the record as JSON instead of tables.")
_QUIET = typer.Option("--quiet", help="Print nothing but errors.")


@app.command()
def demo(
    out: Annotated[str, _OUT] = "out",
    as_json: Annotated[bool, _JSON] = False,  # noqa: FBT002 - a flag of the command line
    quiet: Annotated[bool, _QUIET] = False,  # noqa: FBT002 - a flag of the command line
) -> None:
    """Fit features on four surfaces; compare their kernels, the graphs below them and all teachers with exact ones.

    Saves tables and pictures. Example: manifoldrf demo --out results
    """
    from manifoldrf.experiments import features as fitting
    from manifoldrf.experiments import surface_graphs
    from manifoldrf.experiments import teachers as teaching
    from manifoldrf.report.figures import draw_features, draw_surface_graphs, draw_teachers

    plan = [
        (fitting, draw_features, _FEATURES_TEXT),
        (surface_graphs, draw_surface_graphs, _SURFACES_TEXT),
        (teaching, draw_teachers, _TEACHERS_TEXT),
    ]
    _experiments(plan, out, as_json=as_json, quiet=quiet)


@app.command()
def features(
    out: Annotated[str, _OUT] = "out",
    as_json: Annotated[bool, _JSON] = False,  # noqa: FBT002 - a flag of the command line
    quiet: Annotated[bool, _QUIET] = False,  # noqa: FBT002 - a flag of the command line
) -> None:
    """Fit features on four surfaces: error of their kernel at new points, their own estimate of it, and times.

    Example: manifoldrf features --json
    """
    from manifoldrf.experiments import features as fitting
    from manifoldrf.report.figures import draw_features

    _experiments([(fitting, draw_features, _FEATURES_TEXT)], out, as_json=as_json, quiet=quiet)


@app.command()
def teachers(
    out: Annotated[str, _OUT] = "out",
    as_json: Annotated[bool, _JSON] = False,  # noqa: FBT002 - a flag of the command line
    quiet: Annotated[bool, _QUIET] = False,  # noqa: FBT002 - a flag of the command line
) -> None:
    """Compare all teachers of signatures: error, steps and time on the paper's sphere and Moebius graphs.

    Example: manifoldrf teachers --json
    """
    from manifoldrf.experiments import teachers as teaching
    from manifoldrf.report.figures import draw_teachers

    _experiments([(teaching, draw_teachers, _TEACHERS_TEXT)], out, as_json=as_json, quiet=quiet)


@app.command()
def info(as_json: Annotated[bool, _JSON] = False) -> None:  # noqa: FBT002 - a flag of the command line
    """Print versions, threads and which optional parts are installed.

    Example: manifoldrf info --json
    """
    from manifoldrf._optional import available
    from manifoldrf._validation import check_jobs
    from manifoldrf.experiments.record import environment

    extras = {"mesh": "trimesh", "ann": "faiss", "viz": "matplotlib"}
    facts = environment() | {"threads": str(check_jobs(-1))}
    facts |= {f"extra {name}": "yes" if available(package) else "no" for name, package in extras.items()}
    if as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        rows = [{"what": name, "value": value} for name, value in facts.items()]
        rich.console.Console().print(_table("manifoldrf", rows))


def _experiments(plan: Sequence[tuple[Any, Any, str]], out: str, *, as_json: bool, quiet: bool) -> None:
    """Run experiments one after the other; save record and picture of each, print its tables and what they mean."""
    from manifoldrf._files import writable_folder

    folder = writable_folder(out, "out")  # better now than after the work
    console = rich.console.Console(quiet=quiet or as_json)
    records = {}
    for experiment, draw, text in plan:
        record = _run(experiment, quiet=quiet or as_json)
        saved = [record.save(folder), draw(record, folder / f"{record.name}.png")]
        records[record.name] = record.plain()
        for title, rows in record.tables.items():
            if title in _DRAWN:
                continue
            hidden = _HIDDEN.get(title, set())
            shown = [{name: value for name, value in row.items() if name not in hidden} for row in rows]
            console.print(_table(title, shown))
        console.print(text)
        console.print(f"{record.seconds:.0f} s. Saved: " + ", ".join(str(path) for path in saved), soft_wrap=True)
    if as_json:
        sys.stdout.write(json.dumps(records) + "\n")


def _run(experiment: Any, *, quiet: bool) -> Any:
    """The record of one experiment, with a bar while it runs."""
    with _progress(quiet=quiet) as bar:
        task = bar.add_task("starting", total=None)
        return experiment.run(
            experiment.Config(),
            lambda what, done, total: bar.update(task, description=what, completed=done, total=total),
        )


def _progress(*, quiet: bool) -> rich.progress.Progress:
    """Bar on the error stream, so that piped output stays clean; gone when the work is done."""
    console = rich.console.Console(stderr=True)
    columns = (rich.progress.TextColumn("{task.description}"), rich.progress.BarColumn())
    return rich.progress.Progress(
        *columns,
        rich.progress.TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=quiet or not console.is_terminal,
    )


def _table(title: str, rows: Sequence[Mapping[str, object]]) -> rich.table.Table:
    """A table of rows with the same columns."""
    table = rich.table.Table(title=title, box=rich.box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0))
    for name, value in rows[0].items():
        is_text = isinstance(value, str)
        table.add_column(name.replace("_", " "), justify="left" if is_text else "right", no_wrap=is_text)
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    return table


def _cell(value: object) -> str:
    """Numbers with the digits a reader needs."""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) >= 1 else f"{value:.3g}"
    return "" if value is None else str(value)


def _print_version(asked: bool) -> None:  # noqa: FBT001 - the signature of an option's callback
    if asked:
        sys.stdout.write(f"manifoldrf {manifoldrf.__version__}\n")
        raise typer.Exit


_VERSION = typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")


@app.callback()
def _root(version: Annotated[bool, _VERSION] = False) -> None:  # noqa: FBT002 - a flag of the command line
    pass


def main() -> None:
    """Run the command line: exit code 1 and one sentence for an error; 2 for wrong usage, 130 for Ctrl-C."""
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    try:
        app(args=arguments, prog_name="manifoldrf")
    except (OSError, ValueError, TypeError, ModuleNotFoundError) as error:
        if debug:
            raise
        rich.console.Console(stderr=True).print(f"[red]{rich.markup.escape(str(error))}[/red]", soft_wrap=True)
        raise SystemExit(1) from None
