"""The command line: parses arguments, calls the library, prints what comes back."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from manifoldrf.cli._signals import INTERRUPTED, TERMINATED, signals_clean_up

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; Ctrl-C and SIGTERM end it with one line, even while it is being loaded."""
    written: list[Path] = []
    with signals_clean_up():
        try:
            from manifoldrf.cli.program import run

            run(written)
        except KeyboardInterrupt:
            _tell("interrupted", written)
            raise SystemExit(INTERRUPTED) from None
        except SystemExit as stopped:
            if stopped.code == TERMINATED:
                _tell("terminated", written)
            raise


def _tell(what: str, written: list[Path]) -> None:
    """Say what is left of a run that a signal ended."""
    left = ", ".join(str(path) for path in written)
    rest = f"written before, and complete: {left}" if left else "nothing was written"
    with suppress(AttributeError, OSError):  # there may be nobody to be told
        begin = "\n" if sys.stderr.isatty() else ""  # after the ^C of a terminal
        sys.stderr.write(f"{begin}{what}: {rest}\n")
        sys.stderr.flush()


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module 'manifoldrf.cli' has no attribute {name!r}")
    from manifoldrf.cli.program import app

    return app
