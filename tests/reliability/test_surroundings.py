"""Unusual clocks, locales, folders, streams and terminals do not change results."""

import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from reliability.strategies import quietly

from manifoldrf import DiffusionKernel, HeatKernel, ManifoldRandomFeatures, Sphere

TRANSFORM = ("transform", "model.safetensors", "points.npy", "-o")


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
    kept = ("PATH", "PYTHONPATH", "OMP_WAIT_POLICY", "VIRTUAL_ENV")
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


@pytest.mark.parametrize("name", STREAMS)
def test_output_that_cannot_be_printed_harms_no_file(program, folder, name):
    code, expected, text = STREAMS[name]
    done = program.run(*TRANSFORM, "f.npy", cwd=folder, code=code)
    assert (done.code, done.err, done.out) == (expected, text, "")
    assert np.load(folder / "f.npy").shape[0] == 300


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
