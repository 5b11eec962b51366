"""How the graph of a space is built, in one object."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from manifoldrf._random import Streams
from manifoldrf._validation import (
    POSITIVE,
    Interval,
    as_array,
    check_count,
    check_flag,
    check_integer,
    check_option,
    check_real,
    reject,
)
from manifoldrf.features._estimators import estimator_points
from manifoldrf.fields.data import AbstractField, Compute, FieldData, Teaching
from manifoldrf.fields.options import MlpOptions, check_device
from manifoldrf.fields.quadrature import METHODS
from manifoldrf.geometry.graphs import Graph
from manifoldrf.geometry.heat import check_steps
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.kernels.abstract_kernel import FrozenParams
from manifoldrf.signatures.engines import Progress, silent
from manifoldrf.signatures.options import make_options
from manifoldrf.signatures.teachers import check_teacher, compute_signatures

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


FIELDS = ("auto", "step", "interpolated", "local", "mlp")
FitField = Callable[[FieldData], AbstractField]
ANCHORS = ("farthest", "iid", "all")
_LOSSES = ("relative", "l2")


@dataclass(frozen=True)
class Plan:
    """What is to be fitted, and how."""

    n_features: int | str
    field: str
    anchors: str
    weights: str
    n_starts: int | None
    density: Any  # numbers, a function of the points, or None
    field_options: dict[str, Any]
    teaching: Teaching
    streams: Streams
    fit_field: FitField | None = None  # of the user's


def make_plan(params: dict[str, Any], streams: Streams, n_jobs: int, compute: Compute = compute_signatures) -> Plan:
    """Check the parameters of an estimator; ``compute`` will compute the signatures."""
    field, fit_field = _check_field(params["field"])
    check_option(params["anchors"], "anchors", ANCHORS)
    check_option(params["weights"], "weights", METHODS)
    teacher = check_teacher(params["teacher"])
    check_flag(params["sparse_output"], "sparse_output")
    n_features = _check_anchors(params)
    if params["n_starts"] is not None:
        check_integer(params["n_starts"], "n_starts", 2 if field == "mlp" else 1)
    options = _check_dict(params["teacher_options"], "teacher_options")
    if isinstance(teacher, str) and teacher != "auto":
        make_options(teacher, options)
    elif teacher == "auto" and options:
        reject("teacher_options", "left out with teacher='auto'", options)
    # A number, not a generator: what one field draws must not depend on those tried before it.
    seed = int(streams.generator("features.signatures").integers(2**62))
    teaching = Teaching(teacher, tuple(options.items()), seed, n_jobs, _progress(params["verbose"]), compute)
    density = params["anchor_density"]
    return Plan(
        n_features,
        field,
        params["anchors"],
        params["weights"],
        params["n_starts"],
        as_array(density, "anchor_density") if density is not None and not callable(density) else density,
        _field_options(params, field),
        teaching,
        streams,
        fit_field,
    )


def _check_field(field: Any) -> tuple[str, FitField | None]:
    """Name of a field and, where the user gives one, the function that fits it."""
    if isinstance(field, str) or not callable(field):
        return check_option(field, "field", FIELDS), None
    return str(getattr(field, "__name__", type(field).__name__)), field


def _check_anchors(params: dict[str, Any]) -> int | str:
    """The number of features, in agreement with the choice of anchors."""
    given, anchors = params["n_features"], params["anchors"]
    n_features = check_count(given, "n_features", 1, ("auto", "all"))
    if params["anchor_density"] is not None and anchors != "iid":
        reject("anchor_density", "None unless anchors='iid'", "an array")
    if anchors == "all" and not isinstance(n_features, str):
        reject("n_features", "'auto' or 'all' with anchors='all'", n_features)
    if anchors == "iid" and n_features == "all":
        reject("n_features", "'auto' or an integer with anchors='iid'", repr(n_features))
    return n_features


def _field_options(params: dict[str, Any], field: str) -> dict[str, Any]:
    """Options of the field, with those that are parameters of their own; checked."""
    options = dict(_check_dict(params["field_options"], "field_options"))
    check_device(params["device"])
    if params["loss"] is not None:
        check_option(params["loss"], "loss", _LOSSES)
        if params["field"] != "mlp":
            reject("loss", "None unless field='mlp'", repr(params["loss"]))
        options["loss"] = params["loss"]
    if params["field"] == "mlp":
        options.setdefault("device", params["device"])
        known = tuple(MlpOptions.__dataclass_fields__)
    else:
        known = ("degree",) if params["field"] == "local" else ()
    for name in options:
        if name not in known:
            has = ", ".join(known) or "none"
            raise TypeError(f"Field '{field}' has no option `{name}`; it has {has}.")
    if params["field"] == "mlp":
        MlpOptions(**options)
        if options.get("checkpoint") is not None and params["random_state"] is None:
            reject("random_state", "given with a checkpoint, or training cannot be taken up again", None)
    return options


def _check_dict(options: Any, name: str) -> dict[str, Any]:
    if options is not None and not isinstance(options, dict):
        reject(name, "a dict of options by name, or None", repr(options), TypeError)
    return options or {}


def _progress(verbose: Any) -> Progress:
    """Where progress goes."""
    if callable(verbose):
        show: Progress = verbose
        return show
    if not isinstance(verbose, bool | np.bool_):
        reject("verbose", "True, False or a function of (what, done, total)", repr(verbose), TypeError)
    return _to_terminal if verbose else silent


def _to_terminal(what: str, done: int, total: int) -> None:
    sys.stderr.write(f"\r{what}: {done} of {total}" + ("\n" if done >= total else ""))
    sys.stderr.flush()


def check_space(estimator: Any, X: Any) -> Any:
    """What is fitted, with the number of coordinates noted as scikit-learn asks for."""
    if not isinstance(X, TriangleMesh | AbstractManifold | Graph):
        return estimator_points(estimator, X, ensure_min_samples=2)[0]
    estimator.n_features_in_ = _coordinates_of(X)
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    return X


def _coordinates_of(space: TriangleMesh | AbstractManifold | Graph) -> int:
    """Number of coordinates of a point."""
    if isinstance(space, AbstractManifold):
        return space.ambient_dim
    return int((space.vertices if isinstance(space, TriangleMesh) else space.positions).shape[1])
