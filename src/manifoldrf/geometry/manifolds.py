"""Curved spaces that are known in closed form: grids, uniform samples, distances and exact heat kernels.

The one place to import them from. :class:`AbstractManifold` holds every public method, with its checks, once; a
concrete manifold supplies the formulas. Lengths are in the manifold's own units, times those of e^{t Delta}.
"""

from manifoldrf.geometry.abstract_manifold import AbstractManifold
from manifoldrf.geometry.model_spaces import EuclideanSpace, FlatTorus, HyperbolicSpace, Sphere
from manifoldrf.geometry.surfaces import Ellipsoid, MobiusStrip, Torus

__all__ = [
    "AbstractManifold",
    "Ellipsoid",
    "EuclideanSpace",
    "FlatTorus",
    "HyperbolicSpace",
    "MobiusStrip",
    "Sphere",
    "Torus",
]
