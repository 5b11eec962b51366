"""Run the quick tests in a new environment, with the lowest or the newest versions of what the package requires.

python .ci/test_versions.py lowest [tests ...]
"""

import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
# Those that need no extra but that of meshes.
GEOMETRY = [
    f"tests/geometry/test_{name}.py"
    for name in ("builders", "csr", "farthest_nodes", "graphs", "neighbors", "thinning")
]
TESTS = [*GEOMETRY, "tests/kernels", "tests/signatures", "tests/features/test_rules.py", "tests/test_native.py"]


def main():
    """Create the environment, install and test."""
    which, *tests = sys.argv[1:]
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needs = project["dependencies"] + project["optional-dependencies"]["mesh"]
    lowest = [re.sub(r">=([\w.]+)", r"==\1", need) for need in needs]
    # One or two numbers of a version stand for its newest correction.
    pinned = [re.sub(r"==(\d+(\.\d+)?)$", r"==\1.*", need) for need in lowest] if which == "lowest" else []
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder, "Scripts/python.exe" if sys.platform == "win32" else "bin/python")

        def run(*arguments):
            if code := subprocess.run([python, *arguments], cwd=ROOT, check=False).returncode:
                sys.exit(code)

        run("-m", "pip", "install", "--quiet", ".[mesh]", "pytest", "hypothesis", *pinned)
        run("-m", "pip", "list")
        # The sources of the checkout are not on the path: the installed package is tested.
        run("-m", "pytest", "-q", "-m", "not slow", "-p", "no:cacheprovider", *(tests or TESTS))


main()
