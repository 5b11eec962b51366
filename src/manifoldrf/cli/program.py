"""The program: its commands, and how their errors are reported."""

import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, NoReturn

import rich.console
import rich.text
import typer

import manifoldrf
from manifoldrf._files import noted_files
from manifoldrf.cli.console import close_output, is_pipe_closed, note, open_streams
from manifoldrf.cli.demo import demo
from manifoldrf.cli.models import explore, fit, info, kernel, transform
from manifoldrf.cli.options import spread
from manifoldrf.cli.stages import graph, interpolate, signatures, smooth

app = typer.Typer(help="Kernels on curved spaces as plain feature vectors.", pretty_exceptions_enable=False)
for _command in (demo, fit, transform, kernel, explore, interpolate, smooth, graph, signatures, info):
    app.command()(spread(_command))
# `python -m reproduction` reads all arguments, --help included.
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}


@app.command(context_settings=_PASSED_ON)
def reproduce(context: typer.Context) -> NoReturn:
    """Run the paper's experiments, in a checkout: the same as python -m reproduction, with its arguments.

    Example: manifoldrf reproduce surfaces --size smoke
    """
    checkout = Path(__file__).parents[3]
    if not (checkout / "reproduction" / "__main__.py").is_file():
        raise ModuleNotFoundError(
            "The paper's experiments are not installed with the package: "
            "clone the source repository of manifoldrf and run `python -m reproduction` there."
        )
    paths = [str(checkout), str(checkout / "src"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    debug = ["--debug"] if "--debug" in sys.argv else []  # the program has taken it from the arguments
    sys.stdout.flush()
    # -P: ignore a folder of the same name in the working directory. The process is replaced, so that signals and
    # exit codes need no forwarding.
    called = [sys.executable, "-P", "-m", "reproduction", *context.args, *debug]
    os.execve(sys.executable, called, environment)


def _print_version(asked: bool) -> None:  # noqa: FBT001 - the signature of an option's callback
    if asked:
        sys.stdout.write(f"manifoldrf {manifoldrf.__version__}\n")
        raise typer.Exit


_VERSION = typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")


@app.callback(invoke_without_command=True)
def _root(context: typer.Context, version: Annotated[bool, _VERSION] = False) -> None:
    if context.invoked_subcommand is None:
        app(args=["--help"], prog_name=context.info_name, standalone_mode=False)


# The base class of all usage errors; its package depends on the version of typer.
_UsageError: Any = typer.BadParameter.__base__


def run(app: typer.Typer, name: str, written: list[Path]) -> None:
    """Run a program: an error is one sentence and exit code 1, or 2 for wrong usage.

    Files that are complete are added to ``written``, for the message of a program that a signal ends.
    """
    open_streams()
    debug = "--debug" in sys.argv
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    quiet = bool({"--quiet", "-q"} & set(arguments))
    # For warnings outside the blocks of the commands: users do not need the place in the code.
    warnings.showwarning = lambda message, *_: note(str(message), quiet=quiet)
    try:
        with noted_files(written):
            code = _call(app, arguments, name)
        sys.stdout.flush()  # an error here is still reported; at exit it would be a traceback
    except _UsageError as error:
        if debug and error.__cause__ is not None:
            raise
        command = name if error.ctx is None else error.ctx.command_path
        _print_error(f"{error.format_message()} See: {command} --help")
        raise SystemExit(error.exit_code) from None
    except Exception as error:
        # A reader of stdout that is gone is no error.
        is_gone = isinstance(error, _ReaderGoneError) or (isinstance(error, BrokenPipeError) and is_pipe_closed())
        if debug and not is_gone:
            raise
        if isinstance(error, OSError):
            close_output()
        if is_gone:
            raise SystemExit(0 if written else 1) from None  # files are complete; only the text is lost
        _print_error(_sentence(error))
        raise SystemExit(1) from None
    raise SystemExit(code)


class _ReaderGoneError(BrokenPipeError):
    """The reader of stdout is gone, and stdout is replaced."""


def _call(app: typer.Typer, arguments: list[str], name: str) -> int | None:
    """Run a command and return its exit code."""
    try:
        code: int | None = app(args=arguments, prog_name=name, standalone_mode=False)
    except SystemExit as stopped:
        if isinstance(stopped.__context__, BrokenPipeError):  # rich, where the reader of stdout is gone
            raise _ReaderGoneError from None
        raise
    if code == 128 + signal.SIGINT:  # typer returns it for Ctrl-C
        raise KeyboardInterrupt
    return code


# Errors about wrong input; their texts are written for users.
_EXPECTED = (OSError, ValueError, TypeError, MemoryError, ImportError)


def _sentence(error: Exception) -> str:
    """The text of an error for users."""
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}." if error.filename else f"{error.strerror}."
    if isinstance(error, _EXPECTED):
        return text
    return f"Internal error: {type(error).__name__}: {text}. Run again with --debug to see the traceback."


def _print_error(text: str) -> None:
    """Print one red line."""
    line = " ".join(text.split())
    rich.console.Console(stderr=True).print(rich.text.Text(line, style="red"), soft_wrap=True)
