"""The program: its commands, and what becomes of their errors."""

import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

import rich.console
import rich.text
import typer

import manifoldrf
from manifoldrf._files import noted_files
from manifoldrf.cli._console import close_output, nobody_reads, note, open_streams
from manifoldrf.cli._groups import spread
from manifoldrf.cli._signals import INTERRUPTED
from manifoldrf.cli.experiments import demo, report, reproduce, results
from manifoldrf.cli.facts import info
from manifoldrf.cli.fields import interpolate
from manifoldrf.cli.models import explore, fit, kernel, transform
from manifoldrf.cli.stages import graph, signatures

app = typer.Typer(
    help="Kernels on curved spaces as plain feature vectors.",
    pretty_exceptions_enable=False,
)
for _command in (
    *(demo, fit, transform, kernel, explore, interpolate),
    *(graph, signatures),
    *(reproduce, report, results, info),
):
    app.command()(spread(_command))


def _print_version(asked: bool) -> None:  # noqa: FBT001 - the signature of an option's callback
    if asked:
        sys.stdout.write(f"manifoldrf {manifoldrf.__version__}\n")
        raise typer.Exit


_VERSION = typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")


@app.callback()
def _root(version: Annotated[bool, _VERSION] = False) -> None:
    pass


# The base of all errors of usage; which package it lives in depends on the version of typer.
_UsageError: Any = typer.BadParameter.__base__


def run(written: list[Path]) -> None:
    """Run the program: exit code 1 and one sentence for an error, 2 for wrong usage.

    Files that are complete are noted in ``written``: whoever stops the program wants to know them.
    """
    open_streams()
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    quiet = bool({"--quiet", "-q"} & set(arguments))
    # For warnings outside the commands' own blocks: no place in the code is of use here.
    warnings.showwarning = lambda message, *_: note(str(message), quiet=quiet)
    try:
        with noted_files(written):
            code = app(args=arguments or ["--help"], prog_name="manifoldrf", standalone_mode=False)
        if code == INTERRUPTED:  # what typer makes of Ctrl-C
            raise KeyboardInterrupt
        sys.stdout.flush()  # at exit it would be too late for a sentence
    except _UsageError as error:
        if debug and error.__cause__ is not None:
            raise
        _complain(_advice(error))
        raise SystemExit(error.exit_code) from None
    except Exception as error:
        silent = isinstance(error, BrokenPipeError) and nobody_reads()  # no error, unless it is another pipe
        if debug and not silent:
            raise
        if not silent:
            _complain(_sentence(error))
        if isinstance(error, OSError):
            close_output()
        raise SystemExit(1) from None
    raise SystemExit(code)


def _advice(error: Any) -> str:
    """What is wrong with the usage, and where to look; a text of ours needs no introduction."""
    text = error.message if error.message.startswith("`") else error.format_message()
    command = "manifoldrf" if error.ctx is None else error.ctx.command_path
    return f"{text} See: {command} --help"


# What the library says of wrong input; its texts are meant for users.
_EXPECTED = (OSError, ValueError, TypeError, MemoryError, ModuleNotFoundError)


def _sentence(error: Exception) -> str:
    """An error in words."""
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    if isinstance(error, _EXPECTED):
        return text
    return f"An error that should not be: {type(error).__name__}: {text}. --debug shows where."


def _complain(text: str) -> None:
    """One red sentence."""
    plain = " ".join(text.split()).replace("Value error, ", "")  # a word of typer's
    rich.console.Console(stderr=True).print(rich.text.Text(plain, style="red"), soft_wrap=True)
