"""``python -m reproduction``: the command line of the experiments, with the conventions of ``manifoldrf``."""

from typing import Any

from manifoldrf.cli import run_program


def main() -> None:
    """Run the program."""
    run_program("python -m reproduction", _load_app)


def _load_app() -> Any:
    from reproduction.commands import app

    return app


if __name__ == "__main__":
    main()
