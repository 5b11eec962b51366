"""The structure of the package: layers, public names, quick imports."""

import ast
import graphlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import manifoldrf

PACKAGE = Path(manifoldrf.__file__).parent
# From the bottom to the top: a module imports from its own layer and from lower ones.
LAYERS = ["helpers", "geometry", "kernels", "signatures", "paper", "features", "applications"]
LAYERS += ["torch", "gpytorch", "storage", "explorer", "cli", "__main__"]
FILES = [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]
NAMES = [".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts) for path in FILES]
TREES = {
    name.removesuffix(".__init__"): ast.parse(path.read_text(encoding="utf-8"))
    for name, path in zip(NAMES, FILES, strict=True)
}


def imported(nodes):
    """Names of the modules that statements import."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in TREES else node.module for name in inner)


IMPORTS = {module: set(imported(ast.walk(tree))) for module, tree in TREES.items()}  # inside functions as well
OWN = {module: {name for name in IMPORTS[module] if name.startswith("manifoldrf")} for module in TREES}


def layer(module):
    """Where a module stands in LAYERS; the package itself may be imported by the command line alone."""
    name = [*module.split("."), "cli"][1]
    return LAYERS.index(name if name in LAYERS else "helpers")


def test_imports_go_down_the_layers_without_cycles_and_never_to_the_experiments():
    assert [(module, name) for module in OWN for name in OWN[module] if layer(name) > layer(module)] == []
    graphlib.TopologicalSorter(OWN).prepare()  # raises a CycleError that names the modules
    assert [m for m in TREES if any(name.split(".")[0] == "reproduction" for name in IMPORTS[m])] == []
    assert len(TREES) + 1 <= 100  # files


def test_public_names_are_those_of_the_stub_and_of_the_api_page():
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    lines = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: node.module for node in lines for alias in node.names}
    assert sorted(homes) == sorted(manifoldrf.__all__)
    assert {name for name in homes if getattr(manifoldrf, name).__module__ != f"manifoldrf.{homes[name]}"} == set()
    page = (PACKAGE.parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    assert set(homes) <= set(re.findall(r"^\.\. auto\w+:: (\w+)$", page, re.MULTILINE))
    assert {name for name in homes if ">>> " not in getattr(manifoldrf, name).__doc__} == set()
    with pytest.raises(AttributeError, match="Spere"):
        _ = manifoldrf.Spere


def test_importing_loads_no_slow_library_before_it_is_needed():
    at_the_top = {m for m in TREES for name in imported(TREES[m].body) if name.split(".")[0] == "torch"}
    assert at_the_top == set()  # modules of `manifoldrf.torch` call `require`, which names the extra
    names = "found.append(list(sys.modules))"
    code = f"import json, sys, manifoldrf; found = []; {names}; manifoldrf.Sphere; {names}; "
    code += f"import manifoldrf.paper; {names}; print(json.dumps(found))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    package, manifold, users = map(set, json.loads(done.stdout))
    assert users & {"dask", "torch"} == set()
    assert package & {"numpy", "scipy", "sklearn", "torch", "typer"} == set()
    assert manifold & {"sklearn", "torch", "typer"} == set()
