"""The command line: parses arguments, calls the library, prints what comes back."""

from manifoldrf.cli.app import app, main

__all__ = ["app", "main"]
