"""How the graph of a space is built, in one object."""

from dataclasses import dataclass, fields
from typing import Any

from manifoldrf._validation import POSITIVE, Interval, check_count, check_integer, check_option, check_real, reject
from manifoldrf.geometry.heat import check_steps
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.kernels._params import FrozenParams

__all__ = ["GraphOptions"]

KINDS = ("auto", "heat", "knn", "mesh")
_UNIT = Interval(0.0, 1.0)
_OF_NEIGHBORS = ("n_neighbors", "bandwidth", "density_correction")


@dataclass(frozen=True, eq=False)
class GraphOptions(FrozenParams):
    """How :class:`ManifoldRandomFeatures` discretises a space.

    Parameters
    ----------
    kind : {"auto", "heat", "knn", "mesh"}
        "heat": :func:`heat_graph`, for kernels in the manifold clock in at most 5 dimensions. "knn":
        :func:`knn_graph`. "mesh": :func:`mesh_graph`, along the edges of a mesh. "auto": heat for kernels in the
        manifold clock where it is accurate, else the edges of a mesh or the neighbours of a cloud.
    n_nodes : int or {"auto", "all"}
        How many nodes: a cloud is thinned to that many farthest points, a manifold is laid out with that many.
        "auto" thins clouds that are far finer than the kernel needs, and lays out as many as it needs. "all" never
        thins. Vertices of a mesh are always all nodes.
    n_steps : "auto" or even int
        Of a heat graph.
    n_neighbors : int, optional
        Of a graph of neighbours; 8 by default.
    density_correction : float, optional
        Of a graph of neighbours; by default 1 for kernels in the manifold clock, which are to be free of the
        density of the points, and 0 for others.
    weights : "auto" or array-like of shape (n,)
        Volume that each point stands for, for heat graphs; known for named manifolds.
    dim : int, optional
        Intrinsic dimension; estimated when not given.
    metric : AbstractManifold, optional
        Measure distances along it.
    bandwidth : {"median", "local"} or float, optional
        Of a graph of neighbours, see :func:`knn_graph`; by default "local" above 3 dimensions, else "median".

    Examples
    --------
    >>> from manifoldrf import GraphOptions, HeatKernel, ManifoldRandomFeatures, Sphere
    >>> options = GraphOptions(n_nodes=2000, n_steps=8)
    >>> features = ManifoldRandomFeatures(HeatKernel(0.05), n_features="all", graph=options).fit(Sphere())
    >>> features.graph_
    Graph(2000 nodes, 110948 edges, points in R^3, n_steps=8)
    """

    kind: str = "auto"
    n_nodes: int | str = "auto"
    n_steps: int | str = "auto"
    n_neighbors: int | None = None
    density_correction: float | None = None
    weights: Any = "auto"
    dim: int | None = None
    metric: AbstractManifold | None = None
    bandwidth: str | float | None = None

    def __post_init__(self) -> None:
        check_option(self.kind, "kind", KINDS)
        check_count(self.n_nodes, "n_nodes", 3, ("auto", "all"))
        if self.n_neighbors is not None:
            check_integer(self.n_neighbors, "n_neighbors", 1)
        check_steps(self.n_steps)
        self._check_bandwidth()
        if self.density_correction is not None:
            check_real(self.density_correction, "density_correction", _UNIT)
        if self.dim is not None:
            check_integer(self.dim, "dim", 1)
        if self.metric is not None and not isinstance(self.metric, AbstractManifold):
            reject("metric", "None or a manifold", repr(self.metric), TypeError)
        if isinstance(self.weights, str):
            check_option(self.weights, "weights", ("auto",))
        self._refuse_idle()

    def _check_bandwidth(self) -> None:
        if isinstance(self.bandwidth, str):
            check_option(self.bandwidth, "bandwidth", ("median", "local"))
        elif self.bandwidth is not None:
            check_real(self.bandwidth, "bandwidth", POSITIVE)

    @property
    def only_dim(self) -> bool:
        """Whether nothing but the dimension is given."""
        return all(getattr(self, field.name) == field.default for field in fields(self) if field.name != "dim")

    @property
    def wants_neighbors(self) -> bool:
        """Whether something is given that only a graph of neighbours has."""
        return any(getattr(self, name) is not None for name in _OF_NEIGHBORS)

    def _refuse_idle(self) -> None:
        """An option without effect is a mistake."""
        for name in _OF_NEIGHBORS:
            if self.kind in ("heat", "mesh") and getattr(self, name) is not None:
                reject(name, f"left out with kind='{self.kind}'", getattr(self, name))
        if self.kind in ("knn", "mesh") and self.n_steps != "auto":
            reject("n_steps", f"left out with kind='{self.kind}'", self.n_steps)
        if self.kind in ("knn", "mesh") and not isinstance(self.weights, str):
            reject("weights", f"left out with kind='{self.kind}'", "an array")
