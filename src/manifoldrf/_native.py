"""The compiled loops of ``_loops.c``."""

from importlib import import_module
from typing import Any

try:
    loops: Any = import_module("manifoldrf._loops")
except ImportError as error:
    raise ImportError(
        'The compiled part of manifoldrf is missing: run "make native" in a checkout, or install with pip.'
    ) from error
