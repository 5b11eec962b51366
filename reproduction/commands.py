"""Commands: run experiments, write the results page."""

import dataclasses
import importlib
import shlex
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import rich.console
import typer
from typer.core import TyperGroup

from manifoldrf.cli.console import duration, note, print_json, print_table, progress, show
from manifoldrf.cli.options import Output, parse, split, spread, usage
from reproduction.common import atomic_path, existing_folder, reject
from reproduction.record import Record, code_digest, environment

PROGRAM = "python -m reproduction"
# What each experiment shows, in the order of the results page. Those in READS can read a folder of files.
CLAIMS: Mapping[str, str] = {
    "surfaces": "The heat kernel on four surfaces: the paper's recipe and this library.",
    "normals": "Vertex normals from a fifth of them.",
    "velocity": "Velocities of cloth where one in twenty is hidden.",
    "attention": "Masked values of tokens on a surface, filled in by linear attention.",
    "brodatz": "Textures from six labelled windows each.",
    "gaussian_grid": "Signatures on finer and finer grids converge to Gaussian features.",
    "ambient": "Features of the surface against tuned features of the ambient space.",
    "hyperbolic": "The heat kernel of hyperbolic space on a ball, from larger and larger balls.",
    "teachers": "Not in the paper: the error of walks, counts and exact rows at equal cost.",
}
READS: Mapping[str, str] = {
    "normals": "a folder of meshes",
    "velocity": "a folder of .npz sequences",
    "brodatz": "a folder of the Brodatz plates",
}
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

    What is finished in the folder, by the same code with the same settings, is not run again.

    Example: python -m reproduction surfaces --size paper --set n_seeds=1
    """
    if not names:
        rows = [{"experiment": name, "claim": claim} for name, claim in CLAIMS.items()]
        if output.as_json:
            print_json(dict(CLAIMS))
        else:
            print_table(rich.console.Console(quiet=output.quiet), f"{PROGRAM} NAME", rows)
        return
    with usage():
        plan = _plan(names, size, changes or [])
        source = None if data is None else existing_folder(data, "--data").resolve()
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    console = rich.console.Console(quiet=output.silent)
    records = {}
    for name, (module, config) in plan.items():
        files = source if name in READS else None
        if name in READS and files is None:
            note(f"{name} runs on built-in data; --data may name {READS[name]}", quiet=output.quiet)
        words = ["python", "-m", "reproduction", name, "--size", size, *(["--data", "DIR"] if files else [])]
        words += [word for change in changes or [] for word in ("--set", change)]
        with progress(name, quiet=output.silent) as report:
            record = _run(name, module, config, report, files, folder, shlex.join(words))
        records[name] = record.plain()
        for title, rows in record.tables.items():
            if len(rows) <= 40:  # longer ones are in the record
                print_table(console, title, rows)
        from reproduction.report.figures import draw

        saved = [folder / f"{name}.json", *draw(record, folder, form)]
        console.print(f"{name} took {duration(record.seconds)}.")
        console.print("Saved: " + ", ".join(str(path) for path in saved), soft_wrap=True)
    if output.as_json:
        print_json(records)


def _run(name: str, module: Any, config: Any, report: Any, data: Path | None, folder: Path, command: str) -> Record:
    """Run one experiment, whose finished parts are in the folder, and save its record."""
    made = environment() | {"code": code_digest(f"reproduction.{name}"), "command": command}
    record: Record = dataclasses.replace(module.run(config, report, data, folder / "parts"), environment=made)
    record.save(folder)
    return record


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
    from reproduction.report import figures as pictures
    from reproduction.report import page as writer

    page, front = Path(docs), Path(readme)
    found = writer.read_records(existing_folder(records, "--records"), arrays=figures)
    if figures and not check:
        for record in found.values():
            pictures.draw(record, page.parent / "images")
    old = front.read_text(encoding="utf-8")
    wanted = {
        page: writer.results_page(found)[0],
        front: writer.replace_between(old, writer.readme_block(found)[0], front.name),
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


def _plan(names: Sequence[str], size: str, changes: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """Modules of experiments with their settings, all checked before any work."""
    for name in names:
        if name not in (*CLAIMS, "all"):
            reject("NAME", f"one of {', '.join([*CLAIMS, 'all'])}", repr(name))
    environment()  # the commit before the work, not after it
    plan = {}
    for name in CLAIMS:
        if name in names or "all" in names:
            module = importlib.import_module(f"reproduction.{name}")
            code_digest(f"reproduction.{name}")  # of the code that runs: files may change during a long run
            plan[name] = module, _changed(module.SIZES[size], changes, name)
    return plan


def _changed(config: Any, changes: Sequence[str], experiment: str) -> Any:
    """Settings after the changes given by texts "field=value"."""
    kinds = typing.get_type_hints(type(config))
    new = {}
    for change in changes:
        name, text = split(change, "--set")
        if name not in kinds:
            reject(f"--set, for {experiment},", f"one of {', '.join(kinds)}", repr(name))
        new[name] = parse(text, kinds[name], name)
    return dataclasses.replace(config, **new)
