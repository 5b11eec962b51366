"""Install a wheel with what it requires in an empty environment, and use it there: times in CPU seconds, and sizes.

python .ci/check_wheel.py dist/manifoldrf-*.whl
"""

import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
LARGEST = 320  # MB of an installation
POINTS = "import manifoldrf as m, numpy as np; p = m.Sphere().sample(1000, seed=0); "
CSV = POINTS + "np.savetxt('points.csv', p, delimiter=',')"
PLY = POINTS + "from scipy.spatial import ConvexHull; m.TriangleMesh(p, ConvexHull(p).simplices).save('mesh.ply')"


def used():
    """CPU seconds of finished children; seconds of the clock on Windows, which does not count them."""
    times = os.times()
    return times.children_user + times.children_system or time.perf_counter()


def main():
    """Run everything; a command that fails ends the program with its output."""
    (wheel,) = map(Path, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        venv.create(f"{folder}/venv", with_pip=True)
        programs = Path(folder, "venv", "Scripts" if sys.platform == "win32" else "bin")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}

        def run(title, program, *arguments):
            before, command = used(), [str(programs / program), *map(str, arguments)]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(f"{title} failed:\n{done.stdout}{done.stderr}")
            print(f"{title:42} {used() - before:8.2f} s", flush=True)  # noqa: T201

        packages = next(Path(folder, "venv").rglob("site-packages"))
        before = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file())
        run("install", "python", "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel.resolve())
        size = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) - before
        print(f"{'size of the wheel':42} {wheel.stat().st_size / 1e6:8.2f} MB")  # noqa: T201
        print(f"{'size of the installation':42} {size / 1e6:8.0f} MB")  # noqa: T201
        block = re.search(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text("utf-8"), flags=re.M | re.S)[1]
        run("python", "python", "-c", "")
        run("import manifoldrf", "python", "-c", "import manifoldrf")
        for title, code in {
            "import ManifoldRandomFeatures": "from manifoldrf import ManifoldRandomFeatures",
            "ten lines of the README": block,
            "write points.csv": CSV,
            "write mesh.ply": PLY,
        }.items():
            run(title, "python", "-c", code)
        run("manifoldrf --help", "manifoldrf", "--help")
        for name in ("points.csv", "mesh.ply"):
            run(f"manifoldrf fit {name}", "manifoldrf", "fit", name, "-o", f"{name}.safetensors")
        run(
            "manifoldrf transform", "manifoldrf", "transform", "points.csv.safetensors", "points.csv", "-o", "f.npy"
        )
        if size > LARGEST * 1e6:
            sys.exit(f"The installation is larger than {LARGEST} MB.")


main()
