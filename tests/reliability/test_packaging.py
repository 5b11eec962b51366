"""Wheel and source archive hold what they should, and work where the repository is not."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = PROJECT["version"]

pytestmark = pytest.mark.slow


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Folder with both; the wheel is built from the source archive, not from the repository."""
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
    """Files of the repository; where this is a source archive, those that are there."""
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
    assert f"Version: {VERSION}" in text
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
        "README.md",
    }
    assert wanted <= names
    assert tracked("src", "tests", "docs", "benchmarks", "examples") <= names


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
exact = Sphere().heat_kernel(points, points, 0.3)
assert np.linalg.norm(features.kernel_matrix(points) - exact) < 0.1 * np.linalg.norm(exact)
print("the same bits")
"""


@pytest.fixture(scope="module")
def clean(wheel, tmp_path_factory):
    """An environment with the wheel; its dependencies are those of this one, by a path after its own packages."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, with_pip=False)
    packages = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    # Such a line is searched last, and .pth files in that folder are not read: no editable install is seen.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(
        sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install", "--no-deps", "--quiet", wheel
    )
    return folder


@pytest.fixture
def elsewhere(clean, tmp_path):
    """Run a program of the clean environment in an empty folder that knows nothing of the repository."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    (tmp_path / "empty").mkdir()
    return lambda name, *rest: run(clean / "bin" / name, *rest, cwd=tmp_path / "empty", env=environment)


def test_the_wheel_works_where_the_repository_is_not(elsewhere):
    assert elsewhere("python", "-c", SESSION).strip() == "the same bits"


def test_the_command_works_where_the_repository_is_not(elsewhere):
    assert elsewhere("manifoldrf", "--version").split()[-1] == VERSION
    assert VERSION in elsewhere("manifoldrf", "info")
    assert "--out" in elsewhere("manifoldrf", "demo", "--help")
