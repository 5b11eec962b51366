"""Load models and graphs from files, bit for bit as saved, or raise an error with the reason."""

from os import PathLike
from typing import Any

from manifoldrf._codec import ModelFileError, load_value
from manifoldrf._runtime import without_warnings

# Importing these registers (by `stored`) every class that files may hold.
from manifoldrf.applications import interpolation, regression  # noqa: F401
from manifoldrf.applications.saving import SavedEstimator
from manifoldrf.features.manifold_features import ManifoldRandomFeatures
from manifoldrf.geometry import surfaces  # noqa: F401
from manifoldrf.geometry.graphs import Graph


@without_warnings(Warning)
def load(path: str | PathLike[str]) -> Any:
    """Load features, a regressor, an interpolator or a graph from the file that its ``save`` wrote.

    The arrays and the results of the model are the same as before saving, bit for bit. Files contain no code, so it
    is safe to load files from strangers. Warnings about the space, such as disconnected parts, were given at the
    fit and are not repeated.

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
        If the file is truncated, altered, not a model of this library, or of another version of the format.

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
    model = load_value(path)
    if not isinstance(model, Graph | ManifoldRandomFeatures | SavedEstimator):
        raise ModelFileError(f"{path} cannot be loaded: it holds a {type(model).__name__}, which is not a model.")
    return model
