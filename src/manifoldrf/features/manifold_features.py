"""Features of points of a curved space, as a scikit-learn transformer."""

import copy
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted, validate_data

from manifoldrf._codec import check_types, save_value, stored
from manifoldrf._files import html_table
from manifoldrf._random import SeedLike, Streams
from manifoldrf._runtime import (
    ManifoldWarning,
    all_or_nothing,
    one_blas_thread,
    quiet_underflow,
    stage_of,
    warn_user,
    without_warnings,
)
from manifoldrf._validation import (
    POSITIVE,
    FloatArray,
    IntArray,
    as_floats,
    check_columns,
    check_flag,
    check_integer,
    check_jobs,
    check_option,
    check_points,
    check_progress,
    check_vector,
    column_names,
    counting_columns,
    look_like_degrees,
    refuse_text,
    reject,
)
from manifoldrf.features.errors import USELESS, ErrorEstimate, brief, graph_error, warn_inaccurate
from manifoldrf.features.feature_map import FeatureMap, product, warn_of_far
from manifoldrf.features.fit import FitOptions, FitRecord, FrozenParamsMixin, fit_features
from manifoldrf.features.graph_kernel import KnnGraph
from manifoldrf.features.times import PreparedPoints, TimeRange, check_in_range, check_times
from manifoldrf.geometry.graphs import Graph, translated
from manifoldrf.geometry.manifolds import AbstractManifold
from manifoldrf.geometry.meshes import TriangleMesh
from manifoldrf.kernels.abstract_kernel import AbstractKernel, FrozenParams, ScaledKernel
from manifoldrf.kernels.named_kernels import DiffusionKernel, HeatKernel
from manifoldrf.paper import Network, TrainingInfo
from manifoldrf.signatures import Walks

# Types of parameters that are kept in a file; functions and generators are not needed after the fit.
_PLAIN = (FrozenParams, Graph, np.ndarray, np.generic, str, int, float, list, tuple, dict, os.PathLike, type(None))


@stored
class ManifoldRandomFeatures(FrozenParamsMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Nonnegative feature vectors of points of a curved space, whose inner products are a kernel of the space.

    phi(x) . phi(y) ~ K(x, y), with phi(z)_l = sqrt(s w_l) g(z, omega_l). Signatures g are computed between anchors
    omega_l and the nodes of a graph that discretises the space; weights over nodes near z extend g to z. phi is
    defined for every z, nonnegative and bounded. The factor s makes K(x, x) one on average; without ``normalize``,
    s is one.

    Parameters
    ----------
    kernel : AbstractKernel, callable or None, default=None
        None: the heat kernel at a time estimated from the points. In the manifold clock (``HeatKernel``) features
        approximate the kernel of the space per unit of volume; in the graph clock (``DiffusionKernel``, ...) the
        kernel of the graph, as if a point were a node. A symmetric function F(X, Y) is approximated by a series of
        heat steps.
    n_features : int or {"auto", "all"}, default="auto"
        "auto": as many as the width of the kernel requires. "all": every node of the graph is an anchor.
    times : pair of float, optional
        Shortest and longest heat time. Features are then fitted for all times between, and :meth:`at` returns those
        of any time, or of a Matern kernel, without another fit. ``kernel`` is the one in use after the fit: a heat
        kernel with a time in the range (by default the geometric mean), or a Matern kernel. Only for spaces that
        get a heat graph.
    normalize : bool, default=True
        Whether features are scaled such that K(x, x) = 1 on average, as learners expect; ``scale_`` is the factor
        of the kernel. Otherwise the scale is absolute: a heat kernel is then about (4 pi t)^(-dim / 2) high, in the
        unit of the coordinates.
    graph : HeatGraph, KnnGraph, MeshGraph, Graph, callable or None, default=None
        How the graph is built. None: a heat graph for kernels in the manifold clock in few dimensions, else the
        edges of a mesh or nearest neighbours. A callable takes the points (or the mesh) and returns a
        :class:`Graph`.
    teacher : {"auto", "exact"}, Walks, Counts or callable, default="auto"
        Method that computes signatures, as in :func:`compute_signatures`; "auto" and "exact" are ``Exact(1e-7)``.
    field : {"auto", "step", "interpolated"} or Network, default="auto"
        How signatures are extended to new points: by one step of the walk, by interpolation between nodes, or by
        the paper's network. "auto" takes the step or the interpolation, whichever is better at held-out nodes.
    anchors : {"farthest", "iid", "all"}, default="farthest"
        Choice of the anchors among the nodes.
    quadrature : {"auto", "nnls", "voronoi", "uniform"}, default="auto"
        Weights of the anchors. "voronoi": the volume nearest to each anchor. "nnls": nonnegative least squares, if
        better than "voronoi" at held-out nodes. "uniform": the paper's plain sum over all nodes, or its unbiased
        estimate from i.i.d. anchors. "auto": "uniform" if all nodes are anchors or anchors are i.i.d., otherwise
        "nnls" where it is affordable.
    random_state : None, int, Generator or RandomState, default=None
    n_jobs : int, default=-1
        Number of threads, -1 for all cores; it does not change the results.
    sparse_output : bool, default=False
        Whether :meth:`transform` returns CSR arrays.
    verbose : bool or callable, default=False
        Whether progress is shown; a callable takes (what, done, total), where ``what`` names the current stage.

    Attributes
    ----------
    graph_ : Graph
    kernel_ : AbstractKernel
        As given or chosen; the series of a function.
    anchors_ : int array of shape (m,)
        Nodes of ``graph_``.
    weights_ : array of shape (m,)
        w_l; volumes in the manifold clock, whether features are normalised or not.
    scale_ : float
        Features represent ``scale_`` times ``kernel_``; 1 without ``normalize``.
    bound_ : array of shape (m,)
        Largest value that each feature can take (of the left side, if there are two).
    error_ : ErrorEstimate
        Measured at held-out nodes; the share of the graph is computed on first access.
    field_, quadrature_ : str
        The field and the quadrature in use.
    training_ : TrainingInfo or None
        Record of the training of a network.
    asymmetric_ : bool
        Whether features have two sides, for kernels without nonnegative features.
    n_features_in_, n_features_out_ : int

    See Also
    --------
    GraphRandomFeatures : features of the nodes of a graph.

    Examples
    --------
    >>> import numpy as np
    >>> from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere
    >>> features = ManifoldRandomFeatures(HeatKernel(0.05), n_features=512, random_state=0).fit(Sphere())
    >>> new = Sphere().sample(100, seed=1)
    >>> bool(np.allclose((features.transform(new) ** 2).sum(axis=1), 1, rtol=0.02))
    True
    >>> exact = features.scale_ * Sphere().heat_kernel(new, new, 0.05)
    >>> bool(np.linalg.norm(features.kernel_matrix(new) - exact) < 0.01 * np.linalg.norm(exact))
    True
    """

    def __init__(  # noqa: PLR0913  (an estimator remembers all its options)
        self,
        kernel: Any = None,
        n_features: int | str = "auto",
        *,
        times: tuple[float, float] | None = None,
        normalize: bool = True,
        graph: Any = None,
        teacher: Any = "auto",
        field: Any = "auto",
        anchors: str = "farthest",
        quadrature: str = "auto",
        random_state: SeedLike = None,
        n_jobs: int = -1,
        sparse_output: bool = False,
        verbose: Any = False,
    ) -> None:
        self.kernel = kernel
        self.n_features = n_features
        self.times = times
        self.normalize = normalize
        self.graph = graph
        self.teacher = teacher
        self.field = field
        self.anchors = anchors
        self.quadrature = quadrature
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.sparse_output = sparse_output
        self.verbose = verbose

    @classmethod
    def paper(cls, **changes: Any) -> Self:
        """Return the paper's recipe: walks, its network, all nodes as anchors.

        The kernel exp(-20 L) on the graph of 8 nearest neighbours (24 on the Mobius strip), 100,000 walks with
        halting probability .01 from each of 1000 nodes, the network with its defaults, the plain sum over all
        nodes, and the scale of the graph's kernel (``normalize=False``).

        Parameters
        ----------
        **changes
            Parameters with other values, also nested ones, such as ``graph__n_neighbors=24``.

        Examples
        --------
        >>> from manifoldrf import ManifoldRandomFeatures
        >>> recipe = ManifoldRandomFeatures.paper(random_state=0, graph__n_neighbors=24)
        >>> recipe.teacher.n_walks, recipe.field.batch, recipe.graph.n_neighbors
        (100000, 1024, 24)
        """
        recipe = cls(
            DiffusionKernel(20.0),
            "all",
            normalize=False,
            graph=KnnGraph(n_neighbors=8, bandwidth="mean", density_correction=0.0),
            teacher=Walks(n_walks=100_000, p_halt=0.01),
            field=Network(),
            anchors="all",
            quadrature="uniform",
        )
        return recipe.set_params(**changes)

    @all_or_nothing
    @one_blas_thread()  # the errors that decide between weights and fields must not depend on the number of threads
    def fit(self, X: Any, y: Any = None) -> Self:
        """Discretise the space, compute signatures and choose weights and field.

        Parameters
        ----------
        X : array-like of shape (n, d), TriangleMesh, AbstractManifold or Graph
            The space: points on it, its mesh, the manifold itself, or a graph with points. Meshes and graphs of
            other libraries work as in :meth:`TriangleMesh.of` and :meth:`Graph.from_affinity`, and give the same
            features.
        y : ignored
        """
        space = check_space(self, X)
        for name in ("times_", "_source"):  # of an earlier fit
            self.__dict__.pop(name, None)
        options = FitOptions.of(self.get_params(deep=False))
        self._streams = options.streams
        if self.times is not None:
            return self._fit_times(space, options)
        self.map_, self.record_ = fit_features(space, options)
        self._error: tuple[ErrorEstimate, bool] | None = self.record_.error, False
        return self

    def _fit_times(self, space: Any, options: FitOptions) -> Self:
        """Fit at the shortest time of each octave, and take the features of the kernel."""
        times = check_times(self.times)
        kernel = check_in_range(self.kernel, times)
        check_option(self.field, "field", ("auto", "step"))

        def fit_at(t: float) -> tuple[FeatureMap, ErrorEstimate]:
            member: Any = clone(self).set_params(kernel=HeatKernel(t), times=None, field="step", normalize=False)
            member.random_state = options.streams.generator(f"times.{t!r}")
            # Only the shortest time, the hardest, warns: longer ones would repeat its warnings or seem useless.
            with without_warnings(*((ManifoldWarning,) if t > times[0] else ())):
                member.fit(space)
            return member.map_, member.record_.error

        self.times_ = TimeRange.fit(fit_at, times, options.n_jobs)
        return self._use(self.times_, kernel)

    def at(self, kernel: Any) -> Self:
        """Features of another kernel from the same fit, which requires the parameter ``times``.

        Parameters
        ----------
        kernel : float, HeatKernel or MaternKernel
            A heat time in the range of ``times``, or a kernel; a Matern kernel has ``clock="manifold"``. It is a
            sum over heat kernels of the range, so the range must hold nearly all of it.

        Returns
        -------
        features : ManifoldRandomFeatures
            Fitted features, which share the tables of this fit. Times in different octaves have different
            anchors, hence different numbers of features.

        Examples
        --------
        >>> from manifoldrf import ManifoldRandomFeatures, Sphere
        >>> features = ManifoldRandomFeatures(times=(0.05, 0.4), random_state=0).fit(Sphere())
        >>> [features.at(t).n_features_out_ for t in (0.05, 0.07, 0.2)]
        [447, 447, 112]
        """
        family = self._family()
        found = copy.copy(self)
        del found.times_
        found.kernel = kernel if isinstance(kernel, AbstractKernel) else HeatKernel(kernel)
        found.times = None
        return found._use(family, found.kernel)

    def prepare(self, Z: Any) -> PreparedPoints:
        """Evaluate the tables of a fit with ``times`` at points, once for all times.

        Parameters
        ----------
        Z : array-like of shape (q, d)

        Returns
        -------
        PreparedPoints
            ``prepared.at(t)`` is ``features.at(t).transform(Z)``, up to 1e-6 of the largest value, without
            evaluating the tables again, for searches over t. It stores four numbers for each feature.
            ``prepared.kernel_matrix(t)`` is the kernel between the points.
        """
        points, _ = self._check_queries(Z)
        return PreparedPoints(self._family(), points, bool(self.normalize), check_jobs(self.n_jobs), warn=True)

    def _family(self) -> TimeRange:
        check_is_fitted(self, "map_")
        if not hasattr(self, "times_"):
            raise ValueError("Features of other times need a fit with a range of times: times=(shortest, longest).")
        return self.times_

    def _use(self, family: TimeRange, kernel: AbstractKernel) -> Self:
        """Take the features of a kernel from the tables of all times."""
        self.map_ = family.at(kernel, normalize=bool(self.normalize))
        unknown = ErrorEstimate(np.nan, np.nan, np.nan, None, np.nan)
        text = f"a sum of heat kernels at {len(family.levels)} times"
        if isinstance(kernel, HeatKernel):
            first = family.levels[family.number(kernel.t)].shortest
            text = f"from the tables of t = {first:.3g} and longer times"
        self.record_ = FitRecord((("times", text),), "step", "of each octave", unknown)
        self._source = family
        self._error = None  # computed on first access
        return self

    @property
    def graph_(self) -> Graph:
        """The graph that discretises the space."""
        return self._map().kernel.graph

    @property
    def kernel_(self) -> Any:
        """The kernel, as given or chosen."""
        return self._map().kernel.stated

    @property
    def anchors_(self) -> IntArray:
        """Nodes at which features are read."""
        return self._map().anchors

    @property
    def weights_(self) -> FloatArray:
        """Quadrature weights of the anchors; volumes in the manifold clock."""
        fitted = self._map()
        return fitted.weights / fitted.unit_scale**2

    @property
    def scale_(self) -> float:
        """Factor of the kernel that features represent; 1 without ``normalize``."""
        return self._map().factor

    @property
    def bound_(self) -> FloatArray:
        """Largest value that each feature can take."""
        fitted = self._map()
        return fitted.output_scale * fitted.bound

    @property
    def field_(self) -> str:
        """The field in use: "step", "interpolated" or "network"."""
        return self._record().field

    @property
    def quadrature_(self) -> str:
        """The method of the weights."""
        return self._record().quadrature

    @property
    def training_(self) -> TrainingInfo | None:
        """Record of the training of a network."""
        return self._record().training

    @property
    def asymmetric_(self) -> bool:
        """Whether points have a left and a right side."""
        return self._map().kernel.asymmetric

    @property
    def n_features_out_(self) -> int:
        """Number of features."""
        return len(self._map().anchors)

    @property
    def error_(self) -> ErrorEstimate:
        """Error of the kernel, measured at held-out nodes."""
        # Read once, because several threads may add the share of the graph.
        kernel, jobs, known = self._map().kernel, check_jobs(self.n_jobs), self._error
        if known is not None and known[1]:
            return known[0]
        share = self.record_.series_error  # of a function given as kernel: `fit` has warned
        if known is None:
            error = self._source.error(kernel.stated, self._streams, jobs)
        else:
            with stage_of(check_progress(self.verbose), "error of the graph"):
                error = known[0].with_graph(graph_error(kernel, self._streams, jobs) if share is None else share)
        off = error.graph or 0.0
        if share is None and off > 0.2:
            about = f"about {off:.0%}" if off < 1 else "more than 100%"
            warn_inaccurate(
                f"The kernel of the graph is off by {about}: too few points for such a narrow kernel or so many "
                "dimensions, or a boundary. The features represent the kernel of the graph. Remedies: more points, "
                "a wider kernel (a larger t). Classifiers may do well all the same.",
                useless=off > USELESS,
            )
        self._error = error, True
        return error

    def _get_fitted_attr_html(self, *args: Any, **options: Any) -> Any:
        """Attributes for notebooks. scikit-learn reads them all, which must neither compute the error nor warn."""
        shown = copy.copy(self)
        if hasattr(self, "record_"):
            shown._error = (self.record_.error if self._error is None else self._error[0]), True
        return BaseEstimator._get_fitted_attr_html(shown, *args, **options)

    def _html_repr(self) -> str:
        """The table of a fit that notebooks show; it computes nothing and does not warn."""
        if not hasattr(self, "map_"):
            return str(super()._html_repr())
        return html_table(f"{type(self).__name__}, fitted", self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        """What was fitted, chosen and estimated, as names and texts, with the error as far as it is known."""
        map_, record, kernel = self.map_, self.record_, self.map_.kernel
        notes = dict(record.notes)
        chosen = f", {notes.pop('kernel')}" if "kernel" in notes else ""
        weights = f"quadrature '{record.quadrature}'"
        if kernel.asymmetric:
            weights = "with two sides: this kernel has no nonnegative features"
        clock = "manifold" if kernel.per_volume else "graph"
        scale = f"{map_.factor:.3g} times the kernel: K(x, x) = 1 on average" if map_.factor != 1 else ""
        rows = [
            ("kernel", f"{shortened(kernel.stated)}{chosen}"),
            ("on the graph", "" if "times" in notes else f"{shortened(kernel.resolved)}, in the {clock} clock"),
            ("scale", scale),
            *notes.items(),
            ("width of features", f"{kernel.width:.3g}"),
            ("features", f"{len(map_.anchors)}, {weights}"),
            ("field", record.field),
        ]
        text = "estimated by `error_`"
        if self._error is not None:
            error, whole = self._error
            share = error.graph if record.series_error is None else None  # else the share is that of a series
            text = f"{error}{'; use more points or a wider kernel' if (share or 0) >= 0.1 else ''}"
            text += "" if whole else "; `error_` adds the share of the graph if it can"
            rows.append(("fields tried", ", ".join(f"{name} {brief(one)}" for name, one in error.candidates)))
            rows.append(("quadratures tried", ", ".join(f"{name} {brief(one)}" for name, one in error.quadratures)))
        return [row for row in rows if row[1]] + [("relative error", text)]

    def _map(self) -> FeatureMap:
        check_is_fitted(self, "map_")
        return self.map_

    def _record(self) -> FitRecord:
        check_is_fitted(self, "map_")
        return self.record_

    def transform(self, X: Any, side: str | None = None) -> Any:
        """Features of points.

        Features of points away from the space fade to zero; one warning says how many there are.

        Parameters
        ----------
        X : array-like of shape (q, d)
        side : {"left", "right"}, optional
            Required for kernels without nonnegative features, where K(x, y) = left(x) . right(y).

        Returns
        -------
        features : array, or CSR array with ``sparse_output``, of shape (q, m)
            In the float type of ``X``.
        """
        points, dtype = self._check_queries(X, "X")
        side, jobs = self._check_side(side), check_jobs(self.n_jobs)
        progress = check_progress(self.verbose)
        return self._map().features(points, dtype, jobs, as_sparse=self.sparse_output, side=side, progress=progress)

    def transform_blocks(self, X: Any, *, side: str | None = None, n_rows: int | None = None) -> Iterator[Any]:
        """Features of more points than memory holds, a block at a time.

        Parameters
        ----------
        X : array of shape (q, d)
            Anything with a shape and slices of rows, such as ``numpy.load(file, mmap_mode="r")``: one block is read
            and checked at a time.
        side : {"left", "right"}, optional
            As in :meth:`transform`.
        n_rows : int, optional
            Points in a block; by default 256 MB of features, 100 MB of sparse ones, and at most 32,768 points.

        Yields
        ------
        features : array, or CSR array with ``sparse_output``, of shape (rows of the block, m)
            With the same bits as :meth:`transform`. Warnings count far points block by block.

        Examples
        --------
        >>> from manifoldrf import HeatKernel, ManifoldRandomFeatures, Sphere
        >>> features = ManifoldRandomFeatures(HeatKernel(0.05), sparse_output=True, random_state=0).fit(Sphere())
        >>> many = Sphere().sample(5000, seed=1)
        >>> [block.shape[0] for block in features.transform_blocks(many, n_rows=2000)]
        [2000, 2000, 1000]
        """
        chosen = self._check_side(side)
        size = self._map().block_size(as_sparse=self.sparse_output)
        if n_rows is not None:
            size = check_integer(n_rows, "n_rows", 1)
        shape = getattr(X, "shape", None)
        if shape is None:
            reject("X", "an array of shape (q, d); `transform` takes other things", type(X).__name__, TypeError)
        if len(shape) != 2:
            reject("X", "an array of shape (q, d)", f"shape {shape}")
        return (self.transform(X[start : start + size], chosen) for start in range(0, X.shape[0], size))

    @quiet_underflow()
    def kernel_matrix(self, Z: Any, Y: Any = None) -> FloatArray:
        """K(z, y) = phi(z) . phi(y), shape (len(Z), len(Y)); between the points of ``Z`` without ``Y``."""
        points, dtype = self._check_queries(Z)
        others = points if Y is None else self._check_queries(Y, "Y")[0]
        right, windows = self._rows(others, "right")
        left = right
        if Y is not None or self.asymmetric_:
            left, more = self._rows(points, "left")
            windows = np.concatenate([windows, more]) if Y is not None else windows
        warn_of_far(windows)
        return product(left, right, check_jobs(self.n_jobs)).astype(dtype, copy=False)

    @one_blas_thread()
    def matvec(self, Z: Any, v: ArrayLike) -> FloatArray:
        """K v = phi(Z) (phi(Z)^T v) in time proportional to the number of points.

        Parameters
        ----------
        Z : array-like of shape (q, d)
        v : array-like of shape (q,) or (q, c)
        """
        points, dtype = self._check_queries(Z)
        columns = check_columns(v, "v", len(points), "point")
        spans = list(self._map().spans(len(points)))
        total: Any = 0.0
        window = np.ones(len(points))
        for span in spans:
            rows, window[span] = self._rows(points[span], "right")
            total = total + rows.T @ columns[span]
        warn_of_far(window)
        if len(spans) == 1 and not self.asymmetric_:
            result = rows @ total
        else:
            result = np.concatenate([self._rows(points[span], "left")[0] @ total for span in spans])
        return np.asarray(result[:, 0] if np.ndim(v) == 1 else result, dtype=dtype)

    def distance_to_space(self, Z: Any) -> FloatArray:
        """Distance of points to the nearest node or, on a mesh, to its surface, shape (q,)."""
        points, _ = self._check_queries(Z)
        return self._map().kernel.distance(points)

    def summary(self) -> str:
        """What was fitted, chosen and estimated, as a text of a few lines."""
        _ = self.error_
        return text_table(self._facts())

    def save(self, path: Any) -> Path:
        """Write the fitted features to one file; :func:`manifoldrf.load` reads it, on any machine.

        The file holds arrays and plain text, no code. Functions given as ``kernel`` or ``graph`` are not stored,
        because they are not needed after the fit. Neither is ``n_jobs``: a loaded model has the default.
        """
        self._map()
        return save_value(path, self)

    def _state(self) -> dict[str, Any]:
        """The state that a file holds, without ``n_jobs``, which does not affect results."""
        family = getattr(self, "times_", None)
        return {
            "times": family,
            "params": plain_params(self, without=("n_jobs",)),
            "map": self.map_ if family is None else self.map_.kernel.stated,
            "record": self.record_,
            "error": self.error_,
            "root": self._streams.root.hex(),
            "n_features_in": int(self.n_features_in_),
            "feature_names_in": [str(name) for name in getattr(self, "feature_names_in_", [])],
        }

    @classmethod
    def _from_state(cls, state: dict[str, Any]) -> Self:
        """The estimator in a file; raises if :meth:`save` does not write such a state."""
        model = cls(**state["params"])
        fitted, record, error = state["map"], state["record"], state["error"]
        if state["times"] is not None:
            check_types({"times": TimeRange}, {"times": state["times"]})
            model.times_ = model._source = state["times"]
            fitted = model.times_.at(fitted, normalize=bool(model.normalize))
        hints = {"map": FeatureMap, "record": FitRecord, "error": ErrorEstimate}
        check_types(hints, {"map": fitted, "record": record, "error": error})
        with np.errstate(all="ignore"):
            if not np.isfinite(fitted.bound * fitted.output_scale).all():
                reject("weights", "such that features are finite", "others")
        model.map_, model.record_, model._error = fitted, record, (error, True)
        model._streams = Streams(bytes.fromhex(state["root"]))
        n, names = fitted.kernel.graph.positions.shape[1], state["feature_names_in"]
        model.n_features_in_ = check_integer(state["n_features_in"], "n_features_in", n, n)
        restore_names(model, names, n)
        check_flag(model.sparse_output, "sparse_output")
        return model

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """Names of the features: ``manifoldrandomfeatures0``, ..."""
        return np.array([f"{type(self).__name__.lower()}{k}" for k in range(self.n_features_out_)], dtype=object)

    def _check_side(self, side: str | None) -> str:
        if side is None and self.asymmetric_:
            raise ValueError(
                f"This {type(self.kernel_).__name__} has no nonnegative features: its factors differ, so `side` "
                "must be 'left' or 'right'; `kernel_matrix` and `matvec` use both."
            )
        return check_option(side or "left", "side", ("left", "right"))

    def _check_queries(self, Z: Any, name: str = "Z") -> tuple[FloatArray, Any]:
        """Points as float64, and the type that results are to have."""
        check_is_fitted(self, "map_")
        points, dtype = estimator_points(self, Z, name, reset=False)
        metric = self.graph_.metric
        return (points if metric is None else metric.check(points, name)), dtype

    def _rows(self, points: FloatArray, side: str) -> tuple[Any, FloatArray]:
        return self._map().rows(points, check_jobs(self.n_jobs), side=side)


def heat_signature(
    space: ArrayLike | TriangleMesh, times: ArrayLike, *, at: ArrayLike | None = None, n_jobs: int = -1
) -> FloatArray:
    """The heat-kernel signature K_t(x, x): the heat that remains at x after each time t.

    It depends on the shape alone, not on position, orientation or order of the vertices, so it can be compared
    between scans, unlike features of two fits. At short times it is (4 pi t)^(-dim/2), changed by the curvature at
    x and doubled at an edge; at long times it is one over the volume. For scans of different size, divide
    coordinates by the square root of the area first.

    Parameters
    ----------
    space : TriangleMesh or array-like of shape (n, d)
        Meshes and clouds that are finer than a time requires are thinned, as in :class:`ManifoldRandomFeatures`.
    times : float or array-like of shape (k,)
        Heat times, in units of length squared.
    at : array-like of shape (q, d), optional
        Points of the space; all vertices or points by default.
    n_jobs : int, default=-1
        Number of threads; the result does not depend on it.

    Returns
    -------
    ndarray of shape (q, k)
        In units of one over volume.

    Notes
    -----
    At short times the signature varies little over a shape, and differences between two meshes of the same shape
    may be as large: see the guide to meshes.

    Examples
    --------
    >>> from manifoldrf import Sphere, heat_signature
    >>> points = Sphere().grid(1000)
    >>> heat_signature(points, [0.1, 1.0], at=points[[0, 500]]).round(2).tolist()
    [[0.82, 0.11], [0.82, 0.11]]
    >>> Sphere().heat_kernel([[0, 0, 1]], [[0, 0, 1]], 0.1).round(2).tolist()
    [[0.82]]
    """
    space = translated(space, "space")
    moments = np.atleast_1d(as_floats(times, "times"))
    if not moments.size:
        reject("times", "at least one time", "none")
    columns = []
    for t in check_vector(moments, "times", moments.size, POSITIVE):
        features = ManifoldRandomFeatures(
            HeatKernel(float(t)), "all", normalize=False, random_state=0, n_jobs=n_jobs, sparse_output=True
        ).fit(space)
        if at is None:
            at = space.vertices if isinstance(space, TriangleMesh) else space
        blocks = features.transform_blocks(np.asarray(at))
        columns.append(np.concatenate([np.asarray(rows.multiply(rows).sum(axis=1)).ravel() for rows in blocks]))
    return np.column_stack(columns)


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
    X = X.compute() if hasattr(X, "to_delayed") else X
    refuse_text(X, name)  # scikit-learn would convert text to numbers
    found = validate_data(estimator, X, dtype=(np.float64, np.float32), ensure_all_finite=False, **options)
    return check_points(found, name, names=column_names(X)), found.dtype


def check_space(estimator: Any, X: Any) -> Any:
    """Check what an estimator is fitted to, and store the number of coordinates as scikit-learn requires."""
    X = translated(X, "X")
    if not isinstance(X, TriangleMesh | AbstractManifold | Graph):
        points = estimator_points(estimator, X)[0]
        if len(points) < 2:
            reject("X", "an array of at least 2 points", "1 sample")  # the words that scikit-learn's checks ask for
        if names := column_names(X):
            for k in counting_columns(points):
                text = "looks like a row number, but is used as a coordinate (remedy: drop it)"
                warn_user(f"Column {k} of X (counted from 0), {names[k]!r}, {text}.")
        if look_like_degrees(points, column_names(X)):
            warn_user(
                "The columns of `X` look like degrees, but are used as coordinates of a plane (remedy: "
                "Sphere(radius=6371.0).from_lonlat makes points of the Earth, in kilometres, from longitudes in "
                "the first and latitudes in the second column)."
            )
        return points
    estimator.n_features_in_ = n_coordinates(X)
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    return X


def n_coordinates(space: Any) -> int:
    """Number of coordinates of a manifold, a mesh, a graph with points, or points."""
    if isinstance(space, AbstractManifold):
        return space.ambient_dim
    points = space.vertices if isinstance(space, TriangleMesh) else getattr(space, "positions", space)
    return int(points.shape[1])


def restore_names(model: Any, names: Any, n: int) -> None:
    """Give a model the names of its n coordinates from a file, if it has any."""
    if names:
        if len(names) != n or not all(isinstance(name, str) for name in names):
            reject("feature_names_in", f"{n} texts", str(names)[:80])
        model.feature_names_in_ = np.array(names, dtype=object)


def text_table(rows: list[tuple[str, str]]) -> str:
    """Names and texts, one line each."""
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {text}" for name, text in rows)


def shortened(kernel: Any) -> str:
    """A kernel as text of at most 100 characters, with numbers of at most four digits."""
    scaled = isinstance(kernel, ScaledKernel)
    text = f"{kernel.factor:.3g} * {kernel.kernel!r}" if scaled else repr(kernel)
    text = re.sub(r"\d+\.\d{3,}(e[+-]\d+)?", lambda number: f"{float(number[0]):.4g}", text)
    return text if len(text) <= 100 else f"{text[:96]} ..."


def plain_params(estimator: Any, *, without: tuple[str, ...]) -> dict[str, Any]:
    """The parameters of an estimator that a file can hold, except those named."""
    params = estimator.get_params(deep=False)
    kept = (name for name, value in params.items() if name not in without and isinstance(value, _PLAIN))
    return {name: _plain(params[name]) for name in kept}


def _plain(value: Any) -> Any:
    """A parameter as a file holds it: Python numbers, paths as text, and the plain values of a dictionary."""
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items() if isinstance(part, _PLAIN)}
    if isinstance(value, np.generic):
        return value.item()
    return os.fspath(value) if isinstance(value, os.PathLike) else value
