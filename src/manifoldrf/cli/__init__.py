"""The command line: parses arguments, calls the library, prints what comes back."""

from typing import Any

from manifoldrf.cli._signals import INTERRUPTED, signals_clean_up

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; Ctrl-C and SIGTERM end it quietly even while it is being loaded."""
    with signals_clean_up():
        try:
            from manifoldrf.cli.program import run

            run()
        except KeyboardInterrupt:
            raise SystemExit(INTERRUPTED) from None


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module 'manifoldrf.cli' has no attribute {name!r}")
    from manifoldrf.cli.program import app

    return app
