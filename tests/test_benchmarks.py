"""The shared measurements of the benchmarks are right."""

import subprocess
import sys
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[1] / "benchmarks"


def test_peak_memory_is_that_of_the_process_and_not_of_the_one_that_started_it():
    """Otherwise a process that only transforms would seem to need the memory of the fit."""
    held = np.ones(2**25)  # .25 GB
    command = [sys.executable, "-c", "from table import peak; print(peak())"]
    found = float(subprocess.run(command, capture_output=True, text=True, check=True, cwd=FOLDER).stdout)
    assert 0 < found < held.nbytes / 2**30 / 2
