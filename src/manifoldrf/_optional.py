"""Optional dependencies: imported on first use, and a clear sentence where one is missing."""

import importlib
import importlib.util
from typing import Any


def require(module: str, extra: str) -> Any:
    """Import ``module``, or say which extra of manifoldrf installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name.split(".")[0]):
            raise  # the package is there, but something it needs is not: its own message is better
        package = module.split(".")[0]
        text = f"This needs the package {package!r}. Install it with: pip install 'manifoldrf[{extra}]'"
        raise ModuleNotFoundError(text, name=package) from error


def available(module: str) -> bool:
    """Whether an optional package is installed (without importing it)."""
    return importlib.util.find_spec(module) is not None
