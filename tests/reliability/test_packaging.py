"""Wheel and source archive hold what they should, and work outside the repository and without torch."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import requires
from pathlib import Path, PurePosixPath

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from manifoldrf import __version__ as VERSION

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

pytestmark = pytest.mark.slow


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Folder with the source archive and the wheel, which is built from the source archive."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def sdist(built):
    (path,) = built.glob("*.tar.gz")
    return path


def in_sdist(sdist):
    with tarfile.open(sdist) as archive:
        return {str(PurePosixPath(*PurePosixPath(name).parts[1:])) for name in archive.getnames()}


def tracked(*folders):
    """Files of the repository, or of the unpacked source archive the tests run in."""
    if (ROOT / ".git").exists():
        listed = run("git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard", *folders)
        return {name for name in listed.splitlines() if (ROOT / name).exists()}
    return {p.relative_to(ROOT).as_posix() for f in folders for p in (ROOT / f).rglob("*") if p.is_file()}


def test_wheel_holds_the_package_and_nothing_else(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    package = {name for name in names if name.startswith("manifoldrf/")}
    assert {name.split("/")[0] for name in names} == {"manifoldrf", f"manifoldrf-{VERSION}.dist-info"}
    assert package == {name.removeprefix("src/") for name in tracked("src") if "__pycache__" not in name}
    assert "manifoldrf/py.typed" in package
    assert f"manifoldrf-{VERSION}.dist-info/licenses/LICENSE" in names
    assert any(
        name.startswith("manifoldrf/explorer/") and name.endswith((".js", ".html", ".css")) for name in package
    )
    assert wheel.stat().st_size < 2_000_000  # no data


def test_wheel_declares_what_the_project_declares(wheel):
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(f"manifoldrf-{VERSION}.dist-info/METADATA").decode()
        points = archive.read(f"manifoldrf-{VERSION}.dist-info/entry_points.txt").decode()
    needs = {
        line.removeprefix("Requires-Dist: ") for line in text.splitlines() if line.startswith("Requires-Dist: ")
    }
    assert {need for need in needs if "extra ==" not in need} == set(PROJECT["dependencies"])
    assert f"\nVersion: {VERSION}\n" in text
    assert {f"Project-URL: {name}, {url}" for name, url in PROJECT["urls"].items()} <= set(text.splitlines())
    assert "Requires-Python: >=3.11" in text
    assert "manifoldrf = manifoldrf.cli:main" in points


def test_source_archive_holds_what_tests_and_documentation_need(sdist):
    names = in_sdist(sdist)
    wanted = {
        "pyproject.toml",
        "Makefile",
        "constraints.txt",
        "LICENSE",
        "CITATION.cff",
        "SECURITY.md",
        ".ci/run",
        ".github/workflows/ci.yml",
        ".pre-commit-config.yaml",
        ".readthedocs.yaml",
        "README.md",
    }
    assert wanted <= names
    assert tracked("src", "reproduction", "tests", "docs", "benchmarks", "examples") <= names


def test_source_archive_holds_nothing_that_is_made(sdist):
    made = re.compile(r"__pycache__|\.venv|\.nbi$|\.nbc$|^out/|^docs/gallery|_cache/|\.egg-info|\.hypothesis")
    assert [name for name in in_sdist(sdist) if made.search(name)] == []


SESSION = """
import sys
from pathlib import Path

import numpy as np
import manifoldrf
from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere, load

assert Path(manifoldrf.__file__).is_relative_to(sys.prefix), manifoldrf.__file__
features = ManifoldRandomFeatures(HeatKernel(0.3), n_features=64, random_state=0).fit(Sphere().grid(200))
points = Sphere().sample(20, seed=1)
again = load(features.save("model.safetensors"))
assert (again.transform(points) == features.transform(points)).all()
exact = features.scale_ * Sphere().heat_kernel(points, points, 0.3)  # K(x, x) = 1 on average
assert np.linalg.norm(features.kernel_matrix(points) - exact) < 0.1 * np.linalg.norm(exact)
print("the same bits")
"""


@pytest.fixture(scope="module")
def clean(wheel, tmp_path_factory):
    """An environment with the wheel and, by a path file, the dependencies of the current environment."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False)
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    # A folder named in a .pth file is searched last, and its own .pth files (editable installs) are ignored.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(
        sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-deps", "--quiet", wheel
    )
    return folder


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Compiled code of all sessions, so that only the first one compiles."""
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture
def run_outside(compiled, tmp_path):
    """Run a program of an environment in an empty folder, without the paths of the repository."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"NUMBA_CACHE_DIR": str(compiled)}
    return lambda folder, name, *rest: run(folder / "bin" / name, *rest, cwd=tmp_path, env=environment)


def test_the_wheel_works_where_the_repository_is_not(clean, run_outside):
    assert run_outside(clean, "python", "-c", SESSION).strip() == "the same bits"


def test_the_command_works_where_the_repository_is_not(clean, run_outside):
    assert run_outside(clean, "manifoldrf", "--version").split()[-1] == VERSION
    assert VERSION in run_outside(clean, "manifoldrf", "info")
    assert "--out" in run_outside(clean, "manifoldrf", "demo", "--help")


LIGHT_SESSION = """
import sys

import numpy as np
from scipy.spatial import ConvexHull
from manifoldrf import (
    FieldInterpolator, HeatKernel, ManifoldGaussianProcess, ManifoldRandomFeatures, Sphere, TriangleMesh, explore
)

sphere = Sphere()
points, new = sphere.grid(300), sphere.sample(20, seed=1)
mesh = TriangleMesh(points, ConvexHull(points).simplices)
mesh.save("sphere.off")
filled = FieldInterpolator(random_state=0).fit(mesh, points[:, 2], np.arange(300) % 4 == 0).predict()
assert abs(filled - points[:, 2]).max() < 0.1
process = ManifoldGaussianProcess(random_state=0).fit(points, points[:, 0])
assert abs(process.predict(new) - new[:, 0]).max() < 0.1
explore(ManifoldRandomFeatures(HeatKernel(0.3), random_state=0).fit(points), "sphere.html")
assert "torch" not in sys.modules
try:
    ManifoldRandomFeatures(field="mlp").fit(points)
except ImportError as refusal:
    assert "manifoldrf[torch]" in str(refusal)
    print("torch is asked for by name")
"""


@pytest.fixture(scope="module")
def light(wheel, tmp_path_factory):
    """An environment with what ``pip install manifoldrf`` brings, and nothing else."""
    folder, constraints = tmp_path_factory.mktemp("light"), ROOT / "constraints.txt"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    probe = ("download", "--quiet", "--retries", "0", "--no-deps", "--dest", folder / "probe", "lazy-loader")
    if subprocess.run([*pip, *map(str, probe)], capture_output=True, check=False).returncode:
        pytest.skip("needs a package index")
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    run(*pip, "--python", python, "install", "--quiet", "--constraint", constraints, wheel)
    return folder / "venv"


def brought_by(*names):
    """Names of packages and of what they require, directly or not."""
    waiting, found = list(names), set()
    while waiting:
        name = canonicalize_name(waiting.pop())
        if name not in found:
            found.add(name)
            needs = [Requirement(text) for text in requires(name) or ()]
            waiting += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


def test_a_plain_install_brings_twelve_packages_besides_those_of_the_command_line(light):
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", light / "bin" / "python")
    installed = {canonicalize_name(one["name"]) for one in json.loads(run(*pip, "list", "--format", "json"))}
    others = installed - brought_by("typer", "rich") - {"manifoldrf", "pip", "setuptools"}
    assert "torch" not in installed
    assert len(others) <= 12, others


def test_a_plain_install_runs_the_first_lines_of_the_readme(light, run_outside):
    block = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), flags=re.M | re.S)[1]
    assert "error" in run_outside(light, "python", "-c", block)


def test_a_plain_install_does_everything_but_the_network_and_attention(light, run_outside):
    assert "the same bits" in run_outside(light, "python", "-c", SESSION)
    assert "by name" in run_outside(light, "python", "-c", LIGHT_SESSION)


def test_a_plain_install_has_the_command_line(light, run_outside):
    assert "explore" in run_outside(light, "manifoldrf", "--help")
    assert VERSION in run_outside(light, "manifoldrf", "info")
    assert run_outside(light, "python", "-m", "manifoldrf", "--version").split()[-1] == VERSION
    run_outside(light, "python", "-c", "import numpy, manifoldrf as m; numpy.save('p.npy', m.Sphere().grid(300))")
    run_outside(light, "manifoldrf", "fit", "p.npy", "-o", "model.safetensors")
    run_outside(light, "manifoldrf", "transform", "model.safetensors", "p.npy", "-o", "features.npz")
