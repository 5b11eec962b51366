"""The documentation stays correct: Python blocks run and print what the page says, commands and links exist.

The blocks of one page run in order, in one namespace and in an empty folder. A ``text`` block directly after a
Python block is its output; ``<!-- no-test -->`` before a Python block skips it; so does ``<!-- needs gpflow -->``
where that package is not installed. Warnings of such packages do not count.
"""

import contextlib
import importlib.util
import io
import re
import shlex
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

import manifoldrf
from manifoldrf import gpytorch
from manifoldrf import torch as with_torch
from manifoldrf.cli.program import app
from reproduction.commands import app as experiments

ROOT = Path(__file__).parents[1]
# Not the gallery, which sphinx generates from the examples; they are tested in test_examples.py.
FOLDERS = [ROOT / "docs" / name for name in ("", "guide", "development")]
PAGES = sorted(page.relative_to(ROOT).as_posix() for folder in FOLDERS for page in folder.glob("*.md"))
PAGES.append("README.md")

# Pages whose blocks take about a second and a half of one core or more.
LONG = {
    "README.md",
    "docs/comparisons.md",
    "docs/explorer.md",
    "docs/extending.md",
    "docs/getting_started.md",
    "docs/theory.md",
    "docs/guide/attention.md",
    "docs/guide/choosing.md",
    "docs/guide/features.md",
    "docs/guide/few_labels.md",
    "docs/guide/graph.md",
    "docs/guide/kernels.md",
    "docs/guide/large.md",
    "docs/guide/mesh_field.md",
    "docs/guide/meshes.md",
    "docs/guide/noise.md",
    "docs/guide/points.md",
    "docs/guide/regression.md",
    "docs/guide/saving.md",
}

BLOCK = re.compile(
    r"(?P<skip><!-- no-test -->\s*)?(?:<!-- needs (?P<needs>\w+) -->\s*)?"
    r"^```python\n(?P<code>.*?)^```$"
    r"(?:\s*^```text\n(?P<output>.*?)^```$)?",
    flags=re.MULTILINE | re.DOTALL,
)
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Block:
    line: int  # line number of the first line of code
    code: str
    output: str | None
    foreign: bool = False  # needs a package of others


def blocks(text):
    """Yield the Python blocks of a page that should run."""
    for found in BLOCK.finditer(text):
        missing = found["needs"] is not None and importlib.util.find_spec(found["needs"]) is None
        if found["skip"] is None and not missing:
            line = text.count("\n", 0, found.start("code")) + 1
            yield Block(line, found["code"], found["output"], found["needs"] is not None)


def run(block, page, namespace):
    """Run one block and return what it printed."""
    printed = io.StringIO()
    code = "\n" * (block.line - 1) + block.code  # tracebacks then show the line of the page
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        if block.foreign:
            warnings.simplefilter("ignore")
        exec(compile(code, page, "exec"), namespace)
    return printed.getvalue()


def unit(number):
    """Return one unit in the last digit shown: 0.01 for "2.34", 1e-4 for "7e-4"."""
    mantissa, _, exponent = number.partition("e")
    return 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))


def agree(printed, promised):
    """Compare words exactly, and numbers to one unit of the last digit (rounding differs by platform)."""
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", promised).split():
        return False
    pairs = zip(NUMBER.findall(printed), NUMBER.findall(promised), strict=True)
    return all(abs(float(a) - float(b)) <= 1.001 * max(unit(a), unit(b)) for a, b in pairs)


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow if page in LONG else ()) for page in PAGES]
)
def test_blocks_run_and_print_what_the_page_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # pages may write files
    namespace = {"__name__": "page"}
    for block in blocks((ROOT / page).read_text(encoding="utf-8")):
        printed = run(block, page, namespace)
        if block.output is not None:
            where = f"{page} line {block.line}"
            assert agree(printed, block.output), f"{where} prints\n{printed}\nbut the page says\n{block.output}"


def test_every_public_name_is_in_the_api_page():
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    documented = re.findall(r"^\.\. auto(?:class|function|exception):: (\w+)$", text, flags=re.MULTILINE)
    assert sorted(documented) == sorted(manifoldrf.__all__ + with_torch.__all__ + gpytorch.__all__)


# The command-line programs by the words that start them.
PROGRAMS = {("manifoldrf",): app, ("python", "-m", "reproduction"): experiments}


def commands(text):
    """Yield the program and the arguments of the lines in a page's shell blocks that call a program of ours."""
    for found in re.finditer(r"^```sh\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL):
        for line in found[1].splitlines():
            words = shlex.split(line, comments=True)
            for start, program in PROGRAMS.items():
                if tuple(words[: len(start)]) == start:
                    yield program, words[len(start) :]


def unknown_to_the_program(program, words):
    """Return the words that are neither commands nor options of the program."""
    program = typer.main.get_command(program)
    named = [word for word in words if not word.startswith("-")]
    command = program.commands.get(named[0], program.commands.get("run")) if named else program
    if command is None:
        return named[:1]
    options = {name for option in command.params for name in [*option.opts, *option.secondary_opts]} | {"--help"}
    return [word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word) and word not in options]


def test_commands_on_pages_are_those_of_the_program():
    for page in PAGES:
        for program, words in commands((ROOT / page).read_text(encoding="utf-8")):
            assert not unknown_to_the_program(program, words), f"{page}: {shlex.join(words)}"


# README links to files by their addresses, because other sites show it too.
OURS = re.compile(r"^https://(?:raw\.githubusercontent|github)\.com/manifoldrf/manifoldrf/(?:(?:blob|tree)/)?main/")


def targets(text):
    """Return the files that a page links to, without anchors and without other sites."""
    found = re.findall(r"\]\(([^)\s#]+)(?:#[^)\s]*)?\)", text)
    found = [OURS.sub("", target) for target in found]
    return [target for target in found if "://" not in target]


def test_files_that_pages_link_to_exist():
    for page in [*PAGES, "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md"]:
        folder = (ROOT / page).parent
        for target in targets((ROOT / page).read_text(encoding="utf-8")):
            place = (folder / target).resolve().relative_to(ROOT).as_posix()
            assert (ROOT / place).exists(), f"{page} links to {target}"


def test_every_page_is_in_a_table_of_contents():
    listed = re.findall(
        r"^```\{toctree\}\n(.*?)^```$", (ROOT / "docs" / "index.md").read_text("utf-8"), flags=re.M | re.S
    )
    names = {
        f"docs/{line}.md" for part in listed for line in part.splitlines() if line and not line.startswith(":")
    }
    assert set(PAGES) - names == {"README.md", "docs/index.md"}
