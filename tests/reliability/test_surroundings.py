"""Unusual clocks, locales, folders, streams and terminals do not change results."""

import json
import locale
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from disks import Disk, call
from marks import quick_ones
from reliability.strategies import quietly
from warm_program import contents

import manifoldrf
from manifoldrf import DiffusionKernel, HeatKernel, ManifoldRandomFeatures, Sphere, load

PACKAGE = Path(manifoldrf.__file__).parent
TRANSFORM = ("transform", "model.safetensors", "points.npy", "-o")


# ------------------------------------------------------------------------------------------------------- clocks
CLOCKS = {
    "1970": "time.time = lambda: 0.0",
    "2100": "time.time = lambda: 4.1e9",
    "set back": "import itertools; now = itertools.count(1.8e9, -3600.0); time.time = lambda: next(now)",
}


@pytest.mark.parametrize("clock", quick_ones(CLOCKS, "set back"))
def test_the_clock_changes_nothing(program, folder, clock):
    code = f"""
import time, os
usual = time.time
{CLOCKS[clock]}
time.localtime = lambda seconds=None, local=time.localtime: local(time.time() if seconds is None else seconds)
for name in ("points.npy", "model.safetensors", "graph.safetensors"):
    os.utime(name, (5e9, 5e9))  # files of the future
"""
    for target in ("a.npz", "a.csv"):
        done = program.run(*TRANSFORM, target, cwd=folder, code=code)
        assert done.code == 0, done.err
        plain = "b" + target[1:]
        assert program.run(*TRANSFORM, plain, cwd=folder).code == 0
        assert (folder / target).read_bytes() == (folder / plain).read_bytes()
    words = ("reproduction", "teachers", "--set", "n_nodes=100", "--set", "surfaces=sphere", "--out=out", "--json")
    done = program.run(*words, cwd=folder, code=code)
    assert done.code == 0, done.err
    assert 0 <= json.loads(done.out)["teachers"]["seconds"] < 100


# ---------------------------------------------------------------------------------------------------- languages
@pytest.fixture
def german(tmp_path):
    """A folder with a locale that has decimal commas."""
    place = tmp_path / "locales"
    place.mkdir()
    call("localedef", "-i", "de_DE", "-f", "UTF-8", place / "de_DE.UTF-8")
    return place


@pytest.mark.slow  # two times five commands
def test_decimal_commas_change_nothing(program, folder, german):
    code = "import locale; locale.setlocale(locale.LC_ALL, 'de_DE.UTF-8'); assert locale.str(.5) == '0,5'"
    np.savetxt(folder / "points.csv", np.load(folder / "points.npy"), delimiter=",", header="x,y,z", comments="")
    for name, environment in (("own", {}), ("german", {"LOCPATH": str(german)})):
        (folder / name).mkdir()
        given = {"env": environment, "code": code if environment else "", "cwd": folder}
        for words in (
            ("fit", "points.csv", "--t", "0.2", "-o", f"{name}/m.safetensors"),
            ("transform", "model.safetensors", "points.csv", "-o", f"{name}/f.csv"),
            ("interpolate", "mesh.ply", "known.csv", "--method", "harmonic", "-o", f"{name}/filled"),
            ("explore", "model.safetensors", "-o", f"{name}/page.html"),
        ):
            done = program.run(*words, **given)
            assert done.code == 0, done.err
    assert contents(folder / "german") == contents(folder / "own")
    assert locale.str(0.5) == "0.5"  # this process is unchanged


# The program in a nearly empty environment, with names of files and columns that are not ASCII.
BARE = """
import json, os, sys
from manifoldrf.cli import main

codes = []
for words in json.loads(sys.stdin.readline()):
    sys.argv = ["manifoldrf", *(os.fsdecode(word.encode()) for word in words)]
    try:
        main()
    except SystemExit as stopped:
        codes.append(stopped.code or 0)
sys.stderr.write(json.dumps([codes, sys.stdout.encoding]))
"""


@pytest.mark.slow  # a new process that loads everything
def test_the_program_needs_neither_utf_8_nor_a_home_nor_a_place_for_temporary_files(program, folder):
    """LC_ALL=C, no HOME, no TMPDIR, a terminal of one column; paths and columns in two languages."""
    place = folder / "größe 点"
    place.mkdir()
    points = np.load(folder / "points.npy")
    np.savetxt(
        place / "länge.csv",
        points,
        delimiter=",",
        header="länge,höhe,z",
        comments="",
        encoding="utf-8",
        fmt="%.17g",
    )
    shutil.copy(folder / "model.safetensors", place / "modèle.safetensors")
    bare = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "COLUMNS": "1", "TMPDIR": "/nowhere"}
    kept = ("PATH", "PYTHONPATH", "NUMBA_CACHE_DIR", "OMP_WAIT_POLICY", "VIRTUAL_ENV")
    environment = {name: os.environ[name] for name in kept if name in os.environ} | bare
    commands = [
        ["info"],
        ["transform", f"{place}/modèle.safetensors", f"{place}/länge.csv", "-o", f"{place}/é.csv"],
        ["explore", f"{place}/modèle.safetensors", "-o", f"{place}/é.html", "--title", "Größe"],
        ["transform", f"{place}/keins.safetensors", f"{place}/länge.csv", "-o", f"{place}/f.npy"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", BARE],
        input=json.dumps(commands) + "\n",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    error = done.stderr.splitlines()
    codes, encoding = json.loads(error[-1])
    assert "utf" not in encoding.lower()
    assert codes == [0, 0, 0, 1], done.stderr
    assert "Traceback" not in done.stderr
    assert r"gr\xf6\xdfe" in done.stderr or r"gr\udcc3\udcb6" in done.stderr  # the missing model is named
    words = ("transform", "model.safetensors", "points.npy", "-o", "plain.csv")
    assert program.run(*words, cwd=folder).code == 0
    np.testing.assert_array_equal(
        np.loadtxt(place / "é.csv", delimiter=","), np.loadtxt(folder / "plain.csv", delimiter=",")
    )
    assert "</html>" in (place / "é.html").read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------------------ streams
STREAMS = {
    "closed": ("import os, sys; os.close(1); sys.stdout = None", 0, ""),
    "both closed": ("import os, sys; os.close(1); os.close(2); sys.stdout = sys.stderr = None", 0, ""),
    "nobody reads": ("import os; r, w = os.pipe(); os.close(r); os.dup2(w, 1)", 0, ""),  # the file is there
    "full": ("import os; os.dup2(os.open('/dev/full', os.O_WRONLY), 1)", 1, "No space left on device.\n"),
}


@pytest.mark.parametrize("flags", quick_ones([(), ("--json",)], ()), ids=["text", "json"])
@pytest.mark.parametrize("name", STREAMS)
def test_output_that_cannot_be_printed_harms_no_file(program, folder, name, flags):
    code, expected, text = STREAMS[name]
    done = program.run(*TRANSFORM, "f.npy", *flags, cwd=folder, code=code)
    assert (done.code, done.err, done.out) == (expected, text, "")
    assert np.load(folder / "f.npy").shape[0] == 300


@pytest.mark.parametrize("columns", quick_ones(["1", "0", "-5", "many", "100000"], "1", "many"))
def test_terminals_of_any_width_show_whole_numbers(program, folder, columns):
    done = program.run(
        "transform", "model.safetensors", "points.npy", "-o", "f.npy", cwd=folder, env={"COLUMNS": columns}
    )
    assert done.code == 0, done.err
    assert "300" in done.out.split()


# ----------------------------------------------------------------------------------------------- compiled code
# Loads all modules, then makes a graph. A fit would compile for a minute.
LOADS = """
import warnings
import numpy as np
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import manifoldrf.storage
names = [warning.category.__name__ for warning in caught]
graph = manifoldrf.knn_graph(np.arange(9.0)[:, None], n_neighbors=2)
print(manifoldrf.__file__, names, graph.n_components)
"""


@pytest.fixture
def installed(tmp_path):
    """A copy of the package on a disk that cannot be written to."""
    disk = Disk(tmp_path / "site", 2000)
    shutil.copytree(PACKAGE, disk.folder / "manifoldrf", ignore=shutil.ignore_patterns("__pycache__"))
    disk.protect()
    yield disk.folder
    disk.close()


def run_alone(folder, code, *words):
    """Run Python where no cache can be written."""
    names = ("HOME", "NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "MPLCONFIGDIR")
    environment = os.environ | dict.fromkeys(names, "/proc/nowhere") | {"PYTHONPATH": str(folder)}
    called = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(called, env=environment, capture_output=True, text=True, check=False)


def test_the_library_works_where_compiled_code_cannot_be_kept(installed):
    done = run_alone(installed, LOADS)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{installed}/manifoldrf/__init__.py ['RuntimeWarning'] 1\n"


@pytest.mark.slow
def test_a_fit_where_compiled_code_cannot_be_kept_has_the_same_bits(installed, inputs, tmp_path):
    code = "from manifoldrf.cli import main; main()"
    words = ("fit", inputs / "points.npy", "--t", "0.2", "-o", tmp_path / "m.safetensors", "--quiet")
    done = run_alone(installed, code, *words)
    assert (done.returncode, done.stderr) == (0, "")
    found = load(tmp_path / "m.safetensors")
    points = np.load(inputs / "points.npy")
    plain = ManifoldRandomFeatures(manifoldrf.HeatKernel(0.2), random_state=0).fit(points)
    assert (found.transform(points) == plain.transform(points)).all()


# ------------------------------------------------------------------------------------------- errors of numpy
def test_narrow_kernels_and_far_points_underflow_without_a_word():
    points = Sphere().sample(300, seed=0)
    queries = np.concatenate([points[:5], 1.1 * points[5:10], 1e3 * points[10:12]])
    with np.errstate(all="raise"):
        assert Sphere().heat_kernel(points, points, 1e-5).min() == 0
        for kernel, field in (
            (DiffusionKernel(20.0), "step"),
            (HeatKernel(0.2), "interpolated"),
            (HeatKernel(0.2), "auto"),
        ):
            features = quietly(ManifoldRandomFeatures(kernel, field=field, random_state=0).fit, points)
            for ask in (features.transform, features.kernel_matrix, features.distance_to_space):
                assert np.isfinite(quietly(ask, queries.astype(np.float32))).all()
