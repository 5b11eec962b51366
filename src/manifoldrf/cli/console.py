"""Output of programs: results go to stdout as text, tables or JSON; progress, notes and errors go to stderr."""

import json
import os
import select
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import rich.box
import rich.console
import rich.measure
import rich.progress
import rich.table
import rich.text
import typer

from manifoldrf._files import noted_files
from manifoldrf.cli.options import Output

Report = Callable[[str, int, int], None]
Row = Mapping[str, Any]

_FIRST, _EVERY = 3.0, 30.0  # seconds to the first line of progress and between two, if stderr is no terminal
_NARROWEST = 24  # long texts may wrap to this width, so that the numbers beside them fit into 80 columns
_UNLIMITED = 10_000  # columns, more than any table has


def open_streams() -> None:
    """Make both streams accept any text: escape unknown characters, discard output to a closed stream."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # otherwise a file opened later gets its descriptor and receives the output
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - stays open
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if os.environ.get("COLUMNS", "").strip("0 ") == "":
        os.environ.pop("COLUMNS", None)  # 0 means unknown; rich would print nothing


def close_output() -> None:
    """Flush stdout; if the disk is full or the pipe is closed, drop the rest.

    Without this, the flush at exit would fail again, with a traceback.
    """
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError), Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def is_pipe_closed() -> bool:
    """Whether stdout is a pipe whose reader is gone."""
    try:
        sys.stdout.flush()
        waiting = select.poll()  # the flush may have had nothing to write
        waiting.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in waiting.poll(0))
    except BrokenPipeError:
        return True
    except (OSError, ValueError, AttributeError):  # a full disk, not a real file, or no poll on this system
        return False


def print_json(value: Any) -> None:
    """Print a value as one line of JSON, which has no numbers that are not finite."""
    plain = json.loads(json.dumps(value), parse_constant=lambda text: None)
    sys.stdout.write(json.dumps(plain) + "\n")


def show(output: Output, facts: Mapping[str, Any], text: str) -> None:
    """Print the result of a command: facts as JSON, or a text."""
    if output.as_json:
        print_json(facts)
    plain = rich.text.Text(text)  # file names are not markup
    rich.console.Console(quiet=output.silent).print(plain, soft_wrap=True, highlight=False)


@contextmanager
def notices(*, quiet: bool) -> Iterator[None]:
    """Print each warning of the library once, as a note without the place in the code.

    Notes appear when the block ends, so that they do not break a progress bar. If ``quiet``, only warnings that a
    result is useless are printed.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            said = [warning.message for warning in caught]
            useless = [message for message in said if getattr(message, "useless", False)]
            note(*dict.fromkeys(str(message) for message in (useless if quiet else said)), quiet=False)


def note(*texts: str, quiet: bool) -> None:
    """Print notes to stderr."""
    console = rich.console.Console(stderr=True, quiet=quiet)
    for text in texts:
        console.print(rich.text.Text(f"Note: {text}", style="yellow"), soft_wrap=True)


# ---------------------------------------------------------------------------------------------------- progress
@contextmanager
def progress(name: str, *, quiet: bool) -> Iterator[Report]:
    """Give a function that reports progress: it moves a bar, or prints lines if stderr is not a terminal."""
    console = rich.console.Console(stderr=True)  # keeps piped output clean
    if quiet:
        yield lambda what, done, total: None
    else:
        with _bar(name, console) if console.is_terminal else _lines(name) as report:
            yield report


@contextmanager
def _bar(name: str, console: rich.console.Console) -> Iterator[Report]:
    """A progress bar that disappears at the end."""
    clocks = rich.progress.TimeElapsedColumn(), rich.progress.TimeRemainingColumn()
    shown = (rich.progress.TextColumn("{task.description}"), rich.progress.BarColumn(), *clocks)
    with rich.progress.Progress(*shown, console=console, transient=True) as moving:
        task = moving.add_task(f"{name}: starting", total=None)

        def report(what: str, done: int, total: int) -> None:
            # Before the first step the bar pulses: an empty bar looks as if nothing happened.
            moving.update(task, description=f"{name}: {what}", completed=done, total=total if done else None)

        yield report


@contextmanager
def _lines(name: str) -> Iterator[Report]:
    """Print a line now and then, from a separate thread because one step may take minutes."""
    start, latest = time.monotonic(), "starting"
    finished = threading.Event()

    def report(what: str, done: int, total: int) -> None:
        nonlocal latest
        latest = f"{what}, {done} of {total}" if done and total > 1 else what

    def print_lines() -> None:
        wait = _FIRST
        while not finished.wait(wait):
            wait = _EVERY
            sys.stderr.write(f"{name}: {latest}, {duration(time.monotonic() - start)} so far\n")
            sys.stderr.flush()

    thread = threading.Thread(target=print_lines, daemon=True)
    thread.start()
    try:
        yield report
    finally:
        finished.set()
        thread.join()


# ------------------------------------------------------------------------------------------------------ tables
def cell(value: object) -> str:
    """Format a value with the digits that a reader needs.

    Examples
    --------
    >>> [cell(value) for value in (0.012345, 0.99987, 0.99998, 12.3456, 12345.6, 4000, 16000, True, None)]
    ['0.0123', '0.9999', '0.99998', '12.35', '12,346', '4000', '16,000', 'yes', '']
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, list | tuple):
        return ", ".join(cell(item) for item in value)
    if not isinstance(value, float):
        return str(value)
    size = abs(value)
    if 1000 <= size < float("inf"):
        return f"{value:,.0f}" if size >= 10_000 else f"{value:.0f}"
    if size < 0.9:
        return f"{value:.3g}"
    # Values just below 1 need a fourth digit, or as many as show that they are not 1.
    texts = (f"{value:.{digits}g}" for digits in range(4, 18))
    return next(text for text in texts if size >= 1 or text.lstrip("-") != "1")


def columns(rows: Sequence[Row]) -> list[str]:
    """All columns of a table, in order of appearance.

    Examples
    --------
    >>> columns([{"a": 1}, {"a": 2, "b": 3}])
    ['a', 'b']
    """
    return list(dict.fromkeys(name for row in rows for name in row))


def duration(seconds: float) -> str:
    """Format a time in seconds.

    Examples
    --------
    >>> duration(42.3), duration(150), duration(7260)
    ('42 s', '2 min 30 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def print_table(console: rich.console.Console, title: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Print a table. In a narrow terminal its lines are too long rather than cut, because a cut number is wrong."""
    table = rich.table.Table(
        title=rich.text.Text(title), box=rich.box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0)
    )
    for name in columns(rows):
        left = any(isinstance(row.get(name), str) for row in rows)
        longest = max(len(cell(row.get(name))) for row in rows)
        justify: Literal["left", "right"] = "left" if left else "right"
        table.add_column(
            rich.text.Text(name.replace("_", " ")), justify=justify, min_width=min(longest, _NARROWEST)
        )
    for row in rows:
        table.add_row(*(rich.text.Text(cell(row.get(name))) for name in columns(rows)))
    unlimited = console.options.update(width=_UNLIMITED)
    needed = rich.measure.Measurement.get(console, unlimited, table).minimum
    table.width = needed if needed > console.width else None
    console.print(table, crop=False)


def show_facts(output: Output, title: str, facts: Mapping[str, object]) -> None:
    """Print the result of a command as a table of names and values."""
    if output.as_json:
        print_json(facts)
    rows = [{"what": name, "value": value} for name, value in facts.items()]
    print_table(rich.console.Console(quiet=output.silent), title, rows)


# -------------------------------------------------------------------------------------------- errors of a program
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
