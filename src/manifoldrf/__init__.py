"""Any kernel on any curved space as plain, nonnegative feature vectors.

Data flows through the subpackages in this order: ``geometry`` (manifolds, meshes, graphs), ``kernels`` (power
series of a graph's walk), ``signatures`` (rows of these series, exact or from random walks), ``features``
(estimators for scikit-learn), ``applications``. Public names are listed once, in ``__init__.pyi``, and imported on
first use, so ``import manifoldrf`` is quick. A few more are in ``manifoldrf.kernels`` and ``manifoldrf.geometry``.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, _listed, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
