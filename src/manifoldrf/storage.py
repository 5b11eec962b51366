"""Load models and graphs from files, bit for bit as saved, or raise an error with the reason."""

from collections.abc import Callable
from importlib import import_module
from os import PathLike
from typing import Any

from manifoldrf._codec import STORED_CLASSES, ModelFileError, Registry, load_state
from manifoldrf._runtime import without_warnings
from manifoldrf.applications.interpolation import FieldInterpolator
from manifoldrf.applications.regression import ManifoldGaussianProcess, ManifoldRidge
from manifoldrf.applications.saving import read_features
from manifoldrf.features import manifold_features
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.geometry import graphs
from manifoldrf.geometry.graphs import Graph

__all__ = ["load"]

# Only these classes can be created from a file; nothing in a file is ever run.
REGISTRY: Registry = (
    {"ManifoldRandomFeatures": read_features}
    | {
        name: getattr(import_module(f"manifoldrf.{module}"), name)
        for module, names in STORED_CLASSES.items()
        for name in names
    }
)


def _graph_of(state: dict[str, Any]) -> Graph:
    """The graph of a file; its constructor has checked the parts."""
    graph = state["graph"]
    if not isinstance(graph, Graph):
        raise TypeError("it has no graph")
    return graph


# Functions that make a model from its state, by the kind given in the file.
LOADERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    manifold_features.KIND: ManifoldRandomFeatures._from_state,
    graphs.KIND: _graph_of,
    **{kind.__name__: kind._from_state for kind in (FieldInterpolator, ManifoldGaussianProcess, ManifoldRidge)},
}


@without_warnings(Warning)
def load(path: str | PathLike[str]) -> Any:
    """Load features, a regressor, an interpolator or a graph from the file that its ``save`` wrote.

    The arrays and the results of the model are the same as before saving, bit for bit. Files contain no code, so it
    is safe to load files from strangers. Warnings about the space, such as parts that are not connected, are not
    repeated: they were given at the fit, and the data cannot be changed here.

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
        If the file is truncated, altered, not a model of this library, or written by a newer version of it.

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
        known = ", ".join(sorted(LOADERS))
        raise ModelFileError(f"{path} cannot be loaded: it holds a {kind[:40]!r}, and models are {known}.")
    try:
        return LOADERS[kind](state)
    except MemoryError:
        raise  # not the fault of the file
    except Exception as error:
        raise ModelFileError(f"{path} cannot be loaded: its {kind} is not valid: {error}") from error
