"""Errors of kernels: against a reference, and as estimated: the record of all shares, and the error of the graph.

`fit` measures the other shares.
"""

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy import sparse

from manifoldrf._codec import stored
from manifoldrf._random import Streams
from manifoldrf._runtime import ManifoldWarning, one_blas_thread, warn_user, without_warnings
from manifoldrf._validation import FloatArray, check_option, check_points, reject
from manifoldrf.features.feature_map import WalkStep, interpolation_rule
from manifoldrf.features.graph_kernel import GraphKernel
from manifoldrf.geometry.csr import frobenius, reciprocal
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.heat import graph_on, half_of
from manifoldrf.geometry.model_spaces import AbstractBall
from manifoldrf.geometry.spaces import PointSpace
from manifoldrf.kernels.named_kernels import shifted

__all__ = ["ErrorEstimate", "relative_error"]

POOR, USELESS = 0.1, 0.5  # errors above which features are inaccurate, and nearly useless


def relative_error(K: Any, reference: Any, *, alignment: str | None = None) -> float:
    """Return the Frobenius norm of the difference, divided by the norm of the reference.

    Matrices may be sparse. Features of this library have an absolute scale. Published errors often compare shapes
    only: with ``alignment="frobenius"``, as in the paper, ``K`` is first scaled to the norm of the reference, and
    with "least squares" by the factor that minimizes the difference.

    Examples
    --------
    >>> from manifoldrf import relative_error
    >>> relative_error([[1.1]], [[1.0]], alignment="frobenius")
    0.0
    >>> round(relative_error([[1.1]], [[1.0]]), 6)
    0.1
    """
    found, exact = (
        check_points(matrix.toarray() if sparse.issparse(matrix) else matrix, name)
        for matrix, name in ((K, "K"), (reference, "reference"))
    )
    if found.shape != exact.shape:
        reject("K", f"of the shape {exact.shape} of the reference", found.shape)
    if not exact.any():
        reject("reference", "a matrix that is not zero", "zeros only")
    if alignment is not None:
        size = float((found * found).sum()) or 1.0
        if check_option(alignment, "alignment", ("frobenius", "least squares")) == "frobenius":
            found = found * np.sqrt(float((exact * exact).sum()) / size)
        else:
            found = found * (float((found * exact).sum()) / size)
    return frobenius(found - exact) / frobenius(exact)


def warn_inaccurate(text: str, *, useless: bool = False) -> None:
    """Warn; commands report a useless model even with ``--quiet``."""
    warning: Any = ManifoldWarning(text)
    warning.useless = useless
    warn_user(warning)


@stored
@dataclass(frozen=True)
class ErrorEstimate:
    """Relative errors of the kernel, in Frobenius norms over pairs of held-out nodes.

    ``float(error)`` and ``f"{error:.3f}"`` are :attr:`kernel`, the whole error.

    Attributes
    ----------
    kernel : float
        Total error of the features' kernel: field and quadrature, and the graph if its share is known.
    field : float
        Share of the field: features of the map against features of exact signatures, at the same anchors.
    quadrature : float
        Share of the anchors: their weighted sum against the sum over all nodes.
    graph : float, optional
        Share of the graph, for kernels in the manifold clock: two thirds of the relative difference (all of it for
        noisy clouds), at points of the space, between this kernel and that on a heat graph of half the data and
        half the steps (for two steps, twice the difference from four). Computed when ``error_`` is first read. For
        a function given as kernel, the error of its series. None in the graph clock, and if points with given
        volumes are too far apart for a second graph.
    signatures : float
        Error of the values of the field at the anchors.
    candidates : tuple of (str, float)
        Error of the features' kernel for each field tried.
    quadratures : tuple of (str, float)
        Error of the quadrature for each method tried.

    Examples
    --------
    >>> from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere
    >>> error = ManifoldRandomFeatures(HeatKernel(0.05), n_features=256, random_state=0).fit(Sphere()).error_
    >>> error.field < 1e-5 < error.quadrature < 0.05
    True
    """

    kernel: float
    field: float
    quadrature: float
    graph: float | None
    signatures: float
    candidates: tuple[tuple[str, float], ...] = ()
    quadratures: tuple[tuple[str, float], ...] = ()

    def __float__(self) -> float:
        return self.kernel

    def __format__(self, spec: str) -> str:
        return format(self.kernel, spec) if spec else str(self)

    def __str__(self) -> str:
        shares = {"field": self.field, "quadrature": self.quadrature, "graph": self.graph}
        text = ", ".join(f"{name} {brief(share)}" for name, share in shares.items() if share is not None)
        # A missing share comes first, so that the number is not taken for the whole error.
        return f"{'graph not estimated; rest ' if self.graph is None else ''}{brief(self.kernel)} ({text})"

    def with_graph(self, graph: float | None) -> "ErrorEstimate":
        """Return the estimate with the share of the graph, which is independent of the others."""
        if graph is None:
            return self
        return dataclasses.replace(self, graph=graph, kernel=float(np.hypot(self.kernel, graph)))


def brief(error: float) -> str:
    """An error with its significant digits; below 1e-5 it comes from dropping small entries of signatures."""
    return f"{error:.2g}" if error >= 1e-5 else "below 1e-05"


@one_blas_thread()
def graph_error(kernel: GraphKernel, streams: Streams, n_jobs: int) -> float | None:
    """Estimate how far a kernel on a graph is from that of the space, by comparison with a second graph.

    The second graph is built from half of the data with half as many steps. Halving the data changes the kernel by
    about the error of all data, and halving the steps by one to three times the error of all steps; 2/3 of the
    change, or all of it with noise, was closest to the errors on the clouds of ``benchmarks/bench_clouds.py``. Two
    steps cannot be halved: on meshes and named spaces they are compared with four. Both kernels are evaluated at
    points of the space.
    """
    t = kernel.stated.shortest_time
    if t is None or kernel.space is None:
        return None
    steps, cloud = kernel.graph.n_steps or 2, kernel.space.cloud
    n_nodes: int | Literal["auto"] = "auto"
    with without_warnings(Warning):
        half, n_steps = half_of(kernel.space, n_jobs), max(2, 2 * round(steps / 4))
        factor = 1.0 if cloud is not None and cloud.noise_std else 2 / 3
        if half is kernel.space and steps == 2:
            if isinstance(half, PointSpace):  # with nodes too far apart for more steps
                return None
            n_steps, factor = 4, 2.0  # two steps have twice the error of four
            n_nodes = int(min(half.most_nodes, kernel.graph.n_nodes * 2 ** (kernel.dim / 2)))
        try:
            other = graph_on(half, t, n_steps, n_nodes, n_jobs)
            kernel.stated.resolve(other, kernel.dim)
        except ValueError:  # its steps are too long for the space or the kernel
            return 1.0
    points = _sample_points(kernel, t, streams.generator("features.graph error"))
    here, there = (
        _kernel_between(graph, graph.degrees if graph.weights is None else graph.weights, kernel, points)
        for graph in (kernel.graph, other)
    )
    unseen = 0.0  # error that halving the data does not show
    if cloud is not None:
        dropped = cloud.n_outliers / max(1, cloud.n_given)
        unseen = 1.0 if cloud.hollow or not cloud.structured else dropped if dropped > 0.01 else 0.0
    return float(np.hypot(factor * relative_error(there, here), unseen))


def _sample_points(kernel: GraphKernel, t: float, rng: np.random.Generator) -> FloatArray:
    """Random points: on the surface of a mesh, else nodes drawn by volume, half of them equally per component.

    A small component may have a large error. In an unbounded space only points at least 3 sqrt(t) inside the ball
    are used: near the rim, heat is reflected.
    """
    mesh = kernel.graph.whole_mesh
    if mesh is not None:
        return np.asarray(mesh.sample(300, seed=rng).points)  # with 160, estimates varied by a factor of 3
    shares = kernel.measure.copy()
    if isinstance(kernel.manifold, AbstractBall):
        inside = kernel.manifold._depth(kernel.graph.positions) < kernel.manifold.radius - 3 * np.sqrt(t)
        shares = np.where(inside, shares, 0.0) if np.count_nonzero(inside & (shares > 0)) >= 20 else shares
    parts = kernel.graph.components
    shares = shares / shares.sum()
    volumes = np.bincount(parts, weights=shares).astype(np.float64)
    shares = (shares + shares * reciprocal(volumes)[parts] / np.count_nonzero(volumes)) / 2
    count = min(400, int(np.count_nonzero(shares)))  # with 200, a few corners dominated
    nodes = rng.choice(len(shares), count, replace=False, p=shares / shares.sum())
    return np.asarray(kernel.graph.positions[nodes])


def _kernel_between(graph: Graph, measure: FloatArray, kernel: GraphKernel, points: FloatArray) -> FloatArray:
    """The kernel on a graph between points of the space, per unit of measure."""
    series = kernel.stated.resolve(graph, kernel.dim)
    by_steps = graph.n_steps is not None and not series.coefficients(2).any()  # the rule takes one at each end
    rule: Any = WalkStep(graph) if by_steps else interpolation_rule(graph, kernel.dim)
    series = shifted(shifted(series)) if by_steps else series
    places = graph.placed(points)
    columns = (rule.rows(places) @ sparse.diags_array(reciprocal(np.sqrt(measure)))).T.toarray()  # (N, points)
    return np.asarray(columns.T @ series.apply(graph, columns))
