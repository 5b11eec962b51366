"""What is installed, and on what machine; what a saved file holds."""

from pathlib import Path
from typing import Annotated, Any

import typer

from manifoldrf.cli._console import show, show_facts
from manifoldrf.cli._inputs import read_any
from manifoldrf.cli._options import Output

_EXTRAS = {"mesh": "trimesh", "ann": "faiss", "viz": "matplotlib", "dask": "distributed"}
_SAVED = typer.Argument(
    metavar="MODEL", help="A model or a graph, to say what it is; versions without it.", show_default=False
)


def info(output: Output, source: Annotated[str | None, _SAVED] = None) -> None:
    """Print what a saved model or graph is; without one versions, threads, devices, and the optional parts.

    Examples: manifoldrf info bunny.safetensors

    manifoldrf info --json
    """
    if source is None:
        show_facts(output, "manifoldrf", _installed())
        return
    from manifoldrf import Graph

    saved = read_any(source, "MODEL")
    facts = _file_facts(source, saved)
    if isinstance(saved, Graph):
        show_facts(output, "graph", facts | graph_facts(saved))
        return
    facts |= {"coordinates": saved.n_features_in_, "dimension": saved.map_.problem.dim} | model_facts(saved)
    size = f"{facts['bytes'] / 1e6:.2f} MB, format {facts['format']}"
    head = f"{source}: {facts['kind']} of points with {facts['coordinates']} coordinates, {size}"
    show(output, facts, f"{head}\n{saved.summary()}")


def model_facts(features: Any) -> dict[str, Any]:
    """What a machine wants to know of fitted features."""
    error = features.error_
    return {
        "kernel": repr(features.kernel_),
        "nodes": features.graph_.n_nodes,
        "features": features.n_features_out_,
        "field": features.field_,
        "weights": features.quadrature_,
        "error": {name: getattr(error, name) for name in ("kernel", "field", "quadrature", "graph")},
    }


def graph_facts(graph: Any) -> dict[str, Any]:
    """What a graph is, in numbers."""
    loops = int((graph.affinity.diagonal() != 0).sum())
    return {
        "nodes": graph.n_nodes,
        "edges": (graph.affinity.nnz - loops) // 2,
        "components": graph.n_components,
        "smallest degree": float(graph.degrees.min()),
        "largest degree": float(graph.degrees.max()),
        "steps": graph.n_steps,
        "time of a step": graph.step_time,
        "volume": None if graph.weights is None else float(graph.weights.sum()),
    }


def _file_facts(source: str, saved: Any) -> dict[str, Any]:
    """Of a file that was loaded: its size, and the version of its format."""
    from safetensors import safe_open

    with safe_open(source, "numpy") as file:
        version = int(file.metadata()["format_version"])
    return {"file": source, "kind": type(saved).__name__, "bytes": Path(source).stat().st_size, "format": version}


def _installed() -> dict[str, str]:
    """Versions, threads, devices, extras."""
    from reproduction.record import environment

    from manifoldrf._runtime import available
    from manifoldrf._validation import check_jobs

    facts = environment() | {"threads": str(check_jobs(-1)), "devices": ", ".join(_devices())}
    return facts | {f"extra {name}": "yes" if available(package) else "no" for name, package in _EXTRAS.items()}


def _devices() -> list[str]:
    """Where networks can be trained and attention can run."""
    import torch

    cuda: Any = torch.cuda
    return ["cpu", *(f"cuda:{k} {cuda.get_device_name(k)}" for k in range(cuda.device_count()))]
