"""Any kernel on any curved space as plain, positive feature vectors.

The stages, in the order data flows through them: ``geometry`` (manifolds, meshes, graphs), ``kernels`` (power
series of a graph's walk), ``signatures`` (their rows, exact or walked), ``fields`` (signatures carried to new
points), ``features`` (for scikit-learn), ``storage``. Public names are imported on first use, so that
``import manifoldrf`` itself is quick.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from manifoldrf._container import ModelFileError
    from manifoldrf.applications.exhaustion import Exhaustion, ExhaustionRow, exhaustion
    from manifoldrf.applications.interpolation import FieldInterpolator, InterpolationInfo, InterpolationWarning
    from manifoldrf.applications.neighbors import KernelNeighborsClassifier
    from manifoldrf.applications.regression import ManifoldGaussianProcess, ManifoldRidge
    from manifoldrf.applications.textures import covariance_descriptors, dense_corners, texture_channels
    from manifoldrf.distributed.cluster import Cluster
    from manifoldrf.explorer.page import ExplorerPage, explore
    from manifoldrf.features.errors import ErrorEstimate
    from manifoldrf.features.fitting import FeatureWarning
    from manifoldrf.features.graph_features import GraphRandomFeatures
    from manifoldrf.features.graph_options import GraphOptions
    from manifoldrf.features.manifold_features import ManifoldRandomFeatures
    from manifoldrf.features.proximity import FarQueryWarning
    from manifoldrf.fields.abstract_field import AbstractField, FieldData
    from manifoldrf.fields.mlp_options import TrainingInfo
    from manifoldrf.geometry.abstract_manifold import AbstractManifold
    from manifoldrf.geometry.adjacency import GeneralizedAdjacency
    from manifoldrf.geometry.builders import grid_graph, knn_graph, mesh_graph
    from manifoldrf.geometry.dimension import estimate_dimension
    from manifoldrf.geometry.grading import GradedPoints, graded_points
    from manifoldrf.geometry.graphs import Graph, GraphWarning
    from manifoldrf.geometry.heat import heat_graph
    from manifoldrf.geometry.meshes import MeshReport, MeshSample, TriangleMesh
    from manifoldrf.geometry.model_spaces import EuclideanSpace, FlatTorus, HyperbolicSpace, Sphere
    from manifoldrf.geometry.sampling import thin
    from manifoldrf.geometry.spd import spd_to_vectors, vectors_to_spd
    from manifoldrf.geometry.surfaces import Ellipsoid, MobiusStrip, Torus
    from manifoldrf.kernels.abstract_kernel import AbstractKernel
    from manifoldrf.kernels.graph_kernels import (
        CosineKernel,
        DiffusionKernel,
        PowerKernel,
        RandomWalkKernel,
        RegularizedLaplacianKernel,
    )
    from manifoldrf.kernels.manifold_kernels import HeatKernel, MaternKernel
    from manifoldrf.kernels.series import SeriesFit, SeriesKernel
    from manifoldrf.metrics import Errors, align, errors_of, relative_error
    from manifoldrf.signatures.record import SignatureInfo, Signatures
    from manifoldrf.signatures.teachers import compute_signature_pair, compute_signatures
    from manifoldrf.storage import load

__version__ = "0.1.0"

# Where each public name lives.
_HOMES = {
    "AbstractField": "fields.abstract_field",
    "AbstractKernel": "kernels.abstract_kernel",
    "AbstractManifold": "geometry.abstract_manifold",
    "Cluster": "distributed.cluster",
    "CosineKernel": "kernels.graph_kernels",
    "DiffusionKernel": "kernels.graph_kernels",
    "Ellipsoid": "geometry.surfaces",
    "ErrorEstimate": "features.errors",
    "Errors": "metrics",
    "EuclideanSpace": "geometry.model_spaces",
    "Exhaustion": "applications.exhaustion",
    "ExhaustionRow": "applications.exhaustion",
    "ExplorerPage": "explorer.page",
    "FarQueryWarning": "features.proximity",
    "FeatureWarning": "features.fitting",
    "FieldData": "fields.abstract_field",
    "FieldInterpolator": "applications.interpolation",
    "FlatTorus": "geometry.model_spaces",
    "GeneralizedAdjacency": "geometry.adjacency",
    "GradedPoints": "geometry.grading",
    "Graph": "geometry.graphs",
    "GraphOptions": "features.graph_options",
    "GraphRandomFeatures": "features.graph_features",
    "GraphWarning": "geometry.graphs",
    "HeatKernel": "kernels.manifold_kernels",
    "HyperbolicSpace": "geometry.model_spaces",
    "InterpolationInfo": "applications.interpolation",
    "InterpolationWarning": "applications.interpolation",
    "KernelNeighborsClassifier": "applications.neighbors",
    "ManifoldGaussianProcess": "applications.regression",
    "ManifoldRandomFeatures": "features.manifold_features",
    "ManifoldRidge": "applications.regression",
    "MaternKernel": "kernels.manifold_kernels",
    "MeshReport": "geometry.meshes",
    "MeshSample": "geometry.meshes",
    "MobiusStrip": "geometry.surfaces",
    "ModelFileError": "_container",
    "PowerKernel": "kernels.graph_kernels",
    "RandomWalkKernel": "kernels.graph_kernels",
    "RegularizedLaplacianKernel": "kernels.graph_kernels",
    "SeriesFit": "kernels.series",
    "SeriesKernel": "kernels.series",
    "SignatureInfo": "signatures.record",
    "Signatures": "signatures.record",
    "Sphere": "geometry.model_spaces",
    "Torus": "geometry.surfaces",
    "TrainingInfo": "fields.mlp_options",
    "TriangleMesh": "geometry.meshes",
    "align": "metrics",
    "compute_signature_pair": "signatures.teachers",
    "compute_signatures": "signatures.teachers",
    "covariance_descriptors": "applications.textures",
    "dense_corners": "applications.textures",
    "errors_of": "metrics",
    "estimate_dimension": "geometry.dimension",
    "exhaustion": "applications.exhaustion",
    "explore": "explorer.page",
    "graded_points": "geometry.grading",
    "grid_graph": "geometry.builders",
    "heat_graph": "geometry.heat",
    "knn_graph": "geometry.builders",
    "load": "storage",
    "mesh_graph": "geometry.builders",
    "relative_error": "metrics",
    "spd_to_vectors": "geometry.spd",
    "texture_channels": "applications.textures",
    "thin": "geometry.sampling",
    "vectors_to_spd": "geometry.spd",
}

__all__ = [
    "AbstractField",
    "AbstractKernel",
    "AbstractManifold",
    "Cluster",
    "CosineKernel",
    "DiffusionKernel",
    "Ellipsoid",
    "ErrorEstimate",
    "Errors",
    "EuclideanSpace",
    "Exhaustion",
    "ExhaustionRow",
    "ExplorerPage",
    "FarQueryWarning",
    "FeatureWarning",
    "FieldData",
    "FieldInterpolator",
    "FlatTorus",
    "GeneralizedAdjacency",
    "GradedPoints",
    "Graph",
    "GraphOptions",
    "GraphRandomFeatures",
    "GraphWarning",
    "HeatKernel",
    "HyperbolicSpace",
    "InterpolationInfo",
    "InterpolationWarning",
    "KernelNeighborsClassifier",
    "ManifoldGaussianProcess",
    "ManifoldRandomFeatures",
    "ManifoldRidge",
    "MaternKernel",
    "MeshReport",
    "MeshSample",
    "MobiusStrip",
    "ModelFileError",
    "PowerKernel",
    "RandomWalkKernel",
    "RegularizedLaplacianKernel",
    "SeriesFit",
    "SeriesKernel",
    "SignatureInfo",
    "Signatures",
    "Sphere",
    "Torus",
    "TrainingInfo",
    "TriangleMesh",
    "align",
    "compute_signature_pair",
    "compute_signatures",
    "covariance_descriptors",
    "dense_corners",
    "errors_of",
    "estimate_dimension",
    "exhaustion",
    "explore",
    "graded_points",
    "grid_graph",
    "heat_graph",
    "knn_graph",
    "load",
    "mesh_graph",
    "relative_error",
    "spd_to_vectors",
    "texture_channels",
    "thin",
    "vectors_to_spd",
]


def __getattr__(name: str) -> object:
    """Import a public name on first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'manifoldrf' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"manifoldrf.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
