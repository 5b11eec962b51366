"""The command line as tests call it: in this process, or as a program of its own."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from manifoldrf import cli


def invoke(*arguments):
    """Run a command in this process; its exit code and what it printed."""
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def words(text):
    """Text without the box and the line breaks of a usage error."""
    return " ".join(text.replace("│", " ").split())


def command(*arguments, **options):
    """Run the program as users do."""
    code = "from manifoldrf.cli import main; main()"
    called = [sys.executable, "-c", code, *(str(argument) for argument in arguments)]
    return subprocess.run(called, capture_output=True, text=True, check=False, **options)


def main(monkeypatch, *arguments):
    """Exit code of the whole program, in this process."""
    monkeypatch.setattr(sys, "argv", ["manifoldrf", *(str(argument) for argument in arguments)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    return stopped.value.code or 0
