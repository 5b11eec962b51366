"""The paper's experiments. ``python -m reproduction`` lists them, ``python -m reproduction NAME`` runs one."""
