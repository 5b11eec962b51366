"""A disk that is full or refuses to be written to: one sentence that names the file, and everything as it was."""

import contextlib
import errno
import os
import subprocess
import sys

import numpy as np
import pytest
from disks import PAGE, Disk
from scipy import sparse
from warm_program import contents

from manifoldrf import TriangleMesh, explore, load
from manifoldrf._arrays import row_writer
from manifoldrf._files import atomic_path, check_output

RNG = np.random.default_rng(0)
DENSE = RNG.random((100, 30))


def write_rows(path, array):
    with row_writer(path, array.shape[1], sparse=sparse.issparse(array)) as writer:
        writer.append(array)


# What is written -> who writes it, from the folder of inputs to a path.
WRITERS = {
    "model.safetensors": lambda inputs, path: load(inputs / "model.safetensors").save(path),
    "graph.safetensors": lambda inputs, path: load(inputs / "graph.safetensors").save(path),
    "rows.npy": lambda inputs, path: write_rows(path, DENSE),
    "rows.csv": lambda inputs, path: write_rows(path, DENSE),
    "rows.npz": lambda inputs, path: write_rows(path, DENSE),
    "sparse.npz": lambda inputs, path: write_rows(path, sparse.csr_array(DENSE)),
    "explorer.html": lambda inputs, path: explore(load(inputs / "model.safetensors"), path),
    **{
        f"mesh.{kind}": lambda inputs, path: TriangleMesh.load(inputs / "mesh.ply").save(path)
        for kind in ("ply", "obj", "off", "glb")
    },
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_is_an_error_with_the_name_of_the_file_and_changes_nothing(disk, inputs, name):
    target = disk.folder / name
    for n_free, old in ((1, True), (0, False)):
        target.write_text("an old file")
        disk.fill(n_free)
        if not old:
            target.unlink()
            disk.fill(n_free)
        before = contents(disk.folder)
        with pytest.raises(OSError, match="No space left on device") as caught:
            WRITERS[name](inputs, target)
        assert caught.value.errno == errno.ENOSPC
        assert caught.value.filename == str(target)
        assert contents(disk.folder) == before
    (disk.folder / "filler").unlink()
    WRITERS[name](inputs, target)
    assert target.stat().st_size > PAGE  # else the disk was not what was in the way


COMMANDS = {
    "fit": (("fit", "points.npy", "-o"), "new.safetensors"),
    "transform csv": (("transform", "model.safetensors", "points.npy", "-o"), "new.csv"),
    "explore": (("explore", "model.safetensors", "-o"), "new.html"),
    "interpolate": (("interpolate", "mesh.ply", "known.csv", "--method", "harmonic", "-o"), "new.csv"),
}


@pytest.mark.parametrize("name", ["fit", "transform csv", "interpolate"])
def test_commands_end_with_one_sentence_on_a_full_disk(program, disk, inputs, name):
    words, target = COMMANDS[name]
    path = disk.folder / target
    path.write_text("an old file")
    disk.fill(1)
    before = contents(disk.folder)
    done = program.run(*words, path, "--quiet", cwd=inputs)
    assert (done.code, done.out) == (1, "")
    names = [path, path.with_suffix(".ply")] if name == "interpolate" else [path]
    assert done.err in [f"{name}: No space left on device.\n" for name in names]
    assert contents(disk.folder) == before


@pytest.mark.slow  # two trainings
def test_a_checkpoint_that_does_not_fit_leaves_the_one_before(program, disk, inputs):
    state = disk.folder / "state.safetensors"
    words = (
        "fit",
        "points.npy",
        "--paper",
        "--set",
        "field__n_starts=40",
        "-o",
        disk.folder / "m.safetensors",
        "--quiet",
    )
    words += ("--set", "field__epochs=12", "--set", f"field__checkpoint={state}")
    stop = ("paper._Training.run_epoch", 11, 2)
    stopped = program.run(*words, cwd=inputs, kill_at=stop)
    assert stopped.code == 130, stopped.err
    disk.fill(0)
    before = contents(disk.folder)
    done = program.run(*words, cwd=inputs)
    assert (done.code, done.err) == (1, f"{state}: No space left on device.\n")
    assert contents(disk.folder) == before


@pytest.fixture
def short(tmp_path):
    """A disk that has room for few names."""
    made = Disk(tmp_path / "short", 128, 4)
    yield made
    made.close()


def test_a_disk_without_room_for_another_name_is_an_error_with_the_name_of_the_file(short):
    disk = short
    for number in range(4):
        with contextlib.suppress(OSError):
            (disk.folder / f"{number}.npy").touch()
    before = contents(disk.folder)
    with pytest.raises(OSError, match="No space left on device") as caught, atomic_path(disk.folder / "new.npy"):
        pytest.fail("the block must not run")
    assert caught.value.filename == str(disk.folder / "new.npy")
    with pytest.raises(OSError, match="No space left on device") as caught:  # it is full, and not protected
        check_output(disk.folder / "new.npy", "path", [".npy"])
    assert caught.value.filename == str(disk.folder)
    assert contents(disk.folder) == before


# ----------------------------------------------------------------------------------------- places not to write to
@pytest.mark.parametrize("name", ["fit", "explore"])
def test_a_disk_that_refuses_writing_is_named_before_any_work(program, disk, inputs, name):
    words, target = COMMANDS[name]
    path = disk.folder / target
    path.write_text("an old file")
    before = contents(disk.folder)
    disk.protect()
    work = "import manifoldrf._files as files; files.existing_file = None"  # an error, if anything were read
    done = program.run(*words, path, cwd=inputs, code=work)
    assert (done.code, done.out) == (1, "")
    assert "`--out` must be in a folder that is writable. Got " in done.err
    assert done.err.count("\n") == 1
    assert contents(disk.folder) == before


def test_a_disk_that_refuses_writing_is_named_by_the_library(disk, inputs):
    disk.protect()
    for name, write in WRITERS.items():
        with pytest.raises(PermissionError, match=r"must be (in )?a folder that is writable"):
            write(inputs, disk.folder / name)
    assert contents(disk.folder) == {}


def test_places_that_cannot_hold_a_file_are_named_before_any_work(program, folder):
    before, place = contents(folder), "points.npy/new"
    for words, target in (COMMANDS["fit"], COMMANDS["transform csv"]):
        work = "import manifoldrf.cli.program as program; program.read_model = program.read_space = None"
        done = program.run(*words, place + "." + target.partition(".")[2], cwd=folder, code=work)
        assert (done.code, done.out) == (1, "")
        assert "`--out` must be in a folder that " in done.err
        assert done.err.count("\n") == 1
    assert contents(folder) == before


def test_all_of_this_also_runs_for_users_who_may_not_mount_disks():
    """In a namespace of its own, where a user is his own root."""
    if os.geteuid() == 0:
        pytest.skip("this user may mount disks, and all of this has run")
    space = ["unshare", "--map-root-user", "--mount"]
    if subprocess.run([*space, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this system gives users no namespaces of their own")
    called = [*space, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", __file__]
    done = subprocess.run(called, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
