"""Installed packages are pinned, imports are declared, and the audit passes only with an answer for each pin."""

import importlib
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = {"lazy-loader", "numba", "numpy", "rich", "safetensors", "scikit-learn", "scipy", "threadpoolctl"}
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


def test_every_line_of_the_constraints_is_an_exact_pin():
    for name, version in pins().items():
        assert re.fullmatch(r"[A-Za-z0-9._-]+", name), name
        assert re.fullmatch(r"[0-9][0-9A-Za-z.]*", version), (name, version)


def test_every_installed_package_that_the_project_brings_is_pinned():
    pinned = {canonicalize_name(name): version for name, version in pins().items()}
    found = required()
    assert len(found) > len(CORE)
    assert {name: version for name, version in found.items() if name not in pinned} == {}
    # A local build, such as 2.13.0+cpu, is of the same version.
    others = {name: version for name, version in found.items() if version.partition("+")[0] != pinned[name]}
    assert others == {}


def test_pre_commit_has_the_pinned_version_of_ruff():
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"rev: v(\S+)", text) == [pins()["ruff"]]


def test_pins_allow_what_the_project_asks_for():
    pinned = {canonicalize_name(name): version for name, version in pins().items()}
    for group in [PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()]:
        for text in group:
            requirement = Requirement(text)
            assert requirement.specifier.contains(pinned[canonicalize_name(requirement.name)]), text


def test_core_dependencies_are_those_that_are_documented():
    declared = {Requirement(text).name for text in PROJECT["dependencies"]}
    documented = re.search(r"Core dependencies: ([^.]+)\.", (ROOT / "SECURITY.md").read_text())[1]
    assert declared == set(documented.split(", ")) == CORE


def test_package_code_imports_nothing_that_is_not_declared():
    """Extras but torch are imported by name, on first use, through one function."""
    declared = {IMPORTED_AS.get(name, name) for name in CORE} | {"manifoldrf", "torch"}
    declared |= set(sys.stdlib_module_names)
    pattern = re.compile(r"^\s*(?:from (\w+)[\w.]* import |import (\w+))", flags=re.MULTILINE)
    found = set()
    for path in (ROOT / "src").rglob("*.py"):
        found |= {a or b for a, b in pattern.findall(path.read_text())}
    assert found - declared == set()


def test_importing_the_package_loads_neither_core_nor_extras():
    heavy = ["torch", "numba", "matplotlib", "dask", "distributed", "sklearn", "scipy", "trimesh", "typer"]
    code = f"import json, sys, manifoldrf; print(json.dumps([m for m in {heavy} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


@pytest.fixture
def audit(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.audit")


def answer(*pinned):
    return json.dumps({"dependencies": list(pinned), "fixes": []})


GOOD = {"name": "a", "version": "1", "vulns": []}
BAD = {"name": "b", "version": "2", "vulns": [{"id": "PYSEC-1"}]}
SKIPPED = {"name": "c", "skip_reason": "not found"}


@pytest.mark.parametrize(
    ("output", "code", "words"),
    [
        (answer(GOOD), 0, "No vulnerabilities are known of the 1 pins."),
        (answer(GOOD, BAD), 1, "b 2: PYSEC-1"),
        (answer(SKIPPED, BAD), 1, "b 2: PYSEC-1"),
        (answer(SKIPPED), 3, "knows nothing of 1 of 1 pins"),
        (answer(SKIPPED, GOOD), 4, "knows nothing of 1 of 2 pins"),
        (answer(), 3, "knows nothing of 0 of 0 pins"),
        ("", 3, "gave no answer"),
        ("{}", 3, "gave no answer"),
        ("ConnectionError", 3, "gave no answer"),
    ],
)
def test_the_check_of_the_pins_passes_only_with_an_answer_for_each(audit, output, code, words):
    found, text = audit.judge(output)
    assert (found, words in text) == (code, True)


def test_the_check_of_the_pins_fails_where_the_tool_is_not_there(audit, monkeypatch, capsys):
    monkeypatch.setattr(audit.sys, "executable", "/bin/false")
    monkeypatch.setattr(sys, "argv", ["audit.py"])
    with pytest.raises(SystemExit) as ended:
        audit.main()
    assert ended.value.code == 3
    assert capsys.readouterr().out.count("\n") == 1


def test_the_check_of_the_pins_can_ask_a_mirror(audit, monkeypatch, tmp_path, capsys):
    """A tool that prints what it is asked, as an answer that knows one pin."""
    tool = tmp_path / "python"
    tool.write_text(f"#!/bin/sh\necho \"$@\" > {tmp_path}/asked\necho '{answer(GOOD)}'\n")
    tool.chmod(0o755)
    monkeypatch.setattr(audit.sys, "executable", str(tool))
    monkeypatch.setattr(sys, "argv", ["audit.py", "--vulnerability-service", "osv", "--osv-url", "http://mirror"])
    with pytest.raises(SystemExit) as ended:
        audit.main()
    assert ended.value.code == 0
    assert "1 pins" in capsys.readouterr().out
    asked = (tmp_path / "asked").read_text()
    assert asked.endswith("--vulnerability-service osv --osv-url http://mirror\n")
