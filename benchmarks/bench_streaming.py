"""Whether ``manifoldrf transform`` needs more memory for more points.

Each row of the table says what, the figure seen, the limit, and whether it holds. The program runs in a process of
its own: peak memory for 20 times as many points, over that for the few, for every format of the features: at most
1.1.

An argument selects the rows whose titles contain it. ``--quick`` takes a tenth of the points. Exits with code 1 if
a limit is missed, with ``--quick`` never. The machine is to do nothing else meanwhile.
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from table import Row, run_cases

from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere

MORE = 20
PROGRAM = """
import sys
from table import peak
from typer.testing import CliRunner
from manifoldrf.cli.program import app
done = CliRunner().invoke(app, ["transform", *sys.argv[1:]])
assert done.exit_code == 0, done.output
print(peak())
"""


def peak(folder, points, features):
    """Memory in GB."""
    files = [folder / "model.safetensors", folder / points, "-o", folder / features]
    command = [sys.executable, "-c", PROGRAM, *(str(word) for word in files)]
    here = pathlib.Path(__file__).parent
    return float(subprocess.run(command, capture_output=True, text=True, check=True, cwd=here).stdout)


def streaming(few):
    """Features of a sphere, from files to files."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model = ManifoldRandomFeatures(HeatKernel(0.02), normalize=False, n_features=512, random_state=0).fit(
            Sphere()
        )
        model.save(folder / "model.safetensors")
        np.save(folder / "few.npy", Sphere().sample(few, seed=1))
        np.save(folder / "many.npy", Sphere().sample(MORE * few, seed=2))
        for form in ("npy", "npz", "csv"):
            small = peak(folder, "few.npy", f"features.{form}")
            large = peak(folder, "many.npy", f"features.{form}")
            size = (folder / f"features.{form}").stat().st_size / 2**30
            title = f"peak memory, {MORE * few} points ({large:.2f} GB, file {size:.2f} GB) / {few} points, {form}"
            yield Row(title, large / small, "<=", 1.1)


if __name__ == "__main__":
    run_cases(
        "Memory and time of features from files to files.", {"streaming": streaming}, full=25_000, quick=2_500
    )
