"""Commands: run experiments, write the results page."""

import dataclasses
import shlex
import typing
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import rich.console
import rich.text
import typer
from typer.core import TyperGroup

from manifoldrf.cli.console import duration, environment, note, print_json, print_table, progress, show
from manifoldrf.cli.options import Output, parse, split, spread, usage
from reproduction.common import as_path, atomic_path, available, check_option, folder_for_results, writable_folder
from reproduction.files import existing_folder
from reproduction.report.catalogue import CATALOGUE, Entry

PROGRAM = "python -m reproduction"
PARTS = "parts"  # folder of finished parts of experiments, below that of the results
Format = Literal["png", "pdf", "svg"]

_NAME = typer.Argument(
    metavar="[NAME]...", help="Experiments, or all. Without a name, list the experiments.", show_default=False
)
_SIZE = typer.Option("--size", help="smoke (small) or paper (the paper's settings).")
_DATA = typer.Option("--data", metavar="DIR", help="Folder of input files, for experiments that can read them.")
_OUT = typer.Option("--out", help="Folder for the results; created if needed.")
_SET = typer.Option("--set", metavar="FIELD=VALUE", help="Change a setting, such as n_nodes=1000; repeatable.")
_FORMAT = typer.Option("--format", help="Format of the pictures.")
_FIGURES = typer.Option("--figures", help="Draw all pictures again, beside the page; needs the .npz files too.")
_RECORDS = typer.Option("--records", help="Folder with the .json files of the records.")
_PAGE = typer.Option("--docs", help="The results page to write.")
_README = typer.Option("--readme", help="The file whose results table to replace.")
_CHECK = typer.Option("--check", help="Write nothing; exit code 1 if a file would change.")


class _Commands(TyperGroup):
    """Commands, of which ``run`` needs no name."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert "run" unless a command or --help comes first."""
        named = bool(args) and (args[0] in self.commands or args[0] == "--help")
        parsed: list[str] = super().parse_args(ctx, args if named else ["run", *args])
        return parsed


app = typer.Typer(
    cls=_Commands,
    help="The experiments of the paper. The command run may be left out: python -m reproduction surfaces.",
    pretty_exceptions_enable=False,
    add_completion=False,
)


def run(
    output: Output,
    names: Annotated[list[str] | None, _NAME] = None,
    size: Annotated[Literal["smoke", "paper"], _SIZE] = "smoke",
    data: Annotated[str | None, _DATA] = None,
    out: Annotated[str, _OUT] = "out",
    changes: Annotated[list[str] | None, _SET] = None,
    form: Annotated[Format, _FORMAT] = "png",
) -> None:
    """Run experiments: print their tables, save their records and pictures.

    Example: python -m reproduction surfaces --size paper --set seed=1
    """
    if not names:
        _list_experiments(output)
        return
    changes = changes or []
    with usage():
        plan = _plan(names, size, changes)
        source = None if data is None else existing_folder(data, "--data")
    console = rich.console.Console(quiet=output.silent)
    records = {}
    with folder_for_results(out, "out") as folder:  # raises before the work if the folder cannot be used
        for entry, config in plan:
            if text := _about_data(entry, data):
                note(text, quiet=output.quiet)
            with progress(entry.name, quiet=output.silent) as report_progress:
                record = entry.run(config, report_progress, source, folder / PARTS)
            record = _with_command(record, entry.name, size, changes)
            saved = [record.save(folder), *_pictures(entry, record, folder, form, quiet=output.quiet)]
            records[record.name] = record.plain()
            _show(entry, record, console)
            console.print("Saved: " + ", ".join(str(path) for path in saved), soft_wrap=True)
    if output.as_json:
        print_json(records)


def results(
    output: Output,
    records: Annotated[str, _RECORDS] = "docs/records",
    docs: Annotated[str, _PAGE] = "docs/results.md",
    readme: Annotated[str, _README] = "README.md",
    check: Annotated[bool, _CHECK] = False,
    figures: Annotated[bool, _FIGURES] = False,
) -> None:
    """Write the results page and the results table of the README from saved records.

    Example: python -m reproduction results --check
    """
    from reproduction.report import pages

    page, front = as_path(docs, "docs"), as_path(readme, "readme")
    found = pages.read_records(records, arrays=figures)
    if figures and not check:
        for record in found.values():
            pages.ENTRY_OF[record.name].draw(record, writable_folder(page.parent / "images"))
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
        raise ValueError(f"These files differ from the records: {names}. Run: {PROGRAM} results")
    for path in stale:
        with atomic_path(path) as temporary:
            temporary.write_text(wanted[path], encoding="utf-8")
    states = {str(path): "written" if path in stale else "up to date" for path in wanted}
    show(output, states, "\n".join(f"{path}: {state}" for path, state in states.items()))


for _command in (run, results):
    app.command()(spread(_command))


def _list_experiments(output: Output) -> None:
    claims = {entry.name: entry.claim for entry in CATALOGUE.values()}
    if output.as_json:
        print_json(claims)
        return
    rows = [{"experiment": name, "claim": claim} for name, claim in claims.items()]
    console = rich.console.Console(quiet=output.quiet)
    print_table(console, f"{PROGRAM} NAME", rows)
    hint = f"Run one: {PROGRAM} surfaces (small size; --size paper for the paper's)"
    console.print(hint, soft_wrap=True, highlight=False)


def _plan(names: Sequence[str], size: str, changes: Sequence[str]) -> list[tuple[Entry, Any]]:
    """Experiments with their settings, all checked before any work."""
    for name in names:
        check_option(name, "NAME", [*CATALOGUE, "all"])
    environment()  # record the commit before the work, not after it
    plan = []
    for entry in CATALOGUE.values():
        if entry.name in names or "all" in names:
            sizes = entry.sizes()
            config = sizes[check_option(size, "--size", list(sizes))]
            plan.append((entry, _changed(config, changes, entry.name)))
    return plan


def _changed(config: Any, changes: Sequence[str], experiment: str) -> Any:
    """Settings after the changes given by texts "field=value"."""
    kinds = typing.get_type_hints(type(config))
    new = {}
    for change in changes:
        name, text = split(change, "--set")
        check_option(name, f"--set, for {experiment},", list(kinds))
        new[name] = parse(text, kinds[name], name)
    return dataclasses.replace(config, **new)


def _about_data(entry: Entry, data: str | None) -> str:
    """A note about the data of an experiment; empty if there is nothing to choose."""
    if entry.reads and data is None:
        return f"{entry.name} runs on generated data and data of installed packages; --data may name {entry.reads}"
    return "" if entry.reads or data is None else f"{entry.name} uses generated shapes; --data is not needed"


def _with_command(record: Any, name: str, size: str, changes: Sequence[str]) -> Any:
    """The record with the command that reproduces it, without the path of the data."""
    words = ["python", "-m", "reproduction", name, "--size", size]
    words += [] if record.name == name else ["--data", "DIR"]
    words += [word for change in changes for word in ("--set", change)]
    return dataclasses.replace(record, environment=record.environment | {"command": shlex.join(words)})


def _pictures(entry: Entry, record: Any, folder: Any, form: str, *, quiet: bool) -> list[Any]:
    """Draw all pictures; without matplotlib, only print a note."""
    if not available("matplotlib"):
        note("no pictures: they need matplotlib. Install it with: pip install 'manifoldrf[viz]'", quiet=quiet)
        return []
    return list(entry.draw(record, folder, form))


def _show(entry: Entry, record: Any, console: rich.console.Console) -> None:
    """Print the tables of a record, their explanation, and the run time."""
    from reproduction.report.pages import heading

    tables: Mapping[str, Any] = record.tables
    for title, rows in tables.items():
        if title not in entry.drawn:
            hidden = entry.hidden.get(title, ())
            shown = [{heading(k): v for k, v in row.items() if k not in hidden} for row in rows]
            print_table(console, title, shown)
    console.print(rich.text.Text(entry.columns))
    console.print(f"{entry.name} took {duration(record.seconds)}.")
