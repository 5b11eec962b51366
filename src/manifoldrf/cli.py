"""The command line: parses arguments, calls the library, prints what comes back."""

import dataclasses
import json
import math
import shlex
import sys
import threading
import time
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal

import rich.box
import rich.console
import rich.markup
import rich.measure
import rich.progress
import rich.table
import rich.text
import typer

import manifoldrf

app = typer.Typer(
    help="Kernels on curved spaces as plain feature vectors. Add --debug to any command to see the full traceback.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Report = Callable[[str, int, int], None]

_EVERY = 30.0  # seconds between two signs of life where there is no terminal
_NARROWEST = 24  # longer texts may be wrapped to this width, else numbers beside them would not fit 80 columns
_UNLIMITED = 10_000  # columns, more than any table has
_OUT = typer.Option("--out", help="Folder for the results (made if needed).")
_JSON = typer.Option("--json", help="Print the record as JSON instead of tables.")
_QUIET = typer.Option("--quiet", help="Print nothing but errors.")
_NAME = typer.Argument(metavar="NAME", help="An experiment, or all. Without it the experiments are listed.")
_SIZE = typer.Option("--size", help="smoke (small) or paper (the paper's settings).")
_DATA = typer.Option("--data", metavar="DIR", help="Folder of files, for experiments that can read some.")
_SET = typer.Option("--set", metavar="FIELD=VALUE", help="Change a setting, such as n_nodes=1000; repeatable.")
_RECORDS = typer.Option("--records", help="Folder with the .json files of records.")
_PAGE = typer.Option("--docs", help="The page of results, written as a whole.")
_README = typer.Option("--readme", help="The file whose table between the markers is replaced.")
_CHECK = typer.Option("--check", help="Write nothing; exit code 1 if a file would change.")


@app.command()
def demo(
    out: Annotated[str, _OUT] = "out",
    as_json: Annotated[bool, _JSON] = False,  # noqa: FBT002 - a flag of the command line
    quiet: Annotated[bool, _QUIET] = False,  # noqa: FBT002 - a flag of the command line
) -> None:
    """Fit features on four surfaces, small: the same as manifoldrf reproduce surfaces --size smoke.

    Saves tables and pictures. Example: manifoldrf demo --out results
    """
    reproduce("surfaces", out=out, as_json=as_json, quiet=quiet)


@app.command()
def reproduce(
    name: Annotated[str | None, _NAME] = None,
    size: Annotated[str, _SIZE] = "smoke",
    data: Annotated[str | None, _DATA] = None,
    out: Annotated[str, _OUT] = "out",
    changes: Annotated[list[str] | None, _SET] = None,
    as_json: Annotated[bool, _JSON] = False,  # noqa: FBT002 - a flag of the command line
    quiet: Annotated[bool, _QUIET] = False,  # noqa: FBT002 - a flag of the command line
) -> None:
    """Run an experiment: prints its tables, saves its record and pictures.

    Example: manifoldrf reproduce surfaces --size paper --set seed=1
    """
    from manifoldrf._files import existing_folder, writable_folder
    from manifoldrf.report.catalogue import CATALOGUE

    if name is None:
        _list({entry.name: entry.claim for entry in CATALOGUE.values()}, as_json=as_json)
        return
    with _usage():
        plan = _plan(name, size, changes or [])
        source = None if data is None else existing_folder(data, "--data")
    folder = writable_folder(out, "out")  # better now than after the work
    notes = rich.console.Console(stderr=True, quiet=quiet)
    console = rich.console.Console(quiet=quiet or as_json)
    records = {}
    for entry, config in plan:
        if note := _about_data(entry, data):
            notes.print(note, soft_wrap=True)
        with _progress(entry.name, quiet=quiet or as_json) as report:
            record = entry.run(config, report, source)
        record = _signed(record, entry.name, size, changes or [])
        saved = [record.save(folder), *_pictures(entry, record, folder, notes)]
        records[record.name] = record.plain()
        _show(entry, record, console)
        console.print("Saved: " + ", ".join(str(path) for path in saved), soft_wrap=True)
    if as_json:
        sys.stdout.write(json.dumps(records) + "\n")


@app.command()
def results(
    records: Annotated[str, _RECORDS] = "docs/records",
    docs: Annotated[str, _PAGE] = "docs/results.md",
    readme: Annotated[str, _README] = "README.md",
    check: Annotated[bool, _CHECK] = False,  # noqa: FBT002 - a flag of the command line
) -> None:
    """Write the page of results and the table of the README from saved records.

    Example: manifoldrf results --check
    """
    from manifoldrf._files import as_path, atomic_path
    from manifoldrf.report import pages

    page, front = as_path(docs, "docs"), as_path(readme, "readme")
    found = pages.read_records(records)
    images = {path.name for path in (page.parent / "images").glob("*.png")}
    old = front.read_text(encoding="utf-8")
    table = pages.readme_table(found)
    wanted = {
        page: pages.results_page(found, images),
        front: pages.replace_between(old, pages.BEGIN, pages.END, table, name=front.name),
    }
    stale = [path for path in wanted if not path.is_file() or path.read_text(encoding="utf-8") != wanted[path]]
    if check and stale:
        names = ", ".join(str(path) for path in stale)
        raise ValueError(f"Not what the records say: {names}. Run: manifoldrf results")
    for path in stale:
        with atomic_path(path) as temporary:
            temporary.write_text(wanted[path], encoding="utf-8")
    for path in wanted:
        sys.stdout.write(f"{path}: {'written' if path in stale else 'up to date'}\n")


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
        _print_table(rich.console.Console(), "manifoldrf", rows)


def _list(claims: Mapping[str, str], *, as_json: bool) -> None:
    """Print all experiments."""
    if as_json:
        sys.stdout.write(json.dumps(claims) + "\n")
        return
    rows = [{"experiment": name, "claim": claim} for name, claim in claims.items()]
    _print_table(rich.console.Console(), "manifoldrf reproduce NAME", rows)


@contextmanager
def _usage() -> Iterator[None]:
    """Wrong arguments are wrong usage, with its exit code."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from None


def _plan(name: str, size: str, changes: Sequence[str]) -> list[tuple[Any, Any]]:
    """Catalogue entries with their settings; all are checked before any work."""
    from manifoldrf._validation import check_option
    from manifoldrf.experiments.record import environment
    from manifoldrf.report.catalogue import CATALOGUE

    check_option(name, "NAME", [*CATALOGUE, "all"])
    environment()  # notes the commit before the work, not after it
    plan = []
    for entry in CATALOGUE.values():
        if name in (entry.name, "all"):
            sizes = entry.sizes()
            config = sizes[check_option(size, "--size", list(sizes))]
            plan.append((entry, _changed(config, changes, entry.name)))
    return plan


def _changed(config: Any, changes: Sequence[str], experiment: str) -> Any:
    """Settings with some fields set by texts "field=value"."""
    from manifoldrf._validation import check_option, reject

    kinds = typing.get_type_hints(type(config))
    new = {}
    for change in changes:
        name, sign, text = change.partition("=")
        if not sign:
            reject("--set", "field=value", repr(change))
        check_option(name, f"--set, for {experiment},", list(kinds))
        new[name] = _parse(text, kinds[name], name)
    return dataclasses.replace(config, **new)


def _parse(text: str, kind: Any, name: str) -> Any:
    """A value of the type of a field; the entries of a tuple have commas between them."""
    from manifoldrf._validation import check_option, reject

    origin, options = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple and options[-1] is ...:
        return tuple(_parse(part, options[0], name) for part in text.removesuffix(",").split(","))
    if origin is typing.Literal:
        return check_option(text, name, options)
    kinds = options if origin in (typing.Union, types.UnionType) else (kind,)
    if not all(option in _READERS for option in kinds):
        reject(name, "a field that --set knows how to read", kind)
    for option in sorted(kinds, key=lambda option: option is str):  # any text is text: that comes last
        try:
            return _READERS[option][1](text)
        except (ValueError, KeyError):
            continue
    reject(name, " or ".join(_READERS[option][0] for option in kinds), repr(text))


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


# Type of a field -> what it must be, in words, and what reads it.
_READERS: dict[Any, tuple[str, Callable[[str], Any]]] = {
    int: ("an integer", int),
    float: ("a finite number", _finite),
    bool: ("true or false", {"true": True, "false": False}.__getitem__),
    str: ("text", str),
    types.NoneType: ("none", {"none": None}.__getitem__),
}


def _about_data(entry: Any, data: str | None) -> str:
    """What to say of the data of an experiment; nothing where there is nothing to choose."""
    if entry.reads and data is None:
        return f"{entry.name} runs on generated data and those of installed packages; --data may name {entry.reads}"
    return "" if entry.reads or data is None else f"{entry.name} uses generated shapes; --data is not needed"


def _signed(record: Any, name: str, size: str, changes: Sequence[str]) -> Any:
    """The record with the command that makes it again; where the data were is nobody's business."""
    words = ["manifoldrf", "reproduce", name, "--size", size]
    words += [] if record.name == name else ["--data", "DIR"]
    words += [word for change in changes for word in ("--set", change)]
    return dataclasses.replace(record, environment=record.environment | {"command": shlex.join(words)})


def _pictures(entry: Any, record: Any, folder: Any, notes: rich.console.Console) -> list[Any]:
    """Draw what can be drawn: the numbers are worth having without matplotlib, too."""
    from manifoldrf._optional import available

    if not available("matplotlib"):
        notes.print("No pictures: they need matplotlib. Install it with: pip install 'manifoldrf\\[viz]'")
        return []
    drawn: list[Any] = entry.draw(record, folder)
    return drawn


def _show(entry: Any, record: Any, console: rich.console.Console) -> None:
    """Print the tables of a record, what they mean, and the time it took."""
    from manifoldrf.report._tables import duration

    for title, rows in record.tables.items():
        if title not in entry.drawn:
            hidden = entry.hidden.get(title, ())
            _print_table(console, title, [{k: v for k, v in row.items() if k not in hidden} for row in rows])
    console.print(rich.text.Text(entry.columns))
    console.print(f"{entry.name} took {duration(record.seconds)}.")


@contextmanager
def _progress(name: str, *, quiet: bool) -> Iterator[Report]:
    """What an experiment calls while it works: moves a bar, or writes lines where there is no terminal."""
    console = rich.console.Console(stderr=True)  # so that piped output stays clean
    if quiet:
        yield lambda what, done, total: None
    elif console.is_terminal:
        words, bar = rich.progress.TextColumn("{task.description}"), rich.progress.BarColumn()
        shown = (words, bar, rich.progress.TimeElapsedColumn(), _Remaining())
        with rich.progress.Progress(*shown, console=console, transient=True) as progress:
            task = progress.add_task(f"{name}: starting", total=None)
            yield lambda what, done, total: progress.update(
                task, description=f"{name}: {what}", completed=done, total=total
            )
    else:
        with _lines(name) as report:
            yield report


class _Remaining(rich.progress.ProgressColumn):
    """Estimate of the time that is left; that of rich forgets steps longer than half a minute."""

    def render(self, task: rich.progress.Task) -> rich.text.Text:
        """The words behind the bar."""
        return rich.text.Text(_remaining(task.completed, task.total or 0, task.elapsed or 0.0))


def _remaining(done: float, total: float, elapsed: float) -> str:
    """Time left if the steps to come take as long as those done; nothing before the first is done."""
    from manifoldrf.report._tables import duration

    return f"about {duration(elapsed * (total - done) / done)} left" if 0 < done < total else ""


@contextmanager
def _lines(name: str) -> Iterator[Report]:
    """Say now and then what is being done, from a thread of its own: one step may take minutes."""
    from manifoldrf.report._tables import duration

    start = time.monotonic()
    latest: tuple[str, int, int] = ("starting", 0, 0)
    over = threading.Event()

    def report(what: str, done: int, total: int) -> None:
        nonlocal latest
        latest = (what, done, total)

    def speak() -> None:
        while not over.wait(_EVERY):
            what, done, total = latest
            elapsed = time.monotonic() - start
            parts = [f"{name}: {what}", f"{duration(elapsed)} so far", _remaining(done, total, elapsed)]
            sys.stderr.write(", ".join(part for part in parts if part) + "\n")
            sys.stderr.flush()

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield report
    finally:
        over.set()
        speaker.join()


def _print_table(console: rich.console.Console, title: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Print a table; where the terminal is too narrow lines are longer, as a cut number would be another number."""
    from manifoldrf.report._tables import cell, columns, heading, is_text

    table = rich.table.Table(title=title, box=rich.box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0))
    for name in columns(rows):
        left = is_text(rows, name)
        longest = max(len(cell(row.get(name))) for row in rows)
        justify: Literal["left", "right"] = "left" if left else "right"
        table.add_column(rich.text.Text(heading(name)), justify=justify, min_width=min(longest, _NARROWEST))
    for row in rows:
        table.add_row(*(rich.text.Text(cell(row.get(name))) for name in columns(rows)))
    unlimited = console.options.update(width=_UNLIMITED)
    needed = rich.measure.Measurement.get(console, unlimited, table).minimum
    table.width = needed if needed > console.width else None
    console.print(table, crop=False)


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
