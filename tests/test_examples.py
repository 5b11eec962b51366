"""Examples make gallery pages: a title, cells, a picture, public names only; each runs within a minute."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import manifoldrf

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
# Processor time of all threads, which depends little on what else the machine does: with less, an example takes
# less than a minute on free cores. On a loaded machine the longest take 40 s of it, and three minutes of waiting.
SECONDS = 60
HANGS = 600  # seconds to wait at most

# Modules with a list of public names in the API page.
PUBLIC_MODULES = {"manifoldrf", "manifoldrf.torch", "manifoldrf.gpytorch"}

every_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


def title_of(text):
    """Return the first line of the docstring if it is underlined as a reStructuredText title, else None."""
    lines = (ast.get_docstring(ast.parse(text)) or "").splitlines()
    underlined = len(lines) > 3 and re.fullmatch(r"=+", lines[1]) and len(lines[1]) == len(lines[0])
    return lines[0] if underlined and lines[0] and not lines[2] else None


def imports_of(text):
    """Yield the module and the name of every import from the library; the name is None for a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "manifoldrf":
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if alias.name.split(".")[0] == "manifoldrf")


def draws(text):
    """Return whether a pyplot figure is made and shown, which sphinx-gallery then saves."""
    calls = [node.func for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    names = {call.attr for call in calls if isinstance(call, ast.Attribute)}
    return {"subplots", "show"} <= names


def test_the_gallery_has_at_least_eight_examples():
    assert len(EXAMPLES) >= 8


def test_titles_of_examples_are_different():
    titles = [title_of(path.read_text(encoding="utf-8")) for path in EXAMPLES]
    assert len(set(titles)) == len(titles)


@every_example
def test_an_example_has_a_title_cells_and_a_picture(path):
    text = path.read_text(encoding="utf-8")
    assert title_of(text)
    assert re.search(r"^# %%$", text, flags=re.MULTILINE)
    assert draws(text)


@every_example
def test_an_example_imports_public_names_only(path):
    text = path.read_text(encoding="utf-8")
    found = list(imports_of(text))
    assert found
    for module, name in found:
        assert module in PUBLIC_MODULES
        assert name is not None
        if module == "manifoldrf":
            assert name in manifoldrf.__all__


def test_the_checks_can_fail():
    assert title_of('"""A sentence without a title."""') is None
    assert title_of('"""\nTitle\n==\n\nText of it.\n"""') is None
    assert title_of('"""\nTitle\n=====\n\nText of it.\n"""') == "Title"
    private = "import manifoldrf.cli\nfrom manifoldrf._files import as_path\nfrom manifoldrfx import y\n"
    assert list(imports_of(private)) == [("manifoldrf.cli", None), ("manifoldrf._files", "as_path")]
    assert draws("figure = plt.subplots()\nplt.show()")
    assert not draws("plt.savefig('x.png')")


@pytest.fixture(scope="session")
def code_of_notebook():
    """Make the code cells of the notebook that sphinx-gallery offers for an example."""
    pytest.importorskip("sphinx_gallery", reason="sphinx-gallery is not installed")
    from sphinx_gallery import gen_gallery, notebook, py_source_parser

    def cells(path):
        _, blocks = py_source_parser.split_code_and_text_blocks(path)
        made = notebook.jupyter_notebook(blocks, dict(gen_gallery.DEFAULT_GALLERY_CONF), str(path.parent))
        return ["".join(cell["source"]) for cell in made["cells"] if cell["cell_type"] == "code"]

    return cells


@every_example
def test_the_notebook_of_an_example_has_the_code_of_the_script(path, code_of_notebook):
    """So it runs where the script does, if it needs no file of its own and ignores the arguments of Jupyter."""
    text = path.read_text(encoding="utf-8")
    cells = code_of_notebook(path)
    assert len(cells) >= 2
    script = ast.parse(text)
    assert ast.dump(ast.parse("\n".join(cells))) == ast.dump(
        ast.Module(script.body[1:], [])
    )  # without the docstring
    assert "__file__" not in text
    assert "sys.argv" not in text or ".isdecimal()" in text


@pytest.mark.slow
def test_a_notebook_runs_cell_by_cell_as_in_jupyter(code_of_notebook, tmp_path):
    """In one namespace, with the arguments that Jupyter gives to a kernel."""
    (path,) = [path for path in EXAMPLES if path.stem == "hyperbolic_disc"]
    cells = tmp_path / "cells.json"
    cells.write_text(json.dumps(code_of_notebook(path)), "utf-8")
    run_all = "[exec(cell, space) for cell in json.load(open(sys.argv[-1]))]"
    program = f"import json, sys; space = {{'__name__': '__main__'}}; {run_all}"
    arguments = [sys.executable, "-c", program, "-f", str(cells)]
    settings = os.environ | {"MPLBACKEND": "Agg"}
    result = subprocess.run(arguments, cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=HANGS)
    assert result.returncode == 0, result.stderr
    assert result.stdout


def seconds_of_children():
    """Processor time of programs that were run and have ended."""
    times = os.times()
    return times.children_user + times.children_system


@pytest.mark.slow
@every_example
def test_an_example_runs_alone_without_display_within_a_minute(path, tmp_path):
    """Run it as a script in an empty folder, without arguments or data; it must leave no files."""
    settings = os.environ | {"MPLBACKEND": "Agg", "OMP_WAIT_POLICY": "passive"}
    before = seconds_of_children()
    result = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, env=settings, capture_output=True, text=True, timeout=HANGS
    )
    assert result.returncode == 0, result.stderr
    assert seconds_of_children() - before < SECONDS
    assert result.stdout
    assert not list(tmp_path.iterdir())
