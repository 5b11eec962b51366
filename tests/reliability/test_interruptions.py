"""Ctrl-C and SIGTERM in every long stage: exit codes, no half-written files, training that can be resumed."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command_line import main
from warm_program import contents

from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere, load
from manifoldrf._codec import load_value, save_value

CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
WORDS = {signal.SIGINT: "interrupted", signal.SIGTERM: "terminated"}
N = 300  # points of the inputs

FIT = ("fit", "points.npy", "-o", "new.safetensors")
STEPS = ("fit", "graph.safetensors", "--tau", "5", "-o", "new.safetensors", "--teacher")
TRANSFORM = ("transform", "model.safetensors", "points.npy", "--chunk-size", "50", "-o")
BUDGET = ("--set", "field__n_starts=40", "--set", "teacher__n_walks=100")
TRAINING = (*FIT, "--paper", *BUDGET, "--set", "field__epochs=4")
FILL_IN = ("interpolate", "mesh.ply", "known.csv", "-o", "new")
# A command, and where the signal comes: at the nth call of a function, or of any function of a module. The numbers
# are about the middle of the work of that module.
STAGES = {
    "heat graph": ((*FIT, "-t", ".1"), "geometry.heat", 5),
    "nodes of a mesh": (("fit", "mesh.ply", "-t", ".1", "-o", "new.safetensors"), "geometry.mesh_space", 10),
    "neighbours": ((*FIT, "--graph", "knn", "--tau", "5"), "geometry.builders", 3),
    "walks": ((*STEPS, "walks"), "signatures", 10),
    "counts": ((*STEPS, "counts"), "signatures", 10),
    "exact signatures": ((*STEPS, "exact"), "kernels.abstract_kernel", 4),
    "anchors": (FIT, "features.fit", 12),
    "weights of anchors": (FIT, "features.fit", 22),
    "error": (FIT, "features.errors", 10),
    "save": (FIT, "_files.os.fsync", 1),
    "training": (TRAINING, "paper", 30),
    "features to npy": ((*TRANSFORM, "new.npy"), "features.feature_map", 50),
    "features to csv": ((*TRANSFORM, "new.csv"), "features.feature_map", 50),
    "features to npz": ((*TRANSFORM, "new.npz"), "features.feature_map", 50),
    "packing": ((*TRANSFORM, "new.npz"), "_arrays.sp.save_npz", 1),
    "kernel": (("kernel", "model.safetensors", "points.npy", "-o", "new.npy"), "features.feature_map", 20),
    "explorer": (("explore", "model.safetensors", "-o", "new.html"), "explorer.page", 10),
    "method": (FILL_IN, "applications.interpolation", 500),
    "two files": (FILL_IN, "_colours", 1),  # between the table and the picture
    "demo": (("demo", "--out", "new"), "features.errors", 1),  # its error comes last, with the explorer page
}
QUICK = {
    *("heat graph", "walks", "error", "save", "training"),
    *("features to csv", "packing", "method", "two files"),
}


def stages_and_signals():
    """Every stage, with one of the signals each; the quick tests take a few of the stages."""
    for stage, number in zip(STAGES, itertools.cycle(CODES), strict=False):
        yield pytest.param(
            stage, number, id=f"{stage}-{number.name}", marks=[] if stage in QUICK else [pytest.mark.slow]
        )


@pytest.mark.parametrize(("stage", "number"), list(stages_and_signals()))
def test_a_signal_leaves_the_folder_as_it_was(program, folder, stage, number):
    arguments, place, nth = STAGES[stage]
    if number == signal.SIGTERM:  # with old files there, and with none
        target = next(word for word in arguments if word.startswith("new"))
        for name in [target] if "." in target else ["new.csv", "new.ply"]:
            (folder / name).write_text("an old file")
    before = contents(folder)
    done = program.run(*arguments, cwd=folder, kill_at=(place, nth, number))
    assert done.code == CODES[number], done.err
    assert contents(folder) == before
    assert done.out == ""
    assert done.err.splitlines()[-1] == f"{WORDS[number]}: nothing was written"
    assert "Traceback" not in done.err
    assert "Exception" not in done.err


def test_a_second_signal_at_once_does_not_stop_the_cleaning_up(program, folder):
    number = signal.SIGTERM
    before = contents(folder)
    second = f"kill_at('_files.Path.unlink', 2, {int(number)})"  # the first call is from the check of the folder
    first = ("features.feature_map", 50, number)
    done = program.run(*TRANSFORM, "new.npy", cwd=folder, code=second, kill_at=first)
    assert done.code == CODES[number]
    assert contents(folder) == before


def test_signals_that_the_caller_has_turned_off_stay_off(program, folder):
    """As nohup and shells do for programs in the background."""
    off = "import signal; [signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)]"
    for number in CODES:
        place = ("features.feature_map", 50, number)
        done = program.run(*TRANSFORM, "new.npy", cwd=folder, code=off, kill_at=place)
        assert done.code == 0, done.err
        assert len(np.load(folder / "new.npy")) == N


# ------------------------------------------------------------------------------------------------- resumption
COUNTED = """
from manifoldrf.paper import _Training as training
run = training.run_epoch
training.run_epoch = lambda *args: (print('epoch'), run(*args))[1]
"""
LONGER = ("--set", "field__epochs=24", "--set", "field__checkpoint=state.safetensors")
RESUMABLE = (*FIT, "--paper", *BUDGET, *LONGER, "--quiet")


@pytest.fixture(scope="module")
def trained(program, inputs, tmp_path_factory):
    """The model of a training that was not interrupted."""
    folder = tmp_path_factory.mktemp("trained")
    shutil.copy(inputs / "points.npy", folder)
    done = program.run(*RESUMABLE, cwd=folder)
    assert done.code == 0, done.err
    return load(folder / "new.safetensors")


@pytest.mark.parametrize(
    ("number", "place", "nth", "left"),  # epochs that are left after the last checkpoint, one in ten epochs
    [
        (signal.SIGTERM, "paper._Training.save", 2, 14),
        pytest.param(signal.SIGKILL, "paper.atomic_path", 2, 14, marks=pytest.mark.slow),
    ],
)
def test_a_training_is_taken_up_with_the_same_bits(program, folder, trained, number, place, nth, left):
    before = set(contents(folder))
    stopped = program.run(*RESUMABLE, cwd=folder, kill_at=(place, nth, number))
    assert stopped.code == CODES.get(number, -9), stopped.err
    assert set(contents(folder)) - before == {"state.safetensors"}
    if number in WORDS:
        assert stopped.err == f"{WORDS[number]}: written before, and complete: state.safetensors\n"
    again = program.run(*RESUMABLE, cwd=folder, code=COUNTED)
    assert again.code == 0, again.err
    assert again.out.count("epoch") == left
    found = load(folder / "new.safetensors")
    points = Sphere().sample(20, seed=1)
    assert (found.transform(points) == trained.transform(points)).all()
    assert found.training_.train_loss == trained.training_.train_loss
    assert found.training_.validation_loss == trained.training_.validation_loss


# ----------------------------------------------------------------------------------------------- true signals
@pytest.mark.slow  # a new process that loads everything
def test_sigterm_from_outside_ends_a_training_with_143_and_leaves_nothing(tmp_path):
    np.save(tmp_path / "points.npy", Sphere().grid(N))
    code = "from manifoldrf.cli import main; main()"
    options = [
        "--paper",
        "--set",
        "field__epochs=100000",
        "--set",
        "field__n_starts=40",
    ]  # hours, if nothing ends it
    called = [sys.executable, "-c", code, "fit", "points.npy", "-o", "m.safetensors", *options]
    environment = os.environ | {"FORCE_COLOR": "1", "COLUMNS": "120"}  # a bar, as in a terminal
    with subprocess.Popen(
        called, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        shown = b""
        while b"training epochs" not in shown:
            more = os.read(process.stderr.fileno(), 1000)
            assert more, shown.decode()
            shown += more
        process.send_signal(signal.SIGTERM)
        out, error = process.communicate(timeout=60)
    assert process.returncode == 143
    assert b"Traceback" not in error
    assert out == b""
    assert [path.name for path in tmp_path.iterdir()] == ["points.npy"]


# ---------------------------------------------------------------------------------------------------- library
def handlers():
    return [signal.getsignal(number) for number in CODES]


@pytest.fixture
def usual_handlers():
    """The handlers of a program in the foreground; shells start background programs with signals ignored."""
    kept = {number: signal.getsignal(number) for number in CODES}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("usual_handlers")
def test_the_library_installs_no_handlers_and_the_program_takes_its_own_back(monkeypatch, tmp_path):
    before = handlers()
    during = []
    monkeypatch.setattr("manifoldrf.cli.program.show_facts", lambda *_: during.extend(handlers()))
    features = ManifoldRandomFeatures(HeatKernel(0.2), random_state=0).fit(Sphere().grid(N))
    load(features.save(tmp_path / "m.safetensors"))
    assert handlers() == before
    assert main(monkeypatch, "info") == 0
    assert handlers() == before
    assert len(during) == 2
    assert not set(during) & set(before)


# --------------------------------------------------------------------------------------------- every single line
def interrupted_at(number, work):
    """Raise KeyboardInterrupt before the given line of the modules that write files; whether it was reached.

    Lines that clean up are not counted: the file is complete there, or is being removed.
    """
    left = number

    def trace(frame, event, _):
        nonlocal left
        path = Path(frame.f_code.co_filename)
        if path.name not in ("_files.py", "_codec.py") or frame.f_code.co_name == "_sync_folder":
            return None
        if event == "line" and not is_cleaning(path, frame.f_lineno):
            left -= 1
            if left == -1:
                raise KeyboardInterrupt
        return trace

    others = sys.gettrace()  # that of the coverage
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(others)
    return False


def is_cleaning(path, line):
    text = path.read_text().splitlines()[line - 1]
    return "suppress(OSError)" in text or "unlink" in text


# If the interrupt comes between opening a file and its block, the garbage collector closes the file and warns.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_before_any_line_of_a_save_leaves_the_old_file_or_the_new_one(tmp_path):
    path = tmp_path / "m"
    number, seen = 0, set()
    while True:
        save_value(path, {"x": np.zeros(3)})
        if not interrupted_at(number, lambda: save_value(path, {"x": np.ones(3)})):
            break
        assert [entry.name for entry in tmp_path.iterdir()] == ["m"], number
        seen.add(tuple(load_value(path)["x"]))
        number += 1
    assert seen == {(0.0,) * 3, (1.0,) * 3}
    assert number > 40
