"""Wheel and source archive hold what they should, and work outside the repository and without torch."""

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path, PurePosixPath

import pytest

from manifoldrf import __version__ as VERSION

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


# Without the paths of the repository.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}


def run(*command, cwd=None):
    command = [str(part) for part in command]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=ENVIRONMENT)
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
    sources = {name.removeprefix("src/") for name in tracked("src") if "__pycache__" not in name}
    assert package == sources - {"manifoldrf/_loops.c"} | {"manifoldrf/_loops.abi3.so"}
    assert "manifoldrf/py.typed" in package
    assert f"manifoldrf-{VERSION}.dist-info/licenses/LICENSE" in names
    assert any(
        name.startswith("manifoldrf/explorer/") and name.endswith((".js", ".html", ".css")) for name in package
    )
    assert wheel.stat().st_size < 2_000_000  # no data


def test_source_archive_holds_what_tests_and_documentation_need(sdist):
    names = in_sdist(sdist)
    wanted = {
        "pyproject.toml",
        "setup.py",
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


SESSION = """
import sys
from pathlib import Path

import numpy as np
import manifoldrf
from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere, load

assert Path(manifoldrf.__file__).is_relative_to(sys.prefix), manifoldrf.__file__
features = ManifoldRandomFeatures(HeatKernel(0.3), n_features=64, random_state=0).fit(Sphere().grid(1000))
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


@pytest.fixture
def run_outside(tmp_path):
    """Run a program of an environment in an empty folder."""
    return lambda folder, name, *rest: run(folder / "bin" / name, *rest, cwd=tmp_path)


def test_the_wheel_works_where_the_repository_is_not(clean, run_outside):
    assert run_outside(clean, "python", "-c", SESSION).strip() == "the same bits"


def test_the_command_works_where_the_repository_is_not(clean, run_outside):
    assert run_outside(clean, "manifoldrf", "--version").split()[-1] == VERSION
    assert VERSION in run_outside(clean, "manifoldrf", "info")
    assert "--out" in run_outside(clean, "manifoldrf", "demo", "--help")
