"""The command line: parses arguments, calls the library, prints the results."""

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["main", "run_program"]

INTERRUPTED = 128 + signal.SIGINT  # exit codes, as shells define them
TERMINATED = 128 + signal.SIGTERM

# A second signal within this time is part of the first: it must not stop the cleaning up.
_ONE_SIGNAL = 1.0  # seconds


def main() -> None:
    """Run the program ``manifoldrf``."""
    run_program("manifoldrf", _load_app)


def run_program(name: str, load: Callable[[], Any]) -> None:
    """Run a program whose typer app ``load`` imports.

    Ctrl-C and SIGTERM end it with one line, even while it is being loaded.
    """
    written: list[Path] = []
    with _handled_signals():
        try:
            from manifoldrf.cli.console import run

            run(load(), name, written)
        except KeyboardInterrupt:
            _print_end("interrupted", written)
            raise SystemExit(INTERRUPTED) from None
        except SystemExit as stopped:
            if stopped.code == TERMINATED:
                _print_end("terminated", written)
            raise


@contextmanager
def _handled_signals() -> Iterator[None]:
    """Let SIGTERM unwind the program as Ctrl-C does, with its own exit code, until the block ends.

    A signal that the caller ignores (as ``nohup`` does) or handles is left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    latest = -math.inf

    def end(number: int, _: FrameType | None) -> None:
        nonlocal latest
        now, before = time.monotonic(), latest
        latest = now
        if now - before < _ONE_SIGNAL:
            return
        if number == signal.SIGTERM:
            raise SystemExit(TERMINATED)
        raise KeyboardInterrupt

    usual = ((signal.SIGINT, signal.default_int_handler), (signal.SIGTERM, signal.SIG_DFL))
    before = {number: handler for number, plain in usual if (handler := signal.getsignal(number)) == plain}
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_end(what: str, written: list[Path]) -> None:
    """Say which files are complete when a signal ends the program."""
    files = ", ".join(str(path) for path in written)
    rest = f"written before, and complete: {files}" if files else "nothing was written"
    with suppress(AttributeError, OSError):  # stderr may be closed
        begin = "\n" if sys.stderr.isatty() else ""  # after the ^C of a terminal
        sys.stderr.write(f"{begin}{what}: {rest}\n")
        sys.stderr.flush()


def _load_app() -> Any:
    from manifoldrf.cli.program import app

    return app
