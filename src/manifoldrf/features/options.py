"""Parameters of the estimators: how a graph is built, how features are fitted, and how both are checked."""

import dataclasses
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import validate_data

from manifoldrf._codec import stored
from manifoldrf._random import Streams
from manifoldrf._runtime import Progress, silent, warn_user
from manifoldrf._validation import (
    POSITIVE,
    FloatArray,
    Interval,
    as_array,
    check_count,
    check_flag,
    check_integer,
    check_jobs,
    check_option,
    check_points,
    check_real,
    column_names,
    counting_columns,
    fail,
    refuse_text,
    reject,
)
from manifoldrf.fields.anchors import METHODS
from manifoldrf.fields.data import AbstractField, Compute, FieldData, SignatureOptions, check_device
from manifoldrf.fields.training import MlpOptions
from manifoldrf.geometry.clouds import check_noise
from manifoldrf.geometry.graphs import Graph, as_space
from manifoldrf.geometry.heat import check_steps
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.kernels.abstract_kernel import FrozenParams
from manifoldrf.kernels.manifold_kernels import HeatKernel
from manifoldrf.signatures.teachers import Counts, Exact, Walks, check_teacher, compute_signatures

__all__ = ["GraphOptions"]

KINDS = ("auto", "heat", "knn", "mesh")
FIELDS = ("auto", "step", "interpolated", "local", "mlp")
ANCHORS = ("farthest", "medoid", "iid", "all")
FitField = Callable[[FieldData], AbstractField]
_LOSSES = ("relative", "l2")
_UNIT = Interval(0.0, 1.0)
_KNN_OPTIONS = ("n_neighbors", "bandwidth", "density_correction")


@stored
@dataclass(frozen=True, eq=False)
class GraphOptions(FrozenParams):
    """How :class:`ManifoldRandomFeatures` discretises a space.

    Parameters
    ----------
    kind : {"auto", "heat", "knn", "mesh"}
        "heat": :func:`heat_graph`, for kernels in the manifold clock in at most 5 dimensions. "knn":
        :func:`knn_graph`. "mesh": :func:`mesh_graph`, along the edges of a mesh. "auto": a heat graph for kernels
        in the manifold clock where it is accurate, else the edges of a mesh or the nearest neighbours in a cloud.
    n_nodes : int or {"auto", "all"}
        Number of nodes: a cloud or a mesh is thinned to this many farthest points (on a mesh: vertices, along its
        surface), and a grid of this size is laid out on a manifold. "auto" thins clouds and meshes that are far
        finer than the kernel needs, and lays out as many nodes as it needs. "all" never thins.
    n_steps : "auto" or even int
        Steps of a heat graph.
    n_neighbors : int, optional
        Neighbours in a knn graph; 8 by default.
    density_correction : float, optional
        Of a knn graph. By default 1 for kernels in the manifold clock, which should not depend on the density of
        the points, and 0 for others.
    weights : "auto" or array-like of shape (n,)
        Volume of each point, for heat graphs; known for named manifolds.
    dim : int, optional
        Intrinsic dimension; estimated by default.
    metric : AbstractManifold, optional
        Measure distances along this manifold.
    bandwidth : {"median", "local"} or float, optional
        Of a knn graph, see :func:`knn_graph`; by default "local" above 3 dimensions, else "median".
    noise : "auto" or float
        Standard deviation of the noise in each coordinate of a cloud. Points and queries are moved onto the space,
        and outliers are left out (:func:`clean_cloud`). "auto" finds the noise, and does nothing for kernels in
        steps of the graph or if weights or a metric are given. 0 takes the points as they are.

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
    noise: float | str = "auto"

    def __post_init__(self) -> None:
        check_option(self.kind, "kind", KINDS)
        check_count(self.n_nodes, "n_nodes", 3, ("auto", "all"))
        if self.n_neighbors is not None:
            check_integer(self.n_neighbors, "n_neighbors", 1)
        check_steps(self.n_steps)
        if isinstance(self.bandwidth, str):
            check_option(self.bandwidth, "bandwidth", ("median", "local"))
        elif self.bandwidth is not None:
            check_real(self.bandwidth, "bandwidth", POSITIVE)
        if self.density_correction is not None:
            check_real(self.density_correction, "density_correction", _UNIT)
        if self.dim is not None:
            check_integer(self.dim, "dim", 1)
        if self.metric is not None and not isinstance(self.metric, AbstractManifold):
            reject("metric", "None or a manifold", repr(self.metric), TypeError)
        if isinstance(self.weights, str):
            check_option(self.weights, "weights", ("auto",))
        check_noise(self.noise)
        self._refuse_unused()

    def _refuse_unused(self) -> None:
        """Raise if an option has no effect: that is a mistake."""
        for name in _KNN_OPTIONS:
            if self.kind in ("heat", "mesh") and getattr(self, name) is not None:
                reject(name, f"left out with kind='{self.kind}'", getattr(self, name))
        if self.kind in ("knn", "mesh") and self.n_steps != "auto":
            reject("n_steps", f"left out with kind='{self.kind}'", self.n_steps)
        if self.kind in ("knn", "mesh") and not isinstance(self.weights, str):
            reject("weights", f"left out with kind='{self.kind}'", "an array")

    @property
    def only_dim(self) -> bool:
        """Whether only the dimension is given."""
        others = [part for part in dataclasses.fields(self) if part.name != "dim"]
        return all(getattr(self, part.name) == part.default for part in others)

    @property
    def wants_neighbors(self) -> bool:
        """Whether an option is given that only knn graphs have."""
        return any(getattr(self, name) is not None for name in _KNN_OPTIONS)


@dataclass(frozen=True, eq=False)
class FitOptions:
    """Checked options of a fit.

    Attributes
    ----------
    streams : Streams
        Random streams of the fit.
    graph : GraphOptions, callable, Graph or None
    n_features : int or {"auto", "all"}
    field : str
        A name from ``FIELDS``, or the name of ``fit_field``.
    anchors, weights : str
    n_starts : int, optional
    density : array or callable, optional
        That i.i.d. anchors are drawn from.
    field_options : dict
    signatures : SignatureOptions
        With the number of threads and the progress callback of the whole fit.
    fit_field : callable, optional
        The user's own function that fits a field.
    scale : float
        Length of a chosen kernel, relative to the usual one.
    normalize : bool
        Whether features are scaled to K(x, x) = 1 on average.
    """

    streams: Streams
    graph: Any = None
    n_features: int | str = "auto"
    field: str = "auto"
    anchors: str = "farthest"
    weights: str = "auto"
    n_starts: int | None = None
    density: Any = None
    field_options: dict[str, Any] = dataclasses.field(default_factory=dict)
    signatures: SignatureOptions = dataclasses.field(default_factory=SignatureOptions)
    fit_field: FitField | None = None
    scale: float = 1.0
    normalize: bool = False

    @property
    def n_jobs(self) -> int:
        """Number of threads, at least 1."""
        return self.signatures.n_jobs

    @property
    def progress(self) -> Progress:
        """Called with (what, done, total)."""
        return self.signatures.progress


def fit_options(
    params: dict[str, Any], streams: Streams | None = None, compute: Compute = compute_signatures
) -> FitOptions:
    """Check the parameters of :class:`ManifoldRandomFeatures`.

    Parameters
    ----------
    params : dict
        All parameters of the estimator.
    streams : Streams, optional
        Made from ``random_state`` by default.
    compute : callable
        Computes the signatures.
    """
    streams = streams or Streams.from_seed(params["random_state"], "random_state")
    n_jobs = check_jobs(params["n_jobs"])
    name, fit_field = _check_field(params["field"])
    check_option(params["anchors"], "anchors", ANCHORS)
    check_option(params["weights"], "weights", METHODS)
    check_flag(params["sparse_output"], "sparse_output")
    n_features = _check_anchors(params)
    if params["n_starts"] is not None:
        check_integer(params["n_starts"], "n_starts", 2 if name == "mlp" else 1)
    teacher, options = params["teacher"], check_dict(params["teacher_options"], "teacher_options")
    kinds: dict[str, Any] = {"walks": Walks, "counts": Counts, "frontier": Exact}
    if isinstance(teacher, str) and teacher in kinds:
        teacher = kinds[teacher]().with_params(**options)
    check_teacher(teacher)
    # A number, not a generator: the draws of one field must not depend on the fields tried before it.
    seed = int(streams.generator("features.signatures").integers(2**62))
    progress = _progress(params["verbose"])
    density = params["anchor_density"]
    return FitOptions(
        streams=streams,
        graph=params["graph"],
        n_features=n_features,
        field=name,
        anchors=params["anchors"],
        weights=params["weights"],
        n_starts=params["n_starts"],
        density=density if density is None or callable(density) else as_array(density, "anchor_density"),
        field_options=_field_options(params, name),
        signatures=SignatureOptions(teacher, seed, n_jobs, progress, compute),
        fit_field=fit_field,
        scale=_check_scale(params),
        normalize=check_flag(params["normalize"], "normalize"),
    )


def _check_field(field: Any) -> tuple[str, FitField | None]:
    """Name of a field and, if the user gave one, the function that fits it."""
    if isinstance(field, str) or not callable(field):
        return check_option(field, "field", FIELDS), None
    return str(getattr(field, "__name__", type(field).__name__)), field


def _check_scale(params: dict[str, Any]) -> float:
    """The relative length of the chosen kernel; a given kernel has its own length."""
    scale = check_real(params["scale"], "scale", POSITIVE)
    if scale != 1 and params["kernel"] is not None:
        reject("scale", "1 where a kernel is given (change its own time or length instead)", scale)
    return scale


def _check_anchors(params: dict[str, Any]) -> int | str:
    """The number of features, consistent with the choice of anchors."""
    given, anchors = params["n_features"], params["anchors"]
    n_features = check_count(given, "n_features", 1, ("auto", "all"))
    if params["anchor_density"] is not None and anchors != "iid":
        reject("anchor_density", "None unless anchors='iid'", "an array")
    if anchors == "all" and not isinstance(n_features, str):
        reject("n_features", "'auto' or 'all' with anchors='all'", n_features)
    if anchors == "iid" and n_features == "all":
        reject("n_features", "'auto' or an integer with anchors='iid'", repr(n_features))
    return n_features


def _field_options(params: dict[str, Any], name: str) -> dict[str, Any]:
    """Checked options of the field, including those that are parameters of the estimator."""
    options = dict(check_dict(params["field_options"], "field_options"))
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
    for option in options:
        if option not in known:
            text = f"Field '{name}' has no option `{option}`; it has {', '.join(known) or 'none'}."
            fail(option, text, TypeError)
    if params["field"] == "mlp":
        MlpOptions(**options)
        if options.get("checkpoint") is not None and params["random_state"] is None:
            reject("random_state", "given with a checkpoint, or training cannot be resumed", None)
    return options


def check_dict(options: Any, name: str) -> dict[str, Any]:
    """Return options by name; None means none."""
    if options is not None and not isinstance(options, dict):
        reject(name, "a dict of options by name, or None", repr(options), TypeError)
    return options or {}


def _progress(verbose: Any) -> Progress:
    """The progress callback for a value of ``verbose``."""
    if callable(verbose):
        show: Progress = verbose
        return show
    if not isinstance(verbose, bool | np.bool_):
        reject("verbose", "True, False or a function of (what, done, total)", repr(verbose), TypeError)
    return _to_terminal if verbose else silent


def _to_terminal(what: str, done: int, total: int) -> None:
    sys.stderr.write(f"\r{what}: {done} of {total}" + ("\n" if done >= total else ""))
    sys.stderr.flush()


class FrozenParamsMixin:
    """``set_params(kernel__t=...)`` for estimators with frozen parameters, which are replaced, not changed.

    ``kernel=None`` stands for a heat kernel, so ``kernel__t`` makes it one with this time.
    """

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the estimator; ``kernel__<name>`` replaces the kernel by one with another value."""
        inner: dict[str, dict[str, Any]] = defaultdict(dict)
        outer = {}
        for name, value in params.items():
            owner, _, rest = name.partition("__")
            part = params.get(owner, getattr(self, owner, None))
            if name == "kernel__t" and part is None:
                outer["kernel"] = HeatKernel(value)
                continue
            if rest and owner in ("kernel", "graph") and part is None:
                example = "HeatKernel(0.1)" if owner == "kernel" else "GraphOptions()"
                raise ValueError(f"`{name}` needs a {owner} to change: give one, such as {owner}={example}.")
            if rest and isinstance(part, FrozenParams):
                inner[owner][rest] = value
            else:
                outer[name] = value
        super().set_params(**outer)  # type: ignore[misc]
        for owner, changes in inner.items():
            setattr(self, owner, getattr(self, owner).with_params(**changes))
        return self


def estimator_points(estimator: Any, X: Any, name: str = "X", **options: Any) -> tuple[FloatArray, Any]:
    """Points as float64, and the float type they were given in.

    Parameters
    ----------
    estimator : estimator
        The number of coordinates and their names are stored on it or, with ``reset=False``, compared.
    X : array-like of shape (n, d)
    name : str
        Name of the argument in error texts.
    **options
        Options of scikit-learn's ``validate_data``.
    """
    refuse_text(X, name)  # scikit-learn would convert text to numbers
    found = validate_data(estimator, X, dtype=(np.float64, np.float32), ensure_all_finite=False, **options)
    return check_points(found, name, names=column_names(X)), found.dtype


def check_space(estimator: Any, X: Any) -> Any:
    """Check what an estimator is fitted to, and store the number of coordinates as scikit-learn requires."""
    X = as_space(X, "X")
    if not isinstance(X, TriangleMesh | AbstractManifold | Graph):
        points = estimator_points(estimator, X)[0]
        if len(points) < 2:
            reject("X", "an array of at least 2 points", "1 sample")  # the words that scikit-learn's checks ask for
        if names := column_names(X):
            for k in counting_columns(points):
                text = "looks like a row number, but is used as a coordinate (remedy: drop it)"
                warn_user(f"Column {names[k]!r} of `X` {text}.")
        return points
    if isinstance(X, AbstractManifold):
        estimator.n_features_in_ = X.ambient_dim
    else:
        points = X.vertices if isinstance(X, TriangleMesh) else X.positions
        estimator.n_features_in_ = int(points.shape[1])
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    return X
