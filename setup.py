"""Builds the compiled loops; everything else is in pyproject.toml."""

import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CompileError, LinkError

# Fused operations would change the last bits from one processor to the next.
FLAGS = ["/O2", "/fp:precise", "/std:c11"] if sys.platform == "win32" else ["-O3", "-ffp-contract=off", "-std=c11"]


class BuildLoops(build_ext):
    """Says in one sentence what is missing if there is no compiler."""

    def build_extension(self, extension: Extension) -> None:
        """Compile."""
        try:
            super().build_extension(extension)
        except (BaseError, CompileError, LinkError, OSError) as error:
            raise SystemExit(
                f"manifoldrf could not compile src/manifoldrf/_loops.c ({error}): installing from source needs a C "
                "compiler (gcc, clang or Visual C++) and the headers of Python."
            ) from error


loops = Extension(
    "manifoldrf._loops",
    ["src/manifoldrf/_loops.c"],
    extra_compile_args=FLAGS,
    libraries=[] if sys.platform == "win32" else ["m"],
    py_limited_api=True,
)
setup(ext_modules=[loops], cmdclass={"build_ext": BuildLoops}, options={"bdist_wheel": {"py_limited_api": "cp311"}})
