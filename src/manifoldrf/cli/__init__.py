"""The command line: parses arguments, calls the library, prints what comes back."""

from typing import Any

__all__ = ["app", "main"]


def main() -> None:
    """Run the command line; Ctrl-C ends it quietly even while it is being loaded."""
    try:
        from manifoldrf.cli.program import run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module 'manifoldrf.cli' has no attribute {name!r}")
    from manifoldrf.cli.program import app

    return app
