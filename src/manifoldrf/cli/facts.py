"""What is installed, and on what machine."""

from typing import Any

from manifoldrf.cli._console import show_facts
from manifoldrf.cli._options import Output

_EXTRAS = {"mesh": "trimesh", "ann": "faiss", "viz": "matplotlib", "dask": "distributed"}


def info(output: Output) -> None:
    """Print versions, threads, devices, and which optional parts are installed.

    Example: manifoldrf info --json
    """
    from manifoldrf._optional import available
    from manifoldrf._validation import check_jobs
    from manifoldrf.experiments.record import environment

    facts = environment() | {"threads": str(check_jobs(-1)), "devices": ", ".join(_devices())}
    facts |= {f"extra {name}": "yes" if available(package) else "no" for name, package in _EXTRAS.items()}
    show_facts(output, "manifoldrf", facts)


def _devices() -> list[str]:
    """Where networks can be trained and attention can run."""
    import torch

    cuda: Any = torch.cuda
    return ["cpu", *(f"cuda:{k} {cuda.get_device_name(k)}" for k in range(cuda.device_count()))]
