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
FILES = {  # all but manifoldrf/__init__.py, by the names of their modules
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in PACKAGE.rglob("*.py")
    if path != PACKAGE / "__init__.py"
}
# From the bottom to the top: a module imports from its own layer and from lower ones.
LAYERS = [
    *("helpers", "geometry", "kernels", "signatures", "fields", "features", "baselines", "applications"),
    *("storage", "explorer", "distributed", "cli"),
]
NEEDS_TORCH = {f"manifoldrf.{name}" for name in ("applications.attention", "applications.positions")}


def imported(module, *, lazily=True):
    """Names of the modules that a module imports, inside functions as well if ``lazily``."""
    tree = ast.parse(FILES[module].read_text(encoding="utf-8"))
    for node in ast.walk(tree) if lazily else tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            inner = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in FILES else node.module for name in inner)


def layer(module):
    """Where a module stands in LAYERS; the package itself may be imported by the command line alone."""
    name = [*module.split("."), "cli"][1]
    return LAYERS.index(name if name in LAYERS else "cli" if name == "__main__" else "helpers")


OWN = {module: {name for name in imported(module) if name.startswith("manifoldrf")} for module in FILES}


def test_imports_point_to_the_same_or_a_lower_layer():
    assert [(module, name) for module in OWN for name in OWN[module] if layer(name) > layer(module)] == []


def test_imports_have_no_cycles():
    graphlib.TopologicalSorter(OWN).prepare()  # raises a CycleError that names the modules


def test_the_package_imports_nothing_from_the_experiments():
    assert [module for module in FILES for name in imported(module) if name.split(".")[0] == "reproduction"] == []


def test_torch_is_imported_at_the_top_only_of_modules_that_are_of_no_use_without_it():
    found = {m for m in FILES for name in imported(m, lazily=False) if name.split(".")[0] == "torch"}
    assert found <= NEEDS_TORCH


def test_the_package_has_at_most_a_hundred_files():
    assert len(FILES) + 1 <= 100


def test_public_names_are_those_of_the_stub_and_of_the_api_page():
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    lines = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    homes = {alias.name: node.module for node in lines for alias in node.names}
    assert sorted(homes) == sorted(manifoldrf.__all__)
    assert {name for name in homes if getattr(manifoldrf, name).__module__ != f"manifoldrf.{homes[name]}"} == set()
    page = (PACKAGE.parents[1] / "docs" / "api.md").read_text(encoding="utf-8")
    assert set(homes) <= set(re.findall(r"^\.\. auto\w+:: (\w+)$", page, re.MULTILINE))
    documented = {name for name in homes if ">>> " in getattr(manifoldrf, name).__doc__}
    assert set(homes) - documented == {"GraphWarning"}  # a warning category has nothing to call
    with pytest.raises(AttributeError, match="Spere"):
        _ = manifoldrf.Spere


def test_importing_the_package_a_manifold_or_the_users_of_extras_loads_no_slow_library():
    names = "found.append(list(sys.modules))"
    code = f"import json, sys, manifoldrf; found = []; {names}; manifoldrf.Sphere; {names}; manifoldrf.Cluster; "
    code += f"import manifoldrf.fields.mlp; {names}; print(json.dumps(found))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    package, manifold, users = map(set, json.loads(done.stdout))
    assert users & {"dask", "distributed", "torch"} == set()
    assert package & {"numpy", "scipy", "numba", "sklearn", "torch", "typer"} == set()
    assert manifold & {"sklearn", "torch", "typer"} == set()
