"""Without torch everything works except networks and attention, whose errors name the extra."""

import os
import subprocess
import sys
from pathlib import Path

NO_TORCH = """
import sys

class NoTorch:
    # scipy looks into sys.modules, so an entry None there would break it
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, NoTorch)
"""

WORK = """
import numpy as np
import manifoldrf as m
points = m.Sphere().sample(200, seed=0)
new = m.Sphere().sample(20, seed=1)
heights = points[:, 2]

features = m.ManifoldRandomFeatures(m.HeatKernel(0.5), n_features=64, random_state=0).fit(points)
rows = features.transform(new)
assert rows.shape == (20, 64)
features.save("model.safetensors")
np.testing.assert_array_equal(m.load("model.safetensors").transform(new), rows)

process = m.ManifoldGaussianProcess(space=points, random_state=0).fit(points[:60], heights[:60])
mean, std = process.predict(new, return_std=True)
assert np.abs(mean - new[:, 2]).max() < 0.2 and (std > 0).all()
ridge = m.ManifoldRidge(space=points, random_state=0).fit(points[:60], heights[:60])
assert np.abs(ridge.predict(new) - new[:, 2]).max() < 0.2

known = np.arange(200) % 4 == 0
for method in ("auto", "kernel"):
    field = m.FieldInterpolator(method, random_state=0).fit(points, heights, known)
    assert np.abs(field.predict() - heights).max() < 0.5, method

assert m.KernelNeighborsClassifier().fit(rows, new[:, 2] > 0).score(rows, new[:, 2] > 0) == 1
assert m.explore(features, "page.html", n_points=200).n_points == 200

assert not any(name.split(".")[0] == "torch" for name in sys.modules)
print("works")
"""

ATTENTION = """
for module in ("torch", "gpytorch"):
    try:
        __import__(f"manifoldrf.{module}")
    except ModuleNotFoundError as error:
        assert f"pip install 'manifoldrf[torch]'" in str(error), error
        assert error.name == "torch"
    else:
        raise AssertionError(f"{module} was imported without torch")
"""

COMMANDS = """
import numpy as np
import manifoldrf as m
from manifoldrf.cli import main
np.save("points.npy", m.Sphere().sample(200, seed=0))
np.save("new.npy", m.Sphere().sample(9, seed=1))
np.savetxt("known.csv", np.column_stack([np.arange(0, 200, 3), np.linspace(0, 1, 67)]), delimiter=",")
for line in (
    "fit points.npy -o model.safetensors --t .3 --n-features 32",
    "transform model.safetensors new.npy -o rows.npy",
    "kernel model.safetensors new.npy -o kernel.npy",
    "interpolate points.npy known.csv -o filled --method harmonic",
    "explore model.safetensors -o page.html --n-points 200",
):
    sys.argv = ["manifoldrf", *line.split(), "--quiet"]
    try:
        main()
    except SystemExit as end:
        assert not end.code, line
assert np.load("rows.npy").shape == (9, 32)
assert not any(name.split(".")[0] == "torch" for name in sys.modules)
"""


def run(code, folder):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-W", "ignore", "-c", NO_TORCH + code]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_all_but_attention_works_and_its_error_names_the_extra(tmp_path: Path):
    """In one process, since each takes seconds to start: the README's first lines, the library, the commands."""
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    block = readme.split("```python\n")[1].split("```")[0]
    printed = run(block + ATTENTION + WORK + COMMANDS, tmp_path)
    assert printed[:2] == ["(300,", "512)"]
    assert printed[-1] == "works"
