"""What commands print: tables, progress, notes, JSON; results to stdout, everything else to stderr."""

import json
import os
import select
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

import rich.box
import rich.console
import rich.measure
import rich.progress
import rich.table
import rich.text
import typer

from manifoldrf.cli._options import Output

Report = Callable[[str, int, int], None]

_EVERY = 30.0  # seconds between two signs of life where there is no terminal
_NARROWEST = 24  # longer texts may be wrapped to this width, else numbers beside them would not fit 80 columns
_UNLIMITED = 10_000  # columns, more than any table has


def open_streams() -> None:
    """Let every text be printed: what an encoding lacks is escaped, and a stream that is closed takes all."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # a file opened later would have its number, and get what others print
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    if os.environ.get("COLUMNS", "").strip("0 ") == "":
        os.environ.pop("COLUMNS", None)  # no columns means that nobody knows how many; rich would print nothing


def close_output() -> None:
    """Print what is still to be printed or, where a full disk or a closed pipe refuses it, give it up.

    At exit it would be refused again, with a traceback.
    """
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError), Path(os.devnull).open("w", encoding="utf-8") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def nobody_reads() -> bool:
    """Whether stdout is a pipe that was closed at its other end."""
    try:
        sys.stdout.flush()
        waiting = select.poll()  # what was refused may not have been kept, so that nothing is left to flush
        waiting.register(sys.stdout.fileno(), 0)
        return any(event & select.POLLERR for _, event in waiting.poll(0))
    except BrokenPipeError:
        return True
    except (OSError, ValueError, AttributeError):  # a full disk, no real file, a system without such questions
        return False


def print_json(value: Any) -> None:
    """Print a value for machines, on one line."""
    sys.stdout.write(json.dumps(value) + "\n")


def show(output: Output, facts: Mapping[str, Any], text: Any) -> None:
    """The result of a command: facts for machines, or a text for people."""
    if output.as_json:
        print_json(facts)
    plain = rich.text.Text(text) if isinstance(text, str) else text  # names of files are no markup
    rich.console.Console(quiet=output.silent).print(plain, soft_wrap=True, highlight=False)


@contextmanager
def usage() -> Iterator[None]:
    """Wrong arguments are wrong usage, with its exit code."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from error


@contextmanager
def notices(*, quiet: bool) -> Iterator[None]:
    """Warnings of the library as notes of one line each, once, without the place in the code.

    Shown when the block ends: a bar that is being drawn is not torn apart.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        finally:
            texts = dict.fromkeys(str(warning.message) for warning in caught)
            note(*texts, quiet=quiet)


def note(*texts: str, quiet: bool) -> None:
    """Say something that is no result."""
    console = rich.console.Console(stderr=True, quiet=quiet)
    for text in texts:
        console.print(rich.text.Text(f"Note: {text}", style="yellow"), soft_wrap=True)


@contextmanager
def progress(name: str, *, quiet: bool, stages: bool = False) -> Iterator[Report]:
    """What long work calls as it goes on: moves a bar, or writes lines where there is no terminal.

    ``stages``: it has several whose times nobody knows beforehand, so that only that of the present one is told.
    """
    pace = _Pace("left of this stage" if stages else "left")
    console = rich.console.Console(stderr=True)  # so that piped output stays clean
    if quiet:
        yield lambda what, done, total: None
    elif console.is_terminal:
        with _bar(name, pace, console) as report:
            yield report
    else:
        with _lines(name, pace) as report:
            yield report


class _Pace:
    """Estimates the time that is left, from the steps after the first, which may be slow for being compiled.

    Steps of another total, or fewer than before, are those of another stage: it has a pace of its own.
    """

    def __init__(self, words: str = "left") -> None:
        self._words = words
        # When the first step was over, what was done by then, what is done now, and the total: one value, since
        # another thread reads it.
        self._state: tuple[float, int, int, int] | None = None

    def tell(self, done: int, total: int) -> None:
        """So much is done now."""
        state = self._state
        if state is None or total != state[3] or done < state[2]:
            self._state = (time.monotonic(), done, done, total) if done > 0 else None
        else:
            self._state = (*state[:2], done, total)

    def left(self) -> str:
        """Time left if the steps to come take as long as those done; nothing before the second is done."""
        from reproduction.report._tables import duration

        state = self._state
        if state is None or not state[1] < state[2] < state[3]:
            return ""
        start, before, done, total = state
        seconds = (time.monotonic() - start) * (total - done) / (done - before)
        return f"about {duration(seconds)} {self._words}"


class _Elapsed(rich.progress.ProgressColumn):
    """The time since the start; that of rich stands still where the steps of a stage are done."""

    def __init__(self) -> None:
        super().__init__()
        self._start = time.monotonic()

    def render(self, task: rich.progress.Task) -> rich.text.Text:
        """Hours, minutes and seconds."""
        del task
        return rich.text.Text(str(timedelta(seconds=int(time.monotonic() - self._start))), "progress.elapsed")


class _Remaining(rich.progress.ProgressColumn):
    """The time that is left, behind a bar; the estimate of rich forgets steps longer than half a minute."""

    def __init__(self, pace: _Pace) -> None:
        super().__init__()
        self._pace = pace

    def render(self, task: rich.progress.Task) -> rich.text.Text:
        """The words behind the bar."""
        del task
        return rich.text.Text(self._pace.left())


@contextmanager
def _bar(name: str, pace: _Pace, console: rich.console.Console) -> Iterator[Report]:
    """A bar that moves, and is gone at the end."""
    words, bar = rich.progress.TextColumn("{task.description}"), rich.progress.BarColumn()
    shown = (words, bar, _Elapsed(), _Remaining(pace))
    with rich.progress.Progress(*shown, console=console, transient=True) as moving:
        task = moving.add_task(f"{name}: starting", total=None)

        def report(what: str, done: int, total: int) -> None:
            pace.tell(done, total)
            # What has no steps, or none behind it, pulses: an empty bar looks as if nothing happened.
            moving.update(task, description=f"{name}: {what}", completed=done, total=total if done else None)

        yield report


@contextmanager
def _lines(name: str, pace: _Pace) -> Iterator[Report]:
    """Say now and then what is being done, from a thread of its own: one step may take minutes."""
    from reproduction.report._tables import duration

    start = time.monotonic()
    latest = "starting"
    over = threading.Event()

    def report(what: str, done: int, total: int) -> None:
        nonlocal latest
        latest = what
        pace.tell(done, total)

    def speak() -> None:
        while not over.wait(_EVERY):
            parts = [f"{name}: {latest}", f"{duration(time.monotonic() - start)} so far", pace.left()]
            sys.stderr.write(", ".join(part for part in parts if part) + "\n")
            sys.stderr.flush()

    speaker = threading.Thread(target=speak, daemon=True)
    speaker.start()
    try:
        yield report
    finally:
        over.set()
        speaker.join()


def print_table(console: rich.console.Console, title: str, rows: Sequence[Mapping[str, object]]) -> None:
    """Print a table; where the terminal is too narrow lines are longer, as a cut number would be another number."""
    from reproduction.report._tables import cell, columns, heading, is_text

    table = rich.table.Table(
        title=rich.text.Text(title), box=rich.box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0)
    )
    for name in columns(rows):
        left = is_text(rows, name)
        longest = max(len(cell(row.get(name))) for row in rows)
        justify: Literal["left", "right"] = "left" if left else "right"
        table.add_column(rich.text.Text(heading(name)), justify=justify, min_width=min(longest, _NARROWEST))
    for row in rows:
        table.add_row(*(rich.text.Text(cell(row.get(name))) for name in columns(rows)))
    unlimited = console.options.update(width=_UNLIMITED)
    needed = rich.measure.Measurement.get(console, unlimited, table).minimum
    table.width = needed if needed > console.width else None
    console.print(table, crop=False)


def show_facts(output: Output, title: str, facts: Mapping[str, object]) -> None:
    """The result of a command that is names with values."""
    if output.as_json:
        print_json(facts)
    rows = [{"what": name, "value": value} for name, value in facts.items()]
    print_table(rich.console.Console(quiet=output.silent), title, rows)
