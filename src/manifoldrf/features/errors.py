"""How far the kernel of the features is from the one that was asked for, measured on nodes kept from the fit."""

import dataclasses
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from manifoldrf._random import Streams
from manifoldrf._threads import quick_map
from manifoldrf._validation import FloatArray, IntArray
from manifoldrf.features._products import row_spans, symmetric_product
from manifoldrf.features.feature_map import FeatureMap
from manifoldrf.features.sources import HEAT_DIM
from manifoldrf.features.spaces import Space
from manifoldrf.fields.data import Setting, Teaching, observe
from manifoldrf.geometry.graphs import Graph, GraphWarning
from manifoldrf.geometry.heat import heat_graph
from manifoldrf.geometry.neighbors import distances_between
from manifoldrf.kernels.abstract_kernel import ScaledKernel
from manifoldrf.kernels.manifold_kernels import HeatKernel
from manifoldrf.metrics import frobenius, relative_error

__all__ = ["ErrorEstimate"]

_DENSE_ENTRIES = 5e7  # rows are multiplied as a dense matrix up to here
_ROUNDING = 1e-5  # what is below comes from leaving out the smallest entries of signatures
_PROBES = 200  # nodes at which graphs are compared
# Change of the kernel with half as many steps over the error of the kernel itself: 1.2 to 3.2 on sphere, ellipsoid,
# torus and Mobius strip, even and random, with 4000 nodes. (Where the boundary of a cloud had to be guessed, .4.)
_CHANGE_OVER_ERROR = 1.8
_RESOLVED = 4.0  # nodes under a kernel that a graph can follow
_DENSE_HEAT = 10_000_000  # entries of rows whose spread is measured: 80 MB
_FEWEST_TO_HALVE = 4  # steps; two are compared with four, whose change is about the error


@dataclass(frozen=True)
class ErrorEstimate:
    """Relative errors of the kernel, as Frobenius norms over pairs of nodes that took no part in the fit.

    ``float(error)`` is :attr:`kernel`, the whole error.

    Attributes
    ----------
    kernel : float
        Of the features' kernel: that of the field and its quadrature together, and of the graph where it is known.
    field : float
        Share of the field: features by the field against features by exact signatures, at the same anchors.
    quadrature : float
        Share of the anchors: their weighted sum against the sum over all nodes.
    graph : float, optional
        Share of the graph, for :class:`HeatKernel`: from the change of the kernel with steps twice as wide or, if
        the graph is no heat graph, from the difference to one. Too low by up to 4 times for clouds with a boundary.
        For a function that was given as kernel, the error of its series on held-out pairs. None where the kernel of
        the graph itself is asked for, for other kernels, and above five dimensions.
    signatures : float
        Of the values of the field at the anchors.
    candidates : tuple of (str, float)
        Error of the features' kernel by field, for all fields that were tried.
    weights : tuple of (str, float)
        Error of the quadrature by rule, for all rules that were tried.

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
    weights: tuple[tuple[str, float], ...] = ()

    def __float__(self) -> float:
        return self.kernel

    def __str__(self) -> str:
        shares = {"field": self.field, "quadrature": self.quadrature, "graph": self.graph}
        return f"{brief(self.kernel)} ({', '.join(f'{name} {brief(share)}' for name, share in shares.items())})"

    def with_graph(self, graph: float | None) -> "ErrorEstimate":
        """The same with the share of the graph, which is independent of the others."""
        if graph is None:
            return self
        return dataclasses.replace(self, graph=graph, kernel=float(np.hypot(self.kernel, graph)))


def brief(error: float | None) -> str:
    """An error with the digits that mean something."""
    if error is None:
        return "not estimated"
    return f"{error:.2g}" if error >= _ROUNDING else f"below {_ROUNDING:g}"


@dataclass(frozen=True, eq=False)
class Reference:
    """Exact values at some nodes.

    Attributes
    ----------
    nodes : int array of shape (s,)
    rows : CSR array of shape (s, n_nodes)
        h(node, .), in the unit of the measure.
    kernel : array of shape (s, s)
        sum over all nodes j of mu_j h(x, j) h(y, j); for asymmetric pairs the kernel itself.
    """

    nodes: IntArray
    rows: Any
    kernel: FloatArray

    def part(self, positions: IntArray) -> "Reference":
        """Some of the nodes."""
        return Reference(self.nodes[positions], self.rows[positions], self.kernel[np.ix_(positions, positions)])


def exact_reference(setting: Setting, nodes: IntArray, n_jobs: int) -> Reference:
    """Exact signatures of some nodes and the kernel between them."""
    everything = np.arange(setting.graph.n_nodes)
    rows = observe(setting, nodes, everything, Teaching(n_jobs=n_jobs)).values
    if setting.asymmetric:
        return Reference(nodes, rows, rows[:, nodes].toarray())
    return Reference(nodes, rows, gram(rows, setting.measure, n_jobs))


def gram(rows: Any, weights: FloatArray, n_jobs: int = 1) -> FloatArray:
    """Rows times weights times their transpose, dense; the bits do not depend on ``n_jobs``."""
    roots = np.sqrt(weights)
    if not sparse.issparse(rows) or rows.shape[0] * rows.shape[1] <= _DENSE_ENTRIES:
        dense = np.zeros(rows.shape)

        def fill(span: slice) -> None:
            part = rows[span]
            np.multiply(part.toarray() if sparse.issparse(part) else part, roots, out=dense[span])

        quick_map(fill, row_spans(len(dense)), n_jobs)
        return symmetric_product(dense, n_jobs)
    scaled = (rows @ sparse.diags_array(roots)).tocsr()
    return np.asarray((scaled @ scaled.T).toarray())


def measure_error(fitted: FeatureMap, reference: Reference, n_jobs: int) -> ErrorEstimate:
    """Errors of a feature map at nodes whose exact rows are known."""
    setting = fitted.space.setting
    points = setting.graph.positions[reference.nodes]
    own = np.sqrt(setting.measure[reference.nodes]) if fitted.space.clock == "graph" else np.ones(len(points))
    exact = own[:, None] * reference.kernel * own
    known = reference.rows[:, fitted.anchors]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nodes of a sparse corner may count as far
        rows = fitted.rows(points, n_jobs, absolute=False)[0]
        right = fitted.right_rows(points, n_jobs, absolute=False)[0] if setting.asymmetric else None
    found = _product(rows, rows if right is None else right)
    # With asymmetric pairs all nodes are anchors.
    by_anchors = own[:, None] * gram(known, fitted.weights, n_jobs) * own if right is None else exact
    # The same rows in the unit of the features, to compare signatures.
    ideal = (known.toarray() * np.sqrt(fitted.weights if right is None else 1.0)) * own[:, None]
    dense = rows.toarray() if sparse.issparse(rows) else rows
    scale = frobenius(exact) or 1.0
    return ErrorEstimate(
        kernel=frobenius(found - exact) / scale,
        field=frobenius(found - by_anchors) / scale,
        quadrature=frobenius(by_anchors - exact) / scale,
        graph=None,
        signatures=float(np.linalg.norm(dense - ideal) / (np.linalg.norm(ideal) or 1.0)),
    )


def _product(left: Any, right: Any) -> FloatArray:
    """Dense product of two sets of features."""
    result = left @ right.T
    return np.asarray(result.toarray() if sparse.issparse(result) else result)


def graph_error(space: Space, streams: Streams, n_jobs: int) -> float | None:
    """How far the heat kernel of a graph is from that of the space: its change with another graph of the points.

    A heat graph is compared with one of steps twice as wide, another graph with a heat graph.
    """
    graph, setting = space.graph, space.setting
    if space.series_error is not None:
        return space.series_error
    kernel = space.kernel.kernel if isinstance(space.kernel, ScaledKernel) else space.kernel
    if not isinstance(kernel, HeatKernel) or setting.dim > HEAT_DIM:
        return None
    other = _other_graph(space, kernel.t, n_jobs)
    if other is None:
        return None
    usable = np.flatnonzero((setting.measure > 0) & (other.degrees > 0))
    rng = streams.generator("features.graph error")
    probes = rng.choice(usable, min(len(usable), _PROBES), replace=False)
    here, there = (_heat_kernel(kernel, g, m, probes, n_jobs) for g, m in _measured(space, other))
    change = relative_error(there, here)
    change = change / _CHANGE_OVER_ERROR if (graph.n_steps or 0) >= _FEWEST_TO_HALVE else change
    return max(change, _missing_heat(space, kernel, probes, n_jobs))


def _missing_heat(space: Space, kernel: HeatKernel, probes: IntArray, n_jobs: int) -> float:
    """How much less heat spreads than in flat space, where nodes are too sparse for the kernel.

    Two graphs whose steps reach no neighbours agree with each other, and are both wrong: the heat of a node stays
    there. On a kernel of several nodes curvature may hold heat back, and nothing is said.
    """
    graph, setting = space.graph, space.setting
    n_nodes = (4 * np.pi * kernel.t) ** (setting.dim / 2) / (space.unit * setting.measure[probes])
    lost = probes[n_nodes < _RESOLVED]
    if not len(lost):
        return 0.0
    some = lost[: max(1, _DENSE_HEAT // graph.n_nodes)]
    roots = np.sqrt(setting.measure / setting.measure[some][:, None])  # rows of the kernel become shares of heat
    shares = kernel.matrix(graph, some, n_jobs=n_jobs) * roots  # (s, N)
    gaps = distances_between(graph.positions[some], graph.positions, graph.metric)
    spread = (shares * gaps**2).sum(axis=1) / (2 * setting.dim * kernel.t)
    short = np.clip(1 - spread, 0.0, 1.0)
    return float(np.sqrt(np.mean(short**2) * len(lost) / len(probes)))


def _measured(space: Space, other: Graph) -> tuple[tuple[Graph, FloatArray], tuple[Graph, FloatArray]]:
    """Both graphs, each with the volume of its nodes, in the unit of the measure."""
    weights = other.degrees if other.weights is None else other.weights
    return (space.graph, space.setting.measure), (other, weights / space.unit)


def _heat_kernel(kernel: HeatKernel, graph: Graph, measure: FloatArray, nodes: IntArray, n_jobs: int) -> FloatArray:
    """Heat kernel between nodes, per unit of volume."""
    roots = np.sqrt(measure[nodes])
    return kernel.matrix(graph, nodes, nodes, n_jobs=n_jobs) / roots[:, None] / roots


def _other_graph(space: Space, t: float, n_jobs: int) -> Graph | None:
    """A heat graph of the same nodes, with other steps; None where it does not fit into memory."""
    graph, mesh = space.graph, space.graph.mesh
    steps = graph.n_steps
    known = graph.weights is not None and space.weights_known
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GraphWarning)
        try:
            return heat_graph(
                graph.positions if mesh is None else mesh,
                t,
                n_steps="auto" if steps is None else _other_steps(steps),
                weights=graph.weights if known and mesh is None else "auto",  # type: ignore[arg-type]
                dim=space.setting.dim,
                metric=graph.metric,
                n_jobs=n_jobs,
            )
        except ValueError:  # steps too wide for the memory, or too few nodes
            return None


def _other_steps(steps: int) -> int:
    """Half as many, or two more where there are only two."""
    return steps // 4 * 2 if steps >= _FEWEST_TO_HALVE else steps + 2
