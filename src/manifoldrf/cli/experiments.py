"""Commands around the paper's experiments: run them, and show what their records say."""

import dataclasses
import shlex
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import rich.console
import rich.text
import typer

from manifoldrf.cli._console import note, print_json, print_table, progress, show, usage
from manifoldrf.cli._options import Output
from manifoldrf.cli._settings import changed

Format = Literal["png", "pdf", "svg"]
_DEMO_TIME = 0.05  # wide enough to be seen on the torus
_OUT = typer.Option("--out", help="Folder for the results (made if needed).")


def _names() -> list[str]:
    """What the shell completes."""
    from reproduction.report.catalogue import CATALOGUE

    return [*CATALOGUE, "all"]


_NAME = typer.Argument(
    metavar="NAME",
    autocompletion=_names,
    help="Experiments, or all. Without a name they are listed.",
    show_default=False,
)
_SIZE = typer.Option("--size", help="smoke (small) or paper (the paper's settings).")
_DATA = typer.Option("--data", metavar="DIR", help="Folder of files, for experiments that can read some.")
_SET = typer.Option("--set", metavar="FIELD=VALUE", help="Change a setting, such as n_nodes=1000; repeatable.")
_FORMAT = typer.Option("--format", help="Of the pictures; pdf and svg for print.")
_RECORDS = typer.Option("--records", help="Folder with the .json files of records.")
_PAGE = typer.Option("--docs", help="The page of results, written as a whole.")
_README = typer.Option("--readme", help="The file whose table between the markers is replaced.")
_CHECK = typer.Option("--check", help="Write nothing; exit code 1 if a file would change.")


def demo(output: Output, out: Annotated[str, _OUT] = "out") -> None:
    """Fit features on four surfaces, compare them with the exact kernel and the paper, save report and explorer.

    The same as manifoldrf reproduce surfaces --size smoke, then report, and explore for a torus.

    Example: manifoldrf demo --out results
    """
    from reproduction.report.html_page import write_report

    from manifoldrf import HeatKernel, ManifoldRandomFeatures, Torus
    from manifoldrf._files import as_path
    from manifoldrf.explorer.page import explore

    records = _reproduce(["surfaces"], output, out=out)
    folder = as_path(out, "out")
    with progress("demo", quiet=output.silent) as tell:
        page = write_report(folder, progress=tell)
        tell("explorer", 0, 1)
        torus = ManifoldRandomFeatures(HeatKernel(_DEMO_TIME), random_state=0).fit(Torus())
        view = explore(torus, folder / "explorer.html", title="Heat kernel of a torus").path
    text = f"Report: {page}\nExplorer: {view} (open both in a browser)"
    show(output, records | {"pages": [str(page), str(view)]}, text)


def reproduce(
    output: Output,
    names: Annotated[list[str] | None, _NAME] = None,
    size: Annotated[Literal["smoke", "paper"], _SIZE] = "smoke",
    data: Annotated[str | None, _DATA] = None,
    out: Annotated[str, _OUT] = "out",
    changes: Annotated[list[str] | None, _SET] = None,
    form: Annotated[Format, _FORMAT] = "png",
) -> None:
    """Run experiments: prints their tables, saves their records and pictures.

    Example: manifoldrf reproduce surfaces --size paper --set seed=1
    """
    from reproduction.report.catalogue import CATALOGUE

    if not names:
        _list({entry.name: entry.claim for entry in CATALOGUE.values()}, output)
        return
    records = _reproduce(names, output, size, data, out, changes or [], form)
    if output.as_json:
        print_json(records)


def _reproduce(
    names: Sequence[str],
    output: Output,
    size: str = "smoke",
    data: str | None = None,
    out: str = "out",
    changes: Sequence[str] = (),
    form: str = "png",
) -> dict[str, Any]:
    """Run experiments and show them; their records by name."""
    from manifoldrf._files import existing_folder, folder_for_results

    with usage():
        plan = _plan(names, size, changes)
        source = None if data is None else existing_folder(data, "--data")
    console = rich.console.Console(quiet=output.silent)
    records = {}
    with folder_for_results(out, "out") as folder:  # better now than after the work
        for entry, config in plan:
            if text := _about_data(entry, data):
                note(text, quiet=output.quiet)
            with progress(entry.name, quiet=output.silent) as tell:
                record = entry.run(config, tell, source)
            record = _signed(record, entry.name, size, changes)
            saved = [record.save(folder), *_pictures(entry, record, folder, form, quiet=output.quiet)]
            records[record.name] = record.plain()
            _show(entry, record, console)
            console.print("Saved: " + ", ".join(str(path) for path in saved), soft_wrap=True)
    return records


def report(
    output: Output,
    folder: Annotated[str, typer.Argument(metavar="DIR", help="Folder with the records of experiments.")],
    page: Annotated[
        str | None, typer.Option("--output", "-o", metavar="PAGE", help="The page; DIR/report.html by default.")
    ] = None,
    figures: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Draw all pictures again, into this folder.")
    ] = None,
    form: Annotated[Format, _FORMAT] = "png",
) -> None:
    """Write one self-contained HTML page from records: tables beside the paper's values, and pictures.

    Example: manifoldrf report out -o report.html --figures print --format pdf
    """
    from reproduction.report.html_page import draw_all, write_report

    from manifoldrf._files import check_output, existing_folder, folder_for_results

    with usage():
        source = existing_folder(folder, "DIR")
        target = None if page is None else check_output(page, "--output", (".html",))
    with progress("report", quiet=output.silent) as tell:
        written = [write_report(source, target, progress=tell)]
        if figures is not None:
            with folder_for_results(figures, "figures") as place:
                written += draw_all(source, place, form, progress=tell)
    files = [str(path) for path in written]
    show(output, {"output": files}, "Saved: " + ", ".join(files))


def results(
    output: Output,
    records: Annotated[str, _RECORDS] = "docs/records",
    docs: Annotated[str, _PAGE] = "docs/results.md",
    readme: Annotated[str, _README] = "README.md",
    check: Annotated[bool, _CHECK] = False,
) -> None:
    """Write the page of results and the table of the README from saved records.

    Example: manifoldrf results --check
    """
    from reproduction.report import pages

    from manifoldrf._files import as_path, atomic_path

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
    states = {str(path): "written" if path in stale else "up to date" for path in wanted}
    show(output, states, "\n".join(f"{path}: {state}" for path, state in states.items()))


def _list(claims: Mapping[str, str], output: Output) -> None:
    """Print all experiments."""
    if output.as_json:
        print_json(claims)
        return
    rows = [{"experiment": name, "claim": claim} for name, claim in claims.items()]
    print_table(rich.console.Console(quiet=output.quiet), "manifoldrf reproduce NAME", rows)


def _plan(names: Sequence[str], size: str, changes: Sequence[str]) -> list[tuple[Any, Any]]:
    """Catalogue entries with their settings; all are checked before any work."""
    from reproduction.record import environment
    from reproduction.report.catalogue import CATALOGUE

    from manifoldrf._validation import check_option

    for name in names:
        check_option(name, "NAME", [*CATALOGUE, "all"])
    environment()  # notes the commit before the work, not after it
    plan = []
    for entry in CATALOGUE.values():
        if entry.name in names or "all" in names:
            sizes = entry.sizes()
            config = sizes[check_option(size, "--size", list(sizes))]
            plan.append((entry, changed(config, changes, entry.name)))
    return plan


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


def _pictures(entry: Any, record: Any, folder: Any, form: str, *, quiet: bool) -> list[Any]:
    """Draw what can be drawn: the numbers are worth having without matplotlib, too."""
    from manifoldrf._runtime import available

    if not available("matplotlib"):
        note("no pictures: they need matplotlib. Install it with: pip install 'manifoldrf[viz]'", quiet=quiet)
        return []
    drawn: list[Any] = entry.draw(record, folder, form)
    return drawn


def _show(entry: Any, record: Any, console: rich.console.Console) -> None:
    """Print the tables of a record, what they mean, and the time it took."""
    from reproduction.report._tables import duration

    for title, rows in record.tables.items():
        if title not in entry.drawn:
            hidden = entry.hidden.get(title, ())
            print_table(console, title, [{k: v for k, v in row.items() if k not in hidden} for row in rows])
    console.print(rich.text.Text(entry.columns))
    console.print(f"{entry.name} took {duration(record.seconds)}.")
