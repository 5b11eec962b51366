"""``python -m manifoldrf`` runs the command line."""

from manifoldrf.cli import main

if __name__ == "__main__":
    main()
