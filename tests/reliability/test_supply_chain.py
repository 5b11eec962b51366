"""Installed packages are pinned, and imports are declared."""

import re
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = {"lazy-loader", "numpy", "rich", "safetensors", "scikit-learn", "scipy", "threadpoolctl"}
CORE |= {"trimesh", "typer"}
IMPORTED_AS = {"lazy-loader": "lazy_loader", "scikit-learn": "sklearn"}


def pins():
    """Name and version of every line of constraints.txt."""
    lines = [line.partition("#")[0].strip() for line in (ROOT / "constraints.txt").read_text().splitlines()]
    return dict(line.split("==") for line in lines if line)


def applies(requirement, extras):
    return requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras)


def required():
    """Installed packages that the project and its extras bring, directly or not, with their versions."""
    groups = [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]
    waiting, found, seen = [Requirement(text) for group in groups for text in group], {}, set()
    while waiting:
        asked = waiting.pop()
        name, extras = canonicalize_name(asked.name), frozenset(asked.extras)
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue  # an extra that this environment does not have
        found[name] = installed.version
        needs = [Requirement(text) for text in installed.requires or ()]
        waiting += [need for need in needs if applies(need, extras | {""})]
    return found


def test_every_installed_package_that_the_project_brings_is_pinned():
    pinned = {canonicalize_name(name): version for name, version in pins().items()}
    found = required()
    assert len(found) > len(CORE)
    assert {name: version for name, version in found.items() if name not in pinned} == {}
    # A local build, such as 2.13.0+cpu, is of the same version.
    others = {name: version for name, version in found.items() if version.partition("+")[0] != pinned[name]}
    assert others == {}


def test_pins_allow_what_the_project_asks_for():
    pinned = {canonicalize_name(name): version for name, version in pins().items()}
    for group in [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]:
        for text in group:
            requirement = Requirement(text)
            assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), text


def test_package_code_imports_nothing_that_is_not_declared():
    """Extras but torch are imported by name, on first use, through one function."""
    declared = {IMPORTED_AS.get(name, name) for name in CORE} | {"manifoldrf", "torch"}
    declared |= set(sys.stdlib_module_names)
    pattern = re.compile(r"^\s*(?:from (\w+)[\w.]* import |import (\w+))", flags=re.MULTILINE)
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        found |= {a or b for a, b in pattern.findall(path.read_text())}
    assert found - declared == set()
