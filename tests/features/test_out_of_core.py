"""Points in files: read where they lie, with no copy in memory but where their numbers are of another kind."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from memory import needs_counts

from manifoldrf import Sphere

# In many coordinates a copy of the points is far larger than what a fit keeps of each of them.
N, D = 150_000, 96
CLEANING = 1e8  # bytes in which a part of any large cloud is searched for noise
PROGRAM = """
import sys
import numpy as np
from memory import peak_memory, start_memory
from manifoldrf import GraphOptions, HeatKernel, ManifoldRandomFeatures

points, few = (np.load(path, mmap_mode="r") for path in sys.argv[1:])
options = {"n_features": 30, "random_state": 0, "n_jobs": 1, "graph": GraphOptions(n_nodes=1000, dim=2)}

def grown(work):
    before = start_memory()
    work()
    return peak_memory() - before

def fit(rows):
    return ManifoldRandomFeatures(HeatKernel(0.3), **options).fit(rows)

model = fit(few)  # compiled code is there then

def stream(rows):
    for block in model.transform_blocks(rows, n_rows=2000):
        del block

stream(few)
print(grown(lambda: fit(points)), grown(lambda: stream(points[:4000])), grown(lambda: stream(points[:24_000])))
"""


def grown(tmp_path, dtype, order):
    """Bytes by which a process grows: by a fit, by streaming 4000 points and by streaming 24,000."""
    frame = np.linalg.qr(np.random.default_rng(0).standard_normal((D, 3)))[0].T
    files = [tmp_path / "points.npy", tmp_path / "few.npy"]
    for file, n in zip(files, (N, 4000), strict=True):
        np.save(file, np.asarray(Sphere().sample(n, seed=n) @ frame, dtype=dtype, order=order))
    places = [str(Path(__file__).parents[1]), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, files)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(places)},
    )
    return [int(word) for word in done.stdout.split()]


@pytest.mark.slow
@needs_counts
def test_points_on_a_disk_are_not_copied(tmp_path):
    """Pages of the file that were read are counted, too."""
    fit, _, many = grown(tmp_path, "float64", "C")
    array = 8 * N * D
    # Of each point a fit keeps a distance, its place in a tree and in an order, and nodes of the tree: 64 bytes.
    # A copy of the points would make it twice the array.
    assert fit < 1.5 * array + 64 * N + CLEANING < 2 * array + CLEANING
    # The memory of one block serves the next, and pages of the file have been read before: nothing is added.
    read = 8 * 24_000 * D
    assert many < 4e6 < 0.5 * read


@needs_counts
@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "order"), [("float32", "C"), ("float64", "F"), ("float32", "F")])
def test_a_fit_converts_other_numbers_once(tmp_path, dtype, order):
    """To double precision, in the order of rows."""
    copy = 8 * N * D
    mapped = N * D * np.dtype(dtype).itemsize
    assert grown(tmp_path, dtype, order)[0] < mapped + 1.5 * copy + 64 * N + CLEANING
