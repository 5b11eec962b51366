"""The command line as tests call it: in this process, or in a new one."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from manifoldrf import cli
from manifoldrf.cli import program
from reproduction import commands
from reproduction.__main__ import main as run_reproduction


def invoke(*arguments):
    """Run a command in this process; its exit code and what it printed."""
    return CliRunner().invoke(program.app, [str(argument) for argument in arguments])


def reproduce(*arguments):
    """Run `python -m reproduction` in this process; its exit code and what it printed."""
    return CliRunner().invoke(commands.app, [str(argument) for argument in arguments])


def words(text):
    """The text of a usage error without its box and line breaks."""
    return " ".join(text.replace("│", " ").split())


def command(*arguments, **options):
    """Run the program in a new process, as users do."""
    code = "from manifoldrf.cli import main; main()"
    called = [sys.executable, "-c", code, *(str(argument) for argument in arguments)]
    return subprocess.run(called, capture_output=True, text=True, check=False, **options)


def main(monkeypatch, *arguments, program=cli.main):
    """Exit code of the whole program, in this process."""
    monkeypatch.setattr(sys, "argv", ["program", *(str(argument) for argument in arguments)])
    with pytest.raises(SystemExit) as stopped:
        program()
    return stopped.value.code or 0


def reproduction_main(monkeypatch, *arguments):
    """Exit code of the whole program `python -m reproduction`, in this process."""
    return main(monkeypatch, *arguments, program=run_reproduction)
