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
from manifoldrf._random import SeedLike, Streams
from manifoldrf._runtime import Progress, silent, warn_user
from manifoldrf._validation import (
    POSITIVE,
    FloatArray,
    Interval,
    check_count,
    check_flag,
    check_integer,
    check_jobs,
    check_option,
    check_points,
    check_real,
    column_names,
    counting_columns,
    refuse_text,
    reject,
)
from manifoldrf.geometry.cleaning import check_noise
from manifoldrf.geometry.graphs import Graph, as_space
from manifoldrf.geometry.heat import check_steps
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.kernels.abstract_kernel import FrozenParams
from manifoldrf.kernels.manifold_kernels import HeatKernel
from manifoldrf.paper.network import Network
from manifoldrf.signatures.teachers import Signatures, check_teacher, compute_signatures

__all__ = ["HeatGraph", "KnnGraph", "MeshGraph"]

FIELDS = ("auto", "step", "interpolated")
ANCHORS = ("farthest", "iid", "all")
QUADRATURES = ("auto", "nnls", "voronoi", "uniform")


def _check_metric(metric: Any) -> None:
    if metric is not None and not isinstance(metric, AbstractManifold):
        reject("metric", "None or a manifold", repr(metric), TypeError)


@stored
@dataclass(frozen=True, eq=False)
class HeatGraph(FrozenParams):
    """A graph whose walk is the heat flow of the space, as built by :func:`heat_graph`.

    Parameters
    ----------
    n_nodes : int or {"auto", "all"}
        Number of nodes; "auto": as many as the kernel needs.
    n_steps : "auto" or even int
        Steps that make up the heat time.
    dim : int, optional
        Intrinsic dimension; estimated by default.
    metric : AbstractManifold, optional
        Measure distances along this manifold.
    noise_std : "auto" or float
        Standard deviation of the noise in each coordinate of a cloud. Points and queries are moved onto the space,
        and outliers are left out. "auto" finds the noise; 0 takes the points as they are.
    volumes : array-like of shape (n,), optional
        Volume of each point; estimated by default, known on named manifolds.

    Examples
    --------
    >>> from manifoldrf import HeatGraph, HeatKernel, ManifoldRandomFeatures, Sphere
    >>> graph = HeatGraph(n_nodes=2000, n_steps=8)
    >>> ManifoldRandomFeatures(HeatKernel(0.05), "all", graph=graph).fit(Sphere()).graph_
    Graph(2000 nodes, 111104 edges, points in R^3, n_steps=8)
    """

    n_nodes: int | str = "auto"
    n_steps: int | str = "auto"
    dim: int | None = None
    metric: AbstractManifold | None = None
    noise_std: float | str = "auto"
    volumes: Any = None

    def __post_init__(self) -> None:
        check_count(self.n_nodes, "n_nodes", 3, ("auto", "all"))
        check_steps(self.n_steps)
        if self.dim is not None:
            check_integer(self.dim, "dim", 1)
        _check_metric(self.metric)
        check_noise(self.noise_std)
        fixed = self.metric is not None or self.volumes is not None
        if fixed and self.noise_std not in ("auto", 0):
            reject("noise_std", "'auto' or 0 with a metric or volumes", self.noise_std)

    @property
    def only_dim(self) -> bool:
        """Whether nothing but the dimension is given."""
        others = [part for part in dataclasses.fields(self) if part.name != "dim"]
        return all(getattr(self, part.name) is part.default for part in others)


@stored
@dataclass(frozen=True, eq=False)
class KnnGraph(FrozenParams):
    """A graph of nearest neighbours of the points as they are, as built by :func:`knn_graph`.

    Parameters
    ----------
    n_neighbors : int
    bandwidth : {"median", "mean", "local"} or float, optional
        By default "local" above 3 dimensions, else "median".
    density_correction : float, optional
        In [0, 1]; by default 1 for kernels in the manifold clock, which should not depend on the density of the
        points, and 0 for others.
    metric : AbstractManifold, optional
        Measure distances along this manifold.

    Examples
    --------
    >>> from manifoldrf import DiffusionKernel, KnnGraph, ManifoldRandomFeatures, Sphere
    >>> ManifoldRandomFeatures(DiffusionKernel(20.0), graph=KnnGraph(n_neighbors=12)).fit(Sphere().grid(500)).graph_
    Graph(500 nodes, 3105 edges, points in R^3)
    """

    n_neighbors: int = 8
    bandwidth: str | float | None = None
    density_correction: float | None = None
    metric: AbstractManifold | None = None

    def __post_init__(self) -> None:
        check_integer(self.n_neighbors, "n_neighbors", 1)
        if isinstance(self.bandwidth, str):
            check_option(self.bandwidth, "bandwidth", ("median", "mean", "local"))
        elif self.bandwidth is not None:
            check_real(self.bandwidth, "bandwidth", POSITIVE)
        if self.density_correction is not None:
            check_real(self.density_correction, "density_correction", Interval(0.0, 1.0))
        _check_metric(self.metric)


@stored
@dataclass(frozen=True, eq=False)
class MeshGraph(FrozenParams):
    """The edges of a mesh, as built by :func:`mesh_graph`.

    Examples
    --------
    >>> from manifoldrf import DiffusionKernel, ManifoldRandomFeatures, MeshGraph, TriangleMesh
    >>> corners = [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1]]
    >>> mesh = TriangleMesh(corners, [[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]])
    >>> ManifoldRandomFeatures(DiffusionKernel(20.0), graph=MeshGraph()).fit(mesh).graph_.n_edges
    6
    """


@dataclass(frozen=True)
class Teaching:
    """How signatures are computed: the corresponding arguments of :func:`compute_signatures`."""

    teacher: Any = "auto"
    seed: SeedLike = None
    n_jobs: int = 1
    progress: Progress = silent
    compute: Callable[..., Signatures] = compute_signatures  # here or on other machines


@dataclass(frozen=True, eq=False)
class FitOptions:
    """Checked parameters of :class:`ManifoldRandomFeatures`, and what a fit draws random numbers from."""

    streams: Streams
    kernel: Any = None
    n_features: int | str = "auto"
    normalize: bool = True
    graph: Any = None
    field: str | Network = "auto"
    anchors: str = "farthest"
    quadrature: str = "auto"
    teaching: Teaching = dataclasses.field(default_factory=Teaching)

    @classmethod
    def of(
        cls,
        params: dict[str, Any],
        streams: Streams | None = None,
        compute: Callable[..., Signatures] = compute_signatures,
    ) -> "FitOptions":
        """Check the parameters of the estimator."""
        streams = streams or Streams.from_seed(params["random_state"], "random_state")
        kernel, graph, field, teacher = (params[name] for name in ("kernel", "graph", "field", "teacher"))
        if isinstance(kernel, type):
            reject("kernel", f"a kernel, not its class: {kernel.__name__}(...)", kernel.__name__, TypeError)
        if not (graph is None or isinstance(graph, HeatGraph | KnnGraph | MeshGraph | Graph) or callable(graph)):
            reject("graph", "None, HeatGraph, KnnGraph, MeshGraph, a Graph or a function", repr(graph), TypeError)
        if not isinstance(field, Network):
            check_option(field, "field", FIELDS)
        elif field.checkpoint is not None and params["random_state"] is None:
            reject("random_state", "given with a checkpoint, or training cannot be resumed", None)
        check_teacher(teacher)
        anchors = check_option(params["anchors"], "anchors", ANCHORS)
        n_features = check_count(params["n_features"], "n_features", 1, ("auto", "all"))
        if anchors == "all" and not isinstance(n_features, str):
            reject("n_features", "'auto' or 'all' with anchors='all'", n_features)
        if anchors == "iid" and n_features == "all":
            reject("n_features", "'auto' or an integer with anchors='iid'", repr(n_features))
        check_flag(params["sparse_output"], "sparse_output")
        # A number, not a generator: the draws of one table must not depend on the tables before it.
        seed = int(streams.generator("features.signatures").integers(2**62))
        teaching = Teaching(teacher, seed, check_jobs(params["n_jobs"]), _progress(params["verbose"]), compute)
        return cls(
            streams,
            kernel,
            n_features,
            check_flag(params["normalize"], "normalize"),
            graph,
            field,
            anchors,
            check_option(params["quadrature"], "quadrature", QUADRATURES),
            teaching,
        )

    @property
    def n_jobs(self) -> int:
        """Number of threads, at least 1."""
        return self.teaching.n_jobs

    @property
    def progress(self) -> Progress:
        """Called with (what, done, total)."""
        return self.teaching.progress


def _progress(verbose: Any) -> Progress:
    """The progress callback for a value of ``verbose``."""

    def to_terminal(what: str, done: int, total: int) -> None:
        sys.stderr.write(f"\r{what}: {done} of {total}" + ("\n" if done >= total else ""))
        sys.stderr.flush()

    if not (callable(verbose) or isinstance(verbose, bool | np.bool_)):
        reject("verbose", "True, False or a function of (what, done, total)", repr(verbose), TypeError)
    show: Progress = verbose if callable(verbose) else to_terminal if verbose else silent
    return show


class FrozenParamsMixin:
    """``set_params(kernel__t=...)`` for estimators with frozen parameters, which are replaced, not changed.

    ``kernel=None`` stands for a heat kernel, so ``kernel__t`` makes it one with this time.
    """

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``kernel__<name>`` replaces the kernel by one with another value, and so on."""
        inner: dict[str, dict[str, Any]] = defaultdict(dict)
        outer = {}
        for name, value in params.items():
            owner, _, rest = name.partition("__")
            part = params.get(owner, getattr(self, owner, None))
            if name == "kernel__t" and part is None:
                outer["kernel"] = HeatKernel(value)
            elif rest and isinstance(part, FrozenParams):
                inner[owner][rest] = value
            elif rest and (part is None or isinstance(part, str)) and hasattr(self, owner):
                raise ValueError(f"`{name}` needs an object to change: `{owner}` is {part!r}.")
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
