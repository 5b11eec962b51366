"""The compiled loops of ``_loops.c``, and their results as arrays."""

from importlib import import_module
from typing import Any

import numpy as np

try:
    loops: Any = import_module("manifoldrf._loops")
except ImportError as error:
    raise ImportError(
        'The compiled part of manifoldrf is missing: run "make native" in a checkout, or install with pip.'
    ) from error


def arrays(parts: Any, kinds: str) -> list[Any]:
    """Results of a loop as arrays, "l" for int64 and "d" for float64."""
    return [
        np.frombuffer(part, {"l": np.int64, "d": np.float64}[kind]) for part, kind in zip(parts, kinds, strict=True)
    ]
