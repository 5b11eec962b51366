"""Spectral features: eigenvectors of the walk operator of a graph, extended to new points."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import eigsh
from sklearn.utils.validation import check_is_fitted

from manifoldrf._random import SeedLike, Streams, generator
from manifoldrf._runtime import one_blas_thread
from manifoldrf._validation import (
    POSITIVE,
    FloatArray,
    IntArray,
    check_flag,
    check_integer,
    check_jobs,
    check_real,
    reject,
)
from manifoldrf.baselines._base import AbstractBaseline
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.graph_kernel import GraphKernel, discretise, warn_of_far
from manifoldrf.features.options import FitOptions, FrozenParamsMixin, Teaching, check_space, estimator_points
from manifoldrf.features.rules import WalkStep, product
from manifoldrf.geometry.builders import knn_graph
from manifoldrf.geometry.csr import as_dense, reciprocal
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.geometry.neighbors import NeighborSearch
from manifoldrf.kernels.graph_kernels import DiffusionKernel

__all__ = ["DiffusionMap", "SpectralFeatures"]


Spectrum = Callable[[FloatArray], FloatArray]

# A dense decomposition is faster for more than this share of the eigenpairs, and takes less than a second up to
# this number of nodes.
_DENSE_SHARE, _DENSE_NODES = 0.2, 600
_LARGEST_DENSE = 20_000  # nodes: 3 GB for the matrix alone
# The extension divides by the eigenvalue, which amplifies the error of the step. Below this eigenvalue it
# multiplies by the eigenvalue over the square of this constant instead, so that the error grows at most tenfold.
_SMALLEST = 0.1
# Negative values of h above this share of the largest are rounding errors.
_ROUNDING = 1e-10


def eigenpairs(graph: Graph, spectrum: Spectrum, count: int) -> tuple[FloatArray, FloatArray]:
    """The ``count`` eigenvalues of W with the largest values of h, largest first, and their eigenvectors.

    A small share of the eigenpairs is computed by Lanczos iterations, at the upper end of the spectrum or, if h is
    even and grows to both ends, at both. For other functions all eigenpairs are computed.
    """
    n = graph.n_nodes
    end = None  # ARPACK's name for the end of [-1, 1] where h is largest
    heights = spectrum(np.linspace(-1.0, 1.0, 201))
    slack = _ROUNDING * float(np.abs(heights).max())
    if (np.diff(heights) >= -slack).all():
        end = "LA"
    elif np.abs(heights - heights[::-1]).max() <= slack and (np.diff(heights[100:]) >= -slack).all():
        end = "LM"
    if end is None or count >= n or n <= _DENSE_NODES or count > _DENSE_SHARE * n:
        if n > _LARGEST_DENSE:
            rule = f"at most {int(_DENSE_SHARE * n)} for {n} nodes; all eigenpairs fit in memory up to"
            reject("n_features", f"{rule} {_LARGEST_DENSE}", count)
        values, vectors = linalg.eigh(graph.operator.toarray())
    else:
        start = generator(0, "baselines.lanczos").standard_normal(n)  # fixed, so that the bits are reproducible
        values, vectors = eigsh(graph.operator, k=count, which=end, v0=start)
    values = np.clip(values, -1.0, 1.0)
    order = np.argsort(-spectrum(values), kind="stable")[:count]
    values, vectors = values[order], vectors[:, order]
    # Fix the arbitrary sign of each eigenvector: its largest entry is positive.
    peaks = np.abs(vectors).argmax(axis=0)
    return values, vectors * np.where(vectors[peaks, np.arange(len(peaks))] < 0, -1.0, 1.0)


@dataclass(frozen=True, eq=False)
class SpectralMap:
    """phi_k(z) = sqrt(h(lambda_k)) psi_k(z), psi_k = v_k / sqrt(mu) at nodes.

    At other points psi_k(z) = P(z, .) psi_k / lambda_k, with P(z, .) one step of the walk from z.

    Attributes
    ----------
    problem : GraphKernel
    values : array of shape (m,)
        Eigenvalues of the walk operator.
    vectors : array of shape (n_nodes, m)
        Its eigenvectors.
    heights : array of shape (m,)
        h at the eigenvalues, nonnegative.
    """

    problem: GraphKernel
    values: FloatArray
    vectors: FloatArray
    heights: FloatArray

    @classmethod
    @one_blas_thread()
    def fit(cls, problem: GraphKernel, spectrum: Spectrum, count: int, skip: int = 0) -> "SpectralMap":
        """Map of the next ``count`` eigenpairs, or of all, after the first ``skip``."""
        values, vectors = eigenpairs(problem.graph, spectrum, min(count + skip, problem.graph.n_nodes))
        heights = spectrum(values)
        if heights.max() == 0 == heights.min():
            reject("kernel", "one that does not vanish on the graph; use a shorter time", "eigenvalues of 0 only")
        if heights.min() < -_ROUNDING * max(heights.max(), 0.0) or not heights.max() > 0:
            found = f"an eigenvalue of {heights.min():.2g}"
            reject("kernel", "positive semi-definite, or it has no real features", found)
        return cls(problem, values[skip:], vectors[:, skip:], np.maximum(heights[skip:], 0.0))

    @property
    def n_features(self) -> int:
        """Number of eigenpairs."""
        return len(self.heights)

    @cached_property
    def nodes(self) -> FloatArray:
        """Features of the nodes, shape (n_nodes, m)."""
        return np.asarray(self.vectors * np.sqrt(self.heights) * self.node_units[:, None])

    @property
    def node_units(self) -> FloatArray:
        """Factors from the kernel of the graph to that of the features, shape (n_nodes,)."""
        in_steps = not self.problem.per_volume
        return np.ones(self.problem.graph.n_nodes) if in_steps else self.units.scale * self._inverse_roots

    @property
    def _inverse_roots(self) -> FloatArray:
        """mu^-1/2, and zero where mu is zero."""
        return reciprocal(np.sqrt(self.problem.measure))

    @cached_property
    def units(self) -> FeatureMap:
        """Feature map that scales features of points by the clock and fades them out off the space."""
        factors = np.sqrt(self.heights) * self.values / np.maximum(self.values**2, _SMALLEST**2)
        table = sparse.csr_array(self._inverse_roots[:, None] * self.vectors * factors)
        everything = np.arange(self.n_features)
        return FeatureMap(self.problem, WalkStep(self.problem.graph), table, everything, np.ones(self.n_features))

    @cached_property
    def _search(self) -> NeighborSearch:
        return NeighborSearch(self.problem.graph.positions, self.problem.graph.metric)

    def nodes_at(self, queries: FloatArray) -> IntArray:
        """The node at the position of each query on the space, or -1."""
        distances, nodes = self._search.knn(self.problem.graph.placed(queries), 1)
        return np.where(distances[:, 0] == 0, nodes[:, 0], -1)

    def rows(self, queries: FloatArray, n_jobs: int) -> FloatArray:
        """Features of points, shape (q, m); at a node those of the node."""
        at = self.nodes_at(queries)
        rows = self.nodes[at]
        new = np.flatnonzero(at < 0)
        if len(new):
            placed, units = self.problem.graph.placed(queries[new]), self.units
            carried = units.values(placed, n_jobs)
            factors = units.scale * units.own(placed) * units.kernel.window(queries[new], placed)
            rows[new] = as_dense(carried) * factors[:, None]
        return rows


# Neighbours of a node in the graph of a diffusion map. With the median of the squared distances as bandwidth,
# Gaussian weights on surfaces fall to .13 for any number of neighbours; with few neighbours single nodes become
# visible.
_NEIGHBORS = 32
_STEPS_BY_DEFAULT = 20.0  # the paper's


class _AbstractSpectral(AbstractBaseline):
    """Features sqrt(h(lambda_k)) psi_k of a graph, extended to new points by one step of its walk."""

    n_features: int | str
    graph: Any
    map_: SpectralMap

    def _check_data(self, X: Any) -> Any:
        return check_space(self, X)

    def _prepare(self, data: Any, kernel: Any, graph: Any, streams: Streams) -> GraphKernel:
        """The graph and the units."""
        options = FitOptions(streams, kernel, graph=graph, teaching=Teaching(n_jobs=check_jobs(-1)))
        problem = discretise(data, options)[0]
        return problem.at_unit_height() if kernel is None else problem

    def _decompose(self, problem: GraphKernel, spectrum: Spectrum, skip: int = 0) -> None:
        """Compute the map of the eigenpairs after the first ``skip``."""
        count = problem.graph.n_nodes if self.n_features == "all" else int(self.n_features)
        self.map_ = SpectralMap.fit(problem, spectrum, count, skip)
        self._recipe = spectrum, skip
        self._whole: SpectralMap | None = None  # of all eigenpairs

    def _check_count(self) -> None:
        """Check ``n_features`` before any work is done."""
        if not isinstance(self.n_features, str):
            check_integer(self.n_features, "n_features", 1)
        elif self.n_features != "all":
            reject("n_features", "'all' or an integer in [1, inf)", repr(self.n_features))

    @property
    def graph_(self) -> Graph:
        """The graph that discretises the space."""
        check_is_fitted(self, "map_")
        return self.map_.problem.graph

    @property
    def eigenvalues_(self) -> FloatArray:
        """Eigenvalues of the walk operator, shape (m,)."""
        check_is_fitted(self, "map_")
        return self.map_.values

    @property
    def embedding_(self) -> FloatArray:
        """Features of the nodes, shape (n_nodes, m)."""
        check_is_fitted(self, "map_")
        return np.array(self.map_.nodes)

    @property
    def n_features_out_(self) -> int:
        """Number of features."""
        check_is_fitted(self, "map_")
        return self.map_.n_features

    def _inspect(self, points: FloatArray, name: str) -> FloatArray:
        metric = self.graph_.metric
        checked = points if metric is None else metric.check(points, name)
        warn_of_far(self.map_.units.kernel.window(checked))
        return checked

    def distance_to_space(self, Z: Any) -> FloatArray:
        """Distance of points to the nearest node or, on a mesh, to its surface, shape (q,)."""
        check_is_fitted(self, "map_")
        points = estimator_points(self, Z, "Z", reset=False)[0]
        return self.map_.units.kernel.distance(points)

    def _rows(self, points: FloatArray) -> FloatArray:
        return self.map_.rows(points, check_jobs(-1))

    def _by_all(self, points: FloatArray, others: FloatArray) -> FloatArray:
        """The kernel with all eigenpairs, which are computed on first use."""
        if self._whole is None:
            (spectrum, skip), n_nodes = self._recipe, self.graph_.n_nodes
            complete = self.map_.n_features + skip == n_nodes
            self._whole = self.map_ if complete else SpectralMap.fit(self.map_.problem, spectrum, n_nodes, skip)
        left = self._whole.rows(points, check_jobs(-1))
        return product(left, left if others is points else self._whole.rows(others, check_jobs(-1)), check_jobs(-1))


class SpectralFeatures(FrozenParamsMixin, _AbstractSpectral):
    """The eigenvectors of a graph as features: the best approximation at the nodes for a given number of features.

    A node has the features sqrt(h(lambda_k)) v_k for the eigenpairs of the walk operator W with the largest values
    of the kernel K = h(W). The Nystrom extension carries them to new points: one step of the walk, divided by the
    eigenvalue (below .1, divided by .01 over the eigenvalue). Units are those of :class:`ManifoldRandomFeatures`
    with ``normalize=False``: in the manifold clock the kernel of the space per unit of volume, in the graph clock
    the kernel of the graph, as if a point were a node.

    Parameters
    ----------
    kernel : AbstractKernel, callable or None, default=None
        As in :class:`ManifoldRandomFeatures`; it must be positive semi-definite. None: the chosen heat kernel is
        scaled such that K(x, x) is one on average.
    n_features : int or "all", default=512
        Number of eigenpairs, at most the number of nodes. Above a fifth of the nodes all eigenpairs are computed
        (with a dense matrix, in time proportional to the cube of their number), and the largest are kept.
    graph : GraphOptions, callable, Graph or None, default=None
        As in :class:`ManifoldRandomFeatures`.
    random_state : None, int, Generator or RandomState, default=None
        Seed of the series that is fitted to a function; nothing else is random.

    Attributes
    ----------
    graph_ : Graph
    kernel_ : AbstractKernel
        The given kernel, or the default that was chosen.
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
    >>> bool(np.linalg.norm(features.kernel_matrix(new) - exact) < 0.02 * np.linalg.norm(exact))
    True
    """

    def __init__(
        self, kernel: Any = None, *, n_features: int | str = 512, graph: Any = None, random_state: SeedLike = None
    ) -> None:
        self.kernel = kernel
        self.n_features = n_features
        self.graph = graph
        self.random_state = random_state

    def _fit(self, points: Any, streams: Streams) -> None:
        self._check_count()
        problem = self._prepare(points, self.kernel, self.graph, streams)
        self._decompose(problem, problem.resolved.spectral)

    @property
    def kernel_(self) -> Any:
        """The given kernel, or the default that was chosen."""
        check_is_fitted(self, "map_")
        return self.map_.problem.stated

    def _exact(self, points: FloatArray, others: FloatArray) -> FloatArray:
        first, second = self.map_.nodes_at(points), self.map_.nodes_at(others)
        if (first < 0).any() or (second < 0).any():
            return self._by_all(points, others)
        values = self.map_.problem.resolved.matrix(self.graph_, first, second, n_jobs=check_jobs(-1))
        units = self.map_.node_units
        return np.asarray(values * units[first][:, None] * units[second])


class DiffusionMap(_AbstractSpectral):
    """Diffusion map with density correction: phi(x) . phi(y) is the heat kernel of the space, truncated to m terms.

    The coordinates are lambda_k^(s/2) psi_k(x), where psi_k are the right eigenvectors of the random walk on the
    graph and s is the number of steps that take the time t. The psi_k are orthonormal with respect to the volume of
    the nodes, so inner products are the kernel of the space per unit of volume. One step of the walk extends them
    to new points.

    Parameters
    ----------
    n_features : int or "all", default=512
        Number of coordinates, at most the number of nodes.
    t : float, optional
        Heat time, in the squared unit of the points. The number of steps follows from it and the mean squared
        length of a step.
    steps : float, optional
        Number of steps s instead of ``t``; 20 if neither is given.
    constant : bool, default=True
        Whether to keep the first coordinate, psi_0. It is constant and part of the kernel, but does not change
        distances of coordinates.
    graph : callable, GraphOptions, Graph or None, default=None
        As in :class:`ManifoldRandomFeatures`. None: Gaussian weights to the 32 nearest neighbours and the node
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
    Negative eigenvalues have no real powers and are set to zero: they belong to functions that change sign with
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
    >>> bool(np.linalg.norm(diffusion.kernel_matrix(new) - exact) < 0.05 * np.linalg.norm(exact))
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
            reject("steps", "None if `t` is given", self.steps)
        given = {name: getattr(self, name) for name in ("t", "steps") if getattr(self, name) is not None}
        for name, value in given.items():
            check_real(value, name, POSITIVE)
        builder = _neighbors_of if self.graph is None and not isinstance(points, Graph) else self.graph
        # The kernel does not matter: only the graph, the volumes of its nodes and the dimension are used.
        problem = self._prepare(points, DiffusionKernel(_STEPS_BY_DEFAULT), builder, streams)
        problem = replace(problem, per_volume=True)
        self.steps_ = float(given.get("steps", _STEPS_BY_DEFAULT))
        if "t" in given:
            self.steps_ = problem.graph.steps(given["t"], problem.dim)
        self._decompose(problem, functools.partial(_walked, steps=self.steps_), skip=0 if keep else 1)

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
