"""Models in files: what was saved comes back with the same bits, or is refused with a reason."""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from os import PathLike
from types import ModuleType
from typing import Any

import manifoldrf.features as features
import manifoldrf.fields as fields
import manifoldrf.geometry as geometry
import manifoldrf.kernels as kernels
import manifoldrf.signatures as signatures
from manifoldrf._codec import ModelFileError, is_storable, load_state
from manifoldrf._random import Streams
from manifoldrf.features import manifold_features
from manifoldrf.features.integrity import check_graph
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.geometry import graphs
from manifoldrf.geometry.graphs import Graph

__all__ = ["load"]


def _records(package: ModuleType) -> Iterator[type]:
    """The storable classes that the modules of a package define."""
    for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        module = importlib.import_module(found.name)
        for value in vars(module).values():
            if isinstance(value, type) and value.__module__ == module.__name__ and is_storable(value):
                yield value


def _registry(*classes: type) -> dict[str, type]:
    """Classes by name; two of one name could not be told apart in a file."""
    result: dict[str, type] = {}
    for kind in classes:
        other = result.setdefault(kind.__name__, kind)
        if other is not kind:
            raise RuntimeError(f"{other.__module__} and {kind.__module__} both have a storable {kind.__name__}.")
    return result


# A file names classes, and only these are made again: nothing in a file is ever run.
_STAGES = (geometry, kernels, signatures, fields, features)
REGISTRY = _registry(Streams, *(kind for package in _STAGES for kind in _records(package)))


def _graph_of(state: dict[str, Any]) -> Graph:
    """The graph of a file; raises where its parts do not fit together."""
    graph = state["graph"]
    if not isinstance(graph, Graph):
        raise TypeError("it has no graph")
    check_graph(graph)
    return graph


# From the kind of a model to what makes it of its state.
LOADERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    manifold_features.KIND: ManifoldRandomFeatures._from_state,
    graphs.KIND: _graph_of,
}


def load(path: str | PathLike[str]) -> Any:
    """Load a model or a graph from the file that its ``save`` wrote.

    The arrays have the same bits as those saved, and the model gives the same bits as the one saved. No code is run
    that is in the file: loading a file of a stranger is safe.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    model
        Of the class that was saved.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ModelFileError
        If the file is cut off, altered, no model of this library, or made by a newer version of it.

    Examples
    --------
    >>> from pathlib import Path
    >>> from tempfile import TemporaryDirectory
    >>> from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere, load
    >>> features = ManifoldRandomFeatures(HeatKernel(0.1), random_state=0).fit(Sphere())
    >>> points = Sphere().sample(5, seed=0)
    >>> with TemporaryDirectory() as folder:
    ...     path = features.save(Path(folder) / "sphere.safetensors")
    ...     again = load(path)
    >>> bool((again.transform(points) == features.transform(points)).all())
    True
    """
    kind, state = load_state(path, REGISTRY)
    if kind not in LOADERS:
        known = ", ".join(sorted(LOADERS)) or "none"
        raise ModelFileError(f"{path} cannot be loaded: it holds a {kind[:40]!r}, and models are {known}.")
    try:
        return LOADERS[kind](state)
    except MemoryError:
        raise  # the file is not to blame
    except Exception as error:
        raise ModelFileError(f"{path} cannot be loaded: its {kind} is not valid: {error}") from error
