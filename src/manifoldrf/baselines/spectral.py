"""Baselines by eigenvectors: spectral features of a kernel on a graph, and diffusion maps."""

import functools
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from manifoldrf._random import SeedLike, Streams
from manifoldrf._validation import (
    POSITIVE,
    FloatArray,
    check_flag,
    check_integer,
    check_jobs,
    check_real,
    naming,
    reject,
)
from manifoldrf.baselines._base import AbstractBaseline, KernelMethodMixin, KernelParameterMixin
from manifoldrf.baselines._eigen import SpectralMap, Spectrum
from manifoldrf.features._params import FrozenParamsMixin
from manifoldrf.features._points import estimator_points
from manifoldrf.features._products import product
from manifoldrf.features.plans import check_space
from manifoldrf.features.proximity import warn_of_far
from manifoldrf.features.spaces import Space, prepare_space
from manifoldrf.geometry.builders import knn_graph
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.kernels.graph_kernels import DiffusionKernel

__all__ = ["DiffusionMap", "SpectralFeatures"]

# Neighbours of a node in the graph of a diffusion map. The weights of a Gaussian with the median of their squared
# distances as bandwidth fall to .13 on surfaces, whatever their number; few make the walk see single nodes.
_NEIGHBORS = 32
_STEPS_BY_DEFAULT = 20.0  # the paper's


class _AbstractSpectral(AbstractBaseline):
    """Features sqrt(h(lambda_k)) psi_k of a graph, carried to new points by one step of its walk."""

    n_features: int | str
    graph: Any

    def _check_data(self, X: Any) -> Any:
        return check_space(self, X)

    def _prepare(self, data: Any, kernel: Any, graph: Any, streams: Streams) -> Space:
        """The graph and the units, with warnings at the user's line."""
        with naming("X", "points", "mesh"):
            return prepare_space(data, kernel, graph, streams, check_jobs(-1))

    def _decompose(self, space: Space, spectrum: Spectrum, skip: int = 0) -> None:
        """Make the map of the eigenpairs after the first ``skip``."""
        count = space.graph.n_nodes if self.n_features == "all" else int(self.n_features)
        self.map_ = SpectralMap.fit(space, spectrum, count, skip)
        self._recipe = spectrum, skip
        self._whole: SpectralMap | None = None  # of all eigenpairs

    def _check_count(self) -> None:
        """Refuse a wrong number before any work is done."""
        if not isinstance(self.n_features, str):
            check_integer(self.n_features, "n_features", 1)
        elif self.n_features != "all":
            reject("n_features", "'all' or an integer in [1, inf)", repr(self.n_features))

    @property
    def graph_(self) -> Graph:
        """The graph that discretises the space."""
        check_is_fitted(self, "map_")
        graph: Graph = self.map_.space.graph
        return graph

    @property
    def eigenvalues_(self) -> FloatArray:
        """Eigenvalues of the walk operator, shape (m,)."""
        check_is_fitted(self, "map_")
        values: FloatArray = self.map_.pairs.values
        return values

    @property
    def embedding_(self) -> FloatArray:
        """Features of the nodes, shape (n_nodes, m)."""
        check_is_fitted(self, "map_")
        return np.array(self.map_.nodes)

    @property
    def n_features_out_(self) -> int:
        """Number of features."""
        check_is_fitted(self, "map_")
        return int(self.map_.n_features)

    def _inspect(self, points: FloatArray, name: str) -> FloatArray:
        metric = self.graph_.metric
        checked = points if metric is None else metric.check(points, name)
        warn_of_far(self.map_.units.proximity.window(checked))
        return checked

    def distance_to_space(self, Z: Any) -> FloatArray:
        """Distance of points to the nearest node or, on a mesh, to its surface, shape (q,)."""
        check_is_fitted(self, "map_")
        points = estimator_points(self, Z, "Z", reset=False)[0]
        distances: FloatArray = self.map_.units.proximity.distance(points)
        return distances

    def _rows(self, points: FloatArray) -> FloatArray:
        rows: FloatArray = self.map_.rows(points, check_jobs(-1))
        return rows

    def _by_all(self, points: FloatArray, others: FloatArray) -> FloatArray:
        """The kernel with all eigenpairs, which are found when they are first asked for."""
        if self._whole is None:
            (spectrum, skip), n_nodes = self._recipe, self.graph_.n_nodes
            complete = self.map_.n_features + skip == n_nodes
            self._whole = self.map_ if complete else SpectralMap.fit(self.map_.space, spectrum, n_nodes, skip)
        left = self._whole.rows(points, check_jobs(-1))
        return product(left, left if others is points else self._whole.rows(others, check_jobs(-1)), check_jobs(-1))


class SpectralFeatures(FrozenParamsMixin, KernelParameterMixin, _AbstractSpectral):
    """The eigenvectors of a graph as features: at its nodes no other features of their number are closer.

    A node has the features sqrt(h(lambda_k)) v_k for the eigenpairs of the walk operator W on which the kernel
    K = h(W) is largest. They are carried to new points by the Nystrom extension: one step of the walk, divided by
    the eigenvalue (where this is below .1, by .01 over it). Units are those of :class:`ManifoldRandomFeatures`: in
    the manifold clock the kernel of the space per unit of volume, in the graph clock that of the graph, as if a
    point were a node.

    Parameters
    ----------
    kernel : AbstractKernel, callable or None, default=None
        As in :class:`ManifoldRandomFeatures`; it must be positive semi-definite.
    n_features : int or "all", default=512
        Number of eigenpairs; all of a graph with fewer nodes. Above a fifth of the nodes all eigenpairs are
        computed (as a dense matrix, in time proportional to the cube of their number), and the largest are kept.
    graph : GraphOptions, callable, Graph or None, default=None
        As in :class:`ManifoldRandomFeatures`.
    random_state : None, int, Generator or RandomState, default=None
        Of the series that is fitted to a function; nothing else is random.

    Attributes
    ----------
    graph_ : Graph
    kernel_ : AbstractKernel
        As stated or chosen.
    eigenvalues_ : array of shape (m,)
    embedding_ : array of shape (n_nodes, m)
        Features of the nodes.
    n_features_in_, n_features_out_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import HeatKernel, Sphere
    >>> from manifoldrf.baselines import SpectralFeatures
    >>> features = SpectralFeatures(HeatKernel(0.2), n_features=100).fit(Sphere().grid(500))
    >>> new = Sphere().sample(100, seed=1)
    >>> exact = Sphere().heat_kernel(new, new, 0.2)
    >>> bool(np.linalg.norm(features.kernel(new) - exact) < 0.02 * np.linalg.norm(exact))
    True
    """

    def __init__(
        self,
        kernel: Any = None,
        *,
        n_features: int | str = 512,
        graph: Any = None,
        random_state: SeedLike = None,
    ) -> None:
        self.kernel = kernel
        self.n_features = n_features
        self.graph = graph
        self.random_state = random_state

    def _fit(self, points: Any, streams: Streams) -> None:
        self._check_count()
        space = self._prepare(points, self.__dict__["kernel"], self.graph, streams)
        self._decompose(space, space.setting.kernel.spectral)

    @property
    def kernel_(self) -> Any:
        """The kernel, as stated or chosen."""
        check_is_fitted(self, "map_")
        return self.map_.space.kernel

    def _exact(self, points: FloatArray, others: FloatArray) -> FloatArray:
        first, second = self.map_.nodes_at(points), self.map_.nodes_at(others)
        if (first < 0).any() or (second < 0).any():
            return self._by_all(points, others)
        values = self.map_.space.setting.kernel.matrix(self.graph_, first, second, n_jobs=check_jobs(-1))
        units = self.map_.node_units
        return np.asarray(values * units[first][:, None] * units[second])


class DiffusionMap(KernelMethodMixin, _AbstractSpectral):
    """Diffusion map with density correction: phi(x) . phi(y) is the heat kernel of the space, cut off at m terms.

    Coordinates lambda_k^(s/2) psi_k(x), with psi_k the right eigenvectors of the random walk on the graph and s the
    number of its steps that last the time t. psi_k are orthonormal over the volume that the nodes stand for, so
    inner products are the kernel of the space per unit of volume. New points are reached by one step of the walk.

    Parameters
    ----------
    n_features : int or "all", default=512
        Number of coordinates; all of a graph with fewer nodes.
    t : float, optional
        Heat time, in the square of the unit of the points; a number of steps is found from it and the mean
        squared length of a step.
    steps : float, optional
        Number of steps s in the place of ``t``; 20 where neither is given.
    constant : bool, default=True
        Whether the first coordinate, psi_0, is kept. It is constant, and belongs to the kernel; without it
        distances of coordinates are the same.
    graph : callable, GraphOptions, Graph or None, default=None
        As in :class:`ManifoldRandomFeatures`. None: Gaussian weights to the 32 nearest neighbours and to the node
        itself, corrected for the density of the points (Coifman and Lafon's alpha = 1).
    random_state : ignored
        Nothing is random.

    Attributes
    ----------
    graph_ : Graph
    steps_ : float
        s.
    eigenvalues_ : array of shape (m,)
    embedding_ : array of shape (n_nodes, m)
        Coordinates of the nodes.
    n_features_in_, n_features_out_ : int

    Notes
    -----
    Negative eigenvalues, which have no real power, count as zero: they belong to functions that change sign with
    every step.

    References
    ----------
    Coifman and Lafon, Diffusion maps, 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import Sphere
    >>> from manifoldrf.baselines import DiffusionMap
    >>> diffusion = DiffusionMap(n_features=100, t=0.2).fit(Sphere().grid(1000))
    >>> new = Sphere().sample(100, seed=1)
    >>> exact = Sphere().heat_kernel(new, new, 0.2)
    >>> bool(np.linalg.norm(diffusion.kernel(new) - exact) < 0.05 * np.linalg.norm(exact))
    True
    """

    def __init__(
        self,
        *,
        n_features: int | str = 512,
        t: float | None = None,
        steps: float | None = None,
        constant: bool = True,
        graph: Any = None,
        random_state: SeedLike = None,
    ) -> None:
        self.n_features = n_features
        self.t = t
        self.steps = steps
        self.constant = constant
        self.graph = graph
        self.random_state = random_state

    def _fit(self, points: Any, streams: Streams) -> None:
        self._check_count()
        keep = check_flag(self.constant, "constant")
        if self.t is not None and self.steps is not None:
            reject("steps", "None where `t` is given", self.steps)
        given = {name: getattr(self, name) for name in ("t", "steps") if getattr(self, name) is not None}
        for name, value in given.items():
            check_real(value, name, POSITIVE)
        builder = _neighbors_of if self.graph is None and not isinstance(points, Graph) else self.graph
        # Any kernel in steps: only the graph, the volumes of its nodes and the dimension are asked for.
        space = self._prepare(points, DiffusionKernel(_STEPS_BY_DEFAULT), builder, streams)
        space = replace(space, clock="manifold")
        self.steps_ = float(given.get("steps", _STEPS_BY_DEFAULT))
        if "t" in given:
            self.steps_ = space.graph.steps(given["t"], space.setting.dim)
        self._decompose(space, functools.partial(_walked, steps=self.steps_), skip=0 if keep else 1)

    def _exact(self, points: FloatArray, others: FloatArray) -> FloatArray:
        return self._by_all(points, others)


def _walked(values: FloatArray, steps: float) -> FloatArray:
    """Eigenvalues after some steps."""
    return np.asarray(np.maximum(values, 0.0) ** steps)


def _neighbors_of(nodes: Any) -> Graph:
    """The graph of a diffusion map."""
    points = nodes.vertices if isinstance(nodes, TriangleMesh) else nodes
    k = min(_NEIGHBORS, len(points) - 1)
    return knn_graph(points, n_neighbors=k, self_loops=True, density_correction=1.0)
