"""Load models and graphs from files, bit for bit as saved, or raise an error with the reason."""

from collections.abc import Callable
from os import PathLike
from typing import Any

from manifoldrf._codec import ModelFileError, Registry, load_state
from manifoldrf.features import manifold_features
from manifoldrf.features.errors import ErrorEstimate
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.features.options import GraphOptions
from manifoldrf.features.state import RECORDS
from manifoldrf.fields.gaussian import GaussianField
from manifoldrf.fields.geodesics import GraphDistances
from manifoldrf.fields.interpolated import InterpolatedField, SurfaceInterpolation, TangentInterpolation
from manifoldrf.fields.local import LocalField
from manifoldrf.fields.mlp import MlpField
from manifoldrf.fields.network import Frame
from manifoldrf.fields.step import StepField
from manifoldrf.fields.training import TrainingInfo
from manifoldrf.geometry import graphs
from manifoldrf.geometry.builders import GridExtension, MeshExtension, NeighborExtension
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.heat import HeatExtension, SheetReach, SurfaceReach
from manifoldrf.geometry.local_surface import LocalSurface
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.model_spaces import EuclideanSpace, FlatTorus, HyperbolicSpace, Sphere
from manifoldrf.geometry.neighbors import NeighborSearch
from manifoldrf.geometry.surfaces import Ellipsoid, MobiusStrip, Torus
from manifoldrf.kernels.abstract_kernel import ProductKernel, RootKernel, ScaledKernel, SumKernel
from manifoldrf.kernels.graph_kernels import (
    CosineKernel,
    DiffusionKernel,
    PowerKernel,
    RandomWalkKernel,
    RegularizedLaplacianKernel,
    ShiftedKernel,
)
from manifoldrf.kernels.manifold_kernels import GammaMixtureKernel, HeatKernel, MaternKernel
from manifoldrf.kernels.series import SeriesKernel

__all__ = ["load"]

# Only these classes can be created from a file; nothing in a file is ever run.
_CLASSES: tuple[type, ...] = (
    *(CosineKernel, DiffusionKernel, GammaMixtureKernel, HeatKernel, MaternKernel, PowerKernel, ProductKernel),
    *(RandomWalkKernel, RegularizedLaplacianKernel, RootKernel, ScaledKernel, SeriesKernel, ShiftedKernel),
    SumKernel,
    *(Ellipsoid, EuclideanSpace, FlatTorus, HyperbolicSpace, MobiusStrip, Sphere, Torus, TriangleMesh),
    *(Graph, GridExtension, HeatExtension, LocalSurface, MeshExtension, NeighborExtension, NeighborSearch),
    *(Frame, GaussianField, GraphDistances, InterpolatedField, LocalField, MlpField, StepField),
    *(
        ErrorEstimate,
        GraphOptions,
        SheetReach,
        SurfaceInterpolation,
        SurfaceReach,
        TangentInterpolation,
        TrainingInfo,
    ),
)
REGISTRY: Registry = {**{kind.__name__: kind for kind in _CLASSES}, **RECORDS}


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
}


def load(path: str | PathLike[str]) -> Any:
    """Load a model or a graph from the file that its ``save`` wrote.

    The arrays and the results of the model are the same as before saving, bit for bit. Files contain no code, so it
    is safe to load files from strangers.

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
