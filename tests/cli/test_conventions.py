"""What all commands share: help with examples, exit codes, clean pipes, completion, errors of one sentence."""

import json
import os
import signal
import subprocess
import sys
import time
import typing
import warnings

import numpy as np
import pytest
from command_line import command, invoke, main, words

import manifoldrf
from manifoldrf import Sphere, cli
from manifoldrf.cli import options
from manifoldrf.features.fit import ANCHORS, FIELDS, QUADRATURES

COMMANDS = ("demo", "fit", "transform", "kernel", "explore", "interpolate", "smooth", "info")


def test_help_names_the_commands_and_unknown_ones_are_usage_errors():
    done = command("--help")
    assert done.returncode == 0
    for name in COMMANDS:
        assert f" {name} " in done.stdout
    wrong = command("dmeo")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("No such command 'dmeo'.")
    assert wrong.stderr.count("\n") == 1
    assert wrong.stdout == ""


@pytest.mark.parametrize(
    ("name", "choices"), [("field", (*FIELDS, "network")), ("anchors", ANCHORS), ("quadrature", QUADRATURES)]
)
def test_choices_of_an_option_are_those_of_the_library(name, choices):
    hint, none = typing.get_args(typing.get_type_hints(options.Parameters)[name])  # None: not given
    assert (typing.get_args(hint), none) == (choices, type(None))


def test_options_given_beside_the_recipe_change_it():
    given = options.Parameters(paper=True, normalize=True, anchors="farthest", quadrature="auto", n_features="auto")
    made = given.estimator(options.Running()).get_params(deep=False)
    assert [made[name] for name in ("normalize", "anchors", "quadrature", "n_features")] == [
        True,
        "farthest",
        "auto",
        "auto",
    ]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_and_the_flags(name):
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert f"manifoldrf {name}" in words(result.stdout.split("Usage")[1].split("\n", 1)[1])  # beyond the usage line
    for flag in ("--json", "--quiet", "--debug"):
        assert flag in result.stdout


def test_without_a_command_help_is_shown(monkeypatch, capsys):
    assert main(monkeypatch) == 0
    assert "Usage: manifoldrf" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["fit"], ["fit", "a.npy"], ["info", "--sise"], ["transform", "a", "b", "c"]])
def test_missing_and_unknown_arguments_are_one_sentence(monkeypatch, capsys, arguments):
    assert main(monkeypatch, *arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.rstrip().endswith("--help")


def test_wrong_numbers_are_told_as_the_library_does(monkeypatch, capsys, tmp_path):
    np.save(tmp_path / "p.npy", Sphere().grid(50))
    for option, value in (("--t", "abc"), ("--t", "nan"), ("--n-jobs", "two"), ("--seed", -1)):
        call = ("fit", tmp_path / "p.npy", "-o", tmp_path / "m.safetensors", option, value)
        assert main(monkeypatch, *call) == 2
        assert capsys.readouterr().err.startswith(f"`{option}` must be ")


def test_debug_shows_the_traceback(monkeypatch, tmp_path):
    missing = ["transform", str(tmp_path / "none.safetensors"), "p.npy", "-o", str(tmp_path / "f.npy")]
    monkeypatch.setattr(sys, "argv", ["manifoldrf", *missing, "--debug"])
    with pytest.raises(FileNotFoundError):
        cli.main()


def test_an_internal_error_is_one_sentence(monkeypatch, capsys, tmp_path):
    def fail(*_, **__):
        raise KeyError("lost")

    monkeypatch.setattr("manifoldrf.cli.program.read_model", fail)
    assert main(monkeypatch, "transform", "m.safetensors", "p.npy", "-o", tmp_path / "f.npy") == 1
    error = capsys.readouterr().err
    assert error == "Internal error: KeyError: 'lost'. Run again with --debug to see the traceback.\n"


@pytest.mark.parametrize("quiet", [False, True])
def test_warnings_from_anywhere_are_notes(monkeypatch, capsys, tmp_path, quiet):
    def warn(*_, **__):
        warnings.warn("look here", UserWarning, stacklevel=1)
        raise ValueError("and stop")

    monkeypatch.setattr("manifoldrf.cli.program.read_model", warn)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # the program sets its own
    flags = ["--quiet"] if quiet else []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(monkeypatch, "transform", "m.safetensors", "p.npy", "-o", tmp_path / "f.npy", *flags) == 1
    assert capsys.readouterr().err == ("" if quiet else "Note: look here\n") + "and stop\n"


def test_the_version_is_printed():
    assert command("--version").stdout.strip() == f"manifoldrf {manifoldrf.__version__}"


def test_info_lists_versions_and_extras():
    facts = json.loads(invoke("info", "--json").stdout)
    assert facts["extra mesh"] == "yes"
    assert int(facts["threads"]) >= 1
    assert "numpy" in invoke("info").stdout
    assert invoke("info", "--quiet").output == ""


def test_a_reader_that_is_gone_ends_the_program_without_a_word():
    ours, theirs = os.pipe()
    os.close(ours)
    called = [sys.executable, "-c", "from manifoldrf.cli import main; main()", "--version"]
    done = subprocess.run(called, stdout=theirs, stderr=subprocess.PIPE, text=True, check=False)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (1, "")


def test_a_reader_that_is_gone_after_a_file_is_written_is_no_error(tmp_path):
    np.save(tmp_path / "points.npy", Sphere().grid(60))
    ours, theirs = os.pipe()
    os.close(ours)
    called = [sys.executable, "-m", "manifoldrf", "fit", "points.npy", "-o", "m.safetensors", "--tau", "5"]
    done = subprocess.run(called, stdout=theirs, stderr=subprocess.PIPE, text=True, cwd=tmp_path, check=False)
    os.close(theirs)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "m.safetensors").exists()


@pytest.mark.slow
def test_ctrl_c_ends_a_long_fit_with_130_and_leaves_nothing(tmp_path):
    """A real signal to a real process, in the middle of the work."""
    np.save(tmp_path / "points.npy", Sphere().grid(3000))
    # Shells start programs in the background with signals ignored, which children inherit.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code = heed + "import sys, manifoldrf.storage, manifoldrf.cli as c; sys.stderr.write('ready\\n'); c.main()"
    options = ["--paper", "--set", "field__epochs=100000"]  # hours, if nothing ends it
    called = [sys.executable, "-c", code, "fit", "points.npy", "-o", "m.safetensors", *options]
    with subprocess.Popen(
        called, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr.readline() == "ready\n"
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        try:
            out, error = process.communicate(timeout=60)
        finally:
            process.kill()  # one that does not end would keep the test waiting for ever
    assert process.returncode == 130
    assert error.splitlines()[-1] == "interrupted: nothing was written"
    assert out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["points.npy"]
