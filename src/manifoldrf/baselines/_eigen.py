"""Eigenpairs of the walk operator, and functions of it carried to new points."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.linalg import eigsh

from manifoldrf._random import generator
from manifoldrf._threads import one_blas_thread
from manifoldrf._validation import FloatArray, IntArray, reject
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.spaces import Space
from manifoldrf.fields.step import StepField
from manifoldrf.geometry._sparse import reciprocal
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.neighbors import NeighborSearch

Spectrum = Callable[[FloatArray], FloatArray]

# All eigenpairs at once cost less than a share of this size one by one, and less than a second up to so many nodes.
_DENSE_SHARE, _DENSE_NODES = 0.2, 600
_LARGEST_DENSE = 20_000  # nodes: 3 GB for the matrix alone
# The extension divides by the eigenvalue, and so multiplies what the first step gets wrong. Below this one it
# multiplies by the eigenvalue over its square instead, which tends to zero: at most ten times the error of a step.
_SMALLEST = 0.1
# Most negative h over its largest value that counts as rounding.
_ROUNDING = 1e-10


@dataclass(frozen=True, eq=False)
class Eigenpairs:
    """Eigenvalues of the walk operator, shape (m,), and eigenvectors, shape (n_nodes, m)."""

    values: FloatArray
    vectors: FloatArray


def eigenpairs(graph: Graph, spectrum: Spectrum, count: int) -> Eigenpairs:
    """The ``count`` eigenpairs of W on which h is largest, largest first.

    Few of many nodes are found by Lanczos iterations, at the upper end of the spectrum or, where h is even and
    grows to both ends, at both. Of other functions all eigenpairs are computed.
    """
    n = graph.n_nodes
    end = _largest_end(spectrum)
    if end is None or count >= n or n <= _DENSE_NODES or count > _DENSE_SHARE * n:
        if n > _LARGEST_DENSE:
            rule = f"at most {int(_DENSE_SHARE * n)} for {n} nodes; all eigenpairs fit in memory up to"
            reject("n_features", f"{rule} {_LARGEST_DENSE}", count)
        values, vectors = linalg.eigh(graph.operator.toarray())
    else:
        start = generator(0, "baselines.lanczos").standard_normal(n)  # always the same, so that the bits are
        values, vectors = eigsh(graph.operator, k=count, which=end, v0=start)
    values = np.clip(values, -1.0, 1.0)
    order = np.argsort(-spectrum(values), kind="stable")[:count]
    values, vectors = values[order], vectors[:, order]
    # An eigenvector and its negative are equally good; the largest entry of this one is positive.
    peaks = np.abs(vectors).argmax(axis=0)
    return Eigenpairs(values, vectors * np.where(vectors[peaks, np.arange(len(peaks))] < 0, -1.0, 1.0))


def _largest_end(spectrum: Spectrum) -> str | None:
    """Where in [-1, 1] h is largest, in the words of ARPACK; None where it is neither increasing nor even."""
    heights = spectrum(np.linspace(-1.0, 1.0, 201))
    slack = _ROUNDING * float(np.abs(heights).max())
    if (np.diff(heights) >= -slack).all():
        return "LA"
    is_even = np.abs(heights - heights[::-1]).max() <= slack
    return "LM" if is_even and (np.diff(heights[100:]) >= -slack).all() else None


@dataclass(frozen=True, eq=False)
class SpectralMap:
    """phi_k(z) = sqrt(h(lambda_k)) psi_k(z), psi_k = v_k / sqrt(mu) at nodes.

    At other points psi_k(z) = P(z, .) psi_k / lambda_k, with P(z, .) one step of the walk from z.

    Attributes
    ----------
    space : Space
    pairs : Eigenpairs
    heights : array of shape (m,)
        h at the eigenvalues, nonnegative.
    """

    space: Space
    pairs: Eigenpairs
    heights: FloatArray

    @classmethod
    @one_blas_thread()
    def fit(cls, space: Space, spectrum: Spectrum, count: int, skip: int = 0) -> "SpectralMap":
        """The map of ``count`` eigenpairs, or of all, after the first ``skip``."""
        found = eigenpairs(space.graph, spectrum, min(count + skip, space.graph.n_nodes))
        heights = spectrum(found.values)
        if heights.max() == 0 == heights.min():
            reject("kernel", "one that is left on the graph, of a shorter time or length", "eigenvalues of 0 only")
        if heights.min() < -_ROUNDING * max(heights.max(), 0.0) or not heights.max() > 0:
            reject(
                "kernel",
                "positive semi-definite, or it has no real features",
                f"an eigenvalue of {heights.min():.2g}",
            )
        pairs = Eigenpairs(found.values[skip:], found.vectors[:, skip:])
        return cls(space, pairs, np.maximum(heights[skip:], 0.0))

    @property
    def n_features(self) -> int:
        """Number of eigenpairs."""
        return len(self.heights)

    @cached_property
    def nodes(self) -> FloatArray:
        """Features of the nodes, shape (n_nodes, m)."""
        return np.asarray(self.pairs.vectors * np.sqrt(self.heights) * self.node_units[:, None])

    @property
    def node_units(self) -> FloatArray:
        """From a kernel of the graph to that of the features: a factor for each node, shape (n_nodes,)."""
        in_steps = self.space.clock == "graph"
        return np.ones(self.space.graph.n_nodes) if in_steps else self.units.scale * self._inverse_roots

    @property
    def _inverse_roots(self) -> FloatArray:
        """mu^-1/2, and zero where mu is."""
        return reciprocal(np.sqrt(self.space.setting.measure))

    @cached_property
    def units(self) -> FeatureMap:
        """How features of points are scaled: by the clock, and off the space."""
        values = self.pairs.values
        factors = np.sqrt(self.heights) * values / np.maximum(values**2, _SMALLEST**2)
        table = sparse.csr_array(self._inverse_roots[:, None] * self.pairs.vectors * factors)
        everything = np.arange(self.n_features)
        return FeatureMap(self.space, StepField(self.space.graph, table), everything, np.ones(self.n_features))

    @cached_property
    def _search(self) -> NeighborSearch:
        return NeighborSearch(self.space.graph.positions, self.space.graph.metric)

    def nodes_at(self, queries: FloatArray) -> IntArray:
        """The node at the very place of each query, or -1."""
        distances, nodes = self._search.knn(queries, 1)
        return np.where(distances[:, 0] == 0, nodes[:, 0], -1)

    def rows(self, queries: FloatArray, n_jobs: int) -> FloatArray:
        """Features of points, shape (q, m): those of the node where there is one."""
        at = self.nodes_at(queries)
        rows = self.nodes[at]
        new = np.flatnonzero(at < 0)
        if len(new):
            carried, units = self.units.field.values(queries[new], n_jobs), self.units
            factors = units.scale * units.own(queries[new]) * units.proximity.window(queries[new])
            rows[new] = (carried.toarray() if sparse.issparse(carried) else carried) * factors[:, None]
        return rows
