"""Examples use public names only, are notebooks too, and each runs within a minute."""

import ast
import os
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
PUBLIC_MODULES = {"manifoldrf"} | {f"manifoldrf.{part}" for part in ("geometry", "kernels", "torch", "gpytorch")}

every_example = pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)


def imports_of(text):
    """Yield the module and the name of every import from the library; the name is None for a module."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "manifoldrf":
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names if alias.name.split(".")[0] == "manifoldrf")


def test_examples_import_public_names_only():
    for path in EXAMPLES:
        for module, name in imports_of(path.read_text(encoding="utf-8")):
            assert module in PUBLIC_MODULES, path
            assert module != "manifoldrf" or name in manifoldrf.__all__, path


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


def test_notebooks_of_examples_have_the_code_of_the_scripts(code_of_notebook):
    """So they run where the scripts do, if these need no file of their own and ignore the arguments of Jupyter."""
    for path in EXAMPLES:
        text = path.read_text(encoding="utf-8")
        cells = code_of_notebook(path)
        assert len(cells) >= 2
        script = ast.Module(ast.parse(text).body[1:], [])  # without the docstring
        assert ast.dump(ast.parse("\n".join(cells))) == ast.dump(script), path
        assert "__file__" not in text
        assert "sys.argv" not in text or ".isdecimal()" in text


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
